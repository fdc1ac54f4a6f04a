//! Runs one input of a target and prints its steps first:
//! `cargo run --manifest-path fuzz/Cargo.toml --example show TARGET FILE`.

use trunkline_base::wire::Reader;
use trunkline_fuzz::{node, stream_segment, two_nodes, wire};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(file)) = (arguments.next(), arguments.next()) else {
        panic!("give a target and a file");
    };
    let bytes = std::fs::read(file)?;
    let mut r = Reader::new(&bytes);
    match &target[..] {
        "envelope" => wire::envelope(&bytes),
        "session_message" => wire::session_message(&bytes),
        "remote_message" => wire::remote_message(&bytes),
        "node" => {
            println!("settings {:?}", r.bytes(node::SETTINGS));
            while let Some(step) = node::Step::read(&mut r) {
                println!("{step:?}");
            }
            node::run(&bytes);
        }
        "two_nodes" => {
            println!("settings {:?}", r.bytes(two_nodes::SETTINGS));
            while let Some(step) = two_nodes::Step::read(&mut r) {
                println!("{step:?}");
            }
            two_nodes::run(&bytes);
        }
        "stream_segment" => {
            while let Some(step) = stream_segment::Step::read(&mut r) {
                println!("{step:?}");
            }
            stream_segment::run(&bytes);
        }
        other => panic!("no such target: {other}"),
    }
    Ok(())
}
