//! The impairment model: what a link does to a packet, as a value.
//!
//! A [`LinkModel`] and a seed say everything; [`Impairment`] runs one
//! direction of one link. The simulator, `trunkline impair` and the testbed
//! all use this type, so that a loss process measured in one is the loss
//! process of the others.
//!
//! A packet meets, in this order: the [`Queue`] (drop tail, or random early
//! detection that may mark it instead: see [`Impairment::offer_ecn`]), the
//! transmitter (`rate`), [`Loss`] on the wire, then `delay` and `jitter`. A
//! lost packet has therefore used the queue and the wire, and a packet that the
//! queue turned away does not advance the loss process.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_base::link_model::{Impairment, LinkModel, Loss, Verdict};
//!
//! let model = LinkModel {
//!     delay: Duration::from_millis(30),
//!     loss: Loss::Bernoulli { p: 0.05 },
//!     ..LinkModel::default()
//! };
//! let mut link = Impairment::new(model, 1, 0)?;
//! match link.offer(Time::from_millis(20), 200) {
//!     Verdict::Deliver(at) => assert_eq!(at, Time::from_millis(50)),
//!     Verdict::Drop(cause) => println!("dropped: {cause:?}"),
//! }
//! # Ok::<(), trunkline_base::link_model::InvalidModel>(())
//! ```

mod ecn;
mod loss;
mod queue;
#[cfg(test)]
mod tests;
mod trace;

use core::time::Duration;
use std::sync::Arc;

use rand::Rng as _;

use crate::{Bitrate, Rng, Time, rng};
pub use ecn::Ecn;
use loss::LossProcess;
pub use queue::{Queue, Red, Unit};
use queue::{Refusal, Transmitter};
pub use trace::{BadTrace, MAX_TRACE, parse_trace};

/// What one direction of a link does to packets. The default is a perfect
/// wire: no delay, no loss, no rate limit.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct LinkModel {
    /// One-way propagation delay.
    pub delay: Duration,
    /// Extra delay of each packet, drawn uniformly from `0..=jitter`.
    ///
    /// It never reorders: a packet that would overtake is held until the one
    /// before it arrives, as in a queue. Where `jitter` exceeds the distance
    /// between packets, that raises the mean above `delay + jitter / 2`.
    pub jitter: Duration,
    /// Which packets are lost on the wire.
    pub loss: Loss,
    /// The transmitter's rate; `None` sends in no time and never queues.
    pub rate: Option<Bitrate>,
    /// The buffer before the transmitter. Without a `rate` it stays empty.
    pub queue: Queue,
}

/// Which packets are lost on the wire.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet by itself ("uniform" loss).
    Bernoulli {
        /// Loss probability, 0 to 1.
        p: f64,
    },
    /// A two-state Markov chain, lost or received (Gilbert's model with a bad
    /// state that loses everything).
    ///
    /// P(lost | previous received) is `p (1 - b) / (1 - p)`, so that the loss
    /// rate is `p` at every `b`. `b = p` is Bernoulli; `b = 0` is not: it never
    /// loses two in a row.
    Burst {
        /// Stationary loss probability, 0 to 1.
        p: f64,
        /// Burstiness: P(lost | previous lost), at least 0 and below 1.
        b: f64,
        /// What moves the chain.
        chain: Chain,
    },
    /// A recording: entry `k` says whether the `k`-th packet on the wire is
    /// lost. Starts again from the front when it is used up. [`parse_trace`]
    /// reads one from text.
    Trace(Arc<[bool]>),
}

impl Loss {
    /// Every packet: a cut cable, or a route into nowhere.
    pub const EVERYTHING: Loss = Loss::Bernoulli { p: 1.0 };
}

/// What moves the chain of [`Loss::Burst`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// One step per packet, however far apart packets are: a faster flow sees
    /// shorter outages.
    PerPacket,
    /// Time. The link is down for exponential times with the packets that are
    /// on it then, and `b` is P(lost at `t + spacing` | lost at `t`), so
    /// P(lost at `t + τ` | lost at `t`) is
    /// `p + (1 - p) ((b - p) / (1 - p)) ^ (τ / spacing)`. Needs `b >= p`.
    ///
    /// When the link is down depends on seed and stream alone, not on the
    /// packets: two flows, or one flow with and without retransmissions, meet
    /// the same outages. The process starts at [`Time::ZERO`]; count time from
    /// the start of the run. At `b = p` it has no memory and becomes Bernoulli.
    Continuous {
        /// The packet spacing at which `b` holds; at least 1 µs.
        spacing: Duration,
    },
}

/// A [`LinkModel`] that describes no process.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidModel {
    /// Loss outside 0 to 1.
    #[error("loss is {0}, and must be a probability from 0 to 1")]
    Loss(f64),
    /// Burstiness outside 0 to 1.
    #[error("burst is {0}, and must be a probability of at least 0 and below 1")]
    Burst(f64),
    /// No chain has this loss and burstiness: P(lost | received) exceeds 1.
    #[error("loss {p} is more than burst {b} allows: it must be at most {} (1 / (2 - burst))", 1.0 / (2.0 - b))]
    LossTooHigh {
        /// Loss probability.
        p: f64,
        /// Burstiness.
        b: f64,
    },
    /// A process in continuous time cannot avoid losing neighbours together.
    #[error("burst is {b}, and a continuous chain needs at least loss, {p}")]
    BurstBelowLoss {
        /// Loss probability.
        p: f64,
        /// Burstiness.
        b: f64,
    },
    /// The spacing of a continuous chain is too short.
    #[error("spacing is {0:?}, and must be at least 1 µs")]
    Spacing(Duration),
    /// A trace without entries.
    #[error("the loss trace is empty, and must have at least one entry")]
    EmptyTrace,
    /// Thresholds of [`Red`] between which nothing is.
    #[error(
        "red: min is {min} and max is {max}, and must be above 0, min below max and both finite"
    )]
    RedThresholds {
        /// The lower one.
        min: f64,
        /// The upper one.
        max: f64,
    },
    /// The largest share of [`Red`] outside 0 to 1.
    #[error("red: max_p is {0}, and must be a probability from 0 to 1")]
    RedShare(f64),
    /// A weight of [`Red`] that is none.
    #[error("red: weight is {0}, and must be above 0 and at most 1")]
    RedWeight(f64),
    /// Typical packets of [`Red`] without bytes.
    #[error("red: packet is 0 bytes, and must be at least 1 byte")]
    RedPacket,
    /// A rate of 0.
    #[error("rate is 0 bit/s, and must be at least 1 bit/s; leave it out for an unlimited link")]
    Rate,
}

impl LinkModel {
    /// Whether the model describes a process.
    ///
    /// # Errors
    ///
    /// The first field out of its range, with its value.
    pub fn validate(&self) -> Result<(), InvalidModel> {
        if self.rate.is_some_and(|r| r.as_bps() == 0) {
            return Err(InvalidModel::Rate);
        }
        self.queue.validate()?;
        self.loss.validate()
    }
}

/// What became of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives at this time, never before the one delivered before it.
    Deliver(Time),
    /// It never arrives.
    Drop(Cause),
}

/// Why a packet never arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Lost on the wire.
    Loss,
    /// Turned away by the queue: no room, or [`Red`].
    Queue,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, as they were offered.
    pub bytes: u64,
}

impl Count {
    /// Counts one packet of `bytes`.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// What an [`Impairment`] did: `offered = delivered + lost + queue_dropped`,
/// in packets and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Everything that was offered.
    pub offered: Count,
    /// Given a delivery time.
    pub delivered: Count,
    /// Lost on the wire.
    pub lost: Count,
    /// Turned away by the queue.
    pub queue_dropped: Count,
    /// Those of `queue_dropped` that [`Red`] chose by chance (early drops). The
    /// others are forced drops: the buffer was full, or the average too high.
    pub early_dropped: Count,
    /// Marked by [`Red`]; each was then delivered or lost.
    pub marked: Count,
}

impl Ledger {
    /// Those of `queue_dropped` that had no chance: all with drop tail.
    pub fn forced_dropped(&self) -> Count {
        Count {
            packets: self.queue_dropped.packets - self.early_dropped.packets,
            bytes: self.queue_dropped.bytes - self.early_dropped.bytes,
        }
    }
}

/// One direction of a link at work.
///
/// The same model, seed and stream give the same verdicts to the same packets
/// on every machine. Loss, jitter and [`Red`] draw from separate generators, so
/// adding one does not change what another does to the n-th packet on the wire.
#[derive(Clone, Debug)]
pub struct Impairment {
    model: LinkModel,
    seed: u64,
    stream: u64,
    /// How often the model has changed.
    changes: u64,
    jitter_nanos: u64,
    jitter_rng: Rng,
    loss: LossProcess,
    transmitter: Option<Transmitter>,
    /// The latest time offered.
    now: Time,
    last_arrival: Time,
    ledger: Ledger,
}

/// Keeps the generators apart from each other, and from whatever else a caller
/// draws from the same seed and stream.
const LOSS_SALT: u64 = 0x6c6f_7373_6c6f_7373;
const JITTER_SALT: u64 = 0x6a69_7474_6572_6a69;
const QUEUE_SALT: u64 = 0x7175_6575_6571_7565;
/// Odd, so that no two changes have the same product.
const CHANGE_SALT: u64 = 0x6368_616e_6765_6421;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Impairment {
    /// A link at rest. `stream` tells links of one run apart; two links with
    /// the same stream share one loss process.
    ///
    /// # Errors
    ///
    /// As [`LinkModel::validate`].
    pub fn new(model: LinkModel, seed: u64, stream: u64) -> Result<Impairment, InvalidModel> {
        model.validate()?;
        Ok(Impairment {
            jitter_nanos: nanos(model.jitter),
            jitter_rng: rng(seed ^ JITTER_SALT, stream),
            loss: LossProcess::new(model.loss.clone(), rng(seed ^ LOSS_SALT, stream)),
            transmitter: model
                .rate
                .map(|rate| Transmitter::new(rate, model.queue, rng(seed ^ QUEUE_SALT, stream))),
            now: Time::ZERO,
            last_arrival: Time::ZERO,
            ledger: Ledger::default(),
            model,
            seed,
            stream,
            changes: 0,
        })
    }

    /// What it does now.
    pub fn model(&self) -> &LinkModel {
        &self.model
    }

    /// Does from now on what `model` says. What was offered before keeps its
    /// time of arrival, and nothing later overtakes it; counts go on. A loss
    /// process that stays goes on where it was; another one draws numbers of
    /// its own, so that a link that is cut and mended again and again does not
    /// meet the same luck each time.
    ///
    /// # Errors
    ///
    /// As [`LinkModel::validate`]; then nothing has changed.
    pub fn change(&mut self, model: LinkModel) -> Result<(), InvalidModel> {
        model.validate()?;
        self.changes += 1;
        let seed = self.seed ^ self.changes.wrapping_mul(CHANGE_SALT);
        let fresh = |salt| rng(seed ^ salt, self.stream);
        if model.loss != self.model.loss {
            self.loss = LossProcess::new(model.loss.clone(), fresh(LOSS_SALT));
        }
        if (model.rate, model.queue) != (self.model.rate, self.model.queue) {
            let new = model.rate.map(|r| Transmitter::new(r, model.queue, fresh(QUEUE_SALT)));
            self.transmitter = match (self.transmitter.take(), new) {
                (Some(old), Some(new)) => Some(new.after(old)),
                (_, new) => new,
            };
        }
        self.jitter_nanos = nanos(model.jitter);
        self.model = model;
        Ok(())
    }

    /// Decides about a packet of `bytes` that enters the link at `now` and
    /// can't be marked. A `now` before that of the packet before it counts as
    /// the same moment.
    ///
    /// `bytes` are those that take time at `rate`: the caller decides which
    /// headers to include.
    pub fn offer(&mut self, now: Time, bytes: usize) -> Verdict {
        self.offer_ecn(now, bytes, &mut Ecn::NotCapable)
    }

    /// As [`Impairment::offer`], of a packet with these bits, which the queue
    /// may turn to [`Ecn::Marked`] on the way.
    pub fn offer_ecn(&mut self, now: Time, bytes: usize, ecn: &mut Ecn) -> Verdict {
        self.now = self.now.max(now);
        self.ledger.offered.add(bytes);
        let before = *ecn;
        let sent = match &mut self.transmitter {
            None => self.now,
            Some(transmitter) => match transmitter.send(self.now, bytes, ecn) {
                Ok(sent) => sent,
                Err(why) => {
                    self.ledger.queue_dropped.add(bytes);
                    if why == Refusal::Early {
                        self.ledger.early_dropped.add(bytes);
                    }
                    return Verdict::Drop(Cause::Queue);
                }
            },
        };
        if *ecn != before {
            self.ledger.marked.add(bytes);
        }
        // Drawn for lost packets too: the n-th packet has the n-th jitter.
        let jitter = self.draw_jitter();
        if self.loss.loses(sent) {
            self.ledger.lost.add(bytes);
            return Verdict::Drop(Cause::Loss);
        }
        self.ledger.delivered.add(bytes);
        self.last_arrival = self.last_arrival.max(sent + self.model.delay + jitter);
        Verdict::Deliver(self.last_arrival)
    }

    /// What was done so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn draw_jitter(&mut self) -> Duration {
        if self.jitter_nanos == 0 {
            return Duration::ZERO;
        }
        // The high half of a 128-bit product: integers only, and ours, so that
        // no release of a library can change the numbers.
        let wide = u128::from(self.jitter_rng.next_u64()) * (u128::from(self.jitter_nanos) + 1);
        Duration::from_nanos((wide >> 64) as u64)
    }
}
