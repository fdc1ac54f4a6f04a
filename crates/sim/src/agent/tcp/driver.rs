//! A connection bound to an agent's port.

use super::connection::Connection;
use super::wire::Segment;
use crate::agent::{AgentIo, Outgoing, Received};
use trunkline_base::Time;
use trunkline_net::{Endpoint, Protocol};

/// Wake-up token for the connection's deadlines.
pub const TIMER: u64 = u64::MAX;

/// A connection, its peer, and its buffer for sending.
#[derive(Clone, Debug)]
pub struct Driver {
    pub connection: Connection,
    port: u16,
    to: Endpoint,
    /// Earliest wake-up that is scheduled.
    armed: Time,
    packet: Vec<u8>,
}

impl Driver {
    pub fn new(connection: Connection, port: u16, to: Endpoint) -> Driver {
        Driver { connection, port, to, armed: Time::NEVER, packet: Vec::new() }
    }

    /// Processes a datagram if it is a segment from the peer.
    pub fn receive(&mut self, datagram: &Received<'_>, now: Time) {
        if datagram.header.from == self.to
            && let Some(segment) = Segment::parse(datagram.payload)
        {
            self.connection.receive(now, &segment);
        }
    }

    /// Handles a scheduled wake-up.
    pub fn wake(&mut self, now: Time) {
        self.armed = Time::NEVER;
        if self.connection.deadline() <= now {
            self.connection.expire(now);
        }
    }

    /// Sends all segments that are due, and schedules the next wake-up.
    pub fn flush(&mut self, io: &mut AgentIo<'_>) {
        let now = io.now();
        while self.connection.transmit(now, &mut self.packet) {
            send(io, self.port, self.to, &self.packet);
        }
        // Deadlines mostly move back before they are reached, so one wake-up at a time is enough.
        let deadline = self.connection.deadline();
        if deadline < self.armed {
            self.armed = deadline;
            io.wake_at(deadline, TIMER);
        }
    }
}

/// Sends a segment, whose own header is in `payload`, behind the world's IP header.
pub fn send(io: &mut AgentIo<'_>, port: u16, to: Endpoint, payload: &[u8]) {
    let bytes = io.ip().header() + payload.len();
    io.send_sized(&Outgoing { port, to, protocol: Protocol::TCP, tos: 0, payload }, bytes);
}
