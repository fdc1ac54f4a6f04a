//! Table 1: the codecs' output for 20 ms of speech.

use super::topology::HEADERS;
use super::{PAPER, claim};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use trunkline_media::codec::g711::Law;
use trunkline_media::codec::g726::{Encoder, Packing, Rate};

const COLUMNS: &[Column] = &[
    Column::text("codec").parameter(),
    Column::number("kbit_s", 0).parameter(),
    Column::number("payload_bytes", 0),
    Column::number("packet_bytes", 0),
    Column::number("published_payload_bytes", 0),
    Column::number("published_packet_bytes", 0),
];
/// Number of samples in 20 ms, at 8,000 per second.
const SAMPLES: usize = 160;
/// Payload and packet in bytes, as published, from the highest rate.
const PUBLISHED: [(u64, u64); 5] = [(160, 200), (100, 140), (80, 120), (60, 100), (40, 80)];

/// The experiment behind the table.
pub fn experiment() -> Experiment {
    let points = |_: Size, sabotage: Sabotage| {
        vec![Point {
            key: "table1".to_owned(),
            x: 0.0,
            figures: vec!["table1"],
            weight: 0.001,
            measure: Box::new(move |_| Ok(rows(sabotage))),
        }]
    };
    Experiment {
        paper: PAPER,
        name: "codecs",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![table1()],
        testbed: None,
    }
}

/// Output of each codec for 20 ms of a tone.
fn rows(sabotage: Sabotage) -> Vec<Vec<Cell>> {
    let pcm: Vec<u8> = (0..SAMPLES).map(|n| [0xff, 0x9c, 0x80, 0x1c][n % 4]).collect();
    let coded = |rate: Rate| {
        let mut out = Vec::new();
        Encoder::new(Law::Mu, rate, Packing::Rtp).encode_to(&pcm, &mut out);
        ("G.726", out.len())
    };
    let headers = if sabotage.is("without-rtp") { HEADERS - 12 } else { HEADERS };
    let g726 = Rate::ALL.into_iter().rev().map(coded);
    let all = [("G.711", pcm.len())].into_iter().chain(g726);
    let row = |((codec, payload), published): ((&str, usize), (u64, u64))| {
        let mut row = vec![codec.into(), (payload as f64 * 8.0 / 20.0).into()];
        let (payload, packet) = (payload as u64, (payload + headers) as u64);
        row.extend([payload, packet, published.0, published.1].map(Cell::from));
        row
    };
    all.zip(PUBLISHED).map(row).collect()
}

/// Largest difference of a packet or payload from the published length.
fn farthest(table: &Table) -> Measured {
    let off = |r: Record<'_>, of: &str| {
        (r.number(&format!("{of}_bytes")) - r.number(&format!("published_{of}_bytes"))).abs()
    };
    let each = table.iter().flat_map(|r| ["payload", "packet"].map(|of| off(r, of)));
    Measured::maximum(each.map(Measured::census))
}

fn table1() -> Figure {
    Figure {
        name: "table1",
        title: "Codec bit rate and packet size",
        section: "5, table 1",
        caption: "Output of G.711 and of the four rates of G.726 for 20 ms of speech, also with 40 \
               bytes of IPv4, UDP and RTP headers.",
        chart: one_panel(|t| {
            let series = |(n, (name, column)): (usize, (&str, &str))| Series {
                name: name.to_owned(),
                style: Style::nth(n),
                points: t
                    .iter()
                    .map(|r| Mark { x: r.number("kbit_s"), y: r.number(column), interval: None })
                    .collect(),
            };
            let columns = [("payload", "payload_bytes"), ("with headers", "packet_bytes")];
            Chart {
                title: "Table 1".to_owned(),
                x: Axis::linear("codec bit rate (kbit/s)", (0.0, 80.0), 16.0),
                y: Axis::linear("bytes", (0.0, 250.0), 50.0),
                series: columns.into_iter().enumerate().map(series).collect(),
            }
        }),
        claims: vec![Claim {
            unit: "bytes",
            decimals: 0,
            measure: Box::new(farthest),
            ..claim(
                "sizes",
                "the codecs' payloads and packets are as long as table 1 says",
                Some("160, 100, 80, 60 and 40 bytes, with headers 200, 140, 120, 100 and 80"),
                Bound::at_most(0.0, "whole bytes"),
                "without-rtp",
            )
        }],
    }
}
