//! Requests that wait for the name service.

use super::refusal::{RefusedRequest, overloaded};
use super::{Event, Gateway};
use crate::hops::Found;
use crate::media::Media;
use core::net::IpAddr;
use trunkline_base::Time;
use trunkline_sip::Message;
use trunkline_sip::transaction::{Hop, TransactionId};

/// Maximum number of requests that wait for the name service at a time.
const WAITING: usize = 512;

/// A request that waits for a name to be resolved.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    source: IpAddr,
    /// `None` for an ACK, which is retransmitted anyway.
    request: Option<(TransactionId, Hop, Message)>,
}

impl Gateway {
    /// Queues a request until the address of `name` is known.
    pub(super) fn wait(
        &mut self,
        name: String,
        (id, from, message): (TransactionId, Hop, Message),
    ) -> Result<(), RefusedRequest> {
        let request = Some((id, from, message));
        let waiter = Waiter { source: from.remote.ip(), request };
        if self.look_up(name, waiter) {
            Ok(())
        } else {
            Err(overloaded("too many requests wait for the name service"))
        }
    }

    /// Looks up a name for an ACK. The ACK is not kept, because it comes again with the next
    /// retransmission of the 2xx.
    pub(super) fn look_up_for_ack(&mut self, name: String, from: &Hop) {
        if !self.waiting.contains_key(&name) {
            self.look_up(name, Waiter { source: from.remote.ip(), request: None });
        }
    }

    /// Queues a waiter; false if too many wait. An untrusted source may take no more slots than it
    /// leaves to others.
    fn look_up(&mut self, name: String, waiter: Waiter) -> bool {
        let (mut all, mut its) = (0, 0);
        for other in self.waiting.values().flatten() {
            all += 1;
            its += usize::from(other.source == waiter.source);
        }
        let share = if self.config.trusts(waiter.source) { all } else { all + its };
        if share >= WAITING {
            return false;
        }
        if !self.waiting.contains_key(&name) {
            self.events.push_back(Event::LookUp(name.clone()));
        }
        self.waiting.entry(name).or_default().push(waiter);
        true
    }

    /// Processes the name service's answer for `name`, or its failure to answer.
    pub fn named(&mut self, now: Time, name: &str, found: Found, media: &mut impl Media) {
        self.hops.named(now, name, found);
        let waiters = self.waiting.remove(name).unwrap_or_default();
        for (id, from, message) in waiters.into_iter().filter_map(|waiter| waiter.request) {
            // The sender may have given up meanwhile.
            if self.transactions.is_new(id) {
                self.request(now, id, from, &message, media);
            }
        }
    }
}
