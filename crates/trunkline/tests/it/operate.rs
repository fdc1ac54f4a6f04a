//! Operator commands against real daemons: their output as tables and as JSON, their effects, and
//! their failures.

mod ways;

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Ended, Node, Setup, get, ms, run, stream, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trunkline_client::{DatagramSocket, Service, SocketOption};

fn control(node: &Node) -> PathBuf {
    node.socket.with_extension("ctl")
}

/// Gives every node of the chain a control socket, then starts the nodes.
fn start(setup: &Setup<'_>) -> Chain {
    let mut chain = Chain::prepare(setup);
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        let line = format!("[node]\ncontrol = {:?}", control(node).to_str().expect("text"));
        fs::write(&node.config, text.replacen("[node]", &line, 1)).expect("written");
    }
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    chain
}

/// A chain of links with a delay of 5 ms.
fn slow(nodes: u32) -> Chain {
    start(&Setup { nodes, impair: "delay = \"5ms\"", ..Setup::default() })
}

/// Runs `trunkline ARGS --control …` for a node.
fn operate(node: &Node, args: &[&str]) -> Ended {
    run(trunkline(args).arg("--control").arg(control(node)))
}

#[track_caller]
fn ok(node: &Node, args: &[&str]) -> String {
    let ended = operate(node, args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}: {}", ended.stdout);
    ended.stdout
}

#[track_caller]
fn ok_json(node: &Node, args: &[&str]) -> Value {
    serde_json::from_str(&ok(node, &[args, &["--json"]].concat())).expect("JSON")
}

/// Replaces text in a node's configuration file.
#[track_caller]
fn edit(node: &Node, from: &str, to: &str) {
    let text = fs::read_to_string(&node.config).expect("there");
    assert!(text.contains(from), "{from} in {text}");
    fs::write(&node.config, text.replace(from, to)).expect("written");
}

#[apply(on_time)]
fn status_links_and_routes_say_what_is() {
    let mut chain = slow(3);
    let node = &chain.nodes[1];
    let mode = fs::metadata(control(node)).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    let status = ok_json(node, &["status"]);
    assert_eq!(
        (&status["id"], &status["links_up"], &status["links"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["sealed"], &status["draining"]), (&json!(false), &json!(false)));
    assert!(status["uptime_s"].as_f64().expect("seconds") > 0.0);
    let text = ok(node, &["status"]);
    assert!(text.starts_with("node 2 is node 2, up "), "{text}");
    assert!(text.contains("links     2 of 2 up, NOT SEALED"), "{text}");

    let links = ok_json(node, &["links"]);
    assert_eq!((&links[0]["neighbour"], &links[1]["neighbour"]), (&json!(1), &json!(3)));
    for link in links.as_array().expect("a list") {
        let rtt = link["rtt_ms"].as_f64().expect("measured");
        assert!((10.0..200.0).contains(&rtt), "{link}");
        assert!(link["up"] == true && link["bytes_in"].as_u64() > Some(0), "{link}");
    }
    let known = |link: &Value| {
        ["since_s", "jitter_ms", "bps_in", "bps_out"]
            .iter()
            .all(|key| link[key].as_f64() > Some(0.0))
    };
    wait_for("what the monitor measures", || {
        let links = ok_json(node, &["links"]);
        links.as_array().expect("a list").iter().all(known).then_some(())
    });
    let text = ok(node, &["links"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("link  address "), "{text}");
    assert!(text.contains("rtt ms") && text.contains("  up "), "{text}");

    let routes = ok_json(&chain.nodes[0], &["routes"]);
    let hops: Vec<_> = routes
        .as_array()
        .expect("a list")
        .iter()
        .map(|r| (&r["destination"], &r["next_hop"]))
        .collect();
    assert_eq!(hops, [(&json!(2), &json!(2)), (&json!(3), &json!(2))]);
    let text = ok(&chain.nodes[0], &["routes"]);
    assert!(text.starts_with("to  next hop  path  state"), "{text}");

    // Drops and dead links are shown.
    let here = chain.nodes[1].bind(4_000);
    here.send_to(b"nowhere", chain.nodes[2].address(9)).expect("sent");
    wait_for("the drop", || {
        let status = ok_json(&chain.nodes[2], &["status"]);
        (status["drops"]["no_port"] == 1 && status["sessions"] == 0).then_some(())
    });
    chain.nodes[0].crash();
    wait_for("the link to go down", || {
        let links = ok_json(&chain.nodes[1], &["links"]);
        (links[0]["up"] == false && links[0]["downs"] == 1).then_some(())
    });
    assert!(ok(&chain.nodes[1], &["links"]).contains("  down "));
    let status = ok_json(&chain.nodes[1], &["status"]);
    assert_eq!((&status["links_up"], &status["sessions"]), (&json!(1), &json!(1)));
}

#[apply(on_time)]
fn ping_and_trace_measure_the_way() {
    let mut chain = slow(4);
    let first = &chain.nodes[0];
    for service in ["best-effort", "real-time"] {
        let ping =
            ok_json(first, &["ping", "4", "-c", "3", "--interval", "10ms", "--service", service]);
        assert_eq!(
            (&ping["sent"], &ping["answered"], &ping["hops"]),
            (&json!(3), &json!(3), &json!(3))
        );
        let [min, avg, max] = ["min_ms", "avg_ms", "max_ms"].map(|k| ping[k].as_f64().expect("ms"));
        assert!((30.0..200.0).contains(&min) && min <= avg && avg <= max, "{ping}");
    }
    let text = ok(first, &["ping", "2", "-c", "2", "--interval", "1ms", "--size", "500"]);
    assert!(text.starts_with("1: node 2, 500 bytes, 1 hop, "), "{text}");
    assert!(text.contains("2 of 2 answered, 0.0 % lost; rtt min "), "{text}");

    let trace = ok_json(first, &["trace", "4"]);
    assert_eq!(trace["reached"], true);
    for (hop, n) in trace["hops"].as_array().expect("a list").iter().zip(1u32..) {
        assert_eq!((&hop["hop"], &hop["from"]), (&json!(n), &json!([n + 1])), "{trace}");
        let rtts: Vec<_> =
            hop["rtt_ms"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        assert_eq!(rtts.len(), 3);
        let nominal = 10.0 * f64::from(n);
        assert!(rtts.iter().all(|r| *r >= nominal), "{trace}");
    }
    let text = ok(first, &["trace", "4", "--probes", "1"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with(" 1  node 2 "), "{text}");

    // Commands that must fail.
    let ended = operate(first, &["ping", "99"]);
    assert!(ended.one_line(1).contains("no route to node 99"), "{}", ended.stderr);
    for command in ["ping", "trace"] {
        let ended = operate(first, &[command, "99", "--json"]);
        let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!((ended.code, &said["node"]), (Some(1), &json!(99)), "{said}");
        assert!(said["refused"].as_str().is_some_and(|why| why.contains("no route")), "{said}");
    }
    for wrong in ["ping 0", "trace 0", "flows 0", "flows -n 0", "streams -n 0", "calls -n 0"] {
        let ended = operate(first, &wrong.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(2), "{wrong}: {}", ended.stderr);
    }
    for (wrong, range) in [("--size=5", "10..=1400"), ("--timeout=1h", "give 1 ms to 10 s")] {
        let ended = operate(first, &["ping", "4", wrong]);
        assert!(ended.code == Some(2) && ended.stderr.contains(range), "{}", ended.stderr);
    }
    chain.nodes[3].crash();
    let ended = operate(&chain.nodes[0], &["ping", "4", "-c", "2", "--timeout", "200ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("node 4 does not answer"), "{}", ended.stderr);
    let ended = operate(&chain.nodes[0], &["trace", "4", "--probes", "1", "--timeout", "100ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("node 3 is the last that answers"), "{}", ended.stderr);
}

/// Runs `act` during a call from the first to the last node, and returns the number of lost
/// packets.
fn during_a_call(chain: &Chain, act: impl FnOnce(&Chain)) -> usize {
    const PART: u32 = 40;
    /// Ends the call, even if `act` panics.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let last = chain.nodes.last().expect("a chain");
    let (here, there) = (chain.nodes[0].bind(4_100), last.bind(4_100));
    here.set_option(SocketOption::Service(Service::RealTime)).expect("in range");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let parts = (0..).take_while(|_| !over.load(Ordering::Relaxed));
            let lost = parts.map(|k| {
                let came = stream(&here, &there, k * PART..(k + 1) * PART, ms(5));
                PART as usize - came.len()
            });
            lost.sum()
        });
        let done = Done(&over);
        std::thread::sleep(ms(200));
        act(chain);
        drop(done);
        call.join().expect("a call")
    })
}

#[apply(on_time)]
fn a_reload_changes_what_it_can_and_names_the_rest() {
    let setup = Setup { nodes: 3, link: "rate = \"20 Mbit/s\"\n", ..Setup::default() };
    let mut chain = start(&setup);
    let lost = during_a_call(&chain, |chain| {
        let node = &chain.nodes[1];
        assert_eq!(
            ok(node, &["reload"]).trim_end(),
            format!("{}: nothing has changed", node.config.display())
        );
        edit(node, "20 Mbit/s", "10 Mbit/s");
        let done = ok_json(node, &["reload"]);
        assert_eq!(done["applied"], json!(["[[link]] to 1: rate", "[[link]] to 3: rate"]));
        assert_eq!(done["restart"], json!([]));
        assert!(ok(node, &["reload"]).contains("nothing has changed"), "since the last one");
        edit(
            node,
            "[[route]]",
            "[hello]\ninterval = \"100ms\"\n[log]\nfilter = \"debug\"\n[[route]]",
        );
    });
    assert_eq!(lost, 0);
    let node = &chain.nodes[1];
    let ended = operate(node, &["reload"]);
    // The section appears twice in the file of a node with two links.
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("keeps the configuration that it has"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{}:", node.config.display())), "{}", ended.stderr);

    let node = &chain.nodes[0];
    let sections = "[hello]\ninterval = \"100ms\"\n[log]\nfilter = \"debug\"\n";
    edit(node, "[[route]]", &format!("{sections}[runtime]\nseed = 9\n[[route]]"));
    let text = ok(node, &["reload"]);
    assert!(text.contains("applied: [log] filter; [[link]] to 2: [hello]\n"), "{text}");
    assert!(text.contains("needs a restart: [runtime] seed\n"), "{text}");
    edit(node, "interval", "intervall");
    let ended = operate(node, &["reload"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("did you mean `interval`?"), "{}", ended.stderr);
    assert!(ended.stderr.contains("intervall = \"100ms\""), "the line: {}", ended.stderr);
    edit(node, "intervall", "interval");

    // Reload by signal; the log shows the result.
    edit(node, "20 Mbit/s", "5 Mbit/s");
    let process = chain.nodes[0].process();
    process.signal(Signal::SIGHUP);
    process.wait_for_word("[[link]] to 2: rate");
    assert!(process.stderr().contains("these changes need a restart"), "{}", process.stderr());
    assert!(process.stderr().contains("operator: reload"), "who asked is logged");
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
}

#[apply(on_time)]
fn a_rate_that_is_reloaded_is_kept_to() {
    let mut chain = start(&Setup { link: "# rate\n", ..Setup::default() });
    let (here, there) = (chain.nodes[0].bind(4_200), chain.nodes[1].bind(4_200));
    here.set_option(SocketOption::Service(Service::BestEffort)).expect("in range");
    assert_eq!(stream(&here, &there, 0..200, ms(1)).len(), 200, "without a rate");
    edit(&chain.nodes[0], "# rate", "rate = \"100 kbit/s\"");
    ok(&chain.nodes[0], &["reload"]);
    let came = stream(&here, &there, 0..200, ms(1)).len();
    assert!(came < 50, "{came} of 2.0 Mbit/s went through 0.1 Mbit/s");
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_drained_node_is_emptied_and_stopped() {
    let mut chain = start(&Setup { nodes: 3, ..Setup::default() });
    let lost = during_a_call(&chain, |chain| {
        let node = &chain.nodes[1];
        let args = ["drain", "--quiet", "500ms", "--timeout", "700ms"];
        let ended = operate(node, &args);
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stderr.contains("packets still pass after"), "{}", ended.stderr);
        // Without a quiet time, what passes between two looks counts.
        let ended = operate(node, &["drain", "--quiet", "0s", "--timeout", "100ms"]);
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert_eq!(ok_json(node, &["status"])["draining"], true);
        let refused = DatagramSocket::bind(node.socket.as_path(), 0).expect_err("nobody is let in");
        assert!(refused.to_string().contains("it is draining"), "{refused}");
        assert!(ok(node, &["drain", "--undo"]).contains("takes applications again"));
        let undone = ok_json(node, &["drain", "--undo"]);
        assert!(undone["draining"] == false && undone.get("empty").is_none(), "{undone}");
        drop(node.bind(0));
        ok(node, &["drain", "--now"]);
    });
    assert_eq!(lost, 0, "a drain lets calls go on");
    let log = chain.nodes[1].process().stderr();
    assert!(log.contains("rejected: this node is draining"), "{log}");
    let node = &chain.nodes[1];
    let done = ok_json(node, &["drain", "--quiet", "300ms", "--stop"]);
    assert_eq!((&done["empty"], &done["stopped"]), (&json!(true), &json!(true)), "{done}");
    assert_eq!(chain.nodes[1].process().wait().code(), Some(0));
    assert!(!control(&chain.nodes[1]).exists(), "the socket goes with its node");
    let ended = operate(&chain.nodes[1], &["status"]);
    let line = ended.one_line(1);
    assert!(line.contains("no node answers at ") && line.contains("`control` in [node]"), "{line}");
}

#[apply(on_time)]
fn a_recording_with_operations_replays() {
    let mut chain = Chain::prepare(&Setup { link: "rate = \"20 Mbit/s\"\n", ..Setup::default() });
    let file = chain.dir.path().join("1.rec");
    let line = format!("[node]\ncontrol = {:?}", control(&chain.nodes[0]).to_str().expect("text"));
    edit(&chain.nodes[0], "[node]", &line);
    chain.nodes[0].start_with(&["--record", file.to_str().expect("text")]);
    chain.nodes[1].start();
    chain.wait_until_up();
    let node = &chain.nodes[0];
    ok(node, &["ping", "2", "-c", "3", "--interval", "1ms"]);
    edit(node, "20 Mbit/s", "300 kbit/s");
    edit(node, "[[route]]\nto = [2]", "[[route]]\nto = [2, 7]");
    ok(node, &["reload"]);
    let (here, there) = (node.bind(4_000), chain.nodes[1].bind(4_000));
    here.send_to(b"x", trunkline_client::Address { node: trunkline_client::NodeId(7), port: 1 })
        .expect("sent");
    stream(&here, &there, 0..200, ms(1));
    ok(node, &["drain", "--now"]);
    DatagramSocket::bind(node.socket.as_path(), 0).expect_err("nobody is let in");
    ok(node, &["drain", "--undo"]);
    drop(node.bind(0));
    chain.first().process().signal(Signal::SIGTERM);
    assert_eq!(chain.first().process().wait().code(), Some(0));
    let ended = run(trunkline(["replay"]).arg(&file));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains(": identical: "), "{}", ended.stdout);
}

/// Sends `bytes` to a control socket, and returns its answer until it hangs up or has been silent
/// for half a second.
fn say(node: &Node, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(control(node)).expect("it listens");
    stream.set_read_timeout(Some(ms(500))).expect("in range");
    // It may hang up before it has received everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut some = [0; 4_096];
    while let Ok(n @ 1..) = stream.read(&mut some) {
        answer.extend_from_slice(&some[..n]);
    }
    String::from_utf8(answer).expect("text")
}

#[apply(on_time)]
fn whatever_is_said_to_it_the_control_socket_stays_small() {
    let mut chain = start(&Setup::default());
    let node = &chain.nodes[0];
    let before = ok_json(node, &["status"]);
    for nonsense in [
        "\n",
        "{}\n",
        "[]\n",
        "{\"do\":\"sing\"}\n",
        "{\"do\":\"status\",\"x\":1}\n",
        "{\"do\":\"echo\",\"to\":-1}\n",
        "\u{0}\n",
    ] {
        let answer = say(node, nonsense.as_bytes());
        assert!(
            answer.starts_with("{\"error\":{\"message\":\"the node can't parse the request"),
            "{nonsense}: {answer}"
        );
    }
    let deep = "[".repeat(4_000) + "\n";
    assert!(say(node, deep.as_bytes()).contains("can't parse the request"));
    let endless = say(node, &vec![b'x'; 100_000]);
    assert!(endless.is_empty() || endless.contains("at most 4096 bytes"), "{endless}");
    // Two requests in one packet, and one in pieces.
    let twice = say(node, b"{\"do\":\"status\"}\n{\"do\":\"links\"}\n{\"do\":");
    assert_eq!(twice.lines().count(), 2, "{twice}");
    assert!(twice.lines().all(|l| l.starts_with("{\"ok\":")), "{twice}");

    // Seventeen connections at once: the last is rejected, the others are served.
    let status = |mut stream: &UnixStream| {
        // It may have been rejected already.
        let _ = stream.write_all(b"{\"do\":\"status\"}\n");
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line.starts_with("{\"ok\":")
    };
    // A closed connection keeps its slot for a moment.
    let connect = || {
        let stream = UnixStream::connect(control(node)).expect("it listens");
        status(&stream).then_some(stream)
    };
    let held: Vec<_> = (0..16).map(|_| wait_for("a place", connect)).collect();
    let ended = operate(node, &["status"]);
    let line = ended.one_line(1);
    assert!(line.contains("16 others are connected") && line.contains("end one of them"), "{line}");
    assert!(held.iter().all(status), "who is in is served");
    drop(held);
    wait_for("a place", || (operate(node, &["status"]).code == Some(0)).then_some(()));

    // Continuous requests cost little time and no memory.
    let rss = chain.first().resident();
    let mut stream = UnixStream::connect(control(&chain.nodes[0])).expect("room");
    let mut answers = BufReader::new(stream.try_clone().expect("a copy"));
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        stream.write_all(b"{\"do\":\"links\"}\n").expect("sent");
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        asked += 1;
    }
    let grown = chain.first().resident().saturating_sub(rss);
    assert!((10..=220).contains(&asked) && grown < 2_048, "{grown} KiB after {asked} questions");
    let after = ok_json(&chain.nodes[0], &["status"]);
    assert_eq!((&after["pid"], &after["links_up"]), (&before["pid"], &json!(1)));
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn where_no_node_is_the_message_says_what_to_do() {
    let dir = common::temp_dir();
    let absent = dir.path().join("absent.ctl");
    for command in ["status", "links", "routes", "reload", "drain", "trace 2", "ping 2"] {
        let args = command.split(' ').chain(["--control", absent.to_str().expect("text")]);
        let ended = run(&mut trunkline(args));
        let line = ended.one_line(1);
        assert!(line.contains("no node answers at ") && line.contains("absent.ctl"), "{line}");
        assert!(line.contains("is it running, with `control` in [node]?"), "{line}");
    }
    let ended = run(trunkline(["status"]).env("TRUNKLINE_CONTROL", ""));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("it is empty: give a path, in TRUNKLINE_CONTROL"));
    // The environment variable names the node; for a dead node's socket, the error states that.
    let dead = dir.path().join("dead.ctl");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("bound"));
    let ended = run(trunkline(["status"]).env("TRUNKLINE_CONTROL", &dead));
    assert!(ended.one_line(1).contains("it has ended: start it again"), "{}", ended.stderr);
    let file = dir.path().join("a.toml");
    fs::write(&file, "").expect("written");
    let ended = run(trunkline(["status", "--control"]).arg(&file));
    assert!(ended.one_line(1).contains("that is not a socket: give the path"), "{}", ended.stderr);
    // A dead node's socket is also replaced, while that of a running one is not.
    let mut chain = start(&Setup::default());
    let ended = run(trunkline(["status", "--control"]).arg(&chain.nodes[0].socket));
    assert!(ended.one_line(1).contains("that is the applications' socket"), "{}", ended.stderr);
    let ctl = control(&chain.nodes[0]);
    edit(
        &chain.nodes[1],
        control(&chain.nodes[1]).to_str().expect("text"),
        ctl.to_str().expect("text"),
    );
    chain.nodes[1].crash();
    let ended = run(&mut chain.nodes[1].command());
    let line = ended.one_line(1);
    assert!(
        line.contains("cannot listen for operators at ") && line.contains("`control`"),
        "{line}"
    );
    assert_eq!(ok_json(&chain.nodes[0], &["status"])["id"], 1);
    chain.nodes[0].crash();
    chain.nodes[1].start();
    assert_eq!(ok_json(&chain.nodes[0], &["status"])["id"], 2);
    assert!(recv_nothing(&chain.nodes[1]));
}

fn recv_nothing(node: &Node) -> bool {
    let socket = node.bind(0);
    socket.set_option(SocketOption::ReadTimeout(Some(ms(50)))).expect("in range");
    common::try_recv_number(&socket).is_err()
}

#[apply(on_time)]
fn top_needs_a_terminal_and_gives_it_back() {
    let chain = start(&Setup::default());
    let node = &chain.nodes[0];
    let ended = operate(node, &["top"]);
    assert!(ended.one_line(1).contains("`top` needs a terminal: use `trunkline status --json`"));

    if which("script").is_none() {
        return println!("skipped: no script(1) to make a terminal");
    }
    for by_signal in [false, true] {
        let mut terminal = Terminal::run(&format!("top --control {}", control(node).display()));
        terminal.wait_for("q quit");
        assert!(!terminal.screen().contains(LEAVE));
        if by_signal {
            let pid =
                terminal.screen().lines().find_map(|l| l.trim().strip_prefix("pid=")?.parse().ok());
            let pid = nix::unistd::Pid::from_raw(pid.expect("said before"));
            nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it runs");
        } else {
            terminal.child.stdin.as_mut().expect("piped").write_all(b"sq").expect("it reads");
        }
        let code = wait_for("top to end", || terminal.child.try_wait().expect("a child"));
        assert_eq!(code.code(), Some(0));
        terminal.wait_for(LEAVE);
        assert!(terminal.screen().contains("SEALED:"), "{:?}", terminal.screen());
    }
}

/// Escape sequence with which a program leaves the alternate screen (xterm).
const LEAVE: &str = "\u{1b}[?1049l";

/// A `trunkline` process in a terminal that script(1) creates.
struct Terminal {
    child: std::process::Child,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn run(args: &str) -> Terminal {
        let exe = env!("CARGO_BIN_EXE_trunkline");
        let command = format!("stty rows 40 cols 160; echo pid=$$; exec {exe} {args}");
        let mut child = std::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) starts");
        let screen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut from, to) = (child.stdout.take().expect("piped"), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut some = [0; 4_096];
            while let Ok(n @ 1..) = from.read(&mut some) {
                to.lock().expect("bytes").extend_from_slice(&some[..n]);
            }
        });
        Terminal { child, screen }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("bytes")).into_owned()
    }

    fn wait_for(&self, word: &str) {
        wait_for(word, || self.screen().contains(word).then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| p.exists())
}

#[apply(on_time)]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let mut chain = start(&Setup::default());
    chain.nodes[0].crash();
    let (mut log, stderr) = UnixStream::pair().expect("sockets");
    stderr.set_nonblocking(true).expect("a socket");
    while (&stderr).write(&[b'x'; 4_096]).is_ok() {}
    stderr.set_nonblocking(false).expect("a socket");
    let node = &chain.nodes[0];
    let mut process = node
        .command()
        .stdin(Stdio::piped())
        .stderr(Stdio::from(OwnedFd::from(stderr)))
        .spawn()
        .expect("it starts");
    wait_for("the node", || (operate(node, &["status"]).code == Some(0)).then_some(()));
    ok(node, &["reload"]);
    ok(node, &["status"]);

    // A reader that resumes finds everything.
    log.set_read_timeout(Some(common::PATIENCE)).expect("a socket");
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("configuration read again") {
        let mut some = [0; 65_536];
        let n = log.read(&mut some).expect("the log");
        text.extend_from_slice(&some[..n]);
    }
    assert!(String::from_utf8_lossy(&text).contains("ready"));
    kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let ended = wait_for("its end", || process.try_wait().expect("a child"));
    assert!(ended.success(), "{ended}");
}

#[apply(on_time)]
fn a_node_that_had_no_time_to_run_does_not_take_that_for_the_way() {
    let mut chain = start(&Setup::default());
    for node in &chain.nodes {
        wait_for("a round trip", || ok_json(node, &["links"])[0]["rtt_ms"].as_f64());
    }
    // Long enough for its neighbour to probe for it every 20 ms.
    let process = chain.last().process();
    process.signal(Signal::SIGSTOP);
    std::thread::sleep(ms(2_000));
    process.signal(Signal::SIGCONT);
    let until = Instant::now() + ms(700);
    while Instant::now() < until {
        for node in &chain.nodes {
            let rtt = ok_json(node, &["links"])[0]["rtt_ms"].as_f64().expect("measured");
            assert!(rtt < 60.0, "a round trip of {rtt} ms at node {}", node.id);
        }
    }
    // Counted by its neighbour: data queued for it do not look like a flapping link.
    for node in &chain.nodes {
        let links = ok_json(node, &["links"]);
        assert!(links[0]["downs"].as_u64() <= Some(1), "at node {}: {links}", node.id);
    }
}
