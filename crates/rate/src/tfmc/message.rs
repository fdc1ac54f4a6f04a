//! Messages between the two ends of a trunk, and their byte format.

use super::Malformed;
use core::time::Duration;
use trunkline_base::wire::{Reader, Short};

/// Size of a [`Data`] on the wire, in bytes.
pub const DATA_BYTES: usize = 8;
/// Size of a [`Feedback`] on the wire, in bytes.
pub const FEEDBACK_BYTES: usize = 12;

/// Header of each datagram of a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Number of the datagram, one more than that of the datagram before; it wraps.
    pub number: u32,
    /// The sender's round-trip time; `None` before the first report. On the wire in microseconds,
    /// up to 71 minutes.
    pub rtt: Option<Duration>,
}

/// A report of the receiver.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    /// The highest number received.
    pub number: u32,
    /// Time since that datagram arrived. On the wire in microseconds, rounded down, up to 71
    /// minutes.
    pub elapsed: Duration,
    /// p, the loss event rate, 0 to 1. On the wire in units of 1/(2³² − 1), rounded up, so that
    /// only 0 is 0.
    pub loss: f64,
}

impl Data {
    /// Encodes the header, big-endian: number 4 bytes, round trip 4 (0 for `None`).
    pub fn emit(&self) -> [u8; DATA_BYTES] {
        let mut out = [0; DATA_BYTES];
        out[..4].copy_from_slice(&self.number.to_be_bytes());
        out[4..].copy_from_slice(&self.rtt.map_or(0, |rtt| micros(rtt).max(1)).to_be_bytes());
        out
    }

    /// Parses exactly the output of [`emit`](Data::emit).
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] unless there are [`DATA_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Data, Malformed> {
        let read = |mut r: Reader<'_>| Ok::<_, Short>((r.u32()?, r.u32()?, r.is_empty()));
        let Ok((number, rtt, true)) = read(Reader::new(bytes)) else {
            return Err(Malformed { len: bytes.len(), expected: DATA_BYTES });
        };
        Ok(Data { number, rtt: (rtt > 0).then(|| Duration::from_micros(rtt.into())) })
    }
}

impl Feedback {
    /// Encodes the report, big-endian: number 4 bytes, elapsed 4, loss 4.
    pub fn emit(&self) -> [u8; FEEDBACK_BYTES] {
        // A float cast saturates, and converts NaN to 0.
        let loss = libm::ceil(self.loss * f64::from(u32::MAX)) as u32;
        let mut out = [0; FEEDBACK_BYTES];
        out[..4].copy_from_slice(&self.number.to_be_bytes());
        out[4..8].copy_from_slice(&micros(self.elapsed).to_be_bytes());
        out[8..].copy_from_slice(&loss.to_be_bytes());
        out
    }

    /// Parses exactly the output of [`emit`](Feedback::emit).
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] unless there are [`FEEDBACK_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Feedback, Malformed> {
        let read = |mut r: Reader<'_>| Ok::<_, Short>((r.u32()?, r.u32()?, r.u32()?, r.is_empty()));
        let Ok((number, elapsed, loss, true)) = read(Reader::new(bytes)) else {
            return Err(Malformed { len: bytes.len(), expected: FEEDBACK_BYTES });
        };
        let elapsed = Duration::from_micros(elapsed.into());
        Ok(Feedback { number, elapsed, loss: f64::from(loss) / f64::from(u32::MAX) })
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
        fn what_is_written_is_read(number: u32, us: u32, loss: u32) {
            let elapsed = Duration::from_micros(us.into());
            let data = Data { number, rtt: (us > 0).then_some(elapsed) };
            prop_assert_eq!(Data::parse(&data.emit()), Ok(data));
            let feedback = Feedback { number, elapsed, loss: f64::from(loss) / f64::from(u32::MAX) };
            let read = Feedback::parse(&feedback.emit()).unwrap();
            prop_assert!((read.loss - feedback.loss).abs() < 1e-9);
            prop_assert_eq!(Feedback { loss: feedback.loss, ..read }, feedback);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            prop_assert_eq!(Data::parse(&bytes).is_ok(), bytes.len() == DATA_BYTES);
            prop_assert_eq!(Feedback::parse(&bytes).is_ok(), bytes.len() == FEEDBACK_BYTES);
        }
    }

    #[test]
    fn a_little_loss_is_not_none() {
        let feedback = Feedback { number: 2, elapsed: Duration::MAX, loss: 1e-30 };
        assert!(Feedback::parse(&feedback.emit()).unwrap().loss > 0.0);
        let none = Feedback { loss: f64::NAN, ..feedback };
        assert_eq!(Feedback::parse(&none.emit()).unwrap().loss, 0.0);
    }
}
