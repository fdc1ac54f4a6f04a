//! What goes into a cell and what comes out.

use super::edca::{ACCESS_POINT_2005, AccessCategory, AccessTable, PRIORITIES, STATION_2005};
use super::phy::MAX_PACKET;
use core::time::Duration;
use trunkline_base::Time;

/// The most stations of a cell: the association identifiers that there are
/// (IEEE 802.11-1999, 7.3.1.8).
pub const MAX_STATIONS: u16 = 2_007;
/// The most packets that a queue can be made to hold.
pub const MAX_QUEUE: usize = 1_000;
/// How many outcomes wait to be fetched before nothing more is taken.
pub const MAX_UNREAD: usize = 65_536;

/// A cell as it begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// How many stations beside the access point: numbers 0 to `stations` − 1, at
    /// most [`MAX_STATIONS`].
    pub stations: u16,
    /// How the stations' queues contend; [`STATION_2005`] by default.
    pub station: AccessTable,
    /// How the access point's queues contend; [`ACCESS_POINT_2005`] by default.
    pub access_point: AccessTable,
    /// The packets that each queue holds, with the one that is being sent: 1 to
    /// [`MAX_QUEUE`]; 50 by default.
    pub queue: usize,
    /// How often a packet is tried before it is dropped, at least once; 7 by
    /// default (dot11ShortRetryLimit).
    pub attempts: u8,
    /// The probability of each bit to be wrong, between the access point and any
    /// station, 0 to 1; 0 by default.
    pub bit_error_rate: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            stations: 1,
            station: STATION_2005,
            access_point: ACCESS_POINT_2005,
            queue: 50,
            attempts: 7,
            bit_error_rate: 0.0,
        }
    }
}

/// A cell that can't be.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum InvalidCell {
    /// More stations than have identifiers.
    #[error("{0} stations, and at most {MAX_STATIONS} have a place")]
    Stations(u16),
    /// An access category whose parameters are out of range.
    #[error(
        "{0:?}: AIFSN must be 1 to 15, the windows one less than a power of two and at most \
         32767, the lower first, and the TXOP limit at most 8.16 ms"
    )]
    Access(AccessCategory),
    /// A queue that holds nothing, or too much.
    #[error("queues of {0} packets, and they must hold 1 to {MAX_QUEUE}")]
    Queue(usize),
    /// Packets that would not be tried.
    #[error("0 attempts, and there must be at least 1")]
    Attempts,
    /// The bit error rate is not a probability.
    #[error("bit error rate is {0}, and must be a probability from 0 to 1")]
    BitErrorRate(f64),
    /// There is no such station.
    #[error("there is no station {0}")]
    NoStation(u16),
}

impl Config {
    pub(super) fn validate(&self) -> Result<(), InvalidCell> {
        if self.stations > MAX_STATIONS {
            return Err(InvalidCell::Stations(self.stations));
        }
        for table in [&self.station, &self.access_point] {
            let bad = AccessCategory::ALL.into_iter().find(|&ac| !table[ac as usize].is_valid());
            if let Some(ac) = bad {
                return Err(InvalidCell::Access(ac));
            }
        }
        if !(1..=MAX_QUEUE).contains(&self.queue) {
            return Err(InvalidCell::Queue(self.queue));
        }
        if self.attempts == 0 {
            return Err(InvalidCell::Attempts);
        }
        valid_rate(self.bit_error_rate)
    }
}

pub(super) fn valid_rate(rate: f64) -> Result<(), InvalidCell> {
    if (0.0..=1.0).contains(&rate) { Ok(()) } else { Err(InvalidCell::BitErrorRate(rate)) }
}

/// Which way a packet goes: all packets go by the access point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// From the access point to a station.
    Down,
    /// From a station to the access point.
    Up,
}

/// A packet for a cell (a MAC service data unit).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Msdu {
    /// The station at one end.
    pub station: u16,
    /// From or to the station.
    pub way: Way,
    /// The user priority, 0 to 7 (IEEE 802.1D): it decides which queue.
    pub priority: u8,
    /// Its length in bytes with IP's header and without the MAC's, 1 to
    /// [`MAX_PACKET`].
    pub bytes: u32,
    /// Comes back with what became of the packet, and means nothing here.
    pub handle: u64,
}

impl Msdu {
    pub(super) fn validate(&self, stations: u16) -> Result<(), Refusal> {
        match *self {
            Msdu { station, .. } if station >= stations => Err(Refusal::NoStation(station)),
            Msdu { priority: p @ PRIORITIES.., .. } => Err(Refusal::NoPriority(p)),
            Msdu { bytes: 0, .. } => Err(Refusal::Empty),
            Msdu { bytes, .. } if bytes > MAX_PACKET => Err(Refusal::TooLong(bytes, MAX_PACKET)),
            _ => Ok(()),
        }
    }
}

/// Why a packet is turned away at once; then nothing of it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such station.
    #[error("there is no station {0}")]
    NoStation(u16),
    /// There is no such user priority.
    #[error("user priority is {0}, and must be 0 to 7")]
    NoPriority(u8),
    /// A packet without a byte.
    #[error("the packet is empty")]
    Empty,
    /// Longer than an MSDU, or than its stream's longest.
    #[error("the packet has {0} bytes, and at most {1} fit")]
    TooLong(u32, u32),
    /// Its queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The station that should send it has vanished.
    #[error("the station has vanished")]
    Gone,
    /// [`MAX_UNREAD`] outcomes wait to be fetched.
    #[error("{MAX_UNREAD} outcomes wait to be fetched")]
    Unread,
}

/// Why a packet never arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// None of its attempts was received.
    RetryLimit,
    /// Its sender vanished with it.
    Gone,
    /// It waited for turns of a stream that ended, and its queue has no room.
    NoRoom,
}

/// What became of a packet. Each that was taken has exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// When it had arrived, whether or not its acknowledgement did after that; or
    /// when it was given up.
    pub at: Time,
    /// The packet's, as it was given.
    pub handle: u64,
    /// Whether it has arrived, or why it never will.
    pub result: Result<(), Lost>,
}

/// What happened in a cell since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Data frames that were sent after contention or within a TXOP won by it.
    pub contended: u64,
    /// Times at which more than one began to send.
    pub collisions: u64,
    /// Attempts that lost against a higher category of the same station.
    pub internal_collisions: u64,
    /// Frames of any kind that arrived with a wrong bit.
    pub damaged: u64,
    /// Frames that polled a station, with or without data.
    pub polls: u64,
    /// Data frames that were sent in a polled station's turn, by either side.
    pub polled: u64,
    /// Those of `polled` that carried an acknowledgement, too.
    pub piggybacked: u64,
    /// Turns that ended with a frame that wasn't received.
    pub broken_turns: u64,
    /// Streams that ended since their stations were silent ([`SILENT_TURNS`](super::SILENT_TURNS)).
    pub silenced: u64,
    /// How long somebody sent, or waited to within an exchange.
    pub busy: Duration,
}
