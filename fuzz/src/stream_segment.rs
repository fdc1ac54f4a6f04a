//! A neighbour that lies about streams: segments of any fields at all, in the names of
//! others too, to a node whose applications do anything themselves.
//!
//! What must hold: no panic; few segments come out for one that goes in; streams, those of
//! one peer, and the bytes that they keep stay within what is configured; and when the liar
//! has fallen silent and applications have gone nothing is left, and a stream between honest
//! ends works as ever.

pub(crate) mod seeds;
mod world;

use crate::script::steps;
use trunkline_base::wire::Reader;
use world::World;

steps! {
    /// What happens. `pick` chooses among the sessions of the node's applications.
    Step {
        /// Time passes; the neighbour says hello, and acknowledges the link's packets.
        0 Sleep { unit: u8, n: u8 }
        /// A segment: the kinds say which numbers `position`, `next` and `ranges` are near.
        1 Segment {
            from: u8, ports: u8, tag: u8, flags: u8, kinds: u8, position: u16, len: u16,
            next: u16, window: u16, counts: u16, ranges: u8, first: u16, width: u16
        }
        /// A segment of any bytes.
        2 Raw { from: u8, ports: u8, tag: u8, bytes: Vec<u8> }
        /// The reset of a stream.
        3 Reset { from: u8, ports: u8, tag: u8, why: u8 }
        /// Requests to open, from as many ports, or with as many tags.
        4 Flood { from: u8, ports: u8, n: u8, tags: u8 }
        /// An application opens a stream to the neighbour.
        5 Connect { port: u8, credit: u16 }
        /// An application listens, or ends if it does already.
        6 Listen { backlog: u8 }
        /// A stream that waits is accepted, or one that doesn't.
        7 Accept { wrong: u8, credit: u16 }
        /// An application writes as much as it may.
        8 Write { pick: u8, len: u16 }
        /// An application takes more, `shift` bits up.
        9 Credit { pick: u8, bytes: u8, shift: u8 }
        /// An application writes no more, breaks its stream off, or ends.
        10 End { pick: u8, how: u8 }
        /// An application says anything.
        11 Say { pick: u8, bytes: Vec<u8> }
        /// Applications stop or start to keep up.
        12 Full { yes: u8 }
    }
}

/// Steps of one script that are looked at.
const STEPS: usize = 300;

/// Runs a script of [`Step`]s against a node, and checks what must hold; it panics if that doesn't.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let mut world = World::new();
    for _ in 0..STEPS {
        let Some(step) = Step::read(&mut r) else { break };
        world.step(&step);
    }
    world.finish();
}
