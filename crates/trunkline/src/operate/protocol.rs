//! What goes over the control socket: one JSON object a line, a question and
//! its answer; see docs/control.md. Fields may be added; what exists keeps its
//! name and meaning. What a node does not know is `null`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use trunkline_overlay::wire::{Metric, Service};

/// A question, or an order.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// [`Status`].
    Status {},
    /// [`Vec`] of [`Link`].
    Links {},
    /// [`Vec`] of [`Route`].
    Routes {
        /// By which metric.
        #[serde(default, with = "crate::names")]
        metric: Metric,
    },
    /// [`Flows`]: a part of them.
    Flows {
        /// Only those with this other node.
        #[serde(default)]
        peer: Option<u32>,
        /// Where the part before said that it goes on; 0 is the first.
        #[serde(default)]
        from: u64,
    },
    /// [`Streams`]: a part of them.
    Streams {
        /// Only those with this other node.
        #[serde(default)]
        peer: Option<u32>,
        /// Where the part before said that it goes on; 0 is the first.
        #[serde(default)]
        from: usize,
    },
    /// [`Calls`]: a part of them.
    Calls {
        /// Where the part before said that it goes on; 0 is the first.
        #[serde(default)]
        from: usize,
    },
    /// [`Echo`].
    Echo {
        /// The node to ask.
        to: u32,
        /// What carries the packet.
        #[serde(default = "default_service", with = "crate::names")]
        service: Service,
        /// Bytes of the packet, 10 to 1400.
        #[serde(default = "default_size")]
        size: usize,
        /// Links that it may cross, 1 to 32.
        #[serde(default = "default_hops")]
        hops: u8,
        /// How long to wait, 1 to 10000 ms.
        #[serde(default = "default_timeout")]
        timeout_ms: u64,
    },
    /// Read the configuration again: [`Reloaded`].
    Reload {},
    /// Take no more sessions, or take some again: [`Status`].
    Drain {
        /// Which of the two.
        on: bool,
    },
    /// End the node: [`Status`], a last time.
    Stop {},
}

/// A part of a gateway's calls.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Calls {
    /// Those there are, then those that ended last.
    pub calls: Vec<Call>,
    /// Where it goes on, if it does.
    pub next: Option<usize>,
}

/// A call, as it is shown and recorded.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Call {
    /// The Call-ID that SIP knows it by.
    pub call: String,
    /// The URI of who calls.
    pub from: String,
    /// The URI of who is called.
    pub to: String,
    /// `ringing`, `up` or `ended`.
    pub state: String,
    /// When its INVITE came, in seconds since 1970.
    pub began: f64,
    /// When it was answered, likewise; `null` if never.
    pub answered: Option<f64>,
    /// When it ended, likewise; `null` if it has not.
    pub ended: Option<f64>,
    /// How it ended: `caller-hung-up`, `callee-hung-up`, `cancelled`, `refused`,
    /// `unanswered`, `idle` (nothing was heard of it) or `stopped` (with its gateway).
    pub outcome: Option<String>,
    /// The status code by which it was refused or cancelled.
    pub status: Option<u16>,
    /// How long ago it was answered, or how long it was up; 0 if never.
    pub seconds: f64,
    /// Whether its media cross the overlay.
    pub overlay: bool,
    /// What comes from who calls, then what comes from who is called, of each stream.
    pub legs: Vec<CallLeg>,
}

impl Call {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.state == "ended"
    }
}

/// What comes to a gateway's port.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct CallLeg {
    /// `caller` or `callee`: who it comes from.
    pub from: String,
    /// The port that it comes to.
    pub port: u16,
    /// Whether it comes by the overlay.
    pub overlay: bool,
    /// Packets that should have come.
    pub expected: u64,
    /// Packets that came, without copies.
    pub packets: u64,
    /// Packets that should have come and did not.
    pub lost: u64,
    /// Packets that came too late to be played.
    pub late: u64,
    /// Packets that the overlay lost and got again.
    pub recovered: u64,
    /// For how long nothing has come since the answer, or had come at the end, in
    /// seconds; to the second.
    pub silent_s: Option<f64>,
    /// Datagrams from elsewhere than signalled.
    pub unexpected_source: u64,
    /// The share of the expected that was lost or late, in the last second.
    pub missed_now: Option<f64>,
    /// The jitter of RFC 3550 (6.4.1), in milliseconds.
    pub jitter_ms: Option<f64>,
    /// The E-model's rating of the last second, as if it were G.711.
    pub r_now: Option<f64>,
    /// The E-model's rating of the whole call.
    pub r: Option<f64>,
    /// The mean opinion score that [`CallLeg::r`] stands for.
    pub mos: Option<f64>,
    /// The lowest rating of any second.
    pub r_min: Option<f64>,
    /// What this end has said last of what it hears, by RTCP.
    pub says: Option<CallEnd>,
}

/// What an end of a call says of what it hears (RFC 3550, 6.4.1).
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CallEnd {
    /// Packets that were lost on the whole way to it, less copies.
    pub lost: i64,
    /// These, as a share of what the other end has sent so far.
    pub lost_share: Option<f64>,
    /// The share that was lost between its last two reports.
    pub lost_now: f64,
    /// The jitter at its end, in milliseconds, where the payload's clock is known.
    pub jitter_ms: Option<f64>,
    /// From this gateway to it and back, in milliseconds.
    pub round_trip_ms: Option<f64>,
}

/// A small packet, far from every MTU.
pub const DEFAULT_SIZE: usize = 64;
/// As many as a packet can cross.
pub const DEFAULT_HOPS: u8 = trunkline_overlay::wire::MAX_HOPS;
/// Longer than any path that carries a conversation.
pub const DEFAULT_TIMEOUT_MS: u64 = 1_000;
/// A longer wait would hold a connection for nothing.
pub const MAX_TIMEOUT_MS: u64 = 10_000;

fn default_service() -> Service {
    Service::BestEffort
}

fn default_size() -> usize {
    DEFAULT_SIZE
}

fn default_hops() -> u8 {
    DEFAULT_HOPS
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_MS
}

/// An answer.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// What was asked for.
    Ok(T),
    /// Why it was not done.
    Error(Refused),
}

/// Why something was not done.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What happened, to what, and what to do.
    pub message: String,
    /// The exit code that fits: 1, or 2 if a configuration file is wrong.
    pub code: u8,
}

/// The node as a whole.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Status {
    /// Its name in the configuration.
    pub name: String,
    /// Its number in the overlay.
    pub id: u32,
    /// Of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The file that it was started with.
    pub config: String,
    /// Since its start.
    pub uptime_s: f64,
    /// Whether its links are authenticated and encrypted.
    pub sealed: bool,
    /// When its certificate ends, seconds since 1970; `null` if it has none, or
    /// for ever.
    pub certificate_not_after: Option<u64>,
    /// The newest protocol version that it speaks; `null` if it is unsealed.
    pub protocol: Option<u8>,
    /// How many links speak which version, where a handshake agreed on one.
    pub link_versions: BTreeMap<u8, usize>,
    /// Whether it takes no more sessions.
    pub draining: bool,
    /// Links whose neighbour is heard.
    pub links_up: usize,
    /// Links configured.
    pub links: usize,
    /// Applications attached.
    pub sessions: u64,
    /// Streams that end here, those included that are being opened or closed.
    pub streams: u64,
    /// Whether it is a gateway for SIP.
    pub gateway: bool,
    /// Calls that ring or are up; `null` if it is no gateway, or that does not answer.
    pub calls: Option<usize>,
    /// Packets of applications here.
    pub from_sessions: u64,
    /// Packets to applications here.
    pub to_sessions: u64,
    /// Packets passed from one link to another.
    pub forwarded: u64,
    /// What was dropped since the start, by reason, where anything was.
    pub drops: BTreeMap<String, u64>,
    /// Messages of handshakes that were refused, likewise.
    pub handshakes_refused: BTreeMap<String, u64>,
    /// Updates of other nodes' links that were refused, likewise. `duplicate`
    /// and `older` come of flooding itself.
    pub updates_refused: BTreeMap<String, u64>,
    /// Nodes that are heard of by records whose key this node doesn't know: no way
    /// leads there.
    pub unknown_nodes: Vec<u32>,
    /// The first of the nodes whose `[routing]` formula, deadline or detection differs
    /// from this node's, ascending.
    pub routing_differs: Vec<u32>,
    /// How many nodes these are in total.
    pub routing_differ_count: usize,
    /// Links that a node advertises now and their other end does not: no way
    /// leads over them.
    pub links_denied: u64,
    /// Its trunks.
    pub trunks: Vec<Trunk>,
    /// Other nodes' trunks that end here.
    pub trunks_in: Vec<TrunkIn>,
}

/// A trunk to another node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Trunk {
    /// The node at the other end.
    pub to: u32,
    /// `open`; `silent` while the other end doesn't answer; `refused`, if it has as many as it takes or its rules keep this node out; or `off`.
    /// Packets leave one by one unless it is open.
    pub state: String,
    /// How long a packet waits for others at most, in milliseconds.
    pub wait_ms: f64,
    /// Flows that it has carried, and still knows.
    pub flows: usize,
    /// Applications' packets that left together with others.
    pub packets: u64,
    /// Their bytes, without any header.
    pub bytes: u64,
    /// The packets that they left in.
    pub trunk_packets: u64,
    /// The bytes of those, with the trunk's own headers.
    pub trunk_bytes: u64,
    /// Packets whose RTP headers were compressed.
    pub compressed: u64,
    /// By how many bytes those headers became shorter.
    pub header_bytes_saved: u64,
    /// Packets that left by themselves, as no other flow sent, they were too large, or
    /// flows too many.
    pub alone: u64,
    /// Packets that left by themselves, as the other end had not answered.
    pub unanswered: u64,
    /// Trunk packets that no link took.
    pub dropped: u64,
    /// The loss event rate that the other end reported last, 0 to 1.
    pub loss_events: f64,
    /// The round trip between both ends, in milliseconds; `null` before a report.
    pub rtt_ms: Option<f64>,
    /// What a TCP would send on the trunk's path, in bits per second with all headers;
    /// `null` while nothing is lost.
    pub share_bps: Option<f64>,
    /// Whether the trunk sends more than that, however many packets leave together.
    pub trunk_over_share: bool,
}

/// A trunk of another node that ends here.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TrunkIn {
    /// That node.
    pub from: u32,
    /// Trunk packets that came.
    pub trunk_packets: u64,
    /// Applications' packets in them.
    pub packets: u64,
    /// Packets of flows that this end had not been told of.
    pub unknown: u64,
    /// Packets that were dropped, as this end had not been told how to restore their RTP
    /// headers.
    pub no_template: u64,
    /// The loss event rate of its trunk packets, 0 to 1.
    pub loss_events: f64,
}

/// A link. "In" is from the neighbour, "out" towards it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Link {
    /// The other end.
    pub neighbour: u32,
    /// What its certificate calls it.
    pub name: Option<String>,
    /// Which of several links to it.
    pub path: String,
    /// The protocol version that both ends speak.
    pub version: Option<u8>,
    /// Where its datagrams go.
    pub address: Option<SocketAddr>,
    /// Whether the neighbour is heard.
    pub up: bool,
    /// For how long it has been up or down.
    pub since_s: Option<f64>,
    /// The round trip, smoothed.
    pub rtt_ms: Option<f64>,
    /// How much that varies.
    pub jitter_ms: Option<f64>,
    /// Share of packets lost, 0 to 1.
    pub loss_in: Option<f64>,
    /// The same, as the neighbour counts.
    pub loss_out: Option<f64>,
    /// Packets lost in a row, on average.
    pub burst_in: Option<f64>,
    /// The same, as the neighbour counts.
    pub burst_out: Option<f64>,
    /// Throughput, bits per second of UDP payload.
    pub bps_in: Option<f64>,
    /// The same, outwards.
    pub bps_out: Option<f64>,
    /// What this node adds to the latency that it advertises of the link.
    pub penalty_ms: f64,
    /// Share of packets, 0 to 1, that this node says the link will lose on top
    /// of what is measured, since it keeps failing; 0 for one that does not.
    pub damping: f64,
    /// For how long yet, if it does not fail again.
    pub damping_left_s: Option<f64>,
    /// How often it has gone down.
    pub downs: u64,
    /// How often of these because the neighbour had said that it stops.
    pub goodbyes: u64,
    /// Bytes of UDP payload since the start.
    pub bytes_in: u64,
    /// The same, outwards.
    pub bytes_out: u64,
    /// What was dropped at this link, whatever the reason.
    pub drops: u64,
    /// Updates from this neighbour that were refused, by reason, as in
    /// [`Status::updates_refused`].
    pub updates_refused: BTreeMap<String, u64>,
}

/// An entry of the forwarding table.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Route {
    /// Where to; `null` is every node without an entry of its own.
    pub destination: Option<u32>,
    /// The neighbour that packets go to.
    pub next_hop: u32,
    /// The path label of the link that they take.
    pub path: String,
    /// Whether that link is up.
    pub up: bool,
    /// What the way costs, by the overlay's metric, if it was computed.
    pub cost: Option<f64>,
    /// Whether every way leads through a node that is draining or doesn't let all pass.
    pub last_resort: bool,
    /// From the next hop to the destination, one way; zero if unknown.
    pub onward_ms: f64,
}

/// Some of the flows that begin or end at the node.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Flows {
    /// At most 256.
    pub flows: Vec<Flow>,
    /// `from` of the next question; `null` if these were the last.
    pub next: Option<u64>,
}

/// Which end of a flow the node is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Its destination.
    In,
    /// Its origin.
    Out,
}

/// A flow.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Flow {
    /// Whether it ends here, or begins.
    pub direction: Direction,
    /// The virtual port here.
    pub port: u16,
    /// The other node.
    pub peer: u32,
    /// The virtual port there.
    pub peer_port: u16,
    /// What carried its last packet.
    #[serde(with = "crate::names")]
    pub service: Service,
    /// Who holds the port here: a process's name, or that of a `[[client]]`.
    pub application: Option<String>,
    /// The process, if it is on this machine.
    pub pid: Option<i32>,
    /// For how long it has been there.
    pub since_s: f64,
    /// For how long no packet has come, or been sent.
    pub silent_s: f64,
    /// Whether it has ended.
    pub ended: bool,
    /// Packets, each once.
    pub packets: u64,
    /// Their bytes, of the application alone.
    pub bytes: u64,
    /// Packets of these that the application did not take, or that the node
    /// could not send on.
    pub refused: u64,
    /// Packets a second, over the last ten.
    pub pps: Option<f64>,
    /// Bits a second, likewise.
    pub bps: Option<f64>,
    /// What the origin set as deadline, as it seems here.
    pub deadline_ms: Option<f64>,
    /// How often the sender has numbered anew.
    pub restarts: Option<u64>,
    /// How the last ten seconds were, where it ends here and packets came.
    pub last_10s: Option<FlowQuality>,
    /// The same of the whole call.
    pub call: Option<FlowQuality>,
}

/// How good a flow is at its destination.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct FlowQuality {
    /// Packets sent, by their numbers.
    pub expected: u64,
    /// Those that did not come.
    pub lost: u64,
    /// Those that came after their deadline.
    pub late: u64,
    /// Those that a link had lost and repeated.
    pub recovered: u64,
    /// Lost and late, of those expected, 0 to 1.
    pub missed_share: f64,
    /// One way, on average.
    pub delay_ms: Option<f64>,
    /// RFC 3550's, on average.
    pub jitter_ms: Option<f64>,
    /// The E-model's rating, 0 to 100: as if it were G.711 with concealment.
    pub r: f64,
    /// The same as mean opinion score, 1 to 4.5.
    pub mos: f64,
}

/// A page of the streams that end at the node.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Streams {
    /// At most 256 streams. Any page may have fewer, even none.
    pub streams: Vec<Stream>,
    /// `from` of the next question; `null` if these were the last.
    pub next: Option<usize>,
}

/// One end of a stream, as the node that has it sees it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Stream {
    /// The node of the other end.
    pub peer: u32,
    /// The virtual port at the other end.
    pub peer_port: u16,
    /// The virtual port at this end.
    pub port: u16,
    /// `opening`: the other end has not answered; `waiting`: nobody here has accepted it
    /// yet; `open`; `closing`: its application has gone, and what it wrote is still
    /// delivered; `over`: both directions have ended, and it is remembered for a minute.
    pub state: String,
    /// The application that has the stream here: a process's name, or that of a `[[client]]`.
    pub application: Option<String>,
    /// The process id of the application, if it is on this machine.
    pub pid: Option<i32>,
    /// The smoothed round-trip time from end to end, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// The congestion window, in bytes.
    pub window: u64,
    /// Bytes of data that the other end has acknowledged.
    pub sent: u64,
    /// Bytes of data that were written here and are not acknowledged.
    pub unacknowledged: u64,
    /// Bytes of data received in order.
    pub received: u64,
    /// Bytes received in order that the application here has not read.
    pub unread: u64,
    /// Segments that this end had to retransmit.
    pub retransmitted: u64,
}

/// What became of one echo.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Echo {
    /// Who answered; `null` if nobody did in time.
    pub from: Option<u32>,
    /// Whether that was the node asked; otherwise it is the one where the hop
    /// limit ran out.
    pub reached: bool,
    /// Links crossed on the way there.
    pub hops: Option<u8>,
    /// There and back.
    pub rtt_ms: Option<f64>,
}

/// What became of a changed configuration.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Reloaded {
    /// The file.
    pub config: String,
    /// The keys that were applied.
    pub applied: Vec<String>,
    /// The keys that differ from what runs and need a restart.
    pub restart: Vec<String>,
}
