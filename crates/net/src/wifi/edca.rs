//! Enhanced distributed channel access: categories and their contention parameters (IEEE
//! 802.11e-2005, 9.9.1).

use super::phy::{SIFS, SLOT};
use core::time::Duration;

/// Largest contention window in slots: the field holds at most 2^15 − 1 (IEEE 802.11e-2005,
/// 7.3.2.29).
pub const MAX_WINDOW: u16 = (1 << 15) - 1;
/// Longest transmission opportunity: 255 units of 32 µs, the 8 bits that a poll's QoS control field
/// has for it (IEEE 802.11e-2005, 7.1.3.5). The field for contention (7.3.2.29) has 16 bits, which
/// are not needed here.
pub const MAX_TXOP: Duration = Duration::from_micros(255 * 32);
/// Number of user priorities, from 0.
pub const PRIORITIES: u8 = 8;

/// An access category: the queue of a station in which a packet waits. Later categories take
/// precedence over earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessCategory {
    /// Background traffic, AC_BK: sent last.
    Background,
    /// Best effort, AC_BE: precedes background traffic.
    BestEffort,
    /// Video, AC_VI: precedes best effort.
    Video,
    /// Voice, AC_VO: sent first.
    Voice,
}

impl AccessCategory {
    /// All categories, lowest precedence first.
    pub const ALL: [AccessCategory; 4] = [
        AccessCategory::Background,
        AccessCategory::BestEffort,
        AccessCategory::Video,
        AccessCategory::Voice,
    ];

    /// The category of a user priority (IEEE 802.11e-2005, table 20i, after IEEE 802.1D-2004);
    /// `None` above 7. Priorities 1 and 2 rank below 0.
    pub const fn of_priority(priority: u8) -> Option<AccessCategory> {
        match priority {
            1 | 2 => Some(AccessCategory::Background),
            0 | 3 => Some(AccessCategory::BestEffort),
            4 | 5 => Some(AccessCategory::Video),
            6 | 7 => Some(AccessCategory::Voice),
            _ => None,
        }
    }
}

/// The user priority of a packet with this TOS byte, as RFC 8325 maps code points: EF and
/// VOICE-ADMIT to 6, CS1 to 1, and unknown ones to 0. CS6 and CS7, which the RFC leaves open, map
/// to 7.
pub const fn priority_of_tos(tos: u8) -> u8 {
    match tos >> 2 {
        // CS6 and CS7.
        48 | 56 => 7,
        // EF and VOICE-ADMIT.
        46 | 44 => 6,
        // CS5.
        40 => 5,
        // CS4, AF41 to AF43, CS3, AF31 to AF33.
        32 | 34 | 36 | 38 | 24 | 26 | 28 | 30 => 4,
        // AF21 to AF23.
        18 | 20 | 22 => 3,
        // CS1; LE (RFC 8622).
        8 | 1 => 1,
        _ => 0,
    }
}

/// Contention parameters of an access category.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Number of idle slots required after a SIFS: 1 to 15.
    pub aifsn: u8,
    /// Contention window of a first attempt, in slots: a backoff is drawn from 0 to this. One less
    /// than a power of two, at most [`MAX_WINDOW`].
    pub cw_min: u16,
    /// Largest contention window after repeated failures, in slots; same form as `cw_min`, and not
    /// less.
    pub cw_max: u16,
    /// Time for which a winner may continue to send, at most [`MAX_TXOP`]; zero for a single
    /// packet.
    pub txop_limit: Duration,
}

impl Access {
    const fn new(aifsn: u8, cw_min: u16, cw_max: u16, txop_micros: u64) -> Access {
        Access { aifsn, cw_min, cw_max, txop_limit: Duration::from_micros(txop_micros) }
    }

    /// Duration of the arbitration interframe space: a SIFS and `aifsn` slots.
    pub const fn aifs(&self) -> Duration {
        Duration::from_micros(SIFS.as_micros() as u64 + self.aifsn as u64 * SLOT.as_micros() as u64)
    }

    pub(super) fn is_valid(&self) -> bool {
        let window = |cw: u16| cw <= MAX_WINDOW && (cw + 1).is_power_of_two();
        (1..=15).contains(&self.aifsn)
            && window(self.cw_min)
            && window(self.cw_max)
            && self.cw_min <= self.cw_max
            && self.txop_limit <= MAX_TXOP
    }
}

/// Contention parameters of the four categories, indexed by [`AccessCategory`].
pub type AccessTable = [Access; 4];

/// Default parameters of a station: the default values of the EDCA parameter set element (IEEE
/// 802.11e-2005, 7.3.2.29), with 802.11a's aCWmin of 15 and aCWmax of 1,023. Checked against the
/// formulas in OpenBSD's net80211 (`ieee80211_output.c`), not against the standard itself.
pub const STATION_2005: AccessTable = [
    Access::new(7, 15, 1_023, 0),
    Access::new(3, 15, 1_023, 0),
    Access::new(2, 7, 15, 3_008),
    Access::new(2, 3, 7, 1_504),
];

/// Default parameters of the access point (IEEE 802.11e-2005, annex D, dot11QAPEDCATable): one slot
/// less than its stations for video and voice, and a smaller maximum window for best effort.
/// Checked against net80211, as [`STATION_2005`].
pub const ACCESS_POINT_2005: AccessTable = [
    Access::new(7, 15, 1_023, 0),
    Access::new(3, 15, 63, 0),
    Access::new(1, 7, 15, 3_008),
    Access::new(1, 3, 7, 1_504),
];

/// Parameters of all nodes in simulations of 802.11e's drafts by the group of Ni, one of the
/// authors of Trad, Ni, Afifi (2004). That paper doesn't print its parameters.
///
/// Voice has 7/15 with AIFSN 1 and sends 160 bytes every 20 ms; video has 15/31, with AIFSN 1 for
/// MPEG-4 and 2 for another; one packet at a time. The values are from a study of 2006 at 36 Mbit/s
/// and 802.11a's times (SciTePress 2006, 12386; it prints 35 once for 31), which takes them from
/// Ni, Romdhani, Turletti, *A survey of QoS enhancements for IEEE 802.11 wireless LAN* (2004).
/// AIFSN 2 and CWmin 15 for the other categories are from the literature, without a table at hand.
pub const DRAFT: AccessTable = [
    Access::new(2, 15, 1_023, 0),
    Access::new(2, 15, 1_023, 0),
    Access::new(1, 15, 31, 0),
    Access::new(1, 7, 15, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_how_long() {
        // 16 + 7·9 and 16 + 1·9.
        assert_eq!(STATION_2005[0].aifs(), Duration::from_micros(79));
        assert_eq!(DRAFT[3].aifs(), Duration::from_micros(25));
        for table in [STATION_2005, ACCESS_POINT_2005, DRAFT] {
            assert!(table.iter().all(Access::is_valid));
            assert!(table.is_sorted_by(|low, high| low.aifsn >= high.aifsn));
        }
    }

    #[test]
    fn priorities_have_categories() {
        use AccessCategory::{Background, BestEffort, Video, Voice};
        let of = |up| AccessCategory::of_priority(up);
        assert_eq!(
            (0..8).map(|up| of(up).unwrap()).collect::<Vec<_>>(),
            [BestEffort, Background, Background, BestEffort, Video, Video, Voice, Voice,]
        );
        assert_eq!(of(8), None);
        // EF with ECN bits, and unmarked packets.
        assert_eq!([46 << 2 | 3, 0, 8 << 2, 63 << 2].map(priority_of_tos), [6, 0, 1, 0]);
        assert!((0..=255).all(|tos| priority_of_tos(tos) < PRIORITIES));
    }
}
