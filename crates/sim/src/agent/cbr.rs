//! A constant bit rate, and who measures what comes of it.

use super::{Agent, AgentIo, Outgoing, Received};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Count, Ecn};
use trunkline_net::{Endpoint, Protocol};

/// Sends payloads of equal size at equal distance, whatever becomes of them.
#[derive(Clone, Debug)]
pub struct Cbr {
    /// The port that the packets come from.
    pub port: u16,
    /// The host and port that the packets are for.
    pub to: Endpoint,
    /// By which protocol: it decides the headers.
    pub protocol: Protocol,
    /// The TOS byte of the packets: DSCP and ECN.
    pub tos: u8,
    /// When the first is sent.
    pub start: Time,
    /// How many are sent.
    pub count: u64,
    /// Between two; at least 1 ns.
    pub spacing: Duration,
    /// Of each payload, 8 to 1,472: the most that UDP sends in an Ethernet frame
    /// over IPv4 (TCP 1,460, and over IPv6 1,440).
    pub bytes: usize,
    sent: u64,
}

const MAX_BYTES: usize = 1_472;
/// The moment of sending.
const STAMP: usize = 8;

impl Cbr {
    /// `count` full TCP segments over IPv6 of 1,500 bytes from `start` on.
    pub fn tcp_sizes(port: u16, to: Endpoint, start: Time, spacing: Duration, count: u64) -> Cbr {
        let protocol = Protocol::TCP;
        Cbr { port, to, protocol, tos: 0, start, count, spacing, bytes: 1_440, sent: 0 }
    }

    /// `count` datagrams over IPv4 of 1,500 bytes with this TOS byte from `start` on, in a
    /// world with [`World::use_ipv4`](crate::World::use_ipv4).
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

    /// How many have been sent.
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
            // From the present, not from when it should have been: a host that was
            // stalled makes up for nothing.
            io.wake_at(io.now() + self.spacing, 0);
        }
    }
}

/// Counts what a [`Cbr`] sends to it.
#[derive(Clone, Default, Debug)]
pub struct Meter {
    /// What came, in payload bytes.
    pub received: Count,
    /// Packets that a queue had marked (RFC 3168).
    pub marked: u64,
    /// The TOS byte of the last.
    pub tos: u8,
    /// The longest that one was under way.
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
