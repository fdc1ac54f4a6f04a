//! Reports of a link to control.

use super::LinkId;
use super::cost::LinkCost;
use crate::arena::Ends;
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;

/// Reason for which a link went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownCause {
    /// One end has received nothing from the other for too long.
    Silence,
    /// The neighbour has announced that it stops.
    Goodbye,
    /// The neighbour is no longer trusted, for the reason with this label: why handshakes with it
    /// are refused from now on.
    Untrusted(&'static str),
    /// The link was removed: by the operator, or since an unconfigured peer was gone for long.
    Removed,
}

impl DownCause {
    /// The reason in a word, for the log.
    pub fn label(self) -> &'static str {
        match self {
            DownCause::Silence => "silence",
            DownCause::Goodbye => "goodbye",
            DownCause::Untrusted(why) => why,
            DownCause::Removed => "removed",
        }
    }
}

/// A report of the forwarder to control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkReport {
    /// A link's neighbour is reachable again, or has restarted.
    Up {
        /// Link that came up.
        link: LinkId,
        /// Whether the neighbour may have lost the routing state that it was sent.
        restarted: bool,
        /// The measured round trip; zero if unknown.
        rtt: Duration,
    },
    /// A link that was up is down.
    Down(LinkId, DownCause),
    /// The cost of a link has changed enough for others to be notified.
    Cost(LinkId, LinkCost),
    /// A link that keeps failing is damped from now on (true), or no longer (false).
    Damped(LinkId, bool),
    /// A routing frame has arrived.
    Routing(LinkId, Box<[u8]>),
    /// A handshake message has arrived.
    Handshake {
        /// Time of its arrival.
        at: Time,
        /// Both ends of its path.
        ends: Ends,
        /// Content of the datagram.
        bytes: Box<[u8]>,
    },
    /// The neighbour uses the session that it initiated.
    Confirmed(LinkId),
    /// The neighbour has moved to another address, and has proven it.
    Moved(LinkId, SocketAddr),
    /// A link has sealed so much that it needs new keys.
    Rekey(LinkId),
}
