//! Claims about a figure that its data can contradict. What a paper published, what it is compared
//! with, and what was measured are kept apart.

use crate::table::{Record, Table};
use serde::{Deserialize, Serialize};
use trunkline_base::stats::poisson;

/// A statement that the data can contradict.
pub struct Claim {
    /// Identifier, short and unique within the figure.
    pub id: &'static str,
    /// The statement that is judged, in this project's words.
    pub statement: &'static str,
    /// The paper's statement with its number, in this project's words; `None` for a claim that no
    /// paper makes. Claims of one paper with the same text are readings of one sentence.
    pub published: Option<&'static str>,
    /// Name of the set-up in which the paper's sentence is judged, among its
    /// [`Paper::readings`](crate::papers::Paper::readings); empty for the declared one.
    pub reading: &'static str,
    /// The values that the claim allows.
    pub bound: Bound,
    /// The unit of the bound and the measured value.
    pub unit: &'static str,
    /// Number of decimals with which the bound and the measured value are printed.
    pub decimals: usize,
    /// Computes the measured value from a table that has the points at [`Claim::at`].
    pub measure: Box<dyn Fn(&Table) -> Measured + Send + Sync>,
    /// Positions on the horizontal axis that the claim reads; all if empty.
    pub at: &'static [f64],
    /// Whether the claim reads a point with this key.
    pub reads: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// The verdict published with this version, at full size.
    pub expected: Verdict,
    /// Why the claim fails or is undecided, or other context for the reader.
    pub why: &'static str,
    /// The sabotage that must make the claim fail; empty where real daemons would have to be
    /// broken.
    pub sabotage: &'static str,
}

/// Outcome of a claim.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval is within the bound.
    Holds,
    /// The whole interval is beyond the better end of what the paper says.
    Exceeds,
    /// The whole interval is outside the bound.
    Fails,
    /// Part of the interval is within the bound: more measurements could decide either way.
    Undecided,
}

impl Verdict {
    /// The verdict in one word, as the console and reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Exceeds => "exceeds",
            Verdict::Fails => "fails",
            Verdict::Undecided => "undecided",
        }
    }

    /// Whether the measured value is as good as the claim says.
    pub fn is_good(self) -> bool {
        matches!(self, Verdict::Holds | Verdict::Exceeds)
    }

    /// The verdict on two claims together.
    pub fn and(self, other: Verdict) -> Verdict {
        let either = |v| self == v || other == v;
        let order = [Verdict::Fails, Verdict::Undecided, Verdict::Exceeds];
        order.into_iter().find(|v| either(*v)).unwrap_or(Verdict::Holds)
    }
}

/// A claim that is expected to hold, on a number without a unit and with two decimals. `measure`
/// and `bound` have yet to be set.
impl Default for Claim {
    fn default() -> Claim {
        Claim {
            id: "",
            statement: "",
            published: None,
            reading: "",
            bound: Bound::within(f64::NAN, f64::NAN, ""),
            unit: "",
            decimals: 2,
            measure: Box::new(|_| Measured::census(f64::NAN)),
            at: &[],
            reads: Box::new(|_| true),
            expected: Verdict::Holds,
            why: "",
            sabotage: "",
        }
    }
}

impl Claim {
    /// A claim that is expected to hold. `measure` has yet to be set.
    pub fn holding(
        id: &'static str,
        says: &'static str,
        published: Option<&'static str>,
        bound: Bound,
        sabotage: &'static str,
    ) -> Claim {
        Claim { id, statement: says, published, bound, sabotage, ..Claim::default() }
    }
}

/// The values that a claim allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    low: f64,
    high: f64,
    /// Whether both ends are included.
    closed: bool,
    /// The better end of what the paper says, within the allowed range, if it says one.
    better: Option<f64>,
    /// Reason for the bound: the arithmetic from the paper's words, or whose target it is.
    pub why: &'static str,
}

/// Reason for a bound that no paper gives.
pub const OWN_TARGET: &str = "this project's own target";

impl Bound {
    /// Allows values up to and including `high`.
    pub const fn at_most(high: f64, why: &'static str) -> Bound {
        Bound { low: f64::NEG_INFINITY, high, closed: true, better: None, why }
    }

    /// Allows values from `low` upwards.
    pub const fn at_least(low: f64, why: &'static str) -> Bound {
        Bound { low, high: f64::INFINITY, closed: true, better: None, why }
    }

    /// Allows values from `low` to `high`, both included.
    pub const fn within(low: f64, high: f64, why: &'static str) -> Bound {
        Bound { low, high, closed: true, better: None, why }
    }

    /// Allows values above `low`, which is excluded.
    pub const fn above(low: f64, why: &'static str) -> Bound {
        Bound { low, high: f64::INFINITY, closed: false, better: None, why }
    }

    /// Allows values below `high`, which is excluded.
    pub const fn below(high: f64, why: &'static str) -> Bound {
        Bound { low: f64::NEG_INFINITY, high, closed: false, better: None, why }
    }

    /// Adds the better end of what the paper says: "three to four times as much" is at least 3, and
    /// 4 is its better end. A value wholly beyond that exceeds what the paper says, which
    /// is no confirmation of it.
    ///
    /// # Panics
    ///
    /// If the bound has two ends already, or `end` is outside of it.
    pub const fn better(self, end: f64) -> Bound {
        let is_one_sided = self.low.is_finite() != self.high.is_finite();
        assert!(is_one_sided && self.low <= end && end <= self.high, "the better end is allowed");
        Bound { better: Some(end), ..self }
    }

    /// The better end of what the paper says, if it says one.
    pub fn better_end(&self) -> Option<f64> {
        self.better
    }

    /// The ends of the allowed range, whether included or not.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Verdict on a measured interval.
    pub fn judge(&self, (low, high): (f64, f64)) -> Verdict {
        let inside = |x: f64| match self.closed {
            true => self.low <= x && x <= self.high,
            false => self.low < x && x < self.high,
        };
        let outside = match self.closed {
            true => high < self.low || low > self.high,
            false => high <= self.low || low >= self.high,
        };
        let exceeds = self.better.is_some_and(|end| match self.low.is_finite() {
            true => low > end,
            false => high < end,
        });
        match () {
            () if exceeds => Verdict::Exceeds,
            () if inside(low) && inside(high) => Verdict::Holds,
            () if outside => Verdict::Fails,
            () => Verdict::Undecided,
        }
    }

    /// How many times as many runs would probably decide about a value that stays the same: the
    /// interval must end before the bound does. Infinite if the value is at the bound; `None` if
    /// the interval decides or is not known.
    pub fn runs_to_decide(&self, measured: &Measured) -> Option<f64> {
        let Measured { estimate, interval: (low, high), .. } = *measured;
        if self.judge((low, high)) != Verdict::Undecided || !(high - low).is_finite() {
            return None;
        }
        let times = |end: f64, bound: f64| {
            let narrower = (end - estimate) / (bound - estimate);
            // Intervals narrow with the square root of the number of runs; those of an event that
            // never happened, with the number.
            if low == estimate { narrower } else { narrower * narrower }
        };
        Some(match () {
            () if estimate < self.low => times(high, self.low),
            () if estimate > self.high => times(low, self.high),
            () => times(low, self.low.max(low)).max(times(high, self.high.min(high))),
        })
    }

    /// Distance of a value from the allowed range; 0 within it.
    pub fn off(&self, value: f64) -> f64 {
        (self.low - value).max(value - self.high).max(0.0)
    }

    /// The bound in words, such as `at most 0.55`, with this many decimals.
    pub fn text(&self, decimals: usize) -> String {
        let Bound { low, high, closed, better, .. } = *self;
        let range = match (low.is_finite(), high.is_finite(), closed) {
            (true, true, _) => format!("{low:.decimals$} to {high:.decimals$}"),
            (true, _, true) => format!("at least {low:.decimals$}"),
            (true, _, false) => format!("more than {low:.decimals$}"),
            (_, _, true) => format!("at most {high:.decimals$}"),
            (_, _, false) => format!("less than {high:.decimals$}"),
        };
        match better {
            Some(end) => format!("{range} (the paper's better end: {end:.decimals$})"),
            None => range,
        }
    }
}

/// The difference that two measurements of one quantity may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Share of the reference's value.
    pub share: f64,
    /// The difference that is allowed if the share of the value is smaller, in its unit.
    pub least: f64,
}

/// The bound on a difference in units of the allowed one.
pub const AGREES: Bound = Bound::at_most(1.0, "the allowed difference");

impl Tolerance {
    /// For shares of missed packets in percent, in the simulator and with real daemons.
    pub const MISSED_PCT: Tolerance = Tolerance { share: 0.15, least: 0.1 };

    /// Distance of a value from the reference, measured independently, in units of the allowed
    /// difference.
    pub fn apart(self, reference: &Measured, other: &Measured) -> Measured {
        let allowed = (self.share * reference.estimate).max(self.least);
        other.minus(reference).times(1.0 / allowed).abs()
    }
}

/// How many runs would decide, in words, from [`Bound::runs_to_decide`].
pub fn runs_in_words(times: f64) -> String {
    // More than can be made.
    const TOO_MANY: f64 = 10_000.0;
    match times {
        n if n > TOO_MANY => "no number of runs decides so close to the bound".into(),
        n => format!("about {:.0} times as many runs would decide", libm::ceil(n)),
    }
}

/// Source of a value, which decides whether it has an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// A count, an extreme of all runs, or a result without chance: exact as it is.
    Exact,
    /// A single run, which says nothing about how much others would differ.
    OneRun,
    /// A sample, whose spread gives the interval.
    Sample,
}

/// A value with its confidence interval, and a note on the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The measured value, in the claim's unit.
    pub estimate: f64,
    /// Its 95 % interval. Without one, what the verdict follows from: the value itself, or NaN
    /// where a single run must not decide.
    pub interval: (f64, f64),
    /// Source of the value, and so of its interval.
    pub basis: Basis,
    /// Further facts from the data for the reader; may be empty.
    pub note: String,
}

impl Measured {
    /// A value with its 95 % interval; a value of a single run if an end is NaN.
    pub fn new(estimate: f64, interval: (f64, f64)) -> Measured {
        let has_ends = !interval.0.is_nan() && !interval.1.is_nan();
        let basis = if has_ends { Basis::Sample } else { Basis::OneRun };
        Measured { estimate, interval, basis, note: String::new() }
    }

    /// A count, or the extreme of all runs: exact for those runs, whatever others would give.
    pub fn census(value: f64) -> Measured {
        Measured { basis: Basis::Exact, ..Measured::new(value, (value, value)) }
    }

    /// A value of the only run, for a claim about that run: it decides, and has no interval.
    pub fn of_one_run(value: f64) -> Measured {
        Measured { basis: Basis::OneRun, ..Measured::census(value) }
    }

    /// The 95 % interval, if there is one.
    pub fn known_interval(&self) -> Option<(f64, f64)> {
        Some(self.interval).filter(|_| self.basis == Basis::Sample)
    }

    /// The same, computed from `parts`: a sample among them makes it one, and then a single run.
    fn from(self, parts: &[&Measured]) -> Measured {
        let basis = parts.iter().map(|part| part.basis).max();
        Measured { basis: basis.unwrap_or(self.basis), ..self }
    }

    /// Rate of independent events per unit of `exposure`, from their count, with the exact interval
    /// of a count.
    pub fn rate(events: f64, exposure: f64) -> Measured {
        // Also covers a missing count: NaN is not zero events.
        if !(events >= 0.0 && exposure > 0.0) {
            return Measured::census(f64::NAN);
        }
        let (low, high) = poisson(events as u64);
        Measured::new(events / exposure, (low / exposure, high / exposure))
    }

    /// The value and both ends of its interval, from three columns of a row.
    pub fn of(row: &Record<'_>, [value, low, high]: [&str; 3]) -> Measured {
        Measured::new(row.number(value), (row.number(low), row.number(high)))
    }

    /// The same value with this note instead of its own.
    pub fn noting(self, note: impl Into<String>) -> Measured {
        Measured { note: note.into(), ..self }
    }

    /// The same, with an interval that ends where the quantity does: the interval of the mean of few
    /// runs may be longer.
    pub fn limited(self, least: f64, most: f64) -> Measured {
        let (low, high) = self.interval;
        Measured { interval: (low.clamp(least, most), high.clamp(least, most)), ..self }
    }

    /// `self - other`, both measured independently of each other (Zou and
    /// Donner, *Construction of confidence limits about effect measures*, 2008).
    pub fn minus(&self, other: &Measured) -> Measured {
        let (a, b) = (self, other);
        let estimate = a.estimate - b.estimate;
        let low = libm::hypot(a.estimate - a.interval.0, b.interval.1 - b.estimate);
        let high = libm::hypot(a.interval.1 - a.estimate, b.estimate - b.interval.0);
        Measured::new(estimate, (estimate - low, estimate + high)).from(&[a, b])
    }

    /// The value and its interval multiplied by `k`, which may be negative.
    pub fn times(&self, k: f64) -> Measured {
        let (low, high) = (k * self.interval.0, k * self.interval.1);
        Measured::new(k * self.estimate, if k < 0.0 { (high, low) } else { (low, high) })
            .from(&[self])
    }

    /// The distance from zero.
    pub fn abs(&self) -> Measured {
        let (low, high) = self.interval;
        let nearest = if low <= 0.0 && high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) };
        Measured::new(self.estimate.abs(), (nearest, low.abs().max(high.abs()))).from(&[self])
    }

    /// The mean of values measured independently of each other.
    pub fn mean(values: &[Measured]) -> Measured {
        let n = values.len() as f64;
        let estimate = values.iter().map(|v| v.estimate).sum::<f64>() / n;
        let half = |end: fn(&Measured) -> f64| {
            libm::sqrt(values.iter().map(|v| end(v) * end(v)).sum::<f64>()) / n
        };
        let low = half(|v| v.estimate - v.interval.0);
        let high = half(|v| v.interval.1 - v.estimate);
        Measured::new(estimate, (estimate - low, estimate + high))
            .from(&values.iter().collect::<Vec<_>>())
    }

    /// The maximum of several values: the true one is at least as large as the lower end of each
    /// interval, and at most as large as the largest upper end. NaN if there are none, or one is
    /// NaN: a claim must not hold because its points are missing.
    pub fn maximum(values: impl IntoIterator<Item = Measured>) -> Measured {
        let values: Vec<Measured> = values.into_iter().collect();
        let of = |f: fn(&Measured) -> f64| maximum(values.iter().map(f));
        Measured::new(of(|v| v.estimate), (of(|v| v.interval.0), of(|v| v.interval.1)))
            .from(&values.iter().collect::<Vec<_>>())
    }

    /// The minimum of several values, with an interval computed as in [`Measured::maximum`].
    pub fn minimum(values: impl IntoIterator<Item = Measured>) -> Measured {
        Measured::maximum(values.into_iter().map(|v| v.times(-1.0))).times(-1.0)
    }

    /// Largest difference between any two of the values.
    pub fn range(values: &[Measured]) -> Measured {
        let pairs = values.iter().flat_map(|a| values.iter().map(|b| a.minus(b)));
        let far = Measured::maximum(pairs);
        Measured { interval: (far.interval.0.max(0.0), far.interval.1), ..far }
    }
}

/// A note on what the worst of this many runs implies for others: by the rule of three, an event
/// that none of `n` runs showed has a probability of at most 3/n, at 95 %.
pub fn worst_of(runs: f64) -> String {
    let share = (300.0 / runs).min(100.0);
    format!("Worst of {runs:.0}: at most {share:.1} % of others take longer (rule of three).")
}

/// The maximum of several measurements; NaN if there are none, or one is NaN: a
/// claim must not hold because its points are missing.
pub fn maximum(values: impl IntoIterator<Item = f64>) -> f64 {
    let max = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    values.into_iter().reduce(max).unwrap_or(f64::NAN)
}

/// The minimum of several measurements; NaN if there are none, or one is NaN.
pub fn minimum(values: impl IntoIterator<Item = f64>) -> f64 {
    -maximum(values.into_iter().map(|v| -v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_no_extreme() {
        assert_eq!((maximum([1.0, 3.0, 2.0]), minimum([1.0, 3.0, 2.0])), (3.0, 1.0));
        for none in [&[][..], &[f64::NAN, 1.0], &[1.0, f64::NAN]] {
            assert!(maximum(none.iter().copied()).is_nan());
            assert!(minimum(none.iter().copied()).is_nan());
            let measured = none.iter().map(|v| Measured::census(*v));
            assert!(Measured::maximum(measured).estimate.is_nan());
        }
        assert!(Measured::range(&[]).estimate.is_nan() && Measured::mean(&[]).estimate.is_nan());
    }

    #[test]
    fn a_distance_from_zero_has_the_nearest_and_the_farthest_of_an_interval() {
        for (interval, wanted) in
            [((-3.0, 1.0), (0.0, 3.0)), ((-3.0, -1.0), (1.0, 3.0)), ((2.0, 4.0), (2.0, 4.0))]
        {
            assert_eq!(Measured::new(1.0, interval).abs().interval, wanted);
        }
        assert_eq!(Measured::census(-2.0).abs(), Measured::census(2.0));
    }

    #[test]
    fn a_count_has_an_interval() {
        let none = Measured::rate(0.0, 10.0);
        assert_eq!((none.estimate, none.interval.0), (0.0, 0.0));
        assert!((none.interval.1 - 0.369).abs() < 1e-3);
        assert!(Measured::rate(f64::NAN, 10.0).estimate.is_nan());
        assert!(Measured::rate(1.0, f64::NAN).estimate.is_nan());
        let worst = "Worst of 1000: at most 0.3 % of others take longer (rule of three).";
        assert_eq!(worst_of(1_000.0), worst);
    }

    #[test]
    fn the_interval_alone_decides() {
        use Verdict::{Exceeds, Fails, Holds, Undecided};
        let bound = Bound::within(1.0, 2.0, "");
        for (interval, verdict) in [
            ((1.0, 2.0), Holds),
            ((1.2, 1.3), Holds),
            ((0.9, 1.1), Undecided),
            ((0.5, 2.5), Undecided),
            ((2.1, 2.5), Fails),
            ((0.1, 0.9), Fails),
            ((f64::NAN, f64::NAN), Undecided),
        ] {
            assert_eq!(bound.judge(interval), verdict, "{interval:?}");
        }
        let none = (0.0, 0.0);
        assert_eq!(Bound::at_most(0.0, "").judge(none), Holds);
        assert_eq!(Bound::below(0.0, "").judge(none), Fails);
        assert_eq!(Bound::above(0.0, "").judge((0.0, 1.0)), Undecided);
        assert_eq!(Bound::at_least(0.0, "").judge((0.0, 1.0)), Holds);
        assert_eq!([0.5, 1.5, 2.25].map(|x| bound.off(x)), [0.5, 0.0, 0.25]);
        for (bound, interval, verdict) in [
            (Bound::at_least(3.0, "").better(4.0), (3.0, 4.0), Holds),
            (Bound::at_least(3.0, "").better(4.0), (3.9, 4.1), Holds),
            (Bound::at_least(3.0, "").better(4.0), (4.1, 20.0), Exceeds),
            (Bound::at_least(3.0, "").better(4.0), (2.9, 4.1), Undecided),
            (Bound::at_least(3.0, "").better(4.0), (2.0, 2.9), Fails),
            (Bound::below(3.0, "").better(2.0), (0.1, 1.9), Exceeds),
            (Bound::below(3.0, "").better(2.0), (1.9, 2.1), Holds),
            (Bound::below(3.0, "").better(2.0), (3.0, 3.1), Fails),
        ] {
            assert_eq!(bound.judge(interval), verdict, "{bound:?} {interval:?}");
        }
        let better = Bound::at_least(3.0, "").better(4.0).text(0);
        assert_eq!(better, "at least 3 (the paper's better end: 4)");
        let texts = [Bound::at_most(0.5, ""), Bound::above(1.0, ""), bound].map(|b| b.text(2));
        assert_eq!(texts, ["at most 0.50", "more than 1.00", "1.00 to 2.00"]);
    }

    #[test]
    fn an_undecided_claim_needs_more_runs() {
        let bound = Bound::within(1.0, 2.0, "");
        let needed = |estimate, interval| bound.runs_to_decide(&Measured::new(estimate, interval));
        // The lower half of the interval must be a quarter as long, the upper one half.
        assert_eq!(needed(1.5, (-0.5, 2.5)), Some(16.0));
        assert_eq!(needed(1.5, (1.25, 3.0)), Some(9.0));
        assert_eq!((needed(3.0, (0.0, 6.0)), needed(0.5, (0.0, 2.0))), (Some(9.0), Some(9.0)));
        assert_eq!(needed(1.0, (0.0, 2.0)), Some(f64::INFINITY));
        for decided in [(1.2, 1.8), (2.1, 3.0), (f64::NAN, f64::NAN)] {
            assert_eq!(needed(1.5, decided), None);
        }
        // An event that never happened.
        let never = Measured::new(0.0, (0.0, 0.5));
        assert_eq!(Bound::at_most(0.125, "").runs_to_decide(&never), Some(4.0));
    }

    #[test]
    fn intervals_of_what_is_reckoned() {
        let a = Measured::new(5.0, (2.0, 8.0));
        let b = Measured::new(1.0, (-3.0, 5.0));
        let d = a.minus(&b);
        assert_eq!((d.estimate, d.interval), (4.0, (-1.0, 9.0)));
        let mean = Measured::mean(&[a.clone(), a.clone(), a.clone(), a.clone()]);
        assert_eq!((mean.estimate, mean.interval), (5.0, (3.5, 6.5)));
        let range = Measured::range(&[a, b.clone(), b]);
        assert_eq!((range.estimate, range.interval), (4.0, (0.0, 9.0)));
        assert_eq!(Measured::census(2.0).times(-3.0), Measured::census(-6.0));
    }
}
