//! What can go wrong.

use crate::experiment::PointError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a command of the lab ended; one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Telephones that could not be played.
    #[error(transparent)]
    Phones(#[from] crate::phones::Error),
    /// No such figure.
    #[error("there is no figure \"{wanted}\"{suggestion}: `trunkline-lab list` names them all")]
    UnknownFigure {
        /// What was asked for.
        wanted: String,
        /// "; did you mean …?", or nothing.
        suggestion: String,
    },
    /// A file or folder that can't be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A file that is not what the lab writes.
    #[error("{}: {why}: remove it to have it measured again", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A folder with the results of another run.
    #[error("{}: there is another run ({there}; this one: {here}): take another --out, or remove it", path.display())]
    OtherRun {
        /// The path of the manifest.
        path: PathBuf,
        /// What it says.
        there: String,
        /// What it should say.
        here: String,
    },
    /// A folder without the results of any figure.
    #[error("{}: no figure has been measured there: `run` does; of shards, `merge` makes figures", .0.display())]
    NothingToReport(PathBuf),
    /// README.md without the place of a generated part.
    #[error(
        "README.md: the marker {0} is missing: put it, and the one that ends the part, where the generated table goes"
    )]
    Marker(String),
    /// Speech that can't be used.
    #[error("{}: {why}", path.display())]
    Speech {
        /// The recording.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No speech where it is looked for.
    #[error(
        "there are no recordings in {}: give their folder by --speech",
        .0.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" nor in ")
    )]
    NoSpeech(Vec<PathBuf>),
    /// Shards that don't make a whole.
    #[error("{0}")]
    Shards(String),
    /// A point that can't be measured.
    #[error("{point}: {why}")]
    Point {
        /// Which.
        point: String,
        /// Why.
        why: PointError,
    },
    /// A scenario with a mistake.
    #[error("{0}")]
    Scenario(#[from] crate::scenario::Mistake),
    /// A figure that no testbed can measure.
    #[error("{figure}: --testbed is for scenarios (.toml files), {known}, and all of these: `all`")]
    NoTestbed {
        /// Which.
        figure: String,
        /// The figures that a testbed can measure.
        known: String,
    },
    /// A figure whose results are asked for as JSON.
    #[error("{0}: --json is for scenarios: give a .toml file; of a figure, claims.json says it")]
    NoJson(String),
    /// A scenario or figure that could not be run with daemons.
    #[error("{what}: {why}")]
    Testbed {
        /// Its file or name.
        what: String,
        /// Why.
        why: crate::scenario::testbed::Error,
    },
}

impl Error {
    /// For `map_err` after an operation on `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        |why| Error::File { path, why }
    }
}
