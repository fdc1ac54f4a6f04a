//! Figures 6 and 7: delays of packets at 5 % loss, on one link with every burstiness, and on two
//! links in a row (§IV-A).

use super::{PAPER, burst_label, ten_ms, unanswered};
use crate::chain::{Bursts, Chain, Policy, Run, SECONDS_PER_HOP};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Point, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use std::collections::BTreeMap;
use trunkline_base::stats::Ratio;

const COLUMNS: &[Column] = &[
    Column::number("links", 0).parameter(),
    Column::text("burst_pct").parameter(),
    Column::number("loss_pct", 2).parameter(),
    Column::number("delay_ms", 0).parameter(),
    Column::number("arrived_pct", 4),
    Column::number("arrived_low_pct", 4),
    Column::number("arrived_high_pct", 4),
    Column::number("sent", 0),
];

const LOSS_PCT: f64 = 5.0;
/// Last millisecond of the distribution, which is the deadline.
const LAST_MS: usize = 100;

/// The experiment behind figures 6 and 7: distributions of packet delays.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "delay",
        revision: 4,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig6(), fig7()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let policy = Policy::new("paper", move |config| {
        unanswered(sabotage, &mut config.realtime, LOSS_PCT / 100.0);
        if sabotage.is("wait-for-three") {
            config.realtime.reorder = 3;
        }
    });
    let packets = size.pick(4_000, 200_000, 2_000_000);
    let point = |links: u32, burst: Bursts, figure| {
        let meets = match () {
            () if sabotage.is("bursts-ignored") => Bursts::PAPER[0],
            () if sabotage.is("bursts-everywhere") => Bursts::PAPER[3],
            () => burst,
        };
        let mut models = vec![ten_ms(meets.losing(LOSS_PCT / 100.0)); links as usize];
        if let (true, [_, second]) = (sabotage.is("second-link-loses-half"), &mut models[..]) {
            *second = ten_ms(meets.losing(LOSS_PCT / 200.0));
        }
        if sabotage.is("links-lose-eight") {
            models = vec![ten_ms(meets.losing(0.08)); links as usize];
        }
        let in_order = links == 2 && sabotage.is("in-order-at-the-relay");
        let chain =
            Chain { links: models, policy: policy.clone(), calls: 10, packets: packets / 10 };
        Point {
            key: format!("links{links}-{}", burst.name()),
            x: LOSS_PCT,
            figures: vec![figure],
            weight: (packets * u64::from(links)) as f64 * SECONDS_PER_HOP,
            measure: Box::new(move |inputs| {
                // Shows the effect of relays that forward packets as they arrive, even out of
                // order.
                let run =
                    if in_order { chain.run_in_order(inputs.seed) } else { chain.run(inputs.seed) };
                Ok(measure(&run?, links, burst))
            }),
        }
    };
    let mut points: Vec<Point> = Bursts::PAPER.into_iter().map(|b| point(1, b, "fig6")).collect();
    points.push(point(2, Bursts::PAPER[0], "fig7"));
    points
}

/// The distribution in steps of a millisecond, with intervals from the differences between seconds.
fn measure(run: &Run, links: u32, burst: Bursts) -> Cells {
    let mut seconds: BTreeMap<u64, (Vec<u64>, u64)> = BTreeMap::new();
    for (sent, arrival) in run.packets().flatten() {
        let second = sent.as_nanos() / 1_000_000_000;
        let (delays, all) = seconds.entry(second).or_insert_with(|| (vec![0; LAST_MS + 1], 0));
        *all += 1;
        let ms = arrival.map(|a| a.delay.as_nanos().div_ceil(1_000_000) as usize);
        if let Some(count) = ms.and_then(|ms| delays.get_mut(ms)) {
            *count += 1;
        }
    }
    // Converts counts per delay to cumulative counts.
    for (delays, _) in seconds.values_mut() {
        for ms in 1..=LAST_MS {
            delays[ms] += delays[ms - 1];
        }
    }
    let row = |ms: usize| -> Vec<Cell> {
        let clusters: Vec<_> = seconds.values().map(|(delays, all)| (delays[ms], *all)).collect();
        let share = Ratio::of_clusters(&clusters);
        vec![
            u64::from(links).into(),
            burst.name().into(),
            LOSS_PCT.into(),
            (ms as u64).into(),
            (100.0 * share.estimate).into(),
            (100.0 * share.interval.0).into(),
            (100.0 * share.interval.1).into(),
            share.cases.into(),
        ]
    };
    (0..=LAST_MS).map(row).collect()
}

fn chart(title: &str, table: &Table, from: f64) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for (n, burst) in ["uniform", "25", "50", "75"].into_iter().enumerate() {
        let mark = |r: Record<'_>| Mark {
            x: r.number("delay_ms"),
            y: r.number("arrived_pct"),
            interval: Some((r.number("arrived_low_pct"), r.number("arrived_high_pct"))),
        };
        let points: Vec<Mark> =
            table.iter().filter(|r| r.is("burst_pct", burst)).map(mark).collect();
        // Steps: until a point, the share is that of the point before.
        let steps = points.windows(2).flat_map(|w| [w[0], Mark { x: w[1].x, ..w[0] }]);
        let points: Vec<Mark> = steps.chain(points.last().copied()).collect();
        if !points.is_empty() {
            series.push(Series { name: burst_label(burst), style: Style::nth(n).dense(), points });
        }
    }
    Chart {
        title: title.to_owned(),
        x: Axis::linear("one-way delay (ms)", (0.0, LAST_MS as f64), 10.0),
        y: Axis::linear("packets that took at most this long (%)", (from, 100.0), 2.0),
        series,
    }
}

/// Share of packets that took at most `ms`, in percent.
fn within(table: &Table, burst: &str, ms: usize) -> Measured {
    let ms = ms.to_string();
    let row = table.iter().find(|r| r.is("burst_pct", burst) && r.is("delay_ms", &ms));
    let columns = ["arrived_pct", "arrived_low_pct", "arrived_high_pct"];
    row.map_or(Measured::census(f64::NAN), |r| Measured::of(&r, columns))
}

/// The delay that `share` of the packets between `from` and `LAST_MS` did not exceed, in ms. Its
/// interval is where the curve's own interval crosses the same height.
fn quantile_from(table: &Table, burst: &str, from: usize, share: f64) -> Measured {
    let (before, all) = (within(table, burst, from - 1), within(table, burst, LAST_MS));
    if all.estimate <= before.estimate || all.estimate.is_nan() {
        return Measured::census(f64::NAN);
    }
    let wanted = before.estimate + share * (all.estimate - before.estimate);
    let first = |reaches: fn(&Measured) -> f64| {
        let ms = (from..=LAST_MS).find(|&ms| reaches(&within(table, burst, ms)) >= wanted);
        ms.map_or(f64::INFINITY, |ms| ms as f64)
    };
    Measured::new(first(|m| m.estimate), (first(|m| m.interval.1), first(|m| m.interval.0)))
}

/// Delay that separates packets that were not lost from those that were recovered, in ms.
const RECOVERED_FROM_MS: usize = 20;
/// Reason for a bound of one step of the distribution.
const A_MS: &str = "the paper's number, to the millisecond that the axis can show, in both \
                    directions";

fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Delay distribution at 5 % loss, one link",
        section: "IV-A",
        caption: "On one 10 ms link with 5 % loss 95 % of the packets arrive in about 10 ms. Most of \
               the others are recovered, and arrive 30 ms and the time to detect the loss after \
               they were sent. This time is almost constant for uniform loss and spreads with \
               burstiness, most of all at 75 %; about 0.5 % are not recovered.",
        chart: one_panel(|t| chart("Delay at 5 % loss, one 10 ms link", t, 90.0)),
        claims: vec![
            Claim {
                id: "not-lost",
                statement: "95 % arrive within 11 ms, with uniform loss",
                published: Some("95 % of the packets arrive in about 10 ms"),
                bound: Bound::within(94.5, 95.5, "the values that round to 95"),
                unit: "%",
                measure: Box::new(|t| within(t, "uniform", 11)),
                sabotage: "links-lose-eight",
                ..Claim::default()
            },
            Claim {
                id: "recovered",
                statement: "recovered packets take 30 ms and Δ, one packet interval of 2 ms: median, \
                       uniform loss",
                published: Some("recovered packets take 30 ms and the time to detect the loss"),
                bound: Bound::within(31.0, 33.0, A_MS),
                unit: "ms",
                decimals: 0,
                measure: Box::new(|t| quantile_from(t, "uniform", RECOVERED_FROM_MS, 0.5)),
                sabotage: "wait-for-three",
                ..Claim::default()
            },
            Claim {
                id: "constant",
                statement: "with uniform loss recovered packets take almost the same time: from the 5th \
                       to the 95th percentile",
                published: Some(
                    "with uniform loss the delay of recovered packets is almost constant",
                ),
                bound: Bound::at_most(2.0, "one packet interval: one in twenty is lost, too"),
                unit: "ms apart",
                decimals: 0,
                measure: Box::new(|t| {
                    let at = |share| quantile_from(t, "uniform", RECOVERED_FROM_MS, share);
                    apart(&at(0.95), &at(0.05))
                }),
                sabotage: "bursts-everywhere",
                ..Claim::default()
            },
            spread(),
            not_recovered(
                "0.5 % are not recovered, mean of the burstinesses",
                "about 0.5 % of the packets are not recovered",
                Bound::within(0.45, 0.55, "the values that round to 0.5"),
            ),
        ],
    }
}

/// Difference of two quantiles of one distribution, whose errors are not independent.
fn apart(more: &Measured, less: &Measured) -> Measured {
    let ends = (more.interval.0 - less.interval.1, more.interval.1 - less.interval.0);
    Measured::new(more.estimate - less.estimate, ends)
}

fn spread() -> Claim {
    Claim {
        id: "spread",
        statement: "bursts delay recovered packets, most of all at 75 %: there their 95th percentile is \
               above that at 50 % by more than that is above uniform loss's",
        published: Some("the burstier, the later are recovered packets, most of all at 75 %"),
        bound: Bound::above(0.0, "more"),
        unit: "ms more",
        decimals: 0,
        measure: Box::new(|table| {
            let p95 = |burst| quantile_from(table, burst, RECOVERED_FROM_MS, 0.95);
            let (uniform, half, most) = (p95("uniform"), p95("50"), p95("75"));
            let values = [&uniform, &half, &most].map(|m| m.estimate);
            let note = format!(
                "95th percentiles: {:.0}, {:.0} and {:.0} ms.",
                values[0], values[1], values[2]
            );
            let (first, last) = (half.minus(&uniform), most.minus(&half));
            let more = last.minus(&first);
            Measured::minimum([first, last, more]).noting(note)
        }),
        sabotage: "bursts-ignored",
        ..Claim::default()
    }
}

fn not_recovered(says: &'static str, published: &'static str, bound: Bound) -> Claim {
    Claim {
        id: "not-recovered",
        statement: says,
        published: Some(published),
        bound,
        unit: "%",
        decimals: 3,
        measure: Box::new(move |table| {
            let there = Bursts::PAPER.iter().map(|b| within(table, &b.name(), LAST_MS));
            let there: Vec<Measured> = there.filter(|m| m.estimate.is_finite()).collect();
            Measured::census(100.0).minus(&Measured::mean(&there))
        }),
        sabotage: "one-request-in-ten-unanswered",
        ..Claim::default()
    }
}

/// Share of packets that were recovered on both links, in percent; each link has independent
/// losses.
fn twice(table: &Table) -> Measured {
    let [before, all] =
        [TWICE_FROM_MS - 1, LAST_MS].map(|ms| within(table, "uniform", ms).estimate);
    let sent = table.iter().next().map_or(0.0, |r| r.number("sent"));
    let events = libm::round((all - before) / 100.0 * sent);
    if !events.is_finite() || sent == 0.0 {
        return Measured::census(f64::NAN);
    }
    let Ratio { estimate, interval: (low, high), .. } =
        Ratio::of_clusters(&[(events as u64, sent as u64)]);
    Measured::new(100.0 * estimate, (100.0 * low, 100.0 * high))
}

fn out_of_order() -> Claim {
    Claim {
        id: "out-of-order",
        statement: "packets that are lost on neither link do not wait for others: 90.25 %, 0.95 · 0.95, \
               arrive within 21 ms",
        published: Some(
            "intermediate nodes forward packets as they are received, even out of order",
        ),
        bound: Bound::within(89.75, 90.75, "90.25, to a twentieth of the 9.75 that are lost"),
        unit: "%",
        measure: Box::new(|table| within(table, "uniform", 21)),
        sabotage: "in-order-at-the-relay",
        ..Claim::default()
    }
}

/// Delay in ms from which a packet was recovered on both links: with one recovery it takes 42 ms.
const TWICE_FROM_MS: usize = 58;

fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Delay distribution at 5 % loss on each of two links",
        section: "IV-A",
        caption: "On two such links in a row with uniform loss most losses are recovered, all but 1 % \
               of the packets; slightly less than 0.25 % are lost and recovered on both links and \
               arrive after about 66 ms, as expected from 0.05 · 0.05.",
        chart: one_panel(|t| chart("Delay at 5 % loss on each of two 10 ms links", t, 88.0)),
        claims: vec![
            out_of_order(),
            Claim {
                id: "twice",
                statement: "less than 0.25 % are recovered on both links",
                published: Some("slightly less than 0.25 % are recovered on both links"),
                bound: Bound::below(0.25, "0.05 · 0.05; the paper doesn't say how slightly"),
                unit: "%",
                decimals: 3,
                measure: Box::new(twice),
                why: "(p − r)² is expected, where r is the residual loss: 0.20 %.",
                sabotage: "links-lose-eight",
                ..Claim::default()
            },
            Claim {
                id: "twice-exactly",
                statement: "(p − r)² are recovered on both links, where r is the residual loss",
                bound: Bound::within(
                    0.18,
                    0.22,
                    "0.20, to a tenth of it: this project's own target",
                ),
                unit: "%",
                decimals: 3,
                measure: Box::new(twice),
                sabotage: "second-link-loses-half",
                ..Claim::default()
            },
            Claim {
                id: "twice-delay",
                statement: "these take about 66 ms: median",
                published: Some("these arrive with a latency of about 66 ms"),
                bound: Bound::within(63.0, 69.0, "66, to a twentieth of it"),
                unit: "ms",
                decimals: 0,
                measure: Box::new(|table| quantile_from(table, "uniform", TWICE_FROM_MS, 0.5)),
                why: "Twice 30 ms and 2 ms; the paper's nodes also took time to process packets.",
                sabotage: "wait-for-three",
                ..Claim::default()
            },
            not_recovered(
                "1 % of the packets are not recovered",
                "all but 1 % of the packets are recovered",
                Bound::within(0.95, 1.05, "1 %, to a twentieth of it"),
            ),
        ],
    }
}
