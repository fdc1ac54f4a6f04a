//! `trunkline impair --hosts`: the kernels' real packets over a modelled network.

use crate::common::emulator::{
    Emulator, PROGRAM, TEXT, THREE, assert_documented, counted, inhabitants, is_root, packets,
    reach, skip,
};
use crate::common::on_time::on_time;
use crate::common::{self, PATIENCE, ms, temp_dir, wait_for};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Sends bytes over TCP for `seconds`, and returns the bytes received per second.
fn transfer(emulator: &Emulator, to: SocketAddr, seconds: f64) -> f64 {
    let (listening, listens) = std::sync::mpsc::channel();
    let listener = emulator.within(1, move || {
        let listener = TcpListener::bind(to).expect("bound");
        listening.send(()).expect("waited for");
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut buffer, mut bytes, start) = (vec![0; 65_536], 0, Instant::now());
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            bytes += n;
        }
        bytes as f64 / start.elapsed().as_secs_f64()
    });
    listens.recv().expect("it listens");
    let sender = emulator.within(0, move || {
        let mut stream = TcpStream::connect_timeout(&to, ms(5_000)).expect("connected");
        let (buffer, start) = (vec![0; 16_384], Instant::now());
        while start.elapsed().as_secs_f64() < seconds {
            stream.write_all(&buffer).expect("written");
        }
    });
    sender.join().expect("it sends");
    listener.join().expect("it listens")
}

#[apply(on_time)]
fn a_kernels_tcp_fills_a_modelled_link() {
    let dir = temp_dir();
    let capture = dir.path().join("a.pcapng");
    let pcap = format!("a={}", capture.display());
    let Some(emulator) = Emulator::start(dir.path(), TEXT, &["--pcap", &pcap]) else { return };
    for to in emulator.at(1, 5_000) {
        // Each packet of 1,400 bytes has 1,348 or 1,328 bytes of payload. Some are in flight at
        // either end.
        let share = if to.is_ipv4() { 1_348.0 } else { 1_328.0 } / 1_400.0;
        let goodput = transfer(&emulator, to, 3.0) * 8.0;
        let most = 10e6 * share;
        assert!((0.8 * most..=1.02 * most).contains(&goodput), "{to}: {goodput} of {most}");
    }
    let report = emulator.stop();
    assert_documented(&report);
    let [a, b] = [0, 1].map(|n| &report["hosts"][n]);
    assert_eq!(a["tcp"]["net.ipv4.tcp_congestion_control"], "reno");
    // The first segments were too long for the last edge, and the sender was notified; over IPv6
    // even a SYN triggers that.
    assert!(packets(&a["sent"]) > 1_000 && packets(&b["received"]) > 1_000, "{report}");
    for edge in report["edges"].as_array().expect("edges") {
        for way in ["forward", "reverse"] {
            let parts = ["arrived", "lost", "queue_dropped", "pool_dropped", "in_flight"];
            let sum: u64 = parts.iter().map(|part| packets(&edge[way][*part])).sum();
            assert_eq!(packets(&edge[way]["offered"]), sum, "{edge}");
        }
    }
    let captured = fs::metadata(capture).expect("a capture").len();
    assert!(captured > report["hosts"][0]["sent"]["bytes"].as_u64().expect("a number"));
}

#[apply(on_time)]
fn delay_is_the_models_and_what_links_do_may_change() {
    let dir = temp_dir();
    let Some(mut emulator) = Emulator::start(dir.path(), TEXT, &["--punctual"]) else { return };
    let to = emulator.at(1, 5_000)[1];
    let socket = emulator.within(1, move || UdpSocket::bind(to).expect("bound"));
    let socket = socket.join().expect("it listens");
    let echo = thread::spawn(move || {
        let mut buffer = [0; 2_000];
        loop {
            let (n, from) = socket.recv_from(&mut buffer).expect("a datagram");
            if n == 1 {
                return;
            }
            socket.send_to(&buffer[..n], from).expect("sent");
        }
    });
    let (says, said) = std::sync::mpsc::channel::<Duration>();
    let (tell, told) = std::sync::mpsc::channel();
    let asks = emulator.within(0, move || {
        let socket = UdpSocket::bind("[::]:0").expect("bound");
        let round_trip = |bytes: usize, patience: Duration| {
            socket.set_read_timeout(Some(patience)).expect("set");
            let start = Instant::now();
            socket.send_to(&vec![7; bytes], to).map_err(|e| e.kind())?;
            socket.recv(&mut [0; 2_000]).map_err(|e| e.kind())?;
            Ok::<Duration, ErrorKind>(start.elapsed())
        };
        while let Ok(patience) = said.recv() {
            let times: Vec<_> = (0..20).map(|_| round_trip(100, patience)).collect();
            tell.send(times).expect("heard");
        }
        // The packet exceeds the last edge's MTU: a router reports that, and the kernel remembers
        // it.
        let both = [(); 2].map(|()| round_trip(1_420, ms(1_000)));
        socket.send_to(&[0], to).expect("sent");
        both
    });
    let ask = |patience: u64| {
        says.send(ms(patience)).expect("heard");
        told.recv_timeout(20 * ms(patience) + PATIENCE).expect("an answer")
    };
    // The delay is 5 ms plus 0.12 ms at 10 Mbit/s in each direction: no packet is faster. The
    // kernels take more time, and a busy machine much more, but not always.
    wait_for("half of the packets without delays of the machine", || {
        let times = ask(20_000).into_iter().map(|time| time.expect("an echo"));
        let mut times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        assert!(times[0] >= 10.2, "{times:?}");
        (times[10] < 20.0).then_some(())
    });
    let cut = TEXT.replace("rate =", "loss = \"100%\", rate =");
    fs::write(dir.path().join("net.toml"), cut).expect("written");
    emulator.reread(2);
    assert!(ask(300).iter().all(Result::is_err), "the link is cut");
    fs::write(dir.path().join("net.toml"), TEXT).expect("written");
    emulator.reread(2);
    assert!(ask(20_000).iter().all(Result::is_ok), "and mended");
    drop(says);
    let [lost, in_parts] = asks.join().expect("it asks");
    assert!(lost.is_err() && in_parts.is_ok(), "{lost:?} {in_parts:?}");
    echo.join().expect("it echoes");
    let report = emulator.stop();
    assert_eq!(packets(&report["hosts"][0]["too_big"]), 1, "{report}");
    assert!(packets(&report["edges"][1]["forward"]["lost"]) >= 20, "{report}");
}

/// Sends datagrams of this length and DSCP to `to` for two seconds at this rate per second, and
/// returns their number.
fn marked(
    emulator: &Emulator,
    to: SocketAddr,
    (dscp, len, rate): (u32, usize, u32),
) -> thread::JoinHandle<u64> {
    emulator.within(0, move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        socket2::SockRef::from(&socket).set_tos_v4(dscp << 2).expect("an option");
        let (start, mut sent) = (Instant::now(), 0_u32);
        while start.elapsed() < ms(2_000) {
            while f64::from(sent) < start.elapsed().as_secs_f64() * f64::from(rate) {
                // The destination needs no listener.
                let _ = socket.send_to(&vec![0; len], to);
                sent += 1;
            }
            thread::sleep(ms(1));
        }
        u64::from(sent)
    })
}

/// One station is sent 60 Mbit/s marked CS1, more than a cell carries, and the other a call's
/// packets, marked EF.
#[apply(on_time)]
fn in_a_cell_a_call_has_a_queue_of_its_own() {
    const CELL: &str = "host = [{ name = \"ap\" }, { name = \"a\" }, { name = \"b\" }]\n\
        [[cell]]\nname = \"wifi\"\naccess_point = \"ap\"\nstations = [\"a\", \"b\"]\n";
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), CELL, &["--punctual"]) else { return };
    let to =
        [1, 2].map(|n| emulator.at(n, 5_000).into_iter().find(SocketAddr::is_ipv4).expect("IPv4"));
    // The lengths are 200 and 1,500 bytes with IP and UDP headers.
    let call = marked(&emulator, to[0], (46, 172, 50));
    let flood = marked(&emulator, to[1], (8, 1_472, 5_000));
    let [call, flood] = [call, flood].map(|sends| sends.join().expect("it sends"));
    thread::sleep(ms(100));
    let report = emulator.stop();
    assert_documented(&report);
    let [to_a, to_b] = [0, 1].map(|n| &report["edges"][n]);
    assert_eq!((to_a["name"].as_str(), to_b["name"].as_str()), (Some("wifi a"), Some("wifi b")));
    let counts = |edge: &Value| {
        ["offered", "arrived", "queue_dropped"].map(|key| packets(&edge["forward"][key]))
    };
    let ([offered, arrived, dropped], [flooded, passed, overflowed]) = (counts(to_a), counts(to_b));
    assert_eq!((arrived, dropped), (offered, 0), "{report}");
    // The kernel drops packets that are not read in time.
    let missed = report["hosts"][0]["kernel_dropped"].as_u64().expect("a count");
    assert!(offered + missed >= call && flooded + missed >= flood, "{call}, {flood}: {report}");
    assert_eq!(passed + overflowed, flooded, "{report}");
    // A cell carries 24 Mbit/s of IP packets of this length; the machine may be slow.
    let mbit_s = passed as f64 * 12_000.0 / 2e6;
    assert!(overflowed > 0 && mbit_s < 27.0, "{mbit_s} Mbit/s, {report}");
}

#[apply(on_time)]
fn routers_say_what_they_do_not_pass_on() {
    let dir = temp_dir();
    let Some(emulator) = Emulator::start(dir.path(), TEXT, &[]) else { return };
    for (to, expired, too_big) in [
        (emulator.at(1, 5_000)[0], "Icmp: InTimeExcds", "Icmp: InDestUnreachs"),
        (emulator.at(1, 5_000)[1], "Icmp6InTimeExcds", "Icmp6InPktTooBigs"),
    ] {
        let receiver = emulator.within(1, move || UdpSocket::bind(to).expect("bound"));
        let receiver = receiver.join().expect("it listens");
        receiver.set_read_timeout(Some(PATIENCE)).expect("set");
        let sender = emulator.within(0, move || {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).expect("bound");
            let send = |bytes: usize, hops: u32| {
                let options = socket2::SockRef::from(&socket);
                let set = match to.is_ipv4() {
                    true => options.set_ttl_v4(hops),
                    false => options.set_unicast_hops_v6(hops),
                };
                set.expect("set");
                let _ = socket.send_to(&vec![hops as u8; bytes], to);
            };
            let wait = |name: &'static str, n: u64| {
                wait_for(name, || (counted(name) >= n).then_some(()));
            };
            // There are two routers, and the edge behind the second has an MTU of 1,400 bytes.
            // Longer packets are fragmented once the kernel knows that.
            send(100, 1);
            wait(expired, 1);
            send(100, 2);
            wait(expired, 2);
            send(1_420, 64);
            wait(too_big, 1);
            send(100, 3);
            send(1_420, 65);
        });
        sender.join().expect("it sends");
        let came = || {
            let mut buffer = [0; 2_000];
            let n = receiver.recv(&mut buffer).expect("a datagram");
            (n, buffer[0])
        };
        assert_eq!([came(), came()], [(100, 3), (1_420, 65)], "{to}");
        // Errors for these would have been sent before they arrived.
        let told = emulator.within(0, move || [expired, too_big].map(counted));
        assert_eq!(told.join().expect("it counts"), [2, 1], "{to}");
    }
    let report = emulator.stop();
    let a = &report["hosts"][0];
    assert_eq!((packets(&a["expired"]), packets(&a["too_big"])), (4, 2), "{report}");
}

/// Runs a file with a mistake, and returns the message.
fn refusal(file: &Path, text: &str) -> String {
    refusal_of(file, text, &[])
}

/// Runs a file with a mistake and further options, and returns the message.
fn refusal_of(file: &Path, text: &str, options: &[&str]) -> String {
    fs::write(file, text).expect("written");
    let mut run = Command::new(PROGRAM);
    // With standard input closed, a valid file would end it at once, too.
    run.args(["impair", "--until-stdin-closes", "--hosts"]).arg(file).args(options);
    let run = run.stdin(Stdio::piped()).output().expect("it ends");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.code() == Some(2) && common::is_message(&said), "{said}");
    said
}

#[test]
fn mistakes_end_it_with_2_and_are_named() {
    let dir = temp_dir();
    let file = dir.path().join("net.toml");
    let said = |text: &str| refusal(&file, text);
    // Text to replace and its replacement; then the line and advice of the error.
    for (from, to, line, says) in [
        ("[\"s\", \"b\"]", "[\"s\", \"bb\"]", 7, "is \"bb\"; did you mean \"b\"?"),
        ("[\"s\", \"b\"]", "[\"s\", \"s\"]", 7, "\"s\" is at both ends"),
        (
            "[\"s\", \"b\"]",
            "[\"s\", \"a\"]",
            2,
            "no [[edge]] or [[cell]] leads to host \"b\": add one",
        ),
        ("\"r\" }, {", "\"a\" }, {", 3, "\"a\" is the name of an earlier host or router"),
        ("10 Mbit/s", "0 Mbit/s", 6, "is zero, not a rate: write a number above 0"),
        ("delay = \"5ms\"", "delay = \"-5ms\"", 6, "is negative, not a length of time: write a"),
        ("delay = \"5ms\"", "loss = 1.5", 6, "expected a share from 0 to 1: write it as"),
        ("delay = \"5ms\"", "loss = \"101%\"", 6, "is not a share from 0 to 1: write it as"),
        ("mtu = 1400", "mtu = 1279", 7, "mtu is 1280 or more, as IPv6 needs it"),
        ("mtu = 1400", "mtu = 65536", 7, "expected a number from 0 to 65535"),
        ("mtu = 1400", "mtus = 1400", 7, "unknown field `mtus`"),
        ("mtu = 1400", "mtus = 1400", 7, "did you mean `mtu`?"),
        ("router =", "routers =", 3, "did you mean `router`?"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let said = said(&TEXT.replacen(from, to, 1));
        let place = format!("net.toml:{line}:");
        assert!(said.contains(&place) && said.contains(says), "{to}: {said}");
    }
    for (host, says) in [("r", "\"r\" is a router: name a [[host]]"), ("x", "no [[host]] is \"x\"")]
    {
        let said = refusal_of(&file, TEXT, &["--pcap", &format!("{host}=/nowhere")]);
        assert!(said.contains(says), "{said}");
    }
    let many: String = (0..300).map(|n| format!("[[host]]\nname = \"h{n}\"\n")).collect();
    assert!(said(&many).contains("net.toml:514:8: there are 300 [[host]]: 1 to 256"));
}

#[test]
fn settings_that_cannot_be_had_are_named_with_their_line_and_what_can() {
    let dir = temp_dir();
    let file = dir.path().join("net.toml");
    let there = |key: &str| {
        let file = format!("/proc/sys/net/ipv4/tcp_{key}_congestion_control");
        fs::read_to_string(file).expect("read").trim().to_owned()
    };
    let (allowed, available) = (there("allowed"), there("available"));
    let choice = format!("; a namespace may have: {allowed}; choose one of these, or");
    let is_refused = |name: &&str| !allowed.split(' ').any(|other| other == *name);
    let refused = available.split(' ').find(is_refused);
    let sysctl =
        |key: &str, value: &str| format!("reno\",\nsysctl = {{ \"{key}\" = \"{value}\" }} #");
    let cases = [
        (
            "vegan".to_owned(),
            vec!["net.toml:2:29: host a: ", "\"vegan\"", &choice, "modprobe tcp_vegan"],
        ),
        (
            refused.unwrap_or("vegan").to_owned(),
            match refused {
                Some(_) => vec![":2:29: ", &choice, "net.ipv4.tcp_allowed_congestion_control=\""],
                None => vec!["net.toml:2:29: "],
            },
        ),
        (
            sysctl("net.ipv4.tcp_sck", "1"),
            vec![":3:33: ", "no such setting; did you mean net.ipv4.tcp_sack?"],
        ),
        (sysctl("net.ipv4.tcp_sack", "much"), vec![":3:34: ", "; by default it is \"1\""]),
        (sysctl("net.core.rmem_max", "1"), vec![":3:34: ", "it is one of the whole machine"]),
    ];
    for (tcp, says) in cases {
        // The mistake spans more than one line.
        let text = TEXT.replacen(
            "host = [{ name = \"a\", tcp = \"reno\" }",
            &format!("host = [{{ name = \"a\", tcp = \"{tcp}\"\n}}"),
            1,
        );
        let said = refusal(&file, &text);
        if !said.contains("refuses") {
            return skip(&said);
        }
        assert!(says.iter().all(|part| said.contains(part)), "{tcp}: {said}");
    }
}

/// A command for an unprivileged user. It has a /dev/net/tun of this kind, in a mount namespace of
/// its own: `node`, a device that all users may open; `secret`, one that this user may not; `null`,
/// /dev/null; `none`. It runs `before` first.
fn nobody(dir: &Path, tun: &str, before: &str) -> Command {
    fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("set");
    let program = dir.join("trunkline");
    // Other users may not be able to read the build folder.
    if !program.exists() {
        fs::hard_link(PROGRAM, &program)
            .or_else(|_| fs::copy(PROGRAM, &program).map(drop))
            .expect("copied");
    }
    let script = "set -e
        case $1 in
            node) mknod -m 666 $0/tun c 10 200; mount --bind $0/tun /dev/net/tun;;
            secret) mknod -m 600 $0/tun c 10 200; mount --bind $0/tun /dev/net/tun;;
            null) mount --bind /dev/null /dev/net/tun;;
            none) mount -t tmpfs none /dev/net;;
        esac
        eval \"$2\"
        exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
            $0/trunkline impair --hosts $0/net.toml";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", script]).arg(dir);
    let _ = fs::remove_file(dir.join("tun"));
    command.args([tun, before]);
    command
}

/// Starts an emulator of three hosts in this folder as an unprivileged user. Returns `None` where
/// that is not possible, and prints that.
fn start_as_nobody(dir: &Path) -> Option<Emulator> {
    if !is_root() {
        return None;
    }
    fs::write(dir.join("net.toml"), THREE).expect("written");
    Emulator::run(&mut nobody(dir, "node", "")).map_err(|why| skip(&why)).ok()
}

#[apply(on_time)]
fn who_is_not_root_has_hosts_in_a_user_namespace() {
    let dir = temp_dir();
    let Some(mut emulator) = start_as_nobody(dir.path()) else { return };
    let number = fs::read_link(&emulator.hosts[0].net).expect("a namespace");
    reach(&emulator, 0, 1);
    reach(&emulator, 1, 2);
    // Run the announced command line as the same user.
    let to = emulator.at(1, 5_000)[0];
    let listener = emulator.within(1, move || TcpListener::bind(to).expect("bound"));
    let listener = listener.join().expect("it listens");
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "nsenter"];
    let words = format!("ip link set lo down && echo well > /dev/tcp/{}/{}", to.ip(), to.port());
    let entered = Command::new("setpriv")
        .args(user)
        .args(&emulator.hosts[0].enter)
        .args(["bash", "-c", &words])
        .output()
        .expect("it runs");
    assert!(entered.status.success(), "{}", String::from_utf8_lossy(&entered.stderr));
    let mut heard = String::new();
    listener.accept().expect("a connection").0.read_to_string(&mut heard).expect("text");
    assert_eq!(heard, "well\n");
    emulator.child.kill().expect("killed");
    emulator.child.wait().expect("dead");
    assert_eq!(inhabitants(&number), 0, "nothing stays behind");
}

#[apply(on_time)]
fn what_is_missing_is_named_with_a_way_out() {
    let dir = temp_dir();
    let Some(able) = start_as_nobody(dir.path()) else { return };
    drop(able);
    // A user namespace may allow fewer namespaces than the system outside.
    let none = "exec unshare --user --map-user=65534 --map-group=65534 --keep-caps sh -c '
        echo 0 >/proc/sys/user/max_user_namespaces
        exec setpriv --ambient-caps=-all --inh-caps=-all $0/trunkline impair --hosts $0/net.toml
    ' $0";
    let no_more = none.replace("max_user_namespaces", "max_net_namespaces");
    let read_only = "mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys
        sed 's/\"a\" /\"a\", tcp = \"reno\" /' -i $0/net.toml";
    for (tun, before, says) in [
        ("none", "", "/dev/net/tun: modprobe tun"),
        ("null", "", "is /dev/net/tun what the kernel's driver has made?"),
        ("secret", "", "chmod a+rw /dev/net/tun"),
        ("node", none, "run it as root, or allow them (sysctl user.max_user_namespaces"),
        ("node", "ln -sf \"$(command -v setpriv)\" $0; PATH=$0", "install iproute2"),
        ("node", &no_more, "allow more (as root, sysctl user.max_net_namespaces=10000)"),
        ("node", read_only, "/proc/sys is read-only, as in a container"),
    ] {
        let run = nobody(dir.path(), tun, before).output().expect("it ends");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains(says) && common::is_message(&said), "{tun}: {said}");
        assert_eq!(run.status.code(), Some(2), "{tun}: {said}");
    }
}
