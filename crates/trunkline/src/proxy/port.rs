//! A socket of a proxy, UDP or virtual, with batched input and output.

use super::tally::{Reason, Tally};
use crate::call::line::Target;
use crate::clock::{self, Stamps};
use crate::datapath::mmsg::{BATCH, RxBatch, TxBatch, TxItem};
use arrayvec::ArrayVec;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::{Address, DatagramSocket, Error, Status};

/// Length of the longest packet that any node carries, in bytes.
const PACKET: usize = 9_000;

/// Receive buffer, in bytes: a tenth of a second at 80 Mbit/s.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Maximum number of consecutive statuses that the node may report before a packet is sent.
const NEWS: usize = 8;

/// Treatment of packets at a UDP port.
#[derive(Clone, Copy)]
pub struct Terms {
    /// DSCP of sent packets.
    pub dscp: u8,
    /// Time that a packet may wait in the socket before it is useless; `None` for no limit.
    pub useful_for: Option<Duration>,
}

/// A socket of a proxy.
pub enum Port {
    /// A virtual port of the node.
    Overlay(Box<Virtual>),
    /// A UDP port of this host.
    Udp { socket: Socket, terms: Terms },
}

/// A virtual port, and the known state of its destinations.
pub struct Virtual {
    socket: DatagramSocket,
    /// Unreachable destinations; a node reports on up to 256.
    lost: RefCell<BTreeMap<Address, Reason>>,
}

impl Virtual {
    /// Handles an error of the node. Returns true if the call should be retried.
    fn take(&self, error: &Error, n: usize, tally: &mut Tally) -> bool {
        let mut lost = self.lost.borrow_mut();
        match error {
            Error::Status(status @ Status::Reachable { to }) => {
                lost.remove(to);
                tally.reachable(status);
            }
            Error::Status(status @ Status::Unreachable { to, why }) => {
                let reason = Reason::of(*why);
                lost.insert(*to, reason);
                tally.drop(reason, 1, format_args!("{status}: packets to there are lost"));
            }
            // The node reports every status again after a reconnection.
            Error::Reconnected => lost.clear(),
            _ => {}
        }
        drop(lost);
        tally.overlay(error, n)
    }

    fn send(&self, bytes: &[u8], to: Address, tally: &mut Tally) {
        for _ in 0..NEWS {
            match self.socket.send_to(bytes, to) {
                Ok(()) => {
                    tally.to_overlay.add(bytes);
                    if let Some(reason) = self.lost.borrow().get(&to) {
                        tally.count(*reason);
                    }
                    return;
                }
                Err(error) => {
                    if !self.take(&error, 1, tally) {
                        return;
                    }
                }
            }
        }
        tally.drop(Reason::NodeAway, 1, "the node refuses packets: they are dropped");
    }
}

/// A packet and its sender.
pub type Packet<'m> = (Target, &'m [u8]);

/// Packets of one receive call.
pub type Packets<'m> = ArrayVec<Packet<'m>, BATCH>;

/// Receive buffers, shared by all ports.
pub struct Memory {
    udp: RxBatch,
    overlay: Box<[u8]>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory { udp: RxBatch::new(), overlay: vec![0; BATCH * PACKET].into() }
    }
}

/// Creates a non-blocking UDP socket for `address`, with receive timestamps.
fn udp(address: SocketAddr) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    // These may fail: one form needs CAP_NET_ADMIN, the other is limited to the system's maximum.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    }
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(socket)
}

impl Terms {
    fn is_stale(&self, waited: Duration) -> bool {
        self.useful_for.is_some_and(|useful| waited > useful)
    }
}

impl From<DatagramSocket> for Port {
    fn from(socket: DatagramSocket) -> Port {
        Port::Overlay(Box::new(Virtual { socket, lost: RefCell::default() }))
    }
}

impl Port {
    /// Opens a listening UDP port.
    pub fn listen(address: SocketAddr, terms: Terms) -> io::Result<Port> {
        let socket = udp(address)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(Port::Udp { socket, terms })
    }

    /// Opens a UDP port connected to one address: it does not receive others' datagrams, but does
    /// receive ICMP errors.
    pub fn towards(address: SocketAddr, terms: Terms) -> io::Result<Port> {
        let socket = udp(address)?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        socket.bind(&any.into())?;
        socket.connect(&address.into())?;
        Ok(Port::Udp { socket, terms })
    }

    /// Receives the waiting packets, at most [`BATCH`].
    pub fn recv<'m>(&self, memory: &'m mut Memory, tally: &mut Tally) -> Packets<'m> {
        let mut packets = Packets::new();
        match self {
            Port::Overlay(port) => {
                for room in memory.overlay.chunks_mut(PACKET) {
                    match port.socket.recv_from(room) {
                        Ok(got) => {
                            let bytes = &room[..got.len];
                            tally.from_overlay.add(bytes);
                            packets.push((Target::Overlay(got.from), bytes));
                        }
                        Err(Error::WouldBlock) => break,
                        // A status: the descriptor stays readable if there is more.
                        Err(error) => {
                            port.take(&error, 0, tally);
                        }
                    }
                }
            }
            Port::Udp { socket, terms } => match memory.udp.recv(socket.as_fd()) {
                Ok(_) => {
                    let (now, stamps) = (clock::now(), Stamps::sample());
                    let mut stale = 0;
                    for (meta, bytes) in memory.udp.iter_mut() {
                        let came = meta.stamp.map(|at| stamps.place(at, Time::ZERO, now));
                        match came.is_some_and(|came| terms.is_stale(now.since(came))) {
                            true => stale += 1,
                            false => packets.push((Target::Udp(meta.from), &*bytes)),
                        }
                    }
                    let why = "packets that arrived while this program was not running are too old";
                    tally.drop(Reason::Stale, stale, why);
                }
                Err(error) => udp_error(&error, 0, tally),
            },
        }
        packets
    }

    /// Sends packets to `to`, and counts those that cannot be sent.
    pub fn send(&self, to: &Target, packets: &[Packet<'_>], tx: &mut TxBatch, tally: &mut Tally) {
        match (self, to) {
            (Port::Overlay(port), Target::Overlay(to)) => {
                for (_, bytes) in packets {
                    port.send(bytes, *to, tally);
                }
            }
            (Port::Udp { socket, terms }, Target::Udp(to)) => {
                send_udp(socket, terms.dscp, *to, packets, tx, tally);
            }
            // Ports and targets of different kinds are never paired.
            _ => {}
        }
    }
}

fn send_udp(
    socket: &Socket,
    dscp: u8,
    to: SocketAddr,
    packets: &[Packet<'_>],
    tx: &mut TxBatch,
    tally: &mut Tally,
) {
    let mut rest = packets;
    let mut refused = false;
    while !rest.is_empty() {
        let items =
            rest.iter().map(|(_, bytes)| TxItem { dscp: Some(dscp), ..TxItem::new(to, bytes) });
        match tx.send(socket.as_fd(), items) {
            Ok(n) => rest = &rest[n.clamp(1, rest.len())..],
            Err(error) => {
                // A refusal concerns an earlier datagram, and is reported once.
                let earlier = error.kind() == io::ErrorKind::ConnectionRefused && !refused;
                refused |= earlier;
                udp_error(&error, 1, tally);
                if !earlier {
                    rest = &rest[1..];
                }
            }
        }
    }
}

/// Counts a UDP error that cost `n` packets. No error ends a socket.
fn udp_error(error: &io::Error, n: usize, tally: &mut Tally) {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let why = "no program listens at the UDP address that packets are sent to: is it running?";
        tally.drop(Reason::UdpRefused, 1, why);
    } else {
        tally.drop(
            Reason::UdpUnsent,
            n,
            format_args!("packets could not be sent by UDP: {error}; the proxy continues"),
        );
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Port::Overlay(port) => port.socket.as_fd(),
            Port::Udp { socket, .. } => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_refusal_does_not_cost_the_next_packet() {
        let at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = Port::towards(at, Terms { dscp: 46, useful_for: None }).unwrap();
        let (mut tx, mut tally) = (TxBatch::new(), Tally::default());
        let to = Target::Udp(at);
        port.send(&to, &[(to, b"nobody hears this")], &mut tx, &mut tally);
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        port.send(&to, &[(to, b"one"), (to, b"two")], &mut tx, &mut tally);
        let mut buf = [0; 9];
        for said in [b"one", b"two"] {
            let n = socket.recv(&mut buf).expect("a packet");
            assert_eq!(&buf[..n], said);
        }
        assert_eq!(tally.json()["dropped"]["udp_refused"], 1);
    }
}
