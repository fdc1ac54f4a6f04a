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
    /// Where the digested part of a datagram is put together.
    scratch: Vec<u8>,
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
            self.scratch.clear();
            self.scratch.extend_from_slice(&header.from.port.to_be_bytes());
            self.scratch.extend_from_slice(&header.to.port.to_be_bytes());
            self.scratch.extend_from_slice(payload);
            self.digest.bytes(&self.scratch);
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

    fn bytes(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<32>();
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        // What the four begin with need not differ: each is mixed in by itself.
        let mut chains = [BASIS; 4];
        for block in blocks.iter().chain([&last]) {
            for (chain, word) in chains.iter_mut().zip(block.as_chunks::<8>().0) {
                *chain = mix(*chain, u64::from_le_bytes(*word));
            }
        }
        for chain in chains {
            self.word(chain);
        }
        self.word(bytes.len() as u64);
    }
}
