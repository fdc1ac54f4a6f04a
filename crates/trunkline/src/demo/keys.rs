//! Keys of the demo's overlay, which last as long as its temporary folder.

use super::Error;
use crate::keys::{KeyFileError, write_new};
use std::path::Path;
use trunkline_overlay::identity::{Certificate, Identity, PublicKey};
use trunkline_overlay::wire::NodeId;
use zeroize::Zeroizing;

/// The authority that certifies the nodes.
pub struct Operator(Identity);

fn new_identity() -> Result<Identity, Error> {
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(KeyFileError::Entropy)?;
    Ok(Identity::from_secret(&secret))
}

impl Operator {
    pub fn new() -> Result<Operator, Error> {
        new_identity().map(Operator)
    }

    /// Public key for `[overlay] keys`.
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// Creates a node's key and certificate files, as `keygen` and `certify` do.
    pub fn admit(&self, node: u32, name: &str, key: &Path, cert: &Path) -> Result<(), Error> {
        let identity = new_identity()?;
        let certificate = Certificate::issue(&self.0, NodeId(node), name, identity.public(), 0);
        let certificate = certificate.map_err(KeyFileError::from)?;
        write_new(key, &identity.secret_text(), 0o600)?;
        Ok(write_new(cert, &certificate.to_string(), 0o644)?)
    }
}
