//! `trunkline bench`: cost of the packet thread on this machine, compared with a lean relay that
//! only uses the kernel, in one run.
//!
//! The load keeps a bounded number of packets in flight and waits for them to come back, so that
//! the relay is always busy and loses nothing. Load and relay are each pinned to a processor.
//! Rounds of the contestants alternate, since timings on shared machines drift, and medians are
//! compared.

mod attack;
mod flows;
mod idle;
mod load;
mod markdown;
mod sealed;
mod steady;
mod trunk;
mod under_test;

use crate::datapath::mmsg::BATCH;
use crate::units::Span;
use serde::Serialize;
use std::io;
use under_test::{Contestant, UnderTest};

/// Measure this machine's forwarding against a lean relay
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  trunkline bench
  trunkline bench --rounds 9 --json
  trunkline bench attack
  trunkline bench idle
  trunkline bench flows
  trunkline bench trunk

Needs two processors: one for the load, one for the contestant. `kpps` is
thousands of packets a second through one thread; `cpu` is that thread's time
per packet, which is valid even if the load is the bottleneck, as it is where
packets are sent one by one. The lean relay sends by a connected socket, without
control messages."
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Rounds of each contestant
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Duration of each round
    #[arg(long, default_value = "1 s")]
    round: Span,
    /// Flows in the steady-state run
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    flows: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    Attack(attack::Args),
    Idle(idle::Args),
    Flows(flows::Args),
    Trunk(trunk::Args),
    #[command(hide = true)]
    IdleNeighbours(idle::NeighbourArgs),
}

/// Reason why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The machine has only this many processors, which is too few.
    #[error("a benchmark needs two processors, and this process may use {0}")]
    Processors(usize),
    /// The node did not behave as expected.
    #[error("{0}")]
    Broken(&'static str),
}

fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// Result of a contestant: medians over the rounds.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// Length of each UDP payload, in bytes.
    bytes: usize,
    kpps: f64,
    /// Processor time of the measured thread per packet, ns.
    cpu_ns: f64,
    /// Share of its processor that the thread used under load.
    busy: f64,
    /// Ratio to the lean relay that forwards packets of the same size.
    kpps_ratio: f64,
    cpu_ratio: f64,
    /// Processor time per packet, ns, for packets that arrive one by one instead of in trains, and
    /// the ratio of that.
    single_cpu_ns: f64,
    single_cpu_ratio: f64,
    /// Round-trip time of single packets, at 2,000 per second, µs.
    latency_us: Latency,
}

#[derive(Serialize, Clone, Copy)]
struct Latency {
    p50: f64,
    p99: f64,
    /// Excess over the lean relay.
    added_p50: f64,
    added_p99: f64,
}

#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Share of the rounds for which load and contestants waited for a processor.
    waited: f64,
    steady: steady::Report,
    envelope_bytes: usize,
    frame_bytes: usize,
}

/// Runs `trunkline bench` and prints its result.
pub fn run(args: &Args) -> Result<(), Error> {
    // Links that come up and go down are expected here and are not logged.
    crate::log::set(Some("error"));
    if let Some(What::IdleNeighbours(args)) = &args.what {
        return idle::neighbours(args);
    }
    if let Some(What::Flows(args)) = &args.what {
        return flows::run(args);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        return Err(Error::Processors(processors));
    }
    under_test::stay_on(0).map_err(cannot("stay on processor 0"))?;
    match &args.what {
        Some(What::Attack(args)) => return attack::run(args),
        Some(What::Idle(args)) => return idle::run(args),
        Some(What::Trunk(args)) => return trunk::run(args),
        Some(What::IdleNeighbours(_) | What::Flows(_)) | None => {}
    }
    let (rows, waited) = contest(args)?;
    let steady = steady::run(args.flows)?;
    let report = Report {
        rows,
        waited,
        steady,
        envelope_bytes: trunkline_overlay::wire::ENVELOPE_OVERHEAD,
        frame_bytes: trunkline_overlay::wire::DATA_HEADER,
    };
    match (args.json, args.markdown) {
        (true, _) => print_json(&report),
        (_, true) => markdown(args, &report),
        _ => print(&report),
    }
    Ok(())
}

fn print_json(report: &impl Serialize) {
    // Numbers and fixed names always serialise.
    outln!("{}", serde_json::to_string_pretty(report).unwrap_or_default());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Results of one round of one contestant.
struct Round {
    trains: load::Throughput,
    singles: load::Throughput,
    latency: load::Latency,
}

/// Rows of all contestants, and the share of the rounds for which they and the load waited for a
/// processor.
fn contest(args: &Args) -> Result<(Vec<Row>, f64), Error> {
    let mut rounds: Vec<Vec<Round>> = Contestant::ALL.iter().map(|_| Vec::new()).collect();
    let bar = indicatif::ProgressBar::new(u64::from(args.rounds) * Contestant::ALL.len() as u64);
    for _ in 0..args.rounds {
        for (contestant, results) in Contestant::ALL.into_iter().zip(&mut rounds) {
            let under_test = UnderTest::start(contestant)?;
            let mut load = load::Load::new(&under_test, contestant, load::PAYLOAD)?;
            let trains = load.saturate(args.round.0, BATCH)?;
            let singles = load.saturate(args.round.0 / 2, 1)?;
            let latency = load.ping(args.round.0 / 2)?;
            under_test.stop()?;
            results.push(Round { trains, singles, latency });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let of = |i: usize, pick: &dyn Fn(&Round) -> f64| median(rounds[i].iter().map(pick).collect());
    // Ratios are taken within a round, since both ran under the same conditions.
    let ratio = |i: usize, pick: &dyn Fn(&Round) -> f64| {
        median(rounds[i].iter().zip(&rounds[0]).map(|(a, b)| pick(a) / pick(b)).collect())
    };
    let added = |i: usize, pick: &dyn Fn(&Round) -> f64| {
        median(rounds[i].iter().zip(&rounds[0]).map(|(a, b)| pick(a) - pick(b)).collect())
    };
    let rows = Contestant::ALL.into_iter().enumerate().map(|(i, contestant)| Row {
        name: contestant.name(),
        bytes: load::ENVELOPE,
        kpps: of(i, &|r| r.trains.pps / 1e3),
        cpu_ns: of(i, &|r| r.trains.cpu_ns),
        busy: of(i, &|r| r.trains.busy),
        kpps_ratio: ratio(i, &|r| r.trains.pps),
        cpu_ratio: ratio(i, &|r| r.trains.cpu_ns),
        single_cpu_ns: of(i, &|r| r.singles.cpu_ns),
        single_cpu_ratio: ratio(i, &|r| r.singles.cpu_ns),
        latency_us: Latency {
            p50: of(i, &|r| r.latency.p50),
            p99: of(i, &|r| r.latency.p99),
            added_p50: added(i, &|r| r.latency.p50),
            added_p99: added(i, &|r| r.latency.p99),
        },
    });
    let waited = rounds.iter().flatten().map(|r| r.trains.waited.max(r.singles.waited)).collect();
    Ok((rows.collect(), median(waited)))
}

/// Share of the rounds spent waiting for a processor from which on results mean little.
const TOO_BUSY: f64 = 0.02;

/// Warning if something else used the processors.
fn busy_line(report: &Report) -> Option<String> {
    (report.waited > TOO_BUSY).then(|| {
        format!(
            "This machine is too busy to judge by this: load and relay waited for a processor {:.0} % \
             of the time. Stop what else runs, and repeat it.",
            100.0 * report.waited
        )
    })
}

fn markdown(args: &Args, report: &Report) {
    let row = |r: &Row| {
        let l = r.latency_us;
        vec![
            r.name.to_owned(),
            r.bytes.to_string(),
            format!("{:.0}", r.kpps),
            format!("{:.0}", r.cpu_ns),
            format!("{:.2}", r.kpps_ratio),
            format!("{:.2}", r.cpu_ratio),
            format!("{:.0}", r.single_cpu_ns),
            format!("{:.2}", r.single_cpu_ratio),
            format!("{:.1}", l.p50),
            format!("{:.1}", l.p99),
            format!("{:.1}", l.added_p50),
            format!("{:.1}", l.added_p99),
        ]
    };
    markdown::Table {
        title: "One relay on one core, against a lean relay",
        command: format!("--rounds {}", args.rounds),
        columns: &[
            "relay",
            "UDP payload, bytes",
            "1,000 packets/s",
            "processor, ns/packet",
            "rate ÷ lean",
            "processor ÷ lean",
            "one by one: processor, ns/packet",
            "one by one ÷ lean",
            "p50, µs",
            "p99, µs",
            "added to p50, µs",
            "added to p99, µs",
        ],
        rows: report.rows.iter().map(row).collect(),
        notes: vec![
            "The lean relay calls `recvmmsg` and, by a connected socket, `sendmmsg`, and does nothing \
             else. Packets come in trains of 64, or one by one. Each value is the median of its \
             rounds, each ratio that of the ratios within a round."
                .to_owned(),
            format!("{}.", steady_line(&report.steady)),
        ]
        .into_iter()
        .chain(busy_line(report))
        .collect(),
    }
    .print();
}

/// The result line of the run with many flows and loss.
fn steady_line(s: &steady::Report) -> String {
    format!(
        "{} flows, {} % loss before and after the node, {:.1} s: {} packets in, {} repeats and \
         {} requests sent, {} allocations: {} per packet",
        s.flows,
        s.loss_percent,
        s.seconds,
        s.packets,
        s.repeats,
        s.requests,
        s.allocations,
        s.allocations as f64 / s.packets as f64
    )
}

fn print(report: &Report) {
    outln!(
        "{:<28} {:>6} {:>7} {:>8} {:>6} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}",
        "one thread, one core",
        "bytes",
        "kpps",
        "cpu ns",
        "busy",
        "kpps ratio",
        "cpu ratio",
        "single ns",
        "ratio",
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "+p99 µs"
    );
    for r in &report.rows {
        let l = r.latency_us;
        outln!(
            "{:<28} {:>6} {:>7.0} {:>8.0} {:>5.0}% {:>10.2} {:>9.2} {:>9.0} {:>9.2} {:>8.1} {:>8.1} \
             {:>9.1} {:>9.1}",
            r.name,
            r.bytes,
            r.kpps,
            r.cpu_ns,
            r.busy * 100.0,
            r.kpps_ratio,
            r.cpu_ratio,
            r.single_cpu_ns,
            r.single_cpu_ratio,
            l.p50,
            l.p99,
            l.added_p50,
            l.added_p99
        );
    }
    if let Some(line) = busy_line(report) {
        outln!("\n{line}");
    }
    outln!("\n{}", steady_line(&report.steady));
    outln!(
        "A packet costs {} bytes around it: envelope {}, frame {}; and IP and UDP.",
        report.envelope_bytes + report.frame_bytes,
        report.envelope_bytes,
        report.frame_bytes
    );
}
