//! What a call is carried by: the overlay, or plain UDP for comparison.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_client::{Address, DatagramSocket, Error, SocketOption, Status};

/// Messages that are looked at before the next packet of a call.
const NEWS: usize = 64;

/// A socket of either kind.
pub enum Line {
    /// Through a node.
    Overlay(DatagramSocket),
    /// Past all nodes.
    Udp(UdpSocket),
}

/// Why a line failed.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The overlay's.
    #[error(transparent)]
    Overlay(#[from] Error),
    /// Plain UDP's.
    #[error("UDP: {0}")]
    Udp(io::Error),
}

/// Where a call goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A virtual port of a node.
    Overlay(Address),
    /// A UDP port of a host.
    Udp(SocketAddr),
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// Its bytes.
    pub len: usize,
    /// Whether a link lost it and got it again.
    pub recovered: bool,
    /// Who sent it.
    pub from: Target,
}

/// What comes to who only sends.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// The node says it of a destination.
    Status(Status),
    /// A packet and who sent it; of longer ones than RTCP is, UDP's beginning.
    Packet(&'a [u8], Target),
}

/// As much of a packet as [`News`] has: RTCP is shorter.
const SHORT: usize = 1_024;

impl Line {
    /// Sends `packet`; false if it could not leave now, as may happen to any
    /// datagram. What the node says meanwhile of destinations goes to `told`.
    pub fn send(
        &self,
        packet: &[u8],
        to: &Target,
        told: &mut impl FnMut(Status),
    ) -> Result<bool, LineError> {
        match (self, to) {
            (Line::Overlay(socket), Target::Overlay(to)) => {
                for _ in 0..NEWS {
                    match socket.send_to(packet, *to) {
                        Ok(()) => return Ok(true),
                        // News, and not about this packet.
                        Err(Error::Status(status)) => told(status),
                        // What the sender can mend is worth stopping for.
                        Err(e @ Error::TooLarge { .. }) => return Err(e.into()),
                        // The rest passes: the node is busy, restarting, or back.
                        Err(_) => return Ok(false),
                    }
                }
                Ok(false)
            }
            (Line::Udp(socket), Target::Udp(to)) => Ok(socket.send_to(packet, to).is_ok()),
            // `open` pairs lines with targets of their own kind.
            _ => Ok(false),
        }
    }

    /// Takes what waits; the line must not wait.
    pub fn listen(&self, mut told: impl FnMut(News<'_>)) {
        let mut buf = [0; SHORT];
        for _ in 0..NEWS {
            match self {
                Line::Overlay(socket) => match socket.recv_from(&mut buf) {
                    Ok(got) => told(News::Packet(&buf[..got.len], Target::Overlay(got.from))),
                    Err(Error::Status(status)) => told(News::Status(status)),
                    Err(Error::Truncated { .. }) => {}
                    Err(_) => return,
                },
                Line::Udp(socket) => match socket.recv_from(&mut buf) {
                    Ok((len, from)) => told(News::Packet(&buf[..len], Target::Udp(from))),
                    Err(_) => return,
                },
            }
        }
    }

    /// The next packet, waiting for as long as [`Line::set_patience`] says;
    /// `None` if none came.
    pub fn recv(&self, buf: &mut [u8]) -> Result<Option<Got>, LineError> {
        match self {
            Line::Overlay(socket) => match socket.recv_from(buf) {
                Ok(got) => Ok(Some(Got {
                    len: got.len,
                    recovered: got.recovered,
                    from: Target::Overlay(got.from),
                })),
                Err(Error::WouldBlock) => Ok(None),
                // None of them ends the socket.
                Err(news) => {
                    tracing::info!("{news}; the call continues");
                    Ok(None)
                }
            },
            Line::Udp(socket) => match socket.recv_from(buf) {
                Ok((len, from)) => Ok(Some(Got { len, recovered: false, from: Target::Udp(from) })),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(None),
                    // It was stopped (Ctrl-Z), and goes on.
                    io::ErrorKind::Interrupted => Ok(None),
                    // An ICMP error of an earlier packet.
                    io::ErrorKind::ConnectionRefused => Ok(None),
                    _ => Err(LineError::Udp(e)),
                },
            },
        }
    }

    /// How long [`Line::recv`] waits; zero is not at all.
    pub fn set_patience(&self, patience: Duration) -> Result<(), LineError> {
        let wait = Some(patience).filter(|p| !p.is_zero());
        match self {
            Line::Overlay(socket) => {
                socket.set_option(SocketOption::Nonblocking(wait.is_none()))?;
                Ok(socket.set_option(SocketOption::ReadTimeout(wait))?)
            }
            Line::Udp(socket) => {
                socket.set_nonblocking(wait.is_none()).map_err(LineError::Udp)?;
                socket.set_read_timeout(wait).map_err(LineError::Udp)
            }
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Overlay(socket) => socket.as_fd(),
            Line::Udp(socket) => socket.as_fd(),
        }
    }
}
