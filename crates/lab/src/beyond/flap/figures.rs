//! Figures and claims on links that fail repeatedly.

use super::FAILURES;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, maximum, worst_of};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};
use std::fmt::Write as _;

/// The figure without an alternative path, and the one with it.
pub const NAMES: [&str; 2] = ["flap", "flap-diamond"];

/// Time from the end of the outage within which the link is back: a hello, and the exchange that
/// follows, in seconds.
const BACK: f64 = 1.2;
/// From this failure on a link is known to fail repeatedly, even if the pauses last a minute.
const KNOWN: f64 = 4.0;
/// Seconds of silence after which a link counts as failed.
const DEATH: f64 = 1.0;
/// Outages that the figure shows, in seconds.
const SHOWN: [f64; 2] = [1.5, 3.0];

/// The two figures of links that fail repeatedly.
pub fn all() -> Vec<Figure> {
    vec![
        Figure {
            name: NAMES[0],
            title: "Packets that a call misses in the n-th failure of its only path",
            section: "III-A, beyond",
            says: "One G.711 call in both directions over A–B–C, sealed nodes with the daemon's \
                   settings. B stalls, or a wire is cut, or B dies and is started again; ten \
                   times, with 2 to 60 s from the end of one failure to the next. The time from \
                   the beginning of the n-th failure until the last missed packet: lost, or later \
                   than 100 ms. Then one failure after a wire has lost 5 % five times, each time \
                   as soon as nodes believed that it loses nothing.",
            chart: one_panel(|t| chart(t, "chain", "A call whose only path keeps failing")),
            claims: vec![heals(), swings()],
        },
        Figure {
            name: NAMES[1],
            title: "Packets that a call misses in the n-th failure of its shortest path",
            section: "III-A, beyond",
            says: "The same over A–B–D (20 ms), which fails, while A–C–D (24 ms) does not.",
            chart: one_panel(|t| chart(t, "diamond", "A call whose shortest path keeps failing")),
            claims: vec![changes(), calm()],
        },
    ]
}

fn chart(table: &Table, network: &str, title: &str) -> Chart {
    let mut series = Vec::new();
    for (k, outage) in SHOWN.into_iter().enumerate() {
        for (n, (failure, _)) in FAILURES.into_iter().enumerate() {
            let here = |r: &Record<'_>| {
                r.is("network", network)
                    && r.is("failure", failure)
                    && r.number("outage_s") == outage
            };
            let mut points: Vec<Mark> = Vec::new();
            for r in table.iter().filter(here) {
                let (x, y) = (r.number("nth"), r.number("gap_most_s"));
                match points.iter_mut().find(|m| m.x == x) {
                    Some(mark) => mark.y = mark.y.max(y),
                    None => points.push(Mark { x, y, interval: None }),
                }
            }
            let style = if k == 0 { Style::nth(n) } else { Style::nth(n).pale() };
            if !points.is_empty() {
                series.push(Series { name: format!("{failure}, {outage} s"), style, points });
            }
        }
    }
    let tops: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|m| m.y).collect();
    Chart {
        title: title.to_owned(),
        x: Axis::linear("n-th failure", (0.0, 10.0), 2.0),
        y: Axis::fitting("until the last missed packet, worst run (s)", 0.0, tops.into_iter()),
        series,
    }
}

/// The consecutive failures of a network, without the one that follows swings.
fn of<'t>(table: &'t Table, network: &'static str) -> impl Iterator<Item = Record<'t>> {
    table.iter().filter(move |r| r.is("network", network) && !r.number("pause_s").is_nan())
}

/// Seconds from the end of an outage to the last packet that was missed.
fn beyond(r: &Record<'_>) -> f64 {
    r.number("gap_most_s") - r.number("outage_s")
}

/// Number of runs: the failures within one run are not independent.
fn lives<'a>(rows: impl Iterator<Item = Record<'a>>) -> f64 {
    rows.filter(|r| r.number("nth") == 1.0).map(|r| r.number("runs")).sum()
}

fn heals() -> Claim {
    Claim {
        id: "heals",
        says: "on the only path the call has recovered from each of ten failures 1.2 s after its \
               end, from the tenth like from the first, in the worst run",
        published: None,
        bound: Bound::at_most(BACK, OWN_TARGET),
        unit: "s after the outage",
        decimals: 3,
        measure: Box::new(|t| {
            let worst = maximum(of(t, "chain").map(|r| beyond(&r)));
            let nth = |n: f64| {
                maximum(of(t, "chain").filter(|r| r.number("nth") == n).map(|r| beyond(&r)))
            };
            let last = maximum(of(t, "chain").map(|r| r.number("nth")));
            let kinds = FAILURES.map(|(f, _)| {
                let here = of(t, "chain").filter(|r| r.is("failure", f));
                format!("{f} {:.2} s", maximum(here.map(|r| beyond(&r))))
            });
            let note = format!(
                "The first at most {:.2} s, number {last:.0} {:.2} s. {}. {}",
                nth(1.0),
                nth(last),
                kinds.join(", "),
                worst_of(lives(of(t, "chain"))),
            );
            Measured::census(worst).noting(note)
        }),
        at: &[0.0],
        sabotage: "news-held-back",
        ..Claim::default()
    }
}

fn swings() -> Claim {
    Claim {
        id: "swings",
        says: "from an outage after five swings of loss the call has recovered 1.2 s after its \
               end, in the worst run",
        published: None,
        bound: Bound::at_most(BACK, OWN_TARGET),
        unit: "s after the outage",
        decimals: 3,
        measure: Box::new(|t| {
            let here = || t.iter().filter(|r| r.is("failure", "stall after swings"));
            let worst = maximum(here().map(|r| beyond(&r)));
            Measured::census(worst).noting(worst_of(lives(here())))
        }),
        at: &[2.0],
        sabotage: "news-held-back",
        ..Claim::default()
    }
}

fn changes() -> Claim {
    Claim {
        id: "changes",
        says: "with an alternative path no failure makes either direction of the call change its \
               path more than twice, nor all ten together more than five times",
        published: None,
        bound: Bound::at_most(5.0, OWN_TARGET),
        unit: "path changes in ten failures, or two and a half times those of one",
        decimals: 0,
        measure: Box::new(|t| {
            // Rows of one pause and outage are consecutive, beginning with the first failure.
            let most = maximum(of(t, "diamond").scan(0.0, |all, r| {
                *all = r.number("changes_most") + if r.number("nth") > 1.0 { *all } else { 0.0 };
                Some(*all)
            }));
            let each = maximum(of(t, "diamond").map(|r| r.number("changes_most")));
            let note = format!("In ten failures {most:.0}, in one at most {each:.0}.");
            Measured::census(maximum([most, 2.5 * each])).noting(note)
        }),
        at: &[1.0],
        why: "As often as damping allows: away and back twice, a minute apart, and then away for \
              good.",
        sabotage: "damping-off",
        ..Claim::default()
    }
}

fn calm() -> Claim {
    Claim {
        id: "calm",
        says: "with an alternative path the call misses nothing in the fourth and all later \
               failures that last over a second and come up to a minute after the end of the one \
               before",
        published: None,
        bound: Bound::at_most(0.0, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(|t| {
            let most = |rows: &dyn Fn(&Record<'_>) -> bool| {
                maximum(of(t, "diamond").filter(|r| rows(r)).map(|r| r.number("gap_most_s")))
            };
            let dies = |r: &Record<'_>| r.number("outage_s") > DEATH;
            let worst = most(&|r| dies(r) && r.number("nth") >= KNOWN);
            let nth = |n: f64| format!("{:.2} s", most(&|r| dies(r) && r.number("nth") == n));
            let brief = most(&|r| !dies(r));
            let mut note = format!("In the first three {}.", [1.0, 2.0, 3.0].map(nth).join(", "));
            if brief > 0.0 {
                let _ = write!(note, " In each that is too short to be detected {brief:.2} s.");
            }
            Measured::census(worst).noting(note)
        }),
        at: &[1.0],
        sabotage: "damping-off",
        ..Claim::default()
    }
}
