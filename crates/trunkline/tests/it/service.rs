//! The systemd unit: systemd accepts it, it limits the node's exposure, and the node notifies
//! systemd when it is ready.

use crate::common::on_time::on_time;
use crate::common::{Chain, PATIENCE, Process, Setup, ms, run, temp_dir, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use trunkline_client::{DatagramSocket, SocketOption};

/// Maximum exposure on systemd's scale of 10, where "OK" begins below 5. A service without any
/// hardening has 9.6.
const MAX_EXPOSURE: f64 = 2.0;

fn unit() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/trunkline");
    fs::read_to_string(root.join("packaging/trunkline@.service")).expect("there")
}

/// Runs `systemd-analyze ARGS UNIT` on a unit with contents `text`; `None` if the program is not
/// installed.
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
    // It would report a mistake.
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
    assert!(level <= MAX_EXPOSURE, "{level}: {said}");
    println!("exposure {level} of 10");
}

#[apply(on_time)]
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
    let mut process = Process::start(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(told(), "READY=1");
    assert!(node.socket.exists(), "ready means ready");
    process.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(process.wait().code(), Some(0));
}

/// Only the packet thread really hangs here: it writes a recording to a pipe without a reader.
#[apply(on_time)]
fn the_watchdog_hears_of_a_packet_thread_that_turns_and_of_no_other() {
    let dir = temp_dir();
    let [path, pipe] = ["notify", "pipe"].map(|name| dir.path().join(name));
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("in range");
    let told = || {
        let mut bytes = [0; 256];
        let n = manager.recv(&mut bytes)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&bytes[..n]).trim().to_owned())
    };
    mkfifo(&pipe, Mode::from_bits_truncate(0o600)).expect("made");
    // Opened for both, the pipe never blocks and never ends.
    let mut drain = fs::File::options().read(true).write(true).open(&pipe).expect("open");
    let mut chain = Chain::prepare(&Setup::default());
    let node = chain.first();
    let mut command = node.command();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    let mut process = Process::start(command.args(["--record", pipe.to_str().expect("text")]));
    assert_eq!(told().expect("in time"), "READY=1");
    // Expect at least two within the 2 s, while no event wakes the thread.
    let begun = Instant::now();
    for _ in 0..4 {
        assert_eq!(told().expect("in time"), "WATCHDOG=1");
    }
    let took = begun.elapsed();
    assert!((1_500..4_000).contains(&took.as_millis()), "four within {took:?}");

    let full = |socket: &DatagramSocket| {
        let packet = [7; 1_000];
        while socket.send_to(&packet, socket.local_addr()).is_ok() {}
    };
    let socket = node.bind(4_000);
    socket.set_option(SocketOption::Nonblocking(true)).expect("in range");
    // It hangs for as long as its queue stays full.
    wait_for("a packet thread that hangs", || {
        full(&socket);
        std::thread::sleep(ms(1_000));
        let hangs = socket.send_to(b"?", socket.local_addr()).is_err();
        hangs.then_some(())
    });
    manager.set_nonblocking(true).expect("set");
    while told().is_ok() {}
    std::thread::sleep(ms(2_500));
    let said = told().expect_err("nobody tells of a thread that hangs");
    assert_eq!(said.kind(), io::ErrorKind::WouldBlock);
    assert!(process.is_running(), "what hangs is one thread");

    // When the thread resumes, so does the watchdog.
    std::thread::spawn(move || io::copy(&mut drain, &mut io::sink()));
    manager.set_nonblocking(false).expect("set");
    assert_eq!(told().expect("in time"), "WATCHDOG=1");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait().code(), Some(0));
}

/// The service manager has requested notifications, but does not read them.
#[apply(on_time)]
fn a_service_manager_that_hangs_does_not_keep_a_node_from_stopping() {
    let dir = temp_dir();
    let path = dir.path().join("notify");
    let _manager = UnixDatagram::bind(&path).expect("bound");
    let mut chain = Chain::prepare(&Setup::default());
    let node = chain.first();
    let mut command = node.command();
    let mut process =
        Process::start(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "40000"));
    // Fill its queue completely.
    let other = UnixDatagram::unbound().expect("a socket");
    other.set_nonblocking(true).expect("set");
    wait_for("a full queue", || other.send_to(b"?", &path).is_err().then_some(()));
    // There are notifications to send meanwhile.
    std::thread::sleep(ms(500));
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[apply(on_time)]
fn the_unit_restarts_a_node_that_hangs() {
    let unit = unit();
    assert!(unit.contains("\nWatchdogSec=10\n") && unit.contains("\nRestart=on-failure\n"));
}
