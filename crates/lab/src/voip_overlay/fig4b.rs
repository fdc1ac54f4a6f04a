//! Beyond figure 4: recovery that continues until the deadline, on the same axes.

use super::fig4_5::{COLUMNS, LossPoint, exact_residual, residual};
use super::{PAPER, burst_label};
use crate::chain::{Bursts, PACKET, Policy};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Record, Table};
use std::time::Duration;
use trunkline_base::stats::Z;
use trunkline_overlay::link::realtime::{self, Recovery};

const LOSSES: [f64; 12] = [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// Residual losses below this, in percent, are drawn at the bottom.
pub const FLOOR: f64 = 1e-5;

/// The daemon's default policy, with the paper's hellos so that nothing else differs.
pub fn until_deadline(sabotage: Sabotage) -> Policy {
    Policy::new("until-deadline", move |config| {
        config.realtime = realtime::Config::default();
        if sabotage.is("once") {
            config.realtime = realtime::Config::paper();
        }
        // Packets that are requested late before the deadline are gone: the ring holds 50 ms of ten
        // calls. With one call no ring is that short; it has at least 16 packets.
        if sabotage.is("kept-for-half-the-deadline") {
            config.realtime.packets = 25;
        }
        if sabotage.is("nacks-off") {
            config.realtime.recovery = Recovery::OFF;
        }
        if sabotage.is("no-extra-requests") {
            config.realtime.recovery_budget = 0.0;
        }
        if sabotage.is("a-hello-every-20-ms") {
            config.liveness.interval = Duration::from_millis(20);
        }
        if sabotage.is("requests-without-end") {
            config.realtime.recovery_budget = 1.0;
        }
    })
}

/// Per packet, and in continuous time with the packet interval of `calls`; the burstiness is that
/// of the aggregate in both.
pub fn chains(calls: u32) -> Vec<Bursts> {
    let in_time = |b: &Bursts| Bursts { spacing: Some(PACKET / calls), ..*b };
    let bursts = Bursts::PAPER;
    bursts.iter().copied().chain(bursts[1..].iter().map(in_time)).collect()
}

/// The experiment behind figure 4b: the same loss with recovery until the deadline.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "until-deadline",
        revision: 3,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig4b(), alone()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let mut points = Vec::new();
    for (calls, figure) in [(10, "fig4b"), (1, "fig4b-alone")] {
        let packets = match calls {
            1 => size.pick(2_000, 50_000, 1_000_000),
            _ => size.pick(4_000, 200_000, 3_000_000),
        };
        let bursts = chains(calls);
        let bursts = size.pick(&bursts[..1], &bursts[..], &bursts[..]);
        let losses: &[f64] = size.pick(&[5.0], &[0.0, 1.0, 5.0, 10.0], &LOSSES);
        for policy in [Policy::paper(), until_deadline(sabotage)] {
            for &bursts in bursts {
                for &loss_pct in losses {
                    let policy = policy.clone();
                    let one = LossPoint { links: 1, policy, calls, packets, bursts, loss_pct };
                    points.push(one.into_point(figure));
                }
            }
        }
    }
    points
}

fn ours<'a>(r: &Record<'a>) -> bool {
    r.is("policy", "until-deadline")
}

fn chart(title: &str, table: &Table) -> Chart {
    let mut series = vec![Series {
        name: "one request: 2p² − p³".into(),
        style: Style::CURVE,
        points: (1..=100)
            .map(|k| f64::from(k) / 10.0)
            .map(|x| Mark { x, y: 100.0 * exact_residual(x / 100.0), interval: None })
            .collect(),
    }];
    for chain in ["packet", "time"] {
        for (n, burst) in ["uniform", "25", "50", "75"].into_iter().enumerate() {
            let here = |r: &Record<'_>| ours(r) && r.is("chain", chain) && r.is("burst_pct", burst);
            let drawn = table.iter().filter(here).filter(|r| r.number("loss_pct") > 0.0);
            let points: Vec<Mark> = drawn.map(|r| mark(&r)).collect();
            let (style, name) = match chain {
                "packet" => (Style::nth(n), burst_label(burst)),
                _ => (
                    Style { marker: Marker::Ring, ..Style::nth(n) },
                    format!("{}, in time", burst_label(burst)),
                ),
            };
            if !points.is_empty() {
                series.push(Series { name, style, points });
            }
        }
    }
    Chart {
        title: title.to_owned(),
        x: Axis::linear("link loss rate, each direction (%)", (0.0, 10.0), 2.0),
        y: Axis::log("packets lost despite recovery (%)", (FLOOR, 10.0)),
        series,
    }
}

/// Residual loss of a row with its interval, for a logarithmic axis.
pub fn mark(r: &Record<'_>) -> Mark {
    let up = |column| r.number(column).max(FLOOR);
    let interval = Some((up("residual_low_pct"), up("residual_high_pct")));
    Mark { x: r.number("loss_pct"), y: up("residual_pct"), interval }
}

fn fig4b() -> Figure {
    Figure {
        name: "fig4b",
        title: "Loss after recovery until the deadline, one link",
        section: "IV-A, beyond",
        caption: "Not in the paper. The setting of figure 4 with a policy that spends the remaining \
               deadline on a missing packet: request after request, several at once when time runs \
               out, the last answer in several copies. Loss states change per packet as in the \
               paper, and in continuous time. Zero loss is drawn at the bottom.",
        chart: one_panel(|t| chart("Recovery until the deadline, one 10 ms link, ten calls", t)),
        claims: vec![
            left(
                "up-to-50",
                "at 5 % loss at most 0.001 % is lost, for burstiness up to 50 % on both chains",
                (0.001, &["uniform", "25", "50"]),
                "kept-for-half-the-deadline",
            ),
            Claim {
                expected: Verdict::Undecided,
                ..left(
                    "at-75",
                    "at 5 % loss at most 0.01 % is lost at 75 % burstiness on both chains",
                    (0.01, &["75"]),
                    "kept-for-half-the-deadline",
                )
            },
            bytes(9.0),
            never_worse(),
        ],
    }
}

fn alone() -> Figure {
    Figure {
        name: "fig4b-alone",
        title: "Loss after recovery until the deadline, one link, a single call",
        section: "IV-A, beyond",
        caption: "Not in the paper. One call, whose next packet, which reveals a gap, comes only \
               after 20 ms. If the channel stays bad for longer than the deadline, packets can't \
               be recovered: in continuous time, at 75 % burstiness over 20 ms, a bad period lasts \
               69 ms on average.",
        chart: one_panel(|t| chart("Recovery until the deadline, one 10 ms link, one call", t)),
        claims: vec![
            left(
                "uniform",
                "at 5 % independent loss at most 0.001 % is lost",
                (0.001, &["uniform"]),
                "once",
            ),
            never_worse(),
        ],
    }
}

/// The largest residual loss at 5 %.
fn left(
    id: &'static str,
    says: &'static str,
    (most, bursts): (f64, &'static [&'static str]),
    sabotage: &'static str,
) -> Claim {
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(most, OWN_TARGET),
        unit: "%",
        decimals: 5,
        measure: Box::new(move |table| {
            let here = |r: &Record<'_>| ours(r) && r.number("loss_pct") == 5.0;
            let wanted = |r: &Record<'_>| bursts.iter().any(|b| r.is("burst_pct", b));
            Measured::maximum(table.iter().filter(|r| here(r) && wanted(r)).map(|r| residual(&r)))
        }),
        at: &[5.0],
        sabotage,
        ..Claim::default()
    }
}

fn bytes(most: f64) -> Claim {
    Claim {
        id: "bytes",
        statement: "at 5 % loss recovery costs at most 9 % more bytes on the link, of which 5.3 % are \
               p/(1−p), the minimum of any recovery",
        published: None,
        bound: Bound::at_most(most, OWN_TARGET),
        unit: "% more bytes",
        measure: Box::new(move |table| {
            let here = |r: &Record<'_>| ours(r) && r.number("loss_pct") == 5.0;
            let more = |r: Record<'_>| Measured::of_one_run(r.number("overhead_pct"));
            Measured::maximum(table.iter().filter(here).map(more))
        }),
        at: &[5.0],
        sabotage: "a-hello-every-20-ms",
        ..Claim::default()
    }
}

fn never_worse() -> Claim {
    Claim {
        id: "never-worse",
        statement: "nowhere is more lost than with one request for each packet, except by chance: at \
               most 3.5 standard errors of the difference",
        published: None,
        bound: Bound::at_most(3.5, "of 84 points one is above it by chance once in 50 figures"),
        unit: "standard errors",
        measure: Box::new(|table| {
            let more = |r: Record<'_>| {
                let same = |o: &Record<'_>| {
                    o.is("policy", "paper")
                        && ["chain", "burst_pct"].iter().all(|c| o.text(c) == r.text(c))
                        && o.number("loss_pct") == r.number("loss_pct")
                };
                let theirs = table.iter().find(same);
                let theirs = theirs.map_or(Measured::census(f64::NAN), |o| residual(&o));
                residual(&r).minus(&theirs)
            };
            let each: Vec<Measured> = table.iter().filter(ours).map(more).collect();
            let errors = |m: &Measured| Z * m.estimate / (m.estimate - m.interval.0);
            let most = Measured::maximum(each.iter().map(|m| Measured::census(errors(m))));
            let worst = Measured::maximum(each.iter().cloned()).estimate;
            most.noting(format!("At most {worst:.5} % more."))
        }),
        sabotage: "nacks-off",
        ..Claim::default()
    }
}
