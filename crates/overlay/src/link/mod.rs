//! Links: one neighbour over one path, with an instance of each service and
//! one scheduler over them.

mod address;
pub mod best_effort;
pub(crate) mod cost;
mod goodbye;
mod live;
pub mod realtime;
mod report;
mod ring;
mod scheduler;
mod session;

use crate::arena::TxArena;
use crate::counters::{Drop, Drops, ReceiverStats, Traffic};
use crate::identity::PublicKey;
use crate::monitor::{self, Carried, LinkMonitor, Liveness, Quality};
use crate::wire::{
    DATA_HEADER, DATA_OVERHEAD, DataHeader, ENVELOPE_OVERHEAD, Incarnation, Nack, NodeId, Null,
    OpenError, Opened, ReceiverIndex, Seal, Service,
};
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::wire::Writer;
use trunkline_base::{Bitrate, Pacer, Time};

pub(crate) use address::Place;
pub use cost::{LinkCost, residual_of};
pub use live::LinkChange;
pub use report::Report;
pub use scheduler::Progress;
pub use session::Session;

/// Which of a node's links: an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// IP and UDP headers, the larger form: 40 + 8.
pub const IP_UDP_HEADERS: usize = 48;

/// IPv4 and UDP headers.
const SMALLEST_HEADERS: usize = 20 + 8;

/// Bytes of requests per byte received: one who writes a neighbour's address on
/// small datagrams with large gaps gains no more (as RFC 9000, 8.1).
const ASK_FACTOR: usize = 3;
/// What may be sent at most for datagrams of before.
const MAX_ASK_CREDIT: usize = 16 << 10;

/// Bytes of best effort under flow control that may wait in a link before another
/// such packet: as much as keeps 100 Mbit/s busy for 5 ms …
const FLOW_CONTROLLED: usize = 64 << 10;
/// … and how long they may take at its rate. A quarter of what a packet that is not
/// under flow control may wait: others' still get through behind them.
const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(50);

/// Routing frames that may wait in a link.
const MAX_ROUTING: usize = 4;

/// Expedited forwarding (RFC 3246), the marking of voice.
pub const DSCP_EF: u8 = 46;

/// Settings of one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who is at the other end.
    pub neighbour: NodeId,
    /// Tells several links to one neighbour apart.
    pub path: String,
    /// Its key, where links are sealed; without one it must show a certificate.
    pub key: Option<PublicKey>,
    /// Where the neighbour listens; `None` waits for it to speak first.
    pub address: Option<SocketAddr>,
    /// The largest IP packet, 576 to 9,000 bytes.
    pub mtu: usize,
    /// Marking of everything but best effort, 0 to 63.
    pub dscp: u8,
    /// What the link may send, IP and UDP headers included.
    pub rate: Option<Bitrate>,
    /// What is added to the latency that this end advertises, up to
    /// [`Config::MAX_PENALTY`], so that traffic prefers other ways.
    pub penalty: Duration,
    /// Half-life of what is held against the link when it fails (see
    /// [`Damping`](crate::monitor::Damping)): 1 s to 1 h, or zero for nothing.
    pub damping: Duration,
    /// The hello protocol.
    pub liveness: Liveness,
    /// The real-time service.
    pub realtime: realtime::Config,
    /// The best-effort service.
    pub best_effort: best_effort::Config,
}

impl Config {
    /// More than any way that carries a conversation, and no more than fits an
    /// update.
    pub const MAX_PENALTY: Duration = Duration::from_secs(5);

    /// A link to `neighbour` with every default: 1,280-byte IP packets (what
    /// IPv6 promises everywhere), expedited forwarding, no rate limit.
    pub fn new(neighbour: NodeId) -> Config {
        Config {
            neighbour,
            path: String::new(),
            key: None,
            address: None,
            mtu: 1_280,
            dscp: DSCP_EF,
            rate: None,
            penalty: Duration::ZERO,
            damping: monitor::HALF_LIFE,
            liveness: Liveness::default(),
            realtime: realtime::Config::default(),
            best_effort: best_effort::Config::default(),
        }
    }

    /// The largest application packet that this link carries.
    pub fn max_payload(&self) -> usize {
        self.mtu.saturating_sub(IP_UDP_HEADERS + DATA_OVERHEAD)
    }
}

/// A packet on its way into a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub header: DataHeader,
    pub payload: &'a [u8],
    /// Until when it is of use to whom it is for.
    pub deadline: Time,
    /// Until when it is of use to the next node.
    pub latest: Time,
}

impl Outgoing<'_> {
    fn frame_len(&self) -> usize {
        DATA_HEADER + self.payload.len()
    }

    /// Writes the frame into the `frame_len` bytes where it is kept.
    fn write(&self, frame: &mut [u8]) -> Result<(), Drop> {
        let len = u16::try_from(self.payload.len()).map_err(|_| Drop::TooLarge)?;
        let mut w = Writer::new(frame);
        self.header
            .emit(len, &mut w)
            .and_then(|()| w.bytes(self.payload))
            .map_err(|_| Drop::TooLarge)
    }
}

/// A frame as it is kept, to be stamped on its way out.
struct PendingFrame<'a> {
    frame: &'a [u8],
    deadline: Time,
}

impl PendingFrame<'_> {
    fn write(&self, out: &mut [u8], now: Time, seq: u16, repeat: bool) {
        // The caller made room for just this frame.
        if out.len() == self.frame.len() {
            out.copy_from_slice(self.frame);
            DataHeader::stamp(out, seq, repeat, remaining_ms(now, self.deadline));
        }
    }
}

/// What is left until `deadline`, to the nearest millisecond, so that the
/// rounding of many hops cancels out.
pub(crate) fn remaining_ms(now: Time, deadline: Time) -> u8 {
    let nanos = deadline.as_nanos().saturating_sub(now.as_nanos());
    let ms = nanos.saturating_add(500_000) / 1_000_000;
    u8::try_from(ms).unwrap_or(u8::MAX)
}

/// A wait that is no more than the work of one batch.
const PROMPT: Duration = Duration::from_millis(5);

/// Whether a packet that has been here since `since` has waited past its deadline.
/// One that came late is not meant: it is passed on, as deadlines are reckoned by
/// half of the round trip, and may be wrong by what the ways there and back differ.
pub(crate) fn is_stale(now: Time, since: Time, deadline: Time) -> bool {
    now > deadline && now.since(since) > PROMPT
}

/// What a link has sent and received.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// Everything received.
    pub received: Traffic,
    /// Hellos and goodbyes sent. Those in envelopes of real-time packets count
    /// here with their own bytes, and with no envelope.
    pub hellos: Traffic,
    /// Retransmission requests sent.
    pub requests: Traffic,
    /// Routing frames sent.
    pub routing: Traffic,
    /// Real-time packets sent the first time.
    pub realtime: Traffic,
    /// Real-time packets sent again.
    pub repeats: Traffic,
    /// Best-effort packets sent.
    pub best_effort: Traffic,
    /// Challenges of addresses and their answers sent, and copies to an address
    /// that is being asked.
    pub paths: Traffic,
    /// The receiving half of the real-time service.
    pub receiver: ReceiverStats,
    /// What was dropped, by reason.
    pub drops: Drops,
    /// Starts of the neighbour after the first one heard.
    pub restarts: u64,
    /// How often the link went down.
    pub downs: u64,
    /// How many times of these because the neighbour said that it stops.
    pub goodbyes: u64,
}

/// One neighbour over one path.
#[derive(Debug)]
pub struct Link {
    config: Config,
    seal: Seal,
    address: Option<SocketAddr>,
    place: address::State,
    monitor: LinkMonitor,
    /// The highest number of an envelope of the neighbour's present start.
    newest: u64,
    /// The number of the envelope that was opened last.
    opened: u64,
    goodbye: goodbye::State,
    /// The largest IP packet of this end; the link's is the smaller of both.
    own_mtu: usize,
    version: u8,
    tx: realtime::Sender,
    rx: realtime::Receiver,
    best_effort: best_effort::Queue,
    /// Routing frames that wait for the next envelopes.
    routing: VecDeque<Vec<u8>>,
    /// Lets packets go at the configured rate.
    pacer: Pacer,
    /// Bytes of requests that may still answer what the neighbour has sent.
    ask_credit: usize,
    /// Whether control has not been told yet that the neighbour has started.
    fresh: bool,
    stats: LinkStats,
}

impl Link {
    /// A link that seals with `seal` and says hello first at `first_hello`.
    pub(crate) fn new(seal: Seal, config: Config, first_hello: Time) -> Link {
        Link {
            seal,
            address: config.address,
            place: address::State::default(),
            newest: 0,
            opened: 0,
            goodbye: goodbye::State::default(),
            own_mtu: config.mtu,
            version: 0,
            monitor: LinkMonitor::new(config.liveness.clone(), config.damping, first_hello),
            tx: realtime::Sender::new(&config.realtime),
            rx: realtime::Receiver::new(&config.realtime),
            best_effort: best_effort::Queue::new(&config.best_effort),
            routing: VecDeque::new(),
            pacer: Pacer::of_time(scheduler::PACING_BURST),
            ask_credit: 0,
            fresh: true,
            stats: LinkStats::default(),
            config,
        }
    }

    /// The seal of a link of node `own` that is not sealed, and the index that
    /// its neighbour's envelopes carry. Both ends compute them from the same.
    pub(crate) fn unsealed(
        own: NodeId,
        incarnation: Incarnation,
        config: &Config,
    ) -> (Seal, ReceiverIndex) {
        let to_peer = ReceiverIndex::derived(own, config.neighbour, &config.path);
        let to_us = ReceiverIndex::derived(config.neighbour, own, &config.path);
        (Seal::Null(Null::new(to_peer, incarnation)), to_us)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters, the receiver's included.
    pub fn stats(&self) -> LinkStats {
        LinkStats { receiver: self.rx.stats(), ..self.stats.clone() }
    }

    /// Liveness, round trip, losses.
    pub fn monitor(&self) -> &LinkMonitor {
        &self.monitor
    }

    /// The same, to ask it for advertisements.
    pub fn monitor_mut(&mut self) -> &mut LinkMonitor {
        &mut self.monitor
    }

    fn carried(&self) -> Carried {
        let s = &self.stats;
        let sent = [s.hellos, s.requests, s.routing, s.realtime, s.repeats, s.best_effort, s.paths];
        Carried {
            sent: sent.iter().map(|t| t.bytes).sum(),
            received: s.received.bytes,
            realtime: self.rx.stats(),
        }
    }

    /// What the direction away from here costs, if `quality` is what it is.
    pub(crate) fn cost(&self, quality: Quality) -> LinkCost {
        let Quality { latency, loss, residual } = quality;
        LinkCost::measured(latency, loss, residual)
            .expected_to_lose(self.monitor.damping().share)
            .with_penalty(self.config.penalty)
    }

    /// What the overlay has been told of that quality, at the present penalty
    /// and damping.
    pub(crate) fn advertised(&self) -> Option<LinkCost> {
        Some(self.cost(self.monitor.advertised()?))
    }

    /// The neighbour's present address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Checks whose envelope this is; on success its frames may be read, and then
    /// [`Link::seek`] is to be called.
    pub(crate) fn open(
        &mut self,
        at: Time,
        from: SocketAddr,
        bytes: &mut [u8],
    ) -> Result<(), Drop> {
        // Sealed, a neighbour is its key, wherever it is.
        if !self.is_sealed() && self.config.address.is_some_and(|fixed| fixed != from) {
            return Err(Drop::WrongSource);
        }
        if bytes.len() + SMALLEST_HEADERS > self.own_mtu {
            return Err(Drop::Malformed);
        }
        // Nobody can be answered there.
        if from.port() == 0 {
            return Err(Drop::WrongSource);
        }
        let (opened, counter) = self.seal.open(bytes).map_err(|why| match why {
            OpenError::Malformed(_) => Drop::Malformed,
            OpenError::NoSession => Drop::NoSession,
            OpenError::Replayed => Drop::Replayed,
            OpenError::Forged => Drop::Forged,
        })?;
        match opened {
            Opened::Same => {}
            Opened::Stale => return Err(Drop::Stale),
            Opened::Fresh { first } => {
                self.stats.restarts += u64::from(!first);
                self.fresh = true;
                self.rx.restart();
                self.newest = 0;
                self.goodbye.forget();
                self.monitor.fresh_peer(at);
            }
        }
        self.stats.received.count(bytes.len());
        let earned = ASK_FACTOR * (bytes.len() + SMALLEST_HEADERS);
        self.ask_credit = (self.ask_credit + earned).min(MAX_ASK_CREDIT);
        let first = matches!(&self.seal, Seal::Aead(sealed) if sealed.is_confirmed());
        self.locate(at, from, bytes.len(), counter >= self.newest, first);
        self.newest = self.newest.max(counter);
        self.opened = counter;
        self.monitor.on_envelope(at, counter);
        Ok(())
    }

    /// Takes a hello; true if the link has come up.
    pub(crate) fn on_hello(&mut self, at: Time, hello: &crate::wire::Hello) -> bool {
        if let Some((sent_us, _)) = hello.echo {
            self.on_echo_of(at, sent_us);
        }
        !self.is_before_goodbye() && self.monitor.on_hello(at, hello)
    }

    /// Takes a request; `allowance` is how many numbers may be looked up for
    /// the rest of this envelope.
    pub(crate) fn on_nack(&mut self, now: Time, nack: Nack<'_>, allowance: &mut usize) {
        let rtt = self.monitor.rtt().get().unwrap_or_default();
        self.tx.repeat(now, nack.ranges(), rtt, allowance, &mut self.stats.drops);
    }

    /// Takes note of a packet that arrived; on success gives the moment until
    /// which it is of use. From here it takes `onward` to its destination.
    pub(crate) fn on_data(
        &mut self,
        at: Time,
        header: &DataHeader,
        len: usize,
        onward: Duration,
    ) -> Result<Time, Drop> {
        let rtt = self.monitor.rtt();
        let left = Duration::from_millis(u64::from(header.remaining_ms));
        let left = left.saturating_sub(rtt.one_way());
        let deadline = at + left;
        if header.service == Service::RealTime {
            let packet = realtime::Incoming {
                wire_seq: header.link_seq,
                envelope: self.opened,
                len,
                recovered: header.recovered,
                at,
                useful_until: deadline - onward,
                rtt: rtt.get().unwrap_or_default(),
            };
            let arrival = self.rx.accept(&packet, &mut self.stats.drops);
            if arrival == realtime::Arrival::Duplicate {
                return Err(Drop::Duplicate);
            }
        }
        Ok(deadline)
    }

    pub(crate) fn enqueue(&mut self, now: Time, packet: &Outgoing<'_>) -> Result<(), Drop> {
        if self.address.is_none() {
            return Err(Drop::NoAddress);
        }
        if !self.seal.ready() {
            return Err(Drop::NoSession);
        }
        if packet.payload.len() > self.config.max_payload() {
            return Err(Drop::TooLarge);
        }
        match packet.header.service {
            Service::RealTime => self.tx.enqueue(now, packet),
            Service::BestEffort => self.best_effort.enqueue(now, packet),
        }
    }

    /// Whether a best-effort packet under flow control is to be handed over now: it
    /// is taken, or dropped for a reason that waiting would not mend.
    pub(crate) fn has_room(&self) -> bool {
        if self.address.is_none() || !self.seal.ready() {
            return true;
        }
        let largest = DATA_HEADER + self.config.max_payload();
        self.best_effort.flow_controlled(largest).is_some_and(|waiting| {
            let delay = self.config.rate.map_or(Duration::ZERO, |rate| rate.time_for(waiting));
            waiting < FLOW_CONTROLLED && delay < FLOW_CONTROL_DELAY
        })
    }

    /// The largest routing frame that may be handed over now, if any: control
    /// paces them, and the rest is better kept where newer replaces older.
    pub(crate) fn routing_room(&self) -> Option<usize> {
        let ready = self.monitor.is_up() && self.routing.len() < MAX_ROUTING;
        ready.then(|| self.config.mtu.saturating_sub(IP_UDP_HEADERS + ENVELOPE_OVERHEAD))
    }

    pub(crate) fn push_routing(&mut self, frame: Vec<u8>) {
        self.routing.push_back(frame);
    }

    /// What control is to be told after a hello, which has brought the link up
    /// or not: that it is up, or that the neighbour is another start of itself.
    pub(crate) fn up_report(&mut self, link: LinkId, came_up: bool) -> Option<Report> {
        let news = came_up || (self.fresh && self.monitor.is_up());
        news.then(|| Report::Up {
            link,
            restarted: core::mem::take(&mut self.fresh),
            rtt: self.monitor.rtt().get().unwrap_or_default(),
        })
    }

    pub(crate) fn drop_counted(&mut self, why: Drop) {
        self.stats.drops.count(why);
    }

    /// Does what is due, and declares the link down after long silence; true if
    /// that is news.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let rtt = self.monitor.rtt().get().unwrap_or_default();
        self.rx.handle_timeout(now, rtt, &mut self.stats.drops);
        self.tx.handle_timeout(now);
        self.check_sessions(now);
        let died = self.monitor.check(now);
        if died {
            self.stats.downs += 1;
            self.rx.outage();
            self.seal.doubt_peer();
        }
        died
    }

    /// When to ask again for what is missing.
    pub(crate) fn ask_at(&self) -> Time {
        self.rx.next_timeout()
    }

    /// When the next copy of a repetition is due.
    pub(crate) fn copy_at(&self) -> Time {
        self.tx.next_timeout()
    }
}
