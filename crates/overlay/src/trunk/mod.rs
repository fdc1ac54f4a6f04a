//! Trunks: the real-time packets of many flows between two nodes leave as few larger
//! ones, and are taken apart again at the other end (Trad and Afifi, *Adaptive
//! Multiplexing Scheme for Voice Flow Transmission Across Best-Effort IP Networks*,
//! INRIA RR-4929, 2003).
//!
//! A sender gathers what applications send to one node, and a receiver takes it apart.
//! To every node between the two, a trunk packet is one packet of a flow from port 0 to
//! port 0: relays need to know nothing, and real-time links recover it as a whole.
//! Applications notice nothing either: each packet keeps its ports, its number and its
//! content.
//!
//! Of the RTP headers in it a trunk packet has only what the receiver can't know (see
//! [`Rtp`]). Everything else is carried as it is.
//!
//! A node that doesn't know trunks drops what it doesn't understand, so each one is
//! asked first ([`Message::Ask`]) and once a second from then on; without an answer,
//! packets leave one by one as ever.

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

/// How soon the other end is asked again after it has said that it knows nothing of this
/// trunk.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A context gets another meaning only after it was idle for so long, so that no packet
/// under way is taken for one of another flow.
const REUSED_AFTER: Duration = Duration::from_secs(5);

/// A context that was idle for so long means nothing any more at the receiving end, which
/// may never hear what it means next. The time between the two is by how much longer than
/// others a packet may be under way.
const UNSAID_AFTER: Duration = Duration::from_secs(3);

/// The trunk to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The node at the other end.
    pub to: NodeId,
    /// How long a packet may wait for others: at most [`Config::MAX_WAIT`]. Zero
    /// takes together only what applications send at once.
    pub wait: Duration,
    /// How packets are put together.
    pub multiplex: Multiplex,
    /// Whether flows that are new are refused while the trunk is over its share
    /// ([`tfmc::Sender::over_share`]).
    pub admit_share: bool,
}

impl Config {
    /// The longest wait: half of what a packet of 20 ms lasts.
    pub const MAX_WAIT: Duration = Duration::from_millis(10);

    /// A trunk to `to` with the defaults: what comes within 2 ms leaves together.
    pub fn new(to: NodeId) -> Config {
        let wait = Duration::from_millis(2);
        Config { to, wait, multiplex: Multiplex::Fill, admit_share: false }
    }

    /// How often the other end reports what is lost: often enough for who adapts to it
    /// (Trad and Afifi, section 5.1.2), or to see how it goes.
    fn report_every(&self) -> Duration {
        match self.multiplex {
            Multiplex::Tfmc => Duration::from_millis(5),
            Multiplex::Fill | Multiplex::Off => Duration::from_millis(100),
        }
    }
}

/// How packets are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multiplex {
    /// As many as come within [`Config::wait`], and fit.
    Fill,
    /// As many as make the trunk send what a TCP would (Trad and Afifi): one by one
    /// without loss, and more the more is lost, as far as they come within
    /// [`Config::wait`] and fit.
    Tfmc,
    /// Not at all: each packet leaves by itself, as without a trunk.
    Off,
}

/// Why a trunk can't be as it is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A trunk to the node itself.
    #[error("node {0} has a trunk to itself: give the other end's id")]
    ToSelf(NodeId),
    /// An id that no node has.
    #[error("a trunk leads to {0}, which is no node's id: ids are 1 to 4294967295")]
    ReservedId(NodeId),
    /// Two trunks to one node.
    #[error("two trunks lead to node {0}: keep one")]
    Twice(NodeId),
    /// A wait that voice can't afford.
    #[error("the trunk to node {0}: wait is 0 to 10 ms")]
    Wait(NodeId),
}

/// The longest trunk packet, however much this node's links carry: those further on may
/// carry no more than they do by default, and nobody hears of what they drop.
pub(crate) const MAX_ROOM: usize = DEFAULT_MTU - IP_UDP_HEADERS - DATA_OVERHEAD;

/// IPv4's and UDP's headers, an envelope's and a frame's, in front of a trunk packet.
const IN_FRONT: usize = 28 + DATA_OVERHEAD;

/// The parameters of rate control at both ends, for trunk packets of at most `room` bytes.
/// All bytes that a packet has on an IPv4 path count.
fn rate_config(room: usize, report_every: Duration) -> tfmc::Config {
    tfmc::Config {
        header: IN_FRONT + HEAD,
        per_packet: ENTRY,
        mtu: IN_FRONT + room,
        // The number that solves equations 2 and 4 at once: the paper's swings.
        segment: tfmc::Segment::Chosen,
        feedback_interval: report_every,
        ..tfmc::Config::default()
    }
}

/// Checks the trunks of node `own`.
///
/// # Errors
///
/// The first that can't be as it is.
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
