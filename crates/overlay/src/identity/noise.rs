//! Noise_IK_25519_AESGCM_SHA256 (noiseprotocol.org, revision 34, 7.5) on top of `snow`, with this
//! crate's primitives: those of `snow` would fetch entropy on their own.

use super::key::{DhKey, Identity, KEY_LEN};
use curve25519_dalek::MontgomeryPoint;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, SeedableRng};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, Zeroizing};

const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";
/// Purpose of a handshake: both ends mix it into every hash, so that a message of one kind cannot
/// pass for one of the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prologue(&'static [u8]);

/// Handshakes between neighbouring nodes.
pub(crate) const NEIGHBOURS: Prologue = Prologue(b"trunkline handshake 1");
/// Handshakes between an application on another host and its node.
pub(crate) const REMOTE: Prologue = Prologue(b"trunkline remote 1");
const TAG: usize = 16;

/// Bytes that the first message adds to its payload: e 32, s 32 + 16, tag 16.
pub(crate) const FIRST_OVERHEAD: usize = 32 + 32 + TAG + TAG;
/// Bytes that the second message adds to its payload: e 32, tag 16.
pub(crate) const SECOND_OVERHEAD: usize = 32 + TAG;

/// The handshake failed: the message was forged, altered, or meant for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed;

impl From<snow::Error> for Failed {
    fn from(_: snow::Error) -> Failed {
        Failed
    }
}

/// One end of a handshake in progress.
pub(crate) struct Handshake(HandshakeState);

impl core::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handshake")
    }
}

/// A node's static key, prepared for any number of handshakes.
#[derive(Clone)]
pub(crate) struct Static {
    secret: Zeroizing<[u8; KEY_LEN]>,
    public: DhKey,
    prologue: Prologue,
}

impl Static {
    pub fn new(identity: &Identity, prologue: Prologue) -> Static {
        Static { secret: identity.dh_secret(), public: identity.dh_public(), prologue }
    }

    pub fn public(&self) -> DhKey {
        self.public
    }

    /// Starts a handshake with the owner of `peer`.
    pub fn initiate(&self, peer: &DhKey, rng: &mut ChaCha20Rng) -> Result<Handshake, Failed> {
        let builder = self.builder(rng)?.remote_public_key(&peer.0)?;
        Ok(Handshake(builder.build_initiator()?))
    }

    /// Prepares the responding end, before the first message has been read.
    pub fn respond(&self, rng: &mut ChaCha20Rng) -> Result<Handshake, Failed> {
        Ok(Handshake(self.builder(rng)?.build_responder()?))
    }

    fn builder(&self, rng: &mut ChaCha20Rng) -> Result<Builder<'_>, Failed> {
        let params: NoiseParams = PATTERN.parse()?;
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        let primitives = Primitives { own: self.clone(), seed };
        let builder = Builder::with_resolver(params, Box::new(primitives));
        Ok(builder.prologue(self.prologue.0)?.local_private_key(&self.secret[..])?)
    }
}

impl Handshake {
    /// Encrypts `payload` as this end's message.
    pub fn write(&mut self, payload: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut out = vec![0; payload.len() + FIRST_OVERHEAD];
        let n = self.0.write_message(payload, &mut out)?;
        out.truncate(n);
        Ok(out)
    }

    /// Decrypts the other end's `message` and returns its payload.
    pub fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut out = vec![0; message.len()];
        let n = self.0.read_message(message, &mut out)?;
        out.truncate(n);
        Ok(out)
    }

    /// The other end's static key, once known.
    pub fn peer(&self) -> Option<DhKey> {
        self.0.get_remote_static().and_then(|key| key.try_into().ok()).map(DhKey)
    }

    /// The keys of a finished handshake: initiator to responder, then responder to initiator.
    pub fn split(mut self) -> Result<[Zeroizing<[u8; KEY_LEN]>; 2], Failed> {
        if !self.0.is_handshake_finished() {
            return Err(Failed);
        }
        let (forth, back) = self.0.dangerously_get_raw_split();
        Ok([Zeroizing::new(forth), Zeroizing::new(back)])
    }
}

struct Primitives {
    own: Static,
    /// Seed of a generator used for one handshake only.
    seed: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Entropy(ChaCha20Rng::from_seed(*self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let own = self.own.clone();
        let blank = X25519 { own, secret: Zeroizing::new([0; 32]), public: [0; 32] };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(blank) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        let fresh = || Box::new(Sha256(digest::Context::new(&digest::SHA256))) as Box<dyn Hash>;
        matches!(choice, HashChoice::SHA256).then(fresh)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm(None)) as Box<dyn Cipher>)
    }
}

struct Entropy(ChaCha20Rng);

impl Random for Entropy {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

struct X25519 {
    own: Static,
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl X25519 {
    fn take(&mut self, secret: Zeroizing<[u8; 32]>) {
        // The node's own public key is already computed: that saves a multiplication.
        self.public = if *secret == *self.own.secret {
            self.own.public.0
        } else {
            MontgomeryPoint::mul_base_clamped(*secret).to_bytes()
        };
        self.secret = secret;
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, secret: &[u8]) {
        let mut own = Zeroizing::new([0; 32]);
        let n = secret.len().min(32);
        own[..n].copy_from_slice(&secret[..n]);
        self.take(own);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        let mut secret = Zeroizing::new([0; 32]);
        rng.try_fill_bytes(&mut secret[..])?;
        self.take(secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.secret[..]
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let point = public.first_chunk::<32>().ok_or(snow::Error::Dh)?;
        let shared = MontgomeryPoint(*point).mul_clamped(*self.secret).to_bytes();
        // With a point of small order the result no longer depends on the secrets (RFC 7748, 6.1).
        if shared == [0; 32] {
            return Err(snow::Error::Dh);
        }
        out.get_mut(..32).ok_or(snow::Error::Dh)?.copy_from_slice(&shared);
        Ok(())
    }
}

struct Sha256(digest::Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = digest::Context::new(&digest::SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(self.0.clone().finish().as_ref());
    }
}

struct AesGcm(Option<LessSafeKey>);

impl AesGcm {
    /// Noise's nonce for AESGCM: four zero bytes, then the count, big-endian (12.4).
    fn nonce(count: u64) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&count.to_be_bytes());
        Nonce::assume_unique_for_key(bytes)
    }
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    // snow leaves room for the tag and has set a key. If it had not, a length of zero reports that,
    // and the other end refuses the message.
    fn encrypt(&self, count: u64, ad: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let n = plaintext.len();
        let (Some(key), true) = (&self.0, out.len() >= n + TAG) else { return 0 };
        out[..n].copy_from_slice(plaintext);
        let sealed =
            key.seal_in_place_separate_tag(Self::nonce(count), Aad::from(ad), &mut out[..n]);
        let Ok(tag) = sealed else { return 0 };
        out[n..n + TAG].copy_from_slice(tag.as_ref());
        n + TAG
    }

    fn decrypt(
        &self,
        count: u64,
        ad: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        let key = self.0.as_ref().ok_or(snow::Error::Decrypt)?;
        let mut buf = ciphertext.to_vec();
        let opened = key
            .open_in_place(Self::nonce(count), Aad::from(ad), &mut buf)
            .map_err(|_| snow::Error::Decrypt)?;
        let n = opened.len();
        out.get_mut(..n).ok_or(snow::Error::Decrypt)?.copy_from_slice(opened);
        buf.zeroize();
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_agree_and_know_each_other() {
        let (a, b) = (Identity::from_secret(&[1; 32]), Identity::from_secret(&[2; 32]));
        let (sa, sb) = (Static::new(&a, NEIGHBOURS), Static::new(&b, NEIGHBOURS));
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let mut there = sa.initiate(&b.public().dh().unwrap(), &mut rng).unwrap();
        let mut here = sb.respond(&mut rng).unwrap();
        let first = there.write(b"to b").unwrap();
        assert_eq!(first.len(), 4 + FIRST_OVERHEAD);
        assert_eq!(here.read(&first).unwrap(), b"to b");
        assert_eq!(here.peer(), Some(sa.public()));
        let second = here.write(b"to a").unwrap();
        assert_eq!(second.len(), 4 + SECOND_OVERHEAD);
        assert_eq!(there.read(&second).unwrap(), b"to a");
        assert_eq!(there.split().unwrap(), here.split().unwrap());
    }

    #[test]
    fn a_message_for_one_purpose_serves_no_other() {
        let identity = Identity::from_secret(&[1; 32]);
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let to = identity.dh_public();
        for (from, at, opens) in [(REMOTE, REMOTE, true), (REMOTE, NEIGHBOURS, false)] {
            let mut there = Static::new(&identity, from).initiate(&to, &mut rng).unwrap();
            let mut here = Static::new(&identity, at).respond(&mut rng).unwrap();
            assert_eq!(here.read(&there.write(&[]).unwrap()).is_ok(), opens);
        }
    }

    #[test]
    fn no_message_is_too_short_to_refuse() {
        let own = Static::new(&Identity::from_secret(&[1; 32]), NEIGHBOURS);
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        for n in 0..200 {
            assert_eq!(own.respond(&mut rng).unwrap().read(&vec![9; n]), Err(Failed));
        }
    }
}
