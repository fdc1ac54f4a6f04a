//! Figures 6 and 7: how late packets are at 5 % loss, on one link with every
//! burstiness, and on two links in a row (§IV-A).

use super::{PAPER, burst_label, ten_ms};
use crate::chain::{Bursts, Chain, Policy, SECONDS_PER_HOP};
use crate::experiment::{
    Cells, Claim, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size, Verdict,
};
use crate::plot::{Axis, Chart, Mark, Series, Style};
use crate::table::{Cell, Column, Record, Table};
use std::collections::BTreeMap;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::stats::Ratio;
use trunkline_sim::overlay::link::realtime::Recovery;

const COLUMNS: &[Column] = &[
    Column::number("links", 0),
    Column::text("burst_pct"),
    Column::number("loss_pct", 2),
    Column::number("delay_ms", 0),
    Column::number("arrived_pct", 4),
    Column::number("arrived_low_pct", 4),
    Column::number("arrived_high_pct", 4),
];

const LOSS_PCT: f64 = 5.0;
/// The last millisecond of the distribution: the deadline.
const LAST_MS: usize = 100;

/// The experiment.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "delay",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig6(), fig7()],
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let policy = Policy::new("paper", move |config| {
        if sabotage.is("nacks-off") {
            config.realtime.recovery = Recovery::Off;
        }
        if sabotage.is("wait-for-three") {
            config.realtime.reorder = 3;
        }
    });
    let packets = size.pick(4_000, 200_000, 2_000_000);
    let point = |links: u32, burst: Bursts, figure| {
        let meets = if sabotage.is("bursts-ignored") { Bursts::PAPER[0] } else { burst };
        let loss = if sabotage.is("no-loss") { 0.0 } else { LOSS_PCT / 100.0 };
        let lossy = ten_ms(meets.losing(loss));
        let mut models: Vec<LinkModel> = vec![lossy; links as usize];
        if let (true, [_, second]) = (sabotage.is("second-link-perfect"), &mut models[..]) {
            second.loss = Loss::None;
        }
        let chain =
            Chain { links: models, policy: policy.clone(), calls: 10, packets: packets / 10 };
        Point {
            key: format!("links{links}-{}", burst.name()),
            x: LOSS_PCT,
            figures: vec![figure],
            weight: (packets * u64::from(links)) as f64 * SECONDS_PER_HOP,
            measure: Box::new(move |inputs| measure(&chain, burst, inputs)),
        }
    };
    let mut points: Vec<Point> = Bursts::PAPER.into_iter().map(|b| point(1, b, "fig6")).collect();
    points.push(point(2, Bursts::PAPER[0], "fig7"));
    points
}

/// The distribution, in steps of a millisecond, with intervals from the
/// differences between seconds.
fn measure(chain: &Chain, burst: Bursts, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let run = chain.run(inputs.seed)?;
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
    // From how many took just so long to how many took at most so long.
    for (delays, _) in seconds.values_mut() {
        for ms in 1..=LAST_MS {
            delays[ms] += delays[ms - 1];
        }
    }
    let row = |ms: usize| -> Vec<Cell> {
        let clusters: Vec<_> = seconds.values().map(|(delays, all)| (delays[ms], *all)).collect();
        let share = Ratio::of_clusters(&clusters);
        vec![
            (chain.links.len() as u64).into(),
            burst.name().into(),
            LOSS_PCT.into(),
            (ms as u64).into(),
            (100.0 * share.estimate).into(),
            (100.0 * share.interval.0).into(),
            (100.0 * share.interval.1).into(),
        ]
    };
    Ok((0..=LAST_MS).map(row).collect())
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
        // Steps: until a moment the share is that of the moment before.
        let steps = points.windows(2).flat_map(|w| [w[0], Mark { x: w[1].x, ..w[0] }]);
        let points: Vec<Mark> = steps.chain(points.last().copied()).collect();
        if !points.is_empty() {
            series.push(Series { name: burst_label(burst), style: Style::nth(n).dense(), points });
        }
    }
    Chart {
        title: title.to_owned(),
        x: Axis::linear("one-way delay (ms)", (0.0, LAST_MS as f64), 10.0),
        y: Axis::linear("packets that took at most so long (%)", (from, 100.0), 2.0),
        series,
    }
}

/// The share that took at most `ms`, percent.
fn within(table: &Table, burst: &str, ms: usize) -> f64 {
    let ms = ms.to_string();
    let row = table.iter().find(|r| r.is("burst_pct", burst) && r.is("delay_ms", &ms));
    row.map_or(f64::NAN, |r| r.number("arrived_pct"))
}

/// The delay that `share` of the packets between `from` and `LAST_MS` did not
/// exceed, ms.
fn quantile_from(table: &Table, burst: &str, from: usize, share: f64) -> f64 {
    let (before, all) = (within(table, burst, from - 1), within(table, burst, LAST_MS));
    let wanted = before + share * (all - before);
    let mut there = (from..=LAST_MS).filter(|&ms| within(table, burst, ms) >= wanted);
    if all > before { there.next().map_or(f64::NAN, |ms| ms as f64) } else { f64::NAN }
}

/// Between packets that were not lost and those that were recovered.
const RECOVERED_FROM_MS: usize = 20;

fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Delay distribution at 5 % loss, one link",
        section: "IV-A",
        says: "On one 10 ms link with 5 % loss 95 % of the packets arrive in about 10 ms. Most of \
               the others are recovered, 30 ms and the time to detect the loss after they were \
               sent, which is almost constant for uniform loss and spreads with burstiness, most \
               of all at 75 %; about 0.5 % are not recovered.",
        chart: Box::new(|t| chart("Delay at 5 % loss, one 10 ms link", t, 90.0)),
        claims: vec![
            Claim {
                id: "in-time",
                says: "95 % (to 0.5 %) take about 10 ms (at most 11), mean of the burstinesses",
                published: 95.0,
                unit: "%",
                decimals: 2,
                judge: Box::new(|table| {
                    let of = |b: &Bursts| within(table, &b.name(), 11);
                    let mean = Bursts::PAPER.iter().map(of).sum::<f64>() / 4.0;
                    Verdict::new(mean, (mean - 95.0).abs() <= 0.5)
                }),
                at: &[],
                expected: true,
                why: "",
                sabotage: "no-loss",
            },
            Claim {
                id: "recovered",
                says: "recovered packets take 30 ms + Δ, where Δ is one packet distance of 2 ms \
                       (to 2 ms): median, uniform loss",
                published: 32.0,
                unit: "ms",
                decimals: 0,
                judge: Box::new(|table| {
                    let median = quantile_from(table, "uniform", RECOVERED_FROM_MS, 0.5);
                    Verdict::new(median, (median - 32.0).abs() <= 2.0)
                }),
                at: &[],
                expected: true,
                why: "",
                sabotage: "wait-for-three",
            },
            spread(),
            not_recovered(
                "about 0.5 % (0.4 to 0.6) are not recovered, mean of the burstinesses",
                0.5,
            ),
        ],
    }
}

fn spread() -> Claim {
    Claim {
        id: "spread",
        says: "burstiness spreads the delay of recovered packets: their 95th percentile rises from \
               uniform to 50 % to 75 %, in all by 2 ms or more",
        published: 2.0,
        unit: "ms, at least",
        decimals: 0,
        judge: Box::new(|table| {
            let p95 = |burst| quantile_from(table, burst, RECOVERED_FROM_MS, 0.95);
            let (uniform, half, most) = (p95("uniform"), p95("50"), p95("75"));
            let note = format!("95th percentiles: {uniform:.0}, {half:.0} and {most:.0} ms.");
            let holds = uniform <= half && half <= most && most - uniform >= 2.0;
            Verdict { measured: most - uniform, holds, note }
        }),
        at: &[],
        expected: true,
        why: "",
        sabotage: "bursts-ignored",
    }
}

fn not_recovered(says: &'static str, published: f64) -> Claim {
    Claim {
        id: "not-recovered",
        says,
        published,
        unit: "%",
        decimals: 2,
        judge: Box::new(move |table| {
            let there = Bursts::PAPER.iter().map(|b| 100.0 - within(table, &b.name(), LAST_MS));
            let there: Vec<f64> = there.filter(|lost| lost.is_finite()).collect();
            let mean = there.iter().sum::<f64>() / there.len() as f64;
            Verdict::new(mean, (mean / published - 1.0).abs() <= 0.2)
        }),
        at: &[],
        expected: true,
        why: "",
        sabotage: "nacks-off",
    }
}

/// From here on a packet was recovered on both links: on one it takes 42 ms.
const TWICE_FROM_MS: usize = 58;

fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Delay distribution at 5 % loss on each of two links",
        section: "IV-A",
        says: "On two such links in a row with uniform loss most losses are recovered, all but \
               1 % of the packets; slightly less than 0.25 % are lost and recovered on both links \
               and arrive after about 66 ms, as 0.05 · 0.05 lets expect.",
        chart: Box::new(|t| chart("Delay at 5 % loss on each of two 10 ms links", t, 88.0)),
        claims: vec![
            Claim {
                id: "twice",
                says: "slightly less than 0.25 % (0.15 to 0.25) are recovered on both links",
                published: 0.25,
                unit: "%",
                decimals: 3,
                judge: Box::new(|table| {
                    let at = |ms| within(table, "uniform", ms);
                    let measured = at(LAST_MS) - at(TWICE_FROM_MS - 1);
                    Verdict::new(measured, (0.15..0.25).contains(&measured))
                }),
                at: &[],
                expected: true,
                why: "(p − r)² is expected, where r is what is not recovered: 0.20 %.",
                sabotage: "second-link-perfect",
            },
            Claim {
                id: "twice-delay",
                says: "these take about 66 ms (60 to 70): median",
                published: 66.0,
                unit: "ms",
                decimals: 0,
                judge: Box::new(|table| {
                    let median = quantile_from(table, "uniform", TWICE_FROM_MS, 0.5);
                    Verdict::new(median, (60.0..=70.0).contains(&median))
                }),
                at: &[],
                expected: true,
                why: "Twice 30 ms + 2 ms; the paper's nodes also took time to process packets.",
                sabotage: "wait-for-three",
            },
            not_recovered("about 1 % (0.8 to 1.2) are not recovered", 1.0),
        ],
    }
}
