//! Scripts of each scene that get past the parser. The name of a seed begins with its scene's.

mod liar;
mod neighbours;
mod pair;
mod sealed;

use super::{SETTINGS, Step};

pub(crate) fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    [neighbours::scripts(), pair::scripts(), sealed::scripts(), liar::scripts()].concat()
}

/// Encodes the scene, its settings padded with zeros, and the steps.
fn script(scene: u8, settings: &[u8], steps: &[Step]) -> Vec<u8> {
    let mut out = [&[scene][..], settings].concat();
    out.resize(SETTINGS, 0);
    steps.iter().for_each(|step| step.write(&mut out));
    out
}
