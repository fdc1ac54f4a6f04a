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

/// Maximum number of unsent message bytes that the kernel may buffer on TCP: a tenth of a second of
/// ten calls. More would only add delay.
const UNSENT: u32 = 16 << 10;
/// Kernel buffer of one connection in each direction, in bytes (the kernel doubles both): 10 Mbit/s
/// over 100 ms. Without a limit one client could make it buffer many times as much.
const BUFFER: usize = 128 << 10;
/// Interval at which a flow-controlled client is reassured that the node is alive, since its pings
/// are not read; a client gives up on a node after 6 s.
pub const ASSURE: Duration = Duration::from_secs(1);
/// Silence after which the kernel starts to probe the client's host.
const IDLE: Duration = Duration::from_secs(10);
/// Interval and number of the kernel's keep-alive probes. An application that sleeps keeps its
/// session, since its kernel answers.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const ASK: u32 = 4;
/// Time that bytes may go unacknowledged: the same as for the probes.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Identity of a remote application, and the number of this connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub identity: u64,
    pub attempt: u32,
}

/// Connection of a client on another host.
pub struct Session {
    tcp: Socket,
    frames: FrameReader,
    backlog: Backlog,
    /// Client that determines the connection's rights once it is admitted.
    pub(super) client: Client,
    /// Keys that seal everything once the client's handshake has been answered.
    pub(super) keys: Option<Keys>,
    /// Whether a message has been read but not processed.
    held: bool,
    /// State of the client's UDP path.
    pub(super) peer: Peer,
    /// Index of the remote address of this node at which its datagrams arrive.
    pub(super) via: usize,
    pub(super) hello: Option<Hello>,
    /// Whether the packet thread waits for `tcp` to have room.
    pub(super) noted: bool,
    /// Time at which the client was last reassured that the node is alive.
    assured: Time,
}

impl Session {
    /// Sets the options of `tcp` and wraps it.
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

    /// Seals everything in both directions from now on.
    pub(super) fn seal(&mut self, keys: Keys) {
        self.keys = Some(keys);
    }

    /// Assigns the connection to `client`; the last message read is still to be processed.
    pub(super) fn let_in(&mut self, client: Client) {
        self.client = client;
        self.held = true;
    }

    /// Client that determines the connection's rights.
    pub fn client(&self) -> Client {
        self.client
    }

    /// Token that the client's datagrams begin with.
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
            // A sealed message must be sent: bytes that TCP doesn't accept now must follow later,
            // since the other end counts messages.
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

    /// Signals to a flow-controlled client that the node is alive, since its pings are not read.
    pub fn assure(&mut self, now: Time) {
        if now.since(self.assured) >= ASSURE {
            self.assured = now;
            self.send(&pong(), &[]);
        }
    }

    /// Whether part of a message waits until TCP has room.
    pub(super) fn is_stuck(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether the packet thread waits for TCP to have room: until [`Session::resume`] has been
    /// called and the backlog is empty.
    pub fn is_noted(&self) -> bool {
        self.noted
    }

    /// Continues sending once TCP has room. Returns whether the waiting message has been sent
    /// completely.
    pub fn resume(&mut self) -> bool {
        // If this fails, reading fails as well and ends the session.
        let stuck = self.flush().is_ok() && self.is_stuck();
        self.noted = stuck;
        !stuck
    }

    /// Sends the rest of a message, as far as TCP accepts it.
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

    /// Reads one message for [`Session::message`]; an error is any other outcome of the read.
    pub(super) fn fetch(&mut self) -> Result<(), Read> {
        // A message takes two reads: its length, and the rest.
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

    /// The last message read.
    pub(super) fn message(&self) -> &[u8] {
        self.frames.whole().unwrap_or_default()
    }

    /// Reads one message into `buf`, or processes one of the carrier's control messages.
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
            // A client identifies itself only once.
            Ok(FromClient::Initiation(_)) | Err(_) => return Read::Broken,
        }
        Read::Handled
    }
}

/// Encodes the answer to a ping: one byte, its type.
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
