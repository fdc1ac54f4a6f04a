//! Tables I and II: the codecs' rates, and the meaning of R.

use super::PAPER;
use super::call::Codec;
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Table};
use trunkline_media::quality::reduced::Rating;
use trunkline_media::talk::TABLE_I_HEADERS;

const CODECS: &[Column] = &[
    Column::text("codec").parameter(),
    Column::number("audio_kbit_s", 1),
    Column::number("frame_ms", 0),
    Column::number("frame_bytes", 0),
    Column::number("frames_per_packet", 0),
    Column::number("data_kbit_s", 1),
    Column::number("published_kbit_s", 1),
];
const QUALITY: &[Column] = &[
    Column::number("r", 0).parameter(),
    Column::number("mos", 3),
    Column::number("published_mos", 2),
];

/// R and MOS at the borders of Table II.
const BORDERS: [(f64, f64); 6] =
    [(50.0, 2.58), (60.0, 3.10), (70.0, 3.60), (80.0, 4.03), (90.0, 4.34), (100.0, 4.50)];

/// The experiments behind both tables.
pub fn experiments() -> Vec<Experiment> {
    let one = |name, columns, points, figure| Experiment {
        paper: PAPER,
        name,
        revision: 1,
        columns,
        needs_speech: false,
        points,
        figures: vec![figure],
        testbed: None,
    };
    let codecs = Box::new(|_: Size, sabotage| vec![point("table1", move || rates(sabotage))]);
    let quality = Box::new(|_: Size, sabotage| vec![point("table2", move || scores(sabotage))]);
    vec![one("codecs", CODECS, codecs, table1()), one("quality", QUALITY, quality, table2())]
}

fn point(figure: &'static str, rows: impl Fn() -> Vec<Vec<Cell>> + Send + Sync + 'static) -> Point {
    Point {
        key: figure.to_owned(),
        x: 0.0,
        figures: vec![figure],
        weight: 0.001,
        measure: Box::new(move |_| Ok(rows())),
    }
}

fn rates(sabotage: Sabotage) -> Vec<Vec<Cell>> {
    let headers = if sabotage.is("without-link-layer") { 40 } else { TABLE_I_HEADERS };
    let row = |codec: Codec| {
        let framing = codec.framing();
        let audio = 8e-3 * framing.frame_bytes as f64 / framing.frame.as_secs_f64();
        let data = framing.bitrate(headers).as_bps() as f64 / 1e3;
        let published = if codec == Codec::G711 { 95.2 } else { 39.2 };
        let mut row: Vec<Cell> = vec![codec.name().into()];
        row.extend([audio, framing.frame.as_secs_f64() * 1e3].map(Cell::from));
        row.push((framing.frame_bytes as u64).into());
        row.push(u64::from(framing.frames_per_packet).into());
        row.extend([data, published].map(Cell::from));
        row
    };
    Codec::ALL.map(row).into()
}

fn scores(sabotage: Sabotage) -> Vec<Vec<Cell>> {
    let less = if sabotage.is("one-point-less") { 1.0 } else { 0.0 };
    let row = |(r, published): (f64, f64)| {
        let rating = Rating { r: r - less, ..Rating::of(0.0, 0.0) };
        [r, rating.mos(), published].map(Cell::from).into()
    };
    BORDERS.map(row).into()
}

fn farthest(table: &Table, [is, published]: [&'static str; 2]) -> Measured {
    let off = |r: crate::table::Record<'_>| (r.number(is) - r.number(published)).abs();
    Measured::maximum(table.iter().map(|r| Measured::census(off(r))))
}

fn table1() -> Figure {
    Figure {
        name: "table1",
        title: "The codecs' rates during a talkspurt",
        section: "III-B",
        caption: "160 and 20 bytes of speech in packets of 20 ms. The paper's data rates include 78 \
               bytes of headers for each: 40 of IPv4, UDP and RTP, and 38 of Ethernet.",
        chart: one_panel(|t| {
            let points = |column| {
                let mark = move |(n, r): (usize, crate::table::Record<'_>)| Mark {
                    x: n as f64 + 1.0,
                    y: r.number(column),
                    interval: None,
                };
                t.iter().enumerate().map(mark).collect()
            };
            Chart {
                title: "Table I".to_owned(),
                x: Axis::linear("1: G.711, 2: G.729", (0.0, 3.0), 1.0),
                y: Axis::linear("kbit/s", (0.0, 100.0), 20.0),
                series: vec![
                    Series {
                        name: "audio".to_owned(),
                        style: Style::nth(0),
                        points: points("audio_kbit_s"),
                    },
                    Series {
                        name: "with headers".to_owned(),
                        style: Style::nth(1),
                        points: points("data_kbit_s"),
                    },
                ],
            }
        }),
        claims: vec![Claim {
            id: "rates",
            statement: "with 78 bytes of headers the codecs have the rates of Table I",
            published: Some("95.2 kbit/s with G.711, 39.2 kbit/s with G.729"),
            bound: Bound::at_most(0.05, "half of the last digit"),
            unit: "kbit/s",
            measure: Box::new(|t| farthest(t, ["data_kbit_s", "published_kbit_s"])),
            sabotage: "without-link-layer",
            ..Claim::default()
        }],
    }
}

fn table2() -> Figure {
    Figure {
        name: "table2",
        title: "R, mean opinion score and perceived quality",
        section: "III-F",
        caption: "The mean opinion score that corresponds to the E-model's R, at the borders between \
               best, high, medium, low and poor.",
        chart: one_panel(|t| {
            let mark = |r: crate::table::Record<'_>| Mark {
                x: r.number("r"),
                y: r.number("mos"),
                interval: None,
            };
            Chart {
                title: "Table II".to_owned(),
                x: Axis::linear("R", (40.0, 100.0), 10.0),
                y: Axis::linear("mean opinion score", (1.0, 5.0), 1.0),
                series: vec![Series {
                    name: "MOS".to_owned(),
                    style: Style::nth(0),
                    points: t.iter().map(mark).collect(),
                }],
            }
        }),
        claims: vec![Claim {
            id: "scores",
            statement: "the formula gives the scores of Table II",
            published: Some("4.50, 4.34, 4.03, 3.60, 3.10, 2.58 at R of 100, 90 … 50"),
            bound: Bound::at_most(0.01, "one digit, as the table's are rounded up"),
            unit: "points of MOS",
            decimals: 3,
            measure: Box::new(|t| farthest(t, ["mos", "published_mos"])),
            sabotage: "one-point-less",
            ..Claim::default()
        }],
    }
}
