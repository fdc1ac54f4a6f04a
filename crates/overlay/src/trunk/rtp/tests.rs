use super::super::{
    Answer, Config, ENTRY, Enqueued, Entries, Entry, HEAD, Heard, Message, Outgoing, Receiver,
    Sender,
};
use super::*;
use crate::wire::{Metric, NodeId};
use proptest::collection::vec;
use proptest::prelude::*;
use rand::RngExt;
use std::collections::HashMap;

const ROOM: usize = 1_200;
const STEP: u16 = 160;
const PACKET: Duration = Duration::from_millis(20);

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Event in a phone's stream before a packet.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// No event at all.
    Voice,
    /// Silence for this many packets, which aren't sent.
    Silence(u16),
    /// This many packets are lost before they reach the node.
    LostBefore(u16),
    /// The next packet overtakes this one.
    Swap,
    /// The sequence number or the timestamp jumps, or the timestamp deviates a little once.
    JumpSeq(u16),
    JumpTimestamp(u32),
    Jitter(u8),
    NewStream(u32),
    NewStep(u16),
    /// A digit of RFC 4733, a padded packet, or one that is not RTP.
    Digit,
    Padded,
    Other(u8),
    /// The same packet is sent again.
    Again,
    /// This many packets leave outside the trunk.
    Outside(u16),
    /// Nothing is sent for this many milliseconds.
    Idle(u16),
}

#[derive(Clone, Debug)]
struct Phone {
    header: Header,
    step: u16,
    flow_seq: u16,
}

impl Phone {
    fn new(seq: u16, timestamp: u32, flow_seq: u16) -> Phone {
        let header = Header { marker: true, payload_type: 18, seq, timestamp, ssrc: 7 };
        Phone { header, step: STEP, flow_seq }
    }

    fn skip(&mut self, packets: u16, are_numbered: bool) {
        let ticks = u32::from(self.step) * u32::from(packets);
        self.header.timestamp = self.header.timestamp.wrapping_add(ticks);
        if are_numbered {
            self.header.seq = self.header.seq.wrapping_add(packets);
        }
    }

    /// The packet after `event`, with `id` at its end.
    fn packet(&mut self, event: Event, id: u32) -> Vec<u8> {
        let mut header = None;
        match event {
            Event::Silence(packets) => {
                self.skip(packets, false);
                self.header.marker = true;
            }
            Event::LostBefore(packets) => self.skip(packets, true),
            Event::JumpSeq(by) => self.header.seq = self.header.seq.wrapping_add(by),
            Event::JumpTimestamp(to) => self.header.timestamp = to,
            Event::NewStream(ssrc) => self.header.ssrc = ssrc,
            Event::NewStep(step) => self.step = step,
            Event::Outside(packets) => {
                self.flow_seq = self.flow_seq.wrapping_add(packets);
                self.skip(packets, true);
            }
            Event::Jitter(off) => {
                let timestamp = self.header.timestamp.wrapping_add(off.into());
                header = Some(Header { timestamp, ..self.header });
            }
            Event::Digit => header = Some(Header { payload_type: 101, ..self.header }),
            Event::Swap => {
                let mut next = self.clone();
                next.skip(1, true);
                header = Some(next.header);
            }
            Event::Voice | Event::Padded | Event::Other(_) | Event::Again | Event::Idle(_) => {}
        }
        let mut bytes = [&header.unwrap_or(self.header).bytes()[..], &id.to_be_bytes()].concat();
        match event {
            Event::Padded => bytes[0] |= 0x20,
            Event::Other(n) => drop(bytes.drain(..usize::from(n % 13))),
            _ => {}
        }
        if !matches!(event, Event::Again | Event::Other(_)) {
            self.header.marker = false;
            self.skip(1, true);
        }
        self.flow_seq = self.flow_seq.wrapping_add(1);
        bytes
    }
}

/// Bytes before the payload of the packets after each event, at this interval.
fn sizes(phone: &mut Phone, compressor: &mut Compressor, events: &[Event]) -> Vec<usize> {
    let mut templates = Templates::default();
    let mut now = compressor.used + PACKET;
    let size = |&event: &Event| {
        let (flow_seq, packet) = (phone.flow_seq, phone.packet(event, 9));
        // The event may have changed the number as well.
        let flow_seq =
            if let Event::Outside(n) = event { flow_seq.wrapping_add(n) } else { flow_seq };
        let (next, rtp) = compressor.compress(now, flow_seq, &packet, false);
        *compressor = next;
        now += PACKET;
        match rtp {
            None => RTP_HEADER,
            Some(Rtp::Says { template, step }) => {
                templates.say(now, flow_seq, template, step, &packet);
                RTP_HEADER + SAYING
            }
            Some(rtp) => {
                if let Some(header) = templates.header(now, flow_seq, &rtp) {
                    assert_eq!(header, packet[..RTP_HEADER]);
                }
                rtp.size()
            }
        }
    };
    events.iter().map(size).collect()
}

use Event::Voice;

#[test]
fn headers_take_what_is_counted_by_hand() {
    let mut phone = Phone::new(100, 0, 0);
    let mut compressor = Compressor::default();
    let mut after = |events: &[Event]| sizes(&mut phone, &mut compressor, events);
    let quiet = [Voice; 30];
    // Two packets don't determine a step, three announce the template.
    assert_eq!(after(&[Voice; 7]), [12, 12, 15, 15, 15, 1, 1]);
    after(&quiet);
    // A separate timestamp first, and a template as soon as another packet agrees.
    let silence = [Event::Silence(50), Voice, Voice, Voice, Voice];
    assert_eq!(after(&silence), [5, 15, 15, 15, 1]);
    // Templates change at most three times a second.
    assert_eq!(after(&silence), [5, 5, 5, 5, 5]);
    after(&quiet);
    // A packet was lost before it arrived here.
    assert_eq!(after(&[Event::LostBefore(1), Voice, Voice, Voice, Voice]), [3, 15, 15, 15, 1]);
    after(&quiet);
    // Packets sent outside have numbers as well; after 65,535 they wrap.
    assert_eq!(after(&[Event::Outside(40_000), Voice]), [1, 1]);
    assert_eq!(after(&[Event::Outside(40_000), Voice]), [5, 15]);
    after(&quiet);
    // A single exception makes no template.
    let once = [Event::Jitter(8), Voice, Event::Swap, Voice, Event::Digit, Voice, Event::Padded];
    assert_eq!(after(&once), [5, 1, 3, 1, 12, 1, 12]);
    // The same stream except for its number, which no packet has announced.
    assert_eq!(after(&[Event::NewStream(8), Voice, Voice, Voice, Voice]), [12, 15, 15, 15, 1]);
}

/// The sequence number restarts at 0, and the timestamp continues.
#[test]
fn a_sequence_number_that_wraps_makes_a_template() {
    let mut phone = Phone::new(0xffff - 30, u32::MAX - 31 * 160, 0xffff - 15);
    let mut compressor = Compressor::default();
    let seen = sizes(&mut phone, &mut compressor, &[Voice; 40]);
    let wrap = [15; 3];
    assert_eq!(seen[..5], [12, 12, 15, 15, 15]);
    assert_eq!(seen[5..31], [1; 26]);
    assert_eq!(seen[31..34], wrap);
    assert_eq!(seen[34..], [1; 6]);
}

/// An overtaken packet's announcement doesn't displace a later template, and a packet that names
/// one is understood while it is among the last two.
#[test]
fn a_receiver_keeps_the_last_two_templates() {
    let mut templates = Templates::default();
    let header =
        |ssrc| Header { marker: false, payload_type: 0, seq: 5, timestamp: 9, ssrc }.bytes();
    let named = |template| Rtp::By { template, marker: false, timestamp: None, seq: None };
    let at = ms(50_000);
    let restored = |templates: &mut Templates, at, n: u8| templates.header(at, 3, &named(n));
    for number in [14, 15, 0, 1] {
        templates.say(at, 3, number, 160, &header(number.into()));
    }
    // 15 arrives late, in the slot of 1.
    templates.say(at, 3, 15, 160, &header(15));
    let known: Vec<u8> = (0..16).filter(|&n| restored(&mut templates, at, n).is_some()).collect();
    assert_eq!(known, [0, 1]);
    assert_eq!(restored(&mut templates, at, 1), Some(header(1)));
    // If it is named again it is kept; otherwise it is forgotten before its number is reused.
    assert_eq!(restored(&mut templates, ms(52_999), 1), Some(header(1)));
    assert_eq!(restored(&mut templates, ms(53_000), 0), None);
    assert_eq!(restored(&mut templates, ms(55_998), 1), Some(header(1)));
    assert!(CHANGED_EVERY * u32::from(NUMBERS - 1) >= REUSED_AFTER && UNSAID_AFTER < REUSED_AFTER);
}

/// Two phones through a trunk, and the packets sent, by the number at their end.
struct Line {
    sender: Sender,
    receiver: Receiver,
    phones: [Phone; 2],
    sent: HashMap<u32, Vec<u8>>,
    heard: HashMap<u32, u32>,
    under_way: Vec<(Time, Vec<u8>)>,
    now: Time,
}

impl Line {
    fn new(phones: [Phone; 2]) -> Line {
        let now = ms(1_000);
        let mut sender = Sender::new(Config::new(NodeId(2)), ROOM, 7, 1, now);
        let mut receiver = Receiver::new(now);
        let answer = receiver.on_ask(now, 7, 100, None);
        assert!(sender.on_answer(now, 7, answer));
        let (sent, heard, under_way) = Default::default();
        Line { sender, receiver, phones, sent, heard, under_way, now }
    }

    /// Each phone sends a packet after its event. Both leave together, in as many copies as there
    /// are delays.
    fn step(&mut self, events: [Event; 2], delays_ms: &[u16]) {
        for event in events {
            if let Event::Idle(for_ms) = event {
                self.now += Duration::from_millis(for_ms.into());
            }
        }
        for (port, event) in [1, 2].into_iter().zip(events) {
            let phone = &mut self.phones[usize::from(port) - 1];
            let id = self.sent.len() as u32;
            let payload = phone.packet(event, id);
            self.sender.on_answer(self.now, 7, Answer::Known);
            let outgoing = Outgoing {
                source_port: port,
                destination_port: port,
                flow_seq: phone.flow_seq.wrapping_sub(1),
                metric: Metric::default(),
                deadline: self.now + Duration::from_millis(100),
                way: Duration::ZERO,
                payload: &payload,
            };
            match self.sender.put(self.now, &outgoing, ROOM) {
                Enqueued::Gathered => drop(self.sent.insert(id, payload)),
                Enqueued::Alone => {}
                Enqueued::Full => panic!("two packets fit"),
            }
        }
        if let Some(leaving) = self.sender.take(self.now) {
            for delay in delays_ms {
                let at = self.now + Duration::from_millis((*delay).into());
                self.under_way.push((at, leaving.bytes.clone()));
            }
            self.sender.reclaim(leaving.bytes, false, |_| {});
        }
        self.now += PACKET;
        self.arrive(self.now);
    }

    fn arrive(&mut self, until: Time) {
        self.under_way.sort_by_key(|(at, _)| *at);
        let come = self.under_way.partition_point(|(at, _)| *at < until);
        for (at, bytes) in self.under_way.drain(..come) {
            let Some(Message::Packets(head, rest)) = Message::parse(&bytes) else { panic!() };
            for entry in Entries::new(&head, rest) {
                let heard = self.receiver.hear(at, head.number, entry.expect("well-formed"));
                let Heard::Packet { payload, .. } = heard else { continue };
                let id = u32::from_be_bytes(*payload.last_chunk().expect("an id"));
                assert_eq!(self.sent.get(&id).map(Vec::as_slice), Some(payload));
                *self.heard.entry(id).or_default() += 1;
            }
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        60 => Just(Voice),
        5 => (1u16..100).prop_map(Event::Silence),
        3 => (1u16..4).prop_map(Event::LostBefore),
        1 => Just(Event::Swap),
        1 => any::<u16>().prop_map(Event::JumpSeq),
        1 => any::<u32>().prop_map(Event::JumpTimestamp),
        3 => any::<u8>().prop_map(Event::Jitter),
        1 => (0u32..3).prop_map(Event::NewStream),
        1 => prop_oneof![Just(0u16), Just(240), any::<u16>()].prop_map(Event::NewStep),
        1 => Just(Event::Digit),
        1 => Just(Event::Padded),
        1 => any::<u8>().prop_map(Event::Other),
        1 => Just(Event::Again),
        1 => any::<u16>().prop_map(Event::Outside),
        1 => (0u16..7_000).prop_map(Event::Idle),
    ]
}

fn phone() -> impl Strategy<Value = Phone> {
    let near = |n: u16| prop_oneof![any::<u16>(), n.wrapping_sub(150)..=n];
    let timestamp = prop_oneof![any::<u32>(), u32::MAX - 50_000..=u32::MAX];
    (near(u16::MAX), timestamp, near(u16::MAX)).prop_map(|(s, t, f)| Phone::new(s, t, f))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Copies do no harm either.
    #[test]
    fn without_loss_all_comes_as_it_was_sent(
        phones in [phone(), phone()], steps in vec((event(), event(), 1usize..3), 1..400),
    ) {
        let mut line = Line::new(phones);
        for (a, b, copies) in steps {
            line.step([a, b], &[0, 5][..copies]);
        }
        line.arrive(Time::NEVER);
        prop_assert_eq!(line.receiver.stats().no_template, 0);
        prop_assert_eq!(line.receiver.stats().unknown, 0);
        prop_assert_eq!(line.heard.len(), line.sent.len());
    }

    /// Packets are lost, late by up to two seconds, or duplicated: every packet received still
    /// equals one that was sent.
    #[test]
    fn with_any_loss_nothing_else_comes(
        phones in [phone(), phone()],
        loses in 0u16..100,
        steps in vec((event(), event(), vec((0u16..100, prop_oneof![0u16..100, 0u16..2_000]), 1..3)), 1..400),
    ) {
        let mut line = Line::new(phones);
        for (a, b, copies) in steps {
            let kept = copies.into_iter().filter(|(rng, _)| *rng >= loses);
            let delays: Vec<u16> = kept.map(|(_, delay)| delay).collect();
            line.step([a, b], &delays);
        }
        line.arrive(Time::NEVER);
    }

    /// A malicious sender affects only its own packets.
    #[test]
    fn any_entries_are_heard_without_panic(bytes in vec(any::<u8>(), 0..600), definitions in 0u16..4) {
        let mut receiver = Receiver::new(ms(0));
        receiver.on_ask(ms(0), 7, 100, None);
        let head = super::super::Head { entries: 255, generation: 7, number: 1, remaining_ms: 9 };
        for number in 1..=definitions {
            let context = super::super::Context { source_port: 1, destination_port: 1, deadline_ms: 1 };
            receiver.hear(ms(0), 1, Entry::Definition { number, context });
        }
        for entry in Entries::new(&head, &bytes).flatten() {
            receiver.hear(ms(0), 1, entry);
        }
    }
}

/// Talkspurts of 1.00 s on average, and silence of 1.35 s (ITU-T P.59), with a loss of one in ten
/// trunk packets: checks the losses beyond those packets.
#[test]
fn a_tenth_of_trunk_packets_is_lost_and_little_else() {
    let mut rng = trunkline_base::rng(3, 0);
    let mut line = Line::new([Phone::new(1, 2, 3), Phone::new(60_000, u32::MAX - 9, 65_000)]);
    let mut sent = 0u64;
    let talks = |mean: f64, u: f64| (-mean * 50.0 * (1.0 - u).ln()) as u16;
    let mut left = [talks(1.0, rng.random()), talks(1.0, rng.random())];
    for _ in 0..100_000 {
        let events = [0, 1].map(|n| {
            if left[n] > 0 {
                left[n] -= 1;
                return Voice;
            }
            left[n] = talks(1.0, rng.random());
            Event::Silence(talks(1.35, rng.random()))
        });
        let delays: &[u16] = if rng.random::<f64>() < 0.1 { &[] } else { &[0] };
        line.step(events, delays);
        sent += 2;
    }
    let stats = line.receiver.stats();
    let share = stats.no_template as f64 / sent as f64;
    assert!(share < 0.002, "{share}");
    assert!(stats.no_template > 0, "nothing was tried");
    let packets = line.sender.stats();
    let saved = packets.header_bytes_saved as f64 / packets.packets as f64;
    assert!(saved > 9.0, "{saved} bytes of 12");
}

/// 32 bytes of RTP with G.729: eight of the trunk's head, five for each packet, and one instead of
/// twelve.
#[test]
fn a_trunk_packet_of_two_calls_as_counted_by_hand() {
    let mut line = Line::new([Phone::new(1, 2, 3), Phone::new(4, 5, 6)]);
    for _ in 0..20 {
        line.step([Voice, Voice], &[0]);
    }
    let before = line.sender.stats();
    line.step([Voice, Voice], &[0]);
    let after = line.sender.stats();
    assert_eq!(after.trunk_bytes - before.trunk_bytes, (HEAD + 2 * (ENTRY + 1 + 4)) as u64);
    assert_eq!(after.bytes - before.bytes, 2 * 16);
    assert_eq!(after.header_bytes_saved - before.header_bytes_saved, 2 * 11);
}
