//! Figures and claims on how well simulator and testbed agree.

use super::networks::{self, Kind};
use super::{FIGURE, QUANTITIES};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Tolerance};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// The figure that shows the simulator's numbers alone.
pub fn simulated() -> Figure {
    Figure {
        name: FIGURE,
        title: "Calls in six small networks, simulated",
        section: "V-A, V-B, beyond",
        caption: "Sealed nodes with the default settings, or that request each packet once: calls \
               over two lossy links, with losses in bursts, through a slow link, and with a detour \
               when a link is cut or a relay crashes. The share of missed packets, their delays, \
               and the silence in a call: the reference for the testbed.",
        chart: one_panel(|t| against(t, PLACES[0])),
        claims: vec![silent(PLACES[0]), recovered(PLACES[0])],
    }
}

/// The figure that compares the simulator with real daemons.
pub fn beside() -> Figure {
    let mut claims: Vec<Claim> = QUANTITIES.iter().map(|q| agrees(q.name)).collect();
    claims.extend([silent(PLACES[1]), recovered(PLACES[1])]);
    Figure {
        name: "agreement-testbed",
        title: "The simulator's numbers compared with those of real daemons",
        section: "V-A, V-B, beyond",
        caption: "The same scenarios with a `trunkline node` for each host, in network namespaces \
               connected by `trunkline impair --hosts`: missed packets (%), median and p99 of \
               delays (ms), and silence in a call (ms), against the simulator's. On the line they \
               are equal.",
        chart: one_panel(|t| against(t, PLACES[1])),
        claims,
    }
}

/// The mean in a row, with its confidence interval.
fn mean(r: &Record<'_>) -> Measured {
    Measured::of(r, ["mean", "low", "high"])
}

fn find<'a>(table: &'a Table, at: &str, network: &str, quantity: &str) -> Option<Record<'a>> {
    let is_it = |r: &Record<'_>| {
        r.is("where", at) && r.is("network", network) && r.is("quantity", quantity)
    };
    table.iter().find(is_it)
}

/// Names of the networks in which a quantity is measured.
fn networks_of(quantity: &str) -> impl Iterator<Item = &'static str> {
    let kind = QUANTITIES.iter().find(|q| q.name == quantity).map(|q| q.kind);
    networks::ALL.iter().filter(move |n| Some(n.kind) == kind).map(|n| n.name)
}

const RANGE: (f64, f64) = (0.01, 2_000.0);

/// Chart of the numbers measured in `at` against the simulator's.
fn against(table: &Table, at: &str) -> Chart {
    let one = |(n, quantity): (usize, &super::Quantity)| {
        let mark = |network| {
            let sim = find(table, PLACES[0], network, quantity.name)?;
            let here = find(table, at, network, quantity.name)?;
            let Measured { estimate, interval, .. } = mean(&here);
            let interval = (interval.0.max(RANGE.0), interval.1);
            Some(Mark {
                x: sim.number("mean").max(RANGE.0),
                y: estimate.max(RANGE.0),
                interval: (interval.0 < interval.1).then_some(interval),
            })
        };
        Series {
            name: format!("{} ({})", quantity.name, quantity.unit),
            style: Style::nth(n),
            points: networks_of(quantity.name).filter_map(mark).collect(),
        }
    };
    let mut series: Vec<Series> = QUANTITIES.iter().enumerate().map(one).collect();
    let points = [RANGE.0, RANGE.1].map(|x| Mark { x, y: x, interval: None });
    series.push(Series { name: "the same".into(), style: Style::CURVE, points: points.into() });
    Chart {
        title: "Sealed nodes in six networks".to_owned(),
        x: Axis::log("simulator", RANGE),
        y: Axis::log(at, RANGE),
        series,
    }
}

/// Difference allowed between the testbed's number and the simulator's, in the quantity's unit.
fn allowed(quantity: &str) -> Tolerance {
    match quantity {
        "missed" => Tolerance::MISSED_PCT,
        "silence" => Tolerance { share: 0.15, least: 50.0 },
        _ => Tolerance { share: 0.05, least: 1.0 },
    }
}

/// The claim that the testbed agrees with the simulator on a quantity. The bounds were set before
/// the first measurement.
fn agrees(quantity: &'static str) -> Claim {
    let (id, says, why) = match quantity {
        "missed" => (
            "missed",
            "the share of missed packets is that of the simulator, in each of four networks",
            "15 % or 0.1 percentage points, whichever is larger; set before the first measurement",
        ),
        "silence" => (
            "silence",
            "the silence in calls after a cut and after a crash is that of the simulator",
            "15 % or 50 ms, whichever is larger; set before the first measurement",
        ),
        "median delay" => (
            "median-delay",
            "the median delay is that of the simulator, in each of four networks",
            "5 % or 1 ms, whichever is larger; set before the first measurement",
        ),
        _ => (
            "p99-delay",
            "the p99 of delays is that of the simulator, in each of four networks",
            "5 % or 1 ms, whichever is larger; set before the first measurement",
        ),
    };
    Claim {
        id,
        statement: says,
        published: None,
        bound: Bound::at_most(1.0, why),
        unit: "of the allowed difference",
        measure: Box::new(move |t| {
            let one = |network: &str| {
                let both = PLACES.map(|at| find(t, at, network, quantity).map(|r| mean(&r)));
                let [Some(sim), Some(live)] = both else {
                    return (Measured::census(f64::NAN), String::new());
                };
                let said = format!("{network}: {:.3}, {:.3}", sim.estimate, live.estimate);
                (allowed(quantity).apart(&sim, &live), said)
            };
            let all: Vec<_> = networks_of(quantity).map(one).collect();
            let said: Vec<&str> = all.iter().map(|(_, said)| said.as_str()).collect();
            let note = format!("Simulator, testbed: {}.", said.join("; "));
            Measured::maximum(all.iter().map(|(apart, _)| apart.clone())).noting(note)
        }),
        why: match quantity {
            "p99 delay" => {
                "On an otherwise idle machine. Where callers are occasionally late by a \
                 millisecond or two, packets then arrive together, and queue 2 ms longer at the \
                 link, which is seven-eighths utilised."
            }
            _ => "",
        },
        sabotage: match quantity {
            "silence" => "paper-hellos",
            "median delay" => "",
            _ => "no-recovery",
        },
        ..Claim::default()
    }
}

fn silent(at: &'static str) -> Claim {
    Claim {
        id: if at == PLACES[0] { "soon" } else { "soon-testbed" },
        statement: "after a cut or a crash a call is silent for at most 1.2 s on average",
        published: None,
        bound: Bound::at_most(1_200.0, OWN_TARGET),
        unit: "ms",
        decimals: 0,
        measure: Box::new(move |t| of_worst(t, at, Kind::Failing, "silence")),
        sabotage: "paper-hellos",
        ..Claim::default()
    }
}

fn recovered(at: &'static str) -> Claim {
    Claim {
        id: if at == PLACES[0] { "recovered" } else { "recovered-testbed" },
        statement: "with links that lose 5 %, independently or in bursts, less than 1.5 % is missed",
        published: None,
        bound: Bound::below(1.5, OWN_TARGET),
        unit: "%",
        measure: Box::new(move |t| of_worst(t, at, Kind::Lossy, "missed")),
        sabotage: "no-recovery",
        ..Claim::default()
    }
}

/// The largest mean of a quantity, over all networks of this kind.
fn of_worst(t: &Table, at: &str, kind: Kind, quantity: &str) -> Measured {
    let here = networks::ALL.iter().filter(|n| n.kind == kind);
    let one = |network: &networks::Network| {
        find(t, at, network.name, quantity).map_or(Measured::census(f64::NAN), |r| mean(&r))
    };
    Measured::maximum(here.map(one))
}

#[cfg(test)]
mod tests {
    use super::super::{COLUMNS, rows};
    use super::*;
    use crate::claim::Verdict;
    use crate::output::judge;
    use crate::table::print;

    /// Number of packets of a run.
    const PACKETS: f64 = 1e6;

    /// A table in which each quantity has one value in the simulator and another with daemons, in
    /// eight runs each.
    fn table(simulator: f64, daemons: f64, valid: bool) -> Table {
        let of = |at, number, valid| {
            rows(at, |_, quantity| match quantity {
                // At most half of them.
                "missed" => {
                    let missed = if number > 100.0 { number / 2e3 } else { number / 1e2 };
                    ([PACKETS, missed * PACKETS, 0.0].repeat(8), valid)
                }
                _ => (vec![number; 8], valid),
            })
        };
        let cells = [of(PLACES[0], simulator, true), of(PLACES[1], daemons, valid)].concat();
        Table { columns: COLUMNS, rows: cells.into_iter().map(|row| print(COLUMNS, row)).collect() }
    }

    #[test]
    fn the_testbeds_claims_can_fail() {
        let verdicts = |table: &Table| {
            let claims = beside().claims;
            let verdict = |claim: &Claim| (claim.id, judge(claim, table).verdict);
            let all = claims.iter().map(verdict).filter(|(_, v)| *v != Verdict::Holds);
            all.collect::<Vec<_>>()
        };
        let fails =
            |ids: &[&'static str]| ids.iter().map(|id| (*id, Verdict::Fails)).collect::<Vec<_>>();
        assert_eq!(verdicts(&table(1.0, 1.1, true)), []);
        let apart = fails(&["missed", "median-delay", "p99-delay", "recovered-testbed"]);
        assert_eq!(verdicts(&table(1.0, 2.1, true)), apart);
        let late = fails(&[
            "missed",
            "median-delay",
            "p99-delay",
            "silence",
            "soon-testbed",
            "recovered-testbed",
        ]);
        assert_eq!(verdicts(&table(1_000.0, 1_250.0, true)), late);
        // Results of a machine that did not keep up are never decisive.
        assert!(verdicts(&table(1.0, 1.1, false)).iter().all(|(_, v)| *v == Verdict::Undecided));
        let none = Table { rows: Vec::new(), ..table(1.0, 1.0, true) };
        assert_eq!(verdicts(&none).len(), beside().claims.len());
    }
}
