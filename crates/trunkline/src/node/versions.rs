//! Protocol versions of the node, when a test of upgrades requires it to behave like another build.

use std::env;
use std::ffi::{OsStr, OsString};
use trunkline_overlay::node::Config;
use trunkline_overlay::wire::version::{CURRENT, VersionRange};

/// Environment variable with the newest version of each protocol that the node may use; for tests
/// only.
const VARIABLE: &str = "TRUNKLINE_TEST_NEWEST_VERSION";

/// The value of [`VARIABLE`] is not a version.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE} is {0:?}, not a protocol version: give a number from 1 to 255, or unset it; \
     it is only for tests of upgrades"
)]
pub struct NotAVersion(OsString);

/// Versions of a build with the value of [`VARIABLE`] as its newest, if that is set.
pub fn for_tests() -> Result<Option<VersionRange>, NotAVersion> {
    let Some(text) = env::var_os(VARIABLE) else { return Ok(None) };
    let versions = VersionRange::up_to(version(&text).ok_or(NotAVersion(text))?);
    let VersionRange { oldest, newest } = versions;
    tracing::warn!(
        "{VARIABLE} is set: this node claims to support versions {oldest} to {newest} of the \
         protocols, although this build has only version {CURRENT}; that is for tests only"
    );
    Ok(Some(versions))
}

/// The version that `text` is, if it is a number from 1 to 255 without a sign or leading zeros.
fn version(text: &OsStr) -> Option<u8> {
    let text = text.to_str().filter(|text| text.starts_with(|c| matches!(c, '1'..='9')))?;
    text.parse().ok()
}

/// Makes a node support `versions` of each protocol.
pub fn speak(config: &mut Config, versions: VersionRange) {
    config.session_versions = versions;
    if let Some(sealing) = &mut config.sealing {
        sealing.offer.versions = versions;
    }
}
