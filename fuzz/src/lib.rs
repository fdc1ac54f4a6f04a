//! What the fuzz targets do with their bytes, apart from libFuzzer: so that
//! `cargo test` runs the seeds through the same code, and a failing input can
//! be looked at in a debugger.
//!
//! A function here panics when an invariant does not hold.

pub mod calls;
mod driver;
pub mod handshake;
pub mod node;
pub mod route;
pub mod script;
pub mod sealed_node;
pub mod seeds;
pub mod stream_segment;
pub mod tfmc;
pub mod tfrc;
pub mod two_nodes;
pub mod wire;
