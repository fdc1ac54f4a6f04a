//! Messages of the carrier itself, and the head of a datagram. A message is the carrier's if its
//! first byte is 0x40 to 0x7f (from a client) or 0xc0 to 0xff (from a node); all others are the
//! session's.

use crate::session::wire::{MAX_MESSAGE, ToClient, ToNode};
use crate::wire::{Service, WireError};
use core::fmt;
use trunkline_base::wire::{Reader, Short, Writer};

/// Bytes of a message's length on TCP.
pub const PREFIX: usize = 2;

/// Bytes before the message in a datagram.
pub const DATAGRAM_HEAD: usize = 16;

/// Bytes that sealing adds to a message, on TCP and UDP.
pub const TAG: usize = 16;

/// Maximum length after a length prefix on TCP: a sealed message.
pub const MAX_FRAME: usize = MAX_MESSAGE + TAG;

/// Maximum size of a datagram: with 40 bytes of IPv6 and 8 of UDP, the 1,280 bytes that every IPv6
/// path carries (RFC 8200, section 5). Larger packets take TCP.
pub const MAX_DATAGRAM: usize = 1_232;

const PING: u8 = 0x41;
const HELLO: u8 = 0x42;
const PACKETS: u8 = 0x43;
pub(super) const INITIATION: u8 = 0x44;
const PONG: u8 = 0xc1;
pub(super) const RESPONSE: u8 = 0xc2;

/// Value that associates a datagram with a session: random, from the node's entropy, sent over TCP.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl fmt::Debug for Token {
    /// Formats no digits, since the token is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Messages from a client through this carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromClient<'a> {
    /// Request for a [`FromNode::Pong`] on the same path. TCP and UDP.
    Ping,
    /// Identifies the client of this connection; an earlier connection of the same client ends.
    Hello {
        /// The client's secret, which the module describes.
        identity: u64,
        /// Counts the client's connections, so that a delayed one does not replace a later one.
        attempt: u32,
    },
    /// Selects the path of packets from now on.
    Packets {
        /// Whether packets take UDP rather than TCP.
        udp: bool,
    },
    /// The complete first message of a client: `type 1, mac 16, Noise IK's first message`.
    Initiation(&'a [u8]),
    /// A message of the session. On UDP only packets are allowed.
    Session(&'a [u8]),
}

/// Messages from a node through this carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromNode<'a> {
    /// The answer to [`FromClient::Ping`].
    Pong,
    /// The complete answer to [`FromClient::Initiation`]: `type 1, Noise IK's second message`,
    /// which contains the token. All later messages, in both directions, are sealed.
    Response(&'a [u8]),
    /// A message of the session. On UDP only packets are allowed.
    Session(&'a [u8]),
}

impl<'a> FromClient<'a> {
    /// Writes the message to `w`.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            FromClient::Ping => w.u8(PING),
            FromClient::Hello { identity, attempt } => {
                w.u8(HELLO).and_then(|()| w.u64(identity)).and_then(|()| w.u32(attempt))
            }
            FromClient::Packets { udp } => w.u8(PACKETS).and_then(|()| w.u8(udp.into())),
            FromClient::Initiation(message) | FromClient::Session(message) => w.bytes(message),
        }
    }

    /// Reads one message; fields that a newer client appends to the carrier's messages are ignored.
    pub fn parse(message: &'a [u8]) -> Result<FromClient<'a>, WireError> {
        let mut r = Reader::new(message);
        Ok(match r.u8()? {
            PING => FromClient::Ping,
            HELLO => FromClient::Hello { identity: r.u64()?, attempt: r.u32()? },
            PACKETS => match r.u8()? {
                0 => FromClient::Packets { udp: false },
                1 => FromClient::Packets { udp: true },
                _ => return Err(WireError::OutOfRange("the path of packets")),
            },
            INITIATION => FromClient::Initiation(message),
            other @ 0x40..0x80 => return Err(WireError::UnknownType(other)),
            _ => FromClient::Session(message),
        })
    }
}

impl<'a> FromNode<'a> {
    /// Writes the message to `w`.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            FromNode::Pong => w.u8(PONG),
            FromNode::Response(message) | FromNode::Session(message) => w.bytes(message),
        }
    }

    /// Reads one message; fields that a newer node appends to the carrier's messages are ignored.
    pub fn parse(message: &'a [u8]) -> Result<FromNode<'a>, WireError> {
        let mut r = Reader::new(message);
        Ok(match r.u8()? {
            PONG => FromNode::Pong,
            RESPONSE => FromNode::Response(message),
            other @ 0xc0.. => return Err(WireError::UnknownType(other)),
            _ => FromNode::Session(message),
        })
    }
}

/// One datagram in either direction. Its message is sealed, which adds [`TAG`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Token of the session that the datagram belongs to.
    pub token: Token,
    /// The sender's count of datagrams with this token, from 0; never wraps.
    pub counter: u64,
    /// The sealed message itself.
    pub message: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Encodes the bytes before the message.
    pub fn head(&self) -> [u8; DATAGRAM_HEAD] {
        (u128::from(self.token.0) << 64 | u128::from(self.counter)).to_be_bytes()
    }

    /// Reads a datagram. A counter at its maximum is an error.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, WireError> {
        let mut r = Reader::new(bytes);
        let (token, counter) = (Token(r.u64()?), r.u64()?);
        if counter == u64::MAX {
            return Err(WireError::OutOfRange("the counter"));
        }
        Ok(Datagram { token, counter, message: r.rest() })
    }
}

/// The length prefix of a message of `len` bytes on TCP.
pub fn prefix(len: usize) -> [u8; PREFIX] {
    debug_assert!((1..=MAX_FRAME).contains(&len), "{len} bytes are no message");
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

/// The service of a client's message if UDP may carry it: a packet that fits; otherwise `None`.
pub fn packet_to_node(head: &[u8], payload: usize) -> Option<Service> {
    match ToNode::parse(head) {
        Ok(ToNode::Send { service, .. }) if fits(head, payload) => Some(service),
        _ => None,
    }
}

/// The service of a node's message if UDP may carry it; otherwise `None`.
pub fn packet_to_client(head: &[u8], payload: usize) -> Option<Service> {
    match ToClient::parse(head) {
        Ok(ToClient::Received { service, .. }) if fits(head, payload) => Some(service),
        _ => None,
    }
}

fn fits(head: &[u8], payload: usize) -> bool {
    DATAGRAM_HEAD + head.len() + payload + TAG <= MAX_DATAGRAM
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(emit: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>) -> Vec<u8> {
        let mut out = [0; 300];
        let mut w = Writer::new(&mut out);
        emit(&mut w).unwrap();
        w.written().to_vec()
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            n in any::<u64>(), udp in any::<bool>(),
            first in 0u8..0x40, rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let from_client = [&[first][..], &rest].concat();
            let from_node = [&[first | 0x80][..], &rest].concat();
            for m in [
                FromClient::Ping,
                FromClient::Hello { identity: n, attempt: n as u32 },
                FromClient::Packets { udp },
                FromClient::Initiation(&[&[INITIATION][..], &rest].concat()),
                FromClient::Session(&from_client),
            ] {
                let bytes = written(|w| m.emit(w));
                prop_assert_eq!(FromClient::parse(&bytes), Ok(m));
            }
            for m in [
                FromNode::Pong,
                FromNode::Response(&[&[RESPONSE][..], &rest].concat()),
                FromNode::Session(&from_node),
            ] {
                let bytes = written(|w| m.emit(w));
                prop_assert_eq!(FromNode::parse(&bytes), Ok(m));
            }
        }

        #[test]
        fn datagrams_round_trip(
            token in any::<u64>(), counter in 0..u64::MAX,
            message in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let d = Datagram { token: Token(token), counter, message: &message };
            let bytes = [&d.head()[..], &message].concat();
            prop_assert_eq!(Datagram::parse(&bytes), Ok(d));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = FromClient::parse(&bytes);
            let _ = FromNode::parse(&bytes);
            let _ = Datagram::parse(&bytes);
            let _ = packet_to_node(&bytes, 100);
            let _ = packet_to_client(&bytes, 100);
        }
    }

    #[test]
    fn the_carriers_messages_are_not_the_sessions() {
        use crate::wire::NodeId;
        let send = ToNode::Send {
            service: Service::RealTime,
            deadline_ms: 1,
            to: NodeId(1),
            port: 1,
            payload: &[],
        };
        let bind = ToNode::Bind { version: 1, port: 1 };
        let (send, bind) = (written(|w| send.emit_head(w)), written(|w| bind.emit_head(w)));
        for m in [&send, &bind] {
            assert_eq!(FromClient::parse(m), Ok(FromClient::Session(m)));
        }
        let room = MAX_DATAGRAM - DATAGRAM_HEAD - send.len() - TAG;
        // The payload that a link of the default MTU carries, in both directions.
        assert!(room >= 1_188 && MAX_DATAGRAM - DATAGRAM_HEAD - 11 - TAG >= 1_188);
        assert_eq!(packet_to_node(&send, room), Some(Service::RealTime));
        assert_eq!(packet_to_node(&send, room + 1), None);
        assert_eq!(packet_to_node(&bind, 0), None);
    }
}
