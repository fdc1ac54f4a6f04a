use super::Config;
use crate::link::LinkId;
use crate::route::{ForwardingTable, StaticRoute};
use crate::wire::NodeId;
use std::sync::Arc;

/// What the forwarder tells control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// A link's neighbour is heard again.
    Up(LinkId),
    /// A link's neighbour has been silent for too long.
    Down(LinkId),
}

/// What control tells the forwarder.
#[derive(Clone, Debug)]
pub enum Command {
    /// Forward by this table from now on.
    Table(Arc<ForwardingTable>),
}

/// Decides where packets go.
#[derive(Debug)]
pub struct Control {
    routes: Vec<StaticRoute>,
    /// Each link's neighbour, and whether it is up.
    links: Vec<(NodeId, bool)>,
    table: Arc<ForwardingTable>,
}

impl Control {
    /// Control of a node that has just started, and its first command.
    pub fn new(config: &Config) -> (Control, Command) {
        let links: Vec<_> = config.links.iter().map(|l| (l.neighbour, false)).collect();
        let table = Arc::new(ForwardingTable::from_static(&config.routes, &links));
        let control = Control { routes: config.routes.clone(), links, table: Arc::clone(&table) };
        (control, Command::Table(table))
    }

    /// Takes a report; the command that follows from it, if any.
    pub fn report(&mut self, report: Report) -> Option<Command> {
        let (LinkId(link), up) = match report {
            Report::Up(link) => (link, true),
            Report::Down(link) => (link, false),
        };
        self.links.get_mut(usize::from(link))?.1 = up;
        self.recompute()
    }

    /// Takes other routes of the operator; the command that follows.
    pub(super) fn set_routes(&mut self, routes: Vec<StaticRoute>) -> Option<Command> {
        self.routes = routes;
        self.recompute()
    }

    /// Tells others to take other ways than over this node, or takes that back.
    /// The operator's routes at other nodes do not know of it.
    pub(super) fn drain(&mut self, _on: bool) -> Option<Command> {
        None
    }

    fn recompute(&mut self) -> Option<Command> {
        let table = ForwardingTable::from_static(&self.routes, &self.links);
        if table == *self.table {
            return None;
        }
        self.table = Arc::new(table);
        Some(Command::Table(Arc::clone(&self.table)))
    }
}
