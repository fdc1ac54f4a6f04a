//! Requests and responses on their way through.

use crate::calls::{Call, CallId, CallView, Calls, Side, Unpassable};
use crate::config::Config;
use crate::hops::{Hops, NoHop};
use crate::media::Media;
use crate::passes::{self, Between, PARAM, Passes};
use crate::ports::Ports;
use crate::token::Tokens;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::Time;
use trunkline_sip::proxy::{self, Routed};
use trunkline_sip::reply;
use trunkline_sip::transaction::{Hop, Incoming, Output, TransactionId, Transactions};
use trunkline_sip::value::Uri;
use trunkline_sip::{Edit, Message, Name, Start};

/// How long a call that has been answered may be without a packet or a message.
const IDLE: Duration = Duration::from_secs(600);
/// How long a call is kept whose INVITE has ended without an answer: as long as one
/// may still come (RFC 6026, timer L).
const UNANSWERED: Duration = Duration::from_secs(64);
/// How often calls are looked through.
const SWEEP: Duration = Duration::from_secs(1);
/// Requests that wait for the name service.
const WAITING: usize = 1_000;

/// What a gateway has to say, beside messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Find the address of this name, and say [`Gateway::named`].
    LookUp(String),
    /// A call has been answered.
    Answered(CallId),
    /// A call is over; as it was before.
    Ended(Box<CallView>),
    /// The media of a call go past the overlay, although the next hop is trusted: it
    /// doesn't know of virtual ports, or this node doesn't know its.
    Plain(CallId),
    /// Nothing in a response's description can be relayed, and all of it was refused;
    /// or it isn't understood, and passed as it is.
    Refused(Vec<u8>, Unpassable),
}

/// What a gateway has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams that are no messages, and responses that are malformed.
    pub malformed: u64,
    /// Requests from hosts that may send none.
    pub forbidden: u64,
    /// Requests that were forwarded.
    pub requests: u64,
    /// Requests that were refused here.
    pub refused: u64,
    /// Calls that there are now.
    pub live: usize,
    /// Calls so far.
    pub calls: u64,
    /// Of these: answered.
    pub answered: u64,
    /// Of these: that were given up for their silence.
    pub idle: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An INVITE that begins a call.
    Initial,
    /// A BYE that ends one.
    Bye,
    /// Anything else.
    Other,
}

/// What is known of a request that has been forwarded.
#[derive(Clone, Debug)]
struct Pending {
    kind: Kind,
    passes: Passes,
    up: Hop,
    down: Hop,
    method: Vec<u8>,
}

/// A request between its two hops.
struct Onward<'a> {
    id: TransactionId,
    from: Hop,
    down: Hop,
    message: &'a Message,
    routed: &'a Routed,
    passes: &'a Passes,
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Gateway {
    config: Config,
    transactions: Transactions,
    calls: Calls,
    pending: BTreeMap<TransactionId, Pending>,
    hops: Hops,
    waiting: BTreeMap<String, Vec<(TransactionId, Hop, Message)>>,
    tokens: Tokens,
    rng: ChaCha20Rng,
    events: VecDeque<Event>,
    stats: Stats,
    sweep: Time,
    is_draining: bool,
}

/// A request that is refused: with this code, this reason, and these lines.
struct Refusal(u16, &'static str, Vec<u8>);

impl Gateway {
    /// Nothing has come yet. `secret` names transactions and calls; `lasting` is what a
    /// gateway keeps over its starts, so that phones find it again that have registered.
    pub fn new(config: Config, secret: [u8; 32], lasting: &[u8; 32]) -> Gateway {
        let mut rng = ChaCha20Rng::from_seed(secret);
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let ports = Ports::new(&config.ports, rng.next_u64());
        Gateway {
            transactions: Transactions::new(config.max_transactions, seed),
            calls: Calls::new(ports),
            pending: BTreeMap::new(),
            hops: Hops::default(),
            waiting: BTreeMap::new(),
            tokens: Tokens::new(lasting),
            rng,
            events: VecDeque::new(),
            stats: Stats::default(),
            sweep: Time::ZERO,
            is_draining: false,
            config,
        }
    }

    /// What it goes by.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has counted.
    pub fn stats(&self) -> Stats {
        Stats { live: self.calls.len(), ..self.stats }
    }

    /// Pairs of media ports that are free.
    pub fn free_ports(&self) -> usize {
        self.calls.free_ports()
    }

    /// The calls there are.
    pub fn calls(&self) -> impl Iterator<Item = CallView> {
        self.calls.iter().filter_map(|(id, _)| self.calls.view(id))
    }

    /// One of them.
    pub fn call(&self, id: CallId) -> Option<CallView> {
        self.calls.view(id)
    }

    /// Whether a connection is there, or is to be made.
    pub fn is_open(&self, connection: u64) -> bool {
        self.hops.is_open(connection)
    }

    /// Takes no more calls, or takes some again; those that there are go on.
    pub fn drain(&mut self, on: bool) {
        self.is_draining = on;
    }

    /// Somebody has connected to socket `socket`: the connection's number.
    pub fn connected(&mut self, socket: u32, remote: SocketAddr) -> u64 {
        self.hops.connected(socket, remote)
    }

    /// A connection is over, or could not be made.
    pub fn disconnected(&mut self, now: Time, connection: u64, media: &mut impl Media) {
        self.hops.closed(connection);
        for id in self.transactions.disconnected(now, connection) {
            self.forget(now, id, media);
        }
    }

    /// The name service has answered for `name`.
    pub fn named(
        &mut self,
        now: Time,
        name: &str,
        address: Option<IpAddr>,
        media: &mut impl Media,
    ) {
        self.hops.named(now, name, address);
        for (id, from, message) in self.waiting.remove(name).unwrap_or_default() {
            self.request(now, id, from, &message, media);
        }
    }

    /// There were packets in a call.
    pub fn heard(&mut self, now: Time, id: CallId) {
        passes::heard(&mut self.calls, &[(id, 0)], now);
    }

    /// Takes what has come.
    pub fn receive(&mut self, now: Time, from: Hop, bytes: &[u8], media: &mut impl Media) {
        // What keeps a NAT's binding alive.
        if bytes.iter().all(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return;
        }
        match Message::parse(bytes) {
            Ok(message) => self.take(now, from, &message, media),
            Err(_) => self.stats.malformed += 1,
        }
    }

    /// Takes a message that has come.
    pub fn take(&mut self, now: Time, from: Hop, message: &Message, media: &mut impl Media) {
        let request = match message.start() {
            Start::Request { method, .. } => Some(method),
            Start::Response { .. } => None,
        };
        if request.is_some() && !self.admits(from.remote.ip()) {
            self.stats.forbidden += 1;
            return;
        }
        if let Some(fault) = message.fault() {
            self.stats.malformed += 1;
            if request.is_some_and(|method| method != b"ACK") && message.via().is_some() {
                let said = (fault.code(), &*fault.to_string());
                let bytes = reply::response(message, from.remote, said, b"fault", b"");
                self.transactions.answer(from, message, bytes);
            }
            return;
        }
        match self.transactions.receive(now, from, message) {
            Incoming::Request(id) => self.request(now, id, from, message, media),
            Incoming::Ack => self.ack(now, from, message, media),
            Incoming::Response(id) => self.response(now, id, from, message, media),
            Incoming::Refused => self.stats.refused += 1,
            Incoming::Absorbed => {}
        }
    }

    /// Whether requests from there are heard at all.
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.config.admits(address) || self.config.routes.iter().any(|r| r.via.ip() == address)
    }

    fn route(&self, message: &Message) -> Result<Routed, proxy::Refusal> {
        let is_own = |uri: &Uri<'_>| self.config.is_own(uri.host, uri.port, uri.secure);
        proxy::route(message, is_own)
    }

    fn request(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        media: &mut impl Media,
    ) {
        let routed = match self.route(message) {
            Ok(routed) => routed,
            Err(why) => {
                self.stats.refused += 1;
                let said = (why.code(), &*why.reason());
                return self.transactions.refuse(now, id, said, &why.lines());
            }
        };
        let done = self.forward(now, id, from, message, &routed, media);
        if let Err(Refusal(code, reason, lines)) = done {
            self.stats.refused += 1;
            self.transactions.refuse(now, id, (code, reason), &lines);
        }
    }

    fn forward(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        routed: &Routed,
        media: &mut impl Media,
    ) -> Result<(), Refusal> {
        let Start::Request { method, uri } = message.start() else { return Ok(()) };
        let mut passes = passes::of(&self.calls, message, &routed.own);
        if routed.next == uri && self.is_for_us(uri) {
            return Err(for_us(method));
        }
        let (down, is_flow) = match self.next_hop(now, &from, message, routed, &passes) {
            Ok(found) => found,
            Err(NoHop::Unknown(name)) => return self.wait(name, (id, from, message.clone())),
            Err(why) => return Err(no_hop(&why)),
        };
        if self.config.sockets.iter().any(|socket| socket.address == down.remote) {
            return Err(Refusal(482, "Loop Detected", Vec::new()));
        }
        let has_tag = message.to().is_some_and(|to| to.tag().is_some());
        let kind = match method {
            b"INVITE" if !has_tag => Kind::Initial,
            b"BYE" if self.is_between_both(message, &passes) => Kind::Bye,
            _ => Kind::Other,
        };
        // One that goes on after a new start of this gateway has its media back when it
        // is refreshed.
        if kind == Kind::Initial || method == b"INVITE" && passes.is_empty() && routed.by_route {
            passes = vec![(self.begin(now, message, from, routed)?, 0)];
        }
        passes::heard(&mut self.calls, &passes, now);
        if let (Kind::Initial, [(call, _)]) = (kind, &passes[..])
            && let Some(call) = self.calls.get_mut(*call)
        {
            call.sides[1] = Side { tag: None, hop: Some(down), is_adjacent: is_flow };
        }
        let on = Onward { id, from, down, message, routed, passes: &passes };
        let done = self.pass_on(now, &on, media);
        if let (Err(_), Kind::Initial) = (&done, kind) {
            self.end(&passes, media);
        }
        done?;
        self.stats.requests += 1;
        let method = method.to_vec();
        self.pending.insert(id, Pending { kind, passes, up: from, down, method });
        Ok(())
    }

    /// Whether a request is of the dialog that has the media, not of another end that
    /// has answered too late.
    fn is_between_both(&self, message: &Message, passes: &Passes) -> bool {
        let to = message.to().and_then(|to| to.tag()).unwrap_or_default();
        let is = |&(id, side): &(CallId, usize)| {
            self.calls.get(id).is_some_and(|call| call.sides[1 - side].is(to))
        };
        passes.iter().all(is)
    }

    /// Sends a request on, changed as it must be.
    fn pass_on(
        &mut self,
        now: Time,
        on: &Onward<'_>,
        media: &mut impl Media,
    ) -> Result<(), Refusal> {
        let &Onward { id, from, down, message, routed, passes } = on;
        let Start::Request { method, .. } = message.start() else { return Ok(()) };
        let mut edit = Edit::new(message);
        routed.apply(&mut edit);
        let has_tag = message.to().is_some_and(|to| to.tag().is_some());
        match method {
            b"REGISTER" => self.add_path(&mut edit, &from, &down),
            b"INVITE" | b"SUBSCRIBE" | b"REFER" | b"NOTIFY" if !has_tag => {
                self.record_route(&mut edit, &from, &down, passes.first().map(|(call, _)| *call));
            }
            _ => {}
        }
        if !passes.is_empty() && passes::is_description(message) {
            if passes::is_encoded(message) {
                let lines = b"Accept-Encoding: identity\r\n".to_vec();
                return Err(Refusal(415, "Unsupported Media Type", lines));
            }
            let between = Between {
                config: &self.config,
                from: &from,
                to: &down,
                is_offer: method != b"ACK",
                answers: None,
            };
            match passes::body(&mut self.calls, passes, message.body(), &between, media) {
                Ok((body, None)) => edit.set_body(&body),
                Ok((_, Some(why))) | Err(why) => return Err(unpassable(why)),
            }
        }
        let own = self.own_hop(&down);
        self.transactions.stamp(&mut edit, id, &own);
        self.transactions.forward(now, id, down, edit.finish());
        Ok(())
    }

    fn is_for_us(&self, uri: &[u8]) -> bool {
        Uri::parse(uri).is_some_and(|uri| self.config.is_own(uri.host, uri.port, uri.secure))
    }

    /// Where a request goes, and whether that is the very flow of who it is for.
    fn next_hop(
        &mut self,
        now: Time,
        from: &Hop,
        message: &Message,
        routed: &Routed,
        passes: &Passes,
    ) -> Result<(Hop, bool), NoHop> {
        let Start::Request { uri, .. } = message.start() else { return Err(NoHop::Uri) };
        let token = |route: &Vec<u8>| self.tokens.read(Uri::parse(route)?.user?);
        let is_elsewhere = |hop: &Hop| hop.remote != from.remote && self.hops.is_usable(hop);
        if let Some(hop) = routed.own.iter().rev().find_map(token).filter(is_elsewhere) {
            return Ok((hop, true));
        }
        if routed.next == uri
            && let Some((call, side)) = passes.last()
            && let Some(other) = self.calls.get(*call).map(|call| &call.sides[1 - side])
            && let Some(hop) = other.hop.filter(|hop| other.is_adjacent && is_elsewhere(hop))
        {
            return Ok((hop, true));
        }
        let bytes = message.bytes().len();
        Ok((self.hops.resolve(now, &self.config, &routed.next, bytes)?, false))
    }

    fn wait(&mut self, name: String, it: (TransactionId, Hop, Message)) -> Result<(), Refusal> {
        let waiting: usize = self.waiting.values().map(Vec::len).sum();
        if waiting >= WAITING {
            return Err(overloaded());
        }
        let those = self.waiting.entry(name.clone()).or_default();
        if those.is_empty() {
            self.events.push_back(Event::LookUp(name));
        }
        those.push(it);
        Ok(())
    }

    /// A new call.
    fn begin(
        &mut self,
        now: Time,
        message: &Message,
        from: Hop,
        routed: &Routed,
    ) -> Result<CallId, Refusal> {
        if self.is_draining || self.calls.len() >= self.config.max_calls {
            return Err(overloaded());
        }
        let known = routed.own.iter().find_map(|route| passes::named_by(route));
        let id = known.unwrap_or_else(|| CallId(self.rng.next_u64()));
        let tag = message.from().and_then(|from| from.tag()).map(<[u8]>::to_vec);
        let is_adjacent = message.list(Name::Via).count() == 1;
        let side = Side { tag, hop: Some(from), is_adjacent };
        self.calls.open(now, id, message, side);
        self.stats.calls += 1;
        Ok(id)
    }

    /// Says that what registers is found through here (RFC 3327), by the flow that it
    /// came by (RFC 5626): at the socket that the registrar is spoken to by.
    fn add_path(&self, edit: &mut Edit<'_>, from: &Hop, down: &Hop) {
        let path = self.own_uri(down.socket, &format!("{}@", self.tokens.write(from)), "");
        edit.push_front(Name::Path, path.as_bytes());
        // Registrars refuse it of agents that don't say that they know of it; they need
        // to do nothing.
        let mut said = edit.message().list(Name::Supported);
        if !said.any(|option| option.eq_ignore_ascii_case(b"path")) {
            edit.push_front(Name::Supported, b"path");
        }
    }

    /// Stays in the way of the dialog; on both of its transports, if they are two (RFC
    /// 5658).
    fn record_route(&self, edit: &mut Edit<'_>, from: &Hop, down: &Hop, call: Option<CallId>) {
        let param = call.map(|CallId(id)| format!(";{PARAM}={id:016x}")).unwrap_or_default();
        let token = format!("{}@", self.tokens.write(from));
        // A call knows its flows by itself.
        let user = if call.is_some() { "" } else { &token };
        let near = self.own_uri(from.socket, user, &param);
        edit.push_front(Name::RecordRoute, near.as_bytes());
        if down.socket != from.socket {
            let far = self.own_uri(down.socket, "", &param);
            edit.push_front(Name::RecordRoute, far.as_bytes());
        }
    }

    /// The URI of one of this gateway's sockets, as a route.
    fn own_uri(&self, socket: u32, user: &str, params: &str) -> String {
        let Some(socket) = self.config.sockets.get(socket as usize) else { return String::new() };
        let transport = socket.transport.in_uri();
        format!("<sip:{user}{};transport={transport};lr{params}>", socket.address)
    }

    /// What a Via says of this gateway towards `down`.
    fn own_hop(&self, down: &Hop) -> String {
        let Some(socket) = self.config.sockets.get(down.socket as usize) else {
            return String::new();
        };
        format!("SIP/2.0/{} {};rport", socket.transport.in_via(), socket.address)
    }

    /// The ACK of a 2xx.
    fn ack(&mut self, now: Time, from: Hop, message: &Message, media: &mut impl Media) {
        let Ok(routed) = self.route(message) else { return };
        let passes = passes::of(&self.calls, message, &routed.own);
        let found = self.next_hop(now, &from, message, &routed, &passes);
        let Ok((down, _)) = found else { return };
        if self.config.sockets.iter().any(|socket| socket.address == down.remote) {
            return;
        }
        let mut edit = Edit::new(message);
        routed.apply(&mut edit);
        if !passes.is_empty() && passes::is_description(message) {
            let between = Between {
                config: &self.config,
                from: &from,
                to: &down,
                is_offer: false,
                answers: None,
            };
            match passes::body(&mut self.calls, &passes, message.body(), &between, media) {
                Ok((body, why)) => {
                    edit.set_body(&body);
                    why.inspect(|why| self.complain(&passes, *why));
                }
                Err(why) => self.complain(&passes, why),
            }
            self.settle(&passes, true, media);
        }
        let own = self.own_hop(&down);
        self.transactions.stamp_ack(&mut edit, from.remote, &own);
        self.transactions.send(down, edit.finish());
    }

    fn response(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        media: &mut impl Media,
    ) {
        let Some(pending) = self.pending.get(&id).cloned() else { return };
        let Start::Response { code, .. } = message.start() else { return };
        let mut edit = Edit::new(message);
        edit.pop(Name::Via, 1);
        let answering: Passes =
            pending.passes.iter().rev().map(|&(call, side)| (call, 1 - side)).collect();
        passes::heard(&mut self.calls, &answering, now);
        let tag = message.to().and_then(|to| to.tag());
        if !answering.is_empty() && passes::is_description(message) {
            // It came from where the request went, whatever address it has.
            let down = Hop { remote: pending.down.remote, ..from };
            let between = Between {
                config: &self.config,
                from: &down,
                to: &pending.up,
                is_offer: false,
                answers: tag.filter(|_| pending.kind == Kind::Initial),
            };
            match passes::body(&mut self.calls, &answering, message.body(), &between, media) {
                Ok((body, why)) => {
                    edit.set_body(&body);
                    why.inspect(|why| self.complain(&answering, *why));
                }
                Err(why) => self.complain(&answering, why),
            }
        }
        self.progress(now, &pending, code, tag, media);
        let is_described = passes::is_description(message);
        match code {
            ..200 if is_described => self.settle(&answering, true, media),
            200..300 if matches!(&pending.method[..], b"INVITE" | b"UPDATE" | b"PRACK") => {
                self.settle(&answering, true, media);
            }
            300.. => self.settle(&answering, false, media),
            _ => {}
        }
        self.transactions.respond(now, id, code, edit.finish());
        if code >= 200 && pending.method != b"INVITE" {
            self.pending.remove(&id);
        }
    }

    /// What a response makes of the calls it belongs to.
    fn progress(
        &mut self,
        now: Time,
        pending: &Pending,
        code: u16,
        tag: Option<&[u8]>,
        media: &mut impl Media,
    ) {
        match (pending.kind, code) {
            (Kind::Initial, 101..300) => {
                for &(id, side) in &pending.passes {
                    let Some(call) = self.calls.get_mut(id) else { continue };
                    if call.answered.is_some() {
                        continue;
                    }
                    call.sides[1 - side].tag = tag.map(<[u8]>::to_vec);
                    if code >= 200 {
                        call.answered = Some(now);
                        self.stats.answered += 1;
                        self.events.push_back(Event::Answered(id));
                    }
                }
            }
            (Kind::Initial, 300..) => self.end_unanswered(&pending.passes, media),
            (Kind::Bye, 200..) => self.end(&pending.passes, media),
            // It began before this gateway was started: who else is in it is known now.
            (Kind::Other, 200..300) if pending.method == b"INVITE" => {
                for &(id, side) in &pending.passes {
                    if let Some(call) = self.calls.get_mut(id)
                        && call.sides[1 - side].tag.is_none()
                    {
                        call.sides[1 - side].tag = tag.map(<[u8]>::to_vec);
                        call.answered = Some(now);
                    }
                }
            }
            _ => {}
        }
    }

    fn settle(&mut self, passes: &[(CallId, usize)], is_agreed: bool, media: &mut impl Media) {
        for &(id, _) in passes {
            let is_plain = self.calls.settle(id, is_agreed, media);
            if let Some(call) = self.calls.get_mut(id).filter(|call| is_plain && !call.is_plain) {
                call.is_plain = true;
                self.events.push_back(Event::Plain(id));
            }
        }
    }

    fn complain(&mut self, passes: &[(CallId, usize)], why: Unpassable) {
        let name = passes.first().and_then(|(id, _)| self.calls.get(*id)).map(|c| c.name.clone());
        self.events.push_back(Event::Refused(name.unwrap_or_default(), why));
    }

    fn end_unanswered(&mut self, passes: &Passes, media: &mut impl Media) {
        let silent = |id| self.calls.get(id).is_some_and(|call| call.answered.is_none());
        let over: Passes = passes.iter().copied().filter(|(id, _)| silent(*id)).collect();
        self.end(&over, media);
    }

    fn end(&mut self, passes: &Passes, media: &mut impl Media) {
        for &(id, _) in passes {
            if let Some(view) = self.calls.view(id) {
                self.events.push_back(Event::Ended(Box::new(view)));
                self.calls.close(id, media);
            }
        }
    }

    /// A transaction has ended without a final response.
    fn forget(&mut self, _: Time, id: TransactionId, media: &mut impl Media) {
        let Some(pending) = self.pending.remove(&id) else { return };
        match pending.kind {
            Kind::Initial => self.end_unanswered(&pending.passes, media),
            Kind::Bye => self.end(&pending.passes, media),
            Kind::Other => self.settle(&pending.passes, false, media),
        }
    }

    /// When [`Gateway::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Time {
        let sweep = if self.calls.len() == 0 { Time::NEVER } else { self.sweep };
        self.transactions.next_timeout().min(sweep)
    }

    /// Repeats what has not been heard, gives up, and ends calls that nobody speaks in.
    pub fn handle_timeout(&mut self, now: Time, media: &mut impl Media) {
        for id in self.transactions.handle_timeout(now) {
            self.forget(now, id, media);
        }
        if now < self.sweep {
            return;
        }
        self.sweep = now + SWEEP;
        let transactions = &self.transactions;
        self.pending.retain(|id, _| transactions.has(*id));
        let rings: std::collections::BTreeSet<CallId> =
            self.pending.values().flat_map(|p| p.passes.iter().map(|(id, _)| *id)).collect();
        let is_over = |id: CallId, call: &Call| match call.answered {
            Some(_) => now.since(call.heard) >= IDLE,
            None => now.since(call.heard) >= UNANSWERED && !rings.contains(&id),
        };
        let over: Passes = self
            .calls
            .iter()
            .filter(|(id, call)| is_over(*id, call))
            .map(|(id, _)| (id, 0))
            .collect();
        self.stats.idle += over.len() as u64;
        self.end(&over, media);
    }

    /// The next message to send; ask after each call until there is none. If its
    /// connection isn't there yet, make it.
    pub fn poll(&mut self) -> Option<Output> {
        self.transactions.poll()
    }

    /// What else there is to say; ask until there is nothing.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn overloaded() -> Refusal {
    Refusal(503, "Service Unavailable", b"Retry-After: 5\r\n".to_vec())
}

/// What is said to who asks this gateway itself.
fn for_us(method: &[u8]) -> Refusal {
    match method {
        b"OPTIONS" => {
            Refusal(200, "OK", b"Accept: application/sdp\r\nSupported: path\r\n".to_vec())
        }
        _ => Refusal(404, "Not Found", Vec::new()),
    }
}

fn no_hop(why: &NoHop) -> Refusal {
    match why {
        NoHop::NoSuchName => Refusal(478, "Unresolvable Destination", Vec::new()),
        NoHop::Unknown(_) | NoHop::Uri => Refusal(416, "Unsupported URI Scheme", Vec::new()),
        NoHop::NoTransport => {
            Refusal(503, "Service Unavailable", warning("no such transport here"))
        }
    }
}

fn warning(text: &str) -> Vec<u8> {
    format!("Warning: 399 trunkline \"{text}\"\r\n").into_bytes()
}

fn unpassable(why: Unpassable) -> Refusal {
    let lines = warning(&why.to_string());
    match why {
        Unpassable::NoPorts => Refusal(503, "Service Unavailable", lines),
        Unpassable::Sdp(_) => Refusal(400, "Bad Session Description", lines),
        Unpassable::Unfit(_) | Unpassable::Encryption => Refusal(488, "Not Acceptable Here", lines),
    }
}
