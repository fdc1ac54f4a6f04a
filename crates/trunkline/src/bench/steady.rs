//! The steady state: many calls through the measured node, with loss before and behind it, so that
//! it both requests retransmissions and answers such requests.

use super::under_test::{Contestant, DOWNSTREAM, RELAY, UPSTREAM, UnderTest};
use super::{Error, cannot};
use crate::call::sleep_until;
use crate::clock;
use crate::datapath::mmsg::{BATCH, RxBatch, TxBatch, TxItem};
use serde::Serialize;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Impairment, LinkModel, Loss, PacketFate};
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Drained, Node, SendOutcome, Sink, Start};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToNode};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

/// Counts of the measured node.
#[derive(Serialize)]
pub struct Report {
    pub flows: u32,
    pub loss_percent: f64,
    pub seconds: f64,
    /// Real-time packets that the node accepted.
    pub packets: u64,
    pub repeats: u64,
    pub requests: u64,
    /// Heap allocations of its packet thread in that time.
    pub allocations: u64,
}

const LOSS: f64 = 0.05;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// A neighbour in this thread: a real node on a real socket, with loss of its datagrams in both
/// directions.
struct Neighbour {
    node: Node,
    sessions: Vec<SessionId>,
    lossy: Impairment,
    rx: RxBatch,
    tx: TxBatch,
    arena: TxArena,
}

/// Applications that accept everything and keep nothing.
struct Hole;

impl Sink for Hole {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

impl Neighbour {
    fn new(id: NodeId, relay: std::net::SocketAddr, flows: u32) -> Result<Neighbour, Error> {
        let mut config = Config::new(id);
        let mut link = link::Config::new(RELAY);
        link.address = Some(relay);
        config.links.push(link);
        config.routes.push(StaticRoute { to: None, via: RELAY, onward: Duration::ZERO });
        let now = clock::now();
        let mut node =
            Node::new(config, Start::simulated(now, Incarnation(clock::since_epoch()), 1))
                .map_err(|_| Error::Broken("a neighbour refused its configuration"))?;
        let mut sessions = Vec::new();
        for port in 0..flows {
            let id = node.session_open().ok_or(Error::Broken("too many flows"))?;
            let bind = ToNode::Bind { version: SESSION_VERSION, port: 1_000 + port as u16 };
            node.session_recv(now, id, &message(&bind, &[]), &mut Hole);
            sessions.push(id);
        }
        let model = LinkModel { loss: Loss::Bernoulli { p: LOSS }, ..LinkModel::default() };
        let lossy = Impairment::new(model, 1, id.0.into())
            .map_err(|_| Error::Broken("the loss is out of range"))?;
        let (rx, tx, arena) = (RxBatch::new(), TxBatch::new(), crate::datapath::record::arena());
        Ok(Neighbour { node, sessions, lossy, rx, tx, arena })
    }

    fn survives(lossy: &mut Impairment, now: Time, bytes: usize) -> bool {
        matches!(lossy.offer(now, bytes), PacketFate::Deliver(_))
    }

    fn take(&mut self, socket: &UdpSocket, now: Time) -> Result<(), Error> {
        while self.rx.recv(socket.as_fd()).map_err(cannot("receive"))? > 0 {
            let mut batch = arrayvec::ArrayVec::<RxDatagram<'_>, BATCH>::new();
            for (m, bytes) in self.rx.iter_mut() {
                if Self::survives(&mut self.lossy, now, m.len) {
                    batch.push(RxDatagram { at: now, from: m.from, local: None, bytes });
                }
            }
            self.node.recv(now, &mut batch, &mut Hole);
        }
        Ok(())
    }

    fn give(&mut self, socket: &UdpSocket, now: Time) {
        self.node.handle_timeout(now, &mut Hole);
        loop {
            let drained = self.node.transmit(now, &mut self.arena);
            let mut items = arrayvec::ArrayVec::<TxItem<'_>, BATCH>::new();
            for run in self.arena.runs() {
                for bytes in self.arena.envelopes(run) {
                    if Self::survives(&mut self.lossy, now, bytes.len()) {
                        items.push(TxItem::new(run.to, bytes));
                    }
                    if items.is_full() {
                        let _ = self.tx.send(socket.as_fd(), items.drain(..));
                    }
                }
            }
            let _ = self.tx.send(socket.as_fd(), items.drain(..));
            drop(items);
            self.arena.clear();
            if drained == Drained::All {
                return;
            }
        }
    }
}

fn message(m: &ToNode<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    let mut w = Writer::new(&mut bytes);
    // Sixteen bytes hold any head.
    let _ = m.emit_head(&mut w);
    let n = w.len();
    bytes.truncate(n);
    bytes.extend_from_slice(payload);
    bytes
}

/// Runs `flows` calls for a fixed time.
pub fn run(flows: u32) -> Result<Report, Error> {
    let test = UnderTest::start(Contestant::RealTime)?;
    let mut up = Neighbour::new(UPSTREAM, test.entry, flows)?;
    let mut down = Neighbour::new(DOWNSTREAM, test.entry, flows)?;
    let sends: Vec<_> = (0..flows)
        .map(|flow| {
            let (to, port) = (DOWNSTREAM, 1_000 + flow as u16);
            let head = ToNode::Send {
                service: Service::RealTime,
                deadline_ms: 100,
                to,
                port,
                payload: &[],
            };
            message(&head, &[0; 172])
        })
        .collect();
    let start = clock::now();
    let mut before = None;
    let (mut due, mut next) = (start, 0usize);
    // Each step sends one millisecond's share of fifty packets per second and call.
    let per_step = (flows as usize).div_ceil(20);
    while due.since(start) < WARM_UP + MEASURED {
        sleep_until(due);
        due += Duration::from_millis(1);
        let now = clock::now();
        for _ in 0..per_step {
            let flow = next % flows as usize;
            up.node.session_recv(now, up.sessions[flow], &sends[flow], &mut Hole);
            next += 1;
        }
        up.take(&test.upstream, now)?;
        up.give(&test.upstream, now);
        down.take(&test.downstream, now)?;
        down.give(&test.downstream, now);
        if before.is_none() && due.since(start) >= WARM_UP {
            // Take two snapshots: the allocations of a snapshot show up in the second one.
            let first = test.snapshot();
            before = test.snapshot().zip(first).map(|(b, a)| (clock::now(), a, b));
        }
    }
    let after = test.snapshot().ok_or(Error::Broken("the packet thread does not answer"))?;
    let (since, first, before) = before.ok_or(Error::Broken("the packet thread was silent"))?;
    test.stop()?;
    let of_a_look = before.thread.allocations - first.thread.allocations;
    let delta = |pick: fn(link::ServiceStats) -> u64| -> u64 {
        let sum = |s: &crate::datapath::Snapshot| -> u64 {
            s.links.iter().map(|l| pick(l.stats.of(Service::RealTime))).sum()
        };
        sum(&after) - sum(&before)
    };
    Ok(Report {
        flows,
        loss_percent: LOSS * 100.0,
        seconds: clock::now().since(since).as_secs_f64(),
        packets: delta(|s| s.receiver.map_or(0, |r| r.received)),
        repeats: delta(|s| s.retransmissions.envelopes),
        requests: delta(|s| s.requests.envelopes),
        allocations: (after.thread.allocations - before.thread.allocations)
            .saturating_sub(of_a_look),
    })
}
