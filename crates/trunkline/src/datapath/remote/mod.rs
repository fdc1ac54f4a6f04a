//! Applications on other hosts: TCP and UDP at one address. The protocol is
//! `trunkline_overlay::session::remote`; this module has its sockets.

mod outbox;
mod pending;
mod session;

pub use pending::{Admission, PendingConnections};
pub use session::{ASSURE, Hello, Session};

use super::sessions::AcceptQueue;
use super::udp::Udp;
use crate::addresses;
use outbox::Outbox;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use trunkline_base::Time;
use trunkline_overlay::link::DSCP_EF;
use trunkline_overlay::session::remote::{
    DATAGRAM_HEAD, Datagram, FromClient, HANDSHAKE_TIMEOUT, TAG, Token, packet_to_client,
    packet_to_node,
};
use trunkline_overlay::session::wire::RefusalReason;
use trunkline_overlay::session::{Client, SessionId};
use trunkline_overlay::wire::Service;

/// Maximum number of concurrent handshakes; beyond it, the oldest connection is dropped.
const HANDSHAKES: usize = 1_024;

/// Counters of remote carriers, by reason.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct RemoteStats {
    /// Connections that were not bound in time.
    pub handshakes: u64,
    /// Connections that ended because of invalid bytes.
    pub streams: u64,
    /// Datagrams without the token of a session, or with nothing for it.
    pub datagrams: u64,
    /// Datagrams with a counter that was a duplicate.
    pub replays: u64,
    /// Datagrams of a session that were not sealed with its keys.
    pub forged: u64,
    /// Connections with an invalid first message.
    pub unauthenticated: u64,
    /// Handshakes that were forged, or meant for another node.
    pub wrong_key: u64,
    /// Handshakes of clients that are not in the configuration.
    pub unknown_client: u64,
    /// Handshakes in excess of the limit for one address.
    pub busy: u64,
    /// Datagrams to clients that the kernel did not accept.
    pub sends: u64,
    /// Datagrams lost because their session was flow-controlled.
    pub flow_controlled: u64,
    /// Sessions replaced by a new connection of the same client.
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
            ("forged_datagram", self.forged),
            ("unauthenticated", self.unauthenticated),
            ("wrong_key", self.wrong_key),
            ("unknown_client", self.unknown_client),
            ("busy", self.busy),
            ("send_failed", self.sends),
            ("flow_controlled", self.flow_controlled),
        ]
        .into_iter()
    }

    /// Counts a refused connection.
    pub fn count(&mut self, refusal: RefusalReason) {
        match refusal {
            RefusalReason::Unauthenticated => self.unauthenticated += 1,
            RefusalReason::WrongKey => self.wrong_key += 1,
            RefusalReason::UnknownClient => self.unknown_client += 1,
            RefusalReason::Busy => self.busy += 1,
            _ => {}
        }
    }
}

/// An address at which applications on other hosts attach.
pub struct Remote {
    /// Listener for their connections.
    pub queue: AcceptQueue,
    /// Socket for their packets.
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
        // A restarted node need not wait until its last connections have timed out.
        socket.set_reuse_address(true)?;
        addresses::bind(&socket, address)?;
        let udp = Udp::bind(address, offload)?;
        Ok(Remote { queue: AcceptQueue::open(socket)?, udp, address })
    }

    /// Accepts the next client: its carrier, with a token from the system's entropy.
    pub fn accept(&mut self) -> io::Result<Option<(Session, SocketAddr)>> {
        let Some(socket) = self.queue.accept()? else { return Ok(None) };
        let token = getrandom::u64().map_err(io::Error::from)?;
        // A client that has already gone has no address; its departure is noticed later.
        let from = socket.peer_addr().ok().and_then(|from| from.as_socket());
        let session = Session::new(socket, Token(token))?;
        Ok(Some((session, from.unwrap_or(self.address))))
    }
}

/// State shared by all remote sessions.
#[derive(Default)]
pub struct Remotes {
    /// Hashed under a key of this process, so that collisions can't be targeted.
    tokens: HashMap<Token, SessionId>,
    /// Latest connection of each application.
    identities: HashMap<(Client, u64), (SessionId, u32)>,
    /// Sessions by their deadline for binding, in order; some are bound already.
    handshakes: VecDeque<(Time, SessionId, Token)>,
    outboxes: Vec<Outbox>,
    /// Sessions with a TCP backlog that must be polled for room.
    stuck: Vec<SessionId>,
    /// Counters of remote carriers.
    pub stats: RemoteStats,
}

impl Remotes {
    /// Prepares to send through the UDP sockets of `remotes`.
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
            && self.identities.get(&(session.client, identity)) == Some(&(id, attempt))
        {
            self.identities.remove(&(session.client, identity));
        }
    }

    /// Registers that session `id` must bind before a timeout. If too many sessions are registered,
    /// returns the oldest one, which must give way.
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

    /// Time at which the next handshake times out.
    pub fn next_timeout(&self) -> Time {
        self.handshakes.front().map_or(Time::NEVER, |(at, ..)| *at)
    }

    /// Takes a session with a handshake that has timed out at `now`.
    pub fn overdue(&mut self, now: Time) -> Option<(SessionId, Token)> {
        self.handshakes.front().filter(|(at, ..)| *at <= now)?;
        self.handshakes.pop_front().map(|(_, id, token)| (id, token))
    }

    /// Registers session `id` as the connection of `client` that `hello` names. If the same
    /// application has two, returns the older one, which may be `id`.
    pub fn identify(&mut self, id: SessionId, client: Client, hello: Hello) -> Option<SessionId> {
        let Hello { identity, attempt } = hello;
        let latest = &mut self.identities;
        let (other, its) =
            latest.insert((client, identity), (id, attempt)).filter(|o| o.0 != id)?;
        self.stats.replaced += 1;
        if attempt.wrapping_sub(its) < 1 << 31 {
            return Some(other);
        }
        latest.insert((client, identity), (other, its));
        Some(id)
    }

    /// Session that a datagram claims to belong to.
    pub(super) fn owner(&mut self, bytes: &[u8]) -> Option<SessionId> {
        let datagram = Datagram::parse(bytes).ok();
        let owner = datagram.and_then(|d| self.tokens.get(&d.token).copied());
        self.stats.datagrams += u64::from(owner.is_none());
        owner
    }

    /// Processes a datagram of `session`: answers a ping, returns a packet.
    pub(super) fn take<'a>(
        &mut self,
        session: &mut Session,
        via: usize,
        from: SocketAddr,
        bytes: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let counter = Datagram::parse(bytes).ok()?.counter;
        let received = bytes.len();
        // A duplicate is rejected before any cryptography is done.
        if !session.peer.is_news(counter) {
            self.stats.replays += 1;
            return None;
        }
        let Some(len) = session.keys.as_ref().and_then(|keys| keys.open_datagram(bytes)) else {
            self.stats.forged += 1;
            return None;
        };
        let message = match FromClient::parse(&bytes[DATAGRAM_HEAD..len]) {
            Ok(FromClient::Ping) => None,
            Ok(FromClient::Session(message)) if packet_to_node(message, 0).is_some() => {
                Some(message)
            }
            _ => {
                self.stats.datagrams += 1;
                return None;
            }
        };
        if !session.peer.accept(from, counter, received) {
            self.stats.replays += 1;
            return None;
        }
        if session.peer.address() == Some(from) {
            session.via = via;
        }
        if message.is_none() {
            self.post(session, via, from, 0, [&session::pong(), &[]]);
        }
        message
    }

    /// Sends a session's message on its current path.
    pub(super) fn deliver(
        &mut self,
        id: SessionId,
        session: &mut Session,
        head: &[u8],
        payload: &[u8],
    ) -> bool {
        if let Some(service) = packet_to_client(head, payload.len())
            && let Some(address) =
                session.peer.udp(DATAGRAM_HEAD + head.len() + payload.len() + TAG)
        {
            let dscp = if service == Service::RealTime { DSCP_EF } else { 0 };
            let via = session.via;
            self.post(session, via, address, dscp, [head, payload]);
            return true;
        }
        let sent = session.send(head, payload);
        self.note_stuck(id, session);
        sent
    }

    /// Records `session` if its TCP has just become backlogged.
    pub(super) fn note_stuck(&mut self, id: SessionId, session: &mut Session) {
        if session.is_stuck() && !session.noted {
            session.noted = true;
            self.stuck.push(id);
        }
    }

    /// Takes a session that has become backlogged on TCP.
    pub fn next_stuck(&mut self) -> Option<SessionId> {
        self.stuck.pop()
    }

    /// Sends the datagrams collected during the wake-up.
    pub fn flush(&mut self) {
        for outbox in &mut self.outboxes {
            self.stats.sends += outbox.flush();
        }
    }

    fn post(
        &mut self,
        session: &mut Session,
        via: usize,
        to: SocketAddr,
        dscp: u8,
        message: [&[u8]; 2],
    ) {
        let head = session.peer.next_head();
        if let (Some(outbox), Some(keys)) = (self.outboxes.get_mut(via), &session.keys) {
            self.stats.sends += outbox.post(to, dscp, keys, &head, message);
        }
    }
}
