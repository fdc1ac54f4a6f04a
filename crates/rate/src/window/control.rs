//! The window's growth and reduction, and the back-off of the retransmission timer.

use super::yielding::{State, Yielding};
use super::{Config, Progress, RoundTrip, Window};
use core::time::Duration;
use trunkline_base::Time;

/// A sender's progress in its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Everything before this position was sent.
    pub next: u64,
    /// Number of transmissions, including retransmissions.
    pub transmissions: u64,
}

/// The congestion control of one sender: its [`Window`], its [`RoundTrip`], and the state needed to
/// adjust them once per loss event. Positions are the sender's, in any unit.
#[derive(Clone, Debug)]
pub struct Control {
    window: Window,
    rtt: RoundTrip,
    /// The window before its last reduction for a loss, in case the loss was spurious.
    before: Option<Window>,
    /// Position up to which everything must be acknowledged before loss recovery ends.
    recovery: Option<u64>,
    /// Number of the last transmission before the last reduction of the window.
    reduced: u64,
    timeouts: u32,
    /// Whether the window or the pace has delayed data since the last acknowledgement, and whether
    /// it did before that.
    flow_controlled: bool,
    was_flow_controlled: bool,
    yielding: Yielding,
}

impl Control {
    /// Creates the control for a sender that has sent nothing.
    pub fn new(config: Config) -> Control {
        Control {
            window: Window::new(config),
            rtt: RoundTrip::default(),
            before: None,
            recovery: None,
            reduced: 0,
            timeouts: 0,
            flow_controlled: false,
            was_flow_controlled: false,
            yielding: Yielding::default(),
        }
    }

    /// Bytes that may be in flight.
    pub fn size(&self) -> u64 {
        self.window.size()
    }

    /// Whether the window yields to calls, and empties a queue or returns from that: what waits for it
    /// then says nothing about the path's rate. A window in slow start that delays nothing is no
    /// reason to wait: something else limits the rate.
    pub fn is_returning(&self) -> bool {
        let grows = self.window.is_in_slow_start() && self.was_flow_controlled;
        self.window.yields && (self.yielding.is_draining() || grows)
    }

    /// Time that `bytes` take at the window's pace.
    pub fn pace(&self, bytes: usize) -> Duration {
        // Nothing needs a pace while a packet waits for the one before it.
        if self.yielding.is_draining() {
            return Duration::ZERO;
        }
        let smoothed = self.rtt.smoothed().unwrap_or_default();
        self.window.pace(bytes, self.yielding.expected().map_or(smoothed, |rtt| smoothed.min(rtt)))
    }

    /// The round-trip estimate that paces and times the sender.
    pub fn rtt(&self) -> &RoundTrip {
        &self.rtt
    }

    /// Records a round trip measured with the sender's own packets.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
        self.yielding.sample(rtt);
        self.end_backoff();
    }

    /// Uses a round trip measured elsewhere, until the sender has measured one itself.
    pub fn presume_round_trip(&mut self, rtt: Duration) {
        if self.rtt.smoothed().is_none() && !rtt.is_zero() {
            self.rtt.sample(rtt);
        }
    }

    /// Records that the window or the pace delays data.
    pub fn hold_back(&mut self) {
        self.flow_controlled = true;
    }

    /// Adjusts the window to the queueing delay after an acknowledgement that leaves `in_flight`
    /// bytes under way. If calls share the path (`share`), a queue may take no more than 20 ms. Other
    /// senders can fill a queue as well, and a transfer that yields gets little next to them.
    pub fn yield_to_calls(&mut self, now: Time, share: bool, in_flight: u64) {
        self.window.yields = share;
        let adjustment = if share {
            let state = State {
                at_minimum: self.window.size() < 2 * self.window.minimum(),
                is_drained: in_flight == 0,
            };
            self.yielding.adjust(now, &self.rtt, state)
        } else {
            self.yielding.stop(now, &self.rtt)
        };
        if let Some(adjustment) = adjustment {
            self.before = None;
            self.window.on_delay(adjustment);
        }
    }

    /// Adjusts the window after an acknowledgement: `acknowledged` of the `in_flight` bytes are
    /// newly acknowledged, and everything before position `first` has been received.
    pub fn on_progress(&mut self, now: Time, first: u64, acknowledged: u64, in_flight: u64) {
        if self.recovery.is_some_and(|until| first >= until) {
            self.recovery = None;
        }
        self.was_flow_controlled = core::mem::take(&mut self.flow_controlled);
        let progress = Progress {
            acknowledged,
            in_flight,
            recovering: self.recovery.is_some(),
            flow_controlled: self.was_flow_controlled,
            rtt: self.rtt.smoothed().unwrap_or_default(),
        };
        self.yielding.arrived(now, acknowledged);
        if self.yielding.allows_growth() {
            self.window.on_progress(now, &progress);
        }
    }

    /// Handles the loss of transmission number `lost`, and maybe of earlier ones. It is a new loss
    /// event if it was sent after the last reduction; so the loss of a retransmission is one as
    /// well (RFC 5681, section 4.3).
    pub fn on_loss(&mut self, lost: u64, sent: Extent) {
        if lost > self.reduced {
            self.reduce(sent);
            self.before = Some(self.window.clone());
            self.window.on_loss();
        }
    }

    /// Handles a congestion mark on received data, with everything before position `first`
    /// received. Reduces the window, unless losses are being recovered or the last mark was
    /// answered less than a window ago.
    pub fn on_mark(&mut self, first: u64, sent: Extent) {
        if self.recovery.is_none_or(|until| first >= until) {
            self.reduce(sent);
            self.before = None;
            self.window.on_mark();
        }
    }

    /// Counts an expiry of the retransmission timer. Returns the number of consecutive ones: the
    /// first sends a probe, and after the others everything in flight is lost
    /// ([`Control::on_timeout`]).
    pub fn expire(&mut self) -> u32 {
        self.timeouts = self.timeouts.saturating_add(1);
        self.timeouts
    }

    /// Handles the loss of everything in flight.
    pub fn on_timeout(&mut self, sent: Extent) {
        self.reduce(sent);
        let is_first = self.timeouts == 2;
        if is_first {
            self.before = Some(self.window.clone());
        }
        self.window.on_timeout(is_first);
    }

    fn reduce(&mut self, sent: Extent) {
        (self.recovery, self.reduced) = (Some(sent.next), sent.transmissions);
    }

    /// Undoes the last reduction, if it was for a loss, because data that counted as lost has been
    /// received (RFC 4015).
    pub fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            self.window.undo(&before);
            self.recovery = None;
        }
    }

    /// Number of consecutive expiries of the retransmission timer, by which it backs off. By Karn's
    /// rule an acknowledgement alone doesn't reset it, but a measured round trip does: otherwise a
    /// timer shorter than the queueing delay would retransmit all packets, and never measure any.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Ends the timer's back-off, for another reason than a measured round trip.
    pub fn end_backoff(&mut self) {
        self.timeouts = 0;
    }

    /// Limits the timer's back-off to `timeouts` expiries, from where it continues.
    pub fn ease_backoff(&mut self, timeouts: u32) {
        self.timeouts = self.timeouts.min(timeouts);
    }

    /// Handles a pause of the sender that was longer than a timeout.
    pub fn on_idle(&mut self) {
        self.window.on_idle();
    }

    /// Handles a restart of the receiver, which has no record of anything sent.
    pub fn begin_anew(&mut self) {
        (self.before, self.recovery, self.timeouts) = (None, None, 0);
        self.window.on_idle();
    }
}
