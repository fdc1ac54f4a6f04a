//! Calls and other traffic over a cell of 802.11e.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::wifi::edca::{DRAFT, MAX_WINDOW};
use trunkline_net::wifi::{Config, InvalidCell};
use trunkline_net::{Class, IpVersion, Protocol};
use trunkline_rate::vegas::{self, CodecRate, HopBaseRtt};
use trunkline_sim::agent::adaptive::{Call, Coding, Gateway, Station};
use trunkline_sim::agent::{AgentId, Cbr, Meter};
use trunkline_sim::{CellId, HostId, WireId, World, WorldError};

/// The TOS byte of DSCP EF: user priority 6.
const EF: u8 = 46 << 2;
/// The TOS byte of DSCP CS1: user priority 1.
const CS1: u8 = 8 << 2;
const BACKGROUND: Class = Class(1);
const SECONDS: u64 = 10;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

struct Topology {
    world: World,
    access_point: HostId,
    stations: Vec<HostId>,
    cell: CellId,
    wires: Vec<WireId>,
}

impl Topology {
    fn new(stations: usize) -> Topology {
        let mut world = World::new(IpVersion::V4, 1);
        let access_point = world.add_plain_host();
        let stations: Vec<_> = (0..stations).map(|_| world.add_plain_host()).collect();
        let (cell, wires) = world.cell(access_point, &stations, Config::default()).unwrap();
        Topology { world, access_point, stations, cell, wires }
    }

    /// A call to a station that reports every 100 ms.
    fn call(
        &mut self,
        station: usize,
        tos: u8,
        coding: Coding,
    ) -> (AgentId<Gateway>, AgentId<Station>) {
        let call = Call { start: Time::from_millis(5), packets: 50 * SECONDS as u32, tos };
        self.call_beside(station, call, coding, &Rc::default())
    }

    /// The same of a call at other times, beside those of the same gateway.
    fn call_beside(
        &mut self,
        station: usize,
        call: Call,
        coding: Coding,
        hop: &Rc<Cell<HopBaseRtt>>,
    ) -> (AgentId<Gateway>, AgentId<Station>) {
        let (a, b) = (self.access_point, self.stations[station]);
        let port = 4_000 + station as u16;
        let to = self.world.endpoint(b, 5_000);
        let gateway = Gateway::new(port, to, call, coding).beside(hop);
        let from = self.world.endpoint(a, port);
        let station = Station::new(5_000, from, call, ms(100), ms(10));
        let gateway = self.world.bind(a, Protocol::UDP, port, gateway).unwrap();
        (gateway, self.world.bind(b, Protocol::UDP, 5_000, station).unwrap())
    }

    /// Packets of 1,500 bytes at this interval, from 2 s on for 4 s.
    fn background(&mut self, station: usize, spacing: Duration) -> AgentId<Meter> {
        let (a, b) = (self.access_point, self.stations[station]);
        let (port, to) = (6_000 + station as u16, self.world.endpoint(b, 7_000));
        let count = 4_000_000_000 / spacing.as_nanos() as u64;
        let cbr = Cbr::udp_sizes(port, to, CS1, Time::from_millis(2_000), spacing, count);
        self.world.bind(a, Protocol::UDP, port, cbr).unwrap();
        self.world.set_class(a, Protocol::UDP, port, BACKGROUND).unwrap();
        self.world.bind(b, Protocol::UDP, 7_000, Meter::default()).unwrap()
    }

    fn run(&mut self) {
        self.world.run_until(Time::from_millis(1_000 * (SECONDS + 1)));
    }

    /// Longest delay of a call, and the number of its packets that never arrived.
    fn worst(&self, (gateway, station): (AgentId<Gateway>, AgentId<Station>)) -> (Duration, usize) {
        let (sent, arrived) =
            (self.world.agent(gateway).sent(), self.world.agent(station).arrived());
        let delays = sent.iter().zip(arrived).filter_map(|(s, a)| Some((*a)?.since(s.at)));
        (delays.max().unwrap(), arrived.iter().filter(|a| a.is_none()).count())
    }
}

#[test]
fn an_idle_cell_takes_as_long_as_its_frames() {
    let mut topology = Topology::new(1);
    let call = topology.call(0, EF, Coding::Fixed(CodecRate::Kbps64));
    topology.run();
    // 200 bytes take 76 µs; a report of 60 bytes has 22 + 8·(38 + 60) bits in 6 symbols, 44 µs.
    // Each begins at the next boundary of a slot, of 9 µs.
    let us = Duration::from_micros;
    let (longest, lost) = topology.worst(call);
    assert!((us(76)..us(76 + 9)).contains(&longest) && lost == 0, "{longest:?}, {lost}");
    let gateway = topology.world.agent(call.0);
    assert!((us(120)..us(120 + 18)).contains(&gateway.rtt().unwrap()), "{:?}", gateway.rtt());
    assert_eq!((gateway.sent().len(), gateway.refused()), (500, 0));
    let [down, up] = topology.world.class_ledgers(topology.wires[0], Class::default());
    assert_eq!((down.arrived.packets, down.arrived.bytes), (500, 500 * 200));
    assert_eq!((up.arrived.packets, up.arrived.bytes), (100, 100 * 60));
    let counters = topology.world.with_cell(topology.cell, |cell| cell.counters());
    assert_eq!(counters.contended, 600);
}

/// The background exceeds the cell's capacity, but packets marked as voice overtake it.
#[test]
fn the_dscp_decides_which_queue() {
    let worst = |tos| {
        let mut topology = Topology::new(2);
        let call = topology.call(0, tos, Coding::Fixed(CodecRate::Kbps64));
        let meter = topology.background(1, Duration::from_micros(300));
        topology.run();
        assert!(topology.world.agent(meter).received.packets > 7_000);
        let [down, _] = topology.world.class_ledgers(topology.wires[1], BACKGROUND);
        assert!(down.queue_dropped.packets > 3_000, "{down:?}");
        topology.worst(call)
    };
    let ((voice, voice_lost), (as_background, lost)) = (worst(EF), worst(CS1));
    assert!(voice < ms(1) && voice_lost == 0, "{voice:?}, {voice_lost}");
    // Fifty frames of about half a millisecond each are ahead of it.
    assert!(as_background > ms(15) && lost > 20, "{as_background:?}, {lost}");
}

#[test]
fn the_codec_follows_the_cell() {
    let mut topology = Topology::new(2);
    let floor = ms(1);
    let config = vegas::Config { floor, ..vegas::Config::paper() };
    // The call shares the background's queue, so that its rate has to adapt.
    let (gateway, station) = topology.call(0, CS1, Coding::Adaptive(CodecRate::Kbps64, config));
    topology.background(1, Duration::from_micros(300));
    topology.run();
    let sent = topology.world.agent(gateway).sent();
    let rate_at = |ms: u64| sent.iter().rev().find(|s| s.at <= Time::from_millis(ms)).unwrap().rate;
    assert_eq!(
        [1_900, 5_500, 9_900].map(rate_at),
        [CodecRate::Kbps64, CodecRate::Kbps16, CodecRate::Kbps64]
    );
    let verdicts = topology.world.agent(gateway).verdicts();
    assert!(verdicts.congestion + verdicts.wireless > 10, "{verdicts:?}");
    assert!(topology.world.agent(station).arrived().iter().flatten().count() < 500);
}

/// A call ends after a second in an idle cell. Another begins when other traffic has filled their
/// queue. Beside the first, it knows how long that round trip should be; at a gateway of its own, it
/// never sees a shorter one.
#[test]
fn a_call_in_a_full_queue_knows_the_cell_from_one_that_has_ended() {
    let last = |shared: bool| {
        let mut topology = Topology::new(2);
        let coding = Coding::Adaptive(CodecRate::Kbps64, vegas::Config::paper());
        let at = |ms, packets| Call { start: Time::from_millis(ms), packets, tos: CS1 };
        let hop = Rc::default();
        topology.call_beside(0, at(5, 50), coding, &hop);
        let other = if shared { Rc::clone(&hop) } else { Rc::default() };
        let (second, _) = topology.call_beside(1, at(3_005, 125), coding, &other);
        topology.background(1, Duration::from_micros(300));
        topology.run();
        let base = hop.get().get().unwrap();
        assert!(base < Duration::from_micros(140), "{base:?}");
        topology.world.agent(second).sent().last().unwrap().rate
    };
    assert_eq!([true, false].map(last), [CodecRate::Kbps16, CodecRate::Kbps64]);
}

#[test]
fn what_is_no_report_changes_nothing() {
    let mut topology = Topology::new(1);
    let config = vegas::Config::paper();
    let (gateway, _) = topology.call(0, EF, Coding::Adaptive(CodecRate::Kbps64, config));
    let to = topology.world.endpoint(topology.access_point, 4_000);
    // Sent between the call's packets, because contention with them would change the outcome.
    let start = Time::from_millis(10);
    let mut short = Cbr::udp_sizes(8_000, to, 0, start, ms(20), 300);
    short.bytes = 16;
    topology.world.bind(topology.stations[0], Protocol::UDP, 8_000, short).unwrap();
    topology.run();
    assert_eq!(topology.world.agent(gateway).refused(), 300);
    assert!(topology.world.agent(gateway).sent().iter().all(|s| s.rate == CodecRate::Kbps64));
}

#[test]
fn a_cell_that_cannot_be_is_refused() {
    let mut world = World::new(IpVersion::V4, 1);
    let (ap, station) = (world.add_plain_host(), world.add_plain_host());
    let mut table = DRAFT;
    table[0].cw_max = MAX_WINDOW - 1;
    let config = Config { station: table, ..Config::default() };
    let refused = world.cell(ap, &[station], config);
    assert!(matches!(refused, Err(WorldError::Cell(InvalidCell::Access(_)))), "{refused:?}");
    assert_eq!(world.wires(), 0);
}
