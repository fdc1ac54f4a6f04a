//! Actions of the control socket and SIGHUP on a running node.

mod ending;

use super::config::{self, Config};
use super::expiry::{ExpiryMonitor, Owner};
use super::{flows, reload, sip_warning, unix_secs};
use crate::addresses::Missing;
use crate::datapath::{self, LinkSnapshot, NodeHandle, Snapshot};
use crate::keys::KeyFileError;
use crate::operate::protocol::{
    Calls, Echo, Flows, Link, MAX_TIMEOUT_MS, Refused, Reloaded, Request, Route, SendError, Status,
    Streams, Trunk, TrunkIn,
};
use crate::operate::server;
use crate::{clock, files, log, sip};
use nix::errno::Errno;
use nix::sys::socket::UnixCredentials;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::link::LinkStats;
use trunkline_overlay::monitor::LossEstimate;
use trunkline_overlay::node as overlay;
use trunkline_overlay::route::{ForwardingTable, Hop, Route as Computed};
use trunkline_overlay::trunk::{self, Multiplex};
use trunkline_overlay::wire::{Metric, NodeId};

/// Maximum number of calls in one answer.
const CALLS_AT_ONCE: usize = 100;
/// Maximum size in bytes of a configuration that is read again.
const MAX_FILE: u64 = 16 << 20;

/// A running node, with handles to query and change it.
pub struct Operator {
    handle: NodeHandle,
    sip: Option<sip::GatewayHandle>,
    path: PathBuf,
    /// Current settings of the node; a reload holds the lock, so that only one runs at a time.
    running: Mutex<Config>,
    started: Time,
    stop: AtomicBool,
    /// For the node's own certificate, and the gateway's.
    watches: Mutex<[ExpiryMonitor; 2]>,
    /// When the gateway's certificate expires, in seconds since 1970; 0 without one.
    sip_not_after: AtomicU64,
    missing: Mutex<Missing>,
}

fn refused(message: impl Display) -> Refused {
    Refused { message: message.to_string(), code: 1 }
}

/// Error if the file's certificate is new but no longer valid, so that no other node would trust
/// it.
fn new_but_over(running: &Config, new: &Config) -> Option<KeyFileError> {
    let shown = new.certificate().filter(|shown| running.certificate() != Some(shown))?;
    let path = new.key_files.as_ref()?.certificate.clone()?;
    let what = "has expired already: certify the node again, into another file".into();
    shown.is_over(unix_secs()).then_some(KeyFileError::Certificate { path, what })
}

fn value(of: impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(of).map_err(refused)
}

impl Operator {
    /// Creates the operator of the node behind `asker`, which runs with `config`, the content of
    /// `path`.
    pub fn new(
        handle: NodeHandle,
        sip: Option<sip::GatewayHandle>,
        path: &Path,
        config: Config,
    ) -> Operator {
        // Its state was logged at start.
        let sip_not_after = config.sip.as_ref().map_or(0, sip::not_after);
        let mut watches = [(); 2].map(|()| ExpiryMonitor::default());
        for (watch, end) in watches.iter_mut().zip([config.not_after(), sip_not_after]) {
            watch.look(end, unix_secs());
        }
        let missing = Missing::new(config.own_addresses(), clock::now());
        Operator {
            handle,
            sip,
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            running: Mutex::new(config),
            started: clock::now(),
            stop: AtomicBool::new(false),
            watches: Mutex::new(watches),
            sip_not_after: AtomicU64::new(sip_not_after),
            missing: Mutex::new(missing),
        }
    }

    /// Logs a warning when a certificate is about to expire.
    pub fn watch_certificates(&self) {
        // A reload holds the configuration: the next check will do.
        let Ok(running) = self.running.try_lock() else { return };
        let Ok(mut watches) = self.watches.try_lock() else { return };
        let ends = [running.not_after(), self.sip_not_after.load(Ordering::Relaxed)];
        for ((watch, end), owner) in watches.iter_mut().zip(ends).zip([Owner::Node, Owner::Sip]) {
            if let Some(validity) = watch.look(end, unix_secs()) {
                tracing::warn!("{}", owner.told(validity));
            }
        }
    }

    /// Looks for own addresses that were missing, and logs those that have come.
    pub fn watch_addresses(&self) {
        if let Ok(mut missing) = self.missing.try_lock() {
            missing.look(clock::now());
        }
    }

    fn missing_addresses(&self) -> Vec<SocketAddr> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.addresses().to_vec()
    }

    /// Whether a stop was requested.
    pub fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Config> {
        // The value is replaced as a whole, so a panic leaves it intact.
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn snapshot(&self) -> Result<Snapshot, Refused> {
        let silent = || refused("the packet thread does not answer: look at the node's log");
        self.handle.snapshot().ok_or_else(silent)
    }

    fn gateway(&self) -> Result<&sip::GatewayHandle, Refused> {
        let no_gateway =
            || refused("this node is not a gateway: a [sip] section in its file makes it one");
        self.sip.as_ref().ok_or_else(no_gateway)
    }

    fn calls(&self, from: usize) -> Result<Calls, Refused> {
        let sip = self.gateway()?;
        let silent = || refused("the gateway does not answer: look at the node's log");
        let report = sip.report(from, CALLS_AT_ONCE).ok_or_else(silent)?;
        let next = report.is_more.then(|| from + report.calls.len());
        Ok(Calls { calls: report.calls, next })
    }

    fn status(&self) -> Result<Status, Refused> {
        let s = self.snapshot()?;
        let running = self.running();
        Ok(Status {
            name: running.name.clone(),
            id: running.overlay.id.0,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            config: self.path.display().to_string(),
            uptime_s: clock::now().since(self.started).as_secs_f64(),
            sealed: running.overlay.sealing.is_some(),
            certificate_not_after: Some(running.not_after()).filter(|end| *end != 0),
            sip_certificate_not_after: Some(self.sip_not_after.load(Ordering::Relaxed))
                .filter(|end| *end != 0),
            missing_addresses: self.missing_addresses(),
            receive_buffer: s.udp.receive_buffer,
            receive_buffer_wanted: datapath::udp::RECEIVE_BUFFER,
            protocol: running.overlay.sealing.as_ref().map(|sealing| sealing.offer.versions.newest),
            link_versions: link_versions(&s),
            draining: s.draining,
            links_up: s.links.iter().filter(|l| l.up).count(),
            links: s.links.len(),
            sessions: s.node.sessions,
            gateway_sessions: s.node.gateway_sessions,
            streams: s.node.streams.open,
            gateway: self.sip.is_some(),
            calls: self.sip.as_ref().and_then(|sip| Some(sip.report(0, 0)?.stats.live)),
            from_sessions: s.node.from_sessions,
            to_sessions: s.node.to_sessions,
            forwarded: s.node.forwarded,
            drops: drops(&s),
            handshakes_refused: s.handshakes.as_ref().map_or_else(BTreeMap::new, |h| {
                by_reason(h.refusals().map(|(why, n)| (why.label(), n)))
            }),
            updates_refused: s.routing.as_ref().map_or_else(BTreeMap::new, |(r, _)| {
                by_reason(r.refused.iter().map(|(why, n)| (why.label(), n)))
            }),
            unknown_nodes: unreachable(&s),
            routing_differs: s.differing.nodes.iter().map(|node| node.0).collect(),
            routing_differ_count: s.differing.count,
            links_denied: s.routing.as_ref().map_or(0, |(r, _)| r.denied),
            trunks: s.trunks.0.iter().map(trunk_view).collect(),
            trunks_in: s.trunks.1.iter().map(trunk_in_view).collect(),
        })
    }

    /// Reads the configuration file again and applies the settings that can change at run time.
    pub fn reload(&self) -> Result<Reloaded, Refused> {
        let mut running = self.running();
        let mistake = |why: &dyn Display| {
            let message = format!("the node keeps the configuration that it has: {why}");
            tracing::error!("{message}");
            Refused { message, code: 2 }
        };
        let cannot =
            |e: &dyn Display| mistake(&format_args!("{} cannot be read: {e}", self.path.display()));
        let text = files::read(&self.path, MAX_FILE).map_err(|e| cannot(&e))?;
        let text = String::from_utf8(text).map_err(|e| cannot(&e))?;
        let mut new = config::parse(&self.path, &text).map_err(|e| mistake(&e))?;
        new.unlock().map_err(|e| mistake(&e))?;
        new.overlay.validate().map_err(|e| mistake(&e))?;
        config::check_keys(&new, &self.path, &text).map_err(|e| mistake(&e))?;
        if let Some(over) = new_but_over(&running, &new) {
            return Err(mistake(&over));
        }
        let mut warnings = config::unusable_here(&new, &text);
        warnings.extend(sip_warning(new.sip.as_ref()));
        let mut diff = reload::diff(&running, &new);
        // Checked before anything changes, since one of its files may be invalid.
        diff.running.sip.as_ref().map_or(Ok(()), sip::check).map_err(|e| mistake(&e))?;
        if !diff.changes.is_empty() || running.paths != diff.running.paths {
            self.handle
                .reconfigure(diff.changes, diff.running.paths.clone(), text)
                .map_err(refused)?;
        }
        if running.rate != diff.running.rate {
            self.handle.limit(diff.running.rate).map_err(refused)?;
        }
        if let (Some(handle), Some(sip)) = (&self.sip, &diff.running.sip) {
            let is_new = handle.reconfigure(sip).map_err(|e| mistake(&e))?;
            self.sip_not_after.store(sip::not_after(sip), Ordering::Relaxed);
            if is_new {
                diff.applied.push("[sip] certificate, roots".into());
            }
        }
        *running = diff.running;
        log::set(running.log_filter.as_deref());
        let config = self.path.display().to_string();
        tracing::info!(%config, applied = ?diff.applied, "configuration read again");
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        if !diff.restart.is_empty() {
            tracing::warn!(keys = ?diff.restart, "these changes need a restart of the node");
        }
        Ok(Reloaded { config, applied: diff.applied, restart: diff.restart, warnings })
    }

    fn echo(&self, echo: overlay::Echo, timeout_ms: u64) -> Result<Echo, Refused> {
        if !(1..=MAX_TIMEOUT_MS).contains(&timeout_ms) {
            let what = format!("timeout_ms is {timeout_ms}: give 1 to {MAX_TIMEOUT_MS}");
            return Err(refused(what));
        }
        let answer = self.handle.echo(echo, Duration::from_millis(timeout_ms)).map_err(refused)?;
        Ok(Echo {
            from: answer.map(|a| a.from.0),
            reached: answer.is_some_and(|a| a.reached),
            hops: answer.map(|a| a.hops),
            rtt_ms: answer.map(|a| a.rtt.as_secs_f64() * 1e3),
        })
    }
}

fn trunk_view(trunk: &overlay::Trunk) -> Trunk {
    let state = match (trunk.config.multiplex, trunk.state) {
        (Multiplex::Off, _) => "off",
        (_, trunk::State::Open) => "open",
        (_, trunk::State::Silent) => "silent",
        (_, trunk::State::Refused) => "refused",
    };
    let s = &trunk.stats;
    Trunk {
        to: trunk.config.to.0,
        state: state.into(),
        wait_ms: trunk.config.wait.as_secs_f64() * 1e3,
        flows: trunk.flows,
        packets: s.packets,
        bytes: s.bytes,
        trunk_packets: s.trunk_packets,
        trunk_bytes: s.trunk_bytes,
        compressed: s.compressed,
        header_bytes_saved: s.header_bytes_saved,
        alone: s.alone,
        unanswered: s.unanswered,
        dropped: s.dropped,
        loss_events: trunk.loss,
        rtt_ms: trunk.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
        share_bps: trunk.share.map(|bytes| 8.0 * bytes),
        trunk_over_share: trunk.is_over_share,
    }
}

fn trunk_in_view(trunk: &overlay::Receiving) -> TrunkIn {
    let trunk::ReceiverStats { trunk_packets, packets, unknown, no_template } = trunk.stats;
    let (from, loss_events) = (trunk.from.0, trunk.loss);
    TrunkIn { from, trunk_packets, packets, unknown, no_template, loss_events }
}

impl server::Operator for Operator {
    fn answer(&self, ask: Request, who: &UnixCredentials) -> Result<Value, Refused> {
        let changes = matches!(
            ask,
            Request::Reload {} | Request::Drain { .. } | Request::Stop {} | Request::HangUp { .. }
        );
        if changes {
            let what = match &ask {
                Request::Reload {} => "reload",
                Request::HangUp { call: Some(call), .. } => {
                    &format!("calls hangup {}", call.escape_debug())
                }
                Request::HangUp { all: true, .. } => "calls hangup --all",
                Request::HangUp { .. } => "calls hangup",
                Request::Drain { on: true } => "drain",
                Request::Drain { on: false } => "drain --undo",
                _ => "stop",
            };
            tracing::info!(uid = who.uid(), pid = who.pid(), "operator: {what}");
        }
        match ask {
            Request::Status {} => value(self.status()?),
            Request::Links {} => {
                let now = clock::now();
                let links = self.snapshot()?.links;
                value(links.iter().map(|link| link_view(now, link)).collect::<Vec<_>>())
            }
            Request::Routes { metric } => {
                let computed = self.handle.computed(metric).map_err(refused)?;
                value(routes(&self.snapshot()?, metric, &computed))
            }
            Request::Flows { peer, from } => {
                let (page, next) = self.handle.flows(from).map_err(refused)?;
                let running = self.running();
                let client = |i| running.clients.get(usize::from(i)).map(|c| c.name.as_str());
                let wanted = page.iter().filter(|f| peer.is_none_or(|p| f.flow.ends.peer.0 == p));
                let no_speech = self.sip.as_ref().and_then(|sip| sip.report(0, 0));
                let no_speech = no_speech.map(|report| report.no_speech).unwrap_or_default();
                let flows = wanted.map(|f| match flows::view(f, client) {
                    flow if no_speech.contains(&flow.port) => flows::without_rating(flow),
                    flow => flow,
                });
                let flows = flows.collect();
                value(Flows { flows, next })
            }
            Request::Streams { peer, from } => {
                let (page, next) = self.handle.streams(from).map_err(refused)?;
                let running = self.running();
                let client = |i| running.clients.get(usize::from(i)).map(|c| c.name.as_str());
                let wanted = page.iter().filter(|(s, _)| peer.is_none_or(|p| s.peer.0 == p));
                let streams = wanted.map(|s| flows::stream_view(s, client)).collect();
                value(Streams { streams, next })
            }
            Request::Calls { from } => value(self.calls(from)?),
            Request::HangUp { call, all } => value(self.hang_up(call, all)?),
            Request::Echo { to, service, size, hops, timeout_ms } => {
                let nonce = getrandom::u64().map_err(refused)?;
                let to = NodeId(to);
                value(self.echo(overlay::Echo { to, service, size, hops, nonce }, timeout_ms)?)
            }
            Request::Reload {} => value(self.reload()?),
            Request::Drain { on } => {
                self.handle.drain(on).map_err(refused)?;
                self.sip.as_ref().inspect(|sip| sip.drain(on));
                value(self.status()?)
            }
            Request::Stop {} => {
                let status = self.status();
                self.stop.store(true, Ordering::Relaxed);
                value(status?)
            }
        }
    }
}

/// Sums non-zero counts by reason.
fn by_reason(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (why, n) in counts.filter(|(_, n)| *n > 0) {
        *sums.entry(why.to_owned()).or_default() += n;
    }
    sums
}

/// Packets dropped by the node, links, remote carriers and sockets, by reason.
fn drops(s: &Snapshot) -> BTreeMap<String, u64> {
    let links = s.links.iter().map(|l| &l.stats.drops);
    let counted = links.chain([&s.node.drops]).flat_map(|d| d.iter());
    let all = counted.map(|(why, n)| (why.label(), n)).chain(s.remote.stats.iter()).chain([
        ("kernel_receive_buffer", s.udp.kernel_drops),
        ("send_failed", s.thread.send_errors),
        ("over_rate", s.thread.over_rate),
    ]);
    by_reason(all)
}

/// Nodes that no `[[route]]` reaches and that have records with an unknown key.
fn unreachable(s: &Snapshot) -> Vec<u32> {
    let way = |node: &NodeId| s.table.next_hop(*node, Metric::default()).is_some();
    s.unknown_nodes.iter().filter(|node| !way(node)).map(|node| node.0).collect()
}

/// Number of links by protocol version in use.
fn link_versions(s: &Snapshot) -> BTreeMap<u8, usize> {
    let mut links = BTreeMap::new();
    for version in s.links.iter().filter_map(|link| link.version) {
        *links.entry(version).or_default() += 1;
    }
    links
}

/// Converts a link's state at `now` for display; values that its meters don't have are `None`.
fn link_view(now: Time, link: &LinkSnapshot) -> Link {
    let LinkStats { received, drops, .. } = &link.stats;
    let q = &link.quality;
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let bps = |rate: Bitrate| Some(rate.as_bps() as f64);
    Link {
        neighbour: link.neighbour.0,
        name: link.name.clone(),
        path: link.path.clone(),
        version: link.version,
        address: link.address,
        host: link.host.clone(),
        lookup_error: link.lookup_error.clone(),
        up: link.up,
        since_s: Some(now.since(q.since).as_secs_f64()),
        rtt_ms: q.rtt.map(ms),
        jitter_ms: q.jitter.map(ms),
        loss_in: q.loss_in.map(|l| l.loss),
        loss_out: q.loss_out.map(|l| l.loss),
        burst_in: q.loss_in.and_then(mean_burst),
        burst_out: q.loss_out.and_then(mean_burst),
        bps_in: bps(q.rate_in),
        bps_out: bps(q.rate_out),
        penalty_ms: ms(link.penalty),
        damping: q.damping.share,
        damping_left_s: q.damping.until.map(|until| until.since(now).as_secs_f64()),
        downs: q.downs,
        goodbyes: link.stats.goodbyes,
        bytes_in: received.bytes,
        bytes_out: link.stats.sent().bytes,
        drops: drops.iter().map(|(_, n)| n).sum(),
        updates_refused: by_reason(link.refused.iter().map(|(why, n)| (why.label(), n))),
        send_error: link.send_error.map(|error| send_error(now, &error)),
        silent_next_hop: link.silent_next_hop,
        no_carrier: link.no_carrier.clone(),
        leaves_by: link.leaves_by.clone(),
        arrives_at: link.arrives_at,
        stalled_s: link.stalled.map(|time| time.as_secs_f64()),
        own_queue: link.own_queue,
    }
}

fn send_error(now: Time, error: &datapath::SendError) -> SendError {
    let errno = Errno::from_raw(error.errno);
    SendError {
        error: format!("{errno:?}"),
        message: errno.desc().into(),
        count: error.count,
        since_s: now.since(error.since).as_secs_f64(),
        last_s: now.since(error.last).as_secs_f64(),
        lasts: error.lasts(now),
        partial: error.is_partial(now),
    }
}

/// Mean number of packets lost in a row; `None` if none is lost.
fn mean_burst(l: LossEstimate) -> Option<f64> {
    (l.loss > 0.0).then(|| 1.0 / (1.0 - l.burst).max(1e-3))
}

fn routes(s: &Snapshot, metric: Metric, computed: &[(NodeId, Computed)]) -> Vec<Route> {
    let route = |destination: Option<NodeId>, hop: Hop| {
        let link = s.links.iter().find(|l| l.id == hop.link)?;
        // A configured route may lead elsewhere.
        let computed = computed.iter().find(|(node, way)| {
            Some(*node) == destination && way.path.get(1) == Some(&link.neighbour)
        });
        Some(Route {
            destination: destination.map(|node| node.0),
            next_hop: link.neighbour.0,
            path: link.path.clone(),
            up: link.up,
            cost: computed.map(|(_, way)| metric.readable(way.cost)),
            last_resort: computed.is_some_and(|(_, way)| way.last_resort),
            onward_ms: hop.onward.as_secs_f64() * 1e3,
        })
    };
    let named = s.table.iter(metric).filter_map(|(node, hop)| route(Some(node), hop));
    named.chain(default_hop(&s.table).and_then(|hop| route(None, hop))).collect()
}

/// Default next hop, for all nodes without an entry: that of the first node without one.
fn default_hop(table: &ForwardingTable) -> Option<Hop> {
    let listed: Vec<NodeId> = table.iter(Metric::default()).map(|(node, _)| node).collect();
    (0..)
        .map(NodeId)
        .find(|n| listed.binary_search(n).is_err())
        .and_then(|n| table.next_hop(n, Metric::default()))
}
