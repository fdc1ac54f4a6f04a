//! Agents: the senders and receivers on a host's ports.

pub mod adaptive;
mod cbr;
mod classes;
pub(crate) mod overlay;
pub(crate) mod plain;
pub mod talk;
pub mod tcp;
pub mod tfrc;
pub mod trunk;

pub use cbr::{Cbr, Meter};

use crate::endpoints::{Endpoints, HostId};
use crate::queue::{Event, Timers};
use crate::run_observer::RunObserver;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use trunkline_base::Time;
use trunkline_base::link_model::Ecn;
use trunkline_net::{Class, Endpoint, Header, IpVersion, Network, Packet, Protocol};

/// A program on a host that uses the network directly: a node of the overlay, a source or sink on
/// plain UDP, an end of a TCP connection. It is bound to a (host, protocol, port); see
/// [`World::bind`](crate::World::bind).
///
/// While its host is stalled, none of its methods are called. While its host is down, it receives
/// nothing and its output is lost, but its wake-ups still happen, so that its state is current
/// once the host is back.
pub trait Agent: Any {
    /// Called once the agent has been bound.
    fn start(&mut self, _io: &mut AgentIo<'_>) {}

    /// Called for each datagram that arrives.
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>);

    /// Called at a time scheduled by [`AgentIo::wake_at`].
    fn wake(&mut self, _token: u64, _io: &mut AgentIo<'_>) {}
}

/// A datagram that arrived.
#[derive(Debug)]
pub struct Received<'a> {
    /// Time of arrival at the host, which is before now if the host was stalled.
    pub at: Time,
    /// Source, destination, protocol and TOS byte.
    pub header: Header,
    /// The payload, which may be changed in place.
    pub payload: &'a mut [u8],
}

/// A datagram that an agent sends.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Source port of the datagram.
    pub port: u16,
    /// Destination: from [`World::endpoint`](crate::World::endpoint), or the source of a received
    /// datagram.
    pub to: Endpoint,
    /// Protocol. Its headers and the world's IP header ([`Protocol::headers`]) are added to the
    /// payload's length.
    pub protocol: Protocol,
    /// TOS byte of the IP header: DSCP and ECN.
    pub tos: u8,
    /// Payload of the datagram, without any header.
    pub payload: &'a [u8],
}

/// The operations available to an agent while it runs; all of them take effect at once.
pub struct AgentIo<'a> {
    pub(crate) now: Time,
    pub(crate) agent: u32,
    pub(crate) host: u32,
    pub(crate) class: Class,
    pub(crate) places: &'a Endpoints,
    pub(crate) net: &'a mut Network<RunObserver>,
    pub(crate) timers: &'a mut Timers,
}

impl AgentIo<'_> {
    /// Current time of the world.
    pub fn now(&self) -> Time {
        self.now
    }

    /// IP version of the world.
    pub fn ip(&self) -> IpVersion {
        self.places.ip
    }

    /// Host that the agent is bound to.
    pub fn host(&self) -> HostId {
        HostId(self.host)
    }

    /// Whether the agent's host has crashed.
    pub(crate) fn is_down(&self) -> bool {
        self.places.hosts[self.host as usize].down
    }

    /// Schedules a call of [`Agent::wake`] with `token` at `at`. Every scheduled call is made; a
    /// time in the past means now.
    #[inline]
    pub fn wake_at(&mut self, at: Time, token: u64) {
        let at = at.max(self.now);
        // An event at the end of time never happens.
        if at < Time::NEVER {
            let moment = self.net.moment(at);
            self.timers.push(moment, Event::Wake { agent: self.agent, token });
        }
    }

    /// Sends a datagram from the host's own interface.
    #[inline]
    pub fn send(&mut self, out: &Outgoing<'_>) {
        let vertex = self.places.hosts[self.host as usize].vertex;
        let from = Endpoint { vertex, port: out.port };
        if !self.is_down() {
            let tos = self.tos(from, out.tos);
            self.put(from, out.to, out.protocol, tos, out.payload);
        }
    }

    /// Sends a datagram from the host's own interface that has `bytes` bytes on the wire, for
    /// payloads with transport headers of their own. In contrast, [`AgentIo::send`] adds
    /// [`Protocol::headers`].
    #[inline]
    pub fn send_sized(&mut self, out: &Outgoing<'_>, bytes: usize) {
        let &Outgoing { port, to, protocol, payload, .. } = out;
        let vertex = self.places.hosts[self.host as usize].vertex;
        let from = Endpoint { vertex, port };
        if !self.is_down() {
            let (tos, class) = (self.tos(from, out.tos), self.class);
            let bytes = bytes as u32;
            self.net.send(self.now, &Packet { from, to, protocol, tos, class, bytes, payload });
        }
    }

    /// TOS byte of datagrams sent from `from`: some interfaces declare all of them ECN-capable.
    pub(crate) fn tos(&self, from: Endpoint, tos: u8) -> u8 {
        let ecn_capable = self.places.ifaces[from.vertex.0 as usize].ecn_capable;
        if ecn_capable { Ecn::Ect0.in_tos(tos) } else { tos }
    }

    /// Sends a datagram from a host that is up.
    #[inline]
    pub(crate) fn put(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        protocol: Protocol,
        tos: u8,
        payload: &[u8],
    ) {
        let bytes = (payload.len() + protocol.headers(self.places.ip)) as u32;
        let class = self.class;
        self.net.send(self.now, &Packet { from, to, protocol, tos, class, bytes, payload });
    }
}

/// Handle of an agent in a world, with the agent's type.
pub struct AgentId<A> {
    pub(crate) index: u32,
    _type: PhantomData<fn() -> A>,
}

impl<A> AgentId<A> {
    pub(crate) fn new(index: u32) -> AgentId<A> {
        AgentId { index, _type: PhantomData }
    }
}

impl<A> Clone for AgentId<A> {
    fn clone(&self) -> AgentId<A> {
        *self
    }
}

impl<A> Copy for AgentId<A> {}

impl<A> fmt::Debug for AgentId<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentId({})", self.index)
    }
}

/// An agent, and its location.
pub(crate) struct AgentSlot {
    pub agent: Box<dyn Agent>,
    pub host: u32,
    pub class: Class,
}
