//! The uplinks of a node: which link sends by which, and how far each has room.

use super::next_hops::{NextHop, SilentNextHops};
use super::{PacketThread, token};
use crate::addresses;
use crate::clock;
use crate::datapath::mmsg::{Egress, TxBatch};
use crate::datapath::record::RecordedNode;
use crate::datapath::routes::Routes;
use crate::datapath::send_errors::{SendError, SendErrors};
use crate::datapath::spoken::{Entrance, Spoken};
use crate::datapath::udp::Udp;
use crate::datapath::uplink::{Output, Uplink, UplinkStats};
use nix::net::if_::if_nametoindex;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use trunkline_base::Time;
use trunkline_overlay::arena::{Run, TxArena, UplinkId};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::Drained;
use trunkline_overlay::wire::NodeId;

/// Maximum number of uplinks. Links by further interfaces share those of the listeners.
const MAX_UPLINKS: usize = 64;

/// Maximum number of links whose route is looked up in one turn, each in some 10 µs.
const LOOKUPS_PER_TURN: usize = 32;

/// How a link is to leave, as configured.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WantedEgress {
    /// Own address to send from.
    pub source: Option<IpAddr>,
    /// Name of the interface to send by.
    pub interface: Option<String>,
}

/// The links that are to leave in a certain way, by neighbour and path label.
pub type WantedEgresses = BTreeMap<(NodeId, String), WantedEgress>;

/// A node's uplinks: one for each UDP socket that it listens at, then one for each interface, own
/// address and listener that links leave by. Uplink 0 of the overlay, which has no limit, leaves as
/// a message from the destination came, or by the listener of its address family: answers of
/// handshakes leave by it.
pub struct Uplinks {
    output: Output,
    /// `None` if the system forbids questions about routes.
    routes: Option<Routes>,
    /// Address of each listener.
    listeners: Vec<SocketAddr>,
    slots: Vec<Option<Slot>>,
    wanted: WantedEgresses,
    spoken: Spoken,
    /// Where the neighbour of each link spoke to, if packets must leave from there because the
    /// kernel would choose another address.
    pins: BTreeMap<LinkId, (NodeId, Entrance)>,
    /// Links whose route is to be looked up, and whether the neighbour has a new address.
    pub(super) waiting: BTreeMap<LinkId, bool>,
    pub(super) next_hops: SilentNextHops,
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
}

/// The properties that distinguish an uplink from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Departure {
    /// Number of the listener whose address it has.
    listener: usize,
    /// Index of the interface by which its packets leave; 0 if they may leave by any.
    interface: u32,
    egress: Egress,
    /// Whether it is for next hops that don't answer: what waits for one holds up the others.
    silent: bool,
}

/// The uplink of links whose interface does not exist: nothing leaves.
const NOWHERE: UplinkId = UplinkId(MAX_UPLINKS as u16 + 1);

/// Why a link has no uplink of its own.
enum NoWay {
    /// There is no interface of the configured name.
    Interface,
    /// There is no listener of the address family.
    Family,
}

impl Uplinks {
    /// One uplink for each of `sockets`; sets their room in `arena`.
    pub fn new(
        sockets: &mut [Udp],
        wanted: WantedEgresses,
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
            spoken: Spoken::default(),
            pins: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_hops: SilentNextHops::new(),
            past: UplinkStats::default(),
        };
        for (listener, socket) in sockets.iter().enumerate() {
            let departure =
                Departure { listener, interface: 0, egress: Egress::default(), silent: false };
            uplinks.add(socket.uplink()?, departure, epoll, arena)?;
        }
        report_own(sockets);
        Ok(uplinks)
    }

    /// Counters of all uplinks together.
    pub fn stats(&self) -> UplinkStats {
        let all = self.slots.iter().flatten().map(|slot| slot.uplink.stats());
        all.fold(self.past, UplinkStats::plus)
    }

    fn add(
        &mut self,
        mut uplink: Uplink,
        departure: Departure,
        epoll: &Epoll,
        arena: &mut TxArena,
    ) -> io::Result<UplinkId> {
        let free = self.slots.iter().position(Option::is_none);
        let i = free.unwrap_or(self.slots.len());
        epoll
            .add(uplink.as_fd(), EpollEvent::new(EpollFlags::empty(), token::UPLINK | i as u64))?;
        let (id, room) = (UplinkId(i as u16 + 1), uplink.room(clock::now(), 0));
        arena.set_room(id, room);
        let slot = Some(Slot { uplink, departure, room, full_since: None });
        match self.slots.get_mut(i) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        Ok(id)
    }

    /// The listener whose uplink packets for `to` leave by, if `own` is to be their source.
    fn listener_towards(&self, to: &SocketAddr, own: Option<IpAddr>) -> Option<usize> {
        let of_family = |listener: &SocketAddr| listener.is_ipv6() == to.is_ipv6();
        let sends = |listener: &SocketAddr| own.is_some_and(|own| listener.ip() == own);
        let fits = |l: &SocketAddr| of_family(l) && (sends(l) || l.ip().is_unspecified());
        let listeners = || self.listeners.iter();
        listeners().position(fits).or_else(|| listeners().position(of_family))
    }

    /// How a link that is configured as `wanted`, and whose neighbour spoke to `pin`, leaves for
    /// `to`.
    fn departure(
        &mut self,
        (wanted, pin): (&WantedEgress, Option<Entrance>),
        to: &SocketAddr,
    ) -> Result<Departure, NoWay> {
        let mut egress = Egress { source: wanted.source, interface: 0 };
        if let Some(name) = &wanted.interface {
            egress.interface = if_nametoindex(name.as_str()).map_err(|_| NoWay::Interface)?;
        }
        let mut listener = self.listener_towards(to, egress.source).ok_or(NoWay::Family)?;
        let pin = pin.filter(|_| egress.source.is_none());
        if let Some(pin) = pin {
            (listener, egress.source) = (pin.listener, pin.own);
        }
        let Some(routes) = &mut self.routes else {
            return Ok(Departure { listener, interface: 0, egress, silent: false });
        };
        let mut way = routes.towards(to.ip(), egress);
        if way.is_err() && pin.is_some() {
            // The own address may be gone.
            egress.source = None;
            way = routes.towards(to.ip(), egress);
        }
        // Without a route, nothing can be sent now; the kernel reports the next change.
        let Ok(way) = way else {
            return Ok(Departure { listener, interface: 0, egress, silent: false });
        };
        if pin.is_none() && egress.source.is_none() {
            listener = self.listener_towards(to, way.source).ok_or(NoWay::Family)?;
        }
        // A socket that is bound to an address sends from it.
        egress.source = egress.source.filter(|_| self.listeners[listener].ip().is_unspecified());
        let silent = self.next_hops.contains(&(way.interface, way.next_hop));
        Ok(Departure { listener, interface: way.interface, egress, silent })
    }

    /// How packets leave by `uplink`, and since when it has had no room, if it has none. `None` if
    /// it is not one of a single interface.
    pub(super) fn without_room(&self, uplink: UplinkId) -> Option<(Egress, Option<Time>)> {
        let slot = self.slots.get(usize::from(uplink.0.checked_sub(1)?))?.as_ref()?;
        (slot.departure.interface != 0).then_some((slot.departure.egress, slot.full_since))
    }

    /// Takes an uplink that has room again for one that doesn't stall.
    pub(super) fn forget_stalls(&mut self) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.room > 0) {
            slot.full_since = None;
        }
    }

    /// The machine that packets to `to` are handed to.
    pub(super) fn next_hop(&mut self, to: IpAddr, egress: Egress) -> Option<NextHop> {
        let way = self.routes.as_mut()?.towards(to, egress).ok()?;
        Some((way.interface, way.next_hop))
    }

    pub(super) fn is_silent(&mut self, (interface, next_hop): NextHop) -> bool {
        self.routes.as_mut().is_some_and(|routes| routes.is_silent(interface, next_hop))
    }

    /// Leaves `uplink` to the next hops that don't answer: what waits in it is for them.
    pub(super) fn leave_to_silent(&mut self, uplink: UplinkId) {
        let Some(i) = uplink.0.checked_sub(1).map(usize::from) else { return };
        if let Some(Some(slot)) = self.slots.get_mut(i) {
            slot.departure.silent = true;
        }
    }

    /// Notes where `neighbour`, that of link `id`, spoke to, if packets to it must leave from there.
    fn pin(&mut self, id: LinkId, neighbour: NodeId, to: &SocketAddr) {
        let Some(entrance) = self.spoken.entrance(to) else { return };
        let routes = self.routes.as_mut();
        let way = routes.and_then(|routes| routes.towards(to.ip(), Egress::default()).ok());
        let source = way.and_then(|way| way.source);
        let usual = self.listener_towards(to, source) == Some(entrance.listener)
            && (entrance.own.is_none() || entrance.own == source);
        match usual {
            true => drop(self.pins.remove(&id)),
            false => drop(self.pins.insert(id, (neighbour, entrance))),
        }
    }

    /// The uplink by which the link `id` leaves for `to`, which is opened if need be.
    fn towards(
        &mut self,
        (id, to): (LinkId, &SocketAddr),
        (sockets, node): (&[Udp], &RecordedNode),
        epoll: &Epoll,
        arena: &mut TxArena,
    ) -> UplinkId {
        let Some(link) = node.node().link(id).map(|link| link.config()) else {
            return UplinkId::default();
        };
        let name = (link.neighbour, link.path.clone());
        let wanted = self.wanted.get(&name).cloned().unwrap_or_default();
        // A link that had this number before may have had another neighbour.
        let pin = self.pins.get(&id).filter(|(neighbour, _)| *neighbour == link.neighbour);
        let pin = pin.map(|&(_, entrance)| entrance);
        let departure = match self.departure((&wanted, pin), to) {
            Ok(departure) => departure,
            Err(NoWay::Interface) => {
                arena.set_room(NOWHERE, 0);
                return NOWHERE;
            }
            Err(NoWay::Family) => return UplinkId::default(),
        };
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
        added.and_then(|uplink| self.add(uplink, departure, epoll, arena)).unwrap_or(shared)
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
            if let Some(closed) = slot.take_if(|_| !used) {
                self.past = self.past.plus(closed.uplink.stats());
            }
        }
    }

    /// Errors of the kernel when it refused to send to `to` by `uplink`.
    pub fn error_towards(&self, uplink: UplinkId, to: SocketAddr) -> Option<SendError> {
        self.output.errors.of((uplink, to))
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
                    slot.uplink.send(&mut self.output, arena, part);
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
            let errno = if run.uplink == NOWHERE { libc::ENODEV } else { libc::EAFNOSUPPORT };
            let (error, count) = (io::Error::from_raw_os_error(errno), run.count as u64);
            self.output.errors.note(self.output.now, (run.uplink, run.to), &error, count);
            self.past.errors += count;
        }
    }

    /// The slot by which `run` leaves, and how.
    fn way_of(&self, run: &Run) -> Option<(usize, Egress)> {
        if let Some(i) = run.uplink.0.checked_sub(1).map(usize::from) {
            let slot = self.slots.get(i)?.as_ref()?;
            return Some((i, slot.departure.egress));
        }
        if let Some(entrance) = self.spoken.entrance(&run.to) {
            return Some((entrance.listener, Egress { source: entrance.own, interface: 0 }));
        }
        Some((self.listener_towards(&run.to, None)?, Egress::default()))
    }

    /// Renews the room of the uplinks that had none for an envelope. Returns whether one has room
    /// now; the others are watched until they are writable.
    fn refill(&mut self, now: Time, arena: &mut TxArena, epoll: &Epoll) -> io::Result<bool> {
        let mut any = false;
        for (slot, i) in self.slots.iter_mut().zip(0u16..) {
            let id = UplinkId(i + 1);
            let Some(slot) = slot else { continue };
            if slot.room == 0 || !arena.is_wanted(id) {
                continue;
            }
            slot.room = slot.uplink.room(now, slot.room - arena.room(id));
            arena.set_room(id, slot.room);
            any |= slot.room > 0;
            if slot.room == 0 {
                slot.full_since = Some(now);
                self.next_hops.stalled(now);
                watch(epoll, &slot.uplink, i, EpollFlags::EPOLLOUT)?;
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
        let Some(Some(slot)) = self.slots.get_mut(usize::from(i)) else { return Ok(()) };
        slot.room = slot.uplink.writable(now);
        arena.set_room(UplinkId(i + 1), slot.room);
        if slot.room > 0 {
            slot.full_since = None;
            watch(epoll, &slot.uplink, i, EpollFlags::empty())?;
        }
        Ok(())
    }
}

fn watch(epoll: &Epoll, uplink: &Uplink, i: u16, flags: EpollFlags) -> io::Result<()> {
    let mut event = EpollEvent::new(flags, token::UPLINK | u64::from(i));
    Ok(epoll.modify(uplink.as_fd(), &mut event)?)
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
                self.uplinks.waiting.insert(link, true);
            }
            let has_room = self.uplinks.refill(now, &mut self.arena, &self.epoll)?;
            if self.arena.is_empty() && drained == Drained::All && !has_room {
                return Ok(());
            }
        }
    }

    /// Looks up the routes of links with a new address, or of all after a change of routes.
    pub(super) fn assign_uplinks(&mut self) {
        for _ in 0..LOOKUPS_PER_TURN {
            let Some((id, is_fresh)) = self.uplinks.waiting.pop_first() else { return };
            let link = self.node.node().link(id);
            let Some((link, address)) = link.and_then(|link| Some((link, link.address()?))) else {
                self.uplinks.pins.remove(&id);
                continue;
            };
            let before = link.uplink();
            if is_fresh {
                self.uplinks.pin(id, link.config().neighbour, &address);
            }
            let sockets = (&self.udp[..], &self.node);
            let link = (id, &address);
            let uplink = self.uplinks.towards(link, sockets, &self.epoll, &mut self.arena);
            if uplink != before {
                self.node.set_uplink(id, uplink);
            }
        }
    }

    /// Whether routes remain to be looked up.
    pub(super) fn has_lookups(&self) -> bool {
        !self.uplinks.waiting.is_empty()
    }

    /// Looks up the routes of all links again.
    pub(super) fn look_up_all(&mut self) {
        for (link, _) in self.node.node().links() {
            self.uplinks.waiting.entry(link).or_default();
        }
    }

    /// Handles changes of routes, interfaces or own addresses.
    pub(super) fn on_routes(&mut self) {
        if self.uplinks.routes.as_mut().is_some_and(Routes::have_changed) {
            report_own(&mut self.udp);
            self.look_up_all();
        }
    }

    /// Sets how links are to leave, as configured.
    pub(super) fn want_egresses(&mut self, wanted: WantedEgresses) {
        if self.uplinks.wanted != wanted {
            self.uplinks.wanted = wanted;
            self.look_up_all();
        }
    }

    /// Notes where the senders of the last first messages to listener `index` spoke to.
    pub(super) fn note_spoken(&mut self, index: usize) {
        let Some(udp) = self.udp.get_mut(index) else { return };
        let uplinks = &mut self.uplinks;
        let of_family = uplinks.listeners.iter().filter(|l| l.is_ipv6() == udp.is_v6()).count();
        for (from, own) in udp.take_spoken() {
            let own = own.filter(|own| !own.is_multicast());
            if own.is_none() && of_family == 1 {
                continue;
            }
            // Anybody can send this in the name of a neighbour: it decides only where an
            // answer leaves. A link follows when its neighbour has proven its address.
            uplinks.spoken.note(from, Entrance { listener: index, own });
        }
    }

    pub(super) fn on_uplink(&mut self, index: u32) -> io::Result<()> {
        let now = clock::now();
        self.uplinks.writable(index as u16, now, &mut self.arena, &self.epoll)
    }
}

/// Makes the wildcard sockets report own addresses where this machine has several that others may
/// send to.
fn report_own(sockets: &mut [Udp]) {
    let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut own = addresses::own().unwrap_or_default();
    own.retain(|ip| !ip.is_loopback() && !is_link_local(ip));
    for socket in sockets {
        let several = own.iter().filter(|ip| ip.is_ipv6() == socket.is_v6()).count() > 1;
        let is_any = socket.local_addr().is_ok_and(|address| address.ip().is_unspecified());
        if let Err(error) = socket.report_own(several && is_any) {
            tracing::warn!(
                %error,
                "the kernel doesn't say which own address a datagram was sent to, so answers leave \
                 from the address that it chooses"
            );
        }
    }
}
