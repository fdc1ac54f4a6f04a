//! How session messages travel between hosts: TCP and UDP to one address.
//!
//! TCP carries every message behind a two-byte length, and alone carries
//! binding, refusals and signs of life. Packets take UDP once it is known to
//! get through both ways, so that a lost packet never delays the next; each
//! datagram is `token 8 | counter 8 | message`. Where UDP does not get through
//! packets stay on TCP.
//!
//! ```text
//! client                              node
//!    TCP  Initiation{who I am}        ►      Noise IK; from here on all is sealed
//!     ◄─  Response{token}                 TCP
//!    TCP  Hello{identity,…}, Bind     ►
//!     ◄─  Bound                           TCP
//!    UDP  token, 0, Ping             ─►      the token tells whose address this is
//!     ◄─  token, 0, Pong                  UDP
//!    TCP  Packets{udp: true}         ─►      from here on packets take UDP
//! ```
//!
//! A client has a key of its own, in the node's configuration, and knows the
//! node's. Each connection has new secrets: the handshake's, from which follow
//! four keys of AES-256-GCM, one for each way over TCP and over UDP. On TCP the
//! nonce is the count of messages, which nobody need send; on UDP it is the
//! counter, and token and counter are authenticated, too. A message that was
//! altered ends the connection on TCP, and is dropped on UDP. The client is
//! believed, and costs a session, once its first sealed message has come: a
//! handshake recorded and sent again is of no use.
//!
//! A first message other than an Initiation is refused, unsealed, as
//! [`Unauthenticated`](super::wire::Refusal::Unauthenticated). Before its Response
//! a node sends nothing but a refusal, and a client accepts nothing else.
//!
//! The node believes a datagram from any address if it has the session's token
//! and a counter not seen before, and is sealed by its keys; it sends to
//! where the newest came from, so that clients may be behind NAT, if that is the
//! host that TCP comes from. Elsewhere it sends three times what came from there at
//! most ([`Peer`]), and the rest over TCP.
//!
//! The identity is the client's own secret, the same for the life of its
//! socket. When the network was away, the client's next connection may find
//! that the node still believes in the last one; the identity lets it replace
//! that, and have its port again at once. Connections carry the number of the
//! attempt: one of earlier, held up on the way, replaces nothing.

mod authenticate;
mod keys;
mod liveness;
mod peer;
mod stream;
mod wire;

pub use authenticate::{Answered, Limits, Opening, Responder};
pub use keys::Keys;
pub use liveness::{Due, Liveness};
pub use peer::Peer;
pub use stream::{Backlog, FrameReader};
pub use wire::{
    DATAGRAM_HEAD, Datagram, FromClient, FromNode, MAX_DATAGRAM, MAX_FRAME, PREFIX, TAG, Token,
    packet_to_client, packet_to_node, prefix,
};

use core::time::Duration;

/// How long a connection may take to be bound: several round trips of any
/// path, even with a segment lost, and too short to hold many places for free.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
