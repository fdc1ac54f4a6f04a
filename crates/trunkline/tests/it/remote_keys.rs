//! Rights of remote applications to attach, and the cost of rejecting one.

use crate::common::keys::{CLIENT, LIMITED, STRANGER, identity, key_file};
use crate::common::on_time::on_time;
use crate::common::raw::{Raw, begin, bytes};
use crate::common::{self, Chain, Node, ms, numbered, run, stream, try_recv_number, wait_for};
use macro_rules_attribute::apply;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Instant;
use trunkline_client::{Address, DatagramSocket, Error, NodeId, RefusalReason};
use trunkline_overlay::session::remote::FromClient;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToNode};

fn drops(node: &Node, reason: &str) -> u64 {
    node.metrics().sum("remote_drops_total", &format!("reason=\"{reason}\""))
}

fn refused(attachment: &str) -> Error {
    DatagramSocket::bind(attachment, 0).expect_err("refused")
}

#[test]
fn each_mistake_has_its_error() {
    let chain = Chain::sealed(1);
    let node = &chain.nodes[0];
    let good = node.attachment();
    let count = |why| drops(node, why);

    let keyless = refused(&format!("tcp://{}", node.remote));
    assert!(matches!(keyless, Error::Attachment { .. }), "{keyless:?}");
    assert!(keyless.to_string().contains("?node=PUBKEY&key=FILE"), "{keyless}");
    for first in [
        bytes(|w| ToNode::Bind { version: SESSION_VERSION, port: 0 }.emit_head(w)),
        bytes(|w| FromClient::Hello { identity: 1, attempt: 1 }.emit(w)),
        bytes(|w| FromClient::Ping.emit(w)),
    ] {
        let mut keyless = Raw::dial(node.remote);
        keyless.say(&first);
        assert_eq!(keyless.refusal(), Some(RefusalReason::Unauthenticated), "{first:?}");
    }
    assert_eq!(count("unauthenticated"), 3);

    let unknown_peer = refused(&node.attachment_at(node.remote, STRANGER));
    assert!(
        matches!(unknown_peer, Error::Refused(RefusalReason::UnknownClient)),
        "{unknown_peer:?}"
    );
    assert_eq!(count("unknown_client"), 1);

    let (own, other) = (identity(1).public().to_string(), identity(9).public().to_string());
    let elsewhere = refused(&good.replace(&own, &other));
    assert!(matches!(elsewhere, Error::Refused(RefusalReason::WrongKey)), "{elsewhere:?}");
    assert_eq!(count("wrong_key"), 1);

    let absent = refused(&good.replace("100.key", "none.key"));
    assert!(matches!(absent, Error::KeyFile { .. }), "{absent:?}");
    assert!(absent.to_string().contains("none.key cannot be read"), "{absent}");
    let file = key_file(chain.dir.path(), CLIENT);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("permitted");
    let exposed = refused(&good);
    assert!(exposed.to_string().contains("read by others than its owner: chmod 600"), "{exposed}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permitted");
    fs::write(&file, "no key").expect("written");
    let empty = refused(&good);
    assert!(empty.to_string().contains("holds no secret key"), "{empty}");
    let typo = refused(&good.replace("&key", "&kye"));
    assert!(matches!(typo, Error::Attachment { .. }), "{typo:?}");
    assert_eq!(node.metrics().sum("sessions", ""), 0);
}

#[apply(on_time)]
fn a_client_may_do_what_its_section_says() {
    let chain = Chain::sealed(2);
    let node = &chain.nodes[0];
    let attachment = node.attachment_at(node.remote, LIMITED);
    let forbidden = DatagramSocket::bind(attachment.as_str(), 4_002).expect_err("not its port");
    assert!(matches!(forbidden, Error::Refused(RefusalReason::Forbidden)), "{forbidden:?}");
    let limited = common::attach(attachment.as_str(), 0);
    assert_eq!(limited.local_addr().port, 4_000, "the first of its ports");
    let (near, far) = (node.bind(0), chain.nodes[1].bind(0));
    assert_eq!(stream(&limited, &near, 0..20, ms(2)).len(), 20);
    assert_eq!(stream(&far, &limited, 0..20, ms(2)).len(), 20, "anyone may send to it");
    limited.send_to(&numbered(1), far.local_addr()).expect("sent");
    let told = try_recv_number(&limited).expect_err("refused");
    assert!(matches!(told, Error::Refused(RefusalReason::Forbidden)), "{told:?}");
    // Another client has rights of its own.
    assert_eq!(stream(&node.bind_remote(0), &far, 0..20, ms(2)).len(), 20);
}

#[apply(on_time)]
fn a_node_that_nobody_could_attach_to_does_not_start() {
    let dir = common::temp_dir();
    let node = Node::new(dir.path(), 1, std::net::Ipv4Addr::LOCALHOST.into());
    node.write("");
    let text = fs::read_to_string(&node.config).expect("written");
    let remote = format!("[node]\nremote = [\"{}\"]", node.remote);
    fs::write(&node.config, text.replace("[node]", &remote)).expect("written");
    let ended = run(&mut node.command());
    let said = &ended.stderr;
    assert_eq!(ended.code, Some(2), "{said}");
    assert!(said.contains("add a [[client]]"), "{said}");
    assert!(said.contains("| remote = ["), "the line that is wrong: {said}");
}

#[apply(on_time)]
fn a_recorded_handshake_gets_nobody_in() {
    let chain = Chain::sealed(1);
    let node = &chain.nodes[0];
    let (opening, first) = begin(node, CLIENT);
    let mut owner = Raw::dial(node.remote);
    owner.say(&first);
    let (_, keys) = opening.finish(&owner.read().expect("a response")).expect("by the node");
    owner.keys = Some(keys);
    let bind = bytes(|w| ToNode::Bind { version: SESSION_VERSION, port: 0 }.emit_head(w));
    let frame = owner.frame(&bind);
    owner.tcp.set_nodelay(true).expect("an option");
    let mut thief = Raw::dial(node.remote);
    thief.say(&first);
    assert!(thief.read().is_some(), "an answer that is of no use");
    use std::io::Write;
    thief.tcp.write_all(&frame).expect("sent");
    assert!(thief.closed());
    assert_eq!((drops(node, "bad_stream"), node.metrics().sum("sessions", "")), (1, 0));
    owner.tcp.write_all(&frame).expect("sent");
    assert!(owner.read().is_some(), "bound");
}

#[apply(on_time)]
fn a_flood_of_handshakes_is_bounded_and_disturbs_nobody() {
    let mut chain = Chain::sealed(2);
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[1].bind_remote(0));
    let (first, remote) = (begin(&chain.nodes[0], CLIENT).1, chain.nodes[0].remote);
    let before = chain.first().cpu_time();
    let start = Instant::now();
    thread::scope(|scope| {
        let call = scope.spawn(|| stream(&a, &b, 0..300, ms(10)).len());
        let mut kept = std::collections::VecDeque::new();
        for n in 0..1_800 {
            let mut raw = Raw::dial(remote);
            raw.say(&first);
            kept.push_back(raw);
            if kept.len() > 64 {
                kept.pop_front();
            }
            // More than the node allows, but not the whole capacity of this machine.
            if n % 2 == 0 {
                thread::sleep(ms(1));
            }
        }
        assert_eq!(call.join().expect("the call ends"), 300, "packets of a good session");
    });
    let (took, node) = (start.elapsed(), &chain.nodes[0]);
    let busy = drops(node, "busy");
    println!("{busy} handshakes refused within {took:?}");
    assert!(busy > 0);
    println!("the node used {:?}", chain.first().cpu_time() - before);
    let there = Address { node: NodeId(2), port: b.local_addr().port };
    a.send_to(&numbered(1), there).expect("still up");
    assert_eq!((a.status().reconnects, b.status().reconnects), (0, 0));
    wait_for("a place for others", || {
        DatagramSocket::bind(chain.nodes[0].attachment().as_str(), 0).ok().map(drop)
    });
    let ping = bytes(|w| FromClient::Ping.emit(w));
    let mut keyless = Raw::dial(remote);
    keyless.say(&ping);
    assert_eq!(keyless.refusal(), Some(RefusalReason::Unauthenticated));
    chain.first().assert_healthy();
}
