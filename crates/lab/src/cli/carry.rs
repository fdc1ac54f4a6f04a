//! One end of a file that a testbed sends.

use std::net::SocketAddr;
use std::path::PathBuf;
use trunkline_lab::Error;
use trunkline_lab::reliable_overlay::transfer::{By, Part, carry};

/// Send or receive one file at one host of a testbed
#[derive(clap::Args, Clone, Debug)]
#[command(hide = true)]
pub struct Carry {
    /// By what it goes
    by: By,
    /// The congestion control
    congestion: String,
    /// The port of the receiving end
    port: u16,
    /// What is sent, or where what comes is written
    file: PathBuf,
    /// Where the receiving end of QUIC leaves its certificate
    certificate: PathBuf,
    /// Where the receiving end is; without it this is the one
    #[arg(long)]
    to: Option<SocketAddr>,
}

/// Sends or receives the file; true, as every command that has no claims to judge.
pub fn run(args: &Carry) -> Result<bool, Error> {
    let Carry { by, congestion, port, file, certificate, to } = args.clone();
    let part = Part { by, congestion, to, port, file, certificate };
    carry(&part).map_err(Error::file(&part.file)).map(|()| true)
}
