//! The state and the counters of streams, as operators see them.

use crate::node::Node;
use crate::session::SessionId;
use crate::session::stream::{End, Key, Owner};
use crate::wire::NodeId;
use core::time::Duration;

/// Counters of all streams that end at a node, since its start.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// Streams that exist now, including those that are being opened or closed.
    pub open: u64,
    /// Streams that applications of this node have opened, or tried to.
    pub opened: u64,
    /// Streams requested by other ends that were admitted and wait to be accepted.
    pub accepted: u64,
    /// Streams requested by other ends that were refused.
    pub refused: u64,
    /// Streams that were reset before both directions had ended, or that were never opened.
    pub reset: u64,
    /// Bytes that other ends have acknowledged.
    pub sent: u64,
    /// Bytes that have been received in order.
    pub received: u64,
    /// Segments that the ends here had to retransmit; retransmissions by links don't count.
    pub retransmitted: u64,
}

/// The state of one end of a stream, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// The node of the other end.
    pub peer: NodeId,
    /// The virtual port at the other end.
    pub peer_port: u16,
    /// The virtual port at this end.
    pub port: u16,
    /// Where the stream is between its opening and its end.
    pub state: StreamPhase,
    /// The smoothed round-trip time from end to end, once it has been measured.
    pub rtt: Option<Duration>,
    /// The congestion window, in bytes including all headers.
    pub window: u64,
    /// Bytes of data that the other end has acknowledged.
    pub sent: u64,
    /// Bytes of data that were written here and have not been acknowledged.
    pub unacknowledged: u64,
    /// Bytes that have been received in order.
    pub received: u64,
    /// Bytes received in order that the application here has not read yet.
    pub unread: u64,
    /// Segments that this end had to retransmit.
    pub retransmitted: u64,
}

/// Where a stream is between its opening and its end, as one of its nodes sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPhase {
    /// The other end has not answered yet.
    Opening,
    /// It waits to be accepted by an application of this node.
    Waiting,
    /// It is open, in at least one direction.
    Open,
    /// The application of this node has closed it, and the data it wrote is still being delivered.
    Closing,
    /// Both directions have ended. It is remembered for a minute, to answer retransmitted packets.
    Over,
}

impl StreamPhase {
    /// The name of the phase in tables and in JSON, in lower case.
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
            retransmitted: end.tx.retransmits(),
        }
    }
}

impl Node {
    /// The state of all streams that end at this node, in no particular order.
    pub fn streams(&self) -> impl Iterator<Item = Stream> {
        self.forwarder.streams.table.iter().map(Stream::from)
    }

    /// A page of the streams that end at this node, each with the session that has it, if one does;
    /// and the start of the next page, if there is one. `from` is 0 for the first page. At most
    /// `places` slots of the table are examined, so a page may be short or even empty.
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
