//! Media ports of calls, and the remote ends that they are joined to.

use crate::calls::CallId;
use crate::config::Network;
use crate::reception::Clocks;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use trunkline_overlay::wire::NodeId;
use trunkline_sip::sdp::{self, Direction, Host, Rtcp};

/// The other end of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Not known yet, or the stream isn't wanted.
    Nobody,
    /// A phone, or another relay.
    Udp {
        /// Address for its RTP; `None` if it is unknown until a packet arrives, or if the phone
        /// wants none.
        rtp: Option<SocketAddr>,
        /// Address for its RTCP, if known.
        rtcp: Option<SocketAddr>,
        /// Addresses that its packets may come from: the first such packet gives its address.
        from: [Option<IpAddr>; 2],
    },
    /// Another gateway, reached over the overlay.
    Overlay {
        /// The other gateway's node.
        node: NodeId,
        /// The gateway's virtual port for RTP; the next one is for RTCP.
        port: u16,
    },
}

/// One leg of a stream: a port, and its remote end. Packets that arrive at the port leave at the
/// port of the stream's other leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The call that the stream belongs to.
    pub call: CallId,
    /// The port of the other leg.
    pub onto: u16,
    /// The remote end of this leg.
    pub remote: Remote,
    /// Number of session descriptions that the remote end has sent; see [`crate::Latch::describe`].
    pub described: u32,
    /// Rules for the network that the remote end is in.
    pub network: Arc<Network>,
    /// Whether the remote end should send, by the descriptions of both ends.
    pub sends: bool,
    /// Whether the virtual port of this number was offered to another gateway.
    pub told: bool,
    /// Whether only RTP, RTCP and the protocols that set up their paths and keys are accepted (RFC
    /// 7983). Other datagrams, such as SIP, would pass for this gateway's own messages at their
    /// destination.
    pub is_rtp: bool,
    /// Whether the media are encrypted end to end.
    pub is_encrypted: bool,
    /// Clock rates of its payload types.
    pub clocks: Clocks,
}

/// Whether a datagram is RTP, RTCP, STUN, ZRTP or DTLS, judged by its first byte (RFC 7983, 7).
pub fn is_media(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(0..=3 | 16..=19 | 20..=63 | 128..=191))
}

/// The directions that a description allows for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Whether its author sends.
    pub sends: bool,
    /// Whether its author wants to receive.
    pub wants: bool,
}

impl Flow {
    pub const BOTH: Flow = Flow { sends: true, wants: true };

    /// The directions of a described stream. The unspecified address means hold, too (RFC 3264,
    /// 8.4).
    pub fn of(stream: &sdp::Media<'_>) -> Flow {
        let is_held = matches!(stream.host, Host::Address(ip) if ip.is_unspecified());
        let (sends, wants) = match stream.direction {
            Direction::SendRecv => (true, true),
            Direction::SendOnly => (true, false),
            Direction::RecvOnly => (false, true),
            Direction::Inactive => (false, false),
        };
        Flow { sends, wants: wants && !is_held }
    }
}

/// Manages the ports that a gateway decides on: UDP ports, and virtual ports of the same numbers.
pub trait Media {
    /// Opens the UDP ports `port` and `port` + 1; false if they are not available.
    fn open(&mut self, port: u16) -> bool;
    /// Joins the ports `port` and `port` + 1 as `relay` says, in place of any earlier join.
    fn relay(&mut self, port: u16, relay: &Relay);
    /// Closes the UDP ports `port` and `port` + 1.
    fn close(&mut self, port: u16);
    /// Whether a new call's media may be sent to `node`: false while a trunk there exceeds its share.
    fn admits(&self, node: NodeId) -> bool;
    /// Address of this machine that packets to `remote` come from; `None` if there is no route.
    fn local(&self, remote: IpAddr) -> Option<IpAddr>;
    /// Whether this node has a route to `node`. With link-state routing, it has routes only to
    /// nodes with a known key.
    fn knows(&self, node: NodeId) -> bool;
}

/// Name of the SDP attribute by which gateways advertise virtual ports.
pub(crate) const ATTRIBUTE: &str = "x-trunkline";

/// Value of the attribute: `1 NODE PORT`, where the first number is its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverlayCandidate {
    pub node: NodeId,
    pub port: u16,
}

impl OverlayCandidate {
    /// Parses the attribute; one that isn't understood counts as absent.
    pub fn parse(value: &[u8]) -> Option<OverlayCandidate> {
        let mut words = core::str::from_utf8(value).ok()?.split(' ');
        let ("1", node, port, None) = (words.next()?, words.next()?, words.next()?, words.next())
        else {
            return None;
        };
        let port: u16 = port.parse().ok()?;
        // The next port is for RTCP.
        let good = port > 0 && port < u16::MAX;
        Some(OverlayCandidate { node: NodeId(node.parse().ok()?), port }).filter(|_| good)
    }
}

impl fmt::Display for OverlayCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {}", self.node.0, self.port)
    }
}

/// Reasons for which media can't be sent to the address in a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaRejected {
    /// The address is not a single host's.
    #[error("media are wanted at {0}, which is not a single host's address")]
    Address(IpAddr),
    /// The address is IPv6 and this gateway has only IPv4, or the reverse.
    #[error("media are wanted at {0}: this gateway has no media address of that family")]
    Family(IpAddr),
    /// The port belongs to the range of other services.
    #[error("media are wanted at port {0}: ports below 1,024 are for other services")]
    Port(u16),
    /// The address accepts signalling from this gateway.
    #[error("media are wanted at {0}, where they could pass for this gateway's signalling")]
    Signalling(SocketAddr),
    /// The address is another gateway's, and the sender of the description isn't trusted.
    #[error(
        "media are wanted at {0}, which is in [sip] trust, by a message from a host that is \
         not: add that host, if it is a proxy between two gateways"
    )]
    Trusted(SocketAddr),
    /// The media would come back endlessly.
    #[error("media are wanted at {0}, from which they would come back")]
    Loop(SocketAddr),
    /// The media would pass this gateway too often before they leave it.
    #[error("media are wanted at {0}: they would pass this gateway too often")]
    Chain(SocketAddr),
}

impl Remote {
    /// The remote end in a description. `source` is the address that the description came from, if
    /// its author sent it directly. `own` are this gateway's addresses for media.
    pub(crate) fn of(
        stream: &sdp::Media<'_>,
        source: Option<IpAddr>,
        own: &[IpAddr],
    ) -> Result<Remote, MediaRejected> {
        let host = match stream.host {
            Host::Address(ip) if ip.is_unspecified() => None,
            Host::Address(ip) => Some(check(ip, own)?),
            // The address is learned from packets of the description's sender.
            Host::Name(_) => None,
        };
        // Nothing is sent to a stream on hold, so that some write port 9, "discard".
        let is_silent = matches!(stream.direction, Direction::Inactive | Direction::SendOnly);
        let host_of_rtp = host.filter(|_| stream.port >= 1_024);
        if stream.port < 1_024 && host.is_some() && !is_silent {
            return Err(MediaRejected::Port(stream.port));
        }
        let next = if stream.rtcp_mux { stream.port } else { stream.port.saturating_add(1) };
        // RTCP that can't be sent isn't sent, and the call continues.
        let rtcp = match stream.rtcp {
            Rtcp::At(port, Some(Host::Address(ip))) => check(ip, own).ok().map(|ip| (ip, port)),
            Rtcp::At(port, _) => host.map(|ip| (ip, port)),
            Rtcp::Next => host.map(|ip| (ip, next)),
            Rtcp::Nowhere => None,
        };
        Ok(Remote::Udp {
            rtp: host_of_rtp.map(|ip| SocketAddr::new(ip, stream.port)),
            rtcp: rtcp.filter(|(_, port)| *port >= 1_024).map(SocketAddr::from),
            from: [host, source.map(|ip| ip.to_canonical()).filter(|ip| Some(*ip) != host)],
        })
    }
}

/// Checks that `ip` is a single host's, and of a family that this gateway has. A loopback address
/// is accepted only by a gateway that receives media on loopback.
fn check(ip: IpAddr, own: &[IpAddr]) -> Result<IpAddr, MediaRejected> {
    let inside = ip.to_canonical().is_loopback() && !own.iter().any(IpAddr::is_loopback);
    let is_reached = own.iter().any(|own| own.is_ipv4() == ip.to_canonical().is_ipv4());
    match is_nobodys(ip) || inside {
        true => Err(MediaRejected::Address(ip)),
        false if !is_reached => Err(MediaRejected::Family(ip)),
        false => Ok(ip),
    }
}

/// Whether an address is not that of a single host that others can reach.
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

    fn remote(host: &str, media: &str, own: &str) -> Result<Remote, MediaRejected> {
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
    fn rtcp_that_cannot_be_sent_costs_no_call() {
        let at = |media: &str| remote("IN IP4 192.0.2.1", media, "192.0.2.5").unwrap();
        let both = &["192.0.2.1", "192.0.2.9"];
        let nowhere = udp(Some("192.0.2.1:5004"), None, both);
        for rtcp in ["", "x", "9 IN IP4 0.0.0.0", "4001 IN IP4 127.0.0.1", "4001 IN IP6 ::1"] {
            assert_eq!(at(&format!("5004 RTP/AVP 0\r\na=rtcp:{rtcp}")), nowhere, "{rtcp:?}");
        }
        let spaced = udp(Some("192.0.2.1:5004"), Some("192.0.2.1:4001"), both);
        assert_eq!(at("5004 RTP/AVP 0\r\na=rtcp:4001 "), spaced);
        for direction in ["inactive", "sendonly"] {
            let held = at(&format!("9 RTP/AVP 0\r\na={direction}"));
            assert_eq!(held, udp(None, None, both), "{direction}");
        }
        let wanted = remote("IN IP4 192.0.2.1", "9 RTP/AVP 0", "192.0.2.5");
        assert_eq!(wanted, Err(MediaRejected::Port(9)));
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
            assert!(matches!(found, Err(MediaRejected::Address(_))), "{host}: {found:?}");
        }
        assert_eq!(
            remote("IN IP4 192.0.2.1", "53 RTP/AVP 0", "192.0.2.5"),
            Err(MediaRejected::Port(53))
        );
        assert!(remote("IN IP4 127.0.0.1", "5004 RTP/AVP 0", "127.0.0.1").is_ok());
        let other = remote("IN IP6 2001:db8::1", "5004 RTP/AVP 0", "192.0.2.5");
        assert_eq!(other, Err(MediaRejected::Family("2001:db8::1".parse().unwrap())));
        assert!(remote("IN IP6 2001:db8::1", "5004 RTP/AVP 0", "2001:db8::5").is_ok());
    }

    #[test]
    fn what_gateways_tell_each_other() {
        let told = OverlayCandidate { node: NodeId(7), port: 30_000 };
        assert_eq!(told.to_string(), "1 7 30000");
        assert_eq!(OverlayCandidate::parse(b"1 7 30000"), Some(told));
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
            assert_eq!(OverlayCandidate::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
