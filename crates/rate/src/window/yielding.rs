//! Yielding to calls: a transfer that shares a path with voice keeps the queue on it short, by the
//! delay that it measures (as LEDBAT does, RFC 6817). A loss would tell only that the queue, which
//! the voice waits in as well, is full.

use super::RoundTrip;
use core::time::Duration;
use trunkline_base::Time;

/// Queueing delay that a transfer may cause. RFC 6817 allows 100 ms, which is the whole lifetime
/// of a voice packet.
pub(super) const TARGET: Duration = Duration::from_millis(20);

/// Interval between two measurements of the path without a queue. The transfer's own queue would
/// otherwise pass for part of the path after a while.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);

/// Adjustment of the window to the queueing delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Adjustment {
    /// Empty the queue, to measure the path without it.
    Drain {
        /// Round trip with the queue.
        rtt: Duration,
    },
    /// Begin again after that.
    Resume {
        /// Round trip of the path without a queue.
        base: Duration,
    },
    /// Aim at the queueing delay [`TARGET`] on a path with round trip `base`.
    Fit {
        /// Round trip of the path without a queue.
        base: Duration,
        /// Queueing delay of the last round trip.
        queue: Duration,
    },
}

/// Measurements of the queueing delay.
#[derive(Clone, Debug, Default)]
pub(super) struct Yielding {
    /// Round trip without a queue, once measured.
    base: Option<Duration>,
    /// Shortest round trip in the present round, and the end of that.
    round: Option<Duration>,
    round_ends: Time,
    /// When the queue will be empty, while it is being emptied.
    drained_at: Option<Time>,
    measure_at: Time,
    is_on: bool,
}

impl Yielding {
    /// Records a measured round trip.
    pub fn sample(&mut self, rtt: Duration) {
        self.round = Some(self.round.map_or(rtt, |shortest| shortest.min(rtt)));
    }

    /// Ends: no call shares the path.
    pub fn stop(&mut self) {
        (self.is_on, self.drained_at) = (false, None);
    }

    /// Whether the window may grow: not while the queue is being emptied.
    pub fn lets_grow(&self) -> bool {
        self.drained_at.is_none()
    }

    /// The adjustment due at `now`, once per round trip, while calls share the path.
    pub fn adjust(&mut self, now: Time, rtt: &RoundTrip) -> Option<Adjustment> {
        let smoothed = rtt.smoothed()?;
        if !self.is_on || now >= self.measure_at {
            (self.is_on, self.measure_at) = (true, now + MEASURE_AGAIN);
            self.drained_at = Some(now + 2 * smoothed);
            return Some(Adjustment::Drain { rtt: smoothed });
        }
        if let Some(at) = self.drained_at {
            if now < at {
                self.round_ends = now;
                return None;
            }
            self.drained_at = None;
            // The last one to arrive was sent into the shortest queue.
            let base = rtt.latest()?;
            self.base = Some(base);
            (self.round, self.round_ends) = (None, now + base);
            return Some(Adjustment::Resume { base });
        }
        if now < self.round_ends {
            return None;
        }
        self.round_ends = now + smoothed;
        let round = self.round.take()?;
        let base = self.base.map_or(round, |base| base.min(round));
        self.base = Some(base);
        Some(Adjustment::Fit { base, queue: round - base })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Config, Control, Extent};
    use super::*;
    use std::collections::VecDeque;

    const SEGMENT: usize = 1_280;
    const STEP: Duration = Duration::from_micros(100);

    /// A transfer through a router that carries `rate` bytes/s and queues for a second at most.
    struct Transfer {
        control: Control,
        rate: f64,
        base: Duration,
        now: Time,
        /// When the router has sent everything in its queue.
        idle_at: Time,
        /// Arrivals of acknowledgements, and when their segments were sent.
        acks: VecDeque<(Time, Time)>,
        in_flight: u64,
        paced_until: Time,
        sent: u64,
        carried: u64,
    }

    impl Transfer {
        fn new(algorithm: Algorithm, rate: f64, base: Duration) -> Transfer {
            Transfer {
                control: Control::new(Config { algorithm, ..Config::new(SEGMENT) }),
                rate,
                base,
                now: Time::from_millis(1),
                idle_at: Time::ZERO,
                acks: VecDeque::new(),
                in_flight: 0,
                paced_until: Time::ZERO,
                sent: 0,
                carried: 0,
            }
        }

        fn queue(&self) -> Duration {
            self.idle_at.since(self.now)
        }

        /// Continues for `duration`, and returns the queueing delay that 1 % of the time exceeds.
        fn run(&mut self, duration: Duration, calls: bool) -> Duration {
            let end = self.now + duration;
            let mut delays = Vec::new();
            while self.now < end {
                self.now += STEP;
                while let Some((at, sent_at)) =
                    self.acks.front().copied().filter(|a| a.0 <= self.now)
                {
                    self.acks.pop_front();
                    let before = self.in_flight;
                    self.in_flight -= SEGMENT as u64;
                    self.carried += SEGMENT as u64;
                    self.control.on_round_trip(at.since(sent_at));
                    self.control.yield_to_calls(at, calls);
                    let first = self.carried / SEGMENT as u64;
                    self.control.on_progress(at, first, SEGMENT as u64, before);
                }
                while self.in_flight + SEGMENT as u64 <= self.control.size()
                    && self.now >= self.paced_until
                {
                    self.send();
                }
                delays.push(self.queue());
            }
            delays.sort_unstable();
            delays[delays.len() * 99 / 100]
        }

        fn send(&mut self) {
            self.control.hold_back();
            self.sent += 1;
            let pace = self.control.pace(SEGMENT);
            self.paced_until = self.now.max(self.paced_until) + pace;
            if self.queue() > Duration::from_secs(1) {
                let extent = Extent { next: self.sent, transmissions: self.sent };
                return self.control.on_loss(self.sent, extent);
            }
            let takes = Duration::from_secs_f64(SEGMENT as f64 / self.rate);
            self.idle_at = self.idle_at.max(self.now) + takes;
            self.acks.push_back((self.idle_at + self.base, self.now));
            self.in_flight += SEGMENT as u64;
        }
    }

    /// The queue is full when the calls begin; rates and round trips are those of real lines.
    #[test]
    fn a_transfer_keeps_the_queue_short_while_calls_share_it() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
            for (mbps, base) in [(0.7, 30), (2.0, 1), (2.0, 70), (10.0, 15), (50.0, 40), (9.0, 250)]
            {
                let rate = mbps * 1e6 / 8.0;
                let mut transfer = Transfer::new(algorithm, rate, Duration::from_millis(base));
                let full = transfer.run(Duration::from_secs(20), false);
                transfer.run(Duration::from_secs(3), true);
                let before = transfer.carried;
                let queue = transfer.run(Duration::from_secs(90), true);
                let share = (transfer.carried - before) as f64 / 90.0 / rate;
                println!("{algorithm} {mbps} Mbit/s {base} ms: {full:?} to {queue:?}, {share:.2}");
                // The round trip without a queue includes a segment, the target is met in whole
                // segments, and the window grows by one more before it is adjusted.
                let few = Duration::from_secs_f64(4.0 * SEGMENT as f64 / rate);
                assert!(queue <= TARGET + few, "{queue:?} at {mbps}");
                assert!(share > 0.75, "{share} of {mbps} Mbit/s over {base} ms");
            }
        }
    }
}
