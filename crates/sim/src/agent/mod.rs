//! Agents: what sends and receives on a host's ports.

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

use crate::places::{HostId, Places};
use crate::queue::{Event, Timers};
use crate::watch::Watch;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use trunkline_base::Time;
use trunkline_base::link_model::Ecn;
use trunkline_net::{Class, Endpoint, Header, Network, Packet, Protocol};

/// Something on a host that talks to the network itself: a node of the overlay,
/// a source or sink on plain UDP, an end of a TCP connection. It is bound to a
/// (host, protocol, port); see [`World::bind`](crate::World::bind).
///
/// While its host is stalled nothing of it is called. While its host is down it
/// receives nothing and what it sends goes nowhere, but its times come, so that
/// it goes on where it would be once its host is back.
pub trait Agent: Any {
    /// It has been bound.
    fn start(&mut self, _io: &mut AgentIo<'_>) {}

    /// A datagram has come, TOS byte and all.
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>);

    /// A time asked for by [`AgentIo::wake_at`] has come.
    fn wake(&mut self, _token: u64, _io: &mut AgentIo<'_>) {}
}

/// A datagram that has come.
#[derive(Debug)]
pub struct Received<'a> {
    /// When it came to the host: before now if that was stalled.
    pub at: Time,
    /// From whom, to whom, how.
    pub header: Header,
    /// What it carries; it may be changed in place.
    pub payload: &'a mut [u8],
}

/// A datagram that an agent sends.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The port that it comes from.
    pub port: u16,
    /// Whom to: [`World::endpoint`](crate::World::endpoint), or where something
    /// came from.
    pub to: Endpoint,
    /// By which protocol; its headers, and IPv6's, count beside the payload
    /// ([`Protocol::headers`]), or IPv4's ([`World::use_ipv4`](crate::World::use_ipv4)).
    pub protocol: Protocol,
    /// The IP header's TOS byte, as it arrived: DSCP and ECN.
    pub tos: u8,
    /// The datagram's payload, without any header.
    pub payload: &'a [u8],
}

/// What an agent can do while it runs; all of it happens at once.
pub struct AgentIo<'a> {
    pub(crate) now: Time,
    pub(crate) agent: u32,
    pub(crate) host: u32,
    pub(crate) class: Class,
    pub(crate) places: &'a Places,
    pub(crate) net: &'a mut Network<Watch>,
    pub(crate) timers: &'a mut Timers,
}

impl AgentIo<'_> {
    /// The world's present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The host that the agent is bound to.
    pub fn host(&self) -> HostId {
        HostId(self.host)
    }

    /// Whether that host has crashed.
    pub(crate) fn is_down(&self) -> bool {
        self.places.hosts[self.host as usize].down
    }

    /// Asks for [`Agent::wake`] with `token` at `at`. Every time that is asked for
    /// comes; a time that has passed means now.
    #[inline]
    pub fn wake_at(&mut self, at: Time, token: u64) {
        let at = at.max(self.now);
        // Nothing happens at the end of time.
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

    /// Sends a datagram whose payload begins with the transport's own header, from the
    /// host's own interface: on the wire it is `ip_header` bytes longer than its
    /// payload, which [`AgentIo::send`] puts [`Protocol::headers`] in front of.
    #[inline]
    pub fn send_behind(&mut self, out: &Outgoing<'_>, ip_header: usize) {
        let &Outgoing { port, to, protocol, payload, .. } = out;
        let vertex = self.places.hosts[self.host as usize].vertex;
        let from = Endpoint { vertex, port };
        if !self.is_down() {
            let (tos, class) = (self.tos(from, out.tos), self.class);
            let bytes = (payload.len() + ip_header) as u32;
            self.net.send(self.now, &Packet { from, to, protocol, tos, class, bytes, payload });
        }
    }

    /// The TOS byte of what is sent from there: some interfaces say for all of it
    /// that its sender minds marks.
    pub(crate) fn tos(&self, from: Endpoint, tos: u8) -> u8 {
        let ecn_capable = self.places.ifaces[from.vertex.0 as usize].ecn_capable;
        if ecn_capable { Ecn::Ect0.in_tos(tos) } else { tos }
    }

    /// Sends a datagram from a host that is not down.
    #[inline]
    pub(crate) fn put(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        protocol: Protocol,
        tos: u8,
        payload: &[u8],
    ) {
        let headers = protocol.headers() - self.places.shorter_by;
        let bytes = (payload.len() + headers) as u32;
        let class = self.class;
        self.net.send(self.now, &Packet { from, to, protocol, tos, class, bytes, payload });
    }
}

/// Which agent of a world, and its type.
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

/// An agent, and where it is.
pub(crate) struct AgentSlot {
    pub agent: Box<dyn Agent>,
    pub host: u32,
    pub class: Class,
}
