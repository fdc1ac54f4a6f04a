//! Memory that a driver and a node exchange: received datagrams in, sealed envelopes out.

use core::net::{IpAddr, SocketAddr};
use trunkline_base::Time;

/// The end of a path at this node: the socket and the address that a datagram was sent to. Only the
/// driver interprets it. A node keeps the one that a neighbour has spoken to, since a firewall
/// between them may let nothing else through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// Number of the driver's socket.
    pub socket: u16,
    /// Destination address of the datagram, if the driver knows it.
    pub ip: Option<IpAddr>,
}

/// Both ends of the path that a datagram took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Source address of the datagram.
    pub remote: SocketAddr,
    /// Where it arrived, if the driver distinguishes such places.
    pub local: Option<LocalAddress>,
}

impl From<SocketAddr> for Ends {
    /// The ends for a driver that doesn't distinguish where datagrams arrive.
    fn from(remote: SocketAddr) -> Ends {
        Ends { remote, local: None }
    }
}

/// The addresses of this node that a link is bound to: a path by another one is not the link's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnAddresses(Vec<IpAddr>);

impl OwnAddresses {
    /// Binds a link to `addresses`; without any, it has no path.
    pub fn new(addresses: Vec<IpAddr>) -> OwnAddresses {
        OwnAddresses(addresses)
    }

    /// The addresses, in the order that they were given in.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().copied()
    }

    /// Whether a path with these ends uses one of the addresses. The IP version alone decides where
    /// the driver doesn't know the own end.
    pub fn include(&self, ends: &Ends) -> bool {
        match ends.local.and_then(|local| local.ip) {
            Some(ip) => self.0.contains(&ip),
            None => self.0.iter().any(|own| own.is_ipv6() == ends.remote.is_ipv6()),
        }
    }
}

/// A received datagram, opened in place.
#[derive(Debug)]
pub struct RxDatagram<'a> {
    /// Arrival time, from the kernel's timestamp where there is one.
    pub at: Time,
    /// Source address of the datagram.
    pub from: SocketAddr,
    /// Where it arrived, if the driver distinguishes such places.
    pub local: Option<LocalAddress>,
    /// The datagram's bytes; their content is undefined afterwards.
    pub bytes: &'a mut [u8],
}

/// Number of an uplink: what leaves by it waits in one queue of the operating system. The driver
/// assigns the numbers; links are on uplink 0 until it assigns another.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UplinkId(pub u16);

impl UplinkId {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Bytes of an uplink's room that each datagram takes in addition to its own: about the memory that
/// Linux keeps with one that waits in a socket.
pub const ENVELOPE_COST: usize = 1_024;

/// Consecutive envelopes of the arena with the same uplink, destination and marking. All have
/// `segment` bytes except the last, which may be shorter: one call of generic segmentation offload
/// takes one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Uplink by which the run leaves.
    pub uplink: UplinkId,
    /// Destination address of the run.
    pub to: SocketAddr,
    /// Where it is to leave: for answers to handshakes, which belong to no uplink.
    pub from: Option<LocalAddress>,
    /// Differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Bytes of each envelope except the last.
    pub segment: usize,
    /// Number of envelopes in the run.
    pub count: usize,
    /// Offset of the first envelope in the arena.
    start: usize,
    len: usize,
}

impl Run {
    /// Range of the run's bytes in [`TxArena::bytes`].
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// Maximum number of envelopes in a run: the number that Linux segments in one call.
pub const MAX_RUN: usize = 64;

/// Maximum bytes in a run: one UDP datagram before segmentation.
const MAX_RUN_BYTES: usize = 65_000;

/// The room of an uplink, and whether more is needed.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes that it still accepts, each datagram with [`ENVELOPE_COST`].
    bytes: usize,
    /// Whether an envelope found no room.
    wanted: bool,
    /// Whether a whole run is one datagram, which is segmented after it has waited.
    offload: bool,
}

impl Room {
    /// The room of an uplink that was never set.
    const ENDLESS: Room = Room { bytes: usize::MAX, wanted: false, offload: false };
}

/// Memory that the driver owns and a node seals envelopes into, with the room that each uplink has.
/// It never grows: when it is full, or an uplink has no room, packets stay in the node's bounded
/// queues.
#[derive(Debug)]
pub struct TxArena {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    max_runs: usize,
    /// Room of each uplink; those beyond have no limit.
    rooms: Vec<Room>,
}

impl TxArena {
    /// Allocates an arena of `bytes` bytes for at most `runs` runs.
    pub fn new(bytes: usize, runs: usize) -> TxArena {
        TxArena {
            bytes: vec![0; bytes].into(),
            used: 0,
            runs: Vec::with_capacity(runs),
            max_runs: runs,
            rooms: Vec::new(),
        }
    }

    /// Sets the bytes that `uplink` accepts, each datagram with [`ENVELOPE_COST`] more. An envelope
    /// is written if any are left, so the last one may exceed them. Without this call, an uplink
    /// accepts everything.
    pub fn set_room(&mut self, uplink: UplinkId, bytes: usize) {
        let room = self.room_mut(uplink);
        *room = Room { bytes, wanted: false, ..*room };
    }

    /// Sets whether the system takes a run that leaves by `uplink` as one datagram (generic
    /// segmentation offload). Without this call, each envelope is one.
    pub fn set_offload(&mut self, uplink: UplinkId, offload: bool) {
        self.room_mut(uplink).offload = offload;
    }

    fn room_mut(&mut self, uplink: UplinkId) -> &mut Room {
        let index = uplink.index();
        if self.rooms.len() <= index {
            self.rooms.resize(index + 1, Room::ENDLESS);
        }
        &mut self.rooms[index]
    }

    /// Bytes that `uplink` still accepts.
    pub fn room(&self, uplink: UplinkId) -> usize {
        self.rooms.get(uplink.index()).map_or(usize::MAX, |room| room.bytes)
    }

    /// The uplinks whose room was set, with the bytes that they still accept and whether a run is one
    /// datagram.
    pub fn rooms(&self) -> impl Iterator<Item = (UplinkId, usize, bool)> {
        (0..).zip(&self.rooms).map(|(n, room)| (UplinkId(n), room.bytes, room.offload))
    }

    /// Whether `uplink` had no room for an envelope since its room was set.
    pub fn is_wanted(&self, uplink: UplinkId) -> bool {
        self.rooms.get(uplink.index()).is_some_and(|room| room.wanted)
    }

    /// Whether `uplink` accepts another envelope.
    pub(crate) fn has_room(&mut self, uplink: UplinkId) -> bool {
        let Some(room) = self.rooms.get_mut(uplink.index()) else { return true };
        room.wanted |= room.bytes == 0;
        room.bytes > 0
    }

    /// Reserves one envelope of `len` bytes, in the last run if it can continue it; `None` when the
    /// arena is full. Takes the envelope's share of the uplink's room, as far as there is one.
    pub fn envelope(
        &mut self,
        uplink: UplinkId,
        to: SocketAddr,
        dscp: u8,
        len: usize,
    ) -> Option<&mut [u8]> {
        let start = self.used;
        let end = start.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        let room = self.runs.len() < self.max_runs;
        let continues = match self.runs.last_mut() {
            Some(run) if run.takes((uplink, to, dscp), len) => {
                run.count += 1;
                run.len += len;
                true
            }
            _ if room => {
                let from = None;
                self.runs.push(Run { uplink, to, from, dscp, segment: len, count: 1, start, len });
                false
            }
            _ => return None,
        };
        self.used = end;
        if let Some(room) = self.rooms.get_mut(uplink.index()) {
            let cost = if continues && room.offload { 0 } else { ENVELOPE_COST };
            room.bytes = room.bytes.saturating_sub(len + cost);
        }
        self.bytes.get_mut(start..end)
    }

    /// Reserves `len` bytes for an answer to a datagram between `ends`, in a run of its own; `None`
    /// when the arena is full.
    pub(crate) fn answer(&mut self, ends: Ends, dscp: u8, len: usize) -> Option<&mut [u8]> {
        let start = self.used;
        let end = start.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        if self.runs.len() >= self.max_runs {
            return None;
        }
        let (uplink, to, from) = (UplinkId::default(), ends.remote, ends.local);
        self.runs.push(Run { uplink, to, from, dscp, segment: len, count: 1, start, len });
        self.used = end;
        self.bytes.get_mut(start..end)
    }

    /// Appends a copy of the last envelope, of `len` bytes, for `to`; false when the arena is full.
    pub(crate) fn copy_last(&mut self, to: SocketAddr, len: usize) -> bool {
        let (Some(run), Some(from)) = (self.runs.last(), self.used.checked_sub(len)) else {
            return false;
        };
        if self.envelope(run.uplink, to, run.dscp, len).is_none() {
            return false;
        }
        self.bytes.copy_within(from..from + len, from + len);
        true
    }

    /// The runs, in the order of sending.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All envelopes, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Iterates over the envelopes of `run`.
    pub fn envelopes(&self, run: &Run) -> impl Iterator<Item = &[u8]> {
        self.bytes[run.range()].chunks(run.segment)
    }

    /// Whether the arena holds no envelope.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Removes all envelopes, and keeps the memory and the rooms.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

impl Run {
    fn takes(&self, (uplink, to, dscp): (UplinkId, SocketAddr, u8), len: usize) -> bool {
        let last_is_whole = self.len == self.segment * self.count;
        self.to == to
            && self.from.is_none()
            && self.uplink == uplink
            && self.dscp == dscp
            && len <= self.segment
            && last_is_whole
            && self.count < MAX_RUN
            && self.len + len <= MAX_RUN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: UplinkId = UplinkId(0);

    #[test]
    fn equal_sizes_to_one_place_are_one_run() {
        let a: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let b: SocketAddr = "127.0.0.1:2".parse().unwrap();
        let mut arena = TxArena::new(1_000, 10);
        for (to, dscp, len) in
            [(a, 46, 100), (a, 46, 100), (a, 46, 40), (a, 46, 40), (b, 46, 40), (b, 0, 40)]
        {
            assert_eq!(arena.envelope(UP, to, dscp, len).unwrap().len(), len);
        }
        let shape: Vec<_> = arena.runs().iter().map(|r| (r.segment, r.count, r.len)).collect();
        // The shorter third envelope ends the first run.
        assert_eq!(shape, [(100, 3, 240), (40, 1, 40), (40, 1, 40), (40, 1, 40)]);
        let lens: Vec<_> = arena.envelopes(&arena.runs()[0]).map(<[u8]>::len).collect();
        assert_eq!(lens, [100, 100, 40]);
        assert!(arena.envelope(UP, a, 0, 700).is_none(), "full");
        arena.clear();
        assert!(arena.envelope(UP, a, 0, 700).is_some());
    }

    #[test]
    fn an_envelope_goes_to_two_places() {
        let [a, b]: [SocketAddr; 2] = ["127.0.0.1:1", "127.0.0.1:2"].map(|a| a.parse().unwrap());
        let mut arena = TxArena::new(100, 10);
        assert!(!arena.copy_last(b, 10), "there is none");
        arena.envelope(UP, a, 46, 30).unwrap().fill(7);
        assert!(arena.copy_last(b, 30));
        let last = arena.runs()[1];
        assert_eq!((last.to, last.dscp), (b, 46));
        assert_eq!(arena.envelopes(&last).collect::<Vec<_>>(), [&[7; 30][..]]);
        arena.envelope(UP, a, 46, 30).unwrap();
        assert!(!arena.copy_last(b, 30), "full");
    }

    #[test]
    fn runs_are_bounded() {
        let a: SocketAddr = "[::1]:1".parse().unwrap();
        let mut arena = TxArena::new(10_000, 2);
        let taken = (0..1_000).take_while(|_| arena.envelope(UP, a, 0, 10).is_some()).count();
        assert_eq!(taken, 2 * MAX_RUN);
    }

    #[test]
    fn a_run_leaves_by_one_uplink_and_takes_of_its_room_alone() {
        let to: SocketAddr = "[::1]:1".parse().unwrap();
        let mut arena = TxArena::new(10_000, 10);
        let [first, second, third] = [0, 1, 2].map(UplinkId);
        arena.set_room(second, ENVELOPE_COST + 101);
        for uplink in [first, first, second, second, third] {
            assert!(arena.has_room(uplink));
            arena.envelope(uplink, to, 46, 100).unwrap();
        }
        let runs: Vec<_> = arena.runs().iter().map(|run| (run.uplink, run.count)).collect();
        assert_eq!(runs, [(first, 2), (second, 2), (third, 1)]);
        assert_eq!(arena.room(second), 0);
        assert!(!arena.is_wanted(second), "nothing more has asked for room");
        assert!(!arena.has_room(second) && arena.has_room(first) && arena.has_room(third));
        arena.clear();
        assert_eq!([first, second, third].map(|id| arena.is_wanted(id)), [false, true, false]);
        arena.set_room(second, 1);
        assert!(arena.has_room(second) && !arena.is_wanted(second));
    }

    #[test]
    fn a_run_that_leaves_as_one_datagram_costs_that_of_one() {
        let to: SocketAddr = "[::1]:1".parse().unwrap();
        let mut arena = TxArena::new(10_000, 10);
        arena.set_offload(UP, true);
        arena.set_room(UP, 10_000);
        for (len, room) in [(100, 8_876), (100, 8_776), (40, 8_736), (40, 7_672), (40, 7_632)] {
            arena.envelope(UP, to, 46, len).unwrap();
            assert_eq!(arena.room(UP), room);
        }
        arena.set_offload(UP, false);
        arena.envelope(UP, to, 46, 40).unwrap();
        assert_eq!(arena.room(UP), 7_632 - 40 - ENVELOPE_COST);
    }
}
