//! What the node wants in the log.

use super::PacketThread;
use crate::clock;
use crate::complaints::QUIET;
use trunkline_base::Time;
use trunkline_overlay::handshake::Refusal;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::Notice;
use trunkline_overlay::route::Formula;
use trunkline_overlay::wire::NodeId;

impl PacketThread {
    /// Logs the node's news. What strangers can provoke comes at most once in
    /// ten seconds.
    pub(super) fn log_notices(&mut self) {
        while let Some(notice) = self.node.next_notice() {
            match notice {
                Notice::Up(link) => self.log_link(link, true),
                Notice::Down(link) => self.log_link(link, false),
                Notice::Damped(link) => self.log_damping(link, true),
                Notice::Undamped(link) => self.log_damping(link, false),
                Notice::Refused { from, node: None, why } => {
                    let what = format!(
                        "a handshake from {from} was refused: {}, it is for another key than this \
                         node's, or of another overlay",
                        why.label()
                    );
                    // Garbage must not crowd out who has a key.
                    self.strangers.warn(clock::now(), &what);
                }
                Notice::Refused { from, node: Some(node), why } => {
                    let advice = match why {
                        Refusal::Version => {
                            ", the two nodes have no protocol version in common: upgrade the older"
                        }
                        _ => "",
                    };
                    let what = format!(
                        "a handshake from {from}, which says it is node {node}, was refused: \
                         {}{advice}",
                        why.label()
                    );
                    self.complaints.warn(clock::now(), &what);
                }
                Notice::OtherKey { node, name, from } => {
                    let what = format!(
                        "node {node} ({name}), at {from}, has another key than before: if it was \
                         not given a new one, two nodes have this number"
                    );
                    self.complaints.warn(clock::now(), &what);
                }
                Notice::ClockBehind { node, from, own: true } => {
                    let what = format!(
                        "node {node}, at {from}, has heard later starts of this node than this \
                         one: check this node's clock; the handshake goes on"
                    );
                    self.complaints.warn(clock::now(), &what);
                }
                Notice::ClockBehind { node, from, own: false } => {
                    let what = format!(
                        "node {node}, at {from}, had later starts than this one: check its clock, \
                         and revoke its earlier key if it was given a new one; the handshake goes on"
                    );
                    self.complaints.warn(clock::now(), &what);
                }
                Notice::Admitted { node, name, address, .. } => {
                    tracing::info!(%node, %name, %address, "a certified node is a neighbour now");
                }
                Notice::Closed { link, why } => {
                    let link = self.node.node().link(link);
                    let neighbour = link.map_or(0, |link| link.config().neighbour.0);
                    let why = why.label();
                    tracing::warn!(neighbour, why, "the link is closed: no longer trusted");
                }
            }
        }
        self.log_formulas();
    }

    /// Logs which nodes compute ways by another formula, where that has changed.
    fn log_formulas(&mut self) {
        let Some(router) = self.node.node().router() else { return };
        let changes = router.formula_changes();
        let now = clock::now();
        if self.formulas.is_due(now, changes) {
            let (own, others) = (router.formula(), router.other_formulas().collect());
            self.formulas.log(now, changes, own, others);
        }
    }

    /// Once when a link begins to cost more and once when that is over: at
    /// least a half-life apart.
    fn log_damping(&self, id: LinkId, damped: bool) {
        let Some(link) = self.node.node().link(id) else { return };
        let (neighbour, downs) = (link.config().neighbour.0, link.stats().downs);
        let path = Some(link.config().path.as_str()).filter(|path| !path.is_empty());
        if damped {
            tracing::warn!(
                neighbour,
                path,
                downs,
                "the link keeps failing: it costs more until it has been calm for a while"
            );
        } else {
            tracing::info!(neighbour, path, downs, "the link has been calm: it costs no more");
        }
    }

    /// What an operator looks for in the log after calls were bad.
    fn log_link(&self, id: LinkId, up: bool) {
        let node = self.node.node();
        let Some(link) = node.link(id) else { return };
        let neighbour = link.config().neighbour.0;
        let name = node.control().name(id).map(tracing::field::display);
        let path = Some(link.config().path.as_str()).filter(|path| !path.is_empty());
        let address = link.address().map(tracing::field::display);
        if up {
            tracing::info!(neighbour, name, path, address, "the link is up");
        } else {
            tracing::warn!(neighbour, name, path, address, "the link is down");
        }
    }
}

/// Nodes named in a line of the log; the command `routes` names all.
const NAMED: usize = 8;

/// What the log last said of nodes that compute ways by another formula. It always
/// comes to say what is: a change within [`QUIET`] is told when that is over.
#[derive(Default)]
pub(super) struct FormulaLog {
    /// Changes looked at so far.
    seen: u64,
    last: Option<Time>,
    told: Vec<(NodeId, Option<Formula>)>,
}

impl FormulaLog {
    fn is_due(&self, now: Time, changes: u64) -> bool {
        changes != self.seen && self.last.is_none_or(|t| now.since(t) >= QUIET)
    }

    fn log(
        &mut self,
        now: Time,
        changes: u64,
        own: Formula,
        others: Vec<(NodeId, Option<Formula>)>,
    ) {
        self.seen = changes;
        if others == self.told {
            return;
        }
        match line(own, &others) {
            Some(what) => tracing::warn!("{what}"),
            None => tracing::info!("all nodes compute ways by one formula again"),
        }
        (self.last, self.told) = (Some(now), others);
    }
}

/// Who differs; `None` if nobody does.
fn line(own: Formula, others: &[(NodeId, Option<Formula>)]) -> Option<String> {
    let name = |(node, formula): &(NodeId, Option<Formula>)| {
        format!("{node} (\"{}\")", formula.map_or("unknown", Formula::name))
    };
    let mut named: Vec<String> = others.iter().take(NAMED).map(name).collect();
    if let Some(more) = others.len().checked_sub(NAMED + 1) {
        named.push(format!("and {} more", more + 1));
    }
    let (nodes, verb) = match others.len() {
        0 => return None,
        1 => ("node", "computes"),
        _ => ("nodes", "compute"),
    };
    Some(format!(
        "{nodes} {} {verb} ways by another formula than this node (\"{}\"): packets may take worse \
         ways, or none; give all nodes one [routing] formula",
        named.join(", "),
        own.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_is() {
        let mut log = FormulaLog::default();
        let one = vec![(NodeId(1), Some(Formula::Paper))];
        let at = Time::from_millis;
        assert!(!log.is_due(at(0), 0), "nothing has changed");
        assert!(log.is_due(at(0), 1));
        log.log(at(0), 1, Formula::Measured, one.clone());
        // There and back within the quiet time: nothing is to be said.
        assert!(!log.is_due(at(9_999), 3));
        assert!(log.is_due(at(10_000), 3));
        log.log(at(10_000), 3, Formula::Measured, one);
        assert_eq!(log.last, Some(at(0)));
        // Over, at once as nothing has been said for so long.
        assert!(log.is_due(at(10_001), 4));
        log.log(at(10_001), 4, Formula::Measured, Vec::new());
        assert_eq!((log.last, log.told.len()), (Some(at(10_001)), 0));
    }

    #[test]
    fn a_line_names_a_few() {
        let others: Vec<_> = (1..=12).map(|n| (NodeId(n), None)).collect();
        assert_eq!(line(Formula::Measured, &[]), None);
        let text = line(Formula::Measured, &others).expect("twelve differ");
        assert!(text.starts_with("nodes 1 (\"unknown\"), 2"), "{text}");
        assert!(text.contains("8 (\"unknown\"), and 4 more compute"), "{text}");
    }
}
