use crate::places::{HostId, WireId};
use trunkline_base::link_model::InvalidModel;
use trunkline_net::Protocol;
use trunkline_net::wifi::InvalidCell;
use trunkline_overlay::node::ConfigError;
use trunkline_overlay::session::wire::Refusal;

/// Why a world can't be built as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorldError {
    /// A node's configuration.
    #[error("{0}: {1}")]
    Config(HostId, ConfigError),
    /// A wire's model.
    #[error("the wire between {0} and {1}: {2}")]
    Model(HostId, HostId, InvalidModel),
    /// A wire's new model.
    #[error("the new model of {0}: {1}")]
    Change(WireId, InvalidModel),
    /// A plain path's model.
    #[error("the plain path: {0}")]
    PlainModel(InvalidModel),
    /// A cable's model.
    #[error("the cable: {0}")]
    CableModel(InvalidModel),
    /// The configuration of an 802.11e cell is invalid.
    #[error("the cell: {0}")]
    Cell(#[from] InvalidCell),
    /// A host without a node, where one is needed.
    #[error("{0} has no node: add it by `add_host`")]
    NoNode(HostId),
    /// No link of the first host's configuration leads to the second, or all
    /// that do are connected.
    #[error("{0} has no unconnected link to {1}: add one to its configuration")]
    NoLink(HostId, HostId),
    /// A link's configured address is not the one of its other end.
    #[error(
        "{0}'s link to {1} has another address than its other end: take `address()`, or let `Topology` fill it in"
    )]
    Address(HostId, HostId),
    /// A node has as many sessions as its configuration allows.
    #[error("{0} has no session left for an application: raise max_sessions")]
    Sessions(HostId),
    /// A node refused an application's port.
    #[error("{0} refused port {1}: {2}")]
    Refused(HostId, u16, Refusal),
    /// Another application has this port of a plain path.
    #[error("port {0} of the plain path is taken")]
    PlainPort(u16),
    /// Another agent has this port of a host.
    #[error("{1} port {2} of {0} is taken")]
    PortTaken(HostId, Protocol, u16),
    /// No agent has this port of a host.
    #[error("{1} port {2} of {0} is nobody's")]
    NobodyBound(HostId, Protocol, u16),
}

impl WorldError {
    /// What a node says to an application that wants a session and `port`.
    pub(crate) fn of_session(host: HostId, port: u16, refusal: Option<Refusal>) -> WorldError {
        match refusal {
            None => WorldError::Sessions(host),
            Some(refusal) => WorldError::Refused(host, port, refusal),
        }
    }
}
