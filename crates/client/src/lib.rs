//! Datagram sockets and streams over an overlay of trunkline nodes, for applications on the same
//! machine as a node, or on another. Linux only.
//!
//! # Datagrams
//!
//! A [`DatagramSocket`] has the operations of [`std::net::UdpSocket`]: bind, send to, receive from.
//! An address is a node and a virtual port. The differences are:
//!
//! - A packet has a [service](Service) and a deadline, both [options](SocketOption) of the socket.
//! - [`send_to`](DatagramSocket::send_to) never blocks, except for packets that aren't real-time
//!   with [`SocketOption::Blocking`], which waits for room instead of dropping them.
//! - A node may restart under an open socket. The socket takes its port again automatically, and
//!   reports that once with [`Error::Reconnected`].
//! - When packets don't reach their destination, a later call reports it and the reason
//!   ([`Status`]) once as its error, like ICMP errors of a connected UDP socket. It is also
//!   reported when they reach it again.
//!
//! ```no_run
//! use trunkline_client::{Address, DatagramSocket, Error, NodeId};
//!
//! fn main() -> Result<(), Error> {
//!     let socket = DatagramSocket::bind("/run/trunkline/node.sock", 4000)?;
//!     let far = Address { node: NodeId(7), port: 4000 };
//!     let mut buf = vec![0; socket.max_payload()];
//!     for frame in [[0xd5; 160], [0x55; 160]] {
//!         match socket.send_to(&frame, far) {
//!             // One packet less, as on any datagram socket.
//!             Err(Error::Disconnected | Error::WouldBlock | Error::Status(_)) => {}
//!             sent => sent?,
//!         }
//!     }
//!     loop {
//!         match socket.recv_from(&mut buf) {
//!             Ok(got) => println!("{} bytes from {}", got.len, got.from),
//!             Err(news @ (Error::Reconnected | Error::Status(_))) => eprintln!("{news}"),
//!             Err(error) => return Err(error),
//!         }
//!     }
//! }
//! ```
//!
//! One descriptor ([`AsFd`](std::os::fd::AsFd)) stays the same for the socket's whole life, even
//! across restarts of the node: poll it for reading, then call
//! [`recv_from`](DatagramSocket::recv_from).
//!
//! # Streams
//!
//! A [`StreamSocket`] carries bytes in order and without loss, and a [`StreamListener`] accepts
//! incoming streams. They work like [`std::net::TcpStream`] and [`std::net::TcpListener`], with the
//! same method names and [`std::io::Read`] and [`std::io::Write`]. Each direction can be ended
//! separately. A stream is lost if either of its two nodes goes away; a listener takes its port
//! again when its node is back. With [`ConnectOptions::messages`] a stream keeps message
//! boundaries. The feature `tokio` adds `AsyncStream` and `AsyncListener`.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use trunkline_client::{Address, NodeId, StreamListener, StreamSocket};
//!
//! /// Runs at node 7 and echoes each stream.
//! fn echo() -> Result<(), Box<dyn std::error::Error>> {
//!     let listener = StreamListener::bind("/run/trunkline/node.sock", 4000)?;
//!     loop {
//!         let (stream, from) = listener.accept()?;
//!         println!("{} bytes from {from}", std::io::copy(&mut &stream, &mut &stream)?);
//!         stream.shutdown()?;
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let to = Address { node: NodeId(7), port: 4000 };
//!     let mut stream = StreamSocket::connect("/run/trunkline/node.sock", to)?;
//!     stream.write_all(b"hello")?;
//!     stream.shutdown()?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     println!("{answer}");
//!     # let _ = echo;
//!     Ok(())
//! }
//! ```
//!
//! # Location of the node
//!
//! An application in the node's process attaches through [`in_process`]; one on another host uses
//! the address in the node's `remote` key, the node's public key and its own key file, as in
//! `DatagramSocket::bind("tcp://192.0.2.1:7800?node=PUBKEY&key=/etc/pbx.key", 4000)`. Such a
//! connection is authenticated and encrypted.

mod carrier;
mod connection;
mod error;
mod ffi;
pub mod in_process;
mod keys;
mod remote;
mod socket;
mod stream;

pub use carrier::Transport;
pub use error::Error;
pub use socket::{
    Address, Attachment, ConnectionStatus, DatagramSocket, Received, SocketOption, Status,
};
#[cfg(feature = "tokio")]
pub use stream::{AsyncListener, AsyncStream};
pub use stream::{ConnectOptions, Incoming, MAX_STREAM_MESSAGE, StreamListener, StreamSocket};
pub use trunkline_overlay::session::wire::stream::Reset;
pub use trunkline_overlay::session::wire::{RefusalReason, Unreachable};
pub use trunkline_overlay::wire::{Metric, NodeId, Service, WireError};
