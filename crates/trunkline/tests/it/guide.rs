//! Executes docs/guide.md literally: three machines are three network namespaces, each with a shell
//! that runs the guide's commands. Their output must be as shown, with different numbers only where
//! `VARIES` allows it.
//!
//! In the guide, a block of kind `sh` that begins with `# on A` is typed on machine A, and one of
//! kind `toml` that begins with `# FILE, on A` is saved there. A block of kind `text A` shows the
//! output on A since the last command: each line must appear, with anything in place of an
//! ellipsis. Blocks without a machine are not tested. `scp` is replaced by a stand-in that copies
//! between folders.

use crate::common::on_time::on_time;
use crate::common::{PATIENCE, Process, ms, run, temp_dir, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Names and addresses of the machines.
type Machines = [(&'static str, &'static str)];

/// Machines of the guide.
const MACHINES: &Machines = &[("A", "192.0.2.1"), ("B", "192.0.2.2"), ("M", "192.0.2.3")];

/// Machines of docs/gateway.md: two gateways and a phone for each.
const SITES: &Machines =
    &[("A", "192.0.2.1"), ("B", "192.0.2.2"), ("P", "192.0.2.11"), ("Q", "192.0.2.12")];

/// Timeout beyond any command of the guide.
const LONGEST: Duration = Duration::from_secs(60);

/// A block of the guide.
struct Block {
    kind: Kind,
    machine: String,
    /// Line number of the block in the guide.
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

/// Blocks of the guide that name a machine.
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
        // A remark for the reader may follow the letter.
        let machine = |text: &str| text.split([' ', ',', ':']).next().map(str::to_owned);
        if let Some((kind, rest)) = place
            && let Some(machine) = machine(rest).filter(|m| !m.is_empty())
        {
            blocks.push(Block { kind, machine, line, text: body.join("\n") });
        }
    }
    blocks
}

/// Permitted deviation of a number from the guide.
#[derive(Clone, Copy)]
enum May {
    /// Any value between these two.
    Be(f64, f64),
    /// Any value at most this far away, but zero stays zero.
    Differ(f64),
    /// Up to this many times more or less, but zero stays zero.
    Scale(f64),
    /// A factor as in `Scale`, and this difference in addition.
    Roughly(f64, f64),
}
use May::{Be, Differ, Roughly, Scale};

/// Numbers that depend on the machine, the moment or the losses: the n-th number of lines with
/// these words. All others are exactly as shown. Packets played and lost must also add up: see
/// [`adds_up`].
const VARIES: &[(&str, &[(usize, May)])] = &[
    // The certificate may be made at the end of a second.
    ("for another", &[(0, Be(364.0, 365.0))]),
    ("is node 1, up", &[(2, Be(1.0, 60.0))]),
    ("is node 3, up", &[(1, Be(1.0, 60.0))]),
    (
        "site-b 192.",
        &[(4, Be(0.0, 120.0)), (5, Scale(8.0)), (6, Be(0.0, 30.0)), (7, Be(0.0, 30.0))],
    ),
    (
        "middle 192.",
        &[(4, Be(0.0, 120.0)), (5, Scale(3.0)), (6, Be(0.0, 30.0)), (7, Be(0.0, 30.0))],
    ),
    // The end has no fixed port.
    ("calling ", &[(3, Be(1.0, 65_535.0))]),
    // Three standard deviations of the loss in 600 packets; on a busy machine some are late.
    (
        " lost: ",
        &[
            // The loss of the first and the last packet of a call may go unnoticed.
            (0, Differ(5.0)),
            (1, Differ(30.0)),
            (2, Roughly(6.0, 4.0)),
            (3, Be(0.0, 12.0)),
            (4, Differ(25.0)),
            (5, Be(0.0, 8.0)),
        ],
    ),
    ("150 played", &[(0, Differ(5.0)), (1, Differ(5.0))]),
    ("delay above", &[(1, Be(0.0, 60.0)), (3, Be(0.0, 400.0)), (4, Be(0.0, 1_000.0))]),
    ("E-model", &[(1, Differ(10.0)), (2, Differ(0.4))]),
    ("PESQ mean", &[(1, Differ(0.8))]),
    ("– up ", &[(2, Scale(3.0)), (3, Scale(3.0))]),
    // One of the few packets that answer a trace may be lost, too.
    ("_total{neighbour=\"2\"", &[(1, Be(0.0, 4.0))]),
    ("realtime_missing", &[(1, Scale(5.0))]),
    ("realtime_filled", &[(1, Scale(5.0))]),
    (
        "Kbits/sec",
        &[
            (0, Be(3.0, 20.0)),
            (2, Be(4.9, 6.0)),
            (3, Scale(1.2)),
            (4, Scale(1.3)),
            (5, Be(0.0, 50.0)),
            (6, Be(0.0, 60.0)),
            (7, Scale(1.2)),
            (8, Be(0.0, 5.0)),
        ],
    ),
    // ffmpeg's reports, and its attempts before it reduces its packet size; receiver reports of 40
    // bytes, a goodbye of 48 and port-unreachable messages may be lost.
    (
        "to the overlay, 4",
        &[
            (0, Scale(1.1)),
            (1, Scale(1.2)),
            (2, Be(1.0, 4.0)),
            (3, Be(40.0, 168.0)),
            (4, Be(1.0, 8.0)),
            (7, Be(1.0, 8.0)),
            (8, Be(2.0, 4.0)),
        ],
    ),
    ("refused_total{", &[(0, Be(1.0, 100.0))]),
    (
        " caller UDP ",
        &[
            (4, Be(9.0, 14.0)),
            (5, Be(400.0, 700.0)),
            (6, Be(0.0, 2.0)),
            (7, Be(0.0, 20.0)),
            (9, Be(0.0, 30.0)),
            (10, Be(0.0, 2.0)),
            (11, Be(0.0, 100.0)),
            (12, Be(60.0, 91.0)),
            (13, Be(30.0, 91.0)),
            (14, Be(3.0, 4.4)),
        ],
    ),
    (
        "callee overlay ",
        &[
            (0, Be(400.0, 700.0)),
            (1, Be(0.0, 2.0)),
            (2, Be(0.0, 20.0)),
            (4, Be(0.0, 30.0)),
            (5, Be(0.0, 2.0)),
            (6, Be(0.0, 100.0)),
            (7, Be(60.0, 91.0)),
            (8, Be(30.0, 91.0)),
            (9, Be(3.0, 4.4)),
        ],
    ),
];

/// A piece of a line in the guide.
enum Piece {
    Char(char),
    Number(f64, f64),
    Anything,
}

/// Parses the number at the start of `text`, and returns its length too.
fn number(text: &str) -> Option<(f64, usize)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let part = text[whole..].strip_prefix('.').map_or(0, digits);
    let len = if part > 0 { whole + 1 + part } else { whole };
    (whole > 0).then(|| Some((text[..len].parse().ok()?, len)))?
}

/// Lines about a call, with values that a late machine makes worse.
const OF_A_CALL: [&str; 3] = [" lost: ", "E-model", "PESQ mean"];

/// Whether `said` shows that this machine was too busy: more than 1 % of a call's packets were
/// later than any delay or loss of the guide explains.
fn is_late(said: &str) -> bool {
    let calls = said.lines().filter(|line| line.starts_with("delay above the fastest"));
    let p99 = |line: &str| number(line.split_once("p99 ")?.1).map(|(ms, _)| ms);
    calls.filter_map(p99).any(|ms| ms > 60.0)
}

/// Splits a line of the guide; `late` is the result of [`is_late`].
fn pieces(shown: &str, late: bool) -> Vec<Piece> {
    let anything = late && OF_A_CALL.iter().any(|words| shown.contains(words));
    let rules: Vec<_> =
        VARIES.iter().filter(|(words, _)| shown.contains(words)).flat_map(|(_, r)| *r).collect();
    let (mut pieces, mut rest, mut numbers) = (Vec::new(), shown, 0);
    while let Some(c) = rest.chars().next() {
        if let Some((n, len)) = number(rest) {
            let (low, high) = match rules.iter().find(|(at, _)| *at == numbers).map(|(_, m)| *m) {
                _ if anything => (0.0, f64::MAX),
                None => (n, n),
                Some(Be(low, high)) => (low, high),
                Some(Roughly(by, few)) => (n / by - few, n * by + few),
                Some(Differ(_) | Scale(_)) if n == 0.0 => (n, n),
                Some(Differ(by)) => (n - by, n + by),
                Some(Scale(by)) => (n / by, n * by),
            };
            pieces.push(Piece::Number(low, high));
            (rest, numbers) = (&rest[len..], numbers + 1);
            continue;
        }
        pieces.push(if c == '…' { Piece::Anything } else { Piece::Char(c) });
        rest = &rest[c.len_utf8()..];
    }
    pieces
}

fn fits(line: &str, pieces: &[Piece]) -> bool {
    let Some((piece, others)) = pieces.split_first() else { return line.is_empty() };
    match piece {
        Piece::Char(c) => line.strip_prefix(*c).is_some_and(|rest| fits(rest, others)),
        Piece::Number(low, high) => number(line)
            .is_some_and(|(n, len)| (*low..=*high).contains(&n) && fits(&line[len..], others)),
        Piece::Anything => {
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| fits(&line[at..], others))
        }
    }
}

/// Whether a call's line adds up: every packet is played, late or lost, and the percentage matches.
fn adds_up(line: &str) -> bool {
    let mut numbers = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let Some((n, len)) = number(&rest[at..]) else { break };
        numbers.push(n);
        rest = &rest[at + len..];
    }
    match numbers[..] {
        [packets, played, recovered, late, lost, share] if line.contains(" played, ") => {
            played + late + lost == packets
                && recovered <= played
                && (share - 100.0 * (late + lost) / packets).abs() < 0.006
        }
        _ => true,
    }
}

/// Whether `line` matches `shown` of the guide; `late` is the result of [`is_late`].
fn is_like(line: &str, shown: &str, late: bool) -> bool {
    // A column is as wide as its widest entry.
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, shown) = (plain(line), plain(shown));
    fits(&line, &pieces(&shown, late)) && adds_up(&line)
}

#[apply(on_time)]
fn what_the_guide_shows_is_like_what_comes_out() {
    let call = "600 packets: 573 played, 0 of them recovered; 0 late, 27 lost: 4.50 % missed";
    for (line, shown, like) in [
        ("12 packets", "12,345 packets", false),
        ("12  packets", "12 packets", true),
        ("12 packets", "13 packets", false),
        (
            "E-model at 100ms playout: R 91, MOS 4.2",
            "E-model at 100ms playout: R 88.5, MOS 4.30",
            true,
        ),
        (
            "E-model at 100ms playout: R 50, MOS 4.2",
            "E-model at 100ms playout: R 88.5, MOS 4.30",
            false,
        ),
        ("2026-11-21T23:47:38.024073Z  INFO ready name=site-a", "… INFO ready name=site-a", true),
        ("INFO ready name=site-b", "… INFO ready name=site-a", false),
        ("calling 2:5004 from 1:50000: 12 s", "calling 2:5004 from 1:54321: 12 s", true),
        ("calling 2:5004 from 3:50000: 12 s", "calling 2:5004 from 1:54321: 12 s", false),
        ("2 2 – up 30.00 14.2", "2 3 – up 27.50 14.2", false),
        (
            "600 packets: 580 played, 0 of them recovered; 0 late, 20 lost: 3.33 % missed",
            call,
            true,
        ),
        (
            "600 packets: 580 played, 0 of them recovered; 0 late, 10 lost: 1.67 % missed",
            call,
            false,
        ),
        (
            "600 packets: 580 played, 0 of them recovered; 0 late, 20 lost: 4.33 % missed",
            call,
            false,
        ),
        (
            "600 packets: 580 played, 19 of them recovered; 0 late, 20 lost: 3.33 % missed",
            call,
            false,
        ),
        (
            "600 packets: 1200 played, 0 of them recovered; 0 late, 0 lost: 0.00 % missed",
            call,
            false,
        ),
        ("a and b and c", "a … c", true),
        ("a and b and c", "a …", true),
        ("a and b and c", "a", false),
    ] {
        assert_eq!(is_like(line, shown, false), like, "{line} | {shown}");
    }
}

#[apply(on_time)]
fn a_call_on_a_machine_that_is_late_must_still_add_up() {
    let said = "delay above the fastest: p50 28.9 ms, p99 122.1 ms, max 145.8 ms\n";
    assert!(is_late(said) && !is_late(&said.replace("122.1", "42.7")));
    let shown = "600 packets: 600 played, 0 of them recovered; 0 late, 0 lost: 0.00 % missed";
    let line = "578 packets: 538 played, 8 of them recovered; 19 late, 21 lost: 6.92 % missed";
    assert!(is_like(line, shown, true) && !is_like(line, shown, false));
    assert!(!is_like(&line.replace("538", "539"), shown, true));
}

/// The numbers in the guide must add up themselves.
#[test]
fn the_numbers_of_the_guide_add_up() {
    let guide = std::fs::read_to_string(root().join("docs/guide.md")).expect("the guide");
    let expected = blocks(&guide).into_iter().filter(|block| block.kind == Kind::Expect);
    for block in expected {
        for line in block.text.lines() {
            assert!(
                adds_up(line) && is_like(line, line, false),
                "docs/guide.md:{}: {line}",
                block.line
            );
        }
    }
}

/// A machine: a shell in a network namespace of its own. All its processes end with it.
struct Machine {
    shell: Process,
    dir: PathBuf,
    /// Number of characters that the shell had printed before the last command.
    seen: usize,
}

impl Machine {
    /// Starts a machine in `dir`, next to the folder of [`stand_in_for_scp`].
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

    /// ID of the process that owns the network namespace.
    fn pid(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.shell.id());
        std::fs::read_to_string(children).expect("Linux").trim().to_owned()
    }

    /// Runs `commands` as if typed. They must succeed, unless the guide shows an error.
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

/// Writes a `bin/scp` to `dir` that knows the folder `trunkline` of each machine. The real one
/// would need a server and keys.
fn stand_in_for_scp(dir: &Path, machines: &Machines) {
    let folders: String = machines
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

/// Connects all machines to one Ethernet, like a LAN.
fn connect(addresses: &Machines, machines: &BTreeMap<&str, Machine>) -> bool {
    let ip = |args: String| run(Command::new("ip").args(args.split(' '))).code == Some(0);
    let hub = machines[addresses[addresses.len() - 1].0].pid();
    let inside = |pid: &str, args: String| {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", pid]).args(args.split(' '));
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{args}: {}", ended.stderr);
    };
    inside(&hub, "ip link add lan type bridge".into());
    for (name, address) in addresses {
        let pid = machines[*name].pid();
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

#[apply(on_time)]
fn the_guide_does_what_it_says() {
    let tools = ["unshare", "nsenter", "ip", "curl", "socat", "iperf3", "ffmpeg"];
    follow("docs/guide.md", MACHINES, &tools);
}

#[apply(on_time)]
fn the_gateways_guide_does_what_it_says() {
    let tools = ["unshare", "nsenter", "ip", "curl", "jq", "baresip"];
    follow("docs/gateway.md", SITES, &tools);
}

/// Executes the document at `path`.
fn follow(path: &str, addresses: &Machines, tools: &[&str]) {
    let probe =
        Command::new("unshare").args(["--net", "--pid", "--fork", "--mount-proc", "true"]).output();
    if !probe.is_ok_and(|ended| ended.status.success()) {
        return skipped("it needs root, for network namespaces");
    }
    for tool in tools {
        if !std::env::split_paths(&std::env::var("PATH").expect("a search path"))
            .any(|dir| dir.join(tool).exists())
        {
            return skipped(&format!("{tool} is not installed"));
        }
    }
    let guide = std::fs::read_to_string(root().join(path)).expect("the guide");
    let blocks = blocks(&guide);
    assert!(blocks.len() > 18, "{path} has {} blocks for the test", blocks.len());
    let dir = temp_dir();
    stand_in_for_scp(dir.path(), addresses);
    let mut machines: BTreeMap<&str, Machine> =
        addresses.iter().map(|(name, _)| (*name, Machine::start(&dir.path().join(name)))).collect();
    if !connect(addresses, &machines) {
        return skipped("this kernel lets nobody make virtual Ethernet devices");
    }
    for (number, block) in blocks.iter().enumerate() {
        let machine = machines.get_mut(block.machine.as_str()).expect("one of its machines");
        match &block.kind {
            Kind::Save(file) => std::fs::write(machine.dir.join(file), &block.text).expect("saved"),
            Kind::Type => machine.type_in(&block.text, number),
            Kind::Expect => expect(path, machine, block),
        }
        if std::env::var_os("GUIDE_SHOW").is_some() {
            println!("--- line {}, {}\n{}", block.line, block.machine, machine.said());
        }
    }
    // Processes that a shell started end with it, even if the guide does not stop them.
    for machine in machines.values_mut() {
        let pid = Pid::from_raw(machine.shell.id().cast_signed());
        kill(pid, Signal::SIGKILL).expect("it runs");
        machine.shell.wait();
    }
}

/// Waits until everything that the guide shows has been printed.
fn expect(path: &str, machine: &Machine, block: &Block) {
    let shown: Vec<&str> =
        block.text.lines().map(str::trim).filter(|l| !matches!(*l, "" | "…")).collect();
    let until = Instant::now() + PATIENCE;
    loop {
        let said = machine.said();
        let late = is_late(&said);
        let mut lines: Vec<&str> = said.lines().map(str::trim).collect();
        // Each line matches only one: two hops of a trace are two lines.
        let missing = shown.iter().find(|shown| {
            let found = lines.iter().position(|line| is_like(line, shown, late));
            found.map(|at| lines.remove(at)).is_none()
        });
        let Some(missing) = missing else {
            if late {
                println!("this machine is too busy to judge {path}:{}", block.line);
            }
            return;
        };
        assert!(
            Instant::now() < until,
            "{path}:{} shows\n  {missing}\nwhich did not come out on {}; it said\n{said}",
            block.line,
            block.machine
        );
        thread::sleep(ms(20));
    }
}
