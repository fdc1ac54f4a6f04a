//! Packets that arrive in time over a row of links, in closed form (§IV-A): each link spreads
//! arrivals over three steps.

use crate::chain::{DEADLINE, PACKET};
use crate::voip_overlay::fig4_5::{exact_residual, paper_residual};

/// A link with the same properties in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The indices of the two nodes that it joins.
    pub ends: (usize, usize),
    /// One-way delay, in nanoseconds.
    pub delay: u64,
    /// Share of packets lost in each direction, independently of each other.
    pub loss: f64,
}

/// Arrivals over a link with loss p: 1 − p arrive after T, recovered packets after 3T + Δ, and the
/// rest never.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Share that is not recovered, as a function of p.
    pub residual: fn(f64) -> f64,
    /// Δ: time from a loss to the packet that reveals it, in nanoseconds.
    pub detection: u64,
    /// Latest useful arrival after sending, in nanoseconds.
    pub deadline: u64,
}

/// Interval between two packets of ten calls, as the paper assumes (§IV-B).
pub const DETECTION_NS: u64 = PACKET.as_nanos() as u64 / 10;

impl Law {
    /// The paper's law, with its 2p² − 3p³.
    pub const PAPER: Law = Law {
        residual: paper_residual,
        detection: DETECTION_NS,
        deadline: DEADLINE.as_nanos() as u64,
    };
    /// The law with 2p² − p³, which is exact for one link.
    pub const EXACT: Law = Law { residual: exact_residual, ..Law::PAPER };
}

/// Arrival times of packets at a node: delays after sending (ns), each with the share of all
/// packets that has just this delay, without those that are too late.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals(Vec<(u64, f64)>);

impl Arrivals {
    /// The distribution at the source: all packets at once, without delay.
    pub fn at_source() -> Arrivals {
        Arrivals(vec![(0, 1.0)])
    }

    /// These arrivals after one more link.
    pub fn over(&self, link: &Link, law: &Law) -> Arrivals {
        let p = link.loss;
        let recovered = 3 * link.delay + law.detection;
        let steps = [(link.delay, 1.0 - p), (recovered, p - (law.residual)(p))];
        let steps = steps.iter().filter(|step| step.1 > 0.0);
        let each = steps.flat_map(|&(delay, share)| {
            self.0.iter().map(move |&(at, before)| (at + delay, before * share))
        });
        Arrivals(each.filter(|arrival| arrival.0 <= law.deadline).collect())
    }

    /// Share that has arrived after `limit` nanoseconds.
    pub fn within(&self, limit: u64) -> f64 {
        self.0.iter().filter(|a| a.0 <= limit).map(|a| a.1).sum()
    }

    /// Time of the first arrival, in nanoseconds; the maximum if none is in time.
    pub fn first(&self) -> u64 {
        self.0.iter().map(|a| a.0).min().unwrap_or(u64::MAX)
    }

    /// Share that is in time so far.
    pub fn delivered(&self) -> f64 {
        self.within(u64::MAX)
    }
}

/// Share of packets that arrive in time over these links.
pub fn delivered<'a>(links: impl IntoIterator<Item = &'a Link>, law: &Law) -> f64 {
    let all = links.into_iter().fold(Arrivals::at_source(), |a, link| a.over(link, law));
    all.delivered()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ms: u64, loss: f64) -> Link {
        Link { ends: (0, 1), delay: ms * 1_000_000, loss }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn a_link_has_three_steps() {
        let (p, law) = (0.05, Law::PAPER);
        let r = 2.0 * p * p - 3.0 * p * p * p;
        // 3 · 32 ms + 2 ms is in time, 3 · 33 ms + 2 ms is not.
        assert!(close(delivered(&[link(32, p)], &law), 1.0 - r));
        assert!(close(delivered(&[link(33, p)], &law), 1.0 - p));
        assert!(close(delivered(&[link(100, 0.0)], &law), 1.0));
        assert!(close(delivered(&[link(101, 0.0)], &law), 0.0));
        let exact = 2.0 * p * p - p * p * p;
        assert!(close(delivered(&[link(32, p)], &Law::EXACT), 1.0 - exact));
    }

    #[test]
    fn two_links_combine() {
        let (p, law) = (0.04, Law::EXACT);
        let back = p - (2.0 * p * p - p * p * p);
        // 40 ms without a recovery; 82 ms with one; 124 ms with both.
        let once = (1.0 - p) * (1.0 - p) + 2.0 * (1.0 - p) * back;
        assert!(close(delivered(&[link(20, p), link(20, p)], &law), once));
        // 20 ms with no packet recovered; 42 ms with one; 64 ms with both.
        let twice = once + back * back;
        assert!(close(delivered(&[link(10, p), link(10, p)], &law), twice));
        // The order of the links makes no difference.
        let (a, b, c) = (link(17, 0.01), link(9, 0.05), link(30, 0.03));
        assert!(close(delivered(&[a, b, c], &law), delivered(&[c, a, b], &law)));
    }
}
