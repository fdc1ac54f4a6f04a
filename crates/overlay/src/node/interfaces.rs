//! The interfaces that uplinks leave by, as the driver numbers them. What is behind an interface is
//! shared by all links there, whichever uplinks they have: transfers yield to calls of each other.

use trunkline_base::Time;

/// Times until which calls count as leaving by interfaces. Only those of the last seconds are kept.
#[derive(Debug)]
pub(super) struct CallTimes(Vec<(u32, Time)>);

impl CallTimes {
    pub(super) fn new() -> CallTimes {
        CallTimes(Vec::with_capacity(8))
    }

    /// Counts calls by an interface until a time.
    pub(super) fn note(&mut self, now: Time, interface: u32, until: Time) {
        if until <= now {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == interface) {
            Some((_, known)) => *known = until.max(*known),
            None => {
                self.0.retain(|(_, until)| *until > now);
                self.0.push((interface, until));
            }
        }
    }

    /// Time until which calls count as leaving by an interface.
    pub(super) fn of(&self, interface: u32) -> Time {
        let known = self.0.iter().find(|(known, _)| *known == interface);
        known.map_or(Time::ZERO, |(_, until)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{TxArena, UplinkId};
    use crate::link::{self, LinkId};
    use crate::node::{Config, Node, SendOutcome, Sink, Start};
    use crate::session::SessionId;
    use crate::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
    use crate::wire::{Incarnation, NodeId, Service};
    use core::net::SocketAddr;
    use core::time::Duration;
    use trunkline_base::wire::Writer;

    #[test]
    fn calls_are_forgotten_after_a_while() {
        let (mut calls, at) = (CallTimes::new(), Time::from_millis);
        for interface in 1..1_000 {
            let now = at(1_000 * u64::from(interface));
            calls.note(now, interface, now + Duration::from_secs(10));
            calls.note(now, interface, now + Duration::from_secs(5));
            assert_eq!(calls.of(interface), now + Duration::from_secs(10));
            assert!(calls.0.len() <= 10);
        }
        assert_eq!(calls.of(1), Time::ZERO);
    }

    struct Hole;
    impl Sink for Hole {
        fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
            SendOutcome::Accepted
        }
    }

    fn say(node: &mut Node, at: Time, id: SessionId, message: &ToNode<'_>) {
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        message.emit_head(&mut w).unwrap();
        node.session_recv(at, id, &[w.written(), &[0; 100]].concat(), &mut Hole);
    }

    /// A socket of its own keeps a link's packets from those of others only within this machine.
    #[test]
    fn transfers_yield_to_calls_by_other_uplinks_of_their_interface() {
        let mut config = Config::new(NodeId(1));
        config.links = [2, 3, 4].map(|id| link::Config::new(NodeId(id))).into();
        for (link, host) in config.links.iter_mut().zip(2..) {
            link.address = Some(SocketAddr::from(([192, 0, 2, host], 7)));
        }
        let start = Start::simulated(Time::ZERO, Incarnation(1), 1);
        let mut node = Node::new(config, start).unwrap();
        for (link, interface) in [(0, 5), (1, 5), (2, 6)] {
            node.set_uplink(LinkId(link), UplinkId(link + 1), Some(interface));
        }
        let (id, at) = (node.session_open().unwrap(), Time::from_millis(1_000));
        let mut arena = TxArena::new(64 << 10, 64);
        let mut send = |node: &mut Node, at, to, service| {
            let send =
                ToNode::Send { service, deadline_ms: 255, to: NodeId(to), port: 1, payload: &[] };
            say(node, at, id, &send);
            arena.clear();
            node.transmit(at, &mut arena);
        };
        say(&mut node, at, id, &ToNode::Bind { version: SESSION_VERSION, port: 0 });
        send(&mut node, at, 2, Service::RealTime);
        send(&mut node, at, 3, Service::BestEffort);
        send(&mut node, at, 4, Service::BestEffort);
        let yields = |node: &Node, link| node.link(LinkId(link)).unwrap().yields_to_calls(at);
        assert_eq!([1, 2].map(|link| yields(&node, link)), [true, false]);
        // It moves to the other interface, without the calls.
        node.set_uplink(LinkId(1), UplinkId(2), Some(6));
        send(&mut node, at, 3, Service::BestEffort);
        send(&mut node, at, 4, Service::BestEffort);
        assert_eq!([1, 2].map(|link| yields(&node, link)), [false, false]);
    }
}
