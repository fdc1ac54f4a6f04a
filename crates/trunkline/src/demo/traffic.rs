//! The applications of a demo: callers at the first node, listeners at the
//! last, every service at the same time.

use super::chain::{self, Chain, Row};
use super::voices::Voice;
use super::{DEADLINE, Error, cannot};
use crate::call::line::{Line, Target};
use crate::call::{SAMPLES, sleep_until};
use crate::clock;
use crate::stop::Signals;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::{Address, DatagramSocket, NodeId, Service, SocketOption};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtp::{self, Packetizer, Stream};

/// The services that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Udp,
    BestEffort,
    /// Real time as in the paper, through a row of nodes of its own.
    Once,
    RealTime,
    /// Real time through a row with a trunk between its two end nodes.
    Trunk,
}

impl Kind {
    pub const ALL: [Kind; 5] =
        [Kind::Udp, Kind::BestEffort, Kind::Once, Kind::RealTime, Kind::Trunk];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Udp => "udp",
            Kind::BestEffort => "best-effort",
            Kind::Once => "once",
            Kind::RealTime => "real-time",
            Kind::Trunk => "trunk",
        }
    }

    /// Row of nodes that the service crosses; `None` for plain UDP.
    pub fn row(self) -> Option<Row> {
        match self {
            Kind::Udp => None,
            Kind::Once => Some(Row::Paper),
            Kind::Trunk => Some(Row::Trunk),
            Kind::BestEffort | Kind::RealTime => Some(Row::Default),
        }
    }
}

/// Speech of all calls, with speakers and timing.
pub struct Plan {
    /// Samples of each call, a whole number of packets.
    pub speech: Vec<Vec<i16>>,
    /// Name of the speaker in each call.
    pub speakers: Vec<String>,
    /// µ-law codes of the speech.
    codes: Vec<Vec<u8>>,
    pub calls: usize,
    /// Number of packets in each call.
    pub packets: usize,
}

/// Interval between two packets of a call.
pub const INTERVAL: Duration = Duration::from_millis(20);

/// Interval between the starts of two calls.
const STAGGER: Duration = Duration::from_millis(250);

/// Time after the last packet in which packets in flight may arrive.
const DRAIN: Duration = Duration::from_millis(700);

impl Plan {
    /// Plans `calls` calls of `seconds` each, assigning the voices in turn.
    pub fn new(voices: &[Voice], calls: usize, seconds: usize) -> Plan {
        let packets = seconds * 50;
        let speech = |call: usize| {
            let voice = &voices[call % voices.len()].pcm;
            // Two calls with the same voice are offset in time.
            let skip = call / voices.len() * 7 * 8_000;
            voice.iter().copied().cycle().skip(skip).take(packets * SAMPLES).collect()
        };
        let speech: Vec<Vec<i16>> = (0..calls).map(speech).collect();
        let code = |pcm: &Vec<i16>| pcm.iter().map(|s| Law::Mu.encode(*s)).collect();
        let speakers = (0..calls).map(|call| voices[call % voices.len()].name.clone()).collect();
        Plan { codes: speech.iter().map(code).collect(), speakers, speech, calls, packets }
    }

    /// Time after the start at which packet `k` of call `call` is due. The calls are spread evenly
    /// over 20 ms, as independent callers would be on average.
    fn due(&self, call: usize, k: usize) -> Duration {
        STAGGER * call as u32 + INTERVAL * call as u32 / self.calls as u32 + INTERVAL * k as u32
    }

    pub fn duration(&self) -> Duration {
        self.due(self.calls - 1, self.packets) + DRAIN
    }
}

/// Arrival time of a packet, and whether it was recovered.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at: Time,
    pub recovered: bool,
}

/// Times of one packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Time that it was sent; `None` if the application could not send it.
    pub sent: Option<Time>,
    pub arrival: Option<Arrival>,
}

/// Fates of all packets, by kind, call and packet.
pub struct Traffic {
    packets: Vec<Packet>,
    per_kind: usize,
    per_call: usize,
    /// Number of packets that arrived twice.
    pub duplicates: u64,
    /// Times at which a node was killed and restarted.
    pub outage: Option<(Time, Time)>,
}

impl Traffic {
    fn new(plan: &Plan) -> Traffic {
        let per_kind = plan.calls * plan.packets;
        Traffic {
            packets: vec![Packet::default(); per_kind * Kind::ALL.len()],
            per_kind,
            per_call: plan.packets,
            duplicates: 0,
            outage: None,
        }
    }

    /// The packets of one call over one service.
    pub fn call(&self, kind: Kind, call: usize) -> &[Packet] {
        let start = kind as usize * self.per_kind + call * self.per_call;
        &self.packets[start..start + self.per_call]
    }

    fn at(&mut self, kind: usize, call: usize, k: usize) -> Option<&mut Packet> {
        let inside = kind < Kind::ALL.len() && call * self.per_call < self.per_kind;
        let index = kind * self.per_kind + call * self.per_call + k;
        (inside && k < self.per_call).then(|| &mut self.packets[index])
    }
}

/// The line of a call over one service, and its destination.
struct Caller {
    line: Line,
    to: Target,
}

/// Plays the plan through the chain. `restart` is the node that is killed half-way.
pub fn run(
    plan: &Plan,
    chain: &mut Chain,
    restart: Option<u32>,
    stop: &Signals,
) -> Result<Traffic, Error> {
    let (callers, listeners) = open(plan, chain)?;
    let done = AtomicBool::new(false);
    let start = clock::now() + Duration::from_millis(50);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(plan, &callers, start, &done));
        let receiver = scope.spawn(|| receive(plan, &listeners, &done));
        // Either thread ends early only if it failed.
        let failed = || receiver.is_finished() || sender.is_finished();
        let outage = watch(plan, chain, restart, (start, stop), &failed);
        if outage.is_err() {
            done.store(true, Ordering::Relaxed);
        }
        let sent = sender.join().map_err(|_| Error::Process("the callers panicked".into()))?;
        done.store(true, Ordering::Relaxed);
        let received =
            receiver.join().map_err(|_| Error::Process("the listeners panicked".into()))?;
        let (sent, mut traffic) = (sent?, received?);
        for (packet, sent) in traffic.packets.iter_mut().zip(sent) {
            packet.sent = sent;
        }
        traffic.outage = outage?;
        Ok(traffic)
    })
}

/// Shows progress until the calls end, and kills a node half-way.
fn watch(
    plan: &Plan,
    chain: &mut Chain,
    restart: Option<u32>,
    (start, stop): (Time, &Signals),
    failed: &dyn Fn() -> bool,
) -> Result<Option<(Time, Time)>, Error> {
    let bar = ProgressBar::new(plan.duration().as_secs());
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} s, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("{} calls over {} services each", plan.calls, Kind::ALL.len()));
    let (end, middle) = (start + plan.duration(), start + plan.duration() / 2);
    let mut outage = None;
    while clock::now() < end && !failed() {
        bar.set_position(clock::now().since(start).as_secs());
        if let Some(index) = restart
            && outage.is_none()
            && clock::now() >= middle
        {
            let died = clock::now();
            chain.kill(index)?;
            std::thread::sleep(Duration::from_millis(300));
            chain.revive(index)?;
            outage = Some((died, clock::now()));
        }
        if stop.wait(end.since(clock::now()).min(Duration::from_millis(100))) {
            return Err(Error::Interrupted);
        }
    }
    bar.finish_and_clear();
    Ok(outage)
}

/// Opens the callers, by kind and call, and the listeners.
fn open(plan: &Plan, chain: &mut Chain) -> Result<(Vec<Caller>, Vec<Line>), Error> {
    let overlay = |e: trunkline_client::Error| Error::Process(e.to_string());
    let mut callers = Vec::new();
    let mut listeners = Vec::new();
    for kind in Kind::ALL {
        for call in 0..plan.calls {
            let Some(row) = kind.row() else { continue };
            let (near, far, node) = chain.ends(row);
            let port = 5_000 + (kind as usize * plan.calls + call) as u16;
            let to = Target::Overlay(Address { node: NodeId(node), port });
            let caller = DatagramSocket::bind(near.as_path(), 0).map_err(overlay)?;
            let service = match kind {
                Kind::Udp | Kind::BestEffort => Service::BestEffort,
                Kind::Once | Kind::RealTime | Kind::Trunk => Service::RealTime,
            };
            caller.set_option(SocketOption::Service(service)).map_err(overlay)?;
            caller.set_option(SocketOption::Deadline(DEADLINE)).map_err(overlay)?;
            callers.push(Caller { line: Line::Overlay(caller), to });
            let listener = DatagramSocket::bind(far.as_path(), port).map_err(overlay)?;
            listeners.push(Line::Overlay(listener));
        }
    }
    // The UDP calls share one pair of sockets, since their path supports one peer.
    let socket = UdpSocket::bind((chain::home(), 0)).map_err(cannot("bind a caller"))?;
    callers.push(Caller { line: Line::Udp(socket), to: Target::Udp(chain.udp_entry) });
    listeners.extend(chain.udp_exit.take().map(Line::Udp));
    for line in &listeners {
        line.set_patience(Duration::ZERO).map_err(|e| Error::Process(e.to_string()))?;
    }
    Ok((callers, listeners))
}

/// RTP source that identifies the kind and the call of a packet.
fn ssrc(kind: Kind, call: usize) -> u32 {
    (kind as u32) << 16 | call as u32
}

/// Sends every packet when it is due, and returns the times of sending.
fn send(
    plan: &Plan,
    callers: &[Caller],
    start: Time,
    done: &AtomicBool,
) -> Result<Vec<Option<Time>>, Error> {
    let mut schedule: Vec<(Duration, usize, usize)> = (0..plan.calls)
        .flat_map(|call| (0..plan.packets).map(move |k| (call, k)))
        .map(|(call, k)| (plan.due(call, k), call, k))
        .collect();
    schedule.sort_unstable();
    let mut packetizers: Vec<Packetizer> = Kind::ALL
        .into_iter()
        .flat_map(|kind| (0..plan.calls).map(move |call| ssrc(kind, call)))
        .map(|ssrc| Packetizer::new(Stream::g711(Law::Mu, ssrc)))
        .collect();
    let mut sent = vec![None; plan.calls * plan.packets * Kind::ALL.len()];
    let mut packet = [0; rtp::HEADER_LEN + SAMPLES];
    for (due, call, k) in schedule {
        sleep_until(start + due);
        if done.load(Ordering::Relaxed) {
            return Ok(sent);
        }
        let frame = &plan.codes[call][k * SAMPLES..(k + 1) * SAMPLES];
        for kind in Kind::ALL {
            // The only UDP caller comes after all the others.
            let caller = match kind {
                Kind::Udp => &callers[callers.len() - 1],
                _ => &callers[(kind as usize - 1) * plan.calls + call],
            };
            let packetizer = &mut packetizers[kind as usize * plan.calls + call];
            // 172 bytes hold the header and a frame.
            let n = packetizer.write(frame, &mut packet).unwrap_or(0);
            let now = clock::now();
            // Statuses are ignored: the report shows the losses and their times.
            let left = caller.line.send(&packet[..n], &caller.to, &mut |_| {});
            if left.map_err(|e| Error::Process(format!("a caller: {e}")))? {
                sent[(kind as usize * plan.calls + call) * plan.packets + k] = Some(now);
            }
        }
    }
    sleep_until(start + plan.duration());
    Ok(sent)
}

/// Records every arriving packet until `done`.
fn receive(plan: &Plan, listeners: &[Line], done: &AtomicBool) -> Result<Traffic, Error> {
    let poll = |e: nix::Error| Error::Io { what: "wait for packets".into(), source: e.into() };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(poll)?;
    for (line, i) in listeners.iter().zip(0..) {
        epoll.add(line, EpollEvent::new(EpollFlags::EPOLLIN, i)).map_err(poll)?;
    }
    let mut traffic = Traffic::new(plan);
    let mut events = [EpollEvent::empty(); 64];
    let mut buf = [0; 2_048];
    while !done.load(Ordering::Relaxed) {
        let n = match epoll.wait(&mut events, EpollTimeout::from(100u16)) {
            Err(nix::Error::EINTR) => 0,
            n => n.map_err(poll)?,
        };
        for event in &events[..n] {
            let line = &listeners[event.data() as usize];
            while let Some(got) =
                line.recv(&mut buf).map_err(|e| Error::Process(format!("a listener: {e}")))?
            {
                let at = clock::now();
                let Ok(view) = rtp::parse(&buf[..got.len]) else { continue };
                let (kind, call) = ((view.ssrc >> 16) as usize, (view.ssrc & 0xffff) as usize);
                let Some(packet) = traffic.at(kind, call, view.sequence.into()) else { continue };
                if packet.arrival.is_some() {
                    traffic.duplicates += 1;
                } else {
                    packet.arrival = Some(Arrival { at, recovered: got.recovered });
                }
            }
        }
    }
    Ok(traffic)
}

/// Payload of packet `k` of call `call`.
impl Plan {
    pub fn frame(&self, call: usize, k: usize) -> &[u8] {
        &self.codes[call][k * SAMPLES..(k + 1) * SAMPLES]
    }
}
