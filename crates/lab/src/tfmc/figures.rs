//! Figures 6 to 8, and what they become in other readings.

use super::competition::{
    BINNED, FEWER_BYTES, FEWER_DATAGRAMS, FULL, RUN, SINGLY, TFMC, measures, shown,
};
use super::network::Access;
use super::readings::Place;
use super::sentences::{self, KEPT, TCP, value};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict, maximum, minimum};
use crate::experiment::Figure;
use crate::plot::{Axis, Boxes, Mark, Panel, Panels, Quartiles, Series, Style};
use crate::table::{Record, Table};

/// The figures on calls that share a link with a TCP.
pub fn all() -> Vec<Figure> {
    vec![fig6(), fig6b(), fig7(), fig7b(), fig7c(), fig8()]
}

fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Throughput of a TCP and of calls without multiplexing",
        section: "5.4",
        caption: "A TCP Reno with packets of 1,000 bytes over 10 Mbit/s and 10 ms with a drop-tail \
               queue of 50 packets; 200 calls of 24 kbit/s begin after 20 s, at the same instant \
               up to a millisecond. Throughput on the bottleneck, with headers, in bins of half a \
               second of the first run. The access links (100 Mbit/s, 1 ms) and the window of 20 \
               packets, ns-2's default, are not in the paper. Values are medians of all runs.",
        chart: Box::new(|t| throughput("A datagram for each packet", t, ("", SINGLY))),
        claims: sentences::of_fig6(),
    }
}

/// Readings by their access links: with queues of 50 packets, and of 1,000.
const BY_ACCESS: [[&str; 3]; 2] =
    [["access-10-50", "access-30-50", "access-100-50"], ["access-10-1000", "access-30-1000", ""]];

fn fig6b() -> Figure {
    Figure {
        name: "fig6b",
        title: "What the TCP keeps, by the access links",
        section: "beyond",
        caption: "Not in the paper, which doesn't describe the access links: what the TCP of figure 6 \
               keeps of its throughput when the calls begin, for access links of 10, 30 and 100 \
               Mbit/s with queues of 50 and 1,000 packets. Dots: runs. Boxes: their quartiles and \
               extremes. Slow access links with short queues drop the calls' packets before they \
               reach the bottleneck.",
        chart: Box::new(by_access),
        claims: vec![Claim {
            measure: Box::new(|t| {
                let of = |reading: &&'static str| value(t, reading, SINGLY, KEPT);
                Measured::range(&BY_ACCESS.iter().flatten().map(of).collect::<Vec<_>>())
            }),
            reads: Box::new(|key| BY_ACCESS.iter().flatten().any(|name| measures(name)(key))),
            unit: "points",
            decimals: 1,
            ..Claim::holding(
                "access-decides",
                "the access links alone change by more than 25 points what the TCP keeps",
                None,
                Bound::above(25.0, OWN_TARGET),
                "one-access",
            )
        }],
    }
}

fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Throughput of a TCP and of calls with TFMC",
        section: "5.4",
        caption: "The same with TFMC, whose receiver reports every 5 ms; below, packets in a datagram. \
               Calls can't take less than 2.56 Mbit/s, their speech with RTP's headers. The call whose \
               sequence numbers reveal losses is a random one. Calls that lose no packet, or all, \
               reveal none, so that the runs fall in two groups, of which the first run shows one. \
               Fig7c shows all.",
        chart: Box::new(|t| throughput("With TFMC", t, ("", TFMC))),
        claims: sentences::of_fig7(),
    }
}

/// Readings by the spread of the calls, in milliseconds.
const BY_SPREAD: [&str; 5] = ["spread-0", "", "spread-5", "spread-10", "spread-20"];

fn fig7b() -> Figure {
    Figure {
        name: "fig7b",
        title: "Throughput by the spread of the calls' packets",
        section: "beyond",
        caption: "Not in the paper. The same with calls that begin within 0 to 20 ms, the interval \
               between their packets: the effect of a queue of 50 packets on 200 that arrive at \
               once, and what remains of it when they don't. Above a datagram for each packet, \
               below with TFMC. Dots: runs. Boxes: their quartiles and extremes.",
        chart: Box::new(by_spread),
        claims: vec![Claim {
            measure: Box::new(|t| value(t, "spread-20", SINGLY, KEPT)),
            reads: Box::new(measures("spread-20")),
            unit: "% of its earlier throughput",
            decimals: 1,
            ..Claim::holding(
                "spread-keeps",
                "without multiplexing, the TCP keeps more than half of its throughput when the calls' \
                 packets are spread over 20 ms",
                None,
                Bound::above(
                    50.0,
                    "the other side of fig6's bound, set before the first measurement",
                ),
                "one-spread",
            )
        }],
    }
}

/// Sizes in equation (2), with losses by the trunk's own numbers.
const SIZES: [&str; 4] = ["trunk-numbers", "trunk-next-size", "trunk-60-bytes", "trunk-1000-bytes"];
/// All that fig7c shows, in the order of its horizontal axis.
const SHOWN: [&str; 12] = [
    "",
    "next-size",
    "60-bytes",
    "1000-bytes",
    "on-arrival",
    "trunk-numbers",
    "trunk-next-size",
    "trunk-60-bytes",
    "trunk-1000-bytes",
    FULL,
    FEWER_BYTES,
    FEWER_DATAGRAMS,
];

fn fig7c() -> Figure {
    Figure {
        name: "fig7c",
        title: "Throughput with TFMC, by what the paper's text leaves open",
        section: "beyond",
        caption: "Not in the paper. Equation (4) yields the number of packets at which the rate is \
               TCP's, and S in equation (2) has no argument. From left to right, 1: S is the \
               present datagram, S(m₁); 2: the next one, S(m₂), so that the trunk sends as many \
               datagrams per second as a TCP segments; 3: a voice packet's 60 bytes; 4: ns-2's \
               1,000 bytes; 5: S(m₁) with reports that follow arrivals; 6 to 9: the four sizes with \
               losses by the trunk's own numbers instead of those of one call. Only in full runs, \
               10: 46 packets in each datagram; 11 and 12: each half of that gain alone, as few \
               bytes in as many datagrams as before, and as few datagrams with as many bytes. Dots: \
               runs. Boxes: their quartiles and extremes.",
        chart: Box::new(by_choice),
        claims: vec![
            Claim {
                expected: Verdict::Undecided,
                why: "With S(m₁) and with 1,000 bytes, runs fall in two groups.",
                measure: Box::new(|t| {
                    Measured::range(&SIZES.map(|reading| value(t, reading, TFMC, TCP)))
                }),
                reads: Box::new(|key| SIZES.iter().any(|name| measures(name)(key))),
                unit: "Mbit/s",
                ..Claim::holding(
                    "size-decides",
                    "with losses by the trunk's own numbers, the size in equation (2) alone changes \
                     the TCP's throughput by more than 1 Mbit/s",
                    None,
                    Bound::above(1.0, OWN_TARGET),
                    "one-size",
                )
            },
            Claim {
                measure: Box::new(between_runs),
                reads: Box::new(measures("")),
                unit: "Mbit/s",
                ..Claim::holding(
                    "watched-call-decides",
                    "with losses by the numbers of one call, the TCP's throughput differs by more \
                     than 3 Mbit/s between runs, by the call",
                    None,
                    Bound::above(3.0, OWN_TARGET),
                    "one-size",
                )
            },
        ],
    }
}

/// Largest difference of the TCP's throughput between runs of the declared reading.
fn between_runs(table: &Table) -> Measured {
    let is_it =
        |r: &Record<'_>| r.is("row", RUN) && r.is("carried", TFMC) && r.is("reading", shown(""));
    let runs = || table.iter().filter(is_it).map(|r| r.number("tcp_mbit_s"));
    Measured::census(maximum(runs()) - minimum(runs()))
}

fn fig8() -> Figure {
    Figure {
        name: "fig8",
        title: "Delay of one call's packets, with TFMC and without",
        section: "5.4",
        caption: "One of the 200 calls, from the call to the far gateway, including the wait for \
               others: the mean and, thin, the maximum of the packets in half a second of the first \
               run. Values are medians of all runs.",
        chart: Box::new(delay),
        claims: sentences::of_fig8(),
    }
}

fn bins<'a>(
    table: &'a Table,
    (reading, carried): (&'static str, &'static str),
) -> impl Iterator<Item = Record<'a>> {
    let reading = shown(reading);
    table.iter().filter(move |r| {
        r.is("row", BINNED) && r.is("carried", carried) && r.is("reading", reading)
    })
}

fn time_line(
    table: &Table,
    (name, style): (&str, Style),
    of: (&'static str, &'static str),
    column: &'static str,
) -> Series {
    let mark = |r: Record<'_>| Mark { x: r.number("time_s"), y: r.number(column), interval: None };
    let points = bins(table, of).map(mark).collect();
    Series { name: name.to_owned(), style: style.stepped(), points }
}

fn time_axis(table: &Table) -> Axis {
    let last = table.iter().map(|r| r.number("time_s")).fold(0.0, f64::max);
    Axis::fitting("time (s)", 0.0, [last].into_iter())
}

fn throughput(title: &str, table: &Table, of: (&'static str, &'static str)) -> Panels {
    let line = |name, n, column| time_line(table, (name, Style::nth(n)), of, column);
    let mut panels = vec![Panel::new(
        Axis::linear("Mbit/s", (0.0, 10.0), 2.0),
        vec![line("TCP", 0, "tcp_mbit_s"), line("200 calls", 1, "voice_mbit_s")],
    )];
    if of.1 != SINGLY {
        let y = Axis::linear("packets in a datagram", (0.0, 50.0), 10.0);
        panels.push(Panel::new(y, vec![line("packets", 2, "packets_per_datagram")]));
    }
    Panels { title: title.to_owned(), x: time_axis(table), panels, guides: Vec::new() }
}

fn delay(table: &Table) -> Panels {
    let line = |name, n, of, column| {
        let style = Style::nth(n);
        let style = if column == "delay_max_ms" { Style { width: 8, ..style } } else { style };
        time_line(table, (name, style), of, column)
    };
    let series = vec![
        line("singly", 1, ("", SINGLY), "delay_ms"),
        line("singly, maximum", 1, ("", SINGLY), "delay_max_ms"),
        line("TFMC", 0, ("", TFMC), "delay_ms"),
        line("TFMC, maximum", 0, ("", TFMC), "delay_max_ms"),
        line("TFMC, next datagram", 2, ("next-size", TFMC), "delay_ms"),
    ];
    Panels {
        title: "Delay of a call".to_owned(),
        x: time_axis(table),
        panels: vec![Panel::new(Axis::linear("delay (ms)", (0.0, 30.0), 10.0), series)],
        guides: Vec::new(),
    }
}

/// All runs of some readings, as dots, and their distribution. Each reading has its position.
fn runs(
    table: &Table,
    (name, n): (&str, usize),
    (carried, column): (&'static str, &'static str),
    readings: &[(&'static str, f64)],
) -> (Series, Boxes) {
    let of = |reading: &'static str| {
        let reading = shown(reading);
        let is_it = move |r: &Record<'_>| {
            r.is("row", RUN) && r.is("carried", carried) && r.is("reading", reading)
        };
        table.iter().filter(is_it).map(|r| r.number(column)).collect::<Vec<f64>>()
    };
    let dots = readings
        .iter()
        .flat_map(|&(reading, x)| of(reading).into_iter().map(move |y| (x, y)))
        .map(|(x, y)| Mark { x, y, interval: None });
    let style = Style::nth(n).dots();
    let boxes = readings.iter().filter_map(|&(reading, x)| Quartiles::of(x, of(reading)));
    (
        Series { name: name.to_owned(), style, points: dots.collect() },
        Boxes { name: format!("{name}, quartiles"), style, boxes: boxes.collect() },
    )
}

fn dotted(y: Axis, all: impl IntoIterator<Item = (Series, Boxes)>) -> Panel {
    let (series, boxes) = all.into_iter().unzip();
    Panel { boxes, ..Panel::new(y, series) }
}

fn by_access(table: &Table) -> Panels {
    let of = |(n, readings): (usize, &[&'static str; 3])| {
        let placed = readings.map(|name| {
            let Access { mbit_s, .. } = Place::of(name).access;
            // Both queues beside each other.
            (name, f64::from(mbit_s) + 4.0 * n as f64 - 2.0)
        });
        let name = ["queue of 50", "queue of 1,000"][n];
        runs(table, (name, n), (SINGLY, "kept_pct"), &placed)
    };
    let y = Axis::linear("kept by the TCP (%)", (0.0, 120.0), 20.0);
    Panels {
        title: "What the TCP keeps without multiplexing".to_owned(),
        x: Axis::linear("access links (Mbit/s)", (0.0, 110.0), 10.0),
        panels: vec![dotted(y, BY_ACCESS.iter().enumerate().map(of))],
        guides: Vec::new(),
    }
}

fn by_spread(table: &Table) -> Panels {
    let panel = |label: &str, carried| {
        let of = |(name, n, column): (&str, usize, &'static str)| {
            let apart = 0.5 * n as f64 - 0.25;
            let placed = BY_SPREAD.map(|name| (name, Place::of(name).spread_ms() + apart));
            runs(table, (name, n), (carried, column), &placed)
        };
        let of = [("TCP", 0, "tcp_mbit_s"), ("calls", 1, "voice_mbit_s")].map(of);
        dotted(Axis::linear(label, (0.0, 8.0), 2.0), of)
    };
    Panels {
        title: "By the spread of the calls' packets".to_owned(),
        x: Axis::linear("calls begin within (ms)", (-1.0, 21.0), 5.0),
        panels: vec![panel("Mbit/s, single packets", SINGLY), panel("Mbit/s, TFMC", TFMC)],
        guides: Vec::new(),
    }
}

fn by_choice(table: &Table) -> Panels {
    let placed: Vec<_> = SHOWN.into_iter().zip(1..).map(|(name, n)| (name, f64::from(n))).collect();
    let of = |name, n, column| runs(table, (name, n), (TFMC, column), &placed);
    let apart = |(mut series, mut boxes): (Series, Boxes), by: f64| {
        series.points.iter_mut().for_each(|mark| mark.x += by);
        boxes.boxes.iter_mut().for_each(|b| b.x += by);
        (series, boxes)
    };
    let (tcp, calls) = (of("TCP", 0, "tcp_mbit_s"), of("calls", 1, "voice_mbit_s"));
    let count = Axis::linear("packets in a datagram", (0.0, 50.0), 10.0);
    Panels {
        title: "With TFMC, by what the text leaves open".to_owned(),
        x: Axis::linear("reading, by its number in the text", (0.0, 13.0), 1.0),
        panels: vec![
            dotted(
                Axis::linear("Mbit/s", (0.0, 8.0), 2.0),
                [apart(tcp, -0.15), apart(calls, 0.15)],
            ),
            dotted(count, [of("packets", 2, "packets_per_datagram")]),
        ],
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::competition::COLUMNS;
    use super::*;
    use crate::plot::panels_svg;

    /// Runs in two groups: a line or a bar at their mean would show a rate that no run has.
    #[test]
    fn every_run_is_a_dot_and_no_bar_stands_at_a_mean() {
        let row = |tcp: &str| -> Vec<String> {
            let cell = |column: &crate::table::Column| match column.name {
                "row" => RUN.to_owned(),
                "reading" => shown("").to_owned(),
                "carried" => TFMC.to_owned(),
                "tcp_mbit_s" => tcp.to_owned(),
                _ => String::new(),
            };
            COLUMNS.iter().map(cell).collect()
        };
        let rows = ["1.000", "6.300", "6.200"].map(row).into();
        let table = Table { columns: COLUMNS, rows };
        for (chart, n) in [(by_spread as fn(&Table) -> Panels, 1), (by_choice, 0)] {
            let figure = chart(&table);
            let tcp = &figure.panels[n].series[0];
            let seen: Vec<f64> = tcp.points.iter().map(|mark| mark.y).collect();
            assert_eq!(seen, [1.0, 6.3, 6.2]);
            assert!(tcp.points.iter().all(|mark| mark.interval.is_none()));
            assert_eq!(figure.panels[n].boxes[0].boxes[0].values, [1.0, 1.0, 6.2, 6.3, 6.3]);
            assert!(!panels_svg(&figure).contains("<polyline"), "dots are not connected");
        }
    }
}
