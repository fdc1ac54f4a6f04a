//! What a changed configuration file means for a node that runs.

use super::config::{Config, Runtime};
use trunkline_overlay::link::{self, LinkChange, LinkId};
use trunkline_overlay::node::{self as overlay, Access, Changes};
use trunkline_overlay::wire::NodeId;

/// What is to be done about a changed file.
#[derive(Clone, Debug)]
pub struct Diff {
    /// What the node takes while it runs.
    pub changes: Changes,
    /// Links that only the new file has.
    pub added: Vec<link::Config>,
    /// Links that only the old file has.
    pub removed: Vec<(NodeId, String)>,
    /// The keys that change at once, as a user knows them.
    pub applied: Vec<String>,
    /// The keys that need a restart.
    pub restart: Vec<String>,
    /// How the node runs once the changes are made: what needs a restart is
    /// still as before.
    pub running: Config,
}

/// Compares a node that runs by `old` with the file `new`.
pub fn diff(old: &Config, new: &Config) -> Diff {
    let mut diff = Diff {
        changes: Changes::default(),
        added: Vec::new(),
        removed: Vec::new(),
        applied: Vec::new(),
        restart: Vec::new(),
        running: old.clone(),
    };
    diff.node(old, new);
    diff.links(old, new);
    diff.routes(old, new);
    diff
}

impl Diff {
    fn node(&mut self, old: &Config, new: &Config) {
        // Taken apart, so that the compiler asks about each new key.
        let Config { name, listen, socket, remote, http, control, log_filter, overlay, runtime } =
            new;
        let overlay::Config { id, links: _, routes: _, max_sessions, access, routing, sealing } =
            overlay;
        let Runtime { realtime_priority, cpu, offload, seed } = runtime;
        if old.name != *name {
            self.applied.push("[node] name".into());
            self.running.name.clone_from(name);
        }
        if old.log_filter != *log_filter {
            self.applied.push("[log] filter".into());
            self.running.log_filter.clone_from(log_filter);
        }
        self.access(&old.overlay.access, access);
        let run = &old.runtime;
        for (differs, key) in [
            (old.overlay.id != *id, "[node] id"),
            (old.listen != *listen, "[node] listen"),
            (old.socket != *socket, "[node] socket"),
            (old.remote != *remote, "[node] remote"),
            (old.http != *http, "[node] http"),
            (old.control != *control, "[node] control"),
            (old.overlay.max_sessions != *max_sessions, "[node] max_sessions"),
            (old.overlay.routing != *routing, "[routing]"),
            (old.overlay.sealing != *sealing, "[overlay]"),
            (run.realtime_priority != *realtime_priority, "[runtime] realtime_priority"),
            (run.cpu != *cpu, "[runtime] cpu"),
            (run.offload != *offload, "[runtime] offload"),
            (run.seed != *seed, "[runtime] seed"),
        ] {
            if differs {
                self.restart.push(key.into());
            }
        }
    }

    fn access(&mut self, was: &Access, is: &Access) {
        let new = Access { clients: was.clients.clone(), ..is.clone() };
        if *was != new {
            self.applied.push("[access]".into());
            self.running.overlay.access = new.clone();
            self.changes.access = Some(new);
        }
        if was.clients != is.clients {
            self.restart.push("[access] (rights of clients)".into());
        }
    }

    fn links(&mut self, old: &Config, new: &Config) {
        let (old, new) = (&old.overlay.links, &new.overlay.links);
        let mut found = Vec::new();
        for (was, id) in old.iter().zip(0..) {
            match new.iter().position(|l| same_link(was, l)) {
                Some(i) => {
                    found.push(i);
                    self.link(LinkId(id), was, &new[i]);
                }
                None => {
                    self.restart.push(format!("{} (removed)", title(was)));
                    self.removed.push((was.neighbour, was.path.clone()));
                }
            }
        }
        for link in new.iter().filter(|l| !old.iter().any(|o| same_link(o, l))) {
            self.restart.push(format!("{} (new)", title(link)));
            self.added.push(link.clone());
        }
        // The first of several links to a neighbour is the one that is taken.
        if !found.is_sorted() {
            self.restart.push("[[link]] (order)".into());
        }
    }

    fn link(&mut self, id: LinkId, was: &link::Config, is: &link::Config) {
        let link::Config {
            neighbour: _,
            path: _,
            key,
            address,
            mtu,
            dscp,
            rate,
            liveness,
            realtime,
            best_effort,
        } = is;
        let change = LinkChange { rate: *rate, dscp: *dscp };
        for (differs, key) in [(was.rate != *rate, "rate"), (was.dscp != *dscp, "dscp")] {
            if differs {
                self.applied.push(format!("{}: {key}", title(was)));
            }
        }
        if (was.rate, was.dscp) != (*rate, *dscp) {
            self.changes.links.push((id, change));
            let running = &mut self.running.overlay.links[usize::from(id.0)];
            (running.rate, running.dscp) = (*rate, *dscp);
        }
        for (differs, key) in [
            (was.key != *key, "key"),
            (was.address != *address, "address"),
            (was.mtu != *mtu, "mtu"),
        ] {
            if differs {
                self.restart.push(format!("{}: {key}", title(was)));
            }
        }
        // These sections are for all links: named once.
        for (differs, section) in [
            (was.liveness != *liveness, "[hello]"),
            (was.realtime != *realtime, "[realtime]"),
            (was.best_effort != *best_effort, "[best_effort]"),
        ] {
            if differs && !self.restart.iter().any(|key| key == section) {
                self.restart.push(section.into());
            }
        }
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

fn same_link(a: &link::Config, b: &link::Config) -> bool {
    (a.neighbour, &a.path) == (b.neighbour, &b.path)
}

/// A link as a user knows it.
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

    const OLD: &str = r#"
[node]
id = 1
name = "A"
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

    /// What a change of the file does: applied, and needing a restart.
    fn change(from: &str, to: &str) -> (String, String) {
        assert!(OLD.contains(from), "{from}");
        let (old, new) = (config(OLD), config(&OLD.replace(from, to)));
        let diff = diff(&old, &new);
        // What was applied is no difference any more; what was not still is.
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
            ("via = 2", "via = 3", "[[route]]"),
            ("[node]", "[log]\nfilter = \"debug\"\n[node]", "[log] filter"),
            ("[node]", "[access]\ntransit = \"none\"\n[node]", "[access]"),
        ] {
            assert_eq!(change(from, to), (applied.into(), none()), "{to}");
        }
        for (from, to, restart) in [
            ("id = 1", "id = 9", "[node] id"),
            (":7001", ":7002", "[node] listen"),
            ("[[route]]", "[[link]]\nneighbour = 5\n[[route]]", "[[link]] to 5 (new)"),
            ("neighbour = 3", "neighbour = 2", "[[link]] to 3 (removed), [[link]] to 2 (new)"),
            ("neighbour = 3", "neighbour = 3\nmtu = 1400", "[[link]] to 3: mtu"),
            ("[node]", "[hello]\ninterval = \"50ms\"\n[node]", "[hello]"),
            ("[node]", "[realtime]\nreorder = 3\n[node]", "[realtime]"),
            ("[node]", "[best_effort]\nmax_wait = \"1 s\"\n[node]", "[best_effort]"),
            ("[node]", "[runtime]\ncpu = 1\nseed = 2\n[node]", "[runtime] cpu, [runtime] seed"),
        ] {
            assert_eq!(change(from, to), (none(), restart.into()), "{to}");
        }
        assert_eq!(change("A", "A"), (none(), none()));
        let mixed = change("rate = \"10 Mbit/s\"", "mtu = 1500");
        assert_eq!(mixed.0, "[[link]] to 2 over \"isp1\": rate");
        assert_eq!(mixed.1, "[[link]] to 2 over \"isp1\": mtu");
    }

    #[test]
    fn the_rights_of_clients_stay_in_their_places() {
        let (old, mut new) = (config(OLD), config(OLD));
        new.overlay.access.clients.push(overlay::Rights::default());
        new.overlay.access.transit = overlay::Nodes::only([]);
        let diff = diff(&old, &new);
        assert_eq!(diff.applied, ["[access]"]);
        assert_eq!(diff.restart, ["[access] (rights of clients)"]);
        assert!(diff.changes.access.is_some_and(|a| a.clients.is_empty()));
    }

    #[test]
    fn a_moved_link_changes_under_its_old_number() {
        let swapped = "[node]\nid = 1\nname = \"A\"\nlisten = [\"127.0.0.1:7001\"]\n\
            [[link]]\nneighbour = 3\ndscp = 8\n[[link]]\nneighbour = 2\npath = \"isp1\"\n\
            rate = \"10 Mbit/s\"\n[[route]]\nto = [4]\nvia = 2\n";
        let diff = diff(&config(OLD), &config(swapped));
        let change = LinkChange { rate: None, dscp: 8 };
        assert_eq!(diff.changes.links, [(LinkId(1), change)]);
        assert_eq!(diff.restart, ["[[link]] (order)"]);
    }
}
