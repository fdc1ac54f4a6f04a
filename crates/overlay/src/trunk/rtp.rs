//! RTP headers in trunk packets: their 12 bytes (RFC 3550, section 5.1) are reduced to one byte if
//! the receiver can infer all fields, and to at most seven otherwise.
//!
//! Nothing is encoded as the difference to another packet, so a lost one affects no other. A
//! *template* gives the header of each packet of a flow as a function of the packet's number in its
//! flow, which is transmitted anyway:
//!
//! ```text
//! sequence number = flow number + offset    (modulo 2^16)
//! timestamp       = base + step * sequence number    (modulo 2^32)
//! ```
//!
//! Both are functions of 16 bits, independent of earlier packets, so no wrap can be confused with
//! another: where the sequence number restarts at 0, the base changes, which makes it another
//! template. The timestamp follows the sequence number, since losses before the origin skip values
//! of both; packets sent outside the trunk have their numbers as well, and skip neither.
//!
//! A packet names its template, and carries the fields that differ for it alone, such as the
//! timestamp after silence. A template is announced by packets that have their whole header and the
//! step: by the first [`SAID_FIRST`] packets, and with each later definition of the flow's context.
//! A template that the receiver has missed can't be confused with another: the sender reuses a
//! number only after [`REUSED_AFTER`], and the receiver forgets it after [`UNSAID_AFTER`], as with
//! contexts. The receiver keeps two, so that packets overtaken by the announcement of another are
//! still understood.

use super::{REUSED_AFTER, UNSAID_AFTER};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;

/// Bytes of a header that can be compressed: without contributing sources, padding and extension.
pub const RTP_HEADER: usize = 12;

/// Bytes that announcing a template adds to a packet.
pub(super) const SAYING: usize = 3;

/// Number of template numbers per context.
const NUMBERS: u8 = 16;

/// Number of packets that announce a new template.
const SAID_FIRST: u8 = 3;

/// Minimum time for which a template is used, so that each number is idle for [`REUSED_AFTER`]
/// before it gets another meaning.
const CHANGED_EVERY: Duration =
    Duration::from_nanos(REUSED_AFTER.as_nanos() as u64 / (NUMBERS as u64 - 1) + 1);

/// First byte of a plain header: version 2, all other fields zero.
const FIRST_BYTE: u8 = 0x80;
/// Marker bit in the second byte of a header, next to the payload type.
const MARKER: u8 = 0x80;

/// Flags after the template's number in the first byte.
const SAYS: u8 = 8;
const MARKED: u8 = 4;
const HAS_TIMESTAMP: u8 = 2;
const HAS_SEQ: u8 = 1;

/// Encoding of an RTP header in an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtp {
    /// The whole header, at the beginning of the entry's payload; it announces a template.
    Says {
        /// Number of the template, 0 to 15.
        template: u8,
        /// Increase of the timestamp per sequence number.
        step: u16,
    },
    /// The fields that the template doesn't give.
    By {
        /// Number of the template, 0 to 15.
        template: u8,
        /// Whether the header's marker bit is set.
        marker: bool,
        /// The timestamp, if it differs from the template's.
        timestamp: Option<u32>,
        /// The sequence number, if it differs from the template's.
        seq: Option<u16>,
    },
}

impl Rtp {
    /// Encoded length in bytes, without a whole header.
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

    /// Reads the encoding at the beginning of an entry's body; the rest is the payload. `None` if
    /// it is invalid.
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

/// An RTP header that can be compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    marker: bool,
    payload_type: u8,
    seq: u16,
    timestamp: u32,
    ssrc: u32,
}

impl Header {
    /// The header of `packet`, if it is a plain one.
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

    /// Increase of the timestamp per sequence number from here to `to`, if it is even and both are
    /// of one stream.
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

/// Gives the header of each packet of a flow as a function of its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Template {
    ssrc: u32,
    base: u32,
    offset: u16,
    step: u16,
    payload_type: u8,
}

impl Template {
    /// The template with this step that gives `header` to packet `flow_seq`.
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

    /// The fields of `header` that this template doesn't give; `None` if it is of another stream.
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

/// The sender's state for a flow that may be RTP.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Compressor {
    /// The last header, the difference between its sequence number and the flow's, and its step
    /// from the one before.
    last: Option<(Header, u16, Option<u16>)>,
    template: Option<Template>,
    number: u8,
    /// Number of announcements of the template still to be sent before packets only name it.
    owed: u8,
    changed: Time,
    /// Time at which a packet last announced or named it.
    used: Time,
}

impl Compressor {
    /// Handles a restart of the receiver, which has lost all templates.
    pub fn restart(&mut self) {
        self.owed = SAID_FIRST;
    }

    /// The encoding that replaces the header of packet `flow_seq`, and the state after it;
    /// `defined` if the packet carries the definition of its context.
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

    /// Records a header. Returns the step if the header follows from the last as that did from the
    /// one before, or as the template predicts: two equal steps in a row make a template, so a
    /// single exception doesn't.
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

/// The templates of a flow that the receiver keeps: the last two.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Templates([Option<Known>; 2]);

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u8,
    template: Template,
    /// Time at which it was last announced or named.
    heard: Time,
}

impl Known {
    fn is_fresh(&self, at: Time) -> bool {
        at.since(self.heard) < UNSAID_AFTER
    }
}

impl Templates {
    /// Records that packet `flow_seq`, which arrived at `at`, announces a template.
    pub fn say(&mut self, at: Time, flow_seq: u16, number: u8, step: u16, packet: &[u8]) {
        let Some(header) = Header::parse(packet) else { return };
        let place = &mut self.0[usize::from(number % 2)];
        // An announcement that was overtaken by a later one of its slot.
        let is_old = |known: &Known| {
            known.is_fresh(at) && number.wrapping_sub(known.number) % NUMBERS > NUMBERS / 2
        };
        if !place.as_ref().is_some_and(is_old) {
            let template = Template::of(&header, flow_seq, step);
            *place = Some(Known { number, template, heard: at });
        }
    }

    /// The header of packet `flow_seq`, which arrived at `at`; `None` if its template is unknown,
    /// and for [`Rtp::Says`], which has the whole header.
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
