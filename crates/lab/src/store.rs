//! Results on disk: `OUT/paper/experiment/points/KEY.json`, and a manifest that identifies the run.
//! A point is stored as soon as it is measured, so that an interrupted run can be resumed.

use crate::error::Error;
use crate::experiment::{Experiment, Point, Size};
use crate::speech::Speech;
use crate::table::Row;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Version of the files' format, increased when their meaning changes.
const SCHEMA: u32 = 4;

/// From what this lab is built: the commit, with `modified` if files differ from it, the compiler,
/// and the machine's target triple. A build for tests names no commit.
pub const BUILT: &str = env!("TRUNKLINE_BUILT");

/// Identifies the run of an experiment's points. Two runs with equal manifests give equal points.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    schema: u32,
    version: String,
    /// Commit, compiler and target of the lab that measured: see [`BUILT`].
    built: String,
    experiment: String,
    revision: u32,
    size: Size,
    seed: u64,
    /// Names of the columns of a row.
    columns: Vec<String>,
    /// Digest of the recordings, if the experiment needs them.
    speech: Option<String>,
}

impl Manifest {
    /// The manifest of a run of `experiment`.
    pub fn new(
        experiment: &Experiment,
        size: Size,
        seed: u64,
        speech: Option<&Speech>,
    ) -> Manifest {
        let speech = speech.filter(|_| experiment.needs_speech);
        Manifest {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            built: BUILT.to_owned(),
            experiment: experiment.id(),
            revision: experiment.revision,
            size,
            seed,
            columns: experiment.columns.iter().map(|c| c.name.to_owned()).collect(),
            speech: speech.map(|s| format!("{} {:016x}", s.which(), s.digest())),
        }
    }

    /// From what the lab that measured was built.
    pub(crate) fn built(&self) -> &str {
        &self.built
    }

    /// Seed of all random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Size of the run that these points belong to.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Revision of the experiment that was measured.
    pub(crate) fn revision(&self) -> u32 {
        self.revision
    }

    /// Describes how it differs from the manifest of a run of `experiment`, whatever the size, the
    /// seed, the recordings and the lab's version.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub(crate) fn belongs_to(&self, experiment: &Experiment) -> Result<(), String> {
        let code = Manifest::new(experiment, self.size, self.seed, None);
        if self.schema != code.schema {
            return Err(format!("it is of schema {}, and the code's is {SCHEMA}", self.schema));
        }
        if self.experiment != code.experiment {
            return Err(format!("it is of the experiment {}", self.experiment.escape_debug()));
        }
        if self.revision != code.revision {
            let [there, here] = [self.revision, code.revision];
            return Err(format!("it is of revision {there}, and the code's is {here}"));
        }
        if self.columns != code.columns {
            let there = self.columns.join(",");
            return Err(format!("it is of a run with the columns {}", there.escape_debug()));
        }
        match (experiment.needs_speech, &self.speech) {
            (true, None) => Err("it names no recordings".to_owned()),
            (false, Some(_)) => Err("it names recordings, and none were played".to_owned()),
            _ => Ok(()),
        }
    }

    /// The recordings and their digest, where they matter.
    pub(crate) fn speech(&self) -> Option<&str> {
        self.speech.as_deref()
    }

    /// The manifest as one line, for messages.
    pub(crate) fn line(&self) -> String {
        let Manifest { version, built, revision, size, seed, speech, schema, .. } = self;
        let speech = speech.as_ref().map_or(String::new(), |s| format!(", speech {s}"));
        let size = size.name();
        format!(
            "{size}, seed {seed}, revision {revision}{speech}; trunkline-lab {version}, format \
             {schema}, {built}"
        )
    }
}

/// The points of one experiment within an output folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    width: usize,
}

impl Store {
    /// Opens or creates the store of the run that `manifest` describes.
    ///
    /// # Errors
    ///
    /// If another run's points are there, or the folder can't be written.
    pub fn open(out: &Path, experiment: &Experiment, manifest: &Manifest) -> Result<Store, Error> {
        let folder = out.join(experiment.paper).join(experiment.name);
        let path = folder.join("manifest.json");
        match read_json::<Manifest>(&path)? {
            Some(there) if there != *manifest => {
                let (there, here) = (there.line(), manifest.line());
                return Err(Error::OtherRun { path, there, here });
            }
            Some(_) => {}
            None => {
                fs::create_dir_all(folder.join("points")).map_err(Error::file(&folder))?;
                write_json(&path, manifest)?;
            }
        }
        Ok(Store { folder, width: experiment.columns.len() })
    }

    /// The manifest in `out`, if there is one.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn manifest(out: &Path, experiment: &Experiment) -> Result<Option<Manifest>, Error> {
        read_json(&out.join(experiment.paper).join(experiment.name).join("manifest.json"))
    }

    /// The points in `out`, of whatever run they are.
    pub fn at(out: &Path, experiment: &Experiment) -> Store {
        let folder = out.join(experiment.paper).join(experiment.name);
        Store { folder, width: experiment.columns.len() }
    }

    fn path(&self, point: &Point) -> PathBuf {
        self.folder.join("points").join(format!("{}.json", point.key))
    }

    /// The rows of a point that has been measured.
    ///
    /// # Errors
    ///
    /// If the file is damaged.
    pub fn load(&self, point: &Point) -> Result<Option<Vec<Row>>, Error> {
        let path = self.path(point);
        let rows: Option<Vec<Row>> = read_json(&path)?;
        if rows.iter().flatten().any(|row| row.len() != self.width) {
            let why = format!("its rows should have {} cells", self.width);
            return Err(Error::Damaged { path, why });
        }
        Ok(rows)
    }

    /// Stores the rows of a point.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn save(&self, point: &Point, rows: &[Row]) -> Result<(), Error> {
        write_json(&self.path(point), &rows)
    }
}

/// Metadata of a folder with a shard: the figures, and the part of their points.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Number of this shard, from 1.
    pub index: usize,
    /// Number of shards into which the run was divided.
    pub of: usize,
    /// The figures that were requested.
    pub figures: Vec<String>,
    /// Size of the run.
    pub size: Size,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Shard {
    pub(crate) const FILE: &str = "shard.json";

    /// Writes this metadata to `out`.
    ///
    /// # Errors
    ///
    /// If another shard is there, or the file can't be written.
    pub fn write(&self, out: &Path) -> Result<(), Error> {
        let path = out.join(Shard::FILE);
        match Shard::read(out)? {
            Some(there) if there != *self => {
                let line =
                    |s: &Shard| format!("shard {}/{} of {}", s.index, s.of, s.figures.join(" "));
                Err(Error::OtherRun { path, there: line(&there), here: line(self) })
            }
            _ => write_json(&path, self),
        }
    }

    /// Reads the metadata in `out`, if it is a shard.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn read(out: &Path) -> Result<Option<Shard>, Error> {
        read_json(&out.join(Shard::FILE))
    }
}

pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file(path)(e)),
    };
    let damaged =
        |e: serde_json::Error| Error::Damaged { path: path.to_owned(), why: e.to_string() };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// Writes a JSON file atomically, with a final line feed.
///
/// # Errors
///
/// If it can't be written.
///
/// # Panics
///
/// If `value` can't be JSON: a map with keys other than strings.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    write_file(path, json(value).as_bytes())
}

/// The text of a JSON file, with a final line feed.
///
/// # Panics
///
/// If `value` can't be JSON: a map with keys other than strings.
pub(crate) fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain values are JSON");
    text.push('\n');
    text
}

/// Writes a file atomically.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    fs::write(&part, bytes).map_err(Error::file(&part))?;
    fs::rename(&part, path).map_err(Error::file(path))
}
