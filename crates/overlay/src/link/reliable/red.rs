//! Random early detection (Floyd and Jacobson 1993; RFC 2309) for packets that wait for
//! their first transmission, by marks instead of drops. It goes by how long they waited and
//! not by how many there are, so that one setting suits links of any rate (as RFC 8289
//! argues), and it spreads its marks evenly instead of by chance, which RED only does to
//! avoid clusters.

use core::time::Duration;

/// Nothing is marked while packets wait less than this on average. With windows that come
/// down to 0.8 at a mark a queue of 60 ms keeps a link busy whose streams have round trips
/// of up to 240 ms.
const LOW: Duration = Duration::from_millis(60);

/// From there to here the share of marks rises to a tenth. A longer wait counts as this one: what
/// a silent link has held back is no queue, and since the average goes by packets, streams that
/// send two of them in a round trip would be marked for seconds until it has come down.
pub const HIGH: Duration = Duration::from_millis(200);

/// The longest round trip of a link to which both apply as they are. Over a longer one they grow in
/// proportion: its streams have longer round trips and need as much more of a queue, and what a
/// loss holds back waits longer.
pub const NEAR: Duration = Duration::from_millis(50);

/// No longer wait makes a difference; its product with [`NEAR`] has 64 bits.
const MINUTE: Duration = Duration::from_secs(60);

/// The share of marks at [`HIGH`], of [`ONE`].
const AT_HIGH: u64 = ONE / 10;
const ONE: u64 = 1 << 16;

/// The weight of one packet in the average, as a shift. A link that loses packets halves its
/// window again and again, and streams are not to send less for that: 128 packets are more
/// than it sends from one loss to the next at 1 %.
const WEIGHT: u32 = 7;

/// Which packets of a queue are marked.
#[derive(Debug, Default)]
pub struct Red {
    /// The average wait, in nanoseconds.
    average: u64,
    /// What is marked so far, less what ought to be, of [`ONE`].
    owed: u64,
}

impl Red {
    /// Whether a packet is to be marked that leaves after it has waited so long for a link with
    /// this round trip.
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

/// Which share of packets is to be marked, of [`ONE`].
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
            // The average takes a while.
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
