//! Experiments: independent points, the figures drawn from them, and the paper's claims that these
//! figures are compared with.

use crate::claim::Claim;
use crate::plot::Draw;
use crate::speech::Speech;
use crate::table::{Cell, Column};
use crate::testbed::Testbed;
use serde::{Deserialize, Serialize};
use trunkline_net::wifi;
use trunkline_sim::WorldError;

/// Number and length of the runs that an experiment measures.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Small enough for a test: exercises the machinery, not the claims.
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

    /// The one of three values that belongs to this size.
    pub fn pick<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Size::Tiny => tiny,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// One thing broken on purpose, by name; or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sabotage(Option<&'static str>);

impl Sabotage {
    /// No sabotage: everything works as it should.
    pub const NONE: Sabotage = Sabotage(None);

    /// Breaks `name`, as the experiment defines it.
    pub fn named(name: &'static str) -> Sabotage {
        Sabotage(Some(name))
    }

    /// Whether `name` is broken.
    pub fn is(self, name: &str) -> bool {
        self.0 == Some(name)
    }
}

/// Inputs of a point besides its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Seed of all random numbers, specific to the point (see [`Point::seed`]).
    pub seed: u64,
    /// The recordings, if the experiment needs them.
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
    /// The parameters of an 802.11e cell are invalid.
    #[error(transparent)]
    Cell(#[from] wifi::InvalidCell),
    /// The cell has no time for its streams.
    #[error(transparent)]
    Stream(#[from] wifi::NotAdmitted),
    /// The cell refused a packet.
    #[error(transparent)]
    Packet(#[from] wifi::Refusal),
}

/// Rows of a table before they are formatted.
pub type Cells = Vec<Vec<Cell>>;

/// Function that measures one point and returns its rows.
pub type Measure = Box<dyn Fn(&Inputs<'_>) -> Result<Cells, PointError> + Send + Sync>;

/// One independent measurement, which yields some rows of the table.
pub struct Point {
    /// Identifies the point within its experiment; also a file name. The part after a `+` is one of
    /// several alternatives compared under the same conditions, with the same seed.
    pub key: String,
    /// Its position on the figures' horizontal axis, for claims that read only part of the axis.
    pub x: f64,
    /// The figures that show it.
    pub figures: Vec<&'static str>,
    /// Approximate duration in seconds, for estimates and to start the longest points first.
    pub weight: f64,
    /// Measures the point's rows.
    pub measure: Measure,
}

impl Point {
    /// The point's seed. Two points whose keys differ before a `+` share no randomness, and a
    /// point's seed doesn't depend on which others are measured with it. Points count the seeds of
    /// their runs upwards from here; those of two adjacent seeds are far apart, so that they share
    /// no run.
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
    /// The figure's name, such as `fig4`.
    pub name: &'static str,
    /// The figure's title, in a line.
    pub title: &'static str,
    /// Section of the paper that describes it.
    pub section: &'static str,
    /// The paper's statement on the figure, in this project's words.
    pub caption: &'static str,
    /// Draws the figure from its table.
    pub chart: Draw,
    /// The claims about the figure.
    pub claims: Vec<Claim>,
}

/// The place of a figure's `section`, for readers: `§IV-A`, `Conclusion` or `beyond the paper`.
pub fn place(section: &str) -> String {
    let number = section.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let is_number = number.chars().all(|c| c.is_ascii_digit() || matches!(c, 'I' | 'V' | 'X'));
    match section {
        "beyond" => "beyond the paper".to_owned(),
        _ if is_number => format!("§{section}"),
        _ => section.to_owned(),
    }
}

/// Function that returns the points of one size, with one sabotage or none.
pub type Points = Box<dyn Fn(Size, Sabotage) -> Vec<Point> + Send + Sync>;

/// A set of points and the figures that are drawn from them.
pub struct Experiment {
    /// Folder of the paper, such as `voip-overlay`.
    pub paper: &'static str,
    /// Name under which its points are stored.
    pub name: &'static str,
    /// Increased whenever the same seed would give different numbers.
    pub revision: u32,
    /// The columns of a row.
    pub columns: &'static [Column],
    /// Whether points need recordings of speech.
    pub needs_speech: bool,
    /// The points to measure.
    pub points: Points,
    /// The figures that are drawn from the points.
    pub figures: Vec<Figure>,
    /// How the experiment is measured with real daemons and the kernel's TCP, if it can be.
    pub testbed: Option<Testbed>,
}

impl Experiment {
    /// Full name of the experiment, such as `voip-overlay/loss`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper, self.name)
    }

    /// Whether a quick run measures as much for a figure as a full one: the same points, of the same
    /// weight.
    pub fn is_always_whole(&self, figure: &Figure) -> bool {
        let extent = |size| -> Vec<(String, f64)> {
            let points = (self.points)(size, Sabotage::NONE).into_iter();
            let shown = points.filter(|p| p.figures.contains(&figure.name));
            shown.map(|point| (point.key, point.weight)).collect()
        };
        extent(Size::Quick) == extent(Size::Full)
    }

    /// Full name of a figure of this experiment, such as `voip-overlay/fig4`.
    pub fn figure_id(&self, figure: &Figure) -> String {
        format!("{}/{}", self.paper, figure.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_has_a_section_sign() {
        for (section, wanted) in [
            ("IV-A, beyond", "§IV-A, beyond"),
            ("5.2", "§5.2"),
            ("Conclusion", "Conclusion"),
            ("beyond", "beyond the paper"),
            ("beyond, after 5.3", "beyond, after 5.3"),
        ] {
            assert_eq!(place(section), wanted);
        }
    }

    #[test]
    fn figures_of_which_a_quick_run_leaves_nothing_out() {
        let papers = crate::papers();
        let whole = papers.figures().filter(|(e, f)| e.is_always_whole(f));
        let whole: Vec<String> = whole.map(|(e, f)| e.figure_id(f)).collect();
        let wanted = [
            "voip-overlay/send-filter",
            "tfmc/table1",
            "dccp-voice/table1",
            "dccp-voice/table2",
            "dccp-voice/fig3",
            "wifi-adapt/table1",
        ];
        assert_eq!(whole, wanted);
    }

    /// Runs count upwards from a point's seed, by a million at most.
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
