//! `trunkline-lab check`: whether claims still do what was published, and each can fail.

use super::How;
use crate::progress::{Bar, Weighed};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use trunkline_lab::check::{self, Against, ClaimSite};
use trunkline_lab::claim::{Claim, Verdict};
use trunkline_lab::experiment::{Sabotage, Size};
use trunkline_lab::output::Judged;
use trunkline_lab::run::Settings;
use trunkline_lab::score::Score;
use trunkline_lab::{Error, Papers, sabotages};

/// Check that every claim still does what was published
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exits with 1 if a claim that was published as holding fails (at full size: or is
undecided); with --sabotage, if a claim survives what should make it fail. Stores
nothing. `trunkline-lab list PAPER/FIGURE/CLAIM` says what a claim's sabotage changes.

Examples:
  trunkline-lab check --quick
  trunkline-lab check --quick dccp-voice/fig3/sp-fr-drops
  trunkline-lab check --quick dccp-voice --reading one-segment
  trunkline-lab check --quick --sabotage voip-overlay/fig4
  trunkline-lab check --quick --with other-traffic-3 wifi-adapt/fig4")]
pub struct Check {
    /// PAPER/FIGURE/CLAIM, PAPER/FIGURE, PAPER, `papers` (all five), or `all` for every figure;
    /// `trunkline-lab list` has their names
    #[arg(default_value = "all")]
    what: String,
    /// Only claims that judge a paper's sentence in this reading: its name, or `declared`
    #[arg(long, value_name = "NAME")]
    reading: Option<String>,
    #[command(flatten)]
    how: How,
    /// Apply the sabotage of each claim, or with =N of every Nth, and check that the claim fails
    #[arg(
        long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u16).range(1..)
    )]
    sabotage: Option<u16>,
    /// Measure with one change for all claims, a sabotage or a variation of their paper, and
    /// compare with what is published without it: docs/results/PAPER.md lists them
    #[arg(long, value_name = "NAME", conflicts_with = "sabotage")]
    with: Option<String>,
    /// Judge this many runs, with consecutive seeds, by the majority of their verdicts [default: 3
    /// with --quick, else 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    seeds: Option<u8>,
}

/// Judges claims as `args` say, and prints a line on each. Returns whether all do as published, and
/// each sabotaged one fails.
pub fn run(papers: &Papers, args: &Check) -> Result<bool, Error> {
    let places = check::select(papers, (&args.what, args.reading.as_deref()), false)?;
    let how = &args.how;
    let needs_speech = places.iter().any(|p| p.experiment.needs_speech);
    let speech = how.speech.load(needs_speech)?;
    let settings = |seed| Settings { seed, speech: speech.as_ref(), threads: how.threads() };
    let change = match &args.with {
        Some(name) => sabotages::find(places.iter().map(|p| p.experiment.paper), name)?,
        None => Sabotage::NONE,
    };
    let judge = |places: &[ClaimSite<'_>], sabotage: &dyn Fn(&Claim) -> Sabotage, seed| {
        let settings = settings(seed);
        let batches = check::batches(places, how.size(), sabotage);
        let (points, weight) = check::extent(&batches);
        let bar = Bar::new(points, "point");
        let judged = check::judge_all(&batches, &settings, &Weighed(&bar, weight));
        bar.finish();
        judged
    };
    let seeds = args.seeds.map_or(if how.quick { 3 } else { 1 }, u64::from);
    let seeds: Vec<u64> = (0..seeds).map(|n| how.seed.wrapping_add(n)).collect();
    let honest = |places: &[ClaimSite<'_>], seed| judge(places, &|_| change, seed);
    let runs = until_settled(&places, &seeds, honest)?;
    let mut sabotaged: BTreeMap<usize, Judged> = BTreeMap::new();
    if let Some(every) = args.sabotage {
        let sample = (0..places.len()).step_by(every.into());
        let of: Vec<ClaimSite<'_>> = sample.clone().map(|n| places[n]).collect();
        let named = |claim: &Claim| Sabotage::named(claim.sabotage);
        sabotaged = sample.zip(judge(&of, &named, how.seed)?).collect();
    }
    let verdicts: Vec<_> =
        places.iter().zip(&runs).map(|(place, runs)| (*place, runs[0].verdict)).collect();
    let (mut good, mut score) = (true, Score::default());
    for (n, (place, runs)) in places.iter().zip(&runs).enumerate() {
        let verdict = check::together(runs);
        score.add(place.experiment.paper, place.claim, verdict);
        let against = match check::against(place.claim, runs) {
            // Published without the change.
            Against::Broken if args.with.is_some() => Against::Otherwise,
            against => against,
        };
        // A claim published as decided must be decided wherever as much is measured.
        let fickle = place.claim.expected.is_good()
            && verdict == Verdict::Undecided
            && how.size() == Size::Full;
        good &= against != Against::Broken && !fickle;
        let broken = sabotaged.get(&n);
        let survives = broken.is_some_and(|b| !check::can_fail(&place.claim.bound, &runs[0], b));
        outln!("{}", told(place, runs, (verdict, against), survives));
        if let Some(broken) = broken {
            outln!("    {}", turned(place, broken));
        }
        if survives {
            good = false;
            let settings = settings(how.seed);
            let turned = check::turned_instead(place, &verdicts, how.size(), &settings)?;
            if !turned.is_empty() {
                outln!("    {} turns instead: {}", place.claim.sabotage, turned.join(", "));
            }
        }
    }
    // Other readings than the declared one count nothing.
    if score.published().all() + score.own.all() > 0 {
        outln!("{}", score.text());
    }
    Ok(good)
}

/// Runs of each claim, one with each seed until a majority has decided.
fn until_settled(
    places: &[ClaimSite<'_>],
    seeds: &[u64],
    judge: impl Fn(&[ClaimSite<'_>], u64) -> Result<Vec<Judged>, Error>,
) -> Result<Vec<Vec<Judged>>, Error> {
    let mut runs: Vec<Vec<Judged>> = vec![Vec::new(); places.len()];
    for &seed in seeds {
        let open: Vec<usize> =
            (0..places.len()).filter(|n| !check::is_settled(&runs[*n], seeds.len())).collect();
        if open.is_empty() {
            break;
        }
        let again: Vec<ClaimSite<'_>> = open.iter().map(|n| places[*n]).collect();
        for (n, judged) in open.into_iter().zip(judge(&again, seed)?) {
            runs[n].push(judged);
        }
    }
    Ok(runs)
}

/// One line of `check` about a claim.
fn told(
    place: &ClaimSite<'_>,
    runs: &[Judged],
    (verdict, against): (Verdict, Against),
    survives: bool,
) -> String {
    let word = match against {
        _ if survives => "CAN'T FAIL".to_owned(),
        Against::AsPublished if verdict.is_good() => verdict.name().to_owned(),
        Against::AsPublished => format!("{}, as published", verdict.name()),
        Against::Better => format!("{}, and was published as failing", verdict.name()),
        Against::Broken => "NO LONGER HOLDS".to_owned(),
        Against::Otherwise => {
            format!("{}, published as \"{}\"", verdict.name(), place.claim.expected.name())
        }
    };
    let mut line = format!("{word}: {}: {}", place.name(), runs[0].numbers());
    if let [_, others @ ..] = runs
        && !others.is_empty()
    {
        let others = others.iter().map(|j| j.measured.as_str()).collect::<Vec<_>>().join(", ");
        let _ = write!(line, "; other seeds: {others}");
    }
    if let Some(published) = &runs[0].published {
        let _ = write!(line, " (paper: {published})");
    }
    if let Some(reading) = place.reading() {
        let _ = write!(line, " (reading: {reading})");
    }
    line
}

/// The line about a sabotaged claim: what the sabotage changes, and what becomes of the claim.
fn turned(place: &ClaimSite<'_>, broken: &Judged) -> String {
    let name = place.claim.sabotage;
    let does = sabotages::about(place.experiment.paper, name).unwrap_or("undescribed");
    format!("sabotaged by {name} ({does}): {}: {}", broken.value(), broken.verdict.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_lab::claim::{Bound, Measured};
    use trunkline_lab::output::judge;
    use trunkline_lab::table::Table;

    #[test]
    fn a_sabotaged_claim_has_a_value_with_its_interval_and_a_verdict() {
        let papers = trunkline_lab::papers();
        let sites = check::select(&papers, ("voip-overlay/fig4/overhead", None), false).unwrap();
        let claim = Claim {
            measure: Box::new(|_| Measured::new(7.0, (6.5, 7.25))),
            bound: Bound::at_most(1.0, ""),
            unit: "% more bytes",
            ..Claim::default()
        };
        let broken = judge(&claim, &Table { columns: &[], rows: Vec::new() });
        assert_eq!(
            turned(&sites[0], &broken),
            "sabotaged by hello-every-20-ms (hellos every 20 ms instead of every second): 7.00 (6.50 \
             to 7.25) % more bytes: fails"
        );
    }
}
