//! Figure 5's network: a trunk of calls and TCPs over one bottleneck.

use crate::experiment::PointError;
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Queue};
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_net::{Bins, Class, IpVersion, Protocol};
use trunkline_rate::tfmc::{Config, RTP_BYTES};
use trunkline_sim::agent::AgentId;
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::agent::trunk::{Mode, Receiver, Sender, Stats, Trunk};
use trunkline_sim::{HostId, RouterId, WireEnd, WireId, World};

/// Number of calls in the paper's simulation (section 5.4).
pub const CALLS: u32 = 200;
/// Interval between packets of G.729A, each with 20 ms of speech.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of speech in a packet.
pub const PAYLOAD: usize = 20;
/// Index of the call whose delay figure 8 shows.
pub const OBSERVED: u16 = 0;
/// Interval over which throughput is measured.
pub const BIN: Duration = Duration::from_millis(500);

/// The bottleneck's rate in bits per second (section 5.4).
const RATE: u64 = 10_000_000;
/// The bottleneck's propagation delay (section 5.4).
const DELAY: Duration = Duration::from_millis(10);
/// The access links' rate in bits per second and propagation delay, which the paper doesn't give.
const ACCESS_RATE: u64 = 100_000_000;
const ACCESS_DELAY: Duration = Duration::from_millis(1);
/// Holds more than the packets of all calls at the same instant.
const ACCESS_QUEUE: Queue = Queue::Packets(1_000);
/// TCPs begin within this time, at random, so that two runs are not the same.
const TCP_WITHIN: Duration = Duration::from_millis(100);

/// Longest time that a packet waits for others, where it does.
const WAIT: Duration = Duration::from_millis(5);

const VOICE: Class = Class(1);
const TCP: Class = Class(2);
const PORT: u16 = 5_000;

/// Transport of the calls' packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Multiplexing {
    /// A datagram for each packet.
    Singly,
    /// This many packets in a datagram.
    Fixed(usize),
    /// As many packets in a datagram as TFMC chooses.
    Tfmc(Config),
}

/// Times at which flows begin and end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Start of the calls, from the beginning of the run.
    pub calls: Duration,
    /// End of the run, from its beginning.
    pub end: Duration,
    /// Time from the start of the calls to the beginning of the measurement; the measurement
    /// without calls begins as long before their start.
    pub settled: Duration,
}

/// Configuration of one simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Transport of the calls' packets.
    pub carried: Multiplexing,
    /// Time within which calls begin, each at random; their packets keep these distances.
    pub spread: Duration,
    /// The bottleneck's propagation delay.
    pub delay: Duration,
    /// Number of TCPs, which run from the beginning.
    pub tcps: u16,
    /// Largest window of each TCP, in packets; unlimited if `None`.
    pub window: Option<u64>,
    /// Queue in front of the bottleneck.
    pub queue: Queue,
    /// Times at which flows begin and end.
    pub times: Times,
    /// Bytes of headers in front of each datagram, if they aren't those of UDP and IPv4, and in front
    /// of each packet's speech.
    pub headers: (Option<usize>, usize),
}

impl Setup {
    /// The paper's network, with one TCP that has ns-2's default window, and a queue of 50 packets,
    /// also ns-2's default.
    pub fn new(carried: Multiplexing, spread: Duration, times: Times) -> Setup {
        Setup {
            carried,
            spread,
            delay: DELAY,
            tcps: 1,
            window: Some(20),
            queue: Queue::Packets(50),
            times,
            headers: (None, RTP_BYTES),
        }
    }

    /// Simulates one run.
    ///
    /// # Errors
    ///
    /// If the network can't be built.
    pub fn run(&self, seed: u64) -> Result<RunResult, PointError> {
        let mut rng = rng(seed, 1);
        let mut net = Net::new(self.queue, self.delay, seed)?;
        for n in 0..self.tcps {
            net.tcp(n, self.window, within(TCP_WITHIN, &mut rng))?;
        }
        let trunk = self.trunk(&mut rng);
        let (sender, receiver) = net.trunk(&trunk)?;
        let bins = (self.times.end.as_nanos() / BIN.as_nanos()) as usize;
        let world = &mut net.world;
        world.record(
            net.bottleneck,
            WireEnd::First,
            Bins { from: Time::ZERO, width: BIN, count: bins },
        );
        let mut each = Vec::with_capacity(bins);
        let mut before = Stats::default();
        for bin in 1..=bins {
            world.run_until(Time::ZERO + BIN * bin as u32);
            let now = world.agent(sender).stats();
            each.push(
                (now.packets - before.packets) as f64 / (now.datagrams - before.datagrams) as f64,
            );
            before = now;
        }
        let mbit_s = |class| -> Vec<f64> {
            let seen = world.bins(net.bottleneck, WireEnd::First, class);
            let of = |bin: usize| seen.get(bin).map_or(0, |bin| bin.arrived.bytes);
            (0..bins).map(|bin| 8e-6 * of(bin) as f64 / BIN.as_secs_f64()).collect()
        };
        let (tcp, voice) = (mbit_s(TCP), mbit_s(VOICE));
        // Packets in flight at the end have had no time to arrive.
        let last = Time::ZERO + self.times.end - Duration::from_millis(200);
        let receiver = world.agent(receiver);
        Ok(RunResult {
            times: self.times,
            tcp,
            voice,
            packets_per_datagram: each,
            delays: receiver.delays(OBSERVED).filter(|(due, _)| *due < last).collect(),
            lost: lost(
                &trunk,
                receiver,
                (Time::ZERO + self.times.calls + self.times.settled, last),
            ),
            stats: world.agent(sender).stats(),
        })
    }

    fn trunk(&self, rng: &mut Rng) -> Trunk {
        let Times { calls, end, .. } = self.times;
        let starts: Vec<Duration> = (0..CALLS).map(|_| within(self.spread, rng)).collect();
        let packets = ((end - calls).as_nanos() / INTERVAL.as_nanos()) as u32;
        let call = |start: &Duration| {
            let first = Time::ZERO + calls + *start;
            (0..packets).map(move |n| first + INTERVAL * n)
        };
        let (header, per_packet) = self.headers;
        let trunk = Trunk::new(PAYLOAD, starts.iter().map(call));
        let trunk = Trunk { observed: OBSERVED, header, per_packet, ..trunk };
        match self.carried {
            Multiplexing::Singly => trunk,
            Multiplexing::Fixed(packets) => {
                Trunk { mode: Mode::Fixed(packets), wait: WAIT, ..trunk }
            }
            Multiplexing::Tfmc(config) => Trunk { wait: WAIT, ..trunk.with_tfmc(config) },
        }
    }
}

/// A random time from zero to before `most`; zero if `most` is.
pub fn within(most: Duration, rng: &mut Rng) -> Duration {
    let nanos = most.as_nanos() as u64;
    Duration::from_nanos(rng.next_u64().checked_rem(nanos).unwrap_or(0))
}

/// Send times of `calls` calls of `packets` packets each, one every [`INTERVAL`]; the calls begin
/// at random times within one interval from `begin` on.
pub fn spread_calls(calls: u32, begin: Time, packets: u32, rng: &mut Rng) -> Vec<Vec<Time>> {
    let call = |_| {
        let first = begin + within(INTERVAL, rng);
        (0..packets).map(|n| first + INTERVAL * n).collect()
    };
    (0..calls).map(call).collect()
}

/// Share of packets due in this span that never arrived, for each call, in ascending order.
fn lost(trunk: &Trunk, receiver: &Receiver, (from, to): (Time, Time)) -> Vec<f64> {
    let mut calls = vec![(0u32, 0u32); CALLS as usize];
    for (packet, arrived) in trunk.packets.iter().zip(receiver.arrived()) {
        if (from..to).contains(&packet.due) {
            let call = &mut calls[usize::from(packet.call)];
            *call = (call.0 + u32::from(arrived.is_none()), call.1 + 1);
        }
    }
    let mut shares: Vec<f64> =
        calls.iter().map(|(lost, of)| f64::from(*lost) / f64::from((*of).max(1))).collect();
    shares.sort_by(f64::total_cmp);
    shares
}

/// Two routers with a bottleneck between them; hosts are connected by separate links.
struct Net {
    world: World,
    routers: [RouterId; 2],
    bottleneck: WireId,
}

impl Net {
    fn new(queue: Queue, delay: Duration, seed: u64) -> Result<Net, PointError> {
        let mut world = World::new(IpVersion::V4, seed);
        let [near, far] = [world.add_router(), world.add_router()];
        let rate = Some(Bitrate::from_bps(RATE));
        let narrow = LinkModel { rate, delay, queue, ..LinkModel::default() };
        let bottleneck = world.cable(near, far, narrow.clone(), narrow)?;
        Ok(Net { world, routers: [near, far], bottleneck })
    }

    /// Adds a host on each side.
    fn hosts(&mut self) -> Result<[HostId; 2], PointError> {
        let access = LinkModel {
            rate: Some(Bitrate::from_bps(ACCESS_RATE)),
            delay: ACCESS_DELAY,
            queue: ACCESS_QUEUE,
            ..LinkModel::default()
        };
        let hosts = [self.world.add_plain_host(), self.world.add_plain_host()];
        for (host, router) in hosts.into_iter().zip(self.routers) {
            self.world.cable(host, router, access.clone(), access.clone())?;
        }
        Ok(hosts)
    }

    fn tcp(&mut self, n: u16, window: Option<u64>, start: Duration) -> Result<(), PointError> {
        let [a, b] = self.hosts()?;
        let profile = Profile { window_limit: window, ..Profile::ns2_reno() };
        let (to, span) = (self.world.endpoint(b, PORT), (Time::ZERO + start, Time::NEVER));
        let iss = u32::from(n);
        self.world.bind(b, Protocol::TCP, PORT, Sink::new(profile.clone(), PORT, iss))?;
        let bulk = Bulk::new(profile, PORT, to, iss, span, u64::MAX);
        self.world.bind(a, Protocol::TCP, PORT, bulk)?;
        Ok(self.world.set_class(a, Protocol::TCP, PORT, TCP)?)
    }

    fn trunk(&mut self, trunk: &Trunk) -> Result<(AgentId<Sender>, AgentId<Receiver>), PointError> {
        let [a, b] = self.hosts()?;
        let to = self.world.endpoint(b, PORT);
        let receiver = Receiver::new(PORT, trunk.clone());
        let receiver = self.world.bind(b, Protocol::UDP, PORT, receiver)?;
        let sender = Sender::new(PORT, to, trunk.clone(), Time::ZERO);
        let sender = self.world.bind(a, Protocol::UDP, PORT, sender)?;
        self.world.set_class(a, Protocol::UDP, PORT, VOICE)?;
        Ok((sender, receiver))
    }
}

/// Results of a run.
pub struct RunResult {
    times: Times,
    /// Throughput of all TCPs on the bottleneck in each bin, with headers, in Mbit/s.
    pub tcp: Vec<f64>,
    /// Throughput of the calls on the bottleneck in each bin, with headers, in Mbit/s.
    pub voice: Vec<f64>,
    /// Mean number of packets in a datagram in each bin; NaN if there are none.
    pub packets_per_datagram: Vec<f64>,
    /// Due time of each packet of the observed call, and its delay if it arrived.
    pub delays: Vec<(Time, Option<Duration>)>,
    /// Share of packets that each call lost once all had settled, in ascending order.
    pub lost: Vec<f64>,
    /// Statistics of the sending gateway.
    pub stats: Stats,
}

impl RunResult {
    /// Times at which flows began and ended.
    pub fn times(&self) -> Times {
        self.times
    }

    /// The bins before the calls, once the TCPs have settled.
    fn before(&self) -> std::ops::Range<usize> {
        let bin = |at: Duration| (at.as_nanos() / BIN.as_nanos()) as usize;
        bin(self.times.calls - self.times.settled)..bin(self.times.calls)
    }

    /// The bins with the calls, once all have settled.
    fn after(&self) -> std::ops::Range<usize> {
        let bin = |at: Duration| (at.as_nanos() / BIN.as_nanos()) as usize;
        bin(self.times.calls + self.times.settled)..bin(self.times.end)
    }

    /// The TCPs' throughput before the calls, in Mbit/s.
    pub fn tcp_before(&self) -> f64 {
        mean(&self.tcp[self.before()])
    }

    /// The TCPs' throughput with the calls, in Mbit/s.
    pub fn tcp_after(&self) -> f64 {
        mean(&self.tcp[self.after()])
    }

    /// The calls' throughput, in Mbit/s.
    pub fn voice(&self) -> f64 {
        mean(&self.voice[self.after()])
    }

    /// The coefficient of variation of the calls' throughput from bin to bin: standard deviation
    /// over mean.
    pub fn variation(&self) -> f64 {
        let bins = &self.voice[self.after()];
        let mean = mean(bins);
        let squares: f64 = bins.iter().map(|bin| (bin - mean) * (bin - mean)).sum();
        libm::sqrt(squares / (bins.len() as f64 - 1.0)) / mean
    }

    /// Mean number of packets in a datagram in the measured span.
    pub fn packed(&self) -> f64 {
        mean(&self.packets_per_datagram[self.after()])
    }

    /// Share of the calls' packets that are lost.
    pub fn lost(&self) -> f64 {
        mean(&self.lost)
    }

    /// Share of reports after which the trunk exceeded its share.
    pub fn over_share(&self) -> f64 {
        self.stats.over_share as f64 / self.stats.reports.max(1) as f64
    }

    /// Delays of the observed call's packets in the measured span, in milliseconds, by packet
    /// number; NaN for a lost packet.
    pub fn delays_ms(&self) -> Vec<f64> {
        let from = Time::ZERO + self.times.calls + self.times.settled;
        let of = self.delays.iter().filter(|(due, _)| *due >= from);
        of.map(|(_, delay)| delay.map_or(f64::NAN, |delay| 1e3 * delay.as_secs_f64())).collect()
    }

    /// Mean delay of the packets that arrived, in milliseconds.
    pub fn delay_ms(&self) -> f64 {
        mean_known(self.delays_ms().into_iter())
    }
}

/// The mean of some values; NaN if there are none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of the values that are not NaN.
pub fn mean_known(values: impl Iterator<Item = f64>) -> f64 {
    mean(&values.filter(|value| !value.is_nan()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        let [calls, end, settled] = [2, 4, 1].map(Duration::from_secs);
        Times { calls, end, settled }
    }

    /// 20 packets of 1,040 bytes per round trip: 24 ms of propagation, 0.832 ms for the packet at
    /// 10 Mbit/s, twice 0.083 at 100, and 40 bytes back in 0.032 + 2 · 0.0032 make 25.04 ms, or
    /// 6.65 Mbit/s. Without a window only the bottleneck's 10 Mbit/s limit the rate.
    #[test]
    fn a_tcp_alone_has_its_window_per_round_trip() {
        let setup = Setup::new(Multiplexing::Singly, Duration::ZERO, times());
        let alone = setup.run(1).unwrap().tcp_before();
        assert!((alone - 6.65).abs() < 0.1, "{alone}");
        let wide = Setup { window: None, ..setup }.run(1).unwrap().tcp_before();
        assert!((9.0..=10.01).contains(&wide), "{wide}");
    }

    /// Without a TCP, 200 calls spread evenly over 20 ms have 200 · 24 kbit/s, and no loss.
    #[test]
    fn calls_alone_have_their_rate() {
        let setup = Setup::new(Multiplexing::Singly, INTERVAL, times());
        let seen = Setup { tcps: 0, ..setup }.run(1).unwrap();
        assert!((seen.voice() - 4.8).abs() < 0.01, "{}", seen.voice());
        assert_eq!((seen.lost(), seen.stats.packets), (0.0, 20_000));
        assert!((12.0..13.0).contains(&seen.delay_ms()), "{}", seen.delay_ms());
        let packed = Setup { tcps: 0, carried: Multiplexing::Fixed(40), ..setup }.run(1).unwrap();
        // At most 40 packets in 5 ms: at best 28/40 + 32 bytes each.
        assert!((2.6..2.75).contains(&packed.voice()), "{}", packed.voice());
    }
}
