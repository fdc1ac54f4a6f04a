//! A UDP socket of the relay: large buffers, receive timestamps, TOS bytes, and the kernel's own
//! count of its drops.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

/// The longest datagram that is relayed, in bytes: more than an Ethernet frame carries.
pub const SLOT: usize = 2048;

/// Bytes that a pause of a tenth of a second takes at 200,000 packets/s.
const KERNEL_BUFFER: usize = 4 << 20;

/// Memory that one receive call fills.
#[derive(Debug)]
pub struct RxBuffer {
    bytes: Vec<u8>,
    control: Vec<u8>,
}

impl RxBuffer {
    /// A buffer for one datagram.
    pub fn new() -> RxBuffer {
        RxBuffer { bytes: vec![0; SLOT], control: cmsg_space!(TimeSpec, u32, i32, i32) }
    }
}

/// A datagram in an [`RxBuffer`].
#[derive(Debug)]
pub struct Datagram<'a> {
    pub bytes: &'a [u8],
    pub source: SocketAddr,
    /// Whether it was longer than [`SLOT`], so that its tail is lost.
    pub truncated: bool,
    /// Arrival time, as CLOCK_REALTIME.
    pub stamp: Option<TimeSpec>,
    /// The byte with DSCP and ECN.
    pub tos: u8,
}

/// A bound, non-blocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    /// The kernel's drop counter, which wraps.
    drops_seen: u32,
    drops: u64,
    /// TOS byte that is currently set for sending.
    tos: u8,
}

impl Socket {
    /// Binds a socket to `addr`.
    pub fn bind(addr: SocketAddr) -> io::Result<Socket> {
        let udp = UdpSocket::bind(addr)?;
        udp.set_nonblocking(true)?;
        setsockopt(&udp, sockopt::ReceiveTimestampns, &true)?;
        // These may fail: SO_RCVBUFFORCE needs CAP_NET_ADMIN, SO_RCVBUF is limited to
        // net.core.rmem_max, and old kernels lack SO_RXQ_OVFL.
        if setsockopt(&udp, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
            let _ = setsockopt(&udp, sockopt::RcvBuf, &KERNEL_BUFFER);
        }
        if setsockopt(&udp, sockopt::SndBufForce, &KERNEL_BUFFER).is_err() {
            let _ = setsockopt(&udp, sockopt::SndBuf, &KERNEL_BUFFER);
        }
        let _ = setsockopt(&udp, sockopt::RxqOvfl, &1);
        // A `[::]` socket also receives IPv4.
        setsockopt(&udp, sockopt::IpRecvTos, &true)?;
        if addr.is_ipv6() {
            setsockopt(&udp, sockopt::Ipv6RecvTClass, &true)?;
        }
        Ok(Socket { udp, drops_seen: 0, drops: 0, tos: 0 })
    }

    /// The address to which it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Datagrams for this socket that the kernel dropped because its buffer
    /// was full, as of the last datagram received.
    pub fn kernel_drops(&self) -> u64 {
        self.drops
    }

    /// Receives the next datagram; `None` if none is waiting.
    pub fn recv<'a>(&mut self, buffer: &'a mut RxBuffer) -> io::Result<Option<Datagram<'a>>> {
        let (len, truncated, source, stamp, tos) = loop {
            let mut iov = [IoSliceMut::new(&mut buffer.bytes)];
            let got = recvmsg::<SockaddrStorage>(
                self.udp.as_raw_fd(),
                &mut iov,
                Some(&mut buffer.control),
                MsgFlags::empty(),
            );
            let message = match got {
                Ok(message) => message,
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let (mut stamp, mut tos) = (None, 0);
            for control in message.cmsgs()? {
                match control {
                    ControlMessageOwned::ScmTimestampns(t) => stamp = Some(t),
                    ControlMessageOwned::Ipv4Tos(byte) => tos = byte,
                    ControlMessageOwned::Ipv6TClass(class) => tos = class as u8,
                    ControlMessageOwned::RxqOvfl(total) => {
                        self.drops += u64::from(total.wrapping_sub(self.drops_seen));
                        self.drops_seen = total;
                    }
                    _ => {}
                }
            }
            // A UDP datagram always has an IP source.
            if let Some(source) = message.address.as_ref().and_then(socket_addr) {
                let truncated = message.flags.contains(MsgFlags::MSG_TRUNC);
                break (message.bytes, truncated, source, stamp, tos);
            }
        };
        let bytes = &buffer.bytes[..len.min(SLOT)];
        Ok(Some(Datagram { bytes, source, truncated, stamp, tos }))
    }

    /// Sends a datagram with this TOS byte to `to`, without blocking.
    pub fn send(&mut self, bytes: &[u8], tos: u8, to: SocketAddr) -> io::Result<usize> {
        // This is set as a socket option, not per datagram: a link's packets mostly share one
        // value, and nix allocates for control messages.
        if tos != self.tos {
            let value = i32::from(tos);
            match to.ip().to_canonical() {
                IpAddr::V4(_) => setsockopt(&self.udp, sockopt::Ipv4Tos, &value)?,
                IpAddr::V6(_) => setsockopt(&self.udp, sockopt::Ipv6TClass, &value)?,
            }
            self.tos = tos;
        }
        self.udp.send_to(bytes, to)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    match address.family()? {
        nix::sys::socket::AddressFamily::Inet => address.as_sockaddr_in().map(|&a| a.into()),
        nix::sys::socket::AddressFamily::Inet6 => address.as_sockaddr_in6().map(|&a| a.into()),
        _ => None,
    }
}
