//! Effect of a changed configuration file on a running node.

mod sip;

use super::config::{Config, Host, Runtime, Sip};
use crate::addresses;
use crate::datapath::WantedPaths;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use trunkline_overlay::link::{self, LinkChange};
use trunkline_overlay::node::{self as overlay, Access, Changes, LinkName, Routing, Sealing};
use trunkline_overlay::route::CostModel;

/// Actions needed for a changed file.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Changes that the node applies while it runs.
    pub changes: Changes,
    /// Keys that change at once, as written in the file.
    pub applied: Vec<String>,
    /// Keys that need a restart after a change.
    pub restart: Vec<String>,
    /// Settings once the changes are applied: anything that needs a restart is unchanged.
    pub running: Config,
}

/// Compares `old`, the settings of a running node, with the file `new`.
pub fn diff(old: &Config, new: &Config) -> Diff {
    let mut diff = Diff {
        changes: Changes::default(),
        applied: Vec::new(),
        restart: Vec::new(),
        running: old.clone(),
    };
    diff.node(old, new);
    diff.links(old, new);
    diff.sealing(old, new);
    diff.routes(old, new);
    diff.trunks(old, new);
    diff.sip(old, new);
    diff
}

impl Diff {
    fn node(&mut self, old: &Config, new: &Config) {
        // Destructured, so that the compiler flags each new key.
        let Config {
            name,
            listen,
            socket,
            remote,
            clients,
            http,
            control,
            sip,
            log_filter,
            overlay,
            runtime,
            template,
            paths,
            rate,
            key_files: _,
        } = new;
        let overlay::Config {
            id,
            links: _,
            routes: _,
            max_sessions: _,
            session_versions: _,
            access,
            routing,
            sealing: _,
            trunks: _,
            streams,
        } = overlay;
        let Runtime { realtime_priority, cpu, offload, seed } = runtime;
        if old.name != *name {
            self.applied.push("[node] name".into());
            self.running.name.clone_from(name);
        }
        if egresses(&old.paths) != egresses(paths) {
            self.applied.push("[[link]] source, interface".into());
        }
        // A name instead of an address is of the links.
        self.running.paths.clone_from(paths);
        if old.log_filter != *log_filter {
            self.applied.push("[log] filter".into());
            self.running.log_filter.clone_from(log_filter);
        }
        if old.rate != *rate {
            self.applied.push("[access] rate".into());
            self.running.rate = *rate;
        }
        self.access(&old.overlay.access, access, old.clients == *clients);
        let run = &old.runtime;
        for (differs, key) in [
            (old.overlay.id != *id, "[node] id"),
            (!are_same(&old.listen, listen), "[node] listen"),
            (old.socket != *socket, "[node] socket"),
            (old.remote != *remote, "[node] remote"),
            (old.clients != *clients, "[[client]] (another, or another key)"),
            (old.http != *http, "[node] http"),
            (old.control != *control, "[node] control"),
            (old.sip.is_some() != sip.is_some(), "[sip]"),
            (own_sessions(old) != own_sessions(new), "[node] max_sessions"),
            (old.overlay.streams != *streams, "[streams]"),
            (run.realtime_priority != *realtime_priority, "[runtime] realtime_priority"),
            (run.cpu != *cpu, "[runtime] cpu"),
            (run.offload != *offload, "[runtime] offload"),
            (run.seed != *seed, "[runtime] seed"),
        ] {
            if differs {
                self.restart.push(key.into());
            }
        }
        self.routing(old.overlay.routing.as_ref(), routing.as_ref());
        self.template(&old.template, template);
    }

    fn routing(&mut self, old: Option<&Routing>, new: Option<&Routing>) {
        let (Some(old), Some(new)) = (old, new) else {
            if old.is_some() != new.is_some() {
                self.restart.push("[routing] enabled".into());
            }
            return;
        };
        // Destructured, so that the compiler flags each new key.
        let Routing { metric, cost: CostModel { formula, detection, deadline }, limits } = new;
        for (differs, key) in [
            (old.metric != *metric, "metric"),
            (old.cost.formula != *formula, "formula"),
            (old.cost.deadline != *deadline, "deadline"),
            (old.cost.detection != *detection, "detection"),
            // The file sets only one of the limits.
            (old.limits != *limits, "max_nodes"),
        ] {
            if differs {
                self.restart.push(format!("[routing] {key}"));
            }
        }
    }

    /// Compares the settings of links without a `[[link]]` section.
    fn template(&mut self, old: &link::Config, new: &link::Config) {
        let sealing = self.running.overlay.sealing.as_ref();
        if sealing.is_some_and(|sealing| sealing.unconfigured_peers > 0) {
            let keys = differing(old, new);
            self.restart.extend(keys.map(|key| format!("{key} (for links to unconfigured peers)")));
        } else {
            self.running.template.clone_from(new);
        }
    }

    /// Compares access rules. Clients have their rights by index: those change only if the clients
    /// are the same.
    fn access(&mut self, was: &Access, is: &Access, same_clients: bool) {
        let clients = if same_clients { &is.clients } else { &was.clients };
        let new = Access { clients: clients.clone(), ..is.clone() };
        if *was != new {
            if was.clients != new.clients {
                self.applied.push("[[client]] bind, to".into());
            }
            if *was != (Access { clients: was.clients.clone(), ..new.clone() }) {
                self.applied.push("[access]".into());
            }
            self.running.overlay.access = new.clone();
            self.changes.access = Some(new);
        }
    }

    fn links(&mut self, old: &Config, new: &Config) {
        let (old_paths, new_paths) = (&old.paths, &new.paths);
        let (old, new) = (&old.overlay.links, &new.overlay.links);
        for was in old {
            match new.iter().find(|l| same_link(was, l)) {
                Some(is) => self.link((was, host(old_paths, was)), (is, host(new_paths, is))),
                None => {
                    self.applied.push(format!("{} (removed)", title(was)));
                    self.remove(was);
                }
            }
        }
        for link in new.iter().filter(|l| !old.iter().any(|o| same_link(o, l))) {
            self.applied.push(format!("{} (new)", title(link)));
            self.add(link);
        }
    }

    fn remove(&mut self, link: &link::Config) {
        self.changes.removed.push(name(link));
        self.running.overlay.links.retain(|l| !same_link(l, link));
    }

    fn add(&mut self, link: &link::Config) {
        self.changes.added.push(link.clone());
        self.running.overlay.links.push(link.clone());
    }

    /// Compares two settings of one link; each has the name at which its neighbour is, if it has
    /// one instead of an address.
    fn link(
        &mut self,
        (was, old_host): (&link::Config, Option<&Host>),
        (is, new_host): (&link::Config, Option<&Host>),
    ) {
        let link::Config {
            neighbour: _,
            path: _,
            key,
            address,
            mtu,
            dscp,
            rate,
            penalty,
            damping,
            liveness,
            realtime: _,
            best_effort: _,
            reliable: _,
        } = is;
        let own = [
            (was.rate != *rate, "rate"),
            (was.dscp != *dscp, "dscp"),
            (was.penalty != *penalty, "penalty"),
            (was.key != *key, "key"),
            (was.address != *address || old_host != new_host, "address"),
            (was.mtu != *mtu, "mtu"),
        ];
        let own = own.into_iter().filter_map(|(differs, key)| differs.then_some(key));
        let keys = own.chain(differing(was, is));
        self.applied.extend(keys.map(|key| format!("{}: {key}", title(was))));
        let (rate, dscp, liveness) = (*rate, *dscp, liveness.clone());
        let (penalty, damping) = (*penalty, *damping);
        let change = LinkChange { rate, dscp, penalty, damping, liveness: liveness.clone() };
        let same = link::Config { rate, dscp, penalty, damping, liveness, ..was.clone() };
        if same != *is || old_host != new_host {
            // Packets queued in the link are lost; other links continue.
            self.remove(was);
            self.add(is);
        } else if was != is {
            self.changes.links.push((name(was), change));
            if let Some(link) = self.running.overlay.links.iter_mut().find(|l| same_link(l, is)) {
                link.clone_from(is);
            }
        }
    }

    /// Compares trust settings. `old` and `new` have read their key files.
    fn sealing(&mut self, old: &Config, new: &Config) {
        let (Some(was), Some(is)) = (&old.overlay.sealing, &new.overlay.sealing) else {
            if old.overlay.sealing.is_some() != new.overlay.sealing.is_some() {
                self.restart.push("[node] key, unsealed_for_measurements".into());
            }
            return;
        };
        for (differs, key) in [
            (was.identity != is.identity, "[node] key"),
            (was.unconfigured_peers != is.unconfigured_peers, "[overlay] unconfigured_peers"),
        ] {
            if differs {
                self.restart.push(key.into());
            }
        }
        self.certificate(was, is);
        for (differs, key) in [
            (was.trust.overlay_keys != is.trust.overlay_keys, "[overlay] keys"),
            (was.trust.revoked != is.trust.revoked, "[overlay] revoked"),
            (was.known != is.known, "[[known]]"),
        ] {
            if differs {
                self.applied.push(key.into());
            }
        }
        if let Some(running) = &mut self.running.overlay.sealing {
            running.trust.clone_from(&is.trust);
            running.known.clone_from(&is.known);
        }
        let keys = self.running.overlay.known_keys();
        if was.trust != is.trust || keys != old.overlay.known_keys() {
            self.changes.trust = Some((is.trust.clone(), keys));
        }
    }

    /// Compares certificates. A renewed certificate must have the same node, key and name; a
    /// different one would make it a different node.
    fn certificate(&mut self, was: &Sealing, is: &Sealing) {
        if was.certificate == is.certificate {
            return;
        }
        let title = "[node] certificate";
        let named = |s: &Sealing| s.certificate.as_ref().map(|c| c.name().to_owned());
        match &is.certificate {
            None => self.restart.push(format!("{title} (none any more)")),
            Some(new) if new.key() != was.identity.public() => {
                self.restart.push(format!("{title} (for another key)"));
            }
            Some(new) if new.node() != self.running.overlay.id => {
                self.restart.push(format!("{title} (for another id)"));
            }
            Some(_) if was.certificate.is_some() && named(was) != named(is) => {
                self.restart.push(format!("{title} (by another name)"));
            }
            Some(new) => {
                self.applied.push(title.into());
                self.changes.certificate = Some(new.clone());
                if let Some(running) = &mut self.running.overlay.sealing {
                    running.certificate = Some(new.clone());
                }
            }
        }
    }

    fn trunks(&mut self, old: &Config, new: &Config) {
        let trunks = &new.overlay.trunks;
        if old.overlay.trunks == *trunks {
            return;
        }
        self.applied.push("[[trunk]]".into());
        self.changes.trunks = Some(trunks.clone());
        self.running.overlay.trunks.clone_from(trunks);
    }

    fn routes(&mut self, old: &Config, new: &Config) {
        let routes = &new.overlay.routes;
        if old.overlay.routes == *routes {
            return;
        }
        self.applied.push("[[route]]".into());
        self.changes.routes = Some(routes.clone());
        self.running.overlay.routes.clone_from(routes);
    }
}

/// How the links leave that are configured to leave in a certain way.
fn egresses(paths: &WantedPaths) -> BTreeMap<&LinkName, (Option<IpAddr>, Option<&str>)> {
    let egresses =
        paths.iter().map(|(link, path)| (link, (path.source, path.interface.as_deref())));
    egresses.filter(|(_, egress)| *egress != (None, None)).collect()
}

/// Whether two lists of own addresses are the same. The interface of a link-local one may have come
/// back with another index, which the running node follows.
fn are_same(old: &[SocketAddr], new: &[SocketAddr]) -> bool {
    let is_gone = |index: u32| index != 0 && addresses::interface_name(index).is_none();
    let is_same = |(old, new): (&SocketAddr, &SocketAddr)| match (old, new) {
        (SocketAddr::V6(old), SocketAddr::V6(new)) if is_gone(old.scope_id()) => {
            (old.ip(), old.port()) == (new.ip(), new.port())
        }
        _ => old == new,
    };
    old.len() == new.len() && old.iter().zip(new).all(is_same)
}

/// The name at which the neighbour of `link` is, if it has one instead of an address.
fn host<'a>(paths: &'a WantedPaths, link: &link::Config) -> Option<&'a Host> {
    paths.get(&name(link)).and_then(|path| path.host.as_ref())
}

/// Sections, and the key of `[routing]`, whose settings of links differ.
fn differing(was: &link::Config, is: &link::Config) -> impl Iterator<Item = &'static str> {
    [
        (was.damping != is.damping, "[routing] damping"),
        (was.liveness != is.liveness, "[hello]"),
        (was.realtime != is.realtime, "[realtime]"),
        (was.best_effort != is.best_effort, "[best_effort]"),
        (was.reliable != is.reliable, "[reliable]"),
    ]
    .into_iter()
    .filter_map(|(differs, key)| differs.then_some(key))
}

/// Number of sessions that a file allows, without those of its gateway's media.
fn own_sessions(config: &Config) -> usize {
    config.overlay.max_sessions - config.sip.as_ref().map_or(0, Sip::sessions)
}

fn same_link(a: &link::Config, b: &link::Config) -> bool {
    (a.neighbour, &a.path) == (b.neighbour, &b.path)
}

fn name(link: &link::Config) -> LinkName {
    (link.neighbour, link.path.clone())
}

/// Name of a link as shown to a user.
fn title(link: &link::Config) -> String {
    match link.path.as_str() {
        "" => format!("[[link]] to {}", link.neighbour),
        path => format!("[[link]] to {} over \"{path}\"", link.neighbour),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::parse;
    use super::*;
    use std::path::Path;
    use trunkline_overlay::wire::NodeId;

    const OLD: &str = r#"
[node]
id = 1
name = "A"
unsealed_for_measurements = true
listen = ["127.0.0.1:7001"]

[[link]]
neighbour = 2
path = "isp1"
rate = "10 Mbit/s"

[[link]]
neighbour = 3

[[route]]
to = [4]
via = 2
"#;

    fn config(text: &str) -> Config {
        parse(Path::new("x.toml"), text).unwrap()
    }

    /// An interface has the name that the file gives, and another index than before.
    #[test]
    fn a_listener_whose_interface_has_come_back_needs_no_restart() {
        let at = |index: u32| vec![format!("[fe80::1%{index}]:7000").parse().expect("an address")];
        assert!(are_same(&at(1 << 30), &at(1)) && are_same(&at(1), &at(1)));
        assert!(!are_same(&at(1), &at(2)), "the former one is there");
    }

    /// Effect of a change in the file: keys applied, and keys that need a restart.
    fn change(from: &str, to: &str) -> (String, String) {
        assert!(OLD.contains(from), "{from}");
        let (old, new) = (config(OLD), config(&OLD.replace(from, to)));
        let diff = diff(&old, &new);
        // Applied changes no longer count as differences; the others still do.
        let again = super::diff(&diff.running, &new);
        assert!(again.changes.is_empty() && again.applied.is_empty(), "{again:?}");
        assert_eq!(again.restart, diff.restart);
        (diff.applied.join(", "), diff.restart.join(", "))
    }

    #[test]
    fn each_key_is_applied_or_named() {
        let none = String::new;
        for (from, to, applied) in [
            ("\"A\"", "\"B\"", "[node] name"),
            ("10 Mbit/s", "5 Mbit/s", "[[link]] to 2 over \"isp1\": rate"),
            ("neighbour = 3", "neighbour = 3\ndscp = 0", "[[link]] to 3: dscp"),
            ("neighbour = 3", "neighbour = 3\npenalty = \"20ms\"", "[[link]] to 3: penalty"),
            ("via = 2", "via = 3", "[[route]]"),
            ("[node]", "[log]\nfilter = \"debug\"\n[node]", "[log] filter"),
            ("[node]", "[access]\ntransit = \"none\"\n[node]", "[access]"),
            ("[node]", "[access]\nrate = \"5 Mbit/s\"\n[node]", "[access] rate"),
            ("[[route]]", "[[link]]\nneighbour = 5\n[[route]]", "[[link]] to 5 (new)"),
            ("neighbour = 3", "neighbour = 2", "[[link]] to 3 (removed), [[link]] to 2 (new)"),
            ("neighbour = 3", "neighbour = 3\nmtu = 1400", "[[link]] to 3: mtu"),
            ("neighbour = 3", "neighbour = 3\naddress = \"c:7\"", "[[link]] to 3: address"),
            ("neighbour = 3", "neighbour = 3\ninterface = \"a\"", "[[link]] source, interface"),
            ("[[route]]", "[[trunk]]\nto = 4\nwait = \"1ms\"\n[[route]]", "[[trunk]]"),
        ] {
            assert_eq!(change(from, to), (applied.into(), none()), "{to}");
        }
        for (from, to, restart) in [
            ("id = 1", "id = 9", "[node] id"),
            (":7001", ":7002", "[node] listen"),
            ("[node]", "[routing]\nenabled = false\n[node]", "[routing] enabled"),
            (
                "[node]",
                "[routing]\nmetric = \"hops\"\ndeadline = \"90ms\"\nmax_nodes = 9\n[node]",
                "[routing] metric, [routing] deadline, [routing] max_nodes",
            ),
            ("[node]", "[runtime]\ncpu = 1\nseed = 2\n[node]", "[runtime] cpu, [runtime] seed"),
        ] {
            assert_eq!(change(from, to), (none(), restart.into()), "{to}");
        }
        assert_eq!(change("A", "A"), (none(), none()));
        let both = |key| format!("[[link]] to 2 over \"isp1\": {key}, [[link]] to 3: {key}");
        let damping = change("[node]", "[routing]\ndamping = \"30 s\"\n[node]");
        assert_eq!(damping, (both("[routing] damping"), none()));
        for section in ["[hello]\ninterval = \"50ms\"", "[realtime]\nreorder = 3"] {
            let (applied, restart) = change("[node]", &format!("{section}\n[node]"));
            let key = section.lines().next().expect("a line");
            assert_eq!((applied, restart), (both(key), none()));
        }
    }

    /// Their links keep the settings of the node's start.
    #[test]
    fn settings_of_links_to_unconfigured_peers_need_a_restart() {
        let peers = |section: &str, peers| {
            let mut config = config(&OLD.replace("[node]", &format!("{section}\n[node]")));
            let identity = trunkline_overlay::identity::Identity::from_secret(&[7; 32]);
            let unconfigured_peer = config.template.clone();
            let sealing =
                Sealing { unconfigured_peers: peers, unconfigured_peer, ..Sealing::new(identity) };
            config.overlay.sealing = Some(sealing);
            config.overlay.links.clear();
            config
        };
        for (section, key) in [
            ("[hello]\ninterval = \"50ms\"", "[hello]"),
            ("[realtime]\nreorder = 3", "[realtime]"),
            ("[best_effort]\nmax_wait = \"50ms\"", "[best_effort]"),
            ("[reliable]\nmemory = \"2 MiB\"", "[reliable]"),
            ("[routing]\ndamping = \"30 s\"", "[routing] damping"),
        ] {
            let change = diff(&peers("", 32), &peers(section, 32));
            assert_eq!(change.restart, [format!("{key} (for links to unconfigured peers)")]);
            assert!(change.applied.is_empty() && change.changes.is_empty(), "{change:?}");
            let again = diff(&change.running, &peers(section, 32));
            assert_eq!(again.restart, change.restart, "until it is restarted");
            assert!(diff(&peers("", 0), &peers(section, 0)).restart.is_empty(), "there are none");
        }
    }

    #[test]
    fn of_a_gateway_what_needs_no_socket_changes_at_once() {
        let sip = "\n[sip]\nlisten = [\"udp:127.0.0.1:5060\"]\nallow = [\"192.0.2.0/24\"]\n";
        let route = "\n[[sip.route]]\nto = \"b\"\nvia = \"udp:192.0.2.9:5060\"\n";
        let key = format!(
            "key = \"{}\"\n",
            trunkline_overlay::identity::Identity::from_secret(&[2; 32]).public()
        );
        let sealed = OLD
            .replace("unsealed_for_measurements = true", "key = \"a.key\"")
            .replace("[[link]]\n", &format!("[[link]]\n{key}"));
        let old = config(&format!("{sealed}{sip}{route}"));
        for (from, to, applied, restart) in [
            ("192.0.2.0/24", "192.0.2.7", "[sip] allow", ""),
            ("allow", "trust = [\"192.0.2.9\"]\nallow", "[sip] trust", ""),
            ("allow", "names = [\"a\"]\nallow", "[sip] names", ""),
            ("192.0.2.9:5060", "192.0.2.9:5070", "[[sip.route]]", ""),
            ("1:5060", "1:5061", "", "[sip] listen"),
            ("allow", "address = \"192.0.2.1\"\nallow", "", "[sip] listen"),
            ("allow", "ports = \"20000-20099\"\nallow", "", "[sip] ports"),
            ("allow", "max_calls = 7\nallow", "", "[sip] max_calls"),
            ("allow", "deadline = \"50ms\"\nallow", "", "[sip] deadline"),
            ("allow", "records = \"r\"\nallow", "", "[sip] records"),
        ] {
            let new = config(&format!("{sealed}{}", format!("{sip}{route}").replacen(from, to, 1)));
            let change = diff(&old, &new);
            let said = (change.applied.join(", "), change.restart.join(", "));
            assert_eq!(said, (applied.into(), restart.into()), "{to}");
            let again = diff(&change.running, &new);
            assert!(again.applied.is_empty() && again.restart == change.restart, "{to}");
        }
        let none = config(&sealed);
        assert_eq!(diff(&old, &none).restart[0], "[sip]");
    }

    #[test]
    fn rights_of_the_same_clients_change_at_once_other_clients_need_a_restart() {
        let (mut old, mut new) = (config(OLD), config(OLD));
        let key = trunkline_overlay::identity::PublicKey([7; 32]);
        let client = super::super::config::KnownClient { name: "pbx".into(), key };
        for config in [&mut old, &mut new] {
            config.clients.push(client.clone());
            config.overlay.access.clients.push(overlay::Rights::default());
        }
        new.overlay.access.clients[0].to = overlay::Nodes::only([]);
        let rights = diff(&old, &new);
        assert_eq!((rights.applied, rights.restart), (vec!["[[client]] bind, to".into()], vec![]));
        assert_eq!(rights.changes.access.unwrap(), new.overlay.access);
        new.clients[0].name = "another".into();
        new.overlay.access.transit = overlay::Nodes::only([]);
        let another = diff(&old, &new);
        assert_eq!(another.applied, ["[access]"]);
        assert_eq!(another.restart, ["[[client]] (another, or another key)"]);
        assert_eq!(another.changes.access.unwrap().clients, old.overlay.access.clients);
    }

    #[test]
    fn a_certificate_is_renewed_and_nothing_else_about_the_node() {
        use trunkline_overlay::identity::{Certificate, Identity};
        let secret = |n| Identity::from_secret(&[n; 32]);
        let issue = |id, name, key, end| {
            Certificate::issue(&secret(9), NodeId(id), name, secret(key).public(), end).unwrap()
        };
        let with = |certificate, key| {
            let mut config = config(OLD);
            let sealing = Sealing { certificate, ..Sealing::new(secret(key)) };
            config.overlay.sealing = Some(sealing);
            config
        };
        let old = with(Some(issue(1, "a", 1, 100)), 1);
        let differs = |new: &Config| {
            let diff = super::diff(&old, new);
            let again = super::diff(&diff.running, new);
            assert!(again.applied.is_empty() && again.restart == diff.restart, "{again:?}");
            (diff.applied.join(", "), diff.restart.join(", "), diff.changes.certificate)
        };
        let renewed = issue(1, "a", 1, 200);
        let (applied, restart, change) = differs(&with(Some(renewed.clone()), 1));
        assert_eq!((&*applied, &*restart), ("[node] certificate", ""));
        assert_eq!(change, Some(renewed));
        let first = super::diff(&with(None, 1), &old);
        assert_eq!(first.applied, ["[node] certificate"]);
        let another_id = {
            let mut config = with(Some(issue(7, "a", 1, 200)), 1);
            config.overlay.id = NodeId(7);
            config
        };
        for (new, why) in [
            (with(None, 1), "[node] certificate (none any more)"),
            (with(Some(issue(1, "b", 1, 200)), 1), "[node] certificate (by another name)"),
            (
                with(Some(issue(1, "a", 2, 200)), 2),
                "[node] key, [node] certificate (for another key)",
            ),
            (another_id, "[node] id, [node] certificate (for another id)"),
        ] {
            assert_eq!(differs(&new), (String::new(), why.into(), None));
        }
    }

    /// A change of sending parameters keeps the link; a change of its identity replaces it.
    #[test]
    fn a_link_is_changed_or_replaced() {
        let links = |from, to| diff(&config(OLD), &config(&OLD.replace(from, to))).changes;
        let slower = links("10 Mbit/s", "5 Mbit/s");
        assert!(slower.added.is_empty() && slower.removed.is_empty());
        let [(name, change)] = &slower.links[..] else { panic!("one link") };
        assert_eq!(*name, (NodeId(2), "isp1".to_owned()));
        assert_eq!(change.rate.map(|r| r.as_bps()), Some(5_000_000));
        let larger = links("neighbour = 3", "neighbour = 3\nmtu = 1400");
        assert_eq!(larger.removed, [(NodeId(3), String::new())]);
        assert_eq!(larger.added.len(), 1);
        assert!(larger.links.is_empty());
    }
}
