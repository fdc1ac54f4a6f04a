//! Log lines for the node's notices.

use super::PacketThread;
use crate::clock;
use nix::errno::Errno;
use std::time::Duration;
use trunkline_overlay::link::{DownCause, LinkId};
use trunkline_overlay::node::Notice;

/// Time for which an interface that takes nothing is not worth mentioning: it is busy. A link may be
/// dead a second after the interface took something.
const BUSY: Duration = Duration::from_millis(300);

impl PacketThread {
    /// Logs the node's notices. Those that others can provoke appear at most once in ten seconds.
    pub(super) fn log_notices(&mut self) {
        let now = clock::now();
        while let Some(notice) = self.node.next_notice() {
            match notice {
                Notice::Up(link) => self.log_link(link, None),
                Notice::Down(link, why) => {
                    self.uplinks.next_hops.suspect(now);
                    self.log_link(link, Some(why));
                }
                Notice::Damped(link) => self.log_damping(link, true),
                Notice::Undamped(link) => self.log_damping(link, false),
                Notice::Refused { from, node, why, versions } => {
                    self.limited.refused(now, (from, node), why, versions);
                }
                Notice::OtherKey { node, name, from } => {
                    self.limited.other_key(now, node, &name, from);
                }
                Notice::ClockBehind { node, from, own } => {
                    self.limited.clock_behind(now, node, from, own);
                }
                Notice::Admitted { node, name, address, .. } => {
                    tracing::info!(%node, %name, %address, "a certified node became a neighbour");
                }
                Notice::Closed { link, why } => {
                    let link = self.node.node().link(link);
                    let neighbour = link.map_or(0, |link| link.config().neighbour.0);
                    let why = why.label();
                    tracing::warn!(neighbour, why, "the link is closed: no longer trusted");
                }
            }
        }
        if let Some(router) = self.node.node().router() {
            self.differing.look(now, router);
        }
    }

    /// Logs once when a link's cost rises and once when it is back to normal: at least a half-life
    /// apart.
    fn log_damping(&self, id: LinkId, damped: bool) {
        let Some(link) = self.node.node().link(id) else { return };
        let (neighbour, downs) = (link.config().neighbour.0, link.stats().downs);
        let path = Some(link.config().path.as_str()).filter(|path| !path.is_empty());
        if damped {
            tracing::warn!(
                neighbour,
                path,
                downs,
                "the link keeps failing: its cost is raised until it has been stable for a while"
            );
        } else {
            tracing::info!(neighbour, path, downs, "the link is stable: its cost is normal again");
        }
    }

    /// Logs the change of a link's state with the details that an operator needs after bad calls;
    /// `down` is the reason if it is down.
    fn log_link(&self, id: LinkId, down: Option<DownCause>) {
        let node = self.node.node();
        let Some(link) = node.link(id) else { return };
        let neighbour = link.config().neighbour.0;
        let name = node.control().name(id).map(tracing::field::display);
        let path = Some(link.config().path.as_str()).filter(|path| !path.is_empty());
        let address = link.address().map(tracing::field::display);
        let stalled = self.uplinks.stalled(id, link).map(|since| clock::now().since(since));
        let interface = stalled.filter(|time| *time >= BUSY).map(|_| "takes nothing");
        let error = self.uplinks.error_of(id).filter(|error| error.lasts(clock::now()));
        let error = error.map(|error| tracing::field::debug(Errno::from_raw(error.errno)));
        match down.map(DownCause::label) {
            None => tracing::info!(neighbour, name, path, address, "the link is up"),
            Some(why) => {
                tracing::warn!(
                    neighbour,
                    name,
                    path,
                    address,
                    why,
                    interface,
                    error,
                    "the link is down"
                );
            }
        }
    }
}
