//! Tables of experiments that are measured in simulator and testbed: each row is a place, and each
//! quantity has three columns, its mean over all runs and both ends of the 95 % interval.

use crate::claim::{Measured, Tolerance};
use crate::table::{Cell, Record};
use crate::testbed::Sample;
use trunkline_base::stats::{Mean, Ratio};

/// The names of the columns of a quantity: mean, lower and upper end.
pub fn columns(quantity: &str) -> [String; 3] {
    [quantity.to_owned(), format!("{quantity}_low"), format!("{quantity}_high")]
}

/// The value of a quantity in a row, with its interval.
pub fn of(row: &Record<'_>, quantity: &str) -> Measured {
    let [mean, low, high] = columns(quantity);
    Measured::of(row, [&mean, &low, &high])
}

/// Cells of quantities that can't be negative, from their values in each run: mean and interval for
/// the first `whole`, the mean alone for the others.
pub fn cells<const N: usize>(runs: &[[f64; N]], whole: usize) -> Vec<Cell> {
    let mean = |n: usize| Mean::of(&runs.iter().map(|run| run[n]).collect::<Vec<_>>());
    let with_interval = |n| {
        let Mean { estimate, interval } = mean(n);
        // NaN stays NaN.
        let low = if interval.0 < 0.0 { 0.0 } else { interval.0 };
        [estimate, low, interval.1]
    };
    let first = (0..whole).flat_map(with_interval);
    first.chain((whole..N).map(|n| mean(n).estimate)).map(Cell::from).collect()
}

/// Share of packets missed in several independent runs, from their counts: sent, missed, and lost on
/// a link whether recovered or not. Within a run losses may depend on each other.
pub fn missed(runs: &[[u64; 3]]) -> Ratio {
    let clusters = |of: usize| runs.iter().map(|run| (run[of], run[0])).collect::<Vec<_>>();
    Ratio::of_remaining(&clusters(1), &Ratio::of_losses(&clusters(2)))
}

/// The runs whose samples are named `of`, and whether all of them are valid.
pub fn runs<const N: usize>(samples: &[Sample], of: &str) -> (Vec<[f64; N]>, bool) {
    let (numbers, valid) = Sample::pooled(samples, of);
    (numbers.as_chunks().0.to_vec(), valid)
}

/// Largest difference between simulator and testbed over all places, in units of the allowed one: a
/// share of the simulator's number or `least`, whichever is larger. Each pair has the place's name,
/// the simulator's number and the testbed's.
pub fn apart(
    pairs: impl Iterator<Item = (String, Measured, Measured)>,
    (share, least): (f64, f64),
) -> Measured {
    let allowed = Tolerance { share, least };
    let (mut apart, mut said) = (Vec::new(), Vec::new());
    for (name, sim, live) in pairs {
        apart.push(allowed.apart(&sim, &live));
        said.push(format!("{name}: {:.2}, {:.2}", sim.estimate, live.estimate));
    }
    Measured::maximum(apart).noting(format!("Simulator, testbed: {}.", said.join("; ")))
}
