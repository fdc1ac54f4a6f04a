//! A cell of IEEE 802.11e: an access point and its stations, which share one radio channel of
//! 802.11a at 36 Mbit/s.
//!
//! A [`Cell`] is a [`Medium`](crate::Medium) that schedules packets itself, and can also be driven
//! on its own: [`enqueue`](Cell::enqueue) packets, read the [`next_timeout`](Cell::next_timeout),
//! and [`advance`](Cell::advance) to it, which returns the outcome of each packet. It reads no
//! clock; the same seed and the same calls give the same outcomes.
//!
//! The access point and each station have four queues, which contend independently (EDCA): [`edca`]
//! has their parameters. A queue that loses to another of the same station counts that as a failed
//! attempt, like a collision with another station. Packets of an admitted [`Stream`] don't contend:
//! the access point sends them and polls for them after a PIFS, in each service interval (HCCA),
//! where polls and acknowledgements carry data, until the stream is [removed](Cell::remove_stream)
//! or its station has been silent for [`SILENT_TURNS`] turns.
//!
//! Choices where the standard leaves one, and omissions:
//!
//! - After an unacknowledged frame, all nodes wait until its sender's timeout of 50 µs
//!   ([`phy::ACK_TIMEOUT`]), then as after any other frame. By the standard, nodes that received it
//!   damaged wait for an EIFS instead, which amounts to 60 µs: a SIFS and an acknowledgement at 6
//!   Mbit/s. The timeout is used because nearly all frames of a cell are its access point's, which
//!   waits for exactly that, and because it keeps all slots on one grid, which 10 µs more would
//!   shift by 1 µs.
//! - Packets have seven attempts regardless of their length: no frame is longer than the RTS
//!   threshold, and there is no RTS.
//! - After a failure within a TXOP, its holder contends again.
//! - A packet whose last acknowledgement was lost has arrived: the receiver recognises duplicates
//!   by their sequence number.
//! - All nodes receive from all others, at once: no hidden stations, no capture, no propagation
//!   delay. There is no fragmentation, block acknowledgement or broadcast; there are no beacons.
//! - Bit errors occur only in MAC frames, independently, at a rate per station. The PLCP's SIGNAL
//!   field, 24 bits at 6 Mbit/s, always arrives.
//!
//! ```
//! use trunkline_base::Time;
//! use trunkline_net::wifi::{Cell, Config, Msdu, Direction};
//!
//! let mut cell = Cell::new(Config { stations: 2, ..Config::default() }, 1, 0)?;
//! let voice = Msdu { station: 1, way: Direction::Down, priority: 6, bytes: 200, handle: 42 };
//! cell.enqueue(Time::ZERO, &voice)?;
//! let outcome = loop {
//!     let now = cell.next_timeout();
//!     if let Some(outcome) = cell.advance(now) {
//!         break outcome;
//!     }
//! };
//! // The channel was idle: the packet arrives after its air time.
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
pub use hcca::{
    BEACON_INTERVAL, CONTENTION, MIN_SERVICE_INTERVAL, NotAdmitted, Stream, StreamDirection,
};
pub use streams::SILENT_TURNS;
pub use types::{
    Config, Counters, Direction, InvalidCell, Lost, MAX_QUEUE, MAX_STATIONS, MAX_UNREAD, Msdu,
    MsduOutcome, Refusal,
};
