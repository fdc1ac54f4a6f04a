//! Instructions that a node spends on 10,000 packets, as callgrind counts them. The count does not
//! change on a busy machine, so a change of one in a thousand shows. (It differs between machines:
//! the C library picks a `memcpy` for the processor.)

#[path = "support/chain.rs"]
mod chain;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "gungraun's macros")]
mod measured {
    use super::chain::{BATCH, Case, Chain, Role};
    use gungraun::prelude::*;
    use gungraun::{Callgrind, EntryPoint};
    use trunkline_overlay::wire::Service::BestEffort;

    const RELAY: Case = Case::RELAY;
    const SEALED: Case = Case { sealed: true, ..RELAY };
    const LOSSY: Case = Case { loss: 0.05, ..RELAY };
    const BEST_EFFORT: Case = Case { service: BestEffort, ..RELAY };
    const SOURCES: Case = Case { sources: 1_000, ..RELAY };
    const SOURCES_BEST_EFFORT: Case = Case { service: BestEffort, ..SOURCES };
    const BUSY: Case = Case { busy: true, ..RELAY };
    const BUSY_BEST_EFFORT: Case = Case { service: BestEffort, ..BUSY };
    const BUSY_SOURCES: Case = Case { busy: true, ..SOURCES };
    const BUSY_SOURCES_BEST_EFFORT: Case = Case { service: BestEffort, ..BUSY_SOURCES };
    const SHUFFLED: Case = Case { shuffled: true, ..BUSY };
    const SHUFFLED_SOURCES: Case = Case { shuffled: true, ..BUSY_SOURCES };
    const DESTINATION: Case = Case { role: Role::Destination, ..RELAY };
    const ORIGIN: Case = Case { role: Role::Origin, ..RELAY };

    #[library_benchmark(setup = Chain::new)]
    #[bench::relay_real_time(RELAY)]
    #[bench::relay_real_time_5_percent_loss(LOSSY)]
    #[bench::relay_real_time_sealed(SEALED)]
    #[bench::relay_best_effort(BEST_EFFORT)]
    #[bench::relay_real_time_1_000_sources(SOURCES)]
    #[bench::relay_best_effort_1_000_sources(SOURCES_BEST_EFFORT)]
    #[bench::relay_real_time_busy(BUSY)]
    #[bench::relay_real_time_busy_1_000_sources(BUSY_SOURCES)]
    #[bench::relay_real_time_shuffled(SHUFFLED)]
    #[bench::relay_real_time_shuffled_1_000_sources(SHUFFLED_SOURCES)]
    #[bench::relay_best_effort_busy(BUSY_BEST_EFFORT)]
    #[bench::relay_best_effort_busy_1_000_sources(BUSY_SOURCES_BEST_EFFORT)]
    #[bench::deliver(DESTINATION)]
    #[bench::originate(ORIGIN)]
    fn per_10_000_packets(mut chain: Chain) -> Chain {
        let mut left = 10_000;
        while left > 0 {
            let packets = left.min(BATCH);
            chain.prepare(packets);
            chain.run();
            left -= packets;
        }
        chain
    }

    library_benchmark_group!(name = node, benchmarks = per_10_000_packets);
    // Counts only inside `run`, without the work of the neighbours.
    main!(
        config = LibraryBenchmarkConfig::default().tool(
            Callgrind::with_args(["--cache-sim=no"])
                .entry_point(EntryPoint::Custom("*::Chain::run".into()))
        );
        library_benchmark_groups = node
    );

    pub fn run() {
        main();
    }
}

fn is_installed(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Cases that are also measured with a thousand sources.
const WITH_SOURCES: [&str; 4] =
    ["relay_real_time", "relay_best_effort", "relay_real_time_busy", "relay_best_effort_busy"];

/// Most that a packet may cost where there are a thousand sources, as a multiple of its cost where
/// there is one.
const MOST: f64 = 1.05;

/// Folder with a folder of counts for each case.
fn counts() -> Option<PathBuf> {
    #[allow(clippy::disallowed_methods, reason = "where gungraun writes to")]
    let own = std::env::var_os("GUNGRAUN_HOME").map(PathBuf::from);
    let of_cargo = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("gungraun"));
    let package = own.or_else(of_cargo)?.join(env!("CARGO_PKG_NAME"));
    Some(package.join("instructions/measured/node"))
}

/// Instructions that were counted in this case.
fn count(counts: &Path, case: &str) -> Option<f64> {
    let name = format!("per_10_000_packets.{case}");
    let text = std::fs::read_to_string(counts.join(&name).join(format!("callgrind.{name}.out")));
    text.ok()?.lines().find_map(|line| line.strip_prefix("summary: ")?.parse().ok())
}

/// Compares the cost of a packet of one of a thousand sources with that of a packet of a single one.
fn compare() -> ExitCode {
    let mut has_failed = false;
    for case in WITH_SOURCES {
        let of = |case: &str| count(&counts()?, case);
        let Some((one, many)) = of(case).zip(of(&format!("{case}_1_000_sources"))) else {
            eprintln!("{case}: gungraun left no count of instructions to compare");
            has_failed = true;
            continue;
        };
        let ratio = many / one;
        has_failed |= ratio > MOST;
        let verdict = if ratio > MOST { "too many" } else { "in bounds" };
        println!("{case}: {ratio:.3} times as many instructions with 1,000 sources: {verdict}");
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn main() -> ExitCode {
    // Valgrind runs this program again; the nested run must skip the check.
    #[allow(clippy::disallowed_methods, reason = "gungraun's protocol")]
    let (nested, is_whole) = {
        let nested = std::env::args().any(|arg| arg == "--gungraun-run");
        (nested, std::env::args().skip(1).all(|arg| arg.starts_with("--")))
    };
    let missing = ["valgrind", "gungraun-runner"].into_iter().find(|p| !nested && !is_installed(p));
    if let Some(p) = missing {
        println!("skipped: instructions per packet: {p} is missing; run `make setup`");
        return ExitCode::SUCCESS;
    }
    measured::run();
    // A filter leaves cases out.
    if is_whole && !nested { compare() } else { ExitCode::SUCCESS }
}
