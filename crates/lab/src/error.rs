//! Errors of the lab's commands.

use crate::experiment::PointError;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a command of the lab failed, displayed as one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run with telephones failed.
    #[error(transparent)]
    Phones(#[from] crate::phones::Error),
    /// There is no figure of this name.
    #[error("there is no figure \"{wanted}\": {suggestion}`trunkline-lab list` lists them all")]
    UnknownFigure {
        /// The name that was requested.
        wanted: String,
        /// "did you mean …? ", or empty.
        suggestion: String,
    },
    /// A claim is named where a figure is wanted.
    #[error(
        "\"{claim}\" would be a claim of {figure}: a figure is wanted here; `check` and `list` take \
         claims, too"
    )]
    ClaimForFigure {
        /// The figure in the name.
        figure: String,
        /// The rest of the name.
        claim: String,
    },
    /// A figure has no claim of this name.
    #[error(
        "{figure} has no claim \"{claim}\": {suggestion}`trunkline-lab list {figure}` lists them all"
    )]
    UnknownClaim {
        /// The figure in the name.
        figure: String,
        /// The rest of the name.
        claim: String,
        /// "did you mean …? ", or empty.
        suggestion: String,
    },
    /// No selected claim is judged in this reading.
    #[error("no claim of {what} is judged in the reading \"{reading}\": {known}")]
    UnknownReading {
        /// The figures or claims that were requested.
        what: String,
        /// The reading that was requested.
        reading: String,
        /// The readings that there are, for the message.
        known: String,
    },
    /// No selected claim has a sabotage or variation of this name.
    #[error(
        "there is no sabotage or variation \"{0}\" of these claims: docs/results/PAPER.md lists those \
         of each paper"
    )]
    UnknownChange(String),
    /// A file or folder can't be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// The file or folder that can't be used.
        path: PathBuf,
        /// Error that the system returned.
        why: io::Error,
    },
    /// A file does not have the format that the lab writes.
    #[error("{}: {why}: remove it to have it measured again", path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
        /// Description of the damage.
        why: String,
    },
    /// A file that `run` writes from its points is damaged, or does not fit them or the code.
    #[error("{}: {why}: {}", path.display(), written_again(*kept))]
    NotFromPoints {
        /// Path of the file.
        path: PathBuf,
        /// Reason for refusing the file, for the message.
        why: String,
        /// Whether the measured points are there.
        kept: bool,
    },
    /// The stored results are not as `report --markdown` writes them.
    #[error("{}: {why}: restore it (`git checkout -- {}`)", path.display(), crate::results::FILE)]
    Stored {
        /// Path of the file with the stored results.
        path: PathBuf,
        /// Reason for refusing the file, for the message.
        why: String,
    },
    /// A folder is not the root of the source tree.
    #[error("{}: this is not the source tree, for it has no README.md: give the tree's root with \
             --tree", .0.display())]
    NoTree(PathBuf),
    /// A folder has the results of another run.
    #[error("{}: has the results of another run ({there}; this one: {here}): use another --out, or \
             remove it", path.display())]
    OtherRun {
        /// The path of the manifest.
        path: PathBuf,
        /// The run in the manifest.
        there: String,
        /// The run that was expected.
        here: String,
    },
    /// A folder has no results of any figure.
    #[error("no results in {}: measure figures with `run`, or combine shards with `merge`", .0.display())]
    NothingToReport(PathBuf),
    /// README.md lacks the marker of a generated part.
    #[error(
        "README.md: the marker {0} is missing: add it and the end marker where the generated table belongs"
    )]
    Marker(String),
    /// README.md has a marker that no generated part has, or has it twice.
    #[error(
        "README.md: the marker {0} is there twice, or no generated part has it: remove it and the text that it \
         encloses"
    )]
    ExtraMarker(String),
    /// A recording can't be used.
    #[error("{}: {why}", path.display())]
    Speech {
        /// The recording that can't be used.
        path: PathBuf,
        /// Reason why the recording can't be used.
        why: String,
    },
    /// There are no recordings in the folder.
    #[error(
        "there are no recordings in {}: give their folder with --speech",
        .0.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" nor in ")
    )]
    NoSpeech(Vec<PathBuf>),
    /// Shards don't add up to a whole run.
    #[error("{0}")]
    Shards(String),
    /// A point can't be measured.
    #[error("{point}: {why}")]
    Point {
        /// Key of the point.
        point: String,
        /// Why it can't be measured.
        why: PointError,
    },
    /// A scenario is invalid.
    #[error("{0}")]
    Scenario(#[from] crate::scenario::Mistake),
    /// A scenario is neither shortened nor divided.
    #[error(
        "{file}: --{option} is for figures; a scenario is as long as its `length`, and one run. For \
         several runs: for seed in 1 2 3; do trunkline-lab run {file} --seed $seed --out out-$seed; \
         done"
    )]
    ScenarioOption {
        /// Path of the scenario.
        file: String,
        /// Name of the option.
        option: &'static str,
    },
    /// No testbed can measure this figure.
    #[error("{figure}: --testbed is for scenarios (.toml files), {known}, and all of these: `all`")]
    NoTestbed {
        /// The figure without a testbed.
        figure: String,
        /// The figures that a testbed can measure.
        known: String,
    },
    /// Results of a figure can't be printed as JSON.
    #[error(
        "{0}: --json is for scenarios: give a .toml file; the results of a figure are in \
             claims.json"
    )]
    NoJson(String),
    /// A scenario or figure could not be run with daemons.
    #[error("{what}: {why}")]
    Testbed {
        /// File of the scenario, or name of the figure.
        what: String,
        /// Why the testbed failed.
        why: crate::scenario::testbed::Error,
    },
}

/// How to write a figure's files again.
fn written_again(from_points: bool) -> &'static str {
    match from_points {
        true => "`trunkline-lab run` writes it again from the points that are there",
        false => {
            "not all of the points that were measured for it are there (OUT/PAPER/EXPERIMENT/points): \
             restore them, or `trunkline-lab run` measures what is missing again"
        }
    }
}

impl Error {
    /// Makes the error of an operation on `path`, for `map_err`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        |why| Error::File { path, why }
    }
}
