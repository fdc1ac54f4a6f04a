use crate::app::{AppId, Application, Outbox};
use crate::capture::{Capture, CaptureError, WireEnd};
use crate::error::WorldError;
use crate::host::{AppSlot, Apps, Host, Place, SOCKET_BUFFER, Stall};
use crate::network::{Direction, End, HostId, Network, WireId, address, locate, split_plain};
use crate::queue::Event;
use core::any::Any;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::Write;
use trunkline_base::Time;
use trunkline_base::link_model::{Impairment, InvalidModel, Ledger, LinkModel, Loss};
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Drained, Node, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

/// A network of hosts, wires and applications, and its clock.
///
/// Building is usually left to [`Topology`](crate::Topology). Then attach
/// applications, [`run_until`](World::run_until) some time, and look at the
/// applications, nodes and wires.
pub struct World {
    seed: u64,
    now: Time,
    net: Network,
    hosts: Vec<Host>,
    apps: Apps,
    arena: TxArena,
    outbox: Outbox,
    /// Empty; swapped with `outbox` while that is worked off.
    spare: Outbox,
    misdirected: u64,
}

/// One end of a plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainEnd {
    /// The direction that starts here.
    direction: u32,
}

impl PlainEnd {
    /// The wire of which this is an end.
    pub fn wire(self) -> WireId {
        WireId(self.direction / 2)
    }
}

/// The bit that [`World::rebind`] turns in a port; a host has fewer links.
const NAT: u16 = 1 << 15;

/// Who a plain datagram is from, as far as nodes go.
const NO_NODE: NodeId = NodeId(0);

impl World {
    /// An empty world at [`Time::ZERO`]. Everything random in it (losses,
    /// jitter, the nodes' choices) follows from `seed`.
    pub fn new(seed: u64) -> World {
        World {
            seed,
            now: Time::ZERO,
            net: Network::default(),
            hosts: Vec::new(),
            apps: Apps::default(),
            arena: TxArena::new(64 << 10, 64),
            outbox: Outbox::default(),
            spare: Outbox::default(),
            misdirected: 0,
        }
    }

    /// A host whose node starts now. The addresses in `config` must be those
    /// that [`address`] gives to the other ends.
    ///
    /// # Errors
    ///
    /// [`WorldError::Config`] if the node refuses its configuration.
    pub fn add_host(&mut self, config: Config) -> Result<HostId, WorldError> {
        let id = HostId(self.hosts.len() as u32);
        let node = Node::new(config.clone(), self.start_of(id, 1, self.seed))
            .map_err(|why| WorldError::Config(id, why))?;
        self.hosts.push(Host::new(config, node));
        self.drain(id.0);
        Ok(id)
    }

    /// A wire between the first links of `a` and `b` that lead to each other,
    /// have the same path label and are not connected yet.
    ///
    /// # Errors
    ///
    /// If there are no such links, one has a wrong address, or a model is
    /// invalid.
    pub fn connect(
        &mut self,
        a: HostId,
        b: HostId,
        ab: LinkModel,
        ba: LinkModel,
    ) -> Result<WireId, WorldError> {
        let link_a = self.free_link(a, b, None)?;
        let path = &self.hosts[a.0 as usize].config.links[usize::from(link_a)].path;
        let link_b = self.free_link(b, a, Some(path))?;
        let (at_a, at_b) = (address(a, link_a), address(b, link_b));
        self.check_address(a, link_a, b, at_b)?;
        self.check_address(b, link_b, a, at_a)?;
        let to_b = End::Host { host: b.0, sender: a.0, from: at_a };
        let to_a = End::Host { host: a.0, sender: b.0, from: at_b };
        let wire = self
            .add_wire([(ab, to_b), (ba, to_a)], None)
            .map_err(|why| WorldError::Model(a, b, why))?;
        self.hosts[b.0 as usize].incoming[usize::from(link_b)] = Some(2 * wire.0);
        self.hosts[a.0 as usize].incoming[usize::from(link_a)] = Some(2 * wire.0 + 1);
        Ok(wire)
    }

    /// A path without an overlay, for applications on plain UDP. With
    /// `beside`, it has the same loss and jitter processes as that wire, so
    /// that both meet the same luck as far as their models are alike.
    ///
    /// # Errors
    ///
    /// [`WorldError::PlainModel`].
    pub fn plain_path(
        &mut self,
        ab: LinkModel,
        ba: LinkModel,
        beside: Option<WireId>,
    ) -> Result<(PlainEnd, PlainEnd), WorldError> {
        let end = || End::Plain { ports: Vec::new() };
        let wire =
            self.add_wire([(ab, end()), (ba, end())], beside).map_err(WorldError::PlainModel)?;
        Ok((PlainEnd { direction: 2 * wire.0 }, PlainEnd { direction: 2 * wire.0 + 1 }))
    }

    fn add_wire(
        &mut self,
        directions: [(LinkModel, End); 2],
        beside: Option<WireId>,
    ) -> Result<WireId, InvalidModel> {
        let first = self.net.directions.len();
        let stream = beside.map_or(first as u64, |w| self.direction(w, 0).stream);
        let mut made = Vec::with_capacity(2);
        for ((model, to), stream) in directions.into_iter().zip(stream..) {
            let impairment = Impairment::new(model, self.seed, stream)?;
            made.push(Direction::new(impairment, stream, to));
        }
        self.net.directions.append(&mut made);
        Ok(WireId(first as u32 / 2))
    }

    fn free_link(&self, at: HostId, to: HostId, path: Option<&String>) -> Result<u16, WorldError> {
        let host = &self.hosts[at.0 as usize];
        let neighbour = self.hosts[to.0 as usize].config.id;
        let fits = |l: &link::Config| l.neighbour == neighbour && path.is_none_or(|p| *p == l.path);
        let mut ends = host.config.links.iter().zip(&host.incoming);
        let found = ends.position(|(l, incoming)| fits(l) && incoming.is_none());
        // The number of links was checked with the configuration.
        found.map(|i| i as u16).ok_or(WorldError::NoLink(at, to))
    }

    fn check_address(
        &self,
        at: HostId,
        link: u16,
        to: HostId,
        expected: SocketAddr,
    ) -> Result<(), WorldError> {
        let configured = self.hosts[at.0 as usize].config.links[usize::from(link)].address;
        // An end without an address learns it from the first envelope.
        match configured.is_none_or(|a| a == expected) {
            true => Ok(()),
            false => Err(WorldError::Address(at, to)),
        }
    }

    /// Gives the direction of `wire` that begins at `end` another model, from
    /// now on; see [`Impairment::change`].
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
        let direction = &mut self.net.directions[end.direction(wire) as usize];
        direction.impairment.change(model).map_err(|why| WorldError::Change(wire, why))
    }

    /// What the direction of `wire` that begins at `end` does now.
    pub fn model(&self, wire: WireId, end: WireEnd) -> &LinkModel {
        self.net.directions[end.direction(wire) as usize].impairment.model()
    }

    /// Gives what is sent from `end` of `wire` another source port, from now on, as
    /// a NAT does that has forgotten a mapping. What is sent to the port before
    /// reaches nobody.
    pub fn rebind(&mut self, wire: WireId, end: WireEnd) {
        let direction = &mut self.net.directions[end.direction(wire) as usize];
        if let End::Host { from, .. } = &mut direction.to {
            from.set_port(from.port() ^ NAT);
        }
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
            let original = self.net.directions[end.direction(wire) as usize].original.clone();
            self.change(wire, end, original).expect("it was valid when it was connected");
        }
    }

    /// Lets the datagrams of a wire say that their senders mind marks (ECT(0),
    /// RFC 3168), so that a queue with
    /// [`Red::ecn`](trunkline_base::link_model::Red::ecn) marks them instead of
    /// dropping them. Marks are counted and captured; no node looks at them
    /// yet.
    pub fn ecn_capable(&mut self, wire: WireId) {
        for end in [WireEnd::First, WireEnd::Second] {
            self.net.directions[end.direction(wire) as usize].ecn_capable = true;
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
    /// [`address`] gives; the ends of a plain path have 198.18.0.0/16 and
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
        self.net.capture(end.direction(wire), Capture::new(what, Box::new(out))?)
    }

    /// Ends all captures.
    ///
    /// # Errors
    ///
    /// The first thing that could not be written.
    pub fn finish_captures(&mut self) -> Result<(), CaptureError> {
        self.net.finish_captures()
    }

    /// Attaches an application to `host` through a session of its own, bound
    /// to the virtual port `port` (0 for any free one), and starts it.
    ///
    /// # Errors
    ///
    /// If the node has no session left or refuses the port.
    pub fn attach<A: Application>(
        &mut self,
        host: HostId,
        port: u16,
        app: A,
    ) -> Result<AppId<A>, WorldError> {
        let index = self.apps.0.len() as u32;
        let (session, port) = self.open(host, index, port)?;
        let place = Place::Session { host: host.0, session };
        self.apps.0.push(AppSlot::new(Box::new(app), place, port));
        self.start(index);
        Ok(AppId::new(index))
    }

    fn open(&mut self, host: HostId, app: u32, port: u16) -> Result<(SessionId, u16), WorldError> {
        self.hosts[host.0 as usize].open(self.now, app, port).map_err(|refusal| match refusal {
            None => WorldError::Sessions(host),
            Some(refusal) => WorldError::Refused(host, port, refusal),
        })
    }

    /// Attaches an application to an end of a plain path and starts it.
    ///
    /// # Errors
    ///
    /// [`WorldError::PlainPort`].
    pub fn attach_plain<A: Application>(
        &mut self,
        end: PlainEnd,
        port: u16,
        app: A,
    ) -> Result<AppId<A>, WorldError> {
        let index = self.apps.0.len() as u32;
        // What the other direction brings ends here.
        let End::Plain { ports } = &mut self.net.directions[end.direction as usize ^ 1].to else {
            unreachable!("a PlainEnd is an end of a plain path");
        };
        if ports.iter().any(|&(p, _)| p == port) {
            return Err(WorldError::PlainPort(port));
        }
        ports.push((port, index));
        let place = Place::Plain { direction: end.direction };
        self.apps.0.push(AppSlot::new(Box::new(app), place, port));
        self.start(index);
        Ok(AppId::new(index))
    }

    fn start(&mut self, app: u32) {
        self.apps.call(self.now, app, &mut self.outbox, &mut self.net.queue, |a, io| a.start(io));
        self.settle(app);
    }

    /// Ends `host`'s node without a word to anyone. What reaches the host from
    /// now on, or its applications send, is lost, until [`World::restart`].
    pub fn crash(&mut self, host: HostId) {
        self.hosts[host.0 as usize].down = true;
    }

    /// Stops `host`'s node as its daemon does on SIGTERM: it says goodbye, ends
    /// when [`Node::leave`] permits, and from then on is as after
    /// [`World::crash`].
    pub fn stop(&mut self, host: HostId) {
        let until = self.operate(host, |now, node| node.leave(now));
        self.hosts[host.0 as usize].ends = Some(until);
        self.net.queue.push(until, Event::End(host.0));
    }

    /// Gives `host` no processor time until `until`: neither its node nor its
    /// applications do anything. Datagrams that reach it wait in the socket's
    /// buffer, as far as that goes, and are then all there at once, each with the
    /// time at which it came.
    pub fn stall(&mut self, host: HostId, until: Time) {
        let host = &mut self.hosts[host.0 as usize];
        host.stall = Stall { until, ..host.stall };
    }

    /// Datagrams lost so far because `host` was stalled for so long that its
    /// socket's buffer was full.
    pub fn overflowed(&self, host: HostId) -> u64 {
        self.hosts[host.0 as usize].stall.overflowed
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
        let old = &self.hosts[host.0 as usize];
        let incarnation = old.incarnation + 1;
        let config = old.config.clone();
        let seed = self.seed.wrapping_add(incarnation);
        let mut start = self.start_of(host, incarnation, seed);
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        start.incarnation.0 += ahead;
        start.unix_nanos += ahead;
        let node = Node::new(config, start).map_err(|why| WorldError::Config(host, why))?;
        self.hosts[host.0 as usize].replace(node, incarnation);
        for app in 0..self.apps.0.len() {
            let Place::Session { host: at, .. } = self.apps.0[app].place else { continue };
            if at == host.0 {
                let (session, _) = self.open(host, app as u32, self.apps.0[app].port)?;
                self.apps.0[app].place = Place::Session { host: at, session };
            }
        }
        self.drain(host.0);
        Ok(())
    }

    /// A start of `host`'s node now. Nodes share the seed, which the forwarder
    /// mixes with their ids; their keys must have nothing in common.
    fn start_of(&self, host: HostId, incarnation: u64, seed: u64) -> Start {
        let secret = seed ^ ((u64::from(host.0) + 1) << 32);
        // A daemon's are nanoseconds: however often a node counts them up, for a
        // link that takes another's place, it gets nowhere near its next start.
        let incarnation = Incarnation(1 + ((incarnation - 1) << 32));
        let Start { entropy, .. } = Start::simulated(self.now, incarnation, secret);
        Start { entropy, ..Start::simulated(self.now, incarnation, seed) }
    }

    /// Does to `host`'s node, now, what its operator or driver might: changes
    /// its settings, drains it, sends an echo.
    pub fn operate<R>(&mut self, host: HostId, act: impl FnOnce(Time, &mut Node) -> R) -> R {
        let done = act(self.now, &mut self.hosts[host.0 as usize].node);
        self.drain(host.0);
        done
    }

    /// Lets everything happen up to and with `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some((at, event)) = self.net.queue.pop_until(end) {
            self.now = at;
            if self.postpone(event) {
                continue;
            }
            match event {
                Event::Arrival { at, direction, buffer } => {
                    self.arrive(at, direction, buffer);
                    self.net.pool.release(buffer);
                }
                Event::Host(host) => {
                    self.hosts[host as usize].woken(at);
                    self.drain(host);
                }
                Event::End(host) => self.hosts[host as usize].end(at),
                Event::App { app, generation } => {
                    if self.apps.expects(app, generation) {
                        let (outbox, queue) = (&mut self.outbox, &mut self.net.queue);
                        self.apps.call(at, app, outbox, queue, |a, io| a.wake(io));
                        self.settle(app);
                    }
                }
            }
        }
        self.now = self.now.max(end);
    }

    /// Puts off what happens on a host that is stalled; whether it is.
    fn postpone(&mut self, event: Event) -> bool {
        let host = match event {
            Event::Arrival { direction, .. } => match self.net.directions[direction as usize].to {
                End::Host { host, .. } => host,
                End::Plain { .. } => return false,
            },
            Event::Host(host) | Event::End(host) => host,
            Event::App { app, .. } => match self.apps.0[app as usize].place {
                Place::Session { host, .. } => host,
                Place::Plain { .. } => return false,
            },
        };
        let stall = &mut self.hosts[host as usize].stall;
        if self.now >= stall.until {
            stall.waiting = 0;
            return false;
        }
        // As the daemon: all that is there is heard before any timer is looked at.
        let mut again = stall.until + Duration::from_nanos(1);
        if let Event::Arrival { buffer, .. } = event {
            again = stall.until;
            if stall.waiting == SOCKET_BUFFER {
                stall.overflowed += 1;
                self.net.pool.release(buffer);
                return true;
            }
            stall.waiting += 1;
        }
        self.net.queue.push(again, event);
        true
    }

    /// Hands over a datagram that came at `at`, by the kernel's stamp: before now
    /// if its host was stalled.
    fn arrive(&mut self, at: Time, direction: u32, buffer: u32) {
        let now = self.now;
        self.net.arrived(now, direction, buffer);
        let bytes = self.net.pool.get_mut(buffer);
        match &self.net.directions[direction as usize].to {
            &End::Host { host, from, .. } => {
                let (apps, outbox) = (&mut self.apps, &mut self.outbox);
                let receiver = &mut self.hosts[host as usize];
                if receiver.down {
                    return;
                }
                let (node, mut sink) = receiver.split(now, apps, outbox, &mut self.net.queue);
                node.recv(now, &mut [RxDatagram { at, from, bytes }], &mut sink);
                self.flush();
                self.drain(host);
            }
            End::Plain { ports } => {
                let Some(((from, to), payload)) = split_plain(bytes) else { return };
                let Some(&(_, app)) = ports.iter().find(|&&(p, _)| p == to) else { return };
                let message = ToClient::Received {
                    service: Service::BestEffort,
                    recovered: false,
                    remaining_ms: 0,
                    flow_seq: 0,
                    from: NO_NODE,
                    port: from,
                    payload,
                };
                let (outbox, queue) = (&mut self.outbox, &mut self.net.queue);
                self.apps.call(now, app, outbox, queue, |a, io| a.receive(&message, io));
                self.settle(app);
            }
        }
    }

    /// Carries out what application `app` has just asked for.
    fn settle(&mut self, app: u32) {
        self.flush();
        if let Place::Session { host, .. } = self.apps.0[app as usize].place {
            self.drain(host);
        }
    }

    /// Hands the applications' messages over, and those that they answer with.
    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            std::mem::swap(&mut self.outbox, &mut self.spare);
            for (app, message) in self.spare.messages() {
                match self.apps.0[app as usize].place {
                    Place::Session { host, session } => {
                        let (apps, outbox) = (&mut self.apps, &mut self.outbox);
                        let at = &mut self.hosts[host as usize];
                        if at.down {
                            continue;
                        }
                        let (node, mut sink) =
                            at.split(self.now, apps, outbox, &mut self.net.queue);
                        node.session_recv(self.now, session, message, &mut sink);
                    }
                    Place::Plain { direction } => {
                        let from = self.apps.0[app as usize].port;
                        if let Ok(ToNode::Send { port, payload, .. }) = ToNode::parse(message) {
                            self.net.offer_plain(self.now, direction, (from, port), payload);
                        }
                    }
                }
            }
            self.spare.clear();
        }
    }

    /// Puts on the wires what a host's node has to send, and asks when it wants
    /// to be woken.
    fn drain(&mut self, index: u32) {
        let host = index as usize;
        if self.hosts[host].down {
            return;
        }
        loop {
            let drained = self.hosts[host].node.transmit(self.now, &mut self.arena);
            for run in self.arena.runs() {
                let Some(direction) = self.towards(index, run.to) else {
                    self.misdirected += run.count as u64;
                    continue;
                };
                for envelope in self.arena.envelopes(run) {
                    self.net.offer(self.now, direction, run.dscp, envelope);
                }
            }
            self.arena.clear();
            if drained == Drained::All {
                break;
            }
        }
        self.hosts[host].arm(self.now, index, &mut self.net.queue);
    }

    /// The direction from host `sender` to `to`, if there is a wire.
    fn towards(&self, sender: u32, to: SocketAddr) -> Option<u32> {
        let inside = SocketAddr::new(to.ip(), to.port() & !NAT);
        let (host, link) = locate(inside)?;
        let direction = (*self.hosts.get(host.0 as usize)?.incoming.get(usize::from(link))?)?;
        // What the other direction's datagrams seem to come from.
        let outside = match self.net.directions[direction as usize ^ 1].to {
            End::Host { from, .. } => from,
            End::Plain { .. } => return None,
        };
        match self.net.directions[direction as usize].to {
            End::Host { sender: s, .. } if s == sender && outside == to => Some(direction),
            _ => None,
        }
    }

    fn direction(&self, wire: WireId, which: usize) -> &Direction {
        &self.net.directions[2 * wire.0 as usize + which]
    }

    /// The present: the time of the last event, or the end of the last run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// An application.
    pub fn app<A: Application>(&self, id: AppId<A>) -> &A {
        let app: &dyn Any = &*self.apps.0[id.index as usize].app;
        app.downcast_ref().expect("an id has the type it was given out for")
    }

    /// Node and virtual port that packets of an application come from. On a
    /// plain path the node is 0.
    pub fn origin<A>(&self, id: AppId<A>) -> (NodeId, u16) {
        let slot = &self.apps.0[id.index as usize];
        let node = match slot.place {
            Place::Session { host, .. } => self.hosts[host as usize].config.id,
            Place::Plain { .. } => NO_NODE,
        };
        (node, slot.port)
    }

    /// How many hosts there are; they are numbered from 0.
    pub fn hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// How many wires there are, plain paths included; they are numbered
    /// from 0.
    pub fn wires(&self) -> u32 {
        self.net.directions.len() as u32 / 2
    }

    /// Where the first direction of a wire ends.
    pub(crate) fn end(&self, wire: WireId) -> &End {
        &self.direction(wire, 0).to
    }

    /// Whether a host's node has crashed.
    pub fn is_down(&self, host: HostId) -> bool {
        self.hosts[host.0 as usize].down
    }

    /// The overlay's address of a host.
    pub fn node_id(&self, host: HostId) -> NodeId {
        self.hosts[host.0 as usize].config.id
    }

    /// A host's node, for its counters.
    pub fn node(&self, host: HostId) -> &Node {
        &self.hosts[host.0 as usize].node
    }

    /// What a wire did to the datagrams from its first end to its second, and
    /// back. Bytes include [`link::IP_UDP_HEADERS`].
    pub fn ledgers(&self, wire: WireId) -> [Ledger; 2] {
        [0, 1].map(|which| self.direction(wire, which).impairment.ledger())
    }

    /// Sums up every datagram so far: when it was sent and where, its bytes,
    /// and when it arrives. Two runs with equal digests are the same run.
    pub fn digest(&self) -> u64 {
        self.net.digest.value()
    }

    /// Datagrams put on wires so far.
    pub fn datagrams(&self) -> u64 {
        self.net.datagrams
    }

    /// Datagrams that nodes sent to an address where nobody is.
    pub fn misdirected(&self) -> u64 {
        self.misdirected
    }

    /// Datagrams on wires now.
    pub fn in_flight(&self) -> usize {
        self.net.pool.in_use()
    }

    /// Events that are scheduled now: [`World::in_flight`] and timers.
    pub fn scheduled(&self) -> usize {
        self.net.queue.len()
    }
}
