//! A network of one's own: hosts, links and calls from a file, without any Rust.

mod file;
mod simulate;
mod units;

pub use file::{Call, Host, Link, Mistake, Scenario, load, parse};
pub use simulate::{COLUMNS, simulate};
