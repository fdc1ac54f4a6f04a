//! The base of every other crate: a clock value, bit rates, wrapping sequence numbers, byte readers
//! that cannot overrun, and the impairment model.
//!
//! Nothing here reads a clock, draws entropy or touches the operating system.

pub mod link_model;
mod pacer;
mod rate;
mod seq;
pub mod stats;
mod time;
pub mod wire;

pub use pacer::{Pacer, PerSource, Rate, network};
pub use rate::{Bitrate, ParseBitrateError};
pub use seq::{SeqClass, SeqTracker, SeqWindow, extend, extend48, first};
pub use time::Time;

/// The random generator behind all simulated behaviour, never keys: fast, portable, and identical
/// on every machine for the same seed.
pub type Rng = rand_pcg::Pcg64Mcg;

/// Creates an [`Rng`] from a seed and a stream number, so that one seed can feed several
/// independent processes (for example, one per link direction).
pub fn rng(seed: u64, stream: u64) -> Rng {
    use rand::SeedableRng;
    // SplitMix64's finaliser keeps neighbouring (seed, stream) pairs apart.
    let mut z = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Rng::seed_from_u64(z ^ (z >> 31))
}
