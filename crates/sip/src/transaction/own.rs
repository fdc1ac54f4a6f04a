//! Requests of this proxy's own, whose responses go nowhere.

use super::{Hop, Output, Phase, Transaction, TransactionId, Transactions};
use crate::message::Message;
use trunkline_base::Time;

impl Transactions {
    /// Sends a request of this proxy's own, other than INVITE: its first line, and the lines behind
    /// the Via, which is `own` with a branch. It is retransmitted until it is answered. Returns `None`
    /// if it can't be parsed, or has no room.
    pub fn originate(
        &mut self,
        now: Time,
        to: Hop,
        first: &[u8],
        (own, lines): (&str, &[u8]),
    ) -> Option<TransactionId> {
        let branch = self.branch();
        let bytes = [first, b"\r\n", &via(own, &branch), lines].concat();
        let message = Message::parse(&bytes).ok()?;
        let id = self.open(now, to, &message);
        let t = self.all.get_mut(&id)?;
        self.by_branch.remove(&t.branch);
        self.by_branch.insert(branch.clone(), id);
        (t.branch, t.is_own) = (branch, true);
        self.forward(now, id, to, bytes).then_some(id)
    }

    /// Sends the ACK of an unwanted 2xx to `to`, as [`Transactions::originate`] sends other requests,
    /// but only once: it comes again with each retransmission of the 2xx.
    pub fn acknowledge(&mut self, to: Hop, first: &[u8], (own, lines): (&str, &[u8])) {
        let bytes = [first, b"\r\n", &via(own, &self.branch()), lines].concat();
        if Message::parse(&bytes).is_ok() {
            self.outputs.push_back(Output { to, bytes });
        }
    }

    /// Whether this proxy waits for final responses that are for itself: to its own requests, and to
    /// INVITEs that it has refused and cancelled.
    pub fn awaits_some(&self) -> bool {
        self.all.values().any(Transaction::awaits_response)
    }

    /// Whether this proxy waits for the final response to this request, as for
    /// [`Transactions::awaits_some`].
    pub fn awaits(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(Transaction::awaits_response)
    }

    /// Whether a request of this proxy's own could not be sent.
    pub fn has_failed(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.is_own && t.phase == Phase::Completed)
    }

    /// Whether an INVITE has been cancelled downstream.
    pub fn has_cancelled(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.cancel.is_some())
    }
}

/// The Via line of a request of this proxy's own.
fn via(own: &str, branch: &[u8]) -> Vec<u8> {
    [b"Via: ", own.as_bytes(), b";branch=", branch, b"\r\n"].concat()
}
