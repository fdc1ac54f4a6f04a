//! A whole sealed node that carries a call with an honest neighbour, while a
//! certified one lies and strangers send what they like.
//!
//! What must hold: no panic; the driver has nothing to spin on; links and
//! records stay within their bounds; each datagram is taken or counted; and the
//! call loses nothing, since nobody can take away what its two nodes send.

pub mod seeds;
mod world;

use crate::script::steps;
use trunkline_base::wire::Reader;
use world::World;

steps! {
    /// What happens. `pick` chooses among the datagrams that the node has
    /// received; `from` is where something comes from: 0 is where it came from
    /// before, or its sender's place, 1 the honest neighbour's.
    Step {
        /// Time passes, at most 1 s of it; the call goes on.
        0 Sleep { unit: u8, n: u8 }
        /// 40 s pass without a call.
        1 Long {}
        /// The liar shakes hands.
        2 Greet { from: u8 }
        /// The liar says hello.
        3 Hello { from: u8, age: u8 }
        /// The liar seals any frames.
        4 Frames { from: u8, frames: Vec<u8> }
        /// The liar tells of links, each two bytes one; signed by itself.
        5 Links { origin: u8, seq: u16, fragment: u8, age: u16, ends: Vec<u8> }
        /// The same, `n` times with growing numbers.
        6 Flood { origin: u8, seq: u16, n: u8 }
        /// The liar introduces somebody, with its own certificate or any bytes.
        7 Introduce { origin: u8, seq: u16, certificate: Vec<u8> }
        /// A number that is far from any honest one.
        8 Wrap { origin: u8, seq: u8 }
        /// A datagram comes again.
        9 Replay { pick: u8, from: u8 }
        /// The beginning of one.
        10 Truncate { pick: u8, from: u8, len: u16 }
        /// One that was altered; with a mac that fits, for `mac` 1 and 2.
        11 Alter { pick: u8, from: u8, at: u16, xor: u8, mac: u8 }
        /// Anything; with a mac that fits, too.
        12 Raw { from: u8, mac: u8, bytes: Vec<u8> }
        /// `n` forged initiations that only the curve shows to be so.
        13 Forged { from: u8, n: u8 }
        /// An unsealed envelope.
        14 Unsealed { from: u8, frames: Vec<u8> }
        /// The liar is revoked, or not any more.
        15 Revoke { yes: u8 }
        /// A link to the liar comes into the configuration.
        16 Add { path: u8, reachable: u8 }
        /// A link of the configuration goes; never the honest neighbour's.
        17 Remove { link: u8 }
        /// The liar starts anew, and names its path so.
        18 Anew { path: u8 }
    }
}

/// Runs a script.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let mut world = World::new();
    let mut steps = 0;
    while let Some(step) = Step::read(&mut r) {
        world.step(&step);
        steps += 1;
        if steps == 200 {
            break;
        }
    }
    world.finish();
}
