//! A source that sends as fast as TCP allows.

use super::connection::Connection;
use super::driver::{Driver, TIMER};
use super::profile::Profile;
use super::sender::Stats;
use crate::agent::{Agent, AgentIo, Received};
use trunkline_base::Time;
use trunkline_net::Endpoint;

const START: u64 = 0;
const STOP: u64 = 1;
/// Unsent bytes kept in the socket: more than one ACK releases, but less than the socket has room
/// for, since there may be many sources.
const UNSENT: usize = 65_536;
/// Data of one write.
const ZEROS: [u8; 16_384] = [0; 16_384];

/// Connects to a [`Sink`](super::Sink) and sends zeros as fast as TCP allows.
#[derive(Clone, Debug)]
pub struct Bulk {
    driver: Driver,
    start: Time,
    stop: Time,
    left: u64,
    started: bool,
}

impl Bulk {
    /// Sends from `port` to `to`, from `start` to `stop` ([`Time::NEVER`] for no end), at most
    /// `bytes` ([`u64::MAX`] for no limit); then it closes. `iss` is the initial sequence number.
    pub fn new(
        profile: Profile,
        port: u16,
        to: Endpoint,
        iss: u32,
        (start, stop): (Time, Time),
        bytes: u64,
    ) -> Bulk {
        let connection = Connection::connect(profile, (port, to.port), iss, false);
        let driver = Driver::new(connection, port, to);
        Bulk { driver, start, stop, left: bytes, started: false }
    }

    /// Statistics of the connection so far.
    pub fn stats(&self) -> Stats {
        self.driver.connection.stats()
    }

    /// Whether everything was sent and acknowledged, and both ends are closed.
    pub fn is_closed(&self) -> bool {
        self.driver.connection.is_closed()
    }

    fn go_on(&mut self, io: &mut AgentIo<'_>) {
        self.driver.connection.read(|_| {});
        loop {
            let connection = &mut self.driver.connection;
            while self.left > 0 && connection.room() > 0 && connection.unsent() < UNSENT {
                let most = self.left.min(ZEROS.len() as u64) as usize;
                self.left -= connection.write(&ZEROS[..most]) as u64;
            }
            if self.left == 0 {
                connection.close();
            }
            self.driver.flush(io);
            let connection = &self.driver.connection;
            let goes_on = self.left > 0 && connection.room() > 0;
            if !goes_on || connection.unsent() >= UNSENT / 2 {
                return;
            }
        }
    }
}

impl Agent for Bulk {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.driver.connection.over(io.ip());
        io.wake_at(self.start, START);
        io.wake_at(self.stop, STOP);
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        if self.started {
            self.driver.receive(&datagram, io.now());
            self.go_on(io);
        }
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        match token {
            START => self.started = true,
            // Data already written are still sent.
            STOP => self.left = 0,
            TIMER => self.driver.wake(io.now()),
            _ => {}
        }
        if self.started {
            self.go_on(io);
        }
    }
}
