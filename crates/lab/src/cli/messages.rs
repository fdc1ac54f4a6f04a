//! One end of a TCP whose messages a testbed measures.

use std::net::SocketAddr;
use std::path::Path;
use trunkline_lab::Error;
use trunkline_lab::reliable_overlay::messages::{Due, Part, over_tcp};

/// Send messages at equal distances over a TCP, or tell how long each took to come
#[derive(clap::Args, Clone, Debug)]
#[command(hide = true)]
pub struct Messages {
    /// The kernel's congestion control
    congestion: String,
    /// The port of the receiving end
    port: u16,
    /// When the first is due, in nanoseconds of the monotonic clock
    begin_ns: u64,
    /// The time between two, in nanoseconds
    spacing_ns: u64,
    /// How many there are
    count: u64,
    /// Where the receiving end is; without it this is the one
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
