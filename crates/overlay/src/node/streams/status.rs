//! What there is of streams, for people to look at.

use crate::node::Node;
use crate::session::SessionId;
use crate::session::stream::{End, Key, Owner};
use crate::wire::NodeId;
use core::time::Duration;

/// What a node has done for streams.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// Streams open now, those included that are being opened or closed.
    pub open: u64,
    /// Streams that applications here have opened, or tried to.
    pub opened: u64,
    /// Streams from elsewhere that were let in.
    pub accepted: u64,
    /// Streams from elsewhere that were refused.
    pub refused: u64,
    /// Streams that broke off.
    pub reset: u64,
    /// Bytes that other ends have acknowledged.
    pub sent: u64,
    /// Bytes that have come in order.
    pub received: u64,
    /// Segments that were sent again, end to end.
    pub repeated: u64,
}

/// A stream as one moment saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// The other end's node.
    pub peer: NodeId,
    /// The virtual port there.
    pub peer_port: u16,
    /// The virtual port here.
    pub port: u16,
    /// How far it has come.
    pub state: StreamPhase,
    /// The smoothed round trip, once one was measured.
    pub rtt: Option<Duration>,
    /// Bytes that may be under way.
    pub window: u64,
    /// Bytes that the other end has acknowledged.
    pub sent: u64,
    /// Bytes that were written here, and are under way or wait for that.
    pub unacknowledged: u64,
    /// Bytes that have come in order.
    pub received: u64,
    /// Bytes that have come and were not read yet.
    pub unread: u64,
    /// Segments that were sent again.
    pub repeated: u64,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPhase {
    /// The other end has not answered yet.
    Opening,
    /// It waits to be accepted.
    Waiting,
    /// Both ends have it.
    Open,
    /// Its application here has closed it, and what was written is still delivered.
    Closing,
    /// Both directions have ended; it is remembered for a minute.
    Over,
}

impl StreamPhase {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            StreamPhase::Opening => "opening",
            StreamPhase::Waiting => "waiting",
            StreamPhase::Open => "open",
            StreamPhase::Closing => "closing",
            StreamPhase::Over => "over",
        }
    }
}

impl From<&End> for Stream {
    fn from(end: &End) -> Stream {
        let Key { peer, peer_port, port } = end.key;
        let state = match end.owner {
            _ if end.is_over() => StreamPhase::Over,
            Owner::Backlog { .. } => StreamPhase::Waiting,
            Owner::Nobody => StreamPhase::Closing,
            Owner::Session(_) if end.is_open() => StreamPhase::Open,
            Owner::Session(_) => StreamPhase::Opening,
        };
        Stream {
            peer,
            peer_port,
            port,
            state,
            rtt: end.tx.rtt(),
            window: end.tx.window(),
            sent: end.tx.delivered(),
            unacknowledged: end.tx.unacknowledged(),
            received: end.rx.received(),
            unread: end.rx.unread(),
            repeated: end.tx.repeats(),
        }
    }
}

impl Node {
    /// The streams that end here.
    pub fn streams(&self) -> impl Iterator<Item = Stream> {
        self.forwarder.streams.table.iter().map(Stream::from)
    }

    /// Some of the streams that end here, each with the session that has it: those from
    /// `from` on, which is 0 at first, and where it goes on, if it does. At most `places`
    /// places of the table are looked at.
    pub fn streams_page(
        &self,
        from: usize,
        places: usize,
    ) -> (Vec<(Stream, Option<SessionId>)>, Option<usize>) {
        let (page, next) = self.forwarder.streams.table.page(from, places);
        let with_session = |end: &End| match end.owner {
            Owner::Session(session) => (Stream::from(end), Some(session)),
            Owner::Backlog { .. } | Owner::Nobody => (Stream::from(end), None),
        };
        (page.map(with_session).collect(), next)
    }
}
