//! Instructions that a node spends on 10,000 packets, as callgrind counts them. The count does not
//! change on a busy machine, so a change of one in a thousand shows. (It differs between machines:
//! the C library picks a `memcpy` for the processor.)

#[path = "support/chain.rs"]
mod chain;

use std::process::{Command, Stdio};

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

fn main() {
    // Valgrind runs this program again; the nested run must skip the check.
    #[allow(clippy::disallowed_methods, reason = "gungraun's protocol")]
    let nested = std::env::args().any(|arg| arg == "--gungraun-run");
    let missing = ["valgrind", "gungraun-runner"].into_iter().find(|p| !nested && !is_installed(p));
    match missing {
        Some(p) => println!("skipped: instructions per packet: {p} is missing; run `make setup`"),
        None => measured::run(),
    }
}
