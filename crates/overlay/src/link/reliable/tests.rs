use super::*;
use crate::counters::DropReason;
use crate::link::packet::STREAM;
use crate::wire::{
    DATA_HEADER, FlowHeader, Frame, Frames, MAX_ACK_RANGES, MAX_HOPS, Metric, NodeId, SelectiveAck,
    Service,
};
use proptest::prelude::*;
use rand::RngExt;
use std::collections::BTreeMap;

const MS: Duration = Duration::from_millis(1);

/// A frame or an acknowledgement in transit.
enum Under {
    Data(Vec<u8>),
    Ack(Vec<u8>),
}

/// Impairments of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    loss: f64,
    copies: f64,
    /// Maximum extra delay of a frame relative to others.
    jitter: Duration,
}

/// Two halves and a channel between them, in both directions.
struct Pair {
    now: Time,
    /// Source of the packets offered.
    source: NodeId,
    tx: Sender,
    rx: Receiver,
    channel: Channel,
    one_way: Duration,
    under_way: BTreeMap<(Time, u64), Under>,
    sent: u64,
    envelopes: u64,
    rng: trunkline_base::Rng,
    /// Packets delivered to the destination.
    delivered: Vec<u32>,
    retransmissions: u64,
}

impl Pair {
    fn new(channel: Channel, seed: u64) -> Pair {
        let mut rx = Receiver::default();
        rx.begin(1);
        Pair {
            now: Time::from_millis(1_000),
            source: NodeId(1),
            tx: Sender::new(&Config::default(), 1_280, 1),
            rx,
            channel,
            one_way: 10 * MS,
            under_way: BTreeMap::new(),
            sent: 0,
            envelopes: 0,
            rng: trunkline_base::rng(seed, 0),
            delivered: Vec::new(),
            retransmissions: 0,
        }
    }

    fn offer(&mut self, number: u32, len: usize) -> Result<(), DropReason> {
        self.offer_of(number, len, (1, 0))
    }

    /// Offers a packet with a given hop limit and flags.
    fn offer_of(
        &mut self,
        number: u32,
        len: usize,
        (hop_limit, flags): (u8, u8),
    ) -> Result<(), DropReason> {
        let flow = FlowHeader {
            service: Service::Reliable,
            metric: Metric::default(),
            source: self.source,
            destination: NodeId(2),
            source_port: 1,
            destination_port: 1,
            flow_seq: 0,
        };
        let mut payload = vec![0; len.max(4)];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let deadline = Time::NEVER;
        let packet = Packet { hop_limit, flags, ..Packet::new(flow, &payload, deadline) };
        self.tx.enqueue(self.now, &packet)
    }

    fn carry(&mut self, what: impl Fn() -> Under) {
        let Channel { loss, copies, jitter } = self.channel;
        let n = if self.rng.random_bool(copies) { 2 } else { 1 };
        for _ in 0..n {
            if !self.rng.random_bool(loss) {
                let jitter = jitter.mul_f64(self.rng.random::<f64>());
                self.sent += 1;
                self.under_way.insert((self.now + self.one_way + jitter, self.sent), what());
            }
        }
    }

    /// Sends everything that may be sent now.
    fn drain(&mut self) {
        while let Some(len) = self.tx.head(self.now) {
            let mut frame = vec![0; len];
            self.retransmissions += u64::from(self.tx.pop(self.now, 20 * MS, &mut frame));
            self.carry(|| Under::Data(frame.clone()));
        }
        let len = self.rx.ack_len(200);
        if len > 0 {
            let mut bytes = vec![0; len];
            self.rx.write_ack(self.now, len, &mut Writer::new(&mut bytes)).unwrap();
            self.carry(|| Under::Ack(bytes.clone()));
        }
    }

    /// Advances to the next event and handles it.
    fn step(&mut self) {
        self.drain();
        let arrives = self.under_way.keys().next().map_or(Time::NEVER, |&(at, _)| at);
        let due = self.tx.next_timeout().min(self.rx.next_timeout());
        assert!(arrives.min(due) < Time::NEVER, "nothing will ever happen");
        self.now = self.now.max(arrives.min(due));
        if due <= self.now {
            self.tx.handle_timeout(self.now);
            self.rx.handle_timeout(self.now);
        }
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Under::Data(frame) => self.arrive(&frame),
                Under::Ack(bytes) => {
                    let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes).next() else {
                        panic!("an acknowledgement")
                    };
                    let _ = self.tx.on_ack(self.now, ack, &mut 1_024);
                }
            }
        }
    }

    fn arrive(&mut self, frame: &[u8]) {
        let Some(Ok(Frame::Data(header, payload))) = Frames::new(frame).next() else {
            panic!("a packet")
        };
        self.envelopes += 1;
        let incoming = RxPacketInfo {
            wire_seq: header.hop.link_seq,
            envelope: self.envelopes,
            remaining: header.hop.remaining_ms,
            len: payload.len(),
            recovered: header.hop.recovered,
            at: self.now,
            useful_until: Time::NEVER,
            rtt: 20 * MS,
        };
        if self.rx.accept(&incoming).is_ok() {
            self.delivered.push(u32::from_be_bytes(payload[..4].try_into().unwrap()));
        }
    }

    fn run_until_idle(&mut self) {
        let mut steps = 0;
        while self.tx.waiting() > 0 || self.tx.flight_size().1 > 0 {
            self.step();
            steps += 1;
            assert!(steps < 2_000_000, "it never ends");
        }
    }
}

/// Offers `n` packets as room becomes available, and waits until all are acknowledged.
fn transfer(pair: &mut Pair, n: u32) -> Duration {
    let began = pair.now;
    for number in 0..n {
        while pair.offer(number, 1_000).is_err() {
            pair.step();
        }
    }
    pair.run_until_idle();
    pair.now.since(began)
}

#[test]
fn without_loss_nothing_is_repeated_and_the_window_opens() {
    let mut pair = Pair::new(Channel::default(), 1);
    let took = transfer(&mut pair, 10_000);
    assert_eq!(pair.delivered, (0..10_000).collect::<Vec<_>>());
    assert_eq!(pair.retransmissions, 0);
    // Slow start: the window doubles every 20 ms, up to what the ring holds.
    assert!(took < 400 * MS, "{took:?}");
}

/// The square root law: 1.22 segments per round trip, divided by the root of p.
#[test]
fn at_one_percent_it_takes_the_share_of_a_tcp() {
    let mut pair = Pair::new(Channel { loss: 0.01, ..Channel::default() }, 2);
    let n = 40_000;
    let took = transfer(&mut pair, n).as_secs_f64();
    let segments = f64::from(n) * 1_088.0 / 1_280.0 / took * 0.02;
    // Losses in the reverse direction cost nothing: acknowledgements are cumulative.
    assert!((9.0..16.0).contains(&segments), "{segments} segments a round trip");
    let waste = pair.retransmissions as f64 / f64::from(n);
    assert!((0.0095..0.0125).contains(&waste), "{waste} of all retransmitted");
}

#[test]
fn a_single_loss_costs_one_link_round_trip_and_the_tail_a_probe() {
    // The first of ten packets 2 ms apart: those behind it reveal the loss.
    for (lost, within) in [(0, 10 + 2 + 20 + 6), (9, 10 + 40 + 10)] {
        let mut pair = Pair::new(Channel::default(), 3);
        transfer(&mut pair, 100);
        pair.delivered.clear();
        let mut sent_at = Time::ZERO;
        for k in 0..10 {
            pair.channel.loss = if k == lost { 1.0 } else { 0.0 };
            pair.offer(1_000 + k, 1_000).unwrap();
            if k == lost {
                sent_at = pair.now;
            }
            pair.drain();
            pair.channel.loss = 0.0;
            let until = pair.now + 2 * MS;
            while pair.tx.next_timeout().min(until) < until
                || pair.under_way.keys().next().is_some_and(|&(at, _)| at < until)
            {
                pair.step();
            }
            pair.now = until;
        }
        while !pair.delivered.contains(&(1_000 + lost)) {
            pair.step();
        }
        let took = pair.now.since(sent_at);
        assert!(took <= within as u32 * MS + pair.one_way, "number {lost} took {took:?}");
        assert_eq!(pair.delivered.len(), 10);
    }
}

#[test]
fn what_starts_anew_gets_all_that_it_may_not_have() {
    for seed in 0..20 {
        let mut pair = Pair::new(Channel { loss: 0.05, ..Channel::default() }, seed);
        for number in 0..3_000 {
            while pair.offer(number, 1_000).is_err() {
                pair.step();
            }
            if number % 700 == 699 {
                // The neighbour has restarted; packets in flight reach the new start.
                let before = pair.delivered.len();
                pair.rx = Receiver::default();
                pair.rx.begin(number as u16);
                (0..40).for_each(|_| pair.step());
                assert!(pair.delivered.len() >= before);
            }
        }
        pair.run_until_idle();
        let mut all = pair.delivered.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..3_000).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// A link that carries nothing for a minute, and then everything.
#[test]
fn an_outage_is_asked_after_ever_less_often_and_ends_at_once() {
    let mut pair = Pair::new(Channel::default(), 5);
    transfer(&mut pair, 100);
    pair.channel.loss = 1.0;
    (0..50).for_each(|n| pair.offer(n, 1_000).unwrap());
    let (began, before) = (pair.now, pair.retransmissions);
    while pair.now.since(began) < Duration::from_secs(60) {
        pair.step();
    }
    assert!(
        pair.retransmissions - before < 60,
        "{} retransmissions in a minute",
        pair.retransmissions - before
    );
    pair.channel.loss = 0.0;
    let healed = pair.now;
    pair.run_until_idle();
    assert!(pair.now.since(healed) < 3 * Duration::from_secs(1), "{:?}", pair.now.since(healed));
    assert_eq!(pair.delivered.len(), 150);
}

#[test]
fn what_is_kept_is_bounded_and_displaces_nothing() {
    let mut pair = Pair::new(Channel { loss: 1.0, ..Channel::default() }, 6);
    let mut fit = 0;
    while pair.offer(fit, 1_000).is_ok() {
        fit += 1;
    }
    assert!((2_900..=3_050).contains(&fit), "{fit}: the rest is for other flows and sources");
    assert_eq!(pair.offer(0, 1_000), Err(DropReason::QueueFull));
    pair.channel.loss = 0.0;
    pair.run_until_idle();
    assert_eq!(pair.delivered, (0..fit).collect::<Vec<_>>());
}

fn ack(instance: u16, epoch: u8, next: u16, latest: u16, ranges: &[(u16, u16)]) -> Vec<u8> {
    let head =
        crate::wire::AckHead { instance, sender: 0, epoch, next, latest, delay: Duration::ZERO };
    let range = |&(first, count): &(u16, u16)| crate::wire::AckRange { first, count };
    let ranges: Vec<_> = ranges.iter().map(range).collect();
    let mut bytes = vec![0; 200];
    let mut w = Writer::new(&mut bytes);
    SelectiveAck::emit(&head, &ranges, &mut w).unwrap();
    let len = w.len();
    bytes.truncate(len);
    bytes
}

fn take(tx: &mut Sender, bytes: &[u8]) -> Result<(), DropReason> {
    let Some(Ok(Frame::Ack(ack))) = Frames::new(bytes).next() else { panic!("an ack") };
    tx.on_ack(Time::from_millis(1_100), ack, &mut 1_024)
}

#[test]
fn what_was_never_sent_is_not_acknowledged() {
    let mut pair = Pair::new(Channel::default(), 7);
    (0..20).for_each(|n| pair.offer(n, 100).unwrap());
    pair.drain();
    // The first window has been sent, or a part of it.
    let sent = 20 - pair.tx.waiting() as u16;
    for (next, latest, ranges) in
        [(sent + 1, 0, vec![]), (0, sent, vec![]), (40_000, 0, vec![]), (0, u16::MAX, vec![])]
    {
        assert_eq!(
            take(&mut pair.tx, &ack(1, 0, next, latest, &ranges)),
            Err(DropReason::Malformed)
        );
    }
    let before = pair.tx.flight_size();
    // Ranges that overlap, run backwards or exceed the sent packets are ignored.
    take(&mut pair.tx, &ack(1, 0, 0, 0, &[(sent - 1, 9), (5, 0), (60_000, 3)])).unwrap();
    assert_eq!(pair.tx.flight_size().1, before.1);
    assert_eq!(take(&mut pair.tx, &ack(1, 3, 1, 0, &[])), Err(DropReason::Stale));
    take(&mut pair.tx, &ack(1, 0, sent, 0, &[])).unwrap();
    assert_eq!(pair.tx.flight_size().1, 0);
}

/// A stalled node reads late the packets that arrived in time: its pace must not follow that delay.
#[test]
fn standing_still_is_no_round_trip() {
    let mut pair = Pair::new(Channel::default(), 7);
    pair.offer(0, 1_000).unwrap();
    pair.drain();
    pair.now += Duration::from_secs(198);
    let bytes = ack(1, 0, 1, 0, &[]);
    let Some(Ok(Frame::Ack(heard))) = Frames::new(&bytes).next() else { panic!("an ack") };
    pair.tx.on_ack(pair.now, heard, &mut 1_024).unwrap();
    let begun = pair.now;
    (1..50).for_each(|n| pair.offer(n, 1_000).unwrap());
    pair.under_way.clear();
    pair.run_until_idle();
    assert!(pair.now.since(begun) < Duration::from_secs(1), "{:?}", pair.now.since(begun));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every accepted packet is delivered once, whatever the channel does.
    #[test]
    fn everything_comes_once(
        seed: u64, loss in 0.0..0.4f64, copies in 0.0..0.3f64, jitter in 0u32..30, n in 1u32..600,
    ) {
        let channel = Channel { loss, copies, jitter: jitter * MS };
        let mut pair = Pair::new(channel, seed);
        transfer(&mut pair, n);
        pair.delivered.sort_unstable();
        prop_assert_eq!(&pair.delivered, &(0..n).collect::<Vec<_>>());
        prop_assert_eq!(pair.tx.flight_size().1, 0);
    }

    /// A neighbour that sends arbitrary acknowledgements breaks nothing, and its final
    /// acknowledgement covers every packet.
    #[test]
    fn a_lying_neighbour_only_harms_itself(
        seed: u64,
        lies in prop::collection::vec(
            (0u16..3, 0u8..3, 0u16..80, 0u16..80,
             prop::collection::vec((0u16..80, 0u16..80), 0..=MAX_ACK_RANGES)), 1..60),
    ) {
        let mut pair = Pair::new(Channel::default(), seed);
        for (n, (instance, epoch, next, latest, ranges)) in lies.iter().enumerate() {
            let _ = pair.offer(n as u32, 500);
            pair.drain();
            let _ = take(&mut pair.tx, &ack(*instance, *epoch, *next, *latest, ranges));
            pair.now += MS;
            pair.tx.handle_timeout(pair.now);
            let (window, flight) = pair.tx.flight_size();
            prop_assert!(flight <= window.max(20_000), "{flight} of {window}");
        }
    }

    /// The receiver acknowledges exactly the packets that it has.
    #[test]
    fn ranges_are_what_came(numbers in prop::collection::vec(0u16..4_096, 0..300), base in 0u16..=u16::MAX) {
        let mut rx = Receiver::default();
        // Numbers that wrap: all before `base` have arrived.
        let arrive = |rx: &mut Receiver, wire_seq: u16| {
            let at = Time::ZERO;
            let incoming = RxPacketInfo {
                wire_seq, envelope: 0, remaining: 0, len: 0, recovered: false, at,
                useful_until: at, rtt: MS,
            };
            rx.accept(&incoming)
        };
        for n in 0..base {
            prop_assert!(arrive(&mut rx, n).is_ok());
        }
        let mut model = std::collections::BTreeSet::new();
        for &n in &numbers {
            let came = arrive(&mut rx, base.wrapping_add(n));
            let next = (0..).find(|k| !model.contains(k)).unwrap_or(0);
            // The window advances as packets arrive.
            if n < next || model.contains(&n) {
                prop_assert_eq!(came, Err(DropReason::Duplicate));
            } else {
                prop_assert!(came.is_ok());
                model.insert(n);
            }
        }
        if base > 0 || !model.is_empty() {
            rx.handle_timeout(Time::NEVER);
            let len = rx.ack_len(10_000);
            if len > 0 {
                let mut bytes = vec![0; len];
                rx.write_ack(Time::ZERO, len, &mut Writer::new(&mut bytes)).unwrap();
                let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes).next() else { panic!("one") };
                let next = ack.head.next.wrapping_sub(base);
                prop_assert!((0..next).all(|n| model.contains(&n)) && !model.contains(&next));
                let mut last = next;
                for range in ack.ranges() {
                    let first = range.first.wrapping_sub(base);
                    prop_assert!(first > last && range.count > 0);
                    prop_assert!((first..first + range.count).all(|n| model.contains(&n)));
                    prop_assert!(!model.contains(&(first + range.count)) && !model.contains(&(first - 1)));
                    last = first + range.count;
                }
                if ack.ranges().count() < MAX_ACK_RANGES {
                    prop_assert!(model.iter().all(|&n| n < last.max(next)));
                }
            }
        }
    }
}

#[test]
fn a_frame_has_room_for_its_header() {
    let mut pair = Pair::new(Channel::default(), 9);
    pair.offer(1, 4).unwrap();
    assert_eq!(pair.tx.head(pair.now), Some(DATA_HEADER + 4));
}

/// Local streams find room for as much as the window carries soon, whatever else waits, and no
/// more; the same is true of streams that only begin.
#[test]
fn a_node_s_own_streams_find_room_for_what_leaves_soon() {
    let own = (MAX_HOPS - 1, STREAM);
    let mut pair = Pair::new(Channel::default(), 1);
    let fill = |pair: &mut Pair, kind, most| {
        let mut count = 0;
        while pair.tx.has_room_for_own(1_200, true) && count < most {
            pair.offer_of(count, 1_200, kind).unwrap();
            count += 1;
        }
        count
    };
    assert_eq!(fill(&mut pair, (1, STREAM), 30), 30, "of others");
    let begun = fill(&mut pair, own, 1_000);
    // No round trip has been measured yet.
    assert!((25..30).contains(&begun), "{begun} packets");
    while pair.delivered.len() < (30 + begun) as usize {
        pair.step();
    }
    let (window, _) = pair.tx.flight_size();
    let room = fill(&mut pair, own, 4_000);
    let carried = window * 250 / 20 / 1_260;
    assert!(u64::from(room).abs_diff(carried) <= carried / 8 + 2, "{room} and {carried} packets");
}

/// A link with a tiny window accepts no more packets of a flow once those that wait have waited for
/// seconds; it still accepts those of a flow that has few.
#[test]
fn what_waits_for_seconds_is_not_added_to() {
    let through = (1, STREAM);
    let mut pair = Pair::new(Channel { loss: 1.0, ..Channel::default() }, 1);
    // Ten are in flight, in vain.
    (0..12).for_each(|n| pair.offer_of(n, 1_200, through).unwrap());
    while pair.now < Time::from_millis(12_000) {
        pair.step();
    }
    (0..2).for_each(|n| pair.offer_of(30 + n, 1_200, through).expect("they are few"));
    for flags in [STREAM, 0] {
        let refused = pair.offer_of(50, 1_200, (1, flags));
        assert_eq!(refused, Err(DropReason::QueueFull), "streams and datagrams alike");
    }
    pair.source = NodeId(3);
    pair.offer_of(51, 1_200, through).expect("another flow");
    pair.source = NodeId(1);
    pair.channel.loss = 0.0;
    while pair.delivered.len() < 15 {
        pair.step();
    }
    assert!(!pair.delivered.contains(&50), "what is refused isn't kept: {:?}", pair.delivered);
    pair.offer_of(52, 1_200, through).expect("the queue is empty");
}

/// A link comes up again after all sent packets have arrived, though no round trip was measured
/// since its timer backed off: the next packet gets its full timeout.
#[test]
fn what_is_sent_after_all_has_come_is_not_hastened() {
    let mut pair = Pair::new(Channel { loss: 1.0, ..Channel::default() }, 1);
    pair.offer(0, 1_000).unwrap();
    while pair.retransmissions < 3 {
        pair.step();
    }
    pair.channel.loss = 0.0;
    while pair.tx.flight_size().1 > 0 || pair.delivered.is_empty() {
        pair.step();
    }
    pair.tx.expedite();
    pair.offer(1, 1_000).unwrap();
    pair.drain();
    assert!(pair.tx.flight_size().1 > 0);
    assert!(pair.tx.next_timeout() > pair.now, "{:?} at {:?}", pair.tx.next_timeout(), pair.now);
}
