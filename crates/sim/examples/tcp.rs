//! Goodput of the simulated TCP on single links, in Mbit/s of data, for every rate, round-trip time
//! and loss of a grid, next to the rate less the headers' share.
//!
//! ```text
//! cargo run --release -p trunkline-sim --example tcp -- --profile linux-6 --seconds 60
//! ```
//!
//! The queue in front of the link has room for its bandwidth-delay product, and for at least 20
//! packets; acknowledgments return over a lossless link of the same rate.

use clap::Parser;
use std::error::Error;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_sim::World;
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink, Stats};

/// Measure a TCP's goodput over a grid of links.
#[derive(Parser)]
struct Args {
    /// TCP profile: ns2-reno (without its window limit), freebsd-5.4, linux-2.4 or linux-6.
    #[arg(long, default_value = "linux-6")]
    profile: String,
    /// Link rates, in Mbit/s.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    rates: Vec<u64>,
    /// Round-trip times without queueing, in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 50, 200])]
    rtts: Vec<u64>,
    /// Packet loss rates, in percent.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.1, 1.0])]
    losses: Vec<f64>,
    /// Time that the source sends, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Worlds per point. The mean goodput is shown; the other columns are from the last world.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let found = Profile::all().into_iter().find(|p| p.name == args.profile);
    let profile = found.ok_or_else(|| format!("unknown profile {}", args.profile))?;
    let profile = Profile { window_limit: None, ..profile };
    println!("rate  RTT   loss  goodput  of rate  segments   lost rexmit  fast  RTO  TLP  undone");
    for &mbits in &args.rates {
        for &rtt in &args.rtts {
            for &loss in &args.losses {
                let mut goodput = 0.0;
                let (mut stats, mut gone) = (Stats::default(), 0);
                for seed in 1..=args.seeds {
                    let (bytes, missing, of) =
                        run(&profile, (mbits, rtt, loss), args.seconds, seed)?;
                    let bits = bytes as f64 * 8e-6 / args.seconds as f64;
                    goodput += bits / args.seeds as f64;
                    (stats, gone) = (of, missing);
                }
                let full = profile.full_segment(IpVersion::V6) as f64 / profile.mtu as f64;
                println!(
                    "{mbits:4} {rtt:4} {loss:5}% {goodput:8.3} {:7.1}% {:9} {gone:6} {:6} {:5} {:4} {:4} {:7}",
                    100.0 * goodput / (mbits as f64 * full),
                    stats.segments,
                    stats.retransmitted,
                    stats.fast_recoveries,
                    stats.rtos,
                    stats.probes,
                    stats.undone,
                );
            }
        }
    }
    Ok(())
}

/// Runs one point. Returns the bytes read in `seconds`, the number of packets that did not arrive,
/// and the sender's statistics.
fn run(
    profile: &Profile,
    (mbits, rtt, loss): (u64, u64, f64),
    seconds: u64,
    seed: u64,
) -> Result<(u64, u64, Stats), Box<dyn Error>> {
    let mut world = World::new(IpVersion::V6, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let rate = mbits * 1_000_000;
    let product = (rate * rtt / 8_000) as usize / profile.mtu;
    let back = LinkModel {
        rate: Some(Bitrate::from_bps(rate)),
        delay: Duration::from_micros(rtt * 500),
        queue: Queue::Packets(product.max(20)),
        ..LinkModel::default()
    };
    let loss = if loss > 0.0 { Loss::Bernoulli { p: loss / 100.0 } } else { Loss::None };
    let wire = world.cable(a, b, LinkModel { loss, ..back.clone() }, back)?;
    let to = world.endpoint(b, 80);
    let sink = world.bind(b, Protocol::TCP, 80, Sink::new(profile.clone(), 80, 7))?;
    let end = Time::from_millis(1_000 * seconds);
    let bulk = Bulk::new(profile.clone(), 4_000, to, 1, (Time::ZERO, end), u64::MAX);
    let bulk = world.bind(a, Protocol::TCP, 4_000, bulk)?;
    world.run_until(end);
    let [there, _] = world.edge_ledgers(wire);
    let missing = there.lost.packets + there.queue_dropped.packets;
    Ok((world.agent(sink).bytes(), missing, world.agent(bulk).stats()))
}
