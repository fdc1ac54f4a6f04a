//! Compares a stored claim with the code.

use super::check::{GENERATE, MEASURE};
use super::{ClaimResult, FigureResult};
use crate::claim::{Claim, Verdict};
use crate::experiment::Size;
use crate::output::{self, MORE_DECIMALS, NOTHING};

/// A difference between stored and computed: the key, a description, and the cure.
pub(super) type Wrong = (&'static str, String, &'static str);

/// The first difference between a stored claim and the code.
pub(super) fn wrong(name: &str, claim: &Claim, result: &FigureResult) -> Option<Wrong> {
    let place = format!("{name} {}", claim.id);
    let Some(stored) = result.claims.get(claim.id) else {
        return Some(("", format!("no result of the claim {place} is stored"), MEASURE));
    };
    let wrong = other_words(claim, stored).or_else(|| numbers(claim, stored));
    let wrong = wrong.or_else(|| unexpected(claim, stored, result.size));
    wrong.map(|(key, what, cure)| (key, format!("{place}: {what}"), cure))
}

/// Compares what the code says about the claim.
fn other_words(claim: &Claim, stored: &ClaimResult) -> Option<Wrong> {
    if stored.published.as_deref() != claim.published {
        let [is, code] = [stored.published.as_deref(), claim.published];
        let [is, code] = [is, code].map(|text| text.unwrap_or("nothing"));
        let what = format!("\"{is}\" is stored as published, and the code has \"{code}\"");
        return Some(("published", what, GENERATE));
    }
    let bound = claim.bound.text(claim.decimals);
    if (stored.bound.as_str(), stored.unit.as_str()) != (&bound, claim.unit) {
        let [is, code] = [(&stored.bound, stored.unit.as_str()), (&bound, claim.unit)]
            .map(|(b, u)| format!("{b} {u}"));
        let what = format!("it was judged by \"{is}\", and the code's bound is \"{code}\"");
        return Some(("bound", what, MEASURE));
    }
    None
}

/// Checks that the measured value is within its interval, from which the verdict follows.
fn numbers(claim: &Claim, stored: &ClaimResult) -> Option<Wrong> {
    let ClaimResult { measured, interval, .. } = stored;
    // Without an interval, the verdict follows from the value.
    let [low, high] = interval.as_ref().map_or([measured; 2], |[low, high]| [low, high]);
    if measured == NOTHING {
        let what = "the points that it needs have not been measured".to_owned();
        return Some(("measured", what, MEASURE));
    }
    let least = claim.decimals;
    let decimals = decimals(measured).clamp(least, least + MORE_DECIMALS);
    let mut numbers = [f64::NAN; 3];
    for (number, (key, text)) in
        numbers.iter_mut().zip([("measured", measured), ("interval", low), ("interval", high)])
    {
        let Some(n) = output::number(text, decimals) else {
            let decimals = output::counted(decimals, "decimal");
            let what = format!("\"{text}\" is not a number with {decimals}");
            return Some((key, what, MEASURE));
        };
        *number = n;
    }
    let [value, from, to] = numbers;
    if from > to {
        return Some(("interval", format!("the interval {low} to {high} is reversed"), MEASURE));
    }
    if value < from || value > to {
        let what = format!("{measured} is outside of its interval, {low} to {high}");
        return Some(("measured", what, MEASURE));
    }
    if !possible(claim, decimals, (from, to)).contains(&stored.verdict) {
        let (verdict, bound) = (stored.verdict.name(), &stored.bound);
        let what = format!("\"{verdict}\" does not follow from {low} to {high}, {bound}");
        return Some(("verdict", what, MEASURE));
    }
    None
}

/// Compares the verdict with the expected one.
fn unexpected(claim: &Claim, stored: &ClaimResult, size: Size) -> Option<Wrong> {
    // A smaller sample may leave open what a larger one decides, also by how much it holds.
    let is_open = [stored.verdict, claim.expected].contains(&Verdict::Undecided)
        || stored.verdict.is_good() && claim.expected.is_good();
    if stored.verdict == claim.expected || (size != Size::Full && is_open) {
        return None;
    }
    let [is, expected] = [stored.verdict, claim.expected].map(Verdict::name);
    let what = format!("\"{is}\" is stored, and the code expects \"{expected}\"");
    let cure = "find out why, then change the claim's `expected`, or mend what broke it";
    Some(("verdict", what, cure))
}

/// Number of digits behind the point.
fn decimals(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, digits)| digits.len())
}

/// The verdicts that an interval allows before it was rounded to this many decimals.
fn possible(claim: &Claim, decimals: usize, (low, high): (f64, f64)) -> Vec<Verdict> {
    let half = 0.5 * libm::pow(10.0, -(decimals as f64));
    let near = [-half, 0.0, half];
    let all = near.iter().flat_map(|a| near.iter().map(move |b| (low + a, high + b)));
    all.map(|interval| claim.bound.judge(interval)).collect()
}
