//! A row of hosts connected by links of 10 Mbit/s: overlay nodes with reliable links and streams
//! over them, or routers between two TCPs.

use crate::experiment::PointError;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::{Messages, Profile, Schedule, Sink};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::voice::{Sinks as _, VoiceLog, VoiceSource};
use trunkline_sim::{Application, HostId, Io, LinkEnd, Topology, World};

/// Links between A and F (figure 10).
pub const HOPS: usize = 5;
/// Each link's propagation delay.
pub const DELAY: Duration = Duration::from_millis(10);
/// Each link's rate, in bits per second.
pub const RATE: u64 = 10_000_000;
/// Bytes of each message.
pub const MESSAGE: usize = 1_000;
/// Each link's queue; the paper doesn't give it. Fifty packets were the default of dummynet, which
/// the paper's testbed used.
pub const QUEUE: Queue = Queue::Packets(50);

/// Time of the first message: nodes find each other, and TCPs connect, before it.
pub const START: Time = Time::from_millis(3_000);
/// Time before the first message at which TCPs and streams are opened.
const LEAD: Duration = Duration::from_secs(2);
/// Packets still in flight when the last message is sent arrive within this time.
const DRAIN: Duration = Duration::from_secs(30);
const PORT: u16 = 5_000;

/// Messages at regular intervals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stream {
    /// Rate of the messages, in bits per second of their bytes without headers.
    pub rate: u64,
    /// Number of messages that are sent.
    pub messages: u32,
}

impl Stream {
    /// Interval between two messages.
    pub fn spacing(&self) -> Duration {
        Duration::from_nanos(MESSAGE as u64 * 8 * 1_000_000_000 / self.rate)
    }

    fn end(&self) -> Time {
        START + self.spacing() * self.messages + DRAIN
    }
}

/// Transport of the messages.
#[derive(Clone, PartialEq, Debug)]
pub enum Carrier {
    /// Reliable links between neighbours.
    HopByHop,
    /// The same, with relays that put messages in order before they forward them, unlike the
    /// paper's.
    InOrderRelays,
    /// A stream from end to end over reliable links.
    Stream,
    /// A TCP from end to end.
    EndToEnd(Box<Profile>),
}

/// A row of links with a middle one that loses packets in both directions.
pub fn links(hops: usize, delay: Duration, loss: f64) -> Vec<LinkModel> {
    let rate = Some(Bitrate::from_bps(RATE));
    let clean = LinkModel { delay, rate, queue: QUEUE, ..LinkModel::default() };
    let mut links = vec![clean; hops];
    if loss > 0.0 {
        links[hops / 2].loss = Loss::Bernoulli { p: loss };
    }
    links
}

/// Delay of each message until it could be read in order, by number. Messages that never arrived,
/// and those behind them, are missing at the end.
pub fn delays(
    carried: &Carrier,
    links: Vec<LinkModel>,
    stream: Stream,
    seed: u64,
) -> Result<Vec<Duration>, PointError> {
    match carried {
        Carrier::HopByHop => hop_by_hop(links, stream, false, seed),
        Carrier::InOrderRelays => hop_by_hop(links, stream, true, seed),
        Carrier::Stream => over_stream(links, stream, seed),
        Carrier::EndToEnd(profile) => end_to_end(links, stream, profile, seed),
    }
}

fn hop_by_hop(
    links: Vec<LinkModel>,
    stream: Stream,
    in_order: bool,
    seed: u64,
) -> Result<Vec<Duration>, PointError> {
    let last = links.len() as u32;
    let mut world = Topology::chain(links).over(IpVersion::V4).build(seed)?;
    let next = if in_order { 2 } else { last + 1 };
    let (to, messages) = (NodeId(next), stream.messages.into());
    let mut source = VoiceSource::new(to, PORT, Service::Reliable, START, messages);
    (source.spacing, source.bytes, source.deadline_ms) = (stream.spacing(), MESSAGE, 255);
    let source = world.attach(HostId(0), 0, source)?;
    let mut from = world.origin(source);
    if in_order {
        for relay in 1..last {
            let app = world.attach(HostId(relay), PORT, InOrder::to(NodeId(relay + 2)))?;
            from = world.origin(app);
        }
    }
    let sink = world.attach(HostId(last), PORT, VoiceLog::default())?;
    world.run_until(stream.end());
    let arrival = world.app(sink).arrivals(from);
    let source = world.app(source);
    let mut delays = Vec::with_capacity(stream.messages as usize);
    let mut readable = Time::ZERO;
    for number in 0..stream.messages.into() {
        let Some(arrival) = arrival(number) else { break };
        let sent = source.sent_at(number);
        readable = readable.max(sent + arrival.delay);
        delays.push(readable.since(sent));
    }
    Ok(delays)
}

fn over_stream(
    links: Vec<LinkModel>,
    stream: Stream,
    seed: u64,
) -> Result<Vec<Duration>, PointError> {
    let last = HostId(links.len() as u32);
    let mut world = Topology::chain(links).over(IpVersion::V4).build(seed)?;
    let sink = world.attach(last, PORT, StreamSink::of_messages(MESSAGE))?;
    let (spacing, count) = (stream.spacing(), stream.messages.into());
    let writing = Writing::Messages { bytes: MESSAGE, spacing, count };
    let mut source = StreamSource::new(NodeId(last.0 + 1), PORT, START, writing);
    source.lead = LEAD;
    world.attach(HostId(0), 0, source)?;
    world.run_until(stream.end());
    Ok(world.app(sink).delays.clone())
}

/// Two nodes with one link over a row of routers.
pub fn over_routers(links: Vec<LinkModel>, seed: u64) -> Result<World, PointError> {
    let mut topology = Topology::new();
    let (a, b) = (topology.host(NodeId(1)), topology.host(NodeId(2)));
    let way = links.iter().map(|link| link.delay).sum();
    topology.routed_link(a, b, way, way);
    let mut world = topology.over(IpVersion::V4).build(seed)?;
    lay(&mut world, (a, b), links)?;
    Ok(world)
}

/// Connects `a` to `b`, with routers between them.
pub fn lay(
    world: &mut World,
    (a, b): (HostId, HostId),
    links: Vec<LinkModel>,
) -> Result<(), PointError> {
    let last = links.len() - 1;
    let mut here: LinkEnd = a.into();
    for (n, link) in links.into_iter().enumerate() {
        let next: LinkEnd = if n == last { b.into() } else { world.add_router().into() };
        world.cable(here, next, link.clone(), link)?;
        here = next;
    }
    Ok(())
}

fn end_to_end(
    links: Vec<LinkModel>,
    stream: Stream,
    profile: &Profile,
    seed: u64,
) -> Result<Vec<Duration>, PointError> {
    let mut world = World::new(IpVersion::V4, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    lay(&mut world, (a, b), links)?;
    let to = world.endpoint(b, PORT);
    let sink = Sink::new(profile.clone(), PORT, 7).with_messages(MESSAGE);
    let sink = world.bind(b, Protocol::TCP, PORT, sink)?;
    let due: Rc<[Time]> = (0..stream.messages).map(|n| START + stream.spacing() * n).collect();
    let schedule = Schedule { due, lead: LEAD, bytes: MESSAGE };
    let messages = Messages::new(profile.clone(), PORT, to, seed as u32, true, schedule);
    world.bind(a, Protocol::TCP, PORT, messages)?;
    world.run_until(stream.end());
    Ok(world.agent(sink).delays().to_vec())
}

/// Forwards messages to the next node in the order of their numbers.
struct InOrder {
    to: NodeId,
    next: u64,
    held: BTreeMap<u64, Vec<u8>>,
}

impl InOrder {
    fn to(to: NodeId) -> InOrder {
        InOrder { to, next: 0, held: BTreeMap::new() }
    }
}

/// Offset of a message's number: after the RTP header and the time.
const NUMBER: core::ops::Range<usize> = 20..28;

impl Application for InOrder {
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        let &ToClient::Received { payload, .. } = message else { return };
        let number = payload.get(NUMBER).and_then(|n| n.try_into().ok()).map(u64::from_be_bytes);
        let Some(number) = number.filter(|&n| n >= self.next) else { return };
        self.held.insert(number, payload.to_vec());
        while let Some(payload) = self.held.remove(&self.next) {
            let (service, to) = (Service::Reliable, self.to);
            io.send(&ToNode::Send { service, deadline_ms: 255, to, port: PORT, payload: &payload });
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream { rate: 500_000, messages: 2_000 };

    #[test]
    fn without_loss_a_message_takes_the_propagation_and_transmission_times() {
        let tcp = Carrier::EndToEnd(Box::new(Profile::linux_6()));
        for carried in [Carrier::HopByHop, Carrier::Stream, tcp] {
            let delays = delays(&carried, links(HOPS, DELAY, 0.0), STREAM, 1).unwrap();
            assert_eq!(delays.len(), 2_000, "{carried:?}");
            let mean = delays.iter().sum::<Duration>() / 2_000;
            // 50 ms, and 0.86 ms for 1,072 bytes at 10 Mbit/s on each of five links.
            let want = Duration::from_micros(50_000 + 5 * 860);
            assert!(mean.abs_diff(want) < Duration::from_micros(300), "{carried:?} {mean:?}");
        }
    }

    #[test]
    fn nothing_is_lost_and_a_lost_one_takes_a_links_round_trip_longer() {
        let links = links(HOPS, DELAY, 0.02);
        let all = delays(&Carrier::HopByHop, links.clone(), STREAM, 1).unwrap();
        assert_eq!(all.len(), 2_000);
        let slow = all.iter().filter(|d| **d > Duration::from_millis(65)).count();
        assert!((20..200).contains(&slow), "{slow}");
        let longest = all.iter().max().unwrap();
        assert!(*longest < Duration::from_millis(200), "{longest:?}");
        let slow = |carried| {
            let delays = delays(&carried, links.clone(), STREAM, 1).unwrap();
            assert_eq!(delays.len(), 2_000);
            delays.iter().filter(|d| **d > Duration::from_millis(120)).count()
        };
        // A retransmission from the first node takes a round trip of 100 ms.
        let tcp = Carrier::EndToEnd(Box::new(Profile::linux_6()));
        assert!(slow(tcp) > 10 * slow(Carrier::Stream).max(1));
        slow(Carrier::InOrderRelays);
    }
}
