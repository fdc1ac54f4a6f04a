//! Maps the requested figures to their points, and results back to figures.

use crate::error::Error;
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::output::{self, Judged};
use crate::run::{self, Job, Progress, Settings};
use crate::store::{Manifest, Shard, Store};
use crate::table::{Row, Table};
use std::path::{Path, PathBuf};

/// The requested figures, and the points that they need.
pub struct Plan<'a> {
    /// The experiments, each listed once.
    parts: Vec<Part<'a>>,
    size: Size,
}

struct Part<'a> {
    experiment: &'a Experiment,
    figures: Vec<&'a Figure>,
    points: Vec<Point>,
}

/// A figure, its table and its judged claims.
pub struct Drawn<'a> {
    /// The experiment that measured the table.
    pub experiment: &'a Experiment,
    /// The figure that was drawn.
    pub figure: &'a Figure,
    /// The rows that the figure shows.
    pub table: Table,
    /// The judged claims, in the order of the figure's.
    pub judged: Vec<Judged>,
}

impl<'a> Plan<'a> {
    /// A plan for these figures; figures of one experiment share its points.
    pub fn new(figures: &[(&'a Experiment, &'a Figure)], size: Size) -> Plan<'a> {
        let mut parts: Vec<Part<'a>> = Vec::new();
        for &(experiment, figure) in figures {
            match parts.iter_mut().find(|p| std::ptr::eq(p.experiment, experiment)) {
                Some(part) => part.figures.push(figure),
                None => parts.push(Part { experiment, figures: vec![figure], points: Vec::new() }),
            }
        }
        for part in &mut parts {
            part.points = (part.experiment.points)(size, Sabotage::NONE);
            part.points.retain(|p| part.figures.iter().any(|f| p.figures.contains(&f.name)));
        }
        Plan { parts, size }
    }

    /// Whether any point needs recordings of speech.
    pub fn needs_speech(&self) -> bool {
        self.parts.iter().any(|p| p.experiment.needs_speech)
    }

    /// Number of points in the `index`th (from 1) of `of` parts, and their approximate duration in
    /// seconds.
    pub fn extent(&self, (index, of): (usize, usize)) -> (usize, f64) {
        let points = self.parts.iter().flat_map(|p| &p.points).enumerate();
        let mine = points.filter(|(n, _)| n % of == index - 1);
        mine.fold((0, 0.0), |(count, weight), (_, p)| (count + 1, weight + p.weight))
    }

    fn stores(&self, out: &Path, settings: &Settings<'_>) -> Result<Vec<Store>, Error> {
        let open = |part: &Part<'_>| {
            let manifest =
                Manifest::new(part.experiment, self.size, settings.seed, settings.speech);
            Store::open(out, part.experiment, &manifest)
        };
        self.parts.iter().map(open).collect()
    }

    fn jobs<'b>(&'b self, stores: &'b [Store]) -> Vec<Job<'b>> {
        let of = |(part, store): (&'b Part<'a>, &'b Store)| {
            let job = |point| Job { experiment: part.experiment, point, store: Some(store) };
            part.points.iter().map(job).collect::<Vec<_>>()
        };
        self.parts.iter().zip(stores).flat_map(of).collect()
    }

    /// Measures the points that are missing in `out`, and draws every figure there.
    ///
    /// # Errors
    ///
    /// If another run's points are in `out`, a point can't be measured, or a file can't be written.
    pub fn run(
        &self,
        out: &Path,
        settings: &Settings<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Drawn<'a>>, Error> {
        let stores = self.stores(out, settings)?;
        let rows = run::all(&self.jobs(&stores), settings, progress)?;
        let mut rows = rows.into_iter();
        let mut drawn = Vec::new();
        for part in &self.parts {
            let rows: Vec<Vec<Row>> = rows.by_ref().take(part.points.len()).collect();
            for &figure in &part.figures {
                let table = part.table(figure, &rows);
                let judged = output::write(out, part.experiment, figure, &table)?;
                drawn.push(Drawn { experiment: part.experiment, figure, table, judged });
            }
        }
        Ok(drawn)
    }

    /// Measures the `index`th (from 1) of `of` parts of all points into `out`, without drawing
    /// figures.
    ///
    /// # Errors
    ///
    /// As [`Plan::run`].
    pub fn run_shard(
        &self,
        (index, of): (usize, usize),
        out: &Path,
        settings: &Settings<'_>,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let stores = self.stores(out, settings)?;
        self.shard(index, of, settings.seed).write(out)?;
        let mine = |(n, job)| (n % of == index - 1).then_some(job);
        let jobs: Vec<Job<'_>> =
            self.jobs(&stores).into_iter().enumerate().filter_map(mine).collect();
        run::all(&jobs, settings, progress).map(drop)
    }

    fn shard(&self, index: usize, of: usize, seed: u64) -> Shard {
        let id = |part: &Part<'_>, f: &Figure| format!("{}/{}", part.experiment.paper, f.name);
        let figures =
            |part: &Part<'_>| part.figures.iter().map(|f| id(part, f)).collect::<Vec<_>>();
        Shard {
            index,
            of,
            figures: self.parts.iter().flat_map(figures).collect(),
            size: self.size,
            seed,
        }
    }

    /// Combines the points of all shards in `out`, so that [`Plan::run`] finds nothing left to
    /// measure.
    ///
    /// # Errors
    ///
    /// If a point is missing, or a shard is of another run.
    pub fn gather(
        &self,
        shards: &[PathBuf],
        out: &Path,
        settings: &Settings<'_>,
    ) -> Result<(), Error> {
        let theirs: Vec<Vec<Store>> =
            shards.iter().map(|dir| self.stores(dir, settings)).collect::<Result<_, _>>()?;
        let ours = self.stores(out, settings)?;
        for (p, part) in self.parts.iter().enumerate() {
            for point in &part.points {
                let mut rows = None;
                for stores in &theirs {
                    rows = rows.or(stores[p].load(point)?);
                }
                let id = part.experiment.id();
                let rows = rows.ok_or_else(|| {
                    let key = &point.key;
                    Error::Shards(format!(
                        "no shard has point {id}/{key}: its run was interrupted; run it again to finish it"
                    ))
                })?;
                ours[p].save(point, &rows)?;
            }
        }
        Ok(())
    }
}

impl Part<'_> {
    /// The rows of the points that `figure` shows.
    fn table(&self, figure: &Figure, rows: &[Vec<Row>]) -> Table {
        let shown = self.points.iter().zip(rows).filter(|(p, _)| p.figures.contains(&figure.name));
        Table {
            columns: self.experiment.columns,
            rows: shown.flat_map(|(_, rows)| rows.iter().cloned()).collect(),
        }
    }
}

/// Determines the run to which the shards in `folders` belong.
///
/// # Errors
///
/// If a folder is no shard, or a shard is missing, given twice, or of another run.
pub fn whole(folders: &[PathBuf]) -> Result<Shard, Error> {
    let mut seen: Vec<(usize, &PathBuf)> = Vec::new();
    let mut whole: Option<(Shard, &PathBuf)> = None;
    for folder in folders {
        let none = || {
            let folder = folder.display();
            Error::Shards(format!(
                "{folder}: there is no shard here: make one with `run --shard i/n --out`"
            ))
        };
        let shard = Shard::read(folder)?.ok_or_else(none)?;
        if let Some((_, twin)) = seen.iter().find(|(index, _)| *index == shard.index) {
            let (index, twin, folder) = (shard.index, twin.display(), folder.display());
            return Err(Error::Shards(format!(
                "{twin} and {folder} are both shard {index}: give each once"
            )));
        }
        seen.push((shard.index, folder));
        let Some((first, of)) = &whole else {
            whole = Some((shard, folder));
            continue;
        };
        if (Shard { index: first.index, ..shard }) != *first {
            let (a, b) = (of.display(), folder.display());
            return Err(Error::Shards(format!(
                "{a} and {b} are of different runs: seed, size, figures and number of shards must \
                 be equal"
            )));
        }
    }
    let Some((shard, _)) = whole else {
        return Err(Error::Shards("there is nothing to merge: name the shards' folders".into()));
    };
    let missing: Vec<String> = (1..=shard.of)
        .filter(|n| seen.iter().all(|(index, _)| index != n))
        .map(|n| format!("{n}/{}", shard.of))
        .collect();
    if !missing.is_empty() {
        return Err(Error::Shards(format!(
            "shard {} is missing: give its folder too",
            missing.join(", ")
        )));
    }
    Ok(shard)
}
