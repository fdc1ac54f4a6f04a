//! Input and output types of a cell.

use super::edca::{ACCESS_POINT_2005, AccessCategory, AccessTable, PRIORITIES, STATION_2005};
use super::phy::MAX_PACKET;
use core::time::Duration;
use trunkline_base::Time;

/// Maximum number of stations in a cell: the number of association identifiers (IEEE 802.11-1999,
/// 7.3.1.8).
pub const MAX_STATIONS: u16 = 2_007;
/// Maximum configurable queue length, in packets.
pub const MAX_QUEUE: usize = 1_000;
/// Number of unread outcomes at which further packets are rejected.
pub const MAX_UNREAD: usize = 65_536;

/// Initial configuration of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Number of stations besides the access point, at most [`MAX_STATIONS`]; they are numbered
    /// from 0.
    pub stations: u16,
    /// Contention parameters of the stations; [`STATION_2005`] by default.
    pub station: AccessTable,
    /// Contention parameters of the access point; [`ACCESS_POINT_2005`] by default.
    pub access_point: AccessTable,
    /// Packets that each queue holds, including the one being sent: 1 to [`MAX_QUEUE`]; 50 by
    /// default.
    pub queue: usize,
    /// Attempts to send a packet before it is dropped, at least 1; 7 by default
    /// (dot11ShortRetryLimit).
    pub attempts: u8,
    /// Probability of each bit to be wrong between the access point and any station, 0 to 1; 0 by
    /// default.
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

/// Reasons for rejecting a cell's configuration.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum InvalidCell {
    /// The number of stations exceeds [`MAX_STATIONS`].
    #[error("{0} stations are too many: a cell has at most {MAX_STATIONS}")]
    Stations(u16),
    /// A parameter of this access category is out of range.
    #[error(
        "{0:?}: AIFSN must be 1 to 15, the windows one less than a power of two and at most \
         32767, the lower first, and the TXOP limit at most 8.16 ms"
    )]
    Access(AccessCategory),
    /// The queue length is 0, or above [`MAX_QUEUE`].
    #[error("the queue length is {0} packets, and must be 1 to {MAX_QUEUE}")]
    Queue(usize),
    /// The number of attempts is 0.
    #[error("the number of attempts is 0, and must be at least 1")]
    Attempts,
    /// The bit error rate is not a probability.
    #[error("bit error rate is {0}, and must be a probability from 0 to 1")]
    BitErrorRate(f64),
    /// The cell has no such station.
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

/// Direction of a packet: all packets pass the access point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the access point to a station.
    Down,
    /// From a station to the access point.
    Up,
}

/// A packet for a cell (a MAC service data unit).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Msdu {
    /// The station at one end; the access point is the other.
    pub station: u16,
    /// Direction, from or to the station.
    pub way: Direction,
    /// User priority, 0 to 7 (IEEE 802.1D); it selects the queue.
    pub priority: u8,
    /// Length in bytes with IP's header and without the MAC's, 1 to [`MAX_PACKET`].
    pub bytes: u32,
    /// Caller's identifier, returned with the packet's outcome; it has no meaning here.
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

/// Reasons for rejecting a packet at once; nothing of it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The cell has no such station.
    #[error("there is no station {0}")]
    NoStation(u16),
    /// The user priority is above 7.
    #[error("user priority is {0}, and must be 0 to 7")]
    NoPriority(u8),
    /// The packet has a length of 0.
    #[error("the packet is empty")]
    Empty,
    /// The packet is longer (first value) than an MSDU or its stream allows (second value).
    #[error("the packet has {0} bytes, and at most {1} fit")]
    TooLong(u32, u32),
    /// The packet's queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The station that should send the packet has vanished.
    #[error("the station has vanished")]
    Gone,
    /// [`MAX_UNREAD`] outcomes are waiting to be read.
    #[error("{MAX_UNREAD} outcomes are unread: read them before sending more")]
    Unread,
}

/// Reasons for a packet never to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// None of the packet's attempts was received.
    RetryLimit,
    /// The packet's sender vanished with it.
    Gone,
    /// The packet waited for turns of a stream that ended, and the contending queue has no room.
    NoRoom,
}

/// Outcome of a packet. Each accepted packet has exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsduOutcome {
    /// Time of arrival, whether or not the acknowledgement arrived later; or the time at which the
    /// packet was given up.
    pub at: Time,
    /// The packet's handle, as passed in.
    pub handle: u64,
    /// `Ok` if the packet has arrived, or the reason why it never will.
    pub result: Result<(), Lost>,
}

/// Totals of a cell since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Data frames sent after contention, or within a TXOP won by contention.
    pub contended: u64,
    /// Times at which more than one node began to send.
    pub collisions: u64,
    /// Attempts lost to a higher category of the same station.
    pub internal_collisions: u64,
    /// Frames of any kind that arrived with a bit error.
    pub damaged: u64,
    /// Frames that polled a station, with or without data.
    pub polls: u64,
    /// Data frames sent in a polled station's turn, in either direction.
    pub polled: u64,
    /// The part of `polled` that also carried an acknowledgement.
    pub piggybacked: u64,
    /// Turns that ended with a frame that wasn't received.
    pub broken_turns: u64,
    /// Streams ended because their station was silent ([`SILENT_TURNS`](super::SILENT_TURNS)).
    pub silenced: u64,
    /// Time during which a node transmitted, or waited to within an exchange.
    pub busy: Duration,
}
