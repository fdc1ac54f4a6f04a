//! The operator's view of the node's streams.

use super::operate::{AT_ONCE, Operation, Unanswered};
use super::{NodeHandle, PacketThread};
use crate::datapath::sessions::Application;
use std::sync::mpsc::sync_channel;
use trunkline_overlay::node::Stream;

/// Maximum number of table slots examined for one query, so that packets don't wait for long.
const STREAMS_AT_ONCE: usize = 256;

/// A page of streams, each with its application, and the start of the next page if there is one.
pub type StreamPage = (Vec<(Stream, Option<Application>)>, Option<usize>);

impl NodeHandle {
    /// Returns a page of the streams that end at the node, from `from` on, which is 0 for the first
    /// page.
    pub fn streams(&self, from: usize) -> Result<StreamPage, Unanswered> {
        let (reply, answer) = sync_channel(1);
        let asked = self.operate(Operation::Streams { from, reply });
        asked.and_then(|()| answer.recv_timeout(AT_ONCE).ok()).ok_or(Unanswered::Thread)
    }
}

impl PacketThread {
    pub(super) fn streams(&self, from: usize) -> StreamPage {
        let (streams, next) = self.node.node().streams_page(from, STREAMS_AT_ONCE);
        let with_application = |(stream, session)| {
            (stream, Option::and_then(session, |id| self.carriers.application(id)))
        };
        (streams.into_iter().map(with_application).collect(), next)
    }
}
