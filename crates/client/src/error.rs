use crate::socket::{Address, Status};
use std::io;
use std::path::PathBuf;
use trunkline_overlay::session::wire::stream::Reset;
use trunkline_overlay::session::wire::{RefusalReason, Unreachable};
use trunkline_overlay::wire::{NodeId, WireError};

/// Why an operation on a socket failed.
///
/// None of them ends an open [`DatagramSocket`](crate::DatagramSocket): go on using it.
/// Where the connection to the node was lost or made no sense, the socket makes a new one
/// by itself. A [`StreamSocket`](crate::StreamSocket) has ended after any but
/// [`WouldBlock`](Error::WouldBlock), [`MessageTooLong`](Error::MessageTooLong) and
/// [`InvalidOption`](Error::InvalidOption).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens where the node should.
    #[error("no trunkline node answers at {at} ({source}): is it running, and is that its socket?")]
    NotRunning {
        /// Where the node should be.
        at: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The name of a node's host has no address.
    #[error("cannot find the address of {name} ({source}): it must be HOST:PORT; is it right?")]
    NoAddress {
        /// What was looked up.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// What follows the question mark of `tcp://HOST:PORT?node=…&key=…` is wrong.
    #[error("the attachment must be tcp://HOST:PORT?node=PUBKEY&key=FILE: {what}")]
    Attachment {
        /// What is wrong with it.
        what: String,
    },
    /// The file with this application's key is of no use.
    #[error("the key file {} {what} (`trunkline keygen` makes one)", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A node listens but did not answer a bind within 2 s.
    #[error("the trunkline node at {at} did not answer: is it overloaded or stopped?")]
    NoAnswer {
        /// Where the node is.
        at: String,
    },
    /// The node speaks another version of the session protocol.
    #[error(
        "the trunkline node speaks another version of the session protocol: \
         use a node and a client of the same release"
    )]
    Version,
    /// Another session has the virtual port.
    #[error("virtual port {port} belongs to another application: bind another, or 0 for any")]
    PortInUse {
        /// The port wanted.
        port: u16,
    },
    /// The node has no virtual port left.
    #[error("the trunkline node has no free virtual port: close some sockets")]
    NoFreePort,
    /// News, not a failure of this call: what the node says of where packets go
    /// has changed.
    #[error("{0}")]
    Status(Status),
    /// The packet is larger than the node carries; it was not sent.
    #[error(
        "a packet of {len} bytes is more than the {max} that the node carries: send smaller ones"
    )]
    TooLarge {
        /// Bytes in the packet.
        len: usize,
        /// [`DatagramSocket::max_payload`](crate::DatagramSocket::max_payload).
        max: usize,
    },
    /// The buffer was too short for the packet. It holds the packet's start;
    /// the rest is lost.
    #[error("a packet of {len} bytes did not fit the buffer: give room for max_payload() bytes")]
    Truncated {
        /// Bytes in the packet.
        len: usize,
    },
    /// Nothing to receive (now, or within the read timeout); or the node does
    /// not keep up and a packet was not sent.
    #[error("the operation would block")]
    WouldBlock,
    /// There is no connection to the node at present. A packet was not sent, and a socket
    /// for datagrams reconnects by itself; a stream has ended with its node.
    #[error(
        "the trunkline node is away: a packet was dropped, and the socket reconnects by itself; a \
         stream is lost with its node"
    )]
    Disconnected,
    /// The stream has broken off, or could not be opened, for this reason.
    #[error("{0}")]
    Reset(Reset),
    /// A message is longer than [`MAX_STREAM_MESSAGE`](crate::MAX_STREAM_MESSAGE). It was not
    /// sent; or it came from the other end, and neither it nor anything after it can be received.
    #[error("a message of {len} bytes is longer than the {max} bytes that a message may have")]
    MessageTooLong {
        /// The length of the message, in bytes.
        len: usize,
        /// The largest length, in bytes.
        max: usize,
    },
    /// News, not a failure: the connection to the node was lost and is back,
    /// with the same virtual port. Packets in between are lost. Said once.
    #[error("the connection to the trunkline node was lost and is back")]
    Reconnected,
    /// The node refused what this library sent; for every other reason there
    /// is a variant of its own.
    #[error("the trunkline node refused a message: {0}")]
    Refused(RefusalReason),
    /// The node sent what the session protocol does not allow.
    #[error("the trunkline node sent a message that breaks the session protocol ({0})")]
    Protocol(WireError),
    /// An option's value is out of range; nothing changed.
    #[error("{option} cannot be {value}: {range}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        range: &'static str,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, and with what.
        what: String,
        /// What the operating system said.
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

    /// The error for a node's refusal that names `port`.
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
            | RefusalReason::OverShare => Error::Refused(refusal),
        }
    }
}

impl From<Error> for io::Error {
    /// Of the kind that the same failure has on TCP; the [`Error`] is its source.
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
            Error::Refused(_) => ErrorKind::PermissionDenied,
            Error::Status(_) => ErrorKind::HostUnreachable,
            Error::Io { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}
