//! Trad, Ni, Afifi: *Adaptive VoIP Transmission over Heterogeneous Wired/Wireless Networks*, 2004.
//!
//! Calls from a gateway at an 802.11e access point to its stations, with a codec that follows the
//! round trip, compared with the same calls over TFRC, and with background traffic of a lower
//! priority.

mod bed;
mod figures;
mod grid;
mod heard;
mod own;
mod table1;

use crate::claim::{Bound, Claim};
use crate::experiment::Experiment;

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "wifi-adapt";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![grid::experiment(), table1::experiment()];
    all.extend(own::experiments());
    all.push(heard::experiment());
    all
}

/// A claim of the paper that is expected to hold, in milliseconds.
fn claim(
    id: &'static str,
    says: &'static str,
    published: Option<&'static str>,
    bound: Bound,
    sabotage: &'static str,
) -> Claim {
    Claim { unit: "ms", decimals: 3, ..Claim::holding(id, says, published, bound, sabotage) }
}
