//! How often the 95 % intervals of a share of missed packets contain the true one, and how wide they
//! are: of losses that come singly or in bursts, frequent or so rare that many runs have none.

use super::{PAPER, means};
use crate::chain::{Bursts, Chain, Policy, SECONDS_PER_HOP};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use crate::voip_overlay::fig4b::until_deadline;
use crate::voip_overlay::ten_ms;
use rand::RngExt as _;
use trunkline_base::rng;
use trunkline_base::stats::{Ratio, quantile};
use trunkline_overlay::link::realtime::Recovery;

const FIGURE: &str = "coverage";

const COLUMNS: &[Column] = &[
    Column::text("service").parameter(),
    Column::number("loss_pct", 2).parameter(),
    Column::number("burst_pct", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("intervals", 0).parameter(),
    Column::number("missed_pct", 5),
    Column::number("without_pct", 1),
    Column::number("contain_pct", 1),
    Column::number("contain_low_pct", 1),
    Column::number("contain_high_pct", 1),
    Column::number("width_pct", 5),
    Column::number("bootstrap_pct", 5),
];

const BEST_EFFORT: &str = "best effort";
const REAL_TIME: &str = "real time";
/// Ten calls of a minute, as a scenario has them.
const CALLS: u32 = 10;
const PACKETS: u64 = 3_000;
/// Number of runs for which the lab's intervals are compared with a bootstrap over runs.
const TOGETHER: usize = 30;
/// Number of samples that the bootstrap draws.
const RESAMPLES: usize = 2_000;

/// One link: the service of its calls, its loss and burstiness in percent.
#[derive(Clone, Copy)]
struct Network {
    service: &'static str,
    loss_pct: f64,
    burst_pct: u32,
}

/// The networks that the claims are about.
const JUDGED: [Network; 9] = [
    of(BEST_EFFORT, 5.0, 0),
    of(BEST_EFFORT, 5.0, 75),
    of(BEST_EFFORT, 5.0, 90),
    of(BEST_EFFORT, 0.03, 0),
    of(BEST_EFFORT, 0.03, 75),
    of(BEST_EFFORT, 0.03, 90),
    of(REAL_TIME, 5.0, 0),
    of(REAL_TIME, 5.0, 75),
    of(REAL_TIME, 5.0, 90),
];

/// Networks beside these, for which nothing was chosen.
const OTHERS: [Network; 10] = [
    of(BEST_EFFORT, 5.0, 50),
    of(BEST_EFFORT, 5.0, 95),
    of(BEST_EFFORT, 0.03, 50),
    of(BEST_EFFORT, 0.03, 95),
    of(BEST_EFFORT, 1.0, 90),
    of(BEST_EFFORT, 10.0, 90),
    of(REAL_TIME, 5.0, 50),
    of(REAL_TIME, 5.0, 95),
    of(REAL_TIME, 1.0, 90),
    of(REAL_TIME, 10.0, 90),
];

const fn of(service: &'static str, loss_pct: f64, burst_pct: u32) -> Network {
    Network { service, loss_pct, burst_pct }
}

/// The experiment on the lab's own intervals.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: FIGURE,
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figure()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let each: &[usize] = size.pick(&[1, 3], &[1, TOGETHER], &[1, 3, 10, TOGETHER]);
    let one = |(network, runs): (&Network, u64)| {
        let &Network { service, loss_pct, burst_pct } = network;
        let network = *network;
        Point {
            key: format!("{}-{loss_pct}-{burst_pct}", service.replace(' ', "-")),
            x: burst_pct.into(),
            figures: vec![FIGURE],
            weight: (runs * PACKETS * u64::from(CALLS)) as f64 * SECONDS_PER_HOP,
            measure: Box::new(move |inputs| network.measure(runs, each, sabotage, inputs)),
        }
    };
    // The last four have the fewest bursts.
    let judged = size.pick(&JUDGED[8..], &JUDGED[5..], &JUDGED);
    let others: &[Network] = size.pick(&[], &[], &OTHERS);
    let judged = judged.iter().map(|network| (network, size.pick(3, TOGETHER as u64, 600)));
    judged.chain(others.iter().map(|network| (network, 120))).map(one).collect()
}

/// A run: packets sent, missed, and lost on the link; and the interval of the share missed.
struct Run {
    counts: [u64; 3],
    interval: (f64, f64),
}

impl Network {
    fn chain(&self) -> Chain {
        let burstiness = (self.burst_pct > 0).then(|| f64::from(self.burst_pct) / 100.0);
        let bursts = Bursts { burstiness, spacing: None };
        let policy = match self.service {
            BEST_EFFORT => Policy::new("off", |config| config.realtime.recovery = Recovery::OFF),
            _ => until_deadline(Sabotage::NONE),
        };
        let links = vec![ten_ms(bursts.losing(self.loss_pct / 100.0))];
        Chain { links, policy, calls: CALLS, packets: PACKETS }
    }

    fn measure(
        &self,
        runs: u64,
        each: &[usize],
        sabotage: Sabotage,
        inputs: &Inputs<'_>,
    ) -> Result<Cells, PointError> {
        let chain = self.chain();
        let run = |n| {
            let outcome = chain.run(inputs.seed.wrapping_add(n))?.outcome();
            let counts = [outcome.sent, outcome.missed.events, outcome.lost + outcome.recovered];
            Ok(Run { counts, interval: outcome.missed.interval })
        };
        let runs = (0..runs).map(run).collect::<Result<Vec<Run>, PointError>>()?;
        Ok(each.iter().map(|&each| self.row(&runs, each, sabotage, inputs.seed)).collect())
    }

    /// The intervals of `each` runs together, until all runs are in one.
    fn row(&self, runs: &[Run], each: usize, sabotage: Sabotage, seed: u64) -> Vec<Cell> {
        let sum = |runs: &[Run], of: usize| runs.iter().map(|run| run.counts[of]).sum::<u64>();
        let share = |runs: &[Run]| sum(runs, 1) as f64 / sum(runs, 0) as f64;
        let independent = |runs: &[Run]| Ratio::of_clusters(&[(sum(runs, 1), sum(runs, 0))]);
        let interval = |runs: &[Run]| match runs {
            _ if sabotage.is("independent") => independent(runs).interval,
            _ if sabotage.is("bursts-of-a-second") => {
                let second = Ratio { design_effect: 500.0, ..independent(runs) };
                Ratio::of_remaining(&[(sum(runs, 1), sum(runs, 0))], &second).interval
            }
            [run] => run.interval,
            runs => means::missed(&runs.iter().map(|run| run.counts).collect::<Vec<_>>()).interval,
        };
        let truth = share(runs);
        let groups: Vec<&[Run]> = runs.chunks_exact(each).collect();
        let intervals: Vec<(f64, f64)> = groups.iter().map(|runs| interval(runs)).collect();
        let contain = intervals.iter().filter(|i| i.0 <= truth && truth <= i.1).count();
        let contain = Ratio::of_clusters(&[(contain as u64, intervals.len() as u64)]);
        let without = groups.iter().filter(|runs| sum(runs, 1) == 0).count();
        let width = intervals.iter().map(|i| i.1 - i.0).sum::<f64>() / intervals.len() as f64;
        let mut row: Vec<Cell> = vec![self.service.into(), self.loss_pct.into()];
        row.extend(
            [u64::from(self.burst_pct), each as u64, intervals.len() as u64].map(Cell::from),
        );
        row.extend(
            [truth, without as f64 / groups.len() as f64, contain.estimate, contain.interval.0]
                .map(|share| Cell::from(100.0 * share)),
        );
        let bootstrap = bootstrap(
            &runs.iter().map(|r| share(std::slice::from_ref(r))).collect::<Vec<_>>(),
            each,
            seed,
        );
        row.extend([contain.interval.1, width, bootstrap].map(|share| Cell::from(100.0 * share)));
        row
    }
}

/// Width of the 95 % interval of the mean of `each` shares, by a bootstrap from all (Efron,
/// *Bootstrap methods: another look at the jackknife*, 1979).
fn bootstrap(shares: &[f64], each: usize, seed: u64) -> f64 {
    let mut rng = rng(seed, each as u64);
    let mut draw = || -> f64 {
        let sum: f64 = (0..each).map(|_| shares[rng.random_range(0..shares.len())]).sum();
        sum / each as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    means.sort_by(f64::total_cmp);
    let at = |share| quantile(&means, share).unwrap_or(f64::NAN);
    at(0.975) - at(0.025)
}

/// Name of a series: the service and the link's loss.
fn series_name(r: &Record<'_>) -> String {
    format!("{}, {} %", r.text("service"), r.number("loss_pct"))
}

/// Name of a network in notes.
fn named(r: &Record<'_>) -> String {
    format!("{} at {} %", series_name(r), r.text("burst_pct"))
}

fn contains(r: &Record<'_>) -> Measured {
    Measured::of(r, ["contain_pct", "contain_low_pct", "contain_high_pct"])
}

/// The rows with this many runs in each interval that the claims are about.
fn judged(table: &Table, runs: usize) -> impl Iterator<Item = Record<'_>> {
    let is_judged = move |r: &Record<'_>| {
        r.number("runs") == runs as f64
            && JUDGED.iter().any(|n| {
                r.is("service", n.service)
                    && r.number("loss_pct") == n.loss_pct
                    && r.number("burst_pct") == f64::from(n.burst_pct)
            })
    };
    table.iter().filter(is_judged)
}

fn chart(table: &Table) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for r in table.iter().filter(|r| r.number("runs") == 1.0) {
        let Measured { estimate: y, interval, .. } = contains(&r);
        let mark = Mark { x: r.number("burst_pct"), y, interval: Some(interval) };
        let name = series_name(&r);
        match series.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(mark),
            None => {
                let style = Style::nth(series.len());
                series.push(Series { name, style, points: vec![mark] });
            }
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    Chart {
        title: "95 % intervals from one run of ten calls for a minute".to_owned(),
        x: Axis::linear("burstiness (%)", (0.0, 100.0), 25.0),
        y: Axis::linear("intervals that contain the true share (%)", (80.0, 100.0), 5.0),
        series,
    }
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "How often an interval of missed packets contains the true share",
        section: "V-A, beyond",
        caption: "Not in the paper. Ten calls of a minute over one link, many times: the share of runs \
               whose 95 % interval contains the mean of all runs, by service, loss and burstiness \
               of the link. In `data.csv` also for 3, 10 and 30 runs together, and the mean width \
               of the intervals compared with that of a bootstrap over all runs.",
        chart: one_panel(chart),
        claims: vec![
            Claim {
                unit: "%",
                decimals: 1,
                measure: Box::new(|t| {
                    let fewest = judged(t, 1).map(|r| (contains(&r), r));
                    let fewest = fewest.min_by(|a, b| a.0.estimate.total_cmp(&b.0.estimate));
                    let note = fewest
                        .map_or_else(String::new, |(_, r)| format!("The fewest: {}.", named(&r)));
                    Measured::minimum(judged(t, 1).map(|r| contains(&r))).noting(note)
                }),
                ..Claim::holding(
                    "contain",
                    "at least nine of ten intervals from one run contain the true share: with losses \
                     of 5 and 0.03 %, single and at a burstiness of up to 90 %, and with those that \
                     remain of 5 % after recovery",
                    None,
                    Bound::at_least(90.0, "54 of 60"),
                    "independent",
                )
            },
            width(
                "width",
                "such intervals from 30 runs together are at most twice as wide as those of a \
                 bootstrap over the runs",
                TOGETHER,
            ),
            Claim {
                expected: Verdict::Fails,
                why: "With recovery most runs at a burstiness of 0 to 75 % miss nothing. The shares \
                      of single runs are then nearer to each other than any interval for a count \
                      of zero is wide: three to four events.",
                ..width(
                    "width-of-one",
                    "such intervals from one run are on average at most twice as wide as the range \
                     of 95 % of the shares of single runs",
                    1,
                )
            },
        ],
    }
}

/// The claim that intervals of this many runs are narrow.
fn width(id: &'static str, says: &'static str, runs: usize) -> Claim {
    Claim {
        unit: "times the bootstrap's",
        measure: Box::new(move |t| {
            let times = |r: &Record<'_>| r.number("width_pct") / r.number("bootstrap_pct");
            // Where no run missed anything, a bootstrap knows no other share than zero.
            let compared = || judged(t, runs).filter(|r| r.number("bootstrap_pct") > 0.0);
            let said = |r: Record<'_>| format!("{}: {:.2}", named(&r), times(&r));
            let note = compared().map(said).collect::<Vec<_>>().join("; ") + ".";
            Measured::maximum(compared().map(|r| Measured::census(times(&r)))).noting(note)
        }),
        ..Claim::holding(id, says, None, Bound::at_most(2.0, OWN_TARGET), "bursts-of-a-second")
    }
}
