//! Streams: ordered bytes from end to end, over links that are reliable hop by hop (Amir and
//! Danilov, *Reliable Communication in Overlay Networks*, DSN 2003).
//!
//! The two nodes of a stream's applications keep all of its state, and relays keep none. Links
//! retransmit lost packets, so an end seldom has to: only packets that a relay lost by restarting,
//! or dropped because its queue was full. Packets arrive in any order; the receiving end puts them
//! in order.
//!
//! - `Sender` keeps written data until it is acknowledged, and sends within the congestion window
//!   of one TCP ([`trunkline_rate::window`]), which queues on the path reduce by marking packets
//!   before they have to drop any. It requests at least four acknowledgements in a window.
//! - `Receiver` keeps data that its application hasn't read, and announces how much more it has
//!   room for.
//! - `End` opens a stream, keeps it alive, and ends each direction separately.
//! - `Streams` is the table of all streams of a node.
//!
//! Everything is bounded: streams, their memory, and the share of both that one other node may
//! have. A stream is lost with either of its nodes: one that has restarted answers that it doesn't
//! have the stream.

mod buffer;
mod end;
mod receiver;
mod segment;
mod sender;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use end::{End, Key, Owner};
pub(crate) use receiver::{Receiver, SegmentOutcome};
pub(crate) use segment::{Ack, Body, Broken, MAX_CONTROL, Segment, WINDOW_UNIT, is_control};
#[cfg(test)]
pub(crate) use segment::{Data, Number};
pub(crate) use sender::Sender;
pub(crate) use table::{Role, StreamId, Streams};

/// Bytes that the opener of a stream may send before it is accepted.
pub(crate) const OPENING_WINDOW: u64 = 16 << 10;

use core::ops::RangeInclusive;
use trunkline_rate::window::Algorithm;

/// Settings of a node's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of streams open at once, 0 to 2^20; at most half of them (rounded up) with
    /// any one other node. With 0 the node has no streams.
    pub max: usize,
    /// Maximum number of streams that wait at one port to be accepted, at least 1; a listener can
    /// request fewer.
    pub backlog: u16,
    /// Bytes that one end of a stream may keep in each direction, 64 KiB to 16 MiB: data written
    /// but not yet acknowledged, and data received but not yet read.
    pub buffer: usize,
    /// Bytes that all streams together may keep, at least four times `buffer`; at most half of them
    /// in streams with any one other node.
    pub memory: usize,
    /// How the congestion windows of streams grow.
    pub algorithm: Algorithm,
}

impl Config {
    /// The bytes that an end may keep in each direction: an acknowledgement can announce a window
    /// of at most 16 MiB.
    const BUFFER: RangeInclusive<usize> = 64 << 10..=16 << 20;

    /// Checks the ranges of all settings. The error names the one out of range as in the
    /// configuration file.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.max > 1 << 20 {
            return Err("[streams] max is out of range (0 to 1048576)");
        }
        if self.backlog == 0 {
            return Err("[streams] backlog is 0: give 1 to 65535; max = 0 disables streams");
        }
        if !Config::BUFFER.contains(&self.buffer) {
            return Err("[streams] buffer is out of range (64 KiB to 16 MiB)");
        }
        if self.max > 0 && self.memory < 4 * self.buffer {
            return Err("[streams] memory is less than four times buffer, which holds one \
                        direction of one stream: raise memory, or lower buffer");
        }
        Ok(())
    }
}

impl Default for Config {
    /// Returns 1,024 streams; 2 MiB in each direction suffice for 160 Mbit/s over a round trip of
    /// 100 ms.
    fn default() -> Config {
        Config {
            max: 1_024,
            backlog: 128,
            buffer: 2 << 20,
            memory: 128 << 20,
            algorithm: Algorithm::default(),
        }
    }
}
