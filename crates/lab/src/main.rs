//! `trunkline-lab`: see the library's documentation, and `--help`.

mod cli;
mod progress;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(&cli::Args::parse())
}
