mod applications;
mod flow_control;
mod flows;
mod hosts;
mod limited;
mod listeners;
mod media;
mod next_hops;
mod notices;
mod operate;
mod rates;
mod relisten;
mod remote;
mod streams;
mod troubles;
mod uplinks;

pub use flows::{FLOWS_AT_ONCE, FlowSnapshot};
pub use operate::Operation;
pub use uplinks::{WantedPath, WantedPaths};

use super::differing::{self, Differing};
use super::media::{Sender as MediaSender, channel as media_channel};
use super::mmsg::RxBatch;
use super::record::{self, RecordedNode};
use super::remote::{PendingConnections, Remote, RemoteStats, Remotes};
use super::send_errors::SendError;
use super::sessions::{Carrier, Carriers, Listener};
use super::udp::{Udp, UdpStats};
use super::uplink::UplinkStats;
use crate::clock::{self, Stamps};
use crate::sys;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use trunkline_base::{Bitrate, Time};
use trunkline_client::in_process::Acceptor;
use trunkline_overlay::arena::TxArena;
use trunkline_overlay::handshake::HandshakeStats;
use trunkline_overlay::identity::Certificate;
use trunkline_overlay::link::{Link, LinkId, LinkStats};
use trunkline_overlay::monitor::LinkQuality;
use trunkline_overlay::node::{ForwarderStats, LinkName, Receiving, Trunk};
use trunkline_overlay::route::{ForwardingTable, Refusals, RouteStats};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::MAX_MESSAGE;
use trunkline_overlay::wire::NodeId;

/// Maximum number of connections accepted from one listener before other events are handled: some
/// 40 µs each. A stream of connections would otherwise starve everything else.
const ADMITTED_PER_TURN: usize = 16;

/// Maximum number of events in one wake-up.
const EVENTS: usize = 64;

/// Request from another thread to the packet thread.
pub enum Request {
    /// Send a snapshot of the counters.
    Stats(SyncSender<Snapshot>),
    /// Perform an operation on the node.
    Operate(Operation),
    /// Say goodbye to the neighbours and stop.
    Stop,
}

/// A node's state at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counters of the forwarder.
    pub node: ForwarderStats,
    /// State of each link.
    pub links: Vec<LinkSnapshot>,
    /// Forwarding table in use.
    pub table: Arc<ForwardingTable>,
    /// Whether the node is draining and accepts no more sessions.
    pub draining: bool,
    /// Counters of all UDP sockets together.
    pub udp: UdpStats,
    /// Applications on other hosts.
    pub remote: RemoteSnapshot,
    /// Expiry of the node's certificate (seconds since 1970), if it expires.
    pub certificate_not_after: Option<u64>,
    /// Counters of handshakes, if links are sealed.
    pub handshakes: Option<HandshakeStats>,
    /// Counters of link-state routing, and the number of nodes it has records of.
    pub routing: Option<(RouteStats, usize)>,
    /// Nodes with records that are signed with a key unknown to this node.
    pub unknown_nodes: Vec<NodeId>,
    /// Nodes with cost settings that differ from this node's.
    pub differing: Differing,
    /// This node's trunks, and those of other nodes that end here.
    pub trunks: (Vec<Trunk>, Vec<Receiving>),
    /// Counters of the packet thread.
    pub thread: ThreadStats,
}

/// State of the applications on other hosts at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct RemoteSnapshot {
    /// Number of sessions that send their packets over UDP.
    pub over_udp: u64,
    /// Number of sessions that send their packets over TCP.
    pub over_tcp: u64,
    /// Counters of remote carriers.
    pub stats: RemoteStats,
}

/// A link's state at one moment.
#[derive(Clone, Debug)]
pub struct LinkSnapshot {
    /// Link number, as used in routes.
    pub id: LinkId,
    /// Node at the other end.
    pub neighbour: NodeId,
    /// Name of the path that the link uses.
    pub path: String,
    /// Protocol version in use; `None` while the link is down, and if it is unsealed.
    pub version: Option<u8>,
    /// Neighbour's name according to its certificate.
    pub name: Option<String>,
    /// Address of the neighbour, if known.
    pub address: Option<SocketAddr>,
    /// Name and port at which the neighbour is configured, if by name.
    pub host: Option<String>,
    /// Reason why the last lookup of the name led nowhere, if it did.
    pub lookup_error: Option<String>,
    /// Whether packets have arrived from the neighbour lately.
    pub up: bool,
    /// Penalty that this end adds to the latency it advertises.
    pub penalty: Duration,
    /// Quality as measured by its meters.
    pub quality: LinkQuality,
    /// Counters of the link.
    pub stats: LinkStats,
    /// Updates from the neighbour that routing refused.
    pub refused: Refusals,
    /// Errors of the kernel when it refused to send to the neighbour.
    pub send_error: Option<SendError>,
    /// Next hop that the link's packets wait for, if it doesn't answer.
    pub silent_next_hop: Option<IpAddr>,
    /// Interface that the link leaves by, if it has no carrier and the link is down.
    pub no_carrier: Option<String>,
    /// Interface that the link leaves by, if it is not the one that has its source.
    pub leaves_by: Option<String>,
    /// Own address that its packets arrive at, if the link is not bound to that.
    pub arrives_at: Option<IpAddr>,
    /// Time for which the link's uplink has taken nothing, if that is so.
    pub stalled: Option<Duration>,
    /// Whether the link's packets wait in a queue of their own behind the interface.
    pub own_queue: bool,
}

/// Counters of the packet thread itself.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ThreadStats {
    /// Number of times that the thread woke up.
    pub wakeups: u64,
    /// Memory allocations: at start, for new sessions and flows, and to answer requests for these
    /// counters; none for packets.
    pub allocations: u64,
    /// Times that an uplink had no room.
    pub blocked: u64,
    /// Envelopes that the kernel refused to send.
    pub send_errors: u64,
    /// Packets of applications refused because their user had used up its rate.
    pub over_rate: u64,
    /// Messages of applications that waited for their user's rate.
    pub rate_waits: u64,
}

/// Components of a packet thread.
pub struct Parts {
    /// The node, with its recorder.
    pub node: RecordedNode,
    /// UDP sockets of the node, at least one.
    pub udp: Vec<Udp>,
    /// The links that leave in a configured way.
    pub paths: WantedPaths,
    /// Listener for local applications.
    pub listener: Option<Listener>,
    /// Listeners for applications on other hosts.
    pub remotes: Vec<Remote>,
    /// Pending connections of applications on other hosts.
    pub pending: PendingConnections,
    /// Listener for applications in this process.
    pub acceptor: Option<Acceptor>,
    /// Rate at which each user's applications may send, if it is limited.
    pub rate: Option<Bitrate>,
    /// Lifetime in milliseconds of a media packet of a gateway's calls, if there is a gateway.
    pub media_deadline_ms: Option<u8>,
    /// Priority under SCHED_FIFO, if any.
    pub priority: Option<u8>,
    /// Processor that the thread is pinned to, if any.
    pub cpu: Option<usize>,
}

/// A running packet thread.
pub struct Handle {
    requests: SyncSender<Request>,
    wake: Arc<EventFd>,
    beats: Arc<AtomicU64>,
    media: Option<MediaSender>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Handle through which other threads query the packet thread.
#[derive(Clone)]
pub struct NodeHandle {
    requests: SyncSender<Request>,
    wake: Arc<EventFd>,
}

impl NodeHandle {
    /// Takes a snapshot of the node's counters; `None` if the packet thread does not answer within
    /// a second.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = sync_channel(1);
        self.requests.try_send(Request::Stats(reply)).ok()?;
        self.wake.write(1).ok()?;
        answer.recv_timeout(Duration::from_secs(1)).ok()
    }
}

impl Handle {
    /// Creates a handle for queries.
    pub fn node_handle(&self) -> NodeHandle {
        NodeHandle { requests: self.requests.clone(), wake: Arc::clone(&self.wake) }
    }

    /// Sender of media commands, if the thread serves a gateway.
    pub fn media(&self) -> Option<MediaSender> {
        self.media.clone()
    }

    /// Wakes the thread, without blocking. Returns the number of such wake-ups so far, which will
    /// have grown at the next call unless the thread hangs.
    pub fn beat(&self) -> u64 {
        let beats = self.beats.load(Ordering::Relaxed);
        let _ = self.wake.write(1);
        beats
    }

    /// Whether the thread has ended on its own.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Makes the node say goodbye, and waits for the thread to end: a quarter of a second at most.
    pub fn stop(mut self) -> io::Result<()> {
        let _ = self.requests.send(Request::Stop);
        let _ = self.wake.write(1);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => Err(io::Error::other("the packet thread panicked: please report this as a bug")),
        }
    }
}

/// Starts the packet thread.
pub fn start(parts: Parts) -> io::Result<Handle> {
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
    let (requests, inbox) = sync_channel(16);
    let beats = Arc::default();
    let (their_wake, their_beats) = (Arc::clone(&wake), Arc::clone(&beats));
    let (media, media_inbox) = match parts.media_deadline_ms {
        Some(deadline_ms) => {
            let (sender, inbox) = media_channel(Arc::clone(&wake));
            (Some(sender), Some(media::Media { inbox, rx: RxBatch::new(), deadline_ms }))
        }
        None => (None, None),
    };
    let inboxes = (inbox, media_inbox);
    let (ready, started) = sync_channel(1);
    let thread =
        std::thread::Builder::new().name("packets".into()).spawn(
            move || match PacketThread::new(parts, inboxes, their_wake, their_beats) {
                Ok(mut thread) => {
                    let _ = ready.send(Ok(()));
                    thread.run()
                }
                Err(error) => ready.send(Err(error)).map_err(|_| io::Error::other("abandoned")),
            },
        )?;
    started.recv().map_err(|_| io::Error::other("the packet thread did not start"))??;
    Ok(Handle { requests, wake, beats, media, thread: Some(thread) })
}

/// Sources of epoll events, as their 64 bits of data.
mod token {
    pub const TIMER: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const LISTENER: u64 = 2;
    pub const ACCEPTOR: u64 = 3;
    pub const UDP: u64 = 1 << 32;
    pub const SESSION: u64 = 2 << 32;
    pub const REMOTE: u64 = 3 << 32;
    pub const REMOTE_UDP: u64 = 4 << 32;
    pub const PENDING: u64 = 5 << 32;
    pub const MEDIA: u64 = 6 << 32;
    pub const UPLINK: u64 = 7 << 32;
    pub const ROUTES: u64 = 8 << 32;
}

struct PacketThread {
    node: RecordedNode,
    udp: Vec<Udp>,
    uplinks: uplinks::Uplinks,
    hosts: hosts::Hosts,
    listener: Option<Listener>,
    remotes: Vec<Remote>,
    pending: PendingConnections,
    acceptor: Option<Acceptor>,
    carriers: Carriers,
    held: flow_control::Held,
    rates: rates::RateLimits,
    /// Rejected applications that have yet to read their refusal.
    rejected: VecDeque<Carrier>,
    inbox: Receiver<Request>,
    media: Option<media::Media>,
    wake: Arc<EventFd>,
    /// Number of times that `wake` has woken the thread.
    beats: Arc<AtomicU64>,
    epoll: Epoll,
    timer: TimerFd,
    /// Time that the timer is set to, if that has not been handled yet.
    armed: Option<Time>,
    arena: TxArena,
    message: Box<[u8]>,
    stats: ThreadStats,
    limited: limited::LimitedLogs,
    troubles: troubles::Troubles,
    differing: differing::Log,
    echoes: operate::Waiting,
    /// Time at which to watch the listeners again, if they are paused.
    reopen: Time,
    /// Time at which to end, once a stop was requested.
    ends: Option<Time>,
}

impl PacketThread {
    fn new(
        parts: Parts,
        (inbox, media): (Receiver<Request>, Option<media::Media>),
        wake: Arc<EventFd>,
        beats: Arc<AtomicU64>,
    ) -> io::Result<PacketThread> {
        settle_in(parts.priority, parts.cpu);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        let mut arena = record::arena();
        let carriers = Carriers::new(Remotes::new(&parts.remotes)?);
        let mut udp = parts.udp;
        let listeners = udp.iter().filter_map(|udp| udp.local_addr().ok());
        let mut hosts = hosts::Hosts::new(listeners);
        hosts.want(&parts.paths);
        let uplinks = uplinks::Uplinks::new(&mut udp, parts.paths, &epoll, &mut arena)?;
        let thread = PacketThread {
            node: parts.node,
            uplinks,
            hosts,
            udp,
            listener: parts.listener,
            remotes: parts.remotes,
            pending: parts.pending,
            acceptor: parts.acceptor,
            carriers,
            held: flow_control::Held::default(),
            rates: rates::RateLimits::new(parts.rate),
            rejected: VecDeque::with_capacity(applications::REJECTED),
            inbox,
            media,
            wake,
            beats,
            epoll,
            timer,
            armed: None,
            arena,
            message: vec![0; MAX_MESSAGE + 1].into(),
            stats: ThreadStats::default(),
            limited: limited::LimitedLogs::default(),
            troubles: troubles::Troubles::default(),
            differing: differing::Log::default(),
            echoes: operate::Waiting::default(),
            reopen: Time::NEVER,
            ends: None,
        };
        let watch = |fd: &dyn AsFd, token| {
            thread.epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, token))
        };
        watch(&thread.timer, token::TIMER)?;
        watch(&*thread.wake, token::WAKE)?;
        for (udp, i) in thread.udp.iter().zip(0..) {
            watch(udp, token::UDP | i)?;
        }
        if let Some(listener) = &thread.listener {
            watch(listener, token::LISTENER)?;
        }
        for (remote, i) in thread.remotes.iter().zip(0..) {
            watch(&remote.queue, token::REMOTE | i)?;
            watch(&remote.udp, token::REMOTE_UDP | i)?;
        }
        if let Some(acceptor) = &thread.acceptor {
            watch(acceptor, token::ACCEPTOR)?;
        }
        Ok(thread)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        // The first message of a link leaves as configured, too.
        self.look_up_all();
        while self.has_lookups() {
            self.assign_uplinks();
        }
        while self.ends.is_none_or(|at| clock::now() < at) {
            let busy = self.is_behind() || self.has_lookups();
            self.arm(busy)?;
            let wait = if busy { EpollTimeout::ZERO } else { EpollTimeout::NONE };
            let n = match self.epoll.wait(&mut events, wait) {
                Ok(n) => n,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            self.stats.wakeups += 1;
            let stamps = Stamps::sample();
            self.carriers.now = clock::now();
            for event in &events[..n] {
                self.on_event(event, &stamps)?;
            }
            self.catch_up(&stamps);
            let now = clock::now();
            if self.armed.is_none_or(|at| now >= at) && !self.is_behind() {
                self.node.handle_timeout(now, &mut self.carriers);
                self.end_handshakes(now);
                self.assure_held(now);
                self.resume_accept(now);
                self.uplinks.look_for_silence(now, &self.node);
                self.look_for_own_queues(now)?;
                self.look_for_hosts(now);
                self.log_troubles(now);
                self.node.flush(now);
                self.armed = None;
            }
            self.hand_out_echoes();
            self.log_notices();
            self.flush()?;
            if self.assign_uplinks() {
                self.flush()?;
            }
            while self.resume_held() {
                self.flush()?;
            }
            self.flush_remotes();
        }
        self.node.finish()
    }

    fn on_event(&mut self, event: &EpollEvent, stamps: &Stamps) -> io::Result<()> {
        let (kind, index) = (event.data() & !0xffff_ffff, event.data() as u32);
        match (kind, event.data()) {
            (token::UDP, _) => self.on_udp(index as usize, stamps),
            (token::UPLINK, _) => self.on_uplink(index)?,
            (token::ROUTES, _) => self.on_routes(),
            (token::SESSION, _) => self.on_session(SessionId(index), event.events(), stamps),
            (token::REMOTE, _) => self.on_remote(index as usize),
            (token::PENDING, _) => self.on_pending(index),
            (token::MEDIA, _) => self.on_media(index as u16, stamps),
            (token::REMOTE_UDP, _) => self.on_remote_udp(index as usize, stamps),
            (_, token::TIMER) => {
                // The expiry carries no data; `run` reads the clock anyway.
                let _ = self.timer.wait();
            }
            (_, token::WAKE) => {
                let _ = self.wake.read();
                self.beats.fetch_add(1, Ordering::Relaxed);
                self.on_requests();
                self.take_replies();
                if self.on_media_commands() {
                    let _ = self.wake.write(1);
                }
            }
            (_, token::LISTENER) => self.on_listener(),
            (_, token::ACCEPTOR) => self.on_acceptor(),
            _ => {}
        }
        Ok(())
    }

    fn on_udp(&mut self, index: usize, stamps: &Stamps) {
        let now = clock::now();
        let (node, carriers) = (&mut self.node, &mut self.carriers);
        if let Some(udp) = self.udp.get_mut(index) {
            udp.recv_turn(stamps, now, |batch| node.recv(now, batch, carriers));
        }
    }

    /// Gives each socket that is behind another turn, whether or not more is waiting there.
    fn catch_up(&mut self, stamps: &Stamps) {
        for i in 0..self.udp.len() {
            if self.udp[i].is_behind() {
                self.on_udp(i, stamps);
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.udp.iter().any(Udp::is_behind)
    }

    fn on_requests(&mut self) {
        while let Ok(request) = self.inbox.try_recv() {
            match request {
                Request::Stop => {
                    let node = &mut self.node;
                    self.ends.get_or_insert_with(|| node.leave(clock::now()));
                }
                Request::Operate(operation) => self.operate(operation),
                Request::Stats(reply) => {
                    // The requester may have given up.
                    let _ = reply.try_send(self.snapshot());
                }
            }
        }
    }

    fn link_snapshot(&self, id: LinkId, link: &Link) -> LinkSnapshot {
        let node = self.node.node();
        let config = link.config();
        let host = self.hosts.of(&hosts::name_of(link));
        LinkSnapshot {
            id,
            neighbour: config.neighbour,
            path: config.path.clone(),
            version: Some(link.version()).filter(|v| *v > 0 && link.monitor().is_up()),
            name: node.control().name(id).map(str::to_owned),
            address: link.address(),
            host: host.map(|(host, _)| host.to_string()),
            lookup_error: host.and_then(|(_, error)| Some(error?.to_string())),
            up: link.monitor().is_up(),
            penalty: config.penalty,
            quality: link.monitor().quality(),
            stats: link.stats(),
            refused: node.router().map_or_else(Refusals::default, |r| r.refused(id)),
            send_error: self.uplinks.error_of(id),
            silent_next_hop: self.uplinks.next_hops.awaited_by(id).map(|(ip, _)| ip),
            no_carrier: self.uplinks.without_carrier(id, link).map(|(name, _)| name.clone()),
            leaves_by: self.uplinks.elsewhere(id).map(|elsewhere| elsewhere.by.clone()),
            arrives_at: troubles::astray(clock::now(), link).map(|(own, _)| own),
            stalled: self.uplinks.stalled(id, link).map(|since| clock::now().since(since)),
            own_queue: self.uplinks.own_queues.waits_alone(id),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut udp = UdpStats { receive_buffer: usize::MAX, ..UdpStats::default() };
        let remote_udp = self.remotes.iter().map(|remote| &remote.udp);
        for s in self.udp.iter().chain(remote_udp).map(Udp::stats) {
            udp.kernel_drops += s.kernel_drops;
            udp.recv_errors += s.recv_errors;
            udp.receive_buffer = udp.receive_buffer.min(s.receive_buffer);
        }
        let node = self.node.node();
        let links = node.links().map(|(id, link)| self.link_snapshot(id, link));
        let UplinkStats { errors: send_errors, blocked } = self.uplinks.stats();
        let thread = ThreadStats {
            allocations: sys::allocations(),
            blocked,
            send_errors,
            over_rate: self.rates.refused,
            rate_waits: self.rates.waited,
            ..self.stats
        };
        let mut remote =
            RemoteSnapshot { stats: self.carriers.remotes.stats, ..RemoteSnapshot::default() };
        for session in self.carriers.remote_sessions() {
            *(if session.uses_udp() { &mut remote.over_udp } else { &mut remote.over_tcp }) += 1;
        }
        Snapshot {
            node: node.stats(),
            links: links.collect(),
            table: Arc::clone(node.table()),
            draining: node.is_draining(),
            udp,
            remote,
            certificate_not_after: node
                .control()
                .certificate()
                .map(Certificate::not_after)
                .filter(|end| *end != 0),
            handshakes: node.control().handshakes().cloned(),
            routing: node.control().router().map(|r| (*r.stats(), r.nodes())),
            unknown_nodes: node.router().map_or_else(Vec::new, |r| r.unknown_nodes().collect()),
            differing: node.router().map(Differing::of).unwrap_or_default(),
            trunks: (node.trunks(clock::now()).collect(), node.receiving(clock::now()).collect()),
            thread,
        }
    }

    /// Sets the timer. It has to be set again once it has expired, unless the thread is `busy` and
    /// doesn't wait for it.
    fn arm(&mut self, busy: bool) -> io::Result<()> {
        let now = clock::now();
        let at = self.node.node().next_timeout(now);
        let at = at.min(self.carriers.remotes.next_timeout()).min(self.pending.next_timeout());
        let at = at.min(self.uplinks.next_hops.look_at()).min(self.hosts.look_at());
        let at = at.min(self.uplinks.own_queues.look_at());
        let at = at.min(self.reopen).min(self.node.flush_at()).min(self.held.next_timeout());
        let at = at.min(self.rates.next_timeout()).min(self.look_for_troubles_at());
        let at = self.ends.map_or(at, |ends| at.min(ends));
        if self.armed == Some(at) && (busy || at > now) {
            return Ok(());
        }
        self.armed = Some(at);
        // Zero would disarm the timer; NEVER is 584 years and never fires.
        let at = clock::to_timespec(at.max(Time::from_nanos(1)).min(FAR));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(at.into()));
        Ok(self.timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

/// Latest time set on the timer, well within a 64-bit kernel time.
const FAR: Time = Time::from_nanos(i64::MAX as u64 / 2);

/// Applies priority and processor, if the system permits them.
fn settle_in(priority: Option<u8>, cpu: Option<usize>) {
    if let Some(priority) = priority
        && let Err(error) = sys::run_fifo(priority)
    {
        tracing::warn!(
            %error, priority,
            "no real-time priority: packets are delayed while other programs are busy; \
             grant CAP_SYS_NICE or LimitRTPRIO"
        );
    }
    if let Some(cpu) = cpu {
        let mut set = nix::sched::CpuSet::new();
        let done = set
            .set(cpu)
            .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
        if let Err(error) = done {
            tracing::warn!(%error, cpu, "cannot pin the packet thread to its processor");
        }
    }
}
