//! Observers of a running world: its digest, and its captures.

use crate::capture::{Capture, CaptureDirection, CaptureError, Datagram};
use core::net::{Ipv4Addr, SocketAddr};
use trunkline_base::Time;
use trunkline_net::{DropReason, Endpoint, Fate, Header, Observer};

/// Observes every datagram for the run's digest and for captures.
#[derive(Default)]
pub struct RunObserver {
    pub digest: Digest,
    pub datagrams: u64,
    /// Address of each vertex.
    addresses: Vec<Ipv4Addr>,
    directions: Vec<Direction>,
}

struct Direction {
    /// Whether it only carries the datagrams of a link, so that their ports are known.
    is_link: bool,
    /// Capture at the end where the direction begins, of both directions.
    capture: Option<Box<Capture>>,
}

impl RunObserver {
    /// Registers another vertex with its address.
    pub fn vertex(&mut self, address: Ipv4Addr) {
        self.addresses.push(address);
    }

    /// Registers another edge, which has two directions.
    pub fn edge(&mut self, is_link: bool) {
        self.directions.extend([is_link; 2].map(|is_link| Direction { is_link, capture: None }));
    }

    /// Starts a capture at the end where `direction` begins, and ends any earlier one there.
    pub fn capture(&mut self, direction: u32, capture: Capture) -> Result<(), CaptureError> {
        let here = &mut self.directions[direction as usize].capture;
        here.replace(Box::new(capture)).map_or(Ok(()), |old| old.finish())
    }

    /// Ends all captures, and returns the first error.
    pub fn finish_captures(&mut self) -> Result<(), CaptureError> {
        let captures = self.directions.iter_mut().filter_map(|d| d.capture.take());
        captures.map(|c| c.finish()).fold(Ok(()), Result::and)
    }

    /// Writes a datagram to the capture at the beginning of `end`.
    fn record(
        &mut self,
        now: Time,
        end: u32,
        passing: CaptureDirection,
        header: &Header,
        payload: &[u8],
        comment: Option<&'static str>,
    ) {
        let Some(capture) = &mut self.directions[end as usize].capture else { return };
        let address =
            |of: Endpoint| SocketAddr::from((self.addresses[of.vertex.0 as usize], of.port));
        let &Header { protocol, tos, number, .. } = header;
        let (from, to) = (address(header.from), address(header.to));
        let datagram = Datagram { from, to, protocol, tos, number, payload };
        capture.record(now, passing, &datagram, comment);
    }
}

impl Observer for RunObserver {
    fn sent(&mut self, now: Time, header: &Header, payload: &[u8], fate: Fate) {
        let direction = header.direction.0;
        let tos = match fate {
            Fate::Arrives(_, tos) | Fate::Dropped(_, tos) => tos,
            Fate::Open => header.tos,
        };
        self.datagrams += 1;
        self.digest.word(now.as_nanos());
        self.digest.word(u64::from(direction) | u64::from(tos) << 32);
        let wire = &self.directions[direction as usize];
        if wire.is_link {
            self.digest.bytes(payload);
        } else {
            self.digest.datagram(header.from.port, header.to.port, payload);
        }
        if wire.capture.is_some() {
            self.record(
                now,
                direction,
                CaptureDirection::Sent,
                header,
                payload,
                comment(fate, header.tos),
            );
        }
        if let Fate::Arrives(at, _) = fate {
            self.digest.word(at.as_nanos());
        }
    }

    fn arrived(&mut self, now: Time, header: &Header, payload: &[u8]) {
        let far = header.direction.back().0;
        if self.directions[far as usize].capture.is_some() {
            self.record(now, far, CaptureDirection::Received, header, payload, None);
        }
    }
}

/// Comment in the sender's capture on what will happen to a datagram.
fn comment(fate: Fate, sent_tos: u8) -> Option<&'static str> {
    match fate {
        Fate::Dropped(DropReason::Loss, _) => Some("lost on the wire"),
        Fate::Dropped(DropReason::Queue, _) => Some("dropped by the queue"),
        Fate::Dropped(..) => Some("dropped: too many packets in flight"),
        Fate::Arrives(_, tos) if tos != sent_tos => Some("marked by the queue"),
        Fate::Arrives(..) | Fate::Open => None,
    }
}

/// A hash like FNV-1a, but over 64-bit words, with four independent chains per datagram. It only
/// compares runs, and need not resist attacks.
pub struct Digest(u64);

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The rotation moves a word's high bits to the low ones, which the product alone does not.
fn mix(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
}

/// Reads up to eight bytes as a little-endian word, padded with zeros.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(whole) = bytes.try_into() {
        return u64::from_le_bytes(whole);
    }
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Default for Digest {
    fn default() -> Digest {
        Digest(BASIS)
    }
}

impl Digest {
    pub fn value(&self) -> u64 {
        self.0
    }

    fn word(&mut self, word: u64) {
        self.0 = mix(self.0, word);
    }

    /// Adds `bytes` to the hash.
    fn bytes(&mut self, bytes: &[u8]) {
        self.rest([BASIS; 4], bytes, bytes.len());
    }

    /// Adds the ports and then the payload as one string. The string is not assembled, because
    /// words that were just written in pieces are slow to read.
    fn datagram(&mut self, from: u16, to: u16, payload: &[u8]) {
        let ports = u32::from(from) << 16 | u32::from(to);
        let len = 4 + payload.len();
        let Some((head, rest)) = payload.split_first_chunk::<28>() else {
            let mut short = [0; 32];
            short[..4].copy_from_slice(&ports.to_be_bytes());
            short[4..len].copy_from_slice(payload);
            return self.bytes(&short[..len]);
        };
        let (low, words) = head.split_at(4);
        let first = word(low) << 32 | u64::from(ports.swap_bytes());
        let words = words.chunks_exact(8).map(word);
        let mut chains = [BASIS; 4];
        for (chain, word) in chains.iter_mut().zip(core::iter::once(first).chain(words)) {
            *chain = mix(*chain, word);
        }
        self.rest(chains, rest, len);
    }

    /// Continues the hash with `rest` from the state in `chains`; `len` is the total length in
    /// bytes.
    #[inline]
    fn rest(&mut self, mut chains: [u64; 4], rest: &[u8], len: usize) {
        let (blocks, last) = rest.as_chunks::<32>();
        for block in blocks {
            for (chain, bytes) in chains.iter_mut().zip(block.as_chunks::<8>().0) {
                *chain = mix(*chain, u64::from_le_bytes(*bytes));
            }
        }
        let mut words = last.chunks(8).map(word);
        for chain in &mut chains {
            *chain = mix(*chain, words.next().unwrap_or(0));
        }
        for chain in chains {
            self.word(chain);
        }
        self.word(len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_payload_are_one_string() {
        let string: Vec<u8> = (0..200).collect();
        for len in 4..string.len() {
            let (mut whole, mut parts) = (Digest::default(), Digest::default());
            whole.bytes(&string[..len]);
            parts.datagram(0x0001, 0x0203, &string[4..len]);
            assert_eq!(whole.value(), parts.value(), "{len} bytes");
        }
    }
}
