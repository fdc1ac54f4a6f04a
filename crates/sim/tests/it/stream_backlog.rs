//! Streams that wait to be accepted, and openers that find no place for theirs.

use crate::common::{at, link, ms, uniform};
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::node::StreamPhase;
use trunkline_overlay::session::wire::stream::{Notice, Request, Reset};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::stream::{StreamSource, Writing};
use trunkline_sim::{AppId, Application, HostId, Io, Topology, World};

const PORT: u16 = 8_000;
/// The node between the two others.
const MIDDLE: HostId = HostId(1);

/// Three nodes in a row, whose two links lose packets as given.
fn row(loss: &Loss) -> World {
    let rate = Some(Bitrate::from_bps(8_000_000));
    let model = || LinkModel { rate, ..link(ms(10), loss.clone()) };
    Topology::chain([model(), model()]).build(1).unwrap()
}

/// Opens a stream from a host to the node in the middle, and writes this many bytes.
fn open(world: &mut World, from: HostId, port: u16, ms: u64, bytes: u64) -> AppId<StreamSource> {
    let source = StreamSource::new(NodeId(2), port, at(ms), Writing::Bulk(bytes));
    world.attach(from, 0, source).unwrap()
}

/// A listener that accepts each stream some time after it was offered, if at all, and reads it.
#[derive(Default)]
struct Listener {
    backlog: u16,
    after: Option<u64>,
    offered: Vec<(u64, Time)>,
    accepted: u64,
    read: u64,
    /// Times at which streams ended.
    ended: Vec<Time>,
    resets: Vec<Reset>,
}

impl Application for Listener {
    fn start(&mut self, io: &mut Io<'_>) {
        io.send(&ToNode::Stream(Request::Listen { backlog: self.backlog }));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        for (token, _) in self.offered.extract_if(.., |(_, due)| *due <= now) {
            self.accepted += 1;
            let (version, credit) = (SESSION_VERSION, 1 << 20);
            io.send(&ToNode::Stream(Request::Accept { version, token, credit }));
        }
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        match message {
            ToClient::Stream(Notice::Incoming { token, .. }) => {
                let Some(after) = self.after else { return };
                let due = io.now() + ms(after);
                self.offered.push((*token, due));
                io.wake_at(due);
            }
            ToClient::Stream(Notice::Data(data)) => self.read += data.len() as u64,
            ToClient::Stream(Notice::Shut) => self.ended.push(io.now()),
            ToClient::Stream(Notice::Reset(why)) => self.resets.push(*why),
            _ => {}
        }
    }
}

/// Two nodes open a stream each at about the same time, again and again, where one stream may wait,
/// and does for 4 ms. The node has answered both before either shows its number, so the second is
/// put off. Other segments of its first flight find the place free.
#[test]
fn two_openers_at_a_time_where_one_may_wait_are_both_accepted() {
    const BYTES: u64 = 60_000;
    // 1 s until the number is shown again; the data take 0.1 s.
    const LONGEST: u64 = 1_500;
    for loss in [Loss::None, uniform(0.1)] {
        let mut world = row(&loss);
        let slow = Listener { backlog: 1, after: Some(4), ..Listener::default() };
        let slow = world.attach(MIDDLE, PORT, slow).unwrap();
        let sources: Vec<_> = (0..40)
            .map(|k| {
                open(&mut world, HostId(k % 2 * 2), PORT, 3_000 + 3_000 * u64::from(k / 2), BYTES)
            })
            .collect();
        world.run_until(at(100_000));
        assert!(sources.iter().all(|&id| world.app(id).reset.is_none()));
        let slow = world.app(slow);
        assert_eq!((slow.accepted, slow.ended.len(), &slow.resets), (40, 40, &vec![]));
        for (k, ended) in (0..).zip(&slow.ended) {
            let took = ended.since(at(3_000 + 3_000 * (k / 2)));
            assert!(took < ms(LONGEST), "{k}: {took:?}");
        }
        assert_eq!(slow.read, 40 * BYTES);
        assert!(world.node(MIDDLE).stats().streams.refused > 0);
        // None of its streams is one that no opener has.
        let mut streams = world.node(MIDDLE).streams();
        assert!(streams.by_ref().take(40).all(|s| s.received == BYTES) && streams.next().is_none());
    }
}

/// The place is free only seconds later: the second opener has it within another second, and the
/// data that it had already sent arrive.
#[test]
fn an_opener_that_is_put_off_for_seconds_gets_the_next_free_place() {
    const BYTES: u64 = 60_000;
    for loss in [Loss::None, uniform(0.1)] {
        let mut world = row(&loss);
        let slow = Listener { backlog: 1, after: Some(2_500), ..Listener::default() };
        let slow = world.attach(MIDDLE, PORT, slow).unwrap();
        let sources = [0, 2].map(|host| open(&mut world, HostId(host), PORT, 3_000, BYTES));
        world.run_until(at(3_000 + 2_500 + 1_000 + 2_500 + 500));
        assert_eq!(sources.map(|id| world.app(id).reset), [None; 2]);
        let slow = world.app(slow);
        assert_eq!((slow.accepted, slow.ended.len(), slow.read), (2, 2, 2 * BYTES));
        assert_eq!(world.node(MIDDLE).streams().count(), 2);
    }
}

/// Number of streams at a port of the middle node that wait to be accepted.
fn waiting(world: &World, port: u16) -> usize {
    let streams = world.node(MIDDLE).streams();
    streams.filter(|s| (s.port, s.state) == (port, StreamPhase::Waiting)).count()
}

/// One application accepts nothing, and has as many streams of a node waiting as it may. Another
/// application of the same node accepts one of that node as ever, however few may wait at its port.
#[test]
fn a_listener_that_accepts_nothing_holds_up_no_other_listener() {
    let mut world = row(&Loss::None);
    let deaf = Listener { backlog: 128, ..Listener::default() };
    let deaf = world.attach(MIDDLE, PORT, deaf).unwrap();
    let other = Listener { backlog: 1, after: Some(0), ..Listener::default() };
    let other = world.attach(MIDDLE, PORT + 1, other).unwrap();
    for k in 0..80 {
        open(&mut world, HostId(2), PORT, 3_000 + 10 * k, 9);
    }
    let source = open(&mut world, HostId(2), PORT + 1, 5_000, 9);
    world.run_until(at(5_500));
    assert_eq!((waiting(&world, PORT), world.app(deaf).accepted), (64, 0));
    assert_eq!((world.app(other).accepted, world.app(other).read), (1, 9));
    assert_eq!(world.app(source).reset, None);
}

/// An application that never accepts a stream: of a node as many wait as leave as much room to
/// others, and the rest is refused.
#[test]
fn a_listener_that_accepts_nothing() {
    let mut world = row(&Loss::None);
    let deaf = Listener { backlog: 5, ..Listener::default() };
    world.attach(MIDDLE, PORT, deaf).unwrap();
    let sources: Vec<_> =
        (0..50).map(|k| open(&mut world, HostId(2), PORT, 3_000 + 10 * k, 9)).collect();
    // The sources keep requesting for thirty seconds.
    world.run_until(at(35_000));
    assert_eq!(waiting(&world, PORT), 3);
    let refused = sources.iter().filter(|&&id| world.app(id).reset == Some(Reset::Full));
    assert_eq!(refused.count(), 47);
}
