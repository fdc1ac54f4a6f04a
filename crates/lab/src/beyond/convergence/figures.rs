//! Figures and claims on how soon four nodes agree on their routes.

use super::FIGURE;
use super::script::Event;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, maximum, worst_of};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

const EVENTS: [Event; 6] = Event::ALL;
/// Events that nodes have to detect first; after the others, links only have to come up.
const FAILURES: [Event; 3] = [Event::Cut, Event::Crash, Event::Blackhole];
const ARRIVALS: [Event; 3] = [Event::Start, Event::Mend, Event::Restart];

/// The figure of four nodes in the simulator.
pub fn simulated() -> Figure {
    Figure {
        name: FIGURE,
        title: "Time until four nodes agree on their routes after an event",
        section: "III-A, beyond",
        caption: "Four sealed nodes with the default settings: A–B–D takes 20 ms, A–C–D 24. All start \
               at once; A–B is cut, and restored; B is killed, and started again; A–B loses \
               everything from A to B only. The time until all running nodes forward along the \
               shortest remaining paths, and keep doing so for a second.",
        chart: one_panel(|t| spread(t, PLACES[0])),
        claims: vec![
            soon("leave", PLACES[0], &FAILURES, 1.2, "paper-hellos"),
            soon("join", PLACES[0], &ARRIVALS, 1.0, "news-held-back"),
            settles(PLACES[0]),
        ],
    }
}

/// The figure that compares the testbed with the simulator: the testbed's rows follow the
/// simulator's.
pub fn beside() -> Figure {
    let mut claims: Vec<Claim> = EVENTS.map(agrees).into();
    claims.push(soon("leave", PLACES[1], &FAILURES, 1.2, "paper-hellos"));
    claims.push(settles(PLACES[1]));
    Figure {
        name: "convergence-testbed",
        title: "Time until four daemons agree on their routes, compared with four simulated nodes",
        section: "III-A, beyond",
        caption: "The same events with four `trunkline node` processes and `trunkline impair` between \
               them on one machine. For each event, quantiles of the times in the simulator and in \
               the testbed: on the line they are equal. Between the dashed lines they differ by at \
               most 15 % or 50 ms.",
        chart: one_panel(against),
        claims,
    }
}

fn style(n: usize) -> Style {
    if n < 4 { Style::nth(n) } else { Style::nth(n).pale() }
}

/// The rows of an event at one place (simulator or testbed).
fn of<'a>(table: &'a Table, place: &str, event: Event) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("where", place) && r.is("event", event.name()))
}

/// A column's value for an event, at this share of the runs.
fn at(table: &Table, place: &str, event: Event, share: f64, column: &str) -> f64 {
    of(table, place, event)
        .find(|r| r.number("share_pct") == share)
        .map_or(f64::NAN, |r| r.number(column))
}

fn interval(r: &Record<'_>) -> Option<(f64, f64)> {
    Some((r.number("converged_low_s"), r.number("converged_high_s")))
}

fn spread(table: &Table, place: &str) -> Chart {
    let mark = |r: Record<'_>| Mark {
        x: r.number("share_pct"),
        y: r.number("converged_s"),
        interval: interval(&r),
    };
    let one = |(n, event): (usize, Event)| Series {
        name: event.name().to_owned(),
        style: style(n),
        points: of(table, place, event).map(mark).collect(),
    };
    let series: Vec<Series> = EVENTS.into_iter().enumerate().map(one).collect();
    let tops: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|m| m.y).collect();
    Chart {
        title: format!("Four sealed nodes, default settings: {place}"),
        x: Axis::linear("share of runs (%)", (0.0, 100.0), 20.0),
        y: Axis::fitting("until all routes agree, at most (s)", 0.0, tops.into_iter()),
        series,
    }
}

/// Chart of the testbed's quantiles against the simulator's.
fn against(table: &Table) -> Chart {
    let one = |(n, event): (usize, Event)| {
        let both = of(table, PLACES[0], event).zip(of(table, PLACES[1], event));
        let mark = |(sim, live): (Record<'_>, Record<'_>)| Mark {
            x: sim.number("converged_s"),
            y: live.number("converged_s"),
            interval: interval(&live),
        };
        Series { name: event.name().to_owned(), style: style(n), points: both.map(mark).collect() }
    };
    let mut series: Vec<Series> = EVENTS.into_iter().enumerate().map(one).collect();
    let marks = || series.iter().flat_map(|s| &s.points);
    let x =
        Axis::fitting("simulator (s)", 0.0, marks().map(|m| m.x).collect::<Vec<_>>().into_iter());
    let y = Axis::fitting("testbed (s)", 0.0, marks().map(|m| m.y).collect::<Vec<_>>().into_iter());
    for (name, style, sign) in [
        ("the same", Style::CURVE, 0.0),
        ("15 % or 50 ms difference", Style::SECOND_CURVE, 1.0),
        ("", Style::SECOND_CURVE, -1.0),
    ] {
        let line = |k: u32| {
            let x = x.range.1 * f64::from(k) / 100.0;
            Mark { x, y: x + sign * allowed(x), interval: None }
        };
        let points = (0..=100).map(line).filter(|m| m.y >= 0.0).collect();
        series.push(Series { name: name.to_owned(), style, points });
    }
    Chart { title: "Four sealed nodes, default settings".to_owned(), x, y, series }
}

/// Difference allowed between a testbed's median and the simulator's, in seconds.
fn allowed(simulator: f64) -> f64 {
    (0.15 * simulator).max(0.05)
}

fn medians(table: &Table, place: &str, events: &[Event]) -> String {
    let one = |&event: &Event| {
        format!("{}: median {:.3} s", event.name(), at(table, place, event, 50.0, "converged_s"))
    };
    events.iter().map(one).collect::<Vec<_>>().join("; ") + "."
}

fn soon(
    id: &'static str,
    place: &'static str,
    events: &'static [Event; 3],
    bound: f64,
    sabotage: &'static str,
) -> Claim {
    Claim {
        id,
        statement: match (id, place) {
            ("leave", "simulator") => {
                "after a cut, a crash or a blackhole all nodes agree on their routes within 1.2 s, \
                 in the worst of all runs"
            }
            ("leave", _) => {
                "after a cut, a crash or a blackhole all daemons agree on their routes within 1.2 \
                 s, in the worst of all runs"
            }
            _ => {
                "all nodes agree on their routes within 1 s after all start, one starts, or a link \
                 is restored, in the worst of all runs"
            }
        },
        published: None,
        bound: Bound::at_most(bound, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(move |t| {
            let worst = maximum(events.map(|e| at(t, place, e, 100.0, "converged_s")));
            let runs: f64 = events.map(|e| at(t, place, e, 100.0, "runs")).iter().sum();
            let note = format!("{} {}", medians(t, place, events), worst_of(runs));
            Measured::census(worst).noting(note)
        }),
        sabotage,
        ..Claim::default()
    }
}

fn settles(place: &'static str) -> Claim {
    Claim {
        id: "settles",
        statement: "after every event the nodes agree on their routes within 15 s",
        published: None,
        bound: Bound::at_most(0.0, OWN_TARGET),
        unit: "events",
        decimals: 0,
        measure: Box::new(move |t| {
            let unsettled = EVENTS.map(|e| at(t, place, e, 100.0, "unsettled"));
            let known = maximum(unsettled);
            let sum = if known.is_nan() { f64::NAN } else { unsettled.iter().sum() };
            Measured::census(sum)
        }),
        sabotage: "room-for-half",
        ..Claim::default()
    }
}

/// The claim that the testbed agrees with the simulator on an event. The bound was set before the
/// first measurement.
fn agrees(event: Event) -> Claim {
    let (id, says) = match event {
        Event::Start => ("start", "medians agree: all start at once"),
        Event::Cut => ("cut", "medians agree: A–B is cut"),
        Event::Mend => ("mend", "medians agree: A–B is restored"),
        Event::Crash => ("crash", "medians agree: B is killed"),
        Event::Restart => ("restart", "medians agree: B is started again"),
        Event::Blackhole => ("blackhole", "medians agree: A–B loses everything in one direction"),
    };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(
            1.0,
            "50 ms or 15 %, whichever is larger; set before the first measurement",
        ),
        unit: "of the allowed difference",
        measure: Box::new(move |t| {
            let of = |place, column| at(t, place, event, 50.0, column);
            let [sim, live] = PLACES.map(|place| of(place, "converged_s"));
            let [low, high] = ["converged_low_s", "converged_high_s"].map(|c| of(PLACES[1], c));
            let apart = (live - sim).abs();
            // A single run has no interval.
            let interval = match low.is_nan() || high.is_nan() {
                true => String::new(),
                false => format!(" ({low:.3} to {high:.3})"),
            };
            let note = format!(
                "Simulator {sim:.3} s, testbed {live:.3} s{interval}, which may be up to {:.1} ms \
                 too long.",
                of(PLACES[1], "look_ms")
            );
            Measured::census(apart / allowed(sim)).noting(note)
        }),
        sabotage: "paper-hellos",
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Settled;
    use super::super::{COLUMNS, rows};
    use super::*;
    use crate::claim::Verdict;
    use crate::output::judge;
    use crate::table::print;
    use std::time::Duration;

    /// Twenty runs of each event at each place, with these times in every run.
    fn table(simulator_ms: u64, testbed_ms: u64) -> Table {
        let lives = |ms| {
            let took = Duration::from_millis(ms);
            let (for_good, look) = (ms < 15_000, Duration::from_millis(5));
            let one = |event| Settled { event, took, for_good, look };
            EVENTS.map(one).repeat(20)
        };
        let [a, b] = [simulator_ms, testbed_ms].map(lives);
        let cells = [rows(PLACES[0], &a, true), rows(PLACES[1], &b, true)].concat();
        Table { columns: COLUMNS, rows: cells.into_iter().map(|r| print(COLUMNS, r)).collect() }
    }

    #[test]
    fn the_testbeds_claims_can_fail() {
        let failing = |simulator_ms, testbed_ms| {
            let table = table(simulator_ms, testbed_ms);
            let claims = beside().claims;
            let fails = claims.iter().filter(|c| judge(c, &table).verdict != Verdict::Holds);
            fails.map(|c| c.id).collect::<Vec<_>>()
        };
        let medians = EVENTS.map(Event::name);
        for (sim, live) in [(100, 149), (100, 51), (1_000, 1_149), (1_000, 1_000)] {
            assert_eq!(failing(sim, live), [""; 0], "{sim} {live}");
        }
        for (sim, live) in [(100, 151), (100, 49), (1_000, 1_151), (1_000, 849)] {
            assert_eq!(failing(sim, live), medians, "{sim} {live}");
        }
        assert_eq!(failing(1_190, 1_201), ["leave"]);
        assert_eq!(failing(15_000, 15_000), ["leave", "settles"]);
    }
}
