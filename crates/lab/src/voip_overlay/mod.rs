//! Amir, Danilov, Goose, Hedqvist, Terzis: *An Overlay Architecture for High
//! Quality VoIP Streams*, CNDS-2005-1.

pub mod fig1_2;
pub mod fig4_5;
pub mod fig4b;
pub mod fig6_7;
pub mod fig9_10;
pub mod fig9b_10b;
pub mod filter;
pub mod quality;
pub mod speech;

use crate::experiment::Experiment;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};

/// The paper's folder.
pub const PAPER: &str = "voip-overlay";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    vec![
        quality::experiment(),
        fig4_5::experiment(),
        fig6_7::experiment(),
        fig4b::experiment(),
        fig9b_10b::experiment(),
        speech::experiment(),
        filter::experiment(),
    ]
}

/// A link of 10 ms, as all overlay links of the paper.
pub fn ten_ms(loss: Loss) -> LinkModel {
    LinkModel { delay: Duration::from_millis(10), loss, ..LinkModel::default() }
}

/// `uniform` or `burstiness 50 %`, for legends.
pub fn burst_label(burst: &str) -> String {
    if burst == "uniform" { "uniform".to_owned() } else { format!("burstiness {burst} %") }
}
