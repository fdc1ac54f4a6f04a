use super::*;
use CodecRate::*;
use core::ops::{Deref, DerefMut};
use proptest::prelude::*;
use trunkline_base::Time;

const NANO: Duration = Duration::from_nanos(1);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// `lost` of 50 packets, in `runs`.
fn loss(lost: u32, runs: u32) -> Loss {
    Loss { expected: 50, lost, runs }
}

/// The only call of a gateway.
#[derive(Debug)]
struct Alone {
    control: Control,
    hop: HopBaseRtt,
}

impl Alone {
    fn new(config: Config, rate: CodecRate, now: Time) -> Alone {
        Alone { control: Control::new(config, rate, now), hop: HopBaseRtt::default() }
    }

    fn report(&mut self, now: Time, report: &ReceiverReport) -> Result<Decision, ReportError> {
        self.control.report(now, report, &mut self.hop)
    }
}

impl Deref for Alone {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut Control {
        &mut self.control
    }
}

/// A call at `rate` that has recorded a round trip of `base`.
fn at(config: Config, rate: CodecRate, base: Duration) -> Alone {
    let mut call = Alone::new(config, rate, Time::ZERO);
    call.control.base.sample(Time::ZERO, base, false);
    call.hop.sample(base);
    call
}

/// The rate after one more round trip.
fn after(config: Config, rate: CodecRate, base: Duration, rtt: Duration) -> CodecRate {
    let mut control = at(config, rate, base);
    let decision = control.report(Time::from_millis(100), &ReceiverReport::of_rtt(rtt));
    decision.expect("a possible round trip").rate
}

#[test]
fn packets_are_as_long_as_table_1_has_them() {
    for (rate, total) in [(Kbps64, 200), (Kbps40, 140), (Kbps32, 120), (Kbps24, 100), (Kbps16, 80)]
    {
        // Total with IPv4, UDP and RTP headers.
        assert_eq!(rate.payload_bytes(Config::paper().packet) + 20 + 8 + 12, total);
    }
}

/// The paper's thresholds as ratios of RTT and BaseRTT, R / (R − 2,500) and R / (R − 1,500), for
/// any base. At the exact ratio the rate stays.
#[test]
fn only_the_ratio_of_round_trips_counts() {
    let lowers = [(Kbps64, 16, 11), (Kbps40, 2, 1), (Kbps32, 8, 3), (Kbps24, 6, 1)];
    let raises = [(Kbps40, 10, 7), (Kbps32, 8, 5), (Kbps24, 2, 1), (Kbps16, 4, 1)];
    // All bases are multiples of 3 · 5 · 7 · 11 ns, so that the edges are whole.
    for base in [micros(231), micros(11_550), micros(231_000)] {
        for (rate, times, of) in lowers {
            let (config, edge) = (Config::paper(), base * times / of);
            assert_eq!(after(config, rate, base, edge), rate, "{rate:?} {base:?}");
            assert_eq!(Some(after(config, rate, base, edge + NANO)), rate.lower(), "{rate:?}");
        }
        for (rate, times, of) in raises {
            let (config, edge) = (Config::paper(), base * times / of);
            assert_eq!(after(config, rate, base, edge), rate, "{rate:?} {base:?}");
            assert_eq!(Some(after(config, rate, base, edge - NANO)), rate.higher(), "{rate:?}");
        }
    }
}

/// The same ratios as rounded in the table.
#[test]
fn the_ratios_are_those_of_the_table() {
    let base = Duration::from_millis(20);
    for (rate, below, above) in
        [(Kbps64, 1.44, 1.46), (Kbps40, 1.99, 2.01), (Kbps32, 2.66, 2.68), (Kbps24, 5.99, 6.01)]
    {
        assert_eq!(after(Config::paper(), rate, base, base.mul_f64(below)), rate);
        assert_eq!(Some(after(Config::paper(), rate, base, base.mul_f64(above))), rate.lower());
    }
    for (rate, below, above) in
        [(Kbps40, 1.42, 1.44), (Kbps32, 1.59, 1.61), (Kbps24, 1.99, 2.01), (Kbps16, 3.99, 4.01)]
    {
        assert_eq!(Some(after(Config::paper(), rate, base, base.mul_f64(below))), rate.higher());
        assert_eq!(after(Config::paper(), rate, base, base.mul_f64(above)), rate);
    }
    assert_eq!(after(Config::paper(), Kbps16, base, MAX_RTT), Kbps16);
    assert_eq!(after(Config::paper(), Kbps64, base, base), Kbps64);
}

/// The paper's quantities by hand: 40 ms over a base of 25.
#[test]
fn quantities_are_the_papers() {
    let mut control = at(Config::paper(), Kbps64, Duration::from_millis(25));
    let report = ReceiverReport::of_rtt(Duration::from_millis(40));
    let measure = control.report(Time::from_millis(1), &report).expect("possible").measure;
    let measure = measure.expect("a round trip");
    assert_eq!(measure.base_rtt, Duration::from_millis(25));
    for (got, want) in [
        (measure.diff, 120.0),
        (measure.alpha, 60.0),
        (measure.beta, 100.0),
        (measure.predictor, 4_800.0),
    ] {
        assert!((got - want).abs() < 1e-9, "{got} {want}");
    }
}

/// One frame of 1,500 bytes ahead of each packet takes 0.5 ms of the cell.
#[test]
fn a_base_of_a_fifth_of_a_millisecond_makes_everything_congestion() {
    let (idle, busy) = (micros(200), micros(700));
    let settle = |config| {
        let mut control = at(config, Kbps64, idle);
        for n in 1..20 {
            let now = Time::from_millis(100 * n);
            control.report(now, &ReceiverReport::of_rtt(busy)).expect("possible");
        }
        control.rate()
    };
    assert_eq!(settle(Config::paper()), Kbps24);
    assert_eq!(settle(Config { floor: Duration::from_millis(1), ..Config::paper() }), Kbps64);
    assert_eq!(settle(Config::default()), Kbps64);
    // The floor doesn't hide an audible delay.
    assert_eq!(after(Config::default(), Kbps64, idle, micros(14_600)), Kbps40);
}

/// A hop of 0.2 ms, where other traffic makes every round trip 0.7 ms after a call has ended. A new
/// call compares with what the ended one measured, as in the paper; with a BaseRTT of its own it
/// takes the queue for an empty hop.
#[test]
fn a_call_that_begins_in_a_queue_knows_the_hop_from_one_that_has_ended() {
    let (idle, busy) = (micros(200), micros(700));
    let second = |scope| {
        let config = Config { scope, ..Config::paper() };
        let mut hop = HopBaseRtt::default();
        {
            let mut ended = Control::new(config, Kbps64, Time::ZERO);
            let report = ReceiverReport::of_rtt(idle);
            ended.report(Time::from_millis(100), &report, &mut hop).expect("possible");
        }

        let mut control = Control::new(config, Kbps64, Time::from_millis(9_900));
        let mut first = None;
        for n in 100..120 {
            let report = ReceiverReport::of_rtt(busy);
            let decision = control.report(Time::from_millis(100 * n), &report, &mut hop);
            let decision = decision.expect("possible");
            first.get_or_insert((decision.rate, decision.measure.expect("measured").base_rtt));
        }
        (first, control.rate(), hop.get())
    };
    let known = second(BaseRttScope::Gateway);
    assert_eq!(known, (Some((Kbps40, idle)), Kbps24, Some(idle)));
    let alone = second(BaseRttScope::Call);
    assert_eq!(alone, (Some((Kbps64, busy)), Kbps64, Some(idle)));
}

/// The shortest round trip of either call is that of both, whatever comes after it.
#[test]
fn calls_of_a_gateway_share_the_shortest_round_trip() {
    let mut hop = HopBaseRtt::default();
    let [mut a, mut b] = [0, 0].map(|_| Control::new(Config::paper(), Kbps64, Time::ZERO));
    let mut base = |control: &mut Control, n: u64, rtt| {
        let report = ReceiverReport::of_rtt(micros(rtt));
        let decision = control.report(Time::from_millis(100 * n), &report, &mut hop);
        decision.expect("possible").measure.expect("measured").base_rtt
    };
    assert_eq!(base(&mut a, 1, 900), micros(900));
    assert_eq!(base(&mut b, 2, 300), micros(300));
    assert_eq!(base(&mut a, 3, 800), micros(300));
    // An hour later, and 36,000 reports without such a round trip.
    for n in 4..36_000 {
        assert_eq!(base(&mut b, n, 700), micros(300));
    }
    assert_eq!((a.rate(), b.rate()), (Kbps40, Kbps32));
}

/// A report that is refused leaves the gateway's record as it was.
#[test]
fn an_impossible_report_is_no_base() {
    let mut hop = HopBaseRtt::default();
    let mut control = Control::new(Config::paper(), Kbps64, Time::ZERO);
    let short = ReceiverReport { rtt: Some(NANO), loss: Loss { expected: 1, lost: 2, runs: 1 } };
    for report in [ReceiverReport::of_rtt(Duration::ZERO), short] {
        assert!(control.report(Time::ZERO, &report, &mut hop).is_err());
    }
    assert_eq!(hop.get(), None);
}

/// Round trips of 0.2 to 2 ms, the shortest once in 20 s: all are below the floor and count as the
/// base, and there is no probe.
#[test]
fn no_base_below_the_floor_ages() {
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    for n in 0..6_000 {
        let rtt = if n % 200 == 0 { 200 } else { 1_000 + 37 * (n % 28) };
        let report = ReceiverReport::of_rtt(micros(rtt));
        let decision = control.report(Time::from_millis(100 * n), &report).expect("possible");
        assert_eq!(decision.rate, Kbps64, "report {n}");
    }
}

#[test]
fn the_predictor_tells_congestion_from_the_channel() {
    let base = Duration::from_millis(20);
    for (rate, ratio, config, verdict, next) in [
        (Kbps64, 1.0, Config::paper(), LossCause::Wireless, Kbps64),
        (Kbps64, 1.5, Config::paper(), LossCause::Congestion, Kbps40),
        (Kbps40, 1.0, Config::paper(), LossCause::Wireless, Kbps40),
        (Kbps40, 1.7, Config::paper(), LossCause::Wireless, Kbps40),
        (Kbps40, 2.1, Config::paper(), LossCause::Congestion, Kbps32),
        (Kbps16, 9.0, Config::paper(), LossCause::Wireless, Kbps16),
        (Kbps16, 9.0, Config::default(), LossCause::Congestion, Kbps16),
        (Kbps16, 3.9, Config::default(), LossCause::Wireless, Kbps16),
    ] {
        let mut control = at(config, rate, base);
        let report = ReceiverReport { rtt: Some(base.mul_f64(ratio)), loss: loss(1, 1) };
        let decision = control.report(Time::from_millis(100), &report).expect("possible");
        assert_eq!((decision.verdict, decision.rate), (Some(verdict), next), "{rate:?} {ratio}");
        let adds = decision.fec != Fec::Off;
        assert_eq!(adds, verdict == LossCause::Wireless, "{rate:?} {ratio}");
    }
}

#[test]
fn congestion_takes_away_what_was_added() {
    let base = Duration::from_millis(20);
    let mut control = at(Config::default(), Kbps64, base);
    let lost = |rtt| ReceiverReport { rtt: Some(rtt), loss: loss(2, 1) };
    let decision = control.report(Time::from_millis(100), &lost(base)).expect("possible");
    assert_eq!(decision.fec, Fec::Copies { count: 2 });
    let slow = ReceiverReport::of_rtt(base * 2);
    let decision = control.report(Time::from_millis(200), &slow).expect("possible");
    assert_eq!((decision.rate, decision.fec), (Kbps40, Fec::Copies { count: 2 }));
    let decision = control.report(Time::from_millis(300), &lost(base * 3)).expect("possible");
    assert_eq!((decision.rate, decision.fec), (Kbps32, Fec::Off));
}

#[test]
fn losses_without_a_round_trip_are_congestion() {
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    let decision =
        control.report(Time::from_millis(1), &ReceiverReport::default()).expect("possible");
    assert_eq!((decision.rate, decision.verdict, decision.measure), (Kbps64, None, None));
    let report = ReceiverReport { rtt: None, loss: loss(1, 1) };
    let decision = control.report(Time::from_millis(2), &report).expect("possible");
    assert_eq!((decision.rate, decision.verdict), (Kbps40, Some(LossCause::Congestion)));
}

/// A longer route looks like congestion for a window; then it is probed and recognised.
#[test]
fn the_base_follows_a_route_that_has_become_longer() {
    for (config, last) in [(Config::default(), Kbps64), (Config::paper(), Kbps24)] {
        let mut control = Alone::new(config, Kbps64, Time::ZERO);
        let mut rates = Vec::new();
        for n in 1..200 {
            let rtt = if n < 50 { 30 } else { 90 };
            let report = ReceiverReport::of_rtt(Duration::from_millis(rtt));
            control.report(Time::from_millis(100 * n), &report).expect("possible");
            rates.push(control.rate());
        }
        assert_eq!((rates[52], rates[147], rates[198]), (Kbps24, Kbps24, last));
        let probe = rates.iter().filter(|rate| **rate == Kbps16).count();
        assert_eq!(probe, if last == Kbps64 { 6 } else { 0 }, "half a second, and a report");
    }
}

/// The same where each report has a channel loss: 70 ms are 1.75 times 40, at which 40 kbit/s stays
/// and losses don't count as congestion.
#[test]
fn the_base_follows_a_route_that_loses_all_the_time() {
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    let mut answers = Vec::new();
    for n in 0..300 {
        let rtt = Duration::from_millis(if n < 50 { 40 } else { 70 });
        let report = ReceiverReport { rtt: Some(rtt), loss: loss(1, 1) };
        let decision = control.report(Time::from_millis(100 * n), &report).expect("possible");
        let base = decision.measure.map(|measure| measure.base_rtt.as_millis());
        answers.push((decision.rate, base));
    }
    // Probed after 10 s: three steps down, half a second, and back.
    assert_eq!((answers[140], answers[152]), ((Kbps40, Some(40)), (Kbps16, Some(40))));
    assert_eq!(answers[299], (Kbps40, Some(70)));
    assert_eq!(answers.iter().filter(|answer| answer.0 < Kbps40).count(), 10);
}

/// The rate falls by one step at a time, and the probe continues although the base is seen: an old
/// base may have been a queue, too.
#[test]
fn a_probe_finds_a_base_that_was_never_seen() {
    let mut control = at(Config::default(), Kbps64, Duration::from_millis(40));
    let mut report = |millis, rtt| {
        let report = ReceiverReport::of_rtt(Duration::from_millis(rtt));
        let decision = control.report(Time::from_millis(millis), &report).expect("possible");
        (decision.rate, decision.measure.map(|m| m.base_rtt.as_millis()))
    };
    assert_eq!(report(9_900, 46), (Kbps64, Some(40)));
    for (millis, rtt, rate, base) in [
        (10_000, 46, Kbps40, 40),
        (10_100, 46, Kbps32, 40),
        (10_200, 44, Kbps24, 40),
        (10_300, 42, Kbps16, 40),
        (10_400, 39, Kbps16, 39),
        (10_600, 30, Kbps16, 30),
        (10_800, 18, Kbps16, 18),
        (10_900, 19, Kbps24, 18),
        (11_000, 19, Kbps32, 18),
    ] {
        assert_eq!(report(millis, rtt), (rate, Some(base)), "{millis}");
    }
}

/// A clock that was ahead, or at its end, doesn't delay anything for ever.
#[test]
fn silence_is_noticed_whenever_the_last_report_was() {
    let report = ReceiverReport::of_rtt(Duration::from_millis(20));
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    control.report(Time::from_millis(100), &report).expect("possible");
    control.report(Time::NEVER, &report).expect("possible");
    assert_eq!(control.next_timeout(), Time::from_millis(1_100));
    control.report(Time::from_millis(1_000_000), &report).expect("possible");
    control.expire(Time::from_millis(200));
    assert_eq!((control.rate(), control.next_timeout()), (Kbps64, Time::from_millis(1_200)));
    control.expire(Time::from_millis(1_200));
    assert_eq!(control.rate(), Kbps40);
}

#[test]
fn a_station_that_vanishes_falls_step_by_step() {
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    assert_eq!(control.next_timeout(), Time::from_millis(1_000));
    control.expire(Time::from_millis(999));
    assert_eq!(control.rate(), Kbps64);
    for (n, rate) in [Kbps40, Kbps32, Kbps24, Kbps16, Kbps16].into_iter().enumerate() {
        control.expire(Time::from_millis(1_000 * (n as u64 + 1)));
        assert_eq!(control.rate(), rate);
    }
    assert_eq!(control.next_timeout(), Time::NEVER);

    // A late call has the same effect.
    let mut late = Alone::new(Config::default(), Kbps64, Time::ZERO);
    late.expire(Time::from_millis(2_999));
    assert_eq!((late.rate(), late.next_timeout()), (Kbps32, Time::from_millis(3_000)));
    late.expire(Time::from_millis(60_000));
    assert_eq!((late.rate(), late.next_timeout()), (Kbps16, Time::NEVER));

    let mut paper = Alone::new(Config::paper(), Kbps64, Time::ZERO);
    assert_eq!(paper.next_timeout(), Time::NEVER);
    paper.expire(Time::NEVER);
    assert_eq!(paper.rate(), Kbps64);
}

/// Reports every 5 s are not silence, nor is losing one of them; losing three is, and so is no
/// report at all.
#[test]
fn silence_is_as_long_as_three_reports() {
    for (millis, silence) in [(20, 1_000), (333, 1_000), (500, 1_500), (5_000, 15_000)] {
        let config = Config { interval: Duration::from_millis(millis), ..Config::default() };
        let mut control = Alone::new(config, Kbps64, Time::ZERO);
        assert_eq!(control.next_timeout(), Time::from_millis(silence), "{millis}");
        let heard = Time::from_millis(2 * millis);
        control.report(heard, &ReceiverReport::of_rtt(micros(11_000))).expect("possible");
        let end = heard + Duration::from_millis(silence);
        assert_eq!(control.next_timeout(), end);
        control.expire(end - NANO);
        assert_eq!(control.rate(), Kbps64, "{millis}");
        control.expire(end);
        assert_eq!(control.rate(), Kbps40, "{millis}");
    }
    let never = Config { interval: Duration::MAX, ..Config::default() };
    assert_eq!(Alone::new(never, Kbps64, Time::ZERO).next_timeout(), Time::NEVER);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let rtt = Some(Duration::from_millis(20));
    let bad = |expected, lost, runs| Loss { expected, lost, runs };
    let none = Loss::default();
    for (report, error) in [
        (ReceiverReport::of_rtt(Duration::ZERO), ReportError::NoTime),
        (ReceiverReport::of_rtt(MAX_RTT + NANO), ReportError::TooLong(MAX_RTT + NANO)),
        (ReceiverReport::of_rtt(Duration::MAX), ReportError::TooLong(Duration::MAX)),
        (ReceiverReport { rtt, loss: bad(1, 2, 1) }, ReportError::Loss(bad(1, 2, 1))),
        (ReceiverReport { rtt, loss: bad(9, 2, 3) }, ReportError::Loss(bad(9, 2, 3))),
        (ReceiverReport { rtt, loss: bad(9, 2, 0) }, ReportError::Loss(bad(9, 2, 0))),
        (ReceiverReport { rtt, loss: bad(9, 0, 1) }, ReportError::Loss(bad(9, 0, 1))),
        (ReceiverReport { rtt: Some(Duration::ZERO), loss: none }, ReportError::NoTime),
    ] {
        let mut control = at(Config::paper(), Kbps40, Duration::from_millis(15));
        let before = format!("{control:?}");
        assert_eq!(control.report(Time::from_millis(100), &report), Err(error));
        assert_eq!(format!("{control:?}"), before, "{report:?}");
    }
}

/// A hop that carries 36 kbit/s of payload and queues the rest, with reports every 100 ms. The flow
/// starts with its own queue in its BaseRTT; from the first probe on, the bounds are a queue of 100
/// ms, and at least three quarters of the hop's capacity.
#[test]
fn a_bottleneck_is_used_and_its_queue_stays_short() {
    const CARRIES: f64 = 4_500.0;
    let idle = 0.015;
    let mut control = Alone::new(Config::default(), Kbps64, Time::ZERO);
    let (mut queue, mut sent, mut longest) = (0.0_f64, 0.0, 0.0_f64);
    for n in 1..=600 {
        let bytes = control.rate().bytes_per_second() as f64 / 10.0;
        queue = (queue + bytes - CARRIES / 10.0).max(0.0);
        let delay = queue / CARRIES;
        if n > 120 {
            longest = longest.max(delay);
            sent += bytes;
        }
        let report = ReceiverReport::of_rtt(Duration::from_secs_f64(idle + delay));
        control.report(Time::from_millis(100 * n), &report).expect("possible");
    }
    let used = sent / 48.0 / CARRIES;
    assert!(longest < 0.1, "a queue of {longest} s");
    assert!((0.75..=1.01).contains(&used), "{used} of the hop");
    println!("{:.0} % used, {:.0} ms queued at most", 100.0 * used, 1e3 * longest);
}

/// Round trips from a nanosecond to centuries, or none.
fn any_rtt() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        1 => Just(None),
        1 => any::<u64>().prop_map(|n| Some(Duration::from_nanos(n))),
        4 => (0u64..200_000).prop_map(|n| Some(Duration::from_micros(n))),
        1 => Just(Some(Duration::MAX)),
    ]
}

fn any_loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        3 => Just(Loss { expected: 5, lost: 0, runs: 0 }),
        2 => (1u32..6).prop_map(|lost| Loss { expected: 5, lost: lost.min(5), runs: 1 }),
        1 => any::<[u32; 3]>().prop_map(|[expected, lost, runs]| Loss { expected, lost, runs }),
    ]
}

fn any_config() -> impl Strategy<Value = Config> {
    let nanos = || any::<u64>().prop_map(Duration::from_nanos);
    let odd = (nanos(), nanos(), nanos(), any::<[u32; 3]>(), any::<[u8; 2]>(), any::<[bool; 3]>());
    let odd = odd.prop_map(
        |(packet, floor, window, numbers, most, [alpha_at_lowest, parity, shared])| {
            let kind = if parity { FecKind::Parity } else { FecKind::Copies };
            let (residual, clean) = (numbers[2], window);
            let [max_copies, max_span] = most;
            let fec = FecConfig { kind, residual, max_copies, max_span, clean };
            let [alpha, beta, _] = numbers;
            let scope = if shared { BaseRttScope::Gateway } else { BaseRttScope::Call };
            Config {
                packet,
                alpha,
                beta,
                scope,
                floor,
                window,
                interval: clean,
                silence: floor,
                alpha_at_lowest,
                fec,
            }
        },
    );
    prop_oneof![Just(Config::paper()), Just(Config::default()), odd]
}

fn place(rate: CodecRate) -> usize {
    CodecRate::ALL.iter().position(|r| *r == rate).expect("one of the five")
}

proptest! {
    /// For any reports, in any order of time: one step at a time, no rise with a loss except after
    /// a probe, finite quantities, and redundancy within its bounds.
    #[test]
    fn any_reports_are_answered_within_bounds(
        config in any_config(),
        start in 0usize..5,
        reports in proptest::collection::vec((any_rtt(), any_loss(), 0u64..30_000, any::<bool>()), 1..100),
    ) {
        let mut control = Alone::new(config, CodecRate::ALL[start], Time::ZERO);
        let mut highest = control.rate();
        for (rtt, loss, millis, expire) in reports {
            let (now, before) = (Time::from_millis(millis), control.rate());
            if expire {
                control.expire(now);
                prop_assert!(control.rate() <= before);
                continue;
            }
            let possible = ReceiverReport { rtt, loss }.check();
            let answer = control.report(now, &ReceiverReport { rtt, loss });
            prop_assert_eq!(answer.err(), possible.err());
            prop_assert!(place(before).abs_diff(place(control.rate())) <= 1);
            let Ok(decision) = answer else { continue };
            prop_assert_eq!((decision.rate, decision.fec), (control.rate(), control.fec()));
            prop_assert_eq!(decision.verdict.is_some(), loss.lost > 0);
            if loss.lost > 0 {
                let ages = config.scope == BaseRttScope::Call && config.window < Duration::MAX;
                let most = if ages { highest } else { before };
                prop_assert!(decision.rate <= most, "raised with a loss");
            }
            highest = highest.max(decision.rate);
            if let Some(measure) = decision.measure {
                for value in [measure.diff, measure.alpha, measure.beta, measure.predictor] {
                    prop_assert!(value.is_finite() && value >= 0.0, "{:?}", measure);
                }
            }
            match decision.fec {
                Fec::Off => {}
                Fec::Copies { count } => {
                    prop_assert!((1..=config.fec.max_copies.max(1)).contains(&count));
                }
                Fec::Parity { window, depth } => {
                    prop_assert!(window >= 1 && depth >= 1);
                    let span = u32::from(window) * u32::from(depth);
                    prop_assert!(span <= u32::from(config.fec.max_span.max(1)));
                }
            }
        }
    }
}
