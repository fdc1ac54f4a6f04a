//! Balan, Eggert, Niccolini, Brunner: *An Experimental Evaluation of Voice Quality over the
//! Datagram Congestion Control Protocol*, INFOCOM 2007.
//!
//! One direction of a call over UDP, TCP and variants of TFRC: its quality for a listener with the
//! best possible playout, by the reduced E-model.

mod call;
mod charts;
mod excerpt;
mod grid;
mod lossy;
mod modified;
mod tables;
mod transport;
mod unmodified;

use crate::experiment::Experiment;

pub use call::Codec;
pub use grid::FIXED;

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "dccp-voice";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    let mut all = grid::experiments();
    all.push(excerpt::experiment());
    all.extend(tables::experiments());
    all
}
