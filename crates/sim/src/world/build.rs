//! Construction of a world.

use super::{AppLocation, PlainEnd, Wire, World};
use crate::agent::overlay::OverlayNode;
use crate::agent::plain::PlainApp;
use crate::agent::{Agent, AgentId, AgentSlot};
use crate::app::{AppId, Application};
use crate::endpoints::{Host, HostId, Iface, LinkEnd, Port, RouterId, WireId, address};
use crate::error::WorldError;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use trunkline_base::link_model::{InvalidModel, LinkModel};
use trunkline_net::{Class, Endpoint, NetError, Protocol, VertexId};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, Start};
use trunkline_overlay::wire::Incarnation;

impl World {
    /// Adds a host, and starts its node now. The addresses in `config` must be those that
    /// [`address`] gives for the other ends.
    ///
    /// # Errors
    ///
    /// [`WorldError::Config`] if the node refuses its configuration.
    pub fn add_host(&mut self, config: Config) -> Result<HostId, WorldError> {
        let id = HostId(self.places.hosts.len() as u32);
        let node = Node::new(config.clone(), self.start_of(id, 1, self.seed))
            .map_err(|why| WorldError::Config(id, why))?;
        let host = self.add_machine(ip_of(id));
        let (links, neighbour) = (config.links.len(), config.id);
        let node = OverlayNode::new(config, node, Rc::clone(&self.arena));
        let agent = self.push_agent(host, node);
        let here = &mut self.places.hosts[host.0 as usize];
        (here.node, here.ports) = (Some((agent, neighbour)), vec![None; links]);
        if let Some(last) = links.checked_sub(1) {
            // The number of links was checked with the configuration.
            let ports = [0, last as u16].map(|link| address(host, link).port());
            here.bind(Protocol::UDP, ports[0], ports[1], agent);
        }
        self.call(agent, |a, io| a.start(io));
        Ok(host)
    }

    /// Adds a host without a node, for agents on plain IP.
    pub fn add_plain_host(&mut self) -> HostId {
        self.add_machine(ip_of(HostId(self.places.hosts.len() as u32)))
    }

    /// Adds a router, which forwards packets between cables; see [`World::cable`].
    pub fn add_router(&mut self) -> RouterId {
        let vertex = self.net.router();
        self.note_vertex(None, Ipv4Addr::UNSPECIFIED);
        self.routers.push(vertex);
        RouterId(self.routers.len() as u32 - 1)
    }

    fn add_machine(&mut self, ip: Ipv4Addr) -> HostId {
        let host = HostId(self.places.hosts.len() as u32);
        let vertex = self.add_interface(host, ip);
        self.places.hosts.push(Host::new(vertex));
        host
    }

    fn add_interface(&mut self, host: HostId, ip: Ipv4Addr) -> VertexId {
        let vertex = self.net.host();
        self.note_vertex(Some(host.0), ip);
        vertex
    }

    fn note_vertex(&mut self, host: Option<u32>, ip: Ipv4Addr) {
        self.places.ifaces.push(Iface { host, only: None, ip, nat: None, ecn_capable: false });
        self.net.tap_mut().vertex(ip);
    }

    /// Adds a wire between the first links of `a` and `b` that lead to each other, have the same
    /// path label and are not connected yet. It carries nothing else.
    ///
    /// # Errors
    ///
    /// If there are no such links, one has a wrong address, or a model is invalid.
    pub fn connect(
        &mut self,
        a: HostId,
        b: HostId,
        ab: LinkModel,
        ba: LinkModel,
    ) -> Result<WireId, WorldError> {
        let links = self.pair(a, b)?;
        let models = [ab, ba];
        for model in &models {
            model.validate().map_err(|why| WorldError::Model(a, b, why))?;
        }
        let vertices = [a, b].map(|host| self.add_interface(host, ip_of(host)));
        let wire = self
            .add_wire(vertices, models, Some([(a, links[0]), (b, links[1])]), None)
            .map_err(|why| WorldError::Model(a, b, why))?;
        self.plug((a, links[0], vertices[0]), (b, links[1], vertices[1]));
        for (host, vertex) in [a, b].into_iter().zip(vertices) {
            self.places.ifaces[vertex.0 as usize].only = Some(self.places.node(host)?);
        }
        Ok(wire)
    }

    /// Connects links as [`World::connect`] does, but over the hosts' cables and the routers
    /// between them instead of a wire: other traffic shares this path.
    ///
    /// # Errors
    ///
    /// If there are no such links, or one has a wrong address.
    pub fn connect_routed(&mut self, a: HostId, b: HostId) -> Result<(), WorldError> {
        let links = self.pair(a, b)?;
        let [va, vb] = [a, b].map(|host| self.places.hosts[host.0 as usize].vertex);
        self.plug((a, links[0], va), (b, links[1], vb));
        Ok(())
    }

    /// The first unconnected links of two nodes that lead to each other.
    fn pair(&self, a: HostId, b: HostId) -> Result<[u16; 2], WorldError> {
        self.places.node(a)?;
        let link_a = self.free_link(a, b, None)?;
        let path = &self.overlay_node(a).config.links[usize::from(link_a)].path;
        let link_b = self.free_link(b, a, Some(path))?;
        self.check_address(a, link_a, b, address(b, link_b))?;
        self.check_address(b, link_b, a, address(a, link_a))?;
        Ok([link_a, link_b])
    }

    /// Connects the two ends of a link.
    fn plug(&mut self, a: (HostId, u16, VertexId), b: (HostId, u16, VertexId)) {
        for ((host, link, vertex), (peer, back, far)) in [(a, b), (b, a)] {
            let [outside, port] = [address(host, link), address(peer, back)].map(|a| a.port());
            let peer_at = Endpoint { vertex: far, port };
            let port = Port { vertex, outside, peer: (peer.0, back), peer_at };
            self.places.hosts[host.0 as usize].ports[usize::from(link)] = Some(port);
        }
    }

    /// Adds a cable between two hosts' own interfaces or routers. Packets of the hosts' agents, and
    /// of links connected by [`World::connect_routed`], take the shortest path over cables.
    ///
    /// # Errors
    ///
    /// [`WorldError::CableModel`].
    pub fn cable(
        &mut self,
        a: impl Into<LinkEnd>,
        b: impl Into<LinkEnd>,
        ab: LinkModel,
        ba: LinkModel,
    ) -> Result<WireId, WorldError> {
        let vertices = [a.into(), b.into()].map(|spot: LinkEnd| self.vertex(spot));
        self.add_wire(vertices, [ab, ba], None, None).map_err(WorldError::CableModel)
    }

    /// Vertex of a host's own interface, or of a router.
    pub(super) fn vertex(&self, spot: impl Into<LinkEnd>) -> VertexId {
        match spot.into() {
            LinkEnd::Host(host) => self.places.hosts[host.0 as usize].vertex,
            LinkEnd::Router(router) => self.routers[router.0 as usize],
        }
    }

    /// Adds a path without an overlay, for applications on plain UDP, between two new hosts. With
    /// `beside`, it has the same loss and jitter processes as that wire, so that both meet the same
    /// losses as far as their models agree.
    ///
    /// # Errors
    ///
    /// [`WorldError::PlainModel`].
    pub fn plain_path(
        &mut self,
        ab: LinkModel,
        ba: LinkModel,
        beside: Option<WireId>,
    ) -> Result<(PlainEnd, PlainEnd), WorldError> {
        let models = [ab, ba];
        for model in &models {
            model.validate().map_err(WorldError::PlainModel)?;
        }
        // Made-up addresses in the networks reserved for measurements (RFC 2544, appendix C.2.2).
        let [_, _, high, low] = (self.wires.len() as u32 + 1).to_be_bytes();
        let hosts = [18, 19].map(|net| self.add_machine(Ipv4Addr::new(198, net, high, low)));
        let vertices = hosts.map(|host| self.places.hosts[host.0 as usize].vertex);
        let wire = self.add_wire(vertices, models, None, beside).map_err(WorldError::PlainModel)?;
        let [a, b] = hosts;
        let end = |host, peer| PlainEnd { host, peer, wire };
        Ok((end(a, b), end(b, a)))
    }

    fn add_wire(
        &mut self,
        vertices: [VertexId; 2],
        models: [LinkModel; 2],
        link: Option<[(HostId, u16); 2]>,
        beside: Option<WireId>,
    ) -> Result<WireId, InvalidModel> {
        let own = 2 * self.wires.len() as u64;
        let stream = beside.map_or(own, |wire| self.wires[wire.0 as usize].stream);
        let ([a, b], [ab, ba], originals) = (vertices, models.clone(), models);
        match self.net.connect_streams(a, b, ab, ba, stream) {
            Ok(_) => {}
            Err(NetError::Model(why)) => return Err(why),
            Err(other) => unreachable!("unexpected error when connecting: {other}"),
        }
        self.net.tap_mut().edge(link.is_some());
        self.wires.push(Wire { vertices, originals, stream, link });
        Ok(WireId(self.wires.len() as u32 - 1))
    }

    fn free_link(&self, at: HostId, to: HostId, path: Option<&String>) -> Result<u16, WorldError> {
        self.places.node(to)?;
        let neighbour = self.node_id(to);
        let fits = |l: &link::Config| l.neighbour == neighbour && path.is_none_or(|p| *p == l.path);
        let ports = &self.places.hosts[at.0 as usize].ports;
        let mut ends = self.overlay_node(at).config.links.iter().zip(ports);
        let found = ends.position(|(l, port)| fits(l) && port.is_none());
        // The number of links was checked with the configuration.
        found.map(|i| i as u16).ok_or(WorldError::NoLink(at, to))
    }

    fn check_address(
        &self,
        at: HostId,
        link: u16,
        to: HostId,
        expected: SocketAddr,
    ) -> Result<(), WorldError> {
        let configured = self.overlay_node(at).config.links[usize::from(link)].address;
        // An end without a configured address learns it from the first envelope.
        match configured.is_none_or(|a| a == expected) {
            true => Ok(()),
            false => Err(WorldError::Address(at, to)),
        }
    }

    /// Attaches an application to `host` through a new session with its node, bound to the virtual
    /// port `port` (0 for any free one), and starts it.
    ///
    /// # Errors
    ///
    /// If there is no node, or it has no session left or refuses the port.
    pub fn attach<A: Application>(
        &mut self,
        host: HostId,
        port: u16,
        app: A,
    ) -> Result<AppId<A>, WorldError> {
        let agent = self.places.node(host)?;
        let index = self
            .call_node(host, |node, io| node.attach(Box::new(app), port, io))
            .map_err(|refusal| WorldError::of_session(host, port, refusal))?;
        Ok(self.push_app(AppLocation::AtNode { agent, index }))
    }

    /// Attaches an application to an end of a plain path and starts it.
    ///
    /// # Errors
    ///
    /// [`WorldError::PlainPort`].
    pub fn attach_plain<A: Application>(
        &mut self,
        end: PlainEnd,
        port: u16,
        app: A,
    ) -> Result<AppId<A>, WorldError> {
        self.attach_udp(end.host, port, end.peer, app).map_err(|_| WorldError::PlainPort(port))
    }

    /// Attaches an application to a UDP port of `host`, without a node, and starts it. Its packets
    /// go to ports of `peer`.
    ///
    /// # Errors
    ///
    /// [`WorldError::PortTaken`].
    pub fn attach_udp<A: Application>(
        &mut self,
        host: HostId,
        port: u16,
        peer: HostId,
        app: A,
    ) -> Result<AppId<A>, WorldError> {
        let to = self.places.hosts[peer.0 as usize].vertex;
        let agent = PlainApp::new(Box::new(app), port, to);
        let AgentId { index: agent, .. } = self.bind(host, Protocol::UDP, port, agent)?;
        Ok(self.push_app(AppLocation::Plain { agent }))
    }

    /// Binds an agent to a port of `host` and starts it.
    ///
    /// # Errors
    ///
    /// [`WorldError::PortTaken`] if another agent has the port; a node has the ports that
    /// [`address`] gives for its links.
    pub fn bind<A: Agent>(
        &mut self,
        host: HostId,
        protocol: Protocol,
        port: u16,
        agent: A,
    ) -> Result<AgentId<A>, WorldError> {
        let index = self.agents.len() as u32;
        if !self.places.hosts[host.0 as usize].bind(protocol, port, port, index) {
            return Err(WorldError::PortTaken(host, protocol, port));
        }
        let index = self.push_agent(host, agent);
        self.call(index, |a, io| a.start(io));
        Ok(AgentId::new(index))
    }

    /// Limits the number of packets on their way in the whole network. Packets sent above the limit
    /// are dropped as [`DropReason::NoRoom`](trunkline_net::DropReason::NoRoom). By default there
    /// is no limit.
    pub fn set_packet_limit(&mut self, packets: usize) {
        self.net.set_limit(packets);
    }

    /// Counts everything that the agent on this port sends from now on in the ledgers of `class`. A
    /// node is on the port that [`address`] gives for any of its links.
    ///
    /// # Errors
    ///
    /// [`WorldError::NobodyBound`].
    pub fn set_class(
        &mut self,
        host: HostId,
        protocol: Protocol,
        port: u16,
        class: Class,
    ) -> Result<(), WorldError> {
        let bound = self.places.hosts[host.0 as usize].bound(protocol, port);
        let agent = bound.ok_or(WorldError::NobodyBound(host, protocol, port))?;
        self.agents[agent as usize].class = class;
        Ok(())
    }

    /// Endpoint of an agent at this port of `host`.
    pub fn endpoint(&self, host: HostId, port: u16) -> Endpoint {
        Endpoint { vertex: self.places.hosts[host.0 as usize].vertex, port }
    }

    fn push_agent(&mut self, host: HostId, agent: impl Agent) -> u32 {
        let (agent, class) = (Box::new(agent), Class::default());
        self.agents.push(AgentSlot { agent, host: host.0, class });
        self.agents.len() as u32 - 1
    }

    fn push_app<A>(&mut self, place: AppLocation) -> AppId<A> {
        self.apps.push(place);
        AppId::new(self.apps.len() as u32 - 1)
    }

    /// Parameters for starting `host`'s node now. All nodes share the seed, which the forwarder
    /// mixes with their ids; their keys must be unrelated.
    pub(super) fn start_of(&self, host: HostId, incarnation: u64, seed: u64) -> Start {
        let secret = seed ^ ((u64::from(host.0) + 1) << 32);
        let incarnation = incarnation_of(incarnation);
        let Start { entropy, .. } = Start::simulated(self.now, incarnation, secret);
        Start { entropy, ..Start::simulated(self.now, incarnation, seed) }
    }
}

/// The incarnation of a node at its start number `start`. A daemon uses nanoseconds: even if a node
/// increments its incarnation whenever one link replaces another, it doesn't get near that of its
/// next start. The low 16 bits, by which reliable links distinguish starts, differ too.
fn incarnation_of(start: u64) -> Incarnation {
    Incarnation(1 + (start - 1) * ((1 << 32) + 1_009))
}

/// Address of a host's interfaces.
fn ip_of(host: HostId) -> Ipv4Addr {
    match address(host, 0).ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn starts_differ_in_their_low_bits_and_grow_by_far() {
        let starts: Vec<u64> = (1..1_000).map(|start| incarnation_of(start).0).collect();
        let low: BTreeSet<u16> = starts.iter().map(|&all| all as u16).collect();
        assert_eq!(low.len(), starts.len());
        assert!(starts.windows(2).all(|two| two[1] - two[0] >= 1 << 32));
    }
}
