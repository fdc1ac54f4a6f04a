//! Messages between sender and receiver (RFC 3448, section 3.2), and their byte format.

use core::time::Duration;
use trunkline_base::wire::{Reader, Short};

/// Size of a [`Data`] on the wire, in bytes.
pub const DATA_BYTES: usize = 10;
/// Size of a [`Feedback`] on the wire, in bytes.
pub const FEEDBACK_BYTES: usize = 18;

/// Header of each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Flow that the packet belongs to.
    pub flow: u32,
    /// Number of the packet, one more than that of the packet before; it wraps.
    pub number: u16,
    /// The sender's round-trip time; `None` before the first report. On the wire in microseconds,
    /// up to 71 minutes.
    pub rtt: Option<Duration>,
}

/// A report of the receiver.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    /// Flow that the report is about.
    pub flow: u32,
    /// The highest number received.
    pub acknowledged: u16,
    /// t_delay, time since that packet arrived. On the wire in microseconds, rounded down, up to 71
    /// minutes.
    pub elapsed: Duration,
    /// X_recv, bytes of payload per second. On the wire a 32-bit integer, the nearest one except
    /// that only 0 is 0: a sender that receives 0 falls to one segment in 64 s, which for segments
    /// of less than 32 bytes is a rate below one half.
    pub receive_rate: f64,
    /// p, the loss event rate, 0 to 1. On the wire in units of 1/(2³² − 1), rounded up, so that
    /// only 0 is 0.
    pub loss: f64,
}

/// A message that is too short or too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message has {len} bytes instead of {expected}")]
pub struct Malformed {
    /// Length of the message, in bytes.
    pub len: usize,
    /// Required length, in bytes.
    pub expected: usize,
}

impl Data {
    /// Encodes the header, big-endian: flow 4 bytes, number 2, round trip 4 (0 for `None`).
    pub fn emit(&self) -> [u8; DATA_BYTES] {
        let rtt = self.rtt.map_or(0, |rtt| micros(rtt).max(1));
        let mut out = [0; DATA_BYTES];
        out[..4].copy_from_slice(&self.flow.to_be_bytes());
        out[4..6].copy_from_slice(&self.number.to_be_bytes());
        out[6..].copy_from_slice(&rtt.to_be_bytes());
        out
    }

    /// Parses exactly the output of [`emit`](Data::emit).
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] unless there are [`DATA_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Data, Malformed> {
        let malformed = Malformed { len: bytes.len(), expected: DATA_BYTES };
        let read = |mut r: Reader<'_>| Ok::<_, Short>((r.u32()?, r.u16()?, r.u32()?, r.is_empty()));
        let Ok((flow, number, rtt, true)) = read(Reader::new(bytes)) else { return Err(malformed) };
        let rtt = (rtt > 0).then(|| Duration::from_micros(rtt.into()));
        Ok(Data { flow, number, rtt })
    }
}

impl Feedback {
    /// Encodes the report, big-endian: flow 4 bytes, acknowledged 2, elapsed 4, receive rate 4,
    /// loss 4.
    pub fn emit(&self) -> [u8; FEEDBACK_BYTES] {
        // A float cast saturates, and converts NaN to 0.
        let loss = libm::ceil(self.loss * f64::from(u32::MAX)) as u32;
        let rate = libm::round(self.receive_rate) as u32;
        let rate = if self.receive_rate > 0.0 { rate.max(1) } else { rate };
        let mut out = [0; FEEDBACK_BYTES];
        out[..4].copy_from_slice(&self.flow.to_be_bytes());
        out[4..6].copy_from_slice(&self.acknowledged.to_be_bytes());
        out[6..10].copy_from_slice(&micros(self.elapsed).to_be_bytes());
        out[10..14].copy_from_slice(&rate.to_be_bytes());
        out[14..].copy_from_slice(&loss.to_be_bytes());
        out
    }

    /// Parses exactly the output of [`emit`](Feedback::emit).
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] unless there are [`FEEDBACK_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Feedback, Malformed> {
        let malformed = Malformed { len: bytes.len(), expected: FEEDBACK_BYTES };
        let read = |mut r: Reader<'_>| {
            Ok::<_, Short>((r.u32()?, r.u16()?, [r.u32()?, r.u32()?, r.u32()?], r.is_empty()))
        };
        let Ok((flow, acknowledged, [elapsed, rate, loss], true)) = read(Reader::new(bytes)) else {
            return Err(malformed);
        };
        Ok(Feedback {
            flow,
            acknowledged,
            elapsed: Duration::from_micros(elapsed.into()),
            receive_rate: rate.into(),
            loss: f64::from(loss) / f64::from(u32::MAX),
        })
    }
}

fn micros(d: Duration) -> u32 {
    u32::try_from(d.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(flow: u32, number: u16, us: u32, rate: u32, loss: u32) {
            let rtt = (us > 0).then(|| Duration::from_micros(us.into()));
            let data = Data { flow, number, rtt };
            prop_assert_eq!(Data::parse(&data.emit()), Ok(data));
            let feedback = Feedback {
                flow,
                acknowledged: number,
                elapsed: Duration::from_micros(us.into()),
                receive_rate: rate.into(),
                loss: f64::from(loss) / f64::from(u32::MAX),
            };
            let read = Feedback::parse(&feedback.emit()).unwrap();
            prop_assert!((read.loss - feedback.loss).abs() < 1e-9);
            prop_assert_eq!(Feedback { loss: feedback.loss, ..read }, feedback);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Data::parse(&bytes).is_ok(), bytes.len() == DATA_BYTES);
            prop_assert_eq!(Feedback::parse(&bytes).is_ok(), bytes.len() == FEEDBACK_BYTES);
        }
    }

    #[test]
    fn a_little_loss_is_not_none() {
        let feedback = Feedback {
            flow: 1,
            acknowledged: 2,
            elapsed: Duration::ZERO,
            receive_rate: f64::NAN,
            loss: 1e-30,
        };
        let read = Feedback::parse(&feedback.emit()).unwrap();
        assert!(read.loss > 0.0 && read.receive_rate == 0.0);
    }

    #[test]
    fn a_low_receive_rate_is_not_none() {
        let rate = |receive_rate| {
            let elapsed = Duration::ZERO;
            let feedback = Feedback { flow: 1, acknowledged: 2, elapsed, receive_rate, loss: 0.0 };
            Feedback::parse(&feedback.emit()).unwrap().receive_rate
        };
        // 20 bytes in 64 s are 0.3 bytes per second.
        let rates = [0.0, 20.0 / 64.0, 1.4, 1.5, 1e12].map(rate);
        assert_eq!(rates, [0.0, 1.0, 1.0, 2.0, f64::from(u32::MAX)]);
    }
}
