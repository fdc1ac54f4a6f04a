//! Observers: captures, digests, additional counters.

use crate::packet::{DropReason, Header};
use trunkline_base::Time;

/// Fate of a packet that enters a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The packet comes out at this time, with this TOS byte.
    Arrives(Time, u8),
    /// The packet never comes out; the queue would have sent it with this TOS byte.
    Dropped(DropReason, u8),
    /// Not yet decided by the medium.
    Open,
}

/// An observer of packets at both ends of each direction; it cannot change what happens. `()`
/// ignores everything.
pub trait Observer {
    /// A packet enters its header's direction at `now`.
    fn sent(&mut self, _now: Time, _header: &Header, _payload: &[u8], _fate: Fate) {}

    /// A packet comes out of its header's direction at `now`.
    fn arrived(&mut self, _now: Time, _header: &Header, _payload: &[u8]) {}

    /// At `now`, the medium reports that a packet whose fate was [`Fate::Open`] will never come
    /// out.
    fn dropped(&mut self, _now: Time, _header: &Header, _payload: &[u8], _why: DropReason) {}
}

impl Observer for () {}
