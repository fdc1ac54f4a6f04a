//! An access point, its stations, a call and a constant bit rate to each of them.

use crate::experiment::PointError;
use rand::Rng as _;
use std::rc::Rc;
use std::time::Duration;
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_media::quality::emodel::{self, Parameters};
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, AccessTable, DRAFT, STATION_2005};
use trunkline_net::wifi::{Config, Stream, Ways};
use trunkline_net::{Class, Protocol};
use trunkline_rate::tfrc;
use trunkline_rate::vegas::{self, CodecRate, FecKind};
use trunkline_sim::agent::adaptive::{
    self as coded, Call, Coding, Gateway, PACKET, Station, Verdicts,
};
use trunkline_sim::agent::tfrc as flow;
use trunkline_sim::agent::{AgentId, Cbr, Meter};
use trunkline_sim::{HostId, World};

/// Headers of IPv4, UDP and RTP, in bytes (Table 1).
pub const HEADERS: usize = 40;
/// The length of TFRC's packets in bytes, IP's header included (section 5).
pub const TFRC_PACKET: usize = 200;
/// The length of the other traffic's packets in bytes, IP's header included (section 5).
const BACKGROUND_PACKET: u64 = 1_500;
/// TOS bytes of DSCP EF, whose user priority is 6, and of CS1, whose is 1 (section 5).
const VOICE: u8 = 46 << 2;
const BACKGROUND: u8 = 8 << 2;

/// The call's port at its station; at the access point ports count up from [`CALLS`].
const PORT: u16 = 5_004;
const CALLS: u16 = 10_000;
const OTHERS: u16 = 20_000;
/// Of the calls of stations: their port there, and the first at the access point.
const UPWARDS: u16 = 5_008;
const UP: u16 = 30_000;
/// The ledgers of what calls send.
const CALL: Class = Class(1);
/// When everything begins, but for phases of its own.
const START: Duration = Duration::from_millis(100);
/// How long after its last packet a call is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Packets of a call that wait at a TFRC sender at most, as in Balan et al. 2007.
const OUTBOUND: usize = 5;
/// More packets a second than a cell carries of 200 bytes: an exchange takes 136 µs without
/// any contention.
const MOST: u32 = 7_400;
/// What a call's bandwidth is averaged over to see whether it is steady.
const BIN: Duration = Duration::from_secs(1);

/// How calls are sent.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// G.711 and G.726, by the control of the paper.
    Adaptive(vegas::Config),
    /// One codec for good.
    Fixed(CodecRate),
    /// The 50 packets a second of G.711, as far as TFRC lets them pass.
    Tfrc,
    /// As many packets as TFRC allows.
    Greedy,
}

/// How the access point gets at the channel.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// By contention, with the parameters of the drafts.
    Draft,
    /// By contention, with the parameters of the standard, whose access point has its own.
    Standard,
    /// As `Draft`, with calls in the queue of the other traffic.
    OneQueue,
    /// As `Standard`, but calls don't contend: the access point takes the channel for them
    /// once in so long at least.
    Polled(Duration),
}

/// One cell and what goes over it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Stations beside the access point, each with a call.
    pub calls: u16,
    /// How the calls are sent.
    pub scheme: Scheme,
    /// Calls from this one on are sent at 64 kbit/s for good.
    pub adaptive: u16,
    /// How the access point gets at the channel.
    pub access: Access,
    /// Whether stations send a call as well, the same way as theirs is sent; by codecs alone.
    pub both_ways: bool,
    /// Whether what the control asks for against losses is sent, and the highest rate of the
    /// speech in copies; none is without.
    pub fec: Option<CodecRate>,
    /// Whether what is sent again is made use of.
    pub repairs: bool,
    /// Of other traffic, to each station; none if zero.
    pub background: Bitrate,
    /// The probability of each bit to be wrong.
    pub bit_error_rate: f64,
    /// How often a packet is tried.
    pub attempts: u8,
    /// The packets that each queue holds.
    pub queue: usize,
    /// Between two reports of a station.
    pub report: Duration,
    /// How long calls are.
    pub length: Duration,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    due: Time,
    at: Time,
    /// Length of the payload, without headers.
    bytes: usize,
    arrived: Option<Time>,
    ie: f64,
    /// When its speech came with a packet behind it, and that speech's impairment.
    repaired: Option<(Time, f64)>,
    /// Bytes of earlier packets' speech in it, and of parity behind it with all its headers.
    added: usize,
}

impl Sent {
    /// The rate that it came at.
    fn rate(&self) -> Option<CodecRate> {
        self.arrived?;
        CodecRate::ALL.into_iter().find(|rate| rate.payload_bytes(PACKET) == self.bytes)
    }

    /// When its speech came first, and the impairment of what came.
    fn heard(&self) -> Option<(Time, f64)> {
        let itself = self.arrived.map(|at| (at, self.ie));
        match (itself, self.repaired) {
            (Some(a), Some(b)) if b.0 < a.0 => Some(b),
            _ => itself.or(self.repaired),
        }
    }
}

/// What became of a call.
struct Outcome {
    packets: Vec<Sent>,
    /// Packets that became due and never left.
    unsent: usize,
    verdicts: Verdicts,
}

/// What is seen of one run.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Of all packets of all calls that came, from leaving the gateway, in milliseconds.
    pub mean_ms: f64,
    /// The longest of the same.
    pub max_ms: f64,
    /// What didn't come, of what left or should have, in percent.
    pub lost_pct: f64,
    /// What didn't come with packets behind it either, in percent.
    pub missed_pct: f64,
    /// What is sent of a call in kilobytes a second, with headers and all that is sent again;
    /// the mean over calls.
    pub sent: f64,
    /// What came of a call in kilobytes (1,000) a second, with headers; the mean over calls.
    pub bandwidth: f64,
    /// The same without headers.
    pub payload: f64,
    /// The coefficient of variation of what came of a call in each second, in percent; the
    /// mean over calls of which anything came.
    pub variation_pct: f64,
    /// Jain's index of what came of the calls.
    pub fairness: f64,
    /// Of the E-model, the mean over calls; not a number for calls that aren't in real time.
    pub r: f64,
    /// What came of the other traffic, of all stations, in Mbit/s.
    pub background: f64,
    /// What the losses of reports were put down to.
    pub verdicts: Verdicts,
    /// Packets of calls that the access point's queues turned away, and that were given up
    /// after all attempts.
    pub losses: [u64; 2],
    /// The rate that each packet of the first call came at, if it came itself; as long as the
    /// call is by codecs.
    pub first: Vec<Option<CodecRate>>,
}

enum Ends {
    Codec(AgentId<Gateway>, AgentId<Station>),
    Tfrc(AgentId<flow::Source>, AgentId<flow::Sink>),
}

impl Setting {
    /// Carries all calls over the cell.
    pub fn run(&self, seed: u64) -> Result<Seen, PointError> {
        let mut world = World::new(seed);
        world.use_ipv4();
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
        let ends = stations.iter().zip(0..).map(|(&station, n)| {
            let (start, offset) = (phase(PACKET), phase(self.report).since(Time::ZERO + START));
            self.call(&mut world, (gateway, station, n), start, offset, &due)
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
                let (to, start) = (world.endpoint(station, PORT + 2), phase(spacing));
                let count = (self.length.as_nanos() / spacing.as_nanos()) as u64;
                let cbr = Cbr::udp_sizes(OTHERS + n, to, BACKGROUND, start, spacing, count);
                world.bind(gateway, Protocol::UDP, OTHERS + n, cbr)?;
                meters.push(world.bind(station, Protocol::UDP, PORT + 2, Meter::default())?);
            }
        }
        let up = stations.iter().zip(0..self.calls).filter(|_| self.both_ways).map(|(&host, n)| {
            let (start, offset) = (phase(PACKET), phase(self.report).since(Time::ZERO + START));
            let ends = [(host, UPWARDS), (gateway, UP + n)];
            let ends = self.coded(&mut world, ends, n, start, offset)?;
            world.set_class(host, Protocol::UDP, UPWARDS, CALL)?;
            Ok(ends)
        });
        ends.extend(up.collect::<Result<Vec<Ends>, PointError>>()?);
        world.run_until(Time::ZERO + START + self.length + PATIENCE);
        let others = meters.iter().map(|id| world.agent(*id).received.packets).sum::<u64>();
        let outcomes: Vec<Outcome> = ends.iter().map(|ends| self.outcome(&world, ends)).collect();
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

    /// When TFRC's packets become due, counted from a flow's start.
    fn due(&self) -> Vec<Duration> {
        match self.scheme {
            Scheme::Tfrc => (0..self.packets()).map(|n| n * PACKET).collect(),
            Scheme::Greedy => {
                vec![Duration::ZERO; (MOST * self.packets() / 50) as usize]
            }
            Scheme::Adaptive(_) | Scheme::Fixed(_) => Vec::new(),
        }
    }

    fn call(
        &self,
        world: &mut World,
        (gateway, host, n): (HostId, HostId, u16),
        start: Time,
        offset: Duration,
        due: &[Duration],
    ) -> Result<Ends, PointError> {
        let (port, to) = (CALLS + n, world.endpoint(host, PORT));
        if let Scheme::Adaptive(_) | Scheme::Fixed(_) = self.scheme {
            return self.coded(world, [(gateway, port), (host, PORT)], n, start, offset);
        }
        let bytes = TFRC_PACKET - (Protocol::DCCP.headers() - 20);
        let config = tfrc::Config::basic(bytes as u16);
        let due: Rc<[Time]> = due.iter().map(|due| start + *due).collect();
        let room = if let Scheme::Tfrc = self.scheme { OUTBOUND } else { due.len() };
        let flow = flow::Flow { id: u32::from(n), due, bytes, tos: self.tos(), config };
        let sink = world.bind(host, Protocol::DCCP, PORT, flow::Sink::new(PORT, &flow))?;
        let source = flow::Source::new(port, to, flow, room, world.now());
        Ok(Ends::Tfrc(world.bind(gateway, Protocol::DCCP, port, source)?, sink))
    }

    /// The `n`th call by a codec, from a host and port to another.
    fn coded(
        &self,
        world: &mut World,
        [(from, port), (to, port_there)]: [(HostId, u16); 2],
        n: u16,
        start: Time,
        offset: Duration,
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
        let mut sender = Gateway::new(port, there, call, coding);
        if let Some(most) = self.fec {
            sender = sender.with_fec(most);
        }
        let station = Station::new(port_there, here, call, self.report, offset);
        let sender = world.bind(from, Protocol::UDP, port, sender)?;
        Ok(Ends::Codec(sender, world.bind(to, Protocol::UDP, port_there, station)?))
    }

    /// The rate of what comes again of speech that was sent at `rate`.
    fn again(&self, rate: CodecRate) -> CodecRate {
        match (self.scheme, self.fec) {
            (Scheme::Adaptive(config), Some(most)) if config.fec.kind == FecKind::Copies => {
                rate.min(most)
            }
            _ => rate,
        }
    }

    fn outcome(&self, world: &World, ends: &Ends) -> Outcome {
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
                Outcome { packets, unsent: 0, verdicts: gateway.verdicts() }
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
                // A greedy flow goes on sending while calls are waited for.
                let packets: Vec<Sent> = all.filter_map(packet).filter(|s| s.at < end).collect();
                let unsent = match self.scheme {
                    Scheme::Greedy => 0,
                    _ => source.sent().len() - packets.len(),
                };
                Outcome { packets, unsent, verdicts: Verdicts::default() }
            }
        }
    }

    fn seen(&self, outcomes: &[Outcome], others: u64, losses: [u64; 2]) -> Seen {
        let seconds = self.length.as_secs_f64();
        let all = || outcomes.iter().flat_map(|o| &o.packets);
        let delays = || all().filter_map(|s| Some(ms(s.arrived?.since(s.at))));
        let (arrived, heard) =
            (delays().count() as f64, all().filter_map(Sent::heard).count() as f64);
        let due = all().count() + outcomes.iter().map(|o| o.unsent).sum::<usize>();
        let rates: Vec<f64> = outcomes.iter().map(|o| o.bytes(HEADERS) / 1e3 / seconds).collect();
        let variations = outcomes.iter().map(|o| o.variation_pct(self.length));
        let varied: Vec<f64> = variations.filter(|v| !v.is_nan()).collect();
        let mean = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>() / outcomes.len() as f64;
        let real_time = !matches!(self.scheme, Scheme::Greedy);
        let sum = |of: fn(&Verdicts) -> u64| outcomes.iter().map(|o| of(&o.verdicts)).sum::<u64>();
        Seen {
            mean_ms: delays().sum::<f64>() / arrived,
            max_ms: delays().fold(f64::NAN, f64::max),
            lost_pct: 100.0 * (1.0 - arrived / due as f64),
            missed_pct: 100.0 * (1.0 - heard / due as f64),
            sent: mean(&mut outcomes.iter().map(|o| o.sent() / 1e3 / seconds)),
            bandwidth: mean(&mut rates.iter().copied()),
            payload: mean(&mut outcomes.iter().map(|o| o.bytes(0) / 1e3 / seconds)),
            variation_pct: varied.iter().sum::<f64>() / varied.len() as f64,
            fairness: fairness(&rates),
            r: if real_time { mean(&mut outcomes.iter().map(Outcome::r)) } else { f64::NAN },
            background: others as f64 * (8 * BACKGROUND_PACKET) as f64 / 1e6 / seconds,
            verdicts: Verdicts { congestion: sum(|v| v.congestion), wireless: sum(|v| v.wireless) },
            losses,
            first: outcomes
                .first()
                .map_or_else(Vec::new, |o| o.packets.iter().map(Sent::rate).collect()),
        }
    }
}

impl Outcome {
    /// Of all packets that came, with so many bytes of headers on each.
    fn bytes(&self, headers: usize) -> f64 {
        let came = self.packets.iter().filter(|s| s.arrived.is_some());
        came.map(|s| (s.bytes + headers) as f64).sum()
    }

    /// Bytes of all that left, with headers and what was sent again.
    fn sent(&self) -> f64 {
        self.packets.iter().map(|s| (HEADERS + s.bytes + s.added) as f64).sum()
    }

    /// Not a number if nothing came.
    fn variation_pct(&self, length: Duration) -> f64 {
        let mut bins = vec![0.0; (length.as_nanos() / BIN.as_nanos()).max(1) as usize];
        for s in &self.packets {
            let since =
                s.arrived.map(|at| at.since(Time::ZERO + START).as_nanos() / BIN.as_nanos());
            if let Some(bin) = since.and_then(|n| bins.get_mut(n as usize)) {
                *bin += (s.bytes + HEADERS) as f64;
            }
        }
        let n = bins.len() as f64;
        let mean = bins.iter().sum::<f64>() / n;
        let squares: f64 = bins.iter().map(|b| (b - mean) * (b - mean)).sum();
        100.0 * libm::sqrt(squares / n) / mean
    }

    /// R with the mean of the codecs' impairments, played out so late that what comes is in
    /// time. From mouth to ear there are a packet's 20 ms, that playout, and nothing else: no
    /// wired part.
    fn r(&self) -> f64 {
        let packets = self.packets.len() as f64;
        let delays = || self.packets.iter().filter_map(|s| Some(s.heard()?.0.since(s.due)));
        let Some(playout) = delays().max() else { return 0.0 };
        let missed = 1.0 - delays().count() as f64 / (packets + self.unsent as f64);
        let ie = |s: &Sent| s.heard().map_or(s.ie, |(_, ie)| ie);
        let ie = self.packets.iter().map(ie).sum::<f64>() / packets;
        let codec = emodel::Codec { ie, ..emodel::Codec::G711_PLC };
        let parameters = Parameters::default().with_codec(codec).with_delay(PACKET + playout);
        emodel::rate(&parameters.with_loss(missed, 1.0)).r.max(0.0)
    }
}

/// Ie of G.711 and G.726 (ITU-T G.113, appendix I). It has no Bpl for G.726: that of G.711 with
/// concealment is taken for all.
fn impairment(rate: CodecRate) -> f64 {
    match rate {
        CodecRate::Kbps16 => 50.0,
        CodecRate::Kbps24 => 25.0,
        CodecRate::Kbps32 => 7.0,
        CodecRate::Kbps40 => 2.0,
        CodecRate::Kbps64 => 0.0,
    }
}

/// Jain's index (5): 1 if all are alike, 1/n if one has everything.
fn fairness(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
    sum * sum / (rates.len() as f64 * squares)
}

/// A traffic specification for the calls to a station, as for G.711.
fn stream(station: u16, max_service_interval: Duration) -> Stream {
    let bytes = HEADERS + CodecRate::Kbps64.payload_bytes(PACKET);
    Stream {
        station,
        priority: 6,
        ways: Ways::Down,
        mean_rate: Bitrate::from_bps(8 * 50 * bytes as u64),
        nominal: bytes as u32,
        maximum: bytes as u32,
        max_service_interval,
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Uniform in [0, 1).
fn unit(rng: &mut Rng) -> f64 {
    f64::from(rng.next_u32()) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_rate::vegas::FecConfig;

    const SETTING: Setting = Setting {
        calls: 2,
        scheme: Scheme::Fixed(CodecRate::Kbps64),
        adaptive: u16::MAX,
        access: Access::Draft,
        both_ways: false,
        fec: None,
        repairs: true,
        background: Bitrate::from_bps(0),
        bit_error_rate: 0.0,
        attempts: 7,
        queue: 50,
        report: Duration::from_millis(100),
        length: Duration::from_secs(4),
    };

    #[test]
    fn an_index_of_fairness() {
        assert_eq!(fairness(&[3.0; 7]), 1.0);
        assert_eq!(fairness(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn idle_cells_carry_everything_at_once() {
        let seen = SETTING.run(1).unwrap();
        // 50 packets of 200 bytes, 160 of them speech; 76 µs on the air and a slot at most,
        // unless the other call or a report is before it.
        assert!((0.076..0.1).contains(&seen.mean_ms), "{seen:?}");
        assert_eq!((seen.bandwidth, seen.payload, seen.lost_pct), (10.0, 8.0, 0.0));
        assert_eq!(
            (seen.fairness, seen.background, seen.verdicts),
            (1.0, 0.0, Verdicts::default())
        );
        assert_eq!(seen.losses, [0, 0]);
        // 93.2 less the delay of 20 ms.
        assert!((92.0..93.3).contains(&seen.r), "{seen:?}");
        let polled = Setting { access: Access::Polled(Duration::from_millis(20)), ..SETTING };
        let seen = polled.run(1).unwrap();
        // Once in 17 ms.
        assert!((5.0..12.0).contains(&seen.mean_ms) && seen.max_ms < 18.0, "{seen:?}");
    }

    #[test]
    fn calls_go_both_ways() {
        let seen = Setting { both_ways: true, ..SETTING }.run(1).unwrap();
        // As much of each way, and now and then two or three before one.
        assert_eq!((seen.bandwidth, seen.payload, seen.lost_pct), (10.0, 8.0, 0.0));
        assert!((0.076..0.2).contains(&seen.mean_ms), "{seen:?}");
        assert!((92.0..93.3).contains(&seen.r), "{seen:?}");
    }

    /// One wrong bit of 20,000, and one attempt: of packets of 238 bytes and 72 of preamble
    /// and more about a tenth is lost, of those with a copy a sixth; with parity no more than
    /// without.
    #[test]
    fn what_is_lost_comes_again() {
        let copying = vegas::Config::default();
        let fec = FecConfig { kind: FecKind::Parity, ..copying.fec };
        let [copying, parity] = [copying, vegas::Config { fec, ..copying }].map(Scheme::Adaptive);
        let bare = Setting { scheme: copying, bit_error_rate: 5e-5, attempts: 1, ..SETTING };
        let fec = Some(CodecRate::Kbps64);
        let with = |scheme| Setting { scheme, fec, ..bare };
        let [bare, copied, parity] =
            [bare, with(copying), with(parity)].map(|setting| setting.run(1).unwrap());
        assert_eq!((bare.lost_pct, bare.sent), (bare.missed_pct, 10.0));
        for seen in [&bare, &parity] {
            assert!((5.0..15.0).contains(&seen.lost_pct), "{seen:?}");
        }
        for seen in [&copied, &parity] {
            assert!(seen.missed_pct < seen.lost_pct / 3.0, "{seen:?}");
            assert!(seen.r > bare.r + 5.0, "{bare:?} {seen:?}");
        }
        // At most one packet of parity to each of 200 bytes.
        assert!(copied.sent > 17.0 && (15.0..20.7).contains(&parity.sent), "{parity:?}");
    }

    #[test]
    fn tfrc_is_held_to_the_codec_or_to_the_cell() {
        let seen = Setting { scheme: Scheme::Tfrc, ..SETTING }.run(1).unwrap();
        assert!((9.5..10.1).contains(&seen.bandwidth), "{seen:?}");
        let seen = Setting { scheme: Scheme::Greedy, ..SETTING }.run(1).unwrap();
        assert!(seen.bandwidth > 100.0 && seen.r.is_nan(), "{seen:?}");
    }

    #[test]
    fn who_does_not_adapt_has_more() {
        let background = Bitrate::from_bps(15_000_000);
        let scheme = Scheme::Adaptive(vegas::Config::paper());
        let all = Setting { background, scheme, ..SETTING };
        let half = Setting { adaptive: 1, ..all };
        let [all, half] = [all, half].map(|setting| setting.run(1).unwrap());
        assert!(half.bandwidth > all.bandwidth + 1.0 && half.fairness < 0.95, "{all:?} {half:?}");
        assert!(all.r < half.r, "{all:?} {half:?}");
    }
}
