//! Figures and claims on calls that share a link with a TCP.

use super::{ALL, FIGURE};
use crate::beyond::means;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET};
use crate::experiment::Figure;
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// The figure that shows the simulator's numbers alone.
pub fn simulated() -> Figure {
    Figure {
        name: FIGURE,
        title: "A TCP with 200 calls of the overlay",
        section: "5.4, beyond",
        caption: "The competition of Trad & Afifi 2003 with the overlay's nodes: 200 G.729 calls \
               between two sealed nodes, and a TCP (Linux's reno, limited only by the receiver's \
               window), over one bottleneck of 10 Mbit/s and 10 ms with a drop-tail queue of 50 \
               packets. From left to right: no calls; plain UDP without the overlay, the paper's \
               60 bytes a packet over IPv4, with which the others are compared; each packet alone \
               over the overlay (`multiplex = \"off\"`), whose headers and seal make 104 bytes of \
               them; all packets that arrive within 2 ms together (`\"fill\"`); as many as TFMC \
               chooses (`\"tfmc\"`). Throughput behind the bottleneck, with all headers.",
        chart: Box::new(|t| panels(t, &PLACES[..1])),
        claims: of_place(PLACES[0]),
    }
}

/// The figure that compares the simulator with daemons and the kernel's TCP.
pub fn beside() -> Figure {
    let mut claims: Vec<Claim> = ["tcp_mbit_s", "voice_mbit_s", "missed_pct"].map(agrees).into();
    claims.extend(of_place(PLACES[1]));
    Figure {
        name: "trunk-tcp-testbed",
        title: "The kernel's TCP with 200 calls between two daemons",
        section: "5.4, beyond",
        caption: "The same with daemons, and the kernel's reno between two further hosts, over the \
               same modelled network in real time.",
        chart: Box::new(|t| panels(t, &PLACES)),
        claims,
    }
}

fn find<'a>(table: &'a Table, at: &str, carried: &str) -> Option<Record<'a>> {
    table.iter().find(|r| r.is("where", at) && r.is("calls", carried))
}

fn value(table: &Table, at: &str, carried: &str, quantity: &str) -> Measured {
    find(table, at, carried).map_or_else(|| Measured::census(f64::NAN), |r| means::of(&r, quantity))
}

fn panels(table: &Table, places: &[&str]) -> Panels {
    let series = |n: usize, at: &str, name: &str, quantity: &str| {
        let mark = |(x, carried): (f64, &super::TrunkMode)| {
            let m = means::of(&find(table, at, carried.name)?, quantity);
            Some(Mark {
                x,
                y: m.estimate,
                interval: (m.interval.0 < m.interval.1).then_some(m.interval),
            })
        };
        let points = (1..).map(f64::from).zip(&ALL).filter_map(mark).collect();
        Series { name: format!("{name}{at}"), style: Style::nth(n), points }
    };
    let panel = |label: &str, shown: &[(&str, &str)]| {
        let each = places.iter().flat_map(|at| shown.iter().map(move |s| (*at, *s)));
        let all: Vec<Series> =
            each.enumerate().map(|(n, (at, (name, q)))| series(n, at, name, q)).collect();
        let values: Vec<f64> = all.iter().flat_map(|s| s.points.iter().map(|p| p.y)).collect();
        Panel::new(Axis::fitting(label, 0.0, values.into_iter().chain([1.0])), all)
    };
    Panels {
        title: "A TCP with 200 calls".into(),
        x: Axis::linear("none, udp, off, fill, tfmc", (0.5, 5.5), 1.0),
        panels: vec![
            panel("Mbit/s", &[("TCP, ", "tcp_mbit_s"), ("calls, ", "voice_mbit_s")]),
            panel("missed (%)", &[("", "missed_pct")]),
            panel("p99 delay (ms)", &[("", "delay_p99_ms")]),
        ],
        guides: Vec::new(),
    }
}

fn tcp(table: &Table, at: &str, carried: &str) -> Measured {
    value(table, at, carried, "tcp_mbit_s")
}

fn offered(table: &Table, at: &str, carried: &str) -> Measured {
    value(table, at, carried, "offered_mbit_s")
}

fn voice(table: &Table, at: &str, carried: &str) -> Measured {
    value(table, at, carried, "voice_mbit_s")
}

/// The claims on the simulator or the testbed.
fn of_place(at: &'static str) -> Vec<Claim> {
    papers(at).into_iter().chain(own(at)).collect()
}

/// A claim that the sabotage breaks by removing the trunk; with daemons there is none, as they
/// would have to be broken.
fn claim(at: &str, id: &'static str, says: &'static str, bound: Bound) -> Claim {
    let sabotage = if at == PLACES[0] { "no-trunk" } else { "" };
    Claim { unit: "Mbit/s", ..Claim::holding(id, says, None, bound, sabotage) }
}

/// The TFMC paper's statements on figures 6 and 7, in another set-up: the sentences themselves are
/// judged in [`crate::tfmc`].
fn papers(at: &'static str) -> [Claim; 4] {
    let without_calls = if at == PLACES[0] { "no-calls" } else { "" };
    [
        Claim {
            measure: Box::new(move |t| {
                tcp(t, at, "udp").times(100.0 / tcp(t, at, "none").estimate)
            }),
            sabotage: without_calls,
            unit: "% of its throughput alone",
            decimals: 1,
            ..claim(
                at,
                "tcp-falls",
                "with calls over plain UDP the TCP has at most half of its throughput alone",
                Bound::at_most(
                    50.0,
                    "a dramatic decrease is interpreted as half or more, as for \
                                      fig6",
                ),
            )
        },
        Claim {
            measure: Box::new(move |t| tcp(t, at, "tfmc")),
            ..claim(
                at,
                "tcp-over-5",
                "with TFMC the TCP has more than 5 Mbit/s",
                Bound::above(5.0, "the paper's number"),
            )
        },
        Claim {
            measure: Box::new(move |t| tcp(t, at, "tfmc").minus(&voice(t, at, "tfmc"))),
            ..claim(
                at,
                "voice-below-tcp",
                "with TFMC the calls have less than the TCP",
                Bound::above(0.0, "the TCP's throughput minus the calls'"),
            )
        },
        Claim {
            sabotage: if at == PLACES[0] { "swapped" } else { "" },
            measure: Box::new(move |t| offered(t, at, "udp").minus(&offered(t, at, "tfmc"))),
            ..claim(
                at,
                "less-bandwidth",
                "with TFMC the calls need less than over plain UDP",
                Bound::above(0.0, "offered over plain UDP minus with TFMC: what is required"),
            )
        },
    ]
}

/// Further claims on the trunk.
fn own(at: &'static str) -> [Claim; 3] {
    [
        Claim {
            measure: Box::new(move |t| tcp(t, at, "fill")),
            ..claim(
                at,
                "tcp-over-5-fill",
                "with a full trunk (`fill`), too, the TCP has more than 5 Mbit/s",
                Bound::above(5.0, "the paper's number, for TFMC"),
            )
        },
        Claim {
            measure: Box::new(move |t| value(t, at, "fill", "missed_pct")),
            unit: "%",
            ..claim(
                at,
                "heard-fill",
                "in a full trunk less than 1 % of the calls' packets is missed with the TCP",
                Bound::below(1.0, OWN_TARGET),
            )
        },
        Claim {
            measure: Box::new(move |t| value(t, at, "tfmc", "missed_pct")),
            unit: "%",
            ..claim(
                at,
                "heard-tfmc",
                "with TFMC less than 1 % of the calls' packets is missed with the TCP",
                Bound::below(1.0, OWN_TARGET),
            )
        },
    ]
}

/// The claim that the testbed agrees with the simulator on a quantity. The bounds were set before
/// the first measurement.
fn agrees(quantity: &'static str) -> Claim {
    let (id, says, why, allowed) = match quantity {
        "tcp_mbit_s" => (
            "tcp-agrees",
            "the kernel's TCP has the throughput of the simulated one, with calls and alone",
            "10 % or 0.1 Mbit/s, whichever is larger; set before the first measurement",
            (0.1, 0.1),
        ),
        "voice_mbit_s" => (
            "voice-agrees",
            "the daemons' calls have the throughput of the simulated ones",
            "10 %: set before the first measurement",
            (0.1, 0.0),
        ),
        _ => (
            "missed-agrees",
            "the share of missed packets of the daemons' calls is that of the simulated ones",
            "15 % or 0.1 percentage points, whichever is larger; set before the first measurement",
            (0.15, 0.1),
        ),
    };
    // Without calls, no packet can be missed.
    let ways = if quantity == "tcp_mbit_s" { &ALL[..] } else { &ALL[1..] };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(1.0, why),
        unit: "of the allowed difference",
        measure: Box::new(move |t| {
            let pair = |carried: &super::TrunkMode| {
                let [sim, live] = PLACES.map(|at| value(t, at, carried.name, quantity));
                (carried.name.to_owned(), sim, live)
            };
            means::apart(ways.iter().map(pair), allowed)
        }),
        sabotage: "no-trunk",
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COLUMNS, Run, row};
    use super::*;
    use crate::claim::Verdict;
    use crate::output::judge;
    use crate::table::print;

    /// A table in which TCP and calls have these Mbit/s and the calls miss this percentage, however
    /// they are carried, by place.
    fn table(simulator: [f64; 3], testbed: [f64; 3]) -> Table {
        let rows = |at: &'static str, [tcp, voice, missed]: [f64; 3]| {
            let run: Run = [tcp, voice, voice, missed, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0];
            ALL.map(|carried| row(at, carried, &[run; 4], true))
        };
        let cells = [rows(PLACES[0], simulator), rows(PLACES[1], testbed)].concat();
        Table { columns: COLUMNS, rows: cells.into_iter().map(|row| print(COLUMNS, row)).collect() }
    }

    #[test]
    fn the_testbeds_claims_can_fail() {
        let failing = |simulator, testbed| {
            let table = table(simulator, testbed);
            let claims = beside().claims;
            let ids = claims.iter().filter(|c| judge(c, &table).verdict == Verdict::Fails);
            ids.map(|c| c.id).collect::<Vec<_>>()
        };
        // All kinds of transport give the same result, which contradicts two claims.
        let same = ["tcp-falls", "less-bandwidth"];
        assert_eq!(failing([6.0, 4.0, 0.5], [6.0, 4.0, 0.5]), same);
        let apart = ["tcp-agrees", "voice-agrees", "missed-agrees"];
        let starved =
            ["voice-below-tcp", "tcp-over-5", "tcp-over-5-fill", "heard-fill", "heard-tfmc"];
        let failed = failing([6.0, 4.0, 0.5], [4.0, 6.0, 2.0]);
        assert!(apart.iter().chain(&starved).all(|id| failed.contains(id)), "{failed:?}");
    }
}
