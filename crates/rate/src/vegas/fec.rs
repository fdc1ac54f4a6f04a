//! How much to add against the losses of a channel.

use core::time::Duration;
use trunkline_base::Time;

use super::Loss;

/// What a sender adds to a flow, so that its receiver can put lost packets together
/// again. A decision alone: packets are the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fec {
    /// Nothing is added to the flow: the channel has lost nothing of late, or too little.
    #[default]
    Off,
    /// Each packet carries the payloads of the packets before it as well (RFC 2198): of a
    /// run of losses, the last `count` come with the packet after it.
    Copies {
        /// Of how many packets, at least 1; each costs the codec's rate once more.
        count: u8,
    },
    /// A packet that is the exclusive or of `window` others (RFC 8627), which lie `depth`
    /// apart: one of them may be lost, and so may a run of `depth`.
    Parity {
        /// Packets to each that is added, at least 1; it costs the codec's rate over
        /// `window` once more.
        window: u8,
        /// Distance of the packets that go together, at least 1. A lost packet is put
        /// together after `window` · `depth` more at the latest.
        depth: u8,
    },
}

/// Which of the two forms of [`Fec`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FecKind {
    /// [`Fec::Copies`]: soon there, and dear.
    #[default]
    Copies,
    /// [`Fec::Parity`]: cheap, and late.
    Parity,
}

/// Limits of what is added to a flow against losses of the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FecConfig {
    /// The form of what is added.
    pub kind: FecKind,
    /// Of so many packets one may stay lost: 100. No more is added than that takes, and
    /// no more than the next two allow.
    pub residual: u32,
    /// The most copies, 2; at least 1.
    pub max_copies: u8,
    /// The most packets that `window` · `depth` of parity may span, 6; at least 1.
    pub max_span: u8,
    /// After so long without a loss nothing is added any more: 5 s.
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

/// Once so many packets are counted, older ones count half: 10 s of packets of 20 ms.
const MEMORY: f64 = 500.0;

/// What the channel has lost of late. Counts are halved exactly, so that runs never outnumber
/// losses, nor losses packets, and what is rare stays rare.
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

    /// A report that blames the channel, if anybody, for its losses.
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

    /// Nothing is known of the channel.
    pub fn forget(&mut self) {
        *self = Losses::new(self.config);
    }

    /// What is to be added after the losses seen so far: nothing for less than half a packet.
    pub fn fec(&self) -> Fec {
        if self.lost < 0.5 {
            return Fec::Off;
        }
        match self.config.kind {
            FecKind::Copies => Fec::Copies { count: self.copies() },
            FecKind::Parity => {
                let span = self.config.max_span.max(1);
                // What doesn't fit a byte is the largest that does.
                let depth = ((self.lost / self.runs).ceil() as u8).min(span);
                let window = (self.window() as u8).clamp(1, span / depth);
                Fec::Parity { window, depth }
            }
        }
    }

    /// The fewest copies that leave one packet in `residual`. Runs of a mean length m end
    /// with a chance of 1/m at each packet; k copies then leave (1 − 1/m)^k of all losses.
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

    /// The longest window that leaves one packet in `residual`. Of w + 1 packets that are
    /// lost with chance p, one is lost and not alone in about w · p² of all cases.
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

    /// 5 % in single losses: each copy comes. 5 % in runs of 1.5, 2 and 4 leave a third,
    /// a half, three quarters of 5 % behind the first copy.
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

    /// One of 501 to 1,000 is half a packet, and one of 1,001 a quarter.
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
