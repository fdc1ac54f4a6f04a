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
pub use receiver::{Arrival, Receiver};
pub use sender::Sender;

use super::service::{Class, LinkContext, LinkService, Sent};
use super::{Packet, RxPacketInfo};
use crate::counters::{DropReason, Drops, ReceiverStats};
use crate::wire::{Incarnation, MAX_NACK_RANGES, NACK_RANGE_LEN, Nack, Service};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::{Short, Writer};

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
    pub retransmit_ratio: f64,
    /// Retransmissions that may come in one burst.
    pub retransmit_burst: u32,
    /// What is done about lost packets.
    pub recovery: Recovery,
    /// What recovery may send beyond the requests that its policy makes of every
    /// loss and one repetition of each, as a share of what was lost, 0 to 1, at 10 % loss; half of
    /// it where little is lost, one and a half at 20 %. Each end has so much of
    /// its own: bytes for requests, and packets for copies.
    pub recovery_budget: f64,
}

impl Config {
    /// The service as the paper has it (IV-A): one request, a quarter of the
    /// originals for retransmissions. Needs no onward delays and no timers.
    pub fn paper() -> Config {
        Config { recovery: Recovery::ONCE, retransmit_ratio: 0.25, ..Config::default() }
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
            retransmit_ratio: 0.5,
            retransmit_burst: 256,
            recovery: Recovery::default(),
            recovery_budget: 0.3,
        }
    }
}

/// Both halves on one link.
#[derive(Debug)]
pub(super) struct RealTime {
    tx: Sender,
    rx: Receiver,
}

impl RealTime {
    pub fn new(config: &super::Config) -> RealTime {
        let config = &config.realtime;
        RealTime { tx: Sender::new(config), rx: Receiver::new(config) }
    }
}

const REQUEST_HEAD: usize = Nack::head_len(Service::RealTime);

impl LinkService for RealTime {
    fn class(&self) -> Class {
        Class::Urgent
    }

    fn enqueue(&mut self, now: Time, packet: &Packet<'_>, latest: Time) -> Result<(), DropReason> {
        self.tx.enqueue(now, packet, latest)
    }

    fn waiting(&self) -> usize {
        self.tx.waiting()
    }

    fn head(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<usize> {
        self.tx.head(moment.now, moment.envelope, moment.one_way, drops)
    }

    fn deadline(&self) -> Time {
        self.tx.deadline()
    }

    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent {
        match self.tx.pop(moment.now, moment.envelope, out) {
            true => Sent::Retransmit,
            false => Sent::Original,
        }
    }

    fn on_data(&mut self, packet: &RxPacketInfo, drops: &mut Drops) -> Result<(), DropReason> {
        match self.rx.accept(packet, drops) {
            Arrival::New => Ok(()),
            Arrival::Duplicate => Err(DropReason::Duplicate),
        }
    }

    fn on_request(
        &mut self,
        m: &LinkContext,
        nack: Nack<'_>,
        allowance: &mut usize,
        d: &mut Drops,
    ) {
        self.tx.retransmit(m.now, nack.ranges(), m.rtt, allowance, d);
    }

    /// A request for as many ranges as there is room for.
    fn control_len(&self, room: usize) -> usize {
        let ranges = room.saturating_sub(REQUEST_HEAD) / NACK_RANGE_LEN;
        match self.rx.pending_requests().min(ranges) {
            0 => 0,
            n => REQUEST_HEAD + n * NACK_RANGE_LEN,
        }
    }

    fn write_control(&mut self, _: Time, len: usize, w: &mut Writer<'_>) -> Result<(), Short> {
        let n = len.saturating_sub(REQUEST_HEAD) / NACK_RANGE_LEN;
        let (ranges, n) = self.rx.take_requests(n.min(MAX_NACK_RANGES));
        Nack::emit(Service::RealTime, &ranges[..n], w)
    }

    fn next_timeout(&self) -> Time {
        self.rx.next_timeout().min(self.tx.next_timeout())
    }

    fn handle_timeout(&mut self, moment: &LinkContext, drops: &mut Drops) {
        self.rx.handle_timeout(moment.now, moment.rtt, drops);
        self.tx.handle_timeout(moment.now);
    }

    fn restart(&mut self, _: Incarnation) {
        self.rx.restart();
    }

    fn outage(&mut self) {
        self.rx.outage();
    }

    fn received(&self) -> Option<ReceiverStats> {
        Some(self.rx.stats())
    }
}
