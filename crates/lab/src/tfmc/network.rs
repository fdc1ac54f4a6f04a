//! Figure 5's network: a trunk of calls and TCPs over one bottleneck.

use crate::experiment::PointError;
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_net::{Bin, Bins, Class, IpVersion, Protocol};
use trunkline_rate::tfmc::{Config, IP_UDP_BYTES, RTP_BYTES};
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
/// Interval over which throughput is measured.
pub const BIN: Duration = Duration::from_millis(500);

/// The bottleneck's rate in bits per second (section 5.4).
const RATE: u64 = 10_000_000;
/// The bottleneck's propagation delay (section 5.4).
const DELAY: Duration = Duration::from_millis(10);
/// The access links' propagation delay, which the paper doesn't give.
const ACCESS_DELAY: Duration = Duration::from_millis(1);
/// Bytes of a TCP packet with its headers (section 5.4).
const TCP_PACKET: usize = 1_040;
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

/// The links between a host and its router, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Rate in Mbit/s in each direction.
    pub mbit_s: u32,
    /// Longest queue, in packets of any size.
    pub packets: usize,
}

impl Access {
    /// Links on which nothing is lost and hardly anything waits: in the paper the link between the
    /// routers is the bottleneck. The queue holds the packets of all calls at once.
    pub const WIDE: Access = Access { mbit_s: 100, packets: 1_000 };
}

/// Configuration of one simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Transport of the calls' packets.
    pub carried: Multiplexing,
    /// Number of calls; 200 in the paper.
    pub calls: u32,
    /// Time within which calls begin, each at random; their packets keep these distances.
    pub spread: Duration,
    /// The bottleneck's propagation delay.
    pub delay: Duration,
    /// Number of TCPs, which run from the beginning.
    pub tcps: u16,
    /// Number of further TCPs, which begin with the calls.
    pub late_tcps: u16,
    /// Largest window of each TCP, in packets; unlimited if `None`.
    pub window: Option<u64>,
    /// Queue in front of the bottleneck.
    pub queue: Queue,
    /// The links of gateways and TCPs.
    pub access: Access,
    /// Whether the bottleneck loses everything for a second of the measured span.
    pub outage: bool,
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
            calls: CALLS,
            spread,
            delay: DELAY,
            tcps: 1,
            late_tcps: 0,
            window: Some(20),
            queue: Queue::Packets(50),
            access: Access::WIDE,
            outage: false,
            times,
            headers: (None, RTP_BYTES),
        }
    }

    /// Longest time that a call's single packet can wait in queues, in milliseconds: behind those of
    /// all other calls on the access link, and behind a full queue at the bottleneck, where the TCP
    /// has no more packets than its window.
    ///
    /// # Panics
    ///
    /// If the bottleneck's queue doesn't count packets.
    pub fn longest_wait_ms(&self) -> f64 {
        let Queue::Packets(room) = self.queue else { panic!("{:?} counts no packets", self.queue) };
        let (header, per_packet) = self.headers();
        let single = header + per_packet + PAYLOAD;
        let window = self.window.map_or(room, |packets| room.min(packets as usize));
        let behind = (window * TCP_PACKET + (room - window) * single) as f64;
        let access = self.access.packets.min(self.calls as usize) * single;
        8e3 * behind / RATE as f64 + 8e-3 * access as f64 / f64::from(self.access.mbit_s)
    }

    /// Simulates one run.
    ///
    /// # Errors
    ///
    /// If the network can't be built.
    pub fn run(&self, seed: u64) -> Result<RunResult, PointError> {
        let mut rng = rng(seed, 1);
        let mut net = Net::new(self, seed)?;
        for n in 0..self.tcps {
            net.tcp(n, self.window, within(TCP_WITHIN, &mut rng))?;
        }
        for n in self.tcps..self.tcps + self.late_tcps {
            net.tcp(n, self.window, self.times.calls + within(TCP_WITHIN, &mut rng))?;
        }
        let trunk = self.trunk(&mut rng);
        let (sender, receiver) = net.trunk(&trunk)?;
        let bins = bin(self.times.end);
        net.world.record(
            net.bottleneck,
            WireEnd::First,
            Bins { from: Time::ZERO, width: BIN, count: bins },
        );
        let mut sent = Vec::with_capacity(bins);
        let outage = bin(self.times.calls + self.times.settled) + 1;
        for n in 0..bins {
            if self.outage && n == outage {
                net.lose(Loss::EVERYTHING)?;
            } else if self.outage && n == outage + 2 {
                net.lose(Loss::None)?;
            }
            net.world.run_until(Time::ZERO + BIN * (n as u32 + 1));
            sent.push(net.world.agent(sender).stats());
        }
        let world = &net.world;
        let of = |class, count: fn(&Bin) -> u64| -> Vec<f64> {
            let seen = world.bins(net.bottleneck, WireEnd::First, class);
            (0..bins).map(|bin| seen.get(bin).map_or(0, count) as f64).collect()
        };
        let mbit_s = |class| -> Vec<f64> {
            let bytes = of(class, |bin| bin.arrived.bytes).into_iter();
            bytes.map(|bytes| 8e-6 * bytes / BIN.as_secs_f64()).collect()
        };
        let [tcp_packets, voice_packets] =
            [TCP, VOICE].map(|class| of(class, |bin| bin.offered.packets));
        // Packets in flight at the end have had no time to arrive.
        let last = Time::ZERO + self.times.end - Duration::from_millis(200);
        let receiver = world.agent(receiver);
        let measured = (Time::ZERO + self.times.calls + self.times.settled, last);
        let delays = receiver.delays(trunk.observed).filter(|(due, _)| *due < last);
        Ok(RunResult {
            times: self.times,
            tcp: mbit_s(TCP),
            voice: mbit_s(VOICE),
            offered: self.offered(&sent),
            router_packets: tcp_packets
                .iter()
                .zip(&voice_packets)
                .map(|(tcp, voice)| (tcp + voice) / BIN.as_secs_f64())
                .collect(),
            packets_per_datagram: packets_per_datagram(&sent),
            delays: delays.collect(),
            lost: lost(&trunk, receiver, measured),
            stats: world.agent(sender).stats(),
        })
    }

    /// Bytes in front of each datagram, and in front of each packet's speech.
    fn headers(&self) -> (usize, usize) {
        let (header, per_packet) = self.headers;
        (header.unwrap_or(IP_UDP_BYTES), per_packet)
    }

    /// The rate at which the gateway sent in each bin, in Mbit/s with headers, from its statistics at the end of
    /// each.
    fn offered(&self, sent: &[Stats]) -> Vec<f64> {
        let (header, per_packet) = self.headers();
        let bytes = |stats: &Stats| {
            stats.datagrams as usize * header + stats.packets as usize * (per_packet + PAYLOAD)
        };
        let grown = each(sent, |after, before| (bytes(after) - bytes(before)) as f64);
        grown.into_iter().map(|bytes| 8e-6 * bytes / BIN.as_secs_f64()).collect()
    }

    fn trunk(&self, rng: &mut Rng) -> Trunk {
        let Times { calls, end, .. } = self.times;
        let starts: Vec<Duration> = (0..self.calls).map(|_| within(self.spread, rng)).collect();
        let packets = ((end - calls).as_nanos() / INTERVAL.as_nanos()) as u32;
        let call = |start: &Duration| {
            let first = Time::ZERO + calls + *start;
            (0..packets).map(move |n| first + INTERVAL * n)
        };
        let (header, per_packet) = self.headers;
        let trunk = Trunk::new(PAYLOAD, starts.iter().map(call));
        // One call's place among those that begin together decides how many packets it loses.
        let observed = (rng.next_u64() % u64::from(self.calls)) as u16;
        let trunk = Trunk { observed, header, per_packet, ..trunk };
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

/// The bin that begins at this time from the beginning of the run.
fn bin(at: Duration) -> usize {
    (at.as_nanos() / BIN.as_nanos()) as usize
}

/// The growth of a gateway's statistics in each bin, from those at the end of each.
fn each(sent: &[Stats], grown: impl Fn(&Stats, &Stats) -> f64) -> Vec<f64> {
    let begin = Stats::default();
    let before = std::iter::once(&begin).chain(sent);
    sent.iter().zip(before).map(|(after, before)| grown(after, before)).collect()
}

/// Mean number of packets in a datagram in each bin; NaN if there are none.
fn packets_per_datagram(sent: &[Stats]) -> Vec<f64> {
    each(sent, |after, before| {
        (after.packets - before.packets) as f64 / (after.datagrams - before.datagrams) as f64
    })
}

/// Share of packets due in this span that never arrived, for each call, in ascending order.
fn lost(trunk: &Trunk, receiver: &Receiver, (from, to): (Time, Time)) -> Vec<f64> {
    let count = trunk.packets.iter().map(|packet| usize::from(packet.call) + 1).max();
    let mut calls = vec![(0u32, 0u32); count.unwrap_or(1)];
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
    narrow: LinkModel,
    access: LinkModel,
}

impl Net {
    fn new(setup: &Setup, seed: u64) -> Result<Net, PointError> {
        let &Setup { queue, delay, access, .. } = setup;
        let mut world = World::new(IpVersion::V4, seed);
        let [near, far] = [world.add_router(), world.add_router()];
        let rate = Some(Bitrate::from_bps(RATE));
        let narrow = LinkModel { rate, delay, queue, ..LinkModel::default() };
        let bottleneck = world.cable(near, far, narrow.clone(), narrow.clone())?;
        let access = LinkModel {
            rate: Some(Bitrate::from_bps(1_000_000 * u64::from(access.mbit_s))),
            delay: ACCESS_DELAY,
            queue: Queue::Packets(access.packets),
            ..LinkModel::default()
        };
        Ok(Net { world, routers: [near, far], bottleneck, narrow, access })
    }

    /// Changes the loss of the bottleneck's forward direction.
    fn lose(&mut self, loss: Loss) -> Result<(), PointError> {
        let narrow = LinkModel { loss, ..self.narrow.clone() };
        Ok(self.world.change(self.bottleneck, WireEnd::First, narrow)?)
    }

    /// Adds a host on each side.
    fn hosts(&mut self) -> Result<[HostId; 2], PointError> {
        let hosts = [self.world.add_plain_host(), self.world.add_plain_host()];
        for (host, router) in hosts.into_iter().zip(self.routers) {
            self.world.cable(host, router, self.access.clone(), self.access.clone())?;
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
    /// Rate at which the gateway sent in each bin, whether it arrived or not, with headers, in
    /// Mbit/s.
    pub offered: Vec<f64>,
    /// Packets per second of TCPs and calls that the first router had to forward in each bin.
    pub router_packets: Vec<f64>,
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
        bin(self.times.calls - self.times.settled)..bin(self.times.calls)
    }

    /// The bins with the calls, once all have settled.
    fn after(&self) -> std::ops::Range<usize> {
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

    /// The lowest of the TCPs' throughputs in a bin with the calls, as a share of their mean.
    pub fn tcp_lowest(&self) -> f64 {
        self.tcp[self.after()].iter().copied().fold(f64::NAN, f64::min) / self.tcp_after()
    }

    /// The rate at which the gateway sent, in Mbit/s.
    pub fn offered(&self) -> f64 {
        mean(&self.offered[self.after()])
    }

    /// Packets per second at the first router with the calls.
    pub fn router_packets(&self) -> f64 {
        mean(&self.router_packets[self.after()])
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
        assert!((seen.offered() - 4.8).abs() < 0.01, "{}", seen.offered());
        assert!((seen.router_packets() - 1e4).abs() < 20.0, "{}", seen.router_packets());
        assert_eq!((seen.lost(), seen.stats.packets), (0.0, 20_000));
        assert!((12.0..13.0).contains(&seen.delay_ms()), "{}", seen.delay_ms());
        let packed = Setup { tcps: 0, carried: Multiplexing::Fixed(40), ..setup }.run(1).unwrap();
        // At most 40 packets in 5 ms: at best 28/40 + 32 bytes each.
        assert!((2.6..2.75).contains(&packed.voice()), "{}", packed.voice());
        assert!((200.0..400.0).contains(&packed.router_packets()), "{}", packed.router_packets());
    }

    /// A gateway offers the same at any spread; of 200 packets within a millisecond, the bottleneck
    /// carries those that its queue holds, and those that leave while they arrive.
    #[test]
    fn what_is_offered_is_not_what_is_carried() {
        let at_once = Setup::new(Multiplexing::Singly, Duration::from_millis(1), times());
        let seen = Setup { tcps: 0, ..at_once }.run(1).unwrap();
        assert!((seen.offered() - 4.8).abs() < 0.01, "{}", seen.offered());
        // 50 + 1 and the 20 or so that leave in a millisecond.
        assert!((seen.voice() - 4.8 * 71.0 / 200.0).abs() < 0.1, "{}", seen.voice());
        assert!((seen.lost() - 129.0 / 200.0).abs() < 0.02, "{}", seen.lost());
    }

    /// The bottleneck's queue has 20 packets of 1,040 bytes and 30 of 60: 22,600 bytes are 18.08 ms;
    /// 200 of 60 on the access link are 0.96. Without a window, 50 of 1,040 are 41.6 ms.
    #[test]
    fn queues_bound_the_wait() {
        let setup = Setup::new(Multiplexing::Singly, Duration::ZERO, times());
        assert!((setup.longest_wait_ms() - 19.04).abs() < 1e-9, "{}", setup.longest_wait_ms());
        let wide = Setup { window: None, ..setup }.longest_wait_ms();
        assert!((wide - 42.56).abs() < 1e-9, "{wide}");
        let slow = Access { mbit_s: 10, packets: 50 };
        let slow = Setup { access: slow, ..setup }.longest_wait_ms();
        assert!((slow - 18.08 - 2.4).abs() < 1e-9, "{slow}");
        // Nothing waits longer than that: 12 ms of propagation, and 0.06 of transmission.
        for spread in [Duration::ZERO, Duration::from_millis(1)] {
            let seen = Setup { spread, ..setup }.run(1).unwrap();
            let most = seen.delays_ms().into_iter().fold(0.0, f64::max);
            assert!((12.0..12.1 + setup.longest_wait_ms()).contains(&most), "{most}");
        }
    }

    /// A TCP with its window has the same in each half second, until the link is cut for one.
    #[test]
    fn an_outage_is_a_low_half_second() {
        let setup = Setup::new(Multiplexing::Singly, Duration::ZERO, times());
        let steady = Setup { calls: 1, ..setup }.run(1).unwrap().tcp_lowest();
        assert!((0.95..=1.0).contains(&steady), "{steady}");
        let cut = Setup { calls: 1, outage: true, ..setup }.run(1).unwrap().tcp_lowest();
        assert!(cut < 0.1, "{cut}");
    }
}
