use super::*;
use proptest::prelude::*;

const RTT: Duration = Duration::from_millis(100);

/// A stream with a packet every 20 ms; all but the lost ones arrive on time.
struct Stream {
    history: History,
    events: Vec<News>,
    next: u64,
}

impl Stream {
    fn new(config: Config) -> Stream {
        Stream { history: History::new(config), events: Vec::new(), next: 1_000 }
    }

    fn at(number: u64) -> Time {
        Time::from_millis(20 * number)
    }

    fn come(&mut self, count: u64) -> &mut Stream {
        for _ in 0..count {
            match self.history.arrive(self.next, Stream::at(self.next), RTT) {
                News::None => {}
                news => self.events.push(news),
            }
            self.next += 1;
        }
        self
    }

    fn lose(&mut self, count: u64) -> &mut Stream {
        self.next += count;
        self
    }

    fn p(&self) -> f64 {
        self.history.rate(Stream::at(self.next - 1), RTT)
    }
}

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{got} is not {want}");
}

#[test]
fn three_later_packets_make_a_loss() {
    let mut s = Stream::new(Config::default());
    s.come(10).lose(1).come(2);
    assert!(!s.history.has_lost());
    s.come(1);
    assert_eq!(s.events, [News::First]);
    // The third packet with a higher number may itself be late.
    let mut h = History::new(Config::default());
    let at = Time::from_millis;
    assert_eq!(h.arrive(1, at(0), RTT), News::None);
    assert_eq!(h.arrive(5, at(80), RTT), News::None);
    assert_eq!(h.arrive(3, at(81), RTT), News::None, "2 and 4 are missing");
    assert_eq!(h.arrive(2, at(82), RTT), News::None, "late, not lost");
    assert_eq!(h.arrive(6, at(100), RTT), News::None);
    assert_eq!(h.arrive(7, at(120), RTT), News::First, "5, 6 and 7 after 4");
}

/// Packets 1010, 1110, 1160 and 1360 are lost, and 1162, which is 40 ms after 1160 and in the same
/// event. The intervals between the events are 100, 50 and 200 packets. After 1360, 39 packets
/// arrive: with the lost one, the open interval has 40.
#[test]
fn intervals_by_hand() {
    let mut s = Stream::new(Config::default());
    s.come(10).lose(1).come(99).lose(1).come(49).lose(1).come(1).lose(1).come(197).lose(1);
    s.come(39);
    assert_eq!(s.events, [News::First, News::Event, News::Event, News::Event]);
    s.history.seed(30.0);
    // Closed: 200, 50, 100, 30, all of weight 1: mean 380/4 = 95. With the open one in place of the
    // oldest: 40, 200, 50, 100, mean 390/4 = 97.5. The larger mean counts.
    near(s.p(), 4.0 / 390.0);
    // 60 more make it 100: 450/4.
    s.come(60);
    near(s.p(), 4.0 / 450.0);
    // The first interval alone gives 30, until the open one is longer.
    let mut s = Stream::new(Config::default());
    s.come(10).lose(1).come(19);
    s.history.seed(30.0);
    near(s.p(), 1.0 / 30.0);
    s.come(980);
    near(s.p(), 1.0 / 1_000.0);
}

/// Nine intervals of 10 to 90 packets, then the weights 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, whose sum
/// is 6.
#[test]
fn weights_of_eight() {
    let mut s = Stream::new(Config::default());
    s.come(10);
    for n in 1..=9 {
        s.lose(1).come(10 * n - 1);
    }
    s.lose(1).come(3);
    // Closed, the most recent first: 90, 80, 70, 60, 50, 40, 30, 20 (10 is
    // forgotten): 90 + 80 + 70 + 60 + 40 + 24 + 12 + 4 = 380.
    near(s.p(), 6.0 / 380.0);
}

/// 50 packets in a row are missing, over 51 · 20 ms. Due 20 ms apart, the sixth after any one (120
/// ms) is the first that is more than 100 ms later: events begin at the 1st, 7th, … 49th, nine of
/// them.
#[test]
fn one_gap_may_be_several_events() {
    let mut s = Stream::new(Config::default());
    s.come(10).lose(50).come(3);
    s.history.seed(6.0);
    // Open: the 49th, the 50th and three that arrived, 5; closed: eight of 6.
    near(s.p(), 1.0 / 6.0);
    // All but the last nine events would be forgotten, so they cost nothing.
    let mut far = Stream::new(Config::default());
    far.come(10).lose(6 * 1_000_000_000 + 2).come(3);
    near(far.p(), 1.0 / 6.0);
    // A gap that begins within the last event continues it: 1010 and 1012 to 1023 are lost. 1012 …
    // 1015 are due within 100 ms of 1010, and the next events begin with 1016 and 1022.
    let mut s = Stream::new(Config::default());
    s.come(10).lose(1).come(1).lose(12).come(30);
    s.history.seed(6.0);
    // Closed: 6 (1010 to 1015), 6, 6. Open: from 1022 to 1053, 32.
    near(s.p(), 3.0 / (32.0 + 12.0));
}

/// RFC 4828: an interval of at most 2 R = 200 ms is ten packets here.
#[test]
fn short_intervals_count_their_losses() {
    let short = Config { short_intervals: true, ..Config::default() };
    let mut s = Stream::new(short);
    // 1010, 1011 and 1012 are lost, then 1018: an interval of 8 packets with 3
    // losses counts 8/3. It takes 160 ms.
    s.come(10).lose(3).come(5).lose(1).come(4);
    s.history.seed(4.0);
    // The open interval, of 80 ms, is left out: (8/3 + 4)/2 = 10/3.
    near(s.p(), 0.3);
    // After more than 200 ms it counts: 12 packets, (12 + 8/3)/2 = 22/3.
    s.come(7);
    near(s.p(), 3.0 / 22.0);
    // Without the rule, the first counts as 8, and the open one of 5 counts at once.
    let mut plain = Stream::new(Config::default());
    plain.come(10).lose(3).come(5).lose(1).come(4);
    plain.history.seed(4.0);
    near(plain.p(), 2.0 / 13.0);
}

/// Intervals of 10 packets, then 60 without loss: I_mean = 10, and I_0 = 60 is more than 20, so DF
/// = 20/60, but at least 0.5.
#[test]
fn a_long_open_interval_discounts_the_others() {
    let discounting = |least| {
        let mut s = Stream::new(Config { discount: Some(least), ..Config::default() });
        s.come(10);
        for _ in 0..3 {
            s.lose(1).come(9);
        }
        s.lose(1).come(59);
        s.history.seed(10.0);
        s
    };
    // I_0 = 60 has weight 1, then 10, 10, 10 have weight 1 · DF: W = 1 + 3 DF, I = 60 + 30 DF.
    near(discounting(0.5).p(), 2.5 / 75.0);
    near(discounting(0.25).p(), 2.0 / 70.0);
    near(discounting(1.0).p(), 4.0 / 90.0);
    // The next loss makes the discount permanent: the closed intervals are 60 with weight 1 and
    // four with 0.5, 0.5, 0.5 and 0.8 · 0.5.
    let mut s = discounting(0.5);
    s.lose(1).come(3);
    near(s.p(), 2.9 / 79.0);
}

proptest! {
    #[test]
    fn whatever_comes_p_is_a_share_and_memory_bounded(
        arrivals in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 36), 1..300),
        near_by in proptest::collection::vec((0u64..60, 0u64..4_000_000_000), 1..300),
        short: bool, discount in proptest::option::of(0.0..1.0f64),
    ) {
        let mut h = History::new(Config { short_intervals: short, discount });
        let all = near_by.into_iter().map(|(n, t)| (n, t, 1_000_000)).chain(arrivals);
        for (number, nanos, rtt) in all {
            let (now, rtt) = (Time::from_nanos(nanos), Duration::from_nanos(rtt));
            if h.arrive(number, now, rtt) == News::First {
                h.seed(nanos as f64 / 1e6);
            }
            let p = h.rate(now, rtt);
            prop_assert!((0.0..=1.0).contains(&p), "{}", p);
            prop_assert_eq!(p > 0.0, h.has_lost());
            prop_assert!(h.gaps.len() <= MAX_GAPS / 2 && h.closed.len() <= INTERVALS);
        }
    }

    /// Compares the events of one gap with a walk over its packets.
    #[test]
    fn events_of_a_gap_as_one_by_one(
        lost in 1u64..400, spacing_us in 1u64..50_000, rtt_us in 1u64..500_000, lead in 0u64..12,
    ) {
        let rtt = Duration::from_micros(rtt_us);
        let at = |n: u64| Time::from_micros(n * spacing_us);
        let mut h = History::new(Config::default());
        h.arrive(10, at(10), rtt);
        // A single earlier loss, and `lead` packets in between.
        for n in (12..12 + lead + 1).chain(12 + lead + 1 + lost..12 + lead + lost + 8) {
            h.arrive(n, at(n), rtt);
        }
        let mut begins = vec![11u64];
        for n in 12 + lead + 1..12 + lead + 1 + lost {
            if at(n).since(at(*begins.last().unwrap())) > rtt {
                begins.push(n);
            }
        }
        let got = h.open.unwrap();
        prop_assert_eq!(got.first, *begins.last().unwrap());
        let lengths: Vec<f64> =
            begins.windows(2).rev().take(INTERVALS).map(|w| (w[1] - w[0]) as f64).collect();
        let closed: Vec<f64> = h.closed.iter().map(|i| i.packets).collect();
        prop_assert_eq!(closed, lengths);
    }
}
