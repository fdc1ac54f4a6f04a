//! The same file with real daemons, compared with the kernel's TCP, QUIC and SRT from end to end.

use super::{
    DELAY, DOWN, FAILING, KILLS, LOSS, LOSSY, Moved, SEALED, STREAM, figure, links, row_at,
};
use crate::experiment::Size;
use crate::reliable_overlay::daemon_network::{self, DaemonNetwork, Witness};
use crate::scenario::testbed::emulator::Emulator;
use crate::scenario::testbed::process::Owned;
use crate::scenario::testbed::transfers::has;
use crate::scenario::testbed::{Effort, Error, cannot};
use crate::scenario::{Link, Scenario};
use crate::table::Cell;
use crate::testbed::{PLACES, Round, Sample, Stage, Testbed};
use rand::Rng as _;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use trunkline_base::link_model::LinkModel;
use trunkline_base::{Bitrate, rng};
use trunkline_client::{Address, StreamListener, StreamSocket};

const PORT: u16 = 7_500;
/// Interval at which the received bytes are polled.
const LOOK: Duration = Duration::from_millis(5);
/// Time until daemons have found each other and receiving ends listen.
const SETTLED: Duration = Duration::from_secs(2);
/// Timeout of a file, per MiB.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rate of each link of the ring with the failing relay: two processors keep up with it on all
/// links.
const RING_RATE: u64 = 40_000_000;

/// Transport of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    /// A stream of the overlay, sealed or not.
    Stream { sealed: bool },
    /// The kernel's TCP with this congestion control.
    Tcp(&'static str),
    /// QUIC by quinn with this congestion control.
    Quic(&'static str),
    /// `srt-file-transmit`, in SRT's file mode.
    Srt,
}

const OURS: [Transport; 2] =
    [Transport::Stream { sealed: false }, Transport::Stream { sealed: true }];
const TRANSPORTS: [Transport; 8] = [
    OURS[0],
    OURS[1],
    Transport::Tcp("reno"),
    Transport::Tcp("cubic"),
    Transport::Quic("newreno"),
    Transport::Quic("cubic"),
    Transport::Tcp("bbr"),
    Transport::Srt,
];

impl Transport {
    /// Value of the column `carried`.
    fn name(self) -> String {
        match self {
            Transport::Stream { sealed: false } => STREAM.into(),
            Transport::Stream { sealed: true } => SEALED.into(),
            Transport::Tcp(congestion) => format!("tcp-{congestion}"),
            Transport::Quic(congestion) => format!("quic-{congestion}"),
            Transport::Srt => "srt".into(),
        }
    }

    /// Whether this machine supports it.
    fn is_here(self) -> bool {
        match self {
            Transport::Tcp(congestion) => has(congestion),
            Transport::Srt => {
                let paths = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&paths).any(|dir| dir.join("srt-file-transmit").is_file())
            }
            _ => true,
        }
    }
}

/// All transports that a figure shows, as in the column `carried`.
pub fn names() -> Vec<String> {
    TRANSPORTS.into_iter().map(Transport::name).collect()
}

/// How files are measured with daemons.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figure::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| {
            let row = |network: &'static str| {
                move |way: Transport| {
                    let of = key(way, network);
                    let all = || samples.iter().filter(|s| s.of == of);
                    let numbers: Vec<[f64; 4]> =
                        all().filter_map(|s| s.numbers[..].try_into().ok()).collect();
                    let valid = all().all(|s| s.valid);
                    (!numbers.is_empty()).then(|| live_row((&way.name(), network), &numbers, valid))
                }
            };
            let lossy = TRANSPORTS.into_iter().filter_map(row(LOSSY));
            lossy.chain(OURS.into_iter().filter_map(row(FAILING))).collect()
        }),
    }
}

fn key(way: Transport, network: &str) -> String {
    format!("{} {network}", way.name())
}

fn live_row((carried, network): (&str, &str), runs: &[[f64; 4]], valid: bool) -> Vec<Cell> {
    let moved = |&[mbit_s, astray, _, kills]: &[f64; 4]| Moved {
        mbit_s,
        astray: astray as u64,
        kills,
        ..Moved::NONE
    };
    let mib = runs.first().map_or(0.0, |run| run[2]) as u64;
    let runs: Vec<Moved> = runs.iter().map(moved).collect();
    row_at(PLACES[1], (carried, network, mib), &runs, valid)
}

/// Number of transports with which a machine of two processors keeps up at the same time.
const AT_ONCE: usize = 3;

/// Rounds of a few transports at the same time, each in a separate network, the fast ones in the
/// last; then, one after the other, the rings with a failing relay, which need the whole machine.
fn rounds(size: Size) -> Vec<Round> {
    let (mib, ring) = size.pick((1, 8), (8, 64), (64, 1_024));
    let here: Vec<Transport> = TRANSPORTS.into_iter().filter(|way| way.is_here()).collect();
    let lossy = here.chunks(AT_ONCE).map(|ways| {
        let ways = ways.to_vec();
        Round {
            name: format!("{LOSSY}-{}", ways[0].name()),
            seconds: 4 * mib as usize + 6,
            parts: ways.len(),
            run: Box::new(move |stage, parts| {
                daemon_network::side_by_side(stage, parts, |n| lossy(stage, ways[n], mib))
            }),
        }
    });
    let failing = OURS.map(|way| Round {
        name: format!("{FAILING}-{}", way.name()),
        seconds: ring as usize / 4 + 6,
        parts: 1,
        run: Box::new(move |stage, parts| {
            daemon_network::side_by_side(stage, parts, |_| failing(stage, way, ring))
        }),
    });
    lossy.chain(failing).collect()
}

/// The file to send, and its received copy.
struct Files {
    from: PathBuf,
    into: PathBuf,
    bytes: u64,
}

impl Files {
    fn new(dir: &Path, mib: u64, seed: u64) -> Result<Files, Error> {
        let (from, folder) = (dir.join("file.in"), dir.join("out"));
        let write = || {
            std::fs::create_dir(&folder)?;
            let (mut file, mut rng) = (std::fs::File::create(&from)?, rng(seed, 1));
            let mut part = vec![0; 1 << 20];
            (0..mib).try_for_each(|_| {
                rng.fill_bytes(&mut part);
                file.write_all(&part)
            })
        };
        write().map_err(cannot("write a file"))?;
        // `srt-file-transmit` writes the file under the name by which it was sent.
        Ok(Files { from, into: folder.join("file.in"), bytes: mib << 20 })
    }

    fn came(&self) -> u64 {
        std::fs::metadata(&self.into).map_or(0, |found| found.len())
    }

    /// Number of missing bytes; all of them if the received ones differ from the sent ones.
    fn astray(&self) -> Result<u64, Error> {
        let [from, into] = [&self.from, &self.into].map(|path| digest(path));
        let is_right =
            from.map_err(cannot("read a file"))? == into.map_err(cannot("read a file"))?;
        Ok(if is_right { 0 } else { self.bytes })
    }

    /// A sample with the results, named `of`, for a transfer that took this long.
    fn sample(&self, of: String, took: Duration, kills: f64) -> Result<Sample, Error> {
        let mbit_s = 8e-6 * self.bytes as f64 / took.as_secs_f64();
        let mib = (self.bytes >> 20) as f64;
        Ok(Sample::new(of, vec![mbit_s, self.astray()? as f64, mib, kills]))
    }
}

/// The SHA-256 of a file.
fn digest(path: &Path) -> io::Result<[u8; 32]> {
    use sha2::Digest as _;
    let (mut file, mut sum) = (std::fs::File::open(path)?, sha2::Sha256::new());
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(sum.finalize().into()),
            len => sum.update(&part[..len]),
        }
    }
}

/// One file over the row of links with a middle one that loses packets.
fn lossy(stage: &Stage<'_>, way: Transport, mib: u64) -> Result<(Vec<Sample>, Effort), Error> {
    let mut network = daemon_network::network(way == OURS[1]);
    let ends = match OURS.contains(&way) {
        true => daemon_network::add_nodes(&mut network, &links(LOSS)),
        false => daemon_network::add_routers(&mut network, &links(LOSS)),
    };
    // No two transports share randomness.
    let seed = way
        .name()
        .bytes()
        .fold(stage.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let testbed = DaemonNetwork::start(stage.trunkline, seed, network)?;
    let files = Files::new(testbed.folder(), mib, seed)?;
    let took = match OURS.contains(&way) {
        true => {
            let ends = [ends.0, ends.1].map(|host| (host, testbed.socket(host)));
            over_stream(ends, &files, &testbed.witness())?
        }
        false => by_programs(&testbed.emulator, ends, way, &files)?,
    };
    let sample = files.sample(key(way, LOSSY), took, f64::NAN)?;
    Ok((vec![sample], testbed.finish()?))
}

/// A ring of five hosts, with two links in one direction from the first to the third and three in
/// the other.
fn ring(sealed: bool) -> Scenario {
    let mut network = daemon_network::network(sealed);
    for _ in 0..5 {
        daemon_network::add_host(&mut network);
    }
    let rate = Some(Bitrate::from_bps(RING_RATE));
    let model = LinkModel { delay: DELAY, rate, ..LinkModel::default() };
    for ends in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)] {
        network.links.push(Link::between(ends, model.clone()));
    }
    network
}

/// One file over the ring. The relay on the shorter path is killed five times and started again, so
/// that the route changes to the other path and back.
fn failing(stage: &Stage<'_>, way: Transport, mib: u64) -> Result<(Vec<Sample>, Effort), Error> {
    let mut testbed = DaemonNetwork::start(stage.trunkline, stage.seed, ring(way == OURS[1]))?;
    let files = Files::new(testbed.folder(), mib, stage.seed)?;
    let sockets = [0, 2].map(|host| (host, testbed.socket(host)));
    let witness = testbed.witness();
    // All failures are within the shortest possible duration of the transfer, unless the file is
    // small.
    let least = Duration::from_secs(8 * (mib << 20) / RING_RATE);
    let up = (least / KILLS).saturating_sub(DOWN).max(DOWN);
    let (took, kills) = std::thread::scope(|scope| {
        let moving = scope.spawn(|| over_stream(sockets, &files, &witness));
        std::thread::sleep(SETTLED);
        let mut kills = 0.0;
        for _ in 0..KILLS {
            std::thread::sleep(up / 2);
            testbed.kill_daemon(1);
            std::thread::sleep(DOWN);
            kills += f64::from(u8::from(!moving.is_finished()));
            testbed.start_daemon(1)?;
            std::thread::sleep(up / 2);
        }
        Ok::<_, Error>((moving.join().expect("no transfer panics")?, kills))
    })?;
    let sample = files.sample(key(way, FAILING), took, kills)?;
    Ok((vec![sample], testbed.finish()?))
}

/// Time from when the sending end begins until the whole file has arrived. If the transfer fails,
/// the daemons report their state.
fn over_stream(
    [(_, from), (last, into)]: [(usize, PathBuf); 2],
    files: &Files,
    witness: &Witness,
) -> Result<Duration, Error> {
    let listener = StreamListener::bind(into.as_path(), PORT)?;
    listener.set_accept_timeout(Some(PATIENCE))?;
    std::thread::sleep(SETTLED);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let to = Address { node: daemon_network::node(last), port: PORT };
            let mut stream = StreamSocket::connect(from.as_path(), to)?;
            let sent = std::fs::File::open(&files.from)
                .and_then(|mut from| io::copy(&mut from, &mut stream));
            sent.map_err(cannot("send a file"))?;
            stream.shutdown()?;
            Ok::<StreamSocket, Error>(stream)
        });
        let receive = || {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let into = std::fs::File::create(&files.into);
            let came = into.and_then(|mut into| io::copy(&mut stream, &mut into));
            came.map_err(|why| {
                witness.tell();
                cannot(format!("receive a file ({} of {} bytes)", files.came(), files.bytes))(why)
            })?;
            Ok::<Duration, Error>(begun.elapsed())
        };
        let came = receive();
        // Each end may have failed because of the other.
        match (came, sender.join().expect("no sender panics")) {
            (Err(here), Err(there)) => Err(Error::Process(format!("{here}; {there}"))),
            (came, sent) => sent.and(came),
        }
    })
}

/// The same with a program at each end.
fn by_programs(
    emulator: &Emulator,
    (first, last): (usize, usize),
    way: Transport,
    files: &Files,
) -> Result<Duration, Error> {
    let own = std::env::current_exe().map_err(cannot("find this program"))?;
    let to = emulator.address(last);
    let path = |file: &Path| file.to_string_lossy().into_owned();
    let (port, certificate) = (PORT.to_string(), path(&files.from.with_extension("cert")));
    let start = |host: usize, program: &Path, args: &[&str]| {
        let mut program = emulator.bound(host, program);
        let program = program.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        program.stderr(Stdio::null()).spawn().map(Owned).map_err(cannot("start a program"))
    };
    let (by, congestion) = match way {
        Transport::Tcp(congestion) => ("tcp", congestion),
        Transport::Quic(congestion) => ("quic", congestion),
        Transport::Stream { .. } | Transport::Srt => ("", ""),
    };
    let ends = |host: usize, file: &Path| match (way, host) {
        (Transport::Srt, host) if host == first => {
            let there = format!("srt://{to}:{port}?mode=caller");
            (PathBuf::from("srt-file-transmit"), vec![format!("file://{}", path(file)), there])
        }
        (Transport::Srt, _) => {
            let here = format!("srt://0.0.0.0:{port}?mode=listener");
            let folder = path(file.parent().unwrap_or(file));
            let into = format!("file://{folder}/");
            (PathBuf::from("srt-file-transmit"), vec![here, into])
        }
        (_, host) => {
            let mut args: Vec<String> = ["carry", by, congestion, &port, &path(file), &certificate]
                .map(str::to_owned)
                .into();
            if host == first {
                args.extend(["--to".to_owned(), format!("{to}:{port}")]);
            }
            (own.clone(), args)
        }
    };
    let launch = |host: usize, file: &Path| {
        let (program, args) = ends(host, file);
        start(host, &program, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut receiver = launch(last, &files.into)?;
    std::thread::sleep(SETTLED);
    let begun = Instant::now();
    let _sender = launch(first, &files.from)?;
    while files.came() < files.bytes {
        let ended = receiver.0.try_wait().map_err(cannot("wait for a program"))?;
        if ended.is_some() && files.came() < files.bytes {
            return Err(Error::Process(format!("{}: the receiving end has ended", way.name())));
        }
        if begun.elapsed() > PATIENCE * (files.bytes >> 20) as u32 {
            return Err(Error::Process(format!("{}: it doesn't end", way.name())));
        }
        std::thread::sleep(LOOK);
    }
    let took = begun.elapsed();
    // The last bytes may still be buffered in the program.
    let until = Instant::now() + SETTLED;
    while receiver.0.try_wait().map_err(cannot("wait for a program"))?.is_none()
        && Instant::now() < until
    {
        std::thread::sleep(LOOK);
    }
    Ok(took)
}
