//! Which calls a message belongs to, and what they make of its session description.

use crate::calls::{CallId, Calls, Passing, SideId, Unpassable};
use crate::config::Config;
use crate::media::Media;
use core::net::IpAddr;
use trunkline_base::Time;
use trunkline_sip::transaction::Hop;
use trunkline_sip::value::Uri;
use trunkline_sip::{Message, Name};

/// The calls through which a request passes here, one after the other (two if a proxy
/// has sent a call back here and then left its way), and from which side.
pub(crate) type Passes = Vec<(CallId, SideId)>;

/// The parameter of this gateway's own routes that names a call.
pub(crate) const PARAM: &str = "tl";

/// The call that a route of this gateway's own names.
pub(crate) fn named_by(route: &[u8]) -> Option<CallId> {
    let value = Uri::parse(route)?.param(PARAM)??;
    let text = core::str::from_utf8(value).ok().filter(|text| text.len() == 16)?;
    u64::from_str_radix(text, 16).ok().map(CallId)
}

/// A message between two hops.
pub(crate) struct Between<'a> {
    pub config: &'a Config,
    pub from: &'a Hop,
    pub to: &'a Hop,
    /// As [`Passing::is_offer`], of calls that have been answered.
    pub is_offer: bool,
    /// The tag of who answers, if it is one of several who might.
    pub answers: Option<&'a [u8]>,
}

/// Whether a message has a session description alone.
pub(crate) fn is_description(message: &Message) -> bool {
    let is_sdp =
        message.content_type().is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/sdp"));
    is_sdp && !message.body().is_empty()
}

/// Whether a description can't be read for its encoding.
pub(crate) fn is_encoded(message: &Message) -> bool {
    let mut codings = message.list(Name::ContentEncoding);
    codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// The body of a message that passes through `passes`, from the side of each; and why,
/// if nothing that it describes can be relayed.
pub(crate) fn body<M: Media>(
    calls: &mut Calls,
    passes: &[(CallId, SideId)],
    body: &[u8],
    between: &Between<'_>,
    media: &mut M,
) -> Result<(Vec<u8>, Option<Unpassable>), Unpassable> {
    let (mut body, mut refused) = (body.to_vec(), None);
    for (n, &(id, side)) in passes.iter().enumerate() {
        let Some(call) = calls.get(id) else { continue };
        let sender = &call.sides[side];
        let (first, last) = (n == 0, n + 1 == passes.len());
        let source: Option<IpAddr> =
            Some(between.from.remote.ip()).filter(|_| first && sender.is_adjacent);
        let other = call.answered.is_some() && between.answers.is_some_and(|tag| !sender.is(tag));
        let mut passing = Passing {
            config: between.config,
            media: &mut *media,
            side,
            source,
            to: between.to.remote.ip(),
            is_believed: first && between.config.trusts(between.from.remote.ip()),
            is_told: last && between.config.trusts(between.to.remote.ip()),
            is_offer: between.is_offer && call.answered.is_some(),
            is_idle: other,
        };
        let (passed, why) = calls.describe(id, &body, &mut passing)?;
        body = passed;
        refused = refused.or(why);
    }
    Ok((body, refused))
}

/// The calls that the gateway's own routes of a request name, each from the side of
/// who sent it.
pub(crate) fn of(calls: &Calls, message: &Message, routes: &[Vec<u8>]) -> Passes {
    let from = message.from().and_then(|from| from.tag()).unwrap_or_default();
    let mut ids: Vec<CallId> = routes.iter().filter_map(|route| named_by(route)).collect();
    ids.dedup();
    ids.retain(|id| calls.get(*id).is_some());
    let to = message.to().and_then(|to| to.tag());
    if let (true, Some(to)) = (ids.is_empty(), to) {
        // Some agents forget the routes.
        let name = message.call_id().unwrap_or_default();
        ids.extend(calls.named(name, from).filter(|_| calls.named(name, to).is_some()));
    }
    let side = |id: CallId| calls.get(id).is_some_and(|call| !call.sides[0].is(from));
    ids.into_iter().map(|id| (id, usize::from(side(id)))).collect()
}

/// Notes that something was heard of calls.
pub(crate) fn heard(calls: &mut Calls, passes: &[(CallId, SideId)], now: Time) {
    for (id, _) in passes {
        if let Some(call) = calls.get_mut(*id) {
            call.heard = now;
        }
    }
}
