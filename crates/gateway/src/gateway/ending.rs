//! Calls that the gateway ends itself: both ends are told.

use super::{CallOutcome, Gateway, Kind};
use crate::call_legs::CallLegs;
use crate::calls::{CallId, Side};
use crate::dialog::Cause;
use crate::media::Media;
use trunkline_base::Time;
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
            self.tell(now, id, (200, "ended by the operator"), media);
            self.end(&vec![(id, 0)], CallOutcome::Operator, media);
        }
        all.len()
    }

    /// Tells the ends of all calls that the gateway stops.
    pub(super) fn tell_all(&mut self, now: Time, media: &mut impl Media) {
        let whole = self.calls.iter().filter(|(_, call)| call.part_of.is_none());
        let all: Vec<CallId> = whole.map(|(id, _)| id).collect();
        for id in all {
            self.tell(now, id, (503, "the gateway stops"), media);
        }
    }

    /// Whether all ends of calls that this gateway has ended have answered, or can't be waited for.
    pub fn is_quiet(&self) -> bool {
        !self.transactions.has_own()
    }

    fn tell(&mut self, now: Time, id: CallId, why: Cause, media: &mut impl Media) {
        match self.calls.get(id).is_some_and(|call| call.answered.is_some()) {
            true => self.say_bye(now, id, why, media),
            false => self.abort(now, id),
        }
    }

    /// Sends a BYE to both ends of an answered call, each in the name of the other.
    pub(super) fn say_bye(&mut self, now: Time, id: CallId, why: Cause, media: &mut impl Media) {
        let last = self.calls.last_part(id);
        let Some(call) = self.calls.get(id).filter(|call| call.part_of.is_none()) else { return };
        let name = call.name.clone();
        let caller = call.sides[0].clone();
        let Some(callee) = self.calls.get(last).map(|call| call.sides[1].clone()) else { return };
        let (Some(mut a), Some(mut b)) = (caller.dialog.clone(), callee.dialog.clone()) else {
            return;
        };
        let to_caller = (a.target.clone(), a.bye(&mut b, &name, why));
        let to_callee = (b.target.clone(), b.bye(&mut a, &name, why));
        for (side, (target, lines)) in [(caller, to_caller), (callee, to_callee)] {
            let Some(hop) = self.hop_to(now, &side, media) else { continue };
            let first = [b"BYE ", &target[..], b" SIP/2.0"].concat();
            let own = self.own_hop(&hop);
            self.hops.used(&hop);
            self.transactions.originate(now, hop, &first, (&own, &lines));
        }
    }

    /// Next hop of a request to one end of a call: the first proxy on its way or, without one, the
    /// flow that its messages come by.
    fn hop_to(&mut self, now: Time, side: &Side, media: &impl Media) -> Option<Hop> {
        let dialog = side.dialog.as_ref()?;
        let flow = side.hop.filter(|hop| self.hops.is_usable(hop));
        let uri = match dialog.routes.first() {
            None if side.is_next_hop && flow.is_some() => return flow,
            None => &dialog.target[..],
            Some(route) => Address::parse(route)?.uri,
        };
        let found = self.hops.resolve(now, &self.config, uri, 0, |ip| media.local(ip));
        // A name that would have to be looked up first: the way that its messages come by will do.
        let hop = found.ok().map(|(hop, _)| hop).or(flow)?;
        (!self.is_own(&hop)).then_some(hop)
    }

    /// Ends the INVITE of an unanswered call: it is refused, and cancelled at the next hop.
    fn abort(&mut self, now: Time, id: CallId) {
        let is_its = |passes: &CallLegs| passes.iter().any(|(its, _)| *its == id);
        let begun = self.pending.iter().filter(|(_, p)| p.kind == Kind::Initial);
        let all: Vec<TransactionId> =
            begun.filter(|(_, p)| is_its(&p.passes)).map(|(id, _)| *id).collect();
        for id in all {
            self.transactions.abort(now, id, (503, "Service Unavailable"));
        }
    }
}
