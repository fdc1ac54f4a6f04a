//! Nodes with keys and certificates, as an operator configures them. They admit each other, reject
//! unknown peers, and survive a reload and a drain during a call.

use crate::common::on_time::on_time;
use crate::common::{self, Ended, Node, ms, run, stream, temp_dir, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use trunkline_client::{StreamListener, StreamSocket};
use trunkline_overlay::identity::{Certificate, Identity};
use trunkline_overlay::wire::NodeId;

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[track_caller]
fn done(ended: Ended) -> String {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    ended.stdout.trim_end().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// An operator with an overlay key.
struct Operator {
    dir: tempfile::TempDir,
    public: String,
}

impl Operator {
    fn new() -> Operator {
        let dir = temp_dir();
        let public = done(run(trunkline(["keygen"]).arg(dir.path().join("overlay.key"))));
        Operator { dir, public }
    }

    /// Writes a node with a key and a certificate; `rest` follows `[overlay]`.
    fn node(&self, id: u32, rest: &str) -> Node {
        let dir = self.dir.path();
        let node = Node::new(dir, id, IP);
        let file = |suffix: &str| dir.join(format!("{id}.{suffix}"));
        let public = done(run(trunkline(["keygen"]).arg(file("key"))));
        assert_eq!(done(run(trunkline(["pubkey"]).arg(file("key")))), public);
        self.certify((id, id), &format!("site-{id}"), 30, &format!("{id}.cert"));
        self.write(&node, &format!("[overlay]\nkeys = [\"{}\"]\n{rest}", self.public));
        node
    }

    /// Certifies that node `id` has the key of node `key`.
    fn certify(&self, (id, key): (u32, u32), name: &str, days: u32, file: &str) {
        let dir = self.dir.path();
        let key = done(run(trunkline(["pubkey"]).arg(dir.join(format!("{key}.key")))));
        let mut certify = trunkline(["certify", "--overlay-key"]);
        certify.arg(dir.join("overlay.key")).args(["--node", &id.to_string(), "--name", name]);
        certify.args(["--key", &key, "--days", &days.to_string()]);
        assert_eq!(done(run(certify.arg(dir.join(file)))), "");
    }

    /// Writes a certificate of 1971 for node `id`: an expired certificate cannot be made otherwise.
    fn certify_long_ago(&self, id: u32, name: &str, file: &str) {
        let dir = self.dir.path();
        let [overlay, own] = ["overlay".to_owned(), id.to_string()].map(|name| {
            let text = fs::read_to_string(dir.join(format!("{name}.key"))).expect("there");
            Identity::from_text(&text).expect("a key")
        });
        let over = Certificate::issue(&overlay, NodeId(id), name, own.public(), 40_000_000);
        fs::write(dir.join(file), over.expect("a name").to_string()).expect("written");
    }

    fn write(&self, node: &Node, rest: &str) {
        node.write(rest);
        let file = |suffix: &str| self.dir.path().join(format!("{}.{suffix}", node.id));
        let (key, cert, control) = (file("key"), file("cert"), file("ctl"));
        let keys = format!(
            "key = {:?}\ncertificate = {:?}\ncontrol = {:?}\n",
            text(&key),
            text(&cert),
            text(&control)
        );
        edit(node, "unsealed_for_measurements = true\n", &keys);
    }
}

#[track_caller]
fn edit(node: &Node, from: &str, to: &str) {
    let text = fs::read_to_string(&node.config).expect("there");
    assert!(text.contains(from), "{from} in {text}");
    fs::write(&node.config, text.replace(from, to)).expect("written");
}

fn link(to: &Node) -> String {
    format!("[[link]]\nneighbour = {}\naddress = \"{}\"\n", to.id, to.udp)
}

fn operate(node: &Node, args: &[&str]) -> Ended {
    let control = node.config.with_extension("ctl");
    run(trunkline(args).arg("--control").arg(control))
}

fn json(node: &Node, args: &[&str]) -> Value {
    serde_json::from_str(&done(operate(node, &[args, &["--json"]].concat()))).expect("JSON")
}

/// Transfers more than a stream's first window, from end to end.
fn bytes_pass(from: &Node, to: &Node) {
    const LEN: usize = 1_000_000;
    let listener = StreamListener::bind(to.socket.as_path(), 900).expect("bound");
    let near = StreamSocket::connect(from.socket.as_path(), to.address(900)).expect("a stream");
    let (far, _) = listener.accept().expect("a stream");
    far.set_read_timeout(Some(common::PATIENCE)).expect("in range");
    std::thread::scope(|scope| {
        scope.spawn(|| (&near).write_all(&[7; LEN]).and_then(|()| Ok(near.shutdown()?)));
        let mut got = Vec::new();
        let read = (&far).read_to_end(&mut got);
        // The reset releases a writer that is still blocked, however the copy ended.
        let _ = far.reset();
        assert_eq!((read.ok(), got.len()), (Some(LEN), LEN));
    });
}

/// The relay's links are those of unconfigured peers.
#[apply(on_time)]
fn reliable_links_to_newcomers_carry_more_than_their_first_window() {
    let operator = Operator::new();
    let mut relay = operator.node(2, "");
    let mut a = operator.node(1, &link(&relay));
    let mut b = operator.node(3, &link(&relay));
    for node in [&mut relay, &mut a, &mut b] {
        node.start();
    }
    let routes = |node: &Node| json(node, &["routes"]).as_array().map_or(0, Vec::len);
    wait_for("routes", || (routes(&a) == 2 && routes(&b) == 2).then_some(()));
    bytes_pass(&a, &b);
    for node in [&relay, &a, &b] {
        assert_eq!(node.metrics().drops("stale"), 0, "at node {}", node.id);
    }
}

/// Nodes 1 and 3 are configured only with the relay, node 2, which is configured with none.
#[apply(on_time)]
fn certified_nodes_find_each_other_over_a_relay_that_knows_none() {
    let operator = Operator::new();
    let mut relay = operator.node(2, "");
    let mut a = operator.node(1, &link(&relay));
    let mut b = operator.node(3, &link(&relay));
    for node in [&mut relay, &mut a, &mut b] {
        assert!(done(run(trunkline(["check"]).arg(&node.config))).contains("sealed"));
        node.start();
    }
    let routes = |node: &Node| json(node, &["routes"]).as_array().map_or(0, Vec::len);
    wait_for("routes", || (routes(&a) == 2 && routes(&b) == 2).then_some(()));
    let status = json(&relay, &["status"]);
    assert_eq!((&status["sealed"], &status["links_up"]), (&true.into(), &2.into()));
    let (here, there) = (a.bind(4_000), b.bind(4_000));
    assert_eq!(stream(&here, &there, 0..200, ms(1)).len(), 200);
    let traced = json(&a, &["trace", "3"]);
    let hops = traced["hops"].as_array().expect("hops").iter();
    assert_eq!(hops.map(|h| h["from"][0].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)]);

    // Node 3's key is revoked at the relay: its link goes down, node 1's stays up.
    let key = done(run(trunkline(["pubkey"]).arg(operator.dir.path().join("3.key"))));
    edit(&relay, "[overlay]\n", &format!("[overlay]\nrevoked = [\"{key}\"]\n"));
    let echoes = || b.metrics().sum("echoes_answered_total", "");
    let before = echoes();
    let (pinged, reloaded) = std::thread::scope(|scope| {
        let ping = scope.spawn(|| operate(&a, &["ping", "3", "-c", "8"]));
        wait_for("an echo", || (echoes() > before).then_some(()));
        let reloaded = json(&relay, &["reload"]);
        (ping.join().expect("no panic"), reloaded)
    });
    assert_eq!(reloaded["applied"], serde_json::json!(["[overlay] revoked"]));
    // A ping shows that there is no route any more, and continues.
    assert_eq!(pinged.code, Some(0), "{}", pinged.stderr);
    assert!(
        pinged.stdout.contains("\n8: this node has had no route to node 3 for "),
        "{}",
        pinged.stdout
    );
    wait_for("the end of node 3's link", || {
        (json(&relay, &["status"])["links_up"] == 1).then_some(())
    });
    wait_for("node 1 to know", || (routes(&a) == 1).then_some(()));
    let (refused, from_b) = (relay.metrics(), b.metrics());
    assert!(refused.sum("handshakes_refused_total", "reason=\"revoked\"") >= 1);
    let status = json(&relay, &["status"]);
    assert!(status["handshakes_refused"]["revoked"].as_u64() >= Some(1), "{status}");
    let lines = done(operate(&relay, &["status"]));
    assert!(lines.contains("refused   handshakes: revoked "), "{lines}");
    // Refusals that are part of flooding are counted, but have no line for operators.
    assert!(status["updates_refused"].is_object(), "{status}");
    assert!(!lines.contains("refused   updates"), "{lines}");
    assert_eq!(from_b.sum("link_up", ""), 0);
    assert_eq!(stream(&here, &a.bind(0), 0..10, ms(1)).len(), 10);
}

/// The relay's certificate is renewed during a call. Changes that would make it another node are
/// rejected.
#[apply(on_time)]
fn a_certificate_is_renewed_by_reload() {
    let operator = Operator::new();
    let mut relay = operator.node(2, "");
    let mut a = operator.node(1, &link(&relay));
    let mut b = operator.node(3, &link(&relay));
    let file = |name: &str| operator.dir.path().join(name);
    let show = |relay: &Node, from: &str, to: &str| {
        edit(relay, &format!("/{from}.cert"), &format!("/{to}.cert"));
        operate(relay, &["reload", "--json"])
    };
    operator.certify((2, 2), "site-2", 1, "day.cert");
    edit(&relay, "/2.cert", "/day.cert");
    let ended = run(trunkline(["check"]).arg(&relay.config));
    assert!(
        ended.code == Some(0) && ended.stderr.contains("renew it, and reload"),
        "{}",
        ended.stderr
    );
    relay.start_with(&["--record", text(&file("2.rec"))]);
    for node in [&mut a, &mut b] {
        node.start();
    }
    let end = |s: &Value| s["certificate_not_after"].as_u64().expect("it ends");
    let routes = |node: &Node| json(node, &["routes"]).as_array().map_or(0, Vec::len);
    wait_for("routes", || (routes(&a) == 2 && routes(&b) == 2).then_some(()));
    let before = end(&json(&relay, &["status"]));
    let status = done(operate(&relay, &["status"]));
    assert!(status.contains("\ncertified ONLY for another "), "{status}");
    assert!(relay.process().stderr().contains("the node's certificate expires in "));

    operator.certify((2, 2), "site-2", 90, "90.cert");
    let (here, there) = (a.bind(4_000), b.bind(4_000));
    let came = std::thread::scope(|scope| {
        let call = scope.spawn(|| stream(&here, &there, 0..400, ms(5)).len());
        std::thread::sleep(ms(300));
        let reloaded: Value = serde_json::from_str(&done(show(&relay, "day", "90"))).expect("JSON");
        assert_eq!(reloaded["applied"], serde_json::json!(["[node] certificate"]));
        assert_eq!(reloaded["restart"], serde_json::json!([]));
        call.join().expect("a call")
    });
    assert_eq!(came, 400);
    let after = end(&json(&relay, &["status"]));
    assert_eq!((after - before + 43_200) / 86_400, 89);
    assert_eq!(relay.metrics().sum("certificate_not_after_timestamp_seconds", ""), after);
    let status = done(operate(&relay, &["status"]));
    let line = ["89 d 23 h", "90 d 0 h"].map(|left| format!("\ncertified for another {left}\n"));
    assert!(line.iter().any(|line| status.contains(line)), "{status}");

    // Certificates of another node, of another key, expired, and with another name.
    operator.certify((7, 2), "site-2", 90, "id.cert");
    operator.certify((2, 1), "site-2", 90, "key.cert");
    operator.certify_long_ago(2, "site-2", "over.cert");
    operator.certify((2, 2), "site-x", 90, "name.cert");
    let mut last = "90";
    for (name, why) in [
        ("id", "is for node 7, and [node] id is 2"),
        ("key", "is for another key than that of"),
        ("over", "has expired already: certify the node again"),
    ] {
        let ended = show(&relay, last, name);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{name}: {}", ended.stderr);
        last = name;
    }
    let named: Value = serde_json::from_str(&done(show(&relay, last, "name"))).expect("JSON");
    assert_eq!(named["restart"], serde_json::json!(["[node] certificate (by another name)"]));
    assert_eq!(end(&json(&relay, &["status"])), after, "none of them was taken");
    assert_eq!(stream(&here, &there, 400..500, ms(1)).len(), 100);

    relay.process().signal(Signal::SIGTERM);
    assert_eq!(relay.process().wait().code(), Some(0));
    let replayed = done(run(trunkline(["replay"]).arg(file("2.rec"))));
    assert!(replayed.contains(": identical: "), "{replayed}");
}

#[apply(on_time)]
fn a_sealed_node_and_an_unsealed_one_never_meet() {
    let operator = Operator::new();
    let mut unsealed = Node::new(operator.dir.path(), 2, IP);
    let mut sealed = operator.node(1, &link(&unsealed));
    unsealed.write(&link(&sealed));
    sealed.start();
    unsealed.start();
    std::thread::sleep(ms(1_500));
    assert_eq!(sealed.metrics().sum("link_up", ""), 0);
    assert_eq!(unsealed.metrics().sum("link_up", ""), 0);
    assert!(sealed.metrics().drops("unknown_receiver") + sealed.metrics().drops("malformed") > 0);
}

#[test]
fn key_files_that_are_of_no_use_are_named() {
    let operator = Operator::new();
    let node = operator.node(1, "");
    let file = |name: &str| operator.dir.path().join(name);
    let wrong = |why: &str| {
        let ended = run(trunkline(["check"]).arg(&node.config));
        assert_eq!(ended.code, Some(2), "{why}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
        let place = ended.stderr.strip_prefix(&format!("trunkline: {}:", node.config.display()));
        assert!(place.is_some_and(|rest| rest.starts_with(char::is_numeric)), "{}", ended.stderr);
    };
    edit(&node, "1.key", "2.key");
    wrong("2.key: No such file");
    edit(&node, "2.key", "1.key");
    fs::set_permissions(file("1.key"), fs::Permissions::from_mode(0o644)).expect("done");
    wrong("can be read by others than its owner: chmod 600");
    // Root's key may be readable by its group, as systemd passes it to a service.
    fs::set_permissions(file("1.key"), fs::Permissions::from_mode(0o440)).expect("done");
    if fs::metadata(file("1.key")).expect("there").uid() == 0 {
        done(run(trunkline(["check"]).arg(&node.config)));
        std::os::unix::fs::chown(file("1.key"), Some(1), None).expect("root may");
    }
    wrong("can be read by others than its owner: chmod 600");
    fs::set_permissions(file("1.key"), fs::Permissions::from_mode(0o600)).expect("done");
    edit(&node, "id = 1", "id = 7");
    wrong("is for node 1, and [node] id is 7");
    edit(&node, "id = 7", "id = 1");
    let other = operator.node(2, "");
    edit(&node, "1.cert", "2.cert");
    wrong("is for another key than that of");
    edit(&node, "2.cert", "1.cert");
    edit(&node, &operator.public, &done(run(trunkline(["pubkey"]).arg(file("2.key")))));
    wrong("is signed by none of [overlay] keys");
    edit(&node, &done(run(trunkline(["pubkey"]).arg(file("2.key")))), &operator.public);
    let before = fs::read(file("1.cert")).expect("there");
    operator.certify_long_ago(1, "old", "1.cert");
    let ended = run(trunkline(["check"]).arg(&node.config));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("the node's certificate EXPIRED "), "{}", ended.stderr);
    fs::write(file("1.cert"), before).expect("written");
    drop(other);
    // The public key in place of the secret one, and vice versa.
    let (secret, public) =
        (fs::read_to_string(file("1.key")), done(run(trunkline(["pubkey"]).arg(file("1.key")))));
    let secret = secret.expect("there");
    fs::write(file("1.key"), &public).expect("written");
    wrong("1.key, but that is the public key: [node] key is to name the file with the secret one");
    fs::set_permissions(file("1.key"), fs::Permissions::from_mode(0o644)).expect("done");
    wrong("if the file holds the public one, name the one that `trunkline keygen` made instead");
    fs::write(file("1.key"), &secret).expect("written");
    fs::set_permissions(file("1.key"), fs::Permissions::from_mode(0o600)).expect("done");
    let named = format!("{:?}", file("1.key"));
    edit(&node, &named, &format!("{:?}", public.trim()));
    wrong("[node] key is a key itself: give the name of a file with the secret one");
    edit(&node, &format!("{:?}", public.trim()), &named);
    // This node's own key in place of another's.
    let overlay_keys = format!("keys = [\"{}\"]", operator.public.trim());
    edit(&node, &overlay_keys, &format!("{overlay_keys}\nrevoked = [\"{}\"]", public.trim()));
    wrong("[overlay] revoked has this node's own key, so no node with that list trusts it");
    edit(&node, &format!("revoked = [\"{}\"]", public.trim()), "");
    // A key is never overwritten.
    let again = run(trunkline(["keygen"]).arg(file("1.key")));
    assert!(again.one_line(1).contains("File exists (os error 17); no key"), "{}", again.stderr);
    // A file that is not a secret key is reported as such, whatever its permissions.
    edit(&node, "1.key", "1.cert");
    wrong("1.cert holds no secret key");
    edit(&node, "1.cert\"\ncertificate", "1.key\"\ncertificate");
    fs::write(file("1.cert"), "nonsense").expect("written");
    wrong("not a certificate");
}

#[test]
fn check_warns_of_a_node_that_others_do_not_know() {
    let operator = Operator::new();
    let node = operator.node(1, "");
    let file = |name: &str| operator.dir.path().join(name);
    edit(&node, "id = 1", "id = 1\nname = \"other\"");
    let ended = run(trunkline(["check"]).arg(&node.config));
    let warns = "warning: [node] name is \"other\", and the node's certificate has \"site-1\"";
    assert!(ended.code == Some(0) && ended.stderr.contains(warns), "{}", ended.stderr);
    edit(&node, "id = 1\nname = \"other\"", "id = 1");
    let certificate = format!("certificate = {:?}\n", text(&file("1.cert")));
    edit(&node, &certificate, "");
    let ended = run(trunkline(["check"]).arg(&node.config));
    let warns = "this node has neither a certificate nor a [[link]]";
    assert!(ended.code == Some(0) && ended.stderr.contains(warns), "{}", ended.stderr);
}

#[test]
fn a_certificate_shows_its_date_and_its_file_is_named() {
    let operator = Operator::new();
    operator.node(2, "");
    let file = |name: &str| operator.dir.path().join(name);
    let public = done(run(trunkline(["pubkey"]).arg(file("2.key"))));
    let shown = done(run(trunkline(["certificate"]).arg(file("2.cert"))));
    assert!(shown.contains("\nvalid until ") && shown.contains(" GMT, for another "), "{shown}");
    let mut verify = trunkline(["certificate", "--overlay-key", public.trim()]);
    let ended = run(verify.arg(file("2.cert")));
    assert!(ended.one_line(2).contains("2.cert is not valid: "), "{}", ended.stderr);
    // A node must not have the key that signs for all.
    let mut certify = trunkline(["certify", "--node", "3", "--name", "c", "--overlay-key"]);
    certify.arg(file("overlay.key")).args(["--key", operator.public.trim()]);
    let ended = run(certify.arg(file("3.cert")));
    assert!(
        ended.one_line(2).contains("--key is the overlay's own public key"),
        "{}",
        ended.stderr
    );
    assert!(!file("3.cert").exists());
}
