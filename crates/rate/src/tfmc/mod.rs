//! TCP-friendly multiplexing control: chooses how many voice packets of different calls share a
//! datagram, so that a trunk of many calls sends no more than a TCP would.
//!
//! After Trad and Afifi, *Adaptive Multiplexing Scheme for Voice Flow Transmission Across
//! Best-Effort IP Networks*, INRIA RR-4929, 2003. The codecs' rate can't be changed, but the number
//! of headers can: with more packets per datagram, the same voice costs fewer bytes and far fewer
//! datagrams. A receiver reports the loss event rate every few milliseconds, and the sender chooses
//! the number of packets at which its rate is the one that TCP's throughput equation allows.
//!
//! | | |
//! |---|---|
//! | [`multiplex`] | bytes of a datagram, what multiplexing saves, and how many packets meet a rate |
//! | [`Sender`] | round-trip time, rate of packets, mean payload, and the number of packets per datagram |
//! | [`Receiver`] | loss events, and when a report is due |
//! | [`Data`], [`Feedback`] | the messages between the two |
//!
//! Without a loss event a datagram holds one packet, as in the paper, and nothing is saved. If even
//! the voice without headers exceeds the share of a TCP, no number of packets is enough: the sender
//! then takes as many as fit and reports this ([`Sender::over_share`]). Nothing here ever stops
//! voice.
//!
//! A rate is in bytes per second with all headers that a [`Config`] counts.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_rate::tfmc::{Config, Receiver, Sender};
//!
//! let config = Config::default();
//! let mut now = Time::from_millis(1);
//! let mut sender = Sender::new(config, now);
//! let mut receiver = Receiver::new(config);
//! for n in 0..1_000 {
//!     // One packet of G.729 per datagram, 1,000 a second; one in fifty is lost.
//!     let number = sender.sent(now, 1, 20);
//!     if n % 50 != 49 && receiver.receive(now + Duration::from_millis(10), number)? {
//!         let report = receiver.report(now + Duration::from_millis(10)).expect("it is due");
//!         sender.feedback(now + Duration::from_millis(20), &report)?;
//!     }
//!     now += Duration::from_millis(1);
//! }
//! assert_eq!(sender.rtt(), Some(Duration::from_millis(20)));
//! assert!(sender.share().is_some() && sender.multiplex() <= 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod message;
pub mod multiplex;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use message::{DATA_BYTES, Data, FEEDBACK_BYTES, Feedback};
pub use multiplex::Packing;
pub use receiver::{DataError, Receiver};
pub use sender::{FeedbackError, Sender};

pub use crate::tfrc::Malformed;

use crate::equation::Throughput;
use crate::loss_events;
use core::time::Duration;

/// Headers in front of each datagram: 20 bytes of IPv4 and 8 of UDP.
pub const IP_UDP_BYTES: usize = 28;
/// Size of an RTP header in front of each packet's payload, in bytes.
pub const RTP_BYTES: usize = 12;

/// The segment size that the throughput equation uses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Segment {
    /// A datagram with the current number of packets, S(m₁), as in the paper. A larger number then
    /// raises the allowed rate and so lowers itself: the number may swing between its bounds with
    /// every report.
    Datagram,
    /// A datagram with the number to be chosen, S(m₂), which solves equations 2 and 4 at once: as
    /// many datagrams per second as TCP would send segments.
    Chosen,
    /// A fixed number of bytes, independent of the datagrams: a TCP's segment on the same path.
    Nominal(f64),
}

/// The sequence numbers that reveal losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// The numbers of the trunk's datagrams.
    Trunk,
    /// The RTP sequence numbers of one of the calls, as in the paper (section 5.1.2):
    /// [`Receiver::receive_of_flow`]. Lost datagrams without a packet of that call go unseen.
    OneFlow,
}

/// The moments at which a receiver reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reports {
    /// With the first datagram that arrives at least an interval after the last report.
    OnArrival,
    /// At fixed intervals from the first datagram on, as in the paper (sections 5.1 and 5.1.2):
    /// [`Receiver::next_report`]. An interval with too few datagrams has no report (RFC 3448,
    /// section 6.2).
    Periodic,
}

/// The parameters of a sender and its receiver; both ends need the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// h, bytes of headers in front of each datagram: 28 for IPv4 and UDP in the paper.
    pub header: usize,
    /// Bytes in front of each packet's payload within a datagram: 12 for RTP in the paper.
    pub per_packet: usize,
    /// Maximum size of a datagram in bytes, with its headers, which bounds the number of packets;
    /// one packet always fits.
    pub mtu: usize,
    /// Segment size that the throughput equation uses.
    pub segment: Segment,
    /// Parameters of the throughput equation.
    pub equation: Throughput,
    /// Sequence numbers that reveal losses.
    pub numbers: Numbers,
    /// Rules for counting loss events.
    pub loss: loss_events::Config,
    /// Moments at which the receiver reports.
    pub reports: Reports,
    /// Interval between two reports, the minimum if they follow arrivals; 5 ms in the paper (section
    /// 5.1.2). 0 counts as 1 µs where reports are periodic.
    pub feedback_interval: Duration,
    /// Minimum number of datagrams per report; 0 counts as 1.
    pub datagrams_per_feedback: u32,
    /// q, the weight that the round-trip estimate keeps at each sample, 0 to 1 (RFC 3448, section
    /// 4.3).
    pub rtt_keeps: f64,
    /// Number of datagrams whose send time is remembered: more than are in flight at once. 0 counts
    /// as 1.
    pub remembered: u16,
}

impl Default for Config {
    /// The paper's parameters, except that losses are found by the trunk's own numbers, and that
    /// arrivals cause reports, which needs no timer.
    ///
    /// Where the paper leaves a choice: datagrams of at most 1,500 bytes, at most one report per
    /// four datagrams, and RFC 3448's q = 0.9.
    fn default() -> Config {
        Config {
            header: IP_UDP_BYTES,
            per_packet: RTP_BYTES,
            mtu: 1_500,
            segment: Segment::Datagram,
            equation: Throughput::RFC,
            numbers: Numbers::Trunk,
            loss: loss_events::Config { short_intervals: false, discount: None },
            reports: Reports::OnArrival,
            feedback_interval: Duration::from_millis(5),
            datagrams_per_feedback: 4,
            rtt_keeps: 0.9,
            remembered: 16_384,
        }
    }
}

impl Config {
    /// The paper's parameters: the losses of one call's packets count as those of the trunk, and
    /// the receiver reports at fixed intervals, however few datagrams have arrived (section 5.1.2).
    pub fn paper() -> Config {
        Config {
            numbers: Numbers::OneFlow,
            reports: Reports::Periodic,
            datagrams_per_feedback: 1,
            ..Config::default()
        }
    }

    /// Sizes of datagrams whose packets have `payload` bytes on average.
    pub fn packing(&self, payload: f64) -> Packing {
        Packing::new(self.header, self.per_packet as f64 + payload)
    }

    fn per_feedback(&self) -> u32 {
        self.datagrams_per_feedback.max(1)
    }
}

/// The 64-bit count that `wire` (its low 32 bits) stands for: the candidate nearest to `near`,
/// which is at least 2³²: see [`begin`].
fn extend(near: u64, wire: u32) -> u64 {
    let delta = wire.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(delta))
}

/// The count to start from when the first number is `wire`: one full turn up, so that earlier
/// numbers have room below it.
fn begin(wire: u32) -> u64 {
    (1 << 32) + u64::from(wire)
}
