//! What a file describes, and how it may change while it runs.

use super::config::ConfigError;
use std::path::Path;
use trunkline_base::link_model::LinkModel;

/// A network that is written in a file.
pub trait Setup: Clone + Send + Sized + 'static {
    /// Reads a file. The paths in it begin at its folder.
    ///
    /// # Errors
    ///
    /// The first mistake in it, with its place.
    fn read(path: &Path) -> Result<Self, ConfigError>;

    /// Both directions of each link, one after the other.
    fn models(&self) -> impl Iterator<Item = &LinkModel>;

    /// Fails with what makes `new` another network than this, if anything does but what
    /// its links do.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OtherLinks`], with the first that isn't the same.
    fn check_same(&self, new: &Self) -> Result<(), ConfigError>;

    /// What differs in `new`.
    ///
    /// # Errors
    ///
    /// As [`Setup::check_same`].
    fn change(&self, new: Self) -> Result<Change<Self>, ConfigError> {
        self.check_same(&new)?;
        let both = (0..).zip(self.models().zip(new.models()));
        let directions = both.filter_map(|(k, (old, new))| (old != new).then_some(k)).collect();
        Ok(Change { directions, setup: new })
    }
}

/// What a file says that has been read again.
#[derive(Debug)]
pub struct Change<S> {
    /// All of it.
    pub setup: S,
    /// The directions that are to do something else, counted through all links.
    pub directions: Vec<u32>,
}
