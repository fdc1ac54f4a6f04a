//! The media ports of calls, and what they are joined to.

use crate::reception::Clocks;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use trunkline_overlay::wire::NodeId;
use trunkline_sip::sdp::{self, Host};

/// Who is at the other end of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nobody is known yet, or the stream isn't wanted.
    Nobody,
    /// A phone, or another relay.
    Udp {
        /// Where its RTP is wanted; `None` if that isn't known before a packet comes, or
        /// it wants none.
        rtp: Option<SocketAddr>,
        /// Where its RTCP is wanted, if that is known.
        rtcp: Option<SocketAddr>,
        /// Whose packets may be its own: the first of them says where it is.
        from: [Option<IpAddr>; 2],
    },
    /// Another gateway, over the overlay.
    Overlay {
        /// The other gateway's node.
        node: NodeId,
        /// Its virtual port for RTP; the next is for RTCP.
        port: u16,
    },
}

/// One leg of a stream: a port, and who is at its other end. What comes there leaves
/// at the port of the stream's other leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The port of the other leg.
    pub onto: u16,
    /// Who is at the other end.
    pub remote: Remote,
    /// How often the other end has described itself; see [`crate::Latch::reopen`].
    pub described: u32,
    /// Whether another gateway has been told of the virtual port of this number.
    pub told: bool,
    /// Whether only RTP, RTCP, and what agrees on their ways and keys may come (RFC 7983):
    /// other text, as SIP, would be taken for this gateway's own where it leads to.
    pub is_rtp: bool,
    /// Whether only the two ends can read what comes.
    pub is_encrypted: bool,
    /// The clocks of its payloads.
    pub clocks: Clocks,
}

/// Whether a datagram is RTP, RTCP, STUN, ZRTP or DTLS, by its first byte (RFC 7983, 7).
pub fn is_media(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(0..=3 | 16..=19 | 20..=63 | 128..=191))
}

/// Has the ports that a gateway decides on: UDP ports, and virtual ports of the same
/// numbers.
pub trait Media {
    /// Takes the UDP ports `port` and `port` + 1; false if they can't be had.
    fn open(&mut self, port: u16) -> bool;
    /// Joins the ports `port` and `port` + 1 to something else than before.
    fn relay(&mut self, port: u16, relay: &Relay);
    /// Gives the UDP ports `port` and `port` + 1 back.
    fn close(&mut self, port: u16);
    /// Whether this node has a way to `node`; by link state it has one only to nodes
    /// whose keys it knows.
    fn knows(&self, node: NodeId) -> bool;
}

/// The name of the attribute by which gateways tell each other of virtual ports.
pub(crate) const ATTRIBUTE: &str = "x-trunkline";

/// What the attribute says: `1 NODE PORT`, the first number its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub node: NodeId,
    pub port: u16,
}

impl Told {
    /// `None` if it isn't understood: then it isn't there.
    pub fn parse(value: &[u8]) -> Option<Told> {
        let mut words = core::str::from_utf8(value).ok()?.split(' ');
        let ("1", node, port, None) = (words.next()?, words.next()?, words.next()?, words.next())
        else {
            return None;
        };
        let port: u16 = port.parse().ok()?;
        // RTCP has the next.
        let good = port > 0 && port < u16::MAX;
        Some(Told { node: NodeId(node.parse().ok()?), port }).filter(|_| good)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {}", self.node.0, self.port)
    }
}

/// Why media can't be sent where a description wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Not one host's.
    #[error("media are wanted at {0}, which is no single host's address")]
    Address(IpAddr),
    /// Of IPv6 where this gateway has only IPv4, or the other way round.
    #[error("media are wanted at {0}: this gateway has no media address of that family")]
    Family(IpAddr),
    /// Where other services are.
    #[error("media are wanted at port {0}: below 1,024 are other services")]
    Port(u16),
    /// Where signalling is taken for the gateway's own, or another gateway is.
    #[error("media are wanted at {0}, where they could be taken for this gateway's signalling")]
    Signalling(SocketAddr),
    /// Where another gateway is, and who says so isn't trusted.
    #[error(
        "media are wanted at {0}, which [sip] trust names, by a message from a host that it \
         doesn't name: add that host, if it is a proxy between two gateways"
    )]
    Trusted(SocketAddr),
    /// They would come back, for ever.
    #[error("media are wanted at {0}, from where they would come back")]
    Loop(SocketAddr),
    /// They would go round in this gateway before they leave it.
    #[error("media are wanted at {0}: they would pass this gateway too often")]
    Chain(SocketAddr),
}

impl Remote {
    /// Who a description says is there; it came from `source`, if that is who wrote it.
    /// `own` is where media of this gateway are wanted.
    pub(crate) fn of(
        stream: &sdp::Media<'_>,
        source: Option<IpAddr>,
        own: &[IpAddr],
    ) -> Result<Remote, Unfit> {
        let host = match stream.host {
            Host::Address(ip) if ip.is_unspecified() => None,
            Host::Address(ip) => Some(check(ip, own)?),
            // Learned from its packets, if it is who sent this.
            Host::Name(_) => None,
        };
        if stream.port < 1_024 {
            return Err(Unfit::Port(stream.port));
        }
        let next = if stream.rtcp_mux { stream.port } else { stream.port.saturating_add(1) };
        let rtcp = match stream.rtcp {
            Some((port, Some(Host::Address(ip)))) => Some((check(ip, own)?, port)),
            Some((port, _)) => host.map(|ip| (ip, port)),
            None => host.map(|ip| (ip, next)),
        };
        Ok(Remote::Udp {
            rtp: host.map(|ip| SocketAddr::new(ip, stream.port)),
            rtcp: rtcp.filter(|(_, port)| *port >= 1_024).map(SocketAddr::from),
            from: [host, source.map(|ip| ip.to_canonical()).filter(|ip| Some(*ip) != host)],
        })
    }
}

/// Whether `ip` is some host's. This machine's own are wanted by those of it alone.
fn check(ip: IpAddr, own: &[IpAddr]) -> Result<IpAddr, Unfit> {
    let inside = ip.to_canonical().is_loopback() && !own.iter().any(IpAddr::is_loopback);
    let is_reached = own.iter().any(|own| own.is_ipv4() == ip.to_canonical().is_ipv4());
    match is_nobodys(ip) || inside {
        true => Err(Unfit::Address(ip)),
        false if !is_reached => Err(Unfit::Family(ip)),
        false => Ok(ip),
    }
}

/// Whether an address is no single host's that others can find.
pub(crate) fn is_nobodys(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let reserved = match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.octets()[0] >= 224,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    ip.is_unspecified() || ip.is_multicast() || reserved
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_sip::sdp::Sdp;

    fn remote(host: &str, media: &str, own: &str) -> Result<Remote, Unfit> {
        let text = format!("v=0\r\nc={host}\r\nm=audio {media}\r\n");
        let sdp = Sdp::parse(text.as_bytes()).unwrap();
        Remote::of(&sdp.media()[0], Some([192, 0, 2, 9].into()), &[own.parse().unwrap()])
    }

    fn udp(rtp: Option<&str>, rtcp: Option<&str>, from: &[&str]) -> Remote {
        let ip = |n: usize| from.get(n).and_then(|ip| ip.parse().ok());
        let address = |text: &str| text.parse().unwrap();
        Remote::Udp { rtp: rtp.map(address), rtcp: rtcp.map(address), from: [ip(0), ip(1)] }
    }

    #[test]
    fn descriptions_say_who_is_there() {
        let at = |media: &str| remote("IN IP4 192.0.2.1", media, "192.0.2.5").unwrap();
        let both = &["192.0.2.1", "192.0.2.9"];
        let rtp = Some("192.0.2.1:5004");
        assert_eq!(at("5004 RTP/AVP 0"), udp(rtp, Some("192.0.2.1:5005"), both));
        assert_eq!(at("5004 RTP/AVP 0\r\na=rtcp-mux"), udp(rtp, Some("192.0.2.1:5004"), both));
        assert_eq!(
            at("5004 RTP/AVP 0\r\na=rtcp:7000 IN IP4 192.0.2.2"),
            udp(rtp, Some("192.0.2.2:7000"), both)
        );
        assert_eq!(at("5004 RTP/AVP 0\r\na=rtcp:53"), udp(rtp, None, both));
        let held = remote("IN IP4 0.0.0.0", "5004 RTP/AVP 0", "192.0.2.5").unwrap();
        let Remote::Udp { rtp: None, rtcp: None, from: [None, Some(_)] } = held else {
            panic!("{held:?}")
        };
        assert_eq!(remote("IN IP4 h.example", "5004 RTP/AVP 0", "192.0.2.5"), Ok(held));
    }

    #[test]
    fn nobody_is_at_some_places() {
        for host in [
            "IP4 224.0.0.1/8",
            "IP4 255.255.255.255",
            "IP4 127.0.0.1",
            "IP6 ff02::1",
            "IP6 ::1",
            "IP4 0.0.0.7",
        ] {
            let found = remote(&format!("IN {host}"), "5004 RTP/AVP 0", "192.0.2.5");
            assert!(matches!(found, Err(Unfit::Address(_))), "{host}: {found:?}");
        }
        assert_eq!(remote("IN IP4 192.0.2.1", "53 RTP/AVP 0", "192.0.2.5"), Err(Unfit::Port(53)));
        assert!(remote("IN IP4 127.0.0.1", "5004 RTP/AVP 0", "127.0.0.1").is_ok());
        let other = remote("IN IP6 2001:db8::1", "5004 RTP/AVP 0", "192.0.2.5");
        assert_eq!(other, Err(Unfit::Family("2001:db8::1".parse().unwrap())));
        assert!(remote("IN IP6 2001:db8::1", "5004 RTP/AVP 0", "2001:db8::5").is_ok());
    }

    #[test]
    fn what_gateways_tell_each_other() {
        let told = Told { node: NodeId(7), port: 30_000 };
        assert_eq!(told.to_string(), "1 7 30000");
        assert_eq!(Told::parse(b"1 7 30000"), Some(told));
        for bad in [
            &b""[..],
            b"2 7 30000",
            b"1 7",
            b"1 7 0",
            b"1 7 65535",
            b"1 7 8 9",
            b"1 -7 8",
            b"1  7 8",
            b"1 7 \xff",
        ] {
            assert_eq!(Told::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
