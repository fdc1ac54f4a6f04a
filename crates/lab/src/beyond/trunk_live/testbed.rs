//! The same calls between two daemons.

use super::{Params, Run, extent, figures, rows_of, seen};
use crate::beyond::means;
use crate::experiment::{Sabotage, Size};
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::{self, Effort};
use crate::testbed::{Round, Sample, Stage, Testbed};

/// Number of calls in the testbed. With 500 calls without a trunk two processors fall behind, as
/// they also run both daemons, the link and the callers (18 to 33 % of a call's packets were sent
/// late).
pub const CALLS: u32 = 100;

/// How the daemons are measured.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figures::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| rows_of(|place| means::runs(samples, &place.key()))),
    }
}

/// Places are measured in turn, each alone on the machine.
fn rounds(size: Size) -> Vec<Round> {
    let (_, seconds) = extent(size);
    let round = |n: u64, place: Params| Round {
        name: format!("{}-{n}", place.key()),
        seconds: seconds as usize + 8,
        parts: 1,
        run: Box::new(move |stage, _| {
            let (run, effort) = run(stage, &place, seconds)?;
            Ok((vec![Sample::new(place.key(), run.to_vec())], effort))
        }),
    };
    let turns = 1..=size.pick(1, 2, 4);
    turns.flat_map(|n| Params::all(size, CALLS).map(move |place| round(n, place))).collect()
}

fn run(stage: &Stage<'_>, place: &Params, seconds: u64) -> Result<(Run, Effort), testbed::Error> {
    let dir = Folder::new()?;
    let scenario = place.scenario(seconds, Sabotage::NONE);
    let testbed = testbed::Testbed::new(&scenario, Some(stage.trunkline))?;
    let (live, effort) = testbed.run(None, stage.seed, dir.path(), stage.second)?;
    // Before and after the calls a daemon is almost idle.
    let cpu = |host: &str| {
        let of = effort.cpu.iter().find(|cpu| cpu.process == host);
        of.map_or(f64::NAN, |cpu| 100.0 * cpu.seconds / seconds as f64)
    };
    let told = [cpu("a"), cpu("b"), effort.lateness_p999_us(), effort.callers_late_pct];
    Ok((seen(&live.calls, &live.links, seconds, told), effort))
}
