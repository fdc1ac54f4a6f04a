//! What happens to a world's wires and hosts while it runs.

use super::World;
use crate::agent::overlay::OverlayNode;
use crate::capture::{Capture, CaptureError, WireEnd};
use crate::error::WorldError;
use crate::places::{HostId, Stall, WireId};
use core::net::SocketAddr;
use core::time::Duration;
use std::io::Write;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_net::{DirectionId, NetError};
use trunkline_overlay::node::Node;

impl World {
    /// Gives the direction of `wire` that begins at `end` another model, from
    /// now on; see [`Impairment::change`](trunkline_base::link_model::Impairment::change).
    ///
    /// # Errors
    ///
    /// [`WorldError::Change`] if the model is invalid; then nothing has
    /// changed.
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

    /// What the direction of `wire` that begins at `end` does now.
    pub fn model(&self, wire: WireId, end: WireEnd) -> &LinkModel {
        self.net
            .model(DirectionId(end.direction(wire)))
            .expect("every wire but a cell's has models")
    }

    /// Gives what is sent from `end` of `wire` another source port, from now on, as
    /// a NAT does that has forgotten a mapping: what is on the wire seems to come
    /// from there, too, as if the NAT were at the far end. What is sent to the port
    /// before reaches nobody.
    pub fn rebind(&mut self, wire: WireId, end: WireEnd) {
        let Some(ends) = self.wires[wire.0 as usize].link else { return };
        let (host, link) = ends[end.index()];
        self.places.rebind(host, link);
    }

    /// From now on loses everything that is sent from `end` of `wire`; the
    /// other direction stays as it is. Nobody is told.
    pub fn blackhole(&mut self, wire: WireId, end: WireEnd) {
        let model = LinkModel { loss: Loss::EVERYTHING, ..self.model(wire, end).clone() };
        self.change(wire, end, model).expect("a valid model stays one");
    }

    /// Cuts a wire: loses everything in both directions. What is on it arrives.
    pub fn cut(&mut self, wire: WireId) {
        self.blackhole(wire, WireEnd::First);
        self.blackhole(wire, WireEnd::Second);
    }

    /// Gives both directions of `wire` the models that it was connected with.
    pub fn mend(&mut self, wire: WireId) {
        for end in [WireEnd::First, WireEnd::Second] {
            let original = self.wires[wire.0 as usize].originals[end.index()].clone();
            self.change(wire, end, original).expect("it was valid when it was connected");
        }
    }

    /// Lets the datagrams of a wire say that their senders mind marks (ECT(0),
    /// RFC 3168), so that a queue with
    /// [`Red::ecn`](trunkline_base::link_model::Red::ecn) marks them instead of
    /// dropping them. Marks are counted and captured; no node looks at them
    /// yet.
    pub fn ecn_capable(&mut self, wire: WireId) {
        for vertex in self.wires[wire.0 as usize].vertices {
            self.places.ifaces[vertex.0 as usize].ecn_capable = true;
        }
    }

    /// Records from now on what passes an end of a wire, as `tcpdump` on the
    /// host there would: pcapng with raw IPv4 packets, nanoseconds since
    /// [`Time::ZERO`] as time. Wrap a file in a `BufWriter`, and call
    /// [`World::finish_captures`] at the end.
    ///
    /// What is sent has, if it will not arrive or is marked, a comment that
    /// says so (`frame.comment` in Wireshark): lost on the wire, dropped by
    /// the queue, marked by the queue. What is received comes when it arrives.
    /// The identification field counts the datagrams in each direction, so that
    /// one is found again at the other end. The addresses are those that
    /// [`address`](crate::address) gives; the ends of a plain path have 198.18.0.0/16 and
    /// 198.19.0.0/16. A packet is 20 bytes shorter than in
    /// [`World::ledgers`], which count the headers of IPv6.
    ///
    /// # Errors
    ///
    /// If `out` does not take the beginning of the file, or a capture there
    /// before could not be written to its end.
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
    /// The first thing that could not be written.
    pub fn finish_captures(&mut self) -> Result<(), CaptureError> {
        self.net.tap_mut().finish_captures()
    }

    /// Ends `host` without a word to anyone, its node and all other agents. What
    /// reaches the host from now on, or its applications and agents send, is
    /// lost, until [`World::restart`].
    pub fn crash(&mut self, host: HostId) {
        self.places.hosts[host.0 as usize].down = true;
    }

    /// Stops `host`'s node as its daemon does on SIGTERM: it says goodbye, ends
    /// when [`Node::leave`] permits, and from then on is as after
    /// [`World::crash`]; other agents of the host stay.
    pub fn stop(&mut self, host: HostId) {
        self.call_node(host, OverlayNode::stop);
    }

    /// Gives `host` no processor time until `until`: neither its node nor its
    /// applications nor any other agent there do anything. Datagrams that reach it wait in the socket's
    /// buffer, as far as that goes, and are then all there at once, each with the
    /// time at which it came.
    pub fn stall(&mut self, host: HostId, until: Time) {
        let host = &mut self.places.hosts[host.0 as usize];
        host.stall = Stall { until, ..host.stall };
    }

    /// Datagrams lost so far because `host` was stalled for so long that its
    /// socket's buffer was full.
    pub fn overflowed(&self, host: HostId) -> u64 {
        self.places.hosts[host.0 as usize].stall.overflowed
    }

    /// Ends `host`'s node as a crash would, if it still runs, and starts a new
    /// one with the same configuration and the next incarnation. Its
    /// applications attach again at once and notice nothing but what is lost.
    ///
    /// # Errors
    ///
    /// None that [`World::add_host`] and [`World::attach`] did not give before.
    pub fn restart(&mut self, host: HostId) -> Result<(), WorldError> {
        self.restart_ahead(host, Duration::ZERO)
    }

    /// As [`World::restart`], with a wall clock that is `ahead` of the world's, by
    /// which the node numbers its starts: a later one without may so be taken for
    /// an earlier.
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

    /// Does to `host`'s node, now, what its operator or driver might: changes
    /// its settings, drains it, sends an echo.
    pub fn operate<R>(&mut self, host: HostId, act: impl FnOnce(Time, &mut Node) -> R) -> R {
        self.call_node(host, |node, io| node.operate(io, act))
    }

    /// Lets `host`'s node receive a datagram, now, from an address that no host of this
    /// world has.
    pub fn inject(&mut self, host: HostId, from: SocketAddr, datagram: &mut [u8]) {
        self.call_node(host, |node, io| node.inject(from, datagram, io));
    }
}
