//! Trunks: the real-time packets of many flows between two nodes leave as fewer, larger ones, and
//! are split up again at the other end (Trad and Afifi, *Adaptive Multiplexing Scheme for Voice
//! Flow Transmission Across Best-Effort IP Networks*, INRIA RR-4929, 2003).
//!
//! A sender gathers the packets that applications send to one node, and a receiver splits them up.
//! To every node between the two, a trunk packet is one packet of a flow from port 0 to port 0:
//! relays need no support for trunks, and real-time links recover it as a whole. Applications
//! notice nothing either: each packet keeps its ports, its number and its content.
//!
//! A trunk packet contains only those parts of RTP headers that the receiver can't infer (see
//! [`Rtp`]). Everything else is carried unchanged.
//!
//! A node without support for trunks drops messages that it doesn't understand, so each one is
//! asked first ([`Message::Ask`]) and once a second from then on; without an answer, packets leave
//! one by one as usual.

mod receiver;
mod rtp;
mod sender;
#[cfg(test)]
mod tests;
mod wire;

pub use receiver::ReceiverStats;
pub(crate) use receiver::{Heard, Receiver};
pub use rtp::{RTP_HEADER, Rtp};
pub(crate) use sender::{Enqueued, Outgoing, Sender};
pub use sender::{State, Stats};
pub use wire::{
    Answer, Context, DEFINITION, ENTRY, Entries, Entry, HEAD, Head, MAX_CONTEXTS, MAX_ENTRIES,
    MAX_PACKET, MalformedEntry, Message, TRUNK_VERSION,
};

use crate::link::{DEFAULT_MTU, IP_UDP_HEADERS};
use crate::wire::{DATA_OVERHEAD, NodeId};
use core::time::Duration;
use trunkline_rate::tfmc;

/// Delay before the other end is asked again after it has answered that it doesn't have this trunk.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Minimum idle time before a context is reused, so that no packet in flight is taken for one of
/// another flow.
const REUSED_AFTER: Duration = Duration::from_secs(5);

/// Idle time after which a context is invalid at the receiving end, which may never receive its
/// next definition. The difference between the two times is the permitted extra delay of a packet.
const UNSAID_AFTER: Duration = Duration::from_secs(3);

/// Configuration of the trunk to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Node at the other end.
    pub to: NodeId,
    /// Maximum time that a packet waits for others: at most [`Config::MAX_WAIT`]. With zero, only
    /// packets sent at the same time are combined.
    pub wait: Duration,
    /// How packets are combined.
    pub multiplex: Multiplex,
    /// Whether new flows are refused while the trunk exceeds its share
    /// ([`tfmc::Sender::over_share`]).
    pub admit_share: bool,
}

impl Config {
    /// Maximum wait: half the duration of a packet of 20 ms.
    pub const MAX_WAIT: Duration = Duration::from_millis(10);

    /// A trunk to `to` with the defaults: packets sent within 2 ms leave together.
    pub fn new(to: NodeId) -> Config {
        let wait = Duration::from_millis(2);
        Config { to, wait, multiplex: Multiplex::Fill, admit_share: false }
    }

    /// Interval at which the other end reports losses: short enough for adaptation to them (Trad
    /// and Afifi, section 5.1.2), or for monitoring.
    fn report_every(&self) -> Duration {
        match self.multiplex {
            Multiplex::Tfmc => Duration::from_millis(5),
            Multiplex::Fill | Multiplex::Off => Duration::from_millis(100),
        }
    }
}

/// How packets are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multiplex {
    /// All packets sent within [`Config::wait`] that fit.
    Fill,
    /// As many as make the trunk send at the rate of a TCP (Trad and Afifi): one by one without
    /// loss, and more as the loss grows, provided that they are sent within [`Config::wait`] and
    /// fit.
    Tfmc,
    /// No combining: each packet leaves separately, as without a trunk.
    Off,
}

/// Reason for rejecting the configuration of a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The trunk leads to the node itself.
    #[error("node {0} has a trunk to itself: give the other end's id")]
    ToSelf(NodeId),
    /// The id is reserved, so no node may have it.
    #[error("a trunk leads to {0}, which is not a node id: ids are 1 to 4294967295")]
    ReservedId(NodeId),
    /// Two trunks lead to one node.
    #[error("two trunks lead to node {0}: keep one")]
    Twice(NodeId),
    /// The wait is too long for voice.
    #[error("the trunk to node {0}: wait must be 0 to 10 ms")]
    Wait(NodeId),
}

/// Maximum length of a trunk packet in bytes, whatever this node's links carry: other links on the
/// path may carry no more than the default, and drop longer packets without notice.
pub(crate) const MAX_ROOM: usize = DEFAULT_MTU - IP_UDP_HEADERS - DATA_OVERHEAD;

/// Bytes before a trunk packet: the headers of IPv4, UDP, envelope and frame.
const IN_FRONT: usize = 28 + DATA_OVERHEAD;

/// Parameters of rate control at both ends, for trunk packets of at most `room` bytes. All bytes of
/// a packet on an IPv4 path count.
fn rate_config(room: usize, report_every: Duration) -> tfmc::Config {
    tfmc::Config {
        header: IN_FRONT + HEAD,
        per_packet: ENTRY,
        mtu: IN_FRONT + room,
        // The number that solves equations 2 and 4 simultaneously: the paper's oscillates.
        segment: tfmc::Segment::Chosen,
        feedback_interval: report_every,
        ..tfmc::Config::default()
    }
}

/// Checks the trunks of node `own`.
///
/// # Errors
///
/// The first trunk that is invalid.
pub fn check(own: NodeId, trunks: &[Config]) -> Result<(), ConfigError> {
    for (n, trunk) in trunks.iter().enumerate() {
        let to = trunk.to;
        if !to.is_nodes() {
            return Err(ConfigError::ReservedId(to));
        }
        if to == own {
            return Err(ConfigError::ToSelf(to));
        }
        if trunks[..n].iter().any(|other| other.to == to) {
            return Err(ConfigError::Twice(to));
        }
        if trunk.wait > Config::MAX_WAIT {
            return Err(ConfigError::Wait(to));
        }
    }
    Ok(())
}
