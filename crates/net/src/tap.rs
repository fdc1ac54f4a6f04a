//! Looking on: captures, digests, counters of one's own.

use crate::packet::{DropReason, Header};
use trunkline_base::Time;

/// What becomes of a packet that enters a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It comes out then, with this TOS byte.
    Arrives(Time, u8),
    /// It never comes out; the queue would have sent it with this TOS byte.
    Dropped(DropReason, u8),
    /// Its medium doesn't know yet.
    Open,
}

/// Somebody who looks on while packets pass the ends of their header's direction; nothing that it does changes what
/// happens. `()` looks away.
pub trait Tap {
    /// A packet enters a direction at `now`.
    fn sent(&mut self, _now: Time, _header: &Header, _payload: &[u8], _fate: Fate) {}

    /// A packet comes out of a direction at `now`.
    fn arrived(&mut self, _now: Time, _header: &Header, _payload: &[u8]) {}

    /// A packet whose fate was [`Fate::Open`] will never come out, as its medium
    /// knows at `now`.
    fn dropped(&mut self, _now: Time, _header: &Header, _payload: &[u8], _why: DropReason) {}
}

impl Tap for () {}
