//! `trunkline call`: plays a WAV file as a voice call, or receives one.

mod answers;
pub mod line;
mod recv;
mod send;

use crate::node;
use crate::units::Span;
use line::{Line, LineError, Target};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use trunkline_client::{Address, Attachment, DatagramSocket, NodeId};
use trunkline_media::audio::{self, WavError};
use trunkline_media::codec::g711::Law;

/// Send or receive a voice call: RTP, G.711, 20 ms packets
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example, on two machines with a node each:
  trunkline call recv --socket /run/trunkline/f.sock --port 5004 --out heard.wav
  trunkline call send --socket /run/trunkline/a.sock --to 6:5004 speech.wav")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Send(send::Args),
    Recv(recv::Args),
}

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read, or is no sound.
    #[error("cannot read {path}: {why}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {why}")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// The call's socket failed.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The node in this process failed.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// Options that cannot be combined.
    #[error("{0}")]
    Usage(&'static str),
    /// The call's packets did not arrive, or the call was cut short.
    #[error("{0}")]
    Broken(String),
    /// Another system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    /// Exit status: 2 for a mistake in the user's input.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Read { .. } => 2,
            Error::Node(error) => error.exit_code(),
            _ => 1,
        }
    }
}

/// Runs `trunkline call`: sends or receives one call.
pub fn run(args: &Args) -> Result<(), Error> {
    match &args.command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
    }
}

/// Carrier of the call
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Carrier {
    /// Use the overlay, through the node at this Unix socket, or on another host at
    /// tcp://HOST:PORT?node=PUBKEY&key=FILE: the node's public key, and the file with this
    /// application's secret key
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Use the overlay, with a node of this configuration in this process
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Use plain UDP, without any node
    #[arg(long)]
    udp: bool,
}

/// An open line, and its node if that runs in this process.
struct Open {
    line: Line,
    /// Local address of the line, for display.
    local: String,
    _node: Option<node::Running>,
}

impl Carrier {
    /// Opens a line at `port`: a virtual port of the overlay, or else a UDP port; 0 is any.
    fn open(&self, udp: SocketAddr, port: u16) -> Result<Open, Error> {
        if self.udp {
            let socket = UdpSocket::bind(udp).map_err(LineError::Udp)?;
            let local = socket.local_addr().map_err(LineError::Udp)?.to_string();
            return Ok(Open { line: Line::Udp(socket), local, _node: None });
        }
        let (at, node) = attachment(self.socket.as_deref(), self.node.as_deref())?;
        let socket = DatagramSocket::bind(at, port).map_err(LineError::from)?;
        let local = socket.local_addr().to_string();
        Ok(Open { line: Line::Overlay(socket), local, _node: node })
    }
}

/// Attachment to the node at `socket`, or to a node started here from the file `node`.
pub fn attachment(
    socket: Option<&Path>,
    node: Option<&Path>,
) -> Result<(Attachment, Option<node::Running>), Error> {
    match (socket, node) {
        (Some(path), _) => Ok((path.to_str().map_or_else(|| path.into(), Attachment::from), None)),
        (None, Some(config)) => {
            let running = node::Running::start(config)?;
            Ok((running.connector().into(), Some(running)))
        }
        (None, None) => Err(Error::Usage("give --socket or --node")),
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Target::Udp(address));
        }
        let parts = text.split_once(':');
        let overlay = parts.and_then(|(node, port)| {
            Some(Address { node: NodeId(node.parse().ok()?), port: port.parse().ok()? })
        });
        if overlay.is_some_and(|to| to.node == NodeId::NONE || to.port == 0) {
            return Err(format!("\"{text}\": nodes and virtual ports are numbered from 1 on"));
        }
        overlay.map(Target::Overlay).ok_or_else(|| {
            format!("\"{text}\" is neither NODE:PORT (\"6:5004\") nor IP:PORT (\"192.0.2.1:5004\")")
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Overlay(to) => to.fmt(f),
            Target::Udp(to) => to.fmt(f),
        }
    }
}

/// G.711's two companding laws, as an option.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum LawName {
    /// µ-law, RTP's PCMU encoding
    Mu,
    /// A-law, RTP's PCMA encoding
    A,
}

impl From<LawName> for Law {
    fn from(name: LawName) -> Law {
        match name {
            LawName::Mu => Law::Mu,
            LawName::A => Law::A,
        }
    }
}

/// Reads the samples of the WAV file at `path`: 8 kHz, one channel.
pub fn read_wav(path: &Path) -> Result<Vec<i16>, Error> {
    let file = |why: String| Error::Read { path: path.to_owned(), why };
    let opened = std::fs::File::open(path).map_err(|e| file(e.to_string()))?;
    audio::read_wav(io::BufReader::new(opened)).map_err(|e: WavError| file(e.to_string()))
}

/// Writes `pcm` to the WAV file at `path`.
pub fn write_wav(path: &Path, pcm: &[i16]) -> Result<(), Error> {
    let file = |why: String| Error::Write { path: path.to_owned(), why };
    let created = std::fs::File::create(path).map_err(|e| file(e.to_string()))?;
    audio::write_wav(io::BufWriter::new(created), pcm).map_err(|e| file(e.to_string()))
}

/// Sleeps until the monotonic clock reaches `at`.
pub fn sleep_until(at: trunkline_base::Time) {
    use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
    let at = crate::clock::to_timespec(at);
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    // An interrupted sleep is resumed; any other error would be a wrong argument.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at) == Err(nix::errno::Errno::EINTR) {}
}

/// Times after a call's last packet at which its goodbye is sent. Each goodbye, or its answer, may
/// be lost. If all are lost, the listener takes the call for broken, or the caller learns of no
/// confirmation.
const GOODBYES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
];

/// Time that the listener stays after the first goodbye. It exceeds the span of all goodbyes, so
/// that the node does not report a missing listener to the caller.
const LINGER: Duration = Duration::from_millis(500);

/// Samples of one packet: 20 ms at 8 kHz (Amir et al. 2005, II-A).
pub const SAMPLES: usize = 160;

fn seconds(span: Span) -> f64 {
    span.0.as_secs_f64()
}
