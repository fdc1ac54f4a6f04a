//! Measuring points, on as many processors as there are.

use crate::error::Error;
use crate::experiment::{Experiment, Inputs, Point};
use crate::speech::Speech;
use crate::store::Store;
use crate::table::{self, Row, Table};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A point to be measured.
pub struct Job<'a> {
    /// What it belongs to.
    pub experiment: &'a Experiment,
    /// The point.
    pub point: &'a Point,
    /// Where it is stored; `None` keeps it in memory only.
    pub store: Option<&'a Store>,
}

/// What became of a point.
type Measured = Result<Vec<Row>, Error>;

/// What a run needs to know besides its jobs.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// What everything random follows from.
    pub seed: u64,
    /// The recordings.
    pub speech: Option<&'a Speech>,
    /// How many points are measured at once.
    pub threads: usize,
}

/// Is told how a run gets on; from any thread.
pub trait Progress: Sync {
    /// A point of this weight is there.
    fn done(&self, weight: f64);
}

/// Nobody.
impl Progress for () {
    fn done(&self, _weight: f64) {}
}

/// Measures every job that is not stored yet; all their rows, in the order of
/// the jobs.
///
/// # Errors
///
/// The first that fails; points that were under way are finished and stored.
pub fn all(
    jobs: &[Job<'_>],
    settings: &Settings<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Row>>, Error> {
    // The longest first, so that no processor is left with one at the end.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|&a, &b| jobs[b].point.weight.total_cmp(&jobs[a].point.weight));
    let results: Mutex<Vec<Option<Measured>>> = Mutex::new((0..jobs.len()).map(|_| None).collect());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            let result = one(&jobs[index], settings);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panicked")[index] = Some(result);
            progress.done(jobs[index].point.weight);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..settings.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    // What was not begun after a failure is left out; the failure is there.
    results.into_inner().expect("no thread panicked").into_iter().flatten().collect()
}

fn one(job: &Job<'_>, settings: &Settings<'_>) -> Measured {
    if let Some(store) = job.store
        && let Some(rows) = store.load(job.point)?
    {
        return Ok(rows);
    }
    let inputs = Inputs { seed: job.point.seed(settings.seed), speech: settings.speech };
    let cells = (job.point.measure)(&inputs).map_err(|why| Error::Point {
        point: format!("{}/{}", job.experiment.id(), job.point.key),
        why,
    })?;
    let columns = job.experiment.columns;
    let rows: Vec<Row> = cells.into_iter().map(|row| table::print(columns, row)).collect();
    if let Some(store) = job.store {
        store.save(job.point, &rows)?;
    }
    Ok(rows)
}

/// Measures `points` on one processor and stores nothing.
///
/// # Errors
///
/// The first point's that fails.
pub fn table(
    experiment: &Experiment,
    points: &[Point],
    seed: u64,
    speech: Option<&Speech>,
) -> Result<Table, Error> {
    let jobs: Vec<Job<'_>> =
        points.iter().map(|point| Job { experiment, point, store: None }).collect();
    let rows = all(&jobs, &Settings { seed, speech, threads: 1 }, &())?;
    Ok(Table { columns: experiment.columns, rows: rows.concat() })
}
