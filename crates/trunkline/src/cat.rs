//! `trunkline cat`: copies standard input to a stream, and the stream's data to standard output.

use crate::{call, node};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{
    Address, Error as ClientError, NodeId, Reset, StreamListener, StreamSocket,
};

const HELP: &str = "\
Examples:
  A file from site A (node 1) to site F (node 6):
    on F:  trunkline cat --listen 900 > file
    on A:  trunkline cat 6:900 < file

  A folder, and how fast it went:
    on F:  trunkline cat --listen 900 | tar x
    on A:  tar c folder | trunkline cat --stats 6:900

  One line to an application that listens, and its answer:
    echo hello | trunkline cat 6:900

The end of standard input ends this direction of the stream; what the other end sends is still
written out until it ends its direction. If standard input is a terminal, the copy ends when the
other end has ended its direction; otherwise give < /dev/null to send nothing. With --listen
one stream is accepted.

Exit codes:
  0  both directions have ended, everything received was written, and the other end's node has
     everything that was sent
  1  something on this machine failed: no node answers there, standard input or output failed
  2  the command line is wrong
  3  the stream was refused: no listener there, no route, or forbidden
  4  the stream broke off; what was received was written, and some of what was sent may be lost";

/// Send standard input to an application of another node, and write out its answer
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Destination: a node and the virtual port of a listener there
    #[arg(value_name = "NODE:PORT", required_unless_present = "listen")]
    to: Option<To>,
    /// Accept a stream at this virtual port of the local node
    #[arg(long, short, value_name = "PORT", conflicts_with = "to",
          value_parser = clap::value_parser!(u16).range(1..))]
    listen: Option<u16>,
    /// The node at this Unix socket, or on another host at tcp://HOST:PORT?node=PUBKEY&key=FILE:
    /// the node's public key, and the file with this application's secret key
    #[arg(
        long,
        value_name = "PATH",
        env = "TRUNKLINE_SOCKET",
        default_value = "/run/trunkline/socket"
    )]
    socket: PathBuf,
    /// Print the bytes sent and received, and the rates, on standard error at the end
    #[arg(long, short = 'v')]
    stats: bool,
    /// Print the same statistics as JSON
    #[arg(long)]
    json: bool,
}

/// A node and a virtual port.
#[derive(Clone, Copy, Debug)]
struct To(Address);

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<To, String> {
        let parse = || {
            let (node, port) = text.split_once(':')?;
            let to = Address { node: NodeId(node.parse().ok()?), port: port.parse().ok()? };
            (to.node != NodeId::NONE && to.port > 0).then_some(To(to))
        };
        parse().ok_or_else(|| {
            format!("\"{text}\" is not NODE:PORT (\"6:900\"), both numbered from 1 on")
        })
    }
}

/// Reason why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node could not be reached, or refused the session.
    #[error(transparent)]
    Client(ClientError),
    /// The option that names the node is invalid.
    #[error(transparent)]
    Attachment(#[from] call::Error),
    /// The stream could not be opened.
    #[error("no stream to {to}: {why}; {}", remedy(*to, why))]
    Refused {
        /// The destination of the stream.
        to: Address,
        /// The reason that the node gave.
        why: ClientError,
    },
    /// The stream was reset before everything was copied.
    #[error("the stream with {peer} broke off: {}", of_stream(why))]
    Broken {
        /// Address of the other end.
        peer: Address,
        /// Reason for the reset.
        why: ClientError,
    },
    /// Standard input or output failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation, for the message.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Advice about a stream that was not opened.
fn remedy(to: Address, why: &ClientError) -> String {
    match why {
        ClientError::Reset(Reset::NotListening) => {
            format!("does anybody listen there (`trunkline cat --listen {}`)?", to.port)
        }
        ClientError::Reset(Reset::NoRoute) => {
            "`trunkline routes` and `trunkline links` say what is known here".into()
        }
        ClientError::Reset(Reset::Forbidden) => {
            "change `to` in [access] here, or `from` in [access] there".into()
        }
        _ => "try again later".into(),
    }
}

/// Text of the reason why a stream was reset. The client's text for a node that has gone also
/// mentions datagrams.
fn of_stream(why: &ClientError) -> String {
    match why {
        ClientError::Disconnected => "the trunkline node here has gone".into(),
        why => why.to_string(),
    }
}

impl Error {
    /// The exit status of `trunkline cat` for this error, as its help lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Attachment(error) => error.exit_code(),
            Error::Client(_) | Error::Io { .. } => 1,
            Error::Refused { .. } => 3,
            Error::Broken { .. } => 4,
        }
    }
}

/// Bytes copied so far in each direction.
#[derive(Default)]
struct Moved {
    sent: AtomicU64,
    received: AtomicU64,
    /// The error that ended standard input, if one did.
    input: Mutex<Option<io::Error>>,
}

/// Bytes copied at a time. Few enough that a reader of 100 bytes per second consumes them before
/// the nodes consider this program stalled.
const CHUNK: usize = 16 << 10;

/// Interval at which the progress bar is updated.
const TICK: Duration = Duration::from_millis(200);

/// Delay before accepting again, after a failure that may be temporary.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs `trunkline cat`: opens or accepts one stream, and copies standard input and output until
/// both ends have finished.
pub fn run(args: &Args) -> Result<(), Error> {
    node::raise_descriptor_limit();
    let (at, _) = call::attachment(Some(&args.socket), None)?;
    let stream = match (args.to, args.listen) {
        (Some(To(to)), _) => StreamSocket::connect(at, to).map_err(|why| match why {
            ClientError::Reset(_) => Error::Refused { to, why },
            why => Error::Client(why),
        })?,
        (None, port) => {
            let listener = StreamListener::bind(at, port.unwrap_or(0)).map_err(Error::Client)?;
            if args.stats {
                errln!("listening at {}", listener.local());
            }
            accept(&listener)?
        }
    };
    let (stream, moved) = (Arc::new(stream), Arc::new(Moved::default()));
    let began = Instant::now();
    let progress = progress(&moved);
    let copied = copy(&stream, &moved);
    progress.finish_and_clear();
    report(args, &stream, &moved, (began.elapsed(), &copied));
    copied
}

/// Waits for the first incoming stream.
fn accept(listener: &StreamListener) -> Result<StreamSocket, Error> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            // The listener binds its port again automatically.
            Err(error @ (ClientError::Io { .. } | ClientError::Version)) => {
                return Err(Error::Client(error));
            }
            Err(error) => {
                tracing::warn!("{error}; waiting on");
                thread::sleep(AGAIN);
            }
        }
    }
}

fn copy(stream: &Arc<StreamSocket>, moved: &Arc<Moved>) -> Result<(), Error> {
    let broken = |why| {
        let input = moved.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        match input {
            Some(source) => Error::Io { what: "cannot read standard input", source },
            None => Error::Broken { peer: stream.peer(), why },
        }
    };
    let (to, counts) = (stream.clone(), moved.clone());
    let sender = move || send(&to, &counts);
    let started = thread::Builder::new().name("input".into()).spawn(sender);
    started.map_err(|source| Error::Io { what: "cannot start a thread", source })?;
    let mut stdout = io::stdout().lock();
    let mut buf = vec![0; CHUNK];
    loop {
        match stream.read(&mut buf).map_err(broken)? {
            0 => break,
            n => {
                let written = stdout.write_all(&buf[..n]).and_then(|()| stdout.flush());
                if let Err(source) = written {
                    let _ = stream.reset();
                    return Err(Error::Io { what: "cannot write to standard output", source });
                }
                moved.received.fetch_add(n as u64, Ordering::Relaxed);
            }
        }
    }
    if io::stdin().is_terminal() {
        // The peer may be waiting for input that will never come.
        stream.shutdown().map_err(broken)?;
    }
    stream.finish().map_err(broken)
}

/// Sends standard input up to its end. Errors of the stream are left to the thread that reads it.
fn send(stream: &StreamSocket, moved: &Moved) {
    let mut stdin = io::stdin().lock();
    let mut buf = vec![0; CHUNK];
    loop {
        let n = match stdin.read(&mut buf) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                *moved.input.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                let _ = stream.reset();
                return;
            }
        };
        if n == 0 {
            let _ = stream.shutdown();
            return;
        }
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(n) => {
                    moved.sent.fetch_add(n as u64, Ordering::Relaxed);
                    rest = rest.get(n..).unwrap_or_default();
                }
                Err(_) => return,
            }
        }
    }
}

/// Shows the progress, if standard error is a terminal.
fn progress(moved: &Arc<Moved>) -> indicatif::ProgressBar {
    if !io::stderr().is_terminal() || io::stdout().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let style = "{spinner} {msg} {elapsed}";
    let bar = indicatif::ProgressBar::new_spinner();
    if let Ok(style) = indicatif::ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let size = input_size();
    let (shown, moved) = (bar.clone(), moved.clone());
    let tick = move || {
        while !shown.is_finished() {
            let sent = moved.sent.load(Ordering::Relaxed);
            let received = moved.received.load(Ordering::Relaxed);
            let of = size.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
            shown.set_message(format!("{}{of} sent, {} received,", bytes(sent), bytes(received)));
            shown.tick();
            thread::sleep(TICK);
        }
    };
    // The program works without the progress thread.
    let _ = thread::Builder::new().name("progress".into()).spawn(tick);
    bar
}

fn bytes(n: u64) -> indicatif::BinaryBytes {
    indicatif::BinaryBytes(n)
}

/// Size of standard input in bytes, if it is a file.
fn input_size() -> Option<u64> {
    let meta = File::open("/dev/stdin").and_then(|file| file.metadata()).ok()?;
    meta.is_file().then_some(meta.len())
}

/// Prints the statistics that were requested.
fn report(args: &Args, stream: &StreamSocket, moved: &Moved, done: (Duration, &Result<(), Error>)) {
    let (took, result) = (done.0.as_secs_f64(), done.1);
    let sent = moved.sent.load(Ordering::Relaxed);
    let received = moved.received.load(Ordering::Relaxed);
    let mbps = |bytes: u64| if took > 0.0 { 8e-6 * bytes as f64 / took } else { 0.0 };
    let (local, peer) = (stream.local(), stream.peer());
    if args.json {
        let reset = match result {
            Err(Error::Broken { why: ClientError::Reset(why), .. }) => Some(name(*why)),
            _ => None,
        };
        errln!(
            "{}",
            serde_json::json!({
                "local": local.to_string(),
                "peer": peer.to_string(),
                "sent": sent,
                "received": received,
                "seconds": took,
                "sent_mbps": mbps(sent),
                "received_mbps": mbps(received),
                "whole": result.is_ok(),
                "reset": reset,
            })
        );
    } else if args.stats {
        errln!(
            "{local} with {peer}: {sent} bytes sent ({:.1} Mbit/s), {received} received ({:.1} \
             Mbit/s), {took:.2} s",
            mbps(sent),
            mbps(received)
        );
    }
}

/// Name of a reason for programs.
fn name(why: Reset) -> String {
    format!("{why:?}")
}
