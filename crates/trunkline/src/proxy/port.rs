//! One socket of a proxy, of either kind, in batches.

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

/// The longest packet that any node carries, in bytes.
const PACKET: usize = 9_000;

/// What may wait to be received: a tenth of a second of 80 Mbit/s.
const RECEIVE_BUFFER: usize = 1 << 20;

/// News of a node, one after the other, that may come before a packet goes.
const NEWS: usize = 8;

/// How packets pass a UDP port.
#[derive(Clone, Copy)]
pub struct Terms {
    /// How what it sends is marked (DSCP).
    pub dscp: u8,
    /// How long a packet may have waited in the socket before it is of no use;
    /// `None` for as long as it likes.
    pub useful_for: Option<Duration>,
}

/// A socket of a proxy.
pub enum Port {
    /// A virtual port.
    Overlay(Box<Virtual>),
    /// A UDP port.
    Udp { socket: Socket, terms: Terms },
}

/// A virtual port, and what is known of where its packets go.
pub struct Virtual {
    socket: DatagramSocket,
    /// Where they don't get to; a node says that of 256.
    lost: RefCell<BTreeMap<Address, Reason>>,
}

impl Virtual {
    /// Takes an error of the node; true if the call is worth repeating.
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
            // From now on it tells everything anew.
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

/// A packet and who sent it.
pub type Packet<'m> = (Target, &'m [u8]);

/// What one receive brought.
pub type Packets<'m> = ArrayVec<Packet<'m>, BATCH>;

/// Memory to receive into; one serves every port.
pub struct Memory {
    udp: RxBatch,
    overlay: Box<[u8]>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory { udp: RxBatch::new(), overlay: vec![0; BATCH * PACKET].into() }
    }
}

/// A UDP socket for `address`, nonblocking, that says when packets came.
fn udp(address: SocketAddr) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    // Best effort: one form needs CAP_NET_ADMIN, the other is cut to the
    // system's maximum.
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
    /// Listens on UDP.
    pub fn listen(address: SocketAddr, terms: Terms) -> io::Result<Port> {
        let socket = udp(address)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(Port::Udp { socket, terms })
    }

    /// Talks to one UDP address: others' datagrams don't come in, and ICMP
    /// errors do.
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

    /// Receives what is there, at most [`BATCH`] packets.
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
                        // News: the descriptor stays readable if there is more.
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
                    let why = "what came while this program had no time to run is too old";
                    tally.drop(Reason::Stale, stale, why);
                }
                Err(error) => udp_error(&error, 0, tally),
            },
        }
        packets
    }

    /// Sends packets to `to`; what can't go is counted.
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
            // Ends of one kind are never paired with ports of the other.
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
        let items = rest.iter().map(|(_, bytes)| TxItem { to, dscp, segment: None, bytes });
        match tx.send(socket.as_fd(), items) {
            Ok(n) => rest = &rest[n.clamp(1, rest.len())..],
            Err(error) => {
                // A refusal is about an earlier datagram, and said once.
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

/// Counts an error of UDP that cost `n` packets. None ends a socket.
fn udp_error(error: &io::Error, n: usize, tally: &mut Tally) {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let why = "nobody listens at the UDP address that packets go to: is the program running?";
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
