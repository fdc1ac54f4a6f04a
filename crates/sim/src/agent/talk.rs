//! Packets of one size at given times over UDP, like a codec's.

use super::{Agent, AgentIo, Outgoing, Received};
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_net::{Endpoint, Protocol};

/// Length of the packet's number in front of each payload, in bytes.
const NUMBER: usize = 4;
/// Maximum payload of a [`Talker`], in bytes; 100 ms of G.711 take 800.
pub const MAX_PAYLOAD: usize = 1_400;

/// Sends each packet when it becomes due, regardless of losses.
#[derive(Clone, Debug)]
pub struct Talker {
    port: u16,
    to: Endpoint,
    due: Rc<[Time]>,
    bytes: usize,
    next: usize,
}

impl Talker {
    /// Sends a payload of `bytes`, 4 to [`MAX_PAYLOAD`], at each of the times `due`, which must be
    /// in order, from `port` to `to`. There must be a [`Listener`] for the same packets.
    ///
    /// # Panics
    ///
    /// If the payload is too short or too long.
    pub fn new(port: u16, to: Endpoint, due: Rc<[Time]>, bytes: usize) -> Talker {
        assert!((NUMBER..=MAX_PAYLOAD).contains(&bytes), "a payload of {bytes} bytes");
        Talker { port, to, due, bytes, next: 0 }
    }

    fn ask(&self, io: &mut AgentIo<'_>) {
        if let Some(&due) = self.due.get(self.next) {
            io.wake_at(due, 0);
        }
    }
}

impl Agent for Talker {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.ask(io);
    }

    fn receive(&mut self, _datagram: Received<'_>, _io: &mut AgentIo<'_>) {}

    fn wake(&mut self, _token: u64, io: &mut AgentIo<'_>) {
        let mut payload = [0; MAX_PAYLOAD];
        payload[..NUMBER].copy_from_slice(&(self.next as u32).to_be_bytes());
        let &mut Talker { port, to, bytes, .. } = self;
        let (protocol, payload) = (Protocol::UDP, &payload[..bytes]);
        io.send(&Outgoing { port, to, protocol, tos: 0, payload });
        self.next += 1;
        self.ask(io);
    }
}

/// Records when each packet of a [`Talker`] arrives.
#[derive(Clone, Debug)]
pub struct Listener {
    arrived: Vec<Option<Time>>,
}

impl Listener {
    /// Expects this many packets; those with higher numbers are ignored.
    pub fn new(packets: usize) -> Listener {
        Listener { arrived: vec![None; packets] }
    }

    /// First arrival of each packet; `None` if it did not arrive.
    pub fn arrived(&self) -> &[Option<Time>] {
        &self.arrived
    }
}

impl Agent for Listener {
    fn receive(&mut self, datagram: Received<'_>, _io: &mut AgentIo<'_>) {
        let Some(number) = datagram.payload.first_chunk::<NUMBER>() else { return };
        if let Some(arrived) = self.arrived.get_mut(u32::from_be_bytes(*number) as usize) {
            arrived.get_or_insert(datagram.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;
    use core::time::Duration;
    use trunkline_base::link_model::{LinkModel, Loss};
    use trunkline_net::IpVersion;

    #[test]
    fn each_packet_is_sent_when_it_is_due_and_noted_when_it_comes() {
        let mut world = World::new(IpVersion::V6, 3);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let delay = Duration::from_millis(30);
        let link = LinkModel { delay, ..LinkModel::default() };
        let lossy = LinkModel { loss: Loss::Bernoulli { p: 0.3 }, ..link.clone() };
        world.cable(a, b, lossy, link).unwrap();
        let due: Rc<[Time]> = (1..=1_000).map(|n| Time::from_millis(20 * n + n % 7)).collect();
        let listener = world.bind(b, Protocol::UDP, 9, Listener::new(due.len())).unwrap();
        let to = world.endpoint(b, 9);
        world.bind(a, Protocol::UDP, 8, Talker::new(8, to, due.clone(), 20)).unwrap();
        world.run_until(Time::from_millis(30_000));
        let arrived = world.agent(listener).arrived();
        let lost = arrived.iter().filter(|a| a.is_none()).count();
        assert!((230..370).contains(&lost), "{lost}");
        for (due, arrived) in due.iter().zip(arrived) {
            assert!(arrived.is_none_or(|at| at == *due + delay), "{due:?} {arrived:?}");
        }
    }
}
