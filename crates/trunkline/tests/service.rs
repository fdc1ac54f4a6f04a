//! The unit for systemd: that systemd understands it, how exposed it leaves the
//! node, and that the node tells it when it is ready.

mod common;

use common::{Chain, Setup, ms, run, temp_dir};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

/// Of 10; what systemd calls "OK" begins below 5. A service without any
/// hardening has 9.6.
const MOST_EXPOSED: f64 = 2.0;

fn unit() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/trunkline");
    fs::read_to_string(root.join("packaging/trunkline@.service")).expect("there")
}

/// `systemd-analyze ARGS UNIT`, with the unit as `text` has it; nothing if there
/// is no such program.
fn analyze(args: &[&str], text: &str) -> Option<(Option<i32>, String)> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: no systemd-analyze");
        return None;
    }
    let dir = temp_dir();
    let file = dir.path().join("trunkline@.service");
    let exe = env!("CARGO_BIN_EXE_trunkline");
    let text = text.replace("/usr/local/bin/trunkline", exe);
    fs::write(&file, text.replace("Documentation=man:trunkline-node(1)\n", "")).expect("written");
    let ended = run(Command::new("systemd-analyze").args(args).arg(&file));
    Some((ended.code, ended.stdout + &ended.stderr))
}

#[test]
fn systemd_understands_the_unit() {
    let args = ["verify", "--man=no", "--recursive-errors=no"];
    let Some((code, said)) = analyze(&args, &unit()) else { return };
    assert!(code == Some(0) && !said.contains("trunkline@"), "{said}");
    // It would say so.
    let wrong = unit().replace("ProtectSystem=strict", "ProtectSystem=stricter");
    let said = analyze(&args, &wrong).expect("as before").1;
    assert!(said.contains("Failed to parse protect system value"), "{said}");
}

#[test]
fn the_unit_leaves_little_exposed() {
    let Some((_, said)) = analyze(&["security", "--offline=true", "--no-pager"], &unit()) else {
        return;
    };
    let level = said.split("Overall exposure level for ").nth(1);
    let level = level.and_then(|l| l.split(": ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    let Some(level) = level else {
        return println!("skipped: this systemd-analyze does not judge files: {said}");
    };
    assert!(level <= MOST_EXPOSED, "{level}: {said}");
    println!("exposure {level} of 10");
}

#[test]
fn the_service_manager_is_told() {
    let dir = temp_dir();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(ms(5_000))).expect("in range");
    let told = || {
        let mut bytes = [0; 256];
        let n = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..n]).trim().to_owned()
    };
    let mut chain = Chain::prepare(&Setup::default());
    let node = chain.first();
    let mut command = node.command();
    let mut process = common::Process::start(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(told(), "READY=1");
    assert!(node.socket.exists(), "ready means ready");
    process.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(process.wait().code(), Some(0));
}
