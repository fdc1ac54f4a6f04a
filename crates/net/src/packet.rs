//! Packets, their addresses, and the reasons to drop them.

use crate::graph::{DirectionId, VertexId};
use core::fmt;
use trunkline_base::Time;

/// Maximum payload of a packet, in bytes: what fits in an IP packet.
pub const MAX_PAYLOAD: usize = 65_535;

/// A version of the Internet Protocol. All packets of a network are of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpVersion {
    /// The version of RFC 791, with a header of 20 bytes.
    V4,
    /// The version of RFC 8200, with a header of 40 bytes.
    V6,
}

impl IpVersion {
    /// Size of the header without options or extension headers, in bytes.
    pub const fn header(self) -> usize {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }
}

/// A transport protocol, by its IP protocol number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Protocol number of TCP (RFC 9293).
    pub const TCP: Protocol = Protocol(6);
    /// Protocol number of UDP (RFC 768).
    pub const UDP: Protocol = Protocol(17);
    /// Protocol number of DCCP (RFC 4340).
    pub const DCCP: Protocol = Protocol(33);

    /// Size of the headers around a payload, in bytes: that of `ip`, plus the shortest transport
    /// header without options: TCP 20, UDP 8, DCCP 16 (with the long sequence numbers of data
    /// packets). For any other protocol, that of `ip` alone.
    pub const fn headers(self, ip: IpVersion) -> usize {
        ip.header()
            + match self {
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

/// A group of flows for the ledgers: a small number that the sender chooses. It has no influence on
/// the packet's fate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Class(pub u8);

/// A transport address: a host and a port on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Endpoint {
    /// The host where packets begin or end.
    pub vertex: VertexId,
    /// The port; the network only carries it.
    pub port: u16,
}

/// A packet to send.
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
    /// Class of the ledgers in which the packet counts.
    pub class: Class,
    /// Length on the wire in bytes, with all headers that take time at an edge's rate. It need not
    /// match the payload's length.
    pub bytes: u32,
    /// Payload of at most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// A packet without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The host and port that sent the packet.
    pub from: Endpoint,
    /// The host and port that the packet is for.
    pub to: Endpoint,
    /// Length on the wire in bytes.
    pub bytes: u32,
    /// The direction that the packet is in, or came out of last.
    pub direction: DirectionId,
    /// Identification of the packet: the number of packets that started in the same direction
    /// before it, modulo 65,536, like IPv4's identification field.
    pub number: u16,
    /// The transport protocol, by its IP protocol number.
    pub protocol: Protocol,
    /// The TOS byte, including any mark set by a queue.
    pub tos: u8,
    /// Class of the ledgers in which the packet counts.
    pub class: Class,
    pub(crate) hops_left: u8,
}

/// A packet that has arrived; [`Network::open`](crate::Network::open) returns its contents. Its
/// slot stays occupied, and counts as under way, until
/// [`Network::release`](crate::Network::release).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "its place stays taken until it is released"]
pub struct Delivery {
    /// Arrival time at the packet's destination.
    pub at: Time,
    pub(crate) slot: u32,
}

/// Reasons for dropping a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// Lost on the wire.
    Loss,
    /// Rejected by a queue.
    Queue,
    /// The network had reached its limit of packets under way.
    NoRoom,
    /// No route to the destination.
    NoRoute,
    /// Forwarded by [`HOP_LIMIT`](crate::HOP_LIMIT) routers: a routing loop.
    HopLimit,
    /// Routed to a host that is not its destination.
    Stray,
    /// The payload is longer than [`MAX_PAYLOAD`].
    TooLong,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
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
