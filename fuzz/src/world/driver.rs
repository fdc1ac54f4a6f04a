//! Code shared by the scenes: a driver that checks a node while draining it, and an application
//! that checks the messages that it receives.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::TxArena;
use trunkline_overlay::node::{Drained, Node, SendOutcome, Sink, StreamPhase, Timer};
use trunkline_overlay::session::wire::{MAX_HEAD, ToNode};
use trunkline_overlay::session::{SessionId, stream};
use trunkline_overlay::wire::NodeId;

/// An envelope sent by a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub to: SocketAddr,
    pub dscp: u8,
    pub bytes: Vec<u8>,
}

/// Size of the largest envelope of a link with the default MTU, which always fits an arena of this
/// size.
pub const LARGEST: usize = 1_280 - 48;

/// Far more envelopes than the nodes here can queue.
const MAX_ARENAS: usize = 4_096;

/// Takes the envelopes out of `arena`.
pub fn take(arena: &mut TxArena, out: &mut Vec<Envelope>) {
    for run in arena.runs() {
        let sizes: Vec<_> = arena.envelopes(run).map(<[u8]>::len).collect();
        assert_eq!(sizes.len(), run.count);
        assert!(sizes[..run.count - 1].iter().all(|&len| len == run.segment));
        for bytes in arena.envelopes(run) {
            out.push(Envelope { to: run.to, dscp: run.dscp, bytes: bytes.to_vec() });
        }
    }
    arena.clear();
}

/// Maximum number of consecutive times that a node may request an immediate wake-up. Messages of
/// its internal streams are found as it transmits, and its applications receive them at the next
/// wake-up. A stream with a full buffer takes some tens of turns.
const MAX_WAKES: usize = 1_024;

/// Handles the timers due at `now` and takes all output, as a driver does, until the driver can
/// sleep.
pub fn settle(
    node: &mut Node,
    now: Time,
    arena: &mut TxArena,
    applications: &mut Applications,
) -> Vec<Envelope> {
    let mut out = Vec::new();
    for wakes in 0.. {
        node.handle_timeout(now, applications);
        drain(node, now, arena, &mut out);
        let (wake_at, why) = (node.next_timeout(now), node.timer(now));
        assert_eq!(wake_at == Time::NEVER, why == Timer::Nothing, "{wake_at:?}, {why:?}");
        if wake_at > now {
            break;
        }
        let spins = why != Timer::Stream || wakes == MAX_WAKES;
        assert!(!spins, "a driver would spin: {why:?} at {wake_at:?}, now {now:?}");
    }
    out
}

fn drain(node: &mut Node, now: Time, arena: &mut TxArena, out: &mut Vec<Envelope>) {
    for round in 0.. {
        assert!(round < MAX_ARENAS, "transmit does not come to an end");
        let drained = node.transmit(now, arena);
        assert!(drained == Drained::All || !arena.is_empty(), "a roomy arena stayed empty");
        take(arena, out);
        if drained == Drained::All {
            break;
        }
    }
    assert_eq!(node.transmit(now, arena), Drained::All);
    assert!(arena.is_empty(), "All, and then there was more");
}

/// A message that a node passed to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub to: SessionId,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
}

/// Collects messages for the target to check.
#[derive(Default)]
pub struct Applications {
    pub messages: Vec<Message>,
    /// Whether the applications refuse messages.
    pub full: bool,
}

impl Sink for Applications {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        self.messages.push(Message { to, head: head.to_vec(), payload: payload.to_vec() });
        if self.full { SendOutcome::Backpressure } else { SendOutcome::Accepted }
    }
}

/// Encodes a message of an application to its node.
pub fn message(message: &ToNode<'_>) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    message.emit_head(&mut w).expect("a head fits MAX_HEAD");
    [w.written(), message.payload()].concat()
}

/// Checks that the numbers of a node's streams, of those of each of `peers` and of those pending,
/// and the bytes that all of them buffer, are within the configured limits.
pub fn check_streams(node: &Node, config: &stream::Config, peers: &[NodeId]) {
    let all = || node.streams();
    assert!(all().count() <= config.max);
    for &peer in peers {
        assert!(all().filter(|s| s.peer == peer).count() <= config.max.div_ceil(2));
    }
    let waiting = all().filter(|s| s.state == StreamPhase::Waiting).count();
    assert!(waiting <= usize::from(config.backlog));
    let kept: u64 = all().map(|s| s.unacknowledged + s.unread).sum();
    assert!(kept <= config.memory as u64, "{kept} bytes");
}

/// Checks that no stream remains, in any state.
pub fn check_no_streams(node: &Node) {
    let left: Vec<_> = node.streams().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(node.stats().streams.open, 0);
}

/// A flow as its receiver sees it: the receiving session, and the source's node and port.
pub type Flow = (u32, u32, u16);

/// Checks that an application receives no packet twice, to the extent that a node guarantees this
/// against any neighbour: among the last [`WINDOW`] numbers of a slow flow, until it has been
/// silent for longer than any deadline.
#[derive(Default)]
pub struct Once {
    flows: BTreeMap<Flow, Heard>,
}

struct Heard {
    last: Time,
    highest: u16,
    packets: usize,
    seen: BTreeSet<u16>,
}

const WINDOW: u16 = 256;
const SILENCE: Duration = Duration::from_millis(255);
/// A number further ahead than this counts as behind.
const AHEAD: u16 = 1 << 14;
/// Number of packets from which a flow may be fast enough for its numbers to wrap.
const SLOW: usize = 256;
/// Number of flows that a node remembers per session.
const FLOWS: usize = 256;

impl Once {
    /// Checks packet `seq` of `flow`, received at `now`.
    pub fn check(&mut self, now: Time, flow: Flow, seq: u16) {
        let heard = self.flows.entry(flow).or_insert_with(|| Heard::new(now, seq));
        if now.since(heard.last) > SILENCE {
            *heard = Heard::new(now, seq);
        }
        heard.last = now;
        heard.packets += 1;
        let behind = heard.highest.wrapping_sub(seq);
        if (WINDOW..=u16::MAX - AHEAD).contains(&behind) {
            // Numbers this far back are not tracked (RFC 3550, A.1).
            return;
        }
        if behind >= WINDOW {
            heard.highest = seq;
        }
        let again = !heard.seen.insert(seq) && heard.packets < SLOW;
        let highest = heard.highest;
        heard.seen.retain(|&seq| highest.wrapping_sub(seq) < WINDOW);
        let remembered = self.flows.keys().filter(|f| f.0 == flow.0).count() <= FLOWS;
        assert!(!(again && remembered), "{flow:?}: number {seq} came twice");
    }

    /// Forgets session `id`, since its number will be reused.
    pub fn forget(&mut self, id: SessionId) {
        self.flows.retain(|flow, _| flow.0 != id.0);
    }
}

impl Heard {
    fn new(last: Time, highest: u16) -> Heard {
        Heard { last, highest, packets: 0, seen: BTreeSet::new() }
    }
}
