//! Figures 12 and 13: packets that arrive in time between the two most distant nodes of a random
//! overlay, by the metric that selects the path (§IV-B); and the closed form behind these figures,
//! compared with packets.

mod claims;
pub mod delivery;
pub mod network;
pub mod packets;
pub mod search;

use super::PAPER;
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use delivery::Law;
use network::{MAX_LOSS, Network, Path};
use std::borrow::Cow;
use std::time::Duration;
use trunkline_base::stats::{Mean, Ratio};
use trunkline_overlay::route::{CostModel, Formula};
use trunkline_overlay::wire::Metric;

/// A row covers graphs of one size and diameter: the share of packets in time on the path of
/// `route`; or, with `less`, its mean advantage over the path of `less`, graph by graph, and the
/// share of graphs in which it is worse by more than [`MUCH`].
const COLUMNS: &[Column] = &[
    Column::number("nodes", 0).parameter(),
    Column::number("diameter_ms", 0).parameter(),
    Column::text("route").parameter(),
    Column::text("less").parameter(),
    Column::number("graphs", 0).parameter(),
    Column::number("delivered_pct", 4),
    Column::number("delivered_low_pct", 4),
    Column::number("delivered_high_pct", 4),
    Column::number("links", 2),
    Column::number("too_long_pct", 2),
    Column::number("worse_pct", 2),
    Column::number("worse_low_pct", 2),
    Column::number("worse_high_pct", 2),
];

/// Percentage points of delivery: 0.04 PESQ by Figure 1, in which 1 % of loss costs 0.37.
const MUCH: f64 = 0.1;

/// Stands in place of another route's name.
const NOTHING: &str = "-";

/// Shortest latency between the two most distant nodes, in ms. From 100 on only packets that are
/// not lost on the shortest path are in time.
const DIAMETERS: [u64; 12] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100];

/// How a path is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The cost that the paper defines.
    Expected,
    /// The daemon's cost, which increases with loss.
    Daemon,
    Latency,
    /// A link without loss costs one unit, a millionth: of several paths without loss, the one with
    /// the fewest links is selected.
    Loss,
    Hops,
    /// The greedy optimiser, see [`search::greedy`].
    Greedy,
    /// The best path, see [`search::best`].
    Best,
}

impl Rule {
    const ALL: [Rule; 7] = [
        Rule::Expected,
        Rule::Latency,
        Rule::Loss,
        Rule::Hops,
        Rule::Greedy,
        Rule::Daemon,
        Rule::Best,
    ];

    /// The rule's name in tables.
    fn name(self) -> &'static str {
        match self {
            Rule::Expected => Metric::ExpectedLatency.name(),
            Rule::Daemon => "daemon",
            Rule::Latency => Metric::Latency.name(),
            Rule::Loss => Metric::Loss.name(),
            Rule::Hops => Metric::Hops.name(),
            Rule::Greedy => "greedy",
            Rule::Best => "best",
        }
    }

    /// The rule's name in a chart's legend.
    fn label(self) -> &'static str {
        match self {
            Rule::Expected => "expected latency",
            Rule::Daemon => "the daemon's cost",
            Rule::Latency => "latency",
            Rule::Loss => "loss",
            Rule::Hops => "hops",
            Rule::Greedy => "greedy optimiser",
            Rule::Best => "best route",
        }
    }
}

/// Pairs that claims compare, on the same graphs.
const PAIRS: [(Rule, Rule); 8] = [
    (Rule::Loss, Rule::Best),
    (Rule::Expected, Rule::Best),
    (Rule::Expected, Rule::Loss),
    (Rule::Expected, Rule::Latency),
    (Rule::Expected, Rule::Hops),
    (Rule::Latency, Rule::Loss),
    (Rule::Greedy, Rule::Expected),
    (Rule::Daemon, Rule::Expected),
];

/// One point: a number of graphs of one size and diameter.
#[derive(Clone, Copy, Debug)]
struct Many {
    nodes: u32,
    diameter_ms: u64,
    graphs: u64,
    sabotage: Sabotage,
}

/// Largest number of nodes for which all paths can be compared.
const FEW: u32 = 15;

/// The experiments: the figures, and the comparison of their closed form with packets.
pub fn experiments() -> [Experiment; 2] {
    let figures = Experiment {
        paper: PAPER,
        name: "routes",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig12(), fig13()],
        testbed: None,
    };
    [figures, packets::experiment()]
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let diameters: &[u64] = size.pick(&[10, 80], &DIAMETERS, &DIAMETERS);
    let mut points = Vec::new();
    for (nodes, figure) in [(FEW, "fig12"), (100, "fig13")] {
        for &diameter_ms in diameters {
            let graphs = size.pick(4, 200, 1_000);
            let many = Many { nodes, diameter_ms, graphs, sabotage };
            points.push(Point {
                key: format!("nodes{nodes}-diameter{diameter_ms}"),
                x: diameter_ms as f64,
                figures: vec![figure],
                weight: graphs as f64 * if nodes == FEW { 2e-4 } else { 3e-3 },
                measure: Box::new(move |inputs| many.measure(inputs)),
            });
        }
    }
    points
}

impl Many {
    fn measure(&self, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
        let rules = Rule::ALL.into_iter().filter(|r| *r != Rule::Best || self.nodes == FEW);
        let rules: Vec<Rule> = rules.collect();
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); rules.len()];
        for k in 0..self.graphs {
            let diameter = Duration::from_millis(self.diameter_ms);
            let network = Network::draw(self.nodes, diameter, (inputs.seed, k));
            for (all, way) in found.iter_mut().zip(self.ways(&network, &rules)) {
                let share = network.delivered(&way, &self.counted());
                all.push(Found { delivered: 100.0 * share, links: way.len() as f64 });
            }
        }
        let of = |rule| rules.iter().position(|r| *r == rule).map(|at| &found[at]);
        let alone = rules.iter().map(|&r| (r, None));
        let pairs = PAIRS.into_iter().map(|(r, less)| (r, Some(less)));
        let mut rows = Cells::new();
        for (rule, less) in alone.chain(pairs) {
            match (of(rule), less.map(of)) {
                (Some(found), None) => rows.push(self.row(rule, NOTHING, found, None)),
                (Some(found), Some(Some(other))) => {
                    rows.push(self.row(rule, less.map_or(NOTHING, Rule::name), found, Some(other)));
                }
                _ => {}
            }
        }
        Ok(rows)
    }

    /// The law with the paper's shares and threshold.
    fn counted(&self) -> Law {
        let paper = Law::PAPER.deadline;
        let deadline = match () {
            // The codec's threshold, beyond which greedy paths get worse where latency is high.
            () if self.sabotage.is("threshold-of-150-ms") => paper * 3 / 2,
            () if self.sabotage.is("late-counts") => 3 * paper,
            () => paper,
        };
        Law { deadline, ..Law::PAPER }
    }

    /// The path of each rule.
    fn ways(&self, network: &Network, rules: &[Rule]) -> Vec<Path> {
        let mut ways: Vec<Path> = Vec::new();
        for &rule in rules {
            let way = self.way(network, rule, &ways);
            ways.push(way);
        }
        // The best path is found starting from the greedy one.
        let greedy = rules.iter().position(|r| *r == Rule::Greedy);
        if let (Some(at), true) = (greedy, self.sabotage.is("greedy-knows-all")) {
            ways[at] = best_of(network, &ways);
        }
        ways
    }

    /// The path of one rule; `known` holds some that have been computed already.
    fn way(&self, network: &Network, rule: Rule, known: &[Path]) -> Path {
        let paper = CostModel { formula: Formula::Paper, ..CostModel::default() };
        let is = |name| self.sabotage.is(name);
        let seen = self.seen_by(rule, network);
        let by = |metric| seen.by_metric(metric, &paper);
        match rule {
            // Without loss, the formula equals T.
            Rule::Expected if is("loss-ignored") => by(Metric::Latency),
            Rule::Daemon if is("daemon-ignores-loss") => by(Metric::Latency),
            Rule::Expected if is("expected-by-loss") => by(Metric::Loss),
            Rule::Daemon if is("daemon-by-loss") => by(Metric::Loss),
            Rule::Expected => by(Metric::ExpectedLatency),
            Rule::Daemon => seen.by_metric(Metric::ExpectedLatency, &CostModel::default()),
            Rule::Latency => by(Metric::Latency),
            Rule::Loss => by(Metric::Loss),
            Rule::Hops => by(Metric::Hops),
            Rule::Greedy => search::greedy(network, &Law::PAPER),
            Rule::Best => search::best(network, &Law::PAPER, best_of(network, known)),
        }
    }

    /// The network as a rule sees it.
    fn seen_by<'a>(&self, rule: Rule, network: &'a Network) -> Cow<'a, Network> {
        let swapped = match rule {
            Rule::Expected => "expected-swaps-loss",
            Rule::Loss => "loss-swapped",
            _ => return Cow::Borrowed(network),
        };
        // Links with little loss appear as those with much.
        match self.sabotage.is(swapped) {
            true => Cow::Owned(network.with_loss(|p| MAX_LOSS - p)),
            false => Cow::Borrowed(network),
        }
    }

    fn row(
        &self,
        rule: Rule,
        less: &str,
        found: &[Found],
        other: Option<&Vec<Found>>,
    ) -> Vec<Cell> {
        let values: Vec<f64> = match other {
            None => found.iter().map(|f| f.delivered).collect(),
            Some(other) => {
                found.iter().zip(other).map(|(a, b)| a.delivered - b.delivered).collect()
            }
        };
        let mean = Mean::of(&values);
        let within = |end: f64| if other.is_none() { end.clamp(0.0, 100.0) } else { end };
        let share = |of: fn(&Found) -> f64| match other {
            None => found.iter().map(of).sum::<f64>() / found.len() as f64,
            Some(_) => f64::NAN,
        };
        let worse = match other {
            None => [f64::NAN; 3],
            Some(_) => {
                let many = values.iter().filter(|v| **v < -MUCH).count() as u64;
                let Ratio { estimate, interval: (low, high), .. } =
                    Ratio::of_clusters(&[(many, self.graphs)]);
                [estimate, low, high].map(|share| 100.0 * share)
            }
        };
        let [worse, worse_low, worse_high] = worse.map(Cell::from);
        vec![
            u64::from(self.nodes).into(),
            self.diameter_ms.into(),
            rule.name().into(),
            less.into(),
            self.graphs.into(),
            mean.estimate.into(),
            within(mean.interval.0).into(),
            within(mean.interval.1).into(),
            share(|f| f.links).into(),
            share(|f| if f.delivered == 0.0 { 100.0 } else { 0.0 }).into(),
            worse,
            worse_low,
            worse_high,
        ]
    }
}

/// The path with the largest share in time.
fn best_of(network: &Network, ways: &[Path]) -> Path {
    let share = |way: &&Path| network.delivered(way, &Law::PAPER);
    let best = ways.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
    best.cloned().unwrap_or_default()
}

/// Result of one rule's path through one graph.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Share of packets that are in time, in percent.
    delivered: f64,
    links: f64,
}

fn chart(title: &str, table: &Table) -> Chart {
    let mark = |r: &Record<'_>| Mark {
        x: r.number("diameter_ms"),
        y: r.number("delivered_pct"),
        interval: Some((r.number("delivered_low_pct"), r.number("delivered_high_pct"))),
    };
    let mut series = Vec::new();
    for (n, rule) in Rule::ALL.into_iter().enumerate() {
        let here = |r: &Record<'_>| r.is("route", rule.name()) && r.is("less", NOTHING);
        let points: Vec<Mark> = table.iter().filter(here).map(|r| mark(&r)).collect();
        let style = match rule {
            Rule::Best => Style::CURVE,
            Rule::Daemon => Style::nth(0).pale(),
            _ => Style::nth(n),
        };
        if !points.is_empty() {
            series.push(Series { name: rule.label().to_owned(), style, points });
        }
    }
    Chart {
        title: title.to_owned(),
        x: Axis::linear("network diameter (ms)", (10.0, 100.0), 10.0),
        y: Axis::linear("packets within 100 ms (%)", (0.0, 100.0), 10.0),
        series,
    }
}

fn fig12() -> Figure {
    Figure {
        name: "fig12",
        title: "Delivery in time by routing metric, 15 nodes",
        section: "IV-B",
        caption: "Random overlays of 15 nodes and 30 links, half of which lose up to 5 %, 1,000 for \
               each diameter. While links are short, paths by loss deliver most in time, and those \
               by expected latency little less; as the diameter grows those by latency overtake \
               them. Those by expected latency are always better than those by latency. The greedy \
               optimiser fails where latency is high.",
        chart: one_panel(|t| chart("Packets in time over 15 nodes, 30 links", t)),
        claims: claims::few(),
    }
}

fn fig13() -> Figure {
    Figure {
        name: "fig13",
        title: "Delivery in time by routing metric, 100 nodes",
        section: "IV-B",
        caption: "The same with 100 nodes and 200 links, where not all paths can be compared: the \
               same order.",
        chart: one_panel(|t| chart("Packets in time over 100 nodes, 200 links", t)),
        claims: claims::many(),
    }
}
