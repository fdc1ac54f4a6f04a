//! The events that happen to the overlay, and the routes that its nodes should then use: the same
//! for simulated nodes and real ones.

use super::some_time;
use std::time::Duration;
use trunkline_base::Rng;

/// Number of nodes. A node's id is its index plus one.
pub const NODES: usize = 4;
pub const A: usize = 0;
pub const B: usize = 1;

/// Two nodes and the one-way delay of the link between them, ms.
type Edge = (usize, usize, u64);

/// A–B–D takes 20 ms and A–C–D 24. Both paths between B and C take 22, and either is right.
pub const LINKS: [Edge; 4] = [(A, B, 10), (B, 3, 10), (A, 2, 12), (2, 3, 12)];
/// The link that fails.
pub const FAILING: usize = 0;

/// Something that may happen to the overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// All nodes start at once with intact links, whatever the state before.
    Start,
    /// A–B loses everything in both directions.
    Cut,
    /// A–B is intact again.
    Mend,
    /// B ends without a goodbye.
    Crash,
    /// B starts again after a crash.
    Restart,
    /// A–B loses everything from A to B.
    Blackhole,
}

impl Event {
    /// Every event, in the order of tables.
    pub const ALL: [Event; 6] =
        [Event::Start, Event::Cut, Event::Mend, Event::Crash, Event::Restart, Event::Blackhole];

    /// The event's name in tables and legends.
    pub fn name(self) -> &'static str {
        match self {
            Event::Start => "start",
            Event::Cut => "cut",
            Event::Mend => "mend",
            Event::Crash => "crash",
            Event::Restart => "restart",
            Event::Blackhole => "blackhole",
        }
    }

    /// Whether node B is running after the event.
    pub fn leaves_b(self) -> bool {
        self != Event::Crash
    }

    /// The next hops of all shortest paths after the event.
    pub fn wanted(self) -> Tables {
        let carries = |n: usize, l: &Edge| match self {
            Event::Start | Event::Mend | Event::Restart => true,
            // A link that works in one direction only is not used.
            Event::Cut | Event::Blackhole => n != FAILING,
            Event::Crash => l.0 != B && l.1 != B,
        };
        let alive = LINKS.iter().enumerate().filter(|(n, l)| carries(*n, l));
        shortest(&alive.map(|(_, l)| *l).collect::<Vec<_>>())
    }
}

/// One step of the script.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The event of this step.
    pub event: Event,
    /// Quiet time before the event; up to a second is added at random.
    pub after: Duration,
}

/// `restart` and `mend` happen to links that have been up for a long time.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::ZERO;

/// Two lives of the overlay; the second starts from nothing. Each event begins after all nodes have
/// agreed on the one before.
pub const SCRIPT: [Step; 7] = [
    Step { event: Event::Start, after: SHORT },
    Step { event: Event::Crash, after: LONG },
    Step { event: Event::Restart, after: SHORT },
    Step { event: Event::Blackhole, after: SHORT },
    Step { event: Event::Start, after: SHORT },
    Step { event: Event::Cut, after: LONG },
    Step { event: Event::Mend, after: SHORT },
];

/// Tables that have been right for this long are right for good.
pub const CALM: Duration = Duration::from_secs(1);
/// Timeout for an event to settle: one and a half times what the paper's hellos take.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// For each node and each destination, the neighbours that are a right next hop, one bit each; zero
/// for an unreachable destination.
pub type Tables = [Table; NODES];
/// A node's part of [`Tables`]: an entry for each destination.
pub type Table = [u8; NODES];

/// The bit that stands for `node` in a [`Table`]'s entries.
pub fn bit(node: usize) -> u8 {
    1 << node
}

/// Whether a node's next hops (at most one bit for each destination) are among those `wanted`.
pub fn is_right(seen: Table, wanted: Table) -> bool {
    seen.iter().zip(wanted).all(|(&s, w)| if w == 0 { s == 0 } else { s & w != 0 })
}

/// The next hops of all shortest paths over `links` (Floyd and Warshall).
fn shortest(links: &[Edge]) -> Tables {
    const FAR: u64 = u64::MAX / 4;
    let mut far = [[FAR; NODES]; NODES];
    for (node, row) in far.iter_mut().enumerate() {
        row[node] = 0;
    }
    for &(a, b, ms) in links {
        (far[a][b], far[b][a]) = (ms, ms);
    }
    let edges = far;
    for via in 0..NODES {
        for from in 0..NODES {
            for to in 0..NODES {
                far[from][to] = far[from][to].min(far[from][via] + far[via][to]);
            }
        }
    }
    let mut tables = Tables::default();
    for (from, table) in tables.iter_mut().enumerate() {
        for (to, steps) in table.iter_mut().enumerate().filter(|(to, _)| *to != from) {
            let first = |n: &usize| {
                *n != from && far[from][to] < FAR && edges[from][*n] + far[*n][to] == far[from][to]
            };
            *steps = (0..NODES).filter(first).map(bit).sum();
        }
    }
    tables
}

/// How an event ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The event that was settled.
    pub event: Event,
    /// Time from the event until all tables were right for good; [`PATIENCE`] if they never were.
    pub took: Duration,
    /// Whether the tables stayed right until the end of the observation.
    pub for_good: bool,
    /// Time since the previous poll: the most by which [`Settled::took`] may be too long.
    pub look: Duration,
}

/// Four nodes and their links.
pub trait Overlay {
    /// Error of the overlay's environment, such as a daemon that can't be started.
    type Error;

    /// Lets this much time pass without any event.
    fn rest(&mut self, how_long: Duration) -> Result<(), Self::Error>;

    /// Injects `event`, and waits for at most [`PATIENCE`] until the tables of all running nodes
    /// have been right ([`is_right`]) for [`CALM`].
    fn strike(&mut self, event: Event) -> Result<Settled, Self::Error>;
}

/// Runs `script` on an overlay.
pub fn live<O: Overlay>(
    overlay: &mut O,
    script: &[Step],
    luck: &mut Rng,
) -> Result<Vec<Settled>, O::Error> {
    let one = |step: &Step| {
        if step.event != Event::Start {
            overlay.rest(step.after + some_time(luck))?;
        }
        overlay.strike(step.event)
    };
    script.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in readable form: for each node, the ids of the neighbours that are right next hops.
    fn steps(event: Event, from: usize) -> [Vec<usize>; NODES] {
        event.wanted()[from]
            .map(|s| (0..NODES).filter(|n| s & bit(*n) != 0).map(|n| n + 1).collect())
    }

    #[test]
    fn the_right_steps_are_those_of_the_shortest_ways() {
        for event in [Event::Start, Event::Mend, Event::Restart] {
            assert_eq!(steps(event, A), [vec![], vec![2], vec![3], vec![2]]);
            assert_eq!(steps(event, B), [vec![1], vec![], vec![1, 4], vec![4]]);
        }
        for event in [Event::Cut, Event::Blackhole] {
            assert_eq!(steps(event, A), [vec![], vec![3], vec![3], vec![3]]);
            assert_eq!(steps(event, B), [vec![4], vec![], vec![4], vec![4]]);
        }
        assert_eq!(steps(Event::Crash, A), [vec![], vec![], vec![3], vec![3]]);
        assert_eq!(steps(Event::Crash, 3), [vec![3], vec![], vec![3], vec![]]);
    }

    /// An event that leaves every table right would settle at the first poll.
    #[test]
    fn every_event_makes_some_table_wrong() {
        let mut before = Tables::default();
        for Step { event, .. } in SCRIPT {
            let after = event.wanted();
            // With two right next hops, a node may have been using either.
            let unchanged = |n: usize| {
                (0..NODES).all(|to| {
                    before[n][to] & !after[n][to] == 0
                        && (before[n][to] == 0) == (after[n][to] == 0)
                })
            };
            let runs = |n: usize| n != B || event.leaves_b();
            // A node that starts has an empty table.
            let starts = event == Event::Restart || event == Event::Start;
            assert!(starts || (0..NODES).any(|n| runs(n) && !unchanged(n)), "{event:?}");
            before = after;
        }
        assert!(is_right([0, 2, 4, 2], Event::Start.wanted()[A]));
        assert!(!is_right([0, 2, 4, 4], Event::Start.wanted()[A]));
        assert!(!is_right([0, 2, 4, 0], Event::Start.wanted()[A]));
        assert!(!is_right([0, 2, 4, 4], Event::Crash.wanted()[A]), "a way to a dead node");
    }
}
