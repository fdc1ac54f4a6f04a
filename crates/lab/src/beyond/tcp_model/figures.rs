//! Figures and claims on the goodput of a TCP connection over a single link.

use super::{FIGURE, HEAVY, KERNELS, LOSSES, SIMULATED};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};
use crate::testbed::PLACES;

/// The figure that shows the simulated TCP alone.
pub fn simulated() -> Figure {
    Figure {
        name: FIGURE,
        title: "Goodput of the simulated TCP over a single link",
        section: "beyond",
        caption: "Linux's TCP as simulated (reno, selective acknowledgments, RACK-TLP), alone on \
               links of 1, 10 and 100 Mbit/s with round trips of 10, 50 and 200 ms that lose none, \
               0.1 and 1 % of the packets, and of 10 Mbit/s that lose 3 and 5 %, with a queue of \
               the bandwidth-delay product: goodput against what the rate and the square-root law \
               allow.",
        chart: one_panel(over_expected),
        claims: vec![full(PLACES[0], SIMULATED), law()],
    }
}

/// The figure that compares this kernel's TCP with the simulated one.
pub fn beside() -> Figure {
    let mut claims: Vec<Claim> = KERNELS.map(|tcp| full(PLACES[1], tcp)).into();
    claims.push(agrees());
    claims.push(agrees_at_heavy_loss());
    Figure {
        name: "tcp-model-testbed",
        title: "Goodput of this kernel's TCP, compared with the simulated one",
        section: "beyond",
        caption: "The same links with `trunkline impair --hosts`, and iperf3 between two hosts for \
               each: the kernel's reno, cubic and bbr against the simulated TCP, which models \
               reno. Between the dashed lines they differ by at most 10 %.",
        chart: one_panel(against),
        claims,
    }
}

fn of<'a>(table: &'a Table, at: &str, tcp: &str) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("where", at) && r.is("tcp", tcp))
}

fn goodput(r: &Record<'_>) -> Measured {
    Measured::of(r, ["goodput_mbit_s", "goodput_low_mbit_s", "goodput_high_mbit_s"])
}

/// Goodput that the link's rate and the square-root law allow, in Mbit/s.
fn expected(r: &Record<'_>) -> f64 {
    let law = r.number("law_mbit_s");
    r.number("room_mbit_s").min(if law.is_nan() { f64::INFINITY } else { law })
}

/// The link of a row in words, such as `10 Mbit/s, 50 ms, 0.1 %`.
fn place(r: &Record<'_>) -> String {
    let [rate, rtt, loss] = ["rate_mbit_s", "rtt_ms", "loss_pct"].map(|c| r.text(c));
    format!("{rate} Mbit/s, {rtt} ms, {loss} %")
}

fn mark(x: f64, r: &Record<'_>) -> Mark {
    let Measured { estimate, interval, .. } = goodput(r);
    Mark { x, y: estimate, interval: (interval.0 < interval.1).then_some(interval) }
}

const RANGE: (f64, f64) = (0.3, 200.0);

/// A straight line across the chart, at `times` the value on the horizontal axis.
fn line(name: &str, style: Style, times: f64) -> Series {
    let points = [RANGE.0, RANGE.1].map(|x| Mark { x, y: times * x, interval: None });
    Series { name: name.to_owned(), style, points: points.into() }
}

fn over_expected(table: &Table) -> Chart {
    let one = |(n, loss): (usize, &f64)| {
        let here = of(table, PLACES[0], SIMULATED).filter(|r| r.number("loss_pct") == *loss);
        let points = here.map(|r| mark(expected(&r), &r)).collect();
        Series { name: format!("{loss} % lost"), style: Style::nth(n), points }
    };
    let losses = LOSSES.iter().chain(&HEAVY);
    let mut series: Vec<Series> = losses.enumerate().map(one).collect();
    series.push(line("as much as allowed", Style::CURVE, 1.0));
    Chart {
        title: "The simulated TCP, alone on a link".to_owned(),
        x: Axis::log("allowed by rate and square-root law (Mbit/s)", RANGE),
        y: Axis::log("goodput (Mbit/s)", RANGE),
        series,
    }
}

/// Pairs of rows for the same link: the simulator's, and that of the kernel's `tcp`.
fn pairs<'a>(table: &'a Table, tcp: &str) -> Vec<(Record<'a>, Record<'a>)> {
    let simulated: Vec<_> = of(table, PLACES[0], SIMULATED).collect();
    let pair = |kernel: Record<'a>| {
        let same = simulated.iter().find(|sim| place(sim) == place(&kernel))?;
        Some((*same, kernel))
    };
    of(table, PLACES[1], tcp).filter_map(pair).collect()
}

fn against(table: &Table) -> Chart {
    let one = |(n, tcp): (usize, &str)| {
        let pairs = pairs(table, tcp);
        let points =
            pairs.iter().map(|(sim, kernel)| mark(goodput(sim).estimate, kernel)).collect();
        let style = Style::nth(n);
        Series { name: tcp.to_owned(), style: if n == 0 { style } else { style.pale() }, points }
    };
    let mut series: Vec<Series> = KERNELS.into_iter().enumerate().map(one).collect();
    series.push(line("the same", Style::CURVE, 1.0));
    series.push(line("10 % difference", Style::SECOND_CURVE, 1.1));
    series.push(line("", Style::SECOND_CURVE, 0.9));
    Chart {
        title: "TCP alone on a link".to_owned(),
        x: Axis::log("simulated TCP (Mbit/s)", RANGE),
        y: Axis::log("this kernel's TCP (Mbit/s)", RANGE),
        series,
    }
}

/// The value farthest from zero, with a note that says where it occurs.
fn farthest(values: Vec<(Measured, String)>) -> Measured {
    let note = values
        .iter()
        .max_by(|a, b| a.0.estimate.abs().total_cmp(&b.0.estimate.abs()))
        .map_or(String::new(), |(m, place)| {
            format!("Largest difference: {:+.2} % at {place}.", m.estimate)
        });
    Measured::maximum(values.iter().map(|(m, _)| m.abs())).noting(note)
}

/// Difference between `m` and `than`, in percent of `than`.
fn percent_off(m: &Measured, than: f64) -> Measured {
    let of = |value: f64| 100.0 * (value / than - 1.0);
    Measured::new(of(m.estimate), (of(m.interval.0), of(m.interval.1)))
}

/// The claim that `tcp` uses the full rate of links without loss.
fn full(at: &'static str, tcp: &'static str) -> Claim {
    Claim {
        id: match tcp {
            "reno" => "full-reno",
            "cubic" => "full-cubic",
            "bbr" => "full-bbr",
            _ => "full",
        },
        statement: match tcp {
            "reno" => {
                "without loss the kernel's reno has the goodput that headers leave of the rate, on \
                 every link"
            }
            "cubic" => {
                "without loss the kernel's cubic has the goodput that headers leave of the rate, \
                 on every link"
            }
            "bbr" => {
                "without loss the kernel's bbr has the goodput that headers leave of the rate, on \
                 every link"
            }
            _ => {
                "without loss the simulated TCP has the goodput that headers leave of the rate, on \
                 every link"
            }
        },
        published: None,
        bound: Bound::at_most(1.0, OWN_TARGET),
        unit: "%",
        measure: Box::new(move |t| {
            let here = of(t, at, tcp).filter(|r| r.number("loss_pct") == 0.0);
            let off = |r: Record<'_>| {
                // Without loss, there is almost no variation between runs.
                let mean = Measured::census(goodput(&r).estimate);
                (percent_off(&mean, r.number("room_mbit_s")), place(&r))
            };
            farthest(here.map(off).collect())
        }),
        expected: if tcp == "bbr" { Verdict::Fails } else { Verdict::Holds },
        why: match tcp {
            "bbr" => {
                "It leaves 1 % by design (it paces at 99 % of what it has measured), and every ten \
                 seconds the longer of two round trips and 200 ms, to measure the shortest round \
                 trip."
            }
            _ => "",
        },
        sabotage: "window-of-20",
        ..Claim::default()
    }
}

/// The claim that the simulated TCP follows the square-root law where loss, not the rate,
/// limits its window.
fn law() -> Claim {
    Claim {
        id: "square-root-law",
        statement: "on every link that loses at most 1 %, and where the square-root law allows at \
               most half of the rate, the simulated TCP has the goodput of the law",
        published: None,
        bound: Bound::at_most(
            25.0,
            "the law excludes timeouts, recovery and delayed acknowledgments: 25 %; not at 3 and \
             5 %, where timeouts prevail, nor at 200 ms and 0.1 %, where the beginning of a \
             connection affects most of a minute",
        ),
        unit: "%",
        decimals: 1,
        measure: Box::new(|t| {
            let is_of_loss = |r: &Record<'_>| {
                let is_slow = r.number("rtt_ms") >= 200.0 && r.number("loss_pct") < 1.0;
                let is_limited = r.number("law_mbit_s") <= 0.5 * r.number("room_mbit_s");
                is_limited && !is_slow && !is_heavy(r)
            };
            let here = of(t, PLACES[0], SIMULATED).filter(is_of_loss);
            let off = |r: Record<'_>| {
                let mean = Measured::census(goodput(&r).estimate);
                (percent_off(&mean, r.number("law_mbit_s")), place(&r))
            };
            farthest(here.map(off).collect())
        }),
        sabotage: "acks-counted",
        ..Claim::default()
    }
}

/// Whether the row is of a link with one of the losses in [`HEAVY`].
fn is_heavy(r: &Record<'_>) -> bool {
    r.number("loss_pct") >= HEAVY[0]
}

/// Largest difference between the simulated TCP and the kernel's reno, in percent of the latter,
/// over the links with heavy loss or those without.
fn difference(t: &Table, heavy: bool) -> Measured {
    let mut all = pairs(t, KERNELS[0]);
    all.retain(|(sim, _)| is_heavy(sim) == heavy);
    let wanted = of(t, PLACES[0], SIMULATED).filter(|r| is_heavy(r) == heavy).count();
    // With a link missing, no claim about every link can be decided.
    if all.len() < wanted {
        return Measured::census(f64::NAN);
    }
    let off = |(sim, kernel): &(Record<'_>, Record<'_>)| {
        let (sim, kernel) = (goodput(sim), goodput(kernel));
        sim.minus(&kernel).times(100.0 / kernel.estimate)
    };
    farthest(all.iter().map(|pair| (off(pair), place(&pair.0))).collect())
}

/// The claim that the simulated TCP agrees with the kernel's reno. The bound was set before the
/// first measurement.
fn agrees() -> Claim {
    Claim {
        id: "agrees",
        statement: "on every link that loses at most 1 % the simulated TCP has the goodput of the \
               kernel's reno",
        published: None,
        bound: Bound::at_most(10.0, "10 %: set before the first measurement"),
        unit: "%",
        decimals: 1,
        measure: Box::new(|t| difference(t, false)),
        expected: Verdict::Undecided,
        why: "At 100 Mbit/s, 200 ms and 1 % the simulated TCP has about 13 % more, and runs differ \
              by as much; on all other links it is within 5 %, mostly within 1 %.",
        sabotage: "acks-counted",
        ..Claim::default()
    }
}

/// The claim that it also agrees where timeouts and small windows matter. Over `trunkline impair`,
/// reno of Linux 6.18.44 carried 5.41 and 3.97 Mbit/s at 10 ms (3 and 5 % loss), 1.34 and 0.97 at
/// 50 ms, and 0.36 and 0.26 at 200 ms: means of 20 connections of 60 s each.
fn agrees_at_heavy_loss() -> Claim {
    Claim {
        id: "agrees-lossy",
        statement: "at 3 and 5 % loss the simulated TCP has the goodput of the kernel's reno",
        published: None,
        bound: Bound::at_most(10.0, "10 %, as where less is lost"),
        unit: "%",
        decimals: 1,
        measure: Box::new(|t| difference(t, true)),
        sabotage: "acks-counted",
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COLUMNS, Params, row};
    use super::*;
    use crate::experiment::Size;
    use crate::output::judge;
    use crate::table::print;

    /// A table in which simulator and kernel reach these shares of the expected goodput, on every
    /// link.
    fn table(simulator: f64, kernel: f64) -> Table {
        let of = |at: &'static str, tcp: &'static str, share: f64| {
            let one =
                move |place: Params| row(at, tcp, &place, &[share * place.expected(); 2], true);
            Params::all(Size::Full).into_iter().map(one)
        };
        let mut cells: Vec<_> = of(PLACES[0], SIMULATED, simulator).collect();
        cells.extend(KERNELS.iter().flat_map(|tcp| of(PLACES[1], tcp, kernel)));
        Table { columns: COLUMNS, rows: cells.into_iter().map(|row| print(COLUMNS, row)).collect() }
    }

    #[test]
    fn the_testbeds_claims_can_fail() {
        let failing = |simulator, kernel| {
            let table = table(simulator, kernel);
            let claims = beside().claims;
            let fails = claims.iter().filter(|c| judge(c, &table).verdict == Verdict::Fails);
            fails.map(|c| c.id).collect::<Vec<_>>()
        };
        let full = ["full-reno", "full-cubic", "full-bbr"];
        assert_eq!(failing(1.0, 0.995), [""; 0]);
        assert_eq!(failing(1.05, 0.98), full);
        assert_eq!(failing(1.12, 1.0), ["agrees", "agrees-lossy"]);
        assert_eq!(failing(0.88, 1.0), ["agrees", "agrees-lossy"]);
        let mut without = table(1.0, 1.0);
        without.rows.pop();
        without.rows.retain(|row| !(row[1] == "reno" && row[4] == "1.0" && row[3] == "50"));
        assert_eq!(judge(&agrees(), &without).verdict, Verdict::Fails);
    }
}
