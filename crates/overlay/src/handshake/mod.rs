//! The handshake that gives a link its session.
//!
//! [`Handshakes`] is the state machine of one node for all its neighbours. It
//! is fed the messages that [`Kind::is_handshake`](crate::wire::Kind) tells,
//! and the time; and drained by [`Handshakes::poll`].
//!
//! A node that knows its neighbour's key sends an [`Initiation`], and is given
//! a [`Response`]: Noise IK, one round trip, both ends authenticated, forward
//! secrecy. One that knows only the operator's overlay key asks first, with a
//! [`Query`]; the [`Answer`] has the neighbour's certificate. The same answer
//! hands out cookies to who initiates while there are too many (see [`Limits`]).
//!
//! An initiation that is recorded and sent again is refused by its time, which is
//! compared after the start of the sender ([`Incarnation`]). Since a node's clock
//! may have gone back, one that is refused for that is asked for a sign that it
//! is no copy: a [`Challenge`].
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
    Config, Established, Event, Handshakes, Limits, Offer, Peer, UnconfiguredPeerId,
};
pub use stats::{HandshakeStats, RefusedHandshake};
