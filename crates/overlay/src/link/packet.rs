//! A packet inside a node, and when it is too late for it.

use crate::counters::DropReason;
use crate::wire::{DATA_HEADER, FlowHeader, MAX_HOPS, Service};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// Packet flag: it belongs to a stream.
pub(crate) const STREAM: u8 = 0x10;

/// Flag of a stream's packet: it holds no data, and goes before those of its source that do.
pub(crate) const CONTROL: u8 = 0x40;

/// Flag of a reliable packet: a queue on its path wants its sender to slow down.
pub(crate) const MARKED: u8 = 0x20;

/// A packet inside a node, on its path to a session or a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// The header that its origin wrote.
    pub flow: FlowHeader,
    /// Number of the source whose turn it takes: its own, or one that it shares with others.
    pub turn: u32,
    /// Whether some earlier link lost and recovered it.
    pub recovered: bool,
    /// Number of links that it may cross after the next one.
    pub hop_limit: u8,
    /// Flags of a reliable packet: [`STREAM`], [`CONTROL`], [`MARKED`].
    pub flags: u8,
    pub payload: &'a [u8],
    /// Time until which it is useful at its destination, on this node's clock.
    pub deadline: Time,
}

impl<'a> Packet<'a> {
    /// A packet that begins here.
    pub fn new(flow: FlowHeader, payload: &'a [u8], deadline: Time) -> Packet<'a> {
        let (turn, hop_limit) = (flow.source.0, MAX_HOPS - 1);
        Packet { flow, turn, recovered: false, hop_limit, flags: 0, payload, deadline }
    }
}

impl Packet<'_> {
    /// Whether it belongs to a stream.
    pub fn is_of_stream(&self) -> bool {
        self.flow.service == Service::Reliable && self.flags & STREAM != 0
    }

    /// Whether it goes before other packets of its source.
    pub fn is_control(&self) -> bool {
        self.is_of_stream() && self.flags & CONTROL != 0
    }

    /// Whether a queue on its path wants its sender to slow down.
    pub fn is_marked(&self) -> bool {
        self.flags & MARKED != 0
    }

    pub(super) fn frame_len(&self) -> usize {
        DATA_HEADER + self.payload.len()
    }

    /// Writes the frame into the `frame_len` bytes of its slot, except for the link's own header
    /// fields: those are known when it leaves.
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

/// A received packet, as the link describes it to the service that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxPacketInfo {
    /// The packet's number on this link and service.
    pub wire_seq: u16,
    /// Number of the envelope that contained it.
    pub envelope: u64,
    /// Remaining time until its deadline in milliseconds, as its sender reports it; a service
    /// without deadlines uses this byte for something else.
    pub remaining: u8,
    /// Bytes of the application's payload.
    pub len: usize,
    /// Whether it was retransmitted, on this link or an earlier one.
    pub recovered: bool,
    /// When the packet arrived.
    pub at: Time,
    /// Time from which it is no longer useful here.
    pub useful_until: Time,
    /// The link's round-trip time.
    pub rtt: Duration,
}

/// Time left until `deadline`, rounded to the nearest millisecond, so that the rounding errors of
/// many hops cancel out.
#[inline]
pub(crate) fn remaining_ms(now: Time, deadline: Time) -> u8 {
    let nanos = deadline.as_nanos().saturating_sub(now.as_nanos());
    let ms = nanos.saturating_add(500_000) / 1_000_000;
    u8::try_from(ms).unwrap_or(u8::MAX)
}

/// A wait within the time for processing one batch.
const PROMPT: Duration = Duration::from_millis(5);

/// Whether a packet that has been here since `since` has waited past its deadline. A packet that
/// was already late on arrival is forwarded: deadlines are estimated from half of the round trip,
/// and may be wrong by the difference between the two directions.
pub(crate) fn is_stale(now: Time, since: Time, deadline: Time) -> bool {
    now > deadline && now.since(since) > PROMPT
}
