use super::echo::{Echoes, NODE_PORT};
use super::flow_control::Held;
use super::interfaces::CallTimes;
use super::links::Links;
use super::status::{Lost, PortUnreachableLimiter};
use super::streams::StreamState;
use super::streams::StreamStats;
use super::trunks::Trunks;
use super::{Access, Command, Config, Drained, Sink, Start, Timer};
use crate::arena::{Ends, OwnAddresses, RxDatagram, TxArena, UplinkId};
use crate::counters::{DropReason, Drops};
use crate::link::realtime::MAX_GAP;
use crate::link::{self, DownCause, Link, LinkId, LinkReport, Packet, Progress};
use crate::route::{ForwardingTable, Hop};
use crate::session::flows::{Flows, MAX_FLOWS};
use crate::session::{Flow, SessionId, Sessions, Statuses};
use crate::wire::version::VersionRange;
use crate::wire::{Frame, Frames, Incarnation, Kind, Metric, NodeId, Seal, Service, open_header};
use core::net::SocketAddr;
use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_base::Time;

/// Number of hops that returning a packet to the neighbour it came from counts for. While routes
/// change, that neighbour may already have another route; in a loop, a packet turns back three
/// times at most.
const TURN_HOPS: u8 = 8;

/// Numbers by which packets take turns whose sources are no known nodes: those that came by one link
/// share a turn, whatever sources a neighbour invents.
const UNKNOWN: u32 = 0xffff_0000;

/// The forwarding half of a node: moves packets between links and sessions, with the table it is
/// given.
#[derive(Debug)]
pub struct Forwarder {
    pub(super) id: NodeId,
    incarnation: Incarnation,
    sealed: bool,
    pub(super) max_payload: usize,
    pub(super) links: Links,
    table: Arc<ForwardingTable>,
    pub(super) access: Access,
    pub(super) sessions: Sessions,
    pub(super) session_versions: VersionRange,
    pub(super) echoes: Echoes,
    pub(super) flows: Flows,
    /// Destination statuses that applications are notified of, with the cursor of their next poll.
    pub(super) statuses: Statuses,
    pub(super) next_look: Time,
    pub(super) looked_at: Option<Flow>,
    pub(super) lost: Lost,
    pub(super) denials: PortUnreachableLimiter,
    pub(super) held: Held,
    pub(super) trunks: Trunks,
    pub(super) streams: StreamState,
    reports: VecDeque<LinkReport>,
    /// Source of random numbers for path challenges to neighbours, among others.
    pub(super) entropy: ChaCha20Rng,
    /// Assigns sources of packets to queues.
    secret: u64,
    /// Whether control needs reports of link costs.
    advertise: bool,
    /// Metric used to route locally originated packets.
    pub(super) metric: Metric,
    /// The link that sends first next time: the one after the last that found no room, so that a
    /// link that always has more to send cannot keep arena or uplink to itself.
    turn: u16,
    /// Links with packets that are not urgent, during one call of `transmit`.
    shared: Vec<Option<LinkId>>,
    /// Links with a new address, for the driver.
    moved: VecDeque<LinkId>,
    /// By the number of the uplink, the last link that sent packets that are not urgent.
    last_shared: Vec<LinkId>,
    calls: CallTimes,
    pub(super) stats: ForwarderStats,
}

/// Counters of a node, without those of its links.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct ForwarderStats {
    /// Packets sent by applications at this node.
    pub from_sessions: u64,
    /// Packets handed to applications at this node.
    pub to_sessions: u64,
    /// Packets forwarded from one link to another.
    pub forwarded: u64,
    /// Echo requests that this node answered, as the destination or where the hop limit ran out.
    pub echoes_answered: u64,
    /// Packets to unbound ports after which the source was notified.
    pub port_unreachable_sent: u64,
    /// Notifications of unbound ports received for a flow in which a local application had sent.
    pub port_unreachable_accepted: u64,
    /// Sessions of applications that are open now.
    pub sessions: u64,
    /// Sessions of this node's gateway that are open now: up to two for each stream of a call.
    pub gateway_sessions: u64,
    /// Times that a message of a blocking application was flow-controlled.
    pub flow_controlled: u64,
    /// Counters of the streams that end here.
    pub streams: StreamStats,
    /// Flows that were displaced from the table of flows by others.
    pub flows_displaced: u64,
    /// Packets dropped outside any link, by reason.
    pub drops: Drops,
}

/// Maximum length of a handshake message, in bytes. Even with every field at its longest, a message
/// takes less than half of that.
const MAX_HANDSHAKE: usize = 1_200;

/// Maximum number of reports waiting for control, which takes all of them after each batch.
const MAX_REPORTS: usize = 1_024;

impl Forwarder {
    pub(super) fn new(config: Config, start: &Start) -> Forwarder {
        let &Start { at: now, incarnation, seed, .. } = start;
        let (id, max_payload) = (config.id, config.max_payload());
        // Each start draws other numbers, whatever the seed, so that they cannot be confused with
        // those of the start before.
        let mut rng = trunkline_base::rng(seed ^ incarnation.0, u64::from(config.id.0));
        // First hellos are spread over one interval, so that nodes that start together don't stay
        // in step.
        let mut first_hello = |interval: Duration| {
            let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
            now + Duration::from_nanos(rng.random_range(0..nanos))
        };
        let mut links = Links::default();
        let sealed = config.sealing.is_some();
        let secret = ChaCha20Rng::from_seed(start.entropy_for(b"turns")).random();
        for (config, number) in config.links.into_iter().zip(0..) {
            let first = first_hello(config.liveness.interval);
            let own = (id, incarnation, sealed, secret);
            add_link(&mut links, LinkId(number), own, config, first);
        }
        let trunks = config.trunks;
        let mut forwarder = Forwarder {
            id,
            incarnation,
            sealed,
            max_payload,
            reports: VecDeque::new(),
            secret,
            entropy: ChaCha20Rng::from_seed(start.entropy_for(b"addresses")),
            advertise: config.routing.is_some(),
            metric: config.routing.as_ref().map_or(Metric::default(), |r| r.metric),
            links,
            table: Arc::default(),
            access: config.access,
            sessions: Sessions::new(
                config.max_sessions,
                rng.random(),
                ChaCha20Rng::from_seed(start.entropy_for(b"ports")),
            ),
            session_versions: config.session_versions,
            echoes: Echoes::new(),
            flows: Flows::new(MAX_FLOWS, rng.random()),
            statuses: Statuses::default(),
            next_look: Time::ZERO,
            looked_at: None,
            lost: Lost::default(),
            denials: PortUnreachableLimiter::default(),
            held: Held::default(),
            trunks: Trunks::default(),
            streams: StreamState::new(config.streams, &start.entropy_for(b"streams")),
            turn: 0,
            shared: Vec::new(),
            moved: VecDeque::new(),
            last_shared: vec![LinkId(0)],
            calls: CallTimes::new(),
            stats: ForwarderStats::default(),
        };
        forwarder.set_trunks(now, &trunks);
        forwarder
    }

    pub(super) fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Table(table) => {
                self.lost.note(now, &self.table, &table);
                self.table = table;
                self.streams_have_new_table();
            }
            Command::Add(link, config) => {
                let Forwarder { id, incarnation, sealed, secret, .. } = *self;
                self.max_payload = self.max_payload.min(config.max_payload());
                add_link(&mut self.links, link, (id, incarnation, sealed, secret), *config, now);
            }
            Command::Remove(link) => {
                self.links.remove(link);
                // As in the handshakes: a new link in this slot needs another incarnation.
                self.incarnation.0 += 1;
            }
            Command::Install(id, session) => {
                self.links.assign(session.keys.local, id);
                if let Some(link) = self.links.get_mut(id) {
                    link.install(now, *session);
                }
            }
            Command::Release(index) => self.links.release(index),
            Command::Close(id, why) => {
                if self.links.get_mut(id).is_some_and(|link| link.close_sessions(now)) {
                    self.reports.push_back(LinkReport::Down(id, DownCause::Untrusted(why.label())));
                }
            }
        }
    }

    /// Fills the free space for routing frames in the links' queues.
    pub(super) fn take_frames(&mut self, mut next: impl FnMut(LinkId, usize) -> Option<Vec<u8>>) {
        for (id, link) in self.links.iter_mut() {
            while let Some(frame) = link.routing_room().and_then(|room| next(id, room)) {
                link.push_routing(frame);
            }
        }
    }

    pub(super) fn next_report(&mut self) -> Option<LinkReport> {
        self.reports.pop_front()
    }

    /// Says goodbye to the neighbours that support it. Returns the time by which the last packets
    /// in flight to this node have arrived.
    pub(super) fn leave(&mut self, now: Time) -> Time {
        self.set_trunks(now, &[]);
        let told = self.links.iter_mut().filter_map(|(_, link)| link.leave(now));
        told.max().unwrap_or(now)
    }

    pub(super) fn links(&self) -> &Links {
        &self.links
    }

    pub(super) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    pub(super) fn table(&self) -> &Arc<ForwardingTable> {
        &self.table
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    pub(super) fn session_close(&mut self, now: Time, id: SessionId) {
        self.close_stream(now, id);
        self.sessions.close(id);
        self.statuses.forget(id);
        self.held.forget(id);
    }

    pub(super) fn stats(&self) -> ForwarderStats {
        let gateway_sessions = self.sessions.of_gateway() as u64;
        let sessions = self.sessions.len() as u64 - gateway_sessions;
        let (flows_displaced, streams) = (self.flows.displaced(), self.streams.stats());
        let before = self.stats.clone();
        ForwarderStats { sessions, gateway_sessions, flows_displaced, streams, ..before }
    }

    pub(super) fn recv(&mut self, now: Time, batch: &mut [RxDatagram<'_>], sink: &mut impl Sink) {
        for datagram in batch {
            if let Err((link, why)) = self.recv_one(now, datagram, sink) {
                self.drop_counted(link, why);
            }
        }
        self.tell_streams(now, sink);
    }

    pub(super) fn drop_counted(&mut self, link: Option<LinkId>, why: DropReason) {
        match link.and_then(|id| self.links.get_mut(id)) {
            Some(link) => link.drop_counted(why),
            None => self.stats.drops.count(why),
        }
    }

    fn recv_one(
        &mut self,
        now: Time,
        datagram: &mut RxDatagram<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), (Option<LinkId>, DropReason)> {
        if Kind::of(datagram.bytes).is_ok_and(Kind::is_handshake) {
            return self.take_handshake(datagram).map_err(|why| (None, why));
        }
        let header = open_header(datagram.bytes).map_err(|_| (None, DropReason::Malformed))?;
        let unknown = (None, DropReason::UnknownReceiver);
        let id = self.links.owner(header.receiver).ok_or(unknown)?;
        let link = self.links.get_mut(id).ok_or(unknown)?;
        let ends = Ends { remote: datagram.from, local: datagram.local };
        let opened = link.open(datagram.at, ends, datagram.bytes);
        opened.map_err(|why| (Some(id), why))?;
        if link.take_confirmed() {
            self.reports.push_back(LinkReport::Confirmed(id));
        }
        // Bounds the lookups that one envelope can cause, whatever it contains.
        let mut allowance = MAX_GAP as usize;
        for frame in Frames::new(Seal::frames(datagram.bytes)) {
            let frame = frame.map_err(|_| (Some(id), DropReason::Malformed))?;
            let Some(link) = self.links.get_mut(id) else { break };
            match frame {
                Frame::Hello(hello) => {
                    let came_up = link.on_hello(datagram.at, &hello);
                    self.reports.extend(link.up_report(id, came_up));
                }
                Frame::Nack(nack) => link.on_nack(now, nack, &mut allowance),
                Frame::Ack(ack) => {
                    if let Err(why) = link.on_ack(datagram.at, ack, &mut allowance) {
                        link.drop_counted(why);
                    }
                }
                Frame::Goodbye(_) => match link.on_goodbye(datagram.at) {
                    Ok(true) => {
                        self.reports.push_back(LinkReport::Down(id, DownCause::Goodbye));
                    }
                    Ok(false) => {}
                    Err(why) => link.drop_counted(why),
                },
                Frame::Path(path) => {
                    if let Err(why) = link.on_path(datagram.at, path) {
                        link.drop_counted(why);
                    }
                }
                Frame::Routing(_) if self.reports.len() >= MAX_REPORTS => {
                    link.drop_counted(DropReason::ControlFull);
                }
                Frame::Routing(frame) => {
                    self.reports.push_back(LinkReport::Routing(id, frame.into()))
                }
                Frame::Data(header, payload) => {
                    let flow = &header.flow;
                    let goes_on = flow.destination != self.id;
                    let hop =
                        goes_on.then(|| self.next_hop(flow.destination, flow.metric)).flatten();
                    let onward = self.onward(hop);
                    let Some(link) = self.links.get_mut(id) else { return Ok(()) };
                    // Passed by reference from here on: a packet would be copied at each step, and
                    // memory just written in pieces is slow to read as a whole.
                    match &mut link.on_data(datagram.at, &header, payload, onward) {
                        Ok(packet) if self.is_stale(now, datagram.at, packet) => {
                            self.drop_counted(Some(id), DropReason::Late);
                        }
                        Ok(packet) => self.relay(now, (id, datagram.at), hop, packet, sink),
                        Err(why) => self.drop_counted(Some(id), *why),
                    }
                }
            }
        }
        if let Some(link) = self.links.get_mut(id) {
            let place = link.validate_path(now, &mut self.entropy);
            self.reports.extend(place.map(|address| LinkReport::Moved(id, address)));
        }
        Ok(())
    }

    /// Whether a packet that arrived at `at` has waited here too long to be useful to its
    /// recipient.
    pub(super) fn is_stale(&self, now: Time, at: Time, packet: &Packet<'_>) -> bool {
        let flow = &packet.flow;
        let waited = flow.service == Service::RealTime && link::is_stale(now, at, packet.deadline);
        let is_here = flow.destination == self.id;
        // The packets in a trunk packet are checked one by one.
        let port = flow.destination_port;
        waited && !(is_here && (port == NODE_PORT || self.sessions.accepts_late(port)))
    }

    /// Passes a handshake message to control.
    fn take_handshake(&mut self, datagram: &RxDatagram<'_>) -> Result<(), DropReason> {
        if !self.sealed || datagram.bytes.len() > MAX_HANDSHAKE {
            return Err(DropReason::UnknownReceiver);
        }
        if self.reports.len() >= MAX_REPORTS {
            return Err(DropReason::ControlFull);
        }
        let &RxDatagram { at, from: remote, local, .. } = datagram;
        self.reports.push_back(LinkReport::Handshake {
            at,
            ends: Ends { remote, local },
            bytes: (&*datagram.bytes).into(),
        });
        Ok(())
    }

    /// Delay, as far as known, of a packet that continues over `hop`.
    pub(super) fn onward(&self, hop: Option<Hop>) -> Duration {
        let Some(Hop { link, onward }) = hop else { return Duration::ZERO };
        self.links.get(link).map_or(Duration::ZERO, |link| link.monitor().rtt().one_way() + onward)
    }

    /// Relays a packet that arrived from a link at this time: to an application here, or one hop
    /// further.
    fn relay(
        &mut self,
        now: Time,
        (from, at): (LinkId, Time),
        hop: Option<Hop>,
        packet: &mut Packet<'_>,
        sink: &mut impl Sink,
    ) {
        if packet.flow.destination == self.id {
            let done = match packet.flow.destination_port {
                // A node's packets to itself cross no link, so this source is forged.
                _ if packet.flow.source == self.id => Err(DropReason::Bounced),
                _ if packet.is_of_stream() => self.on_stream(now, Some(from), packet),
                NODE_PORT => {
                    let done = self.on_port_unbound(now, packet, sink);
                    let done = done.or_else(|| self.on_trunk((now, at), packet, sink));
                    done.unwrap_or_else(|| self.on_echo(now, packet))
                }
                _ => self.deliver(now, packet, sink),
            };
            if let Err(why) = done {
                if why == DropReason::NoPort && !packet.is_of_stream() {
                    self.send_port_unreachable(now, packet);
                }
                self.stats.drops.count(why);
            }
            return;
        }
        let Some(mut hop_limit) = packet.hop_limit.checked_sub(1) else {
            if let Err(why) = self.on_hop_limit(now, packet) {
                self.stats.drops.count(why);
            }
            return;
        };
        if hop.is_some_and(|hop| hop.link == from) {
            let Some(rest) = hop_limit.checked_sub(TURN_HOPS - 1) else {
                return self.stats.drops.count(DropReason::Bounced);
            };
            hop_limit = rest;
        }
        if let Err(why) = self.access.check_transit(packet.flow.source) {
            return self.stats.drops.count(why);
        }
        packet.hop_limit = hop_limit;
        if !self.table.names(packet.flow.source) {
            packet.turn = UNKNOWN | u32::from(from.0);
        }
        match self.forward(now, hop, packet) {
            Ok(()) => self.stats.forwarded += 1,
            Err((link, why)) => self.drop_counted(link, why),
        }
    }

    /// The next hop of packets to `destination`.
    pub(super) fn next_hop(&self, destination: NodeId, metric: Metric) -> Option<Hop> {
        self.table.next_hop(destination, metric)
    }

    /// Hands a packet to the link of `hop`.
    pub(super) fn forward(
        &mut self,
        now: Time,
        hop: Option<Hop>,
        packet: &Packet<'_>,
    ) -> Result<(), (Option<LinkId>, DropReason)> {
        let hop = hop.ok_or((None, DropReason::NoRoute))?;
        let link = self.links.get_mut(hop.link).ok_or((None, DropReason::NoRoute))?;
        let latest = packet.deadline - hop.onward;
        link.enqueue(now, packet, latest).map_err(|why| (Some(hop.link), why))
    }

    pub(super) fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        self.ask_trunks(now);
        self.stream_timeouts(now);
        self.tell_streams(now, sink);
        for (id, link) in self.links.iter_mut() {
            if link.handle_timeout(now) {
                self.reports.push_back(LinkReport::Down(id, DownCause::Silence));
            }
            let place = link.validate_path(now, &mut self.entropy);
            self.reports.extend(place.map(|address| LinkReport::Moved(id, address)));
            if link.wants_rekey() {
                self.reports.push_back(LinkReport::Rekey(id));
            }
            if self.advertise {
                advertise(now, id, link, &mut self.reports);
            }
        }
    }

    /// A link with other ends than when it was returned last.
    pub(super) fn next_moved(&mut self) -> Option<LinkId> {
        self.moved.pop_front()
    }

    /// Sets the uplink of a link.
    pub(super) fn set_uplink(&mut self, link: LinkId, uplink: UplinkId, interface: Option<u32>) {
        let places = usize::from(uplink.0) + 1;
        if self.last_shared.len() < places {
            self.last_shared.resize(places, LinkId(0));
        }
        if let Some(link) = self.links.get_mut(link) {
            link.set_uplink(uplink, interface);
        }
    }

    /// Binds a link to own addresses, or to none.
    pub(super) fn bind_link(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        if let Some(link) = self.links.get_mut(link) {
            link.bind(own);
        }
    }

    /// Sets another address for a link; false if it is up, or has that address.
    pub(super) fn set_address(&mut self, link: LinkId, address: SocketAddr) -> bool {
        let link = self.links.get_mut(link).filter(|link| !link.monitor().is_up());
        link.is_some_and(|link| link.set_address(address))
    }

    /// Urgent packets of all links go before any other packet, since links may share an uplink.
    pub(super) fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        self.shared.clear();
        let (places, first) = (self.links.places(), usize::from(self.turn));
        for i in 0..places {
            let id = LinkId(((first + i) % places) as u16);
            let Some(link) = self.links.get_mut(id) else { continue };
            if link.take_moved() && !self.moved.contains(&id) {
                self.moved.push_back(id);
            }
            let before = arena.bytes().len();
            let progress = link.transmit(now, arena);
            if arena.bytes().len() > before
                && let Some(interface) = link.interface()
            {
                self.calls.note(now, interface, link.calls_until());
            }
            match progress {
                Progress::Idle | Progress::Paced => {}
                Progress::Quantum => self.shared.push(Some(id)),
                Progress::NoRoom if arena.bytes().len() == before => {}
                Progress::NoRoom => self.turn = id.0 + 1,
                Progress::ArenaFull => {
                    self.turn = id.0 + 1;
                    return Drained::More;
                }
            }
        }
        self.transmit_shared(now, arena)
    }

    /// The links of an uplink take turns: first those behind the last one that sent.
    fn transmit_shared(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        self.shared.sort_unstable();
        let mut drained = Drained::All;
        for wrapped in [false, true] {
            for slot in &mut self.shared {
                let Some(link) = slot.and_then(|id| self.links.get_mut(id)) else { continue };
                let last = self.last_shared.get_mut(usize::from(link.uplink().0));
                if !wrapped && last.as_deref().copied() >= *slot {
                    continue;
                }
                if let Some(interface) = link.interface() {
                    link.yield_until(self.calls.of(interface));
                }
                let (id, before) = (slot.take(), arena.bytes().len());
                let progress = link.transmit_shared(now, arena);
                if let (Some(last), Some(id), true) = (last, id, arena.bytes().len() > before) {
                    *last = id;
                }
                match progress {
                    Progress::ArenaFull => return Drained::More,
                    Progress::Quantum => drained = Drained::More,
                    Progress::Idle | Progress::Paced | Progress::NoRoom => {}
                }
            }
        }
        drained
    }

    pub(super) fn next_timeout(&self, now: Time) -> Time {
        let mut next = Time::NEVER;
        self.timeouts(now, |at, _| next = next.min(at));
        next
    }

    /// Reason for a timeout at `next`, if there is one.
    pub(super) fn timer(&self, now: Time, next: Time) -> Option<Timer> {
        let mut found = None;
        self.timeouts(now, |at, why| {
            if at == next && at < Time::NEVER {
                found.get_or_insert(why);
            }
        });
        found
    }

    /// Calls `each` with the time of and reason for every pending timeout.
    #[inline]
    fn timeouts(&self, now: Time, mut each: impl FnMut(Time, Timer)) {
        self.trunks.timeouts(&mut each);
        each(self.streams.next_timeout(), Timer::Stream);
        let mut offer = |at: Option<Time>, why| each(at.unwrap_or(Time::NEVER), why);
        for (id, link) in self.links.iter() {
            offer(link.hello_at(), Timer::Hello(id));
            offer(link.monitor().dead_at(), Timer::Silence(id));
            offer(link.pace_at(now), Timer::Pace(id));
            offer(link.goodbye_at(), Timer::Goodbye(id));
            for (service, at) in link.service_timeouts() {
                offer(Some(at), Timer::Service(id, service));
            }
            offer(link.session_at(), Timer::Session(id));
            if self.advertise {
                offer(link.monitor().advertise_at(), Timer::Route);
                offer(link.monitor().ease_at(), Timer::Route);
            }
        }
    }
}

/// Reports to control the costs of a link that others should receive, and the start and end of
/// damping.
fn advertise(now: Time, id: LinkId, link: &mut Link, reports: &mut VecDeque<LinkReport>) {
    let eased = link.monitor_mut().ease(now);
    if let Some(before) = eased {
        let is = link.monitor().damping().share > 0.0;
        if is != (before.share > 0.0) {
            reports.push_back(LinkReport::Damped(id, is));
        }
    }
    let news = link.monitor_mut().advertise(now).map(|quality| link.cost(quality));
    // A decayed penalty may be advertised at once: that happens rarely enough.
    let news = news.or_else(|| eased.and_then(|_| link.advertised()));
    reports.extend(news.map(|cost| LinkReport::Cost(id, cost)));
}

/// A sealed link gets its receiver indices with its sessions.
fn add_link(
    links: &mut Links,
    number: LinkId,
    (own, incarnation, sealed, secret): (NodeId, Incarnation, bool, u64),
    config: link::Config,
    first_hello: Time,
) {
    let (seal, index) = match sealed {
        true => (Seal::Aead(Box::default()), None),
        false => {
            let (seal, index) = Link::unsealed(own, incarnation, &config);
            (seal, Some(index))
        }
    };
    let mut link = Link::new(seal, config, first_hello, secret);
    link.begin(incarnation);
    links.insert(number, link);
    if let Some(index) = index {
        links.assign(index, number);
    }
}
