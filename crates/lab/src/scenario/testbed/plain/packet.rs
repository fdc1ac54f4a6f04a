//! Packets of a flow: the send time and a packet number, in UDP or in packets that look like TCP.

use super::Flow;
use etherparse::TcpHeader;
use std::net::IpAddr;

/// Length of a TCP header without options, in bytes.
const TCP: usize = 20;
/// Length in bytes of the send time (nanoseconds), which begins each payload.
pub const STAMP: usize = 8;
/// Longest payload in bytes: the part that IPv4 and UDP headers leave of a stream's largest packet.
pub const MAX_PAYLOAD: usize = 1_500 - 20 - 8;
/// Length in bytes of the send time and the packet number together.
const BOTH: usize = 16;

/// Writes packet `k`, sent at `now` (nanoseconds), into `packet`: for UDP the payload alone,
/// otherwise behind a TCP header with RST set, since a kernel without such a connection answers
/// all segments but resets (RFC 9293, 3.10.7.1).
pub fn write(flow: &Flow, k: u64, now: u64, packet: &mut Vec<u8>) {
    let mut payload = vec![0; flow.payload];
    payload[..STAMP].copy_from_slice(&now.to_be_bytes());
    if let Some(number) = payload.get_mut(STAMP..BOTH) {
        number.copy_from_slice(&k.to_be_bytes());
    }
    packet.clear();
    if !flow.udp {
        // Sequence numbers wrap, as in TCP.
        let sequence = k.wrapping_mul(flow.payload as u64) as u32;
        let mut header = TcpHeader::new(flow.from.port(), flow.to.port(), sequence, u16::MAX);
        header.rst = true;
        let sum = match (flow.from.ip(), flow.to.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                header.calc_checksum_ipv4_raw(a.octets(), b.octets(), &payload)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                header.calc_checksum_ipv6_raw(a.octets(), b.octets(), &payload)
            }
            _ => unreachable!("both ends of a flow have addresses of one version"),
        };
        // Never fails: payloads are far shorter than TCP's limit.
        header.checksum = sum.unwrap_or_default();
        packet.extend_from_slice(&header.to_bytes());
    }
    packet.extend_from_slice(&payload);
}

/// The source and destination ports of a packet that looks like TCP, and its payload. A raw socket
/// of IPv4 receives the IP header too, which `has_ip_header` says.
pub fn segment(packet: &[u8], has_ip_header: bool) -> Option<((u16, u16), &[u8])> {
    let ip = if has_ip_header { 4 * usize::from(packet.first()? & 0xf) } else { 0 };
    let (header, payload) = packet.get(ip..)?.split_at_checked(TCP)?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(((port(0), port(2)), payload))
}

/// The send time in a payload (nanoseconds), and the packet number, if there is room for one.
pub fn read(payload: &[u8]) -> Option<(u64, Option<u64>)> {
    let word = |at: usize| Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    Some((word(0)?, word(STAMP)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice, ip_number};

    #[test]
    fn packets_say_when_they_were_sent_behind_headers_that_are_tcps() {
        let ip: std::net::Ipv6Addr = "fd74:6c::1".parse().unwrap();
        let end = |port| std::net::SocketAddr::new(ip.into(), port);
        let flow = Flow {
            number: 0,
            udp: false,
            from: end(3_000),
            to: end(2_000),
            payload: 1_440,
            class: 0,
            first_ns: 0,
            interval_ns: 1,
            count: 1,
            each: false,
        };
        let mut packet = Vec::new();
        write(&flow, 7, 42, &mut packet);
        assert_eq!(packet.len(), 1_460);
        let (ports, payload) = segment(&packet, false).unwrap();
        assert_eq!((ports, read(payload)), ((3_000, 2_000), Some((42, Some(7)))));
        let mut header =
            etherparse::Ipv6Header { payload_length: 1_460, hop_limit: 9, ..Default::default() };
        header.next_header = ip_number::TCP;
        let whole = [&header.to_bytes()[..], &packet].concat();
        let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ip(&whole).unwrap().transport
        else {
            panic!("no TCP");
        };
        assert!(tcp.rst());
        let sum = tcp.calc_checksum_ipv6(ip.octets(), ip.octets());
        assert_eq!(tcp.checksum(), sum.unwrap());

        let v4 = std::net::Ipv4Addr::new(10, 64, 0, 1);
        let [from, to] = [3_000, 2_000].map(|port| std::net::SocketAddr::new(v4.into(), port));
        write(&Flow { from, to, ..flow.clone() }, 7, 42, &mut packet);
        let header =
            etherparse::Ipv4Header::new(1_460, 9, ip_number::TCP, v4.octets(), v4.octets());
        let whole = [&header.unwrap().to_bytes()[..], &packet].concat();
        let (ports, payload) = segment(&whole, true).unwrap();
        assert_eq!((ports, read(payload)), ((3_000, 2_000), Some((42, Some(7)))));
        let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ip(&whole).unwrap().transport
        else {
            panic!("no TCP");
        };
        let sum = tcp.calc_checksum_ipv4(v4.octets(), v4.octets());
        assert_eq!(tcp.checksum(), sum.unwrap());

        write(&Flow { udp: true, payload: 8, ..flow }, 7, 42, &mut packet);
        assert_eq!(read(&packet), Some((42, None)));
        assert_eq!((read(&packet[..7]), segment(&packet, false)), (None, None));
    }
}
