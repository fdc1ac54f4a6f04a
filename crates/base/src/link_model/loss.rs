//! Loss processes with their state.

use core::time::Duration;
use std::sync::Arc;

use rand::Rng as _;

use super::{Chain, InvalidModel, Loss};
use crate::{Rng, Time};

const MIN_SPACING: Duration = Duration::from_micros(1);

impl Loss {
    pub(super) fn validate(&self) -> Result<(), InvalidModel> {
        match *self {
            Loss::None => Ok(()),
            Loss::Bernoulli { p } => probability(p),
            Loss::Burst { p, b, chain } => {
                probability(p)?;
                // Written so that NaN is rejected.
                if !(0.0..1.0).contains(&b) {
                    return Err(InvalidModel::Burst(b));
                }
                match chain {
                    Chain::Continuous { .. } if b < p => Err(InvalidModel::BurstBelowLoss { p, b }),
                    Chain::Continuous { spacing } if spacing < MIN_SPACING => {
                        Err(InvalidModel::Spacing(spacing))
                    }
                    _ if p * (1.0 - b) > 1.0 - p => Err(InvalidModel::LossTooHigh { p, b }),
                    _ => Ok(()),
                }
            }
            Loss::Trace(ref trace) if trace.is_empty() => Err(InvalidModel::EmptyTrace),
            Loss::Trace(_) => Ok(()),
        }
    }
}

fn probability(p: f64) -> Result<(), InvalidModel> {
    if (0.0..=1.0).contains(&p) { Ok(()) } else { Err(InvalidModel::Loss(p)) }
}

/// A validated [`Loss`] and its state.
#[derive(Clone, Debug)]
pub(super) enum LossProcess {
    None,
    Bernoulli { p: f64, rng: Rng },
    PerPacket { after_lost: f64, after_received: f64, next: f64, rng: Rng },
    Continuous(Outages),
    Trace { lost: Arc<[bool]>, at: usize },
}

impl LossProcess {
    /// Starts the process; `loss` must be valid.
    pub fn new(loss: Loss, rng: Rng) -> LossProcess {
        match loss {
            Loss::None => LossProcess::None,
            Loss::Bernoulli { p } => LossProcess::Bernoulli { p, rng },
            Loss::Burst { p, b, chain: Chain::PerPacket } => LossProcess::PerPacket {
                after_lost: b,
                after_received: p * (1.0 - b) / (1.0 - p),
                // The first packet finds the chain in its stationary state.
                next: p,
                rng,
            },
            // At b = p there is no memory, and the chain would change state
            // infinitely often; at p = 0 it never would.
            Loss::Burst { p, b, chain: Chain::Continuous { .. } } if b <= p || p == 0.0 => {
                LossProcess::Bernoulli { p, rng }
            }
            Loss::Burst { p, b, chain: Chain::Continuous { spacing } } => {
                LossProcess::Continuous(Outages::new(p, b, spacing, rng))
            }
            Loss::Trace(lost) => LossProcess::Trace { lost, at: 0 },
        }
    }

    /// Whether the next packet, on the wire at `sent`, is lost. `sent` must
    /// not decrease.
    pub fn loses(&mut self, sent: Time) -> bool {
        match self {
            LossProcess::None => false,
            LossProcess::Bernoulli { p, rng } => happens(*p, rng),
            LossProcess::PerPacket { after_lost, after_received, next, rng } => {
                let lost = happens(*next, rng);
                *next = if lost { *after_lost } else { *after_received };
                lost
            }
            LossProcess::Continuous(outages) => outages.down_at(sent),
            LossProcess::Trace { lost, at } => {
                let this = lost[*at];
                *at = (*at + 1) % lost.len();
                this
            }
        }
    }
}

/// True with probability `p`. The draw is a multiple of 2⁻⁵³ below 1, so the
/// comparison is exact: never at 0, always at 1, equal on every machine.
fn happens(p: f64, rng: &mut Rng) -> bool {
    const ULP: f64 = 1.0 / (1u64 << 53) as f64;
    (rng.next_u64() >> 11) as f64 * ULP < p
}

/// A two-state Markov process in continuous time, stepped from one state change to the next.
#[derive(Clone, Debug)]
pub(super) struct Outages {
    p: f64,
    /// Mean time in each state, ns.
    mean_down: f64,
    mean_up: f64,
    down: bool,
    /// Time of the next state change.
    change: Time,
    rng: Rng,
}

impl Outages {
    fn new(p: f64, b: f64, spacing: Duration, rng: Rng) -> Outages {
        // The autocorrelation decays as exp(-rate τ), and is (b-p)/(1-p) at τ = spacing; rate is
        // the sum of the two transition rates.
        let rate = -libm::log((b - p) / (1.0 - p)) / spacing.as_nanos() as f64;
        let mut outages = Outages {
            p,
            mean_down: 1.0 / (rate * (1.0 - p)),
            mean_up: 1.0 / (rate * p),
            down: false,
            change: Time::ZERO,
            rng,
        };
        outages.restart(Time::ZERO);
        outages
    }

    fn down_at(&mut self, t: Time) -> bool {
        // After a gap this long, the past has no bearing, and stepping through every change would
        // take unbounded time.
        const LONG: f64 = 10_000.0;
        let behind = t.since(self.change).as_nanos() as f64;
        if behind > LONG * (self.mean_down + self.mean_up) {
            self.restart(t);
        }
        while self.change < t {
            self.down = !self.down;
            let sojourn = self.sojourn();
            self.change += sojourn;
        }
        self.down
    }

    /// Enters the stationary state at `t`. The process has no memory, so the
    /// time until the next change is an ordinary sojourn.
    fn restart(&mut self, t: Time) {
        self.down = happens(self.p, &mut self.rng);
        self.change = t + self.sojourn();
    }

    fn sojourn(&mut self) -> Duration {
        const ULP: f64 = 1.0 / (1u64 << 53) as f64;
        // In (0, 1], so that the logarithm is finite.
        let u = ((self.rng.next_u64() >> 11) + 1) as f64 * ULP;
        let mean = if self.down { self.mean_down } else { self.mean_up };
        // A sojourn must not be empty, or time would not advance.
        Duration::from_nanos((libm::round(-libm::log(u) * mean) as u64).max(1))
    }
}
