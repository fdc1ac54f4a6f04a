//! A whole node among neighbours and applications that do anything: a script
//! feeds it real envelopes of three neighbours (in any order, repeated,
//! altered), forged ones, raw bytes and session messages, and lets time pass.
//!
//! What must hold: no panic; draining ends, and leaves the driver nothing to
//! spin on; two nodes fed alike say the same bytes; every envelope out is one
//! that its receiver can read; hellos keep their distance and repeats their
//! share; applications are handed no more bytes than came in, and no packet
//! twice; every packet in is sent, delivered or counted as dropped.

mod check;
mod world;

use crate::script::steps;
use trunkline_base::wire::Reader;
use world::World;

steps! {
    /// What happens to the node. `link` and `session` are taken modulo how many
    /// there are; `pick` chooses among the envelopes under way to the node.
    Step {
        /// Time passes; the driver oversleeps.
        0 Sleep { unit: u8, n: u8 }
        /// The driver sleeps until the node's next timeout, and settles.
        1 Wake { arena: u8 }
        /// The driver settles now.
        2 Settle { arena: u8 }
        /// One call of `transmit` with an arena that may be too small for anything.
        3 Transmit { bytes: u8, runs: u8 }
        /// An application attaches.
        4 Open {}
        /// An application leaves.
        5 Close { session: u8 }
        /// An application asks for a port.
        6 Bind { session: u8, port: u8 }
        /// An application sends `count` packets.
        7 Send { session: u8, service: u8, deadline: u8, to: u8, port: u8, len: u16, count: u8 }
        /// An application says anything.
        8 RawMessage { session: u8, bytes: Vec<u8> }
        /// Applications stop or start to keep up.
        9 Full { yes: u8 }
        /// A datagram of anything.
        10 RawDatagram { from: u8, bytes: Vec<u8> }
        /// Any frames in a valid envelope of a neighbour.
        11 Frames { link: u8, incarnation: u8, frames: Vec<u8> }
        /// A forged packet; `seq` and `flow_seq` choose at will.
        12 Data { link: u8, first: u8, seq: u16, from: u8, to: u8, port: u8, flow_seq: u16, remaining: u8, len: u8 }
        /// Forged requests for `n` ranges, `step` apart.
        13 Nack { link: u8, first: u16, count: u8, n: u8, step: u8 }
        /// A forged hello.
        14 Hello { link: u8, sent: u16, echo: u16, held: u16 }
        /// A neighbour's application sends `count` packets.
        15 PeerSend { link: u8, service: u8, deadline: u8, to: u8, port: u8, len: u16, count: u8 }
        /// The neighbours hear what the node said, and settle.
        16 PeersHear {}
        /// A neighbour starts anew.
        17 PeerRestart { link: u8 }
        /// The next `n` envelopes arrive in one batch, stamped `age` ms ago.
        18 Arrive { n: u8, age: u8 }
        /// One envelope arrives out of turn, `from` elsewhere if not 0.
        19 Overtake { pick: u8, from: u8 }
        /// One envelope arrives, and remains under way too.
        20 Copy { pick: u8 }
        /// One envelope is altered under way.
        21 Alter { pick: u8, at: u16, xor: u8 }
        /// One envelope is lost.
        22 Lose { pick: u8 }
    }
}

/// Bytes of settings in front of the steps.
pub const SETTINGS: usize = 5;

/// Runs a script: settings, then steps.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let Ok(settings) = r.bytes(SETTINGS) else { return };
    let mut world = World::new(settings);
    while let Some(step) = Step::read(&mut r) {
        world.step(&step);
    }
    world.finish();
}
