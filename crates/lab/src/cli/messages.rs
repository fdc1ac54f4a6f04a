//! One end of a TCP connection whose messages a testbed measures.

use std::net::SocketAddr;
use std::path::Path;
use trunkline_lab::Error;
use trunkline_lab::reliable_overlay::messages::{Due, Part, over_tcp};

/// Send messages at regular intervals over a TCP connection, or print the delay of each
#[derive(clap::Args, Clone, Debug)]
#[command(hide = true)]
pub struct Messages {
    /// Congestion control of the kernel
    congestion: String,
    /// Port of the receiving end
    port: u16,
    /// Time at which the first message is due, in nanoseconds of the monotonic clock
    begin_ns: u64,
    /// Interval between two messages, in nanoseconds
    spacing_ns: u64,
    /// Number of messages to send or receive
    count: u64,
    /// Address of the receiving end; without it, this is the receiving end
    #[arg(long)]
    to: Option<SocketAddr>,
}

/// Sends, or receives and prints the delay of each message in nanoseconds, as JSON.
pub fn run(args: &Messages) -> Result<bool, Error> {
    let Messages { congestion, port, begin_ns, spacing_ns, count, to } = args.clone();
    let due = Due { begin_ns, spacing_ns, count };
    let delays = over_tcp(&Part { congestion, to, port, due });
    let delays = delays.map_err(Error::file(Path::new("a TCP connection")))?;
    if to.is_none() {
        outln!("{}", serde_json::json!(delays));
    }
    Ok(true)
}
