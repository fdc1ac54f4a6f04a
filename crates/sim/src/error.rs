use crate::endpoints::{HostId, WireId};
use trunkline_base::link_model::InvalidModel;
use trunkline_net::Protocol;
use trunkline_net::wifi::InvalidCell;
use trunkline_overlay::node::ConfigError;
use trunkline_overlay::session::wire::RefusalReason;

/// Errors in building a world.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorldError {
    /// A node refused its configuration.
    #[error("{0}: {1}")]
    Config(HostId, ConfigError),
    /// The model of a wire is invalid.
    #[error("the wire between {0} and {1}: {2}")]
    Model(HostId, HostId, InvalidModel),
    /// The new model of a wire is invalid.
    #[error("the new model of {0}: {1}")]
    Change(WireId, InvalidModel),
    /// The model of a plain path is invalid.
    #[error("the plain path: {0}")]
    PlainModel(InvalidModel),
    /// The model of a cable is invalid.
    #[error("the cable: {0}")]
    CableModel(InvalidModel),
    /// The configuration of an 802.11e cell is invalid.
    #[error("the cell: {0}")]
    Cell(#[from] InvalidCell),
    /// A host has no node, but needs one.
    #[error("{0} has no node: add the host with `add_host`")]
    NoNode(HostId),
    /// No link in the first host's configuration leads to the second, or all such links are
    /// connected.
    #[error("{0} has no unconnected link to {1}: add one to its configuration")]
    NoLink(HostId, HostId),
    /// A link's configured address is not that of its other end.
    #[error(
        "{0}'s link to {1} is not configured with the address of its other end: use `address()`, or let `Topology` fill it in"
    )]
    Address(HostId, HostId),
    /// A node already has as many sessions as its configuration allows.
    #[error("{0} has no session left for an application: raise max_sessions")]
    Sessions(HostId),
    /// A node refused the port of an application.
    #[error("{0} refused port {1}: {2}")]
    Refused(HostId, u16, RefusalReason),
    /// Another application uses this port of a plain path.
    #[error("port {0} of the plain path is taken")]
    PlainPort(u16),
    /// Another agent is bound to this port of a host.
    #[error("{1} port {2} of {0} is taken")]
    PortTaken(HostId, Protocol, u16),
    /// No agent is bound to this port of a host.
    #[error("no agent is bound to {1} port {2} of {0}")]
    NobodyBound(HostId, Protocol, u16),
}

impl WorldError {
    /// Converts a node's refusal of a session with `port`; `None` means that it has no session
    /// left.
    pub(crate) fn of_session(
        host: HostId,
        port: u16,
        refusal: Option<RefusalReason>,
    ) -> WorldError {
        match refusal {
            None => WorldError::Sessions(host),
            Some(refusal) => WorldError::Refused(host, port, refusal),
        }
    }
}
