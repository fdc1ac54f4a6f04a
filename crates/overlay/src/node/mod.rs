//! A node: [`Control`] makes decisions, [`Forwarder`] moves packets. They exchange bounded messages
//! and could run on two threads; here, one [`Node`] steps both.

mod access;
mod config;
mod control;
mod echo;
mod flow_control;
mod flows;
mod forwarder;
mod interfaces;
mod keys;
mod links;
mod live;
mod local;
mod status;
mod streams;
mod trunks;

pub use access::{Access, Nodes, Rights};
pub use config::{Config, ConfigError, Sealing};
pub use control::{Command, Control, Notice, Routing};
pub use echo::{
    ANSWERS_PER_SECOND, Echo, EchoAnswer, EchoError, EchoKind, EchoMessage, MAX_OPEN, MAX_SIZE,
    MIN_SIZE, NODE_PORT,
};
pub use forwarder::{Forwarder, ForwarderStats};
pub use live::{Changes, LinkName};
pub use local::{SendOutcome, Sink};
pub use status::PortUnbound;
pub use streams::{Stream, StreamPhase, StreamStats};
pub use trunks::{MAX_RECEIVING, Receiving, Trunk};

use crate::arena::{OwnAddresses, RxDatagram, TxArena, UplinkId};
use crate::handshake::Destination;
use crate::link::{Link, LinkId};
use crate::route::Router;
use crate::session::{Client, SessionId};
use crate::wire::{Incarnation, NodeId, Service};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use rand::Rng;
use ring::hmac;
use trunkline_base::Time;

/// Reason for a node's next timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// A hello is due on this link.
    Hello(LinkId),
    /// This link dies unless its neighbour sends something before.
    Silence(LinkId),
    /// The rate limit of this link allows the next packet.
    Pace(LinkId),
    /// A service of this link has to request a lost packet again, or to retransmit one again.
    Service(LinkId, Service),
    /// Routing has work to do.
    Route,
    /// A handshake has work to do.
    Handshake,
    /// A goodbye is due on this link.
    Goodbye(LinkId),
    /// A session of this link expires.
    Session(LinkId),
    /// A stream that ends here has work to do.
    Stream,
    /// The trunk to this node has packets to send.
    Trunk(NodeId),
    /// No timeout is pending: sleep until there is input.
    Nothing,
}

/// Delay before retrying something that a link can't accept now, such as a routing frame while it
/// has no session.
const STUCK: Duration = Duration::from_millis(10);

/// DSCP of handshake messages: network control (RFC 4594, 3.1).
const DSCP_CONTROL: u8 = 48;

/// Whether [`Node::transmit`] has output everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// There is nothing more to send now.
    All,
    /// The arena is full: flush it and call again.
    More,
}

/// Values that distinguish one start of a node from another.
#[derive(Clone, Copy)]
pub struct Start {
    /// The current time, on the clock of every later call.
    pub at: Time,
    /// The same moment in nanoseconds since 1970: for the expiry of certificates, and to order
    /// records across restarts.
    pub unix_nanos: u64,
    /// Number of this start, greater than that of any earlier one of this node.
    pub incarnation: Incarnation,
    /// Seed of the pseudorandom behaviour, never of keys.
    pub seed: u64,
    /// Seed of keys, cookies and receiver indices: from the system's source of randomness,
    /// different at each start, and secret.
    pub entropy: [u8; 32],
}

impl fmt::Debug for Start {
    /// Formats everything except the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Start { at, unix_nanos, incarnation, seed, entropy: _ } = self;
        let mut s = f.debug_struct("Start");
        s.field("at", &at).field("unix_nanos", &unix_nanos);
        s.field("incarnation", &incarnation).field("seed", &seed).finish_non_exhaustive()
    }
}

impl Start {
    /// Derives a secret for one purpose, which doesn't reveal the entropy.
    pub(crate) fn entropy_for(&self, purpose: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.entropy);
        hmac::sign(&key, purpose).as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// A start without secrets, for simulators and tests: everything is derived from `seed` and
    /// `incarnation`, and time began at 1970.
    pub fn simulated(at: Time, incarnation: Incarnation, seed: u64) -> Start {
        let mut entropy = [0; 32];
        trunkline_base::rng(seed, incarnation.0).fill_bytes(&mut entropy);
        Start { at, unix_nanos: at.as_nanos(), incarnation, seed, entropy }
    }
}

/// A node without input and output; the crate's documentation shows the loop that drives it.
#[derive(Debug)]
pub struct Node {
    control: Control,
    forwarder: Forwarder,
    draining: bool,
    /// Whether the node has said goodbye.
    leaving: bool,
    /// Earliest time for the work of control.
    hold: Time,
    /// Whether [`Node::handle_timeout`] has run since the last [`Node::transmit`].
    handled: bool,
}

impl Node {
    /// Creates a node that has just started.
    pub fn new(config: Config, start: Start) -> Result<Node, ConfigError> {
        config.validate()?;
        let control = Control::new(&config, start);
        let forwarder = Forwarder::new(config, &start);
        let mut node = Node {
            control,
            forwarder,
            draining: false,
            leaving: false,
            handled: false,
            hold: Time::ZERO,
        };
        node.apply_reports(start.at);
        Ok(node)
    }

    /// Processes a batch of received datagrams. Packets for applications at this node are passed to
    /// `sink` at once; everything else waits for [`Node::transmit`].
    pub fn recv(&mut self, now: Time, batch: &mut [RxDatagram<'_>], sink: &mut impl Sink) {
        self.forwarder.recv(now, batch, sink);
        self.apply_reports(now);
        self.forwarder.poll_statuses(now, sink);
    }

    /// Opens a session; `None` if the node has its maximum number of sessions, or is draining.
    pub fn session_open(&mut self) -> Option<SessionId> {
        self.session_open_for(Client::Local)
    }

    /// The session that holds the port requested by `message` of session `id`, if that is the only
    /// reason for refusing it. A driver may close that session first if its application has gone.
    pub fn port_conflict(&self, id: SessionId, message: &[u8]) -> Option<SessionId> {
        self.forwarder.port_conflict(id, message)
    }

    /// Opens a session like [`Node::session_open`], with the rights of `client`.
    pub fn session_open_for(&mut self, client: Client) -> Option<SessionId> {
        if self.draining {
            return None;
        }
        self.forwarder.sessions_mut().open(client)
    }

    /// Processes a message that session `id`'s application sent.
    ///
    /// Returns `Backpressure` only if the application has requested blocking mode ([`ToNode::Blocking`]) and
    /// this is a best-effort or reliable packet that finds no room in its link's queue. The message
    /// then has no effect: keep it, read no more from that application, and pass the message again
    /// when [`Node::next_ready`] returns the session. A driver that can't keep a message drops and
    /// counts it.
    ///
    /// [`ToNode::Blocking`]: crate::session::wire::ToNode::Blocking
    pub fn session_recv(
        &mut self,
        now: Time,
        id: SessionId,
        message: &[u8],
        sink: &mut impl Sink,
    ) -> SendOutcome {
        self.forwarder.session_recv(now, id, message, sink)
    }

    /// A session that got `Backpressure`, if there is room for its message now. Call this after
    /// [`Node::transmit`], which makes room: pass the message again and call this again; once it
    /// returns `None`, transmit again if it had returned a session. Sessions are returned in the
    /// order in which they got `Backpressure`, each once.
    pub fn next_ready(&mut self) -> Option<SessionId> {
        self.forwarder.next_ready()
    }

    /// The virtual port of session `id`, once it is bound.
    pub fn session_port(&self, id: SessionId) -> Option<u16> {
        self.forwarder.sessions().port_of(id)
    }

    /// Whether session `id` has a purpose yet: it holds a port, or has a stream.
    pub fn session_is_bound(&self, id: SessionId) -> bool {
        self.session_port(id).is_some() || self.forwarder.has_stream(id)
    }

    /// Whether the application of session `id` blocks until there is room for a packet of
    /// `service`, rather than lose it.
    pub fn is_flow_controlled(&self, id: SessionId, service: Service) -> bool {
        self.forwarder.is_flow_controlled(id, service)
    }

    /// Closes a session and frees its port. Data already written to a stream is still delivered.
    pub fn session_close(&mut self, now: Time, id: SessionId) {
        self.forwarder.session_close(now, id);
    }

    /// Performs the actions that are due at `now`; notifications for applications are passed to
    /// `sink`. Calling early or late is harmless.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        self.forwarder.handle_timeout(now, sink);
        self.apply_reports(now);
        if now >= self.control.next_timeout() {
            self.control.handle_timeout(now);
            self.apply_commands(now);
        }
        self.handled = true;
    }

    /// A link with other ends ([`Link::address`], [`Link::local`]) than when it was returned last,
    /// as of the last call of [`Node::transmit`]. It may need another uplink.
    pub fn next_moved(&mut self) -> Option<LinkId> {
        self.forwarder.next_moved()
    }

    /// Makes everything for the neighbour of `link` leave by `uplink`, which has its own room in the
    /// arena. Transfers yield to calls by uplinks of the same `interface`, if that is known. Links are
    /// on uplink 0 until this is called.
    pub fn set_uplink(&mut self, link: LinkId, uplink: UplinkId, interface: Option<u32>) {
        self.forwarder.set_uplink(link, uplink, interface);
    }

    /// Binds `link` to own addresses: a path by another one is not the link's. The neighbour's calls
    /// there are refused, and packets there are taken, but don't move the link. Links are bound to
    /// none until this is called.
    pub fn bind(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        self.control.bind(link, own.clone());
        self.forwarder.bind_link(link, own);
    }

    /// Tries `address` for the neighbour of `link`, unless the link is up: its name has several
    /// addresses, or another one than before.
    pub fn set_address(&mut self, now: Time, link: LinkId, address: SocketAddr) {
        if self.forwarder.set_address(link, address) {
            self.control.set_address(now, link, address);
        }
    }

    /// Seals pending packets into `arena`, as far as the links' uplinks have room
    /// ([`TxArena::set_room`]). The packets of a link without room stay in its bounded queues, where
    /// those that are no longer useful are dropped; it has no due timer until the next call.
    pub fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        // A neighbour that got an answer now would conclude that this node is back, and not request
        // keys from its next start.
        while let Some(datagram) = self.control.poll_datagram().filter(|_| !self.leaving) {
            let len = datagram.bytes.len();
            let room = match datagram.to {
                Destination::Answer(ends) => arena.answer(ends, DSCP_CONTROL, len),
                Destination::Link(id, to) => {
                    let link = self.forwarder.links().get(id);
                    let uplink = link.map_or(UplinkId::default(), Link::uplink);
                    arena.envelope(uplink, to, DSCP_CONTROL, len)
                }
            };
            match room {
                Some(room) => room.copy_from_slice(&datagram.bytes),
                None => {
                    self.control.return_datagram(datagram);
                    return Drained::More;
                }
            }
        }
        let mut stuck = self.control.next_timeout() <= now;
        if stuck {
            let control = &mut self.control;
            self.forwarder.take_frames(|link, room| control.poll_frame(link, now, room));
            // Otherwise, input since the last call is still to be handled.
            stuck = self.handled && self.control.next_timeout() <= now;
        }
        self.handled = false;
        // Work that can't be done now must not make the driver spin; nor may a node that is always
        // woken earlier postpone it for ever.
        self.hold = match stuck {
            true if self.hold > now => self.hold,
            true => now + STUCK,
            false => Time::ZERO,
        };
        self.forwarder.send_due_trunks(now);
        let waits = self.forwarder.send_streams(now);
        match self.forwarder.transmit(now, arena) {
            // The packets that left the links have made room.
            Drained::All if waits && !arena.is_empty() => Drained::More,
            drained => drained,
        }
    }

    /// Time of the next call of [`Node::handle_timeout`] and [`Node::transmit`] if nothing arrives
    /// before. It may be now: segments between the two ends of a stream within this node are
    /// exchanged as it transmits, and the applications are notified after that.
    pub fn next_timeout(&self, now: Time) -> Time {
        self.control.next_timeout().max(self.hold).min(self.forwarder.next_timeout(now))
    }

    /// Reason for the time that [`Node::next_timeout`] returns.
    pub fn timer(&self, now: Time) -> Timer {
        self.forwarder.timer(now, self.next_timeout(now)).unwrap_or_else(|| self.control.why())
    }

    /// The control half, for inspection.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The next notice for the log, if there is one.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.control.next_notice()
    }

    /// Counters of this node.
    pub fn stats(&self) -> ForwarderStats {
        self.forwarder.stats()
    }

    /// All links with their numbers: first those of the configuration, in its order.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> + Clone {
        self.forwarder.links().iter()
    }

    /// Link-state routing, if the node uses it.
    pub fn router(&self) -> Option<&Router> {
        self.control.router()
    }

    /// The link with this number, if there is one.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.forwarder.links().get(id)
    }

    fn apply_reports(&mut self, now: Time) {
        while let Some(report) = self.forwarder.next_report() {
            self.control.report(now, report);
            self.hold = Time::ZERO;
        }
        self.apply_commands(now);
    }

    fn apply_commands(&mut self, now: Time) {
        while let Some(command) = self.control.next_command() {
            self.forwarder.command(now, command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::session::wire::{SESSION_VERSION, ToClient, ToNode};
    use trunkline_base::wire::Writer;

    struct Hole;
    impl Sink for Hole {
        fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
            SendOutcome::Accepted
        }
    }

    fn say(node: &mut Node, id: SessionId, message: &ToNode<'_>, payload: &[u8]) {
        let mut bytes = vec![0; 16];
        let mut w = Writer::new(&mut bytes);
        message.emit_head(&mut w).unwrap();
        let n = w.len();
        bytes.truncate(n);
        bytes.extend_from_slice(payload);
        node.session_recv(Time::ZERO, id, &bytes, &mut Hole);
    }

    /// The last message of a session that has ended does not affect the next session with the same
    /// number.
    #[test]
    fn what_an_ended_session_says_of_streams_is_nothing() {
        use crate::session::wire::stream::{Notice, Request, Reset};
        struct Heard(Vec<Reset>);
        impl Sink for Heard {
            fn deliver(&mut self, _: SessionId, head: &[u8], _: &[u8]) -> SendOutcome {
                if let Ok(ToClient::Stream(Notice::Reset(why))) = ToClient::parse(head) {
                    self.0.push(why);
                }
                SendOutcome::Accepted
            }
        }
        let config = Config::new(NodeId(1));
        let mut node = Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap();
        let mut heard = Heard(Vec::new());
        let id = node.session_open().unwrap();
        node.session_close(Time::ZERO, id);
        let mut shut = [0];
        ToNode::Stream(Request::Shut).emit_head(&mut Writer::new(&mut shut)).unwrap();
        node.session_recv(Time::ZERO, id, &shut, &mut heard);
        assert_eq!((heard.0.len(), node.session_open()), (0, Some(id)));
        node.session_recv(Time::ZERO, id, &shut, &mut heard);
        assert_eq!(heard.0, [Reset::Misuse], "it is a session like any other");
    }

    /// A link that always has more best-effort packets than fit in the arena delays another link's
    /// voice by at most one arena.
    #[test]
    fn a_bulk_transfer_does_not_starve_another_links_voice() {
        let mut config = Config::new(NodeId(1));
        for id in [2, 3] {
            let mut link = link::Config::new(NodeId(id));
            link.address = Some(([192, 0, 2, id as u8], 7_000).into());
            config.links.push(link);
        }
        let mut node = Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap();
        let id = node.session_open().unwrap();
        say(&mut node, id, &ToNode::Bind { version: SESSION_VERSION, port: 1 }, &[]);
        let mut arena = TxArena::new(64 << 10, 64);
        let mut voice = 0;
        for _ in 0..50 {
            for (to, service, n) in [(2, Service::BestEffort, 80), (3, Service::RealTime, 1)] {
                let to = NodeId(to);
                let send = ToNode::Send { service, deadline_ms: 100, to, port: 1, payload: &[] };
                (0..n).for_each(|_| say(&mut node, id, &send, &[0; 1_188]));
            }
            // The socket takes two arenas although five could be filled.
            for _ in 0..2 {
                arena.clear();
                node.transmit(Time::ZERO, &mut arena);
                voice += arena.runs().iter().filter(|r| r.dscp == 46 && r.segment > 1_000).count();
            }
        }
        assert!(voice >= 50, "{voice} of 50 voice packets");
    }

    /// A node that is woken all the time, by traffic or by queries for its counters, still does its
    /// due work.
    #[test]
    fn who_is_always_woken_greets_its_neighbour_all_the_same() {
        let identity = |n| crate::identity::Identity::from_secret(&[n; 32]);
        let mut link = link::Config::new(NodeId(2));
        (link.key, link.address) = (Some(identity(2).public()), Some(([192, 0, 2, 2], 7).into()));
        let mut config = Config::new(NodeId(1));
        config.links.push(link);
        config.sealing = Some(Sealing::new(identity(1)));
        let mut node = Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap();
        let mut arena = TxArena::new(64 << 10, 64);
        let mut armed = Time::ZERO;
        let greeted = (0..200).any(|ms| {
            let now = Time::from_millis(ms);
            // As in the daemon: first the event that woke it, then its timer.
            if ms > 0 && now >= armed {
                node.handle_timeout(now, &mut Hole);
            }
            arena.clear();
            node.transmit(now, &mut arena);
            armed = node.next_timeout(now);
            !arena.is_empty()
        });
        assert!(greeted);
    }
}
