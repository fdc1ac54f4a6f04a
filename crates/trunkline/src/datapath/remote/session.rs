use crate::datapath::sessions::Read;
use socket2::{Socket, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::wire::Writer;
use trunkline_overlay::session::remote::{
    Backlog, FrameReader, FromClient, FromNode, Peer, Token, prefix,
};

/// What the kernel may hold back of messages on TCP: a tenth of a second of
/// ten calls. More would be delay, not a buffer.
const UNSENT: u32 = 16 << 10;
/// Silence after which the kernel asks whether the client's host is there …
const IDLE: Duration = Duration::from_secs(10);
/// … and how often, how many times. An application that sleeps keeps its
/// session, since its kernel answers.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const ASK: u32 = 4;
/// How long bytes may go unacknowledged: as long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Whose connection, and the client's how manieth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub identity: u64,
    pub attempt: u32,
}

/// A client's connection.
pub struct Session {
    tcp: Socket,
    frames: FrameReader,
    backlog: Backlog,
    /// The client over UDP.
    pub(super) peer: Peer,
    /// Which of the node's remote addresses its datagrams come to.
    pub(super) via: usize,
    pub(super) hello: Option<Hello>,
    /// Somebody waits until `tcp` takes more.
    pub(super) noted: bool,
}

impl Session {
    /// Sets `tcp` up and says the first word.
    pub(super) fn new(tcp: Socket, token: Token) -> io::Result<Session> {
        tcp.set_tcp_nodelay(true)?;
        tcp.set_tcp_notsent_lowat(UNSENT)?;
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        let keepalive =
            TcpKeepalive::new().with_time(IDLE).with_interval(ASK_AGAIN).with_retries(ASK);
        tcp.set_tcp_keepalive(&keepalive)?;
        let mut session = Session {
            tcp,
            frames: FrameReader::default(),
            backlog: Backlog::default(),
            peer: Peer::new(token),
            via: 0,
            hello: None,
            noted: false,
        };
        let mut welcome = [0; 16];
        let mut w = Writer::new(&mut welcome);
        if (FromNode::Welcome { token }).emit(&mut w).is_ok() {
            session.send(w.written(), &[]);
        }
        Ok(session)
    }

    /// What the client's datagrams begin with.
    pub fn token(&self) -> Token {
        self.peer.token()
    }

    /// Whether packets to the client take UDP.
    pub fn uses_udp(&self) -> bool {
        self.peer.udp().is_some()
    }

    /// Sends one message over TCP. False if the client does not keep up.
    pub fn send(&mut self, head: &[u8], payload: &[u8]) -> bool {
        if self.flush().is_err() || !self.backlog.is_empty() {
            return false;
        }
        let first = prefix(head.len() + payload.len());
        let parts = [&first[..], head, payload];
        let slices = parts.map(IoSlice::new);
        match self.tcp.send_vectored_with_flags(&slices, libc::MSG_NOSIGNAL) {
            Ok(n) => {
                self.backlog.keep(&parts, n);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the end of a message waits until TCP takes more.
    pub(super) fn is_stuck(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// TCP takes more. Whether the message that waited for it has gone.
    pub fn resume(&mut self) -> bool {
        // If this fails, reading does too, and ends the session.
        let stuck = self.flush().is_ok() && self.is_stuck();
        self.noted = stuck;
        !stuck
    }

    /// Sends the end of a message that was begun, as far as TCP takes it.
    fn flush(&mut self) -> io::Result<()> {
        while !self.backlog.is_empty() {
            match self.tcp.send_with_flags(self.backlog.rest(), libc::MSG_NOSIGNAL) {
                Ok(n) => self.backlog.advance(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads one message into `buf`, or does what the carrier is asked to.
    pub fn recv(&mut self, buf: &mut [u8]) -> Read {
        // Two reads make a message: its length, and the rest.
        for _ in 0..2 {
            let n = match (&self.tcp).read(self.frames.room()) {
                Ok(0) => return Read::Closed,
                Ok(n) => n,
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => return Read::Empty,
                    _ => return Read::Closed,
                },
            };
            let message = match self.frames.filled(n) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(_) => return Read::Broken,
            };
            match FromClient::parse(message) {
                Ok(FromClient::Session(message)) => {
                    let n = message.len().min(buf.len());
                    buf[..n].copy_from_slice(&message[..n]);
                    return Read::Message(n);
                }
                // A client that reads nothing gets no answer either.
                Ok(FromClient::Ping) => drop(self.send(&pong(), &[])),
                Ok(FromClient::Packets { udp }) => self.peer.set_udp(udp),
                Ok(FromClient::Hello { identity, attempt }) => {
                    let hello = Hello { identity, attempt };
                    if self.hello.replace(hello).is_some_and(|h| h != hello) {
                        return Read::Broken;
                    }
                    return Read::Hello(hello);
                }
                Err(_) => return Read::Broken,
            }
            return Read::Handled;
        }
        Read::Handled
    }
}

/// The answer to a ping: one byte, its type.
pub(super) fn pong() -> [u8; 1] {
    let mut pong = [0];
    let fits = FromNode::Pong.emit(&mut Writer::new(&mut pong));
    debug_assert!(fits.is_ok());
    pong
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
