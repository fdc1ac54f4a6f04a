//! The receiving half of a stream: puts received data in order, keeps it until its application
//! takes it, and acknowledges it.

use super::buffer::{Buffer, Memory};
use super::segment::{Ack, Data, MAX_RANGES, WINDOW_UNIT};
use crate::session::wire::stream::{MAX_DATA, Reset};
use core::time::Duration;
use trunkline_base::{Time, extend48};

/// Time that an unrequested acknowledgement may wait for others, or for data to be sent with.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Maximum number of gaps in the received data. A packet that would add one more is dropped, so
/// that no peer can make this end search long lists.
const MAX_GAPS: usize = 512;

/// Result of receiving the data in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentOutcome {
    /// Some of the data, or the end of the stream, was new, and is kept.
    New,
    /// All of it had been received before.
    Copy,
    /// It was dropped for lack of memory, or because there are too many gaps; the peer has to send
    /// it again.
    NoRoom,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receiver {
    buffer: Buffer,
    /// Maximum number of stored bytes that the application has not read.
    max: u64,
    /// The application has read all bytes before this position.
    taken: u64,
    /// All bytes before this position have been received.
    next: u64,
    /// Data received beyond `next`: first position and end (exclusive) of each range, ascending,
    /// with gaps between them.
    ranges: Vec<(u64, u64)>,
    /// The position after the last byte of the stream, once that is known.
    end: Option<u64>,
    /// The application has given credit for all bytes before this position.
    credit: u64,
    /// The furthest position that the peer has been allowed to send up to.
    announced: u64,
    /// Whether the budget had no memory for the last data that needed more.
    is_short: bool,
    marks: u8,
    retransmissions: u8,
    due: Time,
}

impl Receiver {
    /// Creates a receiver that keeps at most `max` unread bytes, for an application that gives
    /// `credit` bytes to begin with.
    pub fn new(max: u64, credit: u64) -> Receiver {
        Receiver {
            buffer: Buffer::default(),
            max,
            taken: 0,
            next: 0,
            ranges: Vec::new(),
            end: None,
            credit,
            announced: 0,
            is_short: false,
            marks: 0,
            retransmissions: 0,
            due: Time::NEVER,
        }
    }

    /// Adds credit from the application for `bytes` more. False if that would make more than 2^32 −
    /// 1 outstanding bytes, which violates the session protocol.
    pub fn give_credit(&mut self, bytes: u64) -> bool {
        self.credit = self.credit.saturating_add(bytes);
        self.credit - self.taken <= u64::from(u32::MAX)
    }

    /// Allows up to `max` unread bytes from now on, and announces that to the peer.
    pub fn widen(&mut self, now: Time, max: u64) {
        self.max = self.max.max(max);
        self.due = self.due.min(now);
    }

    /// Counts a packet that arrived with a congestion mark.
    pub fn on_mark(&mut self) {
        self.marks = self.marks.wrapping_add(1);
    }

    /// Handles the peer's request for an acknowledgement, which is due at once.
    pub fn on_ask(&mut self, now: Time) {
        self.due = self.due.min(now);
    }

    /// Takes data from the peer. An error if the data exceeds the announced window, or contradicts
    /// the known end of the stream.
    pub fn on_data(
        &mut self,
        now: Time,
        data: &Data<'_>,
        memory: &mut Memory<'_>,
    ) -> Result<SegmentOutcome, Reset> {
        let first = extend48(self.next, data.position);
        let end = first + data.bytes.len() as u64;
        let furthest = self.ranges.last().map_or(self.next, |&(_, end)| end);
        if end > self.announced {
            return Err(Reset::Protocol);
        }
        if data.end && (end < furthest || self.end.is_some_and(|known| known != end))
            || self.end.is_some_and(|known| end > known)
        {
            return Err(Reset::Protocol);
        }
        let new_end = data.end && self.end.is_none();
        self.retransmissions = self.retransmissions.wrapping_add(data.retransmitted.into());
        let taken = self.keep(first, data.bytes, memory);
        if taken == SegmentOutcome::NoRoom {
            // The peer must be notified that its window is smaller than before.
            self.due = self.due.min(now + ACK_DELAY);
            return Ok(taken);
        }
        if new_end {
            self.end = Some(end);
        }
        if taken == SegmentOutcome::Copy && !new_end {
            self.due = self.due.min(now);
            return Ok(SegmentOutcome::Copy);
        }
        self.due = self.due.min(if new_end { now } else { now + ACK_DELAY });
        Ok(SegmentOutcome::New)
    }

    fn keep(&mut self, first: u64, bytes: &[u8], memory: &mut Memory<'_>) -> SegmentOutcome {
        let end = first + bytes.len() as u64;
        let (from, skip) = (first.max(self.next), self.next.saturating_sub(first));
        // The first range that ends at its start or later.
        let at = self.ranges.partition_point(|&(_, e)| e < from);
        if end <= from || self.ranges.get(at).is_some_and(|&(f, e)| f <= from && end <= e) {
            return SegmentOutcome::Copy;
        }
        let joins = self.ranges[at..].iter().take_while(|&&(f, _)| f <= end).count();
        let is_gap = from > self.next && joins == 0;
        if is_gap && self.ranges.len() >= MAX_GAPS {
            return SegmentOutcome::NoRoom;
        }
        self.is_short = !self.buffer.reserve(self.taken, end, memory);
        if self.is_short {
            return SegmentOutcome::NoRoom;
        }
        self.buffer.write(from, &bytes[skip as usize..]);
        let mut range = (from, end);
        for &(f, e) in &self.ranges[at..at + joins] {
            range = (range.0.min(f), range.1.max(e));
        }
        if range.0 == self.next {
            self.next = range.1;
            self.ranges.drain(at..at + joins);
        } else if joins == 0 {
            self.ranges.insert(at, range);
        } else {
            self.ranges[at] = range;
            self.ranges.drain(at + 1..at + joins);
        }
        SegmentOutcome::New
    }

    /// The next bytes for the application, as far as it has given credit: at most [`MAX_DATA`], and
    /// empty if there are none.
    pub fn readable(&self) -> &[u8] {
        let upto = self.next.min(self.credit);
        let len = upto.saturating_sub(self.taken).min(MAX_DATA as u64);
        self.buffer.piece(self.taken, len as usize)
    }

    /// Records that the application has taken the first `len` bytes of [`Receiver::readable`].
    pub fn took(&mut self, now: Time, len: usize) {
        self.taken += len as u64;
        // Worth an acknowledgement: the room has grown by a quarter of the buffer.
        if self.taken + self.max >= self.announced + self.max / 4 && self.end.is_none() {
            self.due = self.due.min(now);
        }
    }

    /// Whether the application has read the stream to its end.
    pub fn is_at_end(&self) -> bool {
        self.end == Some(self.taken)
    }

    /// Whether the stream has been received to its end.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Whether anything has been received that the application hasn't read.
    pub fn holds_data(&self) -> bool {
        self.taken < self.next || !self.ranges.is_empty()
    }

    /// Number of bytes received in order since the beginning of the stream.
    pub fn received(&self) -> u64 {
        self.next
    }

    /// Number of bytes received in order that the application has not read.
    pub fn unread(&self) -> u64 {
        self.next - self.taken
    }

    /// Whether anything has been received beyond a gap.
    pub fn has_gaps(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether the peer has yet to be sent an acknowledgement.
    pub fn owes_ack(&self) -> bool {
        self.due < Time::NEVER
    }

    /// The latest time to send an acknowledgement; [`Time::NEVER`] if none is owed.
    pub fn due(&self) -> Time {
        self.due
    }

    /// The acknowledgement to send now, with at most the first `ranges` ranges. None is owed after
    /// that.
    pub fn ack(&mut self, ranges: usize) -> Ack {
        self.due = Time::NEVER;
        let max = if self.is_short { self.buffer.capacity() as u64 } else { self.max };
        let room = (self.taken + max).saturating_sub(self.next) / WINDOW_UNIT;
        let window = u16::try_from(room).unwrap_or(u16::MAX);
        self.announced = self.announced.max(self.next + u64::from(window) * WINDOW_UNIT);
        let next = self.next + u64::from(self.is_complete());
        let mut ack = Ack::new(next, window, self.marks, self.retransmissions);
        for &(first, end) in self.ranges.iter().take(ranges.min(MAX_RANGES)) {
            ack.push(((first - next) as u32, (end - first) as u32));
        }
        ack
    }

    /// Records that the peer has been told to send up to `position`.
    pub fn announce(&mut self, position: u64) {
        self.announced = self.announced.max(position);
    }

    /// Whether the peer may be at `position`, given modulo 2^48.
    pub fn is_in_window(&self, position: u64) -> bool {
        let position = extend48(self.next, position);
        // The end of the stream counts as a byte.
        (self.next..=self.announced + 1).contains(&position)
    }

    /// Allocates the least memory that a buffer may have, so that the stream makes progress,
    /// however slow, whatever others allocate later. False if there is not that much.
    pub fn begin(&mut self, memory: &mut Memory<'_>) -> bool {
        self.buffer.reserve(self.taken, self.taken + 1, memory)
    }

    /// Returns all memory except the minimum to the budget, if nothing is stored.
    pub fn shrink(&mut self, memory: &mut Memory<'_>) {
        if !self.holds_data() {
            self.buffer.shrink(memory);
        }
    }

    /// Drops all stored data, and returns all memory to the budget.
    pub fn release(&mut self, memory: &mut Memory<'_>) {
        self.buffer.release(memory);
        self.ranges = Vec::new();
        (self.taken, self.credit) = (self.next, self.next);
    }
}
