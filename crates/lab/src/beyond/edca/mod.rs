//! An 802.11e cell by itself: what stations carry that always have a packet to send, beside
//! Bianchi's model; and how long voice waits at an access point that has more background than
//! the cell carries, as in Trad, Ni, Afifi: *Adaptive VoIP Transmission over Heterogeneous
//! Wired/Wireless Networks* (2004), without their adaptation.

mod bianchi;
mod downlink;
mod saturation;

use crate::claim::{Bound, Claim};
use crate::experiment::Experiment;

/// Why bounds are what they are: no paper gives one.
const BEFORE: &str = "set before anything was measured";

/// A background packet with IP's header, bytes (section 5 of the paper).
const BACKGROUND_BYTES: u32 = 1_500;

/// Every experiment on the cell by itself.
pub fn experiments() -> Vec<Experiment> {
    vec![downlink::experiment(), saturation::experiment()]
}

/// A claim of our own that is expected to hold, but for its measure.
fn claim(id: &'static str, says: &'static str, bound: Bound, sabotage: &'static str) -> Claim {
    Claim::holding(id, says, None, bound, sabotage)
}
