//! Trad, Ni, Afifi: *Adaptive VoIP Transmission over Heterogeneous Wired/Wireless Networks*, 2004.
//!
//! Calls from a gateway at an 802.11e access point to its stations, with a codec that follows the
//! round trip, compared with the same calls over TFRC, and with background traffic of a lower
//! priority.

mod figures;
mod grid;
mod heard;
mod own;
mod table1;
mod topology;

use crate::claim::{Bound, Claim};
use crate::experiment::Experiment;
use crate::papers::Reading;

pub use grid::RATES;

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "wifi-adapt";

/// The declared reading, with the sections that ask for it, and what rests on the paper's figures
/// instead.
pub const DECLARED: &str = "calls contend with user priority 6 and other traffic with 1 (section 5: \
                            \"EDCF VoIP flow priority\"; polls are what an access point \"may\" do, \
                            section 4.1), with the parameters of drafts, which is what \"EDCF\" \
                            was called in; other traffic is a flow to each station from the \
                            beginning (section 5 has a flow for each station). The text gives no \
                            rate for it: 4 Mbit/s was fitted to the figures, whose curves bend \
                            where such a cell is full, and docs/wifi-adapt.md has the verdicts at \
                            other rates; BaseRTT is the gateway's \
                            (section 4.2); TFRC carries the 50 packets a second of a G.711 call \
                            (section 5: packets of 200 bytes; and, from the figures, figure 6 \
                            ends at 20 KB/s); \
                            bandwidth includes headers, as \"total packet size\" in table 1 and \
                            TFRC's 200 bytes do; variation is that of the sending rate over time";

/// The set-ups besides the declared one that the text allows.
pub const READINGS: &[Reading] = &[
    Reading { name: "2005", differs: "contention with the parameters of IEEE 802.11e-2005" },
    Reading { name: "greedy", differs: "TFRC sends as many packets as it allows" },
    Reading {
        name: "greedy-2005",
        differs: "contention with the parameters of IEEE 802.11e-2005, and TFRC sends as many \
                  packets as it allows",
    },
    Reading {
        name: "30-in-all",
        differs: "other traffic is 30 Mbit/s in all, whatever the number of stations",
    },
    Reading {
        name: "later",
        differs: "other traffic begins when a twentieth of the calls has passed, 1 s of 20",
    },
    Reading { name: "polled-20", differs: "the hybrid coordinator serves calls every 17.07 ms" },
    Reading { name: "polled-15", differs: "the hybrid coordinator serves calls every 14.63 ms" },
    Reading { name: "polled-10", differs: "the hybrid coordinator serves calls every 9.31 ms" },
    Reading { name: "polled-7", differs: "the hybrid coordinator serves calls every 6.83 ms" },
    Reading { name: "polled-5", differs: "the hybrid coordinator serves calls every 4.88 ms" },
    Reading { name: "payload", differs: "bandwidth without the headers of IP, UDP and RTP" },
    Reading {
        name: "by-stations",
        differs: "variation is that of the mean bandwidth over the numbers of stations",
    },
    Reading {
        name: "no-control",
        differs: "quality is compared with that of G.711 throughout, without TFRC",
    },
];

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
