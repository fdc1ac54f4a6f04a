//! Links: one neighbour over one path, with an instance of each service and
//! one scheduler over them.

mod address;
pub mod best_effort;
pub(crate) mod cost;
mod drr;
mod goodbye;
mod live;
mod packet;
pub mod realtime;
pub mod reliable;
mod report;
mod ring;
mod scheduler;
mod service;
mod session;
mod stats;

use crate::arena::TxArena;
use crate::counters::DropReason;
use crate::identity::PublicKey;
use crate::monitor::{self, LinkMonitor, LinkTotals, Liveness, Quality};
use crate::wire::{
    DATA_HEADER, DATA_OVERHEAD, DataHeader, ENVELOPE_OVERHEAD, Incarnation, Nack, NodeId, Null,
    OpenError, Opened, ReceiverIndex, Seal, SelectiveAck, Service,
};
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Bitrate, Pacer, Time};

pub use cost::{LinkCost, residual_of};
pub use live::LinkChange;
pub(crate) use packet::{Packet, RxPacketInfo, STREAM, is_stale, remaining_ms};
pub use report::LinkReport;
pub use scheduler::Progress;
use service::{LinkContext, LinkService, Sent, Services};
pub use session::Session;
use stats::Tally;
pub use stats::{LinkStats, ServiceStats};

/// Which of a node's links: an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// The largest IP packet by default: what IPv6 promises on every path.
pub const DEFAULT_MTU: usize = 1_280;

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

/// How long a packet without a deadline is of use, as far as a node asks: as long as any that
/// has one.
pub(crate) const NO_DEADLINE: Duration = Duration::from_millis(255);

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
    /// Marking of control and real time, 0 to 63.
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
    /// What bounds the reliable service, and how its window grows.
    pub reliable: reliable::Config,
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
            mtu: DEFAULT_MTU,
            dscp: DSCP_EF,
            rate: None,
            penalty: Duration::ZERO,
            damping: monitor::HALF_LIFE,
            liveness: Liveness::default(),
            realtime: realtime::Config::default(),
            best_effort: best_effort::Config::default(),
            reliable: reliable::Config::default(),
        }
    }

    /// The largest application packet that this link carries.
    pub fn max_payload(&self) -> usize {
        self.mtu.saturating_sub(IP_UDP_HEADERS + DATA_OVERHEAD)
    }
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
    services: Services,
    /// Routing frames that wait for the next envelopes.
    routing: VecDeque<Vec<u8>>,
    /// Lets packets go at the configured rate.
    pacer: Pacer,
    /// Bytes of requests that may still answer what the neighbour has sent.
    ask_credit: usize,
    /// Whether control has not been told yet that the neighbour has started.
    fresh: bool,
    /// UDP payload sent and received, in bytes: from this the monitor has the rates.
    volume: Volume,
    /// For people, not for the link.
    tally: Tally,
}

/// UDP payload, in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Volume {
    sent: u64,
    received: u64,
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
            services: Services::new(&config),
            routing: VecDeque::new(),
            pacer: Pacer::of_time(scheduler::PACING_BURST),
            ask_credit: 0,
            fresh: true,
            volume: Volume::default(),
            tally: Tally::default(),
            config,
        }
    }

    /// Tells the services which start of the node this is.
    pub(crate) fn begin(&mut self, incarnation: Incarnation) {
        self.services.iter_mut().for_each(|service| service.begin(incarnation));
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

    /// What it has counted so far.
    pub fn stats(&self) -> LinkStats {
        self.tally.copy(self.services.received())
    }

    /// Liveness, round trip, losses.
    pub fn monitor(&self) -> &LinkMonitor {
        &self.monitor
    }

    /// The same, to ask it for advertisements.
    pub fn monitor_mut(&mut self) -> &mut LinkMonitor {
        &mut self.monitor
    }

    /// What the monitor reckons with.
    fn carried(&self) -> LinkTotals {
        let Volume { sent, received } = self.volume;
        let realtime = self.services.get(Service::RealTime).received().unwrap_or_default();
        LinkTotals { sent, received, realtime }
    }

    /// What services are told of this link.
    fn moment(&self, now: Time) -> LinkContext {
        let rtt = self.monitor.rtt();
        let (one_way, envelope) = (rtt.one_way(), self.seal.count());
        LinkContext { now, rtt: rtt.get().unwrap_or_default(), one_way, envelope }
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
    ) -> Result<(), DropReason> {
        // Sealed, a neighbour is its key, wherever it is.
        if !self.is_sealed() && self.config.address.is_some_and(|fixed| fixed != from) {
            return Err(DropReason::WrongSource);
        }
        if bytes.len() + SMALLEST_HEADERS > self.own_mtu {
            return Err(DropReason::Malformed);
        }
        // Nobody can be answered there.
        if from.port() == 0 {
            return Err(DropReason::WrongSource);
        }
        let (opened, counter) = self.seal.open(bytes).map_err(|why| match why {
            OpenError::Malformed(_) => DropReason::Malformed,
            OpenError::NoSession => DropReason::NoSession,
            OpenError::Replayed => DropReason::Replayed,
            OpenError::Forged => DropReason::Forged,
        })?;
        match opened {
            Opened::Same => {}
            Opened::Stale => return Err(DropReason::Stale),
            Opened::Fresh { first } => {
                if !first {
                    self.tally.restart();
                }
                self.fresh = true;
                let peer = self.seal.peer().unwrap_or(Incarnation(0));
                self.services.iter_mut().for_each(|service| service.restart(peer));
                self.newest = 0;
                self.goodbye.forget();
                self.monitor.fresh_peer(at);
            }
        }
        self.tally.received(bytes.len());
        self.volume.received += bytes.len() as u64;
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
        let came_up = !self.is_before_goodbye() && self.monitor.on_hello(at, hello);
        if came_up {
            self.services.iter_mut().for_each(LinkService::up);
        }
        came_up
    }

    /// Takes a request; `allowance` is how many numbers may be looked up for
    /// the rest of this envelope.
    pub(crate) fn on_nack(&mut self, now: Time, nack: Nack<'_>, allowance: &mut usize) {
        let moment = self.moment(now);
        let service = self.services.get_mut(nack.service);
        service.on_request(&moment, nack, allowance, self.tally.drops());
    }

    /// Takes an acknowledgement of reliable packets, looking up `allowance` of them at most.
    pub(crate) fn on_ack(
        &mut self,
        at: Time,
        ack: SelectiveAck<'_>,
        allowance: &mut usize,
    ) -> Result<(), DropReason> {
        self.services.get_mut(Service::Reliable).on_ack(at, ack, allowance)
    }

    /// Takes note of a packet that arrived, unless it has before; from here it
    /// takes `onward` to its destination.
    pub(crate) fn on_data<'a>(
        &mut self,
        at: Time,
        header: &DataHeader,
        payload: &'a [u8],
        onward: Duration,
    ) -> Result<Packet<'a>, DropReason> {
        let DataHeader { flow, hop } = *header;
        let rtt = self.monitor.rtt();
        let left = match flow.service {
            Service::Reliable => NO_DEADLINE,
            _ => Duration::from_millis(u64::from(hop.remaining_ms)),
        };
        let deadline = at + left.saturating_sub(rtt.one_way());
        let incoming = RxPacketInfo {
            wire_seq: hop.link_seq,
            remaining: hop.remaining_ms,
            envelope: self.opened,
            len: payload.len(),
            recovered: hop.recovered,
            at,
            useful_until: deadline - onward,
            rtt: rtt.get().unwrap_or_default(),
        };
        self.services.get_mut(flow.service).on_data(&incoming, self.tally.drops())?;
        let (recovered, hop_limit) = (hop.recovered, hop.hop_limit);
        let flags = match flow.service {
            Service::Reliable => hop.remaining_ms & (packet::STREAM | packet::MARKED),
            _ => 0,
        };
        Ok(Packet { flow, recovered, hop_limit, flags, payload, deadline })
    }

    /// Takes a packet to be sent, which is of use to the next node until `latest`.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<(), DropReason> {
        if self.address.is_none() {
            return Err(DropReason::NoAddress);
        }
        if !self.seal.ready() {
            return Err(DropReason::NoSession);
        }
        if packet.payload.len() > self.config.max_payload() {
            return Err(DropReason::TooLarge);
        }
        self.services.get_mut(packet.flow.service).enqueue(now, packet, latest)
    }

    /// Whether a packet of `service` under flow control is to be handed over now: it
    /// is taken, or dropped for a reason that waiting would not mend.
    pub(crate) fn has_room(&self, service: Service) -> bool {
        // No queue of a neighbour that is gone gets shorter.
        if self.address.is_none() || !self.seal.ready() || self.monitor.has_died() {
            return true;
        }
        let largest = DATA_HEADER + self.config.max_payload();
        self.services.get(service).flow_controlled(largest).is_some_and(|waiting| {
            let delay = self.config.rate.map_or(Duration::ZERO, |rate| rate.time_for(waiting));
            waiting < FLOW_CONTROLLED && delay < FLOW_CONTROL_DELAY
        })
    }

    /// Whether a packet of a stream finds room, with `data` or without; `None` if none is
    /// taken for another reason, which may pass.
    pub(crate) fn stream_room(&self, data: bool) -> Option<bool> {
        let ready = self.address.is_some() && self.seal.ready();
        if !ready || self.monitor.has_died() {
            return None;
        }
        let largest = DATA_HEADER + self.config.max_payload();
        Some(self.services.get(Service::Reliable).has_room_for_own(largest, data))
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
    pub(crate) fn up_report(&mut self, link: LinkId, came_up: bool) -> Option<LinkReport> {
        let news = came_up || (self.fresh && self.monitor.is_up());
        news.then(|| LinkReport::Up {
            link,
            restarted: core::mem::take(&mut self.fresh),
            rtt: self.monitor.rtt().get().unwrap_or_default(),
        })
    }

    pub(crate) fn drop_counted(&mut self, why: DropReason) {
        self.tally.drops().count(why);
    }

    /// Does what is due, and declares the link down after long silence; true if
    /// that is news.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let moment = self.moment(now);
        for service in self.services.iter_mut() {
            service.handle_timeout(&moment, self.tally.drops());
        }
        self.check_sessions(now);
        let died = self.monitor.check(now);
        if died {
            self.tally.down();
            self.services.iter_mut().for_each(LinkService::outage);
            self.seal.doubt_peer();
        }
        died
    }

    /// When its services have something to do.
    pub(crate) fn service_timeouts(&self) -> impl Iterator<Item = (Service, Time)> {
        self.services.timeouts()
    }
}
