//! A simulated TCP: one state machine, without input and output, in the manner of
//! several implementations, and the agents that use it.
//!
//! What a segment carries is a header of RFC 9293 with its options, and data; on the
//! wire it is as long as with the IP header in front.

mod ack;
mod bulk;
mod congestion;
mod connection;
mod driver;
mod messages;
mod profile;
mod rack;
mod ranges;
mod receiver;
mod rtt;
mod sender;
mod sent;
mod sink;
#[cfg(test)]
mod tests;
mod wire;

pub use bulk::Bulk;
pub use connection::{Connection, reset};
pub use messages::{Messages, Schedule};
pub use profile::{Counting, DelayedAck, Idle, InitialWindow, Profile, Recovery, Reduction};
pub use rtt::RtoRules;
pub use sender::Stats;
pub use sink::Sink;
pub use wire::{Flags, Options, SackBlocks, Segment};
