//! BaseRTT, the shortest round trip: of a gateway's whole hop, or of one call.

use core::time::Duration;
use trunkline_base::Time;

/// BaseRTT of a gateway: the shortest of all round trips measured on its hop, by calls in progress
/// and by those that have ended (Trad, Ni, Afifi 2004, section 4.2). All calls of a gateway pass
/// the same record to [`Control::report`](super::Control::report). It never ages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HopBaseRtt(Option<Duration>);

impl HopBaseRtt {
    /// The shortest round trip; `None` before the first.
    pub fn get(self) -> Option<Duration> {
        self.0
    }

    /// Records a round trip, and returns the shortest.
    pub(super) fn sample(&mut self, rtt: Duration) -> Duration {
        let least = self.0.map_or(rtt, |least| least.min(rtt));
        self.0 = Some(least);
        least
    }
}

/// Time for which a probe holds the lowest rate: by then, a queue that the flow built at 64 kbit/s
/// has drained, unless it was half a second long.
const HOLD: Duration = Duration::from_millis(500);

/// The shortest round trip of a call, until it has not been seen again for a window.
///
/// If the base were forgotten then, a flow's own queue could pass for an empty hop: between the
/// ratios at which the control lowers and raises, the rate can stay for long with a queue of a
/// whole BaseRTT, which would become the next BaseRTT, and so on. So the flow must first drain its
/// own queue at the lowest rate (like BBR's ProbeRTT), and the remaining round trip is the new
/// base. A probe runs to its end even if the old base is seen meanwhile: that may be the flow's own
/// queue, half drained, and stopping there would keep the rest of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRtt {
    window: Duration,
    floor: Duration,
    least: Option<Duration>,
    /// Last time at which a round trip was within an eighth of the base.
    seen: Time,
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    /// Time since which the rate is the lowest.
    lowest: Option<Time>,
    least: Option<Duration>,
}

impl BaseRtt {
    /// Starts without a base; the base is at least `floor`, and ages after `window`.
    pub fn new(window: Duration, floor: Duration, now: Time) -> BaseRtt {
        BaseRtt { window, floor, least: None, seen: now, probe: None }
    }

    /// Records a round trip; `lowest` is whether the packet was sent at the lowest rate. Returns
    /// the base.
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

    /// Whether the rate must step down to the lowest.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    fn probe(&mut self, now: Time, rtt: Duration, lowest: bool) {
        let probe = self.probe.get_or_insert_default();
        if !lowest {
            return;
        }
        // The first round trip at the lowest rate may belong to an earlier packet.
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
