//! A gateway full of calls, compared with another relay: its processor time, the delay of packets,
//! the number that pass without loss, and the share that passes at twice the load. Kamailio with
//! rtpengine carries the same calls from the same `sipp` in the same run.

mod numbered;
mod rtpengine;

use super::proxy::Sipp;
use super::{Error, Gateways, Network, Options, Place, SITE_A, SITE_B, cannot, run};
use numbered::{Listener, Outcome, Phase};
use rtpengine::Rtpengine;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const CALLS: &str = include_str!("../../tests/sipp/calls.xml");
const ANSWERS: &str = include_str!("../../tests/sipp/answers.xml");

/// Action that makes sipp send speech, in [`CALLS`].
const SPEAKS: &str =
    "<nop><action><exec rtp_stream=\"speech.ul,-1,0,PCMU/8000\"/></action></nop>\n";

/// Time over which the calls are measured once all have begun.
const LOOK: Duration = Duration::from_secs(5);

/// Number of calls that carry numbered packets.
const SILENT: usize = 50;

/// First port on which those packets are expected.
const PORT: u16 = 30_100;

/// A packet that took longer is too late to be played: a jitter buffer of usual size.
const PATIENCE: Duration = Duration::from_millis(60);

/// Share of lost packets that still counts as no loss.
const NOTHING: f64 = 0.001;

/// The system that relays the calls, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// No relay: routers forward the packets.
    Straight,
    /// A gateway between two phones that both use it, with UDP on both sides.
    One,
    /// Two gateways with the overlay between them.
    Two,
    /// The same, with a trunk in each direction, so that packets of several calls share datagrams.
    Trunk,
    /// Kamailio, with rtpengine in user space.
    Rtpengine,
}

/// All systems, in the order in which they are measured.
pub const SYSTEMS: [System; 5] =
    [System::Straight, System::One, System::Rtpengine, System::Two, System::Trunk];

impl System {
    /// The system's name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            System::Straight => "straight",
            System::One => "one gateway",
            System::Two => "two gateways",
            System::Trunk => "two, with trunks",
            System::Rtpengine => "rtpengine",
        }
    }
}

/// Number of calls that a system is given.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of simultaneous calls.
    pub calls: u32,
    /// Number of calls that begin per second.
    pub rate: u32,
}

/// Results of a system with the calls that it was given.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Number of calls that began.
    pub calls: u64,
    /// Number of calls that failed.
    pub failed: u64,
    /// Packets per second that reached the phones.
    pub passed: f64,
    /// Processor usage of each process as a share of one processor, by its role.
    pub cpu: Vec<(&'static str, f64)>,
    /// One-way delay of packets: the median and the 99th percentile.
    pub ways: Option<[Duration; 2]>,
    /// Packet rate that passes without loss, and the share that passes at twice that rate.
    pub limit: Limit,
}

impl Measured {
    /// Number of the plan's calls that would fill one processor, from the time of all processes
    /// together; `None` if a call failed, or nothing relayed.
    pub fn calls_per_core(&self, plan: Plan) -> Option<f64> {
        let took: f64 = self.cpu.iter().map(|(_, share)| share).sum();
        (self.failed == 0 && took > 0.0).then(|| f64::from(plan.calls) / took)
    }
}

/// Packet rate of calls in one direction that passes without loss, and the effect of twice that
/// rate, with half of it before and after.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Packets per second that passed without loss. The true limit is higher if the load could not
    /// offer more.
    pub lossless: f64,
    /// Whether the load generator could not offer more.
    pub is_of_load: bool,
    /// Share lost at half the rate, before the overload.
    pub lost_before: f64,
    /// Packets per second offered as twice the rate, for two seconds.
    pub offered: f64,
    /// Share of them that passed.
    pub passed: f64,
    /// Time from the end of the overload until the last packet missed at half the rate.
    pub healed: Duration,
    /// Share lost at half the rate, from a second after the overload on.
    pub lost_after: f64,
}

enum Running {
    Nothing,
    Ours(Gateways),
    Theirs(Rtpengine),
}

impl Running {
    fn start(
        system: System,
        network: &Network,
        trunkline: &Path,
        folder: &Path,
    ) -> Result<Running, Error> {
        let options = |only_first: bool, trunk| Options {
            direct: !only_first,
            only_first,
            trunk,
            ..Options::default()
        };
        let ours = |only_first, trunk| {
            Gateways::start(network, trunkline, folder, &options(only_first, trunk))
        };
        Ok(match system {
            System::Straight => Running::Nothing,
            System::One => Running::Ours(ours(true, false)?),
            System::Two => Running::Ours(ours(false, false)?),
            System::Trunk => Running::Ours(ours(false, true)?),
            System::Rtpengine => Running::Theirs(Rtpengine::start(network, folder)?),
        })
    }

    fn processes(&self) -> Vec<(&'static str, u32)> {
        match self {
            Running::Nothing => Vec::new(),
            Running::Ours(gateways) => gateways.processes(),
            Running::Theirs(both) => both.processes(),
        }
    }
}

/// Makes `system` relay calls according to `plan`, and then increasingly many packets.
pub fn measure(
    system: System,
    plan: Plan,
    trunkline: &Path,
    folder: &Path,
) -> Result<Measured, Error> {
    let network = Network::new()?;
    let running = Running::start(system, &network, trunkline, folder)?;
    let write = |name: &str, text: &[u8]| {
        fs::write(folder.join(name), text).map_err(cannot("write a file for sipp"))
    };
    write("calls.xml", CALLS.as_bytes())?;
    write("answers.xml", ANSWERS.as_bytes())?;
    let silent = CALLS.replace(SPEAKS, "").replace("[rtpstream_audio_port]", "20000");
    write("silent.xml", silent.as_bytes())?;
    write("silent-answers.xml", ANSWERS.replace("[media_port]", &PORT.to_string()).as_bytes())?;
    // A second of a constant sample stands for speech.
    write("speech.ul", &[0xd5; 8_000])?;
    let stage = Stage { system, network: &network, folder };
    let _callee = stage.sipp(Place::PhoneB, 5_080, "answers", &["-rtp_echo"])?;
    let _silent = stage.sipp(Place::PhoneB, 5_083, "silent-answers", &[])?;
    let mut listener = Listener::start(&network, Place::PhoneB, PORT)?;
    let mut measured = stage.full(plan, &running, &mut listener)?;
    measured.limit = stage.limit(&mut listener)?;
    Ok(measured)
}

struct Stage<'a> {
    system: System,
    network: &'a Network,
    folder: &'a Path,
}

impl Stage<'_> {
    fn sipp(&self, place: Place, port: u16, scenario: &str, args: &[&str]) -> Result<Sipp, Error> {
        let address = if place == Place::PhoneA { SITE_A[0] } else { SITE_B[0] };
        let scenario = self.folder.join(scenario).with_extension("xml");
        Sipp::start(self.network, (place, address, port), self.folder, &scenario, args)
    }

    /// Address to which a caller sends its requests.
    fn proxy(&self, callee: u16) -> String {
        match self.system {
            System::Straight => format!("{}:{callee}", SITE_B[0]),
            _ => format!("{}:5060", SITE_A[1]),
        }
    }

    /// Destination for packets of a call that was answered with `port`.
    fn relay(&self, port: u16) -> SocketAddr {
        let host = if self.system == System::Straight { SITE_B[0] } else { SITE_A[1] };
        SocketAddr::new(host.parse().expect("an address of ours"), port)
    }

    /// Calls of sipp without media, and the addresses at which their media are expected.
    fn silent(&self, name: &str, calls: usize) -> Result<(Sipp, Vec<SocketAddr>), Error> {
        let (log, many) = (format!("{name}.log"), calls.to_string());
        let args = [
            &self.proxy(5_083),
            "-s",
            name,
            "-key",
            "callee",
            "5083",
            "-r",
            "50",
            "-l",
            &many,
            "-m",
            &many,
            "-d",
            "600000",
            "-trace_logs",
            "-log_file",
            &log,
        ];
        let port = if calls == 1 { 5_081 } else { 5_082 };
        let sipp = self.sipp(Place::PhoneA, port, "silent", &args)?;
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let said = fs::read_to_string(self.folder.join(&log)).unwrap_or_default();
            let ports: Vec<u16> =
                said.lines().filter_map(|line| line.trim().parse().ok()).collect();
            if ports.len() == calls {
                // The last call has to be acknowledged too.
                sleep(Duration::from_millis(300));
                return Ok((sipp, ports.into_iter().map(|port| self.relay(port)).collect()));
            }
            if Instant::now() > until {
                let n = ports.len();
                return Err(Error::Program(format!("{n} of {calls} calls were answered")));
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Measures all calls at once, and their cost.
    fn full(
        &self,
        plan: Plan,
        running: &Running,
        listener: &mut Listener,
    ) -> Result<Measured, Error> {
        let ramp = Duration::from_secs_f64(f64::from(plan.calls) / f64::from(plan.rate));
        let around = Duration::from_secs(2);
        let (rate, at_once) = (plan.rate.to_string(), plan.calls.to_string());
        let long = ramp.as_millis().to_string();
        let seconds = (ramp + LOOK + 2 * around).as_secs_f64();
        let total = ((seconds * f64::from(plan.rate)) as u32).to_string();
        let args = [
            &self.proxy(5_080),
            "-s",
            "many",
            "-key",
            "callee",
            "5080",
            "-r",
            &rate,
            "-l",
            &at_once,
            "-m",
            &total,
            "-d",
            &long,
            "-trace_stat",
            "-fd",
            "1",
            "-stf",
            "calls.csv",
        ];
        let (_probe, to) = self.silent("probe", 1)?;
        let caller = self.sipp(Place::PhoneA, 5_080, "calls", &args)?;
        sleep(ramp + around);
        let began = Instant::now();
        let before = (
            self.received()?,
            running.processes().iter().map(|p| processor_seconds(p.1)).collect::<Vec<_>>(),
        );
        let phase = Phase { per_second: 200.0, long: LOOK };
        let probe = listener.play(self.network, (Place::PhoneA, &to), &[phase])?;
        let took = began.elapsed().as_secs_f64();
        let passed = (self.received()? - before.0) as f64 / took;
        let cpu = running.processes().into_iter().zip(before.1);
        let cpu =
            cpu.map(|((name, pid), was)| (name, (processor_seconds(pid) - was) / took)).collect();
        caller.ended()?;
        let (calls, failed) = statistics(&self.folder.join("calls.csv"))?;
        let ways = probe.first().and_then(Outcome::ways);
        Ok(Measured { calls, failed, passed, cpu, ways, limit: Limit::default() })
    }

    /// Number of packets that both phones have received.
    fn received(&self) -> Result<u64, Error> {
        let mut all = 0;
        for place in [Place::PhoneA, Place::PhoneB] {
            let path = "/sys/class/net/site/statistics/rx_packets";
            let said = run(self.network.command(place, "cat").arg(path))?;
            all += said.trim().parse::<u64>().unwrap_or(0);
        }
        Ok(all)
    }

    /// Increases the packet rate until packets are lost. Returns the highest rate without loss, and
    /// whether the load could not offer more.
    fn lossless(&self, listener: &mut Listener) -> Result<(f64, bool), Error> {
        let (_calls, to) = self.silent("search", SILENT)?;
        let (mut offer, mut most) = (10_000.0, 0.0f64);
        loop {
            // Once more, in case it was by chance.
            for is_last in [false, true] {
                let phase = Phase { per_second: offer, long: Duration::from_millis(700) };
                let all = listener.play(self.network, (Place::PhoneA, &to), &[phase])?;
                let lost = all.iter().any(|outcome| outcome.lost() > NOTHING);
                let rate = all.iter().map(Outcome::rate).fold(0.0, f64::max);
                if !lost {
                    most = most.max(rate);
                    if rate < 0.97 * offer {
                        return Ok((most, true));
                    }
                    break;
                }
                if is_last {
                    return Ok((most, false));
                }
            }
            offer *= 1.15;
        }
    }

    /// Measures the effect of twice the packet rate that passes.
    fn limit(&self, listener: &mut Listener) -> Result<Limit, Error> {
        let (lossless, is_of_load) = self.lossless(listener)?;
        let mut limit = Limit { lossless, is_of_load, ..Limit::default() };
        // Separate calls, so that effects of the search on those before don't count.
        let (_calls, to) = self.silent("twice", SILENT)?;
        let phases = [(0.5, 1), (2.0, 2), (0.5, 4)].map(|(share, seconds)| Phase {
            per_second: lossless * share,
            long: Duration::from_secs(seconds),
        });
        let all = listener.play(self.network, (Place::PhoneA, &to), &phases)?;
        let [before, over, after] = &all[..] else { return Ok(limit) };
        limit.lost_before = before.lost();
        limit.offered = over.rate();
        limit.passed = 1.0 - over.lost();
        limit.healed = after.last_missed(PATIENCE);
        limit.lost_after = after.lost_from(Duration::from_secs(1));
        Ok(limit)
    }
}

/// Number of calls that sipp counted in the end, and how many of them failed.
fn statistics(path: &Path) -> Result<(u64, u64), Error> {
    let text = fs::read_to_string(path).map_err(cannot("read sipp's statistics"))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(';').collect();
    let last: Vec<&str> = lines.next_back().unwrap_or_default().split(';').collect();
    let of = |name: &str| {
        let place = names.iter().position(|n| *n == name)?;
        last.get(place)?.parse::<u64>().ok()
    };
    let found = of("TotalCallCreated").zip(of("FailedCall(C)"));
    found.ok_or_else(|| Error::Program("sipp's statistics are empty".into()))
}

/// Processor time that a process and its children have used, in seconds.
fn processor_seconds(pid: u32) -> f64 {
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may have blanks: the parent is the second field, and the times follow
    // (proc(5)).
    let fields = |text: &str| -> Vec<u64> {
        let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
        behind.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
    };
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let per_second = per_second.ok().flatten().unwrap_or(100) as f64;
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let family = all.filter_map(|entry| {
        let name =
            entry.file_name().to_str().filter(|name| name.parse::<u32>().is_ok())?.to_owned();
        let fields = fields(&stat(&name));
        let is = name == pid.to_string() || fields.get(1) == Some(&u64::from(pid));
        is.then(|| fields.get(11).zip(fields.get(12)).map_or(0, |(user, system)| user + system))
    });
    family.sum::<u64>() as f64 / per_second
}
