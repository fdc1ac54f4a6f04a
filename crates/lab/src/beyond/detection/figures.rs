//! Figures and claims on false deaths of links.

use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Record, Table};

/// A figure: one impairment.
struct FigureSpec {
    figure: &'static str,
    title: &'static str,
    trouble: &'static str,
    /// The impairment in words, for the chart.
    words: &'static str,
    says: &'static str,
    claims: fn() -> Vec<Claim>,
}

const SHOWN: [FigureSpec; 6] = [
    FigureSpec {
        figure: "detection",
        title: "False deaths of a link by the silence that counts as death, 5 % lost",
        trouble: "5/75",
        words: "5 % loss, burstiness 75 %",
        says: "The paper's hellos come every second and detect a failure in under 10 s; it says \
               that a shorter time, on Planetlab, makes routes more likely to be unstable. Here a \
               link of 20 ms loses 5 % of the packets in each direction, per packet as in the \
               paper, and carries only hellos. With probes, an overdue hello is requested every 20 \
               ms.",
        claims: || {
            vec![
                shorter_is_riskier(),
                as_calm_as_the_paper("as-calm", "5 %"),
                found_within_a_second(),
            ]
        },
    },
    FigureSpec {
        figure: "detection-10",
        title: "False deaths of a link by the silence that counts as death, 10 % lost",
        trouble: "10/75",
        words: "10 % loss, burstiness 75 %",
        says: "The same with twice the loss.",
        claims: Vec::new,
    },
    FigureSpec {
        figure: "detection-20",
        title: "False deaths of a link by the silence that counts as death, 20 % lost",
        trouble: "20/75",
        words: "20 % loss, burstiness 75 %",
        says: "The same with four times the loss.",
        claims: || vec![as_calm_as_the_paper("as-calm", "20 %")],
    },
    FigureSpec {
        figure: "detection-in-time",
        title: "False deaths of a link by the silence that counts as death, \
                bursts that last for a time",
        trouble: "5/75 in time",
        words: "5 % loss, outages of 69 ms on average",
        says: "5 % loss whose bursts last for a time instead of a number of packets: 75 % \
               burstiness for packets 20 ms apart. Hellos far apart are then lost independently of \
               each other, and one every 200 ms is enough without probes.",
        claims: || vec![calm_in_time()],
    },
    FigureSpec {
        figure: "detection-stalls",
        title: "False deaths of a link by the silence that counts as death, \
                one end stalls for up to 2 s",
        trouble: "stalls to 2 s",
        words: "the same, and one end stalls for 0.2 to 2 s a minute",
        says: "Planetlab's losses came in bursts of tens to hundreds of packets, because the \
               program at the end was not scheduled (§V-B): at 50 packets/s, tenths of a second to \
               seconds. To its neighbour, a host that stalls is gone, however often the neighbour \
               asks.",
        claims: || {
            vec![
                stalls_want_patience(),
                calm_after(
                    "1.5-times-the-stall",
                    "5 s are enough, with probes at 200 ms: less than one false death a day",
                    5.0,
                ),
            ]
        },
    },
    FigureSpec {
        figure: "detection-long-stalls",
        title: "False deaths of a link by the silence that counts as death, \
                one end stalls for up to 8 s",
        trouble: "stalls to 8 s",
        words: "the same, and one end stalls for 0.2 to 8 s a minute",
        says: "The paper saw a daemon wait for the processor for eight seconds (§V-A).",
        claims: || {
            vec![
                five_are_too_few(),
                calm_after(
                    "ten-seconds",
                    "the paper's 10 s are enough, with probes at 200 ms: less than one false death \
                     a day",
                    10.0,
                ),
            ]
        },
    },
];

/// Rates below this many false deaths a day are drawn at the bottom.
const FLOOR: f64 = 0.1;

/// The figures that show points with this impairment.
pub fn showing(trouble: &str) -> Vec<&'static str> {
    SHOWN.iter().filter(|s| s.trouble == trouble).map(|s| s.figure).collect()
}

/// Every figure of false deaths, one for each impairment, with its claims.
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
    for (n, hello) in [50.0, 200.0, 1_000.0].into_iter().enumerate() {
        for probes in ["yes", "no"] {
            let here = |r: &Record<'_>| r.number("hello_ms") == hello && r.is("probes", probes);
            let points: Vec<Mark> = table.iter().filter(here).map(|r| mark(&r)).collect();
            let (style, with) = match probes {
                "yes" => (Style::nth(n), "with"),
                _ => (Style { marker: Marker::Ring, ..Style::nth(n) }, "without"),
            };
            if !points.is_empty() {
                series.push(Series { name: format!("{hello} ms, {with} probes"), style, points });
            }
        }
    }
    Chart {
        title: format!("False deaths: {}", shown.words),
        x: Axis::log("silence that counts as death (s)", (0.1, 10.0)),
        y: Axis::log("false deaths per link and day", (FLOOR, 100_000.0)),
        series,
    }
}

fn mark(r: &Record<'_>) -> Mark {
    let up = |column| r.number(column).max(FLOOR);
    let interval = Some((up("per_day_low"), up("per_day_high")));
    Mark { x: r.number("dead_after_s"), y: up("per_day"), interval }
}

/// A setting that a claim reads: hello in ms, probes, dead after s.
type Setting = (f64, &'static str, f64);

/// The paper's setting, and this project's default.
const PAPER: Setting = (1_000.0, "no", 10.0);
const DEFAULT: Setting = (200.0, "yes", 1.0);

/// A column's value for a setting; NaN if it was not measured.
fn of(table: &Table, (hello, probes, dead_after): Setting, column: &str) -> f64 {
    let here = |r: &Record<'_>| {
        r.number("hello_ms") == hello
            && r.is("probes", probes)
            && r.number("dead_after_s") == dead_after
    };
    table.iter().find(here).map_or(f64::NAN, |r| r.number(column))
}

/// False deaths per day.
fn per_day(table: &Table, setting: Setting) -> Measured {
    let [value, low, high] =
        ["per_day", "per_day_low", "per_day_high"].map(|c| of(table, setting, c));
    Measured::new(value, (low, high))
}

/// False deaths per day where they are rare and independent, with the interval of a count.
fn rare(table: &Table, setting: Setting) -> Measured {
    let [deaths, days] = ["false_deaths", "link_days"].map(|c| of(table, setting, c));
    Measured::rate(deaths, days).noting(format!("{deaths:.0} in {days:.1} days."))
}

/// How many more false deaths per day `a` has than `b`.
fn more(table: &Table, a: Setting, b: Setting) -> Measured {
    let [a, b] = [a, b].map(|s| per_day(table, s));
    let note = format!("{:.1} against {:.1} a day.", a.estimate, b.estimate);
    a.minus(&b).noting(note)
}

fn shorter_is_riskier() -> Claim {
    Claim {
        id: "shorter-is-riskier",
        statement: "with the paper's hellos (every second, no probes) 5 s of silence cause more false \
               deaths than 10 s",
        published: None,
        bound: Bound::above(
            100.0,
            "more by an amount that an operator would notice: one in a quarter of an hour",
        ),
        unit: "more per link and day",
        decimals: 1,
        measure: Box::new(|t| more(t, (1_000.0, "no", 5.0), PAPER)),
        at: &[5.0, 10.0],
        sabotage: "no-loss",
        ..Claim::default()
    }
}

fn as_calm_as_the_paper(id: &'static str, loss: &'static str) -> Claim {
    let says: &'static str = match loss {
        "5 %" => {
            "at 5 % the default (hellos every 200 ms, probes, dead after 1 s) has fewer false \
                  deaths than the paper's 10 s"
        }
        _ => {
            "at 20 % the default (hellos every 200 ms, probes, dead after 1 s) has fewer false \
              deaths than the paper's 10 s"
        }
    };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::above(0.0, "fewer"),
        unit: "fewer per link and day",
        decimals: 1,
        measure: Box::new(|t| more(t, PAPER, DEFAULT)),
        at: &[1.0, 10.0],
        why: "So the paper's statement on less than 10 s holds for its hellos, not for loss as \
              such.",
        sabotage: "probes-off",
        ..Claim::default()
    }
}

fn found_within_a_second() -> Claim {
    Claim {
        id: "found",
        statement: "with the default a cut is detected in 1 s on average: the last hello is up to 200 \
               ms older than the cut",
        published: None,
        bound: Bound::at_most(1.0, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(|t| {
            let [value, low, high] =
                ["detect_s", "detect_low_s", "detect_high_s"].map(|c| of(t, DEFAULT, c));
            Measured::new(value, (low, high))
        }),
        at: &[1.0],
        sabotage: "twice-the-patience",
        ..Claim::default()
    }
}

fn calm_in_time() -> Claim {
    Claim {
        id: "calm",
        statement: "with the default there is no false death",
        published: None,
        bound: Bound::at_most(0.0, OWN_TARGET),
        unit: "per link and day",
        measure: Box::new(|t| rare(t, DEFAULT)),
        at: &[1.0],
        expected: Verdict::Fails,
        why: "The silence begins with the last hello before an outage, which is up to 200 ms old: \
              with outages of 69 ms on average, one of 0.8 to 1 s comes every few days.",
        sabotage: "half-the-patience",
        ..Claim::default()
    }
}

fn stalls_want_patience() -> Claim {
    Claim {
        id: "a-second-is-too-short",
        statement: "where hosts stall for up to 2 s, 1 s with probes has more false deaths than the \
               paper's 10 s without, both for hellos every 50 ms and every 200 ms",
        published: None,
        bound: Bound::above(
            100.0,
            "more by an amount that an operator would notice: one in a quarter of an hour",
        ),
        unit: "more per link and day",
        decimals: 1,
        measure: Box::new(|t| {
            let both = [DEFAULT, (50.0, "yes", 1.0)].map(|s| more(t, s, PAPER));
            Measured::minimum(both)
        }),
        at: &[1.0, 10.0],
        why: "This is what the paper saw on Planetlab: its hosts, not its losses, require a long \
              timeout.",
        sabotage: "no-stalls",
        ..Claim::default()
    }
}

fn five_are_too_few() -> Claim {
    Claim {
        id: "five-are-too-few",
        statement: "where hosts stall for up to 8 s, 5 s have more false deaths than 10 s with probes, \
               whatever the hello interval",
        published: None,
        bound: Bound::above(
            100.0,
            "more by an amount that an operator would notice: one in a quarter of an hour",
        ),
        unit: "more per link and day",
        decimals: 1,
        measure: Box::new(|t| {
            let pair = |hello| more(t, (hello, "yes", 5.0), (hello, "yes", 10.0));
            Measured::minimum([50.0, 200.0, 1_000.0].map(pair))
        }),
        at: &[5.0, 10.0],
        sabotage: "no-stalls",
        ..Claim::default()
    }
}

fn calm_after(id: &'static str, says: &'static str, dead_after: f64) -> Claim {
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(
            1.0,
            "this project's own target: one of the 1,400 times a day that a host stalls",
        ),
        unit: "false deaths per link and day",
        measure: Box::new(move |t| rare(t, (200.0, "yes", dead_after))),
        at: if dead_after == 5.0 { &[5.0] } else { &[10.0] },
        sabotage: if dead_after == 5.0 { "stalls-of-eight-seconds" } else { "half-the-patience" },
        ..Claim::default()
    }
}
