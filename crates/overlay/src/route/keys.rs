//! Verification of updates: an interface, so that routing does not depend on the kind of
//! signatures.

use super::stats::RefusedRecord;
use crate::identity::{PublicKey, Trust};
use crate::wire::NodeId;
use core::fmt;

/// A signature over a record.
pub type Signature = [u8; 64];

/// The keys of other nodes.
pub trait Keys: fmt::Debug + Send {
    /// Whether `origin`'s key is known, from configuration or introduction.
    fn knows(&self, origin: NodeId) -> bool;

    /// Whether `origin` signed `message`; false if its key is not known.
    fn verify(&self, origin: NodeId, message: &[u8], signature: &Signature) -> bool;

    /// Stores `origin`'s key if `certificate` is genuine, is for `origin`, has not expired at
    /// `wall_ns` (nanoseconds since 1970) and is not revoked, *and* that key signed `message`.
    /// Without the signature anyone could bring back an earlier certificate. Otherwise nothing
    /// changes, and the error is [`RefusedRecord::BadCertificate`] or [`RefusedRecord::BadSignature`]. Costs
    /// two [`verify`](Keys::verify).
    fn introduce(
        &mut self,
        origin: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &Signature,
        wall_ns: u64,
    ) -> Result<(), RefusedRecord>;

    /// Replaces the trusted operators and configured keys. Keys from certificates are kept if their
    /// certificates would still be accepted.
    fn set_trust(&mut self, trust: &Trust, configured: &[(NodeId, PublicKey)], wall_ns: u64);

    /// Forgets certificates that have expired at `wall_ns`; returns their nodes.
    fn expire(&mut self, wall_ns: u64) -> Vec<NodeId>;

    /// Handles the removal of all records of `origin`: a key from an introduction may be forgotten,
    /// a configured one stays.
    fn forget(&mut self, origin: NodeId);
}

/// The private key of this node.
pub trait Signer: fmt::Debug + Send {
    /// Signs `message` with this node's key.
    fn sign(&self, message: &[u8]) -> Signature;
}

/// For unsealed overlays: every record is accepted, and zeros replace signatures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsigned;

impl Keys for Unsigned {
    fn knows(&self, _origin: NodeId) -> bool {
        true
    }

    fn verify(&self, _origin: NodeId, _message: &[u8], _signature: &Signature) -> bool {
        true
    }

    fn introduce(
        &mut self,
        _origin: NodeId,
        _certificate: &[u8],
        _message: &[u8],
        _signature: &Signature,
        _wall_ns: u64,
    ) -> Result<(), RefusedRecord> {
        Ok(())
    }

    fn set_trust(&mut self, _: &Trust, _: &[(NodeId, PublicKey)], _: u64) {}

    fn expire(&mut self, _wall_ns: u64) -> Vec<NodeId> {
        Vec::new()
    }

    fn forget(&mut self, _origin: NodeId) {}
}

impl Signer for Unsigned {
    fn sign(&self, _message: &[u8]) -> Signature {
        [0; 64]
    }
}
