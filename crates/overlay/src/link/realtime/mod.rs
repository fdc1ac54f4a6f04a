//! The real-time service (Amir et al. 2005, section IV-A): packets are
//! forwarded at once, even out of order; a gap in the numbers is answered by
//! a retransmission request; the sender repeats what it still keeps, within
//! a share of its originals; nothing ever waits for a repair. Each packet's
//! remaining deadline travels with it, so that neither end spends bytes on a
//! repair that would come too late.
//!
//! What is asked for, when, how often, and how it is answered is chosen by a
//! recovery policy ([`Recovery`], `policy`): the paper's asks once, the default
//! until the deadline. A request names everything that is missing, so requests
//! grow with the packets that are missing at once: 57 bytes at ten calls, some
//! hundred at a thousand calls and 10 % loss.

mod budget;
mod inter_arrival;
mod policy;
mod receiver;
mod send_queue;
mod sender;

pub use policy::{Recovery, UnknownRecovery};
pub(crate) use receiver::Incoming;
pub use receiver::{Arrival, Receiver};
pub use sender::Sender;

use crate::wire::MAX_NACK_RANGES;
use core::time::Duration;

/// A gap of more packets than this is an outage or a confused neighbour, not
/// loss to repair: a tenth of a second of two hundred calls, and four times
/// what a sender repeats in one burst by default.
pub(crate) const MAX_GAP: u64 = 1_024;

/// Runs of missing packets that are followed at once, and ranges that may wait
/// to be asked for.
const MAX_RUNS: usize = 4 * MAX_NACK_RANGES;

/// How far ahead a neighbour may ask for what it has no sign of.
const MAX_GUESS: u16 = 16;

/// Settings of the service on one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of packets that are kept for repetition.
    pub bytes: usize,
    /// Packets that are kept for repetition; at most 32,768 so that their
    /// 16-bit numbers stay unambiguous.
    pub packets: usize,
    /// How long an original may wait for its turn before it is dropped.
    pub max_wait: Duration,
    /// How many later packets must arrive before a missing one is asked for.
    pub reorder: u16,
    /// Retransmissions per original, in the long run, 0 to 1.
    pub repeat_share: f64,
    /// Retransmissions that may come in one burst.
    pub repeat_burst: u32,
    /// What is done about lost packets.
    pub recovery: Recovery,
    /// What recovery may send beyond the requests that its policy makes of every
    /// loss and one repetition of each, as a share of what was lost, 0 to 1, at 10 % loss; half of
    /// it where little is lost, one and a half at 20 %. Each end has so much of
    /// its own: bytes for requests, and packets for copies.
    pub extra_share: f64,
}

impl Config {
    /// The service as the paper has it (IV-A): one request, a quarter of the
    /// originals for retransmissions. Needs no onward delays and no timers.
    pub fn paper() -> Config {
        Config { recovery: Recovery::ONCE, repeat_share: 0.25, ..Config::default() }
    }
}

impl Default for Config {
    /// 4 MiB and 16,384 packets hold 100 ms of what one core forwards. Waiting
    /// 50 ms for a link is half of the 100 ms that a codec waits (paper, IV-A).
    /// One later packet is enough: "packet reordering is a rare event" (IV-A).
    /// Half of the originals covers what is repeated at 25 % loss; a burst of
    /// 256 covers a 100 ms outage at fifty calls. Three tenths of what was lost
    /// for further requests and copies is where the residual stops falling fast
    /// (5 to 10 % loss, chains of one and five links; the lab has the figures).
    fn default() -> Config {
        Config {
            bytes: 4 << 20,
            packets: 16_384,
            max_wait: Duration::from_millis(50),
            reorder: 1,
            repeat_share: 0.5,
            repeat_burst: 256,
            recovery: Recovery::default(),
            extra_share: 0.3,
        }
    }
}
