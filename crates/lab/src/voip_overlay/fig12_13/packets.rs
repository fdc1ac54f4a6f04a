//! Beyond figure 12: the closed form behind figures 12 and 13, compared with packets between
//! overlay nodes, on the paths that expected latency selects.

use super::delivery::{DETECTION_NS, Law, Link, delivered};
use super::network::{MAX_LOSS, Network};
use super::{FEW, PAPER};
use crate::chain::{Bursts, Chain, Policy, SECONDS_PER_HOP};
use crate::claim::{Bound, Claim, Measured, maximum};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use crate::voip_overlay::unanswered;
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::rng;
use trunkline_base::stats::Mean;
use trunkline_overlay::route::{CostModel, Formula};
use trunkline_overlay::wire::Metric;

/// A row has one path through one graph.
const COLUMNS: &[Column] = &[
    Column::number("diameter_ms", 0).parameter(),
    Column::number("way", 0).parameter(),
    Column::number("links", 0),
    Column::number("lossy", 0),
    Column::number("latency_ms", 3),
    Column::number("sent", 0),
    Column::number("packets_pct", 4),
    Column::number("packets_low_pct", 4),
    Column::number("packets_high_pct", 4),
    Column::number("exact_pct", 4),
    Column::number("paper_pct", 4),
    Column::number("near_pct", 4),
    Column::number("off_pct", 4),
    Column::number("off_se", 2),
];

const DIAMETERS: [u64; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95];

pub(super) fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "routes-in-packets",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figure()],
        testbed: None,
    }
}

/// A number of paths of one diameter, and packets over each.
#[derive(Clone, Copy, Debug)]
struct PathSet {
    diameter_ms: u64,
    ways: u64,
    packets: u64,
    sabotage: Sabotage,
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let diameters: &[u64] = size.pick(&[80], &DIAMETERS, &DIAMETERS);
    let point = |&diameter_ms: &u64| {
        let (ways, packets) = size.pick((2, 4_000), (10, 20_000), (20, 100_000));
        let ways = PathSet { diameter_ms, ways, packets, sabotage };
        Point {
            key: format!("diameter{diameter_ms}"),
            x: diameter_ms as f64,
            figures: vec!["fig12b"],
            weight: 4.0 * (ways.ways * packets) as f64 * SECONDS_PER_HOP,
            measure: Box::new(move |inputs| ways.measure(inputs)),
        }
    };
    diameters.iter().map(point).collect()
}

impl PathSet {
    fn measure(&self, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
        (0..self.ways).map(|number| self.one(number, inputs.seed)).collect()
    }

    fn one(&self, number: u64, seed: u64) -> Result<Vec<Cell>, PointError> {
        let network = Network::draw(FEW, Duration::from_millis(self.diameter_ms), (seed, number));
        let model = CostModel { formula: Formula::Paper, ..CostModel::default() };
        let way = network.by_metric(Metric::ExpectedLatency, &model);
        let links: Vec<Link> = way.iter().map(|&l| network.links[l]).collect();
        // Δ is the interval between their packets.
        let calls = if self.sabotage.is("one-call") { 1 } else { 10 };
        let sabotage = self.sabotage;
        let policy = Policy::new("paper", move |config| {
            unanswered(sabotage, &mut config.realtime, MAX_LOSS / 2.0);
        });
        let chain = Chain {
            links: links.iter().map(model_of).collect(),
            policy,
            calls,
            packets: self.packets / u64::from(calls),
        };
        let missed = chain.run(rng(seed, number).next_u64())?.outcome().missed;
        let exact = delivered(&links, &Law::EXACT);
        let arrived = 1.0 - missed.estimate;
        // Variation of a share by chance alone.
        let sent = missed.cases as f64;
        let chance = libm::sqrt(sent * exact * (1.0 - exact) + 1.0) / sent;
        let latency: u64 = links.iter().map(|l| l.delay).sum();
        Ok(vec![
            self.diameter_ms.into(),
            (number + 1).into(),
            (links.len() as u64).into(),
            (links.iter().filter(|l| l.loss > 0.0).count() as u64).into(),
            (latency as f64 / 1e6).into(),
            missed.cases.into(),
            (100.0 * arrived).into(),
            (100.0 * (1.0 - missed.interval.1)).into(),
            (100.0 * (1.0 - missed.interval.0)).into(),
            (100.0 * exact).into(),
            (100.0 * delivered(&links, &Law::PAPER)).into(),
            (100.0 * near(&links)).into(),
            (100.0 * (arrived - exact)).into(),
            ((arrived - exact) / chance).into(),
        ])
    }
}

/// Share that by the closed form takes almost exactly the deadline, so that up to three more
/// packets before a loss is revealed would make the difference.
fn near(links: &[Link]) -> f64 {
    let until = |deadline| delivered(links, &Law { deadline, ..Law::EXACT });
    let deadline = Law::EXACT.deadline;
    until(deadline + 3 * DETECTION_NS) - until(deadline - 3 * DETECTION_NS)
}

fn model_of(link: &Link) -> LinkModel {
    let loss = Bursts::PAPER[0].losing(link.loss);
    LinkModel { delay: Duration::from_nanos(link.delay), loss, ..LinkModel::default() }
}

/// Measured share in time minus that of `column`, in percentage points: the mean over the paths and
/// its interval.
fn off<'a>(rows: impl Iterator<Item = Record<'a>>, column: &str) -> Option<Mean> {
    let off: Vec<f64> = rows.map(|r| r.number("packets_pct") - r.number(column)).collect();
    (!off.is_empty()).then(|| Mean::of(&off))
}

fn chart(table: &Table) -> Chart {
    let names = [("exact_pct", "2p² − p³ lost on a link"), ("paper_pct", "paper: 2p² − 3p³")];
    let line = |(n, (column, name)): (usize, (&str, &str))| {
        let mark = |x: f64| {
            let here = table.iter().filter(|r| r.number("diameter_ms") == x);
            off(here, column).map(|m| Mark { x, y: m.estimate, interval: Some(m.interval) })
        };
        let points = DIAMETERS.iter().filter_map(|d| mark(*d as f64)).collect();
        Series { name: name.to_owned(), style: Style::nth(n), points }
    };
    Chart {
        title: "Packets within 100 ms, compared with the closed form, paths by expected latency"
            .into(),
        x: Axis::linear("network diameter (ms)", (10.0, 100.0), 10.0),
        y: Axis::linear("packets minus the closed form (points)", (-0.3, 0.3), 0.1),
        series: names.into_iter().enumerate().map(line).collect(),
    }
}

fn figure() -> Figure {
    Figure {
        name: "fig12b",
        title: "The closed form of figures 12 and 13, compared with packets",
        section: "IV-B",
        caption: "Figures 12 and 13 are computed from the delay distribution that the paper derives \
               for a link and combines along a path. Here packets of ten calls, one every 2 ms, \
               pass through overlay nodes along such paths, with the paper's settings.",
        chart: one_panel(chart),
        claims: vec![mean(), chance()],
    }
}

fn mean() -> Claim {
    Claim {
        id: "mean",
        statement: "over all paths as many packets are in time as in the closed form, with 2p² − p³ \
               lost on a link",
        published: None,
        bound: Bound::within(
            -0.035,
            0.035,
            "a quarter of the 0.14 points that are 0.05 PESQ by Figure 1",
        ),
        unit: "points",
        decimals: 3,
        measure: Box::new(|table| {
            let none = || Measured::census(f64::NAN);
            off(table.iter(), "exact_pct")
                .map_or_else(none, |m| Measured::new(m.estimate, m.interval))
        }),
        sabotage: "one-call",
        ..Claim::default()
    }
}

fn chance() -> Claim {
    Claim {
        id: "chance",
        statement: "on paths where no delay is within 6 ms of the deadline the two differ by no more \
               than chance: at most 4 standard errors",
        published: None,
        bound: Bound::at_most(4.0, "of 200 paths one exceeds that by chance in 80 runs"),
        unit: "standard errors",
        measure: Box::new(|table| {
            let of = |near: bool, column: &'static str| {
                let rows = table.iter().filter(move |r| (r.number("near_pct") > 0.0) == near);
                rows.map(move |r| r.number(column).abs())
            };
            let count = of(true, "off_pct").count();
            let note = format!(
                "On {count} of {} paths some delay is; the largest difference among them is {:.2} \
                 points.",
                table.rows.len(),
                maximum(of(true, "off_pct").chain([0.0])),
            );
            Measured::census(maximum(of(false, "off_se"))).noting(note)
        }),
        why: "Δ = 2 ms is a mean. If the next packet is lost, too, a loss shows after 4 ms or \
              more; and a packet that was recovered on one link comes between others on the next, \
              where it may reveal a loss sooner. Within some milliseconds of the deadline that \
              makes the difference.",
        sabotage: "one-request-in-ten-unanswered",
        ..Claim::default()
    }
}
