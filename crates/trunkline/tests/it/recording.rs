//! Recording a node with `node --record`, and replaying with `replay`.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Ended, Setup, ms, run, stream, trunkline};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use trunkline_client::{Address, NodeId, Service, SocketOption};

/// Length of the signature at the start of a recording.
const MAGIC: usize = 8;
/// Kinds of record; see the daemon's `record` module.
const MESSAGE: u8 = 4;
const DELIVERED: u8 = 8;
const SENT: u8 = 9;

/// Records node 1 while it does everything that a node does.
fn record() -> (Chain, PathBuf) {
    let impair = "delay = \"3ms\"\nloss = \"10%\"";
    let mut chain = Chain::prepare(&Setup { impair, sealed: true, ..Setup::default() });
    let file = chain.dir.path().join("1.rec");
    chain.nodes[0].start_with(&["--record", file.to_str().expect("text")]);
    chain.nodes[1].start();
    chain.wait_until_up();
    let (here, there) = (chain.nodes[0].bind(4_000), chain.nodes[1].bind(4_000));
    for service in [Service::RealTime, Service::BestEffort] {
        for (from, to) in [(&here, &there), (&there, &here)] {
            from.set_option(SocketOption::Service(service)).expect("in range");
            assert!(stream(from, to, 0..100, ms(2)).len() > 50);
        }
    }
    here.send_to(b"nowhere", Address { node: NodeId(9), port: 9 }).expect("sent");
    here.recv_from(&mut [0; 10]).expect_err("no route");
    drop(here);
    chain.first().process().signal(Signal::SIGTERM);
    assert_eq!(chain.first().process().wait().code(), Some(0));
    (chain, file)
}

/// Splits `bytes` into records: start, kind and body.
fn records(bytes: &[u8]) -> Vec<(usize, u8, &[u8])> {
    let mut records = Vec::new();
    let mut at = MAGIC;
    while at < bytes.len() {
        let len = u32::from_be_bytes(bytes[at + 1..at + 5].try_into().expect("four bytes"));
        let end = at + 5 + len as usize;
        records.push((at, bytes[at], &bytes[at + 5..end]));
        at = end;
    }
    records
}

fn replay(path: &Path) -> Ended {
    run(trunkline(["replay"]).arg(path))
}

#[test]
fn a_recording_replays_and_damage_shows() {
    let (chain, file) = record();
    let ended = replay(&file);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains(": identical: "), "{}", ended.stdout);
    assert!(!ended.stdout.contains("cut off"), "{}", ended.stdout);
    let json = run(trunkline(["replay", "--json"]).arg(&file));
    let summary: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(summary["identical"], true);
    for key in ["inputs", "datagrams_in", "messages_in", "runs_out", "bytes_out", "messages_out"] {
        assert!(summary[key].as_u64().expect("a number") > 0, "{key} in {summary}");
    }

    let whole = std::fs::read(&file).expect("there");
    let all = records(&whole);
    let damaged = chain.dir.path().join("damaged.rec");
    // Change one byte of an output, or of an input that affects an output.
    for kind in [SENT, DELIVERED, MESSAGE] {
        let of_kind: Vec<_> = all.iter().filter(|r| r.1 == kind).collect();
        let (at, _, body) = of_kind[of_kind.len() / 2];
        let mut bytes = whole.clone();
        bytes[at + 5 + body.len() - 1] ^= 1;
        std::fs::write(&damaged, bytes).expect("written");
        let ended = replay(&damaged);
        let line = ended.one_line(1);
        assert!(line.contains("damaged.rec: differs at byte "), "kind {kind}: {line}");
    }

    // A crash of the node truncates the recording anywhere.
    let (middle, _, body) = all[all.len() / 2];
    for end in [middle + 3, middle + 5 + body.len() / 2, whole.len() - 1] {
        std::fs::write(&damaged, &whole[..end]).expect("written");
        let ended = replay(&damaged);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{end}");
        assert!(ended.stdout.contains("the last record is cut off"), "{}", ended.stdout);
    }

    // A record of an unknown kind.
    let mut bytes = whole.clone();
    bytes[middle] = 77;
    std::fs::write(&damaged, bytes).expect("written");
    let ended = replay(&damaged);
    assert!(ended.one_line(1).contains(&format!("damaged at byte {middle}")), "{}", ended.stderr);
}

#[test]
fn what_is_no_recording_is_told_so() {
    let dir = common::temp_dir();
    let file = dir.path().join("x.rec");
    let texts: [&[u8]; 4] = [b"", b"garbage\n", b"TLREC\x00\x00\x01", &[0xff; 5_000]];
    for text in texts {
        std::fs::write(&file, text).expect("written");
        let ended = replay(&file);
        let line = ended.one_line(2);
        assert!(line.contains("x.rec is not a recording of this version"), "{line}");
    }
    let ended = replay(&dir.path().join("absent.rec"));
    assert!(ended.one_line(2).contains("absent.rec: No such file"), "{}", ended.stderr);
}

#[apply(on_time)]
fn a_recording_that_cannot_be_written_is_known_at_once() {
    let chain = Chain::prepare(&Setup::default());
    let node = &chain.nodes[0];
    let ended = run(node.command().args(["--record", "/dev/null/1.rec"]));
    let line = ended.one_line(1);
    assert!(line.contains("cannot record to /dev/null/1.rec"), "{line}");
    assert!(!node.socket.exists());
}

#[apply(on_time)]
fn a_recording_is_for_its_owner_alone() {
    let mut chain = Chain::prepare(&Setup { sealed: true, ..Setup::default() });
    let dir = chain.dir.path().to_owned();
    let node = chain.first();
    let [new, open, link] = ["new.rec", "open.rec", "link.rec"].map(|name| dir.join(name));
    let arg = |file: &Path| file.to_str().expect("text").to_owned();
    let mode = |file: &Path| fs::metadata(file).expect("there").mode() & 0o777;

    // Once to a new file, and once over an earlier recording.
    for _ in 0..2 {
        node.start_with(&["--record", &arg(&new)]);
        assert_eq!(mode(&new), 0o600);
        node.process().signal(Signal::SIGTERM);
        assert_eq!(node.process().wait().code(), Some(0));
        assert_eq!(replay(&new).code, Some(0));
    }

    // Others may have the file open, so making it private would be too late.
    for bits in [0o644, 0o640, 0o602] {
        fs::write(&open, "mine").expect("written");
        fs::set_permissions(&open, fs::Permissions::from_mode(bits)).expect("set");
        let ended = run(node.command().args(["--record", &arg(&open)]));
        let line = ended.one_line(1);
        assert!(line.contains("open.rec: other users may read or change"), "{line}");
        assert!(line.contains("remove it, or take another name"), "{line}");
        assert_eq!(fs::read_to_string(&open).expect("text"), "mine", "it is as it was");
    }

    // Another user may have chosen the target of the link.
    std::os::unix::fs::symlink(&new, &link).expect("a link");
    let before = fs::read(&new).expect("there");
    let ended = run(node.command().args(["--record", &arg(&link)]));
    assert!(ended.one_line(1).contains("link.rec: it is a symbolic link"), "{}", ended.stderr);
    assert!(fs::read(&new).expect("there") == before, "it is as it was");
}

#[apply(on_time)]
fn a_full_disk_is_told() {
    let mut chain = Chain::prepare(&Setup::default());
    let node = chain.first();
    for waits in [false, true] {
        node.start_with(&["--record", "/dev/full"]);
        if waits {
            // Without calls, the data to be written would stay in memory for an hour.
            let begun = Instant::now();
            node.process().wait_for_word("the recording stops here");
            assert!(begun.elapsed() < ms(4_000), "told after {:?}", begun.elapsed());
        }
        node.process().signal(Signal::SIGTERM);
        assert_eq!(node.process().wait().code(), Some(1));
        let (_, stderr) = node.process().rest();
        assert!(stderr.contains("recording is cut short: No space left"), "{stderr}");
    }
}
