//! The messages between an application and its node. A carrier (Unix socket, in-process ring, …)
//! preserves message boundaries; one carrier connection is one session with one virtual port.
//!
//! The client begins with [`ToNode::Bind`]; the node answers [`ToClient::Bound`] or
//! [`ToClient::Error`]. Then both send at will.

pub mod stream;

use crate::wire::version::VersionRange;
use crate::wire::{Metric, NodeId, Service, WireError};
use core::time::Duration;
use trunkline_base::wire::{Reader, Short, Writer};

/// The newest version of this protocol, which a client of this build uses.
pub const SESSION_VERSION: u8 = 1;

/// The versions that a node of this build supports for its clients; others are refused with
/// [`RefusalReason::Version`].
pub const SESSION_VERSIONS: VersionRange = VersionRange { oldest: 1, newest: SESSION_VERSION };

/// Maximum length of the head (everything in front of the payload) of any message.
pub const MAX_HEAD: usize = 20;

/// Maximum length of a session message: a head and the largest packet that any link could carry
/// (9,000-byte IP packets).
pub const MAX_MESSAGE: usize = MAX_HEAD + 9_000;

/// Messages from an application to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToNode<'a> {
    /// Bind this session to virtual port `port`; 0 means any free one.
    Bind {
        /// Version of this protocol that the client supports.
        version: u8,
        /// The requested port number, or 0.
        port: u16,
    },
    /// Route all packets sent from now on by this metric; `None` leaves the choice to the node.
    Metric(Option<Metric>),
    /// Whether to deliver real-time packets that missed their deadline while they waited at this
    /// node, as after a stall: by default they are dropped.
    Late(bool),
    /// Whether best-effort and reliable packets that find no room in the queue of their link wait
    /// for it, which blocks this session: by default they are dropped.
    Blocking(bool),
    /// Send a packet with this `payload`.
    Send {
        /// Service that carries the packet.
        service: Service,
        /// Time to live of the packet, in milliseconds, 1 to 255.
        deadline_ms: u8,
        /// Id of the destination node.
        to: NodeId,
        /// Virtual port at the destination.
        port: u16,
        /// Contents of the packet.
        payload: &'a [u8],
    },
    /// A request about a stream.
    Stream(stream::Request<'a>),
}

/// Messages from a node to an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToClient<'a> {
    /// The session is bound to its port.
    Bound {
        /// Id of the node.
        node: NodeId,
        /// The port assigned to the session.
        port: u16,
        /// The largest payload that [`ToNode::Send`] may carry, in bytes.
        max_payload: u16,
    },
    /// A packet for this session.
    Received {
        /// Service that carried the packet.
        service: Service,
        /// Whether a link lost and recovered it.
        recovered: bool,
        /// Time left until its deadline in milliseconds, as estimated by the nodes.
        remaining_ms: u8,
        /// Sequence number of the packet in its flow.
        flow_seq: u16,
        /// Id of the source node.
        from: NodeId,
        /// Virtual port at the source.
        port: u16,
        /// Contents of the packet.
        payload: &'a [u8],
    },
    /// Packets of this session don't reach a destination from now on.
    Unreachable {
        /// Node of the destination address.
        node: NodeId,
        /// Virtual port of the destination address.
        port: u16,
        /// Reason why it is unreachable.
        why: Unreachable,
    },
    /// The end of [`ToClient::Unreachable`]: packets reach the destination again, as far as is
    /// known.
    Reachable {
        /// Node of the destination address.
        node: NodeId,
        /// Virtual port of the destination address.
        port: u16,
    },
    /// A bind or send that the node refused.
    Error {
        /// Reason for the refusal.
        refusal: RefusalReason,
        /// The node that was addressed, or 0 if there is none.
        node: NodeId,
        /// The port that was addressed, or 0 if there is none.
        port: u16,
    },
    /// A notice about a stream.
    Stream(stream::Notice<'a>),
}

/// Reason why packets don't reach their destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// The node has no route there, and has had none lately.
    NoRoute,
    /// There was a route, which was lost this long ago: whole milliseconds, at most
    /// [`Unreachable::LONGEST`].
    Since(Duration),
    /// The route ends at the node, where no application has that port.
    NoPort,
}

impl Unreachable {
    /// The most milliseconds that 24 bits hold: more than four hours and a half.
    pub const LONGEST: Duration = Duration::from_millis(0xff_ffff);
}

/// Reason for refusing a client's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum RefusalReason {
    /// The client uses an unsupported version of this protocol.
    #[error("the node does not support this version of the session protocol")]
    Version = 1,
    /// The virtual port belongs to another session.
    #[error("the virtual port is taken by another application")]
    PortInUse = 2,
    /// No virtual port is free.
    #[error("the node has no free virtual port")]
    NoFreePort = 3,
    /// A packet was sent before a successful bind, or a second bind was requested.
    #[error("bind once, then send")]
    OutOfOrder = 4,
    /// The payload is larger than `max_payload`.
    #[error("the packet is larger than the node carries")]
    TooLarge = 7,
    /// The message could not be parsed, so the session cannot continue.
    #[error("the node could not parse a message of this session")]
    Malformed = 8,
    /// The node has its maximum number of sessions, or is draining.
    #[error(
        "the node accepts no more applications: it is draining, or as many are attached as it \
         allows ([node] max_sessions)"
    )]
    Full = 9,
    /// The node's rules don't permit this to the application.
    #[error("the node's rules ([access]) don't permit this to the application")]
    Forbidden = 10,
    /// A client on another host does not authenticate.
    #[error(
        "this node requires applications on other hosts to authenticate: attach with \
         tcp://HOST:PORT?node=PUBKEY&key=FILE"
    )]
    Unauthenticated = 11,
    /// A client authenticates to the key of another node.
    #[error(
        "the node at this address has a different key than the attachment's ?node=: is it the \
         right node? `trunkline pubkey` there prints its key"
    )]
    WrongKey = 12,
    /// The client's key is not in the node's configuration.
    #[error(
        "this application's key is not configured at the node: add a [[client]] with that key there"
    )]
    UnknownClient = 13,
    /// Too many handshakes from one address or in total: try again.
    #[error("the node has too many handshakes at present: try again later")]
    Busy = 14,
    /// A packet of a new flow to a node while the trunk there exceeds its share.
    #[error(
        "the trunk to the destination sends more than a TCP would, and accepts no new flow until it \
         doesn't ([[trunk]] admit): try again later"
    )]
    OverShare = 15,
    /// A packet beyond the rate that the applications of one user may send at.
    #[error(
        "the applications of this user send more than the node allows ([access] rate): send less, \
         or try again later"
    )]
    OverRate = 16,
}

impl RefusalReason {
    fn from_wire(code: u8) -> Option<RefusalReason> {
        use RefusalReason::*;
        let known = [
            Version,
            PortInUse,
            NoFreePort,
            OutOfOrder,
            TooLarge,
            Malformed,
            Full,
            Forbidden,
            Unauthenticated,
            WrongKey,
            UnknownClient,
            Busy,
            OverShare,
            OverRate,
        ];
        known.into_iter().find(|r| *r as u8 == code)
    }
}

const BIND: u8 = 1;
const SEND: u8 = 2;
const METRIC: u8 = 3;
const LATE: u8 = 4;
const WAIT: u8 = 5;
const NO_METRIC: u8 = 0xff;
const BOUND: u8 = 0x81;
const RECEIVED: u8 = 0x82;
const ERROR: u8 = 0x83;
const STATUS: u8 = 0x84;
/// Values of the state in a status message.
mod status {
    pub const REACHABLE: u8 = 0;
    pub const NO_ROUTE: u8 = 1;
    pub const SINCE: u8 = 2;
    pub const NO_PORT: u8 = 3;
}
const RECOVERED: u8 = 0x80;

impl<'a> ToNode<'a> {
    /// Writes all fields except the payload, which follows unchanged.
    pub fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            ToNode::Bind { version, port } => {
                w.u8(BIND)?;
                w.u8(version)?;
                w.u16(port)
            }
            ToNode::Metric(metric) => {
                w.u8(METRIC)?;
                w.u8(metric.map_or(NO_METRIC, Metric::to_wire))
            }
            ToNode::Late(on) => {
                w.u8(LATE)?;
                w.u8(on.into())
            }
            ToNode::Blocking(on) => {
                w.u8(WAIT)?;
                w.u8(on.into())
            }
            ToNode::Send { service, deadline_ms, to, port, payload: _ } => {
                w.u8(SEND)?;
                w.u8(service as u8)?;
                w.u8(deadline_ms)?;
                w.u32(to.0)?;
                w.u16(port)
            }
            ToNode::Stream(request) => request.emit_head(w),
        }
    }

    /// The bytes that follow the head.
    pub fn payload(&self) -> &'a [u8] {
        match *self {
            ToNode::Send { payload, .. } | ToNode::Stream(stream::Request::Data(payload)) => {
                payload
            }
            _ => &[],
        }
    }

    /// Reads one message from its bytes.
    pub fn parse(message: &'a [u8]) -> Result<ToNode<'a>, WireError> {
        let mut r = Reader::new(message);
        match r.u8()? {
            BIND => {
                let bind = ToNode::Bind { version: r.u8()?, port: r.u16()? };
                // A newer client may add fields, which its version announces.
                Ok(bind)
            }
            METRIC => match (r.u8()?, r.rest()) {
                (NO_METRIC, []) => Ok(ToNode::Metric(None)),
                (n, []) if usize::from(n) < Metric::COUNT => {
                    Ok(ToNode::Metric(Some(Metric::from_wire(n))))
                }
                _ => Err(WireError::OutOfRange("the metric")),
            },
            LATE => match (r.u8()?, r.rest()) {
                (n @ 0..=1, []) => Ok(ToNode::Late(n == 1)),
                _ => Err(WireError::OutOfRange("what to do with late packets")),
            },
            WAIT => match (r.u8()?, r.rest()) {
                (n @ 0..=1, []) => Ok(ToNode::Blocking(n == 1)),
                _ => Err(WireError::OutOfRange("whether to wait for room")),
            },
            SEND => Ok(ToNode::Send {
                service: Service::from_wire(r.u8()?).ok_or(WireError::OutOfRange("the service"))?,
                deadline_ms: match r.u8()? {
                    0 => return Err(WireError::OutOfRange("the deadline")),
                    ms => ms,
                },
                to: NodeId(r.u32()?),
                port: r.u16()?,
                payload: r.rest(),
            }),
            kind @ stream::CONNECT..=stream::RESET => {
                stream::Request::parse(kind, r).map(ToNode::Stream)
            }
            other => Err(WireError::UnknownType(other)),
        }
    }
}

impl<'a> ToClient<'a> {
    /// Writes all fields except the payload, which follows unchanged.
    pub fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            ToClient::Bound { node, port, max_payload } => {
                w.u8(BOUND)?;
                w.u32(node.0)?;
                w.u16(port)?;
                w.u16(max_payload)
            }
            ToClient::Received {
                service,
                recovered,
                remaining_ms,
                flow_seq,
                from,
                port,
                payload: _,
            } => {
                w.u8(RECEIVED)?;
                w.u8(service as u8 | if recovered { RECOVERED } else { 0 })?;
                w.u8(remaining_ms)?;
                w.u16(flow_seq)?;
                w.u32(from.0)?;
                w.u16(port)
            }
            ToClient::Reachable { node, port } => emit_status(w, status::REACHABLE, node, port),
            ToClient::Unreachable { node, port, why } => match why {
                Unreachable::NoRoute => emit_status(w, status::NO_ROUTE, node, port),
                Unreachable::NoPort => emit_status(w, status::NO_PORT, node, port),
                Unreachable::Since(ago) => {
                    emit_status(w, status::SINCE, node, port)?;
                    let ms = ago.min(Unreachable::LONGEST).as_millis();
                    w.u24(u32::try_from(ms).unwrap_or(u32::MAX))
                }
            },
            ToClient::Error { refusal, node, port } => {
                w.u8(ERROR)?;
                w.u8(refusal as u8)?;
                w.u32(node.0)?;
                w.u16(port)
            }
            ToClient::Stream(notice) => notice.emit_head(w),
        }
    }

    /// The bytes that follow the head.
    pub fn payload(&self) -> &'a [u8] {
        match *self {
            ToClient::Received { payload, .. }
            | ToClient::Stream(stream::Notice::Data(payload)) => payload,
            _ => &[],
        }
    }

    /// Replaces the payload with `bytes`, for a message that was parsed from its head alone.
    pub fn with_payload<'b>(self, bytes: &'b [u8]) -> ToClient<'b>
    where
        'a: 'b,
    {
        match self {
            ToClient::Received {
                service, recovered, remaining_ms, flow_seq, from, port, ..
            } => {
                let payload = bytes;
                ToClient::Received {
                    service,
                    recovered,
                    remaining_ms,
                    flow_seq,
                    from,
                    port,
                    payload,
                }
            }
            ToClient::Stream(stream::Notice::Data(_)) => {
                ToClient::Stream(stream::Notice::Data(bytes))
            }
            other => other,
        }
    }

    /// Reads one message from its bytes.
    pub fn parse(message: &'a [u8]) -> Result<ToClient<'a>, WireError> {
        let mut r = Reader::new(message);
        match r.u8()? {
            BOUND => Ok(ToClient::Bound {
                node: NodeId(r.u32()?),
                port: r.u16()?,
                max_payload: r.u16()?,
            }),
            RECEIVED => {
                let service = r.u8()?;
                Ok(ToClient::Received {
                    service: Service::from_wire(service & !RECOVERED)
                        .ok_or(WireError::OutOfRange("the service"))?,
                    recovered: service & RECOVERED != 0,
                    remaining_ms: r.u8()?,
                    flow_seq: r.u16()?,
                    from: NodeId(r.u32()?),
                    port: r.u16()?,
                    payload: r.rest(),
                })
            }
            STATUS => {
                let (kind, node, port) = (r.u8()?, NodeId(r.u32()?), r.u16()?);
                let why = match kind {
                    status::REACHABLE => return Ok(ToClient::Reachable { node, port }),
                    status::NO_ROUTE => Unreachable::NoRoute,
                    status::SINCE => Unreachable::Since(Duration::from_millis(r.u24()?.into())),
                    status::NO_PORT => Unreachable::NoPort,
                    _ => return Err(WireError::OutOfRange("the status")),
                };
                Ok(ToClient::Unreachable { node, port, why })
            }
            ERROR => Ok(ToClient::Error {
                refusal: RefusalReason::from_wire(r.u8()?)
                    .ok_or(WireError::OutOfRange("the error code"))?,
                node: NodeId(r.u32()?),
                port: r.u16()?,
            }),
            kind @ stream::INCOMING..=stream::NODE_FINISHED => {
                stream::Notice::parse(kind, r).map(ToClient::Stream)
            }
            other => Err(WireError::UnknownType(other)),
        }
    }
}

fn emit_status(w: &mut Writer<'_>, kind: u8, node: NodeId, port: u16) -> Result<(), Short> {
    w.u8(STATUS)?;
    w.u8(kind)?;
    w.u32(node.0)?;
    w.u16(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of a message: the head that `emit_head` writes, and the payload.
    pub(super) fn whole(
        emit_head: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        emit_head(&mut w).unwrap();
        [w.written(), payload].concat()
    }

    fn service() -> impl Strategy<Value = Service> {
        prop_oneof![Just(Service::BestEffort), Just(Service::RealTime)]
    }

    proptest! {
        #[test]
        fn to_node_round_trip(
            service in service(), deadline_ms in 1u8.., to in any::<u32>(), port in any::<u16>(),
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            for message in [
                ToNode::Send { service, deadline_ms, to: NodeId(to), port, payload: &payload },
                ToNode::Bind { version: deadline_ms, port },
                ToNode::Late(port % 2 == 0),
                ToNode::Blocking(port % 2 == 0),
            ] {
                let bytes = whole(|w| message.emit_head(w), message.payload());
                prop_assert_eq!(ToNode::parse(&bytes), Ok(message));
            }
        }

        #[test]
        fn to_client_round_trip(
            service in service(), recovered in any::<bool>(), remaining_ms in any::<u8>(),
            flow_seq in any::<u16>(), node in any::<u32>(), port in any::<u16>(),
            refusal in (1u8..=16).prop_filter_map("none has this number", RefusalReason::from_wire),
            ago in (0u32..=0xff_ffff).prop_map(|ms| Duration::from_millis(ms.into())),
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let node = NodeId(node);
            for message in [
                ToClient::Received {
                    service, recovered, remaining_ms, flow_seq, from: node, port, payload: &payload,
                },
                ToClient::Bound { node, port, max_payload: flow_seq },
                ToClient::Error { refusal, node, port },
                ToClient::Reachable { node, port },
                ToClient::Unreachable { node, port, why: Unreachable::NoRoute },
                ToClient::Unreachable { node, port, why: Unreachable::NoPort },
                ToClient::Unreachable { node, port, why: Unreachable::Since(ago) },
            ] {
                let bytes = whole(|w| message.emit_head(w), message.payload());
                prop_assert_eq!(ToClient::parse(&bytes), Ok(message));
            }
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = ToNode::parse(&bytes);
            let _ = ToClient::parse(&bytes);
        }
    }
}
