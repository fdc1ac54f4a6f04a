//! Responses on their way back, and the ACK that ends a call's beginning.

use super::{Event, Gateway, Kind, Pending};
use crate::calls::{CallId, Unpassable};
use crate::media::Media;
use crate::passes::{self, Between, Passes};
use trunkline_base::Time;
use trunkline_sip::transaction::{Hop, TransactionId};
use trunkline_sip::{Edit, Message, Name, Start};

impl Gateway {
    /// The ACK of a 2xx.
    pub(super) fn ack(&mut self, now: Time, from: Hop, message: &Message, media: &mut impl Media) {
        let Ok(routed) = self.route(message) else { return };
        let passes = passes::of(&self.calls, message, &routed.own);
        let found = self.next_hop(now, &from, message, &routed, &passes);
        let Ok((down, _)) = found else { return };
        if self.config.sockets.iter().any(|socket| socket.address == down.remote) {
            return;
        }
        let mut edit = Edit::new(message);
        routed.apply(&mut edit);
        if !passes.is_empty() && passes::is_description(message) {
            let between = Between {
                config: &self.config,
                from: &from,
                to: &down,
                is_offer: false,
                answers: None,
            };
            match passes::body(&mut self.calls, &passes, message.body(), &between, media) {
                Ok((body, why)) => {
                    edit.set_body(&body);
                    why.inspect(|why| self.complain(&passes, *why));
                }
                Err(why) => self.complain(&passes, why),
            }
            self.settle(&passes, true, media);
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
        let Start::Response { code, .. } = message.start() else { return };
        let mut edit = Edit::new(message);
        edit.pop(Name::Via, 1);
        let answering: Passes =
            pending.passes.iter().rev().map(|&(call, side)| (call, 1 - side)).collect();
        passes::heard(&mut self.calls, &answering, now);
        let tag = message.to().and_then(|to| to.tag());
        if !answering.is_empty() && passes::is_description(message) {
            // It came from where the request went, whatever address it has.
            let down = Hop { remote: pending.down.remote, ..from };
            let between = Between {
                config: &self.config,
                from: &down,
                to: &pending.up,
                is_offer: false,
                answers: tag.filter(|_| pending.kind == Kind::Initial),
            };
            match passes::body(&mut self.calls, &answering, message.body(), &between, media) {
                Ok((body, why)) => {
                    edit.set_body(&body);
                    why.inspect(|why| self.complain(&answering, *why));
                }
                Err(why) => self.complain(&answering, why),
            }
        }
        self.progress(now, &pending, code, tag, media);
        let is_described = passes::is_description(message);
        match code {
            ..200 if is_described => self.settle(&answering, true, media),
            200..300 if matches!(&pending.method[..], b"INVITE" | b"UPDATE" | b"PRACK") => {
                self.settle(&answering, true, media);
            }
            300.. => self.settle(&answering, false, media),
            _ => {}
        }
        self.transactions.respond(now, id, code, edit.finish());
        if code >= 200 && pending.method != b"INVITE" {
            self.pending.remove(&id);
        }
    }

    /// What a response makes of the calls it belongs to.
    fn progress(
        &mut self,
        now: Time,
        pending: &Pending,
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
                        self.stats.answered += 1;
                        self.events.push_back(Event::Answered(id));
                    }
                }
            }
            (Kind::Initial, 300..) => self.end_unanswered(&pending.passes, media),
            (Kind::Bye, 200..) => self.end(&pending.passes, media),
            // It began before this gateway was started: who else is in it is known now.
            (Kind::Other, 200..300) if pending.method == b"INVITE" => {
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

    pub(super) fn settle(
        &mut self,
        passes: &[(CallId, usize)],
        is_agreed: bool,
        media: &mut impl Media,
    ) {
        for &(id, _) in passes {
            let is_plain = self.calls.settle(id, is_agreed, media);
            if let Some(call) = self.calls.get_mut(id).filter(|call| is_plain && !call.is_plain) {
                call.is_plain = true;
                self.events.push_back(Event::Plain(id));
            }
        }
    }

    fn complain(&mut self, passes: &[(CallId, usize)], why: Unpassable) {
        let name = passes.first().and_then(|(id, _)| self.calls.get(*id)).map(|c| c.name.clone());
        self.events.push_back(Event::Refused(name.unwrap_or_default(), why));
    }
}
