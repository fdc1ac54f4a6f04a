use super::*;
use crate::agent::AgentId;
use crate::{WireId, World};
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, rng};
use trunkline_media::talk::{Framing, Model};
use trunkline_net::{IpVersion, Protocol};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

/// A finished run over a link of 20 ms, with both ends of the trunk.
struct Run {
    world: World,
    wire: WireId,
    sender: AgentId<Sender>,
    receiver: AgentId<Receiver>,
}

fn run(trunk: &Trunk, loss: Loss, seconds: u64) -> Run {
    let mut world = World::new(IpVersion::V4, 3);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let back = LinkModel {
        rate: Some(Bitrate::from_bps(1_000_000_000)),
        delay: ms(20),
        ..LinkModel::default()
    };
    let wire = world.cable(a, b, LinkModel { loss, ..back.clone() }, back).unwrap();
    let to = world.endpoint(b, 9);
    let receiver = world.bind(b, Protocol::UDP, 9, Receiver::new(9, trunk.clone())).unwrap();
    let sender = Sender::new(8, to, trunk.clone(), Time::ZERO);
    let sender = world.bind(a, Protocol::UDP, 8, sender).unwrap();
    world.run_until(at(1_000 * seconds));
    Run { world, wire, sender, receiver }
}

/// The loss event rate as the receiving gateway measures it.
fn loss(world: &World, receiver: AgentId<Receiver>) -> f64 {
    world.agent(receiver).tfmc().unwrap().loss(world.now())
}

/// `calls` calls of `seconds` with a packet every 20 ms, each starting `apart` after the previous
/// one.
fn constant(calls: u64, apart: Duration, seconds: u64) -> Trunk {
    let call = |n: u64| {
        let begin = at(1_000) + apart * n as u32;
        (0..50 * seconds).map(move |k| begin + ms(20 * k))
    };
    Trunk::new(20, (0..calls).map(call))
}

/// Ten simultaneous calls of 50 packets each: 500 datagrams of 28 + 32 bytes, or 50 of 28 + 10 · 32
/// bytes, which are 348.
#[test]
fn datagrams_have_exactly_the_papers_size() {
    for (mode, datagrams, bytes) in
        [(Mode::Off, 500, 60), (Mode::Fixed(10), 50, 348), (Mode::Fixed(0), 500, 60)]
    {
        let trunk = Trunk { mode, wait: ms(5), ..constant(10, Duration::ZERO, 1) };
        let Run { world, wire, sender, receiver } = run(&trunk, Loss::None, 3);
        let [there, back] = world.edge_ledgers(wire);
        assert_eq!((there.arrived.packets, there.arrived.bytes), (datagrams, datagrams * bytes));
        assert_eq!(back.offered.packets, 0, "nobody reports");
        let stats = world.agent(sender).stats();
        assert_eq!((stats.packets, stats.datagrams), (500, datagrams));
        // 20 ms of delay, plus the time of a datagram at 1 Gbit/s.
        for (due, delay) in world.agent(receiver).delays(3) {
            let delay = delay.unwrap();
            assert!((ms(20)..ms(21)).contains(&delay), "{due:?}: {delay:?}");
        }
    }
}

/// Calls start 2 ms apart, and ten packets share a datagram: the first waits for 5 ms, with two
/// others that arrive in that time; the fourth starts the next datagram.
#[test]
fn nobody_waits_for_longer_than_is_allowed() {
    let trunk = Trunk { mode: Mode::Fixed(10), wait: ms(5), ..constant(10, ms(2), 1) };
    let Run { world, sender, receiver, .. } = run(&trunk, Loss::None, 3);
    let waited: Vec<u64> = (0..4)
        .map(|call| {
            let (_, delay) = world.agent(receiver).delays(call).next().unwrap();
            (delay.unwrap() - ms(20)).as_millis() as u64
        })
        .collect();
    assert_eq!(waited, [5, 3, 1, 5]);
    assert_eq!(world.agent(sender).stats().packets, 500);
}

/// 200 calls spread over 20 ms. Without loss, packets leave one by one. With 5 % loss, as many
/// share a datagram as fit, because even the voice alone exceeds TCP's share.
#[test]
fn tfmc_fills_datagrams_after_a_loss() {
    let trunk = constant(200, Duration::from_micros(100), 4).with_tfmc(tfmc_config());
    let Run { world, sender, receiver, .. } = run(&trunk, Loss::None, 6);
    let stats = world.agent(sender).stats();
    assert_eq!((stats.packets, stats.datagrams, stats.refused), (40_000, 40_000, 0));
    let expected = (990..1_010).contains(&(stats.reports * 5 / 4));
    assert!(expected, "one report every 5 ms for 4 s: {stats:?}");
    assert_eq!(loss(&world, receiver), 0.0);
    let Run { world, sender, receiver, .. } = run(&trunk, Loss::Bernoulli { p: 0.05 }, 6);
    let stats = world.agent(sender).stats();
    assert!(stats.datagrams < 8_000 && stats.refused == 0, "{stats:?}");
    let tfmc = world.agent(sender).tfmc().unwrap();
    assert!(tfmc.loss() > 0.0 && tfmc.over_share());
    let lost = world.agent(receiver).arrived().iter().filter(|at| at.is_none()).count();
    assert!((1_200..2_800).contains(&lost), "{lost} of 40,000");
    let longest = (0..200).flat_map(|call| world.agent(receiver).delays(call));
    let longest = longest.filter_map(|(_, delay)| delay).max().unwrap();
    assert!(longest < ms(26), "5 ms at most: {longest:?}");
}

fn tfmc_config() -> trunkline_rate::tfmc::Config {
    trunkline_rate::tfmc::Config {
        segment: trunkline_rate::tfmc::Segment::Nominal(1_460.0),
        ..trunkline_rate::tfmc::Config::default()
    }
}

/// When the return path is cut, m rises, but all packets are still sent.
#[test]
fn voice_goes_on_without_reports() {
    let trunk = constant(200, Duration::from_micros(100), 4).with_tfmc(tfmc_config());
    let mut world = World::new(IpVersion::V4, 3);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let there = LinkModel { delay: ms(20), ..LinkModel::default() };
    let back = LinkModel { loss: Loss::EVERYTHING, ..there.clone() };
    world.cable(a, b, there, back).unwrap();
    let to = world.endpoint(b, 9);
    let receiver = world.bind(b, Protocol::UDP, 9, Receiver::new(9, trunk.clone())).unwrap();
    let sender = Sender::new(8, to, trunk.clone(), Time::ZERO);
    let sender = world.bind(a, Protocol::UDP, 8, sender).unwrap();
    world.run_until(at(6_000));
    let stats = world.agent(sender).stats();
    assert_eq!((stats.packets, stats.reports), (40_000, 0));
    assert!(world.agent(sender).multiplex() > 1, "{stats:?}");
    assert!(world.agent(receiver).arrived().iter().all(Option::is_some));
}

/// A call that loses no packets shows no loss by its numbers.
#[test]
fn one_call_sees_its_own_losses_alone() {
    let config = trunkline_rate::tfmc::Config::paper();
    let one_in_100 = Loss::Trace((0..100).map(|n| n == 7).collect());
    // Four simultaneous calls: in a trace of 100, only packets of the fourth are lost.
    for (observed, seen) in [(3, true), (0, false)] {
        let trunk = Trunk { observed, ..constant(4, Duration::ZERO, 10).with_tfmc(config) };
        let trunk = Trunk { mode: Mode::Off, ..trunk };
        let Run { world, receiver, .. } = run(&trunk, one_in_100.clone(), 12);
        assert_eq!(loss(&world, receiver) > 0.0, seen, "call {observed}");
    }
}

/// 50 packets at once every 20 ms, and a report 5 ms after each burst: no other interval has a
/// datagram. With reports upon arrival, the four packets that a report needs are in the burst.
#[test]
fn periodic_reports_follow_their_own_clock() {
    let [periodic, on_arrival] =
        [trunkline_rate::tfmc::Config::paper(), trunkline_rate::tfmc::Config::default()];
    for config in [periodic, on_arrival] {
        let trunk = constant(50, Duration::ZERO, 2).with_tfmc(config);
        let Run { world, sender, receiver, .. } = run(&trunk, Loss::None, 4);
        let stats = world.agent(sender).stats();
        assert_eq!((world.agent(receiver).reports(), stats.reports), (100, 100));
        // The time that a report waited for its turn is no part of the round trip.
        let rtt = world.agent(sender).tfmc().unwrap().rtt().unwrap();
        assert!((ms(40)..ms(41)).contains(&rtt), "{rtt:?}");
    }
}

#[test]
fn talkspurts_are_calls_like_any_others() {
    let model = Model { cycles: 5, ..Model::default() };
    let call = |n| model.packets(Framing::G729, rng(5, n)).map(|packet| packet.time);
    let trunk = Trunk { mode: Mode::Fixed(8), wait: ms(20), ..Trunk::new(20, (0..20).map(call)) };
    let Run { world, sender, receiver, .. } = run(&trunk, Loss::None, 60);
    let arrived = world.agent(receiver).arrived();
    assert!(arrived.len() > 1_000 && arrived.iter().all(Option::is_some));
    assert!(world.agent(sender).stats().datagrams * 2 < arrived.len() as u64);
}

#[test]
fn the_same_seed_gives_the_same() {
    let trunk = constant(50, Duration::from_micros(100), 2).with_tfmc(tfmc_config());
    let digest = || run(&trunk, Loss::Bernoulli { p: 0.02 }, 4).world.digest();
    assert_eq!(digest(), digest());
}
