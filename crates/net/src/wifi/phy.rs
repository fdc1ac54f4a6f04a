//! How long what is on the air: OFDM in a 20 MHz channel (IEEE 802.11a-1999),
//! 36 Mbit/s for data and 24 Mbit/s, the fastest mandatory rate, for control.

use core::time::Duration;

/// Short interframe space: between the frames of one exchange (clause 17,
/// aSIFSTime).
pub const SIFS: Duration = Duration::from_micros(16);
/// One slot of contention (clause 17, aSlotTime).
pub const SLOT: Duration = Duration::from_micros(9);
/// How long the hybrid coordinator finds the medium idle before it takes it.
pub const PIFS: Duration = Duration::from_micros(16 + 9);
/// How long after the end of a frame its sender gives up waiting for the
/// acknowledgement to begin: a SIFS, a slot, and the 25 µs within which a
/// receiver notices a frame (IEEE 802.11-2007, 9.2.8 and aPHY-RX-START-Delay of
/// clause 17).
pub const ACK_TIMEOUT: Duration = Duration::from_micros(16 + 9 + 25);

/// Preamble, 16 µs, and the PLCP's SIGNAL field, 4 µs.
const PREAMBLE: Duration = Duration::from_micros(20);
const SYMBOL: Duration = Duration::from_micros(4);
/// The SERVICE field and the tail of the convolutional code.
const SERVICE_AND_TAIL: u32 = 16 + 6;

/// The length of an acknowledgement in bytes.
pub const ACK: u32 = 14;
/// The length in bytes of a QoS frame without data: MAC header 24, QoS control 2,
/// FCS 4. So long are a QoS CF-Poll, a QoS CF-Ack and a QoS Null.
pub const EMPTY: u32 = 24 + 2 + 4;
/// What a data frame has around a packet, in bytes: as [`EMPTY`], and 8 of LLC and
/// SNAP, by which the receiver knows IP from other protocols.
pub const OVERHEAD: u32 = EMPTY + 8;
/// The longest packet in bytes: an MSDU has at most 2,304 (IEEE 802.11-1999, 7.1.2),
/// LLC and SNAP among them.
pub const MAX_PACKET: u32 = 2_304 - 8;

/// The two rates of a cell, as data bits in each symbol of 4 µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// 36 Mbit/s: 16-QAM, rate 3/4.
    Data = 144,
    /// 24 Mbit/s: 16-QAM, rate 1/2.
    Control = 96,
}

/// How long a frame of `bytes`, with its MAC header and FCS, is on the air: whole
/// symbols after the preamble (IEEE 802.11a-1999, 17.4.3).
pub const fn air_time(bytes: u32, speed: Speed) -> Duration {
    let symbols = (SERVICE_AND_TAIL + 8 * bytes).div_ceil(speed as u32);
    Duration::from_micros(PREAMBLE.as_micros() as u64 + symbols as u64 * SYMBOL.as_micros() as u64)
}

/// How long a data frame with a packet of `bytes` is on the air.
pub const fn data_time(bytes: u32) -> Duration {
    air_time(OVERHEAD + bytes, Speed::Data)
}

/// How long an acknowledgement is on the air: 28 µs.
pub const ACK_TIME: Duration = air_time(ACK, Speed::Control);

/// How long a QoS frame without data is on the air: 32 µs.
pub const EMPTY_TIME: Duration = air_time(EMPTY, Speed::Control);

/// The probability that a frame of `bytes` has no wrong bit, where each bit is
/// wrong by itself with probability `rate`. By multiplications alone, which give the
/// same bits on every machine.
pub fn intact(rate: f64, bytes: u32) -> f64 {
    let (mut power, mut right, mut bits) = (1.0, 1.0 - rate, 8 * bytes);
    while bits > 0 {
        if bits & 1 == 1 {
            power *= right;
        }
        right *= right;
        bits >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times by hand, from the number of bits: 22 and eight for each byte.
    #[test]
    fn frames_take_whole_symbols() {
        let us = Duration::from_micros;
        // 22 + 8·(38 + 1,500) = 12,326 bits: 85.6, so 86 symbols of 144.
        assert_eq!(data_time(1_500), us(20 + 86 * 4));
        assert_eq!(data_time(1_500), us(364));
        // 22 + 8·(38 + 200) = 1,926 bits: 13.4, so 14 symbols.
        assert_eq!(data_time(200), us(76));
        // 22 + 8·14 = 134 bits: 1.4, so 2 symbols of 96.
        assert_eq!(ACK_TIME, us(28));
        // 22 + 8·30 = 262 bits: 2.7, so 3.
        assert_eq!(EMPTY_TIME, us(32));
        // 22 + 8·(38 + 211) = 2,014 bits: 13.99, so 14; one byte more begins another.
        assert_eq!((data_time(211), data_time(212)), (us(76), us(80)));
    }

    #[test]
    fn errors_grow_with_length() {
        assert_eq!(intact(0.0, 1_538), 1.0);
        assert_eq!(intact(1.0, 1), 0.0);
        // e^(-1e-4 · 12,304) = 0.2922, and a 14-byte frame e^(-0.0112) = 0.98886.
        assert!((intact(1e-4, 1_538) - 0.292_2).abs() < 1e-4);
        assert!((intact(1e-4, 14) - 0.988_86).abs() < 1e-5);
    }
}
