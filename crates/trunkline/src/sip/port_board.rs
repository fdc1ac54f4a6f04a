//! Media ports under the gateway's control: bound here, owned by the packet thread.

use super::Input;
use crate::addresses;
use crate::datapath::media::{self, Command, RouteView, Sender};
use std::net::IpAddr;
use tokio::sync::mpsc;
use trunkline_gateway::{Media, Relay};
use trunkline_overlay::wire::{Metric, NodeId};

/// The media ports of a gateway, bound at one address.
pub struct PortBoard {
    address: IpAddr,
    packets: Sender,
    tx: mpsc::Sender<Input>,
    ways: Option<RouteView>,
}

impl PortBoard {
    /// Creates a board that binds ports at `address`; reports of the packet thread go to `told`.
    pub fn new(address: IpAddr, packets: Sender, told: mpsc::Sender<Input>) -> PortBoard {
        PortBoard { address, packets, tx: told, ways: None }
    }

    /// Requests the packet thread's view of the media.
    pub fn poll(&self) {
        let told = self.tx.clone();
        let tell = move |snapshot| drop(told.try_send(Input::Media(Box::new(snapshot))));
        self.packets.send(Command::Look(Box::new(tell)));
    }

    /// Requests the current routes from the packet thread.
    pub fn look_for_ways(&self) {
        let told = self.tx.clone();
        let tell = move |ways| drop(told.try_send(Input::Ways(ways)));
        self.packets.send(Command::Routes(Box::new(tell)));
    }

    /// Stores the routes that the packet thread reported.
    pub fn see(&mut self, ways: RouteView) {
        self.ways = Some(ways);
    }
}

impl Media for PortBoard {
    fn open(&mut self, port: u16) -> bool {
        match media::bind(self.address, port) {
            Ok(sockets) => {
                self.packets.send(Command::Open { port, sockets });
                true
            }
            Err(error) => {
                tracing::debug!(%error, port, "cannot bind a media port");
                false
            }
        }
    }

    fn relay(&mut self, port: u16, relay: &Relay) {
        self.packets.send(Command::Relay { port, relay: Box::new(relay.clone()) });
    }

    fn close(&mut self, port: u16) {
        let told = self.tx.clone();
        let tell = move |counts| drop(told.try_send(Input::LegEnded(counts)));
        self.packets.send(Command::Close { port, tx: Box::new(tell) });
    }

    fn admits(&self, node: NodeId) -> bool {
        self.ways.as_ref().is_none_or(|ways| !ways.full.contains(&node))
    }

    fn local(&self, remote: IpAddr) -> Option<IpAddr> {
        addresses::towards(remote.to_canonical())
    }

    fn knows(&self, node: NodeId) -> bool {
        self.ways.as_ref().is_some_and(|ways| {
            let hop = ways.table.next_hop(node, Metric::default());
            hop.is_some_and(|hop| ways.up.contains(&hop.link))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EventFd;
    use std::sync::Arc;
    use trunkline_overlay::link::LinkId;
    use trunkline_overlay::route::ForwardingTable;

    #[test]
    fn a_node_that_only_a_dead_link_leads_to_is_not_known() {
        let (packets, _commands) = media::channel(Arc::new(EventFd::new().expect("an eventfd")));
        let (told, _inputs) = mpsc::channel(1);
        let mut board = PortBoard::new([127, 0, 0, 1].into(), packets, told);
        assert!(!board.knows(NodeId(2)), "nothing has been seen yet");
        for (up, known) in [(vec![LinkId(0)], true), (vec![], false), (vec![LinkId(1)], false)] {
            let link = Some((NodeId(2), !up.is_empty()));
            let table = Arc::new(ForwardingTable::from_static(&[], &[link]));
            board.see(RouteView { table, up, full: vec![] });
            assert_eq!((board.knows(NodeId(2)), board.knows(NodeId(3))), (known, false));
        }
    }
}
