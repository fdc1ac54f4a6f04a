use super::lru::Lru;
use crate::wire::NodeId;
use core::time::Duration;
use trunkline_base::{Place, SeqTracker, Time};

/// The other end of a flow: node and virtual port.
pub type Peer = (NodeId, u16);

/// State per flow of one session, bounded: when it is full, the flow that was
/// silent longest makes room.
#[derive(Debug)]
pub struct FlowMap<V>(Lru<V>);

impl<V> FlowMap<V> {
    /// For at most `max` flows: too few for any choice of keys to matter, so
    /// that their hash needs no secret.
    pub fn new(max: usize) -> FlowMap<V> {
        FlowMap(Lru::new(max, 0))
    }

    /// The state of the flow with `peer`, made by `fresh` if there is none.
    pub fn get(&mut self, (node, port): Peer, fresh: impl FnOnce() -> V) -> &mut V {
        self.0.entry(u64::from(node.0) << 16 | u64::from(port), fresh).0
    }
}

/// Tells the copies of a flow's packets apart from new ones.
#[derive(Debug, Default)]
pub struct Dedup {
    numbers: SeqTracker<4>,
    last: Option<Time>,
}

/// After this silence the numbers may have started anew: no deadline is longer,
/// so no copy of an older packet is still under way.
const FORGET_AFTER: Duration = Duration::from_millis(255);

impl Dedup {
    /// Whether the packet numbered `wire_seq` is new.
    pub fn is_new(&mut self, now: Time, wire_seq: u16) -> bool {
        if self.last.is_some_and(|last| now.since(last) > FORGET_AFTER) {
            *self = Dedup::default();
        }
        let new = self.numbers.note(wire_seq) != Place::Known;
        if new {
            self.last = Some(now);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_dropped_and_a_restarted_flow_is_heard_again() {
        let mut d = Dedup::default();
        let at = Time::from_millis;
        let heard: Vec<_> = [7, 9, 8, 9, 7].into_iter().map(|s| d.is_new(at(0), s)).collect();
        assert_eq!(heard, [true, true, true, false, false]);
        assert!(!d.is_new(at(200), 8));
        assert!(d.is_new(at(300), 8), "silent for longer than any deadline");
    }

    #[test]
    fn the_longest_silent_flow_makes_room() {
        let mut flows = FlowMap::new(2);
        let peer = |n| (NodeId(n), 1);
        *flows.get(peer(1), || 0) += 1;
        *flows.get(peer(2), || 0) += 1;
        *flows.get(peer(1), || 0) += 1;
        *flows.get(peer(3), || 0) += 1;
        assert_eq!(*flows.get(peer(1), || 0), 2);
        assert_eq!(*flows.get(peer(2), || 0), 0, "was displaced");
    }
}
