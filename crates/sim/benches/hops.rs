//! Benchmark of the simulator: packet-hops per second of processor time on one core. A packet-hop
//! is one datagram put on one wire. The world is that of Amir et al. 2005, section V-B: six nodes
//! in a row, A to F, links of 10 ms, 5 % loss on the middle one in both directions, ten calls from
//! A to F. The same calls then run over one plain path, without nodes. Last, the first of these
//! runs on every core at once, since an experiment has many points.
//!
//! ```text
//! cargo bench -p trunkline-sim --bench hops [-- SECONDS_OF_CALLS RUNS [NAME]]
//! ```

use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_net::IpVersion;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

const LINKS: u32 = 5;
const CALLS: u16 = 10;

#[derive(Clone, Copy)]
enum Over {
    Overlay(Service),
    PlainUdp,
}

#[allow(clippy::disallowed_methods, reason = "a benchmark is a program")]
fn main() {
    let mut numbers = std::env::args().filter_map(|a| a.parse().ok());
    // Cargo adds `--bench` to the arguments.
    let is_name = |a: &String| !a.starts_with('-') && a.parse::<u64>().is_err();
    let only = std::env::args().skip(1).find(is_name);
    let seconds: u64 = numbers.next().unwrap_or(200);
    let runs: u64 = numbers.next().unwrap_or(7);
    println!(
        "{CALLS} calls of {seconds} s over {LINKS} links; median of {runs} runs (slowest – fastest)"
    );
    let real_time = Over::Overlay(Service::RealTime);
    for (name, over) in [
        ("real time", real_time),
        ("best effort", Over::Overlay(Service::BestEffort)),
        ("plain UDP", Over::PlainUdp),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        print(name, (0..runs).map(|seed| run(over, seconds, seed)).collect());
    }
    if only.is_some() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let together = std::thread::scope(|scope| {
        let worker = || (0..runs).map(|seed| run(real_time, seconds, seed)).collect::<Vec<_>>();
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("a run ends")).collect()
    });
    print(&format!("{cores} at once"), together);
}

fn print(name: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let of = |k: usize| rates[k] / 1e6;
    let (slowest, median, fastest) = (of(0), of(rates.len() / 2), of(rates.len() - 1));
    println!("{name:12} {median:6.3} million packet-hops/s ({slowest:.3} – {fastest:.3})");
}

/// Runs one world and returns packet-hops per second of processor time.
fn run(over: Over, seconds: u64, seed: u64) -> f64 {
    let ten = LinkModel { delay: Duration::from_millis(10), ..LinkModel::default() };
    let lossy = LinkModel { loss: Loss::Bernoulli { p: 0.05 }, ..ten.clone() };
    let mut models = vec![ten; LINKS as usize];
    models[LINKS as usize / 2] = lossy.clone();
    let mut world = Topology::chain(models).build(seed).expect("a valid chain");
    match over {
        Over::Overlay(service) => overlay_calls(&mut world, service, seconds),
        Over::PlainUdp => {
            world = World::new(IpVersion::V6, seed);
            plain_calls(&mut world, &lossy, seconds);
        }
    }
    let started = processor_time();
    world.run_until(Time::from_millis(2_000 + 1_000 * seconds));
    let elapsed = (processor_time() - started).as_secs_f64();
    assert!(world.datagrams() >= 50 * u64::from(CALLS) * seconds, "the calls were made");
    world.datagrams() as f64 / elapsed
}

/// Processor time that this thread has used so far, unaffected by other load on the machine.
fn processor_time() -> Duration {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).expect("this benchmark runs on Linux, with /proc");
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_else(|| panic!("{path} begins with a number: {text}")))
}

fn source(call: u16, service: Service, seconds: u64) -> VoiceSource {
    let start = Time::from_millis(1_000 + 2 * u64::from(call));
    VoiceSource::new(NodeId(LINKS + 1), 5_000 + call, service, start, 50 * seconds)
}

fn overlay_calls(world: &mut World, service: Service, seconds: u64) {
    for call in 0..CALLS {
        world.attach(HostId(LINKS), 5_000 + call, VoiceSink::default()).expect("a free port");
        world.attach(HostId(0), 0, source(call, service, seconds)).expect("a session");
    }
}

fn plain_calls(world: &mut World, model: &LinkModel, seconds: u64) {
    let (a, b) = world.plain_path(model.clone(), model.clone(), None).expect("a valid model");
    for call in 0..CALLS {
        let port = 5_000 + call;
        world.attach_plain(b, port, VoiceSink::default()).expect("a free port");
        world
            .attach_plain(a, port, source(call, Service::BestEffort, seconds))
            .expect("a free port");
    }
}
