//! Streams between real daemons, with `trunkline cat` and the library, and their display for
//! operators.

use crate::common::on_time::on_time;
use crate::common::streams::{self, Cat, cat, descriptors, noise, operate, sha256, streams};
use crate::common::{self, Chain, Node, Setup, ms, run, temp_dir, trunkline, wait_for};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{Error, NodeId, RefusalReason, Reset, StreamListener, StreamSocket};

fn count(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("{key} in {summary}"))
}

fn connect(node: &Node, to: (u32, u16)) -> Result<StreamSocket, Error> {
    let to = trunkline_client::Address { node: NodeId(to.0), port: to.1 };
    StreamSocket::connect(node.socket.as_path(), to)
}

/// Copies 16 MiB from node 1 to node 3 with `cat`, while node 2 between them is killed and
/// restarted.
fn copy_over_a_restart(sealed: bool) {
    const LEN: usize = 16 << 20;
    let link = "rate = \"40 Mbit/s\"\n";
    let mut chain = streams::start(&Setup { nodes: 3, link, sealed, ..Setup::default() });
    let (file, copy) = (chain.dir.path().join("file"), chain.dir.path().join("copy"));
    fs::write(&file, noise(LEN)).expect("written");
    let mut listener = Cat::listen(&chain.nodes[2], "900", &copy);
    let from = Stdio::from(File::open(&file).expect("written"));
    let nothing = chain.dir.path().join("nothing");
    let mut sender = Cat::start(&mut cat(&chain.nodes[0], &["3:900"]), from, &nothing);
    let came = || fs::metadata(&copy).map_or(0, |meta| meta.len());
    wait_for("a third of it", || (came() > LEN as u64 / 3).then_some(()));
    chain.nodes[1].crash();
    let before = came();
    assert!(before < LEN as u64 * 2 / 3, "{before} bytes came before the crash");
    thread::sleep(ms(700));
    chain.nodes[1].start();
    let (sent, received) = (sender.end(), listener.end());
    assert_eq!((sent.0, received.0), (0, 0), "{} {}", sender.said(), listener.said());
    assert_eq!((count(&sent.1, "sent"), count(&sent.1, "received")), (LEN as u64, 0));
    assert_eq!((count(&received.1, "sent"), count(&received.1, "received")), (0, LEN as u64));
    assert_eq!((&sent.1["whole"], &received.1["whole"]), (&true.into(), &true.into()));
    assert_eq!(sha256(&file), sha256(&copy));
    println!("{}", sent.1);
    let repeated = chain.nodes[0].metrics().sum("stream_retransmitted_segments_total", "");
    assert!(repeated > 0, "what the relay held was lost with it");
}

#[apply(on_time)]
fn a_file_survives_a_relay_that_is_killed_and_restarted() {
    copy_over_a_restart(true);
}

#[apply(on_time)]
fn without_keys_it_does_likewise() {
    copy_over_a_restart(false);
}

#[apply(on_time)]
fn cat_goes_both_ways_and_each_ends_by_itself() {
    let chain = Chain::of(2);
    let dir = chain.dir.path();
    let [question, answer, asked, answered] =
        ["question", "answer", "asked", "answered"].map(|name| dir.join(name));
    let long = noise(3 << 20);
    fs::write(&answer, &long).expect("written");
    fs::write(&question, b"what?\n").expect("written");
    // The answer continues long after the question has ended.
    let from = |path: &Path| Stdio::from(File::open(path).expect("written"));
    let mut far = Cat::answer(&chain.nodes[1], "900", from(&answer), &asked);
    let command = &mut cat(&chain.nodes[0], &["2:900"]);
    let mut near = Cat::start(command, from(&question), &answered);
    assert_eq!((near.end().0, far.end().0), (0, 0), "{} {}", near.said(), far.said());
    assert_eq!(fs::read(&asked).expect("written"), b"what?\n");
    assert_eq!(sha256(&answer), sha256(&answered));

    // One direction stays open as long as its program wants, although the other has ended.
    let mut far = Cat::listen(&chain.nodes[1], "901", &asked);
    let command = &mut cat(&chain.nodes[0], &["2:901"]);
    let mut near = Cat::start(command, Stdio::piped(), &answered);
    let mut stdin = near.stdin();
    for n in 0..5 {
        thread::sleep(ms(100));
        writeln!(stdin, "line {n}").expect("it reads");
        wait_for("the line", || {
            fs::read_to_string(&asked).expect("text").ends_with(&format!("{n}\n")).then_some(())
        });
    }
    drop(stdin);
    assert_eq!((near.end().0, far.end().0), (0, 0), "{} {}", near.said(), far.said());
    assert_eq!(fs::read_to_string(&asked).expect("text").lines().count(), 5);
}

/// A slow reader of standard output receives the last bytes, which arrived long before, and no
/// state expires meanwhile.
#[apply(on_time)]
fn one_that_reads_slowly_gets_the_last_bytes() {
    const LEN: usize = 1_500_000;
    let chain = Chain::of(2);
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("bound");
    let near = connect(&chain.nodes[0], (2, 900)).expect("a stream");
    let (far, _) = listener.accept().expect("a stream");
    far.shutdown().expect("open");
    let bytes = noise(LEN);
    let mut left = &bytes[..];
    while !left.is_empty() {
        let n = near.write(left).expect("open");
        left = &left[n..];
    }
    near.shutdown().expect("open");
    assert_eq!(near.read(&mut [0; 9]).expect("its end"), 0);
    near.finish().expect("the other node has all");
    drop(near);
    thread::sleep(Duration::from_secs(7));
    let mut got = Vec::new();
    (&far).read_to_end(&mut got).expect("whole");
    assert!(got == bytes, "{} of {LEN} bytes", got.len());
    far.finish().expect("both have ended");
}

#[apply(on_time)]
fn what_does_not_come_about_has_a_reason_and_an_exit_code() {
    let mut chain = Chain::of(2);
    let near = &chain.nodes[0];
    let said = run(&mut cat(near, &["2:900"]));
    let line = said.one_line(3);
    assert!(line.contains("no application listens for streams"), "{line}");
    let nowhere = run(&mut cat(near, &["9:900"]));
    let line = nowhere.one_line(3);
    assert!(line.contains("no route") && line.contains("`trunkline routes`"), "{line}");
    let nobody = temp_dir();
    let nobody = nobody.path().join("none");
    let none = run(trunkline(["cat", "2:900", "--socket"]).arg(nobody));
    assert!(none.one_line(1).contains("no trunkline node"), "{}", none.stderr);
    for args in [&["2"][..], &["2:0"], &["2:900", "--listen", "1"], &[], &["--listen", "0"]] {
        assert_eq!(run(trunkline(["cat"]).args(args)).code, Some(2), "{args:?}");
    }
    // The local node goes away during the copy.
    let to = chain.dir.path().join("copy");
    let mut far = Cat::listen(&chain.nodes[1], "900", &to);
    let command = &mut cat(&chain.nodes[0], &["2:900"]);
    let mut near = Cat::start(command, Stdio::piped(), &chain.dir.path().join("nothing"));
    // Data that have arrived show that the stream was accepted.
    let mut stdin = near.stdin();
    stdin.write_all(b"x").expect("written");
    wait_for("the stream", || fs::read(&to).is_ok_and(|came| came == b"x").then_some(()));
    chain.last().crash();
    let (code, summary) = far.end();
    assert_eq!((code, &summary["whole"]), (4, &false.into()), "{}", far.said());
    assert!(far.said().contains("broke off: the trunkline node here has gone"), "{}", far.said());
}

/// A node that was killed and restarted has no state of its streams, and resets them.
/// No link wakes this node.
#[apply(on_time)]
fn a_stream_within_a_lonely_node_fills_what_its_reader_leaves() {
    const LEN: usize = 1 << 20;
    let chain = Chain::of(1);
    let listener = StreamListener::bind(chain.nodes[0].socket.as_path(), 900).expect("bound");
    for _ in 0..4 {
        let near = connect(&chain.nodes[0], (1, 900)).expect("a stream");
        let (_far, _) = listener.accept().expect("a stream");
        let (told, written) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let bytes = noise(LEN);
            let mut left = &bytes[..];
            while !left.is_empty() {
                let n = near.write(left).expect("open");
                left = &left[n..];
            }
            let _ = told.send(near);
        });
        written.recv_timeout(Duration::from_secs(5)).expect("all is written");
    }
}

#[apply(on_time)]
fn an_end_node_that_is_killed_resets_the_other_end() {
    let mut chain = Chain::sealed(3);
    let listener = StreamListener::bind(chain.nodes[2].socket.as_path(), 900).expect("bound");
    let near = connect(&chain.nodes[0], (3, 900)).expect("a stream");
    let (far, _) = listener.accept().expect("a stream");
    near.write(b"before").expect("open");
    let mut buf = [0; 9];
    assert_eq!(far.read(&mut buf).expect("open"), 6);
    // Wait until the last link's packets are acknowledged: unacknowledged ones are sent again to
    // the restarted node, including the request for the stream, which would be refused as a new
    // one.
    thread::sleep(ms(500));
    chain.last().crash();
    assert!(matches!(far.read(&mut buf), Err(Error::Disconnected)));
    chain.last().start();
    near.write(b"behind").expect("it is not known yet");
    near.set_read_timeout(Some(common::PATIENCE)).expect("in range");
    let error = near.read(&mut buf).expect_err("no stream any more");
    assert!(matches!(error, Error::Reset(Reset::Unknown)), "{error}");
    // A waiting listener reconnects automatically.
    let (again, far) = thread::scope(|scope| {
        let far = scope.spawn(|| listener.accept().expect("a stream").0);
        let again = wait_for("the listener", || connect(&chain.nodes[0], (3, 900)).ok());
        (again, far.join().expect("a stream"))
    });
    again.write(b"anew").expect("open");
    assert_eq!(far.read(&mut buf).expect("open"), 4);
}

#[apply(on_time)]
fn rules_forbid_streams_at_either_end() {
    let chain = Chain::prepare(&Setup { nodes: 3, ..Setup::default() });
    let mut chain = chain;
    let add = |node: &Node, rule: &str| {
        let text = fs::read_to_string(&node.config).expect("written before");
        fs::write(&node.config, format!("{text}[access]\n{rule}\n")).expect("written");
    };
    add(&chain.nodes[0], "to = [2]");
    add(&chain.nodes[2], "from = [1]");
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    let _listeners =
        [1, 2].map(|i: usize| StreamListener::bind(chain.nodes[i].socket.as_path(), 900).unwrap());
    let began = Instant::now();
    for (from, to) in [(0, 3), (1, 3)] {
        let error = connect(&chain.nodes[from], (to, 900)).expect_err("forbidden");
        assert!(matches!(error, Error::Reset(Reset::Forbidden)), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    connect(&chain.nodes[0], (2, 900)).expect("allowed");
    let said = run(&mut cat(&chain.nodes[0], &["3:900"]));
    assert!(said.one_line(3).contains("[access]"), "{}", said.stderr);
}

#[apply(on_time)]
fn a_stream_waits_while_there_is_no_session_to_accept_it_in() {
    let mut chain = Chain::prepare(&Setup::default());
    let config = &chain.nodes[1].config;
    let text = fs::read_to_string(config).expect("written before");
    fs::write(config, text.replacen("[node]", "[node]\nmax_sessions = 2", 1)).expect("written");
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("bound");
    let other = chain.nodes[1].bind(0);
    let near = connect(&chain.nodes[0], (2, 900)).expect("it waits to be accepted");
    near.write(b"patience").expect("open");
    for _ in 0..2 {
        let error = listener.accept().expect_err("no place");
        assert!(matches!(error, Error::Refused(RefusalReason::Full)), "{error}");
    }
    drop(other);
    let (far, _) = wait_for("a place", || listener.accept().ok());
    assert_eq!(far.read(&mut [0; 9]).expect("open"), 8);
}

#[apply(on_time)]
fn streams_that_new_rules_forbid_break_off_at_once() {
    let mut chain = streams::start(&Setup::default());
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("bound");
    // First node 1 may not send to node 2, then node 2 may not receive from node 1.
    for (node, rule) in [(0, "to = [3]"), (1, "from = [3]")] {
        let near = connect(&chain.nodes[0], (2, 900)).expect("allowed");
        near.write(b"before").expect("open");
        let (far, _) = listener.accept().expect("a stream");
        assert_eq!(far.read(&mut [0; 9]).expect("open"), 6);
        let node = &mut chain.nodes[node];
        let text = fs::read_to_string(&node.config).expect("written before");
        fs::write(&node.config, format!("{text}[access]\n{rule}\n")).expect("written");
        streams::operate(node, &["reload"]);
        for end in [&near, &far] {
            end.set_read_timeout(Some(Duration::from_secs(5))).expect("in range");
            let error = end.read(&mut [0]).expect_err("forbidden");
            assert!(matches!(error, Error::Reset(Reset::Forbidden)), "{error}");
        }
        fs::write(&node.config, text).expect("written");
        streams::operate(node, &["reload"]);
    }
    connect(&chain.nodes[0], (2, 900)).expect("allowed again");
}

/// Several threads repeatedly open streams, exchange a word and close them; some are reset, some
/// are refused. No state remains.
#[apply(on_time)]
fn thousands_of_streams_leave_nothing_behind() {
    const THREADS: usize = 4;
    const EACH: usize = 750;
    let mut chain = streams::start(&Setup::default());
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("bound");
    let open = |chain: &mut Chain| {
        let nodes = chain.nodes.iter_mut();
        nodes
            .map(|n| (descriptors(n.process()), n.metrics().sum("sessions", "")))
            .collect::<Vec<_>>()
    };
    let before = open(&mut chain);
    let (near, refused) = (&chain.nodes[0], std::sync::atomic::AtomicUsize::new(0));
    thread::scope(|scope| {
        let (listener, refused) = (&listener, &refused);
        listener.set_accept_timeout(Some(Duration::from_secs(5))).expect("in range");
        scope.spawn(move || {
            // No more streams arrive: one that is reset early may never be seen.
            let more = |next: &Result<_, _>| !matches!(next, Err(Error::WouldBlock));
            for stream in listener.incoming().take_while(more) {
                let mut word = [0; 4];
                let stream = stream.expect("a stream");
                // A stream may be reset before its word is read.
                if (&stream).read_exact(&mut word).is_ok() {
                    let _ = stream.write(&word);
                }
            }
        });
        for t in 0..THREADS {
            scope.spawn(move || {
                for n in 0..EACH {
                    let stream = loop {
                        match connect(near, (2, 900)) {
                            Ok(stream) => break stream,
                            Err(Error::Reset(Reset::Full | Reset::NoRoom)) => {
                                refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                                thread::sleep(ms(10));
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    let word = ((t * EACH + n) as u32).to_be_bytes();
                    stream.write(&word).expect("open");
                    if n % 10 == 9 {
                        stream.reset().expect("open");
                        continue;
                    }
                    stream.shutdown().expect("open");
                    let mut back = Vec::new();
                    (&stream).read_to_end(&mut back).expect("the same");
                    assert_eq!(back, word);
                    if n % 7 == 6 {
                        let nobody = connect(near, (2, 901)).expect_err("nobody listens");
                        assert!(matches!(nobody, Error::Reset(Reset::NotListening)), "{nobody}");
                    }
                }
            });
        }
    });
    println!("{} refused for want of room", refused.into_inner());
    for node in &chain.nodes {
        // Streams that have ended are remembered for a minute.
        let ended = || streams(node).iter().all(|stream| stream["state"] == "over");
        wait_for("the last to end", || ended().then_some(()));
    }
    wait_for("sessions and descriptors as before", || (open(&mut chain) == before).then_some(()));
    let accepted = chain.nodes[1].metrics().sum("streams_accepted_total", "");
    assert_eq!(accepted, (THREADS * EACH) as u64);
}

#[apply(on_time)]
fn an_operator_sees_each_stream() {
    let chain = streams::start(&Setup { sealed: true, ..Setup::default() });
    let [near, far] = &chain.nodes[..] else { panic!("two nodes") };
    assert_eq!(streams(near), Vec::<Value>::new());
    assert!(operate(near, &["streams"]).contains("no streams"));
    assert!(!operate(near, &["status"]).contains("streams "));
    let listener = StreamListener::bind(far.socket.as_path(), 900).expect("bound");
    let socket = connect(near, (2, 900)).expect("a stream");
    let there = streams(far);
    assert_eq!((there.len(), &there[0]["state"]), (1, &"waiting".into()), "{there:?}");
    let (other, from) = listener.accept().expect("a stream");
    (&socket).write_all(&[7; 300_000]).expect("open");
    // The library buffers as much as it has room for, and the node the rest.
    let unread = 300_000 - (256 << 10);
    wait_for("all of it", || (streams(far)[0]["unread"] == unread).then_some(()));
    let (here, there) = (streams(near), streams(far));
    let expected = |peer: u32, peer_port: u16, port: u16| serde_json::json!({"peer": peer, "peer_port": peer_port, "port": port, "state": "open"});
    for (seen, expected) in
        [(&here[0], expected(2, 900, from.port)), (&there[0], expected(1, from.port, 900))]
    {
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&seen[key], value, "{key} of {seen}");
        }
        assert_eq!(seen["pid"], std::process::id(), "{seen}");
    }
    wait_for("all to be acknowledged", || (streams(near)[0]["sent"] == 300_000).then_some(()));
    let here = streams(near);
    assert_eq!((&here[0]["unacknowledged"], &here[0]["received"]), (&0.into(), &0.into()));
    assert_eq!((&there[0]["received"], &there[0]["sent"]), (&300_000.into(), &0.into()));
    assert!(here[0]["rtt_ms"].as_f64().is_some_and(|rtt| rtt > 0.0), "{}", here[0]);
    assert!(here[0]["window"].as_u64() > Some(10_000), "{}", here[0]);
    let table = operate(near, &["streams", "2"]);
    assert!(table.contains("2:900") && table.contains("unacknowledged"), "{table}");
    assert!(operate(near, &["streams", "3"]).contains("no streams with node 3"));
    assert!(!operate(near, &["streams", "-n", "1"]).contains("no streams"));
    let named = run(&mut trunkline(["streams", "site-b"]));
    assert!(named.stderr.contains("give the number of a node"), "{}", named.stderr);
    assert!(operate(near, &["status"]).contains("streams   1 open"));
    let metrics = near.metrics();
    assert_eq!(
        (metrics.sum("streams", ""), metrics.sum("stream_sent_bytes_total", "")),
        (1, 300_000)
    );
    assert_eq!(far.metrics().sum("stream_received_bytes_total", ""), 300_000);
    assert_eq!(far.metrics().sum("streams_accepted_total", ""), 1);

    // Its application leaves with nothing left to read, and the remaining data are delivered.
    drop(socket);
    let mut got = Vec::new();
    (&other).read_to_end(&mut got).expect("whole");
    assert_eq!(got.len(), 300_000);
    drop(other);
    wait_for("both to be over", || {
        let over = |node| streams(node).iter().all(|s| s["state"] == "over");
        (over(near) && over(far)).then_some(())
    });
}

/// Both applications are on other hosts than their nodes, and exit once they have sent the last
/// byte.
#[apply(on_time)]
fn applications_of_other_hosts_lose_nothing_at_the_end() {
    const LEN: usize = 3 << 20;
    let chain = Chain::sealed(2);
    let (file, copy) = (chain.dir.path().join("file"), chain.dir.path().join("copy"));
    fs::write(&file, noise(LEN)).expect("written");
    let remote = |node: &Node, args: &[&str]| {
        let mut command = trunkline(["cat", "--json", "--stats", "--socket"]);
        command.arg(node.attachment()).args(args);
        command
    };
    for round in 0..3 {
        let port = format!("90{round}");
        let command = &mut remote(&chain.nodes[1], &["--listen", &port]);
        let mut listener = Cat::start(command, Stdio::null(), &copy);
        wait_for("a listener", || listener.said().contains("listening at").then_some(()));
        let command = &mut remote(&chain.nodes[0], &[&format!("2:{port}")]);
        let from = Stdio::from(File::open(&file).expect("written"));
        let mut sender = Cat::start(command, from, &chain.dir.path().join("nothing"));
        let (sent, received) = (sender.end(), listener.end());
        assert_eq!((sent.0, received.0), (0, 0), "{} {}", sender.said(), listener.said());
        assert_eq!(sha256(&file), sha256(&copy));
    }
}
