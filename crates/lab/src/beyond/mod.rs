//! Figures that no paper has: the behaviour of an overlay when its network fails, which quantifies
//! what Amir, Danilov, Goose, Hedqvist, Terzis: *An Overlay Architecture for High Quality VoIP
//! Streams* (CNDS-2005-1) only mention; the simulator compared with real daemons and the kernel's
//! TCP; and an isolated 802.11e cell.

pub mod agreement;
mod calls;
pub mod convergence;
pub mod coverage;
pub mod detection;
pub mod edca;
pub mod failover;
pub mod flap;
pub mod heal;
mod means;
mod overlay;
pub mod steady;
pub mod tcp_model;
pub mod tfmc;
pub mod tfrc_steady;
pub mod trunk_live;
pub mod trunk_tcp;

use crate::experiment::Experiment;

/// The folder of figures that no paper has, in command lines and results.
pub const PAPER: &str = "beyond";

/// Every experiment behind figures that no paper has.
pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        agreement::experiment(),
        convergence::experiment(),
        coverage::experiment(),
        detection::experiment(),
        failover::experiment(),
        flap::experiment(),
        heal::experiment(),
        steady::experiment(),
        tcp_model::experiment(),
        tfrc_steady::experiment(),
        trunk_live::experiment(),
        trunk_tcp::experiment(),
    ];
    all.extend(edca::experiments());
    all.extend(tfmc::experiments());
    all
}
