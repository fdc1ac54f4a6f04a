//! `trunkline impair --hosts`, where hosts or what is around them misbehave.

mod common;

use common::emulator::{Emulator, TEXT, THREE, inhabitants, is_reached, packets};
use common::{ms, temp_dir};
use nix::sys::signal::Signal;
use std::fs;
use std::thread;

#[test]
fn a_host_that_loses_its_device_is_named_and_the_others_go_on() {
    let dir = temp_dir();
    let Some(mut emulator) = Emulator::start(dir.path(), THREE, &[]) else { return };
    assert!(is_reached(&emulator, 0, 1) && is_reached(&emulator, 1, 2));
    for command in ["link set tl0 down", "link set tl0 up", "link set tl0 mtu 9000"] {
        emulator.ip(0, command);
        assert!(is_reached(&emulator, 1, 2), "{command}");
    }
    // Its kernel has forgotten routes, not what comes in.
    assert!(is_reached(&emulator, 1, 0));
    emulator.ip(0, "link del tl0");
    let said = emulator.line();
    assert!(said.contains("host a has lost its device"), "{said}");
    assert!(!is_reached(&emulator, 1, 0) && is_reached(&emulator, 1, 2));
    emulator.ip(1, "link del tl0");
    let said = emulator.line();
    assert!(said.contains("host b has lost its device"), "once of each: {said}");
    let before = emulator.cpu_seconds();
    thread::sleep(ms(1_000));
    let took = emulator.cpu_seconds() - before;
    assert!(took < 0.2, "it does nothing, for {took} s of a second");
    let report = emulator.stop();
    assert_eq!(packets(&report["hosts"][0]["refused"]), 1, "{report}");
    assert_eq!(packets(&report["hosts"][2]["refused"]), 0, "{report}");
}

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let dir = temp_dir();
    let Some(mut emulator) = Emulator::start(dir.path(), TEXT, &[]) else { return };
    let net = emulator.hosts[0].net.clone();
    let number = fs::read_link(&net).expect("a namespace");
    assert_eq!(inhabitants(&number), 0, "it is held by its descriptor alone");
    let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
    assert!(own != number && inhabitants(&own) > 0);
    // Who runs there gets no descriptor of the others' devices.
    let seen = emulator.enter(0).args(["ls", "-l", "/proc/self/fd"]).output();
    let seen = String::from_utf8_lossy(&seen.expect("it ends").stdout).into_owned();
    assert!(seen.contains("0 ->") && !seen.contains("tun") && !seen.contains("net:"), "{seen}");
    emulator.child.kill().expect("killed");
    emulator.child.wait().expect("dead");
    assert!(!net.exists() && inhabitants(&number) == 0);
}

#[test]
fn whoever_says_what_nobody_reads_passes_packets_on() {
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), THREE, &[]) else { return };
    // More than a pipe takes, of lines as long as a path.
    fs::write(dir.path().join("net.toml"), "garbage").expect("written");
    for _ in 0..1_500 {
        emulator.signal(Signal::SIGHUP);
        thread::sleep(ms(1));
    }
    assert!(is_reached(&emulator, 0, 1));
    // It ends, too.
    emulator.stop();
}
