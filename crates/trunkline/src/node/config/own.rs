//! Links that cannot come up on this machine, which only a look at its addresses tells.

use super::host::Address;
use super::mistake::lines;
use super::{Config, Host};
use crate::addresses;
use std::net::{IpAddr, SocketAddr};

/// Warnings about the links in `config`, the file with this `text`, that lead to this node itself or
/// to all machines of a network, or leave from no address of a machine. The file may be meant for
/// another machine, so they are no mistakes.
pub fn unusable_here(config: &Config, text: &str) -> Vec<String> {
    let (own, broadcast) = (addresses::own().unwrap_or_default(), addresses::broadcast());
    warnings(config, text, &own, &broadcast)
}

fn warnings(config: &Config, text: &str, own: &[IpAddr], broadcast: &[IpAddr]) -> Vec<String> {
    let lines = lines(text, "link", "address");
    let mut warnings = Vec::new();
    for (link, line) in config.overlay.links.iter().zip(lines) {
        let path = config.paths.get(&(link.neighbour, link.path.clone()));
        let of = format!("[[link]] to neighbour {} (line {line}):", link.neighbour);
        if let Some(source) = path.and_then(|path| path.source).filter(|ip| broadcast.contains(ip))
        {
            warnings.push(format!(
                "{of} source {source} is the broadcast address of a network here, so nothing can \
                 leave from it: give an address of this machine (`ip address` lists them)"
            ));
        }
        let zoned = |host: &Host| Address::Name(host.clone()).canonical().number();
        let host = path.and_then(|path| path.host.as_ref());
        let Some(address) = link.address.or_else(|| host.and_then(zoned)) else { continue };
        let arrives = |l: &SocketAddr| {
            let any = l.ip().is_unspecified() && l.is_ipv4() == address.is_ipv4();
            l.port() == address.port() && (any || l.ip() == address.ip())
        };
        if own.contains(&address.ip()) && config.listen.iter().any(arrives) {
            warnings.push(format!(
                "{of} {address} is this node's own address here, so the link cannot come up: give the \
                 neighbour's address"
            ));
        } else if broadcast.contains(&address.ip()) {
            warnings.push(format!(
                "{of} {address} is the broadcast address of a network here, not a single machine's, so the \
                 link cannot come up: give the neighbour's address"
            ));
        }
    }
    warnings
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
        let (own, broadcast) = (
            ["10.0.0.1", "fe80::1"].map(|ip| ip.parse().unwrap()),
            ["10.0.0.255".parse().unwrap()],
        );
        let of = |listen: &str, address: &str| {
            let text = text(listen, address);
            let config = parse(Path::new("x.toml"), &text).expect(address);
            warnings(&config, &text, &own, &broadcast).join("\n")
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
