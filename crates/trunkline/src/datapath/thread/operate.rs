//! An operator's actions on the node, in the packet thread.

use super::WantedPaths;
use super::flows::FlowPage;
use super::streams::StreamPage;
use super::{NodeHandle, PacketThread, Request};
use crate::clock;
use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_overlay::node::{Changes, Echo, EchoAnswer, EchoError, MAX_OPEN};
use trunkline_overlay::route::Route;
use trunkline_overlay::wire::{Metric, NodeId};

/// Operation on the node.
pub enum Operation {
    /// Send an echo; its answer, if one arrives, goes to `reply`.
    Echo {
        /// Echo packet to send.
        echo: Echo,
        /// Receiver of the answer.
        reply: SyncSender<Result<EchoAnswer, EchoError>>,
    },
    /// Stop accepting sessions, or accept them again.
    Drain {
        /// True to drain, false to accept sessions again.
        on: bool,
        /// Notified when this is done.
        done: SyncSender<()>,
    },
    /// Return the computed routes to other nodes by a metric.
    Computed {
        /// Metric of the routes.
        metric: Metric,
        /// Receiver of the routes.
        reply: SyncSender<Vec<(NodeId, Route)>>,
    },
    /// Return a page of the flows that begin or end here.
    Flows {
        /// Start of the page; 0 for the first.
        from: u64,
        /// Receiver of the page.
        reply: SyncSender<FlowPage>,
    },
    /// Return a page of the streams that end at this node.
    Streams {
        /// Start of the page; 0 for the first.
        from: usize,
        /// Receiver of the page.
        reply: SyncSender<StreamPage>,
    },
    /// Change the rate at which each user's applications may send.
    Limit(Option<Bitrate>),
    /// Change settings of the running node.
    Reconfigure {
        /// Changes to be applied.
        changes: Box<Changes>,
        /// The links that leave in a configured way.
        paths: WantedPaths,
        /// Configuration file behind the changes, for a recording.
        text: String,
        /// Notified when this is done.
        done: SyncSender<()>,
    },
}

/// Reason why an operation had no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unanswered {
    /// The packet thread hangs, or is flooded with requests.
    #[error("the packet thread does not answer")]
    Thread,
    /// The echo could not be sent.
    #[error("{0}")]
    Echo(#[from] EchoError),
}

/// Receivers of echo answers, by echo number. The oldest is dropped first.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<(u64, SyncSender<Result<EchoAnswer, EchoError>>)>);

/// Time that the packet thread may take for an immediate operation.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// Time that the packet thread may take to apply a file: hundreds of new links take a second or
/// two.
const RECONFIGURED: Duration = Duration::from_secs(10);

impl NodeHandle {
    pub(super) fn operate(&self, operation: Operation) -> Option<()> {
        self.requests.try_send(Request::Operate(operation)).ok()?;
        self.wake.write(1).ok().map(drop)
    }

    /// Sends an echo and waits for its answer; `None` if none arrives within `patience`.
    pub fn echo(&self, echo: Echo, patience: Duration) -> Result<Option<EchoAnswer>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        self.operate(Operation::Echo { echo, reply }).ok_or(Unanswered::Thread)?;
        match answer.recv_timeout(patience) {
            Ok(answer) => Ok(Some(answer?)),
            Err(_) => Ok(None),
        }
    }

    /// Makes the node stop accepting sessions, or accept them again.
    pub fn drain(&self, on: bool) -> Result<(), Unanswered> {
        let (done, answer) = sync_channel(1);
        let asked = self.operate(Operation::Drain { on, done });
        asked.and_then(|()| answer.recv_timeout(AT_ONCE).ok()).ok_or(Unanswered::Thread)
    }

    /// Returns the computed routes to other nodes by `metric`; none without link-state routing.
    pub fn computed(&self, metric: Metric) -> Result<Vec<(NodeId, Route)>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        let asked = self.operate(Operation::Computed { metric, reply });
        asked.and_then(|()| answer.recv_timeout(AT_ONCE).ok()).ok_or(Unanswered::Thread)
    }

    /// Limits each user's applications to `rate`, or to none.
    pub fn limit(&self, rate: Option<Bitrate>) -> Result<(), Unanswered> {
        self.operate(Operation::Limit(rate)).ok_or(Unanswered::Thread)
    }

    /// Applies new settings, which come from the file `text`.
    pub fn reconfigure(
        &self,
        changes: Changes,
        paths: WantedPaths,
        text: String,
    ) -> Result<(), Unanswered> {
        let (done, answer) = sync_channel(1);
        let changes = Box::new(changes);
        let asked = self.operate(Operation::Reconfigure { changes, paths, text, done });
        asked.and_then(|()| answer.recv_timeout(RECONFIGURED).ok()).ok_or(Unanswered::Thread)
    }
}

impl PacketThread {
    // The requester may have given up, so nothing here waits for it.
    pub(super) fn operate(&mut self, operation: Operation) {
        match operation {
            Operation::Echo { echo, reply } => match self.node.echo(clock::now(), &echo) {
                Ok(()) => {
                    if self.echoes.0.len() == MAX_OPEN {
                        self.echoes.0.pop_front();
                    }
                    self.echoes.0.push_back((echo.nonce, reply));
                }
                Err(error) => drop(reply.try_send(Err(error))),
            },
            Operation::Computed { metric, reply } => {
                let node = self.node.node();
                let Some(router) = node.control().router() else {
                    return drop(reply.try_send(Vec::new()));
                };
                let nodes = node.table().iter(metric).map(|(node, _)| node);
                let way = |node| Some((node, router.route(node, metric)?));
                let _ = reply.try_send(nodes.filter_map(way).collect());
            }
            Operation::Flows { from, reply } => drop(reply.try_send(self.flows(from))),
            Operation::Streams { from, reply } => drop(reply.try_send(self.streams(from))),
            Operation::Drain { on, done } => {
                self.node.drain(clock::now(), on);
                let _ = done.try_send(());
            }
            Operation::Limit(rate) => self.rates.set_rate(rate),
            Operation::Reconfigure { changes, paths, text, done } => {
                self.node.reconfigure(clock::now(), &changes, &text);
                self.want_paths(paths);
                let _ = done.try_send(());
            }
        }
    }

    /// Passes returned echoes to their receivers.
    pub(super) fn hand_out_echoes(&mut self) {
        while let Some(answer) = self.node.next_echo() {
            let asked = self.echoes.0.iter().position(|(nonce, _)| *nonce == answer.nonce);
            if let Some((_, reply)) = asked.and_then(|i| self.echoes.0.remove(i)) {
                let _ = reply.try_send(Ok(answer));
            }
        }
    }
}
