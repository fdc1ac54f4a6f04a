//! What an experiment is: independent points, the figures drawn from them, and
//! the paper's claims that they are held against.

use crate::plot::Chart;
use crate::speech::Speech;
use crate::table::{Cell, Column, Table};
use trunkline_sim::WorldError;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// What a test can afford: the machinery, not the claims.
    Tiny,
    /// A minute for everything: enough to judge the claims.
    Quick,
    /// As much as the paper measured.
    Full,
}

impl Size {
    /// Each.
    pub const ALL: [Size; 3] = [Size::Tiny, Size::Quick, Size::Full];

    /// Its name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Size::Tiny => "tiny",
            Size::Quick => "quick",
            Size::Full => "full",
        }
    }

    /// One of three values.
    pub fn pick<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// One thing broken on purpose, by name; or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sabotage(Option<&'static str>);

impl Sabotage {
    /// Nothing is broken.
    pub const NONE: Sabotage = Sabotage(None);

    /// What `name` breaks, as the experiment defines it.
    pub fn named(name: &'static str) -> Sabotage {
        Sabotage(Some(name))
    }

    /// Whether it is `name` that is broken.
    pub fn is(self, name: &str) -> bool {
        self.0 == Some(name)
    }
}

/// What a point gets besides its own parameters.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// What everything random follows from; a point's own (see [`Point::seed`]).
    pub seed: u64,
    /// The recordings, where an experiment asks for them.
    pub speech: Option<&'a Speech>,
}

/// Why a point could not be measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PointError {
    /// Its network can't be built.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Its speech can't be compared.
    #[error(transparent)]
    Pesq(#[from] trunkline_media::quality::pesq::PesqError),
}

/// Rows before they are printed.
pub type Cells = Vec<Vec<Cell>>;

/// Measures one point.
pub type Measure = Box<dyn Fn(&Inputs<'_>) -> Result<Cells, PointError> + Send + Sync>;

/// One independent measurement: some rows of the table.
pub struct Point {
    /// Tells it from the experiment's other points: a file name.
    pub key: String,
    /// Its place on the figures' horizontal axis, for claims that need only
    /// part of the axis.
    pub x: f64,
    /// The figures that show it.
    pub figures: Vec<&'static str>,
    /// About how long it takes, seconds: for estimates, and to begin with the
    /// longest.
    pub weight: f64,
    /// Does it.
    pub measure: Measure,
}

impl Point {
    /// The point's own seed: two points share no randomness, and a point has
    /// the same whichever others are measured with it.
    pub fn seed(&self, seed: u64) -> u64 {
        seed ^ fnv1a(self.key.bytes())
    }
}

/// The 64-bit hash of Fowler, Noll and Vo, variant 1a.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What a claim comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// In the claim's unit.
    pub measured: f64,
    /// Whether the claim holds.
    pub holds: bool,
    /// Anything worth knowing, from the data.
    pub note: String,
}

impl Verdict {
    /// Without a note.
    pub fn new(measured: f64, holds: bool) -> Verdict {
        Verdict { measured, holds, note: String::new() }
    }
}

/// The largest of some measurements. If there is none, or one is not a number,
/// neither is this: a claim must not hold because its points are missing.
pub fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    let max = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    values.into_iter().reduce(max).unwrap_or(f64::NAN)
}

/// The smallest, likewise.
pub fn smallest(values: impl IntoIterator<Item = f64>) -> f64 {
    -largest(values.into_iter().map(|v| -v))
}

/// Something that the paper says and the data can contradict.
pub struct Claim {
    /// Short and unique within the figure.
    pub id: &'static str,
    /// In our words.
    pub says: &'static str,
    /// The paper's number, or the bound that its words amount to.
    pub published: f64,
    /// Of both numbers.
    pub unit: &'static str,
    /// Of both numbers.
    pub decimals: usize,
    /// Judges a table that has the points at [`Claim::at`].
    pub judge: Box<dyn Fn(&Table) -> Verdict + Send + Sync>,
    /// The places on the horizontal axis that the judge looks at; all, if empty.
    pub at: &'static [f64],
    /// Whether it holds, as published with this version.
    pub expected: bool,
    /// Why it does not hold, or what the reader should know anyway.
    pub why: &'static str,
    /// The sabotage that must make it fail.
    pub sabotage: &'static str,
}

/// One figure of a paper.
pub struct Figure {
    /// `fig4`.
    pub name: &'static str,
    /// A line.
    pub title: &'static str,
    /// Where the paper speaks of it.
    pub section: &'static str,
    /// What the paper says of it, in our words.
    pub says: &'static str,
    /// Draws it.
    pub chart: Box<dyn Fn(&Table) -> Chart + Send + Sync>,
    /// What of it can be judged.
    pub claims: Vec<Claim>,
}

/// The points of one size, with one thing broken or nothing.
pub type Points = Box<dyn Fn(Size, Sabotage) -> Vec<Point> + Send + Sync>;

/// A set of points and the figures that are drawn from them.
pub struct Experiment {
    /// The paper's folder: `voip-overlay`.
    pub paper: &'static str,
    /// What its points are stored under.
    pub name: &'static str,
    /// Raised when the same seed would give other numbers than before.
    pub revision: u32,
    /// What a row is.
    pub columns: &'static [Column],
    /// Whether points listen to speech.
    pub needs_speech: bool,
    /// What is measured.
    pub points: Points,
    /// What is shown of it.
    pub figures: Vec<Figure>,
}

impl Experiment {
    /// `voip-overlay/loss`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_no_extreme() {
        assert_eq!((largest([1.0, 3.0, 2.0]), smallest([1.0, 3.0, 2.0])), (3.0, 1.0));
        for none in [&[][..], &[f64::NAN, 1.0], &[1.0, f64::NAN]] {
            assert!(largest(none.iter().copied()).is_nan());
            assert!(smallest(none.iter().copied()).is_nan());
        }
    }
}
