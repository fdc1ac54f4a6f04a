//! A trunk of 200 calls alone on a link that loses datagrams independently of each other.

use crate::experiment::PointError;
use crate::tfmc::network::{CALLS, INTERVAL, PAYLOAD, spread_calls};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, Time, rng};
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::tfmc::Config;
use trunkline_sim::agent::AgentId;
use trunkline_sim::agent::trunk::{Mode, Receiver, Sender, Trunk};
use trunkline_sim::{WireId, World};

/// One-way delay of the link.
pub const DELAY: Duration = Duration::from_millis(20);
/// Start of the first call; the last begins at most 20 ms later.
pub const BEGIN: Time = Time::from_millis(100);

/// A trunk with calls whose packets are spread over 20 ms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Alone {
    /// TFMC's parameters of the trunk.
    pub config: Config,
    /// How packets are combined into datagrams.
    pub mode: Mode,
    /// Share of datagrams that are lost in the forward direction.
    pub loss: f64,
    /// Duration of the calls.
    pub length: Duration,
}

/// The sending gateway and the link to the receiving one.
pub struct Net {
    /// The simulated network of both gateways.
    pub world: World,
    /// The link, from the sender to the receiver.
    pub wire: WireId,
    /// The gateway that sends the trunk.
    pub sender: AgentId<Sender>,
}

/// Model of the link's forward direction at this loss.
pub fn link(loss: f64) -> LinkModel {
    let loss = if loss > 0.0 { Loss::Bernoulli { p: loss } } else { Loss::None };
    let rate = Some(Bitrate::from_bps(1_000_000_000));
    LinkModel { rate, delay: DELAY, loss, ..LinkModel::default() }
}

impl Alone {
    /// Both ends in their initial state.
    pub fn net(&self, seed: u64) -> Result<Net, PointError> {
        let packets = (self.length.as_nanos() / INTERVAL.as_nanos()) as u32;
        let calls = spread_calls(CALLS, BEGIN, packets, &mut rng(seed, 1));
        let trunk = Trunk::new(PAYLOAD, calls).with_tfmc(self.config);
        let trunk = Trunk { mode: self.mode, ..trunk };
        let mut world = World::new(IpVersion::V4, seed);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let wire = world.cable(a, b, link(self.loss), link(0.0))?;
        let to = world.endpoint(b, 9);
        world.bind(b, Protocol::UDP, 9, Receiver::new(9, trunk.clone()))?;
        let sender = Sender::new(8, to, trunk, Time::ZERO);
        let sender = world.bind(a, Protocol::UDP, 8, sender)?;
        Ok(Net { world, wire, sender })
    }
}
