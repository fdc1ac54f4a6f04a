//! Forwarding of requests to their next hops.

use super::refusal::{
    DRAINING, RefusedRequest, comes_round, for_us, grows_too_large, no_hop, overloaded, too_large,
    trunk_is_full, unpassable,
};
use super::{CallOutcome, Event, Gateway, Kind, Pending};
use crate::call_legs::{self, CallLegs, HopEnds, PARAM};
use crate::calls::{Call, CallId, OfferAnswerState, Side, shown};
use crate::config::Transport;
use crate::dialog::{Cause, DialogEnd};
use crate::hops::{LARGE, NoHop};
use crate::media::Media;
use crate::party_addresses::PartyAddresses;
use core::net::IpAddr;
use core::time::Duration;
use rand::Rng as _;
use trunkline_base::Time;
use trunkline_sip::proxy::Routed;
use trunkline_sip::transaction::{Hop, TransactionId};
use trunkline_sip::value::{Uri, Via};
use trunkline_sip::{Edit, Message, Name, Start};

/// Maximum number of gateways whose nodes are remembered.
const MAX_NODES: usize = 1_024;

/// Time without any message on a connection after which a long INVITE goes by UDP: it is answered
/// with 100 within 200 ms (RFC 3261, 17.2.1), and this is eight times the usual estimate of a round
/// trip. Other requests have no such answer (RFC 4320, 4.1), and wait for their final one.
const SILENT: Duration = Duration::from_secs(4);

/// Number of times that a request may have passed this gateway before.
const ROUNDS: usize = 3;

/// A request between its two hops.
struct Onward<'a> {
    id: TransactionId,
    from: Hop,
    down: Hop,
    message: &'a Message,
    routed: &'a Routed,
    passes: &'a CallLegs,
    /// Whether it may go by a connection, if it is too long for a datagram.
    may_connect: bool,
}

/// Reasons for which a request was not sent.
enum NotSent {
    Refused(RefusedRequest),
    /// It has as many bytes, and its next hop may take a connection.
    Long(usize),
}

/// Next hop of a request.
pub(super) struct Next {
    pub hop: Hop,
    /// Whether the hop is the registered or recorded flow of the destination itself.
    pub is_flow: bool,
    /// Whether a connection is used only because of the request's length.
    pub is_long: bool,
}

impl Gateway {
    pub(super) fn forward(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        routed: &Routed,
        media: &mut impl Media,
    ) -> Result<(), RefusedRequest> {
        let Start::Request { method, uri } = message.start() else { return Ok(()) };
        let all = call_legs::of(&self.calls, message, &routed.own);
        let mut passes = call_legs::of_parties(&self.calls, message, &all);
        if routed.next == uri && self.is_for_us(uri) {
            return Err(for_us(method, self.is_draining));
        }
        let Next { hop: down, is_flow, .. } =
            match self.next_hop(now, &from, message, (routed, &all, 0), media) {
                Ok(found) => found,
                Err(NoHop::Unknown(name)) => return self.wait(name, (id, from, message.clone())),
                Err(why) => return Err(no_hop(&why)),
            };
        if self.comes_round(message) || self.is_own(&down) {
            return Err(comes_round());
        }
        let mut kind = self.kind(message, &passes);
        if kind == Kind::Initial {
            passes = vec![(self.begin(now, message, from, None)?, 0)];
        } else if method == b"INVITE"
            && self.config.admits(from.remote.ip())
            && let Some(forgotten) = self.forgotten(routed)
        {
            passes = vec![(self.begin(now, message, from, Some(forgotten))?, 0)];
            kind = Kind::Resuming;
        }
        if !matches!(kind, Kind::Initial | Kind::Resuming)
            && !call_legs::are_between(&self.calls, &passes, from.remote.ip(), down.remote.ip())
        {
            (passes, kind) = (CallLegs::new(), Kind::Other);
        }
        call_legs::heard(&mut self.calls, &passes, now);
        call_legs::update(&mut self.calls, &passes, message);
        if kind == Kind::Initial {
            self.aim(&passes, down, is_flow);
        }
        let may_connect = !is_flow;
        let on = Onward { id, from, down, message, routed, passes: &passes, may_connect };
        let done = self.send_on(now, on, &all, media);
        if let (Err(why), Kind::Initial | Kind::Resuming) = (&done, kind) {
            self.undo(&passes, why, media);
        }
        let (down, is_long) = done?;
        self.note_node(from.remote.ip(), &passes);
        self.stats.requests += 1;
        let method = method.to_vec();
        let is_described = call_legs::description(message).is_some();
        let pending = Pending {
            kind,
            passes,
            up: from,
            down,
            method,
            is_described,
            is_long,
            is_next_hop: message.list(Name::Via).count() == 1,
            is_flow,
            sent: now,
            places: PartyAddresses::of(message, from.remote.ip(), &self.config),
            told: Cause::told(message)
                .filter(|_| kind == Kind::Bye && self.config.trusts(from.remote.ip())),
            is_accepted: false,
        };
        let is_invite = pending.method == b"INVITE";
        self.pending.insert(id, pending);
        if is_long && is_invite {
            self.long.push_back((now + SILENT, id));
        }
        Ok(())
    }

    /// The effect of a request on its calls, as far as it alone shows that.
    fn kind(&self, message: &Message, passes: &CallLegs) -> Kind {
        let has_tag = message.to().is_some_and(|to| to.tag().is_some());
        match message.start() {
            Start::Request { method: b"INVITE", .. } if !has_tag => Kind::Initial,
            Start::Request { method: b"BYE", .. } if call_legs::are_up(&self.calls, passes) => {
                Kind::Bye
            }
            _ => Kind::Other,
        }
    }

    /// Notes the next hop of an INVITE as the way to the callee of its call.
    fn aim(&mut self, passes: &CallLegs, down: Hop, is_flow: bool) {
        let Some(call) = passes.first().and_then(|(id, _)| self.calls.get_mut(*id)) else { return };
        let places = PartyAddresses::at(down.remote.ip());
        let (is_next_hop, is_direct, hop) = (is_flow, is_flow, Some(down));
        call.sides[1] = Side { hop, places, is_next_hop, is_direct, ..Side::default() };
    }

    /// Sends a long request by UDP, and all others of the same connection, if nothing has come from its
    /// host: a host may accept connections that no program serves.
    pub(super) fn leave_silent(&mut self, now: Time, id: TransactionId, media: &mut impl Media) {
        let Some(pending) = self.pending.get(&id).filter(|p| p.is_long) else { return };
        let (remote, sent) = (pending.down.remote, pending.sent);
        let Some(connection) = pending.down.connection else { return };
        if !self.transactions.is_unanswered(id) || !self.hops.is_silent(sent, connection) {
            return;
        }
        self.hops.takes_only_udp(now, connection);
        for id in self.transactions.by_connection(connection) {
            self.by_datagram(now, id, media);
        }
        if self.transactions.by_connection(connection).is_empty() {
            self.hops.closed(connection);
        }
        self.events.push_back(Event::Silent(remote, connection, true));
    }

    /// Reports a host from which nothing has come on the connection of a request that has had no
    /// answer in time. If the connection was made for the length of an INVITE, the next ones go by
    /// UDP. Other requests may rightly stay without an answer (RFC 4320, 4.2).
    pub(super) fn note_silence(&mut self, now: Time, id: TransactionId) {
        let Some(pending) = self.pending.get(&id) else { return };
        let (remote, is_long) =
            (pending.down.remote, pending.is_long && pending.method == b"INVITE");
        if let Some(connection) = pending.down.connection
            && self.hops.is_silent(pending.sent, connection)
        {
            if is_long {
                self.hops.takes_only_udp(now, connection);
            }
            self.events.push_back(Event::Silent(remote, connection, is_long));
        }
    }

    /// Sends a request on, by a connection if it is too long for a datagram and the next hop may take
    /// one. Returns the next hop, and whether a connection is used because of the length.
    fn send_on(
        &mut self,
        now: Time,
        mut on: Onward<'_>,
        all: &CallLegs,
        media: &mut impl Media,
    ) -> Result<(Hop, bool), RefusedRequest> {
        let mut is_long = false;
        if self.is_full(&on, media) {
            return Err(trunk_is_full());
        }
        let mut done = self.pass_on(now, &on, media);
        if let Err(NotSent::Long(bytes)) = done {
            on.may_connect = false;
            let route = (on.routed, all, bytes);
            if let Ok(next) = self.next_hop(now, &on.from, on.message, route, media) {
                (on.down, is_long) = (next.hop, next.is_long);
            }
            done = self.pass_on(now, &on, media);
        }
        match done {
            Ok(()) => Ok((on.down, is_long)),
            Err(NotSent::Refused(why)) => Err(why),
            Err(NotSent::Long(_)) => Err(too_large()),
        }
    }

    /// Whether a call begins whose media would go over a trunk that takes no new ones, as far as the
    /// next hop's node is known: it is configured, or was that of the last call there.
    fn is_full(&self, on: &Onward<'_>, media: &impl Media) -> bool {
        let ip = on.down.remote.ip().to_canonical();
        let is_new = on.message.to().is_none_or(|to| to.tag().is_none());
        let begins = is_new && on.message.cseq().is_some_and(|cseq| cseq.method == b"INVITE");
        if !begins || !self.config.trusts(ip) {
            return false;
        }
        let said = self.config.nodes.iter().find(|(network, _)| network.contains(&ip));
        let node = said.map(|(_, node)| node).or_else(|| self.nodes.get(&ip));
        node.is_some_and(|node| !media.admits(*node))
    }

    /// Closes a call whose INVITE is refused here. The refusal is logged already, and no call ever
    /// existed for its ends; one that a trunk refuses is counted as a call that ended.
    fn undo(&mut self, passes: &CallLegs, why: &RefusedRequest, media: &mut impl Media) {
        for &(call, _) in passes {
            if let Some(view) = self.calls.view(call).filter(|_| why.by_trunk) {
                self.events.push_back(Event::Ended(Box::new(view), CallOutcome::Trunk));
            }
            self.calls.close(call, media);
        }
    }

    /// Notes the node that the gateway at `ip` has, from the description of one of its calls.
    pub(super) fn note_node(&mut self, ip: IpAddr, passes: &[(CallId, usize)]) {
        let ip = ip.to_canonical();
        if !self.config.trusts(ip) {
            return;
        }
        if self.nodes.len() >= MAX_NODES {
            self.nodes.clear();
        }
        let node = passes.iter().find_map(|&(id, side)| self.calls.overlay_node(id, side));
        if let Some(node) = node {
            self.nodes.insert(ip, node);
        }
    }

    /// Resends a request by UDP whose connection, used only for its length, could not be made, or
    /// refuses it with the reason for which that fails. Returns false if there is no other way, or
    /// that was not the reason for the connection; then nothing is done.
    pub(super) fn by_datagram(
        &mut self,
        now: Time,
        id: TransactionId,
        media: &mut impl Media,
    ) -> bool {
        let Some(pending) = self.pending.get(&id).filter(|p| p.is_long).cloned() else {
            return false;
        };
        let remote = pending.down.remote.ip();
        let Some(socket) = self.config.socket(Transport::Udp, remote, media.local(remote)) else {
            return false;
        };
        let Some(message) = self.transactions.take_back(id) else { return false };
        let down = Hop { socket, connection: None, ..pending.down };
        match self.resend(now, id, &message, (&pending, down), media) {
            Ok(()) => {
                if let Some(pending) = self.pending.get_mut(&id) {
                    (pending.down, pending.is_long) = (down, false);
                }
            }
            // The call or the configuration has changed since it was sent.
            Err((code, reason, lines)) => {
                self.stats.refused += 1;
                self.transactions.refuse(now, id, (code, &reason), &lines);
                self.forget(now, id, CallOutcome::Refused(code), media);
            }
        }
        true
    }

    /// Sends a request to another hop. An error has the status code, the reason phrase and the header
    /// lines of its refusal.
    fn resend(
        &mut self,
        now: Time,
        id: TransactionId,
        message: &Message,
        (pending, down): (&Pending, Hop),
        media: &mut impl Media,
    ) -> Result<(), (u16, String, Vec<u8>)> {
        let routed = self.route(message);
        let routed = routed.map_err(|why| (why.code(), why.reason(), why.lines()))?;
        let (from, passes, routed) = (pending.up, &pending.passes, &routed);
        let on = Onward { id, from, down, message, routed, passes, may_connect: false };
        let refusal = match self.pass_on(now, &on, media) {
            Ok(()) => return Ok(()),
            Err(NotSent::Refused(refusal)) => refusal,
            Err(NotSent::Long(_)) => too_large(),
        };
        if let Some(why) = refusal.why {
            self.events.push_back(Event::TurnedAway(from.remote, refusal.code, why));
        }
        Err((refusal.code, refusal.reason.to_owned(), refusal.lines()))
    }

    /// Whether a hop is one of this gateway's sockets.
    pub(super) fn is_own(&self, down: &Hop) -> bool {
        self.config.sockets.iter().any(|socket| socket.address == down.remote)
    }

    /// Whether a request has passed here more often than proxies have reason to send it.
    fn comes_round(&self, message: &Message) -> bool {
        let is_own = |via: &&[u8]| {
            let via = Via::parse(via);
            via.is_some_and(|via| self.config.is_own(via.host, via.port, false))
        };
        message.list(Name::Via).filter(is_own).count() > ROUNDS
    }

    /// The call that one of this gateway's own routes names but that it has no record of. The call
    /// continues after a restart of the gateway, and its media are restored when it is refreshed.
    fn forgotten(&self, routed: &Routed) -> Option<CallId> {
        let mut named = routed.own.iter().filter_map(|route| call_legs::named_by(route));
        let first = named.next()?;
        self.calls.get(first).is_none().then_some(first)
    }

    /// Rewrites and sends a request.
    fn pass_on(
        &mut self,
        now: Time,
        on: &Onward<'_>,
        media: &mut impl Media,
    ) -> Result<(), NotSent> {
        let &Onward { id, from, down, message, routed, passes, may_connect } = on;
        let Start::Request { method, .. } = message.start() else { return Ok(()) };
        let mut edit = Edit::new(message);
        routed.apply(&mut edit);
        // Only gateways tell each other why they end a call.
        if ![&from, &down].iter().all(|hop| self.config.trusts(hop.remote.ip())) {
            edit.remove(Name::Ended);
        }
        let has_tag = message.to().is_some_and(|to| to.tag().is_some());
        let is_secure = routed.is_secure(message);
        match method {
            b"REGISTER" => self.add_path(&mut edit, &from, &down, is_secure),
            b"INVITE" | b"SUBSCRIBE" | b"REFER" | b"NOTIFY" if !has_tag => {
                let call = passes.first().map(|(call, _)| *call);
                self.record_route(&mut edit, &from, &down, is_secure, call);
            }
            _ => {}
        }
        let described = call_legs::description(message);
        if let Some(part) = described.filter(|_| passes.is_empty()) {
            edit.set_part(part.bytes, &call_legs::stripped(part.bytes));
        } else if let Some(part) = described {
            let meaning = match method {
                b"INVITE" if !has_tag => OfferAnswerState::Holds,
                b"INVITE" | b"UPDATE" | b"PRACK" => OfferAnswerState::Offers(id),
                _ => OfferAnswerState::Nothing,
            };
            let between = HopEnds {
                from: &from,
                to: &down,
                meaning,
                is_answer: false,
                begins: method == b"INVITE" && !has_tag,
                answers: None,
            };
            let parts = (&self.config, media);
            match call_legs::body(&mut self.calls, passes, part, &between, parts) {
                Ok((body, None)) => edit.set_part(part.bytes, &body),
                Ok((_, Some(why))) | Err(why) => {
                    let name = shown(message.call_id().unwrap_or_default());
                    self.events.push_back(Event::Refused(name, from.remote.ip(), why));
                    return Err(NotSent::Refused(unpassable(why)));
                }
            }
        }
        let own = self.own_hop(&down);
        self.transactions.stamp(&mut edit, id, &own);
        let bytes = edit.finish();
        if may_connect && down.connection.is_none() && bytes.len() > LARGE {
            return Err(NotSent::Long(bytes.len()));
        }
        self.hops.used(&down);
        match self.transactions.forward(now, id, down, bytes) {
            true => Ok(()),
            false => {
                self.stats.too_large += 1;
                Err(NotSent::Refused(grows_too_large()))
            }
        }
    }

    fn is_for_us(&self, uri: &[u8]) -> bool {
        Uri::parse(uri).is_some_and(|uri| self.config.is_own(uri.host, uri.port, uri.secure))
    }

    /// Finds the next hop of a request that is sent in `bytes` bytes. One that must be encrypted on every hop (RFC 3261, 26.2.2)
    /// fails if that hop doesn't use TLS, whatever its routes and the destination's flow are.
    pub(super) fn next_hop(
        &mut self,
        now: Time,
        from: &Hop,
        message: &Message,
        (routed, passes, bytes): (&Routed, &CallLegs, usize),
        media: &impl Media,
    ) -> Result<Next, NoHop> {
        let next = self.any_hop(now, from, message, (routed, passes, bytes), media)?;
        let socket = self.config.sockets.get(next.hop.socket as usize);
        let is_tls = socket.is_some_and(|socket| socket.transport == Transport::Tls);
        match routed.is_secure(message) && !is_tls {
            true => Err(NoHop::NoTransport),
            false => Ok(next),
        }
    }

    fn any_hop(
        &mut self,
        now: Time,
        from: &Hop,
        message: &Message,
        (routed, passes, bytes): (&Routed, &CallLegs, usize),
        media: &impl Media,
    ) -> Result<Next, NoHop> {
        let Start::Request { uri, .. } = message.start() else { return Err(NoHop::Uri) };
        let token = |route: &Vec<u8>| self.tokens.read(Uri::parse(route)?.user?);
        let is_elsewhere = |hop: &Hop| hop.remote != from.remote && self.hops.is_usable(hop);
        if let Some(hop) = routed.own.iter().rev().find_map(token).filter(is_elsewhere) {
            return Ok(Next { hop, is_flow: true, is_long: false });
        }
        if routed.next == uri
            && let Some((call, side)) = passes.last()
            && let Some(other) = self.calls.get(*call).map(|call| &call.sides[1 - side])
            && let Some(hop) = other.hop.filter(|hop| other.is_next_hop && is_elsewhere(hop))
        {
            return Ok(Next { hop, is_flow: true, is_long: false });
        }
        let (hop, is_long) =
            self.hops.resolve(now, &self.config, &routed.next, bytes, |ip| media.local(ip))?;
        self.hops.made_for(from.remote.ip(), &hop);
        Ok(Next { hop, is_flow: false, is_long })
    }

    /// Begins a call, or refuses it where a limit is reached.
    fn begin(
        &mut self,
        now: Time,
        message: &Message,
        from: Hop,
        forgotten: Option<CallId>,
    ) -> Result<CallId, RefusedRequest> {
        let tag = message.from().and_then(|from| from.tag()).unwrap_or_default().to_vec();
        let name = message.call_id().unwrap_or_default();
        if let Some(id) = self.calls.challenged(name, &tag, from.remote.ip())
            && let Some(call) = self.calls.get_mut(id)
        {
            (call.challenged, call.sides[0].hop) = (None, Some(from));
            call.sides[0].dialog = DialogEnd::of_request(message);
            return Ok(id);
        }
        // A call is one, however often it passes here on the way from one of its ends to the other.
        let part_of = self.calls.passed(name, &tag, from.remote.ip());
        if self.is_draining && part_of.is_none() {
            return Err(overloaded(DRAINING));
        }
        if self.calls.len() >= self.config.max_calls {
            return Err(overloaded("max_calls is reached"));
        }
        // An untrusted sender may not take all the capacity; another gateway or a proxy may.
        let source = from.remote.ip();
        let is_its = |call: &&Call| call.sides[0].hop.is_some_and(|h| h.remote.ip() == source);
        if !self.config.trusts(source) {
            let (mut calls, mut rings, mut pairs) = (0, 0, 0);
            for call in self.calls.iter().map(|(_, call)| call).filter(is_its) {
                calls += 1;
                rings += usize::from(call.answered.is_none());
                pairs += call.pairs();
            }
            let most = self.config.max_calls;
            if calls >= most - most / 4 {
                return Err(overloaded("this sender has three quarters of max_calls"));
            }
            if rings >= (most / 2).max(1) {
                return Err(overloaded("half of max_calls are ringing calls of this sender"));
            }
            if pairs > self.calls.free_ports() {
                let why = "this sender's calls hold as many media ports as are free";
                return Err(overloaded(why));
            }
        }
        let id = forgotten.unwrap_or_else(|| CallId(self.rng.next_u64()));
        // An end without a tag is identified by an empty one (RFC 3261, 12.2.2).
        let tag = Some(tag);
        let is_direct = message.list(Name::Via).count() == 1;
        let places = PartyAddresses::of(message, from.remote.ip(), &self.config);
        let dialog = DialogEnd::of_request(message);
        let hop = Some(from);
        let side = Side { tag, hop, places, is_next_hop: is_direct, is_direct, dialog };
        self.calls.open(now, id, message, side);
        match part_of {
            Some(first) => self.calls.join(first, id),
            None => self.stats.calls += 1,
        }
        Ok(id)
    }

    /// Adds a Path header (RFC 3327): requests for the registering phone come through here, along
    /// the flow that it registered by (RFC 5626). The header names the socket towards the
    /// registrar.
    fn add_path(&self, edit: &mut Edit<'_>, from: &Hop, down: &Hop, is_secure: bool) {
        let token = format!("{}@", self.tokens.write(from));
        let path = self.own_uri(down.socket, is_secure, &token, "");
        edit.push_front(Name::Path, path.as_bytes());
        // Registrars refuse a Path if the phone doesn't list it as supported, although the phone
        // has nothing to do for it.
        let mut said = edit.message().list(Name::Supported);
        if !said.any(|option| option.eq_ignore_ascii_case(b"path")) {
            edit.push_front(Name::Supported, b"path");
        }
    }

    /// Adds Record-Route headers to stay on the path of the dialog: two, if its two sides use
    /// different sockets (RFC 5658).
    fn record_route(
        &self,
        edit: &mut Edit<'_>,
        from: &Hop,
        down: &Hop,
        is_secure: bool,
        call: Option<CallId>,
    ) {
        let param = call.map(|CallId(id)| format!(";{PARAM}={id:016x}")).unwrap_or_default();
        let token = format!("{}@", self.tokens.write(from));
        // The call's own state has its flows.
        let user = if call.is_some() { "" } else { &token };
        let near = self.own_uri(from.socket, is_secure, user, &param);
        edit.push_front(Name::RecordRoute, near.as_bytes());
        if down.socket != from.socket {
            let far = self.own_uri(down.socket, is_secure, "", &param);
            edit.push_front(Name::RecordRoute, far.as_bytes());
        }
    }

    /// Route URI of one of this gateway's sockets. For a request that must be encrypted on every
    /// hop, the URI demands that too (RFC 3261, 16.6, step 4).
    fn own_uri(&self, socket: u32, is_secure: bool, user: &str, params: &str) -> String {
        let Some(socket) = self.config.sockets.get(socket as usize) else { return String::new() };
        if is_secure && socket.transport == Transport::Tls {
            return format!("<sips:{user}{};lr{params}>", socket.address);
        }
        let transport = socket.transport.in_uri();
        format!("<sip:{user}{};transport={transport};lr{params}>", socket.address)
    }

    /// The beginning of this gateway's Via header towards `down`.
    pub(super) fn own_hop(&self, down: &Hop) -> String {
        let Some(socket) = self.config.sockets.get(down.socket as usize) else {
            return String::new();
        };
        format!("SIP/2.0/{} {};rport", socket.transport.in_via(), socket.address)
    }
}
