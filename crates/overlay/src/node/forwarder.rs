use super::{Command, Config, Drained, Report, Sink, Why};
use crate::arena::{RxDatagram, TxArena};
use crate::counters::{Drop, Drops};
use crate::link::realtime::MAX_GAP;
use crate::link::{Link, LinkId, Outgoing, Progress};
use crate::route::{ForwardingTable, Hop};
use crate::session::Sessions;
use crate::wire::{
    DataHeader, Frame, Frames, Incarnation, Kind, NodeId, ReceiverIndex, Seal, open_header,
};
use core::time::Duration;
use rand::RngExt;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_base::Time;

/// Moves packets between links and sessions, by a table it is handed.
#[derive(Debug)]
pub struct Forwarder {
    pub(super) id: NodeId,
    pub(super) max_payload: usize,
    links: Vec<Link>,
    by_index: Vec<(ReceiverIndex, LinkId)>,
    table: Arc<ForwardingTable>,
    pub(super) sessions: Sessions,
    reports: VecDeque<Report>,
    /// The link that sends first next time: the one after the last that did,
    /// lest one that always has more keep the arena to itself.
    turn: usize,
    pub(super) stats: ForwarderStats,
}

/// What a node has done, apart from its links.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct ForwarderStats {
    /// Packets that applications at this node sent.
    pub from_sessions: u64,
    /// Packets handed to applications at this node.
    pub to_sessions: u64,
    /// Packets passed from one link to another.
    pub forwarded: u64,
    /// Sessions open now.
    pub sessions: u64,
    /// What was dropped outside any link, by reason.
    pub drops: Drops,
}

/// A packet inside the node, on its way to a session or a link.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub header: DataHeader,
    pub payload: &'a [u8],
    /// Until when it is of use, on this node's clock.
    pub deadline: Time,
}

impl Forwarder {
    pub(super) fn new(config: Config, incarnation: Incarnation, seed: u64, now: Time) -> Forwarder {
        let max_payload = config.max_payload();
        // A new start draws anew, whatever the seed, lest its numbers be taken
        // for those of the start before.
        let mut rng = trunkline_base::rng(seed ^ incarnation.0, u64::from(config.id.0));
        // First hellos are spread over one interval, lest nodes that start
        // together stay in step.
        let mut first_hello = |interval: Duration| {
            let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
            now + Duration::from_nanos(rng.random_range(0..nanos))
        };
        let links: Vec<Link> = config
            .links
            .into_iter()
            .map(|l| {
                let first = first_hello(l.liveness.interval);
                Link::new(config.id, incarnation, l, first)
            })
            .collect();
        let ids = (0..).map(LinkId);
        let mut by_index: Vec<_> = links.iter().map(Link::rx_index).zip(ids).collect();
        by_index.sort_unstable();
        Forwarder {
            id: config.id,
            max_payload,
            // Each link has at most one change to report between two looks.
            reports: VecDeque::with_capacity(2 * links.len()),
            links,
            by_index,
            table: Arc::default(),
            sessions: Sessions::new(config.max_sessions, rng.random()),
            turn: 0,
            stats: ForwarderStats::default(),
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        let Command::Table(table) = command;
        self.table = table;
    }

    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    pub(super) fn stats(&self) -> ForwarderStats {
        ForwarderStats { sessions: self.sessions.len() as u64, ..self.stats.clone() }
    }

    pub(super) fn recv(&mut self, now: Time, batch: &mut [RxDatagram<'_>], sink: &mut impl Sink) {
        for datagram in batch {
            if let Err((link, why)) = self.recv_one(now, datagram, sink) {
                self.drop_counted(link, why);
            }
        }
    }

    pub(super) fn drop_counted(&mut self, link: Option<LinkId>, why: Drop) {
        match link.and_then(|LinkId(i)| self.links.get_mut(usize::from(i))) {
            Some(link) => link.drop_counted(why),
            None => self.stats.drops.count(why),
        }
    }

    fn recv_one(
        &mut self,
        now: Time,
        datagram: &mut RxDatagram<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), (Option<LinkId>, Drop)> {
        let header = open_header(datagram.bytes).map_err(|_| (None, Drop::Malformed))?;
        let Kind::Null = header.kind;
        let found = self.by_index.binary_search_by_key(&header.receiver, |&(i, _)| i);
        let id = found.map(|i| self.by_index[i].1).map_err(|_| (None, Drop::UnknownReceiver))?;
        let link = self.link(id);
        link.open(datagram.at, datagram.from, datagram.bytes).map_err(|why| (Some(id), why))?;
        // What one envelope can make this node look up, however it is filled.
        let mut allowance = MAX_GAP as usize;
        for frame in Frames::new(Seal::frames(datagram.bytes)) {
            let frame = frame.map_err(|_| (Some(id), Drop::Malformed))?;
            match frame {
                Frame::Hello(hello) => {
                    if self.link(id).on_hello(datagram.at, &hello) {
                        self.reports.push_back(Report::Up(id));
                    }
                }
                Frame::Nack(nack) => self.link(id).on_nack(now, nack, &mut allowance),
                Frame::Data(header, payload) => {
                    let goes_on = header.destination != self.id;
                    let hop = goes_on.then(|| self.next_hop(header.destination)).flatten();
                    let onward = self.onward(hop);
                    let link = self.link(id);
                    match link.on_data(datagram.at, &header, payload.len(), onward) {
                        Ok(deadline) => {
                            self.relay(now, id, hop, Packet { header, payload, deadline }, sink);
                        }
                        Err(why) => link.drop_counted(why),
                    }
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, LinkId(id): LinkId) -> &mut Link {
        &mut self.links[usize::from(id)]
    }

    /// How long a packet takes that goes on by `hop`, as far as known.
    fn onward(&self, hop: Option<Hop>) -> Duration {
        let Some(Hop { link, onward }) = hop else { return Duration::ZERO };
        let link = self.links.get(usize::from(link.0));
        link.map_or(Duration::ZERO, |link| link.monitor().rtt().one_way() + onward)
    }

    /// A packet from a link: to an application here, or one hop further.
    fn relay(
        &mut self,
        now: Time,
        from: LinkId,
        hop: Option<Hop>,
        packet: Packet<'_>,
        sink: &mut impl Sink,
    ) {
        if packet.header.destination == self.id {
            if let Err(why) = self.deliver(now, &packet, sink) {
                self.stats.drops.count(why);
            }
            return;
        }
        let Some(hop_limit) = packet.header.hop_limit.checked_sub(1) else {
            return self.stats.drops.count(Drop::HopLimit);
        };
        if hop.is_some_and(|hop| hop.link == from) {
            return self.stats.drops.count(Drop::Bounced);
        }
        let header = DataHeader { hop_limit, ..packet.header };
        match self.forward(now, hop, &Packet { header, ..packet }) {
            Ok(()) => self.stats.forwarded += 1,
            Err((link, why)) => self.drop_counted(link, why),
        }
    }

    /// Where packets to `destination` go.
    pub(super) fn next_hop(&self, destination: NodeId) -> Option<Hop> {
        self.table.next_hop(destination)
    }

    /// Hands a packet to the link of `hop`.
    pub(super) fn forward(
        &mut self,
        now: Time,
        hop: Option<Hop>,
        packet: &Packet<'_>,
    ) -> Result<(), (Option<LinkId>, Drop)> {
        let hop = hop.ok_or((None, Drop::NoRoute))?;
        let link = self.links.get_mut(usize::from(hop.link.0)).ok_or((None, Drop::NoRoute))?;
        let &Packet { header, payload, deadline } = packet;
        let latest = deadline - hop.onward;
        link.enqueue(now, &Outgoing { header, payload, deadline, latest })
            .map_err(|why| (Some(hop.link), why))
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for (link, id) in self.links.iter_mut().zip(0..) {
            if link.handle_timeout(now) {
                self.reports.push_back(Report::Down(LinkId(id)));
            }
        }
    }

    pub(super) fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        let mut drained = Drained::All;
        for _ in 0..self.links.len() {
            if self.turn >= self.links.len() {
                self.turn = 0;
            }
            let link = &mut self.links[self.turn];
            self.turn += 1;
            match link.transmit(now, arena) {
                Progress::ArenaFull => return Drained::More,
                Progress::Quantum => drained = Drained::More,
                Progress::Idle | Progress::Paced => {}
            }
        }
        drained
    }

    pub(super) fn next_timeout(&self, now: Time) -> (Time, Why) {
        let mut next = (Time::NEVER, Why::Nothing);
        let mut offer = |at: Option<Time>, why: Why| {
            if let Some(at) = at.filter(|at| *at < next.0) {
                next = (at, why);
            }
        };
        for (link, id) in self.links.iter().zip((0..).map(LinkId)) {
            offer(link.hello_at(), Why::Hello(id));
            offer(link.monitor().dead_at(), Why::Silence(id));
            offer(link.pace_at(now), Why::Pace(id));
            offer(Some(link.ask_at()), Why::Ask(id));
            offer(Some(link.copy_at()), Why::Copy(id));
        }
        next
    }
}
