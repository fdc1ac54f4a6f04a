//! The calls of a gateway: each stream has a leg to either side, and session descriptions that pass
//! through are rewritten to match.

mod chain;
mod offers;
mod parts;

use crate::config::{Config, Network};
use crate::dialog::DialogEnd;
use crate::media::{ATTRIBUTE, Flow, Media, MediaRejected, OverlayCandidate, Relay, Remote};
use crate::party_addresses::PartyAddresses;
use crate::ports::Ports;
use crate::reception::Clocks;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
pub(crate) use offers::OfferOutcome;
use offers::{Before, Change, Early};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trunkline_base::Time;
use trunkline_overlay::wire::NodeId;
use trunkline_sip::Message;
use trunkline_sip::sdp::{self, Sdp, SdpEdit, SdpError, Transport};
use trunkline_sip::transaction::{Hop, TransactionId};

/// A call's number at this gateway. A call that passes through the gateway twice has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

/// A snapshot of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The call's number at this gateway.
    pub id: CallId,
    /// SIP Call-ID, shortened and made safe to print.
    pub name: String,
    /// Caller URI, shortened and made safe to print.
    pub from: String,
    /// Callee URI, shortened and made safe to print.
    pub to: String,
    /// Time at which its INVITE arrived.
    pub since: Time,
    /// Time of the answer; `None` while it is unanswered.
    pub answered: Option<Time>,
    /// Whether any of its streams crosses the overlay.
    pub is_over: bool,
    /// Whether it passes this gateway twice, on its way to a proxy and back: both ends are here.
    pub is_local: bool,
    /// UDP ports of each stream: towards the caller, then towards the callee.
    pub ports: Vec<[u16; 2]>,
    /// Those of its ports whose packets are no RTP, such as a fax's.
    pub no_speech: Vec<u16>,
}

/// One of the two ends of a call: 0 is the caller, 1 the callee.
pub(crate) type SideId = usize;

/// One end of a call, as its SIP messages describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// Tag of this end in the dialog, once known.
    pub tag: Option<Vec<u8>>,
    /// The hop that its messages come from.
    pub hop: Option<Hop>,
    /// Addresses at which this end may be.
    pub places: PartyAddresses,
    /// Whether no proxy is between this end and the gateway. If so, `hop` reaches it, whatever
    /// address it gives for itself.
    pub is_next_hop: bool,
    /// Whether no proxy between this end and the gateway has recorded itself. Its media may then
    /// come from where its messages do, whatever address it gives for itself.
    pub is_direct: bool,
    /// How to reach this end in its dialog, once known.
    pub dialog: Option<DialogEnd>,
}

/// Maximum number of relayed streams per call; more would take ports from other calls.
const MAX_STREAMS: usize = 8;

/// How a description affects the call that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferAnswerState {
    /// It takes effect at once: the first offer, or an answer.
    Holds,
    /// It takes effect if this request is accepted.
    Offers(TransactionId),
    /// It has no effect here: it lists capabilities, or comes from an end that was not chosen. Its
    /// addresses are still rewritten.
    Nothing,
}

#[derive(Clone, Debug)]
struct Leg {
    port: u16,
    remote: Remote,
    flow: Flow,
    /// Rules for the network that its end is in.
    network: Arc<Network>,
    /// Number of times that its end has described itself.
    described: u32,
    pending: Option<(TransactionId, Change)>,
    told: bool,
}

impl Leg {
    /// Whether its end is behind another gateway, counting an offer that is still pending.
    fn is_over(&self) -> bool {
        let remote = match self.pending {
            Some((_, Change::To(remote, _))) => remote,
            Some((_, Change::Close)) => Remote::Nobody,
            None => self.remote,
        };
        matches!(remote, Remote::Overlay { .. })
    }

    /// Records the address and the directions that its end has described.
    fn turn(&mut self, remote: Remote, flow: Flow) {
        (self.remote, self.flow) = (remote, flow);
        self.described = self.described.wrapping_add(1);
        self.told |= matches!(remote, Remote::Overlay { .. });
    }

    fn new(port: u16, network: &Arc<Network>) -> Leg {
        Leg {
            port,
            remote: Remote::Nobody,
            flow: Flow::BOTH,
            network: Arc::clone(network),
            described: 0,
            pending: None,
            told: false,
        }
    }
}

#[derive(Clone, Debug)]
struct Stream {
    transport: Transport,
    clocks: Clocks,
    legs: [Leg; 2],
}

/// A BYE that was challenged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HangingUp {
    pub at: Time,
    /// The end that sent it.
    pub side: SideId,
    /// The host that it went to.
    pub by: SocketAddr,
}

/// Time after a BYE within which its sender's packets may still be on the way.
const LAST_PACKETS: Duration = Duration::from_secs(5);

/// One call, with its ends, its streams, and the offers that can still be undone.
#[derive(Debug)]
pub(crate) struct Call {
    /// Call-ID, as received in the INVITE.
    pub name: Vec<u8>,
    /// URIs of the caller and the callee.
    pub ends: [Vec<u8>; 2],
    pub sides: [Side; 2],
    /// Time at which its INVITE arrived.
    pub since: Time,
    /// Time of the answer.
    pub answered: Option<Time>,
    /// Time of its last message or media packet.
    pub heard: Time,
    /// Whether the caller has acknowledged the answer.
    pub is_acknowledged: bool,
    /// Time of the challenge to its INVITE, and the status code: it may be repeated with credentials.
    pub challenged: Option<(Time, u16)>,
    /// A BYE that was challenged: it may be repeated with credentials.
    pub hanging_up: Option<HangingUp>,
    /// The part of the same call before it: its INVITE has been here and came back from a proxy.
    pub part_of: Option<CallId>,
    /// The part behind it, in the same way; of several, the one that was answered.
    pub onward: Option<CallId>,
    /// Interval of the session timer, if one is agreed.
    pub session: Option<Duration>,
    /// CSeq number of the INVITE whose 2xx carried the offer: its ACK carries the answer.
    pub awaits: Option<u32>,
    /// The streams by their index in the description; `None` if one is not relayed.
    streams: Vec<Option<Stream>>,
    before: Vec<Before>,
    early: Vec<Early>,
    /// Whether `Event::Plain` has been reported for it.
    pub bypasses_overlay: bool,
}

/// A description in transit, and what decides how it is rewritten.
pub(crate) struct SdpRewrite<'a, M> {
    pub config: &'a Config,
    pub media: &'a mut M,
    /// The side that sent it.
    pub side: SideId,
    /// Address of its author, if known.
    pub source: Option<IpAddr>,
    /// Address that it came from.
    pub from: IpAddr,
    /// Address of its next hop.
    pub to: IpAddr,
    /// Whether virtual ports in it are trusted.
    pub is_believed: bool,
    /// Whether virtual ports may be added.
    pub is_advertised: bool,
    /// Its effect on the call.
    pub meaning: OfferAnswerState,
    /// Whether it answers an offer.
    pub is_answer: bool,
    /// Whether it begins the call.
    pub begins: bool,
}

/// Reasons for which a description can't pass the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// It can't be parsed.
    #[error(transparent)]
    Sdp(#[from] SdpError),
    /// It is compressed or encoded, or the message contains two.
    #[error("the session description is compressed, or the message has two")]
    Unreadable,
    /// None of its streams can be relayed.
    #[error(transparent)]
    MediaRejected(#[from] MediaRejected),
    /// The trunk to the other gateway takes no new calls.
    #[error("the trunk to {0} takes no new calls: it would exceed its share")]
    Trunk(NodeId),
    /// All media ports are in use.
    #[error("no media port is free")]
    NoPorts,
    /// One end encrypts its media, the other doesn't.
    #[error("one end wants encrypted media, the other plain media")]
    Encryption,
}

/// All calls of a gateway, indexed by number, Call-ID and media port.
#[derive(Debug)]
pub(crate) struct Calls {
    all: BTreeMap<CallId, Call>,
    by_name: BTreeMap<Vec<u8>, Vec<CallId>>,
    ports: Ports,
    /// Owner of each pair of ports, by its even port: the call, the stream's index, and the side.
    owners: BTreeMap<u16, (CallId, usize, SideId)>,
}

impl Calls {
    pub fn new(ports: Ports) -> Calls {
        Calls { all: BTreeMap::new(), by_name: BTreeMap::new(), ports, owners: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, id: CallId) -> Option<&Call> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.all.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.all.iter().map(|(id, call)| (*id, call))
    }

    pub fn open(&mut self, now: Time, id: CallId, message: &Message, side: Side) {
        let name = message.call_id().unwrap_or_default();
        let ends = [message.from(), message.to()].map(|end| end.map_or(&[][..], |end| end.uri));
        let call = Call {
            name: name.to_vec(),
            ends: ends.map(<[u8]>::to_vec),
            sides: [side, Side::default()],
            since: now,
            answered: None,
            heard: now,
            is_acknowledged: false,
            challenged: None,
            hanging_up: None,
            part_of: None,
            onward: None,
            session: None,
            awaits: None,
            streams: Vec::new(),
            before: Vec::new(),
            early: Vec::new(),
            bypasses_overlay: false,
        };
        self.all.insert(id, call);
        self.by_name.entry(name.to_vec()).or_default().push(id);
    }

    pub fn close(&mut self, id: CallId, media: &mut impl Media) {
        let Some(mut call) = self.all.remove(&id) else { return };
        for stream in std::mem::take(&mut call.streams).into_iter().flatten() {
            self.release(&stream, media);
        }
        if let Some(ids) = self.by_name.get_mut(&call.name) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_name.remove(&call.name);
            }
        }
    }

    /// Notes packets at `port`, for RTP or for RTCP. An end that keeps sending has not hung up.
    pub fn heard(&mut self, now: Time, port: u16) {
        let Some(&(id, _, side)) = self.owners.get(&(port & !1)) else { return };
        let Some(call) = self.all.get_mut(&id) else { return };
        call.heard = now;
        let is_over = |it: &mut HangingUp| it.side == side && now >= it.at + LAST_PACKETS;
        call.hanging_up.take_if(is_over);
    }

    fn release(&mut self, stream: &Stream, media: &mut impl Media) {
        for leg in &stream.legs {
            media.close(leg.port);
            self.owners.remove(&leg.port);
            self.ports.give_back(leg.port);
        }
    }

    /// All calls with this Call-ID.
    pub fn all_named(&self, name: &[u8]) -> impl Iterator<Item = &Call> {
        let ids = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        ids.iter().filter_map(|id| self.all.get(id))
    }

    /// The call with this Call-ID in which `tag` is the tag of an end; `None` unless there is
    /// exactly one.
    pub fn named(&self, name: &[u8], tag: &[u8]) -> Option<CallId> {
        let ids = self.by_name.get(name)?;
        let speaks = |id: &&CallId| {
            self.all.get(*id).is_some_and(|call| call.sides.iter().any(|s| s.is(tag)))
        };
        let mut found = ids.iter().filter(speaks);
        let first = found.next()?;
        found.next().is_none().then_some(*first)
    }

    /// Rewrites a description that passes through. The second value is the reason for refusing all
    /// of it, set if none of its streams can be relayed.
    pub fn describe<M: Media>(
        &mut self,
        id: CallId,
        body: &[u8],
        passing: &mut SdpRewrite<'_, M>,
    ) -> Result<(Vec<u8>, Option<DescriptionError>), SdpError> {
        let sdp = Sdp::parse(body)?;
        if let OfferAnswerState::Offers(by) = passing.meaning {
            self.remember(id, by);
        }
        let mut edit = SdpEdit::new(&sdp);
        edit.remove_attribute(None, ATTRIBUTE);
        let (mut passed, mut refused) = (0, None);
        for (n, media) in sdp.media().iter().enumerate() {
            let told = sdp.attributes(Some(n), ATTRIBUTE).next().and_then(OverlayCandidate::parse);
            edit.remove_attribute(Some(n), ATTRIBUTE);
            if let Some(why) = media.fault {
                refused = Some(why.into());
                edit.decline(n);
                self.unwanted(id, n, passing);
                continue;
            }
            if media.transport == Transport::Other {
                passed += 1;
                continue;
            }
            if media.port == 0 {
                self.unwanted(id, n, passing);
                continue;
            }
            if passing.meaning == OfferAnswerState::Nothing && !self.has_stream(id, n) {
                continue;
            }
            match self.stream(id, n, media, told, passing) {
                Ok((port, is_told)) => {
                    passed += 1;
                    self.read_clocks(id, n, &sdp, passing.media);
                    let local = passing.media.local(passing.to);
                    let Some(at) = passing.config.media_like(passing.to, local) else { continue };
                    edit.redirect(n, at, port);
                    if is_told {
                        let told = OverlayCandidate { node: passing.config.node, port };
                        edit.add_attribute(n, ATTRIBUTE, &told.to_string());
                    }
                }
                Err(why) => {
                    refused = Some(why);
                    edit.decline(n);
                    self.unwanted(id, n, passing);
                }
            }
        }
        Ok((edit.finish(), refused.filter(|_| passed == 0)))
    }

    fn has_stream(&self, id: CallId, n: usize) -> bool {
        let call = self.all.get(&id);
        call.is_some_and(|call| call.streams.get(n).is_some_and(Option::is_some))
    }

    /// Takes the clock rates of stream `n` from a description.
    fn read_clocks<M: Media>(&mut self, id: CallId, n: usize, sdp: &Sdp<'_>, media: &mut M) {
        let stream = self.all.get_mut(&id).and_then(|call| call.streams.get_mut(n)?.as_mut());
        let Some(stream) = stream else { return };
        let before = stream.clocks;
        sdp.attributes(Some(n), "rtpmap").for_each(|said| stream.clocks.take(said));
        if stream.clocks != before {
            join(id, stream, media);
        }
    }

    /// Handles stream `n` being refused or ended.
    fn unwanted<M: Media>(&mut self, id: CallId, n: usize, passing: &mut SdpRewrite<'_, M>) {
        let Some(call) = self.all.get_mut(&id) else { return };
        let Some(place) = call.streams.get_mut(n) else { return };
        match (passing.meaning, &mut *place) {
            (OfferAnswerState::Offers(by), Some(stream)) => {
                stream.legs[passing.side].pending = Some((by, Change::Close));
            }
            (OfferAnswerState::Holds, Some(_)) => {
                if let Some(stream) = place.take() {
                    self.release(&stream, passing.media);
                }
            }
            _ => {}
        }
    }

    /// The port at which the other side will find stream `n`, and whether to advertise it as a
    /// virtual port, too.
    fn stream<M: Media>(
        &mut self,
        id: CallId,
        n: usize,
        media: &sdp::Media<'_>,
        told: Option<OverlayCandidate>,
        passing: &mut SdpRewrite<'_, M>,
    ) -> Result<(u16, bool), DescriptionError> {
        let remote = self.remote((id, n, passing.side), media, told, passing)?;
        // Media that go over a trunk are let in with the call, or not at all.
        if let Remote::Overlay { node, .. } = remote
            && passing.begins
            && !passing.media.admits(node)
        {
            return Err(DescriptionError::Trunk(node));
        }
        self.ensure(id, n, media.transport, passing)?;
        let Some(call) = self.all.get_mut(&id) else { return Err(DescriptionError::NoPorts) };
        let Some(Some(stream)) = call.streams.get_mut(n) else {
            return Err(DescriptionError::NoPorts);
        };
        let (side, flow) = (passing.side, Flow::of(media));
        let other = &stream.legs[1 - side];
        // An answer shows how the offer was taken. The two gateways may see different routes at the
        // same moment; one would otherwise send by one route while the other listens on another.
        let may_tell = !passing.is_answer || other.is_over();
        if passing.meaning == OfferAnswerState::Nothing {
            return Ok((other.port, passing.is_advertised && other.told && may_tell));
        }
        if encrypts(stream.transport) != encrypts(media.transport) {
            // An offer may change the encryption; an answer may not (RFC 3264, 6.1).
            if passing.is_answer && call.sides[0].tag.is_some() {
                return Err(DescriptionError::Encryption);
            }
        }
        stream.transport = media.transport;
        // Video packets are larger than the overlay carries.
        let is_small = media.kind == b"audio" || media.kind == b"image";
        // Media that arrive over the overlay leave it here: they don't cross it a second time.
        let comes_over = matches!(remote, Remote::Overlay { .. });
        let tells = passing.is_advertised && is_small && !comes_over;
        stream.legs[1 - side].told |= tells;
        match passing.meaning {
            OfferAnswerState::Offers(by) => {
                stream.legs[side].pending = Some((by, Change::To(remote, flow)))
            }
            OfferAnswerState::Holds => {
                stream.legs[side].pending = None;
                stream.legs[side].turn(remote, flow);
            }
            OfferAnswerState::Nothing => {}
        }
        stream.legs[side].network = Arc::clone(passing.config.network(passing.from));
        join(id, stream, passing.media);
        Ok((stream.legs[1 - side].port, tells && may_tell))
    }

    fn remote<M: Media>(
        &self,
        leg: (CallId, usize, SideId),
        media: &sdp::Media<'_>,
        told: Option<OverlayCandidate>,
        passing: &SdpRewrite<'_, M>,
    ) -> Result<Remote, MediaRejected> {
        let own = passing.config.node;
        // An end that answers with a virtual port has already found a route, and uses it.
        let (id, n, side) = leg;
        let has_told = self.stream_of(id, n).is_some_and(|stream| stream.legs[side].told);
        let is_agreed = passing.is_answer && has_told;
        let believed = told.filter(|told| {
            let is_found = is_agreed || passing.media.knows(told.node);
            passing.is_believed && told.node != own && is_found
        });
        if let Some(OverlayCandidate { node, port }) = believed {
            return Ok(Remote::Overlay { node, port });
        }
        let remote = Remote::of(media, passing.source, &passing.config.media)?;
        if let Remote::Udp { rtp, rtcp, .. } = remote {
            for at in [rtp, rtcp].into_iter().flatten() {
                passing.config.check_media(at, passing.is_believed)?;
            }
        }
        self.check_chain(leg, &remote, passing.config)?;
        Ok(remote)
    }

    /// Allocates ports for stream `n`, unless it has some.
    fn ensure<M: Media>(
        &mut self,
        id: CallId,
        n: usize,
        transport: Transport,
        passing: &mut SdpRewrite<'_, M>,
    ) -> Result<(), DescriptionError> {
        let Some(call) = self.all.get_mut(&id) else { return Err(DescriptionError::NoPorts) };
        if call.streams.len() <= n {
            call.streams.resize(n + 1, None);
        }
        if call.streams[n].is_some() {
            return Ok(());
        }
        if call.streams.iter().flatten().count() >= MAX_STREAMS {
            return Err(DescriptionError::NoPorts);
        }
        let mut take = || self.ports.take(|port| passing.media.open(port));
        let first = take().ok_or(DescriptionError::NoPorts)?;
        let Some(second) = take() else {
            passing.media.close(first);
            self.ports.give_back(first);
            return Err(DescriptionError::NoPorts);
        };
        let legs = [first, second].map(|port| Leg::new(port, &passing.config.elsewhere));
        let clocks = Clocks::default();
        call.streams[n] = Some(Stream { transport, clocks, legs });
        self.owners.insert(first, (id, n, 0));
        self.owners.insert(second, (id, n, 1));
        Ok(())
    }

    /// A snapshot of the call `id`, with all its parts.
    pub fn view(&self, id: CallId) -> Option<CallView> {
        let call = self.all.get(&id)?;
        let last = self.all.get(&self.last_part(id))?;
        let streams = || call.streams.iter().flatten();
        let is_over = |leg: &Leg| matches!(leg.remote, Remote::Overlay { .. });
        let ports = |(first, last): (&Option<Stream>, &Option<Stream>)| {
            Some([first.as_ref()?.legs[0].port, last.as_ref()?.legs[1].port])
        };
        let all = call.streams.iter().chain(&last.streams).flatten();
        let no_speech = all.filter(|stream| stream.transport == Transport::Datagrams);
        let no_speech = no_speech.flat_map(|stream| &stream.legs).map(|leg| leg.port);
        // The first part of a call may be its last one.
        let no_speech: BTreeSet<u16> = no_speech.collect();
        Some(CallView {
            id,
            no_speech: no_speech.into_iter().collect(),
            name: shown(&call.name),
            from: shown(&call.ends[0]),
            to: shown(&call.ends[1]),
            since: call.since,
            answered: call.answered,
            is_over: streams().flat_map(|stream| &stream.legs).any(is_over),
            is_local: call.onward.is_some_and(|part| self.all.contains_key(&part)),
            ports: call.streams.iter().zip(&last.streams).filter_map(ports).collect(),
        })
    }

    /// The other gateway's node, if media of a call's side arrive over the overlay.
    pub fn overlay_node(&self, id: CallId, side: SideId) -> Option<NodeId> {
        let call = self.all.get(&id)?;
        call.streams.iter().flatten().find_map(|stream| {
            let leg = &stream.legs[side];
            let pending = leg.pending.and_then(|(_, change)| match change {
                Change::To(remote, _) => Some(remote),
                Change::Close => None,
            });
            match pending.unwrap_or(leg.remote) {
                Remote::Overlay { node, .. } => Some(node),
                _ => None,
            }
        })
    }

    /// Number of free pairs of ports.
    pub fn free_ports(&self) -> usize {
        self.ports.len()
    }
}

/// Maximum length, in characters, of text from others that is displayed.
const MAX_SHOWN: usize = 256;

/// Makes text from others safe to display: shortened, and without characters that move a terminal's
/// cursor or change the direction of text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let moves = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_SHOWN)]);
    let mut all = text.chars().map(|c| if moves(c) { '\u{fffd}' } else { c });
    let mut out: String = all.by_ref().take(MAX_SHOWN).collect();
    if all.next().is_some() {
        out.push('…');
    }
    out
}

impl Call {
    /// Whether its ends have agreed that one or both of them are silent, in all streams that are
    /// relayed.
    pub fn is_held(&self) -> bool {
        let is_silent = |flow: &Flow| !(flow.sends && flow.wants);
        self.streams.iter().flatten().all(|s| s.legs.iter().any(|leg| is_silent(&leg.flow)))
    }

    /// Number of port pairs that the call holds.
    pub fn pairs(&self) -> usize {
        self.streams.iter().flatten().count() * 2
    }
}

impl Side {
    pub fn is(&self, tag: &[u8]) -> bool {
        self.tag.as_deref() == Some(tag)
    }
}

fn encrypts(transport: Transport) -> bool {
    matches!(transport, Transport::Srtp | Transport::DtlsSrtp)
}

fn join(call: CallId, stream: &Stream, media: &mut impl Media) {
    let [a, b] = &stream.legs;
    for (leg, other) in [(a, b), (b, a)] {
        let relay = Relay {
            call,
            onto: other.port,
            remote: leg.remote,
            described: leg.described,
            network: Arc::clone(&leg.network),
            sends: leg.flow.sends && other.flow.wants,
            told: leg.told,
            is_rtp: stream.transport != Transport::Datagrams,
            is_encrypted: encrypts(stream.transport),
            clocks: stream.clocks,
        };
        media.relay(leg.port, &relay);
    }
}
