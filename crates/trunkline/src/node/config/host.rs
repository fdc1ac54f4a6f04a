//! Addresses of neighbours: a number, or a name that is looked up while the node runs.

use crate::addresses;
use hickory_resolver::proto::rr::Name;
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
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

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Number(address) => address.fmt(f),
            Address::Name(host) => host.fmt(f),
        }
    }
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

    /// The form that two spellings of one address share.
    pub fn canonical(&self) -> Canonical {
        let of_zone = |host: &Host| {
            let (ip, interface) = host.zone()?;
            let index = if_nametoindex(interface).ok()?;
            Some(SocketAddr::V6(SocketAddrV6::new(ip, host.port, 0, index)))
        };
        match self {
            Address::Number(SocketAddr::V6(a)) if a.ip().is_unicast_link_local() => {
                Canonical::Number(SocketAddr::V6(*a))
            }
            Address::Number(a) => {
                Canonical::Number(SocketAddr::new(a.ip().to_canonical(), a.port()))
            }
            Address::Name(host) => of_zone(host).map_or_else(
                || Canonical::Name(canonical_name(&host.name), host.port),
                Canonical::Number,
            ),
        }
    }

    /// Whether it names the interface that leads to it, as a link-local address does.
    pub fn has_zone(&self) -> bool {
        let has_scope = |a: SocketAddr| matches!(a, SocketAddr::V6(a) if a.scope_id() != 0);
        self.zone().is_some() || self.number().is_some_and(has_scope)
    }

    /// The name of its interface, if it is a link-local address with one.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Address::Number(_) => None,
            Address::Name(host) => host.zone().map(|(_, interface)| interface),
        }
    }
}

/// An address in a form that can be compared: a name in small letters without the dot at its end, and
/// an interface by its index if this machine has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Canonical {
    /// An address in numbers.
    Number(SocketAddr),
    /// A name and a port.
    Name(String, u16),
}

impl Canonical {
    /// The address, unless it is a name.
    pub fn number(&self) -> Option<SocketAddr> {
        match self {
            Canonical::Number(address) => Some(*address),
            Canonical::Name(..) => None,
        }
    }
}

fn canonical_name(name: &str) -> String {
    // A name in other letters has a form in ASCII (RFC 5891).
    let ascii = Name::from_utf8(name).map_or_else(|_| name.to_owned(), |name| name.to_ascii());
    let small = ascii.to_ascii_lowercase();
    small.strip_suffix('.').unwrap_or(&small).to_owned()
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
            (Some(_), Some((ip, _))) if ip.is_multicast() => {
                no("is not a single machine's, but multicast")
            }
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

/// Owner of a checked address, on which the advice depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// A neighbour's, in `[[link]] address`.
    Neighbour,
    /// This node's, in `[node] listen`.
    Listener,
    /// This node's, in `[[link]] source`.
    Source,
}

impl Whose {
    fn cure(self) -> &'static str {
        match self {
            Whose::Neighbour => "give the address where the neighbour listens",
            Whose::Listener => {
                "give an address of this machine, or 0.0.0.0 or [::] for all of its IP version"
            }
            Whose::Source => "give an address of this machine (`ip address` lists them)",
        }
    }
}

/// Reason why `address` can't be that of a node, and what to write, if there is one.
pub fn nobodys(address: SocketAddr, whose: Whose) -> Option<String> {
    let port = address.port();
    if let Some(why) = nobodys_ip(address.ip(), whose) {
        return Some(match v4_of(address.ip()) {
            Some(v4) => format!("is of IPv4: write it as \"{v4}:{port}\""),
            None => why,
        });
    }
    match address {
        SocketAddr::V6(a) if a.ip().is_unicast_link_local() && a.scope_id() == 0 => Some(format!(
            "is link-local: add the name of its interface (`ip link` lists them), \
             \"[{}%eth0]:{port}\"",
            a.ip()
        )),
        _ if port == 0 => Some(
            "has port 0, which nobody can use: give the port where the neighbour listens".into(),
        ),
        _ => None,
    }
}

/// Reason why `ip` can't be that of a node, and what to write, if there is one.
pub fn nobodys_ip(ip: IpAddr, whose: Whose) -> Option<String> {
    if let Some(v4) = v4_of(ip) {
        return Some(format!("is of IPv4: write it as \"{v4}\""));
    }
    let cause = match ip {
        _ if ip.is_unspecified() => "is not a single machine's: it stands for all of its addresses",
        _ if ip.is_multicast() => "is not a single machine's, but multicast",
        IpAddr::V4(v4) if v4.is_broadcast() => "is not a single machine's, but broadcast",
        IpAddr::V4(v4) if v4.octets()[0] == 0 => "is no machine's, like all that begin with 0",
        _ => return None,
    };
    Some(format!("{cause}; {}", whose.cure()))
}

/// The IPv4 address that is written as an IPv6 address, `::ffff:192.0.2.1`.
fn v4_of(ip: IpAddr) -> Option<std::net::Ipv4Addr> {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    }
}

/// Reads `source`, an address without a port.
pub fn source<'de, D: Deserializer<'de>>(from: D) -> Result<Option<IpAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |_| format!("source {text:?} {}", not_a_source(&text));
    text.parse().map(Some).map_err(wrong).map_err(serde::de::Error::custom)
}

/// Reason why `text` is no `source`, and what to write.
fn not_a_source(text: &str) -> String {
    let port = "packets leave from the port in [node] listen";
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (ip, rest) = bracketed.unwrap_or((text, ""));
    match (text.parse::<SocketAddr>(), ip.split_once('%')) {
        (_, Some((ip, zone))) if ip.parse::<Ipv6Addr>().is_ok() => {
            let name = zone.parse().ok().and_then(addresses::interface_name);
            let name = name.as_deref().unwrap_or(zone);
            format!("has an interface: write source = \"{ip}\" and interface = \"{name}\"")
        }
        (Ok(address), _) => format!("has a port: write \"{}\", since {port}", address.ip()),
        _ if ip.parse::<Ipv6Addr>().is_ok() && rest.is_empty() => {
            format!("has brackets: write \"{ip}\"")
        }
        _ => "is no IP address: give one of this machine, such as \"192.0.2.1\" or \
              \"2001:db8::1\" (`ip address` lists them); names are not looked up"
            .into(),
    }
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
            ("[ff02::1%p1]:7000", "is not a single machine's, but multicast; give an address"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn spellings_of_one_address_are_equal() {
        let canonical = |text: &str| text.parse::<Address>().unwrap().canonical();
        for (one, other) in [
            ("b.example:7000", "B.EXAMPLE.:7000"),
            ("bücher.example:7000", "xn--bcher-kva.example:7000"),
            ("[fe80::1%lo]:7000", "[FE80:0::1%1]:7000"),
            ("[fe80::1%none-such]:7000", "[fe80::1%none-such]:7000"),
            ("[::ffff:192.0.2.1]:7000", "192.0.2.1:7000"),
            ("[2001:db8::1%1]:7000", "[2001:db8:0::1]:7000"),
        ] {
            assert_eq!(canonical(one), canonical(other), "{one} and {other}");
        }
        for (one, other) in [
            ("b.example:7000", "b.example:7001"),
            ("[fe80::1%lo]:7000", "[fe80::1%2]:7000"),
            ("b.example:7000", "bb.example:7000"),
        ] {
            assert_ne!(canonical(one), canonical(other), "{one} and {other}");
        }
    }

    #[test]
    fn an_address_that_is_nobodys_has_a_cause_and_a_cure() {
        let why = |text: &str| nobodys(text.parse().unwrap(), Whose::Neighbour);
        let neighbours = "give the address where the neighbour listens";
        for (text, says) in [
            ("0.0.0.0:7000", neighbours),
            ("[::]:7000", neighbours),
            ("0.1.2.3:7000", "is no machine's, like all that begin with 0; give the address where"),
            ("224.0.0.1:7000", "but multicast; give the address where the neighbour listens"),
            ("[ff02::1%1]:7000", "but multicast; give"),
            ("255.255.255.255:7000", "but broadcast; give"),
            ("192.0.2.1:0", "has port 0, which nobody can use: give the port where"),
            ("[::ffff:10.1.0.1]:7001", "write it as \"10.1.0.1:7001\""),
            (
                "[fe80::7]:7001",
                "add the name of its interface (`ip link` lists them), \"[fe80::7%eth0]:7001\"",
            ),
        ] {
            let why = why(text).expect(text);
            assert!(why.contains(says), "{text} {why}");
        }
        for good in ["192.0.2.1:7000", "[fe80::1%1]:7000", "127.0.0.1:1", "[2001:db8::1]:7000"] {
            assert_eq!(why(good), None);
        }
    }

    #[test]
    fn what_is_no_source_is_told_how_to_be_one() {
        for (text, says) in [
            ("10.1.0.1:7000", "has a port: write \"10.1.0.1\""),
            ("[2001:db8::1]:7000", "has a port: write \"2001:db8::1\""),
            ("fe80::2%p1", "write source = \"fe80::2\" and interface = \"p1\""),
            ("fe80::2%1", "write source = \"fe80::2\" and interface = \"lo\""),
            ("[fe80::2%p1]:7000", "write source = \"fe80::2\" and interface = \"p1\""),
            ("[fe80::2]", "has brackets: write \"fe80::2\""),
            ("relay.example", "is no IP address: give one of this machine"),
            ("", "is no IP address: give one of this machine"),
        ] {
            let why = not_a_source(text);
            assert!(why.contains(says), "{text} {why}");
        }
    }
}
