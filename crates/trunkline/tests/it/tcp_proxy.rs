//! `trunkline proxy tcp:`: programs that support only TCP, over real nodes.

use crate::common::on_time::on_time;
use crate::common::proxy::{LOCALHOST, end, proxy, socket};
use crate::common::streams::{Cat, cat, descriptors, noise, sha256};
use crate::common::{self, Chain, Process, Setup, free_port, ms, run, trunkline, wait_for};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Whether `program` is installed; if not, prints that the test is skipped.
fn installed(program: &str, version: &str) -> bool {
    let there = Command::new(program).arg(version).output().is_ok_and(|o| o.status.success());
    if !there {
        // A macro's output would be hidden if the test passes.
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
        assert!(std::env::var_os("CI").is_none(), "{program} must be installed in CI");
    }
    there
}

/// Two nodes and a proxy at each: `near` listens on TCP at `at`, and `far` connects to `server`.
struct Bridge {
    near: Process,
    far: Process,
    at: SocketAddr,
    server: SocketAddr,
    chain: Chain,
}

impl Bridge {
    fn over(chain: Chain, near: &[&str], far: &[&str]) -> Bridge {
        let (at, server) = (free_port(LOCALHOST), free_port(LOCALHOST));
        let last = chain.nodes.len();
        let port = format!("{last}:900");
        let far = proxy(socket(&chain, last - 1), &port, &format!("tcp:{server}"), far);
        let near = proxy(socket(&chain, 0), &format!("tcp:{at}"), &port, near);
        Bridge { near, far, at, server, chain }
    }

    /// Opens a connection through it, and returns both ends.
    fn connect(&self, server: &TcpListener) -> (TcpStream, TcpStream) {
        let near = TcpStream::connect(self.at).expect("the proxy listens");
        let far = accept(server, common::PATIENCE).expect("a connection");
        for end in [&near, &far] {
            end.set_read_timeout(Some(common::PATIENCE)).expect("an option");
        }
        (near, far)
    }

    /// Stops both proxies, and returns their counts and logs.
    fn end(self) -> [(Value, String); 2] {
        [end(self.near), end(self.far)]
    }
}

fn count(said: &Value, key: &str) -> u64 {
    said["connections"][key].as_u64().unwrap_or_else(|| panic!("{key} in {said}"))
}

/// Accepts the next connection to `server`, if one arrives within that time.
fn accept(server: &TcpListener, within: Duration) -> Option<TcpStream> {
    server.set_nonblocking(true).expect("an option");
    let until = Instant::now() + within;
    loop {
        match server.accept() {
            Ok((far, _)) => {
                far.set_nonblocking(false).expect("an option");
                return Some(far);
            }
            Err(_) if Instant::now() > until => return None,
            Err(_) => thread::sleep(ms(5)),
        }
    }
}

/// Checks that the other end has reset the connection.
#[track_caller]
fn is_reset(mut tcp: &TcpStream) {
    let error = loop {
        match tcp.read(&mut [0; 100]) {
            Ok(0) => panic!("it ended, and was not reset"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

#[apply(on_time)]
fn each_direction_ends_by_itself_and_a_reset_is_one() {
    let bridge = Bridge::over(Chain::of(2), &[], &[]);
    let server = TcpListener::bind(bridge.server).expect("free");
    for near_first in [true, false] {
        let (near, far) = bridge.connect(&server);
        let (mut first, mut second) = if near_first { (near, far) } else { (far, near) };
        first.write_all(b"question").expect("open");
        first.shutdown(Shutdown::Write).expect("open");
        let mut got = String::new();
        second.read_to_string(&mut got).expect("its end");
        assert_eq!(got, "question");
        let answer = noise(2_000_000);
        second.write_all(&answer).expect("open");
        drop(second);
        let mut got = Vec::new();
        first.read_to_end(&mut got).expect("its end");
        assert!(got == answer, "{} bytes", got.len());
    }
    for near_first in [true, false] {
        let (near, far) = bridge.connect(&server);
        let (mut first, mut second) = if near_first { (near, far) } else { (far, near) };
        first.write_all(b"some").expect("open");
        // A connection that is reset before the proxy accepts it is not counted.
        second.read_exact(&mut [0; 4]).expect("the same");
        let _ = socket2::SockRef::from(&first).set_linger(Some(Duration::ZERO));
        drop(first);
        is_reset(&second);
    }
    // A connection that is reset before its stream is open does not count as ended.
    let near = TcpStream::connect(bridge.at).expect("the proxy listens");
    let _ = socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO));
    drop(near);
    let seen = accept(&server, ms(2_000));
    if let Some(far) = &seen {
        is_reset(far);
    }
    // A reset also works if one direction has ended.
    let (near, far) = bridge.connect(&server);
    far.shutdown(Shutdown::Write).expect("open");
    assert_eq!((&near).read(&mut [0; 9]).expect("its end"), 0);
    let _ = socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO));
    drop(far);
    wait_for("the reset", || (&near).write(b"x").is_err().then_some(()));
    // A stream that is reset while the far proxy accepts it is not counted there.
    let far = if seen.is_some() { [6, 2, 4] } else { [5, 2, 3] };
    for ((said, log), expected) in bridge.end().into_iter().zip([[6, 2, 4], far]) {
        let counts = ["opened", "ended", "broken"].map(|key| count(&said, key));
        assert_eq!(counts, expected, "{said} {log}");
        assert!(!log.contains("WARN"), "{log}");
    }
}

#[apply(on_time)]
fn who_is_refused_is_reset_and_the_log_says_why() {
    let bridge = Bridge::over(Chain::of(2), &["--max-flows", "3"], &[]);
    // The server is not running yet.
    is_reset(&TcpStream::connect(bridge.at).expect("the proxy listens"));
    let server = TcpListener::bind(bridge.server).expect("free");
    let open: Vec<_> = (0..3).map(|_| bridge.connect(&server)).collect();
    for _ in 0..2 {
        is_reset(&TcpStream::connect(bridge.at).expect("the proxy listens"));
    }
    drop(open);
    // Their slot is free for another connection.
    wait_for("a place", || {
        let mut near = TcpStream::connect(bridge.at).ok()?;
        near.write_all(b"x").ok()?;
        near.shutdown(Shutdown::Write).ok()?;
        near.set_read_timeout(Some(ms(500))).ok()?;
        let mut byte = [0];
        let far = accept(&server, ms(500))?;
        (&far).read_exact(&mut byte).ok()
    });
    let [near, far] = bridge.end();
    assert!(near.0["refused"]["too_many"].as_u64() >= Some(2), "{}", near.0);
    assert_eq!(near.1.matches("--max-flows").count(), 1, "once in ten seconds: {}", near.1);
    assert_eq!(far.0["refused"]["no_tcp"], 1, "{}", far.0);
    assert!(far.1.contains("no TCP connection to"), "{}", far.1);

    // The port at the other node has no listener.
    let chain = Chain::of(2);
    let at = free_port(LOCALHOST);
    let near = proxy(socket(&chain, 0), &format!("tcp:{at}"), "2:901", &[]);
    is_reset(&TcpStream::connect(at).expect("the proxy listens"));
    let (said, log) = end(near);
    assert_eq!(said["refused"]["no_stream"], 1, "{said}");
    assert!(log.contains("no application listens for streams"), "{log}");
}

/// Node 1 takes all the places that it may have, which leaves those of node 3.
#[apply(on_time)]
fn a_node_has_a_share_of_the_connections() {
    let chain = Chain::of(3);
    let server = TcpListener::bind((LOCALHOST, 0)).expect("free");
    let to = format!("tcp:{}", server.local_addr().expect("bound"));
    let far = proxy(socket(&chain, 1), "2:900", &to, &["--max-flows", "8"]);
    let ats = [0, 2].map(|i| {
        let at = free_port(LOCALHOST);
        (proxy(socket(&chain, i), &format!("tcp:{at}"), "2:900", &[]), at)
    });
    let connect = |at| {
        let near = TcpStream::connect(at).expect("the proxy listens");
        (near, accept(&server, common::PATIENCE).expect("a connection"))
    };
    let mut open: Vec<_> = (0..4).map(|_| connect(ats[0].1)).collect();
    is_reset(&TcpStream::connect(ats[0].1).expect("the proxy listens"));
    open.extend((0..4).map(|_| connect(ats[1].1)));
    drop(open);
    for (near, _) in ats {
        end(near);
    }
    let (said, log) = end(far);
    assert_eq!(said["refused"]["too_many_of_node"], 1, "{said}");
    assert_eq!((count(&said, "opened"), &said["refused"]["too_many"]), (8, &0.into()), "{said}");
    assert!(log.contains("from node 1 was refused: it has 4 already; allow more with"), "{log}");
}

/// Each node is killed and restarted while a connection is open; a later connection succeeds.
#[apply(on_time)]
fn a_restart_of_a_node_breaks_only_what_is_open() {
    let mut bridge = Bridge::over(Chain::of(2), &[], &[]);
    let server = TcpListener::bind(bridge.server).expect("free");
    let works = |bridge: &Bridge| {
        let near = TcpStream::connect(bridge.at).ok()?;
        (&near).write_all(b"x").ok()?;
        let far = accept(&server, ms(1_000))?;
        far.set_read_timeout(Some(common::PATIENCE)).expect("an option");
        (&far).read_exact(&mut [0]).ok().map(|()| (near, far))
    };
    for i in [1, 0, 1] {
        let (near, far) = wait_for("a connection", || works(&bridge));
        bridge.chain.nodes[i].crash();
        // Its own proxy notices at once, the other one when the node has restarted.
        is_reset(if i == 0 { &near } else { &far });
        bridge.chain.nodes[i].start();
        near.set_read_timeout(Some(common::PATIENCE)).expect("an option");
        let other = if i == 0 { &far } else { &near };
        wait_for("the other end to hear of it", || {
            let mut other = other;
            other.write(b"x").is_err().then_some(())
        });
    }
    wait_for("a connection", || works(&bridge));
    assert!(bridge.near.is_running() && bridge.far.is_running());
}

/// Many connections at once, each with data of its own, leave no descriptor open.
#[apply(on_time)]
fn many_connections_at_once_are_whole() {
    const AT_ONCE: usize = 50;
    let bridge = Bridge::over(Chain::sealed(3), &[], &[]);
    let server = TcpListener::bind(bridge.server).expect("free");
    thread::spawn(move || {
        for client in server.incoming().flatten() {
            thread::spawn(move || {
                let (mut from, mut to) = (&client, &client);
                std::io::copy(&mut from, &mut to).expect("echoed");
                client.shutdown(Shutdown::Write).expect("open");
            });
        }
    });
    let before = (descriptors(&bridge.near), descriptors(&bridge.far));
    for _ in 0..4 {
        thread::scope(|scope| {
            for n in 0..AT_ONCE {
                let at = bridge.at;
                scope.spawn(move || {
                    let client = TcpStream::connect(at).expect("the proxy listens");
                    client.set_read_timeout(Some(common::PATIENCE)).expect("an option");
                    let bytes = noise(100_000 + 7 * n);
                    let mut got = Vec::new();
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            (&client).write_all(&bytes).expect("open");
                            client.shutdown(Shutdown::Write).expect("open");
                        });
                        (&client).read_to_end(&mut got).expect("its end");
                    });
                    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
                });
            }
        });
    }
    wait_for("descriptors as before", || {
        ((descriptors(&bridge.near), descriptors(&bridge.far)) == before).then_some(())
    });
    for (said, log) in bridge.end() {
        let counts = ["opened", "ended", "broken"].map(|key| count(&said, key));
        assert_eq!(counts, [4 * AT_ONCE as u64, 4 * AT_ONCE as u64, 0], "{said} {log}");
    }
}

/// Connects `cat` to a TCP server, and a TCP client to `cat`.
#[apply(on_time)]
fn cat_is_the_other_end_of_a_proxy() {
    let chain = Chain::of(2);
    let (at, server) = (free_port(LOCALHOST), free_port(LOCALHOST));
    let far = proxy(socket(&chain, 1), "2:900", &format!("tcp:{server}"), &[]);
    let near = proxy(socket(&chain, 0), &format!("tcp:{at}"), "2:901", &["--idle", "1 s"]);
    let tcp = TcpListener::bind(server).expect("free");
    let serve = thread::spawn(move || {
        let (client, _) = tcp.accept().expect("a connection");
        (&client).write_all(b"an answer").expect("open");
        client.shutdown(Shutdown::Write).expect("open");
        let mut got = Vec::new();
        (&client).read_to_end(&mut got).expect("its end");
        got
    });
    let to = chain.dir.path().join("copy");
    let mut command = cat(&chain.nodes[0], &["2:900"]);
    let mut client = Cat::start(&mut command, Stdio::null(), &to);
    assert_eq!(client.end().0, 0, "{}", client.said());
    assert_eq!(fs::read(&to).expect("written"), b"an answer");
    assert_eq!(serve.join().expect("it ends"), b"");

    let mut listener = Cat::listen(&chain.nodes[1], "901", &to);
    let mut client = TcpStream::connect(at).expect("the proxy listens");
    client.write_all(b"by TCP").expect("open");
    client.shutdown(Shutdown::Write).expect("open");
    assert_eq!(client.read(&mut [0; 9]).expect("its end"), 0);
    assert_eq!(listener.end().0, 0, "{}", listener.said());
    assert_eq!(fs::read(&to).expect("written"), b"by TCP");

    // A connection without data for the time of --idle is reset at both ends.
    let mut listener = Cat::answer(&chain.nodes[1], "901", Stdio::piped(), &to);
    let _stdin = listener.stdin();
    let client = TcpStream::connect(at).expect("the proxy listens");
    is_reset(&client);
    assert_eq!(listener.end().0, 4, "{}", listener.said());
    let (said, log) = end(near);
    assert!(log.contains("--idle"), "{log}");
    assert_eq!(count(&said, "broken"), 1, "{said}");
    end(far);
}

#[test]
fn what_makes_no_proxy_is_refused() {
    let chain = Chain::of(2);
    let at = socket(&chain, 0);
    for (args, why) in [
        (
            &["tcp:127.0.0.1:1", "udp:127.0.0.1:2"][..],
            "cannot join tcp:127.0.0.1:1 and udp:127.0.0.1:2",
        ),
        (&["tcp:127.0.0.1:1-2", "2:900"], "give as many of both"),
        (&["2:900", "tcp:127.0.0.1:1"], "it would be 1:900"),
        (&["tcp:127.0.0.1:1", "2:900", "--service", "real-time"], "--service is for udp"),
        (&["tcp:127.0.0.1:1", "2:900", "--deadline", "50ms"], "--deadline is for udp"),
    ] {
        let said = run(trunkline(["proxy", "--socket", at]).args(args));
        assert!(said.one_line(2).contains(why), "{args:?}: {}", said.stderr);
    }
    let taken = TcpListener::bind((LOCALHOST, 0)).expect("a port");
    let taken = format!("tcp:{}", taken.local_addr().expect("bound"));
    let said = run(&mut trunkline(["proxy", "--socket", at, &taken, "2:900"]));
    assert!(said.one_line(1).contains("listen elsewhere"), "{}", said.stderr);
    let said = run(&mut trunkline(["proxy", "--socket", at, "tcp:192.0.2.77:80", "2:900"]));
    assert!(said.one_line(1).contains("an address of this machine"), "{}", said.stderr);
}

#[apply(on_time)]
fn iperf3_measures_streams() {
    if !installed("iperf3", "--version") {
        return;
    }
    let impair = "delay = \"5ms\"\nloss = \"1%\"\nrate = \"20 Mbit/s\"";
    let chain = Chain::start(&Setup { nodes: 3, impair, ..Setup::default() });
    let bridge = Bridge::over(chain, &[], &[]);
    let [server, near] = [bridge.server, bridge.at].map(|at| at.port().to_string());
    let mut command = Command::new("iperf3");
    let _server = Process::start(command.args(["-s", "-B", "127.0.0.1", "-p", &server]));
    wait_for("iperf3 to listen", || TcpStream::connect(bridge.server).ok());
    for direction in [&[][..], &["-R"]] {
        let mut client = Command::new("timeout");
        client.args(["30", "iperf3", "-c", "127.0.0.1", "-p", &near, "-J", "-t", "3"]);
        let ended = run(client.args(direction));
        assert_eq!(ended.code, Some(0), "{} {}", ended.stdout, ended.stderr);
        let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
        println!("iperf3 {direction:?}: {:.2} Mbit/s", rate / 1e6);
        assert!(rate > 1e6, "{rate} bit/s over two links of 20 Mbit/s with 1 % loss");
    }
}

#[apply(on_time)]
fn git_clones_over_streams() {
    if !installed("git", "--version") {
        return;
    }
    let bridge = Bridge::over(Chain::sealed(3), &[], &[]);
    let (dir, copy) =
        (bridge.chain.dir.path().join("project"), bridge.chain.dir.path().join("copy"));
    fs::create_dir(&dir).expect("created");
    let git = |at: &Path, args: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let ended = run(git.arg("-C").arg(at).args(args));
        assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.stderr);
        ended.stdout
    };
    git(&dir, &["init", "-q"]);
    for n in 0..20 {
        fs::write(dir.join(format!("file{n}")), noise(150_000 + n)).expect("written");
    }
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "-q", "-m", "files"]);
    // Started through `git`, it would keep running.
    let programs = git(&dir, &["--exec-path"]);
    let mut daemon = Command::new(format!("{}/git-daemon", programs.trim_end()));
    daemon.args(["--reuseaddr", "--export-all", "--listen=127.0.0.1"]);
    daemon.arg(format!("--port={}", bridge.server.port()));
    let base = format!("--base-path={}", bridge.chain.dir.path().display());
    let daemon = Process::start(daemon.arg(base));
    wait_for("git daemon to listen", || TcpStream::connect(bridge.server).ok());
    let url = format!("git://{}/project", bridge.at);
    git(bridge.chain.dir.path(), &["clone", "-q", &url, "copy"]);
    assert_eq!(git(&dir, &["rev-parse", "HEAD"]), git(&copy, &["rev-parse", "HEAD"]));
    for n in 0..20 {
        let name = format!("file{n}");
        assert_eq!(sha256(&dir.join(&name)), sha256(&copy.join(&name)));
    }
    drop(daemon);
}
