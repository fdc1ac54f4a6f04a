//! The shortest round trip, of late.

use core::time::Duration;
use trunkline_base::Time;

/// How long the lowest rate is held in a probe: a queue of a flow's own at 64 kbit/s has
/// gone by then, unless it was of half a second.
const HOLD: Duration = Duration::from_millis(500);

/// The shortest round trip, until it has not been seen again for a window.
///
/// Just to forget it then would let a flow's own queue pass for an empty hop: between the
/// ratios at which it lowers and raises, the rate can stand for long with a queue of a
/// whole BaseRTT, which would be the next BaseRTT, and so on. So the flow has to take its
/// own queue out first, at the lowest rate (as BBR's ProbeRTT does), and what is left is
/// the new base. A probe runs to its end even if the old base is seen meanwhile: that may be
/// the flow's own queue, half gone, and to stop there would keep the rest of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRtt {
    window: Duration,
    floor: Duration,
    least: Option<Duration>,
    /// When a round trip was last within an eighth of the base.
    seen: Time,
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    /// Since when the rate is the lowest.
    lowest: Option<Time>,
    least: Option<Duration>,
}

impl BaseRtt {
    /// A base that isn't known yet, at least `floor`, and ages after `window`.
    pub fn new(window: Duration, floor: Duration, now: Time) -> BaseRtt {
        BaseRtt { window, floor, least: None, seen: now, probe: None }
    }

    /// Takes in a round trip of a packet at the lowest rate, or at another, and returns the
    /// base.
    pub fn sample(&mut self, now: Time, rtt: Duration, lowest: bool) -> Duration {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let base = least.max(self.floor);
        if rtt <= base + base / 8 {
            self.seen = now;
        }
        if self.probe.is_some() || now.since(self.seen) >= self.window {
            self.probe(now, rtt, lowest);
        }
        self.least.unwrap_or(rtt).max(self.floor)
    }

    /// Whether the rate has to be the lowest, step by step.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    fn probe(&mut self, now: Time, rtt: Duration, lowest: bool) {
        let probe = self.probe.get_or_insert_default();
        if !lowest {
            return;
        }
        // The first round trip at the lowest rate may be of a packet before.
        let Some(since) = probe.lowest else {
            probe.lowest = Some(now);
            return;
        };
        let least = probe.least.map_or(rtt, |least| least.min(rtt));
        probe.least = Some(least);
        if now.since(since) >= HOLD {
            (self.least, self.seen, self.probe) = (Some(least), now, None);
        }
    }
}
