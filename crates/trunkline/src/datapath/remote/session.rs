use crate::datapath::sessions::Read;
use socket2::{Socket, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::session::Client;
use trunkline_overlay::session::remote::{
    Backlog, FrameReader, FromClient, FromNode, Keys, Peer, Token, prefix,
};

/// What the kernel may hold back of messages on TCP: a tenth of a second of
/// ten calls. More would be delay, not a buffer.
const UNSENT: u32 = 16 << 10;
/// What the kernel may hold of one connection each way (it doubles both): 10 Mbit/s
/// over 100 ms. Without it one client could have it hold many times as much.
const BUFFER: usize = 128 << 10;
/// How often a client that is held back is told that the node lives, since nobody
/// reads what it asks: it gives a node up after 6 s.
pub const ASSURE: Duration = Duration::from_secs(1);
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
    /// Whose rights it has, once it is let in.
    pub(super) client: Client,
    /// Seals everything, once the client's handshake has been answered.
    pub(super) keys: Option<Keys>,
    /// A message has been read and not been looked at.
    held: bool,
    /// The client over UDP.
    pub(super) peer: Peer,
    /// Which of the node's remote addresses its datagrams come to.
    pub(super) via: usize,
    pub(super) hello: Option<Hello>,
    /// Somebody waits until `tcp` takes more.
    pub(super) noted: bool,
    /// When it was last told that the node lives.
    assured: Time,
}

impl Session {
    /// Sets `tcp` up.
    pub(super) fn new(tcp: Socket, token: Token) -> io::Result<Session> {
        tcp.set_tcp_nodelay(true)?;
        tcp.set_tcp_notsent_lowat(UNSENT)?;
        tcp.set_send_buffer_size(BUFFER)?;
        tcp.set_recv_buffer_size(BUFFER)?;
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        let keepalive =
            TcpKeepalive::new().with_time(IDLE).with_interval(ASK_AGAIN).with_retries(ASK);
        tcp.set_tcp_keepalive(&keepalive)?;
        let host = tcp.peer_addr().ok().and_then(|peer| peer.as_socket()).map(|peer| peer.ip());
        Ok(Session {
            tcp,
            frames: FrameReader::default(),
            backlog: Backlog::default(),
            client: Client::Local,
            keys: None,
            held: false,
            peer: Peer::new(token, host),
            via: 0,
            hello: None,
            noted: false,
            assured: Time::ZERO,
        })
    }

    /// From here on everything is sealed, both ways.
    pub(super) fn seal(&mut self, keys: Keys) {
        self.keys = Some(keys);
    }

    /// It is `client`'s; the message that was read last is still to be looked at.
    pub(super) fn let_in(&mut self, client: Client) {
        self.client = client;
        self.held = true;
    }

    /// Whose rights it has.
    pub fn client(&self) -> Client {
        self.client
    }

    /// What the client's datagrams begin with.
    pub fn token(&self) -> Token {
        self.peer.token()
    }

    /// Whether packets to the client take UDP.
    pub fn uses_udp(&self) -> bool {
        self.peer.uses_udp()
    }

    /// Sends one message over TCP. False if the client does not keep up.
    pub fn send(&mut self, head: &[u8], payload: &[u8]) -> bool {
        if self.flush().is_err() || !self.backlog.is_empty() {
            return false;
        }
        if let Some(keys) = &mut self.keys {
            // Sealed is sent: what TCP does not take now it must take later,
            // since the other end counts.
            return self.backlog.seal(keys, [head, payload]) && self.flush().is_ok();
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

    /// Nobody reads what it says, as it is held back; but the node lives.
    pub fn assure(&mut self, now: Time) {
        if now.since(self.assured) >= ASSURE {
            self.assured = now;
            self.send(&pong(), &[]);
        }
    }

    /// Whether the end of a message waits until TCP takes more.
    pub(super) fn is_stuck(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether somebody waits for TCP to take more: until [`Session::resume`] has
    /// been called and nothing waits any more.
    pub fn is_noted(&self) -> bool {
        self.noted
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

    /// Reads one message, to be looked at by [`Session::message`]; what else came
    /// of it.
    pub(super) fn fetch(&mut self) -> Result<(), Read> {
        // Two reads make a message: its length, and the rest.
        for _ in 0..2 {
            let n = match (&self.tcp).read(self.frames.room()) {
                Ok(0) => return Err(Read::Closed),
                Ok(n) => n,
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => return Err(Read::Empty),
                    _ => return Err(Read::Closed),
                },
            };
            match self.frames.filled(n).map(|message| message.is_some()) {
                Ok(false) => {}
                Ok(true) => {
                    let opened = self.keys.as_mut().is_none_or(|keys| self.frames.open(keys));
                    return if opened { Ok(()) } else { Err(Read::Broken) };
                }
                Err(_) => return Err(Read::Broken),
            }
        }
        Err(Read::Handled)
    }

    /// The message that was read last.
    pub(super) fn message(&self) -> &[u8] {
        self.frames.whole().unwrap_or_default()
    }

    /// Reads one message into `buf`, or does what the carrier is asked to.
    pub fn recv(&mut self, buf: &mut [u8]) -> Read {
        if !std::mem::take(&mut self.held)
            && let Err(read) = self.fetch()
        {
            return read;
        }
        match FromClient::parse(self.frames.whole().unwrap_or_default()) {
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
            // Who one is is said once.
            Ok(FromClient::Initiation(_)) | Err(_) => return Read::Broken,
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
