//! Versions of the protocol between nodes.

use core::fmt;

/// The oldest protocol version that this build supports.
pub const OLDEST: u8 = 1;
/// The newest protocol version. Additions of a version are used only on links where both ends
/// support it.
pub const CURRENT: u8 = 1;

/// The range of protocol versions that a node supports: these two and all between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The oldest supported version.
    pub oldest: u8,
    /// The newest supported version.
    pub newest: u8,
}

impl VersionRange {
    /// Versions that a build supports if its newest is `newest`: that, and the one before, so that
    /// the nodes of an overlay can be upgraded one by one. There is no version 0.
    pub fn up_to(newest: u8) -> VersionRange {
        VersionRange { oldest: newest.saturating_sub(1).max(1), newest }
    }

    /// Whether there is such a range: it has a version, and not version 0.
    pub fn is_valid(self) -> bool {
        (1..=self.newest).contains(&self.oldest)
    }

    /// Whether `version` is in the range.
    pub fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The version that two nodes with these ranges use with each other: the newest that both
    /// support, or `None` if they have none in common.
    pub fn common(self, other: VersionRange) -> Option<u8> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }
}

/// The versions of two nodes that have none in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionMismatch {
    /// Versions that this node supports.
    pub own: VersionRange,
    /// Versions that the other node supports.
    pub other: VersionRange,
}

/// `version 1` or `versions 1 to 2`.
impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionRange { oldest, newest } = self;
        match oldest == newest {
            true => write!(f, "version {newest}"),
            false => write!(f, "versions {oldest} to {newest}"),
        }
    }
}

/// Versions that this build supports between nodes.
impl Default for VersionRange {
    fn default() -> VersionRange {
        VersionRange { oldest: OLDEST, newest: CURRENT }
    }
}
