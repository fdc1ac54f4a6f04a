//! Next hops that don't answer. The kernel keeps packets for a router or neighbour whose link-layer
//! address it doesn't know in the socket that they came from, for seconds. So those of an interface
//! share an uplink of their own, and the others of the interface go on.

use super::uplinks::Uplinks;
use crate::datapath::record::RecordedNode;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;
use trunkline_overlay::link::{Link, LinkId};

/// Time without room after which the next hops of an uplink are looked at: more than the time for
/// which a socket's buffer lasts.
pub(super) const STALLED: Duration = Duration::from_millis(40);
/// Time that a link is down before its next hop is looked at: an interface that has just come up asks
/// for none before its IPv6 address is known to be unique.
const DOWN: Duration = Duration::from_secs(3);
/// Interval between two looks at the next hop of a link in trouble.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of next hops that are looked at in one turn, each in some 10 µs.
const LOOKS_PER_TURN: usize = 32;

/// A machine that an interface hands packets to.
pub type NextHop = (u32, IpAddr);

/// The next hops that don't answer, and when to look next.
#[derive(Debug)]
pub struct SilentNextHops {
    silent: BTreeSet<NextHop>,
    /// Which of them links wait for, and since when.
    awaited: BTreeMap<LinkId, (IpAddr, Time)>,
    look_at: Time,
    /// The one that was looked at last.
    last: NextHop,
}

/// A link whose next hop may be silent.
struct Suspect {
    link: LinkId,
    uplink: UplinkId,
    next_hop: NextHop,
    /// Whether its uplink takes nothing.
    stalls: bool,
    /// Time since its packets wait if they do.
    since: Time,
}

impl SilentNextHops {
    /// Creates an empty set; nothing is looked at before an uplink has no room, or a link is down.
    pub fn new() -> SilentNextHops {
        SilentNextHops {
            silent: BTreeSet::new(),
            awaited: BTreeMap::new(),
            look_at: Time::NEVER,
            last: (0, IpAddr::from([0; 4])),
        }
    }

    /// Whether `next_hop` doesn't answer.
    pub fn contains(&self, next_hop: &NextHop) -> bool {
        self.silent.contains(next_hop)
    }

    /// Time of the next [`Uplinks::look_for_silence`].
    pub fn look_at(&self) -> Time {
        self.look_at
    }

    /// The next hop that a link waits for, if it doesn't answer, and since when.
    pub fn awaited_by(&self, link: LinkId) -> Option<(IpAddr, Time)> {
        self.awaited.get(&link).copied()
    }

    /// Forgets that a link waits.
    pub fn forget(&mut self, link: LinkId) {
        self.awaited.remove(&link);
    }

    /// Notes that an uplink has no room.
    pub fn stalled(&mut self, now: Time) {
        self.look_at = self.look_at.min(now + STALLED);
    }

    /// Notes that a link may be down since a time.
    pub fn suspect(&mut self, since: Time) {
        self.look_at = self.look_at.min(since + DOWN);
    }
}

impl Uplinks {
    /// Moves links whose next hop doesn't answer to an uplink of their own, and back once it does:
    /// those of uplinks without room, and those that are down. A few packets, such as handshakes,
    /// don't fill an uplink.
    pub(super) fn look_for_silence(&mut self, now: Time, node: &RecordedNode) {
        if now < self.next_hops.look_at {
            return;
        }
        self.next_hops.look_at = Time::NEVER;
        let links = node.node().links();
        let suspects: Vec<_> = links.filter_map(|(id, link)| self.suspect(now, id, link)).collect();
        self.forget_stalls();
        let next_hops = suspects.iter().map(|suspect| suspect.next_hop).collect();
        // No link leads to the others any more.
        self.next_hops.silent.retain(|next_hop| BTreeSet::contains(&next_hops, next_hop));
        let changed = self.look_at_next_hops(&next_hops);
        self.part(&suspects, &changed);
        let before = std::mem::take(&mut self.next_hops.awaited);
        for Suspect { link, next_hop, since, .. } in &suspects {
            let ip = next_hop.1;
            if self.next_hops.contains(next_hop) {
                let known = before.get(link).filter(|(awaited, _)| *awaited == ip);
                let since = known.map_or(*since, |(_, since)| *since);
                self.next_hops.awaited.insert(*link, (ip, since));
            }
        }
        if !suspects.is_empty() {
            self.next_hops.look_at = self.next_hops.look_at.min(now + AGAIN);
        }
    }

    /// The link `id` with its next hop, if that may be silent. Looks again later if that is not yet
    /// clear.
    fn suspect(&mut self, now: Time, id: LinkId, link: &Link) -> Option<Suspect> {
        let (uplink, next_hop) = (link.uplink(), self.next_hop(id)?);
        let full = self.full_since(uplink).filter(|_| self.is_of_one_interface(uplink));
        let stalls = full.is_some_and(|since| now.since(since) >= STALLED);
        if let Some(since) = full.filter(|_| !stalls) {
            self.next_hops.look_at = self.next_hops.look_at.min(since + STALLED);
        }
        let down = (!link.monitor().is_up()).then(|| link.monitor().quality().since);
        let is_down = down.is_some_and(|since| now.since(since) >= DOWN);
        if let Some(since) = down.filter(|_| !is_down) {
            self.next_hops.suspect(since);
        }
        let is_awaited = self.is_for_silent(uplink) || self.next_hops.awaited.contains_key(&id);
        if !(stalls || is_down || is_awaited) {
            return None;
        }
        // A link that has been down for longer was looked at before, and its next hop answered.
        let recent = down.filter(|since| now.since(*since) < DOWN + 2 * AGAIN);
        let since = full.or(recent).unwrap_or(now);
        Some(Suspect { link: id, uplink, next_hop, stalls, since })
    }

    /// Compares what the kernel knows of `next_hops` with what is known here; many are looked at in
    /// turn. Returns those that have changed.
    fn look_at_next_hops(&mut self, next_hops: &BTreeSet<NextHop>) -> BTreeSet<NextHop> {
        let last = self.next_hops.last;
        let later = next_hops.range((Bound::Excluded(last), Bound::Unbounded));
        let turn: Vec<_> =
            later.chain(next_hops.range(..=last)).take(LOOKS_PER_TURN).copied().collect();
        self.next_hops.last = turn.last().copied().unwrap_or(last);
        let mut changed = BTreeSet::new();
        for next_hop in turn {
            // The kernel forgets a machine that doesn't answer after a while.
            let known = self.next_hops.contains(&next_hop);
            let is_changed = match self.is_silent(next_hop).unwrap_or(known) {
                true => self.next_hops.silent.insert(next_hop),
                false => self.next_hops.silent.remove(&next_hop),
            };
            if is_changed {
                changed.insert(next_hop);
            }
        }
        changed
    }

    /// Looks up the routes of links again whose next hops have changed. An uplink that takes nothing
    /// is left to those that don't answer, and the other links leave it.
    fn part(&mut self, suspects: &[Suspect], changed: &BTreeSet<NextHop>) {
        let is_changed = |suspect: &&Suspect| changed.contains(&suspect.next_hop);
        let mut left = BTreeSet::new();
        for Suspect { link, uplink, next_hop, stalls, .. } in suspects.iter().filter(is_changed) {
            self.waiting.insert(*link);
            if *stalls && self.next_hops.contains(next_hop) {
                self.leave_to_silent(*uplink);
                left.insert(*uplink);
            }
        }
        self.waiting.extend(suspects.iter().filter(|s| left.contains(&s.uplink)).map(|s| s.link));
    }
}
