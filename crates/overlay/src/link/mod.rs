//! Links: one neighbour over one path, with one instance of each service and a scheduler over them.

mod address;
pub mod best_effort;
pub(crate) mod cost;
mod drr;
mod fair_order;
mod goodbye;
mod live;
mod packet;
mod pool;
pub mod realtime;
mod records;
pub mod reliable;
mod report;
mod ring;
mod scheduler;
mod service;
mod session;
mod stats;
mod turns;

use crate::arena::{Ends, LocalAddress, OwnAddresses, TxArena, UplinkId};
use crate::counters::DropReason;
use crate::identity::PublicKey;
use crate::monitor::{self, LinkMonitor, LinkTotals, Liveness, Quality};
use crate::wire::{
    DATA_HEADER, DATA_OVERHEAD, DataHeader, ENVELOPE_OVERHEAD, Incarnation, Nack, NodeId, Null,
    OpenError, Opened, ReceiverIndex, Seal, SelectiveAck, Service,
};
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Bitrate, Pacer, Time};

pub use cost::{LinkCost, residual_of};
pub use live::LinkChange;
pub(crate) use packet::{CONTROL, Packet, RxPacketInfo, STREAM, is_stale, remaining_ms};
pub use report::{DownCause, LinkReport};
pub use scheduler::Progress;
pub use service::Class;
use service::{LinkContext, LinkService, Sent, Services};
pub use session::Session;
use stats::Tally;
pub use stats::{LinkStats, ServiceStats};

/// Identifies one of a node's links by its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// Default for the largest IP packet: the size that IPv6 guarantees on every path.
pub const DEFAULT_MTU: usize = 1_280;

/// Bytes of IPv4 and UDP headers and of an envelope, which count in windows, turns and shares.
const OVERHEAD: usize = 28 + ENVELOPE_OVERHEAD;

/// Bytes of IP and UDP headers in the larger form: 40 + 8.
pub const IP_UDP_HEADERS: usize = 48;

/// Bytes of IPv4 and UDP headers.
const SMALLEST_HEADERS: usize = 20 + 8;

/// Bytes of requests sent per byte received: an attacker that puts a neighbour's address on small
/// datagrams with large gaps gains no more than this (as RFC 9000, 8.1).
const ASK_FACTOR: usize = 3;
/// Maximum bytes of requests that earlier datagrams can pay for.
const MAX_ASK_CREDIT: usize = 16 << 10;

/// Flow-controlled bytes of best effort that may wait in a link before it accepts no more such
/// packets: enough to keep 100 Mbit/s busy for 5 ms …
const FLOW_CONTROLLED: usize = 64 << 10;
/// … and the time that they may take at the link's rate: a quarter of the wait allowed to other
/// packets, so that those still get through behind them.
const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(50);

/// Time for which a packet without a deadline is useful, as far as a node requests it again: the
/// longest that a deadline can be.
pub(crate) const NO_DEADLINE: Duration = Duration::from_millis(255);

/// Maximum number of routing frames that may wait in a link.
const MAX_ROUTING: usize = 4;

/// Expedited forwarding (RFC 3246), the marking of voice.
pub const DSCP_EF: u8 = 46;

/// Settings of one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The node at the other end.
    pub neighbour: NodeId,
    /// Distinguishes several links to one neighbour.
    pub path: String,
    /// The neighbour's key, on sealed links; without it the neighbour must show a certificate.
    pub key: Option<PublicKey>,
    /// Address at which the neighbour listens; `None` waits for the neighbour to send first.
    pub address: Option<SocketAddr>,
    /// Size of the largest IP packet in bytes, in [`Config::MTUS`].
    pub mtu: usize,
    /// DSCP of control and real-time packets, 0 to 63.
    pub dscp: u8,
    /// Rate limit of the link, IP and UDP headers included.
    pub rate: Option<Bitrate>,
    /// Penalty added to the latency that this end advertises, up to [`Config::MAX_PENALTY`], so
    /// that traffic prefers other routes.
    pub penalty: Duration,
    /// Half-life of the penalty for failures of the link (see
    /// [`Damping`](crate::monitor::Damping)): 1 s to 1 h, or zero for no penalty.
    pub damping: Duration,
    /// Settings of the hello protocol.
    pub liveness: Liveness,
    /// Settings of the real-time service.
    pub realtime: realtime::Config,
    /// Settings of the best-effort service.
    pub best_effort: best_effort::Config,
    /// Bounds of the reliable service, and how its window grows.
    pub reliable: reliable::Config,
}

impl Config {
    /// Range of [`Config::mtu`], in bytes: from what every IPv4 host accepts (RFC 791, 3.1) to jumbo
    /// frames.
    pub const MTUS: RangeInclusive<usize> = 576..=9_000;
    /// Longer than any path that can carry a conversation, and small enough for an update.
    pub const MAX_PENALTY: Duration = Duration::from_secs(5);

    /// A link to `neighbour` with default settings: 1,280-byte IP packets (which IPv6 guarantees
    /// everywhere), expedited forwarding, no rate limit.
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

    /// Size of the largest application packet that this link carries over either IP version, in
    /// bytes.
    pub fn max_payload(&self) -> usize {
        self.mtu.saturating_sub(IP_UDP_HEADERS + DATA_OVERHEAD)
    }
}

/// The state of one link: one neighbour over one path.
#[derive(Debug)]
pub struct Link {
    config: Config,
    seal: Seal,
    address: Option<SocketAddr>,
    /// Where the neighbour began the present session.
    local: Option<LocalAddress>,
    /// The addresses of this node that its paths use, if it is bound to some.
    own: Option<OwnAddresses>,
    /// Whether `address` or `local` may have changed since the last call of [`Link::take_moved`].
    has_moved: bool,
    /// Uplink by which everything leaves.
    uplink: UplinkId,
    /// For what the uplink had no room when the link sent last: nothing is due before it has.
    blocked: Option<Class>,
    place: address::State,
    monitor: LinkMonitor,
    /// The highest envelope number from the neighbour's present start.
    newest: u64,
    /// Number of the envelope that was opened last.
    opened: u64,
    goodbye: goodbye::State,
    /// The largest IP packet of this end; the link uses the smaller one of both ends.
    own_mtu: usize,
    version: u8,
    services: Services,
    /// Routing frames that wait for the next envelopes.
    routing: VecDeque<Vec<u8>>,
    /// Limits the link to its configured rate.
    pacer: Pacer,
    /// Bytes of requests that the link may still send in return for the bytes received.
    ask_credit: usize,
    /// Number of the interface behind the uplink, if the driver has set that.
    interface: Option<u32>,
    /// Times until which calls count as leaving by this link, and by others of its interface.
    calls_until: Time,
    yields_until: Time,
    /// Whether control still has to be notified that the neighbour has started.
    fresh: bool,
    /// Bytes of UDP payload sent and received; the monitor derives the rates from them.
    volume: Volume,
    /// Statistics for display; the link never reads them.
    tally: Tally,
}

/// Bytes of UDP payload, per direction.
#[derive(Clone, Copy, Default, Debug)]
struct Volume {
    sent: u64,
    received: u64,
}

impl Link {
    /// Creates a link that seals with `seal` and sends its first hello at `first_hello`. By
    /// `secret`, sources of packets are assigned to queues.
    pub(crate) fn new(seal: Seal, config: Config, first_hello: Time, secret: u64) -> Link {
        Link {
            seal,
            address: config.address,
            local: None,
            own: None,
            has_moved: config.address.is_some(),
            uplink: UplinkId::default(),
            blocked: None,
            place: address::State::default(),
            newest: 0,
            opened: 0,
            goodbye: goodbye::State::default(),
            own_mtu: config.mtu,
            version: 0,
            monitor: LinkMonitor::new(config.liveness.clone(), config.damping, first_hello),
            services: Services::new(&config, secret),
            routing: VecDeque::new(),
            pacer: Pacer::of_time(scheduler::PACING_BURST),
            ask_credit: 0,
            interface: None,
            calls_until: Time::ZERO,
            yields_until: Time::ZERO,
            fresh: true,
            volume: Volume::default(),
            tally: Tally::default(),
            config,
        }
    }

    /// Passes this node's incarnation to the services.
    pub(crate) fn begin(&mut self, incarnation: Incarnation) {
        self.services.iter_mut().for_each(|service| service.begin(incarnation));
    }

    /// Seal of an unsealed link of node `own`, and the index that its neighbour's envelopes carry.
    /// Both ends derive them from the same configuration.
    pub(crate) fn unsealed(
        own: NodeId,
        incarnation: Incarnation,
        config: &Config,
    ) -> (Seal, ReceiverIndex) {
        let to_peer = ReceiverIndex::derived(own, config.neighbour, &config.path);
        let to_us = ReceiverIndex::derived(config.neighbour, own, &config.path);
        (Seal::Null(Null::new(to_peer, incarnation)), to_us)
    }

    /// The link's current settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A copy of the link's statistics.
    pub fn stats(&self) -> LinkStats {
        self.tally.copy(self.services.received())
    }

    /// The monitor: liveness, round trip and losses.
    pub fn monitor(&self) -> &LinkMonitor {
        &self.monitor
    }

    /// The monitor, mutable, to poll it for advertisements.
    pub fn monitor_mut(&mut self) -> &mut LinkMonitor {
        &mut self.monitor
    }

    /// Traffic totals for the monitor.
    fn carried(&self) -> LinkTotals {
        let Volume { sent, received } = self.volume;
        let realtime = self.services.get(Service::RealTime).received().unwrap_or_default();
        LinkTotals { sent, received, realtime }
    }

    /// State of this link for its services.
    fn moment(&self, now: Time) -> LinkContext {
        let rtt = self.monitor.rtt();
        let (one_way, envelope) = (rtt.one_way(), self.seal.count());
        let calls = self.yields_to_calls(now);
        LinkContext { now, rtt: rtt.get().unwrap_or_default(), one_way, envelope, calls }
    }

    /// Cost of the outgoing direction at this `quality`.
    pub(crate) fn cost(&self, quality: Quality) -> LinkCost {
        let Quality { latency, loss, residual } = quality;
        LinkCost::measured(latency, loss, residual)
            .expected_to_lose(self.monitor.damping().share)
            .with_penalty(self.config.penalty)
    }

    /// Cost that was last advertised to the overlay, at the present penalty and damping.
    pub(crate) fn advertised(&self) -> Option<LinkCost> {
        Some(self.cost(self.monitor.advertised()?))
    }

    /// The neighbour's present address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where the neighbour began the present session, until the link goes down; `None` if this node
    /// began it, or if the driver didn't say. Packets should leave from there: a firewall between
    /// the two may let nothing else through.
    pub fn local(&self) -> Option<LocalAddress> {
        self.local
    }

    fn set_local(&mut self, local: Option<LocalAddress>) {
        self.has_moved |= self.local != local;
        self.local = local;
    }

    /// Whether the link may have other ends than at the last call.
    pub(crate) fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.has_moved)
    }

    /// The uplink by which everything leaves.
    pub fn uplink(&self) -> UplinkId {
        self.uplink
    }

    /// The first packets for which the uplink had no room when the link sent last, if it hadn't. The
    /// urgent ones include control messages.
    pub fn waits_for_room(&self) -> Option<Class> {
        self.blocked
    }

    /// Number of the interface behind the uplink, if the driver has set that.
    pub fn interface(&self) -> Option<u32> {
        self.interface
    }

    /// Time until which calls count as leaving by this link.
    pub(crate) fn calls_until(&self) -> Time {
        self.calls_until
    }

    /// Counts calls by other links of the same interface, until a time.
    pub(crate) fn yield_until(&mut self, until: Time) {
        self.yields_until = until;
    }

    /// Whether calls count as leaving by this link, or by another of its interface.
    pub(crate) fn yields_to_calls(&self, now: Time) -> bool {
        now < self.calls_until.max(self.yields_until)
    }

    /// Sends everything by `uplink`, and by `interface` if that is known, from now on.
    pub(crate) fn set_uplink(&mut self, uplink: UplinkId, interface: Option<u32>) {
        (self.uplink, self.interface, self.blocked) = (uplink, interface, None);
    }

    /// Opens and authenticates an envelope. On success its frames may be read, and [`Link::validate_path`]
    /// must be called afterwards.
    pub(crate) fn open(
        &mut self,
        at: Time,
        ends: impl Into<Ends>,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let ends = ends.into();
        let from = ends.remote;
        // On a sealed link the key identifies the neighbour, whatever its address.
        if !self.is_sealed() && self.config.address.is_some_and(|fixed| fixed != from) {
            return Err(DropReason::WrongSource);
        }
        if bytes.len() + SMALLEST_HEADERS > self.own_mtu {
            return Err(DropReason::Malformed);
        }
        // No reply can be sent to port 0.
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
                if !self.is_sealed() && self.is_bound_to(&ends) {
                    self.set_local(ends.local);
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
        self.locate(at, ends, bytes.len(), counter >= self.newest, first);
        self.newest = self.newest.max(counter);
        self.opened = counter;
        self.monitor.on_envelope(at, counter);
        Ok(())
    }

    /// Handles a hello; true if the link has come up.
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

    /// Handles a retransmission request; `allowance` is the number of packets that may still be
    /// looked up for this envelope.
    pub(crate) fn on_nack(&mut self, now: Time, nack: Nack<'_>, allowance: &mut usize) {
        let moment = self.moment(now);
        let service = self.services.get_mut(nack.service);
        service.on_request(&moment, nack, allowance, self.tally.drops());
    }

    /// Handles an acknowledgement of reliable packets, looking up at most `allowance` of them.
    pub(crate) fn on_ack(
        &mut self,
        at: Time,
        ack: SelectiveAck<'_>,
        allowance: &mut usize,
    ) -> Result<(), DropReason> {
        self.services.get_mut(Service::Reliable).on_ack(at, ack, allowance)
    }

    /// Accepts an arriving packet, unless it is a duplicate. `onward` is the time that it needs
    /// from here to its destination.
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
            Service::Reliable => hop.remaining_ms & (STREAM | CONTROL | packet::MARKED),
            _ => 0,
        };
        Ok(Packet { flow, turn: flow.source.0, recovered, hop_limit, flags, payload, deadline })
    }

    /// Queues a packet, which is useful to the next node until `latest`.
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
        if packet.payload.len() > self.room() {
            return Err(DropReason::TooLarge);
        }
        self.services.get_mut(packet.flow.service).enqueue(now, packet, latest)
    }

    /// Size of the largest application packet that the link carries to its present address, in bytes.
    pub(crate) fn room(&self) -> usize {
        let headers = self.address.map_or(IP_UDP_HEADERS, scheduler::headers);
        self.config.mtu.saturating_sub(headers + DATA_OVERHEAD)
    }

    /// Whether a flow-controlled packet of `service` should be handed over now: the link then
    /// accepts it, or drops it for a reason that does not change by waiting.
    pub(crate) fn has_room(&self, service: Service) -> bool {
        // The queue of a dead neighbour never drains.
        if self.address.is_none() || !self.seal.ready() || self.monitor.has_died() {
            return true;
        }
        let largest = DATA_HEADER + self.config.max_payload();
        self.services.get(service).flow_controlled(largest).is_some_and(|waiting| {
            let delay = self.config.rate.map_or(Duration::ZERO, |rate| rate.time_for(waiting));
            waiting < FLOW_CONTROLLED && delay < FLOW_CONTROL_DELAY
        })
    }

    /// Whether a stream's packet, with `data` or without, finds room; `None` if the link accepts
    /// none at present for another reason.
    pub(crate) fn stream_room(&self, data: bool) -> Option<bool> {
        let ready = self.address.is_some() && self.seal.ready();
        if !ready || self.monitor.has_died() {
            return None;
        }
        let largest = DATA_HEADER + self.config.max_payload();
        Some(self.services.get(Service::Reliable).has_room_for_own(largest, data))
    }

    /// Size of the largest routing frame that may be handed over now, if any. Control paces them,
    /// because those that it still holds can be replaced by newer ones.
    pub(crate) fn routing_room(&self) -> Option<usize> {
        let ready = self.monitor.is_up() && self.routing.len() < MAX_ROUTING;
        ready.then(|| self.config.mtu.saturating_sub(IP_UDP_HEADERS + ENVELOPE_OVERHEAD))
    }

    pub(crate) fn push_routing(&mut self, frame: Vec<u8>) {
        self.routing.push_back(frame);
    }

    /// Report to control after a hello, if there is news: the link is up (`came_up`), or the
    /// neighbour has restarted.
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

    /// Runs due timers, and declares the link down after a long silence; true if it has just gone
    /// down.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let moment = self.moment(now);
        for service in self.services.iter_mut() {
            service.handle_timeout(&moment, self.tally.drops());
        }
        self.check_sessions(now);
        let died = self.monitor.check(now);
        if died {
            self.set_local(None);
            self.forget_astray();
            self.tally.down();
            self.services.iter_mut().for_each(LinkService::outage);
            self.seal.doubt_peer();
        }
        died
    }

    /// When each service has to run its timer next.
    pub(crate) fn service_timeouts(&self) -> impl Iterator<Item = (Service, Time)> {
        self.services.timeouts()
    }
}
