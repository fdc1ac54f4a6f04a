use crate::endpoints::{HostId, address};
use crate::error::WorldError;
use crate::world::World;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::link_model::LinkModel;
use trunkline_net::IpVersion;
use trunkline_overlay::identity::{Certificate, Identity};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Routing, Sealing};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::wire::NodeId;

/// Hosts, links and routes, each given once; [`build`](Topology::build) fills in the addresses.
/// Wires are numbered in the order of the links that have one.
#[derive(Clone, Debug)]
pub struct Topology {
    ip: IpVersion,
    hosts: Vec<Config>,
    links: Vec<Wire>,
}

impl Default for Topology {
    fn default() -> Topology {
        Topology { ip: IpVersion::V6, hosts: Vec::new(), links: Vec::new() }
    }
}

#[derive(Clone, Debug)]
struct Wire {
    a: HostId,
    b: HostId,
    ab: LinkModel,
    ba: LinkModel,
    /// Whether the link runs over cables with these delays instead of a wire.
    routed: bool,
}

impl Topology {
    /// A topology without hosts or links, over IPv6.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Sends everything over this IP version.
    #[must_use]
    pub fn over(self, ip: IpVersion) -> Topology {
        Topology { ip, ..self }
    }

    /// Nodes 1, 2, … in a row over IPv6, with one link per model, the same in both directions, and routes
    /// between all pairs.
    pub fn chain(models: impl IntoIterator<Item = LinkModel>) -> Topology {
        let mut t = Topology::new();
        let mut last = t.host(NodeId(1));
        for (model, id) in models.into_iter().zip(2..) {
            let next = t.host(NodeId(id));
            t.link(last, next, model.clone(), model);
            last = next;
        }
        t.route_all();
        t
    }

    /// Adds a host with a node of this id.
    pub fn host(&mut self, id: NodeId) -> HostId {
        self.hosts.push(Config::new(id));
        HostId(self.hosts.len() as u32 - 1)
    }

    /// A host's configuration. All settings may be changed except the links' neighbours and
    /// addresses.
    pub fn config_mut(&mut self, host: HostId) -> &mut Config {
        &mut self.hosts[host.0 as usize]
    }

    /// Adds a link with default settings over a wire with these models, from `a` to `b` and back.
    pub fn link(&mut self, a: HostId, b: HostId, ab: LinkModel, ba: LinkModel) {
        self.link_with(a, b, ab, ba, |_| {});
    }

    /// Adds a link like [`Topology::link`], with settings that `adjust` changes at both ends.
    /// Several links between two hosts need different `path` labels.
    pub fn link_with(
        &mut self,
        a: HostId,
        b: HostId,
        ab: LinkModel,
        ba: LinkModel,
        adjust: impl Fn(&mut link::Config),
    ) {
        self.add_link(Wire { a, b, ab, ba, routed: false }, adjust);
    }

    /// Adds a link with default settings between two hosts that cables will connect. The delays in
    /// the two directions are used only for static routes: see [`World::connect_routed`].
    pub fn routed_link(&mut self, a: HostId, b: HostId, there: Duration, back: Duration) {
        let [ab, ba] = [there, back].map(|delay| LinkModel { delay, ..LinkModel::default() });
        self.add_link(Wire { a, b, ab, ba, routed: true }, |_| {});
    }

    fn add_link(&mut self, wire: Wire, adjust: impl Fn(&mut link::Config)) {
        let (a, b) = (wire.a, wire.b);
        // The number of links is checked when the node accepts its configuration.
        let ends = [a, b].map(|h| address(h, self.hosts[h.0 as usize].links.len() as u16));
        for (at, to, theirs) in [(a, b, ends[1]), (b, a, ends[0])] {
            let mut config = link::Config::new(self.hosts[to.0 as usize].id);
            config.address = Some(theirs);
            adjust(&mut config);
            self.hosts[at.0 as usize].links.push(config);
        }
        self.links.push(wire);
    }

    /// Adds a static route at `at`: to `to` by the neighbour `via`, which needs `onward` for the
    /// rest.
    pub fn route(&mut self, at: HostId, to: HostId, via: HostId, onward: Duration) {
        let [to, via] = [to, via].map(|h| self.hosts[h.0 as usize].id);
        self.hosts[at.0 as usize].routes.push(StaticRoute { to: Some(to), via, onward });
    }

    /// Adds static routes with the fewest hops from every host to every other reachable one; a tie
    /// goes to the link added first.
    pub fn route_all(&mut self) {
        for at in 0..self.hosts.len() as u32 {
            for (to, via, onward) in self.first_hops(HostId(at)) {
                self.route(HostId(at), to, via, onward);
            }
        }
    }

    /// First hop to each host that is not a neighbour, and the delay from there, by breadth-first
    /// search.
    fn first_hops(&self, at: HostId) -> Vec<(HostId, HostId, Duration)> {
        let mut via: Vec<Option<(HostId, Duration)>> = vec![None; self.hosts.len()];
        let mut found = Vec::new();
        let mut queue = VecDeque::from([at]);
        while let Some(here) = queue.pop_front() {
            for link in &self.links {
                let (next, delay) = match (link.a == here, link.b == here) {
                    (true, _) => (link.b, link.ab.delay),
                    (_, true) => (link.a, link.ba.delay),
                    _ => continue,
                };
                if next == at || via[next.0 as usize].is_some() {
                    continue;
                }
                let (first, onward) = match via[here.0 as usize].filter(|_| here != at) {
                    Some((first, so_far)) => (first, so_far + delay),
                    None => (next, Duration::ZERO),
                };
                via[next.0 as usize] = Some((first, onward));
                if here != at {
                    found.push((next, first, onward));
                }
                queue.push_back(next);
            }
        }
        found
    }

    /// Seals all links: every host has a key and a certificate, and knows no other key beforehand.
    /// Keys are derived from the nodes' ids.
    pub fn seal(&mut self) {
        let overlay = Identity::from_secret(&[0xff; 32]);
        for host in &mut self.hosts {
            let mut secret = [0; 32];
            secret[..4].copy_from_slice(&host.id.0.to_be_bytes());
            let mut sealing = Sealing::new(Identity::from_secret(&secret));
            let (name, key) = (format!("node-{}", host.id), sealing.identity.public());
            // The name always fits.
            sealing.certificate = Certificate::issue(&overlay, host.id, &name, key, 0).ok();
            sealing.trust.overlay_keys = vec![overlay.public()];
            host.sealing = Some(sealing);
        }
    }

    /// Enables link-state routing with these settings on every host.
    pub fn link_state(&mut self, routing: &Routing) {
        for host in &mut self.hosts {
            host.routing = Some(routing.clone());
        }
    }

    /// Builds the world of this topology.
    ///
    /// # Errors
    ///
    /// As [`World::add_host`], [`World::connect`] and [`World::connect_routed`].
    pub fn build(self, seed: u64) -> Result<World, WorldError> {
        let mut world = World::new(self.ip, seed);
        for config in self.hosts {
            world.add_host(config)?;
        }
        for Wire { a, b, ab, ba, routed } in self.links {
            match routed {
                true => world.connect_routed(a, b)?,
                false => drop(world.connect(a, b, ab, ba)?),
            }
        }
        Ok(world)
    }
}
