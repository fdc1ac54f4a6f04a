//! The `trunkline` command: the daemon and its tools.
//!
//! Sockets, clocks, files and threads live here; all decisions are made in the crates below.
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see `out`")]

#[macro_use]
mod out;

mod addresses;
mod bench;
mod call;
mod cat;
mod clock;
mod datapath;
mod demo;
mod files;
mod help;
mod impair;
mod keys;
mod log;
mod names;
mod node;
mod operate;
mod proxy;
mod rate_limited_log;
mod resolver;
mod score;
mod sip;
mod stop;
mod sys;
mod units;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

/// Telephone-quality voice over lossy Internet paths
#[derive(Parser, Debug)]
#[command(version, about, propagate_version = true)]
#[command(after_help = "\
Exit codes: 0 done; 1 it could not be done; 2 the command line is wrong, or a
file to be read that it names.

Log lines go to standard error; TRUNKLINE_LOG=debug shows more of them.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Node(node::Args),
    Check(node::CheckArgs),
    Status(operate::StatusArgs),
    Links(operate::LinksArgs),
    Routes(operate::RoutesArgs),
    Flows(operate::FlowsArgs),
    Streams(operate::StreamsArgs),
    Calls(operate::CallsArgs),
    Ping(operate::PingArgs),
    Trace(operate::TraceArgs),
    Top(operate::TopArgs),
    Reload(operate::ReloadArgs),
    Drain(operate::DrainArgs),
    Replay(node::replay::Args),
    Demo(demo::Args),
    Call(call::Args),
    Proxy(proxy::Args),
    Cat(cat::Args),
    Score(score::Args),
    Impair(Box<impair::Args>),
    Bench(bench::Args),
    Keygen(keys::KeygenArgs),
    Pubkey(keys::PubkeyArgs),
    Certify(keys::CertifyArgs),
    Certificate(keys::CertificateArgs),
    Completions(Completions),
    Man(Man),
}

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline completions bash > /etc/bash_completion.d/trunkline")]
struct Completions {
    /// Shell to write the script for
    shell: clap_complete::Shell,
}

/// Print the manual page, in roff
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline man node | man -l -
  trunkline man call send | man -l -")]
struct Man {
    /// The subcommand to describe, and its own subcommand; without any, the whole command
    subcommand: Vec<String>,
}

/// An error message, and whether the user's input is the cause.
struct Failure {
    message: String,
    code: u8,
}

fn failure(code: u8) -> impl FnOnce(&dyn std::fmt::Display) -> Failure {
    move |message| Failure { message: message.to_string(), code }
}

fn main() -> ExitCode {
    // As early as can be: somebody may send a daemon that starts a signal.
    if std::env::args_os().nth(1).is_some_and(|command| command == "node") {
        let _ = stop::ignore_others();
    }
    sys::keep_little_memory();
    log::init();
    let done = command().map_or(Ok(()), run).and_then(|()| match out::failure() {
        None => Ok(()),
        Some(error) => Err(failure(1)(&format_args!("cannot write to standard output: {error}"))),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            errln!("trunkline: {message}");
            ExitCode::from(code)
        }
    }
}

/// Parses the command line; `None` if it only requested the list of all commands. Exits for other
/// help, or if the command line is wrong.
fn command() -> Option<Command> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if help::wants_all(&args) {
        out::bytes(help::grouped(Cli::command(), true).render_help().to_string().as_bytes());
        return None;
    }
    let matches = help::grouped(Cli::command(), false).get_matches();
    Some(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Node(args) => node::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Check(args) => node::check(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Status(args) => operate::status(&args).map_err(operator_failure),
        Command::Links(args) => operate::links(&args).map_err(operator_failure),
        Command::Routes(args) => operate::routes(&args).map_err(operator_failure),
        Command::Flows(args) => operate::flows(&args).map_err(operator_failure),
        Command::Streams(args) => operate::streams(&args).map_err(operator_failure),
        Command::Calls(args) => operate::calls(&args).map_err(operator_failure),
        Command::Ping(args) => operate::ping(&args).map_err(operator_failure),
        Command::Trace(args) => operate::trace(&args).map_err(operator_failure),
        Command::Top(args) => operate::top(&args).map_err(operator_failure),
        Command::Reload(args) => operate::reload(&args).map_err(operator_failure),
        Command::Drain(args) => operate::drain(&args).map_err(operator_failure),
        Command::Replay(args) => node::replay::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Demo(args) => demo::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Call(args) => call::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Proxy(args) => proxy::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Cat(args) => cat::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Score(args) => score::run(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Impair(args) => impair::run(*args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Bench(args) => bench::run(&args).map_err(|e| failure(1)(&e)),
        Command::Keygen(args) => keys::keygen(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Pubkey(args) => keys::pubkey(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Certify(args) => keys::certify(&args).map_err(|e| failure(e.exit_code())(&e)),
        Command::Certificate(args) => {
            keys::certificate(&args).map_err(|e| failure(e.exit_code())(&e))
        }
        Command::Completions(Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trunkline", &mut script);
            out::bytes(&script);
            Ok(())
        }
        Command::Man(man) => print_manual(&man),
    }
}

fn operator_failure(e: operate::Error) -> Failure {
    failure(e.exit_code())(&e)
}

fn print_manual(man: &Man) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    // A name in quotes may have both words.
    for name in man.subcommand.iter().flat_map(|names| names.split_whitespace()) {
        command = command.find_subcommand(name).cloned().ok_or_else(|| {
            failure(2)(&format_args!("there is no subcommand `{name}` to describe"))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|e| failure(1)(&e))?;
    out::bytes(&page);
    Ok(())
}
