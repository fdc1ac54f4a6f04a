//! Programs unaware of the overlay, through `trunkline proxy`: iperf3 and ffmpeg.

use crate::common::on_time::on_time;
use crate::common::proxy::{end, pair, proxy, range, socket};
use crate::common::{Chain, Process, Setup, free_port, ms, run, trunkline, wait_for};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

/// Whether `program` is installed; if not, prints that the test is skipped.
fn installed(program: &str, version: &str) -> bool {
    let there = Command::new(program).arg(version).output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: {program} is not installed");
        assert!(std::env::var_os("CI").is_none(), "{program} must be installed in CI");
    }
    there
}

/// Forwards TCP connections from `at` to `to`, like `ssh -L`.
fn forward(at: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(at).expect("free");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Until the server is up, the client is refused.
            let Ok(server) = TcpStream::connect(to) else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) =
                    (from.try_clone().expect("a clone"), to.try_clone().expect("a clone"));
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
}

/// iperf3 needs TCP and UDP at the same port: its control connection bypasses the overlay.
#[apply(on_time)]
fn iperf3_measures_the_overlay() {
    if !installed("iperf3", "--version") {
        return;
    }
    let impair = "delay = \"5ms\"\nloss = \"5%\"";
    let chain = Chain::start(&Setup { impair, ..Setup::default() });
    // The server has a separate address, so that it can use the same port.
    let beside =
        |near: &SocketAddr| SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), near.port());
    let near = std::iter::repeat_with(|| free_port(Ipv4Addr::LOCALHOST.into()))
        .find(|near| TcpListener::bind(beside(near)).is_ok())
        .expect("a port free at both");
    let server = beside(&near);
    forward(near, server);
    let far = proxy(socket(&chain, 1), "2:5201", &format!("udp:{server}"), &[]);
    let near_proxy = proxy(socket(&chain, 0), &format!("udp:{near}"), "2:5201", &[]);
    let port = near.port().to_string();
    let mut server = Command::new("iperf3");
    let _server = Process::start(server.args(["-s", "-B", "127.0.0.2", "-p", &port]));
    for direction in [&[][..], &["-R"]] {
        // It starts with one packet in each direction. If that is lost, no later packet reveals it,
        // and iperf3 would wait for half a minute.
        let mut said = Vec::new();
        let report = (0..10).find_map(|_| {
            let mut client = Command::new("timeout");
            client.args(["8", "iperf3", "-c", "127.0.0.1", "-p", &port, "-J", "-u", "-t", "3"]);
            let ended = run(client.args(["-b", "400K", "-l", "172"]).args(direction));
            let json = serde_json::from_str::<Value>(&ended.stdout).ok();
            // A run that ended early has no report, and may still exit with success.
            let whole = |json: &Value| json["end"]["sum"]["packets"].is_u64();
            json.filter(|json| ended.code == Some(0) && whole(json)).or_else(|| {
                said.push((ended.code, ended.stdout, ended.stderr));
                thread::sleep(ms(300));
                None
            })
        });
        let report = report.unwrap_or_else(|| panic!("none of ten succeeded: {said:#?}"));
        let sum = &report["end"]["sum"];
        println!("iperf3 {direction:?}: {sum}");
        let packets = sum["packets"].as_u64().expect("a number");
        assert!(packets > 500, "{report}");
        let lost = sum["lost_percent"].as_f64().expect("a number");
        // The link loses 5 %; with recovery half a per cent remains.
        assert!(lost < 2.5, "{lost} % of {packets} lost");
    }
    let near = end(near_proxy).0;
    assert!(near["flows"]["opened"].as_u64() >= Some(2), "one for each measurement: {near}");
    let far = end(far).0;
    assert!(far["to_overlay"]["packets"].as_u64() > Some(500), "{far}");
}

/// Writes a tone of three seconds.
fn tone(path: &Path) {
    let sample = |n: i32| (8_000.0 * (f64::from(n) * 0.35).sin()) as i16;
    let pcm: Vec<i16> = (0..24_000).map(sample).collect();
    let file = std::fs::File::create(path).expect("created");
    trunkline_media::audio::write_wav(std::io::BufWriter::new(file), &pcm).expect("written");
}

/// A command by which ffmpeg sends the WAV file at `said` as RTP to `at`, µ-law in packets of 20
/// ms.
fn stream(said: &Path, at: SocketAddr) -> Command {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-loglevel", "error", "-i"]).arg(said);
    // `-re` would send in blocks of 256 ms, the size of the WAV reader's.
    ffmpeg.args(["-af", "asetnsamples=160,arealtime"]);
    ffmpeg.args(["-c:a", "pcm_mulaw", "-ar", "8000", "-ac", "1", "-f", "rtp"]);
    ffmpeg.arg(format!("rtp://{at}?pkt_size=172"));
    ffmpeg
}

#[apply(on_time)]
fn ffmpeg_calls_a_listener_of_ours() {
    if !installed("ffmpeg", "-version") {
        return;
    }
    let chain = Chain::of(2);
    let said = chain.dir.path().join("said.wav");
    tone(&said);
    let at = pair();
    let near = proxy(socket(&chain, 0), &range(at), "2:5004-5005", &[]);
    let mut listener = Process::start(
        trunkline(["call", "recv", "--port", "5004", "--idle", "1 s", "--json", "--socket"])
            .arg(&chain.nodes[1].socket)
            // ffmpeg sends its RTCP to the next port.
            .args(["--expect", "3 s"]),
    );
    listener.wait_for_word("listening on");
    let sent = run(&mut stream(&said, at));
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report: Value = serde_json::from_str(&listener.rest().0).expect("JSON");
    assert_eq!((&report["packets"], &report["lost"]), (&150.into(), &0.into()), "{report}");
    let (near, said) = end(near);
    assert_eq!(near["dropped"]["too_large"], 0, "{near} {said}");
    assert!(near["to_overlay"]["packets"].as_u64() > Some(150), "RTCP goes too: {near}");
}

#[apply(on_time)]
fn ffmpeg_calls_ffmpeg() {
    if !installed("ffmpeg", "-version") {
        return;
    }
    let chain = Chain::of(2);
    let dir = chain.dir.path();
    let (said, heard, sdp) = (dir.join("said.wav"), dir.join("heard.wav"), dir.join("call.sdp"));
    tone(&said);
    let (at, server) = (pair(), pair());
    let _far = proxy(socket(&chain, 1), "2:5004-5005", &range(server), &[]);
    let _near = proxy(socket(&chain, 0), &range(at), "2:5004-5005", &[]);
    let session = format!(
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {} RTP/AVP 0\n",
        server.port()
    );
    std::fs::write(&sdp, session).expect("written");
    let mut receiver = Command::new("ffmpeg");
    receiver.args(["-nostdin", "-loglevel", "error", "-protocol_whitelist", "file,udp,rtp", "-i"]);
    let mut receiver = Process::start(receiver.arg(&sdp).args(["-t", "1"]).arg(&heard));
    // It starts listening after a while, without reporting it.
    let port = format!(":{:04X} ", server.port());
    let listens = || std::fs::read_to_string("/proc/net/udp").expect("Linux").contains(&port);
    wait_for("ffmpeg to listen", || listens().then_some(()));
    let sender = Process::start(&mut stream(&said, at));
    assert_eq!(receiver.wait().code(), Some(0), "{}", receiver.stderr());
    drop(sender);
    let file = std::io::BufReader::new(std::fs::File::open(&heard).expect("written"));
    let pcm = trunkline_media::audio::read_wav(file).expect("a WAV file");
    let loud = pcm.iter().filter(|s| s.unsigned_abs() > 4_000).count();
    println!("{} samples heard, {loud} of them loud", pcm.len());
    assert!(pcm.len() >= 7_900 && loud > pcm.len() / 2, "{loud} of {} samples", pcm.len());
}
