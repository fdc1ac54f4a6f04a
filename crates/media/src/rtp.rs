//! RTP (RFC 3550): reading packets, and numbering those of one outgoing stream.

use core::time::Duration;

use rtp_types::{RtpPacket, RtpPacketBuilder, RtpParseError, RtpWriteError};

use crate::codec::g711::Law;

/// Payload type of G.711 µ-law at 8 kHz (RFC 3551 §6).
pub const PCMU: u8 = 0;
/// Payload type of G.711 A-law at 8 kHz (RFC 3551 §6).
pub const PCMA: u8 = 8;
/// Size of the header of a packet that this module writes, in bytes.
pub const HEADER_LEN: usize = RtpPacket::MIN_RTP_PACKET_LEN;

/// Errors in reading or writing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RtpError {
    /// The packet ends within its header, or its padding is longer than the packet.
    #[error("not an RTP packet: it has {have} bytes, but its header requires {need}")]
    TooShort {
        /// Size according to the header, in bytes.
        need: usize,
        /// Size of the packet, in bytes.
        have: usize,
    },
    /// The version is not 2, the only one of RFC 3550.
    #[error("not an RTP packet: version {0} instead of 2")]
    Version(u8),
    /// The padding bit is set, but the count in the last byte is 0.
    #[error("malformed RTP packet: it announces padding of 0 bytes")]
    Padding,
    /// The payload type does not fit into 7 bits.
    #[error("cannot write an RTP packet of payload type {0}: use 0 to 127")]
    PayloadType(u8),
    /// The caller's buffer is too small.
    #[error(
        "cannot write an RTP packet of {need} bytes into a buffer of {have}: give a larger one"
    )]
    NoRoom {
        /// Size of the whole packet, in bytes.
        need: usize,
        /// Size of the buffer, in bytes.
        have: usize,
    },
}

/// The parts of a packet that a voice receiver needs. The payload is borrowed, without padding;
/// contributing sources and the header extension are checked and skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpView<'a> {
    /// Payload type, 0 to 127: [`PCMU`], [`PCMA`], or as signalled.
    pub payload_type: u8,
    /// Whether this is the first packet after silence (RFC 3551 §4.1).
    pub marker: bool,
    /// Sequence number: one more than that of the packet before, modulo 2^16.
    pub sequence: u16,
    /// Time of the first sample, in the payload's clock (8 kHz for G.711).
    pub timestamp: u32,
    /// SSRC of the sender.
    pub ssrc: u32,
    /// The coded speech, without padding.
    pub payload: &'a [u8],
}

/// Reads one packet. Never panics on any input.
pub fn parse(bytes: &[u8]) -> Result<RtpView<'_>, RtpError> {
    let packet = RtpPacket::parse(bytes).map_err(|e| match e {
        RtpParseError::UnsupportedVersion(v) => RtpError::Version(v),
        RtpParseError::Truncated { expected, actual } => {
            RtpError::TooShort { need: expected, have: actual }
        }
        RtpParseError::PaddingInvalid(_) => RtpError::Padding,
    })?;
    let start = packet.payload_offset();
    Ok(RtpView {
        payload_type: packet.payload_type(),
        marker: packet.marker_bit(),
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        ssrc: packet.ssrc(),
        payload: &bytes[start..start + packet.payload_len()],
    })
}

impl RtpView<'_> {
    /// Writes the packet to the front of `out` and returns its length, [`HEADER_LEN`] plus the
    /// payload. Does not allocate.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, RtpError> {
        let have = out.len();
        RtpPacketBuilder::<&[u8], &[u8]>::new()
            .payload_type(self.payload_type)
            .marker_bit(self.marker)
            .sequence_number(self.sequence)
            .timestamp(self.timestamp)
            .ssrc(self.ssrc)
            .payload(self.payload)
            .write_into(out)
            .map_err(|e| match e {
                RtpWriteError::InvalidPayloadType(t) => RtpError::PayloadType(t),
                // No other error is possible without extension, padding and sources.
                _ => RtpError::NoRoom { need: HEADER_LEN + self.payload.len(), have },
            })
    }
}

/// The constants of one outgoing stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// SSRC of the sender; random on a real network (RFC 3550 §8).
    pub ssrc: u32,
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    /// Timestamp ticks per second.
    pub clock_rate: u32,
    /// Timestamp ticks per packet.
    pub samples_per_packet: u32,
    /// Sequence number of the first packet; random on a real network (RFC 3550 §5.1).
    pub first_sequence: u16,
    /// Timestamp of the first packet; random on a real network (RFC 3550 §5.1).
    pub first_timestamp: u32,
}

impl Stream {
    /// G.711 in packets of 20 ms (160 bytes), numbered from 0.
    pub fn g711(law: Law, ssrc: u32) -> Stream {
        Stream {
            ssrc,
            payload_type: law.payload_type(),
            clock_rate: 8_000,
            samples_per_packet: 160,
            first_sequence: 0,
            first_timestamp: 0,
        }
    }
}

/// Writes the packets of one stream.
#[derive(Debug, Clone)]
pub struct Packetizer {
    stream: Stream,
    written: u64,
}

impl Packetizer {
    /// Creates a packetizer at the stream's first packet.
    pub fn new(stream: Stream) -> Packetizer {
        Packetizer { stream, written: 0 }
    }

    /// Writes the next packet to the front of `out` and returns its length. The first carries the
    /// marker. After an error, the stream's position is unchanged.
    pub fn write(&mut self, payload: &[u8], out: &mut [u8]) -> Result<usize, RtpError> {
        let len = RtpView {
            payload_type: self.stream.payload_type,
            marker: self.written == 0,
            sequence: self.sequence(),
            timestamp: self.timestamp(),
            ssrc: self.stream.ssrc,
            payload,
        }
        .emit(out)?;
        self.written += 1;
        Ok(len)
    }

    /// The sequence number of the next packet.
    pub fn sequence(&self) -> u16 {
        self.stream.first_sequence.wrapping_add(self.written as u16)
    }

    /// The timestamp of the next packet.
    pub fn timestamp(&self) -> u32 {
        let ticks = (self.written as u32).wrapping_mul(self.stream.samples_per_packet);
        self.stream.first_timestamp.wrapping_add(ticks)
    }

    /// Number of packets written so far, modulo 2^32.
    pub fn packets(&self) -> u32 {
        self.written as u32
    }

    /// Time between two packets; zero if the clock rate is zero.
    pub fn interval(&self) -> Duration {
        let nanos = u64::from(self.stream.samples_per_packet) * 1_000_000_000;
        Duration::from_nanos(nanos.checked_div(u64::from(self.stream.clock_rate)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(
            payload_type in 0u8..128, marker: bool, sequence: u16, timestamp: u32, ssrc: u32,
            payload in vec(any::<u8>(), 0..400),
        ) {
            let x = RtpView { payload_type, marker, sequence, timestamp, ssrc, payload: &payload };
            let mut out = [0; 500];
            let len = x.emit(&mut out).unwrap();
            prop_assert_eq!(len, HEADER_LEN + payload.len());
            prop_assert_eq!(parse(&out[..len]), Ok(x));
        }

        #[test]
        fn any_bytes_are_a_packet_or_an_error(
            bytes in vec(any::<u8>(), 0..80), first in 0x80u8..0xc0, lead: bool,
        ) {
            // Half of the time with the right version, to get past it.
            let bytes = if lead { [&[first], &bytes[..]].concat() } else { bytes };
            if let Ok(view) = parse(&bytes) {
                prop_assert!(view.payload.len() <= bytes.len() - HEADER_LEN);
            }
        }

        #[test]
        fn sources_extension_and_padding_are_passed_over(
            sources in vec(any::<u32>(), 0..16), words in 0usize..20,
            padding in proptest::option::of(1u8..), payload in vec(any::<u8>(), 0..200),
        ) {
            let extension = vec![7; words * 4];
            let mut builder = RtpPacketBuilder::<&[u8], &[u8]>::new()
                .payload_type(PCMA).sequence_number(9).payload(&payload).extension(0xbede, &extension);
            for source in &sources {
                builder = builder.add_csrc(*source);
            }
            let bytes = builder.maybe_padding(padding).write_vec().unwrap();
            let view = parse(&bytes).unwrap();
            prop_assert_eq!((view.sequence, view.payload), (9, &payload[..]));
            // Every shorter part is rejected or yields a shorter payload.
            for cut in 0..bytes.len() {
                if let Ok(v) = parse(&bytes[..cut]) {
                    prop_assert!(v.payload.len() < payload.len() + usize::from(padding.unwrap_or(0)));
                }
            }
        }
    }

    #[test]
    fn one_stream() {
        let mut out = [0; 172];
        let stream = Stream {
            first_sequence: 0xffff,
            first_timestamp: 0xffff_ffff,
            ..Stream::g711(Law::A, 42)
        };
        let mut p = Packetizer::new(stream);
        assert_eq!(p.interval(), Duration::from_millis(20));
        for (marker, sequence, timestamp) in
            [(true, 0xffff, 0xffff_ffff), (false, 0, 159), (false, 1, 319)]
        {
            assert_eq!(p.write(&[5; 160], &mut out), Ok(172));
            let want = RtpView {
                payload_type: PCMA,
                marker,
                sequence,
                timestamp,
                ssrc: 42,
                payload: &[5; 160],
            };
            assert_eq!(parse(&out), Ok(want));
        }
        assert_eq!(p.write(&[5; 161], &mut out), Err(RtpError::NoRoom { need: 173, have: 172 }));
        assert_eq!(p.sequence(), 2, "a packet that was not written uses up no number");
        let mut bad = Packetizer::new(Stream { payload_type: 128, ..stream });
        assert_eq!(bad.write(&[], &mut out), Err(RtpError::PayloadType(128)));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(parse(&[]), Err(RtpError::TooShort { need: 12, have: 0 }));
        assert_eq!(parse(&[0x40; 12]), Err(RtpError::Version(1)));
        // Three sources announced, none present.
        let mut short = [0; 12];
        short[0] = 0x83;
        assert_eq!(parse(&short), Err(RtpError::TooShort { need: 24, have: 12 }));
        // The padding bit is set, with a count of 0.
        let mut padded = [0; 13];
        padded[0] = 0xa0;
        assert_eq!(parse(&padded), Err(RtpError::Padding));
    }
}
