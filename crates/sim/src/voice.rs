//! Telephone calls as the network sees them: a packet every 20 ms.

mod log;

use crate::app::{AppId, Application, Io};
use crate::world::World;
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::Time;
use trunkline_base::stats::{Ratio, quantile};
use trunkline_base::wire::{Reader, Writer};
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{Metric, NodeId, Service};

pub use log::{FlowLog, VoiceLog};

/// Length of a voice packet: an RTP header (RFC 3550), then 20 ms of G.711, 12 + 160 bytes.
pub const VOICE_PACKET: usize = RTP_HEADER + 160;
/// Maximum of [`VoiceSource::bytes`], in bytes.
pub const MAX_PACKET: usize = 1_400;

const RTP_HEADER: usize = 12;
/// Length of the RTP header, the send time and the packet's number, in bytes.
const STAMPED: usize = RTP_HEADER + 16;
/// Samples per millisecond of telephone speech.
const CLOCK_PER_MS: u64 = 8;
/// Limit for packet numbers: no source here sends as many packets in one flow, half a year of
/// speech.
const MAX_NUMBER: u64 = 1 << 30;

/// Sends packets of equal size at equal intervals, each with an RTP header, its number, and its
/// send time.
#[derive(Clone, Debug)]
pub struct VoiceSource {
    /// Destination node; ignored on a plain path.
    pub to: NodeId,
    /// Port at the destination node.
    pub port: u16,
    /// Service that carries the packets.
    pub service: Service,
    /// Metric used to route the packets; `None` leaves it to the node.
    pub metric: Option<Metric>,
    /// Deadline of each packet, 1 to 255 ms.
    pub deadline_ms: u8,
    /// Time of the first packet.
    pub start: Time,
    /// Number of packets to send.
    pub count: u64,
    /// Interval between two packets.
    pub spacing: Duration,
    /// Size of an RTP packet, 28 to [`MAX_PACKET`] bytes.
    pub bytes: usize,
    sent: u64,
    refused: u64,
}

impl VoiceSource {
    /// A G.711 call of `count` packets from `start` on, 20 ms apart, with a deadline of 100 ms.
    pub fn new(to: NodeId, port: u16, service: Service, start: Time, count: u64) -> VoiceSource {
        VoiceSource {
            to,
            port,
            service,
            metric: None,
            deadline_ms: 100,
            start,
            count,
            spacing: Duration::from_millis(20),
            bytes: VOICE_PACKET,
            sent: 0,
            refused: 0,
        }
    }

    /// Number of packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Number of packets that the node refused, not counting those without a route.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Send time of packet `number`, past or future.
    pub fn sent_at(&self, number: u64) -> Time {
        let spacing = u64::try_from(self.spacing.as_nanos()).unwrap_or(u64::MAX);
        self.start + Duration::from_nanos(spacing.saturating_mul(number))
    }
}

/// Writes the beginning of a call's packet: an RTP header (RFC 3550), the send time and the
/// packet's number. `first` is when the call's first packet was due.
///
/// # Panics
///
/// If `packet` has less than 28 bytes.
pub fn write(packet: &mut [u8], port: u16, (first, number): (Time, u64), now: Time) {
    let mut w = Writer::new(packet);
    let timestamp = first.as_micros() / 1_000 + number * 20;
    let written = w
        .u8(0x80) // version 2
        .and_then(|()| w.u8(0)) // PCMU (RFC 3551)
        .and_then(|()| w.u16(number as u16))
        .and_then(|()| w.u32((timestamp * CLOCK_PER_MS) as u32))
        .and_then(|()| w.u32(u32::from(port)))
        .and_then(|()| w.u64(now.as_nanos()))
        .and_then(|()| w.u64(number));
    assert!(written.is_ok(), "a source's packets have {STAMPED} bytes or more");
}

/// Reads the send time and the number that [`write()`] has written; `None` if the packet has none.
pub fn read(packet: &[u8]) -> Option<(Time, u64)> {
    let mut r = Reader::new(packet);
    let (sent, number) = r.bytes(RTP_HEADER).and_then(|_| Ok((r.u64()?, r.u64()?))).ok()?;
    (number < MAX_NUMBER).then_some((Time::from_nanos(sent), number))
}

impl Application for VoiceSource {
    fn start(&mut self, io: &mut Io<'_>) {
        assert!(
            (STAMPED..=MAX_PACKET).contains(&self.bytes) && !self.spacing.is_zero(),
            "a voice source sends {STAMPED} to {MAX_PACKET} bytes, and not all at once"
        );
        if self.metric.is_some() {
            io.send(&ToNode::Metric(self.metric));
        }
        if self.count > 0 {
            io.wake_at(self.start);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let mut packet = [0; MAX_PACKET];
        let packet = &mut packet[..self.bytes];
        write(packet, self.port, (self.start, self.sent), io.now());
        let &mut VoiceSource { to, port, service, deadline_ms, .. } = self;
        io.send(&ToNode::Send { service, deadline_ms, to, port, payload: packet });
        self.sent += 1;
        if self.sent < self.count {
            io.wake_at(self.sent_at(self.sent));
        }
    }

    fn receive(&mut self, message: &ToClient<'_>, _io: &mut Io<'_>) {
        if matches!(message, ToClient::Error { .. }) {
            self.refused += 1;
        }
    }
}

/// Arrival of a packet at a sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// One-way delay from the sending application.
    pub delay: Duration,
    /// Whether a link lost the packet and recovered it.
    pub recovered: bool,
}

/// Record of one flow at a [`VoiceSink`].
#[derive(Clone, Default, Debug)]
pub struct VoiceFlow {
    /// First arrival of each packet, by number, up to the highest number that arrived.
    pub arrivals: Vec<Option<Arrival>>,
    /// Number of packets that arrived, each counted once.
    pub received: u64,
    /// Number of copies of packets that had already arrived.
    pub duplicates: u64,
    /// Number of packets that arrived after a later one.
    pub out_of_order: u64,
}

impl VoiceFlow {
    fn record(&mut self, number: u64, arrival: Arrival) {
        let at = number as usize;
        if at >= self.arrivals.len() {
            self.arrivals.resize(at + 1, None);
        } else if self.arrivals[at].is_some() {
            self.duplicates += 1;
            return;
        } else {
            self.out_of_order += 1;
        }
        self.arrivals[at] = Some(arrival);
        self.received += 1;
    }
}

/// Receives the packets of [`VoiceSource`]s.
#[derive(Clone, Default, Debug)]
pub struct VoiceSink {
    /// Flows by source node (0 on a plain path) and port.
    pub flows: BTreeMap<(NodeId, u16), VoiceFlow>,
    /// Number of packets that no [`VoiceSource`] sent.
    pub foreign: u64,
}

impl Application for VoiceSink {
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        match heard(message, io.now()) {
            Heard::Packet { from, number, arrival } => {
                self.flows.entry(from).or_default().record(number, arrival);
            }
            Heard::Foreign => self.foreign += 1,
            Heard::Nothing => {}
        }
    }
}

/// A message as a sink classifies it.
enum Heard {
    /// A packet sent by a source.
    Packet { from: (NodeId, u16), number: u64, arrival: Arrival },
    /// A packet that no source sent.
    Foreign,
    /// A message without a packet.
    Nothing,
}

fn heard(message: &ToClient<'_>, now: Time) -> Heard {
    let &ToClient::Received { recovered, from, port, payload, .. } = message else {
        return Heard::Nothing;
    };
    match read(payload) {
        Some((sent, number)) => {
            let arrival = Arrival { delay: now.since(sent), recovered };
            Heard::Packet { from: (from, port), number, arrival }
        }
        None => Heard::Foreign,
    }
}

/// The data that [`CallOutcome`] needs from a sink.
pub trait Sinks: Application {
    /// First arrival of each packet in the flow from this node and port, by number.
    fn arrivals(&self, from: (NodeId, u16)) -> impl Fn(u64) -> Option<Arrival>;

    /// Number of duplicate packets in that flow.
    fn duplicates(&self, from: (NodeId, u16)) -> u64;
}

impl Sinks for VoiceSink {
    fn arrivals(&self, from: (NodeId, u16)) -> impl Fn(u64) -> Option<Arrival> {
        let flow = self.flows.get(&from);
        move |number| *flow?.arrivals.get(number as usize)?
    }

    fn duplicates(&self, from: (NodeId, u16)) -> u64 {
        self.flows.get(&from).map_or(0, |f| f.duplicates)
    }
}

/// A source, and the sink that it sends to.
pub type Call<S = VoiceSink> = (AppId<VoiceSource>, AppId<S>);

/// Number of packets sent in one second, and what became of them.
#[derive(Default)]
struct Second {
    sent: u64,
    lost: u64,
    late: u64,
    /// Lost, late or recovered.
    hit: u64,
}

/// Outcome of the packets of one or more calls.
#[derive(Clone, Debug)]
pub struct CallOutcome {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets that never arrived.
    pub lost: u64,
    /// Number of packets that arrived too late.
    pub late: u64,
    /// Number of packets that a link lost and recovered, in time or late.
    pub recovered: u64,
    /// Number of duplicate packets.
    pub duplicates: u64,
    /// Ratio of lost or late packets, clustered by second of sending, as those that remain of all
    /// that were lost, late or recovered.
    pub missed: Ratio,
    /// Ratio of lost packets, with an interval of the same kind.
    pub residual: Ratio,
    /// Delays of all packets that arrived, in ascending order.
    pub delays: Vec<Duration>,
}

impl CallOutcome {
    /// Outcome of `calls` in `world`; packets with a delay above `late_after` are late.
    pub fn of<S: Sinks>(world: &World, calls: &[Call<S>], late_after: Duration) -> CallOutcome {
        let origin = |source| world.origin(source);
        let twice = |&(source, sink): &Call<S>| world.app(sink).duplicates(origin(source));
        let packets = calls.iter().flat_map(|&(source, sink)| {
            let arrival = world.app(sink).arrivals(origin(source));
            let source = world.app(source);
            (0..source.sent()).map(move |number| (source.sent_at(number), arrival(number)))
        });
        CallOutcome::of_packets(packets, calls.iter().map(twice).sum(), late_after)
    }

    /// Outcome of packets given by send time and first arrival, plus `duplicates` further copies.
    pub fn of_packets(
        packets: impl IntoIterator<Item = (Time, Option<Arrival>)>,
        duplicates: u64,
        late_after: Duration,
    ) -> CallOutcome {
        let mut seconds: BTreeMap<u64, Second> = BTreeMap::new();
        let (mut recovered, mut delays) = (0, Vec::new());
        for (at, arrival) in packets {
            let second = seconds.entry(at.as_nanos() / 1_000_000_000).or_default();
            let late = arrival.is_some_and(|a| a.delay > late_after);
            let again = arrival.is_some_and(|a| a.recovered);
            second.sent += 1;
            second.lost += u64::from(arrival.is_none());
            second.late += u64::from(late);
            second.hit += u64::from(arrival.is_none() || late || again);
            recovered += u64::from(again);
            delays.extend(arrival.map(|a| a.delay));
        }
        delays.sort_unstable();
        let sum = |f: fn(&Second) -> u64| seconds.values().map(f).sum();
        let clusters = |f: fn(&Second) -> u64| -> Vec<_> {
            seconds.values().map(|s| (f(s), s.sent)).collect()
        };
        let hit = Ratio::of_losses(&clusters(|s| s.hit));
        let ratio = |f: fn(&Second) -> u64| Ratio::of_remaining(&clusters(f), &hit);
        CallOutcome {
            sent: sum(|s| s.sent),
            lost: sum(|s| s.lost),
            late: sum(|s| s.late),
            recovered,
            duplicates,
            missed: ratio(|s| s.lost + s.late),
            residual: ratio(|s| s.lost),
            delays,
        }
    }

    /// The delay that `share` (0 to 1) of the arrived packets did not exceed; `None` if none
    /// arrived.
    pub fn delay(&self, share: f64) -> Option<Duration> {
        quantile(&self.delays, share)
    }
}
