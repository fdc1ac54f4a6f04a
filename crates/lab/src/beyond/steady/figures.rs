//! Figures and claims on the overhead of a link under constant loss.

use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict, maximum};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Record, Table};

/// The figure of losses that the main figures don't have.
pub const ELSEWHERE: &str = "steady-elsewhere";
/// The figure of calls in which only one end sends voice.
pub const ONE_WAY: &str = "steady-one-way";

/// The figures of one call, or of ten.
pub fn on_the_grid(calls: u32) -> Vec<&'static str> {
    vec![if calls == 1 { "steady" } else { "steady-ten" }]
}

/// Every figure of the overhead of a link under constant loss.
pub fn all() -> Vec<Figure> {
    let figure = |name, title, says, claims| Figure {
        name,
        title,
        section: "III-A, beyond",
        says,
        chart: one_panel(move |t| chart(title, t)),
        claims,
    };
    vec![
        figure(
            "steady",
            "Overhead of the daemon's default settings, one call",
            "Two sealed nodes with the daemon's defaults, 10 ms apart, from their first hello on, \
             and one G.711 call in both directions. The link has the same constant loss in both \
             directions. All bytes on the link with IPv4 and UDP headers, relative to those of the \
             call's packets sent once: hellos, probes, requests and retransmissions. Pale: the \
             share of probing, which is the additional cost compared with probes = false.",
            vec![
                probing("to-10", "with one call", &TO_10, Verdict::Holds),
                hellos(),
                probing("beyond-10", "with one call", &[15.0, 20.0], Verdict::Fails),
            ],
        ),
        figure(
            "steady-ten",
            "Overhead of the daemon's default settings, ten calls",
            "The same with ten calls.",
            vec![probing("everywhere", "with ten calls", &[], Verdict::Holds)],
        ),
        figure(
            ELSEWHERE,
            "Overhead of the daemon's default settings, other links",
            "One call over links for which nothing was tuned: 5 ms and 40 ms long, and one that \
             loses in one direction only.",
            vec![probing(
                "everywhere",
                "on links of 5 and 40 ms, and where one direction loses,",
                &[],
                Verdict::Holds,
            )],
        ),
        figure(
            ONE_WAY,
            "Overhead of the daemon's default settings, one end silent",
            "One call in which only one end sends voice: the other direction carries hellos and \
             requests, and no packets that could carry a hello.",
            vec![probing(
                "everywhere",
                "with a call that one end only hears,",
                &[],
                Verdict::Fails,
            )],
        ),
    ]
}

const TO_10: [f64; 11] = [0.1, 0.2, 0.5, 0.8, 1.0, 1.2, 2.0, 3.0, 5.0, 7.0, 10.0];
/// Bound in percentage points of the bytes of the calls' packets.
const BOUND: f64 = 1.5;

fn chart(title: &str, table: &Table) -> Chart {
    let mut names: Vec<String> = Vec::new();
    table.iter().for_each(|r| {
        if !names.contains(&name(&r)) {
            names.push(name(&r));
        }
    });
    let mut series = Vec::new();
    for (n, of) in names.iter().enumerate() {
        let here = |column: &'static str, low: &'static str, high: &'static str| {
            let rows = table.iter().filter(|r| name(r) == *of);
            let mark = move |r: Record<'_>| Mark {
                x: r.number("loss_pct"),
                y: r.number(column),
                interval: Some((r.number(low), r.number(high))),
            };
            rows.map(mark).collect::<Vec<_>>()
        };
        let bytes = here("bytes_pct", "bytes_low_pct", "bytes_high_pct");
        series.push(Series { name: of.clone(), style: Style::nth(n), points: bytes });
        let style = Style { marker: Marker::Ring, ..Style::nth(n) }.pale();
        let probing = here("probing_pct", "probing_low_pct", "probing_high_pct");
        series.push(Series { name: format!("{of}: probing"), style, points: probing });
    }
    let tops = series.iter().flat_map(|s| &s.points).map(|m| m.y).collect::<Vec<_>>();
    Chart {
        title: title.to_owned(),
        x: Axis::log("link loss rate (%)", (0.1, 100.0)),
        y: Axis::fitting("bytes besides the packets (%)", 0.0, tops.into_iter()),
        series,
    }
}

/// The properties that distinguish a row from others in its figure, except for the loss.
fn name(r: &Record<'_>) -> String {
    let bursts = match (r.text("burst_pct"), r.text("chain")) {
        ("uniform", _) => "independent".to_owned(),
        (b, "time") => format!("outages, {b} %"),
        (b, _) => format!("bursts, {b} %"),
    };
    let back = r.number("back_pct") != r.number("loss_pct");
    match (r.number("delay_ms"), back) {
        (10.0, false) => bursts,
        (10.0, true) => format!("{bursts}, one direction"),
        (delay, _) => format!("{bursts}, {delay:.0} ms"),
    }
}

fn probing(id: &'static str, whose: &'static str, at: &'static [f64], expected: Verdict) -> Claim {
    let says = match (id, whose) {
        ("to-10", _) => {
            "with one call in both directions, probing costs at most 1.5 points of bytes from 0.1 \
             to 10 % loss, independent or in bursts of any burstiness up to 75 %, per packet and \
             in time"
        }
        ("beyond-10", _) => "the same at 15 and 20 % loss",
        (_, "with ten calls") => "the same with ten calls, up to 20 %",
        (_, whose) if whose.contains("hears") => {
            "with a call in which one end is silent, probing costs at most 1.5 points of bytes, \
             for every kind of loss up to 10 %"
        }
        _ => {
            "on links of 5 and 40 ms, and where only one direction loses, probing costs at most \
             1.5 points of bytes, for every kind of loss up to 10 %"
        }
    };
    Claim {
        id,
        says,
        published: None,
        bound: Bound::at_most(BOUND, OWN_TARGET),
        unit: "points",
        measure: Box::new(move |t| {
            let here = |r: &Record<'_>| at.is_empty() || at.contains(&r.number("loss_pct"));
            let rows = || t.iter().filter(here);
            let worst = Measured::maximum(rows().map(|r| probed(&r)));
            let surely = rows().filter(|r| r.number("probing_low_pct") > BOUND).count();
            let perhaps = rows().filter(|r| r.number("probing_high_pct") > BOUND).count();
            let row = rows().find(|r| r.number("probing_pct") == worst.estimate);
            let which = row.map_or(String::new(), |r| {
                let [loss, low, high] =
                    ["loss_pct", "probing_low_pct", "probing_high_pct"].map(|c| r.number(c));
                format!("Most at {loss} %, {} ({low:.2} to {high:.2}). ", name(&r))
            });
            let of = rows().count();
            let note = format!(
                "{which}Of {of} points the interval of {surely} is above the bound, that of {} \
                 contains it.",
                perhaps - surely
            );
            worst.noting(note)
        }),
        at,
        expected,
        why: match (id, expected) {
            (_, Verdict::Holds) => "",
            ("beyond-10", _) => {
                "With outages of 69 ms on average, a quarter of a second of silence comes several \
                 times a minute, and is probed as a possible death."
            }
            _ => {
                "In a silent direction only hellos show that the neighbour is alive, and a missing \
                 one is requested."
            }
        },
        sabotage: "questions-without-end",
        ..Claim::default()
    }
}

fn probed(r: &Record<'_>) -> Measured {
    Measured::of(r, ["probing_pct", "probing_low_pct", "probing_high_pct"])
}

fn hellos() -> Claim {
    Claim {
        id: "hellos",
        says: "up to 1 % loss, all hellos of a link with one call in both directions, including \
               probes, are at most 2 % of the bytes of its packets; sent separately they would be \
               3 %",
        published: None,
        bound: Bound::at_most(2.0, OWN_TARGET),
        unit: "% of the packets' bytes",
        measure: Box::new(|t| {
            let here = |r: &Record<'_>| r.number("loss_pct") <= 1.0;
            let worst = maximum(t.iter().filter(here).map(|r| r.number("hellos_pct")));
            Measured::census(worst)
        }),
        at: &[0.1, 0.2, 0.5, 0.8, 1.0],
        sabotage: "hellos-by-themselves",
        ..Claim::default()
    }
}
