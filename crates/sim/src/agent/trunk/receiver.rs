//! The receiving gateway, which takes datagrams apart.

use super::{INDEX, MIN_PACKET, Trunk};
use crate::agent::{Agent, AgentIo, Outgoing, Received};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::{Endpoint, Protocol};
use trunkline_rate::tfmc::{self, Data};

/// The only wake-up: for the next periodic report.
const REPORT: u64 = 0;

/// The receiving gateway of a [`Trunk`].
pub struct Receiver {
    port: u16,
    trunk: Trunk,
    tfmc: Option<tfmc::Receiver>,
    arrived: Vec<Option<Time>>,
    /// The address that the trunk comes from; `None` before its first datagram.
    from: Option<Endpoint>,
    /// Scheduled wake-up for a periodic report.
    report_at: Time,
    reports: u64,
}

impl Receiver {
    /// Receives a trunk on `port`; reports go back to the address that it comes from.
    ///
    /// # Panics
    ///
    /// As [`Sender::new`](super::Sender::new).
    pub fn new(port: u16, trunk: Trunk) -> Receiver {
        let trunk = trunk.checked();
        let tfmc = trunk.config.map(tfmc::Receiver::new);
        let arrived = vec![None; trunk.packets.len()];
        Receiver { port, trunk, tfmc, arrived, from: None, report_at: Time::NEVER, reports: 0 }
    }

    /// Sends the report that is due, if one is, and schedules the next periodic one.
    fn report(&mut self, io: &mut AgentIo<'_>) {
        let (Some(tfmc), Some(to)) = (&mut self.tfmc, self.from) else { return };
        if let Some(report) = tfmc.report(io.now()) {
            self.reports += 1;
            let (port, protocol) = (self.port, Protocol::UDP);
            let out = Outgoing { port, to, protocol, tos: 0, payload: &report.emit() };
            io.send(&out);
        }
        let next = tfmc.next_report();
        if next < self.report_at {
            self.report_at = next;
            io.wake_at(next, REPORT);
        }
    }

    /// Arrival time of each of the trunk's packets; `None` if it did not arrive.
    pub fn arrived(&self) -> &[Option<Time>] {
        &self.arrived
    }

    /// Due time of each packet of a call, and its delay from the call to this gateway, waiting
    /// included; `None` if it did not arrive.
    pub fn delays(&self, call: u16) -> impl Iterator<Item = (Time, Option<Duration>)> + '_ {
        let of = self.trunk.packets.iter().zip(&self.arrived);
        let of = of.filter(move |(packet, _)| packet.call == call);
        of.map(|(packet, at)| (packet.due, at.map(|at| at.since(packet.due))))
    }

    /// Number of reports sent.
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// TFMC's receiver, if TFMC is in use.
    pub fn tfmc(&self) -> Option<&tfmc::Receiver> {
        self.tfmc.as_ref()
    }
}

impl Agent for Receiver {
    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let Received { at, header, payload } = datagram;
        let observed = self.trunk.observed;
        for packet in payload.chunks_exact(self.trunk.packet_bytes()) {
            let Some(index) = packet.first_chunk::<INDEX>() else { continue };
            let index = u32::from_be_bytes(*index) as usize;
            let Some(arrived) = self.arrived.get_mut(index) else { continue };
            arrived.get_or_insert(at);
            let packet = self.trunk.packets[index];
            if let Some(tfmc) = self.tfmc.as_mut().filter(|_| packet.call == observed) {
                tfmc.receive_of_flow(at, packet.number as u16);
            }
        }
        let Some(tfmc) = &mut self.tfmc else { return };
        let data = payload.get(INDEX..MIN_PACKET).and_then(|data| Data::parse(data).ok());
        let Some(Data { number, rtt }) = data else { return };
        if let Some(rtt) = rtt {
            tfmc.set_rtt(rtt);
        }
        let received = tfmc.receive(at, number);
        self.from = Some(header.from);
        if received.is_ok() {
            self.report(io);
        }
    }

    fn wake(&mut self, _token: u64, io: &mut AgentIo<'_>) {
        self.report_at = Time::NEVER;
        self.report(io);
    }
}
