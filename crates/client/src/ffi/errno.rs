//! Errors as C programs see them: an errno for each, and its text.

use crate::error::Error;
use crate::socket::Status;
use nix::errno::Errno;
use std::ffi::CStr;
use trunkline_overlay::session::wire::stream::Reset;
use trunkline_overlay::session::wire::{RefusalReason, Unreachable};

pub(super) fn errno(error: Error) -> Errno {
    match error {
        Error::NotRunning { .. } => Errno::ECONNREFUSED,
        Error::Status(Status::Unreachable { why: Unreachable::NoPort, .. }) => Errno::ECONNREFUSED,
        Error::Status(Status::Unreachable { .. }) => Errno::EHOSTUNREACH,
        Error::Status(Status::Reachable { .. }) => Errno::EREMCHG,
        Error::NoAddress { .. } => Errno::ENOENT,
        Error::NoAnswer { .. } => Errno::ETIMEDOUT,
        Error::Version => Errno::EPROTONOSUPPORT,
        Error::PortInUse { .. } => Errno::EADDRINUSE,
        Error::NoFreePort => Errno::EADDRNOTAVAIL,
        Error::TooLarge { .. }
        | Error::Truncated { .. }
        | Error::Refused(RefusalReason::TooLarge) => Errno::EMSGSIZE,
        Error::WouldBlock => Errno::EAGAIN,
        Error::Disconnected => Errno::ENOTCONN,
        Error::Reconnected => Errno::ECONNRESET,
        Error::Refused(RefusalReason::Full) => Errno::ENOBUFS,
        Error::Refused(RefusalReason::Forbidden) => Errno::EPERM,
        Error::Refused(RefusalReason::Unauthenticated) | Error::KeyFile { .. } => Errno::ENOKEY,
        Error::Refused(RefusalReason::WrongKey) => Errno::EKEYREJECTED,
        Error::Refused(RefusalReason::UnknownClient) => Errno::EACCES,
        Error::Refused(RefusalReason::Busy) => Errno::EBUSY,
        Error::Refused(RefusalReason::OverShare | RefusalReason::OverRate) => Errno::EDQUOT,
        Error::Refused(_) | Error::Protocol(_) => Errno::EPROTO,
        Error::Reset(why) => match why {
            Reset::NotListening => Errno::ECONNREFUSED,
            Reset::Full => Errno::EBUSY,
            Reset::Forbidden => Errno::EPERM,
            Reset::Timeout | Reset::Stalled => Errno::ETIMEDOUT,
            Reset::Unknown | Reset::Aborted => Errno::ECONNRESET,
            Reset::Closed => Errno::EPIPE,
            Reset::NoRoute => Errno::EHOSTUNREACH,
            Reset::NoRoom => Errno::ENOBUFS,
            Reset::Protocol | Reset::Misuse => Errno::EPROTO,
        },
        Error::MessageTooLong { .. } => Errno::EMSGSIZE,
        Error::InvalidOption { .. } | Error::Attachment { .. } => Errno::EINVAL,
        Error::Io { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    }
}

/// Text of `tl_strerror` for an errno with a meaning that is more specific here than in general.
pub(super) fn meaning(errno: Errno) -> Option<&'static CStr> {
    MEANINGS.iter().find(|(of, _)| *of == errno).map(|(_, text)| *text)
}

const MEANINGS: &[(Errno, &CStr)] = &[
    (
        Errno::EACCES,
        c"the node doesn't know this application's key (it needs a [[client]] with it), or this \
              program may not open the node's socket",
    ),
    (
        Errno::EADDRINUSE,
        c"the virtual port belongs to another application: bind another, or 0 for any",
    ),
    (
        Errno::EADDRNOTAVAIL,
        c"the node has no free virtual port: close some sockets, or let it have more ports \
              (`bind` in [access] or [[client]])",
    ),
    (
        Errno::EAGAIN,
        c"nothing to receive yet, or the node does not keep up with sending, or lets this user send no \
              more at present ([access] rate)",
    ),
    (Errno::EBADF, c"the descriptor is not an open socket of this library"),
    (
        Errno::EDQUOT,
        c"a packet was dropped: this user's applications send more than [access] rate allows, or \
              the trunk to the destination exceeds its share: try again later",
    ),
    (
        Errno::EBUSY,
        c"the node gets more handshakes than it allows, or the other end accepts no more \
              streams: try again later",
    ),
    (Errno::ECONNABORTED, c"this application has reset the stream"),
    (
        Errno::ECONNREFUSED,
        c"no node runs at the attachment, or no application has the port that was sent to, or \
              listens there for streams",
    ),
    (
        Errno::ECONNRESET,
        c"the connection to the node was lost and is back: continue; or the other end has broken \
              the stream off, or its node has lost it",
    ),
    (Errno::EFAULT, c"a null pointer where there must be none"),
    (
        Errno::EHOSTUNREACH,
        c"a packet was dropped, or a stream could not be opened: there is no route to its node at \
              present",
    ),
    (
        Errno::EOPNOTSUPP,
        c"the call is for the other kind of socket: datagrams and streams have separate calls",
    ),
    (
        Errno::EPIPE,
        c"writing is no longer possible: this end was shut down, or the other end is closed",
    ),
    (Errno::EREMCHG, c"a destination can be reached again (tl_status tells which): continue"),
    (Errno::ENOMSG, c"there is no status of a destination to read"),
    (
        Errno::EINVAL,
        c"an argument is out of range, the attachment is not understood, or the socket is not \
              bound or connected, or is so already",
    ),
    (Errno::EIO, c"a bug in the trunkline library: please report what it has printed"),
    (
        Errno::EKEYREJECTED,
        c"the node's key differs from ?node= in the attachment: is it the right node?",
    ),
    (
        Errno::ENOKEY,
        c"the key file of the attachment (?node=PUBKEY&key=FILE) is missing, holds no key, or can \
              be read by others",
    ),
    (Errno::EPERM, c"the rules ([access]) of a node don't let this application do that"),
    (Errno::EMSGSIZE, c"the packet or the buffer is of the wrong size: see TL_MAX_PAYLOAD"),
    (
        Errno::ENOBUFS,
        c"the node takes no more applications or streams: it is being drained, or has as many as \
              it allows",
    ),
    (Errno::ENOENT, c"the name in tcp://HOST:PORT has no address: is it right?"),
    (Errno::ENOPROTOOPT, c"there is no such option, or it can only be read"),
    (
        Errno::ENOTCONN,
        c"the node is away: a packet was dropped, and its socket reconnects; a stream is lost",
    ),
    (
        Errno::EPROTO,
        c"node and library, or two nodes, do not understand each other: are all of one release?",
    ),
    (
        Errno::EPROTOTYPE,
        c"that is not the socket for applications; it may be the node's control socket: give the \
              path of `socket` in [node]",
    ),
    (
        Errno::EPROTONOSUPPORT,
        c"the node does not support this version of the session protocol: use one release for both",
    ),
    (
        Errno::ETIMEDOUT,
        c"the node, or the other end of a stream, did not answer: is it overloaded or stopped?",
    ),
];
