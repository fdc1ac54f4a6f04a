//! Properties of every network.

use crate::common::{Arrived, Turns, next, packet};
use proptest::prelude::*;
use std::time::Duration;
use trunkline_base::link_model::{Count, LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{Bins, Class, DirectionId, DropReason, EdgeLedger, Network, VertexId};

const CLASSES: u8 = 3;

/// A network as numbers: hosts, routers, and edges between any two of them.
#[derive(Clone, Debug)]
struct Plan {
    hosts: u32,
    routers: u32,
    edges: Vec<(u32, u32, Kind, [u64; 2])>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Perfect,
    Lossy,
    Narrow,
    Turns,
}

fn plan(kinds: &'static [Kind]) -> impl Strategy<Value = Plan> {
    (2u32..5, 1u32..6).prop_flat_map(move |(hosts, routers)| {
        let all = hosts + routers;
        let edge = (0..all, 0..all, prop::sample::select(kinds), prop::array::uniform2(0u64..20));
        let edges = prop::collection::vec(edge, 1..16);
        (edges, 3usize..40).prop_map(move |(edges, limit)| Plan { hosts, routers, edges, limit })
    })
}

impl Plan {
    fn build(&self, seed: u64) -> Network {
        let mut net = Network::new(seed);
        (0..self.hosts).for_each(|_| _ = net.host());
        (0..self.routers).for_each(|_| _ = net.router());
        for &(a, b, kind, ms) in &self.edges {
            let (a, b) = (VertexId(a), VertexId(b));
            let models = ms.map(|ms| LinkModel {
                delay: Duration::from_millis(ms),
                loss: if matches!(kind, Kind::Lossy) {
                    Loss::Bernoulli { p: 0.3 }
                } else {
                    Loss::None
                },
                rate: matches!(kind, Kind::Narrow).then(|| Bitrate::from_bps(200_000)),
                queue: Queue::Packets(2),
                ..LinkModel::default()
            });
            let [forward, reverse] = models;
            if let Kind::Turns = kind {
                let medium = net.medium(Turns::new(Bitrate::from_bps(300_000), 2));
                net.connect_over(a, b, medium, [0, 1], Duration::from_millis(ms[0]));
            } else {
                net.connect(a, b, forward, reverse).unwrap();
            }
        }
        net
    }

    fn directions(&self) -> impl Iterator<Item = DirectionId> {
        (0..2 * self.edges.len() as u32).map(DirectionId)
    }

    /// The smallest delay from each vertex to `to` in ms, by Bellman and Ford.
    fn distances(&self, to: u32) -> Vec<Option<u64>> {
        let mut best = vec![None; (self.hosts + self.routers) as usize];
        best[to as usize] = Some(0);
        for _ in 0..best.len() {
            for &(a, b, _, [there, back]) in &self.edges {
                for (from, via, ms) in [(a, b, there), (b, a, back)] {
                    // Hosts forward nothing.
                    let passes = via >= self.hosts || via == to;
                    let found = best[via as usize].filter(|_| passes).map(|d: u64| d + ms);
                    if let Some(found) = found {
                        let here = &mut best[from as usize];
                        *here = Some(here.map_or(found, |d: u64| d.min(found)));
                    }
                }
            }
        }
        best
    }
}

/// Sends, and polls in between; returns every delivery up to the end.
fn run(net: &mut Network, sends: &[Sent], end: Time) -> Vec<Arrived> {
    let (mut now, mut got) = (Time::ZERO, Vec::new());
    for &(gap, from, to, class, bytes) in sends {
        now += Duration::from_micros(gap);
        got.extend(std::iter::from_fn(|| next(net, now)));
        net.send(now, &packet(VertexId(from), VertexId(to), class, &vec![class; bytes]));
    }
    got.extend(std::iter::from_fn(|| next(net, end)));
    got
}

type Sent = (u64, u32, u32, u8, usize);

fn sends() -> impl Strategy<Value = Vec<Sent>> {
    prop::collection::vec((0u64..3_000, 0u32..2, 0u32..2, 0..CLASSES, 1usize..400), 1..150)
}

const ANY: &[Kind] = &[Kind::Perfect, Kind::Lossy, Kind::Narrow, Kind::Turns];

fn plus(a: Count, b: Count) -> Count {
    Count { packets: a.packets + b.packets, bytes: a.bytes + b.bytes }
}

proptest! {
    #[test]
    fn nothing_comes_from_nowhere_or_goes_there(
        plan in plan(ANY), seed in any::<u64>(), sends in sends(), end_ms in 0u64..400,
    ) {
        let mut net = plan.build(seed);
        net.set_limit(plan.limit);
        let bins = Bins { from: Time::ZERO, width: Duration::from_millis(7), count: 1_000 };
        plan.directions().for_each(|d| net.record(d, bins));
        let got = run(&mut net, &sends, Time::from_millis(end_ms));

        let mut under_way = Count::default();
        for class in (0..CLASSES).map(Class) {
            let flow = net.flow(class);
            let sent = sends.iter().filter(|s| s.3 == class.0);
            let expected = sent.fold(Count::default(), |mut c, s| { c.add(s.4); c });
            prop_assert_eq!(flow.sent, expected);
            let came = got.iter().filter(|d| d.header.class == class);
            let came = came.fold(Count::default(), |mut c, d| { c.add(d.header.bytes as usize); c });
            prop_assert_eq!(flow.delivered, came);
            // Packets on edges are those neither delivered nor dropped.
            let on_edges = plan.directions().map(|d| net.ledger_of(d, class).under_way());
            let on_edges = on_edges.fold(Count::default(), plus);
            prop_assert_eq!(on_edges.packets, net.under_way_of(class) as u64);
            prop_assert_eq!(flow.sent, plus(plus(flow.delivered, flow.all_dropped()), on_edges));
            under_way = plus(under_way, on_edges);
            // The ledgers of edges and vertices account for the same drops.
            let (mut lost, mut queue) = (0, 0);
            for ledger in plan.directions().map(|d| net.ledger_of(d, class)) {
                lost += ledger.lost.packets;
                queue += ledger.queue_dropped.packets;
            }
            let dropped = [DropReason::Loss, DropReason::Queue].map(|w| flow.dropped(w).packets);
            prop_assert_eq!(dropped, [lost, queue]);
        }
        prop_assert_eq!(under_way.packets, net.under_way() as u64);
        prop_assert!(net.under_way() <= plan.limit);
        for direction in plan.directions() {
            let classes = (0..CLASSES).map(|c| net.ledger_of(direction, Class(c)));
            let total = classes.fold(EdgeLedger::default(), |sum, l| sum.plus(&l));
            prop_assert_eq!(total, net.ledger(direction));
            // The model counts independently.
            if let Some(model) = net.decided(direction) {
                let decided = (model.offered, model.lost, model.queue_dropped);
                prop_assert_eq!((total.offered, total.lost, total.queue_dropped), decided);
                let out = plus(plus(total.arrived, total.under_way()), total.no_room);
                prop_assert_eq!(out, model.delivered);
            }
            let binned = (0..CLASSES).flat_map(|c| net.bins(direction, Class(c)));
            let binned = binned.fold([Count::default(); 2], |[o, a], b| {
                [plus(o, b.offered), plus(a, b.arrived)]
            });
            prop_assert_eq!(binned, [total.offered, total.arrived]);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_deliveries(
        plan in plan(ANY), seed in any::<u64>(), sends in sends(),
    ) {
        let deliveries = || {
            let got = run(&mut plan.build(seed), &sends, Time::from_millis(2_000));
            got.into_iter().map(|d| (d.at, d.header, d.payload)).collect::<Vec<_>>()
        };
        let got = deliveries();
        prop_assert!(got.is_sorted_by_key(|d| d.0), "in order of time");
        prop_assert_eq!(got, deliveries());
    }

    #[test]
    fn routes_are_shortest(plan in plan(&[Kind::Perfect]), from in 0u32..2, to in 0u32..2) {
        prop_assume!(from != to);
        let mut net = plan.build(0);
        net.send(Time::ZERO, &packet(VertexId(from), VertexId(to), 0, b"x"));
        let took = next(&mut net, Time::from_millis(10_000)).map(|d| d.at.as_micros() / 1_000);
        prop_assert_eq!(took, plan.distances(to)[from as usize]);
    }
}
