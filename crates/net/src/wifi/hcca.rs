//! HCF controlled channel access: the streams that are polled, and the time they get (IEEE
//! 802.11e-2005, 9.9.2 and the simple scheduler of annex K).

use super::phy::{ACK_TIME, EMPTY_TIME, MAX_PACKET, SIFS, data_time};
use core::time::Duration;
use trunkline_base::Bitrate;

/// Interval between two beacons, 100 units of 1,024 µs. Beacons themselves aren't sent here.
pub const BEACON_INTERVAL: Duration = Duration::from_micros(102_400);
/// Minimum share of each beacon interval left to contention: an eighth. The standard gives no value
/// for T_CP; this is ten times the longest exchange.
pub const CONTENTION: Duration = Duration::from_micros(12_800);
/// Shortest service interval, so that polls can't take all the time there is.
pub const MIN_SERVICE_INTERVAL: Duration = Duration::from_millis(1);

/// The directions in which a [`Stream`] has packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamDirection {
    /// From the access point to the station: sent without polling.
    Down,
    /// From the station to the access point.
    Up,
    /// Both directions at the same rate: packets travel with polls and acknowledgements.
    Both,
}

/// A traffic specification (TSPEC): packets that don't contend, but are sent and polled for by the
/// access point at regular times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The station at one end; the access point is the other.
    pub station: u16,
    /// User priority of the stream's packets, 0 to 7.
    pub priority: u8,
    /// The directions in which the stream has packets.
    pub ways: StreamDirection,
    /// Mean data rate in each direction, without the MAC's headers.
    pub mean_rate: Bitrate,
    /// Nominal packet size, in bytes: 1 to [`MAX_PACKET`].
    pub nominal: u32,
    /// Maximum packet size, in bytes: `nominal` to [`MAX_PACKET`].
    pub maximum: u32,
    /// Longest time between two opportunities to send: at least [`MIN_SERVICE_INTERVAL`].
    pub max_service_interval: Duration,
}

/// Reasons for not admitting a stream; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// The cell has no such station.
    #[error("there is no station {0}")]
    NoStation(u16),
    /// The user priority is above 7.
    #[error("user priority is {0}, and must be 0 to 7")]
    NoPriority(u8),
    /// The station already has a stream of this priority.
    #[error("station {0} already has a stream of user priority {1}")]
    Twice(u16, u8),
    /// A packet size is out of range.
    #[error(
        "the packet size is nominally {nominal} and at most {maximum} bytes: both must be 1 to {MAX_PACKET}, and the nominal size must not exceed the maximum"
    )]
    Size {
        /// The rejected nominal packet size, in bytes.
        nominal: u32,
        /// The rejected maximum packet size, in bytes.
        maximum: u32,
    },
    /// The mean rate is 0.
    #[error("the mean data rate is 0, and must be at least 1 bit/s")]
    Rate,
    /// The service interval is below [`MIN_SERVICE_INTERVAL`].
    #[error("the service interval is {0:?}, and must be at least {MIN_SERVICE_INTERVAL:?}")]
    Interval(Duration),
    /// With this stream, too little time would be left for contention.
    #[error(
        "polls would take {polls:?} of each {interval:?}, and leave too little time for contention"
    )]
    NoTime {
        /// Time that all streams need in each service interval.
        polls: Duration,
        /// The service interval that all streams would share.
        interval: Duration,
    },
}

/// Duration of a data frame and its acknowledgement, with the interframe spaces before both.
pub fn exchange(bytes: u32) -> Duration {
    SIFS + data_time(bytes) + SIFS + ACK_TIME
}

impl Stream {
    pub(super) fn validate(&self) -> Result<(), NotAdmitted> {
        let &Stream { priority, nominal, maximum, max_service_interval: interval, .. } = self;
        if priority > 7 {
            Err(NotAdmitted::NoPriority(priority))
        } else if nominal == 0 || nominal > maximum || maximum > MAX_PACKET {
            Err(NotAdmitted::Size { nominal, maximum })
        } else if self.mean_rate.as_bps() == 0 {
            Err(NotAdmitted::Rate)
        } else if interval < MIN_SERVICE_INTERVAL {
            Err(NotAdmitted::Interval(interval))
        } else {
            Ok(())
        }
    }

    /// The TXOP that the simple scheduler grants in each service interval: the time for as many
    /// packets of the nominal size as arrive in it at the mean rate, or for one of the maximum size
    /// if that takes longer. The overhead is the interframe spaces and acknowledgements and, where
    /// the station sends, the poll.
    pub fn txop(&self, service_interval: Duration) -> Duration {
        let bits = u128::from(self.mean_rate.as_bps()) * service_interval.as_nanos();
        let packets = bits.div_ceil(u128::from(self.nominal) * 8 * 1_000_000_000);
        // A count that doesn't fit is far beyond any service interval.
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let mean = exchange(self.nominal).saturating_mul(packets);
        let one_way = mean.max(exchange(self.maximum));
        let poll = SIFS + EMPTY_TIME;
        match self.ways {
            StreamDirection::Down => one_way,
            StreamDirection::Up => one_way.saturating_add(poll),
            StreamDirection::Both => one_way.saturating_mul(2).saturating_add(poll),
        }
    }
}

/// The service interval of all streams: the longest whole fraction of the beacon interval that is
/// within every stream's maximum. `None` without streams.
pub fn service_interval(streams: &[Stream]) -> Option<Duration> {
    let shortest = streams.iter().map(|s| s.max_service_interval).min()?;
    let parts = BEACON_INTERVAL.as_nanos().div_ceil(shortest.as_nanos()).max(1);
    Some(BEACON_INTERVAL / parts as u32)
}

/// Checks that all streams can be served and contention keeps its share: the sum of TXOP/SI is at
/// most (T − T_CP)/T, where T is the beacon interval.
///
/// # Errors
///
/// Returns [`NotAdmitted::NoTime`].
pub fn admit(streams: &[Stream]) -> Result<(), NotAdmitted> {
    let Some(interval) = service_interval(streams) else { return Ok(()) };
    let polls = streams
        .iter()
        .fold(Duration::ZERO, |sum, stream| sum.saturating_add(stream.txop(interval)));
    let polled = polls.as_nanos() * BEACON_INTERVAL.as_nanos();
    if polled > interval.as_nanos() * (BEACON_INTERVAL - CONTENTION).as_nanos() {
        return Err(NotAdmitted::NoTime { polls, interval });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOICE: Stream = Stream {
        station: 0,
        priority: 6,
        ways: StreamDirection::Both,
        mean_rate: Bitrate::from_bps(80_000),
        nominal: 200,
        maximum: 200,
        max_service_interval: Duration::from_millis(20),
    };

    #[test]
    fn the_simple_scheduler_by_hand() {
        let us = Duration::from_micros;
        // 102.4 ms / 20 ms = 5.12: six parts of 17.0667 ms.
        let interval = service_interval(&[VOICE]).unwrap();
        assert_eq!(interval, Duration::from_nanos(17_066_666));
        // In that time 80 kbit/s amount to 170.7 bytes: one packet of 200. Its exchange is 16 + 76
        // + 16 + 28 = 136 µs; both directions, plus 16 + 32 for the poll.
        assert_eq!(VOICE.txop(interval), us(2 * 136 + 48));
        let down = Stream { ways: StreamDirection::Down, ..VOICE };
        assert_eq!(down.txop(interval), us(136));
        // At 64 kbit/s in packets of 60 bytes: 136.5 bytes, so three, each of
        // 16 + (20 + 6·4) + 16 + 28 = 104 µs: 22 + 8·98 = 806 bits are 5.6 symbols.
        let small =
            Stream { nominal: 60, maximum: 60, mean_rate: Bitrate::from_bps(64_000), ..down };
        assert_eq!(small.txop(interval), us(3 * 104));
        // One packet of 1,500 bytes takes 16 + 364 + 16 + 28 = 424 µs, which is more.
        assert_eq!(Stream { maximum: 1_500, ..small }.txop(interval), us(424));
    }

    #[test]
    fn contention_keeps_its_share() {
        // 320 µs each, of 17,066.7 µs · 7/8 = 14,933 µs: 46 fit.
        assert_eq!(admit(&[VOICE; 46]), Ok(()));
        assert!(matches!(admit(&[VOICE; 47]), Err(NotAdmitted::NoTime { .. })));
        let greedy = Stream { mean_rate: Bitrate::from_bps(u64::MAX), ..VOICE };
        assert!(matches!(admit(&[greedy]), Err(NotAdmitted::NoTime { .. })));
    }
}
