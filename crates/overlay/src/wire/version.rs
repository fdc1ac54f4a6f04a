//! Versions of what nodes say to each other, and what each has brought.

/// The oldest protocol version that this build speaks.
pub const OLDEST: u8 = 1;
/// The newest. What a version adds is spoken only on links where both ends
/// have it.
pub const CURRENT: u8 = 4;
/// The first version with a [goodbye](super::Goodbye).
pub const GOODBYE: u8 = 2;
/// The first version with [reliable links](super::Service::Reliable).
pub const RELIABLE: u8 = 4;
/// The first version with a [challenge](super::Kind::Challenge) of an
/// initiation.
pub const CHALLENGE: u8 = 3;
/// The first version with [challenges of addresses](super::PathFrame).
pub const PATH_CHALLENGE: u8 = 3;
