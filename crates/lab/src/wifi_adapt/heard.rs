//! Quality of calls as heard: PESQ compared with the E-model's R.

use super::grid::{BACKGROUND, REPORT};
use super::topology::{Access, Scheme, Setting};
use super::{PAPER, claim};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use std::time::Duration;
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};
use trunkline_media::playout;
use trunkline_media::quality::emodel;
use trunkline_media::quality::pesq::Score;
use trunkline_rate::vegas::{self, CodecRate};

const COLUMNS: &[Column] = &[
    Column::text("calls_over").parameter(),
    Column::number("stations", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("r", 1),
    Column::number("r_low", 1),
    Column::number("r_high", 1),
    Column::number("r_mos", 2),
    Column::number("r_mos_low", 2),
    Column::number("r_mos_high", 2),
    Column::number("mos_lqo", 2),
    Column::number("mos_lqo_low", 2),
    Column::number("mos_lqo_high", 2),
];
const BY_R: [&str; 3] = ["r_mos", "r_mos_low", "r_mos_high"];
const BY_PESQ: [&str; 3] = ["mos_lqo", "mos_lqo_low", "mos_lqo_high"];

/// Value of the column `calls_over`: the paper's control.
const PAPERS: &str = "paper";
/// G.711 throughout, in the same column.
const G711: &str = "g711";
/// Length of a segment of speech, which is scored as a whole.
const SEGMENT: Duration = Duration::from_secs(12);

/// The experiment behind the figure on PESQ and R.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "heard",
        revision: 2,
        columns: COLUMNS,
        needs_speech: true,
        points: Box::new(points),
        figures: vec![figure()],
        testbed: None,
    }
}

fn schemes(sabotage: Sabotage) -> [(&'static str, Scheme); 4] {
    let paper = Scheme::Adaptive(vegas::Config::paper());
    let g711 = Scheme::Fixed(CodecRate::Kbps64);
    [
        (PAPERS, if sabotage.is("no-adaptation") { g711 } else { paper }),
        ("with-floor", Scheme::Adaptive(vegas::Config::default())),
        (G711, g711),
        ("g726-32", Scheme::Fixed(CodecRate::Kbps32)),
    ]
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let stations: &[u16] = size.pick(&[7], &[4, 12], &[4, 7, 12, 21]);
    let (runs, segments) = size.pick((1, 1), (3, 1), (5, 2));
    let one = |&stations: &u16| Point {
        key: stations.to_string(),
        x: stations.into(),
        figures: vec!["heard"],
        weight: f64::from(runs * segments) * (1.0 + 0.05 * f64::from(stations)),
        measure: Box::new(move |inputs| {
            let row =
                |(name, scheme)| row(name, scheme, stations, (runs, segments), sabotage, inputs);
            schemes(sabotage).into_iter().map(row).collect::<Result<Cells, _>>()
        }),
    };
    stations.iter().map(one).collect()
}

fn row(
    name: &str,
    scheme: Scheme,
    stations: u16,
    (runs, segments): (u32, u32),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Vec<Cell>, PointError> {
    let speech = inputs.speech.expect("the experiment needs speech");
    let setting = Setting {
        calls: stations - 1,
        scheme,
        adaptive: stations - 1,
        access: Access::Draft,
        both_ways: false,
        fec: None,
        repairs: true,
        background: BACKGROUND,
        background_after: Duration::ZERO,
        bit_error_rate: 0.0,
        attempts: 7,
        queue: 50,
        report: REPORT,
        length: segments * SEGMENT,
    };
    let run = |n: u32| -> Result<(f64, f64), PointError> {
        let seen = setting.run(inputs.seed.wrapping_add(n.into()))?;
        let missed: Vec<bool> = seen.first.iter().map(Option::is_none).collect();
        let deaf = sabotage.is("heard-at-16");
        let rates = seen.first.iter().map(|r| if deaf { Some(CodecRate::Kbps16) } else { *r });
        let mut decoder = Transcoded::new(rates.collect());
        let scores = speech.listen(&missed, (n * segments) as usize, &mut decoder)?;
        let heard = scores.iter().map(|s| s.unwrap_or(Score::LOWEST).mos_lqo);
        Ok((seen.r, heard.sum::<f64>() / scores.len() as f64))
    };
    let seen = (0..runs).map(run).collect::<Result<Vec<_>, _>>()?;
    let mut row: Vec<Cell> = vec![name.into(), u64::from(stations).into(), u64::from(runs).into()];
    row.extend(mean_cells(&seen, |(r, _)| *r));
    row.extend(mean_cells(&seen, |(r, _)| emodel::mos(*r)));
    row.extend(mean_cells(&seen, |(_, heard)| *heard));
    Ok(row)
}

/// A call that is transcoded from G.711 to the codec of each packet and back. Missed packets are
/// concealed as in G.711, without the state of either G.726 coder.
struct Transcoded {
    rates: std::vec::IntoIter<Option<CodecRate>>,
    encoder: Encoder,
    decoder: Decoder,
    player: Concealing,
    codes: Vec<u8>,
    pcm: Vec<u8>,
}

impl Transcoded {
    fn new(rates: Vec<Option<CodecRate>>) -> Transcoded {
        let (law, packing) = (Law::Mu, Packing::Rtp);
        Transcoded {
            rates: rates.into_iter(),
            encoder: Encoder::new(law, Rate::Kbps40, packing),
            decoder: Decoder::new(law, Rate::Kbps40, packing),
            player: Concealing::new(law),
            codes: Vec::new(),
            pcm: Vec::new(),
        }
    }
}

impl playout::Decoder for Transcoded {
    fn decode(&mut self, payload: &[u8], frame: &mut [i16]) {
        let rate = match self.rates.next().flatten() {
            Some(CodecRate::Kbps16) => Rate::Kbps16,
            Some(CodecRate::Kbps24) => Rate::Kbps24,
            Some(CodecRate::Kbps32) => Rate::Kbps32,
            Some(CodecRate::Kbps40) => Rate::Kbps40,
            Some(CodecRate::Kbps64) | None => {
                self.encoder.set_rate(Rate::Kbps40);
                self.decoder.set_rate(Rate::Kbps40);
                self.encoder.follow(payload);
                self.decoder.follow(payload);
                return self.player.decode(payload, frame);
            }
        };
        self.encoder.set_rate(rate);
        self.decoder.set_rate(rate);
        self.codes.clear();
        self.pcm.clear();
        self.encoder.encode_to(payload, &mut self.codes);
        self.decoder.decode_to(&self.codes, &mut self.pcm);
        self.player.decode(&self.pcm, frame);
    }

    fn conceal(&mut self, frame: &mut [i16]) {
        self.rates.next();
        self.player.conceal(frame);
    }

    fn delay(&self) -> usize {
        self.player.delay()
    }

    fn flush(&mut self, tail: &mut [i16]) {
        self.player.flush(tail);
    }
}

fn of(table: &Table, over: &str, columns: [&str; 3]) -> Vec<Measured> {
    table.iter().filter(|r| r.is("calls_over", over)).map(|r| Measured::of(&r, columns)).collect()
}

fn draw(table: &Table) -> Panels {
    let panel = |(label, columns): (&str, [&'static str; 3])| {
        let series = |(n, (name, _)): (usize, (&str, Scheme))| {
            let mark = |r: Record<'_>| {
                let Measured { estimate, interval, .. } = Measured::of(&r, columns);
                Mark { x: r.number("stations"), y: estimate, interval: Some(interval) }
            };
            let rows = table.iter().filter(|r| r.is("calls_over", name));
            Series { name: name.to_owned(), style: Style::nth(n), points: rows.map(mark).collect() }
        };
        let all = schemes(Sabotage::NONE).into_iter().enumerate().map(series).collect();
        Panel::new(Axis::linear(label, (1.0, 5.0), 1.0), all)
    };
    Panels {
        title: "Quality of calls as heard".to_owned(),
        x: Axis::linear("number of stations (access point included)", (0.0, 25.0), 5.0),
        panels: [("MOS-LQO by PESQ", BY_PESQ), ("MOS by R", BY_R)].map(panel).into(),
        guides: Vec::new(),
    }
}

fn figure() -> Figure {
    Figure {
        name: "heard",
        title: "Quality of calls as heard",
        section: "5, beyond figure 4",
        caption: "Speech through the codecs of figure 4's calls, packet by packet, scored by PESQ \
               (MOS-LQO, P.862.1), compared with the mean opinion score of the E-model's R, which \
               includes delay. The first call of each run.",
        chart: Box::new(draw),
        claims: vec![
            Claim {
                unit: "of MOS",
                measure: Box::new(|t| {
                    let [g711, paper] = [G711, PAPERS].map(|over| of(t, over, BY_PESQ));
                    let full = g711.iter().zip(&paper).skip(1); // the first is of 4 stations
                    Measured::minimum(full.map(|(a, b)| a.minus(b)))
                }),
                ..claim(
                    "worse",
                    "with 7 stations or more, PESQ also rates the paper's control half a point \
                     below G.711 throughout",
                    None,
                    Bound::at_least(0.5, "R is 41 lower: 1.7 points of its opinion score"),
                    "no-adaptation",
                )
            },
            Claim {
                expected: Verdict::Undecided,
                why: "They agree to a third. But the choice of the coded speech matters more than \
                      the number of stations: the mean of five runs of 24 s of G.726 is known to a \
                      quarter.",
                unit: "of MOS",
                measure: Box::new(|t| {
                    let off = |over| {
                        let [heard, said] = [BY_PESQ, BY_R].map(|columns| of(t, over, columns));
                        let off = |(a, b): (&Measured, &Measured)| a.minus(b).abs();
                        heard.iter().zip(&said).map(off).collect::<Vec<_>>()
                    };
                    Measured::maximum(schemes(Sabotage::NONE).into_iter().flat_map(|(n, _)| off(n)))
                }),
                ..claim(
                    "as-r-says",
                    "PESQ and R agree to half a point",
                    None,
                    Bound::at_most(0.5, "a tenth of the scale of both"),
                    "heard-at-16",
                )
            },
        ],
    }
}
