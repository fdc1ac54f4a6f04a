//! Checks that the claims still do what was published, and that each can fail.

use crate::claim::{Bound, Claim, Verdict};
use crate::error::Error;
use crate::experiment::{Experiment, Figure, Point, Sabotage, Size};
use crate::output::{Judged, NOTHING, Numbers, judge};
use crate::papers::{Paper, Papers};
use crate::run::{self, Job, Progress, Settings};
use crate::table::{Row, Table};

/// A claim with its figure and experiment.
#[derive(Clone, Copy)]
pub struct ClaimSite<'a> {
    /// The experiment that measures the points that the claim reads.
    pub experiment: &'a Experiment,
    /// The figure that the claim is about.
    pub figure: &'a Figure,
    /// The claim that stands in this place.
    pub claim: &'a Claim,
}

impl ClaimSite<'_> {
    /// Full name of the claim, such as `voip-overlay/fig4/follows`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.experiment.figure_id(self.figure), self.claim.id)
    }

    /// Name of the set-up in which the claim judges a sentence of its paper, if there are several.
    pub fn reading(&self) -> Option<&'static str> {
        Paper::of(self.experiment.paper).reading_of(self.claim)
    }

    /// Whether the claim reads this point.
    fn needs(&self, point: &Point) -> bool {
        let Claim { at, reads, .. } = self.claim;
        point.figures.contains(&self.figure.name)
            && (at.is_empty() || at.contains(&point.x))
            && reads(&point.key)
    }
}

/// Every claim that `wanted` selects, as [`Papers::select_claims`] has it, and of these only those of
/// one `reading`, if it is given.
///
/// # Errors
///
/// As [`Papers::select_claims`], or [`Error::UnknownReading`].
pub fn select<'a>(
    papers: &'a Papers,
    (wanted, reading): (&str, Option<&str>),
    beside: bool,
) -> Result<Vec<ClaimSite<'a>>, Error> {
    let (figures, id) = papers.select_claims(wanted, beside)?;
    let mut sites = claims(&figures);
    sites.retain(|site| id.is_none_or(|id| site.claim.id == id));
    let Some(reading) = reading else { return Ok(sites) };
    let mut known: Vec<&str> = Vec::new();
    for name in sites.iter().filter_map(ClaimSite::reading) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    sites.retain(|site| site.reading() == Some(reading));
    if sites.is_empty() {
        let known = match known.is_empty() {
            true => "its sentences have one reading each".to_owned(),
            false => format!("there are {}", known.join(", ")),
        };
        let (what, reading) = (wanted.to_owned(), reading.to_owned());
        return Err(Error::UnknownReading { what, reading, known });
    }
    Ok(sites)
}

/// Every claim of these figures.
pub fn claims<'a>(figures: &[(&'a Experiment, &'a Figure)]) -> Vec<ClaimSite<'a>> {
    let of = |&(experiment, figure): &(&'a Experiment, &'a Figure)| {
        figure.claims.iter().map(move |claim| ClaimSite { experiment, figure, claim })
    };
    figures.iter().flat_map(of).collect()
}

/// Points that some claims need, measured once for all of them, with one sabotage or none.
pub struct Batch<'a> {
    experiment: &'a Experiment,
    sabotage: Sabotage,
    points: Vec<Point>,
    places: Vec<(usize, ClaimSite<'a>)>,
}

/// Batches of the points that `places` need, each claim with the sabotage that is given for it.
pub fn batches<'a>(
    places: &[ClaimSite<'a>],
    size: Size,
    sabotage: impl Fn(&Claim) -> Sabotage,
) -> Vec<Batch<'a>> {
    let mut batches: Vec<Batch<'a>> = Vec::new();
    for (n, &place) in places.iter().enumerate() {
        let sabotage = sabotage(place.claim);
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

/// Number of points and their total weight.
pub fn extent(batches: &[Batch<'_>]) -> (usize, f64) {
    let points = || batches.iter().flat_map(|b| &b.points);
    (points().count(), points().map(|p| p.weight).sum())
}

/// Measures all batches in memory and judges each claim, in the order of the places from which the
/// batches were made.
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

/// Combined verdict of several runs of a claim, each with its own seed: the verdict of most of
/// them, or undecided. One run of a small sample may err by chance; two of three hardly ever do at
/// once.
///
/// # Panics
///
/// If there are no runs.
pub fn together(runs: &[Judged]) -> Verdict {
    assert!(!runs.is_empty(), "a claim is judged at least once");
    most(runs, runs.len())
}

/// Whether the remaining runs, out of `of`, can't change the verdict of [`together`].
pub fn is_settled(runs: &[Judged], of: usize) -> bool {
    let undecided = runs.iter().filter(|j| j.verdict == Verdict::Undecided).count();
    runs.len() >= of || most(runs, of) != Verdict::Undecided || 2 * undecided > of
}

/// The verdict of more than half of `of` runs, if that many agree: some may hold and others
/// exceed.
fn most(runs: &[Judged], of: usize) -> Verdict {
    let all = |v: Verdict| 2 * runs.iter().filter(|j| j.verdict == v).count() > of;
    let good = runs.iter().filter(|j| j.verdict.is_good()).count();
    match () {
        () if all(Verdict::Exceeds) => Verdict::Exceeds,
        () if 2 * good > of => Verdict::Holds,
        () if all(Verdict::Fails) => Verdict::Fails,
        () => Verdict::Undecided,
    }
}

/// How a claim did compared with its published verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The verdict is the published one.
    AsPublished,
    /// It was published as holding or exceeding and fails; or it isn't measured, or has no bound.
    Broken,
    /// It was published as failing and holds or exceeds.
    Better,
    /// Published as decided and undecided here, or vice versa; or it holds in one and exceeds in
    /// the other: expected now and then of a smaller sample.
    Otherwise,
}

/// Compares the combined verdict of several runs with the claim's published verdict. A claim that
/// has not been measured, or has no bound, does not count as failing as published.
pub fn against(claim: &Claim, runs: &[Judged]) -> Against {
    let is_bounded = |n: &Numbers| n.bound_low.is_some() || n.bound_high.is_some();
    if runs.iter().any(|run| run.measured == NOTHING || !is_bounded(&run.numbers)) {
        return Against::Broken;
    }
    match (claim.expected, together(runs)) {
        (a, Verdict::Fails) if a.is_good() => Against::Broken,
        (Verdict::Fails, b) if b.is_good() => Against::Better,
        (a, b) if a == b => Against::AsPublished,
        _ => Against::Otherwise,
    }
}

/// Whether a sabotage worked: a claim that holds or exceeds must fail, and any other must be farther
/// outside `bound` than without it. An unmeasured claim does not count as failed: then the sabotage
/// only removed the points.
pub fn can_fail(bound: &Bound, honest: &Judged, sabotaged: &Judged) -> bool {
    let off = |j: &Judged| j.numbers.measured.map_or(f64::NAN, |value| bound.off(value));
    sabotaged.verdict == Verdict::Fails
        && sabotaged.numbers.measured.is_some()
        && (honest.verdict.is_good() || off(sabotaged) > off(honest))
}

/// Names of the claims among `others`, each with its verdict, that hold in general but fail with
/// the sabotage of `place`. A claim that its own sabotage doesn't turn names the wrong one, or
/// reads the wrong numbers; what is turned instead tells which.
///
/// # Errors
///
/// If a point can't be measured.
pub fn turned_instead(
    place: &ClaimSite<'_>,
    others: &[(ClaimSite<'_>, Verdict)],
    size: Size,
    settings: &Settings<'_>,
) -> Result<Vec<&'static str>, Error> {
    let beside = |other: &ClaimSite<'_>| {
        std::ptr::eq(other.figure, place.figure) && other.claim.id != place.claim.id
    };
    let good = |(other, verdict): &&(ClaimSite<'_>, Verdict)| beside(other) && verdict.is_good();
    let others: Vec<ClaimSite<'_>> = others.iter().filter(good).map(|(other, _)| *other).collect();
    let batches = batches(&others, size, |_| Sabotage::named(place.claim.sabotage));
    let judged = judge_all(&batches, settings, &())?;
    let turned = others.iter().zip(judged).filter(|(_, j)| j.verdict == Verdict::Fails);
    Ok(turned.map(|(other, _)| other.claim.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Measured;
    use crate::table::Column;
    use Verdict::{Fails, Holds, Undecided};

    /// Smaller values are better.
    const BOUND: Bound = Bound::at_most(1.0, "");

    fn judged(measured: &str, verdict: Verdict) -> Judged {
        let number = measured.parse().ok();
        Judged {
            id: String::new(),
            claim: String::new(),
            published: None,
            reading: String::new(),
            bound: String::new(),
            bound_why: String::new(),
            measured: measured.to_owned(),
            interval: None,
            one_run: false,
            unit: String::new(),
            numbers: Numbers {
                measured: number,
                low: None,
                high: None,
                bound_low: None,
                better_end: None,
                bound_high: Some(1.0),
            },
            verdict,
            expected: Holds,
            note: String::new(),
        }
    }

    #[test]
    fn only_a_measured_failure_counts() {
        let can_fail = |honest, sabotaged| can_fail(&BOUND, &honest, &sabotaged);
        let honest = || judged("0.5", Holds);
        assert!(can_fail(honest(), judged("5.0", Fails)));
        assert!(!can_fail(honest(), judged("0.6", Holds)), "it survived");
        assert!(!can_fail(honest(), judged("0.6", Undecided)), "it may have survived");
        assert!(!can_fail(honest(), judged(NOTHING, Fails)), "its points are gone");
        let failing = || judged("3.8", Fails);
        assert!(can_fail(failing(), judged("4.2", Fails)));
        assert!(!can_fail(failing(), judged("3.8", Fails)), "the judge sees no difference");
        assert!(!can_fail(failing(), judged("3.4", Fails)), "it mends more than it breaks");
    }

    #[test]
    fn claims_are_selected_by_name_and_reading() {
        let papers = crate::papers();
        let named = |wanted, reading| {
            let sites = select(&papers, (wanted, reading), false)?;
            Ok::<_, Error>(sites.iter().map(ClaimSite::name).collect::<Vec<_>>())
        };
        let one = named("dccp-voice/fig3/md-does-not", None).unwrap();
        assert_eq!(one, ["dccp-voice/fig3/md-does-not"]);
        let other = named("dccp-voice/fig3", Some("one-segment")).unwrap();
        let wanted =
            ["dccp-voice/fig3/one-segment-does-not", "dccp-voice/fig3/one-segment-unimpaired"];
        assert_eq!(other, wanted);
        let declared = named("dccp-voice/fig3", Some("declared")).unwrap();
        assert!(declared.contains(&one[0]) && !declared.contains(&wanted[0].to_owned()));
        let said = |wanted| named(wanted, Some("great")).unwrap_err().to_string();
        assert_eq!(
            said("dccp-voice/fig3"),
            "no claim of dccp-voice/fig3 is judged in the reading \"great\": there are declared, \
             one-segment"
        );
        assert!(said("voip-overlay").ends_with("its sentences have one reading each"));
    }

    /// Takes the experiment whose claims read the fewest of its points.
    #[test]
    fn what_is_not_measured_for_a_claim_does_not_change_it() {
        let experiments = crate::wifi_adapt::experiments();
        let stations = experiments.iter().find(|e| e.name == "stations").unwrap();
        let points = (stations.points)(Size::Tiny, Sabotage::NONE);
        let jobs: Vec<Job<'_>> =
            points.iter().map(|point| Job { experiment: stations, point, store: None }).collect();
        let settings = Settings { seed: 1, speech: None, threads: 2 };
        let rows = run::all(&jobs, &settings, &()).unwrap();
        let drawn: Vec<_> = stations.figures.iter().map(|figure| (stations, figure)).collect();
        let (mut spared, mut decided) = (0, 0);
        for place in claims(&drawn) {
            let table = |needed: &dyn Fn(&Point) -> bool| Table {
                columns: stations.columns,
                rows: points
                    .iter()
                    .zip(&rows)
                    .filter(|(p, _)| needed(p))
                    .fold(Vec::new(), |rows, (_, more)| [rows, more.clone()].concat()),
            };
            let [all, its] = [table(&|_| true), table(&|p| place.needs(p))];
            spared += all.rows.len() - its.rows.len();
            let [all, its] = [all, its].map(|table| judge(place.claim, &table));
            assert_eq!(
                (&all.measured, &all.interval),
                (&its.measured, &its.interval),
                "{}",
                place.name()
            );
            decided += usize::from(its.measured != NOTHING);
        }
        assert!(spared > 100 && decided > 20, "{spared} rows spared, {decided} claims judged");
    }

    /// Two columns at 1, one of which a sabotage sets to 0.
    fn two_claims() -> Experiment {
        const COLUMNS: &[Column] = &[Column::number("left", 0), Column::number("right", 0)];
        let claim = |id, column: &'static str, sabotage| Claim {
            measure: Box::new(move |t| Measured::census(t.iter().map(|r| r.number(column)).sum())),
            ..Claim::holding(id, "", None, Bound::at_least(1.0, ""), sabotage)
        };
        let point = |sabotage: Sabotage| Point {
            key: "point".into(),
            x: 0.0,
            figures: vec!["two"],
            weight: 1.0,
            measure: Box::new(move |_| {
                let cut = |name| if sabotage.is(name) { 0.0 } else { 1.0 };
                Ok(vec![vec![cut("cut-left").into(), cut("cut-right").into()]])
            }),
        };
        let figure = Figure {
            name: "two",
            title: "",
            section: "beyond",
            caption: "",
            chart: Box::new(|_| unreachable!("nothing is drawn")),
            claims: vec![
                claim("left", "left", "cut-left"),
                claim("right", "right", "cut-left"),
                claim("neither", "right", "cut-nothing"),
            ],
        };
        Experiment {
            paper: "none",
            name: "two",
            revision: 1,
            columns: COLUMNS,
            needs_speech: false,
            points: Box::new(move |_, sabotage| vec![point(sabotage)]),
            figures: vec![figure],
            testbed: None,
        }
    }

    #[test]
    fn a_sabotage_that_turns_another_claim_is_told() {
        let experiment = two_claims();
        let places = claims(&[(&experiment, &experiment.figures[0])]);
        let settings = Settings { seed: 1, speech: None, threads: 1 };
        let judged = |sabotage: fn(&Claim) -> Sabotage| {
            judge_all(&batches(&places, Size::Tiny, sabotage), &settings, &()).unwrap()
        };
        let honest = judged(|_| Sabotage::NONE);
        let broken = judged(|claim| Sabotage::named(claim.sabotage));
        let turns = |n: usize| can_fail(&places[n].claim.bound, &honest[n], &broken[n]);
        assert_eq!([turns(0), turns(1), turns(2)], [true, false, false]);
        let verdicts: Vec<_> = places.iter().copied().zip([Holds; 3]).collect();
        let instead =
            |n: usize| turned_instead(&places[n], &verdicts, Size::Tiny, &settings).unwrap();
        assert_eq!(instead(1), ["left"]);
        assert!(instead(2).is_empty());
    }

    #[test]
    fn most_of_the_seeds_decide() {
        for (verdicts, all) in [
            (&[Holds][..], Holds),
            (&[Holds, Fails, Holds], Holds),
            (&[Fails, Undecided, Fails], Fails),
            (&[Holds, Undecided, Fails], Undecided),
            (&[Holds, Undecided, Undecided], Undecided),
        ] {
            let runs: Vec<Judged> = verdicts.iter().map(|v| judged("", *v)).collect();
            assert_eq!(together(&runs), all);
        }
    }

    #[test]
    fn what_was_not_measured_does_not_fail_as_published() {
        let claim = Claim { expected: Fails, ..Claim::default() };
        assert_eq!(against(&claim, &[judged("5.0", Fails)]), Against::AsPublished);
        assert_eq!(against(&claim, &[judged(NOTHING, Fails)]), Against::Broken);
        let mut unbounded = judged("5.0", Fails);
        unbounded.numbers.bound_high = None;
        assert_eq!(against(&claim, &[unbounded]), Against::Broken);
    }

    #[test]
    fn what_is_settled_stays_so() {
        for runs in [[Holds, Holds], [Fails, Fails], [Undecided, Undecided], [Holds, Fails]] {
            let all = |third| [runs[0], runs[1], third].map(|v| judged("", v));
            let outcomes = [Holds, Fails, Undecided].map(|third| together(&all(third)));
            let settled = is_settled(&all(Holds)[..2], 3);
            assert_eq!(settled, outcomes.iter().all(|v| *v == outcomes[0]), "{runs:?}");
        }
        assert!(!is_settled(&[judged("", Holds)], 3) && is_settled(&[judged("", Holds)], 1));
    }
}
