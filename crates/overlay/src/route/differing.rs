//! Nodes that compute costs with other settings than this node. Two such nodes may each consider
//! the other to be closer to a third, and packets then loop until their hop limit. They are only
//! reported: their records count like any others.

use crate::wire::NodeId;
use std::collections::BTreeSet;

/// Set of differing nodes, bounded by the nodes in the database.
#[derive(Debug)]
pub(super) struct Differing {
    /// Digest of this node.
    own: u32,
    nodes: BTreeSet<NodeId>,
    changes: u64,
}

impl Differing {
    pub fn new(own: u32) -> Differing {
        Differing { own, nodes: BTreeSet::new(), changes: 0 }
    }

    /// Compares the digest that the database has for `node`; `None` if it has none.
    pub fn note(&mut self, node: NodeId, digest: Option<u32>) {
        let changed = if digest.is_some_and(|digest| digest != self.own) {
            self.nodes.insert(node)
        } else {
            self.nodes.remove(&node)
        };
        self.changes += u64::from(changed);
    }

    /// The differing nodes, ascending by id.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// Number of changes of this set.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_of_the_set() {
        let mut differing = Differing::new(7);
        let (a, b) = (NodeId(1), NodeId(2));
        for (node, digest, changes, nodes) in [
            (a, Some(7), 0, 0),
            (a, Some(8), 1, 1),
            (a, Some(9), 1, 1),
            (b, Some(8), 2, 2),
            (b, Some(7), 3, 1),
            (a, None, 4, 0),
            (a, None, 4, 0),
        ] {
            differing.note(node, digest);
            assert_eq!((differing.changes(), differing.nodes().len()), (changes, nodes));
        }
    }
}
