//! Turns of the sources of a service's packets: deficit round robin (Shreedhar & Varghese 1995) by
//! source node, then by flow. A source with more packets than its share delays only itself.
//!
//! Sources and flows have records only while their packets wait. Records are found by a hash with a
//! key of this node's own, so that no one can choose identities to make that slow.

use super::ring::Slot;
use crate::wire::FlowHeader;
use std::collections::VecDeque;

/// Number of hashes of sources.
pub(super) const SOURCES: usize = 256;

/// Hashes sources and flows by a secret of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assignment(pub u64);

impl Assignment {
    pub fn source(self, turn: u32) -> usize {
        self.turn(turn) as usize % SOURCES
    }

    pub fn turn(self, turn: u32) -> u64 {
        self.hash(turn.into(), 0)
    }

    pub fn flow(self, (nodes, ports): FlowKey) -> u64 {
        self.hash(nodes, ports.into())
    }

    /// Two folded multiplications of numbers that a secret changes.
    #[inline]
    fn hash(self, a: u64, b: u64) -> u64 {
        let fold = |a: u64, b: u64| {
            let wide = u128::from(a) * u128::from(b);
            (wide >> 64) as u64 ^ wide as u64
        };
        let Assignment(secret) = self;
        let once = fold(a ^ secret.rotate_left(32), b ^ (secret | 1));
        fold(once ^ secret, 0x9e37_79b9_7f4a_7c15)
    }
}

/// Bytes that a source, and a flow within its source's turn, may send in each round: about one
/// Ethernet packet. Larger packets wait for several rounds.
const QUANTUM: u32 = 1_500;

/// How many times the room that is free a source may fill: one alone has four fifths of the room,
/// two have four ninths each.
const TIMES_FREE: usize = 4;

/// The slot where there is no packet.
const NONE: Slot = Slot::MAX;
/// The index where there is no record of a source or flow.
const NOBODY: u16 = u16::MAX;

/// Packets in the order of their arrival.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: Slot,
    last: Slot,
    packets: u32,
    bytes: u32,
}

impl Queue {
    const EMPTY: Queue = Queue { first: NONE, last: NONE, packets: 0, bytes: 0 };
}

/// Source, destination and ports: what tells flows apart.
pub(super) type FlowKey = (u64, u32);

/// The record of a flow that has packets waiting.
#[derive(Clone, Copy, Debug)]
struct Flow {
    key: FlowKey,
    hash: usize,
    queue: Queue,
    /// Bytes that have left since anything of it has been waiting.
    left: u64,
    /// Bytes that it may still send in this round.
    deficit: u32,
    /// The next flow of the source, and the next one with the same hash.
    behind: u16,
    chained: u16,
}

/// The record of a source that has packets waiting.
#[derive(Clone, Copy, Debug)]
struct Source {
    id: u32,
    hash: usize,
    packets: u32,
    bytes: usize,
    deficit: u32,
    /// Whether it has received its quantum for this round, and the flow whose turn it is.
    is_paid: bool,
    is_flow_paid: bool,
    /// Packets that go before those of its flows.
    first: Queue,
    /// Flows with packets, in the order of their turns.
    flow: u16,
    last_flow: u16,
    /// The next source with the same hash.
    chained: u16,
}

/// Source and flow of a packet, with their hashes and records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    id: u32,
    key: FlowKey,
    hash_of_source: usize,
    hash_of_flow: usize,
    source: u16,
    flow: u16,
}

impl Place {
    /// A number of 8 bits for the flow.
    pub fn number(&self) -> u8 {
        self.hash_of_flow as u8
    }
}

/// Waiting packets of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backlog {
    /// Slot of its oldest packet.
    pub oldest: Slot,
    pub bytes: usize,
    /// Bytes of it that have left since anything of it has been waiting.
    pub left: u64,
}

/// The order in which the packets of a service's sources leave.
#[derive(Debug)]
pub(super) struct Turns {
    /// Behind each packet, by the low bits of its slot: the next one of its queue, and its cost.
    behind: Box<[(Slot, u32)]>,
    sources: Vec<Source>,
    flows: Vec<Flow>,
    /// The first record of each hash.
    sources_by_hash: Box<[u16]>,
    flows_by_hash: Box<[u16]>,
    unused_sources: Vec<u16>,
    unused_flows: Vec<u16>,
    /// Sources with packets; it is the first one's turn.
    line: VecDeque<u16>,
    /// Bytes and packets of all sources, and how many bytes may wait.
    bytes: usize,
    packets: u32,
    most_bytes: usize,
    assignment: Assignment,
}

impl Turns {
    /// Turns for packets in the slots of a ring for `packets` packets and `bytes` bytes.
    pub fn new(bytes: usize, packets: usize, secret: u64) -> Turns {
        // Each record has a packet, so that there are numbers for all of them.
        let packets = packets.clamp(1, usize::from(NOBODY)).next_power_of_two();
        Turns {
            behind: vec![(NONE, 0); packets].into(),
            sources: Vec::new(),
            flows: Vec::new(),
            sources_by_hash: vec![NOBODY; packets].into(),
            flows_by_hash: vec![NOBODY; packets].into(),
            unused_sources: Vec::new(),
            unused_flows: Vec::new(),
            line: VecDeque::new(),
            bytes: 0,
            packets: 0,
            most_bytes: bytes,
            assignment: Assignment(secret),
        }
    }

    /// Number of waiting packets.
    pub fn len(&self) -> usize {
        self.packets as usize
    }

    /// Whether a packet of `cost` bytes may wait: a source may have [`TIMES_FREE`] times as much as
    /// all sources leave free, and each of its flows as many times what is left of that (Choudhury &
    /// Hahne 1998), so that there is room for those that come later.
    pub fn admits(&self, place: &Place, cost: usize) -> bool {
        let source = self.sources.get(usize::from(place.source));
        let (packets, bytes) = source.map_or((0, 0), |s| (s.packets as usize, s.bytes));
        let flow = self.flows.get(usize::from(place.flow)).map_or(Queue::EMPTY, |f| f.queue);
        let fits = |size: usize, all: usize, source: usize, flow: usize, cost: usize| {
            let left = (TIMES_FREE * size.saturating_sub(all)).saturating_sub(source);
            flow + cost <= TIMES_FREE * left
        };
        fits(self.most_bytes, self.bytes, bytes, flow.bytes as usize, cost)
            && fits(self.behind.len(), self.len(), packets, flow.packets as usize, 1)
    }

    /// Adds the packet in `slot`; the caller has checked that there is room. With `first` it goes
    /// before other packets of its source.
    pub fn push(&mut self, place: Place, slot: Slot, cost: usize, first: bool) {
        let source = match place.source {
            NOBODY => self.begin_source(&place),
            source => source,
        };
        let at = self.place(slot);
        self.behind[at] = (NONE, cost as u32);
        let queue = match first {
            true => &mut self.sources[usize::from(source)].first,
            false => {
                let flow = match place.flow {
                    NOBODY => self.begin_flow(&place, source),
                    flow => flow,
                };
                &mut self.flows[usize::from(flow)].queue
            }
        };
        queue.packets += 1;
        queue.bytes += cost as u32;
        match core::mem::replace(&mut queue.last, slot) {
            NONE => queue.first = slot,
            last => self.behind[last as usize & (self.behind.len() - 1)].0 = slot,
        }
        let source = &mut self.sources[usize::from(source)];
        source.packets += 1;
        source.bytes += cost;
        self.packets += 1;
        self.bytes += cost;
    }

    /// The waiting packets of the flow, if there are any.
    pub fn backlog(&self, place: &Place) -> Option<Backlog> {
        let &Flow { queue, left, .. } = self.flows.get(usize::from(place.flow))?;
        Some(Backlog { oldest: queue.first, bytes: queue.bytes as usize, left })
    }

    /// The packet whose turn it is. Calling it again changes nothing.
    #[inline]
    pub fn next(&mut self) -> Option<Slot> {
        loop {
            let record = *self.line.front()?;
            let slot = self.next_of(record);
            let cost = self.behind[self.place(slot)].1;
            let source = &mut self.sources[usize::from(record)];
            // A single source needs no turns.
            if self.line.len() == 1 {
                return Some(slot);
            }
            if !core::mem::replace(&mut source.is_paid, true) {
                source.deficit += QUANTUM;
            }
            if source.deficit >= cost {
                return Some(slot);
            }
            source.is_paid = false;
            self.line.rotate_left(1);
        }
    }

    /// The packet of a source whose turn it is among its flows.
    fn next_of(&mut self, record: u16) -> Slot {
        let source = &mut self.sources[usize::from(record)];
        if source.first.packets > 0 {
            return source.first.first;
        }
        // Terminates, because each round adds a quantum for each flow.
        loop {
            let flow = &mut self.flows[usize::from(source.flow)];
            if source.flow == source.last_flow {
                return flow.queue.first;
            }
            if !core::mem::replace(&mut source.is_flow_paid, true) {
                flow.deficit += QUANTUM;
            }
            let place = flow.queue.first as usize & (self.behind.len() - 1);
            if flow.deficit >= self.behind[place].1 {
                return flow.queue.first;
            }
            let (done, next) = (source.flow, core::mem::replace(&mut flow.behind, NOBODY));
            self.flows[usize::from(source.last_flow)].behind = done;
            (source.flow, source.last_flow, source.is_flow_paid) = (next, done, false);
        }
    }

    /// Removes the packet whose turn it is.
    pub fn pop(&mut self) -> Option<Slot> {
        let slot = self.next()?;
        let record = *self.line.front()?;
        let (behind, cost) = self.behind[self.place(slot)];
        let source = &mut self.sources[usize::from(record)];
        let is_first = source.first.packets > 0;
        let queue = match is_first {
            true => &mut source.first,
            false => {
                let flow = &mut self.flows[usize::from(source.flow)];
                flow.left += u64::from(cost);
                flow.deficit = flow.deficit.saturating_sub(cost);
                &mut flow.queue
            }
        };
        queue.first = behind;
        queue.packets -= 1;
        queue.bytes = queue.bytes.saturating_sub(cost);
        let is_empty = behind == NONE;
        if is_empty {
            queue.last = NONE;
        }
        source.deficit = source.deficit.saturating_sub(cost);
        source.packets -= 1;
        source.bytes = source.bytes.saturating_sub(cost as usize);
        let is_done = source.packets == 0;
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(cost as usize);
        if is_empty && !is_first {
            self.end_flow(record);
        }
        if is_done {
            self.end_source(record);
        }
        Some(slot)
    }

    /// Finds the records of the source with this number and of the flow with this header. They stay
    /// valid until something changes.
    pub fn find(&self, id: u32, header: &FlowHeader) -> Place {
        let key = flow_key(id, header);
        let hash_of_source = self.assignment.turn(id) as usize & (self.sources_by_hash.len() - 1);
        let hash_of_flow = self.assignment.flow(key) as usize & (self.flows_by_hash.len() - 1);
        let mut source = self.sources_by_hash[hash_of_source];
        while source != NOBODY && self.sources[usize::from(source)].id != id {
            source = self.sources[usize::from(source)].chained;
        }
        let mut flow = self.flows_by_hash[hash_of_flow];
        while flow != NOBODY && self.flows[usize::from(flow)].key != key {
            flow = self.flows[usize::from(flow)].chained;
        }
        Place { id, key, hash_of_source, hash_of_flow, source, flow }
    }

    /// A record for a source whose first packet arrives.
    fn begin_source(&mut self, place: &Place) -> u16 {
        let hash = place.hash_of_source;
        let source = Source {
            id: place.id,
            hash,
            packets: 0,
            bytes: 0,
            deficit: 0,
            is_paid: false,
            is_flow_paid: false,
            first: Queue::EMPTY,
            flow: NOBODY,
            last_flow: NOBODY,
            chained: self.sources_by_hash[hash],
        };
        let record = insert(&mut self.sources, &mut self.unused_sources, source);
        self.sources_by_hash[hash] = record;
        self.line.push_back(record);
        record
    }

    /// A record for a flow whose first packet arrives: it is the last of its source.
    fn begin_flow(&mut self, place: &Place, source: u16) -> u16 {
        let (key, hash) = (place.key, place.hash_of_flow);
        let chained = self.flows_by_hash[hash];
        let (queue, behind) = (Queue::EMPTY, NOBODY);
        let flow = Flow { key, hash, queue, left: 0, deficit: 0, behind, chained };
        let record = insert(&mut self.flows, &mut self.unused_flows, flow);
        self.flows_by_hash[hash] = record;
        let source = &mut self.sources[usize::from(source)];
        match core::mem::replace(&mut source.last_flow, record) {
            NOBODY => source.flow = record,
            last => self.flows[usize::from(last)].behind = record,
        }
        record
    }

    /// Removes the record of the flow whose turn it is: nothing of it waits any more, and an empty
    /// queue keeps no credit for later.
    fn end_flow(&mut self, source: u16) {
        let source = &mut self.sources[usize::from(source)];
        let record = source.flow;
        let Flow { hash, behind, chained, .. } = self.flows[usize::from(record)];
        source.flow = behind;
        source.is_flow_paid = false;
        if behind == NOBODY {
            source.last_flow = NOBODY;
        }
        unchain(&mut self.flows_by_hash[hash], &mut self.flows, (record, chained), |flow| {
            &mut flow.chained
        });
        self.unused_flows.push(record);
    }

    /// Removes the record of a source of which nothing waits any more.
    fn end_source(&mut self, record: u16) {
        let Source { hash, chained, .. } = self.sources[usize::from(record)];
        unchain(&mut self.sources_by_hash[hash], &mut self.sources, (record, chained), |source| {
            &mut source.chained
        });
        self.line.pop_front();
        self.unused_sources.push(record);
    }

    fn place(&self, slot: Slot) -> usize {
        slot as usize & (self.behind.len() - 1)
    }
}

fn flow_key(source: u32, header: &FlowHeader) -> FlowKey {
    let nodes = u64::from(source) << 32 | u64::from(header.destination.0);
    (nodes, u32::from(header.source_port) << 16 | u32::from(header.destination_port))
}

/// Takes a record out of the chain of its hash, which begins at `first`; `behind` is the next one.
fn unchain<T>(
    first: &mut u16,
    records: &mut [T],
    (record, behind): (u16, u16),
    next: impl Fn(&mut T) -> &mut u16,
) {
    if *first == record {
        *first = behind;
        return;
    }
    let mut at = *first;
    while at != NOBODY {
        let place = next(&mut records[usize::from(at)]);
        if *place == record {
            *place = behind;
            return;
        }
        at = *place;
    }
}

/// Adds a record in the place of one that is not used, or behind all others.
fn insert<T>(records: &mut Vec<T>, unused: &mut Vec<u16>, record: T) -> u16 {
    match unused.pop() {
        Some(at) => {
            records[usize::from(at)] = record;
            at
        }
        None => {
            records.push(record);
            (records.len() - 1) as u16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Metric, NodeId, Service};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PACKETS: usize = 4_096;

    fn flow(source: u32, port: u16) -> FlowHeader {
        FlowHeader {
            service: Service::BestEffort,
            metric: Metric::default(),
            source: NodeId(source),
            destination: NodeId(1_000),
            source_port: port,
            destination_port: 7,
            flow_seq: 0,
        }
    }

    fn push(turns: &mut Turns, flow: &FlowHeader, slot: Slot, cost: usize, first: bool) {
        turns.push(turns.find(flow.source.0, flow), slot, cost, first);
    }

    fn admits(turns: &Turns, flow: &FlowHeader, cost: usize) -> bool {
        turns.admits(&turns.find(flow.source.0, flow), cost)
    }

    fn turns() -> Turns {
        Turns::new(1 << 20, PACKETS, 0x1234_5678_9abc_def1)
    }

    /// Keeps `waiting` packets of each flow in the queue, and returns the bytes that each has sent
    /// when `total` have left.
    fn run(
        turns: &mut Turns,
        flows: &[(FlowHeader, usize, usize)],
        total: usize,
    ) -> BTreeMap<(u32, u16), usize> {
        let (mut slot, mut owners) = (0, BTreeMap::new());
        let mut waiting = vec![0; flows.len()];
        let mut sent = BTreeMap::new();
        while sent.values().sum::<usize>() < total {
            for (n, (flow, cost, most)) in flows.iter().enumerate() {
                while waiting[n] < *most {
                    push(turns, flow, slot, *cost, false);
                    owners.insert(slot, n);
                    (waiting[n], slot) = (waiting[n] + 1, slot + 1);
                }
            }
            let next = turns.next();
            assert_eq!(turns.next(), next, "asking changes nothing");
            assert_eq!(turns.pop(), next);
            let n = owners.remove(&next.unwrap()).unwrap();
            waiting[n] -= 1;
            let (flow, cost, _) = flows[n];
            *sent.entry((flow.source.0, flow.source_port)).or_default() += cost;
        }
        sent
    }

    #[test]
    fn sources_share_equally_whatever_their_flows_and_packets() {
        let flows = [
            (flow(1, 1), 1_200, 2),
            (flow(2, 1), 200, 100),
            (flow(2, 2), 1_000, 20),
            (flow(2, 3), 1_000, 20),
            (flow(3, 1), 9_000, 3),
        ];
        let sent = run(&mut turns(), &flows, 6_000_000);
        let of = |source: u32| -> usize {
            sent.iter().filter(|((s, _), _)| *s == source).map(|(_, bytes)| bytes).sum()
        };
        for source in 1..=3 {
            assert!(of(source).abs_diff(2_000_000) < 30_000, "{sent:?}");
        }
        // Flows of one source share what it has.
        for port in 1..=3 {
            assert!(sent[&(2, port)].abs_diff(2_000_000 / 3) < 30_000, "{sent:?}");
        }
    }

    #[test]
    fn one_that_goes_first_does_so_in_its_source_s_turn() {
        let mut turns = turns();
        for slot in 0..100 {
            push(&mut turns, &flow(1 + slot as u32 % 2, 1), slot, 1_000, false);
        }
        push(&mut turns, &flow(2, 9), 100, 100, true);
        let order: Vec<_> = (0..6).map_while(|_| turns.pop()).collect();
        let first = order.iter().position(|slot| *slot == 100);
        assert!(first.is_some_and(|place| (1..=2).contains(&place)), "{order:?}");
        assert_eq!(order.iter().filter(|slot| **slot % 2 == 0).count(), 4, "{order:?}");
    }

    #[test]
    fn a_source_leaves_room_for_others() {
        let mut turns = turns();
        let mut slot = 0;
        let mut fill = |turns: &mut Turns, source| {
            let mut count = 0usize;
            while admits(turns, &flow(source, 1), 1_000) {
                push(turns, &flow(source, 1), slot, 1_000, false);
                (slot, count) = (slot + 1, count + 1);
            }
            count
        };
        let counts: Vec<_> = (1..=4).map(|source| fill(&mut turns, source)).collect();
        // Each takes 16 of 21 parts of what is left.
        let mut left: usize = 1_048;
        for &count in &counts {
            assert!(count.abs_diff(left * 16 / 21) <= 2, "{counts:?}");
            left -= count;
        }
        let out: Vec<_> = core::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(out.len(), counts.iter().sum::<usize>());
        assert_eq!((turns.len(), turns.bytes, turns.line.len()), (0, 0, 0));
        assert!(admits(&turns, &flow(5, 1), 1 << 20), "all of it is free again");
    }

    #[test]
    fn many_flows_of_a_source_leave_room_for_other_sources() {
        let mut turns = turns();
        let mut slot = 0;
        for port in 0..1_000 {
            while admits(&turns, &flow(1, port), 1_000) {
                push(&mut turns, &flow(1, port), slot, 1_000, false);
                slot += 1;
            }
        }
        // Four fifths.
        assert!((830..840).contains(&slot), "{slot}");
        assert!((0..100).all(|_| {
            slot += 1;
            let admits = admits(&turns, &flow(2, 1), 1_000);
            push(&mut turns, &flow(2, 1), slot, 1_000, false);
            admits
        }));
    }

    #[test]
    fn thousands_of_sources_with_a_packet_each_leave_in_their_order() {
        let mut turns = turns();
        let count = PACKETS as u32;
        (0..count).for_each(|n| push(&mut turns, &flow(n, 1), n.into(), 100, false));
        let left: Vec<_> = core::iter::from_fn(|| turns.pop()).collect();
        assert!(left.into_iter().eq((0..count).map(Slot::from)));
        assert!(turns.sources_by_hash.iter().all(|record| *record == NOBODY));
    }

    proptest! {
        /// Everything leaves once, each flow in its order.
        #[test]
        fn each_flow_keeps_its_order(
            steps in prop::collection::vec((0u32..600, 0u16..40, 1usize..3_000, any::<bool>()), 1..600),
        ) {
            let mut turns = turns();
            let mut waiting = BTreeMap::new();
            let mut last = BTreeMap::new();
            let mut check = |slot: Slot, waiting: &mut BTreeMap<Slot, (u32, u16)>| {
                let key = waiting.remove(&slot).expect("it waits");
                assert!(last.insert(key, slot).is_none_or(|before| before < slot), "in order");
            };
            for (slot, (source, port, cost, leaves)) in (0..).zip(steps) {
                let flow = flow(source, port);
                if admits(&turns, &flow, cost) {
                    push(&mut turns, &flow, slot, cost, false);
                    waiting.insert(slot, (source, port));
                }
                if leaves && let Some(slot) = turns.pop() {
                    check(slot, &mut waiting);
                }
                prop_assert_eq!(turns.len(), waiting.len());
            }
            while let Some(slot) = turns.pop() {
                check(slot, &mut waiting);
            }
            prop_assert!(waiting.is_empty() && turns.line.is_empty());
            prop_assert!(turns.sources_by_hash.iter().all(|record| *record == NOBODY));
            prop_assert!(turns.flows_by_hash.iter().all(|record| *record == NOBODY));
        }
    }
}
