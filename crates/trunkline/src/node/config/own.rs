//! Links that cannot come up on this machine, which only a look at its addresses tells.

use super::host::Address;
use super::mistake::lines;
use super::{Config, Host};
use crate::addresses;
use crate::datapath::WantedPath;
use nix::net::if_::if_nametoindex;
use std::net::{IpAddr, SocketAddr};

/// Addresses and interfaces of this machine.
struct Here {
    /// Its addresses; `None` if the system doesn't say.
    own: Option<Vec<IpAddr>>,
    broadcast: Vec<IpAddr>,
    has_interface: fn(&str) -> bool,
}

/// Warnings about the links in `config`, the file with this `text`, that lead to this node itself or
/// to no single machine, or leave from an address or by an interface that this machine doesn't have.
/// The file may be meant for another machine, and an interface may come later, so they are no
/// mistakes.
pub fn unusable_here(config: &Config, text: &str) -> Vec<String> {
    let (own, broadcast) = (addresses::own(), addresses::broadcast());
    let has_interface = |name: &str| if_nametoindex(name).is_ok();
    warnings(config, text, &Here { own, broadcast, has_interface })
}

fn warnings(config: &Config, text: &str, here: &Here) -> Vec<String> {
    let lines = lines(text, "link", "address");
    let has = |ip: &IpAddr| here.own.as_ref().is_some_and(|own| own.contains(ip));
    let mut warnings = Vec::new();
    for (link, line) in config.overlay.links.iter().zip(lines) {
        let path = config.paths.get(&(link.neighbour, link.path.clone()));
        let of = format!("[[link]] to neighbour {} (line {line}):", link.neighbour);
        let missing = path.and_then(|path| missing(path, here));
        warnings.extend(missing.map(|missing| format!("{of} {missing}")));
        let zoned = |host: &Host| Address::Name(host.clone()).canonical().number();
        let host = path.and_then(|path| path.host.as_ref());
        let Some(address) = link.address.or_else(|| host.and_then(zoned)) else { continue };
        let arrives = |l: &SocketAddr| {
            let any = l.ip().is_unspecified() && l.is_ipv4() == address.is_ipv4();
            l.port() == address.port() && (any || l.ip() == address.ip())
        };
        if has(&address.ip()) && config.listen.iter().any(arrives) {
            warnings.push(format!(
                "{of} {address} is this node's own address here, so the link cannot come up: give the \
                 neighbour's address"
            ));
        } else if is_reserved(address.ip()) {
            warnings.push(format!(
                "{of} {address} is in 240.0.0.0/4, which is reserved: unless your network uses it, \
                 give the neighbour's address"
            ));
        } else if here.broadcast.contains(&address.ip()) {
            warnings.push(format!(
                "{of} {address} is the broadcast address of a network here, not a single machine's, so the \
                 link cannot come up: give the neighbour's address"
            ));
        }
    }
    warnings
}

/// The warning that this machine lacks the address or the interface that a link leaves by.
fn missing(path: &WantedPath, here: &Here) -> Option<String> {
    let is_missing =
        |ip: &IpAddr| !ip.is_loopback() && here.own.as_ref().is_some_and(|own| !own.contains(ip));
    match (path.source, &path.interface) {
        (Some(source), _) if here.broadcast.contains(&source) => Some(format!(
            "source {source} is the broadcast address of a network here, so nothing can leave from \
             it: give an address of this machine (`ip address` lists them)"
        )),
        (_, Some(name)) if !(here.has_interface)(name) => Some(format!(
            "this machine has no interface {name:?} now, so nothing leaves until it does (`ip link` \
             lists those that it has)"
        )),
        (Some(source), _) if is_missing(&source) => Some(format!(
            "this machine does not have the address {source} now, so nothing leaves from it until it \
             does (`ip address` lists those that it has)"
        )),
        _ => None,
    }
}

/// Whether `ip` is in the part of IPv4 that is reserved for future use (RFC 1112, 4).
fn is_reserved(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if v4.octets()[0] >= 240)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::path::Path;

    #[test]
    fn a_link_that_cannot_come_up_here_is_noticed() {
        let text = |listen: &str, address: &str| {
            format!(
                "[node]\nid = 1\nunsealed_for_measurements = true\nlisten = {listen}\n[[link]]\n\
                 neighbour = 2\naddress = \"{address}\"\n"
            )
        };
        let here = Here {
            own: Some(["10.0.0.1", "fe80::1"].map(|ip| ip.parse().unwrap()).into()),
            broadcast: ["10.0.0.255".parse().unwrap()].into(),
            has_interface: |name| name == "eth0",
        };
        let of = |listen: &str, address: &str| {
            let text = text(listen, address);
            let config = parse(Path::new("x.toml"), &text).expect(address);
            warnings(&config, &text, &here).join("\n")
        };
        let any = "[\"0.0.0.0:7000\", \"[::]:7000\"]";
        for (address, says) in [
            ("10.0.0.1:7000", "10.0.0.1:7000 is this node's own address here"),
            ("[fe80::1%lo]:7000", "[fe80::1%1]:7000 is this node's own address here"),
            ("10.0.0.255:7000", "10.0.0.255:7000 is the broadcast address of a network here"),
        ] {
            let said = of(any, address);
            assert!(said.starts_with("[[link]] to neighbour 2 (line 7): "), "{said}");
            assert!(said.contains(says) && said.contains("give the neighbour's address"), "{said}");
        }
        let source = of(any, "10.0.0.2:7000\"\nsource = \"10.0.0.255");
        assert!(
            source.contains("(line 7): source 10.0.0.255 is the broadcast address"),
            "{source}"
        );
        let reserved = of(any, "240.0.0.1:7000");
        assert!(reserved.contains("240.0.0.1:7000 is in 240.0.0.0/4"), "{reserved}");
        for (rest, says) in [
            (
                "source = \"10.0.0.3",
                "(line 7): this machine does not have the address 10.0.0.3 now",
            ),
            ("interface = \"wwan0", "(line 7): this machine has no interface \"wwan0\" now"),
            ("source = \"10.0.0.1\"\ninterface = \"eth0", ""),
            ("source = \"127.0.0.2", ""),
        ] {
            let said = of(any, &format!("10.0.0.2:7000\"\n{rest}"));
            assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{rest}: {said}");
        }
        for (listen, address) in [
            (any, "10.0.0.1:7001"),
            (any, "10.0.0.2:7000"),
            ("[\"10.0.0.2:7000\"]", "10.0.0.1:7000"),
            (any, "relay.example:7000"),
        ] {
            assert_eq!(of(listen, address), "", "{address}");
        }
    }
}
