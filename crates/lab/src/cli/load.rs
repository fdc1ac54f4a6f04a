//! The command `trunkline-lab load`.

use serde_json::json;
use std::path::PathBuf;
use trunkline_lab::Error;
use trunkline_lab::phones::load::{Measured, Plan, SYSTEMS, System, measure};
use trunkline_lab::phones::{self, missing};

/// Programs that every load of calls needs.
const PROGRAMS: [&str; 2] = ["sipp", "sysctl"];
/// Programs of the peer; without them its rows are left out.
const PEER: [&str; 2] = ["rtpengine", "kamailio"];

/// Have gateways relay many calls at once, and Kamailio with rtpengine for comparison
#[derive(clap::Args, Debug)]
#[command(after_help = "\
sipp runs calls with speech in both directions through each system in turn: routers alone,
one `trunkline node` with [sip] that both phones use, Kamailio with rtpengine in user
space, and two gateways with the overlay between them. Once all calls have begun, another
one sends 200 packets a second, from which the delay is measured. Then 50 calls send
increasingly many packets, in one direction, until one in a thousand is lost; and 50 others
send twice that rate for two seconds, with half of it before and after.

`calls a core` is the number of the first calls that would fill one processor, from the
time of all processes in a row together. rtpengine has no trunks, and none relays packets
for it: its row can be compared with `two, with trunks` as with the others.

Examples:
  sudo trunkline-lab load
  sudo trunkline-lab load --calls 200 --rate 20 --rounds 1 --json

Exit status: 0; 1 if a call failed; 2 if a program is missing, failed, or lacks a
permission: this needs root, sipp, ip and nft (scripts/setup.sh). Without rtpengine or
kamailio, that row is skipped.")]
pub struct Load {
    /// Number of simultaneous calls
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=2_000))]
    calls: u32,
    /// Number of calls that begin per second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    rate: u32,
    /// Number of turns of each system
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Path of the daemon [default: next to this program, or in PATH]
    #[arg(long, value_name = "PATH")]
    trunkline: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `trunkline-lab load` and returns true, as it judges no claims.
pub fn run(args: &Load) -> Result<bool, Error> {
    if let Some(what) = missing(&PROGRAMS) {
        return Err(phones::Error::Missing(what).into());
    }
    let trunkline = phones::find(args.trunkline.as_deref())?;
    let plan = Plan { calls: args.calls, rate: args.rate };
    let mut rows = Vec::new();
    let skipped = missing(&PEER);
    let is_there = |system: &System| *system != System::Rtpengine || skipped.is_none();
    for round in 1..=args.rounds {
        for system in SYSTEMS.into_iter().filter(is_there) {
            errln!("round {round} of {}: {} …", args.rounds, system.name());
            let scratch = tempfile::tempdir()
                .map_err(|source| phones::Error::Io { what: "make a folder".into(), source })?;
            rows.push((system, measure(system, plan, &trunkline, scratch.path())?));
        }
    }
    match args.json {
        true => outln!("{}", serde_json::Value::from_iter(rows.iter().map(|r| row(plan, r)))),
        false => table(plan, &rows),
    }
    if let Some(why) = skipped {
        errln!("rtpengine: skipped: {why}");
    }
    Ok(rows.iter().all(|(_, measured)| measured.failed == 0))
}

fn row(plan: Plan, (system, measured): &(System, Measured)) -> serde_json::Value {
    let cpu = measured.cpu.iter().map(|(name, share)| ((*name).to_owned(), json!(share)));
    let limit = measured.limit;
    json!({
        "system": system.name(),
        "calls": measured.calls,
        "failed": measured.failed,
        "kpps": measured.passed / 1e3,
        "cpu": serde_json::Map::from_iter(cpu),
        "calls_per_core": measured.calls_per_core(plan),
        "way_us": measured.ways.map(|ways| ways.map(|way| way.as_micros() as u64)),
        "lossless_kpps": limit.lossless / 1e3,
        "load_is_limit": limit.is_of_load,
        "lost_before_share": limit.lost_before,
        "overload_kpps": limit.offered / 1e3,
        "overload_passed_share": limit.passed,
        "healed_ms": limit.healed.as_secs_f64() * 1e3,
        "lost_after_share": limit.lost_after,
    })
}

fn table(plan: Plan, rows: &[(System, Measured)]) {
    outln!("{} calls at once, {} a second", plan.calls, plan.rate);
    outln!(
        "                 calls  failed  kpps  delay p50 p99 µs  calls a core  % of a processor"
    );
    for (system, m) in rows {
        let way = |n: usize| m.ways.map_or("–".into(), |ways| ways[n].as_micros().to_string());
        let cpu = m.cpu.iter().map(|(name, share)| format!("{name} {:.0}", share * 100.0));
        let cpu: Vec<String> = cpu.collect();
        outln!(
            "{:<16} {:>5} {:>7} {:>5.1} {:>10} {:>7} {:>13}  {}",
            system.name(),
            m.calls,
            m.failed,
            m.passed / 1e3,
            way(0),
            way(1),
            m.calls_per_core(plan).map_or("–".into(), |calls| format!("{calls:.0}")),
            cpu.join(", "),
        );
    }
    outln!("\none direction of 50 calls: kpps without loss; half of that, twice, half again");
    outln!(
        "                 lossless  offered  passed %  whole after ms  lost before, after 1 s %"
    );
    for (system, Measured { limit, .. }) in rows {
        let more = if limit.is_of_load { ">" } else { "" };
        outln!(
            "{:<16} {:>8} {:>8.0} {:>9.1} {:>15.0} {:>12.2} {:>8.2}",
            system.name(),
            format!("{more}{:.0}", limit.lossless / 1e3),
            limit.offered / 1e3,
            limit.passed * 100.0,
            limit.healed.as_secs_f64() * 1e3,
            limit.lost_before * 100.0,
            limit.lost_after * 100.0,
        );
    }
}
