//! The decisions of a node: its sessions with neighbours, the cost of its links, and its routes.

mod sealing;

use super::keys::KeyRing;
use super::{Config, Nodes, Start, Timer};
use crate::arena::OwnAddresses;
use crate::handshake::RefusedHandshake;
use crate::identity::{Certificate, PublicKey, Trust};
use crate::link::{self, DownCause, LinkId, LinkReport, Session};
use crate::route::update::path_number;
use crate::route::{
    self, CostModel, ForwardingTable, Limits, Neighbour, Router, StaticRoute, Unsigned,
};
use crate::wire::{Metric, NodeId, ReceiverIndex};
use core::net::SocketAddr;
use core::time::Duration;
pub use sealing::HandshakeDatagram;
use sealing::{MAX_NOTICES, SealedLinks};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_base::Time;

pub use sealing::Notice;

/// Settings of link-state routing.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Metric used to route locally originated packets, unless their application sets one.
    pub metric: Metric,
    /// How costs are computed; must be the same at every node of an overlay.
    pub cost: CostModel,
    /// Bounds on memory, bytes and processor time.
    pub limits: Limits,
}

/// Commands from control to the forwarder.
#[derive(Debug)]
pub enum Command {
    /// Forward with this table from now on.
    Table(Arc<ForwardingTable>),
    /// Adds a new link with this configuration.
    Add(LinkId, Box<link::Config>),
    /// Removes the link; the packets that it holds are lost.
    Remove(LinkId),
    /// Installs a new session for a link.
    Install(LinkId, Box<Session>),
    /// Envelopes with this index no longer belong to any link.
    Release(ReceiverIndex),
    /// Ends all sessions of a link, because its neighbour is no longer trusted for this reason.
    Close(LinkId, RefusedHandshake),
}

/// State of a link in control.
#[derive(Debug)]
struct LinkState {
    neighbour: NodeId,
    path: u8,
    up: bool,
}

/// The control half of a node, which decides where packets go.
#[derive(Debug)]
pub struct Control {
    start: Start,
    routes: Vec<StaticRoute>,
    links: Vec<Option<LinkState>>,
    router: Option<Router>,
    sealing: Option<SealedLinks>,
    /// Whether transit is restricted to some sources.
    no_transit: bool,
    draining: bool,
    table: Arc<ForwardingTable>,
    commands: VecDeque<Command>,
    /// Notices about links that went up or down.
    notices: VecDeque<Notice>,
}

impl Control {
    /// Creates the control half of a node that has just started.
    pub fn new(config: &Config, start: Start) -> Control {
        let mut control = Control {
            start,
            routes: config.routes.clone(),
            links: config.links.iter().map(LinkState::new).map(Some).collect(),
            router: config.routing.as_ref().map(|settings| router(config, settings, &start)),
            sealing: config.sealing.as_ref().map(|s| SealedLinks::new(config, s, &start)),
            no_transit: config.access.transit != Nodes::All,
            draining: false,
            table: Arc::default(),
            commands: VecDeque::new(),
            notices: VecDeque::new(),
        };
        control.drain(start.at, false);
        if let Some(router) = &mut control.router {
            for (link, id) in config.links.iter().zip((0..).map(LinkId)) {
                router.add_link(start.at, id, link.neighbour, path_number(&link.path));
            }
            router.handle_timeout(start.at);
            control.commands.extend(router.table().map(Command::Table));
        }
        control.recompute();
        control
    }

    /// The present in nanoseconds since 1970.
    fn unix_nanos(&self, now: Time) -> u64 {
        let passed = now.as_nanos().saturating_sub(self.start.at.as_nanos());
        self.start.unix_nanos.saturating_add(passed)
    }

    fn unix_secs(&self, now: Time) -> u64 {
        self.unix_nanos(now) / 1_000_000_000
    }

    fn link(&mut self, LinkId(link): LinkId) -> Option<&mut LinkState> {
        self.links.get_mut(usize::from(link))?.as_mut()
    }

    /// Takes a report. Its consequences are read with [`Control::next_command`] and
    /// [`Control::poll_datagram`].
    pub fn report(&mut self, now: Time, report: LinkReport) {
        let unix_secs = self.unix_secs(now);
        match report {
            LinkReport::Up { link, restarted, rtt } => self.up(now, link, restarted, rtt),
            LinkReport::Down(link, why) => self.down(now, link, why),
            LinkReport::Cost(link, cost) => {
                if let Some(router) = &mut self.router {
                    router.set_cost(now, link, cost);
                }
            }
            LinkReport::Damped(link, true) => self.note(Notice::Damped(link)),
            LinkReport::Damped(link, false) => self.note(Notice::Undamped(link)),
            LinkReport::Routing(link, frame) => {
                let wall = self.unix_nanos(now);
                if let Some(router) = &mut self.router {
                    router.recv(now, wall, link, &frame);
                }
            }
            report => {
                if let Some(sealing) = &mut self.sealing {
                    sealing.report(now, unix_secs, report);
                    self.conclude(now);
                }
            }
        }
    }

    fn up(&mut self, now: Time, link: LinkId, restarted: bool, rtt: Duration) {
        let Some(state) = self.link(link) else { return };
        let was_up = core::mem::replace(&mut state.up, true);
        let (id, path) = (state.neighbour, state.path);
        if !was_up {
            self.note(Notice::Up(link));
        }
        if let Some(router) = &mut self.router {
            router.link_up(now, link, Neighbour { id, path, restarted, rtt });
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.up(now, link);
        }
        self.recompute();
    }

    fn down(&mut self, now: Time, link: LinkId, why: DownCause) {
        if self.link(link).is_some_and(|state| core::mem::take(&mut state.up)) {
            self.note(Notice::Down(link, why));
        }
        if let Some(router) = &mut self.router {
            router.link_down(now, link);
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.down(now, link);
        }
        self.recompute();
    }

    /// Adds a link in the first free slot; `None` if there is none.
    pub(super) fn add(&mut self, now: Time, config: link::Config) -> Option<LinkId> {
        let vacant = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        let id = LinkId(u16::try_from(vacant).ok()?);
        let state = Some(LinkState::new(&config));
        match self.links.get_mut(vacant) {
            Some(place) => *place = state,
            None => self.links.push(state),
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.add(now, id, &config);
        }
        if let Some(router) = &mut self.router {
            router.add_link(now, id, config.neighbour, path_number(&config.path));
        }
        self.commands.push_back(Command::Add(id, Box::new(config)));
        self.conclude(now);
        self.recompute();
        Some(id)
    }

    /// Removes a link and its sessions.
    pub(super) fn remove(&mut self, now: Time, link: LinkId) {
        self.down(now, link, DownCause::Removed);
        if let Some(place) = self.links.get_mut(usize::from(link.0)) {
            *place = None;
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.remove(link);
        }
        if let Some(router) = &mut self.router {
            router.remove_link(now, link);
        }
        self.commands.push_back(Command::Remove(link));
        self.conclude(now);
        self.recompute();
    }

    /// Replaces the trusted operators, the revoked keys and the configured keys.
    pub(super) fn set_trust(&mut self, now: Time, trust: &Trust, keys: &[(NodeId, PublicKey)]) {
        let (wall, unix_secs) = (self.unix_nanos(now), self.unix_secs(now));
        if let Some(sealing) = &mut self.sealing {
            sealing.set_trust(unix_secs, trust);
            self.conclude(now);
        }
        if let Some(router) = &mut self.router {
            router.set_trust(now, wall, trust, keys);
        }
    }

    /// Shows another certificate to neighbours and to the overlay from now on.
    pub(super) fn set_certificate(&mut self, now: Time, certificate: &Certificate) {
        if let Some(sealing) = &mut self.sealing {
            sealing.set_certificate(now, certificate.clone());
            if let Some(router) = &mut self.router {
                router.introduce(now, certificate.to_bytes());
            }
        }
    }

    /// Replaces the operator's routes.
    pub(super) fn set_routes(&mut self, now: Time, routes: Vec<StaticRoute>) {
        if let Some(router) = &mut self.router {
            router.set_routes(now, routes.clone());
        }
        self.routes = routes;
        self.recompute();
    }

    /// Asks other nodes to route around this node, or withdraws that. Operators' routes at other
    /// nodes ignore it.
    pub(super) fn drain(&mut self, now: Time, on: bool) {
        self.draining = on;
        if let Some(router) = &mut self.router {
            router.drain(now, on || self.no_transit);
        }
    }

    pub(super) fn set_transit(&mut self, now: Time, transit: &Nodes) {
        self.no_transit = *transit != Nodes::All;
        self.drain(now, self.draining);
    }

    /// Performs the actions that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(sealing) = &mut self.sealing {
            sealing.handle_timeout(now);
            self.conclude(now);
        }
        if let Some(router) = &mut self.router {
            router.handle_timeout(now);
            if let Some(table) = router.table() {
                self.commands.push_back(Command::Table(table));
            }
        }
    }

    /// Carries out the results of the handshakes.
    fn conclude(&mut self, now: Time) {
        while let Some(sealing) = &mut self.sealing {
            match sealing.poll(now) {
                Some(sealing::LinkAction::Command(command)) => self.commands.push_back(command),
                Some(sealing::LinkAction::Admit(unconfigured_peer)) => {
                    self.admit(now, *unconfigured_peer)
                }
                Some(sealing::LinkAction::Leave(link)) => self.remove(now, link),
                None => return,
            }
        }
    }

    /// Admits a certified node without a configured link as a neighbour, if there is room.
    fn admit(&mut self, now: Time, unconfigured_peer: sealing::UnconfiguredPeer) {
        let path = path_number(&unconfigured_peer.config.path);
        let node = unconfigured_peer.config.neighbour;
        let alike = |l: &LinkState| (l.neighbour, l.path) == (node, path);
        if self.links.iter().flatten().any(alike) {
            return;
        }
        let Some(link) = self.add(now, unconfigured_peer.config.clone()) else { return };
        let Some(sealing) = &mut self.sealing else { return };
        if sealing.admit(now, unconfigured_peer, link) {
            self.conclude(now);
        } else {
            self.remove(now, link);
        }
    }

    /// Time of the next call of [`Control::handle_timeout`], and of the next request for frames.
    pub fn next_timeout(&self) -> Time {
        let route = self.router.as_ref().map_or(Time::NEVER, Router::next_timeout);
        route.min(self.handshake_at())
    }

    fn handshake_at(&self) -> Time {
        self.sealing.as_ref().map_or(Time::NEVER, SealedLinks::next_timeout)
    }

    /// Reason for that next timeout.
    pub fn why(&self) -> Timer {
        match self.next_timeout() {
            Time::NEVER => Timer::Nothing,
            at if at == self.handshake_at() => Timer::Handshake,
            _ => Timer::Route,
        }
    }

    /// The next command for the forwarder.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(super) fn bind(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        if let Some(sealing) = &mut self.sealing {
            sealing.bind(link, own);
        }
    }

    pub(super) fn set_address(&mut self, now: Time, link: LinkId, address: SocketAddr) {
        if let Some(sealing) = &mut self.sealing {
            sealing.set_address(now, link, address);
        }
    }

    /// The next handshake datagram to send, and its destination.
    pub fn poll_datagram(&mut self) -> Option<HandshakeDatagram> {
        self.sealing.as_mut()?.poll_datagram()
    }

    /// Puts a datagram back to the front of the queue because there was no room for it.
    pub fn return_datagram(&mut self, datagram: HandshakeDatagram) {
        if let Some(sealing) = &mut self.sealing {
            sealing.return_datagram(datagram);
        }
    }

    /// The next notice for the log.
    pub fn next_notice(&mut self) -> Option<Notice> {
        // Admission is reported before the link goes up.
        let sealing = self.sealing.as_mut().and_then(SealedLinks::next_notice);
        sealing.or_else(|| self.notices.pop_front())
    }

    fn note(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    /// The next routing frame for `link`, of at most `room` bytes.
    pub(super) fn poll_frame(&mut self, link: LinkId, now: Time, room: usize) -> Option<Vec<u8>> {
        self.router.as_mut()?.poll_frame(link, now, room)
    }

    /// Link-state routing, if the node does it.
    pub fn router(&self) -> Option<&Router> {
        self.router.as_ref()
    }

    /// Counters of the handshakes, if links are sealed.
    pub fn handshakes(&self) -> Option<&crate::handshake::HandshakeStats> {
        self.sealing.as_ref().map(SealedLinks::stats)
    }

    /// The certificate that the node shows, if links are sealed and it has one.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.sealing.as_ref()?.certificate()
    }

    /// Name of the neighbour at the end of `link`, from its certificate.
    pub fn name(&self, link: LinkId) -> Option<&str> {
        self.sealing.as_ref()?.name(link)
    }

    /// Without link-state routing, only the operator's routes are used.
    fn recompute(&mut self) {
        if self.router.is_some() {
            return;
        }
        let end = |l: &Option<LinkState>| l.as_ref().map(|l| (l.neighbour, l.up));
        let links: Vec<_> = self.links.iter().map(end).collect();
        let table = ForwardingTable::from_static(&self.routes, &links);
        if table != *self.table {
            self.table = Arc::new(table);
            self.commands.push_back(Command::Table(Arc::clone(&self.table)));
        }
    }
}

impl LinkState {
    fn new(config: &link::Config) -> LinkState {
        LinkState { neighbour: config.neighbour, path: path_number(&config.path), up: false }
    }
}

fn router(config: &Config, settings: &Routing, start: &Start) -> Router {
    let mut c = route::Config::new(config.id);
    (c.cost, c.limits) = (settings.cost, settings.limits);
    c.routes.clone_from(&config.routes);
    let (wall, now) = (start.unix_nanos, start.at);
    match &config.sealing {
        None => Router::new(c, Box::new(Unsigned), Box::new(Unsigned), wall, now),
        Some(sealing) => {
            c.certificate = sealing.certificate.as_ref().map(|c| c.to_bytes());
            let keys = KeyRing::new(sealing.trust.clone(), config.known_keys());
            let keys = Box::new(keys);
            Router::new(c, keys, Box::new(sealing.identity.clone()), wall, now)
        }
    }
}
