//! A receiver for one connection.

use super::connection::{Connection, reset};
use super::driver::{Driver, TIMER, send};
use super::messages::STAMP;
use super::profile::Profile;
use super::wire::Segment;
use crate::agent::{Agent, AgentIo, Received};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_net::{Endpoint, Protocol};

/// Maximum number of bins; later bytes count in the last one.
const MAX_BINS: usize = 1 << 20;

/// Accepts one connection, reads its data, and closes when the peer has closed. Other peers that
/// send to its port get a reset.
#[derive(Clone, Debug)]
pub struct Sink {
    profile: Profile,
    port: u16,
    iss: u32,
    driver: Option<(Driver, Endpoint)>,
    bytes: u64,
    width: Duration,
    bins: Vec<u64>,
    /// Length of a message in bytes, and the time stamp of the one being received.
    message: usize,
    stamp: [u8; STAMP],
    at: usize,
    delays: Vec<Duration>,
}

impl Sink {
    /// Creates a sink on `port`, with `iss` as its initial sequence number.
    pub fn new(profile: Profile, port: u16, iss: u32) -> Sink {
        Sink {
            profile,
            port,
            iss,
            driver: None,
            bytes: 0,
            width: Duration::ZERO,
            bins: Vec::new(),
            message: 0,
            stamp: [0; STAMP],
            at: 0,
            delays: Vec::new(),
        }
    }

    /// Also counts bytes in bins of `width`, which must not be zero; the first bin begins with the
    /// world.
    #[must_use]
    pub fn with_bins(self, width: Duration) -> Sink {
        assert!(!width.is_zero(), "a bin has a width");
        Sink { width, ..self }
    }

    /// Expects [`Messages`](super::Messages) of `bytes` each, at least 8, and measures their
    /// delays.
    #[must_use]
    pub fn with_messages(self, bytes: usize) -> Sink {
        assert!(bytes >= STAMP, "a message has room for its time");
        Sink { message: bytes, ..self }
    }

    /// Number of data bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes read in each bin of time, up to the last one with data.
    pub fn bins(&self) -> &[u64] {
        &self.bins
    }

    /// Delay of each message from the sending application to this sink, in order.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// Whether the peer has closed and all its data have arrived.
    pub fn is_finished(&self) -> bool {
        self.driver.as_ref().is_some_and(|(d, _)| d.connection.is_finished())
    }

    fn go_on(&mut self, io: &mut AgentIo<'_>) {
        let Some((mut driver, peer)) = self.driver.take() else { return };
        driver.connection.read(|bytes| self.note(io.now(), bytes));
        if driver.connection.is_finished() {
            driver.connection.close();
        }
        driver.flush(io);
        self.driver = Some((driver, peer));
    }

    fn note(&mut self, now: Time, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if !self.width.is_zero() {
            let bin = now.since(Time::ZERO).as_nanos() / self.width.as_nanos();
            let bin = bin.min(MAX_BINS as u128 - 1) as usize;
            if self.bins.len() <= bin {
                self.bins.resize(bin + 1, 0);
            }
            self.bins[bin] += bytes.len() as u64;
        }
        while self.message > 0 && !bytes.is_empty() {
            let (here, rest) = bytes.split_at(bytes.len().min(self.message - self.at));
            let of_stamp = here.len().min(STAMP.saturating_sub(self.at));
            if of_stamp > 0 {
                self.stamp[self.at..self.at + of_stamp].copy_from_slice(&here[..of_stamp]);
            }
            self.at += here.len();
            if self.at == self.message {
                let written = Time::from_nanos(u64::from_be_bytes(self.stamp));
                self.delays.push(now.since(written));
                self.at = 0;
            }
            bytes = rest;
        }
    }
}

impl Agent for Sink {
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let from = datagram.header.from;
        if datagram.header.protocol != Protocol::TCP {
            return;
        }
        if let Some((driver, _)) = self.driver.as_mut().filter(|(_, peer)| *peer == from) {
            driver.receive(&datagram, io.now());
            return self.go_on(io);
        }
        let Some(segment) = Segment::parse(datagram.payload) else { return };
        let accepted = match self.driver {
            None => Connection::accept(self.profile.clone(), io.ip(), self.iss, &segment),
            Some(_) => None,
        };
        if let Some(connection) = accepted {
            self.driver = Some((Driver::new(connection, self.port, from), from));
            self.go_on(io);
        } else if let Some(answer) = reset(&segment) {
            let mut packet = Vec::new();
            answer.emit(&mut packet);
            send(io, self.port, from, &packet);
        }
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        if token == TIMER
            && let Some((driver, _)) = &mut self.driver
        {
            driver.wake(io.now());
        }
        self.go_on(io);
    }
}
