//! Round-trip times and the retransmission timeout (RFC 6298).

use core::time::Duration;

/// Least RTO without a measurement after a SYN was repeated (RFC 6298, section 5.7).
const AFTER_REPEATED_SYN: Duration = Duration::from_secs(3);

/// Parameters of the retransmission timeout (RTO).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RtoRules {
    /// Granularity of the clock: measured times are rounded to its multiples, and are at least one.
    pub tick: Duration,
    /// RTO before the first measurement.
    pub initial: Duration,
    /// Constant added to the measured value.
    pub slop: Duration,
    /// Lower bound of the RTO.
    pub min: Duration,
    /// Whether `min` bounds only the variance's part (Linux), so that the RTO is at least SRTT +
    /// `min`.
    pub min_is_of_variance: bool,
    /// Upper bound of the RTO, backed off or not.
    pub max: Duration,
}

/// The estimator of RFC 6298, section 2, with the backoff of section 5.5.
#[derive(Clone, Debug)]
pub struct Rtt {
    rules: RtoRules,
    srtt: Option<Duration>,
    var: Duration,
    backoff: u32,
}

impl Rtt {
    /// Creates an estimator without measurements.
    pub fn new(rules: RtoRules) -> Rtt {
        Rtt { rules, srtt: None, var: Duration::ZERO, backoff: 0 }
    }

    /// Adds a measured round-trip time, and ends the backoff.
    pub fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        let tick = self.rules.tick.max(Duration::from_nanos(1)).as_nanos() as u64;
        let ticks = (rtt.as_nanos() as u64).saturating_add(tick / 2) / tick;
        let rtt = Duration::from_nanos(ticks.max(1).saturating_mul(tick));
        match self.srtt {
            None => (self.srtt, self.var) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.var = self.var * 3 / 4 + srtt.abs_diff(rtt) / 4;
                self.srtt = Some(srtt * 7 / 8 + rtt / 8);
            }
        }
    }

    /// Smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Retransmission timeout, including backoff.
    pub fn rto(&self) -> Duration {
        let RtoRules { tick, initial, slop, min, min_is_of_variance, max } = self.rules;
        let once = match self.srtt {
            None => initial,
            Some(srtt) if min_is_of_variance => srtt + (self.var * 4).max(min) + slop,
            Some(srtt) => (srtt + (self.var * 4).max(tick) + slop).max(min),
        };
        once.saturating_mul(1 << self.backoff).min(max)
    }

    /// Doubles the RTO after it expired, until the next measurement.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(12);
    }

    /// Ends the backoff of a repeated SYN; without a measurement, the RTO becomes at least 3 s.
    pub fn end_handshake(&mut self) {
        if self.srtt.is_none() {
            self.rules.initial = self.rules.initial.max(AFTER_REPEATED_SYN);
        }
        self.backoff = 0;
    }

    /// Ends the backoff without a measurement, because the RTO was premature.
    pub fn undo_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn rules(tick: u64, min_is_of_variance: bool) -> RtoRules {
        let [initial, min, max] = [3_000, 200, 64_000].map(ms);
        let slop = Duration::ZERO;
        RtoRules { tick: ms(tick), initial, slop, min, min_is_of_variance, max }
    }

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut rtt = Rtt::new(rules(1, false));
        assert_eq!(rtt.rto(), ms(3_000));
        rtt.sample(ms(400));
        assert_eq!((rtt.srtt(), rtt.rto()), (Some(ms(400)), ms(1_200)));
        rtt.sample(ms(560));
        // var = 150 + 40, srtt = 350 + 70.
        assert_eq!((rtt.srtt(), rtt.rto()), (Some(ms(420)), ms(1_180)));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(4_720));
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), ms(64_000));
    }

    /// A first sample of 400 ms gives 400 + 4 · 200 ms; many give 400 ms and the clock's 10 ms. The
    /// constant is added to both.
    #[test]
    fn what_is_added_is_added_to_what_was_measured() {
        let slop = ms(200);
        let mut rtt = Rtt::new(RtoRules { slop, min: ms(30), ..rules(10, false) });
        assert_eq!(rtt.rto(), ms(3_000));
        rtt.sample(ms(400));
        assert_eq!(rtt.rto(), ms(1_400));
        (0..100).for_each(|_| rtt.sample(ms(400)));
        assert!(rtt.rto().abs_diff(ms(610)) < ms(2), "{:?}", rtt.rto());
    }

    #[test]
    fn the_floor_and_the_tick_are_the_profile_s() {
        let mut linux = Rtt::new(rules(1, true));
        let mut coarse = Rtt::new(rules(100, false));
        for _ in 0..100 {
            linux.sample(ms(50));
            coarse.sample(ms(20));
        }
        assert!(linux.rto().abs_diff(ms(250)) < ms(1), "{:?}", linux.rto());
        assert!(coarse.srtt().unwrap().abs_diff(ms(100)) < ms(1), "{:?}", coarse.srtt());
    }
}
