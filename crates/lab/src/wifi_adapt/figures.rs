//! Figures 4 to 7, and the paper's statements on them.

mod bandwidth;
mod delays;
mod fairness;
mod jitter;
mod one_queue;
mod quality;
mod set_up;

use super::grid::{self, DRAFT, GREEDY, IN_ALL, LATER, POLLED_7, POLLED_20, SCHEMES, STANDARD};
use crate::claim::Measured;
use crate::experiment::Figure;
use crate::plot::{Axis, Draw, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};

const MEAN: [&str; 3] = ["mean_ms", "mean_low_ms", "mean_high_ms"];
const MAXIMUM: [&str; 3] = ["max_ms", "max_low_ms", "max_high_ms"];
const BANDWIDTH: [&str; 3] = ["kb_s", "kb_low_s", "kb_high_s"];
const PAYLOAD: [&str; 3] = ["payload_kb_s", "payload_kb_low_s", "payload_kb_high_s"];
const VARIATION: [&str; 3] = ["variation_pct", "variation_low_pct", "variation_high_pct"];
const RATING: [&str; 3] = ["r", "r_low", "r_high"];
const FAIRNESS: [&str; 3] = ["fairness", "fairness_low", "fairness_high"];
const JITTER: [&str; 3] = ["jitter_ms", "jitter_low_ms", "jitter_high_ms"];

/// A cell and the transport of calls in it, by their names in the table.
type Sent = (&'static str, &'static str);

/// The figures, in the paper's order.
pub fn all() -> Vec<Figure> {
    use {
        bandwidth::fig6,
        delays::{fig4, fig5},
        fairness::fig7,
        jitter::fig5b,
        one_queue::one_queue,
        quality::fig4b,
    };
    vec![fig4(), fig4b(), fig5(), fig5b(), fig6(), fig7(), one_queue()]
}

/// Selects the points of these transports, for claims.
fn reads(sent: impl Into<Vec<Sent>>) -> Box<dyn Fn(&str) -> bool + Send + Sync> {
    let sent = sent.into();
    Box::new(move |key| sent.iter().any(|&sent| grid::is_of(key, sent)))
}

/// A measure at each number of calls that satisfies a condition.
fn at(
    table: &Table,
    (cell, over): Sent,
    columns: [&'static str; 3],
    calls: impl Fn(f64) -> bool,
) -> Vec<Measured> {
    let is = |r: &Record<'_>| r.is("cell", cell) && r.is("calls_over", over);
    let rows = table.iter().filter(|r| is(r) && calls(r.number("calls")));
    rows.map(|r| {
        let stations = r.number("stations");
        Measured::of(&r, columns).noting(format!("With {stations} stations."))
    })
    .collect()
}

fn maximum(values: Vec<Measured>) -> Measured {
    let largest = values.iter().max_by(|a, b| a.estimate.total_cmp(&b.estimate));
    let note = largest.map_or_else(String::new, |m| m.note.clone());
    Measured::maximum(values).noting(note)
}

fn minimum(values: Vec<Measured>) -> Measured {
    let least = values.iter().min_by(|a, b| a.estimate.total_cmp(&b.estimate));
    let note = least.map_or_else(String::new, |m| m.note.clone());
    Measured::minimum(values).noting(note)
}

/// Difference between two transports at each number of calls that satisfies a condition.
fn differences(
    table: &Table,
    cell: &'static str,
    [more, less]: [&'static str; 2],
    columns: [&'static str; 3],
    calls: fn(f64) -> bool,
) -> Vec<Measured> {
    let [more, less] = [more, less].map(|over| at(table, (cell, over), columns, calls));
    more.iter().zip(&less).map(|(a, b)| a.minus(b).noting(a.note.as_str())).collect()
}

/// A panel for each of these cells, stacked.
fn draw(
    title: &'static str,
    label: &'static str,
    cells: &'static [&'static str],
    panels: &'static [(&'static str, [&'static str; 3])],
    guide: Option<f64>,
) -> Draw {
    Box::new(move |table| {
        let panel = |cell: &'static str, (what, columns): (&'static str, [&'static str; 3])| {
            let series = |(n, over): (usize, &'static str)| {
                let rows =
                    table.iter().filter(move |r| r.is("cell", cell) && r.is("calls_over", over));
                let mark = |r: Record<'_>| {
                    let Measured { estimate, interval, .. } = Measured::of(&r, columns);
                    Mark { x: r.number("stations"), y: estimate, interval: Some(interval) }
                };
                Series {
                    name: over.to_owned(),
                    style: Style::nth(n),
                    points: rows.map(mark).collect(),
                }
            };
            let all: Vec<Series> = SCHEMES.into_iter().enumerate().map(series).collect();
            // The rate of a greedy flow would hide everything else.
            let shown = all.iter().filter(|s| s.name != GREEDY || !columns[0].contains("kb"));
            let values = shown.flat_map(|s| &s.points).map(|m| m.y).chain(guide);
            let y = Axis::fitting(&format!("{label}{what}, {cell}"), 0.0, values);
            Panel::new(y, all)
        };
        let each = cells.iter().flat_map(|cell| panels.iter().map(move |p| (*cell, *p)));
        let x = Axis::linear("number of stations (access point included)", (0.0, 25.0), 5.0);
        let panels = each.map(|(cell, p)| panel(cell, p)).collect();
        Panels { title: title.to_owned(), x, panels, guides: Vec::new() }
    })
}

/// The cells that figures show.
const CELLS: &[&str] = &[DRAFT, STANDARD, IN_ALL, LATER, POLLED_20, POLLED_7];
/// Numbers of stations with more than 6 calls.
const MANY: &[f64] = &[8.0, 9.0, 10.0, 12.0, 14.0, 17.0, 19.0, 21.0, 24.0];
/// Reason for bounds where the paper gives a number.
const PUBLISHED: &str = "the paper's number";
