//! Notifies applications of the state of their streams, and delivers the data.

use crate::node::local::say;
use crate::node::{Forwarder, SendOutcome, Sink};
use crate::session::SessionId;
use crate::session::stream::{End, Key, Owner, StreamId};
use crate::session::wire::ToClient;
use crate::session::wire::stream::{Notice, Reset};
use core::time::Duration;
use trunkline_base::Time;

/// First and longest interval between tries to deliver to an application that doesn't read; it
/// doubles in between.
pub(super) const NOT_READ: Duration = Duration::from_millis(5);
const LONG_NOT_READ: Duration = Duration::from_millis(160);

impl Forwarder {
    /// Delivers all due notifications and received data of streams to applications.
    pub(in crate::node) fn tell_streams(&mut self, now: Time, sink: &mut impl Sink) {
        let due = self.streams.tell_at <= now;
        self.streams.tell_at = Time::NEVER;
        let (mut left, mut told) = (false, false);
        for _ in 0..self.streams.broken.len() {
            let Some((id, why)) = self.streams.broken.pop_front() else { break };
            let notice = ToClient::Stream(Notice::Reset(why));
            if say(sink, id, &notice, &[]) == SendOutcome::Backpressure {
                self.streams.broken.push_back((id, why));
                left = true;
            }
        }
        for _ in 0..self.streams.table.tellers() {
            let Some(id) = self.streams.table.next_to_tell() else { break };
            match self.tell_stream(now, id, sink) {
                Ok(SendOutcome::Accepted) => told = true,
                Ok(SendOutcome::Backpressure) => {
                    self.streams.table.will_tell(id);
                    left = true;
                }
                Err(why) => {
                    if let Some(end) = self.streams.break_off(now, id, why) {
                        self.reset_peer(now, &end, Reset::Full);
                    }
                    left = true;
                }
            }
        }
        if told || !left {
            self.streams.patience = NOT_READ;
        } else if due {
            self.streams.patience = (2 * self.streams.patience).min(LONG_NOT_READ);
        }
        if left {
            self.streams.tell_at = now + self.streams.patience;
        }
    }

    fn tell_stream(
        &mut self,
        now: Time,
        id: StreamId,
        sink: &mut impl Sink,
    ) -> Result<SendOutcome, Reset> {
        let node = self.id;
        let listener = self.streams.table.get(id).and_then(|end| match end.owner {
            Owner::Backlog { .. } => self.streams.table.listener(end.key.port).map(|l| l.session),
            _ => None,
        });
        let Some((end, mut memory)) = self.streams.table.get_mut(id) else {
            return Ok(SendOutcome::Accepted);
        };
        let key = end.key;
        let session = match (end.owner, listener) {
            (Owner::Session(session), _) if end.is_open() => session,
            (Owner::Backlog { token }, Some(listener)) if !end.told_open => {
                let (from, port, messages) = (key.peer, key.peer_port, end.messages);
                let notice = Notice::Incoming { token, from, port, messages };
                let told = say(sink, listener, &ToClient::Stream(notice), &[]);
                end.told_open = told == SendOutcome::Accepted;
                return Ok(told);
            }
            _ => return Ok(SendOutcome::Accepted),
        };
        end.credit_owed = end.credit_owed.saturating_add(end.tx.grant(&mut memory));
        if !end.told_open {
            if end.credit_owed == 0 && !end.tx.is_shut() {
                return Err(Reset::NoRoom);
            }
            let Key { peer, peer_port, port } = key;
            let (messages, credit) = (end.messages, end.credit_owed);
            let notice = Notice::Connected { node, port, peer, peer_port, messages, credit };
            if say(sink, session, &ToClient::Stream(notice), &[]) == SendOutcome::Backpressure {
                return Ok(SendOutcome::Backpressure);
            }
            (end.told_open, end.credit_owed) = (true, 0);
        }
        let done = hand_over(now, session, end, sink);
        end.note_read(&mut memory);
        // The data that was read makes room, and the other end may need an update of the window.
        self.streams.table.will_send(id);
        self.streams.table.arm(id);
        Ok(done)
    }
}

/// Delivers the data of an open stream to its application, and then its notifications: the end of
/// the other direction, credit, and the end of the stream. `Backpressure` if the application doesn't accept
/// all of that now.
fn hand_over(now: Time, session: SessionId, end: &mut End, sink: &mut impl Sink) -> SendOutcome {
    loop {
        let bytes = end.rx.readable();
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        let notice = ToClient::Stream(Notice::Data(bytes));
        if say(sink, session, &notice, bytes) == SendOutcome::Backpressure {
            return SendOutcome::Backpressure;
        }
        end.rx.took(now, len);
    }
    if end.rx.is_at_end() && !end.told_end {
        if say(sink, session, &ToClient::Stream(Notice::Shut), &[]) == SendOutcome::Backpressure {
            return SendOutcome::Backpressure;
        }
        end.told_end = true;
    }
    if end.credit_owed > 0 {
        let notice = Notice::Credit(end.credit_owed);
        if say(sink, session, &ToClient::Stream(notice), &[]) == SendOutcome::Backpressure {
            return SendOutcome::Backpressure;
        }
        end.credit_owed = 0;
    }
    if end.told_end && end.is_over() && !end.told_finished {
        if say(sink, session, &ToClient::Stream(Notice::Finished), &[]) == SendOutcome::Backpressure
        {
            return SendOutcome::Backpressure;
        }
        end.told_finished = true;
    }
    SendOutcome::Accepted
}
