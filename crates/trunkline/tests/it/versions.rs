//! Nodes of this build with nodes of later builds, which have protocol versions that are one or two
//! higher (a test setting makes nodes of this build claim them), and the display of versions for
//! operators.

use crate::common::keys::{identity, of_neighbour};
use crate::common::{Chain, Ended, Node, Process, Setup};
use crate::common::{ms, numbered, run, stream, trunkline, try_recv_number, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use trunkline_client::{DatagramSocket, Error, Service, SocketOption};
use trunkline_overlay::wire::version::CURRENT;

/// Newest version of the next build, which also supports today's.
const NEXT: u8 = CURRENT + 1;
/// Newest version of the build after that, which does not support today's.
const AFTER_NEXT: u8 = CURRENT + 2;

fn control(node: &Node) -> PathBuf {
    node.socket.with_extension("ctl")
}

/// Marks the lines of a route that is not in effect yet.
const LATER: &str = "#later ";

/// Writes the files of a sealed chain with control sockets and link-state routing.
fn prepare(nodes: u32, impair: &str) -> Chain {
    let sections: String = (1..=nodes)
        .map(|id| {
            let key = identity(id as u8).public();
            format!("[[known]]\nnode = {id}\nkey = \"{key}\"\n")
        })
        .collect();
    let setup = Setup { nodes, sections: &sections, impair, sealed: true, ..Setup::default() };
    let chain = Chain::prepare(&setup);
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        let line = format!("[node]\ncontrol = {:?}\n", control(node).to_str().expect("text"));
        let mut text = text.replacen("[node]\n", &line, 1);
        // A route is its heading and two lines.
        while let Some((before, route)) = text.split_once("\n[[route]]\n") {
            let route = route.replacen('\n', &format!("\n{LATER}"), 1);
            text = format!("{before}\n{LATER}[[route]]\n{LATER}{route}");
        }
        fs::write(&node.config, text).expect("written");
    }
    chain
}

/// Makes the nodes use the static routes in their files from now on. Computed routes would wait for
/// links to become steady, which flap in a test.
fn fix_routes(chain: &Chain) {
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        fs::write(&node.config, text.replace(LATER, "")).expect("written");
        assert_eq!(ask(node, &["reload"])["applied"], json!(["[[route]]"]));
    }
}

fn operate(node: &Node, args: &[&str]) -> Ended {
    run(trunkline(args).arg("--control").arg(control(node)))
}

#[track_caller]
fn ask(node: &Node, args: &[&str]) -> Value {
    let ended = operate(node, &[args, &["--json"]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}: {}", ended.stdout);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// Values of one field for each link of `node`.
fn each_link(node: &Node, key: &str) -> Vec<Value> {
    ask(node, &["links"]).as_array().expect("a list").iter().map(|l| l[key].clone()).collect()
}

/// Waits until all links of `node` are up, and returns their versions.
fn versions(node: &Node) -> Vec<Value> {
    wait_for("links to come up", || {
        each_link(node, "up").iter().all(|up| up == true).then_some(())
    });
    each_link(node, "version")
}

/// Makes a node set up its link to `neighbour` again, with new keys.
fn renew(node: &Node, neighbour: u32) {
    let agreed = node.metrics().sum("handshakes_total", "");
    let text = fs::read_to_string(&node.config).expect("written before");
    let line = format!("neighbour = {neighbour}\n");
    fs::write(&node.config, text.replace(&line, &format!("{line}mtu = 1279\n"))).expect("written");
    assert_eq!(ask(node, &["reload"])["applied"], json!([format!("[[link]] to {neighbour}: mtu")]));
    wait_for("new keys", || (node.metrics().sum("handshakes_total", "") > agreed).then_some(()));
}

/// Waits until the ends have computed routes to each other.
fn wait_for_route(chain: &Chain) {
    let (first, last) = (&chain.nodes[0], chain.nodes.last().expect("a chain"));
    for (from, to) in [(first, last), (last, first)] {
        wait_for("a route through the chain", || {
            let routes = ask(from, &["routes"]);
            let mut routes = routes.as_array().expect("a list").iter();
            routes.any(|r| r["destination"] == to.id && r["cost"].is_number()).then_some(())
        });
    }
}

/// Makes calls in both directions between the ends, until one gets through links that lose 5 %: on
/// a busy machine, packets may exceed their deadline.
fn call(chain: &Chain) {
    wait_for("98 % of a call", || (share_of_call(chain) >= 0.98).then_some(()));
}

fn share_of_call(chain: &Chain) -> f64 {
    let [a, b] = [chain.nodes.first(), chain.nodes.last()].map(|node| {
        let end = node.expect("a chain").bind(0);
        end.set_option(SocketOption::Service(Service::RealTime)).expect("in range");
        end
    });
    let came = std::thread::scope(|scope| {
        let there = scope.spawn(|| stream(&a, &b, 0..200, ms(3)).len());
        stream(&b, &a, 0..200, ms(3)).len() + there.join().expect("a call")
    });
    came as f64 / 400.0
}

/// Number of times that a link of `node` went down, in total and as announced by its neighbour.
fn downs(node: &Node, link: usize) -> (u64, u64) {
    let links = ask(node, &["links"]);
    let count = |key: &str| links[link][key].as_u64().unwrap_or_default();
    (count("downs"), count("goodbyes"))
}

/// Stops a node as its service manager would, and waits for its end.
fn stop(node: &mut Node) {
    let mut process = node.process.take().expect("it runs");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait().code(), Some(0), "{}", process.stderr());
}

/// Checks that the node understood everything that it received.
fn understood_all(node: &Node) {
    let drops = &ask(node, &["status"])["drops"];
    assert!(drops["malformed"].is_null() && drops["forged"].is_null(), "{drops}");
}

/// Nodes 3 and 4 are of the next build.
#[test]
fn two_builds_are_one_overlay() {
    let mut chain = prepare(4, "delay = \"5ms\"\nloss = \"5%\"");
    chain.nodes[2..].iter_mut().for_each(|node| node.newest_version = Some(NEXT));
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    let log = chain.nodes[2].process().stderr();
    assert!(log.contains("TRUNKLINE_TEST_NEWEST_VERSION is set"), "{log}");
    let [one, two, three, four] = &chain.nodes[..] else { unreachable!("four nodes") };
    assert_eq!(versions(one), [CURRENT]);
    assert_eq!(versions(two), [CURRENT, CURRENT]);
    assert_eq!(versions(three), [CURRENT, NEXT]);
    assert_eq!(versions(four), [NEXT]);
    assert_eq!([two, three].map(|n| ask(n, &["status"])["protocol"].clone()), [CURRENT, NEXT]);
    let link_versions = json!({CURRENT.to_string(): 1, NEXT.to_string(): 1});
    assert_eq!(ask(three, &["status"])["link_versions"], link_versions);
    let table = |what: &str| operate(three, &[what]).stdout;
    let status = table("status");
    let line = format!("protocol  version {NEXT} at most; {CURRENT} on 1 link, {NEXT} on 1 link\n");
    assert!(status.contains(&line), "{status}");
    let links = table("links");
    let last = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
    let [current, next] = [CURRENT, NEXT].map(|version| version.to_string());
    assert_eq!(links.lines().map(last).collect::<Vec<_>>(), ["version", &current, &next]);

    // Packets, retransmissions and echoes get through.
    fix_routes(&chain);
    call(&chain);
    for asked in [two, three, four] {
        let repeats = asked.metrics().sum("link_sent_envelopes_total", "class=\"retransmission\"");
        assert!(repeats > 0, "node {} had to repeat packets", asked.id);
    }
    for (from, to) in [(one, "4"), (four, "1"), (three, "1")] {
        wait_for("an echo", || {
            let ping = operate(from, &["ping", to, "-c", "3", "--timeout", "300ms"]);
            (ping.code == Some(0)).then_some(())
        });
    }
    for (node, neighbour) in [(two, 3), (three, 2)] {
        renew(node, neighbour);
        assert_eq!(versions(three), [CURRENT, NEXT]);
    }
    call(&chain);

    // A node that stops announces it to both neighbours. It comes back as one of the next build …
    let before = [downs(one, 0), downs(three, 0)];
    stop(&mut chain.nodes[1]);
    let after = [&chain.nodes[0], &chain.nodes[2]].map(|node| downs(node, 0).1);
    assert_eq!(after, before.map(|(_, goodbyes)| goodbyes + 1), "they know when it has ended");
    // A link that is down has no version.
    assert_eq!(each_link(&chain.nodes[0], "version"), [Value::Null]);
    assert_eq!(each_link(&chain.nodes[2], "version"), [Value::Null, json!(NEXT)]);
    let of = |node| ask(node, &["status"])["link_versions"].clone();
    assert_eq!(of(&chain.nodes[2]), json!({NEXT.to_string(): 1}));
    assert!(operate(&chain.nodes[0], &["status"]).stdout.contains("at most; no link up\n"));
    chain.nodes[1].newest_version = Some(NEXT);
    chain.nodes[1].start();
    assert_eq!(versions(&chain.nodes[1]), [CURRENT, NEXT]);
    // … and another comes back as one of this build: an earlier agreement does not bind.
    stop(&mut chain.nodes[2]);
    chain.nodes[2].newest_version = None;
    chain.nodes[2].start();
    let expected = [vec![CURRENT], vec![CURRENT; 2], vec![CURRENT; 2], vec![CURRENT]];
    for (node, expected) in chain.nodes.iter().zip(expected) {
        assert_eq!(versions(node), expected, "node {}", node.id);
    }
    call(&chain);
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
    chain.nodes.iter().for_each(understood_all);
}

/// Adds a link between two nodes of a chain.
fn link(chain: &Chain, ends: (usize, usize)) {
    for (own, other) in [ends, (ends.1, ends.0)] {
        let (own, other) = (&chain.nodes[own], &chain.nodes[other]);
        let mut text = fs::read_to_string(&own.config).expect("written before");
        let (id, address) = (other.id, other.udp);
        text += &format!("[[link]]\nneighbour = {id}\naddress = \"{address}\"\n");
        text += &of_neighbour(id as usize, true);
        fs::write(&own.config, text).expect("written");
    }
}

/// Runs `act` during calls in both directions between the ends of the chain. Returns the number of
/// packets sent, and of those lost.
fn during_a_call(chain: &mut Chain, act: impl FnOnce(&mut Chain)) -> (usize, usize) {
    let ends = [chain.nodes.first(), chain.nodes.last()].map(|node| {
        let end = node.expect("a chain").bind(0);
        end.set_option(SocketOption::Service(Service::RealTime)).expect("in range");
        end.set_option(SocketOption::ReadTimeout(Some(ms(500)))).expect("in range");
        // A busy machine must not decide the result.
        end.set_option(SocketOption::Deadline(ms(255))).expect("in range");
        end.set_option(SocketOption::Late(true)).expect("in range");
        end
    });
    let over = AtomicBool::new(false);
    let speak = |from: &DatagramSocket, to: &DatagramSocket| {
        let sent = (0..).take_while(|n| {
            from.send_to(&numbered(*n), to.local_addr()).expect("sent");
            thread::sleep(ms(10));
            !over.load(Ordering::Relaxed)
        });
        sent.count() + 1
    };
    let hear = |at: &DatagramSocket| {
        let mut numbers = BTreeSet::new();
        loop {
            match try_recv_number(at) {
                Ok((n, _)) => drop(numbers.insert(n)),
                Err(Error::WouldBlock) if over.load(Ordering::Relaxed) => return numbers.len(),
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let [a, b] = &ends;
    thread::scope(|scope| {
        let speakers = [(a, b), (b, a)].map(|(from, to)| scope.spawn(move || speak(from, to)));
        let hearers = [a, b].map(|at| scope.spawn(move || hear(at)));
        act(chain);
        over.store(true, Ordering::Relaxed);
        let sent: usize = speakers.map(|s| s.join().expect("a speaker")).iter().sum();
        let heard: usize = hearers.map(|h| h.join().expect("a hearer")).iter().sum();
        (sent, sent - heard)
    })
}

/// Drains a relay, stops it, and restarts it as one of the next build.
fn upgrade_relay(chain: &mut Chain, relay: usize) {
    let drained = operate(&chain.nodes[relay], &["drain", "--quiet", "300ms", "--stop"]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    let mut process = chain.nodes[relay].process.take().expect("it runs");
    assert_eq!(process.wait().code(), Some(0), "{}", process.stderr());
    chain.nodes[relay].newest_version = Some(NEXT);
    chain.nodes[relay].start();
    versions(&chain.nodes[relay]);
}

/// In the chain 1, 2, 3, 4, each relay can be bypassed.
#[test]
fn an_overlay_is_upgraded_one_by_one_under_a_call() {
    let mut chain = prepare(4, "");
    [(0, 2), (1, 3)].into_iter().for_each(|ends| link(&chain, ends));
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    for (node, links) in chain.nodes.iter().zip([2, 3, 3, 2]) {
        assert_eq!(versions(node), vec![CURRENT; links], "node {}", node.id);
    }
    let (sent, lost) = during_a_call(&mut chain, |chain| {
        upgrade_relay(chain, 1);
        assert_eq!(versions(&chain.nodes[1]), [CURRENT; 3]);
        upgrade_relay(chain, 2);
        // The two upgraded relays use the newer version with each other.
        let relays = [1, 2].map(|relay| versions(&chain.nodes[relay]));
        let neighbours = [1, 2].map(|relay| each_link(&chain.nodes[relay], "neighbour"));
        assert_eq!(neighbours, [[1, 3, 4], [2, 4, 1]]);
        assert_eq!(relays, [[CURRENT, NEXT, CURRENT], [NEXT, CURRENT, CURRENT]]);
    });
    println!("{lost} of {sent} packets were lost");
    assert!(sent > 100, "{sent} packets");
    let drops = |node: &Node| ask(node, &["status"])["drops"].to_string();
    let dropped: Vec<_> = chain.nodes.iter().map(drops).collect();
    assert_eq!(lost, 0, "of {sent}; dropped: {dropped:?}");

    // Upgrade the ends, together with their applications.
    for end in [0, 3] {
        stop(&mut chain.nodes[end]);
        chain.nodes[end].newest_version = Some(NEXT);
        chain.nodes[end].start();
    }
    for (node, links) in chain.nodes.iter().zip([2, 3, 3, 2]) {
        assert_eq!(versions(node), vec![NEXT; links], "node {}", node.id);
    }
    wait_for_route(&chain);
    call(&chain);
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
    chain.nodes.iter().for_each(understood_all);
}

/// Node 2 is of the build after the next, for which this build is too old.
#[test]
fn without_a_common_version_no_link_comes_up() {
    let mut chain = prepare(2, "");
    chain.nodes[1].newest_version = Some(AFTER_NEXT);
    chain.nodes.iter_mut().for_each(Node::start);
    let refused =
        |node: &Node| node.metrics().sum("handshakes_refused_total", "reason=\"version\"");
    let newer = format!("versions {NEXT} to {AFTER_NEXT}");
    let lines = [
        format!("node 2 supports protocol {newer}, this node version {CURRENT}: upgrade this node"),
        format!("node 1 supports protocol version {CURRENT}, this node {newer}: upgrade node 1"),
    ];
    for (node, line) in chain.nodes.iter_mut().zip(lines) {
        wait_for("refusals", || (refused(node) > 1).then_some(()));
        node.process().wait_for_word(&line);
        assert_eq!(each_link(node, "up"), [false]);
        assert_eq!(each_link(node, "version"), [Value::Null]);
    }
    // The older node is upgraded.
    stop(&mut chain.nodes[0]);
    chain.nodes[0].newest_version = Some(NEXT);
    chain.nodes[0].start();
    for node in &chain.nodes {
        assert_eq!(versions(node), [NEXT]);
    }
}

#[test]
fn what_is_no_version_is_refused() {
    let mut chain = prepare(2, "");
    let node = chain.first();
    for wrong in ["0", "256", "two", "", "+1", "01", "1 ", "-1"] {
        let mut process =
            Process::start(node.command().env("TRUNKLINE_TEST_NEWEST_VERSION", wrong));
        assert_eq!(process.wait().code(), Some(2), "{wrong:?}");
        let line = format!("TRUNKLINE_TEST_NEWEST_VERSION is {wrong:?}, not a protocol version");
        wait_for("the reason", || process.stderr().contains(&line).then_some(()));
    }
}
