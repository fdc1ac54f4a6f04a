//! The programs that a testbed runs on its hosts.

use std::path::PathBuf;
use trunkline_lab::Error;
use trunkline_lab::scenario::testbed;

/// Send and receive a scenario's plain calls and streams at one host of a testbed
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub struct PlainFlows {
    /// File with the instructions that the lab wrote for this host
    file: PathBuf,
    /// Keep running until standard input is closed, as the processes of a testbed do
    #[arg(long, required = true)]
    until_stdin_closes: bool,
}

/// Runs the flows and prints their results.
pub fn run(args: &PlainFlows) -> Result<bool, Error> {
    let report = testbed::agent(&args.file)
        .map_err(|why| Error::Testbed { what: args.file.display().to_string(), why })?;
    outln!("{}", serde_json::to_string(&report).expect("plain values are JSON"));
    Ok(true)
}
