//! Links with a rate, below it and above.

use crate::common::*;
use trunkline_base::Bitrate;
use trunkline_base::link_model::LinkModel;
use trunkline_overlay::counters::Drop;
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{Topology, WireId, World};

/// A voice packet on the wire: 172 + 44 for the overlay + 48 for IP and UDP.
const VOICE_BYTES: u64 = 172 + 44 + 48;
const VOICE_BITS_PER_SECOND: u64 = 50 * 8 * VOICE_BYTES;
const RATE: u64 = 1_000_000;

/// One wire of 1 Mbit/s and 10 ms, whose nodes know its rate.
fn narrow(seed: u64) -> World {
    // Wires count the headers of IPv6; hosts here have addresses of IPv4, and
    // their nodes count its headers, which are 20 bytes less.
    let known = RATE * (VOICE_BYTES - 20) / VOICE_BYTES;
    let wire = Some(Bitrate::from_bps(RATE));
    paced(seed, wire, known)
}

/// A wire of 10 ms whose nodes keep to `rate`.
fn paced(seed: u64, wire: Option<Bitrate>, rate: u64) -> World {
    let model = LinkModel { rate: wire, delay: ms(10), ..LinkModel::default() };
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    t.link_with(a, b, model.clone(), model, |c| c.rate = Some(Bitrate::from_bps(rate)));
    t.build(seed).unwrap()
}

/// A rate is that of the packets as they are: with the headers of IPv4, over IPv4.
#[test]
fn a_rate_is_used_to_the_full() {
    let mut world = paced(3, None, RATE);
    calls(&mut world, (0, 1), BE, 5_000, 20, (at(1_000), 500));
    let sent = |world: &World| {
        let offered = world.ledgers(WireId(0))[0].offered;
        offered.bytes - 20 * offered.packets
    };
    world.run_until(at(3_000));
    let before = sent(&world);
    world.run_until(at(8_000));
    let rate = (sent(&world) - before) * 8 / 5;
    assert!((RATE * 99 / 100..=RATE * 101 / 100).contains(&rate), "{rate} bit/s");
}

#[test]
fn below_its_rate_a_link_paces_and_loses_nothing() {
    for service in [BE, RT] {
        let mut world = narrow(1);
        // 84 % of the rate, and every 20 ms eight packets at nearly once.
        let made = calls(&mut world, (0, 1), service, 5_000, 8, (at(1_000), 250));
        world.run_until(at(8_000));
        let o = outcome(&world, &made);
        assert_eq!((o.sent, o.lost, o.late, o.duplicates), (2_000, 0, 0, 0), "{service:?}");
        // Each takes 2.1 ms to send, and at worst waits for the seven others.
        assert!(
            o.delays[0] >= ms(12) && o.delay(1.0).unwrap() < ms(10 + 8 * 3),
            "{:?}",
            o.delay(1.0)
        );
        assert_eq!(world.ledgers(WireId(0))[0].queue_dropped.packets, 0);
    }
}

#[test]
fn an_overload_of_best_effort_does_not_touch_real_time_and_leaves_no_trace() {
    let mut world = narrow(2);
    let flood_calls = (2 * RATE).div_ceil(VOICE_BITS_PER_SECOND) as u16;
    let voice = calls(&mut world, (0, 1), RT, 5_000, 4, (at(1_000), 500));
    let flood = calls(&mut world, (0, 1), BE, 6_000, flood_calls, (at(2_000), 250));
    // A second after the flood.
    let after = calls(&mut world, (0, 1), BE, 7_000, 2, (at(8_000), 100));
    world.run_until(at(12_000));

    let o = outcome(&world, &voice);
    assert_eq!((o.sent, o.lost, o.late), (2_000, 0, 0));
    // Its own four and one packet of best effort that has begun.
    assert!(o.delay(1.0).unwrap() < ms(10 + 5 * 3), "{:?}", o.delay(1.0));

    let o = outcome(&world, &flood);
    let longest = o.delay(1.0).unwrap();
    // max_wait is 200 ms; then the packet has to be sent.
    assert!(longest > ms(190) && longest < ms(10 + 200 + 6), "{longest:?}");
    // 578 of the 2,000 kbit/s that come remain for it.
    let through = 1.0 - o.residual.estimate;
    assert!((0.25..0.35).contains(&through), "{through}");
    assert_eq!(dropped(&world, 0, 0, Drop::QueueDelay), o.lost);

    let o = outcome(&world, &after);
    assert_eq!((o.sent, o.lost), (200, 0));
    assert!(o.delay(1.0).unwrap() < ms(10 + 6 * 3), "{:?}", o.delay(1.0));
    // The nodes did all the queueing: the wire never dropped anything.
    assert_eq!(world.ledgers(WireId(0))[0].queue_dropped.packets, 0);
}

/// A call one way over a line of 120 kbit/s that loses 14 %, whose nodes don't know its
/// rate and don't recover: how much is missed.
fn missed_on_a_full_line(probes: bool) -> f64 {
    let loss = uniform(0.14);
    let rate = Some(Bitrate::from_bps(120_000));
    let model = LinkModel { rate, loss, delay: ms(10), ..LinkModel::default() };
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    t.link_with(a, b, model.clone(), model, |c| {
        c.realtime.recovery = Recovery::OFF;
        c.liveness.probes = probes;
    });
    let mut world = t.build(4).unwrap();
    let call = calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), 6_000));
    world.run_until(at(123_000));
    outcome(&world, &call).missed.estimate
}

/// Its voice takes 106 of them, and 100 probes a second would take 75.
#[test]
fn probes_do_not_fill_the_queue_of_a_full_line() {
    let without = missed_on_a_full_line(false);
    let with = missed_on_a_full_line(true);
    assert!(with < without + 0.01, "{with} missed with probes, {without} without");
}
