mod intake;

use super::database::{Database, Entry, RecordFreshness};
use super::differing::Differing;
use super::flood::Adjacency;
use super::keys::{Keys, Signer};
use super::self_originated::{MAX_LINKS, SelfOriginated};
use super::spf::{Graph, Tree};
use super::stats::{Refusals, RouteStats};
use super::table::{ForwardingTable, Hop, StaticRoute};
use super::update::{Advert, Key, Part, Record};
use super::{Config, Limits};
use crate::identity::{PublicKey, Trust};
use crate::link::{LinkCost, LinkId};
use crate::wire::{Metric, NodeId};
use core::cell::Cell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_base::wire::Reader;
use trunkline_base::{Pacer, Time};

/// Maximum number of kept records of nodes that are no longer trusted, in case that is undone:
/// checking them again takes 50 µs each.
const MAX_ASIDE: usize = 64;
/// Interval at which the database is searched for expired records.
const SWEEP: Duration = Duration::from_secs(60);

/// The neighbour at the other end of a link that has come up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Id of the neighbour.
    pub id: NodeId,
    /// Distinguishes several links to the neighbour; the same at both ends.
    pub path: u8,
    /// Whether it has restarted since the link was last up, or the link never was up: then it lacks
    /// every record. No frame from its previous life may be passed in afterwards, since an old
    /// acknowledgement would be taken for a new one.
    pub restarted: bool,
    /// Round trip of the link, zero if unknown: records are retransmitted after twice as long.
    pub rtt: Duration,
}

/// A computed route to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// All nodes on the path, this one first.
    pub path: Vec<NodeId>,
    /// Cost of the path, in units of its metric.
    pub cost: u64,
    /// Whether every path leads through a node that is draining or restricts transit.
    pub last_resort: bool,
}

#[derive(Debug)]
struct Link {
    adjacency: Adjacency,
    cost: Option<LinkCost>,
    /// While the two ends of a new link may not have each other's record that lists it: the time
    /// at which the record goes to other neighbours regardless.
    hold: Option<Time>,
    refused: Refusals,
}

impl Link {
    fn new(id: NodeId, path: u8, limits: &Limits) -> Link {
        let adjacency = Adjacency::new(id, path, limits);
        Link { adjacency, cost: None, hold: None, refused: Refusals::default() }
    }

    fn down(&mut self) {
        self.adjacency.down();
        (self.cost, self.hold) = (None, None);
    }
}

/// Minimum time after which other nodes learn of a new link although one of its ends may not know
/// that it counts: enough for a lost frame to be sent again.
const MIN_HOLD: Duration = Duration::from_millis(200);
/// Maximum of that time, whatever round trip the neighbour feigns.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// Link-state routing of one node.
///
/// The driver reports links and frames, calls [`handle_timeout`](Router::handle_timeout), then
/// polls each link for [frames](Router::poll_frame) until there are none, and fetches a new
/// [table](Router::table), if any. Input alone sends and computes nothing.
#[derive(Debug)]
pub struct Router {
    config: Config,
    keys: Box<dyn Keys>,
    signer: Box<dyn Signer>,
    /// The last given time in nanoseconds since 1970, and the time at which it was given.
    wall: (u64, Time),
    links: Vec<Option<Link>>,
    db: Database,
    /// Records of origins that are no longer trusted.
    distrusted: BTreeMap<Key, Entry>,
    /// Origins without a key at this node, with the time of their last record.
    unknown_peers: BTreeMap<NodeId, Time>,
    differing: Differing,
    own: SelfOriginated,
    check_at: Time,
    /// Number of the link to check records of next.
    turn: usize,
    sweep_at: Time,
    spf_at: Time,
    spf_pacer: Pacer,
    graph: Graph,
    trees: [Tree; Metric::COUNT],
    table: Arc<ForwardingTable>,
    table_changed: bool,
    stats: RouteStats,
    /// The next timeout, unless something has changed since it was computed: a packet that is
    /// forwarded changes nothing here, whatever the number of links.
    wake: Cell<Option<Time>>,
}

impl Router {
    /// Creates a router without links. `wall_ns`, nanoseconds since 1970, is where its sequence
    /// numbers start. `keys` must include this node's key, or its records from before a restart
    /// would count as forgeries.
    pub fn new(
        config: Config,
        keys: Box<dyn Keys>,
        signer: Box<dyn Signer>,
        wall_ns: u64,
        now: Time,
    ) -> Router {
        Router {
            keys,
            signer,
            wall: (wall_ns, now),
            links: Vec::new(),
            db: Database::new(),
            distrusted: BTreeMap::new(),
            unknown_peers: BTreeMap::new(),
            differing: Differing::new(config.cost.digest()),
            own: SelfOriginated::new(&config, wall_ns, now),
            check_at: now,
            turn: 0,
            sweep_at: now + SWEEP,
            spf_at: now,
            spf_pacer: config.limits.spf_pacer(),
            graph: Graph::default(),
            trees: Default::default(),
            table: Arc::default(),
            table_changed: false,
            stats: RouteStats::default(),
            wake: Cell::new(None),
            config,
        }
    }

    /// Handles `link` coming up, or a restart of its neighbour. The link is advertised as soon as
    /// it has a [cost](Router::set_cost).
    pub fn link_up(&mut self, now: Time, link: LinkId, neighbour: Neighbour) {
        self.wake.set(None);
        let index = usize::from(link.0);
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        let Neighbour { id, path, restarted, rtt } = neighbour;
        let slot = &mut self.links[index];
        let same =
            slot.as_ref().is_some_and(|l| (l.adjacency.neighbour, l.adjacency.path) == (id, path));
        if !same {
            *slot = Some(Link::new(id, path, &self.config.limits));
        }
        if let Some(link) = slot {
            link.adjacency.up(now, restarted || !same, rtt, &self.db);
        }
        self.touch(now);
    }

    /// Handles the failure of `link`.
    pub fn link_down(&mut self, now: Time, link: LinkId) {
        self.wake.set(None);
        if let Some(link) = self.link(link) {
            link.down();
            self.touch(now);
        }
    }

    /// Removes `link` for good.
    pub fn remove_link(&mut self, now: Time, link: LinkId) {
        self.wake.set(None);
        if let Some(place) = self.links.get_mut(usize::from(link.0)) {
            *place = None;
            self.touch(now);
        }
    }

    /// Adds `link`, which is not up yet.
    pub fn add_link(&mut self, now: Time, link: LinkId, id: NodeId, path: u8) {
        self.wake.set(None);
        let index = usize::from(link.0);
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.links[index] = Some(Link::new(id, path, &self.config.limits));
        self.spf_soon(now);
    }

    /// Sets the cost of `link`, which is up. The caller has decided that it should be advertised.
    pub fn set_cost(&mut self, now: Time, link: LinkId, cost: LinkCost) {
        self.wake.set(None);
        let cost = Some(cost.as_sent());
        if let Some(link) = self.link(link).filter(|l| l.adjacency.up && l.cost != cost) {
            if link.cost.is_none() {
                link.hold = Some(now + (4 * link.adjacency.rtt).clamp(MIN_HOLD, MAX_HOLD));
            }
            link.cost = cost;
            self.touch(now);
        }
    }

    /// Sets the round trip of `link`, which determines the time of retransmissions.
    pub fn set_rtt(&mut self, link: LinkId, rtt: Duration) {
        self.wake.set(None);
        if let Some(link) = self.link(link) {
            link.adjacency.rtt = rtt;
        }
    }

    /// Sets whether others should send their traffic over other paths where they exist: this node
    /// stays reachable, like an OSPF stub router (RFC 6987).
    pub fn drain(&mut self, now: Time, drain: bool) {
        self.wake.set(None);
        if self.own.draining != drain {
            self.own.draining = drain;
            self.touch(now);
        }
    }

    /// Introduces this node with `certificate` from now on.
    pub fn introduce(&mut self, now: Time, certificate: Vec<u8>) {
        self.wake.set(None);
        self.own.introduce(now, certificate, &self.config.limits);
    }

    /// Replaces the trusted operators and configured keys (see [`Keys::set_trust`]). Records of
    /// nodes without a known key don't count any more. They are set aside in case a mistake is
    /// corrected: the neighbours, which have an acknowledgement for them, would not send them again
    /// before their origin's next refresh.
    pub fn set_trust(
        &mut self,
        now: Time,
        wall_ns: u64,
        trust: &Trust,
        configured: &[(NodeId, PublicKey)],
    ) {
        self.wake.set(None);
        self.wall = (wall_ns, now);
        self.keys.set_trust(trust, configured, wall_ns);
        self.forget_unknown(now);
        self.take_back(now);
    }

    /// Sets aside the records of origins without a known key.
    fn forget_unknown(&mut self, now: Time) {
        let origins = self.db.iter().map(|(key, _)| key);
        let unknown = |key: &Key| key.origin != self.config.id && !self.keys.knows(key.origin);
        let gone: Vec<Key> = origins.filter(unknown).collect();
        for key in gone {
            if let Some(entry) = self.drop_record(key)
                && self.distrusted.len() < MAX_ASIDE
            {
                self.distrusted.insert(key, entry);
            }
            self.spf_soon(now);
        }
    }

    /// Restores records that were set aside, if their origin is trusted again.
    fn take_back(&mut self, now: Time) {
        // For each origin, the introduction comes first.
        for (key, entry) in core::mem::take(&mut self.distrusted) {
            let bytes = entry.record(now);
            let Ok(record) = Record::parse(&mut Reader::new(&bytes)) else { continue };
            if entry.is_over(now) || self.db.standing(&record) != RecordFreshness::New {
                continue;
            }
            match self.verify(now, &record) {
                Ok(()) => self.keep(now, &record, None, now),
                Err(_) => drop(self.distrusted.insert(key, entry)),
            }
        }
    }

    fn drop_record(&mut self, key: Key) -> Option<Entry> {
        for link in self.links.iter_mut().flatten() {
            link.adjacency.forget(key);
        }
        let gone = self.db.remove(key);
        self.differing.note(key.origin, self.db.digest(key.origin));
        gone
    }

    /// The present time in nanoseconds since 1970.
    fn wall_ns(&self, now: Time) -> u64 {
        let (wall_ns, at) = self.wall;
        wall_ns.saturating_add(now.as_nanos().saturating_sub(at.as_nanos()))
    }

    /// Replaces the operator's routes.
    pub fn set_routes(&mut self, now: Time, routes: Vec<StaticRoute>) {
        self.wake.set(None);
        self.config.routes = routes;
        // An operator should not have to wait, and cannot make changes too fast.
        self.spf_at = now;
    }

    fn link(&mut self, LinkId(link): LinkId) -> Option<&mut Link> {
        self.links.get_mut(usize::from(link))?.as_mut()
    }

    /// Handles a change of this node's links: routes change at once, and others are notified.
    fn touch(&mut self, now: Time) {
        self.own.touch(now);
        self.spf_soon(now);
    }

    fn spf_soon(&mut self, now: Time) {
        self.spf_at = self.spf_at.min(now.max(self.spf_pacer.next()));
    }

    /// Performs the actions that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake.set(None);
        if self.check_at <= now {
            self.check(now);
        }
        if self.sweep_at <= now {
            self.sweep(now);
        }
        if self.own.refresh_due(now) {
            self.own.refresh(now, &self.config.limits);
        }
        if self.own.due <= now {
            self.originate(now);
        }
        if self.spf_at <= now {
            self.compute(now);
        }
    }

    /// Stores `record`, which came from the link `from` if not from this node, and offers it to
    /// the neighbours; to those at the end of a link that is not new, at `due`.
    fn keep(&mut self, now: Time, record: &Record<'_>, from: Option<usize>, due: Time) {
        if self.db.insert(record, now, &self.config.limits) {
            self.spf_soon(now);
        }
        let origin = record.key.origin;
        self.differing.note(origin, self.db.digest(origin));
        for (i, link) in self.links.iter_mut().enumerate() {
            match link {
                Some(link) if Some(i) == from => link.adjacency.heard(record.key, record.seq),
                Some(link) if link.hold.is_some() => link.adjacency.offer(now, record.key),
                Some(link) => link.adjacency.offer_by(due, record.key),
                None => {}
            }
        }
    }

    fn originate(&mut self, now: Time) {
        let links = self.adverts();
        let held = self.held_until(now, &links);
        let limits = &self.config.limits;
        let records = self.own.originate(now, &links, &self.db, limits, &*self.signer);
        for mut bytes in records.into_iter().map(Vec::from) {
            bytes.extend(0u16.to_be_bytes());
            if let Ok(record) = Record::parse(&mut Reader::new(&bytes)) {
                self.stats.originated += 1;
                self.keep(now, &record, None, held);
            }
        }
    }

    /// Time at which other nodes may have this node's records with `links`. Packets that they sent
    /// over a new link before both its ends know that it counts would come back.
    fn held_until(&self, now: Time, links: &[Advert]) -> Time {
        let ends = |advert: &Advert| (advert.neighbour, advert.path);
        let is_as_good = |old: &Advert| {
            let link = links.iter().find(|link| ends(link) == ends(old));
            link.is_some_and(|link| link.cost.loss <= old.cost.loss)
        };
        let records = self.db.of(self.config.id);
        let mut before = records.filter(|(key, _)| matches!(key.part, Part::Links(_)));
        // A failure, a loss or a drain must spread at once.
        let is_harmless = |entry: &Entry| {
            entry.draining == self.own.draining && entry.links.iter().all(is_as_good)
        };
        if !before.all(|(_, entry)| is_harmless(entry)) {
            return now;
        }
        self.links.iter().flatten().filter_map(|link| link.hold).fold(now, Time::max)
    }

    /// Spreads this node's records once both ends of each new link have each other's. `changed` is
    /// the neighbour that has sent or acknowledged a record.
    fn confirm(&mut self, now: Time, changed: NodeId) {
        if self.links.iter().flatten().all(|link| link.hold.is_none()) {
            return;
        }
        let own: Vec<(Key, u64)> =
            self.db.of(self.config.id).map(|(key, entry)| (key, entry.seq)).collect();
        for link in self.links.iter_mut().flatten() {
            let Adjacency { neighbour, path, .. } = link.adjacency;
            link.hold = link.hold.filter(|&hold| hold > now);
            if link.hold.is_none() || neighbour != changed {
                continue;
            }
            let mut theirs = self.db.of(neighbour).flat_map(|(_, entry)| &entry.links);
            let is_listed = theirs.any(|a| (a.neighbour, a.path) == (self.config.id, path));
            if is_listed && own.iter().all(|&(key, seq)| link.adjacency.has(key, seq)) {
                link.hold = None;
            }
        }
        if self.links.iter().flatten().all(|link| link.hold.is_none()) {
            for link in self.links.iter_mut().flatten() {
                own.iter().for_each(|&(key, _)| link.adjacency.hasten(now, key));
            }
        }
    }

    /// This node's links as they are advertised.
    fn adverts(&self) -> Vec<Advert> {
        let mut adverts: Vec<Advert> = self
            .links
            .iter()
            .flatten()
            .filter(|l| l.adjacency.up && l.adjacency.neighbour != self.config.id)
            .filter_map(|l| {
                let (neighbour, path) = (l.adjacency.neighbour, l.adjacency.path);
                Some(Advert { neighbour, path, cost: l.cost? })
            })
            .collect();
        adverts.sort_unstable();
        adverts.dedup_by_key(|a| (a.neighbour, a.path));
        adverts.truncate(MAX_LINKS);
        adverts
    }

    fn sweep(&mut self, now: Time) {
        self.sweep_at = now + SWEEP;
        for origin in self.keys.expire(self.wall_ns(now)) {
            // No neighbour would accept it.
            self.drop_record(Key { origin, part: Part::Introduction });
        }
        self.forget_unknown(now);
        for key in self.db.expire(now) {
            self.stats.expired += 1;
            for link in self.links.iter_mut().flatten() {
                link.adjacency.forget(key);
            }
            self.differing.note(key.origin, self.db.digest(key.origin));
            if !self.db.has(key.origin) {
                self.keys.forget(key.origin);
            }
            self.spf_soon(now);
        }
    }

    fn compute(&mut self, now: Time) {
        self.spf_at = Time::NEVER;
        // An operator's change doesn't wait, and costs later changes nothing.
        self.spf_pacer.admit(now, 1);
        self.stats.spf_runs += 1;
        let own = self.config.id;
        self.graph.rebuild(own, &self.adverts(), &self.db, &self.config.cost);
        self.stats.denied = self.graph.denied();
        for (tree, metric) in self.trees.iter_mut().zip(Metric::ALL) {
            tree.run(&self.graph, own, metric);
        }
        let table = self.build_table();
        if table != *self.table {
            self.table = Arc::new(table);
            self.table_changed = true;
        }
    }

    fn build_table(&self) -> ForwardingTable {
        let ends: Vec<_> = self.links.iter().map(end).collect();
        let mut ids: Vec<(NodeId, u8, LinkId)> = (0..)
            .zip(&self.links)
            .filter_map(|(id, link)| {
                let a = &link.as_ref().filter(|l| l.cost.is_some())?.adjacency;
                Some((a.neighbour, a.path, LinkId(id)))
            })
            .collect();
        ids.sort_unstable();
        let hop = |tree: &Tree, node| {
            let way = tree.way(&self.graph, node)?;
            let found = ids.partition_point(|&(n, path, _)| (n, path) < (way.neighbour, way.path));
            Some(Hop { link: ids.get(found)?.2, onward: way.onward })
        };
        let nodes = self.graph.nodes().iter().filter(|&&node| node != self.config.id);
        let computed = nodes.map(|&node| (node, self.trees.each_ref().map(|tree| hop(tree, node))));
        ForwardingTable::computed(computed.collect(), &self.config.routes, &ends)
    }

    /// Time of the next call of [`handle_timeout`](Router::handle_timeout) and of the next poll for
    /// frames; in the past if there is something to do now.
    pub fn next_timeout(&self) -> Time {
        let wake = self.wake.get().unwrap_or_else(|| self.earliest());
        debug_assert_eq!(wake, self.earliest(), "a change was not noticed");
        self.wake.set(Some(wake));
        wake
    }

    fn earliest(&self) -> Time {
        let links = self.links.iter().flatten().map(|l| &l.adjacency);
        let waiting = links.clone().any(|a| !a.inbox.is_empty());
        let check = if waiting { self.check_at } else { Time::NEVER };
        let frames = links.map(Adjacency::next_timeout).min().unwrap_or(Time::NEVER);
        frames.min(check).min(self.sweep_at).min(self.own.next_timeout()).min(self.spf_at)
    }

    /// The next frame for `link`, of at most `room` bytes, which must be at least
    /// [`MIN_ROOM`](super::MIN_ROOM); `None` if nothing is due.
    pub fn poll_frame(&mut self, link: LinkId, now: Time, room: usize) -> Option<Vec<u8>> {
        self.wake.set(None);
        let link = self.links.get_mut(usize::from(link.0))?.as_mut()?;
        link.adjacency.poll(now, room, &self.db, &mut self.stats)
    }

    /// The forwarding table, if it has changed since the last call.
    pub fn table(&mut self) -> Option<Arc<ForwardingTable>> {
        core::mem::take(&mut self.table_changed).then(|| Arc::clone(&self.table))
    }

    /// The computed route to `node` by `metric`, as of the last computation.
    pub fn route(&self, node: NodeId, metric: Metric) -> Option<Route> {
        let tree = &self.trees[metric as usize];
        let cost = tree.distance(&self.graph, node)?;
        let last_resort = tree.is_last_resort(&self.graph, node);
        Some(Route { path: tree.path(&self.graph, node), cost, last_resort })
    }

    /// All records in the database: key, sequence number and links.
    pub fn records(&self) -> impl Iterator<Item = (Key, u64, &[Advert])> {
        self.db.iter().map(|(key, entry)| (key, entry.seq, &*entry.links))
    }

    /// Number of nodes with a record in the database, including this one.
    pub fn nodes(&self) -> usize {
        self.db.nodes()
    }

    /// Nodes named in records of the last minutes that this node cannot verify, so they have no
    /// route. Only a limited number is kept.
    pub fn unknown_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.unknown_peers.keys().copied().filter(|origin| !self.keys.knows(*origin))
    }

    /// Nodes with a [digest](super::CostModel::digest) that differs from this node's, ascending by
    /// id: they may compute other costs from the same records.
    pub fn differing(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.differing.nodes()
    }

    /// Number of changes of [`Router::differing`].
    pub fn differing_changes(&self) -> u64 {
        self.differing.changes()
    }

    /// Records and frames refused from the neighbour at the end of `link`.
    pub fn refused(&self, link: LinkId) -> Refusals {
        let link = self.links.get(usize::from(link.0)).and_then(Option::as_ref);
        link.map_or_else(Refusals::default, |link| link.refused)
    }

    /// Counters of this router.
    pub fn stats(&self) -> &RouteStats {
        &self.stats
    }
}

/// The neighbour at the end of a link, and whether it is up: for the operator's routes.
fn end(link: &Option<Link>) -> Option<(NodeId, bool)> {
    link.as_ref().map(|l| (l.adjacency.neighbour, l.adjacency.up))
}
