//! The sending half of a stream: keeps what its application has written until the other
//! end has it, and sends no faster than the path and the other end bear.
//!
//! The links of the way repeat what they lose, and don't wait for it: what comes late is
//! the rule here, and what doesn't come at all is the exception, as when a relay has
//! failed. So only time tells that something is lost, and the first suspicion is a round
//! trip late; what was suspected wrongly makes the next one later, and takes back what it
//! has done to the window (as RFC 4015 and RFC 8985 have it).

use super::buffer::{Buffer, Memory};
use super::segment::{Ack, WINDOW_UNIT};
use crate::session::wire::stream::Reset;
use crate::wire::{DATA_HEADER, ENVELOPE_OVERHEAD};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Pacer, Time, extend32};
use trunkline_rate::window::{self, RoundTrip, Window};

/// What a segment costs the path beside its data, in bytes: headers of IP, UDP, envelope,
/// frame and segment.
const OVERHEAD: u64 = (28 + ENVELOPE_OVERHEAD + DATA_HEADER + super::segment::HEAD) as u64;

/// How far the pace may be run ahead of, so that the timer's grain doesn't cost
/// throughput.
const PACING_BURST: Duration = Duration::from_millis(1);

/// The longest wait before trying again.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What an application may write before anything is known of the path, in bytes, if it
/// may at all.
const LEAST_GRANT: u64 = 64 << 10;

/// What the other end may hold an acknowledgement back for.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// The shortest time after which something that is overtaken can be lost.
const LEAST_REORDERING: Duration = Duration::from_millis(20);

/// How many round trips that may become.
const MOST_REORDERING: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Lost,
    Acknowledged,
}

/// What was sent in one packet. The stream's end counts as a byte.
#[derive(Clone, Copy, Debug)]
struct Sent {
    first: u64,
    end: u64,
    state: State,
    repeated: bool,
    /// Which of all transmissions was its last, and when that was.
    transmission: u64,
    at: Time,
}

impl Sent {
    fn cost(&self) -> u64 {
        self.end - self.first + OVERHEAD
    }
}

/// What is to be sent in one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Where its data begin, and how many bytes they are.
    pub position: u64,
    pub len: usize,
    /// Whether the stream ends behind them.
    pub is_end: bool,
    /// Whether the other end is to say at once what it has.
    pub ask: bool,
    /// Its place among what was sent, if it was.
    again: Option<usize>,
}

/// See the module.
#[derive(Debug)]
pub struct Sender {
    buffer: Buffer,
    /// How many bytes it may keep.
    max: u64,
    /// The other end has all before this.
    first: u64,
    /// All before this was sent.
    next: u64,
    /// The application has written up to this.
    written: u64,
    /// No more is written; the stream ends at `written`.
    is_shut: bool,
    end_sent: bool,
    /// The application may write up to this.
    granted: u64,
    /// The other end takes all before this.
    limit: u64,
    sent: VecDeque<Sent>,
    lost: usize,
    in_flight: u64,
    transmissions: u64,
    newest: (u64, Time),
    window: Window,
    /// The largest packet, in bytes of the window.
    segment: u64,
    rtt: RoundTrip,
    pacer: Pacer,
    /// No further reduction before all that was sent until then has come.
    recovery: Option<u64>,
    /// The window before the last loss.
    before: Option<Window>,
    reordering: u32,
    marks: u8,
    copies: u8,
    /// Bytes since the other end was asked what it has.
    unasked: u64,
    loss_at: Time,
    paced_until: Time,
    /// When something was sent last, and when something came last.
    last_sent: Time,
    active: Time,
    /// When something came last that was under way, or that began to be.
    advanced: Time,
    timeouts: u32,
    /// One packet may leave whatever the windows say.
    probe: bool,
    limited: bool,
    repeats: u64,
}

impl Sender {
    /// Keeps at most `max` bytes; `config` is of its window.
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
            sent: VecDeque::new(),
            lost: 0,
            in_flight: 0,
            transmissions: 0,
            newest: (0, Time::ZERO),
            window: Window::new(config),
            segment: config.segment as u64,
            rtt: RoundTrip::default(),
            pacer: Pacer::of_time(PACING_BURST),
            recovery: None,
            before: None,
            reordering: 1,
            marks: 0,
            copies: 0,
            unasked: 0,
            loss_at: Time::NEVER,
            paced_until: Time::NEVER,
            last_sent: Time::ZERO,
            active: Time::ZERO,
            advanced: Time::ZERO,
            timeouts: 0,
            probe: false,
            limited: false,
            repeats: 0,
        }
    }

    /// Takes what the application writes; an error if it has no credit for that.
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

    /// The application writes no more.
    pub fn shut(&mut self) {
        self.is_shut = true;
    }

    /// How many bytes more the application may write, if that is worth a message: room for
    /// two windows, as far as there is memory for it.
    pub fn grant(&mut self, memory: &mut Memory<'_>) -> u32 {
        let want = (2 * self.window.size()).clamp(LEAST_GRANT, self.max);
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

    /// Whether the application writes no more.
    pub fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Whether the other end has all, and its end.
    pub fn is_done(&self) -> bool {
        self.end_sent && self.sent.is_empty()
    }

    /// Bytes that the other end has.
    pub fn delivered(&self) -> u64 {
        self.first.min(self.written)
    }

    /// Bytes that wait here, or are under way.
    pub fn unacknowledged(&self) -> u64 {
        self.written - self.first.min(self.written)
    }

    /// How often something was sent again.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// The smoothed round trip, if one was measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Bytes that may be under way.
    pub fn window(&self) -> u64 {
        self.window.size()
    }

    /// Since when data wait and the other end takes none.
    pub fn is_stalled(&self) -> bool {
        self.in_flight == 0 && self.next < self.written && self.limit <= self.next
    }

    /// Since when nothing has come of what is under way.
    pub fn is_stuck_since(&self) -> Option<Time> {
        (self.in_flight > 0 || self.lost > 0).then_some(self.advanced)
    }

    /// Whether it expects anything of the other end.
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty() || self.next < self.written || self.is_shut && !self.end_sent
    }

    /// What goes next in a packet with room for so many bytes of data, if windows and
    /// pace let it.
    pub fn next(&mut self, now: Time, room: usize) -> Option<Cut> {
        self.paced_until = Time::NEVER;
        let mut cut = match self.lost_one(room) {
            Some(cut) => cut,
            None => self.fresh(room)?,
        };
        let cost = (cut.len + usize::from(cut.is_end)) as u64 + OVERHEAD;
        if !self.probe {
            if self.in_flight > 0 && self.in_flight + cost > self.window.size() {
                self.limited = true;
                return None;
            }
            if !self.pacer.is_ready(now) {
                self.limited = true;
                self.paced_until = self.pacer.next();
                return None;
            }
        }
        let quarter = self.unasked + cost >= self.window.size() / 4;
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
        // No crumbs, as long as something is under way (RFC 9293, section 3.8.6.2.1).
        if len < waits && (len as usize) < room && self.in_flight > 0 {
            return None;
        }
        let len = len as usize;
        Some(Cut { position: self.next, len, is_end, ask: false, again: None })
    }

    /// Copies the data of `cut` into `out`, of just their size.
    pub fn copy(&self, cut: &Cut, out: &mut [u8]) {
        self.buffer.copy(cut.position, out);
    }

    /// It has left.
    pub fn sent(&mut self, now: Time, cut: &Cut) {
        if self.in_flight == 0 && now.since(self.active) > self.rtt.timeout().max(ACK_DELAY * 8) {
            self.window.on_idle();
        }
        let is_first = self.in_flight == 0 && self.lost == 0;
        self.transmissions += 1;
        let end = cut.position + cut.len as u64 + u64::from(cut.is_end);
        let (transmission, repeated) = (self.transmissions, cut.again.is_some());
        let sent = Sent {
            first: cut.position,
            end,
            state: State::InFlight,
            repeated,
            transmission,
            at: now,
        };
        match cut.again.and_then(|at| self.sent.get_mut(at)) {
            Some(place) => {
                *place = sent;
                self.lost -= 1;
                self.repeats += 1;
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
        let cost = sent.cost() as usize;
        self.pacer.spend_time(now, self.window.pace(cost, self.rtt.smoothed().unwrap_or_default()));
        (self.last_sent, self.probe) = (now, false);
    }

    /// Takes an acknowledgement; an error if it is of what was never sent.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<(), Reset> {
        let upto = extend32(self.first, ack.next);
        if upto > self.next {
            return Err(Reset::Protocol);
        }
        let limit = upto + u64::from(ack.window) * WINDOW_UNIT;
        if limit > self.limit {
            (self.limit, self.timeouts) = (limit, 0);
        }
        let before = self.in_flight;
        let mut acknowledged = 0;
        for at in 0..self.sent.partition_point(|s| s.end <= upto) {
            acknowledged += self.acknowledge(now, at);
        }
        for &(first, len) in ack.ranges() {
            let first = extend32(self.first, first);
            let end = first + u64::from(len);
            if end > self.next {
                return Err(Reset::Protocol);
            }
            let from = self.sent.partition_point(|s| s.first < first);
            for at in from..self.sent.partition_point(|s| s.end <= end) {
                acknowledged += self.acknowledge(now, at);
            }
        }
        while self.sent.front().is_some_and(|s| s.end <= upto) {
            self.sent.pop_front();
        }
        self.first = self.first.max(upto);
        self.on_counts(ack);
        if acknowledged > 0 {
            self.progress(now, before, acknowledged);
        }
        self.find_lost(now);
        Ok(())
    }

    /// Marks what was sent as come; the bytes that are not under way any more.
    fn acknowledge(&mut self, now: Time, at: usize) -> u64 {
        let Some(sent) = self.sent.get_mut(at) else { return 0 };
        let Sent { state, transmission, repeated, at: sent_at, .. } = *sent;
        let cost = sent.cost();
        if state == State::Acknowledged {
            return 0;
        }
        sent.state = State::Acknowledged;
        match state {
            State::InFlight => self.in_flight = self.in_flight.saturating_sub(cost),
            _ => self.lost -= 1,
        }
        // Of a repeated one nobody knows which has come (RFC 6298, section 3), but that
        // the last has not come sooner than anything does.
        let shortest = self.rtt.shortest().unwrap_or_default();
        if transmission > self.newest.0 && (!repeated || now.since(sent_at) >= shortest) {
            self.newest = (transmission, sent_at);
            let rtt = now.since(sent_at);
            // Nor is it a round trip if it takes longer than any timeout: this node must
            // have stood still, and what was paced by that would wait for minutes.
            if !repeated && rtt <= LONGEST_TIMEOUT + ACK_DELAY {
                self.rtt.sample(rtt);
            }
        }
        cost
    }

    /// Marks, and copies of what had come: counts that travel with acknowledgements,
    /// which may overtake each other.
    fn on_counts(&mut self, ack: &Ack) {
        let is_later = |then: u8, now: u8| (1..128).contains(&now.wrapping_sub(then));
        if is_later(self.copies, ack.copies) {
            self.copies = ack.copies;
            if let Some(before) = self.before.take() {
                self.window.undo(&before);
                self.recovery = None;
                self.reordering = (2 * self.reordering).min(MOST_REORDERING);
            }
        }
        if is_later(self.marks, ack.marks) {
            self.marks = ack.marks;
            if self.recovery.is_none_or(|until| self.first >= until) {
                self.recovery = Some(self.next);
                self.before = None;
                self.window.on_mark();
            }
        }
    }

    /// What has come moves window and timers.
    fn progress(&mut self, now: Time, in_flight: u64, acknowledged: u64) {
        (self.active, self.advanced, self.timeouts) = (now, now, 0);
        if self.recovery.is_some_and(|until| self.first >= until) {
            self.recovery = None;
        }
        // After a timeout the window grows while what was lost is sent again (RFC 5681,
        // section 3.1): else a long outage would leave one packet in a round trip for all
        // that was under way before.
        if self.recovery.is_none() || self.window.is_in_slow_start() {
            let full = in_flight + self.segment > self.window.size();
            let slow_start = self.window.is_in_slow_start() && 2 * in_flight > self.window.size();
            let limited = full || slow_start || self.limited;
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.window.on_ack(now, acknowledged, rtt, limited);
        }
        self.limited = false;
    }

    /// Takes for lost what was sent long before something that has come.
    fn find_lost(&mut self, now: Time) {
        self.loss_at = Time::NEVER;
        let rtt = self.rtt.smoothed().unwrap_or_default();
        let wait = rtt + self.reordering * rtt.max(LEAST_REORDERING);
        let mut any = None;
        for sent in &mut self.sent {
            if sent.state != State::InFlight || sent.transmission > self.newest.0 {
                continue;
            }
            let due = sent.at + wait;
            if due > now {
                self.loss_at = self.loss_at.min(due);
                continue;
            }
            sent.state = State::Lost;
            self.lost += 1;
            self.in_flight = self.in_flight.saturating_sub(sent.cost());
            any = Some(sent.first);
        }
        if any.is_some_and(|first| self.recovery.is_none_or(|until| first >= until)) {
            self.recovery = Some(self.next);
            self.before = Some(self.window.clone());
            self.window.on_loss();
        }
    }

    /// When it probes, or takes all for lost.
    fn timeout_at(&self) -> Time {
        let idle = self.in_flight == 0 && self.lost == 0;
        if idle && !self.is_stalled() {
            return Time::NEVER;
        }
        let timeout = self.rtt.timeout();
        let rtt = self.rtt.smoothed().unwrap_or(timeout);
        // The links have timeouts of their own, which come first.
        let wait = match self.timeouts {
            0 => (timeout + rtt).max(2 * rtt),
            n => (timeout + rtt) * (1 << n.min(8)),
        };
        let since = if self.timeouts == 0 { self.last_sent.max(self.active) } else { self.active };
        since + wait.min(LONGEST_TIMEOUT) + ACK_DELAY
    }

    /// When [`Sender::handle_timeout`] or [`Sender::next`] has something to do.
    pub fn next_timeout(&self) -> Time {
        self.timeout_at().min(self.loss_at).min(self.paced_until)
    }

    /// Does what is due; true if the other end is to be asked what it has.
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
        self.timeouts = self.timeouts.saturating_add(1);
        self.active = now;
        if self.is_stalled() {
            return true;
        }
        self.probe = true;
        if self.timeouts == 1 {
            // The tail: the last one shows what is missing before it.
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
        self.recovery = Some(self.next);
        if self.timeouts == 2 {
            self.before = Some(self.window.clone());
        }
        self.window.on_timeout(self.timeouts == 2);
        false
    }

    /// Forgets all, and gives its memory back.
    pub fn release(&mut self, memory: &mut Memory<'_>) {
        self.buffer.release(memory);
        self.sent = VecDeque::new();
        (self.lost, self.in_flight) = (0, 0);
        self.granted = 0;
    }
}
