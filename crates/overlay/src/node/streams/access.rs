//! Applies a new [`Access`](crate::node::Access) to existing streams.

use super::Forwarder;
use crate::session::stream::{End, Owner};
use crate::session::wire::stream::Reset;
use trunkline_base::Time;

impl Forwarder {
    /// Resets the streams that the node's changed rules don't allow any more, and notifies both
    /// ends: [`Reset::Forbidden`].
    pub(crate) fn break_off_forbidden(&mut self, now: Time) {
        let streams = self.streams.table.iter().filter(|end| !self.may_go_on(end));
        let forbidden: Vec<_> = streams.map(|end| end.key).collect();
        for key in forbidden {
            let id = self.streams.table.find(&key);
            if let Some(end) = id.and_then(|id| self.streams.break_off(now, id, Reset::Forbidden)) {
                self.reset_peer(now, &end, Reset::Forbidden);
            }
        }
    }

    /// Whether the rules would allow the stream to begin now: `to` if it was opened here, and
    /// `from` in any case. A stream that has ended is harmless.
    fn may_go_on(&self, end: &End) -> bool {
        let peer = end.key.peer;
        if end.is_over() {
            return true;
        }
        let is_sent = match end.owner {
            Owner::Session(id) if end.is_opener() => {
                let rights = self.sessions.client_of(id).and_then(|c| self.access.rights(c));
                rights.is_some_and(|rights| rights.to.has(peer))
            }
            _ => true,
        };
        is_sent && (peer == self.id || self.access.check_from(peer).is_ok())
    }
}
