//! Beyond figure 12: the closed form that figures 12 and 13 are drawn by, beside
//! packets over the overlay's own nodes, on the ways that expected latency
//! chooses.

use super::delivery::{DETECTION_NS, Law, Link, delivered};
use super::network::Network;
use super::{FEW, PAPER};
use crate::chain::{Bursts, Chain, PACKET, Policy, SECONDS_PER_HOP};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style};
use crate::table::{Cell, Column, Table};
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::stats::Mean;
use trunkline_sim::overlay::route::{CostModel, Formula, Metric};

/// A row: one way through one graph.
const COLUMNS: &[Column] = &[
    Column::number("diameter_ms", 0),
    Column::number("way", 0),
    Column::number("links", 0),
    Column::number("lossy", 0),
    Column::number("latency_ms", 3),
    Column::number("sent", 0),
    Column::number("packets_pct", 4),
    Column::number("packets_low_pct", 4),
    Column::number("packets_high_pct", 4),
    Column::number("exact_pct", 4),
    Column::number("paper_pct", 4),
    Column::number("slower_pct", 4),
    Column::number("off_pct", 4),
    Column::number("off_se", 2),
];

const DIAMETERS: [u64; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95];

pub(super) fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "routes-in-packets",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figure()],
    }
}

/// So many ways of one diameter, and packets over each.
#[derive(Clone, Copy, Debug)]
struct Ways {
    diameter_ms: u64,
    ways: u64,
    packets: u64,
    sabotage: Sabotage,
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let diameters: &[u64] = size.pick(&[80], &DIAMETERS, &DIAMETERS);
    let point = |&diameter_ms: &u64| {
        let (ways, packets) = size.pick((2, 4_000), (4, 20_000), (20, 100_000));
        let ways = Ways { diameter_ms, ways, packets, sabotage };
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

impl Ways {
    fn measure(&self, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
        let draw = |k| self.one(k, inputs.seed.wrapping_add(k));
        (0..self.ways).map(draw).collect()
    }

    fn one(&self, number: u64, seed: u64) -> Result<Vec<Cell>, PointError> {
        let network = Network::draw(FEW, Duration::from_millis(self.diameter_ms), seed);
        let model = CostModel { formula: Formula::Paper, ..CostModel::default() };
        let way = network.by_metric(Metric::ExpectedLatency, &model);
        let links: Vec<Link> = way.iter().map(|&l| network.links[l]).collect();
        let calls = if self.sabotage.is("one-call") { 1 } else { 10 };
        debug_assert_eq!(u128::from(DETECTION_NS), (PACKET / 10).as_nanos());
        let chain = Chain {
            links: links.iter().map(model_of).collect(),
            policy: Policy::paper(),
            calls,
            packets: self.packets / u64::from(calls),
        };
        let missed = chain.run(seed)?.outcome().missed;
        let exact = delivered(&links, &Law::EXACT);
        let arrived = 1.0 - missed.estimate;
        // What chance alone does to a share.
        let chance = libm::sqrt(exact * (1.0 - exact) / missed.cases as f64);
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
            (100.0 * delivered(&links, &Law { detection: 2 * DETECTION_NS, ..Law::EXACT })).into(),
            (100.0 * (arrived - exact)).into(),
            (if chance > 0.0 { (arrived - exact) / chance } else { 0.0 }).into(),
        ])
    }
}

fn model_of(link: &Link) -> LinkModel {
    let loss = Bursts::PAPER[0].losing(link.loss);
    LinkModel { delay: Duration::from_nanos(link.delay), loss, ..LinkModel::default() }
}

/// At one diameter, how much more of the packets are in time than `column` says,
/// points: the mean of the ways and its interval.
fn off(table: &Table, column: &str, diameter_ms: f64) -> Option<Mean> {
    let here = table.iter().filter(|r| r.number("diameter_ms") == diameter_ms);
    let off: Vec<f64> = here.map(|r| r.number("packets_pct") - r.number(column)).collect();
    (!off.is_empty()).then(|| Mean::of(&off))
}

fn chart(table: &Table) -> Chart {
    let names = [
        ("exact_pct", "2p² − p³"),
        ("paper_pct", "2p² − 3p³"),
        ("slower_pct", "2p² − p³, Δ = 4 ms"),
    ];
    let line = |(n, (column, name)): (usize, (&str, &str))| {
        let mark = |x: f64| {
            off(table, column, x).map(|m| Mark { x, y: m.estimate, interval: Some(m.interval) })
        };
        let points = DIAMETERS.iter().filter_map(|d| mark(*d as f64)).collect();
        Series { name: name.to_owned(), style: Style::nth(n), points }
    };
    Chart {
        title: "Packets in time beside the closed form".into(),
        x: Axis::linear("network diameter (ms)", (10.0, 100.0), 10.0),
        y: Axis::linear("packets, less what is expected (points)", (-0.5, 0.5), 0.1),
        series: names.into_iter().enumerate().map(line).collect(),
    }
}

fn figure() -> Figure {
    Figure {
        name: "fig12b",
        title: "The closed form of figures 12 and 13 beside packets",
        section: "IV-B",
        says: "x",
        chart: Box::new(chart),
        claims: Vec::new(),
    }
}
