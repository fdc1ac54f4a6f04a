//! Messages of one size at given times, like speech.

use super::connection::Connection;
use super::driver::{Driver, TIMER};
use super::profile::Profile;
use super::sender::Stats;
use crate::agent::{Agent, AgentIo, Received};
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_net::Endpoint;

const START: u64 = 0;
const NEXT: u64 = 1;
/// Length of the time of writing in a message, in bytes.
pub const STAMP: usize = 8;

/// Times and size of the messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Time at which each message is written, in order.
    pub due: Rc<[Time]>,
    /// Time from opening the connection to the first message; without messages, it is never opened.
    pub lead: Duration,
    /// Length of each message, at least 8 bytes. It begins with the time at which the application
    /// wrote it, in nanoseconds and network byte order.
    pub bytes: usize,
}

/// Connects to a [`Sink`](super::Sink), writes messages to the stream, and closes it.
#[derive(Clone, Debug)]
pub struct Messages {
    driver: Driver,
    schedule: Schedule,
    written: usize,
    /// Times of the messages that wait for room in the socket.
    waiting: VecDeque<Time>,
    message: Vec<u8>,
    started: bool,
}

impl Messages {
    /// Sends from `port` to `to`, with `iss` as the initial sequence number; `nodelay` turns
    /// Nagle's algorithm off. Messages that don't fit into the socket (see the profile's
    /// [`send_buffer`](Profile::send_buffer)) wait in the application.
    pub fn new(
        profile: Profile,
        port: u16,
        to: Endpoint,
        iss: u32,
        nodelay: bool,
        schedule: Schedule,
    ) -> Messages {
        assert!(
            (STAMP..=profile.send_buffer).contains(&schedule.bytes),
            "a message has at least {STAMP} bytes and fits into the socket"
        );
        let connection = Connection::connect(profile, (port, to.port), iss, nodelay);
        let driver = Driver::new(connection, port, to);
        let (waiting, message) = (VecDeque::new(), vec![0; schedule.bytes]);
        Messages { driver, schedule, written: 0, waiting, message, started: false }
    }

    /// Statistics of the connection so far.
    pub fn stats(&self) -> Stats {
        self.driver.connection.stats()
    }

    /// Number of messages that the application has written.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Number of messages that wait for room in the socket.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn go_on(&mut self, io: &mut AgentIo<'_>) {
        let connection = &mut self.driver.connection;
        connection.read(|_| {});
        while connection.room() >= self.message.len()
            && let Some(at) = self.waiting.pop_front()
        {
            self.message[..STAMP].copy_from_slice(&at.as_nanos().to_be_bytes());
            connection.write(&self.message);
        }
        if self.written == self.schedule.due.len() && self.waiting.is_empty() {
            connection.close();
        }
        self.driver.flush(io);
    }
}

impl Agent for Messages {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.driver.connection.over(io.ip());
        if let Some(&first) = self.schedule.due.first() {
            io.wake_at(first - self.schedule.lead, START);
            io.wake_at(first, NEXT);
        }
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        if self.started {
            self.driver.receive(&datagram, io.now());
            self.go_on(io);
        }
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        let now = io.now();
        match token {
            START => self.started = true,
            NEXT => {
                self.waiting.push_back(now);
                self.written += 1;
                if let Some(&due) = self.schedule.due.get(self.written) {
                    io.wake_at(due, NEXT);
                }
            }
            TIMER => self.driver.wake(now),
            _ => {}
        }
        if self.started {
            self.go_on(io);
        }
    }
}
