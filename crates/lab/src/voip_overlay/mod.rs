//! Amir, Danilov, Goose, Hedqvist, Terzis: *An Overlay Architecture for High
//! Quality VoIP Streams*, CNDS-2005-1.

pub mod control;
pub mod fig12_13;
pub mod fig1_2;
pub mod fig4_5;
pub mod fig4b;
pub mod fig4c;
pub mod fig6_7;
pub mod fig9_10;
pub mod fig9b_10b;
pub mod filter;
pub mod quality;
pub mod speech;

use crate::experiment::{Experiment, Sabotage};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_overlay::link::{self, realtime};

/// Folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "voip-overlay";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        quality::experiment(),
        fig4_5::experiment(),
        fig6_7::experiment(),
        fig4b::experiment(),
        fig4c::experiment(),
        fig9b_10b::experiment(),
        control::experiment(),
        speech::experiment(),
        filter::experiment(),
    ];
    all.extend(fig12_13::experiments());
    all
}

/// Makes the queues of a link small, for overlays that carry no packets but those of the control
/// plane: with the default ones, the 2,000 ends of links between 500 nodes take 18 GB.
pub fn without_packets(link: &mut link::Config) {
    const SMALL: (usize, usize) = (1 << 16, 64);
    (link.realtime.bytes, link.realtime.packets) = SMALL;
    (link.best_effort.bytes, link.best_effort.packets) = SMALL;
    (link.reliable.bytes, link.reliable.packets) = SMALL;
}

/// A link of 10 ms, like all overlay links of the paper.
pub fn ten_ms(loss: Loss) -> LinkModel {
    LinkModel { delay: Duration::from_millis(10), loss, ..LinkModel::default() }
}

/// Legend text of a burstiness: `uniform` or `burstiness 50 %`.
pub fn burst_label(burst: &str) -> String {
    if burst == "uniform" { "uniform".to_owned() } else { format!("burstiness {burst} %") }
}

/// Applies a sabotage that scales with what it breaks: one in ten
/// (`one-request-in-ten-unanswered`), or one in two, of the requests on a link that loses `p` in
/// both directions stays unanswered.
pub fn unanswered(sabotage: Sabotage, config: &mut realtime::Config, p: f64) {
    for (name, answered) in
        [("one-request-in-ten-unanswered", 0.9), ("one-request-in-two-unanswered", 0.5)]
    {
        if sabotage.is(name) {
            config.retransmit_ratio = answered * p * (1.0 - p);
            config.retransmit_burst = 50;
        }
    }
}
