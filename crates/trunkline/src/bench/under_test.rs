//! The contestants: the packet thread of a node, or a lean relay.

use super::sealed::identity;
use super::{Error, cannot};
use crate::datapath::mmsg::{BATCH, RxBatch, TxBatch, TxItem};
use crate::datapath::record::RecordedNode;
use crate::datapath::remote::PendingConnections;
use crate::datapath::udp::Udp;
use crate::datapath::{self, Handle, Parts, WantedPaths};
use crate::{clock, sys};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, Sealing, Start};
use trunkline_overlay::wire::{Incarnation, NodeId};

/// Processor that the contestant is pinned to; the load uses processor 0.
const PROCESSOR: usize = 1;

/// The two ends of the load, and the node between them.
pub const UPSTREAM: NodeId = NodeId(1);
pub const RELAY: NodeId = NodeId(2);
pub const DOWNSTREAM: NodeId = NodeId(3);

/// A contestant. The others are compared with the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contestant {
    /// `recvmmsg`, then `sendmmsg` of the same bytes by a connected socket, without control messages.
    Lean,
    /// A node with real-time packets, one envelope per datagram and system call argument.
    RealTime,
    /// A node with best-effort packets.
    BestEffort,
    /// A node with real-time packets and the kernel's segmentation offload.
    Offload,
    /// A node with real-time packets over sealed links.
    Sealed,
    /// Sealed links and segmentation offload together.
    SealedOffload,
}

impl Contestant {
    pub const ALL: [Contestant; 6] = [
        Contestant::Lean,
        Contestant::RealTime,
        Contestant::BestEffort,
        Contestant::Offload,
        Contestant::Sealed,
        Contestant::SealedOffload,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Contestant::Lean => "lean recvmmsg/sendmmsg relay",
            Contestant::RealTime => "node, real time",
            Contestant::BestEffort => "node, best effort",
            Contestant::Offload => "node, real time, GSO and GRO",
            Contestant::Sealed => "node, sealed, real time",
            Contestant::SealedOffload => "node, sealed, GSO and GRO",
        }
    }

    /// Whether the contestant's links are sealed.
    pub fn is_sealed(self) -> bool {
        matches!(self, Contestant::Sealed | Contestant::SealedOffload)
    }

    fn offloads(self) -> bool {
        matches!(self, Contestant::Offload | Contestant::SealedOffload)
    }
}

/// Pins the calling thread to processor `cpu`.
pub fn stay_on(cpu: usize) -> std::io::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu)?;
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}

enum Thread {
    Node(Handle),
    Lean(Arc<AtomicBool>, JoinHandle<()>),
}

/// A running contestant, and the load's sockets on both sides of it.
pub struct UnderTest {
    thread: Thread,
    /// Address to which the load sends.
    pub entry: SocketAddr,
    /// Socket from which the load sends to the contestant.
    pub upstream: UdpSocket,
    /// Socket on which the load receives from the contestant.
    pub downstream: UdpSocket,
    /// Thread ID under /proc, used to read the processor time.
    tid: i32,
}

impl UnderTest {
    /// Starts `contestant` on the measured processor.
    pub fn start(contestant: Contestant) -> Result<UnderTest, Error> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot("bind a socket"));
        let (upstream, downstream) = (bind()?, bind()?);
        let address = |s: &UdpSocket| s.local_addr().map_err(cannot("look at a socket's address"));
        let (up, down) = (address(&upstream)?, address(&downstream)?);
        let before = threads();
        let (thread, entry) = if contestant == Contestant::Lean {
            lean(down)?
        } else {
            let config =
                if contestant.is_sealed() { sealed_config() } else { relay_config(up, down) };
            node(config, contestant.offloads())?
        };
        let tid = new_thread(&before)?;
        let _ = setsockopt(&downstream, sockopt::UdpGroSegment, &true);
        for socket in [&upstream, &downstream] {
            grow(socket);
            socket.set_nonblocking(true).map_err(cannot("make a socket non-blocking"))?;
        }
        Ok(UnderTest { thread, entry, upstream, downstream, tid })
    }

    /// Processor time of the measured thread so far, ns.
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns(self.tid)
    }

    /// Time for which the measured thread and the load's have waited for a processor so far, ns.
    pub fn waited_ns(&self) -> u64 {
        let load = nix::unistd::gettid().as_raw();
        [self.tid, load].map(|tid| schedstat(tid).1).iter().sum()
    }

    /// Counters of the node; `None` for the lean relay.
    pub fn snapshot(&self) -> Option<datapath::Snapshot> {
        match &self.thread {
            Thread::Node(handle) => handle.node_handle().snapshot(),
            Thread::Lean(..) => None,
        }
    }

    /// Stops the contestant and joins its thread.
    pub fn stop(self) -> Result<(), Error> {
        match self.thread {
            Thread::Node(handle) => handle.stop().map_err(cannot("stop the packet thread")),
            Thread::Lean(stop, thread) => {
                stop.store(true, Ordering::Relaxed);
                thread.join().map_err(|_| Error::Broken("the lean relay panicked"))
            }
        }
    }
}

/// Processor time of a thread of this process so far, ns.
pub fn cpu_ns(tid: i32) -> u64 {
    schedstat(tid).0
}

/// Time of a thread of this process so far, ns: running, and waiting for a processor.
fn schedstat(tid: i32) -> (u64, u64) {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut numbers = text.split(' ').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The thread that did not exist in `before`.
pub fn new_thread(before: &[i32]) -> Result<i32, Error> {
    let new = threads().into_iter().find(|t| !before.contains(t));
    new.ok_or(Error::Broken("the measured thread does not show in /proc"))
}

/// Thread IDs of this process.
pub fn threads() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Enlarges the buffers to the node's size, so that both sides lose packets alike.
fn grow(socket: &UdpSocket) {
    let size = 4 << 20;
    let _ = setsockopt(socket, sockopt::RcvBufForce, &size);
    let _ = setsockopt(socket, sockopt::SndBufForce, &size);
}

/// Configuration of a node between the load's two ends.
pub fn relay_config(up: SocketAddr, down: SocketAddr) -> Config {
    let mut config = Config::new(RELAY);
    for (neighbour, address) in [(UPSTREAM, up), (DOWNSTREAM, down)] {
        let mut link = link::Config::new(neighbour);
        link.address = Some(address);
        config.links.push(link);
    }
    config
}

/// The same configuration with sealed links. The load initiates the handshakes.
fn sealed_config() -> Config {
    let mut config = Config::new(RELAY);
    for neighbour in [UPSTREAM, DOWNSTREAM] {
        let mut link = link::Config::new(neighbour);
        link.key = Some(identity(neighbour).public());
        config.links.push(link);
    }
    config.sealing = Some(Sealing::new(identity(RELAY)));
    config
}

/// Starts the packet thread of a node with this configuration on the measured processor.
pub fn start_node(config: Config, offload: bool) -> Result<(Handle, SocketAddr), Error> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let udp = Udp::bind(any, offload).map_err(cannot("bind the node's socket"))?;
    let entry = udp.local_addr().map_err(cannot("look at a socket's address"))?;
    let unix_nanos = clock::since_epoch();
    let start = Start::simulated(clock::now(), Incarnation(unix_nanos), 1);
    let node = Node::new(config, Start { unix_nanos, ..start })
        .map_err(|_| Error::Broken("the node refused its configuration"))?;
    let parts = Parts {
        node: RecordedNode::new(node, None),
        udp: vec![udp],
        paths: WantedPaths::new(),
        listener: None,
        remotes: Vec::new(),
        pending: PendingConnections::default(),
        acceptor: None,
        rate: None,
        media_deadline_ms: None,
        priority: None,
        cpu: Some(PROCESSOR),
    };
    Ok((datapath::start(parts).map_err(cannot("start the packet thread"))?, entry))
}

fn node(config: Config, offload: bool) -> Result<(Thread, SocketAddr), Error> {
    let (handle, entry) = start_node(config, offload)?;
    Ok((Thread::Node(handle), entry))
}

/// The least that a relay can do: wait for a batch, receive it, and send it by a connected socket,
/// which spares the kernel a look at its routes for each packet.
fn lean(to: SocketAddr) -> Result<(Thread, SocketAddr), Error> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot("bind the relay"));
    let (socket, egress) = (bind()?, bind()?);
    egress.connect(to).map_err(cannot("connect the relay"))?;
    grow(&socket);
    grow(&egress);
    let entry = socket.local_addr().map_err(cannot("look at a socket's address"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::spawn(move || {
        let _ = stay_on(PROCESSOR);
        let (mut rx, mut tx) = (RxBatch::new(), TxBatch::new());
        let _ = ready.send(sys::allocations());
        while !stopped.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(100u8));
            while let Ok(n @ 1..) = rx.recv(socket.as_fd()) {
                let mut items = arrayvec::ArrayVec::<TxItem<'_>, BATCH>::new();
                for (_, bytes) in rx.iter_mut() {
                    items.push(TxItem::connected(bytes));
                }
                let mut sent = 0;
                while sent < n {
                    // A full socket buffer drops packets; the load prevents that.
                    sent += tx.send(egress.as_fd(), items[sent..].iter().copied()).unwrap_or(0);
                }
            }
        }
    });
    let _ = started.recv();
    Ok((Thread::Lean(stop, thread), entry))
}
