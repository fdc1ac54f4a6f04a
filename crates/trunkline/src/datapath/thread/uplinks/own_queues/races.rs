//! The races for sockets, and looks at the sockets of their own that links have.

#[cfg(test)]
mod tests;

use super::super::departures::{Departure, Sharing};
use super::super::{Slot, Uplinks};
use super::*;
use crate::datapath::record::RecordedNode;
use crate::datapath::uplink::Uplink;
use nix::sys::epoll::Epoll;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use trunkline_overlay::arena::{Run, TxArena};

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
/// Interval between two looks after which a result may be missed.
const LATE: Duration = Duration::from_millis(8);

#[derive(Debug)]
pub(super) struct Race {
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

/// The traffic of a socket, as far as a search needs it.
#[derive(Default, Debug)]
pub struct Outflow {
    /// Destination of the first datagram of all.
    first_to: Option<SocketAddr>,
    /// Bytes that the kernel took since a time, and those that waited then.
    taken: u64,
    queued: usize,
    since: Time,
    /// Bytes that left in the last [`LOOK`].
    left: Option<u64>,
}

impl Outflow {
    /// Begins to count at a socket where nothing waits.
    pub fn new(now: Time) -> Outflow {
        Outflow { since: now, ..Outflow::default() }
    }

    /// Notes that the kernel took `runs`.
    pub fn took(&mut self, runs: &[Run]) {
        self.first_to = self.first_to.or_else(|| Some(runs.first()?.to));
        self.took_bytes(runs.iter().map(|run| run.range().len() as u64).sum());
    }

    pub(super) fn took_bytes(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Bytes that left in the last [`LOOK`] at least, now that `queued` wait: the kernel counts more
    /// than a datagram's own.
    pub(super) fn look(&mut self, now: Time, queued: usize) -> Option<u64> {
        if now.since(self.since) >= LOOK {
            self.left = Some((self.queued as u64 + self.taken).saturating_sub(queued as u64));
            (self.since, self.queued, self.taken) = (now, queued, 0);
        }
        self.left
    }
}

impl Uplinks {
    /// Finds out which links' packets wait in a queue of their own, and gives each of those a socket;
    /// takes it back once nothing waits there.
    pub(in super::super) fn look_for_own_queues(
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
        self.look_at_groups(now, node);
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
        if worth && full && self.own_queues.free() == 0 {
            // Links that are busy must not keep one that hangs from being found.
            let (racers, at_once) = self.own_queues.may_race(now, waiting);
            let moved = self.own_queues.make_room(racers.len().min(at_once));
            self.waiting.extend(moved);
        }
        let chosen = if worth { self.own_queues.choose(now, uplink, waiting) } else { Vec::new() };
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
            self.own_queues.set_apart(vec![link], Apart::Races(uplink));
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
                let more = self.own_queues.choose(now, uplink, waiting);
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
                    Outcome::Lost => self.own_queues.rest(now, all.into_iter()),
                    _ => self.own_queues.miss(now, &all),
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
            link.is_some_and(|link| self.has_passed((*id, link.address()), link.uplink(), arena))
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
            self.own_queues.suspect_racer(now, *racer);
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
        let mut suspects = waiting.shared;
        suspects.extend(waiting.urgent);
        suspects.retain(|id| self.own_queues.group_of(*id).is_none());
        self.own_queues.suspect(now, &suspects);
        self.own_queues.look_by(now + TRIAL_POLL);
        Ok(())
    }

    /// Makes links share an uplink again.
    fn bring_back(&mut self, links: &[LinkId]) {
        for link in links {
            self.own_queues.release(*link);
            self.waiting.insert(*link);
        }
    }

    /// Looks at the sockets of groups.
    fn look_at_groups(&mut self, now: Time, node: &RecordedNode) {
        let groups: Vec<_> = self.own_queues.groups.keys().copied().collect();
        for id in groups {
            let Some(group) = self.own_queues.groups.get(&id) else { continue };
            let (links, apart) = (group.links.clone(), group.apart);
            let (mut uplinks, mut is_early) = (Vec::new(), false);
            for link in links {
                let uplink = node.node().link(link).map(Link::uplink);
                let uplink = uplink.filter(|uplink| self.is_of_group(*uplink, id, apart));
                match uplink {
                    Some(uplink) => uplinks.push(uplink),
                    None if self.waiting.contains(&link) => is_early = true,
                    // There was no socket for it, its next hop doesn't answer, or it leaves by another
                    // interface than the one that it races for.
                    None => self.bring_back(&[link]),
                }
            }
            if is_early {
                self.own_queues.await_trial(now, id);
                continue;
            }
            uplinks.sort_unstable();
            uplinks.dedup();
            let seen = self.see(now, &uplinks);
            let moved = self.own_queues.judge(now, id, seen);
            self.waiting.extend(moved);
        }
    }

    /// Whether `uplink` is the socket of a group, which is apart from others for a reason.
    fn is_of_group(&self, uplink: UplinkId, group: GroupId, apart: Apart) -> bool {
        let Some(own) = self.slot(uplink).map(|slot| slot.departure) else { return false };
        let beside = match apart {
            Apart::Races(shared) => self.slot(shared).map(|slot| slot.departure),
            _ => Some(own),
        };
        let is_beside =
            beside.is_some_and(|beside| Departure { sharing: own.sharing, ..beside } == own);
        own.sharing == Sharing::Own(group) && is_beside
    }

    /// The sockets of a group: more than one if its links leave by several interfaces.
    fn see(&mut self, now: Time, uplinks: &[UplinkId]) -> Seen {
        let mut seen = Seen { empty: true, left: Some(0) };
        for uplink in uplinks {
            let Some(slot) = self.slot_mut(*uplink) else { continue };
            let left = slot.outflow.look(now, slot.uplink.queued());
            seen.empty &= slot.uplink.is_empty();
            seen.left = seen.left.zip(left).map(|(a, b)| a + b);
        }
        seen
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
    pub(in super::super) fn careful(&self, uplink: Uplink, departure: Departure) -> Uplink {
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

    /// Whether the packet that `link` sent to its address for a race has left. One that was refused or
    /// dropped at once, or went to another address, proves nothing.
    fn has_passed(
        &self,
        (link, to): (LinkId, Option<SocketAddr>),
        uplink: UplinkId,
        arena: &TxArena,
    ) -> bool {
        let group = self.own_queues.group_of(link);
        self.slot(uplink).is_some_and(|slot| {
            let is_own = group.is_some_and(|id| slot.departure.sharing == Sharing::Own(id));
            let was_taken = arena.room(uplink) == 0 && slot.uplink.stats().errors == 0;
            let went_there = to.is_some() && slot.outflow.first_to == to;
            is_own && slot.paused && was_taken && went_there && slot.uplink.is_empty()
        })
    }
}
