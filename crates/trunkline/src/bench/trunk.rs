//! `trunkline bench trunk`: cost of a call's packet that shares a trunk packet with others.
//! Measured at a relay with sockets, compared with the lean relay, and at both ends of the trunk,
//! with the node's code alone.

use super::load::Load;
use super::markdown::Table;
use super::under_test::{Contestant, UnderTest};
use super::{Error, median, print_json};
use crate::clock;
use crate::datapath::mmsg::BATCH;
use crate::units::Span;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, SendOutcome, Sink, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
use trunkline_overlay::trunk::{self, RTP_HEADER};
use trunkline_overlay::wire::{DATA_OVERHEAD, Incarnation, NodeId, Service};

/// Measure the cost of call packets that are sent together
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline bench trunk --json

Packets of G.729 with RTP, 32 bytes each; `alone` is without a trunk.
`bytes` is the mean size of a UDP payload, and `each` the bytes per packet of a
call with IPv4 and UDP.
`ns` is processor time per packet of a call, and `calls` the number of calls of 50
packets a second one way that fill a core. `relay` and `lean` have sockets; their
datagrams arrive one by one; `sealed` is the relay with sealed links. `leave` and
`arrive` measure only the code of the end nodes, without sockets, which cost
the same with a trunk as without.
`trunkline-lab load` measures whole calls through gateways with trunks, against rtpengine.")]
pub struct Args {
    /// Rounds of each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Duration of each round of a relay
    #[arg(long, default_value = "500 ms")]
    round: Span,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Packets per trunk packet; 0 is without a trunk.
const TOGETHER: [usize; 6] = [0, 1, 4, 6, 10, 20];

/// Bytes of 20 ms of G.729, with an RTP header.
const PAYLOAD: usize = 32;

/// Bytes of the IPv4 and UDP headers.
const IPV4_UDP: usize = 28;

/// Samples in 20 ms at 8 kHz.
const SAMPLES: u32 = 160;

/// Packets per second of a call, in one direction.
const PER_CALL: f64 = 50.0;

/// Measured quantities, in the order of the columns.
const PLACES: [&str; 5] = ["lean", "relay", "sealed", "leave", "arrive"];

#[derive(Serialize)]
struct Row {
    /// Packets per datagram; 0 without a trunk.
    together: usize,
    /// Mean length of the UDP payload, in bytes.
    bytes: usize,
    /// Bytes per packet of a call, with IPv4 and UDP headers.
    each: f64,
    places: Vec<Cost>,
}

#[derive(Serialize)]
struct Cost {
    place: &'static str,
    /// Nanoseconds per packet of a call.
    ns: f64,
    calls: f64,
    /// Ratio to the same cost without a trunk.
    times: f64,
}

/// Runs `trunkline bench trunk` and prints its result.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut costs: Vec<(f64, [Vec<f64>; PLACES.len()])> =
        TOGETHER.iter().map(|_| Default::default()).collect();
    let bar = indicatif::ProgressBar::new(u64::from(args.rounds) * TOGETHER.len() as u64);
    for _ in 0..args.rounds {
        for (together, costs) in TOGETHER.into_iter().zip(&mut costs) {
            let (bytes, ns) = round(together, args.round.0)?;
            costs.0 = bytes;
            costs.1.iter_mut().zip(ns).for_each(|(all, ns)| all.push(ns));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let medians: Vec<(f64, [f64; PLACES.len()])> =
        costs.into_iter().map(|(bytes, places)| (bytes, places.map(median))).collect();
    let rows: Vec<Row> = TOGETHER
        .into_iter()
        .zip(&medians)
        .map(|(together, (bytes, ns))| Row {
            together,
            bytes: (DATA_OVERHEAD as f64 + bytes).round() as usize,
            each: ((IPV4_UDP + DATA_OVERHEAD) as f64 + bytes) / together.max(1) as f64,
            places: (0..PLACES.len())
                .map(|at| Cost {
                    place: PLACES[at],
                    ns: ns[at],
                    calls: 1e9 / ns[at] / PER_CALL,
                    times: medians[0].1[at] / ns[at],
                })
                .collect(),
        })
        .collect();
    match (args.json, args.markdown) {
        (true, _) => print_json(&rows),
        (_, true) => markdown(args, &rows),
        _ => print(&rows),
    }
    Ok(())
}

/// The row's first column.
fn together(row: &Row) -> String {
    if row.together == 0 { "alone".into() } else { row.together.to_string() }
}

fn markdown(args: &Args, rows: &[Row]) {
    let places = PLACES.map(|place| format!("{place}, ns/packet (calls per core)"));
    let mut columns =
        vec!["packets together", "UDP payload, bytes", "bytes/packet with IPv4 and UDP"];
    columns.extend(places.iter().map(String::as_str));
    let row = |r: &Row| {
        let mut cells = vec![together(r), r.bytes.to_string(), format!("{:.1}", r.each)];
        cells.extend(r.places.iter().map(|c| format!("{:.0} ({:.0})", c.ns, c.calls)));
        cells
    };
    Table {
        title: "Calls in a trunk",
        command: format!("trunk --rounds {}", args.rounds),
        columns: &columns,
        rows: rows.iter().map(row).collect(),
        notes: vec![
            "G.729 with RTP, 50 packets a second one way. `lean`, `relay` and `sealed` have sockets; \
             `leave` and `arrive` are the code at the trunk's ends alone."
                .to_owned(),
        ],
    }
    .print();
}

fn print(rows: &[Row]) {
    let titles =
        PLACES.map(|place| format!("  {:>9} {:>7} {:>5}", format!("{place} ns"), "calls", "×"));
    outln!("{:>8} {:>6} {:>6}{}", "together", "bytes", "each", titles.concat());
    for row in rows {
        let together = together(row);
        let cost = |c: &Cost| format!("  {:>9.0} {:>7.0} {:>5.1}", c.ns, c.calls, c.times);
        let places: String = row.places.iter().map(cost).collect();
        outln!("{together:>8} {:>6} {:>6.1}{places}", row.bytes, row.each);
    }
}

/// Mean bytes of a trunk packet that holds this many packets, and nanoseconds per packet of a call
/// for each quantity in `PLACES`.
fn round(together: usize, time: Duration) -> Result<(f64, [f64; PLACES.len()]), Error> {
    let each = together.max(1) as f64;
    let mut ends = Ends::new(together)?;
    let (leave, arrive) = ends.measure();
    let bytes = ends.bytes();
    let relay = |contestant| {
        let under_test = UnderTest::start(contestant)?;
        let mut load = Load::new(&under_test, contestant, bytes.round() as usize)?;
        let throughput = load.saturate(time, BATCH)?;
        under_test.stop()?;
        Ok::<f64, Error>(throughput.cpu_ns / each)
    };
    let lean = relay(Contestant::Lean)?;
    let plain = relay(Contestant::RealTime)?;
    let sealed = relay(Contestant::Sealed)?;
    Ok((bytes, [lean, plain, sealed, leave, arrive]))
}

const HERE: NodeId = NodeId(1);
const THERE: NodeId = NodeId(2);
/// Number of calls; each is a session at both ends.
const CALLS: u16 = 200;
/// Steps of a measurement. Every call has one packet per 20 ms.
const STEPS: usize = 20_000;

/// Applications that accept everything and count it.
#[derive(Default)]
struct Listeners(u64);

impl Sink for Listeners {
    fn deliver(&mut self, _: SessionId, _: &[u8], payload: &[u8]) -> SendOutcome {
        self.0 += u64::from(payload.len() == PAYLOAD);
        SendOutcome::Accepted
    }
}

/// Two neighbours without sockets, and calls from one to the other.
struct Ends {
    together: usize,
    now: Time,
    nodes: [Node; 2],
    arena: TxArena,
    calls: Vec<(SessionId, Vec<u8>)>,
    heard: Listeners,
    /// Counters of the trunk when the measurement began.
    before: trunk::Stats,
}

fn address(node: NodeId) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7_000 + node.0 as u16).into()
}

fn message(m: &ToNode<'_>, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    // The buffer is large enough for any head.
    let _ = m.emit_head(&mut w);
    [w.written(), payload].concat()
}

/// Turns the RTP packet at the end of a message into the next one of its source.
fn next_rtp(message: &mut [u8]) {
    let Some(rtp) = message.last_chunk_mut::<PAYLOAD>() else { return };
    let seq = u16::from_be_bytes([rtp[2], rtp[3]]).wrapping_add(1);
    let timestamp = u32::from_be_bytes([rtp[4], rtp[5], rtp[6], rtp[7]]).wrapping_add(SAMPLES);
    rtp[2..4].copy_from_slice(&seq.to_be_bytes());
    rtp[4..8].copy_from_slice(&timestamp.to_be_bytes());
}

impl Ends {
    fn new(together: usize) -> Result<Ends, Error> {
        let now = Time::from_millis(1);
        let node = |own, other: NodeId| {
            let mut config = Config::new(own);
            let mut link = link::Config::new(other);
            link.address = Some(address(other));
            config.links.push(link);
            if own == HERE && together > 0 {
                config.trunks.push(trunk::Config::new(THERE));
            }
            Node::new(config, Start::simulated(now, Incarnation(1), 1))
                .map_err(|_| Error::Broken("a node refused its configuration"))
        };
        let mut nodes = [node(HERE, THERE)?, node(THERE, HERE)?];
        let mut heard = Listeners::default();
        let mut calls = Vec::new();
        for port in (1_000..).take(CALLS.into()) {
            let mut ids = [SessionId(0); 2];
            for (node, id) in nodes.iter_mut().zip(&mut ids) {
                *id = node.session_open().ok_or(Error::Broken("too many calls"))?;
                let bind = ToNode::Bind { version: SESSION_VERSION, port };
                node.session_recv(now, *id, &message(&bind, &[]), &mut heard);
            }
            let (service, deadline_ms) = (Service::RealTime, 100);
            let send = ToNode::Send { service, deadline_ms, to: THERE, port, payload: &[] };
            // A G.729 packet from a source of its own.
            let mut payload = [0xd5; PAYLOAD];
            payload[..RTP_HEADER].copy_from_slice(&[0x80, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            payload[10..RTP_HEADER].copy_from_slice(&port.to_be_bytes());
            calls.push((ids[0], message(&send, &payload)));
        }
        let arena = TxArena::new(256 << 10, 256);
        let before = trunk::Stats::default();
        Ok(Ends { together, now, nodes, arena, calls, heard, before })
    }

    /// Nanoseconds per packet at the origin and at the destination.
    fn measure(&mut self) -> (f64, f64) {
        let each = self.together.max(1);
        // Run until the link and the trunk are up and every context is known.
        for _ in 0..STEPS / 10 {
            self.step(each);
        }
        let (mut leave, mut arrive, before) = (0, 0, self.heard.0);
        let trunk = self.nodes[0].trunks(self.now).next();
        self.before = trunk.map(|trunk| trunk.stats).unwrap_or_default();
        for _ in 0..STEPS {
            let (left, arrived) = self.step(each);
            (leave, arrive) = (leave + left, arrive + arrived);
        }
        let packets = (self.heard.0 - before).max(1) as f64;
        (leave as f64 / packets, arrive as f64 / packets)
    }

    /// Mean bytes of a packet that left since the measurement began; of a trunk packet, if there is
    /// a trunk.
    fn bytes(&self) -> f64 {
        let trunk = self.nodes[0].trunks(self.now).next();
        trunk.map_or(PAYLOAD as f64, |trunk| {
            let sent = |count: fn(&trunk::Stats) -> u64| count(&trunk.stats) - count(&self.before);
            sent(|s| s.trunk_bytes) as f64 / sent(|s| s.trunk_packets).max(1) as f64
        })
    }

    /// Sends one packet of each of `each` calls at the same time, and nothing else.
    fn step(&mut self, each: usize) -> (u128, u128) {
        self.now += Duration::from_millis(20) * each as u32 / u32::from(CALLS);
        self.calls.iter_mut().take(each).for_each(|(_, message)| next_rtp(message));
        let began = clock::now();
        for _ in 0..each {
            let (session, message) = &self.calls[0];
            self.nodes[0].session_recv(self.now, *session, message, &mut self.heard);
            self.calls.rotate_left(1);
        }
        let due = self.now + Duration::from_millis(2);
        self.nodes[0].handle_timeout(due, &mut self.heard);
        self.nodes[0].transmit(due, &mut self.arena);
        let left = clock::now().since(began).as_nanos();
        let arrived = self.carry(0);
        self.nodes[1].handle_timeout(due, &mut self.heard);
        self.nodes[1].transmit(due, &mut self.arena);
        self.carry(1);
        (left, arrived)
    }

    /// Delivers the packets that node `from` sends to the other node. Returns the time that
    /// receiving them took, ns.
    fn carry(&mut self, from: usize) -> u128 {
        let mut spent = 0;
        let source = address(if from == 0 { HERE } else { THERE });
        for run in self.arena.runs() {
            for envelope in self.arena.envelopes(run) {
                let mut bytes = [0; 1_500];
                bytes[..envelope.len()].copy_from_slice(envelope);
                let bytes = &mut bytes[..envelope.len()];
                let mut batch = [RxDatagram { at: self.now, from: source, local: None, bytes }];
                let began = clock::now();
                self.nodes[1 - from].recv(self.now, &mut batch, &mut self.heard);
                spent += clock::now().since(began).as_nanos();
            }
        }
        self.arena.clear();
        spent
    }
}
