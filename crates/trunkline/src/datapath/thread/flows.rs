//! Queries about the node's flows.

use super::operate::{AT_ONCE, Operation, Unanswered};
use super::{NodeHandle, PacketThread};
use crate::clock;
use crate::datapath::sessions::Application;
use std::sync::mpsc::sync_channel;
use trunkline_base::Time;
use trunkline_overlay::session::flows::Flow;

/// Maximum number of flows per query, which takes about 0.1 ms, so that packets don't wait.
pub const FLOWS_AT_ONCE: usize = 256;

/// A flow's state at one moment.
#[derive(Clone, Debug)]
pub struct FlowSnapshot {
    /// Time of the snapshot.
    pub at: Time,
    /// The flow, with its counts.
    pub flow: Flow,
    /// Application that holds its port here, if any.
    pub application: Option<Application>,
}

/// A page of flows, and the start of the next page if there is one.
pub type FlowPage = (Vec<FlowSnapshot>, Option<u64>);

impl NodeHandle {
    /// Returns a page of the flows that begin or end at the node, from `from` on, which is 0 for
    /// the first page.
    pub fn flows(&self, from: u64) -> Result<FlowPage, Unanswered> {
        let (reply, answer) = sync_channel(1);
        let asked = self.operate(Operation::Flows { from, reply });
        asked.and_then(|()| answer.recv_timeout(AT_ONCE).ok()).ok_or(Unanswered::Thread)
    }

    /// Returns all flows that begin or end at the node.
    pub fn all_flows(&self) -> Result<Vec<FlowSnapshot>, Unanswered> {
        let (mut flows, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let page;
            (page, next) = self.flows(from)?;
            flows.extend(page);
        }
        Ok(flows)
    }
}

impl PacketThread {
    pub(super) fn flows(&self, from: u64) -> FlowPage {
        let at = clock::now();
        let (flows, next) = self.node.node().flows(at, from, FLOWS_AT_ONCE);
        let snapshot = |(flow, session)| {
            let application = Option::and_then(session, |id| self.carriers.application(id));
            FlowSnapshot { at, flow, application }
        };
        (flows.into_iter().map(snapshot).collect(), next)
    }
}
