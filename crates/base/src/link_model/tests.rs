use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn lossy(loss: Loss) -> LinkModel {
    LinkModel { loss, ..LinkModel::default() }
}

fn burst(p: f64, b: f64, chain: Chain) -> LinkModel {
    lossy(Loss::Burst { p, b, chain })
}

const CONTINUOUS: Chain = Chain::Continuous { spacing: Duration::from_millis(20) };

/// Losses among `n` packets spaced by `gap`.
fn losses(model: LinkModel, seed: u64, stream: u64, n: u64, gap: Duration) -> Vec<bool> {
    let mut link = Impairment::new(model, seed, stream).unwrap();
    let mut now = Time::ZERO;
    (0..n)
        .map(|_| {
            now += gap;
            link.offer(now, 200) == PacketFate::Drop(Cause::Loss)
        })
        .collect()
}

/// Within four standard deviations: fails by chance once in 16,000, and the
/// seeds are fixed.
fn close(what: &str, measured: f64, expected: f64, sigma: f64) {
    assert!(
        (measured - expected).abs() <= 4.0 * sigma + 1e-12,
        "{what}: {measured} is not {expected} ± 4 × {sigma}"
    );
}

/// Checks the loss rate, and P(lost | previous lost) = `b`.
fn check_chain(what: &str, lost: &[bool], p: f64, b: f64) {
    let n = lost.len() as f64;
    let count = lost.iter().filter(|&&l| l).count() as f64;
    // Variance of the mean of a Markov chain with autocorrelation r.
    let r = (b - p) / (1.0 - p);
    let sigma = (p * (1.0 - p) * (1.0 + r) / (1.0 - r) / n).sqrt();
    close(&format!("{what} loss"), count / n, p, sigma);
    let pairs = lost.windows(2).filter(|w| w[0] && w[1]).count() as f64;
    close(&format!("{what} burst"), pairs / count, b, (b * (1.0 - b) / count).sqrt());
}

#[test]
fn loss_and_burstiness_are_as_asked() {
    const N: u64 = 400_000;
    for (k, (p, b)) in [(0.05, 0.0), (0.05, 0.25), (0.10, 0.75), (0.3, 0.5)].into_iter().enumerate()
    {
        let k = k as u64;
        let per_packet = losses(burst(p, b, Chain::PerPacket), 1, k, N, 20 * MS);
        check_chain(&format!("per packet ({p}, {b})"), &per_packet, p, b);
        if b >= p {
            let continuous = losses(burst(p, b, CONTINUOUS), 1, k, N, 20 * MS);
            check_chain(&format!("continuous ({p}, {b})"), &continuous, p, b);
        }
    }
    // No memory: P(lost | lost) is the loss itself.
    check_chain("Bernoulli", &losses(lossy(Loss::Bernoulli { p: 0.05 }), 1, 0, N, MS), 0.05, 0.05);
    check_chain("b = p", &losses(burst(0.1, 0.1, CONTINUOUS), 1, 0, N, MS), 0.1, 0.1);
}

#[test]
fn a_continuous_chain_decays_with_time_between_packets() {
    let (p, b) = (0.1_f64, 0.75_f64);
    for (gap_ms, stream) in [(2, 0), (10, 1), (60, 2)] {
        let r = ((b - p) / (1.0 - p)).powf(f64::from(gap_ms) / 20.0);
        let lost = losses(burst(p, b, CONTINUOUS), 3, stream, 400_000, gap_ms * MS);
        check_chain(&format!("{gap_ms} ms"), &lost, p, p + (1.0 - p) * r);
    }
}

#[test]
fn every_stream_starts_stationary_and_goes_its_own_way() {
    const STREAMS: u64 = 20_000;
    let p = 0.2;
    for model in
        [lossy(Loss::Bernoulli { p }), burst(p, 0.75, Chain::PerPacket), burst(p, 0.75, CONTINUOUS)]
    {
        let first: Vec<bool> =
            (0..STREAMS).map(|stream| losses(model.clone(), 1, stream, 1, MS)[0]).collect();
        // P(lost | lost in the previous stream) is no more than P(lost).
        check_chain(&format!("{:?}", model.loss), &first, p, p);
    }
}

#[test]
fn outages_do_not_depend_on_the_packets() {
    let model = burst(0.1, 0.75, CONTINUOUS);
    let sparse = losses(model.clone(), 5, 0, 10_000, 20 * MS);
    let dense = losses(model, 5, 0, 200_000, MS);
    let picked: Vec<bool> = dense.into_iter().skip(19).step_by(20).collect();
    assert_eq!(sparse, picked);
}

#[test]
fn a_long_silence_costs_nothing() {
    let mut link = Impairment::new(burst(0.1, 0.75, CONTINUOUS), 5, 0).unwrap();
    for now in [Time::from_millis(1), Time::from_nanos(u64::MAX / 2), Time::NEVER, Time::NEVER] {
        link.offer(now, 200);
    }
    assert_eq!(link.ledger().offered.packets, 4);
}

#[test]
fn the_same_losses_on_every_machine() {
    let text = |model| {
        let lost = losses(model, 1, 7, 64, 20 * MS);
        lost.into_iter().map(|l| if l { 'x' } else { '.' }).collect::<String>()
    };
    assert_eq!(text(lossy(Loss::Bernoulli { p: 0.25 })), BERNOULLI);
    assert_eq!(text(burst(0.25, 0.75, Chain::PerPacket)), PER_PACKET);
    assert_eq!(text(burst(0.25, 0.75, CONTINUOUS)), IN_TIME);
}

const BERNOULLI: &str = "..xx............xx...x....x.x...x.......xxx..x...xxx........x.xx";
const PER_PACKET: &str = "............................x............xxx.xxx.xxxx.......x..x";
const IN_TIME: &str = "........xxxxxxx.....................x....x.xxx..............xxx.";

#[test]
fn a_trace_is_followed_and_starts_again() {
    let trace: Arc<[bool]> = [true, false, false].into();
    assert_eq!(losses(lossy(Loss::Trace(trace)), 0, 0, 5, MS), [true, false, false, true, false]);
}

#[test]
fn certainty_is_certain() {
    assert!(losses(lossy(Loss::Bernoulli { p: 1.0 }), 0, 0, 10_000, MS).iter().all(|&l| l));
    for never in [
        lossy(Loss::None),
        lossy(Loss::Bernoulli { p: 0.0 }),
        burst(0.0, 0.75, Chain::PerPacket),
        burst(0.0, 0.75, CONTINUOUS),
        burst(0.0, 0.0, CONTINUOUS),
    ] {
        assert!(losses(never.clone(), 0, 0, 10_000, MS).iter().all(|&l| !l), "{never:?}");
    }
    // The steepest chain there is: every other packet.
    let alternate = losses(burst(0.5, 0.0, Chain::PerPacket), 0, 0, 1_000, MS);
    assert!(alternate.windows(2).all(|w| w[0] != w[1]));
}

/// 10 Mbit/s: 250 bytes take 200 µs.
fn t10(queue: Queue) -> Impairment {
    let rate = Some(Bitrate::from_bps(10_000_000));
    let model = LinkModel { delay: 10 * MS, rate, queue, ..LinkModel::default() };
    Impairment::new(model, 0, 0).unwrap()
}

#[test]
fn packets_leave_at_the_rate() {
    let mut link = t10(Queue::Packets(10));
    for k in 1..=5 {
        let at = Time::from_micros(10_000 + 200 * k);
        assert_eq!(link.offer(Time::ZERO, 250), PacketFate::Deliver(at));
    }
    // All five have left after 1 ms; an idle transmitter starts at once.
    let late = Time::from_micros(1_500);
    assert_eq!(link.offer(late, 250), PacketFate::Deliver(Time::from_micros(11_700)));
}

#[test]
fn a_full_queue_turns_the_newest_away() {
    let full = PacketFate::Drop(Cause::Queue);
    let delivered = |v| matches!(v, PacketFate::Deliver(_));
    for queue in [Queue::Packets(2), Queue::Bytes(500)] {
        let mut link = t10(queue);
        // One in transmission, two waiting.
        for _ in 0..3 {
            assert!(delivered(link.offer(Time::ZERO, 250)), "{queue:?}");
        }
        assert_eq!(link.offer(Time::ZERO, 250), full, "{queue:?}");
        assert_eq!(link.offer(Time::from_nanos(199_999), 250), full, "{queue:?}");
        // At 200 µs the first has left, the second is in transmission, and one waits.
        let v = link.offer(Time::from_micros(200), 250);
        assert_eq!(v, PacketFate::Deliver(Time::from_micros(10_800)), "{queue:?}");
        assert_eq!(link.offer(Time::from_micros(200), 250), full, "{queue:?}");
        assert_eq!(link.ledger().queue_dropped, Count { packets: 3, bytes: 750 });
    }
    // A byte limit lets a small packet in where a large one does not fit.
    let mut link = t10(Queue::Bytes(300));
    assert!(delivered(link.offer(Time::ZERO, 250)));
    assert!(delivered(link.offer(Time::ZERO, 250)));
    assert_eq!(link.offer(Time::ZERO, 51), full);
    assert!(delivered(link.offer(Time::ZERO, 50)));
    // No buffer: only an idle transmitter takes a packet.
    let mut link = t10(Queue::Packets(0));
    assert!(delivered(link.offer(Time::ZERO, 250)));
    assert_eq!(link.offer(Time::from_micros(199), 250), full);
    assert!(delivered(link.offer(Time::from_micros(200), 250)));
}

#[test]
fn the_queue_comes_before_the_loss() {
    let trace: Arc<[bool]> = [false, true, false].into();
    let model = LinkModel {
        loss: Loss::Trace(trace),
        rate: Some(Bitrate::from_bps(10_000_000)),
        queue: Queue::Packets(1),
        ..LinkModel::default()
    };
    let mut link = Impairment::new(model, 0, 0).unwrap();
    assert!(matches!(link.offer(Time::ZERO, 250), PacketFate::Deliver(_)));
    assert_eq!(link.offer(Time::ZERO, 250), PacketFate::Drop(Cause::Loss));
    // A rejected packet is not on the wire, so the trace does not advance. The lost one used the
    // wire.
    assert_eq!(link.offer(Time::ZERO, 250), PacketFate::Drop(Cause::Queue));
    let third = link.offer(Time::from_micros(200), 250);
    assert_eq!(third, PacketFate::Deliver(Time::from_micros(600)));
}

#[test]
fn jitter_is_uniform_and_leaves_the_losses_alone() {
    let calm = LinkModel { delay: 5 * MS, ..lossy(Loss::Bernoulli { p: 0.1 }) };
    let shaky = LinkModel { jitter: 10 * MS, ..calm.clone() };
    assert_eq!(losses(calm, 1, 0, 10_000, MS), losses(shaky.clone(), 1, 0, 10_000, MS));

    // Packets spaced wider than the jitter: none is delayed by its predecessor.
    let mut link = Impairment::new(shaky, 1, 0).unwrap();
    let (mut sum, mut n, mut least, mut most) = (0.0, 0.0, f64::MAX, 0.0_f64);
    for k in 0..50_000 {
        let now = Time::from_millis(20 * k);
        if let PacketFate::Deliver(at) = link.offer(now, 200) {
            let extra = (at.since(now) - 5 * MS).as_secs_f64() * 1e3;
            (sum, n, least, most) = (sum + extra, n + 1.0, least.min(extra), most.max(extra));
        }
    }
    close("mean jitter, ms", sum / n, 5.0, 10.0 / (12.0 * n).sqrt());
    assert!(least < 0.01 && most > 9.99 && most <= 10.0, "{least} to {most}");
}

#[test]
fn a_change_holds_from_then_on() {
    let ten = LinkModel { delay: 10 * MS, ..LinkModel::default() };
    let cut = LinkModel { loss: Loss::EVERYTHING, ..ten.clone() };
    let mut link = Impairment::new(ten.clone(), 1, 0).unwrap();
    let at = Time::from_millis;
    assert_eq!(link.offer(at(0), 100), PacketFate::Deliver(at(10)));
    link.change(cut.clone()).unwrap();
    assert!((0..100).all(|t| link.offer(at(t), 100) == PacketFate::Drop(Cause::Loss)));
    // The new delay is shorter, but nothing overtakes the packets in flight.
    link.change(LinkModel { delay: 30 * MS, ..LinkModel::default() }).unwrap();
    assert_eq!(link.offer(at(100), 100), PacketFate::Deliver(at(130)));
    link.change(ten).unwrap();
    assert_eq!(link.offer(at(101), 100), PacketFate::Deliver(at(130)));
    assert_eq!(link.offer(at(121), 100), PacketFate::Deliver(at(131)));
    let l = link.ledger();
    assert_eq!((l.offered.packets, l.lost.packets, l.delivered.packets), (104, 100, 4));
    // An invalid model changes nothing.
    let bad = lossy(Loss::Bernoulli { p: 2.0 });
    assert_eq!(link.change(bad), Err(InvalidModel::Loss(2.0)));
    assert_eq!(link.model().delay, 10 * MS);
}

#[test]
fn what_waits_is_sent_before_a_new_rate_holds() {
    let mut link = t10(Queue::Packets(2));
    let before = link.model().clone();
    let sent: Vec<_> = (0..3).map(|_| link.offer(Time::ZERO, 250)).collect();
    assert_eq!(sent[2], PacketFate::Deliver(Time::from_micros(10_600)));
    let rate = Some(Bitrate::from_bps(100_000_000));
    link.change(LinkModel { rate, ..before }).unwrap();
    // Two packets still wait: there is no room until one is sent.
    assert_eq!(link.offer(Time::ZERO, 250), PacketFate::Drop(Cause::Queue));
    let now = Time::from_micros(200);
    assert_eq!(link.offer(now, 250), PacketFate::Deliver(Time::from_micros(10_620)));
}

/// A link that is cut and restored keeps its loss process but draws other losses; runs repeat.
#[test]
fn a_link_that_is_mended_has_other_luck() {
    for chain in [Chain::PerPacket, CONTINUOUS] {
        let model = burst(0.05, 0.75, chain);
        let run = || {
            let mut link = Impairment::new(model.clone(), 3, 0).unwrap();
            let mut now = Time::ZERO;
            let mut rounds = [(); 2].map(|()| {
                let mut lose = |link: &mut Impairment| {
                    now += 20 * MS;
                    link.offer(now, 200) == PacketFate::Drop(Cause::Loss)
                };
                let lost: Vec<bool> = (0..200_000).map(|_| lose(&mut link)).collect();
                link.change(lossy(Loss::EVERYTHING)).unwrap();
                assert!(lose(&mut link));
                link.change(model.clone()).unwrap();
                lost
            });
            rounds.iter_mut().for_each(|lost| check_chain("mended", lost, 0.05, 0.75));
            rounds
        };
        let [first, second] = run();
        assert_ne!(first, second);
        assert_eq!(run(), [first, second]);
    }
}

/// A change of only the delay leaves the losses as they were.
#[test]
fn a_loss_process_that_stays_goes_on() {
    let model = burst(0.1, 0.5, Chain::PerPacket);
    let whole = losses(model.clone(), 5, 0, 1_000, 20 * MS);
    let mut link = Impairment::new(model.clone(), 5, 0).unwrap();
    for (n, lost) in whole.into_iter().enumerate() {
        link.change(LinkModel { delay: n as u32 * MS, ..model.clone() }).unwrap();
        let verdict = link.offer(Time::from_millis(20 * (n as u64 + 1)), 200);
        assert_eq!(verdict == PacketFate::Drop(Cause::Loss), lost, "packet {n}");
    }
}

fn red(red: Red) -> LinkModel {
    LinkModel { queue: Queue::Red(red), ..LinkModel::default() }
}

#[test]
fn bad_models_are_refused_by_name_and_value() {
    let bernoulli = |p| lossy(Loss::Bernoulli { p });
    let per_packet = |p, b| burst(p, b, Chain::PerPacket);
    for (model, error) in [
        (bernoulli(1.5), InvalidModel::Loss(1.5)),
        (bernoulli(-0.1), InvalidModel::Loss(-0.1)),
        (per_packet(2.0, 0.5), InvalidModel::Loss(2.0)),
        (per_packet(0.1, 1.0), InvalidModel::Burst(1.0)),
        (per_packet(0.1, -0.5), InvalidModel::Burst(-0.5)),
        (per_packet(0.6, 0.0), InvalidModel::LossTooHigh { p: 0.6, b: 0.0 }),
        (per_packet(1.0, 0.5), InvalidModel::LossTooHigh { p: 1.0, b: 0.5 }),
        (burst(0.05, 0.0, CONTINUOUS), InvalidModel::BurstBelowLoss { p: 0.05, b: 0.0 }),
        (
            burst(0.05, 0.5, Chain::Continuous { spacing: Duration::ZERO }),
            InvalidModel::Spacing(Duration::ZERO),
        ),
        (lossy(Loss::Trace([].into())), InvalidModel::EmptyTrace),
        (
            LinkModel { rate: Some(Bitrate::from_bps(0)), ..LinkModel::default() },
            InvalidModel::Rate,
        ),
        (
            red(Red { min: 15.0, max: 5.0, ..Red::default() }),
            InvalidModel::RedThresholds { min: 15.0, max: 5.0 },
        ),
        (
            red(Red { max: f64::INFINITY, ..Red::default() }),
            InvalidModel::RedThresholds { min: 5.0, max: f64::INFINITY },
        ),
        (red(Red { max_p: 1.1, ..Red::default() }), InvalidModel::RedShare(1.1)),
        (red(Red { weight: 0.0, ..Red::default() }), InvalidModel::RedWeight(0.0)),
        (red(Red { packet: 0, ..Red::default() }), InvalidModel::RedPacket),
    ] {
        assert_eq!(Impairment::new(model, 0, 0).err(), Some(error));
    }
    let (nan, fine) = (f64::NAN, Red::default());
    for bad in [
        Red { min: nan, ..fine },
        Red { max: nan, ..fine },
        Red { max_p: nan, ..fine },
        Red { weight: nan, ..fine },
    ] {
        assert!(red(bad).validate().is_err(), "{bad:?}");
    }
    assert!(matches!(bernoulli(f64::NAN).validate(), Err(InvalidModel::Loss(_))));
    assert!(matches!(per_packet(0.1, f64::NAN).validate(), Err(InvalidModel::Burst(_))));
    assert_eq!(
        InvalidModel::LossTooHigh { p: 0.6, b: 0.0 }.to_string(),
        "loss 0.6 is more than burst 0 allows: it must be at most 0.5 (1 / (2 - burst))"
    );
}

fn any_loss() -> impl Strategy<Value = Loss> {
    let p = 0.0..=1.0;
    prop_oneof![
        Just(Loss::None),
        p.clone().prop_map(|p| Loss::Bernoulli { p }),
        (p, 0.0..0.99, 1u64..50).prop_map(|(u, b, ms): (f64, f64, u64)| Loss::Burst {
            // Scaled into the range that both chains allow.
            p: u * b.min(1.0 / (2.0 - b)),
            b,
            chain: if ms % 2 == 0 {
                Chain::PerPacket
            } else {
                Chain::Continuous { spacing: Duration::from_millis(ms) }
            },
        }),
        prop::collection::vec(any::<bool>(), 1..20).prop_map(|t| Loss::Trace(t.into())),
    ]
}

fn any_queue() -> impl Strategy<Value = Queue> {
    let red = (
        any::<bool>(),
        0usize..30,
        0.1f64..10.0,
        0.1f64..20.0,
        (0.0..=1.0, 0.001f64..=1.0),
        any::<[bool; 2]>(),
    );
    prop_oneof![
        (0usize..30).prop_map(Queue::Packets),
        (0usize..3_000).prop_map(Queue::Bytes),
        red.prop_map(|(bytes, limit, min, above, (max_p, weight), [gentle, ecn])| {
            let (unit, scale) = if bytes { (Unit::Bytes, 100) } else { (Unit::Packets, 1) };
            Queue::Red(Red {
                unit,
                limit: limit * scale,
                min: min * scale as f64,
                max: (min + above) * scale as f64,
                max_p,
                weight,
                gentle,
                ecn,
                ..Red::default()
            })
        }),
    ]
}

fn any_ecn() -> impl Strategy<Value = Ecn> {
    (0u8..4).prop_map(Ecn::of_tos)
}

prop_compose! {
    fn any_model()(
        loss in any_loss(),
        delay in 0u32..50,
        jitter in 0u32..50,
        rate in prop::option::of(1_000u64..10_000_000),
        queue in any_queue(),
    ) -> LinkModel {
        LinkModel { delay: delay * MS, jitter: jitter * MS, loss, rate: rate.map(Bitrate::from_bps), queue }
    }
}

proptest! {
    #[test]
    fn the_ledger_adds_up_order_holds_and_runs_repeat(
        model in any_model(),
        seed in any::<u64>(),
        stream in any::<u64>(),
        packets in prop::collection::vec((0u64..30_000, 1usize..1_500, any_ecn()), 1..200),
    ) {
        let mut link = Impairment::new(model.clone(), seed, stream).unwrap();
        let mut twin = Impairment::new(model.clone(), seed, stream).unwrap();
        let (mut now, mut last, mut expected) = (Time::ZERO, Time::ZERO, Ledger::default());
        let may_mark = matches!(model.queue, Queue::Red(Red { ecn: true, .. }));
        for (gap, bytes, sent) in packets {
            now += Duration::from_micros(gap);
            let (mut ecn, mut same) = (sent, sent);
            let verdict = link.offer_ecn(now, bytes, &mut ecn);
            prop_assert_eq!(twin.offer_ecn(now, bytes, &mut same), verdict);
            prop_assert_eq!(ecn, same);
            expected.offered.add(bytes);
            match verdict {
                PacketFate::Deliver(at) => {
                    prop_assert!(at >= last && at >= now + model.delay);
                    last = at;
                    expected.delivered.add(bytes);
                }
                PacketFate::Drop(Cause::Loss) => expected.lost.add(bytes),
                PacketFate::Drop(Cause::Queue) => expected.queue_dropped.add(bytes),
            }
            if ecn != sent {
                prop_assert!(may_mark && ecn == Ecn::Marked && sent != Ecn::NotCapable);
                if verdict != PacketFate::Drop(Cause::Queue) {
                    expected.marked.add(bytes);
                }
            }
        }
        let l = link.ledger();
        prop_assert_eq!(Ledger { early_dropped: Count::default(), ..l }, expected);
        prop_assert_eq!(l.offered.packets, l.delivered.packets + l.lost.packets + l.queue_dropped.packets);
        prop_assert_eq!(l.offered.bytes, l.delivered.bytes + l.lost.bytes + l.queue_dropped.bytes);
        let queued = l.early_dropped.packets + l.forced_dropped().packets;
        prop_assert_eq!(l.queue_dropped.packets, queued);
        if !matches!(model.queue, Queue::Red(_)) {
            prop_assert_eq!(l.early_dropped, Count::default());
        }
    }

    /// The loss of the n-th packet on the wire does not depend on the queue.
    #[test]
    fn a_queue_does_not_change_the_losses(queue in any_queue(), seed in any::<u64>()) {
        let on_the_wire = |queue| {
            let model = LinkModel {
                rate: Some(Bitrate::from_bps(1_000_000)),
                queue,
                ..burst(0.2, 0.5, Chain::PerPacket)
            };
            let mut link = Impairment::new(model, seed, 0).unwrap();
            // 125 bytes take 1 ms, so this offers one and a half times the rate.
            let verdicts = (0..300).map(move |k| link.offer(Time::from_micros(667 * k), 125));
            verdicts.filter(|v| *v != PacketFate::Drop(Cause::Queue)).map(|v| v == PacketFate::Drop(Cause::Loss)).collect::<Vec<_>>()
        };
        let (with, without) = (on_the_wire(queue), on_the_wire(Queue::Packets(usize::MAX)));
        prop_assert_eq!(&with[..], &without[..with.len()]);
    }
}
