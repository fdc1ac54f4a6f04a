//! Building blocks for the test networks.

use std::collections::VecDeque;
use std::time::Duration;
use trunkline_base::link_model::{Cause, LinkModel};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{
    Class, Done, Endpoint, Frame, Header, Medium, Network, Packet, PacketKey, Protocol, VertexId,
};

pub fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

pub fn delay(n: u64) -> LinkModel {
    LinkModel { delay: Duration::from_millis(n), ..LinkModel::default() }
}

pub fn rate(bps: u64, delay_ms: u64) -> LinkModel {
    LinkModel { rate: Some(Bitrate::from_bps(bps)), ..delay(delay_ms) }
}

/// A packet without headers, as long as its payload.
pub fn packet(from: VertexId, to: VertexId, class: u8, payload: &[u8]) -> Packet<'_> {
    Packet {
        from: Endpoint { vertex: from, port: 1 },
        to: Endpoint { vertex: to, port: 2 },
        protocol: Protocol::UDP,
        tos: 0,
        class: Class(class),
        bytes: payload.len() as u32,
        payload,
    }
}

/// An arrived packet with its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    pub at: Time,
    pub header: Header,
    pub payload: Vec<u8>,
}

/// The next packet that arrives by `end`.
pub fn next(net: &mut Network, end: Time) -> Option<Arrived> {
    let delivery = net.poll(end)?;
    let (header, payload) = net.open(&delivery);
    let came = Arrived { at: delivery.at, header, payload: payload.clone() };
    net.release(delivery, payload);
    Some(came)
}

/// All packets that arrive by `end`.
pub fn drain(net: &mut Network, end: Time) -> Vec<Arrived> {
    std::iter::from_fn(|| next(net, end)).collect()
}

/// Serves two queues in turns, each of at most `limit` packets, at one rate: packets with a DSCP
/// wait in the first queue, all others in the second.
pub struct Turns {
    pub rate: Bitrate,
    pub limit: usize,
    queues: [VecDeque<(PacketKey, u32, u8)>; 2],
    turn: usize,
    sending: Option<(Time, PacketKey, u8)>,
}

impl Turns {
    pub fn new(rate: Bitrate, limit: usize) -> Turns {
        Turns { rate, limit, queues: Default::default(), turn: 0, sending: None }
    }

    fn begin(&mut self, now: Time) {
        if self.sending.is_some() {
            return;
        }
        let next = match self.queues[self.turn].is_empty() {
            true => 1 - self.turn,
            false => self.turn,
        };
        if let Some((key, bytes, tos)) = self.queues[next].pop_front() {
            self.turn = 1 - next;
            self.sending = Some((now + self.rate.time_for(bytes as usize), key, tos));
        }
    }
}

impl Medium for Turns {
    fn offer(&mut self, now: Time, frame: &Frame) -> Result<(), Cause> {
        let queue = &mut self.queues[usize::from(frame.tos >> 2 == 0)];
        if queue.len() == self.limit {
            return Err(Cause::Queue);
        }
        queue.push_back((frame.key, frame.bytes, frame.tos));
        self.begin(now);
        Ok(())
    }

    fn next_timeout(&self) -> Time {
        self.sending.map_or(Time::NEVER, |(at, ..)| at)
    }

    fn poll(&mut self, now: Time) -> Option<Done> {
        let (at, key, tos) = self.sending.filter(|(at, ..)| *at <= now)?;
        self.sending = None;
        self.begin(at);
        Some(Done { key, outcome: Ok(tos) })
    }
}
