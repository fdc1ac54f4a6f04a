//! The SIP connections of a gateway, and which of them is closed for a new one.

use super::stream::{Activity, ROOM, Waiting};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use trunkline_base::Time;
use trunkline_gateway::{Gateway, Holder, Rank};

/// Maximum numbers of connections.
#[derive(Clone, Copy)]
struct Limits {
    all: usize,
    /// Those of hosts that are no configured peers: phones can't take the other places, whatever they
    /// use theirs for.
    of_others: usize,
    /// Those of one holder.
    of_one: usize,
}

const LIMITS: Limits = Limits { all: 4_096, of_others: 3_584, of_one: 512 };

/// The writing side of a connection.
pub struct Connection {
    /// Address of the other end.
    pub remote: SocketAddr,
    outbox: mpsc::Sender<Waiting>,
    /// Room for queued messages, shared by all connections with this address.
    room: Arc<Semaphore>,
    activity: Arc<Activity>,
}

impl Connection {
    /// Queues a message for writing; false if too much is already queued.
    pub fn write(&self, bytes: Vec<u8>) -> bool {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(length);
        room.is_ok_and(|room| self.outbox.try_send(Waiting { bytes, room }).is_ok())
    }
}

/// Counts of a gateway's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Number of current connections.
    pub open: usize,
    /// Number of connections that were closed for others.
    pub displaced: u64,
    /// Number of connections that were refused because of a limit.
    pub refused: u64,
}

/// All connections, by number.
#[derive(Default)]
pub struct Connections {
    all: BTreeMap<u64, Connection>,
    stats: ConnectionStats,
}

/// Outcome for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is room for it.
    Free,
    /// The limit is reached; this connection, of this rank, has to be closed for it.
    Of(u64, Rank, Limit),
    /// The limit is reached, and no connection may be closed for it.
    Refused(Limit),
}

/// The limit that has been reached: its number, and the holder, if it is one holder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(usize, Option<Holder>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit(most, holder) = self;
        match holder {
            None => write!(f, "{most} SIP connections are open, as many as may be"),
            Some(Holder { address, is_for_request: false, .. }) => {
                write!(f, "{address} has {most} SIP connections, as many as one address may")
            }
            Some(Holder { address, .. }) => write!(
                f,
                "{most} SIP connections are made for requests of {address}, as many as for one \
                 address may be"
            ),
        }
    }
}

/// An open connection as a candidate to be closed.
#[derive(Clone, Copy)]
struct Candidate {
    connection: u64,
    holder: Holder,
    rank: Rank,
    /// Time of the last byte received.
    last: Time,
}

/// The limit that keeps `new` from one more connection than those of `holders`, if there is one.
fn reached(new: Holder, holders: impl Iterator<Item = Holder>, limits: Limits) -> Option<Limit> {
    let (mut own, mut all, mut of_others) = (0, 0, 0);
    for holder in holders {
        own += usize::from(holder == new);
        all += 1;
        of_others += usize::from(!holder.is_peer);
    }
    if own >= limits.of_one {
        Some(Limit(limits.of_one, Some(new)))
    } else if all >= limits.all {
        Some(Limit(limits.all, None))
    } else if !new.is_peer && of_others >= limits.of_others {
        Some(Limit(limits.of_others, None))
    } else {
        None
    }
}

/// Numbers of connections by holder.
struct Shares(BTreeMap<Holder, usize>);

impl Shares {
    fn count(holders: impl Iterator<Item = Holder>) -> Shares {
        let mut each = BTreeMap::new();
        holders.for_each(|holder| *each.entry(holder).or_default() += 1);
        Shares(each)
    }

    fn of(&self, holder: Holder) -> usize {
        self.0.get(&holder).copied().unwrap_or(0)
    }

    /// Whether a connection of `new` may take the place of another. No place of a call is taken.
    /// One by which a phone has registered is not given to another behind the same address: they
    /// would displace each other without end. An address that has more of them than `new` would
    /// have gives up some, so that a few addresses can't hold all.
    fn may_displace(&self, new: Holder, other: &Candidate, is_share: bool) -> bool {
        if other.rank == Rank::Call {
            return false;
        }
        if other.holder == new {
            return other.rank < Rank::Registration;
        }
        let has_more = || self.of(other.holder) > self.of(new) + 1;
        let is_first = new.is_peer || other.rank < Rank::Request || has_more();
        !is_share && !other.holder.is_peer && is_first
    }

    /// The connection to be closed for one of `new`: the least needed first; of these, one of the
    /// holder with most; of these, the one that has been idle longest. Peers give up their own last.
    fn first(
        &self,
        new: Holder,
        is_share: bool,
        all: impl Iterator<Item = Candidate>,
    ) -> Option<Candidate> {
        let may = all.filter(|other| self.may_displace(new, other, is_share));
        may.min_by_key(|it| {
            let most = Reverse(self.of(it.holder));
            (it.holder.is_peer, it.rank, most, it.last, it.connection)
        })
    }
}

impl Connections {
    /// Counts so far, with the current number of connections.
    pub fn stats(&self) -> ConnectionStats {
        ConnectionStats { open: self.all.len(), ..self.stats }
    }

    /// The connection with this number, if it is open.
    pub fn get(&self, connection: u64) -> Option<&Connection> {
        self.all.get(&connection)
    }

    /// Adds a connection whose messages are written to `outbox`.
    pub fn insert(
        &mut self,
        connection: u64,
        remote: SocketAddr,
        outbox: mpsc::Sender<Waiting>,
        activity: Arc<Activity>,
    ) {
        let with_it = self.all.values().find(|other| other.remote.ip() == remote.ip());
        let room = with_it.map(|other| Arc::clone(&other.room));
        let room = room.unwrap_or_else(|| Arc::new(Semaphore::new(ROOM)));
        self.all.insert(connection, Connection { remote, outbox, room, activity });
    }

    /// Removes a connection, which ends it.
    pub fn remove(&mut self, connection: u64) {
        self.all.remove(&connection);
    }

    /// The place for a connection that the gateway knows, but that has not been added yet.
    pub fn place(&mut self, now: Time, gateway: &Gateway, connection: u64) -> Place {
        let Some(new) = gateway.holder(connection) else { return Place::Free };
        if self.all.len() < LIMITS.of_one {
            return Place::Free;
        }
        let holders = || self.all.keys().filter_map(|n| gateway.holder(*n));
        let Some(limit) = reached(new, holders(), LIMITS) else { return Place::Free };
        let (shares, ranks) = (Shares::count(holders()), gateway.ranks(now));
        let candidates = self.all.iter().filter_map(|(&connection, line)| {
            let (holder, last) = (gateway.holder(connection)?, line.activity.last());
            Some(Candidate { connection, holder, rank: ranks.of(connection, last), last })
        });
        match shares.first(new, limit.1.is_some(), candidates) {
            Some(first) => {
                self.stats.displaced += 1;
                Place::Of(first.connection, first.rank, limit)
            }
            None => {
                self.stats.refused += 1;
                Place::Refused(limit)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, rank) = match self {
            Place::Free => return Ok(()),
            Place::Of(_, rank, limit) => (limit, rank),
            Place::Refused(limit) => {
                let why = "calls or registered phones need those that it could take the place of";
                return write!(f, "{limit}: a new one is refused, since {why}");
            }
        };
        let those = match rank {
            Rank::Unused => "have brought no message",
            Rank::Idle => "no request, registration or call needs",
            Rank::Request => "only wait for an answer",
            Rank::Registration | Rank::Call => "phones have registered by",
        };
        write!(
            f,
            "{limit}: of those that {those}, the one idle for longest is closed for a new one"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::OUTBOX;
    use super::*;
    use std::net::IpAddr;

    const SMALL: Limits = Limits { all: 8, of_others: 6, of_one: 4 };

    /// Holder with this last number in its address; those from 100 on are peers.
    fn holder(n: u8) -> Holder {
        let address = IpAddr::from([192, 0, 2, n]);
        Holder { address, is_peer: n >= 100, is_for_request: false }
    }

    /// The number of the connection that is closed for one of `new`; 0 if there is room, `None`
    /// if it is refused. The open ones have numbers from 1 on, and the first has been idle longest.
    fn closed(new: u8, open: &[(u8, Rank)]) -> Option<u64> {
        let new = holder(new);
        let all = (1..).zip(open).map(|(connection, &(n, rank))| {
            let last = Time::from_millis(connection);
            Candidate { connection, holder: holder(n), rank, last }
        });
        let holders = || all.clone().map(|it| it.holder);
        let Some(limit) = reached(new, holders(), SMALL) else { return Some(0) };
        let first = Shares::count(holders()).first(new, limit.1.is_some(), all.clone());
        first.map(|first| first.connection)
    }

    use Rank::{Call, Idle, Registration, Request, Unused};

    #[test]
    fn an_address_gives_up_what_it_needs_least() {
        let own = |ranks: [Rank; 4]| closed(1, &ranks.map(|rank| (1, rank)));
        assert_eq!(closed(1, &[(1, Unused); 3]), Some(0));
        assert_eq!(own([Request, Idle, Unused, Unused]), Some(3));
        assert_eq!(own([Call, Registration, Request, Idle]), Some(4));
        assert_eq!(own([Call, Registration, Request, Request]), Some(3));
        assert_eq!(own([Call, Registration, Registration, Registration]), None);
        // Another address has room, and loses nothing to this one.
        assert_eq!(closed(2, &[(1, Call); 4]), Some(0));
        assert_eq!(closed(1, &[(2, Unused), (1, Call), (1, Call), (1, Call), (1, Call)]), None);
    }

    #[test]
    fn addresses_share_all_places() {
        let full = |new, ranks: [Rank; 3]| {
            closed(new, &[ranks.map(|rank| (1, rank)), ranks.map(|rank| (2, rank))].concat())
        };
        assert_eq!(full(3, [Registration, Unused, Idle]), Some(2));
        assert_eq!(full(3, [Registration, Call, Idle]), Some(3));
        assert_eq!(full(3, [Call, Registration, Registration]), Some(2));
        assert_eq!(full(3, [Call; 3]), None);
        // The address with more gives one up.
        assert_eq!(closed(3, &[2, 1, 2, 1, 1, 1].map(|n| (n, Registration))), Some(2));
        // It would not have more than the other: nothing that is needed changes its place.
        let even = [(1, Request), (2, Registration), (3, Request), (1, Call), (2, Call), (3, Call)];
        assert_eq!(closed(4, &even), Some(1));
        let even = even.map(|(n, rank)| (n + 1, rank));
        assert_eq!(closed(2, &even), Some(1));
        assert_eq!(closed(2, &[&even[1..], &[(4, Request)]].concat()), Some(2));
        let one_each = [1, 2, 3, 4, 5, 6].map(|n| (n, Registration));
        assert_eq!(closed(7, &one_each), None);
        assert_eq!(closed(7, &one_each.map(|(n, _)| (n, Idle))), Some(1));
    }

    #[test]
    fn one_address_can_not_hold_all() {
        let limits = Limits { of_one: 6, ..SMALL };
        assert!(reached(holder(2), [holder(1); 6].into_iter(), limits).is_some());
        let shares = Shares::count([holder(1); 6].into_iter());
        for (rank, found) in [(Idle, true), (Request, true), (Registration, true), (Call, false)] {
            let it = Candidate { connection: 1, holder: holder(1), rank, last: Time::ZERO };
            assert_eq!(shares.may_displace(holder(2), &it, false), found, "{rank:?}");
        }
    }

    #[test]
    fn a_trunk_comes_first() {
        // Phones leave it some places.
        assert_eq!(closed(100, &[(1, Call), (2, Call)].repeat(3)), Some(0));
        assert_eq!(closed(3, &[(1, Call), (2, Call)].repeat(3)), None);
        // It displaces phones, and none of them displaces its own.
        let phones = [(1, Registration), (1, Call), (2, Registration), (2, Call), (3, Request)];
        let open = [&phones[..], &[(100, Unused), (100, Idle), (101, Idle)]].concat();
        assert_eq!(closed(100, &open), Some(5));
        assert_eq!(closed(101, &open), Some(5));
        assert_eq!(closed(4, &open), Some(1));
        let calls = phones.map(|(n, _)| (n, Call));
        let open = [&calls[..], &[(100, Unused), (100, Idle), (101, Idle)]].concat();
        assert_eq!(closed(4, &open), None);
        assert_eq!(closed(100, &open), Some(6), "its own, if there is no other");
        // It has a limit, too.
        assert_eq!(
            closed(100, &[(1, Unused), (100, Idle), (100, Idle), (100, Idle), (100, Call)]),
            Some(2)
        );
    }

    #[test]
    fn what_waits_for_one_address_has_a_bound() {
        let mut all = Connections::default();
        let mut readers = Vec::new();
        for n in 0..2 {
            let (outbox, reader) = mpsc::channel(OUTBOX);
            all.insert(n, ([192, 0, 2, 1], 5060).into(), outbox, Activity::begin());
            readers.push(reader);
        }
        let write = |n: usize, length| all.get(n as u64).unwrap().write(vec![0; length]);
        // Messages of 60 kB fill the shared room over both connections before either queue is full.
        let taken = (0..OUTBOX).take_while(|n| write(n % 2, 60_000)).count();
        assert_eq!(taken, ROOM / 60_000);
        // A written message frees its room.
        assert!(!write(1, 60_000));
        drop(readers[0].try_recv().expect("a message"));
        assert!(write(1, 60_000));
        assert!(!write(1, ROOM + 1));
    }
}
