//! `trunkline-lab shell`.

use std::path::PathBuf;
use trunkline_lab::scenario::testbed;
use trunkline_lab::{Error, scenario};

/// Run a shell, or any program, at a host of a scenario's network, over the kernel's own TCP
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Makes the hosts, routers and links of a scenario, without daemons, calls or faults, for as
long as the program runs. TRUNKLINE_HOSTS has the addresses of all hosts, and
TRUNKLINE_ENTER what enters each of the others.

Examples:
  trunkline-lab shell my-network.toml paris
  trunkline-lab shell my-network.toml paris -- ping -c 3 10.64.0.2
  In the shell:
    echo \"$TRUNKLINE_HOSTS\"
    nsenter --net=/proc/4711/fd/11 iperf3 -s -D; iperf3 -c 10.64.0.2

Exit status: 0 if the program's was, else 1; 2 if there can be no such network here.")]
pub struct Shell {
    /// The scenario: a .toml file
    file: PathBuf,
    /// The host, by its name
    host: String,
    /// The program and its arguments [default: the shell]
    #[arg(last = true)]
    command: Vec<String>,
    /// The shell, if there is no other program
    #[arg(long, env = "SHELL", default_value = "sh")]
    shell: String,
    /// What everything random follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The daemon's program [default: beside this one, or in PATH]
    #[arg(long, value_name = "PATH")]
    trunkline: Option<PathBuf>,
}

/// Runs it; whether the program ended well.
pub fn run(args: &Shell) -> Result<bool, Error> {
    let scenario = scenario::load(&args.file)?;
    let command = match &args.command[..] {
        [] => vec![args.shell.clone()],
        command => command.to_vec(),
    };
    testbed::shell(&scenario, &args.host, &command, (args.trunkline.as_deref(), args.seed))
        .map_err(|why| Error::Testbed { what: args.file.display().to_string(), why })
}
