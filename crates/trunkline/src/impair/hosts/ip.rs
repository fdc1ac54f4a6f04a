//! IP packets from a router's view: parsing headers (RFC 791, RFC 8200), updating them, and
//! reporting undeliverable packets (RFC 792, RFC 4443).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use trunkline_net::Protocol;

const V4: usize = 20;
const V6: usize = 40;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// IPv6 extension headers that a packet may have (RFC 8200, 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
/// Maximum quote of a packet in an ICMPv6 error, in bytes, so that the error fits any link.
const QUOTE: usize = 1_280 - V6 - 8;
/// Maximum quote of an IPv4 packet in an ICMP error, in bytes, which is sufficient (RFC 1812,
/// 4.3.2.3).
const QUOTE_V4: usize = 576 - V4 - 8;
/// Hop limit of packets that a router originates.
const HOPS: u8 = 64;

/// The header fields that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub from: IpAddr,
    pub to: IpAddr,
    /// The protocol field of IPv4, or the first next header of IPv6.
    pub protocol: Protocol,
    /// The byte with DSCP and ECN.
    pub tos: u8,
    /// The hop limit: one more than the number of routers that may forward the packet.
    pub hops: u8,
    /// The ports of TCP and UDP in a first fragment; otherwise 0.
    pub ports: (u16, u16),
}

impl Head {
    /// Parses a header; `None` unless this is an IP packet of exactly the stated length.
    pub fn parse(packet: &[u8]) -> Option<Head> {
        let word = |at: usize| Some(u16::from_be_bytes(*packet.get(at..at + 2)?.first_chunk()?));
        let (mut head, payload, is_first) = match packet.first()? >> 4 {
            4 => {
                let fixed: &[u8; V4] = packet.first_chunk()?;
                let length = usize::from(fixed[0] & 15) * 4;
                let total = usize::from(word(2)?);
                if !(V4..=total).contains(&length) || total != packet.len() {
                    return None;
                }
                let address = |at: usize| Ipv4Addr::from(*fixed[at..].first_chunk().expect("four"));
                let head = Head {
                    from: address(12).into(),
                    to: address(16).into(),
                    protocol: Protocol(fixed[9]),
                    tos: fixed[1],
                    hops: fixed[8],
                    ports: (0, 0),
                };
                (head, length, word(6)? & 0x1fff == 0)
            }
            6 => {
                let fixed: &[u8; V6] = packet.first_chunk()?;
                if usize::from(word(4)?) + V6 != packet.len() {
                    return None;
                }
                let address =
                    |at: usize| Ipv6Addr::from(*fixed[at..].first_chunk().expect("sixteen"));
                let head = Head {
                    from: address(8).into(),
                    to: address(24).into(),
                    protocol: Protocol(fixed[6]),
                    tos: (fixed[0] << 4) | (fixed[1] >> 4),
                    hops: fixed[7],
                    ports: (0, 0),
                };
                (head, V6, true)
            }
            _ => return None,
        };
        if is_first && matches!(head.protocol, Protocol::TCP | Protocol::UDP) {
            head.ports = (word(payload)?, word(payload + 2)?);
        }
        Some(head)
    }
}

/// Updates a packet that [`Head::parse`] has accepted as `routers` routers and a queue would:
/// lowers the hop limit, and copies the queue's ECN mark.
pub fn pass_on(packet: &mut [u8], tos: u8, routers: u8) {
    if packet[0] >> 4 == 6 {
        packet[0] = 0x60 | (tos >> 4);
        packet[1] = (tos << 4) | (packet[1] & 15);
        packet[7] = packet[7].saturating_sub(routers);
        return;
    }
    packet[1] = tos;
    packet[8] = packet[8].saturating_sub(routers);
    let length = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = checksum(0, &packet[..length]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Reason why a router does not forward a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedPacket {
    /// The hop limit has been reached.
    Expired,
    /// The packet exceeds the next edge's MTU, in bytes.
    TooBig(u16),
}

/// Builds the error that the router at these addresses sends to the source of `packet`. `None` if
/// no error may be sent: for an ICMP error or a packet to several hosts (RFC 1122, 3.2.2).
pub fn refusal(
    (v4, v6): (Ipv4Addr, Ipv6Addr),
    packet: &[u8],
    head: &Head,
    why: RejectedPacket,
) -> Option<Vec<u8>> {
    match (head.from, head.to) {
        (IpAddr::V4(to), IpAddr::V4(_)) => {
            let first = usize::from(packet[0] & 15) * 4;
            // Errors are sent only for requests and replies, and for first fragments.
            let is_error = head.protocol == Protocol(ICMP)
                && !matches!(packet.get(first), Some(0 | 8 | 13 | 14));
            let is_later = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
            if is_error || is_later {
                return None;
            }
            let (kind, code, rest) = match why {
                RejectedPacket::Expired => (11, 0, 0),
                RejectedPacket::TooBig(mtu) => (3, 4, u32::from(mtu)),
            };
            let body = message((kind, code, rest), &packet[..packet.len().min(QUOTE_V4)], 0);
            let mut out = vec![0; V4];
            out[0] = 0x45;
            let length = (V4 + body.len()) as u16;
            out[2..4].copy_from_slice(&length.to_be_bytes());
            out[8..10].copy_from_slice(&[HOPS, ICMP]);
            out[12..16].copy_from_slice(&v4.octets());
            out[16..20].copy_from_slice(&to.octets());
            let sum = checksum(0, &out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out.extend(body);
            Some(out)
        }
        (IpAddr::V6(to), IpAddr::V6(_)) => {
            if is_v6_error(packet) {
                return None;
            }
            let (kind, rest) = match why {
                RejectedPacket::Expired => (3, 0),
                RejectedPacket::TooBig(mtu) => (2, u32::from(mtu)),
            };
            let quote = &packet[..packet.len().min(QUOTE)];
            let mut out = vec![0; V6];
            out[0] = 0x60;
            let length = (8 + quote.len()) as u16;
            out[4..6].copy_from_slice(&length.to_be_bytes());
            out[6..8].copy_from_slice(&[ICMPV6, HOPS]);
            out[8..24].copy_from_slice(&v6.octets());
            out[24..40].copy_from_slice(&to.octets());
            let around = add(0, &out[8..40]) + u32::from(length) + u32::from(ICMPV6);
            out.extend(message((kind, 0, rest), quote, around));
            Some(out)
        }
        _ => None,
    }
}

/// Whether an IPv6 packet may be an ICMP error, behind any extension headers (RFC 8200, 4). A
/// truncated packet or a later fragment cannot be ruled out.
fn is_v6_error(packet: &[u8]) -> bool {
    let (mut kind, mut at) = (packet[6], V6);
    loop {
        let Some(&[next, length, high, low]) = packet.get(at..).and_then(<[u8]>::first_chunk)
        else {
            return !matches!(Protocol(kind), Protocol::TCP | Protocol::UDP);
        };
        at += match kind {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 + 8 * usize::from(length),
            AUTHENTICATION => 8 + 4 * usize::from(length),
            FRAGMENT if u16::from_be_bytes([high, low]) >= 8 => return next == ICMPV6,
            FRAGMENT => 8,
            // The first byte is the message type.
            ICMPV6 => return next < 128,
            _ => return false,
        };
        kind = next;
    }
}

/// Builds an ICMP message: type, code and four bytes, then the quoted packet.
fn message((kind, code, rest): (u8, u8, u32), quote: &[u8], around: u32) -> Vec<u8> {
    let mut out = vec![kind, code, 0, 0];
    out.extend(rest.to_be_bytes());
    out.extend(quote);
    let sum = checksum(around, &out);
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    out
}

/// The Internet checksum (RFC 1071) over these bytes and the sum so far.
fn checksum(already: u32, bytes: &[u8]) -> u16 {
    let mut sum = add(already, bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn add(already: u32, bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    bytes.chunks(2).fold(already, |sum, pair| sum + word(pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V4_UDP: [u8; 32] = [
        0x45, 0xb8, 0, 32, 1, 2, 0x40, 0, 64, 17, 0, 0, 10, 64, 0, 1, 10, 64, 0, 2, 0x13, 0x88,
        0x13, 0x89, 0, 12, 0, 0, 1, 2, 3, 4,
    ];

    fn v6_tcp() -> Vec<u8> {
        let mut packet = vec![0x6b, 0x80, 0, 7, 0, 20, 6, 64];
        packet.extend("fd74:6c::1".parse::<Ipv6Addr>().expect("valid").octets());
        packet.extend("fd74:6c::2".parse::<Ipv6Addr>().expect("valid").octets());
        packet.extend([0, 80, 1, 2]);
        packet.resize(V6 + 20, 0);
        packet
    }

    fn sums_up(header: &[u8]) -> bool {
        checksum(0, header) == 0
    }

    #[test]
    fn headers_are_read_and_changed_by_routers() {
        let mut v4 = V4_UDP;
        let head = Head::parse(&v4).expect("a packet");
        assert_eq!((head.protocol, head.tos, head.hops), (Protocol::UDP, 0xb8, 64));
        assert_eq!((head.from.to_string(), head.ports), ("10.64.0.1".into(), (5_000, 5_001)));
        pass_on(&mut v4, 0xbb, 2);
        let after = Head::parse(&v4).expect("a packet");
        assert_eq!(after, Head { tos: 0xbb, hops: 62, ..head });
        assert!(sums_up(&v4[..V4]));

        let mut v6 = v6_tcp();
        let head = Head::parse(&v6).expect("a packet");
        assert_eq!((head.protocol, head.tos, head.hops), (Protocol::TCP, 0xb8, 64));
        assert_eq!((head.to.to_string(), head.ports), ("fd74:6c::2".into(), (80, 258)));
        pass_on(&mut v6, 0xbb, 3);
        assert_eq!(Head::parse(&v6).expect("a packet"), Head { tos: 0xbb, hops: 61, ..head });
        assert_eq!(v6[1] & 15, 0, "the flow label stays");
        assert_eq!(v6[3], 7);
    }

    #[test]
    fn who_is_told_what_a_router_refuses() {
        let router = ("10.65.0.1".parse().expect("v4"), "fd74:6c:1::1".parse().expect("v6"));
        let head = Head::parse(&V4_UDP).expect("a packet");
        let said = refusal(router, &V4_UDP, &head, RejectedPacket::TooBig(1_400)).expect("told");
        let outer = Head::parse(&said).expect("a packet");
        assert_eq!((outer.to, outer.protocol), (head.from, Protocol(ICMP)));
        assert!(sums_up(&said[..V4]) && sums_up(&said[V4..]));
        assert_eq!((&said[V4..V4 + 2], &said[V4 + 6..V4 + 8]), (&[3, 4][..], &[5, 120][..]));
        assert_eq!(refusal(router, &said, &outer, RejectedPacket::Expired), None, "of an error");

        let packet = v6_tcp();
        let head = Head::parse(&packet).expect("a packet");
        let said = refusal(router, &packet, &head, RejectedPacket::Expired).expect("told");
        let outer = Head::parse(&said).expect("a packet");
        assert_eq!((outer.to, outer.protocol, said[V6]), (head.from, Protocol(ICMPV6), 3));
        let around = add(0, &said[8..40]) + (said.len() - V6) as u32 + u32::from(ICMPV6);
        assert_eq!(checksum(around, &said[V6..]), 0);
        assert_eq!(refusal(router, &said, &outer, RejectedPacket::Expired), None);
    }

    #[test]
    fn an_error_behind_extension_headers_is_one() {
        let packet = |first: u8, rest: &[u8]| {
            let mut packet = v6_tcp();
            packet[6] = first;
            packet.truncate(V6);
            packet.extend(rest);
            packet[5] = rest.len() as u8;
            let head = Head::parse(&packet).expect("a packet");
            let router = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
            refusal(router, &packet, &head, RejectedPacket::Expired).is_some()
        };
        let [error, request] = [[1, 0, 0, 0], [128, 0, 0, 0]];
        assert!(!packet(ICMPV6, &error) && packet(ICMPV6, &request));
        for (kind, length) in [(HOP_BY_HOP, 1), (ROUTING, 1), (DESTINATION, 1), (AUTHENTICATION, 2)]
        {
            let header = [&[ICMPV6, length][..], &[0; 14]].concat();
            assert!(!packet(kind, &[&header[..], &error].concat()), "{kind}");
            assert!(packet(kind, &[&header[..], &request].concat()), "{kind}");
            // Truncated within the header.
            assert!(!packet(kind, &header[..8]), "{kind}");
        }
        // The first fragment of a packet, and the second.
        let part = |of: u8, at: u8| [of, 0, 0, at, 0, 0, 0, 9, 1, 0, 0, 0];
        assert!(!packet(FRAGMENT, &part(ICMPV6, 1)) && packet(FRAGMENT, &part(17, 1)));
        assert!(!packet(FRAGMENT, &part(ICMPV6, 8)) && packet(FRAGMENT, &part(17, 8)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..90), v6: bool) {
            if let [first, ..] = &mut bytes[..] {
                *first = if v6 { 0x60 } else { 0x40 | (*first & 15) };
            }
            let length = bytes.len() as u16;
            if bytes.len() > 6 {
                let (at, length) = if v6 { (4, length.saturating_sub(40)) } else { (2, length) };
                bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            if let Some(head) = Head::parse(&bytes) {
                let router = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
                let _ = refusal(router, &bytes, &head, RejectedPacket::TooBig(1_300));
                pass_on(&mut bytes, 3, 9);
                prop_assert_eq!(Head::parse(&bytes).map(|h| (h.from, h.to)), Some((head.from, head.to)));
            }
        }
    }
}
