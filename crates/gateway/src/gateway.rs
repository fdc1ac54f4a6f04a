//! The gateway itself: its inputs, its state and its outputs.

mod connections;
mod ending;
mod names;
mod refusal;
mod requests;
mod responses;

pub use connections::{Holder, Rank, Ranks};
pub use ending::{CallSelection, Farewell};

use crate::call_legs::{self, CallLegs};
use crate::calls::{Call, CallId, CallView, Calls, DescriptionError, OfferOutcome};
use crate::config::Config;
use crate::dialog::Cause;
use crate::hops::Hops;
use crate::media::Media;
use crate::party_addresses::PartyAddresses;
use crate::ports::Ports;
use crate::token::Tokens;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use ending::Told;
use names::Waiter;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::Time;
use trunkline_overlay::wire::NodeId;
use trunkline_sip::proxy::{self, Routed};
use trunkline_sip::reply;
use trunkline_sip::transaction::{Hop, Incoming, Output, TransactionId, Transactions};
use trunkline_sip::value::Uri;
use trunkline_sip::{Message, Start};

/// Time that a call may be silent because its ends have agreed on it.
const HELD: Duration = Duration::from_secs(12 * 3_600);
/// Time that a call is kept after its INVITE ended without an answer, or while its answer is
/// unacknowledged: either may still arrive (RFC 6026, timer L).
const UNANSWERED: Duration = Duration::from_secs(64);
/// Time within which an INVITE that was challenged may be repeated with credentials.
const CHALLENGED: Duration = Duration::from_secs(32);
/// Interval between checks for calls to end.
const SWEEP: Duration = Duration::from_secs(1);
/// Events that a gateway reports, besides the messages that it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Resolve this name, and pass the result to [`Gateway::named`].
    LookUp(String),
    /// A call ended: its state just before, and the reason.
    Ended(Box<CallView>, CallOutcome),
    /// The media of a call bypass the overlay although the next hop is trusted: the hop does not
    /// support virtual ports, or this node has no route to the node that it named.
    Plain(CallId),
    /// A session description was refused, because none of its streams can be relayed, or was
    /// removed from a response or ACK, because it can't be parsed. Holds the Call-ID, the address
    /// that the message came from, and the reason.
    Refused(String, IpAddr, DescriptionError),
    /// A request from this address was refused, with this status code and for this reason.
    TurnedAway(SocketAddr, u16, &'static str),
    /// A host has taken a connection, and nothing comes from it, so that requests there have had no
    /// answer. With true, long requests go to it by UDP from now on.
    Silent(SocketAddr, u64, bool),
    /// A message from this address can't be processed, for this reason. It was answered with this status
    /// code, or dropped without an answer.
    Malformed(SocketAddr, String, Option<u16>),
    /// A request was dropped because its sender is in none of the networks that may send requests.
    Forbidden(SocketAddr),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The caller hung up.
    CallerHungUp,
    /// The callee hung up.
    CalleeHungUp,
    /// The INVITE was refused with this status code; 487 if the caller gave up.
    Refused(u16),
    /// The INVITE got no final response in time.
    Unanswered,
    /// No message or media packet arrived for too long.
    Idle,
    /// The gateway was stopped.
    Stopped,
    /// The operator ended it.
    Operator,
    /// The trunk to the other gateway takes no new calls.
    Trunk,
}

/// Counters of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams that are not SIP messages, and malformed messages.
    pub malformed: u64,
    /// Messages that exceed a limit of their size or of their number of header fields.
    pub too_large: u64,
    /// Requests dropped because their sender may not send any.
    pub forbidden: u64,
    /// Requests that were forwarded.
    pub requests: u64,
    /// Requests that this gateway refused.
    pub refused: u64,
    /// Number of current calls.
    pub live: usize,
    /// Number of calls begun so far.
    pub calls: u64,
    /// Number of calls that were answered.
    pub answered: u64,
    /// Number of calls that were ended after too long a silence.
    pub idle: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An INVITE that begins a call.
    Initial,
    /// An INVITE within a call that this gateway has no record of, because it was restarted.
    Resuming,
    /// A BYE that ends a call.
    Bye,
    /// Any other request, which neither begins nor ends a call.
    Other,
}

/// State kept for a request that was forwarded.
#[derive(Clone, Debug)]
struct Pending {
    kind: Kind,
    passes: CallLegs,
    up: Hop,
    down: Hop,
    method: Vec<u8>,
    /// Whether it contained a session description.
    is_described: bool,
    /// Whether it is sent over a connection only because of its length.
    is_long: bool,
    /// Whether no proxy is between its sender and this gateway.
    is_next_hop: bool,
    /// Whether it is sent along the flow by which its recipient registered.
    is_flow: bool,
    /// Time at which it was sent to its next hop.
    sent: Time,
    /// Addresses at which its sender may be.
    places: PartyAddresses,
    /// Why another gateway, which is trusted, ends the call by it.
    told: Option<Cause>,
    /// Whether it has been accepted; later responses are then retransmissions.
    is_accepted: bool,
}

/// A SIP gateway without sockets: see the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Gateway {
    config: Config,
    transactions: Transactions,
    calls: Calls,
    pending: BTreeMap<TransactionId, Pending>,
    hops: Hops,
    waiting: BTreeMap<String, Vec<Waiter>>,
    /// Requests that use a connection because of their length, and when it counts as silent.
    long: VecDeque<(Time, TransactionId)>,
    /// Nodes of other gateways, by their address.
    nodes: BTreeMap<IpAddr, NodeId>,
    tokens: Tokens,
    rng: ChaCha20Rng,
    events: VecDeque<Event>,
    stats: Stats,
    sweep: Time,
    is_draining: bool,
    /// Requests by which a stop has told the ends of its calls.
    told: Told,
}

impl Gateway {
    /// Creates a gateway without calls. `secret` seeds its random identifiers. `lasting` stays the
    /// same across restarts, so that registered phones remain reachable.
    pub fn new(config: Config, secret: [u8; 32], lasting: &[u8; 32]) -> Gateway {
        let mut rng = ChaCha20Rng::from_seed(secret);
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let ports = Ports::new(&config.ports, ChaCha20Rng::from_rng(&mut rng));
        Gateway {
            transactions: Transactions::new(config.max_transactions, seed),
            calls: Calls::new(ports),
            pending: BTreeMap::new(),
            hops: Hops::new(rng.next_u64()),
            waiting: BTreeMap::new(),
            long: VecDeque::new(),
            nodes: BTreeMap::new(),
            tokens: Tokens::new(lasting),
            rng,
            events: VecDeque::new(),
            stats: Stats::default(),
            sweep: Time::ZERO,
            is_draining: false,
            told: Told::default(),
            config,
        }
    }

    /// The configuration in effect.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters so far, with the current number of calls.
    pub fn stats(&self) -> Stats {
        let live = self.calls.iter().filter(|(_, call)| call.part_of.is_none()).count();
        Stats { live, ..self.stats }
    }

    /// Number of free pairs of media ports.
    pub fn free_ports(&self) -> usize {
        self.calls.free_ports()
    }

    /// Snapshots of all current calls.
    pub fn calls(&self) -> impl Iterator<Item = CallView> {
        let all = self.calls.iter().filter(|(_, call)| call.part_of.is_none());
        all.filter_map(|(id, _)| self.calls.view(id))
    }

    /// Snapshot of a call; `None` once it has ended.
    pub fn call(&self, id: CallId) -> Option<CallView> {
        self.calls.view(id)
    }

    /// Whether a connection is open, or still to be made.
    pub fn is_open(&self, connection: u64) -> bool {
        self.hops.is_open(connection)
    }

    /// Name that the certificate at the other end of a connection must contain; `None` if it must
    /// name the address.
    pub fn name_of(&self, connection: u64) -> Option<&str> {
        self.hops.name_of(connection)
    }

    /// With `on`, refuses new calls but keeps the current ones; without, accepts calls again.
    pub fn drain(&mut self, on: bool) {
        self.is_draining = on;
    }

    /// Applies a changed configuration. Names, networks and routes take effect at once, everything
    /// else at the next start.
    pub fn reconfigure(&mut self, new: &Config) {
        self.config.names.clone_from(&new.names);
        self.config.allow.clone_from(&new.allow);
        self.config.trust.clone_from(&new.trust);
        self.config.nodes.clone_from(&new.nodes);
        self.config.routes.clone_from(&new.routes);
        self.config.networks.clone_from(&new.networks);
        self.config.elsewhere.clone_from(&new.elsewhere);
        (self.config.idle, self.config.bye_at_stop) = (new.idle, new.bye_at_stop);
    }

    /// Registers a connection that a peer made to socket `socket`, and returns its number.
    pub fn connected(&mut self, socket: u32, remote: SocketAddr) -> u64 {
        self.hops.connected(socket, remote)
    }

    /// Whether a connection is made only because a request is long, so that UDP will do if it can't be
    /// made soon.
    pub fn is_for_length(&self, connection: u64) -> bool {
        self.hops.is_for_length(connection)
    }

    /// Handles a connection that could not be made.
    pub fn unreachable(&mut self, now: Time, connection: u64, media: &mut impl Media) {
        if self.hops.is_for_length(connection) {
            self.hops.takes_only_udp(now, connection);
        }
        self.disconnected(now, connection, media);
    }

    /// Handles a connection that has closed.
    pub fn disconnected(&mut self, now: Time, connection: u64, media: &mut impl Media) {
        self.hops.closed(connection);
        for id in self.transactions.by_connection(connection) {
            // A hop that takes no connection gets the request as a long datagram (RFC 3261,
            // 18.1.1); if that is not possible, the failure counts as a 503 (8.1.3.1, 16.9).
            if !self.by_datagram(now, id, media) {
                let said = (503, "Service Unavailable");
                self.transactions.refuse(now, id, said, b"");
                self.forget(now, id, CallOutcome::Refused(503), media);
            }
        }
    }

    /// Notes that packets arrived at a media port, which keeps its call alive.
    pub fn heard(&mut self, now: Time, port: u16) {
        self.calls.heard(now, port);
    }

    /// Processes the bytes of one message from `from`.
    pub fn receive(&mut self, now: Time, from: Hop, bytes: &[u8], media: &mut impl Media) {
        // Keep-alive for a NAT's binding.
        if bytes.iter().all(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return;
        }
        match Message::parse(bytes) {
            Ok(message) => self.take(now, from, &message, media),
            Err(why) => self.malformed(from.remote, why.is_for_size(), (why.to_string(), None)),
        }
    }

    /// Counts a message that can't be processed, with the reason and the status code of its answer.
    /// It is reported if its sender may send requests: others may send anything.
    pub fn malformed(
        &mut self,
        from: SocketAddr,
        is_for_size: bool,
        (why, code): (String, Option<u16>),
    ) {
        match is_for_size {
            true => self.stats.too_large += 1,
            false => self.stats.malformed += 1,
        }
        if self.config.admits(from.ip()) {
            self.events.push_back(Event::Malformed(from, why, code));
        }
    }

    /// Processes a message that is already parsed.
    pub fn take(&mut self, now: Time, from: Hop, message: &Message, media: &mut impl Media) {
        if let Some(connection) = from.connection {
            self.hops.heard(now, connection);
        }
        let request = match message.start() {
            Start::Request { method, .. } => Some(method),
            Start::Response { .. } => None,
        };
        let may = |ip| self.config.admits(ip) || call_legs::is_end(&self.calls, message, ip);
        if request.is_some() && !may(from.remote.ip()) {
            self.stats.forbidden += 1;
            return self.events.push_back(Event::Forbidden(from.remote));
        }
        if let Some(fault) = message.fault() {
            let code = message.refusal();
            if let Some(code) = code {
                let said = (code, &*fault.to_string());
                let bytes = reply::response(message, from.remote, said, b"fault", b"");
                self.transactions.answer(from, message, bytes);
            }
            let why = (fault.to_string(), code);
            return self.malformed(from.remote, fault.is_for_size(), why);
        }
        let (calls, config) = (&self.calls, &self.config);
        let is_of_call = || {
            let Ok(routed) = routed(config, message) else { return false };
            let all = call_legs::of(calls, message, &routed.own);
            call_legs::are_up(calls, &call_legs::of_parties(calls, message, &all))
        };
        match self.transactions.receive(now, from, message, is_of_call) {
            Incoming::Request(id) => self.request(now, id, from, message, media),
            Incoming::Ack => self.ack(now, from, message, media),
            Incoming::Response(id) => self.response(now, id, from, message, media),
            Incoming::Unwanted(id, is_first) => {
                self.end_unwanted(now, id, (message, is_first), media);
            }
            Incoming::Refused => {
                self.stats.refused += 1;
                let why = "too many requests wait for an answer, in total or from this sender";
                self.events.push_back(Event::TurnedAway(from.remote, 503, why));
            }
            Incoming::Absorbed => {}
        }
    }

    fn route(&self, message: &Message) -> Result<Routed, proxy::RouteError> {
        routed(&self.config, message)
    }

    fn request(
        &mut self,
        now: Time,
        id: TransactionId,
        from: Hop,
        message: &Message,
        media: &mut impl Media,
    ) {
        let is_bye = matches!(message.start(), Start::Request { method: b"BYE", .. });
        let routed = match self.route(message) {
            Ok(routed) => routed,
            Err(why) => {
                self.stats.refused += 1;
                let said = (why.code(), &*why.reason());
                // A sender that has demanded an extension can do without it.
                if is_bye && !matches!(why, proxy::RouteError::Extension(_)) {
                    self.end_refused(now, &from, (message, &[]), media);
                }
                return self.transactions.refuse(now, id, said, &why.lines());
            }
        };
        let done = self.forward(now, id, from, message, &routed, media);
        if let Err(refusal) = done {
            self.stats.refused += 1;
            if is_bye {
                self.end_refused(now, &from, (message, &routed.own), media);
            }
            if let Some(why) = refusal.why {
                self.events.push_back(Event::TurnedAway(from.remote, refusal.code, why));
            }
            let said = (refusal.code, refusal.reason);
            self.transactions.refuse(now, id, said, &refusal.lines());
        }
    }

    fn end_unanswered(&mut self, passes: &CallLegs, why: CallOutcome, media: &mut impl Media) {
        let silent = |id| self.calls.get(id).is_some_and(|call| call.answered.is_none());
        let over: CallLegs = passes.iter().copied().filter(|(id, _)| silent(*id)).collect();
        self.end(&over, why, media);
    }

    fn end(&mut self, passes: &CallLegs, why: CallOutcome, media: &mut impl Media) {
        for &(id, _) in passes {
            let alone = self.calls.alone(id);
            if !alone.is_empty() {
                alone.into_iter().for_each(|part| self.calls.close(part, media));
                continue;
            }
            let Some(call) = self.calls.get(id) else { continue };
            let whole = if call.answered.is_some() { self.calls.whole(id) } else { id };
            match self.calls.get(whole).is_some_and(|call| call.part_of.is_none()) {
                true => self.end_whole(whole, why, media),
                // One of several phones that rang, and not the callee.
                false => self.calls.close(id, media),
            }
        }
    }

    /// Ends a call with all its parts, but for those of phones that are still to be told: they are left
    /// over, for the next sweep.
    fn end_whole(&mut self, first: CallId, why: CallOutcome, media: &mut impl Media) {
        if let Some(view) = self.calls.view(first) {
            self.events.push_back(Event::Ended(Box::new(view), why));
        }
        let untold = self.calls.alone_of(first);
        let parts = self.calls.parts(first).into_iter().filter(|id| !untold.contains(id));
        parts.for_each(|id| self.calls.close(id, media));
    }

    /// Handles a transaction that ended without a final response; a call that it was to begin ends,
    /// too.
    fn forget(&mut self, now: Time, id: TransactionId, why: CallOutcome, media: &mut impl Media) {
        let Some(pending) = self.pending.remove(&id) else { return };
        match pending.kind {
            Kind::Initial | Kind::Resuming => {
                // It may still be accepted, as long as its transaction is kept.
                self.pending.insert(id, pending.clone());
                let is_cancelled = self.transactions.is_cancelled(id);
                let why = if is_cancelled { CallOutcome::Refused(487) } else { why };
                self.end_unanswered(&pending.passes, why, media);
            }
            Kind::Bye if self.is_of_end(&pending) => {
                self.tell_past(now, &pending.passes, pending.down.remote, media);
                self.end(&pending.passes, pending.hung_up(), media);
            }
            Kind::Bye => {}
            Kind::Other => self.settle(&pending.passes, Some(id), OfferOutcome::Refused, media),
        }
    }

    /// Whether a request came from an address of the end that it names. Unless the other end has
    /// accepted it, only then does it count.
    fn is_of_end(&self, pending: &Pending) -> bool {
        let first = pending.passes.first();
        let end = first.and_then(|&(id, side)| self.calls.get(id)?.sides.get(side));
        end.is_some_and(|end| end.places.have(pending.up.remote.ip()))
    }

    /// Time of the next call to [`Gateway::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        let is_idle = self.calls.len() == 0 && self.hops.are_used();
        let sweep = if is_idle { Time::NEVER } else { self.sweep };
        let silent = self.long.front().map_or(Time::NEVER, |(at, _)| *at);
        self.transactions.next_timeout().min(sweep).min(silent)
    }

    /// Retransmits and expires requests, and ends calls without traffic.
    pub fn handle_timeout(&mut self, now: Time, media: &mut impl Media) {
        while let Some(&(_, id)) = self.long.front().filter(|(at, _)| *at <= now) {
            self.long.pop_front();
            self.leave_silent(now, id, media);
        }
        for id in self.transactions.handle_timeout(now) {
            self.note_silence(now, id);
            self.forget(now, id, CallOutcome::Unanswered, media);
        }
        if now < self.sweep {
            return;
        }
        self.sweep = now + SWEEP;
        self.hops.forget_unused();
        self.end_challenged(now, media);
        let transactions = &self.transactions;
        self.pending.retain(|id, _| transactions.has(*id));
        let rings: std::collections::BTreeSet<CallId> =
            self.pending.values().flat_map(|p| p.passes.iter().map(|(id, _)| *id)).collect();
        let idle = self.config.idle;
        let most = |call: &Call| {
            let session = call.session.map_or(Duration::ZERO, |session| session * 3 / 2);
            if call.is_held() { HELD.max(idle).max(session) } else { idle.max(session) }
        };
        let is_over = |id: CallId, call: &Call| match call.answered {
            Some(_) if self.calls.is_left_over(call) => true,
            Some(_) if !call.is_acknowledged => now.since(call.heard) >= UNANSWERED,
            Some(_) => now.since(call.heard) >= most(call),
            None => now.since(call.heard) >= UNANSWERED && !rings.contains(&id),
        };
        let all = self.calls.iter();
        let over: Vec<CallId> = all.filter(|(id, c)| is_over(*id, c)).map(|(id, _)| id).collect();
        for id in over {
            self.end_idle(now, id, media);
        }
    }

    /// Ends calls whose INVITE or BYE was challenged and has not been repeated.
    fn end_challenged(&mut self, now: Time, media: &mut impl Media) {
        let due = |(id, call): (CallId, &Call)| {
            let begun = call.challenged.map(|(at, code)| (at, 0, CallOutcome::Refused(code)));
            let ended = call.hanging_up.map(|it| (it.at, it.side, hung_up(&vec![(id, it.side)])));
            let (at, side, outcome) = begun.or(ended)?;
            let by = call.hanging_up.map(|it| it.by);
            (now >= at + CHALLENGED).then_some((vec![(id, side)], by, outcome))
        };
        let due: Vec<(CallLegs, Option<SocketAddr>, CallOutcome)> =
            self.calls.iter().filter_map(due).collect();
        for (passes, by, outcome) in due {
            if let Some(by) = by {
                self.tell_past(now, &passes, by, media);
            }
            self.end(&passes, outcome, media);
        }
    }

    /// Ends all calls; if the configuration says so, their ends are told.
    pub fn stop(&mut self, now: Time, media: &mut impl Media) {
        self.is_draining = true;
        let ending = self.pending.values().filter(|pending| pending.kind == Kind::Bye);
        let ending: Vec<(CallLegs, CallOutcome)> =
            ending.map(|pending| (pending.passes.clone(), pending.hung_up())).collect();
        for (passes, outcome) in ending {
            self.end(&passes, outcome, media);
        }
        if self.config.bye_at_stop {
            self.tell_all(now, media);
        }
        let all: CallLegs = self.calls.iter().map(|(id, _)| (id, 0)).collect();
        self.end(&all, CallOutcome::Stopped, media);
    }

    /// The next message to send; call it until it returns `None`. If the message's connection does
    /// not exist yet, make it.
    pub fn poll(&mut self) -> Option<Output> {
        self.transactions.poll()
    }

    /// The next event; call it until it returns `None`.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Outcome of a call after the end that `passes` names sent a BYE.
fn hung_up(passes: &CallLegs) -> CallOutcome {
    match passes.first() {
        Some((_, 1)) => CallOutcome::CalleeHungUp,
        _ => CallOutcome::CallerHungUp,
    }
}

fn routed(config: &Config, message: &Message) -> Result<Routed, proxy::RouteError> {
    let is_own = |uri: &Uri<'_>| config.is_own(uri.host, uri.port, uri.secure);
    proxy::route(message, is_own)
}
