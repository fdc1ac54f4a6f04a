//! The node's handling of streams: from its applications into packets, and back.

mod access;
mod opening;
mod reset;
mod status;
mod tell;

pub use status::{Stream, StreamPhase, StreamStats};

use super::Forwarder;
use crate::counters::DropReason;
use crate::link::{CONTROL, LinkId, Packet, STREAM};
use crate::session::stream::{
    End, Key, MAX_CONTROL, Owner, Receiver, Role, Segment, SegmentOutcome, Sender, StreamId,
    Streams, is_control,
};
use crate::session::wire::stream::{Request, Reset};
use crate::session::{Client, SessionId};
use crate::wire::{FlowHeader, NodeId, Service};
use core::time::Duration;
use rand::RngExt;
use std::collections::{BTreeSet, VecDeque};
use trunkline_base::Time;
use trunkline_rate::window;

/// Maximum number of packets that one stream sends in its turn.
const TURN: usize = 16;

/// Delay before the next try if nothing can be sent: there is no route, or the link is full and
/// doesn't get room earlier.
const NO_WAY: Duration = Duration::from_millis(100);

/// Bytes of a packet of a stream besides the segment's data, rounded up: headers of IPv4 and UDP,
/// envelope, data frame and segment.
const STREAM_OVERHEAD: usize = 84;

/// The state of all streams that end at a node.
#[derive(Debug)]
pub(super) struct StreamState {
    pub table: Streams,
    numbers: opening::Numbers,
    /// Sessions that have yet to be notified why their stream was reset.
    broken: VecDeque<(SessionId, Reset)>,
    /// Time of the next try to deliver deferred notifications to applications.
    tell_at: Time,
    /// Delay until that, the next time that an application accepts nothing.
    patience: Duration,
    /// Streams that had no route when they last had something to send.
    stranded: BTreeSet<StreamId>,
    /// Memory in which one segment is assembled.
    packet: Box<[u8]>,
    answers: opening::Answers,
    stats: StreamStats,
}

impl StreamState {
    /// `secret` makes the numbers of streams that other nodes open.
    pub fn new(config: crate::session::stream::Config, secret: &[u8; 32]) -> StreamState {
        StreamState {
            table: Streams::new(config),
            numbers: opening::Numbers::new(secret),
            broken: VecDeque::new(),
            tell_at: Time::NEVER,
            patience: tell::NOT_READ,
            stranded: BTreeSet::new(),
            packet: vec![0; crate::session::wire::MAX_MESSAGE].into(),
            answers: opening::Answers::default(),
            stats: StreamStats::default(),
        }
    }

    pub fn stats(&self) -> StreamStats {
        let mut stats = StreamStats { open: 0, ..self.stats };
        for end in self.table.iter() {
            stats.open += u64::from(!end.is_left());
            stats.sent += end.tx.delivered();
            stats.received += end.rx.received();
            stats.retransmitted += end.tx.retransmits();
        }
        stats
    }

    pub fn next_timeout(&self) -> Time {
        self.table.next_timeout().min(self.tell_at)
    }

    /// Removes stream `id` and keeps its counts.
    fn remove(&mut self, now: Time, id: StreamId) -> Option<Box<End>> {
        let end = self.table.remove(id)?;
        self.stats.sent += end.tx.delivered();
        self.stats.received += end.rx.received();
        self.stats.retransmitted += end.tx.retransmits();
        if let Some(number) = end.number_given() {
            self.numbers.close(now, &end.key, number, end.begun());
        }
        Some(end)
    }

    /// Removes stream `id`, which was reset; its application will be notified of the reason.
    fn break_off(&mut self, now: Time, id: StreamId, why: Reset) -> Option<Box<End>> {
        let end = self.remove(now, id)?;
        self.stats.reset += 1;
        if let Owner::Session(session) = end.owner {
            self.refuse(session, why);
        }
        Some(end)
    }

    /// Removes a stream that has ended. Its application may still grant credit, which is ignored.
    fn forget(&mut self, now: Time, id: StreamId) {
        if let Some(end) = self.remove(now, id)
            && let Owner::Session(session) = end.owner
        {
            self.table.end_role(session);
        }
    }

    /// Records that session `id` has no stream any more, or gets none; it will be notified of the
    /// reason.
    fn refuse(&mut self, id: SessionId, why: Reset) {
        self.table.end_role(id);
        self.broken.push_back((id, why));
        self.tell_at = Time::ZERO;
    }
}

impl Forwarder {
    /// Whether session `id` has or had a stream, or listens for streams.
    pub(super) fn has_stream(&self, id: SessionId) -> bool {
        self.streams.table.role(id).is_some()
    }

    /// Processes an application's request about a stream.
    pub(super) fn stream_request(&mut self, now: Time, id: SessionId, request: Request<'_>) {
        if self.sessions.client_of(id).is_none() {
            // Its last message and its end have crossed; the next session with this number belongs
            // to another application.
            return;
        }
        let role = self.streams.table.role(id);
        let done = match (request, role) {
            // The message was sent before the application learnt of the stream's end.
            (_, Some(Role::Ended)) => Ok(()),
            (Request::Connect { to, port, messages, credit }, None) => {
                self.connect(now, id, (to, port), messages, credit)
            }
            (Request::Listen { backlog }, None) => self.listen(id, backlog),
            (Request::Accept { version, token, credit }, None) => {
                self.accept(now, id, (version, token), credit)
            }
            (Request::Reset, Some(Role::End(stream))) => {
                if let Some(end) = self.streams.break_off(now, stream, Reset::Aborted) {
                    // The application requested this, so it is not notified.
                    self.streams.broken.pop_back();
                    self.reset_peer(now, &end, Reset::Aborted);
                }
                Ok(())
            }
            (request, Some(Role::End(stream))) => self.stream_data(stream, request),
            _ => Err(Reset::Misuse),
        };
        let Err(why) = done else { return };
        match role {
            Some(Role::End(stream)) => {
                if let Some(end) = self.streams.break_off(now, stream, why) {
                    self.reset_peer(now, &end, Reset::Aborted);
                }
            }
            Some(Role::Listener(port)) => {
                self.unlisten(now, port);
                self.streams.refuse(id, why);
            }
            _ => self.streams.refuse(id, why),
        }
    }

    fn stream_data(&mut self, stream: StreamId, request: Request<'_>) -> Result<(), Reset> {
        let table = &mut self.streams.table;
        let Some((end, mut memory)) = table.get_mut(stream) else { return Ok(()) };
        match request {
            Request::Data(bytes) => end.tx.write(bytes, &mut memory)?,
            Request::Shut => end.tx.shut(),
            Request::Credit(bytes) => {
                if !end.rx.give_credit(bytes.into()) {
                    return Err(Reset::Misuse);
                }
                table.will_tell(stream);
                return Ok(());
            }
            _ => return Err(Reset::Misuse),
        }
        table.will_send(stream);
        Ok(())
    }

    fn connect(
        &mut self,
        now: Time,
        id: SessionId,
        (peer, peer_port): (NodeId, u16),
        messages: bool,
        credit: u32,
    ) -> Result<(), Reset> {
        let port = self.sessions.port_of(id).ok_or(Reset::Misuse)?;
        let rights = self.sessions.client_of(id).and_then(|client| self.access.rights(client));
        if !rights.is_some_and(|rights| rights.to.has(peer)) {
            self.stats.drops.count(DropReason::Forbidden);
            return Err(Reset::Forbidden);
        }
        self.streams.stats.opened += 1;
        let key = Key { peer, peer_port, port };
        if peer == self.id {
            self.streams.table.listener(peer_port).ok_or(Reset::NotListening)?;
        } else {
            let metric = self.sessions.metric_of(id).unwrap_or(self.metric);
            self.next_hop(peer, metric).ok_or(Reset::NoRoute)?;
        }
        self.make_room(now, key)?;
        let (tx, rx) = self.halves(credit.into());
        let numbers = (self.entropy.random(), self.entropy.random());
        let mut end = End::opening(now, key, numbers, Owner::Session(id), tx, rx);
        end.metric = self.sessions.metric_of(id).unwrap_or(self.metric);
        end.messages = messages;
        self.streams.table.insert(end);
        Ok(())
    }

    /// Makes sure that a stream with this key can be added, forgetting streams that have ended if
    /// necessary: several, where other nodes have taken room since this one's share was larger. [`Reset::NoRoom`] if there is a stream with this key, or no room.
    fn make_room(&mut self, now: Time, key: Key) -> Result<(), Reset> {
        if let Some(old) = self.streams.table.find(&key) {
            let (end, _) = self.streams.table.get_mut(old).ok_or(Reset::NoRoom)?;
            if !end.is_left() {
                return Err(Reset::NoRoom);
            }
            self.streams.forget(now, old);
        }
        while !self.streams.table.has_room(key.peer)
            && self.streams.table.has_memory(key.peer)
            && let Some(over) = self.streams.table.to_forget(key.peer)
        {
            self.streams.forget(now, over);
        }
        self.streams.table.has_room(key.peer).then_some(()).ok_or(Reset::NoRoom)
    }

    fn halves(&self, credit: u64) -> (Sender, Receiver) {
        let config = &self.streams.table.config;
        let mut window = window::Config::new(self.max_payload + STREAM_OVERHEAD);
        (window.algorithm, window.max) = (config.algorithm, 2 * config.buffer as u64);
        let max = config.buffer as u64;
        (Sender::new(max, window), Receiver::new(max, credit))
    }

    fn listen(&mut self, id: SessionId, backlog: u16) -> Result<(), Reset> {
        let port = self.sessions.port_of(id).ok_or(Reset::Misuse)?;
        self.streams.table.listen(id, port, backlog);
        Ok(())
    }

    fn accept(
        &mut self,
        now: Time,
        id: SessionId,
        (version, token): (u8, u64),
        credit: u32,
    ) -> Result<(), Reset> {
        if self.sessions.port_of(id).is_some() || !self.session_versions.contains(version) {
            return Err(Reset::Misuse);
        }
        let (stream, listener) = self.streams.table.waiting(token).ok_or(Reset::Unknown)?;
        let client = |id| self.sessions.client_of(id).unwrap_or(Client::Local);
        if client(id) != client(listener) {
            return Err(Reset::Forbidden);
        }
        let max = self.streams.table.config.buffer as u64;
        if let Some((end, _)) = self.streams.table.get_mut(stream) {
            end.accept(now, max, credit.into());
        }
        self.streams.table.set_owner(stream, Owner::Session(id));
        self.streams.table.touch(stream);
        Ok(())
    }

    fn unlisten(&mut self, now: Time, port: u16) {
        for waiting in self.streams.table.unlisten(port) {
            if let Some(end) = self.streams.remove(now, waiting) {
                self.reset_peer(now, &end, Reset::NotListening);
            }
        }
    }

    /// Handles the end of session `id`. The data it wrote to its stream is still delivered, unless
    /// the session didn't end that direction, or the other end sends more data, which has no
    /// reader.
    pub(super) fn close_stream(&mut self, now: Time, id: SessionId) {
        match self.streams.table.role(id) {
            Some(Role::End(stream)) => {
                let Some((end, mut memory)) = self.streams.table.get_mut(stream) else { return };
                let done = end.abandon(&mut memory);
                self.streams.table.set_owner(stream, Owner::Nobody);
                match done {
                    Ok(()) => self.streams.table.touch(stream),
                    Err(why) => {
                        if let Some(end) = self.streams.remove(now, stream) {
                            self.reset_peer(now, &end, why);
                        }
                    }
                }
            }
            Some(Role::Listener(port)) => self.unlisten(now, port),
            Some(Role::Ended) => self.streams.broken.retain(|&(other, _)| other != id),
            None => {}
        }
        self.streams.table.forget_role(id);
    }

    /// Processes a packet of a stream that ends here.
    ///
    /// It came over the link `from`, if not from this node.
    pub(super) fn on_stream(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let h = &packet.flow;
        let key = Key::of(h);
        let segment = Segment::parse(packet.payload).map_err(|_| DropReason::Malformed)?;
        if h.source != self.id
            && let Err(forbidden) = self.access.check_from(h.source)
        {
            // Notify the other end, so that it stops.
            if let Segment::Body(body) = &segment {
                self.streams.stats.refused += u64::from(body.is_request());
                self.say_reset(now, from, packet, body, Reset::Forbidden);
            }
            return Err(forbidden);
        }
        let known = self.streams.table.find(&key);
        let mut found = None;
        if let Some(id) = known
            && let Some((end, _)) = self.streams.table.get_mut(id)
        {
            if end.tag == h.flow_seq {
                found = Some(id);
            } else if matches!(&segment, Segment::Body(body) if body.is_request()) && !end.is_over()
            {
                // Either its node has restarted and opens another stream between the same ports, or
                // an attacker does so on its behalf. Only the node can tell whether it has this
                // stream, so challenge it; it repeats its request.
                end.challenge();
                self.streams.table.will_send(id);
                return Err(DropReason::NoPort);
            }
        }
        match (found, segment) {
            (Some(id), Segment::Broken(broken)) => self.on_broken(now, id, &broken),
            // A copy of the request, which is late.
            (Some(_), Segment::Body(body)) if body.is_request() => Ok(()),
            (Some(id), Segment::Body(body)) => {
                let Some((end, mut memory)) = self.streams.table.get_mut(id) else { return Ok(()) };
                if !end.is_from_peer(&body) {
                    return Err(DropReason::StreamNumber);
                }
                let marked = packet.is_marked();
                let done = end.on_segment(now, &body, marked, &mut memory);
                self.streams.table.touch(id);
                match done {
                    Ok(SegmentOutcome::NoRoom) => return Err(DropReason::QueueFull),
                    Ok(_) => {}
                    Err(why) => {
                        let over = self.streams.table.get(id).is_some_and(End::is_over);
                        if !over && let Some(end) = self.streams.break_off(now, id, why) {
                            self.reset_peer(now, &end, why);
                        }
                        // A peer that writes to an application that has just gone has made no
                        // error.
                        let gone = why == Reset::Closed;
                        return Err(if gone { DropReason::NoPort } else { DropReason::Malformed });
                    }
                }
                Ok(())
            }
            (None, Segment::Body(body)) => match self.on_unknown(now, from, packet, &body) {
                Ok(true) => self.on_stream(now, from, packet),
                Ok(false) => Ok(()),
                Err(why) => Err(self.refuse_segment(now, from, packet, &body, why)),
            },
            (None, Segment::Broken(_)) => Err(DropReason::NoPort),
        }
    }

    /// Forwards one segment to the other end, or delivers it if that end is at this node. A segment
    /// that its link rejects is dropped and counted.
    fn send_segment(
        &mut self,
        now: Time,
        (key, tag, metric): (Key, u16, crate::wire::Metric),
        payload: &[u8],
    ) {
        let flow = FlowHeader {
            service: Service::Reliable,
            metric,
            source: self.id,
            destination: key.peer,
            source_port: key.port,
            destination_port: key.peer_port,
            flow_seq: tag,
        };
        let packet = Packet {
            flags: STREAM | if is_control(payload) { CONTROL } else { 0 },
            ..Packet::new(flow, payload, now + crate::link::NO_DEADLINE)
        };
        if key.peer == self.id {
            self.streams.tell_at = Time::ZERO;
            if let Err(why) = self.on_stream(now, None, &packet) {
                self.stats.drops.count(why);
            }
            return;
        }
        let hop = self.next_hop(key.peer, metric);
        if let Err((link, why)) = self.forward(now, hop, &packet) {
            self.drop_counted(link, why);
        }
    }

    /// The link of a stream's next packet, if that link accepts one now; `None` if the other end is
    /// at this node.
    fn way_of(&self, end: &End) -> Result<Option<LinkId>, Blocked> {
        if end.key.peer == self.id {
            return Ok(None);
        }
        let hop = self.next_hop(end.key.peer, end.metric).ok_or(Blocked::None)?;
        let link = self.links.get(hop.link).ok_or(Blocked::None)?;
        match link.stream_room(true) {
            Some(true) => Ok(Some(hop.link)),
            Some(false) => Err(Blocked::Full(hop.link)),
            None => Err(Blocked::None),
        }
    }

    /// Passes segments that streams may send now to the links, in turns. Returns whether any stream
    /// waits for a full link.
    pub(super) fn send_streams(&mut self, now: Time) -> bool {
        let mut goes_on = true;
        while core::mem::take(&mut goes_on) {
            goes_on |= self.send_held(now);
            for _ in 0..self.streams.table.senders() {
                let Some(id) = self.streams.table.next_to_send() else { break };
                goes_on |= self.send_stream(now, id, false);
            }
        }
        self.streams.table.awaited(0).is_some()
    }

    /// Lets streams that wait for a link send, as far as it has room now. Returns whether any did.
    fn send_held(&mut self, now: Time) -> bool {
        let (mut from, mut any) = (0, false);
        while let Some(outlet) = self.streams.table.awaited(from) {
            let link = self.links.get(LinkId(outlet));
            if link.is_some_and(|link| link.stream_room(true) == Some(false)) {
                let Some(next) = outlet.checked_add(1) else { break };
                from = next;
            } else if let Some(id) = self.streams.table.next_held(outlet) {
                any |= self.send_stream(now, id, true);
            }
        }
        any
    }

    /// Sends the packets that stream `id` may send in one turn; `is_first` if it has waited longest
    /// for its link. Returns whether there were any.
    fn send_stream(&mut self, now: Time, id: StreamId, is_first: bool) -> bool {
        let mut packet = core::mem::take(&mut self.streams.packet);
        let room = self.max_payload;
        let mut sent = 0;
        while let Some(end) = self.streams.table.get(id) {
            let about = (end.key, end.tag, end.metric);
            let way = match self.way_of(end) {
                Ok(Some(link))
                    if !is_first && self.streams.table.awaited(link.0) == Some(link.0) =>
                {
                    Err(Blocked::Full(link))
                }
                way => way,
            };
            let Some((end, _)) = self.streams.table.get_mut(id) else { break };
            match way {
                Ok(_) if sent == TURN => self.streams.table.will_send(id),
                Ok(_) => {
                    if let Some(len) = end.poll(now, room, &mut packet) {
                        self.send_segment(now, about, &packet[..len]);
                        sent += 1;
                        continue;
                    }
                }
                Err(why) => {
                    end.wait_until(now + NO_WAY);
                    match why {
                        Blocked::Full(link) => self.streams.table.hold(id, link.0),
                        Blocked::None => drop(self.streams.stranded.insert(id)),
                    }
                }
            }
            break;
        }
        self.streams.packet = packet;
        self.send_control(now, id);
        self.streams.table.arm(id);
        sent > 0
    }

    /// Sends the segments without data of stream `id` while it waits for its turn: a request to
    /// open it, or an acknowledgement.
    fn send_control(&mut self, now: Time, id: StreamId) {
        let link = self.streams.table.held(id).and_then(|outlet| self.links.get(LinkId(outlet)));
        if link.and_then(|link| link.stream_room(false)) != Some(true) {
            return;
        }
        let Some((end, _)) = self.streams.table.get_mut(id) else { return };
        let about = (end.key, end.tag, end.metric);
        let mut segment = [0; MAX_CONTROL];
        if let Some(len) = end.poll_control(now, &mut segment) {
            self.send_segment(now, about, &segment[..len]);
        }
    }

    /// Whether stream `id` still has to wait for its link; false once its packets leave over
    /// another one.
    fn still_waits(&mut self, now: Time, id: StreamId) -> bool {
        let Some(outlet) = self.streams.table.held(id) else { return false };
        let way = self.streams.table.get(id).map(|end| self.way_of(end));
        let waits = matches!(way, Some(Ok(Some(l)) | Err(Blocked::Full(l))) if l.0 == outlet);
        match self.streams.table.get_mut(id) {
            Some((end, _)) if waits => {
                end.wait_until(now + NO_WAY);
                self.streams.table.arm(id);
            }
            _ => self.streams.table.unhold(id),
        }
        waits
    }

    /// Lets the streams without a route look for one, after the table has changed.
    pub(super) fn streams_have_new_table(&mut self) {
        for id in core::mem::take(&mut self.streams.stranded) {
            self.streams.table.will_send(id);
        }
    }

    /// Performs the actions of streams with expired timers.
    pub(super) fn stream_timeouts(&mut self, now: Time) {
        while let Some(id) = self.streams.table.next_due(now) {
            let Some((end, mut memory)) = self.streams.table.get_mut(id) else { continue };
            if end.is_forgotten(now) {
                self.streams.forget(now, id);
                continue;
            }
            match end.handle_timeout(now, &mut memory) {
                // Its timer is set again once the due segments have been sent.
                Ok(()) if !self.still_waits(now, id) => self.streams.table.will_send(id),
                Ok(()) => self.send_control(now, id),
                Err(why) => {
                    if let Some(end) = self.streams.break_off(now, id, why) {
                        self.reset_peer(now, &end, why);
                    }
                }
            }
        }
    }
}

/// Reason why no packet of a stream can leave now.
enum Blocked {
    /// There is no route, or the link isn't up.
    None,
    /// The send queue of this link is full, or others wait for it.
    Full(LinkId),
}
