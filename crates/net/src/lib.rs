//! A modelled network, driven by packets and a clock: the virtual clock of a simulator or the real
//! one of a relay.
//!
//! A [`Network`] has hosts, where packets begin and end; routers, which forward them; and edges
//! between any two of them. Each direction of an edge is impaired independently: by a
//! [`LinkModel`](trunkline_base::link_model::LinkModel), whose queue is first in, first out, or by
//! a [`Medium`], which schedules packets itself and cannot tell an arrival time in advance. A
//! machine with two network interfaces is two hosts here.
//!
//! Three verbs: [`send`](Network::send) a packet, read the [`next_timeout`](Network::next_timeout),
//! [`poll`](Network::poll) for arrivals. Ledgers count every packet: per direction and flow class
//! ([`Network::ledger_of`]), per class over the whole network ([`Network::flow`]), and, on request,
//! in time bins ([`Network::record`]). Every packet sent is delivered, dropped for a
//! [`DropReason`], or under way.
//!
//! Nothing here reads a clock, draws entropy or opens a socket. The same seed and the same calls
//! give the same deliveries on every machine. Events at the same time happen in the order in which
//! they were caused: see [`Moment`].
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::link_model::LinkModel;
//! use trunkline_base::{Bitrate, Time};
//! use trunkline_net::{Class, Endpoint, IpVersion, Network, Packet, Protocol};
//!
//! let mut net = Network::new(1);
//! let (a, router, b) = (net.host(), net.router(), net.host());
//! let near = LinkModel { delay: Duration::from_millis(1), ..LinkModel::default() };
//! let narrow = LinkModel { rate: Some(Bitrate::from_bps(1_000_000)), ..near.clone() };
//! net.connect(a, router, near.clone(), near.clone())?;
//! let bottleneck = net.connect(router, b, narrow, near)?;
//!
//! let payload = [0; 77];
//! net.send(Time::ZERO, &Packet {
//!     from: Endpoint { vertex: a, port: 4_000 },
//!     to: Endpoint { vertex: b, port: 5_000 },
//!     protocol: Protocol::UDP,
//!     tos: 0,
//!     class: Class(3),
//!     // 125 bytes take 1 ms at 1 Mbit/s.
//!     bytes: (payload.len() + Protocol::UDP.headers(IpVersion::V6)) as u32,
//!     payload: &payload,
//! });
//! let mut now = Time::ZERO;
//! let delivery = loop {
//!     now = net.next_timeout();
//!     if let Some(delivery) = net.poll(now) {
//!         break delivery;
//!     }
//! };
//! let (header, payload) = net.open(&delivery);
//! assert_eq!((now, header.to.port, payload.len()), (Time::from_millis(3), 5_000, 77));
//! // The network reuses its memory.
//! net.release(delivery, payload);
//! assert_eq!(net.ledger_of(bottleneck.forward(), Class(3)).arrived.bytes, 125);
//! # Ok::<(), trunkline_net::NetError>(())
//! ```

mod graph;
mod ledger;
mod medium;
mod moment;
mod network;
mod observer;
mod packet;
mod pool;
pub mod wifi;

pub use graph::{DirectionId, EdgeId, NetError, Routing, VertexId};
pub use ledger::{Bin, Bins, EdgeLedger, Flow, MAX_BINS, VertexLedger};
pub use medium::{Done, Frame, Medium, MediumId, PacketKey};
pub use moment::{Moment, Schedule};
pub use network::{HOP_LIMIT, MAX_UNDER_WAY, Network};
pub use observer::{Fate, Observer};
pub use packet::{
    Class, Delivery, DropReason, Endpoint, Header, IpVersion, MAX_PAYLOAD, Packet, Protocol,
};
