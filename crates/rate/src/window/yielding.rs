//! Yielding to calls: a transfer that shares a path with voice keeps the queue on it short, by the
//! delay that it measures (as LEDBAT does, RFC 6817). A loss would tell only that the queue, which
//! the voice waits in as well, is full.

use super::{RoundTrip, scale};
use core::time::Duration;
use trunkline_base::Time;

/// Queueing delay that a transfer may cause. RFC 6817 allows 100 ms, which is the whole lifetime
/// of a voice packet.
pub(super) const TARGET: Duration = Duration::from_millis(20);

/// Interval between two measurements of the path without a queue. The transfer's own queue would
/// otherwise pass for part of the path after a while.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);

/// Number of rounds in a row in which the queue doesn't get shorter, although the window did, after
/// after which the path is measured: it may have become longer.
const IN_VAIN: u32 = 2;

/// Least time between the last measurement of the path and one because of a longer path.
const NOT_AGAIN: Duration = Duration::from_secs(2);

/// Samples of the round trip in a round, so that the least of them is not one that jitter has
/// delayed. With fewer, the round continues.
const SAMPLES: u32 = 8;

/// Longest time of a round with few samples, in round trips.
const LONGEST_ROUND: u32 = 4;

/// Time at the minimum window, with a delay that stays the same, after which that is not the
/// transfer's own queue: the path has become longer, or others fill it.
const NOT_OWN: Duration = Duration::from_secs(1);

/// Adjustment of the window to the queueing delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Adjustment {
    /// Empty the queue, to measure the path without it.
    Drain,
    /// Begin again after that, or on a path that has become longer.
    Resume {
        /// Window that fills the path, and half of the queue that it may have, at the rate at which
        /// data arrived before; `None` if that is not known.
        window: Option<u64>,
        /// Part of it to begin with: less where the rate was measured without the calls.
        at_once: u64,
    },
    /// Aim at the queueing delay [`TARGET`] on a path with round trip `base`.
    Fit {
        /// Round trip of the path without a queue.
        base: Duration,
        /// Queueing delay of the last round trip.
        queue: Duration,
        /// Number of rounds in which the queue was no longer than a quarter of [`TARGET`], since it
        /// was longer than half of it.
        short: u32,
    },
}

/// Time over which the rate of arrivals is measured.
const RATE_OVER: Duration = Duration::from_millis(500);

/// Time without an arrival after which a rate measured before says nothing about the path.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// The rate at which data arrives, which is that of the path while a queue waits there.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    since: Time,
    bytes: u64,
    /// Bytes per second in the last two measurements.
    rates: [u64; 2],
    /// Bytes per second when the queue was last within the target.
    fitting: u64,
}

impl Arrivals {
    fn add(&mut self, now: Time, bytes: u64) {
        let span = now.since(self.since);
        if span >= FORGOTTEN {
            *self = Arrivals { since: now, ..Arrivals::default() };
            return;
        }
        self.bytes += bytes;
        if span >= RATE_OVER {
            let rate = u128::from(self.bytes) * 1_000_000_000 / span.as_nanos();
            self.rates = [u64::try_from(rate).unwrap_or(u64::MAX), self.rates[0]];
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// The higher of the last two rates; `None` if none is known at `now`.
    fn rate(&self, now: Time) -> Option<u64> {
        let is_known = now.since(self.since) < FORGOTTEN;
        Some(self.rates[0].max(self.rates[1])).filter(|rate| is_known && *rate > 0)
    }

    /// The lower one: when delays grow, the path may have become slower.
    fn lower_rate(&self, now: Time) -> Option<u64> {
        let lower = self.rates.into_iter().filter(|rate| *rate > 0).min();
        self.rate(now).and(lower)
    }
}

/// A pause in which the queue empties.
#[derive(Clone, Copy, Debug)]
enum Drain {
    /// Until what was sent before has arrived, and no longer than this.
    Empties(Time),
    /// Until a round trip was measured, and no longer than this.
    Measures(Time),
}

/// State of the sender that the adjustment depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// Whether the window is at its minimum, so that it can't shrink.
    pub at_minimum: bool,
    /// Whether everything sent has been acknowledged or lost.
    pub is_drained: bool,
}

/// Measurements of the queueing delay.
#[derive(Clone, Debug, Default)]
pub(super) struct Yielding {
    /// Round trip without a queue, once measured.
    base: Option<Duration>,
    /// Shortest round trip in the present round, the number of samples, and the end of that.
    round: Option<Duration>,
    samples: u32,
    round_ends: Time,
    /// Number of rounds in which the queue was no longer than a quarter of what it may be, since it
    /// was more than half of that.
    short: u32,
    /// Whether the queue of the last round was more than half as long as it may be.
    was_long: bool,
    /// Number of rounds in a row in which the queue was too long and didn't become shorter, and the
    /// round trip that the last one should have had.
    in_vain: (u32, Duration),
    drain: Option<Drain>,
    arrivals: Arrivals,
    /// Bytes per second that arrived before the pause.
    rate: Option<u64>,
    measured_at: Time,
    measure_at: Time,
    /// Since when the window has been at its minimum with a long queue that didn't become shorter,
    /// and the shortest round trip since.
    at_minimum: Option<(Time, Duration)>,
    is_on: bool,
    /// Whether the pause is the one at the beginning of a call.
    is_first: bool,
}

impl Yielding {
    /// Records a measured round trip.
    pub fn sample(&mut self, rtt: Duration) {
        self.round = Some(self.round.map_or(rtt, |shortest| shortest.min(rtt)));
        self.samples += 1;
    }

    /// Records the arrival of `bytes`. A pause of this transfer's making says nothing about the rate.
    pub fn arrived(&mut self, now: Time, bytes: u64) {
        if self.drain.is_none() {
            self.arrivals.add(now, bytes);
        }
    }

    /// Ends because no call shares the path any more. A pause that it interrupts needs an adjustment.
    pub fn stop(&mut self, now: Time, rtt: &RoundTrip) -> Option<Adjustment> {
        self.is_on = false;
        let base = self.drain.and(self.base.or(rtt.shortest()));
        let adjustment = base.map(|base| self.resume(now, base, self.rate));
        (self.drain, self.at_minimum, self.arrivals.fitting) = (None, None, 0);
        adjustment
    }

    /// Whether the window may grow: not while the queue is being emptied, nor while it is more than
    /// half as long as it may be.
    pub fn allows_growth(&self) -> bool {
        let is_long = |(base, round)| round > base + TARGET / 2;
        let is_long = self.was_long || self.base.zip(self.round).is_some_and(is_long);
        !self.is_on || self.drain.is_none() && !is_long
    }

    /// Longest round trip of data that is sent now. The smoothed one may be of a queue that is gone.
    pub fn expected(&self) -> Option<Duration> {
        self.base.filter(|_| self.is_on && self.drain.is_none()).map(|base| base + TARGET)
    }

    /// Whether the queue is being emptied.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// The adjustment due at `now`, once per round trip, while calls share the path.
    pub fn adjust(&mut self, now: Time, rtt: &RoundTrip, state: State) -> Option<Adjustment> {
        let smoothed = rtt.smoothed()?;
        if !self.is_on || now >= self.measure_at {
            self.is_first = !self.is_on;
            return Some(self.pause(now, smoothed, self.arrivals.rate(now)));
        }
        match self.drain {
            Some(Drain::Empties(until)) => {
                if state.is_drained || now >= until {
                    (self.round, self.samples) = (None, 0);
                    self.drain = Some(Drain::Measures(now + smoothed));
                }
                return None;
            }
            Some(Drain::Measures(until)) => {
                if self.round.is_none() && now < until {
                    return None;
                }
                let base = self.round.or(self.base).or(rtt.shortest())?;
                return Some(self.resume(now, base, self.rate));
            }
            None => {}
        }
        let few = self.samples < SAMPLES && now < self.round_ends + (LONGEST_ROUND - 1) * smoothed;
        if now < self.round_ends || few {
            return None;
        }
        (self.round_ends, self.samples) = (now + smoothed, 0);
        // Retransmissions alone measure nothing.
        let Some(round) = self.round.take() else {
            self.was_long = false;
            return None;
        };
        self.end_round(now, round, smoothed, state)
    }

    /// The adjustment after a round with the shortest round trip `round`.
    fn end_round(
        &mut self,
        now: Time,
        round: Duration,
        smoothed: Duration,
        state: State,
    ) -> Option<Adjustment> {
        let base = self.base.map_or(round, |base| base.min(round));
        self.base = Some(base);
        let queue = round - base;
        self.was_long = queue > TARGET / 2;
        self.short = match () {
            () if self.was_long => 0,
            () if queue > TARGET / 4 => self.short,
            () => self.short + 1,
        };
        if queue <= TARGET {
            (self.at_minimum, self.in_vain.0) = (None, 0);
            self.arrivals.fitting = self.arrivals.rate(now).unwrap_or_default();
            let short = if queue > TARGET / 4 { 0 } else { self.short };
            return Some(Adjustment::Fit { base, queue, short });
        }
        if !state.at_minimum {
            self.at_minimum = None;
            let (times, wanted) = self.in_vain;
            let times = if times > 0 && round < wanted { 1 } else { times + 1 };
            self.in_vain = (times, round - (queue - TARGET) / 2);
            if times > IN_VAIN && now.since(self.measured_at) >= NOT_AGAIN {
                self.is_first = false;
                return Some(self.pause(now, smoothed, self.arrivals.lower_rate(now)));
            }
            return Some(Adjustment::Fit { base, queue, short: 0 });
        }
        let (mut since, shortest) = self.at_minimum.unwrap_or((now, round));
        if round + TARGET / 2 < shortest {
            // The queue of before still drains.
            since = now;
        }
        let shortest = shortest.min(round);
        self.at_minimum = Some((since, shortest));
        if now.since(since) < NOT_OWN {
            return None;
        }
        self.is_first = false;
        Some(self.resume(now, shortest, Some(self.arrivals.fitting)))
    }

    /// Empties the queue, to measure the path; data arrived at `rate` before.
    fn pause(&mut self, now: Time, smoothed: Duration, rate: Option<u64>) -> Adjustment {
        (self.is_on, self.measure_at) = (true, now + MEASURE_AGAIN);
        self.drain = Some(Drain::Empties(now + 4 * smoothed));
        (self.rate, self.at_minimum) = (rate, None);
        Adjustment::Drain
    }

    /// Begins again on a path with round trip `base`, where data arrived at `rate` before.
    fn resume(&mut self, now: Time, base: Duration, rate: Option<u64>) -> Adjustment {
        let window = rate.map(|rate| scale(rate, base + TARGET / 2, Duration::from_secs(1)));
        let all = window.unwrap_or_default();
        let at_once = if self.is_first { all / 2 } else { all / 8 * 7 };
        (self.arrivals.since, self.arrivals.bytes, self.measured_at) = (now, 0, now);
        (self.base, self.drain, self.at_minimum) = (Some(base), None, None);
        (self.round, self.samples, self.round_ends) = (None, 0, now + base);
        (self.short, self.was_long, self.in_vain.0) = (0, false, 0);
        Adjustment::Resume { window, at_once }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Config, Control, Extent};
    use super::*;
    use std::collections::VecDeque;

    const SEGMENT: usize = 1_280;
    const STEP: Duration = Duration::from_micros(100);

    /// A transfer through a router that carries `rate` bytes/s and queues for `room` at most.
    struct Transfer {
        control: Control,
        rate: f64,
        room: Duration,
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
                room: Duration::from_secs(1),
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
                    self.control.yield_to_calls(at, calls, self.in_flight);
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
            if self.queue() > self.room {
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
                // The target is met in whole segments, and a segment is of the path without a queue.
                let few = Duration::from_secs_f64(2.0 * SEGMENT as f64 / rate);
                assert!(queue <= TARGET + few, "{queue:?} at {mbps}");
                assert!(share > 0.75, "{share} of {mbps} Mbit/s over {base} ms");
            }
        }
    }

    /// The share of the rate that the transfer carries in `duration` while calls share the path.
    fn share(transfer: &mut Transfer, duration: Duration) -> f64 {
        let before = transfer.carried;
        transfer.run(duration, true);
        (transfer.carried - before) as f64 / duration.as_secs_f64() / transfer.rate
    }

    #[test]
    fn a_transfer_that_begins_in_a_call_finds_its_rate() {
        for (mbps, base) in [(2.0, 20), (10.0, 50), (30.0, 10), (5.0, 150)] {
            let (rate, base) = (mbps * 1e6 / 8.0, Duration::from_millis(base));
            let mut transfer = Transfer::new(Algorithm::Reno, rate, base);
            let queue = transfer.run(Duration::from_secs(5), true);
            let share = share(&mut transfer, Duration::from_secs(5));
            println!("{mbps} Mbit/s {base:?}: {queue:?}, {share:.2}");
            assert!(share > 0.8, "{share} of {mbps} Mbit/s over {base:?}");
            assert!(queue < Duration::from_millis(80) + base, "{queue:?} at first");
        }
    }

    /// Long paths, where a queue shows late: rate in Mbit/s, round trip and room in milliseconds.
    const LONG_PATHS: [(f64, u64, u64); 5] =
        [(1.5, 400, 300), (8.0, 400, 300), (8.0, 180, 300), (8.0, 180, 3_000), (40.0, 180, 300)];

    fn over_long_path((mbps, base, room): (f64, u64, u64)) -> Transfer {
        let base = Duration::from_millis(base);
        let transfer = Transfer::new(Algorithm::Reno, mbps * 1e6 / 8.0, base);
        Transfer { room: Duration::from_millis(room), ..transfer }
    }

    #[test]
    fn a_long_path_s_queue_stays_short_when_the_transfer_returns() {
        for path in LONG_PATHS {
            let mut transfer = over_long_path(path);
            transfer.run(Duration::from_secs(10), false);
            // The queue that the call met.
            transfer.run(Duration::from_millis(path.2), true);
            let queue = transfer.run(Duration::from_secs(20), true);
            let share = share(&mut transfer, Duration::from_secs(100));
            println!("{path:?}: {queue:?}, {share:.2}");
            assert!(queue < Duration::from_millis(60), "{queue:?} on {path:?}");
            assert!(share > 0.8, "{share} on {path:?}");
        }
    }

    #[test]
    fn a_transfer_that_begins_in_a_call_is_gentle_on_a_long_path() {
        for path in LONG_PATHS {
            let mut transfer = over_long_path(path);
            let queue = transfer.run(Duration::from_secs(15), true);
            let share = share(&mut transfer, Duration::from_secs(10));
            println!("{path:?}: {queue:?}, {share:.2}");
            assert!(queue < Duration::from_millis(130), "{queue:?} on {path:?}");
            assert!(share > 0.6, "{share} on {path:?}");
        }
    }

    /// A page, a pause for reading it, and another: nothing is known of the rate by the time that the
    /// call begins.
    #[test]
    fn a_call_that_begins_as_a_transfer_goes_on_costs_a_few_seconds() {
        for (mbps, base) in [(40.0, 50), (40.0, 180), (10.0, 100), (10.0, 400)] {
            let mut transfer = over_long_path((mbps, base, 100));
            transfer.run(Duration::from_secs(15), false);
            // Everything has arrived long since.
            transfer.acks.clear();
            transfer.in_flight = 0;
            transfer.now += Duration::from_secs(5);
            transfer.control.on_idle();
            transfer.run(Duration::from_millis(450), false);
            transfer.run(Duration::from_secs(9), true);
            let share = share(&mut transfer, Duration::from_secs(10));
            println!("{mbps} Mbit/s, {base} ms: {share:.2}");
            assert!(share > 0.8, "{share} of {mbps} Mbit/s over {base} ms");
        }
    }

    #[test]
    fn a_path_that_changes_again_and_again_costs_less_than_half() {
        for (mbps, bases) in [(5.0, [200, 280]), (20.0, [200, 280]), (10.0, [60, 90])] {
            let mut transfer = over_long_path((mbps, bases[0], 300));
            transfer.run(Duration::from_secs(20), true);
            let mut sum = 0.0;
            for n in 1..=10 {
                transfer.base = Duration::from_millis(bases[n % 2]);
                sum += share(&mut transfer, Duration::from_secs(3)) / 10.0;
            }
            println!("{mbps} Mbit/s, {bases:?} ms: {sum:.2}");
            assert!(sum > 0.5, "{sum} of {mbps} Mbit/s over {bases:?} ms");
        }
    }

    #[test]
    fn a_rate_of_before_a_pause_is_forgotten() {
        let mut arrivals = Arrivals::default();
        let mut run = |from: u64, to: u64, bytes| {
            (from..to).step_by(10).for_each(|ms| arrivals.add(Time::from_millis(ms), bytes));
            [to, to + 3_000].map(|ms| arrivals.rate(Time::from_millis(ms)))
        };
        let near = |rate: Option<u64>, wanted: u64| rate.unwrap().abs_diff(wanted) < wanted / 30;
        let [known, later] = run(10_000, 12_000, 1_000);
        assert!(near(known, 100_000) && later.is_none(), "{known:?} {later:?}");
        assert_eq!(run(20_000, 20_400, 10), [None; 2], "nothing is known of the path yet");
        assert!(near(run(20_400, 21_000, 10)[0], 1_000));
    }

    #[test]
    fn a_pause_to_measure_costs_less_than_a_tenth() {
        let mut transfer = over_long_path(LONG_PATHS[1]);
        transfer.run(Duration::from_secs(10), false);
        transfer.run(Duration::from_secs(10), true);
        let before = transfer.carried;
        let queue = transfer.run(Duration::from_secs(60), true);
        let share = (transfer.carried - before) as f64 / 60.0 / transfer.rate;
        assert!(share > 0.9 && queue < Duration::from_millis(30), "{share} {queue:?}");
    }

    /// A call that ends while the queue is being emptied leaves no small window behind.
    #[test]
    fn a_call_of_a_moment_costs_little() {
        let rate = 10e6 / 8.0;
        let mut transfer = Transfer::new(Algorithm::Reno, rate, Duration::from_millis(100));
        transfer.run(Duration::from_secs(20), false);
        transfer.run(Duration::from_millis(300), true);
        assert!(transfer.control.size() < 10_000, "it has made room");
        transfer.run(Duration::from_secs(3), false);
        let before = transfer.carried;
        transfer.run(Duration::from_secs(5), false);
        let share = (transfer.carried - before) as f64 / 5.0 / rate;
        assert!(share > 0.9, "{share}");
    }

    /// A route below changes: the longer round trip is not the transfer's queue.
    #[test]
    fn a_path_that_becomes_longer_costs_a_few_seconds() {
        let rate = 10e6 / 8.0;
        let mut transfer = Transfer::new(Algorithm::Reno, rate, Duration::from_millis(20));
        transfer.run(Duration::from_secs(12), true);
        transfer.base = Duration::from_millis(180);
        transfer.run(Duration::from_secs(5), true);
        let longer = share(&mut transfer, Duration::from_secs(5));
        transfer.base = Duration::from_millis(20);
        transfer.run(Duration::from_secs(3), true);
        let shorter = share(&mut transfer, Duration::from_secs(5));
        assert!(longer > 0.8 && shorter > 0.8, "{longer:.2}, {shorter:.2}");
    }
}
