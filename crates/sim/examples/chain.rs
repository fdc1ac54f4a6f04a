//! Calls over a chain of nodes with a lossy link in the middle, over each of the overlay's services
//! and, for comparison, as plain UDP over one path of the same delay and loss.
//!
//! ```text
//! cargo run --release -p trunkline-sim --example chain -- \
//!     --hops 5 --loss 5% --burst 25% --delay 10ms --calls 10 --seconds 60
//! ```

use clap::Parser;
use rand::RngExt;
use serde::Serialize;
use std::error::Error;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Call, CallOutcome, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World};

/// Send calls over a chain of nodes with a lossy link in the middle.
#[derive(Parser)]
struct Args {
    /// Number of links from the first node to the last.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=30))]
    hops: u32,
    /// Share of packets that the middle link loses in each direction.
    #[arg(long, default_value = "5%", value_parser = share)]
    loss: f64,
    /// P(lost | previous lost); without it, losses are independent.
    #[arg(long, value_parser = share)]
    burst: Option<f64>,
    /// Measure bursts in time instead of packets; --burst then applies to packets this far apart.
    #[arg(long, value_parser = duration)]
    spacing: Option<Duration>,
    /// One-way delay of each link.
    #[arg(long, default_value = "10ms", value_parser = duration)]
    delay: Duration,
    /// Number of calls over each service.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    calls: u32,
    /// Duration of the calls, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate each service in a separate world. In a shared world, the packets of all services
    /// advance a loss process that works per packet.
    #[arg(long)]
    apart: bool,
    /// Capture traffic at both ends of the lossy link and of the plain path to this folder, as
    /// pcapng files for Wireshark.
    #[arg(long, value_name = "FOLDER", conflicts_with = "apart")]
    capture: Option<PathBuf>,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

/// Delay after which a packet arrives too late.
const LATE_AFTER: Duration = Duration::from_millis(100);
/// Start of the calls; before, nodes find each other and measure round trips.
const START: Time = Time::from_millis(2_000);
const SPACING_MS: u64 = 20;

#[derive(Serialize)]
struct Report {
    seed: u64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    service: &'static str,
    sent: u64,
    lost: u64,
    late: u64,
    recovered: u64,
    missed_percent: f64,
    missed_interval: [f64; 2],
    delay_ms: Option<Delay>,
}

#[derive(Serialize)]
struct Delay {
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Udp,
    Overlay(Service),
}

const ALL: [Over; 3] =
    [Over::Udp, Over::Overlay(Service::BestEffort), Over::Overlay(Service::RealTime)];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let runs = if args.apart {
        let each: Result<Vec<_>, _> = ALL.iter().map(|&one| simulate(args, &[one])).collect();
        each?.concat()
    } else {
        simulate(args, &ALL)?
    };
    let runs = runs.iter().map(|(over, outcome)| summary(*over, outcome)).collect();
    let report = Report { seed: args.seed, runs };
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("numbers and names are JSON"));
    } else {
        print(&report);
    }
    Ok(())
}

fn simulate(args: &Args, over: &[Over]) -> Result<Vec<(Over, CallOutcome)>, Box<dyn Error>> {
    let loss = match (args.burst, args.spacing) {
        (None, _) => Loss::Bernoulli { p: args.loss },
        (Some(b), None) => Loss::Burst { p: args.loss, b, chain: Chain::PerPacket },
        (Some(b), Some(spacing)) => {
            Loss::Burst { p: args.loss, b, chain: Chain::Continuous { spacing } }
        }
    };
    let middle = args.hops / 2;
    let link = |k| LinkModel {
        delay: args.delay,
        loss: if k == middle { loss.clone() } else { Loss::None },
        ..LinkModel::default()
    };
    let mut world = Topology::chain((0..args.hops).map(link)).build(args.seed)?;
    let whole = LinkModel { delay: args.delay * args.hops, loss, ..LinkModel::default() };
    let path = world.plain_path(whole.clone(), whole, Some(WireId(middle)))?;

    if let Some(folder) = &args.capture {
        capture(&mut world, WireId(middle), folder, "link")?;
        capture(&mut world, path.0.wire(), folder, "path")?;
    }

    let mut calls: Vec<(Over, Vec<Call>)> = Vec::new();
    for &one in over {
        // A service has the same phase whichever others run in this world.
        let stream = ALL.iter().position(|o| *o == one).unwrap_or(0) as u64;
        let offset = trunkline_base::rng(args.seed, stream).random_range(0..SPACING_MS * 1_000_000);
        let mut made = Vec::new();
        for k in 0..args.calls {
            let start = START + Duration::from_millis(2) * k + Duration::from_nanos(offset);
            let count = u64::from(args.seconds) * 1_000 / SPACING_MS;
            let port = 5_000 + k as u16 + if one == ALL[2] { 10_000 } else { 0 };
            let (to, sink) = (NodeId(args.hops + 1), VoiceSink::default());
            let source = |service| VoiceSource::new(to, port, service, start, count);
            made.push(match one {
                Over::Udp => (
                    world.attach_plain(path.0, port, source(Service::BestEffort))?,
                    world.attach_plain(path.1, port, sink)?,
                ),
                Over::Overlay(service) => (
                    world.attach(HostId(0), 0, source(service))?,
                    world.attach(HostId(args.hops), port, sink)?,
                ),
            });
        }
        calls.push((one, made));
    }
    let longest = Duration::from_secs(u64::from(args.seconds))
        + Duration::from_millis(2) * args.calls
        + args.delay * args.hops
        + Duration::from_secs(2);
    world.run_until(START + longest);
    world.finish_captures()?;
    Ok(calls.into_iter().map(|(one, c)| (one, CallOutcome::of(&world, &c, LATE_AFTER))).collect())
}

/// Captures both ends of a wire to NAME-a.pcapng and NAME-b.pcapng in `folder`.
#[allow(clippy::disallowed_types, reason = "an example is a program")]
fn capture(
    world: &mut World,
    wire: WireId,
    folder: &Path,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    for (end, which) in [(WireEnd::First, "a"), (WireEnd::Second, "b")] {
        let path = folder.join(format!("{name}-{which}.pcapng"));
        let file = std::fs::File::create(&path)
            .map_err(|why| format!("cannot create {}: {why}", path.display()))?;
        world.capture(wire, end, BufWriter::new(file))?;
    }
    Ok(())
}

fn summary(over: Over, outcome: &CallOutcome) -> Run {
    let ms = |share| outcome.delay(share).map(|d| d.as_nanos() as f64 / 1e6);
    let percent = |share: f64| (share * 1e8).round() / 1e6;
    let delay_ms = ms(0.5).zip(ms(0.99)).zip(ms(1.0));
    Run {
        service: match over {
            Over::Udp => "udp",
            Over::Overlay(service) => service.name(),
        },
        sent: outcome.sent,
        lost: outcome.lost,
        late: outcome.late,
        recovered: outcome.recovered,
        missed_percent: percent(outcome.missed.estimate),
        missed_interval: [outcome.missed.interval.0, outcome.missed.interval.1].map(percent),
        delay_ms: delay_ms.map(|((p50, p99), max)| Delay { p50, p99, max }),
    }
}

fn print(report: &Report) {
    println!("seed {}", report.seed);
    println!(
        "{:<12}{:>9}{:>8}{:>7}{:>11}{:>10} {:>20}{:>9}{:>9}{:>9}",
        "service",
        "sent",
        "lost",
        "late",
        "recovered",
        "missed",
        "95 % interval",
        "p50",
        "p99",
        "max"
    );
    for run in &report.runs {
        let [low, high] = run.missed_interval;
        print!(
            "{:<12}{:>9}{:>8}{:>7}{:>11}{:>8.3} % {:>20}",
            run.service,
            run.sent,
            run.lost,
            run.late,
            run.recovered,
            run.missed_percent,
            format!("{low:.3} to {high:.3} %")
        );
        match &run.delay_ms {
            Some(d) => println!("{:>6.1} ms{:>6.1} ms{:>6.1} ms", d.p50, d.p99, d.max),
            None => println!("  nothing arrived"),
        }
    }
}

/// Parses a share such as "5%" or "0.05".
fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |n| (n, 100.0));
    match number.trim().parse::<f64>() {
        Ok(x) if (0.0..=1.0).contains(&(x / scale)) => Ok(x / scale),
        _ => Err("expected a share such as 5% or 0.05".into()),
    }
}

/// Parses a duration such as "10ms", "2.5ms" or "1s".
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    units
        .iter()
        .find_map(|(unit, scale)| {
            let x: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            Duration::try_from_secs_f64(x * scale).ok()
        })
        .ok_or_else(|| "expected a duration such as 10ms, 500us or 1s".into())
}
