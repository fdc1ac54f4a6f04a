//! A TFRC flow over a simulated link.

use std::rc::Rc;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::equation::Throughput;
use trunkline_rate::tfrc::Config;
use trunkline_sim::World;
use trunkline_sim::agent::tfrc::{Flow, Sent, Sink, Source};

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// Fate of each packet of a flow at the sender, and its arrival time.
struct Outcome {
    sent: Vec<Sent>,
    arrived: Vec<Option<Time>>,
    waiting: usize,
    rate: f64,
    loss: f64,
}

/// Sends packets of `bytes` every `spacing_ms` for 60 s over a link of 50 ms each way.
fn outcome(config: Config, bytes: usize, spacing_ms: u64, loss: Loss, seed: u64) -> Outcome {
    let due = (0..60_000 / spacing_ms).map(|n| at(n * spacing_ms)).collect();
    outcome_of(config, bytes, due, loss, seed)
}

/// Sends packets of `bytes` at these due times over that link.
fn outcome_of(config: Config, bytes: usize, due: Rc<[Time]>, loss: Loss, seed: u64) -> Outcome {
    let end = due[due.len() - 1] + Duration::from_secs(5);
    let flow = Flow { id: 7, due, bytes, tos: 0, config };
    let mut world = World::new(IpVersion::V6, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let back = LinkModel {
        delay: Duration::from_millis(50),
        rate: Some(Bitrate::from_bps(1_000_000_000)),
        ..LinkModel::default()
    };
    world.cable(a, b, LinkModel { loss, ..back.clone() }, back).unwrap();
    let to = world.endpoint(b, 80);
    let sink = world.bind(b, Protocol::DCCP, 80, Sink::new(80, &flow)).unwrap();
    let source = Source::new(9, to, flow, 5, Time::ZERO);
    let source = world.bind(a, Protocol::DCCP, 9, source).unwrap();
    world.run_until(end);
    let (source, sink) = (world.agent(source), world.agent(sink));
    assert_eq!(source.refused(), 0);
    Outcome {
        sent: source.sent().to_vec(),
        arrived: sink.arrived().to_vec(),
        waiting: source.waiting(),
        rate: source.sender().rate(),
        loss: source.sender().loss(),
    }
}

/// Half a packet per round trip is below slow start's initial rate: all packets leave when they are
/// due, and arrive 50 ms plus their time on the wire later.
#[test]
fn a_slow_flow_is_not_held_up() {
    let Outcome { sent, arrived, waiting, .. } =
        outcome(Config::basic(160), 160, 200, Loss::None, 1);
    assert_eq!(waiting, 0);
    for (n, (sent, arrived)) in sent.iter().zip(&arrived).enumerate().skip(5) {
        let due = at(200 * n as u64);
        assert_eq!(*sent, Sent::At(due), "{n}");
        let delay = arrived.unwrap().since(due);
        assert!((50_000..50_010).contains(&delay.as_micros()), "{n}: {delay:?}");
    }
}

/// A greedy flow of 1,000 packets/s into a queue of five: packets leave at the rate that the
/// equation allows for the receiver's loss event rate, and the rest are dropped.
#[test]
fn a_fast_flow_is_held_to_the_equation() {
    let loss = Loss::Bernoulli { p: 0.02 };
    let Outcome { sent, arrived, rate, loss, .. } =
        outcome(Config::basic(1_000), 1_000, 1, loss, 2);
    // Only the second half counts, when the rate has settled.
    let half = sent.len() / 2;
    let left = sent[half..].iter().filter(|s| matches!(s, Sent::At(_))).count() as f64 / 30.0;
    assert!(sent[half..].contains(&Sent::Dropped));
    let expected = Throughput::RFC.rate(1.0, Duration::from_millis(100), 0.02);
    assert!((0.7..1.4).contains(&(left / expected)), "{left} of {expected} packets/s");
    assert!((0.008..0.04).contains(&loss), "{loss}");
    assert!(rate > 0.0);
    let lost = sent.iter().zip(&arrived);
    let lost = lost.filter(|(s, a)| matches!(s, Sent::At(_)) && a.is_none()).count() as f64;
    let all = sent.iter().filter(|s| matches!(s, Sent::At(_))).count() as f64;
    assert!((0.01..0.03).contains(&(lost / all)), "{lost} of {all}");
}

#[test]
fn the_same_seed_gives_the_same() {
    let run = |seed| {
        let loss = Loss::Bernoulli { p: 0.02 };
        outcome(Config::small_packets(160), 160, 20, loss, seed).arrived
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// After a loss, a long pause takes the rate down to 20 bytes in 64 s, less than half a byte per
/// second. Rounded to whole bytes in the reports it must not become zero, and it rises again.
#[test]
fn a_flow_of_small_packets_returns_from_a_long_pause() {
    let talk = |from: u64, ms: u64| (0..ms / 200).map(move |n| at(from + 200 * n));
    let due: Rc<[Time]> = talk(0, 60_000).chain(talk(360_000, 240_000)).collect();
    let loss = Loss::Bernoulli { p: 0.03 };
    let Outcome { sent, rate, .. } = outcome_of(Config::basic(20), 20, due, loss, 1);
    // The rate has had two minutes to rise.
    let left = sent[sent.len() - 600..].iter().filter(|s| matches!(s, Sent::At(_))).count();
    assert!(left > 400, "{left} of the last 600, at {rate}");
}

/// A path that loses everything from the beginning: one packet leaves whenever the rate allows,
/// which is halved again and again.
#[test]
fn without_reports_the_rate_falls() {
    let Outcome { sent, rate, waiting, .. } =
        outcome(Config::basic(160), 160, 20, Loss::EVERYTHING, 1);
    let left = sent.iter().filter(|s| matches!(s, Sent::At(_))).count();
    assert!((5..15).contains(&left) && waiting > 0, "{left}, {waiting}");
    assert!(rate < 160.0 / 8.0, "{rate}");
}
