//! Messages on the control socket: one JSON object a line, a request and its answer; see
//! docs/control.md. Fields may be added; existing ones keep their name and meaning. A value that
//! the node doesn't have is `null`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use trunkline_overlay::wire::{Metric, Service};

/// A query or a command.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the node's [`Status`].
    Status {},
    /// Returns a [`Vec`] of [`Link`].
    Links {},
    /// Returns a [`Vec`] of [`Route`].
    Routes {
        /// Metric of the routes.
        #[serde(default, with = "crate::names")]
        metric: Metric,
    },
    /// Returns a page of [`Flows`].
    Flows {
        /// Restricts the page to flows with this node.
        #[serde(default)]
        peer: Option<u32>,
        /// `next` of the previous page; 0 for the first.
        #[serde(default)]
        from: u64,
    },
    /// Returns a page of [`Streams`].
    Streams {
        /// Restricts the page to streams with this node.
        #[serde(default)]
        peer: Option<u32>,
        /// `next` of the previous page; 0 for the first.
        #[serde(default)]
        from: usize,
    },
    /// Returns a page of [`Calls`].
    Calls {
        /// `next` of the previous page; 0 for the first.
        #[serde(default)]
        from: usize,
    },
    /// Ends calls, tells their ends, and returns [`HungUp`].
    HangUp {
        /// Call-ID of the call; without one, `all` must be true.
        #[serde(default)]
        call: Option<String>,
        /// Whether all calls are meant.
        #[serde(default)]
        all: bool,
    },
    /// Sends an echo and returns its result as [`Echo`].
    Echo {
        /// Node that the echo is sent to.
        to: u32,
        /// Service that carries the packet.
        #[serde(default = "default_service", with = "crate::names")]
        service: Service,
        /// Size of the packet, 10 to 1400 bytes.
        #[serde(default = "default_size")]
        size: usize,
        /// Number of links that it may cross, 1 to 32.
        #[serde(default = "default_hops")]
        hops: u8,
        /// Time to wait for the answer, 1 to 10000 ms.
        #[serde(default = "default_timeout")]
        timeout_ms: u64,
    },
    /// Reads the configuration again and returns [`Reloaded`].
    Reload {},
    /// Stops accepting sessions, or accepts them again, and returns [`Status`].
    Drain {
        /// True to drain, false to accept sessions again.
        on: bool,
    },
    /// Stops the node and returns a last [`Status`].
    Stop {},
}

/// A page of a gateway's calls.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Calls {
    /// Current calls, then the calls that ended last.
    pub calls: Vec<Call>,
    /// `from` of the next page; `null` if there are no more.
    pub next: Option<usize>,
}

/// A call, as shown to operators and recorded.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Call {
    /// Call-ID of the call in SIP.
    pub call: String,
    /// URI of the caller.
    pub from: String,
    /// URI of the callee.
    pub to: String,
    /// `ringing`, `up` or `ended`.
    pub state: String,
    /// Arrival time of its INVITE, in seconds since 1970.
    pub began: f64,
    /// Time of the answer, in seconds since 1970; `null` if there was none.
    pub answered: Option<f64>,
    /// Time of its end, in seconds since 1970; `null` if it has not ended.
    pub ended: Option<f64>,
    /// How it ended: `caller-hung-up`, `callee-hung-up`, `cancelled`, `refused`, `unanswered`,
    /// `idle` (no sign of life), `stopped` (together with its gateway), `operator-hung-up` or
    /// `refused-by-trunk`.
    pub outcome: Option<String>,
    /// Status code with which it was refused or cancelled.
    pub status: Option<u16>,
    /// Seconds since the answer, or between the answer and the end; 0 without an answer.
    pub seconds: f64,
    /// Whether its media cross the overlay.
    pub overlay: bool,
    /// Whether both ends are at this gateway, with a proxy between them.
    pub local: bool,
    /// For each stream, the packets from the caller and then those from the callee.
    pub legs: Vec<CallLeg>,
}

impl Call {
    /// Whether the call has ended.
    pub fn is_over(&self) -> bool {
        self.state == "ended"
    }
}

/// How many calls `calls hangup` has ended.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct HungUp {
    /// Number of calls that were ended.
    pub calls: usize,
}

/// Packets that arrive at one media port of a gateway.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct CallLeg {
    /// Sender of the packets: `caller` or `callee`.
    pub from: String,
    /// Media port at which they arrive.
    pub port: u16,
    /// Whether they arrive over the overlay.
    pub overlay: bool,
    /// Packets that should have arrived.
    pub expected: u64,
    /// Packets that arrived, without duplicates.
    pub packets: u64,
    /// Datagrams that arrived and are neither RTP nor RTCP, such as those of a fax (T.38).
    pub other: u64,
    /// Packets that should have arrived and did not.
    pub lost: u64,
    /// Packets that arrived too late to be played.
    pub late: u64,
    /// Packets that the overlay lost and recovered.
    pub recovered: u64,
    /// Seconds without a packet since the answer, so far or at the end; resolution one second.
    pub silent_s: Option<f64>,
    /// Datagrams from an address other than the signalled one.
    pub unexpected_source: u64,
    /// Datagrams from this end that were dropped, because they are larger than the overlay carries.
    pub too_large: u64,
    /// Share of the expected packets that were lost or late in the last second.
    pub missed_now: Option<f64>,
    /// Jitter according to RFC 3550 (6.4.1), in milliseconds.
    pub jitter_ms: Option<f64>,
    /// Mean delay, in milliseconds, that the end which hears the packets needs beyond the usual one, so
    /// that few of them are late.
    #[serde(default)]
    pub extra_delay_ms: Option<f64>,
    /// E-model rating of the last second, as if it were G.711.
    pub r_now: Option<f64>,
    /// E-model rating of the whole call.
    pub r: Option<f64>,
    /// Mean opinion score equivalent to [`CallLeg::r`].
    pub mos: Option<f64>,
    /// Lowest rating of any second.
    pub r_min: Option<f64>,
    /// Last reception report from this end, by RTCP.
    pub says: Option<CallEnd>,
}

/// Reception report from an end of a call (RFC 3550, 6.4.1).
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CallEnd {
    /// Packets lost on the whole path to it, minus duplicates.
    pub lost: i64,
    /// Lost packets as a share of those that the other end has sent so far.
    pub lost_share: Option<f64>,
    /// Share of packets lost between its last two reports.
    pub lost_now: f64,
    /// Jitter at its end, in milliseconds; `null` if the payload's clock rate is unknown.
    pub jitter_ms: Option<f64>,
    /// Round-trip time between this gateway and the end, in milliseconds.
    pub round_trip_ms: Option<f64>,
}

/// Default size of an echo in bytes: small, far below every MTU.
pub const DEFAULT_SIZE: usize = 64;
/// Default number of links: as many as a packet can cross.
pub const DEFAULT_HOPS: u8 = trunkline_overlay::wire::MAX_HOPS;
/// Default timeout: longer than the round trip of any path fit for a conversation.
pub const DEFAULT_TIMEOUT_MS: u64 = 1_000;
/// Maximum timeout; a longer one would only occupy a connection.
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

/// Answer to a request.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// Result of the request.
    Ok(T),
    /// Reason why the request was refused.
    Error(Refused),
}

/// Reason why a request was refused.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Error, its object, and the remedy.
    pub message: String,
    /// Matching exit code: 1, or 2 if a configuration file is invalid.
    pub code: u8,
}

/// State of the node as a whole.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Status {
    /// Name of the node in its configuration.
    pub name: String,
    /// Id of the node in the overlay.
    pub id: u32,
    /// Version of the program.
    pub version: String,
    /// Id of its process.
    pub pid: u32,
    /// Configuration file that it was started with.
    pub config: String,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Whether its links are authenticated and encrypted.
    pub sealed: bool,
    /// Expiry of its certificate, in seconds since 1970; `null` if it has none, or if it never
    /// expires.
    pub certificate_not_after: Option<u64>,
    /// When the gateway's certificate expires, in seconds since 1970; `null` without one.
    pub sip_certificate_not_after: Option<u64>,
    /// Addresses that it listens at and this machine does not have.
    pub missing_addresses: Vec<SocketAddr>,
    /// Receive buffer of the UDP socket that has the smallest, in bytes.
    pub receive_buffer: usize,
    /// Receive buffer that it requested from the kernel, in bytes.
    pub receive_buffer_wanted: usize,
    /// Newest protocol version that it supports; `null` if it is unsealed.
    pub protocol: Option<u8>,
    /// Number of sealed links that are up by protocol version.
    pub link_versions: BTreeMap<u8, usize>,
    /// Whether it is draining and accepts no more sessions.
    pub draining: bool,
    /// Number of links that are up.
    pub links_up: usize,
    /// Number of links configured.
    pub links: usize,
    /// Number of applications attached.
    pub sessions: u64,
    /// Number of sessions that its gateway has for the media of calls.
    pub gateway_sessions: u64,
    /// Number of streams that end here, including those being opened or closed.
    pub streams: u64,
    /// Whether it is a SIP gateway.
    pub gateway: bool,
    /// Number of calls that ring or are up; `null` if it is not a gateway, or if the gateway does
    /// not answer.
    pub calls: Option<usize>,
    /// Packets from applications at this node.
    pub from_sessions: u64,
    /// Packets to applications at this node.
    pub to_sessions: u64,
    /// Packets forwarded from one link to another.
    pub forwarded: u64,
    /// Packets dropped since the start, by reason; without zeros.
    pub drops: BTreeMap<String, u64>,
    /// Handshake messages refused since the start, by reason; without zeros.
    pub handshakes_refused: BTreeMap<String, u64>,
    /// Refused updates of other nodes' links since the start, by reason; without zeros. `duplicate`
    /// and `older` result from flooding itself.
    pub updates_refused: BTreeMap<String, u64>,
    /// Nodes known only by records with a key unknown to this node: it has no route to them.
    pub unknown_nodes: Vec<u32>,
    /// The first nodes with a `[routing]` formula, deadline or detection that differs from this
    /// node's, ascending.
    pub routing_differs: Vec<u32>,
    /// Total number of these nodes.
    pub routing_differ_count: usize,
    /// Links that one end advertises now and the other does not: no route uses them.
    pub links_denied: u64,
    /// Trunks of this node.
    pub trunks: Vec<Trunk>,
    /// Trunks of other nodes that end here.
    pub trunks_in: Vec<TrunkIn>,
}

/// A trunk to another node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Trunk {
    /// Node at the other end.
    pub to: u32,
    /// `open`; `silent` while the other end doesn't answer; `refused` if it has reached its limit
    /// or its rules exclude this node; or `off`. Packets leave one by one unless the trunk is open.
    pub state: String,
    /// Maximum time that a packet waits for others, in milliseconds.
    pub wait_ms: f64,
    /// Number of flows that it has carried and still has state for.
    pub flows: usize,
    /// Application packets that left together with others.
    pub packets: u64,
    /// Bytes of these packets, without any header.
    pub bytes: u64,
    /// Trunk packets that carried them.
    pub trunk_packets: u64,
    /// Bytes of the trunk packets, including the trunk's headers.
    pub trunk_bytes: u64,
    /// Packets that left with compressed RTP headers.
    pub compressed: u64,
    /// Total reduction of those headers, in bytes.
    pub header_bytes_saved: u64,
    /// Packets that left alone, because no other flow was sending, they were too large, or there
    /// were too many flows.
    pub alone: u64,
    /// Packets that left alone, because the other end had not answered.
    pub unanswered: u64,
    /// Trunk packets that no link accepted.
    pub dropped: u64,
    /// Loss event rate that the other end reported last, 0 to 1.
    pub loss_events: f64,
    /// Round-trip time between both ends, in milliseconds; `null` before a report.
    pub rtt_ms: Option<f64>,
    /// Rate of a TCP flow on the trunk's path, in bits per second with all headers; `null` while
    /// nothing is lost.
    pub share_bps: Option<f64>,
    /// Whether the trunk exceeds that rate, despite bundling.
    pub trunk_over_share: bool,
}

/// A trunk of another node that ends here.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TrunkIn {
    /// Node that the trunk begins at.
    pub from: u32,
    /// Trunk packets that arrived.
    pub trunk_packets: u64,
    /// Application packets in them.
    pub packets: u64,
    /// Packets of flows that had not been announced to this end.
    pub unknown: u64,
    /// Packets dropped because this end had no template to restore their RTP headers.
    pub no_template: u64,
    /// Loss event rate of its trunk packets, 0 to 1.
    pub loss_events: f64,
}

/// A link. "In" is from the neighbour, "out" towards it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Link {
    /// Neighbour at the other end.
    pub neighbour: u32,
    /// Neighbour's name according to its certificate.
    pub name: Option<String>,
    /// Label that distinguishes several links to it.
    pub path: String,
    /// Protocol version in use; `null` while the link is down, and if it is unsealed.
    pub version: Option<u8>,
    /// Destination of its datagrams.
    pub address: Option<SocketAddr>,
    /// Name and port at which the neighbour is configured; `null` if by an address.
    pub host: Option<String>,
    /// Reason why the last lookup of that name led nowhere; `null` if it didn't, or once the link is
    /// up by an address of the name.
    pub lookup_error: Option<String>,
    /// Whether packets arrive from the neighbour.
    pub up: bool,
    /// Time since it went up or down, in seconds.
    pub since_s: Option<f64>,
    /// Smoothed round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Variation of the round-trip time, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// Share of packets lost from the neighbour, 0 to 1.
    pub loss_in: Option<f64>,
    /// Share of packets lost towards the neighbour, as the neighbour counts them.
    pub loss_out: Option<f64>,
    /// Mean number of packets from the neighbour lost in a row.
    pub burst_in: Option<f64>,
    /// Mean number of packets lost in a row towards the neighbour, as it counts them.
    pub burst_out: Option<f64>,
    /// Throughput from the neighbour, in bits per second of UDP payload.
    pub bps_in: Option<f64>,
    /// Throughput towards the neighbour, in bits per second of UDP payload.
    pub bps_out: Option<f64>,
    /// Penalty that this node adds to the link's advertised latency, in milliseconds.
    pub penalty_ms: f64,
    /// Share of packets, 0 to 1, that this node advertises as lost in addition to the measured
    /// loss, because the link keeps failing; 0 for a stable link.
    pub damping: f64,
    /// Remaining time of the damping in seconds, if the link does not fail again.
    pub damping_left_s: Option<f64>,
    /// Number of times that it has gone down.
    pub downs: u64,
    /// Number of these that the neighbour announced by a goodbye.
    pub goodbyes: u64,
    /// Bytes of UDP payload received since the start.
    pub bytes_in: u64,
    /// Bytes of UDP payload sent since the start.
    pub bytes_out: u64,
    /// Packets dropped at this link, for any reason.
    pub drops: u64,
    /// Updates from this neighbour that were refused, by reason, as in [`Status::updates_refused`].
    pub updates_refused: BTreeMap<String, u64>,
    /// Errors of the kernel when it refused to send to the neighbour; `null` if it never did.
    pub send_error: Option<SendError>,
    /// Next hop that the link's packets wait for because it doesn't answer ARP or neighbour
    /// discovery; `null` if there is none.
    pub silent_next_hop: Option<IpAddr>,
    /// Interface that the link leaves by, if it has no carrier and the link is down; else `null`.
    pub no_carrier: Option<String>,
    /// Interface that the link leaves by, if it is not the one that has its `source`; else `null`.
    pub leaves_by: Option<String>,
    /// Own address that the neighbour's packets arrive at, if it is not the link's `source` or of its
    /// `interface`; else `null`.
    pub arrives_at: Option<IpAddr>,
    /// Time for which the interface that the link leaves by has taken nothing, in seconds; `null` if
    /// it takes packets.
    pub stalled_s: Option<f64>,
    /// Whether the link's packets wait in a queue of their own behind the interface, so that it has
    /// a socket of its own.
    pub own_queue: bool,
}

/// The kernel's refusals to send packets of one link.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct SendError {
    /// Name of the last error, such as `ENETUNREACH`.
    pub error: String,
    /// The same in words.
    pub message: String,
    /// Datagrams refused since the start.
    pub count: u64,
    /// Time since the present or last failure began, in seconds.
    pub since_s: f64,
    /// Time since the last error, in seconds.
    pub last_s: f64,
    /// Whether the failure may last. It ends 2 s after the last error if packets were sent since,
    /// and otherwise after 10 s.
    pub lasts: bool,
    /// Whether some packets are refused and others sent.
    pub partial: bool,
}

/// An entry of the forwarding table.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Route {
    /// Destination node; `null` stands for every node without an entry.
    pub destination: Option<u32>,
    /// Neighbour that packets are sent to.
    pub next_hop: u32,
    /// Path label of the link used.
    pub path: String,
    /// Whether that link is up.
    pub up: bool,
    /// Cost of the route by the overlay's metric, if it was computed.
    pub cost: Option<f64>,
    /// Whether every route leads through a node that is draining or doesn't forward for everyone.
    pub last_resort: bool,
    /// One-way latency from the next hop to the destination, in milliseconds; zero if unknown.
    pub onward_ms: f64,
}

/// A page of the flows that begin or end at the node.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Flows {
    /// At most 256 flows.
    pub flows: Vec<Flow>,
    /// `from` of the next request; `null` if these were the last.
    pub next: Option<u64>,
}

/// Role of the node in a flow.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The node is the destination.
    In,
    /// The node is the origin.
    Out,
}

/// One flow that begins or ends at the node.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Flow {
    /// Whether the flow ends or begins here.
    pub direction: Direction,
    /// Virtual port at this node.
    pub port: u16,
    /// Node at the other end.
    pub peer: u32,
    /// Virtual port at the other end.
    pub peer_port: u16,
    /// Service that carried its last packet.
    #[serde(with = "crate::names")]
    pub service: Service,
    /// Holder of the port here: the name of a process or of a `[[client]]`.
    pub application: Option<String>,
    /// Process id of the holder, if it is on this machine.
    pub pid: Option<i32>,
    /// Age of the flow, in seconds.
    pub since_s: f64,
    /// Time since the last packet arrived or was sent, in seconds.
    pub silent_s: f64,
    /// Whether the flow has ended.
    pub ended: bool,
    /// Number of packets, without duplicates.
    pub packets: u64,
    /// Bytes of application data in these packets.
    pub bytes: u64,
    /// Number of these packets that the application did not accept, or that the node could not send
    /// on.
    pub refused: u64,
    /// Packets per second, over the last ten seconds.
    pub pps: Option<f64>,
    /// Bits per second, over the last ten seconds.
    pub bps: Option<f64>,
    /// Deadline set by the origin, as estimated here, in milliseconds.
    pub deadline_ms: Option<f64>,
    /// Number of times that the sender has restarted its numbering.
    pub restarts: Option<u64>,
    /// Quality during the last ten seconds, if it ends here and packets arrived.
    pub last_10s: Option<FlowQuality>,
    /// Quality during the whole call.
    pub call: Option<FlowQuality>,
}

/// Quality of a flow at its destination.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct FlowQuality {
    /// Packets sent, according to their sequence numbers.
    pub expected: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Packets that arrived after their deadline.
    pub late: u64,
    /// Packets that a link had lost and retransmitted.
    pub recovered: u64,
    /// Share of the expected packets that were lost or late, 0 to 1.
    pub missed_share: f64,
    /// Mean one-way delay, in milliseconds.
    pub delay_ms: Option<f64>,
    /// Mean jitter according to RFC 3550, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// E-model rating, 0 to 100, as if it were G.711 with concealment; `null` for a fax of a gateway's
    /// call, which has none.
    pub r: Option<f64>,
    /// Mean opinion score equivalent to the rating, 1 to 4.5.
    pub mos: Option<f64>,
}

/// A page of the streams that end at the node.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Streams {
    /// At most 256 streams. Any page may have fewer, even none.
    pub streams: Vec<Stream>,
    /// `from` of the next request; `null` if these were the last.
    pub next: Option<usize>,
}

/// One end of a stream, as seen by its node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Stream {
    /// Node at the other end.
    pub peer: u32,
    /// Virtual port at the other end.
    pub peer_port: u16,
    /// Virtual port at this end.
    pub port: u16,
    /// `opening`: the other end has not answered; `waiting`: no application here has accepted it
    /// yet; `open`; `closing`: its application has gone, and its remaining data are still
    /// delivered; `over`: both directions have ended, and its state is kept for a minute.
    pub state: String,
    /// Application that has the stream here: the name of a process or of a `[[client]]`.
    pub application: Option<String>,
    /// Process id of the application, if it is on this machine.
    pub pid: Option<i32>,
    /// Smoothed round-trip time from end to end, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes of data that the other end has acknowledged.
    pub sent: u64,
    /// Bytes of data written here that are not acknowledged yet.
    pub unacknowledged: u64,
    /// Bytes of data received in order.
    pub received: u64,
    /// Bytes received in order that the application here has not read.
    pub unread: u64,
    /// Segments that this end had to retransmit.
    pub retransmitted: u64,
}

/// Result of one echo.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Echo {
    /// Node that answered; `null` if there was no answer in time.
    pub from: Option<u32>,
    /// Whether the target answered; otherwise `from` is the node at which the hop limit ran out.
    pub reached: bool,
    /// Number of links crossed on the way there.
    pub hops: Option<u8>,
    /// Round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
}

/// Result of a reload.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Reloaded {
    /// Path of the configuration file.
    pub config: String,
    /// Keys with changes that were applied.
    pub applied: Vec<String>,
    /// Keys that differ from the running settings and need a restart.
    pub restart: Vec<String>,
    /// Settings that are allowed, but hardly intended, and certificates that have expired or soon do.
    pub warnings: Vec<String>,
}
