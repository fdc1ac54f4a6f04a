//! Table 1: the codecs' rates with headers.

use super::PAPER;
use super::readings::WHOLE_PACKETS;
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Experiment, Figure, Point, Sabotage};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};

const COLUMNS: &[Column] = &[
    Column::text("codec").parameter(),
    Column::number("bit_rate_kbit_s", 1).parameter(),
    Column::number("packet_ms", 0).parameter(),
    Column::number("payload_bytes", 0).parameter(),
    Column::number("ip_kbit_s", 3),
    Column::number("bit_rate_and_headers_kbit_s", 3),
    Column::number("published_kbit_s", 2),
    Column::number("encoding_ms", 2),
    Column::number("packet_encoding_ms", 2),
    Column::number("published_encoding_ms", 2),
];

/// Codec, bit rate in kbit/s, milliseconds and bytes of a packet, and the rate in Table 1. G.729A's
/// 20 bytes are two of its frames of 10 ms.
const CODECS: [(&str, f64, f64, f64, f64); 4] = [
    ("G.723.1 at 5.3", 5.3, 30.0, 20.0, 15.96),
    ("G.723.1 at 6.3", 6.3, 30.0, 24.0, 16.96),
    ("G.729A", 8.0, 20.0, 20.0, 24.0),
    ("GSM", 13.2, 20.0, 33.0, 29.2),
];

/// Samples of 8 kHz in a frame and in the lookahead behind it, in the order of [`CODECS`] (ITU-T
/// G.723.1, G.729 and GSM 06.10), and Table 1's total encoding delay in milliseconds.
const FRAMES: [(f64, f64, f64); 4] =
    [(240.0, 60.0, 37.5), (240.0, 60.0, 37.5), (80.0, 40.0, 15.0), (160.0, 0.0, 20.0)];
/// Samples in a millisecond.
const PER_MS: f64 = 8.0;

/// The experiment behind table 1.
pub fn experiment() -> Experiment {
    let point = |sabotage| Point {
        key: "table1".to_owned(),
        x: 0.0,
        figures: vec!["table1"],
        weight: 0.001,
        measure: Box::new(move |_| Ok(rows(sabotage))),
    };
    Experiment {
        paper: PAPER,
        name: "codecs",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(move |_, sabotage| vec![point(sabotage)]),
        figures: vec![table1()],
        testbed: None,
    }
}

fn rows(sabotage: Sabotage) -> Vec<Vec<Cell>> {
    let headers = if sabotage.is("without-rtp") { 28.0 } else { 40.0 };
    let lookaheads = if sabotage.is("lookahead-twice") { 2.0 } else { 1.0 };
    let mut rows = Vec::new();
    for ((codec, rate, millis, payload, published), (frame, ahead, published_ms)) in
        CODECS.into_iter().zip(FRAMES)
    {
        let mut row: Vec<Cell> = vec![codec.into()];
        let (whole, sum) = (8.0 * (headers + payload) / millis, rate + 8.0 * headers / millis);
        let ahead = lookaheads * ahead / PER_MS;
        let delays = [frame / PER_MS + ahead, millis + ahead, published_ms];
        row.extend([rate, millis, payload, whole, sum, published].map(Cell::from));
        row.extend(delays.map(Cell::from));
        rows.push(row);
    }
    rows
}

fn table1() -> Figure {
    Figure {
        name: "table1",
        title: "The codecs' rates with headers",
        section: "2",
        caption: "20, 24 or 33 bytes of speech in a packet behind 40 of IPv4, UDP and RTP, every 30 \
               ms with G.723.1 and every 20 ms with the others. Pale: the sum of the codec's bit \
               rate and that of the headers, as in the paper. The total encoding delay is that of \
               a frame and the lookahead, from the codecs' standards; the decoding delay is no sum \
               of anything in the table.",
        chart: one_panel(chart),
        claims: vec![
            Claim {
                statement: "40 bytes of headers and whole bytes of speech give the rates of Table 1",
                measure: Box::new(|t| farthest(t, ["ip_kbit_s", "published_kbit_s"])),
                expected: Verdict::Fails,
                why: "G.723.1's frames of 30 ms are whole bytes: 20 are 5.33 kbit/s and 24 are \
                      6.4, so that the rates are 16.0 and 17.07. The paper adds 10.67 of headers \
                      to the bit rates 5.3 and 6.3.",
                ..claim("whole-bytes")
            },
            Claim {
                statement: "the codecs' bit rates and 40 bytes of headers give the rates of Table 1",
                measure: Box::new(|t| {
                    farthest(t, ["bit_rate_and_headers_kbit_s", "published_kbit_s"])
                }),
                ..claim("bit-rates")
            },
            Claim {
                statement: "a frame and the lookahead give the total encoding delays of Table 1",
                ..encoding("encoding-delays", "encoding_ms")
            },
            Claim {
                statement: "the packets whose rates are in Table 1 are encoded after its total \
                            encoding delays",
                reading: WHOLE_PACKETS,
                expected: Verdict::Fails,
                why: "G.729A's rate is that of packets with two frames of 10 ms: the second is \
                      encoded 25 ms after the first began.",
                ..encoding("encoding-delays@whole-packets", "packet_encoding_ms")
            },
        ],
    }
}

fn encoding(id: &'static str, column: &'static str) -> Claim {
    Claim {
        published: Some("37.5 ms total encoding delay with G.723.1, 15 with G.729A, 20 with GSM"),
        bound: Bound::at_most(0.01, "one digit of the table"),
        unit: "ms",
        measure: Box::new(move |t| farthest(t, [column, "published_encoding_ms"])),
        sabotage: "lookahead-twice",
        ..claim(id)
    }
}

fn claim(id: &'static str) -> Claim {
    Claim {
        id,
        statement: "",
        published: Some("15.96 and 16.96 kbit/s with G.723.1, 24 with G.729A, 29.2 with GSM"),
        bound: Bound::at_most(0.01, "one digit, as the table's are truncated, not rounded"),
        unit: "kbit/s",
        decimals: 3,
        measure: Box::new(|_| Measured::census(f64::NAN)),
        sabotage: "without-rtp",
        ..Claim::default()
    }
}

/// Largest difference between a codec's values in two columns.
fn farthest(table: &Table, [column, published]: [&'static str; 2]) -> Measured {
    let off = |r: Record<'_>| (r.number(column) - r.number(published)).abs();
    Measured::maximum(table.iter().map(|r| Measured::census(off(r))))
}

fn chart(table: &Table) -> Chart {
    let line = |(name, column, style): (&str, &str, Style)| {
        let mark = |(n, r): (usize, Record<'_>)| Mark {
            x: n as f64 + 1.0,
            y: r.number(column),
            interval: None,
        };
        Series {
            name: name.to_owned(),
            style,
            points: table.iter().enumerate().map(mark).collect(),
        }
    };
    Chart {
        title: "Table 1".to_owned(),
        x: Axis::linear("1, 2: G.723.1, 3: G.729A, 4: GSM", (0.0, 5.0), 1.0),
        y: Axis::linear("kbit/s", (0.0, 40.0), 10.0),
        series: [
            ("whole bytes and headers", "ip_kbit_s", Style::nth(0)),
            ("bit rate and headers", "bit_rate_and_headers_kbit_s", Style::nth(1).pale()),
        ]
        .map(line)
        .into(),
    }
}
