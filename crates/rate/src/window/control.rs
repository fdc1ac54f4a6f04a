//! When a sender's window grows or comes down, and how far its retransmission timer has backed off.

use super::{Config, Progress, RoundTrip, Window};
use core::time::Duration;
use trunkline_base::Time;

/// How far a sender has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// All before this position was sent.
    pub next: u64,
    /// How many transmissions there were, retransmissions too.
    pub transmissions: u64,
}

/// The congestion control of one sender: its [`Window`], its [`RoundTrip`], and what it has to know
/// to adjust them once for each loss event. Positions are the sender's, in any unit.
#[derive(Clone, Debug)]
pub struct Control {
    window: Window,
    rtt: RoundTrip,
    /// The window before its last reduction for a loss, in case that was none.
    before: Option<Window>,
    /// Until all before this position is acknowledged, losses are being recovered.
    recovery: Option<u64>,
    /// The number of the last transmission before the window was last reduced.
    reduced: u64,
    timeouts: u32,
    held_back: bool,
}

impl Control {
    /// For a sender that has sent nothing.
    pub fn new(config: Config) -> Control {
        Control {
            window: Window::new(config),
            rtt: RoundTrip::default(),
            before: None,
            recovery: None,
            reduced: 0,
            timeouts: 0,
            held_back: false,
        }
    }

    /// Bytes that may be under way.
    pub fn size(&self) -> u64 {
        self.window.size()
    }

    /// How long `bytes` take at the window's pace.
    pub fn pace(&self, bytes: usize) -> Duration {
        self.window.pace(bytes, self.rtt.smoothed().unwrap_or_default())
    }

    /// The estimate of the round trip.
    pub fn rtt(&self) -> &RoundTrip {
        &self.rtt
    }

    /// Takes a round trip that was measured with one of the sender's own packets.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
        self.end_backoff();
    }

    /// Takes a round trip that something else has measured, until the sender knows one itself.
    pub fn presume_round_trip(&mut self, rtt: Duration) {
        if self.rtt.smoothed().is_none() && !rtt.is_zero() {
            self.rtt.sample(rtt);
        }
    }

    /// Window or pace hold something back.
    pub fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// Adjusts the window after an acknowledgement: `acknowledged` is how many of the `in_flight`
    /// bytes before it are acknowledged, and all before position `first` has been received.
    pub fn on_progress(&mut self, now: Time, first: u64, acknowledged: u64, in_flight: u64) {
        if self.recovery.is_some_and(|until| first >= until) {
            self.recovery = None;
        }
        let progress = Progress {
            acknowledged,
            in_flight,
            recovering: self.recovery.is_some(),
            held_back: core::mem::take(&mut self.held_back),
            rtt: self.rtt.smoothed().unwrap_or_default(),
        };
        self.window.on_progress(now, &progress);
    }

    /// Transmission number `lost` is lost, and maybe others before. That is a loss event of its own
    /// if it was made after the last reduction; so the loss of a retransmission is one more (RFC
    /// 5681, section 4.3).
    pub fn on_loss(&mut self, lost: u64, sent: Extent) {
        if lost > self.reduced {
            self.reduce(sent);
            self.before = Some(self.window.clone());
            self.window.on_loss();
        }
    }

    /// Something was received with a congestion mark, and all before position `first`. Reduces the
    /// window, unless losses are being recovered or the last mark has been answered since less than
    /// a window.
    pub fn on_mark(&mut self, first: u64, sent: Extent) {
        if self.recovery.is_none_or(|until| first >= until) {
            self.reduce(sent);
            self.before = None;
            self.window.on_mark();
        }
    }

    /// The retransmission timer has expired. Returns how many times in a row it has: after the
    /// first a probe is sent, after the others all that is under way is lost
    /// ([`Control::on_timeout`]).
    pub fn expire(&mut self) -> u32 {
        self.timeouts = self.timeouts.saturating_add(1);
        self.timeouts
    }

    /// All that was under way is lost.
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

    /// What was taken for lost has been received: undoes the last reduction, if it was for a loss
    /// (RFC 4015).
    pub fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            self.window.undo(&before);
            self.recovery = None;
        }
    }

    /// How many times in a row the retransmission timer has expired, by which it backs off. By
    /// Karn's rule an acknowledgement alone doesn't end that, but a round trip that is measured:
    /// otherwise a timer that is shorter than the queue would repeat all packets, and never measure
    /// any.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Ends the timer's back-off, for a reason beside a measured round trip.
    pub fn end_backoff(&mut self) {
        self.timeouts = 0;
    }

    /// Lets the timer back off anew, from where it stood after `timeouts`.
    pub fn ease_backoff(&mut self, timeouts: u32) {
        self.timeouts = self.timeouts.min(timeouts);
    }

    /// The sender was silent for longer than a timeout.
    pub fn on_idle(&mut self) {
        self.window.on_idle();
    }

    /// The receiver has started anew, and knows of nothing that was sent.
    pub fn begin_anew(&mut self) {
        (self.before, self.recovery, self.timeouts) = (None, None, 0);
        self.window.on_idle();
    }
}
