//! `trunkline call`: messages between its two ends, by which neither takes a broken call for a
//! whole one.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Process, Setup, free_port, ms, temp_dir, trunkline};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufWriter;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trunkline_media::audio::write_wav;
use trunkline_media::codec::g711::Law;
use trunkline_media::rtp::{HEADER_LEN, Packetizer, Stream};
use trunkline_media::{rtcp, rtp};

/// Number of goodbyes that a caller sends.
const GOODBYES: usize = 5;

/// Writes a second of speech to a file.
fn speech(dir: &Path) -> PathBuf {
    let path = dir.join("said.wav");
    let pcm: Vec<i16> =
        (0..8_000).map(|n| (f64::from(n) * 0.35).sin() * 8e3).map(|v| v as i16).collect();
    write_wav(BufWriter::new(File::create(&path).expect("created")), &pcm).expect("written");
    path
}

/// Waits for the end of `process`, and returns its exit code, report and complaint.
fn ended(mut process: Process) -> (Option<i32>, Value, String) {
    let code = process.wait().code();
    let (stdout, stderr) = process.rest();
    (code, serde_json::from_str(&stdout).expect("JSON"), stderr)
}

fn send_over_udp(said: &Path, to: SocketAddr, duration: &str) -> Process {
    let mut sender = Process::start(
        trunkline(["call", "send", "--udp", "--json", "--duration", duration, "--to"])
            .arg(to.to_string())
            .arg(said),
    );
    sender.wait_for_word("calling");
    sender
}

fn listen_on_udp(options: &[&str]) -> (Process, SocketAddr) {
    let at = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--json", "--port"])
            .arg(at.port().to_string())
            .args(["--deadline", "10 s"])
            .args(options),
    );
    listener.wait_for_word("listening on");
    (listener, at)
}

/// Reception report (RFC 3550, 6.4.2) on the report sent at `ntp` by `source`, `delay` units of
/// 1/65,536 s after its arrival.
fn reception(source: u32, ntp: u64, delay: u32) -> Vec<u8> {
    let words = [0x81c9_0007, 9, source, 0, 0, 0, (ntp >> 16) as u32, delay];
    words.iter().flat_map(|w: &u32| w.to_be_bytes()).collect()
}

/// Runs `call send` against a listener that answers each of its reports with `answer`. Returns the
/// result and the packets received.
fn call(
    duration: &str,
    answer: impl Fn(&rtcp::Control, u64) -> Option<Vec<u8>>,
) -> ((Option<i32>, Value, String), Vec<Vec<u8>>) {
    let dir = temp_dir();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(ms(50))).expect("in range");
    let mut sender =
        send_over_udp(&speech(dir.path()), socket.local_addr().expect("bound"), duration);
    let mut packets = Vec::new();
    let mut buf = [0; 300];
    while sender.is_running() {
        let Ok((len, from)) = socket.recv_from(&mut buf) else { continue };
        packets.push(buf[..len].to_vec());
        let control = rtcp::parse(&buf[..len]).ok().filter(|_| rtcp::is_rtcp(&buf[..len]));
        let ntp = |c: &rtcp::Control| c.report.map_or(0, |r| r.ntp);
        if let Some(text) = control.and_then(|c| answer(&c, ntp(&c))) {
            socket.send_to(&text, from).expect("sent");
        }
    }
    (ended(sender), packets)
}

#[apply(on_time)]
fn a_caller_reports_from_the_first_packet_on() {
    let ((code, ..), packets) = call("400ms", |_, _| None);
    assert_eq!(code, Some(0), "to somebody who does not answer");
    assert!(!rtcp::is_rtcp(&packets[0]) && rtp::parse(&packets[0]).is_ok());
    let report = rtcp::parse(&packets[1]).ok().and_then(|c| c.report).expect("a report");
    assert_eq!((report.packets, rtcp::is_rtcp(&packets[1])), (1, true), "{report:?}");
    assert_eq!(packets.len(), 20 + 1 + GOODBYES);
}

#[apply(on_time)]
fn a_path_that_dies_early_ends_no_call_that_was_to_be_longer() {
    let mut chain = Chain::start(&Setup { impair: "delay = \"5ms\"", ..Setup::default() });
    let said = speech(chain.dir.path());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--json", "--expect", "600ms", "--socket"])
            .arg(&chain.nodes[1].socket),
    );
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--json", "--duration", "5 s", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(ms(1_500));
    chain.impair.take();
    let (code, report, told) = ended(listener);
    assert_eq!((code, &report["ended"]), (Some(1), &json!("broke-off")), "{told}");
    assert!(told.contains("the call broke off after 1."), "{told}");
    assert_eq!(ended(sender).0, Some(1));
}

#[apply(on_time)]
fn a_caller_wants_its_end_confirmed_by_who_answers() {
    // It answers reports at once, but not the goodbyes.
    let deaf = |c: &rtcp::Control, ntp| (!c.bye).then(|| reception(c.ssrc, ntp, 0));
    let ((code, sent, told), packets) = call("400ms", deaf);
    assert_eq!(code, Some(1), "{sent} {told}");
    assert!(told.contains("trunkline: the end of the call was not confirmed: "), "{told}");
    assert_eq!((&sent["packets"], &sent["sent"]), (&json!(20), &json!(20)), "{sent}");
    let why = sent["why"].as_str().expect("a reason");
    assert!(why.starts_with("the end of the call was not confirmed"), "{sent}");
    assert_eq!(packets.len(), 20 + 1 + GOODBYES);

    // One answer to the five goodbyes is enough, however late. A listener that sends nothing,
    // answers in its own time or answers another caller leaves the result open.
    let late = |c: &rtcp::Control, ntp| Some(reception(c.ssrc, ntp, if c.bye { 9_000 } else { 0 }));
    let silent = |_: &rtcp::Control, _| None;
    let older = |_: &rtcp::Control, _| Some(vec![0x80, 201, 0, 1, 0, 0, 0, 0]);
    let slow = |c: &rtcp::Control, ntp| (!c.bye).then(|| reception(c.ssrc, ntp, 40_000));
    let other = |c: &rtcp::Control, ntp| (!c.bye).then(|| reception(c.ssrc ^ 1, ntp, 0));
    for (n, ((code, sent, told), _)) in [
        call("400ms", late),
        call("400ms", silent),
        call("400ms", older),
        call("400ms", slow),
        call("400ms", other),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!((code, &sent["why"]), (Some(0), &Value::Null), "{n}: {sent} {told}");
    }
}

#[apply(on_time)]
fn a_path_that_dies_in_the_last_moment_is_told_to_the_caller() {
    let mut chain = Chain::start(&Setup { impair: "delay = \"5ms\"", ..Setup::default() });
    let said = speech(chain.dir.path());
    let mut listener =
        Process::start(trunkline(["call", "recv", "--socket"]).arg(&chain.nodes[1].socket));
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--json", "--duration", "2 s", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(ms(1_800));
    chain.impair.take();
    let (code, sent, told) = ended(sender);
    assert_eq!(code, Some(1), "{sent} {told}");
    assert!(sent["why"].is_string(), "{sent}");
    assert_eq!(listener.wait().code(), Some(1));
}

#[apply(on_time)]
fn the_first_report_may_overtake_the_first_packet() {
    for ssrc in [7, 8] {
        let (listener, at) = listen_on_udp(&["--idle", "500ms", "--expect", "1 s"]);
        // The report may belong to the end of an earlier call, or to the start of this one.
        Caller::new(ssrc, at).report(1, 0, ssrc != 7);
        Caller::new(7, at).talk(60);
        let (code, report, told) = ended(listener);
        assert_eq!((code, &report["packets"]), (Some(i32::from(ssrc == 7)), &json!(60)), "{told}");
    }
}

#[apply(on_time)]
fn a_call_whose_end_was_heard_is_whole_whatever_the_node_says_later() {
    let chain = Chain::of(2);
    let said = speech(chain.dir.path());
    let listener = chain.nodes[1].bind(5_004);
    let mut sender = Process::start(
        trunkline(["call", "send", "--json", "--duration", "400ms", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    let mut buf = [0; 300];
    loop {
        let got = listener.recv_from(&mut buf).expect("a packet");
        let bytes = &buf[..got.len];
        let control = rtcp::parse(bytes).ok().filter(|_| rtcp::is_rtcp(bytes));
        let Some((control, report)) = control.and_then(|c| Some((c, c.report?))) else { continue };
        let answer = reception(control.ssrc, report.ntp, 0);
        listener.send_to(&answer, got.from).expect("sent");
        if control.bye {
            break;
        }
    }
    // The other goodbyes find no listener.
    drop(listener);
    let (code, sent, told) = ended(sender);
    assert_eq!((code, &sent["why"]), (Some(0), &Value::Null), "{sent} {told}");
}

/// A caller over UDP with its own SSRC.
struct Caller {
    ssrc: u32,
    socket: UdpSocket,
    to: SocketAddr,
}

impl Caller {
    fn new(ssrc: u32, to: SocketAddr) -> Caller {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        Caller { ssrc, socket, to }
    }

    fn talk(&self, packets: u32) {
        let mut packetizer = Packetizer::new(Stream::g711(Law::Mu, self.ssrc));
        let mut packet = [0; HEADER_LEN + 160];
        for _ in 0..packets {
            packetizer.write(&[0xff; 160], &mut packet).expect("it fits");
            self.socket.send_to(&packet, self.to).expect("sent");
        }
    }

    fn report(&self, packets: u32, ntp: u64, bye: bool) {
        let timestamp = packets * 160;
        let report =
            rtcp::SenderInfo { ssrc: self.ssrc, ntp, timestamp, packets, octets: packets * 160 };
        let mut packet = [0; rtcp::MAX_LEN];
        let n = report.emit(bye, &mut packet).expect("it fits");
        self.socket.send_to(&packet[..n], self.to).expect("sent");
    }

    /// Receives packets until there are none for `patience`.
    fn hears(&self, patience: Duration) -> Vec<Vec<u8>> {
        self.socket.set_read_timeout(Some(patience)).expect("in range");
        let mut buf = [0; 300];
        let next = || self.socket.recv(&mut buf).ok().map(|len| buf[..len].to_vec());
        std::iter::from_fn(next).collect()
    }
}

#[apply(on_time)]
fn a_listener_answers_every_report_and_every_goodbye() {
    let (listener, at) = listen_on_udp(&["--idle", "600ms"]);
    let caller = Caller::new(7, at);
    caller.talk(50);
    caller.report(60, 0x1111_2222_3333_4444, false);
    for k in 1..=4_u64 {
        std::thread::sleep(ms(60));
        caller.report(60, k << 32, true);
    }
    let heard = caller.hears(ms(300));
    assert_eq!(ended(listener).0, Some(0));
    // Three to show that it is there, then one for each goodbye.
    let blocks: Vec<_> = heard.iter().filter(|p| p[..2] == [0x81, 201]).collect();
    assert_eq!((heard.len(), blocks.len()), (3 + 5, 5), "{heard:?}");
    let word = |p: &[u8], at: usize| u32::from_be_bytes(p[at..at + 4].try_into().expect("four"));
    let of: Vec<u32> = blocks.iter().map(|p| word(p, 24)).collect();
    assert_eq!(of, [0x2222_3333, 1 << 16, 2 << 16, 3 << 16, 4 << 16]);
    for packet in blocks {
        // SSRC of the caller, no delay; number of the last packet, none lost up to it.
        assert_eq!((word(packet, 8), word(packet, 28)), (7, 0), "{packet:?}");
        assert_eq!((word(packet, 16), word(packet, 12)), (49, 0), "{packet:?}");
    }
}

#[apply(on_time)]
fn who_calls_somebody_who_is_in_a_call_is_told_so() {
    let dir = temp_dir();
    let said = speech(dir.path());
    let (listener, at) = listen_on_udp(&["--idle", "3 s"]);
    let first = Caller::new(7, at);
    first.talk(20);
    std::thread::sleep(ms(100));
    let begun = Instant::now();
    let (code, sent, told) = ended(send_over_udp(&said, at, "20 s"));
    assert_eq!(code, Some(1), "{sent}");
    assert!(begun.elapsed() < ms(3_000), "{:?}", begun.elapsed());
    assert!(told.contains("trunkline: the other end hung up after 0."), "{told}");
    assert!(told.contains("it may be in another call"), "{told}");
    assert!(sent["why"].as_str().is_some_and(|why| why.contains("hung up")), "{sent}");

    // A rejected caller is notified once a second, and not all of many are.
    let unknown_peers: Vec<Caller> = (100..150).map(|ssrc| Caller::new(ssrc, at)).collect();
    // As many packets as a socket's buffer holds.
    unknown_peers.iter().for_each(|s| s.talk(5));
    std::thread::sleep(ms(200));
    let told: Vec<usize> = unknown_peers.iter().map(|s| s.hears(ms(1)).len()).collect();
    assert!(told.iter().all(|n| *n <= 2), "{told:?}");
    let all: usize = told.iter().sum();
    assert!((10..=32).contains(&all), "{told:?}");
    let bye = rtcp::parse(&{
        std::thread::sleep(ms(1_100));
        unknown_peers[0].talk(1);
        unknown_peers[0].hears(ms(300)).pop().expect("told again")
    });
    assert!(bye.is_ok_and(|c| c.bye), "{bye:?}");
    // The ongoing call has not suffered.
    first.report(20, 1, true);
    let (code, report, _) = ended(listener);
    assert_eq!((code, &report["packets"], &report["lost"]), (Some(0), &json!(20), &json!(0)));
    assert!(first.hears(ms(1)).iter().all(|p| rtcp::parse(p).is_ok_and(|c| !c.bye)));
}

/// Covers an attacker that forges the caller's address, and a caller that changes its stream.
#[apply(on_time)]
fn another_stream_from_where_the_caller_is_does_not_end_the_call() {
    let (listener, at) = listen_on_udp(&["--idle", "3 s"]);
    let caller = Caller::new(7, at);
    let other = Caller { ssrc: 8, socket: caller.socket.try_clone().expect("a copy"), to: at };
    let says_goodbye = |said: &[Vec<u8>]| said.iter().any(|p| rtcp::parse(p).is_ok_and(|c| c.bye));
    caller.talk(20);
    other.talk(5);
    assert!(!says_goodbye(&caller.hears(ms(300))), "it is in a call with the listener");
    caller.report(20, 1, true);
    let (code, report, _) = ended(listener);
    assert_eq!((code, &report["packets"], &report["lost"]), (Some(0), &json!(20), &json!(0)));

    // Once the caller is silent, others at its address are rejected.
    let (listener, at) = listen_on_udp(&["--idle", "3 s"]);
    let caller = Caller { to: at, ..caller };
    caller.talk(20);
    std::thread::sleep(ms(1_200));
    Caller { ssrc: 8, ..caller }.talk(1);
    let said = Caller { ssrc: 7, ..other }.hears(ms(300));
    assert!(says_goodbye(&said), "{said:?}");
    drop(listener);
}

#[apply(on_time)]
fn a_listener_that_stops_hangs_up() {
    let chain = Chain::of(2);
    let said = speech(chain.dir.path());
    for overlay in [true, false] {
        let (listener, sender) = if overlay {
            let mut listener = Process::start(
                trunkline(["call", "recv", "--json", "--socket"]).arg(&chain.nodes[1].socket),
            );
            listener.wait_for_word("listening on");
            let mut sender = Process::start(
                trunkline(["call", "send", "--json", "--duration", "20 s", "--to", "2:5004"])
                    .arg("--socket")
                    .arg(&chain.nodes[0].socket)
                    .arg(&said),
            );
            sender.wait_for_word("calling");
            (listener, sender)
        } else {
            let (listener, at) = listen_on_udp(&[]);
            (listener, send_over_udp(&said, at, "20 s"))
        };
        std::thread::sleep(ms(700));
        listener.signal(Signal::SIGTERM);
        let begun = Instant::now();
        let (code, report, _) = ended(listener);
        assert_eq!((code, &report["ended"]), (Some(0), &json!("stopped")), "{report}");
        // Being stopped does not reveal the number of packets.
        assert_eq!(report["sent"], Value::Null, "{report}");
        let (code, sent, told) = ended(sender);
        assert!(begun.elapsed() < ms(3_000), "{:?}", begun.elapsed());
        assert_eq!(code, Some(1), "{sent}");
        assert!(told.contains("the other end hung up after "), "{told}");
        let after = sent["broke_off_after_s"].as_f64().expect("a number");
        assert!((0.4..2.0).contains(&after), "{sent}");
    }
}

#[apply(on_time)]
fn what_was_sent_is_known_only_of_a_call_whose_end_was_heard() {
    let sent = |bye: bool| {
        let (listener, at) = listen_on_udp(&["--idle", "500ms"]);
        let caller = Caller::new(7, at);
        caller.talk(50);
        caller.report(60, 0, bye);
        ended(listener).1
    };
    let (broken, whole) = (sent(false), sent(true));
    assert_eq!((&broken["sent"], &broken["packets"]), (&Value::Null, &json!(60)), "{broken}");
    assert_eq!((&whole["sent"], &whole["packets"]), (&json!(60), &json!(60)), "{whole}");

    // A listener without a caller reports that.
    let (listener, _) = listen_on_udp(&[]);
    listener.signal(Signal::SIGTERM);
    let (code, nothing, _) = ended(listener);
    assert_eq!((code, &nothing["ended"]), (Some(0), &json!("stopped")), "{nothing}");
    assert_eq!((&nothing["packets"], &nothing["mos"]), (&json!(0), &Value::Null), "{nothing}");
    let keys = |v: &Value| v.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(&nothing), keys(&whole));
    let delay = "delay_above_fastest_ms";
    assert_eq!(keys(&nothing[delay]), keys(&whole[delay]));
}

#[apply(on_time)]
fn packets_to_nowhere_are_not_called_sent() {
    let chain = Chain::of(2);
    let said = speech(chain.dir.path());
    let send = |to: &str, more: &[&str]| {
        let mut command = trunkline(["call", "send", "--duration", "4 s", "--to", to, "--socket"]);
        common::run(command.arg(&chain.nodes[0].socket).arg(&said).args(more))
    };
    // A call of a second ends before the caller has given up on a listener.
    let brief = common::run(
        trunkline(["call", "send", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    let told = "the call was not established: no application is bound to 2:5004";
    assert!(brief.code == Some(1) && brief.stderr.contains(told), "{}", brief.stderr);
    assert!(brief.stdout.starts_with("sent 0 of 50 packets"), "{}", brief.stdout);
    for to in ["9:5004", "2:5004"] {
        let told = send(to, &["--json"]);
        let sent: Value = serde_json::from_str(&told.stdout).expect("JSON");
        assert_eq!((told.code, &sent["sent"]), (Some(1), &json!(0)), "{sent}");
        assert_eq!(sent["packets"], sent["unreachable"], "{sent}");
        assert!(sent["packets"].as_u64() >= Some(1), "{sent}");
        let line = send(to, &[]).stdout;
        assert!(line.starts_with("sent 0 of "), "{line}");
    }
}

#[apply(on_time)]
fn a_goodbye_that_cannot_leave_ends_no_call_well() {
    let told = "the end of the call could not be announced";
    let mut chain = Chain::of(2);
    let said = speech(chain.dir.path());
    // A socket may not send to the broadcast address unless that option is set.
    let everybody = send_over_udp(&said, (Ipv4Addr::BROADCAST, 9).into(), "200ms");
    let (code, sent, complaint) = ended(everybody);
    assert_eq!((code, &sent["why"], &sent["unsent"]), (Some(1), &json!(told), &json!(10)));
    assert!(!complaint.contains("node"), "{complaint}");

    let mut listener = Process::start(
        trunkline(["call", "recv", "--json", "--socket"]).arg(&chain.nodes[1].socket),
    );
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--json", "--duration", "2 s", "--to", "2:5004", "--socket"])
            .arg(&chain.nodes[0].socket)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    std::thread::sleep(ms(600));
    chain.nodes[0].crash();
    let (code, sent, complaint) = ended(sender);
    assert_eq!((code, &sent["why"]), (Some(1), &json!(told)), "{sent}");
    assert!(complaint.contains("the node was away"), "{complaint}");
    let (code, heard, _) = ended(listener);
    assert_eq!((code, &heard["ended"]), (Some(1), &json!("broke-off")), "{heard}");
}

#[apply(on_time)]
fn a_listener_says_after_a_gap_that_it_is_there() {
    let (listener, at) = listen_on_udp(&["--idle", "2 s"]);
    let caller = Caller::new(7, at);
    let empty = |caller: &Caller| {
        let heard = caller.hears(ms(200));
        assert!(heard.iter().all(|p| p[..2] == [0x80, 201]), "{heard:?}");
        heard.len()
    };
    caller.talk(10);
    assert_eq!(empty(&caller), 3);
    caller.talk(10);
    assert_eq!(empty(&caller), 0, "there was no gap");
    std::thread::sleep(ms(500));
    caller.talk(10);
    assert_eq!(empty(&caller), 3);
    caller.report(10, 1 << 32, true);
    assert_eq!(ended(listener).0, Some(0));
}
