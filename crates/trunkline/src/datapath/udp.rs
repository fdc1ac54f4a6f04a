//! A node's UDP socket: batches in, runs of envelopes out.

use super::mmsg::{self, BATCH, RxBatch, TxBatch, TxItem};
use crate::clock::{self, Stamps};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::{Run, RxDatagram, TxArena};

/// Receive buffer in bytes: a tenth of a second at the rate that one core forwards. The *send*
/// buffer stays at the system's default, since no scheduler puts voice ahead of data that the
/// kernel already has.
const RECEIVE_BUFFER: usize = 4 << 20;

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
    /// Datagrams that the kernel refused to send.
    pub send_errors: u64,
    /// Receive calls that failed.
    pub recv_errors: u64,
}

/// A node's UDP socket, with its counters and its receive state.
pub struct Udp {
    socket: Socket,
    v6: bool,
    rx: RxBatch,
    tx: TxBatch,
    gso: bool,
    overflow_seen: u32,
    /// Last time at which nothing waited to be received.
    empty: Time,
    /// Set when more datagrams had waited longer than [`BEHIND`] than one turn takes: the time of
    /// that finding. Cleared when everything that had waited then has been received.
    behind: Option<Time>,
    stats: UdpStats,
}

impl Udp {
    /// Binds `address`. `offload` requests segmentation offload in both directions, if the kernel
    /// has it.
    pub fn bind(address: SocketAddr, offload: bool) -> io::Result<Udp> {
        let v6 = address.is_ipv6();
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if v6 {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        mmsg::dont_fragment(socket.as_fd(), v6)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Best effort: the forcing form needs CAP_NET_ADMIN, the other is limited to the system's
        // maximum, and old kernels lack the last two.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
        }
        let _ = setsockopt(&socket, sockopt::RxqOvfl, &1);
        let gso = offload && setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
        Ok(Udp {
            socket,
            v6,
            rx: RxBatch::new(),
            tx: TxBatch::new(),
            gso,
            overflow_seen: 0,
            empty: clock::now(),
            behind: None,
            stats: UdpStats::default(),
        })
    }

    /// Duplicates the socket, for sending.
    pub fn try_clone(&self) -> io::Result<Socket> {
        self.socket.try_clone()
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
        let n = match self.rx.recv(self.socket.as_fd()) {
            Ok(n) => n,
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
            let mut rest = bytes;
            loop {
                // An empty datagram also counts.
                let (bytes, more) = rest.split_at_mut(meta.stride.min(rest.len()));
                if batch.is_full() {
                    take(&mut batch);
                    batch.clear();
                }
                batch.push(RxDatagram { at, from: meta.from, bytes });
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

    /// Whether this socket supports the address family of `to`.
    pub fn speaks_to(&self, to: &SocketAddr) -> bool {
        to.is_ipv6() == self.v6
    }

    /// Sends `runs` of `arena`, starting at envelope `from` of the first. Returns its progress as
    /// (runs finished, envelopes of the next one sent).
    pub fn send(&mut self, arena: &TxArena, runs: &[Run], from: usize) -> (usize, usize) {
        let whole = self.gso && from == 0;
        if whole { self.send_runs(arena, runs) } else { self.send_each(arena, runs, from) }
    }

    /// Sends with segmentation offload: each run is one item.
    fn send_runs(&mut self, arena: &TxArena, runs: &[Run]) -> (usize, usize) {
        let mut done = 0;
        while done < runs.len() {
            let items = runs[done..].iter().map(|run| TxItem {
                to: run.to,
                dscp: run.dscp,
                segment: (run.count > 1).then_some(run.segment as u16),
                bytes: &arena.bytes()[run.range()],
            });
            match self.tx.send(self.socket.as_fd(), items) {
                Ok(n) => done += n,
                Err(e) if is_busy(&e) => break,
                Err(e) if runs[done].count > 1 && refuses_offload(&e) => {
                    // A device that cannot segment is never tried again. EINVAL may concern this
                    // run alone.
                    self.gso = e.raw_os_error() == Some(libc::EINVAL);
                    let rest = if self.gso { done + 1 } else { runs.len() };
                    let (sent, part) = self.send_each(arena, &runs[done..rest], 0);
                    done += sent;
                    if done < rest || !self.gso {
                        return (done, part);
                    }
                }
                Err(_) => {
                    self.stats.send_errors += runs[done].count as u64;
                    done += 1;
                }
            }
        }
        (done, 0)
    }

    /// Sends without segmentation offload: each envelope is one item.
    fn send_each(&mut self, arena: &TxArena, runs: &[Run], from: usize) -> (usize, usize) {
        let (mut run, mut envelope) = (0, from);
        while run < runs.len() {
            let items = runs[run..].iter().enumerate().flat_map(|(i, r)| {
                let skip = if i == 0 { envelope } else { 0 };
                arena.envelopes(r).skip(skip).map(|bytes| TxItem {
                    to: r.to,
                    dscp: r.dscp,
                    segment: None,
                    bytes,
                })
            });
            let mut sent = match self.tx.send(self.socket.as_fd(), items) {
                Ok(n) => n,
                Err(e) if is_busy(&e) => break,
                Err(_) => {
                    self.stats.send_errors += 1;
                    1
                }
            };
            while sent > 0 && run < runs.len() {
                let step = sent.min(runs[run].count - envelope);
                sent -= step;
                envelope += step;
                if envelope == runs[run].count {
                    (run, envelope) = (run + 1, 0);
                }
            }
        }
        (run, envelope)
    }

    /// Counters of this socket.
    pub fn stats(&self) -> UdpStats {
        self.stats
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_busy(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
}

fn refuses_offload(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread::sleep;

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
