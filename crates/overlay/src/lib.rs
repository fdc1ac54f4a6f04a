//! What an overlay node does, without input or output.
//!
//! A driver feeds a [`Node`](node::Node) everything that has happened (received
//! datagrams in batches, messages of applications, the passing of time), *then*
//! drains it once. Input emits no envelope by itself; memory is bounded from
//! the start; the same calls at the same times give the same bytes, on every
//! machine. Daemon, simulator and fuzzers all run this loop:
//!
//! ```
//! use trunkline_base::Time;
//! use trunkline_overlay::arena::{RxDatagram, TxArena};
//! use trunkline_overlay::link;
//! use trunkline_overlay::node::{Config, Drained, Handover, Node, Sink, Start};
//! use trunkline_overlay::session::SessionId;
//! use trunkline_overlay::wire::{Incarnation, NodeId};
//!
//! struct Applications;
//! impl Sink for Applications {
//!     fn deliver(&mut self, _to: SessionId, _head: &[u8], _payload: &[u8]) -> Handover {
//!         Handover::Taken
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
//!     // … sleep until `wake_at` or input; then hand over all that came:
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
//!         // … hand over again what it has been told `Full` for; then transmit again.
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Back-pressure
//!
//! Between a node and its applications either side can be [`Full`](node::Handover),
//! and neither ever waits for the other, nor anybody else for those two.
//!
//! - *To an application* ([`Sink::deliver`](node::Sink::deliver)): the driver says
//!   `Full` for one that doesn't read. It bounds what it keeps for each by itself. A
//!   packet is dropped then and counted, in all and for its flow: it is best effort
//!   or real time, and neither is to wait for a slow reader.
//! - *From an application* ([`Node::session_recv`](node::Node::session_recv)): the
//!   node says `Full` for a packet of best effort that finds no room in its link, if
//!   the application has asked to wait rather than lose
//!   ([`ToNode::Wait`](session::wire::ToNode::Wait)). The driver keeps that one message
//!   and reads no more of that session until
//!   [`Node::next_ready`](node::Node::next_ready) names it; the application's `send`
//!   blocks once its socket is full. Without having asked, packets are dropped and
//!   counted; so is real time always, and what has no way.
//!
//! Packets of those who wait take at most 64 KiB of a link's queue, or what it sends
//! in 50 ms, and one packet more; they are not dropped for waiting there. A link
//! serves those who wait for it in the order in which they came to.

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
