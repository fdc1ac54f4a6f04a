//! The real-time service (Amir et al. 2005, section IV-A). Packets are forwarded at once, even out
//! of order. A gap in the numbers triggers a retransmission request; the sender retransmits packets
//! that it still has, within a share of its originals. No packet ever waits for a repair. Each
//! packet carries its remaining time, so that neither end spends bytes on a repair that would
//! arrive too late.
//!
//! A recovery policy ([`Recovery`], `policy`) chooses which packets to request, when and how often,
//! and how to answer: the paper's policy requests once, the default until the deadline. A request
//! names everything that is missing, so its size grows with the number of packets missing at a
//! time: 57 bytes at ten calls, some hundred at a thousand calls and 10 % loss.

mod budget;
mod inter_arrival;
mod policy;
mod receiver;
mod send_queue;
mod sender;
mod wheel;

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

/// A gap of more packets than this is an outage or a faulty neighbour, and is not repaired: a tenth
/// of a second of two hundred calls, and four times the default retransmission burst.
pub(crate) const MAX_GAP: u64 = 1_024;

/// Maximum number of runs of missing packets followed at a time, and of ranges waiting to be
/// requested.
const MAX_RUNS: usize = 4 * MAX_NACK_RANGES;

/// Number of packets that a neighbour may request ahead, with no sign that they were sent.
const MAX_GUESS: u16 = 16;

/// Settings of the service on one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of packets kept for retransmission.
    pub bytes: usize,
    /// Packets kept for retransmission; at most 32,768, so that their 16-bit numbers stay
    /// unambiguous.
    pub packets: usize,
    /// Time that an original may wait in the send queue before it is dropped.
    pub max_wait: Duration,
    /// Number of later packets that must arrive before a missing one is requested.
    pub reorder: u16,
    /// Retransmissions per original in the long run, 0 to 1.
    pub retransmit_ratio: f64,
    /// Maximum number of retransmissions in one burst.
    pub retransmit_burst: u32,
    /// Recovery policy for lost packets.
    pub recovery: Recovery,
    /// Recovery budget beyond the policy's requests for every loss and one retransmission each, as
    /// a share of the losses, 0 to 1, at 10 % loss; half of it at low loss, one and a half at 20 %.
    /// Each end has its own budget: bytes for requests, and packets for copies.
    pub recovery_budget: f64,
}

impl Config {
    /// Settings of the paper (IV-A): one request, retransmissions of up to a quarter of the
    /// originals. Needs neither onward delays nor timers.
    pub fn paper() -> Config {
        Config { recovery: Recovery::ONCE, retransmit_ratio: 0.25, ..Config::default() }
    }
}

impl Default for Config {
    /// 4 MiB and 16,384 packets hold 100 ms of the traffic that one core forwards. Waiting 50 ms
    /// for a link is half of the 100 ms that a codec waits (paper, IV-A). One later packet is
    /// enough: "packet reordering is a rare event" (IV-A). Half of the originals covers the
    /// retransmissions at 25 % loss; a burst of 256 covers a 100 ms outage at fifty calls. At a
    /// budget of three tenths of the losses for further requests and copies, the residual loss
    /// stops falling fast (5 to 10 % loss, chains of one and five links; the lab has the figures).
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

/// Both halves of the service on one link.
#[derive(Debug)]
pub(super) struct RealTime {
    tx: Sender,
    rx: Receiver,
}

impl RealTime {
    pub fn new(config: &super::Config, secret: u64) -> RealTime {
        let config = &config.realtime;
        RealTime { tx: Sender::new(config, secret), rx: Receiver::new(config) }
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

    /// Size of a request for as many ranges as fit into `room`.
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
