//! The amount of redundancy against channel losses.

use core::time::Duration;
use trunkline_base::Time;

use super::Loss;

/// Redundancy that a sender adds to a flow, so that its receiver can recover lost packets. This is
/// only the decision: the sender builds the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fec {
    /// No redundancy: the channel has lost nothing recently, or too little.
    #[default]
    Off,
    /// Each packet also carries the payloads of the packets before it (RFC 2198): of a run of
    /// losses, the packet after it recovers the last `count`.
    Copies {
        /// Number of copied packets, at least 1; each costs the codec's rate once more.
        count: u8,
    },
    /// A packet that is the exclusive or of `window` others (RFC 8627), which lie `depth` apart:
    /// one of them may be lost, and so may a run of `depth`.
    Parity {
        /// Packets per parity packet, at least 1; the cost is the codec's rate divided by `window`.
        window: u8,
        /// Distance of the packets in a group, at least 1. A lost packet is recovered after at most
        /// `window` · `depth` more packets.
        depth: u8,
    },
}

/// The forms of [`Fec`] to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FecKind {
    /// [`Fec::Copies`]: early recovery, at a high cost.
    #[default]
    Copies,
    /// [`Fec::Parity`]: late recovery, at a low cost.
    Parity,
}

/// Limits of the redundancy added against channel losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FecConfig {
    /// Form of the redundancy.
    pub kind: FecKind,
    /// One packet in this many may remain lost, 100 by default. No more redundancy is added than
    /// that takes, and no more than the next two limits allow.
    pub residual: u32,
    /// Maximum number of copies: at least 1, 2 by default.
    pub max_copies: u8,
    /// Maximum span of parity, `window` · `depth`, in packets: at least 1, 6 by default.
    pub max_span: u8,
    /// Time without a loss after which redundancy ends, 5 s by default.
    pub clean: Duration,
}

impl Default for FecConfig {
    fn default() -> FecConfig {
        FecConfig {
            kind: FecKind::Copies,
            residual: 100,
            max_copies: 2,
            max_span: 6,
            clean: Duration::from_secs(5),
        }
    }
}

/// Number of packets beyond which older counts are halved: 10 s of packets of 20 ms.
const MEMORY: f64 = 500.0;

/// Recent channel losses. Counts are halved exactly, so that runs never outnumber losses, nor
/// losses packets, and rare losses stay rare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    config: FecConfig,
    expected: f64,
    lost: f64,
    runs: f64,
    last: Time,
}

impl Losses {
    pub fn new(config: FecConfig) -> Losses {
        Losses { config, expected: 0.0, lost: 0.0, runs: 0.0, last: Time::ZERO }
    }

    /// Adds a report whose losses, if any, are attributed to the channel.
    pub fn add(&mut self, now: Time, loss: Loss) {
        if loss.lost > 0 {
            self.last = now;
        } else if now.since(self.last) >= self.config.clean {
            self.forget();
        }
        if self.lost == 0.0 && loss.lost == 0 {
            return; // only a first loss begins a count
        }
        self.expected += f64::from(loss.expected);
        self.lost += f64::from(loss.lost);
        self.runs += f64::from(loss.runs);
        while self.expected > MEMORY {
            for count in [&mut self.expected, &mut self.lost, &mut self.runs] {
                *count /= 2.0;
            }
        }
    }

    /// Discards everything known of the channel.
    pub fn forget(&mut self) {
        *self = Losses::new(self.config);
    }

    /// The redundancy for the losses so far: none for less than half a packet.
    pub fn fec(&self) -> Fec {
        if self.lost < 0.5 {
            return Fec::Off;
        }
        match self.config.kind {
            FecKind::Copies => Fec::Copies { count: self.copies() },
            FecKind::Parity => {
                let span = self.config.max_span.max(1);
                // A float cast saturates at 255.
                let depth = ((self.lost / self.runs).ceil() as u8).min(span);
                let window = (self.window() as u8).clamp(1, span / depth);
                Fec::Parity { window, depth }
            }
        }
    }

    /// The smallest number of copies that leaves one packet in `residual` lost. Runs of a mean
    /// length m end with probability 1/m at each packet; k copies then leave (1 − 1/m)^k of all
    /// losses.
    fn copies(&self) -> u8 {
        let goes_on = 1.0 - self.runs / self.lost;
        let share = self.lost / self.expected;
        let (mut left, mut count) = (share * goes_on, 1);
        while count < self.config.max_copies && left * f64::from(self.config.residual) > 1.0 {
            left *= goes_on;
            count += 1;
        }
        count
    }

    /// The longest window that leaves one packet in `residual` lost. If w + 1 packets are lost with
    /// probability p each, one is lost but not alone in about w · p² of all cases.
    fn window(&self) -> f64 {
        let (of, lost) = (self.expected * self.expected, self.lost * self.lost);
        of / (lost * f64::from(self.config.residual.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fec(kind: FecKind, expected: u32, lost: u32, runs: u32) -> Fec {
        let mut losses = Losses::new(FecConfig { kind, ..FecConfig::default() });
        losses.add(Time::from_millis(1), Loss { expected, lost, runs });
        losses.fec()
    }

    /// 5 % in single losses: each copy arrives. 5 % in runs of 1.5, 2 and 4 leaves a third, a half,
    /// and three quarters of 5 % after the first copy.
    #[test]
    fn copies_follow_the_length_of_runs() {
        for (lost, runs, count) in [(20, 20, 1), (4, 1, 1), (21, 14, 2), (20, 10, 2), (20, 5, 2)] {
            assert_eq!(
                fec(FecKind::Copies, 400, lost, runs),
                Fec::Copies { count },
                "{lost} {runs}"
            );
        }
        let config = FecConfig { max_copies: 20, ..FecConfig::default() };
        for (lost, runs, count) in [(20, 20, 1), (20, 10, 3), (20, 5, 6), (400, 1, 20)] {
            let mut losses = Losses::new(config);
            losses.add(Time::ZERO, Loss { expected: 400, lost, runs });
            assert_eq!(losses.fec(), Fec::Copies { count }, "{lost} {runs}");
        }
    }

    /// p = 5 %: 4 · 0.05² is 1 %. p = 10 %: a window of one is a copy.
    #[test]
    fn parity_follows_share_and_length_of_runs() {
        for (lost, runs, window, depth) in [
            (20, 20, 4, 1),
            (8, 8, 6, 1),
            (40, 40, 1, 1),
            (20, 10, 3, 2),
            (20, 2, 1, 6),
            (400, 1, 1, 6),
        ] {
            let got = fec(FecKind::Parity, 400, lost, runs);
            assert_eq!(got, Fec::Parity { window, depth }, "{lost} in {runs}");
        }
    }

    #[test]
    fn what_is_clean_again_needs_nothing() {
        let mut losses = Losses::new(FecConfig::default());
        let none = |expected| Loss { expected, lost: 0, runs: 0 };
        losses.add(Time::from_millis(1_000), none(5));
        assert_eq!(losses.fec(), Fec::Off);
        losses.add(Time::from_millis(2_000), Loss { expected: 5, lost: 1, runs: 1 });
        assert_eq!(losses.fec(), Fec::Copies { count: 1 });
        losses.add(Time::from_millis(6_999), none(250));
        assert_eq!(losses.fec(), Fec::Copies { count: 1 });
        losses.add(Time::from_millis(7_000), none(5));
        assert_eq!(losses.fec(), Fec::Off);
    }

    /// One loss in 501 to 1,000 packets counts as half a packet, and one in 1,001 as a quarter.
    #[test]
    fn what_is_rare_needs_nothing() {
        for kind in [FecKind::Copies, FecKind::Parity] {
            for expected in [1_001, 4_000_000, u32::MAX] {
                assert_eq!(fec(kind, expected, 1, 1), Fec::Off, "{expected}");
            }
            assert_eq!(fec(kind, u32::MAX, 1_000, 1), Fec::Off);
        }
        for expected in [501, 1_000] {
            assert_eq!(fec(FecKind::Copies, expected, 1, 1), Fec::Copies { count: 1 });
        }
        assert_eq!(fec(FecKind::Copies, u32::MAX, u32::MAX, 1), Fec::Copies { count: 2 });
        assert_eq!(
            fec(FecKind::Parity, u32::MAX, u32::MAX, 1),
            Fec::Parity { window: 1, depth: 6 }
        );
    }

    #[test]
    fn old_runs_are_outweighed() {
        let mut losses = Losses::new(FecConfig::default());
        losses.add(Time::ZERO, Loss { expected: 500, lost: 100, runs: 10 });
        assert_eq!(losses.fec(), Fec::Copies { count: 2 });
        for n in 1..200 {
            losses.add(Time::from_millis(100 * n), Loss { expected: 50, lost: 1, runs: 1 });
        }
        assert_eq!(losses.fec(), Fec::Copies { count: 1 });
    }
}
