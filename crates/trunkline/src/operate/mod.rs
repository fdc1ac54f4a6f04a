//! `trunkline status`, `links`, `routes`, `flows`, `streams`, `ping`, `trace`, `top`, `reload` and
//! `drain`: an operator's commands for a running node, over its control socket.

mod calls;
mod client;
mod drain;
mod echo;
mod flows;
pub mod protocol;
pub mod server;
mod show;
mod streams;
mod table;
mod top;

pub use calls::calls;
pub use client::Error;
pub use drain::{drain, reload};
pub use echo::{ping, trace};
pub use flows::flows;
pub use show::{links, routes, status};
pub use streams::streams;
pub use table::{count, span};
pub use top::top;

use clap::builder::{OsStringValueParser, RangedU64ValueParser, TypedValueParser};
use client::Client;
use protocol::{DEFAULT_HOPS, DEFAULT_SIZE, MAX_TIMEOUT_MS};
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use crate::names;
use crate::units::{ParseError, Span};
use trunkline_overlay::wire::{Metric, Service};

/// Node to connect to, and output format.
#[derive(clap::Args, Debug)]
pub struct At {
    /// The node's control socket: `control` in its `[node]` section
    #[arg(
        long,
        value_name = "PATH",
        env = "TRUNKLINE_CONTROL",
        default_value = "/run/trunkline/control",
        value_parser = OsStringValueParser::new().try_map(control)
    )]
    control: PathBuf,
}

fn control(path: OsString) -> Result<PathBuf, &'static str> {
    match path.is_empty() {
        true => Err("it is empty: give a path, in TRUNKLINE_CONTROL too, or unset that"),
        false => Ok(path.into()),
    }
}

impl At {
    fn connect(&self) -> Result<Client, Error> {
        Client::connect(&self.control)
    }
}

/// Show the state of a running node
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline status --control /run/trunkline/a.ctl
  export TRUNKLINE_CONTROL=/run/trunkline/a.ctl
  trunkline status --json | jq .drops

Exit code 1: no node answers there.")]
pub struct StatusArgs {
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Show the links of a running node
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline links
  trunkline links --json | jq '.[] | select(.up | not) | .neighbour'

\"In\" is from the neighbour, \"out\" towards it. – marks values that the node lacks
yet. \"Burst\" is the mean number of packets lost in a row.
Exit code 1: no node answers there.")]
pub struct LinksArgs {
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Show where a running node sends packets
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline routes
  trunkline routes --metric hops
  trunkline routes --json | jq '.[] | {destination, next_hop}'

The cost is that of the whole path: milliseconds by expected latency and by latency, the
share of packets lost by loss, links by hops. \"Onward\" is the latency from the next hop to the destination.
Exit code 1: no node answers there.")]
pub struct RoutesArgs {
    #[command(flatten)]
    at: At,
    /// Metric that the routes are computed for; each packet's origin chooses one
    #[arg(long, default_value_t, value_parser = names::parser::<Metric>())]
    metric: Metric,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Show the flows that begin or end at a running node
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline flows
  trunkline flows 5                  # only those with node 5
  trunkline flows --worst --limit 10
  trunkline flows --json | jq '.[] | select(.last_10s.mos < 3.6) | [.peer, .port]'

\"In\" ends here, \"out\" begins here. – marks values that the node lacks: only a flow's
destination knows how good it is, and the delay only where a route leads back. R and
MOS are as if it were G.711 with concealment in packets of 20 ms, played out at the
deadline. docs/operation.md says what each number means.
Exit code 1: no node answers there.")]
pub struct FlowsArgs {
    /// Only flows from and to this node
    #[arg(value_name = "NODE", value_parser = node)]
    peer: Option<u32>,
    /// Sort by the MOS of the last 10 s, lowest first, instead of by nodes and ports
    #[arg(long)]
    worst: bool,
    /// Maximum number of flows to show
    #[arg(long, short = 'n', value_name = "N", value_parser = limit)]
    limit: Option<usize>,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Parses the node id given as an argument.
fn node(text: &str) -> Result<u32, String> {
    let id = text.parse::<NonZero<u32>>().map(NonZero::get);
    id.map_err(|_| "give the number of a node: `trunkline routes` lists them".into())
}

/// Parses a maximum number of lines.
fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse::<NonZero<usize>>().map(NonZero::get);
    limit.map_err(|_| "give a number from 1 on".into())
}

/// Show the streams that end at a running node
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline streams
  trunkline streams 5                # only those with node 5
  trunkline streams --json | jq '.[] | select(.unread > 0) | [.application, .unread]'

Sizes are in bytes. \"Window\" is the congestion window; \"unacknowledged\" was written here
and is not acknowledged; \"unread\" was received, and the application here has not read it;
\"retransmitted\" counts packets that this end sent again; links' own are not included.
docs/operation.md explains the other columns.
Exit code 1: no node answers there.")]
pub struct StreamsArgs {
    /// Only streams with this node
    #[arg(value_name = "NODE", value_parser = node)]
    peer: Option<u32>,
    /// Maximum number of streams to show
    #[arg(long, short = 'n', value_name = "N", value_parser = limit)]
    limit: Option<usize>,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Show the calls of a running node that is a SIP gateway
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline calls
  trunkline calls --live --limit 20
  trunkline calls --json | jq '.[] | select(.state == \"up\") | [.from, .to, .overlay]'
  trunkline calls hangup 3848276298220188511@192.0.2.11

Each line of a call counts packets from one end to the gateway: from its phone by UDP,
from the other gateway by the overlay. Calls that have ended are shown for a while;
`records` in [sip] keeps a line of each. docs/gateway.md explains each number.
Exit code 1: no node answers there, or it is no gateway.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct CallsArgs {
    #[command(subcommand)]
    command: Option<CallsCommand>,
    /// Leave out calls that have ended
    #[arg(long)]
    live: bool,
    /// Maximum number of calls to show
    #[arg(long, short = 'n', value_name = "N", value_parser = limit)]
    limit: Option<usize>,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum CallsCommand {
    Hangup(HangupArgs),
}

/// End calls, and tell both of their ends
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline calls hangup 3848276298220188511@192.0.2.11
  trunkline calls hangup --all

The Call-ID of a call is in `trunkline calls --json`, as `call`. A call that still rings is
cancelled.
Exit code 1: there is no such call, no node answers there, or it is no gateway.")]
#[command(group(clap::ArgGroup::new("which").required(true).args(["call", "all"])))]
struct HangupArgs {
    /// Call-ID of the call
    #[arg(value_name = "CALL-ID")]
    call: Option<String>,
    /// End all calls, whether they ring or are up
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Measure the round-trip time to another node of the overlay
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline ping 4
  trunkline ping 4 --service real-time --size 172 --count 100 --interval 20ms

Exit code 1: no answer came.")]
pub struct PingArgs {
    /// Node id of the target
    #[arg(value_name = "NODE", value_parser = node)]
    to: u32,
    /// Number of packets to send
    #[arg(long, short, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Interval between packets, if the answer has arrived by then
    #[arg(long, short, default_value = "200ms")]
    interval: Span,
    #[command(flatten)]
    packet: Packet,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON at the end
    #[arg(long)]
    json: bool,
}

/// Show the nodes on the path to another node, and their distances
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline trace 4
  trunkline trace 4 --json | jq '.hops[].from'

A hop that does not answer is shown as *; it may have reached its rate limit.
Exit code 1: the node was not reached.")]
pub struct TraceArgs {
    /// Node id of the target
    #[arg(value_name = "NODE", value_parser = node)]
    to: u32,
    /// Number of packets for each hop
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=10))]
    probes: u8,
    /// Maximum number of links to cross
    #[arg(long, default_value_t = DEFAULT_HOPS, value_parser = clap::value_parser!(u8).range(1..=i64::from(DEFAULT_HOPS)))]
    max_hops: u8,
    #[command(flatten)]
    packet: Packet,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON at the end
    #[arg(long)]
    json: bool,
}

/// Properties of an echo packet.
#[derive(clap::Args, Debug)]
struct Packet {
    /// Service that carries the packets
    #[arg(long, default_value_t = Service::BestEffort, value_parser = names::parser::<Service>())]
    service: Service,
    /// Size of each packet, 10 to 1400 bytes
    #[arg(long, default_value_t = DEFAULT_SIZE, value_parser = RangedU64ValueParser::<usize>::new().range(10..=1400))]
    size: usize,
    /// Time to wait for each answer, at most 10 s
    #[arg(long, default_value = "1s", value_parser = patience)]
    timeout: Span,
}

fn patience(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|e: ParseError| e.to_string())?;
    let range = 1..=u128::from(MAX_TIMEOUT_MS);
    range.contains(&span.0.as_millis()).then_some(span).ok_or("give 1 ms to 10 s".into())
}

/// Watch a running node live
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline top --control /run/trunkline/a.ctl

Keys: q quits, s sorts by the next column, r reverses, arrows scroll. f shows flows, the
worst first (s: by nodes and ports), c a gateway's calls, the worst first (s: the latest);
the same key shows the links again.
Without a terminal use `status --json`, `links --json` and `flows --json`.")]
pub struct TopArgs {
    #[command(flatten)]
    at: At,
}

/// Make a running node read its configuration file again
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline check site-a.toml && trunkline reload
  kill -HUP PID                      # the same; the answer is in the log

Links, rates, routes, [overlay] keys and revoked, [access], a gateway's names, networks,
routes and certificates, and the log filter change at once; keys that need a restart are
named and stay as they were.
Exit code 1: no node answers there; 2: the file is wrong and nothing changed.")]
pub struct ReloadArgs {
    #[command(flatten)]
    at: At,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Empty a node before it is stopped
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline drain --timeout 1h --stop   # wait until calls are over, then stop
  trunkline drain --now                 # don't wait
  trunkline drain --undo

Other nodes route around a draining node, and it lets no
application attach; a gateway accepts no new call. Existing ones stay. It is empty once
no call is left and no packet has passed for the quiet time.
Exit code 1: it was not empty in time (it stays drained), or no node answers.")]
pub struct DrainArgs {
    /// Accept applications and calls again
    #[arg(long, conflicts_with_all = ["stop", "now"])]
    undo: bool,
    /// Return at once instead of waiting until the node is empty
    #[arg(long)]
    now: bool,
    /// Stop the node afterwards
    #[arg(long)]
    stop: bool,
    /// Time without packets after which the node counts as empty
    #[arg(long, default_value = "5s")]
    quiet: Span,
    /// Maximum time to wait until the node is empty
    #[arg(long, default_value = "10min")]
    timeout: Span,
    #[command(flatten)]
    at: At,
    /// Print the result as JSON at the end
    #[arg(long)]
    json: bool,
}

fn print_json(value: &impl Serialize) -> Result<(), Error> {
    outln!("{}", serde_json::to_string(value).map_err(|e| Error::Output(e.into()))?);
    Ok(())
}
