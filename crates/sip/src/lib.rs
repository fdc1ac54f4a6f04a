//! SIP (RFC 3261) as a proxy needs it: messages without loss.
//!
//! A proxy must pass on what it doesn't know, and phones say much that no parser
//! knows: a message is kept as the bytes that came, what a proxy reads in it is found
//! there, and changes are made there. What they don't touch stays byte for byte.
//!
//! Pure code: bytes in, bytes out. Nothing panics on bytes from outside, and what one
//! message may cost is bounded.
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
pub use frame::{Frame, Framer};
pub use message::{Fault, Field, MAX_FIELDS, MAX_MESSAGE, Message, ParseError, Start};
pub use name::Name;
