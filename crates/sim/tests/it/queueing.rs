//! Links with a limited rate, under load below and above it.

use crate::common::*;
use trunkline_base::Bitrate;
use trunkline_base::link_model::LinkModel;
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{Topology, WireId, World};

/// Length of a voice packet on the wire in bytes: 172, plus 44 for the overlay and 48 for IP and
/// UDP.
const VOICE_BYTES: u64 = 172 + 44 + 48;
const VOICE_BITS_PER_SECOND: u64 = 50 * 8 * VOICE_BYTES;
const RATE: u64 = 1_000_000;

/// A wire of 1 Mbit/s and 10 ms between nodes that are configured with its rate.
fn narrow(seed: u64) -> World {
    // Wires count IPv6 headers. Hosts here have IPv4 addresses, and their nodes count IPv4 headers,
    // which are 20 bytes shorter.
    let known = RATE * (VOICE_BYTES - 20) / VOICE_BYTES;
    let wire = Some(Bitrate::from_bps(RATE));
    paced(seed, wire, known)
}

/// A wire of 10 ms between nodes that limit themselves to `rate`.
fn paced(seed: u64, wire: Option<Bitrate>, rate: u64) -> World {
    let model = LinkModel { rate: wire, delay: ms(10), ..LinkModel::default() };
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    t.link_with(a, b, model.clone(), model, |c| c.rate = Some(Bitrate::from_bps(rate)));
    t.build(seed).unwrap()
}

/// A rate applies to packets as sent, including IPv4 headers over IPv4.
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
        // 84 % of the rate, as eight packets almost at once every 20 ms.
        let made = calls(&mut world, (0, 1), service, 5_000, 8, (at(1_000), 250));
        world.run_until(at(8_000));
        let o = outcome(&world, &made);
        assert_eq!((o.sent, o.lost, o.late, o.duplicates), (2_000, 0, 0, 0), "{service:?}");
        // Each takes 2.1 ms to send, and waits for at most the seven others.
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
    // The first second after the flood.
    let after = calls(&mut world, (0, 1), BE, 7_000, 2, (at(8_000), 100));
    world.run_until(at(12_000));

    let o = outcome(&world, &voice);
    assert_eq!((o.sent, o.lost, o.late), (2_000, 0, 0));
    // Four voice packets, and one best-effort packet already in transmission.
    assert!(o.delay(1.0).unwrap() < ms(10 + 5 * 3), "{:?}", o.delay(1.0));

    let o = outcome(&world, &flood);
    let longest = o.delay(1.0).unwrap();
    // `max_wait` is 200 ms; after that, the packet still has to be sent.
    assert!(longest > ms(190) && longest < ms(10 + 200 + 6), "{longest:?}");
    // The flood has 2,000 kbit/s, and 578 remain for it.
    let through = 1.0 - o.residual.estimate;
    assert!((0.25..0.35).contains(&through), "{through}");
    assert_eq!(dropped(&world, 0, 0, DropReason::QueueDelay), o.lost);

    let o = outcome(&world, &after);
    assert_eq!((o.sent, o.lost), (200, 0));
    assert!(o.delay(1.0).unwrap() < ms(10 + 6 * 3), "{:?}", o.delay(1.0));
    // All queueing is in the nodes: the wire drops nothing.
    assert_eq!(world.ledgers(WireId(0))[0].queue_dropped.packets, 0);
}

/// Share of packets missed by a one-way call over a line of 120 kbit/s with 14 % loss, between
/// nodes that don't know its rate and have recovery turned off.
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

/// The voice takes 106 of the 120 kbit/s, and 100 probes a second would take 75.
#[test]
fn probes_do_not_fill_the_queue_of_a_full_line() {
    let without = missed_on_a_full_line(false);
    let with = missed_on_a_full_line(true);
    assert!(with < without + 0.01, "{with} missed with probes, {without} without");
}
