//! The sending gateway, which multiplexes the packets of many calls.

use super::{INDEX, MIN_PACKET, Mode, Trunk};
use crate::agent::{Agent, AgentIo, Outgoing, Received};
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_net::{Endpoint, Protocol};
use trunkline_rate::tfmc::{self, Data, Feedback};

/// Wake-up for the next packet that becomes due.
const DUE: u64 = 0;
/// Wake-up for when the first waiting packet has waited for the maximum time.
const FLUSH: u64 = 1;
/// Wake-up for missing reports.
const TIMER: u64 = 2;

/// Statistics of a sending gateway.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Number of packets sent.
    pub packets: u64,
    /// Number of datagrams that contained them.
    pub datagrams: u64,
    /// Number of reports received.
    pub reports: u64,
    /// Number of reports refused.
    pub refused: u64,
    /// Number of reports after which the trunk exceeded its share.
    pub over_share: u64,
    /// Number of reports that changed how many packets share a datagram.
    pub changes: u64,
}

/// The sending gateway of a [`Trunk`].
pub struct Sender {
    port: u16,
    to: Endpoint,
    trunk: Trunk,
    tfmc: Option<tfmc::Sender>,
    /// Number of packets that have become due.
    next: usize,
    /// Indices of waiting packets, in the order of their times.
    waiting: VecDeque<usize>,
    /// Scheduled wake-ups for the first waiting packet and for missing reports.
    flush_at: Time,
    timer_at: Time,
    stats: Stats,
    datagram: Vec<u8>,
}

impl Sender {
    /// Sends a trunk from `port` to the [`Receiver`](super::Receiver) for the same trunk at `to`,
    /// beginning `now`.
    ///
    /// # Panics
    ///
    /// If a packet has fewer than [`MIN_PACKET`] bytes, or TFMC has no parameters.
    pub fn new(port: u16, to: Endpoint, trunk: Trunk, now: Time) -> Sender {
        Sender {
            port,
            to,
            tfmc: trunk.config.map(|config| tfmc::Sender::new(config, now)),
            trunk: trunk.checked(),
            next: 0,
            waiting: VecDeque::new(),
            flush_at: Time::NEVER,
            timer_at: Time::NEVER,
            stats: Stats::default(),
            datagram: Vec::new(),
        }
    }

    /// Statistics of the gateway so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// TFMC's sender, if TFMC is in use.
    pub fn tfmc(&self) -> Option<&tfmc::Sender> {
        self.tfmc.as_ref()
    }

    /// Number of packets that currently share a datagram.
    pub fn multiplex(&self) -> usize {
        match self.trunk.mode {
            Mode::Off => 1,
            Mode::Fixed(packets) => packets.max(1),
            Mode::Tfmc => self.tfmc.as_ref().map_or(1, tfmc::Sender::multiplex),
        }
    }

    /// Takes packets that are due, sends datagrams that are full or have waited long enough, and
    /// schedules the next wake-ups.
    fn go_on(&mut self, io: &mut AgentIo<'_>) {
        let now = io.now();
        while let Some(packet) = self.trunk.packets.get(self.next)
            && packet.due <= now
        {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        while self.waiting.len() >= self.multiplex() || self.overdue().is_some_and(|at| at <= now) {
            self.send(io);
        }
        match self.overdue() {
            Some(at) if at < self.flush_at => {
                self.flush_at = at;
                io.wake_at(at, FLUSH);
            }
            _ => {}
        }
        let timer = self.tfmc.as_ref().map_or(Time::NEVER, tfmc::Sender::next_timeout);
        if timer < self.timer_at {
            self.timer_at = timer;
            io.wake_at(timer, TIMER);
        }
    }

    /// Time at which the first waiting packet has waited for the maximum time.
    fn overdue(&self) -> Option<Time> {
        let first = self.waiting.front()?;
        Some(self.trunk.packets[*first].due + self.trunk.wait)
    }

    /// Sends a datagram with the first waiting packets; at least one must be waiting.
    fn send(&mut self, io: &mut AgentIo<'_>) {
        let packets = self.waiting.len().min(self.multiplex());
        let bytes = self.trunk.packet_bytes();
        self.datagram.clear();
        self.datagram.resize(packets * bytes, 0);
        for (place, index) in
            self.datagram.chunks_exact_mut(bytes).zip(self.waiting.drain(..packets))
        {
            place[..INDEX].copy_from_slice(&(index as u32).to_be_bytes());
        }
        if let Some(tfmc) = &mut self.tfmc {
            let number = tfmc.sent(io.now(), packets, packets * self.trunk.payload);
            let data = Data { number, rtt: tfmc.rtt() };
            self.datagram[INDEX..MIN_PACKET].copy_from_slice(&data.emit());
        }
        self.stats.packets += packets as u64;
        self.stats.datagrams += 1;
        let &mut Sender { port, to, .. } = self;
        let (protocol, payload) = (Protocol::UDP, &self.datagram[..]);
        let bytes = self.trunk.header(io.ip()) + payload.len();
        io.send_sized(&Outgoing { port, to, protocol, tos: 0, payload }, bytes);
    }

    fn ask(&self, io: &mut AgentIo<'_>) {
        if let Some(packet) = self.trunk.packets.get(self.next) {
            io.wake_at(packet.due, DUE);
        }
    }
}

impl Agent for Sender {
    /// # Panics
    ///
    /// If TFMC counts other headers than the datagrams have in this world.
    fn start(&mut self, io: &mut AgentIo<'_>) {
        let header = self.trunk.header(io.ip());
        let counted = self.trunk.config.as_ref().map_or(header, |config| config.header);
        assert_eq!(counted, header, "bytes of headers that TFMC counts, and that are sent");
        self.ask(io);
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let before = self.multiplex();
        let Some(tfmc) = &mut self.tfmc else { return };
        let report = Feedback::parse(datagram.payload).ok();
        let heard = report.is_some_and(|report| tfmc.feedback(io.now(), &report).is_ok());
        self.stats.refused += u64::from(!heard);
        self.stats.reports += u64::from(heard);
        self.stats.over_share += u64::from(heard && tfmc.over_share());
        self.stats.changes += u64::from(self.multiplex() != before);
        self.go_on(io);
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        match token {
            FLUSH => self.flush_at = Time::NEVER,
            TIMER => {
                self.timer_at = Time::NEVER;
                if let Some(tfmc) = &mut self.tfmc {
                    tfmc.expire(io.now());
                }
            }
            _ => {}
        }
        self.go_on(io);
        if token == DUE {
            self.ask(io);
        }
    }
}
