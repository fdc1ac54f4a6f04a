//! A packet inside a node, and when it is too late for it.

use crate::counters::DropReason;
use crate::wire::{DATA_HEADER, FlowHeader, Service};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// In a packet's flags: it belongs to a stream.
pub(crate) const STREAM: u8 = 0x10;

/// In a reliable packet's flags: a queue on its way asks its sender to send less.
pub(crate) const MARKED: u8 = 0x20;

/// A packet inside a node, on its way to a session or a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// What its origin says of it.
    pub flow: FlowHeader,
    /// Whether some link before has lost it and got it again.
    pub recovered: bool,
    /// How many links it may cross after the next one.
    pub hop_limit: u8,
    /// Of a reliable packet: [`STREAM`], [`MARKED`].
    pub flags: u8,
    pub payload: &'a [u8],
    /// Until when it is of use to whom it is for, on this node's clock.
    pub deadline: Time,
}

impl Packet<'_> {
    /// Whether it belongs to a stream.
    pub fn is_of_stream(&self) -> bool {
        self.flow.service == Service::Reliable && self.flags & STREAM != 0
    }

    /// Whether a queue on its way asks its sender to send less.
    pub fn is_marked(&self) -> bool {
        self.flags & MARKED != 0
    }

    pub(super) fn frame_len(&self) -> usize {
        DATA_HEADER + self.payload.len()
    }

    /// Writes the frame into the `frame_len` bytes where it is kept, but for what
    /// the link says of it: that is known when it leaves.
    pub(super) fn keep(&self, frame: &mut [u8]) -> Result<(), DropReason> {
        let len = u16::try_from(self.payload.len()).map_err(|_| DropReason::TooLarge)?;
        let mut w = Writer::new(frame);
        let written = self.flow.emit(len, &mut w).and_then(|()| w.bytes(self.payload));
        if let Some(flags) = frame.get_mut(DATA_HEADER - 1) {
            *flags = self.flags;
        }
        written.map_err(|_| DropReason::TooLarge)
    }
}

/// What a link knows of a packet that has come in, for the service that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxPacketInfo {
    /// The packet's number on this link and service.
    pub wire_seq: u16,
    /// The count of the envelope that brought it.
    pub envelope: u64,
    /// What its sender says remains of its deadline, in milliseconds; a service without
    /// deadlines says something else there.
    pub remaining: u8,
    /// Bytes of the application's packet.
    pub len: usize,
    /// Whether somebody has repeated it.
    pub recovered: bool,
    /// When it came.
    pub at: Time,
    /// When it stops being of use here.
    pub useful_until: Time,
    /// The link's round trip.
    pub rtt: Duration,
}

/// What is left until `deadline`, to the nearest millisecond, so that the
/// rounding of many hops cancels out.
#[inline]
pub(crate) fn remaining_ms(now: Time, deadline: Time) -> u8 {
    let nanos = deadline.as_nanos().saturating_sub(now.as_nanos());
    let ms = nanos.saturating_add(500_000) / 1_000_000;
    u8::try_from(ms).unwrap_or(u8::MAX)
}

/// A wait that is no more than the work of one batch.
const PROMPT: Duration = Duration::from_millis(5);

/// Whether a packet that has been here since `since` has waited past its deadline.
/// One that came late is not meant: it is passed on, as deadlines are reckoned by
/// half of the round trip, and may be wrong by what the ways there and back differ.
pub(crate) fn is_stale(now: Time, since: Time, deadline: Time) -> bool {
    now > deadline && now.since(since) > PROMPT
}
