//! Measures the agreement experiment's scenarios with real daemons.

use super::networks::{self, Network};
use super::{Value, extent, figures, rows, values};
use crate::experiment::{Sabotage, Size};
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::{self, Effort};
use crate::testbed::{PLACES, Round, Sample, Stage, Testbed};

/// How the agreement experiment is measured with daemons.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figures::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| {
            rows(PLACES[1], |network, quantity| Sample::pooled(samples, &key(network, quantity)))
        }),
    }
}

fn key(network: &str, quantity: &str) -> String {
    format!("{network} {quantity}")
}

/// Repeated rounds, each with all networks in parallel.
fn rounds(size: Size) -> Vec<Round> {
    let (_, seconds) = extent(size);
    let networks: &'static [Network] =
        size.pick(&networks::ALL[..1], &networks::ALL, &networks::ALL);
    let round = |n: u64| Round {
        name: format!("round-{n}"),
        seconds: seconds as usize + 8,
        parts: networks.len(),
        run: Box::new(move |stage, parts| {
            let networks: Vec<&Network> = parts.iter().map(|&n| &networks[n]).collect();
            run(stage, &networks, seconds)
        }),
    };
    (1..=size.pick(1, 2, 8)).map(round).collect()
}

fn run(
    stage: &Stage<'_>,
    networks: &[&Network],
    seconds: u64,
) -> Result<(Vec<Sample>, Effort), testbed::Error> {
    let dir = Folder::new()?;
    let scenario = networks::scenario(networks, (seconds, stage.seed), Sabotage::NONE);
    let testbed = testbed::Testbed::new(&scenario, Some(stage.trunkline))?;
    let (live, effort) = testbed.run(None, stage.seed, dir.path(), stage.second)?;
    let sample = |v: Value| Sample::new(key(v.network, v.quantity), v.numbers);
    Ok((values(&scenario, &live.calls).into_iter().map(sample).collect(), effort))
}
