//! Sealing of a connection between a client and its node, once they have agreed on keys.

use super::wire::{DATAGRAM_HEAD, PREFIX, TAG, prefix};
use core::fmt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

/// Messages that one key seals; the connection then has to be made again. That is sixteen months of
/// a call, and below the 2³⁵ datagrams of this size after which an attacker gains a chance of 2⁻⁵⁰
/// on AES-GCM (RFC 9001, B.1.1, scaled).
const MAX_SEALED: u64 = 1 << 31;

/// The keys of one end. Not `Clone`: a key with a restarted count would use a nonce twice.
pub struct Keys {
    stream_out: LessSafeKey,
    stream_in: LessSafeKey,
    datagrams_out: LessSafeKey,
    datagrams_in: LessSafeKey,
    /// Number of messages sent over TCP.
    sent: u64,
    received: u64,
}

impl fmt::Debug for Keys {
    /// Formats nothing of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} out, {} in)", self.sent, self.received)
    }
}

/// A secret for each direction.
type Secret = Zeroizing<[u8; 32]>;

impl Keys {
    /// Derives the keys from a handshake's secrets for sending (`out`) and receiving (`back`).
    pub(super) fn new(out: &Secret, back: &Secret) -> Option<Keys> {
        Some(Keys {
            stream_out: derived(out, b"tcp")?,
            stream_in: derived(back, b"tcp")?,
            datagrams_out: derived(out, b"udp")?,
            datagrams_in: derived(back, b"udp")?,
            sent: 0,
            received: 0,
        })
    }

    /// Appends to `out` the frame of the message made of `parts`: its length, the message, the tag.
    /// False if no more may be sealed.
    #[must_use = "nothing was sealed if false"]
    pub fn seal_frame(&mut self, parts: [&[u8]; 2], out: &mut Vec<u8>) -> bool {
        if self.sent >= MAX_SEALED {
            return false;
        }
        let len = prefix(parts.iter().map(|part| part.len()).sum::<usize>() + TAG);
        out.extend_from_slice(&len);
        let start = out.len();
        parts.iter().for_each(|part| out.extend_from_slice(part));
        let (nonce, aad) = (nonce(self.sent), Aad::from(len));
        self.sent += 1;
        match self.stream_out.seal_in_place_separate_tag(nonce, aad, &mut out[start..]) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => out.truncate(start - PREFIX),
        }
        out.len() > start
    }

    /// Opens in place the bytes that followed the length `len` on TCP. Returns the length of the
    /// message, which is never 0; `None` if it was altered or is not the next one, which makes the
    /// stream useless.
    pub fn open_frame(&mut self, len: [u8; PREFIX], sealed: &mut [u8]) -> Option<usize> {
        let nonce = nonce(self.received);
        self.received = self.received.checked_add(1)?;
        open(&self.stream_in, nonce, &len, sealed).filter(|len| *len > 0)
    }

    /// Seals the message of a datagram with this head in place, and returns its tag; `None` if no
    /// more may be sealed. Each head may be used for only one datagram.
    pub fn seal_datagram(
        &self,
        head: &[u8; DATAGRAM_HEAD],
        message: &mut [u8],
    ) -> Option<[u8; TAG]> {
        let counter = counter_of(head).filter(|n| *n < MAX_SEALED)?;
        let aad = Aad::from(&head[..]);
        let tag =
            self.datagrams_out.seal_in_place_separate_tag(nonce(counter), aad, message).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Opens a datagram in place and returns its length without the tag. `None` if it was not
    /// sealed by the other end. Replayed datagrams open as well: see
    /// [`Peer::is_news`](super::Peer::is_news).
    pub fn open_datagram(&self, datagram: &mut [u8]) -> Option<usize> {
        let (head, sealed) = datagram.split_first_chunk_mut::<DATAGRAM_HEAD>()?;
        let nonce = nonce(counter_of(head)?);
        open(&self.datagrams_in, nonce, head, sealed).map(|len| DATAGRAM_HEAD + len)
    }
}

fn open(key: &LessSafeKey, nonce: Nonce, aad: &[u8], sealed: &mut [u8]) -> Option<usize> {
    let (message, tag) = sealed.split_last_chunk_mut::<TAG>()?;
    let tag = (*tag).into();
    let opened = key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, message, 0..);
    opened.ok().map(|message| message.len())
}

fn derived(secret: &Secret, purpose: &[u8]) -> Option<LessSafeKey> {
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret[..]), purpose);
    UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
}

fn counter_of(head: &[u8; DATAGRAM_HEAD]) -> Option<u64> {
    head.last_chunk().map(|counter| u64::from_be_bytes(*counter))
}

/// The nonce for a counter: four zero bytes, then the counter. AES-GCM requires that no nonce is
/// used twice with one key, so callers must not use a counter twice.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Datagram, Token};
    use super::super::{Backlog, FrameReader};
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (Keys, Keys) {
        let (a, b) = (Zeroizing::new([1; 32]), Zeroizing::new([2; 32]));
        (Keys::new(&a, &b).unwrap(), Keys::new(&b, &a).unwrap())
    }

    /// Reads `stream` in pieces of `piece` bytes; returns the messages, and whether the stream was
    /// valid to its end.
    fn read(stream: &[u8], keys: &mut Keys, piece: usize) -> (Vec<Vec<u8>>, bool) {
        let (mut reader, mut got) = (FrameReader::default(), Vec::new());
        let mut rest = stream;
        while !rest.is_empty() {
            let room = reader.room();
            let n = room.len().min(rest.len()).min(piece);
            room[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            match reader.filled(n).map(|message| message.is_some()) {
                Ok(false) => {}
                Ok(true) if reader.open(keys) => got.push(reader.whole().unwrap().to_vec()),
                _ => return (got, false),
            }
        }
        (got, true)
    }

    proptest! {
        #[test]
        fn messages_cross_whole_and_in_order_or_the_stream_breaks(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..12),
            piece in 1usize..200, at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let ((mut a, mut b), mut out) = (pair(), Backlog::default());
            for m in &messages {
                let (head, payload) = m.split_at(m.len() / 2);
                prop_assert!(out.seal(&mut a, [head, payload]));
            }
            let mut stream = out.rest().to_vec();
            prop_assert_eq!(read(&stream, &mut b, piece), (messages.clone(), true));
            // If any one bit is flipped, the messages before it are genuine, and no others are
            // read. (A length that grew leaves the reader waiting.)
            *at.get_mut(&mut stream[..]) ^= 1 << bit;
            let (got, _) = read(&stream, &mut pair().1, piece);
            prop_assert!(got.len() < messages.len() && messages.starts_with(&got));
        }

        #[test]
        fn datagrams_open_as_they_were_sealed_and_no_others(
            message in prop::collection::vec(any::<u8>(), 0..200), counter in 0..MAX_SEALED,
            at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(),
        ) {
            let (a, b) = pair();
            let head = Datagram { token: Token(7), counter, message: &[] }.head();
            let mut sealed = message.clone();
            let tag = a.seal_datagram(&head, &mut sealed).unwrap();
            let datagram = [&head[..], &sealed, &tag].concat();
            let mut opened = datagram.clone();
            prop_assert_eq!(b.open_datagram(&mut opened), Some(DATAGRAM_HEAD + message.len()));
            prop_assert_eq!(&opened[DATAGRAM_HEAD..][..message.len()], &message[..]);
            prop_assert_eq!(a.open_datagram(&mut datagram.clone()), None, "an echo");
            let mut altered = datagram.clone();
            *at.get_mut(&mut altered[..]) ^= 1 << bit;
            prop_assert_eq!(b.open_datagram(&mut altered), None);
            prop_assert_eq!(b.open_datagram(&mut datagram[..cut.index(datagram.len())].to_vec()), None);
        }
    }

    #[test]
    fn a_frame_is_good_once_and_in_its_place_only() {
        let ((mut a, mut b), mut out) = (pair(), Vec::new());
        assert!(a.seal_frame([b"one", b""], &mut out));
        let first = out.clone();
        assert_eq!(
            read(&[&first[..], &first].concat(), &mut b, 99),
            (vec![b"one".to_vec()], false)
        );
        assert!(a.seal_frame([b"two", b""], &mut out));
        assert_eq!(read(&out[first.len()..], &mut pair().1, 99), (vec![], false), "skipped");
        assert_eq!(read(&first, &mut pair().0, 99), (vec![], false), "an echo");
    }

    #[test]
    fn tcp_and_udp_have_keys_of_their_own() {
        let ((mut a, b), mut out) = (pair(), Vec::new());
        assert!(a.seal_frame([b"", &[0; 20]], &mut out));
        let head = Datagram { token: Token(0), counter: 0, message: &[] }.head();
        let mut datagram = [0; 20];
        a.seal_datagram(&head, &mut datagram).unwrap();
        assert_ne!(out[PREFIX..][..20], datagram, "the same nonce, another key stream");
        assert_eq!(b.open_datagram(&mut [&head[..], &out[PREFIX..]].concat()), None);
    }

    #[test]
    fn a_key_bears_so_many_messages() {
        let ((mut a, _), mut out) = (pair(), Vec::new());
        a.sent = MAX_SEALED - 1;
        assert!(a.seal_frame([b"x", b""], &mut out));
        let len = out.len();
        assert!(!a.seal_frame([b"x", b""], &mut out));
        assert_eq!(out.len(), len, "nothing in the clear");
        let head = |counter| Datagram { token: Token(0), counter, message: &[] }.head();
        assert!(a.seal_datagram(&head(MAX_SEALED - 1), &mut [0; 4]).is_some());
        assert!(a.seal_datagram(&head(MAX_SEALED), &mut [0; 4]).is_none());
    }
}
