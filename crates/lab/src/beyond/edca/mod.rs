//! An isolated 802.11e cell: the throughput of stations that always have a packet to send, compared
//! with Bianchi's model; and the delay of voice at an access point that has more background traffic
//! than the cell carries, as in Trad, Ni, Afifi: *Adaptive VoIP Transmission over Heterogeneous
//! Wired/Wireless Networks* (2004), without their adaptation.

mod bianchi;
mod downlink;
mod saturation;

use crate::claim::{Bound, Claim};
use crate::experiment::Experiment;

/// Reason for bounds that no paper gives.
const BEFORE: &str = "set before the first measurement";

/// Bytes of a background packet including the IP header (section 5 of the paper).
const BACKGROUND_BYTES: u32 = 1_500;

/// Every experiment on the isolated cell.
pub fn experiments() -> Vec<Experiment> {
    vec![downlink::experiment(), saturation::experiment()]
}

/// A claim of this project that is expected to hold; its `measure` is still to be set.
fn claim(id: &'static str, says: &'static str, bound: Bound, sabotage: &'static str) -> Claim {
    Claim::holding(id, says, None, bound, sabotage)
}
