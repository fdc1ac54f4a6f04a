//! Individual properties of the network, each with numbers worked out by hand.

use crate::common::{Turns, delay, drain, ms, packet, rate};
use std::collections::BTreeSet;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue, Red};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{
    Bins, Class, DropReason, EdgeId, HOP_LIMIT, MAX_PAYLOAD, Moment, NetError, Network, Routing,
};

#[test]
fn the_shorter_way_and_after_a_set_route_the_longer() {
    let mut net = Network::new(1);
    let (a, b) = (net.host(), net.host());
    let [r, s, t] = [(); 3].map(|()| net.router());
    let first = net.connect(a, r, delay(1), delay(1)).unwrap();
    let direct = net.connect(r, s, delay(10), delay(10)).unwrap();
    let detour = net.connect(r, t, delay(2), delay(2)).unwrap();
    let rest = net.connect(t, s, delay(3), delay(30)).unwrap();
    let last = net.connect(s, b, delay(1), delay(1)).unwrap();
    let longer = Some([first, detour, rest, last].map(EdgeId::forward).to_vec());
    assert_eq!(net.path(a, b), longer, "before any packet went there");

    let trip = |net: &mut Network, from, to| {
        net.send(net.next_timeout().min(ms(0)), &packet(from, to, 0, b"x"));
        let [delivery] = &drain(net, ms(1_000))[..] else { panic!("one packet, one delivery") };
        (delivery.at, delivery.payload.clone())
    };
    assert_eq!(trip(&mut net, a, b), (ms(7), b"x".to_vec()), "1 + 2 + 3 + 1");
    assert_eq!(net.path(a, b), longer, "and after that");
    let to_b = net.paths(b);
    assert_eq!([a, b].map(&to_b), [longer, Some(Vec::new())]);
    drop(to_b);
    assert_eq!(trip(&mut net, b, a).0, ms(12), "1 + 10 + 1: the way back is another");
    net.set_route(r, b, direct.forward()).unwrap();
    assert_eq!(net.path(a, b), Some([first, direct, last].map(EdgeId::forward).to_vec()));
    assert_eq!(trip(&mut net, a, b).0, ms(12));
    let wrong = net.set_route(a, b, detour.forward());
    assert_eq!(wrong, Err(NetError::NotFromHere(a, detour.forward())));
    assert_eq!(net.ledger(detour.forward()).arrived.packets, 1);
    assert_eq!(net.ledger(direct.forward()).arrived.packets, 1);
}

#[test]
fn what_leads_nowhere_in_circles_or_astray_is_counted_where_it_ends() {
    let mut net = Network::new(1);
    net.set_routing(Routing::Table);
    let [a, b, c] = [(); 3].map(|()| net.host());
    let [r, s] = [(); 2].map(|()| net.router());
    net.connect(a, r, delay(1), delay(1)).unwrap();
    let between = net.connect(r, s, delay(1), delay(1)).unwrap();
    let to_c = net.connect(s, c, delay(1), delay(1)).unwrap();
    net.connect(s, b, delay(1), delay(1)).unwrap();

    assert_eq!((net.path(a, b), net.path(a, a)), (None, Some(Vec::new())));
    net.send(ms(0), &packet(a, b, 1, b"nowhere"));
    assert!(drain(&mut net, ms(10)).is_empty());
    assert_eq!(net.vertex_ledger(r).no_route.packets, 1);
    // Each router takes the other for the next hop.
    net.set_route(r, b, between.forward()).unwrap();
    net.set_route(s, b, between.reverse()).unwrap();
    assert_eq!(net.path(a, b), None, "in circles");
    net.send(ms(10), &packet(a, b, 1, b"circles"));
    assert!(drain(&mut net, ms(1_000)).is_empty());
    assert_eq!(net.vertex_ledger(r).hop_limit.packets, 1);
    let passed = [between.forward(), between.reverse()].map(|d| net.ledger(d).arrived.packets);
    assert_eq!(passed.iter().sum::<u64>(), u64::from(HOP_LIMIT));
    // A router sends to the wrong host.
    net.set_route(s, b, to_c.forward()).unwrap();
    assert_eq!(net.path(a, b), None, "astray");
    net.send(ms(1_000), &packet(a, b, 1, b"astray"));
    assert!(drain(&mut net, ms(2_000)).is_empty());
    assert_eq!(net.vertex_ledger(c).stray.bytes, 6);
    net.send(ms(2_000), &packet(a, b, 1, &[0; MAX_PAYLOAD + 1]));

    let flow = net.flow(Class(1));
    assert_eq!((flow.sent.packets, flow.delivered.packets, net.under_way()), (4, 0, 0));
    use DropReason::{HopLimit, NoRoute, Stray, TooLong};
    assert!([NoRoute, HopLimit, Stray, TooLong].iter().all(|&w| flow.dropped(w).packets == 1));
    assert_eq!(flow.all_dropped().packets, 4);
}

#[test]
fn no_more_packets_than_the_limit_and_lost_ones_take_no_room() {
    let mut net = Network::new(1);
    let [a, b, c] = [(); 3].map(|()| net.host());
    let whole = net.connect(a, b, delay(10), delay(10)).unwrap();
    let lossy = LinkModel { loss: Loss::EVERYTHING, ..delay(10) };
    net.connect(c, b, lossy, delay(10)).unwrap();
    net.set_limit(2);
    for _ in 0..3 {
        net.send(ms(0), &packet(c, b, 0, b"lost"));
        net.send(ms(0), &packet(a, b, 1, b"kept"));
    }
    let ledger = net.ledger(whole.forward());
    assert_eq!((ledger.offered.packets, ledger.no_room.packets), (3, 1));
    assert_eq!((ledger.under_way().packets, net.under_way_of(Class(1))), (2, 2));
    assert_eq!(net.flow(Class(0)).dropped(DropReason::Loss).packets, 3);
    assert_eq!(drain(&mut net, ms(10)).len(), 2);
    assert_eq!(net.flow(Class(1)).dropped(DropReason::NoRoom).packets, 1);
}

#[test]
fn a_medium_decides_in_its_own_time() {
    let mut net = Network::new(1);
    let (a, b) = (net.host(), net.host());
    // A packet of 1,000 bytes takes 8 ms.
    let turns = net.medium(Turns::new(Bitrate::from_bps(1_000_000), 2));
    let edge = net.connect_over(a, b, turns, [0, 1], Duration::ZERO);
    let send = |net: &mut Network, from, to, dscp: u8, number: u8, class| {
        let payload = [number; 1_000];
        let packet = packet(from, to, class, &payload);
        net.send(
            net.next_timeout().min(ms(0)),
            &trunkline_net::Packet { tos: dscp << 2, ..packet },
        );
    };
    // The first begins at once, two wait, and the fourth is rejected.
    (1..=4).for_each(|k| send(&mut net, a, b, 0, k, 1));
    // The last to arrive, in the other direction, is served second.
    send(&mut net, b, a, 46, 9, 2);
    assert_eq!(net.under_way(), 4);
    let got: Vec<_> = drain(&mut net, ms(1_000))
        .into_iter()
        .map(|d| (d.at.as_micros() / 1_000, d.payload[0], d.header.tos))
        .collect();
    assert_eq!(got, [(8, 1, 0), (16, 9, 46 << 2), (24, 2, 0), (32, 3, 0)]);
    let there = net.ledger_of(edge.forward(), Class(1));
    assert_eq!((there.arrived.packets, there.queue_dropped.packets), (3, 1));
    assert_eq!(net.ledger(edge.reverse()).arrived.packets, 1);
    assert_eq!(net.change(edge.forward(), delay(1)), Err(NetError::NoModel(edge.forward())));
    assert_eq!((net.model(edge.forward()), net.next_timeout()), (None, Time::NEVER));
}

#[test]
fn a_drivers_timers_and_arrivals_have_one_order() {
    let mut net = Network::new(1);
    let (a, b) = (net.host(), net.host());
    net.connect(a, b, delay(10), delay(10)).unwrap();
    let before = net.moment(ms(10));
    net.send(ms(0), &packet(a, b, 0, b"1"));
    let between = net.moment(ms(10));
    net.send(ms(0), &packet(a, b, 0, b"2"));
    let mut until = |end| net.poll_before(end).map(|d| net.open(&d).1);
    assert_eq!(until(before), None);
    assert_eq!(until(between), Some(b"1".to_vec()));
    assert_eq!(until(between), None);
    assert_eq!(until(Moment::end_of(ms(9))), None);
    assert_eq!(until(Moment::end_of(ms(10))), Some(b"2".to_vec()));
}

#[test]
fn memory_is_used_again() {
    let mut net = Network::new(1);
    let (a, r, b) = (net.host(), net.router(), net.host());
    net.connect(a, r, delay(10), delay(10)).unwrap();
    net.connect(r, b, delay(10), delay(10)).unwrap();
    let mut places = BTreeSet::new();
    for k in 0..1_000 {
        net.send(ms(k), &packet(a, b, 0, &[k as u8; 200]));
        while let Some(delivery) = net.poll(ms(k)) {
            let (_, payload) = net.open(&delivery);
            places.insert(payload.as_ptr() as usize);
            net.release(delivery, payload);
        }
    }
    // 20 ms at a packet per ms: all that were ever under way at once.
    assert!((20..=21).contains(&places.len()), "{}", places.len());
}

#[test]
fn payloads_up_to_the_given_length_grow_no_memory() {
    let mut net = Network::new(1);
    net.set_payload_memory(500);
    let (a, b) = (net.host(), net.host());
    net.connect(a, b, delay(10), delay(10)).unwrap();
    let mut capacities = BTreeSet::new();
    for k in 1..=500 {
        net.send(ms(k), &packet(a, b, 0, &vec![0; k as usize]));
        while let Some(delivery) = net.poll(ms(k)) {
            let (_, payload) = net.open(&delivery);
            capacities.insert(payload.capacity());
            net.release(delivery, payload);
        }
    }
    assert_eq!(capacities.len(), 1, "{capacities:?}");
}

#[test]
fn the_queue_sees_and_sets_the_tos_byte() {
    let mut net = Network::new(1);
    let (a, b) = (net.host(), net.host());
    let ecn = Queue::Red(Red {
        min: 0.5,
        max: 50.0,
        weight: 1.0,
        max_p: 1.0,
        ecn: true,
        ..Red::default()
    });
    let model = LinkModel { queue: ecn, ..rate(1_000_000, 1) };
    let edge = net.connect(a, b, model, delay(1)).unwrap();
    for k in 0..40 {
        let payload = [k; 1_000];
        net.send(
            ms(0),
            &trunkline_net::Packet { tos: 46 << 2 | 0b10, ..packet(a, b, 0, &payload) },
        );
    }
    let marked =
        drain(&mut net, ms(1_000)).iter().filter(|d| d.header.tos == (46 << 2 | 0b11)).count();
    assert!(marked > 5, "{marked}");
    assert_eq!(net.ledger(edge.forward()).marked.packets, marked as u64);
    assert_eq!(net.decided(edge.forward()).unwrap().marked.packets, marked as u64);
}

#[test]
fn a_record_says_when() {
    let mut net = Network::new(1);
    let (a, b) = (net.host(), net.host());
    // 1,000 bytes take 8 ms; one waits.
    let model = LinkModel { queue: Queue::Packets(1), ..rate(1_000_000, 5) };
    let edge = net.connect(a, b, model, delay(1)).unwrap();
    let ten = Duration::from_millis(10);
    net.record(edge.forward(), Bins { from: ms(10), width: ten, count: 3 });
    for at in [5, 10, 13, 14, 45] {
        net.send(ms(at), &packet(a, b, 7, &[0; 1_000]));
    }
    // Arrivals: 5 + 8 + 5 = 18; 13 + 8 + 5 = 26; 21 + 8 + 5 = 34; 58.
    assert_eq!(drain(&mut net, ms(1_000)).len(), 4);
    let bins = net.bins(edge.forward(), Class(7));
    let of = |f: fn(&trunkline_net::Bin) -> u64| bins.iter().map(f).collect::<Vec<_>>();
    assert_eq!(of(|b| b.offered.packets), [3, 0, 0], "10, 13 and 14");
    assert_eq!(of(|b| b.dropped.packets), [1, 0, 0], "14");
    assert_eq!(of(|b| b.arrived.bytes), [1_000; 3]);
    assert_eq!(net.bins(edge.forward(), Class(8)), []);
    assert_eq!(net.ledger(edge.forward()).offered.packets, 5);
}
