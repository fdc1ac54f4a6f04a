//! Elements that the figures of this paper share.

use super::call::Codec;
use super::transport::{MODIFIED, PAPERS};
use crate::claim::Measured;
use crate::plot::{Axis, Draw, Guide, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};
use trunkline_base::stats::{quantile, quantile_interval};

/// Rows in which both directions lose packets, as in the paper's figures.
pub fn both(table: &Table) -> impl Iterator<Item = Record<'_>> + Clone {
    table.iter().filter(|r| r.is("loss_on", "both ways"))
}

/// The row of a codec and a transport at this delay and loss.
pub fn at<'a>(
    table: &'a Table,
    codec: Codec,
    transport: &str,
    (delay_ms, loss_pct): (f64, f64),
) -> Option<Record<'a>> {
    both(table).find(|r| {
        r.is("codec", codec.name())
            && r.is("transport", transport)
            && r.number("delay_ms") == delay_ms
            && r.number("loss_pct") == loss_pct
    })
}

/// R of each run, in order, so that runs of two rows can be paired: they are of the same calls.
fn runs(r: &Record<'_>) -> Vec<f64> {
    r.text("r_of_each_run").split_whitespace().filter_map(|run| run.parse().ok()).collect()
}

/// The median of some values with its 95 % interval; NaN if there are none.
fn median(mut values: Vec<f64>) -> Measured {
    values.sort_by(f64::total_cmp);
    match (quantile(&values, 0.5), quantile_interval(&values, 0.5)) {
        (Some(median), Some(interval)) => Measured::new(median, interval),
        _ => Measured::census(f64::NAN),
    }
}

/// The median R of a codec over a transport at this delay and loss; NaN if that wasn't measured.
pub fn one(table: &Table, codec: Codec, transport: &str, place: (f64, f64)) -> Measured {
    median(at(table, codec, transport, place).map_or(Vec::new(), |row| runs(&row)))
}

/// Margin by which R of `a` exceeds that of `b` at the same point: the median over its calls.
pub fn above(a: &Record<'_>, b: &Record<'_>) -> Measured {
    let (a, b) = (runs(a), runs(b));
    if a.len() != b.len() {
        return Measured::census(f64::NAN);
    }
    median(a.iter().zip(b).map(|(a, b)| a - b).collect())
}

/// Margin by which `better` exceeds `worse` at each of these places, in order.
pub fn differences(
    table: &Table,
    codecs: &[Codec],
    [better, worse]: [&str; 2],
    places: &[(f64, f64)],
) -> Vec<Measured> {
    let each = codecs.iter().flat_map(|codec| places.iter().map(move |place| (*codec, *place)));
    let one = |(codec, place)| {
        let rows = (at(table, codec, better, place), at(table, codec, worse, place));
        match rows {
            (Some(better), Some(worse)) => above(&better, &worse),
            _ => Measured::census(f64::NAN),
        }
    };
    each.map(one).collect()
}

/// The places of these delays at one loss, in percent.
pub fn along(delays: &[f64], loss_pct: f64) -> Vec<(f64, f64)> {
    delays.iter().map(|delay| (*delay, loss_pct)).collect()
}

/// The horizontal axis of a figure.
#[derive(Clone, Copy)]
pub enum Along {
    /// By delay, at the given loss in percent.
    Delay(f64),
    /// By loss, at a one-way delay of 50 ms.
    Loss,
}

/// A figure of two panels, G.729 above G.711, with the median R of these transports, and the
/// quartiles as bars.
pub fn draw(title: &'static str, along: Along, transports: &'static [&'static str]) -> Draw {
    Box::new(move |table| {
        let (x, column) = match along {
            Along::Delay(_) => (Axis::linear("one-way delay (ms)", (0.0, 450.0), 50.0), "delay_ms"),
            Along::Loss => (Axis::log("packets lost (%)", (0.01, 10.0)), "loss_pct"),
        };
        let here = |r: &Record<'_>| match along {
            Along::Delay(loss) => r.number("loss_pct") == loss,
            Along::Loss => true,
        };
        let panel = |codec: Codec| {
            let one = |(n, name): (usize, &&str)| {
                let rows = both(table)
                    .filter(|r| here(r) && r.is("codec", codec.name()) && r.is("transport", name));
                let mark = |r: Record<'_>| {
                    let interval = Some((r.number("r_q1"), r.number("r_q3")));
                    Mark { x: r.number(column), y: r.number("r"), interval }
                };
                Series {
                    name: (*name).to_owned(),
                    style: style(n, name),
                    points: rows.map(mark).collect(),
                }
            };
            let y = Axis::linear(&format!("R, {}", codec.name()), (0.0, 100.0), 20.0);
            let mut panel = Panel::new(y, transports.iter().enumerate().map(one).collect());
            panel.guides.push(Guide { at: 50.0, label: "poor".to_owned() });
            panel
        };
        let panels = vec![panel(Codec::G729), panel(Codec::G711)];
        Panels { title: title.to_owned(), x, panels, guides: Vec::new() }
    })
}

/// The paper's proposed variant has a thicker line, as in the paper.
fn style(n: usize, name: &str) -> Style {
    let style = Style::nth(PAPERS.iter().position(|p| *p == name).unwrap_or(n));
    if name == MODIFIED { Style { width: 30, ..style } } else { style }
}
