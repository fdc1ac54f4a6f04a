//! `trunkline impair --hosts` with misbehaving hosts and surroundings.

use crate::common::emulator::{
    Emulator, TEXT, THREE, counted, inhabitants, is_reached, packets, reach,
};
use crate::common::on_time::on_time;
use crate::common::{ms, temp_dir, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Instant;

#[apply(on_time)]
fn a_host_that_loses_its_device_is_named_and_the_others_go_on() {
    let dir = temp_dir();
    let Some(mut emulator) = Emulator::start(dir.path(), THREE, &[]) else { return };
    reach(&emulator, 0, 1);
    reach(&emulator, 1, 2);
    for command in ["link set tl0 down", "link set tl0 up", "link set tl0 mtu 9000"] {
        emulator.ip(0, command);
        reach(&emulator, 1, 2);
    }
    // The kernel has lost its routes but still receives.
    reach(&emulator, 1, 0);
    emulator.ip(0, "link del tl0");
    let said = emulator.line();
    assert!(said.contains("host a has lost its device"), "{said}");
    assert!(!is_reached(&emulator, 1, 0));
    reach(&emulator, 1, 2);
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

#[apply(on_time)]
fn a_run_that_is_killed_leaves_nothing() {
    let dir = temp_dir();
    let Some(mut emulator) = Emulator::start(dir.path(), TEXT, &[]) else { return };
    let net = emulator.hosts[0].net.clone();
    let number = fs::read_link(&net).expect("a namespace");
    assert_eq!(inhabitants(&number), 0, "it is held by its descriptor alone");
    let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
    assert!(own != number && inhabitants(&own) > 0);
    // A program there inherits no descriptors of other hosts' devices.
    let seen = emulator.enter(0).args(["ls", "-l", "/proc/self/fd"]).output();
    let seen = String::from_utf8_lossy(&seen.expect("it ends").stdout).into_owned();
    assert!(seen.contains("0 ->") && !seen.contains("tun") && !seen.contains("net:"), "{seen}");
    emulator.child.kill().expect("killed");
    emulator.child.wait().expect("dead");
    assert!(!net.exists() && inhabitants(&number) == 0);
}

#[apply(on_time)]
fn whoever_says_what_nobody_reads_passes_packets_on() {
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), THREE, &[]) else { return };
    // Longer than a pipe's buffer. The quoted text exceeds the size that a pipe accepts atomically.
    let delay = "x".repeat(5_000);
    let long = THREE.replacen("between", &format!("delay = \"{delay}\", between"), 1);
    fs::write(dir.path().join("net.toml"), long).expect("written");
    for _ in 0..1_500 {
        emulator.signal(Signal::SIGHUP);
        thread::sleep(ms(1));
    }
    reach(&emulator, 0, 1);
    // It can still be stopped.
    emulator.stop();
}

#[apply(on_time)]
fn whoever_provokes_errors_gets_few_of_them() {
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), THREE, &[]) else { return };
    let all = emulator.at(1, 9);
    let start = Instant::now();
    // Maximum number of errors sent to the host so far: 50 at once, and one per millisecond.
    let most = || 50 + start.elapsed().as_millis() as u64;
    // Continue until the emulator has had far more to reject, even if it gets little processor
    // time.
    wait_for("a flood", || {
        let provoke = emulator.within(0, move || {
            let sockets = ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).expect("bound"));
            SockRef::from(&sockets[0]).set_ttl_v4(1).expect("set");
            SockRef::from(&sockets[1]).set_unicast_hops_v6(1).expect("set");
            let start = Instant::now();
            while start.elapsed() < ms(500) {
                for (socket, to) in sockets.iter().zip(all) {
                    let _ = socket.send_to(b"", to);
                }
            }
        });
        provoke.join().expect("it ends");
        (emulator.read_from(0) > 3 * most()).then_some(())
    });
    // All earlier packets have been answered by now.
    reach(&emulator, 0, 1);
    let told = emulator.within(0, || ["Icmp: InTimeExcds", "Icmp6InTimeExcds"].map(counted));
    let told = told.join().expect("it counts");
    let (told, most) = (told[0] + told[1], most());
    let report = emulator.stop();
    let expired = packets(&report["hosts"][0]["expired"]);
    assert!((50..=most).contains(&told) && expired > 2 * most, "{told} of {expired}");
}

#[apply(on_time)]
fn what_is_no_packet_goes_nowhere_and_a_flood_is_soon_over() {
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), TEXT, &[]) else { return };
    let (from, to) = (emulator.at(0, 0)[0].ip(), emulator.at(1, 9)[0].ip());
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("{from} {to}") };
    let flood = emulator.within(0, move || {
        // The kernel fills in only the length and the checksum.
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)));
        let (socket, to_any) = (socket.expect("root"), SocketAddr::from((to, 0)).into());
        let mut rng = Pcg64Mcg::new(5);
        for n in 0..200_000_usize {
            let right = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
            let mut packet = [&right[..], &from.octets(), &to.octets()].concat();
            packet.extend((0..n % 60).map(|_| rng.random::<u8>()));
            // Nothing, one byte, or the whole header is wrong.
            let wrong = match n % 3 {
                0 => 0..0,
                1 => (n / 3 % 20)..(n / 3 % 20 + 1),
                _ => 0..20,
            };
            wrong.for_each(|at| packet[at] = rng.random());
            let _ = socket.send_to(&packet, &to_any);
        }
    });
    flood.join().expect("it ends");
    // It recovers with little work, however long that takes on a busy machine.
    let before = emulator.cpu_seconds();
    reach(&emulator, 0, 1);
    let took = emulator.cpu_seconds() - before;
    assert!(took < 1.0, "it takes {took} s of processor time to recover");
    let report = emulator.stop();
    let a = &report["hosts"][0];
    for count in ["malformed", "foreign", "unroutable", "sent"] {
        assert!(packets(&a[count]) > 0, "{count}: {a}");
    }
}
