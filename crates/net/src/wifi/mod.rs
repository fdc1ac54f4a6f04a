//! A cell of IEEE 802.11e: an access point and its stations, which share one radio
//! channel of 802.11a at 36 Mbit/s.
//!
//! A [`Cell`] is a [`Medium`](crate::Medium) with time of its own, and can also be
//! driven by itself: [`enqueue`](Cell::enqueue) packets, ask for the
//! [`next_timeout`](Cell::next_timeout), and [`advance`](Cell::advance) to it, which
//! gives back what has arrived and what never will. It reads no clock; the same seed
//! and the same calls give the same outcomes.
//!
//! Each station and the access point have four queues, which contend by themselves
//! (EDCA): [`edca`] has their parameters. Who loses within a station counts that as
//! a failed attempt, as who collides with another station does. Packets of an
//! admitted [`Stream`] don't contend: the access point sends them and polls for them
//! after a PIFS, in each service interval (HCCA), where polls and acknowledgements
//! carry data; until it is [removed](Cell::remove_stream), or its station has been silent
//! for [`SILENT_TURNS`] turns.
//!
//! What is chosen where the standard leaves a choice, or is left out:
//!
//! - After a frame that wasn't acknowledged everybody waits until its sender's
//!   timeout of 50 µs ([`phy::ACK_TIMEOUT`]), then as after any other frame. By the
//!   standard those who heard it damaged wait for an EIFS, which comes to 60 µs in
//!   its place: a SIFS and an acknowledgement at 6 Mbit/s. The timeout is taken since
//!   nearly all frames of a cell are its access point's, which waits for just that,
//!   and since it leaves everybody's slots on one grid, which 10 µs more would put
//!   1 µs beside each other.
//! - Seven attempts, whatever the length: no frame is longer than the RTS threshold,
//!   and there is no RTS.
//! - After a failure within a TXOP its holder contends again.
//! - A packet for which the last acknowledgement was lost has arrived: the receiver
//!   knows repetitions by their sequence number.
//! - All hear all, at once: no hidden stations, no capture, no propagation delay.
//!   Nothing is fragmented, acknowledged in blocks or sent to all; there are no beacons.
//! - Bits are wrong in MAC frames alone, each by itself, with a rate per station. The
//!   PLCP's SIGNAL field, 24 bits at 6 Mbit/s, always arrives.
//!
//! ```
//! use trunkline_base::Time;
//! use trunkline_net::wifi::{Cell, Config, Msdu, Way};
//!
//! let mut cell = Cell::new(Config { stations: 2, ..Config::default() }, 1, 0)?;
//! let voice = Msdu { station: 1, way: Way::Down, priority: 6, bytes: 200, handle: 42 };
//! cell.enqueue(Time::ZERO, &voice)?;
//! let outcome = loop {
//!     let now = cell.next_timeout();
//!     if let Some(outcome) = cell.advance(now) {
//!         break outcome;
//!     }
//! };
//! // The channel was idle: it takes as long as it is on the air.
//! assert_eq!((outcome.handle, outcome.at, outcome.result), (42, Time::from_micros(76), Ok(())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cell;
mod contention;
pub mod edca;
mod grid;
mod hcca;
mod medium;
pub mod phy;
mod polling;
mod streams;
mod types;

pub use cell::Cell;
pub use edca::AccessCategory;
pub use hcca::{BEACON_INTERVAL, CONTENTION, MIN_SERVICE_INTERVAL, NotAdmitted, Stream, Ways};
pub use streams::SILENT_TURNS;
pub use types::{
    Config, Counters, InvalidCell, Lost, MAX_QUEUE, MAX_STATIONS, MAX_UNREAD, Msdu, Outcome,
    Refusal, Way,
};
