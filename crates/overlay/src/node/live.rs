//! Operations on a running node: querying, reconfiguring and draining it.

use super::{Access, Echo, EchoAnswer, EchoError, Node};
use crate::identity::{Certificate, PublicKey, Trust};
use crate::link::{self, LinkChange, LinkId, LinkReport};
use crate::route::{ForwardingTable, StaticRoute};
use crate::trunk;
use crate::wire::NodeId;
use std::sync::Arc;
use trunkline_base::Time;

/// Name of a link for operators: its neighbour, and the path's label.
pub type LinkName = (NodeId, String);

/// Changes that need no restart and drop no packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// The operator's routes, if they change.
    pub routes: Option<Vec<StaticRoute>>,
    /// The access rules, if they change. Clients keep their positions, by which sessions refer to
    /// their rights; with another number of clients, all keep the rights that they have.
    pub access: Option<Access>,
    /// Links with changed settings, by name.
    pub links: Vec<(LinkName, LinkChange)>,
    /// Links to be added.
    pub added: Vec<link::Config>,
    /// Names of links to be removed.
    pub removed: Vec<LinkName>,
    /// Trusted operators and configured keys, if they change: of all nodes, as
    /// [`Config::known_keys`](super::Config::known_keys) returns them.
    pub trust: Option<(Trust, Vec<(NodeId, PublicKey)>)>,
    /// New certificate of a sealed node, for the same node and key as before.
    pub certificate: Option<Certificate>,
    /// All trunks, if any of them changes.
    pub trunks: Option<Vec<trunk::Config>>,
}

impl Changes {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Node {
    /// Applies `changes`, after their values were checked by
    /// [`Config::validate`](super::Config::validate). Queues keep their packets, and applications
    /// their bound ports. Links that don't exist are ignored.
    pub fn reconfigure(&mut self, now: Time, changes: &Changes) {
        for (name, change) in &changes.links {
            let Some(id) = self.named(name) else { continue };
            let Some(link) = self.forwarder.links_mut().get_mut(id) else { continue };
            link.change(change);
            // Unlike a measurement, an operator's setting is never noise, so it is advertised at
            // once, for better costs too.
            if let Some(cost) = link.advertised() {
                self.control.report(now, LinkReport::Cost(id, cost));
            }
        }
        for name in &changes.removed {
            if let Some(id) = self.named(name) {
                self.control.remove(now, id);
                self.apply_commands(now);
            }
        }
        for link in &changes.added {
            // An unconfigured peer was admitted before its link was configured.
            if let Some(id) = self.named(&(link.neighbour, link.path.clone())) {
                self.control.remove(now, id);
            }
            self.control.add(now, link.clone());
            self.apply_commands(now);
        }
        if let Some((trust, keys)) = &changes.trust {
            self.control.set_trust(now, trust, keys);
        }
        if let Some(certificate) = &changes.certificate {
            self.control.set_certificate(now, certificate);
        }
        if let Some(access) = changes.access.clone() {
            self.control.set_transit(now, &access.transit);
            let clients = std::mem::take(&mut self.forwarder.access.clients);
            let is_same = clients.len() == access.clients.len();
            let clients = if is_same { access.clients } else { clients };
            self.forwarder.access = Access { clients, ..access };
            self.forwarder.break_off_forbidden(now);
        }
        if let Some(routes) = changes.routes.clone() {
            self.control.set_routes(now, routes);
        }
        if let Some(trunks) = &changes.trunks {
            self.forwarder.set_trunks(now, trunks);
        }
        self.control.handle_timeout(now);
        self.apply_commands(now);
        self.apply_reports(now);
    }

    fn named(&self, (neighbour, path): &LinkName) -> Option<LinkId> {
        let mut links = self.forwarder.links().iter().map(|(id, link)| (id, link.config()));
        links.find(|(_, c)| c.neighbour == *neighbour && c.path == *path).map(|(id, _)| id)
    }

    /// Starts or stops draining: accepts no more sessions, and advertises that traffic should take
    /// other routes. Existing sessions continue.
    pub fn drain(&mut self, now: Time, on: bool) {
        self.draining = on;
        self.control.drain(now, on);
    }

    /// Says goodbye to the neighbour of each sealed link, which then reroutes its traffic at once;
    /// the others notice the silence. Drive the node until the time returned, one round trip but at
    /// most a quarter of a second later, so that packets in flight still get through; then drop it.
    /// It accepts no more sessions and starts no more handshakes.
    pub fn leave(&mut self, now: Time) -> Time {
        (self.draining, self.leaving) = (true, true);
        self.forwarder.leave(now)
    }

    /// Whether the node is draining (see [`Node::drain`]).
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// The current forwarding table.
    pub fn table(&self) -> &Arc<ForwardingTable> {
        self.forwarder.table()
    }

    /// Sends an echo request to another node. An answer is returned by [`Node::next_echo`]; the
    /// caller decides how long to wait for it.
    pub fn echo(&mut self, now: Time, echo: &Echo) -> Result<(), EchoError> {
        self.forwarder.echo(now, echo)
    }

    /// The next answer to an echo request of this node.
    pub fn next_echo(&mut self) -> Option<EchoAnswer> {
        self.forwarder.echoes.next_answer()
    }
}
