//! What control has to know of a link.

use super::LinkId;
use super::cost::LinkCost;
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;

/// What the forwarder tells control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkReport {
    /// A link's neighbour is heard again, or has started anew.
    Up {
        /// Which link.
        link: LinkId,
        /// Whether the neighbour may have forgotten what it was told.
        restarted: bool,
        /// The measured round trip, zero if not known.
        rtt: Duration,
    },
    /// A link's neighbour has been silent for too long.
    Down(LinkId),
    /// What a link costs has changed so much that others should know.
    Cost(LinkId, LinkCost),
    /// A link that keeps failing costs more from now on; or no longer.
    Damped(LinkId, bool),
    /// A routing frame came.
    Routing(LinkId, Box<[u8]>),
    /// A message of the handshake came.
    Handshake {
        /// When.
        at: Time,
        /// Where from.
        from: SocketAddr,
        /// The datagram.
        bytes: Box<[u8]>,
    },
    /// The neighbour uses the session that it began.
    Confirmed(LinkId),
    /// The neighbour is at another address than before, and has shown it.
    Moved(LinkId, SocketAddr),
    /// A link has sealed so much that it wants other keys.
    Rekey(LinkId),
}
