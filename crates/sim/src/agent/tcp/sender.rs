//! The sending half: what may be sent, and what happens when nothing comes back.
//! What an acknowledgment does is in `ack`, and RACK-TLP's part in `rack`.

use super::congestion::Congestion;
use super::profile::{Profile, Recovery, Reduction};
use super::rack::Rack;
use super::rtt::Rtt;
use super::sent::Scoreboard;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;

/// What a sender has done and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Segments that carried data, SYN or FIN, repetitions included.
    pub segments: u64,
    /// Segments that were sent again, probes included.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// Fast recoveries that were entered.
    pub fast_recoveries: u64,
    /// Tail loss probes (RFC 8985, section 7.3).
    pub probes: u64,
    /// Reductions of the window that were taken back.
    pub undone: u64,
    /// The congestion window, in bytes or packets as the profile counts.
    pub cwnd: u64,
    /// The slow start threshold likewise; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// The smoothed round-trip time, once there is one.
    pub srtt: Option<Duration>,
    /// The retransmission timeout as it is now, backed off.
    pub rto: Duration,
    /// Bytes of data that have been acknowledged.
    pub acknowledged: u64,
}

/// How it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is being repaired.
    Open,
    /// Fast recovery, until what was sent before it is acknowledged.
    Fast,
    /// After an RTO, likewise.
    Loss,
}

/// What it takes to take a reduction back.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    /// cwnd and ssthresh before.
    pub before: (u64, u64),
    /// Nothing below was sent again for this reduction.
    pub from: u64,
    /// How many segments were sent again, less those that DSACKs report.
    pub open: i64,
    /// The timestamp on the first of them.
    pub first: Option<u32>,
}

/// A part of the stream to be sent now, from `start` to before `end`. The SYN has
/// number 0 and the FIN that after the last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Its first number.
    pub start: u64,
    /// The number after its last.
    pub end: u64,
}

/// The sending half of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(super) profile: Profile,
    /// Bytes of data in a full segment.
    pub(super) mss: usize,
    /// Written and not acknowledged; its first byte has number `buffer_from`.
    buffer: VecDeque<u8>,
    buffer_from: u64,
    /// The number of the FIN, once the application is done.
    fin: Option<u64>,
    pub(super) nodelay: bool,
    pub(super) una: u64,
    pub(super) nxt: u64,
    /// The peer takes nothing from here on.
    pub(super) window_end: u64,
    pub(super) board: Scoreboard,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) phase: Phase,
    /// The phase ends when this is acknowledged.
    pub(super) high: u64,
    pub(super) dupacks: u64,
    /// The fast retransmit goes whatever the window is.
    pub(super) forced: bool,
    /// One segment goes whatever the window is: a tail loss probe, or into a closed
    /// window.
    pub(super) probe: bool,
    pub(super) undo: Option<Undo>,
    /// Whether the first new ACK after an RTO can show that it was early (RFC 5682).
    pub(super) doubt_rto: bool,
    pub(super) rack: Rack,
    pub(super) rto_at: Time,
    last_sent: Time,
    /// Whether the congestion window held something back.
    blocked: bool,
    syn_repeated: bool,
    pub(super) stats: Stats,
}

impl Sender {
    /// Nothing has been sent; the first thing will be the SYN.
    pub fn new(profile: Profile, nodelay: bool) -> Sender {
        let mss = profile.full_segment();
        let ordered = profile.recovery == Recovery::Rack;
        Sender {
            mss,
            buffer: VecDeque::new(),
            buffer_from: 1,
            fin: None,
            nodelay,
            una: 0,
            nxt: 0,
            // The SYN alone.
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
            syn_repeated: false,
            stats: Stats::default(),
            profile,
        }
    }

    /// The handshake has agreed on segments of `mss` bytes of data, and on SACK or not;
    /// the peer's window ends at number `window_end`. Without SACK all recover as Reno
    /// does.
    pub fn establish(&mut self, mss: usize, sack: bool, window_end: u64) {
        self.mss = mss.max(1);
        if !sack {
            self.profile.recovery = Recovery::Reno;
            self.profile.reduction = Reduction::AtOnce;
        }
        self.window_end = window_end;
        self.congestion = Congestion::new(&self.profile, self.mss);
        if self.syn_repeated {
            self.congestion.start_small();
        }
        self.phase = Phase::Open;
        self.dupacks = 0;
        self.undo = None;
    }

    /// How many bytes there is room for.
    pub fn room(&self) -> usize {
        match self.fin {
            Some(_) => 0,
            None => self.profile.send_buffer.saturating_sub(self.buffer.len()),
        }
    }

    /// How many bytes have been written and not been sent.
    pub fn unsent(&self) -> usize {
        self.written().saturating_sub(self.nxt.max(1)) as usize
    }

    /// Takes as much of `bytes` as there is room for; how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = &bytes[..bytes.len().min(self.room())];
        self.buffer.extend(taken);
        taken.len()
    }

    /// Nothing more will be written: the FIN follows the last byte.
    pub fn close(&mut self) {
        let end = self.written();
        self.fin.get_or_insert(end);
    }

    /// The number after the last byte written.
    fn written(&self) -> u64 {
        self.buffer_from + self.buffer.len() as u64
    }

    /// The number after the last that can be sent.
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

    /// Appends a chunk's data.
    pub fn fill(&self, chunk: Chunk, out: &mut Vec<u8>) {
        let at = |number: u64| {
            (number.max(self.buffer_from) - self.buffer_from).min(self.buffer.len() as u64) as usize
        };
        let (from, to) = (at(chunk.start), at(chunk.end));
        let (a, b) = self.buffer.as_slices();
        out.extend_from_slice(&a[from.min(a.len())..to.min(a.len())]);
        out.extend_from_slice(&b[from.saturating_sub(a.len())..to.saturating_sub(a.len())]);
    }

    /// All before `una` has come.
    pub(super) fn forget(&mut self, una: u64) {
        let done = una.saturating_sub(self.buffer_from).min(self.buffer.len() as u64);
        self.buffer.drain(..done as usize);
        self.buffer_from += done;
        self.stats.acknowledged += done;
        self.una = una;
    }

    /// What has been done, and where it stands.
    pub fn stats(&self) -> Stats {
        Stats {
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            srtt: self.rtt.srtt(),
            rto: self.rtt.rto(),
            ..self.stats
        }
    }

    /// What the profile allows in flight beside cwnd, as cwnd counts.
    pub(super) fn window_limit(&self) -> u64 {
        self.profile.window_limit.map_or(u64::MAX, |limit| limit * self.congestion.unit())
    }

    /// What counts as in the network.
    pub(super) fn in_flight(&self) -> u64 {
        let recovers = self.phase == Phase::Fast;
        if !self.profile.sack() {
            // Each duplicate ACK says that a segment has left the network, and inflates
            // the window (RFC 2581, section 3.2).
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

    /// The next to be sent now, if anything may be.
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
        Some(self.repeat(now, index))
    }

    fn repeat(&mut self, now: Time, index: usize) -> Chunk {
        let sent = self.board.repeat(index, now);
        let cost = self.board.cost(sent.start, sent.end);
        self.syn_repeated |= sent.start == 0;
        self.stats.retransmitted += 1;
        let stamp = super::connection::timestamp(now);
        if let Some(undo) = &mut self.undo {
            undo.open += 1;
            undo.first.get_or_insert(stamp);
        }
        self.count_sent(now, cost);
        if index == 0 {
            // An RTO from the ACK before it would expire while this is on its way, if
            // it is the second repetition.
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
            // Something must ask whether the window has opened (RFC 9293, section
            // 3.8.6.1).
            if self.nxt < limit && self.board.is_empty() && self.una > 0 {
                self.rto_at = self.rto_at.min(now + self.rtt.rto());
            }
            return None;
        }
        let whole = end - self.nxt >= self.mss as u64;
        // The window's end cuts off no part of a segment while more is on its way
        // (RFC 9293, section 3.8.6.2.1); and Nagle's rule (section 3.7.4).
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

    /// A tail loss probe (RFC 8985, section 7.3), or a byte into a closed window.
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
            self.repeat(now, last)
        };
        self.stats.probes += 1;
        self.rack.probed(self.nxt, !fresh);
        self.rto_at = now + self.rtt.rto();
        Some(chunk)
    }

    /// When something happens without an ACK.
    pub fn deadline(&self) -> Time {
        self.rto_at.min(self.rack.deadline())
    }

    /// A deadline has come.
    pub fn expire(&mut self, now: Time) {
        if self.rack.take_reordering_timer(now) {
            self.detect_by_time(now);
        }
        if self.rack.take_probe_timer(now) && !self.board.is_empty() {
            self.probe = true;
            // The probe restarts it.
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
        let is_backoff = self.phase == Phase::Loss && self.profile.keep_ssthresh_on_backoff;
        if !is_backoff {
            self.begin_undo();
            // Without SACK the first ACK may be for what had come long before.
            self.doubt_rto = self.profile.undo && self.profile.sack();
        }
        if self.board.first().is_some_and(|s| s.sacked) {
            self.board.renege();
        }
        let due = self.rack.due(now, self.rack.window(self, false));
        match self.profile.recovery {
            Recovery::Rack => self.board.lose_if(|index, s| index == 0 || s.at <= due),
            _ => self.board.lose_if(|_, _| true),
        }
        let limit = self.window_limit();
        self.congestion.collapse(limit, !is_backoff, self.board.pipe());
        (self.phase, self.high, self.dupacks) = (Phase::Loss, self.nxt, 0);
        self.rtt.back_off();
        self.rto_at = now + self.rtt.rto();
    }

    /// Notes what it takes to take back the reduction that follows.
    pub(super) fn begin_undo(&mut self) {
        let before = self.congestion.state();
        self.undo =
            self.profile.undo.then_some(Undo { before, from: self.una, open: 0, first: None });
    }
}
