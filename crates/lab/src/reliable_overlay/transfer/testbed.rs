//! The same file with real daemons, beside the kernel's TCP, QUIC and SRT from end to end.

use super::{HOPS, LOSS, LOSSY, Moved, figure, links, row_at};
use crate::experiment::Size;
use crate::scenario::testbed::certified::certify;
use crate::scenario::testbed::config::{NodeFiles, node_text};
use crate::scenario::testbed::emulator::Emulator;
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::process::{Owned, Process, children};
use crate::scenario::testbed::transfers::has;
use crate::scenario::testbed::wakes::Sleeper;
use crate::scenario::testbed::watch::Watch;
use crate::scenario::testbed::{Cpu, Effort, Error, cannot};
use crate::scenario::{Host, Link, Scenario, Spot};
use crate::table::Cell;
use crate::testbed::{PLACES, Round, Sample, Stage, Testbed};
use rand::Rng as _;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use trunkline_base::rng;
use trunkline_client::{Address, StreamListener, StreamSocket};
use trunkline_overlay::wire::NodeId;

const PORT: u16 = 7_500;
/// Between two looks at how much has come.
const LOOK: Duration = Duration::from_millis(5);
/// Until daemons know each other, and receiving ends listen.
const SETTLED: Duration = Duration::from_secs(2);
/// A file that takes longer than this for a MiB is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a file is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// A stream of the overlay, sealed or not.
    Stream { sealed: bool },
    /// The kernel's TCP with this congestion control.
    Tcp(&'static str),
    /// QUIC by quinn with this congestion control.
    Quic(&'static str),
    /// `srt-file-transmit`, in SRT's file mode.
    Srt,
}

const WAYS: [Way; 8] = [
    Way::Stream { sealed: false },
    Way::Stream { sealed: true },
    Way::Tcp("reno"),
    Way::Tcp("cubic"),
    Way::Tcp("bbr"),
    Way::Quic("newreno"),
    Way::Quic("cubic"),
    Way::Srt,
];

impl Way {
    /// In the column `carried`.
    fn name(self) -> String {
        match self {
            Way::Stream { sealed: false } => super::STREAM.into(),
            Way::Stream { sealed: true } => super::SEALED.into(),
            Way::Tcp(congestion) => format!("tcp-{congestion}"),
            Way::Quic(congestion) => format!("quic-{congestion}"),
            Way::Srt => "srt".into(),
        }
    }

    /// Whether this machine has it.
    fn is_here(self) -> bool {
        match self {
            Way::Tcp(congestion) => has(congestion),
            Way::Srt => {
                let paths = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&paths).any(|dir| dir.join("srt-file-transmit").is_file())
            }
            _ => true,
        }
    }

    /// The fastest that is to be expected with 1 % loss, to tell how long it takes, in Mbit/s.
    fn expected(self) -> f64 {
        match self {
            Way::Stream { .. } | Way::Srt => 5.0,
            Way::Tcp("bbr") => 15.0,
            _ => 2.0,
        }
    }
}

/// All that a figure shows, as in the column `carried`.
pub fn names() -> Vec<String> {
    WAYS.into_iter().map(Way::name).collect()
}

/// How files are measured with daemons.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figure::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| {
            let row = |way: Way| {
                let of = way.name();
                let all = samples.iter().filter(|s| s.of == of);
                let numbers: Vec<[f64; 3]> =
                    all.clone().filter_map(|s| s.numbers[..].try_into().ok()).collect();
                let valid = all.clone().all(|s| s.valid);
                (!numbers.is_empty()).then(|| live_row(&of, &numbers, valid))
            };
            WAYS.into_iter().filter_map(row).collect()
        }),
    }
}

fn live_row(carried: &str, runs: &[[f64; 3]], valid: bool) -> Vec<Cell> {
    let moved =
        |&[mbit_s, astray, _]: &[f64; 3]| Moved { mbit_s, astray: astray as u64, ..Moved::NONE };
    let mib = runs.first().map_or(0.0, |run| run[2]) as u64;
    let runs: Vec<Moved> = runs.iter().map(moved).collect();
    row_at(PLACES[1], (carried, LOSSY, mib), &runs, valid)
}

/// How many MiB, and how often.
fn extent(size: Size) -> (u64, u64) {
    size.pick((1, 1), (8, 1), (64, 2))
}

/// Each has the machine for itself.
fn rounds(size: Size) -> Vec<Round> {
    let (mib, runs) = extent(size);
    let round = |n: u64, way: Way| Round {
        name: format!("{}-{n}", way.name()),
        seconds: (8.4 * mib as f64 / way.expected()) as usize + 3,
        parts: 1,
        run: Box::new(move |stage, _| run(stage, way, mib)),
    };
    let here: Vec<Way> = WAYS.into_iter().filter(|way| way.is_here()).collect();
    (1..=runs)
        .flat_map(|n| here.iter().map(move |&way| round(n, way)).collect::<Vec<_>>())
        .collect()
}

/// The links in a row, with nodes on all hosts, or with hosts only at both ends and routers
/// between them.
fn scenario(way: Way) -> Scenario {
    let overlay = matches!(way, Way::Stream { .. });
    let spot = |n: usize| match (overlay, n) {
        (true, n) => Spot::Host(n),
        (false, 0) => Spot::Host(0),
        (false, n) if n == HOPS => Spot::Host(1),
        (false, n) => Spot::Router(n - 1),
    };
    let link = |(n, model): (usize, trunkline_base::link_model::LinkModel)| match overlay {
        true => Link::between((n, n + 1), model),
        false => Link {
            name: n.to_string(),
            named: false,
            ends: (spot(n), spot(n + 1)),
            wire: Some([model.clone(), model]),
            overlay: None,
            routed: None,
        },
    };
    Scenario {
        name: "transfer".into(),
        length: Duration::ZERO,
        pesq: false,
        sealed: way == Way::Stream { sealed: true },
        hosts: (0..if overlay { HOPS + 1 } else { 2 }).map(|n| Host::new(n.to_string())).collect(),
        routers: (0..if overlay { 0 } else { HOPS - 1 }).map(|n| n.to_string()).collect(),
        links: links(LOSS).into_iter().enumerate().map(link).collect(),
        calls: Vec::new(),
        streams: Vec::new(),
        transfers: Vec::new(),
        programs: Vec::new(),
        faults: Vec::new(),
    }
}

/// The file at both ends.
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
            let (mut file, mut luck) = (std::fs::File::create(&from)?, rng(seed, 1));
            let mut part = vec![0; 1 << 20];
            (0..mib).try_for_each(|_| {
                luck.fill_bytes(&mut part);
                file.write_all(&part)
            })
        };
        write().map_err(cannot("write a file"))?;
        // `srt-file-transmit` gives what comes the name that it was sent by.
        Ok(Files { from, into: folder.join("file.in"), bytes: mib << 20 })
    }

    fn came(&self) -> u64 {
        std::fs::metadata(&self.into).map_or(0, |found| found.len())
    }

    /// How many bytes are missing; all, if what came is not what was sent.
    fn astray(&self) -> Result<u64, Error> {
        let [from, into] = [&self.from, &self.into].map(|path| digest(path));
        let is_right =
            from.map_err(cannot("read a file"))? == into.map_err(cannot("read a file"))?;
        Ok(if is_right { 0 } else { self.bytes })
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

fn run(stage: &Stage<'_>, way: Way, mib: u64) -> Result<(Vec<Sample>, Effort), Error> {
    let dir = Folder::new()?;
    let (scenario, files) = (scenario(way), Files::new(dir.path(), mib, stage.seed)?);
    let named = || scenario.hosts.iter().zip(1..).map(|(h, id)| (NodeId(id), h.name.as_str()));
    let key = scenario.sealed.then(|| certify(stage.trunkline, dir.path(), named())).transpose()?;
    let emulator = Emulator::start(stage.trunkline, &scenario, stage.seed, dir.path())?;
    let before = children()?;
    let mut daemons = Vec::new();
    if matches!(way, Way::Stream { .. }) {
        for n in 0..scenario.hosts.len() {
            let node = NodeFiles::of(n, dir.path());
            let text = node_text(&scenario, (&emulator, key.as_deref()), n, &node);
            std::fs::write(&node.config, text).map_err(cannot("write a daemon's file"))?;
            let program = emulator.bound(n, stage.trunkline);
            let args = ["node", "--config"];
            let (process, _) = Process::start(program, format!("node {n}"), &args, &node.config)?;
            daemons.push(process);
        }
    }
    let (watch, sleeper) = (Watch::new(Instant::now()), Sleeper::start());
    let took = std::thread::scope(|scope| {
        let moving = scope.spawn(|| {
            watch.note(match way {
                Way::Stream { .. } => over_stream(&watch, dir.path(), &files),
                _ => by_programs(&watch, &emulator, way, &files),
            })
        });
        let moving = [moving];
        watch.attend_threads(&moving, &emulator, stage.second);
        let [moving] = moving;
        moving.join().expect("no transfer panics")
    });
    let wakes_late = sleeper.finish();
    watch.end()?;
    let took = took.expect("nothing has failed").as_secs_f64();
    let astray = files.astray()?;
    for daemon in daemons {
        daemon.finish()?;
    }
    let used = children()?.saturating_sub(before).as_secs_f64();
    let (ledger, impair) = emulator.finish()?;
    let cpu = |process: &str, seconds| Cpu { process: process.into(), seconds };
    let cpu = vec![cpu("impair", impair.as_secs_f64()), cpu("ends and relays", used)];
    let numbers = vec![8e-6 * files.bytes as f64 / took, astray as f64, mib as f64];
    Ok((vec![Sample::new(way.name(), numbers)], Effort::new(&ledger, wakes_late, cpu)))
}

/// From the moment when the sending end begins to when all has come.
fn over_stream(watch: &Watch, dir: &Path, files: &Files) -> Result<Duration, Error> {
    let socket = |n: usize| NodeFiles::of(n, dir).socket;
    let listener = StreamListener::bind(socket(HOPS).as_path(), PORT)?;
    watch.sleep_until(Instant::now() + SETTLED)?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let to = Address { node: NodeId(HOPS as u32 + 1), port: PORT };
            let mut stream = StreamSocket::connect(socket(0).as_path(), to)?;
            let sent = std::fs::File::open(&files.from)
                .and_then(|mut from| io::copy(&mut from, &mut stream));
            sent.map_err(cannot("send a file"))?;
            stream.shutdown()?;
            Ok::<StreamSocket, Error>(stream)
        });
        let (mut stream, _) = listener.accept()?;
        let into = std::fs::File::create(&files.into);
        let came = into.and_then(|mut into| io::copy(&mut stream, &mut into));
        came.map_err(cannot("receive a file"))?;
        let took = begun.elapsed();
        sender.join().expect("no sender panics")?;
        Ok(took)
    })
}

/// The same by a program at each end.
fn by_programs(
    watch: &Watch,
    emulator: &Emulator,
    way: Way,
    files: &Files,
) -> Result<Duration, Error> {
    let own = std::env::current_exe().map_err(cannot("find this program"))?;
    let (_, to) = emulator.addresses(1);
    let path = |file: &Path| file.to_string_lossy().into_owned();
    let (port, certificate) = (PORT.to_string(), path(&files.from.with_extension("cert")));
    let start = |host: usize, program: &Path, args: &[&str]| {
        let mut program = emulator.bound(host, program);
        let program = program.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        program.stderr(Stdio::null()).spawn().map(Owned).map_err(cannot("start a program"))
    };
    let (by, congestion) = match way {
        Way::Tcp(congestion) => ("tcp", congestion),
        Way::Quic(congestion) => ("quic", congestion),
        Way::Stream { .. } | Way::Srt => ("", ""),
    };
    let ends = |host: usize, file: &Path| match (way, host) {
        (Way::Srt, 0) => {
            let there = format!("srt://[{to}]:{port}?mode=caller");
            (PathBuf::from("srt-file-transmit"), vec![format!("file://{}", path(file)), there])
        }
        (Way::Srt, _) => {
            let here = format!("srt://[::]:{port}?mode=listener");
            let folder = path(file.parent().unwrap_or(file));
            let into = format!("file://{folder}/");
            (PathBuf::from("srt-file-transmit"), vec![here, into])
        }
        (_, host) => {
            let mut args: Vec<String> = ["carry", by, congestion, &port, &path(file), &certificate]
                .map(str::to_owned)
                .into();
            if host == 0 {
                args.extend(["--to".to_owned(), format!("[{to}]:{port}")]);
            }
            (own.clone(), args)
        }
    };
    let launch = |host: usize, file: &Path| {
        let (program, args) = ends(host, file);
        start(host, &program, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut receiver = launch(1, &files.into)?;
    watch.sleep_until(Instant::now() + SETTLED)?;
    let begun = Instant::now();
    let _sender = launch(0, &files.from)?;
    while files.came() < files.bytes {
        let ended = receiver.0.try_wait().map_err(cannot("look at a program"))?;
        if ended.is_some() && files.came() < files.bytes {
            return Err(Error::Process(format!("{}: the receiving end has ended", way.name())));
        }
        if begun.elapsed() > PATIENCE * (files.bytes >> 20) as u32 {
            return Err(Error::Process(format!("{}: it doesn't end", way.name())));
        }
        watch.sleep_until(Instant::now() + LOOK)?;
    }
    let took = begun.elapsed();
    // What is written last may still be in the program.
    let until = Instant::now() + SETTLED;
    while receiver.0.try_wait().map_err(cannot("look at a program"))?.is_none()
        && Instant::now() < until
    {
        watch.sleep_until(Instant::now() + LOOK)?;
    }
    Ok(took)
}
