use super::*;
use crate::session::flow::{Dedup, LIFE};
use proptest::prelude::*;
use rand::RngExt;
use std::collections::BTreeMap;

const ENDS: Ends = Ends { port: 5_004, peer: NodeId(5), peer_port: 6_000 };

/// A destination behind a session, as in a node: copies are dropped before it.
struct Destination {
    dedup: Dedup,
    flows: Flows,
    /// Numbers in the order of their first arrival, and whether each was late.
    heard: BTreeMap<u64, bool>,
}

impl Destination {
    fn new() -> Destination {
        Destination {
            dedup: Dedup::default(),
            flows: Flows::new(MAX_FLOWS, 1),
            heard: BTreeMap::new(),
        }
    }

    fn take(&mut self, micros: u64, number: u64, left_ms: u64) {
        let now = Time::from_micros(micros);
        self.heard.entry(number).or_insert(left_ms == 0);
        if self.dedup.is_new(now, now + Duration::from_millis(left_ms), number as u16, LIFE) {
            self.flows.received(now, ENDS, &packet(number as u16, left_ms));
        }
    }

    fn flow(&self, micros: u64) -> Flow {
        let (flows, _) = self.flows.page(Time::from_micros(micros), 0, MAX_FLOWS);
        flows.into_iter().find(|flow| flow.ends == ENDS).expect("packets came")
    }

    /// Packets, expected, missed, bursts and late, found by checking every number.
    fn by_force(&self) -> (u64, u64, i64, i64, u64) {
        let (first, last) =
            (*self.heard.keys().next().unwrap(), *self.heard.keys().last().unwrap());
        let in_time = |n: u64| self.heard.get(&n) == Some(&false);
        let missed = (first..=last).filter(|n| !in_time(*n)).count();
        let begins = |n: &u64| !in_time(*n) && (*n == first || in_time(*n - 1));
        let bursts = (first..=last).filter(begins).count();
        let late = self.heard.values().filter(|late| **late).count();
        let packets = self.heard.len() as u64;
        (packets, last - first + 1, missed as i64, bursts as i64, late as u64)
    }
}

fn packet(number: u16, left_ms: u64) -> Arrival {
    let remaining = Duration::from_millis(left_ms);
    Arrival { service: Service::RealTime, number, recovered: false, remaining, bytes: 172 }
}

fn summary(c: Counts) -> (u64, u64, i64, i64, u64) {
    (c.packets, c.expected, c.missed, c.bursts, c.late)
}

proptest! {
    /// With loss, also in long runs, reordering, copies and late packets, from any number on.
    #[test]
    fn what_is_counted_is_what_one_counts(
        start in any::<u16>(),
        fates in prop::collection::vec(
            // No packet arrives more than 255 ms after it was sent, the longest time to live.
            (prop_oneof![6 => Just(0usize), 1 => 1usize..100], 0u64..39, 0u64..250, any::<u8>()),
            1..500,
        ),
    ) {
        let mut arrivals = Vec::new();
        let (mut number, mut sent) = (1 << 16 | u64::from(start), 0);
        for (lost, shift, copy, dice) in fates {
            (number, sent) = (number + 1 + lost as u64, sent + 1 + lost as u64);
            let shift = if dice % 3 == 0 { shift } else { 0 };
            let late = if dice % 7 == 0 { 11 } else { 0 };
            let mut arrives = |ms: u64| {
                arrivals.push((ms * 1_000, number, (sent * 5 + 50).saturating_sub(ms)));
            };
            arrives((sent + shift + late) * 5);
            if dice % 5 == 0 {
                arrives(sent * 5 + copy);
            }
        }
        arrivals.sort_unstable();
        let mut at = Destination::new();
        for &(micros, number, left) in &arrivals {
            at.take(micros, number, left);
        }
        let flow = at.flow(arrivals.last().unwrap().0);
        prop_assert_eq!(summary(flow.call), at.by_force());
        prop_assert_eq!(flow.received.unwrap().restarts, 0);
        let (packets, expected, missed, _, late) = at.by_force();
        prop_assert_eq!(flow.call.lost(), missed as u64 - late);
        prop_assert_eq!(flow.call.lost() + packets, expected);
    }

    /// For any sequence of numbers: no panic, and no more than one flow.
    #[test]
    fn any_numbers_at_any_time(
        packets in prop::collection::vec((any::<u16>(), 0u64..40_000_000, 0u64..256), 1..200),
    ) {
        let mut flows = Flows::new(4, 7);
        let mut micros = 0;
        for (number, gap, left) in packets {
            micros += gap;
            flows.received(Time::from_micros(micros), ENDS, &packet(number, left));
        }
        let (flows, _) = flows.page(Time::from_micros(micros), 0, 9);
        prop_assert_eq!(flows.len(), 1);
        let call = flows[0].call;
        prop_assert!(call.missed >= 0 && call.bursts >= 0 && call.missed >= call.bursts);
    }
}

/// A trunk's numbers wrap every 6.6 s; outages of any length up to half a minute are counted in
/// full.
#[test]
fn a_fast_flow_wraps_and_is_counted_on() {
    let mut at = Destination::new();
    let mut rng = trunkline_base::rng(1, 1);
    let (mut lost, mut sent) = (0u64, 0);
    let outages = [30_000..70_000, 100_000..170_000, 210_000..500_000];
    for n in 0..600_000u64 {
        if outages.iter().any(|o| o.contains(&n)) || rng.random_bool(0.02) {
            lost += 1;
        } else {
            at.take(n * 100, n, 80);
        }
        sent = n * 100;
    }
    let flow = at.flow(sent);
    // All losses except those before the first packet and after the last.
    assert!(flow.call.lost().abs_diff(lost) <= 5, "{} of {lost}", flow.call.lost());
    assert_eq!(summary(flow.call), at.by_force());
    assert_eq!((flow.over, flow.received.unwrap().restarts), (false, 0));
    // The outage counts at its end, ten seconds ago.
    let share = flow.recent.missed as f64 / flow.recent.expected as f64;
    assert!(flow.recent.expected > 380_000 && (0.7..0.8).contains(&share), "{share}");
}

#[test]
fn a_call_is_counted_through_an_outage_and_a_pause() {
    let mut at = Destination::new();
    for n in (0..100).chain(600..700) {
        at.take(n * 20_000, n, 80);
    }
    let flow = at.flow(700 * 20_000);
    assert_eq!(summary(flow.call), (200, 700, 500, 1, 0));
    assert_eq!((flow.recent.missed, flow.recent.packets), (500, 100), "from 4 s on");
    // Twenty seconds of silence, then the next number.
    for n in 700..750 {
        at.take(20_000_000 + n * 20_000, n, 80);
    }
    let flow = at.flow(20_000_000 + 750 * 20_000);
    assert_eq!(summary(flow.call), (250, 750, 500, 1, 0));
    assert_eq!((flow.recent.packets, flow.recent.missed), (50, 0));
    assert!(flow.call.jitter() < Some(Duration::from_millis(1)), "{:?}", flow.call.jitter());
    // It ends after half a minute, and is removed after two minutes.
    let silent = |s: u64| at.flows.page(Time::from_millis(34_980 + s * 1_000), 0, 1).0;
    assert_eq!(silent(29).first().map(|flow| flow.over), Some(false));
    assert_eq!(silent(31).first().map(|flow| flow.over), Some(true));
    assert_eq!(silent(31)[0].recent, Counts::default());
    assert_eq!(silent(121).len(), 0);
    // Later packets belong to another call.
    at.take(200_000_000, 900, 80);
    assert_eq!(summary(at.flow(200_000_000).call), (1, 1, 0, 0, 0));
}

/// The numbers of a new flow, or of one that the origin forgot meanwhile, continue elsewhere.
#[test]
fn a_sender_that_numbers_anew_has_lost_nothing() {
    let mut flows = Flows::new(4, 7);
    let numbers = (0..50u16).chain(9_000..9_050).chain(8_000..8_050).chain(60_000..60_050);
    for (number, n) in numbers.zip(0u64..) {
        flows.received(Time::from_millis(n * 20), ENDS, &packet(number, 80));
    }
    let (flows, _) = flows.page(Time::from_millis(4_000), 0, 1);
    assert_eq!(summary(flows[0].call), (200, 200, 0, 0, 0));
    assert_eq!(flows[0].received.unwrap().restarts, 3);
}

/// Compares RFC 3550's jitter with the sender's timestamps to this one without them.
#[test]
fn jitter_is_that_of_an_even_sender() {
    for (most, spread) in [(0, 0), (20, 8_000), (20, 30_000), (1, 400)] {
        let mut at = Destination::new();
        let mut rng = trunkline_base::rng(2, 2);
        let every = most.max(1) * 1_000;
        let mut arrivals: Vec<(u64, u64)> =
            (0..6_000).map(|n| (n * every + 30_000 + rng.random_range(0..=spread), n)).collect();
        arrivals.sort_unstable();
        let (mut sum, mut of) = (0, 0u64);
        for pair in arrivals.windows(2) {
            let [(before, n), (after, m)] = [pair[0], pair[1]];
            sum += ((after - before) as i64).abs_diff((m as i64 - n as i64) * every as i64);
            of += 1;
        }
        arrivals.iter().for_each(|(micros, n)| at.take(*micros, *n, 80));
        let rfc = sum as f64 / of as f64;
        let jitter = at.flow(arrivals[5_999].0).call.jitter().unwrap().as_nanos() as f64 / 1e3;
        assert!((jitter - rfc).abs() <= rfc * 0.03 + 1.0, "{jitter} µs for {rfc}");
    }
}

#[test]
fn the_delay_is_the_deadline_less_what_is_left() {
    let mut flows = Flows::new(4, 7);
    let way = Duration::from_millis(30);
    // A deadline of 100 ms; the fastest packets take 30 ms, some 12 ms more.
    for (n, left) in [60u64, 70, 58, 70, 58, 70].into_iter().zip(0u64..) {
        let (left, n) = (n, left);
        if flows.received(Time::from_millis(n * 20), ENDS, &packet(n as u16, left)) {
            flows.set_way(ENDS, Some(way));
        }
    }
    let (shown, _) = flows.page(Time::from_millis(200), 0, 1);
    let received = shown[0].received.unwrap();
    assert_eq!(received.deadline(), Some(Duration::from_millis(100)));
    let mean = (40 + 30 + 42 + 30 + 42 + 30) as f64 / 6.0;
    let delay = received.delay(&shown[0].call).unwrap().as_secs_f64() * 1e3;
    assert!((delay - mean).abs() < 0.01, "{delay} for {mean}");
    // There is no return path when a packet has more time left than any before.
    if flows.received(Time::from_millis(220), ENDS, &packet(6, 71)) {
        flows.set_way(ENDS, None);
    }
    let (shown, _) = flows.page(Time::from_millis(220), 0, 1);
    assert_eq!(shown[0].received.unwrap().delay(&shown[0].call), None);
}

/// The size that the documentation states.
#[test]
fn a_flow_takes_about_as_much_memory_as_is_said() {
    let bytes = size_of::<Receiving>() + 24;
    assert!((1_100..=1_300).contains(&bytes), "{bytes}");
}

/// A member that makes up 20,000 flows, forty times over, each packet in a different flow, takes no
/// more memory than the table has, and displaces no other flow that is still active.
#[test]
fn made_up_flows_displace_each_other() {
    let mut flows = Flows::new(MAX_FLOWS, 3);
    let mut made_up = 0u32;
    for n in 0..1_000u64 {
        let now = Time::from_millis(n * 20);
        flows.received(now, ENDS, &packet(n as u16, 80));
        flows.sent(now, ENDS, Service::RealTime, 172);
        for _ in 0..800 {
            let ends = Ends { port: 5_004, peer: NodeId(9), peer_port: (made_up % 20_000) as u16 };
            flows.received(now, ends, &packet(made_up as u16, 80));
            made_up += 1;
        }
    }
    assert_eq!((flows.received.len(), flows.sent.len()), (MAX_FLOWS, 1));
    assert!(flows.displaced() > 700_000, "{}", flows.displaced());
    let now = Time::from_millis(20_000);
    let (mut shown, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page;
        (page, next) = flows.page(now, from, 256);
        assert!(page.len() <= 256);
        shown.extend(page);
    }
    assert_eq!(shown.len(), MAX_FLOWS + 1);
    let ours: Vec<_> = shown.iter().filter(|flow| flow.ends == ENDS).collect();
    assert_eq!(ours.len(), 2);
    for flow in ours {
        assert_eq!((flow.call.packets, flow.call.missed), (1_000, 0), "{flow:?}");
    }
}
