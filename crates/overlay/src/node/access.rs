//! Access rules: which nodes may bind here, send from here, reach local applications, and pass
//! through.
//!
//! Rules about other nodes go by the source in a packet's header, which every member of the overlay
//! can write at will: they keep out mistakes and unknown peers, not a member that lies
//! (docs/threat-model.md).

use crate::counters::DropReason;
use crate::session::Client;
use crate::session::wire::RefusalReason;
use crate::wire::NodeId;
use core::ops::RangeInclusive;

/// A set of nodes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum Nodes {
    /// Includes every node there is.
    #[default]
    All,
    /// Only these nodes, sorted; an empty list includes none.
    Only(Box<[NodeId]>),
}

impl Nodes {
    /// The set that consists of these nodes.
    pub fn only(nodes: impl IntoIterator<Item = NodeId>) -> Nodes {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_unstable();
        nodes.dedup();
        Nodes::Only(nodes.into())
    }

    /// Whether the set includes `node`.
    pub fn has(&self, node: NodeId) -> bool {
        match self {
            Nodes::All => true,
            Nodes::Only(nodes) => nodes.binary_search(&node).is_ok(),
        }
    }
}

/// Permissions of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Virtual ports that the application may bind.
    pub bind: Box<[RangeInclusive<u16>]>,
    /// Nodes that the application may send to.
    pub to: Nodes,
}

impl Default for Rights {
    /// Permission to bind every port and send to every node.
    fn default() -> Rights {
        Rights { bind: [0..=u16::MAX].into(), to: Nodes::All }
    }
}

impl Rights {
    /// For an application that may not bind every port: the first port of its ranges for which
    /// `is_free` is true, if any. `None` if it may bind every port, and so gets a dynamic one.
    pub(crate) fn any_port(&self, is_free: impl Fn(u16) -> bool) -> Option<Option<u16>> {
        if self.bind.contains(&(0..=u16::MAX)) {
            return None;
        }
        Some(self.bind.iter().cloned().flatten().find(|&port| port != 0 && is_free(port)))
    }

    /// Whether `port` may be bound. Port 0 requests any port; the port that is chosen for it is
    /// checked by its number.
    pub(crate) fn check_bind(&self, port: u16) -> Result<(), RefusalReason> {
        let ok = port == 0 || self.bind.iter().any(|range| range.contains(&port));
        if ok { Ok(()) } else { Err(RefusalReason::Forbidden) }
    }
}

/// Access rules of a node.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Access {
    /// Sources of packets that may pass through. A node that restricts this advertises that others
    /// should route around it.
    pub transit: Nodes,
    /// Sources of packets that applications at this node may receive.
    pub from: Nodes,
    /// Rights of the applications on this machine.
    pub local: Rights,
    /// Rights of clients that authenticate.
    pub clients: Vec<Rights>,
}

impl Access {
    /// The rights of `client`; `None` if there is no such client.
    pub(crate) fn rights(&self, client: Client) -> Option<&Rights> {
        match client {
            Client::Local | Client::Gateway => Some(&self.local),
            Client::Known(i) => self.clients.get(usize::from(i)),
        }
    }

    pub(crate) fn check_transit(&self, source: NodeId) -> Result<(), DropReason> {
        if self.transit.has(source) { Ok(()) } else { Err(DropReason::Forbidden) }
    }

    pub(crate) fn check_from(&self, source: NodeId) -> Result<(), DropReason> {
        if self.from.has(source) { Ok(()) } else { Err(DropReason::Forbidden) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::RxDatagram;
    use crate::link;
    use crate::node::{Changes, Config, Node, SendOutcome, Sink, Start};
    use crate::session::SessionId;
    use crate::session::wire::{SESSION_VERSION, ToClient, ToNode};
    use crate::wire::{
        DATA_OVERHEAD, DataHeader, FlowHeader, HopHeader, Incarnation, Null, ReceiverIndex, Seal,
        Service,
    };
    use trunkline_base::Time;
    use trunkline_base::wire::Writer;

    #[test]
    fn sets_and_ranges() {
        let some = Nodes::only([NodeId(7), NodeId(3), NodeId(7)]);
        assert_eq!([3, 5, 7].map(|n| some.has(NodeId(n))), [true, false, true]);
        assert!(Nodes::All.has(NodeId(5)) && !Nodes::only([]).has(NodeId(5)));
        let rights = Rights { bind: [10..=19, 30..=30].into(), to: Nodes::All };
        let ok = |port| rights.check_bind(port).is_ok();
        assert_eq!([9, 10, 19, 20, 30].map(ok), [false, true, true, false, true]);
    }

    struct Heard(Vec<ToClient<'static>>);
    impl Sink for Heard {
        fn deliver(&mut self, _: SessionId, head: &[u8], _: &[u8]) -> SendOutcome {
            match ToClient::parse(head).unwrap() {
                ToClient::Error { refusal, node, port } => {
                    self.0.push(ToClient::Error { refusal, node, port });
                }
                ToClient::Bound { node, port, max_payload } => {
                    self.0.push(ToClient::Bound { node, port, max_payload });
                }
                _ => {}
            }
            SendOutcome::Accepted
        }
    }

    /// Only the node's own applications are exempt: a neighbour that writes this node's id into a
    /// packet is not one of them.
    #[test]
    fn who_says_it_is_the_node_itself_is_not_believed() {
        let mut config = Config::new(NodeId(1));
        config.links.push(link::Config::new(NodeId(2)));
        config.access.from = Nodes::only([]);
        let start = Start::simulated(Time::ZERO, Incarnation(1), 1);
        let mut node = Node::new(config, start).unwrap();
        let id = node.session_open().unwrap();
        let mut bind = [0; 16];
        let mut w = Writer::new(&mut bind);
        ToNode::Bind { version: SESSION_VERSION, port: 10 }.emit_head(&mut w).unwrap();
        node.session_recv(Time::ZERO, id, w.written(), &mut Heard(Vec::new()));

        let index = ReceiverIndex::derived(NodeId(2), NodeId(1), "");
        let mut seal = Seal::Null(Null::new(index, Incarnation(1)));
        for source in [2, 1] {
            let header = DataHeader {
                flow: FlowHeader {
                    service: Service::BestEffort,
                    metric: crate::wire::Metric::default(),
                    source: NodeId(source),
                    destination: NodeId(1),
                    source_port: 10,
                    destination_port: 10,
                    flow_seq: 0,
                },
                hop: HopHeader { recovered: false, hop_limit: 9, link_seq: 0, remaining_ms: 100 },
            };
            let mut envelope = [0; DATA_OVERHEAD];
            header.emit(0, &mut Writer::new(Seal::frames_mut(&mut envelope))).unwrap();
            assert!(seal.seal(&mut envelope));
            let (at, from) = (Time::ZERO, ([192, 0, 2, 2], 7_000).into());
            let mut batch = [RxDatagram { at, from, local: None, bytes: &mut envelope }];
            node.recv(at, &mut batch, &mut Heard(Vec::new()));
        }
        let drops = node.stats().drops;
        assert_eq!((drops.get(DropReason::Forbidden), drops.get(DropReason::Bounced)), (1, 1));
        assert_eq!(node.stats().to_sessions, 0);
    }

    /// An application that may bind ports 10 to 11 and send to node 1.
    #[test]
    fn a_client_has_its_rights_and_no_more() {
        let mut config = Config::new(NodeId(1));
        config.access.clients =
            vec![Rights { bind: [10..=11].into(), to: Nodes::only([NodeId(1)]) }];
        let start = Start::simulated(Time::ZERO, Incarnation(1), 1);
        let mut node = Node::new(config, start).unwrap();
        let mut say = |client: Client, bind: u16, to: u32| {
            let id = node.session_open_for(client).unwrap();
            let mut heard = Heard(Vec::new());
            let version = SESSION_VERSION;
            let send = ToNode::Send {
                service: Service::RealTime,
                deadline_ms: 100,
                to: NodeId(to),
                port: 10,
                payload: &[],
            };
            for message in [ToNode::Bind { version, port: bind }, send] {
                let mut head = [0; 16];
                let mut w = Writer::new(&mut head);
                message.emit_head(&mut w).unwrap();
                node.session_recv(Time::ZERO, id, w.written(), &mut heard);
            }
            heard.0
        };
        let refused = |node, port| ToClient::Error {
            refusal: RefusalReason::Forbidden,
            node: NodeId(node),
            port,
        };
        let known = Client::Known(0);
        assert_eq!(say(known, 12, 1)[0], refused(0, 12));
        assert!(matches!(say(known, 0, 1)[..], [ToClient::Bound { port: 10, .. }]));
        let far = say(known, 0, 2);
        assert!(matches!(far[0], ToClient::Bound { port: 11, .. }));
        assert_eq!(far[1], refused(2, 10));
        assert!(matches!(
            say(known, 0, 1)[0],
            ToClient::Error { refusal: RefusalReason::NoFreePort, .. }
        ));
        assert_eq!(say(Client::Known(1), 0, 1)[0], refused(0, 0), "there is no such client");
        assert!(matches!(say(Client::Local, 12, 1)[0], ToClient::Bound { port: 12, .. }));
    }

    /// The rules for clients in [`Changes`] hold for sessions that are open, too.
    #[test]
    fn a_client_s_rights_change_at_once() {
        let rights = |to: u32| Rights { bind: [10..=11].into(), to: Nodes::only([NodeId(to)]) };
        let mut config = Config::new(NodeId(1));
        config.access.clients = vec![rights(1)];
        let start = Start::simulated(Time::ZERO, Incarnation(1), 1);
        let mut node = Node::new(config.clone(), start).unwrap();
        let mut change = |clients: Vec<Rights>| {
            let access = Some(Access { clients, ..config.access.clone() });
            node.reconfigure(Time::ZERO, &Changes { access, ..Changes::default() });
            let rights = node.forwarder.access.rights(Client::Known(0)).unwrap();
            (rights.to.has(NodeId(1)), rights.to.has(NodeId(2)))
        };
        assert_eq!(change(vec![rights(2)]), (false, true));
        assert_eq!(change(vec![rights(1), rights(1)]), (false, true), "other clients");
    }
}
