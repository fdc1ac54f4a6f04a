//! How streams from other nodes begin. A request to open one leaves nothing behind: the answer has
//! a number, a keyed hash of the request, and only a segment that shows this number makes a stream.
//! So its opener receives what is sent to it, and no other node can open a stream in its name.

use crate::counters::DropReason;
use crate::link::{LinkId, Packet};
use crate::node::Forwarder;
use crate::session::stream::{
    Ack, Body, End, Key, OPENING_WINDOW, Owner, Receiver, Segment, WINDOW_UNIT,
};
use crate::session::wire::stream::Reset;
use crate::wire::{Metric, NodeId};
use core::time::Duration;
use rand::RngExt;
use ring::hmac;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_base::wire::Writer;
use trunkline_base::{Pacer, Rate, Time};

/// Longest time for which numbers are made from the same input; they stay valid for as long again.
const SLOT: Duration = Duration::from_secs(30);

/// Rate of answers to packets of streams that aren't here: requests, and what is refused. Each
/// source that is named has this rate on each link, so that packets in its name over one link
/// neither fill its own links with answers nor use up those to requests over other links.
const ANSWERS: Rate = Rate { per_second: 200, burst: 400 };

/// Number of sources that are distinguished on each link.
const SOURCES: usize = 64;

/// Limits the answers to packets of streams that aren't here.
#[derive(Debug, Default)]
pub(super) struct Answers(BTreeMap<LinkId, Box<[Pacer; SOURCES]>>);

impl Answers {
    /// Whether a packet in the name of `source` may be answered, which came over the link `from`, if
    /// not from this node.
    pub fn admit(&mut self, now: Time, from: Option<LinkId>, source: NodeId) -> bool {
        let Some(from) = from else { return true };
        let sources = self.0.entry(from).or_insert_with(|| Box::new([Pacer::of(ANSWERS); SOURCES]));
        sources[source.0 as usize % SOURCES].admit(now, 1)
    }
}

/// Maximum number of closed streams of one node that are remembered in one era: a node that is asked
/// over one link answers about one and a half times as many requests in half a minute at most.
const MAX_CLOSED: usize = 4_096;

/// A time in which numbers are made for one node: a half minute, or a part of it. Numbers are valid
/// in their era and in the next. The first number is that of the half minute, the second that of
/// its part.
type Era = (u64, u32);

/// The numbers of streams that other nodes open.
#[derive(Debug)]
pub(super) struct Numbers {
    secret: hmac::Key,
    closed: BTreeMap<NodeId, Closed>,
}

/// The streams of one node that have been closed while their numbers may have been valid: a late
/// segment must not make another of them.
///
/// They are remembered for as long, in bounded memory: when too many have been closed in an era,
/// another one begins.
#[derive(Debug, Default)]
struct Closed {
    /// The era in which a stream was last closed, and the one before that era.
    era: Era,
    before: Era,
    /// The ports and numbers of the streams that were closed in each of the two.
    in_era: BTreeSet<(u16, u16, u32)>,
    in_before: BTreeSet<(u16, u16, u32)>,
}

impl Closed {
    /// The present era, and the one before.
    fn eras(&self, now: Time) -> [Era; 2] {
        let slot = slot(now);
        match slot.checked_sub(self.era.0) {
            Some(0) => [self.era, self.before],
            Some(1) => [(slot, 0), self.era],
            _ => [(slot, 0), (slot.wrapping_sub(1), 0)],
        }
    }

    fn holds(&self, key: &Key, number: u32) -> bool {
        let entry = (key.peer_port, key.port, number);
        self.in_era.contains(&entry) || self.in_before.contains(&entry)
    }

    fn insert(&mut self, now: Time, key: &Key, number: u32) {
        let [era, before] = self.eras(now);
        if era != self.era {
            self.begin(era, before);
        }
        if self.in_era.len() >= MAX_CLOSED {
            self.begin((era.0, era.1.wrapping_add(1)), era);
        }
        self.in_era.insert((key.peer_port, key.port, number));
    }

    fn begin(&mut self, era: Era, before: Era) {
        let last = core::mem::take(&mut self.in_era);
        self.in_before = if before == self.era { last } else { BTreeSet::new() };
        (self.era, self.before) = (era, before);
    }

    /// Whether the numbers of its streams are still valid.
    fn counts(&self, now: Time) -> bool {
        slot(now).saturating_sub(self.era.0) <= 1
    }
}

impl Numbers {
    pub fn new(secret: &[u8; 32]) -> Numbers {
        Numbers { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), closed: BTreeMap::new() }
    }

    /// The number of the stream that is requested with this tag and opener's number.
    fn make(&self, now: Time, key: &Key, tag: u16, opener: u32) -> u32 {
        self.of_era(self.eras(now, key.peer)[0], key, tag, opener)
    }

    /// The present era for `peer`, and the one before.
    fn eras(&self, now: Time, peer: NodeId) -> [Era; 2] {
        self.closed.get(&peer).map_or_else(|| Closed::default().eras(now), |c| c.eras(now))
    }

    /// Whether `number` was made for this request lately, and its stream has not been closed.
    fn is_valid(&self, now: Time, key: &Key, (tag, opener): (u16, u32), number: u32) -> bool {
        let eras = self.eras(now, key.peer);
        eras.iter().any(|&era| self.of_era(era, key, tag, opener) == number)
            && self.closed.get(&key.peer).is_none_or(|closed| !closed.holds(key, number))
    }

    fn of_era(&self, (slot, part): Era, key: &Key, tag: u16, opener: u32) -> u32 {
        let mut bytes = [0; 26];
        bytes[..8].copy_from_slice(&slot.to_be_bytes());
        bytes[8..12].copy_from_slice(&part.to_be_bytes());
        bytes[12..16].copy_from_slice(&key.peer.0.to_be_bytes());
        bytes[16..18].copy_from_slice(&key.peer_port.to_be_bytes());
        bytes[18..20].copy_from_slice(&key.port.to_be_bytes());
        bytes[20..22].copy_from_slice(&tag.to_be_bytes());
        bytes[22..].copy_from_slice(&opener.to_be_bytes());
        let hash = hmac::sign(&self.secret, &bytes);
        hash.as_ref().first_chunk().map_or(0, |first| u32::from_be_bytes(*first))
    }

    /// Remembers that a stream, which began at `begun`, is closed.
    pub fn close(&mut self, now: Time, key: &Key, number: u32, begun: Time) {
        if now.since(begun) < 2 * SLOT {
            self.closed.entry(key.peer).or_default().insert(now, key, number);
        }
    }

    /// Forgets the closed streams whose numbers are no longer valid.
    pub fn sweep(&mut self, now: Time) {
        self.closed.retain(|_, closed| closed.counts(now));
    }
}

fn slot(now: Time) -> u64 {
    now.as_nanos() / SLOT.as_nanos() as u64
}

impl Forwarder {
    /// Processes a segment of a stream that isn't here: a request to open it, or a segment with the
    /// number from the answer to that. Returns whether there is such a stream now.
    pub(super) fn on_unknown(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        packet: &Packet<'_>,
        body: &Body<'_>,
    ) -> Result<bool, Reset> {
        let (key, tag) = (Key::of(&packet.flow), packet.flow.flow_seq);
        let Some(opener) = body.opener else { return Err(Reset::Unknown) };
        match body.instance {
            None => {
                self.can_open(&key, packet.flow.metric)?;
                if !self.streams.answers.admit(now, from, key.peer) {
                    return Ok(false);
                }
                let number = self.streams.numbers.make(now, &key, tag, opener);
                let window = (OPENING_WINDOW / WINDOW_UNIT) as u16;
                let ack = Some(Ack::new(0, window, 0, 0));
                let (opener, instance) = (Some(opener), Some(number));
                let answer = Body { opener, instance, ack, ..Body::default() };
                let mut payload = [0; 32];
                let mut w = Writer::new(&mut payload);
                if Segment::Body(answer).emit_head(&mut w).is_ok() {
                    self.send_segment(now, (key, tag, packet.flow.metric), w.written());
                }
                Ok(false)
            }
            Some(number) => {
                let numbers = &self.streams.numbers;
                if !numbers.is_valid(now, &key, (tag, opener), number) {
                    return Err(Reset::Unknown);
                }
                self.can_open(&key, packet.flow.metric)?;
                self.let_in(now, key, packet, (body.messages, number))?;
                Ok(true)
            }
        }
    }

    /// Whether another node may open a stream with this key; if not, why.
    fn can_open(&self, key: &Key, metric: Metric) -> Result<(), Reset> {
        let listener = self.streams.table.listener(key.port).ok_or(Reset::NotListening)?;
        if self.next_hop(key.peer, metric).is_none() && key.peer != self.id {
            return Err(Reset::NoRoute);
        }
        if !listener.may_wait(key.peer) {
            return Err(Reset::Full);
        }
        Ok(())
    }

    /// Adds a stream that another node has opened, which then waits to be accepted. An error is the
    /// reason for refusing it.
    fn let_in(
        &mut self,
        now: Time,
        key: Key,
        packet: &Packet<'_>,
        (messages, number): (bool, u32),
    ) -> Result<(), Reset> {
        self.make_room(now, key).map_err(|_| Reset::Full)?;
        let token = self.entropy.random();
        let (tx, _) = self.halves(0);
        let rx = Receiver::new(OPENING_WINDOW.min(self.streams.table.config.buffer as u64), 0);
        let owner = Owner::Backlog { token };
        let numbers = (packet.flow.flow_seq, number);
        let mut end = End::opened(now, key, numbers, owner, tx, rx);
        end.metric = packet.flow.metric;
        end.messages = messages;
        self.streams.numbers.sweep(now);
        self.streams.table.insert(end);
        self.streams.stats.accepted += 1;
        Ok(())
    }

    /// Refuses a segment of a stream that isn't here.
    pub(super) fn refuse_segment(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        packet: &Packet<'_>,
        body: &Body<'_>,
        why: Reset,
    ) -> DropReason {
        self.streams.stats.refused += u64::from(why != Reset::Unknown);
        self.say_reset(now, from, packet, body, why);
        DropReason::NoPort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { peer: NodeId(3), peer_port: 4, port: 5 };

    #[test]
    fn a_number_is_valid_for_its_request_alone() {
        let numbers = Numbers::new(&[1; 32]);
        let at = Time::from_millis(7_000);
        let number = numbers.make(at, &KEY, 6, 7);
        let is_valid = |key, request| numbers.is_valid(at, key, request, number);
        assert!(is_valid(&KEY, (6, 7)));
        assert!(!is_valid(&KEY, (6, 8)) && !is_valid(&KEY, (5, 7)));
        assert!(!is_valid(&Key { peer: NodeId(4), ..KEY }, (6, 7)));
        assert!(!is_valid(&Key { peer_port: 9, ..KEY }, (6, 7)));
        assert!(!is_valid(&Key { port: 9, ..KEY }, (6, 7)));
        // After a restart the secret is another.
        assert!(!Numbers::new(&[2; 32]).is_valid(at, &KEY, (6, 7), number));
    }

    #[test]
    fn a_number_is_valid_for_half_a_minute_unless_its_stream_is_closed() {
        let mut numbers = Numbers::new(&[1; 32]);
        let at = Time::from_millis;
        let number = numbers.make(at(29_999), &KEY, 6, 7);
        for (ms, is_valid) in [(29_999, true), (59_999, true), (60_000, false)] {
            assert_eq!(numbers.is_valid(at(ms), &KEY, (6, 7), number), is_valid, "{ms}");
        }
        numbers.close(at(40_000), &KEY, number, at(29_999));
        for ms in [40_000, 59_999, 60_000, 100_000] {
            assert!(!numbers.is_valid(at(ms), &KEY, (6, 7), number), "{ms}");
        }
        numbers.sweep(at(89_999));
        assert_eq!(numbers.closed.len(), 1);
        numbers.sweep(at(90_000));
        assert_eq!(numbers.closed.len(), 0);
        numbers.close(at(100_000), &KEY, number, at(40_000));
        assert_eq!(numbers.closed.len(), 0, "its number is no longer valid");
    }

    /// However many streams a node closes, no number makes a second one, and the memory for that is
    /// bounded. Other nodes, and those that have just received a number, are not affected.
    #[test]
    fn a_closed_stream_is_never_opened_again() {
        let mut numbers = Numbers::new(&[1; 32]);
        let at = |n: u32| Time::from_millis(5_000 + u64::from(n) * 5);
        let key = |n: u32| Key { peer_port: n as u16, ..KEY };
        let other = Key { peer: NodeId(9), ..KEY };
        let of_other = numbers.make(at(0), &other, 6, 7);
        let mut given = Vec::new();
        for n in 0..20_000 {
            let number = numbers.make(at(n), &key(n), 6, n);
            given.push(number);
            // A stream begins 500 ms after its number was given, and lasts for as long.
            if let Some(n) = n.checked_sub(100) {
                let number = given[n as usize];
                assert!(numbers.is_valid(at(n + 100), &key(n), (6, n), number), "{n}");
            }
            if let Some(n) = n.checked_sub(200) {
                numbers.close(at(n + 200), &key(n), given[n as usize], at(n + 100));
                for late in [n, n / 2, n.saturating_sub(5_000), n.saturating_sub(10_000), 0] {
                    let number = given[late as usize];
                    let now = at(n + 200);
                    assert!(!numbers.is_valid(now, &key(late), (6, late), number), "{late} of {n}");
                }
            }
            let closed = numbers.closed.get(&KEY.peer);
            let kept = closed.map_or(0, |c| c.in_era.len() + c.in_before.len());
            assert!(kept <= 2 * MAX_CLOSED);
        }
        assert!(numbers.is_valid(Time::from_millis(50_000), &other, (6, 7), of_other));
    }
}
