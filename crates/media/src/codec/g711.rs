//! G.711: 8 kHz speech at 64 kbit/s, one byte per sample.
//!
//! Samples are 16-bit, left-justified, as in the ITU-T Software Tool Library: A-law uses the 13
//! high bits, µ-law the 14 high ones. The arithmetic is that of crate `audio-codec-algorithms`,
//! which equals the Library (G.191) on all 65,536 inputs of both laws; common tables and other
//! encoders do not.

use audio_codec_algorithms::{decode_alaw, decode_ulaw, encode_alaw, encode_ulaw};

use crate::conceal::{Concealer, DELAY};
use crate::playout::Decoder;
use crate::rtp;

/// The two companding laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Law {
    /// µ-law (North America, Japan), PCMU.
    Mu,
    /// A-law (elsewhere), PCMA; even bits inverted as on the wire.
    A,
}

impl Law {
    /// The static RTP payload type (RFC 3551 §6).
    pub fn payload_type(self) -> u8 {
        match self {
            Law::Mu => rtp::PCMU,
            Law::A => rtp::PCMA,
        }
    }

    /// Encodes one 16-bit sample.
    pub fn encode(self, sample: i16) -> u8 {
        match self {
            Law::Mu => encode_ulaw(sample),
            Law::A => encode_alaw(sample),
        }
    }

    /// Decodes one code to a 16-bit sample.
    pub fn decode(self, code: u8) -> i16 {
        match self {
            Law::Mu => decode_ulaw(code),
            Law::A => decode_alaw(code),
        }
    }

    /// Appends the codes of `pcm` to `out`.
    pub fn encode_to(self, pcm: &[i16], out: &mut Vec<u8>) {
        out.extend(pcm.iter().map(|&s| self.encode(s)));
    }

    /// Appends the samples of `codes` to `out`.
    pub fn decode_to(self, codes: &[u8], out: &mut Vec<i16>) {
        out.extend(codes.iter().map(|&c| self.decode(c)));
    }
}

/// Decodes without concealment: a missing frame is silence.
impl Decoder for Law {
    fn decode(&mut self, payload: &[u8], frame: &mut [i16]) {
        frame.fill(0);
        for (sample, &code) in frame.iter_mut().zip(payload) {
            *sample = Law::decode(*self, code);
        }
    }

    fn conceal(&mut self, frame: &mut [i16]) {
        frame.fill(0);
    }
}

/// A G.711 decoder with the concealment of Appendix I: a missing frame sounds like the speech
/// before it.
///
/// ```
/// use std::time::Duration;
/// use trunkline_media::codec::g711::{Concealing, Law};
/// use trunkline_media::playout::{Config, Playout};
///
/// let mut playout = Playout::new(Config::default());
/// playout.receive(7, Duration::from_millis(30), false, &[0x12; 160])?;
/// let heard = playout.finish(Some(2), &mut Concealing::new(Law::Mu));
/// assert_eq!(heard.pcm.len(), 320);
/// assert_ne!(heard.pcm[160..], [0; 160], "the second packet is missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Concealing {
    law: Law,
    concealer: Concealer,
}

impl Concealing {
    /// Creates a decoder for the start of a stream.
    pub fn new(law: Law) -> Concealing {
        Concealing { law, concealer: Concealer::new() }
    }
}

impl Decoder for Concealing {
    fn decode(&mut self, payload: &[u8], frame: &mut [i16]) {
        Decoder::decode(&mut self.law, payload, frame);
        self.concealer.received(frame);
    }

    fn conceal(&mut self, frame: &mut [i16]) {
        self.concealer.lost(frame);
    }

    fn delay(&self) -> usize {
        DELAY
    }

    fn flush(&mut self, tail: &mut [i16]) {
        self.concealer.flush(tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoded_sample_is_its_own_code() {
        for law in [Law::Mu, Law::A] {
            for code in 0..=255 {
                let again = law.encode(law.decode(code));
                // µ-law has two zeros, and the encoder uses the positive one.
                let want = if law == Law::Mu && code == 0x7f { 0xff } else { code };
                assert_eq!(again, want, "{law:?}");
            }
        }
    }

    #[test]
    fn error_grows_with_the_level() {
        // Half a step of the segment: 1/32 of the sample, plus the laws' smallest steps (16 and 8
        // in 16-bit units) below the first segment.
        for (law, least) in [(Law::A, 16), (Law::Mu, 8)] {
            for s in -32_000i32..=32_000 {
                let error = (i32::from(law.decode(law.encode(s as i16))) - s).abs();
                assert!(error <= least + s.abs() / 31, "{law:?} {s}: off by {error}");
            }
        }
    }

    #[test]
    fn frames_of_the_wrong_size_are_padded_or_cut() {
        let mut law = Law::A;
        let mut frame = [99; 4];
        Decoder::decode(&mut law, &[0xd5, 0xd5], &mut frame);
        assert_eq!(frame, [8, 8, 0, 0]);
        Decoder::decode(&mut law, &[0xd5; 9], &mut frame);
        assert_eq!(frame, [8; 4]);
    }
}
