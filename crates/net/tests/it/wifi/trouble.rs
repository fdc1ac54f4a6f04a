//! Errors, stations that vanish, and invalid input.

use super::{arrivals, cell, cell_of, down, drain, table, up, us};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Cause;
use trunkline_net::wifi::edca::Access;
use trunkline_net::wifi::phy::MAX_PACKET;
use trunkline_net::wifi::{
    AccessCategory, Cell, Config, InvalidCell, Lost, MAX_QUEUE, MAX_STATIONS, MsduOutcome, Refusal,
};
use trunkline_net::{Class, Done, Endpoint, Frame, Medium, Network, Packet, Protocol};

/// At a bit error rate of 1 in 10,000, a frame of 1,538 bytes arrives with probability (1 −
/// 10⁻⁴)^12,304 = 0.2922, so a packet is lost with 0.7078⁷ = 0.0890. Frames are damaged with 0.7078
/// and, if they arrive, the 14 bytes of their acknowledgement with 0.0111: 0.7111 for each data
/// frame. Bounds are four standard deviations.
#[test]
fn errors_are_per_frame() {
    let mut cell = cell_of(Config { bit_error_rate: 1e-4, ..Config::default() });
    let packet = down(0, 1, 1_500, 0);
    cell.enqueue(Time::ZERO, &packet).unwrap();
    let (mut arrived, mut lost) = (0, 0);
    while arrived + lost < 20_000 {
        let Some(outcome) = cell.advance(cell.next_timeout()) else { continue };
        match outcome.result {
            Ok(()) => arrived += 1,
            Err(why) => {
                assert_eq!(why, Lost::RetryLimit);
                lost += 1;
            }
        }
        cell.enqueue(outcome.at, &packet).unwrap();
    }
    let share = f64::from(lost) / 20_000.0;
    assert!((share - 0.0890).abs() < 4.0 * (0.089f64 * 0.911 / 20_000.0).sqrt(), "{share}");
    let counters = cell.counters();
    let (damaged, sent) = (counters.damaged as f64, counters.contended as f64);
    let share = damaged / sent;
    assert!((share - 0.7111).abs() < 4.0 * (0.7111f64 * 0.2889 / sent).sqrt(), "{share}");
}

/// Station 0 vanishes while the access point sends to it: seven attempts of 76 + 50 µs and six AIFS
/// of 34. Its own packets are lost with it, and station 1 gets its packet after that.
#[test]
fn others_go_on_when_a_station_vanishes() {
    let mut cell = cell(2, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &down(1, 6, 200, 2)).unwrap();
    cell.enqueue(us(1), &up(0, 6, 200, 3)).unwrap();
    cell.set_present(us(50), 0, false).unwrap();
    assert_eq!(cell.enqueue(us(60), &up(0, 6, 200, 4)), Err(Refusal::Gone));
    let given_up = 7 * (76 + 50) + 6 * 34;
    assert_eq!(
        drain(&mut cell, us(9_000)),
        [
            (3, 50, Err(Lost::Gone)),
            (1, given_up, Err(Lost::RetryLimit)),
            (2, given_up + 34 + 76, Ok(())),
        ]
    );
    cell.set_present(us(9_000), 0, true).unwrap();
    cell.enqueue(us(9_000), &up(0, 6, 200, 5)).unwrap();
    assert_eq!(arrivals(&mut cell, us(9_500)).len(), 1);
}

/// The frame that a station has on the air when it vanishes is lost; the station may return at once
/// with another packet.
#[test]
fn a_frame_dies_with_its_sender() {
    let mut cell = cell(1, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &up(0, 6, 1_500, 1)).unwrap();
    cell.set_present(us(100), 0, false).unwrap();
    cell.set_present(us(100), 0, true).unwrap();
    cell.enqueue(us(100), &up(0, 6, 200, 2)).unwrap();
    // The medium is busy for 364 µs and the timeout all the same.
    let second = 364 + 50 + 34 + 76;
    assert_eq!(drain(&mut cell, us(9_000)), [(1, 100, Err(Lost::Gone)), (2, second, Ok(()))]);
}

/// A station receives no frame during which it was away, and an acknowledgement that it broke off
/// does not arrive: a frame takes 76 µs, its timeout 50; the acknowledgement takes 44 instead of
/// the timeout; the next attempt begins an AIFS of 34 later. Turns behave the same
/// (`a_turn_breaks_when_its_station_is_away`).
#[test]
fn a_frame_dies_with_its_receiver() {
    for (away, first, attempts) in [(30, 76 + 50 + 34 + 76, 2), (100, 76, 2), (125, 76, 1)] {
        let mut cell = cell(1, table(2, 0, 0));
        cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
        cell.set_present(us(away), 0, false).unwrap();
        cell.set_present(us(away + 10), 0, true).unwrap();
        assert_eq!(drain(&mut cell, us(9_000)), [(1, first, Ok(()))], "away at {away}");
        assert_eq!(cell.counters().contended, attempts, "away at {away}");
    }
}

#[test]
fn absurd_packets_are_refused() {
    let mut cell = cell(2, table(2, 0, 0));
    let mut offer = |msdu| cell.enqueue(Time::ZERO, &msdu);
    assert_eq!(offer(down(0, 0, 0, 1)), Err(Refusal::Empty));
    for bytes in [MAX_PACKET + 1, u32::MAX] {
        assert_eq!(offer(down(0, 0, bytes, 1)), Err(Refusal::TooLong(bytes, MAX_PACKET)));
    }
    for station in [2, u16::MAX] {
        assert_eq!(offer(up(station, 0, 1, 1)), Err(Refusal::NoStation(station)));
    }
    for priority in [8, u8::MAX] {
        assert_eq!(offer(down(0, priority, 1, 1)), Err(Refusal::NoPriority(priority)));
    }
    // 50 packets fit, of the shortest and the longest.
    (0..50).for_each(|k| offer(down(1, 0, [1, MAX_PACKET][k % 2], 1)).unwrap());
    assert_eq!(offer(down(1, 0, 1, 1)), Err(Refusal::QueueFull));
    assert_eq!(offer(down(0, 0, 1, 1)), Err(Refusal::QueueFull), "one queue for all stations");
    assert_eq!(offer(down(1, 1, 1, 1)), Ok(()), "another category");
    assert_eq!(cell.queued(), 51);
    assert_eq!(drain(&mut cell, Time::from_millis(1_000)).len(), 51);
    let gone = cell.set_present(Time::ZERO, 2, false);
    assert_eq!(gone, Err(InvalidCell::NoStation(2)));
    let rate = cell.set_bit_error_rate(Time::ZERO, 2, 0.5);
    assert_eq!(rate, Err(InvalidCell::NoStation(2)));
}

/// A driver that reads no outcomes is eventually rejected: at most 65,536 wait, plus the queue.
#[test]
fn outcomes_are_bounded() {
    let mut cell = cell(1, table(2, 0, 0));
    let mut now = Time::ZERO;
    let refused = (0..100_000u64).find(|&k| {
        now = us(k * 200);
        cell.enqueue(now, &down(0, 6, 1, k)) == Err(Refusal::Unread)
    });
    assert_eq!(refused, Some(65_536));
    assert_eq!(arrivals(&mut cell, now).len(), 65_536);
    assert_eq!(cell.enqueue(now, &down(0, 6, 1, 0)), Ok(()));
}

#[test]
fn cells_that_cannot_be() {
    let new = |config| Cell::new(config, 1, 0).err();
    let good = Config::default();
    assert_eq!(new(good), None);
    let stations = MAX_STATIONS + 1;
    assert_eq!(new(Config { stations, ..good }), Some(InvalidCell::Stations(stations)));
    for queue in [0, MAX_QUEUE + 1] {
        assert_eq!(new(Config { queue, ..good }), Some(InvalidCell::Queue(queue)));
    }
    assert_eq!(new(Config { attempts: 0, ..good }), Some(InvalidCell::Attempts));
    for bit_error_rate in [-0.1, 1.1, f64::INFINITY] {
        let expected = Some(InvalidCell::BitErrorRate(bit_error_rate));
        assert_eq!(new(Config { bit_error_rate, ..good }), expected);
    }
    assert!(new(Config { bit_error_rate: f64::NAN, ..good }).is_some());
    let fine = table(2, 15, 1_023)[0];
    for bad in [
        Access { aifsn: 0, ..fine },
        Access { aifsn: 16, ..fine },
        Access { cw_min: 14, ..fine },
        Access { cw_max: u16::MAX, ..fine },
        Access { cw_min: 1_023, cw_max: 15, ..fine },
        Access { txop_limit: Duration::from_micros(8_161), ..fine },
    ] {
        let mut station = good.station;
        station[AccessCategory::Video as usize] = bad;
        let expected = Some(InvalidCell::Access(AccessCategory::Video));
        assert_eq!(new(Config { station, ..good }), expected, "{bad:?}");
    }
}

/// The largest cell, and times at the end of the clock.
#[test]
fn extremes() {
    let mut wide = cell_of(Config { stations: MAX_STATIONS, ..Config::default() });
    for station in 0..MAX_STATIONS {
        wide.enqueue(Time::ZERO, &up(station, 7, 100, station.into())).unwrap();
    }
    let all = drain(&mut wide, Time::from_millis(60_000));
    assert_eq!((all.len(), wide.queued()), (MAX_STATIONS.into(), 0));

    let mut late = cell(1, table(2, 0, 0));
    late.enqueue(Time::NEVER, &down(0, 6, 200, 1)).unwrap();
    assert_eq!(late.advance(Time::NEVER), None, "nothing happens at the end of time");
    assert_eq!((late.next_timeout(), late.queued()), (Time::NEVER, 1));
}

/// A clock that goes back counts as one that is stalled.
#[test]
fn time_does_not_go_back() {
    let mut cell = cell(1, table(2, 0, 0));
    cell.enqueue(us(5_000), &down(0, 6, 200, 1)).unwrap();
    assert_eq!(arrivals(&mut cell, us(6_000)).len(), 1);
    cell.enqueue(us(10), &down(0, 6, 200, 2)).unwrap();
    let Some(MsduOutcome { at, .. }) = cell.advance(us(9_000)) else { panic!("nothing came") };
    assert!(at > us(5_000));
}

/// Time doesn't go back either if only actions have happened since: station 1 has its packet after
/// station 0 has lost its own, not before.
#[test]
fn outcomes_keep_the_order_of_time() {
    let mut cell = cell(2, table(2, 0, 0));
    cell.enqueue(us(5_000), &up(0, 6, 200, 1)).unwrap();
    cell.set_present(us(5_000), 0, false).unwrap();
    cell.enqueue(us(10), &up(1, 6, 200, 2)).unwrap();
    // The slot that is next then, and 76 µs.
    let second = 5_004 + 76;
    let all = drain(&mut cell, us(9_000));
    assert_eq!(all, [(1, 5_000, Err(Lost::Gone)), (2, second, Ok(()))]);
}

/// As a medium: EF precedes earlier packets; unknown lanes and overlong packets count as queue
/// drops, and a vanished station's packets as losses.
#[test]
fn a_cell_is_a_medium_of_a_network() {
    let config = Config {
        stations: 2,
        station: table(2, 0, 0),
        access_point: table(2, 0, 0),
        ..Config::default()
    };
    let mut cell = cell_of(config);
    cell.set_present(Time::ZERO, 1, false).unwrap();
    let mut net = Network::new(1);
    let (access_point, medium) = (net.router(), net.medium(cell));
    let server = net.host();
    let hosts = [net.host(), net.host(), net.host()];
    net.connect(server, access_point, Default::default(), Default::default()).unwrap();
    let mut edges = hosts.iter().zip(0..).map(|(&host, station)| {
        net.connect_over(access_point, host, medium, Cell::lanes(station), Duration::ZERO)
    });
    let edges: [_; 3] = std::array::from_fn(|_| edges.next().unwrap());
    let packet = |to: usize, tos, bytes| Packet {
        from: Endpoint { vertex: server, port: 1 },
        to: Endpoint { vertex: hosts[to], port: 2 },
        protocol: Protocol::UDP,
        tos,
        class: Class(0),
        bytes,
        payload: &[],
    };
    let sent = [
        packet(0, 8 << 2, 1_500),
        packet(0, 46 << 2, 200),
        packet(1, 46 << 2, 200),
        packet(2, 0, 200),
        packet(0, 0, 5_000),
    ];
    sent.iter().for_each(|p| net.send(Time::ZERO, p));
    let mut got = Vec::new();
    while let Some(delivery) = net.poll(Time::from_millis(1_000)) {
        let (header, payload) = net.open(&delivery);
        got.push((delivery.at.as_micros(), header.bytes, header.tos));
        net.release(delivery, payload);
    }
    // Background and voice arrive at the access point at 0, and voice goes first: 0 to 120. Then
    // voice for the vanished station and background begin at the same boundary, and background
    // fails seven times in all before that voice packet does.
    assert_eq!(got, [(76, 200, 46 << 2)]);
    let ledger = |k: usize| net.ledger(edges[k].forward());
    assert_eq!((ledger(0).lost.packets, ledger(0).queue_dropped.packets), (1, 1));
    assert_eq!((ledger(1).lost.packets, ledger(2).queue_dropped.packets), (1, 1));
    assert_eq!(net.under_way(), 0);
    // A host sends, and its station vanishes: the packet is lost at once, and the network polls for
    // it.
    let from_host = Packet {
        from: Endpoint { vertex: hosts[0], port: 1 },
        to: Endpoint { vertex: server, port: 2 },
        ..packet(0, 46 << 2, 200)
    };
    let now = Time::from_millis(1_001);
    net.send(now, &from_host);
    let vanish = |cell: &mut Cell| cell.set_present(now, 0, false);
    assert_eq!(net.with_medium(now, medium, vanish), Some(Ok(())));
    assert_eq!(net.with_medium(now, medium, |_: &mut NotACell| ()), None);
    assert_eq!(net.next_timeout(), now);
    assert_eq!(net.poll(now), None);
    assert_eq!((net.ledger(edges[0].reverse()).lost.packets, net.under_way()), (1, 0));
}

struct NotACell;

impl Medium for NotACell {
    fn offer(&mut self, _: Time, _: &Frame) -> Result<(), Cause> {
        Err(Cause::Queue)
    }

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll(&mut self, _: Time) -> Option<Done> {
        None
    }
}
