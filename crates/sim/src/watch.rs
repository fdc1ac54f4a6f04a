//! What looks on while a world runs: its digest, and its captures.

use crate::capture::{Capture, CaptureError, Datagram, Passing};
use core::net::{Ipv4Addr, SocketAddr};
use trunkline_base::Time;
use trunkline_net::{DropReason, Endpoint, Fate, Header, Tap};

/// What looks on at every datagram: the run's digest, and captures.
#[derive(Default)]
pub struct Watch {
    pub digest: Digest,
    pub datagrams: u64,
    /// By vertex.
    addresses: Vec<Ipv4Addr>,
    directions: Vec<Direction>,
}

struct Direction {
    /// Whether it carries a link's datagrams and no others: their ports are known.
    is_link: bool,
    /// What passes the end where it begins, whichever way.
    capture: Option<Box<Capture>>,
}

impl Watch {
    /// A vertex more.
    pub fn vertex(&mut self, address: Ipv4Addr) {
        self.addresses.push(address);
    }

    /// Takes note of another edge, which has two directions.
    pub fn edge(&mut self, is_link: bool) {
        self.directions.extend([is_link; 2].map(|is_link| Direction { is_link, capture: None }));
    }

    /// Records what passes the end where `direction` begins; ends what was
    /// recorded there before.
    pub fn capture(&mut self, direction: u32, capture: Capture) -> Result<(), CaptureError> {
        let here = &mut self.directions[direction as usize].capture;
        here.replace(Box::new(capture)).map_or(Ok(()), |old| old.finish())
    }

    /// Ends all captures; the first error of any.
    pub fn finish_captures(&mut self) -> Result<(), CaptureError> {
        let captures = self.directions.iter_mut().filter_map(|d| d.capture.take());
        captures.map(|c| c.finish()).fold(Ok(()), Result::and)
    }

    /// Writes a datagram to the capture where `end` begins.
    fn record(
        &mut self,
        now: Time,
        end: u32,
        passing: Passing,
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

impl Tap for Watch {
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
            self.record(now, direction, Passing::Sent, header, payload, comment(fate, header.tos));
        }
        if let Fate::Arrives(at, _) = fate {
            self.digest.word(at.as_nanos());
        }
    }

    fn arrived(&mut self, now: Time, header: &Header, payload: &[u8]) {
        let far = header.direction.back().0;
        if self.directions[far as usize].capture.is_some() {
            self.record(now, far, Passing::Received, header, payload, None);
        }
    }
}

/// What a capture says of a datagram where it is sent.
fn comment(fate: Fate, sent_tos: u8) -> Option<&'static str> {
    match fate {
        Fate::Dropped(DropReason::Loss, _) => Some("lost on the wire"),
        Fate::Dropped(DropReason::Queue, _) => Some("dropped by the queue"),
        Fate::Dropped(..) => Some("dropped: too many packets are under way"),
        Fate::Arrives(_, tos) if tos != sent_tos => Some("marked by the queue"),
        Fate::Arrives(..) | Fate::Open => None,
    }
}

/// Like FNV-1a, but by 64-bit words, and a datagram's in four chains that do
/// not wait for each other: it compares runs, and need not withstand anyone.
pub struct Digest(u64);

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The rotation lets a word's high bits reach the low ones, which the product
/// alone does not.
fn mix(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
}

/// Up to eight bytes, the first the lowest; what is missing is 0.
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

    /// Mixes in `bytes`.
    fn bytes(&mut self, bytes: &[u8]) {
        self.rest([BASIS; 4], bytes, bytes.len());
    }

    /// Mixes in the ports and then the payload, as one string, which is not put
    /// together for it: words that were just written in pieces are slow to read.
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

    /// Goes on with `rest` where `chains` ended, of `len` bytes in all.
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
