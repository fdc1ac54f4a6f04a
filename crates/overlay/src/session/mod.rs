//! Sessions: the connection of an application to its node. A session holds one virtual port; its
//! flows are numbered at the origin and de-duplicated at the destination, whatever paths the copies
//! of a packet took.

mod flow;
pub mod flows;
mod lru;
pub mod remote;
mod status;
pub mod stream;
mod table;
pub mod wire;

pub(crate) use lru::Lru;
pub(crate) use status::{Cause, Flow, Statuses};
pub use table::{Client, SessionId, Sessions};
