//! Flow-controlled applications: they block until the queue of a link has room, rather than lose
//! packets. The driver keeps their waiting messages; this module records which session waits for
//! which link, first come, first served.

use super::Forwarder;
use crate::link::LinkId;
use crate::session::SessionId;
use crate::wire::{NodeId, Service};
use std::collections::VecDeque;

/// Sessions that wait for links. Its memory grows only when there are more sessions than ever
/// before.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Waiting sessions of each link.
    lines: Vec<VecDeque<(SessionId, Service)>>,
    /// The link that each session waits for.
    links: Vec<Option<LinkId>>,
    /// Number of sessions that wait.
    len: usize,
}

impl Held {
    /// Lets session `id` wait for `link`, unless it is waiting already.
    fn join(&mut self, link: LinkId, id: SessionId, service: Service) {
        let (line, session) = (usize::from(link.0), id.0 as usize);
        if self.links.len() <= session {
            self.links.resize(session + 1, None);
        }
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, VecDeque::new);
        }
        if self.links[session].is_none() {
            self.links[session] = Some(link);
            self.lines[line].push_back((id, service));
            self.len += 1;
        }
    }

    /// Removes and returns the first session that waits for a link that now has room.
    fn next(&mut self, has_room: impl Fn(LinkId, Service) -> bool) -> Option<SessionId> {
        if self.len == 0 {
            return None;
        }
        let mut lines = (0..).map(LinkId).zip(&mut self.lines);
        // A session that waits for room in one service's queue doesn't block those of another
        // service.
        let (line, place) = lines.find_map(|(link, line)| {
            let place = line.iter().position(|&(_, service)| has_room(link, service))?;
            Some((line, place))
        })?;
        let (id, _) = line.remove(place)?;
        self.links[id.0 as usize] = None;
        self.len -= 1;
        Some(id)
    }

    /// Forgets session `id`, which has ended.
    pub(super) fn forget(&mut self, id: SessionId) {
        if let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::take) {
            self.lines[usize::from(link.0)].retain(|&(other, _)| other != id);
            self.len -= 1;
        }
    }
}

impl Forwarder {
    /// Whether the application of session `id` blocks until there is room for a packet of
    /// `service`.
    pub(super) fn is_flow_controlled(&self, id: SessionId, service: Service) -> bool {
        // Real-time packets cannot wait.
        service != Service::RealTime && self.sessions.waits(id)
    }

    /// Whether a packet of session `id` to `destination` has to wait because there is no room for
    /// it.
    pub(super) fn holds_back(
        &mut self,
        id: SessionId,
        service: Service,
        destination: NodeId,
    ) -> bool {
        if !self.is_flow_controlled(id, service) {
            return false;
        }
        let metric = self.sessions.metric_of(id).unwrap_or(self.metric);
        let Some(hop) = self.next_hop(destination, metric) else { return false };
        if self.links().get(hop.link).is_none_or(|link| link.has_room(service)) {
            return false;
        }
        self.held.join(hop.link, id, service);
        self.stats.flow_controlled += 1;
        true
    }

    pub(super) fn next_ready(&mut self) -> Option<SessionId> {
        let Forwarder { held, links, .. } = self;
        // A removed link has no queue to wait for.
        held.next(|link, service| links.get(link).is_none_or(|link| link.has_room(service)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::TxArena;
    use crate::link;
    use crate::node::{Changes, Config, Node, SendOutcome, Sink, Start};
    use crate::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
    use crate::wire::{Incarnation, NodeId};
    use core::net::SocketAddr;
    use trunkline_base::wire::Writer;
    use trunkline_base::{Bitrate, Time};

    #[test]
    fn each_line_goes_by_itself_in_its_order() {
        let (mut held, ids) = (Held::default(), [4, 0, 7, 2].map(SessionId));
        for (id, link) in ids.into_iter().zip([0, 0, 3, 3]) {
            held.join(LinkId(link), id, Service::BestEffort);
            // A session that waits for one link waits for no other, and only once.
            held.join(LinkId(1), id, Service::BestEffort);
        }
        assert_eq!(held.next(|link, _| link == LinkId(1)), None);
        assert_eq!(held.next(|link, _| link == LinkId(3)), Some(ids[2]));
        held.forget(ids[0]);
        held.forget(SessionId(99));
        assert_eq!(held.next(|_, _| true), Some(ids[1]));
        held.join(LinkId(3), ids[2], Service::BestEffort);
        assert_eq!([held.next(|_, _| true), held.next(|_, _| true)], [Some(ids[3]), Some(ids[2])]);
        assert_eq!((held.next(|_, _| true), held.len), (None, 0));
    }

    struct Hole;
    impl Sink for Hole {
        fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
            SendOutcome::Accepted
        }
    }

    fn say(node: &mut Node, id: SessionId, message: &ToNode<'_>, payload: &[u8]) -> SendOutcome {
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        message.emit_head(&mut w).unwrap();
        let bytes = [w.written(), payload].concat();
        node.session_recv(Time::ZERO, id, &bytes, &mut Hole)
    }

    const FAR: NodeId = NodeId(2);

    /// A node with one link at 64 kbit/s, and a blocking session there.
    fn node(address: Option<SocketAddr>) -> (Node, SessionId) {
        let mut config = Config::new(NodeId(1));
        let (mut link, rate) = (link::Config::new(FAR), Bitrate::from_bps(64_000));
        (link.address, link.rate) = (address, Some(rate));
        config.links.push(link);
        let mut node = Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap();
        let id = waiting(&mut node);
        (node, id)
    }

    fn waiting(node: &mut Node) -> SessionId {
        let id = node.session_open().unwrap();
        say(node, id, &ToNode::Bind { version: SESSION_VERSION, port: 0 }, &[]);
        say(node, id, &ToNode::Blocking(true), &[]);
        id
    }

    /// Sends packets of `service` until there is no room; returns the number accepted, of 5,000.
    fn fill(node: &mut Node, id: SessionId, service: Service, to: NodeId) -> usize {
        let send = ToNode::Send { service, deadline_ms: 255, to, port: 1, payload: &[] };
        let full = |_: &usize| say(node, id, &send, &[0; 1_000]) == SendOutcome::Accepted;
        (0..5_000).take_while(full).count()
    }

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_dropped_as_ever() {
        let (mut node, id) = node(Some(([192, 0, 2, 2], 7).into()));
        let other = waiting(&mut node);
        let fit = fill(&mut node, id, Service::BestEffort, FAR);
        assert!(fit <= 2, "{fit} packets of 134 ms, in a queue for 50 ms");
        let before = node.stats();
        assert_eq!(fill(&mut node, other, Service::BestEffort, FAR), 0, "one bound for all");
        let after = node.stats();
        // Nothing else has happened.
        assert_eq!(after.flow_controlled, before.flow_controlled + 1);
        assert_eq!(
            crate::node::ForwarderStats { flow_controlled: before.flow_controlled, ..after },
            before
        );
        assert_eq!(node.next_ready(), None);
        // Real-time packets don't wait, nor do packets without a route.
        assert_eq!(fill(&mut node, id, Service::RealTime, FAR), 5_000);
        assert_eq!(fill(&mut node, id, Service::BestEffort, NodeId(9)), 5_000);
        say(&mut node, id, &ToNode::Blocking(false), &[]);
        assert_eq!(fill(&mut node, id, Service::BestEffort, FAR), 5_000, "asks no more");
    }

    #[test]
    fn a_link_that_sends_names_who_may_go_on() {
        let (mut node, id) = node(Some(([192, 0, 2, 2], 7).into()));
        let other = waiting(&mut node);
        let mut arena = TxArena::new(64 << 10, 64);
        for (id, ms) in [(id, 0), (other, 1_000), (id, 2_000)] {
            fill(&mut node, id, Service::BestEffort, FAR);
            assert_eq!(node.next_ready(), None);
            for at in ms..ms + 1_000 {
                node.transmit(Time::from_millis(at), &mut arena);
                arena.clear();
            }
            assert_eq!([node.next_ready(), node.next_ready()], [Some(id), None]);
        }
    }

    #[test]
    fn nobody_waits_for_a_link_that_is_gone_or_leads_nowhere() {
        let (mut unknown, id) = node(None);
        assert_eq!(fill(&mut unknown, id, Service::BestEffort, FAR), 5_000, "dropped, and counted");
        let (mut node, id) = node(Some(([192, 0, 2, 2], 7).into()));
        fill(&mut node, id, Service::BestEffort, FAR);
        assert_eq!(node.next_ready(), None);
        let name = (FAR, String::new());
        node.reconfigure(Time::ZERO, &Changes { removed: vec![name], ..Changes::default() });
        assert_eq!(node.next_ready(), Some(id));
    }
}
