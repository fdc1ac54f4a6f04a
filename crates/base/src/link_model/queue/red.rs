//! Random early detection (Floyd, Jacobson, *Random Early Detection Gateways
//! for Congestion Avoidance*, IEEE/ACM Transactions on Networking 1(4), 1993),
//! marking by ECN (RFC 3168) and the gentle variant (Floyd, *Recommendation on
//! using the "gentle" variant of RED*, 2000).

use super::{Backlog, Rejection, Unit, drop_tail};
use crate::link_model::{Ecn, InvalidModel};
use crate::{Bitrate, Rng};
use rand::Rng as _;

/// Random early detection: once the average queue reaches `min`, packets are rejected (or marked)
/// at random, in a share that grows with the average, so that senders slow down before the buffer
/// is full.
///
/// The average is sampled at every arrival; while a packet is being sent and none waits, the sample
/// is 0. Every packet has the same chance regardless of its length: RFC 7141, section 2.3, advises
/// against the paper's option to weight it by size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Unit of `limit`, `min` and `max`.
    pub unit: Unit,
    /// Buffer size: the most that may wait, as with drop tail.
    pub limit: usize,
    /// The average (min_th) from which packets are chosen; above 0.
    pub min: f64,
    /// The average (max_th) from which every packet is rejected; above `min`.
    pub max: f64,
    /// The share of packets chosen as the average approaches `max`, 0 to 1 (max_p). Spacing the
    /// choices evenly makes the actual share nearly twice as large.
    pub max_p: f64,
    /// Weight of a new sample in the average (w_q), above 0 and at most 1.
    pub weight: f64,
    /// Typical packet size in bytes, at least 1: an idle time counts as many samples of an empty
    /// queue as packets of this size fit into it.
    pub packet: usize,
    /// Instead of rejecting everything from `max` on, let the share rise further, from `max_p` at
    /// `max` to 1 at twice `max`.
    pub gentle: bool,
    /// Mark the ECN-capable packets that are chosen below `max`. From `max` on they are rejected
    /// all the same (RFC 3168, section 7).
    pub ecn: bool,
}

impl Default for Red {
    /// Thresholds of 5 and 15 packets in a buffer of 100, w_q = 0.002 and max_p = 1/50 (the paper's
    /// simulations, section IV), packets of 500 bytes, neither gentle nor marking.
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
        // Written so that NaN is rejected.
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

    /// The share of packets to choose at this average (p_b); `None` if all are rejected.
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

/// A validated [`Red`] in operation.
#[derive(Clone, Debug)]
pub(super) struct RedState {
    red: Red,
    /// Transmission time of a typical packet (s), ns.
    packet_nanos: f64,
    average: f64,
    /// Packets since the last that was chosen, or since the average was last below `min` (count).
    count: u64,
    rng: Rng,
}

impl RedState {
    pub fn new(red: Red, rate: Bitrate, rng: Rng) -> RedState {
        let packet_nanos = rate.time_for(red.packet).as_nanos() as f64;
        RedState { red, packet_nanos, average: 0.0, count: 0, rng }
    }

    pub fn admit(
        &mut self,
        bytes: usize,
        backlog: &Backlog,
        ecn: &mut Ecn,
    ) -> Result<(), Rejection> {
        self.sample(backlog);
        let Red { min, max, limit, unit, .. } = self.red;
        match self.red.share(self.average) {
            None => {
                self.count = 0;
                return Err(Rejection::Forced);
            }
            Some(_) if self.average < min => self.count = 0,
            Some(share) if self.chosen(share) => {
                if !(self.red.ecn && self.average < max && ecn.mark()) {
                    return Err(Rejection::Early);
                }
            }
            Some(_) => {}
        }
        drop_tail::admit(limit, unit, bytes, backlog).then_some(()).ok_or(Rejection::Forced)
    }

    /// Updates the moving average (section IV). After an idle time, it counts as many samples of an
    /// empty queue as the link could have sent typical packets.
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

    /// Whether this packet is one of the `share` (p_b) to choose. Section VII: with p_a = p_b / (1
    /// − count · p_b), where `count` packets have arrived since the last choice, the distance
    /// between two choices is uniform on 1 … 1/p_b, instead of geometric with its clusters and long
    /// pauses. Its mean is 1/(2 p_b) + 1/2. (The paper's figure 2 counts the packet in question
    /// too, which makes every distance one shorter.)
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
