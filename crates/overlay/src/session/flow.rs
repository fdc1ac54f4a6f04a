use crate::wire::NodeId;
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::{SeqWindow, Time, extend, first};

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
}

/// Tells the copies of a flow's packets apart from new ones, and a source that
/// numbers anew (it restarted) from copies.
#[derive(Debug, Default)]
pub struct Dedup {
    seen: Option<(Time, Window)>,
    /// The number that would follow the last one that made no sense.
    expected: Option<u16>,
}

type Window = SeqWindow<4>;

/// After this silence the numbers may have started anew: no deadline is longer,
/// so no copy of an older packet is still under way.
const FORGET_AFTER: Duration = Duration::from_millis(255);

impl Dedup {
    /// Whether the packet numbered `wire_seq` is new.
    pub fn is_new(&mut self, now: Time, wire_seq: u16) -> bool {
        let Some((last, window)) = &mut self.seen else {
            return self.start(now, wire_seq);
        };
        if now.since(*last) > FORGET_AFTER {
            return self.start(now, wire_seq);
        }
        let seq = extend(window.highest(), wire_seq);
        if seq + Window::SIZE <= window.highest() {
            // Far behind all others: a stray copy, or a source that restarted.
            // Two in a row are a restart (RFC 3550, A.1).
            if self.expected == Some(wire_seq) {
                return self.start(now, wire_seq);
            }
            self.expected = Some(wire_seq.wrapping_add(1));
            return false;
        }
        let new = window.insert(seq);
        if new {
            *last = now;
        }
        new
    }

    fn start(&mut self, now: Time, wire_seq: u16) -> bool {
        *self = Dedup { seen: Some((now, Window::starting_at(first(wire_seq)))), expected: None };
        true
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
    fn a_restarted_source_costs_one_packet() {
        let mut d = Dedup::default();
        let mut heard =
            |seqs: &[u16]| -> Vec<bool> { seqs.iter().map(|&s| d.is_new(Time::ZERO, s)).collect() };
        assert_eq!(heard(&[10, 11, 12]), [true; 3]);
        // Ahead it is believed at once, behind at the second number.
        assert_eq!(heard(&[30_000, 30_001, 30_001]), [true, true, false]);
        assert_eq!(heard(&[500, 501, 501, 502]), [false, true, false, true]);
        // A stray copy of old numbers changes nothing.
        assert_eq!(heard(&[60_000, 503, 504]), [false, true, true]);
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
