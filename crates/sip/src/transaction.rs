//! A proxy's transactions (RFC 3261, 16 and 17, with the corrections of RFC 6026): a
//! request that is forwarded once, its responses, and what each side repeats until it
//! has heard of the other.
//!
//! The caller decides where a request goes and what is changed in it and in its
//! responses; here is decided what is sent again, what is absorbed, and when to give
//! up. Of every hop that is forked beyond this one all responses pass.

mod key;
mod timer;

use crate::edit::Edit;
use crate::message::{Message, Start};
use crate::name::Name;
use crate::reply;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use key::Key;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use timer::Timers;
use trunkline_base::Time;

/// An estimate of the round trip, and the first interval of repetitions (RFC 3261,
/// 17.1.1.1).
pub const T1: Duration = Duration::from_millis(500);
/// The longest interval of repetitions, but of INVITE.
pub const T2: Duration = Duration::from_secs(4);
/// How long a packet may be under way.
pub const T4: Duration = Duration::from_secs(5);
/// How long a request may be without a final response after a provisional one (timer C,
/// RFC 3261, 16.6).
pub const TIMER_C: Duration = Duration::from_secs(181);

/// Bytes of the messages that a transaction keeps, on average: one of 1,300 bytes that
/// is kept as it came and as it went, and its response.
pub const USUAL: usize = 4_096;

/// Where a message came from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which of the driver's sockets.
    pub socket: u32,
    /// The other end.
    pub remote: SocketAddr,
    /// The connection, if there is one: then nothing is sent again, since it delivers.
    pub connection: Option<u64>,
}

/// A transaction of this proxy's; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(u64);

/// What a message that came means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A new request: forward it or answer it.
    Request(TransactionId),
    /// The ACK of a 2xx, which has no transaction: send it on, by
    /// [`Transactions::stamp_ack`] and [`Transactions::send`].
    Ack,
    /// A response to pass on to who asked, by [`Transactions::respond`].
    Response(TransactionId),
    /// Nothing: it belongs to what is known already, or to nothing.
    Absorbed,
    /// A new request for which there is no room. Who sent it has been told, or will ask
    /// again.
    Refused,
}

/// Something to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where to.
    pub to: Hop,
    /// The message.
    pub bytes: Vec<u8>,
}

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The caller has not said what to do.
    New,
    /// It has been forwarded.
    Calling,
    /// A provisional response has come.
    Proceeding,
    /// An INVITE has had a 2xx: more may come, of other branches beyond.
    Accepted,
    /// It has had its final response.
    Completed,
    /// An INVITE's final response has been acknowledged.
    Confirmed,
}

#[derive(Debug)]
struct Transaction {
    phase: Phase,
    is_invite: bool,
    key: Key,
    /// As it came, for responses.
    request: Message,
    /// Where responses go.
    upstream: Hop,
    /// Where it was forwarded, and as what.
    downstream: Option<(Hop, Message)>,
    /// What names it downstream.
    branch: Vec<u8>,
    /// The last response that was sent.
    response: Vec<u8>,
    /// Whether the caller has given up.
    is_cancelled: bool,
    /// Whether it has rung for too long.
    has_expired: bool,
    /// Whether downstream has been told so.
    cancel: Option<Vec<u8>>,
    timers: Timers,
}

impl Transaction {
    /// What its messages take, but for a CANCEL.
    fn bytes(&self) -> usize {
        let forwarded = self.downstream.as_ref().map_or(0, |(_, message)| message.bytes().len());
        self.request.bytes().len() + forwarded + self.response.len()
    }
}

/// How much room transactions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    transactions: usize,
    /// What the messages that are kept take, about.
    bytes: usize,
}

impl Taken {
    /// Whether one more is too many, where `most` may be.
    fn is_all(self, most: usize) -> bool {
        self.transactions >= most || self.bytes >= most.saturating_mul(USUAL)
    }
}

/// All transactions of a proxy.
#[derive(Debug)]
pub struct Transactions {
    all: BTreeMap<TransactionId, Transaction>,
    by_key: BTreeMap<Key, TransactionId>,
    by_branch: BTreeMap<Vec<u8>, TransactionId>,
    due: BTreeSet<(Time, TransactionId)>,
    next: u64,
    most: usize,
    /// How much of that is whose.
    by_source: BTreeMap<IpAddr, Taken>,
    /// How much there is of all.
    taken: Taken,
    rng: ChaCha20Rng,
    outputs: VecDeque<Output>,
}

impl Transactions {
    /// At most `most` at a time, and fewer if their messages are longer than
    /// [`USUAL`]; `seed` makes their names hard to guess.
    pub fn new(most: usize, seed: [u8; 32]) -> Transactions {
        Transactions {
            all: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_branch: BTreeMap::new(),
            due: BTreeSet::new(),
            next: 0,
            most,
            by_source: BTreeMap::new(),
            taken: Taken::default(),
            rng: ChaCha20Rng::from_seed(seed),
            outputs: VecDeque::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the caller of an INVITE has given up.
    pub fn is_cancelled(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.is_cancelled && !t.has_expired)
    }

    /// Whether an INVITE has rung for too long.
    pub fn has_expired(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.has_expired)
    }

    /// Whether there is still one of this name.
    pub fn has(&self, id: TransactionId) -> bool {
        self.all.contains_key(&id)
    }

    /// Whether one has come and neither been forwarded nor answered.
    pub fn is_new(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.phase == Phase::New)
    }

    /// Takes back that a request has been forwarded, to forward it otherwise: the request
    /// as it came. `None` if it has had a response, or its caller has given up.
    pub fn take_back(&mut self, id: TransactionId) -> Option<Message> {
        let t = self.all.get_mut(&id)?;
        if t.phase != Phase::Calling || t.is_cancelled {
            return None;
        }
        let before = t.bytes();
        t.downstream = None;
        t.phase = Phase::New;
        let request = t.request.clone();
        self.weigh(id, before);
        Some(request)
    }

    /// The requests that went over a connection and have had no final response.
    pub fn by_connection(&self, connection: u64) -> Vec<TransactionId> {
        let waits = |t: &Transaction| {
            let is_it =
                t.downstream.as_ref().is_some_and(|(to, _)| to.connection == Some(connection));
            is_it && matches!(t.phase, Phase::Calling | Phase::Proceeding)
        };
        self.all.iter().filter(|(_, t)| waits(t)).map(|(id, _)| *id).collect()
    }

    /// Takes a message without a fault that came from `from`. For requests of calls that
    /// are up some room is kept: `is_of_call` is asked where there is no other.
    pub fn receive(
        &mut self,
        now: Time,
        from: Hop,
        message: &Message,
        is_of_call: impl FnOnce() -> bool,
    ) -> Incoming {
        match message.start() {
            Start::Request { method, .. } => {
                self.on_request(now, from, (message, method), is_of_call)
            }
            Start::Response { code, .. } => self.on_response(now, message, code),
        }
    }

    fn on_request(
        &mut self,
        now: Time,
        from: Hop,
        (message, method): (&Message, &[u8]),
        is_of_call: impl FnOnce() -> bool,
    ) -> Incoming {
        let known = self.by_key.get(&Key::of(message)).copied();
        match (method, known) {
            (b"ACK", None) => Incoming::Ack,
            (b"ACK", Some(id)) => self.on_ack(now, id),
            (b"CANCEL", known) => {
                self.on_cancel(now, from, message, known);
                Incoming::Absorbed
            }
            (_, Some(id)) => {
                self.on_repeated(id);
                Incoming::Absorbed
            }
            (_, None) if !self.has_room(from, is_of_call) => {
                let said = (503, "Service Unavailable");
                let bytes =
                    reply::response(message, from.remote, said, b"full", b"Retry-After: 5\r\n");
                self.outputs.push_back(Output { to: back(from, message), bytes });
                Incoming::Refused
            }
            (_, None) => Incoming::Request(self.open(now, from, message)),
        }
    }

    /// Whether there is room for a request: a quarter is for those of calls that are up,
    /// which end them; and of what a request may have, half for those of one host.
    fn has_room(&self, from: Hop, is_of_call: impl FnOnce() -> bool) -> bool {
        let its = self.by_source.get(&from.remote.ip()).copied().unwrap_or_default();
        let fits = |most: usize| !self.taken.is_all(most) && !its.is_all(most.div_ceil(2));
        fits(self.most - self.most / 4) || fits(self.most) && is_of_call()
    }

    /// Counts what the messages of a transaction take, which took `before`.
    fn weigh(&mut self, id: TransactionId, before: usize) {
        let Some(t) = self.all.get(&id) else { return };
        let (source, now) = (t.upstream.remote.ip(), t.bytes());
        let its = self.by_source.get_mut(&source);
        for taken in [Some(&mut self.taken), its].into_iter().flatten() {
            taken.bytes = (taken.bytes + now).saturating_sub(before);
        }
    }

    fn open(&mut self, now: Time, from: Hop, message: &Message) -> TransactionId {
        let is_invite = message.cseq().is_some_and(|cseq| cseq.method == b"INVITE");
        let id = TransactionId(self.next);
        self.next += 1;
        let branch = self.branch();
        let key = Key::of(message);
        self.by_key.insert(key.clone(), id);
        self.by_branch.insert(branch.clone(), id);
        let transaction = Transaction {
            phase: Phase::New,
            is_invite,
            key,
            request: message.clone(),
            upstream: back(from, message),
            downstream: None,
            branch,
            response: Vec::new(),
            is_cancelled: false,
            has_expired: false,
            cancel: None,
            timers: Timers::new(now),
        };
        let its = self.by_source.entry(from.remote.ip()).or_default();
        its.transactions += 1;
        self.taken.transactions += 1;
        self.all.insert(id, transaction);
        self.weigh(id, 0);
        if is_invite {
            // At once, so that it isn't sent again while downstream thinks.
            let bytes = reply::response(message, from.remote, (100, "Trying"), b"", b"");
            self.send_back(id, bytes);
        }
        self.arm(id);
        id
    }

    /// The ACK of a final response that was not a 2xx.
    fn on_ack(&mut self, now: Time, id: TransactionId) -> Incoming {
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        match t.phase {
            // Its 2xx has a transaction here for as long as others may come; its ACK has
            // a branch of its own, but with agents of before RFC 3261.
            Phase::Accepted => return Incoming::Ack,
            Phase::Completed => {
                t.phase = Phase::Confirmed;
                let wait = if t.upstream.connection.is_some() { Duration::ZERO } else { T4 };
                t.timers.confirmed(now + wait);
                self.arm(id);
            }
            _ => {}
        }
        Incoming::Absorbed
    }

    fn on_cancel(&mut self, now: Time, from: Hop, message: &Message, known: Option<TransactionId>) {
        // Who asked gives up, not whoever has read what it asked.
        let source = back(from, message).remote.ip();
        let is_its =
            |id: &TransactionId| self.all.get(id).is_some_and(|t| t.upstream.remote.ip() == source);
        let known = known.filter(is_its);
        let said = if known.is_some() { (200, "OK") } else { (481, "Transaction Does Not Exist") };
        let bytes = reply::response(message, from.remote, said, b"cancel", b"");
        self.outputs.push_back(Output { to: back(from, message), bytes });
        let Some(t) = known.and_then(|id| self.all.get_mut(&id)) else { return };
        if t.is_invite && !t.is_cancelled {
            t.is_cancelled = true;
            known.inspect(|&id| self.cancel(now, id));
        }
    }

    /// A request that has come before gets the response that it has had before.
    fn on_repeated(&mut self, id: TransactionId) {
        let Some(t) = self.all.get(&id) else { return };
        // A 2xx is repeated by who said it, and its ACK ends that (RFC 6026, 7.1).
        let silent = matches!(t.phase, Phase::Accepted | Phase::Confirmed) || t.response.is_empty();
        if !silent {
            self.outputs.push_back(Output { to: t.upstream, bytes: t.response.clone() });
        }
    }

    fn on_response(&mut self, now: Time, message: &Message, code: u16) -> Incoming {
        let branch = message.via().and_then(|via| via.branch()).unwrap_or_default();
        let Some(&id) = self.by_branch.get(branch) else { return Incoming::Absorbed };
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        let (Some((to, forwarded)), Some(cseq)) = (&t.downstream, message.cseq()) else {
            return Incoming::Absorbed;
        };
        let to = *to;
        let asked = forwarded.cseq().map(|cseq| (cseq.number, cseq.method));
        if asked != Some((cseq.number, cseq.method)) {
            // Of the CANCEL, for one.
            if cseq.method == b"CANCEL" {
                t.timers.cancel_heard();
                self.arm(id);
            }
            return Incoming::Absorbed;
        }
        if t.is_invite && code >= 300 {
            let bytes = reply::ack(forwarded, message);
            self.outputs.push_back(Output { to, bytes });
        }
        self.take_response(now, id, code)
    }

    fn take_response(&mut self, now: Time, id: TransactionId, code: u16) -> Incoming {
        let Some(t) = self.all.get_mut(&id) else { return Incoming::Absorbed };
        let passes = match (t.phase, code) {
            (Phase::Calling | Phase::Proceeding, 100..=199) => {
                t.phase = Phase::Proceeding;
                t.timers.provisional(now, t.is_invite, code);
                if t.is_cancelled {
                    self.cancel(now, id);
                }
                code > 100
            }
            (Phase::Calling | Phase::Proceeding, _) => {
                t.timers.answered(now);
                true
            }
            (Phase::Accepted, 200..=299) => true,
            _ => false,
        };
        self.arm(id);
        if passes { Incoming::Response(id) } else { Incoming::Absorbed }
    }

    /// Puts this proxy's hop on a request that is to be forwarded, and on the hop before
    /// it what is known of that. `own` is the hop but for its branch: the transport and
    /// where responses shall come, as in `SIP/2.0/UDP 192.0.2.9:5060`.
    pub fn stamp(&self, edit: &mut Edit<'_>, id: TransactionId, own: &str) {
        let Some(t) = self.all.get(&id) else { return };
        stamp(edit, t.upstream.remote, own, &t.branch);
    }

    /// As [`Transactions::stamp`], of the ACK of a 2xx from `source`, which has no
    /// transaction.
    pub fn stamp_ack(&mut self, edit: &mut Edit<'_>, source: SocketAddr, own: &str) {
        let branch = self.branch();
        stamp(edit, source, own, &branch);
    }

    fn branch(&mut self) -> Vec<u8> {
        let (a, b) = (self.rng.next_u64(), self.rng.next_u64());
        format!("z9hG4bK{a:016x}{b:016x}").into_bytes()
    }

    /// Answers a request that has no transaction.
    pub fn answer(&mut self, from: Hop, request: &Message, bytes: Vec<u8>) {
        self.outputs.push_back(Output { to: back(from, request), bytes });
    }

    /// Sends what has no transaction.
    pub fn send(&mut self, to: Hop, bytes: Vec<u8>) {
        self.outputs.push_back(Output { to, bytes });
    }

    /// Forwards a new request to `to`, as `bytes`, which have been stamped. Nothing
    /// happens if it has been answered or cancelled meanwhile; false if what was added to
    /// it makes it too long.
    pub fn forward(&mut self, now: Time, id: TransactionId, to: Hop, bytes: Vec<u8>) -> bool {
        let Ok(message) = Message::parse(&bytes) else { return false };
        let Some(t) = self.all.get_mut(&id).filter(|t| t.phase == Phase::New) else { return true };
        t.phase = Phase::Calling;
        t.timers = Timers::calling(now, to.connection.is_none());
        let before = t.bytes();
        t.downstream = Some((to, message));
        self.outputs.push_back(Output { to, bytes });
        self.weigh(id, before);
        self.arm(id);
        true
    }

    /// Answers a request by itself.
    pub fn refuse(&mut self, now: Time, id: TransactionId, said: (u16, &str), more: &[u8]) {
        let tag = format!("{:016x}", self.rng.next_u64());
        let Some(t) = self.all.get(&id) else { return };
        let bytes = reply::response(&t.request, t.upstream.remote, said, tag.as_bytes(), more);
        self.respond(now, id, said.0, bytes);
    }

    /// Sends a response of this code to who asked, its topmost Via taken away.
    pub fn respond(&mut self, now: Time, id: TransactionId, code: u16, bytes: Vec<u8>) {
        let Some(t) = self.all.get_mut(&id) else { return };
        let is_final = matches!(t.phase, Phase::Completed | Phase::Confirmed);
        if is_final || t.phase == Phase::Accepted && !(200..300).contains(&code) {
            return;
        }
        let repeats = t.upstream.connection.is_none();
        match code {
            ..200 => {}
            200..300 if t.is_invite => {
                t.timers.accepted(now, t.phase != Phase::Accepted);
                t.phase = Phase::Accepted;
            }
            _ => {
                t.phase = Phase::Completed;
                t.timers.completed(now, t.is_invite, repeats);
            }
        }
        self.send_back(id, bytes);
        self.arm(id);
    }

    fn send_back(&mut self, id: TransactionId, bytes: Vec<u8>) {
        let Some(t) = self.all.get_mut(&id) else { return };
        let before = t.bytes();
        t.response.clone_from(&bytes);
        self.outputs.push_back(Output { to: t.upstream, bytes });
        self.weigh(id, before);
    }

    /// Tells downstream that nobody waits any more, once it has said something; if it
    /// hasn't been asked, it never will be.
    fn cancel(&mut self, now: Time, id: TransactionId) {
        let Some(t) = self.all.get_mut(&id) else { return };
        match (&t.downstream, t.phase) {
            (None, Phase::New) => self.refuse(now, id, (487, "Request Terminated"), b""),
            (Some((to, forwarded)), Phase::Proceeding) if t.cancel.is_none() => {
                let bytes = reply::cancel(forwarded);
                t.cancel = Some(bytes.clone());
                t.timers.cancelling(now, to.connection.is_none());
                self.outputs.push_back(Output { to: *to, bytes });
                self.arm(id);
            }
            _ => {}
        }
    }

    /// When [`Transactions::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Time {
        self.due.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Repeats what has not been heard, and gives up. Who asked is told 408 where that
    /// helps: of an INVITE (RFC 4320, 4.2). Requests that end so are returned.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<TransactionId> {
        let mut given_up = Vec::new();
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            let Some(t) = self.all.get_mut(&id) else { continue };
            t.timers.armed = None;
            if t.timers.ask_again(now, t.is_invite)
                && let Some((to, forwarded)) = &t.downstream
            {
                self.outputs.push_back(Output { to: *to, bytes: forwarded.bytes().to_vec() });
            }
            if t.timers.cancel_again(now)
                && let (Some((to, _)), Some(cancel)) = (&t.downstream, &t.cancel)
            {
                self.outputs.push_back(Output { to: *to, bytes: cancel.clone() });
            }
            if t.timers.answer_again(now) {
                self.outputs.push_back(Output { to: t.upstream, bytes: t.response.clone() });
            }
            if t.timers.has_ended(now) {
                self.close(id);
            } else if t.timers.gives_up(now) {
                self.give_up(now, id, &mut given_up);
            }
            self.arm(id);
        }
        given_up
    }

    fn give_up(&mut self, now: Time, id: TransactionId, given_up: &mut Vec<TransactionId>) {
        let Some(t) = self.all.get_mut(&id) else { return };
        // It rings and rings: whoever is called is told to stop, and has time to.
        if t.phase == Phase::Proceeding && t.is_invite && !t.is_cancelled {
            (t.is_cancelled, t.has_expired) = (true, true);
            return self.cancel(now, id);
        }
        given_up.push(id);
        if t.is_cancelled {
            self.refuse(now, id, (487, "Request Terminated"), b"");
        } else if t.is_invite {
            self.refuse(now, id, (408, "Request Timeout"), b"");
        } else {
            self.close(id);
        }
    }

    fn close(&mut self, id: TransactionId) {
        let Some(t) = self.all.remove(&id) else { return };
        let source = t.upstream.remote.ip();
        let its = self.by_source.get_mut(&source);
        for taken in [Some(&mut self.taken), its].into_iter().flatten() {
            taken.transactions -= 1;
            taken.bytes = taken.bytes.saturating_sub(t.bytes());
        }
        if self.by_source.get(&source).is_some_and(|its| its.transactions == 0) {
            self.by_source.remove(&source);
        }
        self.by_key.remove(&t.key);
        self.by_branch.remove(&t.branch);
        if let Some(at) = t.timers.armed {
            self.due.remove(&(at, id));
        }
    }

    fn arm(&mut self, id: TransactionId) {
        let Some(t) = self.all.get_mut(&id) else { return };
        let next = t.timers.next();
        if next != t.timers.armed {
            if let Some(at) = t.timers.armed.take() {
                self.due.remove(&(at, id));
            }
            if let Some(at) = next {
                self.due.insert((at, id));
            }
            t.timers.armed = next;
        }
    }

    /// The next message to send; ask after each call until there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// Where responses to a request go (RFC 3261, 18.2.2; RFC 3581, 4): the way it came, to
/// the port that it names, unless it asks for the one that it came from.
fn back(from: Hop, request: &Message) -> Hop {
    let named = request.via().filter(|via| via.param("rport").is_none());
    let port = match (from.connection, named) {
        (None, Some(via)) => via.port.unwrap_or(5060),
        _ => from.remote.port(),
    };
    Hop { remote: SocketAddr::new(from.remote.ip(), port), ..from }
}

fn stamp(edit: &mut Edit<'_>, source: SocketAddr, own: &str, branch: &[u8]) {
    let request = edit.message();
    if let Some(hop) = request.list(Name::Via).next() {
        edit.replace(hop, &reply::received(hop, source));
    }
    edit.push_front(Name::Via, &[own.as_bytes(), b";branch=", branch].concat());
    let left = request.max_forwards().unwrap_or(70).min(70).saturating_sub(1);
    edit.set(Name::MaxForwards, left.to_string().as_bytes());
}

#[cfg(test)]
mod tests;
