//! `trunkline bench flows`: cost of a packet at the two end nodes, by number of flows. Runs the
//! node's code alone, without sockets.

use super::markdown::Table;
use super::{Error, median, print_json};
use crate::clock;
use crate::datapath::FLOWS_AT_ONCE;
use crate::datapath::mmsg::BATCH;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, SendOutcome, Sink, Start};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
use trunkline_overlay::wire::{
    DATA_OVERHEAD, DataHeader, FlowHeader, HopHeader, Incarnation, NodeId, Null, ReceiverIndex,
    Seal, Service,
};

/// Measure what flows cost the nodes at their ends
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline bench flows --json

Nanoseconds per packet of 172 bytes, medians over the rounds; `arrive` is from an
unsealed link to the application, `leave` from the application to the link.
`look` is the time that packets wait while 256 flows are polled, in microseconds.")]
pub struct Args {
    /// Rounds of each measurement
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Applications that share the flows, each on a port of its own
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    sessions: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

#[derive(Serialize)]
struct Row {
    flows: u32,
    arrive_ns: f64,
    leave_ns: f64,
    look_us: f64,
}

const HERE: NodeId = NodeId(1);
const THERE: NodeId = NodeId(2);
const PAYLOAD: usize = 172;
/// Packets in each round: ten for each of 10,000 flows.
const PACKETS: u32 = 1_600 * BATCH as u32;

/// Runs `trunkline bench flows` and prints its result.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut ends = Vec::new();
    for flows in [1, 1_000, 10_000] {
        ends.push(End::new(flows, args.sessions)?);
    }
    // The first round fills the tables.
    for end in &mut ends {
        let _ = (end.arrive(), end.leave());
    }
    let mut rounds: Vec<Vec<(f64, f64)>> = vec![Vec::new(); ends.len()];
    for _ in 0..args.rounds {
        for (end, results) in ends.iter_mut().zip(&mut rounds) {
            results.push((end.arrive(), end.leave()));
        }
    }
    let row = |(end, results): (&End, Vec<(f64, f64)>)| Row {
        flows: end.flows,
        look_us: end.look(args.rounds),
        arrive_ns: median(results.iter().map(|r| r.0).collect()),
        leave_ns: median(results.iter().map(|r| r.1).collect()),
    };
    let rows: Vec<Row> = ends.iter().zip(rounds).map(row).collect();
    if args.json {
        print_json(&rows);
        return Ok(());
    }
    if args.markdown {
        markdown(args, &rows);
        return Ok(());
    }
    outln!("{:>6} {:>10} {:>9} {:>8}", "flows", "arrive ns", "leave ns", "look µs");
    for Row { flows, arrive_ns, leave_ns, look_us } in rows {
        outln!("{flows:>6} {arrive_ns:>10.0} {leave_ns:>9.0} {look_us:>8.1}");
    }
    Ok(())
}

fn markdown(args: &Args, rows: &[Row]) {
    let row = |r: &Row| {
        let numbers = [r.arrive_ns, r.leave_ns].map(|ns| format!("{ns:.0}"));
        [vec![r.flows.to_string()], numbers.into(), vec![format!("{:.1}", r.look_us)]].concat()
    };
    Table {
        title: "Flows that begin and end at a node",
        command: format!("flows --rounds {} --sessions {}", args.rounds, args.sessions),
        columns: &[
            "flows",
            "to the application, ns/packet",
            "from the application, ns/packet",
            "packets wait for a look at 256 flows, µs",
        ],
        rows: rows.iter().map(row).collect(),
        notes: vec!["The node's code alone, without sockets.".to_owned()],
    }
    .print();
}

/// Applications that accept everything and keep nothing.
struct Hole;

impl Sink for Hole {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

/// A node and its input.
struct End {
    flows: u32,
    node: Node,
    sessions: Vec<SessionId>,
    seal: Seal,
    next: u32,
    arena: TxArena,
    envelopes: Vec<[u8; DATA_OVERHEAD + PAYLOAD]>,
}

fn message(m: &ToNode<'_>, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    // The buffer is large enough for any head.
    let _ = m.emit_head(&mut w);
    [w.written(), payload].concat()
}

fn neighbour() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7_000).into()
}

impl End {
    fn new(flows: u32, sessions: u32) -> Result<End, Error> {
        let mut config = Config::new(HERE);
        let mut link = link::Config::new(THERE);
        link.address = Some(neighbour());
        config.links.push(link);
        config.routes.push(StaticRoute { to: None, via: THERE, onward: Default::default() });
        let start = Start::simulated(clock::now(), Incarnation(clock::since_epoch()), 1);
        let mut node =
            Node::new(config, start).map_err(|_| Error::Broken("a node refused its settings"))?;
        let (count, mut sessions) = (flows.min(sessions), Vec::new());
        for k in 0..count {
            let id = node.session_open().ok_or(Error::Broken("too many sessions"))?;
            let bind = ToNode::Bind { version: SESSION_VERSION, port: 1_000 + k as u16 };
            node.session_recv(clock::now(), id, &message(&bind, &[]), &mut Hole);
            sessions.push(id);
        }
        let index = ReceiverIndex::derived(THERE, HERE, "");
        let seal = Seal::Null(Null::new(index, Incarnation(clock::since_epoch())));
        let arena = crate::datapath::record::arena();
        let envelopes = vec![[0; DATA_OVERHEAD + PAYLOAD]; BATCH];
        Ok(End { flows, node, sessions, seal, next: 0, arena, envelopes })
    }

    /// Session of the `n`th packet, and the port at its other end.
    fn flow(&self, n: u32) -> (u16, u16) {
        let (flow, sessions) = (n % self.flows, self.sessions.len() as u32);
        ((flow % sessions) as u16, (2_000 + flow / sessions) as u16)
    }

    /// Nanoseconds per arriving packet.
    fn arrive(&mut self) -> f64 {
        let mut spent = 0;
        for _ in 0..PACKETS / BATCH as u32 {
            (0..BATCH).for_each(|i| self.fill(i));
            let now = clock::now();
            let datagram = |bytes| RxDatagram { at: now, from: neighbour(), local: None, bytes };
            let mut batch: arrayvec::ArrayVec<RxDatagram<'_>, BATCH> =
                self.envelopes.iter_mut().map(|e| datagram(&mut e[..])).collect();
            self.node.recv(now, &mut batch, &mut Hole);
            spent += clock::now().since(now).as_nanos();
        }
        self.rest();
        spent as f64 / f64::from(PACKETS)
    }

    fn fill(&mut self, i: usize) {
        let (session, port) = self.flow(self.next);
        let header = DataHeader {
            flow: FlowHeader {
                service: Service::RealTime,
                metric: trunkline_overlay::wire::Metric::default(),
                source: THERE,
                destination: HERE,
                source_port: port,
                destination_port: 1_000 + session,
                flow_seq: (self.next / self.flows) as u16,
            },
            hop: HopHeader {
                recovered: false,
                hop_limit: 8,
                link_seq: self.next as u16,
                remaining_ms: 80,
            },
        };
        self.next = self.next.wrapping_add(1);
        let envelope = &mut self.envelopes[i];
        // The envelope has exactly this much room.
        let _ = header.emit(PAYLOAD as u16, &mut Writer::new(Seal::frames_mut(envelope)));
        self.seal.seal(envelope);
    }

    /// Nanoseconds per departing packet, sealed into the arena.
    fn leave(&mut self) -> f64 {
        let mut spent = 0;
        let send = |port| ToNode::Send {
            service: Service::RealTime,
            deadline_ms: 100,
            to: THERE,
            port,
            payload: &[],
        };
        for _ in 0..PACKETS / BATCH as u32 {
            let messages: Vec<(SessionId, Vec<u8>)> = (0..BATCH)
                .map(|_| {
                    let (session, port) = self.flow(self.next);
                    self.next = self.next.wrapping_add(1);
                    let session = self.sessions[usize::from(session)];
                    (session, message(&send(port), &[0xd5; PAYLOAD]))
                })
                .collect();
            let now = clock::now();
            for (session, message) in &messages {
                self.node.session_recv(now, *session, message, &mut Hole);
            }
            self.node.transmit(now, &mut self.arena);
            spent += clock::now().since(now).as_nanos();
            self.arena.clear();
        }
        self.rest();
        spent as f64 / f64::from(PACKETS)
    }

    /// Microseconds to poll as many flows as the daemon polls at a time: the median over as many
    /// polls as there were rounds, each of different flows.
    fn look(&self, rounds: u32) -> f64 {
        let look = |round| {
            let now = clock::now();
            let from = u64::from(round * FLOWS_AT_ONCE as u32 % self.flows);
            std::hint::black_box(self.node.flows(now, from, FLOWS_AT_ONCE));
            clock::now().since(now).as_nanos() as f64 / 1e3
        };
        median((0..rounds).map(look).collect())
    }

    /// Handles the timers that are due.
    fn rest(&mut self) {
        self.node.handle_timeout(clock::now(), &mut Hole);
        self.node.transmit(clock::now(), &mut self.arena);
        self.arena.clear();
    }
}
