//! Next hops that don't answer. The kernel keeps packets for a router or neighbour whose link-layer
//! address it doesn't know in the socket that they came from, for seconds. So those of an interface
//! share an uplink of their own, and the others of the interface go on.

use super::uplinks::Uplinks;
use crate::datapath::mmsg::Egress;
use crate::datapath::record::RecordedNode;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;
use trunkline_overlay::link::LinkId;

/// Time without room after which the next hops of an uplink are looked at: more than the time for
/// which a socket's buffer lasts.
const STALLED: Duration = Duration::from_millis(40);
/// Interval at which a silent next hop is looked at again.
const AGAIN: Duration = Duration::from_millis(500);

/// A machine that an interface hands packets to.
pub type NextHop = (u32, IpAddr);

/// The next hops that don't answer, and when to look next.
#[derive(Debug)]
pub struct SilentNextHops {
    silent: BTreeSet<NextHop>,
    /// Which of them links wait for, and since when.
    awaited: BTreeMap<LinkId, (IpAddr, Time)>,
    look_at: Time,
}

impl SilentNextHops {
    /// Creates an empty set; nothing is looked at before an uplink has no room.
    pub fn new() -> SilentNextHops {
        SilentNextHops { silent: BTreeSet::new(), awaited: BTreeMap::new(), look_at: Time::NEVER }
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

    /// Notes that an uplink has no room.
    pub fn stalled(&mut self, now: Time) {
        self.look_at = self.look_at.min(now + STALLED);
    }
}

impl Uplinks {
    /// Moves the links of uplinks without room whose next hop doesn't answer to an uplink of
    /// their own, and back once it does.
    pub(super) fn look_for_silence(&mut self, now: Time, node: &RecordedNode) {
        if now < self.next_hops.look_at {
            return;
        }
        self.next_hops.look_at = Time::NEVER;
        let mut stalled: BTreeMap<UplinkId, Vec<(LinkId, NextHop)>> = BTreeMap::new();
        let mut in_use = BTreeSet::new();
        for (id, link) in node.node().links() {
            let Some(address) = link.address() else { continue };
            let Some((egress, stalls)) = self.stalls(link.uplink(), now) else { continue };
            let Some(next_hop) = self.next_hop(address.ip(), egress) else { continue };
            in_use.insert(next_hop);
            if stalls || self.next_hops.contains(&next_hop) {
                stalled.entry(link.uplink()).or_default().push((id, next_hop));
            }
        }
        self.forget_stalls();
        // No link leads to the others any more.
        self.next_hops.silent.retain(|next_hop| in_use.contains(next_hop));
        let before = std::mem::take(&mut self.next_hops.awaited);
        for (uplink, links) in &stalled {
            let full = self.full_since(*uplink).unwrap_or(now);
            self.part(*uplink, links);
            let silent = links.iter().filter(|(_, next_hop)| self.next_hops.contains(next_hop));
            for &(link, (_, ip)) in silent.collect::<Vec<_>>() {
                let known = before.get(&link).filter(|(awaited, _)| *awaited == ip);
                let since = known.map_or(full, |(_, since)| *since);
                self.next_hops.awaited.insert(link, (ip, since));
            }
        }
        if !self.next_hops.silent.is_empty() {
            self.next_hops.look_at = self.next_hops.look_at.min(now + AGAIN);
        }
    }

    /// How packets leave by `uplink`, and whether it has had no room for long. Looks again later if
    /// that is not yet clear.
    fn stalls(&mut self, uplink: UplinkId, now: Time) -> Option<(Egress, bool)> {
        let (egress, since) = self.without_room(uplink)?;
        let stalls = since.is_some_and(|since| now.since(since) >= STALLED);
        if let Some(since) = since {
            let again = if stalls { now + AGAIN } else { since + STALLED };
            self.next_hops.look_at = self.next_hops.look_at.min(again);
        }
        Some((egress, stalls))
    }

    /// Compares the next hops of `links`, which all leave by `uplink`, with what is known.
    fn part(&mut self, uplink: UplinkId, links: &[(LinkId, NextHop)]) {
        let next_hops: BTreeSet<NextHop> = links.iter().map(|&(_, next_hop)| next_hop).collect();
        let mut is_news = false;
        for next_hop in next_hops {
            // The kernel forgets a machine that doesn't answer after a while.
            let known = self.next_hops.contains(&next_hop);
            let is_silent = self.is_silent(next_hop).unwrap_or(known);
            let changed = match is_silent {
                true => self.next_hops.silent.insert(next_hop),
                false => self.next_hops.silent.remove(&next_hop),
            };
            if changed && is_silent {
                self.leave_to_silent(uplink);
            }
            is_news |= changed;
        }
        if is_news {
            for &(link, _) in links {
                self.waiting.insert(link);
            }
        }
    }
}
