//! The real-time service (Amir et al. 2005, section IV-A): packets are
//! forwarded at once, even out of order; a gap in the numbers is answered by
//! one retransmission request; the sender repeats what it still keeps, within
//! a share of its originals; no timeouts, and nothing ever waits for a repair.
//!
//! Beyond the paper, each packet's remaining deadline travels with it, so that
//! neither end spends bytes on a repair that would come too late.

mod agenda;
mod receiver;
mod sender;

pub(crate) use receiver::MAX_GAP;
pub use receiver::{Arrival, Receiver, ReceiverStats};
pub use sender::Sender;

use core::time::Duration;

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
    /// Whether lost packets are asked for at all.
    pub recovery: bool,
}

impl Default for Config {
    /// 4 MiB and 16,384 packets hold 100 ms of what one core forwards. Waiting
    /// 50 ms for a link is half of the 100 ms that a codec waits (paper, IV-A).
    /// One later packet is enough: "packet reordering is a rare event" (IV-A).
    /// A quarter of the originals covers 10 % loss with bursts; a burst of 256
    /// covers a 100 ms outage at fifty calls.
    fn default() -> Config {
        Config {
            bytes: 4 << 20,
            packets: 16_384,
            max_wait: Duration::from_millis(50),
            reorder: 1,
            repeat_share: 0.25,
            repeat_burst: 256,
            recovery: true,
        }
    }
}
