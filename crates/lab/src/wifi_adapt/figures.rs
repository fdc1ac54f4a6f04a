//! Figures 4 to 7, and what the paper says of them.

use super::claim;
use super::grid::{ADAPTIVE, DRAFT, G711, GREEDY, ONE_QUEUE, POLLED, SCHEMES, STANDARD, TFRC};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Draw, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};

const MEAN: [&str; 3] = ["mean_ms", "mean_low_ms", "mean_high_ms"];
const MAXIMUM: [&str; 3] = ["max_ms", "max_low_ms", "max_high_ms"];
const BANDWIDTH: [&str; 3] = ["kb_s", "kb_low_s", "kb_high_s"];
const PAYLOAD: [&str; 3] = ["payload_kb_s", "payload_kb_low_s", "payload_kb_high_s"];
const VARIATION: [&str; 3] = ["variation_pct", "variation_low_pct", "variation_high_pct"];
const RATING: [&str; 3] = ["r", "r_low", "r_high"];
const FAIRNESS: [&str; 3] = ["fairness", "fairness_low", "fairness_high"];

/// A cell and what calls are sent over, by the names of the table.
type Sent = (&'static str, &'static str);

/// In the paper's order.
pub fn all() -> Vec<Figure> {
    vec![fig4(), fig4b(), fig5(), fig6(), fig7()]
}

/// A measure at each number of calls that is so.
fn at(
    table: &Table,
    (cell, over): Sent,
    columns: [&'static str; 3],
    calls: impl Fn(f64) -> bool,
) -> Vec<Measured> {
    let is = |r: &Record<'_>| r.is("cell", cell) && r.is("calls_over", over);
    let rows = table.iter().filter(|r| is(r) && calls(r.number("calls")));
    rows.map(|r| {
        let stations = r.number("stations");
        Measured::of(&r, columns).noting(format!("With {stations} stations."))
    })
    .collect()
}

fn maximum(values: Vec<Measured>) -> Measured {
    let largest = values.iter().max_by(|a, b| a.estimate.total_cmp(&b.estimate));
    let note = largest.map_or_else(String::new, |m| m.note.clone());
    Measured::maximum(values).noting(note)
}

fn minimum(values: Vec<Measured>) -> Measured {
    let least = values.iter().min_by(|a, b| a.estimate.total_cmp(&b.estimate));
    let note = least.map_or_else(String::new, |m| m.note.clone());
    Measured::minimum(values).noting(note)
}

/// The difference of two ways of sending at each number of calls that is so.
fn differences(
    table: &Table,
    cell: &'static str,
    [more, less]: [&'static str; 2],
    columns: [&'static str; 3],
    calls: fn(f64) -> bool,
) -> Vec<Measured> {
    let [more, less] = [more, less].map(|over| at(table, (cell, over), columns, calls));
    more.iter().zip(&less).map(|(a, b)| a.minus(b).noting(a.note.as_str())).collect()
}

/// A panel for each of these cells, one under the other.
fn draw(
    title: &'static str,
    label: &'static str,
    cells: &'static [&'static str],
    panels: &'static [(&'static str, [&'static str; 3])],
    guide: Option<f64>,
) -> Draw {
    Box::new(move |table| {
        let panel = |cell: &'static str, (what, columns): (&'static str, [&'static str; 3])| {
            let series = |(n, over): (usize, &'static str)| {
                let rows =
                    table.iter().filter(move |r| r.is("cell", cell) && r.is("calls_over", over));
                let mark = |r: Record<'_>| {
                    let Measured { estimate, interval, .. } = Measured::of(&r, columns);
                    Mark { x: r.number("stations"), y: estimate, interval: Some(interval) }
                };
                Series {
                    name: over.to_owned(),
                    style: Style::nth(n),
                    points: rows.map(mark).collect(),
                }
            };
            let all: Vec<Series> = SCHEMES.into_iter().enumerate().map(series).collect();
            // What a greedy flow takes hides everything else.
            let shown = all.iter().filter(|s| s.name != GREEDY || !columns[0].contains("kb"));
            let values = shown.flat_map(|s| &s.points).map(|m| m.y).chain(guide);
            let y = Axis::fitting(&format!("{label}{what}, {cell}"), 0.0, values);
            Panel::new(y, all)
        };
        let each = cells.iter().flat_map(|cell| panels.iter().map(move |p| (*cell, *p)));
        let x = Axis::linear("number of stations (access point included)", (0.0, 25.0), 5.0);
        let panels = each.map(|(cell, p)| panel(cell, p)).collect();
        Panels { title: title.to_owned(), x, panels, guides: Vec::new() }
    })
}

const CELLS: &[&str] = &[DRAFT, STANDARD, ONE_QUEUE, POLLED];
/// Why bounds are what they are where the paper gives a number.
const PUBLISHED: &str = "the paper's number";

/// Why TFRC's packets are sooner there than the paper's.
const OWN_QUEUE: &str = "In a queue of their own packets of a call wait for a frame of the other traffic and \
                         a few of other calls, whoever sends them. With other traffic in the same queue \
                         (one-queue) 50 packets of 0.5 ms are before each: 24 ms, and at most 26. So the \
                         paper's TFRC most likely had no priority 6, and its adaptive calls had it.";
/// Why adaptation doesn't help where all share one queue.
const FULL: &str = "A queue that other traffic fills is as long whatever calls send.";
/// What polls do to delay.
const INTERVAL: &str = "A service interval of 17 ms, of which a packet waits half on average and at most all: \
                        the least that the standard's scheduler makes of 20 ms between packets.";
/// What adaptation costs.
const CODEC: &str = "The round trip of an idle cell is 0.12 ms, so that a frame of 0.4 ms ahead counts as \
                     congestion: the codec falls to 16 and 24 kbit/s, which cost 50 and 25 points, for less \
                     than 0.1 ms of delay, which nobody hears.";
/// Why TFRC's flows are alike.
const ALIKE: &str =
    "In one queue all meet about the same losses, and in the long run have about the same.";
/// Why five runs don't decide how fair adaptation is.
const SPREAD: &str = "It is 0.99 or more with 6 calls or more. With 3 and 4 a call's phase beside other \
                      traffic's decides its round trip for a whole run, and runs differ.";
/// Why adaptation is not above TFRC.
const BELOW: &str = "Nothing is lost, so TFRC sends all that G.711 makes, 10 KB/s, and greedy flows what the \
                     cell carries. Adaptation can't be above the former, and gives way to other traffic.";

/// A claim that fails, and why.
fn fails(why: &'static str, claim: Claim) -> Claim {
    Claim { expected: Verdict::Fails, why, ..claim }
}

/// The mean, or maximum, of a way of sending nowhere above a bound.
fn below(
    id: &'static str,
    sent: Sent,
    columns: [&'static str; 3],
    bound: f64,
    calls: fn(f64) -> bool,
    words: [&'static str; 2],
) -> Claim {
    let [says, published] = words;
    Claim {
        measure: Box::new(move |t| maximum(at(t, sent, columns, calls))),
        ..claim(id, says, Some(published), Bound::below(bound, PUBLISHED), "one-queue")
    }
}

fn fig4() -> Figure {
    const ADAPTS: &str = "it keeps average delay below 4 ms with few calls and with many";
    const RISES: &str = "with TFRC average delay rises above 15 ms";
    let adaptive =
        |id, cell, says| below(id, (cell, ADAPTIVE), MEAN, 4.0, |_| true, [says, ADAPTS]);
    let tfrc = |id, sent: Sent, says, sabotage| Claim {
        measure: Box::new(move |t| maximum(at(t, sent, MEAN, |_| true))),
        ..claim(id, says, Some(RISES), Bound::above(15.0, PUBLISHED), sabotage)
    };
    Figure {
        name: "fig4",
        title: "Mean delay of calls against the number of stations",
        section: "5, figure 4",
        says: "A call of user priority 6 and 4 Mbit/s of priority 1 go from the access point to each \
               station. The mean delay of the calls' packets, from the gateway to the station, with \
               the paper's control, with TFRC as the codec's 50 packets a second and greedy, and \
               with G.711 for good.",
        chart: draw("Mean delay of calls", "mean delay (ms)", CELLS, &[("", MEAN)], None),
        claims: vec![
            adaptive("adaptive", DRAFT, "with adaptation the mean delay is below 4 ms everywhere"),
            adaptive(
                "adaptive-2005",
                STANDARD,
                "with adaptation and the standard's parameters it is below 4 ms everywhere",
            ),
            fails(
                INTERVAL,
                adaptive(
                    "adaptive-polled",
                    POLLED,
                    "with adaptation and polls it is below 4 ms everywhere",
                ),
            ),
            fails(
                FULL,
                Claim {
                    sabotage: "deep-queues",
                    ..adaptive(
                        "adaptive-one-queue",
                        ONE_QUEUE,
                        "with adaptation and everything in one queue it is below 4 ms everywhere",
                    )
                },
            ),
            fails(
                OWN_QUEUE,
                tfrc(
                    "tfrc",
                    (DRAFT, TFRC),
                    "with TFRC limited to the codec the mean delay is above 15 ms somewhere",
                    "no-background",
                ),
            ),
            fails(
                "Its own 50 packets make its delay: 0.29 ms each, with other traffic between.",
                tfrc(
                    "tfrc-greedy",
                    (DRAFT, GREEDY),
                    "with greedy TFRC the mean delay is above 15 ms somewhere",
                    "codec-limited",
                ),
            ),
            tfrc(
                "tfrc-one-queue",
                (ONE_QUEUE, TFRC),
                "with TFRC limited to the codec and everything in one queue it is above 15 ms somewhere",
                "no-background",
            ),
        ],
    }
}

fn fig4b() -> Figure {
    let fixed_less = |id, cell, says| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [ADAPTIVE, G711], RATING, |_| true))
        }),
        ..claim(
            id,
            says,
            Some("the control ensures a reduced delay, and this improves perceived voice quality"),
            Bound::at_least(0.0, "not worse than without the control"),
            "lowest-rate",
        )
    };
    let acceptable = |id, cell, says| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| minimum(at(t, (cell, ADAPTIVE), RATING, |_| true))),
        ..claim(
            id,
            says,
            Some("it adapts the bit rate so as to preserve acceptable levels of quality"),
            Bound::at_least(70.0, "below, many users are dissatisfied (ITU-T G.107, annex B)"),
            "lowest-rate",
        )
    };
    Figure {
        name: "fig4b",
        title: "Quality of calls against the number of stations",
        section: "5, beyond figure 4",
        says: "R of the calls of figure 4 by the E-model: with the codecs' impairments averaged over a \
               call, what is lost, and a playout for which nothing comes too late. The wired part has no \
               delay.",
        chart: draw("Quality of calls", "R", CELLS, &[("", RATING)], Some(100.0)),
        claims: vec![
            fails(
                CODEC,
                fixed_less(
                    "not-below-g711",
                    DRAFT,
                    "with adaptation R is nowhere below that with G.711 for good",
                ),
            ),
            fails(
                CODEC,
                fixed_less(
                    "not-below-g711-one-queue",
                    ONE_QUEUE,
                    "with adaptation and everything in one queue R is nowhere below that with G.711 for good",
                ),
            ),
            fails(
                CODEC,
                acceptable("acceptable", DRAFT, "with adaptation R is at least 70 everywhere"),
            ),
            fails(
                CODEC,
                acceptable(
                    "acceptable-2005",
                    STANDARD,
                    "with adaptation and the standard's parameters R is at least 70 everywhere",
                ),
            ),
        ],
    }
}

fn fig5() -> Figure {
    const FEW: &str = "with adaptation the maximum is below 10 ms with fewer than 10 calls";
    const MANY: &str = "with adaptation the maximum is below 20 ms with more than 10 calls";
    let adaptive =
        |id, cell, bound, calls, words| below(id, (cell, ADAPTIVE), MAXIMUM, bound, calls, words);
    let tfrc = |id, sent: Sent, says, sabotage| Claim {
        measure: Box::new(move |t| maximum(at(t, sent, MAXIMUM, |_| true))),
        ..claim(
            id,
            says,
            Some("for TFRC the maximum is about 25 ms"),
            Bound::within(20.0, 30.0, "\"about 25 ms\" is taken for a fifth to either side"),
            sabotage,
        )
    };
    Figure {
        name: "fig5",
        title: "Maximum delay of calls against the number of stations",
        section: "5, figure 5",
        says: "The longest delay of any packet of any call in a run, averaged over the runs of \
               figure 4.",
        chart: draw("Maximum delay of calls", "maximum delay (ms)", CELLS, &[("", MAXIMUM)], None),
        claims: vec![
            adaptive(
                "adaptive-few",
                DRAFT,
                10.0,
                |n| n < 10.0,
                ["with adaptation and fewer than 10 calls the maximum is below 10 ms", FEW],
            ),
            adaptive(
                "adaptive-many",
                DRAFT,
                20.0,
                |n| n > 10.0,
                ["with adaptation and more than 10 calls it is below 20 ms", MANY],
            ),
            adaptive(
                "adaptive-few-2005",
                STANDARD,
                10.0,
                |n| n < 10.0,
                ["with the standard's parameters and fewer than 10 calls it is below 10 ms", FEW],
            ),
            adaptive(
                "adaptive-many-2005",
                STANDARD,
                20.0,
                |n| n > 10.0,
                ["with the standard's parameters and more than 10 calls it is below 20 ms", MANY],
            ),
            fails(
                INTERVAL,
                adaptive(
                    "adaptive-few-polled",
                    POLLED,
                    10.0,
                    |n| n < 10.0,
                    ["with polls and fewer than 10 calls it is below 10 ms", FEW],
                ),
            ),
            adaptive(
                "adaptive-many-polled",
                POLLED,
                20.0,
                |n| n > 10.0,
                ["with polls and more than 10 calls it is below 20 ms", MANY],
            ),
            fails(
                OWN_QUEUE,
                tfrc(
                    "tfrc",
                    (DRAFT, TFRC),
                    "with TFRC limited to the codec the largest maximum is 20 to 30 ms",
                    "no-background",
                ),
            ),
            tfrc(
                "tfrc-greedy",
                (DRAFT, GREEDY),
                "with greedy TFRC the largest maximum is 20 to 30 ms",
                "codec-limited",
            ),
            tfrc(
                "tfrc-one-queue",
                (ONE_QUEUE, TFRC),
                "with TFRC limited to the codec and everything in one queue it is 20 to 30 ms",
                "no-background",
            ),
        ],
    }
}

fn fig6() -> Figure {
    const FEW: &str = "with fewer than 8 calls the mean bandwidth is higher than TFRC's";
    const STEADY: &str = "with more than 6 calls the mean bandwidth is steady (4 KB/s)";
    const SMOOTH: &str = "with more than 6 calls it is smoother than TFRC's";
    fn four(t: &Table, columns: [&'static str; 3]) -> Measured {
        let all = at(t, (DRAFT, ADAPTIVE), columns, |n| n > 6.0);
        let (least, most) = (minimum(all.clone()), maximum(all));
        let off = |m: &Measured| m.minus(&Measured::census(4.0)).abs();
        maximum(vec![off(&least).noting(least.note), off(&most).noting(most.note)])
    }
    let steady = |id, says, columns, sabotage| Claim {
        unit: "KB/s",
        measure: Box::new(move |t| four(t, columns)),
        ..claim(id, says, Some(STEADY), Bound::at_most(0.5, "what rounds to 4"), sabotage)
    };
    let above = |id, cell, over, says| Claim {
        unit: "KB/s",
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [ADAPTIVE, over], BANDWIDTH, |n| n < 8.0))
        }),
        ..claim(id, says, Some(FEW), Bound::above(0.0, "higher"), "lowest-rate")
    };
    let smoother = |id, cell, over, says, sabotage| Claim {
        unit: "% of the mean",
        decimals: 2,
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [over, ADAPTIVE], VARIATION, |n| n > 6.0))
        }),
        ..claim(id, says, Some(SMOOTH), Bound::above(0.0, "smoother"), sabotage)
    };
    Figure {
        name: "fig6",
        title: "Mean bandwidth of calls against the number of stations",
        section: "5, figure 6",
        says: "What comes of a call in kilobytes (1,000) a second, with IP, UDP and RTP's headers and \
               without: 4 KB/s are 16 kbit/s with headers, or 32 kbit/s without. The paper doesn't say \
               which. How smooth it is: the coefficient of variation of what comes in each second.",
        chart: draw(
            "Mean bandwidth of calls",
            "",
            &[DRAFT, ONE_QUEUE],
            &[("KB/s", BANDWIDTH), ("payload KB/s", PAYLOAD)],
            None,
        ),
        claims: vec![
            fails(
                BELOW,
                above(
                    "above-tfrc",
                    DRAFT,
                    TFRC,
                    "with fewer than 8 calls adaptation has more than TFRC limited to the codec",
                ),
            ),
            fails(
                BELOW,
                above(
                    "above-tfrc-greedy",
                    DRAFT,
                    GREEDY,
                    "with fewer than 8 calls adaptation has more than greedy TFRC",
                ),
            ),
            fails(
                "With fewer than 7 calls the cell isn't full: nothing is lost, and TFRC sends all that G.711 makes.",
                above(
                    "above-tfrc-one-queue",
                    ONE_QUEUE,
                    TFRC,
                    "with fewer than 8 calls and everything in one queue adaptation has more than TFRC \
                 limited to the codec",
                ),
            ),
            fails(
                "It is steady, 4.7 to 4.8: 16 kbit/s are 4 KB/s with headers, and calls are a fifth above that by steps up to 24 and 32 kbit/s and the descent from 64 at the beginning.",
                steady(
                    "steady",
                    "with more than 6 calls adaptation has 4 KB/s with headers, to 0.5",
                    BANDWIDTH,
                    "alpha-equals-beta",
                ),
            ),
            fails(
                "It is steady, 2.7 to 2.8, below the paper's 4 as it is above it with headers.",
                steady(
                    "steady-payload",
                    "with more than 6 calls adaptation has 4 KB/s without headers, to 0.5",
                    PAYLOAD,
                    "no-adaptation",
                ),
            ),
            fails(
                "TFRC that loses nothing sends what the codec makes, which doesn't vary at all.",
                smoother(
                    "smoother",
                    DRAFT,
                    TFRC,
                    "with more than 6 calls adaptation varies less than TFRC limited to the codec",
                    "slow-reports",
                ),
            ),
            fails(
                "Where a greedy flow has a large share, it varies less than a codec between 16 and 32 kbit/s.",
                smoother(
                    "smoother-greedy",
                    DRAFT,
                    GREEDY,
                    "with more than 6 calls adaptation varies less than greedy TFRC",
                    "codec-limited",
                ),
            ),
            smoother(
                "smoother-one-queue",
                ONE_QUEUE,
                TFRC,
                "with more than 6 calls and everything in one queue adaptation varies less than TFRC \
                 limited to the codec",
                "no-background",
            ),
        ],
    }
}

fn fig7() -> Figure {
    let fair = |id, cell, says| Claim {
        unit: "",
        measure: Box::new(move |t| minimum(at(t, (cell, ADAPTIVE), FAIRNESS, |_| true))),
        ..claim(
            id,
            says,
            Some("the index is kept almost at 1 independently of the number of flows"),
            Bound::at_least(0.95, "\"almost at 1\" is taken for a twentieth below"),
            "two-classes",
        )
    };
    let tfrc = |id, sent: Sent, says, (calls, bound): (f64, Bound), published, sabotage| Claim {
        unit: "",
        measure: Box::new(move |t| maximum(at(t, sent, FAIRNESS, |n| n == calls))),
        ..claim(id, says, Some(published), bound, sabotage)
    };
    let six = (6.0, Bound::below(0.4, PUBLISHED));
    let twenty = (20.0, Bound::within(0.57, 0.67, "the paper's 0.62, to 0.05"));
    const SIX: &str = "with TFRC the index goes below 0.4 with 6 flows";
    const TWENTY: &str = "with TFRC the index is 0.62 with 20 flows";
    Figure {
        name: "fig7",
        title: "Fairness between calls against the number of stations",
        section: "5, figure 7",
        says: "Jain's index of what comes of the calls: 1 if all are alike, 1/n if one has everything.",
        chart: draw(
            "Fairness between calls",
            "fairness index",
            CELLS,
            &[("", FAIRNESS)],
            Some(1.0),
        ),
        claims: vec![
            Claim {
                expected: Verdict::Undecided,
                why: SPREAD,
                ..fair("adaptive", DRAFT, "with adaptation the index is at least 0.95 everywhere")
            },
            Claim {
                expected: Verdict::Undecided,
                why: SPREAD,
                ..fair(
                    "adaptive-2005",
                    STANDARD,
                    "with adaptation and the standard's parameters it is at least 0.95 everywhere",
                )
            },
            fair(
                "adaptive-polled",
                POLLED,
                "with adaptation and polls it is at least 0.95 everywhere",
            ),
            fails(
                ALIKE,
                tfrc(
                    "tfrc-6",
                    (DRAFT, GREEDY),
                    "with 6 calls over greedy TFRC it is below 0.4",
                    six,
                    SIX,
                    "codec-limited",
                ),
            ),
            fails(
                ALIKE,
                tfrc(
                    "tfrc-6-one-queue",
                    (ONE_QUEUE, TFRC),
                    "with 6 calls over TFRC limited to the codec and everything in one queue it is below 0.4",
                    six,
                    SIX,
                    "no-background",
                ),
            ),
            fails(
                ALIKE,
                tfrc(
                    "tfrc-20",
                    (DRAFT, GREEDY),
                    "with 20 calls over greedy TFRC it is 0.57 to 0.67",
                    twenty,
                    TWENTY,
                    "codec-limited",
                ),
            ),
            fails(
                ALIKE,
                tfrc(
                    "tfrc-20-one-queue",
                    (ONE_QUEUE, TFRC),
                    "with 20 calls over TFRC limited to the codec and everything in one queue it is 0.57 to \
                 0.67",
                    twenty,
                    TWENTY,
                    "no-background",
                ),
            ),
        ],
    }
}
