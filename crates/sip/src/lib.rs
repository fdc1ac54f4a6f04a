//! SIP (RFC 3261) as a proxy needs it: lossless message processing.
//!
//! A proxy must pass on what it doesn't understand, and phones send much that no parser
//! understands. So a message is kept as the received bytes; the values that a proxy reads are
//! slices of them, and changes are made to them. Everything that the changes don't touch stays byte
//! for byte.
//!
//! This is pure code: bytes in, bytes out. Nothing panics on input from outside, and the cost of a
//! message is bounded.
//!
//! ```
//! use trunkline_sip::{Edit, Message, Name, Start};
//!
//! let bytes = b"OPTIONS sip:b@example.com SIP/2.0\r\n\
//!     v: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
//!     Max-Forwards: 70\r\nX-Else:  as it is;;\r\n\
//!     f: <sip:a@example.com>;tag=1\r\nt: <sip:b@example.com>\r\n\
//!     i: 1@192.0.2.1\r\nCSeq: 1 OPTIONS\r\n\r\n";
//! let message = Message::parse(bytes)?;
//! assert_eq!(message.fault(), None);
//! assert!(matches!(message.start(), Start::Request { method: b"OPTIONS", .. }));
//!
//! let mut edit = Edit::new(&message);
//! edit.set(Name::MaxForwards, b"69");
//! edit.push_front(Name::Via, b"SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK2");
//! let forwarded = edit.finish();
//! let hops = Message::parse(&forwarded)?;
//! assert_eq!(hops.list(Name::Via).count(), 2);
//! # Ok::<(), trunkline_sip::ParseError>(())
//! ```

mod body;
mod edit;
mod frame;
mod lex;
mod message;
mod name;
pub mod proxy;
pub mod reply;
pub mod sdp;
pub mod transaction;
pub mod value;

pub use body::Part;
pub use edit::Edit;
pub use frame::{Frame, Framer, MAX_HEAD};
pub use message::{Fault, Field, MAX_FIELDS, MAX_MESSAGE, Message, ParseError, Start};
pub use name::Name;
