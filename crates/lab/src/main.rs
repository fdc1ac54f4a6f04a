//! `trunkline-lab`: see the library's documentation, and `--help`.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see `out`")]

// The other binary's file, so that there is one implementation of printing.
#[macro_use]
#[path = "../../trunkline/src/out.rs"]
mod out;

mod cli;
mod progress;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(&cli::Args::parse())
}
