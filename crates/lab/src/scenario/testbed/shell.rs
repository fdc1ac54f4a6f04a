//! Runs a program of the user's choice in the network of a scenario.

use super::emulator::Emulator;
use super::folder::Folder;
use super::{Error, cannot, config, process};
use crate::scenario::Scenario;
use std::path::Path;

/// Runs `command` on the host named `host`, without daemons; returns whether it succeeded.
/// `trunkline` is the daemon's program, as for [`Testbed::new`](super::Testbed::new).
///
/// # Errors
///
/// If there is no such host, the network can't be set up here, or the command can't be run.
pub fn shell(
    scenario: &Scenario,
    host: &str,
    command: &[String],
    (trunkline, seed): (Option<&Path>, u64),
) -> Result<bool, Error> {
    config::check_network(scenario)?;
    let Some(n) = scenario.hosts.iter().position(|h| h.name == host) else {
        let known: Vec<&str> = scenario.hosts.iter().map(|h| h.name.as_str()).collect();
        let what = format!("there is no [[host]] \"{host}\": there are {}", known.join(", "));
        return Err(Error::Unsupported(what));
    };
    let trunkline = process::find_default(trunkline)?;
    let dir = Folder::new()?;
    let emulator = Emulator::start(&trunkline, scenario, seed, dir.path())?;
    let each = |line: &dyn Fn(usize, &str) -> String| {
        let hosts = scenario.hosts.iter().enumerate();
        hosts.map(|(n, host)| line(n, &host.name)).collect::<Vec<_>>().join("\n")
    };
    let addresses = each(&|n, name| {
        let (v4, v6) = emulator.addresses(n);
        format!("{name} {v4} {v6}")
    });
    // Only the network differs: a program on a host is already in the shared user namespace.
    let entrances = each(&|n, name| {
        let net = emulator.entrance(n).iter().find(|word| word.starts_with("--net="));
        format!("{name} nsenter {}", net.map_or("", String::as_str))
    });
    let status = emulator
        .bound(n, &command[0])
        .args(&command[1..])
        .env("TRUNKLINE_HOSTS", addresses)
        .env("TRUNKLINE_ENTER", entrances)
        .status()
        .map_err(cannot(format!("run {}", command[0])))?;
    emulator.finish()?;
    Ok(status.success())
}
