//! Packets on the move: the driver's interface and the event loop.

use crate::graph::{DirectionId, EdgeId, Graph, NetError, Routing, VertexId};
use crate::ledger::{Bin, Bins, EdgeLedger, Flow, Ledgers, VertexLedger};
use crate::medium::{Done, Frame, Medium, MediumId, PacketKey};
use crate::moment::{Moment, Schedule};
use crate::observer::{Fate, Observer};
use crate::packet::{Class, Delivery, DropReason, Header, MAX_PAYLOAD, Packet};
use crate::pool::{Pool, Slot};
use core::any::Any;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_base::link_model::{Cause, Ecn, Impairment, Ledger, LinkModel, PacketFate};

/// Number of routers that forward a packet before one drops it: the limit that hosts set by default
/// (RFC 1700).
pub const HOP_LIMIT: u8 = 64;

/// Default limit on the number of packets under way.
pub const MAX_UNDER_WAY: usize = 1 << 22;

/// Hosts, routers, edges, and the packets on them. The crate's documentation has an example.
///
/// Using an id of another network is a bug: methods panic on an id that does not exist.
pub struct Network<T = ()> {
    seed: u64,
    limit: usize,
    graph: Graph,
    directions: Vec<Direction>,
    media: Vec<Shared>,
    pool: Pool,
    schedule: Schedule<Event>,
    /// Number of moments given out so far.
    moments: u64,
    flows: Vec<Flow>,
    tap: T,
}

/// A scheduled event of the network.
#[derive(Clone, Copy)]
enum Event {
    /// The first of the packets in this direction comes out.
    Arrival(u32),
    /// This medium is due to be polled.
    Medium(u32),
}

/// One direction of an edge.
struct Direction {
    carrier: Carrier,
    ledgers: Ledgers,
    /// Known arrivals in this direction, in order, as no packet overtakes another. Only the first
    /// is in the schedule.
    coming: VecDeque<(Moment, u32)>,
    /// Number of packets sent by hosts that started in this direction, modulo 65,536.
    begun: u16,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are, and each packet looks there")]
enum Carrier {
    /// First in, first out; the arrival time is known at once.
    Fifo(Impairment),
    Medium {
        medium: u32,
        lane: u32,
    },
}

struct Shared {
    medium: Box<dyn Medium>,
    /// Scheduled polls, each earlier than the one before. A medium that wants to be polled later
    /// than the earliest is polled early; so no scheduled poll is ever void, and polls can't pile
    /// up.
    wakes: Vec<Time>,
}

impl Network {
    /// Creates an empty network. All its randomness follows from `seed`.
    pub fn new(seed: u64) -> Network {
        Network::with_tap(seed, ())
    }
}

impl<T: Observer> Network<T> {
    /// Creates a network as [`Network::new`] does, with an observer.
    pub fn with_tap(seed: u64, tap: T) -> Network<T> {
        Network {
            seed,
            limit: MAX_UNDER_WAY,
            graph: Graph::default(),
            directions: Vec::new(),
            media: Vec::new(),
            pool: Pool::default(),
            schedule: Schedule::default(),
            moments: 0,
            flows: Vec::new(),
            tap,
        }
    }

    /// Sets the method by which routes are found from now on.
    pub fn set_routing(&mut self, routing: Routing) {
        self.graph.set_routing(routing);
    }

    /// Limits the packets under way to `packets`; those sent beyond are dropped.
    pub fn set_limit(&mut self, packets: usize) {
        self.limit = packets;
    }

    /// Allocates `bytes` of payload memory with each new packet slot, so that a payload of at most
    /// that length never grows it. [`Network::set_limit`] then bounds the memory in bytes, too.
    pub fn set_payload_memory(&mut self, bytes: usize) {
        self.pool.payload = bytes;
    }

    /// Adds a host, where packets begin and end.
    pub fn host(&mut self) -> VertexId {
        self.graph.add(false)
    }

    /// Adds a router, which forwards packets.
    pub fn router(&mut self) -> VertexId {
        self.graph.add(true)
    }

    /// Adds an edge from `a` to `b` and back. Each direction is first in, first out, and has its
    /// own random numbers.
    ///
    /// # Errors
    ///
    /// Returns [`NetError::Model`], and then changes nothing.
    pub fn connect(
        &mut self,
        a: VertexId,
        b: VertexId,
        forward: LinkModel,
        reverse: LinkModel,
    ) -> Result<EdgeId, NetError> {
        self.connect_streams(a, b, forward, reverse, self.directions.len() as u64)
    }

    /// Adds an edge as [`Network::connect`] does, with random stream `stream` forward and the next
    /// one in reverse. Directions with the same stream meet the same losses and jitter, as far as
    /// their models agree. The default stream is the direction's number.
    ///
    /// # Errors
    ///
    /// Fails as [`Network::connect`] does.
    pub fn connect_streams(
        &mut self,
        a: VertexId,
        b: VertexId,
        forward: LinkModel,
        reverse: LinkModel,
        stream: u64,
    ) -> Result<EdgeId, NetError> {
        let delays = [forward.delay, reverse.delay];
        let forward = Impairment::new(forward, self.seed, stream)?;
        let reverse = Impairment::new(reverse, self.seed, stream.wrapping_add(1))?;
        let carriers = [forward, reverse].map(Carrier::Fifo);
        Ok(self.join(a, b, delays, carriers))
    }

    /// Adds a medium, for [`Network::connect_over`].
    pub fn medium(&mut self, medium: impl Medium) -> MediumId {
        self.media.push(Shared { medium: Box::new(medium), wakes: Vec::new() });
        MediumId(self.media.len() as u32 - 1)
    }

    /// Inspects or changes a medium at `now`, and schedules its next poll; `None` if the medium is
    /// of another type.
    pub fn with_medium<M: Medium, R>(
        &mut self,
        now: Time,
        medium: MediumId,
        look: impl FnOnce(&mut M) -> R,
    ) -> Option<R> {
        let shared: &mut dyn Any = &mut *self.media[medium.0 as usize].medium;
        let seen = look(shared.downcast_mut()?);
        self.arm(now, medium.0);
        Some(seen)
    }

    /// Adds an edge whose directions are two lanes of a medium, forward and reverse. Routing counts
    /// `delay` for each.
    pub fn connect_over(
        &mut self,
        a: VertexId,
        b: VertexId,
        medium: MediumId,
        lanes: [u32; 2],
        delay: Duration,
    ) -> EdgeId {
        let carriers = lanes.map(|lane| Carrier::Medium { medium: medium.0, lane });
        self.join(a, b, [delay; 2], carriers)
    }

    fn join(
        &mut self,
        a: VertexId,
        b: VertexId,
        delays: [Duration; 2],
        carriers: [Carrier; 2],
    ) -> EdgeId {
        self.graph.join(a, b, delays);
        self.directions.extend(carriers.map(|carrier| Direction {
            carrier,
            ledgers: Ledgers::default(),
            coming: VecDeque::new(),
            begun: 0,
        }));
        EdgeId(self.directions.len() as u32 / 2 - 1)
    }

    /// Routes packets for `to` at `at` in this direction, even if another is shorter. A host with a
    /// single edge always uses that one.
    ///
    /// # Errors
    ///
    /// Returns [`NetError::NotFromHere`].
    pub fn set_route(
        &mut self,
        at: VertexId,
        to: VertexId,
        direction: DirectionId,
    ) -> Result<(), NetError> {
        self.graph.set_route(at, to, direction)
    }

    /// The directions that a packet takes from one host to another, in order; `None` if it doesn't
    /// get there: there is no route, or the route is a loop or leads to another host.
    pub fn path(&self, from: VertexId, to: VertexId) -> Option<Vec<DirectionId>> {
        self.graph.paths(to)(from)
    }

    /// Computes [`Network::path`] from many vertices to one: the routes are found once.
    pub fn paths(&self, to: VertexId) -> impl Fn(VertexId) -> Option<Vec<DirectionId>> {
        self.graph.paths(to)
    }

    /// The direction that a packet for `to` takes at `at`.
    pub fn route(&mut self, at: VertexId, to: VertexId) -> Option<DirectionId> {
        self.graph.next_hop(at, to)
    }

    /// Replaces the model of a direction from now on; see [`Impairment::change`]. Routes do not
    /// change.
    ///
    /// # Errors
    ///
    /// Returns [`NetError::Model`] or [`NetError::NoModel`], and then changes nothing.
    pub fn change(&mut self, direction: DirectionId, model: LinkModel) -> Result<(), NetError> {
        match &mut self.directions[direction.0 as usize].carrier {
            Carrier::Fifo(fifo) => Ok(fifo.change(model)?),
            Carrier::Medium { .. } => Err(NetError::NoModel(direction)),
        }
    }

    fn fifo(&self, direction: DirectionId) -> Option<&Impairment> {
        match &self.directions[direction.0 as usize].carrier {
            Carrier::Fifo(fifo) => Some(fifo),
            Carrier::Medium { .. } => None,
        }
    }

    /// The current model of a direction; `None` if it belongs to a medium.
    pub fn model(&self, direction: DirectionId) -> Option<&LinkModel> {
        self.fifo(direction).map(Impairment::model)
    }

    /// The decisions of a direction's model, which counts a packet as delivered once its arrival is
    /// decided; `None` if the direction belongs to a medium.
    pub fn decided(&self, direction: DirectionId) -> Option<Ledger> {
        self.fifo(direction).map(Impairment::ledger)
    }

    /// Sends a packet at `now`: puts it on the first edge of its route, or drops it. For the
    /// queues, a `now` in the past counts as the present.
    pub fn send(&mut self, now: Time, packet: &Packet<'_>) {
        let flow = flow(&mut self.flows, packet.class);
        flow.sent.add(packet.bytes as usize);
        if packet.payload.len() > MAX_PAYLOAD {
            flow.drop(DropReason::TooLong, packet.bytes as usize);
            return;
        }
        let at = packet.from.vertex;
        let Some(direction) = self.graph.next_hop(at, packet.to.vertex) else {
            return self.drop_at(at, packet.class, DropReason::NoRoute, packet.bytes);
        };
        let room = self.pool.under_way() < self.limit;
        let slot = self.pool.vacant();
        let header = &mut self.pool.slots[slot as usize].header;
        let onto = &mut self.directions[direction.0 as usize];
        *header = Header {
            from: packet.from,
            to: packet.to,
            bytes: packet.bytes,
            direction,
            number: onto.begun,
            protocol: packet.protocol,
            tos: packet.tos,
            class: packet.class,
            hops_left: HOP_LIMIT,
        };
        onto.begun = onto.begun.wrapping_add(1);
        let (flows, tap) = (&mut self.flows, &mut self.tap);
        let fate = Self::enter(onto, flows, tap, (now, room), header, packet.payload);
        match fate {
            Fate::Dropped(..) => {}
            Fate::Arrives(at, _) => {
                self.pool.take(slot, packet.payload);
                self.comes_out(at, slot);
            }
            Fate::Open => {
                self.pool.take(slot, packet.payload);
                self.enter_medium(now, slot);
            }
        }
    }

    /// The time of the next event; [`Time::NEVER`] if there is none.
    pub fn next_timeout(&self) -> Time {
        self.schedule.next().at
    }

    /// Returns the next packet that has arrived by `now`; call it until it returns `None`. Give
    /// each delivery back to [`Network::release`].
    pub fn poll(&mut self, now: Time) -> Option<Delivery> {
        self.poll_before(Moment::end_of(now))
    }

    /// Polls as [`Network::poll`] does, for arrivals before `end`; nothing at or after it happens
    /// yet.
    pub fn poll_before(&mut self, end: Moment) -> Option<Delivery> {
        while let Some((now, event)) = self.schedule.peek_before(end) {
            match event {
                Event::Arrival(direction) => {
                    let coming = &mut self.directions[direction as usize].coming;
                    let first = coming.pop_front();
                    self.schedule.put_off(coming.front().map(|&(moment, _)| moment));
                    let Some((_, slot)) = first else { continue };
                    if let Some(delivery) = self.arrive(now, slot) {
                        return Some(delivery);
                    }
                }
                Event::Medium(medium) => {
                    self.schedule.put_off(None);
                    self.media[medium as usize].wakes.pop();
                    self.poll_medium(now, medium);
                }
            }
        }
        None
    }

    /// Schedules the packet in `slot` to come out of its direction at `at`.
    #[inline]
    fn comes_out(&mut self, at: Time, slot: u32) {
        // An arrival at the end of time never happens.
        if at == Time::NEVER {
            return;
        }
        let moment = self.moment(at);
        let direction = self.pool.slots[slot as usize].header.direction.0;
        let coming = &mut self.directions[direction as usize].coming;
        if coming.is_empty() {
            self.schedule.push(moment, Event::Arrival(direction));
        }
        coming.push_back((moment, slot));
    }

    /// Returns a moment at `at`, after all moments at that time that were given out before, and
    /// after all events that the network has planned.
    #[inline]
    pub fn moment(&mut self, at: Time) -> Moment {
        self.moments += 1;
        Moment::numbered(at, self.moments)
    }

    /// Returns the header of an arrived packet and takes its payload, which is empty from then on.
    #[inline]
    pub fn open(&mut self, delivery: &Delivery) -> (Header, Vec<u8>) {
        let slot = &mut self.pool.slots[delivery.slot as usize];
        (slot.header, core::mem::take(&mut slot.payload))
    }

    /// Puts back the payload of an arrived packet, for another [`Network::open`].
    pub fn close(&mut self, delivery: &Delivery, payload: Vec<u8>) {
        self.pool.slots[delivery.slot as usize].payload = payload;
    }

    /// Frees the slot of an arrived packet and takes back memory for another payload: ideally the
    /// packet's own.
    #[inline]
    pub fn release(&mut self, delivery: Delivery, memory: Vec<u8>) {
        self.pool.slots[delivery.slot as usize].payload = memory;
        self.pool.release(delivery.slot);
    }

    /// Enters a packet into its header's direction at a time, given whether the packet limit allows
    /// it. On return, the header has the TOS byte as the queue left it.
    #[inline]
    fn enter(
        direction: &mut Direction,
        flows: &mut Vec<Flow>,
        tap: &mut T,
        (now, room): (Time, bool),
        header: &mut Header,
        payload: &[u8],
    ) -> Fate {
        let (class, bytes) = (header.class, header.bytes as usize);
        direction.ledgers.offered(now, class, bytes);
        let before = Ecn::of_tos(header.tos);
        let mut ecn = before;
        let fate = match &mut direction.carrier {
            Carrier::Fifo(fifo) => {
                let verdict = fifo.offer_ecn(now, bytes, &mut ecn);
                let tos = ecn.in_tos(header.tos);
                match verdict {
                    PacketFate::Deliver(_) if !room => Fate::Dropped(DropReason::NoRoom, tos),
                    PacketFate::Deliver(at) => Fate::Arrives(at, tos),
                    PacketFate::Drop(cause) => Fate::Dropped(reason(cause), tos),
                }
            }
            Carrier::Medium { .. } if !room => Fate::Dropped(DropReason::NoRoom, header.tos),
            Carrier::Medium { .. } => Fate::Open,
        };
        if ecn != before && !matches!(fate, Fate::Dropped(DropReason::Queue, _)) {
            direction.ledgers.marked(class, bytes);
        }
        tap.sent(now, header, payload, fate);
        match fate {
            Fate::Arrives(_, tos) => header.tos = tos,
            Fate::Dropped(why, _) => {
                direction.ledgers.dropped(now, class, why, bytes);
                flow(flows, class).drop(why, bytes);
            }
            Fate::Open => {}
        }
        fate
    }

    /// Takes the packet in `slot` out of its direction: delivers it at its destination, or forwards
    /// it at a router.
    #[inline]
    fn arrive(&mut self, now: Time, slot: u32) -> Option<Delivery> {
        let Slot { header, payload, .. } = &self.pool.slots[slot as usize];
        let (class, bytes) = (header.class, header.bytes as usize);
        let direction = &mut self.directions[header.direction.0 as usize];
        direction.ledgers.arrived(now, class, bytes);
        self.tap.arrived(now, header, payload);
        let here = self.graph.end(header.direction);
        if here == header.to.vertex {
            flow(&mut self.flows, class).delivered.add(bytes);
            return Some(Delivery { at: now, slot });
        }
        self.pass_on(now, here, slot);
        None
    }

    fn pass_on(&mut self, now: Time, here: VertexId, slot: u32) {
        let Slot { header, payload, .. } = &mut self.pool.slots[slot as usize];
        let why = if !self.graph.vertices[here.0 as usize].router {
            DropReason::Stray
        } else if header.hops_left == 0 {
            DropReason::HopLimit
        } else if let Some(direction) = self.graph.next_hop(here, header.to.vertex) {
            header.hops_left -= 1;
            header.direction = direction;
            let (flows, tap) = (&mut self.flows, &mut self.tap);
            let direction = &mut self.directions[direction.0 as usize];
            let fate = Self::enter(direction, flows, tap, (now, true), header, payload);
            return match fate {
                Fate::Dropped(..) => self.pool.release(slot),
                Fate::Arrives(at, _) => self.comes_out(at, slot),
                Fate::Open => self.enter_medium(now, slot),
            };
        } else {
            DropReason::NoRoute
        };
        let (class, bytes) = (header.class, header.bytes);
        self.pool.release(slot);
        self.drop_at(here, class, why, bytes);
    }

    fn drop_at(&mut self, at: VertexId, class: Class, why: DropReason, bytes: u32) {
        let ledger = &mut self.graph.vertices[at.0 as usize].ledger;
        let count = match why {
            DropReason::HopLimit => &mut ledger.hop_limit,
            DropReason::Stray => &mut ledger.stray,
            _ => &mut ledger.no_route,
        };
        count.add(bytes as usize);
        flow(&mut self.flows, class).drop(why, bytes as usize);
    }

    fn enter_medium(&mut self, now: Time, slot: u32) {
        let Header { direction, bytes, tos, class, .. } = self.pool.slots[slot as usize].header;
        let Carrier::Medium { medium, lane } = self.directions[direction.0 as usize].carrier else {
            unreachable!("only a medium leaves a fate open");
        };
        let frame = Frame { key: PacketKey(slot), lane, bytes, tos, class };
        self.pool.slots[slot as usize].in_medium = true;
        if let Err(cause) = self.media[medium as usize].medium.offer(now, &frame) {
            self.drop_in_medium(now, slot, cause);
        }
        self.arm(now, medium);
    }

    fn drop_in_medium(&mut self, now: Time, slot: u32, cause: Cause) {
        let Slot { header, payload, .. } = &self.pool.slots[slot as usize];
        let (class, bytes, why) = (header.class, header.bytes as usize, reason(cause));
        self.directions[header.direction.0 as usize].ledgers.dropped(now, class, why, bytes);
        flow(&mut self.flows, class).drop(why, bytes);
        self.tap.dropped(now, header, payload, why);
        self.pool.release(slot);
    }

    fn poll_medium(&mut self, now: Time, medium: u32) {
        while let Some(Done { key, outcome }) = self.media[medium as usize].medium.poll(now) {
            let slot = &mut self.pool.slots[key.0 as usize];
            let carrier = &self.directions[slot.header.direction.0 as usize].carrier;
            let its = matches!(*carrier, Carrier::Medium { medium: m, .. } if m == medium);
            // A medium can only return a packet that it has.
            if !(its && slot.in_medium) {
                continue;
            }
            match outcome {
                Ok(tos) => {
                    let marked = Ecn::of_tos(tos) != Ecn::of_tos(slot.header.tos);
                    (slot.header.tos, slot.in_medium) = (tos, false);
                    let header = slot.header;
                    if marked {
                        let direction = &mut self.directions[header.direction.0 as usize];
                        direction.ledgers.marked(header.class, header.bytes as usize);
                    }
                    self.comes_out(now, key.0);
                }
                Err(cause) => self.drop_in_medium(now, key.0, cause),
            }
        }
        self.arm(now + Duration::from_nanos(1), medium);
    }

    /// Schedules the next poll of a medium, not before `earliest`.
    fn arm(&mut self, earliest: Time, medium: u32) {
        let shared = &mut self.media[medium as usize];
        let at = shared.medium.next_timeout();
        if at == Time::NEVER {
            return;
        }
        let at = at.max(earliest);
        if shared.wakes.last().is_none_or(|&next| at < next) {
            shared.wakes.push(at);
            let moment = self.moment(at);
            self.schedule.push(moment, Event::Medium(medium));
        }
    }

    /// Totals of a direction over all packets.
    pub fn ledger(&self, direction: DirectionId) -> EdgeLedger {
        self.directions[direction.0 as usize].ledgers.total()
    }

    /// Totals of a direction over the packets of a class.
    pub fn ledger_of(&self, direction: DirectionId, class: Class) -> EdgeLedger {
        self.directions[direction.0 as usize].ledgers.of(class)
    }

    /// Packets that a host or router dropped itself.
    pub fn vertex_ledger(&self, vertex: VertexId) -> VertexLedger {
        self.graph.vertices[vertex.0 as usize].ledger
    }

    /// End-to-end totals of a class.
    pub fn flow(&self, class: Class) -> Flow {
        self.flows.get(usize::from(class.0)).copied().unwrap_or_default()
    }

    /// Starts recording each class in a direction in time bins; discards any earlier record.
    pub fn record(&mut self, direction: DirectionId, bins: Bins) {
        self.directions[direction.0 as usize].ledgers.record(bins);
    }

    /// The bins of [`Network::record`], up to the last one with an event of the class.
    pub fn bins(&self, direction: DirectionId, class: Class) -> &[Bin] {
        self.directions[direction.0 as usize].ledgers.bins(class)
    }

    /// Number of packets under way, or delivered and not yet released.
    pub fn under_way(&self) -> usize {
        self.pool.under_way()
    }

    /// Number of packets as in [`Network::under_way`], but of one class; visits each packet.
    pub fn under_way_of(&self, class: Class) -> usize {
        self.pool.iter().filter(|slot| slot.header.class == class).count()
    }

    /// Number of planned events: arrivals and polls of media.
    pub fn scheduled(&self) -> usize {
        let coming: usize = self.directions.iter().map(|d| d.coming.len().saturating_sub(1)).sum();
        self.schedule.len() + coming
    }

    /// The observer, as passed to [`Network::with_tap`].
    pub fn tap(&self) -> &T {
        &self.tap
    }

    /// The observer, with mutable access.
    pub fn tap_mut(&mut self) -> &mut T {
        &mut self.tap
    }
}

#[inline]
fn flow(flows: &mut Vec<Flow>, class: Class) -> &mut Flow {
    let at = usize::from(class.0);
    if at >= flows.len() {
        flows.resize(at + 1, Flow::default());
    }
    &mut flows[at]
}

fn reason(cause: Cause) -> DropReason {
    match cause {
        Cause::Loss => DropReason::Loss,
        Cause::Queue => DropReason::Queue,
    }
}
