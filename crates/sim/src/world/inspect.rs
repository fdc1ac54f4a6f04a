//! Access to the current state of a world.

use super::{AppLocation, World};
use crate::agent::overlay::OverlayNode;
use crate::agent::plain::PlainApp;
use crate::agent::{Agent, AgentId};
use crate::app::{AppId, Application};
use crate::capture::WireEnd;
use crate::endpoints::{HostId, WireId};
use core::any::Any;
use trunkline_base::Time;
use trunkline_base::link_model::{Ledger, Loss};
use trunkline_net::{Bin, Bins, Class, DirectionId, EdgeId, EdgeLedger, Flow};
use trunkline_overlay::node::Node;
use trunkline_overlay::wire::NodeId;

impl World {
    /// Current time: that of the last event, or the end of the last run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The application with this id.
    pub fn app<A: Application>(&self, id: AppId<A>) -> &A {
        let (app, _) = self.app_at(self.app_location(id));
        let app: &dyn Any = app;
        app.downcast_ref().expect("an id has the type it was given out for")
    }

    /// Node and virtual port from which an application's packets come. On a plain path the node is
    /// 0.
    pub fn origin<A>(&self, id: AppId<A>) -> (NodeId, u16) {
        let place = self.app_location(id);
        let node = match place {
            AppLocation::AtNode { agent, .. } => {
                self.node_id(HostId(self.agents[agent as usize].host))
            }
            AppLocation::Plain { .. } => NodeId::NONE,
        };
        (node, self.app_at(place).1)
    }

    /// An application and its port.
    fn app_at(&self, place: AppLocation) -> (&dyn Application, u16) {
        let (AppLocation::AtNode { agent, .. } | AppLocation::Plain { agent }) = place;
        let agent: &dyn Any = &*self.agents[agent as usize].agent;
        let known = "an application's place has the kind it was given out for";
        match place {
            AppLocation::AtNode { index, .. } => {
                agent.downcast_ref::<OverlayNode>().expect(known).app(index)
            }
            AppLocation::Plain { .. } => {
                let plain = agent.downcast_ref::<PlainApp>().expect(known);
                (&*plain.app, plain.port)
            }
        }
    }

    /// The agent with this id.
    pub fn agent<A: Agent>(&self, id: AgentId<A>) -> &A {
        let agent: &dyn Any = &*self.agents[id.index as usize].agent;
        agent.downcast_ref().expect("an id has the type it was given out for")
    }

    /// Number of hosts, including those without a node and the two of each plain path; they are
    /// numbered from 0.
    pub fn hosts(&self) -> u32 {
        self.places.hosts.len() as u32
    }

    /// Number of wires, including plain paths and cables; they are numbered from 0.
    pub fn wires(&self) -> u32 {
        self.wires.len() as u32
    }

    /// All hosts that have a node.
    pub(crate) fn overlay_hosts(&self) -> impl Iterator<Item = HostId> {
        let hosts = self.places.hosts.iter().zip(0..);
        hosts.filter(|(host, _)| host.node.is_some()).map(|(_, id)| HostId(id))
    }

    /// The two hosts of a wire that is dedicated to one link.
    pub(crate) fn link_of(&self, wire: WireId) -> Option<[HostId; 2]> {
        self.wires[wire.0 as usize].link.map(|ends| ends.map(|(host, _)| host))
    }

    /// The two hosts of each link over cables and routers that delivers some packets in both
    /// directions.
    pub(crate) fn routed_links(&self) -> impl Iterator<Item = [HostId; 2]> {
        let hosts = (0..).map(HostId).zip(&self.places.hosts);
        let ports = hosts.flat_map(|(id, host)| {
            let own = host.ports.iter().flatten().filter(|port| port.vertex == host.vertex);
            own.map(move |port| (id, port))
        });
        // Each link is seen from both of its ends.
        let links = ports.filter(|(id, port)| id.0 < port.peer.0);
        links.filter_map(|(id, port)| {
            let ends = [(port.vertex, port.peer_at.vertex), (port.peer_at.vertex, port.vertex)];
            let carries = |direction: &DirectionId| {
                self.net.model(*direction).is_none_or(|model| model.loss != Loss::EVERYTHING)
            };
            let alive =
                |(from, to)| self.net.path(from, to).is_some_and(|path| path.iter().all(carries));
            ends.into_iter().all(alive).then_some([id, HostId(port.peer.0)])
        })
    }

    /// Whether a host has crashed, or its node has stopped.
    pub fn is_down(&self, host: HostId) -> bool {
        let at = &self.places.hosts[host.0 as usize];
        at.down || (at.node.is_some() && self.overlay_node(host).has_ended())
    }

    /// Node id of a host.
    ///
    /// # Panics
    ///
    /// If it has no node.
    pub fn node_id(&self, host: HostId) -> NodeId {
        let node = self.places.hosts[host.0 as usize].node;
        node.expect("a host with a node").1
    }

    /// The node of a host, for example to read its counters.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn node(&self, host: HostId) -> &Node {
        &self.overlay_node(host).node
    }

    /// Ledgers of a wire, from its first end to its second and back: what its models did to the
    /// datagrams. Bytes include the headers of UDP and the world's IP version.
    pub fn ledgers(&self, wire: WireId) -> [Ledger; 2] {
        directions(wire).map(|d| self.net.decided(d).expect("every wire but a cell's has models"))
    }

    /// Ledgers of arrivals and losses on a wire in both directions, over packets of all classes. In
    /// contrast to [`World::ledgers`], a packet counts as arrived only when it arrives.
    pub fn edge_ledgers(&self, wire: WireId) -> [EdgeLedger; 2] {
        directions(wire).map(|d| self.net.ledger(d))
    }

    /// Ledgers like [`World::edge_ledgers`], for packets of `class`; see [`World::set_class`].
    pub fn class_ledgers(&self, wire: WireId, class: Class) -> [EdgeLedger; 2] {
        directions(wire).map(|d| self.net.ledger_of(d, class))
    }

    /// End-to-end account of the packets of `class`.
    pub fn flow(&self, class: Class) -> Flow {
        self.net.flow(class)
    }

    /// Starts recording each class in the direction of `wire` that begins at `end`, in bins of
    /// time.
    pub fn record(&mut self, wire: WireId, end: WireEnd, bins: Bins) {
        self.net.record(DirectionId(end.direction(wire)), bins);
    }

    /// The bins recorded since [`World::record`].
    pub fn bins(&self, wire: WireId, end: WireEnd, class: Class) -> &[Bin] {
        self.net.bins(DirectionId(end.direction(wire)), class)
    }

    /// Hash of every datagram so far: when and where it was sent, its bytes, and when it arrives.
    /// Two runs with equal digests are the same run.
    pub fn digest(&self) -> u64 {
        self.net.tap().digest.value()
    }

    /// Number of datagrams put on wires so far.
    pub fn datagrams(&self) -> u64 {
        self.net.tap().datagrams
    }

    /// Number of datagrams that nodes sent to an address that no link leads to.
    pub fn misdirected(&self) -> u64 {
        self.overlay_hosts().map(|host| self.overlay_node(host).misdirected).sum()
    }

    /// Number of datagrams on wires now, or waiting for a stalled host.
    pub fn in_flight(&self) -> usize {
        self.net.under_way()
    }

    /// Number of scheduled events: [`World::in_flight`] and timers.
    pub fn scheduled(&self) -> usize {
        self.net.scheduled() + self.timers.len()
    }
}

/// Directions of a wire: from its first end to its second, and back.
fn directions(wire: WireId) -> [DirectionId; 2] {
    let edge = EdgeId(wire.0);
    [edge.forward(), edge.reverse()]
}
