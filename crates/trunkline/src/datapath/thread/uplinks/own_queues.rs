//! Destinations with a queue of their own. Behind an interface the kernel may keep what is for one
//! destination apart (`tc` classes, fair queues, the stations of a radio network). What waits there
//! fills the socket that all links of the interface share, although the others could leave.
//!
//! A socket doesn't say whose packets wait in it. So links that wait for one that stays full race
//! against it: nothing more enters it, and each of them sends one packet by a socket of its own. One
//! queue never lets that packet go before what was there earlier. If it leaves first, the earlier
//! packets are in another queue. Then the full socket is given up, the links whose packets leave share
//! a new one, and each of the others keeps a socket of its own until that has been empty for a while.

use super::departures::{Departure, Sharing};
use super::{Slot, Uplinks};
use crate::datapath::record::RecordedNode;
use crate::datapath::thread::next_hops::STALLED;
use crate::datapath::uplink::Uplink;
use nix::sys::epoll::Epoll;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::{TxArena, UplinkId};
use trunkline_overlay::link::{Class, Link, LinkId};

/// Maximum number of links with a socket of their own.
pub const MAX_OWN: usize = 32;
/// Maximum number of links that join a race at once: with calls or control messages that wait, and
/// with other packets only, which are larger and would fill a slow interface.
const URGENT_AT_ONCE: usize = 16;
const SHARED_AT_ONCE: usize = 2;
/// Interval at which a busy uplink without a race is looked at: not that of a call's packets, which
/// might never wait at the moment.
const BUSY_LOOK: Duration = Duration::from_millis(17);
/// Interval at which a race is looked at: at first, and at most.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(10);
/// Time after which a race without a result is ended: while the shared socket becomes emptier, since
/// one queue is likely, and while it doesn't, since the interface takes nothing.
const SLOW_RACE: Duration = Duration::from_millis(25);
const LONGEST_RACE: Duration = Duration::from_secs(1);
/// Interval between two looks after which a result may be missed, and how often links race again at
/// once after that.
const LATE: Duration = Duration::from_millis(8);
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

/// The links that have a socket of their own, and the races between such.
#[derive(Debug)]
pub struct OwnQueues {
    apart: BTreeMap<LinkId, Apart>,
    /// The races for shared uplinks.
    races: BTreeMap<UplinkId, Race>,
    past: BTreeMap<LinkId, Past>,
    /// The link that joined a race last.
    last: LinkId,
    look_at: Time,
    /// Whether uplinks may be left that no link sends by.
    unused: bool,
}

/// Why a link has a socket of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Apart {
    /// It races for this uplink.
    Races(UplinkId),
    /// Its packets may be those that wait, since this time.
    Suspected(Time),
    /// Its packets wait. Its socket was empty whenever it was looked at since a time, if it is.
    Waits(Option<Time>),
}

#[derive(Debug)]
struct Race {
    began: Time,
    /// Time of the last look at it.
    looked: Time,
    /// Bytes that waited in the shared socket then.
    queued: usize,
}

/// How a race stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Open,
    /// These links' packets left before what was there earlier.
    Won(Vec<LinkId>),
    /// One queue is likely, or nothing leaves at all.
    Lost,
    /// Everything had left when this process came to look.
    Missed,
    /// A packet entered the shared socket meanwhile, or no link shares it any more.
    Void,
}

/// The past of a link, for as long as it matters.
#[derive(Clone, Copy, Default, Debug)]
struct Past {
    /// Races in vain, and since when it may race again.
    lost: u32,
    rests_until: Time,
    /// Races whose result was missed.
    missed: u32,
    /// How often it was suspected, and how often its packets did wait.
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
            apart: BTreeMap::new(),
            races: BTreeMap::new(),
            past: BTreeMap::new(),
            last: LinkId(0),
            look_at: Time::NEVER,
            unused: false,
        }
    }

    /// Time of the next [`Uplinks::look_for_own_queues`].
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

    /// Whether `link` is to have a socket of its own.
    pub fn is_apart(&self, link: LinkId) -> bool {
        self.apart.contains_key(&link)
    }

    /// The shared uplink that `link` races for, if it does.
    pub fn raced_for_by(&self, link: LinkId) -> Option<UplinkId> {
        match self.apart.get(&link)? {
            Apart::Races(uplink) => Some(*uplink),
            _ => None,
        }
    }

    /// Whether an uplink that is shared so is for a race.
    pub(super) fn races(&self, sharing: Sharing) -> bool {
        let Sharing::Own(link) = sharing else { return false };
        matches!(self.apart.get(&link), Some(Apart::Races(_)))
    }

    /// Whether packets of `link` wait in a queue of their own.
    pub fn waits_alone(&self, link: LinkId) -> bool {
        matches!(self.apart.get(&link), Some(Apart::Waits(_)))
    }

    /// Forgets a link that is gone, or leads nowhere any more.
    pub fn forget(&mut self, link: LinkId) {
        self.apart.remove(&link);
        self.past.remove(&link);
    }

    fn past(&mut self, now: Time, link: LinkId) -> &mut Past {
        let past = self.past.entry(link).or_default();
        past.last = now;
        past
    }

    /// Chooses those of `waiting` that join a race, in turn.
    fn choose(&mut self, now: Time, waiting: &Waiting) -> Vec<LinkId> {
        let racing = self.apart.values().filter(|a| matches!(a, Apart::Races(_))).count();
        let free = MAX_OWN.saturating_sub(self.apart.len());
        let rests = |id: &LinkId| self.past.get(id).is_some_and(|past| past.rests_until > now);
        let may = |id: &&LinkId| !self.apart.contains_key(*id) && !rests(id);
        let urgent: Vec<_> = waiting.urgent.iter().filter(may).copied().collect();
        let (mut all, at_once) = match urgent.is_empty() {
            true => (waiting.shared.iter().filter(may).copied().collect(), SHARED_AT_ONCE),
            false => (urgent, URGENT_AT_ONCE),
        };
        let later = all.partition_point(|id| *id <= self.last);
        all.rotate_left(later);
        all.truncate(at_once.saturating_sub(racing).min(free));
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

    /// Lets links race again at once whose result was missed, unless that happens too often.
    fn miss(&mut self, now: Time, links: &[LinkId]) {
        for link in links {
            let past = self.past(now, *link);
            past.missed += 1;
            if past.missed > MISSES {
                self.rest(now, [*link].into_iter());
            }
        }
    }

    /// Whether `link` needs no socket of its own as soon as that is empty.
    fn is_believed(&self, link: LinkId) -> bool {
        self.past.get(&link).is_none_or(|past| past.waited == 0 && past.suspected <= DOUBTS)
    }

    /// Suspects that packets of `link` wait in a queue of their own.
    fn suspect(&mut self, now: Time, link: LinkId) {
        self.apart.insert(link, Apart::Suspected(now));
        self.past(now, link).suspected += 1;
    }

    fn racers(&self, uplink: UplinkId) -> Vec<LinkId> {
        let races =
            |(id, apart): (&LinkId, &Apart)| (*apart == Apart::Races(uplink)).then_some(*id);
        self.apart.iter().filter_map(races).collect()
    }
}

impl Uplinks {
    /// Finds out which links' packets wait in a queue of their own, and gives each of those a socket;
    /// takes it back once nothing waits there.
    pub(super) fn look_for_own_queues(
        &mut self,
        now: Time,
        node: &RecordedNode,
        (arena, epoll): (&mut TxArena, &Epoll),
    ) -> io::Result<()> {
        if now < self.own_queues.look_at {
            return Ok(());
        }
        self.own_queues.look_at = Time::NEVER;
        self.end_races_for_closed();
        let due = self.busy_since();
        let mut waiting: BTreeMap<UplinkId, Waiting> =
            due.iter().map(|(uplink, _)| (*uplink, Waiting::default())).collect();
        if !waiting.is_empty() {
            for (id, link) in node.node().links() {
                if let Some(waiting) = waiting.get_mut(&link.uplink()) {
                    waiting.add(id, link);
                }
            }
        }
        self.look_at_links_apart(now, node);
        for (uplink, since) in due {
            let waiting = &waiting[&uplink];
            if self.own_queues.races.contains_key(&uplink) {
                self.look_at_race(now, (uplink, waiting), node, (arena, epoll))?;
            } else if now.since(since) < STALLED {
                self.own_queues.look_by(since + STALLED);
            } else {
                self.begin_race(now, (uplink, waiting), (arena, epoll))?;
            }
        }
        if self.own_queues.unused && self.waiting.is_empty() {
            self.own_queues.unused = false;
            self.close_unused(node);
        } else if self.own_queues.unused {
            self.own_queues.look_by(now + FIRST_POLL);
        }
        self.own_queues.past.retain(|_, past| now.since(past.last) < FORGET);
        Ok(())
    }

    /// Lets links that wait for `uplink` race against it.
    fn begin_race(
        &mut self,
        now: Time,
        (uplink, waiting): (UplinkId, &Waiting),
        (arena, epoll): (&mut TxArena, &Epoll),
    ) -> io::Result<()> {
        self.own_queues.look_by(now + BUSY_LOOK);
        let full = self.full_since(uplink).is_some_and(|since| now.since(since) >= STALLED);
        // One that waits alone for a slow uplink is likely to be the one that fills it.
        let worth = waiting.links > 1 && (full || waiting.urgent.len() + waiting.shared.len() > 1);
        let chosen = if worth { self.own_queues.choose(now, waiting) } else { Vec::new() };
        if chosen.is_empty() {
            return Ok(());
        }
        let Some(queued) = self.pause(uplink, arena, epoll)? else { return Ok(()) };
        self.own_queues.races.insert(uplink, Race { began: now, looked: now, queued });
        self.join(now, uplink, chosen);
        Ok(())
    }

    /// Ends races for uplinks that were closed meanwhile.
    fn end_races_for_closed(&mut self) {
        let races = self.own_queues.races.keys().copied();
        let closed: Vec<_> = races.filter(|uplink| self.slot(*uplink).is_none()).collect();
        for uplink in closed {
            self.own_queues.races.remove(&uplink);
            self.bring_back(&self.own_queues.racers(uplink));
        }
    }

    fn join(&mut self, now: Time, uplink: UplinkId, links: Vec<LinkId>) {
        for link in links {
            self.own_queues.apart.insert(link, Apart::Races(uplink));
            self.waiting.insert(link);
        }
        self.own_queues.look_by(now + FIRST_POLL);
    }

    fn look_at_race(
        &mut self,
        now: Time,
        (uplink, waiting): (UplinkId, &Waiting),
        node: &RecordedNode,
        (arena, epoll): (&mut TxArena, &Epoll),
    ) -> io::Result<()> {
        let Some(race) = self.own_queues.races.get(&uplink) else { return Ok(()) };
        let began = race.began;
        let result = self.result(now, uplink, node, arena);
        if let Some(race) = self.own_queues.races.get_mut(&uplink) {
            race.looked = now;
        }
        match result {
            Outcome::Open => {
                let more = self.own_queues.choose(now, waiting);
                self.join(now, uplink, more);
                let poll = (now.since(began) / 4).clamp(FIRST_POLL, LONGEST_POLL);
                self.own_queues.look_by(now + poll);
            }
            Outcome::Won(winners) => {
                self.split(now, (uplink, &winners), node, (arena, epoll))?;
            }
            result @ (Outcome::Lost | Outcome::Missed | Outcome::Void) => {
                let racers = self.own_queues.racers(uplink);
                let others = waiting.urgent.iter().chain(&waiting.shared);
                let all: Vec<_> = racers.iter().chain(others).copied().collect();
                match result {
                    Outcome::Missed => self.own_queues.miss(now, &all),
                    Outcome::Lost => self.own_queues.rest(now, all.into_iter()),
                    _ => {}
                }
                self.own_queues.races.remove(&uplink);
                self.bring_back(&racers);
                self.resume(now, uplink, arena, epoll)?;
                self.own_queues.look_by(now + FIRST_POLL);
            }
        }
        Ok(())
    }

    fn result(&self, now: Time, uplink: UplinkId, node: &RecordedNode, arena: &TxArena) -> Outcome {
        let Some(race) = self.own_queues.races.get(&uplink) else { return Outcome::Void };
        let mut winners = self.own_queues.racers(uplink);
        winners.retain(|id| {
            let link = node.node().link(*id);
            link.is_some_and(|link| self.has_passed(*id, link.uplink(), arena))
        });
        // The shared socket is looked at last: it can only become emptier.
        let Some(left) = self.undisturbed(uplink) else { return Outcome::Void };
        let longest = if left < race.queued { SLOW_RACE } else { LONGEST_RACE };
        let late = now.since(race.looked) > LATE && !winners.is_empty();
        if left * 4 <= race.queued {
            if late { Outcome::Missed } else { Outcome::Lost }
        } else if !winners.is_empty() {
            Outcome::Won(winners)
        } else if now.since(race.began) >= longest {
            Outcome::Lost
        } else {
            Outcome::Open
        }
    }

    /// Gives up `uplink`, where packets of some link wait: the `winners` and the links that wait for
    /// nothing share a new one, and each of the others gets its own.
    fn split(
        &mut self,
        now: Time,
        (uplink, winners): (UplinkId, &[LinkId]),
        node: &RecordedNode,
        (arena, epoll): (&mut TxArena, &Epoll),
    ) -> io::Result<()> {
        let racers = self.own_queues.racers(uplink);
        self.own_queues.races.remove(&uplink);
        self.leave(uplink);
        self.bring_back(winners);
        for racer in racers.iter().filter(|racer| !winners.contains(racer)) {
            self.own_queues.suspect(now, *racer);
            let own = node.node().link(*racer).map(Link::uplink).filter(|own| *own != uplink);
            if let Some(own) = own {
                self.resume(now, own, arena, epoll)?;
            }
        }
        let mut waiting = Waiting::default();
        for (id, link) in node.node().links().filter(|(_, link)| link.uplink() == uplink) {
            self.waiting.insert(id);
            waiting.add(id, link);
        }
        let free = MAX_OWN.saturating_sub(self.own_queues.apart.len());
        let is_together = |id: &&LinkId| !self.own_queues.apart.contains_key(id);
        let suspects = waiting.shared.iter().chain(&waiting.urgent).filter(is_together);
        for id in suspects.copied().take(free).collect::<Vec<_>>() {
            self.own_queues.suspect(now, id);
        }
        self.own_queues.look_by(now + TRIAL_POLL);
        Ok(())
    }

    /// Makes links share an uplink again.
    fn bring_back(&mut self, links: &[LinkId]) {
        for link in links {
            self.own_queues.apart.remove(link);
            self.waiting.insert(*link);
            self.own_queues.unused = true;
        }
    }

    /// Looks at the links with a socket of their own that don't race. One whose packets leave after
    /// all returns at once, unless it was suspected too often.
    fn look_at_links_apart(&mut self, now: Time, node: &RecordedNode) {
        let mut back = Vec::new();
        let apart: Vec<_> = self.own_queues.apart.iter().map(|(id, apart)| (*id, *apart)).collect();
        for (id, apart) in apart {
            let uplink = node.node().link(id).map(Link::uplink);
            let slot = uplink.and_then(|uplink| self.slot(uplink));
            let slot = slot.filter(|slot| slot.departure.sharing == Sharing::Own(id));
            let empty = match slot {
                Some(slot) => slot.uplink.is_empty(),
                None if self.waiting.contains(&id) => continue,
                // There was no socket for it, or its next hop doesn't answer.
                None => {
                    back.push(id);
                    continue;
                }
            };
            let queues = &mut self.own_queues;
            let now_apart = match apart {
                Apart::Races(_) => continue,
                Apart::Suspected(_) if empty && queues.is_believed(id) => None,
                Apart::Suspected(since) if now.since(since) < TRIAL => Some(apart),
                Apart::Suspected(_) => {
                    queues.past(now, id).waited += 1;
                    Some(Apart::Waits(None))
                }
                Apart::Waits(_) if !empty => Some(Apart::Waits(None)),
                Apart::Waits(since) => {
                    let since = since.unwrap_or(now);
                    let times = queues.past(now, id).waited.clamp(1, DOUBLES + 1);
                    let stay = STAY * (1 << (times - 1));
                    (now.since(since) < stay).then_some(Apart::Waits(Some(since)))
                }
            };
            match now_apart {
                Some(apart) => {
                    let polls = matches!(apart, Apart::Suspected(_));
                    queues.look_by(now + if polls { TRIAL_POLL } else { LOOK });
                    queues.apart.insert(id, apart);
                }
                None => back.push(id),
            }
        }
        self.bring_back(&back);
    }
}

impl Uplinks {
    fn slot_mut(&mut self, uplink: UplinkId) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(uplink.0.checked_sub(1)?))?.as_mut()
    }

    /// The shared uplinks of one interface that are busy, or raced for, with the time since they are.
    fn busy_since(&mut self) -> Vec<(UplinkId, Time)> {
        let races = &self.own_queues.races;
        let busy = |(slot, i): (&mut Option<Slot>, u16)| {
            let slot = slot.as_mut()?;
            let Departure { interface, sharing, .. } = slot.departure;
            let is_shared = interface != 0 && sharing == Sharing::Links;
            let uplink = UplinkId(i + 1);
            // One that is raced for may be empty by now.
            let since = match races.get(&uplink) {
                Some(race) => race.began,
                None => slot.uplink.busy_since().filter(|_| is_shared)?,
            };
            Some((uplink, since))
        };
        self.slots.iter_mut().zip(0..).filter_map(busy).collect()
    }

    /// A new uplink for a link whose packets may wait in a queue of its own, or in place of one where
    /// such wait.
    pub(super) fn careful(&self, uplink: Uplink, departure: Departure) -> Uplink {
        let left = Departure { sharing: Sharing::Left, ..departure };
        let is_after = |slot: &Slot| slot.departure == left;
        match departure.sharing {
            Sharing::Own(_) => {
                if self.own_queues.races(departure.sharing) {
                    // Without it, a packet that is dropped at once may win.
                    let _ = uplink.report_drops(true);
                }
                uplink.cautious()
            }
            Sharing::Links if self.slots.iter().flatten().any(is_after) => uplink.cautious(),
            _ => uplink,
        }
    }

    /// Lets nothing more into `uplink`. Returns the bytes that wait there, if any do.
    fn pause(
        &mut self,
        uplink: UplinkId,
        arena: &mut TxArena,
        epoll: &Epoll,
    ) -> io::Result<Option<usize>> {
        let Some(slot) = self.slot_mut(uplink).filter(|slot| !slot.uplink.is_empty()) else {
            return Ok(None);
        };
        if slot.room == 0 {
            epoll.delete(slot.uplink.as_fd())?;
        }
        (slot.room, slot.paused, slot.disturbed) = (0, true, false);
        let queued = slot.uplink.queued();
        arena.set_room(uplink, 0);
        Ok(Some(queued))
    }

    /// Lets packets into `uplink` again.
    fn resume(
        &mut self,
        now: Time,
        uplink: UplinkId,
        arena: &mut TxArena,
        epoll: &Epoll,
    ) -> io::Result<()> {
        let Some(slot) = self.slot_mut(uplink).filter(|slot| slot.paused) else { return Ok(()) };
        slot.paused = false;
        if matches!(slot.departure.sharing, Sharing::Own(_)) {
            let _ = slot.uplink.report_drops(false);
        }
        let since = slot.full_since;
        slot.renew(now, (uplink, 0), arena, epoll)?;
        if slot.room == 0 {
            slot.full_since = since.or(slot.full_since);
        }
        Ok(())
    }

    /// Gives up `uplink`: it is closed once no link sends by it.
    fn leave(&mut self, uplink: UplinkId) {
        self.own_queues.unused = true;
        if let Some(slot) = self.slot_mut(uplink) {
            slot.departure.sharing = Sharing::Left;
            slot.paused = false;
        }
    }

    /// Bytes that wait in `uplink`, unless something entered it while it was paused.
    fn undisturbed(&self, uplink: UplinkId) -> Option<usize> {
        let slot = self.slot(uplink)?;
        let is_shared = slot.departure.sharing == Sharing::Links;
        (slot.paused && is_shared && !slot.disturbed).then(|| slot.uplink.queued())
    }

    /// Whether the packet that `link` sent for a race has left. One that was refused or dropped at
    /// once proves nothing.
    fn has_passed(&self, link: LinkId, uplink: UplinkId, arena: &TxArena) -> bool {
        self.slot(uplink).is_some_and(|slot| {
            let is_own = slot.departure.sharing == Sharing::Own(link);
            let was_taken = arena.room(uplink) == 0 && slot.uplink.stats().errors == 0;
            is_own && slot.paused && was_taken && slot.uplink.is_empty()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(urgent: core::ops::Range<u16>, shared: core::ops::Range<u16>) -> Waiting {
        let links = urgent.len() + shared.len();
        let [urgent, shared] = [urgent, shared].map(|ids| ids.map(LinkId).collect());
        Waiting { links, urgent, shared }
    }

    fn ids(chosen: &[LinkId]) -> Vec<u16> {
        chosen.iter().map(|id| id.0).collect()
    }

    #[test]
    fn links_race_in_turn_and_rest_after_they_have_lost() {
        let (mut queues, at) = (OwnQueues::new(), Time::from_millis);
        let all = waiting(1..40, 50..60);
        let first = queues.choose(at(0), &all);
        assert_eq!(ids(&first), (1..17).collect::<Vec<_>>());
        queues.rest(at(0), first.into_iter());
        let second = queues.choose(at(10), &all);
        assert_eq!(ids(&second), (17..33).collect::<Vec<_>>());
        queues.rest(at(10), second.into_iter());
        let third = queues.choose(at(20), &all);
        assert_eq!(ids(&third), (33..40).collect::<Vec<_>>());
        queues.rest(at(20), third.into_iter());
        // Few of those that wait with other packets only.
        assert_eq!(ids(&queues.choose(at(30), &all)), [50, 51]);
        assert_eq!(ids(&queues.choose(at(30), &waiting(0..0, 50..60))), [52, 53]);
        // The first ones may again after a second, then after two.
        assert_eq!(ids(&queues.choose(at(1_000), &waiting(1..3, 0..0))), [1, 2]);
        queues.rest(at(1_000), [LinkId(1)].into_iter());
        assert_eq!(ids(&queues.choose(at(2_500), &waiting(1..3, 0..0))), [2]);
        assert_eq!(ids(&queues.choose(at(3_000), &waiting(1..2, 0..0))), [1]);
    }

    #[test]
    fn few_links_have_a_socket_of_their_own() {
        let (mut queues, now) = (OwnQueues::new(), Time::from_millis(1_000));
        (0..MAX_OWN as u16 - 3).for_each(|id| queues.suspect(now, LinkId(id)));
        let chosen = queues.choose(now, &waiting(0..100, 0..0));
        assert_eq!(ids(&chosen), [29, 30, 31], "not those that have one");
        chosen.into_iter().for_each(|id| queues.suspect(now, id));
        assert_eq!(queues.choose(now, &waiting(0..100, 100..200)), []);
        queues.forget(LinkId(7));
        assert_eq!(queues.choose(now, &waiting(0..100, 0..0)).len(), 1);
    }

    #[test]
    fn a_link_that_is_suspected_again_and_again_is_not_believed() {
        let (mut queues, now) = (OwnQueues::new(), Time::from_millis(1_000));
        let link = LinkId(1);
        for _ in 0..DOUBTS {
            queues.suspect(now, link);
            assert!(queues.is_believed(link));
        }
        queues.suspect(now, link);
        assert!(!queues.is_believed(link));
    }
}
