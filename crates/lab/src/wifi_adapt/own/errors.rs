//! Bit errors, and redundancy against the losses that they cause: the paper's future work.

use super::{FEW, LOST, OURS, RATING, WRONG, Way, base, controls, draw_where, point, rows, with};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::{Figure, Point, Sabotage, Size};
use crate::plot::Axis;
use crate::table::{Record, Table};
use crate::wifi_adapt::bed::{Access, Scheme, Setting};
use crate::wifi_adapt::claim;
use trunkline_rate::vegas::{self, CodecRate, FecConfig, FecKind};

const SENT: [&str; 3] = ["sent_kb_s", "sent_low_kb_s", "sent_high_kb_s"];
const MISSED: [&str; 3] = ["missed_pct", "missed_low_pct", "missed_high_pct"];

/// Value of the column `calls_over`: copies of the speech as it was sent.
const COPIES: &str = "with-floor+copies";
/// Copies of the speech at 16 kbit/s, in the same column.
const LOW: &str = "with-floor+copies-16";
/// The paper's control with copies of the speech as it was sent, in the same column.
const PAPERS_COPIES: &str = "paper+copies";
/// Parity of the packets as they were sent, in the same column.
const PARITY: &str = "with-floor+parity";

/// Bit error rates, in wrong bits per million.
const ERRORS: [u32; 5] = [1, 3, 10, 30, 100];

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let all = |attempts: u8, errors: &[u32]| errors.iter().map(|e| (attempts, *e)).collect();
    let places: Vec<(u8, u32)> = size.pick(
        all(1, &[100]),
        [all(1, &[1, 10, 100]), all(7, &[10, 100])].concat(),
        [all(1, &ERRORS), all(7, &ERRORS)].concat(),
    );
    let one = |(attempts, errors): (u8, u32)| {
        let times = if sabotage.is("more-errors") { 4.0 } else { 1.0 };
        let bit_error_rate = times * f64::from(errors) / 1e6;
        let setting = base(Access::Draft, FEW, sabotage);
        let setting = Setting { bit_error_rate, attempts, ..setting };
        let bare = with(setting, controls(sabotage));
        let copied = |(name, most): (&'static str, CodecRate)| -> Way {
            let of = if name == PAPERS_COPIES { bare[0].1 } else { bare[1].1 };
            let low = name == LOW && sabotage.is("no-low-copies");
            let fec = (!sabotage.is("no-fec") && !low).then_some(most);
            (name, Setting { fec, ..of })
        };
        let copies = [
            (PAPERS_COPIES, CodecRate::Kbps64),
            (COPIES, CodecRate::Kbps64),
            (LOW, CodecRate::Kbps16),
        ];
        let copied = bare.iter().copied().chain(copies.map(copied));
        let ways = copied.chain([with_parity(bare[1].1, sabotage)]).collect();
        point("errors", (format!("{errors}-{attempts}"), errors.into()), ways, size)
    };
    places.into_iter().map(one).collect()
}

/// The same setting with parity where the control blames the channel.
fn with_parity(of: Setting, sabotage: Sabotage) -> Way {
    let scheme = match of.scheme {
        Scheme::Adaptive(config) => {
            let max_span = if sabotage.is("parity-of-one") { 1 } else { config.fec.max_span };
            let fec = FecConfig { kind: FecKind::Parity, max_span, ..config.fec };
            Scheme::Adaptive(vegas::Config { fec, ..config })
        }
        scheme => scheme,
    };
    let off = sabotage.is("no-fec") || sabotage.is("no-parity");
    let fec = (!off).then_some(CodecRate::Kbps64);
    (PARITY, Setting { scheme, fec, ..of })
}

pub fn figure() -> Figure {
    Figure {
        name: "errors",
        title: "Bit errors, and redundancy against the losses that they cause",
        section: "5, its future work",
        says: "12 stations with 24 Mbit/s of background traffic in a separate queue, and one wrong \
               bit in 10,000 to 1,000,000, with seven attempts and with one (drawn). Where the \
               loss predictor blames the channel, packets carry the speech of one or two before \
               them (RFC 2198), as it was sent or at 16 kbit/s; or one to six of them are followed \
               by a packet of parity (RFC 8627). Lost packets, packets still missed, R including \
               the wait for redundancy, the rate sent, and wrong verdicts.",
        chart: draw_where(
            |r| r.number("attempts") == 1.0,
            "Bit errors, copies and parity, one attempt",
            || Axis::log("wrong bits per million", (1.0, 100.0)),
            "errors_per_million_bits",
            &[
                ("lost (%)", LOST),
                ("missed (%)", MISSED),
                ("R", RATING),
                ("sent KB/s", SENT),
                ("wrong verdicts (%)", WRONG),
            ],
        ),
        claims: [repair(), quality(), economy()].into_iter().flatten().collect(),
    }
}

/// A measure at some error rates, with this many attempts.
fn at(
    table: &Table,
    over: &'static str,
    attempts: f64,
    columns: [&'static str; 3],
    errors: fn(f64) -> bool,
) -> Vec<Measured> {
    let is = move |r: &Record<'_>| {
        r.number("attempts") == attempts && errors(r.number("errors_per_million_bits"))
    };
    rows(table, over).filter(is).map(|r| Measured::of(&r, columns)).collect()
}

/// Missed packets with copies, minus this share of those lost without.
fn beyond(table: &Table, share: f64, errors: fn(f64) -> bool) -> Measured {
    let missed = at(table, COPIES, 1.0, MISSED, errors);
    let lost = at(table, OURS, 1.0, LOST, errors);
    let pairs = missed.iter().zip(&lost);
    let note: Vec<String> = pairs
        .clone()
        .map(|(m, l)| format!("{:.2} % missed, {:.2} % lost without.", m.estimate, l.estimate))
        .collect();
    Measured::maximum(pairs.map(|(m, l)| m.minus(&l.times(share)))).noting(note.join(" "))
}

fn repair() -> Vec<Claim> {
    let repaired = |id, share, errors, says, why| Claim {
        unit: "% of the packets",
        measure: Box::new(move |t| beyond(t, share, errors)),
        ..claim(id, says, None, Bound::at_most(0.0, why), "no-fec")
    };
    vec![
        repaired(
            "repaired-10",
            0.25,
            |e| e == 10.0,
            "with one attempt and one wrong bit in 100,000 copies leave at most a quarter of the \
             losses",
            "both of two packets in a row must be lost, and the first loss has no copy",
        ),
        repaired(
            "repaired-100",
            0.5,
            |e| e == 100.0,
            "with one attempt and one wrong bit in 10,000 copies leave at most half of the losses",
            "longer packets are lost more often: about a third of those with two copies",
        ),
        Claim {
            unit: "% of the reports with losses",
            decimals: 1,
            measure: Box::new(|t| Measured::maximum(at(t, OURS, 1.0, WRONG, |_| true))),
            ..claim(
                "verdicts",
                "with one attempt and this project's defaults at most a tenth of the reports with losses \
                 blame congestion",
                None,
                Bound::at_most(10.0, OWN_TARGET),
                "no-floor",
            )
        },
    ]
}

fn quality() -> Vec<Claim> {
    let gains = |[more, less]: [&'static str; 2], errors: fn(f64) -> bool| {
        move |t: &Table| {
            let [more, less] = [more, less].map(|over| at(t, over, 1.0, RATING, errors));
            Measured::minimum(more.iter().zip(&less).map(|(a, b)| a.minus(b)))
        }
    };
    vec![
        Claim {
            unit: "of R",
            decimals: 1,
            measure: Box::new(gains([COPIES, OURS], |e| e >= 10.0)),
            ..claim(
                "better",
                "with one attempt and one wrong bit in 100,000 and in 10,000 R is higher with \
                 copies, despite their delay",
                None,
                Bound::above(0.0, "higher"),
                "copies-unread",
            )
        },
        Claim {
            unit: "of R",
            decimals: 1,
            measure: Box::new(|t| Measured::minimum(at(t, COPIES, 1.0, RATING, |e| e == 100.0))),
            ..claim(
                "acceptable",
                "with one attempt and one wrong bit in 10,000 R is at least 70 with copies",
                None,
                Bound::at_least(70.0, "below, many users are dissatisfied (ITU-T G.107, annex B)"),
                "no-fec",
            )
        },
        Claim {
            unit: "of R",
            decimals: 1,
            expected: Verdict::Undecided,
            why: "Both have 75. Of speech copied as it was sent 5.3 % is missed, of that at 16 \
                  kbit/s 1.6 %; but a copy at 16 kbit/s costs 50 points of R.",
            measure: Box::new(gains([LOW, COPIES], |e| e == 100.0)),
            ..claim(
                "low-copies",
                "with one attempt and one wrong bit in 10,000 copies at 16 kbit/s have at least \
                 the R of copies of the speech as it was sent",
                None,
                Bound::at_least(0.0, "they are a quarter as long, so fewer packets are lost"),
                "no-low-copies",
            )
        },
        Claim {
            unit: "of R",
            decimals: 1,
            why: "It is 2.4 lower with one wrong bit in 100,000 and 5.2 higher with one in 10,000, \
                  where nearly every packet has a parity packet of its own: both are short, and 18 \
                  % are lost, compared with 37 % of those that carry copies.",
            measure: Box::new(gains([PARITY, COPIES], |_| true)),
            ..claim(
                "parity-as-good",
                "with one attempt R is at most 3 lower with parity than with copies of the speech \
                 as it was sent, at each error rate",
                None,
                Bound::at_least(
                    -3.0,
                    "packets recovered by parity arrive at most 100 ms later, which costs 2.4 \
                     (ITU-T G.107: 0.024 per ms)",
                ),
                "no-parity",
            )
        },
    ]
}

/// Bytes that parity adds, minus half of those that copies add.
fn half_of_copies(table: &Table) -> Measured {
    let [parity, copies, without] =
        [PARITY, COPIES, OURS].map(|over| at(table, over, 1.0, SENT, |e| e == 10.0));
    let all = parity.iter().zip(&copies).zip(&without);
    let note: Vec<String> = all
        .clone()
        .map(|((p, c), w)| {
            format!(
                "{:.2} KB/s, {:.2} with copies, {:.2} without.",
                p.estimate, c.estimate, w.estimate
            )
        })
        .collect();
    // Parity's addition p − w, less half the copies' addition c − w, is p − c/2 − w/2.
    let beyond = all.map(|((p, c), w)| p.minus(&c.times(0.5)).minus(&w.times(0.5)));
    Measured::maximum(beyond).noting(note.join(" "))
}

fn economy() -> Vec<Claim> {
    vec![
        Claim {
            unit: "KB/s",
            measure: Box::new(|t| {
                let [with, without] = [COPIES, OURS].map(|over| at(t, over, 7.0, SENT, |_| true));
                Measured::maximum(with.iter().zip(&without).map(|(a, b)| a.minus(b)))
            }),
            ..claim(
                "clean",
                "with seven attempts copies add at most 1 % to the rate sent",
                None,
                Bound::at_most(
                    0.1,
                    "a hundredth of 10 KB/s: nothing is added where nothing is lost",
                ),
                "more-errors",
            )
        },
        Claim {
            unit: "KB/s",
            measure: Box::new(half_of_copies),
            ..claim(
                "parity-cheap",
                "with one attempt and one wrong bit in 100,000 parity adds at most half as many \
                 bytes as copies",
                None,
                Bound::at_most(
                    0.0,
                    "where two in a row are occasionally lost three packets share 216 bytes of \
                     parity, 72 each; a copy has 165",
                ),
                "parity-of-one",
            )
        },
        Claim {
            unit: "% of the packets",
            measure: Box::new(|t| Measured::maximum(at(t, OURS, 7.0, LOST, |_| true))),
            ..claim(
                "seven-attempts",
                "seven attempts leave at most 0.1 % of losses even with one wrong bit in 10,000",
                None,
                Bound::at_most(0.1, OWN_TARGET),
                "more-errors",
            )
        },
    ]
}
