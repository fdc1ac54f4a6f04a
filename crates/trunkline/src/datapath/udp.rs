//! A node's UDP socket to receive by, in batches.

use super::mmsg::{self, BATCH, RxBatch, RxMeta};
use super::uplink::Uplink;
use crate::addresses;
use crate::clock::{self, Stamps};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::{LocalAddress, RxDatagram};

/// Receive buffer in bytes: a tenth of a second at the rate that one core forwards.
pub const RECEIVE_BUFFER: usize = 4 << 20;

/// Datagrams that waited longer than this show that this process had no time to run.
const BEHIND: Duration = Duration::from_millis(100);

/// Maximum number of batches that a socket may deliver before everything else has its turn: more
/// than arrive at once unless this process had no time to run, and a few milliseconds of work.
const BATCHES_PER_TURN: usize = 16;

/// Counters of a UDP socket.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct UdpStats {
    /// Datagrams that the socket's buffer had no room for.
    pub kernel_drops: u64,
    /// Receive calls that failed.
    pub recv_errors: u64,
    /// Receive buffer that the kernel granted, in bytes, of the requested [`RECEIVE_BUFFER`].
    pub receive_buffer: usize,
}

/// A node's UDP socket, with its counters and its receive state.
pub struct Udp {
    socket: Socket,
    v6: bool,
    rx: RxBatch,
    offload: bool,
    overflow_seen: u32,
    /// Last time at which nothing waited to be received.
    empty: Time,
    /// Set when more datagrams had waited longer than [`BEHIND`] than one turn takes: the time of
    /// that finding. Cleared when everything that had waited then has been received.
    behind: Option<Time>,
    stamping: Stamping,
    /// Whether the own address that a datagram was sent to is received with it.
    reports_own: bool,
    /// Number of the socket, and the only own address that others can send to, if there is one.
    local: LocalAddress,
    zone: Option<Zone>,
    stats: UdpStats,
}

/// The interface of a link-local address. A socket is bound to its index, which is another one each
/// time that the interface is created.
struct Zone {
    name: String,
    /// Index that the socket was last to be bound to.
    index: u32,
}

impl Zone {
    fn of(address: SocketAddr) -> Option<Zone> {
        let SocketAddr::V6(v6) = address else { return None };
        let index = v6.scope_id();
        let name = (index != 0).then(|| addresses::interface_name(index))??;
        Some(Zone { name, index })
    }
}

/// Calls in quick succession that show a socket to be busy.
const BUSY_CALLS: u32 = 8;

/// Time between two such calls, at most. It bounds the error of an arrival time that the kernel
/// doesn't report.
const QUICK: Duration = Duration::from_micros(500);

/// Whether the kernel is to report the arrival time of each datagram. That takes
/// time for each, and tells nothing while calls that return many datagrams follow each other at
/// once. The kernel records the times all the while: a call after a pause reports them again.
#[derive(Debug)]
struct Stamping {
    on: bool,
    /// Number of such calls in a row.
    busy: u32,
    called: Time,
    received: usize,
}

impl Stamping {
    fn new() -> Stamping {
        Stamping { on: true, busy: 0, called: Time::ZERO, received: 0 }
    }

    /// The change to make before a call at `now`, if there is one.
    fn change(&mut self, now: Time) -> Option<bool> {
        let busy = self.received >= BATCH / 2 && now.since(self.called) < QUICK;
        self.busy = if busy { self.busy + 1 } else { 0 };
        self.called = now;
        let on = self.busy < BUSY_CALLS;
        (core::mem::replace(&mut self.on, on) != on).then_some(on)
    }

    /// Counts the datagrams of a call.
    fn received(&mut self, datagrams: usize) {
        self.received = datagrams;
    }
}

impl Udp {
    /// Binds `address`. `offload` requests segmentation offload in both directions, if the kernel
    /// has it.
    pub fn bind(address: SocketAddr, offload: bool) -> io::Result<Udp> {
        let v6 = address.is_ipv6();
        let socket = unbound(v6)?;
        addresses::bind(&socket, address)?;
        if let Err(error) = found_group(&socket, v6) {
            // Other sockets can't bind the address then, so that all links share this one.
            tracing::warn!(
                %address,
                %error,
                "the kernel does not share the address among sockets as needed (Linux 4.5), so links \
                 by different interfaces share one, and one that hangs holds up the others"
            );
            socket.set_reuse_port(false)?;
        }
        mmsg::dont_fragment(socket.as_fd(), v6)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Best effort: the forcing form needs CAP_NET_ADMIN, the other is limited to the system's
        // maximum, and old kernels lack the last two.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
        }
        // The kernel doubles what it is told, for its own use.
        let receive_buffer = getsockopt(&socket, sockopt::RcvBuf)? / 2;
        if receive_buffer < RECEIVE_BUFFER {
            tracing::warn!(
                %address,
                got = receive_buffer,
                wanted = RECEIVE_BUFFER,
                "the receive buffer is smaller than asked for, so bursts may be lost: raise \
                 net.core.rmem_max"
            );
        }
        let stats = UdpStats { receive_buffer, ..UdpStats::default() };
        let _ = setsockopt(&socket, sockopt::RxqOvfl, &1);
        let offload = offload && setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
        Ok(Udp {
            socket,
            v6,
            rx: RxBatch::new(),
            offload,
            overflow_seen: 0,
            empty: clock::now(),
            behind: None,
            stamping: Stamping::new(),
            reports_own: false,
            local: LocalAddress { socket: 0, ip: None },
            zone: Zone::of(address),
            stats,
        })
    }

    /// The address to bind to in place of the present one, if its interface has come back with
    /// another index. Each such address is returned once.
    pub fn moved_to(&mut self) -> Option<SocketAddr> {
        let zone = self.zone.as_mut()?;
        let index = if_nametoindex(zone.name.as_str()).ok()?;
        let SocketAddr::V6(mut address) = self.socket.local_addr().ok()?.as_socket()? else {
            return None;
        };
        if std::mem::replace(&mut zone.index, index) == index {
            return None;
        }
        address.set_scope_id(index);
        Some(address.into())
    }

    /// Takes the place of `former`, whose counters it keeps.
    pub fn replace(&mut self, former: Udp) {
        let receive_buffer = self.stats.receive_buffer;
        self.stats = UdpStats { receive_buffer, ..former.stats };
        self.local = former.local;
    }

    /// Whether segmentation offload is used.
    pub fn offloads(&self) -> bool {
        self.offload
    }

    /// Sets the number of the socket among those of the node, and the addresses of this machine
    /// that others can send to. A wildcard socket reports from now on to which of them each datagram
    /// was sent: the kernel is asked only if there are several.
    pub fn set_local(&mut self, number: u16, own: &[IpAddr]) -> io::Result<()> {
        let mut own = own.iter().filter(|ip| ip.is_ipv6() == self.v6);
        let bound = self.local_addr()?.ip();
        if !bound.is_unspecified() {
            self.local = LocalAddress { socket: number, ip: Some(bound) };
            return Ok(());
        }
        let ip = own.next().copied();
        let several = ip.is_some() && own.next().is_some();
        self.local = LocalAddress { socket: number, ip: ip.filter(|_| !several) };
        self.report_own(several)
    }

    fn report_own(&mut self, on: bool) -> io::Result<()> {
        if self.reports_own == on {
            return Ok(());
        }
        match self.v6 {
            true => setsockopt(&self.socket, sockopt::Ipv6RecvPacketInfo, &on)?,
            false => setsockopt(&self.socket, sockopt::Ipv4PacketInfo, &on)?,
        }
        self.reports_own = on;
        Ok(())
    }

    /// Duplicates the socket, for sending.
    pub fn try_clone(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// An uplink that sends by a socket of its own, with the same address. It is in the listener's
    /// SO_REUSEPORT group, where a program gives everything that arrives to the listener.
    pub fn sibling(&self) -> io::Result<Uplink> {
        let socket = unbound(self.v6)?;
        socket.set_reuse_port(true)?;
        addresses::bind(&socket, self.local_addr()?)?;
        mmsg::dont_fragment(socket.as_fd(), self.v6)?;
        Ok(Uplink::new(socket, self.v6, self.offload, clock::now()))
    }

    /// An uplink that sends by this socket.
    pub fn uplink(&self) -> io::Result<Uplink> {
        Ok(Uplink::new(self.try_clone()?, self.v6, self.offload, clock::now()))
    }

    /// Address that the socket is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::other("a UDP socket without an address"))
    }

    /// Receives waiting datagrams as [`Udp::recv`] does, and continues while they have waited for
    /// more than [`BEHIND`], up to one turn's limit.
    pub fn recv_turn(
        &mut self,
        stamps: &Stamps,
        now: Time,
        mut take: impl FnMut(&mut [RxDatagram<'_>]),
    ) {
        let since = *self.behind.get_or_insert(now);
        for _ in 0..BATCHES_PER_TURN {
            if self.recv(stamps, now, &mut take).is_none_or(|last| since.since(last) <= BEHIND) {
                self.behind = None;
                return;
            }
        }
    }

    /// Whether to take another turn before silence is judged, since datagrams that wait to be read
    /// must not be mistaken for silence. Only datagrams that waited when the first such turn began
    /// count, or an overloaded node would never judge at all.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Receives one batch and passes it to `take` in slices of at most [`BATCH`] datagrams. Returns
    /// the arrival time of the last one, if more may be waiting.
    pub fn recv(
        &mut self,
        stamps: &Stamps,
        now: Time,
        mut take: impl FnMut(&mut [RxDatagram<'_>]),
    ) -> Option<Time> {
        if let Some(on) = self.stamping.change(clock::now()) {
            let _ = setsockopt(&self.socket, sockopt::ReceiveTimestampns, &on);
        }
        let n = match self.rx.recv(self.socket.as_fd()) {
            Ok(n) => {
                self.stamping.received(n);
                n
            }
            Err(_) => {
                // An ICMP error of an earlier send surfaces here; reading it clears it.
                self.stats.recv_errors += 1;
                return None;
            }
        };
        let (empty, mut last) = (self.empty, now);
        let mut batch = arrayvec::ArrayVec::<RxDatagram<'_>, BATCH>::new();
        for (meta, bytes) in self.rx.iter_mut() {
            let at = meta.stamp.map_or(now, |stamp| stamps.place(stamp, empty, now));
            last = at;
            let bytes = if meta.truncated { &mut [] } else { bytes };
            let local = Some(local_address(self.local, &meta));
            let mut rest = bytes;
            loop {
                // An empty datagram also counts.
                let (bytes, more) = rest.split_at_mut(meta.stride.min(rest.len()));
                if batch.is_full() {
                    take(&mut batch);
                    batch.clear();
                }
                batch.push(RxDatagram { at, from: meta.from, local, bytes });
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
        }
        take(&mut batch);
        drop(batch);
        let overflow = self.rx.overflow();
        self.stats.kernel_drops += u64::from(overflow.wrapping_sub(self.overflow_seen));
        self.overflow_seen = overflow;
        if n < BATCH {
            self.empty = now;
        }
        (n == BATCH).then_some(last)
    }

    /// Counters of this socket.
    pub fn stats(&self) -> UdpStats {
        self.stats
    }
}

/// Where a datagram arrived, at the socket with the address `local`.
fn local_address(local: LocalAddress, meta: &RxMeta) -> LocalAddress {
    // Loopback and link-local addresses are not among those that decide whether to ask the kernel.
    let may_be_other =
        |ip: &IpAddr| addresses::is_routed(ip) && !addresses::is_routed(&meta.from.ip());
    let only = local.ip.filter(|ip| !may_be_other(ip));
    LocalAddress { ip: meta.own.filter(|own| !own.is_multicast()).or(only), ..local }
}

fn unbound(v6: bool) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Lets other sockets of this process have the address of `listener`, which is bound: a second node
/// there is refused. Everything that arrives goes to the first of them, which is `listener`: the
/// program returns 0 for each datagram.
fn found_group(listener: &Socket, v6: bool) -> io::Result<()> {
    listener.set_reuse_port(true)?;
    // The kernel founds the group when a second socket joins.
    let second = unbound(v6)?;
    second.set_reuse_port(true)?;
    let address = listener.local_addr()?;
    addresses::bind(&second, address.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?)?;
    let mut first =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: first.as_mut_ptr() };
    Ok(setsockopt(listener, sockopt::AttachReusePortCbpf, &program)?)
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread::sleep;

    /// A process that is stopped while it is busy learns from the kernel when each datagram came.
    #[test]
    fn a_busy_socket_reports_arrival_times_after_a_pause() {
        let mut udp = Udp::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("bound");
        let to = udp.local_addr().expect("bound");
        let from = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let send = |n| (0..n).for_each(|_| assert!(from.send_to(&[0; 100], to).is_ok()));
        let receive = |udp: &mut Udp| {
            let (stamps, now) = (Stamps::sample(), clock::now());
            let mut waits = Vec::new();
            udp.recv(&stamps, now, |batch| waits.extend(batch.iter().map(|d| now.since(d.at))));
            waits
        };
        // The kernel begins to take times a moment after a first socket has requested them.
        let takes_times = (0..200).any(|_| {
            send(1);
            sleep(Duration::from_millis(5));
            receive(&mut udp).iter().all(|wait| *wait >= Duration::from_millis(5))
        });
        assert!(takes_times);
        send(16 * BATCH);
        udp.stamping.busy = BUSY_CALLS;
        // However late the next call comes, it comes soon after.
        let soon = clock::now() + Duration::from_secs(10);
        (udp.stamping.received, udp.stamping.called) = (BATCH, soon);
        assert_eq!(receive(&mut udp), [Duration::ZERO; BATCH], "no times are reported");
        assert!(!udp.stamping.on);
        sleep(Duration::from_millis(30));
        let waits = receive(&mut udp);
        assert!(udp.stamping.on && waits.len() == BATCH);
        assert!(waits.iter().all(|wait| *wait >= Duration::from_millis(29)), "{waits:?}");
    }

    /// A node that resumes after a pause finds thousands of datagrams, and each takes time to
    /// process: others have their turn meanwhile, and silence is judged only after all earlier
    /// datagrams.
    #[test]
    fn a_socket_with_much_to_say_takes_turns() {
        const EACH: Duration = Duration::from_micros(20);
        let mut udp = Udp::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("bound");
        let to = udp.local_addr().expect("bound");
        let from = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let send = |n| (0..n).for_each(|_| assert!(from.send_to(&[0; 100], to).is_ok()));
        send(2_500);
        sleep(BEHIND + Duration::from_millis(20));
        let (mut all, mut turns, mut longest) = (0, 0, Duration::ZERO);
        while turns == 0 || udp.is_behind() {
            // Datagrams continue to arrive.
            send(200);
            let (stamps, now) = (Stamps::sample(), clock::now());
            let mut came = 0;
            udp.recv_turn(&stamps, now, |batch| {
                came += batch.len();
                sleep(EACH * batch.len() as u32);
            });
            longest = longest.max(clock::now().since(now));
            assert!(came <= BATCHES_PER_TURN * BATCH, "{came} in a turn");
            (all, turns) = (all + came, turns + 1);
        }
        println!("{all} datagrams in {turns} turns, the longest of {longest:?}");
        // A system with smaller socket buffers has dropped some.
        assert!(turns > 1 || all < BATCHES_PER_TURN * BATCH, "{all} in {turns}");
        assert!(turns < 10, "what comes later keeps it behind for ever");
    }
}
