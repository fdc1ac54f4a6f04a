//! `trunkline replay`: runs a recording's inputs through the same code and compares the outputs
//! byte by byte.

use super::config::{self, Config};
use super::reload;
use crate::datapath::record::{self, Body, MAGIC, Tag, read_bytes};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use trunkline_base::Time;
use trunkline_base::wire::{Reader, Short};
use trunkline_overlay::arena::RxDatagram;
use trunkline_overlay::node::{Node, SendOutcome, Sink};
use trunkline_overlay::session::SessionId;

/// Run a recording of `node --record` through this build and compare
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline node --config a.toml --record a.rec   # … reproduce a fault, stop
  trunkline replay a.rec

Exit code 1: an output differs, or the recording is damaged.")]
pub struct Args {
    /// Path of the recording
    file: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Reason why a recording could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the recording.
        path: PathBuf,
        /// Error from the operating system.
        source: std::io::Error,
    },
    /// The file is not a recording, or has another format version.
    #[error("{0} is not a recording of this version of trunkline")]
    NotARecording(PathBuf),
    /// The recording is cut off or damaged.
    #[error("{path}: damaged at byte {at}: {what}")]
    Damaged {
        /// Path of the recording.
        path: PathBuf,
        /// Offset in the file, in bytes.
        at: usize,
        /// Description of the damage.
        what: String,
    },
    /// An output differs from the recorded one.
    #[error("{path}: differs at byte {at} of the recording: {what}")]
    Differs {
        /// Path of the recording.
        path: PathBuf,
        /// Offset of the recorded output, or of the input that caused it, in bytes.
        at: usize,
        /// Description of the difference.
        what: String,
    },
}

impl Error {
    /// Exit status: 2 for a file that is no recording, 1 for one that differs or is damaged.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Read { .. } | Error::NotARecording(_) => 2,
            Error::Damaged { .. } | Error::Differs { .. } => 1,
        }
    }
}

/// Summary of a replay.
#[derive(Default, serde::Serialize)]
struct Summary {
    inputs: u64,
    datagrams_in: u64,
    messages_in: u64,
    runs_out: u64,
    bytes_out: u64,
    messages_out: u64,
    identical: bool,
    /// Whether the recording stopped in the middle of a record, as after a kill.
    cut_off: bool,
}

/// Runs the `trunkline replay` command.
pub fn run(args: &Args) -> Result<(), Error> {
    let path = &args.file;
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let summary = replay(path, &bytes)?;
    if args.json {
        outln!("{}", serde_json::to_string(&summary).unwrap_or_default());
    } else {
        outln!(
            "{}: identical: {} inputs ({} datagrams, {} messages) gave the same {} runs of \
             envelopes ({} bytes) and {} messages{}",
            path.display(),
            summary.inputs,
            summary.datagrams_in,
            summary.messages_in,
            summary.runs_out,
            summary.bytes_out,
            summary.messages_out,
            if summary.cut_off { "; the last record is cut off" } else { "" }
        );
    }
    Ok(())
}

struct Record<'a> {
    at: usize,
    tag: Tag,
    body: &'a [u8],
}

/// Iterator over the records of a file.
struct Records<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    cut_off: bool,
}

impl<'a> Records<'a> {
    fn damaged(&self, at: usize, what: impl Into<String>) -> Error {
        Error::Damaged { path: self.path.to_owned(), at, what: what.into() }
    }

    fn next(&mut self) -> Result<Option<Record<'a>>, Error> {
        let at = self.at;
        let mut r = Reader::new(&self.bytes[at..]);
        if r.is_empty() {
            return Ok(None);
        }
        let head = (|| Ok::<_, Short>((r.u8()?, r.u32()? as usize)))();
        let record = head.and_then(|(tag, len)| Ok((tag, r.bytes(len)?)));
        let Ok((tag, body)) = record else {
            self.cut_off = true;
            return Ok(None);
        };
        let tag = Tag::from_wire(tag)
            .ok_or_else(|| self.damaged(at, format!("unknown kind of record {tag}")))?;
        self.at = at + 5 + body.len();
        Ok(Some(Record { at, tag, body }))
    }
}

/// Compares the node's messages to applications with the recorded ones, and gives the recorded
/// answers.
struct Expected {
    messages: VecDeque<(usize, Vec<u8>, bool)>,
    seen: u64,
    wrong: Option<(usize, String)>,
}

impl Sink for Expected {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        self.seen += 1;
        let Some((at, body, took)) = self.messages.pop_front() else {
            self.wrong.get_or_insert((0, "a message to an application that was not".into()));
            return SendOutcome::Accepted;
        };
        if record::delivered(to, head, payload, took).as_slice() != body {
            self.wrong.get_or_insert((at, "another message to an application".into()));
        }
        if took { SendOutcome::Accepted } else { SendOutcome::Backpressure }
    }
}

struct Replay<'a> {
    records: Records<'a>,
    node: Node,
    /// Settings that the node runs with.
    config: Config,
    sink: Expected,
    sent: VecDeque<(usize, Vec<u8>)>,
    summary: Summary,
}

fn replay(path: &Path, bytes: &[u8]) -> Result<Summary, Error> {
    if !bytes.starts_with(MAGIC) {
        return Err(Error::NotARecording(path.to_owned()));
    }
    let mut records = Records { path, bytes, at: MAGIC.len(), cut_off: false };
    let first = records.next()?.filter(|r| r.tag == Tag::Start);
    let first = first.ok_or_else(|| Error::NotARecording(path.to_owned()))?;
    let mut r = Reader::new(first.body);
    let damaged = |what: String| Error::Damaged { path: path.to_owned(), at: first.at, what };
    let (start, text, secrets) =
        record::read_started(&mut r).map_err(|e| damaged(e.to_string()))?;
    let text = std::str::from_utf8(text).map_err(|e| damaged(e.to_string()))?;
    let mut config = config::parse(path, text).map_err(|e| damaged(e.to_string()))?;
    if let Some(secrets) = &secrets {
        config.unlock_with(secrets);
    }
    let node = Node::new(config.overlay.clone(), start).map_err(|e| damaged(e.to_string()))?;
    let sink = Expected { messages: VecDeque::new(), seen: 0, wrong: None };
    let mut replay =
        Replay { records, node, config, sink, sent: VecDeque::new(), summary: Summary::default() };
    replay.run()?;
    replay.summary.identical = true;
    Ok(replay.summary)
}

impl<'a> Replay<'a> {
    fn run(&mut self) -> Result<(), Error> {
        let mut input = self.records.next()?;
        while let Some(record) = input {
            // An input's outputs follow it; they are read first, since they include the
            // applications' answers.
            input = self.collect_outputs()?;
            if self.records.cut_off && input.is_none() {
                // Its outputs may be missing.
                break;
            }
            self.step(&record).map_err(|_: Short| {
                self.records.damaged(record.at, "a field reaches past the end of its record")
            })?;
            self.compare(record.at)?;
        }
        self.summary.cut_off = self.records.cut_off;
        self.summary.messages_out = self.sink.seen;
        Ok(())
    }

    /// Reads records up to the next input.
    fn collect_outputs(&mut self) -> Result<Option<Record<'a>>, Error> {
        while let Some(record) = self.records.next()? {
            match record.tag {
                Tag::Delivered => {
                    let took = record.body.get(15).is_some_and(|&b| b != 0);
                    self.sink.messages.push_back((record.at, record.body.to_vec(), took));
                }
                Tag::Sent => self.sent.push_back((record.at, record.body.to_vec())),
                _ => return Ok(Some(record)),
            }
        }
        Ok(None)
    }

    fn step(&mut self, record: &Record<'_>) -> Result<(), Short> {
        self.summary.inputs += 1;
        let mut r = Reader::new(record.body);
        match record.tag {
            Tag::Recv => return self.recv(r),
            Tag::Open => {
                let (recorded, client) = record::read_open(&mut r)?;
                let id = self.node.session_open_for(client).map_or(u64::MAX, |id| id.0.into());
                if id != recorded {
                    self.sink.wrong.get_or_insert((record.at, "another session".into()));
                }
            }
            Tag::Message => {
                let (now, id) = (Time::from_nanos(r.u64()?), SessionId(r.u64()? as u32));
                self.summary.messages_in += 1;
                self.node.session_recv(now, id, read_bytes(&mut r)?, &mut self.sink);
            }
            Tag::Close => {
                let (now, id) = (Time::from_nanos(r.u64()?), SessionId(r.u64()? as u32));
                self.node.session_close(now, id);
            }
            Tag::Timeout => {
                self.node.handle_timeout(Time::from_nanos(r.u64()?), &mut self.sink);
            }
            Tag::Transmit => return self.transmit(r),
            Tag::Uplink => {
                let (link, uplink, interface) = record::read_uplink(&mut r)?;
                self.node.set_uplink(link, uplink, interface);
            }
            Tag::Address => {
                let (now, link, address) = record::read_set_address(&mut r)?;
                self.node.set_address(now, link, address);
            }
            Tag::Bind => {
                let (link, own) = record::read_bind(&mut r)?;
                self.node.bind(link, own);
            }
            Tag::Echo => {
                let (now, echo) = record::read_echo(&mut r)?;
                // The recorded output shows whether it could be sent.
                let _ = self.node.echo(now, &echo);
            }
            Tag::Leave => drop(self.node.leave(Time::from_nanos(r.u64()?))),
            Tag::Drain => self.node.drain(Time::from_nanos(r.u64()?), r.u64()? != 0),
            Tag::Reconfigure => return self.reconfigure(r),
            Tag::Start | Tag::Delivered | Tag::Sent => return Err(Short),
        }
        Ok(())
    }

    fn reconfigure(&mut self, mut r: Reader<'_>) -> Result<(), Short> {
        let (now, text, shown) = record::read_reconfigure(&mut r)?;
        let mut new = config::parse(self.records.path, text).map_err(|_| Short)?;
        if let Some(mut secrets) = self.config.secrets() {
            secrets.certificate = shown.or(secrets.certificate);
            new.unlock_with(&secrets);
        }
        let diff = reload::diff(&self.config, &new);
        self.node.reconfigure(now, &diff.changes);
        self.config = diff.running;
        Ok(())
    }

    fn recv(&mut self, mut r: Reader<'_>) -> Result<(), Short> {
        let (now, n) = (Time::from_nanos(r.u64()?), r.u64()?);
        let mut datagrams = Vec::new();
        for _ in 0..n {
            let at = Time::from_nanos(r.u64()?);
            let from = std::str::from_utf8(read_bytes(&mut r)?).ok().and_then(|s| s.parse().ok());
            let (from, local) = (from.ok_or(Short)?, record::read_local(&mut r)?);
            datagrams.push((at, from, local, read_bytes(&mut r)?.to_vec()));
        }
        self.summary.datagrams_in += n;
        let mut batch: Vec<_> = datagrams
            .iter_mut()
            .map(|(at, from, local, bytes)| RxDatagram {
                at: *at,
                from: *from,
                local: *local,
                bytes,
            })
            .collect();
        self.node.recv(now, &mut batch, &mut self.sink);
        Ok(())
    }

    fn transmit(&mut self, mut r: Reader<'_>) -> Result<(), Short> {
        let mut arena = record::arena();
        let now = record::read_transmit(&mut r, &mut arena)?;
        self.node.transmit(now, &mut arena);
        for run in record::sent(&arena) {
            self.summary.runs_out += 1;
            self.check_sent(&run);
        }
        self.summary.bytes_out += arena.bytes().len() as u64;
        Ok(())
    }

    fn check_sent(&mut self, run: &Body) {
        match self.sent.pop_front() {
            Some((_, body)) if body == run.as_slice() => {}
            Some((at, _)) => {
                self.sink.wrong.get_or_insert((at, "other envelopes".into()));
            }
            None => {
                self.sink.wrong.get_or_insert((0, "envelopes that were not sent".into()));
            }
        }
    }

    /// Checks that the outputs of the input at `at` were the recorded ones.
    fn compare(&mut self, at: usize) -> Result<(), Error> {
        let missing = |what: &str| (at, format!("{what} are missing after this input"));
        let wrong = self.sink.wrong.take().map(|(n, what)| (if n == 0 { at } else { n }, what));
        let wrong = wrong
            .or_else(|| (!self.sent.is_empty()).then(|| missing("envelopes")))
            .or_else(|| (!self.sink.messages.is_empty()).then(|| missing("messages")));
        match wrong {
            None => Ok(()),
            Some((at, what)) => {
                Err(Error::Differs { path: self.records.path.to_owned(), at, what })
            }
        }
    }
}
