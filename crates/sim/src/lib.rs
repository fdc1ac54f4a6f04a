//! A deterministic discrete-event network around the overlay's own nodes.
//!
//! Hosts run the same [`Node`](trunkline_overlay::node::Node) as the daemon. They are connected by
//! wires that behave as a [`LinkModel`](trunkline_base::link_model::LinkModel) describes, in a
//! [network](trunkline_net) that may have routers. [`Application`]s run on the hosts. Processing
//! takes no time: a node's reaction to an event leaves at the moment of the event.
//!
//! To the network a node is one [`Agent`](agent::Agent) among others, such as constant bit rates
//! and [TCP](agent::tcp). Agents are bound to (host, protocol, port), share queues with nodes, and
//! stall and crash with their host: see [`World::bind`], [`World::cable`] and
//! [`World::connect_routed`]. Ledgers tell their flows apart ([`World::set_class`]).
//!
//! The same seed gives the same run, byte for byte, on every machine; [`World::digest`] shows it.
//! [`World::capture`] records the traffic at an end of a wire in a file for Wireshark:
//!
//! ```text
//! tshark -r path-b.pcapng -d udp.port==5000-5009,rtp -q -z rtp,streams
//! tshark -r link-a.pcapng -Y 'frame.comment contains "lost"'
//! ```
//!
//! Wires change while the world runs, and nodes crash: [`World::change`], [`World::cut`],
//! [`World::blackhole`], [`World::mend`], [`World::crash`], [`World::restart`], [`World::stall`].
//! [`random`] draws overlays, and [`World::disagreement`] checks whether all nodes know theirs.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_base::link_model::{LinkModel, Loss};
//! use trunkline_overlay::wire::{NodeId, Service};
//! use trunkline_sim::voice::{CallOutcome, VoiceSink, VoiceSource};
//! use trunkline_sim::{HostId, Topology};
//!
//! let ten = LinkModel { delay: Duration::from_millis(10), ..LinkModel::default() };
//! let lossy = LinkModel { loss: Loss::Bernoulli { p: 0.05 }, ..ten.clone() };
//! // Three nodes in a row; the second link loses 5 % in both directions.
//! let mut world = Topology::chain([ten, lossy]).build(42)?;
//! let (first, last) = (HostId(0), HostId(2));
//! // A ten-second call.
//! let start = Time::from_millis(1_000);
//! let source = VoiceSource::new(NodeId(3), 5004, Service::RealTime, start, 500);
//! let call = (
//!     world.attach(first, 0, source)?,
//!     world.attach(last, 5004, VoiceSink::default())?,
//! );
//! world.run_until(Time::from_millis(12_000));
//! let outcome = CallOutcome::of(&world, &[call], Duration::from_millis(100));
//! assert_eq!(outcome.sent, 500);
//! assert!(outcome.recovered > outcome.lost);
//! assert_eq!(outcome.delay(0.5), Some(Duration::from_millis(20)));
//! # Ok::<(), trunkline_sim::WorldError>(())
//! ```

pub mod agent;
mod agreement;
mod app;
mod brite;
mod capture;
mod endpoints;
mod error;
mod queue;
pub mod random;
mod run_observer;
pub mod stream;
mod topology;
pub mod voice;
mod world;

pub use agreement::Disagreement;
pub use app::{AppId, Application, Io};
pub use capture::{CaptureError, WireEnd};
pub use endpoints::{HostId, LinkEnd, RouterId, WireId, address};
pub use error::WorldError;
pub use topology::Topology;
pub use world::{CellId, PlainEnd, World};
