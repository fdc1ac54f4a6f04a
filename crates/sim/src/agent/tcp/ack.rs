//! Processing of acknowledgments by the sender.

use super::profile::Recovery;
use super::rack::Rack;
use super::sender::{Phase, Sender};
use super::sent::Sent;
use core::time::Duration;
use trunkline_base::Time;

/// Number of duplicate ACKs that trigger a fast retransmit (RFC 5681, section 3.2).
const DUP_THRESH: usize = 3;

/// The acknowledgment in a segment from the peer, in stream numbers.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Next number that the peer expects.
    pub number: u64,
    /// End of the peer's window.
    pub window_end: u64,
    /// SACK blocks, in the order of the option.
    pub blocks: &'a [(u64, u64)],
    /// Timestamp echoed by the peer.
    pub echo: Option<u32>,
    /// Whether the segment contains neither data nor a FIN.
    pub bare: bool,
}

/// Data delivered according to one ACK.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// Amount, in the unit of the congestion window.
    cost: u64,
    /// Whether new data were acknowledged.
    advanced: bool,
    /// Whether a segment was newly SACKed.
    sacked: bool,
    /// Whether a segment was delivered that was sent only once, before the current phase.
    original: bool,
    /// Round-trip times of the first and the last segment.
    rtt: Option<(Duration, Duration)>,
}

impl Delivered {
    fn add(&mut self, now: Time, s: &Sent, cost: u64, high: u64) {
        self.cost += cost;
        if !s.retransmitted {
            // Karn's algorithm: only segments sent once give a round-trip time.
            let rtt = now.since(s.at);
            self.rtt = Some((self.rtt.map_or(rtt, |r| r.0), rtt));
            self.original |= s.end <= high;
        }
    }
}

impl Sender {
    /// Processes an acknowledgment and its SACK blocks.
    pub fn acknowledge(&mut self, now: Time, ack: &Ack<'_>) {
        // Acknowledges data that were never sent, or is old (RFC 9293, section 3.10.7.4).
        if ack.number > self.nxt || ack.number < self.una {
            return;
        }
        let window_moved = ack.window_end > self.window_end;
        self.window_end = self.window_end.max(ack.window_end);
        let dsack = self.dsack(ack);
        let done = self.deliver(now, ack, dsack);
        self.measure(now, ack, &done);
        let is_plain = !done.advanced && ack.bare && !window_moved && !self.board.is_empty();
        if done.advanced {
            (self.dupacks, self.backs_off) = (0, false);
        } else if is_plain && (done.sacked || !self.profile.sack()) {
            self.dupacks += 1;
        }
        if let Some((from, _)) = dsack
            && let Some(undo) = &mut self.undo
            && from >= undo.from
        {
            undo.open -= 1;
        }
        let recovered = self.leave_if_done(ack);
        if self.profile.recovery == Recovery::Rack {
            self.rack.adapt(self.una, self.nxt, dsack.is_some(), recovered);
        }
        self.try_undo(ack, &done);
        self.respond(now, &done, recovered);
        let duplicate = is_plain && ack.blocks.is_empty();
        if self.rack.probe_repaired(ack.number, dsack.is_some(), duplicate)
            && self.phase == Phase::Open
        {
            self.undo = None;
            self.congestion.enter_recovery(self.window_limit());
            self.congestion.leave_recovery();
        }
        if done.advanced {
            let idle = self.board.is_empty();
            self.rto_at = if idle { Time::NEVER } else { now + self.rtt.rto() };
            self.arm_probe(now);
        } else if self.board.sacked_segments() > 0 {
            self.rack.stop_probe_timer();
        }
    }

    /// The block that reports a duplicate, if any (RFC 2883, section 4).
    fn dsack(&self, ack: &Ack<'_>) -> Option<(u64, u64)> {
        let &first = ack.blocks.first()?;
        let inside = ack.blocks.get(1).is_some_and(|b| b.0 <= first.0 && first.1 <= b.1);
        (first.1 <= ack.number || inside).then_some(first)
    }

    /// Removes the segments that the ACK and its SACK blocks report from the scoreboard.
    fn deliver(&mut self, now: Time, ack: &Ack<'_>, dsack: Option<(u64, u64)>) -> Delivered {
        let mut done = Delivered { advanced: ack.number > self.una, ..Delivered::default() };
        let (high, sack) = (self.high, self.profile.sack());
        let (by_time, counting) = (self.profile.recovery == Recovery::Rack, self.profile.counting);
        let note = |rack: &mut Rack, s: &Sent, echo: Option<u32>| {
            if by_time {
                let older = |echo: u32| is_older(echo, super::connection::timestamp(s.at));
                rack.delivered(now, s, echo.is_some_and(older));
            }
        };
        if done.advanced {
            self.board.acknowledge(ack.number, |s| {
                // Segments SACKed before were already counted as delivered.
                if !s.sacked {
                    note(&mut self.rack, s, ack.echo);
                    done.add(now, s, counting.cost(s.start, s.end), high);
                }
            });
            self.forget(ack.number);
        }
        let mut blocks = [(0, 0); super::wire::MAX_SACK];
        let mut count = 0;
        for &(left, right) in &ack.blocks[usize::from(dsack.is_some())..] {
            if sack && left < right && right <= self.nxt && right > ack.number {
                blocks[count] = (left.max(ack.number), right);
                count += 1;
            }
        }
        blocks[..count].sort_unstable();
        for &(left, right) in &blocks[..count] {
            self.board.sack(left, right, |s| {
                // The echo belongs to the last segment in order (RFC 7323, section 4.3), and
                // doesn't apply to SACKed segments.
                note(&mut self.rack, s, None);
                done.sacked = true;
                done.add(now, s, counting.cost(s.start, s.end), high);
            });
        }
        done
    }

    fn measure(&mut self, now: Time, ack: &Ack<'_>, done: &Delivered) {
        if let Some((first, last)) = done.rtt {
            self.rtt.sample(first);
            // The last segment's time excludes the delay of a delayed ACK.
            self.rack.min_rtt.sample(now, last);
        } else if let Some(echo) = ack.echo.filter(|_| done.advanced && self.profile.timestamps) {
            // Timestamps show which transmission was acknowledged (RFC 7323, section 4).
            let ticks = super::connection::timestamp(now).wrapping_sub(echo);
            if ticks < 120_000 {
                self.rtt.sample(Duration::from_millis(u64::from(ticks)));
            }
        }
    }

    /// Ends the current phase if it is complete, and returns whether it did.
    fn leave_if_done(&mut self, ack: &Ack<'_>) -> bool {
        // Classic fast recovery ends with the first new ACK (RFC 2581, section 3.2).
        let classic = !self.profile.sack() && self.dupacks == 0;
        let over = match self.phase {
            Phase::Open => false,
            Phase::Fast => ack.number >= self.high || classic,
            Phase::Loss => ack.number >= self.high,
        };
        if over {
            if self.phase == Phase::Fast {
                self.congestion.leave_recovery();
            }
            self.phase = Phase::Open;
            self.forced = false;
            self.dupacks = 0;
        }
        over
    }

    /// Undoes the last reduction if it turns out that nothing was lost.
    fn try_undo(&mut self, ack: &Ack<'_>, done: &Delivered) {
        let Some(undo) = self.undo else { return };
        let early = done.advanced && ack.echo.zip(undo.first).is_some_and(|(e, f)| is_older(e, f));
        let retransmitted_in_vain = undo.first.is_some() && undo.open <= 0;
        // Only the first new ACK after an RTO is conclusive (RFC 5682, section 3).
        let doubtful = self.phase == Phase::Loss && self.doubt_rto;
        let spurious = doubtful && done.original && done.advanced;
        if done.advanced {
            self.doubt_rto = false;
        }
        if !(early || retransmitted_in_vain || spurious) {
            return;
        }
        self.congestion.undo(undo.before);
        self.rtt.undo_backoff();
        self.board.unlose();
        self.undo = None;
        self.phase = Phase::Open;
        self.forced = false;
        self.spare_syns();
        self.stats.undone += 1;
    }

    /// Detects losses, and grows or shrinks the window.
    fn respond(&mut self, now: Time, done: &Delivered, recovered: bool) {
        let lost = self.board.lost();
        self.detect(now, done);
        let more_lost = self.board.lost() > lost;
        if self.phase == Phase::Open && self.must_recover() {
            self.enter_recovery(now);
        }
        let pipe = self.board.pipe();
        match self.phase {
            Phase::Fast => self.congestion.reduce(done.cost, pipe, done.advanced && !more_lost),
            // The SYN's ACK acknowledges no data.
            _ if done.advanced && self.una > 1 => {
                let classic = self.profile.recovery == Recovery::Reno;
                if !recovered || classic || self.profile.grow_at_end {
                    self.congestion.grow(done.cost);
                }
            }
            _ => {}
        }
    }

    fn detect(&mut self, now: Time, done: &Delivered) {
        let recovers = self.phase == Phase::Fast;
        match self.profile.recovery {
            Recovery::Reno => return,
            Recovery::Sack => {
                let below = self.board.lost_below(DUP_THRESH, self.mss as u64);
                self.board.lose_between(self.una, below);
            }
            Recovery::Fack => {
                let forward = self.board.forward();
                if forward > DUP_THRESH {
                    let end = self.board.end_of(forward - 1 - DUP_THRESH);
                    self.board.lose_between(self.una, end);
                }
            }
            Recovery::Rack => return self.mark_by_time(now),
        }
        // The segment at which a partial ACK stops was sent before the recovery and is lost, too
        // (RFC 6582, section 3.2), even if too few segments after it were SACKed.
        if recovers && done.advanced && self.una < self.high {
            self.board.lose_first();
        }
    }

    fn must_recover(&self) -> bool {
        let by_count = self.dupacks >= DUP_THRESH as u64;
        match self.profile.recovery {
            Recovery::Rack => self.board.lost() > 0,
            Recovery::Reno => by_count,
            Recovery::Sack | Recovery::Fack => by_count || self.board.lost() > 0,
        }
    }

    /// Performs a fast retransmit and enters fast recovery.
    pub(super) fn enter_recovery(&mut self, now: Time) {
        self.begin_undo();
        self.stats.fast_recoveries += 1;
        self.congestion.enter_recovery(self.window_limit());
        (self.phase, self.high) = (Phase::Fast, self.nxt);
        if self.profile.recovery == Recovery::Rack {
            self.rack.stop_probe();
        } else {
            self.board.lose_first();
            self.forced = true;
            self.rto_at = now + self.rtt.rto();
        }
    }
}

/// Whether timestamp `a` is older than `b` (RFC 7323, section 5.2).
fn is_older(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).wrapping_sub(1) < (1 << 31) - 1
}
