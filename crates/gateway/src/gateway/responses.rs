//! Forwarding of responses, and of the ACK that completes an INVITE.

use super::{CallOutcome, Event, Gateway, Kind, Pending};
use crate::call_legs::{self, CallLegs, HopEnds};
use crate::calls::{CallId, DescriptionError, HangingUp, OfferAnswerState, OfferOutcome, shown};
use crate::dialog::{DialogEnd, session_interval};
use crate::hops::NoHop;
use crate::media::Media;
use crate::party_addresses::PartyAddresses;
use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use trunkline_base::Time;
use trunkline_sip::sdp::rejection;
use trunkline_sip::transaction::{Hop, TransactionId};
use trunkline_sip::value::{Address, Uri};
use trunkline_sip::{Edit, Message, Name, Part, Start};

fn hash(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

impl Gateway {
    /// Rewrites the description of a message that can't be refused.
    fn describe(
        &mut self,
        edit: &mut Edit<'_>,
        part: Part<'_>,
        passes: &CallLegs,
        between: &HopEnds<'_>,
        media: &mut impl Media,
    ) {
        if passes.is_empty() {
            return edit.set_part(part.bytes, &call_legs::stripped(part.bytes));
        }
        let parts = (&self.config, media);
        match call_legs::body(&mut self.calls, passes, part, between, parts) {
            Ok((body, why)) => {
                edit.set_part(part.bytes, &body);
                why.inspect(|why| self.complain(passes, between, *why));
            }
            // Left in place, a description that only other agents understand would let media bypass
            // this gateway, to any address it names.
            Err(why) => {
                match why {
                    DescriptionError::Unreadable => {
                        let body = edit.message().body();
                        edit.set_part(body, b"");
                    }
                    _ => edit.set_part(part.bytes, &rejection(part.bytes)),
                }
                self.complain(passes, between, why);
            }
        }
    }

    /// Notes that the 2xx carried the offer, so that its ACK carries the answer.
    fn await_ack(&mut self, passes: &CallLegs, message: &Message) {
        for (id, _) in passes {
            if let Some(call) = self.calls.get_mut(*id) {
                call.awaits = message.cseq().map(|cseq| cseq.number);
            }
        }
    }

    /// Forwards the ACK of a 2xx.
    pub(super) fn ack(&mut self, now: Time, from: Hop, message: &Message, media: &mut impl Media) {
        let Ok(routed) = self.route(message) else { return };
        let all = call_legs::of(&self.calls, message, &routed.own);
        let mut passes = call_legs::of_parties(&self.calls, message, &all);
        let down =
            match self.next_hop(now, &from, message, (&routed, &all, message.bytes().len()), media)
            {
                Ok(next) => next.hop,
                // The ACK comes again with the next retransmission of the 2xx.
                Err(NoHop::Unknown(name)) => return self.look_up_for_ack(name, &from),
                Err(_) => return,
            };
        self.hops.used(&down);
        if self.is_own(&down) {
            return;
        }
        if !call_legs::are_between(&self.calls, &passes, from.remote.ip(), down.remote.ip()) {
            passes.clear();
        }
        let mut edit = Edit::new(message);
        routed.apply(&mut edit);
        let number = message.cseq().map(|cseq| cseq.number);
        let mut is_awaited = !passes.is_empty();
        for (id, _) in &passes {
            let Some(call) = self.calls.get_mut(*id) else { continue };
            call.is_acknowledged = true;
            is_awaited &= number.is_some() && call.awaits == number;
            call.awaits = call.awaits.filter(|_| !is_awaited);
        }
        if let Some(part) = call_legs::description(message) {
            let meaning =
                if is_awaited { OfferAnswerState::Holds } else { OfferAnswerState::Nothing };
            let between = HopEnds {
                from: &from,
                to: &down,
                meaning,
                is_answer: is_awaited,
                begins: false,
                answers: None,
            };
            self.describe(&mut edit, part, &passes, &between, media);
            self.settle(&passes, None, OfferOutcome::Agreed, media);
        }
        let own = self.own_hop(&down);
        self.transactions.stamp_ack(&mut edit, from.remote, &own);
        self.transactions.send(down, edit.finish());
    }

    pub(super) fn response(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        media: &mut impl Media,
    ) {
        let Some(pending) = self.pending.get(&id).cloned() else { return };
        // No Via is left to forward it to (RFC 3261, 16.7, 3).
        if message.list(Name::Via).nth(1).is_none() {
            return;
        }
        let Start::Response { code, .. } = message.start() else { return };
        let mut edit = Edit::new(message);
        edit.pop(Name::Via, 1);
        let answering: CallLegs =
            pending.passes.iter().rev().map(|&(call, side)| (call, 1 - side)).collect();
        call_legs::heard(&mut self.calls, &answering, now);
        let tag = message.to().and_then(|to| to.tag());
        let described = call_legs::description(message);
        let is_described = described.is_some();
        let said = described.map(|part| hash(part.bytes)).filter(|_| code < 200);
        self.learn(&pending, &answering, message, code);
        if pending.method == b"REGISTER" && (200..300).contains(&code) {
            self.note_registration(now, &pending, message);
        }
        if let Some(part) = described {
            // The response belongs to the hop that the request went to, whatever its source
            // address.
            let from = Hop { remote: pending.down.remote, ..from };
            let repeats = |&(call, _): &(CallId, usize)| {
                tag.is_some_and(|tag| self.calls.repeats(call, tag, said))
            };
            let meaning = match (&pending.method[..], code) {
                _ if pending.is_accepted || answering.iter().any(repeats) => {
                    OfferAnswerState::Nothing
                }
                (b"INVITE", ..200) => OfferAnswerState::Offers(id),
                (b"INVITE" | b"UPDATE" | b"PRACK", 200..300) => OfferAnswerState::Holds,
                _ => OfferAnswerState::Nothing,
            };
            let between = HopEnds {
                from: &from,
                to: &pending.up,
                meaning,
                is_answer: pending.is_described,
                begins: false,
                answers: tag.filter(|_| pending.kind == Kind::Initial),
            };
            self.describe(&mut edit, part, &answering, &between, media);
            self.note_node(pending.down.remote.ip(), &answering);
        }
        if is_described && !pending.is_described && (200..300).contains(&code) {
            self.await_ack(&answering, message);
        }
        let early = tag.filter(|_| pending.kind == Kind::Initial && code < 300);
        if code >= 200 {
            self.choose_early(&answering, early, is_described);
        }
        let has_expired = self.transactions.has_expired(id);
        self.progress(now, (&pending, has_expired), code, tag, media);
        match code {
            ..200 if is_described => self.settle(&answering, Some(id), OfferOutcome::Early, media),
            ..200 => {}
            200..300 => self.settle(&answering, Some(id), OfferOutcome::Agreed, media),
            300.. => self.settle(&answering, Some(id), OfferOutcome::Refused, media),
        }
        if is_described && code < 300 {
            self.keep_early(&answering, message, said);
        }
        self.transactions.respond(now, id, code, edit.finish());
        if code >= 200 && pending.method != b"INVITE" {
            self.pending.remove(&id);
        } else if let Some(pending) = self.pending.get_mut(&id) {
            pending.is_accepted |= (200..300).contains(&code);
        }
    }

    /// Updates the addresses of a call's ends from their messages. A phone may now use a different
    /// flow, because its connection is new or its NAT has assigned another port.
    fn learn(&mut self, pending: &Pending, answering: &CallLegs, message: &Message, code: u16) {
        let is_new = !pending.is_accepted && (101..300).contains(&code);
        let (Some(&(first, side)), Some(&(last, end)), true) =
            (pending.passes.first(), answering.first(), is_new)
        else {
            return;
        };
        let places = PartyAddresses::of(message, pending.down.remote.ip(), &self.config);
        let is_direct = self.is_direct(message);
        if let Some(call) = self.calls.get_mut(last) {
            if pending.kind == Kind::Initial {
                call.sides[end].is_direct |= is_direct;
            }
            let theirs = &mut call.sides[end].places;
            match (call.answered, code) {
                // If several ends rang, only the one that answers remains a party.
                (None, 200..) if pending.kind == Kind::Initial => *theirs = places,
                (None, _) | (_, 200..) => theirs.join(&places),
                _ => {}
            }
        }
        if code >= 200 {
            self.learn_dialog(pending, answering, message);
        }
        if code >= 200
            && let Some(call) = self.calls.get_mut(first)
        {
            let asked = &mut call.sides[side];
            asked.places.join(&pending.places);
            if asked.is_next_hop && pending.is_next_hop {
                asked.hop = Some(pending.up);
            }
        }
    }

    /// Notes how the end that accepts a request is reached, and how often the call is refreshed.
    fn learn_dialog(&mut self, pending: &Pending, answering: &CallLegs, message: &Message) {
        let is_invite = matches!(pending.kind, Kind::Initial | Kind::Resuming);
        let config = &self.config;
        let is_own = |uri: &Uri<'_>| config.is_own(uri.host, uri.port, uri.secure);
        let refreshes = [&b"INVITE"[..], b"UPDATE"].contains(&&pending.method[..]);
        for &(id, side) in answering {
            let Some(call) = self.calls.get_mut(id) else { continue };
            if is_invite {
                call.sides[side].dialog = DialogEnd::of_response(message, is_own);
            } else if let Some(dialog) = &mut call.sides[side].dialog {
                dialog.update(message, false);
            }
            if refreshes {
                call.session = session_interval(message).or(call.session);
            }
        }
    }

    /// Whether no proxy beyond this gateway has recorded itself in a response.
    fn is_direct(&self, message: &Message) -> bool {
        let first = message.list(Name::RecordRoute).next();
        first.is_none_or(|route| {
            let uri = Address::parse(route).and_then(|address| Uri::parse(address.uri));
            uri.is_some_and(|uri| self.config.is_own(uri.host, uri.port, uri.secure))
        })
    }

    /// Updates the calls that a response belongs to.
    fn progress(
        &mut self,
        now: Time,
        (pending, has_expired): (&Pending, bool),
        code: u16,
        tag: Option<&[u8]>,
        media: &mut impl Media,
    ) {
        match (pending.kind, code) {
            (Kind::Initial, 101..300) => {
                for &(id, side) in &pending.passes {
                    let Some(call) = self.calls.get_mut(id) else { continue };
                    if call.answered.is_some() {
                        continue;
                    }
                    call.sides[1 - side].tag = tag.map(<[u8]>::to_vec);
                    if code >= 200 {
                        call.answered = Some(now);
                        self.stats.answered += u64::from(call.part_of.is_none());
                        self.calls.choose_part(id);
                    }
                }
            }
            (Kind::Initial, 401 | 407) if self.may_be_repeated(pending) => {
                for (id, _) in &pending.passes {
                    let Some(call) = self.calls.get_mut(*id) else { continue };
                    call.challenged = Some((now, code));
                }
            }
            (Kind::Initial | Kind::Resuming, 300..) => {
                let why =
                    if has_expired { CallOutcome::Unanswered } else { CallOutcome::Refused(code) };
                self.end_unanswered(&pending.passes, why, media);
            }
            (Kind::Bye, 200..300) => self.end(&pending.passes, pending.hung_up(), media),
            // It is repeated with credentials, unless it is another gateway's.
            (Kind::Bye, 401 | 407) if self.is_of_end(pending) && pending.told.is_none() => {
                let by = pending.down.remote;
                for &(id, side) in &pending.passes {
                    let Some(call) = self.calls.get_mut(id) else { continue };
                    call.hanging_up = call.hanging_up.or(Some(HangingUp { at: now, side, by }));
                }
            }
            // Whatever the other end answers, the sender has hung up (RFC 3261, 15.1.1).
            (Kind::Bye, 300..) if self.is_of_end(pending) => {
                if code != 481 {
                    self.tell_past(now, &pending.passes, pending.down.remote, media);
                }
                self.end(&pending.passes, pending.hung_up(), media);
            }
            // The other end is known only now.
            (Kind::Resuming, 200..300) => {
                for &(id, side) in &pending.passes {
                    if let Some(call) = self.calls.get_mut(id)
                        && call.sides[1 - side].tag.is_none()
                    {
                        call.sides[1 - side].tag = tag.map(<[u8]>::to_vec);
                        call.answered = Some(now);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a call whose INVITE is challenged is kept until its caller repeats it: if it is not a
    /// part of another one, and not too many are.
    fn may_be_repeated(&self, pending: &Pending) -> bool {
        let is_whole = |id| self.calls.get(id).is_some_and(|c| c.part_of.is_none());
        let is_first = pending.passes.iter().all(|(id, _)| is_whole(*id));
        is_first && self.calls.count_challenged() < self.config.max_calls / 4
    }

    pub(super) fn settle(
        &mut self,
        passes: &[(CallId, usize)],
        by: Option<TransactionId>,
        verdict: OfferOutcome,
        media: &mut impl Media,
    ) {
        for &(id, _) in passes {
            let is_plain = self.calls.settle(id, by, verdict, (&self.config, &mut *media));
            if let Some(call) =
                self.calls.get_mut(id).filter(|call| is_plain && !call.bypasses_overlay)
                && call.part_of.is_none()
                && call.onward.is_none()
            {
                call.bypasses_overlay = true;
                self.events.push_back(Event::Plain(id));
            }
        }
    }

    /// Keeps the description that one of several ringing ends has agreed to.
    fn keep_early(&mut self, answering: &[(CallId, usize)], message: &Message, said: Option<u64>) {
        for &(id, side) in answering {
            let end = if side == 1 { message.to() } else { message.from() };
            if let Some(tag) = end.and_then(|end| end.tag()) {
                self.calls.keep_early(id, 1, tag, said);
            }
        }
    }

    fn choose_early(&mut self, passes: &[(CallId, usize)], tag: Option<&[u8]>, is_described: bool) {
        let Some(tag) = tag else { return };
        for &(id, side) in passes {
            self.calls.choose_early(id, side, tag, is_described);
        }
    }

    fn complain(
        &mut self,
        passes: &[(CallId, usize)],
        between: &HopEnds<'_>,
        why: DescriptionError,
    ) {
        let call = passes.first().and_then(|(id, _)| self.calls.get(*id));
        let name = call.map(|call| shown(&call.name));
        let from = between.from.remote.ip();
        self.events.push_back(Event::Refused(name.unwrap_or_default(), from, why));
    }
}
