//! RTP headers in trunk packets: of their 12 bytes (RFC 3550, section 5.1) one is sent
//! where nothing has happened that the receiver can't know, and at most seven otherwise.
//!
//! Nothing is said as the difference to another packet, so that a lost one takes nothing
//! else with it. A *template* gives the header of each packet of a flow from the number that
//! the packet has in its flow, which it carries anyway:
//!
//! ```text
//! sequence number = flow number + offset    (modulo 2^16)
//! timestamp       = base + step * sequence number    (modulo 2^32)
//! ```
//!
//! Both are functions of 16 bits, whatever came before, so that no wrap can be taken for
//! another: where the sequence number begins again at 0, the base is another, which is
//! another template. The timestamp follows the sequence number, since what is lost before
//! the origin skips both; what was sent outside the trunk has its numbers as well, and skips
//! neither.
//!
//! A packet names the template by which it is to be read; what differs for it alone, as the
//! timestamp after silence does, it brings along. A template is said by packets that have
//! their whole header and the step: by [`SAID_FIRST`] in the beginning, and with each
//! definition of the flow's context from then on. One that the receiver hasn't heard can't
//! be mistaken for another: the sender takes the same number again only after
//! [`REUSED_AFTER`], and the receiver forgets it after [`UNSAID_AFTER`], just as for
//! contexts. It keeps two, so that what was overtaken by another is still understood.

use super::{REUSED_AFTER, UNSAID_AFTER};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;

/// Bytes of a header that can be compressed: without contributing sources, padding and
/// extension.
pub const RTP_HEADER: usize = 12;

/// Bytes by which a packet that says a template is longer than it was.
pub(super) const SAYING: usize = 3;

/// How many numbers there are for the templates of a context.
const NUMBERS: u8 = 16;

/// Packets that say a template when it is new.
const SAID_FIRST: u8 = 3;

/// A template is in use for at least so long, so that each number rests for
/// [`REUSED_AFTER`] before it means another.
const CHANGED_EVERY: Duration =
    Duration::from_nanos(REUSED_AFTER.as_nanos() as u64 / (NUMBERS as u64 - 1) + 1);

/// Version 2, and nothing else in the first byte.
const FIRST_BYTE: u8 = 0x80;
/// In the second byte of a header, beside the payload type.
const MARKER: u8 = 0x80;

/// What follows the template's number in the first byte.
const SAYS: u8 = 8;
const MARKED: u8 = 4;
const HAS_TIMESTAMP: u8 = 2;
const HAS_SEQ: u8 = 1;

/// What an entry has of an RTP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtp {
    /// All of it, which is the beginning of the entry's payload; it says a template.
    Says {
        /// The template's number, 0 to 15.
        template: u8,
        /// By how much the timestamp grows with the sequence number.
        step: u16,
    },
    /// What can't be known by the template.
    By {
        /// The template's number, 0 to 15.
        template: u8,
        /// Whether the header's marker bit is set.
        marker: bool,
        /// The timestamp, if it is another than the template's.
        timestamp: Option<u32>,
        /// The sequence number, if it is another than the template's.
        seq: Option<u16>,
    },
}

impl Rtp {
    /// How many bytes it takes; a whole header isn't among them.
    pub fn size(&self) -> usize {
        match self {
            Rtp::Says { .. } => SAYING,
            Rtp::By { timestamp, seq, .. } => 1 + timestamp.map_or(0, |_| 4) + seq.map_or(0, |_| 2),
        }
    }

    pub(super) fn push(&self, out: &mut Vec<u8>) {
        match *self {
            Rtp::Says { template, step } => {
                out.push(template << 4 | SAYS);
                out.extend_from_slice(&step.to_be_bytes());
            }
            Rtp::By { template, marker, timestamp, seq } => {
                let bit = |is: bool, bit: u8| if is { bit } else { 0 };
                let has = bit(timestamp.is_some(), HAS_TIMESTAMP) | bit(seq.is_some(), HAS_SEQ);
                out.push(template << 4 | bit(marker, MARKED) | has);
                timestamp.into_iter().for_each(|t| out.extend_from_slice(&t.to_be_bytes()));
                seq.into_iter().for_each(|s| out.extend_from_slice(&s.to_be_bytes()));
            }
        }
    }

    /// Takes it from the beginning of an entry's body; the rest is the payload. `None` if
    /// it can't be.
    pub(super) fn read(body: &[u8]) -> Option<(Rtp, &[u8])> {
        let mut r = Reader::new(body);
        let first = r.u8().ok()?;
        let (template, bits) = (first >> 4, first & 0xf);
        let has = |bit: u8| bits & bit != 0;
        let rtp = match bits {
            SAYS => Rtp::Says { template, step: r.u16().ok()? },
            bits if bits > SAYS => return None,
            _ => Rtp::By {
                template,
                marker: has(MARKED),
                timestamp: if has(HAS_TIMESTAMP) { Some(r.u32().ok()?) } else { None },
                seq: if has(HAS_SEQ) { Some(r.u16().ok()?) } else { None },
            },
        };
        let payload = body.get(rtp.size()..)?;
        let is_whole = matches!(rtp, Rtp::By { .. }) || Header::parse(payload).is_some();
        is_whole.then_some((rtp, payload))
    }
}

/// A header that can be compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    marker: bool,
    payload_type: u8,
    seq: u16,
    timestamp: u32,
    ssrc: u32,
}

impl Header {
    /// That of `packet`, if it has a plain one.
    fn parse(packet: &[u8]) -> Option<Header> {
        let &[FIRST_BYTE, kind, a, b, c, d, e, f, g, h, i, j] = packet.first_chunk()? else {
            return None;
        };
        Some(Header {
            marker: kind & MARKER != 0,
            payload_type: kind & !MARKER,
            seq: u16::from_be_bytes([a, b]),
            timestamp: u32::from_be_bytes([c, d, e, f]),
            ssrc: u32::from_be_bytes([g, h, i, j]),
        })
    }

    fn bytes(&self) -> [u8; RTP_HEADER] {
        let kind = self.payload_type | if self.marker { MARKER } else { 0 };
        let ([a, b], [c, d, e, f]) = (self.seq.to_be_bytes(), self.timestamp.to_be_bytes());
        let [g, h, i, j] = self.ssrc.to_be_bytes();
        [FIRST_BYTE, kind, a, b, c, d, e, f, g, h, i, j]
    }

    /// By how much the timestamp grows with each sequence number from here to `to`, if it
    /// does so evenly in one stream.
    fn step(&self, to: &Header) -> Option<u16> {
        if (self.ssrc, self.payload_type) != (to.ssrc, to.payload_type) {
            return None;
        }
        let packets = i32::from(to.seq.wrapping_sub(self.seq) as i16);
        let ticks = to.timestamp.wrapping_sub(self.timestamp) as i32;
        let is_even = ticks.checked_rem(packets)? == 0;
        let step = u16::try_from(ticks / packets).ok();
        step.filter(|&step| is_even && step > 0)
    }
}

/// What gives the header of each packet of a flow from its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Template {
    ssrc: u32,
    base: u32,
    offset: u16,
    step: u16,
    payload_type: u8,
}

impl Template {
    /// The one with this step that gives `header` to packet `flow_seq`.
    fn of(header: &Header, flow_seq: u16, step: u16) -> Template {
        let &Header { payload_type, seq, timestamp, ssrc, .. } = header;
        let base = timestamp.wrapping_sub(u32::from(step) * u32::from(seq));
        Template { ssrc, base, offset: seq.wrapping_sub(flow_seq), step, payload_type }
    }

    fn seq(&self, flow_seq: u16) -> u16 {
        flow_seq.wrapping_add(self.offset)
    }

    fn timestamp(&self, seq: u16) -> u32 {
        self.base.wrapping_add(u32::from(self.step) * u32::from(seq))
    }

    fn fits(&self, header: &Header, flow_seq: u16) -> bool {
        *self == Template::of(header, flow_seq, self.step)
    }

    /// What `header` needs beside this template; `None` if it is of another stream.
    fn compress(&self, template: u8, header: &Header, flow_seq: u16) -> Option<Rtp> {
        let &Header { marker, payload_type, seq, timestamp, ssrc } = header;
        ((ssrc, payload_type) == (self.ssrc, self.payload_type)).then(|| Rtp::By {
            template,
            marker,
            timestamp: (timestamp != self.timestamp(seq)).then_some(timestamp),
            seq: (seq != self.seq(flow_seq)).then_some(seq),
        })
    }

    fn header(
        &self,
        flow_seq: u16,
        marker: bool,
        timestamp: Option<u32>,
        seq: Option<u16>,
    ) -> Header {
        let &Template { payload_type, ssrc, .. } = self;
        let seq = seq.unwrap_or_else(|| self.seq(flow_seq));
        let timestamp = timestamp.unwrap_or_else(|| self.timestamp(seq));
        Header { marker, payload_type, seq, timestamp, ssrc }
    }
}

/// What the sender knows of a flow that may be RTP.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Compressor {
    /// The last header, by how much its sequence number was ahead of the flow's, and its
    /// step from the one before.
    last: Option<(Header, u16, Option<u16>)>,
    template: Option<Template>,
    number: u8,
    /// How often the template is still to be said before others name it.
    owed: u8,
    changed: Time,
    /// When a packet said or named it last.
    used: Time,
}

impl Compressor {
    /// The receiver knows nothing any more.
    pub fn restart(&mut self) {
        self.owed = SAID_FIRST;
    }

    /// What packet `flow_seq` has instead of its header, and what is known then; `defined`
    /// if the packet brings what its context means.
    pub fn compress(
        &self,
        now: Time,
        flow_seq: u16,
        packet: &[u8],
        defined: bool,
    ) -> (Compressor, Option<Rtp>) {
        let mut next = *self;
        let Some(header) = Header::parse(packet) else { return (next, None) };
        let regular = next.observe(&header, flow_seq);
        let fits = |t: Template| t.fits(&header, flow_seq);
        let may_change = self.template.is_none() || now.since(self.changed) >= CHANGED_EVERY;
        if let Some(step) = regular
            && may_change
            && !self.template.is_some_and(fits)
        {
            next.template = Some(Template::of(&header, flow_seq, step));
            next.number = (self.number + 1) % NUMBERS;
            (next.owed, next.changed) = (SAID_FIRST, now);
        } else if now.since(self.used) >= UNSAID_AFTER {
            next.restart();
        }
        let Some(template) = next.template else { return (next, None) };
        if defined {
            next.owed = next.owed.max(1);
        }
        let rtp = match next.owed {
            0 => template.compress(next.number, &header, flow_seq),
            _ => fits(template).then_some(Rtp::Says { template: next.number, step: template.step }),
        };
        if rtp.is_some() {
            next.owed = next.owed.saturating_sub(1);
            next.used = now;
        }
        (next, rtp)
    }

    /// Takes note of a header. If it follows from the last as that did from the one before,
    /// or as the template has it, the step: two in a row make a template, so that what
    /// differs once makes none.
    fn observe(&mut self, header: &Header, flow_seq: u16) -> Option<u16> {
        let offset = header.seq.wrapping_sub(flow_seq);
        let (last, last_offset, before) = match self.last {
            Some(last) => last,
            None => {
                self.last = Some((*header, offset, None));
                return None;
            }
        };
        let step = last.step(header);
        self.last = Some((*header, offset, step));
        let is_usual = step == before || step == self.template.map(|t| t.step);
        step.filter(|_| is_usual && offset == last_offset)
    }
}

/// The templates of a flow that the receiver knows: the last two.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Templates([Option<Known>; 2]);

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u8,
    template: Template,
    /// When it was said or named last.
    heard: Time,
}

impl Known {
    fn is_fresh(&self, at: Time) -> bool {
        at.since(self.heard) < UNSAID_AFTER
    }
}

impl Templates {
    /// Packet `flow_seq`, which came at `at`, says a template.
    pub fn say(&mut self, at: Time, flow_seq: u16, number: u8, step: u16, packet: &[u8]) {
        let Some(header) = Header::parse(packet) else { return };
        let place = &mut self.0[usize::from(number % 2)];
        // One that was overtaken by a later one in its place.
        let is_old = |known: &Known| {
            known.is_fresh(at) && number.wrapping_sub(known.number) % NUMBERS > NUMBERS / 2
        };
        if !place.as_ref().is_some_and(is_old) {
            let template = Template::of(&header, flow_seq, step);
            *place = Some(Known { number, template, heard: at });
        }
    }

    /// The header of packet `flow_seq`, which came at `at`; `None` if its template is
    /// unknown, and for [`Rtp::Says`], where it is whole.
    pub fn header(&mut self, at: Time, flow_seq: u16, rtp: &Rtp) -> Option<[u8; RTP_HEADER]> {
        let &Rtp::By { template: number, marker, timestamp, seq } = rtp else { return None };
        let place = self.0[usize::from(number % 2)].as_mut();
        let known = place.filter(|known| known.number == number && known.is_fresh(at))?;
        known.heard = known.heard.max(at);
        Some(known.template.header(flow_seq, marker, timestamp, seq).bytes())
    }
}

#[cfg(test)]
mod tests;
