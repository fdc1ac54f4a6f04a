//! Counters of a node's flows.

use super::{Forwarder, Node};
use crate::link::Packet;
use crate::session::SessionId;
use crate::session::flows::{Arrival, Ends, Flow};
use core::time::Duration;
use trunkline_base::Time;

/// The ends of the flow that an arriving `packet` belongs to.
fn inward(packet: &Packet<'_>) -> Ends {
    let h = &packet.flow;
    Ends { port: h.destination_port, peer: h.source, peer_port: h.source_port }
}

/// The ends of the flow that a departing `packet` belongs to.
fn outward(packet: &Packet<'_>) -> Ends {
    let h = &packet.flow;
    Ends { port: h.source_port, peer: h.destination, peer_port: h.destination_port }
}

impl Forwarder {
    /// Counts `packet`, which is no copy and has reached its destination.
    pub(super) fn flow_received(&mut self, now: Time, packet: &Packet<'_>) {
        let (h, ends) = (&packet.flow, inward(packet));
        let arrival = Arrival {
            service: h.service,
            number: h.flow_seq,
            recovered: packet.recovered,
            remaining: packet.deadline.since(now),
            bytes: packet.payload.len(),
        };
        if self.flows.received(now, ends, &arrival) {
            self.flows.set_way(ends, self.way_to(packet));
        }
    }

    /// Records that the application did not accept `packet`.
    pub(super) fn flow_not_taken(&mut self, packet: &Packet<'_>) {
        self.flows.not_taken(inward(packet));
    }

    /// Counts `packet`, which an application sends.
    pub(super) fn flow_sent(&mut self, now: Time, packet: &Packet<'_>) {
        self.flows.sent(now, outward(packet), packet.flow.service, packet.payload.len());
    }

    /// Records that `packet` of a local application was not sent.
    pub(super) fn flow_not_sent(&mut self, packet: &Packet<'_>) {
        self.flows.not_sent(outward(packet));
    }

    /// Delay of the route to the source of `packet`. `None` without a route, before the round trip
    /// of its first link is known, or if an operator's route doesn't give the delay of the rest.
    fn way_to(&self, packet: &Packet<'_>) -> Option<Duration> {
        if packet.flow.source == self.id {
            return Some(Duration::ZERO);
        }
        let hop = self.next_hop(packet.flow.source, packet.flow.metric)?;
        let link = self.links().get(hop.link)?;
        link.monitor().rtt().get()?;
        let known = !hop.onward.is_zero() || link.config().neighbour == packet.flow.source;
        known.then(|| self.onward(Some(hop)))
    }
}

impl Node {
    /// Flows that begin or end here, with the sessions that hold their ports: those in `places`
    /// slots from `from` on, which is 0 at first, and the start of the next page. If flows begin or
    /// end meanwhile, one may be listed twice or not at all.
    pub fn flows(
        &self,
        now: Time,
        from: u64,
        places: usize,
    ) -> (Vec<(Flow, Option<SessionId>)>, Option<u64>) {
        let (flows, next) = self.forwarder.flows.page(now, from, places);
        let with_session = |flow: Flow| {
            let session = self.forwarder.sessions().holder(flow.ends.port);
            (Flow { over: flow.over || session.is_none(), ..flow }, session)
        };
        (flows.into_iter().map(with_session).collect(), next)
    }
}
