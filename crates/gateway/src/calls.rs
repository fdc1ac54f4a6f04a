//! The calls of a gateway: for each stream a leg to either side, and what session
//! descriptions that pass make of them.

mod chain;
mod settle;

use crate::config::Config;
use crate::media::{ATTRIBUTE, Media, Relay, Remote, Told, Unfit};
use crate::places::Places;
use crate::ports::Ports;
use crate::reception::Clocks;
use core::net::IpAddr;
pub(crate) use settle::Verdict;
use settle::{Before, Change, Early};
use std::collections::BTreeMap;
use trunkline_base::Time;
use trunkline_sip::Message;
use trunkline_sip::sdp::{self, Sdp, SdpEdit, SdpError, Transport};
use trunkline_sip::transaction::{Hop, TransactionId};

/// A call, as this gateway names it: one that comes through here twice has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

/// A call as one moment saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The call's number at this gateway.
    pub id: CallId,
    /// The call's Call-ID.
    pub name: String,
    /// The URI of who calls.
    pub from: String,
    /// The URI of who is called.
    pub to: String,
    /// When its INVITE came.
    pub since: Time,
    /// When it was answered, if it was.
    pub answered: Option<Time>,
    /// Whether any of its streams crosses the overlay.
    pub is_over: bool,
    /// The ports of its streams: to who called, to who was called.
    pub ports: Vec<[u16; 2]>,
}

/// One of the two ends between which a call passes here: 0 has called.
pub(crate) type SideId = usize;

/// An end, as SIP sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// Its tag in the dialog, once it is known.
    pub tag: Option<Vec<u8>>,
    /// Where its messages come from.
    pub hop: Option<Hop>,
    /// Where else it may be.
    pub places: Places,
    /// Whether it is the next hop itself: then that is how to reach it, whatever it
    /// calls itself.
    pub is_adjacent: bool,
}

/// The most streams of a call that are relayed: more would take ports from others.
const MAX_STREAMS: usize = 8;

/// What a description means for the call that it passes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It holds at once: the first offer, or an answer.
    Holds,
    /// It holds if this request is agreed to.
    Offers(TransactionId),
    /// It tells of what there could be, or is of an end that was not chosen: places in
    /// it are changed as they must be, and nothing here.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Leg {
    port: u16,
    remote: Remote,
    /// How often its end has described itself.
    described: u32,
    pending: Option<(TransactionId, Change)>,
    told: bool,
}

impl Leg {
    /// Whether its end is behind another gateway, or is if an offer of its own is agreed to.
    fn is_over(&self) -> bool {
        let remote = match self.pending {
            Some((_, Change::To(remote))) => remote,
            Some((_, Change::Close)) => Remote::Nobody,
            None => self.remote,
        };
        matches!(remote, Remote::Overlay { .. })
    }

    /// Its end has said where it is.
    fn turn(&mut self, remote: Remote) {
        self.remote = remote;
        self.described = self.described.wrapping_add(1);
        self.told |= matches!(remote, Remote::Overlay { .. });
    }

    fn new(port: u16) -> Leg {
        Leg { port, remote: Remote::Nobody, described: 0, pending: None, told: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    transport: Transport,
    clocks: Clocks,
    legs: [Leg; 2],
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    /// As SIP names it.
    pub name: Vec<u8>,
    /// The URIs of who calls and of who is called.
    pub ends: [Vec<u8>; 2],
    pub sides: [Side; 2],
    /// When its INVITE came.
    pub since: Time,
    /// When it was answered.
    pub answered: Option<Time>,
    /// When something was last heard of it.
    pub heard: Time,
    /// Whether who calls has said that it heard the answer.
    pub is_acknowledged: bool,
    /// The number of the INVITE whose offer came with its answer: the ACK answers that.
    pub awaits: Option<u32>,
    /// By their place in the description.
    streams: Vec<Option<Stream>>,
    before: Vec<Before>,
    early: Vec<Early>,
    /// Whether somebody has been told that it goes past the overlay.
    pub is_plain: bool,
}

/// A description on its way.
pub(crate) struct Passing<'a, M> {
    pub config: &'a Config,
    pub media: &'a mut M,
    /// The side that sends it.
    pub side: SideId,
    /// Who has written it, if that is known.
    pub source: Option<IpAddr>,
    /// Where it goes.
    pub to: IpAddr,
    /// Whether virtual ports in it are believed.
    pub is_believed: bool,
    /// Whether virtual ports may be put in.
    pub is_told: bool,
    /// What it means.
    pub meaning: Meaning,
    /// Whether it answers an offer.
    pub is_answer: bool,
}

/// Why a description can't pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpassable {
    /// It isn't understood.
    #[error(transparent)]
    Sdp(#[from] SdpError),
    /// It is compressed or encoded, or a message has two.
    #[error("a description is compressed, or one of two in a message")]
    Unreadable,
    /// Nothing in it can be relayed.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// All ports are taken.
    #[error("no port for media is free")]
    NoPorts,
    /// One end encrypts, the other doesn't.
    #[error("one end wants encrypted media, the other plain ones")]
    Encryption,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Calls {
    all: BTreeMap<CallId, Call>,
    by_name: BTreeMap<Vec<u8>, Vec<CallId>>,
    ports: Ports,
    /// Whose each pair of ports is: the call, the place of the stream, the side.
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
            awaits: None,
            streams: Vec::new(),
            before: Vec::new(),
            early: Vec::new(),
            is_plain: false,
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

    /// The call that has a port, or the one before it for RTCP.
    pub fn at_port(&mut self, port: u16) -> Option<&mut Call> {
        let (id, ..) = self.owners.get(&(port & !1))?;
        self.all.get_mut(id)
    }

    fn release(&mut self, stream: &Stream, media: &mut impl Media) {
        for leg in &stream.legs {
            media.close(leg.port);
            self.owners.remove(&leg.port);
            self.ports.give_back(leg.port);
        }
    }

    /// The calls that SIP names so.
    pub fn all_named(&self, name: &[u8]) -> impl Iterator<Item = &Call> {
        let ids = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        ids.iter().filter_map(|id| self.all.get(id))
    }

    /// The call that SIP names so, if there is one alone in which `tag` speaks.
    pub fn named(&self, name: &[u8], tag: &[u8]) -> Option<CallId> {
        let ids = self.by_name.get(name)?;
        let speaks = |id: &&CallId| {
            self.all.get(*id).is_some_and(|call| call.sides.iter().any(|s| s.is(tag)))
        };
        let mut found = ids.iter().filter(speaks);
        let first = found.next()?;
        found.next().is_none().then_some(*first)
    }

    /// What becomes of a description that passes; and why, if nothing in it can be
    /// relayed: all of it is refused then.
    pub fn describe<M: Media>(
        &mut self,
        id: CallId,
        body: &[u8],
        passing: &mut Passing<'_, M>,
    ) -> Result<(Vec<u8>, Option<Unpassable>), SdpError> {
        let sdp = Sdp::parse(body)?;
        if let Meaning::Offers(by) = passing.meaning {
            self.remember(id, by);
        }
        let mut edit = SdpEdit::new(&sdp);
        edit.remove_attribute(None, ATTRIBUTE);
        let (mut passed, mut refused) = (0, None);
        for (n, media) in sdp.media().iter().enumerate() {
            let told = sdp.attributes(Some(n), ATTRIBUTE).next().and_then(Told::parse);
            edit.remove_attribute(Some(n), ATTRIBUTE);
            if media.transport == Transport::Other {
                passed += 1;
                continue;
            }
            if media.port == 0 {
                self.unwanted(id, n, passing);
                continue;
            }
            if passing.meaning == Meaning::Nothing && !self.has_stream(id, n) {
                continue;
            }
            match self.stream(id, n, media, told, passing) {
                Ok((port, is_told)) => {
                    passed += 1;
                    self.read_clocks(id, n, &sdp, passing.media);
                    let Some(at) = passing.config.media_like(passing.to) else { continue };
                    edit.redirect(n, at, port);
                    if is_told {
                        let told = Told { node: passing.config.node, port };
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

    /// Takes what a description says of the clocks of stream `n`.
    fn read_clocks<M: Media>(&mut self, id: CallId, n: usize, sdp: &Sdp<'_>, media: &mut M) {
        let stream = self.all.get_mut(&id).and_then(|call| call.streams.get_mut(n)?.as_mut());
        let Some(stream) = stream else { return };
        let before = stream.clocks;
        sdp.attributes(Some(n), "rtpmap").for_each(|said| stream.clocks.take(said));
        if stream.clocks != before {
            join(stream, media);
        }
    }

    /// Stream `n` is refused, or over.
    fn unwanted<M: Media>(&mut self, id: CallId, n: usize, passing: &mut Passing<'_, M>) {
        let Some(call) = self.all.get_mut(&id) else { return };
        let Some(place) = call.streams.get_mut(n) else { return };
        match (passing.meaning, &mut *place) {
            (Meaning::Offers(by), Some(stream)) => {
                stream.legs[passing.side].pending = Some((by, Change::Close));
            }
            (Meaning::Holds, Some(_)) => {
                if let Some(stream) = place.take() {
                    self.release(&stream, passing.media);
                }
            }
            _ => {}
        }
    }

    /// The port at which the other side shall find stream `n`, and whether over the
    /// overlay, too.
    fn stream<M: Media>(
        &mut self,
        id: CallId,
        n: usize,
        media: &sdp::Media<'_>,
        told: Option<Told>,
        passing: &mut Passing<'_, M>,
    ) -> Result<(u16, bool), Unpassable> {
        let remote = self.remote((id, n, passing.side), media, told, passing)?;
        self.ensure(id, n, media.transport, passing)?;
        let Some(call) = self.all.get_mut(&id) else { return Err(Unpassable::NoPorts) };
        let Some(Some(stream)) = call.streams.get_mut(n) else { return Err(Unpassable::NoPorts) };
        let side = passing.side;
        let other = &stream.legs[1 - side];
        // An answer says how the offer was taken. The two gateways may see different ways at
        // a moment, and would else send by one and listen by the other.
        let may_tell = !passing.is_answer || other.is_over();
        if passing.meaning == Meaning::Nothing {
            return Ok((other.port, passing.is_told && other.told && may_tell));
        }
        if encrypts(stream.transport) != encrypts(media.transport) {
            // An offer may change it; an answer may not (RFC 3264, 6.1).
            if passing.is_answer && call.sides[0].tag.is_some() {
                return Err(Unpassable::Encryption);
            }
        }
        stream.transport = media.transport;
        // Packets of video are larger than the overlay carries.
        let is_small = media.kind == b"audio" || media.kind == b"image";
        // What comes over the overlay leaves it here: it doesn't go round by it.
        let comes_over = matches!(remote, Remote::Overlay { .. });
        let tells = passing.is_told && is_small && !comes_over;
        stream.legs[1 - side].told |= tells;
        match passing.meaning {
            Meaning::Offers(by) => stream.legs[side].pending = Some((by, Change::To(remote))),
            Meaning::Holds => {
                stream.legs[side].pending = None;
                stream.legs[side].turn(remote);
            }
            Meaning::Nothing => {}
        }
        let stream = *stream;
        join(&stream, passing.media);
        Ok((stream.legs[1 - side].port, tells && may_tell))
    }

    fn remote<M: Media>(
        &self,
        leg: (CallId, usize, SideId),
        media: &sdp::Media<'_>,
        told: Option<Told>,
        passing: &Passing<'_, M>,
    ) -> Result<Remote, Unfit> {
        let own = passing.config.node;
        // Who answers so has already found the way, and goes by it.
        let (id, n, side) = leg;
        let has_told = self.stream_of(id, n).is_some_and(|stream| stream.legs[side].told);
        let is_agreed = passing.is_answer && has_told;
        let believed = told.filter(|told| {
            let is_found = is_agreed || passing.media.knows(told.node);
            passing.is_believed && told.node != own && is_found
        });
        if let Some(Told { node, port }) = believed {
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

    /// Has ports for stream `n`.
    fn ensure<M: Media>(
        &mut self,
        id: CallId,
        n: usize,
        transport: Transport,
        passing: &mut Passing<'_, M>,
    ) -> Result<(), Unpassable> {
        let Some(call) = self.all.get_mut(&id) else { return Err(Unpassable::NoPorts) };
        if call.streams.len() <= n {
            call.streams.resize(n + 1, None);
        }
        if call.streams[n].is_some() {
            return Ok(());
        }
        if call.streams.iter().flatten().count() >= MAX_STREAMS {
            return Err(Unpassable::NoPorts);
        }
        let mut take = || self.ports.take(|port| passing.media.open(port));
        let first = take().ok_or(Unpassable::NoPorts)?;
        let Some(second) = take() else {
            passing.media.close(first);
            self.ports.give_back(first);
            return Err(Unpassable::NoPorts);
        };
        let (legs, clocks) = ([first, second].map(Leg::new), Clocks::default());
        call.streams[n] = Some(Stream { transport, clocks, legs });
        self.owners.insert(first, (id, n, 0));
        self.owners.insert(second, (id, n, 1));
        Ok(())
    }

    /// A call as it is now.
    pub fn view(&self, id: CallId) -> Option<CallView> {
        let call = self.all.get(&id)?;
        let streams = || call.streams.iter().flatten();
        let is_over = |leg: &Leg| matches!(leg.remote, Remote::Overlay { .. });
        Some(CallView {
            id,
            name: shown(&call.name),
            from: shown(&call.ends[0]),
            to: shown(&call.ends[1]),
            since: call.since,
            answered: call.answered,
            is_over: streams().flat_map(|stream| &stream.legs).any(is_over),
            ports: streams().map(|stream| stream.legs.map(|leg| leg.port)).collect(),
        })
    }

    /// Pairs of ports that are free.
    pub fn free_ports(&self) -> usize {
        self.ports.len()
    }
}

/// The most characters of what others have written that are shown.
const MOST_SHOWN: usize = 256;

/// What others have written, for people to read: not longer than they like, and without
/// what would move a terminal's cursor or the direction of its text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let moves = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST_SHOWN)]);
    let mut all = text.chars().map(|c| if moves(c) { '\u{fffd}' } else { c });
    let mut out: String = all.by_ref().take(MOST_SHOWN).collect();
    if all.next().is_some() {
        out.push('…');
    }
    out
}

impl Call {
    /// Pairs of ports that it has.
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

fn join(stream: &Stream, media: &mut impl Media) {
    let [a, b] = &stream.legs;
    for (leg, other) in [(a, b), (b, a)] {
        let relay = Relay {
            onto: other.port,
            remote: leg.remote,
            described: leg.described,
            told: leg.told,
            is_rtp: stream.transport != Transport::Datagrams,
            is_encrypted: encrypts(stream.transport),
            clocks: stream.clocks,
        };
        media.relay(leg.port, &relay);
    }
}
