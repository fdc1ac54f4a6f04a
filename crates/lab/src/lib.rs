//! Reproduces the papers' figures, with one command each: the daemon's nodes in a simulated
//! network, measured, drawn, and compared with the papers' statements.
//!
//! An [`experiment::Experiment`] is a set of independent points, each of which yields some rows of
//! a table; figures are drawn from the table, and claims are judged from it and nothing else. The
//! same seed gives the same files, byte for byte, however many processors or machines shared the
//! work.
//!
//! ```
//! use trunkline_lab::experiment::{Sabotage, Size};
//! use trunkline_lab::{papers, run};
//!
//! let papers = papers();
//! let (experiment, figure) = papers.find("voip-overlay/fig4")?;
//! let points = (experiment.points)(Size::Tiny, Sabotage::NONE);
//! let table = run::table(experiment, &points, 1, None)?;
//! let svg = trunkline_lab::plot::panels_svg(&(figure.chart)(&table));
//! assert!(svg.starts_with("<svg"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod beyond;
pub mod chain;
pub mod check;
pub mod claim;
pub mod dccp_voice;
pub mod error;
pub mod experiment;
pub mod output;
mod papers;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real telephones need real time, files and sockets"
)]
pub mod phones;
pub mod plan;
pub mod plot;
pub mod reliable_overlay;
pub mod report;
pub mod results;
pub mod run;
pub mod sabotages;
pub mod scenario;
pub mod score;
pub mod speech;
pub mod store;
pub mod table;
pub mod testbed;
pub mod tfmc;
pub mod voip_overlay;
pub mod wifi_adapt;

pub use error::Error;
pub use papers::{PAPERS, Paper, Papers, Reading, papers};
