//! The order in which a link sends: control, then real-time originals and retransmissions by
//! deadline, then the other services in turns with equal shares of bytes. A file transfer never
//! goes before voice.

use super::service::{Class, Turn};
use super::{IP_UDP_HEADERS, Link, SMALLEST_HEADERS, TxArena};
use crate::wire::{ENVELOPE_OVERHEAD, HELLO_LEN, Seal};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// How far a rate-limited link may run ahead of its rate, so that the timer's granularity does not
/// cost throughput.
pub(super) const PACING_BURST: Duration = Duration::from_millis(1);

/// Time for which a link counts as carrying calls after a real-time packet: longer than a pause in
/// what somebody says, since each beginning costs transfers a few round trips.
const CALLS_LAST: Duration = Duration::from_secs(10);

/// Bytes of non-urgent packets that a link puts into an arena: they stay ahead of voice that
/// arrives the next moment, once they have left this node.
const QUANTUM: usize = 16 << 10;

/// Reason why a link stopped sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Everything that could be sent is in the arena.
    Idle,
    /// The arena is full, and more is waiting.
    ArenaFull,
    /// More non-urgent packets wait, but their share of this arena is used up.
    Quantum,
    /// The configured rate is used up until the link's pacing time.
    Paced,
    /// The link's uplink accepts nothing more.
    NoRoom,
}

impl Link {
    /// Seals control frames and urgent packets into `arena`. [`Progress::Quantum`]: other packets
    /// wait for [`Link::transmit_shared`].
    pub(crate) fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Progress {
        let progress = self.transmit_first(now, arena);
        self.blocked = (progress == Progress::NoRoom).then_some(Class::Urgent);
        progress
    }

    fn transmit_first(&mut self, now: Time, arena: &mut TxArena) -> Progress {
        if self.seal.ready() && !self.send_path(now, arena) {
            return Progress::ArenaFull;
        }
        let Some(to) = self.address.filter(|_| self.seal.ready()) else { return Progress::Idle };
        if self.goodbye_is_due(now) && !self.send_goodbye(now, to, arena) {
            return Progress::ArenaFull;
        }
        while self.hello_is_due(now) || self.services.control(self.control_room()).is_some() {
            if !arena.has_room(self.uplink) {
                return Progress::NoRoom;
            }
            if !self.send_control(now, to, arena) {
                return Progress::ArenaFull;
            }
        }
        while let Some(frame) = self.routing.front() {
            if !arena.has_room(self.uplink) {
                return Progress::NoRoom;
            }
            let len = ENVELOPE_OVERHEAD + frame.len();
            let Some(envelope) = arena.envelope(self.uplink, to, self.config.dscp, len) else {
                return Progress::ArenaFull;
            };
            Seal::frames_mut(envelope).copy_from_slice(frame);
            self.seal.seal(envelope);
            self.routing.pop_front();
            self.tally.routing(len);
            self.sent(now, len, arena);
        }
        while self.services.waits(Class::Urgent) {
            match self.send_data(now, Class::Urgent, to, arena) {
                Step::Sent(_) => {}
                Step::Stopped(why) => return why,
                Step::Idle => break,
            }
        }
        if self.services.waits(Class::Shared) { Progress::Quantum } else { Progress::Idle }
    }

    /// Seals packets that are not urgent into `arena`, up to one quantum.
    pub(crate) fn transmit_shared(&mut self, now: Time, arena: &mut TxArena) -> Progress {
        let Some(to) = self.address.filter(|_| self.seal.ready()) else { return Progress::Idle };
        let mut sent = 0;
        while self.services.waits(Class::Shared) {
            if sent >= QUANTUM {
                return Progress::Quantum;
            }
            match self.send_data(now, Class::Shared, to, arena) {
                Step::Sent(bytes) => sent += bytes,
                Step::Stopped(why) => {
                    self.blocked = (why == Progress::NoRoom).then_some(Class::Shared);
                    return why;
                }
                Step::Idle => break,
            }
        }
        Progress::Idle
    }

    /// Bytes of services' control frames that fit in the next envelope, together with a possible
    /// hello.
    fn control_room(&self) -> usize {
        const REST: usize = ENVELOPE_OVERHEAD + HELLO_LEN;
        let paid = self.ask_credit.saturating_sub(SMALLEST_HEADERS + REST);
        paid.min(self.config.mtu.saturating_sub(IP_UDP_HEADERS + REST))
    }

    fn paced(&self, now: Time) -> bool {
        self.config.rate.is_some() && !self.pacer.is_ready(now)
    }

    /// When the rate allows the next packet, if one waits for that.
    pub(crate) fn pace_at(&self, now: Time) -> Option<Time> {
        let waits = self.blocked.is_none() && self.services.any_waits() && self.paced(now);
        waits.then(|| self.pacer.next())
    }

    /// When the next hello can be sent; `None` while there is no destination or no room for it.
    pub(crate) fn hello_at(&self) -> Option<Time> {
        let greets = self.seal.ready() && !self.is_leaving() && self.blocked.is_none();
        let somewhere = self.address.is_some() || self.is_asking();
        (somewhere && greets).then(|| self.monitor.due_at())
    }

    /// After a goodbye no more hellos are sent.
    fn hello_is_due(&self, now: Time) -> bool {
        self.monitor.is_due(now) && !self.is_leaving()
    }

    /// Whether the next hello goes in the envelope of a real-time frame of this length, which must
    /// be the only one waiting: among others of its size, a longer one would break their run.
    fn hello_rides(&self, now: Time, frame_len: usize) -> bool {
        let len = IP_UDP_HEADERS + ENVELOPE_OVERHEAD + frame_len + HELLO_LEN;
        self.monitor.rides(now)
            && self.services.one_urgent_waits()
            && !self.is_leaving()
            && len <= self.config.mtu
    }

    /// Bytes of acknowledgement that follow the packet of `turn` in its envelope.
    fn ack_rides(&self, turn: &Turn) -> usize {
        let taken = IP_UDP_HEADERS + ENVELOPE_OVERHEAD + turn.len;
        let room = self.config.mtu.saturating_sub(taken).min(self.ask_credit);
        self.services.rider_len(turn.place, room)
    }

    /// Accounts for `bytes` bytes of UDP payload sent to `to`.
    pub(super) fn charge(&mut self, now: Time, to: SocketAddr, bytes: usize) {
        self.volume.sent += bytes as u64;
        if let Some(rate) = self.config.rate {
            self.pacer.spend_time(now, rate.time_for(bytes + headers(to)));
        }
    }

    /// Writes one envelope of a hello and services' control frames; false if the arena is full.
    fn send_control(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> bool {
        let control = self.services.control(self.control_room());
        let beside = control.is_some() && self.monitor.rides(now) && !self.is_leaving();
        let hello = self.hello_is_due(now) || beside;
        let carried = self.carried();
        let control_len = control.map_or(0, |(_, len)| len);
        let len = ENVELOPE_OVERHEAD + control_len + if hello { HELLO_LEN } else { 0 };
        let Some(envelope) = arena.envelope(self.uplink, to, self.config.dscp, len) else {
            return false;
        };

        let mut w = Writer::new(Seal::frames_mut(envelope));
        let mut written = Ok(());
        if let Some(control) = control {
            written = self.services.write_control(now, control, &mut w);
        }
        if hello {
            written = written.and_then(|()| self.monitor.next_hello(now, &carried).emit(&mut w));
        }
        debug_assert!(written.is_ok() && w.room() == 0, "the length was computed above");
        self.seal.seal(envelope);
        if let Some((place, _)) = control {
            self.tally.request(place, len);
            self.ask_credit = self.ask_credit.saturating_sub(len + SMALLEST_HEADERS);
        } else {
            self.tally.hello(len);
        }
        self.sent(now, len, arena);
        true
    }

    /// Writes one envelope with one packet of this class.
    fn send_data(&mut self, now: Time, class: Class, to: SocketAddr, arena: &mut TxArena) -> Step {
        if self.paced(now) {
            return Step::Stopped(Progress::Paced);
        }
        if !arena.has_room(self.uplink) {
            return Step::Stopped(Progress::NoRoom);
        }
        let moment = &self.moment(now);
        let drops = self.tally.drops();
        let turn = match class {
            Class::Urgent => self.services.next_urgent(moment, drops),
            Class::Shared => {
                self.services.next_shared(moment, ENVELOPE_OVERHEAD + headers(to), drops)
            }
        };
        let Some(turn) = turn else { return Step::Idle };
        let urgent = turn.class == Class::Urgent;
        if urgent {
            self.calls_until = now + CALLS_LAST;
        }
        let rides = urgent && self.hello_rides(now, turn.len);
        let ack = if urgent { 0 } else { self.ack_rides(&turn) };
        let rider = if rides { HELLO_LEN } else { ack };
        let len = ENVELOPE_OVERHEAD + turn.len + rider;
        let dscp = if urgent { self.config.dscp } else { 0 };
        let Some(envelope) = arena.envelope(self.uplink, to, dscp, len) else {
            return Step::Stopped(Progress::ArenaFull);
        };
        let (frame, behind) = Seal::frames_mut(envelope).split_at_mut(turn.len);
        let w = &mut Writer::new(behind);
        let mut written = Ok(());
        if rides {
            let carried = self.carried();
            written = self.monitor.next_hello(now, &carried).emit(w);
            self.tally.rider(rider);
        } else if ack > 0 {
            written = self.services.write_control(now, (turn.place, ack), w);
            self.tally.request_rider(turn.place, ack);
            self.ask_credit = self.ask_credit.saturating_sub(ack);
        }
        debug_assert!(written.is_ok() && w.room() == 0, "the length was computed above");
        let sent = self.services.pop(&turn, moment, frame);
        self.tally.packet(turn.place, sent, len - rider);
        self.seal.seal(envelope);
        self.sent(now, len, arena);
        Step::Sent(len)
    }
}

/// Outcome of a packet's turn.
enum Step {
    /// An envelope of this many bytes is in the arena.
    Sent(usize),
    /// A packet is waiting, but can't be sent now.
    Stopped(Progress),
    /// No packet is waiting.
    Idle,
}

/// Bytes of IP and UDP headers of a datagram to `to`.
pub(super) fn headers(to: SocketAddr) -> usize {
    // An IPv4-mapped address of an IPv6 socket still means IPv4 packets.
    if to.ip().to_canonical().is_ipv4() { SMALLEST_HEADERS } else { IP_UDP_HEADERS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{ENVELOPE_COST, UplinkId};
    use crate::link::{ASK_FACTOR, Config};
    use crate::wire::{
        DATA_OVERHEAD, DataHeader, FlowHeader, Frame, Frames, HopHeader, Incarnation, Metric,
        NodeId, Null, ReceiverIndex, Service,
    };

    const OWN: NodeId = NodeId(1);
    const PEER: NodeId = NodeId(2);

    fn link() -> (Link, SocketAddr) {
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        let config = Config { address: Some(from), ..Config::new(PEER) };
        let (seal, _) = Link::unsealed(OWN, Incarnation(1), &config);
        (Link::new(seal, config, Time::NEVER, 1), from)
    }

    fn seal() -> Seal {
        Seal::Null(Null::new(ReceiverIndex::derived(PEER, OWN, ""), Incarnation(1)))
    }

    /// A datagram from the neighbour: a packet without payload.
    fn datagram(seal: &mut Seal, service: Service, link_seq: u16) -> Vec<u8> {
        let flow = FlowHeader {
            service,
            metric: Metric::default(),
            source: PEER,
            destination: OWN,
            source_port: 0,
            destination_port: 0,
            flow_seq: 0,
        };
        let remaining_ms = if service == Service::Reliable { 0 } else { 255 };
        let hop = HopHeader { recovered: false, hop_limit: 1, link_seq, remaining_ms };
        let header = DataHeader { flow, hop };
        let mut bytes = vec![0; DATA_OVERHEAD];
        header.emit(0, &mut Writer::new(Seal::frames_mut(&mut bytes))).unwrap();
        seal.seal(&mut bytes);
        bytes
    }

    /// Small datagrams, each after a gap.
    #[test]
    fn requests_are_in_proportion_to_what_came() {
        let (mut link, from) = link();
        let mut seal = seal();
        let mut arena = TxArena::new(1 << 16, 256);
        let mut send = |link: &mut Link, now| {
            arena.clear();
            assert_eq!(link.transmit(now, &mut arena), Progress::Idle);
        };
        let mut came = 0;
        for k in 0..1_000u16 {
            let now = Time::from_millis(1_000 + u64::from(k));
            let due = |link: &Link| link.service_timeouts().map(|(_, at)| at).min().unwrap();
            while due(&link) <= now {
                let at = due(&link);
                link.handle_timeout(at);
                send(&mut link, at);
            }
            let mut bytes = datagram(&mut seal, Service::RealTime, k.wrapping_mul(3));
            link.open(now, from, &mut bytes).unwrap();
            let Some(Ok(Frame::Data(header, _))) = Frames::new(Seal::frames(&bytes)).next() else {
                panic!("what was written")
            };
            link.on_data(now, &header, &[], Duration::ZERO).unwrap();
            came += (bytes.len() + SMALLEST_HEADERS) as u64;
            send(&mut link, now);
        }
        let requests = link.stats().of(Service::RealTime).requests;
        let went = requests.bytes + requests.envelopes * SMALLEST_HEADERS as u64;
        assert!(went > came, "else nothing was limited: {went}");
        assert!(went <= ASK_FACTOR as u64 * came, "{went} bytes for {came}");
    }

    /// Each packet is answered by one over the same link, so that no acknowledgement needs an
    /// envelope for itself.
    #[test]
    fn acknowledgements_ride_on_packets() {
        let (mut link, from) = link();
        let mut seal = seal();
        let mut arena = TxArena::new(1 << 16, 256);
        let mut acknowledged = 0;
        for k in 0..4 {
            let now = Time::from_millis(1_000 + u64::from(k));
            let mut bytes = datagram(&mut seal, Service::Reliable, k);
            link.open(now, from, &mut bytes).unwrap();
            let Some(Ok(Frame::Data(header, _))) = Frames::new(Seal::frames(&bytes)).next() else {
                panic!("what was written")
            };
            let packet = link.on_data(now, &header, &[], Duration::ZERO).unwrap();
            link.enqueue(now, &packet, Time::NEVER).unwrap();
            arena.clear();
            assert_eq!(link.transmit(now, &mut arena), Progress::Quantum);
            assert_eq!(link.transmit_shared(now, &mut arena), Progress::Idle);
            for envelope in arena.runs().iter().flat_map(|run| arena.envelopes(run)) {
                for frame in Frames::new(Seal::frames(envelope)) {
                    acknowledged += u32::from(matches!(frame, Ok(Frame::Ack(_))));
                }
            }
        }
        let service = link.stats().of(Service::Reliable);
        assert_eq!((acknowledged, service.requests.envelopes), (4, 0));
        assert_eq!(service.originals.envelopes, 4);
    }

    /// An uplink that takes nothing for a while, and then a little.
    #[test]
    fn without_room_nothing_is_sealed_and_nothing_is_due() {
        let (mut link, from) = link();
        let mut seal = seal();
        let (uplink, at) = (UplinkId(1), Time::from_millis(1_000));
        link.set_uplink(uplink, None);
        let mut enqueue = |link: &mut Link, service, link_seq| {
            let mut bytes = datagram(&mut seal, service, link_seq);
            link.open(at, from, &mut bytes).unwrap();
            let Some(Ok(Frame::Data(header, _))) = Frames::new(Seal::frames(&bytes)).next() else {
                panic!("what was written")
            };
            let packet = link.on_data(at, &header, &[], Duration::ZERO).unwrap();
            link.enqueue(at, &packet, packet.deadline).unwrap();
        };
        enqueue(&mut link, Service::RealTime, 0);
        enqueue(&mut link, Service::BestEffort, 0);
        link.monitor.expedite(at);
        let mut arena = TxArena::new(1 << 16, 256);
        arena.set_room(uplink, 0);
        assert_eq!(link.transmit(at, &mut arena), Progress::NoRoom);
        assert!(arena.is_empty() && arena.is_wanted(uplink));
        assert_eq!((link.hello_at(), link.pace_at(at)), (None, None), "a driver would spin");

        // Room for one envelope more than the hello.
        arena.set_room(uplink, ENVELOPE_COST + 1_000);
        assert_eq!(link.transmit(at, &mut arena), Progress::Quantum);
        assert_eq!(link.transmit_shared(at, &mut arena), Progress::NoRoom);
        let envelopes: usize = arena.runs().iter().map(|run| run.count).sum();
        assert!(envelopes == 2 && arena.runs().iter().all(|run| run.dscp == 46));

        // The rest is too late by the time that there is room.
        arena.clear();
        arena.set_room(uplink, usize::MAX);
        let at = at + Duration::from_secs(12);
        assert_eq!(link.transmit(at, &mut arena), Progress::Quantum);
        arena.clear();
        assert_eq!(link.transmit_shared(at, &mut arena), Progress::Idle);
        assert!(arena.is_empty());
    }
}
