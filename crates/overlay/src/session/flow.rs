use super::lru::Lru;
use crate::wire::NodeId;
use core::time::Duration;
use trunkline_base::{SeqWindow, Time, first};

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
    pub fn get(&mut self, peer: Peer, fresh: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key(peer), fresh).0
    }

    /// The state of the flow with `peer`, if there is one; this is not using it.
    pub fn peek(&self, peer: Peer) -> Option<&V> {
        self.0.get(key(peer))
    }
}

fn key((node, port): Peer) -> u64 {
    u64::from(node.0) << 16 | u64::from(port)
}

/// Tells the copies of a flow's packets apart from new ones, by their 16-bit
/// numbers and deadlines. Nothing counts here as envelopes do on a link, but two
/// things are known of time:
///
/// - No copy comes [`LIFE`] after its original was sent, as its deadline has
///   passed. After that much silence any number is new. (A queue that grows faster
///   than round trips show it can keep one for longer; it is taken for a copy
///   while its number is in the window.)
/// - A copy has its original's deadline, as far as delays are known. So what is
///   of use for longer than anything before is new, if the numbers that lie
///   between can have been sent in that time: at most [`FASTEST`] a second, and at
///   most [`LOST`] for each that came.
///
/// A number whose next turn is at most [`AHEAD`] ahead is ahead. So no flow loses
/// a packet for its number up to 64,000 packets a second, at which [`AHEAD`] are
/// sent within [`LIFE`]; nor one of 500,000 a second, if all of its packets have
/// the same time to live and the estimates of delay change by less than half of
/// the silence (16 ms where that begins to matter). A copy is recognised for
/// [`LIFE`] and up to 49,152 packets later: 98 ms at 500,000 a second. One that
/// comes later than that is delivered twice, and what follows it is not harmed.
#[derive(Debug, Default)]
pub struct Dedup(Option<Heard>);

#[derive(Debug)]
struct Heard {
    window: SeqWindow<Box<[u64]>>,
    /// When the last new one came.
    last: Time,
    /// The latest deadline of all.
    latest: Time,
    /// How many were new.
    new: u64,
    /// The present stretch of [`LIFE`] and the one before.
    stretches: [Stretch; 2],
}

/// How things were when a stretch of a flow began.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    began: Time,
    highest: u64,
    new: u64,
}

/// No deadline is longer.
pub(super) const LIFE: Duration = Duration::from_millis(255);

/// Reliable packets have none: a link repeats what a relay took before it failed, once it is
/// back or another is in its place.
pub(super) const RELIABLE_LIFE: Duration = Duration::from_secs(5);

/// A quarter of a turn, and of the largest window what is left of it.
const AHEAD: u64 = 1 << 14;

/// Packets a second that no flow exceeds: one core forwards fewer.
const FASTEST: u64 = 1_000_000;

/// Numbers that may lie between two packets of a fast flow, for each packet that
/// came lately: a slow flow does not leap, whatever a neighbour says of deadlines.
const LOST: u64 = 256;

/// Words of the window of a new flow, enough for 500 packets a second, and the
/// size of the largest: a turn.
const WORDS: usize = 4;
const MAX_SIZE: u64 = 1 << 16;

impl Dedup {
    /// Whether the packet numbered `wire`, which came `now` and is of use until
    /// `deadline`, is new. After a silence of `life` any is.
    pub fn is_new(&mut self, now: Time, deadline: Time, wire: u16, life: Duration) -> bool {
        match &mut self.0 {
            Some(heard) if now.since(heard.last) <= life => heard.is_new(now, deadline, wire),
            heard => {
                // A larger window was needed, and will be again.
                let memory = heard.take().map(|heard| heard.window.into_memory());
                let memory = memory.unwrap_or_else(|| vec![0; WORDS].into());
                let seq = first(wire);
                let window = SeqWindow::starting_at(seq, memory);
                let stretches = [Stretch { began: now, highest: seq, new: 0 }; 2];
                *heard = Some(Heard { window, last: now, latest: deadline, new: 1, stretches });
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
        // How long ago the deadline of what comes after it was, nobody has said.
        let in_time = deadline > now;
        let later = if in_time { deadline.since(self.latest).as_nanos() as u64 } else { 0 };
        let fast = ahead <= LOST * (self.new - before.new);
        let seq = if fast && later >= ahead * (1_000_000_000 / FASTEST) {
            // Of a fast flow more than a turn may have gone by.
            let time = self.last.since(before.began).as_nanos().max(16_000_000) as u64;
            let gone = (highest - before.highest).saturating_mul(later) / time;
            highest + ahead + ((gone.saturating_sub(ahead) + (1 << 15)) & !0xffff)
        } else if ahead <= AHEAD {
            highest + ahead
        } else {
            highest + ahead - (1 << 16)
        };
        self.make_room(1 + seq.max(highest) - seq.min(before.highest));
        // Nothing is known of one behind the window.
        let new = seq + self.window.size() <= highest || self.window.insert(seq);
        if new {
            self.new += 1;
            self.last = now;
            if in_time {
                self.latest = self.latest.max(deadline);
            }
        }
        new
    }

    /// Lets the window grow to `numbers` as far as packets have paid for it, lest
    /// a few with far numbers make it large.
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

    /// What is left of a packet's time is never said to be less than nothing, so a
    /// late copy seems to be of use for longer than its original was.
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

    /// A neighbour can say any deadline; one number is delivered once all the same.
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

    /// A flow, its network, and what has come of it.
    struct Flow {
        dedup: Dedup,
        /// Packets in a millisecond.
        rate: u64,
        life: u64,
        next: u64,
        ms: u64,
        come: BTreeSet<u64>,
        /// What the path's estimated delay is wrong by, in milliseconds.
        error: u64,
    }

    impl Flow {
        /// Number `n`, which was sent at `n / rate`, comes now.
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
                // Of what was sent lately: copies, and the repaired.
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

    /// Memory is for those who send, not for those who name large numbers.
    #[test]
    fn a_window_grows_with_the_packets_that_come() {
        let mut d = Dedup::default();
        for k in 0..16u64 {
            d.is_new(Time::from_millis(k), Time::from_millis(k), (k * 16_000) as u16, LIFE);
        }
        assert!(d.0.unwrap().window.size() <= 1_024);
    }

    /// A copy that was held up for longer than anybody knew.
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
