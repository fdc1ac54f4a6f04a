//! The committed seeds are what `make_seeds` writes, and the targets pass them.

use std::path::Path;
use trunkline_fuzz::{
    calls, handshake, node, route, sealed_node, seeds, stream_segment, tfmc, tfrc, two_nodes, wire,
};

#[test]
fn committed_seeds_are_those_of_the_generator() {
    for seed in seeds::all() {
        let path = Path::new("seeds").join(seed.target).join(seed.name);
        let committed = std::fs::read(&path).unwrap_or_default();
        let remedy = "cargo run --manifest-path fuzz/Cargo.toml --example make_seeds";
        assert_eq!(committed, seed.bytes, "{} is stale: run {remedy}", path.display());
    }
}

#[test]
fn targets_pass_their_seeds() {
    for seed in seeds::all() {
        println!("{}/{}", seed.target, seed.name);
        match seed.target {
            "envelope" => wire::envelope(&seed.bytes),
            "echo_message" => wire::echo_message(&seed.bytes),
            "trunk_message" => wire::trunk_message(&seed.bytes),
            "session_message" => wire::session_message(&seed.bytes),
            "remote_message" => wire::remote_message(&seed.bytes),
            "handshake_message" => handshake::message(&seed.bytes),
            "handshakes" => handshake::run(&seed.bytes),
            "node" => node::run(&seed.bytes),
            "route_frame" => route::frame(&seed.bytes),
            "router" => route::run(&seed.bytes),
            "sealed_node" => sealed_node::run(&seed.bytes),
            "sip_calls" => calls::run(&seed.bytes),
            "stream_segment" => stream_segment::run(&seed.bytes),
            "tfmc" => tfmc::run(&seed.bytes),
            "tfrc" => tfrc::run(&seed.bytes),
            "two_nodes" => two_nodes::run(&seed.bytes),
            other => panic!("no such target: {other}"),
        }
    }
}
