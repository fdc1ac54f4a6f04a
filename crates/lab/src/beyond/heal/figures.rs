//! Figures and claims on the convergence of large overlays.

use super::{EVENTS, LOSSES};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, maximum, worst_of};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Record, Table};

/// The two figures on the convergence of large overlays.
pub fn all() -> Vec<Figure> {
    vec![
        Figure {
            name: "heal",
            title: "Time until all nodes agree on the overlay's state, by its size",
            section: "III-A, beyond",
            says: "Overlays of nodes anywhere on a continent (40 ms across), six links each \
                   (Waxman), with the default settings. All start at once; a wire is cut; a node \
                   dies; every wire between two halves is cut and later restored. The time until \
                   every node has the newest record of every other node that it can reach, and \
                   routes only over what exists. The same with 5 % loss at 75 % burstiness on all \
                   links.",
            chart: one_panel(|t| {
                chart(t, "Until all nodes agree (s)", "converged", &EVENTS.map(|e| e), 0.1)
            }),
            claims: vec![
                soon("partition", 1.5, "paper-hellos"),
                soon("heal", 1.5, "room-for-half"),
                nothing_lost(),
            ],
        },
        Figure {
            name: "heal-bytes",
            title: "Bytes of routing until all nodes agree on the overlay's state, by its size",
            section: "III-A, beyond",
            says: "Routing traffic of all nodes together meanwhile, without IP and UDP headers; \
                   quiet is a minute without events, three minutes after the start: by then nodes \
                   have measured the loss of their links.",
            chart: one_panel(|t| {
                chart(t, "bytes of routing, all nodes (kB)", "flooded", &EVENTS.map(|e| e), 0.01)
            }),
            claims: vec![quiet()],
        },
    ]
}

fn chart(table: &Table, label: &str, column: &str, events: &[&str], floor: f64) -> Chart {
    let unit = if column == "converged" { "_s" } else { "_kb" };
    let mut series = Vec::new();
    for (loss, _) in LOSSES {
        for (n, event) in events.iter().enumerate() {
            let here = |r: &Record<'_>| r.is("loss", loss) && r.is("event", event);
            let value = |r: &Record<'_>, which: &str| {
                r.number(&format!("{column}{which}{unit}")).max(floor)
            };
            let points: Vec<Mark> = table
                .iter()
                .filter(here)
                .filter(|r| !r.number(&format!("{column}{unit}")).is_nan())
                .map(|r| Mark {
                    x: r.number("nodes"),
                    y: value(&r, ""),
                    interval: Some((value(&r, "_low"), value(&r, "_high"))),
                })
                .collect();
            let (style, with) = match loss {
                "none" => (Style::nth(n), String::new()),
                _ => (Style { marker: Marker::Ring, ..Style::nth(n) }, format!(", {loss}")),
            };
            if !points.is_empty() {
                series.push(Series { name: format!("{event}{with}"), style, points });
            }
        }
    }
    let top = series.iter().flat_map(|s| &s.points).map(|m| m.y).fold(10.0 * floor, f64::max);
    let top = libm::pow(10.0, libm::ceil(libm::log10(top)));
    Chart {
        title: "An overlay of nodes with six links each".to_owned(),
        x: Axis::linear("nodes", (0.0, 200.0), 50.0),
        y: Axis::log(label, (floor, top)),
        series,
    }
}

/// A column's values for an event in an overlay of this many nodes, one for each loss.
fn of(table: &Table, nodes: f64, event: &str, column: &str) -> [f64; LOSSES.len()] {
    LOSSES.map(|(loss, _)| {
        let here = |r: &Record<'_>| {
            r.is("loss", loss) && r.is("event", event) && r.number("nodes") == nodes
        };
        table.iter().find(here).map_or(f64::NAN, |r| r.number(column))
    })
}

fn soon(event: &'static str, bound: f64, sabotage: &'static str) -> Claim {
    Claim {
        id: event,
        says: match event {
            "partition" => {
                "100 nodes agree within 1.5 s that they are partitioned, in the worst run, without \
                 loss"
            }
            _ => {
                "100 nodes agree within 1.5 s that they are one overlay again, in the worst run, \
                 without loss"
            }
        },
        published: None,
        bound: Bound::at_most(bound, OWN_TARGET),
        unit: "s",
        decimals: 3,
        measure: Box::new(move |t| {
            // A quick run does not include an overlay of 100.
            let nodes = t.iter().map(|r| r.number("nodes")).filter(|&n| n <= 100.0);
            let nodes = nodes.fold(f64::NAN, f64::max);
            let [clean, lossy] = of(t, nodes, event, "converged_most_s");
            let [kb, wires, runs] =
                ["flooded_kb", "wires", "runs"].map(|c| of(t, nodes, event, c)[0]);
            let note = format!(
                "{nodes:.0} nodes, {wires:.0} wires, {kb:.0} kB flooded; with 5 % loss {lossy:.2} s. {}",
                worst_of(runs)
            );
            Measured::census(clean).noting(note)
        }),
        at: &[25.0, 100.0],
        sabotage,
        ..Claim::default()
    }
}

fn nothing_lost() -> Claim {
    Claim {
        id: "nothing-lost",
        says: "after each event each of 25 nodes has the newest record of every other node that it \
               can reach, with and without loss",
        published: None,
        bound: Bound::at_most(0.0, OWN_TARGET),
        unit: "pairs of nodes without it",
        decimals: 0,
        measure: Box::new(|t| {
            let stale = EVENTS.map(|event| maximum(of(t, 25.0, event, "stale")));
            let worst = maximum(stale);
            Measured::census(worst)
        }),
        at: &[25.0],
        sabotage: "room-for-half",
        ..Claim::default()
    }
}

fn quiet() -> Claim {
    Claim {
        id: "quiet",
        says: "in an overlay of 25 nodes without changes routing takes at most 10 bytes per second \
               and link, without loss",
        published: None,
        bound: Bound::at_most(10.0, "a tenth of what the paper's hellos take"),
        unit: "bytes/s and link",
        measure: Box::new(|t| {
            let columns = ["flooded_kb", "flooded_low_kb", "flooded_high_kb"];
            let [value, low, high] = columns.map(|c| of(t, 25.0, "quiet", c));
            // 75 links, during a minute.
            let rate = |kb: f64| kb * 1e3 / 75.0 / 60.0;
            let note =
                format!("With 5 % loss, whose measured value varies, {:.0}.", rate(value[1]));
            Measured::new(rate(value[0]), (rate(low[0]), rate(high[0]))).noting(note)
        }),
        at: &[25.0],
        sabotage: "refresh-every-second",
        ..Claim::default()
    }
}
