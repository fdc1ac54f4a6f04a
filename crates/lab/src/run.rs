//! Measures points on all available processors.

use crate::error::Error;
use crate::experiment::{Experiment, Inputs, Point};
use crate::speech::Speech;
use crate::store::Store;
use crate::table::{self, Row, Table};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A point to be measured.
pub struct Job<'a> {
    /// The experiment of the point.
    pub experiment: &'a Experiment,
    /// The point to measure.
    pub point: &'a Point,
    /// Store for its rows; `None` keeps them in memory only.
    pub store: Option<&'a Store>,
}

/// Rows of a point, or why it could not be measured.
type Measured = Result<Vec<Row>, Error>;

/// Settings of a run besides its jobs.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Seed of all random numbers.
    pub seed: u64,
    /// The recordings, if any point needs them.
    pub speech: Option<&'a Speech>,
    /// Number of points that are measured at once.
    pub threads: usize,
}

/// Receives the progress of a run, from any thread.
pub trait Progress: Sync {
    /// Called when a point of this weight has been measured.
    fn done(&self, weight: f64);
}

/// Ignores progress, for runs without a display.
impl Progress for () {
    fn done(&self, _weight: f64) {}
}

/// Measures every job that is not stored yet, and returns the rows of all, in the order of the
/// jobs.
///
/// # Errors
///
/// The first job's error; points that were in progress are finished and stored.
pub fn all(
    jobs: &[Job<'_>],
    settings: &Settings<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Row>>, Error> {
    // The longest points first, so that no processor works alone on one at the end.
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
    // Jobs that were not begun after a failure are missing; the failure itself is included.
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
/// The error of the first point that fails.
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
