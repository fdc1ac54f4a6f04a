//! Checks of the ids and addresses in a file.

use super::host::Canonical;
use super::mistake::Place;
use super::{Destinations, File, Wrong};
use std::net::SocketAddr;
use std::path::Path;
use trunkline_overlay::wire::NodeId;

/// Reason why no node has this id: 0 stands for none in a file, and the last ones for sources that
/// are no nodes.
pub fn no_id(id: u32) -> Option<&'static str> {
    match id {
        _ if NodeId(id) == NodeId::NONE => Some("ids begin with 1"),
        0xffff_0000.. => Some("ids end with 4294901759"),
        _ => None,
    }
}

/// Checks that each id is a valid node id, and that each address is reachable for others and leads
/// elsewhere.
pub fn check(file: &File) -> Result<(), Wrong> {
    let nobody = |key: &str, id: u32| {
        no_id(id).map_or(Ok(()), |why| Err(format!("{key} is {id}, which is not a node id: {why}")))
    };
    let node = &file.node;
    nobody("[node] id", node.id).map_err(|what| (Place::Named, what))?;
    let of_all =
        [("listen", &node.listen[..]), ("remote", &node.remote), ("http", node.http.as_slice())];
    for (key, addresses) in of_all {
        if let Some(a) = addresses.iter().find(|a| a.port() == 0) {
            let what = format!("[node] {key} {a} has port 0: give the port that others are to use");
            return Err((Place::Named, what));
        }
    }
    check_apart(file)?;
    for (index, link) in file.link.iter().enumerate() {
        let at = |key| Place::Of { section: "link", index, key };
        nobody("neighbour", link.neighbour).map_err(|what| (at("neighbour"), what))?;
        let own = |a: &SocketAddr| node.listen.iter().any(|listen| is_own(a, listen));
        let number = file.targets[index].address.as_ref().and_then(Canonical::number);
        if let Some(address) = number.filter(own) {
            let what = format!(
                "address {address} is where this node itself listens: give the address of neighbour \
                 {}, or take the line away and wait until it calls",
                link.neighbour
            );
            return Err((at("address"), what));
        }
    }
    for (index, route) in file.route.iter().enumerate() {
        let at = |key| move |what| (Place::Of { section: "route", index, key }, what);
        nobody("via", route.via).map_err(at("via"))?;
        if let Destinations::Some(to) = &route.to {
            to.iter().try_for_each(|&id| nobody("one of `to`", id)).map_err(at("to"))?;
            check_destinations(to, node.id).map_err(at("to"))?;
        }
    }
    for (index, known) in file.known.iter().enumerate() {
        let at = Place::Of { section: "known", index, key: "node" };
        nobody("node", known.node()).map_err(|what| (at, what))?;
    }
    Ok(())
}

/// Checks that a route to these nodes leads anywhere from `own`.
fn check_destinations(to: &[u32], own: u32) -> Result<(), String> {
    match to {
        [] => Err("`to` is empty, so the route leads nowhere: name the nodes, or \"*\" for all \
                   others, or take the [[route]] away"
            .into()),
        to if to.contains(&own) => Err(format!(
            "one of `to` is {own}, which is this node itself: take it out, for what is for this \
             node takes no route"
        )),
        _ => Ok(()),
    }
}

/// Checks that no two of the node's listeners use the same address, which it could not bind twice.
fn check_apart(file: &File) -> Result<(), Wrong> {
    let node = &file.node;
    if let (Some(socket), Some(control)) = (&node.socket, &node.control)
        && socket == control
    {
        let what = "[node] control is where `socket` is: applications attach at one and the \
                    operator at the other, so name another";
        return Err((Place::Named, what.into()));
    }
    let shared =
        |http: &SocketAddr| node.remote.iter().find(|a| is_own(http, a) || is_own(a, http));
    if let Some((http, remote)) = node.http.as_ref().and_then(|h| Some((h, shared(h)?))) {
        let what = format!("[node] http {http} is taken by `remote` {remote}: give another port");
        return Err((Place::Named, what));
    }
    Ok(())
}

/// Whether packets to `to` arrive at `listen`, as far as can be told without querying the system
/// for its addresses.
fn is_own(to: &SocketAddr, listen: &SocketAddr) -> bool {
    let any = listen.ip().is_unspecified() && listen.is_ipv4() == to.is_ipv4();
    // Two interfaces may have the same link-local address.
    let same = match (to, listen) {
        (SocketAddr::V6(to), SocketAddr::V6(own)) => {
            to.ip() == own.ip() && to.scope_id() == own.scope_id()
        }
        _ => to.ip() == listen.ip(),
    };
    to.port() == listen.port() && (same || any && to.ip().is_loopback())
}

/// Checks that the folders for the sockets exist.
pub fn check_folders(socket: Option<&Path>, control: Option<&Path>) -> Result<(), String> {
    for (key, path) in [("socket", socket), ("control", control)] {
        let Some(folder) = path.and_then(Path::parent).filter(|f| !f.as_os_str().is_empty()) else {
            continue;
        };
        let folder = match folder.metadata() {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) => format!("{} is not a folder", folder.display()),
            Err(why) => format!("{}: {why}", folder.display()),
        };
        return Err(format!(
            "[node] {key} is in a folder that does not exist ({folder}): create it, or name \
             another; `RuntimeDirectory` in a unit for systemd makes one while the service runs"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const GOOD: &str = r#"[node]
id = 1
key = "a.key"
listen = ["0.0.0.0:7000", "[2001:db8::1]:7000"]
remote = ["127.0.0.1:7800"]
http = "127.0.0.1:9101"
socket = "a.sock"
control = "a.ctl"

[[link]]
neighbour = 2
key = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="
address = "192.0.2.2:7000"

[[route]]
to = [4, 5]
via = 2

[[client]]
name = "pbx"
key = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="
"#;

    #[test]
    fn a_number_or_place_that_cannot_be_meant_has_a_line_and_a_way_out() {
        let mistake = |old: &str, new: &str| {
            assert!(GOOD.contains(old), "{old}");
            let text = GOOD.replacen(old, new, 1);
            parse(Path::new("x.toml"), &text).map(|_| ()).map_err(|e| e.to_string())
        };
        for id in ["id = 1", "id = 4294901759"] {
            assert_eq!(mistake("id = 1", id), Ok(()));
        }
        for (old, new, place, says) in [
            ("id = 1", "id = 0", "2:6", "ids begin with 1"),
            ("id = 1", "id = 4294901760", "2:6", "ids end with 4294901759"),
            ("0.0.0.0:7000", "0.0.0.0:0", "4:10", "[node] listen 0.0.0.0:0 has port 0: give"),
            ("127.0.0.1:7800", "127.0.0.1:0", "5:10", "[node] remote 127.0.0.1:0 has port 0"),
            ("127.0.0.1:9101", "127.0.0.1:0", "6:8", "[node] http 127.0.0.1:0 has port 0"),
            ("a.ctl", "a.sock", "8:11", "[node] control is where `socket` is: "),
            ("127.0.0.1:9101", "127.0.0.1:7800", "6:8", "taken by `remote` 127.0.0.1:7800: give"),
            ("127.0.0.1:9101", "0.0.0.0:7800", "6:8", "[node] http 0.0.0.0:7800 is taken by"),
            ("neighbour = 2", "neighbour = 0", "11:13", "neighbour is 0, which is not a node id"),
            ("192.0.2.2:7000", "127.0.0.1:7000", "13:11", "where this node itself listens: give"),
            ("192.0.2.2:7000", "[2001:db8::1]:7000", "13:11", "where this node itself listens"),
            ("[4, 5]", "[4, 0]", "16:6", "one of `to` is 0"),
            ("via = 2", "via = 0", "17:7", "via is 0"),
            ("[4, 5]", "[4, 1]", "16:6", "one of `to` is 1, which is this node itself: take it"),
            ("[4, 5]", "[]", "16:6", "`to` is empty, so the route leads nowhere: name the nodes"),
            ("[[route]]", "[hello]\ninterval = \"500ms\"\n[[route]]", "16:12", "1 s unless given"),
        ] {
            let error = mistake(old, new).expect_err(new);
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{error}");
            assert!(error.contains(says), "{error}");
        }
        // Another port, or another machine's address.
        assert_eq!(mistake("192.0.2.2:7000", "127.0.0.1:7001"), Ok(()));
    }

    #[test]
    fn a_socket_needs_its_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let (there, absent) = (dir.path().join("a.sock"), dir.path().join("no/a.sock"));
        assert_eq!(check_folders(Some(&there), Some(Path::new("a.ctl"))), Ok(()));
        let error = check_folders(Some(&there), Some(&absent)).expect_err("no folder");
        assert!(error.starts_with("[node] control is in a folder that does not exist"), "{error}");
        assert!(error.contains("create it, or name another"), "{error}");
    }
}
