//! The sending half: what may be sent, and the handling of missing ACKs. Acknowledgments are
//! processed in `ack`, and RACK-TLP is in `rack`.

use super::congestion::Congestion;
use super::profile::{Profile, Recovery, Reduction};
use super::rack::Rack;
use super::rtt::Rtt;
use super::sent::Scoreboard;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_net::IpVersion;

/// Statistics of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Segments sent with data, SYN or FIN, including retransmissions.
    pub segments: u64,
    /// Segments that were retransmitted, including probes.
    pub retransmitted: u64,
    /// Number of retransmission timeouts (RTOs).
    pub rtos: u64,
    /// Number of fast recoveries entered.
    pub fast_recoveries: u64,
    /// Number of tail loss probes (RFC 8985, section 7.3).
    pub probes: u64,
    /// Number of window reductions that were undone.
    pub undone: u64,
    /// Congestion window, in bytes or packets as the profile counts.
    pub cwnd: u64,
    /// Slow start threshold in the same unit; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// Smoothed round-trip time; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Current retransmission timeout, including backoff.
    pub rto: Duration,
    /// Number of data bytes acknowledged.
    pub acknowledged: u64,
}

/// Phase of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No loss is being repaired.
    Open,
    /// Fast recovery, until everything sent before it is acknowledged.
    Fast,
    /// Recovery after an RTO, until everything sent before it is acknowledged.
    Loss,
}

/// State needed to undo a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    /// cwnd and ssthresh before the reduction.
    pub before: (u64, u64),
    /// First number that this reduction may have retransmitted.
    pub from: u64,
    /// Number of segments retransmitted, less those that DSACKs reported.
    pub open: i64,
    /// Timestamp of the first retransmission.
    pub first: Option<u32>,
}

/// A part of the stream to send now, from `start` to before `end`. The SYN has number 0, and the
/// FIN the number after the last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Number of its first byte.
    pub start: u64,
    /// Number after its last byte.
    pub end: u64,
}

/// The sending half of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(super) profile: Profile,
    /// Number of data bytes in a full segment.
    pub(super) mss: usize,
    /// Data written but not acknowledged, starting at number `buffer_from`.
    buffer: VecDeque<u8>,
    buffer_from: u64,
    /// Number of the FIN, once the application has closed.
    fin: Option<u64>,
    pub(super) nodelay: bool,
    pub(super) una: u64,
    pub(super) nxt: u64,
    /// End of the peer's window.
    pub(super) window_end: u64,
    pub(super) board: Scoreboard,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) phase: Phase,
    /// The phase ends when this number is acknowledged.
    pub(super) high: u64,
    pub(super) dupacks: u64,
    /// Whether the fast retransmit is sent regardless of the window.
    pub(super) forced: bool,
    /// Whether one segment is sent regardless of the window: a tail loss probe, or a probe of a
    /// closed window.
    pub(super) probe: bool,
    pub(super) undo: Option<Undo>,
    /// Whether the first new ACK after an RTO can show that it was premature (RFC 5682).
    pub(super) doubt_rto: bool,
    pub(super) rack: Rack,
    pub(super) rto_at: Time,
    last_sent: Time,
    /// Whether the congestion window blocked a segment.
    blocked: bool,
    /// Number of SYNs that were repeated because one seemed lost.
    repeated_syns: u32,
    /// Whether an RTO has expired since the last new ACK.
    pub(super) backs_off: bool,
    pub(super) stats: Stats,
}

impl Sender {
    /// Creates a sender; it first sends the SYN.
    pub fn new(profile: Profile, ip: IpVersion, nodelay: bool) -> Sender {
        let mss = profile.full_segment(ip);
        let ordered = profile.recovery == Recovery::Rack;
        Sender {
            mss,
            buffer: VecDeque::new(),
            buffer_from: 1,
            fin: None,
            nodelay,
            una: 0,
            nxt: 0,
            // Only the SYN may be sent.
            window_end: 1,
            board: Scoreboard::new(profile.counting, ordered),
            rtt: Rtt::new(profile.rto),
            congestion: Congestion::new(&profile, mss),
            phase: Phase::Open,
            high: 0,
            dupacks: 0,
            forced: false,
            probe: false,
            undo: None,
            doubt_rto: false,
            rack: Rack::default(),
            rto_at: Time::NEVER,
            last_sent: Time::ZERO,
            blocked: false,
            repeated_syns: 0,
            backs_off: false,
            stats: Stats::default(),
            profile,
        }
    }

    /// Applies the result of the handshake: segments of `mss` bytes of data, SACK or not, and a
    /// peer's window that ends at number `window_end`. Without SACK, every profile recovers like
    /// Reno.
    pub fn establish(&mut self, mss: usize, sack: bool, window_end: u64) {
        self.mss = mss.max(1);
        if !sack {
            self.profile.recovery = Recovery::Reno;
            self.profile.reduction = Reduction::AtOnce;
        }
        self.window_end = window_end;
        self.congestion = Congestion::new(&self.profile, self.mss);
        if self.repeated_syns > self.profile.spare_syns {
            self.congestion.start_small();
        }
        if self.repeated_syns > 0 {
            self.rtt.end_handshake();
        }
        self.phase = Phase::Open;
        self.dupacks = 0;
        self.undo = None;
    }

    /// Number of bytes that may be written.
    pub fn room(&self) -> usize {
        match self.fin {
            Some(_) => 0,
            None => self.profile.send_buffer.saturating_sub(self.buffer.len()),
        }
    }

    /// Number of bytes written but not sent yet.
    pub fn unsent(&self) -> usize {
        self.written().saturating_sub(self.nxt.max(1)) as usize
    }

    /// Queues as much of `bytes` as there is room for, and returns how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = &bytes[..bytes.len().min(self.room())];
        self.buffer.extend(taken);
        taken.len()
    }

    /// Ends writing: the FIN follows the last byte.
    pub fn close(&mut self) {
        let end = self.written();
        self.fin.get_or_insert(end);
    }

    /// Number after the last byte written.
    fn written(&self) -> u64 {
        self.buffer_from + self.buffer.len() as u64
    }

    /// Number after the last byte or FIN that can be sent.
    fn limit(&self) -> u64 {
        match self.fin {
            Some(fin) => fin + 1,
            None => self.written(),
        }
    }

    /// Whether the FIN has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.una > fin)
    }

    /// Whether the chunk carries the FIN.
    pub fn has_fin(&self, chunk: Chunk) -> bool {
        self.fin.is_some_and(|fin| chunk.end > fin)
    }

    /// Appends a chunk's data to `out`.
    pub fn fill(&self, chunk: Chunk, out: &mut Vec<u8>) {
        let at = |number: u64| {
            (number.max(self.buffer_from) - self.buffer_from).min(self.buffer.len() as u64) as usize
        };
        let (from, to) = (at(chunk.start), at(chunk.end));
        let (a, b) = self.buffer.as_slices();
        out.extend_from_slice(&a[from.min(a.len())..to.min(a.len())]);
        out.extend_from_slice(&b[from.saturating_sub(a.len())..to.saturating_sub(a.len())]);
    }

    /// Drops the data before `una`, which were acknowledged.
    pub(super) fn forget(&mut self, una: u64) {
        let done = una.saturating_sub(self.buffer_from).min(self.buffer.len() as u64);
        self.buffer.drain(..done as usize);
        self.buffer_from += done;
        self.stats.acknowledged += done;
        self.una = una;
    }

    /// Statistics so far, with the current window and timeout.
    pub fn stats(&self) -> Stats {
        Stats {
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            srtt: self.rtt.srtt(),
            rto: self.rtt.rto(),
            ..self.stats
        }
    }

    /// Limit that the profile sets in addition to cwnd, in the same unit.
    pub(super) fn window_limit(&self) -> u64 {
        self.profile.window_limit.map_or(u64::MAX, |limit| limit * self.congestion.unit())
    }

    /// Amount considered to be in the network.
    pub(super) fn in_flight(&self) -> u64 {
        let recovers = self.phase == Phase::Fast;
        if !self.profile.sack() {
            // Each duplicate ACK means that a segment has left the network, and inflates the window
            // (RFC 2581, section 3.2).
            let left = if recovers { self.dupacks * self.congestion.unit() } else { 0 };
            self.board.flight().saturating_sub(left)
        } else if self.phase == Phase::Open && !self.profile.limited_transmit {
            self.board.flight()
        } else {
            self.board.pipe()
        }
    }

    fn fits(&self, cost: u64) -> bool {
        let window = self.congestion.cwnd().min(self.window_limit());
        let in_flight = self.in_flight();
        in_flight + cost <= window || in_flight == 0 && self.board.outstanding() > 0
    }

    /// The next chunk to send now, if one may be sent.
    pub fn poll(&mut self, now: Time) -> Option<Chunk> {
        if self.probe {
            self.probe = false;
            if let Some(chunk) = self.send_probe(now) {
                return Some(chunk);
            }
        }
        self.blocked = false;
        let chunk = match self.board.next_lost() {
            Some((index, _)) => self.poll_lost(now, index),
            None => self.poll_new(now),
        };
        let sent = chunk.is_some();
        if sent && self.rto_at == Time::NEVER {
            self.rto_at = now + self.rtt.rto();
        }
        let (out, una, nxt) = (self.board.outstanding(), self.una, self.nxt);
        self.congestion.note_use(now, out, self.blocked, una, nxt);
        if !sent && self.phase == Phase::Open && self.una > 0 {
            self.congestion.validate(now, self.rtt.rto());
        }
        chunk
    }

    fn poll_lost(&mut self, now: Time, index: usize) -> Option<Chunk> {
        if self.profile.coalesce {
            self.board.join(index, self.mss as u64);
        }
        let (_, lost) = self.board.next_lost()?;
        let cost = self.board.cost(lost.start, lost.end);
        if !self.forced && !self.fits(cost) {
            self.blocked = true;
            return None;
        }
        self.forced = false;
        Some(self.retransmit(now, index))
    }

    fn retransmit(&mut self, now: Time, index: usize) -> Chunk {
        let sent = self.board.retransmit(index, now);
        let cost = self.board.cost(sent.start, sent.end);
        self.repeated_syns += u32::from(sent.start == 0);
        self.stats.retransmitted += 1;
        let stamp = super::connection::timestamp(now);
        if let Some(undo) = &mut self.undo {
            undo.open += 1;
            undo.first.get_or_insert(stamp);
        }
        self.count_sent(now, cost);
        if index == 0 {
            // An RTO counted from the last ACK would expire while a second retransmission is on its
            // way.
            self.rto_at = now + self.rtt.rto();
        }
        Chunk { start: sent.start, end: sent.end }
    }

    fn count_sent(&mut self, now: Time, cost: u64) {
        self.stats.segments += 1;
        self.last_sent = now;
        if self.phase == Phase::Fast {
            self.congestion.note_sent(cost);
        }
    }

    fn poll_new(&mut self, now: Time) -> Option<Chunk> {
        if self.board.is_empty() && self.nxt > 1 && self.nxt < self.limit() {
            self.congestion.resume(now, now.since(self.last_sent), self.rtt.rto());
        }
        let limit = self.limit();
        if self.nxt == 0 {
            return Some(self.send_new(now, 1));
        }
        let end = limit.min(self.window_end).min(self.nxt + self.mss as u64);
        if end <= self.nxt {
            // A timer must probe whether the window has opened (RFC 9293, section 3.8.6.1).
            if self.nxt < limit && self.board.is_empty() && self.una > 0 {
                self.rto_at = self.rto_at.min(now + self.rtt.rto());
            }
            return None;
        }
        let whole = end - self.nxt >= self.mss as u64;
        // A segment is not cut short at the window's end while others are on their way (RFC 9293,
        // section 3.8.6.2.1). Nagle's rule is the other condition (section 3.7.4).
        let waits = end < limit || !self.nodelay && self.fin.is_none();
        if !whole && !self.board.is_empty() && waits {
            return None;
        }
        let cost = self.board.cost(self.nxt, end);
        self.blocked = !self.fits(cost) && !self.board.is_empty();
        (!self.blocked).then(|| self.send_new(now, end))
    }

    fn send_new(&mut self, now: Time, end: u64) -> Chunk {
        let chunk = Chunk { start: self.nxt, end };
        self.board.push(chunk.start, end, now);
        self.nxt = end;
        self.count_sent(now, self.board.cost(chunk.start, end));
        self.arm_probe(now);
        chunk
    }

    /// Sends a tail loss probe (RFC 8985, section 7.3), or a byte into a closed window.
    fn send_probe(&mut self, now: Time) -> Option<Chunk> {
        let limit = self.limit();
        if self.board.is_empty() {
            return (self.nxt < limit).then(|| self.send_new(now, self.nxt + 1));
        }
        let end = limit.min(self.window_end).min(self.nxt + self.mss as u64);
        let fresh = end > self.nxt;
        let chunk = if fresh {
            self.send_new(now, end)
        } else {
            let last = self.board.len() - 1;
            self.retransmit(now, last)
        };
        self.stats.probes += 1;
        self.rack.probed(self.nxt, !fresh);
        self.rto_at = now + self.rtt.rto();
        Some(chunk)
    }

    /// Time of the next action if no ACK arrives.
    pub fn deadline(&self) -> Time {
        self.rto_at.min(self.rack.deadline())
    }

    /// Handles a deadline that has passed.
    pub fn expire(&mut self, now: Time) {
        if self.rack.take_reordering_timer(now) {
            self.detect_by_time(now);
        }
        if self.rack.take_probe_timer(now) && !self.board.is_empty() {
            self.probe = true;
            // Sending the probe restarts this timer.
            self.rto_at = Time::NEVER;
        }
        if self.rto_at <= now {
            self.time_out(now);
        }
    }

    fn time_out(&mut self, now: Time) {
        self.rto_at = Time::NEVER;
        self.rack.stop();
        if self.board.is_empty() {
            self.probe = self.nxt < self.limit();
            self.rtt.back_off();
            return;
        }
        self.stats.rtos += 1;
        let reduces = match self.phase {
            _ if !self.profile.reduce_once => true,
            Phase::Open => true,
            Phase::Fast => false,
            Phase::Loss => !self.backs_off,
        };
        if reduces {
            self.begin_undo();
        }
        // Without SACK, the first ACK may be for data that arrived long before. After a loss that
        // was detected otherwise, the RTO has a cause.
        let has_cause = self.phase != Phase::Open && !self.backs_off;
        self.doubt_rto = self.profile.undo && self.profile.sack() && !has_cause;
        if self.board.first().is_some_and(|s| s.sacked) {
            self.board.renege();
        }
        let due = self.rack.due(now, self.rack.window(self, false));
        match self.profile.recovery {
            Recovery::Rack => self.board.lose_if(|index, s| index == 0 || s.at <= due),
            _ => self.board.lose_if(|_, _| true),
        }
        let limit = self.window_limit();
        self.congestion.collapse(limit, reduces, self.board.pipe());
        (self.phase, self.high, self.dupacks) = (Phase::Loss, self.nxt, 0);
        self.backs_off = true;
        if self.una > 0 || self.repeated_syns >= self.profile.linear_syns {
            self.rtt.back_off();
        }
        self.rto_at = now + self.rtt.rto();
    }

    /// Sends the SYN again, because the peer did.
    pub fn repeat_syn(&mut self) {
        self.board.lose_first();
        self.forced = true;
    }

    /// Records that the peer had received the first SYN: repeating it was unnecessary.
    pub(super) fn spare_syns(&mut self) {
        self.repeated_syns = 0;
    }

    /// Saves the state needed to undo the reduction that follows.
    pub(super) fn begin_undo(&mut self) {
        let before = self.congestion.state();
        self.undo =
            self.profile.undo.then_some(Undo { before, from: self.una, open: 0, first: None });
    }
}
