//! What travels.

use crate::graph::{DirectionId, VertexId};
use core::fmt;
use trunkline_base::Time;

/// The most payload that a packet has, in bytes: what fits in an IP packet.
pub const MAX_PAYLOAD: usize = 65_535;

/// A transport protocol, by the number that IP has for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP (RFC 9293).
    pub const TCP: Protocol = Protocol(6);
    /// UDP (RFC 768).
    pub const UDP: Protocol = Protocol(17);
    /// DCCP (RFC 4340).
    pub const DCCP: Protocol = Protocol(33);

    /// Bytes of the headers around a payload: IPv6's 40 (RFC 8200), and the
    /// shortest that the transport has, without options: of TCP 20, of UDP 8, of
    /// DCCP 16 (with the long sequence numbers of data packets). Of a protocol
    /// that is not known here IPv6's alone.
    pub const fn headers(self) -> usize {
        40 + match self {
            Protocol::TCP => 20,
            Protocol::UDP => 8,
            Protocol::DCCP => 16,
            _ => 0,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Protocol::TCP => f.write_str("TCP"),
            Protocol::UDP => f.write_str("UDP"),
            Protocol::DCCP => f.write_str("DCCP"),
            Protocol(number) => write!(f, "protocol {number}"),
        }
    }
}

/// To which flows a packet belongs, as far as ledgers go: a small number that
/// its sender gives. It has no influence on what happens to the packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Class(pub u8);

/// A port of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Endpoint {
    /// The host where packets begin or end.
    pub vertex: VertexId,
    /// The port; the network only carries it.
    pub port: u16,
}

/// A packet as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The sending host and its port.
    pub from: Endpoint,
    /// The host and port that the packet is for.
    pub to: Endpoint,
    /// The transport protocol, by its IP protocol number.
    pub protocol: Protocol,
    /// The TOS byte: DSCP (RFC 2474) and, in its lower two bits, ECN (RFC 3168).
    pub tos: u8,
    /// In whose ledgers it counts.
    pub class: Class,
    /// Its length on the wire in bytes, with all headers that take time at an
    /// edge's rate. The payload may be shorter or longer: it is not looked at.
    pub bytes: u32,
    /// What it carries, at most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// What the network knows of a packet beside its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The host and port that sent the packet.
    pub from: Endpoint,
    /// The host and port that the packet is for.
    pub to: Endpoint,
    /// Its length on the wire in bytes.
    pub bytes: u32,
    /// The direction that it is in, or came out of last.
    pub direction: DirectionId,
    /// Which of its sender's packets it is: counts those that began their way
    /// in the same direction, modulo 65,536, as IPv4's identification field.
    pub number: u16,
    /// The transport protocol, by its IP protocol number.
    pub protocol: Protocol,
    /// The TOS byte, with a mark if a queue has marked it.
    pub tos: u8,
    /// In whose ledgers it counts.
    pub class: Class,
    pub(crate) hops_left: u8,
}

/// A packet that has arrived: [`Network::open`](crate::Network::open) has the
/// rest. Its place in the network's memory stays taken, and counts as under way,
/// until [`Network::release`](crate::Network::release).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "its place stays taken until it is released"]
pub struct Delivery {
    /// When the packet came to the host that it is for.
    pub at: Time,
    pub(crate) slot: u32,
}

/// Why a packet was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// Lost on the wire.
    Loss,
    /// Turned away by a queue.
    Queue,
    /// As many packets are under way as the network holds.
    NoRoom,
    /// Nothing leads to where it shall go.
    NoRoute,
    /// It has passed as many routers as a packet may: they send it in circles.
    HopLimit,
    /// A route has led it to a host that it is not for.
    Stray,
    /// Its payload is longer than [`MAX_PAYLOAD`].
    TooLong,
}

impl DropReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [DropReason; 7] = [
        DropReason::Loss,
        DropReason::Queue,
        DropReason::NoRoom,
        DropReason::NoRoute,
        DropReason::HopLimit,
        DropReason::Stray,
        DropReason::TooLong,
    ];
}
