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
mod saving;

use crate::experiment::Experiment;
use crate::table::Cell;
use trunkline_base::stats::Mean;

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
