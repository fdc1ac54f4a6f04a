//! Calls over the trunks of two overlay nodes, sealed, on IPv4.

use crate::dccp_voice::{Codec, FIXED};
use crate::experiment::PointError;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_media::playout::optimal::{Packet, optimal};
use trunkline_net::IpVersion;
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Arrival, Call, CallOutcome, Sinks, VoiceLog, VoiceSource};
use trunkline_sim::{HostId, PlainEnd, Topology, WireId, World, WorldError};

/// Node ids of both ends.
pub const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];
/// The hosts of both nodes, the calling one first.
pub const HOSTS: [HostId; 2] = [HostId(0), HostId(1)];
/// The wire between the two, if there is one.
pub const WIRE: WireId = WireId(0);
/// Bytes of the RTP header in front of each packet's speech.
pub const RTP: usize = 12;
/// Interval between two packets of a call.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// Port of the first call; the others use those that follow.
pub const PORT: u16 = 5_000;
/// Time at which calls begin: links are up and trunks have been answered.
pub const BEGIN: Time = Time::from_millis(1_000);
/// Time that calls settle: all contexts have been announced by then.
pub const SETTLED: Duration = Duration::from_millis(500);

/// Transport of the calls.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Carrier {
    /// Plain UDP, without any node.
    Udp,
    /// Nodes without a trunk.
    Alone,
    /// Trunks between both nodes; this is the configuration of the first's.
    Trunk(trunk::Config),
}

/// Two ends, the network between them, and calls from the first to the second.
#[derive(Clone)]
pub struct Live {
    /// Transport of the calls.
    pub carried: Carrier,
    /// The wire between the ends, in both directions.
    pub wire: LinkModel,
    /// Start of each call, after the earliest possible time.
    pub begins: Vec<Duration>,
    /// Bytes of speech in a packet, at least 16.
    pub speech: usize,
    /// Time over which each call is measured, once it has settled.
    pub length: Duration,
    /// Whether there is a call in the opposite direction for each.
    pub both_ways: bool,
}

/// A run of [`Live`], from when calls have settled.
pub struct LiveRun {
    world: World,
    calls: Vec<Call<VoiceLog>>,
    span: (Time, Time),
    /// Bytes on the wire in both directions, with IPv4 and UDP headers, in the span.
    pub bytes: u64,
    /// Datagrams that the first node's trunk sent in the span, and the calls' packets in them.
    pub trunked: [u64; 2],
}

/// A trunk to the second node: packets that arrive within `wait` are sent together.
pub fn fill(wait: Duration) -> trunk::Config {
    trunk::Config { wait, ..trunk::Config::new(NODES[1]) }
}

impl Live {
    /// Simulates one run.
    ///
    /// # Errors
    ///
    /// If the network can't be built.
    pub fn run(&self, seed: u64) -> Result<LiveRun, PointError> {
        let (mut world, plain) = self.build(seed)?;
        let from = BEGIN + SETTLED;
        let span = (from, from + self.length);
        let mut calls = Vec::new();
        for (k, begin) in (0..).zip(&self.begins) {
            calls.push(self.call(&mut world, (plain, [0, 1]), k, *begin)?);
            if self.both_ways {
                calls.push(self.call(&mut world, (plain, [1, 0]), k, *begin)?);
            }
        }
        world.run_until(span.0);
        let trunked = |world: &World| if plain.is_none() { trunked(world) } else { [0; 2] };
        let before = (bytes(&world), trunked(&world));
        world.run_until(span.1);
        let after = (bytes(&world), trunked(&world));
        // Packets still in flight arrive.
        world.run_until(span.1 + Duration::from_secs(1));
        let trunked = [0, 1].map(|n| after.1[n] - before.1[n]);
        Ok(LiveRun { world, calls, span, bytes: after.0 - before.0, trunked })
    }

    /// The network, and its ends if there are no nodes.
    fn build(&self, seed: u64) -> Result<(World, Option<[PlainEnd; 2]>), WorldError> {
        let wire = || self.wire.clone();
        if self.carried == Carrier::Udp {
            let mut world = World::new(IpVersion::V4, seed);
            let (a, b) = world.plain_path(wire(), wire(), None)?;
            return Ok((world, Some([a, b])));
        }
        let mut topology = Topology::chain([wire()]);
        for (host, to) in HOSTS.into_iter().zip(NODES.into_iter().rev()) {
            if let Carrier::Trunk(config) = self.carried {
                topology.config_mut(host).trunks.push(trunk::Config { to, ..config });
            }
        }
        topology.seal();
        Ok((topology.over(IpVersion::V4).build(seed)?, None))
    }

    fn call(
        &self,
        world: &mut World,
        (plain, [from, to]): (Option<[PlainEnd; 2]>, [usize; 2]),
        k: u16,
        begin: Duration,
    ) -> Result<Call<VoiceLog>, WorldError> {
        let count = ((SETTLED + self.length).as_nanos() / INTERVAL.as_nanos()) as u64 + 1;
        let (port, start) = (PORT + k, BEGIN + begin);
        let mut source = VoiceSource::new(NODES[to], port, Service::RealTime, start, count);
        source.bytes = RTP + self.speech;
        let Some(ends) = plain else {
            let sink = world.attach(HOSTS[to], port, VoiceLog::default())?;
            return Ok((world.attach(HOSTS[from], 0, source)?, sink));
        };
        // Calls in the opposite direction have separate ports.
        source.port += 10_000 * from as u16;
        let sink = world.attach_plain(ends[to], source.port, VoiceLog::default())?;
        Ok((world.attach_plain(ends[from], source.port + 20_000, source)?, sink))
    }
}

/// Bytes sent on the wire so far, in both directions.
fn bytes(world: &World) -> u64 {
    world.ledgers(WIRE).iter().map(|ledger| ledger.offered.bytes).sum()
}

/// Datagrams that the first node's trunk has sent, and the calls' packets in them.
fn trunked(world: &World) -> [u64; 2] {
    let mut trunks = world.node(HOSTS[0]).trunks(world.now());
    trunks.next().map_or([0; 2], |t| {
        [t.stats.trunk_packets, t.stats.packets].map(|packets| packets + t.stats.alone)
    })
}

impl LiveRun {
    /// The fate of the packets that were due in the measured span.
    pub fn outcome(&self, late_after: Duration) -> CallOutcome {
        CallOutcome::of_packets(self.calls.iter().flat_map(|call| self.due(call)), 0, late_after)
    }

    /// R of each call, by [`rating`].
    pub fn ratings(&self, codec: Codec) -> Vec<f64> {
        self.calls.iter().map(|call| rating(self.due(call), codec)).collect()
    }

    fn due(
        &self,
        &(source, sink): &Call<VoiceLog>,
    ) -> impl Iterator<Item = (Time, Option<Arrival>)> + '_ {
        let sink = (self.world.app(sink), self.world.origin(source));
        due(self.world.app(source), sink, self.span)
    }

    /// Bytes on the wire per packet of the calls.
    pub fn bytes_per_packet(&self) -> f64 {
        self.bytes as f64 / self.outcome(Duration::MAX).sent as f64
    }

    /// Mean number of packets that the first node sends together: 1 without a trunk.
    pub fn packed(&self) -> f64 {
        match self.trunked {
            [0, _] => 1.0,
            [sent, of_calls] => of_calls as f64 / sent as f64,
        }
    }
}

/// A call's packets that were due in this span, and the arrival of each at a sink, which receives
/// them from this node and port.
pub fn due<'a>(
    source: &'a VoiceSource,
    (sink, origin): (&'a VoiceLog, (NodeId, u16)),
    (from, to): (Time, Time),
) -> impl Iterator<Item = (Time, Option<Arrival>)> + 'a {
    let arrivals = sink.arrivals(origin);
    let due = (0..source.sent()).map(|k| (source.sent_at(k), k));
    due.filter(move |(at, _)| (from..to).contains(at)).map(move |(at, k)| (at, arrivals(k)))
}

/// R of a call with these packets, with the best possible playout and a further delay of 38 ms, by
/// the reduced E-model, as for the calls over TCP and TFRC. It is never below 0, and NaN without
/// packets.
pub fn rating(packets: impl Iterator<Item = (Time, Option<Arrival>)>, codec: Codec) -> f64 {
    let packets =
        packets.map(|(_, arrival)| Packet { talkspurt: 0, delay: arrival.map(|a| a.delay) });
    optimal(packets, FIXED, codec.coefficients())
        .map_or(f64::NAN, |outcome| outcome.rating.r.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(carried: Carrier) -> Live {
        let begins = (0..10).map(|k| Duration::from_micros(100 * k)).collect();
        let length = Duration::from_secs(1);
        Live { carried, wire: LinkModel::default(), begins, speech: 20, length, both_ways: true }
    }

    /// 28 + 44 + 12 + 20 bytes, and control traffic: a hello of 46 bytes with headers of 28 every
    /// 200 ms.
    #[test]
    fn each_packet_by_itself_has_its_headers() {
        let seen = live(Carrier::Alone).run(1).unwrap();
        let outcome = seen.outcome(Duration::MAX);
        assert_eq!((outcome.sent, outcome.lost), (1_000, 0));
        let bytes = seen.bytes_per_packet();
        assert!((104.0..105.0).contains(&bytes), "{bytes}");
    }

    /// 94.2 − 10 of G.729 − 0.024 · 38.
    #[test]
    fn plain_udp_has_nothing_else() {
        let seen = live(Carrier::Udp).run(1).unwrap();
        assert_eq!((seen.bytes_per_packet(), seen.packed()), (60.0, 1.0));
        assert!(seen.ratings(Codec::G729).iter().all(|r| (r - 83.288).abs() < 1e-6));
    }

    #[test]
    fn ten_calls_within_a_millisecond_share_a_packet() {
        let seen = live(Carrier::Trunk(fill(Duration::from_millis(2)))).run(1).unwrap();
        assert_eq!((seen.packed(), seen.outcome(Duration::MAX).lost), (10.0, 0));
        assert!(seen.bytes_per_packet() < 60.0, "{}", seen.bytes_per_packet());
    }
}
