//! Balan, Eggert, Niccolini, Brunner: *An Experimental Evaluation of Voice Quality over the
//! Datagram Congestion Control Protocol*, INFOCOM 2007.
//!
//! One direction of a call over UDP, TCP and variants of TFRC: its quality for a listener with the
//! best possible playout, by the reduced E-model.

mod call;
mod charts;
mod excerpt;
mod fig1_2;
mod fig5_7;
mod grid;
mod lossy;
mod tables;
mod transport;

use crate::experiment::Experiment;
use crate::papers::Reading;

pub use call::Codec;
pub use grid::FIXED;

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "dccp-voice";

/// The declared reading of the paper's own variant.
pub const DECLARED: &str = "SP+FR+MD has a minimum of eight packets per round trip, whatever their \
                            size (section V: \"it maintains a minimum send rate of eight packets \
                            per RTT\")";

/// Name of the reading in which that minimum is a segment.
const SEGMENT_FLOOR: &str = "one-segment";

/// The other readings of the paper's sentences.
pub const READINGS: &[Reading] = &[Reading {
    name: SEGMENT_FLOOR,
    differs: "The minimum is one segment of 1,460 bytes per round trip.",
}];

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    let mut all = grid::experiments();
    all.push(excerpt::experiment());
    all.extend(tables::experiments());
    all
}
