//! What an experiment is: independent points, the figures drawn from them, and
//! the paper's claims that they are held against.

use crate::claim::Claim;
use crate::plot::Draw;
use crate::speech::Speech;
use crate::table::{Cell, Column};
use crate::testbed::Testbed;
use trunkline_net::wifi;
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
    /// Every size, the smallest first.
    pub const ALL: [Size; 3] = [Size::Tiny, Size::Quick, Size::Full];

    /// The size's name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Size::Tiny => "tiny",
            Size::Quick => "quick",
            Size::Full => "full",
        }
    }

    /// That of three values which belongs to this size.
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
    /// There is no such 802.11e cell.
    #[error(transparent)]
    Cell(#[from] wifi::InvalidCell),
    /// The cell has no time for its streams.
    #[error(transparent)]
    Stream(#[from] wifi::NotAdmitted),
    /// The cell doesn't take a packet.
    #[error(transparent)]
    Packet(#[from] wifi::Refusal),
}

/// Rows before they are printed.
pub type Cells = Vec<Vec<Cell>>;

/// Measures one point.
pub type Measure = Box<dyn Fn(&Inputs<'_>) -> Result<Cells, PointError> + Send + Sync>;

/// One independent measurement: some rows of the table.
pub struct Point {
    /// Tells it from the experiment's other points: a file name. What follows a `+` is one
    /// of several things compared under the same conditions, with the same seed.
    pub key: String,
    /// Its place on the figures' horizontal axis, for claims that need only
    /// part of the axis.
    pub x: f64,
    /// The figures that show it.
    pub figures: Vec<&'static str>,
    /// About how long it takes, seconds: for estimates, and to begin with the
    /// longest.
    pub weight: f64,
    /// Measures the point's rows.
    pub measure: Measure,
}

impl Point {
    /// The point's own seed: two points whose keys differ before a `+` share no randomness,
    /// and a point has the same whichever others are measured with it. Points count the seeds
    /// of their runs upwards from here, so that those of two seeds next to each other are far
    /// apart: they share no run.
    pub fn seed(&self, seed: u64) -> u64 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let apart = seed.wrapping_sub(1).wrapping_mul(GOLDEN).wrapping_add(1);
        apart ^ fnv1a(self.key.bytes().take_while(|b| *b != b'+'))
    }
}

/// The 64-bit hash of Fowler, Noll and Vo, variant 1a.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// One figure of a paper.
pub struct Figure {
    /// `fig4`.
    pub name: &'static str,
    /// The figure's title, in a line.
    pub title: &'static str,
    /// Where the paper speaks of it.
    pub section: &'static str,
    /// What the paper says of it, in our words.
    pub says: &'static str,
    /// Draws the figure from its table.
    pub chart: Draw,
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
    /// The figures that are drawn from the points.
    pub figures: Vec<Figure>,
    /// How it is measured with real daemons and the kernel's own TCP, where it can be.
    pub testbed: Option<Testbed>,
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

    /// Runs are counted upwards from a point's seed, a million at most.
    #[test]
    fn the_runs_of_two_seeds_are_apart() {
        let point = Point {
            key: "a point".into(),
            x: 0.0,
            figures: vec![],
            weight: 1.0,
            measure: Box::new(|_| Ok(vec![])),
        };
        let seeds = (0..1_000).chain([u64::MAX, 1 << 63]).map(|seed| point.seed(seed));
        let mut seeds: Vec<u64> = seeds.collect();
        seeds.sort_unstable();
        let apart = seeds.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(apart > Some(1 << 20), "{apart:?}");
    }
}
