//! Figures 11 to 14, and the paper's statements on them.

use super::delays::{HOP_BY_HOP, HOP_BY_HOP_SEALED, LIVE_TCPS, RATES, STREAM, STREAM_SEALED, TCPS};
use super::{BEFORE, line, ratio};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Panel, Panels, Series, Style, one_panel};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// A place (simulator or testbed), and a kind of transport.
type Carrier = (&'static str, &'static str);
/// A place, an overlay transport and the TCP that it is compared with.
type Compared = (&'static str, &'static str, &'static str);

const MEAN: [&str; 3] = ["mean_ms", "mean_low_ms", "mean_high_ms"];
const JITTER: [&str; 3] = ["jitter_ms", "jitter_low_ms", "jitter_high_ms"];
const LATER: [&str; 3] = ["later_120_pct", "later_120_low_pct", "later_120_high_pct"];

/// A point at which messages are half a second late for more than this percentage of the time shows
/// a backlog, not a delay: its mean grows with the run.
const MAX_BACKLOG: f64 = 5.0;

/// The figures, in the paper's order.
pub fn all() -> Vec<Figure> {
    vec![fig11(), fig12(), fig13(), fig14()]
}

fn is_of(r: &Record<'_>, (at, carried): Carrier, rate: u32) -> bool {
    let is_here = r.is("where", at) && r.is("carried", carried);
    is_here && r.number("rate_kbit_s") == f64::from(rate)
}

fn of(table: &Table, carried: Carrier, rate: u32) -> impl Iterator<Item = Record<'_>> + Clone {
    table.iter().filter(move |r| is_of(r, carried, rate))
}

/// The row with this loss in percent.
fn with_loss(table: &Table, carried: Carrier, rate: u32, loss: f64) -> Option<Record<'_>> {
    of(table, carried, rate).find(|r| r.number("loss_pct") == loss)
}

fn nothing() -> Measured {
    Measured::census(f64::NAN)
}

/// Increase of the mean delay per percent of loss, from no loss to the largest at which both keep
/// up: the overlay's over the TCP's.
fn slopes(table: &Table, (at, ours, tcp): Compared, rate: u32) -> Measured {
    let kept_up = |r: &Record<'_>| r.number("backlog_pct") < MAX_BACKLOG;
    let theirs = of(table, (at, tcp), rate);
    let last = theirs.filter(kept_up).map(|r| r.number("loss_pct")).fold(0.0, f64::max);
    let [ours, theirs] = [ours, tcp].map(|carried| {
        let mean = |loss: f64| {
            let row = with_loss(table, (at, carried), rate, loss);
            row.map_or_else(nothing, |r| Measured::of(&r, MEAN))
        };
        mean(last).minus(&mean(0.0))
    });
    ratio(&ours, &theirs).noting(format!("From 0 to {last} % loss."))
}

fn slope_claim(id: &'static str, compared: Compared, rate: u32, says: &'static str) -> Claim {
    Claim {
        unit: "of the TCP's slope",
        measure: Box::new(move |t| slopes(t, compared, rate)),
        ..Claim::holding(
            id,
            says,
            Some(
                "hop by hop the latency remains very low and increases much slower than end to end",
            ),
            Bound::at_most(1.0 / 3.0, "\"much slower\" is interpreted as a third"),
            "end-to-end-only",
        )
    }
}

fn fig11() -> Figure {
    Figure {
        name: "fig11",
        title: "Mean delay of a 500 kbit/s stream",
        section: "Experimental results, figure 11",
        caption: "Messages of 1,000 bytes from A to F over five links of 10 ms and 10 Mbit/s, the \
               third of which loses packets in both directions: mean one-way delay until they can \
               be read in order, with a TCP from end to end, with reliable links hop by hop, and \
               with a stream over them, which also retransmits and limits its rate from end to end.",
        chart: one_panel(|t| delay_chart(t, RATES[0])),
        claims: vec![
            slope_claim(
                "much-slower-500",
                (PLACES[0], HOP_BY_HOP, TCPS[0]),
                RATES[0],
                "at 500 kbit/s the mean delay grows with loss at most a third as fast as with the \
                 TCP of Linux 2.4",
            ),
            slope_claim(
                "much-slower-500-linux-6",
                (PLACES[0], HOP_BY_HOP, TCPS[1]),
                RATES[0],
                "at 500 kbit/s the mean delay grows with loss at most a third as fast as with the \
                 TCP of Linux 6",
            ),
            slope_claim(
                "stream-500",
                (PLACES[0], STREAM, TCPS[0]),
                RATES[0],
                "at 500 kbit/s over a stream the mean delay grows with loss at most a third as fast as \
                 with the TCP of Linux 2.4",
            ),
            slope_claim(
                "stream-500-linux-6",
                (PLACES[0], STREAM, TCPS[1]),
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
        caption: "As figure 11, with twice as many messages. A TCP that loses more than about 1 % of \
               its segments over 100 ms can't carry them: points at which messages are half a \
               second late for more than a twentieth of the time are not judged.",
        chart: one_panel(|t| delay_chart(t, RATES[1])),
        claims: vec![
            Claim {
                why: "The TCP of Linux 2.4 doesn't keep up: it has no point that could be judged, \
                      since 7.8 % of its messages are half a second late at 0.2 % loss, and 99 % \
                      from 1 % on.",
                ..keeps_up(
                    "keeps-up",
                    (PLACES[0], HOP_BY_HOP),
                    "at 1,000 kbit/s reliable links keep up at every loss rate: at most 5 % of the \
                     messages are half a second late",
                )
            },
            keeps_up(
                "stream-keeps-up",
                (PLACES[0], STREAM),
                "at 1,000 kbit/s a stream keeps up at every loss rate: at most 5 % of the messages \
                 are half a second late",
            ),
            slope_claim(
                "much-slower-1000-linux-6",
                (PLACES[0], HOP_BY_HOP, TCPS[1]),
                RATES[1],
                "at 1,000 kbit/s the mean delay grows with loss at most a third as fast as with \
                 the TCP of Linux 6, as far as the TCP keeps up",
            ),
            slope_claim(
                "stream-1000-linux-6",
                (PLACES[0], STREAM, TCPS[1]),
                RATES[1],
                "at 1,000 kbit/s over a stream the mean delay grows with loss at most a third as \
                 fast as with the TCP of Linux 6, as far as the TCP keeps up",
            ),
        ],
    }
}

fn keeps_up(id: &'static str, carried: Carrier, says: &'static str) -> Claim {
    Claim {
        unit: "% of the messages",
        measure: Box::new(move |t| {
            let rows = of(t, carried, RATES[1]);
            Measured::maximum(rows.map(|r| Measured::census(r.number("backlog_pct"))))
        }),
        ..Claim::holding(id, says, None, Bound::at_most(MAX_BACKLOG, BEFORE), "end-to-end-only")
    }
}

/// The TCP's jitter divided by the overlay's, where that is greatest.
fn jitters(table: &Table, (at, ours, tcp): Compared) -> Measured {
    let one = |r: Record<'_>| {
        let loss = r.number("loss_pct");
        let theirs = with_loss(table, (at, tcp), RATES[0], loss)?;
        let times = ratio(&Measured::of(&theirs, JITTER), &Measured::of(&r, JITTER));
        Some(times.noting(format!("At {loss} % loss.")))
    };
    let lossy = of(table, (at, ours), RATES[0]).filter(|r| r.number("loss_pct") > 0.0);
    let best = lossy.filter_map(one).max_by(|a, b| a.estimate.total_cmp(&b.estimate));
    best.unwrap_or_else(nothing)
}

fn jitter_claim(id: &'static str, compared: Compared, says: &'static str) -> Claim {
    Claim {
        unit: "times",
        decimals: 1,
        measure: Box::new(move |t| jitters(t, compared)),
        expected: Verdict::Exceeds,
        why: "Simulated nodes process a message in no time, so that they add nothing to the smaller \
              jitter; the paper's programs took time at each hop.",
        ..Claim::holding(
            id,
            says,
            Some("the jitter hop by hop is up to three to four times smaller than end to end"),
            Bound::at_least(3.0, "the lower of the paper's two numbers").better(4.0),
            "end-to-end-only",
        )
    }
}

fn fig13() -> Figure {
    Figure {
        name: "fig13",
        title: "Mean jitter of a 500 kbit/s stream",
        section: "Experimental results, figure 13",
        caption: "The streams of figure 11: the jitter estimate of RFC 3550 (section 6.4.1), averaged \
               over all messages. The paper doesn't define its jitter.",
        chart: one_panel(jitter_chart),
        claims: vec![
            jitter_claim(
                "smaller-jitter",
                (PLACES[0], HOP_BY_HOP, TCPS[0]),
                "where the difference is greatest, the jitter is at most a third of that with the TCP \
                 of Linux 2.4",
            ),
            jitter_claim(
                "smaller-jitter-linux-6",
                (PLACES[0], HOP_BY_HOP, TCPS[1]),
                "where the difference is greatest, the jitter is at most a third of that with the TCP \
                 of Linux 6",
            ),
            jitter_claim(
                "stream-jitter",
                (PLACES[0], STREAM, TCPS[0]),
                "where the difference is greatest, the jitter over a stream is at most a third of that \
                 with the TCP of Linux 2.4",
            ),
            jitter_claim(
                "stream-jitter-linux-6",
                (PLACES[0], STREAM, TCPS[1]),
                "where the difference is greatest, the jitter over a stream is at most a third of that \
                 with the TCP of Linux 6",
            ),
        ],
    }
}

/// Messages of the overlay later than 120 ms, divided by those of the TCP, at 1 % loss.
fn late(table: &Table, (at, ours, tcp): Compared) -> Measured {
    let [ours, theirs] = [ours, tcp].map(|carried| {
        let row = with_loss(table, (at, carried), RATES[0], 1.0);
        row.map_or_else(nothing, |r| Measured::of(&r, LATER))
    });
    ratio(&ours, &theirs)
}

fn late_claim(id: &'static str, compared: Compared, says: &'static str) -> Claim {
    Claim {
        unit: "of the TCP's",
        measure: Box::new(move |t| late(t, compared)),
        at: &[1.0],
        ..Claim::holding(
            id,
            says,
            Some(
                "the number of packets delayed hop by hop is more than three times lower than end to \
                 end",
            ),
            Bound::below(1.0 / 3.0, "more than three times lower"),
            "end-to-end-only",
        )
    }
}

fn fig14() -> Figure {
    Figure {
        name: "fig14",
        title: "Delay distribution of a 500 kbit/s stream",
        section: "Experimental results, figure 14",
        caption: "The streams of figure 11 at 0.5, 1 and 2 % loss (the paper doesn't give it): the \
               share of messages that take longer than 60 to 280 ms.",
        chart: one_panel(late_chart),
        claims: vec![
            late_claim(
                "fewer-late",
                (PLACES[0], HOP_BY_HOP, TCPS[0]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms as with the \
                 TCP of Linux 2.4",
            ),
            late_claim(
                "fewer-late-linux-6",
                (PLACES[0], HOP_BY_HOP, TCPS[1]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms as with the \
                 TCP of Linux 6",
            ),
            late_claim(
                "stream-late",
                (PLACES[0], STREAM, TCPS[0]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms over a stream \
                 as with the TCP of Linux 2.4",
            ),
            late_claim(
                "stream-late-linux-6",
                (PLACES[0], STREAM, TCPS[1]),
                "at 1 % loss fewer than a third as many messages take longer than 120 ms over a stream \
                 as with the TCP of Linux 6",
            ),
        ],
    }
}

/// Lines of the means in these columns, without points that don't keep up.
fn series(
    table: &Table,
    (at, all): (&'static str, &[&'static str]),
    rate: u32,
    columns: [&str; 3],
) -> Vec<Series> {
    let one = |(n, &carried): (usize, &&'static str)| {
        line(table, (carried, Style::nth(n)), "loss_pct", columns, move |r| {
            is_of(r, (at, carried), rate) && r.number("backlog_pct") < MAX_BACKLOG
        })
    };
    all.iter().enumerate().map(one).collect()
}

/// Place and transports that the simulator's figures show.
const SIMULATED: (&str, &[&str]) = (PLACES[0], &[HOP_BY_HOP, STREAM, TCPS[0], TCPS[1]]);

fn delay_chart(table: &Table, rate: u32) -> Chart {
    Chart {
        title: format!("{rate} kbit/s from A to F"),
        x: Axis::linear("lost between C and D (%)", (0.0, 2.0), 0.5),
        y: Axis::linear("mean delay (ms)", (0.0, 250.0), 50.0),
        series: series(table, SIMULATED, rate, MEAN),
    }
}

fn jitter_chart(table: &Table) -> Chart {
    Chart {
        title: "500 kbit/s from A to F".to_owned(),
        x: Axis::linear("lost between C and D (%)", (0.0, 2.0), 0.5),
        y: Axis::linear("mean jitter (ms)", (0.0, 20.0), 5.0),
        series: series(table, SIMULATED, RATES[0], JITTER),
    }
}

fn late_chart(table: &Table) -> Chart {
    let mut series = Vec::new();
    for (n, loss) in [0.5, 1.0, 2.0].into_iter().enumerate() {
        for (pale, carried) in [(false, HOP_BY_HOP), (true, TCPS[0])] {
            let row = with_loss(table, (PLACES[0], carried), RATES[0], loss);
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
        title: "500 kbit/s from A to F: messages later than".to_owned(),
        x: Axis::linear("delay (ms)", (60.0, 280.0), 20.0),
        y: Axis::log("messages (%)", (0.01, 100.0)),
        series,
    }
}

/// How much more slowly the mean delay between daemons grows than with the kernel's TCP.
fn live_slopes() -> Vec<Claim> {
    let [reno, cubic] = LIVE_TCPS;
    let slope = |id, ours, tcp, says| slope_claim(id, (PLACES[1], ours, tcp), RATES[0], says);
    vec![
        slope(
            "much-slower-500-reno",
            HOP_BY_HOP,
            reno,
            "at 500 kbit/s the mean delay between daemons grows with loss at most a third as fast as with \
             the kernel's TCP with reno",
        ),
        slope(
            "much-slower-500-cubic",
            HOP_BY_HOP,
            cubic,
            "at 500 kbit/s the mean delay between daemons grows with loss at most a third as fast as with \
             the kernel's TCP with cubic",
        ),
        slope(
            "sealed-500-reno",
            HOP_BY_HOP_SEALED,
            reno,
            "at 500 kbit/s the mean delay between sealed daemons grows with loss at most a third as fast \
             as with the kernel's TCP with reno",
        ),
        slope(
            "stream-500-reno",
            STREAM,
            reno,
            "at 500 kbit/s over a stream between daemons the mean delay grows with loss at most a third as \
             fast as with the kernel's TCP with reno",
        ),
    ]
}

/// The paper's other claims, judged with daemons and the kernel's TCP.
fn live_claims() -> Vec<Claim> {
    let compared = (PLACES[1], HOP_BY_HOP, LIVE_TCPS[0]);
    vec![
        keeps_up(
            "keeps-up",
            (PLACES[1], HOP_BY_HOP),
            "at 1,000 kbit/s the reliable links of daemons keep up at every loss rate: at most 5 % \
             of the messages are half a second late",
        ),
        keeps_up(
            "stream-keeps-up",
            (PLACES[1], STREAM),
            "at 1,000 kbit/s a stream between daemons keeps up at every loss rate: at most 5 % of \
             the messages are half a second late",
        ),
        jitter_claim(
            "smaller-jitter-reno",
            compared,
            "where the difference is greatest, the jitter between daemons is at most a third of that with \
             the kernel's TCP with reno",
        ),
        late_claim(
            "fewer-late-reno",
            compared,
            "at 1 % loss fewer than a third as many messages between daemons take longer than 120 ms as \
             with the kernel's TCP with reno",
        ),
    ]
}

/// The claims that daemons and the kernel agree with the simulator.
fn agreements() -> Vec<Claim> {
    vec![
        agreement(
            "as-simulated",
            (HOP_BY_HOP, HOP_BY_HOP),
            "at 500 kbit/s and 1 % loss the mean delay between daemons equals that of the \
             simulator within 5 %",
            0.05,
        ),
        agreement(
            "stream-as-simulated",
            (STREAM, STREAM),
            "at 500 kbit/s and 1 % loss the mean delay of a stream between daemons equals that of \
             the simulator within 5 %",
            0.05,
        ),
        agreement(
            "reno-as-simulated",
            (LIVE_TCPS[0], TCPS[1]),
            "at 500 kbit/s and 1 % loss the mean delay with the kernel's TCP with reno equals that \
             of the simulator's TCP of Linux 6 within 15 %",
            0.15,
        ),
    ]
}

/// Daemons compared with the kernel's TCP.
pub fn beside() -> Figure {
    let claims = live_slopes().into_iter().chain(live_claims()).chain(agreements());
    Figure {
        name: "delays-testbed",
        title: "Delays between daemons, and with the kernel's TCP",
        section: "Experimental results, figures 11 to 14",
        caption: "The streams of figures 11 to 14 between `trunkline node` daemons in network \
               namespaces, sealed and not, and through routers with the kernel's TCP (reno and \
               cubic, without Nagle's algorithm), all at the same time over separate links; from \
               when a message is due until it can be read in order.",
        chart: Box::new(live_panels),
        claims: claims.map(|claim| Claim { sabotage: "", ..claim }).collect(),
    }
}

/// Mean delay in the testbed, divided by that in the simulator.
fn agreement(
    id: &'static str,
    (live, simulated): (&'static str, &'static str),
    says: &'static str,
    apart: f64,
) -> Claim {
    Claim {
        unit: "of the simulator's",
        measure: Box::new(move |t| {
            let [live, simulated] = [(PLACES[1], live), (PLACES[0], simulated)].map(|carried| {
                let row = with_loss(t, carried, RATES[0], 1.0);
                row.map_or_else(nothing, |r| Measured::of(&r, MEAN))
            });
            ratio(&live, &simulated)
        }),
        ..Claim::holding(id, says, None, Bound::within(1.0 - apart, 1.0 + apart, BEFORE), "")
    }
}

fn live_panels(table: &Table) -> Panels {
    let [reno, cubic] = LIVE_TCPS;
    let all = [HOP_BY_HOP, STREAM, HOP_BY_HOP_SEALED, STREAM_SEALED, reno, cubic];
    let panel = |(label, top, step): (&str, f64, f64), rate, columns| {
        let series = series(table, (PLACES[1], &all), rate, columns);
        Panel::new(Axis::linear(label, (0.0, top), step), series)
    };
    Panels {
        title: "Between daemons, and with the kernel's TCP".to_owned(),
        x: Axis::linear("lost between C and D (%)", (0.0, 2.0), 0.5),
        panels: vec![
            panel(("mean delay (ms), 500 kbit/s", 250.0, 50.0), RATES[0], MEAN),
            panel(("mean delay (ms), 1,000 kbit/s", 250.0, 50.0), RATES[1], MEAN),
            panel(("mean jitter (ms), 500 kbit/s", 20.0, 5.0), RATES[0], JITTER),
        ],
        guides: Vec::new(),
    }
}
