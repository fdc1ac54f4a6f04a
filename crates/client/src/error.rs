use crate::socket::{Address, Status};
use std::io;
use std::path::PathBuf;
use trunkline_overlay::session::wire::stream::Reset;
use trunkline_overlay::session::wire::{RefusalReason, Unreachable};
use trunkline_overlay::wire::{NodeId, WireError};

/// Reason why an operation on a socket failed.
///
/// No variant ends an open [`DatagramSocket`](crate::DatagramSocket): keep using it. If the
/// connection to the node was lost or sent invalid data, the socket reconnects automatically. A
/// [`StreamSocket`](crate::StreamSocket) has ended after any variant but
/// [`WouldBlock`](Error::WouldBlock), [`MessageTooLong`](Error::MessageTooLong) and
/// [`InvalidOption`](Error::InvalidOption).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No node listens at the expected address.
    #[error("no trunkline node answers at {at} ({source}): is it running, and is that its socket?")]
    NotRunning {
        /// Address at which the node was expected.
        at: String,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The name of the node's host has no address.
    #[error("cannot find the address of {name} ({source}): it must be HOST:PORT; is it right?")]
    NoAddress {
        /// Host name that was looked up.
        name: String,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The part of `tcp://HOST:PORT?node=…&key=…` after the question mark is invalid.
    #[error("the attachment must be tcp://HOST:PORT?node=PUBKEY&key=FILE: {what}")]
    Attachment {
        /// Description of the problem.
        what: String,
    },
    /// The file with this application's key can't be used.
    #[error("the key file {} {what} (`trunkline keygen` makes one)", path.display())]
    KeyFile {
        /// Path of the key file.
        path: PathBuf,
        /// Description of the problem.
        what: String,
    },
    /// A node listens but did not answer a bind within 2 s.
    #[error("the trunkline node at {at} did not answer: is it overloaded or stopped?")]
    NoAnswer {
        /// Address of the node.
        at: String,
    },
    /// The node uses another version of the session protocol.
    #[error(
        "the trunkline node uses another version of the session protocol: \
         use a node and a client of the same release"
    )]
    Version,
    /// Another session holds the virtual port.
    #[error("virtual port {port} belongs to another application: bind another, or 0 for any")]
    PortInUse {
        /// Virtual port that was requested.
        port: u16,
    },
    /// The node has no virtual port left.
    #[error(
        "the trunkline node has no free virtual port: close some sockets, or let it have more ports \
         (`bind` in [access] or [[client]])"
    )]
    NoFreePort,
    /// News, not a failure of this call: the state of a destination, as the node reports it, has
    /// changed.
    #[error("{0}")]
    Status(Status),
    /// The packet is larger than the node carries and was not sent.
    #[error(
        "a packet of {len} bytes is more than the {max} that the node carries: send smaller ones"
    )]
    TooLarge {
        /// Length of the packet, in bytes.
        len: usize,
        /// Largest payload, in bytes; see
        /// [`DatagramSocket::max_payload`](crate::DatagramSocket::max_payload).
        max: usize,
    },
    /// The buffer was too short for the packet. It holds the packet's start;
    /// the rest is lost.
    #[error("a packet of {len} bytes did not fit the buffer: provide max_payload() bytes")]
    Truncated {
        /// Length of the packet, in bytes.
        len: usize,
    },
    /// Nothing to receive (now, or within the read timeout); or the node does not keep up, and a
    /// packet was not sent.
    #[error("the operation would block")]
    WouldBlock,
    /// There is no connection to the node at present. A packet was not sent, and a datagram socket
    /// reconnects automatically; a stream has ended with its node.
    #[error(
        "the trunkline node is away: a packet was dropped, and its socket reconnects; a \
         stream is lost with its node"
    )]
    Disconnected,
    /// The stream was reset, or could not be opened, for this reason.
    #[error("{0}")]
    Reset(Reset),
    /// A message is longer than [`MAX_STREAM_MESSAGE`](crate::MAX_STREAM_MESSAGE). Either it was
    /// not sent, or it came from the other end, and neither it nor anything after it can be
    /// received.
    #[error("a message of {len} bytes is longer than the {max} bytes that a message may have")]
    MessageTooLong {
        /// Length of the message, in bytes.
        len: usize,
        /// Largest allowed length, in bytes.
        max: usize,
    },
    /// News, not a failure: the connection to the node was lost and is back, with the same virtual
    /// port. Packets in between are lost. Reported once.
    #[error("the connection to the trunkline node was lost and is back")]
    Reconnected,
    /// The node refused a request of this library for a reason without a separate variant.
    #[error("the trunkline node refused a message: {0}")]
    Refused(RefusalReason),
    /// The node violated the session protocol.
    #[error("the trunkline node sent a message that breaks the session protocol ({0})")]
    Protocol(WireError),
    /// An option's value is out of range; nothing changed.
    #[error("{option} cannot be {value}: {range}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// Value that was given.
        value: String,
        /// Range of allowed values.
        range: &'static str,
    },
    /// An operating system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that was tried, and its object.
        what: String,
        /// Error from the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }

    pub(crate) fn unreachable(node: NodeId, port: u16, why: Unreachable) -> Error {
        Error::Status(Status::Unreachable { to: Address { node, port }, why })
    }

    /// Error for a node's refusal that concerns `port`.
    pub(crate) fn refused(refusal: RefusalReason, port: u16) -> Error {
        match refusal {
            RefusalReason::Version => Error::Version,
            RefusalReason::PortInUse => Error::PortInUse { port },
            RefusalReason::NoFreePort => Error::NoFreePort,
            RefusalReason::OutOfOrder
            | RefusalReason::TooLarge
            | RefusalReason::Malformed
            | RefusalReason::Full
            | RefusalReason::Forbidden
            | RefusalReason::Unauthenticated
            | RefusalReason::WrongKey
            | RefusalReason::UnknownClient
            | RefusalReason::Busy
            | RefusalReason::OverShare
            | RefusalReason::OverRate => Error::Refused(refusal),
        }
    }
}

impl From<Error> for io::Error {
    /// Maps to the kind that the same failure has on TCP; the [`Error`] is its source.
    fn from(error: Error) -> io::Error {
        use io::ErrorKind;
        let kind = match &error {
            Error::WouldBlock => ErrorKind::WouldBlock,
            Error::Reset(why) => match why {
                Reset::NotListening | Reset::Full => ErrorKind::ConnectionRefused,
                Reset::Forbidden => ErrorKind::PermissionDenied,
                Reset::Timeout | Reset::Stalled => ErrorKind::TimedOut,
                Reset::Unknown | Reset::Aborted => ErrorKind::ConnectionReset,
                Reset::Closed => ErrorKind::BrokenPipe,
                Reset::NoRoute => ErrorKind::HostUnreachable,
                Reset::NoRoom => ErrorKind::ResourceBusy,
                Reset::Protocol | Reset::Misuse => ErrorKind::InvalidData,
            },
            Error::NotRunning { .. } => ErrorKind::ConnectionRefused,
            Error::NoAddress { .. } => ErrorKind::NotFound,
            Error::NoAnswer { .. } => ErrorKind::TimedOut,
            Error::Disconnected | Error::Reconnected => ErrorKind::ConnectionReset,
            Error::Version => ErrorKind::Unsupported,
            Error::PortInUse { .. } => ErrorKind::AddrInUse,
            Error::NoFreePort => ErrorKind::AddrNotAvailable,
            Error::Protocol(_) => ErrorKind::InvalidData,
            Error::Attachment { .. }
            | Error::KeyFile { .. }
            | Error::InvalidOption { .. }
            | Error::TooLarge { .. }
            | Error::Truncated { .. }
            | Error::MessageTooLong { .. } => ErrorKind::InvalidInput,
            Error::Refused(RefusalReason::Full | RefusalReason::Busy) => ErrorKind::ResourceBusy,
            Error::Refused(RefusalReason::OverRate) => ErrorKind::QuotaExceeded,
            Error::Refused(_) => ErrorKind::PermissionDenied,
            Error::Status(_) => ErrorKind::HostUnreachable,
            Error::Io { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}
