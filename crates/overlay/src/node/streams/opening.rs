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
use std::collections::BTreeMap;
use trunkline_base::wire::Writer;
use trunkline_base::{Pacer, Rate, Time};

/// Time for which numbers are made from the same secret; they stay valid for as long again.
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

/// Maximum number of streams of one node that are remembered as closed.
const MAX_CLOSED: usize = 64;

/// The numbers of streams that other nodes open.
#[derive(Debug)]
pub(super) struct Numbers {
    secret: hmac::Key,
    /// Streams that have been closed while their numbers are valid: a late segment must not make
    /// another of them. With each, the end of its number's validity.
    closed: BTreeMap<(Key, u32), Time>,
}

impl Numbers {
    pub fn new(secret: &[u8; 32]) -> Numbers {
        Numbers { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), closed: BTreeMap::new() }
    }

    /// The number of the stream that is requested with this tag and opener's number.
    fn make(&self, now: Time, key: &Key, tag: u16, opener: u32) -> u32 {
        self.of_slot(slot(now), key, tag, opener)
    }

    /// Whether `number` was made for this request lately, and its stream has not been closed.
    fn is_valid(&self, now: Time, key: &Key, (tag, opener): (u16, u32), number: u32) -> bool {
        let slots = [slot(now), slot(now).wrapping_sub(1)];
        slots.iter().any(|&slot| self.of_slot(slot, key, tag, opener) == number)
            && self.closed.get(&(*key, number)).is_none_or(|&until| until <= now)
    }

    fn of_slot(&self, slot: u64, key: &Key, tag: u16, opener: u32) -> u32 {
        let mut bytes = [0; 22];
        bytes[..8].copy_from_slice(&slot.to_be_bytes());
        bytes[8..12].copy_from_slice(&key.peer.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&key.peer_port.to_be_bytes());
        bytes[14..16].copy_from_slice(&key.port.to_be_bytes());
        bytes[16..18].copy_from_slice(&tag.to_be_bytes());
        bytes[18..].copy_from_slice(&opener.to_be_bytes());
        let hash = hmac::sign(&self.secret, &bytes);
        hash.as_ref().first_chunk().map_or(0, |first| u32::from_be_bytes(*first))
    }

    /// Remembers that a stream, which began at `begun`, is closed.
    pub fn close(&mut self, key: Key, number: u32, begun: Time) {
        let of = |peer: NodeId, port: u16| (Key { peer, peer_port: port, port }, 0);
        let last = (Key { peer: key.peer, peer_port: u16::MAX, port: u16::MAX }, u32::MAX);
        let all = self.closed.range(of(key.peer, 0)..=last);
        if all.clone().count() >= MAX_CLOSED
            && let Some((&first, _)) = all.min_by_key(|(_, until)| **until)
        {
            self.closed.remove(&first);
        }
        self.closed.insert((key, number), begun + 2 * SLOT);
    }

    /// Forgets the closed streams whose numbers are no longer valid.
    pub fn sweep(&mut self, now: Time) {
        self.closed.retain(|_, until| *until > now);
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
        self.make_room(key).map_err(|_| Reset::Full)?;
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
        numbers.close(KEY, number, at(29_999));
        assert!(!numbers.is_valid(at(40_000), &KEY, (6, 7), number));
        for n in 0..1_000 {
            numbers.close(KEY, n, at(41_000));
        }
        assert_eq!(numbers.closed.len(), MAX_CLOSED);
        numbers.sweep(at(41_000) + 2 * SLOT);
        assert_eq!(numbers.closed.len(), 0);
    }
}
