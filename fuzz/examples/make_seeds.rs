//! Writes the seeds of the overlay's targets:
//! `cargo run --manifest-path fuzz/Cargo.toml --example make_seeds`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for seed in trunkline_fuzz::seeds::all() {
        let dir = seeds.join(seed.target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(seed.name), &seed.bytes)?;
    }
    Ok(())
}
