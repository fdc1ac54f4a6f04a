//! Media that schedule packets themselves, where the arrival of a packet may depend on later ones.

use crate::packet::Class;
use core::any::Any;
use trunkline_base::Time;
use trunkline_base::link_model::Cause;

/// A medium of a network: an index, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MediumId(pub u32);

/// Identifies a packet to a medium, which returns the key with the packet's outcome. After that,
/// the key is meaningless.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketKey(pub(crate) u32);

/// A packet, as a medium sees it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Key to return with the packet's outcome.
    pub key: PacketKey,
    /// The lane that the packet enters: one of the directions that share the medium, as numbered in
    /// [`Network::connect_over`](crate::Network::connect_over).
    pub lane: u32,
    /// Length on the wire in bytes, without what the medium itself adds.
    pub bytes: u32,
    /// The TOS byte, whose DSCP a medium may use to classify traffic.
    pub tos: u8,
    /// The class of the ledgers; it must not influence how the packet is treated.
    pub class: Class,
}

/// The outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Key of the packet, from its [`Frame`].
    pub key: PacketKey,
    /// The TOS byte with which the packet arrived, or the reason why it never will.
    pub outcome: Result<u8, Cause>,
}

/// A medium that several directions share, and that decides by its own schedule which packet goes
/// next: a radio channel, or a scheduler with more than one queue.
///
/// It returns each accepted packet exactly once, and bounds its queues itself.
pub trait Medium: Any {
    /// Accepts a packet at `now`.
    ///
    /// # Errors
    ///
    /// Returns the reason for rejecting the packet at once; its key is then void.
    fn offer(&mut self, now: Time, frame: &Frame) -> Result<(), Cause>;

    /// The time of the next poll; [`Time::NEVER`] if only a further packet can cause one. It may be
    /// polled earlier. A time in the past means now, and if it is returned again without an
    /// outcome, a nanosecond later.
    fn next_timeout(&self) -> Time;

    /// Returns an outcome that is certain at `now`; called until there is none left.
    fn poll(&mut self, now: Time) -> Option<Done>;
}
