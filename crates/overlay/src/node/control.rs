use super::{Config, Nodes, Start, Why};
use crate::link::LinkId;
use crate::route::{
    self, CostModel, ForwardingTable, Limits, LinkCost, Metric, Neighbour, Router, StaticRoute,
    Unsigned,
};
use crate::wire::NodeId;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_base::Time;

/// Settings of link-state routing.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Routing {
    /// By what the paths of packets that start here are chosen, unless their
    /// application says.
    pub metric: Metric,
    /// How costs are computed; alike at every node of an overlay.
    pub cost: CostModel,
    /// Bounds.
    pub limits: Limits,
}

/// What the forwarder tells control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A link's neighbour is heard again, or has started anew.
    Up {
        /// Which link.
        link: LinkId,
        /// Whether the neighbour may have forgotten what it was told.
        restarted: bool,
        /// The measured round trip, zero if not known.
        rtt: Duration,
    },
    /// A link's neighbour has been silent for too long.
    Down(LinkId),
    /// What a link costs has changed so much that others should know.
    Cost(LinkId, LinkCost),
    /// A routing frame came.
    Routing(LinkId, Box<[u8]>),
}

/// What control tells the forwarder.
#[derive(Clone, Debug)]
pub enum Command {
    /// Forward by this table from now on.
    Table(Arc<ForwardingTable>),
}

/// Commands that may wait for the forwarder: each step makes few, and it takes
/// all after each.
const COMMANDS: usize = 16;

/// Decides where packets go.
#[derive(Debug)]
pub struct Control {
    start: Start,
    routes: Vec<StaticRoute>,
    /// Each link's neighbour and path number, and whether it is up.
    links: Vec<(NodeId, u8, bool)>,
    router: Option<Router>,
    /// Whether not everybody's packets may pass through.
    no_transit: bool,
    table: Arc<ForwardingTable>,
    commands: VecDeque<Command>,
}

impl Control {
    /// Control of a node that has just started.
    pub fn new(config: &Config, start: Start) -> Control {
        let links = config.links.iter().map(|l| (l.neighbour, path_number(&l.path), false));
        let no_transit = config.access.transit != Nodes::All;
        let mut control = Control {
            start,
            routes: config.routes.clone(),
            links: links.collect(),
            router: config.routing.as_ref().map(|settings| router(config, settings, &start)),
            no_transit,
            table: Arc::default(),
            commands: VecDeque::with_capacity(COMMANDS),
        };
        control.drain(start.at, false);
        control.recompute();
        control
    }

    /// Nanoseconds since 1970.
    fn unix_nanos(&self, now: Time) -> u64 {
        let passed = now.as_nanos().saturating_sub(self.start.at.as_nanos());
        self.start.unix_nanos.saturating_add(passed)
    }

    /// Takes a report. What follows from it waits for
    /// [`Control::next_command`].
    pub fn report(&mut self, now: Time, report: Report) {
        match report {
            Report::Up { link, restarted, rtt } => self.up(now, link, restarted, rtt),
            Report::Down(link) => {
                if let Some(state) = self.links.get_mut(usize::from(link.0)) {
                    state.2 = false;
                }
                if let Some(router) = &mut self.router {
                    router.link_down(now, link);
                }
            }
            Report::Cost(link, cost) => {
                if let Some(router) = &mut self.router {
                    router.set_cost(now, link, cost);
                }
            }
            Report::Routing(link, frame) => {
                let wall = self.unix_nanos(now);
                if let Some(router) = &mut self.router {
                    router.recv(now, wall, link, &frame);
                }
            }
        }
        self.recompute();
    }

    fn up(&mut self, now: Time, link: LinkId, restarted: bool, rtt: Duration) {
        let Some(state) = self.links.get_mut(usize::from(link.0)) else { return };
        state.2 = true;
        let (id, path, _) = *state;
        if let Some(router) = &mut self.router {
            router.link_up(now, link, Neighbour { id, path, restarted, rtt });
        }
    }

    /// Takes other routes of the operator.
    pub(super) fn set_routes(&mut self, now: Time, routes: Vec<StaticRoute>) {
        if let Some(router) = &mut self.router {
            router.set_routes(now, routes.clone());
        }
        self.routes = routes;
        self.recompute();
    }

    /// Tells others to take other ways than over this node, or takes that back.
    /// The operator's routes at other nodes do not know of it.
    pub(super) fn drain(&mut self, now: Time, on: bool) {
        if let Some(router) = &mut self.router {
            router.drain(now, on || self.no_transit);
        }
    }

    /// Whether everybody's packets may pass through.
    pub(super) fn set_transit(&mut self, now: Time, free: bool, draining: bool) {
        self.no_transit = !free;
        self.drain(now, draining);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let Some(router) = &mut self.router else { return };
        router.handle_timeout(now);
        if let Some(table) = router.table() {
            self.commands.push_back(Command::Table(table));
        }
    }

    /// When to call [`Control::handle_timeout`] and ask for frames, and why.
    pub fn next_timeout(&self) -> (Time, Why) {
        self.router.as_ref().map_or((Time::NEVER, Why::Nothing), |r| (r.next_timeout(), Why::Route))
    }

    /// What the forwarder is to do.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next routing frame for `link`, of at most `room` bytes.
    pub(super) fn poll_frame(&mut self, link: LinkId, now: Time, room: usize) -> Option<Vec<u8>> {
        self.router.as_mut()?.poll_frame(link, now, room)
    }

    /// Link-state routing, if the node does it.
    pub fn router(&self) -> Option<&Router> {
        self.router.as_ref()
    }

    /// Without link-state routing the operator's routes are all there is.
    fn recompute(&mut self) {
        if self.router.is_some() {
            return;
        }
        let links: Vec<_> = self.links.iter().map(|&(node, _, up)| (node, up)).collect();
        let table = ForwardingTable::from_static(&self.routes, &links);
        if table != *self.table {
            self.table = Arc::new(table);
            self.commands.push_back(Command::Table(Arc::clone(&self.table)));
        }
    }
}

fn router(config: &Config, settings: &Routing, start: &Start) -> Router {
    let mut c = route::Config::new(config.id);
    (c.cost, c.limits) = (settings.cost, settings.limits);
    c.routes.clone_from(&config.routes);
    Router::new(c, Box::new(Unsigned), Box::new(Unsigned), start.unix_nanos, start.at)
}

/// What a path's label is called in updates. A node refuses two links to one
/// neighbour that would be called alike.
pub(super) fn path_number(label: &str) -> u8 {
    let fnv = |h: u32, b: u8| (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
    let h = label.bytes().fold(0x811c_9dc5, fnv);
    let [a, b, c, d] = h.to_be_bytes();
    a ^ b ^ c ^ d
}
