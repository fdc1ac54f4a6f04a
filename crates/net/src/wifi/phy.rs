//! Air times: OFDM in a 20 MHz channel (IEEE 802.11a-1999), 36 Mbit/s for data and 24 Mbit/s, the
//! fastest mandatory rate, for control.

use core::time::Duration;

/// Short interframe space: between the frames of one exchange (clause 17,
/// aSIFSTime).
pub const SIFS: Duration = Duration::from_micros(16);
/// One slot of contention (clause 17, aSlotTime).
pub const SLOT: Duration = Duration::from_micros(9);
/// Time for which the hybrid coordinator finds the medium idle before it takes it.
pub const PIFS: Duration = Duration::from_micros(16 + 9);
/// Time after the end of a frame at which its sender stops waiting for the acknowledgement to
/// begin: a SIFS, a slot, and the 25 µs within which a receiver notices a frame (IEEE 802.11-2007,
/// 9.2.8 and aPHY-RX-START-Delay of clause 17).
pub const ACK_TIMEOUT: Duration = Duration::from_micros(16 + 9 + 25);

/// Preamble, 16 µs, and the PLCP's SIGNAL field, 4 µs.
const PREAMBLE: Duration = Duration::from_micros(20);
const SYMBOL: Duration = Duration::from_micros(4);
/// Bits of the SERVICE field and the tail of the convolutional code.
const SERVICE_AND_TAIL: u32 = 16 + 6;

/// Length of an acknowledgement in bytes.
pub const ACK: u32 = 14;
/// Length in bytes of a QoS frame without data: MAC header 24, QoS control 2, FCS 4. A QoS CF-Poll,
/// a QoS CF-Ack and a QoS Null have this length.
pub const EMPTY: u32 = 24 + 2 + 4;
/// Overhead of a data frame around its packet, in bytes: [`EMPTY`], plus 8 for LLC and SNAP, which
/// tell the receiver IP from other protocols.
pub const OVERHEAD: u32 = EMPTY + 8;
/// Maximum packet length in bytes: an MSDU has at most 2,304 (IEEE 802.11-1999, 7.1.2), including
/// LLC and SNAP.
pub const MAX_PACKET: u32 = 2_304 - 8;

/// The two rates of a cell, in data bits per symbol of 4 µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// 36 Mbit/s: 16-QAM, rate 3/4.
    Data = 144,
    /// 24 Mbit/s: 16-QAM, rate 1/2.
    Control = 96,
}

/// Air time of a frame of `bytes` bytes, with its MAC header and FCS: whole symbols after the
/// preamble (IEEE 802.11a-1999, 17.4.3).
pub const fn air_time(bytes: u32, speed: Speed) -> Duration {
    let symbols = (SERVICE_AND_TAIL + 8 * bytes).div_ceil(speed as u32);
    Duration::from_micros(PREAMBLE.as_micros() as u64 + symbols as u64 * SYMBOL.as_micros() as u64)
}

/// Air time of a data frame with a packet of `bytes` bytes.
pub const fn data_time(bytes: u32) -> Duration {
    air_time(OVERHEAD + bytes, Speed::Data)
}

/// Air time of an acknowledgement: 28 µs.
pub const ACK_TIME: Duration = air_time(ACK, Speed::Control);

/// Air time of a QoS frame without data: 32 µs.
pub const EMPTY_TIME: Duration = air_time(EMPTY, Speed::Control);

/// The probability that a frame of `bytes` bytes has no bit error, where each bit is wrong
/// independently with probability `rate`. Uses only multiplications, which give the same bits on
/// every machine.
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

    /// Times worked out by hand from the number of bits: 22, plus eight for each byte.
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
