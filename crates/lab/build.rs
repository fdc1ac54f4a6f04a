//! Records from what the lab is built: the commit, whether files differ from it, and the compiler.
//! Only in release builds, with which results are made: others would be compiled again after each
//! commit.

use std::process::Command;

/// A variable of the environment, in which cargo passes what a build script is told.
#[expect(clippy::disallowed_methods, reason = "a build script has no arguments")]
fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The first line that a command prints; `None` if it fails.
fn line(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.lines().next().unwrap_or_default().to_owned())
}

fn commit() -> Option<String> {
    // An unpacked archive within another repository is none of its commits.
    let manifest = ["ls-files", "--error-unmatch", "Cargo.toml"];
    line("git", &manifest)?;
    let commit = line("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = line("git", &["status", "--porcelain", "--", "../.."])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}, modified") })
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = var("PROFILE").is_some_and(|profile| profile == "release");
    let mut built = Vec::new();
    if is_release {
        println!("cargo::rerun-if-changed=../../crates");
        println!("cargo::rerun-if-changed=../../Cargo.lock");
        if let Some(folder) = line("git", &["rev-parse", "--git-dir"]) {
            println!("cargo::rerun-if-changed={folder}/HEAD");
            println!("cargo::rerun-if-changed={folder}/logs/HEAD");
        }
        built.push(commit().map_or("unknown commit".into(), |commit| format!("commit {commit}")));
    } else {
        built.push("debug build".into());
    }
    let rustc = var("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = line(&rustc, &["--version"]).unwrap_or_else(|| "unknown compiler".into());
    built.push(version.split(" (").next().unwrap_or_default().to_owned());
    built.push(var("TARGET").unwrap_or_default());
    println!("cargo::rustc-env=TRUNKLINE_BUILT={}", built.join(", "));
}
