//! What a link costs, as the end that sends measures it and all nodes are told.

use core::time::Duration;

/// One direction of a link, as its sender measures it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkCost {
    /// One-way delay in 0.1 ms: up to 6.5 s.
    pub latency: u16,
    /// Share of packets lost, of 65,535.
    pub loss: u16,
    /// Share still missing after recovery, of 65,535. More than `loss` counts
    /// as `loss`.
    pub residual: u16,
    /// What the operator adds to both latencies, in 0.1 ms, so that traffic
    /// prefers other ways. Nothing takes that long: it counts for the choice of
    /// a way only.
    pub penalty: u16,
}

/// All of them, as a share.
pub(crate) const WHOLE: u64 = u16::MAX as u64;
/// Steps of the residual loss on the wire, relative to the loss.
const RESIDUAL_STEPS: u32 = u8::MAX as u32;
pub(crate) const UNIT: Duration = Duration::from_micros(100);

impl LinkCost {
    /// From measured values: one-way delay, loss 0 to 1, and the loss after
    /// recovery if traffic has shown it; without, the real-time protocol's
    /// 2p² − p³ is assumed. What is not a number counts as all lost.
    pub fn measured(one_way: Duration, loss: f64, residual: Option<f64>) -> LinkCost {
        let share = |x: f64| if x.is_nan() { u16::MAX } else { (x * 65_535.0 + 0.5) as u16 };
        let loss = share(loss);
        let residual = residual.map_or_else(|| residual_of(loss), share);
        let latency = u16::try_from(tenths(one_way + UNIT / 2)).unwrap_or(u16::MAX);
        LinkCost { latency, loss, residual, penalty: 0 }.as_sent()
    }

    /// The same if of what it does not lose by itself such a share, 0 to 1, is
    /// expected to be lost, for good, in outages to come.
    pub fn expected_to_lose(self, share: f64) -> LinkCost {
        let more = (share.clamp(0.0, 1.0) * 65_535.0 + 0.5) as u32;
        let whole = u32::from(u16::MAX);
        let with = |p: u16| (u32::from(p) + (whole - u32::from(p)) * more / whole) as u16;
        let residual = self.residual.min(self.loss);
        LinkCost { loss: with(self.loss), residual: with(residual), ..self }
    }

    /// The same with what the operator adds, at most 6.5 s.
    pub fn with_penalty(self, penalty: Duration) -> LinkCost {
        let penalty = u16::try_from(tenths(penalty)).unwrap_or(u16::MAX);
        LinkCost { penalty, ..self }
    }

    /// The same at the precision of an update: what everyone else will read,
    /// and so what the sender must compute with, too.
    pub fn as_sent(self) -> LinkCost {
        LinkCost::received(self.latency, self.loss, self.residual_step(), self.penalty)
    }

    /// The residual loss as a share of the loss: one byte, at most 0.2 % of the
    /// loss off.
    pub(crate) fn residual_step(&self) -> u8 {
        let (p, r) = (u32::from(self.loss), u32::from(self.residual.min(self.loss)));
        (r * RESIDUAL_STEPS + p / 2).checked_div(p).unwrap_or(0) as u8
    }

    pub(crate) fn received(latency: u16, loss: u16, step: u8, penalty: u16) -> LinkCost {
        let r = (u32::from(step) * u32::from(loss) + RESIDUAL_STEPS / 2) / RESIDUAL_STEPS;
        LinkCost { latency, loss, residual: r as u16, penalty }
    }
}

/// What the real-time protocol leaves of loss `p` in both directions: 2p² − p³,
/// both shares of 65,535. Unlike the paper's 2p² − 3p³ it grows with p.
pub fn residual_of(p: u16) -> u16 {
    let p = u64::from(p);
    ((2 * p * p * WHOLE - p * p * p) / (WHOLE * WHOLE)) as u16
}

/// In the unit of delays on the wire, rounded down.
pub(crate) fn tenths(d: Duration) -> u64 {
    u64::try_from(d.as_nanos() / UNIT.as_nanos()).unwrap_or(u64::MAX)
}
