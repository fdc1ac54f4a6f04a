//! A node's identity: one Ed25519 key, from which its X25519 key is derived.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use core::str::FromStr;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

/// Bytes of a key, secret or public.
pub const KEY_LEN: usize = 32;

/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;

/// A secret key of a node or an operator. One key signs (Ed25519, RFC 8032) and agrees on keys
/// (X25519, RFC 7748): the birational map between the curves makes that sound (Thormarker, *On
/// using the same key pair for Ed25519 and an X25519 based KEM*, 2021), so a single key identifies
/// a neighbour.
#[derive(Clone)]
pub struct Identity {
    signing: SigningKey,
    public: PublicKey,
}

impl Identity {
    /// Derives the identity from a secret: 32 bytes from a cryptographic generator.
    pub fn from_secret(secret: &[u8; KEY_LEN]) -> Identity {
        let signing = SigningKey::from_bytes(secret);
        let public = PublicKey(signing.verifying_key().to_bytes());
        Identity { signing, public }
    }

    /// Parses the text that [`Identity::secret_text`] returns.
    pub fn from_text(text: &str) -> Result<Identity, KeyError> {
        let secret = Zeroizing::new(decode(text)?);
        Ok(Identity::from_secret(&secret))
    }

    /// The secret in standard base64, for a file that only its owner can read.
    pub fn secret_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.signing.as_bytes()))
    }

    /// The public half of this key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs `message`. A key that signs several kinds of message must begin each with a distinct
    /// prefix, so that one kind cannot pass for another.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        self.signing.sign(message).to_bytes()
    }

    /// The secret X25519 key, derived from the Ed25519 one.
    pub(crate) fn dh_secret(&self) -> Zeroizing<[u8; KEY_LEN]> {
        Zeroizing::new(self.signing.to_scalar_bytes())
    }

    /// The public X25519 key, derived from the Ed25519 one.
    pub(crate) fn dh_public(&self) -> DhKey {
        DhKey(self.signing.verifying_key().to_montgomery().to_bytes())
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.public == other.public
    }
}

impl fmt::Debug for Identity {
    /// Prints only the public key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

/// A public Ed25519 key; as text, 44 characters of standard base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_LEN]);

impl PublicKey {
    /// Whether this key's owner signed `message`. The check is strict (RFC 8032, 5.1.7, without the
    /// cofactor, and no key of small order), so that every node gets the same result.
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_LEN]) -> bool {
        VerifyingKey::from_bytes(&self.0)
            .and_then(|key| key.verify_strict(message, &Signature::from_bytes(signature)))
            .is_ok()
    }

    /// The X25519 key of the same owner; `None` if these bytes are not a valid key, or one of small
    /// order, which would agree on the same value with every secret.
    pub(crate) fn dh(&self) -> Option<DhKey> {
        let key = VerifyingKey::from_bytes(&self.0).ok().filter(|key| !key.is_weak())?;
        Some(DhKey(key.to_montgomery().to_bytes()))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let key = PublicKey(decode(text)?);
        key.dh().map(|_| key).ok_or(KeyError::NoPoint)
    }
}

/// A public X25519 key, which identifies an end of a Noise handshake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DhKey(pub [u8; KEY_LEN]);

/// Reason why a text is not a valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not base64, or not 32 bytes long.
    #[error("a key is 44 characters of base64, the last one `=`; copy it whole")]
    NotBase64,
    /// 32 bytes that are not a point on the curve, or a point of small order.
    #[error(
        "these 32 bytes are not a public key; if they are a secret key, keep it only in its own \
         file, and use the public key that `trunkline pubkey` prints for it"
    )]
    NoPoint,
}

fn decode(text: &str) -> Result<[u8; KEY_LEN], KeyError> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| KeyError::NotBase64)?);
    bytes.as_slice().try_into().map_err(|_| KeyError::NotBase64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn texts_are_the_keys(secret in any::<[u8; 32]>()) {
            let identity = Identity::from_secret(&secret);
            let text = identity.public().to_string();
            prop_assert_eq!(text.len(), 44);
            prop_assert_eq!(text.parse(), Ok(identity.public()));
            let again = Identity::from_text(&identity.secret_text()).unwrap();
            prop_assert_eq!(again.public(), identity.public());
            prop_assert_eq!(identity.public().dh(), Some(identity.dh_public()));
            let shown = format!("{identity:?}");
            prop_assert!(!shown.contains(identity.secret_text().as_str()));
        }

        #[test]
        fn any_text_is_a_key_or_an_error(text in ".{0,60}") {
            let _ = text.parse::<PublicKey>();
        }

        #[test]
        fn only_what_was_signed_verifies(message in any::<Vec<u8>>(), at in any::<usize>()) {
            let identity = Identity::from_secret(&[7; 32]);
            let mut signature = identity.sign(&message);
            prop_assert!(identity.public().verify(&message, &signature));
            signature[at % SIGNATURE_LEN] ^= 0x10;
            prop_assert!(!identity.public().verify(&message, &signature));
        }
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        // The neutral element: with it, every secret would agree on zero.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert_eq!(STANDARD.encode(neutral).parse::<PublicKey>(), Err(KeyError::NoPoint));
        assert_eq!("AAAA".parse::<PublicKey>(), Err(KeyError::NotBase64));
    }
}
