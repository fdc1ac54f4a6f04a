use super::lru::Lru;
use crate::wire::NodeId;
use core::time::Duration;
use trunkline_base::{SeqWindow, Time, extend, first};

/// The remote end of a flow: node and virtual port.
pub type Peer = (NodeId, u16);

/// Bounded state per flow of one session: when it is full, the flow that has been silent longest is
/// displaced.
#[derive(Debug)]
pub struct FlowMap<V>(Lru<V>);

impl<V> FlowMap<V> {
    /// Creates a map for at most `max` flows: too few for a choice of keys to matter, so their hash
    /// needs no secret.
    pub fn new(max: usize) -> FlowMap<V> {
        FlowMap(Lru::new(max, 0))
    }

    /// The state of the flow with `peer`, created by `fresh` if there is none.
    pub fn get(&mut self, peer: Peer, fresh: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key(peer), fresh).0
    }

    /// The state of the flow with `peer`, if there is one; doesn't count as use.
    pub fn peek(&self, peer: Peer) -> Option<&V> {
        self.0.get(key(peer))
    }
}

fn key((node, port): Peer) -> u64 {
    u64::from(node.0) << 16 | u64::from(port)
}

/// Distinguishes copies of a flow's packets from new packets, by their 16-bit numbers and
/// deadlines. Unlike envelopes on a link, these packets have no wider number, but two facts about
/// time help:
///
/// - No copy arrives later than [`LIFE`] after its original was sent, as its deadline has passed.
///   After that much silence any number is new. (A queue that grows faster than round trips show it
///   can delay a copy for longer; it is recognised while its number is in the window.)
/// - A copy has its original's deadline, as far as delays are known. So a packet with a later
///   deadline than any before is new, if the numbers in between can have been sent in that time: at
///   most [`FASTEST`] a second, and at most [`LOST`] for each packet that arrived.
///
/// A number that is at most [`AHEAD`] ahead of the highest, modulo 2^16, counts as ahead. So no
/// flow loses a packet because of its number up to 64,000 packets a second, at which [`AHEAD`] are
/// sent within [`LIFE`]; nor does one of 500,000 a second, if all of its packets have the same time
/// to live and the estimates of delay change by less than half of the silence (16 ms where that
/// begins to matter). A copy is recognised for [`LIFE`] and up to 49,152 packets later: 98 ms at
/// 500,000 a second. One that arrives later than that is delivered twice, without harm to the
/// packets after it.
#[derive(Debug, Default)]
pub struct Dedup(Option<Heard>);

#[derive(Debug)]
struct Heard {
    window: SeqWindow<Box<[u64]>>,
    /// Time at which the last new packet arrived.
    last: Time,
    /// The latest deadline of all packets.
    latest: Time,
    /// Number of new packets so far.
    new: u64,
    /// The present interval of [`LIFE`] and the one before.
    stretches: [Stretch; 2],
    /// Numbers behind the window: those of a sender that has restarted.
    behind: Option<SeqWindow<[u64; WORDS]>>,
}

/// State of a flow at the beginning of an interval.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    began: Time,
    highest: u64,
    new: u64,
}

/// Upper bound of all deadlines.
pub(super) const LIFE: Duration = Duration::from_millis(255);

/// Reliable packets have no deadline: a link retransmits the packets that a relay accepted before
/// it failed, once the link or its replacement is up.
pub(super) const RELIABLE_LIFE: Duration = Duration::from_secs(5);

/// A quarter of the number space; the largest window leaves that much of it.
const AHEAD: u64 = 1 << 14;

/// Upper bound of a flow's rate, in packets per second: one core forwards fewer.
const FASTEST: u64 = 1_000_000;

/// Numbers that may lie between two packets of a fast flow, for each packet that arrived lately. A
/// slow flow cannot jump, whatever deadlines a neighbour claims.
const LOST: u64 = 256;

/// Words in the window of a new flow, enough for 500 packets a second, and the maximum size of a
/// window, which is the whole number space.
const WORDS: usize = 4;
const MAX_SIZE: u64 = 1 << 16;

impl Dedup {
    /// Whether the packet numbered `wire`, which arrived at `now` and has this `deadline`, is new.
    /// After a silence of `life`, any packet is.
    pub fn is_new(&mut self, now: Time, deadline: Time, wire: u16, life: Duration) -> bool {
        match &mut self.0 {
            Some(heard) if now.since(heard.last) <= life => heard.is_new(now, deadline, wire),
            heard => {
                // The flow needed a larger window before, and will again.
                let memory = heard.take().map(|heard| heard.window.into_memory());
                let memory = memory.unwrap_or_else(|| vec![0; WORDS].into());
                let seq = first(wire);
                let window = SeqWindow::starting_at(seq, memory);
                let stretches = [Stretch { began: now, highest: seq, new: 0 }; 2];
                let (last, latest, new, behind) = (now, deadline, 1, None);
                *heard = Some(Heard { window, last, latest, new, stretches, behind });
                true
            }
        }
    }
}

impl Heard {
    fn is_new(&mut self, now: Time, deadline: Time, wire: u16) -> bool {
        let highest = self.window.highest();
        if now.since(self.stretches[0].began) > LIFE {
            let present = Stretch { began: self.last, highest, new: self.new };
            self.stretches = [present, self.stretches[0]];
        }
        let before = self.stretches[1];
        let ahead = 1 + u64::from(wire.wrapping_sub((highest + 1) as u16));
        // A packet that arrives after its deadline doesn't show how long ago that was.
        let in_time = deadline > now;
        let later = if in_time { deadline.since(self.latest).as_nanos() as u64 } else { 0 };
        let fast = ahead <= LOST * (self.new - before.new);
        let seq = if fast && later >= ahead * (1_000_000_000 / FASTEST) {
            // A fast flow may have used more than the whole number space meanwhile.
            let time = self.last.since(before.began).as_nanos().max(16_000_000) as u64;
            let gone = (highest - before.highest).saturating_mul(later) / time;
            highest + ahead + ((gone.saturating_sub(ahead) + (1 << 15)) & !0xffff)
        } else if ahead <= AHEAD {
            highest + ahead
        } else {
            highest + ahead - (1 << 16)
        };
        self.make_room(1 + seq.max(highest) - seq.min(before.highest));
        let new = match seq + self.window.size() <= highest {
            true => self.is_new_behind(wire),
            false => self.window.insert(seq),
        };
        if new {
            self.new += 1;
            self.last = now;
            if in_time {
                self.latest = self.latest.max(deadline);
            }
        }
        new
    }

    /// Whether a packet is new whose number is behind the window, which has no record of it.
    fn is_new_behind(&mut self, wire: u16) -> bool {
        if let Some(window) = &mut self.behind {
            let (highest, seq) = (window.highest(), extend(window.highest(), wire));
            if seq + window.size() > highest && seq <= highest + AHEAD {
                return window.insert(seq);
            }
        }
        self.behind = Some(SeqWindow::starting_at(first(wire), [0; WORDS]));
        true
    }

    /// Grows the window towards `numbers` in proportion to the packets received, so that a few with
    /// distant numbers cannot make it large.
    fn make_room(&mut self, numbers: u64) {
        let mut size = self.window.size();
        while size < numbers && size <= 64 * self.new && size < MAX_SIZE {
            size *= 2;
        }
        if size > self.window.size() {
            self.window = self.window.moved(vec![0; size as usize / 64].into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use std::collections::BTreeSet;

    #[test]
    fn copies_are_dropped_and_a_restarted_flow_is_heard_again() {
        let mut d = Dedup::default();
        let at = Time::from_millis;
        let mut is_new = |ms, s| d.is_new(at(ms), at(100), s, LIFE);
        let heard: Vec<_> = [7, 9, 8, 9, 7].into_iter().map(|s| is_new(0, s)).collect();
        assert_eq!(heard, [true, true, true, false, false]);
        assert!(!is_new(200, 8));
        assert!(is_new(300, 8), "silent for longer than any deadline");
    }

    /// A sender that has restarted soon, and has drawn a number far behind.
    #[test]
    fn copies_of_a_restarted_flow_are_dropped_at_once() {
        let mut d = Dedup::default();
        let mut is_new = |s: u16| d.is_new(Time::ZERO, Time::ZERO, s, RELIABLE_LIFE);
        assert!((49_000..49_070).all(&mut is_new));
        let restarted: Vec<_> =
            [28_941, 28_942, 28_944, 28_941, 28_943, 28_944].map(&mut is_new).into();
        assert_eq!(restarted, [true, true, true, false, true, false]);
        assert!(!is_new(49_069) && is_new(49_070), "packets from before");
        assert!((28_945..29_900).all(&mut is_new) && !is_new(29_800));
    }

    /// The remaining time of a packet is never reported as negative, so the deadline of a late copy
    /// seems to be later than its original's.
    #[test]
    fn a_copy_that_comes_late_is_a_copy() {
        for late in 1..LIFE.as_millis() as u64 {
            let mut d = Dedup::default();
            let at = Time::from_millis;
            assert!(
                d.is_new(at(1_000), at(1_000), 7, LIFE) && d.is_new(at(1_000), at(1_000), 8, LIFE)
            );
            let now = at(1_000 + late);
            assert!(!d.is_new(now, now, 7, LIFE), "{late} ms late");
            assert!(d.is_new(now, now, 9, LIFE));
        }
    }

    /// A neighbour can claim any deadline; each number is still delivered only once.
    #[test]
    fn a_slow_flow_does_not_leap_for_a_later_deadline() {
        let mut d = Dedup::default();
        let at = Time::from_millis;
        for n in 0..200 {
            assert!(d.is_new(at(1_000 + n), at(1_000), n as u16, LIFE));
        }
        for n in 0..200 {
            assert!(!d.is_new(at(1_200 + n / 4), at(1_300 + n), n as u16, LIFE), "{n}");
        }
    }

    /// A flow, its network, and the packets that arrived.
    struct Flow {
        dedup: Dedup,
        /// Packets per millisecond of this flow.
        rate: u64,
        life: u64,
        next: u64,
        ms: u64,
        come: BTreeSet<u64>,
        /// Error of the path's estimated delay, in milliseconds.
        error: u64,
    }

    impl Flow {
        /// Delivers packet `n`, which was sent at `n / rate`.
        fn arrives(&mut self, n: u64) {
            let deadline = Time::from_millis(n / self.rate + self.life + self.error);
            let now = Time::from_millis(self.ms);
            let new = self.dedup.is_new(now, deadline, n as u16, LIFE);
            assert_eq!(new, self.come.insert(n), "{n} of {}/ms at {now:?}", self.rate);
        }

        fn second(&mut self, rng: &mut trunkline_base::Rng) {
            for _ in 0..1_000 {
                let outage = if rng.random_ratio(1, 200) { rng.random_range(1..400) } else { 0 };
                self.next += outage * self.rate;
                self.ms += outage;
                self.error = rng.random_range(0..5);
                let begin = self.next;
                for n in begin..begin + self.rate {
                    match rng.random_range(0..100) {
                        0 => {}
                        _ => self.arrives(n),
                    }
                }
                self.next += self.rate;
                self.ms += 1;
                // From recent packets: copies, and those that were recovered.
                let reach = (self.life - 10).min(49_000 / self.rate - 5);
                let back = rng.random_range(1..=reach).min(self.ms);
                let before = begin.saturating_sub(self.rate * back);
                for n in before..(before + self.rate).min(begin) {
                    if n % 7 == 0 || !self.come.contains(&n) {
                        self.arrives(n);
                    }
                }
                self.come = self.come.split_off(&begin.saturating_sub(400 * self.rate));
            }
        }
    }

    #[test]
    fn no_outage_of_any_flow_costs_a_packet_or_lets_a_copy_pass() {
        let mut rng = trunkline_base::rng(1, 1);
        for (rate, seconds) in [(1, 60), (10, 15), (50, 5), (120, 3), (500, 1)] {
            for life in [100, 255] {
                let come = BTreeSet::new();
                let dedup = Dedup::default();
                let (next, ms, error) = (0, 0, 0);
                let mut flow = Flow { dedup, rate, life, next, ms, come, error };
                (0..seconds).for_each(|_| flow.second(&mut rng));
            }
        }
    }

    /// Memory grows with the packets sent, not with the numbers claimed.
    #[test]
    fn a_window_grows_with_the_packets_that_come() {
        let mut d = Dedup::default();
        for k in 0..16u64 {
            d.is_new(Time::from_millis(k), Time::from_millis(k), (k * 16_000) as u16, LIFE);
        }
        assert!(d.0.unwrap().window.size() <= 1_024);
    }

    /// A copy was delayed for longer than any estimate.
    #[test]
    fn what_comes_after_a_copy_of_long_ago_is_delivered() {
        let mut d = Dedup::default();
        for k in 0..70_000u64 {
            let at = Time::from_millis(k * 20);
            assert!(d.is_new(at, at + LIFE, k as u16, LIFE));
            if k % 1_000 == 999 {
                assert!(!d.is_new(at, at + LIFE, (k - 200) as u16, LIFE));
                d.is_new(at, at + LIFE, (k - 600) as u16, LIFE);
            }
        }
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
