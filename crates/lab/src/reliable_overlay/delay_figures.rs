//! Figures 11 to 14, and what the paper says of them.

use super::delays::{HOP_BY_HOP, RATES, STREAM, TCPS};
use super::{BEFORE, claim, line, ratio};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};

const MEAN: [&str; 3] = ["mean_ms", "mean_low_ms", "mean_high_ms"];
const JITTER: [&str; 3] = ["jitter_ms", "jitter_low_ms", "jitter_high_ms"];
const LATER: [&str; 3] = ["later_120_pct", "later_120_low_pct", "later_120_high_pct"];

/// A point whose messages are half a second late for longer than this share of the time is
/// not a delay but a backlog, whose mean grows with the run.
const MOST_BACKLOG: f64 = 5.0;

/// In the paper's order.
pub fn all() -> Vec<Figure> {
    vec![fig11(), fig12(), fig13(), fig14()]
}

fn of<'a>(
    table: &'a Table,
    carried: &'a str,
    rate: u32,
) -> impl Iterator<Item = Record<'a>> + Clone {
    let is = move |r: &Record<'_>| {
        r.is("carried", carried) && r.number("rate_kbit_s") == f64::from(rate)
    };
    table.iter().filter(is)
}

/// By how much the mean delay grows per percent of loss, from none to the largest loss at
/// which both keep up: ours, over end to end.
fn slopes(table: &Table, (ours, tcp): (&str, &str), rate: u32) -> Measured {
    let kept_up = |r: &Record<'_>| r.number("backlog_pct") < MOST_BACKLOG;
    let [ours, theirs] = [ours, tcp].map(|carried| of(table, carried, rate));
    let last = theirs.clone().filter(kept_up).map(|r| r.number("loss_pct")).fold(0.0, f64::max);
    let rise = |rows: &mut dyn Iterator<Item = Record<'_>>| {
        let rows: Vec<_> = rows.collect();
        let at = |loss: f64| {
            let row = rows.iter().find(|r| r.number("loss_pct") == loss);
            row.map_or(Measured::census(f64::NAN), |r| Measured::of(r, MEAN))
        };
        at(last).minus(&at(0.0))
    };
    let (mut ours, mut theirs) = (ours, theirs);
    ratio(&rise(&mut ours), &rise(&mut theirs)).noting(format!("From 0 to {last} % loss."))
}

fn slope_claim(
    id: &'static str,
    compared: (&'static str, &'static str),
    rate: u32,
    says: &'static str,
) -> Claim {
    Claim {
        unit: "of the TCP's slope",
        measure: Box::new(move |t| slopes(t, compared, rate)),
        ..claim(
            id,
            says,
            Some(
                "hop by hop the latency remains very low and increases much slower than end to end",
            ),
            Bound::at_most(1.0 / 3.0, "\"much slower\" is taken for a third"),
            "end-to-end-only",
        )
    }
}

fn fig11() -> Figure {
    Figure {
        name: "fig11",
        title: "Mean delay of a 500 kbit/s stream",
        section: "Experimental results, figure 11",
        says: "Messages of 1,000 bytes from A to F over five links of 10 ms and 10 Mbit/s, of which \
               the third loses packets both ways: mean one-way delay until they can be read in order, \
               with a TCP from end to end, with reliable links hop by hop, and with a stream over them, \
               which repeats and limits from end to end, too.",
        chart: one_panel(|t| delay_chart(t, RATES[0])),
        claims: vec![
            slope_claim(
                "much-slower-500",
                (HOP_BY_HOP, TCPS[0]),
                RATES[0],
                "at 500 kbit/s the mean delay grows with loss at most a third as fast as with the \
                 TCP of Linux 2.4",
            ),
            slope_claim(
                "much-slower-500-linux-6",
                (HOP_BY_HOP, TCPS[1]),
                RATES[0],
                "at 500 kbit/s the mean delay grows with loss at most a third as fast as with the \
                 TCP of Linux 6",
            ),
            slope_claim(
                "stream-500",
                (STREAM, TCPS[0]),
                RATES[0],
                "at 500 kbit/s over a stream the mean delay grows with loss at most a third as fast as \
                 with the TCP of Linux 2.4",
            ),
            slope_claim(
                "stream-500-linux-6",
                (STREAM, TCPS[1]),
                RATES[0],
                "at 500 kbit/s over a stream the mean delay grows with loss at most a third as fast as \
                 with the TCP of Linux 6",
            ),
        ],
    }
}

fn fig12() -> Figure {
    Figure {
        name: "fig12",
        title: "Mean delay of a 1,000 kbit/s stream",
        section: "Experimental results, figure 12",
        says: "As figure 11, with twice as many messages. A TCP that loses more than about 1 % of its \
               segments over 100 ms can't carry them: points where messages are half a second late for \
               more than a twentieth of the time are not judged.",
        chart: one_panel(|t| delay_chart(t, RATES[1])),
        claims: vec![
            Claim {
                why: "The TCP of Linux 2.4 doesn't keep up: it has no point to be judged by, since 7.8 % of its \
                      messages are half a second late at 0.2 % loss, and 99 % from 1 % on.",
                ..keeps_up(
                    "keeps-up",
                    HOP_BY_HOP,
                    "at 1,000 kbit/s reliable links keep up at every loss: at most 5 % of the messages are \
                     half a second late",
                )
            },
            keeps_up(
                "stream-keeps-up",
                STREAM,
                "at 1,000 kbit/s a stream keeps up at every loss: at most 5 % of the messages are half a \
                 second late",
            ),
            slope_claim(
                "much-slower-1000-linux-6",
                (HOP_BY_HOP, TCPS[1]),
                RATES[1],
                "at 1,000 kbit/s the mean delay grows with loss at most a third as fast as with the \
                 TCP of Linux 6, as far as that keeps up",
            ),
            slope_claim(
                "stream-1000-linux-6",
                (STREAM, TCPS[1]),
                RATES[1],
                "at 1,000 kbit/s over a stream the mean delay grows with loss at most a third as fast as \
                 with the TCP of Linux 6, as far as that keeps up",
            ),
        ],
    }
}

fn keeps_up(id: &'static str, carried: &'static str, says: &'static str) -> Claim {
    Claim {
        unit: "% of the messages",
        measure: Box::new(move |t| {
            let rows = of(t, carried, RATES[1]);
            Measured::maximum(rows.map(|r| Measured::census(r.number("backlog_pct"))))
        }),
        ..claim(id, says, None, Bound::at_most(MOST_BACKLOG, BEFORE), "end-to-end-only")
    }
}

/// The TCP's jitter over ours, where that is greatest.
fn jitters(table: &Table, (ours, tcp): (&str, &str)) -> Measured {
    let ours = of(table, ours, RATES[0]);
    let one = |r: Record<'_>| {
        let loss = r.number("loss_pct");
        let theirs = of(table, tcp, RATES[0]).find(|t| t.number("loss_pct") == loss)?;
        let times = ratio(&Measured::of(&theirs, JITTER), &Measured::of(&r, JITTER));
        Some(times.noting(format!("At {loss} % loss.")))
    };
    let all = ours.filter(|r| r.number("loss_pct") > 0.0).filter_map(one);
    let best = all.max_by(|a, b| a.estimate.total_cmp(&b.estimate));
    best.unwrap_or(Measured::census(f64::NAN))
}

fn fig13() -> Figure {
    let jitter = |id, compared: (&'static str, &'static str), says| Claim {
        unit: "times",
        decimals: 1,
        measure: Box::new(move |t| jitters(t, compared)),
        ..claim(
            id,
            says,
            Some("the jitter hop by hop is up to three to four times smaller than end to end"),
            Bound::at_least(3.0, "the lower of the paper's two numbers"),
            "end-to-end-only",
        )
    };
    Figure {
        name: "fig13",
        title: "Mean jitter of a 500 kbit/s stream",
        section: "Experimental results, figure 13",
        says: "The streams of figure 11: the estimate of jitter of RFC 3550 (section 6.4.1), averaged \
               over all messages. The paper doesn't say what its jitter is.",
        chart: one_panel(jitter_chart),
        claims: vec![
            jitter(
                "smaller-jitter",
                (HOP_BY_HOP, TCPS[0]),
                "where the difference is greatest, the jitter is at most a third of that with the TCP \
                 of Linux 2.4",
            ),
            jitter(
                "smaller-jitter-linux-6",
                (HOP_BY_HOP, TCPS[1]),
                "where the difference is greatest, the jitter is at most a third of that with the TCP \
                 of Linux 6",
            ),
            jitter(
                "stream-jitter",
                (STREAM, TCPS[0]),
                "where the difference is greatest, the jitter over a stream is at most a third of that \
                 with the TCP of Linux 2.4",
            ),
            jitter(
                "stream-jitter-linux-6",
                (STREAM, TCPS[1]),
                "where the difference is greatest, the jitter over a stream is at most a third of that \
                 with the TCP of Linux 6",
            ),
        ],
    }
}

/// Messages of ours later than 120 ms, over those end to end, at 1 % loss.
fn late(table: &Table, (ours, tcp): (&str, &str)) -> Measured {
    let at = |carried| {
        let row = of(table, carried, RATES[0]).find(|r| r.number("loss_pct") == 1.0);
        row.map_or(Measured::census(f64::NAN), |r| Measured::of(&r, LATER))
    };
    ratio(&at(ours), &at(tcp))
}

fn fig14() -> Figure {
    let fewer = |id, compared: (&'static str, &'static str), says| Claim {
        unit: "of the TCP's",
        measure: Box::new(move |t| late(t, compared)),
        at: &[1.0],
        ..claim(
            id,
            says,
            Some(
                "the number of packets delayed hop by hop is more than three times lower than end to \
                 end",
            ),
            Bound::below(1.0 / 3.0, "more than three times lower"),
            "end-to-end-only",
        )
    };
    Figure {
        name: "fig14",
        title: "Delay distribution of a 500 kbit/s stream",
        section: "Experimental results, figure 14",
        says: "The streams of figure 11 at 0.5, 1 and 2 % loss (the paper doesn't say which): the share \
               of messages that take longer than 60 to 280 ms.",
        chart: one_panel(late_chart),
        claims: vec![
            fewer(
                "fewer-late",
                (HOP_BY_HOP, TCPS[0]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms as with the \
                 TCP of Linux 2.4",
            ),
            fewer(
                "fewer-late-linux-6",
                (HOP_BY_HOP, TCPS[1]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms as with the \
                 TCP of Linux 6",
            ),
            fewer(
                "stream-late",
                (STREAM, TCPS[0]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms over a stream \
                 as with the TCP of Linux 2.4",
            ),
            fewer(
                "stream-late-linux-6",
                (STREAM, TCPS[1]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms over a stream \
                 as with the TCP of Linux 6",
            ),
        ],
    }
}

fn series(table: &Table, rate: u32, columns: [&str; 3]) -> Vec<Series> {
    let one = |(n, carried): (usize, &'static str)| {
        line(table, (carried, Style::nth(n)), "loss_pct", columns, move |r| {
            r.is("carried", carried)
                && r.number("rate_kbit_s") == f64::from(rate)
                && r.number("backlog_pct") < MOST_BACKLOG
        })
    };
    [HOP_BY_HOP, STREAM, TCPS[0], TCPS[1]].into_iter().enumerate().map(one).collect()
}

fn delay_chart(table: &Table, rate: u32) -> Chart {
    Chart {
        title: format!("{rate} kbit/s from A to F"),
        x: Axis::linear("lost between C and D (%)", (0.0, 2.0), 0.5),
        y: Axis::linear("mean delay (ms)", (0.0, 250.0), 50.0),
        series: series(table, rate, MEAN),
    }
}

fn jitter_chart(table: &Table) -> Chart {
    Chart {
        title: "500 kbit/s from A to F".to_owned(),
        x: Axis::linear("lost between C and D (%)", (0.0, 2.0), 0.5),
        y: Axis::linear("mean jitter (ms)", (0.0, 20.0), 5.0),
        series: series(table, RATES[0], JITTER),
    }
}

fn late_chart(table: &Table) -> Chart {
    let mut series = Vec::new();
    for (n, loss) in [0.5, 1.0, 2.0].into_iter().enumerate() {
        for (pale, carried) in [(false, HOP_BY_HOP), (true, TCPS[0])] {
            let row = of(table, carried, RATES[0]).find(|r| r.number("loss_pct") == loss);
            let points = row.into_iter().flat_map(|r| {
                (60..=280).step_by(20).map(move |ms| Mark {
                    x: f64::from(ms),
                    y: r.number(&format!("later_{ms}_pct")),
                    interval: None,
                })
            });
            let style = Style::nth(n);
            let style = if pale { style.pale() } else { style };
            series.push(Series {
                name: format!("{carried}, {loss} %"),
                style,
                points: points.collect(),
            });
        }
    }
    Chart {
        title: "500 kbit/s from A to F: later than".to_owned(),
        x: Axis::linear("delay (ms)", (60.0, 280.0), 20.0),
        y: Axis::log("messages (%)", (0.01, 100.0)),
        series,
    }
}
