//! A SIP and media gateway between phones and an overlay (Amir, Danilov, Goose, Hedqvist, Terzis
//! 2005, section VI). It is a proxy on the SIP path, and has the media of each call sent to its own
//! ports. Between two gateways media cross the overlay, which recovers lost packets; phones need no
//! support for this.
//!
//! Sans-IO: messages and times in, messages and joined ports out. Sockets, and the relaying of
//! packets, are the driver's.
//!
//! - [`Gateway::receive`] takes a message, [`Gateway::handle_timeout`] the time; then call
//!   [`Gateway::poll`] until it has no more to send, and [`Gateway::event`].
//! - Ports are opened, joined and closed through [`Media`], within these calls.
//!
//! A stream has two legs, one to each side. A description from one side gives the address for that
//! leg's packets, and is passed on with the port of the other leg in it. Trusted hosts are also
//! offered the port as a virtual one, `a=x-trunkline:1 NODE PORT`: a host that understands the
//! attribute is another gateway, and answers with its own.

mod call_legs;
mod calls;
mod config;
mod dialog;
mod gateway;
mod hops;
mod latch;
mod media;
mod party_addresses;
mod places;
mod ports;
pub mod reception;
mod token;

pub use calls::{CallId, CallView, DescriptionError};
pub use config::{Config, Destination, Network, Relearn, Route, Socket, Transport};
pub use gateway::{
    CallOutcome, CallSelection, Event, Farewell, Gateway, Holder, Rank, Ranks, Stats,
};
pub use hops::Found;
pub use latch::{Arrival, Latch, Peer};
pub use media::{Media, MediaRejected, Relay, Remote, is_media};
pub use places::{Latched, Places};
