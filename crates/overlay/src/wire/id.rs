//! Identifiers of a node and of its starts.

use core::fmt;

/// A node's 32-bit address in the overlay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Stands for no node in a message field; no node may use this id.
    pub const NONE: NodeId = NodeId(0);

    /// Whether a node may have this id.
    pub fn is_nodes(self) -> bool {
        self != NodeId::NONE
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a start of a node, and grows with every start, so that a neighbour can tell a
/// restarted node's fresh counters from old ones. A driver passes wall-clock nanoseconds, a
/// simulator counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Incarnation(pub u64);
