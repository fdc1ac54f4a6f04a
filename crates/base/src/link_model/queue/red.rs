//! Random early detection (Floyd, Jacobson, *Random Early Detection Gateways
//! for Congestion Avoidance*, IEEE/ACM Transactions on Networking 1(4), 1993),
//! marking by ECN (RFC 3168) and the gentle variant (Floyd, *Recommendation on
//! using the "gentle" variant of RED*, 2000).

use super::{Backlog, Refusal, Unit, drop_tail};
use crate::link_model::{Ecn, InvalidModel};
use crate::{Bitrate, Rng};
use rand::Rng as _;

/// Random early detection: from an average queue of `min` on, packets are
/// turned away (or marked) by chance, ever more of them, so that senders slow
/// down before the buffer is full.
///
/// The average is sampled whenever a packet comes, and while a packet is sent
/// but none waits the sample is 0. Every packet has the same chance, however
/// long it is: RFC 7141, section 2.3, advises against the paper's option to
/// weigh it by its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// What `limit`, `min` and `max` count.
    pub unit: Unit,
    /// The buffer: the most that may wait, as with drop tail.
    pub limit: usize,
    /// The average (min_th) from which on packets are chosen; above 0.
    pub min: f64,
    /// The average (max_th) from which on every packet is turned away; above
    /// `min`.
    pub max: f64,
    /// The share of packets that is chosen as the average nears `max`, 0 to 1
    /// (max_p). Choosing them at even distances makes it nearly twice as much.
    pub max_p: f64,
    /// How much a new sample counts in the average (w_q), above 0 to 1.
    pub weight: f64,
    /// The typical size of a packet in bytes, at least 1: an idle time counts
    /// as many samples of an empty queue as it could have sent such packets.
    pub packet: usize,
    /// Instead of turning everything away from `max` on, let the share rise
    /// further, from `max_p` at `max` to 1 at twice `max`.
    pub gentle: bool,
    /// Mark packets that are chosen below `max` and can be marked. From `max`
    /// on they are turned away all the same (RFC 3168, section 7).
    pub ecn: bool,
}

impl Default for Red {
    /// 5 and 15 of at most 100 packets, w_q = 0.002 and max_p = 1/50 (the
    /// paper's simulations, section IV), packets of 500 bytes, neither gentle
    /// nor marking.
    fn default() -> Red {
        Red {
            unit: Unit::Packets,
            limit: 100,
            min: 5.0,
            max: 15.0,
            max_p: 0.02,
            weight: 0.002,
            packet: 500,
            gentle: false,
            ecn: false,
        }
    }
}

impl Red {
    pub(super) fn validate(&self) -> Result<(), InvalidModel> {
        let &Red { min, max, max_p, weight, packet, .. } = self;
        // Written so that NaN is refused.
        if !(min > 0.0 && max > min && max.is_finite()) {
            return Err(InvalidModel::RedThresholds { min, max });
        }
        if !(0.0..=1.0).contains(&max_p) {
            return Err(InvalidModel::RedShare(max_p));
        }
        if !(weight > 0.0 && weight <= 1.0) {
            return Err(InvalidModel::RedWeight(weight));
        }
        if packet == 0 {
            return Err(InvalidModel::RedPacket);
        }
        Ok(())
    }

    /// The share of packets that is to be chosen at this average (p_b); `None`
    /// if all are turned away.
    fn share(&self, average: f64) -> Option<f64> {
        let &Red { min, max, max_p, .. } = self;
        match average {
            a if a < min => Some(0.0),
            a if a < max => Some(max_p * (a - min) / (max - min)),
            a if self.gentle && a < 2.0 * max => Some(max_p + (1.0 - max_p) * (a - max) / max),
            _ => None,
        }
    }
}

/// A validated [`Red`] at work.
#[derive(Clone, Debug)]
pub(super) struct RedState {
    red: Red,
    /// How long a typical packet takes (s), ns.
    packet_nanos: f64,
    average: f64,
    /// Packets since the last that was chosen, or since the average was last
    /// below `min` (count).
    count: u64,
    rng: Rng,
}

impl RedState {
    pub fn new(red: Red, rate: Bitrate, rng: Rng) -> RedState {
        let packet_nanos = rate.time_for(red.packet).as_nanos() as f64;
        RedState { red, packet_nanos, average: 0.0, count: 0, rng }
    }

    pub fn admit(&mut self, bytes: usize, backlog: &Backlog, ecn: &mut Ecn) -> Result<(), Refusal> {
        self.sample(backlog);
        let Red { min, max, limit, unit, .. } = self.red;
        match self.red.share(self.average) {
            None => {
                self.count = 0;
                return Err(Refusal::Forced);
            }
            Some(_) if self.average < min => self.count = 0,
            Some(share) if self.chosen(share) => {
                if !(self.red.ecn && self.average < max && ecn.mark()) {
                    return Err(Refusal::Early);
                }
            }
            Some(_) => {}
        }
        drop_tail::admit(limit, unit, bytes, backlog).then_some(()).ok_or(Refusal::Forced)
    }

    /// Section IV: a moving average; after an idle time, as if as many small
    /// packets had found the queue empty as the link could have sent.
    fn sample(&mut self, backlog: &Backlog) {
        let weight = self.red.weight;
        match backlog.idle_since {
            None => {
                let queue = backlog.in_unit(self.red.unit) as f64;
                self.average = (1.0 - weight) * self.average + weight * queue;
            }
            Some(since) => {
                let samples = backlog.now.since(since).as_nanos() as f64 / self.packet_nanos;
                self.average *= libm::pow(1.0 - weight, samples);
            }
        }
    }

    /// Whether this packet is one of the `share` (p_b). Section VII: with
    /// p_a = p_b / (1 - count p_b), where `count` packets came since the last
    /// that was chosen, the distance between two of them is uniform on
    /// 1 … 1/p_b, instead of geometric with its clusters and long pauses. Its
    /// mean is 1/(2 p_b) + 1/2. (The paper's figure 2 counts the packet in
    /// question too, which makes every distance one shorter.)
    fn chosen(&mut self, share: f64) -> bool {
        const ULP: f64 = 1.0 / (1u64 << 53) as f64;
        let remaining = 1.0 - self.count as f64 * share;
        let draw = (self.rng.next_u64() >> 11) as f64 * ULP;
        // draw < share / remaining, and certain when nothing remains.
        let chosen = draw * remaining < share;
        self.count = if chosen { 0 } else { self.count + 1 };
        chosen
    }
}

#[cfg(test)]
mod tests;
