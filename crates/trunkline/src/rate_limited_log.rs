//! Rate-limited logging of events that others can provoke.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::wire::NodeId;

/// Minimum time between two log lines of a kind that others can provoke.
pub const QUIET: Duration = Duration::from_secs(10);
/// Maximum number of nodes that have a [`RateLimitedLog`] of their own.
const NODES: usize = 64;

/// Log lines that others can provoke: at most one per [`QUIET`].
#[derive(Default)]
pub struct RateLimitedLog {
    last: Option<Time>,
    kept_back: u64,
}

impl RateLimitedLog {
    /// Logs `what`, or counts it as suppressed; returns whether it was logged.
    pub fn warn(&mut self, now: Time, what: impl fmt::Display) -> bool {
        if self.is_quiet(now) {
            self.kept_back += 1;
            return false;
        }
        tracing::warn!(kept_back = self.kept_back, "{what}");
        (self.last, self.kept_back) = (Some(now), 0);
        true
    }

    /// Whether the last line was less than [`QUIET`] ago.
    fn is_quiet(&self, now: Time) -> bool {
        self.last.is_some_and(|t| now.since(t) < QUIET)
    }
}

/// Log lines that other nodes can provoke: at most one per [`QUIET`] and node. Nodes beyond the
/// first [`NODES`] in that time share a limit.
#[derive(Default)]
pub struct PerNode {
    logs: BTreeMap<NodeId, RateLimitedLog>,
    others: RateLimitedLog,
}

impl PerNode {
    /// Logs `what` about `node`, or counts it as suppressed; returns whether it was logged.
    pub fn warn(&mut self, now: Time, node: NodeId, what: impl fmt::Display) -> bool {
        if self.logs.len() >= NODES && !self.logs.contains_key(&node) {
            self.logs.retain(|_, log| log.is_quiet(now));
            if self.logs.len() >= NODES {
                return self.others.warn(now, what);
            }
        }
        self.logs.entry(node).or_default().warn(now, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_line_within_a_bound() {
        let mut log = PerNode::default();
        let mut logged = |ms: u64, nodes: std::ops::Range<u32>| {
            nodes.filter(|n| log.warn(Time::from_millis(ms), NodeId(*n), "x")).count()
        };
        assert_eq!([logged(0, 1..51), logged(9_999, 1..51)], [50, 0]);
        assert_eq!([logged(10_000, 1..51), logged(10_001, 1..1_001)], [50, 14 + 1]);
        // Those of the first nodes are old by now.
        assert_eq!(logged(20_000, 1_000..2_000), 50);
        assert!(log.logs.len() <= NODES);
    }
}
