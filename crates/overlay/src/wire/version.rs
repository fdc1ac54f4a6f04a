//! Versions of what nodes say to each other.

/// The oldest protocol version that this build speaks.
pub const OLDEST: u8 = 1;
/// The newest. What a version adds is spoken only on links where both ends
/// have it.
pub const CURRENT: u8 = 1;

/// The versions of a protocol that a node speaks: these two and all between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl VersionRange {
    /// What a build speaks whose newest version is `newest`: that, and the one before, so
    /// that the nodes of an overlay can be upgraded one by one. There is no version 0.
    pub fn up_to(newest: u8) -> VersionRange {
        VersionRange { oldest: newest.saturating_sub(1).max(1), newest }
    }

    /// Whether `version` is one of them.
    pub fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The version that a node with these and one with `other` speak with each other: the
    /// newest that both have. `None` if they have none in common.
    pub fn common(self, other: VersionRange) -> Option<u8> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }
}

/// Those that this build speaks between nodes.
impl Default for VersionRange {
    fn default() -> VersionRange {
        VersionRange { oldest: OLDEST, newest: CURRENT }
    }
}
