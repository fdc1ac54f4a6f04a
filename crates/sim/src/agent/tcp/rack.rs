//! RACK-TLP (RFC 8985): loss detection by time, and tail loss probes.

use super::min_rtt::MinRtt;
use super::profile::Recovery;
use super::sender::{Phase, Sender};
use super::sent::Sent;
use core::time::Duration;
use trunkline_base::Time;

/// Number of SACKed segments that indicate a loss without waiting, while no reordering has been
/// seen.
const DUP_THRESH: u64 = 3;
/// Number of recoveries for which a wider reordering window is kept (section 6.2, step 4).
const PERSIST: u32 = 16;
/// Maximum delay expected for the ACK of a single segment (section 7.2): Linux's RTO_MIN.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Probe timeout without a measured round-trip time (section 7.2).
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// The RACK variables of section 5.3.
#[derive(Clone, Debug)]
pub struct Rack {
    /// The last transmission that was delivered, in order of sending.
    latest: u64,
    rtt: Duration,
    pub min_rtt: MinRtt,
    /// Highest number delivered so far.
    fack: u64,
    reordering_seen: bool,
    multiple: u32,
    persist: u32,
    /// After responding to a DSACK: the next DSACK counts once this number is acknowledged.
    dsack_round: Option<u64>,
    reorder_at: Time,
    probe_at: Time,
    /// Highest number sent when a probe was sent, and whether the probe was a retransmission.
    probe: Option<(u64, bool)>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            latest: 0,
            rtt: Duration::ZERO,
            min_rtt: MinRtt::default(),
            fack: 0,
            reordering_seen: false,
            multiple: 1,
            persist: 0,
            dsack_round: None,
            reorder_at: Time::NEVER,
            probe_at: Time::NEVER,
            probe: None,
        }
    }
}

impl Rack {
    /// Time at which the earlier of the two timers expires.
    pub fn deadline(&self) -> Time {
        self.reorder_at.min(self.probe_at)
    }

    /// Whether the reordering timer has expired; if so, stops it.
    pub fn take_reordering_timer(&mut self, now: Time) -> bool {
        let expired = self.reorder_at <= now;
        if expired {
            self.reorder_at = Time::NEVER;
        }
        expired
    }

    /// Whether the probe timer has expired; if so, stops it.
    pub fn take_probe_timer(&mut self, now: Time) -> bool {
        let expired = self.probe_at <= now;
        if expired {
            self.probe_at = Time::NEVER;
        }
        expired
    }

    /// Stops both timers and forgets the last probe.
    pub fn stop(&mut self) {
        (self.reorder_at, self.probe_at, self.probe) = (Time::NEVER, Time::NEVER, None);
    }

    /// Stops the probe timer, because a segment was SACKed.
    pub fn stop_probe_timer(&mut self) {
        self.probe_at = Time::NEVER;
    }

    /// Stops probing, because recovery begins (section 7.1).
    pub fn stop_probe(&mut self) {
        (self.probe_at, self.probe) = (Time::NEVER, None);
    }

    /// Records a probe, sent when everything up to `end` had been sent.
    pub fn probed(&mut self, end: u64, retransmitted: bool) {
        self.probe = Some((end, retransmitted));
    }

    /// Segments sent up to this time are lost unless they were delivered.
    pub fn due(&self, now: Time, window: Duration) -> Time {
        now - self.rtt - window
    }

    /// Processes a delivered segment (section 6.2, steps 2 and 3). If the segment was
    /// retransmitted, `echo_is_older` is true for the ACK of an earlier transmission.
    pub fn delivered(&mut self, now: Time, s: &Sent, echo_is_older: bool) {
        if s.end > self.fack {
            self.fack = s.end;
        } else if s.end < self.fack && !s.retransmitted {
            self.reordering_seen = true;
        }
        let rtt = now.since(s.at);
        if s.retransmitted && (echo_is_older || rtt < self.min_rtt.get()) {
            return;
        }
        if s.nth > self.latest {
            (self.latest, self.rtt) = (s.nth, rtt);
        }
    }

    /// The reordering window (section 6.2, step 4). `recovers` is true in either kind of recovery.
    pub fn window(&self, of: &Sender, recovers: bool) -> Duration {
        if !self.reordering_seen && (recovers || of.board.sacked_segments() >= DUP_THRESH) {
            return Duration::ZERO;
        }
        (self.min_rtt.get() * self.multiple / 4).min(of.rtt.srtt().unwrap_or_default())
    }

    /// Widens the window after a DSACK, once per round trip (section 6.2, step 4).
    pub fn adapt(&mut self, una: u64, nxt: u64, dsack: bool, recovered: bool) {
        if self.dsack_round.is_some_and(|round| una >= round) {
            self.dsack_round = None;
        }
        if dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.multiple = (self.multiple + 1).min(1_000);
            self.persist = PERSIST;
        } else if recovered {
            self.persist = self.persist.saturating_sub(1);
            if self.persist == 0 {
                self.multiple = 1;
            }
        }
    }

    /// Whether an ACK shows that the probe repaired a loss that was not detected otherwise, to
    /// which the window must respond (section 7.4).
    pub fn probe_repaired(&mut self, ack: u64, dsack: bool, plain_duplicate: bool) -> bool {
        let Some((end, retransmitted)) = self.probe else { return false };
        if ack < end {
            return false;
        }
        if !retransmitted || dsack || plain_duplicate {
            self.probe = None;
            return false;
        }
        let repaired = ack > end;
        if repaired {
            self.probe = None;
        }
        repaired
    }
}

impl Sender {
    /// Restarts the probe timer (section 7.2).
    pub(super) fn arm_probe(&mut self, now: Time) {
        let waits = self.profile.recovery == Recovery::Rack
            && self.phase == Phase::Open
            && self.rack.probe.is_none()
            && self.board.sacked_segments() == 0
            && !self.board.is_empty()
            && self.una > 0;
        if !waits {
            self.rack.probe_at = Time::NEVER;
            return;
        }
        let pto = match self.rtt.srtt() {
            None => FIRST_PROBE,
            Some(srtt) if self.board.len() == 1 => srtt * 2 + MAX_ACK_DELAY,
            Some(srtt) => srtt * 2,
        };
        self.rack.probe_at = (now + pto).min(self.rto_at);
    }

    /// Marks segments as lost by time, and sets the reordering timer (section 6.2, step 5).
    pub(super) fn mark_by_time(&mut self, now: Time) {
        let window = self.rack.window(self, self.phase != Phase::Open);
        let due = self.rack.due(now, window);
        let open = self.board.lose_by_time(self.rack.latest, due);
        self.rack.reorder_at = match open {
            Some(sent) => sent + self.rack.rtt + window,
            None => Time::NEVER,
        };
        if open.is_some() {
            self.rack.probe_at = Time::NEVER;
        }
    }

    /// Handles the expiry of the reordering timer.
    pub(super) fn detect_by_time(&mut self, now: Time) {
        self.mark_by_time(now);
        if self.board.lost() > 0 && self.phase == Phase::Open {
            self.enter_recovery(now);
        }
        if self.phase == Phase::Fast {
            // Counts as if one segment had been delivered, to release the retransmission.
            let (unit, pipe) = (self.congestion.unit(), self.board.pipe());
            self.congestion.reduce(unit, pipe, false);
        }
    }
}
