//! The network itself.

use crate::graph::{DirectionId, EdgeId, Graph, NetError, Routing, VertexId};
use crate::ledger::{Bin, Bins, EdgeLedger, Flow, Ledgers, VertexLedger};
use crate::medium::{Done, Frame, Medium, MediumId, PacketKey};
use crate::moment::{Moment, Schedule};
use crate::packet::{Class, Delivery, DropReason, Header, MAX_PAYLOAD, Packet};
use crate::pool::{Pool, Slot};
use crate::tap::{Fate, Tap};
use core::any::Any;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_base::link_model::{Cause, Ecn, Impairment, Ledger, LinkModel, Verdict};

/// How many routers pass a packet on before one drops it: the limit that hosts
/// set by default (RFC 1700).
pub const HOP_LIMIT: u8 = 64;

/// How many packets are under way at most, if nothing else is said.
pub const MAX_UNDER_WAY: usize = 1 << 22;

/// Hosts, routers, edges, and the packets on them. The crate's documentation
/// has an example.
///
/// An id of another network is a mistake in the program: methods panic on one
/// that is not there.
pub struct Network<T = ()> {
    seed: u64,
    limit: usize,
    graph: Graph,
    directions: Vec<Direction>,
    media: Vec<Shared>,
    pool: Pool,
    schedule: Schedule<Event>,
    /// Counts the moments that were given out.
    moments: u64,
    flows: Vec<Flow>,
    tap: T,
}

/// Something that happens in the network.
#[derive(Clone, Copy)]
enum Event {
    /// The first of the packets in this direction comes out of it.
    Arrival(u32),
    /// This medium asked to be polled.
    Medium(u32),
}

/// One direction of an edge.
struct Direction {
    carrier: Carrier,
    ledgers: Ledgers,
    /// When which packet comes out, as far as that is known: in this order, for
    /// none overtakes another. Only the first is in the schedule.
    coming: VecDeque<(Moment, u32)>,
    /// Packets that began their way here.
    begun: u16,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are, and each packet looks there")]
enum Carrier {
    /// First in, first out; the arrival is known at once.
    Fifo(Impairment),
    Medium {
        medium: u32,
        lane: u32,
    },
}

struct Shared {
    medium: Box<dyn Medium>,
    /// When it will be polled, each earlier than the one before. A medium that
    /// wants that later than the earliest is polled early; so nothing in the
    /// schedule is ever void, and they can't pile up.
    wakes: Vec<Time>,
}

impl Network {
    /// An empty network. Everything random in it follows from `seed`.
    pub fn new(seed: u64) -> Network {
        Network::with_tap(seed, ())
    }
}

impl<T: Tap> Network<T> {
    /// As [`Network::new`], with somebody who looks on.
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

    /// How routes are found from now on.
    pub fn set_routing(&mut self, routing: Routing) {
        self.graph.set_routing(routing);
    }

    /// Drops what is sent while `packets` are under way.
    pub fn set_limit(&mut self, packets: usize) {
        self.limit = packets;
    }

    /// Takes memory for a payload of `bytes` wherever a packet is the first in its
    /// place, so that none of at most that length grows it: [`Network::set_limit`]
    /// bounds bytes then, too.
    pub fn set_payload_memory(&mut self, bytes: usize) {
        self.pool.payload = bytes;
    }

    /// A place where packets begin and end.
    pub fn host(&mut self) -> VertexId {
        self.graph.add(false)
    }

    /// A place where packets are passed on.
    pub fn router(&mut self) -> VertexId {
        self.graph.add(true)
    }

    /// An edge from `a` to `b` and back, each direction first in, first out, with
    /// random numbers of its own.
    ///
    /// # Errors
    ///
    /// [`NetError::Model`]; then nothing has changed.
    pub fn connect(
        &mut self,
        a: VertexId,
        b: VertexId,
        forward: LinkModel,
        reverse: LinkModel,
    ) -> Result<EdgeId, NetError> {
        self.connect_streams(a, b, forward, reverse, self.directions.len() as u64)
    }

    /// As [`Network::connect`], with stream `stream` of the seed forward and the
    /// next one back: directions with one stream meet the same losses and jitter,
    /// as far as their models are alike. By itself an edge has the numbers of its
    /// directions.
    ///
    /// # Errors
    ///
    /// As [`Network::connect`].
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

    /// A medium, for [`Network::connect_over`].
    pub fn medium(&mut self, medium: impl Medium) -> MediumId {
        self.media.push(Shared { medium: Box::new(medium), wakes: Vec::new() });
        MediumId(self.media.len() as u32 - 1)
    }

    /// Looks at a medium or changes it at `now`, and polls it when it wants to be
    /// after that; `None` if it is of another type.
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

    /// An edge whose directions are two lanes of a medium, forward and reverse.
    /// `delay` is what routes reckon with, for each.
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

    /// Sends what comes to `at` on its way to `to` in this direction, whatever is
    /// shorter. A host with one edge always sends there.
    ///
    /// # Errors
    ///
    /// [`NetError::NotFromHere`].
    pub fn set_route(
        &mut self,
        at: VertexId,
        to: VertexId,
        direction: DirectionId,
    ) -> Result<(), NetError> {
        self.graph.set_route(at, to, direction)
    }

    /// The directions that a packet takes from one host to another, in order; `None`
    /// if it doesn't come there: for want of a route, or since it goes in circles
    /// or to another host.
    pub fn path(&self, from: VertexId, to: VertexId) -> Option<Vec<DirectionId>> {
        self.graph.paths(to)(from)
    }

    /// As [`Network::path`], from many places to one: routes to there are found once.
    pub fn paths(&self, to: VertexId) -> impl Fn(VertexId) -> Option<Vec<DirectionId>> {
        self.graph.paths(to)
    }

    /// The direction that a packet for `to` takes at `at`.
    pub fn route(&mut self, at: VertexId, to: VertexId) -> Option<DirectionId> {
        self.graph.next_hop(at, to)
    }

    /// Gives a direction another model from now on; see [`Impairment::change`].
    /// Routes stay as they are.
    ///
    /// # Errors
    ///
    /// [`NetError::Model`] or [`NetError::NoModel`]; then nothing has changed.
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

    /// What a direction does now; `None` if it is over a medium.
    pub fn model(&self, direction: DirectionId) -> Option<&LinkModel> {
        self.fifo(direction).map(Impairment::model)
    }

    /// What the model of a direction has decided, which counts a packet as
    /// delivered as soon as it is on its way; `None` if it is over a medium.
    pub fn decided(&self, direction: DirectionId) -> Option<Ledger> {
        self.fifo(direction).map(Impairment::ledger)
    }

    /// Sends a packet at `now`: puts it on the first edge of its way, or drops
    /// it. A `now` before what has happened counts as far as queues go as the
    /// present.
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

    /// When something happens next; [`Time::NEVER`] if nothing does.
    pub fn next_timeout(&self) -> Time {
        self.schedule.next().at
    }

    /// What has arrived by `now` and was not handed out yet, one by one: ask
    /// until there is no more. Each goes back to [`Network::release`].
    pub fn poll(&mut self, now: Time) -> Option<Delivery> {
        self.poll_before(Moment::end_of(now))
    }

    /// As [`Network::poll`], of what arrives before `end`; nothing at or after it
    /// happens yet.
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

    /// The packet in `slot` will come out of its direction at `at`.
    #[inline]
    fn comes_out(&mut self, at: Time, slot: u32) {
        // Nothing happens at the end of time.
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

    /// A moment at `at`, after all moments at that time that were asked for
    /// before, and all that the network has planned.
    #[inline]
    pub fn moment(&mut self, at: Time) -> Moment {
        self.moments += 1;
        Moment::numbered(at, self.moments)
    }

    /// A packet that has arrived: what is known of it, and its payload, which is
    /// empty from then on.
    #[inline]
    pub fn open(&mut self, delivery: &Delivery) -> (Header, Vec<u8>) {
        let slot = &mut self.pool.slots[delivery.slot as usize];
        (slot.header, core::mem::take(&mut slot.payload))
    }

    /// Puts the payload of a packet that has arrived back, for another
    /// [`Network::open`].
    pub fn close(&mut self, delivery: &Delivery, payload: Vec<u8>) {
        self.pool.slots[delivery.slot as usize].payload = payload;
    }

    /// Takes back the place of a packet that has arrived, and with it memory for
    /// another payload: best that which the packet had.
    #[inline]
    pub fn release(&mut self, delivery: Delivery, memory: Vec<u8>) {
        self.pool.slots[delivery.slot as usize].payload = memory;
        self.pool.release(delivery.slot);
    }

    /// A packet enters its header's direction, at a time, and whether there is room
    /// for it. What the queue does to its TOS byte is in the header after that.
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
                    Verdict::Deliver(_) if !room => Fate::Dropped(DropReason::NoRoom, tos),
                    Verdict::Deliver(at) => Fate::Arrives(at, tos),
                    Verdict::Drop(cause) => Fate::Dropped(reason(cause), tos),
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

    /// The packet in `slot` comes out of its direction: at its host, which it is
    /// handed to, or at a router.
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
            // What it doesn't have it can't give back.
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

    /// Sees to it that a medium is polled when it wants to be, `earliest` at the
    /// earliest.
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

    /// What a direction did to all packets.
    pub fn ledger(&self, direction: DirectionId) -> EdgeLedger {
        self.directions[direction.0 as usize].ledgers.total()
    }

    /// What a direction did to packets of a class.
    pub fn ledger_of(&self, direction: DirectionId, class: Class) -> EdgeLedger {
        self.directions[direction.0 as usize].ledgers.of(class)
    }

    /// What a host or router dropped itself.
    pub fn vertex_ledger(&self, vertex: VertexId) -> VertexLedger {
        self.graph.vertices[vertex.0 as usize].ledger
    }

    /// What became of a class from end to end.
    pub fn flow(&self, class: Class) -> Flow {
        self.flows.get(usize::from(class.0)).copied().unwrap_or_default()
    }

    /// Keeps from now on what a direction does to each class in bins of time; what
    /// was kept before is forgotten.
    pub fn record(&mut self, direction: DirectionId, bins: Bins) {
        self.directions[direction.0 as usize].ledgers.record(bins);
    }

    /// The bins of [`Network::record`], up to the last in which anything happened
    /// to the class.
    pub fn bins(&self, direction: DirectionId, class: Class) -> &[Bin] {
        self.directions[direction.0 as usize].ledgers.bins(class)
    }

    /// How many packets are under way, or delivered and not released yet.
    pub fn under_way(&self) -> usize {
        self.pool.under_way()
    }

    /// As [`Network::under_way`], of a class, found by looking at each.
    pub fn under_way_of(&self, class: Class) -> usize {
        self.pool.iter().filter(|slot| slot.header.class == class).count()
    }

    /// How many events are planned: arrivals, and times to poll a medium.
    pub fn scheduled(&self) -> usize {
        let coming: usize = self.directions.iter().map(|d| d.coming.len().saturating_sub(1)).sum();
        self.schedule.len() + coming
    }

    /// The tap that looks on, as [`Network::with_tap`] was given it.
    pub fn tap(&self) -> &T {
        &self.tap
    }

    /// The tap that looks on, to change it.
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
