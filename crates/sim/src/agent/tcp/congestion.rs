//! The congestion window: its growth (RFC 5681, section 3.1), and its reduction.

use super::profile::{Counting, Idle, Profile, Reduction};
use core::time::Duration;
use trunkline_base::Time;

/// Larger than any window: no threshold has been set.
const INFINITE: u64 = u64::MAX >> 8;

/// cwnd and ssthresh, in bytes or in packets, depending on the profile.
#[derive(Clone, Debug)]
pub struct Congestion {
    cwnd: u64,
    ssthresh: u64,
    /// One segment, in the unit of the window.
    unit: u64,
    initial: u64,
    /// Amount acknowledged towards the next step of congestion avoidance.
    count: u64,
    reduction: Reduction,
    count_acked: bool,
    grow_if_limited: bool,
    idle: Idle,
    /// The window at the beginning of the reduction, and the amounts delivered and sent since (RFC
    /// 6937, section 3).
    prior: u64,
    delivered: u64,
    sent: u64,
    /// For the current flight: whether the window limited it, the maximum outstanding, and the
    /// number at which it ends.
    limited: bool,
    most_out: u64,
    flight_end: u64,
    /// The maximum outstanding since the window was last the limit, and the time of that.
    used: u64,
    stamp: Time,
}

impl Congestion {
    /// Starts with the initial window for segments of `mss` bytes.
    pub fn new(profile: &Profile, mss: usize) -> Congestion {
        let unit = match profile.counting {
            Counting::Packets => 1,
            Counting::Bytes => mss as u64,
        };
        let initial = profile.initial_window.segments(mss).max(1) * unit;
        Congestion {
            cwnd: initial,
            // ns-2 starts with its window limit.
            ssthresh: profile.window_limit.map_or(INFINITE, |limit| limit.max(2) * unit),
            unit,
            initial,
            count: 0,
            reduction: profile.reduction,
            count_acked: profile.count_acked,
            grow_if_limited: profile.grow_if_limited,
            idle: profile.idle,
            prior: 0,
            delivered: 0,
            sent: 0,
            limited: false,
            most_out: 0,
            flight_end: 0,
            used: 0,
            stamp: Time::ZERO,
        }
    }

    /// The current congestion window, in the profile's unit.
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// The slow start threshold; `None` before the first loss.
    pub fn ssthresh(&self) -> Option<u64> {
        (self.ssthresh < INFINITE).then_some(self.ssthresh)
    }

    /// Size of one segment, in the unit of the window.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// The window and the threshold, for [`Congestion::undo`].
    pub fn state(&self) -> (u64, u64) {
        (self.cwnd, self.ssthresh)
    }

    /// Undoes a reduction that turned out to be unnecessary.
    pub fn undo(&mut self, (cwnd, ssthresh): (u64, u64)) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
    }

    /// Starts with one segment, because the SYN was retransmitted (RFC 5681, section 3.1).
    pub fn start_small(&mut self) {
        self.cwnd = self.unit;
    }

    fn halved(&self, limit: u64) -> u64 {
        let half = self.cwnd.min(limit) / 2;
        (half - half % self.unit).max(2 * self.unit)
    }

    /// Begins fast recovery: ssthresh becomes half of the window, counting at most `limit` of it as
    /// used.
    pub fn enter_recovery(&mut self, limit: u64) {
        self.ssthresh = self.halved(limit);
        (self.prior, self.delivered, self.sent, self.count) = (self.cwnd.min(limit), 0, 0, 0);
        if self.reduction == Reduction::AtOnce {
            self.cwnd = self.ssthresh;
        }
    }

    /// Handles an ACK in fast recovery: `delivered` is the amount it delivered, `pipe` the amount
    /// in the network (RFC 6937). `forward` is true if it acknowledges new data and revealed no
    /// further loss.
    pub fn reduce(&mut self, delivered: u64, pipe: u64, forward: bool) {
        match self.reduction {
            Reduction::AtOnce => {}
            Reduction::RateHalving => {
                self.count += 1;
                if self.count >= 2 {
                    self.count = 0;
                    self.cwnd = (self.cwnd - self.unit).max(self.ssthresh.min(self.cwnd));
                }
                self.cwnd = self.cwnd.min(pipe + self.unit);
            }
            Reduction::Proportional if delivered == 0 => {}
            Reduction::Proportional => {
                self.delivered += delivered;
                let quota = match self.ssthresh.checked_sub(pipe) {
                    // Still above the threshold: send a share equal to the threshold's share of the
                    // old window.
                    None => {
                        let share = self.ssthresh as u128 * u128::from(self.delivered);
                        let share = share.div_ceil(u128::from(self.prior.max(1))) as u64;
                        share.saturating_sub(self.sent)
                    }
                    // Below the threshold: slow start up to it, as long as there is no further
                    // loss.
                    Some(room) => {
                        let owed = self.delivered.saturating_sub(self.sent).max(delivered);
                        room.min(owed + if forward { self.unit } else { 0 })
                    }
                };
                // The fast retransmit itself is always sent.
                let least = if self.sent == 0 { self.unit } else { 0 };
                self.cwnd = pipe + quota.max(least);
            }
        }
    }

    /// Ends fast recovery: the window becomes the threshold.
    pub fn leave_recovery(&mut self) {
        self.cwnd = match self.reduction {
            Reduction::RateHalving => self.cwnd.min(self.ssthresh),
            Reduction::AtOnce | Reduction::Proportional => self.ssthresh,
        };
        self.count = 0;
    }

    /// Handles an expired RTO. `limit` bounded the amount in flight, and `pipe` still counts as in
    /// flight. Without `halve`, the threshold stays.
    pub fn collapse(&mut self, limit: u64, halve: bool, pipe: u64) {
        if halve {
            self.ssthresh = self.halved(limit);
        }
        self.cwnd = pipe + self.unit;
        self.count = 0;
    }

    /// Handles an ACK of new data outside fast recovery that delivered this amount.
    pub fn grow(&mut self, delivered: u64) {
        if self.grow_if_limited {
            let in_slow_start = self.cwnd < self.ssthresh && self.cwnd < 2 * self.most_out;
            if !self.limited && !in_slow_start {
                return;
            }
        }
        let mut step = if self.count_acked { delivered } else { self.unit };
        if self.cwnd < self.ssthresh {
            let up = step.min(self.ssthresh - self.cwnd);
            self.cwnd += up;
            step -= up;
            // With one step per ACK, the step belongs to one phase only.
            if !self.count_acked || step == 0 {
                return;
            }
        }
        self.count += step;
        if self.count >= self.cwnd {
            self.count -= self.cwnd;
            self.cwnd += self.unit;
        }
    }

    /// Counts an amount sent in fast recovery.
    pub fn note_sent(&mut self, cost: u64) {
        self.sent += cost;
    }

    /// Records the window's use after sending as much as allowed: `out` is unacknowledged, from
    /// number `una` of the stream up to `end`, and `blocked` is true if the window held data back.
    pub fn note_use(&mut self, now: Time, out: u64, blocked: bool, una: u64, end: u64) {
        if una >= self.flight_end || blocked && !self.limited || out > self.most_out {
            let fresh = una >= self.flight_end;
            self.limited = blocked || !fresh && self.limited;
            self.most_out = if fresh { out } else { self.most_out.max(out) };
            self.flight_end = end;
        }
        if self.limited {
            (self.used, self.stamp) = (0, now);
        } else {
            self.used = self.used.max(out);
        }
    }

    /// Validates the window (RFC 2861, section 3.2): if the application was the limit for an RTO,
    /// the window drops halfway to the amount used.
    pub fn validate(&mut self, now: Time, rto: Duration) {
        if self.idle != Idle::Decay || self.limited || now.since(self.stamp) < rto {
            return;
        }
        let used = self.used.max(self.initial);
        if used < self.cwnd {
            self.keep_three_quarters();
            self.cwnd = u64::midpoint(self.cwnd, used);
        }
        (self.used, self.stamp) = (0, now);
    }

    fn keep_three_quarters(&mut self) {
        self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
    }

    /// Resumes sending after a pause with nothing in flight.
    pub fn resume(&mut self, now: Time, pause: Duration, rto: Duration) {
        if pause <= rto {
            return;
        }
        match self.idle {
            Idle::Keep => return,
            Idle::OneSegment => self.cwnd = self.cwnd.min(self.unit),
            Idle::InitialWindow => self.cwnd = self.cwnd.min(self.initial),
            Idle::Decay => {
                self.keep_three_quarters();
                let least = self.cwnd.min(self.initial);
                let mut left = pause;
                while left > rto && self.cwnd > least {
                    self.cwnd /= 2;
                    left = left.saturating_sub(rto);
                }
                self.cwnd = self.cwnd.max(least);
            }
        }
        self.count = 0;
        (self.used, self.stamp) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1_428;

    #[test]
    fn the_window_doubles_per_round_trip_and_then_grows_by_one() {
        let mut packets = Congestion::new(&Profile::linux_6(), MSS);
        packets.note_use(Time::ZERO, 10, true, 0, 100);
        (0..5).for_each(|_| packets.grow(2));
        assert_eq!(packets.cwnd(), 20);
        packets.enter_recovery(INFINITE);
        packets.leave_recovery();
        assert_eq!((packets.cwnd(), packets.ssthresh()), (10, Some(10)));
        (0..5).for_each(|_| packets.grow(2));
        assert_eq!(packets.cwnd(), 11);

        // If ACKs count instead of acknowledged data, delayed ACKs halve the growth.
        let mut bytes = Congestion::new(&Profile::freebsd_5_4(), MSS);
        assert_eq!(bytes.cwnd(), 3 * 1_428);
        (0..3).for_each(|_| bytes.grow(2 * 1_428));
        assert_eq!(bytes.cwnd(), 6 * 1_428);
        bytes.enter_recovery(INFINITE);
        (0..3).for_each(|_| bytes.grow(2 * 1_428));
        assert_eq!(bytes.cwnd(), 4 * 1_428, "a step for as many ACKs as segments");
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut c = Congestion::new(&Profile::linux_6(), MSS);
        c.note_use(Time::ZERO, 2, false, 0, 100);
        c.grow(2);
        assert_eq!(c.cwnd(), 10);
        c.note_use(Time::ZERO, 6, false, 0, 100);
        c.grow(2);
        assert_eq!(c.cwnd(), 12, "in slow start half of it is enough");
    }

    #[test]
    fn the_proportional_reduction_sends_half_of_what_arrives() {
        let mut c = Congestion::new(&Profile::linux_6(), MSS);
        (0..10).for_each(|_| {
            c.note_use(Time::ZERO, 20, true, 0, 1);
            c.grow(1);
        });
        c.enter_recovery(INFINITE);
        // One of 20 is lost: each ACK takes one off the pipe, and every second ACK releases one.
        let (mut pipe, mut sent) = (19, 0);
        for _ in 0..19 {
            pipe -= 1;
            c.reduce(1, pipe, false);
            while pipe < c.cwnd() {
                pipe += 1;
                sent += 1;
                c.note_sent(1);
            }
        }
        assert_eq!((sent, pipe), (10, 10), "{c:?}");
        c.leave_recovery();
        assert_eq!(c.cwnd(), 10);
    }

    #[test]
    fn a_pause_takes_the_window_down() {
        let rto = Duration::from_millis(200);
        let after = |profile: Profile, pause: u64| {
            let mut c = Congestion::new(&profile, 1_460);
            (0..13).for_each(|_| {
                c.note_use(Time::ZERO, 100 * c.unit(), true, 0, 1);
                c.grow(c.unit());
            });
            c.resume(Time::ZERO, Duration::from_millis(pause), rto);
            c.cwnd() / c.unit()
        };
        let rfc_3390 = Profile { idle: Idle::InitialWindow, ..Profile::freebsd_5_4() };
        assert_eq!([200, 201].map(|t| after(Profile::freebsd_5_4(), t)), [16, 1]);
        assert_eq!(after(rfc_3390, 201), 3);
        assert_eq!([201, 401, 5_000].map(|t| after(Profile::linux_2_4(), t)), [8, 4, 3]);
        assert_eq!(after(Profile::ns2_reno(), 90_000), 14);
    }
}
