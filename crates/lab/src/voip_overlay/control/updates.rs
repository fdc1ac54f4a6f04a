//! Number of link updates in an Ethernet packet.

use super::row;
use crate::experiment::{Inputs, Point, Sabotage, Size};
use rand::Rng as _;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::rng;
use trunkline_overlay::link::{IP_UDP_HEADERS, LinkCost, LinkId};
use trunkline_overlay::route::update::{RouteFrame, Update, path_number, sign};
use trunkline_overlay::route::{Advert, Config, CostModel, Neighbour, Router, Unsigned};
use trunkline_overlay::wire::{ControlKind, ENVELOPE_OVERHEAD, NodeId};
use trunkline_sim::random::{Graph, Waxman};

/// Mean numbers of links of a node: the paper's networks (IV-B) have four.
const DEGREES: [u32; 6] = [3, 4, 6, 8, 10, 12];
const NODES: u32 = 100;
/// Largest IP packet in a regular Ethernet frame, in bytes.
pub const ETHERNET: usize = 1_500;
/// Number of links that change at once, in both directions.
const EVENTS: usize = 60;

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let mtu = if sabotage.is("half-a-packet") { ETHERNET / 2 } else { ETHERNET };
    let room = room(mtu);
    let overlays: u32 = size.pick(2, 20, 200);
    let degrees: &[u32] = size.pick(&[4], &DEGREES, &DEGREES);
    let point = |&degree: &u32| Point {
        key: format!("updates-{degree}"),
        x: degree.into(),
        figures: vec!["control-updates"],
        weight: 2e-2 * f64::from(overlays),
        measure: Box::new(move |inputs: &Inputs<'_>| {
            let waxman = Waxman { degree: degree.into(), ..Waxman::continent(NODES) };
            let seeds = || (0..u64::from(overlays)).map(|run| inputs.seed.wrapping_add(run));
            let of = |measure: fn(&Graph, usize, u64) -> f64| -> Vec<f64> {
                seeds().map(|seed| measure(&waxman.draw(seed), room, seed)).collect()
            };
            let x = degree.into();
            Ok(vec![
                row("updates in a packet", "transfer", x, &of(transfer)),
                row("updates in a packet", "events", x, &of(events)),
            ])
        }),
    };
    degrees.iter().map(point).collect()
}

/// Bytes for frames in an IP packet of `mtu` bytes.
fn room(mtu: usize) -> usize {
    mtu - IP_UDP_HEADERS - ENVELOPE_OVERHEAD
}

/// Mean number of links that an IP packet of `mtu` bytes describes when a node comes up in this
/// overlay.
pub fn links_in_a_packet(overlay: &Graph, mtu: usize) -> f64 {
    transfer(overlay, room(mtu), 0)
}

/// A router that has the records of a whole overlay, which it received from a neighbour that is in
/// none of them.
struct Teller {
    router: Router,
    now: Time,
    seq: u64,
    room: usize,
}

const SOURCE: LinkId = LinkId(0);
const LEARNER: LinkId = LinkId(1);
/// Record numbers begin at the wall clock: this time, in nanoseconds.
const WALL: u64 = 1_800_000_000_000_000_000;

type Links = BTreeMap<NodeId, Vec<Advert>>;

impl Teller {
    fn new(room: usize) -> Teller {
        let now = Time::from_millis(1);
        let config = Config::new(NodeId(9_001));
        let router = Router::new(config, Box::new(Unsigned), Box::new(Unsigned), WALL, now);
        let mut teller = Teller { router, now, seq: WALL, room };
        teller.meet(SOURCE);
        teller.drain(SOURCE);
        teller
    }

    /// Connects a neighbour that has no records.
    fn meet(&mut self, link: LinkId) {
        let id = NodeId(9_002 + u32::from(link.0));
        let rtt = Duration::from_millis(20);
        let neighbour = Neighbour { id, path: 0, restarted: true, rtt };
        self.router.link_up(self.now, link, neighbour);
    }

    /// Learns the records of all nodes' links.
    fn learn(&mut self, links: &Links) {
        self.seq += 1;
        for (&origin, links) in links {
            let update = Update {
                origin,
                seq: self.seq,
                fragment: 0,
                draining: false,
                digest: CostModel::default().digest(),
                links: links.clone(),
            };
            let Ok(signed) = update.emit() else { continue };
            let record = [&sign(signed, &Unsigned)[..], &[0, 0]].concat();
            let len = (record.len() as u16).to_be_bytes();
            let frame = [&[ControlKind::LinkState as u8][..], &len, &record].concat();
            self.router.recv(self.now, WALL, SOURCE, &frame);
            // Signatures are checked a few at a time.
            self.now += Duration::from_millis(1);
            self.router.handle_timeout(self.now);
        }
        self.drain(SOURCE);
    }

    /// The updates that are new to the neighbour at `link`, by the frames that carry them; all are
    /// acknowledged.
    fn drain(&mut self, link: LinkId) -> Vec<Vec<(NodeId, Advert)>> {
        let mut frames = Vec::new();
        // Sending is paced: a second is enough for all updates.
        for _ in 0..1_000 {
            self.now += Duration::from_millis(1);
            self.router.handle_timeout(self.now);
            while let Some(frame) = self.router.poll_frame(link, self.now, self.room) {
                let Ok(RouteFrame::LinkState(records)) = RouteFrame::parse(&frame) else {
                    continue;
                };
                let mut told = Vec::new();
                let mut acks = Vec::new();
                for record in records.flatten() {
                    // A record begins with the bytes that acknowledge it.
                    acks.extend(&record.bytes()[..13]);
                    told.extend(record.links().map(|advert| (record.key.origin, advert)));
                }
                let len = (acks.len() as u16).to_be_bytes();
                let ack = [&[ControlKind::Ack as u8][..], &len, &acks].concat();
                self.router.recv(self.now, WALL, link, &ack);
                frames.push(told);
            }
        }
        frames
    }
}

fn adverts(graph: &Graph) -> Links {
    let mut links = Links::new();
    for &(a, b, delay) in &graph.links {
        for (from, to) in [(a, b), (b, a)] {
            let cost = LinkCost::measured(delay, 0.0, None);
            let advert = Advert { neighbour: NodeId(to.0 + 1), path: path_number(""), cost };
            links.entry(NodeId(from.0 + 1)).or_default().push(advert);
        }
    }
    links.values_mut().for_each(|links| links.sort_unstable());
    links
}

/// Initial transfer to a node that has just come up: mean number of updates in a packet, except for
/// the last one, which is not full.
fn transfer(graph: &Graph, room: usize, _seed: u64) -> f64 {
    let mut teller = Teller::new(room);
    teller.learn(&adverts(graph));
    teller.meet(LEARNER);
    mean(&teller.drain(LEARNER), |_| true)
}

/// Many links begin to lose packets at once: number of new updates in a packet.
fn events(graph: &Graph, room: usize, seed: u64) -> f64 {
    let mut teller = Teller::new(room);
    let before = adverts(graph);
    teller.learn(&before);
    teller.meet(LEARNER);
    teller.drain(LEARNER);
    let mut after = Links::new();
    let mut rng = rng(seed, 1);
    let mut which: Vec<_> = graph.links.iter().map(|link| (rng.next_u64(), link)).collect();
    which.sort_unstable_by_key(|(drawn, _)| *drawn);
    for (_, &(a, b, _)) in which.into_iter().take(EVENTS) {
        for (from, to) in [(a, b), (b, a)] {
            let (from, to) = (NodeId(from.0 + 1), NodeId(to.0 + 1));
            let links = after.entry(from).or_insert_with(|| before[&from].clone());
            let link = links.iter_mut().filter(|link| link.neighbour == to);
            link.for_each(|link| link.cost.loss = 3_277);
        }
    }
    teller.learn(&after);
    mean(&teller.drain(LEARNER), |advert| advert.cost.loss > 0)
}

fn mean(frames: &[Vec<(NodeId, Advert)>], counts: fn(&Advert) -> bool) -> f64 {
    let Some((_, full)) = frames.split_last() else { return f64::NAN };
    let told = full.iter().flatten().filter(|(_, advert)| counts(advert)).count();
    told as f64 / full.len() as f64
}
