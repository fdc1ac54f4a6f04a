//! Every target passes its seeds, and a fixed number of mutations of each. The mutations are the
//! same each time: `make fuzz` looks for new ones.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fs, thread};
use trunkline_base::{Rng, rng};
use trunkline_fuzz::{TARGETS, Target, seeds};

#[test]
fn committed_seeds_are_those_of_the_generator() {
    for seed in seeds::all() {
        let path = Path::new("seeds").join(seed.target).join(seed.name);
        let committed = fs::read(&path).unwrap_or_default();
        let remedy = "cargo run --manifest-path fuzz/Cargo.toml --example make_seeds";
        assert_eq!(committed, seed.bytes, "{} is stale: run {remedy}", path.display());
    }
}

#[test]
fn table_manifest_and_files_agree() {
    let table: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(table.len(), TARGETS.len(), "a target is in TARGETS of src/lib.rs twice");
    let manifest = fs::read_to_string("Cargo.toml").expect("fuzz/Cargo.toml");
    let bins = manifest.split("\n[[bin]]\n").skip(1);
    let bins = bins.filter_map(|bin| bin.split('"').nth(1)).map(str::to_owned).collect();
    assert_eq!(table, bins, "TARGETS of src/lib.rs and the [[bin]] sections of Cargo.toml differ");
    for folder in ["fuzz_targets", "seeds"] {
        let stem = |path: &PathBuf| path.file_stem().map(|s| s.to_string_lossy().into_owned());
        let names = files(Path::new(folder)).iter().filter_map(stem).collect();
        assert_eq!(table, names, "TARGETS of src/lib.rs and what is in {folder}/ differ");
    }
    let first = fs::read(Path::new("fuzz_targets").join(TARGETS[0].name).with_extension("rs"));
    let first = first.expect("the first target's file");
    for Target { name, .. } in TARGETS {
        let path = Path::new("fuzz_targets").join(name).with_extension("rs");
        let same = fs::read(&path).is_ok_and(|bytes| bytes == first);
        assert!(same, "{}: make it a copy of the others, which call run", path.display());
    }
}

#[test]
fn targets_pass_their_seeds_and_mutations() {
    let mut jobs = Vec::new();
    for target in TARGETS {
        let seeds = files(&Path::new("seeds").join(target.name));
        assert!(!seeds.is_empty(), "seeds/{} is empty: add a valid input", target.name);
        jobs.extend(seeds.into_iter().map(|path| (target, path)));
    }
    let (jobs, failures) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    let next = || jobs.lock().expect("no thread panics with it").next();
    let work = || {
        while let Some((target, seed)) = next() {
            if let Some(failure) = replay(target, &seed) {
                failures.lock().expect("no thread panics with it").push(failure);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let failures = failures.into_inner().expect("no thread panics with it");
    assert!(
        failures.is_empty(),
        "a target panics, see above, on: {}. Run one again with `cargo run --manifest-path \
         fuzz/Cargo.toml --example show TARGET FILE`",
        failures.join(", ")
    );
}

/// Runs a seed and its mutations. The first input on which the target panics is written to a file,
/// and that file's name is returned.
fn replay(target: &Target, seed: &Path) -> Option<String> {
    let bytes = fs::read(seed).expect("a seed can be read");
    let name = seed.file_name().expect("a file").to_string_lossy();
    // The number derives from the file's name, so that other seeds do not affect these mutations.
    let number = name.bytes().fold(0, |n: u64, b| n.wrapping_mul(31).wrapping_add(b.into()));
    let mut rng = rng(number, 1);
    let fails = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err();
    let kept = |input: &[u8], what: String| {
        let folder = Path::new("artifacts").join(target.name);
        let path = folder.join(format!("replay-{name}-{what}"));
        fs::create_dir_all(&folder).expect("artifacts/ can be written");
        fs::write(&path, input).expect("artifacts/ can be written");
        Some(format!("fuzz/{}", path.display()))
    };
    if fails(&bytes) {
        return kept(&bytes, "itself".into());
    }
    let mutations = (0..target.mutations).map(|n| (n, mutated(&bytes, &mut rng)));
    let mut bad = mutations.filter(|(_, input)| fails(input));
    let found = bad.next();
    found.and_then(|(n, input)| kept(&input, n.to_string()))
}

/// Applies one to eight changes: of a bit, a byte, or a piece that is cut out, doubled or moved.
fn mutated(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    use rand::RngExt as _;
    let mut bytes = seed.to_vec();
    for _ in 0..rng.random_range(1..=8) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let at = rng.random_range(0..bytes.len());
        let end = rng.random_range(at..bytes.len().min(at + 16)) + 1;
        let piece = bytes[at..end].to_vec();
        match rng.random_range(0..6) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            3 => drop(bytes.drain(at..end)),
            4 => drop(bytes.splice(at..at, piece)),
            _ => {
                bytes.drain(at..end);
                let to = rng.random_range(0..=bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// Files of a folder, in order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}
