//! `node --record`: all inputs and outputs of a node, in a file that `replay` runs through the same
//! code.
//!
//! A file is [`MAGIC`], then records `tag 1 | length 4 | body`. The first is the start (times,
//! incarnation, seed, entropy, configuration text); the others follow in the order of the calls.

use crate::clock;
use crate::node::config::Secrets;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::{Reader, Short};
use trunkline_overlay::arena::{LocalAddress, OwnAddresses, RxDatagram, TxArena, UplinkId};
use trunkline_overlay::identity::{Certificate, Identity};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::{
    Changes, Drained, Echo, EchoAnswer, EchoError, Node, Notice, SendOutcome, Sink, Start,
};
use trunkline_overlay::session::{Client, SessionId};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

/// First bytes of a recording: its format and version.
pub const MAGIC: &[u8; 8] = b"TLREC\x00\x00\x0a";

/// Size in bytes of the memory that envelopes are sealed into between two flushes. A recording is
/// valid only for this size and [`ARENA_RUNS`], since the rest waits in the node.
pub const ARENA_BYTES: usize = 256 << 10;
/// Maximum number of runs in the arena; fixed for the same reason as [`ARENA_BYTES`].
pub const ARENA_RUNS: usize = 256;

/// Creates an arena of the size that every driver of a recorded node uses.
pub fn arena() -> TxArena {
    TxArena::new(ARENA_BYTES, ARENA_RUNS)
}

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Tag {
    Start = 1,
    Recv,
    Open,
    Message,
    Close,
    Timeout,
    Transmit,
    /// Output: one message to an application.
    Delivered,
    /// Output: one run of envelopes.
    Sent,
    Echo,
    Drain,
    Reconfigure,
    Leave,
    /// The driver has assigned a link to an uplink.
    Uplink,
    /// The driver has found another address of a neighbour.
    Address,
    /// The driver has bound a link to own addresses, or to none.
    Bind,
}

impl Tag {
    /// Returns the tag with this number.
    pub fn from_wire(n: u8) -> Option<Tag> {
        use Tag::*;
        let all = [
            Start,
            Recv,
            Open,
            Message,
            Close,
            Timeout,
            Transmit,
            Delivered,
            Sent,
            Echo,
            Drain,
            Reconfigure,
            Leave,
            Uplink,
            Address,
            Bind,
        ];
        all.into_iter().find(|t| *t as u8 == n)
    }
}

/// Builds the body of one record.
#[derive(Default)]
pub struct Body(Vec<u8>);

impl Body {
    /// Appends a number, eight bytes in network byte order.
    pub fn u64(mut self, v: u64) -> Body {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    /// Appends a time, in nanoseconds.
    pub fn time(self, t: Time) -> Body {
        self.u64(t.as_nanos())
    }

    /// Appends bytes, preceded by their length.
    pub fn bytes(self, b: &[u8]) -> Body {
        let mut s = self.u64(b.len() as u64);
        s.0.extend_from_slice(b);
        s
    }

    /// Appends a socket address, as text.
    pub fn address(self, a: SocketAddr) -> Body {
        self.bytes(a.to_string().as_bytes())
    }

    /// Appends where a datagram arrived, as text, if that is known.
    fn local(self, local: Option<LocalAddress>) -> Body {
        let Some(LocalAddress { socket, ip }) = local else { return self.bytes(&[]) };
        let ip = ip.map_or_else(String::new, |ip| ip.to_string());
        self.bytes(format!("{socket} {ip}").as_bytes())
    }

    /// The body built so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

/// Reads a length and that many bytes.
pub fn read_bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Short> {
    let n = usize::try_from(r.u64()?).map_err(|_| Short)?;
    r.bytes(n)
}

/// Builds the body of the [`Tag::Start`] record of a node that `text` configures.
pub fn started(start: &Start, text: &str, secrets: Option<&Secrets>) -> Body {
    let &Start { at, unix_nanos, incarnation, seed, entropy } = start;
    let body = Body::default().time(at).u64(unix_nanos).u64(incarnation.0).u64(seed);
    let body = body.bytes(&entropy).bytes(text.as_bytes());
    let Some(Secrets { identity, certificate }) = secrets else { return body.bytes(&[]) };
    let certificate = certificate.as_ref().map(Certificate::to_bytes).unwrap_or_default();
    body.bytes(identity.secret_text().as_bytes()).bytes(&certificate)
}

/// Reads a body built by [`started`].
pub fn read_started<'a>(r: &mut Reader<'a>) -> Result<(Start, &'a [u8], Option<Secrets>), Short> {
    let (at, unix_nanos) = (Time::from_nanos(r.u64()?), r.u64()?);
    let (incarnation, seed) = (Incarnation(r.u64()?), r.u64()?);
    let entropy = read_bytes(r)?.try_into().map_err(|_| Short)?;
    let start = Start { at, unix_nanos, incarnation, seed, entropy };
    let (text, key) = (read_bytes(r)?, read_bytes(r)?);
    if key.is_empty() {
        return Ok((start, text, None));
    }
    let key = std::str::from_utf8(key).map_err(|_| Short)?;
    let identity = Identity::from_text(key).map_err(|_| Short)?;
    let certificate = read_certificate(r)?;
    Ok((start, text, Some(Secrets { identity, certificate })))
}

fn read_certificate(r: &mut Reader<'_>) -> Result<Option<Certificate>, Short> {
    match read_bytes(r)? {
        [] => Ok(None),
        bytes => Certificate::parse(bytes).map(Some).map_err(|_| Short),
    }
}

/// Reads a body that [`started`] built.
pub fn read_reconfigure<'a>(
    r: &mut Reader<'a>,
) -> Result<(Time, &'a str, Option<Certificate>), Short> {
    let now = Time::from_nanos(r.u64()?);
    let text = std::str::from_utf8(read_bytes(r)?).map_err(|_| Short)?;
    Ok((now, text, read_certificate(r)?))
}

/// Builds the body of a [`Tag::Delivered`] record.
pub fn delivered(to: SessionId, head: &[u8], payload: &[u8], took: bool) -> Body {
    Body::default().u64(to.0.into()).u64(took.into()).bytes(head).bytes(payload)
}

/// Builds the bodies of the [`Tag::Sent`] records of `arena`.
pub fn sent(arena: &TxArena) -> impl Iterator<Item = Body> {
    arena.runs().iter().map(|run| {
        Body::default()
            .u64(run.uplink.0.into())
            .address(run.to)
            .u64(run.dscp.into())
            .u64(run.segment as u64)
            .bytes(&arena.bytes()[run.range()])
    })
}

/// Builds the body of a [`Tag::Transmit`] record: the time, and the uplinks' rooms.
fn transmit_body(now: Time, arena: &TxArena) -> Body {
    let rooms = arena.rooms();
    rooms.fold(Body::default().time(now), |body, (uplink, bytes, offload)| {
        body.u64(uplink.0.into()).u64(bytes as u64).u64(offload.into())
    })
}

/// Reads the body of a [`Tag::Transmit`] record; sets the rooms of `arena`.
pub fn read_transmit(r: &mut Reader<'_>, arena: &mut TxArena) -> Result<Time, Short> {
    let now = Time::from_nanos(r.u64()?);
    while !r.is_empty() {
        let uplink = UplinkId(u16::try_from(r.u64()?).map_err(|_| Short)?);
        arena.set_room(uplink, usize::try_from(r.u64()?).map_err(|_| Short)?);
        arena.set_offload(uplink, r.u64()? != 0);
    }
    Ok(now)
}

/// Reads the body of a [`Tag::Uplink`] record.
pub fn read_uplink(r: &mut Reader<'_>) -> Result<(LinkId, UplinkId, Option<u32>), Short> {
    let mut small = || u16::try_from(r.u64()?).map_err(|_| Short);
    let (link, uplink) = (LinkId(small()?), UplinkId(small()?));
    Ok((link, uplink, u32::try_from(r.u64()?).ok()))
}

/// Reads the body of a [`Tag::Address`] record.
pub fn read_set_address(r: &mut Reader<'_>) -> Result<(Time, LinkId, SocketAddr), Short> {
    let now = Time::from_nanos(r.u64()?);
    let link = LinkId(u16::try_from(r.u64()?).map_err(|_| Short)?);
    let text = std::str::from_utf8(read_bytes(r)?).map_err(|_| Short)?;
    Ok((now, link, text.parse().map_err(|_| Short)?))
}

/// Reads where a datagram arrived, if that is known.
pub fn read_local(r: &mut Reader<'_>) -> Result<Option<LocalAddress>, Short> {
    let text = std::str::from_utf8(read_bytes(r)?).map_err(|_| Short)?;
    let Some((socket, ip)) = text.split_once(' ') else { return Ok(None) };
    let ip = if ip.is_empty() { None } else { Some(ip.parse().map_err(|_| Short)?) };
    Ok(Some(LocalAddress { socket: socket.parse().map_err(|_| Short)?, ip }))
}

/// Reads the body of a [`Tag::Bind`] record.
pub fn read_bind(r: &mut Reader<'_>) -> Result<(LinkId, Option<OwnAddresses>), Short> {
    let link = LinkId(u16::try_from(r.u64()?).map_err(|_| Short)?);
    if r.u64()? == 0 {
        return Ok((link, None));
    }
    let text = std::str::from_utf8(read_bytes(r)?).map_err(|_| Short)?;
    let own = text.split_whitespace().map(|ip| ip.parse().map_err(|_| Short));
    Ok((link, Some(OwnAddresses::new(own.collect::<Result<_, _>>()?))))
}

fn echo_body(now: Time, echo: &Echo) -> Body {
    let &Echo { to, service, size, hops, nonce } = echo;
    let body = Body::default().time(now).u64(to.0.into()).u64(service as u64);
    body.u64(size as u64).u64(hops.into()).u64(nonce)
}

/// Number of the gateway among the clients, which have 16 bits.
const GATEWAY: u64 = 1 << 16;

/// Reads the body of a [`Tag::Open`] record: the session and its client.
pub fn read_open(r: &mut Reader<'_>) -> Result<(u64, Client), Short> {
    let id = r.u64()?;
    let client = match r.u64()?.checked_sub(1) {
        None => Client::Local,
        Some(GATEWAY) => Client::Gateway,
        Some(i) => Client::Known(u16::try_from(i).map_err(|_| Short)?),
    };
    Ok((id, client))
}

/// Reads the body of a [`Tag::Echo`] record.
pub fn read_echo(r: &mut Reader<'_>) -> Result<(Time, Echo), Short> {
    let now = Time::from_nanos(r.u64()?);
    let mut small = || u32::try_from(r.u64()?).map_err(|_| Short);
    let (to, service, size, hops) = (NodeId(small()?), small()?, small()?, small()?);
    let service = u8::try_from(service).ok().and_then(Service::from_wire).ok_or(Short)?;
    let hops = u8::try_from(hops).map_err(|_| Short)?;
    Ok((now, Echo { to, service, size: size as usize, hops, nonce: r.u64()? }))
}

/// Maximum time that a record may stay in memory: a full disk should be reported while the operator
/// can still act.
const FLUSH: Duration = Duration::from_secs(1);

/// Writes records. After the first failure (a full disk) it stops, and reports that once.
pub struct Recorder {
    out: io::Result<BufWriter<File>>,
    /// Time at which to write the records in memory; `NEVER` if there are none.
    flush_at: Time,
}

/// Opens an empty file that only its owner can access. A file that others could read is not made
/// private, because they may have it open already.
fn private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Truncated only once it is known to be the right file.
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = match options.custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
            return Err(io::Error::other("it is a symbolic link: name the file itself"));
        }
        file => file?,
    };
    let meta = file.metadata()?;
    // A device keeps no data that others could read later.
    if meta.file_type().is_char_device() {
        return Ok(file);
    }
    if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "other users may read or change that file, and a recording holds the node's \
             secret key: remove it, or take another name",
        ));
    }
    if meta.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

impl Recorder {
    /// Begins a recording at `path`, replacing an earlier one of the same owner. A recording holds
    /// the node's secrets, so a file that others may read, or a link, is refused.
    pub fn create(path: &Path, start: &Body) -> io::Result<Recorder> {
        let file = private(path)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(MAGIC)?;
        let mut recorder = Recorder { out: Ok(out), flush_at: Time::NEVER };
        recorder.write(Tag::Start, start);
        Ok(recorder)
    }

    fn write(&mut self, tag: Tag, body: &Body) {
        let Ok(out) = &mut self.out else { return };
        let body = body.as_slice();
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        let done = out
            .write_all(&[tag as u8])
            .and_then(|()| out.write_all(&len))
            .and_then(|()| out.write_all(body));
        if self.flush_at == Time::NEVER {
            self.flush_at = clock::now() + FLUSH;
        }
        self.note(done);
    }

    /// Writes records that are due.
    fn flush(&mut self, now: Time) {
        if now < self.flush_at {
            return;
        }
        self.flush_at = Time::NEVER;
        if let Ok(out) = &mut self.out {
            let done = out.flush();
            self.note(done);
        }
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::error!(%error, "the recording stops here: the file cannot be written");
            (self.out, self.flush_at) = (Err(error), Time::NEVER);
        }
    }

    /// Writes the records still in memory; fails if the recording is incomplete.
    fn finish(&mut self) -> io::Result<()> {
        let whole = match std::mem::replace(&mut self.out, Err(io::Error::other("finished"))) {
            Ok(mut out) => out.flush(),
            Err(error) => Err(error),
        };
        whole.map_err(|e| io::Error::new(e.kind(), format!("the recording is cut short: {e}")))
    }
}

/// A node with every call recorded, if a recording is active. Recording allocates and writes on the
/// packet thread, so it is meant only for debugging.
pub struct RecordedNode {
    node: Node,
    recorder: Option<Recorder>,
}

/// Records messages passed to applications.
struct RecordedSink<'a, S> {
    inner: &'a mut S,
    recorder: &'a mut Recorder,
}

impl<S: Sink> Sink for RecordedSink<'_, S> {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        let outcome = self.inner.deliver(to, head, payload);
        let took = outcome == SendOutcome::Accepted;
        self.recorder.write(Tag::Delivered, &delivered(to, head, payload, took));
        outcome
    }
}

impl RecordedNode {
    /// Wraps a node, recorded by `recorder` if there is one.
    pub fn new(node: Node, recorder: Option<Recorder>) -> RecordedNode {
        RecordedNode { node, recorder }
    }

    /// Read access to the node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Records and calls [`Node::recv`].
    pub fn recv(&mut self, now: Time, batch: &mut [RxDatagram<'_>], sink: &mut impl Sink) {
        match &mut self.recorder {
            None => self.node.recv(now, batch, sink),
            Some(recorder) => {
                let mut body = Body::default().time(now).u64(batch.len() as u64);
                for d in batch.iter() {
                    body = body.time(d.at).address(d.from).local(d.local).bytes(d.bytes);
                }
                recorder.write(Tag::Recv, &body);
                self.node.recv(now, batch, &mut RecordedSink { inner: sink, recorder });
            }
        }
    }

    /// Records and calls [`Node::session_open_for`].
    pub fn session_open_for(&mut self, client: Client) -> Option<SessionId> {
        let id = self.node.session_open_for(client);
        if let Some(recorder) = &mut self.recorder {
            let id = id.map_or(u64::MAX, |id| id.0.into());
            let client = match client {
                Client::Local => 0,
                Client::Gateway => 1 + GATEWAY,
                Client::Known(i) => 1 + u64::from(i),
            };
            recorder.write(Tag::Open, &Body::default().u64(id).u64(client));
        }
        id
    }

    /// Records and calls [`Node::session_recv`].
    pub fn session_recv(
        &mut self,
        now: Time,
        id: SessionId,
        message: &[u8],
        sink: &mut impl Sink,
    ) -> SendOutcome {
        match &mut self.recorder {
            None => self.node.session_recv(now, id, message, sink),
            Some(recorder) => {
                let body = Body::default().time(now).u64(id.0.into()).bytes(message);
                recorder.write(Tag::Message, &body);
                let sink = &mut RecordedSink { inner: sink, recorder };
                self.node.session_recv(now, id, message, sink)
            }
        }
    }

    /// Calls [`Node::next_ready`], which needs no recording because it has no effect on recorded
    /// state.
    pub fn next_ready(&mut self) -> Option<SessionId> {
        self.node.next_ready()
    }

    /// Records and calls [`Node::session_close`].
    pub fn session_close(&mut self, now: Time, id: SessionId) {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(Tag::Close, &Body::default().time(now).u64(id.0.into()));
        }
        self.node.session_close(now, id);
    }

    /// Records and calls [`Node::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        match &mut self.recorder {
            None => self.node.handle_timeout(now, sink),
            Some(recorder) => {
                recorder.write(Tag::Timeout, &Body::default().time(now));
                self.node.handle_timeout(now, &mut RecordedSink { inner: sink, recorder });
            }
        }
    }

    /// Records and calls [`Node::echo`].
    pub fn echo(&mut self, now: Time, echo: &Echo) -> Result<(), EchoError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(Tag::Echo, &echo_body(now, echo));
        }
        self.node.echo(now, echo)
    }

    /// Calls [`Node::next_echo`], which needs no recording because it has no effect on recorded
    /// state.
    pub fn next_echo(&mut self) -> Option<EchoAnswer> {
        self.node.next_echo()
    }

    /// Calls [`Node::next_notice`], which needs no recording because it has no effect on recorded
    /// state.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.node.next_notice()
    }

    /// Records and calls [`Node::drain`].
    pub fn drain(&mut self, now: Time, on: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(Tag::Drain, &Body::default().time(now).u64(on.into()));
        }
        self.node.drain(now, on);
    }

    /// Records and calls [`Node::leave`].
    pub fn leave(&mut self, now: Time) -> Time {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(Tag::Leave, &Body::default().time(now));
        }
        self.node.leave(now)
    }

    /// Records and calls [`Node::reconfigure`]. The record holds the files behind the change: the
    /// configuration and, if it is new, the certificate.
    pub fn reconfigure(&mut self, now: Time, changes: &Changes, text: &str) {
        if let Some(recorder) = &mut self.recorder {
            let shown = changes.certificate.as_ref().map(Certificate::to_bytes);
            let body = Body::default().time(now).bytes(text.as_bytes());
            let body = body.bytes(&shown.unwrap_or_default());
            recorder.write(Tag::Reconfigure, &body);
        }
        self.node.reconfigure(now, changes);
    }

    /// Writes records that are a second old, if a recording is active.
    pub fn flush(&mut self, now: Time) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush(now);
        }
    }

    /// Time at which to call [`RecordedNode::flush`].
    pub fn flush_at(&self) -> Time {
        self.recorder.as_ref().map_or(Time::NEVER, |recorder| recorder.flush_at)
    }

    /// Completes the recording, if one is active.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.recorder {
            Some(recorder) => recorder.finish(),
            None => Ok(()),
        }
    }

    /// Calls [`Node::next_moved`], which needs no recording because it has no effect on recorded
    /// state.
    pub fn next_moved(&mut self) -> Option<LinkId> {
        self.node.next_moved()
    }

    /// Records and calls [`Node::set_uplink`].
    pub fn set_uplink(&mut self, link: LinkId, uplink: UplinkId, interface: Option<u32>) {
        if let Some(recorder) = &mut self.recorder {
            let body = Body::default().u64(link.0.into()).u64(uplink.0.into());
            recorder.write(Tag::Uplink, &body.u64(interface.map_or(u64::MAX, u64::from)));
        }
        self.node.set_uplink(link, uplink, interface);
    }

    /// Records and calls [`Node::bind`].
    pub fn bind(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        if let Some(recorder) = &mut self.recorder {
            let body = Body::default().u64(link.0.into()).u64(own.is_some().into());
            let all = own.iter().flat_map(OwnAddresses::iter).map(|ip| ip.to_string());
            let body = body.bytes(all.collect::<Vec<_>>().join(" ").as_bytes());
            recorder.write(Tag::Bind, &body);
        }
        self.node.bind(link, own);
    }

    /// Records and calls [`Node::set_address`].
    pub fn set_address(&mut self, now: Time, link: LinkId, address: SocketAddr) {
        if let Some(recorder) = &mut self.recorder {
            let body = Body::default().time(now).u64(link.0.into()).address(address);
            recorder.write(Tag::Address, &body);
        }
        self.node.set_address(now, link, address);
    }

    /// Calls [`Node::transmit`] with an empty [`arena`], and records its rooms and the output.
    pub fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        let rooms = self.recorder.is_some().then(|| transmit_body(now, arena));
        let drained = self.node.transmit(now, arena);
        if let (Some(recorder), Some(rooms)) = (&mut self.recorder, rooms) {
            recorder.write(Tag::Transmit, &rooms);
            sent(arena).for_each(|body| recorder.write(Tag::Sent, &body));
        }
        drained
    }
}
