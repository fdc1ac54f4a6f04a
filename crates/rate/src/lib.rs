//! Rate control: how fast a sender may send so that it takes about a TCP's share of a path.
//!
//! [`equation`] is the throughput that TCP reaches at a loss event rate and a round-trip time;
//! [`loss_events`] derives that rate from the sequence numbers that arrive; [`tfrc`] combines both
//! into a sender and a receiver (TCP Friendly Rate Control), with the variants for voice. [`tfmc`]
//! serves a trunk of many calls with fixed rates: it chooses how many packets share a datagram.
//! [`window`] is the congestion window of a sender that retransmits. [`vegas`] chooses among a
//! speech codec's rates by how far the round trip exceeds its minimum.
//!
//! This is pure computation: times, sequence numbers and bytes come in as arguments, and nothing
//! here reads a clock, opens a socket, draws randomness or allocates after its construction. Input
//! from the other end is not trusted: every report is checked, a rejected one returns a typed error
//! and changes nothing, and the allowed rate stays within the bounds of [`tfrc::Config`] and
//! [`tfmc::Config`] whatever arrives.
//!
//! A sender and a receiver, and a driver that carries their messages:
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_rate::tfrc::{Config, Receiver, Sender};
//!
//! // G.711 in packets of 160 bytes, over a path of 30 ms each way.
//! let config = Config::basic(160);
//! let mut now = Time::ZERO;
//! let mut sender = Sender::new(config, 7, now);
//! let mut receiver = Receiver::new(config, 7);
//! for _ in 0..10 {
//!     now = now.max(sender.next_send());
//!     let header = sender.send(now, 160)?;
//!     let there = now + Duration::from_millis(30);
//!     if receiver.receive(there, &header, 160)? {
//!         let report = receiver.report(there).expect("one is due");
//!         now = there + Duration::from_millis(30);
//!         sender.feedback(now, &report)?;
//!     }
//! }
//! assert_eq!(sender.rtt(), Some(Duration::from_millis(60)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod equation;
pub mod loss_events;
pub mod tfmc;
pub mod tfrc;
pub mod vegas;
pub mod window;

use core::time::Duration;

/// Converts seconds to a duration, at most 136 years.
fn seconds(seconds: f64) -> Duration {
    const MAX_SECONDS: f64 = u32::MAX as f64;
    let seconds = if seconds > 0.0 { seconds.min(MAX_SECONDS) } else { 0.0 };
    Duration::from_nanos(libm::round(seconds * 1e9) as u64)
}
