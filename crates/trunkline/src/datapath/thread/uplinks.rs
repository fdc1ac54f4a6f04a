//! The uplinks of a node: which link sends by which, and how far each has room.

mod departures;
mod own_queues;

pub use departures::Elsewhere;

use super::hosts::{LookupError, name_of};
use super::next_hops::{NextHop, SilentNextHops};
use super::{PacketThread, token};
use crate::addresses;
use crate::clock;
use crate::datapath::mmsg::{Egress, TxBatch};
use crate::datapath::record::RecordedNode;
use crate::datapath::routes::{Routes, Way};
use crate::datapath::send_errors::{SendError, SendErrors};
use crate::datapath::udp::Udp;
use crate::datapath::uplink::{Output, UNUSED, Uplink, UplinkStats};
use crate::node::config::Host;
use departures::{Departure, NoWay, Sharing};
use nix::net::if_::if_nametoindex;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use own_queues::{MAX_OWN, Outflow, OwnQueues};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use trunkline_base::Time;
use trunkline_overlay::arena::{Run, TxArena, UplinkId};
use trunkline_overlay::link::{Link, LinkId};
use trunkline_overlay::node::{Drained, LinkName};

/// Maximum number of uplinks. Links by further interfaces share those of the listeners.
const MAX_UPLINKS: usize = 64 + MAX_OWN;

/// Maximum number of links whose route is looked up in one turn, each in some 10 µs.
const LOOKUPS_PER_TURN: usize = 32;

/// How a link is to leave and where its neighbour is, as far as its section says more than an
/// address.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WantedPath {
    /// Own address to send from.
    pub source: Option<IpAddr>,
    /// Name of the interface to send by.
    pub interface: Option<String>,
    /// Name at which the neighbour is found.
    pub host: Option<Host>,
}

/// The name of an interface without a carrier, and since when that is known.
type Dead = (String, Time);

/// The links with such settings.
pub type WantedPaths = BTreeMap<LinkName, WantedPath>;

/// A node's uplinks: one for each UDP socket that it listens at, then one for each interface, own
/// address and listener that links leave by. Uplink 0 of the overlay, which has no limit, leaves as
/// a message from the destination came, or by the listener of its address family: answers of
/// handshakes leave by it.
pub struct Uplinks {
    output: Output,
    /// `None` if the system forbids questions about routes.
    routes: Option<Routes>,
    /// Address of each listener.
    pub(super) listeners: Vec<SocketAddr>,
    slots: Vec<Option<Slot>>,
    wanted: WantedPaths,
    /// Addresses of this machine.
    own: Vec<IpAddr>,
    /// Addresses of this machine that another one has.
    duplicates: Vec<IpAddr>,
    /// Those of each interface, if the system says.
    own_by_interface: Option<BTreeMap<String, Vec<IpAddr>>>,
    /// Links that were looked at.
    names: BTreeMap<LinkId, LinkName>,
    /// Links whose route is to be looked up.
    pub(super) waiting: BTreeSet<LinkId>,
    pub(super) next_hops: SilentNextHops,
    pub(super) own_queues: OwnQueues,
    /// The machines that packets of links are handed to.
    next_hop_of: BTreeMap<LinkId, NextHop>,
    /// Links that leave by another interface than the one that has their source.
    elsewhere: BTreeMap<LinkId, Elsewhere>,
    /// Links whose packets have arrived at an own address that they are not bound to.
    pub(super) astray: BTreeSet<LinkId>,
    /// Interfaces without a carrier, and since when that is known.
    dead: BTreeMap<u32, Dead>,
    /// Links that leave by one of them.
    dead_by_link: BTreeMap<LinkId, Dead>,
    /// When to lower the limits of sockets that have not needed them.
    lower_at: Time,
    /// Links of which nothing may leave, and why, by the number of their uplink from [`FIRST_HELD`].
    held: Vec<Option<(LinkId, i32)>>,
    /// Counters of former uplinks, and of envelopes to an address family that no socket has.
    past: UplinkStats,
}

struct Slot {
    uplink: Uplink,
    departure: Departure,
    /// Room that the uplink had when it was looked at last.
    room: usize,
    /// Time since it has had no room, if it has none.
    full_since: Option<Time>,
    /// Whether it gets no more room until its race has ended, and whether something entered it since.
    paused: bool,
    disturbed: bool,
    /// Whether something entered it since its room was looked at.
    is_used: bool,
    outflow: Outflow,
}

/// Number of the first uplink that holds a link: nothing leaves by it. Each such link has its own, so
/// that what is refused is told of the right one.
const FIRST_HELD: u16 = MAX_UPLINKS as u16 + 1;

impl Uplinks {
    /// One uplink for each of `sockets`; sets their room in `arena`.
    pub fn new(
        sockets: &mut [Udp],
        wanted: WantedPaths,
        epoll: &Epoll,
        arena: &mut TxArena,
    ) -> io::Result<Uplinks> {
        let routes = Routes::open().inspect_err(|error| {
            tracing::warn!(
                %error,
                "routes cannot be looked up, so links by different interfaces share a socket, and \
                 one that hangs holds up the others: allow AF_NETLINK (RestrictAddressFamilies)"
            );
        });
        let routes = routes.ok();
        if let Some(routes) = &routes {
            epoll.add(routes, EpollEvent::new(EpollFlags::EPOLLIN, token::ROUTES))?;
        }
        let mut uplinks = Uplinks {
            output: Output {
                tx: TxBatch::new(),
                egress: Egress::default(),
                errors: SendErrors::default(),
                now: clock::now(),
            },
            routes,
            listeners: sockets.iter().map(Udp::local_addr).collect::<io::Result<_>>()?,
            slots: Vec::with_capacity(MAX_UPLINKS),
            wanted,
            own: Vec::new(),
            duplicates: Vec::new(),
            own_by_interface: None,
            names: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next_hops: SilentNextHops::new(),
            own_queues: OwnQueues::new(),
            next_hop_of: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            astray: BTreeSet::new(),
            dead: BTreeMap::new(),
            dead_by_link: BTreeMap::new(),
            lower_at: Time::NEVER,
            held: Vec::new(),
            past: UplinkStats::default(),
        };
        for (listener, socket) in sockets.iter().enumerate() {
            let (egress, sharing) = (Egress::default(), Sharing::Links);
            let departure = Departure { listener, interface: 0, egress, sharing };
            uplinks.add(socket.uplink()?, departure, arena);
        }
        uplinks.look_at_own(sockets);
        Ok(uplinks)
    }

    /// Counters of all uplinks together.
    pub fn stats(&self) -> UplinkStats {
        let all = self.slots.iter().flatten().map(|slot| slot.uplink.stats());
        all.fold(self.past, UplinkStats::plus)
    }

    fn add(&mut self, uplink: Uplink, departure: Departure, arena: &mut TxArena) -> UplinkId {
        let free = self.slots.iter().position(Option::is_none);
        self.set(free.unwrap_or(self.slots.len()), uplink, departure, arena)
    }

    fn set(
        &mut self,
        i: usize,
        mut uplink: Uplink,
        departure: Departure,
        arena: &mut TxArena,
    ) -> UplinkId {
        let now = clock::now();
        let paused = self.own_queues.races(departure.sharing);
        // A packet is enough for a race.
        let (id, room) = (UplinkId(i as u16 + 1), if paused { 1 } else { uplink.room(now, 0) });
        arena.set_room(id, room);
        arena.set_offload(id, uplink.offloads());
        let outflow = Outflow::new(now);
        let (full_since, disturbed, is_used) = (None, false, false);
        let slot =
            Some(Slot { uplink, departure, room, full_since, paused, disturbed, is_used, outflow });
        match self.slots.get_mut(i) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        id
    }

    /// Closes the uplinks of the listener `i`, of which that of its own socket is opened again.
    pub(super) fn close_all_of(&mut self, i: usize, epoll: &Epoll) {
        for place in &mut self.slots {
            let Some(slot) = place.take_if(|slot| slot.departure.listener == i) else { continue };
            self.past = self.past.plus(slot.uplink.stats());
            if slot.room == 0 {
                let _ = epoll.delete(slot.uplink.as_fd());
            }
        }
    }

    /// Makes `uplink` that of the socket of listener `i`, which has none.
    pub(super) fn open_first(&mut self, i: usize, uplink: Uplink, arena: &mut TxArena) {
        let egress = Egress::default();
        let departure = Departure { listener: i, interface: 0, egress, sharing: Sharing::Links };
        self.set(i, uplink, departure, arena);
    }

    /// Learns which interfaces have no carrier, and the addresses of this machine, so that the sockets
    /// can say to which of them each datagram was sent.
    fn look_at_own(&mut self, sockets: &mut [Udp]) {
        let before = std::mem::take(&mut self.dead);
        for name in addresses::without_carrier() {
            let Ok(index) = if_nametoindex(name.as_str()) else { continue };
            let since = before.get(&index).map_or_else(clock::now, |(_, since)| *since);
            self.dead.insert(index, (name, since));
        }
        self.duplicates = addresses::duplicates();
        self.own_by_interface = addresses::by_interface();
        self.own =
            self.own_by_interface.iter().flat_map(BTreeMap::values).flatten().copied().collect();
        let routed: Vec<_> = self.own.iter().copied().filter(addresses::is_routed).collect();
        for (socket, number) in sockets.iter_mut().zip(0..) {
            if let Err(error) = socket.set_local(number, &routed) {
                tracing::warn!(
                    %error,
                    "the kernel doesn't say to which own address a datagram was sent, so answers \
                     leave from the address that it chooses"
                );
            }
        }
    }

    /// Reason why no packet to `to` can leave, or why it would arrive at this node itself.
    pub(super) fn unreachable(&self, to: &SocketAddr) -> Option<LookupError> {
        let is_own = to.ip().is_loopback() || self.own.contains(&to.ip());
        let arrives = |l: &SocketAddr| {
            l.port() == to.port() && (l.ip() == to.ip() || l.ip().is_unspecified() && is_own)
        };
        let of_family = self.listeners.iter().filter(|l| l.is_ipv6() == to.is_ipv6());
        let mut of_family = of_family.peekable();
        match of_family.peek() {
            None if to.is_ipv6() => Some(LookupError::OnlyIpv6),
            None => Some(LookupError::OnlyIpv4),
            Some(_) => of_family.any(arrives).then_some(LookupError::ThisNode),
        }
    }

    /// Time since nothing of a link is taken, if that is so. The kernel discards what waits for a next
    /// hop that doesn't answer every few seconds, which makes room, and is no end of that.
    pub fn stalled(&self, id: LinkId, link: &Link) -> Option<Time> {
        let awaited = self.next_hops.awaited_by(id).map(|(_, since)| since);
        let awaited = awaited.or_else(|| Some(self.without_carrier(id, link)?.1));
        // A link that races waits for the uplink that it shares with others.
        let shared = self.own_queues.raced_for_by(id);
        awaited.or_else(|| self.full_since(shared.unwrap_or(link.uplink())))
    }

    /// Time since `uplink` has had no room, if it has none.
    pub(super) fn full_since(&self, uplink: UplinkId) -> Option<Time> {
        self.slot(uplink)?.full_since
    }

    fn slot(&self, uplink: UplinkId) -> Option<&Slot> {
        self.slots.get(usize::from(uplink.0.checked_sub(1)?))?.as_ref()
    }

    /// Whether `uplink` is one of a single interface.
    pub(super) fn is_of_one_interface(&self, uplink: UplinkId) -> bool {
        self.slot(uplink).is_some_and(|slot| slot.departure.interface != 0)
    }

    /// Number of what is behind `uplink`: its interface, or else its listener.
    fn interface_of(&self, uplink: UplinkId) -> Option<u32> {
        let Departure { interface, listener, .. } = self.slot(uplink)?.departure;
        Some(if interface == 0 { u32::MAX - listener as u32 } else { interface })
    }

    /// Whether `uplink` is for next hops that don't answer.
    pub(super) fn is_for_silent(&self, uplink: UplinkId) -> bool {
        self.slot(uplink).is_some_and(|slot| slot.departure.sharing == Sharing::Silent)
    }

    /// Takes an uplink that has room again for one that doesn't stall.
    pub(super) fn forget_stalls(&mut self) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.room > 0) {
            slot.full_since = None;
        }
    }

    /// The machine that packets of `link` are handed to, if the kernel has a route.
    pub(super) fn next_hop(&self, link: LinkId) -> Option<NextHop> {
        self.next_hop_of.get(&link).copied()
    }

    pub(super) fn is_silent(&mut self, (interface, next_hop): NextHop) -> Option<bool> {
        self.routes.as_mut()?.is_silent(interface, next_hop)
    }

    /// Leaves `uplink` to the next hops that don't answer: what waits in it is for them.
    pub(super) fn leave_to_silent(&mut self, uplink: UplinkId) {
        let Some(i) = uplink.0.checked_sub(1).map(usize::from) else { return };
        if let Some(Some(slot)) = self.slots.get_mut(i) {
            slot.departure.sharing = Sharing::Silent;
        }
    }

    /// The uplink by which the link `id` leaves for `to`, which is opened if need be.
    fn towards(
        &mut self,
        (id, to): (LinkId, &SocketAddr),
        (sockets, node): (&[Udp], &RecordedNode),
        arena: &mut TxArena,
    ) -> UplinkId {
        self.forget_path(id);
        let Some(link) = node.node().link(id) else { return UplinkId::default() };
        let local = link.local();
        let name = name_of(link);
        let wanted = self.wanted.get(&name).cloned().unwrap_or_default();
        let (mut departure, way) = match self.departure((&wanted, local), to) {
            Ok(found) => found,
            Err(NoWay::Family) => return UplinkId::default(),
            Err(NoWay::Held(errno)) => return self.hold(id, errno, arena),
        };
        if let Some(Way { interface, next_hop, .. }) = way {
            self.next_hop_of.insert(id, (interface, next_hop));
            let dead = self.dead.get(&interface).map(|dead| (id, dead.clone()));
            self.dead_by_link.extend(dead);
        }
        if let Some(elsewhere) = Self::elsewhere_by(&wanted, departure.interface) {
            self.elsewhere.insert(id, elsewhere);
        }
        if let (Sharing::Links, Some(_)) = (departure.sharing, way)
            && let Some(group) = self.own_queues.group_of(id)
        {
            departure.sharing = Sharing::Own(group);
        }
        let leads = |slot: &Option<Slot>| slot.as_ref().is_some_and(|s| s.departure == departure);
        if let Some(i) = self.slots.iter().position(leads) {
            return UplinkId(i as u16 + 1);
        }
        self.close_unused(node);
        let shared = UplinkId(departure.listener as u16 + 1);
        if self.slots.iter().flatten().count() >= MAX_UPLINKS {
            return shared;
        }
        let added = sockets[departure.listener].sibling();
        added.map_or(shared, |uplink| self.add(self.careful(uplink, departure), departure, arena))
    }

    /// The uplink of the link `id`, of which nothing may leave.
    fn hold(&mut self, id: LinkId, errno: i32, arena: &mut TxArena) -> UplinkId {
        let i = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        self.held.resize(self.held.len().max(i + 1), None);
        self.held[i] = Some((id, errno));
        let uplink = UplinkId(FIRST_HELD.saturating_add(i as u16));
        arena.set_room(uplink, 0);
        uplink
    }

    /// Why nothing may leave by `uplink`, if that is so.
    fn held_by(&self, uplink: UplinkId) -> Option<i32> {
        let i = uplink.0.checked_sub(FIRST_HELD).map(usize::from)?;
        (*self.held.get(i)?).map(|(_, errno)| errno)
    }

    /// Forgets where the packets of a link go.
    fn forget_path(&mut self, id: LinkId) {
        self.next_hop_of.remove(&id);
        self.elsewhere.remove(&id);
        self.dead_by_link.remove(&id);
        for place in &mut self.held {
            place.take_if(|(link, _)| *link == id);
        }
    }

    /// Forgets what is known of a link that is gone, or leads nowhere any more.
    fn forget(&mut self, id: LinkId) {
        self.forget_path(id);
        self.own_queues.forget(id);
        self.next_hops.forget(id);
        self.output.errors.forget(id);
    }

    /// Notes which link has the number `id`, if any has, and forgets what is known of a former one: a
    /// new link may take the number of one that is removed with the same change.
    fn identify(&mut self, id: LinkId, name: Option<LinkName>) {
        if self.names.get(&id) != name.as_ref() {
            self.forget(id);
            self.names.remove(&id);
            self.names.extend(name.map(|name| (id, name)));
        }
    }

    /// Closes uplinks that no link sends by: those of interfaces that are gone, for instance.
    fn close_unused(&mut self, node: &RecordedNode) {
        let mut used = [false; MAX_UPLINKS + 1];
        for (_, link) in node.node().links() {
            if let Some(used) = used.get_mut(usize::from(link.uplink().0)) {
                *used = true;
            }
        }
        for (slot, used) in self.slots.iter_mut().zip(&used[1..]).skip(self.listeners.len()) {
            // All links of one that is raced for may race.
            let is_raced = |s: &Slot| s.paused && s.departure.sharing == Sharing::Links;
            if let Some(closed) = slot.take_if(|slot| !used && !is_raced(slot)) {
                self.past = self.past.plus(closed.uplink.stats());
            }
        }
    }

    /// Errors of the kernel when it refused to send packets of a link.
    pub fn error_of(&self, link: LinkId) -> Option<SendError> {
        self.output.errors.of(link)
    }

    /// How a link leaves elsewhere than its source says, if it does.
    pub fn elsewhere(&self, link: LinkId) -> Option<&Elsewhere> {
        self.elsewhere.get(&link)
    }

    /// The interface that a link which is down leaves by, if that has no carrier, and since when.
    pub fn without_carrier(&self, id: LinkId, link: &Link) -> Option<&(String, Time)> {
        self.dead_by_link.get(&id).filter(|_| !link.monitor().is_up())
    }

    /// Whether packets of some link may be kept at this machine.
    pub(super) fn have_trouble(&self, now: Time) -> bool {
        let errors = &self.output.errors;
        errors.are_recent(now)
            || !(self.elsewhere.is_empty() && self.dead_by_link.is_empty())
            || !self.astray.is_empty()
            || self.next_hops.look_at() < Time::NEVER
    }

    /// Sends everything in `arena`.
    fn send(&mut self, now: Time, arena: &TxArena) {
        self.output.now = now;
        let mut runs = arena.runs();
        while let Some(first) = runs.first() {
            let way = self.way_of(first);
            let same = runs.iter().take_while(|run| self.way_of(run) == way).count();
            let (part, rest) = runs.split_at(same);
            match way.and_then(|(i, egress)| Some((self.slots.get_mut(i)?.as_mut()?, egress))) {
                Some((slot, egress)) => {
                    self.output.egress = egress;
                    let errors = slot.uplink.stats().errors;
                    slot.uplink.send(&mut self.output, arena, part);
                    (slot.disturbed, slot.is_used) = (true, true);
                    if slot.uplink.stats().errors == errors {
                        slot.outflow.took(part);
                    }
                    if slot.uplink.was_full() {
                        slot.full_since.get_or_insert(now);
                        self.next_hops.stalled(now);
                    }
                }
                None => self.refuse(part),
            }
            runs = rest;
        }
    }

    /// Counts runs for which there is no uplink.
    fn refuse(&mut self, runs: &[Run]) {
        for run in runs {
            let errno = self.held_by(run.uplink).unwrap_or(libc::EAFNOSUPPORT);
            let (error, count) = (io::Error::from_raw_os_error(errno), run.count as u64);
            self.output.errors.note(self.output.now, (run.uplink, run.to), &error, count);
            self.past.errors += count;
        }
    }

    /// The slot by which `run` leaves, and how.
    fn way_of(&self, run: &Run) -> Option<(usize, Egress)> {
        if let Some(i) = run.uplink.0.checked_sub(1).map(usize::from) {
            let slot = self.slots.get(i)?.as_ref()?;
            let Departure { listener, egress, sharing, .. } = slot.departure;
            // A handshake, which waits for no room, would make the race void.
            let is_raced_for = slot.paused && sharing == Sharing::Links;
            return Some((if is_raced_for { listener } else { i }, egress));
        }
        if let Some(local) = run.from {
            let listener = usize::from(local.socket);
            return Some((listener, self.egress_from(listener, local.ip)));
        }
        Some((self.listener_towards(&run.to, None)?, Egress::default()))
    }

    /// Renews the room of the uplinks that had none for an envelope, and once a second of those whose
    /// socket may hold more than it did at first, since they may need that no more. The room of one
    /// that is half used is renewed early if nothing waits in its socket, so that no train of packets
    /// is cut. Returns whether one that had none has room now; the others are watched until they are
    /// writable.
    fn refill(&mut self, now: Time, arena: &mut TxArena, epoll: &Epoll) -> io::Result<bool> {
        let mut any = false;
        let lowers = now >= self.lower_at;
        if lowers {
            self.lower_at = Time::NEVER;
        }
        for (slot, i) in self.slots.iter_mut().zip(0u16..) {
            let id = UplinkId(i + 1);
            let Some(slot) = slot else { continue };
            let (left, is_wanted) = (arena.room(id), arena.is_wanted(id));
            let is_used = std::mem::take(&mut slot.is_used);
            if slot.room == 0 || slot.paused {
                continue;
            }
            let is_early = || is_used && left < slot.room / 2 && slot.uplink.is_empty();
            if !(is_wanted || lowers && slot.uplink.is_raised() || is_early()) {
                continue;
            }
            slot.renew(now, (id, slot.room - left), arena, epoll)?;
            any |= is_wanted && slot.room > 0;
            if slot.uplink.is_raised() {
                self.lower_at = self.lower_at.min(now + UNUSED);
            }
            if slot.room == 0 {
                self.next_hops.stalled(now);
                self.own_queues.stalled(now);
            }
        }
        Ok(any)
    }

    /// Renews the room of an uplink that has become writable.
    fn writable(
        &mut self,
        i: u16,
        now: Time,
        arena: &mut TxArena,
        epoll: &Epoll,
    ) -> io::Result<()> {
        let slot = self.slots.get_mut(usize::from(i)).and_then(Option::as_mut);
        // A slot that was closed and opened again since then isn't watched.
        let slot = slot.filter(|slot| slot.room == 0 && !slot.paused);
        let Some(slot) = slot else { return Ok(()) };
        slot.room = slot.uplink.writable(now);
        arena.set_room(UplinkId(i + 1), slot.room);
        if slot.uplink.is_raised() {
            self.lower_at = self.lower_at.min(now + UNUSED);
        }
        if slot.room > 0 {
            slot.full_since = None;
            epoll.delete(slot.uplink.as_fd())?;
        }
        Ok(())
    }
}

impl Slot {
    /// Renews its room as uplink `id` after it was given `given` bytes; without room, it is watched
    /// until it is writable.
    fn renew(
        &mut self,
        now: Time,
        (id, given): (UplinkId, usize),
        arena: &mut TxArena,
        epoll: &Epoll,
    ) -> io::Result<()> {
        self.room = self.uplink.room(now, given);
        arena.set_room(id, self.room);
        arena.set_offload(id, self.uplink.offloads());
        self.full_since = (self.room == 0).then_some(now);
        if self.room == 0 {
            // A socket that epoll knows costs a twentieth of the time of a packet, whatever it
            // is watched for: the kernel looks for waiters after each.
            let event = EpollEvent::new(EpollFlags::EPOLLOUT, token::UPLINK | u64::from(id.0 - 1));
            epoll.add(self.uplink.as_fd(), event)?;
        }
        Ok(())
    }
}

impl PacketThread {
    /// Sends the node's output, as far as the uplinks have room; the rest waits in the node's
    /// bounded queues.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        loop {
            self.arena.clear();
            let now = clock::now();
            let drained = self.node.transmit(now, &mut self.arena);
            self.uplinks.send(now, &self.arena);
            while let Some(link) = self.node.next_moved() {
                self.uplinks.waiting.insert(link);
            }
            let has_room = self.uplinks.refill(now, &mut self.arena, &self.epoll)?;
            if self.arena.is_empty() && drained == Drained::All && !has_room {
                return Ok(());
            }
        }
    }

    /// Looks up the routes of links with a new address, or of all after a change of routes. Returns
    /// whether any sends by another uplink now.
    pub(super) fn assign_uplinks(&mut self) -> bool {
        let mut any = false;
        for _ in 0..LOOKUPS_PER_TURN {
            let Some(id) = self.uplinks.waiting.pop_first() else { break };
            self.bind(id);
            let link = self.node.node().link(id);
            self.uplinks.identify(id, link.map(name_of));
            let Some((link, address)) = link.and_then(|link| Some((link, link.address()?))) else {
                let missing = link.and_then(|link| self.uplinks.missing(&name_of(link)));
                self.uplinks.forget(id);
                self.uplinks.output.errors.hold(clock::now(), id, missing);
                continue;
            };
            if link.astray(clock::now()).is_some() {
                self.uplinks.astray.insert(id);
            }
            let before = (link.uplink(), link.interface());
            let name = name_of(link);
            let sockets = (&self.udp[..], &self.node);
            let link = (id, &address);
            let uplink = self.uplinks.towards(link, sockets, &mut self.arena);
            self.uplinks.next_hops.suspect(clock::now());
            let held = self.uplinks.held_by(uplink);
            let errors = &mut self.uplinks.output.errors;
            errors.lead(id, &name, (uplink, address));
            errors.hold(clock::now(), id, held);
            let interface = self.uplinks.interface_of(uplink);
            if (uplink, interface) != before {
                self.node.set_uplink(id, uplink, interface);
                any = true;
            }
        }
        any
    }

    /// Finds links whose packets wait in a queue of their own.
    pub(super) fn look_for_own_queues(&mut self, now: Time) -> io::Result<()> {
        self.uplinks.look_for_own_queues(now, &self.node, (&mut self.arena, &self.epoll))
    }

    /// Binds a link to the own addresses that its section allows.
    fn bind(&mut self, id: LinkId) {
        let Some(link) = self.node.node().link(id) else { return };
        let own = self.uplinks.own_addresses(&name_of(link), link.address());
        if link.own() != own.as_ref() {
            self.node.bind(id, own);
        }
    }

    /// Whether routes remain to be looked up.
    pub(super) fn has_lookups(&self) -> bool {
        !self.uplinks.waiting.is_empty()
    }

    /// Looks up the routes of all links again.
    pub(super) fn look_up_all(&mut self) {
        for (link, _) in self.node.node().links() {
            self.uplinks.waiting.insert(link);
        }
    }

    /// Handles changes of routes, interfaces or own addresses.
    pub(super) fn on_routes(&mut self) {
        if self.uplinks.routes.as_mut().is_some_and(Routes::have_changed) {
            self.uplinks.look_at_own(&mut self.udp);
            self.listen_again();
            self.look_up_all();
        }
    }

    /// Sets the configured paths of links, after links may have come and gone.
    pub(super) fn want_paths(&mut self, wanted: WantedPaths) {
        if self.uplinks.wanted != wanted {
            self.hosts.want(&wanted);
            self.uplinks.wanted = wanted;
        }
        let known = self.uplinks.output.errors.links().collect::<Vec<_>>();
        self.uplinks.waiting.extend(known);
        self.look_up_all();
        // Nothing may arrive for a link before it is bound.
        let links: Vec<_> = self.node.node().links().map(|(id, _)| id).collect();
        links.into_iter().for_each(|id| self.bind(id));
    }

    pub(super) fn on_uplink(&mut self, index: u32) -> io::Result<()> {
        let now = clock::now();
        self.uplinks.writable(index as u16, now, &mut self.arena, &self.epoll)
    }
}
