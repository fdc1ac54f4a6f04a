//! The reliable service: hop-by-hop reliability and congestion control (Amir and Danilov, *Reliable
//! Communication in Overlay Networks*, DSN 2003).
//!
//! Each link retransmits lost packets until its neighbour has them, within the window of one TCP
//! ([`trunkline_rate::window`]), so that a loss costs the round trip of one link and not that of
//! the whole path. A node forwards packets in the order of arrival, so that none waits for another
//! that was lost before it; their destination restores the order.
//!
//! The receiver reports the packets that it has in cumulative and selective acknowledgements
//! ([`SelectiveAck`]). A packet sent well before one that has arrived is taken for lost, by order
//! and by time (RACK, RFC 8985), and a probe detects a lost tail. Numbers begin at 0 in each
//! *epoch*, four bits that every packet carries. The sender begins a new epoch when its neighbour
//! has restarted, which it detects by the *instance* in acknowledgements; these also name the start
//! of the sender that they are about.
//!
//! Queues are bounded. Packets that wait for long are marked (`red`), which makes streams send less
//! ([`crate::session::stream`]); applications that request blocking ([`ToNode::Blocking`]) are
//! flow-controlled. If a link is full nevertheless, its node drops new packets for it and counts
//! them.
//!
//! [`ToNode::Blocking`]: crate::session::wire::ToNode::Blocking

mod receiver;
mod red;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

use super::service::{Class, LinkContext, LinkService, Sent};
use super::{Packet, RxPacketInfo};
use crate::counters::{DropReason, Drops, ReceiverStats};
use crate::wire::{Incarnation, SelectiveAck};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::{Short, Writer};
pub use trunkline_rate::window::Algorithm;

/// How many numbers beyond the first missing one a sender may use: the packets that 370 Mbit/s
/// carry in 100 ms at the default MTU.
pub(crate) const MAX_AHEAD: u64 = 4_096;

/// Time that an acknowledgement may wait for the next packet, which makes it due. A sender's
/// timeouts allow for it.
const ACK_DELAY: Duration = Duration::from_millis(5);

/// Bits of an epoch, in the byte that holds the remaining time in packets of other services. Two
/// more bits are the packet's flags; the others are ignored.
const EPOCH: u8 = 0x0f;

/// Settings of the service on one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of packets that wait to be sent or acknowledged.
    pub bytes: usize,
    /// Number of packets that wait to be sent or acknowledged, 1 to 4,096.
    pub packets: usize,
    /// Algorithm by which the window grows.
    pub algorithm: Algorithm,
}

impl Default for Config {
    /// 4 MiB keep 330 Mbit/s busy over a round trip of 100 ms.
    fn default() -> Config {
        Config { bytes: 4 << 20, packets: MAX_AHEAD as usize, algorithm: Algorithm::default() }
    }
}

/// Both halves of the service on one link.
#[derive(Debug)]
pub(super) struct Reliable {
    tx: Sender,
    rx: Receiver,
}

impl Reliable {
    pub fn new(config: &super::Config, secret: u64) -> Reliable {
        Reliable { tx: Sender::new(&config.reliable, config.mtu, secret), rx: Receiver::default() }
    }
}

impl LinkService for Reliable {
    fn class(&self) -> Class {
        Class::Shared
    }

    fn begin(&mut self, incarnation: Incarnation) {
        self.rx.begin(incarnation.0 as u16);
        self.tx.begin(incarnation.0 as u16);
    }

    fn enqueue(&mut self, since: Time, packet: &Packet<'_>, _: Time) -> Result<(), DropReason> {
        self.tx.enqueue(since, packet)
    }

    fn flow_controlled(&self, len: usize) -> Option<usize> {
        self.tx.has_room(len).then(|| self.tx.flow_controlled())
    }

    fn has_room_for_own(&self, len: usize, data: bool) -> bool {
        self.tx.has_room_for_own(len, data)
    }

    fn waiting(&self) -> usize {
        self.tx.waiting()
    }

    #[inline]
    fn head(&mut self, moment: &LinkContext, _: &mut Drops) -> Option<usize> {
        self.tx.yields = moment.calls;
        self.tx.head(moment.now)
    }

    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent {
        match self.tx.pop(moment.now, moment.rtt, out) {
            true => Sent::Retransmit,
            false => Sent::Original,
        }
    }

    fn on_data(&mut self, packet: &RxPacketInfo, _: &mut Drops) -> Result<(), DropReason> {
        self.rx.accept(packet)
    }

    fn on_ack(
        &mut self,
        at: Time,
        ack: SelectiveAck<'_>,
        allowance: &mut usize,
    ) -> Result<(), DropReason> {
        self.tx.on_ack(at, ack, allowance)
    }

    fn control_len(&self, room: usize) -> usize {
        self.rx.ack_len(room)
    }

    fn rider_len(&self, room: usize) -> usize {
        self.rx.rider_len(room)
    }

    fn write_control(&mut self, now: Time, len: usize, w: &mut Writer<'_>) -> Result<(), Short> {
        self.rx.write_ack(now, len, w)
    }

    fn next_timeout(&self) -> Time {
        self.tx.next_timeout().min(self.rx.next_timeout())
    }

    fn handle_timeout(&mut self, moment: &LinkContext, _: &mut Drops) {
        self.tx.handle_timeout(moment.now);
        self.rx.handle_timeout(moment.now);
    }

    fn restart(&mut self, peer: Incarnation) {
        self.rx.restart(peer.0 as u16);
        self.tx.begin_anew();
    }

    fn up(&mut self) {
        self.tx.expedite();
    }

    fn received(&self) -> Option<ReceiverStats> {
        Some(self.rx.stats())
    }
}
