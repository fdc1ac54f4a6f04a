//! Media with time of their own: where when a packet arrives depends on what
//! comes after it.

use crate::packet::Class;
use core::any::Any;
use trunkline_base::Time;
use trunkline_base::link_model::Cause;

/// Which medium of a network: an index, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MediumId(pub u32);

/// Which packet: a medium gives it back with what became of the packet, and it
/// has no meaning after that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketKey(pub(crate) u32);

/// A packet, as a medium sees it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Which packet this is of.
    pub key: PacketKey,
    /// Which of the directions that share the medium it enters, by the number
    /// that [`Network::connect_over`](crate::Network::connect_over) was told.
    pub lane: u32,
    /// Its length on the wire in bytes, without what the medium itself adds.
    pub bytes: u32,
    /// The TOS byte, by whose DSCP a medium may tell classes of traffic apart.
    pub tos: u8,
    /// In whose ledgers it counts; no reason to treat it otherwise.
    pub class: Class,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Which packet this is of.
    pub key: PacketKey,
    /// It has arrived, with this TOS byte; or why it never will.
    pub outcome: Result<u8, Cause>,
}

/// A medium that several directions share, and that decides in its own time
/// which packet goes next: a radio channel, or a scheduler with more than one
/// queue.
///
/// Each packet that it takes it gives back exactly once. It bounds by itself
/// what waits in it.
pub trait Medium: Any {
    /// Takes a packet at `now`.
    ///
    /// # Errors
    ///
    /// Why it turns the packet away at once; then it has forgotten its key.
    fn offer(&mut self, now: Time, frame: &Frame) -> Result<(), Cause>;

    /// When it wants to be polled; [`Time::NEVER`] if only after the next
    /// packet. It may be polled earlier. What has passed means now, and if it
    /// asks for that again without an outcome, a nanosecond later.
    fn next_timeout(&self) -> Time;

    /// An outcome that is certain at `now`; asked until there is no other.
    fn poll(&mut self, now: Time) -> Option<Done>;
}
