//! Received messages and their transactions: new requests, messages that are absorbed, and responses
//! that pass.

use super::key::Key;
use super::{Hop, Incoming, Output, Phase, T4, TransactionId, Transactions, back};
use crate::message::{Message, Start};
use crate::reply;
use core::hash::{Hash as _, Hasher as _};
use core::time::Duration;
use std::hash::DefaultHasher;
use trunkline_base::Time;

/// Maximum number of ends that are told one by one that their 2xx came too late.
const MAX_UNWANTED: usize = 16;

impl Transactions {
    /// Processes a message without a fault that came from `from`. Some room is reserved for
    /// requests of established calls: `is_of_call` is called if there is no other room.
    pub fn receive(
        &mut self,
        now: Time,
        from: Hop,
        message: &Message,
        is_of_call: impl FnOnce() -> bool,
    ) -> Incoming {
        match message.start() {
            Start::Request { method, .. } => {
                self.on_request(now, from, (message, method), is_of_call)
            }
            Start::Response { code, .. } => self.on_response(now, message, code),
        }
    }

    fn on_request(
        &mut self,
        now: Time,
        from: Hop,
        (message, method): (&Message, &[u8]),
        is_of_call: impl FnOnce() -> bool,
    ) -> Incoming {
        let known = self.by_key.get(&Key::of(message)).copied();
        match (method, known) {
            (b"ACK", None) => Incoming::Ack,
            (b"ACK", Some(id)) => self.on_ack(now, id),
            (b"CANCEL", known) => {
                self.on_cancel(now, from, message, known);
                Incoming::Absorbed
            }
            (_, Some(id)) => {
                self.on_retransmission(id);
                Incoming::Absorbed
            }
            (_, None) if !self.has_room(from, is_of_call) => {
                let said = (503, "Service Unavailable");
                let bytes =
                    reply::response(message, from.remote, said, b"full", b"Retry-After: 5\r\n");
                self.outputs.push_back(Output { to: back(from, message), bytes });
                Incoming::Refused
            }
            (_, None) => Incoming::Request(self.open(now, from, message)),
        }
    }

    /// Whether there is room for a request. A quarter is reserved for requests of established
    /// calls, which may end them; and one host may take at most half of the room.
    fn has_room(&self, from: Hop, is_of_call: impl FnOnce() -> bool) -> bool {
        let its = self.by_source.get(&from.remote.ip()).copied().unwrap_or_default();
        let fits = |most: usize| !self.taken.is_all(most) && !its.is_all(most.div_ceil(2));
        fits(self.most - self.most / 4) || fits(self.most) && is_of_call()
    }

    /// Handles the ACK of a final response other than 2xx.
    fn on_ack(&mut self, now: Time, id: TransactionId) -> Incoming {
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        match t.phase {
            // A 2xx keeps its transaction for as long as others may arrive; its ACK has its own
            // branch, except from agents older than RFC 3261.
            Phase::Accepted => return Incoming::Ack,
            Phase::Completed => {
                t.phase = Phase::Confirmed;
                let wait = if t.upstream.connection.is_some() { Duration::ZERO } else { T4 };
                t.timers.confirmed(now + wait);
                self.arm(id);
            }
            _ => {}
        }
        Incoming::Absorbed
    }

    fn on_cancel(&mut self, now: Time, from: Hop, message: &Message, known: Option<TransactionId>) {
        // Only the requester may cancel, not just anyone who has read the request.
        let source = back(from, message).remote.ip();
        let is_its =
            |id: &TransactionId| self.all.get(id).is_some_and(|t| t.upstream.remote.ip() == source);
        let known = known.filter(is_its);
        let said = if known.is_some() { (200, "OK") } else { (481, "Transaction Does Not Exist") };
        let bytes = reply::response(message, from.remote, said, b"cancel", b"");
        self.outputs.push_back(Output { to: back(from, message), bytes });
        let Some(t) = known.and_then(|id| self.all.get_mut(&id)) else { return };
        if t.is_invite && !t.is_cancelled {
            t.is_cancelled = true;
            known.inspect(|&id| self.cancel(now, id));
        }
    }

    /// Answers a retransmitted request with the previous response.
    fn on_retransmission(&mut self, id: TransactionId) {
        let Some(t) = self.all.get(&id) else { return };
        // A 2xx is retransmitted by its sender until its ACK arrives (RFC 6026, 7.1).
        let silent = matches!(t.phase, Phase::Accepted | Phase::Confirmed) || t.response.is_empty();
        if !silent {
            self.outputs.push_back(Output { to: t.upstream, bytes: t.response.clone() });
        }
    }

    fn on_response(&mut self, now: Time, message: &Message, code: u16) -> Incoming {
        let branch = message.via().and_then(|via| via.branch()).unwrap_or_default();
        let Some(&id) = self.by_branch.get(branch) else { return Incoming::Absorbed };
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        let (Some((to, forwarded)), Some(cseq)) = (&t.downstream, message.cseq()) else {
            return Incoming::Absorbed;
        };
        let to = *to;
        let asked = forwarded.cseq().map(|cseq| (cseq.number, cseq.method));
        if asked != Some((cseq.number, cseq.method)) {
            // It may be the response to the CANCEL.
            if cseq.method == b"CANCEL" {
                t.timers.cancel_heard();
                self.arm(id);
            }
            return Incoming::Absorbed;
        }
        if t.is_invite && code >= 300 {
            let bytes = reply::ack(forwarded, message);
            self.outputs.push_back(Output { to, bytes });
        }
        if t.is_invite && matches!(t.phase, Phase::Completed | Phase::Confirmed) {
            return self.take_late_response(now, id, message, code);
        }
        self.take_response(now, id, code)
    }

    /// Handles a response to an INVITE whose requester has a final response other than 2xx already.
    fn take_late_response(
        &mut self,
        now: Time,
        id: TransactionId,
        message: &Message,
        code: u16,
    ) -> Incoming {
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        match code {
            // A CANCEL may only follow a provisional response (RFC 3261, 9.1).
            ..200 if t.is_abandoned => self.cancel_downstream(now, id),
            ..200 => {}
            _ => {
                t.is_abandoned = false;
                t.timers.cancel_heard();
                self.arm(id);
            }
        }
        if !(200..300).contains(&code) {
            return Incoming::Absorbed;
        }
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        let mut hasher = DefaultHasher::new();
        message.to().and_then(|to| to.tag()).unwrap_or_default().hash(&mut hasher);
        let tag = hasher.finish();
        let is_first = t.unwanted.len() < MAX_UNWANTED && !t.unwanted.contains(&tag);
        if is_first {
            t.unwanted.push(tag);
        }
        Incoming::Unwanted(id, is_first)
    }

    fn take_response(&mut self, now: Time, id: TransactionId, code: u16) -> Incoming {
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        if t.is_own && code >= 200 {
            self.close(id);
            return Incoming::Absorbed;
        }
        let passes = match (t.phase, code) {
            (Phase::Calling | Phase::Proceeding, 100..=199) => {
                t.phase = Phase::Proceeding;
                t.timers.provisional(now, t.is_invite, code);
                let passes = code > 100 && !t.is_own;
                if t.is_cancelled {
                    self.cancel(now, id);
                }
                passes
            }
            (Phase::Calling | Phase::Proceeding, _) => {
                t.timers.answered(now);
                true
            }
            (Phase::Accepted, 200..=299) => true,
            _ => false,
        };
        self.arm(id);
        if passes { Incoming::Response(id) } else { Incoming::Absorbed }
    }
}
