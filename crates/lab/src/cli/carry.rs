//! One end of a file transfer in a testbed.

use std::net::SocketAddr;
use std::path::PathBuf;
use trunkline_lab::Error;
use trunkline_lab::reliable_overlay::transfer::{By, Part, carry};

/// Send or receive one file at one host of a testbed
#[derive(clap::Args, Clone, Debug)]
#[command(hide = true)]
pub struct Carry {
    /// Protocol of the transfer
    by: By,
    /// Congestion control of the sending end
    congestion: String,
    /// Port of the receiving end
    port: u16,
    /// File to send, or to write to
    file: PathBuf,
    /// File in which QUIC's receiving end leaves its certificate
    certificate: PathBuf,
    /// Address of the receiving end; without it, this is the receiving end
    #[arg(long)]
    to: Option<SocketAddr>,
}

/// Sends or receives the file. Returns true, as every command without claims to judge.
pub fn run(args: &Carry) -> Result<bool, Error> {
    let Carry { by, congestion, port, file, certificate, to } = args.clone();
    let part = Part { by, congestion, to, port, file, certificate };
    carry(&part).map_err(Error::file(&part.file)).map(|()| true)
}
