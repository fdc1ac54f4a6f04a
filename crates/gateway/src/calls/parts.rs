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
        let is_taken = self.onward(first).is_some_and(|(_, call)| call.answered.is_some());
        if !is_taken {
            self.lead(first, Some(part));
        }
        if let Some(call) = self.all.get_mut(&part) {
            call.part_of = Some(first);
        }
    }

    /// Decides which of several phones is the callee, once the call `id` is answered. It is the one
    /// whose tag the caller has got first, whatever answers follow (RFC 3261, 13.2.2.4); until then,
    /// the first that has answered here.
    pub fn choose_part(&mut self, id: CallId) {
        let Some(call) = self.all.get(&id) else { return };
        if let Some(first) = call.part_of
            && let Some(whole) = self.all.get(&first)
        {
            let taken = self.onward(first).filter(|(_, other)| other.answered.is_some());
            let is_callee = match whole.answered {
                Some(_) => call.agrees(whole) && !taken.is_some_and(|(_, it)| it.agrees(whole)),
                None => taken.is_none(),
            };
            if is_callee {
                self.lead(first, Some(id));
            }
        }
        let Some(call) = self.all.get(&id) else { return };
        let known = self.onward(id).filter(|(_, part)| part.agrees(call)).map(|(part, _)| part);
        let is_callee = |part: &CallId| {
            let part = self.all.get(part);
            part.is_some_and(|part| part.part_of == Some(id) && part.agrees(call))
        };
        let ids = self.by_name.get(&call.name).map(Vec::as_slice).unwrap_or_default();
        let onward = known.or_else(|| ids.iter().copied().find(is_callee));
        self.lead(id, onward);
    }

    fn lead(&mut self, first: CallId, onward: Option<CallId>) {
        if let Some(call) = self.all.get_mut(&first) {
            call.onward = onward;
        }
    }

    fn onward(&self, first: CallId) -> Option<(CallId, &Call)> {
        let part = self.all.get(&first)?.onward?;
        Some((part, self.all.get(&part)?))
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

    /// The first part of the call that `id` is a part of; `id` itself if another phone is the callee
    /// of that call: what happens in its dialog is not the call's affair.
    pub fn whole(&self, id: CallId) -> CallId {
        self.walk(id, |id, call| {
            let first = call.part_of?;
            let whole = self.all.get(&first)?;
            let is_behind = whole.onward == Some(id) || call.agrees(whole);
            is_behind.then_some(first)
        })
    }

    /// The last part of the call `id`.
    pub fn last_part(&self, id: CallId) -> CallId {
        self.walk(id, |_, call| call.onward)
    }

    /// All parts of the call `first`, and the call itself.
    pub fn parts(&self, first: CallId) -> Vec<CallId> {
        let name = self.all.get(&first).map(|call| &call.name);
        let ids = name.and_then(|name| self.by_name.get(name)).map(Vec::as_slice);
        let is_its = |id: &CallId| self.whole(*id) == first;
        ids.unwrap_or_default().iter().copied().filter(is_its).collect()
    }

    /// The parts by which a phone has answered that its caller is in no call with: the answer has not
    /// reached the caller, or only after another's, or the call has ended meanwhile. They are those of
    /// the phone of part `id`; none if that is no such part.
    pub fn alone(&self, id: CallId) -> Vec<CallId> {
        let Some(call) = self.all.get(&id).filter(|_| self.is_alone(id)) else {
            return Vec::new();
        };
        let is_same = |other: &CallId| self.all.get(other).is_some_and(|it| it.agrees(call));
        self.of_name(&call.name).filter(|other| self.is_alone(*other)).filter(is_same).collect()
    }

    /// All such parts of the call `first`.
    pub fn alone_of(&self, first: CallId) -> Vec<CallId> {
        let Some(call) = self.all.get(&first) else { return Vec::new() };
        let is_its = |part: &CallId| self.is_alone(*part) && self.first_part(*part) == first;
        self.of_name(&call.name).filter(is_its).collect()
    }

    fn is_alone(&self, id: CallId) -> bool {
        let ends = (self.all.get(&id), self.all.get(&self.first_part(id)));
        let (Some(call), Some(first)) = ends else { return false };
        let has_ended = first.part_of.is_some();
        call.answered.is_some() && call.part_of.is_some() && (has_ended || !call.agrees(first))
    }

    fn of_name(&self, name: &[u8]) -> impl Iterator<Item = CallId> {
        self.by_name.get(name).map(Vec::as_slice).unwrap_or_default().iter().copied()
    }

    /// The first part of all that lead to `id`, as far as they exist.
    fn first_part(&self, id: CallId) -> CallId {
        self.walk(id, |_, call| call.part_of)
    }

    /// Whether `call` is a part of one that has ended.
    pub fn is_left_over(&self, call: &Call) -> bool {
        call.part_of.is_some_and(|first| !self.all.contains_key(&first))
    }

    /// The last call that `next` leads to from `id`, over calls that exist.
    fn walk(&self, id: CallId, next: impl Fn(CallId, &Call) -> Option<CallId>) -> CallId {
        let step = |id: &CallId| {
            let next = self.all.get(id).and_then(|call| next(*id, call));
            next.filter(|next| self.all.contains_key(next))
        };
        // There are no more parts than a request may pass here.
        std::iter::successors(Some(id), step).take(MAX_PARTS + 1).last().unwrap_or(id)
    }
}

impl Call {
    /// Whether both have been answered, by the same end.
    fn agrees(&self, other: &Call) -> bool {
        let is_same = self.sides[1].tag == other.sides[1].tag;
        self.answered.is_some() && other.answered.is_some() && is_same
    }
}
