//! What an operator does to a running node: ask about it, change it, empty it.

use super::{Access, Echo, EchoAnswer, EchoError, Node};
use crate::identity::{Certificate, PublicKey, Trust};
use crate::link::{self, LinkChange, LinkId, LinkReport};
use crate::route::{ForwardingTable, StaticRoute};
use crate::trunk;
use crate::wire::NodeId;
use std::sync::Arc;
use trunkline_base::Time;

/// A link as the operator knows it: its neighbour, and the path's label.
pub type LinkName = (NodeId, String);

/// What can change without a restart and without dropping a packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// The operator's routes, if they change.
    pub routes: Option<Vec<StaticRoute>>,
    /// Who may do what, if that changes. The rights of clients stay as they
    /// are: a session knows its own by their place in the list.
    pub access: Option<Access>,
    /// Links that change.
    pub links: Vec<(LinkName, LinkChange)>,
    /// New links.
    pub added: Vec<link::Config>,
    /// Links that end.
    pub removed: Vec<LinkName>,
    /// Whom to believe, and the keys that are configured: of all nodes, as
    /// [`Config::known_keys`](super::Config::known_keys) gives them.
    pub trust: Option<(Trust, Vec<(NodeId, PublicKey)>)>,
    /// What a sealed node shows of itself, for the same node and key as before.
    pub certificate: Option<Certificate>,
    /// All trunks, if any of them changes.
    pub trunks: Option<Vec<trunk::Config>>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Node {
    /// Applies `changes`, whose values were checked by
    /// [`Config::validate`](super::Config::validate). Queues keep what they
    /// hold, and applications the ports that they have bound. A link that there
    /// is not is left out.
    pub fn reconfigure(&mut self, now: Time, changes: &Changes) {
        for (name, change) in &changes.links {
            let Some(id) = self.named(name) else { continue };
            let Some(link) = self.forwarder.links_mut().get_mut(id) else { continue };
            link.change(change);
            // An operator's word is no measurement, which might be noise: it is
            // passed on at once, for better too.
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
            // A newcomer that has been admitted before it was configured.
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
    }

    fn named(&self, (neighbour, path): &LinkName) -> Option<LinkId> {
        let mut links = self.forwarder.links().iter().map(|(id, link)| (id, link.config()));
        links.find(|(_, c)| c.neighbour == *neighbour && c.path == *path).map(|(id, _)| id)
    }

    /// Lets no more sessions begin, and control say that traffic should take
    /// other ways; or takes that back. What is under way goes on.
    pub fn drain(&mut self, now: Time, on: bool) {
        self.draining = on;
        self.control.drain(now, on);
    }

    /// Says goodbye to the neighbour of each sealed link, which then takes its
    /// traffic elsewhere at once; the others find out by silence. Drive the
    /// node until the time returned, a round trip later and a quarter of a
    /// second at most, so that what is under way comes through; then drop it.
    /// It takes no more sessions and has no more handshakes.
    pub fn leave(&mut self, now: Time) -> Time {
        (self.draining, self.leaving) = (true, true);
        self.forwarder.leave(now)
    }

    /// Whether [`Node::drain`] is in force.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// The table that packets are forwarded by.
    pub fn table(&self) -> &Arc<ForwardingTable> {
        self.forwarder.table()
    }

    /// Asks another node for a sign of life. The answer, if one comes, waits
    /// for [`Node::next_echo`]; how long to wait is the caller's to decide.
    pub fn echo(&mut self, now: Time, echo: &Echo) -> Result<(), EchoError> {
        self.forwarder.echo(now, echo)
    }

    /// The next answer to an echo of this node.
    pub fn next_echo(&mut self) -> Option<EchoAnswer> {
        self.forwarder.echoes.next_answer()
    }
}
