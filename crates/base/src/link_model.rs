//! The impairment model: the effect of a link on a packet, as a value.
//!
//! A [`LinkModel`] and a seed determine everything; [`Impairment`] runs one direction of one link.
//! The simulator, `trunkline impair` and the testbed all use this type, so a loss process measured
//! in one is the loss process of the others.
//!
//! A packet passes, in this order, the [`Queue`] (drop tail, or random early detection, which may
//! mark the packet instead: see [`Impairment::offer_ecn`]), the transmitter (`rate`), [`Loss`] on
//! the wire, then `delay` and `jitter`. A lost packet has therefore used the queue and the wire,
//! and a packet that the queue rejects does not advance the loss process.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_base::link_model::{Impairment, LinkModel, Loss, PacketFate};
//!
//! let model = LinkModel {
//!     delay: Duration::from_millis(30),
//!     loss: Loss::Bernoulli { p: 0.05 },
//!     ..LinkModel::default()
//! };
//! let mut link = Impairment::new(model, 1, 0)?;
//! match link.offer(Time::from_millis(20), 200) {
//!     PacketFate::Deliver(at) => assert_eq!(at, Time::from_millis(50)),
//!     PacketFate::Drop(cause) => println!("dropped: {cause:?}"),
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
use queue::{Rejection, Transmitter};
pub use trace::{BadTrace, MAX_TRACE, parse_trace};

/// The impairments of one direction of a link. The default is a perfect wire: no delay, no loss, no
/// rate limit.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct LinkModel {
    /// Propagation delay in this direction.
    pub delay: Duration,
    /// Extra delay of each packet, drawn uniformly from `0..=jitter`.
    ///
    /// Jitter never reorders: a packet that would overtake its predecessor is delayed until that
    /// one arrives, as in a queue. Where `jitter` exceeds the spacing of the packets, this raises
    /// the mean above `delay + jitter / 2`.
    pub jitter: Duration,
    /// Loss process on the wire.
    pub loss: Loss,
    /// The transmitter's rate; with `None`, sending takes no time and packets never queue.
    pub rate: Option<Bitrate>,
    /// The buffer before the transmitter. Without a `rate` it stays empty.
    pub queue: Queue,
}

/// The loss process on the wire.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Loss {
    /// No packet is lost.
    #[default]
    None,
    /// Independent loss of each packet ("uniform" loss).
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
        /// Unit in which the chain advances.
        chain: Chain,
    },
    /// A recorded trace: entry `k` is true if the `k`-th packet on the wire is lost. When it is
    /// exhausted, it starts again from the front. [`parse_trace`] reads one from text.
    Trace(Arc<[bool]>),
}

impl Loss {
    /// Loss of every packet: a cut cable, or a blackhole route.
    pub const EVERYTHING: Loss = Loss::Bernoulli { p: 1.0 };
}

/// Unit in which the chain of [`Loss::Burst`] advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// One step per packet, regardless of the packet spacing: a faster flow sees shorter outages.
    PerPacket,
    /// Continuous time. The link goes down for exponentially distributed times and loses the
    /// packets sent meanwhile. `b` is P(lost at `t + spacing` | lost at `t`), so P(lost at `t + τ`
    /// | lost at `t`) is `p + (1 - p) ((b - p) / (1 - p)) ^ (τ / spacing)`. Requires `b >= p`.
    ///
    /// The outages depend only on seed and stream, not on the packets: two flows, or one flow with
    /// and without retransmissions, meet the same outages. The process starts at [`Time::ZERO`], so
    /// count time from the start of the run. At `b = p` the chain has no memory and becomes
    /// Bernoulli.
    Continuous {
        /// The packet spacing at which `b` holds; at least 1 µs.
        spacing: Duration,
    },
}

/// Errors returned by [`LinkModel::validate`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidModel {
    /// A loss probability is outside 0 to 1.
    #[error("loss is {0}, and must be a probability from 0 to 1")]
    Loss(f64),
    /// A burstiness is negative, or 1 or more.
    #[error("burst is {0}, and must be a probability of at least 0 and below 1")]
    Burst(f64),
    /// No chain has this loss and burstiness: P(lost | received) exceeds 1.
    #[error("loss {p} is more than burst {b} allows: it must be at most {} (1 / (2 - burst))", 1.0 / (2.0 - b))]
    LossTooHigh {
        /// The loss probability that was rejected.
        p: f64,
        /// The burstiness that was rejected.
        b: f64,
    },
    /// Burstiness is below the loss probability, which a continuous-time process cannot produce: it
    /// loses packets that follow each other closely together.
    #[error("burst is {b}, and a continuous chain needs at least loss, {p}")]
    BurstBelowLoss {
        /// The loss probability that was rejected.
        p: f64,
        /// The burstiness that was rejected.
        b: f64,
    },
    /// The spacing of a continuous chain is too short.
    #[error("spacing is {0:?}, and must be at least 1 µs")]
    Spacing(Duration),
    /// The trace has no entries.
    #[error("the loss trace is empty, and must have at least one entry")]
    EmptyTrace,
    /// The thresholds of [`Red`] are not positive, finite and in ascending order.
    #[error(
        "red: min is {min} and max is {max}, and must be above 0, min below max and both finite"
    )]
    RedThresholds {
        /// The rejected lower threshold.
        min: f64,
        /// The rejected upper threshold.
        max: f64,
    },
    /// The maximum share of [`Red`] is outside 0 to 1.
    #[error("red: max_p is {0}, and must be a probability from 0 to 1")]
    RedShare(f64),
    /// The averaging weight of [`Red`] is not above 0 and at most 1.
    #[error("red: weight is {0}, and must be above 0 and at most 1")]
    RedWeight(f64),
    /// The typical packet size of [`Red`] is 0 bytes.
    #[error("red: packet is 0 bytes, and must be at least 1 byte")]
    RedPacket,
    /// The bit rate is 0.
    #[error("rate is 0 bit/s, and must be at least 1 bit/s; leave it out for an unlimited link")]
    Rate,
}

impl LinkModel {
    /// Checks that the model describes a process.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of range, with its value.
    pub fn validate(&self) -> Result<(), InvalidModel> {
        if self.rate.is_some_and(|r| r.as_bps() == 0) {
            return Err(InvalidModel::Rate);
        }
        self.queue.validate()?;
        self.loss.validate()
    }
}

/// Fate of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// The packet arrives at this time, never before the one delivered before it.
    Deliver(Time),
    /// The packet never arrives.
    Drop(Cause),
}

/// Reasons for a packet never to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Lost on the wire.
    Loss,
    /// Rejected by the queue: no room, or [`Red`].
    Queue,
}

/// A number of packets and their total size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Count {
    /// Number of packets counted.
    pub packets: u64,
    /// Total size in bytes, as offered.
    pub bytes: u64,
}

impl Count {
    /// Counts one more packet, of `bytes` bytes.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Totals of an [`Impairment`]: `offered = delivered + lost + queue_dropped`, in packets and in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ledger {
    /// All packets that were offered.
    pub offered: Count,
    /// Packets that were given a delivery time.
    pub delivered: Count,
    /// Packets lost on the wire.
    pub lost: Count,
    /// Packets rejected by the queue.
    pub queue_dropped: Count,
    /// The part of `queue_dropped` that [`Red`] chose at random (early drops). The others are
    /// forced drops: the buffer was full, or the average too high.
    pub early_dropped: Count,
    /// Packets marked by [`Red`]; each was then delivered or lost.
    pub marked: Count,
}

impl Ledger {
    /// Returns the part of `queue_dropped` that was not chosen at random: all of it with drop tail.
    pub fn forced_dropped(&self) -> Count {
        Count {
            packets: self.queue_dropped.packets - self.early_dropped.packets,
            bytes: self.queue_dropped.bytes - self.early_dropped.bytes,
        }
    }
}

/// One direction of a link in operation.
///
/// The same model, seed and stream give the same verdicts to the same packets on every machine.
/// Loss, jitter and [`Red`] draw from separate generators, so adding one does not change what
/// another does to the n-th packet on the wire.
#[derive(Clone, Debug)]
pub struct Impairment {
    model: LinkModel,
    seed: u64,
    stream: u64,
    /// Number of model changes so far.
    changes: u64,
    jitter_nanos: u64,
    jitter_rng: Rng,
    loss: LossProcess,
    transmitter: Option<Transmitter>,
    /// The latest time offered so far.
    now: Time,
    last_arrival: Time,
    ledger: Ledger,
}

/// Salts that keep the generators apart from each other, and from anything else that a caller draws
/// from the same seed and stream.
const LOSS_SALT: u64 = 0x6c6f_7373_6c6f_7373;
const JITTER_SALT: u64 = 0x6a69_7474_6572_6a69;
const QUEUE_SALT: u64 = 0x7175_6575_6571_7565;
/// Odd, so that no two change counts give the same product.
const CHANGE_SALT: u64 = 0x6368_616e_6765_6421;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Impairment {
    /// Creates an idle link. `stream` distinguishes the links of one run; two links with the same
    /// stream share one loss process.
    ///
    /// # Errors
    ///
    /// Fails as [`LinkModel::validate`] does.
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

    /// The model in force.
    pub fn model(&self) -> &LinkModel {
        &self.model
    }

    /// Replaces the model from now on. Packets offered before keep their arrival times, nothing
    /// later overtakes them, and the ledger continues. An unchanged loss process continues from its
    /// current state; a changed one draws from a fresh generator, so that a link that is repeatedly
    /// cut and restored does not repeat the same losses.
    ///
    /// # Errors
    ///
    /// Fails as [`LinkModel::validate`] does, and then changes nothing.
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

    /// Decides the fate of a packet of `bytes` bytes that enters the link at `now` and cannot be
    /// marked. A `now` earlier than the previous packet's counts as the same time.
    ///
    /// `bytes` are those that take time at `rate`: the caller decides which headers to include.
    pub fn offer(&mut self, now: Time, bytes: usize) -> PacketFate {
        self.offer_ecn(now, bytes, &mut Ecn::NotCapable)
    }

    /// Decides as [`Impairment::offer`] does, for a packet with these ECN bits, which the queue may
    /// set to [`Ecn::Marked`].
    pub fn offer_ecn(&mut self, now: Time, bytes: usize, ecn: &mut Ecn) -> PacketFate {
        self.now = self.now.max(now);
        self.ledger.offered.add(bytes);
        let before = *ecn;
        let sent = match &mut self.transmitter {
            None => self.now,
            Some(transmitter) => match transmitter.send(self.now, bytes, ecn) {
                Ok(sent) => sent,
                Err(why) => {
                    self.ledger.queue_dropped.add(bytes);
                    if why == Rejection::Early {
                        self.ledger.early_dropped.add(bytes);
                    }
                    return PacketFate::Drop(Cause::Queue);
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
            return PacketFate::Drop(Cause::Loss);
        }
        self.ledger.delivered.add(bytes);
        self.last_arrival = self.last_arrival.max(sent + self.model.delay + jitter);
        PacketFate::Deliver(self.last_arrival)
    }

    /// The totals so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn draw_jitter(&mut self) -> Duration {
        if self.jitter_nanos == 0 {
            return Duration::ZERO;
        }
        // The high half of a 128-bit product: integers only, and computed here, so that no library
        // release can change the numbers.
        let wide = u128::from(self.jitter_rng.next_u64()) * (u128::from(self.jitter_nanos) + 1);
        Duration::from_nanos((wide >> 64) as u64)
    }
}
