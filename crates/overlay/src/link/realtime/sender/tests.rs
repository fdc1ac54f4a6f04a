use super::*;
use crate::link::realtime::receiver::{Gap, Requests};
use crate::wire::{DATA_HEADER, FlowHeader, Frame, Frames, Metric, NodeId, Service};
use rand::RngExt;

fn enqueue(s: &mut Sender, now: Time, payload: &[u8], deadline_ms: u64) {
    enqueue_of(s, NodeId(1), now, payload, deadline_ms);
}

fn enqueue_of(s: &mut Sender, source: NodeId, now: Time, payload: &[u8], deadline_ms: u64) {
    offer(s, source, now, payload, deadline_ms).unwrap();
}

fn offer(
    s: &mut Sender,
    source: NodeId,
    now: Time,
    payload: &[u8],
    deadline_ms: u64,
) -> Result<(), DropReason> {
    let flow = FlowHeader {
        service: Service::RealTime,
        metric: Metric::default(),
        source,
        destination: NodeId(2),
        source_port: 3,
        destination_port: 4,
        flow_seq: 0,
    };
    let deadline = Time::from_millis(deadline_ms);
    let packet = Packet { hop_limit: 5, ..Packet::new(flow, payload, deadline) };
    s.enqueue(now, &packet, deadline)
}

fn send(s: &mut Sender, now_ms: u64, drops: &mut Drops) -> Option<(u16, bool, u8, u8)> {
    let now = Time::from_millis(now_ms);
    let mut out = vec![0; s.head(now, now_ms, Duration::from_millis(10), drops)?];
    let repeat = s.pop(now, now_ms, &mut out);
    let Some(Ok(Frame::Data(h, payload))) = Frames::new(&out).next() else {
        panic!("a data frame of {DATA_HEADER} bytes and a payload")
    };
    assert_eq!((h.hop.recovered, h.hop.hop_limit), (repeat, 5));
    Some((h.hop.link_seq, repeat, h.hop.remaining_ms, payload[0]))
}

#[test]
fn repeats_once_asked_and_only_while_in_time() {
    let mut s = Sender::new(&Config::default(), 1);
    let mut drops = Drops::default();
    for k in 0..3 {
        enqueue(&mut s, Time::from_millis(0), &[k], 100);
    }
    for k in 0..3 {
        assert_eq!(send(&mut s, 2, &mut drops), Some((u16::from(k), false, 98, k)));
    }
    let ask = NackRange { first: 1, count: 1 };
    s.retransmit(
        Time::from_millis(30),
        [ask].into_iter(),
        Duration::from_millis(20),
        &mut 9,
        &mut drops,
    );
    assert_eq!(send(&mut s, 30, &mut drops), Some((1, true, 70, 1)));
    assert_eq!(send(&mut s, 30, &mut drops), None);
    // After ninety milliseconds, ten more of delay are too many.
    s.retransmit(
        Time::from_millis(90),
        [ask].into_iter(),
        Duration::from_millis(20),
        &mut 9,
        &mut drops,
    );
    assert_eq!(drops.get(DropReason::RetransmitLate), 1);
    // A number that was never sent.
    let wild = NackRange { first: 40_000, count: 2 };
    s.retransmit(Time::from_millis(30), [wild].into_iter(), Duration::ZERO, &mut 9, &mut drops);
    assert_eq!(drops.get(DropReason::RetransmitUnknown), 2);
}

#[test]
fn earlier_deadlines_overtake() {
    let mut s = Sender::new(&Config::default(), 1);
    let mut drops = Drops::default();
    enqueue(&mut s, Time::ZERO, &[1], 200);
    enqueue(&mut s, Time::ZERO, &[2], 50);
    enqueue(&mut s, Time::ZERO, &[3], 200);
    let order: Vec<_> = std::iter::from_fn(|| send(&mut s, 0, &mut drops)).map(|x| x.3).collect();
    assert_eq!(order, [2, 1, 3]);
}

#[test]
fn a_greedy_neighbour_gets_its_share() {
    let config = Config { retransmit_ratio: 0.1, retransmit_burst: 5, ..Config::default() };
    let mut s = Sender::new(&config, 1);
    let mut drops = Drops::default();
    let mut retransmissions = 0;
    for _ in 0..1_000 {
        enqueue(&mut s, Time::ZERO, &[0], 100);
        let (seq, ..) = send(&mut s, 0, &mut drops).unwrap();
        let ask = NackRange { first: seq, count: 1 };
        s.retransmit(Time::ZERO, [ask].into_iter(), Duration::ZERO, &mut 9, &mut drops);
        while let Some(sent) = send(&mut s, 0, &mut drops) {
            retransmissions += u32::from(sent.1);
        }
    }
    // The burst and a tenth of the originals, except for the first original, which finds the
    // bucket full: 5 + 99.9.
    assert_eq!(retransmissions, 104);
    assert_eq!(drops.get(DropReason::RetransmitBudget), 1_000 - 104);
}

#[test]
fn what_waits_for_its_turn_is_not_queued_again() {
    let mut s = Sender::new(&Config::default(), 1);
    let mut drops = Drops::default();
    enqueue(&mut s, Time::ZERO, &[0], 200);
    assert!(send(&mut s, 0, &mut drops).is_some());
    let rtt = Duration::from_millis(5);
    let mut ask = |s: &mut Sender, ms| {
        let ask = [NackRange { first: 0, count: 1 }].into_iter();
        s.retransmit(Time::from_millis(ms), ask, rtt, &mut 9, &mut drops);
        s.waiting()
    };
    assert_eq!([10, 20, 30].map(|ms| ask(&mut s, ms)), [1, 1, 1]);
    assert_eq!(send(&mut s, 40, &mut Drops::default()), Some((0, true, 160, 0)));
    // A round trip after it has left.
    assert_eq!([42, 46].map(|ms| ask(&mut s, ms)), [0, 1]);
}

#[test]
fn a_source_has_what_its_own_packets_earn() {
    let config = Config { retransmit_ratio: 0.1, retransmit_burst: 20, ..Config::default() };
    let mut s = Sender::new(&config, 1);
    let mut drops = Drops::default();
    let mut retransmissions = [0; 2];
    for k in 0..2_000u32 {
        // Each packet of the first source is lost, and one in twenty of the second.
        let source = k % 2;
        enqueue_of(&mut s, NodeId(1 + source), Time::ZERO, &[0], 100);
        let (seq, ..) = send(&mut s, 0, &mut drops).unwrap();
        if source == 0 || k % 40 == 1 {
            let ask = [NackRange { first: seq, count: 1 }].into_iter();
            s.retransmit(Time::ZERO, ask, Duration::ZERO, &mut 9, &mut drops);
        }
        while send(&mut s, 0, &mut drops).is_some() {
            retransmissions[source as usize] += 1;
        }
    }
    assert_eq!(retransmissions[1], 50);
    let sum: u32 = retransmissions.iter().sum();
    assert!((215..=225).contains(&sum), "the burst and a tenth: {retransmissions:?}");
}

#[test]
fn what_waits_too_long_is_dropped_before_it_gets_a_number() {
    let mut s = Sender::new(&Config::default(), 1);
    let mut drops = Drops::default();
    enqueue(&mut s, Time::ZERO, &[1], 100);
    enqueue(&mut s, Time::from_millis(40), &[2], 140);
    assert_eq!(send(&mut s, 60, &mut drops).map(|x| (x.0, x.3)), Some((0, 2)));
    assert_eq!(drops.get(DropReason::QueueDelay), 1);
}

/// A thousand sources send several times their shares, in random order; one sends nearly its own.
#[test]
fn a_thousand_sources_take_no_turns_of_one_that_sends_its_share() {
    const SOURCES: u64 = 1_000;
    for times in [2, 8] {
        let mut s = Sender::new(&Config::default(), 1);
        let (mut drops, mut rng) = (Drops::default(), trunkline_base::rng(1, 0));
        let (mut offered, mut sent, mut of_others) = (0, 0, vec![0u32; SOURCES as usize]);
        // One packet leaves every 25 µs.
        for step in 0..120_000u64 {
            let now = Time::from_nanos(step * 25_000);
            let deadline = now.as_nanos() / 1_000_000 + 100;
            for _ in 0..times {
                let id = rng.random_range(0..SOURCES) as u32;
                let packet = [&id.to_be_bytes()[..], &[0; 172]].concat();
                _ = offer(&mut s, NodeId(1_000 + id), now, &packet, deadline);
            }
            // The fair order is in use after a tenth of a second.
            let is_fair = step > 4_000;
            if step % 1_100 == 0 {
                offered += u32::from(is_fair);
                let packet = [&[0xff; 4][..], &[0; 172]].concat();
                _ = offer(&mut s, NodeId(1), now, &packet, deadline);
            }
            let Some(len) = s.head(now, step, Duration::from_millis(10), &mut drops) else {
                continue;
            };
            let mut out = vec![0; len];
            s.pop(now, step, &mut out);
            let Some(Ok(Frame::Data(h, payload))) = Frames::new(&out).next() else { continue };
            match h.flow.source {
                NodeId(1) => sent += u32::from(is_fair),
                _ => of_others[usize::from(payload[2]) << 8 | usize::from(payload[3])] += 1,
            }
        }
        let (least, most) = (of_others.iter().min().unwrap(), of_others.iter().max().unwrap());
        assert!(sent + 1 >= offered, "{times}: {sent} of {offered}; others {least} to {most}");
    }
}

/// A 16-bit number identifies a packet as long as its original is at most this many envelopes
/// back.
#[test]
fn what_is_too_many_envelopes_back_is_not_repeated() {
    let mut drops = Drops::default();
    for (later, retransmitted) in [(SeqTracker::REACH, true), (SeqTracker::REACH + 1, false)] {
        let mut s = Sender::new(&Config::default(), 1);
        enqueue(&mut s, Time::ZERO, &[1], 255);
        let mut out = [0; DATA_HEADER + 1];
        assert_eq!(s.head(Time::ZERO, 7, Duration::ZERO, &mut drops), Some(out.len()));
        s.pop(Time::ZERO, 7, &mut out);
        let ask = [NackRange { first: 0, count: 1 }].into_iter();
        s.retransmit(Time::ZERO, ask, Duration::ZERO, &mut 9, &mut drops);
        let head = s.head(Time::ZERO, 7 + later, Duration::ZERO, &mut drops);
        assert_eq!(head.is_some(), retransmitted);
    }
    assert_eq!(drops.get(DropReason::RetransmitUnknown), 1);
}

/// 70,000 packets in a round trip: the requested packet has left the ring, and its number
/// belongs to another.
#[test]
fn a_request_for_what_has_left_the_ring_is_not_taken_for_another() {
    let (mut s, mut drops) = (Sender::new(&Config::default(), 1), Drops::default());
    let rtt = Duration::from_millis(140);
    let at = |k: u64| Time::from_nanos(2_000 * k);
    for k in 0..70_000 {
        enqueue(&mut s, at(k), &[0], 500);
        let mut out = [0; DATA_HEADER + 1];
        s.head(at(k), k, rtt / 2, &mut drops).unwrap();
        s.pop(at(k), k, &mut out);
    }
    // The first was 5; the packet 65,536 after it is still in the ring.
    let ask = [NackRange { first: 5, count: 3 }].into_iter();
    s.retransmit(at(70_000), ask, rtt, &mut 9, &mut drops);
    assert_eq!(s.head(at(70_000), 70_000, rtt / 2, &mut drops), None);
    assert_eq!(drops.get(DropReason::RetransmitUnknown), 1);
}

/// Answers each request with a fixed answer.
#[derive(Debug)]
struct Fixed(Option<Answer>);

impl Policy for Fixed {
    fn missing(&mut self, _: Gap, _: &mut Requests) {}

    fn answer(&mut self, _: &Request) -> Option<Answer> {
        self.0
    }
}

#[test]
fn a_policy_chooses_the_answer_and_the_budget_bounds_it() {
    let rtt = Duration::from_millis(20);
    let within = Duration::from_secs(1);
    for (answer, losses, sent) in [
        (None, 1, vec![]),
        (Some(Answer::default()), 1, vec![10]),
        // One loss earns too little to pay for a copy.
        (Some(Answer { copies: 9, within }), 1, vec![10]),
        // Spread over the 80 ms in which an answer is useful, not over a second.
        (Some(Answer { copies: 9, within }), 80, vec![10, 30, 50, 70]),
        (Some(Answer { copies: 1, within: Duration::ZERO }), 40, vec![10, 10]),
    ] {
        let mut s = Sender::new(&Config::default(), 1);
        s.policy = Box::new(Fixed(answer));
        let mut drops = Drops::default();
        enqueue(&mut s, Time::ZERO, &[1], 100);
        assert!(send(&mut s, 0, &mut drops).is_some());
        s.copy_budget.lost(losses, f64::from(losses));
        let ask = [NackRange { first: 0, count: 1 }].into_iter();
        s.retransmit(Time::from_millis(10), ask, rtt, &mut 9, &mut drops);
        let mut retransmissions = Vec::new();
        for ms in 10..100 {
            s.handle_timeout(Time::from_millis(ms));
            while send(&mut s, ms, &mut drops).is_some() {
                retransmissions.push(ms);
            }
        }
        assert_eq!(retransmissions, sent, "{answer:?} after {losses} losses");
    }
}

/// A link without room for 40 ms keeps one copy, not each that falls due.
#[test]
fn copies_do_not_pile_up() {
    let mut s = Sender::new(&Config::default(), 1);
    let answer = Answer { copies: 3, within: Duration::from_millis(40) };
    s.policy = Box::new(Fixed(Some(answer)));
    let (mut drops, rtt) = (Drops::default(), Duration::from_millis(5));
    enqueue(&mut s, Time::ZERO, &[1], 200);
    assert!(send(&mut s, 0, &mut drops).is_some());
    s.copy_budget.lost(80, 80.0);
    let mut request = |s: &mut Sender, ms| {
        let ask = [NackRange { first: 0, count: 1 }].into_iter();
        s.retransmit(Time::from_millis(ms), ask, rtt, &mut 9, &mut drops);
    };
    request(&mut s, 10);
    assert!(send(&mut s, 10, &mut Drops::default()).is_some());
    for ms in 11..50 {
        s.handle_timeout(Time::from_millis(ms));
        if ms >= 20 {
            request(&mut s, ms);
            assert_eq!(s.waiting(), 1, "at {ms} ms");
        }
    }
    assert!(send(&mut s, 50, &mut Drops::default()).is_some());
    assert_eq!(send(&mut s, 50, &mut Drops::default()), None);
}
