//! How session messages travel between hosts: TCP and UDP to one address.
//!
//! TCP carries every message behind a two-byte length, and alone carries
//! binding, refusals and signs of life. Packets take UDP once it is known to
//! get through both ways, so that a lost packet never delays the next; each
//! datagram is `token 8 | counter 8 | message`. Where UDP does not get through
//! packets stay on TCP.
//!
//! ```text
//! client                          node
//!    TCP  Hello{identity,…}, Bind ►
//!     ◄─  Welcome{token}, Bound       TCP
//!    UDP  token, 0, Ping         ─►      the token tells whose address this is
//!     ◄─  token, 0, Pong              UDP
//!    TCP  Packets{udp: true}     ─►      from here on packets take UDP
//! ```
//!
//! The node believes a datagram from any address if it has the session's token
//! and a counter not seen before, and answers to where the newest came from, so
//! that clients may be behind NAT and roam. This is no authentication: whoever
//! can read the connection can take it over.
//!
//! The identity is the client's own secret, the same for the life of its
//! socket. When the network was away, the client's next connection may find
//! that the node still believes in the last one; the identity lets it replace
//! that, and have its port again at once. Connections carry the number of the
//! attempt: one of earlier, held up on the way, replaces nothing.

mod liveness;
mod peer;
mod stream;
mod wire;

pub use liveness::{Due, Liveness};
pub use peer::Peer;
pub use stream::{Backlog, FrameReader};
pub use wire::{
    DATAGRAM_HEAD, Datagram, FromClient, FromNode, MAX_DATAGRAM, PREFIX, Token, packet_to_client,
    packet_to_node, prefix,
};

use core::time::Duration;

/// How long a connection may take to be bound: several round trips of any
/// path, even with a segment lost, and too short to hold many places for free.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
