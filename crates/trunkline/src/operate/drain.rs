//! The `reload` and `drain` commands.

use super::client::Client;
use super::protocol::{Reloaded, Request, Status};
use super::table::{count, span};
use super::{DrainArgs, Error, ReloadArgs, print_json};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Runs the `trunkline reload` command.
pub fn reload(args: &ReloadArgs) -> Result<(), Error> {
    let done: Reloaded = args.at.connect()?.ask(&Request::Reload {})?;
    if args.json {
        return print_json(&done);
    }
    for warning in &done.warnings {
        errln!("trunkline: warning: {warning}");
    }
    let list = |keys: &[String]| keys.join("; ");
    if done.applied.is_empty() && done.restart.is_empty() {
        outln!("{}: nothing has changed", done.config);
        return Ok(());
    }
    if !done.applied.is_empty() {
        outln!("{}: applied: {}", done.config, list(&done.applied));
    }
    if !done.restart.is_empty() {
        outln!("{}: needs a restart: {}", done.config, list(&done.restart));
    }
    Ok(())
}

/// Result of the `drain` command.
#[derive(Serialize)]
struct Drained {
    draining: bool,
    /// Whether no packet has passed during the quiet time; absent if it was not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    empty: Option<bool>,
    stopped: bool,
    sessions: u64,
    waited_s: f64,
}

/// Runs the `trunkline drain` command.
pub fn drain(args: &DrainArgs) -> Result<(), Error> {
    let mut client = args.at.connect()?;
    let begun = Instant::now();
    let mut status: Status = client.ask(&Request::Drain { on: !args.undo })?;
    let mut empty = false;
    if !args.undo && !args.now {
        if !args.json {
            outln!(
                "{} takes no more {}; waiting until {}no packet has passed for {}",
                status.name,
                taken(&status),
                if status.gateway { "all calls are over and " } else { "" },
                span(args.quiet.0.as_secs_f64())
            );
        }
        empty = wait(args, &mut client, &mut status, begun)?;
    }
    let stopped = args.stop && (empty || args.now);
    if stopped {
        status = client.ask(&Request::Stop {})?;
        wait_for_end(status.pid);
    }
    let result = Drained {
        draining: status.draining,
        empty: (!args.undo && !args.now).then_some(empty),
        stopped,
        sessions: status.sessions,
        waited_s: begun.elapsed().as_secs_f64(),
    };
    if args.json {
        print_json(&result)?;
    } else {
        outln!("{}", line(args, &status, &result));
    }
    if empty || args.undo || args.now {
        return Ok(());
    }
    let attached = |n| format!(", {} attached", count(n, "application"));
    let calls = |n| format!(", {}", count(n as u64, "call"));
    Err(Error::Failed(format!(
        "packets still pass after {}{}{}: {} stays drained; run it again to wait longer, or \
         `drain --undo`, or `drain --now --stop`",
        span(args.timeout.0.as_secs_f64()),
        Some(status.sessions).filter(|n| *n > 0).map(attached).unwrap_or_default(),
        status.calls.filter(|n| *n > 0).map(calls).unwrap_or_default(),
        status.name
    )))
}

/// Waits until a process on this host has ended, up to the time that a node may take: its successor
/// needs the same addresses.
fn wait_for_end(pid: u32) {
    const LONGEST: Duration = Duration::from_secs(15);
    // proc(5): the state follows the process's name; a zombie, which only its parent has yet to
    // reap, has ended.
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let until = Instant::now() + LONGEST;
    while runs() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn line(args: &DrainArgs, status: &Status, result: &Drained) -> String {
    let name = &status.name;
    match result {
        _ if args.undo => format!("{name} takes {} again", taken(status)),
        Drained { stopped: true, .. } => format!("{name} stops"),
        Drained { empty: Some(true), .. } => {
            format!("{name} is empty after {}", span(result.waited_s))
        }
        _ => format!("{name} takes no more {}", taken(status)),
    }
}

/// Sessions that an undrained node accepts, for messages.
fn taken(status: &Status) -> &'static str {
    if status.gateway { "applications and calls" } else { "applications" }
}

/// Waits until there is no call and no packet has passed during the quiet time; false if that takes
/// too long.
fn wait(
    args: &DrainArgs,
    client: &mut Client,
    status: &mut Status,
    begun: Instant,
) -> Result<bool, Error> {
    const LOOK: Duration = Duration::from_millis(200);
    let passed = |s: &Status| (s.from_sessions, s.to_sessions, s.forwarded);
    let mut quiet_since = Instant::now();
    loop {
        if begun.elapsed() >= args.timeout.0 {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
        let now: Status = client.ask(&Request::Status {})?;
        if !now.draining {
            let what = format!("{} is not draining any more (`drain --undo`)", now.name);
            return Err(Error::Failed(what));
        }
        // A ringing call has no packets, and one on hold has few.
        if passed(&now) != passed(status) || now.gateway && now.calls != Some(0) {
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() >= args.quiet.0 {
            *status = now;
            return Ok(true);
        }
        *status = now;
    }
}
