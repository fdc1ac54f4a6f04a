use super::*;
use crate::wire::Metric;
use trunkline_base::Time;

const ROOM: usize = 1_200;
const DEADLINE: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn open() -> Sender {
    let mut sender = Sender::new(Config::new(NodeId(2)), ROOM, 7, 1, ms(0));
    assert_eq!(
        sender.ask(ms(0)),
        Some(Message::Ask { version: TRUNK_VERSION, generation: 7, report_ms: 100, rtt: None })
    );
    assert!(sender.on_answer(ms(0), 7, Answer::Fresh));
    sender
}

fn packet(port: u16, now: Time, payload: &[u8]) -> Outgoing<'_> {
    Outgoing {
        source_port: port,
        destination_port: port,
        flow_seq: port,
        metric: Metric::default(),
        deadline: now + DEADLINE,
        way: Duration::from_millis(20),
        payload,
    }
}

/// Two flows that send occasionally, so that none is alone.
fn wake_up(sender: &mut Sender, now: Time) {
    for port in [1, 2] {
        sender.put(now, &packet(port, now, &[0; 32]), ROOM);
    }
    leave(sender, now);
}

/// Sends the gathered packets; returns the numbers of bytes, packets and definitions.
fn leave(sender: &mut Sender, now: Time) -> Option<(usize, usize, usize)> {
    let leaving = sender.take(now)?;
    let Some(Message::Packets(head, rest)) = Message::parse(&leaving.bytes) else {
        panic!("no trunk packet")
    };
    let entries: Result<Vec<_>, _> = Entries::new(&head, rest).collect();
    let entries = entries.expect("well-formed entries");
    let packets = entries.iter().filter(|e| !matches!(e, Entry::Definition { .. })).count();
    let (bytes, all) = (leaving.bytes.len(), entries.len());
    sender.reclaim(leaving.bytes, false, |_| {});
    Some((bytes, packets, all - packets))
}

/// 32 bytes of RTP with G.729: eight of the trunk's head, five for each packet, and ten with the
/// first three of a flow.
#[test]
fn ten_calls_in_one_packet_as_counted_by_hand() {
    let mut sender = open();
    wake_up(&mut sender, ms(0));
    for round in 1..=5u64 {
        let now = ms(20 * round);
        for port in 1..=10 {
            assert_eq!(sender.put(now, &packet(port, now, &[0; 32]), ROOM), Enqueued::Gathered);
        }
        let (bytes, packets, definitions) = leave(&mut sender, now).expect("ten packets");
        assert_eq!((packets, bytes), (10, 8 + 10 * (5 + 32) + 10 * definitions));
        // The second of two flows has been gathered once before; the first was alone.
        assert_eq!(definitions, [10, 10, 9, 0, 0][round as usize - 1]);
    }
}

#[test]
fn it_leaves_when_it_is_full_or_the_wait_is_over_or_a_deadline_is_near() {
    let mut sender = open();
    wake_up(&mut sender, ms(0));
    let now = ms(10);
    let soon = |port, micros| Outgoing {
        deadline: now + Duration::from_micros(micros),
        ..packet(port, now, &[0; 172])
    };
    assert_eq!(sender.put(now, &soon(1, 30_000), ROOM), Enqueued::Gathered);
    assert_eq!(sender.next_timeout(), ms(12));
    assert!(!sender.is_due(ms(11)) && sender.is_due(ms(12)));
    // 20 ms in transit and 1 ms of margin: it may wait until 10.5 ms at most.
    assert_eq!(sender.put(now, &soon(2, 21_500), ROOM), Enqueued::Gathered);
    assert_eq!(sender.next_timeout(), now + Duration::from_micros(500));
    let mut gathered = 2;
    let full = (3..).find(|&port| {
        let put = sender.put(now, &soon(port, 30_000), ROOM);
        gathered += u32::from(put == Enqueued::Gathered);
        put == Enqueued::Full
    });
    assert!(full.is_some());
    // 8 + n (5 + 10 + 172) of at most 1,200.
    assert_eq!(gathered, 6);
    let (bytes, packets, _) = leave(&mut sender, now).expect("six packets");
    assert!(bytes <= ROOM && packets == 6, "{bytes}");
    assert_eq!(leave(&mut sender, now), None);
    assert_eq!(sender.next_timeout(), ms(1_000), "the next question");
}

#[test]
fn another_metric_or_deadline_or_port_or_a_large_packet_doesnt_share() {
    let mut sender = open();
    wake_up(&mut sender, ms(0));
    let now = ms(1);
    assert_eq!(sender.put(now, &packet(1, now, &[0; 172]), ROOM), Enqueued::Gathered);
    let other = Outgoing { metric: Metric::Hops, ..packet(2, now, &[0; 172]) };
    assert_eq!(sender.put(now, &other, ROOM), Enqueued::Full);
    for (deadline, put) in [(89, Enqueued::Full), (90, Enqueued::Gathered), (111, Enqueued::Full)] {
        let other =
            Outgoing { deadline: now + Duration::from_millis(deadline), ..packet(2, now, &[]) };
        assert_eq!(sender.put(now, &other, ROOM), put, "{deadline} ms");
    }
    assert_eq!(sender.put(now, &packet(2, now, &[0; 1_190]), ROOM), Enqueued::Alone);
    let to_the_node = Outgoing { destination_port: 0, ..packet(2, now, &[0; 172]) };
    assert_eq!(sender.put(now, &to_the_node, ROOM), Enqueued::Alone);
}

#[test]
fn without_an_answer_packets_leave_one_by_one_and_it_is_asked_again() {
    let mut sender = Sender::new(Config::new(NodeId(2)), ROOM, 7, 1, ms(0));
    let put = |sender: &mut Sender, now| sender.put(now, &packet(1, now, &[0; 32]), ROOM);
    assert_eq!(put(&mut sender, ms(0)), Enqueued::Alone);
    assert!(!sender.on_answer(ms(1), 8, Answer::Fresh), "of another trunk");
    assert_eq!(sender.state(ms(1)), State::Silent);
    let asked = (0..10_000).filter(|&t| sender.ask(ms(t)).is_some()).count();
    assert_eq!(asked, 10);
    sender.on_answer(ms(10_000), 7, Answer::Refused);
    assert_eq!(
        (sender.state(ms(10_001)), put(&mut sender, ms(10_001))),
        (State::Refused, Enqueued::Alone)
    );
    sender.on_answer(ms(11_000), 7, Answer::Known);
    wake_up(&mut sender, ms(11_000));
    assert_eq!(put(&mut sender, ms(11_001)), Enqueued::Gathered);
    // The other end has restarted: it is asked soon, and gets all definitions again.
    sender.on_answer(ms(11_010), 7, Answer::Unknown);
    assert_eq!(sender.state(ms(11_010)), State::Silent);
    assert!(sender.ask(ms(11_110)).is_some());
    sender.on_answer(ms(11_120), 7, Answer::Fresh);
    leave(&mut sender, ms(11_120));
    put(&mut sender, ms(11_121));
    assert_eq!(leave(&mut sender, ms(11_121)).map(|(_, _, definitions)| definitions), Some(1));
    // Answers count for a while after they stop arriving.
    assert_eq!(sender.state(ms(14_620)), State::Open);
    assert_eq!(sender.state(ms(14_621)), State::Silent);
}

/// Many more flows than contexts, and all of them return.
#[test]
fn a_context_is_used_again_only_after_a_pause() {
    let mut sender = open();
    let mut receiver = Receiver::new(ms(0));
    assert_eq!(receiver.on_ask(ms(0), 7, 100, None), Answer::Fresh);
    assert_eq!(receiver.on_ask(ms(0), 7, 100, None), Answer::Known);
    let (mut heard, mut alone) = (0, 0);
    for round in 0..3u64 {
        for port in 1..=6_000u16 {
            let now = ms(7_000 * round);
            sender.on_answer(now, 7, Answer::Known);
            let put = sender.put(now, &packet(port, now, &port.to_be_bytes()), ROOM);
            alone += u32::from(put == Enqueued::Alone);
            if put == Enqueued::Full || port == 6_000 {
                let Some(leaving) = sender.take(now) else { continue };
                let Some(Message::Packets(head, rest)) = Message::parse(&leaving.bytes) else {
                    panic!("no trunk packet")
                };
                for entry in Entries::new(&head, rest) {
                    if let Heard::Packet { context, payload, .. } =
                        receiver.hear(now, head.number, entry.expect("well-formed"))
                    {
                        assert_eq!(payload, context.source_port.to_be_bytes());
                        heard += 1;
                    }
                }
                sender.reclaim(leaving.bytes, false, |_| {});
            }
        }
    }
    assert!(heard > 3 * 3_900, "{heard}");
    // Those beyond 4,095 in each round, and one alone at the beginning of each.
    assert_eq!(alone, 3 * (6_000 - 4_095 + 1));
    assert_eq!(sender.flows(), 4_095);
}

#[test]
fn what_no_link_takes_is_told_by_its_flows() {
    let mut sender = open();
    wake_up(&mut sender, ms(0));
    for port in [5, 6, 5] {
        sender.put(ms(1), &packet(port, ms(1), &[0; 40]), ROOM);
    }
    let leaving = sender.take(ms(1)).expect("three packets");
    let mut lost = Vec::new();
    sender.reclaim(leaving.bytes, true, |flow| lost.push(flow.source_port));
    assert_eq!(lost, [5, 6, 5]);
    assert_eq!(sender.stats().dropped, 1);
}

#[test]
fn a_receiver_believes_what_it_was_told_last_and_nothing_else() {
    let mut receiver = Receiver::new(ms(0));
    assert!(!receiver.knows(0) && !receiver.is_forgotten(ms(10_000)));
    receiver.on_ask(ms(10_000), 3, 100, None);
    let packet = Entry::Packet { context: 9, flow_seq: 1, payload: &[1, 2] };
    let at = ms(10_000);
    assert_eq!(receiver.hear(at, 5, packet), Heard::Unknown);
    let [context, other] =
        [4, 6].map(|source_port| Context { source_port, destination_port: 5, deadline_ms: 100 });
    let says = |context| Entry::Definition { number: 9, context };
    let means = |heard: Heard<'_>, context| {
        assert!(matches!(heard, Heard::Packet { context: c, .. } if c == context), "{heard:?}");
    };
    assert_eq!(receiver.hear(at, 5, says(context)), Heard::Definition);
    means(receiver.hear(at, 6, packet), context);
    // Packets that were sent, or defined, earlier and arrive late.
    receiver.hear(at, 20, says(other));
    receiver.hear(at, 7, says(context));
    assert_eq!(receiver.hear(at, 19, packet), Heard::Unknown);
    means(receiver.hear(at, 20, packet), other);
    // It may mean something else after a pause.
    means(receiver.hear(ms(12_999), 21, packet), other);
    assert_eq!(receiver.hear(ms(15_999), 22, packet), Heard::Unknown);
    receiver.hear(ms(15_999), 0xff_ffff, says(other));
    means(receiver.hear(ms(15_999), 1, packet), other);
    // For longer than the numbers take to wrap.
    for n in 0..1_000u64 {
        let number = (2 + (n as u32) * (1 << 19)) & 0xff_ffff;
        means(receiver.hear(ms(16_000 + n), number, packet), other);
    }
    assert_eq!(receiver.on_ask(ms(11_000), 4, 100, None), Answer::Fresh);
    assert_eq!(receiver.hear(at, 5, packet), Heard::Unknown);
    assert!(!receiver.is_forgotten(ms(21_000)) && receiver.is_forgotten(ms(21_001)));
}

#[test]
fn each_mistake_has_its_error() {
    let (own, far) = (NodeId(1), Config::new(NodeId(2)));
    assert_eq!(check(own, &[far, Config::new(NodeId(3))]), Ok(()));
    assert_eq!(check(own, &[far, far]), Err(ConfigError::Twice(far.to)));
    assert_eq!(check(own, &[Config::new(own)]), Err(ConfigError::ToSelf(own)));
    let nobody = NodeId::NONE;
    assert_eq!(check(own, &[Config::new(nobody)]), Err(ConfigError::ReservedId(nobody)));
    let slow = Config { wait: Duration::from_millis(11), ..far };
    assert_eq!(check(own, &[slow]), Err(ConfigError::Wait(far.to)));
}

/// A context is redefined for another flow, but all definitions are lost.
#[test]
fn what_said_so_is_lost_and_nothing_comes_to_a_wrong_port() {
    let mut sender = open();
    let mut receiver = Receiver::new(ms(0));
    receiver.on_ask(ms(0), 7, 100, None);
    let mut send = |sender: &mut Sender, now: Time, port: u16, lost: bool| {
        sender.on_answer(now, 7, Answer::Known);
        while sender.put(now, &packet(port, now, &port.to_be_bytes()), ROOM) == Enqueued::Full {
            give(sender, &mut receiver, now, lost);
        }
        if port.is_multiple_of(10) {
            give(sender, &mut receiver, now, lost);
        }
    };
    wake_up(&mut sender, ms(0));
    (1..=4_100).for_each(|port| send(&mut sender, ms(0), port, false));
    for round in 0..20u64 {
        let now = ms(7_000 + 20 * round);
        (5_000..=5_040).for_each(|port| send(&mut sender, now, port, round < 5));
    }
}

fn give(sender: &mut Sender, receiver: &mut Receiver, now: Time, lost: bool) {
    let Some(leaving) = sender.take(now) else { return };
    let Some(Message::Packets(head, rest)) = Message::parse(&leaving.bytes) else { panic!() };
    for entry in Entries::new(&head, rest).filter(|_| !lost) {
        if let Heard::Packet { context, payload, .. } =
            receiver.hear(now, head.number, entry.unwrap())
        {
            assert_eq!(payload, context.source_port.to_be_bytes(), "at {now:?}");
        }
    }
    sender.reclaim(leaving.bytes, false, |_| {});
}

/// 24 bits of a trunk packet's number are transmitted: neither a duplicate nor a single number far
/// from all others stops the loss reports.
#[test]
fn reports_go_on_after_copies_and_lone_far_numbers_for_ever() {
    let mut receiver = Receiver::new(ms(0));
    receiver.on_ask(ms(0), 7, 100, None);
    let (mut at, mut reports) = (0, 0);
    let mut come = |number: u64, at: u64| {
        let number = number as u32 & 0xff_ffff;
        let head = Head { entries: 1, generation: 7, number, remaining_ms: 9 };
        u32::from(receiver.note_packet(ms(at), &head, false).is_some())
    };
    // Three wraps of 24 bits, in steps that a trunk may skip.
    for number in (0..3 << 24).step_by(4_000) {
        for n in [number, number, number + (1 << 20)] {
            at += 1;
            reports += come(n, at);
        }
    }
    // A report for every 100 ms, give or take those for too few packets.
    assert!(u64::from(reports) > at / 150, "{reports} in {at} ms");
    let before = reports;
    for number in 1..1_000 {
        reports += come((1 << 22) + number, at + number);
    }
    assert!(reports - before >= 5, "two in a row are believed");
}

/// A flood of questions in the name of a trunk's sender costs no more answers than its own
/// questions do.
#[test]
fn questions_of_the_present_generation_are_answered_at_most_every_100_ms() {
    let mut receiver = Receiver::new(ms(0));
    assert_eq!(receiver.answers(ms(0), 7), None, "the first counts against the rate of all");
    receiver.on_ask(ms(0), 7, 100, None);
    let answers: Vec<_> = (0..1_000).map(|t| receiver.answers(ms(t), 7)).collect();
    let expected: Vec<_> = (0..1_000).map(|t| Some(t > 0 && t % 100 == 0)).collect();
    assert_eq!(answers, expected);
}
