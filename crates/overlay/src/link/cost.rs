//! Cost of a link, as its sending end measures it and all nodes learn it.

use core::time::Duration;

/// One direction of a link, as its sender measures it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkCost {
    /// One-way delay in units of 0.1 ms, up to 6.5 s.
    pub latency: u16,
    /// Share of packets lost, in 65,535ths.
    pub loss: u16,
    /// Share of packets still missing after recovery, in 65,535ths. A value above `loss` counts as
    /// `loss`.
    pub residual: u16,
    /// Penalty that the operator adds to both latencies, in units of 0.1 ms, so that traffic
    /// prefers other routes. It affects route selection only: no packet takes that long.
    pub penalty: u16,
}

/// The share that stands for all packets.
pub(crate) const WHOLE: u64 = u16::MAX as u64;
/// Number of steps of the residual loss on the wire, relative to the loss.
const RESIDUAL_STEPS: u32 = u8::MAX as u32;
pub(crate) const UNIT: Duration = Duration::from_micros(100);

impl LinkCost {
    /// Builds a cost from measurements: one-way delay, loss from 0 to 1, and the loss after
    /// recovery if traffic has shown it. Without that, the real-time protocol's 2p² − p³ is
    /// assumed. NaN counts as total loss.
    pub fn measured(one_way: Duration, loss: f64, residual: Option<f64>) -> LinkCost {
        let share = |x: f64| if x.is_nan() { u16::MAX } else { (x * 65_535.0 + 0.5) as u16 };
        let loss = share(loss);
        let residual = residual.map_or_else(|| residual_of(loss), share);
        let latency = u16::try_from(tenths(one_way + UNIT / 2)).unwrap_or(u16::MAX);
        LinkCost { latency, loss, residual, penalty: 0 }.as_sent()
    }

    /// Adds loss expected from future outages: `share`, 0 to 1, of the packets that the link does
    /// not lose already. Recovery restores none of them.
    pub fn expected_to_lose(self, share: f64) -> LinkCost {
        let more = (share.clamp(0.0, 1.0) * 65_535.0 + 0.5) as u32;
        let whole = u32::from(u16::MAX);
        let with = |p: u16| (u32::from(p) + (whole - u32::from(p)) * more / whole) as u16;
        let residual = self.residual.min(self.loss);
        LinkCost { loss: with(self.loss), residual: with(residual), ..self }
    }

    /// Sets the penalty that the operator adds, at most 6.5 s.
    pub fn with_penalty(self, penalty: Duration) -> LinkCost {
        let penalty = u16::try_from(tenths(penalty)).unwrap_or(u16::MAX);
        LinkCost { penalty, ..self }
    }

    /// Rounds the cost to the precision of an update: other nodes read these values, so the sender
    /// must compute with them, too.
    pub fn as_sent(self) -> LinkCost {
        LinkCost::received(self.latency, self.loss, self.residual_step(), self.penalty)
    }

    /// Residual loss as a share of the loss, in one byte; the rounding error is at most 0.2 % of
    /// the loss.
    pub(crate) fn residual_step(&self) -> u8 {
        let (p, r) = (u32::from(self.loss), u32::from(self.residual.min(self.loss)));
        (r * RESIDUAL_STEPS + p / 2).checked_div(p).unwrap_or(0) as u8
    }

    pub(crate) fn received(latency: u16, loss: u16, step: u8, penalty: u16) -> LinkCost {
        let r = (u32::from(step) * u32::from(loss) + RESIDUAL_STEPS / 2) / RESIDUAL_STEPS;
        LinkCost { latency, loss, residual: r as u16, penalty }
    }
}

/// Residual loss that the real-time protocol leaves at loss `p` in both directions: 2p² − p³, both
/// shares in 65,535ths. Unlike the paper's 2p² − 3p³ it grows with p.
pub fn residual_of(p: u16) -> u16 {
    let p = u64::from(p);
    ((2 * p * p * WHOLE - p * p * p) / (WHOLE * WHOLE)) as u16
}

/// Converts a delay to units of 0.1 ms, as on the wire, rounded down.
pub(crate) fn tenths(d: Duration) -> u64 {
    u64::try_from(d.as_nanos() / UNIT.as_nanos()).unwrap_or(u64::MAX)
}
