//! Identities: keys, certificates, and how an owner proves possession of a key: by a signature, by
//! the Noise handshake, and by the MAC before it.

mod certificate;
mod key;
pub(crate) mod mac;
pub(crate) mod noise;

pub use certificate::{Certificate, CertificateError, MAX_CERTIFICATE, MAX_NAME, Trust};
pub(crate) use key::DhKey;
pub use key::{Identity, KEY_LEN, KeyError, PublicKey, SIGNATURE_LEN};
pub use mac::MacKey;
