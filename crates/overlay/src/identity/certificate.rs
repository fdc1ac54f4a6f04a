//! Certificates: the operator's overlay key certifies which node has which key, so that adding a
//! node does not mean editing the configuration of every other one.

use super::key::{DhKey, Identity, KEY_LEN, PublicKey, SIGNATURE_LEN};
use crate::wire::NodeId;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use core::str::FromStr;
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum length of a node's name in bytes: that of a DNS label (RFC 1035, 2.3.4).
pub const MAX_NAME: usize = 63;

/// Maximum size of an emitted [`Certificate`], in bytes.
pub const MAX_CERTIFICATE: usize = FIXED + MAX_NAME;

/// Bytes without the name: format 1, node 4, key 32, expiry 8, length of the name 1; signature 64.
const FIXED: usize = 1 + 4 + KEY_LEN + 8 + 1 + SIGNATURE_LEN;

const FORMAT: u8 = 1;

/// Prefix of everything that an overlay key signs as a certificate.
const CONTEXT: &[u8] = b"trunkline certificate";

/// The operator's statement that a node has a key: `format 1 | node 4 | key 32 | not after 8 |
/// length 1, name | signature 64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    node: NodeId,
    name: String,
    key: PublicKey,
    not_after: u64,
    signature: [u8; SIGNATURE_LEN],
}

impl Certificate {
    /// Issues a certificate, signed by the operator's overlay key: node `node`, named `name` (1 to
    /// 63 bytes), has the key `key` until `not_after` (seconds since 1970; 0 = no expiry).
    pub fn issue(
        overlay: &Identity,
        node: NodeId,
        name: &str,
        key: PublicKey,
        not_after: u64,
    ) -> Result<Certificate, CertificateError> {
        let name = checked_name(name.as_bytes())?.to_owned();
        let signature = [0; SIGNATURE_LEN];
        let mut certificate = Certificate { node, name, key, not_after, signature };
        certificate.signature = overlay.sign(&certificate.signed());
        Ok(certificate)
    }

    /// The certified node's address in the overlay.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The operator's name for the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's public key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Last second, since 1970, at which the certificate is valid; 0 = no expiry.
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// Whether the certificate has expired at `now_unix` (seconds since 1970).
    pub fn is_over(&self, now_unix: u64) -> bool {
        self.not_after != 0 && now_unix > self.not_after
    }

    /// Whether this certificate has the same key as `other` and expires no earlier.
    pub(crate) fn outlasts(&self, other: &Certificate) -> bool {
        // 0, no expiry, counts as the latest.
        self.key == other.key && self.not_after.wrapping_sub(1) >= other.not_after.wrapping_sub(1)
    }

    /// Writes the certificate, at most [`MAX_CERTIFICATE`] bytes.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        self.emit_body(w)?;
        w.bytes(&self.signature)
    }

    /// The certificate as the bytes of [`Certificate::emit`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [0; MAX_CERTIFICATE];
        let mut w = Writer::new(&mut out);
        let fits = self.emit(&mut w);
        debug_assert!(fits.is_ok(), "the name's length was checked");
        w.written().to_vec()
    }

    fn emit_body(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(FORMAT)?;
        w.u32(self.node.0)?;
        w.bytes(&self.key.0)?;
        w.u64(self.not_after)?;
        w.u8(u8::try_from(self.name.len()).map_err(|_| Short)?)?;
        w.bytes(self.name.as_bytes())
    }

    /// Reads a certificate that fills `bytes` exactly. It is not trusted before
    /// [`Certificate::verify`].
    pub fn parse(bytes: &[u8]) -> Result<Certificate, CertificateError> {
        let malformed = |_| CertificateError::Malformed;
        let mut r = Reader::new(bytes);
        if r.u8().map_err(malformed)? != FORMAT {
            return Err(CertificateError::Malformed);
        }
        let node = NodeId(r.u32().map_err(malformed)?);
        let key = PublicKey(r.array().map_err(malformed)?);
        let not_after = r.u64().map_err(malformed)?;
        let len = usize::from(r.u8().map_err(malformed)?);
        let name = checked_name(r.bytes(len).map_err(malformed)?)?.to_owned();
        let signature = r.array().map_err(malformed)?;
        if !r.is_empty() {
            return Err(CertificateError::Malformed);
        }
        Ok(Certificate { node, name, key, not_after, signature })
    }

    /// Checks that one of `overlay_keys` signed this certificate, and that it is still valid at
    /// `now_unix` (seconds since 1970). Takes about 50 µs per key.
    pub fn verify(
        &self,
        overlay_keys: &[PublicKey],
        now_unix: u64,
    ) -> Result<(), CertificateError> {
        // The cheap check comes first.
        if self.is_over(now_unix) {
            return Err(CertificateError::Expired(self.node, self.not_after));
        }
        let signed = self.signed();
        let good = overlay_keys.iter().any(|key| key.verify(&signed, &self.signature));
        if good { Ok(()) } else { Err(CertificateError::NotTrusted(self.node)) }
    }

    /// The X25519 form of the certified key.
    pub(crate) fn dh(&self) -> Option<DhKey> {
        self.key.dh()
    }

    fn signed(&self) -> Vec<u8> {
        let mut out = [0; CONTEXT.len() + MAX_CERTIFICATE];
        let mut w = Writer::new(&mut out);
        let fits = w.bytes(CONTEXT).and_then(|()| self.emit_body(&mut w));
        debug_assert!(fits.is_ok(), "the name's length was checked");
        w.written().to_vec()
    }
}

/// One line of base64, as stored in a file.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.to_bytes()))
    }
}

impl FromStr for Certificate {
    type Err = CertificateError;

    fn from_str(text: &str) -> Result<Certificate, CertificateError> {
        let text = text.trim();
        if text.len() > MAX_CERTIFICATE.div_ceil(3) * 4 {
            return Err(CertificateError::Malformed);
        }
        let bytes = STANDARD.decode(text).map_err(|_| CertificateError::Malformed)?;
        Certificate::parse(&bytes)
    }
}

/// Reason for rejecting a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The bytes are not in the format of [`Certificate::emit`].
    #[error("not a certificate: copy the line whole, as it was issued")]
    Malformed,
    /// The name is empty, too long or contains control characters.
    #[error("a node's name has 1 to 63 bytes, and no control characters")]
    BadName,
    /// Signed by a key that is not trusted here.
    #[error("the certificate of node {0} is not signed by a trusted overlay key")]
    NotTrusted(NodeId),
    /// The certificate has expired: its node and its expiry, in seconds since 1970.
    #[error("the certificate of node {0} expired at Unix time {1}: issue a new one")]
    Expired(NodeId, u64),
}

fn checked_name(name: &[u8]) -> Result<&str, CertificateError> {
    let name = core::str::from_utf8(name).map_err(|_| CertificateError::BadName)?;
    let good = (1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control);
    if good { Ok(name) } else { Err(CertificateError::BadName) }
}

/// Keys that decide which certificates a node accepts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Trust {
    /// Overlay keys that may sign certificates; a few at most, since each is tried in turn.
    pub overlay_keys: Vec<PublicKey>,
    /// Keys of nodes that are refused, whatever certificate they show.
    pub revoked: Vec<PublicKey>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operator() -> Identity {
        Identity::from_secret(&[1; 32])
    }

    fn some() -> Certificate {
        let node = Identity::from_secret(&[2; 32]);
        Certificate::issue(&operator(), NodeId(5), "berlin-1", node.public(), 1_000).unwrap()
    }

    proptest! {
        #[test]
        fn round_trip(node in any::<u32>(), name in "[a-z0-9é.-]{1,30}", not_after in any::<u64>(), secret in any::<[u8; 32]>()) {
            let key = Identity::from_secret(&secret).public();
            let c = Certificate::issue(&operator(), NodeId(node), &name, key, not_after).unwrap();
            prop_assert_eq!(Certificate::parse(&c.to_bytes()), Ok(c.clone()));
            prop_assert_eq!(c.to_string().parse(), Ok(c.clone()));
            prop_assert!(c.to_bytes().len() <= MAX_CERTIFICATE);
            prop_assert_eq!(c.verify(&[key, operator().public()], not_after), Ok(()));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Certificate::parse(&bytes);
        }

        #[test]
        fn no_bit_may_change(at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = some().to_bytes();
            *at.get_mut(&mut bytes) ^= 1u8 << bit;
            let refused = match Certificate::parse(&bytes) {
                Ok(c) => c.verify(&[operator().public()], 0).is_err(),
                Err(_) => true,
            };
            prop_assert!(refused);
        }
    }

    #[test]
    fn it_ends_and_only_the_operator_issues_it() {
        let keys = [operator().public()];
        assert_eq!(some().verify(&keys, 1_000), Ok(()));
        let ended = CertificateError::Expired(NodeId(5), 1_000);
        assert_eq!(some().verify(&keys, 1_001), Err(ended));
        let other = [Identity::from_secret(&[3; 32]).public()];
        assert_eq!(some().verify(&other, 0), Err(CertificateError::NotTrusted(NodeId(5))));
        assert!(some().verify(&[], 0).is_err());
    }

    #[test]
    fn names_have_bounds() {
        let key = some().key();
        for bad in ["", &"x".repeat(64), "a\nb"] {
            let issued = Certificate::issue(&operator(), NodeId(1), bad, key, 0);
            assert_eq!(issued, Err(CertificateError::BadName));
        }
        assert!(Certificate::issue(&operator(), NodeId(1), &"x".repeat(63), key, 0).is_ok());
    }
}
