//! What a gateway between phones and an overlay decides (Amir, Danilov, Goose, Hedqvist,
//! Terzis 2005, section VI): it stands in the way of SIP as a proxy, and has each call's
//! media come to ports of its own. Between two gateways they cross the overlay, with
//! whatever recovers what is lost there; phones know nothing of it.
//!
//! Pure code: messages and times in, messages and joined ports out. Sockets, and the
//! relaying of packets, are the driver's.
//!
//! - [`Gateway::receive`] takes a message, [`Gateway::handle_timeout`] the time; then
//!   [`Gateway::poll`] until it gives no more to send, and [`Gateway::event`].
//! - Ports are taken, joined and given back through [`Media`], within these calls.
//!
//! A stream has two legs, one to each side. A description that comes from one side says
//! where that leg's packets go, and is passed on with the port of the other leg in it.
//! To hosts that are trusted the port is also told as a virtual one, `a=x-trunkline:1
//! NODE PORT`: whoever understands it is another gateway, and answers with its own.

mod calls;
mod config;
mod gateway;
mod hops;
mod latch;
mod media;
mod passes;
mod places;
mod ports;
pub mod reception;
mod token;

pub use calls::{CallId, CallView, Unpassable};
pub use config::{Config, Destination, Route, Socket, Transport};
pub use gateway::{Event, Gateway, Outcome, Stats};
pub use hops::Found;
pub use latch::Latch;
pub use media::{Media, Relay, Remote, Unfit, is_media};
