//! Neighbours that send false records or frames.

use super::agreement::cost;
use super::net::{Net, ROOM, Toy, WALL, id};
use core::time::Duration;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::route::update::{Introduction, LINKS_PER_RECORD, Update, sign};
use trunkline_overlay::route::{
    Advert, Config, CostModel, Limits, Neighbour, RefusedRecord, Router, Signer, Unsigned,
};
use trunkline_overlay::wire::{Metric, NodeId};

pub fn frame(records: &[Box<[u8]>]) -> Vec<u8> {
    let body: Vec<u8> = records.iter().flat_map(|r| [&r[..], &[0, 0]].concat()).collect();
    [&[3][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

fn aged(record: &[u8], age: u16) -> Vec<u8> {
    let body = [record, &age.to_be_bytes()].concat();
    [&[3][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

pub fn update(origin: usize, seq: u64, to: &[usize], signer: &dyn Signer) -> Box<[u8]> {
    let links = to.iter().map(|&n| Advert { neighbour: id(n), path: 0, cost: cost(0, 0) });
    let links = links.collect();
    let (origin, digest) = (id(origin), CostModel::default().digest());
    let update = Update { origin, seq, fragment: 0, draining: false, digest, links };
    sign(update.emit().unwrap(), signer)
}

/// 0 – 1 – 2 – 3 – 4, where 1 sends false records to its neighbours.
fn chain() -> Net {
    let mut net = Net::new(5, 0.0, 1);
    for i in 0..4 {
        net.join(i, i + 1, [cost(5, 0); 2]);
    }
    net.run(Duration::from_secs(2));
    net
}

fn refused(net: &Net, host: usize, why: RefusedRecord) -> u64 {
    net.hosts[host].router.stats().refused.of(why)
}

#[test]
fn a_link_whose_other_end_denies_it_is_none() {
    let mut net = chain();
    let lie = update(1, WALL + (1 << 40), &[0, 2, 4], &Toy(id(1)));
    for (host, link) in [(0, 0), (2, 0)] {
        net.inject(host, LinkId(link), &frame(std::slice::from_ref(&lie)));
    }
    // Enough time for the false record, but too little for the correction.
    net.settle();
    let told = net.hosts[0].router.records().any(|r| r.1 == WALL + (1 << 40));
    assert!(told, "it is its own to say");
    for metric in Metric::ALL {
        assert_eq!(net.hosts[0].router.route(id(4), metric).unwrap().path.len(), 5);
    }
    net.run(Duration::from_millis(20));
    assert_eq!(net.hosts[0].router.stats().denied, 1, "an operator can see it");
    net.run(Duration::from_secs(1));
    assert_eq!(net.walk(0, 4, Metric::Hops), [0, 1, 2, 3, 4]);
}

#[test]
fn nobody_speaks_for_another() {
    let mut net = chain();
    let forged = update(3, WALL + (1 << 40), &[0], &Toy(id(1)));
    let unknown_peer = update(77, WALL, &[0], &Toy(id(77)));
    let other = Introduction { origin: id(3), seq: WALL + 9_999, certificate: vec![0, 0, 0, 2] };
    let other = sign(other.emit().unwrap(), &Toy(id(3)));
    net.inject(0, LinkId(0), &frame(&[forged, unknown_peer, other]));
    net.run(Duration::from_secs(1));
    for why in
        [RefusedRecord::BadSignature, RefusedRecord::UnknownOrigin, RefusedRecord::BadCertificate]
    {
        assert_eq!(refused(&net, 0, why), 1, "{why:?}");
    }
    assert_eq!(net.hosts[0].router.stats().accepted, 8);
    assert_eq!(net.walk(0, 3, Metric::Hops), [0, 1, 2, 3]);
}

#[test]
fn numbers_are_not_reused_nor_from_the_future() {
    let mut net = chain();
    let seq = |net: &Net| {
        net.hosts[0].router.records().find(|r| r.0.origin == id(3) && !r.2.is_empty()).unwrap().1
    };
    let now = seq(&net);
    let day = 25 * 3_600 * 1_000_000_000;
    let reused = update(3, now, &[1, 2], &Toy(id(3)));
    let future = update(3, WALL + day, &[1], &Toy(id(3)));
    let last = update(3, u64::MAX, &[1], &Toy(id(3)));
    let older = update(3, now - 1, &[1], &Toy(id(3)));
    net.inject(0, LinkId(0), &frame(&[reused, future, last, older]));
    net.run(Duration::from_secs(1));
    assert_eq!(refused(&net, 0, RefusedRecord::Reused), 1);
    assert_eq!(refused(&net, 0, RefusedRecord::TooFarAhead), 2);
    assert_eq!(refused(&net, 0, RefusedRecord::Older), 1);
    assert_eq!(seq(&net), now);
}

/// The age is the one field that no signature covers.
#[test]
fn a_record_made_old_does_not_silence_its_origin() {
    let mut net = chain();
    // As if host 3 had just changed something, and host 1 had forwarded it first.
    let of_3 = net.hosts[0].router.records().filter(|r| r.0.origin == id(3));
    let seq = of_3.map(|r| r.1).max().unwrap() + 1;
    let record = update(3, seq, &[2, 4], &Toy(id(3)));
    net.inject(0, LinkId(0), &aged(&record, 1_800));
    net.settle();
    assert_eq!(refused(&net, 0, RefusedRecord::Expired), 1);
    assert_eq!(net.hosts[0].router.refused(LinkId(0)).of(RefusedRecord::Expired), 1);
    net.inject(0, LinkId(0), &aged(&record, 1_799));
    net.run(Duration::from_secs(40 * 60));
    assert_eq!(net.hosts[0].router.nodes(), 5);
    assert_eq!(net.hosts[0].router.stats().expired, 0);
    assert_eq!(net.walk(0, 4, Metric::Hops), [0, 1, 2, 3, 4]);
}

#[test]
fn an_origin_that_changes_all_the_time_is_slowed_down() {
    let mut net = chain();
    let start = net.hosts[0].router.stats().accepted;
    for i in 0..5_000 {
        net.inject(0, LinkId(0), &frame(&[update(1, WALL + (1 << 40) + i, &[0, 2], &Toy(id(1)))]));
        net.run(Duration::from_millis(1));
    }
    let stats = net.hosts[0].router.stats();
    let taken = stats.accepted - start;
    assert!((190..=220).contains(&taken), "{taken}");
    assert!(stats.refused.of(RefusedRecord::OriginRate) > 4_000);
}

/// A malicious neighbour cannot use up the processor, and records of others still arrive.
#[test]
fn forgeries_cost_little_and_other_links_nothing() {
    let mut net = chain();
    // Host 2 receives false records from 1 and genuine ones from 3.
    let before = *net.hosts[2].router.stats();
    for i in 0..2_000u64 {
        let forged: Vec<_> =
            (0..8).map(|k| update(4, WALL + (1 << 40) + 8 * i + k, &[3], &Toy(id(1)))).collect();
        net.inject(2, LinkId(0), &frame(&forged));
        if i == 1_000 {
            net.cost(3, LinkId(0), cost(44, 0));
        }
        net.run(Duration::from_millis(1));
        if i == 1_020 {
            let heard = net.hosts[2].router.records().filter(|r| r.0.origin == id(3));
            let heard = heard.flat_map(|r| r.2).any(|l| l.cost == cost(44, 0));
            assert!(heard, "the honest neighbour was not heard within 20 ms");
        }
    }
    let stats = net.hosts[2].router.stats();
    let checks = stats.checks - before.checks;
    println!("{checks} checks for 16,000 forgeries in 2 s");
    // A burst of 2,000 at eleven each, then a thousand per second.
    assert!(checks < 2_000 / 11 + 2 * 1_000 / 11 + 64, "{checks}");
    assert!(stats.refused.of(RefusedRecord::NeighbourRate) > 15_000);
}

/// Signature checks take time, so links take turns.
#[test]
fn a_queue_of_lies_holds_no_other_link_up() {
    let mut net = chain();
    net.cost(3, LinkId(0), cost(44, 0));
    for i in 0..60 {
        let forged: Vec<_> =
            (0..8).map(|k| update(4, WALL + (1 << 40) + 8 * i + k, &[3], &Toy(id(1)))).collect();
        net.inject(2, LinkId(0), &frame(&forged));
    }
    // A link of 5 ms; 480 forgeries take 30 ms to check.
    net.run(Duration::from_millis(10));
    let of_3 = net.hosts[2].router.records().filter(|r| r.0.origin == id(3));
    assert!(of_3.flat_map(|r| r.2).any(|l| l.cost == cost(44, 0)));
    assert!(refused(&net, 2, RefusedRecord::BadSignature) < 480, "there are still some");
}

/// In an unsealed overlay, any member can invent nodes.
#[test]
fn made_up_nodes_fill_no_memory() {
    let now = Default::default();
    let limits = Limits { max_nodes: 100, neighbour_rate: 1_000_000, ..Limits::default() };
    let config = Config { limits, ..Config::new(NodeId(1)) };
    let mut router = Router::new(config, Box::new(Unsigned), Box::new(Unsigned), WALL, now);
    for link in 0..2 {
        let id = NodeId(2 + u32::from(link));
        let rtt = Duration::from_millis(1);
        let neighbour = Neighbour { id, path: 0, restarted: true, rtt };
        router.link_up(now, LinkId(link), neighbour);
    }
    let mut now = now;
    for i in 0..20_000usize {
        let to: Vec<_> = (1..=LINKS_PER_RECORD).collect();
        router.recv(now, WALL, LinkId(0), &frame(&[update(1_000 + i, WALL, &to, &Unsigned)]));
        router.handle_timeout(now);
        now += Duration::from_micros(100);
        if i % 10 == 0 {
            while router.poll_frame(LinkId(1), now, ROOM).is_some() {}
        }
    }
    assert_eq!((router.nodes(), router.records().count()), (100, 100));
    assert!(router.stats().refused.of(RefusedRecord::TooManyNodes) > 15_000);
}
