//! docs/guide.md, done as it says: three machines are three network namespaces,
//! each with a shell that runs the guide's commands, and what the guide shows
//! must come out, whatever the numbers in it are.
//!
//! In the guide, a block of kind `sh` whose first line is `# on A` is typed on
//! machine A, and one of kind `toml` whose first line is `# FILE, on A` is saved
//! there. A block of kind `text A` shows what comes out on A, from the last
//! command on: each line must, with other digits perhaps, and with anything
//! where it has an ellipsis. Blocks without a machine are not for the test. For
//! `scp` there is a stand-in, which copies from folder to folder.

mod common;

use common::{PATIENCE, Process, ms, run, temp_dir, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The machines of the guide and their addresses.
const MACHINES: [(&str, &str); 3] = [("A", "192.0.2.1"), ("B", "192.0.2.2"), ("M", "192.0.2.3")];

/// Longer than any command of the guide takes.
const LONGEST: Duration = Duration::from_secs(60);

/// A block of the guide.
struct Block {
    kind: Kind,
    machine: String,
    /// Where it is in the guide.
    line: usize,
    text: String,
}

#[derive(PartialEq)]
enum Kind {
    Type,
    Save(String),
    Expect,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/trunkline")
}

/// The guide's blocks that name a machine.
fn blocks(guide: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = guide.lines().zip(1..);
    while let Some((fence, line)) = lines.next() {
        let Some(language) = fence.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(text, _)| text).take_while(|text| *text != "```").collect();
        let first = body.first().copied().unwrap_or_default();
        let place = match language.split_once(' ').unwrap_or((language, "")) {
            ("text", machine) => Some((Kind::Expect, machine)),
            ("sh", _) => first.strip_prefix("# on ").map(|machine| (Kind::Type, machine)),
            ("toml", _) => first
                .strip_prefix("# ")
                .and_then(|first| first.split_once(", on "))
                .map(|(file, machine)| (Kind::Save(file.to_owned()), machine)),
            _ => None,
        };
        // Behind the letter there may be a remark for the reader.
        let machine = |text: &str| text.split([' ', ',', ':']).next().map(str::to_owned);
        if let Some((kind, rest)) = place
            && let Some(machine) = machine(rest).filter(|m| !m.is_empty())
        {
            blocks.push(Block { kind, machine, line, text: body.join("\n") });
        }
    }
    blocks
}

/// Whether `line` is what the guide shows as `shown`: digits stand for any
/// number, an ellipsis for anything.
fn is_like(line: &str, shown: &str) -> bool {
    // Numbers become one mark each, with what belongs to a number.
    let plain = |text: &str| {
        let mut out = String::new();
        for c in text.chars() {
            let digit = c.is_ascii_digit();
            if !(digit && out.ends_with('0')) {
                out.push(if digit { '0' } else { c });
            }
        }
        // 2,345 and 17 are numbers alike, as 0.5 and 3 are.
        out.replace("0,0", "0").replace("0.0", "0").replace(' ', "")
    };
    let line = plain(line);
    let shown = plain(shown);
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    open || rest.is_empty()
}

#[test]
fn what_the_guide_shows_is_like_what_comes_out() {
    for (line, shown, like) in [
        ("12 packets", "12,345 packets", true),
        ("12 packets", "12 packet", false),
        ("R 88.5, MOS 4.30", "R 91, MOS 4.2", true),
        ("2026-11-21T23:47:38.024073Z  INFO ready name=site-a", "… INFO ready name=site-a", true),
        ("INFO ready name=site-b", "… INFO ready name=site-a", false),
        ("a and b and c", "a … c", true),
        ("a and b and c", "a …", true),
        ("a and b and c", "a", false),
    ] {
        assert_eq!(is_like(line, shown), like, "{line} | {shown}");
    }
}

/// A machine: a shell in a network of its own. All that runs there ends with it.
struct Machine {
    shell: Process,
    dir: PathBuf,
    /// Characters of the shell's output before the last command.
    seen: usize,
}

impl Machine {
    /// `dir` has beside it the folder of [`stand_in_for_scp`].
    fn start(dir: &Path) -> Machine {
        std::fs::create_dir(dir).expect("a folder");
        symlink(root().join("speech"), dir.join("speech")).expect("a link");
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]);
        let bin = Path::new(env!("CARGO_BIN_EXE_trunkline")).parent().expect("a folder");
        let path = std::env::var("PATH").expect("a search path");
        let ours = dir.with_file_name("bin");
        let path = format!("{}:{}:{path}", ours.display(), bin.display());
        command.env("PATH", path);
        command.env_remove("TRUNKLINE_LOG").env_remove("TRUNKLINE_CONTROL");
        let mut shell = Process::start(command.current_dir(dir));
        shell.tell("exec 2>&1; ip link set lo up; echo up");
        let dir = dir.to_owned();
        let machine = Machine { shell, dir, seen: 0 };
        wait_for("a shell", || machine.shell.stdout().contains("up\n").then_some(()));
        machine
    }

    /// The process whose network it is.
    fn pid(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.shell.id());
        std::fs::read_to_string(children).expect("Linux").trim().to_owned()
    }

    /// Runs `commands` as typed; they must succeed, unless the guide shows an
    /// error.
    fn type_in(&mut self, commands: &str, number: usize) {
        self.seen = self.shell.stdout().len();
        std::fs::write(self.dir.join(".typed"), commands).expect("written");
        self.shell.tell(&format!("source ./.typed </dev/null; echo '@@'{number}"));
        let end = format!("@@{number}\n");
        let until = Instant::now() + LONGEST;
        while !self.shell.stdout().contains(&end) {
            assert!(Instant::now() < until, "it doesn't end:\n{commands}\n{}", self.said());
            thread::sleep(ms(20));
        }
    }

    fn said(&self) -> String {
        self.shell.stdout()[self.seen..].to_owned()
    }
}

/// Puts into `dir` a `bin/scp` that knows the folder `trunkline` of each
/// machine. The real one would need a server and keys of its own.
fn stand_in_for_scp(dir: &Path) {
    let folders: String = MACHINES
        .iter()
        .map(|(name, address)| {
            let folder = dir.join(name);
            format!("set -- \"${{@/#{address}:trunkline\\//{}/}}\"\n", folder.display())
        })
        .collect();
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let script = bin.join("scp");
    std::fs::write(&script, format!("#!/usr/bin/env bash\n{folders}exec cp -- \"$@\"\n"))
        .expect("written");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("done");
}

/// One Ethernet for all machines, as a LAN is.
fn connect(machines: &BTreeMap<&str, Machine>) -> bool {
    let ip = |args: String| run(Command::new("ip").args(args.split(' '))).code == Some(0);
    let hub = machines["M"].pid();
    let inside = |pid: &str, args: String| {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", pid]).args(args.split(' '));
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{args}: {}", ended.stderr);
    };
    inside(&hub, "ip link add lan type bridge".into());
    for (name, address) in MACHINES {
        let pid = machines[name].pid();
        if !ip(format!("link add eth0 netns {pid} type veth peer name to{name} netns {hub}")) {
            return false;
        }
        inside(&hub, format!("ip link set to{name} up master lan"));
        inside(&pid, format!("ip addr add {address}/24 dev eth0"));
        inside(&pid, "ip link set eth0 up".into());
    }
    inside(&hub, "ip link set lan up".into());
    true
}

fn skipped(why: &str) {
    println!("skipped: the guide: {why}");
    assert!(std::env::var_os("CI").is_none(), "CI runs it: {why}");
}

#[test]
fn the_guide_does_what_it_says() {
    let probe =
        Command::new("unshare").args(["--net", "--pid", "--fork", "--mount-proc", "true"]).output();
    if !probe.is_ok_and(|ended| ended.status.success()) {
        return skipped("it needs root, for network namespaces");
    }
    for tool in ["unshare", "nsenter", "ip", "curl", "socat", "iperf3", "ffmpeg"] {
        if !std::env::split_paths(&std::env::var("PATH").expect("a search path"))
            .any(|dir| dir.join(tool).exists())
        {
            return skipped(&format!("{tool} is not installed"));
        }
    }
    let guide = std::fs::read_to_string(root().join("docs/guide.md")).expect("the guide");
    let blocks = blocks(&guide);
    assert!(blocks.len() > 20, "the guide has {} blocks for the test", blocks.len());
    let dir = temp_dir();
    stand_in_for_scp(dir.path());
    let mut machines: BTreeMap<&str, Machine> =
        MACHINES.iter().map(|(name, _)| (*name, Machine::start(&dir.path().join(name)))).collect();
    if !connect(&machines) {
        return skipped("this kernel lets nobody make virtual Ethernet devices");
    }
    for (number, block) in blocks.iter().enumerate() {
        let machine = machines.get_mut(block.machine.as_str()).expect("A, B or M");
        match &block.kind {
            Kind::Save(file) => std::fs::write(machine.dir.join(file), &block.text).expect("saved"),
            Kind::Type => machine.type_in(&block.text, number),
            Kind::Expect => expect(machine, block),
        }
        if std::env::var_os("GUIDE_SHOW").is_some() {
            println!("--- line {}, {}\n{}", block.line, block.machine, machine.said());
        }
    }
    // What a shell began ends with it, whatever the guide forgets to stop.
    for machine in machines.values_mut() {
        let pid = Pid::from_raw(machine.shell.id().cast_signed());
        kill(pid, Signal::SIGKILL).expect("it runs");
        machine.shell.wait();
    }
}

/// Waits until everything that the guide shows has come out.
fn expect(machine: &Machine, block: &Block) {
    let shown: Vec<&str> =
        block.text.lines().map(str::trim).filter(|l| !matches!(*l, "" | "…")).collect();
    let until = Instant::now() + PATIENCE;
    loop {
        let said = machine.said();
        let mut lines: Vec<&str> = said.lines().map(str::trim).collect();
        // Each line stands for one: two hops of a trace are two lines.
        let missing = shown.iter().find(|shown| {
            let found = lines.iter().position(|line| is_like(line, shown));
            found.map(|at| lines.remove(at)).is_none()
        });
        let Some(missing) = missing else { return };
        assert!(
            Instant::now() < until,
            "docs/guide.md:{} shows\n  {missing}\nwhich did not come out on {}; it said\n{said}",
            block.line,
            block.machine
        );
        thread::sleep(ms(20));
    }
}
