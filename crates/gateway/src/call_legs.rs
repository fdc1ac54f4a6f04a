//! Finds the calls that a message belongs to, and has them rewrite its session description.

use crate::calls::{Call, CallId, Calls, DescriptionError, OfferAnswerState, SdpRewrite, SideId};
use crate::config::Config;
use crate::media::{ATTRIBUTE, Media};
use core::net::IpAddr;
use trunkline_base::Time;
use trunkline_sip::sdp::{Sdp, SdpEdit};
use trunkline_sip::transaction::Hop;
use trunkline_sip::value::Uri;
use trunkline_sip::{Message, Part};

/// The calls through which a request passes here, in order, and the side that it comes from in
/// each. There are two if a proxy has sent a call back here and then left its path.
pub(crate) type CallLegs = Vec<(CallId, SideId)>;

/// Parameter of this gateway's own routes that names a call.
pub(crate) const PARAM: &str = "tl";

/// The call that one of this gateway's own routes names.
pub(crate) fn named_by(route: &[u8]) -> Option<CallId> {
    let value = Uri::parse(route)?.param(PARAM)??;
    let text = core::str::from_utf8(value).ok().filter(|text| text.len() == 16)?;
    u64::from_str_radix(text, 16).ok().map(CallId)
}

/// A description between two hops, and its purpose.
pub(crate) struct HopEnds<'a> {
    pub from: &'a Hop,
    pub to: &'a Hop,
    /// Effect of a description on its calls.
    pub meaning: OfferAnswerState,
    /// Whether it answers an offer.
    pub is_answer: bool,
    /// Whether it begins its call.
    pub begins: bool,
    /// Tag of the answering end, if it is one of several that may answer.
    pub answers: Option<&'a [u8]>,
}

/// The session description of a message, alone or among other body parts. In messages that offer or
/// answer, it is also found under another content type or hidden among other parts, because some
/// phones read it anyway.
pub(crate) fn description(message: &Message) -> Option<Part<'_>> {
    let found = message.part("application/sdp");
    let offers = [&b"INVITE"[..], b"ACK", b"UPDATE", b"PRACK"];
    if !message.cseq().is_some_and(|cseq| offers.contains(&cseq.method)) {
        return found;
    }
    let body = message.body();
    match found {
        Some(part) if starts(part.bytes) >= starts(body) => Some(part),
        Some(part) => Some(Part { is_readable: false, ..part }),
        None if body.trim_ascii_start().starts_with(START) => {
            Some(Part { bytes: body, is_readable: true })
        }
        None if starts(body) > 0 || message.hides() && !body.is_empty() => {
            Some(Part { bytes: body, is_readable: false })
        }
        None => None,
    }
}

/// The first line of any description (RFC 8866, 5.1).
const START: &[u8] = b"v=0";

/// Number of lines in a body at which a description begins.
fn starts(body: &[u8]) -> usize {
    body.split(|&b| b == b'\n' || b == b'\r').filter(|line| line.trim_ascii() == START).count()
}

/// Rewrites the description of a message for each call in `passes`. The second value is the reason,
/// if none of its streams can be relayed.
pub(crate) fn body<M: Media>(
    calls: &mut Calls,
    passes: &[(CallId, SideId)],
    part: Part<'_>,
    between: &HopEnds<'_>,
    (config, media): (&Config, &mut M),
) -> Result<(Vec<u8>, Option<DescriptionError>), DescriptionError> {
    if !part.is_readable {
        return Err(DescriptionError::Unreadable);
    }
    let (mut body, mut refused) = (part.bytes.to_vec(), None);
    for (n, &(id, side)) in passes.iter().enumerate() {
        let Some(call) = calls.get(id) else { continue };
        let sender = &call.sides[side];
        let (first, last) = (n == 0, n + 1 == passes.len());
        let source: Option<IpAddr> =
            Some(between.from.remote.ip()).filter(|_| first && sender.is_direct);
        // Once a call is answered, further answers to its first INVITE change nothing.
        let other = call.answered.is_some() && between.answers.is_some();
        let mut passing = SdpRewrite {
            config,
            media: &mut *media,
            side,
            source,
            from: between.from.remote.ip(),
            to: between.to.remote.ip(),
            is_believed: first && config.trusts(between.from.remote.ip()),
            is_advertised: last && config.trusts(between.to.remote.ip()),
            meaning: if other { OfferAnswerState::Nothing } else { between.meaning },
            is_answer: between.is_answer,
            begins: between.begins,
        };
        let (passed, why) = calls.describe(id, &body, &mut passing)?;
        body = passed;
        refused = refused.or(why);
    }
    Ok((body, refused))
}

/// Removes the attributes reserved for gateways from the description of a message that belongs to
/// no known call. A description that can't be parsed stays as it is.
pub(crate) fn stripped(body: &[u8]) -> Vec<u8> {
    let Ok(sdp) = Sdp::parse(body) else { return body.to_vec() };
    let mut edit = SdpEdit::new(&sdp);
    edit.remove_attribute(None, ATTRIBUTE);
    (0..sdp.media().len()).for_each(|n| edit.remove_attribute(Some(n), ATTRIBUTE));
    edit.finish()
}

/// The side that a request of `call` comes from; `None` if its Call-ID or the caller's tag doesn't
/// match.
fn side(call: &Call, message: &Message) -> Option<SideId> {
    let [from, to] = tags(message);
    let first = call.sides[0].tag.as_deref().unwrap_or_default();
    match message.call_id() == Some(call.name.as_slice()) {
        true if from == first => Some(0),
        true if to == first => Some(1),
        _ => None,
    }
}

/// Tags of From and To; empty where there is none.
fn tags(message: &Message) -> [&[u8]; 2] {
    [message.from(), message.to()].map(|end| end.and_then(|end| end.tag()).unwrap_or_default())
}

/// The calls that a request's routes through this gateway name, each with the side of its sender.
pub(crate) fn of(calls: &Calls, message: &Message, routes: &[Vec<u8>]) -> CallLegs {
    let mut ids: Vec<CallId> = routes.iter().filter_map(|route| named_by(route)).collect();
    ids.dedup();
    let [from, to] = tags(message);
    if ids.is_empty() && !to.is_empty() {
        // Some agents leave the routes out.
        let name = message.call_id().unwrap_or_default();
        ids.extend(calls.named(name, from).filter(|_| calls.named(name, to).is_some()));
    }
    ids.into_iter().filter_map(|id| Some((id, side(calls.get(id)?, message)?))).collect()
}

/// Whether a request within a call comes from a known address of one of its ends. It may then pass,
/// even if that address may no longer begin calls.
pub(crate) fn is_end(calls: &Calls, message: &Message, ip: IpAddr) -> bool {
    let name = message.call_id().unwrap_or_default();
    let is_new = message.to().is_none_or(|to| to.tag().is_none());
    let goes_on = !is_new || message.cseq().is_some_and(|cseq| cseq.method == b"CANCEL");
    let is_its = |call: &Call| {
        let hop = side(call, message).and_then(|side| call.sides[side].hop);
        hop.is_some_and(|hop| hop.remote.ip() == ip)
    };
    goes_on && calls.all_named(name).any(is_its)
}

/// The calls in `passes` for which the request is between the two ends that exchange media, and not
/// from one that answered too late.
pub(crate) fn of_parties(calls: &Calls, message: &Message, passes: &CallLegs) -> CallLegs {
    let [from, to] = tags(message);
    let is = |&(id, side): &(CallId, SideId)| {
        calls.get(id).is_some_and(|call| {
            let other = if side == 0 { to } else { from };
            call.answered.is_none() || call.sides[1].is(other)
        })
    };
    passes.iter().copied().filter(is).collect()
}

/// Whether a request between these addresses is between the ends of its calls. Once the call is
/// answered, the other end is the better judge of its peer, for instance of a phone that has moved.
/// Before the answer, other ringing phones know as much about the call as its ends.
pub(crate) fn are_between(calls: &Calls, passes: &CallLegs, from: IpAddr, to: IpAddr) -> bool {
    let (Some(&(first, side)), Some(&(last, end))) = (passes.first(), passes.last()) else {
        return true;
    };
    let (Some(first), Some(last)) = (calls.get(first), calls.get(last)) else { return false };
    let comes = first.answered.is_some() || first.sides[side].places.have(from);
    comes && last.sides[1 - end].places.have(to)
}

/// Whether there are any calls in `passes`, and all have been answered.
pub(crate) fn are_up(calls: &Calls, passes: &CallLegs) -> bool {
    let is = |id| calls.get(id).is_some_and(|call| call.answered.is_some());
    !passes.is_empty() && passes.iter().all(|(id, _)| is(*id))
}

/// Updates how the sender of a request is reached in each call, and that it has not hung up.
pub(crate) fn update(calls: &mut Calls, passes: &[(CallId, SideId)], request: &Message) {
    let is_bye = request.cseq().is_some_and(|cseq| cseq.method == b"BYE");
    for &(id, side) in passes {
        let Some(call) = calls.get_mut(id) else { continue };
        if let Some(dialog) = &mut call.sides[side].dialog {
            dialog.update(request, true);
        }
        call.hanging_up.take_if(|bye| !is_bye && bye.side == side);
    }
}

/// Notes that a message arrived for each call.
pub(crate) fn heard(calls: &mut Calls, passes: &[(CallId, SideId)], now: Time) {
    for (id, _) in passes {
        if let Some(call) = calls.get_mut(*id) {
            call.heard = now;
        }
    }
}
