//! `trunkline demo`: the first command that a user tries.

use crate::common::on_time::on_time;
use crate::common::{self, Process, ms, run, temp_dir, trunkline};
use macro_rules_attribute::apply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::thread;
use trunkline_media::audio::read_wav;

/// Number of calls in a demo. Two of them send packets at the same time, so that a trunk combines
/// these.
const CALLS: u32 = 6;

/// A demo with all its files below `dir`.
fn demo(dir: &Path, seconds: u32, more: &[&str]) -> Command {
    let mut command = trunkline(["demo", "--hops", "2", "--json", "--seconds"]);
    command.arg(seconds.to_string()).arg("--calls").arg(CALLS.to_string());
    command.env("TMPDIR", dir).arg("--out").arg(dir.join("out")).args(more);
    command
}

/// The processes with `dir` in their command line: ID and command line.
fn processes(dir: &Path) -> Vec<(i32, String)> {
    let dir = dir.to_str().expect("text");
    let all = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    all.filter_map(|p| {
        let id = p.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(p.path().join("cmdline")).ok()?;
        Some((id, String::from_utf8_lossy(&line).replace('\0', " ")))
    })
    .filter(|(_, line)| line.contains(dir))
    .collect()
}

#[track_caller]
fn assert_tidy(dir: &Path) {
    let gone = (0..30).any(|_| {
        thread::sleep(ms(100));
        processes(dir).is_empty()
    });
    let left = processes(dir);
    for (id, _) in &left {
        let _ = kill(Pid::from_raw(*id), Signal::SIGKILL);
    }
    assert!(gone, "still there after 3 s: {left:?}");
}

#[track_caller]
fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_else(|| panic!("{key} in {v}"))
}

fn check(result: &Value, sent: f64) {
    assert_eq!(result["seed"], 7);
    assert_eq!(result["ledger"]["problems"], Value::Array(vec![]), "{}", result["ledger"]);
    let runs = result["runs"].as_array().expect("runs");
    let services: Vec<_> = runs.iter().map(|r| r["service"].as_str()).collect();
    assert_eq!(services, ["udp", "best-effort", "once", "real-time", "trunk"].map(Some));
    for run in runs {
        assert!(number(run, "sent") <= 900.0 && number(run, "sent") >= sent, "{run}");
        let missed = (number(run, "lost") + number(run, "late")) / number(run, "sent") * 100.0;
        assert!((number(run, "missed_percent") - missed).abs() < 1e-9, "{run}");
        let interval = &run["missed_interval"];
        let bound = |i: usize| interval[i].as_f64().expect("a number");
        assert!((0.0..=missed).contains(&bound(0)) && (missed..=100.0).contains(&bound(1)));
        let delay = &run["delay_ms"];
        let quantiles = ["p50", "p99", "max"].map(|q| number(delay, q));
        assert!(quantiles.is_sorted() && quantiles[0] >= 20.0, "two links of 10 ms: {delay}");
        // The E-model has no lower bound: a call with a long gap is below it.
        assert!(number(run, "r") <= 100.0, "{run}");
        assert!((1.0..=4.5).contains(&number(run, "mos")), "{run}");
        let pesq = &run["pesq"];
        // A call of 3 s is one segment.
        assert_eq!(pesq["segments"], CALLS, "{run}");
        let (mean, p5) = (number(pesq, "mean"), number(pesq, "p5"));
        assert!(-0.5 <= p5 && p5 <= mean && mean < 4.5, "{run}");
    }
    let recovered = |i: usize| number(&runs[i], "recovered");
    assert_eq!((recovered(0), recovered(1)), (0.0, 0.0));
}

#[apply(on_time)]
fn a_short_demo_is_complete() {
    let dir = temp_dir();
    let ended = run(&mut demo(dir.path(), 3, &["--seed", "7", "--loss", "10%"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    check(&result, 900.0);
    let runs = &result["runs"];
    // The expected loss is 90 of 900 packets.
    let lost = [0, 1, 2, 3, 4].map(|i| number(&runs[i], "lost"));
    assert!(lost[0] > 20.0 && lost[1] > 20.0, "{lost:?}");
    for i in [2, 3, 4] {
        assert!(lost[i] < lost[1] && number(&runs[i], "recovered") > 20.0, "{runs}");
    }
    // A single request each leaves 17 of 900 missing; the rest are requested again.
    assert!(lost[3] <= lost[2], "{lost:?}");
    // The rating without concealment is about 24.
    assert!(number(&runs[0], "r") > 30.0, "{runs}");
    let pesq = [0, 1, 2, 3].map(|i| number(&runs[i]["pesq"], "mean"));
    assert!(pesq[3] > 3.5 && pesq[3] > pesq[0] + 0.3 && pesq[3] > pesq[1] + 0.3, "{pesq:?}");
    let overhead = [0, 1, 2, 3, 4].map(|i| number(&runs[i], "overhead_percent"));
    // Losses are on one of two links, so some packets cross only the other.
    assert!(overhead[0] == 0.0 && overhead[1].abs() < 10.0, "{overhead:?}");
    assert!((1.0..50.0).contains(&overhead[2]), "{overhead:?}");
    assert!((1.0..50.0).contains(&overhead[3]), "{overhead:?}");
    assert!((1.0..50.0).contains(&overhead[4]), "{overhead:?}");
    // IP, UDP, RTP and 20 ms of G.711; over the overlay 44 more (docs/protocol.md).
    let wire = |i: usize, what: &str| number(&runs[i]["wire"], what);
    let bytes = [0, 1, 2, 3, 4].map(|i| wire(i, "bytes_per_voice_packet"));
    assert_eq!(bytes[..4], [200.0, 244.0, 244.0, 244.0], "{runs}");
    assert!((172.0..244.0).contains(&bytes[4]), "{runs}");
    let rate = [0, 3, 4].map(|i| wire(i, "packets_per_second"));
    // The 900 packets span 4.27 s.
    assert!((rate[0] - 211.0).abs() < 3.0 && (rate[1] - rate[0]).abs() < 3.0, "{rate:?}");
    assert!(rate[2] < 0.75 * rate[1], "pairs leave together: {rate:?}");
    let out = dir.path().join("out");
    let saved = std::fs::read_to_string(out.join("result.json")).expect("written");
    assert_eq!(serde_json::from_str::<Value>(&saved).expect("JSON"), result);
    for service in ["udp", "best-effort", "once", "real-time", "trunk"] {
        for call in 1..=CALLS {
            let name = format!("{service}-{call:02}.wav");
            let file = std::fs::File::open(out.join(&name)).expect("written");
            let pcm = read_wav(std::io::BufReader::new(file)).expect("a WAV file");
            assert_eq!(pcm.len(), 3 * 8_000, "{name}");
            assert!(pcm.iter().any(|s| s.unsigned_abs() > 1_000), "{name} is silent");
        }
    }
    assert_tidy(dir.path());
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("there").collect();
    assert_eq!(left.len(), 1, "only the output is left: {left:?}");
}

#[apply(on_time)]
fn a_crash_in_the_middle_costs_a_gap() {
    let dir = temp_dir();
    let ended = run(&mut demo(dir.path(), 3, &["--seed", "7", "--loss", "0", "--restart", "B"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    check(&result, 600.0);
    let restart = &result["restart"];
    assert!(number(restart, "down_ms") >= 300.0, "{restart}");
    let gaps = restart["gap_ms"].as_array().expect("gaps");
    let gap = |i: usize| gaps[i][1].as_f64().expect("a number");
    assert!(gap(0) < 300.0, "UDP does not pass node B: {restart}");
    assert!((1..5).all(|i| gap(i) >= 250.0), "nodes do: {restart}");
    assert!((1..5).all(|i| gap(i) < 3_000.0), "and come back: {restart}");
    // The killed node's counts are lost, so the overhead is unknown.
    assert!(result["runs"][3]["overhead_percent"].is_null(), "{result}");
    assert_tidy(dir.path());
}

#[test]
fn mistakes_are_told_at_once() {
    let dir = temp_dir();
    let blocked = dir.path().join("file");
    std::fs::write(&blocked, "").expect("written");
    let ended = run(demo(dir.path(), 3, &[]).arg("--speech").arg(&blocked));
    assert!(ended.one_line(2).contains("file: this WAV file is cut short"), "{}", ended.stderr);
    let ended = run(&mut demo(dir.path(), 3, &["--restart", "Z"]));
    assert!(ended.one_line(2).contains("the nodes are A to C"), "{}", ended.stderr);
    let mut command = trunkline(["demo", "--seconds", "3", "--out"]);
    let ended = run(command.env("TMPDIR", dir.path()).arg(blocked.join("out")));
    assert!(ended.one_line(1).contains("file/out"), "{}", ended.stderr);
    assert!(processes(dir.path()).is_empty(), "{:?}", processes(dir.path()));
}

#[apply(on_time)]
fn nothing_outlives_a_demo_that_is_killed() {
    let dir = temp_dir();
    let mut process = Process::start(&mut demo(dir.path(), 60, &[]));
    common::wait_for("nodes and impair", || (processes(dir.path()).len() >= 5).then_some(()));
    process.crash();
    assert_tidy(dir.path());
}
