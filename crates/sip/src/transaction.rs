//! A proxy's transactions (RFC 3261, 16 and 17, with the corrections of RFC 6026): a request that
//! is forwarded once, its responses, and the retransmissions in both directions.
//!
//! The caller decides where a request goes, and what is changed in it and in its responses. This
//! module decides what is retransmitted, what is absorbed, and when to give up. If a later hop
//! forks a request, all responses pass.

mod incoming;
mod key;
mod own;
mod timer;

use crate::edit::Edit;
use crate::message::Message;
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

/// Estimate of the round trip, and the first retransmission interval (RFC 3261, 17.1.1.1).
pub const T1: Duration = Duration::from_millis(500);
/// Maximum retransmission interval, except for INVITE.
pub const T2: Duration = Duration::from_secs(4);
/// Maximum time that a packet may be in flight.
pub const T4: Duration = Duration::from_secs(5);
/// Time that a request may be without a final response after a provisional one (timer C, RFC 3261,
/// 16.6).
pub const TIMER_C: Duration = Duration::from_secs(181);

/// Bytes of messages that a transaction keeps on average: one of 1,300 bytes as received and as
/// forwarded, and its response.
pub const USUAL: usize = 4_096;

/// Source or destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Number of the driver's socket.
    pub socket: u32,
    /// Address of the other end.
    pub remote: SocketAddr,
    /// The connection, if there is one; it delivers reliably, so nothing is retransmitted.
    pub connection: Option<u64>,
}

/// Identifies a transaction of this proxy; ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(u64);

/// The consequence of a received message for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A new request, to be forwarded or answered.
    Request(TransactionId),
    /// The ACK of a 2xx, which has no transaction: forward it with [`Transactions::stamp_ack`] and
    /// [`Transactions::send`].
    Ack,
    /// A response, to be passed on to the requester with [`Transactions::respond`].
    Response(TransactionId),
    /// A 2xx of an INVITE whose requester has another final response already, so that only this proxy
    /// can acknowledge it, with [`Transactions::acknowledge`]. Its end is in a call that must be ended
    /// if the second value is true: the 2xx is the first of that end.
    Unwanted(TransactionId, bool),
    /// Nothing to do: the message belongs to a known transaction, or to none.
    Absorbed,
    /// A new request without room for it. The sender has been notified, or will retransmit.
    Refused,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Destination of the message.
    pub to: Hop,
    /// Bytes of the message.
    pub bytes: Vec<u8>,
}

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The caller has not decided yet.
    New,
    /// The request has been forwarded.
    Calling,
    /// A provisional response has arrived.
    Proceeding,
    /// An INVITE has received a 2xx: more may arrive from other branches.
    Accepted,
    /// The request has received its final response.
    Completed,
    /// An INVITE's final response has been acknowledged.
    Confirmed,
}

#[derive(Debug)]
struct Transaction {
    phase: Phase,
    is_invite: bool,
    key: Key,
    /// The request as received, for responses.
    request: Message,
    /// The hop that responses are sent to.
    upstream: Hop,
    /// Destination of the forwarded request, and the request as forwarded.
    downstream: Option<(Hop, Message)>,
    /// Branch that identifies the transaction downstream.
    branch: Vec<u8>,
    /// The last response sent.
    response: Vec<u8>,
    /// Whether the request is this proxy's own: its responses go nowhere.
    is_own: bool,
    /// Whether the caller has given up.
    is_cancelled: bool,
    /// Whether the call has rung for too long.
    has_expired: bool,
    /// The CANCEL sent downstream, if any.
    cancel: Option<Vec<u8>>,
    /// Whether the requester of an INVITE has this proxy's final response, and downstream has not
    /// sent one yet: it is cancelled there, and may still be accepted.
    is_abandoned: bool,
    /// Tags of ends that have accepted it all the same, hashed.
    unwanted: Vec<u64>,
    timers: Timers,
}

impl Transaction {
    /// Whether a final response is to come that is for this proxy itself.
    fn awaits_response(&self) -> bool {
        self.is_own && self.phase != Phase::Completed || self.is_abandoned && self.cancel.is_some()
    }

    /// Size of the kept messages in bytes, except for a CANCEL.
    fn bytes(&self) -> usize {
        let forwarded = self.downstream.as_ref().map_or(0, |(_, message)| message.bytes().len());
        self.request.bytes().len() + forwarded + self.response.len()
    }
}

/// Room that transactions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    transactions: usize,
    /// Approximate size of the kept messages, in bytes.
    bytes: usize,
}

impl Usage {
    /// Whether one more would exceed the room for `most` transactions.
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
    /// Room taken per source address.
    by_source: BTreeMap<IpAddr, Usage>,
    /// Room taken in total.
    taken: Usage,
    rng: ChaCha20Rng,
    outputs: VecDeque<Output>,
}

impl Transactions {
    /// Creates a set of at most `most` transactions at a time, and fewer if their messages are
    /// longer than [`USUAL`]; `seed` makes their branches unpredictable.
    pub fn new(most: usize, seed: [u8; 32]) -> Transactions {
        Transactions {
            all: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_branch: BTreeMap::new(),
            due: BTreeSet::new(),
            next: 0,
            most,
            by_source: BTreeMap::new(),
            taken: Usage::default(),
            rng: ChaCha20Rng::from_seed(seed),
            outputs: VecDeque::new(),
        }
    }

    /// Number of current transactions.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no transactions.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the caller has given up an INVITE.
    pub fn is_cancelled(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.is_cancelled && !t.has_expired)
    }

    /// Whether an INVITE has rung for too long.
    pub fn has_expired(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.has_expired)
    }

    /// Whether the transaction still exists.
    pub fn has(&self, id: TransactionId) -> bool {
        self.all.contains_key(&id)
    }

    /// Whether a request has been neither forwarded nor answered.
    pub fn is_new(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.phase == Phase::New)
    }

    /// Whether a request has been forwarded and has had no response at all.
    pub fn is_unanswered(&self, id: TransactionId) -> bool {
        self.all.get(&id).is_some_and(|t| t.phase == Phase::Calling)
    }

    /// Reverts the forwarding of a request, so that it can be forwarded elsewhere; returns the
    /// request as received. `None` if it has had a response, or its caller has given up.
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

    /// The requests sent over a connection that have no final response yet.
    pub fn by_connection(&self, connection: u64) -> Vec<TransactionId> {
        let waits = |t: &Transaction| {
            let is_it =
                t.downstream.as_ref().is_some_and(|(to, _)| to.connection == Some(connection));
            is_it && matches!(t.phase, Phase::Calling | Phase::Proceeding)
        };
        self.all.iter().filter(|(_, t)| waits(t)).map(|(id, _)| *id).collect()
    }

    /// The connections of requests that have no final response yet, towards either side.
    pub fn connections(&self) -> impl Iterator<Item = u64> {
        let waits =
            |t: &&Transaction| matches!(t.phase, Phase::New | Phase::Calling | Phase::Proceeding);
        let hops = |t: &Transaction| [Some(t.upstream), t.downstream.as_ref().map(|(to, _)| *to)];
        let hops = self.all.values().filter(waits).flat_map(hops).flatten();
        hops.filter_map(|hop| hop.connection)
    }

    /// Updates the size of a transaction's messages, which was `before`.
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
            is_own: false,
            is_cancelled: false,
            has_expired: false,
            cancel: None,
            is_abandoned: false,
            unwanted: Vec::new(),
            timers: Timers::new(now),
        };
        let its = self.by_source.entry(from.remote.ip()).or_default();
        its.transactions += 1;
        self.taken.transactions += 1;
        self.all.insert(id, transaction);
        self.weigh(id, 0);
        if is_invite {
            // Sent at once, so that the request isn't retransmitted while downstream is busy.
            let bytes = reply::response(message, from.remote, (100, "Trying"), b"", b"");
            self.send_back(id, bytes);
        }
        self.arm(id);
        id
    }

    /// Adds this proxy's Via to a request that is to be forwarded, and the observed source to the
    /// Via before it. `own` is the Via except for its branch: the transport and the address for
    /// responses, as in `SIP/2.0/UDP 192.0.2.9:5060`.
    pub fn stamp(&self, edit: &mut Edit<'_>, id: TransactionId, own: &str) {
        let Some(t) = self.all.get(&id) else { return };
        stamp(edit, t.upstream.remote, own, &t.branch);
    }

    /// Stamps the ACK of a 2xx from `source`, which has no transaction, as [`Transactions::stamp`]
    /// does.
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

    /// Sends a message that has no transaction.
    pub fn send(&mut self, to: Hop, bytes: Vec<u8>) {
        self.outputs.push_back(Output { to, bytes });
    }

    /// Forwards a new request to `to` as `bytes`, which have been stamped. Does nothing if it has
    /// been answered or cancelled meanwhile; returns false if the additions made it too long.
    pub fn forward(&mut self, now: Time, id: TransactionId, to: Hop, bytes: Vec<u8>) -> bool {
        let message = Message::parse_own(&bytes).ok().filter(|own| own.excess().is_none());
        let Some(message) = message else { return false };
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

    /// A request as it was forwarded, and its next hop.
    pub fn forwarded(&self, id: TransactionId) -> Option<(Hop, &Message)> {
        self.all.get(&id)?.downstream.as_ref().map(|(to, message)| (*to, message))
    }

    /// Ends a request without a final response: it is refused, and cancelled downstream.
    pub fn abort(&mut self, now: Time, id: TransactionId, said: (u16, &str)) {
        self.cancel(now, id);
        self.refuse(now, id, said, b"");
    }

    /// Answers a request with a response of this proxy.
    pub fn refuse(&mut self, now: Time, id: TransactionId, said: (u16, &str), more: &[u8]) {
        let tag = format!("{:016x}", self.rng.next_u64());
        let Some(t) = self.all.get_mut(&id) else { return };
        if t.is_own {
            // It has no requester, and stays unanswered.
            t.phase = Phase::Completed;
            return;
        }
        if t.is_invite
            && matches!(t.phase, Phase::Calling | Phase::Proceeding)
            && !(200..300).contains(&said.0)
        {
            t.is_abandoned = true;
            t.timers.abandon(now);
        }
        let bytes = reply::response(&t.request, t.upstream.remote, said, tag.as_bytes(), more);
        self.respond(now, id, said.0, bytes);
    }

    /// Sends a response with this code to the requester; its topmost Via has been removed.
    pub fn respond(&mut self, now: Time, id: TransactionId, code: u16, bytes: Vec<u8>) {
        let Some(t) = self.all.get_mut(&id) else { return };
        let is_final = matches!(t.phase, Phase::Completed | Phase::Confirmed);
        if is_final || t.phase == Phase::Accepted && !(200..300).contains(&code) {
            return;
        }
        let retransmissions = t.upstream.connection.is_none();
        match code {
            ..200 => {}
            200..300 if t.is_invite => {
                t.timers.accepted(now, t.phase != Phase::Accepted);
                t.phase = Phase::Accepted;
            }
            _ => {
                t.phase = Phase::Completed;
                t.timers.completed(now, t.is_invite, retransmissions);
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

    /// Cancels the request downstream once a provisional response has arrived; if it hasn't been
    /// forwarded, it never will be.
    fn cancel(&mut self, now: Time, id: TransactionId) {
        let Some(t) = self.all.get_mut(&id) else { return };
        match (&t.downstream, t.phase) {
            (None, Phase::New) => self.refuse(now, id, (487, "Request Terminated"), b""),
            (Some(_), Phase::Proceeding) => self.cancel_downstream(now, id),
            _ => {}
        }
    }

    fn cancel_downstream(&mut self, now: Time, id: TransactionId) {
        let Some(t) = self.all.get_mut(&id).filter(|t| t.cancel.is_none()) else { return };
        let Some((to, forwarded)) = &t.downstream else { return };
        let bytes = reply::cancel(forwarded);
        t.cancel = Some(bytes.clone());
        t.timers.cancelling(now, to.connection.is_none());
        self.outputs.push_back(Output { to: *to, bytes });
        self.arm(id);
    }

    /// The time of the next [`Transactions::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        self.due.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Retransmits unanswered messages, and gives up overdue ones. Only the requester of an INVITE
    /// receives a 408, as it doesn't help others (RFC 4320, 4.2). Returns the requests that were
    /// given up.
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
        // A call that rings for too long is cancelled, and downstream gets time to answer that.
        if t.phase == Phase::Proceeding && t.is_invite && !t.is_cancelled {
            (t.is_cancelled, t.has_expired) = (true, true);
            return self.cancel(now, id);
        }
        if t.is_own {
            return self.close(id);
        }
        given_up.push(id);
        t.timers.cancel_heard();
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

    /// Returns the next message to send; call it after every other call until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// Destination of the responses to a request (RFC 3261, 18.2.2; RFC 3581, 4): the address it came
/// from, at the port in its Via, or at the source port if requested.
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
