//! The handshake that gives a link its session.
//!
//! [`Handshakes`] is the state machine of one node for all its neighbours. Its input is the
//! messages for which [`Kind::is_handshake`](crate::wire::Kind) is true, and the time; its output
//! is read with [`Handshakes::poll`].
//!
//! A node that has its neighbour's key sends an [`Initiation`] and receives a [`Response`]: Noise
//! IK, one round trip, both ends authenticated, forward secrecy. A node that has only the
//! operator's overlay key first sends a [`Query`]; the [`Answer`] contains the neighbour's
//! certificate. Answers also hand out cookies to initiators when there are too many of them (see
//! [`Limits`]).
//!
//! A recorded initiation that is sent again is refused because of its time, which is compared after
//! the start of the sender ([`Incarnation`]). Since a node's clock may have gone back, the sender
//! of an initiation refused for that reason is asked to prove that it is no copy, with a
//! [`Challenge`].
//!
//! [`Initiation`]: message::Initiation
//! [`Response`]: message::Response
//! [`Query`]: message::Query
//! [`Answer`]: message::Answer
//! [`Challenge`]: message::Challenge
//! [`Incarnation`]: crate::wire::Incarnation

mod cookie;
pub(crate) mod freshness;
mod machine;
pub mod message;
mod neighbour;
mod receive;
mod stats;
#[cfg(test)]
mod tests;

pub use machine::{
    Config, Destination, Established, Event, Handshakes, Limits, Offer, Peer, UnconfiguredPeerId,
};
pub use stats::{HandshakeStats, RefusedHandshake};
