//! Figures 6 to 8 and their claims.

use super::competition::{
    ALL, CHOSEN, DECLARED, FEWER_BYTES, FEWER_DATAGRAMS, FULL, NOMINAL, ONE_CALL, SINGLY, TFMC,
    window_name,
};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};

/// The figures on calls that share a link with a TCP.
pub fn all() -> Vec<Figure> {
    vec![fig6(), fig7(), fig7b(), fig7c(), fig8()]
}

fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Throughput of a TCP and of calls without multiplexing",
        section: "5.4",
        says: "A TCP Reno with packets of 1,000 bytes over 10 Mbit/s and 10 ms with a drop-tail \
               queue of 50 packets; 200 calls of 24 kbit/s begin after 20 s, at the same instant \
               up to a millisecond. Throughput on the bottleneck, with headers, in bins of half a \
               second. The access links (100 Mbit/s, 1 ms) and the window of 20 packets, ns-2's \
               default, are not in the paper.",
        chart: Box::new(|t| throughput("A datagram for each packet", t, SINGLY)),
        claims: vec![Claim {
            measure: Box::new(|t| measured(t, SINGLY, KEPT)),
            sabotage: "spread-20ms",
            unit: "% of its earlier throughput",
            decimals: 1,
            ..claim(
                "tcp-falls",
                "without multiplexing, the TCP keeps at most half of its throughput when the calls \
                 begin",
                "TCP throughput was dramatically decreased: the calls cause starvation",
                Bound::at_most(50.0, "a dramatic decrease is interpreted as half or more"),
            )
        }],
    }
}

fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Throughput of a TCP and of calls with TFMC",
        section: "5.4",
        says: "The same with TFMC, which reports every 5 ms; below, packets in a datagram. Calls \
               can't take less than 2.56 Mbit/s, their speech with RTP's headers.",
        chart: Box::new(|t| throughput("With TFMC", t, TFMC)),
        claims: vec![
            Claim {
                measure: Box::new(|t| measured(t, TFMC, TCP)),
                expected: Verdict::Fails,
                why: SWINGS,
                ..claim(
                    "tcp-over-5",
                    "with TFMC the TCP keeps more than 5 Mbit/s",
                    "TCP maintained a steady sending rate of more than 5 Mbit/s",
                    Bound::above(5.0, "the paper's number"),
                )
            },
            Claim {
                measure: Box::new(|t| measured(t, TFMC, LEAD)),
                why: "The same is true without multiplexing, at this spread: of 200 packets that \
                      arrive at once, two in three find the queue full.",
                sabotage: "singly-5ms",
                ..claim(
                    "voice-below-tcp",
                    "with TFMC the calls get less than the TCP",
                    "voice flows get less bandwidth than the TCP flow",
                    Bound::above(0.0, "the TCP's throughput minus the calls'"),
                )
            },
            Claim {
                measure: Box::new(|t| measured(t, TFMC, SMOOTHER)),
                expected: Verdict::Fails,
                why: STEADY,
                sabotage: "swing-every-second",
                unit: "points",
                decimals: 2,
                ..claim(
                    "smoother",
                    "from one half second to the next the calls' throughput varies less with TFMC \
                     than without",
                    "the TFMC flow is smoother than non-multiplexed voice flows",
                    Bound::above(
                        0.0,
                        "the coefficient of variation without TFMC minus that with it",
                    ),
                )
            },
            Claim {
                measure: Box::new(|t| measured(t, TFMC, SAVED)),
                expected: Verdict::Fails,
                why: "Two thirds of the calls' packets don't reach the bottleneck without \
                      multiplexing; more do with TFMC.",
                sabotage: "m-fixed-46",
                ..claim(
                    "less-bandwidth",
                    "on the bottleneck the calls take less with TFMC than without",
                    "it requires less network bandwidth, because of header overhead reduction",
                    Bound::above(0.0, "throughput without minus with"),
                )
            },
        ],
    }
}

fn fig7b() -> Figure {
    Figure {
        name: "fig7b",
        title: "Throughput by the spread of the calls' packets",
        section: "beyond",
        says: "Not in the paper. The same with calls that begin within 0 to 20 ms, the interval \
               between their packets: the effect of a queue of 50 packets on 200 that arrive at \
               once, and what remains of it when they don't. Above with the window of 20 packets, \
               below without a limit.",
        chart: Box::new(by_spread),
        claims: vec![Claim {
            published: None,
            measure: Box::new(|t| {
                place(t, SINGLY, (20, DECLARED.1)).map_or_else(none, |r| Measured::of(&r, KEPT))
            }),
            sabotage: "spread-1ms",
            unit: "% of its earlier throughput",
            decimals: 1,
            ..claim(
                "spread-keeps",
                "without multiplexing, the TCP keeps more than half of its throughput when the calls' \
                 packets are spread over 20 ms",
                "",
                Bound::above(
                    50.0,
                    "the other side of fig6's bound, set before the first measurement",
                ),
            )
        }],
    }
}

/// Reason why figure 7 is not reproduced.
const SWINGS: &str = "Equation (2) with the size of the present datagram allows 25 times as much \
                      with 46 packets in it as with one, so that m swings between 1 and 46 with \
                      every report, and most datagrams are single packets. See fig7c.";

/// Reason why calls are not smoother with TFMC.
const STEADY: &str = "Without multiplexing the queue lets the same calls' packets through every 20 ms, \
                      which hardly varies.";

/// Reason why their delay isn't shorter with TFMC.
const EMPTY: &str = "Without multiplexing a packet is lost, or finds the queue nearly empty: 50 \
                     such packets are 2.4 ms. With TFMC there are fewer losses, and packets wait \
                     for others.";

fn fig7c() -> Figure {
    let own = |id, says, columns: [&'static str; 3], bound, sabotage| Claim {
        published: None,
        measure: Box::new(move |t| measured(t, CHOSEN, columns)),
        sabotage,
        ..claim(id, says, "", bound)
    };
    const OF_FIG7: &str = "that of figures 7 and 8, set before this was measured";
    Figure {
        name: "fig7c",
        title: "Throughput with TFMC, by the size in equation (2)",
        section: "beyond",
        says: "Not in the paper. Equation (4) yields the number of packets at which the rate is \
               TCP's, and equation (2) uses the size of a packet; if that is the datagram with the \
               number to be found, both together state that the trunk sends as many datagrams per \
               second as TCP would send segments. Shown over time with that, and in the table with \
               a segment of 1,460 bytes, with losses by the sequence numbers of one call, with 46 \
               packets in each datagram, and with each half of that gain alone: as few bytes in as \
               many datagrams as before, and as few datagrams with as many bytes.",
        chart: Box::new(|t| throughput("With TFMC by the next datagram", t, CHOSEN)),
        claims: vec![
            own(
                "tcp-over-5",
                "with TFMC by the next datagram, the TCP keeps more than 5 Mbit/s",
                TCP,
                Bound::above(5.0, OF_FIG7),
                "no-tfmc",
            ),
            own(
                "voice-below-tcp",
                "with it the calls get less than the TCP",
                LEAD,
                Bound::above(0.0, OF_FIG7),
                "singly-5ms",
            ),
            Claim {
                unit: "points",
                expected: Verdict::Fails,
                why: STEADY,
                ..own(
                    "smoother",
                    "with it the calls' throughput varies less than without",
                    SMOOTHER,
                    Bound::above(0.0, OF_FIG7),
                    "swing-every-second",
                )
            },
            Claim {
                unit: "ms",
                expected: Verdict::Fails,
                why: EMPTY,
                ..own(
                    "lower",
                    "with it a call's packets take less time than without, on average",
                    FASTER,
                    Bound::above(0.0, OF_FIG7),
                    "longer-path",
                )
            },
        ],
    }
}

fn fig8() -> Figure {
    Figure {
        name: "fig8",
        title: "Delay of one call's packets, with TFMC and without",
        section: "5.4",
        says: "One of the 200 calls, from the call to the far gateway, including the wait for \
               others: the mean and, thin, the maximum of the packets in half a second.",
        chart: Box::new(delay),
        claims: vec![
            Claim {
                measure: Box::new(|t| measured(t, TFMC, FASTER)),
                expected: Verdict::Fails,
                why: EMPTY,
                sabotage: "longer-path",
                unit: "ms",
                decimals: 2,
                ..claim(
                    "lower",
                    "a call's packets take less time with TFMC than without, on average",
                    "TFMC, globally, achieves better delay than non-multiplexed flows",
                    Bound::above(0.0, "the mean delay without TFMC minus that with it"),
                )
            },
            Claim {
                measure: Box::new(|t| measured(t, TFMC, FASTEST)),
                expected: Verdict::Fails,
                why: "50 short packets in the queue are 2.4 ms, and 20 ms would take 24 of the \
                      TCP's, whose window is 20.",
                sabotage: "longer-path",
                unit: "ms",
                decimals: 2,
                ..claim(
                    "by-20-ms",
                    "some packet takes at least 20 ms less with TFMC than the same one without",
                    "delay reduced by 20 ms for some packets",
                    Bound::at_least(20.0, "the paper's number; the largest difference in a run"),
                )
            },
        ],
    }
}

const KEPT: [&str; 3] = ["kept_pct", "kept_low_pct", "kept_high_pct"];
const TCP: [&str; 3] = ["tcp_mbit_s", "tcp_low_mbit_s", "tcp_high_mbit_s"];
const VOICE: [&str; 3] = ["voice_mbit_s", "voice_low_mbit_s", "voice_high_mbit_s"];
const LEAD: [&str; 3] = ["lead_mbit_s", "lead_low_mbit_s", "lead_high_mbit_s"];
const SAVED: [&str; 3] = ["saved_mbit_s", "saved_low_mbit_s", "saved_high_mbit_s"];
const SMOOTHER: [&str; 3] = ["smoother_pct", "smoother_low_pct", "smoother_high_pct"];
const FASTER: [&str; 3] = ["faster_ms", "faster_low_ms", "faster_high_ms"];
const FASTEST: [&str; 3] = ["fastest_ms", "fastest_low_ms", "fastest_high_ms"];

/// A claim of the paper, in Mbit/s, which fails for calls without TFMC.
fn claim(id: &'static str, says: &'static str, published: &'static str, bound: Bound) -> Claim {
    Claim {
        id,
        says,
        published: Some(published),
        bound,
        unit: "Mbit/s",
        measure: Box::new(|_| none()),
        sabotage: "no-tfmc",
        ..Claim::default()
    }
}

fn none() -> Measured {
    Measured::census(f64::NAN)
}

/// The row over all runs of a configuration.
fn place<'a>(
    table: &'a Table,
    carried: &str,
    (spread, window): (u32, Option<u64>),
) -> Option<Record<'a>> {
    table.iter().find(|r| {
        r.is("row", ALL)
            && r.is("carried", carried)
            && r.number("spread_ms") == f64::from(spread)
            && r.is("window", &window_name(window))
    })
}

/// Value in the declared configuration; a note has the values in all others.
fn measured(table: &Table, carried: &str, columns: [&'static str; 3]) -> Measured {
    let declared = place(table, carried, DECLARED);
    let measured = declared.map_or_else(none, |r| Measured::of(&r, columns));
    let others = |window: Option<u64>| {
        let of = table.iter().filter(|r| {
            r.is("row", ALL) && r.is("carried", carried) && r.is("window", &window_name(window))
        });
        let one = |r: Record<'_>| format!("{} ms: {}", r.text("spread_ms"), r.text(columns[0]));
        of.map(one).collect::<Vec<_>>().join("; ")
    };
    let readings = [SINGLY, TFMC, CHOSEN, NOMINAL, ONE_CALL, FULL, FEWER_BYTES, FEWER_DATAGRAMS];
    let reading = |name: &&str| {
        let row = place(table, name, DECLARED)?;
        let value = row.text(columns[0]);
        (!value.is_empty()).then(|| format!("{name}: {value}"))
    };
    let note = format!(
        "By spread, with a window of 20 packets: {}. Without a limit: {}. By transport of the \
         packets: {}.",
        others(DECLARED.1),
        others(None),
        readings.iter().filter_map(reading).collect::<Vec<_>>().join("; ")
    );
    measured.noting(note)
}

fn bins<'a>(table: &'a Table, carried: &'static str) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("carried", carried) && !r.is("row", ALL))
}

fn time_line(
    table: &Table,
    (name, style): (&str, Style),
    carried: &'static str,
    column: &'static str,
) -> Series {
    let mark = |r: Record<'_>| Mark { x: r.number("time_s"), y: r.number(column), interval: None };
    let points = bins(table, carried).map(mark).collect();
    Series { name: name.to_owned(), style: style.stepped(), points }
}

fn time_axis(table: &Table) -> Axis {
    let last = table.iter().map(|r| r.number("time_s")).fold(0.0, f64::max);
    Axis::fitting("time (s)", 0.0, [last].into_iter())
}

fn throughput(title: &str, table: &Table, carried: &'static str) -> Panels {
    let line = |name, n, column| time_line(table, (name, Style::nth(n)), carried, column);
    let mut panels = vec![Panel::new(
        Axis::linear("Mbit/s", (0.0, 10.0), 2.0),
        vec![line("TCP", 0, "tcp_mbit_s"), line("200 calls", 1, "voice_mbit_s")],
    )];
    if carried != SINGLY {
        let y = Axis::linear("packets in a datagram", (0.0, 50.0), 10.0);
        panels.push(Panel::new(y, vec![line("packets", 2, "packets_per_datagram")]));
    }
    Panels { title: title.to_owned(), x: time_axis(table), panels, guides: Vec::new() }
}

fn delay(table: &Table) -> Panels {
    let line = |name, n, carried, column| {
        let style = Style::nth(n);
        let style = if column == "delay_max_ms" { Style { width: 8, ..style } } else { style };
        time_line(table, (name, style), carried, column)
    };
    let series = vec![
        line("singly", 1, SINGLY, "delay_ms"),
        line("singly, maximum", 1, SINGLY, "delay_max_ms"),
        line("TFMC", 0, TFMC, "delay_ms"),
        line("TFMC, maximum", 0, TFMC, "delay_max_ms"),
        line("TFMC, next datagram", 2, CHOSEN, "delay_ms"),
    ];
    Panels {
        title: "Delay of a call".to_owned(),
        x: time_axis(table),
        panels: vec![Panel::new(Axis::linear("delay (ms)", (0.0, 30.0), 10.0), series)],
        guides: Vec::new(),
    }
}

fn by_spread(table: &Table) -> Panels {
    let panel = |window: Option<u64>, label: &str| {
        let line = |(name, n, carried, columns): (&str, usize, &str, [&str; 3])| {
            let of = table.iter().filter(|r| {
                r.is("row", ALL) && r.is("carried", carried) && r.is("window", &window_name(window))
            });
            let mark = |r: Record<'_>| {
                let Measured { estimate, interval, .. } = Measured::of(&r, columns);
                Mark { x: r.number("spread_ms"), y: estimate, interval: Some(interval) }
            };
            Series { name: name.to_owned(), style: Style::nth(n), points: of.map(mark).collect() }
        };
        let series = [
            ("TCP with TFMC", 0, TFMC, TCP),
            ("calls with TFMC", 1, TFMC, VOICE),
            ("TCP with single packets", 2, SINGLY, TCP),
            ("calls, single packets", 3, SINGLY, VOICE),
            ("TCP, next datagram", 4, CHOSEN, TCP),
            ("calls, next datagram", 5, CHOSEN, VOICE),
        ];
        Panel::new(Axis::linear(label, (0.0, 8.0), 2.0), series.map(line).into())
    };
    Panels {
        title: "By the spread of the calls' packets".to_owned(),
        x: Axis::linear("calls begin within (ms)", (0.0, 20.0), 5.0),
        panels: vec![
            panel(DECLARED.1, "Mbit/s, window of 20"),
            panel(None, "Mbit/s, without a limit"),
        ],
        guides: Vec::new(),
    }
}
