//! The throughput of TCP as a function of loss and round-trip time (RFC 3448
//! and RFC 5348, section 3.1; after Padhye, Firoiu, Towsley and Kurose,
//! *Modeling TCP Reno Performance*, IEEE/ACM Transactions on Networking 8(2),
//! 2000).

use core::time::Duration;

use libm::sqrt;

/// Shortest round-trip time used in computations. A shorter one counts as this, so that no rate is
/// divided by zero.
pub const MIN_RTT: Duration = Duration::from_micros(1);

/// Lower end of the search range for the inverse, as a loss event rate.
const MIN_LOSS: f64 = 1e-12;

/// Parameters of the equation that are not measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Throughput {
    /// b, packets acknowledged by one TCP acknowledgement; at least 1.
    pub b: f64,
    /// t_RTO, TCP's retransmission timeout, in round-trip times.
    pub rto_rtts: f64,
}

impl Throughput {
    /// The recommendation of both RFCs: b = 1 and t_RTO = 4 R.
    pub const RFC: Throughput = Throughput { b: 1.0, rto_rtts: 4.0 };

    /// X, in bytes per second, of a TCP with segments of `segment` bytes over a round trip of `rtt`
    /// with a loss event rate of `loss`:
    ///
    /// X = s / (R √(2bp/3) + t_RTO · 3 √(3bp/8) · p (1 + 32p²)).
    ///
    /// Infinite without loss. A rate above 1 or NaN counts as 1; a round trip below [`MIN_RTT`]
    /// counts as [`MIN_RTT`].
    pub fn rate(&self, segment: f64, rtt: Duration, loss: f64) -> f64 {
        if loss <= 0.0 {
            return f64::INFINITY;
        }
        let p = if loss < 1.0 { loss } else { 1.0 };
        let r = rtt.max(MIN_RTT).as_secs_f64();
        let round_trips = sqrt(2.0 * self.b * p / 3.0);
        let timeouts = 3.0 * sqrt(3.0 * self.b * p / 8.0) * p * (1.0 + 32.0 * p * p);
        segment / (r * (round_trips + self.rto_rtts * timeouts))
    }

    /// p, the loss event rate at which [`rate`](Throughput::rate) is `rate` bytes per second:
    /// within one part in 10⁹, from 10⁻¹² to 1.
    ///
    /// Returns 1 for a rate that is lower than at p = 1, or NaN.
    pub fn loss(&self, segment: f64, rtt: Duration, rate: f64) -> f64 {
        if rate.is_nan() || rate <= self.rate(segment, rtt, 1.0) {
            return 1.0;
        }
        // The rate falls as p rises, so bisection finds it; on a logarithmic scale, as p spans
        // twelve decades.
        let (mut low, mut high) = (MIN_LOSS, 1.0);
        while high / low > 1.0 + 1e-9 {
            let middle = sqrt(low * high);
            if self.rate(segment, rtt, middle) > rate {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Duration = Duration::from_millis(100);

    #[track_caller]
    fn near(got: f64, want: f64, share: f64) {
        assert!((got - want).abs() <= share * want, "{got} is not {want} within {share}");
    }

    /// With R = 0.1 s, t_RTO = 0.4 s and b = 1:
    ///
    /// p = 0.01: √(2·0.01/3) = √0.0066667 = 0.0816497, times 0.1 = 0.00816497.
    /// 3 √(3·0.01/8) = 3 √0.00375 = 0.183712, times 0.01 (1 + 0.0032) =
    /// 0.00184300, times 0.4 = 0.000737199. Sum 0.00890217 s per segment.
    ///
    /// p = 0.1: √0.0666667 = 0.258199, times 0.1 = 0.0258199. 3 √0.0375 =
    /// 0.580948, times 0.1 (1 + 0.32) = 0.0766851, times 0.4 = 0.0306740. Sum
    /// 0.0564939 s per segment.
    ///
    /// p = 1: √0.6666667 = 0.816497, times 0.1 = 0.0816497. 3 √0.375 = 1.837117,
    /// times 33 = 60.62487, times 0.4 = 24.24995. Sum 24.33160 s per segment.
    #[test]
    fn by_hand() {
        let x = |s, p| Throughput::RFC.rate(s, RTT, p);
        near(x(1_460.0, 0.01), 1_460.0 / 0.008_902_17, 1e-6);
        near(x(20.0, 0.01), 20.0 / 0.008_902_17, 1e-6);
        near(x(1_460.0, 0.1), 1_460.0 / 0.056_493_9, 1e-6);
        near(x(1_460.0, 1.0), 1_460.0 / 24.331_60, 1e-6);
        // Twice the round trip gives half the rate, since t_RTO follows it.
        near(Throughput::RFC.rate(20.0, 2 * RTT, 0.01), 20.0 / 0.017_804_34, 1e-6);
        // b = 2: √0.0133333 = 0.115470 → 0.0115470; 3 √0.0075 = 0.259808, times
        // 0.010032 times 0.4 = 0.00104256. Sum 0.0125896.
        let delayed = Throughput { b: 2.0, ..Throughput::RFC };
        near(delayed.rate(1_460.0, RTT, 0.01), 1_460.0 / 0.012_589_6, 1e-5);
    }

    /// RFC 4828's table of TFRC lists, for segments of 1,500 bytes including headers and 0.1 s,
    /// 168.61 KB/s at 1 % and 26.58 KB/s at 10 %.
    #[test]
    fn as_printed_in_rfc_4828() {
        near(Throughput::RFC.rate(1_500.0, RTT, 0.01), 168_610.0, 2e-3);
        near(Throughput::RFC.rate(1_500.0, RTT, 0.1), 26_580.0, 2e-3);
    }

    #[test]
    fn at_the_ends() {
        let eq = Throughput::RFC;
        assert_eq!(eq.rate(160.0, RTT, 0.0), f64::INFINITY);
        assert_eq!(eq.rate(160.0, RTT, 7.0), eq.rate(160.0, RTT, 1.0));
        assert_eq!(eq.rate(160.0, RTT, f64::NAN), eq.rate(160.0, RTT, 1.0));
        assert!(eq.rate(160.0, Duration::ZERO, 0.5).is_finite());
        for slow in [0.0, -1.0, f64::NAN] {
            assert_eq!(eq.loss(160.0, RTT, slow), 1.0, "{slow}");
        }
        assert!(eq.loss(160.0, RTT, f64::INFINITY) <= 1.1e-12);
    }

    proptest! {
        #[test]
        fn more_loss_or_a_longer_round_trip_never_allows_more(
            p in 0.0..1.0f64, more in 0.0..1.0f64, us in 0u64..100_000_000, longer in 0u64..100_000_000,
            segment in 1.0..9_000.0f64, b in 1.0..4.0f64,
        ) {
            let eq = Throughput { b, ..Throughput::RFC };
            let (rtt, long) = (Duration::from_micros(us), Duration::from_micros(us + longer));
            let x = eq.rate(segment, rtt, p);
            prop_assert!(x > 0.0);
            prop_assert!(eq.rate(segment, rtt, p + more) <= x);
            prop_assert!(eq.rate(segment, long, p) <= x);
        }

        #[test]
        fn the_inverse_is_one(
            exponent in -9.0..0.0f64, us in 1u64..10_000_000, segment in 1.0..9_000.0f64,
        ) {
            let (p, rtt) = (libm::pow(10.0, exponent), Duration::from_micros(us));
            let x = Throughput::RFC.rate(segment, rtt, p);
            let back = Throughput::RFC.loss(segment, rtt, x);
            prop_assert!((back / p - 1.0).abs() < 1e-6, "{} is not {}", back, p);
        }
    }
}
