//! State of a link as a node measures it: whether both ends receive each other's envelopes, the
//! round trip, the loss in either direction, and when to notify the whole overlay.
//!
//! The receiving end measures loss and reports it in its hellos, so that each end knows both
//! directions and advertises its own.

mod advertise;
mod damping;
mod hello;
mod loss;
mod meters;
mod rtt;
mod suspicion;

pub use advertise::{Advertiser, Patience, Quality};
pub use damping::{Damping, HALF_LIFE};
pub use hello::Liveness;
pub use loss::{LossEstimate, LossMeter, LossMode};
pub use rtt::Rtt;

use crate::counters::ReceiverStats;
use crate::wire::Hello;
use core::time::Duration;
use damping::Flaps;
use hello::HelloClock;
use meters::{Jitter, Residual, Throughput};
use suspicion::Doubt;
use trunkline_base::{Bitrate, Time};

/// Totals of a link's traffic, as its monitor needs them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinkTotals {
    /// Bytes of UDP payload sent and received.
    pub sent: u64,
    pub received: u64,
    /// Counters of the real-time service's receiving half.
    pub realtime: ReceiverStats,
}

/// A link as its monitor sees it now. "In" is the direction from the neighbour, measured here;
/// "out" is the other one, as the neighbour reports it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkQuality {
    /// Whether both ends have received each other's envelopes lately.
    pub up: bool,
    /// When the link went up or down last; the start for a link that was never up.
    pub since: Time,
    /// Number of times that the link went down.
    pub downs: u64,
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Interarrival jitter of the neighbour's hellos (RFC 3550, 6.4.1).
    pub jitter: Option<Duration>,
    /// Loss and burstiness of the incoming direction.
    pub loss_in: Option<LossEstimate>,
    /// Loss and burstiness of the outgoing direction.
    pub loss_out: Option<LossEstimate>,
    /// Share of incoming real-time packets that did not arrive in spite of recovery.
    pub residual_in: Option<f64>,
    /// The same share in the outgoing direction.
    pub residual_out: Option<f64>,
    /// UDP payload received, averaged over about two seconds.
    pub rate_in: Bitrate,
    /// UDP payload sent, averaged over about two seconds.
    pub rate_out: Bitrate,
    /// Penalty of the link for its failures.
    pub damping: Damping,
}

/// Measures the state of one link.
#[derive(Debug)]
pub struct LinkMonitor {
    hello: HelloClock,
    loss: LossMeter,
    doubt: Doubt,
    /// Change count of the loss meter when measuring the residual loss last began.
    changes: u64,
    jitter: Jitter,
    residual: Residual,
    rate_in: Throughput,
    rate_out: Throughput,
    loss_out: Option<LossEstimate>,
    residual_out: Option<f64>,
    since: Time,
    downs: u64,
    advertiser: Advertiser,
    flaps: Flaps,
    /// Penalty of the link at the last call of [`ease`](Self::ease).
    damping: Damping,
}

impl LinkMonitor {
    /// Creates the monitor of a link that is down; its first hello is sent at `first`. `half_life`
    /// is that of the penalty for failures.
    pub(crate) fn new(liveness: Liveness, half_life: Duration, first: Time) -> LinkMonitor {
        LinkMonitor {
            loss: LossMeter::new(liveness.loss),
            hello: HelloClock::new(liveness, first),
            doubt: Doubt::default(),
            changes: 0,
            jitter: Jitter::default(),
            residual: Residual::default(),
            rate_in: Throughput::default(),
            rate_out: Throughput::default(),
            loss_out: None,
            residual_out: None,
            since: first,
            downs: 0,
            advertiser: Advertiser::new(Patience::default()),
            flaps: Flaps::new(half_life),
            damping: Damping::default(),
        }
    }

    /// Records an arriving envelope with this counter, whatever its content.
    pub(crate) fn on_envelope(&mut self, at: Time, counter: u64) {
        self.hello.heard(at);
        self.loss.on_envelope(at, counter);
        self.doubt.earn();
        if self.is_suspect() {
            self.hello.expedite_probe(at);
        }
    }

    /// Whether a hello is worth requesting, to learn sooner how bad the link is.
    fn is_suspect(&self) -> bool {
        self.hello.is_up() && self.hello.probes() && self.doubt.asks(self.loss.suspicion())
    }

    /// Changes the settings. Measurements are kept, except for losses if their method changes.
    pub(crate) fn set_liveness(&mut self, liveness: &Liveness) {
        if self.hello.liveness().loss != liveness.loss {
            self.loss = LossMeter::new(liveness.loss);
        }
        self.hello.set_liveness(liveness.clone());
    }

    /// Changes the half-life, from the next failure on; zero turns damping off.
    pub(crate) fn set_half_life(&mut self, half_life: Duration) {
        self.flaps.set_half_life(half_life);
    }

    /// Whether the link is down and was up before.
    pub(crate) fn has_died(&self) -> bool {
        !self.hello.is_up() && self.downs > 0
    }

    /// Brings the next hello forward.
    pub(crate) fn expedite(&mut self, now: Time) {
        self.hello.expedite(now);
    }

    /// The neighbour has restarted, and so has its numbering: introduces this node soon.
    pub(crate) fn fresh_peer(&mut self, now: Time) {
        self.loss.restart();
        self.jitter.restart();
        self.hello.fresh_peer(now);
    }

    /// Handles a hello; true if the link has come up.
    pub(crate) fn on_hello(&mut self, at: Time, hello: &Hello) -> bool {
        self.jitter.on_hello(at, hello.seq, hello.sent_us);
        self.loss_out = hello.loss.map(|(loss, burst)| LossEstimate {
            loss: f64::from(loss) / f64::from(u16::MAX),
            burst: f64::from(burst) / f64::from(u8::MAX),
        });
        self.residual_out = hello.residual.map(|r| f64::from(r) / f64::from(u16::MAX));
        let came_up = self.hello.on_hello(at, hello);
        if came_up {
            self.since = at;
            self.flaps.came_back(at);
        }
        if self.hello.is_up() && self.rtt().get().is_some() {
            let quality = Quality {
                latency: self.rtt().one_way(),
                loss: self.loss_out.map_or(0.0, |l| l.loss),
                residual: self.residual_out,
            };
            self.advertiser.update(at, quality, self.jitter.get().unwrap_or_default());
        }
        came_up
    }

    /// The hello to send at `now`, with this end's measurements. `carried` holds the link's traffic
    /// totals.
    pub(crate) fn next_hello(&mut self, now: Time, carried: &LinkTotals) -> Hello {
        self.rate_in.update(now, carried.received);
        self.rate_out.update(now, carried.sent);
        self.residual.update(carried.realtime);
        if self.changes != self.loss.changes() {
            // The residual loss was measured on the link before it changed.
            self.changes = self.loss.changes();
            self.residual.forget();
        }
        let in_doubt = self.is_suspect();
        if in_doubt {
            self.doubt.spend();
        }
        let share = |x: f64, all: f64| libm::round(x.clamp(0.0, 1.0) * all);
        let most = f64::from(u16::MAX);
        Hello {
            loss: self
                .loss
                .estimate()
                .map(|l| (share(l.loss, most) as u16, share(l.burst, f64::from(u8::MAX)) as u8)),
            residual: self.residual.get().map(|r| share(r, most) as u16),
            ..self.hello.next(now, in_doubt)
        }
    }

    /// Whether a hello is to be sent at `now`.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.hello.is_due(now)
    }

    /// Whether the next hello may be sent at `now` in an envelope with other frames.
    pub(crate) fn rides(&self, now: Time) -> bool {
        self.hello.rides(now)
    }

    pub(crate) fn due_at(&self) -> Time {
        self.hello.due_at()
    }

    /// Declares the link down if either end has been silent for too long; true if it has just gone
    /// down.
    pub(crate) fn check(&mut self, now: Time) -> bool {
        let died = self.hello.check(now);
        if died {
            self.on_down(now);
            self.flaps.failed(now);
        }
        died
    }

    /// Takes a link down that is up, because its neighbour stops or is no longer trusted: nothing
    /// was lost by that, so the link gets no penalty.
    pub(crate) fn stop(&mut self, now: Time) {
        self.hello.stop();
        self.on_down(now);
    }

    fn on_down(&mut self, now: Time) {
        (self.since, self.downs) = (now, self.downs + 1);
        self.advertiser.on_down();
        // The overlay has been notified of this outage. Counted as loss, too, it would divert
        // traffic again as soon as the link is back, and for minutes if only hellos can show that
        // the link is good.
        self.loss.restart();
        (self.rate_in, self.rate_out) = (Throughput::default(), Throughput::default());
    }

    /// When the link goes down if nothing arrives; `None` if it is down.
    pub(crate) fn dead_at(&self) -> Option<Time> {
        self.hello.dead_at()
    }

    /// Whether both ends have received each other's envelopes lately.
    pub fn is_up(&self) -> bool {
        self.hello.is_up()
    }

    /// When the link went down, and whether it was ever up before; `None` if it is up.
    pub(crate) fn down_since(&self) -> Option<(Time, bool)> {
        (!self.is_up()).then_some((self.since, self.downs > 0))
    }

    /// The measured round trip.
    pub fn rtt(&self) -> Rtt {
        self.hello.rtt()
    }

    /// Quality of the outgoing direction to advertise at `now`, if it has changed enough; only
    /// while the link is up.
    pub fn advertise(&mut self, now: Time) -> Option<Quality> {
        self.advertiser.poll(now)
    }

    /// Quality last advertised, unless the link has been down since.
    pub fn advertised(&self) -> Option<Quality> {
        self.advertiser.advertised()
    }

    /// When [`LinkMonitor::advertise`] returns a quality if nothing changes.
    pub fn advertise_at(&self) -> Option<Time> {
        self.advertiser.next_timeout()
    }

    /// Updates the penalty of the link at `now`; returns the previous one if it has changed.
    pub(crate) fn ease(&mut self, now: Time) -> Option<Damping> {
        let damping = self.flaps.damping(now);
        (damping != self.damping).then(|| core::mem::replace(&mut self.damping, damping))
    }

    /// When [`LinkMonitor::ease`] returns a penalty if nothing changes.
    pub(crate) fn ease_at(&self) -> Option<Time> {
        self.flaps.eases_at(self.damping.share)
    }

    /// Penalty of the link, as of its last update.
    pub fn damping(&self) -> Damping {
        self.damping
    }

    /// All measurements at once, for display.
    pub fn quality(&self) -> LinkQuality {
        // Hellos and handshakes on a link that is down don't count as its traffic.
        let rate = |of: &Throughput| if self.is_up() { of.get() } else { Bitrate::from_bps(0) };
        LinkQuality {
            up: self.is_up(),
            since: self.since,
            downs: self.downs,
            rtt: self.rtt().get(),
            jitter: self.jitter.get(),
            loss_in: self.loss.estimate(),
            loss_out: self.loss_out,
            residual_in: self.residual.get(),
            residual_out: self.residual_out,
            rate_in: rate(&self.rate_in),
            rate_out: rate(&self.rate_out),
            damping: self.damping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_down_carries_nothing() {
        let at = Time::from_millis;
        let mut monitor = LinkMonitor::new(Liveness::default(), HALF_LIFE, at(0));
        let carried =
            |ms: u64| LinkTotals { sent: 100 * ms, received: 100 * ms, ..LinkTotals::default() };
        let rates =
            |m: &LinkMonitor| [m.quality().rate_in, m.quality().rate_out].map(Bitrate::as_bps);
        let up = |from: u64, monitor: &mut LinkMonitor| {
            for now in (from..from + 5_000).step_by(200) {
                let own = monitor.next_hello(at(now), &carried(now));
                // The neighbour has received the last hello.
                let echo = Hello { echo: Some((own.sent_us, 0)), heard_ms: Some(0), ..own };
                monitor.on_envelope(at(now + 1), now);
                monitor.on_hello(at(now + 1), &echo);
            }
            assert!(monitor.is_up());
        };
        up(0, &mut monitor);
        assert!(rates(&monitor).iter().all(|bps| (600_000..900_000).contains(bps)));
        for now in 5_000..7_000 {
            monitor.check(at(now));
        }
        assert_eq!((monitor.is_up(), rates(&monitor)), (false, [0, 0]));
        // An unsealed link continues to send hellos.
        for now in (7_000..9_000).step_by(200) {
            monitor.next_hello(at(now), &carried(now));
        }
        assert_eq!(rates(&monitor), [0, 0]);
        // Nor does earlier traffic count when it is back.
        up(9_000, &mut monitor);
        assert!(rates(&monitor).iter().all(|bps| (600_000..900_000).contains(bps)));
    }
}
