//! Tests of the testbed: scenarios with real daemons, compared with the simulator.
#![expect(clippy::disallowed_methods, reason = "real processes take real time")]

use crate::common::on_time::on_time;
use crate::common::*;
use macro_rules_attribute::apply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Scenario of ten calls with recovery and ten without, over a relay and a bad link.
const SCENARIO: &str = r#"
length = "4 s"
hello = { interval = "150ms", probes = false }
best_effort = { memory = "2 MiB" }
host = [
  { name = "par\"is", max_sessions = 99 },
  { name = "dijon" },
  { name = "lyon" },
]
link = [
  { between = ["par\"is", "dijon"], delay = "10ms", jitter = "1ms", loss = "10%", burst = "50%",
    spacing = "5ms", rate = "10 Mbit/s", queue = "64 kB" },
  { between = ["lyon", "dijon"], delay = "5ms", loss = 0.02, loses = "there",
    path = "blue", overlay = { mtu = 1400, dscp = 34, rate = "50 Mbit/s" },
    back = { overlay = { penalty = "1ms" } } },
]
call = [
  { name = "recovered", from = "par\"is", to = "lyon", count = 10 },
  { name = "plain", from = "par\"is", to = "lyon", count = 10, service = "best-effort" },
]
"#;

/// Path of the daemon's program, `None` if it has not been built: `cargo test --workspace`
/// builds it, `-p trunkline-lab` does not.
fn trunkline() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_trunkline-lab")).with_file_name("trunkline");
    let there = path.is_file();
    assert!(there || std::env::var_os("CI").is_none(), "{} is not built", path.display());
    if !there {
        println!("skipped: no trunkline; cargo build -p trunkline");
    }
    there.then_some(path)
}

/// Path of a program in `dir` that runs the shell commands `script`, then `trunkline`.
fn sabotaged(dir: &Path, script: &str) -> Option<PathBuf> {
    let (real, path) = (trunkline()?, dir.join("sabotaged"));
    let real = real.display();
    fs::write(&path, format!("#!/bin/sh\nreal='{real}'\n{script}\nexec \"$real\" \"$@\"\n"))
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Some(path)
}

/// Whether a run failed because something is not permitted or installed here, so that the
/// test is skipped; in CI that is a failure.
fn skipped(done: &Output) -> bool {
    let said = text(&done.stderr);
    let missing = ["namespace", "iproute2", "is it installed"].iter().any(|w| said.contains(w));
    let is = done.status.code() == Some(2) && missing;
    assert!(!is || std::env::var_os("CI").is_none(), "{said}");
    if is {
        println!("skipped: {said}");
    }
    is
}

/// Runs a scenario in simulator and testbed, with the additional arguments `args`; `None` if
/// the testbed can't run here.
fn beside(dir: &Path, name: &str, text: &str, args: &[&str], trunkline: &Path) -> Option<Output> {
    let file = dir.join(name);
    fs::write(&file, text).unwrap();
    let mut lab = lab(&["run", "--testbed"]);
    lab.arg(file).arg("--out").arg(dir).arg("--trunkline").arg(trunkline).args(args);
    let done = lab.output().unwrap();
    (!skipped(&done)).then_some(done)
}

/// Runs [`SCENARIO`] with this program; returns its output, its rows and testbed.json, or
/// `None` if the testbed can't run here.
fn both(dir: &Path, trunkline: &Path) -> Option<(Output, Vec<Vec<String>>, serde_json::Value)> {
    let done = beside(dir, "s.toml", SCENARIO, &[], trunkline)?;
    let read = |name| fs::read_to_string(dir.join("scenario/s").join(name)).unwrap_or_default();
    let csv = read("data.csv");
    let rows = csv.lines().skip(1).map(|l| l.split(',').map(str::to_owned).collect()).collect();
    Some((done, rows, serde_json::from_str(&read("testbed.json")).unwrap_or_default()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[apply(on_time)]
fn daemons_do_what_the_simulator_says() {
    let Some(trunkline) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some((done, rows, effort)) = both(dir.path(), &trunkline) else { return };
    let shown = text(&done.stdout) + &text(&done.stderr);
    let valid = effort["valid"].as_bool().unwrap();
    // A busy machine is late and delays packets, which must be reported.
    assert_eq!(shown.contains("INVALID"), !valid, "{shown}");
    assert!(!shown.contains("DISAGREE") || !valid, "{shown}");
    if valid {
        for name in ["recovered", "plain"] {
            // Four seconds may be too little to decide.
            let said =
                |word| shown.contains(&format!("\n{word}: {name}: missed in the simulator "));
            assert!(said("agree") || said("undecided"), "{shown}");
            assert!(shown.contains(&format!("\nnot judged: {name}: median delay 1")), "{shown}");
        }
    }
    assert_eq!(done.status.code(), Some(if valid { 0 } else { 1 }), "{shown}");
    let names: Vec<_> = rows.iter().map(|r| (r[0].as_str(), r[1].as_str())).collect();
    let [sim, live] = ["simulator", "testbed"].map(|w| [(w, "recovered"), (w, "plain")]);
    assert_eq!(names, [sim, live].concat());
    for row in &rows {
        let number = |column: usize| row[column].parse::<f64>().unwrap();
        assert_eq!(number(2), 2_000.0, "sent: {row:?}");
        let counts = row[0] == "simulator" || valid;
        assert_eq!(row.last().unwrap(), if counts { "yes" } else { "no" });
        // 15 ms of link delay, and up to 1 ms of jitter.
        assert!((15.0..if counts { 17.0 } else { 100.0 }).contains(&number(9)), "{row:?}");
        // About 240 packets are lost on the path.
        let (lost, recovered) = (number(3), number(5));
        let of_kind =
            if row[1] == "plain" { lost > 60.0 && recovered == 0.0 } else { recovered > 50.0 };
        assert!(of_kind, "{row:?}");
    }
    let cpu = effort["cpu"].as_array().unwrap();
    assert_eq!(cpu.len(), 4, "{effort}");
    assert!(cpu.iter().all(|c| c["seconds"].as_f64().unwrap() > 0.0), "{effort}");
    assert!(effort["lateness_us"]["samples"].as_u64().unwrap() > 4_000, "{effort}");
    assert_eq!(effort["refused"], 0);
}

#[apply(on_time)]
fn daemons_that_recover_nothing_and_a_late_impair_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
case $1 in
  node) printf '[realtime]\nrecovery = "off"\n' >> "$3" ;;
  impair) echo >> "$(dirname "$0")/tries"
    "$real" "$@" | sed 's/"p99.9":[0-9.]*/"p99.9":1001.5/'; exit ;;
esac"#;
    let Some(trunkline) = sabotaged(dir.path(), script) else { return };
    let Some((done, rows, effort)) = both(dir.path(), &trunkline) else { return };
    let shown = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{shown}");
    assert!(shown.contains("DISAGREE: recovered: missed in the simulator"), "{shown}");
    assert!(shown.contains("INVALID"), "{shown}");
    assert_eq!(effort["valid"], false);
    // The round was attempted twice.
    assert_eq!(text(&done.stderr).matches("void: this machine did not keep up").count(), 1);
    assert_eq!(fs::read_to_string(dir.path().join("tries")).unwrap().lines().count(), 2);
    let valid: Vec<_> = rows.iter().map(|r| r.last().unwrap().as_str()).collect();
    assert_eq!(valid, ["yes", "yes", "no", "no"]);
}

/// Runs beyond/convergence at its minimum size with this program; returns the output, the
/// testbed's rows of all runs, and the effort of the last attempt, or `None` if the testbed
/// can't run here.
fn converging(
    out: &Path,
    trunkline: &Path,
) -> Option<(String, Vec<Vec<String>>, serde_json::Value)> {
    let (out_arg, trunkline) = (out.to_str().unwrap(), trunkline.to_str().unwrap());
    let what = ["run", "beyond/convergence", "--testbed", "--tiny", "--out", out_arg];
    let done = run(&[&what[..], &["--trunkline", trunkline]].concat());
    if skipped(&done) {
        return None;
    }
    let folder = out.join("beyond/convergence-testbed");
    let read = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let csv = read("data.csv");
    let rows = csv.lines().map(|l| l.split(',').map(str::to_owned).collect::<Vec<_>>());
    let rows = rows.filter(|r| r[0] == "testbed" && r[3] == "100").collect();
    let attempts: serde_json::Value =
        serde_json::from_str(&read("testbed.json")).unwrap_or_default();
    let last = attempts.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    Some((text(&done.stdout) + &text(&done.stderr), rows, last["effort"].clone()))
}

#[apply(on_time)]
fn four_daemons_route_alike_soon_after_they_start_and_one_dies() {
    let Some(trunkline) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some((shown, rows, effort)) = converging(dir.path(), &trunkline) else { return };
    let valid = effort["valid"].as_bool().unwrap();
    let events: Vec<_> = rows.iter().map(|r| (r[1].as_str(), r[8].as_str())).collect();
    assert!(!valid || events == [("start", "0"), ("crash", "0")], "{shown}");
    for row in rows.iter().filter(|_| valid) {
        let took: f64 = row[4].parse().unwrap();
        assert!((0.01..1.5).contains(&took), "{row:?}");
        // A dead daemon is noticed only after about a second.
        assert!(row[1] == "start" || took > 0.7, "{row:?}");
    }
    assert!(effort["lateness_us"]["samples"].as_u64().unwrap() > 100, "{effort}");
    assert!(rows.iter().all(|row| row[7].parse::<f64>().unwrap() > 0.0), "{rows:?}");
    for cpu in effort["cpu"].as_array().unwrap() {
        assert!(cpu["seconds"].as_f64().unwrap() > 0.0, "{effort}");
    }
}

#[apply(on_time)]
fn daemons_that_notice_late_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
[ $1 = node ] && printf '[hello]\ninterval = "500 ms"\ndead_after = "4 s"\n' >> "$3""#;
    let Some(trunkline) = sabotaged(dir.path(), script) else { return };
    let Some((shown, rows, effort)) = converging(dir.path(), &trunkline) else { return };
    let crash = rows.iter().find(|r| r[1] == "crash").expect("a row");
    assert!(crash[4].parse::<f64>().unwrap() > 3.0, "{crash:?}");
    let word = if effort["valid"] == true { "fails" } else { "undecided" };
    assert!(shown.contains(&format!("crash: {word} (published: holds)")), "{shown}");
}

#[apply(on_time)]
fn a_void_run_is_repeated_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
tried="$(dirname "$0")/tried"
[ $1 = impair ] && [ ! -e "$tried" ] && touch "$tried" &&
  { "$real" "$@" | sed 's/"p99.9":[0-9.]*/"p99.9":1001.5/'; exit; }"#;
    let Some(trunkline) = sabotaged(dir.path(), script) else { return };
    let Some((done, rows, effort)) = both(dir.path(), &trunkline) else { return };
    let said = text(&done.stderr);
    assert!(said.contains("void: this machine did not keep up: impair late by 1002 µs"), "{said}");
    assert!(said.contains("; trying once more"), "{said}");
    // Only the second attempt counts.
    assert!(effort["lateness_us"]["p99.9"].as_f64().unwrap() != 1001.5, "{effort}");
    assert_eq!(rows.len(), 4, "{rows:?}");
    let valid = if effort["valid"] == true { "yes" } else { "no" };
    assert!(rows[2..].iter().all(|row| row.last().unwrap() == valid), "{rows:?}");
}

/// Ends a run halfway by a signal; returns whether its folder in TMPDIR is left, or `None` if
/// the testbed can't run here.
fn ended_by(signal: Signal) -> Option<bool> {
    let dir = tempfile::tempdir().unwrap();
    let trunkline = sabotaged(dir.path(), "echo $$ >> \"$(dirname \"$0\")/pids\"")?;
    let temporary = dir.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let file = dir.path().join("s.toml");
    fs::write(&file, SCENARIO).unwrap();
    let args = ["run", file.to_str().unwrap(), "--testbed", "--trunkline"];
    // These tests may have been started with signals ignored, which their programs inherit.
    let plain = lab(&args);
    let mut run = Command::new("env");
    run.arg("--default-signal").arg(plain.get_program()).args(plain.get_args());
    run.arg(&trunkline).arg("--out").arg(dir.path()).env("TMPDIR", &temporary);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pids = || fs::read_to_string(dir.path().join("pids")).unwrap_or_default();
    let folders = || fs::read_dir(&temporary).unwrap().flatten();
    // Waits for impair and three daemons, each of which has a socket for calls.
    let sockets = || {
        let files = folders().flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
        files.flatten().filter(|f| f.path().extension().is_some_and(|e| e == "sock")).count()
    };
    let mut ended = false;
    eventually(|| {
        ended = run.try_wait().unwrap().is_some();
        ended || (pids().lines().count() >= 4 && sockets() == 3)
    });
    if ended {
        let done = run.wait_with_output().unwrap();
        assert!(skipped(&done), "the calls take twelve seconds: {}", text(&done.stderr));
        return None;
    }
    kill(Pid::from_raw(run.id().cast_signed()), signal).unwrap();
    assert_eq!(run.wait().unwrap().signal(), Some(signal as i32));
    eventually(|| pids().lines().all(|pid| !Path::new("/proc").join(pid).exists()));
    Some(folders().next().is_some())
}

#[test]
fn nothing_is_left_behind() {
    let left = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT].map(ended_by);
    if left != [None; 3] {
        assert_eq!(left, [Some(true), Some(false), Some(false)]);
    }
}

#[track_caller]
fn eventually(mut test: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !test() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[apply(on_time)]
fn what_it_cannot_do_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let file_arg = file.to_str().unwrap();
    fs::write(&file, SCENARIO).unwrap();
    let testbed = ["run", file_arg, "--testbed", "--out", dir.path().to_str().unwrap()];
    let missing = [&testbed[..], &["--trunkline", "/nowhere/trunkline"]].concat();
    bad(&missing, &["s.toml: /nowhere/trunkline: ", "cargo build", "--trunkline"]);
    bad(
        &["run", "voip-overlay/fig4", "--testbed"],
        &["voip-overlay/fig4: ", ".toml", "beyond/convergence"],
    );
    let mixed = SCENARIO.replace("loses = \"there\"", "recovery = \"off\"");
    fs::write(&file, mixed).unwrap();
    bad(&testbed, &["s.toml: ", "[[link]] recovery: host \"dijon\"", "make them equal"]);
    fs::write(&file, SCENARIO).unwrap();
    let Some(trunkline) = sabotaged(dir.path(), "[ $1 = node ] && echo full disk >&2 && exit 1")
    else {
        return;
    };
    let broken = [&testbed[..], &["--trunkline", trunkline.to_str().unwrap()]].concat();
    bad(&broken, &["s.toml: the node of par\"is ended at once: full disk"]);
}

/// Scenario with two hosts behind routers, TCP and a call in one queue, a link that fails for
/// a while, and a program.
const ROUTED: &str = r#"
length = "6 s"
host = [{ name = "paris" }, { name = "lyon" }]
router = [{ name = "near" }, { name = "far" }]
link = [
  { between = ["paris", "near"], delay = "1ms", rate = "100 Mbit/s" },
  { name = "bottleneck", between = ["near", "far"], delay = "10ms", rate = "10 Mbit/s" },
  { between = ["far", "lyon"], delay = "1ms", rate = "100 Mbit/s" },
  { between = ["paris", "lyon"] },
]
stream = [
  { name = "bulk", kind = "tcp", from = "paris", to = "lyon", start = "1 s", stop = "4 s" },
]
call = [{ from = "paris", to = "lyon" }]
program = [{ host = "lyon", command = ["sh", "-c", "cat /proc/net/dev; echo to {paris}"] }]

[[fault]]
at = "4500ms"
lasts = "500ms"
what = "cut"
link = "bottleneck"
"#;

#[apply(on_time)]
fn kernels_tcp_and_calls_share_a_modelled_queue() {
    let Some(trunkline) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(done) = beside(dir.path(), "r.toml", ROUTED, &[], &trunkline) else { return };
    let shown = text(&done.stdout) + &text(&done.stderr);
    let read = |name: &str| fs::read_to_string(dir.path().join("scenario/r").join(name)).unwrap();
    let row = |csv: &str, place: &str| -> Vec<String> {
        let row =
            csv.lines().find(|line| line.starts_with(place)).unwrap_or_else(|| panic!("{shown}"));
        row.split(',').map(str::to_owned).collect()
    };
    // The rate of 10 Mbit/s, less the call's share and the start of the transfer.
    for place in ["simulator,bulk", "testbed,bulk"] {
        let bulk = row(&read("transfers.csv"), place);
        let goodput: f64 = bulk[2].parse().unwrap();
        assert!((6.0..9.6).contains(&goodput), "{bulk:?}");
    }
    // The cut of half a second loses 25 packets; link delays add up to 12 ms.
    let call = row(&read("data.csv"), "testbed");
    let number = |n: usize| call[n].parse::<f64>().unwrap();
    // The queue has room for 120 ms.
    let valid = call.last().unwrap() == "yes";
    assert!((15.0..150.0).contains(&number(3)), "{call:?}");
    assert!((12.0..if valid { 135.0 } else { 300.0 }).contains(&number(9)), "{call:?}");
    let said = read("program-1.log");
    assert!(said.contains("tl0:") && said.contains("to fd74:6c::1"), "{said}");
    assert!(!said.contains("eth0"), "a host's network is its own: {said}");
}

/// Scenario outside the overlay: two streams and plain calls over a wire that loses every
/// fourth packet, and a stream that is marked on a slow wire.
const PLAIN: &str = r#"
length = "3 s"
host = [{ name = "paris" }, { name = "lyon" }, { name = "rome" }]
link = [
  { between = ["paris", "lyon"], plain = true, delay = "5ms", there = { trace = "losses" } },
  { between = ["paris", "rome"], plain = true, delay = "5ms", rate = "2 Mbit/s",
    queue = "60 packets",
    there = { red = { min = "5 packets", max = "50 packets", max_p = "20%", ecn = true } } },
  { between = ["paris", "lyon"], delay = "5ms", path = "overlay" },
]
stream = [
  { name = "udp", from = "paris", to = "lyon", protocol = "udp", packet = "56 B",
    interval = "10ms" },
  { name = "tcp", from = "paris", to = "lyon", packet = "200 B", interval = "20ms",
    start = "1 s", dscp = 10 },
  { name = "marked", from = "paris", to = "rome", rate = "2.2 Mbit/s", ecn = true },
]
call = [
  { name = "plain", from = "paris", to = "lyon", service = "plain", count = 2 },
  { name = "overlay", from = "paris", to = "lyon" },
]
"#;

#[apply(on_time)]
fn plain_calls_and_streams_meet_the_same_wires_as_in_the_simulator() {
    let Some(trunkline) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("losses"), "0001").unwrap();
    let Some(done) = beside(dir.path(), "p.toml", PLAIN, &["--json"], &trunkline) else { return };
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let is_valid = json["testbed"]["valid"].as_bool().unwrap();
    for place in ["simulator", "testbed"] {
        let row = |table: &str, key: &str, name: &str| {
            let rows = json[table].as_array().unwrap();
            let row = rows.iter().find(|row| row["where"] == place && row[key] == name);
            row.unwrap_or_else(|| panic!("{name}: {json}")).clone()
        };
        let number = |row: &serde_json::Value, column: &str| row[column].as_f64().unwrap();
        let [udp, tcp, marked] =
            ["udp", "tcp", "marked"].map(|name| row("streams", "stream", name));
        let [plain, overlay] = ["plain", "overlay"].map(|name| row("calls", "calls", name));
        let sent = [&udp, &tcp, &plain, &overlay].map(|row| number(row, "sent"));
        assert_eq!(sent, [300.0, 100.0, 300.0, 150.0], "{json}");
        // These three share a wire that loses every fourth packet, whatever their order.
        let lost: f64 = [&udp, &tcp, &plain].map(|row| number(row, "lost")).iter().sum();
        assert_eq!((lost, number(&overlay, "lost")), (175.0, 0.0), "{json}");
        assert_eq!(number(&udp, "marked") + number(&tcp, "marked"), 0.0, "{json}");
        // One packet every 5,454,545 ns, a tenth more than the link's rate allows.
        assert_eq!(number(&marked, "sent"), 551.0, "{json}");
        assert!((5.0..150.0).contains(&number(&marked, "marked")), "{json}");
        let most = if is_valid { 8.0 } else { 100.0 };
        for row in [&plain, &overlay] {
            assert!((5.0..most).contains(&number(row, "delay_p50_ms")), "{json}");
        }
        for row in [&udp, &tcp] {
            assert!((5.0..100.0).contains(&number(row, "delay_max_ms")), "{json}");
        }
        assert!(number(&marked, "delay_max_ms") > 30.0, "it waits in a queue: {json}");
        let valid = if place == "simulator" || is_valid { "yes" } else { "no" };
        assert!([&udp, &plain].iter().all(|row| row["valid"] == valid), "{json}");
    }
    let cpu = json["testbed"]["cpu"].as_array().unwrap();
    assert_eq!(cpu.len(), 7, "impair, three nodes, and who sends or hears outside: {json}");
}

/// Runs a scenario that must fail long before its calls end, with one error line that contains all
/// of `says`.
#[track_caller]
fn fails_at_once(dir: &Path, text: &str, trunkline: &Path, says: &[&str]) {
    let begun = Instant::now();
    let Some(done) = beside(dir, "f.toml", text, &[], trunkline) else { return };
    let said = text_of_errors(&done);
    assert_eq!(done.status.code(), Some(2), "{said}");
    for what in says {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "the calls take two minutes: {said}");
}

/// The only error line of a run, without the messages of daemons.
fn text_of_errors(done: &Output) -> String {
    let said = text(&done.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    lines[0].to_owned()
}

#[apply(on_time)]
fn what_fails_ends_the_run_at_once() {
    let Some(good) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    let long = ROUTED.replace("length = \"6 s\"", "length = \"2 min\"");
    let program = long.replace("cat /proc/net/dev; echo to {paris}", "echo no disk; false");
    assert_ne!(program, long);
    let results = dir.path().join("scenario/f");
    fs::create_dir_all(&results).unwrap();
    for old in ["testbed.json", "data.csv", "streams.csv"] {
        fs::write(results.join(old), "of an earlier run").unwrap();
    }
    let says = ["f.toml: 0.", " s after the calls began: program 1 (`sh -c echo no disk; false`)"];
    let says =
        [&says[..], &["failed, exit status: 1; its last line was: no disk (", ".log)"]].concat();
    fails_at_once(dir.path(), &program, &good, &says);
    // The simulator's results are there, and nothing of an earlier run.
    let rows = fs::read_to_string(results.join("data.csv")).unwrap();
    assert!(rows.contains("\nsimulator,") && !rows.contains("\ntestbed,"), "{rows}");
    assert!(results.join("transfers.csv").exists());
    assert!(!results.join("testbed.json").exists() && !results.join("streams.csv").exists());
    let transfer = long.replace("at = \"4500ms\"\nlasts = \"500ms\"", "at = \"500ms\"");
    assert_ne!(transfer, long);
    let says =
        [" s after the calls began: iperf3, for stream bulk: it does not end: is the path cut"];
    fails_at_once(dir.path(), &transfer, &good, &says);

    // The background timer must not keep the pipes open that the lab reads.
    let after = |who: &str, seconds: u8| {
        format!("{{ {who}; }} && (sleep {seconds}; kill -9 $$) < /dev/null > /dev/null 2>&1 &")
    };
    let who = "[ \"$1\" = node ] && grep -q lyon \"$3\"";
    let Some(dies) = sabotaged(dir.path(), &after(who, 7)) else { return };
    let says = [
        "s after the calls began: the node of lyon has ended, signal: 9 (SIGKILL); its last line was",
    ];
    fails_at_once(dir.path(), &long, &dies, &says);
    // A stopped process counts as failed too, although it has not ended.
    let stops = after(who, 7).replace("kill -9", "kill -STOP");
    let Some(stops) = sabotaged(dir.path(), &stops) else { return };
    let says = ["s after the calls began: the node of lyon was stopped by a signal"];
    fails_at_once(dir.path(), &long, &stops, &says);
    let Some(dies) = sabotaged(dir.path(), &after("[ \"$1\" = impair ]", 3)) else { return };
    let says =
        ["s before the calls began: impair has ended, signal: 9 (SIGKILL); its last line was: imp"];
    fails_at_once(dir.path(), &long, &dies, &says);
}

#[apply(on_time)]
fn a_shell_has_the_network_and_nothing_is_left_of_it() {
    let Some(trunkline) = trunkline() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.toml");
    fs::write(&file, ROUTED).unwrap();
    let (file, trunkline) = (file.to_str().unwrap(), trunkline.to_str().unwrap());
    let shell = |host: &str, script: &str| {
        run(&["shell", file, host, "--trunkline", trunkline, "--", "sh", "-c", script])
    };
    let done = shell("paris", "echo \"$TRUNKLINE_HOSTS\"; cat /proc/net/dev");
    if skipped(&done) {
        return;
    }
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("lyon 10.64.0.2 fd74:6c::2") && said.contains("tl0:"), "{said}");
    assert_eq!(shell("paris", "exit 3").status.code(), Some(1));
    let nobody = shell("nobody", "true");
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("there are paris, lyon"));

    // If the lab is killed with SIGKILL, its hosts and their processes end too.
    let mark = dir.path().join("mark");
    let script = format!("echo $$ > {}; exec sleep 60", mark.display());
    let mut lab = std::process::Command::new(env!("CARGO_BIN_EXE_trunkline-lab"))
        .args(["shell", file, "paris", "--trunkline", trunkline, "--", "sh", "-c", &script])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let pid = loop {
        let pid = fs::read_to_string(&mark).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        assert!(Instant::now() < until, "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    };
    lab.kill().unwrap();
    lab.wait().unwrap();
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while runs() {
        assert!(Instant::now() < until, "what was run is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
