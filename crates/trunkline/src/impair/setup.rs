//! Networks described by a file, and changes to them at run time.

use super::config::ConfigError;
use std::path::Path;
use trunkline_base::link_model::LinkModel;

/// A network described by a file.
pub trait Setup: Clone + Send + Sized + 'static {
    /// Reads a file. Relative paths in it are resolved against its folder.
    ///
    /// # Errors
    ///
    /// The first mistake in the file, with its position.
    fn read(path: &Path) -> Result<Self, ConfigError>;

    /// The models of both directions of each link, one after the other.
    fn models(&self) -> impl Iterator<Item = &LinkModel>;

    /// Checks that `new` differs from this network only in the behaviour of its links.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OtherLinks`], with the first thing that differs.
    fn check_same(&self, new: &Self) -> Result<(), ConfigError>;

    /// Finds the differences to `new`.
    ///
    /// # Errors
    ///
    /// Those of [`Setup::check_same`].
    fn change(&self, new: Self) -> Result<Change<Self>, ConfigError> {
        self.check_same(&new)?;
        let both = (0..).zip(self.models().zip(new.models()));
        let directions = both.filter_map(|(k, (old, new))| (old != new).then_some(k)).collect();
        Ok(Change { directions, setup: new })
    }
}

/// The result of reading a file again.
#[derive(Debug)]
pub struct Change<S> {
    /// The whole network as the file describes it.
    pub setup: S,
    /// Numbers of the directions that differ, counted through all links.
    pub directions: Vec<u32>,
}
