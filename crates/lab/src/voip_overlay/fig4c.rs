//! Beyond figure 4: every recovery policy on the same link.

use super::PAPER;
use super::fig4_5::{COLUMNS, LossPoint, exact_residual, residual};
use super::fig4b::{FLOOR, mark};
use crate::chain::{Bursts, Policy};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};
use trunkline_overlay::link::realtime::Recovery;

const LOSSES: [f64; 11] = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];

/// Residual loss if a request is sent in two envelopes at once: the packet is lost, and then both
/// of them or the retransmission too, p (1 − (1 − p²)(1 − p)).
pub fn twice_residual(p: f64) -> f64 {
    p * p + p * p * p - p * p * p * p
}

/// The experiment behind figure 4c: the same loss with each policy that a node can be configured
/// with.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "policies",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig4c()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[f64] = size.pick(&[5.0], &[1.0, 5.0, 10.0], &LOSSES);
    let mut points = Vec::new();
    for recovery in Recovery::all() {
        for &loss_pct in losses {
            // The claims read this loss.
            let most = if loss_pct == 10.0 { 1_000_000 } else { 200_000 };
            let packets = size.pick(4_000, most, 3_000_000);
            let policy = policy(sabotage, recovery, loss_pct / 100.0);
            let bursts = Bursts::PAPER[0];
            let one = LossPoint { links: 1, policy, calls: 10, packets, bursts, loss_pct };
            points.push(one.into_point("fig4c"));
        }
    }
    points
}

/// The paper's settings except for the policy, on links that lose `p` in both directions.
fn policy(sabotage: Sabotage, recovery: Recovery, p: f64) -> Policy {
    Policy::new(recovery.name(), move |config| {
        let realtime = &mut config.realtime;
        realtime.recovery = recovery;
        if sabotage.is("one-request-in-a-hundred-unanswered") {
            realtime.retransmit_ratio = 0.99 * p * (1.0 - p * p);
            realtime.retransmit_burst = 50;
        }
        if sabotage.is("one-envelope-for-twice") && recovery.name() == "twice" {
            realtime.recovery = Recovery::ONCE;
        }
    })
}

fn chart(table: &Table) -> Chart {
    let curve = |name: &str, style, of: fn(f64) -> f64| Series {
        name: name.into(),
        style,
        points: (1..=100)
            .map(|k| f64::from(k) / 10.0)
            .map(|x| Mark { x, y: 100.0 * of(x / 100.0), interval: None })
            .collect(),
    };
    let mut series = vec![
        curve("one request: 2p² − p³", Style::CURVE, exact_residual),
        curve("two at once: p² + p³ − p⁴", Style::SECOND_CURVE, twice_residual),
    ];
    for (n, recovery) in Recovery::all().enumerate() {
        let here = table.iter().filter(|r| r.is("policy", recovery.name()));
        let points: Vec<Mark> = here.map(|r| mark(&r)).collect();
        if !points.is_empty() {
            series.push(Series { name: recovery.name().into(), style: Style::nth(n), points });
        }
    }
    Chart {
        title: "Loss after recovery by each policy, one 10 ms link, ten calls".into(),
        x: Axis::linear("link loss rate, each direction (%)", (0.0, 10.0), 2.0),
        y: Axis::log("packets lost despite recovery (%)", (FLOOR, 10.0)),
        series,
    }
}

fn fig4c() -> Figure {
    Figure {
        name: "fig4c",
        title: "Loss after recovery by each policy, one link",
        section: "IV-A, beyond",
        caption: "Not in the paper. The setting of figure 4, with independent losses, with each \
               recovery policy and the paper's settings otherwise. With a second request in \
               parallel to the first, little remains but the loss of the single retransmission, \
               p². Zero loss is drawn at the bottom.",
        chart: one_panel(chart),
        claims: vec![twice(), ordered()],
    }
}

/// Residual loss of `policy` at this loss, in percent.
fn left(table: &Table, policy: &str, loss_pct: f64) -> Measured {
    let here = |r: &Record<'_>| r.is("policy", policy) && r.number("loss_pct") == loss_pct;
    table.iter().find(here).map_or(Measured::census(f64::NAN), |r| residual(&r))
}

fn twice() -> Claim {
    Claim {
        id: "twice",
        statement: "with two requests at once the residual loss is p² + p³ − p⁴, which is 1.09 % at 10 \
               % loss",
        published: None,
        bound: Bound::within(
            -4.0,
            4.0,
            "half of the difference from p², the loss if no request \
                                         were lost",
        ),
        unit: "% off",
        measure: Box::new(|table| {
            let expected = 100.0 * twice_residual(0.1);
            let off = left(table, "twice", 10.0).minus(&Measured::census(expected));
            off.times(100.0 / expected)
        }),
        at: &[10.0],
        why: "The packet is lost, and then both requests or the retransmission too: p (1 − (1 − \
              p²)(1 − p)).",
        sabotage: "one-request-in-a-hundred-unanswered",
        ..Claim::default()
    }
}

/// Policies from the largest residual loss to the smallest.
const ORDER: [&str; 4] = ["off", "once", "twice", "until-deadline"];

fn ordered() -> Claim {
    Claim {
        id: "ordered",
        statement: "at 10 % loss no recovery leaves more loss than one request, one request more than \
               two at once, and two more than requests until the deadline",
        published: None,
        bound: Bound::at_most(0.0, "p > 2p² − p³ > p² + p³ − p⁴, and the last has no such minimum"),
        unit: "adjacent pairs whose interval of the difference is not above 0",
        decimals: 0,
        measure: Box::new(|table| {
            let all = ORDER.map(|policy| left(table, policy, 10.0));
            if all.iter().any(|m| m.estimate.is_nan()) {
                return Measured::census(f64::NAN);
            }
            let apart = |pair: &&[Measured]| pair[0].minus(&pair[1]).interval.0 > 0.0;
            Measured::census((ORDER.len() - 1 - all.windows(2).filter(apart).count()) as f64)
        }),
        at: &[10.0],
        sabotage: "one-envelope-for-twice",
        ..Claim::default()
    }
}
