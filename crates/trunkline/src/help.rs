//! `trunkline --help`: the commands in groups, which clap does not support. Each command's line is
//! its own description.

use clap::Command;
use std::ffi::OsString;

/// One heading of the list, and its commands in the order shown.
struct Group {
    heading: &'static str,
    commands: &'static [&'static str],
    /// Whether the group is shown only by `trunkline --help --all`.
    only_all: bool,
}

const GROUPS: [Group; 5] = [
    Group { heading: "Run", commands: &["node", "check", "proxy", "call", "cat"], only_all: false },
    Group {
        heading: "Inspect",
        commands: &[
            "status", "links", "routes", "flows", "streams", "calls", "ping", "trace", "top",
        ],
        only_all: false,
    },
    Group { heading: "Manage", commands: &["reload", "drain"], only_all: false },
    Group {
        heading: "Keys",
        commands: &["keygen", "pubkey", "certify", "certificate"],
        only_all: false,
    },
    Group {
        heading: "Tools",
        commands: &["demo", "bench", "impair", "score", "replay", "completions", "man"],
        only_all: true,
    },
];

/// Whether `args`, without the program's name, request the list of all commands: `--help --all` or
/// `help --all`.
pub fn wants_all(args: &[OsString]) -> bool {
    let is = |arg: &OsString, names: &[&str]| names.iter().any(|name| arg == name);
    let helps = |arg: &OsString| is(arg, &["--help", "-h", "help"]);
    let [a, b] = args else { return false };
    helps(a) && is(b, &["--all"]) || is(a, &["--all"]) && helps(b)
}

/// `command` with its subcommands listed in groups; with `all` also the tools.
pub fn grouped(command: Command, all: bool) -> Command {
    let list = list(&command, all);
    let more = if all {
        "`trunkline help COMMAND` explains a command."
    } else {
        "`trunkline help COMMAND` explains a command; `trunkline --help --all` lists the\n\
         tools for measuring and trying out, too."
    };
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{more}\n\nOptions:\n\
         {{options}}{{after-help}}"
    ))
}

fn list(command: &Command, all: bool) -> String {
    let mut text = String::new();
    for group in GROUPS.iter().filter(|group| all || !group.only_all) {
        text += &format!("{}:\n", group.heading);
        let found = group.commands.iter().filter_map(|name| command.find_subcommand(name));
        for subcommand in found {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            text += &format!("  {:<13}{about}\n", subcommand.get_name());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let command = crate::Cli::command();
        let mut there: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        there.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, there);
    }

    #[test]
    fn tools_are_shown_on_demand() {
        let shown = |all| grouped(crate::Cli::command(), all).render_help().to_string();
        let (short, long) = (shown(false), shown(true));
        let about = "Play calls through a chain of nodes";
        assert!(!short.contains("Tools:") && !short.contains(about), "{short}");
        assert!(long.contains("Tools:\n  demo         ") && long.contains(about), "{long}");
        for text in [short, long] {
            assert!(text.contains("Run:\n  node         Run an overlay node"), "{text}");
            assert!(text.contains("Exit codes: "), "{text}");
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
        let args = |args: &[&str]| wants_all(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(args(&["--help", "--all"]) && args(&["--all", "-h"]) && args(&["help", "--all"]));
        assert!(!args(&["--all"]) && !args(&["--help"]) && !args(&["status", "--all"]));
    }

    /// Applies to every visible command and its subcommands.
    #[test]
    fn each_help_has_an_example() {
        fn without_example(command: &Command, at: &str, missing: &mut Vec<String>) {
            for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                let name = format!("{at} {}", subcommand.get_name());
                let help = subcommand.clone().render_long_help().to_string();
                if !help.contains("Example") {
                    missing.push(name.clone());
                }
                without_example(subcommand, &name, missing);
            }
        }
        let mut missing = Vec::new();
        without_example(&crate::Cli::command(), "trunkline", &mut missing);
        assert!(missing.is_empty(), "no example: {missing:?}");
    }
}
