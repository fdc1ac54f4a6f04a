use crate::wire::NodeId;
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::{Place, SeqTracker, Time};

/// The other end of a flow: node and virtual port.
pub type Peer = (NodeId, u16);

/// State per flow of one session, bounded: when it is full, the flow that was
/// silent longest makes room.
#[derive(Debug)]
pub struct FlowMap<V> {
    flows: BTreeMap<Peer, (Time, V)>,
    max: usize,
}

impl<V> FlowMap<V> {
    pub fn new(max: usize) -> FlowMap<V> {
        FlowMap { flows: BTreeMap::new(), max: max.max(1) }
    }

    /// The state of the flow with `peer`, made by `fresh` if there is none.
    pub fn get(&mut self, now: Time, peer: Peer, fresh: impl FnOnce() -> V) -> &mut V {
        if self.flows.len() >= self.max && !self.flows.contains_key(&peer) {
            let idle = self.flows.iter().min_by_key(|(_, (used, _))| *used).map(|(p, _)| *p);
            idle.map(|p| self.flows.remove(&p));
        }
        let (used, value) = self.flows.entry(peer).or_insert_with(|| (now, fresh()));
        *used = now;
        value
    }

    /// The state of the flow with `peer`, if there is one; this is not using it.
    pub fn peek(&self, peer: Peer) -> Option<&V> {
        self.flows.get(&peer).map(|(_, value)| value)
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
        *flows.get(Time::from_millis(1), peer(1), || 0) += 1;
        *flows.get(Time::from_millis(2), peer(2), || 0) += 1;
        *flows.get(Time::from_millis(3), peer(1), || 0) += 1;
        *flows.get(Time::from_millis(4), peer(3), || 0) += 1;
        assert_eq!(*flows.get(Time::from_millis(5), peer(1), || 0), 2);
        assert_eq!(*flows.get(Time::from_millis(6), peer(2), || 0), 0, "was displaced");
    }
}
