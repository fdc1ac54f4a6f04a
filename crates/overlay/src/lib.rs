//! An overlay node without input or output (sans-I/O).
//!
//! A driver feeds a [`Node`](node::Node) everything that has happened (received datagrams in
//! batches, messages of applications, the passing of time), *then* drains it once. Input alone
//! emits no envelope; memory is bounded from the start; the same calls at the same times give the
//! same bytes on every machine. Daemon, simulator and fuzzers all run this loop:
//!
//! ```
//! use trunkline_base::Time;
//! use trunkline_overlay::arena::{RxDatagram, TxArena};
//! use trunkline_overlay::link;
//! use trunkline_overlay::node::{Config, Drained, SendOutcome, Node, Sink, Start};
//! use trunkline_overlay::session::SessionId;
//! use trunkline_overlay::wire::{Incarnation, NodeId};
//!
//! struct Applications;
//! impl Sink for Applications {
//!     fn deliver(&mut self, _to: SessionId, _head: &[u8], _payload: &[u8]) -> SendOutcome {
//!         SendOutcome::Accepted
//!     }
//! }
//!
//! let mut config = Config::new(NodeId(1));
//! let mut link = link::Config::new(NodeId(2));
//! link.address = Some("192.0.2.2:7000".parse()?);
//! config.links.push(link);
//! let now = Time::ZERO;
//! let mut node = Node::new(config, Start::simulated(now, Incarnation(1), 42))?;
//! let mut arena = TxArena::new(64 << 10, 64);
//! # let mut rounds = 0;
//! loop {
//!     # rounds += 1;
//!     # if rounds > 2 { break }
//!     let wake_at = node.next_timeout(now);
//!     // … sleep until `wake_at` or input; then pass on all input:
//!     let now = wake_at;
//!     let mut batch: [RxDatagram; 0] = [];
//!     node.recv(now, &mut batch, &mut Applications);
//!     node.handle_timeout(now, &mut Applications);
//!     loop {
//!         let drained = node.transmit(now, &mut arena);
//!         for run in arena.runs() {
//!             // … send `arena.bytes()[run.range()]` to `run.to`.
//!         }
//!         arena.clear();
//!         if drained == Drained::All {
//!             break;
//!         }
//!     }
//!     while let Some(_session) = node.next_ready() {
//!         // … offer the message again that got `Backpressure`; then transmit again.
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Back-pressure
//!
//! Between a node and its applications either side can return [`Backpressure`](node::SendOutcome). Neither
//! ever blocks on the other, and no third party waits for the two.
//!
//! - *To an application* ([`Sink::deliver`](node::Sink::deliver)): the driver returns `Backpressure` for an
//!   application that does not read. The driver bounds the data it keeps for each application. The
//!   packet is then dropped and counted, in total and for its flow: it is best effort or real time,
//!   and neither may wait for a slow reader.
//! - *From an application* ([`Node::session_recv`](node::Node::session_recv)): the node returns
//!   `Backpressure` for a best-effort packet that finds no room in its link, if the application has
//!   requested blocking ([`ToNode::Blocking`](session::wire::ToNode::Blocking)). The driver keeps that one
//!   message and reads no more of that session until [`Node::next_ready`](node::Node::next_ready)
//!   names it; the application's `send` blocks once its socket is full. Without blocking, packets
//!   are dropped and counted. Real-time packets are never flow-controlled, nor are packets without
//!   a route.
//!
//! Flow-controlled packets take at most 64 KiB of a link's queue, or the bytes that it sends in 50
//! ms, plus one packet; they are not dropped for waiting there. A link serves its blocked sessions
//! in the order in which they blocked.

pub mod arena;
pub mod counters;
pub mod handshake;
pub mod identity;
pub mod link;
pub mod monitor;
pub mod node;
pub mod route;
pub mod session;
#[cfg(test)]
mod tests;
pub mod trunk;
pub mod wire;
