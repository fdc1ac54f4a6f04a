use super::Config;
use super::database::{Database, Entry, RecordFreshness};
use super::differing::Differing;
use super::flood::Adjacency;
use super::keys::{Keys, Signer};
use super::self_originated::{MAX_LINKS, SelfOriginated};
use super::spf::{Graph, Tree};
use super::stats::{Refusals, RefusedRecord, RouteStats};
use super::table::{ForwardingTable, Hop, StaticRoute};
use super::update::{Advert, Key, Part, Record, RouteFrame};
use crate::identity::{PublicKey, Trust};
use crate::link::{LinkCost, LinkId};
use crate::wire::{Metric, NodeId};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_base::Time;
use trunkline_base::wire::Reader;

/// Between two rounds of checking signatures, if one is not enough.
const CHECK_PAUSE: Duration = Duration::from_millis(1);
/// What a wrong signature costs a neighbour, in records: an honest one has
/// checked it before.
const INVALID_SIGNATURE_COST: u32 = 10;
/// Records of nodes no longer believed that are kept, should that be taken back:
/// checking them again takes 50 µs each.
const MAX_ASIDE: usize = 64;
/// How often the database is searched for what is too old.
const SWEEP: Duration = Duration::from_secs(60);

/// Who is at the other end of a link that has come up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its address in the overlay.
    pub id: NodeId,
    /// Tells several links to it apart; the same at both ends.
    pub path: u8,
    /// Whether it has started anew since the link was up last, or it never was:
    /// then it lacks everything. No frame of its life before may be handed over
    /// afterwards, since an old acknowledgement would be taken for a new one.
    pub restarted: bool,
    /// The link's round trip, zero if not known: what is sent is sent again
    /// after twice as long.
    pub rtt: Duration,
}

/// How packets get to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// All nodes on the way, this one first.
    pub path: Vec<NodeId>,
    /// What that costs, in units of its metric.
    pub cost: u64,
    /// Whether every way leads through a node that is draining or doesn't let all pass.
    pub last_resort: bool,
}

#[derive(Debug)]
struct Link {
    adjacency: Adjacency,
    cost: Option<LinkCost>,
    refused: Refusals,
}

/// As many unknown origins are named to an operator.
const MAX_STRANGERS: usize = 16;
/// For how long after what they said last.
const STRANGE_FOR: Duration = Duration::from_secs(300);

/// Link-state routing of one node.
///
/// The driver tells it of links and frames, calls
/// [`handle_timeout`](Router::handle_timeout), then asks each link for
/// [frames](Router::poll_frame) until there is none, and for a new
/// [table](Router::table). Input by itself sends and computes nothing.
#[derive(Debug)]
pub struct Router {
    config: Config,
    keys: Box<dyn Keys>,
    signer: Box<dyn Signer>,
    /// Nanoseconds since 1970, when last told, and when that was.
    wall: (u64, Time),
    links: Vec<Option<Link>>,
    db: Database,
    /// What those said who are not believed any more.
    distrusted: BTreeMap<Key, Entry>,
    /// Who has said something lately, by a key that this node doesn't know.
    unknown_peers: BTreeMap<NodeId, Time>,
    differing: Differing,
    own: SelfOriginated,
    check_at: Time,
    /// The link whose records are checked next.
    turn: usize,
    sweep_at: Time,
    spf_at: Time,
    spf_earliest: Time,
    graph: Graph,
    trees: [Tree; Metric::COUNT],
    table: Arc<ForwardingTable>,
    table_changed: bool,
    stats: RouteStats,
}

impl Router {
    /// A router without links. `wall_ns`, nanoseconds since 1970, is where its
    /// updates' numbers start; `keys` must know this node's own key, too, lest
    /// what it said before a restart count as a forgery.
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
            spf_earliest: now,
            graph: Graph::default(),
            trees: Default::default(),
            table: Arc::default(),
            table_changed: false,
            stats: RouteStats::default(),
            config,
        }
    }

    /// `link` is up, or its neighbour has started anew. It is advertised as soon as it has a
    /// [cost](Router::set_cost).
    pub fn link_up(&mut self, now: Time, link: LinkId, neighbour: Neighbour) {
        let index = usize::from(link.0);
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        let Neighbour { id, path, restarted, rtt } = neighbour;
        let slot = &mut self.links[index];
        let same =
            slot.as_ref().is_some_and(|l| (l.adjacency.neighbour, l.adjacency.path) == (id, path));
        if !same {
            let adjacency = Adjacency::new(id, path, &self.config.limits);
            *slot = Some(Link { adjacency, cost: None, refused: Refusals::default() });
        }
        if let Some(link) = slot {
            link.adjacency.up(now, restarted || !same, rtt, &self.db);
        }
        self.touch(now);
    }

    /// `link` is dead.
    pub fn link_down(&mut self, now: Time, link: LinkId) {
        if let Some(link) = self.link(link) {
            link.adjacency.down();
            link.cost = None;
            self.touch(now);
        }
    }

    /// `link` is no more.
    pub fn remove_link(&mut self, now: Time, link: LinkId) {
        if let Some(place) = self.links.get_mut(usize::from(link.0)) {
            *place = None;
            self.touch(now);
        }
    }

    /// `link` is there, but not up yet.
    pub fn add_link(&mut self, now: Time, link: LinkId, id: NodeId, path: u8) {
        let index = usize::from(link.0);
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        let adjacency = Adjacency::new(id, path, &self.config.limits);
        self.links[index] = Some(Link { adjacency, cost: None, refused: Refusals::default() });
        self.spf_soon(now);
    }

    /// What `link`, which is up, costs from now on. The caller has decided that
    /// others should know.
    pub fn set_cost(&mut self, now: Time, link: LinkId, cost: LinkCost) {
        let cost = Some(cost.as_sent());
        if let Some(link) = self.link(link).filter(|l| l.adjacency.up && l.cost != cost) {
            link.cost = cost;
            self.touch(now);
        }
    }

    /// The round trip of `link`, which paces repetitions.
    pub fn set_rtt(&mut self, link: LinkId, rtt: Duration) {
        if let Some(link) = self.link(link) {
            link.adjacency.rtt = rtt;
        }
    }

    /// Whether others should send their traffic another way where there is one:
    /// this node stays reachable, as an OSPF stub router (RFC 6987).
    pub fn drain(&mut self, now: Time, drain: bool) {
        if self.own.draining != drain {
            self.own.draining = drain;
            self.touch(now);
        }
    }

    /// Introduces this node by `certificate` from now on.
    pub fn introduce(&mut self, now: Time, certificate: Vec<u8>) {
        self.own.introduce(now, certificate, &self.config.limits);
    }

    /// Believes others from now on (see [`Keys::set_trust`]). What those said
    /// who are not known any more counts no more. It is laid aside, for a
    /// mistake that is corrected: the neighbours, whom it was acknowledged to,
    /// would not send it again before its origin's next refresh.
    pub fn set_trust(
        &mut self,
        now: Time,
        wall_ns: u64,
        trust: &Trust,
        configured: &[(NodeId, PublicKey)],
    ) {
        self.wall = (wall_ns, now);
        self.keys.set_trust(trust, configured, wall_ns);
        self.forget_unknown(now);
        self.take_back(now);
    }

    /// Forgets what those have said whose keys are not known any more.
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

    /// Believes again what was laid aside, as far as its origin is now.
    fn take_back(&mut self, now: Time) {
        // Introductions come first.
        for (key, entry) in core::mem::take(&mut self.distrusted) {
            let bytes = entry.record(now);
            let Ok(record) = Record::parse(&mut Reader::new(&bytes)) else { continue };
            if entry.is_over(now) || self.db.standing(&record) != RecordFreshness::New {
                continue;
            }
            match self.verify(now, &record) {
                Ok(()) => self.keep(now, &record, None),
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

    /// The time in nanoseconds since 1970.
    fn wall_ns(&self, now: Time) -> u64 {
        let (wall_ns, at) = self.wall;
        wall_ns.saturating_add(now.as_nanos().saturating_sub(at.as_nanos()))
    }

    /// The operator's routes from now on.
    pub fn set_routes(&mut self, now: Time, routes: Vec<StaticRoute>) {
        self.config.routes = routes;
        // An operator is not to be kept waiting, nor can one be too fast.
        self.spf_at = now;
    }

    fn link(&mut self, LinkId(link): LinkId) -> Option<&mut Link> {
        self.links.get_mut(usize::from(link))?.as_mut()
    }

    /// Own links have changed: routes do at once, and others are told.
    fn touch(&mut self, now: Time) {
        self.own.touch(now);
        self.spf_soon(now);
    }

    fn spf_soon(&mut self, now: Time) {
        self.spf_at = self.spf_at.min(now.max(self.spf_earliest));
    }

    /// Takes a routing frame, whole as it stood in an envelope from `link`.
    /// `wall_ns` is now in nanoseconds since 1970.
    pub fn recv(&mut self, now: Time, wall_ns: u64, link: LinkId, frame: &[u8]) {
        self.wall = (wall_ns, now);
        let index = usize::from(link.0);
        if !self.link(link).is_some_and(|l| l.adjacency.up) {
            return self.refuse(now, index, RefusedRecord::LinkDown);
        }
        match RouteFrame::parse(frame) {
            Ok(RouteFrame::LinkState(records)) => {
                for record in records {
                    let taken = match record {
                        Ok(record) => self.queue(now, index, &record),
                        Err(_) => Err(RefusedRecord::Malformed),
                    };
                    if let Err(why) = taken {
                        self.refuse(now, index, why);
                    }
                }
            }
            Ok(RouteFrame::Ack(acks)) => {
                let Some(link) = &mut self.links[index] else { return };
                for (key, seq) in acks.iter() {
                    link.adjacency.acked(key, seq, &self.db);
                }
            }
            Err(_) => self.refuse(now, index, RefusedRecord::Malformed),
        }
    }

    /// What is news waits for its signature to be checked; the rest is answered.
    fn queue(&mut self, now: Time, from: usize, record: &Record<'_>) -> Result<(), RefusedRecord> {
        self.sift(now, from, record)?;
        let limits = &self.config.limits;
        let Some(Link { adjacency, .. }) = &mut self.links[from] else { return Ok(()) };
        if !adjacency.inbox.pacer.is_ready(now) {
            return Err(RefusedRecord::NeighbourRate);
        }
        if !adjacency.inbox.push(record.whole(), now, limits) {
            return Err(RefusedRecord::QueueFull);
        }
        adjacency.inbox.pacer.spend(now, 1);
        Ok(())
    }

    /// Passes what is news, as far as can be told without its signature.
    fn sift(&mut self, now: Time, from: usize, record: &Record<'_>) -> Result<(), RefusedRecord> {
        let Some(Link { adjacency, .. }) = &mut self.links[from] else { return Ok(()) };
        let own = record.key.origin == self.config.id;
        match self.db.standing(record) {
            RecordFreshness::New => {
                self.db.admit(record, now, self.wall_ns(now), &self.config.limits)
            }
            RecordFreshness::Here { reused: true } if own => Ok(()),
            RecordFreshness::Here { reused } => {
                adjacency.heard(record.key, record.seq);
                Err(if reused { RefusedRecord::Reused } else { RefusedRecord::Duplicate })
            }
            RecordFreshness::Older => {
                adjacency.correct(now, record.key);
                Err(RefusedRecord::Older)
            }
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
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

    /// Checks signatures, so many at most, of each neighbour in turn.
    fn check(&mut self, now: Time) {
        let end = self.stats.checks + u64::from(self.config.limits.checks);
        let mut idle = 0;
        while idle < self.links.len() {
            if self.stats.checks >= end {
                self.check_at = now + CHECK_PAUSE;
                return;
            }
            self.turn = (self.turn + 1) % self.links.len();
            let from = self.turn;
            let next = self.links[from].as_mut().and_then(|l| l.adjacency.inbox.pop());
            let Some((bytes, came)) = next else {
                idle += 1;
                continue;
            };
            idle = 0;
            let Ok(mut record) = Record::parse(&mut Reader::new(&bytes)) else { continue };
            let waited = u16::try_from(now.since(came).as_secs()).unwrap_or(u16::MAX);
            record.age = record.age.saturating_add(waited);
            match self.sift(now, from, &record).and_then(|()| self.verify(now, &record)) {
                Ok(()) => self.accept(now, from, &record),
                Err(why) => self.refuse(now, from, why),
            }
        }
    }

    fn refuse(&mut self, now: Time, from: usize, why: RefusedRecord) {
        self.stats.refused.count(why);
        let Some(Some(link)) = self.links.get_mut(from) else { return };
        link.refused.count(why);
        if matches!(why, RefusedRecord::BadSignature | RefusedRecord::BadCertificate) {
            link.adjacency.inbox.pacer.spend(now, INVALID_SIGNATURE_COST);
        }
    }

    fn verify(&mut self, now: Time, record: &Record<'_>) -> Result<(), RefusedRecord> {
        let Key { origin, part } = record.key;
        if part != Part::Introduction && !self.keys.knows(origin) {
            self.note_unknown_node(now, origin);
            return Err(RefusedRecord::UnknownOrigin);
        }
        self.stats.checks += if part == Part::Introduction { 2 } else { 1 };
        let wall_ns = self.wall_ns(now);
        record.verify(&mut *self.keys, wall_ns)
    }

    fn note_unknown_node(&mut self, now: Time, origin: NodeId) {
        // Anybody can name any origin: whoever comes first has the places.
        self.unknown_peers.retain(|_, at| now.since(*at) < STRANGE_FOR);
        if self.unknown_peers.len() < MAX_STRANGERS || self.unknown_peers.contains_key(&origin) {
            self.unknown_peers.insert(origin, now);
        }
    }

    /// A record that is its origin's, and news.
    fn accept(&mut self, now: Time, from: usize, record: &Record<'_>) {
        let Key { origin, part } = record.key;
        if origin == self.config.id {
            self.stats.superseded += 1;
            return self.own.supersede(now, part, record.seq);
        }
        self.stats.accepted += 1;
        self.keep(now, record, Some(from));
    }

    fn keep(&mut self, now: Time, record: &Record<'_>, from: Option<usize>) {
        if self.db.insert(record, now, &self.config.limits) {
            self.spf_soon(now);
        }
        let origin = record.key.origin;
        self.differing.note(origin, self.db.digest(origin));
        for (i, link) in self.links.iter_mut().enumerate() {
            match link {
                Some(link) if Some(i) == from => link.adjacency.heard(record.key, record.seq),
                Some(link) => link.adjacency.offer(now, record.key),
                None => {}
            }
        }
    }

    fn originate(&mut self, now: Time) {
        let links = self.adverts();
        let limits = &self.config.limits;
        let records = self.own.originate(now, &links, &self.db, limits, &*self.signer);
        for mut bytes in records.into_iter().map(Vec::from) {
            bytes.extend(0u16.to_be_bytes());
            if let Ok(record) = Record::parse(&mut Reader::new(&bytes)) {
                self.stats.originated += 1;
                self.keep(now, &record, None);
            }
        }
    }

    /// Own links as they are advertised.
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
            // No neighbour would take it.
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
        self.spf_earliest = now + self.config.limits.spf_interval;
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

    /// When to call [`handle_timeout`](Router::handle_timeout) and ask for
    /// frames again; in the past if something can be done at once.
    pub fn next_timeout(&self) -> Time {
        let links = self.links.iter().flatten().map(|l| &l.adjacency);
        let waiting = links.clone().any(|a| !a.inbox.is_empty());
        let check = if waiting { self.check_at } else { Time::NEVER };
        let frames = links.map(Adjacency::next_timeout).min().unwrap_or(Time::NEVER);
        frames.min(check).min(self.sweep_at).min(self.own.next_timeout()).min(self.spf_at)
    }

    /// The next frame for `link`, of at most `room` bytes, which must be at
    /// least [`LEAST_ROOM`](super::LEAST_ROOM); `None` if nothing is due.
    pub fn poll_frame(&mut self, link: LinkId, now: Time, room: usize) -> Option<Vec<u8>> {
        let link = self.links.get_mut(usize::from(link.0))?.as_mut()?;
        link.adjacency.poll(now, room, &self.db, &mut self.stats)
    }

    /// The forwarding table, if it has changed since last asked.
    pub fn table(&mut self) -> Option<Arc<ForwardingTable>> {
        core::mem::take(&mut self.table_changed).then(|| Arc::clone(&self.table))
    }

    /// The computed way to `node` by `metric`, as of the last computation.
    pub fn route(&self, node: NodeId, metric: Metric) -> Option<Route> {
        let tree = &self.trees[metric as usize];
        let cost = tree.distance(&self.graph, node)?;
        let last_resort = tree.is_last_resort(&self.graph, node);
        Some(Route { path: tree.path(&self.graph, node), cost, last_resort })
    }

    /// Every record in the database: which, its number and its links.
    pub fn records(&self) -> impl Iterator<Item = (Key, u64, &[Advert])> {
        self.db.iter().map(|(key, entry)| (key, entry.seq, &*entry.links))
    }

    /// How many nodes have a record in the database, this one included.
    pub fn nodes(&self) -> usize {
        self.db.nodes()
    }

    /// Nodes that are spoken of within the last minutes, whose records nobody here
    /// can check: there is no way to them. A few at most.
    pub fn unknown_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.unknown_peers.keys().copied().filter(|origin| !self.keys.knows(*origin))
    }

    /// The nodes whose [digest](super::CostModel::digest) differs from this node's,
    /// ascending by id: they may compute other costs from the same records.
    pub fn differing(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.differing.nodes()
    }

    /// How often [`Router::differing`] has changed.
    pub fn differing_changes(&self) -> u64 {
        self.differing.changes()
    }

    /// What was refused of the neighbour at the end of `link`.
    pub fn refused(&self, link: LinkId) -> Refusals {
        let link = self.links.get(usize::from(link.0)).and_then(Option::as_ref);
        link.map_or_else(Refusals::default, |link| link.refused)
    }

    /// What it has done and refused so far.
    pub fn stats(&self) -> &RouteStats {
        &self.stats
    }
}

/// For an operator's routes: who is at the end of a link, and whether it is up.
fn end(link: &Option<Link>) -> Option<(NodeId, bool)> {
    link.as_ref().map(|l| (l.adjacency.neighbour, l.adjacency.up))
}
