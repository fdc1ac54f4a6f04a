//! Calls that the gateway ends itself: both ends are told.

use super::{CallOutcome, Gateway, Kind, Pending, hung_up};
use crate::call_legs::{self, CallLegs};
use crate::calls::{CallId, Side, SideId};
use crate::dialog::{Cause, DialogEnd};
use crate::media::Media;
use core::net::SocketAddr;
use trunkline_base::Time;
use trunkline_sip::Message;
use trunkline_sip::transaction::{Hop, TransactionId};
use trunkline_sip::value::{Address, Uri};

/// The calls that an operator ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSelection {
    /// All calls that ring or are up.
    All,
    /// Those with this Call-ID.
    Named(String),
}

/// How many ends of the calls that a stop has ended know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Farewell {
    /// Number of ends of calls that were up or rang.
    pub ends: usize,
    /// Number of these that were sent a BYE, a CANCEL or a final response.
    pub told: usize,
    /// Number of these that have not answered a BYE or a CANCEL so far.
    pub unanswered: usize,
}

/// The requests by which ends of calls are told, and the number of these ends.
#[derive(Debug, Default)]
pub(super) struct Told {
    ends: usize,
    byes: Vec<TransactionId>,
    /// INVITEs that are refused and cancelled.
    invites: Vec<TransactionId>,
}

impl Told {
    fn byes(ends: usize, byes: Vec<TransactionId>) -> Told {
        Told { ends, byes, invites: Vec::new() }
    }

    fn join(&mut self, other: Told) {
        self.ends += other.ends;
        self.byes.extend(other.byes);
        self.invites.extend(other.invites);
    }
}

/// A BYE of this gateway to the ends of a call.
#[derive(Clone, Copy)]
pub(super) struct Bye {
    pub why: Cause,
    /// The end that it goes to, if not to both.
    pub only: Option<SideId>,
    /// A host that it avoids, since that host has refused or not answered an end's own BYE.
    pub past: Option<SocketAddr>,
}

impl Bye {
    fn to_both(why: Cause) -> Bye {
        Bye { why, only: None, past: None }
    }

    fn to(side: SideId, why: Cause) -> Bye {
        Bye { why, only: Some(side), past: None }
    }
}

impl Pending {
    /// How a call ends by this BYE, once it counts.
    pub(super) fn hung_up(&self) -> CallOutcome {
        match self.told {
            Some(Cause::Idle) => CallOutcome::Idle,
            Some(Cause::Operator) => CallOutcome::Operator,
            Some(Cause::Stopped) => CallOutcome::Stopped,
            Some(Cause::Late | Cause::HungUp) | None => hung_up(&self.passes),
        }
    }
}

impl Gateway {
    /// Ends calls, and tells their ends. Returns how many.
    pub fn hang_up(&mut self, now: Time, which: &CallSelection, media: &mut impl Media) -> usize {
        let whole = self.calls.iter().filter(|(_, call)| call.part_of.is_none());
        let named = |id: &CallId| match which {
            CallSelection::All => true,
            CallSelection::Named(name) => {
                self.calls.view(*id).is_some_and(|view| view.name == *name)
            }
        };
        let all: Vec<CallId> = whole.map(|(id, _)| id).filter(named).collect();
        for &id in &all {
            self.tell(now, id, Cause::Operator, media);
            self.end(&vec![(id, 0)], CallOutcome::Operator, media);
        }
        all.len()
    }

    /// Tells the ends of all calls that the gateway stops.
    pub(super) fn tell_all(&mut self, now: Time, media: &mut impl Media) {
        let is_one = |id| self.calls.whole(id) == id;
        let all: Vec<CallId> =
            self.calls.iter().map(|(id, _)| id).filter(|id| is_one(*id)).collect();
        for id in all {
            let told = self.tell(now, id, Cause::Stopped, media);
            self.told.join(told);
        }
    }

    /// Counts the ends of the calls that [`Gateway::stop`] has ended, and those that know so far. Zero
    /// if they are not to be told.
    pub fn farewell(&self) -> Farewell {
        let Told { ends, byes, invites } = &self.told;
        let sent = byes.iter().filter(|id| !self.transactions.has_failed(**id)).count();
        let cancelled = invites.iter().filter(|id| self.transactions.has_cancelled(**id)).count();
        let awaited = byes.iter().chain(invites).filter(|id| self.transactions.awaits(**id));
        let told = sent + invites.len() + cancelled;
        Farewell { ends: *ends, told, unanswered: awaited.count() }
    }

    /// Whether all ends of calls that this gateway has ended have answered, or can't be waited for.
    pub fn is_quiet(&self) -> bool {
        !self.transactions.awaits_some()
    }

    /// Ends the call of an end that has accepted an INVITE too late: its 200 and the CANCEL have
    /// crossed, and the caller has another answer. Without an ACK and a BYE that end stays in a call.
    pub(super) fn end_unwanted(
        &mut self,
        now: Time,
        id: TransactionId,
        (answer, is_first): (&Message, bool),
        media: &mut impl Media,
    ) {
        let Some((hop, invite)) = self.transactions.forwarded(id) else { return };
        // Within a call, its ends know better whether the call continues.
        if invite.to().is_some_and(|to| to.tag().is_some()) {
            return;
        }
        let is_own = |uri: &Uri<'_>| self.config.is_own(uri.host, uri.port, uri.secure);
        let ends = (DialogEnd::of_late(invite), DialogEnd::of_answer(answer, is_own));
        let (Some(mut caller), Some(callee)) = ends else { return };
        let name = invite.call_id().unwrap_or_default().to_vec();
        let is_next_hop = self.pending.get(&id).is_some_and(|pending| pending.is_flow);
        let dialog = Some(callee.clone());
        let side = Side { hop: Some(hop), is_next_hop, dialog, ..Side::default() };
        let Some(hop) = self.hop_to(now, &side, media) else { return };
        let own = self.own_hop(&hop);
        let Some(way) = &callee.way else { return };
        let first = |method: &[u8]| [method, b" ", &way.target, b" SIP/2.0"].concat();
        self.hops.used(&hop);
        let ack = callee.ack(&caller, &name);
        self.transactions.acknowledge(hop, &first(b"ACK"), (&own, &ack));
        if is_first {
            let bye = callee.bye(&mut caller, &name, (Cause::Late, false));
            self.transactions.originate(now, hop, &first(b"BYE"), (&own, &bye));
        }
    }

    fn tell(&mut self, now: Time, id: CallId, why: Cause, media: &mut impl Media) -> Told {
        let Some(call) = self.calls.get(id) else { return Told::default() };
        match (call.answered, call.part_of) {
            (Some(_), None) => Told::byes(2, self.say_bye(now, id, Bye::to_both(why), media)),
            (Some(_), Some(_)) => self.end_alone(now, id, why, media),
            (None, None) => {
                let invites = self.abort(now, id);
                let mut told = Told { ends: 2 * invites.len(), invites, byes: Vec::new() };
                for part in self.calls.alone_of(id) {
                    told.join(self.end_alone(now, part, why, media));
                }
                told
            }
            // The registrar cancels it, as soon as it hears of the whole.
            (None, Some(_)) => Told::default(),
        }
    }

    /// Ends a call without a sign of life. A phone whose answer has not reached the caller, or after
    /// another's, is told alone: its caller hears others ring, or is in the call with another.
    pub(super) fn end_idle(&mut self, now: Time, id: CallId, media: &mut impl Media) {
        if !self.calls.alone(id).is_empty() {
            self.end_alone(now, id, Cause::Late, media);
            return;
        }
        let whole = self.calls.whole(id);
        let Some(call) = self.calls.get(whole) else { return };
        let is_part = call.part_of.is_some();
        if call.answered.is_some() {
            self.say_bye(now, whole, Bye::to_both(Cause::Idle), media);
        }
        self.stats.idle += u64::from(!is_part);
        self.end(&vec![(id, 0)], CallOutcome::Idle, media);
    }

    /// Tells a phone that its caller is in no call with, and closes its parts of the call.
    fn end_alone(&mut self, now: Time, id: CallId, why: Cause, media: &mut impl Media) -> Told {
        let parts = self.calls.alone(id);
        if parts.is_empty() {
            return Told::default();
        }
        let byes = self.say_bye(now, id, Bye::to(1, why), media);
        parts.into_iter().for_each(|part| self.calls.close(part, media));
        Told::byes(1, byes)
    }

    /// Tells the other end of a call about a BYE that `by` refused or did not answer: past that
    /// host, unless it is the end itself.
    pub(super) fn tell_past(
        &mut self,
        now: Time,
        passes: &CallLegs,
        by: SocketAddr,
        media: &mut impl Media,
    ) {
        let Some(&(id, side)) = passes.first() else { return };
        if call_legs::are_up(&self.calls, passes) {
            let bye = Bye { why: Cause::HungUp, only: Some(1 - side), past: Some(by) };
            self.say_bye(now, self.calls.whole(id), bye, media);
        }
    }

    /// Sends a BYE to both ends of an answered call, or to one of them, each in the name of the other.
    /// An end that has given no way to it gets none. An answer that its caller has not acknowledged is
    /// acknowledged first: without that it is repeated (RFC 3261, 13.3.1.4). Returns the BYEs.
    pub(super) fn say_bye(
        &mut self,
        now: Time,
        id: CallId,
        bye: Bye,
        media: &mut impl Media,
    ) -> Vec<TransactionId> {
        let mut byes = Vec::new();
        let last = self.calls.last_part(id);
        let Some(call) = self.calls.get(id) else { return byes };
        let name = call.name.clone();
        let caller = call.sides[0].clone();
        let Some(call) = self.calls.get(last) else { return byes };
        let (callee, is_acknowledged) = (call.sides[1].clone(), call.is_acknowledged);
        let (Some(mut a), Some(mut b)) = (caller.dialog.clone(), callee.dialog.clone()) else {
            return byes;
        };
        for (n, mut side) in [caller, callee].into_iter().enumerate() {
            if bye.only.is_some_and(|only| only != n) {
                continue;
            }
            let Some(hop) = self.hop_past(now, &mut side, bye.past, media) else { continue };
            let Some(to) = side.dialog else { continue };
            let Some(way) = &to.way else { continue };
            let from = if n == 0 { &mut b } else { &mut a };
            let first = |method: &[u8]| [method, b" ", &way.target, b" SIP/2.0"].concat();
            let own = self.own_hop(&hop);
            self.hops.used(&hop);
            if n == 1 && !is_acknowledged {
                let ack = to.ack(from, &name);
                self.transactions.acknowledge(hop, &first(b"ACK"), (&own, &ack));
            }
            let lines = to.bye(from, &name, (bye.why, self.config.trusts(hop.remote.ip())));
            byes.extend(self.transactions.originate(now, hop, &first(b"BYE"), (&own, &lines)));
        }
        byes
    }

    /// Ends the call whose BYE this gateway refuses, because the way to the other end is unknown: its
    /// sender has hung up all the same, and the other end is told, if it can be reached.
    pub(super) fn end_refused(
        &mut self,
        now: Time,
        from: &Hop,
        (bye, routes): (&Message, &[Vec<u8>]),
        media: &mut impl Media,
    ) {
        let all = call_legs::of(&self.calls, bye, routes);
        let passes = call_legs::of_parties(&self.calls, bye, &all);
        let Some(&(id, side)) = passes.first() else { return };
        let is_of_end =
            self.calls.get(id).is_some_and(|call| call.sides[side].places.have(from.remote.ip()));
        if is_of_end && call_legs::are_up(&self.calls, &passes) {
            let whole = self.calls.whole(id);
            self.say_bye(now, whole, Bye::to(1 - side, Cause::HungUp), media);
            self.end(&passes, hung_up(&passes), media);
        }
    }

    /// Next hop of a request to one end of a call, without the proxies that lead to `past`.
    fn hop_past(
        &mut self,
        now: Time,
        side: &mut Side,
        past: Option<SocketAddr>,
        media: &impl Media,
    ) -> Option<Hop> {
        loop {
            let hop = self.hop_to(now, side, media)?;
            if past != Some(hop.remote) {
                return Some(hop);
            }
            let routes = &mut side.dialog.as_mut()?.way.as_mut()?.routes;
            if routes.is_empty() {
                return None;
            }
            routes.remove(0);
        }
    }

    /// Next hop of a request to one end of a call: the first proxy on its way or, without one, the
    /// flow that its messages come by.
    fn hop_to(&mut self, now: Time, side: &Side, media: &impl Media) -> Option<Hop> {
        let way = side.dialog.as_ref()?.way.as_ref()?;
        let flow = side.hop.filter(|hop| self.hops.is_usable(hop));
        let uri = match way.routes.first() {
            None if side.is_next_hop && flow.is_some() => return flow,
            None => &way.target[..],
            Some(route) => Address::parse(route)?.uri,
        };
        let found = self.hops.resolve(now, &self.config, uri, 0, |ip| media.local(ip));
        // A name that would have to be looked up first: the way that its messages come by will do.
        let hop = found.ok().map(|(hop, _)| hop).or(flow)?;
        (!self.is_own(&hop)).then_some(hop)
    }

    /// Ends the INVITE of an unanswered call, if it still waits for its answer: it is refused, and
    /// cancelled at the next hop. Returns it.
    fn abort(&mut self, now: Time, id: CallId) -> Vec<TransactionId> {
        let is_its = |passes: &CallLegs| passes.iter().any(|(its, _)| *its == id);
        let begun = self.pending.iter().filter(|(_, p)| p.kind == Kind::Initial);
        let all: Vec<TransactionId> =
            begun.filter(|(_, p)| is_its(&p.passes)).map(|(id, _)| *id).collect();
        for &id in &all {
            self.transactions.abort(now, id, (503, "Service Unavailable"));
        }
        all
    }
}
