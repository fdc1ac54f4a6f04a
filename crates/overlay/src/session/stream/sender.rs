//! The sending half of a stream: keeps written data until the other end has it, and sends no faster
//! than the path and the other end permit.
//!
//! The links on the path retransmit lost packets, and meanwhile forward later ones. So reordering
//! is the rule here, and loss the exception, as when a relay has failed. Only time reveals that a
//! packet is lost: the sender waits for an overtaken packet for one round trip longer than others
//! took lately. Acknowledgements count the retransmissions received, which shows whether the
//! original arrives after all (as in the Eifel algorithm, RFC 3522). If it does, the sender waits
//! for others as long, except for the first, which the application needs, and undoes the reduction
//! of the window (RFC 4015).

use super::buffer::{Buffer, Memory};
use super::segment::{Ack, WINDOW_UNIT};
use crate::session::wire::stream::Reset;
use crate::wire::{DATA_HEADER, ENVELOPE_OVERHEAD};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Pacer, Time, extend48};
use trunkline_rate::window::{self, Control, Extent};

/// Bytes that a segment adds to its data on the path: headers of IP, UDP, envelope, frame and
/// segment.
const OVERHEAD: u64 = (28 + ENVELOPE_OVERHEAD + DATA_HEADER + super::segment::HEAD) as u64;

/// Time by which sending may be ahead of the pace, so that the granularity of timers doesn't reduce
/// throughput.
const PACING_BURST: Duration = Duration::from_millis(1);

/// Maximum number of outstanding segments before small ones have to wait, unless all of them
/// together have this many bytes on average.
const MAX_SMALL: usize = 1_024;
const AVERAGE: u64 = 256;

/// Upper bound of the retransmission timeout.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum credit, in bytes, that an application gets if there is memory for it, however small the
/// window is.
const MIN_CREDIT: u64 = 64 << 10;

/// Time that the other end may delay an acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Minimum time to wait for an overtaken segment before it counts as lost.
const MIN_REORDER_WINDOW: Duration = Duration::from_millis(20);

/// Time beyond one round trip to wait for the first segment (or a second round trip if that is
/// longer), however late others have arrived.
const FIRST_SEGMENT_PROBE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Lost,
    Acknowledged,
}

/// A segment that was sent: positions `first` to `end` (exclusive). The end of the stream counts as
/// a byte.
#[derive(Clone, Copy, Debug)]
struct Sent {
    first: u64,
    end: u64,
    state: State,
    retransmitted: bool,
    /// Number of its last transmission, among all of the stream, and its time.
    transmission: u64,
    at: Time,
    /// Time of its first transmission.
    first_at: Time,
}

impl Sent {
    fn cost(&self) -> u64 {
        self.end - self.first + OVERHEAD
    }
}

/// A segment that [`Sender::next`] has chosen to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The position of its first byte, and its number of bytes of data.
    pub position: u64,
    pub len: usize,
    /// Whether the stream ends after these bytes.
    pub is_end: bool,
    /// Whether it requests an acknowledgement at once.
    pub ask: bool,
    /// Its index among the segments sent, if this is a retransmission.
    again: Option<usize>,
}

impl Cut {
    /// Whether this is a retransmission.
    pub fn is_retransmitted(&self) -> bool {
        self.again.is_some()
    }
}

/// Information from one acknowledgement.
#[derive(Default)]
struct News {
    /// Whether the originals arrived: no retransmission has been received since the previous
    /// acknowledgement.
    is_original: bool,
    /// The bytes in the window that it acknowledges for the first time.
    acknowledged: u64,
    /// Whether an original has arrived that counted as lost.
    is_late: bool,
}

/// The sending half of a stream.
#[derive(Debug)]
pub struct Sender {
    buffer: Buffer,
    /// Maximum number of stored bytes that are not acknowledged.
    max: u64,
    /// The other end has acknowledged all bytes before this position.
    first: u64,
    /// All bytes before this position have been sent.
    next: u64,
    /// The application has written all bytes before this position.
    written: u64,
    /// Whether the application has finished writing: the stream ends at `written`.
    is_shut: bool,
    end_sent: bool,
    /// The application has been given credit for all bytes before this position.
    granted: u64,
    /// The end of the other end's receive window.
    limit: u64,
    /// Whether the last acknowledgement announced less room than the first of the outstanding
    /// segments needs: the other end is short of memory.
    is_short: bool,
    sent: VecDeque<Sent>,
    lost: usize,
    in_flight: u64,
    transmissions: u64,
    newest: (u64, Time),
    control: Control,
    pacer: Pacer,
    /// Time from sending to acknowledgement of the slowest of the latest originals.
    slowest: Duration,
    /// Time at which the first segment last counted as lost.
    tried: Time,
    marks: u8,
    retransmissions_received: u8,
    /// Bytes sent since an acknowledgement was last requested.
    unasked: u64,
    loss_at: Time,
    paced_until: Time,
    /// Time at which a segment was last sent; and time at which one was last acknowledged, or the
    /// retransmission timer last expired or was started.
    last_sent: Time,
    active: Time,
    /// Time at which a segment was last acknowledged, or the first was sent with none outstanding.
    advanced: Time,
    /// Whether one packet may be sent regardless of window and pace.
    probe: bool,
    retransmissions: u64,
}

impl Sender {
    /// Creates a sender that keeps at most `max` bytes; `config` has the parameters of its window.
    pub fn new(max: u64, config: window::Config) -> Sender {
        Sender {
            buffer: Buffer::default(),
            max,
            first: 0,
            next: 0,
            written: 0,
            is_shut: false,
            end_sent: false,
            granted: 0,
            limit: 0,
            is_short: false,
            sent: VecDeque::new(),
            lost: 0,
            in_flight: 0,
            transmissions: 0,
            newest: (0, Time::ZERO),
            control: Control::new(config),
            pacer: Pacer::of_time(PACING_BURST),
            slowest: Duration::ZERO,
            tried: Time::ZERO,
            marks: 0,
            retransmissions_received: 0,
            unasked: 0,
            loss_at: Time::NEVER,
            paced_until: Time::NEVER,
            last_sent: Time::ZERO,
            active: Time::ZERO,
            advanced: Time::ZERO,
            probe: false,
            retransmissions: 0,
        }
    }

    /// Takes data from the application. [`Reset::Misuse`] if it has no credit for that or has ended
    /// its direction, [`Reset::NoRoom`] if there is no memory.
    pub fn write(&mut self, data: &[u8], memory: &mut Memory<'_>) -> Result<(), Reset> {
        let end = self.written + data.len() as u64;
        if self.is_shut || end > self.granted {
            return Err(Reset::Misuse);
        }
        if !self.buffer.reserve(self.first, end, memory) {
            return Err(Reset::NoRoom);
        }
        self.buffer.write(self.written, data);
        self.written = end;
        Ok(())
    }

    /// Ends this direction: the application has finished writing.
    pub fn shut(&mut self) {
        self.is_shut = true;
    }

    /// Gives the application credit for up to two windows, as far as there is memory for it.
    /// Returns the additional bytes; 0 if they are too few to be worth a message.
    pub fn grant(&mut self, memory: &mut Memory<'_>) -> u32 {
        let want = (2 * self.control.size()).clamp(MIN_CREDIT, self.max);
        let worth = |room: u64| self.first + room >= self.granted + room / 4;
        if self.is_shut || !worth(want) {
            return 0;
        }
        let room = match self.buffer.reserve(self.first, self.first + want, memory) {
            true => want,
            false => self.buffer.capacity() as u64,
        };
        if room == 0 || !worth(room) {
            return 0;
        }
        let more = self.first + room - self.granted;
        self.granted += more;
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// Whether the application has ended this direction.
    pub fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Whether the other end has acknowledged everything up to and including the end.
    pub fn is_done(&self) -> bool {
        self.end_sent && self.sent.is_empty()
    }

    /// Number of bytes that the other end has acknowledged.
    pub fn delivered(&self) -> u64 {
        self.first.min(self.written)
    }

    /// Number of bytes that were written but not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.written - self.first.min(self.written)
    }

    /// Number of segments that were retransmitted.
    pub fn retransmits(&self) -> u64 {
        self.retransmissions
    }

    /// The smoothed round-trip time from end to end, once it has been measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.control.rtt().smoothed()
    }

    /// The congestion window, in bytes.
    pub fn window(&self) -> u64 {
        self.control.size()
    }

    /// Whether data waits only because the other end has no room for it: its receive window is
    /// closed, or it lacks memory for the window that it had announced.
    pub fn is_stalled(&self) -> bool {
        self.is_short || self.is_closed()
    }

    /// Whether data waits only because the receive window of the other end is closed.
    fn is_closed(&self) -> bool {
        self.in_flight == 0 && self.next < self.written && self.limit <= self.next
    }

    /// Time since when none of the outstanding segments has been acknowledged, if there are any and
    /// the other end has room for them.
    pub fn is_stuck_since(&self) -> Option<Time> {
        (!self.is_short && (self.in_flight > 0 || self.lost > 0)).then_some(self.advanced)
    }

    /// The position up to which this direction has been sent, its end included.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Whether a segment at `position`, given modulo 2^48, may be on its way.
    pub fn is_under_way(&self, position: u64) -> bool {
        (self.first..=self.next).contains(&extend48(self.first, position))
    }

    /// Whether any data is not acknowledged, or still to be sent.
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty() || self.next < self.written || self.is_shut && !self.end_sent
    }

    /// The next segment to send, if windows and pacing permit one now: a retransmission with at
    /// most `again` bytes of data, or a new one with at most `fresh`. Call [`Sender::sent`] when it
    /// has been sent.
    pub fn next(&mut self, now: Time, fresh: usize, again: usize) -> Option<Cut> {
        self.paced_until = Time::NEVER;
        let mut cut = match self.lost_one(again) {
            Some(cut) => cut,
            None => self.fresh(fresh)?,
        };
        let cost = (cut.len + usize::from(cut.is_end)) as u64 + OVERHEAD;
        if !self.probe {
            if self.in_flight > 0 && self.in_flight + cost > self.control.size() {
                self.control.hold_back();
                return None;
            }
            if !self.pacer.is_ready(now) {
                self.control.hold_back();
                self.paced_until = self.pacer.next();
                return None;
            }
        }
        // A window has at least four acknowledgements (Amir & Danilov 2003).
        let quarter = self.unasked + cost >= self.control.size() / 4;
        cut.ask = self.probe || cut.is_end || quarter;
        Some(cut)
    }

    fn lost_one(&mut self, room: usize) -> Option<Cut> {
        if self.lost == 0 {
            return None;
        }
        let at = self.sent.iter().position(|s| s.state == State::Lost)?;
        let Sent { first, end, .. } = self.sent[at];
        let data_end = end.min(self.written);
        if (data_end - first) as usize > room {
            // Packets have become smaller since.
            let cut = first + room as u64;
            self.sent[at].end = cut;
            self.sent.insert(at + 1, Sent { first: cut, ..self.sent[at] });
            self.sent[at + 1].end = end;
            self.lost += 1;
        }
        let end = self.sent[at].end;
        let is_end = end > self.written;
        let len = (end - first) as usize - usize::from(is_end);
        Some(Cut { position: first, len, is_end, ask: false, again: Some(at) })
    }

    fn fresh(&self, room: usize) -> Option<Cut> {
        let waits = self.written.saturating_sub(self.next);
        let allowed = waits.min(self.limit.saturating_sub(self.next));
        let len = allowed.min(room as u64);
        let is_end = self.is_shut && !self.end_sent && len == waits;
        if len == 0 && !is_end {
            return None;
        }
        // A small window must not cause small segments while something is in flight (RFC 9293,
        // section 3.8.6.2.1). Nor are small segments sent when many are outstanding, since each
        // takes memory and time besides its data (RFC 9293, section 3.7.4, is one such rule).
        let small = (len as usize) < room;
        let many = self.sent.len() >= MAX_SMALL
            && self.next - self.first < AVERAGE * self.sent.len() as u64;
        if small && (len < waits && self.in_flight > 0 || many) {
            return None;
        }
        let len = len as usize;
        Some(Cut { position: self.next, len, is_end, ask: false, again: None })
    }

    /// Copies the data of `cut` into `out`, which has the length `cut.len`.
    pub fn copy(&self, cut: &Cut, out: &mut [u8]) {
        self.buffer.copy(cut.position, out);
    }

    /// Records that `cut` was sent at `now`.
    pub fn sent(&mut self, now: Time, cut: &Cut) {
        let timeout = self.control.rtt().timeout().max(ACK_DELAY * 8);
        if self.in_flight == 0 && now.since(self.active) > timeout {
            self.control.on_idle();
        }
        let is_first = self.in_flight == 0 && self.lost == 0;
        self.transmissions += 1;
        let end = cut.position + cut.len as u64 + u64::from(cut.is_end);
        let (transmission, retransmitted) = (self.transmissions, cut.is_retransmitted());
        let before = cut.again.and_then(|at| self.sent.get(at));
        let sent = Sent {
            first: cut.position,
            end,
            state: State::InFlight,
            retransmitted,
            transmission,
            at: now,
            first_at: before.map_or(now, |sent| sent.first_at),
        };
        match cut.again.and_then(|at| self.sent.get_mut(at)) {
            Some(place) => {
                *place = sent;
                self.lost -= 1;
                self.retransmissions += 1;
            }
            None => {
                self.sent.push_back(sent);
                self.next = end;
                self.end_sent |= cut.is_end;
            }
        }
        if self.in_flight == 0 {
            self.active = now;
        }
        if is_first {
            self.advanced = now;
        }
        self.in_flight += sent.cost();
        self.unasked = if cut.ask { 0 } else { self.unasked + sent.cost() };
        self.pacer.spend_time(now, self.control.pace(sent.cost() as usize));
        (self.last_sent, self.probe) = (now, false);
    }

    /// Processes an acknowledgement. [`Reset::Protocol`] if it covers data that was never sent, or
    /// its ranges are not separated by gaps.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<(), Reset> {
        let upto = extend48(self.first, ack.next);
        if upto > self.next {
            return Err(Reset::Protocol);
        }
        let limit = upto + u64::from(ack.window) * WINDOW_UNIT;
        if limit > self.limit {
            self.limit = limit;
            self.control.end_backoff();
        }
        let before = self.in_flight;
        let is_original = ack.retransmissions == self.retransmissions_received;
        let mut news = News { is_original, ..News::default() };
        // Each range lies beyond the data before it, with a gap in front. So no range covers data
        // that is acknowledged already, and no segment is visited twice.
        let (received, mut behind) = (self.first.max(upto), upto);
        for at in 0..self.sent.partition_point(|s| s.end <= upto) {
            self.acknowledge(now, at, &mut news);
        }
        for &(ahead, len) in ack.ranges() {
            let first = upto + u64::from(ahead);
            let end = first + u64::from(len);
            let has_gap = first > behind && (first > received || end <= received);
            if end > self.next || !has_gap {
                return Err(Reset::Protocol);
            }
            behind = end;
            let from = self.sent.partition_point(|s| s.first < first);
            for at in from..self.sent.partition_point(|s| s.end <= end) {
                self.acknowledge(now, at, &mut news);
            }
        }
        while self.sent.front().is_some_and(|s| s.end <= upto) {
            self.sent.pop_front();
        }
        if self.is_short {
            // Data that the other end had no room for does not show that it has gone.
            self.advanced = now;
        }
        if upto >= self.first {
            self.first = upto;
            self.is_short = self.sent.front().is_some_and(|s| limit < s.end.min(self.written));
        }
        self.on_counts(ack);
        if news.is_late {
            self.on_late(now);
        }
        if news.acknowledged > 0 {
            (self.active, self.advanced) = (now, now);
            self.control.on_progress(now, self.first, news.acknowledged, before);
        }
        self.find_lost(now);
        Ok(())
    }

    /// Marks the segment at index `at` as acknowledged, unless it was before, and adds the
    /// resulting information to `news`.
    fn acknowledge(&mut self, now: Time, at: usize, news: &mut News) {
        let Some(sent) = self.sent.get_mut(at) else { return };
        let Sent { state, transmission, retransmitted, at: sent_at, first_at, .. } = *sent;
        let cost = sent.cost();
        if state == State::Acknowledged {
            return;
        }
        sent.state = State::Acknowledged;
        news.acknowledged += cost;
        match state {
            State::InFlight => self.in_flight = self.in_flight.saturating_sub(cost),
            _ => self.lost -= 1,
        }
        if !retransmitted || news.is_original {
            let took = now.since(first_at);
            self.slowest = took.max(self.slowest - self.slowest / 8);
            self.control.end_backoff();
            news.is_late |= retransmitted || state == State::Lost;
        }
        // Otherwise it is unknown which transmission arrived (RFC 6298, section 3); but the last
        // cannot have arrived sooner than the shortest round trip.
        let shortest = self.control.rtt().shortest().unwrap_or_default();
        let is_last = !retransmitted || !news.is_original && now.since(sent_at) >= shortest;
        if is_last && retransmitted {
            // This original was lost, so its delay must not extend the wait for others.
            self.slowest = self.slowest.min(now.since(sent_at));
        }
        if is_last && transmission > self.newest.0 {
            self.newest = (transmission, sent_at);
            let rtt = now.since(sent_at);
            // A time longer than any timeout is not a round trip: this node must have been stalled,
            // and a pace derived from it would delay sending for minutes.
            if !retransmitted && rtt <= LONGEST_TIMEOUT + ACK_DELAY {
                self.control.on_round_trip(rtt);
            }
        }
    }

    /// Reacts to the counts in an acknowledgement. Acknowledgements may overtake each other, so
    /// smaller counts are old.
    fn on_counts(&mut self, ack: &Ack) {
        let is_later = |then: u8, now: u8| (1..128).contains(&now.wrapping_sub(then));
        if is_later(self.retransmissions_received, ack.retransmissions) {
            self.retransmissions_received = ack.retransmissions;
        }
        if is_later(self.marks, ack.marks) {
            self.marks = ack.marks;
            self.control.on_mark(self.first, self.extent());
        }
    }

    /// A segment that counted as lost has arrived: others that are no later will too.
    fn on_late(&mut self, now: Time) {
        self.control.undo();
        let (_, patience) = self.reorder_window();
        for sent in &mut self.sent {
            if sent.state == State::Lost && now < sent.at + patience {
                sent.state = State::InFlight;
                self.lost -= 1;
                self.in_flight += sent.cost();
            }
        }
    }

    fn extent(&self) -> Extent {
        Extent { next: self.next, transmissions: self.transmissions }
    }

    /// Times to wait for overtaken segments: for the first, and for others.
    fn reorder_window(&self) -> (Duration, Duration) {
        let rtt = self.control.rtt().smoothed().unwrap_or_default();
        let others = rtt.max(self.slowest) + rtt.max(MIN_REORDER_WINDOW);
        (others.min(rtt + rtt.max(FIRST_SEGMENT_PROBE)), others)
    }

    /// Marks segments as lost that were sent long before one that is acknowledged.
    fn find_lost(&mut self, now: Time) {
        self.loss_at = Time::NEVER;
        let (first, others) = self.reorder_window();
        let mut lost = None;
        for (at, sent) in self.sent.iter_mut().enumerate() {
            if sent.state != State::InFlight || sent.transmission > self.newest.0 {
                continue;
            }
            // However late segments arrive, the one that the application waits for is retransmitted
            // now and then.
            let tried = self.tried.max(sent.at) + first;
            let due = if at == 0 { tried.min(sent.at + others) } else { sent.at + others };
            if due > now {
                self.loss_at = self.loss_at.min(due);
                continue;
            }
            if at == 0 {
                (self.tried, self.probe) = (now, true);
            }
            sent.state = State::Lost;
            self.lost += 1;
            self.in_flight = self.in_flight.saturating_sub(sent.cost());
            lost = lost.max(Some(sent.transmission));
        }
        if let Some(transmission) = lost {
            self.control.on_loss(transmission, self.extent());
        }
    }

    /// Time at which the retransmission timer expires.
    fn timeout_at(&self) -> Time {
        let idle = self.in_flight == 0 && self.lost == 0;
        if idle && !self.is_closed() {
            return Time::NEVER;
        }
        let timeout = self.control.rtt().timeout();
        let rtt = self.control.rtt().smoothed().unwrap_or(timeout);
        // The links have their own timeouts, which come first.
        let timeouts = self.control.timeouts();
        let wait = match timeouts {
            0 => (timeout + rtt).max(2 * rtt),
            n => (timeout + rtt) * (1 << n.min(8)),
        };
        let since = if timeouts == 0 { self.last_sent.max(self.active) } else { self.active };
        since + wait.min(LONGEST_TIMEOUT) + ACK_DELAY
    }

    /// Time of the next call of [`Sender::handle_timeout`] or [`Sender::next`] if nothing arrives
    /// before.
    pub fn next_timeout(&self) -> Time {
        self.timeout_at().min(self.loss_at).min(self.paced_until)
    }

    /// Performs the actions that are due at `now`; true if an acknowledgement should be requested
    /// because the receive window is closed.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if self.paced_until <= now {
            self.paced_until = Time::NEVER;
        }
        if self.loss_at <= now {
            self.find_lost(now);
        }
        if self.timeout_at() > now {
            return false;
        }
        let timeouts = self.control.expire();
        self.active = now;
        if self.is_closed() {
            return true;
        }
        self.probe = true;
        if timeouts == 1 {
            // Tail-loss probe: the acknowledgement of the last segment shows the gaps before it.
            let last = self.sent.iter_mut().rev().find(|s| s.state == State::InFlight);
            if let Some(sent) = last.filter(|_| self.lost == 0) {
                sent.state = State::Lost;
                self.in_flight = self.in_flight.saturating_sub(sent.cost());
                self.lost += 1;
            }
            return false;
        }
        for sent in &mut self.sent {
            if sent.state == State::InFlight {
                sent.state = State::Lost;
                self.in_flight = self.in_flight.saturating_sub(sent.cost());
                self.lost += 1;
            }
        }
        self.loss_at = Time::NEVER;
        self.control.on_timeout(self.extent());
        false
    }

    /// Handles the other end's refusal to take any segment in flight: all of them have to be sent
    /// again, which says nothing about the path.
    pub fn refused(&mut self, now: Time) {
        if self.in_flight == 0 {
            return;
        }
        for sent in self.sent.iter_mut().filter(|s| s.state == State::InFlight) {
            sent.state = State::Lost;
            self.lost += 1;
        }
        (self.in_flight, self.loss_at) = (0, Time::NEVER);
        (self.active, self.advanced) = (now, now);
    }

    /// Drops all stored data, and returns all memory to the budget.
    pub fn release(&mut self, memory: &mut Memory<'_>) {
        self.buffer.release(memory);
        self.sent = VecDeque::new();
        (self.lost, self.in_flight, self.is_short) = (0, 0, false);
        self.granted = 0;
    }
}
