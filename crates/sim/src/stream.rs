//! Streams between applications: one that writes, and one that reads and checks.

use crate::app::{Application, Io};
use std::collections::VecDeque;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request, Reset};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::NodeId;

/// Maximum number of bytes that a reader's node may hand over before the reader grants credit
/// again.
const CREDIT: u32 = 256 << 10;

/// Length of the creation time in front of each message, in bytes; it is in nanoseconds.
const STAMP: usize = 8;

/// Data that a [`StreamSource`] writes.
#[derive(Clone, Copy, Debug)]
pub enum Writing {
    /// A bulk transfer of this many bytes, as fast as the node accepts them.
    Bulk(u64),
    /// Messages at equal intervals, each beginning with its creation time.
    Messages {
        /// The size of each message, in bytes: at least 8.
        bytes: usize,
        /// The time from one message to the next.
        spacing: Duration,
        /// The number of messages.
        count: u64,
    },
}

/// An application that opens a stream, writes, and ends it.
#[derive(Debug)]
pub struct StreamSource {
    to: NodeId,
    port: u16,
    start: Time,
    /// Time from opening the stream to `start`, so that the first message doesn't wait for the
    /// handshake.
    pub lead: Duration,
    writing: Writing,
    asked: bool,
    /// Number of messages created, and the creation times of those not written yet.
    made: u64,
    waiting: VecDeque<Time>,
    /// Number of bytes written, and of bytes that may still be written.
    written: u64,
    credit: u64,
    open: bool,
    shut: bool,
    /// Number of messages created while an earlier one still waited to be written.
    pub flow_controlled: u64,
    /// Reason for a reset of the stream, if there was one.
    pub reset: Option<Reset>,
    /// Time at which the end of the other direction was read.
    pub ended: Option<Time>,
}

impl StreamSource {
    /// Opens a stream to `port` of node `to`, and writes from `start` on.
    pub fn new(to: NodeId, port: u16, start: Time, writing: Writing) -> StreamSource {
        StreamSource {
            to,
            port,
            start,
            lead: Duration::ZERO,
            writing,
            asked: false,
            made: 0,
            waiting: VecDeque::new(),
            written: 0,
            credit: 0,
            open: false,
            shut: false,
            flow_controlled: 0,
            reset: None,
            ended: None,
        }
    }

    /// Number of bytes that the node has accepted.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn write(&mut self, io: &mut Io<'_>) {
        if !self.open || self.shut {
            return;
        }
        let mut data = Vec::with_capacity(MAX_DATA);
        match self.writing {
            Writing::Bulk(total) => {
                while self.written < total && self.credit > 0 {
                    let len = (total - self.written).min(self.credit).min(MAX_DATA as u64);
                    data.clear();
                    data.extend((self.written..self.written + len).map(byte_at));
                    io.send(&ToNode::Stream(Request::Data(&data)));
                    (self.written, self.credit) = (self.written + len, self.credit - len);
                }
                self.shut = self.written == total;
            }
            Writing::Messages { bytes, count, .. } => {
                while self.credit >= bytes as u64
                    && let Some(at) = self.waiting.pop_front()
                {
                    data.clear();
                    data.extend_from_slice(&at.as_nanos().to_be_bytes());
                    data.resize(bytes, 0x5a);
                    io.send(&ToNode::Stream(Request::Data(&data)));
                    self.written += bytes as u64;
                    self.credit -= bytes as u64;
                }
                self.shut = self.made == count && self.waiting.is_empty();
            }
        }
        if self.shut {
            io.send(&ToNode::Stream(Request::Shut));
        }
    }
}

/// The byte at a position of a bulk transfer.
fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Application for StreamSource {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(self.start - self.lead);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.asked {
            self.asked = true;
            let (to, port) = (self.to, self.port);
            io.send(&ToNode::Stream(Request::Connect {
                to,
                port,
                messages: false,
                credit: CREDIT,
            }));
        }
        let Writing::Messages { spacing, count, .. } = self.writing else { return };
        while self.made < count && self.start + spacing * self.made as u32 <= io.now() {
            self.waiting.push_back(io.now());
            self.made += 1;
            self.flow_controlled += u64::from(self.waiting.len() > 1);
        }
        if self.made < count {
            io.wake_at(self.start + spacing * self.made as u32);
        }
        self.write(io);
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        match message {
            ToClient::Stream(Notice::Connected { credit, .. }) => {
                (self.open, self.credit) = (true, u64::from(*credit));
            }
            ToClient::Stream(Notice::Credit(more)) => self.credit += u64::from(*more),
            ToClient::Stream(Notice::Reset(why)) => {
                (self.open, self.reset) = (false, Some(*why));
                return;
            }
            ToClient::Stream(Notice::Shut) => self.ended = Some(io.now()),
            _ => {}
        }
        self.write(io);
    }
}

/// A listener that accepts a stream, reads it to its end, and then ends its own direction. A later
/// stream replaces the current one.
#[derive(Debug, Default)]
pub struct StreamSink {
    /// Size of messages; if `None`, the data are checked as a bulk transfer.
    messages: Option<usize>,
    /// Number of bytes read since credit was last granted.
    unread: u32,
    buffer: Vec<u8>,
    /// Number of bytes read from all streams.
    pub read: u64,
    /// Number of wrong bytes in a bulk transfer.
    pub wrong: u64,
    /// Delay of each message since its creation.
    pub delays: Vec<Duration>,
    /// Time at which the first byte arrived.
    pub first: Option<Time>,
    /// Time at which the end of the stream arrived.
    pub ended: Option<Time>,
    /// Number of streams accepted.
    pub streams: u32,
    /// Reason of each stream reset.
    pub resets: Vec<Reset>,
    /// Whether it withholds further credit, and until when; with a time, it ends its own direction
    /// at once.
    rests: bool,
    until: Option<Time>,
}

impl StreamSink {
    /// A sink for messages of `bytes` bytes that records their delays.
    pub fn of_messages(bytes: usize) -> StreamSink {
        StreamSink { messages: Some(bytes), ..StreamSink::default() }
    }

    /// A sink that never grants more than its initial credit.
    pub fn that_rests() -> StreamSink {
        StreamSink { rests: true, ..StreamSink::default() }
    }

    /// A sink that ends its own direction at once, and withholds further credit until `time`.
    pub fn that_rests_until(time: Time) -> StreamSink {
        StreamSink { rests: true, until: Some(time), ..StreamSink::default() }
    }

    fn take(&mut self, now: Time, data: &[u8]) {
        self.first.get_or_insert(now);
        let Some(size) = self.messages else {
            let wrong = data.iter().zip(self.read..).filter(|&(&b, at)| b != byte_at(at)).count();
            self.wrong += wrong as u64;
            self.read += data.len() as u64;
            return;
        };
        self.read += data.len() as u64;
        self.buffer.extend_from_slice(data);
        let whole = self.buffer.len() / size * size;
        for message in self.buffer[..whole].chunks(size) {
            let stamp = message.first_chunk::<STAMP>().map(|s| u64::from_be_bytes(*s));
            self.delays.push(now.since(Time::from_nanos(stamp.unwrap_or_default())));
        }
        self.buffer.drain(..whole);
    }
}

impl Application for StreamSink {
    fn start(&mut self, io: &mut Io<'_>) {
        io.send(&ToNode::Stream(Request::Listen { backlog: 8 }));
    }

    fn reattached(&mut self, io: &mut Io<'_>) {
        self.start(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.rests = false;
        io.send(&ToNode::Stream(Request::Credit(std::mem::take(&mut self.unread))));
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        let ToClient::Stream(notice) = message else { return };
        match notice {
            Notice::Incoming { token, .. } => {
                let (version, token) = (SESSION_VERSION, *token);
                (self.read, self.wrong, self.streams) = (0, 0, self.streams + 1);
                self.buffer.clear();
                io.send(&ToNode::Stream(Request::Accept { version, token, credit: CREDIT }));
            }
            Notice::Data(data) => {
                self.take(io.now(), data);
                self.unread += data.len() as u32;
                if self.unread >= CREDIT / 4 && !self.rests {
                    io.send(&ToNode::Stream(Request::Credit(std::mem::take(&mut self.unread))));
                }
            }
            Notice::Shut => {
                self.ended = Some(io.now());
                io.send(&ToNode::Stream(Request::Shut));
            }
            Notice::Reset(why) => self.resets.push(*why),
            Notice::Connected { .. } => {
                if let Some(time) = self.until {
                    io.send(&ToNode::Stream(Request::Shut));
                    io.wake_at(time);
                }
            }
            Notice::Credit(_) | Notice::Finished => {}
        }
    }
}
