//! A constant-bit-rate source, and a meter for what arrives.

use super::{Agent, AgentIo, Outgoing, Received};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Count, Ecn};
use trunkline_net::{Endpoint, Protocol};

/// Sends payloads of equal size at equal intervals, regardless of what happens to them.
#[derive(Clone, Debug)]
pub struct Cbr {
    /// Source port of the packets.
    pub port: u16,
    /// Destination of the packets.
    pub to: Endpoint,
    /// Protocol, which determines the headers.
    pub protocol: Protocol,
    /// The TOS byte of the packets: DSCP and ECN.
    pub tos: u8,
    /// Time of the first packet.
    pub start: Time,
    /// Number of packets to send.
    pub count: u64,
    /// Interval between packets; at least 1 ns.
    pub spacing: Duration,
    /// Length of each payload: 8 to 1,472 bytes, the maximum for UDP over IPv4 in an Ethernet frame
    /// (TCP 1,460, and over IPv6 1,440).
    pub bytes: usize,
    sent: u64,
}

const MAX_BYTES: usize = 1_472;
/// Length of the send time in a payload, in bytes.
const STAMP: usize = 8;

impl Cbr {
    /// Sends `count` packets of 1,500 bytes, as full TCP segments in a world of IPv6, from `start`
    /// on.
    pub fn tcp_sizes(port: u16, to: Endpoint, start: Time, spacing: Duration, count: u64) -> Cbr {
        let protocol = Protocol::TCP;
        Cbr { port, to, protocol, tos: 0, start, count, spacing, bytes: 1_440, sent: 0 }
    }

    /// Sends `count` UDP datagrams of 1,500 bytes in a world of IPv4, with this TOS byte, from
    /// `start` on.
    pub fn udp_sizes(
        port: u16,
        to: Endpoint,
        tos: u8,
        start: Time,
        spacing: Duration,
        count: u64,
    ) -> Cbr {
        let protocol = Protocol::UDP;
        Cbr { port, to, protocol, tos, start, count, spacing, bytes: 1_472, sent: 0 }
    }

    /// Number of packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

impl Agent for Cbr {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        assert!(
            (STAMP..=MAX_BYTES).contains(&self.bytes) && !self.spacing.is_zero(),
            "a constant bit rate sends {STAMP} to {MAX_BYTES} bytes, and not all at once"
        );
        if self.count > 0 {
            io.wake_at(self.start, 0);
        }
    }

    fn receive(&mut self, _datagram: Received<'_>, _io: &mut AgentIo<'_>) {}

    fn wake(&mut self, _token: u64, io: &mut AgentIo<'_>) {
        let mut payload = [0; MAX_BYTES];
        payload[..STAMP].copy_from_slice(&io.now().as_nanos().to_be_bytes());
        let &mut Cbr { port, to, protocol, tos, bytes, .. } = self;
        io.send(&Outgoing { port, to, protocol, tos, payload: &payload[..bytes] });
        self.sent += 1;
        if self.sent < self.count {
            // Counted from now, not from the scheduled time: a host that was stalled doesn't catch
            // up.
            io.wake_at(io.now() + self.spacing, 0);
        }
    }
}

/// Counts the packets of a [`Cbr`] that arrive.
#[derive(Clone, Default, Debug)]
pub struct Meter {
    /// Packets that arrived, and their payload bytes.
    pub received: Count,
    /// Packets that a queue had marked (RFC 3168).
    pub marked: u64,
    /// TOS byte of the last packet.
    pub tos: u8,
    /// Longest delay of a packet.
    pub longest: Duration,
}

impl Agent for Meter {
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        self.received.add(datagram.payload.len());
        self.tos = datagram.header.tos;
        self.marked += u64::from(Ecn::of_tos(self.tos) == Ecn::Marked);
        if let Some(stamp) = datagram.payload.first_chunk::<STAMP>() {
            let sent = Time::from_nanos(u64::from_be_bytes(*stamp));
            self.longest = self.longest.max(io.now().since(sent));
        }
    }
}
