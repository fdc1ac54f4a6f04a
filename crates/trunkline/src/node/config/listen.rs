//! Addresses of this node: those that it listens at.

use super::host::{Address, Whose, nobodys};
use super::mistake::Place;
use super::{Config, Wrong};
use nix::net::if_::if_nametoindex;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Maximum number of addresses to listen at: each has an uplink of its own.
const MAX_LISTEN: usize = 16;

/// Index of an interface that this machine does not have.
const NO_INTERFACE: u32 = u32::MAX;

/// An address and a port; the interface of a link-local one is a name or an index.
struct Own(SocketAddr);

struct OwnVisitor;

impl Visitor<'_> for OwnVisitor {
    type Value = Own;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address and a port, \"192.0.2.1:7000\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Own, E> {
        // The description is that of serde for this type.
        let no = || E::custom("invalid socket address syntax");
        match text.parse() {
            Ok(Address::Number(address)) => Ok(Own(address)),
            Ok(Address::Name(host)) => {
                let (ip, interface) = host.zone().ok_or_else(no)?;
                let index = if_nametoindex(interface).unwrap_or(NO_INTERFACE);
                Ok(Own(SocketAddrV6::new(ip, host.port, 0, index).into()))
            }
            // The address is checked with the others.
            Err(_) => multicast(text).map(Own).ok_or_else(no),
        }
    }
}

/// The address, if it is a multicast one with an interface.
fn multicast(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let ip: Ipv6Addr = ip.split_once('%')?.0.parse().ok()?;
    ip.is_multicast().then_some(SocketAddr::new(ip.into(), port.parse().ok()?))
}

impl<'de> Deserialize<'de> for Own {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Own, D::Error> {
        from.deserialize_str(OwnVisitor)
    }
}

/// Reads a list of own addresses.
pub fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    Ok(Vec::<Own>::deserialize(from)?.into_iter().map(|own| own.0).collect())
}

/// Reads an own address.
pub fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Own::deserialize(from).map(|own| Some(own.0))
}

/// Checks that this machine has the interfaces by which link-local addresses are given.
pub fn check_interfaces(config: &Config) -> Result<(), String> {
    let lists = [
        ("listen", &config.listen[..]),
        ("remote", &config.remote),
        ("http", config.http.as_slice()),
    ];
    for (key, list) in lists {
        for address in list {
            if let SocketAddr::V6(a) = address
                && a.scope_id() == NO_INTERFACE
            {
                return Err(format!(
                    "[node] {key} {}: this machine has no interface of the name after the %; \
                     `ip link` lists those that it has",
                    a.ip()
                ));
            }
        }
    }
    Ok(())
}

/// Checks the addresses that the node listens at for its neighbours.
pub fn check(listen: &[SocketAddr]) -> Result<(), Wrong> {
    if listen.is_empty() {
        return Err((Place::Named, "[node] listen is empty: give at least one address".into()));
    }
    let at = |index| Place::Item { section: "node", key: "listen", index };
    if listen.len() > MAX_LISTEN {
        let n = listen.len();
        let what = format!("[node] listen has {n} addresses: give {MAX_LISTEN} at most");
        return Err((at(MAX_LISTEN), what));
    }
    for (n, address) in listen.iter().enumerate() {
        let is_any = address.ip().is_unspecified();
        let why = nobodys(*address, Whose::Listener).filter(|_| !is_any && address.port() > 0);
        if let Some(why) = why {
            return Err((at(n), format!("[node] listen {address} {why}")));
        }
        let includes = |other: &&SocketAddr| {
            let same = address.port() == other.port() && address.is_ipv6() == other.is_ipv6();
            let any = address.ip().is_unspecified() || other.ip().is_unspecified();
            let equal = match (address, other) {
                (SocketAddr::V6(a), SocketAddr::V6(b)) => {
                    a.ip() == b.ip() && a.scope_id() == b.scope_id()
                }
                _ => address.ip() == other.ip(),
            };
            same && (any || equal)
        };
        if let Some(other) = listen[..n].iter().find(includes) {
            let what = format!(
                "[node] listen {address} is the same as {other}, or one of them is every address \
                 of its family: take one away"
            );
            return Err((at(n), what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{load, parse};
    use std::path::Path;

    fn file(listen: &[String]) -> String {
        format!("[node]\nid = 1\nunsealed_for_measurements = true\nlisten = {listen:?}\n")
    }

    fn parsed(listen: &[&str]) -> Result<Vec<std::net::SocketAddr>, String> {
        let listen: Vec<_> = listen.iter().map(|&text| text.to_owned()).collect();
        let config = parse(Path::new("x.toml"), &file(&listen)).map_err(|e| e.to_string())?;
        Ok(config.listen)
    }

    #[test]
    fn a_listener_names_its_interface() {
        let expected = ["[fe80::1%1]:7000".parse().unwrap()];
        for text in ["[fe80::1%lo]:7000", "[fe80::1%1]:7000"] {
            assert_eq!(parsed(&[text]), Ok(expected.to_vec()), "{text}");
        }
        for text in ["relay.example:7000", "192.0.2.1", "[2001:db8::1%lo]:7000"] {
            let said = parsed(&[text]).unwrap_err();
            assert!(said.starts_with("x.toml:4:11: not an address: write an IP"), "{said}");
            assert!(said.contains("link-local \"[fe80::1%eth0]:7000\""), "{said}");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.toml");
        std::fs::write(&path, file(&["[fe80::1%none-such]:7000".into()])).expect("written");
        let said = load(&path).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(":4:10: [node] listen fe80::1: this machine has no"), "{said}");
        assert!(said.contains("`ip link` lists"), "{said}");
    }

    #[test]
    fn two_interfaces_may_have_one_link_local_address() {
        assert_eq!(parsed(&["[fe80::1%1]:7000", "[fe80::1%2]:7000"]).map(|all| all.len()), Ok(2));
        let said = parsed(&["[fe80::1%1]:7000", "[fe80::1%lo]:7000"]).unwrap_err();
        assert!(said.contains("is the same as"), "{said}");
    }

    /// The line is too long to be shown as a whole.
    #[test]
    fn an_address_too_many_is_shown() {
        let all: Vec<_> = (1..=17).map(|n| format!("10.100.100.{n}:7000")).collect();
        let said = parse(Path::new("x.toml"), &file(&all)).map(|_| ()).unwrap_err().to_string();
        let mut lines = said.lines();
        let what = lines.next().expect("a line");
        assert!(what.starts_with("x.toml:4:") && what.contains("has 17 addresses"), "{said}");
        let (source, marker) = (lines.next().expect("source"), lines.next().expect("a marker"));
        let at = marker.chars().position(|c| c == '^').expect("a marker");
        let marked: String = source.chars().skip(at).collect();
        assert!(marked.starts_with("\"10.100.100.17:7000\""), "{said}");
    }

    #[test]
    fn a_listener_that_is_nobodys_has_a_cure() {
        for (text, says) in [
            ("0.1.2.3:7000", "all that begin with 0; give an address of this machine, or 0.0.0.0"),
            ("224.0.0.1:7000", "but multicast; give an address of this machine"),
            ("[ff02::1%lo]:7000", "but multicast; give an address of this machine"),
            ("[fe80::7]:7001", "\"[fe80::7%eth0]:7001\""),
            ("[::ffff:10.1.0.1]:7001", "write it as \"10.1.0.1:7001\""),
        ] {
            let said = parsed(&[text]).unwrap_err();
            assert!(
                said.starts_with("x.toml:4:11: [node] listen") && said.contains(says),
                "{said}"
            );
        }
    }
}
