//! A cheap check of a message that comes before anything expensive is computed for it.

use super::key::{DhKey, PublicKey};
use core::fmt;
use ring::hmac;
use subtle::ConstantTimeEq;

/// Bytes of a MAC: half of HMAC-SHA256.
pub(crate) const MAC: usize = 16;

/// A key of the cheap check, derived once from a node's or operator's key.
#[derive(Clone)]
pub struct MacKey(hmac::Key);

impl MacKey {
    /// Key for initiations and responses to the node with this public key; `None` if that is not a
    /// valid key.
    pub fn for_node(key: &PublicKey) -> Option<MacKey> {
        key.dh().map(|key| MacKey::for_dh(&key))
    }

    /// Key for attaching, from another host, to the node with this public key.
    pub(crate) fn for_remote(key: &DhKey) -> MacKey {
        MacKey::new(b"trunkline attach", &key.0)
    }

    pub(crate) fn for_dh(key: &DhKey) -> MacKey {
        MacKey::new(b"trunkline initiation", &key.0)
    }

    /// Key for queries to the nodes that this overlay key certifies.
    pub fn for_overlay(key: &PublicKey) -> MacKey {
        MacKey::new(b"trunkline query", &key.0)
    }

    fn new(label: &[u8], public: &[u8]) -> MacKey {
        let outer = hmac::Key::new(hmac::HMAC_SHA256, label);
        MacKey(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&outer, public).as_ref()))
    }

    fn of(&self, message: &[u8]) -> [u8; MAC] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(message.get(..1).unwrap_or(&[]));
        context.update(message.get(1 + MAC..).unwrap_or(&[]));
        first_half(&context.sign())
    }

    /// Whether the MAC of `message` was made with this key.
    pub fn check(&self, message: &[u8]) -> bool {
        let mac = message.get(1..1 + MAC).unwrap_or(&[]);
        self.of(message)[..].ct_eq(mac).into()
    }

    /// Writes the MAC into `message`, after all its other bytes are in place.
    pub fn stamp(&self, message: &mut [u8]) {
        let mac = self.of(message);
        if let Some(place) = message.get_mut(1..1 + MAC) {
            place.copy_from_slice(&mac);
        }
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey")
    }
}

pub(crate) fn first_half(tag: &hmac::Tag) -> [u8; 16] {
    tag.as_ref().first_chunk().copied().unwrap_or_default()
}
