//! An application on plain UDP, without a node.

use super::{Agent, AgentIo, Outgoing, Received};
use crate::app::{Application, Io, Outbox};
use trunkline_net::{Endpoint, Protocol, VertexId};
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{NodeId, Service};

/// An [`Application`] that sends its packets as datagrams to ports of one other host.
pub struct PlainApp {
    pub app: Box<dyn Application>,
    pub port: u16,
    to: VertexId,
    /// Number of its last wake-up request, the only valid one.
    generation: u64,
    outbox: Outbox,
}

impl PlainApp {
    pub fn new(app: Box<dyn Application>, port: u16, to: VertexId) -> PlainApp {
        PlainApp { app, port, to, generation: 0, outbox: Outbox::default() }
    }

    fn call(&mut self, io: &mut AgentIo<'_>, call: impl FnOnce(&mut dyn Application, &mut Io<'_>)) {
        let mut app_io = Io::new(io.now(), 0, &mut self.outbox);
        call(&mut *self.app, &mut app_io);
        if let Some(at) = app_io.wanted() {
            self.generation += 1;
            io.wake_at(at, self.generation);
        }
        for (_, message) in self.outbox.messages() {
            if let Ok(ToNode::Send { port, payload, .. }) = ToNode::parse(message) {
                let to = Endpoint { vertex: self.to, port };
                let protocol = Protocol::UDP;
                io.send(&Outgoing { port: self.port, to, protocol, tos: 0, payload });
            }
        }
        self.outbox.clear();
    }
}

impl Agent for PlainApp {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.call(io, |app, io| app.start(io));
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let message = ToClient::Received {
            service: Service::BestEffort,
            recovered: false,
            remaining_ms: 0,
            flow_seq: 0,
            from: NodeId::NONE,
            port: datagram.header.from.port,
            payload: datagram.payload,
        };
        self.call(io, |app, io| app.receive(&message, io));
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        if token == self.generation {
            self.call(io, |app, io| app.wake(io));
        }
    }
}
