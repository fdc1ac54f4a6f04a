//! Nodes of this build beside nodes of the previous protocol version, which
//! `scripts/previous-binary.sh` builds from the history of the repository; and
//! what an operator sees of versions.

use crate::common::keys::identity;
use crate::common::{Chain, Ended, Node, Setup, ms, run, stream, trunkline, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trunkline_client::{Error, Reset, Service, SocketOption, StreamListener, StreamSocket};
use trunkline_overlay::wire::version::{CURRENT, OLDEST};

/// Says which commit is the previous one.
const PREVIOUS: &str = include_str!("../../../../scripts/previous-commit");

/// The binary of the previous version, and that version; `None`, with a line
/// that says why, if it was not built.
fn previous() -> Option<(PathBuf, u8)> {
    let line = PREVIOUS.lines().find(|line| !line.starts_with('#')).expect("a line");
    let (commit, version) = line.split_once(' ').expect("a commit and its version");
    let version = version.parse().expect("a version");
    assert_eq!(version + 1, CURRENT, "scripts/previous-commit is not the previous version");
    // TARGET/PROFILE/trunkline
    let target = Path::new(env!("CARGO_BIN_EXE_trunkline")).ancestors().nth(2).expect("a folder");
    let binary = target.join("previous").join(commit).join("trunkline");
    if !binary.exists() {
        // Not by a macro, whose output a test that passes keeps to itself.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no binary of the previous protocol version: run scripts/previous-binary.sh, \
             which needs commit {commit} in the history of this clone (git fetch --unshallow)"
        );
        return None;
    }
    Some((binary, version))
}

fn control(node: &Node) -> PathBuf {
    node.socket.with_extension("ctl")
}

/// What begins a line of a route that does not count yet.
const LATER: &str = "#later ";

/// The files of a sealed chain that has control sockets and is routed by link
/// state.
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

/// Has the nodes forward by the routes in their files from now on: computed ones
/// would wait for links that come and go, as those in a test do, to be steady.
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

/// A field of each link of `node`.
fn each_link(node: &Node, key: &str) -> Vec<Value> {
    ask(node, &["links"]).as_array().expect("a list").iter().map(|l| l[key].clone()).collect()
}

/// Waits until all links of `node` are up, and says what they speak.
fn versions(node: &Node) -> Vec<Value> {
    wait_for("links to come up", || {
        each_link(node, "up").iter().all(|up| up == true).then_some(())
    });
    each_link(node, "version")
}

/// Has a node make its link to `neighbour` anew, with other keys.
fn renew(node: &Node, neighbour: u32) {
    let agreed = node.metrics().sum("handshakes_total", "");
    let text = fs::read_to_string(&node.config).expect("written before");
    let line = format!("neighbour = {neighbour}\n");
    fs::write(&node.config, text.replace(&line, &format!("{line}mtu = 1279\n"))).expect("written");
    assert_eq!(ask(node, &["reload"])["applied"], json!([format!("[[link]] to {neighbour}: mtu")]));
    wait_for("new keys", || (node.metrics().sum("handshakes_total", "") > agreed).then_some(()));
}

/// Waits until the ends have computed ways to each other.
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

/// Calls each way between the ends until one comes through links that lose 5 %:
/// a machine that is busy may take longer than a packet is of use.
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

/// How often a link of `node` went down, and by word of its neighbour.
fn downs(node: &Node, link: usize) -> (u64, u64) {
    let links = ask(node, &["links"]);
    let count = |key: &str| links[link][key].as_u64().unwrap_or_default();
    (count("downs"), count("goodbyes"))
}

/// Has a node stop as its service manager would, and waits for its end.
fn stop(node: &mut Node) {
    let mut process = node.process.take().expect("it runs");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait().code(), Some(0), "{}", process.stderr());
}

/// Waits until `node` has noticed the end of a neighbour.
fn wait_for_down(node: &Node, link: usize, before: (u64, u64)) {
    wait_for("the link to go down", || (downs(node, link).0 > before.0).then_some(()));
}

/// Nothing that it received was beyond it.
fn understood_all(node: &Node) {
    let drops = &ask(node, &["status"])["drops"];
    assert!(drops["malformed"].is_null() && drops["forged"].is_null(), "{drops}");
}

/// 1, 2 and 4 are of today, 3 is of before; then each is upgraded in turn.
#[test]
fn old_and_new_nodes_are_one_overlay() {
    let Some((binary, old)) = previous() else { return };
    let mut chain = prepare(4, "delay = \"5ms\"\nloss = \"5%\"");
    chain.nodes[2].program.clone_from(&binary);
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    let [one, two, three, four] = &chain.nodes[..] else { unreachable!("four nodes") };
    assert_eq!(versions(one), [CURRENT]);
    assert_eq!(versions(two), [CURRENT, old]);
    assert_eq!(versions(three), [old, old]);
    assert_eq!(versions(four), [old]);
    let link_versions = json!({old.to_string(): 1, CURRENT.to_string(): 1});
    assert_eq!(ask(two, &["status"])["link_versions"], link_versions);

    // Packets, what is asked for again, and echoes pass through.
    fix_routes(&chain);
    call(&chain);
    for asked in [three, four] {
        let repeats = asked.metrics().sum("link_sent_envelopes_total", "class=\"repeat\"");
        assert!(repeats > 0, "node {} had to repeat packets", asked.id);
    }
    for (from, to) in [(one, "4"), (four, "1"), (three, "1")] {
        wait_for("an echo", || {
            let ping = operate(from, &["ping", to, "-c", "3", "--timeout", "300ms"]);
            (ping.code == Some(0)).then_some(())
        });
    }
    wait_for("a trace", || {
        let trace = operate(one, &["trace", "4", "--probes", "4", "--timeout", "300ms", "--json"]);
        let trace: Value = serde_json::from_str(&trace.stdout).ok()?;
        let hops: Vec<_> =
            trace["hops"].as_array()?.iter().map(|hop| hop["from"].clone()).collect();
        (hops == [json!([2]), json!([3]), json!([4])]).then_some(())
    });
    for (node, neighbour) in [(three, 4), (four, 3)] {
        renew(node, neighbour);
        assert_eq!(versions(four), [old]);
    }
    call(&chain);

    // One that stops says so, since before the old version.
    let before = [downs(one, 0), downs(three, 0)];
    stop(&mut chain.nodes[1]);
    assert_eq!(downs(&chain.nodes[0], 0).1, before[0].1 + 1, "it knows when the other has ended");
    assert_eq!(downs(&chain.nodes[2], 0).1, before[1].1 + 1);
    understood_all(&chain.nodes[2]);
    chain.nodes[1].start();
    assert_eq!(versions(&chain.nodes[1]), [CURRENT, old]);

    // So does the old one. It comes back as one of today.
    stop(&mut chain.nodes[2]);
    assert_eq!([downs(&chain.nodes[1], 1).1, downs(&chain.nodes[3], 0).1], [1, 1]);
    chain.nodes[2].program = env!("CARGO_BIN_EXE_trunkline").into();
    chain.nodes[2].start();
    for (node, links) in chain.nodes.iter().zip([1, 2, 2, 1]) {
        assert_eq!(versions(node), vec![CURRENT; links], "node {}", node.id);
    }
    // And back: what was agreed on before does not bind.
    stop(&mut chain.nodes[2]);
    chain.nodes[2].program = binary;
    chain.nodes[2].start();
    assert_eq!(versions(&chain.nodes[3]), [old]);
    assert_eq!(versions(&chain.nodes[1]), [CURRENT, old]);
    call(&chain);
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
    chain.nodes.iter().for_each(understood_all);
}

/// 4 is of before. That 2 damps its link to 1, which keeps failing, is said in
/// words that it understands: the link costs more there, and stays the way.
#[test]
fn an_old_node_keeps_the_way_over_a_damped_link() {
    let Some((binary, _)) = previous() else { return };
    let mut chain = prepare(4, "");
    chain.nodes[3].program = binary;
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    let cost = |chain: &Chain| {
        let routes = ask(&chain.nodes[3], &["routes"]);
        let mut routes = routes.as_array().expect("a list").iter();
        routes.find(|r| r["destination"] == 1)?["cost"].as_f64()
    };
    for n in 1..=2 {
        chain.nodes[0].process().signal(Signal::SIGSTOP);
        wait_for("the link to go down", || (downs(&chain.nodes[1], 0).0 >= n).then_some(()));
        wait_for("no way", || cost(&chain).is_none().then_some(()));
        chain.nodes[0].process().signal(Signal::SIGCONT);
        let cost = wait_for("the way back", || cost(&chain));
        // Half of it counts as missed, which is as bad as 100 ms.
        assert_eq!(cost > 45.0, n == 2, "{cost}");
    }
    assert_eq!(each_link(&chain.nodes[1], "damping"), [json!(0.5), json!(0.0)]);
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
    chain.nodes.iter().for_each(understood_all);
}

/// 3 is of before, when links were not reliable: streams end there, with a reason and in
/// time, and so do those of its own applications.
#[test]
fn streams_over_an_old_node_are_refused() {
    let Some((binary, _)) = previous() else { return };
    let mut chain = prepare(4, "");
    chain.nodes[2].program = binary;
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    let [one, two, three, four] = &chain.nodes[..] else { unreachable!("four nodes") };
    let _listeners =
        [two, four].map(|node| StreamListener::bind(node.socket.as_path(), 900).expect("bound"));
    let connect = |from: &Node, to: &Node| {
        let began = Instant::now();
        let opened = StreamSocket::connect(from.socket.as_path(), to.address(900));
        (opened.map(drop), began.elapsed())
    };
    connect(one, two).0.expect("both are of today");
    let (next, took) = connect(two, four);
    assert!(matches!(next, Err(Error::Reset(Reset::OldNeighbour))), "{next:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    // A node further away gets no answer, and gives up.
    let (further, took) = connect(one, four);
    assert!(matches!(further, Err(Error::Reset(Reset::Timeout))), "{further:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    let (own, took) = connect(three, two);
    assert!(matches!(own, Err(Error::NotReliable)), "{own:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let said = run(trunkline(["cat", "4:900", "--socket"]).arg(&two.socket));
    assert!(said.one_line(3).contains("of a version without reliable links"), "{}", said.stderr);
    let said = run(trunkline(["cat", "2:900", "--socket"]).arg(&three.socket));
    assert!(said.one_line(3).contains("too old"), "{}", said.stderr);
    assert_eq!(two.metrics().drops("malformed") + four.metrics().drops("malformed"), 0);
    chain.nodes.iter_mut().for_each(Node::assert_healthy);
}

/// An operator holds the overlay at the version that all nodes have; a node
/// that was not told follows. What version 1 lacks is not said to it: no goodbye.
#[test]
fn a_pinned_node_keeps_to_the_version_it_was_given() {
    let mut chain = prepare(3, "");
    let pinned = fs::read_to_string(&chain.nodes[0].config).expect("written before");
    let pinned = pinned.replacen("[[client]]", "[overlay]\nnewest_version = 1\n[[client]]", 1);
    fs::write(&chain.nodes[0].config, &pinned).expect("written");
    chain.nodes.iter_mut().for_each(Node::start);
    wait_for_route(&chain);
    assert_eq!(versions(&chain.nodes[0]), [OLDEST]);
    assert_eq!(versions(&chain.nodes[1]), [OLDEST, CURRENT]);
    assert_eq!(ask(&chain.nodes[0], &["status"])["protocol"], OLDEST);
    let table = |what: &str| operate(&chain.nodes[1], &[what]).stdout;
    let status = table("status");
    let line = format!("protocol  version {CURRENT} at most; 1 on 1 link, {CURRENT} on 1 link\n");
    assert!(status.contains(&line), "{status}");
    let links = table("links");
    let last = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
    assert_eq!(
        links.lines().map(last).collect::<Vec<_>>(),
        ["version", "1", &CURRENT.to_string()],
        "{links}"
    );

    let reloaded = pinned.replace("newest_version = 1", "newest_version = 2");
    fs::write(&chain.nodes[0].config, reloaded).expect("written");
    let done = ask(&chain.nodes[0], &["reload"]);
    assert_eq!(done["restart"], json!(["[overlay] newest_version"]), "{done}");

    let before = Instant::now();
    stop(&mut chain.nodes[1]);
    assert!(before.elapsed() < ms(2_000), "{:?}", before.elapsed());
    assert_eq!(downs(&chain.nodes[2], 0), (1, 1));
    wait_for_down(&chain.nodes[0], 0, (0, 0));
    assert_eq!(downs(&chain.nodes[0], 0), (1, 0));
}
