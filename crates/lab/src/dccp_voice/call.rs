//! One direction of a call over one transport and one path.

use super::transport::Transport;
use std::rc::Rc;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time, rng};
use trunkline_media::playout::adaptive;
use trunkline_media::playout::optimal::{self, Packet};
use trunkline_media::quality::reduced;
use trunkline_media::talk::{Framing, Model};
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::tfrc::Config;
use trunkline_sim::agent::tcp::{Messages, Profile, Schedule, Sink};
use trunkline_sim::agent::{talk, tfrc};
use trunkline_sim::{World, WorldError};

/// Largest queue of a TFRC sender, in packets (section III-C).
const OUTBOUND: usize = 5;
/// Largest queue of the router, in packets (section III-D).
const ROUTER: usize = 50;
/// When the talker begins; a TCP connection is established before.
const START: Duration = Duration::from_secs(10);
const LEAD: Duration = Duration::from_secs(8);
/// Time after the last packet within which packets still in flight are waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// The codecs of Table I.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// G.711: a packet of 160 bytes for 20 ms of speech.
    G711,
    /// G.729: a packet of 20 bytes for 20 ms of speech.
    G729,
}

impl Codec {
    /// Both codecs, in the order of the table.
    pub const ALL: [Codec; 2] = [Codec::G711, Codec::G729];

    /// The codec's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Codec::G711 => "G.711",
            Codec::G729 => "G.729",
        }
    }

    /// How the codec's frames fill packets.
    pub fn framing(self) -> Framing {
        match self {
            Codec::G711 => Framing::G711,
            Codec::G729 => Framing::G729,
        }
    }

    /// Coefficients of the impairment by loss (Table III).
    pub fn coefficients(self) -> reduced::Codec {
        match self {
            Codec::G711 => reduced::Codec::G711,
            Codec::G729 => reduced::Codec::G729,
        }
    }
}

/// The path between talker and listener.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// One-way delay in milliseconds.
    pub delay_ms: u32,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Whether the return direction, of reports and acknowledgments, has the same loss.
    pub both: bool,
}

impl Path {
    fn links(&self) -> [LinkModel; 2] {
        let clean = LinkModel {
            rate: Some(Bitrate::from_bps(1_000_000_000)),
            delay: Duration::from_millis(self.delay_ms.into()),
            queue: Queue::Packets(ROUTER),
            ..LinkModel::default()
        };
        let loss = if self.loss > 0.0 { Loss::Bernoulli { p: self.loss } } else { Loss::None };
        let lossy = LinkModel { loss, ..clean.clone() };
        let back = if self.both { lossy.clone() } else { clean };
        [lossy, back]
    }
}

/// The packets of a call.
#[derive(Clone, Debug)]
pub struct Call {
    codec: Codec,
    /// Time at which each packet is ready to be sent.
    due: Rc<[Time]>,
    /// The talkspurt of each packet.
    talkspurts: Vec<u32>,
}

impl Call {
    /// A call of `cycles` talkspurts, the same for both codecs.
    pub fn draw(codec: Codec, cycles: u32, seed: u64) -> Call {
        let model = Model { cycles, ..Model::default() };
        let packets = model.packets(codec.framing(), rng(seed, 0));
        let (due, talkspurts): (Vec<_>, _) = packets.map(|p| (p.time + START, p.talkspurt)).unzip();
        Call { codec, due: due.into(), talkspurts }
    }

    /// Times at which packets are ready to be sent, from the beginning of the call.
    pub fn due(&self) -> impl Iterator<Item = Duration> + '_ {
        self.due.iter().map(|due| due.since(Time::ZERO + START))
    }

    /// Time at which packet `n` is ready to be sent, by the clock of [`CallTrace::sent`].
    pub fn at(&self, n: usize) -> Time {
        self.due[n]
    }

    /// Carries the call over a path.
    pub fn carry(
        &self,
        transport: &Transport,
        path: &Path,
        seed: u64,
    ) -> Result<CallTrace, WorldError> {
        match transport {
            Transport::Udp => self.over_udp(path, seed),
            Transport::Tcp { profile, nodelay } => self.over_tcp(profile, *nodelay, path, seed),
            Transport::Tfrc(config) => self.over_tfrc(**config, path, seed),
        }
    }

    fn end(&self) -> Time {
        self.due.last().copied().unwrap_or(Time::ZERO + START)
    }

    /// The delay of each packet that arrived.
    fn delays(&self, arrived: &[Option<Time>]) -> Vec<Option<Duration>> {
        self.due.iter().zip(arrived).map(|(due, at)| at.map(|at| at.since(*due))).collect()
    }

    fn over_udp(&self, path: &Path, seed: u64) -> Result<CallTrace, WorldError> {
        let mut world = World::new(IpVersion::V4, seed);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let [there, back] = path.links();
        world.cable(a, b, there, back)?;
        let listener = talk::Listener::new(self.due.len());
        let listener = world.bind(b, Protocol::UDP, 80, listener)?;
        let bytes = self.codec.framing().payload();
        let talker = talk::Talker::new(4_000, world.endpoint(b, 80), self.due.clone(), bytes);
        world.bind(a, Protocol::UDP, 4_000, talker)?;
        world.run_until(self.end() + Duration::from_secs(10));
        let delays = self.delays(world.agent(listener).arrived());
        Ok(CallTrace { delays, sent: Vec::new() })
    }

    fn over_tcp(
        &self,
        profile: &Profile,
        nodelay: bool,
        path: &Path,
        seed: u64,
    ) -> Result<CallTrace, WorldError> {
        let mut world = World::new(IpVersion::V4, seed);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let [there, back] = path.links();
        world.cable(a, b, there, back)?;
        let bytes = self.codec.framing().payload();
        let sink = Sink::new(profile.clone(), 80, 7).with_messages(bytes);
        let sink = world.bind(b, Protocol::TCP, 80, sink)?;
        let schedule = Schedule { due: self.due.clone(), lead: LEAD, bytes };
        let (to, iss) = (world.endpoint(b, 80), seed as u32);
        let messages = Messages::new(profile.clone(), 4_000, to, iss, nodelay, schedule);
        world.bind(a, Protocol::TCP, 4_000, messages)?;
        let mut now = self.end();
        while world.agent(sink).delays().len() < self.due.len() && now < self.end() + PATIENCE {
            now += Duration::from_secs(5);
            world.run_until(now);
        }
        let arrived = world.agent(sink).delays().iter().copied().map(Some);
        let never = std::iter::repeat(None);
        let delays = arrived.chain(never).take(self.due.len()).collect();
        Ok(CallTrace { delays, sent: Vec::new() })
    }

    fn over_tfrc(&self, config: Config, path: &Path, seed: u64) -> Result<CallTrace, WorldError> {
        let mut world = World::new(IpVersion::V4, seed);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let [there, back] = path.links();
        world.cable(a, b, there, back)?;
        let bytes = self.codec.framing().payload();
        let flow = tfrc::Flow { id: 1, due: self.due.clone(), bytes, tos: 0, config };
        let sink = world.bind(b, Protocol::DCCP, 80, tfrc::Sink::new(80, &flow))?;
        let to = world.endpoint(b, 80);
        world.run_until(Time::ZERO + START);
        let source = tfrc::Source::new(4_000, to, flow, OUTBOUND, Time::ZERO + START);
        let source = world.bind(a, Protocol::DCCP, 4_000, source)?;
        world.run_until(self.end() + Duration::from_secs(10));
        let delays = self.delays(world.agent(sink).arrived());
        Ok(CallTrace { delays, sent: world.agent(source).sent().to_vec() })
    }

    /// Each packet with its talkspurt, as input of a playout.
    pub fn packets<'a>(&'a self, carried: &'a CallTrace) -> impl Iterator<Item = Packet> + 'a {
        let pairs = self.talkspurts.iter().zip(&carried.delays);
        pairs.map(|(&talkspurt, &delay)| Packet { talkspurt, delay })
    }

    /// The quality of the call with the best playout, with a delay of `fixed` on top of network and
    /// playout; `None` for a call without packets.
    pub fn best(&self, carried: &CallTrace, fixed: Duration) -> Option<optimal::PlayoutOutcome> {
        optimal::optimal(self.packets(carried), fixed, self.codec.coefficients())
    }

    /// The quality of the call with a playout that relies only on the packets that have arrived so
    /// far.
    pub fn adapted(
        &self,
        carried: &CallTrace,
        fixed: Duration,
        config: adaptive::Config,
    ) -> Option<optimal::PlayoutOutcome> {
        let sent = self.due.iter().copied().zip(self.packets(carried));
        let delays = adaptive::replay(sent, config);
        let delay = |talkspurt| delays.get(&talkspurt).copied();
        optimal::play(self.packets(carried), delay, fixed, self.codec.coefficients())
    }
}

/// The fate of a call's packets.
#[derive(Clone, Debug)]
pub struct CallTrace {
    /// Time from when each packet was ready to be sent to its arrival; `None` if it never arrived.
    pub delays: Vec<Option<Duration>>,
    /// The fate of each packet at a TFRC sender; empty for other transports, which send all.
    pub sent: Vec<tfrc::Sent>,
}

impl CallTrace {
    /// Number of packets that the sender's full queue refused, or never released.
    pub fn dropped(&self) -> usize {
        self.sent.iter().filter(|s| !matches!(s, tfrc::Sent::At(_))).count()
    }
}
