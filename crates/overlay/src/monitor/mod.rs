//! What a node knows of a link's state: whether both ends hear each other, how
//! far away the other is, what is lost in either direction, and when the whole
//! overlay should be told.
//!
//! The receiving end measures loss and reports it in its hellos, so that each
//! end knows both directions and advertises its own.

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

/// What a link has carried so far, as its monitor needs it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinkTotals {
    /// UDP payload sent and received, bytes.
    pub sent: u64,
    pub received: u64,
    /// The receiving half of the real-time service.
    pub realtime: ReceiverStats,
}

/// A link as its monitor sees it now. "In" is what comes from the neighbour, as
/// measured here; "out" is what it says of this end's packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkQuality {
    /// Whether both ends have heard each other lately.
    pub up: bool,
    /// Since when; from the start for a link that was never up.
    pub since: Time,
    /// How often it went down.
    pub downs: u64,
    /// The smoothed round trip.
    pub rtt: Option<Duration>,
    /// Interarrival jitter of the neighbour's hellos (RFC 3550, 6.4.1).
    pub jitter: Option<Duration>,
    /// Loss and burstiness of what comes.
    pub loss_in: Option<LossEstimate>,
    /// The same of what is sent.
    pub loss_out: Option<LossEstimate>,
    /// Share of real-time packets that did not come in spite of recovery.
    pub residual_in: Option<f64>,
    /// The same of what is sent.
    pub residual_out: Option<f64>,
    /// UDP payload received, averaged over about two seconds.
    pub rate_in: Bitrate,
    /// The same of what is sent.
    pub rate_out: Bitrate,
    /// What is held against it.
    pub damping: Damping,
}

/// Watches one link.
#[derive(Debug)]
pub struct LinkMonitor {
    hello: HelloClock,
    loss: LossMeter,
    doubt: Doubt,
    /// Of the loss meter, when the residual loss was last begun.
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
    /// What was held against the link when it was last [eased](Self::ease).
    damping: Damping,
}

impl LinkMonitor {
    /// A monitor of a link that is down, whose first hello leaves at `first`.
    /// `half_life` is that of what is held against the link when it fails.
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

    /// The neighbour's envelope with this counter arrived, whatever is in it.
    pub(crate) fn on_envelope(&mut self, at: Time, counter: u64) {
        self.hello.heard(at);
        self.loss.on_envelope(at, counter);
        self.doubt.earn();
        if self.is_suspect() {
            self.hello.expedite_probe(at);
        }
    }

    /// Whether a hello is worth asking for, to know sooner how bad the link is.
    fn is_suspect(&self) -> bool {
        self.hello.is_up() && self.hello.probes() && self.doubt.asks(self.loss.suspicion())
    }

    /// Takes other settings; what was measured stays, but for losses if they
    /// are to be measured in another way.
    pub(crate) fn set_liveness(&mut self, liveness: &Liveness) {
        if self.hello.liveness().loss != liveness.loss {
            self.loss = LossMeter::new(liveness.loss);
        }
        self.hello.set_liveness(liveness.clone());
    }

    /// Takes another half-life, from the next failure on; zero ends damping.
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

    /// The neighbour has started anew, and numbers anew: introduce this node
    /// soon.
    pub(crate) fn fresh_peer(&mut self, now: Time) {
        self.loss.restart();
        self.jitter.restart();
        self.hello.fresh_peer(now);
    }

    /// Takes a hello; true if the link has come up.
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

    /// The hello to send at `now`, with what was measured here. `carried` is
    /// what the link has carried.
    pub(crate) fn next_hello(&mut self, now: Time, carried: &LinkTotals) -> Hello {
        self.rate_in.update(now, carried.received);
        self.rate_out.update(now, carried.sent);
        self.residual.update(carried.realtime);
        if self.changes != self.loss.changes() {
            // Another link than that of which it was measured.
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

    /// Whether the next hello may leave at `now` beside something else.
    pub(crate) fn rides(&self, now: Time) -> bool {
        self.hello.rides(now)
    }

    pub(crate) fn due_at(&self) -> Time {
        self.hello.due_at()
    }

    /// Declares the link down if either end has been silent for too long; true
    /// if that is news.
    pub(crate) fn check(&mut self, now: Time) -> bool {
        let died = self.hello.check(now);
        if died {
            self.on_down(now);
            self.flaps.failed(now);
        }
        died
    }

    /// The neighbour of a link that is up has said that it stops: nothing was
    /// lost by that, so nothing is held against the link.
    pub(crate) fn on_goodbye(&mut self, now: Time) {
        self.hello.on_goodbye();
        self.on_down(now);
    }

    fn on_down(&mut self, now: Time) {
        (self.since, self.downs) = (now, self.downs + 1);
        self.advertiser.on_down();
        // The overlay has been told of this outage. Taken for losses, too, it
        // would turn traffic away again as soon as the link is back, and for
        // minutes where there are only hellos to show that it is good.
        self.loss.restart();
        (self.rate_in, self.rate_out) = (Throughput::default(), Throughput::default());
    }

    /// When the link goes down if nothing is heard; `None` if it is down.
    pub(crate) fn dead_at(&self) -> Option<Time> {
        self.hello.dead_at()
    }

    /// Whether both ends have heard each other lately.
    pub fn is_up(&self) -> bool {
        self.hello.is_up()
    }

    /// Since when the link is down, and whether it was ever up; `None` if it is.
    pub(crate) fn down_since(&self) -> Option<(Time, bool)> {
        (!self.is_up()).then_some((self.since, self.downs > 0))
    }

    /// The measured round trip.
    pub fn rtt(&self) -> Rtt {
        self.hello.rtt()
    }

    /// What the overlay should be told of the direction away from here, if
    /// anything is news at `now`; only while the link is up.
    pub fn advertise(&mut self, now: Time) -> Option<Quality> {
        self.advertiser.poll(now)
    }

    /// What it was told last, unless the link has been down since.
    pub fn advertised(&self) -> Option<Quality> {
        self.advertiser.advertised()
    }

    /// When [`LinkMonitor::advertise`] has something to say if nothing changes.
    pub fn advertise_at(&self) -> Option<Time> {
        self.advertiser.next_timeout()
    }

    /// Looks at `now` whether what is held against the link has changed; if so,
    /// what was held before.
    pub(crate) fn ease(&mut self, now: Time) -> Option<Damping> {
        let damping = self.flaps.damping(now);
        (damping != self.damping).then(|| core::mem::replace(&mut self.damping, damping))
    }

    /// When [`LinkMonitor::ease`] has something to say if nothing changes.
    pub(crate) fn ease_at(&self) -> Option<Time> {
        self.flaps.eases_at(self.damping.share)
    }

    /// What is held against the link, as last looked at.
    pub fn damping(&self) -> Damping {
        self.damping
    }

    /// Everything at once, for display.
    pub fn quality(&self) -> LinkQuality {
        // Hellos and handshakes at a link that is down are not what it carries.
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
                // It has heard the last one.
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
        // Hellos of a link that is not sealed go on.
        for now in (7_000..9_000).step_by(200) {
            monitor.next_hello(at(now), &carried(now));
        }
        assert_eq!(rates(&monitor), [0, 0]);
        // Nor does what was before count when it is back.
        up(9_000, &mut monitor);
        assert!(rates(&monitor).iter().all(|bps| (600_000..900_000).contains(bps)));
    }
}
