//! Codec rate control of a call over a wireless hop, driven by how much of the call waits in queues
//! there: TCP Vegas's congestion avoidance, applied to the codec.
//!
//! After Trad, Ni and Afifi, *Adaptive VoIP Transmission over Heterogeneous Wired/Wireless
//! Networks*, section 4.2. For each flow, on each report from its receiver, with R the codec's rate
//! in payload bytes per second:
//!
//! - BaseRTT is the shortest of all round trips measured on the hop, by any call of the gateway
//!   ([`HopBaseRtt`]); or, as a choice of this project, the shortest recent one of the call itself
//!   ([`BaseRttScope`]);
//! - Diff = R · (RTT − BaseRTT): bytes that are in flight unnecessarily (2), (3);
//! - α = 30 and β = 50 bytes for each 20 ms of RTT (section 5);
//! - Diff > β lowers the codec by one of its five rates, Diff < α raises it by one.
//!
//! Since α and β grow with RTT as Diff does, only the ratio of RTT and BaseRTT matters: Diff > β is
//! RTT/BaseRTT > R / (R − β/20 ms).
//!
//! | kbit/s | lower above | raise below |
//! |---:|---:|---:|
//! | 64 | 1.45 | – |
//! | 40 | 2.0 | 1.43 |
//! | 32 | 2.67 | 1.6 |
//! | 24 | 6.0 | 2.0 |
//! | 16 | – | 4.0 |
//!
//! So congestion is judged relative to how fast the idle hop is. Within a cell of 0.2 ms, a single
//! frame of 1,500 bytes ahead (0.5 ms) is a ratio of 3.5, and the codec falls to 24 kbit/s for an
//! inaudible delay. [`Config::floor`] is a lower bound of BaseRTT against that; the paper has none.
//!
//! **Loss.** The predictor LP = Diff/BaseRTT (4) separates two causes. Where the control would
//! lower the rate, a loss is due to congestion, and the rate falls; otherwise it is due to the
//! channel, and [`Fec`] is added, whose form and amount the paper leaves open. A report with losses
//! raises the rate only to where it was before BaseRTT was probed. At 16 kbit/s Diff can't exceed
//! β, so the paper attributes every loss there to the channel, and the added redundancy makes a
//! congested cell worse: see [`Config::alpha_at_lowest`].
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_rate::vegas::{CodecRate, Config, Control, HopBaseRtt, ReceiverReport};
//!
//! let mut now = Time::ZERO;
//! let mut hop = HopBaseRtt::default(); // shared by all calls of the gateway
//! let mut control = Control::new(Config::default(), CodecRate::Kbps64, now);
//! for millis in [20, 20, 30] {
//!     now = now + Duration::from_millis(100);
//!     control.report(now, &ReceiverReport::of_rtt(Duration::from_millis(millis)), &mut hop)?;
//! }
//! assert_eq!(control.rate(), CodecRate::Kbps40); // 30/20 is above 1.45
//! # Ok::<(), trunkline_rate::vegas::ReportError>(())
//! ```

mod base_rtt;
mod control;
mod fec;
#[cfg(test)]
mod tests;

pub use base_rtt::HopBaseRtt;
pub use control::{Control, Decision, LossCause, Measure};
pub use fec::{Fec, FecConfig, FecKind};

use core::time::Duration;
use trunkline_base::Bitrate;

/// Longest accepted round trip of a report. A call with a longer delay would not be continued, and
/// most round trips measured with a wrong clock are longer.
pub const MAX_RTT: Duration = Duration::from_secs(10);

/// The speech rates, for packets of 20 ms: G.711 at 64 kbit/s and the four of G.726 (the paper's
/// Table 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodecRate {
    /// G.726 at 16 kbit/s, 40 bytes per packet.
    Kbps16,
    /// G.726 at 24 kbit/s, 60 bytes per packet.
    Kbps24,
    /// G.726 at 32 kbit/s, 80 bytes per packet.
    Kbps32,
    /// G.726 at 40 kbit/s, 100 bytes per packet.
    Kbps40,
    /// G.711 at 64 kbit/s, 160 bytes per packet.
    Kbps64,
}

impl CodecRate {
    /// All rates in ascending order.
    pub const ALL: [CodecRate; 5] = [
        CodecRate::Kbps16,
        CodecRate::Kbps24,
        CodecRate::Kbps32,
        CodecRate::Kbps40,
        CodecRate::Kbps64,
    ];

    /// Bit rate of the payload, without headers.
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

    /// Payload size of a packet of this much speech, in bytes: 40 to 160 for 20 ms. Headers of
    /// IPv4, UDP and RTP add 40.
    pub const fn payload_bytes(self, speech: Duration) -> usize {
        (self.bytes_per_second() as u128 * speech.as_nanos() / 1_000_000_000) as usize
    }

    /// The next lower rate, if there is one.
    pub fn lower(self) -> Option<CodecRate> {
        CodecRate::ALL.into_iter().rev().find(|rate| *rate < self)
    }

    /// The next higher rate, if there is one.
    pub fn higher(self) -> Option<CodecRate> {
        CodecRate::ALL.into_iter().find(|rate| *rate > self)
    }
}

/// The round trips of which the shortest is BaseRTT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseRttScope {
    /// All those measured on the gateway's hop, by calls in progress and by those that have ended,
    /// as in the paper. A call that begins in a full queue knows from the others what an empty one
    /// is like. BaseRTT never ages.
    Gateway,
    /// Those of the call itself. BaseRTT ages after [`Config::window`].
    Call,
}

/// Parameters of a [`Control`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Time for which [`alpha`](Config::alpha) and [`beta`](Config::beta) are given: one packet, 20
    /// ms. At least 1 ms.
    pub packet: Duration,
    /// α in bytes for each `packet` of the round trip, 30 by default: the rate rises if less is in
    /// flight. At most β.
    pub alpha: u32,
    /// β in bytes for each `packet` of the round trip, 50 by default: the rate falls if more is in
    /// flight.
    pub beta: u32,
    /// The round trips of which the shortest is BaseRTT: the gateway's in the paper, the call's by
    /// default.
    pub scope: BaseRttScope,
    /// Lower bound of BaseRTT. A ratio of round trips is meaningless if both are inaudibly short.
    /// None in the paper.
    pub floor: Duration,
    /// Time without a round trip within an eighth of BaseRTT after which the route may have become
    /// longer. The rate then falls to the lowest, one step per report, and after half a second
    /// there the shortest round trip is the new BaseRTT, even if the old one is seen again before.
    /// The downside is that a queue which other traffic fills for as long counts as empty. BaseRTT
    /// never ages with [`Duration::MAX`], or with [`BaseRttScope::Gateway`], as in the paper: calls
    /// that drain their own queue one at a time would never see it empty. At least 1 ms.
    pub window: Duration,
    /// Interval at which the receiver is asked to report, 100 ms by default. It only affects the
    /// detection of silence.
    pub interval: Duration,
    /// Time without a report after which the rate falls by one step, and again each time it passes:
    /// reports are lost in the same queues. Raised to three times `interval` if that is longer, so
    /// that one or two lost or late reports are not silence. Never with [`Duration::MAX`], as in
    /// the paper. At least 1 ms.
    pub silence: Duration,
    /// Whether, at 16 kbit/s, a loss with Diff not below α also counts as congestion: if the rate
    /// can't fall, at least no redundancy is added. Off in the paper.
    pub alpha_at_lowest: bool,
    /// Limits of the redundancy against channel losses.
    pub fec: FecConfig,
}

impl Default for Config {
    /// The paper's thresholds; a BaseRTT for each call, since routes to different receivers differ;
    /// a floor of 10 ms, half a packet; a window of 10 s; a step down after 1 s without a report.
    /// None of the last three is tuned.
    fn default() -> Config {
        Config {
            scope: BaseRttScope::Call,
            floor: Duration::from_millis(10),
            window: Duration::from_secs(10),
            silence: Duration::from_secs(1),
            alpha_at_lowest: true,
            ..Config::paper()
        }
    }
}

impl Config {
    /// The paper's parameters: a BaseRTT that is the all-time minimum of the gateway's whole hop, no
    /// floor, no reaction to silence, and every loss at 16 kbit/s attributed to the channel.
    pub fn paper() -> Config {
        Config {
            packet: Duration::from_millis(20),
            alpha: 30,
            beta: 50,
            scope: BaseRttScope::Gateway,
            floor: Duration::ZERO,
            window: Duration::MAX,
            interval: Duration::from_millis(100),
            silence: Duration::MAX,
            alpha_at_lowest: false,
            fec: FecConfig::default(),
        }
    }

    /// Clamps all parameters to the ranges above.
    fn bounded(self) -> Config {
        const MIN_INTERVAL: Duration = Duration::from_millis(1);
        let reports = self.interval.saturating_mul(3);
        Config {
            packet: self.packet.clamp(MIN_INTERVAL, MAX_RTT),
            alpha: self.alpha.min(self.beta),
            floor: self.floor.min(MAX_RTT),
            window: self.window.max(MIN_INTERVAL),
            silence: self.silence.max(reports).max(MIN_INTERVAL),
            ..self
        }
    }
}

/// A report that a flow's receiver sends from time to time, like an RTCP receiver report, or that
/// the sender measures itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverReport {
    /// Round trip to the receiver and back, if one was measured: above zero, at most [`MAX_RTT`].
    pub rtt: Option<Duration>,
    /// Losses since the previous report.
    pub loss: Loss,
}

impl ReceiverReport {
    /// Creates a report of a round trip without loss.
    pub fn of_rtt(rtt: Duration) -> ReceiverReport {
        ReceiverReport { rtt: Some(rtt), loss: Loss::default() }
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

/// The number and pattern of lost packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// Packets that should have arrived.
    pub expected: u32,
    /// Packets that didn't arrive; at most `expected`.
    pub lost: u32,
    /// Number of runs of consecutive lost packets; 1 to `lost`, and 0 without losses.
    pub runs: u32,
}

/// Reasons for rejecting a report; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReportError {
    /// The round trip is zero, which as BaseRTT could never grow again.
    #[error("the round trip is 0, and must be longer")]
    NoTime,
    /// The round trip is above [`MAX_RTT`].
    #[error("the round trip is {0:?}, and must be at most {MAX_RTT:?}")]
    TooLong(Duration),
    /// More packets were lost than expected, or the runs don't match the losses.
    #[error("{} of {} packets can't be lost in {} runs", .0.lost, .0.expected, .0.runs)]
    Loss(Loss),
}
