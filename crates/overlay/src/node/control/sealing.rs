//! Control's side of the handshakes: links get their sessions, certified peers without a configured
//! link become neighbours, and are removed some time after they leave.

use super::Command;
use crate::arena::OwnAddresses;
use crate::handshake::{
    self, Destination, Established, Event, HandshakeStats, Handshakes, Peer, RefusedHandshake,
    UnconfiguredPeerId,
};
use crate::identity::{Certificate, Trust};
use crate::link::{self, DownCause, LinkId, LinkReport, Session};
use crate::node::{Config, Sealing, Start};
use crate::wire::NodeId;
use crate::wire::version::VersionMismatch;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::Time;

/// Maximum number of datagrams waiting for the arena. Lost ones are sent again.
const MAX_DATAGRAMS: usize = 1_024;
/// Maximum number of notices waiting for the driver.
pub(super) const MAX_NOTICES: usize = 64;
/// Maximum number of links of one unconfigured peer: two ISPs at either end make four paths.
const MAX_PATHS: usize = 4;
/// Time after which the link of an unconfigured peer that is down may be removed for another.
const NEWCOMER_GONE: Duration = Duration::from_secs(5 * 60);

/// An event for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Packets arrive from the link's neighbour.
    Up(LinkId),
    /// The link is down, for this reason.
    Down(LinkId, DownCause),
    /// A link has failed so often that its cost is raised for a while.
    Damped(LinkId),
    /// The link has not failed again, so its cost is the measured one.
    Undamped(LinkId),
    /// A handshake was refused.
    Refused {
        /// Source of the refused message.
        from: SocketAddr,
        /// Id that the sender claims. `None` for a message that is not for this node's key, and so
        /// can't be read; that is reported at most once a second.
        node: Option<NodeId>,
        /// Reason for the refusal.
        why: RefusedHandshake,
        /// The versions of both nodes, if the reason is [`RefusedHandshake::Version`].
        versions: Option<VersionMismatch>,
    },
    /// A certified node without a configured link is now a neighbour.
    Admitted {
        /// Number of its new link.
        link: LinkId,
        /// Id of the node.
        node: NodeId,
        /// Name of the node in its certificate.
        name: String,
        /// Address of the node.
        address: SocketAddr,
    },
    /// A neighbour shows a different key than before: it was given a new one, or two nodes have the
    /// same id.
    OtherKey {
        /// Id of the node.
        node: NodeId,
        /// Name of the node in its certificate.
        name: String,
        /// Source of the message.
        from: SocketAddr,
    },
    /// A handshake was made before others of its sender, according to the sender's clock, but it is
    /// no copy: the clock went back, or the sender had another key then. Reported once for each
    /// start.
    ClockBehind {
        /// Id of the other node.
        node: NodeId,
        /// Address of the other node.
        from: SocketAddr,
        /// Whether this node's clock is the one behind.
        own: bool,
    },
    /// A neighbour is no longer trusted.
    Closed {
        /// The link that has lost its sessions.
        link: LinkId,
        /// Reason for the loss of trust.
        why: RefusedHandshake,
    },
}

/// A node that requests admission.
#[derive(Debug)]
pub(super) struct UnconfiguredPeer {
    id: UnconfiguredPeerId,
    name: String,
    address: SocketAddr,
    /// Settings of its new link.
    pub config: link::Config,
}

/// An admitted node without a configured link.
#[derive(Debug)]
struct Admitted {
    node: NodeId,
    /// Time since when its link has been down.
    down: Option<Time>,
}

/// Action for control to carry out.
pub(super) enum LinkAction {
    Command(Command),
    Admit(Box<UnconfiguredPeer>),
    /// Remove the link of an unconfigured peer that has long been gone.
    Leave(LinkId),
}

/// A handshake message to send.
#[derive(Debug)]
pub struct HandshakeDatagram {
    /// Destination of the datagram.
    pub to: Destination,
    /// Contents of the datagram.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct SealedLinks {
    handshakes: Handshakes,
    /// Settings of an unconfigured peer's link.
    template: link::Config,
    max_unconfigured_peers: usize,
    /// Links with unconfigured peers.
    unconfigured_peers: BTreeMap<LinkId, Admitted>,
    names: BTreeMap<LinkId, Certificate>,
    datagrams: VecDeque<HandshakeDatagram>,
    notices: VecDeque<Notice>,
}

impl SealedLinks {
    pub fn new(config: &Config, sealing: &Sealing, start: &Start) -> SealedLinks {
        let max_unconfigured_peers = usize::from(sealing.unconfigured_peers);
        // As many may request admission at once as may be admitted in total, up to a burst.
        let limits = handshake::Limits {
            unconfigured_peers: max_unconfigured_peers.min(64),
            ..sealing.limits
        };
        let settings = handshake::Config {
            node: config.id,
            identity: sealing.identity.clone(),
            certificate: sealing.certificate.clone(),
            trust: sealing.trust.clone(),
            incarnation: start.incarnation,
            offer: sealing.offer,
            limits,
        };
        let mut links = SealedLinks {
            handshakes: Handshakes::new(settings, start.entropy),
            template: sealing.unconfigured_peer.clone(),
            max_unconfigured_peers,
            unconfigured_peers: BTreeMap::new(),
            names: BTreeMap::new(),
            datagrams: VecDeque::new(),
            notices: VecDeque::new(),
        };
        for (link, id) in config.links.iter().zip((0..).map(LinkId)) {
            links.add(start.at, id, link);
        }
        links
    }

    pub fn add(&mut self, now: Time, link: LinkId, config: &link::Config) {
        let peer = Peer {
            node: config.neighbour,
            path: config.path.clone(),
            key: config.key,
            address: config.address,
            mtu: u16::try_from(config.mtu).unwrap_or(u16::MAX),
        };
        self.handshakes.add(link, peer, now);
    }

    pub fn remove(&mut self, link: LinkId) {
        self.handshakes.remove(link);
        self.unconfigured_peers.remove(&link);
        self.names.remove(&link);
    }

    pub fn set_trust(&mut self, unix_secs: u64, trust: &Trust) {
        self.handshakes.set_trust(trust.clone(), unix_secs);
    }

    pub fn set_certificate(&mut self, now: Time, certificate: Certificate) {
        self.handshakes.set_certificate(certificate, now);
    }

    pub fn report(&mut self, now: Time, unix_secs: u64, report: LinkReport) {
        match report {
            LinkReport::Handshake { at, ends, bytes } => {
                self.handshakes.recv(at.max(now), unix_secs, ends, &bytes);
            }
            LinkReport::Confirmed(link) => self.handshakes.confirmed(link),
            LinkReport::Moved(link, address) => self.handshakes.set_address(link, address),
            LinkReport::Rekey(link) => self.handshakes.restart(link, now),
            _ => {}
        }
    }

    pub fn bind(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        self.handshakes.bind(link, own);
    }

    pub fn set_address(&mut self, now: Time, link: LinkId, address: SocketAddr) {
        self.handshakes.try_address(now, link, address);
    }

    pub fn up(&mut self, now: Time, link: LinkId) {
        self.handshakes.up(link, now);
        if let Some(unconfigured_peer) = self.unconfigured_peers.get_mut(&link) {
            unconfigured_peer.down = None;
        }
    }

    /// Handles the failure of a link; its neighbour may have forgotten the keys.
    pub fn down(&mut self, now: Time, link: LinkId) {
        self.handshakes.down(link, now);
        if let Some(unconfigured_peer) = self.unconfigured_peers.get_mut(&link) {
            unconfigured_peer.down.get_or_insert(now);
        }
    }

    /// Accepts an unconfigured peer as the neighbour of `link`; false if it has waited too long.
    pub fn admit(&mut self, now: Time, unconfigured_peer: UnconfiguredPeer, link: LinkId) -> bool {
        let UnconfiguredPeer { id, name, address, config } = unconfigured_peer;
        let mtu = u16::try_from(config.mtu).unwrap_or(u16::MAX);
        let admitted = self.handshakes.admit(id, link, mtu, now);
        if admitted {
            let node = config.neighbour;
            self.unconfigured_peers.insert(link, Admitted { node, down: Some(now) });
            self.note(Notice::Admitted { link, node, name, address });
        }
        admitted
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.handshakes.handle_timeout(now);
    }

    pub fn next_timeout(&self) -> Time {
        let downs = self.unconfigured_peers.values().filter_map(|n| n.down);
        let leave = downs.min().map_or(Time::NEVER, |at| at + NEWCOMER_GONE);
        leave.min(self.handshakes.next_timeout())
    }

    /// The next action to carry out.
    pub fn poll(&mut self, now: Time) -> Option<LinkAction> {
        while let Some(event) = self.handshakes.poll() {
            match event {
                Event::Send { to, bytes } => {
                    if self.datagrams.len() < MAX_DATAGRAMS {
                        self.datagrams.push_back(HandshakeDatagram { to, bytes });
                    }
                }
                Event::Established(established) => {
                    return Some(LinkAction::Command(self.established(*established)));
                }
                Event::Retired { index, .. } => {
                    return Some(LinkAction::Command(Command::Release(index)));
                }
                Event::UnconfiguredPeer { id, node, name, path, address, .. } => {
                    if !self.has_room(node) {
                        self.handshakes.turn_away(id);
                    } else {
                        let mut config = self.template.clone();
                        (config.neighbour, config.path) = (node, path);
                        let unconfigured_peer = UnconfiguredPeer { id, name, address, config };
                        return Some(LinkAction::Admit(Box::new(unconfigured_peer)));
                    }
                }
                Event::Closed { link, why } => {
                    self.note(Notice::Closed { link, why });
                    return Some(LinkAction::Command(Command::Close(link, why)));
                }
                Event::OtherKey { node, name, from } => {
                    self.note(Notice::OtherKey { node, name, from });
                }
                Event::ClockBehind { node, from, own } => {
                    self.note(Notice::ClockBehind { node, from, own });
                }
                Event::Refused { from, node, why, versions } => {
                    self.note(Notice::Refused { from, node, why, versions });
                }
            }
        }
        let gone = |n: &Admitted| n.down.is_some_and(|at| now >= at + NEWCOMER_GONE);
        let (&link, _) = self.unconfigured_peers.iter().find(|(_, n)| gone(n))?;
        Some(LinkAction::Leave(link))
    }

    /// Whether `node` may have one more link. The node chooses the path label, so without this
    /// bound it could take every slot.
    fn has_room(&self, node: NodeId) -> bool {
        let own = self.unconfigured_peers.values().filter(|n| n.node == node).count();
        self.unconfigured_peers.len() < self.max_unconfigured_peers && own < MAX_PATHS
    }

    fn established(&mut self, established: Established) -> Command {
        let Established { link, address, keys, version, mtu, certificate, .. } = established;
        if let Some(certificate) = certificate {
            self.names.insert(link, certificate);
        }
        Command::Install(link, Box::new(Session { keys, address, mtu, version }))
    }

    fn note(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    pub fn poll_datagram(&mut self) -> Option<HandshakeDatagram> {
        self.datagrams.pop_front()
    }

    pub fn return_datagram(&mut self, datagram: HandshakeDatagram) {
        self.datagrams.push_front(datagram);
    }

    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub fn stats(&self) -> &HandshakeStats {
        self.handshakes.stats()
    }

    pub fn certificate(&self) -> Option<&Certificate> {
        self.handshakes.certificate()
    }

    pub fn name(&self, link: LinkId) -> Option<&str> {
        self.names.get(&link).map(Certificate::name)
    }
}
