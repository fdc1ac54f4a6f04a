//! Session messages about streams and listeners.
//!
//! A session that has bound a port becomes the connecting end of a stream with
//! [`Request::Connect`], or a listener with [`Request::Listen`]. A listener is notified of each
//! incoming stream ([`Notice::Incoming`]); a separate session, which binds no port, takes that
//! stream with [`Request::Accept`]. From [`Notice::Connected`] on, both sides send data, at most as
//! much as the other has given credit for. Credit adds up: each grant allows that many bytes more
//! than all grants before it.

use crate::wire::{NodeId, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum number of stream bytes in one message.
pub const MAX_DATA: usize = 8_192;

/// Requests from an application to its node about a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Open a stream from this session's port to `port` at node `to`.
    Connect {
        /// Node at the other end of the stream.
        to: NodeId,
        /// The virtual port at that node.
        port: u16,
        /// Whether both ends preserve message boundaries, by a convention of theirs that the nodes
        /// forward and don't interpret.
        messages: bool,
        /// Bytes that the application accepts before it gives credit again.
        credit: u32,
    },
    /// Accept streams to the port that this session has bound.
    Listen {
        /// Maximum number of streams waiting to be accepted: at least 1, and at most what the node
        /// allows.
        backlog: u16,
    },
    /// Take the stream that a listener was notified of; the first message of its session.
    Accept {
        /// The version of the session protocol that the application uses.
        version: u8,
        /// The token of the stream, from [`Notice::Incoming`].
        token: u64,
        /// Bytes that the application accepts before it gives credit again.
        credit: u32,
    },
    /// The next bytes that the application sends, at most [`MAX_DATA`].
    Data(&'a [u8]),
    /// The application accepts this many more bytes.
    Credit(u32),
    /// The application has finished sending: the other end reads the end of the stream after the
    /// data sent before. A session that ends without this resets its stream.
    Shut,
    /// Reset the stream, with the loss of all data in flight.
    Reset,
}

/// Notices from a node to an application about a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice<'a> {
    /// A stream waits to be accepted.
    Incoming {
        /// A random number that identifies the stream in [`Request::Accept`].
        token: u64,
        /// Node that requested the stream.
        from: NodeId,
        /// The virtual port at that node.
        port: u16,
        /// Whether its ends preserve message boundaries.
        messages: bool,
    },
    /// The stream is open: the answer to [`Request::Connect`] or [`Request::Accept`].
    Connected {
        /// The node of this end.
        node: NodeId,
        /// The virtual port of this end.
        port: u16,
        /// The node of the other end.
        peer: NodeId,
        /// The virtual port of the other end.
        peer_port: u16,
        /// Whether its ends preserve message boundaries.
        messages: bool,
        /// Bytes that the node accepts before it gives credit again.
        credit: u32,
    },
    /// The next bytes from the other end, at most [`MAX_DATA`].
    Data(&'a [u8]),
    /// The node accepts this many more bytes.
    Credit(u32),
    /// The other end has finished sending: no more data follows.
    Shut,
    /// The stream was reset, or never existed; nothing follows.
    Reset(Reset),
    /// Both directions have ended, and the other end's node has received everything; nothing
    /// follows.
    Finished,
}

/// Reason why a stream was reset or not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum Reset {
    /// No application listens for streams at the port.
    #[error("no application listens for streams at that port")]
    NotListening = 1,
    /// The other end already has its maximum number of streams that are open or waiting to be
    /// accepted.
    #[error("the other end accepts no more streams at present")]
    Full = 2,
    /// The rules of one of the nodes forbid it.
    #[error("a node's rules ([access]) forbid this stream")]
    Forbidden = 3,
    /// The other end was silent for too long.
    #[error("the other end doesn't answer")]
    Timeout = 4,
    /// The other end has no such stream: its node has restarted.
    #[error("the other end's node has restarted and lost the stream")]
    Unknown = 5,
    /// The application at the other end has reset it.
    #[error("the application at the other end has reset the stream")]
    Aborted = 6,
    /// The other end has violated the protocol.
    #[error("the other end violated the protocol")]
    Protocol = 7,
    /// The application at one of the ends has read nothing for too long.
    #[error("the application at one end has read nothing for too long")]
    Stalled = 8,
    /// The node has no route to the destination.
    #[error("the node has no route to the destination")]
    NoRoute = 9,
    /// The application at the other end has closed the stream, and doesn't read further data.
    #[error("the application at the other end has closed the stream")]
    Closed = 11,
    /// The application's node has no memory for another stream, or its maximum number, or one
    /// between the same ports.
    #[error("the node has no room for another stream ([streams])")]
    NoRoom = 12,
    /// The application has violated the session protocol.
    #[error("the application sent more than it had credit for, or out of order")]
    Misuse = 13,
}

impl Reset {
    /// All reasons, in the order of their numbers on the wire.
    pub const ALL: [Reset; 12] = [
        Reset::NotListening,
        Reset::Full,
        Reset::Forbidden,
        Reset::Timeout,
        Reset::Unknown,
        Reset::Aborted,
        Reset::Protocol,
        Reset::Stalled,
        Reset::NoRoute,
        Reset::Closed,
        Reset::NoRoom,
        Reset::Misuse,
    ];

    /// The reason with this number on the wire; one that only later versions have is mapped to
    /// [`Reset::Aborted`].
    pub fn from_wire(code: u8) -> Reset {
        Reset::ALL.into_iter().find(|r| *r as u8 == code).unwrap_or(Reset::Aborted)
    }
}

pub(super) const CONNECT: u8 = 6;
const LISTEN: u8 = 7;
const ACCEPT: u8 = 8;
const DATA: u8 = 9;
const CREDIT: u8 = 10;
const SHUT: u8 = 11;
pub(super) const RESET: u8 = 12;
const FINISHED: u8 = 13;
/// Set in messages from a node.
const NODE: u8 = 0x80;
pub(super) const INCOMING: u8 = NODE | CONNECT;
const CONNECTED: u8 = NODE | ACCEPT;
const NODE_RESET: u8 = NODE | RESET;
pub(super) const NODE_FINISHED: u8 = NODE | FINISHED;

impl<'a> Request<'a> {
    /// Writes all fields except the bytes of data, which follow unchanged.
    pub(super) fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            Request::Connect { to, port, messages, credit } => {
                w.u8(CONNECT)?;
                w.u32(to.0)?;
                w.u16(port)?;
                w.u8(messages.into())?;
                w.u32(credit)
            }
            Request::Listen { backlog } => {
                w.u8(LISTEN)?;
                w.u16(backlog)
            }
            Request::Accept { version, token, credit } => {
                w.u8(ACCEPT)?;
                w.u8(version)?;
                w.u64(token)?;
                w.u32(credit)
            }
            Request::Data(_) => w.u8(DATA),
            Request::Credit(bytes) => {
                w.u8(CREDIT)?;
                w.u32(bytes)
            }
            Request::Shut => w.u8(SHUT),
            Request::Reset => w.u8(RESET),
        }
    }

    /// Parses the rest of a message of type `kind`.
    pub(super) fn parse(kind: u8, mut r: Reader<'a>) -> Result<Request<'a>, WireError> {
        let request = match kind {
            CONNECT => Request::Connect {
                to: NodeId(r.u32()?),
                port: r.u16()?,
                messages: r.u8()? & 1 != 0,
                credit: r.u32()?,
            },
            LISTEN => Request::Listen { backlog: r.u16()? },
            ACCEPT => Request::Accept { version: r.u8()?, token: r.u64()?, credit: r.u32()? },
            DATA => return data(r.rest()).map(Request::Data),
            CREDIT => Request::Credit(r.u32()?),
            SHUT => Request::Shut,
            RESET => Request::Reset,
            other => return Err(WireError::UnknownType(other)),
        };
        r.is_empty().then_some(request).ok_or(WireError::OutOfRange("the length"))
    }
}

impl<'a> Notice<'a> {
    /// Writes all fields except the bytes of data, which follow unchanged.
    pub(super) fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            Notice::Incoming { token, from, port, messages } => {
                w.u8(INCOMING)?;
                w.u64(token)?;
                w.u32(from.0)?;
                w.u16(port)?;
                w.u8(messages.into())
            }
            Notice::Connected { node, port, peer, peer_port, messages, credit } => {
                w.u8(CONNECTED)?;
                w.u32(node.0)?;
                w.u16(port)?;
                w.u32(peer.0)?;
                w.u16(peer_port)?;
                w.u8(messages.into())?;
                w.u32(credit)
            }
            Notice::Data(_) => w.u8(NODE | DATA),
            Notice::Credit(bytes) => {
                w.u8(NODE | CREDIT)?;
                w.u32(bytes)
            }
            Notice::Shut => w.u8(NODE | SHUT),
            Notice::Reset(why) => {
                w.u8(NODE_RESET)?;
                w.u8(why as u8)
            }
            Notice::Finished => w.u8(NODE_FINISHED),
        }
    }

    /// Parses the rest of a message of type `kind`.
    pub(super) fn parse(kind: u8, mut r: Reader<'a>) -> Result<Notice<'a>, WireError> {
        Ok(match kind {
            INCOMING => Notice::Incoming {
                token: r.u64()?,
                from: NodeId(r.u32()?),
                port: r.u16()?,
                messages: r.u8()? & 1 != 0,
            },
            CONNECTED => Notice::Connected {
                node: NodeId(r.u32()?),
                port: r.u16()?,
                peer: NodeId(r.u32()?),
                peer_port: r.u16()?,
                messages: r.u8()? & 1 != 0,
                credit: r.u32()?,
            },
            other => match other & !NODE {
                DATA => Notice::Data(data(r.rest())?),
                CREDIT => Notice::Credit(r.u32()?),
                SHUT => Notice::Shut,
                RESET => Notice::Reset(Reset::from_wire(r.u8()?)),
                FINISHED => Notice::Finished,
                _ => return Err(WireError::UnknownType(other)),
            },
        })
    }
}

fn data(bytes: &[u8]) -> Result<&[u8], WireError> {
    (bytes.len() <= MAX_DATA).then_some(bytes).ok_or(WireError::OutOfRange("the length"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::whole;
    use super::super::{ToClient, ToNode};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            node in any::<u32>(), port in any::<u16>(), token in any::<u64>(),
            messages in any::<bool>(), credit in any::<u32>(), version in any::<u8>(),
            why in prop::sample::select(&Reset::ALL[..]),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let to = NodeId(node);
            prop_assert_eq!(Reset::from_wire(why as u8), why);
            for request in [
                Request::Connect { to, port, messages, credit },
                Request::Listen { backlog: port },
                Request::Accept { version, token, credit },
                Request::Data(&bytes),
                Request::Credit(credit),
                Request::Shut,
                Request::Reset,
            ] {
                let message = ToNode::Stream(request);
                let bytes = whole(|w| message.emit_head(w), message.payload());
                prop_assert_eq!(ToNode::parse(&bytes), Ok(message));
            }
            for notice in [
                Notice::Incoming { token, from: to, port, messages },
                Notice::Connected { node: to, port, peer: to, peer_port: port, messages, credit },
                Notice::Data(&bytes),
                Notice::Credit(credit),
                Notice::Shut,
                Notice::Reset(why),
                Notice::Finished,
            ] {
                let message = ToClient::Stream(notice);
                let bytes = whole(|w| message.emit_head(w), message.payload());
                prop_assert_eq!(ToClient::parse(&bytes), Ok(message));
            }
        }
    }
}
