//! G.726: 8 kHz speech at 40, 32, 24 or 16 kbit/s, by predicting each sample and coding
//! what the prediction misses (ADPCM).
//!
//! It goes from G.711 to G.711, as a gateway does between two legs of a call: what comes
//! in and out are codes of either law. Exact in every bit against the normal test
//! sequences of the ITU-T Software Tool Library (G.191), all rates and both laws.
//!
//! Encoder and decoder keep the same state, each derived from the codes alone, and stay
//! in step as long as all codes arrive. After a loss they differ until the state has
//! leaked away. In speech that takes long: with 20 ms lost, the next 20 ms are heard at a
//! signal-to-noise ratio of 1 dB, and the usual ratio is back within 1 dB after 120 ms at
//! 16 kbit/s, 160 ms at 24, 220 ms at 32 and 380 ms at 40, whose zeros leak half as fast
//! (means over 648 losses in 324 s of speech). To have a decoder follow the concealed
//! speech meanwhile was of no use.
//!
//! **Changing the rate.** The predictor and the averages mean the same at every rate, so
//! that a change carries all state over and resets nothing, between one code and the
//! next; if encoder and decoder change at the same code they stay in step. G.726 is made
//! for that: circuit multiplication takes bits from calls that go on. One thing doesn't
//! fit at once: a finer quantizer reaches further beyond its scale, so that the scale is
//! small for the next lower rate, and large for the next higher. It is adapted after 1 or
//! 2 ms. In the 2.5 ms after a step, speech has within 0.2 dB the noise of the lower rate
//! or less, as a mean over all places in dB; the loudest places have 2 dB more after a
//! step from 40 to 32 kbit/s.
//!
//! G.711 has no state, and a codec that begins with none has 15 dB more noise than usual
//! for the first 2.5 ms. So both ends [`follow`](Encoder::follow) what passes at 64
//! kbit/s, and when the call comes down to G.726, it goes on as if it had never been at
//! anything else. Where the other end begins from a reset, so must this one:
//! [`Encoder::reset`].
//!
//! ```
//! use trunkline_media::codec::g711::Law;
//! use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};
//!
//! let mut encoder = Encoder::new(Law::A, Rate::Kbps40, Packing::Rtp);
//! let mut decoder = Decoder::new(Law::A, Rate::Kbps40, Packing::Rtp);
//! let (speech, mut payload, mut heard) = ([0x55; 160], Vec::new(), Vec::new());
//! for rate in [Rate::Kbps40, Rate::Kbps16] {
//!     encoder.set_rate(rate);
//!     decoder.set_rate(rate);
//!     payload.clear();
//!     encoder.encode_to(&speech, &mut payload);
//!     assert_eq!(payload.len(), rate.payload_len(speech.len()));
//!     decoder.decode_to(&payload, &mut heard);
//! }
//! assert_eq!(heard.len(), 2 * speech.len());
//! ```

mod packing;
mod quantizer;
mod state;
#[cfg(test)]
mod tests;

pub use packing::Packing;

use super::g711::Law;
use crate::playout;
use quantizer::Quantizer;
use state::State;
use trunkline_base::Bitrate;

/// The four rates, at two to five bits a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rate {
    /// 16 kbit/s, two bits a sample: 40 bytes in 20 ms.
    Kbps16,
    /// 24 kbit/s, three bits a sample: 60 bytes in 20 ms.
    Kbps24,
    /// 32 kbit/s, four bits a sample: 80 bytes in 20 ms.
    Kbps32,
    /// 40 kbit/s, five bits a sample: 100 bytes in 20 ms.
    Kbps40,
}

impl Rate {
    /// All, from the lowest.
    pub const ALL: [Rate; 4] = [Rate::Kbps16, Rate::Kbps24, Rate::Kbps32, Rate::Kbps40];

    /// Bits of one code, 2 to 5.
    pub const fn bits(self) -> u32 {
        match self {
            Rate::Kbps16 => 2,
            Rate::Kbps24 => 3,
            Rate::Kbps32 => 4,
            Rate::Kbps40 => 5,
        }
    }

    /// Of the codes, without any header.
    pub const fn bitrate(self) -> Bitrate {
        Bitrate::from_bps(8_000 * self.bits() as u64)
    }

    /// Bytes that the codes of so many samples take. RFC 3551 asks for whole groups of
    /// eight samples (four at 16 kbit/s, two at 32), which fill their bytes.
    pub const fn payload_len(self, samples: usize) -> usize {
        (samples * self.bits() as usize).div_ceil(8)
    }

    /// The name in session descriptions (RFC 3551, section 4.5.4). All have dynamic
    /// payload types: the static 2 has been given up, since both packings were sent under
    /// it.
    pub const fn encoding_name(self, packing: Packing) -> &'static str {
        match (packing, self) {
            (Packing::Rtp, Rate::Kbps16) => "G726-16",
            (Packing::Rtp, Rate::Kbps24) => "G726-24",
            (Packing::Rtp, Rate::Kbps32) => "G726-32",
            (Packing::Rtp, Rate::Kbps40) => "G726-40",
            (Packing::Aal2, Rate::Kbps16) => "AAL2-G726-16",
            (Packing::Aal2, Rate::Kbps24) => "AAL2-G726-24",
            (Packing::Aal2, Rate::Kbps32) => "AAL2-G726-32",
            (Packing::Aal2, Rate::Kbps40) => "AAL2-G726-40",
        }
    }
}

/// Turns G.711 into G.726. See the module's docs for what a change of rate keeps.
#[derive(Debug, Clone)]
pub struct Encoder {
    law: Law,
    rate: Rate,
    packing: Packing,
    state: State,
}

impl Encoder {
    /// For one stream, from its beginning.
    pub fn new(law: Law, rate: Rate, packing: Packing) -> Encoder {
        Encoder { law, rate, packing, state: State::RESET }
    }

    /// The rate of what is encoded next.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from the next sample on, and keeps all state.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Forgets what has been encoded, as G.726 defines its reset; the rate stays.
    pub fn reset(&mut self) {
        self.state = State::RESET;
    }

    /// The code, of [`Rate::bits`] bits, of one G.711 code.
    pub fn encode(&mut self, pcm: u8) -> u8 {
        encode(&mut self.state, self.law, self.rate, pcm)
    }

    /// Appends the payload of the G.711 codes `pcm` to `out`: [`Rate::payload_len`] bytes.
    /// Of a length that doesn't fill its last byte, the remaining bits are zero, and a
    /// decoder may take them for samples.
    pub fn encode_to(&mut self, pcm: &[u8], out: &mut Vec<u8>) {
        let (packing, bits) = (self.packing, self.rate.bits());
        packing.pack(bits, pcm.iter().map(|&code| self.encode(code)), out);
    }

    /// Takes in what is sent as G.711 itself, so that a later change to G.726 has all
    /// state. The decoder has to do the same, at the same [`rate`](Encoder::rate): that to
    /// which the call would change, 40 kbit/s.
    pub fn follow(&mut self, pcm: &[u8]) {
        for &code in pcm {
            self.encode(code);
        }
    }
}

/// Turns G.726 back into G.711. As a [`playout::Decoder`] it gives samples, and silence
/// for what is missing.
#[derive(Debug, Clone)]
pub struct Decoder {
    law: Law,
    rate: Rate,
    packing: Packing,
    state: State,
}

impl Decoder {
    /// For one stream, from its beginning.
    pub fn new(law: Law, rate: Rate, packing: Packing) -> Decoder {
        Decoder { law, rate, packing, state: State::RESET }
    }

    /// The rate of what is decoded next.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from the next code on, and keeps all state.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Forgets what has been decoded, as G.726 defines its reset; the rate stays.
    pub fn reset(&mut self) {
        self.state = State::RESET;
    }

    /// The G.711 code of one code. Bits above [`Rate::bits`] are passed over.
    ///
    /// It is the one that an encoder of the same state would give this code again, where
    /// there is one: so a call that goes through several pairs of G.711 and G.726 loses no
    /// more than it does through the first (G.726's synchronous coding adjustment).
    pub fn decode(&mut self, code: u8) -> u8 {
        let quantizer = Quantizer::of(self.rate);
        let code = code & ((1 << quantizer.bits) - 1);
        let estimate = self.state.estimate();
        let sample = self.state.update(quantizer, estimate, code);

        let pcm = compress(self.law, sample);
        let difference = expand(self.law, pcm) - estimate.se;
        let again = quantizer.quantize(difference, estimate.y);
        match quantizer.rank(again).cmp(&quantizer.rank(code)) {
            core::cmp::Ordering::Less => next_higher(self.law, pcm),
            core::cmp::Ordering::Equal => pcm,
            core::cmp::Ordering::Greater => next_lower(self.law, pcm),
        }
    }

    /// Appends the G.711 codes of a payload to `out`: as many as there are whole codes,
    /// which is at most four for a byte.
    pub fn decode_to(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let codes = self.packing.unpack(self.rate.bits(), payload);
        out.extend(codes.map(|code| self.decode(code)));
    }

    /// Takes in what has come as G.711 itself: see [`Encoder::follow`].
    pub fn follow(&mut self, pcm: &[u8]) {
        for &code in pcm {
            encode(&mut self.state, self.law, self.rate, code);
        }
    }
}

/// Without concealment: a missing frame is silence, and the state waits.
impl playout::Decoder for Decoder {
    fn decode(&mut self, payload: &[u8], frame: &mut [i16]) {
        frame.fill(0);
        let codes = self.packing.unpack(self.rate.bits(), payload);
        for (sample, code) in frame.iter_mut().zip(codes) {
            *sample = self.law.decode(Decoder::decode(self, code));
        }
    }

    fn conceal(&mut self, frame: &mut [i16]) {
        frame.fill(0);
    }
}

fn encode(state: &mut State, law: Law, rate: Rate, pcm: u8) -> u8 {
    let quantizer = Quantizer::of(rate);
    let estimate = state.estimate();
    let code = quantizer.quantize(expand(law, pcm) - estimate.se, estimate.y);
    state.update(quantizer, estimate, code);
    code
}

/// A G.711 code as a sample of 14 bits (EXPAND).
fn expand(law: Law, pcm: u8) -> i32 {
    i32::from(law.decode(pcm) >> 2)
}

/// The G.711 code of a sample of a 14-bit scale (COMPRESS). G.726 cuts magnitudes off,
/// where G.711's µ-law encoder has one's complements; and it keeps 15 bits of them, so
/// that −32,768, which only senseless codes lead to, has none.
fn compress(law: Law, sample: i16) -> u8 {
    let loud = sample.saturating_mul(4);
    match (law, sample) {
        (Law::A, i16::MIN) => law.encode(-1),
        (Law::A, _) => law.encode(loud),
        (Law::Mu, i16::MIN) => law.encode(0),
        (Law::Mu, _) => law.encode(loud.saturating_sub((sample < 0).into())),
    }
}

/// Splits a G.711 code into whether it is negative and its magnitude, 0 to 127; and back.
fn split(law: Law, pcm: u8) -> (bool, u8) {
    let plain = match law {
        Law::A => pcm ^ 0xd5,
        Law::Mu => pcm ^ 0xff,
    };
    (plain & 0x80 != 0, plain & 0x7f)
}

fn join(law: Law, negative: bool, magnitude: u8) -> u8 {
    let plain = u8::from(negative) << 7 | magnitude;
    match law {
        Law::A => plain ^ 0xd5,
        Law::Mu => plain ^ 0xff,
    }
}

/// The next code upwards, or the same at the upper end.
fn next_higher(law: Law, pcm: u8) -> u8 {
    step(law, pcm, false)
}

/// The next code downwards, or the same at the lower end.
fn next_lower(law: Law, pcm: u8) -> u8 {
    step(law, pcm, true)
}

fn step(law: Law, pcm: u8, down: bool) -> u8 {
    match split(law, pcm) {
        (negative, magnitude) if negative == down => join(law, negative, (magnitude + 1).min(0x7f)),
        (_, 0) => {
            // µ-law has two zeros: beyond one is what is beyond the other.
            let magnitude = if law == Law::Mu { 1 } else { 0 };
            join(law, down, magnitude)
        }
        (negative, magnitude) => join(law, negative, magnitude - 1),
    }
}
