//! Faster restart (draft-ietf-dccp-tfrc-faster-restart, expired): after a pause, the rate returns
//! to what the path has lately carried in half as many steps, by a factor of four in each round
//! trip.
//!
//! This is version -00, which Balan et al. 2007 used. Later versions, up to -06, build on RFC
//! 5348's set of receive rates, put the minimum rate of an idle sender into a rule (`min(8 s, max(4
//! s, 8,760 bytes))` per round trip) and shorten the time for which the past rate counts in full
//! from ten minutes to two; -02 and -03 also ping while idle.

use super::{Config, Least};
use core::time::Duration;
use trunkline_base::Time;

/// The parameters of faster restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restart {
    /// Whether the minimum rate after a pause also holds before the first loss event, as in the
    /// draft. In the prototype of Balan et al. 2007, faster restart has no effect then (section
    /// IV-A).
    pub in_slow_start: bool,
    /// Time for which the past rate counts in full. It decays to nothing by three times this time.
    pub full_for: Duration,
}

impl Restart {
    /// The prototype of Balan et al. 2007, with the draft's ten minutes.
    pub const PROTOTYPE: Restart =
        Restart { in_slow_start: false, full_for: Duration::from_secs(600) };
    /// The parameters of the draft.
    pub const DRAFT: Restart = Restart { in_slow_start: true, ..Restart::PROTOTYPE };
}

impl Config {
    /// TFRC-SP with faster restart, as in the prototype of Balan et al. 2007: a pause leaves eight
    /// small packets per round trip, and the rate then quadruples; both only after the first loss
    /// event.
    pub const fn faster_restart(segment: u16) -> Config {
        let mut config = Config::small_packets(segment);
        config.restart = Some(Restart::PROTOTYPE);
        config
    }

    /// The rate below which a pause doesn't reduce the allowed rate.
    pub(super) fn recover_least(&self, has_lost: bool) -> Least {
        match self.restart {
            Some(restart) if has_lost || restart.in_slow_start => Least::Segments(8.0),
            _ => self.recover,
        }
    }
}

/// X_active_recv and the values derived from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    /// X_active_recv, the receive rate that the path has lately carried, and its time.
    received: f64,
    at: Time,
    /// X_fast_max, the rate up to which quadrupling applies.
    max: f64,
}

impl Active {
    pub fn new(now: Time) -> Active {
        Active { received: 0.0, at: now, max: 0.0 }
    }

    /// Updates the state from a report; `lost` is whether a loss event occurred since the last one.
    ///
    /// The draft accepts a higher rate only from an "active period". A restart is not one, but it
    /// ends once that rate has been reached, so no more state is needed.
    pub fn hear(&mut self, restart: &Restart, now: Time, received: f64, lost: bool) {
        // F = (30 − min(max(Δ, 10), 30))/20 in the draft's minutes.
        let full = restart.full_for.max(Duration::from_nanos(1)).as_secs_f64();
        let age = now.since(self.at).as_secs_f64().clamp(full, 3.0 * full);
        self.max = (3.0 * full - age) / (2.0 * full) * self.received;
        let to = match lost {
            false if received >= self.max => received,
            true if received < self.max => received / 2.0,
            _ => return,
        };
        (self.received, self.max, self.at) = (to, to, now);
    }

    /// The bound on the allowed rate, in place of twice the receive rate.
    pub fn limit(&self, received: f64) -> f64 {
        let limit = 2.0 * received;
        if limit < self.max { (4.0 * received).min(self.max) } else { limit }
    }
}
