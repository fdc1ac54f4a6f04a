//! `trunkline call`: what is heard is what was said.

mod common;

use common::{Chain, Process, free_port, run, temp_dir, trunkline};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use trunkline_media::audio::{read_wav, write_wav};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtp::{HEADER_LEN, Packetizer, Stream};

/// Packets of the call: 0.8 s.
const PACKETS: usize = 40;

/// A tone that grows, so that no two packets are alike.
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

/// Makes a call with these carriers and returns what was heard.
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
    for (key, n) in [("packets", PACKETS), ("played", PACKETS), ("lost", 0), ("late", 0)] {
        assert_eq!(report[key], n, "{report}");
    }
    assert!(report["mos"].as_f64().is_some_and(|mos| mos > 4.0), "{report}");
    read_wav(BufReader::new(File::open(&out).expect("written"))).expect("a WAV file")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
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

#[test]
fn a_lost_packet_is_concealed() {
    let dir = temp_dir();
    let out = dir.path().join("heard.wav");
    let at = free_port(Ipv4Addr::LOCALHOST.into());
    let mut listener = Process::start(
        trunkline(["call", "recv", "--udp", "--listen", "127.0.0.1", "--idle", "500ms", "--port"])
            .arg(at.port().to_string())
            // All packets leave at once, so the first seem to be late.
            .args(["--deadline", "1 s", "--out"])
            .arg(&out),
    );
    listener.wait_for_word("listening on");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    // Whole periods in a packet.
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
    // The tone goes on, four fifths as loud in the end, where it was said.
    for (n, (heard, said)) in heard.iter().zip(&pcm).enumerate() {
        let off = (f64::from(*heard) - f64::from(*said)).abs();
        let allowed = if (1_600..1_840).contains(&n) { 1_700.0 } else { 200.0 };
        assert!(off < allowed, "sample {n}: {heard} for {said}");
    }
}

#[test]
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
        assert_eq!(sent, PACKETS as u64, "{class}");
    }
}

#[test]
fn with_nodes_inside() {
    let mut chain = Chain::prepare(&common::Setup::default());
    let (said, pcm) = speech(chain.dir.path());
    // The caller's node in its process, the listener's at first outside.
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

#[test]
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
        assert!(ended.one_line(1).contains("bad.wav: "), "{}", ended.stderr);
    }
    let ended =
        run(&mut trunkline(["call", "recv", "--udp", "--port", "0", "--out", "/dev/null/x"]));
    assert!(ended.one_line(1).contains("/dev/null/x: "), "{}", ended.stderr);
    let ended = run(trunkline(["call", "send", "--udp", "--to", "2:5004"]).arg(&said));
    assert!(ended.one_line(2).contains("--udp wants --to IP:PORT"), "{}", ended.stderr);
    let absent = dir.path().join("absent.sock");
    let ended =
        run(trunkline(["call", "send", "--to", "2:5004", "--socket"]).arg(&absent).arg(&said));
    let line = ended.one_line(1);
    assert!(line.contains("absent.sock") && line.contains("is it running"), "{line}");
}
