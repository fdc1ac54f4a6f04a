//! Two gateways with many calls between them: the one puts packets of several calls into
//! a UDP datagram, the other takes them apart, as in Trad and Afifi, *Adaptive
//! Multiplexing Scheme for Voice Flow Transmission Across Best-Effort IP Networks*, INRIA
//! RR-4929, 2003.
//!
//! A datagram of m packets is exactly S(m) bytes long on the wire, 28 of IPv4 and UDP and
//! 12 of RTP for each payload, unless [`Trunk`] says otherwise. The paper has no header of
//! the trunk's own; what the two ends need of one is written where a real trunk would have
//! speech, so that it costs nothing.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use sender::{Sender, Stats};

use std::rc::Rc;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfmc::{Config, DATA_BYTES, IP_UDP_BYTES, RTP_BYTES};

/// Bytes of a packet's place in the list of all, in front of it.
const INDEX: usize = 4;
/// The fewest bytes of a packet with its RTP header: its place, and in the first of a
/// datagram what the ends tell each other.
pub const MIN_PACKET: usize = INDEX + DATA_BYTES;

/// One packet of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Packet {
    /// When the call gives it to the gateway.
    pub due: Time,
    /// Which call it belongs to, from 0.
    pub call: u16,
    /// Which of its call's packets it is, from 0.
    pub number: u32,
}

/// How many packets share a datagram.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// Each packet has its own datagram, and leaves when it comes.
    Off,
    /// So many packets share a datagram; 0 is taken as 1.
    Fixed(usize),
    /// As many as TFMC chooses.
    Tfmc,
}

/// All packets between two gateways, and how they are carried; both ends know it.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// The packets of all calls in the order of their times, and of calls at the same
    /// time.
    pub packets: Rc<[Packet]>,
    /// Bytes of each payload.
    pub payload: usize,
    /// How many packets share a datagram.
    pub mode: Mode,
    /// How long a packet waits at most for others; then those that are there leave.
    pub wait: Duration,
    /// TFMC's parameters; without them nobody reports. With [`Mode::Off`] and
    /// [`Mode::Fixed`] reports only measure.
    pub config: Option<Config>,
    /// Which call's RTP sequence numbers show losses, where
    /// [`Config::numbers`] asks for those of one.
    pub observed: u16,
    /// Bytes on the wire in front of each datagram: 28.
    pub header: usize,
    /// Bytes on the wire in front of each payload: 12.
    pub per_packet: usize,
}

impl Trunk {
    /// Calls with payloads of `payload` bytes, given by the times of their packets, each
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
            header: IP_UDP_BYTES,
            per_packet: RTP_BYTES,
        }
    }

    /// The same under control of TFMC, with the calls' packets waiting for 5 ms at most.
    #[must_use]
    pub fn with_tfmc(self, config: Config) -> Trunk {
        let wait = Duration::from_millis(5);
        Trunk { mode: Mode::Tfmc, wait, config: Some(config), ..self }
    }

    /// Bytes of a packet within a datagram.
    fn packet_bytes(&self) -> usize {
        self.per_packet + self.payload
    }

    /// The same, checked when an end begins.
    fn checked(self) -> Trunk {
        assert!(
            self.packet_bytes() >= MIN_PACKET,
            "a packet has at least {MIN_PACKET} bytes, and not {}",
            self.packet_bytes()
        );
        assert!(self.config.is_some() || self.mode != Mode::Tfmc, "TFMC needs its parameters");
        self
    }
}
