//! Receives the flows that end at a host.

use super::super::{Error, cannot};
use super::{Flow, Heard, clock_ns, packet};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use trunkline_base::link_model::Ecn;

/// Size of a socket's receive buffer in bytes, for packets that arrive while this process
/// waits for a processor.
const BUFFER: usize = 4 << 20;

/// Epoll's key for standard input, among those of the sockets.
const STDIN: u64 = u64::MAX;

/// A socket, and the index of its flow; `None` for the raw socket of all flows that look like
/// TCP.
struct Ear {
    socket: Socket,
    flow: Option<usize>,
}

/// All receiving sockets of a host, and the packets that they have received.
pub struct Ears<'a> {
    flows: &'a [Flow],
    ears: Vec<Ear>,
    heard: Vec<Heard>,
}

/// Opens a socket bound to `at` that reports the traffic class of each packet.
fn open(kind: Type, protocol: Protocol, at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
    // Best effort: the kernel may allow less.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
    match at {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::IpRecvTos, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?,
    }
    socket.bind(&at.into())?;
    Ok(socket)
}

impl<'a> Ears<'a> {
    /// Opens the sockets for these flows.
    pub fn open(flows: &'a [Flow]) -> Result<Ears<'a>, Error> {
        let bind = |at: SocketAddr| cannot(format!("listen at {at}"));
        let mut ears = Vec::new();
        for (n, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.udp) {
            let socket = open(Type::DGRAM, Protocol::UDP, flow.to).map_err(bind(flow.to))?;
            ears.push(Ear { socket, flow: Some(n) });
        }
        if let Some(flow) = flows.iter().find(|flow| !flow.udp) {
            // A raw socket has no port.
            let at = SocketAddr::new(flow.to.ip(), 0);
            let socket = open(Type::RAW, Protocol::TCP, at).map_err(bind(at))?;
            ears.push(Ear { socket, flow: None });
        }
        let heard = flows.iter().map(|flow| Heard {
            number: flow.number,
            delays_ns: if flow.each { vec![None; flow.count as usize] } else { Vec::new() },
            ..Heard::default()
        });
        Ok(Ears { flows, ears, heard: heard.collect() })
    }

    /// Records what arrives, until standard input is closed.
    pub fn listen(mut self) -> Result<Vec<Heard>, Error> {
        let wait = |e: Errno| cannot("wait for packets")(e.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(wait)?;
        for (ear, n) in self.ears.iter().zip(0..) {
            epoll.add(&ear.socket, EpollEvent::new(EpollFlags::EPOLLIN, n)).map_err(wait)?;
        }
        epoll.add(io::stdin(), EpollEvent::new(EpollFlags::EPOLLIN, STDIN)).map_err(wait)?;
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let n = match epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => 0,
                n => n.map_err(wait)?,
            };
            let is_over = events[..n].iter().any(|event| event.data() == STDIN);
            let mut ready = events[..n].iter().map(EpollEvent::data).filter(|&n| n != STDIN);
            ready.try_for_each(|n| self.take(n as usize)).map_err(wait)?;
            if is_over {
                return Ok(self.heard);
            }
        }
    }

    /// Reads all packets that are waiting at a socket.
    fn take(&mut self, ear: usize) -> Result<(), Errno> {
        let mut buf = [0; 2_048];
        let mut space = cmsg_space!(i32);
        loop {
            let Ear { socket, flow } = &self.ears[ear];
            let mut slices = [IoSliceMut::new(&mut buf)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let got = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut slices,
                Some(&mut space),
                flags,
            );
            let now = clock_ns();
            let got = match got {
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                got => got?,
            };
            let class = got.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4Tos(class) => Some(class),
                ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
                _ => None,
            });
            let (length, flow, from) = (got.bytes, *flow, got.address.as_ref().and_then(address));
            if let Some((n, payload)) = self.whose(flow, from, &buf[..length]) {
                self.note(n, payload, class.unwrap_or_default(), now);
            }
        }
    }

    /// The index of the flow that a packet belongs to, and the payload; `None` if another program
    /// sent the packet.
    fn whose<'b>(
        &self,
        flow: Option<usize>,
        from: Option<SocketAddr>,
        packet: &'b [u8],
    ) -> Option<(usize, &'b [u8])> {
        let from = from?;
        match flow {
            Some(n) => {
                let own = self.flows[n].from;
                ((own.ip(), own.port()) == (from.ip(), from.port())).then_some((n, packet))
            }
            None => {
                let (ports, payload) = packet::segment(packet, from.is_ipv4())?;
                let is_of = |f: &Flow| {
                    !f.udp && f.from.ip() == from.ip() && (f.from.port(), f.to.port()) == ports
                };
                Some((self.flows.iter().position(is_of)?, payload))
            }
        }
    }

    fn note(&mut self, n: usize, payload: &[u8], class: u8, now: u64) {
        let Some((sent, k)) = packet::read(payload) else { return };
        let (delay, heard) = (now.saturating_sub(sent), &mut self.heard[n]);
        heard.packets += 1;
        heard.marked += u64::from(Ecn::of_tos(class) == Ecn::Marked);
        heard.longest_ns = heard.longest_ns.max(delay);
        if let Some(each) = k.and_then(|k| heard.delays_ns.get_mut(usize::try_from(k).ok()?)) {
            each.get_or_insert(delay);
        }
    }
}

/// The address that a packet came from.
fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| from.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port()))))
}
