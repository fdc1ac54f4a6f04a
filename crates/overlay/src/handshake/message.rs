//! The messages of the handshake, each one datagram.
//!
//! ```text
//! Query       kind 1, mac 16, nonce 8, zeros up to 256 bytes
//! Answer      kind 1, mac 16, echo 8, cookie 16, certificate (length 2, bytes)
//! Initiation  kind 1, mac 16, cookie 16, Noise: e 32, s 48, payload + 16
//! Response    kind 1, mac 16, receiver index 3, Noise: e 32, payload + 16
//! Challenge   kind 1, mac 16, receiver index 3, Noise: e 32, (0, nonce 16) + 16
//! ```
//!
//! The MAC is the first half of HMAC-SHA256 over the bytes after it, preceded by the kind. Its key
//! follows from the recipient's public key or the overlay's, so the MAC only filters out address
//! scans, at the price of one hash. The cookie is stronger evidence: it shows that the sender
//! receives at its source address (RFC 9000, 8.1; WireGuard, 5.3).

use super::freshness::NONCE;
use crate::identity::mac::MAC;
use crate::identity::noise::{FIRST_OVERHEAD, SECOND_OVERHEAD};
use crate::identity::{Certificate, MAX_CERTIFICATE, MacKey};
use crate::link;
use crate::wire::version::VersionRange;
use crate::wire::{Incarnation, Kind, MAX_HANDSHAKE, NodeId, ReceiverIndex, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// Bytes of a [`Query`]: as many as the longest [`Answer`], so that a node never sends more to a
/// forged address than it received from there.
pub const QUERY_LEN: usize = 256;

/// Maximum length of a path label, in bytes.
pub const MAX_PATH: usize = 63;

/// Length of a cookie, in bytes.
pub const COOKIE: usize = 16;
/// Bytes in an answer that identify its question.
pub const ECHO: usize = 8;

const ANSWER_HEAD: usize = 1 + MAC + ECHO + COOKIE + 2;

const _: () = assert!(ANSWER_HEAD + MAX_CERTIFICATE <= QUERY_LEN);
const _: () = assert!(1 + MAC + COOKIE + FIRST_OVERHEAD + MAX_PAYLOAD <= MAX_HANDSHAKE);

/// Requests the recipient's certificate and a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Random value that the answer repeats.
    pub nonce: [u8; ECHO],
}

impl Query {
    /// Encodes the datagram, with the MAC key of the overlay.
    pub fn emit(&self, key: &MacKey) -> Vec<u8> {
        let mut out = vec![0; QUERY_LEN];
        out[0] = Kind::Query as u8;
        out[1 + MAC..1 + MAC + ECHO].copy_from_slice(&self.nonce);
        key.stamp(&mut out);
        out
    }

    /// Reads a datagram; its MAC still has to be checked.
    pub fn parse(datagram: &[u8]) -> Result<Query, WireError> {
        let mut r = body(datagram, Kind::Query)?;
        if datagram.len() < QUERY_LEN {
            return Err(WireError::Truncated);
        }
        Ok(Query { nonce: r.array()? })
    }
}

/// Returns the sender's certificate, or only a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The query's nonce, or the first bytes of the initiation's MAC.
    pub echo: [u8; ECHO],
    /// Cookie for an initiation from the address that this answer is sent to.
    pub cookie: [u8; COOKIE],
    /// The sender's certificate; may be empty.
    pub certificate: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Encodes the datagram, with the MAC key of the message it answers.
    pub fn emit(&self, key: &MacKey) -> Vec<u8> {
        let mut out = vec![0; ANSWER_HEAD + self.certificate.len()];
        let mut w = Writer::new(&mut out);
        let fits = w
            .u8(Kind::Answer as u8)
            .and_then(|()| w.bytes(&[0; MAC]))
            .and_then(|()| w.bytes(&self.echo))
            .and_then(|()| w.bytes(&self.cookie))
            .and_then(|()| w.u16(u16::try_from(self.certificate.len()).map_err(|_| Short)?))
            .and_then(|()| w.bytes(self.certificate));
        debug_assert!(fits.is_ok(), "room was made for it");
        key.stamp(&mut out);
        out
    }

    /// Reads a datagram; its MAC still has to be checked.
    pub fn parse(datagram: &'a [u8]) -> Result<Answer<'a>, WireError> {
        let mut r = body(datagram, Kind::Answer)?;
        let (echo, cookie) = (r.array()?, r.array()?);
        let certificate = counted(&mut r, MAX_CERTIFICATE, "the length of a certificate")?;
        Ok(Answer { echo, cookie, certificate })
    }
}

/// The first message of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiation<'a> {
    /// The cookie that the responder last handed out, or zeros.
    pub cookie: [u8; COOKIE],
    /// The first message of Noise.
    pub noise: &'a [u8],
}

impl<'a> Initiation<'a> {
    /// Encodes the datagram, with the MAC key of the responder.
    pub fn emit(&self, key: &MacKey) -> Vec<u8> {
        let mut out = vec![0; 1 + MAC];
        out[0] = Kind::Initiation as u8;
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(self.noise);
        key.stamp(&mut out);
        out
    }

    /// Reads a datagram; its MAC still has to be checked.
    pub fn parse(datagram: &'a [u8]) -> Result<Initiation<'a>, WireError> {
        let mut r = body(datagram, Kind::Initiation)?;
        let cookie = r.array()?;
        if r.rest().len() < FIRST_OVERHEAD {
            return Err(WireError::Truncated);
        }
        Ok(Initiation { cookie, noise: r.rest() })
    }
}

/// The bytes with which an answer identifies this datagram, if it has a MAC.
pub(super) fn echo_of(datagram: &[u8]) -> [u8; ECHO] {
    datagram.get(1..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

/// The second message of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// Index of the initiator's handshake that this message answers.
    pub receiver: ReceiverIndex,
    /// The second message of Noise.
    pub noise: &'a [u8],
}

impl<'a> Response<'a> {
    /// Encodes the datagram, with the MAC key of the initiator.
    pub fn emit(&self, key: &MacKey) -> Vec<u8> {
        second(Kind::Response, self.receiver, self.noise, key)
    }

    /// Reads a datagram; its MAC still has to be checked.
    pub fn parse(datagram: &'a [u8]) -> Result<Response<'a>, WireError> {
        let (receiver, noise) = parse_second(datagram, Kind::Response)?;
        Ok(Response { receiver, noise })
    }
}

/// The second message of a handshake, sent instead of a [`Response`] if the initiation may be a
/// copy of an earlier one. The initiator proves that it is not by returning the nonce in a
/// new initiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge<'a> {
    /// Index of the initiator's handshake that this message ends.
    pub receiver: ReceiverIndex,
    /// The second message of Noise, around [`Challenge::payload`].
    pub noise: &'a [u8],
}

/// The first byte of a challenge's payload. A response has its sender's oldest version there, so
/// the two cannot be confused.
const NO_VERSION: u8 = 0;

impl<'a> Challenge<'a> {
    /// Encodes the datagram, with the MAC key of the initiator.
    pub fn emit(&self, key: &MacKey) -> Vec<u8> {
        second(Kind::Challenge, self.receiver, self.noise, key)
    }

    /// Reads a datagram; its MAC still has to be checked.
    pub fn parse(datagram: &'a [u8]) -> Result<Challenge<'a>, WireError> {
        let (receiver, noise) = parse_second(datagram, Kind::Challenge)?;
        Ok(Challenge { receiver, noise })
    }

    /// The plaintext that Noise encrypts.
    pub fn payload(nonce: &[u8; NONCE]) -> [u8; 1 + NONCE] {
        let mut out = [NO_VERSION; 1 + NONCE];
        out[1..].copy_from_slice(nonce);
        out
    }

    /// Reads the nonce from the plaintext that Noise decrypted; skips anything a newer version may
    /// append.
    pub fn nonce(payload: &[u8]) -> Result<[u8; NONCE], WireError> {
        let mut r = Reader::new(payload);
        if r.u8()? != NO_VERSION {
            return Err(WireError::OutOfRange("the first byte of a challenge"));
        }
        Ok(r.array()?)
    }
}

fn second(kind: Kind, receiver: ReceiverIndex, noise: &[u8], key: &MacKey) -> Vec<u8> {
    let mut out = vec![0; 1 + MAC];
    out[0] = kind as u8;
    out.extend_from_slice(&receiver.get().to_be_bytes()[1..]);
    out.extend_from_slice(noise);
    key.stamp(&mut out);
    out
}

fn parse_second(datagram: &[u8], kind: Kind) -> Result<(ReceiverIndex, &[u8]), WireError> {
    let mut r = body(datagram, kind)?;
    let receiver = ReceiverIndex::new(r.u24()?);
    if r.rest().len() < SECOND_OVERHEAD {
        return Err(WireError::Truncated);
    }
    Ok((receiver, r.rest()))
}

/// The bytes after kind and MAC.
fn body(datagram: &[u8], kind: Kind) -> Result<Reader<'_>, WireError> {
    let found = Kind::of(datagram)?;
    if found != kind {
        return Err(WireError::UnknownType(found as u8));
    }
    if datagram.len() > MAX_HANDSHAKE {
        return Err(WireError::OutOfRange("the length of a handshake message"));
    }
    let mut r = Reader::new(datagram);
    r.bytes(1 + MAC)?;
    Ok(r)
}

fn counted<'a>(r: &mut Reader<'a>, max: usize, what: &'static str) -> Result<&'a [u8], WireError> {
    let len = usize::from(r.u16()?);
    if len > max {
        return Err(WireError::OutOfRange(what));
    }
    Ok(r.bytes(len)?)
}

/// The payload that the two ends exchange, encrypted: `oldest 1 | newest 1 | index 3 | node 4 |
/// incarnation 8 | sent 8 | capabilities 4 | MTU 2 | path (length 1, bytes) | certificate (length
/// 2, bytes)`, and in an initiation that answers a challenge `| nonce (length 1, bytes)`. Anything
/// that a newer version may append is skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// The protocol versions that the sender supports.
    pub versions: VersionRange,
    /// The index that envelopes to the sender must carry.
    pub index: ReceiverIndex,
    /// Id of the sender.
    pub node: NodeId,
    /// Number of this start of the sender.
    pub incarnation: Incarnation,
    /// In an initiation: nanoseconds on the sender's clock, which grow with each initiation to the
    /// same peer. A response repeats the value.
    pub sent: u64,
    /// Capabilities of the sender beyond the version; unknown bits mean nothing.
    pub capabilities: u32,
    /// Largest IP packet that the sender's end of the link accepts, in bytes, 576 to 9,000.
    pub mtu: u16,
    /// Label of the link, among those between the two nodes.
    pub path: String,
    /// Certificate that binds the sender's node id to its key.
    pub certificate: Option<Certificate>,
    /// The nonce of the challenge that this initiation answers.
    pub nonce: Option<[u8; NONCE]>,
}

const PAYLOAD_FIXED: usize = 1 + 1 + 3 + 4 + 8 + 8 + 4 + 2 + 1 + 2;
/// Maximum number of bytes that this version writes.
pub const MAX_PAYLOAD: usize = PAYLOAD_FIXED + MAX_PATH + MAX_CERTIFICATE + 1 + NONCE;

impl Payload {
    /// Encodes the payload; a path label above [`MAX_PATH`] is cut off.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [0; MAX_PAYLOAD];
        let mut w = Writer::new(&mut out);
        let fits = self.emit(&mut w);
        debug_assert!(fits.is_ok(), "every part has a bound");
        w.written().to_vec()
    }

    fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(self.versions.oldest)?;
        w.u8(self.versions.newest)?;
        w.u24(self.index.get())?;
        w.u32(self.node.0)?;
        w.u64(self.incarnation.0)?;
        w.u64(self.sent)?;
        w.u32(self.capabilities)?;
        w.u16(self.mtu)?;
        let path = self.path.as_bytes();
        let path = path.get(..MAX_PATH).unwrap_or(path);
        w.u8(u8::try_from(path.len()).map_err(|_| Short)?)?;
        w.bytes(path)?;
        let certificate = self.certificate.as_ref().map(Certificate::to_bytes).unwrap_or_default();
        w.u16(u16::try_from(certificate.len()).map_err(|_| Short)?)?;
        w.bytes(&certificate)?;
        match &self.nonce {
            None => Ok(()),
            Some(nonce) => w.u8(NONCE as u8).and_then(|()| w.bytes(nonce)),
        }
    }

    /// Reads the payload of a peer; versions and MTU must be in range.
    pub fn parse(bytes: &[u8]) -> Result<Payload, WireError> {
        let mut r = Reader::new(bytes);
        let versions = VersionRange { oldest: r.u8()?, newest: r.u8()? };
        if !versions.is_valid() {
            return Err(WireError::OutOfRange("the protocol versions"));
        }
        let index = ReceiverIndex::new(r.u24()?);
        let (node, incarnation, sent) = (NodeId(r.u32()?), Incarnation(r.u64()?), r.u64()?);
        let (capabilities, mtu) = (r.u32()?, r.u16()?);
        if !link::Config::MTUS.contains(&mtu.into()) {
            return Err(WireError::OutOfRange("the MTU"));
        }
        let len = usize::from(r.u8()?);
        if len > MAX_PATH {
            return Err(WireError::OutOfRange("the length of a path label"));
        }
        let path = core::str::from_utf8(r.bytes(len)?)
            .map_err(|_| WireError::OutOfRange("a path label"))?
            .to_owned();
        let certificate = counted(&mut r, MAX_CERTIFICATE, "the length of a certificate")?;
        let certificate = match certificate {
            [] => None,
            bytes => Some(
                Certificate::parse(bytes).map_err(|_| WireError::OutOfRange("a certificate"))?,
            ),
        };
        // Only an initiation that answers a challenge has more bytes.
        let nonce = match r.u8() {
            Ok(len) if usize::from(len) == NONCE => Some(r.array()?),
            Ok(len) => {
                r.bytes(usize::from(len))?;
                None
            }
            Err(Short) => None,
        };
        Ok(Payload {
            versions,
            index,
            node,
            incarnation,
            sent,
            capabilities,
            mtu,
            path,
            certificate,
            nonce,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, PublicKey};
    use proptest::prelude::*;

    fn key() -> MacKey {
        MacKey::for_overlay(&PublicKey([1; 32]))
    }

    fn certificate() -> Certificate {
        let (operator, node) = (Identity::from_secret(&[1; 32]), Identity::from_secret(&[2; 32]));
        Certificate::issue(&operator, NodeId(5), "berlin", node.public(), 9).unwrap()
    }

    fn payload() -> impl Strategy<Value = Payload> {
        (
            (1u8.., 1u8.., any::<u32>(), any::<u32>(), any::<u64>()),
            (any::<u64>(), any::<u32>(), 576..=9_000u16, "[a-zé]{0,31}", any::<bool>()),
            any::<Option<[u8; NONCE]>>(),
        )
            .prop_map(|(a, b, nonce)| Payload {
                versions: VersionRange { oldest: a.0.min(a.1), newest: a.0.max(a.1) },
                index: ReceiverIndex::new(a.2),
                node: NodeId(a.3),
                incarnation: Incarnation(a.4),
                sent: b.0,
                capabilities: b.1,
                mtu: b.2,
                path: b.3,
                certificate: b.4.then(certificate),
                nonce,
            })
    }

    proptest! {
        #[test]
        fn payload_round_trip(p in payload(), more in prop::collection::vec(any::<u8>(), 0..20)) {
            let bytes = p.to_bytes();
            prop_assert!(bytes.len() <= MAX_PAYLOAD);
            prop_assert_eq!(Payload::parse(&bytes), Ok(p.clone()));
            // To append further fields, a sender without a nonce writes an empty one first.
            let none = if p.nonce.is_some() { vec![] } else { vec![0] };
            let newer = [bytes, none, more].concat();
            prop_assert_eq!(Payload::parse(&newer), Ok(p));
        }

        #[test]
        fn message_round_trips(
            nonce in any::<[u8; ECHO]>(), cookie in any::<[u8; COOKIE]>(), index in any::<u32>(),
            noise in prop::collection::vec(any::<u8>(), FIRST_OVERHEAD..300),
            at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let certificate = certificate().to_bytes();
            let query = Query { nonce };
            let answer = Answer { echo: nonce, cookie, certificate: &certificate };
            let initiation = Initiation { cookie, noise: &noise };
            let response = Response { receiver: ReceiverIndex::new(index), noise: &noise };
            let challenge = Challenge { receiver: response.receiver, noise: &noise };
            let bytes = [
                query.emit(&key()),
                answer.emit(&key()),
                initiation.emit(&key()),
                response.emit(&key()),
                challenge.emit(&key()),
            ];
            prop_assert_eq!(Query::parse(&bytes[0]), Ok(query));
            prop_assert_eq!(Answer::parse(&bytes[1]), Ok(answer));
            prop_assert_eq!(Initiation::parse(&bytes[2]), Ok(initiation));
            prop_assert_eq!(Response::parse(&bytes[3]), Ok(response));
            prop_assert_eq!(Challenge::parse(&bytes[4]), Ok(challenge));
            prop_assert!(Response::parse(&bytes[4]).is_err() && Challenge::parse(&bytes[3]).is_err());
            for mut message in bytes {
                prop_assert!(key().check(&message));
                prop_assert!(!MacKey::for_overlay(&PublicKey([2; 32])).check(&message));
                *at.get_mut(&mut message) ^= 1u8 << bit;
                prop_assert!(!key().check(&message));
            }
        }

        #[test]
        fn any_bytes_are_an_answer(kind in 0x13u8..0x18, rest in prop::collection::vec(any::<u8>(), 0..700)) {
            let bytes = [&[kind][..], &rest].concat();
            let _ = (Query::parse(&bytes), Answer::parse(&bytes), Initiation::parse(&bytes));
            let _ = (Response::parse(&bytes), Payload::parse(&rest), key().check(&bytes));
            let _ = (Challenge::parse(&bytes), Challenge::nonce(&rest));
        }
    }

    #[test]
    fn a_challenge_says_no_more_than_its_nonce_and_is_no_response() {
        let payload = Challenge::payload(&[7; NONCE]);
        assert_eq!(Challenge::nonce(&payload), Ok([7; NONCE]));
        assert_eq!(Challenge::nonce(&[&payload[..], b"more"].concat()), Ok([7; NONCE]));
        assert!(Payload::parse(&payload).is_err());
        let response = uncertified([1, 3], 576);
        assert!(Payload::parse(&response).is_ok() && Challenge::nonce(&response).is_err());
    }

    /// A payload with these versions and this MTU, and zeros in all other fields.
    fn uncertified(versions: [u8; 2], mtu: u16) -> Vec<u8> {
        [&versions[..], &[0; 27], &mtu.to_be_bytes(), &[0; 3]].concat()
    }

    #[test]
    fn versions_and_mtus_have_a_range() {
        let is_ok = |versions, mtu| Payload::parse(&uncertified(versions, mtu)).is_ok();
        for versions in [[1, 1], [1, 255], [7, 9], [255, 255]] {
            assert!(is_ok(versions, 1_280), "{versions:?}");
        }
        for versions in [[0, 0], [0, 1], [0, 255], [2, 1], [255, 1], [1, 0]] {
            assert!(!is_ok(versions, 1_280), "{versions:?}");
        }
        let mtus = [0, 575, 576, 9_000, 9_001, u16::MAX].map(|mtu| is_ok([1, 1], mtu));
        assert_eq!(mtus, [false, false, true, true, false, false]);
    }

    #[test]
    fn an_answer_is_never_longer_than_its_query() {
        let longest = [7; MAX_CERTIFICATE];
        let answer = Answer { echo: [0; ECHO], cookie: [0; COOKIE], certificate: &longest };
        assert!(answer.emit(&key()).len() <= Query { nonce: [0; ECHO] }.emit(&key()).len());
        let short = Query { nonce: [0; ECHO] }.emit(&key());
        assert_eq!(Query::parse(&short[..QUERY_LEN - 1]), Err(WireError::Truncated));
    }
}
