//! Whether the claims still do what was published, and whether each can fail.

use crate::error::Error;
use crate::experiment::{Claim, Experiment, Figure, Point, Sabotage, Size};
use crate::output::{Judged, NOTHING, judge};
use crate::run::{self, Job, Progress, Settings};
use crate::table::{Row, Table};

/// A claim and where it stands.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The figure.
    pub figure: &'a Figure,
    /// The claim.
    pub claim: &'a Claim,
}

impl Place<'_> {
    /// `voip-overlay/fig4 follows`.
    pub fn name(&self) -> String {
        format!("{}/{} {}", self.experiment.paper, self.figure.name, self.claim.id)
    }

    /// Whether the claim's judge looks at this point.
    fn needs(&self, point: &Point) -> bool {
        let Claim { at, .. } = self.claim;
        point.figures.contains(&self.figure.name) && (at.is_empty() || at.contains(&point.x))
    }
}

/// Every claim of these figures.
pub fn claims<'a>(figures: &[(&'a Experiment, &'a Figure)]) -> Vec<Place<'a>> {
    let of = |&(experiment, figure): &(&'a Experiment, &'a Figure)| {
        figure.claims.iter().map(move |claim| Place { experiment, figure, claim })
    };
    figures.iter().flat_map(of).collect()
}

/// Points that some claims need, measured once for all of them, with one thing
/// broken or nothing.
pub struct Batch<'a> {
    experiment: &'a Experiment,
    sabotage: Sabotage,
    points: Vec<Point>,
    places: Vec<(usize, Place<'a>)>,
}

/// What `places` need; with `sabotaged` each claim's own sabotage.
pub fn batches<'a>(places: &[Place<'a>], size: Size, sabotaged: bool) -> Vec<Batch<'a>> {
    let mut batches: Vec<Batch<'a>> = Vec::new();
    for (n, &place) in places.iter().enumerate() {
        let named = Sabotage::named(place.claim.sabotage);
        let sabotage = if sabotaged { named } else { Sabotage::NONE };
        let experiment = place.experiment;
        let same =
            |b: &&mut Batch<'_>| std::ptr::eq(b.experiment, experiment) && b.sabotage == sabotage;
        match batches.iter_mut().find(same) {
            Some(batch) => batch.places.push((n, place)),
            None => {
                let places = vec![(n, place)];
                batches.push(Batch { experiment, sabotage, points: Vec::new(), places });
            }
        }
    }
    for batch in &mut batches {
        batch.points = (batch.experiment.points)(size, batch.sabotage);
        batch.points.retain(|p| batch.places.iter().any(|(_, place)| place.needs(p)));
    }
    batches
}

/// How many points, and their weight.
pub fn extent(batches: &[Batch<'_>]) -> (usize, f64) {
    let points = || batches.iter().flat_map(|b| &b.points);
    (points().count(), points().map(|p| p.weight).sum())
}

/// Measures all batches in memory; what becomes of each claim, in the order of
/// the places that the batches were made for.
///
/// # Errors
///
/// If a point can't be measured.
pub fn judge_all<'b>(
    batches: &'b [Batch<'_>],
    settings: &Settings<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Judged>, Error> {
    let of = |batch: &'b Batch<'_>| {
        let experiment = batch.experiment;
        batch.points.iter().map(move |point| Job { experiment, point, store: None })
    };
    let jobs: Vec<Job<'b>> = batches.iter().flat_map(of).collect();
    let mut rows = run::all(&jobs, settings, progress)?.into_iter();
    let mut judged = Vec::new();
    for batch in batches {
        let rows: Vec<Vec<Row>> = rows.by_ref().take(batch.points.len()).collect();
        for (n, place) in &batch.places {
            let needed = batch.points.iter().zip(&rows).filter(|(p, _)| place.needs(p));
            let table = Table {
                columns: batch.experiment.columns,
                rows: needed.flat_map(|(_, rows)| rows.iter().cloned()).collect(),
            };
            judged.push((*n, judge(place.claim, &table)));
        }
    }
    judged.sort_by_key(|(n, _)| *n);
    Ok(judged.into_iter().map(|(_, judged)| judged).collect())
}

/// How a claim did against what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// As published.
    AsPublished,
    /// It was published as holding, and does no longer.
    Broken,
    /// It was published as not holding, and does.
    Better,
}

/// Compares.
pub fn against(claim: &Claim, judged: &Judged) -> Against {
    match (claim.expected, judged.holds) {
        (true, false) => Against::Broken,
        (false, true) => Against::Better,
        _ => Against::AsPublished,
    }
}

/// Whether a sabotage did its work: a claim that held must fail. One that does
/// not hold anyway must at least be measured otherwise, or its judge looks at
/// nothing; as it does where the sabotage only took its points away.
pub fn can_fail(honest: &Judged, sabotaged: &Judged) -> bool {
    let moved = honest.measured != sabotaged.measured;
    !sabotaged.holds && sabotaged.measured != NOTHING && (honest.holds || moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_measured_failure_counts() {
        let judged = |measured: &str, holds| Judged {
            claim: String::new(),
            published: String::new(),
            measured: measured.to_owned(),
            unit: String::new(),
            holds,
            note: String::new(),
        };
        let honest = judged("0.5", true);
        assert!(can_fail(&honest, &judged("5.0", false)));
        assert!(!can_fail(&honest, &judged("0.6", true)), "it survived");
        assert!(!can_fail(&honest, &judged(NOTHING, false)), "its points are gone");
        let failing = judged("3.8", false);
        assert!(can_fail(&failing, &judged("3.4", false)));
        assert!(!can_fail(&failing, &judged("3.8", false)), "the judge sees no difference");
    }
}
