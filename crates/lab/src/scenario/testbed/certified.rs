//! The keys and certificates of a sealed overlay's nodes.

use super::{Error, cannot};
use std::path::{Path, PathBuf};
use std::process::Command;
use trunkline_overlay::wire::NodeId;

/// Makes a key and a certificate in `dir` for each node, given by id and name; returns the
/// overlay's public key.
///
/// # Errors
///
/// If `trunkline` can't be started or fails.
pub fn certify<'a>(
    trunkline: &Path,
    dir: &Path,
    nodes: impl IntoIterator<Item = (NodeId, &'a str)>,
) -> Result<String, Error> {
    let said = |path: PathBuf| path.to_string_lossy().into_owned();
    let signer = said(dir.join("overlay.key"));
    let overlay = tool(trunkline, &["keygen", &signer])?;
    for (node, name) in nodes {
        let [key, certificate] = files(dir, node).map(said);
        let key = tool(trunkline, &["keygen", &key])?;
        let id = node.to_string();
        let says = ["--node", &id, "--name", name, "--key", &key, &certificate];
        tool(trunkline, &[&["certify", "--overlay-key", &signer][..], &says].concat())?;
    }
    Ok(overlay)
}

/// Paths of a node's key and certificate in `dir`.
pub fn files(dir: &Path, node: NodeId) -> [PathBuf; 2] {
    ["key", "cert"].map(|ending| dir.join(format!("{node}.{ending}")))
}

/// Runs a subcommand of `trunkline`; returns its output, trimmed.
fn tool(trunkline: &Path, args: &[&str]) -> Result<String, Error> {
    let out = Command::new(trunkline).args(args).output();
    let out = out.map_err(cannot(format!("start {}", trunkline.display())))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.lines().last().unwrap_or("nothing");
        return Err(Error::Process(format!("trunkline {} failed: {said}", args[0])));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
