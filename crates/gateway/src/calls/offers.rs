//! Offers and answers (RFC 3264): an offer takes effect when the other end accepts it; if it is
//! refused, the earlier state is restored.

use super::{CallId, Calls, Leg, SideId, Stream, join};
use crate::config::Config;
use crate::media::{Flow, Media, Remote};
use trunkline_sip::transaction::TransactionId;

/// Maximum number of ends whose early answers are kept: no more than these ring at a time.
const MAX_EARLY: usize = 16;

/// Maximum number of a call's offers that can still be undone: no more than these are pending at a
/// time.
const MAX_OFFERS: usize = 4;

/// Change of a leg that takes effect if the other end accepts the offer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    To(Remote, Flow),
    Close,
}

/// Progress of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferOutcome {
    /// Answered provisionally; it may still be refused (RFC 6141, 3.1).
    Early,
    /// Accepted by the other end.
    Agreed,
    /// Refused: the earlier state is restored.
    Refused,
}

/// The streams of a call as they were before a request offered a change.
#[derive(Clone, Debug)]
pub(super) struct Before {
    by: TransactionId,
    streams: Vec<Option<Stream>>,
}

/// The legs towards one of several ringing ends, as it described itself. In a call's list the last
/// entry is the end that answered last, and its description is in effect.
#[derive(Clone, Debug)]
pub(super) struct Early {
    tag: Vec<u8>,
    legs: Vec<Option<Leg>>,
    /// Hash of the description in its provisional response, to detect retransmissions.
    said: Option<u64>,
}

impl Calls {
    /// Saves the streams, to be restored if the offer of `by` is refused.
    pub(super) fn remember(&mut self, id: CallId, by: TransactionId) {
        let Some(call) = self.all.get_mut(&id) else { return };
        if call.before.iter().all(|before| before.by != by) {
            if call.before.len() == MAX_OFFERS {
                call.before.remove(0);
            }
            call.before.push(Before { by, streams: call.streams.clone() });
        }
    }

    /// Applies or undoes the offer of request `by`. Returns true if media of an answered call then
    /// bypass the overlay, although the other gateway was offered a virtual port.
    pub fn settle(
        &mut self,
        id: CallId,
        by: Option<TransactionId>,
        verdict: OfferOutcome,
        (config, media): (&Config, &mut impl Media),
    ) -> bool {
        let mut changes = Vec::new();
        let Some(call) = self.all.get_mut(&id) else { return false };
        for (n, stream) in call.streams.iter_mut().enumerate() {
            for (side, leg) in stream.iter_mut().flat_map(|s| s.legs.iter_mut().enumerate()) {
                let is_due = |(whose, change): &mut (TransactionId, Change)| {
                    // A released port can't be reclaimed, so closing waits for the final answer.
                    let waits = verdict == OfferOutcome::Early && matches!(change, Change::Close);
                    Some(*whose) == by && !waits
                };
                if let Some((_, change)) = leg.pending.take_if(is_due) {
                    changes.push((n, side, change));
                }
            }
        }
        let has_changed = !changes.is_empty();
        if verdict == OfferOutcome::Refused {
            self.go_back(id, by, media);
        } else {
            for (n, side, change) in changes {
                self.change((id, n, side), change, config, media);
            }
        }
        let Some(call) = self.all.get_mut(&id) else { return false };
        if verdict == OfferOutcome::Agreed {
            // Undoing any other offer would undo this change, too.
            call.before.retain(|before| Some(before.by) != by && !has_changed);
        }
        let mut is_plain = false;
        // If the 2xx carried the offer, the answer is still to come.
        let is_settled = call.answered.is_some() && call.awaits.is_none();
        for stream in call.streams.iter_mut().flatten() {
            for leg in stream.legs.iter_mut().filter(|_| is_settled) {
                if matches!(leg.remote, Remote::Udp { .. }) {
                    is_plain |= std::mem::take(&mut leg.told);
                }
            }
            join(id, stream, media);
        }
        is_plain
    }

    /// Undoes the changes of the refused request `by`, and releases the streams that it added.
    fn go_back(&mut self, id: CallId, by: Option<TransactionId>, media: &mut impl Media) {
        let Some(call) = self.all.get_mut(&id) else { return };
        let place = call.before.iter().position(|before| Some(before.by) == by);
        let Some(before) = place.map(|n| call.before.remove(n)) else { return };
        let mut added = Vec::new();
        for (n, place) in call.streams.iter_mut().enumerate() {
            match (before.streams.get(n).and_then(Option::as_ref), &mut *place) {
                (Some(old), Some(stream)) => {
                    stream.transport = old.transport;
                    for (leg, old) in stream.legs.iter_mut().zip(&old.legs) {
                        (leg.remote, leg.flow, leg.told) = (old.remote, old.flow, old.told);
                    }
                }
                (None, _) => added.extend(place.take()),
                (Some(_), None) => {}
            }
        }
        for stream in &added {
            self.release(stream, media);
        }
    }

    fn change(
        &mut self,
        leg: (CallId, usize, SideId),
        change: Change,
        config: &Config,
        media: &mut impl Media,
    ) {
        // The chain may have grown since the offer was checked.
        let loops = match change {
            Change::To(remote, _) => self.check_chain(leg, &remote, config).is_err(),
            Change::Close => false,
        };
        let (id, n, side) = leg;
        let call = self.all.get_mut(&id);
        let Some(place) = call.and_then(|call| call.streams.get_mut(n)) else { return };
        match (change, &mut *place) {
            (Change::To(remote, flow), Some(stream)) => {
                stream.legs[side].turn(if loops { Remote::Nobody } else { remote }, flow);
            }
            (Change::Close, Some(_)) => {
                if let Some(stream) = place.take() {
                    self.release(&stream, media);
                }
            }
            _ => {}
        }
    }

    /// Keeps the answer of the ringing end with `tag`, to be used if that end is chosen.
    pub fn keep_early(&mut self, id: CallId, side: SideId, tag: &[u8], said: Option<u64>) {
        let Some(call) = self.all.get_mut(&id).filter(|call| call.answered.is_none()) else {
            return;
        };
        let legs = call.streams.iter().map(|place| Some(place.as_ref()?.legs[side].clone()));
        let before = call.early.iter().find(|early| early.tag == tag).and_then(|it| it.said);
        let early = Early { tag: tag.to_vec(), legs: legs.collect(), said: said.or(before) };
        call.early.retain(|other| other.tag != tag);
        if call.early.len() == MAX_EARLY {
            call.early.remove(0);
        }
        call.early.push(early);
    }

    /// Whether the ringing end with `tag` only retransmits its last description.
    pub fn repeats(&self, id: CallId, tag: &[u8], said: Option<u64>) -> bool {
        let early = self.all.get(&id).and_then(|call| call.early.iter().find(|it| it.tag == tag));
        said.is_some() && early.is_some_and(|early| early.said == said)
    }

    /// Chooses the ringing end with `tag`. Unless its final answer describes it again, its earlier
    /// answer takes effect.
    pub fn choose_early(&mut self, id: CallId, side: SideId, tag: &[u8], is_described: bool) {
        let Some(call) = self.all.get_mut(&id) else { return };
        let all = std::mem::take(&mut call.early);
        let is_last = all.last().is_some_and(|last| last.tag == tag);
        let chosen = all.into_iter().find(|early| early.tag == tag);
        let Some(chosen) = chosen.filter(|_| !is_last && !is_described) else { return };
        for (place, then) in call.streams.iter_mut().zip(chosen.legs) {
            let leg = place.as_mut().map(|stream| &mut stream.legs[side]);
            // A different port means a different stream.
            if let (Some(leg), Some(then)) = (leg, then)
                && leg.port == then.port
            {
                *leg = Leg { described: leg.described, ..then };
            }
        }
    }
}
