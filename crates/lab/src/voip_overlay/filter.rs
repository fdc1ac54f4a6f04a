//! The filter for the recordings before they are coded: its response, compared with the one that it
//! approximates.

use super::PAPER;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, maximum};
use crate::experiment::{Experiment, Figure, Inputs, Point};
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Column, Record, Table};
use trunkline_media::telephone::{RESPONSE, SendFilter, response};

const COLUMNS: &[Column] = &[
    Column::number("hz", 0).parameter(),
    Column::number("p830_db", 2),
    Column::number("filter_db", 2),
    Column::number("off_db", 3),
];
const FIGURE: &str = "send-filter";

/// The experiment on the send filter: its response, compared with the modified IRS of P.830.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "filter",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(|_, sabotage| vec![point(sabotage.is("no-filter"))]),
        figures: vec![Figure {
            name: FIGURE,
            title: "The send filter of a telephone",
            section: "II-C, beyond",
            caption: "Not in the paper. PESQ was made for speech as a telephone sends it; the \
                   recordings pass through this filter, modelled on the modified IRS of ITU-T \
                   P.830.",
            chart: one_panel(chart),
            claims: vec![within()],
        }],
        testbed: None,
    }
}

/// The response every 50 Hz, and at the frequencies of [`RESPONSE`].
fn point(absent: bool) -> Point {
    let mut steps: Vec<u32> = (1..=80).map(|n| n * 50).collect();
    steps.extend(RESPONSE.iter().map(|&(hz, _)| hz as u32));
    steps.sort_unstable();
    steps.dedup();
    let measure = move |_: &Inputs<'_>| {
        let filter = SendFilter::new();
        let row = |&hz: &u32| {
            let hz = f64::from(hz);
            let (wanted, is) = (response(hz), if absent { 0.0 } else { filter.gain(hz) });
            vec![hz.into(), wanted.into(), is.into(), (is - wanted).into()]
        };
        Ok(steps.iter().map(row).collect())
    };
    Point {
        key: "response".into(),
        x: 0.0,
        figures: vec![FIGURE],
        weight: 0.1,
        measure: Box::new(measure),
    }
}

fn within() -> Claim {
    Claim {
        id: "half-a-db",
        statement: "from 200 to 3,400 Hz the filter is within 0.5 dB of the response that it is \
               modelled on",
        published: None,
        bound: Bound::at_most(0.5, OWN_TARGET),
        unit: "dB off",
        measure: Box::new(|table| {
            let band = |r: &Record<'_>| (200.0..=3_400.0).contains(&r.number("hz"));
            let off = table.iter().filter(band).map(|r| r.number("off_db").abs());
            Measured::census(maximum(off))
        }),
        sabotage: "no-filter",
        ..Claim::default()
    }
}

fn chart(table: &Table) -> Chart {
    let marks = |column: &'static str| {
        let mark =
            move |r: Record<'_>| Mark { x: r.number("hz"), y: r.number(column), interval: None };
        table.iter().filter(|r| r.number("hz") >= 100.0).map(mark)
    };
    let measured = |m: &Mark| RESPONSE.iter().any(|&(hz, _)| hz == m.x);
    let ring = Style { marker: Marker::Ring, dash: "1 9", ..Style::nth(1) };
    Chart {
        title: "Send filter at 8 kHz, and the modified IRS of P.830".into(),
        x: Axis::log("frequency (Hz)", (100.0, 10_000.0)),
        y: Axis::linear("gain relative to 1 kHz (dB)", (-30.0, 10.0), 10.0),
        series: vec![
            Series {
                name: "filter, 255 coefficients".into(),
                style: Style { marker: Marker::None, ..Style::nth(0) },
                points: marks("filter_db").collect(),
            },
            Series {
                name: "modified IRS, send".into(),
                style: ring,
                points: marks("p830_db").filter(measured).collect(),
            },
        ],
    }
}
