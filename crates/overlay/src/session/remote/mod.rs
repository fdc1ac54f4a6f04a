//! Transport of session messages between hosts: TCP and UDP to one address.
//!
//! TCP carries every message after a two-byte length, and it alone carries binding, refusals and
//! keep-alives. Packets take UDP once it is known to work in both directions, so that a lost packet
//! never delays the next; each datagram is `token 8 | counter 8 | message`. Where UDP does not
//! work, packets stay on TCP.
//!
//! ```text
//! client                              node
//!    TCP  Initiation{identity}        ►      Noise IK; from here on all is sealed
//!     ◄─  Response{token}                 TCP
//!    TCP  Hello{identity,…}, Bind     ►
//!     ◄─  Bound                           TCP
//!    UDP  token, 0, Ping             ─►      the token identifies the client
//!     ◄─  token, 0, Pong                  UDP
//!    TCP  Packets{udp: true}         ─►      from here on packets take UDP
//! ```
//!
//! A client has its own key, which is in the node's configuration, and has the node's public key.
//! Each connection has new secrets from the handshake, from which four keys of AES-256-GCM are
//! derived: one for each direction over TCP and over UDP. On TCP the nonce is the count of
//! messages, which need not be sent; on UDP it is the counter, and token and counter are
//! authenticated, too. A message that was altered ends the connection on TCP, and is dropped on
//! UDP. The client is authenticated, and costs a session, once its first sealed message has
//! arrived: a recorded handshake that is sent again is useless.
//!
//! A first message other than an Initiation is refused, unsealed, as
//! [`Unauthenticated`](super::wire::RefusalReason::Unauthenticated). Before its Response a node sends
//! nothing but a refusal, and a client accepts nothing else.
//!
//! The node accepts a datagram from any address if it has the session's token and a counter not
//! seen before, and is sealed with its keys. It sends to the source of the newest one, so that
//! clients may be behind NAT, if that is the host at the other end of TCP. To another host it sends
//! at most three times the bytes received from there ([`Peer`]), and the rest over TCP.
//!
//! The identity is the client's own secret, the same for the life of its socket. After a network
//! outage, the client's next connection may find that the node still considers the last one alive;
//! with the identity it replaces that, and gets its port back at once. Connections carry the number
//! of the attempt: a delayed earlier one replaces nothing.

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

/// Time within which a connection must be bound: several round trips of any path, even with a lost
/// segment, but too short to hold many slots for free.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
