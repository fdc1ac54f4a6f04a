//! Who somebody is: keys, certificates, and how the owner of a key shows that it
//! is: a signature, the handshake of Noise, and the mac before it.

mod certificate;
mod key;
pub(crate) mod mac;
pub(crate) mod noise;

pub use certificate::{Certificate, CertificateError, MAX_CERTIFICATE, MAX_NAME, Trust};
pub(crate) use key::DhKey;
pub use key::{Identity, KEY_LEN, KeyError, PublicKey, SIGNATURE_LEN};
pub use mac::MacKey;
