//! The figure on files over streams, and its claims.

use super::{
    CALLS, CALLS_BESIDE, CLEAN, FAILING, KILLS, LARGE, LOSSY, MBIT_S, MISSED, PACED, SEALED,
    STREAM, TCPS, testbed,
};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::reliable_overlay::{BEFORE, ratio};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// The networks, from left to right.
const NETWORKS: [&str; 3] = [LOSSY, CLEAN, FAILING];

pub fn figure() -> Figure {
    Figure {
        name: "transfer",
        title: "A file over a stream and over a TCP from end to end",
        section: "beyond",
        caption: "A file through three links of 10 ms and 20 Mbit/s with queues of 100 packets: with \
               1 % lost in both directions on the middle one (64 MiB), and without loss (256 MiB); \
               and around a ring with two links in one direction and three in the other, of 8 \
               Mbit/s that lose 0.5 %, on which the relay of the shorter path fails five times for \
               1.5 s and restarts during the transfer. A stream, sealed and not, over links of the \
               default MTU (1,280) and of the TCPs' (1,500), and TCPs from end to end over the \
               same links. Then ten G.711 calls alone, and during such a transfer, over the lossy \
               links, with nodes that have the rate of their links configured (19.5 Mbit/s) and \
               with nodes that don't.",
        chart: Box::new(panels),
        claims: speed().into_iter().chain(content()).chain(voice()).collect(),
    }
}

fn find<'a>(table: &'a Table, carried: &str, network: &str) -> Option<Record<'a>> {
    find_at(table, PLACES[0], carried, network)
}

fn find_at<'a>(table: &'a Table, at: &str, carried: &str, network: &str) -> Option<Record<'a>> {
    let is =
        |r: &Record<'_>| r.is("where", at) && r.is("carried", carried) && r.is("network", network);
    table.iter().find(is)
}

fn nothing() -> Measured {
    Measured::census(f64::NAN)
}

/// Goodput of a stream divided by that of a TCP of Linux 6.
fn over_tcp(table: &Table, carried: &str, network: &str) -> Measured {
    let [ours, tcp] = [carried, TCPS[1]].map(|carried| {
        find(table, carried, network).map_or_else(nothing, |r| match network {
            // Nothing is random without loss, so that there is one run.
            CLEAN => Measured::census(r.number(MBIT_S[0])),
            _ => Measured::of(&r, MBIT_S),
        })
    });
    ratio(&ours, &tcp)
}

const WHY_LESS: &str = "The round trip of the lossy link is a third of the path's, and a TCP alone \
                        on that link carries 3 times as much; a reliable link 2.3 times, with \
                        packets of 1,280 bytes where the TCP has 1,500. The stream's window costs \
                        the rest: the link marks packets while its window is halved, and the \
                        stream's grows again by one packet per round trip of the path.";

fn speed() -> Vec<Claim> {
    let times = |id, says, carried: &'static str, network: &'static str, bound| Claim {
        unit: "times TCP's",
        measure: Box::new(move |t| over_tcp(t, carried, network)),
        expected: Verdict::Fails,
        why: WHY_LESS,
        ..Claim::holding(id, says, None, bound, "end-to-end-only")
    };
    vec![
        times(
            "lossy",
            "with 1 % loss a stream is at least 2.5 times as fast as the TCP of Linux 6 (Reno)",
            STREAM,
            LOSSY,
            Bound::at_least(2.5, OWN_TARGET),
        ),
        times(
            "lossy-sealed",
            "with 1 % loss a sealed stream is at least 2.5 times as fast as the TCP of Linux 6 (Reno)",
            SEALED,
            LOSSY,
            Bound::at_least(2.5, OWN_TARGET),
        ),
        times(
            "lossy-1500",
            "with 1 % loss and links of an MTU of 1,500 bytes, as the TCP's, a stream is at least 2.5 times \
             as fast as the TCP of Linux 6 (Reno)",
            LARGE,
            LOSSY,
            Bound::at_least(2.5, OWN_TARGET),
        ),
        Claim {
            sabotage: "short-messages",
            expected: Verdict::Holds,
            why: "",
            ..times(
                "clean",
                "without loss a stream is at most 5.7 % slower than the TCP of Linux 6",
                STREAM,
                CLEAN,
                Bound::at_least(1.0 - 0.057, "the paper's number for one link"),
            )
        },
    ]
}

fn content() -> Vec<Claim> {
    let ours = |r: &Record<'_>| [STREAM, SEALED, LARGE].iter().any(|name| r.is("carried", name));
    vec![
        Claim {
            unit: "bytes",
            decimals: 0,
            measure: Box::new(move |t| {
                let all = t.iter().filter(ours);
                Measured::maximum(all.map(|r| Measured::census(r.number("astray"))))
            }),
            ..Claim::holding(
                "whole",
                "all bytes of every file have arrived, and are correct",
                None,
                Bound::at_most(0.0, BEFORE),
                "end-crashes",
            )
        },
        Claim {
            unit: "failures",
            decimals: 0,
            measure: Box::new(move |t| {
                let all = t.iter().filter(|r| r.is("network", FAILING));
                Measured::minimum(all.map(|r| Measured::census(r.number("kills"))))
            }),
            ..Claim::holding(
                "killed",
                "the relay failed five times during each transfer",
                None,
                Bound::at_least(f64::from(KILLS), "as often as scheduled"),
                "end-crashes",
            )
        },
    ]
}

fn voice() -> Vec<Claim> {
    let more = |t: &Table, network: &str| {
        let [with, without] = [CALLS_BESIDE, CALLS].map(|carried| {
            find(t, carried, network).map_or_else(nothing, |r| Measured::of(&r, MISSED))
        });
        with.minus(&without)
    };
    vec![Claim {
        unit: "percentage points",
        measure: Box::new(move |t| {
            let unpaced = more(t, LOSSY).estimate;
            let note = format!(
                "{unpaced:.2} with nodes that don't have the rate of their links \
                                configured."
            );
            more(t, PACED).noting(note)
        }),
        ..Claim::holding(
            "calls",
            "during a file transfer, calls over nodes that have the rate of their links configured \
             miss at most 0.1 percentage points more of their packets than alone",
            None,
            Bound::at_most(0.1, BEFORE),
            "calls-as-files",
        )
    }]
}

fn panels(table: &Table) -> Panels {
    let series =
        [STREAM, SEALED, LARGE, TCPS[0], TCPS[1]].into_iter().enumerate().map(|(n, carried)| {
            let mark = |(x, network): (usize, &&str)| {
                let Measured { estimate, interval, .. } =
                    Measured::of(&find(table, carried, network)?, MBIT_S);
                Some(Mark { x: x as f64, y: estimate, interval: Some(interval) })
            };
            let points = NETWORKS.iter().enumerate().filter_map(mark).collect();
            Series { name: carried.into(), style: Style::nth(n), points }
        });
    Panels {
        title: "A file through links of 20 Mbit/s".to_owned(),
        x: Axis::linear("lossy, clean, failing relay", (-0.5, 2.5), 1.0),
        panels: vec![Panel::new(
            Axis::linear("goodput (Mbit/s)", (0.0, 20.0), 5.0),
            series.collect(),
        )],
        guides: Vec::new(),
    }
}

/// Daemons compared with the kernel's TCP, QUIC and SRT.
pub fn beside() -> Figure {
    let times = |id, says, (carried, other): (&'static str, &'static str), least| Claim {
        unit: "times as fast",
        measure: Box::new(move |t| {
            let [ours, theirs] = [carried, other].map(|carried| live(t, carried));
            ratio(&ours, &theirs)
        }),
        ..Claim::holding(id, says, None, Bound::at_least(least, OWN_TARGET), "")
    };
    let reno = |id, says, carried| Claim {
        expected: Verdict::Fails,
        why: WHY_LESS,
        ..times(id, says, (carried, "tcp-reno"), 2.5)
    };
    let agrees = |id, says, carried: &'static str, sim: &'static str| Claim {
        unit: "of the simulator's",
        measure: Box::new(move |t| {
            let simulated = find(t, sim, LOSSY).map_or_else(nothing, |r| Measured::of(&r, MBIT_S));
            ratio(&live(t, carried), &simulated)
        }),
        ..Claim::holding(id, says, None, Bound::within(0.85, 1.15, BEFORE), "")
    };
    Figure {
        name: "transfer-testbed",
        title: "A file between daemons, and over TCP, QUIC and SRT",
        section: "beyond",
        caption: "64 MiB through three links of 10 ms and 20 Mbit/s, the middle one of which loses 1 \
               % in both directions, in network namespaces: over a stream of `trunkline node` \
               daemons, sealed and not, and from end to end through routers over the kernel's TCP \
               (reno, cubic and bbr), over QUIC (quinn, NewReno and CUBIC) and over SRT in file \
               mode (`srt-file-transmit`), three at a time. Then 1 GiB over a ring of lossless \
               links of 40 Mbit/s, on which the relay of the shorter path is killed five times, so \
               that the route changes.",
        chart: Box::new(live_panels),
        claims: vec![
            reno(
                "reno",
                "a stream between daemons is at least 2.5 times as fast as the kernel's TCP with reno",
                STREAM,
            ),
            reno(
                "reno-sealed",
                "a sealed stream between daemons is at least 2.5 times as fast as the kernel's TCP with \
                 reno",
                SEALED,
            ),
            times(
                "quic",
                "a stream between daemons is at least as fast as QUIC with NewReno",
                (STREAM, "quic-newreno"),
                1.0,
            ),
            agrees(
                "stream-as-simulated",
                "a stream between daemons is as fast as in the simulator within 15 %",
                STREAM,
                STREAM,
            ),
            agrees(
                "reno-as-simulated",
                "the kernel's TCP with reno is as fast as the simulator's within 15 %",
                "tcp-reno",
                TCPS[1],
            ),
        ].into_iter().chain(live_content()).collect(),
    }
}

/// The claims that files arrive intact between daemons and by the other transports.
fn live_content() -> Vec<Claim> {
    vec![
        Claim {
            unit: "failures",
            decimals: 0,
            measure: Box::new(move |t| {
                let all = t.iter().filter(|r| r.is("where", PLACES[1]));
                let all = all.filter(|r| r.is("network", FAILING));
                Measured::minimum(all.map(|r| Measured::census(r.number("kills"))))
            }),
            ..Claim::holding(
                "killed",
                "the relay was killed five times during each transfer",
                None,
                Bound::at_least(f64::from(KILLS), "as often as scheduled"),
                "",
            )
        },
        Claim {
            unit: "bytes",
            decimals: 0,
            measure: Box::new(move |t| {
                let all = t.iter().filter(|r| r.is("where", PLACES[1]));
                Measured::maximum(all.map(|r| Measured::census(r.number("astray"))))
            }),
            ..Claim::holding(
                "whole",
                "the received file has the SHA-256 of the sent one, over every transport",
                None,
                Bound::at_most(0.0, BEFORE),
                "",
            )
        },
    ]
}

/// Goodput of a transport between real programs.
fn live(table: &Table, carried: &str) -> Measured {
    find_at(table, PLACES[1], carried, LOSSY).map_or_else(nothing, |r| Measured::of(&r, MBIT_S))
}

fn live_panels(table: &Table) -> Panels {
    let series = testbed::names().into_iter().enumerate().map(|(n, carried)| {
        let Measured { estimate, interval, .. } = live(table, &carried);
        let mark = Mark { x: n as f64, y: estimate, interval: Some(interval) };
        let points = if estimate.is_nan() { Vec::new() } else { vec![mark] };
        Series { name: carried, style: Style::nth(n), points }
    });
    Panels {
        title: "A file through links of 20 Mbit/s, 1 % lost".to_owned(),
        x: Axis::linear(
            "stream, sealed; TCP reno, cubic; QUIC NewReno, CUBIC; TCP bbr; SRT",
            (-0.5, 7.5),
            1.0,
        ),
        panels: vec![Panel::new(
            Axis::linear("goodput (Mbit/s)", (0.0, 20.0), 5.0),
            series.collect(),
        )],
        guides: Vec::new(),
    }
}
