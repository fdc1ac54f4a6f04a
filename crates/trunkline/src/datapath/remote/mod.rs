//! Applications on other hosts: TCP and UDP at one address. The protocol is
//! `trunkline_overlay::session::remote`; here are its sockets.

mod outbox;
mod session;

pub use session::{Hello, Session};

use super::sessions::Door;
use super::udp::Udp;
use outbox::Outbox;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use trunkline_base::Time;
use trunkline_overlay::link::DSCP_EF;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::remote::{
    Datagram, FromClient, HANDSHAKE_TIMEOUT, Token, packet_to_client, packet_to_node,
};
use trunkline_overlay::wire::Service;

/// Connections that may be shaking hands at once; when there are more, the one
/// that has been at it longest goes.
const HANDSHAKES: usize = 1_024;

/// What remote carriers count, by reason.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct RemoteStats {
    /// Connections that were not bound in time.
    pub handshakes: u64,
    /// Connections that ended because their bytes made no sense.
    pub streams: u64,
    /// Datagrams without a token that a session has, or with nothing for it.
    pub datagrams: u64,
    /// Datagrams whose counter had been seen.
    pub replays: u64,
    /// Datagrams to clients that the kernel did not take.
    pub sends: u64,
    /// Sessions whose client came back over another connection.
    pub replaced: u64,
}

impl RemoteStats {
    /// Every count with its metric label.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("handshake_timeout", self.handshakes),
            ("bad_stream", self.streams),
            ("bad_datagram", self.datagrams),
            ("replayed_datagram", self.replays),
            ("send_failed", self.sends),
        ]
        .into_iter()
    }
}

/// An address where applications of other hosts attach.
pub struct Remote {
    /// Where they connect.
    pub door: Door,
    /// Where their packets come.
    pub udp: Udp,
    address: SocketAddr,
}

impl Remote {
    /// Listens on `address`, over TCP and UDP.
    pub fn bind(address: SocketAddr, offload: bool) -> io::Result<Remote> {
        let v6 = address.is_ipv6();
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if v6 {
            socket.set_only_v6(true)?;
        }
        // A restarted node need not wait until its last connections have timed
        // out.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let udp = Udp::bind(address, offload)?;
        Ok(Remote { door: Door::open(socket)?, udp, address })
    }

    /// The next client that wants in: its carrier, with a token from the
    /// system's entropy.
    pub fn accept(&mut self) -> io::Result<Option<Session>> {
        let Some(socket) = self.door.accept()? else { return Ok(None) };
        let token = getrandom::u64().map_err(io::Error::from)?;
        Session::new(socket, Token(token)).map(Some)
    }

    /// Whether strangers may reach this address.
    pub fn is_exposed(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}

/// What the remote sessions share.
#[derive(Default)]
pub struct Remotes {
    /// Hashed under a key of this process, so that nobody can aim.
    tokens: HashMap<Token, SessionId>,
    /// The latest connection of each client.
    identities: HashMap<u64, (SessionId, u32)>,
    /// Sessions by when they must be bound, in order; some are long.
    handshakes: VecDeque<(Time, SessionId, Token)>,
    outboxes: Vec<Outbox>,
    /// Sessions whose TCP did not take all: to be told when it takes more.
    stuck: Vec<SessionId>,
    /// Counters.
    pub stats: RemoteStats,
}

impl Remotes {
    /// Prepares to send by the UDP sockets of `remotes`.
    pub fn new(remotes: &[Remote]) -> io::Result<Remotes> {
        let outboxes = remotes.iter().map(|r| r.udp.try_clone().map(Outbox::new));
        Ok(Remotes { outboxes: outboxes.collect::<io::Result<_>>()?, ..Remotes::default() })
    }

    pub(super) fn admit(&mut self, id: SessionId, session: &Session) {
        self.tokens.insert(session.token(), id);
    }

    pub(super) fn dismiss(&mut self, id: SessionId, session: &Session) {
        self.tokens.remove(&session.token());
        if let Some(Hello { identity, attempt }) = session.hello
            && self.identities.get(&identity) == Some(&(id, attempt))
        {
            self.identities.remove(&identity);
        }
    }

    /// Session `id` is to be bound before long. Returns one that has no more
    /// time.
    pub fn await_bind(
        &mut self,
        now: Time,
        id: SessionId,
        token: Token,
    ) -> Option<(SessionId, Token)> {
        self.handshakes.push_back((now + HANDSHAKE_TIMEOUT, id, token));
        if self.handshakes.len() <= HANDSHAKES {
            return None;
        }
        self.handshakes.pop_front().map(|(_, id, token)| (id, token))
    }

    /// When the next handshake must be over.
    pub fn next_timeout(&self) -> Time {
        self.handshakes.front().map_or(Time::NEVER, |(at, ..)| *at)
    }

    /// A session whose time for the handshake is over at `now`.
    pub fn overdue(&mut self, now: Time) -> Option<(SessionId, Token)> {
        self.handshakes.front().filter(|(at, ..)| *at <= now)?;
        self.handshakes.pop_front().map(|(_, id, token)| (id, token))
    }

    /// Session `id` is of the client that `hello` names. The earlier one of its
    /// two sessions, if it has two: that may be `id`.
    pub fn identify(&mut self, id: SessionId, hello: Hello) -> Option<SessionId> {
        let Hello { identity, attempt } = hello;
        let (other, its) = self.identities.insert(identity, (id, attempt)).filter(|o| o.0 != id)?;
        self.stats.replaced += 1;
        if attempt.wrapping_sub(its) < 1 << 31 {
            return Some(other);
        }
        self.identities.insert(identity, (other, its));
        Some(id)
    }

    /// Reads a datagram as far as to tell whose it is.
    pub(super) fn owner<'a>(&mut self, bytes: &'a [u8]) -> Option<(Datagram<'a>, SessionId)> {
        let datagram = Datagram::parse(bytes).ok();
        let owner = datagram.and_then(|d| Some((d, *self.tokens.get(&d.token)?)));
        self.stats.datagrams += u64::from(owner.is_none());
        owner
    }

    /// Takes a datagram of `session`: a ping is answered, a packet returned.
    pub(super) fn take<'a>(
        &mut self,
        session: &mut Session,
        via: usize,
        from: SocketAddr,
        datagram: &Datagram<'a>,
    ) -> Option<&'a [u8]> {
        let message = match FromClient::parse(datagram.message) {
            Ok(FromClient::Ping) => None,
            Ok(FromClient::Session(message)) if packet_to_node(message, 0).is_some() => {
                Some(message)
            }
            _ => {
                self.stats.datagrams += 1;
                return None;
            }
        };
        if !session.peer.accept(from, datagram.counter) {
            self.stats.replays += 1;
            return None;
        }
        if session.peer.address() == Some(from) {
            session.via = via;
        }
        if message.is_none() {
            let (pong, head) = (session::pong(), session.peer.next_head());
            self.post(via, from, 0, [&head, &pong, &[]]);
        }
        message
    }

    /// Sends a session's message on the path it takes.
    pub(super) fn deliver(
        &mut self,
        id: SessionId,
        session: &mut Session,
        head: &[u8],
        payload: &[u8],
    ) -> bool {
        if let Some(address) = session.peer.udp()
            && let Some(service) = packet_to_client(head, payload.len())
        {
            let dscp = if service == Service::RealTime { DSCP_EF } else { 0 };
            let first = session.peer.next_head();
            self.post(session.via, address, dscp, [&first, head, payload]);
            return true;
        }
        let sent = session.send(head, payload);
        self.note_stuck(id, session);
        sent
    }

    /// Remembers `session` if its TCP has just become stuck.
    pub(super) fn note_stuck(&mut self, id: SessionId, session: &mut Session) {
        if session.is_stuck() && !session.noted {
            session.noted = true;
            self.stuck.push(id);
        }
    }

    /// A session whose TCP has become stuck.
    pub fn next_stuck(&mut self) -> Option<SessionId> {
        self.stuck.pop()
    }

    /// Sends what waits for the end of the wake-up.
    pub fn flush(&mut self) {
        for outbox in &mut self.outboxes {
            self.stats.sends += outbox.flush();
        }
    }

    fn post(&mut self, via: usize, to: SocketAddr, dscp: u8, parts: [&[u8]; 3]) {
        if let Some(outbox) = self.outboxes.get_mut(via) {
            self.stats.sends += outbox.post(to, dscp, parts);
        }
    }
}
