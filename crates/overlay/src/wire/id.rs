//! Which node, and which start of it.

use core::fmt;

/// A node's 32-bit address in the overlay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// No node, where a message has room for one. No node has this id.
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

/// Which start of a node an envelope comes from: grows with every start, so
/// that a neighbour can tell a restarted node's fresh counters from old ones.
/// A driver passes wall-clock nanoseconds, a simulator counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Incarnation(pub u64);
