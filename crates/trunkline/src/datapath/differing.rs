//! Nodes with cost settings that differ from this node's, as reported to an operator.

use crate::rate_limited_log::QUIET;
use trunkline_base::Time;
use trunkline_overlay::route::Router;
use trunkline_overlay::wire::NodeId;

/// Maximum number of nodes listed in `status`.
const LISTED: usize = 16;
/// Maximum number of nodes named in one log line.
const NAMED: usize = 8;

/// Nodes with a formula, deadline or detection time that differs from this node's.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Differing {
    /// Ids of the first sixteen such nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// Total number of such nodes.
    pub count: usize,
}

impl Differing {
    /// Reads the current state from `router`.
    pub fn of(router: &Router) -> Differing {
        let nodes = router.differing();
        Differing { count: nodes.len(), nodes: nodes.take(LISTED).collect() }
    }
}

/// Message that tells the operator what to do if `count` nodes differ, the first of them being
/// `nodes`; `None` if none does.
pub fn line(nodes: &[NodeId], count: usize) -> Option<String> {
    let mut named: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    match count.saturating_sub(nodes.len()) {
        0 => {}
        more => named.push(format!("and {more} more")),
    }
    let (nodes, verb) = match count {
        0 => return None,
        1 => ("node", "differs"),
        _ => ("nodes", "differ"),
    };
    Some(format!(
        "{nodes} {} {verb} from this node in [routing] formula, deadline or detection, so packets \
         may take worse routes or loop: set the same [routing] formula, deadline and detection on \
         all nodes and restart",
        named.join(", ")
    ))
}

/// Logs each change in the set of differing nodes, at most one line per [`QUIET`]. The last line is
/// always current: a change within [`QUIET`] is logged once that time has passed.
#[derive(Default)]
pub struct Log {
    /// Number of changes processed so far.
    seen: u64,
    /// Time at which the last line was written.
    last: Option<Time>,
    /// State reported by the last line.
    told: Differing,
}

impl Log {
    /// Logs a change in the state of `router`, if a line is due.
    pub fn look(&mut self, now: Time, router: &Router) {
        if self.is_due(now, router.differing_changes()) {
            self.log(now, router.differing_changes(), Differing::of(router));
        }
    }

    fn is_due(&self, now: Time, changes: u64) -> bool {
        changes != self.seen && self.last.is_none_or(|t| now.since(t) >= QUIET)
    }

    fn log(&mut self, now: Time, changes: u64, differing: Differing) {
        self.seen = changes;
        if differing == self.told {
            return;
        }
        let Differing { nodes, count } = &differing;
        match line(&nodes[..nodes.len().min(NAMED)], *count) {
            Some(what) => tracing::warn!("{what}"),
            None => tracing::info!(
                "all nodes have the same [routing] formula, deadline and detection again"
            ),
        }
        (self.last, self.told) = (Some(now), differing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(count: u32) -> Differing {
        let nodes = (1..=count).map(NodeId).take(LISTED).collect();
        Differing { nodes, count: count as usize }
    }

    #[test]
    fn the_last_line_is_true() {
        let mut log = Log::default();
        let at = Time::from_millis;
        assert!(!log.is_due(at(0), 0), "nothing has changed");
        assert!(log.is_due(at(0), 1));
        log.log(at(0), 1, differing(1));
        // A change and its reversal within the quiet time leave nothing to log.
        assert!(!log.is_due(at(9_999), 3));
        assert!(log.is_due(at(10_000), 3));
        log.log(at(10_000), 3, differing(1));
        assert_eq!(log.last, Some(at(0)));
        // No node differs: logged at once, because the last line was long ago.
        assert!(log.is_due(at(10_001), 4));
        log.log(at(10_001), 4, differing(0));
        assert_eq!((log.last, log.told.count), (Some(at(10_001)), 0));
    }

    #[test]
    fn a_line_names_a_few_nodes() {
        let of = |count| {
            let Differing { nodes, count } = differing(count);
            line(&nodes[..nodes.len().min(NAMED)], count)
        };
        assert_eq!(of(0), None);
        let starts = |count, start: &str| of(count).unwrap().starts_with(start);
        assert!(starts(1, "node 1 differs from this node in [routing] formula, "));
        assert!(starts(8, "nodes 1, 2, 3, 4, 5, 6, 7, 8 differ from"));
        assert!(starts(40, "nodes 1, 2, 3, 4, 5, 6, 7, 8, and 32 more differ from"));
    }
}
