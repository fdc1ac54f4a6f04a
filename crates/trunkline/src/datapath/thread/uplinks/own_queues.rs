//! Destinations with a queue of their own. Behind an interface the kernel may keep what is for one
//! destination apart (`tc` classes, fair queues, the stations of a radio network). What waits there
//! fills the socket that all links of the interface share, although the others could leave.
//!
//! A socket doesn't say whose packets wait in it. So links that wait for one that stays full race
//! against it: nothing more enters it, and each of them sends one packet by a socket of its own. One
//! queue never lets that packet go before what was there earlier. If it leaves first, the earlier
//! packets are in another queue. Then the full socket is given up, the links whose packets leave share
//! a new one, and the others that wait are suspected: each has a socket of its own or, if there are too
//! few places for that, shares one with some others. Those of a socket that is empty return. Those of
//! one where packets stay are told apart by further sockets, so that two or three rounds find the one
//! that hangs among hundreds; it keeps a socket of its own until that has been empty for a while.

mod races;
#[cfg(test)]
mod tests;

pub(super) use races::Outflow;

use super::departures::Sharing;
use crate::datapath::thread::next_hops::STALLED;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;
use trunkline_overlay::link::{Class, Link, LinkId};

/// Maximum number of sockets of single links, or of links that are suspected together.
pub const MAX_OWN: usize = 32;
/// Maximum number of links that join a race at once: with calls or control messages that wait, and
/// with other packets only, which are larger and would fill a slow interface.
const URGENT_AT_ONCE: usize = 16;
const SHARED_AT_ONCE: usize = 2;
/// How often links race again at once after a race whose result was missed or made void.
const MISSES: u32 = 8;
/// Time for which links that raced in vain don't do so again; it doubles each time.
const REST: Duration = Duration::from_secs(1);
/// Time within which the socket of a link is empty once if its packets do leave.
const TRIAL: Duration = Duration::from_millis(50);
const TRIAL_POLL: Duration = Duration::from_millis(2);
/// Number of times that a link is believed when its socket is empty.
const DOUBTS: u32 = 3;
/// Interval at which the sockets of other links are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Time for which such a socket has to be empty before its link returns; it doubles each time.
const STAY: Duration = Duration::from_secs(1);
/// Number of times that a time doubles, and the time after which that is forgotten.
const DOUBLES: u32 = 5;
const FORGET: Duration = Duration::from_secs(60);

/// Number of a set of links with a socket that no other link has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupId(u32);

/// The links that have a socket of their own, and the races between such.
#[derive(Debug)]
pub struct OwnQueues {
    groups: BTreeMap<GroupId, Group>,
    group_of: BTreeMap<LinkId, GroupId>,
    /// Number of the last group.
    last_group: GroupId,
    /// The races for shared uplinks.
    races: BTreeMap<UplinkId, races::Race>,
    past: BTreeMap<LinkId, Past>,
    /// The link that joined a race last.
    last: LinkId,
    look_at: Time,
    /// Whether uplinks may be left that no link sends by.
    unused: bool,
}

#[derive(Debug)]
struct Group {
    /// One link at least.
    links: Vec<LinkId>,
    apart: Apart,
}

/// Why links have a socket apart from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Apart {
    /// The link races for this uplink.
    Races(UplinkId),
    /// Packets of one of them may be those that wait.
    Suspected {
        /// Time since they leave by this socket.
        since: Time,
        /// Whether it was not empty at some look.
        was_busy: bool,
    },
    /// Packets of one of them wait.
    Waits {
        /// Time since the socket was empty whenever it was looked at, if it is.
        empty: Option<Time>,
        /// Bytes that left lately, if that is known.
        left: Option<u64>,
    },
}

/// The socket of a group at a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    empty: bool,
    /// Bytes that left in the last [`LOOK`], once that is known.
    left: Option<u64>,
}

/// The past of a link, for as long as it matters.
#[derive(Clone, Copy, Default, Debug)]
struct Past {
    /// Races in vain, and since when it may race again.
    lost: u32,
    rests_until: Time,
    /// Races whose result was missed or made void.
    missed: u32,
    /// How often it was suspected while its socket was not empty, and how often its packets did wait.
    suspected: u32,
    waited: u32,
    last: Time,
}

/// The links that wait for an uplink.
#[derive(Default, Debug)]
struct Waiting {
    /// Number of links that send by the uplink.
    links: usize,
    urgent: Vec<LinkId>,
    shared: Vec<LinkId>,
}

impl Waiting {
    fn add(&mut self, id: LinkId, link: &Link) {
        self.links += 1;
        match link.waits_for_room() {
            Some(Class::Urgent) => self.urgent.push(id),
            Some(Class::Shared) => self.shared.push(id),
            None => {}
        }
    }
}

impl OwnQueues {
    /// Creates an empty set; nothing is looked at before an uplink has no room.
    pub fn new() -> OwnQueues {
        OwnQueues {
            groups: BTreeMap::new(),
            group_of: BTreeMap::new(),
            last_group: GroupId(0),
            races: BTreeMap::new(),
            past: BTreeMap::new(),
            last: LinkId(0),
            look_at: Time::NEVER,
            unused: false,
        }
    }

    /// Time of the next [`Uplinks::look_for_own_queues`](super::Uplinks::look_for_own_queues).
    pub fn look_at(&self) -> Time {
        self.look_at
    }

    /// Notes that an uplink has no room.
    pub fn stalled(&mut self, now: Time) {
        self.look_by(now + STALLED);
    }

    fn look_by(&mut self, at: Time) {
        self.look_at = self.look_at.min(at);
    }

    /// The set that `link` is to have a socket with, if it has one apart from the others.
    pub fn group_of(&self, link: LinkId) -> Option<GroupId> {
        self.group_of.get(&link).copied()
    }

    fn group(&self, link: LinkId) -> Option<&Group> {
        self.groups.get(self.group_of.get(&link)?)
    }

    /// The shared uplink that `link` races for, if it does.
    pub fn raced_for_by(&self, link: LinkId) -> Option<UplinkId> {
        match self.group(link)?.apart {
            Apart::Races(uplink) => Some(uplink),
            _ => None,
        }
    }

    /// Whether an uplink that is shared so is for a race.
    pub(super) fn races(&self, sharing: Sharing) -> bool {
        let Sharing::Own(group) = sharing else { return false };
        matches!(self.groups.get(&group), Some(Group { apart: Apart::Races(_), .. }))
    }

    /// Whether packets of `link` wait in a queue of their own.
    pub fn waits_alone(&self, link: LinkId) -> bool {
        let waits = |group: &Group| matches!(group.apart, Apart::Waits { .. });
        self.group(link).is_some_and(|group| waits(group) && group.links.len() == 1)
    }

    /// Forgets a link that is gone, or leads nowhere any more.
    pub fn forget(&mut self, link: LinkId) {
        self.release(link);
        self.past.remove(&link);
    }

    fn past(&mut self, now: Time, link: LinkId) -> &mut Past {
        let past = self.past.entry(link).or_default();
        past.last = now;
        past
    }

    /// Number of sockets that can still be given to links.
    fn free(&self) -> usize {
        MAX_OWN.saturating_sub(self.groups.len())
    }

    /// Gives `links` a socket that no other link has.
    fn set_apart(&mut self, links: Vec<LinkId>, apart: Apart) {
        self.last_group = GroupId(self.last_group.0.wrapping_add(1));
        self.group_of.extend(links.iter().map(|link| (*link, self.last_group)));
        self.groups.insert(self.last_group, Group { links, apart });
    }

    /// Makes `link` share a socket with all others again.
    fn release(&mut self, link: LinkId) {
        let Some(id) = self.group_of.remove(&link) else { return };
        self.unused = true;
        if let Some(group) = self.groups.get_mut(&id) {
            group.links.retain(|other| *other != link);
            if group.links.is_empty() {
                self.groups.remove(&id);
            }
        }
    }

    /// Makes the links of a group share a socket with all others again. Returns them.
    fn dissolve(&mut self, group: GroupId) -> Vec<LinkId> {
        let links = self.groups.remove(&group).map_or_else(Vec::new, |group| group.links);
        for link in &links {
            self.group_of.remove(link);
        }
        self.unused |= !links.is_empty();
        links
    }

    /// Those of `waiting` that may race, and how many of them may do so at once.
    fn may_race(&self, now: Time, waiting: &Waiting) -> (Vec<LinkId>, usize) {
        let rests = |id: &LinkId| self.past.get(id).is_some_and(|past| past.rests_until > now);
        let may = |id: &&LinkId| !self.group_of.contains_key(*id) && !rests(id);
        let urgent: Vec<_> = waiting.urgent.iter().filter(may).copied().collect();
        match urgent.is_empty() {
            true => (waiting.shared.iter().filter(may).copied().collect(), SHARED_AT_ONCE),
            false => (urgent, URGENT_AT_ONCE),
        }
    }

    /// Chooses those of `waiting` that join a race for `uplink`, in turn.
    fn choose(&mut self, now: Time, uplink: UplinkId, waiting: &Waiting) -> Vec<LinkId> {
        let racing = self.racers(uplink).len();
        let (mut all, at_once) = self.may_race(now, waiting);
        let later = all.partition_point(|id| *id <= self.last);
        all.rotate_left(later);
        all.truncate(at_once.saturating_sub(racing).min(self.free()));
        self.last = all.last().copied().unwrap_or(self.last);
        all
    }

    /// Lets links rest that raced in vain, or would have.
    fn rest(&mut self, now: Time, links: impl Iterator<Item = LinkId>) {
        for link in links {
            let past = self.past(now, link);
            past.rests_until = now + REST * (1 << past.lost.min(DOUBLES));
            past.lost += 1;
        }
    }

    /// Lets links race again at once whose result was missed or void, unless that happens too often.
    fn miss(&mut self, now: Time, links: &[LinkId]) {
        for link in links {
            let past = self.past(now, *link);
            past.missed += 1;
            if past.missed > MISSES {
                self.rest(now, [*link].into_iter());
            }
        }
    }

    /// Whether `links` need no socket of their own as soon as that is empty.
    fn are_believed(&self, links: &[LinkId]) -> bool {
        let is_believed = |past: &Past| past.waited == 0 && past.suspected <= DOUBTS;
        links.iter().all(|link| self.past.get(link).is_none_or(is_believed))
    }

    /// Suspects each of `links` that packets of it wait in a queue of their own, in as many groups of
    /// equal size as there are places for.
    fn suspect(&mut self, now: Time, links: &[LinkId]) {
        let groups = links.len().min(self.free());
        for i in 0..groups {
            let part = i * links.len() / groups..(i + 1) * links.len() / groups;
            let apart = Apart::Suspected { since: now, was_busy: false };
            self.set_apart(links[part].to_vec(), apart);
        }
        if groups > 0 {
            self.look_by(now + TRIAL_POLL);
        }
    }

    /// Suspects a link that has raced, and leaves it the socket where its packet waits.
    fn suspect_racer(&mut self, now: Time, link: LinkId) {
        let group = self.group_of.get(&link).and_then(|id| self.groups.get_mut(id));
        if let Some(group) = group {
            group.apart = Apart::Suspected { since: now, was_busy: false };
        }
    }

    /// Notes that links of a group have yet to get their socket.
    fn await_trial(&mut self, now: Time, id: GroupId) {
        if let Some(Group { apart: Apart::Suspected { since, .. }, .. }) = self.groups.get_mut(&id)
        {
            *since = now;
        }
        self.look_by(now + TRIAL_POLL);
    }

    /// Looks at a group that doesn't race. Links whose packets leave after all return at once, unless
    /// they were suspected too often. Returns those that leave by another socket from now on.
    fn judge(&mut self, now: Time, id: GroupId, seen: Seen) -> Vec<LinkId> {
        let Some(Group { links, apart }) = self.groups.get(&id) else { return Vec::new() };
        let (first, count) = (links[0], links.len());
        let is_alone = count == 1;
        let past = |link: &LinkId| self.past.get(link).copied().unwrap_or_default();
        let waited = links.iter().map(|link| past(link).waited).max().unwrap_or(0);
        let waits = Apart::Waits { empty: None, left: seen.left };
        let mut moved = Vec::new();
        let next = match *apart {
            Apart::Races(_) => return Vec::new(),
            // One that is doubted is looked at for the whole time.
            Apart::Suspected { since, was_busy }
                if seen.empty
                    && (self.are_believed(links) || !was_busy && now.since(since) >= TRIAL) =>
            {
                return self.dissolve(id);
            }
            Apart::Suspected { since, was_busy } if now.since(since) < TRIAL => {
                if is_alone && !seen.empty && !was_busy {
                    self.past(now, first).suspected += 1;
                }
                Apart::Suspected { since, was_busy: was_busy || !seen.empty }
            }
            // The group's own place is one of them.
            Apart::Suspected { .. } | Apart::Waits { .. }
                if !is_alone && !seen.empty && self.free() > 0 =>
            {
                let links = self.dissolve(id);
                self.suspect(now, &links);
                return links;
            }
            Apart::Suspected { .. } => {
                if is_alone {
                    self.past(now, first).waited += 1;
                }
                waits
            }
            Apart::Waits { .. } if !seen.empty && !is_alone && seen.left == Some(0) => {
                moved = self.make_room(count - 1);
                waits
            }
            Apart::Waits { .. } if !seen.empty => waits,
            Apart::Waits { empty, .. } => {
                let since = empty.unwrap_or(now);
                let stay = STAY * (1 << (waited.clamp(1, DOUBLES + 1) - 1));
                if now.since(since) >= stay {
                    return self.dissolve(id);
                }
                Apart::Waits { empty: Some(since), left: seen.left }
            }
        };
        let polls = matches!(next, Apart::Suspected { .. }) || !moved.is_empty();
        self.look_by(now + if polls { TRIAL_POLL } else { LOOK });
        if let Some(group) = self.groups.get_mut(&id) {
            group.apart = next;
        }
        moved
    }

    /// Makes links share a socket with all others again whose packets do leave, for the sake of one
    /// whose packets don't: the fastest, from as many sockets as are `needed`. Returns them.
    fn make_room(&mut self, needed: usize) -> Vec<LinkId> {
        let left = |(id, group): (&GroupId, &Group)| match group.apart {
            Apart::Waits { left: Some(left), .. } if left > 0 => Some((Reverse(left), *id)),
            _ => None,
        };
        let mut moving: Vec<_> = self.groups.iter().filter_map(left).collect();
        moving.sort_unstable();
        let moving = moving.into_iter().take(needed);
        moving.flat_map(|(_, id)| self.dissolve(id)).collect()
    }

    fn racers(&self, uplink: UplinkId) -> Vec<LinkId> {
        let all = self.groups.values().filter(|group| group.apart == Apart::Races(uplink));
        all.flat_map(|group| group.links.iter().copied()).collect()
    }
}
