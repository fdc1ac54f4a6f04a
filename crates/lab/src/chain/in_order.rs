//! A sabotage: calls over two links with a relay that puts packets in order before it forwards
//! them, unlike the paper's nodes (§IV-A).

use super::{Chain, PACKET, Run, START, end};
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;

use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{Application, HostId, Io, WorldError};

/// The host between the two links, and the one where calls end.
const RELAY: HostId = HostId(1);
const END: HostId = HostId(2);

/// The port that the relay's application listens on.
const PORT: u16 = 4_000;
/// Offset of the packet number in a voice packet: after the RTP header and the time.
const NUMBER: core::ops::Range<usize> = 20..28;

impl Chain {
    /// As [`Chain::run`], over two links. The relay waits for a missing packet until one
    /// retransmission would have arrived.
    pub fn run_in_order(&self, seed: u64) -> Result<Run, WorldError> {
        assert_eq!(self.links.len(), 2, "one relay");
        let mut world = self.world(seed)?;
        let distance = PACKET / self.calls;
        let mut calls = Vec::new();
        for k in 0..self.calls {
            let start = START + distance * k;
            let relay = NodeId(RELAY.0 + 1);
            let source = VoiceSource::new(relay, PORT, Service::RealTime, start, self.packets);
            let sink = world.attach(END, 5_000 + k as u16, VoiceSink::default())?;
            calls.push((world.attach(HostId(0), 0, source)?, sink));
        }
        let relay = InOrder {
            sources: calls.iter().map(|&(source, _)| world.origin(source)).collect(),
            distance,
            // Three times the link's delay, and two packets that reveal the loss.
            patience: 3 * self.links[0].delay + 2 * distance,
            all: self.packets * u64::from(self.calls),
            next: 0,
            held: BTreeMap::new(),
        };
        let relay = world.attach(RELAY, PORT, relay)?;
        let heard_from = vec![world.origin(relay); calls.len()];
        world.run_until(end(self.packets));
        Ok(Run { world, calls, heard_from, wires: 2 })
    }
}

/// Forwards packets of calls in the order in which they were sent.
struct InOrder {
    /// The node and port of each call's source.
    sources: Vec<(NodeId, u16)>,
    /// Interval between two packets, over all calls.
    distance: Duration,
    /// Age from which a missing packet is no longer waited for.
    patience: Duration,
    /// Total number of packets.
    all: u64,
    /// Number of the next packet to forward, counted over all calls.
    next: u64,
    /// Packets that arrived ahead of their turn.
    held: BTreeMap<u64, Held>,
}

struct Held {
    remaining_ms: u8,
    came: Time,
    payload: Vec<u8>,
}

impl InOrder {
    /// Forwards the next packets, as long as they are there or no longer waited for.
    fn advance(&mut self, io: &mut Io<'_>) {
        while self.next < self.all {
            let sent = START + self.distance * self.next as u32;
            match self.held.remove(&self.next) {
                Some(held) => self.send(&held, io),
                None if io.now() < sent + self.patience => {
                    return io.wake_at(sent + self.patience);
                }
                None => {}
            }
            self.next += 1;
        }
    }

    fn send(&self, held: &Held, io: &mut Io<'_>) {
        let waited = io.now().since(held.came).as_millis() as u64;
        let call = self.next % self.sources.len() as u64;
        io.send(&ToNode::Send {
            service: Service::RealTime,
            deadline_ms: u64::from(held.remaining_ms).saturating_sub(waited).max(1) as u8,
            to: NodeId(END.0 + 1),
            port: 5_000 + call as u16,
            payload: &held.payload,
        });
    }
}

impl Application for InOrder {
    fn wake(&mut self, io: &mut Io<'_>) {
        self.advance(io);
    }

    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        let &ToClient::Received { remaining_ms, from, port, payload, .. } = message else {
            return;
        };
        let call = self.sources.iter().position(|s| *s == (from, port));
        let number = payload.get(NUMBER).and_then(|n| n.try_into().ok()).map(u64::from_be_bytes);
        let (Some(call), Some(number)) = (call, number) else { return };
        let turn = number * self.sources.len() as u64 + call as u64;
        if turn >= self.next {
            let held = Held { remaining_ms, came: io.now(), payload: payload.to_vec() };
            self.held.insert(turn, held);
            self.advance(io);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::chain::{Bursts, Chain, Policy};
    use std::time::Duration;
    use trunkline_base::link_model::LinkModel;

    #[test]
    fn what_waits_for_another_comes_later() {
        let loss = Bursts::PAPER[0].losing(0.05);
        let ten = LinkModel { delay: Duration::from_millis(10), loss, ..LinkModel::default() };
        let links = vec![ten; 2];
        let chain = Chain { links, policy: Policy::paper(), calls: 10, packets: 1_000 };
        let (free, ordered) = (chain.run(1).unwrap(), chain.run_in_order(1).unwrap());
        let (free, ordered) = (free.outcome(), ordered.outcome());
        assert_eq!((free.sent, ordered.sent), (10_000, 10_000));
        assert!(ordered.lost < 2 * free.lost, "{} {}", free.lost, ordered.lost);
        let [free, ordered] = [free, ordered].map(|o| o.delay(0.8).unwrap().as_millis());
        assert!(free <= 21 && ordered >= 25, "{free} {ordered}");
    }
}
