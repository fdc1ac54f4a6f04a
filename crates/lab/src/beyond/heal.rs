//! Time until all nodes of an overlay agree on its state, and the routing traffic until then.

mod figures;

use super::PAPER;
use super::overlay::Settings;
use crate::chain::Bursts;
use crate::experiment::{Cells, Experiment, Inputs, Point, Sabotage, Size};
use crate::table::{Cell, Column};
use crate::voip_overlay::without_packets;
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::stats::Mean;
use trunkline_base::{Rng, rng};
use trunkline_overlay::wire::Metric;
use trunkline_sim::random::{Graph, Waxman};
use trunkline_sim::{HostId, WireEnd, WireId, World, WorldError};

const COLUMNS: &[Column] = &[
    Column::text("loss").parameter(),
    Column::number("nodes", 0).parameter(),
    Column::number("links", 0).parameter(),
    Column::text("event").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("wires", 1),
    Column::number("converged_s", 3),
    Column::number("converged_low_s", 3),
    Column::number("converged_high_s", 3),
    Column::number("converged_most_s", 3),
    Column::number("flooded_kb", 1),
    Column::number("flooded_low_kb", 1),
    Column::number("flooded_high_kb", 1),
    Column::number("records", 0),
    Column::number("repeated_pct", 1),
    Column::number("stale", 0),
];

/// The events, in the order in which they happen.
const EVENTS: [&str; 6] = ["start", "quiet", "cut", "crash", "partition", "heal"];
/// Resolution at which convergence is measured.
const STEP: Duration = Duration::from_millis(20);
/// The overlay has converged once all nodes have agreed for this long.
const CALM: Duration = Duration::from_secs(2);
/// An overlay that does not agree within this time counts as not converging.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two events: links that came back are up again, and measured.
const APART: Duration = Duration::from_secs(12);
/// Time after the start until every node has measured the loss of its links. At five hellos a
/// second, bursts of 5 % come four times a minute, and the first few change the topology for all
/// nodes.
const LEARNT: Duration = Duration::from_secs(180);
/// Length of the quiet event, a minute in which nothing happens.
const QUIET: Duration = Duration::from_secs(60);

/// Names and shares of loss on all links.
const LOSSES: [(&str, f64); 2] = [("none", 0.0), ("5/75", 0.05)];
const BURSTY: Bursts = Bursts { burstiness: Some(0.75), spacing: None };

/// The experiment on how soon overlays of many nodes agree on their state.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "heal",
        revision: 4,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let sizes: &[u32] = size.pick(&[10], &[25], &[10, 25, 50, 100, 200]);
    let [settings, ..] = Settings::all(sabotage);
    let mut points = Vec::new();
    for (loss, p) in LOSSES {
        for &nodes in sizes {
            let runs = size.pick(1, 3, if nodes <= 100 { 20 } else { 5 });
            let settings = settings.clone().broken_for(sabotage, nodes);
            let measure = move |inputs: &Inputs<'_>| {
                let one = |run| history(&settings, nodes, p, inputs.seed.wrapping_add(run));
                let runs: Vec<_> = (0..runs).map(one).collect::<Result<_, _>>()?;
                Ok(rows(loss, nodes, &runs))
            };
            points.push(Point {
                key: format!("{nodes}-nodes-loss-{}", loss.replace('/', "-")),
                x: nodes.into(),
                figures: vec!["heal", "heal-bytes"],
                weight: 1.5e-3 * f64::from(nodes * nodes) * runs as f64 / 10.0,
                measure: Box::new(measure),
            });
        }
    }
    points
}

/// Outcome of one event.
#[derive(Clone, Copy, Default)]
struct EventOutcome {
    /// Number of wires that the event cut or restored.
    wires: usize,
    /// Seconds until all nodes agreed for good.
    converged: f64,
    /// Bytes and records of routing frames, summed over all nodes, and how many of the records were
    /// retransmissions.
    bytes: u64,
    records: u64,
    repeated: u64,
    /// Pairs of nodes in which one lacks the other's newest record at the end.
    stale: usize,
}

fn rows(loss: &str, nodes: u32, runs: &[[EventOutcome; EVENTS.len()]]) -> Cells {
    let row = |(n, event): (usize, &str)| {
        let here: Vec<EventOutcome> = runs.iter().map(|r| r[n]).collect();
        let all = |of: fn(&EventOutcome) -> f64| here.iter().map(of).collect::<Vec<_>>();
        let converged = all(|o| o.converged);
        let most = converged.iter().copied().fold(0.0, f64::max);
        let (mean, flooded) = (Mean::of(&converged), Mean::of(&all(|o| o.bytes as f64 / 1e3)));
        let records = Mean::of(&all(|o| o.records as f64)).estimate;
        let repeated = Mean::of(&all(|o| o.repeated as f64)).estimate;
        let mut row: Vec<Cell> = vec![loss.into(), u64::from(nodes).into()];
        row.extend([Cell::from(u64::from(3 * nodes)), event.into(), (runs.len() as u64).into()]);
        row.push(Mean::of(&all(|o| o.wires as f64)).estimate.into());
        for mean in [mean, flooded] {
            row.extend([mean.estimate, mean.interval.0, mean.interval.1].map(Cell::from));
        }
        row.insert(9, most.into());
        row.extend([records, 100.0 * repeated / records].map(Cell::from));
        row.push(here.iter().map(|o| o.stale as u64).sum::<u64>().into());
        row
    };
    EVENTS.into_iter().enumerate().map(row).collect()
}

/// Takes one overlay through all events.
fn history(
    settings: &Settings,
    nodes: u32,
    loss: f64,
    seed: u64,
) -> Result<[EventOutcome; EVENTS.len()], WorldError> {
    let graph = Waxman::continent(nodes).draw(seed);
    let mut topology = graph.topology();
    for host in (0..nodes).map(HostId) {
        let config = topology.config_mut(host);
        for link in &mut config.links {
            settings.adjust(link);
            without_packets(link);
        }
        config.routing = Some(settings.routing.clone());
    }
    let mut world = topology.build(seed)?;
    for wire in (0..world.wires()).map(WireId) {
        for end in [WireEnd::First, WireEnd::Second] {
            let model = LinkModel { loss: BURSTY.losing(loss), ..world.model(wire, end).clone() };
            world.change(wire, end, model)?;
        }
    }
    let mut rng = rng(seed, 1);
    let mut life = Life { world, graph };
    let start = life.settle(0);
    let quiet = life.quiet();
    let cut = life.cut(&mut rng);
    let crash = life.crash(&mut rng)?;
    let [partition, heal] = life.partition();
    Ok([start, quiet, cut, crash, partition, heal])
}

struct Life {
    world: World,
    graph: Graph,
}

impl Life {
    /// Continues until all nodes have agreed for [`CALM`].
    fn settle(&mut self, wires: usize) -> EventOutcome {
        let (start, before) = (self.world.now(), self.said());
        let mut agreed = start;
        let mut heard = before;
        loop {
            let now = self.world.now();
            if self.world.disagreement(Metric::default()).is_some() {
                agreed = now + STEP;
                heard = self.said();
            }
            if now.since(agreed) >= CALM || now.since(start) >= PATIENCE {
                break;
            }
            self.world.run_until(now + STEP);
        }
        let [bytes, records, repeated] = [0, 1, 2].map(|n| heard[n] - before[n]);
        let converged = agreed.since(start).as_secs_f64();
        EventOutcome { wires, converged, bytes, records, repeated, stale: self.world.stale() }
    }

    fn rest(&mut self) {
        self.world.run_until(self.world.now() + APART);
    }

    /// Bytes, records and retransmissions that all nodes have sent so far.
    fn said(&self) -> [u64; 3] {
        let hosts = (0..self.world.hosts()).map(HostId);
        let stats = hosts.filter_map(|h| Some(self.world.node(h).router()?.stats()));
        stats.fold([0; 3], |[b, n, r], s| [b + s.sent_bytes, n + s.sent, r + s.repeated])
    }

    /// A minute without events.
    fn quiet(&mut self) -> EventOutcome {
        self.world.run_until(self.world.now() + LEARNT);
        let before = self.said();
        self.world.run_until(self.world.now() + QUIET);
        let after = self.said();
        let [bytes, records, repeated] = [0, 1, 2].map(|n| after[n] - before[n]);
        let stale = self.world.stale();
        EventOutcome { wires: 0, converged: f64::NAN, bytes, records, repeated, stale }
    }

    /// A wire is cut, and restored once all nodes have noticed.
    fn cut(&mut self, rng: &mut Rng) -> EventOutcome {
        let wire = WireId((rng.next_u64() % u64::from(self.world.wires())) as u32);
        self.world.cut(wire);
        let outcome = self.settle(1);
        self.world.mend(wire);
        self.rest();
        outcome
    }

    /// A node dies, and starts again once all nodes have noticed.
    fn crash(&mut self, rng: &mut Rng) -> Result<EventOutcome, WorldError> {
        let host = HostId((rng.next_u64() % u64::from(self.world.hosts())) as u32);
        self.world.crash(host);
        let outcome = self.settle(0);
        self.world.restart(host)?;
        self.rest();
        Ok(outcome)
    }

    /// All wires between the western and the eastern half of the nodes are cut, and restored once
    /// all nodes have noticed.
    fn partition(&mut self) -> [EventOutcome; 2] {
        let mut xs: Vec<f64> = self.graph.places.iter().map(|p| p.0).collect();
        xs.sort_unstable_by(f64::total_cmp);
        let border = xs[xs.len() / 2];
        let west = |h: HostId| self.graph.places[h.0 as usize].0 < border;
        let links = (0..).map(WireId).zip(&self.graph.links);
        let crossing: Vec<WireId> =
            links.filter(|(_, l)| west(l.0) != west(l.1)).map(|(wire, _)| wire).collect();
        crossing.iter().for_each(|&wire| self.world.cut(wire));
        let partition = self.settle(crossing.len());
        self.rest();
        crossing.iter().for_each(|&wire| self.world.mend(wire));
        [partition, self.settle(crossing.len())]
    }
}
