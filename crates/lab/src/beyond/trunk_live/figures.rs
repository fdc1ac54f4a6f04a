//! Figures and claims on calls over a link that is too slow for them without a trunk.

use super::{ALONE, CALLS, COMPARED, FIGURE, LOSSES, PER_SECOND, Params, testbed};
use crate::beyond::means;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::{Figure, Size};
use crate::plot::{Axis, Guide, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// The figure that shows the simulator's numbers alone.
pub fn simulated() -> Figure {
    Figure {
        name: FIGURE,
        title: "500 calls over a link with the capacity for them as plain UDP",
        section: "beyond",
        caption: "500 G.729 calls (20 bytes of speech, 12 of RTP, 50 packets a second, spread over 20 \
               ms) from one sealed node to another, over a link of 20 ms with exactly the rate \
               that they would take as plain UDP over IPv6, 80 bytes each, and a queue of 100 \
               packets: each packet alone, and in a trunk (`multiplex = \"fill\"`, 2 ms), without \
               loss and with 1 %. The link's model counts the offered load, including hellos and \
               retransmissions. R is the E-model's at 120 ms for G.729A, with the missed packets \
               taken as random losses.",
        chart: Box::new(|t| panels(t, &PLACES[..1], CALLS)),
        claims: own(PLACES[0], CALLS),
    }
}

/// The figure that compares the simulator with daemons.
pub fn beside() -> Figure {
    let mut claims: Vec<Claim> =
        ["packets_s", "bytes_per_packet", "missed_pct", "delay_p99_ms"].map(agrees).into();
    claims.extend(own(PLACES[1], testbed::CALLS));
    Figure {
        name: "trunk-live-testbed",
        title: "A hundred of these calls between two daemons",
        section: "beyond",
        caption: "A hundred such calls, over a link with the capacity for them, with a `trunkline \
               node` at each end of the link, which `trunkline impair --hosts` models, and the \
               processor usage of each daemon. Two processors fall behind with 500 calls without a \
               trunk.",
        chart: Box::new(|t| panels(t, &PLACES, testbed::CALLS)),
        claims,
    }
}

fn find<'a>(table: &'a Table, at: &str, place: &Params) -> Option<Record<'a>> {
    table.iter().find(|r| {
        r.is("where", at)
            && r.is("trunk", place.name())
            && r.number("loss_pct") == place.loss
            && r.number("calls") == f64::from(place.calls)
    })
}

/// Value of a quantity at a place.
fn value(table: &Table, at: &str, place: &Params, quantity: &str) -> Measured {
    find(table, at, place).map_or_else(none, |r| means::of(&r, quantity))
}

fn none() -> Measured {
    Measured::census(f64::NAN)
}

fn panels(table: &Table, places: &[&str], calls: u32) -> Panels {
    let series = |quantity: &str| -> Vec<Series> {
        let each = places.iter().flat_map(|&at| [false, true].map(|has_trunk| (at, has_trunk)));
        let one = |(n, (at, has_trunk)): (usize, (&str, bool))| {
            let mark = |&loss: &f64| {
                let r = find(table, at, &Params { has_trunk, loss, calls })?;
                let y = r.number(quantity);
                let interval =
                    COMPARED.contains(&quantity).then(|| means::of(&r, quantity).interval);
                Some(Mark { x: loss, y, interval: interval.filter(|i| i.0 < i.1) })
            };
            let name = format!("{}, {at}", if has_trunk { "trunk" } else { "no trunk" });
            let points = LOSSES.iter().filter_map(mark).collect();
            Series { name, style: Style::nth(n), points }
        };
        each.enumerate().map(one).collect()
    };
    let panel = |label: &str, quantity: &str| {
        let series = series(quantity);
        let values = series.iter().flat_map(|s| s.points.iter().map(|p| p.y));
        Panel::new(Axis::fitting(label, 0.0, values.chain([1.0])), series)
    };
    let rate = 1e-6 * Params { has_trunk: false, loss: 0.0, calls }.rate() as f64;
    let mut load = panel("offered (Mbit/s)", "mbit_s");
    load.guides.push(Guide { at: rate, label: "the link's rate".into() });
    let mut all = vec![load, panel("packets/s", "packets_s"), panel("missed (%)", "missed_pct")];
    all.push(panel("R", "r"));
    if places.contains(&PLACES[1]) {
        all.push(panel("sender's CPU (%)", "cpu_a_pct"));
        all.push(panel("receiver's CPU (%)", "cpu_b_pct"));
    }
    Panels {
        title: format!("{calls} calls of G.729"),
        x: Axis::linear("loss (%)", (-0.1, 1.1), 0.5),
        panels: all,
        guides: Vec::new(),
    }
}

/// The claims on what a trunk must achieve for this many calls.
fn own(at: &'static str, calls: u32) -> Vec<Claim> {
    fits(at, calls).into_iter().chain(costs(at, calls)).collect()
}

/// A claim that the sabotage breaks by removing the trunk; with daemons there is none, as they
/// would have to be broken.
fn claim(at: &str, id: &'static str, says: &'static str, bound: Bound) -> Claim {
    Claim {
        id,
        statement: says,
        published: None,
        bound,
        unit: "%",
        measure: Box::new(|_| none()),
        sabotage: if at == PLACES[0] { "no-trunk" } else { "" },
        ..Claim::default()
    }
}

/// The claims on what listeners receive.
fn fits(at: &'static str, calls: u32) -> [Claim; 4] {
    let of = move |t: &Table, has_trunk, loss, quantity: &str| {
        value(t, at, &Params { has_trunk, loss, calls }, quantity)
    };
    let too_much = Claim {
        measure: Box::new(move |t| of(t, false, 0.0, "missed_pct")),
        sabotage: if at == PLACES[0] { "twice-the-rate" } else { "" },
        ..claim(
            at,
            "too-much-alone",
            "without a trunk the calls don't fit: at least a quarter of the packets is missed",
            Bound::at_least(
                25.0,
                "a packet has 124 bytes and the link capacity for 80: 35 % don't \
                                   fit",
            ),
        )
    };
    let in_time = Claim {
        measure: Box::new(move |t| of(t, true, 0.0, "delay_p99_ms")),
        unit: "ms",
        ..claim(
            at,
            "in-time",
            "without loss 99 % of the packets in a trunk take at most 25 ms",
            Bound::at_most(25.0, "20 ms of the link, 2 ms of the trunk's wait, and 3 ms more"),
        )
    };
    [
        too_much,
        in_time,
        Claim {
            measure: Box::new(move |t| {
                Measured::maximum(LOSSES.map(|loss| of(t, true, loss, "missed_pct")))
            }),
            ..claim(
                at,
                "fits-in-a-trunk",
                "in a trunk less than 0.1 % of the packets is missed, with loss and without",
                Bound::below(0.1, OWN_TARGET),
            )
        },
        Claim {
            measure: Box::new(move |t| {
                Measured::minimum(LOSSES.map(|loss| of(t, true, loss, "r")))
            }),
            unit: "",
            ..claim(
                at,
                "sounds-well",
                "in a trunk the calls have an R of at least 70",
                Bound::at_least(70.0, "`some users dissatisfied` or better by G.107 Annex B"),
            )
        },
    ]
}

/// The claims on what a trunk saves on the link. The packets in a trunk are measured, with hellos
/// and retransmissions. Packets alone are computed without either: in a simulation the link would be
/// overloaded, and retransmissions would flatter the trunk.
fn costs(at: &'static str, calls: u32) -> [Claim; 2] {
    let share = move |t: &Table, quantity: &str, alone: f64| {
        let with = |loss| value(t, at, &Params { has_trunk: true, loss, calls }, quantity);
        Measured::maximum(LOSSES.map(|loss| with(loss).times(100.0 / alone)))
    };
    let packets_s = f64::from(calls) * PER_SECOND;
    [
        Claim {
            measure: Box::new(move |t| share(t, "packets_s", packets_s)),
            unit: "% of the calls' packets",
            // One datagram leaves every 2 ms: with a hundred calls that equals the bound.
            expected: if calls > testbed::CALLS { Verdict::Holds } else { Verdict::Undecided },
            why: if calls > testbed::CALLS {
                ""
            } else {
                "A trunk that waits for 2 ms sends 500 packets a second, and a hundred calls 5,000."
            },
            ..claim(
                at,
                "fewer-packets",
                "a trunk offers the link at most a tenth as many packets as the calls have",
                Bound::at_most(10.0, "this project's own target; 44 calls' packets fit in one"),
            )
        },
        Claim {
            measure: Box::new(move |t| share(t, "bytes_per_packet", ALONE as f64)),
            unit: "% of each packet alone",
            ..claim(
                at,
                "fewer-bytes",
                "a trunk offers the link at most half of the bytes of packets sent alone",
                Bound::at_most(50.0, OWN_TARGET),
            )
        },
    ]
}

/// The claim that the testbed agrees with the simulator on a quantity. The bounds were set before
/// the first measurement.
fn agrees(quantity: &'static str) -> Claim {
    let (id, says, why, allowed) = match quantity {
        "packets_s" => (
            "packets",
            "the daemons offer the link as many packets as the simulated nodes",
            "5 %: set before the first measurement",
            (0.05, 0.0),
        ),
        "bytes_per_packet" => (
            "bytes",
            "the daemons offer the link as many bytes as the simulated nodes",
            "5 %: set before the first measurement",
            (0.05, 0.0),
        ),
        "missed_pct" => (
            "missed",
            "the share of missed packets between the daemons is that of the simulator",
            "15 % or 0.1 percentage points, whichever is larger; set before the first measurement",
            (0.15, 0.1),
        ),
        _ => (
            "p99-delay",
            "the p99 of delays between the daemons is that of the simulator",
            "5 % or 1 ms, whichever is larger; set before the first measurement",
            (0.05, 1.0),
        ),
    };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(1.0, why),
        unit: "of the allowed difference",
        measure: Box::new(move |t| {
            let pair = |place: Params| {
                let [sim, live] = PLACES.map(|at| value(t, at, &place, quantity));
                (place.key(), sim, live)
            };
            means::apart(Params::all(Size::Full, testbed::CALLS).map(pair), allowed)
        }),
        expected: if id == "p99-delay" { Verdict::Undecided } else { Verdict::Holds },
        why: match id {
            "p99-delay" => {
                "At 1 % loss the 99th percentile is on the edge between packets that arrived at \
                 once, after 23 ms, and retransmitted ones, after 63."
            }
            _ => "",
        },
        sabotage: "no-trunk",
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COLUMNS, Run, row};
    use super::*;
    use crate::output::judge;
    use crate::table::print;

    /// Plausible values without a trunk and with one: packets/s, bytes, missed, R, p99, and the
    /// rest.
    fn plausible(place: &Params) -> Run {
        let [packets, bytes, missed, r, p99] = match place.has_trunk {
            false => [5_000.0, ALONE as f64, 36.0, 23.0, 27.0],
            true => [500.0, 41.0, 0.01, 79.0, 23.0],
        };
        [packets, bytes, missed, r, p99, 8.0, 0.0, 50.0, 50.0, 80.0, 0.0]
    }

    /// A table with the simulator's rows and the testbed's, in which `differ` changes the testbed's
    /// runs.
    fn table(differ: fn(Run) -> Run, valid: bool) -> Table {
        let rows = |at: &'static str, valid, differ: fn(Run) -> Run| {
            let one = move |place: Params| row(at, &place, &[differ(plausible(&place)); 4], valid);
            Params::all(Size::Full, testbed::CALLS).map(one).collect::<Vec<_>>()
        };
        let cells = [rows(PLACES[0], true, |run| run), rows(PLACES[1], valid, differ)].concat();
        Table { columns: COLUMNS, rows: cells.into_iter().map(|row| print(COLUMNS, row)).collect() }
    }

    #[test]
    fn the_testbeds_claims_can_fail() {
        let failing = |differ, valid, verdict| {
            let table = table(differ, valid);
            let claims = beside().claims;
            let ids = claims.iter().filter(|c| judge(c, &table).verdict == verdict).map(|c| c.id);
            ids.collect::<Vec<_>>()
        };
        assert_eq!(failing(|run| run, true, Verdict::Fails), [""; 0]);
        let slower = |run: Run| run.map(|number| 1.2 * number);
        let apart = ["packets", "bytes", "missed", "p99-delay", "in-time", "fewer-packets"];
        assert_eq!(failing(slower, true, Verdict::Fails), apart);
        // As if there were no trunk.
        let bad = |_: Run| plausible(&Params { has_trunk: false, loss: 0.0, calls: 1 });
        let own = ["in-time", "fits-in-a-trunk", "sounds-well", "fewer-packets", "fewer-bytes"];
        let failed = failing(bad, true, Verdict::Fails);
        assert!(own.iter().all(|id| failed.contains(id)), "{failed:?}");
        // Results of a machine that did not keep up are never decisive.
        assert_eq!(failing(|run| run, false, Verdict::Holds), [""; 0]);
    }
}
