//! The command `trunkline-lab shell`.

use std::path::PathBuf;
use trunkline_lab::scenario::testbed;
use trunkline_lab::{Error, scenario};

/// Run a shell, or any program, on a host of a scenario's network, with the kernel's TCP
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Creates the hosts, routers and links of a scenario, without daemons, calls or faults, for as
long as the program runs. TRUNKLINE_HOSTS has the addresses of all hosts, and
TRUNKLINE_ENTER the commands that enter the other hosts.

Examples:
  trunkline-lab shell my-network.toml paris
  trunkline-lab shell my-network.toml paris -- ping -c 3 10.64.0.2
  In the shell:
    echo \"$TRUNKLINE_HOSTS\"
    nsenter --net=/proc/4711/fd/11 iperf3 -s -D; iperf3 -c 10.64.0.2

Exit status: 0 if the program's was, else 1; 2 if the network can't be created here.")]
pub struct Shell {
    /// Scenario: a .toml file
    file: PathBuf,
    /// Name of the host
    host: String,
    /// Program and its arguments [default: the shell]
    #[arg(last = true)]
    command: Vec<String>,
    /// Shell to run if no program is given
    #[arg(long, env = "SHELL", default_value = "sh")]
    shell: String,
    /// Seed of all random numbers, from 0 to 18446744073709551615
    #[arg(long, default_value_t = 1, value_parser = super::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Path of the daemon [default: next to this program, or in PATH]
    #[arg(long, value_name = "PATH")]
    trunkline: Option<PathBuf>,
}

/// Runs the program. Returns whether it ended successfully.
pub fn run(args: &Shell) -> Result<bool, Error> {
    let scenario = scenario::load(&args.file)?;
    let command = match &args.command[..] {
        [] => vec![args.shell.clone()],
        command => command.to_vec(),
    };
    testbed::shell(&scenario, &args.host, &command, (args.trunkline.as_deref(), args.seed))
        .map_err(|why| Error::Testbed { what: args.file.display().to_string(), why })
}
