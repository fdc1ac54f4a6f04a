//! Random early detection (Floyd and Jacobson 1993; RFC 2309) for packets that wait for their first
//! transmission, with marks instead of drops. It measures the time that packets waited and not the
//! length of the queue, so that one setting suits links of any rate (as RFC 8289 argues). It spaces
//! its marks evenly and not at random, since RED uses randomness only to avoid clusters.

use core::time::Duration;

/// Nothing is marked while packets wait less than this on average. Windows shrink to 0.8 at a mark,
/// so a queue of 60 ms keeps a link busy for streams with round trips of up to 240 ms.
const LOW: Duration = Duration::from_millis(60);

/// Up to this average wait the share of marks rises to a tenth. A longer wait counts as this one:
/// packets held up by a silent link are not a standing queue, and since the average counts packets,
/// streams that send two of them per round trip would be marked for seconds until it has come down.
pub const HIGH: Duration = Duration::from_millis(200);

/// Longest round trip of a link to which both thresholds apply unchanged. Over a longer one they
/// grow in proportion: its streams have longer round trips and need a larger queue, and packets
/// behind a loss wait longer.
pub const NEAR: Duration = Duration::from_millis(50);

/// A longer wait makes no difference; its product with [`NEAR`] fits in 64 bits.
const MINUTE: Duration = Duration::from_secs(60);

/// Share of marks at [`HIGH`], in units of 1/[`ONE`].
const AT_HIGH: u64 = ONE / 10;
const ONE: u64 = 1 << 16;

/// Weight of one packet in the average, as a shift. A link with losses halves its window again and
/// again, and streams should not send less because of that: at 1 % it sends fewer than 128 packets
/// from one loss to the next.
const WEIGHT: u32 = 7;

/// Decides which packets of a queue are marked.
#[derive(Debug, Default)]
pub struct Red {
    /// Average wait in nanoseconds.
    average: u64,
    /// Marks that should have been made by now, less those that were, in units of 1/[`ONE`].
    owed: u64,
}

impl Red {
    /// Before the first packet.
    pub const NEW: Red = Red { average: 0, owed: 0 };

    /// Whether to mark a packet that leaves after waiting for `waited`, on a link with round trip
    /// `rtt`.
    pub fn marks(&mut self, waited: Duration, rtt: Duration) -> bool {
        let nanos = |span: Duration| span.as_nanos() as u64;
        let waited = nanos(waited.min(MINUTE)) * nanos(NEAR) / nanos(rtt.max(NEAR));
        let waited = waited.min(nanos(HIGH));
        self.average = self.average - (self.average >> WEIGHT) + (waited >> WEIGHT);
        self.owed += share(self.average);
        let marks = self.owed >= ONE;
        if marks {
            self.owed -= ONE;
        }
        marks
    }
}

/// Share of packets to mark, in units of 1/[`ONE`].
fn share(average: u64) -> u64 {
    let (low, high) = (LOW.as_nanos() as u64, HIGH.as_nanos() as u64);
    match average {
        _ if average < low => 0,
        _ => (average.min(high) - low) * AT_HIGH / (high - low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks_of_1000(red: &mut Red, ms: u64) -> usize {
        (0..1_000).filter(|_| red.marks(Duration::from_millis(ms), NEAR)).count()
    }

    #[test]
    fn the_longer_they_wait_the_more_are_marked() {
        let mut red = Red::default();
        assert_eq!(marks_of_1000(&mut red, 59), 0);
        for (ms, share) in [(130, 50), (200, 100), (10_000, 100)] {
            // The average needs a while to settle.
            marks_of_1000(&mut red, ms);
            let marks = marks_of_1000(&mut red, ms);
            assert!(marks.abs_diff(share) <= 1 + share / 100, "{marks} of 1,000 at {ms} ms");
        }
        let settling = marks_of_1000(&mut red, 0) + marks_of_1000(&mut red, 0);
        assert!(settling > 0);
        assert_eq!(marks_of_1000(&mut red, 0), 0);
    }

    #[test]
    fn one_that_waited_long_is_no_reason_yet() {
        let mut red = Red::default();
        marks_of_1000(&mut red, 5);
        assert!(!red.marks(Duration::from_millis(500), NEAR));
        assert_eq!((0..50).filter(|_| red.marks(Duration::from_millis(5), NEAR)).count(), 0);
    }
}
