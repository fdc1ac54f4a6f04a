//! Wire formats between two nodes: envelopes (one per UDP datagram) and the frames inside them.
//! Every message is parsed from bytes into a checked view, and from that into a plain struct.

mod ack;
mod data;
mod envelope;
mod frame;
mod id;
mod metric;
mod seal;
mod sealed;
mod service;
pub mod version;

pub(crate) use ack::{ACK_HEAD, ACK_RANGE};
pub use ack::{AckHead, AckRange, MAX_ACK_DELAY, MAX_ACK_RANGES, SelectiveAck};
pub use data::{DATA_HEADER, DataHeader, FlowHeader, HopHeader, MAX_HOPS};
pub use envelope::{
    DATA_OVERHEAD, ENVELOPE_OVERHEAD, EnvelopeHeader, Kind, MAX_HANDSHAKE, ReceiverIndex,
    open_header,
};
pub use frame::{
    ControlKind, Frame, Frames, Goodbye, Hello, MAX_NACK_RANGES, Nack, NackRange, PathFrame,
};
pub(crate) use frame::{GOODBYE_LEN, HELLO_LEN, NACK_RANGE_LEN, PATH_FRAME_LEN};
pub use id::{Incarnation, NodeId};
pub use metric::{Metric, UnknownMetric};
pub use seal::{Null, OpenError, Opened, Seal};
pub(crate) use sealed::MAX_AGE;
pub use sealed::{Role, Sealed, SessionKeys};
pub use service::{Service, UnknownService};

/// Reason why bytes from a neighbour or a client could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field or payload reaches past the end.
    #[error("truncated: a field reaches past the end of the message")]
    Truncated,
    /// This build does not support the version nibble or the type.
    #[error("unknown message type {0:#04x}")]
    UnknownType(u8),
    /// A field has a value outside its range; the text names the field.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
}

impl From<trunkline_base::wire::Short> for WireError {
    fn from(_: trunkline_base::wire::Short) -> WireError {
        WireError::Truncated
    }
}
