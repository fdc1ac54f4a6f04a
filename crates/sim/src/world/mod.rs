//! The world: hosts and wires, their agents, and a clock.

mod build;
mod faults;
mod inspect;
mod radio;
mod run;

pub use radio::CellId;

use crate::agent::overlay::{self, OverlayNode};
use crate::agent::{Agent, AgentIo, AgentSlot};
use crate::app::AppId;
use crate::endpoints::{Endpoints, HostId, WireId};
use crate::queue::Timers;
use crate::run_observer::RunObserver;
use core::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_net::{Delivery, IpVersion, Network, VertexId};
use trunkline_overlay::arena::TxArena;

/// A network of hosts, routers and wires, with the agents on the hosts, and its clock.
///
/// It is usually built by a [`Topology`](crate::Topology). Then attach applications,
/// [`run_until`](World::run_until) some time, and inspect applications, nodes and wires.
pub struct World {
    seed: u64,
    now: Time,
    net: Network<RunObserver>,
    places: Endpoints,
    wires: Vec<Wire>,
    /// Vertex of each router.
    routers: Vec<VertexId>,
    agents: Vec<AgentSlot>,
    /// Location of each application, by [`AppId`].
    apps: Vec<AppLocation>,
    timers: Timers,
    /// Datagrams that wait for stalled hosts.
    held: Held,
    arena: Rc<RefCell<TxArena>>,
}

/// A wire: the edge of the network with the same number.
struct Wire {
    vertices: [VertexId; 2],
    /// The models that it was connected with; unused for a cell's wire.
    originals: [LinkModel; 2],
    /// Number of the random stream of its first direction's loss process.
    stream: u64,
    /// The two hosts and link indices, if the wire is dedicated to one link.
    link: Option<[(HostId, u16); 2]>,
}

/// Location of an application.
#[derive(Clone, Copy)]
enum AppLocation {
    /// An application of this agent, which is a node.
    AtNode { agent: u32, index: u32 },
    /// The application of this agent, which has no node.
    Plain { agent: u32 },
}

/// Datagrams that wait for a stalled host, in reusable slots.
#[derive(Default)]
struct Held {
    places: Vec<Option<Delivery>>,
    free: Vec<u32>,
}

impl Held {
    fn put(&mut self, delivery: Delivery) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(delivery);
                place
            }
            None => {
                self.places.push(Some(delivery));
                self.places.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, place: u32) -> Option<Delivery> {
        self.free.push(place);
        self.places[place as usize].take()
    }
}

/// One end of a plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainEnd {
    host: HostId,
    peer: HostId,
    wire: WireId,
}

impl PlainEnd {
    /// The wire that this end belongs to.
    pub fn wire(self) -> WireId {
        self.wire
    }

    /// The host at this end, which has no node.
    pub fn host(self) -> HostId {
        self.host
    }
}

impl World {
    /// An empty world at [`Time::ZERO`], with all packets of one IP version. All its randomness
    /// (losses, jitter, the nodes' choices) derives from `seed`.
    pub fn new(ip: IpVersion, seed: u64) -> World {
        World {
            seed,
            now: Time::ZERO,
            net: Network::with_tap(seed, RunObserver::default()),
            places: Endpoints::new(ip),
            wires: Vec::new(),
            routers: Vec::new(),
            agents: Vec::new(),
            apps: Vec::new(),
            timers: Timers::default(),
            held: Held::default(),
            arena: overlay::arena(),
        }
    }

    /// Calls an agent by index.
    fn call<R>(
        &mut self,
        agent: u32,
        call: impl FnOnce(&mut dyn Agent, &mut AgentIo<'_>) -> R,
    ) -> R {
        let &mut AgentSlot { agent: ref mut called, host, class } =
            &mut self.agents[agent as usize];
        let (net, timers, places) = (&mut self.net, &mut self.timers, &self.places);
        let mut io = AgentIo { now: self.now, agent, host, class, places, net, timers };
        call(&mut **called, &mut io)
    }

    /// Calls the node of a host.
    ///
    /// # Panics
    ///
    /// If the host has no node.
    pub(crate) fn call_node<R>(
        &mut self,
        host: HostId,
        call: impl FnOnce(&mut OverlayNode, &mut AgentIo<'_>) -> R,
    ) -> R {
        let agent = self.node_agent(host);
        self.call(agent, |agent, io| {
            let any: &mut dyn Any = agent;
            call(any.downcast_mut().expect("a host's node is an overlay node"), io)
        })
    }

    fn node_agent(&self, host: HostId) -> u32 {
        self.places.node(host).unwrap_or_else(|why| panic!("{why}"))
    }

    fn overlay_node(&self, host: HostId) -> &OverlayNode {
        let agent: &dyn Any = &*self.agents[self.node_agent(host) as usize].agent;
        agent.downcast_ref().expect("a host's node is an overlay node")
    }

    fn app_location<A>(&self, app: AppId<A>) -> AppLocation {
        self.apps[app.index as usize]
    }
}
