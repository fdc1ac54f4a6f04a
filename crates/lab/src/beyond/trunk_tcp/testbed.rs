//! The same calls between two daemons, next to the kernel's TCP.

use super::{ALL, Run, TrunkMode, extent, figures, rows_of, seen};
use crate::beyond::means;
use crate::experiment::{Sabotage, Size};
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::{self, Effort};
use crate::testbed::{Round, Sample, Stage, Testbed};

/// How the daemons and the kernel's TCP are measured.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figures::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| rows_of(|carried| means::runs(samples, carried.name))),
    }
}

/// Transports are measured in turn, each alone on the machine.
fn rounds(size: Size) -> Vec<Round> {
    let (_, seconds) = extent(size);
    let round = |n: u64, carried: TrunkMode| Round {
        name: format!("{}-{n}", carried.name),
        seconds: seconds as usize + 8,
        parts: 1,
        run: Box::new(move |stage, _| {
            let (run, effort) = run(stage, carried, seconds)?;
            Ok((vec![Sample::new(carried.name, run.to_vec())], effort))
        }),
    };
    let turns = 1..=size.pick(1, 2, 5);
    turns.flat_map(|n| ALL.map(|carried| round(n, carried))).collect()
}

fn run(
    stage: &Stage<'_>,
    carried: TrunkMode,
    seconds: u64,
) -> Result<(Run, Effort), testbed::Error> {
    let dir = Folder::new()?;
    let scenario = carried.scenario((seconds, stage.seed), Sabotage::NONE);
    let testbed = testbed::Testbed::new(&scenario, Some(stage.trunkline))?;
    let (live, effort) = testbed.run(None, stage.seed, dir.path(), stage.second)?;
    let late = [effort.lateness_p999_us(), effort.callers_late_pct];
    Ok((seen(&live.calls, &live.links, seconds, late), effort))
}
