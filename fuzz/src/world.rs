//! Whole nodes on a network, driven by a script. The first byte says who is there
//! (`Scene`), the other bytes of settings configure the nodes, and all scenes speak one
//! language of [`Step`]s; a step that means nothing in a scene is passed over.
//!
//! What must hold in every scene: no panic; draining ends, and leaves the driver nothing to
//! spin on; an envelope or a message that comes out can be read. Each scene says what else.

mod check;
mod driver;
mod liar;
mod neighbours;
mod pair;
mod sealed;
pub(crate) mod seeds;
mod streams;

use crate::script::steps;
use trunkline_base::wire::Reader;

steps! {
    /// What happens. `node` is the node that acts or that envelopes are under way to; `pick`
    /// chooses among the envelopes, sessions or streams that there are; `from` is the neighbour
    /// or the address that something comes from, and 0 is its own one. All are taken modulo how
    /// many there are.
    Step {
        /// Time passes; drivers oversleep.
        0 Sleep { unit: u8, n: u8 }
        /// A driver sleeps until its node's next timeout, and settles.
        1 Wake { node: u8, arena: u8 }
        /// A driver settles now.
        2 Settle { node: u8, arena: u8 }
        /// One call of `transmit` with an arena that may be too small for anything.
        3 Transmit { bytes: u8, runs: u8 }
        /// All that is under way arrives for `n` rounds; between sealed nodes, 40 s without a call.
        4 Calm { n: u8 }
        /// The next `n` envelopes arrive in one batch, stamped `age` ms ago.
        5 Arrive { node: u8, n: u8, age: u8 }
        /// One envelope arrives out of turn.
        6 Overtake { node: u8, pick: u8, from: u8 }
        /// One envelope arrives, and remains under way too.
        7 Copy { node: u8, pick: u8, from: u8 }
        /// One envelope is lost.
        8 Lose { node: u8, pick: u8 }
        /// One envelope is altered; with a mac that fits, for `mac` 1 and 2.
        9 Alter { node: u8, pick: u8, from: u8, at: u16, xor: u8, mac: u8 }
        /// The beginning of an envelope arrives.
        10 Truncate { pick: u8, from: u8, len: u16 }
        /// A node starts anew, or the liar, which then names its path by `node`.
        11 Restart { node: u8 }
        /// The neighbours hear what the node said, and settle.
        12 PeersHear {}
        /// An application attaches.
        13 Open {}
        /// An application leaves.
        14 Close { session: u8 }
        /// An application asks for a port.
        15 Bind { session: u8, port: u8 }
        /// An application sends `count` packets.
        16 Send { node: u8, session: u8, service: u8, deadline: u8, to: u8, port: u8, len: u16, count: u8 }
        /// An application says anything.
        17 Say { pick: u8, bytes: Vec<u8> }
        /// Applications stop or start to keep up.
        18 Full { node: u8, yes: u8 }
        /// An application opens a stream to the node or the neighbour's port `to`.
        19 Connect { node: u8, to: u8, credit: u16, messages: u8 }
        /// An application listens for streams, or ends if it does already.
        20 Listen { node: u8, backlog: u16 }
        /// The first stream that waits is accepted, or one that doesn't wait.
        21 Accept { node: u8, credit: u16, wrong: u8 }
        /// An application writes as much as it may.
        22 Write { node: u8, pick: u8, len: u16 }
        /// An application writes, whether it may or not.
        23 Overrun { node: u8, pick: u8, len: u16 }
        /// An application gives credit for more bytes, `shift` bits up.
        24 Credit { node: u8, pick: u8, bytes: u16, shift: u8 }
        /// An application writes no more, breaks its stream off, or leaves.
        25 End { node: u8, pick: u8, how: u8 }
        /// A datagram of anything; with a mac that fits, for `mac` 1 and 2.
        26 Raw { from: u8, mac: u8, bytes: Vec<u8> }
        /// Any frames in a valid envelope of a neighbour.
        27 Frames { from: u8, incarnation: u8, frames: Vec<u8> }
        /// Any frames in an envelope that isn't sealed.
        28 Unsealed { from: u8, frames: Vec<u8> }
        /// A forged packet; `seq` and `flow_seq` choose at will.
        29 Data { link: u8, first: u8, seq: u16, from: u8, to: u8, port: u8, flow_seq: u16, remaining: u8, len: u8 }
        /// Forged requests for `n` ranges, `step` apart.
        30 Nack { link: u8, first: u16, count: u8, n: u8, step: u8 }
        /// A forged hello.
        31 Hello { from: u8, sent: u16, echo: u16, held: u16 }
        /// A stream's segment: the kinds say which numbers `position`, `next` and `ranges` are near.
        32 Segment {
            from: u8, ports: u8, tag: u8, flags: u8, kinds: u8, position: u16, len: u16,
            next: u16, window: u16, counts: u16, ranges: u8, first: u16, width: u16
        }
        /// A stream's segment of any bytes.
        33 RawSegment { from: u8, ports: u8, tag: u8, bytes: Vec<u8> }
        /// The reset of a stream.
        34 Reset { from: u8, ports: u8, tag: u8, why: u8 }
        /// Requests to open streams, from as many ports, or with as many tags.
        35 Requests { from: u8, ports: u8, n: u8, tags: u8 }
        /// The liar shakes hands.
        36 Greet { from: u8 }
        /// `n` forged initiations that only the curve shows to be so.
        37 Initiations { from: u8, n: u8 }
        /// The liar tells of links, each two bytes one; signed by itself.
        38 Links { origin: u8, seq: u16, fragment: u8, age: u16, ends: Vec<u8> }
        /// The same, `n` times with growing numbers.
        39 ManyLinks { origin: u8, seq: u16, n: u8 }
        /// The liar introduces somebody, with its own certificate or any bytes.
        40 Introduce { origin: u8, seq: u16, certificate: Vec<u8> }
        /// A number of a record that is far from any honest one.
        41 Wrap { origin: u8, seq: u8 }
        /// The liar is revoked, or not any more.
        42 Revoke { yes: u8 }
        /// A link to the liar comes into the configuration.
        43 Add { path: u8, reachable: u8 }
        /// A link of the configuration goes; never the honest neighbour's.
        44 Remove { link: u8 }
    }
}

/// Who is there.
trait Scene {
    /// One step happens.
    fn step(&mut self, step: &Step);

    /// The script is over: what must hold in the end?
    fn finish(&mut self);
}

/// Bytes of settings in front of the steps: the scene, and what the scene makes of them.
pub const SETTINGS: usize = 6;

/// Steps of one script that happen. A sealed node takes milliseconds for some.
const STEPS: [usize; 4] = [usize::MAX, usize::MAX, 200, 300];

/// Runs a script: settings, then steps.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let Ok(settings) = r.bytes(SETTINGS) else { return };
    let which = usize::from(settings[0]) % STEPS.len();
    let mut scene: Box<dyn Scene> = match which {
        0 => Box::new(neighbours::World::new(&settings[1..])),
        1 => Box::new(pair::World::new(&settings[1..])),
        2 => Box::new(sealed::World::new()),
        _ => Box::new(liar::World::new()),
    };
    for _ in 0..STEPS[which] {
        let Some(step) = Step::read(&mut r) else { break };
        scene.step(&step);
    }
    scene.finish();
}
