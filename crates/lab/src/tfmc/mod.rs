//! Trad, Afifi: *Adaptive Multiplexing Scheme for Voice Flow Transmission Across Best-Effort IP
//! Networks*, INRIA RR-4929, 2003.
//!
//! Two hundred calls between two gateways that share a link with a TCP: with a datagram for each
//! packet, and with as many packets in a datagram as TFMC chooses.

mod codecs;
mod competition;
mod figures;
pub mod live;
pub mod network;
pub mod readings;
mod saving;
mod sentences;
mod verdicts;

use crate::experiment::Experiment;
use crate::table::Cell;
use trunkline_base::stats::{Mean, quantile, quantile_interval};

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "tfmc";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    vec![codecs::experiment(), saving::experiment(), competition::experiment()]
}

/// Mean of `of` over all runs, and both ends of its 95 % interval.
pub fn mean_cells<T>(runs: &[T], of: impl Fn(&T) -> f64) -> [Cell; 3] {
    let Mean { estimate, interval } = Mean::of(&runs.iter().map(of).collect::<Vec<_>>());
    [estimate, interval.0, interval.1].map(Cell::from)
}

/// Median of the values that are not NaN, and both ends of its 95 % interval by their ranks; from
/// six values on. Values may fall in two groups: the interval then has both, where neither is rare,
/// and never a value beyond them.
pub fn median_cells(values: impl Iterator<Item = f64>) -> [Cell; 3] {
    let mut sorted: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    // The mean of the two in the middle of an even number.
    let from_above: Vec<f64> = sorted.iter().rev().copied().collect();
    let median = quantile(&sorted, 0.5).zip(quantile(&from_above, 0.5));
    let median = median.map_or(f64::NAN, |(low, high)| f64::midpoint(low, high));
    let (low, high) = quantile_interval(&sorted, 0.5).unwrap_or((f64::NAN, f64::NAN));
    [median, low, high].map(Cell::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of runs in two groups lies between them, where no run is, and its interval by
    /// Student's t ends beyond the largest.
    #[test]
    fn an_interval_of_two_groups_has_both_and_nothing_beyond() {
        let runs = [1.0, 6.3, 6.2, 6.3, 6.1, 1.1];
        let [median, low, high] = median_cells(runs.into_iter());
        assert_eq!([median, low, high], [6.15, 1.0, 6.3].map(Cell::from));
        let Mean { estimate, interval } = Mean::of(&runs);
        assert!((2.0..6.0).contains(&estimate) && interval.1 > 6.3, "{estimate} {interval:?}");
        let [median, low, high] = median_cells([f64::NAN, 3.0, 1.0, 2.0].into_iter());
        assert_eq!([median, low, high], [2.0, 1.0, 3.0].map(Cell::from));
        let none = median_cells([f64::NAN].into_iter());
        assert!(none.iter().all(|cell| matches!(cell, Cell::Number(n) if n.is_nan())));
    }
}
