//! Faults and other changes to wires and hosts of a running world.

use super::World;
use crate::agent::overlay::OverlayNode;
use crate::capture::{Capture, CaptureError, WireEnd};
use crate::endpoints::{HostId, Stall, WireId};
use crate::error::WorldError;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::Write;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_net::{DirectionId, NetError};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::Node;

impl World {
    /// Changes the model of the direction of `wire` that begins at `end`, from now on; see
    /// [`Impairment::change`](trunkline_base::link_model::Impairment::change).
    ///
    /// # Errors
    ///
    /// [`WorldError::Change`] if the model is invalid; then nothing has changed.
    pub fn change(
        &mut self,
        wire: WireId,
        end: WireEnd,
        model: LinkModel,
    ) -> Result<(), WorldError> {
        self.net.change(DirectionId(end.direction(wire)), model).map_err(|why| match why {
            NetError::Model(why) => WorldError::Change(wire, why),
            other => unreachable!("every wire but a cell's has models: {other}"),
        })
    }

    /// Current model of the direction of `wire` that begins at `end`.
    pub fn model(&self, wire: WireId, end: WireEnd) -> &LinkModel {
        self.net
            .model(DirectionId(end.direction(wire)))
            .expect("every wire but a cell's has models")
    }

    /// From now on, gives datagrams sent from `end` of `wire` another source port, like a NAT that
    /// has lost a mapping. Datagrams already on the wire also appear to come from the new port, as
    /// if the NAT were at the far end. Datagrams sent to the old port are lost.
    pub fn rebind(&mut self, wire: WireId, end: WireEnd) {
        let Some(ends) = self.wires[wire.0 as usize].link else { return };
        let (host, link) = ends[end.index()];
        self.places.rebind(host, link);
    }

    /// Loses everything sent from `end` of `wire` from now on, without notice to either end; the
    /// other direction stays as it is.
    pub fn blackhole(&mut self, wire: WireId, end: WireEnd) {
        let model = LinkModel { loss: Loss::EVERYTHING, ..self.model(wire, end).clone() };
        self.change(wire, end, model).expect("a valid model stays one");
    }

    /// Cuts a wire: everything sent in either direction is lost. Datagrams already on the wire
    /// arrive.
    pub fn cut(&mut self, wire: WireId) {
        self.blackhole(wire, WireEnd::First);
        self.blackhole(wire, WireEnd::Second);
    }

    /// Restores the models of both directions of `wire` to those that it was connected with.
    pub fn mend(&mut self, wire: WireId) {
        for end in [WireEnd::First, WireEnd::Second] {
            let original = self.wires[wire.0 as usize].originals[end.index()].clone();
            self.change(wire, end, original).expect("it was valid when it was connected");
        }
    }

    /// Marks the datagrams of a wire as ECN-capable (ECT(0), RFC 3168), so that a queue with
    /// [`Red::ecn`](trunkline_base::link_model::Red::ecn) marks them instead of dropping them.
    /// Marks are counted and captured, but nodes don't react to them yet.
    pub fn ecn_capable(&mut self, wire: WireId) {
        for vertex in self.wires[wire.0 as usize].vertices {
            self.places.ifaces[vertex.0 as usize].ecn_capable = true;
        }
    }

    /// Captures the traffic at an end of a wire from now on, as `tcpdump` on the host there would:
    /// pcapng with raw IPv4 packets, and nanoseconds since [`Time::ZERO`] as time. Wrap a file in a
    /// `BufWriter`, and call [`World::finish_captures`] at the end.
    ///
    /// A sent datagram that will not arrive, or is marked, has a comment (`frame.comment` in
    /// Wireshark): lost on the wire, dropped by the queue, or marked by the queue. A received
    /// datagram appears at its time of arrival. The identification field counts the datagrams in
    /// each direction, to find them again at the other end. Addresses are those that
    /// [`address`](crate::address) gives; the ends of a plain path are in 198.18.0.0/16 and
    /// 198.19.0.0/16. A packet is 20 bytes shorter than in [`World::ledgers`], which count the
    /// headers of IPv6.
    ///
    /// # Errors
    ///
    /// If `out` does not accept the beginning of the file, or an earlier capture there could not be
    /// completed.
    pub fn capture(
        &mut self,
        wire: WireId,
        end: WireEnd,
        out: impl Write + 'static,
    ) -> Result<(), CaptureError> {
        let name = match end {
            WireEnd::First => "first",
            WireEnd::Second => "second",
        };
        let what = format!("wire {}, {name} end", wire.0);
        self.net.tap_mut().capture(end.direction(wire), Capture::new(what, Box::new(out))?)
    }

    /// Ends all captures.
    ///
    /// # Errors
    ///
    /// The first write error of any capture.
    pub fn finish_captures(&mut self) -> Result<(), CaptureError> {
        self.net.tap_mut().finish_captures()
    }

    /// Ends `host`'s node and all its other agents without notice to any peer. Everything that
    /// reaches the host, or that its applications and agents send, is lost until
    /// [`World::restart`].
    pub fn crash(&mut self, host: HostId) {
        self.places.hosts[host.0 as usize].down = true;
    }

    /// Stops `host`'s node as its daemon does on SIGTERM: it says goodbye and ends when
    /// [`Node::leave`] permits. After that its state is as after [`World::crash`]; the host's other
    /// agents keep running.
    pub fn stop(&mut self, host: HostId) {
        self.call_node(host, OverlayNode::stop);
    }

    /// Gives `host` no processor time until `until`: its node, applications and other agents do
    /// nothing. Datagrams that reach it wait in the socket's buffer as far as it has room, and are
    /// then processed at once, each with its own time of arrival.
    pub fn stall(&mut self, host: HostId, until: Time) {
        let host = &mut self.places.hosts[host.0 as usize];
        host.stall = Stall { until, ..host.stall };
    }

    /// Number of datagrams lost so far because `host` was stalled and its socket's buffer was full.
    pub fn overflowed(&self, host: HostId) -> u64 {
        self.places.hosts[host.0 as usize].stall.overflowed
    }

    /// Makes the network device behind `link` of `host` take nothing from now on (`hangs`), and drop
    /// nothing either, or take everything again. What is sent to the host arrives all the while.
    pub fn hang(&mut self, host: HostId, link: LinkId, hangs: bool) {
        self.call_node(host, |node, io| node.hang(link, hangs, io));
    }

    /// Restarts `host`'s node, as if after a crash if it still runs, with the same configuration
    /// and the next incarnation. Its applications attach again at once, and notice only the losses.
    ///
    /// # Errors
    ///
    /// None that [`World::add_host`] and [`World::attach`] did not return before.
    pub fn restart(&mut self, host: HostId) -> Result<(), WorldError> {
        self.restart_ahead(host, Duration::ZERO)
    }

    /// Restarts a node as [`World::restart`] does, with a wall clock that is `ahead` of the
    /// world's. The node numbers its starts by that clock, so a later start without `ahead` may be
    /// taken for an earlier one.
    ///
    /// # Errors
    ///
    /// As [`World::restart`].
    pub fn restart_ahead(&mut self, host: HostId, ahead: Duration) -> Result<(), WorldError> {
        if self.places.hosts[host.0 as usize].node.is_none() {
            self.places.hosts[host.0 as usize].down = false;
            return Ok(());
        }
        let old = self.overlay_node(host);
        let incarnation = old.incarnation + 1;
        let config = old.config.clone();
        let seed = self.seed.wrapping_add(incarnation);
        let mut start = self.start_of(host, incarnation, seed);
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        start.incarnation.0 += ahead;
        start.unix_nanos += ahead;
        let node = Node::new(config, start).map_err(|why| WorldError::Config(host, why))?;
        self.places.hosts[host.0 as usize].down = false;
        self.call_node(host, |old, io| old.replace(node, incarnation, io))
            .map_err(|(port, refusal)| WorldError::of_session(host, port, refusal))
    }

    /// Performs an action of an operator or driver on `host`'s node, now: changes its settings,
    /// drains it, or sends an echo.
    pub fn operate<R>(&mut self, host: HostId, act: impl FnOnce(Time, &mut Node) -> R) -> R {
        self.call_node(host, |node, io| node.operate(io, act))
    }

    /// Delivers a datagram to `host`'s node, now, from an address that no host of this world has.
    pub fn inject(&mut self, host: HostId, from: SocketAddr, datagram: &mut [u8]) {
        self.call_node(host, |node, io| node.inject(from, datagram, io));
    }
}
