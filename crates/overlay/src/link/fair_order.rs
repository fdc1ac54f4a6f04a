//! An order that is fair to the sources of packets: start-time fair queueing (Goyal, Vin and Cheng
//! 1996).
//!
//! Each packet has a number: where the bytes of its source before it end, counted as if each source
//! had a link of its own. Packets leave in the order of these numbers, so that sources with packets
//! waiting send equally many bytes, and one that sends less waits behind at most one packet of each
//! of the others.
//!
//! The flows of a source have the same order among themselves, on a scale of their source's own.
//! Packets of a flow that has had no more than the source's other flows are numbered as if the
//! source had sent only such packets. All of them count for the source, so that its flows decide
//! only among themselves.

use super::records::{NONE, Records};
use super::turns::{Assignment, FlowKey};
use core::time::Duration;
use trunkline_base::Time;

/// Time over which the pace is measured.
const SAMPLE: Duration = Duration::from_millis(50);

/// Bytes by which a flow may be ahead of its source's others: about one packet.
const LEAD: u64 = 1_500;

/// Sources and flows that are remembered though none of their packets waits. Of more, those are
/// forgotten, with a difference of one packet to flows and none to sources.
const FEW: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct Source {
    id: u32,
    /// Where its bytes end, and those of the flows that are not ahead of others.
    end: u64,
    even_end: u64,
    /// On the scale of its flows: start of the last packet that has left, and the highest end.
    position: u64,
    highest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Where its bytes end on its source's scale.
    end: u64,
    /// Number of its last packet: none that comes later leaves before it.
    number: u64,
}

/// Source and flow of a packet, with their records, if there are any. These stay valid until
/// something is placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    id: u32,
    keys: (u64, u64),
    source: u16,
    flow: u16,
}

/// The place of a packet in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub number: u64,
    /// Where the bytes of its flow before it end, on its source's scale.
    pub start: u64,
    /// The record of its source.
    pub source: u16,
}

/// The numbers of sources' packets.
#[derive(Debug)]
pub(super) struct FairOrder {
    sources: Records<Source>,
    flows: Records<Flow>,
    /// Number of the last packet that has left, and the highest end.
    position: u64,
    highest: u64,
    /// The highest end on any source's scale.
    highest_of_flows: u64,
    /// Position at an earlier time, and the bytes per second by which it has advanced before.
    sample: (Time, u64),
    pace: u64,
    assignment: Assignment,
}

impl FairOrder {
    pub fn new(secret: u64) -> FairOrder {
        FairOrder {
            sources: Records::new(),
            flows: Records::new(),
            position: 0,
            highest: 0,
            highest_of_flows: 0,
            sample: (Time::ZERO, 0),
            pace: 0,
            assignment: Assignment(secret),
        }
    }

    /// Forgets what the sources have sent.
    pub fn restart(&mut self, now: Time) {
        self.position = self.highest;
        (self.sample, self.pace) = ((now, self.position), 0);
    }

    /// Gives back the memory of many records. Places that were given before are no longer valid.
    pub fn end(&mut self) {
        if self.sources.len() > FEW {
            self.sources = Records::new();
        }
        if self.flows.len() > FEW {
            self.flows = Records::new();
        }
    }

    /// Finds the source `id` and the flow with these ends.
    pub fn find(&self, id: u32, ends: FlowKey) -> Origin {
        let keys = (self.assignment.turn(id), self.assignment.flow(ends));
        Origin { id, keys, source: self.sources.find(keys.0), flow: self.flows.find(keys.1) }
    }

    /// The place of a packet of `cost` bytes.
    pub fn place(&mut self, origin: Origin, cost: usize) -> Place {
        let (position, cost) = (self.position, cost as u64);
        let at = match origin.source {
            NONE => self.begin_source(&origin),
            at => at,
        };
        let flow = match origin.flow {
            NONE => self.begin_flow(&origin),
            flow => flow,
        };
        let records = (self.sources.get_mut(at), self.flows.get_mut(flow));
        let (Some(source), Some(flow)) = records else {
            return Place { number: position, start: 0, source: NONE };
        };
        if source.end <= position {
            source.position = source.highest;
        }
        let first = flow.end.max(source.position);
        let start = source.end.max(position);
        let mut number = start;
        if first <= source.position + LEAD {
            number = source.even_end.max(position);
            source.even_end = number + cost;
        }
        flow.end = first + cost;
        flow.number = number.max(flow.number);
        number = flow.number;

        source.end = start + cost;
        source.highest = source.highest.max(first + cost);
        self.highest_of_flows = self.highest_of_flows.max(first + cost);
        self.highest = self.highest.max(start + cost);
        Place { number, start: first, source: at }
    }

    /// How long a packet would wait behind its source's others; zero until the pace is known.
    pub fn wait(&self, origin: &Origin) -> Duration {
        let (position, pace) = (self.position, self.pace);
        let Some(source) = self.sources.get(origin.source) else { return Duration::ZERO };
        if pace == 0 {
            return Duration::ZERO;
        }
        let flow = self.flows.get(origin.flow).copied().unwrap_or(Flow { end: 0, number: 0 });
        let is_even = flow.end <= source.position + LEAD;
        let end = if is_even { source.even_end } else { source.end };
        let ahead = end.max(flow.number).saturating_sub(position);
        Duration::from_nanos(ahead.saturating_mul(1_000_000_000) / pace)
    }

    /// Notes that the packet with this place leaves.
    pub fn leaves(&mut self, now: Time, id: u32, place: Place) {
        self.position = self.position.max(place.number);
        if let Some(source) = self.sources.get_mut(place.source)
            && source.id == id
        {
            source.position = source.position.max(place.start);
        }
        let (then, before) = self.sample;
        let time = now.since(then);
        if time >= SAMPLE {
            let nanos = time.as_nanos() as u64;
            self.pace = (self.position - before).saturating_mul(1_000_000_000) / nanos;
            self.sample = (now, self.position);
        }
    }

    /// A record for a source that has none: none of its flows is ahead of another.
    fn begin_source(&mut self, origin: &Origin) -> u16 {
        let (position, local) = (self.position, self.highest_of_flows);
        let are_few = self.sources.len() < FEW;
        let source = Source { id: origin.id, end: 0, even_end: 0, position: local, highest: local };
        let until = |source: &Source| (are_few || source.end > position).then_some(source.end);
        self.sources.insert(origin.keys.0, source, until)
    }

    fn begin_flow(&mut self, origin: &Origin) -> u16 {
        let (position, are_few) = (self.position, self.flows.len() < FEW);
        let flow = Flow { end: 0, number: 0 };
        let until = |flow: &Flow| (are_few || flow.number > position).then_some(flow.number);
        self.flows.insert(origin.keys.1, flow, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Bytes that each flow sends over a link of 1 byte/µs, where each has a source, and offers
    /// packets of a size in bytes at a distance in microseconds. Those that would wait for more than
    /// 50 ms are refused.
    fn shares(flows: &[(u32, u64, u64)], seconds: u64) -> Vec<u64> {
        let mut fair = FairOrder::new(7);
        let mut queue = BTreeSet::new();
        let mut sent = vec![0; flows.len()];
        let mut free = 0;
        for us in 0..seconds * 1_000_000 {
            let now = Time::from_nanos(1_000 * us);
            for (n, &(id, size, every)) in flows.iter().enumerate() {
                let origin = fair.find(id, (100 + n as u64, 0));
                if us % every == 0 && fair.wait(&origin) < Duration::from_millis(50) {
                    let Place { number, start, source } = fair.place(origin, size as usize);
                    queue.insert((number, us, n, start, source));
                }
            }
            if us >= free
                && let Some((number, _, n, start, source)) = queue.pop_first()
            {
                fair.leaves(now, flows[n].0, Place { number, start, source });
                sent[n] += flows[n].1;
                free = us + flows[n].1;
            }
        }
        sent
    }

    #[test]
    fn sources_share_equally_what_others_leave() {
        // A tenth of the link, beside one that fills it and one that fills it four times.
        let sent = shares(&[(1, 100, 1_000), (2, 1_000, 1_000), (3, 500, 125)], 2);
        assert_eq!(sent[0], 200_000, "{sent:?}");
        for n in [1, 2] {
            assert!((890_000..910_000).contains(&sent[n]), "{sent:?}");
        }
    }

    #[test]
    fn flows_of_a_source_share_what_it_has() {
        // One source has half of the link. A tenth of it is for the flow that needs no more; the
        // others share the rest, though one of them offers five times as much as the other.
        let flows = [(1, 1_000, 1_000), (2, 100, 2_000), (2, 1_000, 1_000), (2, 1_000, 200)];
        // Packets of before the pace is known take turns beside those that come later.
        let (early, all) = (shares(&flows, 2), shares(&flows, 4));
        let sent: Vec<_> = all.iter().zip(early).map(|(all, early)| all - early).collect();
        for (sent, share) in sent.iter().zip([1_000_000, 100_000, 450_000, 450_000]) {
            assert!(sent.abs_diff(share) <= share / 50, "{sent} and not {share}");
        }
    }

    /// Packets of one flow leave in the order in which they came, though it was ahead of the others.
    #[test]
    fn no_packet_of_a_flow_overtakes_another() {
        let mut fair = FairOrder::new(7);
        let mut queue = BTreeSet::new();
        let mut came = 0;
        let mut come = |fair: &mut FairOrder, queue: &mut BTreeSet<_>, flow, cost| {
            let origin = fair.find(1, (flow, 0));
            let Place { number, start, source } = fair.place(origin, cost);
            came += 1;
            queue.insert((number, came, flow, start, source));
        };
        let mut left = Vec::new();
        for _ in 0..20 {
            come(&mut fair, &mut queue, 1, 1_000);
        }
        for _ in 0..9 {
            come(&mut fair, &mut queue, 2, 200);
        }
        while let Some((number, came, flow, start, source)) = queue.pop_first() {
            fair.leaves(Time::ZERO, 1, Place { number, start, source });
            if flow == 2 {
                left.push(came);
            }
            if came == 3 {
                come(&mut fair, &mut queue, 2, 200);
            }
        }
        assert!(left.len() == 10 && left.is_sorted(), "{left:?}");
    }

    #[test]
    fn many_flows_of_a_source_have_no_more_than_its_share() {
        // Each of the packets is of another flow.
        let mut fair = FairOrder::new(7);
        let (mut queue, mut sent, mut flow) = (BTreeSet::new(), [0; 2], 0);
        for ms in 0..1_000 {
            for (id, packets) in [(1, 1), (2, 8)] {
                for _ in 0..packets {
                    flow += 1;
                    let origin = fair.find(id, (if id == 1 { 0 } else { flow }, 0));
                    let Place { number, start, source } = fair.place(origin, 500);
                    queue.insert((number, flow, id, start, source));
                }
            }
            // Two packets a millisecond.
            for _ in 0..2 {
                let Some((number, _, id, start, source)) = queue.pop_first() else { continue };
                fair.leaves(Time::from_millis(ms), id, Place { number, start, source });
                sent[id as usize - 1] += 1;
            }
        }
        assert!(sent[0] >= 995, "{sent:?}");
    }

    fn place(fair: &mut FairOrder, id: u32, cost: usize) -> Place {
        fair.place(fair.find(id, (id.into(), 0)), cost)
    }

    fn wait(fair: &FairOrder, id: u32) -> Duration {
        fair.wait(&fair.find(id, (id.into(), 0)))
    }

    #[test]
    fn many_sources_of_a_packet_each_are_served_in_the_order_of_arrival() {
        let mut fair = FairOrder::new(7);
        place(&mut fair, 5, 10_000);
        for id in 1_000..5_096 {
            assert_eq!(place(&mut fair, id, 100).number, 0);
        }
        // Each of them has had its turn.
        for id in 1_000..5_096 {
            assert_eq!(place(&mut fair, id, 100).number, 100);
        }
        assert_eq!(place(&mut fair, 5, 100).number, 10_000);
    }

    #[test]
    fn the_records_of_a_crowd_are_given_back() {
        let mut fair = FairOrder::new(7);
        for id in 0..5_000 {
            place(&mut fair, id, 100);
        }
        assert_eq!(fair.sources.len(), 5_000);
        fair.end();
        assert_eq!(fair.sources.len(), 0);
        // Few are kept, for a link that is crowded now and then.
        place(&mut fair, 1, 100);
        fair.end();
        assert_eq!(fair.sources.len(), 1);
    }

    #[test]
    fn the_wait_follows_from_the_pace() {
        let mut fair = FairOrder::new(7);
        fair.restart(Time::ZERO);
        for n in 0..100u64 {
            let place = place(&mut fair, 1, 1_000);
            assert_eq!(wait(&fair, 1), Duration::ZERO);
            if n < 50 {
                fair.leaves(Time::from_millis(n), 1, place);
            }
        }
        // 1,000 bytes a millisecond, and 51,000 of them wait.
        let last = Place { number: 50_000, start: 50_000, source: 0 };
        fair.leaves(Time::from_millis(50), 1, last);
        assert_eq!(wait(&fair, 1).as_millis(), 50);
        assert_eq!(wait(&fair, 2), Duration::ZERO);
        fair.restart(Time::from_millis(60));
        assert_eq!((wait(&fair, 1), place(&mut fair, 1, 10).number), (Duration::ZERO, 100_000));
    }
}
