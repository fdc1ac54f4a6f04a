//! A flow with a rate controlled by TFRC: packets that become due at given times wait in a bounded
//! queue until the sender may send them, and the receiver reports back.
//!
//! Each payload begins with TFRC's header and the packet's number. Both count as payload, so that a
//! packet is as long on the wire as a DCCP packet with the same payload.

use super::{Agent, AgentIo, Outgoing, Received};
use std::collections::VecDeque;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_net::{Endpoint, IpVersion, Protocol};
use trunkline_rate::tfrc::{Config, DATA_BYTES, Data, FEEDBACK_BYTES, Feedback, Receiver, Sender};

/// Length of the packet's number behind TFRC's header, in bytes.
const NUMBER: usize = 4;
/// Minimum payload in bytes: TFRC's header and the packet's number.
pub const MIN_PAYLOAD: usize = DATA_BYTES + NUMBER;
/// Maximum payload in bytes, in an Ethernet frame over IPv6 and DCCP.
pub const MAX_PAYLOAD: usize = 1_500 - Protocol::DCCP.headers(IpVersion::V6);

/// Wake-up for the next packet that becomes due.
const DUE: u64 = 0;
/// Wake-up for the time at which the sender may send.
const SEND: u64 = 1;
/// Wake-up for the sender's timer for missing reports.
const TIMER: u64 = 2;

/// Fate of a packet at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The queue was full when the packet became due.
    Dropped,
    /// The packet is still in the queue.
    Waits,
    /// The packet left at this time.
    At(Time),
}

/// Parameters of a flow that both ends share.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Number that identifies the flow to both ends.
    pub id: u32,
    /// Time at which each packet becomes due, in order.
    pub due: Rc<[Time]>,
    /// Length of each payload in bytes, from [`MIN_PAYLOAD`] to [`MAX_PAYLOAD`].
    pub bytes: usize,
    /// The TOS byte of packets and reports.
    pub tos: u8,
    /// TFRC's parameters, the same at both ends.
    pub config: Config,
}

/// The sending end of a flow, with the queue in front of it.
pub struct Source {
    port: u16,
    to: Endpoint,
    flow: Flow,
    sender: Sender,
    /// Numbers of the packets in the queue.
    queue: VecDeque<u32>,
    room: usize,
    sent: Vec<Sent>,
    /// The scheduled wake-up for sending; there is at most one.
    send_at: Option<Time>,
    timer_at: Time,
    refused: u64,
}

impl Source {
    /// Sends a flow from `port` to the [`Sink`] for the same flow at `to`, beginning `now`. At most
    /// `room` packets, 1 or more, wait in the queue; further ones are dropped when they become due.
    ///
    /// # Panics
    ///
    /// If the payload is too short or too long, or there is no room for any packet.
    pub fn new(port: u16, to: Endpoint, flow: Flow, room: usize, now: Time) -> Source {
        assert!((MIN_PAYLOAD..=MAX_PAYLOAD).contains(&flow.bytes) && room > 0, "{flow:?}, {room}");
        Source {
            port,
            to,
            sender: Sender::new(flow.config, flow.id, now),
            queue: VecDeque::with_capacity(room),
            room,
            sent: Vec::with_capacity(flow.due.len()),
            send_at: None,
            timer_at: Time::ZERO,
            refused: 0,
            flow,
        }
    }

    /// Fate of each packet that has become due so far.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Time at which each packet becomes due, including future ones.
    pub fn due(&self) -> &[Time] {
        &self.flow.due
    }

    /// Number of packets in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// TFRC's sender, with the current rate.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Number of reports that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sends the queued packets that may leave now, and schedules wake-ups for the rest.
    fn go_on(&mut self, io: &mut AgentIo<'_>) {
        let now = io.now();
        while let Some(&number) = self.queue.front() {
            let Ok(data) = self.sender.send(now, self.flow.bytes) else { break };
            self.queue.pop_front();
            self.sent[number as usize] = Sent::At(now);
            let mut payload = [0; MAX_PAYLOAD];
            payload[..DATA_BYTES].copy_from_slice(&data.emit());
            payload[DATA_BYTES..MIN_PAYLOAD].copy_from_slice(&number.to_be_bytes());
            let &mut Source { port, to, flow: Flow { tos, .. }, .. } = self;
            let (protocol, payload) = (Protocol::DCCP, &payload[..self.flow.bytes]);
            io.send(&Outgoing { port, to, protocol, tos, payload });
        }
        if !self.queue.is_empty() {
            let at = self.sender.next_send().max(now);
            // An early wake-up finds nothing to send; a late one would delay a packet.
            if self.send_at.is_none_or(|pending| at < pending) {
                self.send_at = Some(at);
                io.wake_at(at, SEND);
            }
        }
        let timer = self.sender.next_timeout();
        if timer != self.timer_at {
            self.timer_at = timer;
            io.wake_at(timer, TIMER);
        }
    }

    /// Queues the packets that are due, or drops them.
    fn take_due(&mut self, io: &mut AgentIo<'_>) {
        while let Some(&due) = self.flow.due.get(self.sent.len())
            && due <= io.now()
        {
            let number = self.sent.len() as u32;
            let has_room = self.queue.len() < self.room;
            self.sent.push(if has_room { Sent::Waits } else { Sent::Dropped });
            if has_room {
                self.queue.push_back(number);
                // A packet that may leave at once makes room for the next.
                self.go_on(io);
            }
        }
        if let Some(&due) = self.flow.due.get(self.sent.len()) {
            io.wake_at(due, DUE);
        }
    }
}

impl Agent for Source {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.take_due(io);
        self.go_on(io);
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let report = Feedback::parse(datagram.payload).ok();
        let heard = report.is_some_and(|report| self.sender.feedback(io.now(), &report).is_ok());
        self.refused += u64::from(!heard);
        self.go_on(io);
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        match token {
            DUE => self.take_due(io),
            SEND => self.send_at = self.send_at.filter(|&at| at > io.now()),
            _ if io.now() >= self.sender.next_timeout() => self.sender.expire(io.now()),
            _ => {}
        }
        self.go_on(io);
    }
}

/// The receiving end, which records when each packet arrived, and reports to the sender.
pub struct Sink {
    port: u16,
    tos: u8,
    receiver: Receiver,
    arrived: Vec<Option<Time>>,
}

impl Sink {
    /// Receives a flow at `port`.
    pub fn new(port: u16, flow: &Flow) -> Sink {
        let receiver = Receiver::new(flow.config, flow.id);
        Sink { port, tos: flow.tos, receiver, arrived: vec![None; flow.due.len()] }
    }

    /// Arrival time of each packet of the flow; `None` if it did not arrive.
    pub fn arrived(&self) -> &[Option<Time>] {
        &self.arrived
    }
}

impl Agent for Sink {
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let Received { at, header, payload } = datagram;
        let number = payload.get(DATA_BYTES..MIN_PAYLOAD).and_then(|n| n.first_chunk());
        let data = payload.first_chunk::<DATA_BYTES>().and_then(|d| Data::parse(d).ok());
        let (Some(number), Some(data)) = (number, data) else { return };
        let is_due = self.receiver.receive(at, &data, payload.len());
        let Ok(is_due) = is_due else { return };
        if let Some(arrived) = self.arrived.get_mut(u32::from_be_bytes(*number) as usize) {
            arrived.get_or_insert(at);
        }
        let report = if is_due { self.receiver.report(io.now()) } else { None };
        if let Some(report) = report {
            let payload: [u8; FEEDBACK_BYTES] = report.emit();
            let (port, to, protocol) = (self.port, header.from, Protocol::DCCP);
            io.send(&Outgoing { port, to, protocol, tos: self.tos, payload: &payload });
        }
    }
}
