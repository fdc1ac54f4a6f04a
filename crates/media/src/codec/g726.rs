//! G.726: 8 kHz speech at 40, 32, 24 or 16 kbit/s, by predicting each sample and coding the
//! prediction error (ADPCM).
//!
//! It converts from G.711 to G.711, as a gateway does between two legs of a call: input and output
//! are codes of either law. It is bit-exact against the normal test sequences of the ITU-T Software
//! Tool Library (G.191), at all rates and in both laws.
//!
//! Encoder and decoder keep the same state, each derived from the codes alone, and stay in step as
//! long as all codes arrive. After a loss they differ until the state has leaked away. In speech
//! that takes long: with 20 ms lost, the next 20 ms have a signal-to-noise ratio of 1 dB, and the
//! usual ratio is back within 1 dB after 120 ms at 16 kbit/s, 160 ms at 24, 220 ms at 32 and 380 ms
//! at 40, whose zeros leak half as fast (means over 648 losses in 324 s of speech). Letting the
//! decoder follow the concealed speech meanwhile did not help.
//!
//! **Changing the rate.** The predictor and the averages have the same meaning at every rate, so a
//! change carries all state over from one code to the next and resets nothing; if encoder and
//! decoder change at the same code, they stay in step. G.726 is designed for that: circuit
//! multiplication takes bits from calls in progress. One thing doesn't fit at once: a finer
//! quantizer reaches further beyond its scale, so the scale is too small for the next lower rate,
//! and too large for the next higher. It adapts within 1 or 2 ms. In the 2.5 ms after a step,
//! speech has at most 0.2 dB more noise than at the lower rate, as a mean in dB over all positions;
//! the loudest positions have 2 dB more after a step from 40 to 32 kbit/s.
//!
//! G.711 has no state, and a codec that starts from a reset has 15 dB more noise than usual for the
//! first 2.5 ms. So both ends [`follow`](Encoder::follow) the speech at 64 kbit/s, and when the
//! call changes to G.726, it continues as if it had never used anything else. If the other end
//! starts from a reset, so must this one: [`Encoder::reset`].
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

/// The four rates, at two to five bits per sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rate {
    /// 16 kbit/s, two bits per sample: 40 bytes in 20 ms.
    Kbps16,
    /// 24 kbit/s, three bits per sample: 60 bytes in 20 ms.
    Kbps24,
    /// 32 kbit/s, four bits per sample: 80 bytes in 20 ms.
    Kbps32,
    /// 40 kbit/s, five bits per sample: 100 bytes in 20 ms.
    Kbps40,
}

impl Rate {
    /// All rates in ascending order.
    pub const ALL: [Rate; 4] = [Rate::Kbps16, Rate::Kbps24, Rate::Kbps32, Rate::Kbps40];

    /// Number of bits per code, 2 to 5.
    pub const fn bits(self) -> u32 {
        match self {
            Rate::Kbps16 => 2,
            Rate::Kbps24 => 3,
            Rate::Kbps32 => 4,
            Rate::Kbps40 => 5,
        }
    }

    /// Bit rate of the codes, without any header.
    pub const fn bitrate(self) -> Bitrate {
        Bitrate::from_bps(8_000 * self.bits() as u64)
    }

    /// Size of `samples` codes in bytes. RFC 3551 requires whole groups of eight samples (four at
    /// 16 kbit/s, two at 32), which fill their bytes.
    pub const fn payload_len(self, samples: usize) -> usize {
        (samples * self.bits() as usize).div_ceil(8)
    }

    /// The encoding name in session descriptions (RFC 3551, section 4.5.4). All have dynamic
    /// payload types: the static type 2 was abandoned, since both packings were sent under it.
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

/// Encodes G.711 as G.726. The module's documentation describes what a rate change preserves.
#[derive(Debug, Clone)]
pub struct Encoder {
    law: Law,
    rate: Rate,
    packing: Packing,
    state: State,
}

impl Encoder {
    /// Creates an encoder for the start of a stream.
    pub fn new(law: Law, rate: Rate, packing: Packing) -> Encoder {
        Encoder { law, rate, packing, state: State::RESET }
    }

    /// The rate of the next code.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from the next sample on, and keeps all state.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Resets the state as defined by G.726; the rate stays.
    pub fn reset(&mut self) {
        self.state = State::RESET;
    }

    /// Encodes one G.711 code; the result has [`Rate::bits`] bits.
    pub fn encode(&mut self, pcm: u8) -> u8 {
        encode(&mut self.state, self.law, self.rate, pcm)
    }

    /// Appends the payload for the G.711 codes `pcm` to `out`: [`Rate::payload_len`] bytes. If the
    /// codes don't fill the last byte, its remaining bits are zero, and a decoder may take them for
    /// samples.
    pub fn encode_to(&mut self, pcm: &[u8], out: &mut Vec<u8>) {
        let (packing, bits) = (self.packing, self.rate.bits());
        packing.pack(bits, pcm.iter().map(|&code| self.encode(code)), out);
    }

    /// Updates the state with speech that is sent as G.711, so that a later change to G.726 has all
    /// state. The decoder must do the same at the same [`rate`](Encoder::rate): the one that the
    /// call would change to, 40 kbit/s.
    pub fn follow(&mut self, pcm: &[u8]) {
        for &code in pcm {
            self.encode(code);
        }
    }
}

/// Decodes G.726 to G.711. As a [`playout::Decoder`] it outputs samples, and silence for missing
/// packets.
#[derive(Debug, Clone)]
pub struct Decoder {
    law: Law,
    rate: Rate,
    packing: Packing,
    state: State,
}

impl Decoder {
    /// Creates a decoder for the start of a stream.
    pub fn new(law: Law, rate: Rate, packing: Packing) -> Decoder {
        Decoder { law, rate, packing, state: State::RESET }
    }

    /// The rate of the next code.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from the next code on, and keeps all state.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Resets the state as defined by G.726; the rate stays.
    pub fn reset(&mut self) {
        self.state = State::RESET;
    }

    /// Decodes one code to G.711. Bits above [`Rate::bits`] are ignored.
    ///
    /// The result is the G.711 code that an encoder in the same state would turn into this code
    /// again, if there is one: so a call that passes several pairs of G.711 and G.726 loses no more
    /// than in the first (G.726's synchronous coding adjustment).
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

    /// Appends the G.711 codes of a payload to `out`: one for each whole code, at most four per
    /// byte.
    pub fn decode_to(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let codes = self.packing.unpack(self.rate.bits(), payload);
        out.extend(codes.map(|code| self.decode(code)));
    }

    /// Updates the state with speech received as G.711: see [`Encoder::follow`].
    pub fn follow(&mut self, pcm: &[u8]) {
        for &code in pcm {
            encode(&mut self.state, self.law, self.rate, code);
        }
    }
}

/// Decodes without concealment: a missing frame is silence, and the state stays as it is.
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

/// Expands a G.711 code to a 14-bit sample (EXPAND).
fn expand(law: Law, pcm: u8) -> i32 {
    i32::from(law.decode(pcm) >> 2)
}

/// Compresses a sample on a 14-bit scale to G.711 (COMPRESS). G.726 truncates magnitudes, where
/// G.711's µ-law encoder uses one's complements; and it keeps 15 bits of them, so −32,768, which
/// only invalid codes lead to, has no magnitude.
fn compress(law: Law, sample: i16) -> u8 {
    let loud = sample.saturating_mul(4);
    match (law, sample) {
        (Law::A, i16::MIN) => law.encode(-1),
        (Law::A, _) => law.encode(loud),
        (Law::Mu, i16::MIN) => law.encode(0),
        (Law::Mu, _) => law.encode(loud.saturating_sub((sample < 0).into())),
    }
}

/// Splits a G.711 code into its sign (true if negative) and magnitude, 0 to 127; `join` is the
/// inverse.
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

/// The next higher code, or the same at the upper end.
fn next_higher(law: Law, pcm: u8) -> u8 {
    step(law, pcm, false)
}

/// The next lower code, or the same at the lower end.
fn next_lower(law: Law, pcm: u8) -> u8 {
    step(law, pcm, true)
}

fn step(law: Law, pcm: u8, down: bool) -> u8 {
    match split(law, pcm) {
        (negative, magnitude) if negative == down => join(law, negative, (magnitude + 1).min(0x7f)),
        (_, 0) => {
            // µ-law has two zeros: stepping past one skips the other.
            let magnitude = if law == Law::Mu { 1 } else { 0 };
            join(law, down, magnitude)
        }
        (negative, magnitude) => join(law, negative, magnitude - 1),
    }
}
