//! Runs one input of a target after printing its steps, if it has any:
//! `cargo run --manifest-path fuzz/Cargo.toml --no-default-features --example show TARGET FILE`.

use trunkline_base::wire::Reader;
use trunkline_fuzz::{run, world};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(file)) = (arguments.next(), arguments.next()) else {
        panic!("give a target and a file");
    };
    let bytes = std::fs::read(file)?;
    if target == "world" {
        let mut r = Reader::new(&bytes);
        println!("settings {:?}", r.bytes(world::SETTINGS));
        while let Some(step) = world::Step::read(&mut r) {
            println!("{step:?}");
        }
    }
    run(&target, &bytes);
    Ok(())
}
