//! `trunkline call`: the recording equals the original.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Node, Process, Setup, free_port, run, temp_dir, trunkline};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Instant;
use trunkline_media::audio::{read_wav, write_wav};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtcp;
use trunkline_media::rtp::{HEADER_LEN, Packetizer, Stream};

/// Number of packets in the call, which lasts 0.8 s.
const PACKETS: usize = 40;

/// Number of reports from a caller: one after the first packet, and five with its goodbye.
const REPORTS: u64 = 1 + 5;

/// A tone of increasing volume, so that all packets differ.
fn speech(dir: &Path) -> (PathBuf, Vec<i16>) {
    let pcm: Vec<i16> = (0..PACKETS * 160)
        .map(|n| (f64::from(n as u32 * 3) * (f64::from(n as u32) * 0.35).sin()) as i16)
        .collect();
    let path = dir.join("said.wav");
    write_wav(BufWriter::new(File::create(&path).expect("created")), &pcm).expect("written");
    (path, pcm)
}

fn coded(pcm: &[i16], law: Law) -> Vec<i16> {
    let mut codes = Vec::new();
    law.encode_to(pcm, &mut codes);
    codes.iter().map(|code| law.decode(*code)).collect()
}

/// Makes a call with these carriers and returns the recording.
fn call(dir: &Path, recv: &[&str], send: &[&str], said: &Path) -> Vec<i16> {
    let out = dir.join("heard.wav");
    let mut listener = Process::start(
        trunkline(["call", "recv", "--idle", "500ms", "--json", "--out"]).arg(&out).args(recv),
    );
    listener.wait_for_word("listening on");
    let sent = run(trunkline(["call", "send"]).args(send).arg(said));
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(sent.stdout.contains(&format!("sent {PACKETS} packets\n")), "{}", sent.stdout);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let (stdout, _) = listener.rest();
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    for (key, n) in
        [("packets", PACKETS), ("sent", PACKETS), ("played", PACKETS), ("lost", 0), ("late", 0)]
    {
        assert_eq!(report[key], n, "{report}");
    }
    assert_eq!(report["ended"], "bye", "{report}");
    assert!(report["mos"].as_f64().is_some_and(|mos| mos > 4.0), "{report}");
    read_wav(BufReader::new(File::open(&out).expect("written"))).expect("a WAV file")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[apply(on_time)]
fn over_udp() {
    let dir = temp_dir();
    let (said, pcm) = speech(dir.path());
    let at = free_port(Ipv4Addr::LOCALHOST.into());
    let port = at.port().to_string();
    let recv = ["--udp", "--listen", "127.0.0.1", "--port", &port];
    for (law, name) in [(Law::Mu, "mu"), (Law::A, "a")] {
        let send = ["--udp", "--to", &at.to_string(), "--law", name];
        let heard = call(dir.path(), &recv, &send, &said);
        assert!(heard == coded(&pcm, law), "{name}: other sound than was sent");
    }
}

#[apply(on_time)]
fn a_lost_packet_is_concealed() {
    let dir = temp_dir();
    let out = dir.path().join("heard.wav");
    let at = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--idle", "500ms", "--port"])
            .arg(at.port().to_string())
            // All packets leave at once, so that the first seem late.
            .args(["--deadline", "1 s", "--expect", "400ms", "--out"])
            .arg(&out),
    );
    listener.wait_for_word("listening on");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    // The period divides the length of a packet.
    let tone = |n: u32| (8_000.0 * (f64::from(n) * std::f64::consts::TAU / 40.0).sin()) as i16;
    let pcm: Vec<i16> = (0..20 * 160).map(tone).collect();
    let mut packetizer = Packetizer::new(Stream::g711(Law::A, 7));
    let mut packet = [0; HEADER_LEN + 160];
    for (k, said) in pcm.chunks(160).enumerate() {
        let mut payload = Vec::new();
        Law::A.encode_to(said, &mut payload);
        packetizer.write(&payload, &mut packet).expect("it fits");
        if k != 10 {
            socket.send_to(&packet, at).expect("sent");
        }
    }
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let (stdout, _) = listener.rest();
    assert!(stdout.contains("1 lost"), "{stdout}");
    let heard = read_wav(BufReader::new(File::open(&out).expect("written"))).expect("a WAV file");
    assert_eq!(heard.len(), pcm.len());
    // Concealment continues the tone in phase, at four fifths of its volume in the end.
    for (n, (heard, said)) in heard.iter().zip(&pcm).enumerate() {
        let off = (f64::from(*heard) - f64::from(*said)).abs();
        let allowed = if (1_600..1_840).contains(&n) { 1_700.0 } else { 200.0 };
        assert!(off < allowed, "sample {n}: {heard} for {said}");
    }
}

#[apply(on_time)]
fn over_nodes() {
    let chain = Chain::of(2);
    let (said, pcm) = speech(chain.dir.path());
    let recv = ["--socket", text(&chain.nodes[1].socket), "--port", "5004"];
    let near = text(&chain.nodes[0].socket);
    for service in [&[][..], &["--best-effort"]] {
        let send = [&["--socket", near, "--to", "2:5004"], service].concat();
        let heard = call(chain.dir.path(), &recv, &send, &said);
        assert!(heard == coded(&pcm, Law::Mu), "{service:?}: other sound than was sent");
    }
    let m = chain.nodes[0].metrics();
    for class in ["realtime", "best_effort"] {
        let sent = m.sum("link_sent_envelopes_total", &format!("class=\"{class}\""));
        assert_eq!(sent, PACKETS as u64 + REPORTS, "{class}");
    }
}

#[apply(on_time)]
fn with_nodes_inside() {
    let mut chain = Chain::prepare(&common::Setup::default());
    let (said, pcm) = speech(chain.dir.path());
    // The caller's node runs in its process; the listener's is a separate process at first.
    chain.nodes[1].start();
    let recv = ["--socket", text(&chain.nodes[1].socket)];
    let config = chain.nodes[0].config.clone();
    let send = ["--node", text(&config), "--to", "2:5004"];
    assert!(call(chain.dir.path(), &recv, &send, &said) == coded(&pcm, Law::Mu));
    chain.nodes[1].crash();
    let recv = ["--node", text(&chain.nodes[1].config)];
    assert!(call(chain.dir.path(), &recv, &send, &said) == coded(&pcm, Law::Mu));
    assert!(!chain.nodes[0].socket.exists(), "{} is left behind", chain.nodes[0].socket.display());
}

#[apply(on_time)]
fn a_node_that_crashes_under_a_call_costs_a_gap() {
    let mut chain = Chain::of(2);
    let (said, _) = speech(chain.dir.path());
    let socket = chain.nodes[1].socket.clone();
    let mut listener = Process::start(
        trunkline(["call", "recv", "--idle", "1500ms", "--json", "--socket"]).arg(&socket),
    );
    listener.wait_for_word("listening on");
    let near = chain.nodes[0].socket.clone();
    let mut sender = Process::start(
        trunkline(["call", "send", "--duration", "3 s", "--to", "2:5004", "--socket"])
            .arg(&near)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(common::ms(800));
    chain.nodes[0].crash();
    chain.nodes[0].start();
    assert_eq!(sender.wait().code(), Some(0), "{}", sender.stderr());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report: serde_json::Value = serde_json::from_str(&listener.rest().0).expect("JSON");
    let played = report["played"].as_u64().expect("a number");
    assert!((60..150).contains(&played), "of 150 packets: {report}");
    assert_eq!(report["packets"], 150, "the end was heard: {report}");
}

/// A caller over UDP that sends the packets of `numbers`.
struct Caller {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Caller {
    fn talk(&self, numbers: std::ops::Range<u32>) {
        let mut packetizer = Packetizer::new(Stream::g711(Law::Mu, 7));
        let mut packet = [0; HEADER_LEN + 160];
        for k in 0..numbers.end {
            packetizer.write(&[0xff; 160], &mut packet).expect("it fits");
            if k >= numbers.start {
                self.socket.send_to(&packet, self.to).expect("sent");
            }
        }
    }

    /// Sends a report of this many packets.
    fn report(&self, packets: u32, bye: bool) {
        let timestamp = packets * 160;
        let report =
            rtcp::SenderInfo { ssrc: 7, ntp: 0, timestamp, packets, octets: packets * 160 };
        let mut packet = [0; rtcp::MAX_LEN];
        let n = report.emit(bye, &mut packet).expect("it fits");
        self.socket.send_to(&packet[..n], self.to).expect("sent");
    }
}

/// Runs `call recv` with these options against a caller, and returns its exit code, report and
/// complaint.
fn heard(options: &[&str], call: impl FnOnce(&Caller)) -> (Option<i32>, Value, String) {
    let to = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--json", "--port"])
            .arg(to.port().to_string())
            .args(["--idle", "600ms", "--deadline", "10 s"])
            .args(options),
    );
    listener.wait_for_word("listening on");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    call(&Caller { socket, to });
    let code = listener.wait().code();
    let (stdout, stderr) = listener.rest();
    (code, serde_json::from_str(&stdout).expect("JSON"), stderr)
}

#[apply(on_time)]
fn what_was_lost_at_either_end_of_a_call_counts() {
    // The last second of three is lost, and the first fifth of one.
    for (came, before) in [(0..100, 0), (10..150, 10), (10..100, 10)] {
        let (code, report, said) = heard(&[], |caller| {
            caller.talk(came.clone());
            for _ in 0..3 {
                caller.report(150, true);
            }
        });
        assert_eq!((code, &report["ended"]), (Some(0), &json!("bye")), "{said}");
        assert_eq!((&report["packets"], &report["sent"]), (&json!(150), &json!(150)), "{report}");
        assert_eq!(report["lost"], 150 - came.len(), "{report}");
        assert_eq!(report["played"], came.len(), "{before}: {report}");
    }
}

#[apply(on_time)]
fn a_call_that_ends_in_silence_broke_off() {
    let (code, report, said) = heard(&[], |caller| caller.talk(0..150));
    assert_eq!((code, &report["ended"]), (Some(1), &json!("broke-off")), "{said}");
    assert!(said.contains("the call broke off after 3.0 s: neither packets nor"), "{said}");
    assert_eq!((&report["lost"], &report["sent"]), (&json!(0), &Value::Null), "{report}");

    // The caller's last report has a later timestamp.
    let (code, report, said) = heard(&[], |caller| {
        caller.talk(0..150);
        caller.report(200, false);
    });
    assert_eq!((code, &report["lost"], &report["heard_s"]), (Some(1), &json!(50), &json!(4.0)));
    assert!(said.contains("broke off after 4.0 s:"), "{said}");

    let eight = ["--expect", "8 s"];
    let (code, report, said) = heard(&eight, |caller| caller.talk(0..150));
    assert_eq!((code, &report["lost"]), (Some(1), &json!(250)), "{report}");
    assert!(said.contains("broke off after 3.0 s of 8.0 s: "), "{said}");
    assert!(report["mos"].as_f64() < Some(2.0), "{report}");

    // A call longer than expected had more to come: with RTCP, its silence is not its end. One of
    // exactly the expected length is complete.
    let two = ["--expect", "2 s"];
    let (code, report, said) = heard(&two, |caller| {
        caller.talk(0..150);
        caller.report(125, false);
    });
    assert_eq!((code, &report["ended"]), (Some(1), &json!("broke-off")), "{said}");
    assert!(said.contains("broke off after 3.0 s: "), "{said}");
    let (code, ..) = heard(&["--expect", "3 s"], |caller| {
        caller.talk(0..150);
        caller.report(125, false);
    });
    assert_eq!(code, Some(0), "all of it has come");

    // A caller without RTCP, and one that hangs up early.
    let (code, report, said) = heard(&["--expect", "3 s"], |caller| caller.talk(0..150));
    assert_eq!((code, &report["lost"]), (Some(0), &json!(0)), "{said}");
    // The last packets may be lost. They are counted as lost, but do not make the call incomplete.
    for (came, whole) in [(145, true), (144, false)] {
        let (code, report, said) = heard(&["--expect", "3 s"], |caller| caller.talk(0..came));
        assert_eq!(
            (code, &report["lost"]),
            (Some(i32::from(!whole)), &json!(150 - came)),
            "{said}"
        );
    }
    let (code, report, said) = heard(&eight, |caller| {
        caller.talk(0..150);
        caller.report(150, true);
    });
    assert_eq!((code, &report["lost"]), (Some(1), &json!(0)), "it did not say more");
    assert!(said.contains("the caller hung up after 3.0 s of 8.0 s"), "{said}");
}

/// Runs `call recv` without --json against a caller, and returns the first line of its output.
fn told_in_words(call: impl FnOnce(&Caller, &mut Process)) -> String {
    let to = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--idle", "600ms", "--port"])
            .arg(to.port().to_string())
            .args(["--deadline", "10 s"]),
    );
    listener.wait_for_word("listening on");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    call(&Caller { socket, to }, &mut listener);
    listener.wait();
    listener.rest().0.lines().next().unwrap_or_default().to_owned()
}

#[apply(on_time)]
fn what_is_not_a_whole_call_is_not_called_one() {
    let line = told_in_words(|caller, _| caller.talk(0..50));
    assert!(line.starts_with("50 packets, then it broke off: 50 played, "), "{line}");
    let line = told_in_words(|caller, listener| {
        caller.talk(0..50);
        std::thread::sleep(common::ms(300));
        listener.signal(nix::sys::signal::Signal::SIGINT);
    });
    assert!(line.starts_with("50 packets, then it was stopped here: 50 played, "), "{line}");
    let line = told_in_words(|caller, _| {
        caller.talk(0..50);
        caller.report(50, true);
    });
    assert!(line.starts_with("50 packets: 50 played, "), "{line}");
}

#[apply(on_time)]
fn a_listener_that_stood_still_has_heard_no_silence() {
    let (code, report, said) = {
        let to = free_port(Ipv4Addr::LOCALHOST.into());
        let mut listener = Process::start(
            trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--json", "--port"])
                .arg(to.port().to_string())
                .args(["--idle", "600ms", "--deadline", "10 s"]),
        );
        listener.wait_for_word("listening on");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let caller = Caller { socket, to };
        caller.talk(0..50);
        std::thread::sleep(common::ms(200));
        listener.signal(nix::sys::signal::Signal::SIGSTOP);
        std::thread::sleep(common::ms(1_500));
        caller.talk(50..100);
        caller.report(100, true);
        listener.signal(nix::sys::signal::Signal::SIGCONT);
        let code = listener.wait().code();
        let (stdout, stderr) = listener.rest();
        (code, serde_json::from_str::<Value>(&stdout).expect("JSON"), stderr)
    };
    assert_eq!((code, &report["ended"]), (Some(0), &json!("bye")), "{said}");
    assert_eq!(report["packets"], 100, "{report}");
}

#[apply(on_time)]
fn a_path_that_dies_under_a_call_is_told_at_both_ends() {
    let mut chain = Chain::start(&Setup { impair: "delay = \"5ms\"", ..Setup::default() });
    let (said, _) = speech(chain.dir.path());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--json", "--expect", "5 s", "--socket"])
            .arg(&chain.nodes[1].socket),
    );
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--json", "--duration", "5 s", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(common::ms(2_000));
    chain.impair.take();
    assert_eq!(sender.wait().code(), Some(1), "{}", sender.stderr());
    let (sent, told) = sender.rest();
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    assert!(told.contains("s: node 2 has been unreachable for "), "{told}");
    assert_eq!((&sent["packets"], &sent["unsent"]), (&json!(250), &json!(0)), "{sent}");
    // Packets that the node could not forward do not count as sent, once it has noticed.
    let of = |key: &str| sent[key].as_u64().expect("a count");
    assert!((100..225).contains(&of("sent")), "{sent}");
    assert_eq!(of("sent") + of("unreachable"), 250, "{sent}");
    let after = sent["broke_off_after_s"].as_f64().expect("a number");
    assert!((2.0..4.5).contains(&after), "{sent}");
    // The duration counts up to the end of the call, not to the node's report.
    let why = sent["why"].as_str().expect("a reason");
    let unreachable = why.strip_prefix("node 2 has been unreachable for ").expect(why);
    let unreachable: f64 = unreachable.trim_end_matches(" s").parse().expect(why);
    assert!(
        (unreachable - sent["unreachable_s"].as_f64().expect("a number")).abs() < 0.5,
        "{sent}"
    );

    assert_eq!(listener.wait().code(), Some(1), "{}", listener.stderr());
    let (report, told) = listener.rest();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let played = report["played"].as_u64().expect("a number");
    assert!((80..150).contains(&played), "{report}");
    assert_eq!(report["packets"], 250, "{report}");
    let lost = report["lost"].as_u64().expect("a number");
    assert!(lost + played > 240 && lost > 100, "{report}");
    assert!(told.contains("the call broke off after 2."), "{told}");
}

#[apply(on_time)]
fn who_calls_nobody_is_told_so_at_once() {
    let chain = Chain::of(2);
    let (said, _) = speech(chain.dir.path());
    let inside = Node::new(chain.dir.path(), 7, Ipv4Addr::LOCALHOST.into());
    inside.write("");
    let (near, inside) = (text(&chain.nodes[0].socket), text(&inside.config));
    let barred = Node::new(chain.dir.path(), 8, Ipv4Addr::LOCALHOST.into());
    barred.write("[access]\nto = [3]\n");
    for (carrier, to, why) in [
        (["--socket", near], "9:5004", "there is no route to node 9"),
        (["--node", inside], "9:5004", "there is no route to node 9"),
        (
            ["--node", text(&barred.config)],
            "2:5004",
            "[access] to (or [[client]] to) does not allow node 2",
        ),
        (["--socket", near], "1:5004", "no application is bound to 1:5004"),
        (["--socket", near], "2:5004", "no application is bound to 2:5004"),
    ] {
        let begun = Instant::now();
        let args = ["call", "send", "--json", "--duration", "20 s", "--to", to];
        let ended = run(trunkline(args).args(carrier).arg(&said));
        assert_eq!(ended.code, Some(1), "{to}: {}", ended.stdout);
        let told = format!("trunkline: the call was not established: {why}");
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        let sent: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!((&sent["why"], &sent["sent"]), (&json!(why), &json!(0)), "{sent}");
        assert!(begun.elapsed().as_secs() < 5, "{to}: {:?}", begun.elapsed());
    }
    let drops = chain.nodes[1].metrics();
    assert!((1..=4).contains(&drops.sum("port_unreachable_sent_total", "")));
    assert!(drops.drops("no_port") > 0);
}

#[apply(on_time)]
fn a_listener_may_come_a_little_later() {
    let chain = Chain::of(2);
    let (said, _) = speech(chain.dir.path());
    let mut sender = Process::start(
        trunkline(["call", "send", "--duration", "4 s", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(common::ms(500));
    let mut listener = Process::start(
        trunkline(["call", "recv", "--json", "--socket"]).arg(&chain.nodes[1].socket),
    );
    assert_eq!(sender.wait().code(), Some(0), "{}", sender.stderr());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report: Value = serde_json::from_str(&listener.rest().0).expect("JSON");
    assert_eq!((&report["ended"], &report["packets"]), (&json!("bye"), &json!(200)), "{report}");
    let lost = report["lost"].as_u64().expect("a number");
    assert!((10..120).contains(&lost), "what came too early is lost: {report}");
}

#[apply(on_time)]
fn who_hangs_up_says_so() {
    let chain = Chain::of(2);
    let (said, _) = speech(chain.dir.path());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--json", "--socket"]).arg(&chain.nodes[1].socket),
    );
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--duration", "1 h", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(common::ms(500));
    sender.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(sender.wait().code(), Some(0), "{}", sender.stderr());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report: Value = serde_json::from_str(&listener.rest().0).expect("JSON");
    assert_eq!((&report["ended"], &report["lost"]), (&json!("bye"), &json!(0)), "{report}");
    assert_eq!(report["sent"], report["packets"], "{report}");
}

#[test]
fn mistakes_are_told_before_the_call() {
    let dir = temp_dir();
    let (said, _) = speech(dir.path());
    let whole = std::fs::read(&said).expect("there");
    let bad = dir.path().join("bad.wav");
    let mut no_rate = whole.clone();
    no_rate[24..28].fill(0);
    let texts: [&[u8]; 4] = [b"", b"this is no sound", &whole[..whole.len() / 2], &no_rate];
    for text in texts {
        std::fs::write(&bad, text).expect("written");
        let ended = run(trunkline(["call", "send", "--udp", "--to", "127.0.0.1:9"]).arg(&bad));
        let line = ended.one_line(2);
        assert!(line.contains("cannot read ") && line.contains("bad.wav: "), "{line}");
    }
    let ended =
        run(&mut trunkline(["call", "recv", "--udp", "--port", "0", "--out", "/dev/null/x"]));
    assert!(ended.one_line(1).contains("cannot write /dev/null/x: "), "{}", ended.stderr);
    let ended = run(trunkline(["call", "send", "--udp", "--to", "2:5004"]).arg(&said));
    assert!(ended.one_line(2).contains("--udp wants --to IP:PORT"), "{}", ended.stderr);
    for nobody in ["2:0", "0:5004"] {
        let ended =
            run(trunkline(["call", "send", "--socket", "a.sock", "--to", nobody]).arg(&said));
        assert!(ended.stderr.contains("numbered from 1 on"), "{}", ended.stderr);
        assert_eq!(ended.code, Some(2));
    }
    let absent = dir.path().join("absent.sock");
    let ended =
        run(trunkline(["call", "send", "--to", "2:5004", "--socket"]).arg(&absent).arg(&said));
    let line = ended.one_line(1);
    assert!(line.contains("absent.sock") && line.contains("is it running"), "{line}");
}
