//! One call of several INVITEs: a challenge that is answered, and a request that passes this gateway more
//! than once.

use super::{Call, CallId, Calls};
use core::net::IpAddr;

/// Maximum number of parts of a call at this gateway: its request may pass as often.
const MAX_PARTS: usize = 4;

impl Calls {
    /// The call whose INVITE was challenged, and whose caller repeats it from `ip`.
    pub fn challenged(&self, name: &[u8], tag: &[u8], ip: IpAddr) -> Option<CallId> {
        let ids = self.by_name.get(name)?;
        let is = |id: &&CallId| {
            self.all.get(*id).is_some_and(|call| {
                let side = &call.sides[0];
                let is_there = side.hop.is_some_and(|hop| hop.remote.ip() == ip);
                call.challenged.is_some() && side.is(tag) && is_there
            })
        };
        ids.iter().find(is).copied()
    }

    /// Notes that `part` is a part of the call `first`.
    pub fn join(&mut self, first: CallId, part: CallId) {
        if let Some(call) = self.all.get_mut(&first) {
            call.onward = Some(part);
        }
        if let Some(call) = self.all.get_mut(&part) {
            call.part_of = Some(first);
        }
    }

    /// Number of calls that wait for their INVITE to be repeated with credentials.
    pub fn count_challenged(&self) -> usize {
        self.all.values().filter(|call| call.challenged.is_some()).count()
    }

    /// The call of which an INVITE that comes back from the proxy at `ip` is a part.
    pub fn passed(&self, name: &[u8], tag: &[u8], ip: IpAddr) -> Option<CallId> {
        let ids = self.by_name.get(name)?;
        let is = |id: &&CallId| {
            self.all.get(*id).is_some_and(|call| {
                let went = call.sides[1].hop.is_some_and(|hop| hop.remote.ip() == ip);
                call.answered.is_none() && call.sides[0].is(tag) && went
            })
        };
        ids.iter().find(is).copied()
    }

    /// The first part of the call that `id` is a part of.
    pub fn whole(&self, id: CallId) -> CallId {
        self.walk(id, |call| call.part_of)
    }

    /// The last part of the call `id`.
    pub fn last_part(&self, id: CallId) -> CallId {
        self.walk(id, |call| call.onward)
    }

    /// The last call that `next` leads to from `id`, over calls that exist.
    fn walk(&self, id: CallId, next: impl Fn(&Call) -> Option<CallId>) -> CallId {
        let step = |id: &CallId| {
            let next = self.all.get(id).and_then(&next);
            next.filter(|next| self.all.contains_key(next))
        };
        // There are no more parts than a request may pass here.
        std::iter::successors(Some(id), step).take(MAX_PARTS + 1).last().unwrap_or(id)
    }
}
