//! HCF controlled channel access: whose packets go by polls, and for how long
//! (IEEE 802.11e-2005, 9.9.2 and the simple scheduler of annex K).

use super::phy::{ACK_TIME, EMPTY_TIME, MAX_PACKET, SIFS, data_time};
use core::time::Duration;
use trunkline_base::Bitrate;

/// Between two beacons, 100 units of 1,024 µs. Beacons themselves aren't sent here.
pub const BEACON_INTERVAL: Duration = Duration::from_micros(102_400);
/// How much of each beacon interval is left to contention, at least: an eighth.
/// The standard's T_CP has no value; this is ten times the longest exchange.
pub const CONTENTION: Duration = Duration::from_micros(12_800);
/// The shortest service interval, so that polls can't take all the time there is.
pub const MIN_SERVICE_INTERVAL: Duration = Duration::from_millis(1);

/// Which of a station's packets a [`Stream`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways {
    /// From the access point to the station: it is sent, and nobody is polled.
    Down,
    /// From the station to the access point.
    Up,
    /// Both, of the same rate: packets go with polls and acknowledgements.
    Both,
}

/// A traffic specification (TSPEC): packets that don't contend, but are sent and
/// polled for by the access point at regular times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The station at one end; the access point is the other.
    pub station: u16,
    /// Its packets of this user priority, 0 to 7.
    pub priority: u8,
    /// The directions in which the stream has packets.
    pub ways: Ways,
    /// The mean data rate of each direction, of packets without the MAC's headers.
    pub mean_rate: Bitrate,
    /// The nominal size of a packet, in bytes: 1 to [`MAX_PACKET`].
    pub nominal: u32,
    /// The largest packet, in bytes: `nominal` to [`MAX_PACKET`].
    pub maximum: u32,
    /// The longest time between two chances to send: at least
    /// [`MIN_SERVICE_INTERVAL`].
    pub max_service_interval: Duration,
}

/// Why a stream is not admitted; then nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// There is no such station.
    #[error("there is no station {0}")]
    NoStation(u16),
    /// There is no such user priority.
    #[error("user priority is {0}, and must be 0 to 7")]
    NoPriority(u8),
    /// The station has a stream of this priority already.
    #[error("station {0} already has a stream of user priority {1}")]
    Twice(u16, u8),
    /// A size that no packet has.
    #[error(
        "packets of {nominal} and at most {maximum} bytes: sizes must be 1 to {MAX_PACKET}, the nominal one the smaller"
    )]
    Size {
        /// The nominal size of a packet, in bytes.
        nominal: u32,
        /// The maximum size of a packet, in bytes.
        maximum: u32,
    },
    /// A rate of 0.
    #[error("the mean data rate is 0, and must be at least 1 bit/s")]
    Rate,
    /// The service interval is too short.
    #[error("the service interval is {0:?}, and must be at least {MIN_SERVICE_INTERVAL:?}")]
    Interval(Duration),
    /// With it there would not be enough time left for contention.
    #[error("polls would take {polls:?} of each {interval:?}, and leave too little to contention")]
    NoTime {
        /// What all streams need in each service interval.
        polls: Duration,
        /// The service interval that all streams share.
        interval: Duration,
    },
}

/// A data frame and its acknowledgement, with the interframe spaces before both.
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

    /// The TXOP that the simple scheduler gives it in each service interval: for as
    /// many packets of the nominal size as come in that time at the mean rate, or for
    /// one of the maximum size if that takes longer; the overhead is the interframe
    /// spaces and acknowledgements and, where the station sends, the poll.
    pub fn txop(&self, service_interval: Duration) -> Duration {
        let bits = u128::from(self.mean_rate.as_bps()) * service_interval.as_nanos();
        let packets = bits.div_ceil(u128::from(self.nominal) * 8 * 1_000_000_000);
        // What doesn't fit is far beyond any service interval.
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let mean = exchange(self.nominal).saturating_mul(packets);
        let one_way = mean.max(exchange(self.maximum));
        let poll = SIFS + EMPTY_TIME;
        match self.ways {
            Ways::Down => one_way,
            Ways::Up => one_way.saturating_add(poll),
            Ways::Both => one_way.saturating_mul(2).saturating_add(poll),
        }
    }
}

/// The service interval of all streams: the longest whole fraction of the beacon
/// interval that is within each one's maximum. `None` without streams.
pub fn service_interval(streams: &[Stream]) -> Option<Duration> {
    let shortest = streams.iter().map(|s| s.max_service_interval).min()?;
    let parts = BEACON_INTERVAL.as_nanos().div_ceil(shortest.as_nanos()).max(1);
    Some(BEACON_INTERVAL / parts as u32)
}

/// Whether all streams can be served and contention has its share: the sum of
/// TXOP/SI is at most (T − T_CP)/T, where T is the beacon interval.
///
/// # Errors
///
/// [`NotAdmitted::NoTime`].
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
        ways: Ways::Both,
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
        // In that time 80 kbit/s make 170.7 bytes: one packet of 200. Its exchange is
        // 16 + 76 + 16 + 28 = 136 µs; both ways and the poll, 16 + 32.
        assert_eq!(VOICE.txop(interval), us(2 * 136 + 48));
        let down = Stream { ways: Ways::Down, ..VOICE };
        assert_eq!(down.txop(interval), us(136));
        // At 64 kbit/s in packets of 60 bytes: 136.5 bytes, so three, each of
        // 16 + (20 + 6·4) + 16 + 28 = 104 µs: 22 + 8·98 = 806 bits are 5.6 symbols.
        let small =
            Stream { nominal: 60, maximum: 60, mean_rate: Bitrate::from_bps(64_000), ..down };
        assert_eq!(small.txop(interval), us(3 * 104));
        // One of 1,500 takes 16 + 364 + 16 + 28 = 424 µs, which is more.
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
