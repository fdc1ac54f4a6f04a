//! After flooding, all nodes have the same database, and every table leads to the destination.

use super::liars::{frame, update};
use super::net::{Net, Toy, WALL, id};
use core::time::Duration;
use proptest::prelude::*;
use trunkline_overlay::link::{LinkCost, LinkId};
use trunkline_overlay::route::RefusedRecord;
use trunkline_overlay::route::update::{Introduction, sign};
use trunkline_overlay::wire::Metric;

pub fn cost(ms: u16, percent: u16) -> LinkCost {
    LinkCost { latency: ms * 10, loss: percent * 655, ..LinkCost::default() }
}

/// A ring with chords: hosts, and pairs of them with the costs of their links.
pub fn mesh(hosts: usize, chords: &[(usize, usize, u16, u16)], loss: f64, seed: u64) -> Net {
    let mut net = Net::new(hosts, loss, seed);
    for i in 0..hosts {
        if hosts > 2 || i == 0 {
            net.join(i, (i + 1) % hosts, [cost(5, 0), cost(6, 0)]);
        }
    }
    for &(a, b, ms, percent) in chords {
        let (a, b) = (a % hosts, b % hosts);
        if a != b {
            net.join(a, b, [cost(ms, percent), cost(ms + 1, 0)]);
        }
    }
    net
}

fn check(net: &Net) {
    for h in 0..net.hosts.len() {
        let component = net.component(h);
        let mine: Vec<_> = net.hosts[h].router.records().collect();
        for &other in &component {
            let theirs: Vec<_> = net.hosts[other].router.records().collect();
            // Records of nodes beyond a partition may differ.
            let here = |records: &[_]| {
                let of = |(key, seq, links): &(trunkline_overlay::route::Key, u64, _)| {
                    let inside = component.iter().any(|&c| id(c) == key.origin);
                    inside.then(|| (*key, *seq, format!("{links:?}")))
                };
                records.iter().filter_map(of).collect::<Vec<_>>()
            };
            assert_eq!(here(&mine), here(&theirs), "{h} and {other} differ");
            for metric in Metric::ALL {
                let walk = net.walk(h, other, metric);
                assert_eq!(walk.last(), Some(&other), "{metric}: {h} to {other} by {walk:?}");
                let route = net.hosts[h].router.route(id(other), metric).unwrap();
                assert_eq!(walk.len(), route.path.len(), "{metric}: {walk:?} {route:?}");
            }
        }
        for other in (0..net.hosts.len()).filter(|o| !component.contains(o)) {
            // The table may still name a dead link there, which may be up in a moment.
            assert!(net.hosts[h].router.route(id(other), Metric::Hops).is_none());
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Down(usize),
    Up(usize),
    Restart(usize, i64),
    Cost(usize, u16, u16),
    Drain(usize, bool),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<usize>().prop_map(Event::Down),
        any::<usize>().prop_map(Event::Up),
        // An hour back at most: more than a day is another case.
        (any::<usize>(), -3_600_000_000_000i64..1_000).prop_map(|(h, d)| Event::Restart(h, d)),
        (any::<usize>(), 1u16..80, 0u16..40).prop_map(|(h, ms, p)| Event::Cost(h, ms, p)),
        (any::<usize>(), any::<bool>()).prop_map(|(h, d)| Event::Drain(h, d)),
        (0u64..400).prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn all_agree_after_anything(
        hosts in 2usize..9,
        chords in prop::collection::vec((any::<usize>(), any::<usize>(), 1u16..60, 0u16..20), 0..8),
        events in prop::collection::vec(event(), 0..25),
        loss in 0.0..0.4f64,
        seed: u64,
    ) {
        let mut net = mesh(hosts, &chords, loss, seed);
        net.run(Duration::from_millis(100));
        for event in events {
            let cables = net.cables.len();
            match event {
                Event::Down(c) => net.down(c % cables),
                Event::Up(c) if !net.cables[c % cables].up => net.up(c % cables, false),
                Event::Up(_) => {}
                Event::Restart(h, clock) => net.restart(h % hosts, clock),
                Event::Cost(c, ms, percent) if net.cables[c % cables].up => {
                    let (host, link) = net.cables[c % cables].ends[usize::from(ms % 2)];
                    net.cost(host, link, cost(ms, percent));
                }
                Event::Cost(..) => {}
                Event::Drain(h, drain) => {
                    let now = net.now;
                    net.hosts[h % hosts].router.drain(now, drain);
                }
                Event::Wait(ms) => net.run(Duration::from_millis(ms)),
            }
            net.settle();
        }
        net.run(Duration::from_secs(60));
        check(&net);
    }
}

#[test]
fn news_crosses_four_hops_in_their_delay() {
    let mut net = Net::new(5, 0.0, 1);
    for i in 0..4 {
        net.join(i, i + 1, [cost(10, 0); 2]);
    }
    net.run(Duration::from_secs(2));
    check(&net);
    let before = net.hosts[4].router.stats().spf_runs;
    net.cost(0, LinkId(0), cost(30, 0));
    // Three hops of 10 ms and at most 2 ms of jitter, from the second host on.
    net.run(Duration::from_millis(40 + 8));
    assert_eq!(net.hosts[4].router.stats().spf_runs, before + 1);
    let (_, _, links) =
        net.hosts[4].router.records().find(|r| r.0.origin == id(0) && !r.2.is_empty()).unwrap();
    assert_eq!(links[0].cost.latency, 300);
}

/// Updates are sent every 50 ms and paths are computed every 20 ms, after eight at once, however
/// often changes occur.
#[test]
fn changes_that_come_thick_and_fast_are_taken_together() {
    let mut net = Net::new(2, 0.0, 1);
    net.join(0, 1, [cost(10, 0); 2]);
    net.run(Duration::from_secs(2));
    let before = *net.hosts[0].router.stats();
    for ms in 0..1_000 {
        net.cost(0, LinkId(0), cost(10 + ms % 7, 0));
        net.run(Duration::from_millis(1));
    }
    let stats = net.hosts[0].router.stats();
    let (told, computed) = (stats.originated - before.originated, stats.spf_runs - before.spf_runs);
    assert!((10..=21).contains(&told), "{told} updates");
    assert!((20..=59).contains(&computed), "{computed} computations");
}

#[test]
fn a_neighbour_that_was_only_cut_off_is_sent_what_is_new() {
    let mut net = mesh(30, &[(0, 10, 3, 0), (5, 25, 3, 0)], 0.0, 2);
    net.run(Duration::from_secs(5));
    let sent = |net: &Net| net.hosts.iter().map(|h| h.router.stats().sent).sum::<u64>();
    for (restarted, most) in [(false, 70 * 4), (true, 70 * 5)] {
        let before = sent(&net);
        net.down(0);
        net.run(Duration::from_secs(2));
        net.up(0, restarted);
        net.run(Duration::from_secs(2));
        check(&net);
        let records = sent(&net) - before;
        println!("restarted {restarted}: {records} records sent");
        assert!(records < most, "{records}");
        assert_eq!(restarted, records > 60 + 2 * 2 * 32 + 20);
    }
}

/// Host 0 has the records of 500 nodes, and host 1 is not joined to it yet.
fn large() -> Net {
    let mut net = Net::new(3, 0.0, 6);
    net.join(0, 2, [cost(5, 0); 2]);
    for origin in 3..500usize {
        let certificate = id(origin).0.to_be_bytes().to_vec();
        let introduction = Introduction { origin: id(origin), seq: WALL, certificate };
        let introduction = sign(introduction.emit().unwrap(), &Toy(id(origin)));
        let to: Vec<_> = (500..508).collect();
        net.inject(
            0,
            LinkId(0),
            &frame(&[introduction, update(origin, WALL, &to, &Toy(id(origin)))]),
        );
        net.run(Duration::from_millis(1));
    }
    net.run(Duration::from_secs(1));
    net
}

/// While a new neighbour is sent the whole database, changes go first, together with the keys that
/// verify them.
#[test]
fn a_change_does_not_wait_for_a_whole_database() {
    let mut net = large();
    net.join(0, 1, [cost(20, 0); 2]);
    net.run(Duration::from_millis(500));
    let change = update(499, WALL + 1, &[500, 501], &Toy(id(499)));
    net.inject(0, LinkId(0), &frame(&[change]));
    net.run(Duration::from_millis(100));
    let router = &net.hosts[1].router;
    assert!(router.nodes() < 400, "{} nodes: it had the rest", router.nodes());
    assert!(router.records().any(|r| r.0.origin == id(499) && r.1 == WALL + 1));
}

/// A record has its true age, however late a node receives it.
#[test]
fn what_a_newcomer_is_told_of_the_dead_is_forgotten_no_later() {
    let mut net = mesh(5, &[], 0.0, 5);
    net.down(0);
    net.down(4);
    net.run(Duration::from_secs(1));
    // Host 3 is cut off after hosts 1 and 2 have its records; host 0 joins 20 minutes later.
    net.down(2);
    net.down(3);
    net.run(Duration::from_secs(20 * 60));
    net.up(0, true);
    net.run(Duration::from_secs(60));
    assert!(net.hosts[0].router.records().any(|r| r.0.origin == id(3)));
    net.run(Duration::from_secs(12 * 60));
    assert!(!net.hosts[0].router.records().any(|r| r.0.origin == id(3)));
}

#[test]
fn a_whole_database_leaves_room_for_voice() {
    let mut net = large();
    net.join(0, 1, [cost(20, 0); 2]);
    let start = net.now;
    let repeated = net.hosts[0].router.stats().repeated;
    let mut sent = vec![net.hosts[0].router.stats().sent_bytes];
    while net.hosts[1].router.nodes() < 500 {
        net.run(Duration::from_millis(10));
        sent.push(net.hosts[0].router.stats().sent_bytes);
    }
    let busiest = sent.windows(101).map(|w| w[100] - w[0]).max().unwrap();
    let all = sent[sent.len() - 1] - sent[0];
    println!(
        "500 nodes, {all} bytes in {:?}; {busiest} in the busiest second",
        net.now.since(start)
    );
    // The rate, a burst of ten packets, and acknowledgements.
    assert!(busiest < 64_000 + 12_000 + 3_000, "{busiest}");
    assert!(net.now.since(start) < Duration::from_secs(5));
    // If two frames overtake each other, the second may arrive without the first's keys.
    assert!(net.hosts[0].router.stats().repeated < repeated + 10);
}

#[test]
fn a_node_that_drains_is_gone_around_and_reached() {
    // 0 – 1 – 2 is short, 0 – 3 – 4 – 2 is long.
    let mut net = Net::new(5, 0.0, 3);
    for (a, b) in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)] {
        net.join(a, b, [cost(5, 0); 2]);
    }
    net.run(Duration::from_secs(1));
    let way = |net: &Net| {
        let route = net.hosts[0].router.route(id(2), Metric::Latency).unwrap();
        (route.cost, route.last_resort)
    };
    for metric in Metric::ALL {
        assert_eq!(net.walk(0, 2, metric), [0, 1, 2]);
    }
    let short = way(&net);
    assert!(!short.1);
    let now = net.now;
    net.hosts[1].router.drain(now, true);
    net.run(Duration::from_secs(1));
    for metric in Metric::ALL {
        assert_eq!(net.walk(0, 2, metric), [0, 3, 4, 2]);
        assert_eq!(net.walk(0, 1, metric), [0, 1]);
        assert_eq!(net.walk(1, 2, metric), [1, 2]);
    }
    assert!(!way(&net).1);
    // Traffic continues if there is no other path.
    net.down(2);
    net.run(Duration::from_secs(1));
    assert_eq!(net.walk(0, 2, Metric::Loss), [0, 1, 2]);
    assert_eq!(way(&net), (short.0, true));
    assert!(!net.hosts[0].router.route(id(1), Metric::Latency).unwrap().last_resort);
}

#[test]
fn a_node_with_many_links_uses_several_records_and_takes_them_back() {
    let mut net = Net::new(71, 0.1, 4);
    for i in 1..71 {
        net.join(0, i, [cost(5, 0); 2]);
    }
    net.run(Duration::from_secs(5));
    check(&net);
    let fragments = |net: &Net| {
        net.hosts[1].router.records().filter(|r| r.0.origin == id(0) && !r.2.is_empty()).count()
    };
    assert_eq!(fragments(&net), 3);
    (30..70).for_each(|c| net.down(c));
    net.run(Duration::from_secs(5));
    check(&net);
    assert_eq!(fragments(&net), 1);
    // After a restart with a clock that went back, the old records do not return.
    net.restart(0, -3_600_000_000_000);
    net.run(Duration::from_secs(5));
    check(&net);
    assert!(net.hosts[0].router.stats().superseded > 0);
}

#[test]
fn who_falls_silent_is_forgotten_and_the_rest_is_not() {
    let mut net = mesh(4, &[], 0.0, 5);
    net.run(Duration::from_secs(1));
    // Host 3 is cut off from all others.
    net.down(2);
    net.down(3);
    net.run(Duration::from_secs(29 * 60));
    assert_eq!(net.hosts[0].router.nodes(), 4);
    net.run(Duration::from_secs(3 * 60));
    assert_eq!(net.hosts[0].router.nodes(), 3);
    assert_eq!(net.hosts[3].router.nodes(), 1);
    check(&net);
    net.up(2, false);
    net.run(Duration::from_secs(5));
    check(&net);
    assert_eq!(net.hosts[0].router.nodes(), 4);
    assert_eq!(net.hosts[0].router.stats().refused.of(RefusedRecord::BadSignature), 0);
}
