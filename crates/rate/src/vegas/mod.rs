//! Which rate a call's speech codec may have over a wireless hop, by how much of it
//! waits in queues there: TCP Vegas's congestion avoidance, turned on the codec.
//!
//! After Trad, Ni and Afifi, *Adaptive VoIP Transmission over Heterogeneous
//! Wired/Wireless Networks*, section 4.2. For each flow, on each report from its
//! receiver, with R the codec's rate in payload bytes per second:
//!
//! - BaseRTT is the shortest round trip seen (of late: see [`Config::window`]);
//! - Diff = R · (RTT − BaseRTT): bytes that are under way without need (2), (3);
//! - α = 30 and β = 50 bytes for each 20 ms of RTT (section 5);
//! - Diff > β lowers the codec by one of its five rates, Diff < α raises it by one.
//!
//! Since α and β grow with RTT as Diff does, only the ratio of RTT and BaseRTT counts:
//! Diff > β is RTT/BaseRTT > R / (R − β/20 ms).
//!
//! | kbit/s | lower above | raise below |
//! |---:|---:|---:|
//! | 64 | 1.45 | – |
//! | 40 | 2.0 | 1.43 |
//! | 32 | 2.67 | 1.6 |
//! | 24 | 6.0 | 2.0 |
//! | 16 | – | 4.0 |
//!
//! So what counts as congestion depends on how fast the hop is when idle. Within a cell
//! of 0.2 ms a single frame of 1,500 bytes ahead (0.5 ms) is a ratio of 3.5, and the codec
//! falls to 24 kbit/s for a delay that nobody hears. [`Config::floor`] is a lower bound of
//! BaseRTT against that; the paper has none.
//!
//! **Loss.** The predictor LP = Diff/BaseRTT (4) tells two causes apart: where the control
//! would lower, a loss is congestion's, and it lowers; else the channel's, and [`Fec`] is
//! added, whose form and amount the paper leaves open. A report of loss raises the rate only
//! to where it was before BaseRTT was probed for. At 16 kbit/s Diff can't exceed β, so that by
//! the paper every loss there is the channel's, and what is added makes a congested cell
//! worse: see [`Config::alpha_at_lowest`].
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_rate::vegas::{CodecRate, Config, Control, Report};
//!
//! let mut now = Time::ZERO;
//! let mut control = Control::new(Config::default(), CodecRate::Kbps64, now);
//! for millis in [20, 20, 30] {
//!     now = now + Duration::from_millis(100);
//!     control.report(now, &Report::of_rtt(Duration::from_millis(millis)))?;
//! }
//! assert_eq!(control.rate(), CodecRate::Kbps40); // 30/20 is above 1.45
//! # Ok::<(), trunkline_rate::vegas::ReportError>(())
//! ```

mod base_rtt;
mod control;
mod fec;
#[cfg(test)]
mod tests;

pub use control::{Control, Decision, Measure, Verdict};
pub use fec::{Fec, FecConfig, FecKind};

use core::time::Duration;
use trunkline_base::Bitrate;

/// The longest round trip that a report is believed. Nobody goes on with a call of such
/// delay, and what a wrong clock makes of a round trip is mostly longer.
pub const MAX_RTT: Duration = Duration::from_secs(10);

/// The rates of speech, in packets of 20 ms: G.711 at 64 kbit/s and the four of G.726
/// (the paper's Table 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodecRate {
    /// G.726 at 16 kbit/s, 40 bytes a packet.
    Kbps16,
    /// G.726 at 24 kbit/s, 60 bytes a packet.
    Kbps24,
    /// G.726 at 32 kbit/s, 80 bytes a packet.
    Kbps32,
    /// G.726 at 40 kbit/s, 100 bytes a packet.
    Kbps40,
    /// G.711, 160 bytes a packet.
    Kbps64,
}

impl CodecRate {
    /// All, from the lowest.
    pub const ALL: [CodecRate; 5] = [
        CodecRate::Kbps16,
        CodecRate::Kbps24,
        CodecRate::Kbps32,
        CodecRate::Kbps40,
        CodecRate::Kbps64,
    ];

    /// Of the payload, without headers.
    pub const fn bitrate(self) -> Bitrate {
        Bitrate::from_bps(8 * self.bytes_per_second())
    }

    /// R: payload bytes per second, 2,000 to 8,000.
    pub const fn bytes_per_second(self) -> u64 {
        match self {
            CodecRate::Kbps16 => 2_000,
            CodecRate::Kbps24 => 3_000,
            CodecRate::Kbps32 => 4_000,
            CodecRate::Kbps40 => 5_000,
            CodecRate::Kbps64 => 8_000,
        }
    }

    /// Payload bytes of a packet of so much speech: 40 to 160 for 20 ms. Headers of IPv4,
    /// UDP and RTP are 40 more.
    pub const fn payload_bytes(self, speech: Duration) -> usize {
        (self.bytes_per_second() as u128 * speech.as_nanos() / 1_000_000_000) as usize
    }

    /// The next rate below, if there is one.
    pub fn lower(self) -> Option<CodecRate> {
        CodecRate::ALL.into_iter().rev().find(|rate| *rate < self)
    }

    /// The next rate above, if there is one.
    pub fn higher(self) -> Option<CodecRate> {
        CodecRate::ALL.into_iter().find(|rate| *rate > self)
    }
}

/// Parameters of a [`Control`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The time that [`alpha`](Config::alpha) and [`beta`](Config::beta) are given for: a
    /// packet, 20 ms. At least 1 ms.
    pub packet: Duration,
    /// α in bytes for each `packet` of the round trip, 30: with less under way, the rate
    /// rises. At most β.
    pub alpha: u32,
    /// β in bytes for each `packet` of the round trip, 50: with more under way, the rate
    /// falls.
    pub beta: u32,
    /// The least that BaseRTT is taken for. A ratio of round trips says little where both
    /// are too short to be heard. None in the paper.
    pub floor: Duration,
    /// When no round trip has been within an eighth of BaseRTT for so long, the route may
    /// have become longer: the rate falls to the lowest, a step at each report, and after
    /// half a second there the shortest round trip is the new BaseRTT, even if the old one
    /// is seen again before. The other side of that: what others' traffic has filled for as
    /// long counts as empty. BaseRTT never ages with [`Duration::MAX`], as in the paper. At
    /// least 1 ms.
    pub window: Duration,
    /// How often the receiver is asked to report: 100 ms. Nothing but silence is measured
    /// by it.
    pub interval: Duration,
    /// After so long without a report, and then each time again, the rate falls by one:
    /// reports are lost in the same queues. Three times `interval` where that is longer: one
    /// report or two that are lost, or late, are no silence. Never with [`Duration::MAX`], as
    /// in the paper. At least 1 ms.
    pub silence: Duration,
    /// At 16 kbit/s, a loss with Diff not below α is congestion's, too: where the rate can't
    /// fall, at least nothing is added. Not so in the paper.
    pub alpha_at_lowest: bool,
    /// What is added against the losses of the channel.
    pub fec: FecConfig,
}

impl Default for Config {
    /// The paper's thresholds; a floor of 10 ms, half a packet; a window of 10 s; a step
    /// down after 1 s without a report. None of the three is tuned.
    fn default() -> Config {
        Config {
            floor: Duration::from_millis(10),
            window: Duration::from_secs(10),
            silence: Duration::from_secs(1),
            alpha_at_lowest: true,
            ..Config::paper()
        }
    }
}

impl Config {
    /// As the paper has it: no floor, a BaseRTT that is the shortest ever, nothing without
    /// a report, and every loss at 16 kbit/s the channel's.
    pub fn paper() -> Config {
        Config {
            packet: Duration::from_millis(20),
            alpha: 30,
            beta: 50,
            floor: Duration::ZERO,
            window: Duration::MAX,
            interval: Duration::from_millis(100),
            silence: Duration::MAX,
            alpha_at_lowest: false,
            fec: FecConfig::default(),
        }
    }

    /// Within the ranges above, whatever was asked for.
    fn bounded(self) -> Config {
        const LEAST: Duration = Duration::from_millis(1);
        let reports = self.interval.saturating_mul(3);
        Config {
            packet: self.packet.clamp(LEAST, MAX_RTT),
            alpha: self.alpha.min(self.beta),
            floor: self.floor.min(MAX_RTT),
            window: self.window.max(LEAST),
            silence: self.silence.max(reports).max(LEAST),
            ..self
        }
    }
}

/// What a flow's receiver says from time to time, as an RTCP receiver report does, or what
/// the sender measures itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The round trip to the receiver and back, if one was measured: above zero, at most
    /// [`MAX_RTT`].
    pub rtt: Option<Duration>,
    /// What was lost since the report before.
    pub loss: Loss,
}

impl Report {
    /// A report of a round trip, and no loss.
    pub fn of_rtt(rtt: Duration) -> Report {
        Report { rtt: Some(rtt), loss: Loss::default() }
    }

    fn check(&self) -> Result<(), ReportError> {
        match self.rtt {
            Some(rtt) if rtt.is_zero() => return Err(ReportError::NoTime),
            Some(rtt) if rtt > MAX_RTT => return Err(ReportError::TooLong(rtt)),
            _ => {}
        }
        let Loss { expected, lost, runs } = self.loss;
        let possible = lost <= expected && runs <= lost && (runs == 0) == (lost == 0);
        if possible { Ok(()) } else { Err(ReportError::Loss(self.loss)) }
    }
}

/// How many packets were lost, and how they lay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// Packets that should have come.
    pub expected: u32,
    /// Of those, packets that didn't come; at most `expected`.
    pub lost: u32,
    /// In how many runs of consecutive packets; 1 to `lost`, and 0 if nothing was lost.
    pub runs: u32,
}

/// A report that was refused; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReportError {
    /// A BaseRTT of nothing could never be believed again to be longer.
    #[error("a round trip of no time")]
    NoTime,
    /// The round trip is above [`MAX_RTT`].
    #[error("a round trip of {0:?}: more than {MAX_RTT:?} is not believed")]
    TooLong(Duration),
    /// More was lost than was expected, or in more runs than there were packets.
    #[error("{} of {} packets can't be lost in {} runs", .0.lost, .0.expected, .0.runs)]
    Loss(Loss),
}
