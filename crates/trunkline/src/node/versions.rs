//! Which versions of the protocols the node speaks, where a test of upgrades wants it to
//! be of another build.

use std::env;
use std::ffi::OsString;
use trunkline_overlay::node::Config;
use trunkline_overlay::wire::version::{CURRENT, VersionRange};

/// Says the newest version that the node is to speak of each protocol; for tests alone.
const VARIABLE: &str = "TRUNKLINE_TEST_NEWEST_VERSION";

/// What [`VARIABLE`] says is no version.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE} is {0:?}, which is no protocol version: give a number from 1 to 255, or unset it; \
     it is only for tests of upgrades"
)]
pub struct NotAVersion(OsString);

/// The versions of a build whose newest is what [`VARIABLE`] says, if it is set.
pub fn for_tests() -> Result<Option<VersionRange>, NotAVersion> {
    let Some(text) = env::var_os(VARIABLE) else { return Ok(None) };
    let newest = text.to_str().and_then(|text| text.parse().ok()).filter(|newest| *newest > 0);
    let versions = VersionRange::up_to(newest.ok_or(NotAVersion(text))?);
    let VersionRange { oldest, newest } = versions;
    tracing::warn!(
        "{VARIABLE} is set: this node says that it speaks versions {oldest} to {newest} of the \
         protocols, of which this build knows version {CURRENT} only; that is for tests alone"
    );
    Ok(Some(versions))
}

/// Has a node speak `versions` of each protocol.
pub fn speak(config: &mut Config, versions: VersionRange) {
    config.session_versions = versions;
    if let Some(sealing) = &mut config.sealing {
        sealing.offer.versions = versions;
    }
}
