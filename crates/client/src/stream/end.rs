//! One end of a stream, with operations that never block: the state behind a socket's lock.

use crate::carrier::{Carrier, HEAD, Next, Stuck};
use crate::connection::emit;
use crate::error::Error;
use crate::socket::Address;
use crate::stream::readiness::Readiness;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request, Reset};
use trunkline_overlay::session::wire::{RefusalReason, ToClient, ToNode};
use trunkline_overlay::wire::WireError;

/// Maximum number of unread bytes from the node: the bandwidth-delay product of 10 Mbit/s and 200
/// ms.
pub(crate) const WINDOW: u32 = 256 << 10;
/// Number of bytes read before the node gets more credit.
const GRANT: u32 = WINDOW / 4;
/// Time after which credit is granted regardless of the number of bytes: a node assumes that an
/// application that grants no credit for minutes doesn't read.
const GRANT_AFTER: Duration = Duration::from_secs(10);
/// Maximum credit that a node may grant: its byte count has 32 bits.
const MAX_CREDIT: u64 = u32::MAX as u64;
/// Maximum number of messages that one call takes from the node, which limits how long it holds the
/// lock.
const TURNS: usize = 256;
/// Room for the longest message of a stream, plus one byte to detect a longer one.
pub(crate) const ROOM: usize = 1 + MAX_DATA + 1;

/// Reason why an end can't be used any more.
#[derive(Clone, Copy)]
pub(crate) enum Broken {
    Reset(Reset),
    Disconnected,
    Protocol(WireError),
    Refused(RefusalReason),
    System(Option<Errno>),
    /// This application has reset the stream.
    Abandoned,
    /// This application has closed the socket.
    Closed,
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Error {
        match broken {
            Broken::Reset(why) => Error::Reset(why),
            Broken::Disconnected => Error::Disconnected,
            Broken::Protocol(error) => Error::Protocol(error),
            Broken::Refused(refusal) => Error::Refused(refusal),
            Broken::System(errno) => Error::io(
                "exchange messages with the trunkline node",
                errno.map_or(io::ErrorKind::Other.into(), io::Error::from),
            ),
            Broken::Abandoned => {
                Error::io("use a stream that this application has reset", Errno::ECONNABORTED)
            }
            Broken::Closed => Error::io("use a socket that is closed", Errno::EBADF),
        }
    }
}

/// Parameters of a new stream as the node reports them: its ends, whether they keep message
/// boundaries, and the initial credit in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Connected {
    pub(crate) local: Address,
    pub(crate) peer: Address,
    pub(crate) messages: bool,
    pub(crate) credit: u32,
}

pub(crate) struct End {
    pub(crate) local: Address,
    pub(crate) peer: Address,
    /// Whether both ends keep message boundaries.
    pub(crate) messages: bool,
    pub(crate) nonblocking: bool,
    pub(crate) read_timeout: Option<Duration>,
    /// Connection to the node; `None` once nothing more can be exchanged.
    carrier: Option<Box<dyn Carrier>>,
    broken: Option<Broken>,
    /// Buffer for one message from the node.
    buffer: Box<[u8; ROOM]>,
    /// Bytes received but not yet read: at most `WINDOW`.
    inbox: VecDeque<u8>,
    /// Number of bytes that the node may still send.
    granted: u32,
    /// Bytes read for which the node has not been given credit yet.
    read: u32,
    /// Time at which the node last got credit.
    granted_at: Instant,
    /// Whether the last grant of credit found no room on the carrier.
    grant_stuck: bool,
    /// Whether the other end has ended its direction.
    ended: bool,
    /// Whether the application has read the end of that direction.
    end_read: bool,
    /// Whether both directions have ended, and the other end's node has everything.
    finished: bool,
    /// Whether the application requested a reset, so that dropping the socket doesn't end the
    /// stream properly.
    given_up: bool,
    /// Number of bytes that the node still accepts.
    credit: u64,
    /// Whether the node has been notified that no more data follow.
    shut: bool,
    /// Whether the last message to the node found no room on the carrier.
    stuck: bool,
    /// Whether a nonblocking send has found no credit or no room, so that `ready` has to signal
    /// both.
    wanted: bool,
    /// The descriptor of the socket, for blocking reads and for callers that poll.
    ready: Readiness,
    /// Descriptor that blocked writes wait on; created when the first one blocks.
    writers: Option<Readiness>,
}

impl Drop for End {
    /// Closing a socket ends its direction of the stream properly, as with TCP. If the process is
    /// killed or panics, or the message finds no room, the other end gets a reset instead.
    fn drop(&mut self) {
        let open = self.carrier.is_some() && self.broken.is_none() && !self.shut;
        if open && !self.given_up && !std::thread::panicking() {
            let _ = self.send(Request::Shut);
        }
    }
}

impl End {
    /// Creates an open stream over `carrier`, which `ready` already watches.
    pub(crate) fn new(carrier: Box<dyn Carrier>, ready: Readiness, connected: Connected) -> End {
        let Connected { local, peer, messages, credit } = connected;
        End {
            local,
            peer,
            messages,
            nonblocking: false,
            read_timeout: None,
            carrier: Some(carrier),
            broken: None,
            buffer: Box::new([0; ROOM]),
            inbox: VecDeque::new(),
            granted: WINDOW,
            read: 0,
            granted_at: Instant::now(),
            grant_stuck: false,
            ended: false,
            end_read: false,
            finished: false,
            given_up: false,
            credit: credit.into(),
            shut: false,
            stuck: false,
            wanted: false,
            ready,
            writers: None,
        }
    }

    pub(crate) fn ready(&self) -> &Readiness {
        &self.ready
    }

    /// Descriptor to wait on before trying to write again.
    pub(crate) fn writers(&mut self) -> Result<&Readiness, Error> {
        self.wanted = false;
        if self.writers.is_none() {
            let watch = Readiness::new()?;
            if let Some(carrier) = &self.carrier {
                watch.add(carrier.descriptor())?;
            }
            self.writers = Some(watch);
        }
        self.settle();
        self.writers.as_ref().ok_or(Error::WouldBlock)
    }

    /// Reads received data into `buf`; 0 bytes mean the end of the stream.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        if let Some(own @ (Broken::Closed | Broken::Abandoned)) = self.broken {
            return Err(own.into());
        }
        if buf.is_empty() {
            return Ok(0);
        }
        // Data that wait in the kernel stall the node, too.
        if (self.inbox.is_empty() || self.grants_late()) && !self.ended {
            self.pump();
        }
        if self.inbox.is_empty() {
            if self.ended {
                self.end_read = true;
                return Ok(0);
            }
            self.grant();
            return Err(self.broken.map_or(Error::WouldBlock, Error::from));
        }
        let n = io::Read::read(&mut self.inbox, buf).unwrap_or(0);
        self.read += n as u32;
        self.grant();
        Ok(n)
    }

    /// Whether the node has gone without credit for so long that even a little is worth a message.
    fn grants_late(&self) -> bool {
        self.granted_at.elapsed() >= GRANT_AFTER
    }

    /// Grants the node credit for the bytes read, if there are enough to justify a message.
    fn grant(&mut self) {
        let is_worth = self.read >= GRANT || self.read > 0 && self.grants_late();
        if is_worth && !self.ended {
            match self.send(Request::Credit(self.read)) {
                Ok(()) => {
                    self.granted += self.read;
                    (self.read, self.grant_stuck) = (0, false);
                    self.granted_at = Instant::now();
                }
                Err(stuck) => self.grant_stuck = matches!(stuck, Stuck::WouldBlock),
            }
        }
    }

    /// Writes as much of `buf` as the node accepts now: at least one byte, unless `buf` is empty.
    pub(crate) fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        (self.wanted, self.stuck) = (false, false);
        self.may_write()?;
        // A node may accept data as fast as it is written, and a reader waits for the lock.
        let buf = &buf[..buf.len().min(WINDOW as usize)];
        let mut done = 0;
        while done < buf.len() {
            if self.credit == 0 {
                self.pump();
            }
            let n = (buf.len() - done).min(MAX_DATA);
            let n = n.min(usize::try_from(self.credit).unwrap_or(usize::MAX));
            if n == 0 || self.broken.is_some() {
                break;
            }
            if self.send(Request::Data(&buf[done..done + n])).is_err() {
                // An earlier message may state the reason, and there may be no reader to take it.
                self.pump();
                break;
            }
            self.credit -= n as u64;
            done += n;
        }
        self.sent(if done == 0 && !buf.is_empty() { None } else { Some(done) })
    }

    /// Ends this direction. Succeeds once all data written, and the end marker, have been passed to
    /// the operating system.
    pub(crate) fn shut(&mut self) -> Result<(), Error> {
        (self.wanted, self.stuck) = (false, false);
        if !self.shut {
            self.may_write()?;
            match self.send(Request::Shut) {
                Ok(()) => self.shut = true,
                Err(Stuck::WouldBlock) => {}
                Err(_) => {
                    // An earlier message may state the reason.
                    self.pump();
                    self.fail(Broken::Disconnected);
                    self.may_write()?;
                }
            }
        }
        self.flushed()
    }

    /// Resets the stream. Succeeds once the node has been notified, or the stream has ended.
    pub(crate) fn reset(&mut self) -> Result<(), Error> {
        (self.wanted, self.stuck) = (false, false);
        self.given_up = true;
        match self.broken {
            Some(Broken::Abandoned) | None => {}
            Some(broken) => return Err(broken.into()),
        }
        if self.broken.is_none() && self.carrier.is_some() && self.send(Request::Reset).is_ok() {
            self.broken = Some(Broken::Abandoned);
        }
        match self.flushed() {
            Err(Error::WouldBlock) => Err(Error::WouldBlock),
            _ => Ok(()),
        }
    }

    /// Succeeds once both directions have ended and the other end's node has everything.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if !self.finished && self.broken.is_none() {
            self.pump();
        }
        match self.broken {
            _ if self.finished => Ok(()),
            Some(broken) => Err(broken.into()),
            None => Err(Error::WouldBlock),
        }
    }

    /// Succeeds once everything sent has left this process.
    fn flushed(&mut self) -> Result<(), Error> {
        let flushed = match &mut self.carrier {
            // The reason was recorded when the carrier was dropped.
            None => Ok(true),
            Some(carrier) => carrier.flushed(),
        };
        match flushed {
            Ok(flushed) => self.stuck |= !flushed,
            Err(stuck) => self.failed(stuck),
        }
        if self.stuck {
            self.pump();
        }
        self.sent(if self.stuck { None } else { Some(()) })
    }

    fn may_write(&self) -> Result<(), Error> {
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        if self.shut {
            return Err(Error::io("write to a stream that was shut down", Errno::EPIPE));
        }
        Ok(())
    }

    /// Result of a send: the value in `done`, or the reason why nothing could be sent.
    fn sent<T>(&mut self, done: Option<T>) -> Result<T, Error> {
        if let Some(done) = done {
            return Ok(done);
        }
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        self.wanted = true;
        Err(Error::WouldBlock)
    }

    fn send(&mut self, request: Request<'_>) -> Result<(), Stuck> {
        let Some(carrier) = &mut self.carrier else { return Err(Stuck::Closed) };
        let message = ToNode::Stream(request);
        let sent = emit(&message, |head| carrier.send(head, message.payload(), true));
        self.stuck = matches!(sent, Err(Stuck::WouldBlock));
        if let Err(Stuck::Io(source)) = sent {
            let errno = source.raw_os_error().map(Errno::from_raw);
            self.fail(Broken::System(errno));
            return Err(Stuck::Closed);
        }
        sent
    }

    /// Takes the messages that the node has sent, up to `TURNS` of them.
    fn pump(&mut self) {
        for _ in 0..TURNS {
            let Some(carrier) = &mut self.carrier else { return };
            let len = match receive(&mut **carrier, &mut self.buffer[..]) {
                Ok(len) => len,
                Err(Stuck::WouldBlock) => return,
                Err(stuck) => return self.failed(stuck),
            };
            if let Err(broken) = self.take(len) {
                return self.fail(broken);
            }
        }
    }

    /// Processes the message in the first `len` bytes of the buffer. Fails if it breaks the
    /// protocol or ends the stream.
    fn take(&mut self, len: usize) -> Result<(), Broken> {
        let message = self.buffer.get(..len);
        let message = message.ok_or(Broken::Protocol(WireError::OutOfRange("the length")))?;
        let notice = match ToClient::parse(message) {
            Ok(ToClient::Stream(notice)) => notice,
            Ok(ToClient::Error { refusal, .. }) => return Err(Broken::Refused(refusal)),
            Ok(_) => return Err(Broken::Protocol(out_of_place())),
            Err(error) => return Err(Broken::Protocol(error)),
        };
        match notice {
            Notice::Data(bytes) if !self.ended => {
                let left = self.granted.checked_sub(bytes.len() as u32);
                let over = Broken::Protocol(WireError::OutOfRange("the data beyond the credit"));
                self.granted = left.ok_or(over)?;
                self.inbox.extend(bytes);
            }
            Notice::Credit(bytes) if bytes > 0 => {
                let credit = self.credit + u64::from(bytes);
                if credit > MAX_CREDIT {
                    return Err(Broken::Protocol(WireError::OutOfRange("the credit")));
                }
                self.credit = credit;
            }
            Notice::Shut if !self.ended => self.ended = true,
            Notice::Reset(why) => return Err(Broken::Reset(why)),
            Notice::Finished if self.ended && self.shut => {
                self.finished = true;
                self.leave();
            }
            _ => return Err(Broken::Protocol(out_of_place())),
        }
        Ok(())
    }

    fn failed(&mut self, stuck: Stuck) {
        match stuck {
            Stuck::WouldBlock => {}
            Stuck::Closed => self.fail(Broken::Disconnected),
            Stuck::Io(source) => {
                self.fail(Broken::System(source.raw_os_error().map(Errno::from_raw)));
            }
        }
    }

    /// Ends the stream; only the first reason is kept. Data received before can still be read.
    pub(crate) fn fail(&mut self, why: Broken) {
        self.broken = match self.broken {
            Some(first) if !matches!(why, Broken::Closed) => Some(first),
            _ => Some(why),
        };
        self.leave();
    }

    fn leave(&mut self) {
        if let Some(mut carrier) = self.carrier.take() {
            self.ready.leave(&mut *carrier);
            if let Some(writers) = &mut self.writers {
                writers.leave(&mut *carrier);
            }
        }
    }

    /// Updates the descriptors' signals after an operation, so that other threads waiting on them
    /// notice its changes. Must be called after every operation.
    pub(crate) fn settle(&mut self) {
        let over = self.broken.is_some();
        let to_read = !self.inbox.is_empty() || self.ended && !self.end_read;
        let to_write = over || self.carrier.is_none() || self.credit > 0 && !self.stuck;
        self.ready.signal(over || self.finished || to_read || self.wanted && to_write);
        if let Some(writers) = &mut self.writers {
            writers.signal(to_write);
        }
        if let Some(carrier) = &mut self.carrier {
            let wanted = self.grant_stuck || self.wanted && self.stuck;
            self.ready.want_room(&mut **carrier, wanted);
            if let Some(writers) = &mut self.writers {
                writers.want_room(&mut **carrier, self.stuck);
            }
        }
    }
}

/// Reads the next message from the node into `buffer` and returns its length, which exceeds that of
/// `buffer` if the message does not fit.
pub(crate) fn receive(carrier: &mut dyn Carrier, buffer: &mut [u8]) -> Result<usize, Stuck> {
    let Some((head, rest)) = buffer.split_first_chunk_mut::<HEAD>() else {
        return Err(Stuck::WouldBlock);
    };
    carrier.receive(head, rest, Next::Take)
}

pub(crate) fn out_of_place() -> WireError {
    WireError::OutOfRange("the place of a message in the session")
}
