//! Builds a scenario's simulated network.

use super::model::{FaultKind, Link, Scenario, Vertex};
use crate::experiment::PointError;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_net::{Class, Protocol};
use trunkline_overlay::link;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, RouterId, Topology, WireEnd, WireId, World, WorldError, address};

/// Most packets in flight in the whole network: 10 Gbit/s of 1,500 bytes for a third of a second.
/// Packets beyond that count as `no_room`.
const MAX_PACKETS: usize = 300_000;

/// Classes that ledgers distinguish, by name and number.
pub const CLASSES: [(&str, Class); 4] =
    [("stream", STREAM), ("call", CALL), ("overlay", OVERLAY), ("control", CONTROL)];
/// The class of plain streams.
pub const STREAM: Class = Class(1);
/// The class of plain calls.
pub const CALL: Class = Class(2);
/// The class of packets in the overlay, originals and retransmissions.
const OVERLAY: Class = Class(3);
/// The class of control traffic between nodes: hellos, requests, routing.
const CONTROL: Class = Class(4);

/// The scenario's nodes and links of the overlay, without keys and static routes.
pub fn configured(scenario: &Scenario) -> Topology {
    let mut topology = Topology::new().over(scenario.ip);
    for (n, host) in scenario.hosts.iter().enumerate() {
        let id = topology.host(node(n));
        topology.config_mut(id).max_sessions = host.max_sessions;
    }
    for link in &scenario.links {
        let (Some(settings), Some((a, b))) = (&link.overlay, link.hosts()) else { continue };
        match (&link.wire, link.routed) {
            (Some([there, back]), _) => {
                topology.link(host(a), host(b), there.clone(), back.clone());
            }
            (None, routed) => {
                let [there, back] = routed.unwrap_or_default();
                topology.routed_link(host(a), host(b), there, back);
            }
        }
        for (end, settings) in [a, b].into_iter().zip(settings.iter()) {
            let Some(config) = topology.config_mut(host(end)).links.last_mut() else { continue };
            let (neighbour, address) = (config.neighbour, config.address);
            *config = link::Config { neighbour, address, ..settings.clone() };
        }
    }
    for (n, settings) in scenario.hosts.iter().enumerate() {
        topology.config_mut(host(n)).routing.clone_from(&settings.routing);
        topology.config_mut(host(n)).trunks.clone_from(&settings.trunks);
    }
    topology
}

/// The scenario's nodes, links of the overlay and static routes.
pub fn topology(scenario: &Scenario) -> Topology {
    let mut topology = configured(scenario);
    if scenario.hosts.iter().any(|h| h.routing.is_none()) {
        topology.route_all();
    }
    if scenario.sealed {
        topology.seal();
    }
    topology
}

/// Node id of the `n`-th host.
pub fn node(n: usize) -> NodeId {
    NodeId(n as u32 + 1)
}

/// Simulated id of the `n`-th host.
pub fn host(n: usize) -> HostId {
    HostId(n as u32)
}

/// A scenario's network in a world.
pub struct Built {
    pub world: World,
    /// The private wire of each link; `None` if it has none.
    pub wires: Vec<Option<WireId>>,
}

/// Builds everything except the calls and streams.
pub fn build(scenario: &Scenario, seed: u64) -> Result<Built, WorldError> {
    let mut world = topology(scenario).build(seed)?;
    world.set_packet_limit(MAX_PACKETS);
    let routers: Vec<RouterId> = scenario.routers.iter().map(|_| world.add_router()).collect();
    let spot = |spot| match spot {
        Vertex::Host(n) => trunkline_sim::LinkEnd::Host(host(n)),
        Vertex::Router(n) => trunkline_sim::LinkEnd::Router(routers[n]),
    };
    // Wires of the overlay's links exist already, in this order.
    let mut private = (0..world.wires()).map(WireId);
    let mut wire = |link: &Link| match (&link.wire, &link.overlay) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Ok(private.next()),
        (Some([there, back]), None) => {
            let (a, b) = (spot(link.ends.0), spot(link.ends.1));
            world.cable(a, b, there.clone(), back.clone()).map(Some)
        }
    };
    let wires = scenario.links.iter().map(&mut wire).collect::<Result<_, _>>()?;
    for n in 0..scenario.hosts.len() {
        if scenario.links.iter().filter_map(Link::hosts).any(|(a, b)| a == n || b == n) {
            let port = address(host(n), 0).port();
            world.set_class(host(n), Protocol::UDP, port, OVERLAY)?;
            world.set_control_class(host(n), CONTROL);
        }
    }
    Ok(Built { world, wires })
}

/// A change of the network at a certain time.
pub struct Event {
    pub at: Time,
    act: Act,
}

enum Act {
    Change(WireId, Box<[Option<LinkModel>; 2]>),
    Crash(HostId),
    Stop(HostId),
    Restart(HostId),
    Stall(HostId, Time),
}

/// The scenario's faults as single changes, in order of time; calls begin at `start`.
pub fn events(scenario: &Scenario, wires: &[Option<WireId>], start: Time) -> Vec<Event> {
    let mut events = Vec::new();
    for fault in &scenario.faults {
        let (at, until) = (start + fault.at, fault.until.map(|until| start + until));
        let mended = |link: usize| scenario.links[link].wire.clone().map(|w| w.map(Some));
        let (act, after) = match &fault.what {
            FaultKind::Link(link, models) => {
                let Some(wire) = wires[*link] else { continue };
                let [there, back] = mended(*link).unwrap_or_default();
                let of_way = |n: usize, model| models[n].as_ref().and(model);
                let after = [of_way(0, there), of_way(1, back)];
                (Act::Change(wire, models.clone()), Some(Act::Change(wire, Box::new(after))))
            }
            &FaultKind::Mend(link) => {
                let (Some(wire), Some(models)) = (wires[link], mended(link)) else { continue };
                (Act::Change(wire, Box::new(models)), None)
            }
            &FaultKind::Crash(n) => (Act::Crash(host(n)), Some(Act::Restart(host(n)))),
            &FaultKind::Stop(n) => (Act::Stop(host(n)), Some(Act::Restart(host(n)))),
            &FaultKind::Restart(n) => (Act::Restart(host(n)), None),
            &FaultKind::Stall(n) => (Act::Stall(host(n), until.unwrap_or(at)), None),
        };
        events.push(Event { at, act });
        if let (Some(at), Some(act)) = (until, after) {
            events.push(Event { at, act });
        }
    }
    events.sort_by_key(|event| event.at);
    events
}

impl Event {
    /// Applies the change to the network.
    pub fn happen(self, world: &mut World) -> Result<(), PointError> {
        match self.act {
            Act::Change(wire, models) => {
                for (end, model) in [WireEnd::First, WireEnd::Second].into_iter().zip(*models) {
                    if let Some(model) = model {
                        world.change(wire, end, model)?;
                    }
                }
            }
            Act::Crash(host) => world.crash(host),
            Act::Stop(host) => world.stop(host),
            Act::Restart(host) => world.restart(host)?,
            Act::Stall(host, until) => world.stall(host, until),
        }
        Ok(())
    }
}
