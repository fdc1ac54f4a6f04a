//! Hosts, wires, what runs on them, and their clock.

mod build;
mod faults;
mod look;
mod radio;
mod run;

pub use radio::CellId;

use crate::agent::overlay::{self, OverlayNode};
use crate::agent::{Agent, AgentIo, AgentSlot};
use crate::app::AppId;
use crate::places::{HostId, Places, WireId};
use crate::queue::Timers;
use crate::watch::Watch;
use core::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_net::{Delivery, Network, VertexId};
use trunkline_overlay::arena::TxArena;

/// A network of hosts, routers, wires and what runs on the hosts, and its clock.
///
/// Building is usually left to [`Topology`](crate::Topology). Then attach
/// applications, [`run_until`](World::run_until) some time, and look at the
/// applications, nodes and wires.
pub struct World {
    seed: u64,
    now: Time,
    net: Network<Watch>,
    places: Places,
    wires: Vec<Wire>,
    /// By router.
    routers: Vec<VertexId>,
    agents: Vec<AgentSlot>,
    /// By [`AppId`].
    apps: Vec<AppPlace>,
    timers: Timers,
    /// What waits for a stalled host.
    held: Held,
    arena: Rc<RefCell<TxArena>>,
}

/// A wire, which is an edge of the network with the same number.
struct Wire {
    vertices: [VertexId; 2],
    /// What it was connected with; of a cell's wire it means nothing.
    originals: [LinkModel; 2],
    /// Which of the seed's loss processes its first direction has.
    stream: u64,
    /// The two hosts and their links, if it is one link's alone.
    link: Option<[(HostId, u16); 2]>,
}

/// Where an application is.
#[derive(Clone, Copy)]
enum AppPlace {
    /// One of this agent's, which is a node.
    AtNode { agent: u32, index: u32 },
    /// This agent's own.
    Plain { agent: u32 },
}

/// Datagrams that wait for a stalled host, in places that are used again.
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
    /// The wire of which this is an end.
    pub fn wire(self) -> WireId {
        self.wire
    }

    /// The host at this end, which has no node.
    pub fn host(self) -> HostId {
        self.host
    }
}

impl World {
    /// An empty world at [`Time::ZERO`]. Everything random in it (losses,
    /// jitter, the nodes' choices) follows from `seed`.
    pub fn new(seed: u64) -> World {
        World {
            seed,
            now: Time::ZERO,
            net: Network::with_tap(seed, Watch::default()),
            places: Places::default(),
            wires: Vec::new(),
            routers: Vec::new(),
            agents: Vec::new(),
            apps: Vec::new(),
            timers: Timers::default(),
            held: Held::default(),
            arena: overlay::arena(),
        }
    }

    /// Calls an agent.
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
    /// If the host has none.
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

    fn app_place<A>(&self, app: AppId<A>) -> AppPlace {
        self.apps[app.index as usize]
    }
}
