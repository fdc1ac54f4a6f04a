//! Sessions: what joins an application to its node. A session holds one
//! virtual port; its flows are numbered at the origin and de-duplicated at the
//! destination, whatever paths the copies of a packet took.

mod flow;
pub mod flows;
mod lru;
pub mod remote;
mod table;
pub mod wire;

pub use table::{SessionId, Sessions};
