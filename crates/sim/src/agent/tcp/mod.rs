//! A simulated TCP: one sans-IO state machine that behaves like several implementations, and the
//! agents that use it.
//!
//! A segment carries a header as in RFC 9293 with its options, and data; on the wire its length
//! includes an IP header.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::link_model::LinkModel;
//! use trunkline_base::{Bitrate, Time};
//! use trunkline_net::{IpVersion, Protocol};
//! use trunkline_sim::World;
//! use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
//!
//! let link = LinkModel {
//!     rate: Some(Bitrate::from_bps(1_000_000)),
//!     delay: Duration::from_millis(20),
//!     ..LinkModel::default()
//! };
//! let mut world = World::new(IpVersion::V6, 42);
//! let (a, b) = (world.add_plain_host(), world.add_plain_host());
//! world.cable(a, b, link.clone(), link)?;
//! let sink = world.bind(b, Protocol::TCP, 80, Sink::new(Profile::linux_6(), 80, 1))?;
//! let (to, span) = (world.endpoint(b, 80), (Time::ZERO, Time::NEVER));
//! let bulk = Bulk::new(Profile::linux_6(), 4_000, to, 2, span, 1_000_000);
//! let bulk = world.bind(a, Protocol::TCP, 4_000, bulk)?;
//! world.run_until(Time::from_millis(9_000));
//! assert_eq!(world.agent(sink).bytes(), 1_000_000);
//! assert!(world.agent(bulk).is_closed());
//! # Ok::<(), trunkline_sim::WorldError>(())
//! ```

mod ack;
mod bulk;
mod congestion;
mod connection;
mod driver;
mod messages;
mod min_rtt;
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
