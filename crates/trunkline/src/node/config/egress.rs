//! How links leave: the source, the interface and the listener of each. Two links to one address must
//! differ in one of them, since the other node could not tell their packets apart.

use super::host::{Address, Canonical, Whose, is_interface, nobodys_ip};
use super::mistake::lines;
use super::{File, LinkSection};
use std::net::{IpAddr, SocketAddr};

/// Where a link leads, and where that is written.
#[derive(Debug)]
pub struct Target {
    /// The address or name of its neighbour, if it has one.
    pub address: Option<Canonical>,
    /// Line of the address, from 1, or of the section's heading.
    line: usize,
}

/// Where each link of `file` leads; `text` is the content of the file.
pub fn targets(file: &File, text: &str) -> Vec<Target> {
    let lines = lines(text, "link", "address");
    let target = |(link, line): (&LinkSection, usize)| Target {
        address: link.address.as_ref().map(Address::canonical),
        line,
    };
    file.link.iter().zip(lines).map(target).collect()
}

/// Checks that the link of section `index` can leave as it is to. The error names the key.
pub fn check(file: &File, index: usize) -> Result<(), (&'static str, String)> {
    let link = &file.link[index];
    check_source(file, link).map_err(|what| ("source", what))?;
    check_interface(link).map_err(|what| ("interface", what))?;
    let is_vague = |n: usize| is_vague(file, &file.link[n]);
    let alike_to = |n: usize| egress(file, n) == egress(file, index);
    let same = |&n: &usize| {
        is_same_target(file, n, index) && (alike_to(n) || is_vague(n) || is_vague(index))
    };
    match (0..index).find(same) {
        Some(before) => Err(("address", alike(file, before, index))),
        None => Ok(()),
    }
}

fn check_source(file: &File, link: &LinkSection) -> Result<(), String> {
    let Some(source) = link.source else { return Ok(()) };
    let sends = |l: &SocketAddr| {
        l.is_ipv6() == source.is_ipv6() && (l.ip() == source || l.ip().is_unspecified())
    };
    if let Some(why) = nobodys_ip(source, Whose::Source) {
        return Err(format!("source {source} {why}"));
    }
    if !file.node.listen.iter().any(sends) {
        return Err(format!(
            "source {source}: [node] listen has neither that address nor every address of its \
             family, so no answer would arrive: add it there"
        ));
    }
    let is_ipv6 = link.address.as_ref().and_then(Address::is_ipv6);
    if is_ipv6.is_some_and(|is_ipv6| is_ipv6 != source.is_ipv6()) {
        let version = if source.is_ipv6() { "IPv4" } else { "IPv6" };
        return Err(format!(
            "source {source} is of another IP version than the link's address: give an {version} \
             address of this machine"
        ));
    }
    Ok(())
}

fn check_interface(link: &LinkSection) -> Result<(), String> {
    let Some(name) = &link.interface else { return Ok(()) };
    if !is_interface(name) {
        return Err(format!(
            "interface {name:?} is not a name: `ip link` lists those of this machine"
        ));
    }
    match link.address.as_ref().and_then(Address::zone) {
        Some(zone) if zone != name => Err(format!(
            "interface {name:?} is not that of the address, {zone:?}: take one of the two away"
        )),
        _ => Ok(()),
    }
}

/// Whether the link may leave by any source and interface, since its name may lead to either IP
/// version.
fn is_vague(file: &File, link: &LinkSection) -> bool {
    is_ipv6(file, link).is_none() && link.source.is_none() && interface(link).is_none()
}

/// The mistake that the links of these two sections leave in the same way.
fn alike(file: &File, before: usize, index: usize) -> String {
    let link = &file.link[index];
    let has_any = of_family(file, link).any(|ip| ip.is_unspecified());
    let cure = match interface(link) {
        _ if file.link[before].neighbour != link.neighbour => {
            "two nodes have no common address: give each link that of its own neighbour"
        }
        _ if link.address.as_ref().is_some_and(Address::has_zone) => "give each its own `source`",
        _ if is_vague(file, link) || is_vague(file, &file.link[before]) => {
            "give each its own `source` or `interface`, since a name may lead to either IP version"
        }
        Some(_) => "give each its own `source`, or another `interface`",
        None if link.source.is_some() => "give one of them another `source` or an `interface`",
        None if has_any => "give each its own `source` or `interface`",
        None => {
            "give each its own `source` or `interface`, or give [node] `listen` an IP address for each"
        }
    };
    format!(
        "the link to neighbour {} has the same address and leaves the same way (line {}): {cure}",
        file.link[before].neighbour, file.targets[before].line
    )
}

fn is_same_target(file: &File, one: usize, other: usize) -> bool {
    let address = |n: usize| file.targets[n].address.as_ref();
    address(one).is_some() && address(one) == address(other)
}

/// The interface that the link chooses: a link-local address has its own.
fn interface(link: &LinkSection) -> Option<&str> {
    let has_zone = link.address.as_ref().is_some_and(Address::has_zone);
    link.interface.as_deref().filter(|_| !has_zone)
}

/// Whether the link uses IPv6; `None` if only a lookup will tell.
fn is_ipv6(file: &File, link: &LinkSection) -> Option<bool> {
    let of_address = link.address.as_ref().and_then(Address::is_ipv6);
    let of_all = || {
        let first = file.node.listen.first()?.is_ipv6();
        file.node.listen.iter().all(|l| l.is_ipv6() == first).then_some(first)
    };
    of_address.or_else(|| link.source.map(|ip| ip.is_ipv6())).or_else(of_all)
}

/// The IP addresses in `listen` that the link may leave from, in their order, each once.
fn of_family<'a>(file: &'a File, link: &LinkSection) -> impl Iterator<Item = IpAddr> + 'a {
    let is_ipv6 = is_ipv6(file, link);
    let listen = &file.node.listen;
    let first = |n: usize| listen[..n].iter().all(|before| before.ip() != listen[n].ip());
    let all = (0..listen.len()).filter(move |n| first(*n)).map(|n| listen[n].ip());
    all.filter(move |ip| is_ipv6 == Some(ip.is_ipv6()))
}

/// The source and the interface of the link of section `index`, as far as the file determines them.
fn egress(file: &File, index: usize) -> (Option<IpAddr>, Option<&str>) {
    let link = &file.link[index];
    // A link that finds no address of its own leaves from one that another link has.
    let shared = || {
        let is_any = of_family(file, link).any(|ip| ip.is_unspecified());
        let (first, is_only) =
            (of_family(file, link).next(), of_family(file, link).nth(1).is_none());
        first.filter(|_| (interface(link).is_none() || is_only) && !is_any)
    };
    let source = link.source.or_else(|| own_source(file, index)).or_else(shared);
    (source, interface(link))
}

/// The source address of the link of section `index`, if several links have its address and it has
/// no `source` or `interface`: each such link leaves from another address in `listen`, in its order,
/// that is no other link's `source`.
pub fn own_source(file: &File, index: usize) -> Option<IpAddr> {
    let link = &file.link[index];
    let is_free = |l: &LinkSection| l.source.is_none() && interface(l).is_none();
    if !is_free(link) {
        return None;
    }
    let same = || (0..file.link.len()).filter(|&n| is_same_target(file, n, index));
    let is_taken = |ip: &IpAddr| {
        let fixed = same().map(|n| &file.link[n]).filter(|l| interface(l).is_none());
        fixed.filter_map(|l| l.source).any(|source| source == *ip)
    };
    let before = same().filter(|&n| n < index && is_free(&file.link[n])).count();
    let mut own = of_family(file, link).filter(|ip| !ip.is_unspecified() && !is_taken(ip));
    if same().nth(1).is_none() { None } else { own.nth(before) }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, parse};
    use std::path::Path;

    /// A file with these addresses in `listen`, and a link to a node of its own with each of these
    /// lines. The address of the first link is in line 10.
    fn file(listen: &[&str], links: &[&str]) -> String {
        let key = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=";
        let mut text = format!("[node]\nid = 1\nkey = \"a.key\"\nlisten = {listen:?}\n");
        for (link, n) in links.iter().zip(0..) {
            let heading = format!("\n[[link]]\nneighbour = 2\npath = \"{n}\"\nkey = \"{key}\"");
            text += &format!("{heading}\n{link}");
        }
        text
    }

    fn parsed(listen: &[&str], links: &[&str]) -> Result<Config, String> {
        parse(Path::new("x.toml"), &file(listen, links)).map_err(|e| e.to_string())
    }

    fn sources(listen: &[&str], links: &[&str]) -> Vec<String> {
        let config = parsed(listen, links).expect("a valid file");
        let source = |n: usize| {
            let link = (trunkline_overlay::wire::NodeId(2), n.to_string());
            let source = config.paths.get(&link).and_then(|path| path.source);
            source.map_or(String::new(), |ip| ip.to_string())
        };
        (0..links.len()).map(source).collect()
    }

    const NUMBER: &str = "address = \"192.0.2.9:7000\"";
    const NAME: &str = "address = \"b.example:7000\"";
    const TWO: [&str; 2] = ["10.0.0.1:7000", "10.0.1.1:7000"];

    #[test]
    fn links_to_one_name_leave_from_the_addresses_in_listen() {
        for address in [NUMBER, NAME, "address = \"[fe80::1%lo]:7000\""] {
            let listen = match address.contains("fe80") {
                true => ["[2001:db8::1]:7000", "[2001:db8::2]:7000"],
                false => TWO,
            };
            let expected =
                listen.map(|l| l.parse::<std::net::SocketAddr>().unwrap().ip().to_string());
            assert_eq!(sources(&listen, &[address, address]), expected, "{address}");
        }
        let capital = "address = \"B.EXAMPLE.:7000\"";
        assert_eq!(sources(&TWO, &[NAME, capital]), ["10.0.0.1", "10.0.1.1"]);
        let second = format!("{NAME}\nsource = \"10.0.0.1\"");
        assert_eq!(sources(&TWO, &[NAME, &second]), ["10.0.1.1", "10.0.0.1"], "one is taken");
        assert_eq!(sources(&TWO, &[NAME]), [""], "the kernel chooses for a single link");
    }

    #[test]
    fn two_links_that_leave_alike_are_refused_with_both_lines_and_a_cure_that_is_left() {
        let source = |address: &str, ip: &str| format!("{address}\nsource = \"{ip}\"");
        let by = |address: &str, name: &str| format!("{address}\ninterface = \"{name}\"");
        let both = ["10.0.0.1:7000", "[2001:db8::1]:7000"];
        let any = ["0.0.0.0:7000", "0.0.0.0:7001"];
        let (local, same) = ("address = \"[fe80::1%lo]:7000\"", "address = \"[fe80::1%1]:7000\"");
        let one = source(NUMBER, "10.0.0.1");
        let other = source(NUMBER, "10.0.1.1");
        let wwan = by(NUMBER, "wwan0");
        let of_wwan = format!("{wwan}\nsource = \"10.0.0.1\"");
        let dual = ["0.0.0.0:7000", "[::]:7000"];
        // The lines are those of the later link and of the earlier one.
        for (listen, links, lines, cure) in [
            (
                &TWO[..],
                &[NUMBER; 3][..],
                (20, 10),
                ", or give [node] `listen` an IP address for each",
            ),
            (&TWO, &[NAME; 3], (20, 10), ", or give [node] `listen` an IP address for each"),
            (&TWO[..1], &[NAME; 2], (15, 10), ", or give [node] `listen` an IP address for each"),
            (&TWO, &[NUMBER, &one, &other], (15, 10), "another `source` or an `interface`"),
            (&TWO, &[&one, &one], (16, 10), "give one of them another `source` or an `interface`"),
            (&TWO, &[&wwan, &wwan], (16, 10), "give each its own `source`, or another `interface`"),
            (&any, &[NUMBER; 2], (15, 10), "give each its own `source` or `interface`\n"),
            (&["10.0.0.1:1", "10.0.0.1:2"], &[NUMBER; 2], (15, 10), "an IP address for each\n"),
            (&both, &[NAME; 2], (15, 10), "since a name may lead to either IP version"),
            (&["[::]:1"], &[local, same], (15, 10), "give each its own `source`\n"),
            (
                &dual,
                &[NAME, &by(NAME, "lte")],
                (15, 10),
                "since a name may lead to either IP version",
            ),
            (
                &dual,
                &[&by(NAME, "lte"), NAME],
                (16, 10),
                "since a name may lead to either IP version",
            ),
            (&TWO[..1], &[&wwan, &of_wwan], (16, 10), "its own `source`, or another `interface`"),
            (&["[::]:1"], &[local, &by(local, "lo")], (15, 10), "give each its own `source`\n"),
        ] {
            let said = parsed(listen, links).map(|_| ()).expect_err(links[1]);
            assert!(said.starts_with(&format!("x.toml:{}:", lines.0)), "{lines:?}: {said}");
            assert!(said.contains(&format!("leaves the same way (line {}): ", lines.1)), "{said}");
            assert!(said.contains(cure), "{cure}: {said}");
        }
    }

    #[test]
    fn two_neighbours_have_no_common_address() {
        for links in [[NUMBER; 2], [NAME; 2]] {
            let text = file(&["0.0.0.0:7000", "[::]:7000"], &links);
            let other = text.replacen("neighbour = 2", "neighbour = 3", 1);
            let said = parse(Path::new("x.toml"), &other).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("to neighbour 3 has the same address"), "{said}");
            assert!(said.contains("give each link that of its own neighbour"), "{said}");
        }
    }

    #[test]
    fn links_to_one_address_that_differ_in_their_way_are_accepted() {
        let source = |address: &str, ip: &str| format!("{address}\nsource = \"{ip}\"");
        let by = |address: &str, name: &str| format!("{address}\ninterface = \"{name}\"");
        let any = ["0.0.0.0:7000", "[::]:7000"];
        for (listen, links) in [
            (&TWO[..], [NUMBER, "address = \"192.0.2.9:7001\""]),
            (&TWO, [NUMBER, &by(NUMBER, "wwan0")]),
            (&TWO, [&by(NAME, "wwan0"), &by(NAME, "wwan1")]),
            (&any, [&source(NAME, "2001:db8::1"), &source(NAME, "10.0.0.1")]),
            (&any, ["address = \"[fe80::1%lo]:7000\"", "address = \"[fe80::1%2]:7000\""]),
        ] {
            parsed(listen, &links).unwrap_or_else(|said| panic!("{links:?}: {said}"));
        }
    }

    #[test]
    fn a_source_that_cannot_be_one_has_a_cause_and_a_cure() {
        let any = ["0.0.0.0:7000", "[::]:7000"];
        for (source, says) in [
            ("::ffff:10.1.0.1", "is of IPv4: write it as \"10.1.0.1\""),
            ("255.255.255.255", "but broadcast; give an address of this machine"),
            ("0.1.2.3", "is no machine's, like all that begin with 0; give an address of this"),
            ("224.0.0.1", "but multicast; give an address of this machine"),
            ("ff02::1", "but multicast; give an address of this machine"),
            ("0.0.0.0", "it stands for all of its addresses; give an address of this machine"),
            ("2001:db8::1", "of another IP version than the link's address: give an IPv4 address"),
            ("10.1.0.1:7000", "source \"10.1.0.1:7000\" has a port: write \"10.1.0.1\""),
            ("fe80::2%p1", "write source = \"fe80::2\" and interface = \"p1\""),
        ] {
            let link = format!("{NUMBER}\nsource = \"{source}\"");
            let said = parsed(&any, &[&link]).map(|_| ()).expect_err(source);
            assert!(said.starts_with("x.toml:11:10: source "), "{said}");
            assert!(said.contains(says), "{says}: {said}");
        }
    }
}
