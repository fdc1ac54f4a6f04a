//! Whole nodes on a network, driven by a script. The first byte chooses the participants (`Scene`),
//! and the other settings bytes configure the nodes. All scenes share one set of [`Step`]s; steps
//! that do not apply in a scene are skipped.
//!
//! Invariants of every scene: no panic; draining ends, and the driver never spins; every emitted
//! envelope and message parses. Each scene lists its further invariants.

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
    /// A step of the script. `node` is the node that acts or is the destination of envelopes;
    /// `pick` selects an envelope, session or stream; `from` is the neighbour or the address that
    /// something comes from, where 0 is its own one. All are taken modulo the number of choices.
    Step {
        /// The clock advances, and drivers oversleep.
        0 Sleep { unit: u8, n: u8 }
        /// A driver sleeps until its node's next timeout, then handles it.
        1 Wake { node: u8, arena: u8 }
        /// A driver handles its node's timers now.
        2 Settle { node: u8, arena: u8 }
        /// `transmit` is called once, with an arena that may be too small.
        3 Transmit { bytes: u8, runs: u8 }
        /// Everything in flight arrives for `n` rounds; between sealed nodes, 40 s pass without a
        /// call.
        4 Calm { n: u8 }
        /// The next `n` envelopes arrive in one batch, stamped `age` ms ago.
        5 Arrive { node: u8, n: u8, age: u8 }
        /// One envelope arrives out of order.
        6 Overtake { node: u8, pick: u8, from: u8 }
        /// One envelope arrives, and also stays in flight.
        7 Copy { node: u8, pick: u8, from: u8 }
        /// One envelope is lost.
        8 Lose { node: u8, pick: u8 }
        /// One envelope is altered, with a valid MAC for `mac` 1 and 2.
        9 Alter { node: u8, pick: u8, from: u8, at: u16, xor: u8, mac: u8 }
        /// A truncated envelope arrives.
        10 Truncate { pick: u8, from: u8, len: u16 }
        /// A node restarts; or the liar does, which then names its path by `node`.
        11 Restart { node: u8 }
        /// The neighbours receive the node's envelopes and handle their timers.
        12 PeersHear {}
        /// An application attaches to the node.
        13 Open {}
        /// An application closes its session.
        14 Close { session: u8 }
        /// An application requests a port.
        15 Bind { session: u8, port: u8 }
        /// An application sends `count` packets.
        16 Send { node: u8, session: u8, service: u8, deadline: u8, to: u8, port: u8, len: u16, count: u8 }
        /// An application sends arbitrary bytes to its node.
        17 Say { pick: u8, bytes: Vec<u8> }
        /// Applications stop or resume accepting messages.
        18 Full { node: u8, yes: u8 }
        /// An application opens a stream to port `to` of the node or the neighbour.
        19 Connect { node: u8, to: u8, credit: u16, messages: u8 }
        /// An application listens for streams, or stops if it already does.
        20 Listen { node: u8, backlog: u16 }
        /// The first pending stream is accepted, or one that is not pending.
        21 Accept { node: u8, credit: u16, wrong: u8 }
        /// An application writes up to its credit.
        22 Write { node: u8, pick: u8, len: u16 }
        /// An application writes with or without credit.
        23 Overrun { node: u8, pick: u8, len: u16 }
        /// An application grants credit for more bytes, shifted by `shift` bits.
        24 Credit { node: u8, pick: u8, bytes: u16, shift: u8 }
        /// An application ends its output, resets its stream, or leaves.
        25 End { node: u8, pick: u8, how: u8 }
        /// A datagram of arbitrary bytes arrives, with a valid MAC for `mac` 1 and 2.
        26 Raw { from: u8, mac: u8, bytes: Vec<u8> }
        /// Arbitrary frames arrive in a valid envelope of a neighbour.
        27 Frames { from: u8, incarnation: u8, frames: Vec<u8> }
        /// Arbitrary frames arrive in an unsealed envelope.
        28 Unsealed { from: u8, frames: Vec<u8> }
        /// A forged packet with arbitrary `seq` and `flow_seq`.
        29 Data { link: u8, first: u8, seq: u16, from: u8, to: u8, port: u8, flow_seq: u16, remaining: u8, len: u8 }
        /// Forged retransmission requests for `n` ranges, `step` apart.
        30 Nack { link: u8, first: u16, count: u8, n: u8, step: u8 }
        /// A forged hello, with arbitrary times.
        31 Hello { from: u8, sent: u16, echo: u16, held: u16 }
        /// A segment of a stream. `kinds` chooses the numbers that `position`, `next` and `ranges`
        /// are near.
        32 Segment {
            from: u8, ports: u8, tag: u8, flags: u8, kinds: u8, position: u16, len: u16,
            next: u16, window: u16, counts: u16, ranges: u8, first: u16, width: u16
        }
        /// A stream segment of arbitrary bytes.
        33 RawSegment { from: u8, ports: u8, tag: u8, bytes: Vec<u8> }
        /// The reset of a stream.
        34 Reset { from: u8, ports: u8, tag: u8, why: u8 }
        /// Requests to open streams, from many ports or with many tags.
        35 Requests { from: u8, ports: u8, n: u8, tags: u8 }
        /// The liar performs a handshake.
        36 Greet { from: u8 }
        /// `n` forged initiations that only computing the curve would reveal.
        37 Initiations { from: u8, n: u8 }
        /// The liar advertises links, two bytes for each, with its own signature.
        38 Links { origin: u8, seq: u16, fragment: u8, age: u16, ends: Vec<u8> }
        /// The liar advertises links `n` times, with increasing sequence numbers.
        39 ManyLinks { origin: u8, seq: u16, n: u8 }
        /// The liar introduces a node, with its own certificate or arbitrary bytes.
        40 Introduce { origin: u8, seq: u16, certificate: Vec<u8> }
        /// A record with a sequence number far from any honest one.
        41 Wrap { origin: u8, seq: u8 }
        /// The liar is revoked, or trusted again.
        42 Revoke { yes: u8 }
        /// A link to the liar is added to the configuration.
        43 Add { path: u8, reachable: u8 }
        /// A link is removed from the configuration; never the honest neighbour's.
        44 Remove { link: u8 }
        /// An uplink accepts `bytes` bytes from now on, or everything.
        45 Room { uplink: u8, bytes: u16 }
    }
}

/// The participants of a script.
trait Scene {
    /// Executes one step of the script.
    fn step(&mut self, step: &Step);

    /// Checks the final invariants at the end of the script.
    fn finish(&mut self);
}

/// Number of settings bytes before the steps: the scene, and its own settings.
pub const SETTINGS: usize = 6;

/// Maximum number of steps executed per script, by scene. A sealed node takes milliseconds for
/// some.
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
