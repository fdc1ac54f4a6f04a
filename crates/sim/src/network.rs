//! The wires between hosts, and the datagrams on them.

use crate::capture::{Capture, CaptureError, Datagram, Passing};
use crate::queue::{Event, EventQueue};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use trunkline_base::Time;
use trunkline_base::link_model::{Cause, Ecn, Impairment, LinkModel, Verdict};
use trunkline_overlay::link::IP_UDP_HEADERS;

/// Which host of a world: an index, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// Which wire of a world: an index, in the order of connecting. A wire has two
/// ends and two directions, each impaired by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WireId(pub u32);

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire {}", self.0)
    }
}

/// The port of a host's first link; the others follow.
const FIRST_PORT: u16 = 7_000;

/// Where the `link`-th link (in the order of the host's configuration) of
/// `host` listens: a made-up address in 10.0.0.0/8, one host each, one port
/// for each link.
///
/// # Panics
///
/// Above 16,777,214 hosts or 58,535 links of one host.
pub fn address(host: HostId, link: u16) -> SocketAddr {
    let [high, a, b, c] = (host.0 + 1).to_be_bytes();
    assert_eq!(high, 0, "host {} does not fit in 10.0.0.0/8", host.0);
    let port = FIRST_PORT.checked_add(link).expect("a host's links fit in its ports");
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, a, b, c)), port)
}

/// Source and destination port, in front of a plain datagram's payload.
const PLAIN_PORTS: usize = 4;

/// The inverse of [`address`].
pub fn locate(address: SocketAddr) -> Option<(HostId, u16)> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let [10, a, b, c] = ip.octets() else { return None };
    let host = u32::from_be_bytes([0, a, b, c]).checked_sub(1)?;
    Some((HostId(host), address.port().checked_sub(FIRST_PORT)?))
}

/// One direction of a wire.
pub struct Direction {
    pub impairment: Impairment,
    /// The model that the wire was connected with, before any change.
    pub original: LinkModel,
    /// Which of the seed's loss processes it has.
    pub stream: u64,
    pub to: End,
    /// Whether its datagrams say that their sender minds marks.
    pub ecn_capable: bool,
    /// Datagrams so far.
    sent: u64,
    /// What passes the end where it begins, whichever way.
    capture: Option<Box<Capture>>,
}

impl Direction {
    pub fn new(impairment: Impairment, stream: u64, to: End) -> Direction {
        let original = impairment.model().clone();
        Direction { impairment, original, stream, to, ecn_capable: false, sent: 0, capture: None }
    }
}

/// What is at the end of a direction.
pub enum End {
    /// A host's link; its datagrams come from the address `from` of `sender`.
    Host { host: u32, sender: u32, from: SocketAddr },
    /// Applications on plain UDP, by their ports.
    Plain { ports: Vec<(u16, u32)> },
}

/// All wires, what is on them, and what will happen.
#[derive(Default)]
pub struct Network {
    pub queue: EventQueue,
    pub pool: Pool,
    pub directions: Vec<Direction>,
    pub digest: Digest,
    pub datagrams: u64,
    /// Where plain datagrams are put together.
    scratch: Vec<u8>,
}

impl Network {
    /// Puts a datagram on a wire, with this code point (RFC 2474).
    pub fn offer(&mut self, now: Time, direction: u32, dscp: u8, datagram: &[u8]) {
        let wire = &mut self.directions[direction as usize];
        // A plain datagram begins with a part of its UDP header.
        let counted = match wire.to {
            End::Host { .. } => 0,
            End::Plain { .. } => PLAIN_PORTS,
        };
        let bytes = datagram.len() - counted + IP_UDP_HEADERS;
        let sent = if wire.ecn_capable { Ecn::Ect0 } else { Ecn::NotCapable };
        let mut ecn = sent;
        let verdict = wire.impairment.offer_ecn(now, bytes, &mut ecn);
        let [before, tos] = [sent, ecn].map(|e| e.in_tos(dscp << 2));
        let number = wire.sent as u16;
        wire.sent += 1;
        self.datagrams += 1;
        self.digest.word(now.as_nanos());
        self.digest.word(u64::from(direction) | u64::from(tos) << 32);
        self.digest.bytes(datagram);
        if wire.capture.is_some() {
            let fate = fate(verdict, ecn != sent);
            self.record(now, direction, Passing::Sent, (before, number), datagram, fate);
        }
        if let Verdict::Deliver(at) = verdict {
            self.digest.word(at.as_nanos());
            let buffer = self.pool.take(datagram, tos, number);
            self.queue.push(at, Event::Arrival { at, direction, buffer });
        }
    }

    /// Puts a plain datagram with source and destination port on a wire.
    pub fn offer_plain(&mut self, now: Time, direction: u32, ports: (u16, u16), payload: &[u8]) {
        let mut datagram = std::mem::take(&mut self.scratch);
        datagram.clear();
        datagram.extend_from_slice(&ports.0.to_be_bytes());
        datagram.extend_from_slice(&ports.1.to_be_bytes());
        datagram.extend_from_slice(payload);
        self.offer(now, direction, 0, &datagram);
        self.scratch = datagram;
    }

    /// Takes note of a datagram at the end of its direction.
    pub fn arrived(&mut self, now: Time, direction: u32, buffer: u32) {
        if self.directions[direction as usize ^ 1].capture.is_some() {
            let Buffer { bytes, tos, number } = &mut self.pool.buffers[buffer as usize];
            let (bytes, head) = (std::mem::take(bytes), (*tos, *number));
            self.record(now, direction, Passing::Received, head, &bytes, None);
            self.pool.buffers[buffer as usize].bytes = bytes;
        }
    }

    /// Writes a datagram of `direction` to the capture at one of its ends.
    fn record(
        &mut self,
        now: Time,
        direction: u32,
        passing: Passing,
        (tos, number): (u8, u16),
        datagram: &[u8],
        fate: Option<&'static str>,
    ) {
        let (from, to, payload) = match &self.directions[direction as usize].to {
            &End::Host { from, .. } => {
                let End::Host { from: to, .. } = self.directions[direction as usize ^ 1].to else {
                    unreachable!("a wire has nodes at both ends, or at none");
                };
                (from, to, datagram)
            }
            End::Plain { .. } => {
                let Some((ports, payload)) = split_plain(datagram) else { return };
                let [from, to] = plain_addresses(direction, ports);
                (from, to, payload)
            }
        };
        let at = match passing {
            Passing::Sent => direction,
            Passing::Received => direction ^ 1,
        };
        if let Some(capture) = &mut self.directions[at as usize].capture {
            let datagram = Datagram { from, to, tos, number, payload };
            capture.record(now, passing, &datagram, fate);
        }
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
}

/// What a capture says of a datagram where it is sent.
fn fate(verdict: Verdict, marked: bool) -> Option<&'static str> {
    match (verdict, marked) {
        (Verdict::Drop(Cause::Loss), _) => Some("lost on the wire"),
        (Verdict::Drop(Cause::Queue), _) => Some("dropped by the queue"),
        (Verdict::Deliver(_), true) => Some("marked by the queue"),
        (Verdict::Deliver(_), false) => None,
    }
}

/// Made-up addresses for the ends of a plain path, who have none: in the
/// networks for measurements (RFC 2544, appendix C.2.2).
fn plain_addresses(direction: u32, ports: (u16, u16)) -> [SocketAddr; 2] {
    let [_, _, high, low] = (direction / 2 + 1).to_be_bytes();
    let end = |which: u32| Ipv4Addr::new(198, if which == 0 { 18 } else { 19 }, high, low);
    let (from, to) = (end(direction % 2), end(1 - direction % 2));
    [(from, ports.0), (to, ports.1)].map(SocketAddr::from)
}

/// The ports and the payload of a plain datagram.
pub fn split_plain(datagram: &[u8]) -> Option<((u16, u16), &[u8])> {
    let (&[s1, s2, d1, d2], payload) = datagram.split_first_chunk::<PLAIN_PORTS>()?;
    Some(((u16::from_be_bytes([s1, s2]), u16::from_be_bytes([d1, d2])), payload))
}

/// Buffers of datagrams under way, used again and again.
#[derive(Default)]
pub struct Pool {
    buffers: Vec<Buffer>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    tos: u8,
    number: u16,
}

impl Pool {
    fn take(&mut self, bytes: &[u8], tos: u8, number: u16) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Buffer::default());
            self.buffers.len() as u32 - 1
        });
        let buffer = &mut self.buffers[index as usize];
        (buffer.tos, buffer.number) = (tos, number);
        buffer.bytes.clear();
        buffer.bytes.extend_from_slice(bytes);
        index
    }

    pub fn get_mut(&mut self, index: u32) -> &mut [u8] {
        &mut self.buffers[index as usize].bytes
    }

    pub fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    pub fn in_use(&self) -> usize {
        self.buffers.len() - self.free.len()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back() {
        for (host, link) in [(0, 0), (254, 1), (255, 2), (70_000, 58_000)] {
            let host = HostId(host);
            assert_eq!(locate(address(host, link)), Some((host, link)));
        }
        assert_eq!(address(HostId(1), 2).to_string(), "10.0.0.2:7002");
        for stranger in ["192.0.2.1:7000", "10.0.0.0:7000", "10.0.0.1:53", "[::1]:7000"] {
            assert_eq!(locate(stranger.parse().unwrap()), None);
        }
    }
}
