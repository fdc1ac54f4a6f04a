//! The packet thread: it alone owns the sockets and the node, and everything that could block it
//! (configuration, HTTP, files) stays on other threads.
//!
//! A wake-up receives everything that is available, then drains the node once.

pub mod differing;
mod lookup;
pub mod media;
pub mod mmsg;
pub mod record;
pub mod remote;
pub mod reports;
mod routes;
mod send_errors;
pub mod sessions;
mod thread;
pub mod udp;
mod unix;
mod uplink;

pub use send_errors::SendError;
pub use thread::{
    FLOWS_AT_ONCE, FlowSnapshot, Handle, LinkSnapshot, NodeHandle, Parts, Snapshot, WantedPath,
    WantedPaths, start,
};
