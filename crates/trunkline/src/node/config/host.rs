//! Addresses of neighbours: a number, or a name that is looked up while the node runs.

use serde::Deserialize;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A name with a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host {
    /// The name: of a machine, or a link-local address with the name of its interface.
    pub name: String,
    /// UDP port, not 0.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone() {
            Some(_) => write!(f, "[{}]:{}", self.name, self.port),
            None => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl Host {
    /// The link-local address and the interface, if the name is `fe80::1%eth0`.
    pub fn zone(&self) -> Option<(Ipv6Addr, &str)> {
        let (ip, interface) = self.name.split_once('%')?;
        Some((ip.parse().ok()?, interface))
    }
}

/// The address of a neighbour, as written in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// An address in numbers.
    Number(SocketAddr),
    /// A name to look up.
    Name(Host),
}

impl Address {
    /// The address, unless it is a name.
    pub fn number(&self) -> Option<SocketAddr> {
        match self {
            Address::Number(address) => Some(*address),
            Address::Name(_) => None,
        }
    }

    /// Whether it is an IPv6 address; `None` if that is not known before a lookup.
    pub fn is_ipv6(&self) -> Option<bool> {
        match self {
            Address::Number(address) => Some(address.is_ipv6()),
            Address::Name(host) => host.zone().map(|_| true),
        }
    }

    /// The name of its interface, if it is a link-local address with one.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Address::Number(_) => None,
            Address::Name(host) => host.zone().map(|(_, interface)| interface),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Ok(address) = text.parse() {
            return Ok(Address::Number(address));
        }
        let shape = "give an address or a name, and a port: \"192.0.2.1:7000\", \
                     \"[2001:db8::1]:7000\", \"relay.example.net:7000\"";
        let no = |why: &str| Err(format!("address {text:?} {why}; {shape}"));
        let Some((name, port)) = text.rsplit_once(':') else { return no("has no port") };
        let port = match port.parse() {
            Ok(port) if port > 0 && !text.contains(":+") => port,
            _ => return no("has no port from 1 to 65535"),
        };
        let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = Host { name: bracketed.unwrap_or(name).to_owned(), port };
        match (bracketed, host.zone()) {
            (Some(_), Some((ip, interface))) => match ip.is_unicast_link_local() {
                true if is_interface(interface) => Ok(Address::Name(host)),
                true => no("has no interface after the %"),
                false => no("has an interface, which only a link-local address has"),
            },
            (Some(_), None) => no("is no IPv6 address"),
            (None, _) if name.starts_with("udp:") || name.starts_with("tcp:") => {
                no("begins with a protocol: links use UDP, so leave it out")
            }
            (None, _) if name.contains(':') => no("is IPv6 without brackets"),
            (None, _) => match not_a_name(name) {
                Some(why) => no(why),
                None => Ok(Address::Name(host)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether a network interface may have this name (IFNAMSIZ in Linux).
pub fn is_interface(name: &str) -> bool {
    (1..16).contains(&name.len()) && !name.contains(['/', ' ', '\0'])
}

/// Reason why no machine has this name (RFC 1123, 2.1), if there is one.
fn not_a_name(name: &str) -> Option<&'static str> {
    let labels = || name.strip_suffix('.').unwrap_or(name).split('.');
    let is_label = |label: &str| {
        let allowed = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        (1..64).contains(&label.len()) && label.chars().all(allowed)
    };
    if name.is_empty() {
        Some("has no name")
    } else if name.len() > 253 || !labels().all(is_label) {
        Some("has a name that no machine can have")
    } else if labels().next_back().is_some_and(|label| label.chars().all(|c| c.is_ascii_digit())) {
        Some("looks like an IPv4 address, but is none")
    } else {
        None
    }
}

/// Reason why `address` can't be that of a node, if there is one.
pub fn nobodys(address: SocketAddr) -> Option<&'static str> {
    let why = match (address, address.ip()) {
        (_, ip) if ip.is_unspecified() || ip.is_multicast() => "is not a single machine's",
        (_, IpAddr::V4(ip)) if ip.is_broadcast() => "is not a single machine's",
        (_, IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            "is of IPv4: write it as \"192.0.2.1:7000\""
        }
        (SocketAddr::V6(a), IpAddr::V6(ip)) if ip.is_unicast_link_local() && a.scope_id() == 0 => {
            "is link-local: add the number of its interface (`ip link`), \"[fe80::1%2]:7000\""
        }
        _ if address.port() == 0 => "has no port",
        _ => return None,
    };
    Some(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_number_or_a_name() {
        for number in ["192.0.2.1:7000", "[2001:db8::1]:7000", "[fe80::1%3]:7000"] {
            assert!(number.parse::<Address>().unwrap().number().is_some(), "{number}");
        }
        let long = format!("{}.example:7000", "a".repeat(63));
        for name in [
            "relay.example.net:7000",
            "relay:1",
            "a_b.example.:65535",
            "[fe80::1%eth0]:7000",
            &long,
        ] {
            let Ok(Address::Name(host)) = name.parse() else { panic!("{name}") };
            assert_eq!(host.to_string(), name);
        }
        for (text, why) in [
            ("relay.example.net", "has no port;"),
            ("relay.example.net:0", "has no port from 1 to 65535"),
            ("relay.example.net:70000", "has no port from 1 to 65535"),
            (":7000", "has no name"),
            ("relay..net:7000", "a name that no machine can have"),
            ("two words:7000", "a name that no machine can have"),
            ("192.0.2.300:7000", "looks like an IPv4 address, but is none"),
            ("2001:db8::1:7000", "is IPv6 without brackets"),
            ("[relay]:7000", "is no IPv6 address"),
            ("[fe80::1%]:7000", "has no interface after the %"),
            ("[2001:db8::1%eth0]:7000", "only a link-local address has"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }
}
