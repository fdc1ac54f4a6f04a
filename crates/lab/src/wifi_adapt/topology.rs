//! An access point and its stations, with a call and a constant bit rate to each of them.

mod outcome;
#[cfg(test)]
mod tests;

use crate::experiment::PointError;
use outcome::{CallOutcome, Sent, fairness, impairment, ms};
use rand::Rng as _;
use std::cell;
use std::rc::Rc;
use std::time::Duration;
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, AccessTable, DRAFT, STATION_2005};
use trunkline_net::wifi::{Config, Stream, StreamDirection};
use trunkline_net::{Class, IpVersion, Protocol};
use trunkline_rate::tfrc;
use trunkline_rate::vegas::{self, CodecRate, FecKind, HopBaseRtt};
use trunkline_sim::agent::adaptive::{
    self as coded, Call, Coding, Gateway, PACKET, Station, Verdicts,
};
use trunkline_sim::agent::tfrc as flow;
use trunkline_sim::agent::{AgentId, Cbr, Meter};
use trunkline_sim::{HostId, World};

/// Bytes of the IPv4, UDP and RTP headers (Table 1).
pub const HEADERS: usize = 40;
/// Length of TFRC's packets in bytes, including the IP header (section 5).
pub const TFRC_PACKET: usize = 200;
/// Length of the background traffic's packets in bytes, including the IP header (section 5).
const BACKGROUND_PACKET: u64 = 1_500;
/// TOS bytes of DSCP EF with user priority 6, and of CS1 with user priority 1 (section 5).
const VOICE: u8 = 46 << 2;
const BACKGROUND: u8 = 8 << 2;

/// The call's port at its station; the ports at the access point count up from [`CALLS`].
const PORT: u16 = 5_004;
const CALLS: u16 = 10_000;
const OTHERS: u16 = 20_000;
/// Port at the stations of the calls that they send, and the first of their ports at the access
/// point.
const UPWARDS: u16 = 5_008;
const UP: u16 = 30_000;
/// The ledger class of the calls' packets.
const CALL: Class = Class(1);
/// Time at which everything begins, apart from separate phases.
const START: Duration = Duration::from_millis(100);
/// Time after a call's last packet within which packets in flight are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest queue of a TFRC sender, in packets of a call, as in Balan et al. 2007.
const OUTBOUND: usize = 5;
/// More packets of 200 bytes per second than a cell carries: an exchange takes 136 µs without any
/// contention.
const MAX_PACKETS_PER_S: u32 = 7_400;
/// Interval over which a call's bandwidth is averaged to measure its variation.
const BIN: Duration = Duration::from_secs(1);

/// Transport of the calls.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// G.711 and G.726, controlled as in the paper.
    Adaptive(vegas::Config),
    /// A codec at a fixed rate, without control.
    Fixed(CodecRate),
    /// The 50 packets per second of G.711, as far as TFRC allows.
    Tfrc,
    /// As many packets as TFRC allows, with data always available.
    Greedy,
}

/// Medium access of the access point.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Contention with the parameters of the drafts.
    Draft,
    /// Contention with the parameters of the standard, in which the access point has separate ones.
    Standard,
    /// As `Draft`, with calls in the queue of the background traffic.
    OneQueue,
    /// As `Standard`, but calls don't contend: the access point takes the channel for them at
    /// intervals of at most this.
    Polled(Duration),
}

/// One cell and its traffic.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Number of stations besides the access point, each with a call.
    pub calls: u16,
    /// Transport of the calls.
    pub scheme: Scheme,
    /// Index of the first call that isn't treated like those before it: it is always sent at 64
    /// kbit/s; over TFRC it has every other packet only, or, where others are greedy, the codec's.
    pub adaptive: u16,
    /// Medium access of the access point.
    pub access: Access,
    /// Whether stations send a call as well, in the same scheme as the one that they receive; only
    /// with codecs.
    pub both_ways: bool,
    /// The highest rate of the speech in copies that the control requests against losses; `None` if
    /// nothing is sent against losses.
    pub fec: Option<CodecRate>,
    /// Whether the redundant data is used.
    pub repairs: bool,
    /// Background traffic to each station; none if zero.
    pub background: Bitrate,
    /// Time from the beginning of the calls to that of the background traffic; at most `length`.
    pub background_after: Duration,
    /// Probability that a bit is wrong.
    pub bit_error_rate: f64,
    /// Number of attempts to send a packet.
    pub attempts: u8,
    /// Number of packets that each queue holds.
    pub queue: usize,
    /// Interval between two reports of a station.
    pub report: Duration,
    /// Length of the calls.
    pub length: Duration,
}

/// Results of one run.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// Mean delay from the gateway of all packets of all calls that arrived, in milliseconds.
    pub mean_ms: f64,
    /// Longest of these delays, in milliseconds.
    pub max_ms: f64,
    /// Packets that didn't arrive, in percent of those that were or should have been sent.
    pub lost_pct: f64,
    /// Packets whose speech didn't arrive with later packets either, in percent.
    pub missed_pct: f64,
    /// Mean rate at which a call is sent, in kilobytes per second, with headers and redundancy.
    pub sent: f64,
    /// Mean rate at which a call arrives, in kilobytes (1,000 bytes) per second, with headers.
    pub bandwidth: f64,
    /// Mean rate at which a call arrives, in kilobytes per second, without headers.
    pub payload: f64,
    /// Coefficient of variation of a call's rate from second to second, in percent; the mean over
    /// calls that arrived at all.
    pub variation_pct: f64,
    /// Jain's index of fairness of the calls' rates.
    pub fairness: f64,
    /// Mean difference between the delays of two successive packets of a call, in milliseconds; the
    /// mean over calls of which two packets arrived.
    pub jitter_ms: f64,
    /// Mean R of the calls by the E-model; NaN for calls that aren't in real time.
    pub r: f64,
    /// Background traffic that arrived at all stations, in Mbit/s.
    pub background: f64,
    /// Causes to which the control attributed the losses in reports.
    pub verdicts: Verdicts,
    /// Packets of calls that the access point's queues rejected, and packets that were given up
    /// after all attempts.
    pub losses: [u64; 2],
    /// Codec rate of each packet of the first call, if it arrived itself; only while the call is
    /// sent by codecs.
    pub first: Vec<Option<CodecRate>>,
}

/// The record of BaseRTT that all calls of a gateway share.
type Hop = Rc<cell::Cell<HopBaseRtt>>;

enum Ends {
    Codec(AgentId<Gateway>, AgentId<Station>),
    Tfrc(AgentId<flow::Source>, AgentId<flow::Sink>),
}

impl Setting {
    /// Runs all calls over the cell.
    pub fn run(&self, seed: u64) -> Result<RunSummary, PointError> {
        let mut world = World::new(IpVersion::V4, seed);
        let gateway = world.add_plain_host();
        let stations: Vec<HostId> = (0..self.calls).map(|_| world.add_plain_host()).collect();
        let (cell, wires) = world.cell(gateway, &stations, self.config())?;
        if let Access::Polled(interval) = self.access {
            let admitted = world.with_cell(cell, |cell| {
                (0..self.calls).try_for_each(|n| cell.admit(Time::ZERO, stream(n, interval)))
            });
            // The largest cell here needs an eighth of the time.
            admitted.unwrap_or_else(|why| panic!("{} calls: {why}", self.calls));
        }
        let mut phases = rng(seed, u64::MAX);
        let mut phase = |of: Duration| Time::ZERO + START + of.mul_f64(unit(&mut phases));
        let due = self.due();
        // One BaseRTT for the gateway; a station that sends a call is a gateway of its own.
        let hop = Rc::default();
        let ends = stations.iter().zip(0..).map(|(&station, n)| {
            let (start, offset) = (phase(PACKET), phase(self.report).since(Time::ZERO + START));
            self.call(&mut world, (gateway, station, n), &hop, (start, offset), &due)
        });
        let mut ends = ends.collect::<Result<Vec<Ends>, _>>()?;
        let protocol = match self.scheme {
            Scheme::Adaptive(_) | Scheme::Fixed(_) => Protocol::UDP,
            Scheme::Tfrc | Scheme::Greedy => Protocol::DCCP,
        };
        (0..self.calls).try_for_each(|n| world.set_class(gateway, protocol, CALLS + n, CALL))?;
        let mut meters = Vec::new();
        let spacing = BACKGROUND_PACKET * 8_000_000_000;
        if let Some(spacing) = spacing.checked_div(self.background.as_bps()) {
            let spacing = Duration::from_nanos(spacing);
            for (&station, n) in stations.iter().zip(0..) {
                let to = world.endpoint(station, PORT + 2);
                let start = phase(spacing) + self.background_after;
                let lasts = self.length.saturating_sub(self.background_after);
                let count = (lasts.as_nanos() / spacing.as_nanos()) as u64;
                let cbr = Cbr::udp_sizes(OTHERS + n, to, BACKGROUND, start, spacing, count);
                world.bind(gateway, Protocol::UDP, OTHERS + n, cbr)?;
                meters.push(world.bind(station, Protocol::UDP, PORT + 2, Meter::default())?);
            }
        }
        let up = stations.iter().zip(0..self.calls).filter(|_| self.both_ways).map(|(&host, n)| {
            let (start, offset) = (phase(PACKET), phase(self.report).since(Time::ZERO + START));
            let ends = [(host, UPWARDS), (gateway, UP + n)];
            let ends = self.coded(&mut world, ends, n, &Rc::default(), (start, offset))?;
            world.set_class(host, Protocol::UDP, UPWARDS, CALL)?;
            Ok(ends)
        });
        ends.extend(up.collect::<Result<Vec<Ends>, PointError>>()?);
        world.run_until(Time::ZERO + START + self.length + PATIENCE);
        let others = meters.iter().map(|id| world.agent(*id).received.packets).sum::<u64>();
        let outcomes: Vec<CallOutcome> =
            ends.iter().map(|ends| self.outcome(&world, ends)).collect();
        let ledgers = wires.iter().flat_map(|wire| world.class_ledgers(*wire, CALL));
        let losses = ledgers.fold([0; 2], |[queue, channel], way| {
            [queue + way.queue_dropped.packets, channel + way.lost.packets]
        });
        Ok(self.seen(&outcomes, others, losses))
    }

    fn config(&self) -> Config {
        let tables: [AccessTable; 2] = match self.access {
            Access::Draft | Access::OneQueue => [DRAFT, DRAFT],
            Access::Standard | Access::Polled(_) => [ACCESS_POINT_2005, STATION_2005],
        };
        let [access_point, station] = tables;
        let &Setting { bit_error_rate, attempts, queue, .. } = self;
        Config { access_point, station, bit_error_rate, attempts, queue, ..Config::default() }
    }

    fn tos(&self) -> u8 {
        if matches!(self.access, Access::OneQueue) { BACKGROUND } else { VOICE }
    }

    fn packets(&self) -> u32 {
        (self.length.as_nanos() / PACKET.as_nanos()) as u32
    }

    /// Times at which TFRC's packets become due, from the start of a flow.
    fn due(&self) -> Vec<Duration> {
        match self.scheme {
            Scheme::Tfrc => (0..self.packets()).map(|n| n * PACKET).collect(),
            Scheme::Greedy => {
                vec![Duration::ZERO; (MAX_PACKETS_PER_S * self.packets() / 50) as usize]
            }
            Scheme::Adaptive(_) | Scheme::Fixed(_) => Vec::new(),
        }
    }

    fn call(
        &self,
        world: &mut World,
        (gateway, host, n): (HostId, HostId, u16),
        hop: &Hop,
        (start, offset): (Time, Duration),
        due: &[Duration],
    ) -> Result<Ends, PointError> {
        let (port, to) = (CALLS + n, world.endpoint(host, PORT));
        if let Scheme::Adaptive(_) | Scheme::Fixed(_) = self.scheme {
            return self.coded(world, [(gateway, port), (host, PORT)], n, hop, (start, offset));
        }
        let bytes = TFRC_PACKET - Protocol::DCCP.headers(IpVersion::V4);
        let config = tfrc::Config::basic(bytes as u16);
        let due: Rc<[Time]> = match self.scheme {
            _ if n < self.adaptive => due.iter().map(|due| start + *due).collect(),
            Scheme::Greedy => (0..self.packets()).map(|n| start + n * PACKET).collect(),
            _ => due.iter().step_by(2).map(|due| start + *due).collect(),
        };
        let room = if let Scheme::Tfrc = self.scheme { OUTBOUND } else { due.len() };
        let flow = flow::Flow { id: u32::from(n), due, bytes, tos: self.tos(), config };
        let sink = world.bind(host, Protocol::DCCP, PORT, flow::Sink::new(PORT, &flow))?;
        let source = flow::Source::new(port, to, flow, room, world.now());
        Ok(Ends::Tfrc(world.bind(gateway, Protocol::DCCP, port, source)?, sink))
    }

    /// The `n`th call with a codec, from one host and port to another, beside those that share
    /// `hop`.
    fn coded(
        &self,
        world: &mut World,
        [(from, port), (to, port_there)]: [(HostId, u16); 2],
        n: u16,
        hop: &Hop,
        (start, offset): (Time, Duration),
    ) -> Result<Ends, PointError> {
        let coding = match self.scheme {
            Scheme::Adaptive(config) if n < self.adaptive => {
                let config = vegas::Config { interval: self.report, ..config };
                Coding::Adaptive(CodecRate::Kbps64, config)
            }
            Scheme::Fixed(rate) if n < self.adaptive => Coding::Fixed(rate),
            _ => Coding::Fixed(CodecRate::Kbps64),
        };
        let call = Call { start, packets: self.packets(), tos: self.tos() };
        let [here, there] = [world.endpoint(from, port), world.endpoint(to, port_there)];
        let mut sender = Gateway::new(port, there, call, coding).beside(hop);
        if let Some(most) = self.fec {
            sender = sender.with_fec(most);
        }
        let station = Station::new(port_there, here, call, self.report, offset);
        let sender = world.bind(from, Protocol::UDP, port, sender)?;
        Ok(Ends::Codec(sender, world.bind(to, Protocol::UDP, port_there, station)?))
    }

    /// Rate of the copies of speech that was sent at `rate`.
    fn again(&self, rate: CodecRate) -> CodecRate {
        match (self.scheme, self.fec) {
            (Scheme::Adaptive(config), Some(most)) if config.fec.kind == FecKind::Copies => {
                rate.min(most)
            }
            _ => rate,
        }
    }

    fn outcome(&self, world: &World, ends: &Ends) -> CallOutcome {
        match *ends {
            Ends::Codec(gateway, station) => {
                let (gateway, station) = (world.agent(gateway), world.agent(station));
                let packet = |((s, arrived), repaired): ((&coded::Sent, _), &Option<Time>)| {
                    let (bytes, ie) = (s.rate.payload_bytes(PACKET), impairment(s.rate));
                    let repaired = repaired.filter(|_| self.repairs);
                    let repaired = repaired.map(|at| (at, impairment(self.again(s.rate))));
                    let arrived: &Option<Time> = arrived;
                    let (due, at, arrived) = (s.at, s.at, *arrived);
                    let added = s.added + HEADERS * usize::from(s.parity);
                    Sent { due, at, bytes, arrived, ie, repaired, added }
                };
                let came = station.arrived().iter().zip(station.repaired());
                let all = gateway.sent().iter().zip(came).map(|(s, (a, b))| ((s, a), b));
                let packets = all.map(packet).collect();
                CallOutcome { packets, unsent: 0, verdicts: gateway.verdicts() }
            }
            Ends::Tfrc(source, sink) => {
                let (source, sink) = (world.agent(source), world.agent(sink));
                let end = Time::ZERO + START + self.length;
                let all = source.sent().iter().zip(sink.arrived()).zip(source.due());
                let packet = |((sent, arrived), due): ((&flow::Sent, &Option<Time>), &Time)| {
                    let flow::Sent::At(at) = *sent else { return None };
                    let bytes = TFRC_PACKET - HEADERS;
                    let (due, arrived) = (*due, *arrived);
                    Some(Sent { due, at, bytes, arrived, ie: 0.0, repaired: None, added: 0 })
                };
                // A greedy flow continues to send while packets of calls are waited for.
                let packets: Vec<Sent> = all.filter_map(packet).filter(|s| s.at < end).collect();
                let unsent = match self.scheme {
                    Scheme::Greedy => 0,
                    _ => source.sent().len() - packets.len(),
                };
                CallOutcome { packets, unsent, verdicts: Verdicts::default() }
            }
        }
    }

    fn seen(&self, outcomes: &[CallOutcome], others: u64, losses: [u64; 2]) -> RunSummary {
        let seconds = self.length.as_secs_f64();
        let all = || outcomes.iter().flat_map(|o| &o.packets);
        let delays = || all().filter_map(|s| Some(ms(s.arrived?.since(s.at))));
        let (arrived, heard) =
            (delays().count() as f64, all().filter_map(Sent::heard).count() as f64);
        let due = all().count() + outcomes.iter().map(|o| o.unsent).sum::<usize>();
        let rates: Vec<f64> = outcomes.iter().map(|o| o.bytes(HEADERS) / 1e3 / seconds).collect();
        let variations = outcomes.iter().map(|o| o.variation_pct(self.length));
        let varied: Vec<f64> = variations.filter(|v| !v.is_nan()).collect();
        let jitters = outcomes.iter().map(CallOutcome::jitter_ms);
        let jitters: Vec<f64> = jitters.filter(|j| !j.is_nan()).collect();
        let mean = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>() / outcomes.len() as f64;
        let real_time = !matches!(self.scheme, Scheme::Greedy);
        let sum = |of: fn(&Verdicts) -> u64| outcomes.iter().map(|o| of(&o.verdicts)).sum::<u64>();
        RunSummary {
            mean_ms: delays().sum::<f64>() / arrived,
            max_ms: delays().fold(f64::NAN, f64::max),
            lost_pct: 100.0 * (1.0 - arrived / due as f64),
            missed_pct: 100.0 * (1.0 - heard / due as f64),
            sent: mean(&mut outcomes.iter().map(|o| o.sent() / 1e3 / seconds)),
            bandwidth: mean(&mut rates.iter().copied()),
            payload: mean(&mut outcomes.iter().map(|o| o.bytes(0) / 1e3 / seconds)),
            variation_pct: varied.iter().sum::<f64>() / varied.len() as f64,
            fairness: fairness(&rates),
            jitter_ms: jitters.iter().sum::<f64>() / jitters.len() as f64,
            r: if real_time { mean(&mut outcomes.iter().map(CallOutcome::r)) } else { f64::NAN },
            background: others as f64 * (8 * BACKGROUND_PACKET) as f64 / 1e6 / seconds,
            verdicts: Verdicts { congestion: sum(|v| v.congestion), wireless: sum(|v| v.wireless) },
            losses,
            first: outcomes
                .first()
                .map_or_else(Vec::new, |o| o.packets.iter().map(Sent::rate).collect()),
        }
    }
}

/// A traffic specification for the calls to a station, as for G.711.
fn stream(station: u16, max_service_interval: Duration) -> Stream {
    let bytes = HEADERS + CodecRate::Kbps64.payload_bytes(PACKET);
    Stream {
        station,
        priority: 6,
        ways: StreamDirection::Down,
        mean_rate: Bitrate::from_bps(8 * 50 * bytes as u64),
        nominal: bytes as u32,
        maximum: bytes as u32,
        max_service_interval,
    }
}

/// A random number, uniform in [0, 1).
fn unit(rng: &mut Rng) -> f64 {
    f64::from(rng.next_u32()) / 4_294_967_296.0
}
