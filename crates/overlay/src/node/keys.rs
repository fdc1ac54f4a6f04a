//! Keys that verify the signatures of link-state updates.

use crate::identity::{Certificate, Identity, PublicKey, Trust};
use crate::route::{Keys, RefusedRecord, Signature, Signer};
use crate::wire::NodeId;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

/// Keys configured by the operator, and keys from certificates.
#[derive(Debug)]
pub(super) struct KeyRing {
    trust: Trust,
    configured: BTreeMap<NodeId, PublicKey>,
    certified: BTreeMap<NodeId, Certificate>,
}

impl KeyRing {
    /// Creates a key ring with the `configured` keys; others are learnt from certificates.
    pub fn new(trust: Trust, configured: impl IntoIterator<Item = (NodeId, PublicKey)>) -> KeyRing {
        let configured = configured.into_iter().collect();
        KeyRing { trust, configured, certified: BTreeMap::new() }
    }

    fn key(&self, origin: NodeId) -> Option<PublicKey> {
        let certified = || self.certified.get(&origin).map(Certificate::key);
        let key = self.configured.get(&origin).copied().or_else(certified)?;
        (!self.trust.revoked.contains(&key)).then_some(key)
    }
}

impl Keys for KeyRing {
    fn knows(&self, origin: NodeId) -> bool {
        self.key(origin).is_some()
    }

    fn verify(&self, origin: NodeId, message: &[u8], signature: &Signature) -> bool {
        self.key(origin).is_some_and(|key| key.verify(message, signature))
    }

    fn introduce(
        &mut self,
        origin: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &Signature,
        wall_ns: u64,
    ) -> Result<(), RefusedRecord> {
        let certificate =
            Certificate::parse(certificate).map_err(|_| RefusedRecord::BadCertificate)?;
        let key = certificate.key();
        let is_it = certificate.node() == origin
            && !self.trust.revoked.contains(&key)
            && self.configured.get(&origin).is_none_or(|configured| *configured == key);
        if !is_it || certificate.verify(&self.trust.overlay_keys, wall_ns / SECOND).is_err() {
            return Err(RefusedRecord::BadCertificate);
        }
        if !key.verify(message, signature) {
            return Err(RefusedRecord::BadSignature);
        }
        self.certified.insert(origin, certificate);
        Ok(())
    }

    fn set_trust(&mut self, trust: &Trust, configured: &[(NodeId, PublicKey)], wall_ns: u64) {
        let others = trust.overlay_keys != self.trust.overlay_keys;
        self.trust = trust.clone();
        self.configured = configured.iter().copied().collect();
        if others {
            let (keys, now) = (&self.trust.overlay_keys, wall_ns / SECOND);
            self.certified.retain(|_, certificate| certificate.verify(keys, now).is_ok());
        }
    }

    fn expire(&mut self, wall_ns: u64) -> Vec<NodeId> {
        let over = self.certified.iter().filter(|(_, c)| c.is_over(wall_ns / SECOND));
        let over: Vec<NodeId> = over.map(|(&origin, _)| origin).collect();
        for origin in &over {
            self.certified.remove(origin);
        }
        over
    }

    fn forget(&mut self, origin: NodeId) {
        self.certified.remove(&origin);
    }
}

impl Signer for Identity {
    fn sign(&self, message: &[u8]) -> Signature {
        Identity::sign(self, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_introduces_its_node_and_no_other() {
        let identity = |n| Identity::from_secret(&[n; 32]);
        let (overlay, a, b) = (identity(1), identity(2), identity(3));
        let (ida, idb) = (NodeId(5), NodeId(6));
        let issue = |node, key: &Identity, until| {
            Certificate::issue(&overlay, node, "x", key.public(), until).unwrap().to_bytes()
        };
        let trust = |revoked| Trust { overlay_keys: vec![overlay.public()], revoked };
        let ring = |revoked| KeyRing::new(trust(revoked), [(idb, b.public())]);
        let second = 1_000_000_000;
        let introduce = |ring: &mut KeyRing, node, certificate: &[u8], by: &Identity| {
            ring.introduce(node, certificate, b"m", &Identity::sign(by, b"m"), 100 * second)
        };

        let mut r = ring(vec![]);
        assert!(!r.knows(ida) && r.knows(idb));
        assert_eq!(introduce(&mut r, ida, &issue(ida, &a, 0), &a), Ok(()));
        assert!(r.verify(ida, b"n", &Identity::sign(&a, b"n")));
        assert!(!r.verify(ida, b"n", &Identity::sign(&b, b"n")));
        r.forget(ida);
        assert!(!r.knows(ida));

        let bad = Err(RefusedRecord::BadCertificate);
        assert_eq!(introduce(&mut r, idb, &issue(ida, &a, 0), &a), bad, "another node's");
        assert_eq!(
            introduce(&mut r, idb, &issue(idb, &a, 0), &a),
            bad,
            "another key is configured"
        );
        assert_eq!(introduce(&mut r, ida, &issue(ida, &a, 99), &a), bad, "over");
        assert_eq!(introduce(&mut ring(vec![a.public()]), ida, &issue(ida, &a, 0), &a), bad);
        let forged = Err(RefusedRecord::BadSignature);
        assert_eq!(introduce(&mut r, ida, &issue(ida, &a, 0), &b), forged);
        assert!(!ring(vec![b.public()]).knows(idb), "revoked, though configured");
        // The operator's old key is removed; configured keys stay.
        assert_eq!(introduce(&mut r, ida, &issue(ida, &a, 0), &a), Ok(()));
        r.set_trust(&trust(vec![]), &[(idb, b.public())], 100 * second);
        assert!(r.knows(ida) && r.knows(idb), "nothing has changed");
        let other = Trust { overlay_keys: vec![identity(9).public()], revoked: vec![] };
        r.set_trust(&other, &[(idb, b.public())], 100 * second);
        assert!(!r.knows(ida) && r.knows(idb));
    }
}
