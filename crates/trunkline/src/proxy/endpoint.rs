//! The two ends of a proxy, as written by users.

use crate::call::line::Target;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::str::FromStr;
use trunkline_client::{Address, NodeId};

/// Maximum number of ports in an endpoint: RTP and RTCP of 32 calls. Each port that the proxy
/// listens on is a socket or a session of the node.
const MAX_PORTS: usize = 64;

/// One end of a proxy: UDP or TCP ports of a host, or virtual ports of a node; one, or a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub place: EndpointHost,
    first: u16,
    last: u16,
}

/// Location of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointHost {
    /// A host by name or IP address, reached by UDP.
    Udp(String),
    /// A host by name or IP address, reached by TCP.
    Tcp(String),
    /// A node of the overlay.
    Node(NodeId),
}

impl Endpoint {
    /// Number of ports, at least 1.
    pub fn len(&self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Returns its ports as addresses, in order; a name is looked up.
    ///
    /// # Errors
    /// The look-up failed.
    pub fn targets(&self) -> io::Result<Vec<Target>> {
        let ports = self.first..=self.last;
        match &self.place {
            EndpointHost::Node(node) => {
                Ok(ports.map(|port| Target::Overlay(Address { node: *node, port })).collect())
            }
            EndpointHost::Udp(_) | EndpointHost::Tcp(_) => {
                let mut address = *self.hosts()?.first().ok_or(io::ErrorKind::NotFound)?;
                let at = |port| {
                    address.set_port(port);
                    Target::Udp(address)
                };
                Ok(ports.map(at).collect())
            }
        }
    }

    /// Returns all addresses of its host, with its first port; a name is looked up. A node has
    /// none.
    ///
    /// # Errors
    /// The look-up failed.
    pub fn hosts(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.place {
            EndpointHost::Node(_) => Ok(Vec::new()),
            EndpointHost::Udp(host) | EndpointHost::Tcp(host) => {
                Ok((host.as_str(), self.first).to_socket_addrs()?.collect())
            }
        }
    }

    /// The UDP, TCP or virtual ports of this endpoint: one, or a range.
    pub fn ports(&self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    let fits = first > 0 && first <= last && usize::from(last - first) < MAX_PORTS;
    fits.then_some((first, last))
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let parse = || {
            let host: Option<fn(String) -> EndpointHost> = match text.get(..4) {
                Some("udp:") => Some(EndpointHost::Udp),
                Some("tcp:") => Some(EndpointHost::Tcp),
                _ => None,
            };
            let (name, numbers) = text[if host.is_some() { 4 } else { 0 }..].rsplit_once(':')?;
            let (first, last) = ports(numbers)?;
            let place = match host {
                None => EndpointHost::Node(NodeId(name.parse().ok()?)),
                Some(place) => {
                    // Brackets separate the colons of an IPv6 address from the port's.
                    let bare = name.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
                    if name.is_empty() || (bare.is_none() && name.contains(':')) {
                        return None;
                    }
                    place(bare.unwrap_or(name).to_owned())
                }
            };
            Some(Endpoint { place, first, last })
        };
        parse().ok_or_else(|| {
            format!(
                "\"{text}\" is neither udp:HOST:PORT or tcp:HOST:PORT (\"udp:127.0.0.1:5004\") nor \
                 NODE:PORT (\"6:5004\"); ports are 1 to 65535, or up to {MAX_PORTS} of them as in \"5004-5005\""
            )
        })
    }
}

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            EndpointHost::Udp(host) => write!(f, "udp:{}:{}", bracketed(host), self.first)?,
            EndpointHost::Tcp(host) => write!(f, "tcp:{}:{}", bracketed(host), self.first)?,
            EndpointHost::Node(node) => write!(f, "{node}:{}", self.first)?,
        }
        if self.len() > 1 { write!(f, "-{}", self.last) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for (text, place, len) in [
            ("udp:127.0.0.1:5004", EndpointHost::Udp("127.0.0.1".into()), 1),
            ("udp:[::1]:5004-5005", EndpointHost::Udp("::1".into()), 2),
            ("udp:phone.example:1-64", EndpointHost::Udp("phone.example".into()), 64),
            ("tcp:[::1]:80", EndpointHost::Tcp("::1".into()), 1),
            ("tcp:www.example:8000-8001", EndpointHost::Tcp("www.example".into()), 2),
            ("6:5004", EndpointHost::Node(NodeId(6)), 1),
            ("4294967295:65535", EndpointHost::Node(NodeId(u32::MAX)), 1),
            ("6:5004-5005", EndpointHost::Node(NodeId(6)), 2),
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!((&endpoint.place, endpoint.len()), (&place, len), "{text}");
            assert_eq!(endpoint.to_string(), text);
        }
        let two: Endpoint = "udp:[::1]:5004-5005".parse().expect("two ports");
        let addresses: Vec<_> =
            two.targets().expect("an address").iter().map(Target::to_string).collect();
        assert_eq!(addresses, ["[::1]:5004", "[::1]:5005"]);
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for text in [
            "",
            "udp:",
            "6",
            "6:",
            ":5004",
            "6:0",
            "6:65536",
            "6:5-4",
            "6:1-65",
            "6:4-",
            "a:4",
            "-1:4",
            "4294967296:1",
            "udp:5004",
            "udp::5004",
            "udp:::1:5004",
            "udp:host:0",
            "127.0.0.1:5004",
            "tcp:127.0.0.1",
            "tcp:::1:5004",
            "sctp:127.0.0.1:1",
        ] {
            let why = text.parse::<Endpoint>().expect_err(text);
            assert!(why.contains("NODE:PORT"), "{why}");
        }
    }
}
