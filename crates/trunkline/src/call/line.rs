//! Carrier of a call: the overlay, or plain UDP for comparison.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_client::{Address, DatagramSocket, Error, RefusalReason, SocketOption, Status};

/// Messages that are read before the next packet of a call.
const NEWS: usize = 64;

/// A datagram socket of the overlay or of plain UDP.
pub enum Line {
    /// Carried by the overlay, through a node.
    Overlay(DatagramSocket),
    /// Carried by plain UDP, without any node.
    Udp(UdpSocket),
}

/// Reason why a line failed.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The overlay's socket failed.
    #[error(transparent)]
    Overlay(#[from] Error),
    /// The UDP socket failed.
    #[error("UDP: {0}")]
    Udp(io::Error),
}

/// Destination of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A virtual port of a node.
    Overlay(Address),
    /// A UDP port of a host.
    Udp(SocketAddr),
}

/// A packet received from a line.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// Length of the packet, in bytes.
    pub len: usize,
    /// Whether a link lost the packet and recovered it.
    pub recovered: bool,
    /// Sender of the packet.
    pub from: Target,
}

/// Input of a line that is used only to send.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// The node's status report about a destination.
    Status(Status),
    /// A packet and its sender. Over UDP, packets longer than any RTCP packet are truncated.
    Packet(&'a [u8], Target),
}

/// Bytes of a packet that [`News`] holds, more than any RTCP packet needs.
const SHORT: usize = 1_024;

impl Line {
    /// Sends `packet`. Returns false if it could not leave now, which may happen to any datagram.
    /// Statuses that arrive in the meantime are passed to `told`.
    ///
    /// # Errors
    ///
    /// The packet is too large, or the node does not let this application send to its destination.
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
                        // A status that concerns another packet.
                        Err(Error::Status(status)) => told(status),
                        // Stop for errors that the sender can fix.
                        Err(e @ Error::TooLarge { .. }) => return Err(e.into()),
                        Err(e) if is_barred(&e) => return Err(e.into()),
                        // Other errors are temporary: the node is busy, restarting, or back again.
                        Err(_) => return Ok(false),
                    }
                }
                Ok(false)
            }
            (Line::Udp(socket), Target::Udp(to)) => Ok(socket.send_to(packet, to).is_ok()),
            // `open` pairs a line with targets of its own kind.
            _ => Ok(false),
        }
    }

    /// Handles all queued input. The line must be non-blocking.
    ///
    /// # Errors
    ///
    /// The node does not let this application send to the destination of an earlier packet.
    pub fn listen(&self, mut told: impl FnMut(News<'_>)) -> Result<(), LineError> {
        let mut buf = [0; SHORT];
        for _ in 0..NEWS {
            match self {
                Line::Overlay(socket) => match socket.recv_from(&mut buf) {
                    Ok(got) => told(News::Packet(&buf[..got.len], Target::Overlay(got.from))),
                    Err(Error::Status(status)) => told(News::Status(status)),
                    Err(Error::Truncated { .. }) => {}
                    Err(e) if is_barred(&e) => return Err(e.into()),
                    Err(_) => return Ok(()),
                },
                Line::Udp(socket) => match socket.recv_from(&mut buf) {
                    Ok((len, from)) => told(News::Packet(&buf[..len], Target::Udp(from))),
                    Err(_) => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Receives the next packet, waiting at most the timeout of [`Line::set_patience`]. Returns
    /// `None` if none arrived.
    pub fn recv(&self, buf: &mut [u8]) -> Result<Option<Got>, LineError> {
        match self {
            Line::Overlay(socket) => match socket.recv_from(buf) {
                Ok(got) => Ok(Some(Got {
                    len: got.len,
                    recovered: got.recovered,
                    from: Target::Overlay(got.from),
                })),
                Err(Error::WouldBlock) => Ok(None),
                // No such error ends the socket.
                Err(news) => {
                    tracing::info!("{news}; the call continues");
                    Ok(None)
                }
            },
            Line::Udp(socket) => match socket.recv_from(buf) {
                Ok((len, from)) => Ok(Some(Got { len, recovered: false, from: Target::Udp(from) })),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(None),
                    // The process was stopped (Ctrl-Z) and has continued.
                    io::ErrorKind::Interrupted => Ok(None),
                    // An ICMP error caused by an earlier packet.
                    io::ErrorKind::ConnectionRefused => Ok(None),
                    _ => Err(LineError::Udp(e)),
                },
            },
        }
    }

    /// Sets the timeout of [`Line::recv`]; zero makes it non-blocking.
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

/// Whether the node refused a packet to this destination, and will refuse the next ones too.
fn is_barred(error: &Error) -> bool {
    matches!(error, Error::Refused(RefusalReason::Forbidden | RefusalReason::OverShare))
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Overlay(socket) => socket.as_fd(),
            Line::Udp(socket) => socket.as_fd(),
        }
    }
}
