//! Figures and claims on calls whose path fails.

use super::{EVENTS, STEADY};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict, maximum, worst_of};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};

/// A figure: one choice of settings.
struct FigureSpec {
    figure: &'static str,
    title: &'static str,
    settings: &'static str,
    says: &'static str,
    claims: fn() -> Vec<Claim>,
}

const SHOWN: [FigureSpec; 3] = [
    FigureSpec {
        figure: "failover",
        title: "Time until a call has recovered after its path has failed",
        settings: "default",
        says: "One G.711 call in both directions over A–B–D (20 ms), which fails during the call; \
               A–C–D takes 24 ms and A–E–F–D 45. A wire of the shortest path is cut, or loses \
               everything in one direction, or 30 % in both; or its relay dies. The time until the \
               last missed packet: lost, or later than 100 ms. Then the same overlay with 5 % loss \
               at 75 % burstiness on every link, and no other event.",
        claims: || {
            vec![
                whole("whole", "default", "1.2 s", 1.2),
                acts("acts", &["30 %"], &[3.0]),
                acts("acts-on-bursts", &["30 % bursty", "30 % bursty in time"], &[4.0, 5.0]),
                calm("calm", STEADY[0].0),
                calm("calm-in-time", STEADY[1].0),
            ]
        },
    },
    FigureSpec {
        figure: "failover-50ms",
        title: "Time until a call has recovered after its path has failed, hellos every 50 ms",
        settings: "50 ms",
        says: "The same with hellos every 50 ms, dead after 400 ms.",
        claims: || vec![whole("whole", "50 ms", "0.5 s", 0.5)],
    },
    FigureSpec {
        figure: "failover-paper",
        title: "Time until a call has recovered after its path has failed, the paper's hellos",
        settings: "paper",
        says: "The same with the paper's hellos: every second, dead after nine, no probes.",
        claims: Vec::new,
    },
];

/// The figures that show points with these settings.
pub fn showing(settings: &str) -> Vec<&'static str> {
    SHOWN.iter().filter(|s| s.settings == settings).map(|s| s.figure).collect()
}

/// Every figure of calls whose path fails, one for each choice of settings.
pub fn all() -> Vec<Figure> {
    let figure = |shown: &'static FigureSpec| Figure {
        name: shown.figure,
        title: shown.title,
        section: "III-A, beyond",
        caption: shown.says,
        chart: one_panel(|t| chart(shown, t)),
        claims: (shown.claims)(),
    };
    SHOWN.iter().map(figure).collect()
}

fn chart(shown: &FigureSpec, table: &Table) -> Chart {
    let mut series = Vec::new();
    for (n, (event, _)) in EVENTS.into_iter().enumerate() {
        let here = table.iter().filter(|r| r.is("event", event));
        let points: Vec<Mark> = here.map(|r| mark(&r)).collect();
        let style = if n < 4 { Style::nth(n) } else { Style::nth(n).pale() };
        if !points.is_empty() {
            series.push(Series { name: event.to_owned(), style, points });
        }
    }
    let tops = series.iter().flat_map(|s| &s.points).map(|m| m.y).collect::<Vec<_>>();
    Chart {
        title: format!("A call whose path fails, settings: {}", shown.settings),
        x: Axis::linear("share of failures (%)", (0.0, 100.0), 20.0),
        y: Axis::fitting("until the last missed packet, at most (s)", 0.0, tops.into_iter()),
        series,
    }
}

fn mark(r: &Record<'_>) -> Mark {
    let interval = Some((r.number("whole_low_s"), r.number("whole_high_s")));
    Mark { x: r.number("share_pct"), y: r.number("whole_s"), interval }
}

/// A column's value for an event, at this share of the runs.
fn of(table: &Table, event: &str, share: f64, column: &str) -> f64 {
    let here = |r: &Record<'_>| r.is("event", event) && r.number("share_pct") == share;
    table.iter().find(here).map_or(f64::NAN, |r| r.number(column))
}

fn whole(id: &'static str, settings: &'static str, within: &'static str, bound: f64) -> Claim {
    let says = match settings {
        "default" => {
            "after a cut, a blackhole or a crash no packet is missed from 1.2 s on, in the worst \
             of all runs"
        }
        _ => {
            "after a cut, a blackhole or a crash no packet is missed from 0.5 s on, in the worst \
             of all runs"
        }
    };
    debug_assert!(says.contains(within), "the claim says its bound");
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(bound, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(move |t| {
            let events = ["cut", "blackhole", "crash"];
            let worst = maximum(events.map(|e| of(t, e, 100.0, "whole_s")));
            let note = events.map(|e| {
                let at = |share, column| of(t, e, share, column);
                format!(
                    "{e}: median {:.2} s, 95 % within {:.2} s ({:.2} to {:.2})",
                    at(50.0, "whole_s"),
                    at(95.0, "whole_s"),
                    at(95.0, "whole_low_s"),
                    at(95.0, "whole_high_s"),
                )
            });
            let runs: f64 = events.map(|e| of(t, e, 100.0, "runs")).iter().sum();
            Measured::census(worst).noting(format!("{}. {}", note.join("; "), worst_of(runs)))
        }),
        at: &[0.0, 1.0, 2.0],
        sabotage: "paper-hellos",
        ..Claim::default()
    }
}

fn acts(id: &'static str, events: &'static [&'static str], at: &'static [f64]) -> Claim {
    Claim {
        id,
        statement: match id {
            "acts" => {
                "when the shortest path begins to lose 30 %, independently, both directions of the \
                 call have left it 1 s later in 95 % of the runs"
            }
            _ => {
                "when the shortest path begins to lose 30 % in bursts (75 %), per packet or in \
                 time, both directions of the call have left it 1 s later in 95 % of the runs"
            }
        },
        published: None,
        bound: Bound::at_most(1.0, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(|t| {
            let left = |e: &&str| {
                let [value, low, high] =
                    ["left_s", "left_low_s", "left_high_s"].map(|c| of(t, e, 95.0, c));
                Measured::new(value, (low, high))
            };
            let worst = Measured::maximum(events.iter().map(left));
            let note: Vec<_> = events
                .iter()
                .map(|e| format!("{e}: median {:.2} s", of(t, e, 50.0, "left_s")))
                .collect();
            worst.noting(note.join("; ") + ".")
        }),
        at,
        expected: if id == "acts" { Verdict::Holds } else { Verdict::Fails },
        why: match id {
            "acts" => "",
            _ => {
                "A burst of lost packets comes about ten times in 100 packets, and once in 100 at \
                 the 5 % that must not cause a change: several bursts have to be seen first."
            }
        },
        sabotage: "paper-hellos",
        ..Claim::default()
    }
}

/// The claim on path changes where loss is the only impairment.
fn calm(id: &'static str, event: &'static str) -> Claim {
    let (says, expected, why): (&str, _, &str) = match id {
        "calm" => (
            "with 5 % loss at 75 % burstiness on every link, per packet, the call keeps its path \
             in the first hour",
            Verdict::Fails,
            "Bursts of four packets come 12 times in a thousand packets: until thousands have been \
             counted, two equal links appear to differ, and a call changes to the other path once \
             or twice.",
        ),
        _ => (
            "with 5 % loss at 75 % burstiness on every link, in time, the call keeps its path in \
             the first hour",
            Verdict::Fails,
            "Silence for a second is a death, and begins with the last hello before the outage: \
             with outages of 69 ms on average, one of 0.8 s or more comes every few days on each \
             of the seven links.",
        ),
    };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(0.0, OWN_TARGET),
        unit: "path changes an hour",
        measure: Box::new(move |t| {
            let [runs, hours, deaths, most, changes] =
                ["runs", "hours", "deaths", "most_changes", "changes"]
                    .map(|c| of(t, event, 100.0, c));
            let note = format!(
                "{changes:.0} in {runs:.0} runs, {hours:.1} h; at most {most:.0} of one direction \
                 in one; {deaths:.0} links declared dead, by either end. The interval assumes \
                 independent changes; some come in pairs, there and back."
            );
            Measured::rate(changes, hours).noting(note)
        }),
        at: if event == STEADY[0].0 { &[10.0] } else { &[11.0] },
        expected,
        why,
        sabotage: if event == STEADY[0].0 { "a-cut-in-the-middle" } else { "fast-hellos" },
        ..Claim::default()
    }
}
