//! A member that lies about streams, in its own name and in those of others, and applications that
//! violate their protocol: each is refused or reset at bounded cost, and other streams continue
//! undisturbed.

use crate::common::liar::Liar;
use crate::common::{at, link, ms};
use std::ops::Range;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::wire::Writer;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::{Routing, Stream, StreamPhase};
use trunkline_overlay::session::wire::stream::{Notice, Request, Reset};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::{
    AckHead, DataHeader, FlowHeader, Frame, Frames, HopHeader, Metric, NodeId, SelectiveAck,
    Service,
};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{AppId, Application, HostId, Io, Topology, World};

const LIAR: NodeId = NodeId(66);
const VICTIM: HostId = HostId(1);
/// The victim's link to the liar, which follows those to nodes 1 and 3.
const TO_LIAR: LinkId = LinkId(2);

/// Port for honest streams; `OPEN_TO_ALL` is for the liar's.
const HONEST: u16 = 5_000;
const OPEN_TO_ALL: u16 = 6_000;

/// Size of an honest transfer at 8 Mbit/s, and the maximum time for it in ms: 6.4 s at the rate of
/// its links, and a second for the window to grow.
const BYTES: u64 = 6_000_000;
const LONGEST: u64 = 8_000;

/// Bits of a segment's first byte on the wire, and of a stream's packet.
const OPEN: u8 = 0x01;
const END: u8 = 0x02;
const RESET: u8 = 0x04;
const ACK: u8 = 0x08;
const ASK: u8 = 0x10;
const DATA: u8 = 0x40;
const NUMBER: u8 = 0x80;
const STREAM: u8 = 0x10;
const MARKED: u8 = 0x20;
const TAG: u16 = 9;
const PORT: u16 = 7;
/// The liar's number in its requests to open a stream.
const OPENER: u32 = 77;

/// Accepts every stream, and either writes endlessly or only reads.
#[derive(Default)]
struct Open {
    writes: bool,
    accepted: u64,
    resets: Vec<Reset>,
}

impl Application for Open {
    fn start(&mut self, io: &mut Io<'_>) {
        io.send(&ToNode::Stream(Request::Listen { backlog: u16::MAX }));
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        let ToClient::Stream(notice) = message else { return };
        let mut write = |mut credit: u32| {
            while self.writes && credit > 0 {
                let len = credit.min(8_192);
                io.send(&ToNode::Stream(Request::Data(&vec![7; len as usize])));
                credit -= len;
            }
        };
        match *notice {
            Notice::Incoming { token, .. } => {
                self.accepted += 1;
                let (version, credit) = (SESSION_VERSION, 1 << 20);
                io.send(&ToNode::Stream(Request::Accept { version, token, credit }));
            }
            Notice::Connected { credit, .. } | Notice::Credit(credit) => write(credit),
            Notice::Reset(why) => self.resets.push(why),
            Notice::Data(_) | Notice::Shut | Notice::Finished => {}
        }
    }
}

struct Scene {
    world: World,
    liar: Liar,
    numbers: u16,
    /// The number of the stream [`OWN`], once it has been opened.
    stream: u32,
    honest: (AppId<StreamSource>, AppId<StreamSink>),
    open: AppId<Open>,
}

/// Nodes 1, 2 and 3 in a row, and a liar as neighbour of node 2, the victim. There, one application
/// accepts all streams, and another reads node 1's transfer from 5 s on.
fn scene(writes: bool) -> Scene {
    let rate = Some(Bitrate::from_bps(8_000_000));
    let model = || LinkModel { rate, ..link(ms(10), Loss::None) };
    let mut t = Topology::new();
    let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
    t.link(hosts[0], hosts[1], model(), model());
    t.link(hosts[1], hosts[2], model(), model());
    t.seal();
    t.link_state(&Routing::default());
    t.config_mut(VICTIM).sealing.as_mut().unwrap().unconfigured_peers = 3;
    t.config_mut(VICTIM).max_sessions = 600;
    let mut world = t.build(1).unwrap();
    let open = world.attach(VICTIM, OPEN_TO_ALL, Open { writes, ..Open::default() }).unwrap();
    let sink = world.attach(VICTIM, HONEST, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(2), HONEST, at(5_000), Writing::Bulk(BYTES));
    let honest = (world.attach(hosts[0], 0, source).unwrap(), sink);
    world.run_until(at(3_000));
    let mut liar = Liar::new(LIAR, "", (VICTIM, NodeId(2)));
    assert!(liar.greet(&mut world));
    liar.introduce(&mut world);
    let mut scene = Scene { world, liar, numbers: 0, stream: 0, honest, open };
    scene.run(3_000..4_500, |_, _| {});
    let update = scene.liar.update(scene.world.now().as_nanos(), &[NodeId(2)]);
    scene.liar.say(&mut scene.world, &update);
    scene.run(4_500..4_900, |_, _| {});
    scene
}

/// Fields of a segment that the liar chooses.
#[derive(Clone, Copy, Default)]
struct Lie<'a> {
    flags: u8,
    /// The stream's number; that of [`OWN`] if it is 0 and its flag isn't set.
    number: u32,
    next: u64,
    window: u16,
    marks: u8,
    copies: u8,
    ranges: &'a [(u32, u32)],
    position: u64,
    bytes: &'a [u8],
}

impl Lie<'_> {
    fn payload(&self) -> Vec<u8> {
        let mut out = [0; 1_200];
        let mut w = Writer::new(&mut out);
        w.u8(self.flags).unwrap();
        if self.flags & NUMBER != 0 {
            w.u32(self.number).unwrap();
        }
        if self.flags & OPEN != 0 {
            w.u32(OPENER).unwrap();
        }
        if self.flags & ACK != 0 {
            w.u48(self.next).unwrap();
            w.u16(self.window).unwrap();
            w.bytes(&[self.marks, self.copies, self.ranges.len() as u8]).unwrap();
            for &(first, len) in self.ranges {
                w.u32(first).unwrap();
                w.u32(len).unwrap();
            }
        }
        if self.flags & DATA != 0 {
            w.u48(self.position).unwrap();
            w.bytes(self.bytes).unwrap();
        }
        w.written().to_vec()
    }
}

/// Claimed source, ports (source and destination), tag and mark of a packet.
#[derive(Clone, Copy)]
struct About {
    from: NodeId,
    ports: (u16, u16),
    tag: u16,
    marked: bool,
}

const OWN: About = About { from: LIAR, ports: (PORT, OPEN_TO_ALL), tag: TAG, marked: false };

/// All streams that end at the victim.
fn streams(world: &World) -> Vec<Stream> {
    world.node(VICTIM).streams().collect()
}

impl Scene {
    /// Calls `act` every millisecond of `span`; the liar's link stays up, and acknowledges
    /// everything.
    fn run(&mut self, span: Range<u64>, mut act: impl FnMut(&mut Scene, u64)) {
        for t in span {
            self.world.run_until(at(t));
            if t % 50 == 0 {
                self.liar.hello(&mut self.world);
            }
            if t % 5 == 0 {
                self.acknowledge_link();
            }
            act(self, t);
        }
    }

    fn acknowledge_link(&mut self) {
        let Some(link) = self.world.node(VICTIM).link(TO_LIAR) else { return };
        let sent = link.stats().of(Service::Reliable).originals.envelopes as u16;
        if sent == 0 {
            return;
        }
        // The number of the victim's first start.
        let sender = 1;
        let (next, latest) = (sent, sent.wrapping_sub(1));
        let head = AckHead { instance: 1, sender, epoch: 0, next, latest, delay: ms(0) };
        let mut frame = [0; 64];
        let mut w = Writer::new(&mut frame);
        SelectiveAck::emit(&head, &[], &mut w).unwrap();
        self.liar.say(&mut self.world, w.written());
    }

    fn throw(&mut self, about: About, lie: Lie<'_>) {
        let frame = self.frame(about, lie);
        self.liar.say(&mut self.world, &frame);
    }

    fn frame(&mut self, about: About, lie: Lie<'_>) -> Vec<u8> {
        let lie = match about.from == LIAR && lie.flags & OPEN == 0 {
            true => Lie { flags: lie.flags | NUMBER, number: self.stream, ..lie },
            false => lie,
        };
        self.frame_of(about, &lie.payload())
    }

    fn frame_of(&mut self, about: About, payload: &[u8]) -> Vec<u8> {
        let header = DataHeader {
            flow: FlowHeader {
                service: Service::Reliable,
                metric: Metric::default(),
                source: about.from,
                destination: NodeId(2),
                source_port: about.ports.0,
                destination_port: about.ports.1,
                flow_seq: about.tag,
            },
            hop: HopHeader {
                recovered: false,
                hop_limit: 9,
                link_seq: self.numbers,
                remaining_ms: STREAM | if about.marked { MARKED } else { 0 },
            },
        };
        self.numbers = self.numbers.wrapping_add(1);
        let mut head = [0; 64];
        let mut w = Writer::new(&mut head);
        header.emit(payload.len() as u16, &mut w).unwrap();
        [w.written(), payload].concat()
    }

    /// Requests a stream, and returns the number in the answer.
    fn request(&mut self, about: About, lie: Lie<'_>) -> Option<u32> {
        let frame = self.frame(about, lie);
        let answers = self.liar.ask(&mut self.world, &frame);
        answers.iter().flat_map(|frames| Frames::new(frames)).find_map(|frame| match frame {
            Ok(Frame::Data(h, [flags, rest @ ..]))
                if h.flow.flow_seq == about.tag && flags & (NUMBER | OPEN) == NUMBER | OPEN =>
            {
                rest.first_chunk().map(|number| u32::from_be_bytes(*number))
            }
            _ => None,
        })
    }

    /// Opens the stream `about` as its opener does, and returns whether it could.
    fn open_as(&mut self, about: About, window: u16) -> bool {
        let lie = Lie { flags: OPEN | ACK, window: window / 256, ..Lie::default() };
        let Some(number) = self.request(about, lie) else { return false };
        self.stream = number;
        self.throw(about, Lie { flags: lie.flags | NUMBER, number, ..lie });
        true
    }

    /// Opens the stream [`OWN`], with a window of this many bytes.
    fn open(&mut self, window: u16) {
        assert!(self.open_as(OWN, window));
    }

    /// The liar's streams at the victim.
    fn of_liar(&self) -> Vec<Stream> {
        streams(&self.world).into_iter().filter(|s| s.peer == LIAR).collect()
    }

    /// Asserts that the honest transfer had its full rate, and that no state remains in the end.
    fn others_go_on(&mut self) {
        let now = self.world.now().as_micros() / 1_000;
        self.run(now..now.max(15_000), |_, _| {});
        let (source, sink) = self.honest;
        let (source, sink) = (self.world.app(source), self.world.app(sink));
        assert_eq!((source.reset, &sink.resets), (None, &vec![]));
        assert_eq!((sink.read, sink.wrong), (BYTES, 0));
        let took = sink.ended.expect("an end").since(at(5_000));
        assert!(took < ms(LONGEST), "{took:?}");
        // The liar is silent from here on.
        let end = self.world.now() + ms(150_000);
        self.world.run_until(end);
        assert_eq!(self.of_liar(), []);
        assert_eq!(self.world.node(VICTIM).stats().streams.open, 0);
        assert_eq!(self.world.node(HostId(0)).stats().streams.open, 0);
    }

    fn resets(&self) -> &[Reset] {
        &self.world.app(self.open).resets
    }
}

/// Runs a liar that sends the same lie every millisecond from 5 s to 13 s about a stream that it
/// has opened.
fn insist(window: u16, mut what: impl FnMut(&mut Scene, u64)) -> Scene {
    let mut scene = scene(true);
    scene.open(window);
    let mut most = 0;
    scene.run(4_900..13_000, |scene, t| {
        if t >= 5_000 {
            what(scene, t - 5_000);
        }
        let streams = scene.of_liar();
        most = most.max(streams.iter().map(|s| s.window).max().unwrap_or(0));
        assert!(streams.len() <= 1, "{streams:?}");
        let kept: u64 = streams.iter().map(|s| s.unacknowledged + s.unread).sum();
        assert!(kept <= 4 << 20, "{kept} bytes");
    });
    assert!(most <= 4 << 20, "a window of {most}");
    scene
}

#[test]
fn what_was_never_sent_is_acknowledged() {
    for ranges in [&[][..], &[(40_000_000, 1)]] {
        let next = if ranges.is_empty() { 40_000_000 } else { 0 };
        let mut scene = insist(60_000, |scene, _| {
            scene.throw(OWN, Lie { flags: ACK, next, ranges, window: 200, ..Lie::default() });
        });
        assert_eq!(scene.resets(), [Reset::Protocol]);
        scene.others_go_on();
    }
}

/// The window is probed every few seconds, and the data kept for the stream stay within the limit
/// for one stream.
#[test]
fn a_window_that_never_opens() {
    let mut asked = 0;
    let mut scene = insist(0, |scene, t| {
        if t % 100 == 0 {
            scene.throw(OWN, Lie { flags: ACK, ..Lie::default() });
        }
        let link = scene.world.node(VICTIM).link(TO_LIAR).unwrap();
        asked = link.stats().of(Service::Reliable).originals.envelopes;
    });
    assert!((1..20).contains(&asked), "{asked} segments in 8 s");
    assert_eq!(scene.of_liar().len(), 1);
    scene.others_go_on();
    assert_eq!(scene.resets(), [Reset::Timeout], "once it says nothing");
}

#[test]
fn data_past_the_window_and_behind_the_end() {
    let past = Lie { flags: DATA, position: 3 << 20, bytes: b"x", ..Lie::default() };
    let end = Lie { flags: DATA | END, bytes: b"abc", ..Lie::default() };
    let behind = Lie { flags: DATA, position: 3, bytes: b"d", ..Lie::default() };
    let other_end = Lie { flags: DATA | END, bytes: b"ab", ..Lie::default() };
    for lies in [&[past][..], &[end, behind], &[end, other_end]] {
        let mut scene = insist(0, |scene, _| lies.iter().for_each(|&lie| scene.throw(OWN, lie)));
        assert_eq!(scene.resets(), [Reset::Protocol]);
        scene.others_go_on();
    }
}

/// Acknowledges the data sent in reverse, byte by byte, as ranges and as cumulative numbers.
#[test]
fn acknowledgements_of_one_byte_in_reverse() {
    let mut scene = insist(60_000, |scene, t| {
        for k in 0..4 {
            let at = 50_000u32.saturating_sub(4 * t as u32 + k).max(1);
            let next = if t % 2 == 0 { 0 } else { u64::from(at) };
            let ranges = [(at + 1 - next as u32, 1)];
            let lie = Lie { flags: ACK, next, ranges: &ranges, window: 200, ..Lie::default() };
            scene.throw(OWN, lie);
        }
    });
    scene.others_go_on();
}

/// Marks in each packet and each acknowledgement slow down only the liar's own stream.
#[test]
fn marks_without_end() {
    let mut acknowledged = 0;
    let mut scene = insist(60_000, |scene, t| {
        let of_liar = scene.of_liar();
        let Some(stream) = of_liar.first() else { return };
        acknowledged = stream.sent;
        let next = (stream.sent + 1_000).min(stream.sent + stream.unacknowledged);
        let lie = Lie { flags: ACK | DATA, marks: t as u8, window: 200, ..Lie::default() };
        let about = About { marked: true, ..OWN };
        scene.throw(about, Lie { next: if t % 40 == 0 { next } else { 0 }, ..lie });
    });
    let window = scene.of_liar().first().map_or(0, |s| s.window);
    assert!(window < 20_000, "{window}");
    scene.others_go_on();
}

/// Reports of copies that were never sent undo one reduction each, and nothing more: the window
/// stays within its maximum.
#[test]
fn copies_without_end() {
    let mut scene = insist(60_000, |scene, t| {
        let of_liar = scene.of_liar();
        let Some(stream) = of_liar.first() else { return };
        let next = if t % 500 == 0 { stream.sent } else { 0 };
        let lie = Lie { flags: ACK, copies: t as u8, next, window: u16::MAX, ..Lie::default() };
        scene.throw(OWN, lie);
    });
    let window = scene.of_liar().first().map_or(0, |s| s.window);
    assert!(window <= 4 << 20, "{window}");
    scene.others_go_on();
}

/// From every port and with every tag, as many streams as fit into eight seconds: the liar gets
/// half of all streams, and others can still open theirs.
#[test]
fn streams_without_end() {
    let mut scene = scene(false);
    let late: Vec<_> = (0..8u16)
        .map(|k| {
            let source = StreamSource::new(NodeId(2), 7_000 + k, at(9_000), Writing::Bulk(10_000));
            let sink = scene.world.attach(VICTIM, 7_000 + k, StreamSink::default()).unwrap();
            (scene.world.attach(HostId(2), 0, source).unwrap(), sink)
        })
        .collect();
    let (mut n, mut most) = (0u32, 0);
    scene.run(4_900..13_000, |scene, _| {
        for _ in 0..20 {
            n += 1;
            let (port, tag) = ((n / 7) as u16, (n * 31) as u16);
            scene.open_as(About { ports: (port, OPEN_TO_ALL), tag, ..OWN }, 9 * 256);
        }
        most = most.max(scene.of_liar().len());
    });
    assert_eq!(most, 512);
    for (source, sink) in late {
        let (source, sink) = (scene.world.app(source), scene.world.app(sink));
        assert_eq!((source.reset, sink.read, sink.ended.is_some()), (None, 10_000, true));
    }
    assert!(scene.world.app(scene.open).accepted < 60_000);
    scene.others_go_on();
}

/// Requests by nodes that don't exist, and by others that know nothing of them, take no places.
#[test]
fn requests_alone_take_no_places() {
    let mut scene = scene(false);
    let mut n = 0u32;
    scene.run(4_900..13_000, |scene, _| {
        for _ in 0..20 {
            n += 1;
            let from = if n.is_multiple_of(2) { NodeId(1) } else { NodeId(1_000 + n) };
            let about = About { from, ports: (n as u16, OPEN_TO_ALL), tag: n as u16, ..OWN };
            scene.throw(about, Lie { flags: OPEN | ACK, window: 9, ..Lie::default() });
            let guess = Lie { flags: OPEN | NUMBER | ACK, number: n, window: 9, ..Lie::default() };
            scene.throw(about, guess);
        }
        assert_eq!(streams(&scene.world).iter().filter(|s| s.port == OPEN_TO_ALL).count(), 0);
    });
    assert_eq!(scene.world.app(scene.open).accepted, 0);
    scene.others_go_on();
}

/// In the name of node 1, with all fields of its stream known but the tag: requests to open,
/// resets, ends and acknowledgements.
#[test]
fn lies_in_the_name_of_another_break_nothing() {
    let mut scene = scene(false);
    let mut tag = 0u16;
    scene.run(4_900..13_000, |scene, _| {
        let streams = streams(&scene.world);
        let honest = streams.into_iter().find(|s| s.peer == NodeId(1));
        let Some(honest) = honest.filter(|s| s.state != StreamPhase::Over) else { return };
        let ports = (honest.peer_port, honest.port);
        for flags in [OPEN | ACK, ACK | ASK, DATA | END] {
            tag = tag.wrapping_add(1);
            let about = About { from: NodeId(1), ports, tag, marked: false };
            scene.throw(about, Lie { flags, next: 1, ..Lie::default() });
        }
    });
    assert!(tag > 1_000);
    scene.others_go_on();
}

/// Resets in the name of node 1, whose ports and position are known, with each tag twice: the number
/// of 32 bits is guessed.
#[test]
fn guessed_resets_break_nothing() {
    let mut scene = scene(false);
    let mut number = 0x9e37_79b9u32;
    let mut count = 0u32;
    scene.run(5_100..13_000, |scene, _| {
        let streams = streams(&scene.world);
        let honest = streams.into_iter().find(|s| s.peer == NodeId(1));
        let Some(honest) = honest.filter(|s| s.state != StreamPhase::Over) else { return };
        let ports = (honest.peer_port, honest.port);
        for _ in 0..40 {
            let about = About { from: NodeId(1), ports, tag: count as u16, marked: false };
            number = number.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let position = &honest.received.to_be_bytes()[2..];
            let payload = [&[RESET | NUMBER, 2][..], &number.to_be_bytes(), position].concat();
            let frame = scene.frame_of(about, &payload);
            scene.liar.say(&mut scene.world, &frame);
            count += 1;
        }
    });
    assert!(count > 2 << 16, "{count} resets");
    scene.others_go_on();
}

/// Whether the liar's stream is there if it shows the number `wait` ms after it was given.
fn opens_after(wait: u64) -> bool {
    let mut scene = scene(false);
    let lie = Lie { flags: OPEN | ACK, window: 9, ..Lie::default() };
    let number = scene.request(OWN, lie).unwrap();
    scene.run(4_900..4_900 + wait, |_, _| {});
    scene.throw(OWN, Lie { flags: lie.flags | NUMBER, number, ..lie });
    !scene.of_liar().is_empty()
}

#[test]
fn a_number_is_shown_in_half_a_minute_or_not_at_all() {
    assert!([0, 15_000, 29_000].into_iter().all(opens_after));
    assert!(!opens_after(61_000));
}

/// The segment that has opened a stream comes again, after its stream and a hundred others of the
/// same node have ended.
#[test]
fn a_late_segment_opens_no_ended_stream_again() {
    let mut scene = scene(false);
    let lie = Lie { flags: OPEN | ACK, window: 9, ..Lie::default() };
    let mut shown = Vec::new();
    for n in 0..101 {
        let about = About { ports: (100 + n, OPEN_TO_ALL), ..OWN };
        let number = scene.request(about, lie).unwrap();
        let show = Lie { flags: lie.flags | NUMBER, number, ..lie };
        scene.throw(about, show);
        shown.push((about, show));
        let t = 5_000 + 20 * u64::from(n);
        scene.run(t..t + 19, |_, _| {});
        let reset = [&[RESET | NUMBER, 6][..], &number.to_be_bytes(), &[0; 6]].concat();
        let frame = scene.frame_of(about, &reset);
        scene.liar.say(&mut scene.world, &frame);
    }
    scene.run(8_000..8_100, |_, _| {});
    assert_eq!((scene.of_liar(), scene.world.app(scene.open).accepted), (vec![], 101));
    for (about, show) in shown {
        scene.throw(about, show);
    }
    scene.run(8_100..8_200, |_, _| {});
    assert_eq!((scene.of_liar(), scene.world.app(scene.open).accepted), (vec![], 101));
}

/// Reliable datagrams of 200 invented nodes, at twice the rate of the link that a stream takes: they
/// have the turn of one.
#[test]
fn invented_sources_share_a_turn() {
    let mut scene = scene(false);
    // Node 1 sends to node 3, over node 2 as the liar does.
    let sink = scene.world.attach(HostId(2), HONEST, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(3), HONEST, at(13_000), Writing::Bulk(1 << 30));
    scene.world.attach(HostId(0), 0, source).unwrap();
    let mut n = 0u32;
    let mut before = 0;
    scene.run(12_000..23_000, |scene, t| {
        for _ in 0..2 {
            n += 1;
            let flow = FlowHeader {
                service: Service::Reliable,
                metric: Metric::default(),
                source: NodeId(1_000 + n % 200),
                destination: NodeId(3),
                source_port: 9,
                destination_port: 9,
                flow_seq: n as u16,
            };
            let link_seq = scene.numbers;
            let hop = HopHeader { recovered: false, hop_limit: 9, link_seq, remaining_ms: 0 };
            scene.numbers = scene.numbers.wrapping_add(1);
            let mut frame = [0; 1_100];
            let mut w = Writer::new(&mut frame);
            DataHeader { flow, hop }.emit(1_000, &mut w).unwrap();
            w.bytes(&[0; 1_000]).unwrap();
            scene.liar.say(&mut scene.world, w.written());
        }
        if t == 15_000 {
            before = scene.world.app(sink).read;
        }
    });
    let mbps = 8e-3 * (scene.world.app(sink).read - before) as f64 / 8_000.0;
    // Half of what it carries alone.
    assert!(mbps > 3.2, "{mbps:.2} of 8 Mbit/s");
}

/// Sends the given messages, and records the resets that it receives.
#[derive(Default)]
struct Rude {
    says: Vec<Vec<u8>>,
    then: Vec<Vec<u8>>,
    heard: Vec<Reset>,
    connected: bool,
}

fn said(request: Request<'_>) -> Vec<u8> {
    let message = ToNode::Stream(request);
    let mut head = [0; 32];
    let mut w = Writer::new(&mut head);
    message.emit_head(&mut w).unwrap();
    [w.written(), message.payload()].concat()
}

impl Application for Rude {
    fn start(&mut self, io: &mut Io<'_>) {
        self.says.iter().for_each(|m| io.send(&ToNode::parse(m).unwrap()));
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        match message {
            ToClient::Stream(Notice::Connected { .. }) => {
                self.connected = true;
                self.then.iter().for_each(|m| io.send(&ToNode::parse(m).unwrap()));
            }
            ToClient::Stream(Notice::Reset(why)) => self.heard.push(*why),
            _ => {}
        }
    }
}

/// Each application is notified of the misuse once, the other end is reset, and no state remains.
#[test]
fn applications_that_misuse_their_session() {
    let connect = || {
        let (to, port) = (NodeId(2), OPEN_TO_ALL);
        said(Request::Connect { to, port, messages: false, credit: u32::MAX })
    };
    let listen = || said(Request::Listen { backlog: 3 });
    let data = |len| said(Request::Data(&vec![1; len]));
    let credit = || said(Request::Credit(u32::MAX));
    let misuse = [
        // More data than there is credit for, and data after the end of writing.
        (vec![connect()], vec![data(8_000); 400]),
        (vec![connect()], vec![said(Request::Shut), data(1)]),
        (vec![connect(), data(1)], vec![]),
        // An impossible amount of credit.
        (vec![connect()], vec![credit(); 100]),
        // Requests in the wrong order.
        (vec![connect(), connect()], vec![]),
        (vec![connect(), listen()], vec![]),
        (vec![listen(), connect()], vec![]),
        (vec![listen(), listen(), connect(), data(9)], vec![]),
        (vec![data(1)], vec![]),
        (vec![credit(); 50], vec![]),
        (vec![said(Request::Shut)], vec![]),
    ];
    let mut scene = scene(false);
    let count = misuse.len() as u64;
    let rude: Vec<_> = misuse
        .into_iter()
        .map(|(says, then)| {
            let app = Rude { says, then, ..Rude::default() };
            scene.world.attach(HostId(0), 0, app).unwrap()
        })
        .collect();
    scene.run(4_900..13_000, |_, _| {});
    for (k, id) in rude.into_iter().enumerate() {
        assert_eq!(scene.world.app(id).heard, [Reset::Misuse], "{k}");
    }
    assert!(scene.resets().len() as u64 <= count);
    assert!(scene.resets().iter().all(|&why| why == Reset::Aborted), "{:?}", scene.resets());
    scene.others_go_on();
}

/// Invented tokens, each in a new session, because accepting a stream requires one.
#[test]
fn tokens_that_nobody_gave() {
    let mut scene = scene(false);
    let (version, credit) = (SESSION_VERSION, 9);
    let accept = |token| said(Request::Accept { version, token, credit });
    let app = Rude { says: (0..200).map(accept).collect(), ..Rude::default() };
    let id = scene.world.attach(VICTIM, 0, app).unwrap();
    scene.run(4_900..13_000, |_, _| {});
    let app = scene.world.app(id);
    assert!(!app.connected && app.heard == vec![Reset::Unknown; 200]);
    scene.others_go_on();
}
