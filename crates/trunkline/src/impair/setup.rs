//! What a file describes, and how it may change while it runs.

use super::config::ConfigError;
use std::path::Path;
use trunkline_base::link_model::LinkModel;

/// A network that a file describes.
pub trait Setup: Clone + Send + Sized + 'static {
    /// Reads a file. Relative paths in it start from its folder.
    ///
    /// # Errors
    ///
    /// The first mistake in the file, with its place.
    fn read(path: &Path) -> Result<Self, ConfigError>;

    /// The models of both directions of each link, one after the other.
    fn models(&self) -> impl Iterator<Item = &LinkModel>;

    /// Checks that `new` differs from this network in nothing but what its links do.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OtherLinks`], with the first thing that differs.
    fn check_same(&self, new: &Self) -> Result<(), ConfigError>;

    /// Finds what differs in `new`.
    ///
    /// # Errors
    ///
    /// The same as of [`Setup::check_same`].
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
    /// The directions that differ, counted through all links.
    pub directions: Vec<u32>,
}
