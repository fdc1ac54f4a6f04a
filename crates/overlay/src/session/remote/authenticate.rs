//! Mutual authentication and key agreement of a client and its node.

use super::keys::Keys;
use super::wire::{INITIATION, RESPONSE, Token};
use crate::identity::mac::MAC;
use crate::identity::noise::{FIRST_OVERHEAD, Handshake, REMOTE, SECOND_OVERHEAD, Static};
use crate::identity::{Identity, MacKey, PublicKey};
use crate::session::wire::RefusalReason;
use core::net::SocketAddr;
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use trunkline_base::{Pacer, PerSource, Rate, Time};

/// Bytes before Noise's first message: the type, and the first half of HMAC-SHA256 with the node's
/// public key.
const HEAD: usize = 1 + MAC;

/// A client's handshake in progress.
#[derive(Debug)]
pub struct Opening(Handshake);

impl Opening {
    /// Begins to authenticate as `identity` to the node with the key `node`. Returns the first
    /// message to send. `entropy` is from a cryptographic generator, new for each handshake. `None`
    /// if `node` is not a valid key.
    pub fn begin(
        identity: &Identity,
        node: &PublicKey,
        entropy: [u8; 32],
    ) -> Option<(Opening, Vec<u8>)> {
        let key = node.dh()?;
        let mut rng = ChaCha20Rng::from_seed(entropy);
        let mut handshake = Static::new(identity, REMOTE).initiate(&key, &mut rng).ok()?;
        let mut message = vec![0; HEAD];
        message[0] = INITIATION;
        // The payload is empty so far; a newer client may use it.
        message.extend(handshake.write(&[]).ok()?);
        MacKey::for_remote(&key).stamp(&mut message);
        Some((Opening(handshake), message))
    }

    /// Processes the node's answer. `None` if it is not from the intended node.
    pub fn finish(mut self, response: &[u8]) -> Option<(Token, Keys)> {
        let payload = self.0.read(response.get(1..)?).ok()?;
        let token = Token(u64::from_be_bytes(*payload.first_chunk()?));
        let [forth, back] = self.0.split().ok()?;
        Some((token, Keys::new(&forth, &back)?))
    }
}

/// Limits on the work that handshakes can cause at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Rate of handshakes from one address (IPv6: one /64).
    pub source: Rate,
    /// Rate of handshakes from all addresses.
    pub total: Rate,
    /// Maximum number of addresses remembered.
    pub sources: usize,
}

impl Default for Limits {
    /// One handshake takes a node 0.6 ms, unoptimised, as measured by the test `remote_cost`. A
    /// thousand clients behind one address may return at once when their node restarts; after that,
    /// one address may cost 6 % of a processor, and all together 30 %.
    fn default() -> Limits {
        Limits { source: Rate::new(100, 1_024), total: Rate::new(500, 1_024), sources: 4_096 }
    }
}

/// A handshake that a node has answered.
#[derive(Debug)]
pub struct Answered {
    /// Number of the client in the list of clients. It is not confirmed yet: its message may be a
    /// copy, until another arrives that the keys open.
    pub client: u16,
    /// The message to send in response.
    pub response: Vec<u8>,
    /// Keys for all later messages.
    pub keys: Keys,
}

/// A node's side of all client handshakes.
pub struct Responder {
    own: Static,
    mac: MacKey,
    /// Clients by key, sorted.
    clients: Vec<([u8; 32], u16)>,
    rng: ChaCha20Rng,
    sources: PerSource,
    total: Pacer,
}

impl Responder {
    /// Creates the responder of the node with this identity, which admits the holders of `clients`'
    /// keys; of equal ones the first counts. `entropy` is from a cryptographic generator.
    pub fn new(
        identity: &Identity,
        clients: &[PublicKey],
        limits: Limits,
        entropy: [u8; 32],
    ) -> Responder {
        let own = Static::new(identity, REMOTE);
        let known = clients.iter().zip(0..).filter_map(|(key, i)| Some((key.dh()?.0, i)));
        let mut clients: Vec<_> = known.collect();
        clients.sort_unstable();
        clients.dedup_by_key(|(key, _)| *key);
        Responder {
            mac: MacKey::for_remote(&own.public()),
            own,
            clients,
            rng: ChaCha20Rng::from_seed(entropy),
            sources: PerSource::new(limits.sources, limits.source),
            total: Pacer::of(limits.total),
        }
    }

    /// Checks whether `initiation`, which arrived from `from`, may be answered once
    /// [`Responder::is_free`]. Costs one hash.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::WrongKey`] if it is for another node, [`RefusalReason::Busy`] if too many arrive from
    /// that address.
    pub fn check(
        &mut self,
        now: Time,
        from: SocketAddr,
        initiation: &[u8],
    ) -> Result<(), RefusalReason> {
        if initiation.len() < HEAD + FIRST_OVERHEAD || !self.mac.check(initiation) {
            return Err(RefusalReason::WrongKey);
        }
        match self.sources.admit(now, from) {
            true => Ok(()),
            false => Err(RefusalReason::Busy),
        }
    }

    /// Whether the next handshake may be answered now; if true, the caller must answer one.
    pub fn is_free(&mut self, now: Time) -> bool {
        self.total.admit(now, 1)
    }

    /// Answers an initiation; its client will use `token`. Costs five multiplications on the curve
    /// if the client is known, two if not.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::WrongKey`] if it is forged, [`RefusalReason::UnknownClient`] if the client is not in
    /// the list.
    pub fn answer(&mut self, initiation: &[u8], token: Token) -> Result<Answered, RefusalReason> {
        let forged = |_| RefusalReason::WrongKey;
        let mut handshake = self.own.respond(&mut self.rng).map_err(forged)?;
        handshake.read(initiation.get(HEAD..).unwrap_or_default()).map_err(forged)?;
        let key = handshake.peer().ok_or(RefusalReason::WrongKey)?.0;
        let found = self.clients.binary_search_by_key(&key, |(key, _)| *key);
        let (_, client) = self.clients[found.map_err(|_| RefusalReason::UnknownClient)?];
        let mut response = Vec::with_capacity(1 + SECOND_OVERHEAD + 8);
        response.push(RESPONSE);
        response.extend(handshake.write(&token.0.to_be_bytes()).map_err(forged)?);
        let [forth, back] = handshake.split().map_err(forged)?;
        let keys = Keys::new(&back, &forth).ok_or(RefusalReason::WrongKey)?;
        Ok(Answered { client, response, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{FromClient, FromNode};
    use super::*;
    use proptest::prelude::*;

    fn identity(n: u8) -> Identity {
        Identity::from_secret(&[n; 32])
    }

    /// Node 1, which has 2 and 3 as clients.
    fn node() -> Responder {
        let clients = [identity(2).public(), identity(3).public()];
        Responder::new(&identity(1), &clients, Limits::default(), [9; 32])
    }

    fn begin(who: u8, node: u8) -> (Opening, Vec<u8>) {
        Opening::begin(&identity(who), &identity(node).public(), [who; 32]).unwrap()
    }

    fn from(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 7))
    }

    #[test]
    fn both_ends_know_each_other_and_have_the_same_keys() {
        let (mut node, token) = (node(), Token(77));
        for (who, client) in [(2, 0), (3, 1)] {
            let (opening, first) = begin(who, 1);
            assert_eq!(FromClient::parse(&first), Ok(FromClient::Initiation(&first)));
            assert_eq!(node.check(Time::ZERO, from(1), &first), Ok(()));
            let answered = node.answer(&first, token).unwrap();
            assert_eq!(answered.client, client);
            let response = answered.response;
            assert_eq!(FromNode::parse(&response), Ok(FromNode::Response(&response)));
            let (given, mut there) = opening.finish(&response).unwrap();
            assert_eq!(given, token);
            let mut here = answered.keys;
            let crosses = |a: &mut Keys, b: &mut Keys| {
                let mut out = Vec::new();
                assert!(a.seal_frame([b"word", b"s"], &mut out));
                let (len, sealed) = out.split_first_chunk_mut().unwrap();
                assert_eq!(b.open_frame(*len, sealed), Some(5));
                assert_eq!(&sealed[..5], b"words");
            };
            crosses(&mut there, &mut here);
            crosses(&mut here, &mut there);
        }
    }

    #[test]
    fn each_mistake_has_its_refusal() {
        let mut node = node();
        let wrong = begin(2, 5).1;
        assert_eq!(node.check(Time::ZERO, from(1), &wrong), Err(RefusalReason::WrongKey));
        let unknown_peer = begin(4, 1).1;
        assert_eq!(node.check(Time::ZERO, from(1), &unknown_peer), Ok(()));
        let refused = node.answer(&unknown_peer, Token(1)).unwrap_err();
        assert_eq!(refused, RefusalReason::UnknownClient);
        // An attacker with the node's public key can make the MAC, but nothing else.
        let (_, mut first) = begin(2, 1);
        let last = first.len() - 1;
        first[last] ^= 1;
        assert_eq!(node.check(Time::ZERO, from(1), &first), Err(RefusalReason::WrongKey));
        node.mac.stamp(&mut first);
        assert_eq!(node.check(Time::ZERO, from(1), &first), Ok(()));
        assert_eq!(node.answer(&first, Token(1)).unwrap_err(), RefusalReason::WrongKey);
        let key = PublicKey([0; 32]);
        assert!(Opening::begin(&identity(2), &key, [0; 32]).is_none());
    }

    #[test]
    fn the_node_that_answers_is_the_one_that_was_meant() {
        let (opening, first) = begin(2, 1);
        let clients = [identity(2).public()];
        // Has seen every message, but lacks the node's secret.
        let mut thief = Responder::new(&identity(5), &clients, Limits::default(), [9; 32]);
        assert!(thief.answer(&first, Token(1)).is_err());
        let response = node().answer(&begin(3, 1).1, Token(1)).unwrap().response;
        assert!(opening.finish(&response).is_none(), "an answer to somebody else");
    }

    #[test]
    fn a_copied_handshake_yields_other_keys() {
        let (mut node, (opening, first)) = (node(), begin(2, 1));
        let (true_one, copy) = (node.answer(&first, Token(1)), node.answer(&first, Token(2)));
        let (_, mut keys) = opening.finish(&true_one.unwrap().response).unwrap();
        let mut out = Vec::new();
        assert!(keys.seal_frame([b"word", b""], &mut out));
        let (len, sealed) = out.split_first_chunk_mut().unwrap();
        assert_eq!(copy.unwrap().keys.open_frame(*len, sealed), None);
    }

    #[test]
    fn one_address_does_not_use_up_what_is_for_all() {
        let limits = Limits {
            source: Rate { per_second: 10, burst: 20 },
            total: Rate { per_second: 50, burst: 50 },
            sources: 8,
        };
        let mut node = Responder::new(&identity(1), &[identity(2).public()], limits, [9; 32]);
        let first = begin(2, 1).1;
        let now = Time::from_millis(1_000);
        let checked = (0..100).filter(|_| node.check(now, from(1), &first).is_ok()).count();
        assert_eq!(checked, 20);
        assert_eq!(node.check(now, from(1), &first), Err(RefusalReason::Busy));
        assert_eq!(node.check(now, from(2), &first), Ok(()));
        assert_eq!((0..100).filter(|_| node.is_free(now)).count(), 50);
        // A malformed message uses up none of the budget.
        assert_eq!(node.check(now, from(1), &first[1..]), Err(RefusalReason::WrongKey));
        assert!(node.is_free(now + core::time::Duration::from_millis(20)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut node = node();
            prop_assert!(node.check(Time::ZERO, from(1), &bytes).is_err());
            prop_assert!(node.answer(&bytes, Token(1)).is_err());
            prop_assert!(begin(2, 1).0.finish(&bytes).is_none());
        }

        #[test]
        fn altered_messages_are_refused(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (mut node, (opening, mut first)) = (node(), begin(2, 1));
            let mut response = node.answer(&first, Token(1)).unwrap().response;
            // Except for the type, which determines how the message is read.
            *at.get_mut(&mut response[1..]) ^= 1 << bit;
            prop_assert!(opening.finish(&response).is_none());
            *at.get_mut(&mut first[..]) ^= 1 << bit;
            prop_assert!(node.check(Time::ZERO, from(1), &first).is_err());
        }
    }
}
