//! Mistakes that show only once the key files are read.

use super::mistake::{Mistake, Place, mistake};
use super::{Config, sealing};
use crate::keys::KeyFileError;
use std::path::Path;
use trunkline_overlay::link;
use trunkline_overlay::node::{self as overlay, ConfigError};

/// The mistake that a key file of `config`, the file at `path` with this `text`, can't be used.
pub fn key_mistake(error: &KeyFileError, config: &Config, path: &Path, text: &str) -> Mistake {
    let certificate = config.key_files.as_ref().and_then(|files| files.certificate.as_deref());
    let is_certificate = error.path().is_some_and(|at| Some(at) == certificate);
    let key = if is_certificate { "certificate" } else { "key" };
    mistake(path, text, Place::Of { section: "node", index: 0, key }, error.to_string())
}

/// Checks that the keys in `config`, the file at `path` with this `text`, fit each other and the
/// node's identity; call it once that is read.
pub fn check_keys(config: &Config, path: &Path, text: &str) -> Result<(), Mistake> {
    let overlay = &config.overlay;
    overlay.validate().map_err(|e| mistake(path, text, place_of(&e, overlay), e.to_string()))?;
    sealing::check_keys(overlay).map_err(|(key, what)| {
        let key = key.map(|key| key.to_string());
        let span = key.and_then(|key| Some(text.find(&key)?..text.find(&key)? + key.len()));
        mistake(path, text, span.map_or(Place::Named, Place::Bytes), what.into())
    })
}

/// Position of an error that shows only once the node's identity is known.
fn place_of(error: &ConfigError, config: &overlay::Config) -> Place {
    let nodes = match error {
        ConfigError::TwoKeys(node) => [*node; 2],
        ConfigError::OneKey(a, b) => [*a, *b],
        _ => return Place::Named,
    };
    let has_key = |link: &link::Config| link.key.is_some() && nodes.contains(&link.neighbour);
    if let Some(index) = config.links.iter().rposition(has_key) {
        return Place::Of { section: "link", index, key: "key" };
    }
    let known = config.sealing.as_ref().map_or(&[][..], |sealing| &sealing.known);
    match known.iter().rposition(|(node, _)| nodes.contains(node)) {
        Some(index) => Place::Of { section: "known", index, key: "key" },
        None => Place::Named,
    }
}
