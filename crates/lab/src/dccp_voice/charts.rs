//! Elements that the figures of this paper share.

use super::call::Codec;
use super::transport::{MODIFIED, PAPERS};
use crate::claim::Measured;
use crate::plot::{Axis, Draw, Guide, Interval, Mark, Panel, Panels, Series, Style};
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

/// The median of some values with its 95 % interval, which a single one does not have; NaN if there
/// are none.
fn median(mut values: Vec<f64>) -> Measured {
    values.sort_by(f64::total_cmp);
    let none = (f64::NAN, f64::NAN);
    match quantile(&values, 0.5) {
        Some(median) => Measured::new(median, quantile_interval(&values, 0.5).unwrap_or(none)),
        None => Measured::census(f64::NAN),
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

/// Why a claim on two calls doesn't read a point: the condition of [`only_where`] there.
pub const BOTH_OF_USE: &str =
    "something is left of both calls: R above 0 and less than 95 % missed";
/// The same for a claim that one call is better, which a call that is silent can show.
pub const EITHER_OF_USE: &str =
    "something is left of either call: R above 0 and less than 95 % missed";

/// Share of missed packets, in percent, from which a call counts as silent: its R depends on nothing
/// else any more, and is above 0 with G.711.
const SILENT_PCT: f64 = 95.0;

/// Whether something is left of a call over this transport, at each of these places, in the order
/// of [`differences`].
pub fn of_use(
    table: &Table,
    codecs: &[Codec],
    transport: &str,
    places: &[(f64, f64)],
) -> Vec<bool> {
    let each = codecs.iter().flat_map(|codec| places.iter().map(move |place| (*codec, *place)));
    let is_heard = |row: Record<'_>| {
        let columns = ["dropped_by_sender_pct", "dropped_by_playout_pct", "lost_pct"];
        let missed: f64 = columns.iter().map(|column| row.number(column)).sum();
        row.number("r") > 0.0 && missed < SILENT_PCT
    };
    each.map(|(codec, place)| at(table, codec, transport, place).is_some_and(is_heard)).collect()
}

/// Applies `of` to the values of the points at which a claim's condition holds. If it holds at
/// none, the claim is undecided by rule: the result is that of all points, with an interval that
/// decides nothing.
pub fn only_where(
    condition: &str,
    holds: &[bool],
    values: Vec<Measured>,
    of: fn(Vec<Measured>) -> Measured,
) -> Measured {
    let read = values.iter().zip(holds).filter(|(_, holds)| **holds);
    let read: Vec<Measured> = read.map(|(value, _)| value.clone()).collect();
    let (n, total) = (read.len(), values.len());
    let all = of(values);
    if all.estimate.is_nan() || n == total {
        // Points that weren't measured must not be taken for points that the condition excludes.
        return all;
    }
    if n == 0 {
        let whole = Measured::new(all.estimate, (f64::NEG_INFINITY, f64::INFINITY));
        return whole.noting(format!("Undecided by rule: at none of its points {condition}."));
    }
    of(read).noting(format!(
        "Reads {n} of {total} points: at the others it isn't true that {condition}."
    ))
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
    let style = Style { interval: Interval::Quartiles, ..style };
    if name == MODIFIED { Style { width: 30, ..style } } else { style }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Bound, Claim, Verdict};
    use crate::output::judge;

    /// The verdict of "at least 1" on the larger of 2 and −5, which are read or not.
    fn judged(holds: [bool; 2], values: [f64; 2]) -> (Verdict, String) {
        let measure = move |_: &Table| {
            let values = values.map(Measured::census).into();
            only_where("it rains", &holds, values, Measured::maximum)
        };
        let bound = Bound::at_least(1.0, "");
        let claim = Claim { bound, measure: Box::new(measure), ..Claim::default() };
        let judged = judge(&claim, &Table { columns: &[], rows: Vec::new() });
        (judged.verdict, judged.note)
    }

    #[test]
    fn a_claim_reads_only_points_where_its_condition_holds() {
        let values = [2.0, -5.0];
        assert_eq!(judged([true, true], values).0, Verdict::Holds);
        assert_eq!(judged([false, true], values).0, Verdict::Fails);
        let (verdict, note) = judged([false, false], values);
        assert_eq!(verdict, Verdict::Undecided);
        assert_eq!(note, "Undecided by rule: at none of its points it rains.");
        // A missing point is no point where it doesn't rain.
        assert_eq!(judged([true, false], [2.0, f64::NAN]).0, Verdict::Fails);
        assert_eq!(judged([false, false], [2.0, f64::NAN]).0, Verdict::Fails);
    }
}
