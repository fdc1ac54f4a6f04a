//! Two gateways with many calls between them: the first puts packets of several calls into a UDP
//! datagram, and the second takes them apart, as in Trad and Afifi, *Adaptive Multiplexing Scheme
//! for Voice Flow Transmission Across Best-Effort IP Networks*, INRIA RR-4929, 2003.
//!
//! A datagram of m packets is exactly S(m) bytes long on the wire, with 28 bytes of IPv4 and UDP
//! and 12 of RTP for each payload, unless [`Trunk`] sets other values. The paper has no trunk
//! header. The fields that the two ends need are written where a real trunk would have speech, so
//! that they cost nothing.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use sender::{Sender, Stats};

use std::rc::Rc;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::tfmc::{Config, DATA_BYTES, RTP_BYTES};

/// Length of the index that precedes a packet, in bytes; it refers to the list of all packets.
const INDEX: usize = 4;
/// Minimum length of a packet with its RTP header, in bytes: its index, and in the first of a
/// datagram the fields that the ends exchange.
pub const MIN_PACKET: usize = INDEX + DATA_BYTES;

/// One packet of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Packet {
    /// Time at which the call hands it to the gateway.
    pub due: Time,
    /// Index of its call, from 0.
    pub call: u16,
    /// Number of the packet in its call, from 0.
    pub number: u32,
}

/// Number of packets that share a datagram.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// Each packet leaves at once in a datagram of its own.
    Off,
    /// A fixed number of packets per datagram; 0 means 1.
    Fixed(usize),
    /// The number that TFMC chooses.
    Tfmc,
}

/// All packets between two gateways, and their transport; both ends share these parameters.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// Packets of all calls, ordered by time, then by call.
    pub packets: Rc<[Packet]>,
    /// Length of each payload, in bytes.
    pub payload: usize,
    /// Number of packets that share a datagram.
    pub mode: Mode,
    /// Maximum time that a packet waits for others before those present are sent.
    pub wait: Duration,
    /// TFMC's parameters; if `None`, no reports are sent. With [`Mode::Off`] and [`Mode::Fixed`],
    /// reports only measure the path.
    pub config: Option<Config>,
    /// Index of the call whose RTP sequence numbers indicate losses, if [`Config::numbers`] selects
    /// a single call.
    pub observed: u16,
    /// Bytes on the wire in front of each datagram, for comparisons; `None` stands for the headers of
    /// UDP and the world's IP version.
    pub header: Option<usize>,
    /// Bytes on the wire in front of each payload: 12 by default.
    pub per_packet: usize,
}

impl Trunk {
    /// Creates calls with payloads of `payload` bytes from the times of their packets, each packet
    /// in its own datagram.
    ///
    /// # Panics
    ///
    /// If there are more than 65,536 calls.
    pub fn new<Call: IntoIterator<Item = Time>>(
        payload: usize,
        calls: impl IntoIterator<Item = Call>,
    ) -> Trunk {
        let one = |(call, times): (usize, Call)| {
            let call = u16::try_from(call).expect("at most 65,536 calls");
            let number = |(due, number)| Packet { due, call, number };
            times.into_iter().zip(0..).map(number).collect::<Vec<_>>()
        };
        let mut packets: Vec<Packet> = calls.into_iter().enumerate().flat_map(one).collect();
        packets.sort_unstable();
        Trunk {
            packets: packets.into(),
            payload,
            mode: Mode::Off,
            wait: Duration::ZERO,
            config: None,
            observed: 0,
            header: None,
            per_packet: RTP_BYTES,
        }
    }

    /// Puts the trunk under TFMC's control, with packets waiting for at most 5 ms.
    #[must_use]
    pub fn with_tfmc(self, config: Config) -> Trunk {
        let wait = Duration::from_millis(5);
        Trunk { mode: Mode::Tfmc, wait, config: Some(config), ..self }
    }

    /// Bytes on the wire in front of each datagram in a world of `ip`.
    fn header(&self, ip: IpVersion) -> usize {
        self.header.unwrap_or(Protocol::UDP.headers(ip))
    }

    /// Length of a packet within a datagram, in bytes.
    fn packet_bytes(&self) -> usize {
        self.per_packet + self.payload
    }

    /// Returns the trunk after checking its parameters.
    fn checked(self) -> Trunk {
        assert!(
            self.packet_bytes() >= MIN_PACKET,
            "a packet has at least {MIN_PACKET} bytes, not {}",
            self.packet_bytes()
        );
        assert!(self.config.is_some() || self.mode != Mode::Tfmc, "TFMC needs its parameters");
        self
    }
}
