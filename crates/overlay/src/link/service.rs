//! The interface between a link and its services: the trait that a service implements, and the list
//! of services.
//!
//! A service is a type in a module of its own that implements [`LinkService`], its number and name
//! in [`Service`], and its line in `register!` below. Calls are dispatched by a match, not by a
//! table of functions, and nothing is allocated after the start.

use super::drr::DeficitRoundRobin;
use super::{Config, Packet, RxPacketInfo, best_effort, realtime, reliable};
use crate::counters::{DropReason, Drops, ReceiverStats};
use crate::wire::{Incarnation, Nack, SelectiveAck, Service};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::{Short, Writer};

/// State of a link, passed to its services on each call.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkContext {
    pub now: Time,
    /// The link's round trip; zero while it is unknown.
    pub rtt: Duration,
    /// Half of the average round trip: the estimate of the one-way delay.
    pub one_way: Duration,
    /// Number of the next envelope to be sent.
    pub envelope: u64,
    /// Whether calls leave by this link, or by another on its uplink.
    pub calls: bool,
}

/// Priority of a service relative to the others of its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Goes before everything that is not urgent, by deadline, and is marked as urgent.
    Urgent,
    /// Gets an equal share of the capacity that urgent services leave.
    Shared,
}

/// Whether a packet has been sent before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Original,
    Retransmit,
}

/// One service of one link, in both directions. A service without recovery only needs the methods
/// that have no body here.
pub(super) trait LinkService {
    fn class(&self) -> Class;

    /// The node has started; the incarnation distinguishes this start from others.
    fn begin(&mut self, _: Incarnation) {}

    /// Queues a packet that has waited since `since` and is useful to the next node until `latest`.
    /// [`Time::NEVER`] stands for a flow-controlled packet, which may wait without limit because
    /// its sender waits for room.
    fn enqueue(&mut self, since: Time, packet: &Packet<'_>, latest: Time)
    -> Result<(), DropReason>;

    /// Flow-controlled bytes that are waiting; `None` if a frame of `len` bytes would find no room.
    fn flow_controlled(&self, _len: usize) -> Option<usize> {
        Some(0)
    }

    /// Whether a frame of `len` bytes of a stream that begins or ends at this node finds room, with
    /// `data` or without.
    fn has_room_for_own(&self, _len: usize, _data: bool) -> bool {
        false
    }

    /// Number of packets waiting to be sent; some of them may turn out to be too late.
    fn waiting(&self) -> usize;

    /// Bytes of the next frame, after dropping packets that are no longer useful.
    fn head(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<usize>;

    /// Writes the head into `out`, which has exactly its length.
    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent;

    /// For an urgent service: the deadline of the head.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// Records an arriving packet; an error if it is a duplicate.
    fn on_data(&mut self, _: &RxPacketInfo, _: &mut Drops) -> Result<(), DropReason> {
        Ok(())
    }

    /// Handles the neighbour's request for retransmissions; `allowance` is the number of packets
    /// that may still be looked up for this envelope.
    fn on_request(
        &mut self,
        _: &LinkContext,
        _: Nack<'_>,
        _allowance: &mut usize,
        drops: &mut Drops,
    ) {
        drops.count(DropReason::NotRetransmitted);
    }

    /// Handles the neighbour's acknowledgement; `allowance` is as for requests.
    fn on_ack(
        &mut self,
        _at: Time,
        _: SelectiveAck<'_>,
        _allowance: &mut usize,
    ) -> Result<(), DropReason> {
        Err(DropReason::Malformed)
    }

    /// Bytes of control frames to send now, at most `room`.
    fn control_len(&self, _room: usize) -> usize {
        0
    }

    /// Bytes of control frames, at most `room`, that can follow a packet sent now, although they
    /// are not due yet.
    fn rider_len(&self, _room: usize) -> usize {
        0
    }

    /// Writes control frames of `len` bytes, as returned by [`LinkService::control_len`] or
    /// [`LinkService::rider_len`].
    fn write_control(&mut self, _: Time, _len: usize, _: &mut Writer<'_>) -> Result<(), Short> {
        Ok(())
    }

    /// When [`LinkService::handle_timeout`] must be called next.
    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    /// Runs the timers that are due.
    fn handle_timeout(&mut self, _: &LinkContext, _: &mut Drops) {}

    /// The neighbour has restarted with new numbers; the incarnation distinguishes this start from
    /// others.
    fn restart(&mut self, _peer: Incarnation) {}

    /// The link has gone down: its losses until now don't count as usual ones.
    fn outage(&mut self) {}

    /// The link has come up.
    fn up(&mut self) {}

    /// Counters of the receiving half, for a service that has them.
    fn received(&self) -> Option<ReceiverStats> {
        None
    }
}

/// Defines `AnyService`, and `with!` to call a method of the service in it.
macro_rules! register {
    ($($service:ident($kind:ty)),+ $(,)?) => {
        /// Any one of the services.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "a link has one of each, in one place")]
        pub(super) enum AnyService {
            $($service($kind)),+
        }

        impl AnyService {
            fn new(service: Service, config: &Config, secret: u64) -> AnyService {
                match service {
                    $(Service::$service => AnyService::$service(<$kind>::new(config, secret))),+
                }
            }
        }

        macro_rules! with {
            ($any:expr, $one:ident => $call:expr) => {
                match $any { $(AnyService::$service($one) => $call),+ }
            };
        }
    };
}

register! {
    BestEffort(best_effort::Queue),
    RealTime(realtime::RealTime),
    Reliable(reliable::Reliable),
}

impl AnyService {
    /// The head if the service has this class; one dispatch covers both questions.
    #[inline]
    fn head_if(&mut self, class: Class, moment: &LinkContext, drops: &mut Drops) -> Option<usize> {
        with!(self, one => if one.class() == class { one.head(moment, drops) } else { None })
    }
}

impl LinkService for AnyService {
    #[inline]
    fn class(&self) -> Class {
        with!(self, one => one.class())
    }

    #[inline]
    fn enqueue(
        &mut self,
        since: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<(), DropReason> {
        with!(self, one => one.enqueue(since, packet, latest))
    }

    fn flow_controlled(&self, len: usize) -> Option<usize> {
        with!(self, one => one.flow_controlled(len))
    }

    fn has_room_for_own(&self, len: usize, data: bool) -> bool {
        with!(self, one => one.has_room_for_own(len, data))
    }

    #[inline]
    fn waiting(&self) -> usize {
        with!(self, one => one.waiting())
    }

    #[inline]
    fn head(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<usize> {
        with!(self, one => one.head(moment, drops))
    }

    #[inline]
    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent {
        with!(self, one => one.pop(moment, out))
    }

    #[inline]
    fn deadline(&self) -> Time {
        with!(self, one => one.deadline())
    }

    #[inline]
    fn on_data(&mut self, packet: &RxPacketInfo, drops: &mut Drops) -> Result<(), DropReason> {
        with!(self, one => one.on_data(packet, drops))
    }

    fn on_request(
        &mut self,
        m: &LinkContext,
        nack: Nack<'_>,
        allowance: &mut usize,
        d: &mut Drops,
    ) {
        with!(self, one => one.on_request(m, nack, allowance, d));
    }

    fn begin(&mut self, incarnation: Incarnation) {
        with!(self, one => one.begin(incarnation));
    }

    fn on_ack(
        &mut self,
        at: Time,
        ack: SelectiveAck<'_>,
        allowance: &mut usize,
    ) -> Result<(), DropReason> {
        with!(self, one => one.on_ack(at, ack, allowance))
    }

    fn control_len(&self, room: usize) -> usize {
        with!(self, one => one.control_len(room))
    }

    fn rider_len(&self, room: usize) -> usize {
        with!(self, one => one.rider_len(room))
    }

    fn write_control(&mut self, now: Time, len: usize, w: &mut Writer<'_>) -> Result<(), Short> {
        with!(self, one => one.write_control(now, len, w))
    }

    fn next_timeout(&self) -> Time {
        with!(self, one => one.next_timeout())
    }

    fn handle_timeout(&mut self, moment: &LinkContext, drops: &mut Drops) {
        with!(self, one => one.handle_timeout(moment, drops));
    }

    fn restart(&mut self, peer: Incarnation) {
        with!(self, one => one.restart(peer));
    }

    fn outage(&mut self) {
        with!(self, one => one.outage());
    }

    fn up(&mut self) {
        with!(self, one => one.up());
    }

    fn received(&self) -> Option<ReceiverStats> {
        with!(self, one => one.received())
    }
}

/// The services of a link, in the order of [`Service::ALL`], and the turns of those that share it.
#[derive(Debug)]
pub(super) struct Services<const N: usize = { Service::COUNT }> {
    each: [AnyService; N],
    shared: DeficitRoundRobin<N>,
}

/// The next packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Index of its service.
    pub place: usize,
    /// Bytes of its frame.
    pub len: usize,
    pub class: Class,
    /// Bytes charged to a service that shares the link.
    cost: usize,
}

impl Services {
    pub fn new(config: &Config, secret: u64) -> Services {
        Services::of(Service::ALL.map(|service| AnyService::new(service, config, secret)))
    }

    pub fn get(&self, service: Service) -> &AnyService {
        &self.each[service.index()]
    }

    pub fn get_mut(&mut self, service: Service) -> &mut AnyService {
        &mut self.each[service.index()]
    }

    /// When each service has to run its timer next.
    pub fn timeouts(&self) -> impl Iterator<Item = (Service, Time)> {
        Service::ALL.into_iter().zip(self.each.iter().map(LinkService::next_timeout))
    }

    /// Counters of each service's receiving half.
    pub fn received(&self) -> [Option<ReceiverStats>; Service::COUNT] {
        Service::ALL.map(|service| self.get(service).received())
    }
}

impl<const N: usize> Services<N> {
    fn of(each: [AnyService; N]) -> Services<N> {
        Services { each, shared: DeficitRoundRobin::new() }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut AnyService> {
        self.each.iter_mut()
    }

    /// The next urgent packet, by deadline.
    #[inline]
    pub fn next_urgent(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<Turn> {
        let mut first: Option<(usize, usize)> = None;
        for place in 0..N {
            if let Some(len) = self.each[place].head_if(Class::Urgent, moment, drops) {
                let deadline = |place: usize| self.each[place].deadline();
                if first.is_none_or(|(other, _)| deadline(place) < deadline(other)) {
                    first = Some((place, len));
                }
            }
        }
        let (place, len) = first?;
        Some(Turn { place, len, class: Class::Urgent, cost: 0 })
    }

    /// The next packet that is not urgent, in turns of the services; each packet counts with
    /// `overhead` extra bytes.
    pub fn next_shared(
        &mut self,
        m: &LinkContext,
        overhead: usize,
        drops: &mut Drops,
    ) -> Option<Turn> {
        let mut costs = [None; N];
        for (cost, service) in costs.iter_mut().zip(&mut self.each) {
            *cost = service.head_if(Class::Shared, m, drops).map(|len| len + overhead);
        }
        let place = self.shared.next(&costs)?;
        let cost = costs[place]?;
        Some(Turn { place, len: cost - overhead, class: Class::Shared, cost })
    }

    /// Writes the packet of `turn` into `out`, which has exactly its length.
    #[inline]
    pub fn pop(&mut self, turn: &Turn, moment: &LinkContext, out: &mut [u8]) -> Sent {
        let service = &mut self.each[turn.place];
        let sent = service.pop(moment, out);
        if turn.class == Class::Shared {
            self.shared.sent(turn.place, turn.cost, service.waiting() > 0);
        }
        sent
    }

    /// Whether a packet of this class waits to be sent.
    pub fn waits(&self, class: Class) -> bool {
        self.each.iter().any(|service| service.class() == class && service.waiting() > 0)
    }

    /// Whether any packet waits to be sent.
    pub fn any_waits(&self) -> bool {
        self.each.iter().any(|service| service.waiting() > 0)
    }

    /// Whether exactly one urgent packet is waiting.
    pub fn one_urgent_waits(&self) -> bool {
        let urgent = self.each.iter().filter(|service| service.class() == Class::Urgent);
        urgent.map(LinkService::waiting).sum::<usize>() == 1
    }

    /// Index of the first service with control frames to send, and their bytes, at most `room`.
    pub fn control(&self, room: usize) -> Option<(usize, usize)> {
        let lens = self.each.iter().map(|service| service.control_len(room));
        lens.enumerate().find(|&(_, len)| len > 0)
    }

    /// Bytes of control frames of the service at `place`, at most `room`, that follow its packet.
    pub fn rider_len(&self, place: usize, room: usize) -> usize {
        self.each[place].rider_len(room)
    }

    /// Writes the control frames found by [`Services::control`] or [`Services::rider_len`].
    pub fn write_control(
        &mut self,
        now: Time,
        (place, len): (usize, usize),
        w: &mut Writer<'_>,
    ) -> Result<(), Short> {
        self.each[place].write_control(now, len, w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DATA_HEADER, FlowHeader, Frame, Frames, Metric, NodeId};

    const OVERHEAD: usize = 52;
    const NOW: LinkContext = LinkContext {
        now: Time::ZERO,
        rtt: Duration::ZERO,
        one_way: Duration::ZERO,
        envelope: 0,
        calls: false,
    };

    fn config() -> Config {
        let mut config = Config::new(NodeId(2));
        config.best_effort.packets = 64;
        config
    }

    fn services<const N: usize>(which: [Service; N]) -> Services<N> {
        Services::of(which.map(|service| AnyService::new(service, &config(), 1)))
    }

    fn enqueue(service: &mut AnyService, ports: u16, len: usize, deadline: Time) {
        let flow = FlowHeader {
            service: Service::BestEffort,
            metric: Metric::default(),
            source: NodeId(1),
            destination: NodeId(2),
            source_port: ports,
            destination_port: ports,
            flow_seq: 0,
        };
        let payload = &vec![0; len];
        let packet = Packet { hop_limit: 5, ..Packet::new(flow, payload, deadline) };
        service.enqueue(Time::ZERO, &packet, deadline).unwrap();
    }

    /// Sends the next packet: index of its service, port, and bytes on the link.
    fn send<const N: usize>(services: &mut Services<N>) -> Option<(usize, u16, usize)> {
        let drops = &mut Drops::default();
        let urgent = services.next_urgent(&NOW, drops);
        let turn = urgent.or_else(|| services.next_shared(&NOW, OVERHEAD, drops))?;
        let mut out = vec![0; turn.len];
        services.pop(&turn, &NOW, &mut out);
        let Some(Ok(Frame::Data(header, _))) = Frames::new(&out).next() else { panic!("a packet") };
        Some((turn.place, header.flow.source_port, OVERHEAD + turn.len))
    }

    /// True for any packet sizes, and any number of packets waiting.
    #[test]
    fn two_that_are_not_urgent_share_equally() {
        const EVENLY: usize = 4_000_000;
        for [a, b] in [[0, 1_200], [1_200, 40], [160, 160], [8_000, 40], [1_180, 1_181]] {
            let mut services = services([Service::BestEffort; 2]);
            let mut sent = [0; 2];
            while sent[0] + sent[1] < EVENLY {
                for (place, most, len) in [(0, 10, a), (1, 2, b)] {
                    while services.each[place].waiting() < most {
                        enqueue(&mut services.each[place], 0, len, Time::from_millis(100));
                    }
                }
                let (place, _, bytes) = send(&mut services).unwrap();
                sent[place] += bytes;
            }
            let apart = sent[0].abs_diff(sent[1]);
            assert!(apart < 20_000, "{a} and {b} bytes: {sent:?}");
        }
    }

    #[test]
    fn who_was_idle_has_no_more_than_its_share_later() {
        let mut services = services([Service::BestEffort; 2]);
        let turns = |services: &mut Services<2>, busy: &[usize], packets: usize| {
            let mut sent = [0u32; 2];
            for _ in 0..packets {
                for &place in busy {
                    if services.each[place].waiting() < 2 {
                        enqueue(&mut services.each[place], 0, 500, Time::from_millis(100));
                    }
                }
                sent[send(services).unwrap().0] += 1;
            }
            sent
        };
        assert_eq!(turns(&mut services, &[0], 1_000), [1_000, 0]);
        let [first, second] = turns(&mut services, &[0, 1], 100);
        assert!(first.abs_diff(second) <= 6, "{first} and {second}");
    }

    #[test]
    fn urgent_ones_go_first_and_by_deadline() {
        let mut services = services([Service::BestEffort, Service::RealTime, Service::RealTime]);
        for (place, port, ms) in [(0, 1, 1), (1, 2, 90), (2, 3, 50), (1, 4, 20), (2, 5, 100)] {
            enqueue(&mut services.each[place], port, 10, Time::from_millis(ms));
        }
        assert!(!services.one_urgent_waits() && services.any_waits());
        let order: Vec<_> = std::iter::from_fn(|| send(&mut services)).collect();
        let bytes = OVERHEAD + DATA_HEADER + 10;
        let want =
            [(1, 4), (2, 3), (1, 2), (2, 5), (0, 1)].map(|(place, port)| (place, port, bytes));
        assert_eq!(order, want);
        assert!(!services.any_waits());
    }

    #[test]
    fn what_repeats_nothing_counts_who_asks() {
        let frame = [0x22, Service::BestEffort as u8, 1, 0, 0, 0];
        let Some(Ok(Frame::Nack(nack))) = Frames::new(&frame).next() else { panic!("a request") };
        let mut services = services(Service::ALL);
        let (mut drops, mut allowance) = (Drops::default(), 9);
        services.get_mut(nack.service).on_request(&NOW, nack, &mut allowance, &mut drops);
        assert_eq!(
            (drops.get(DropReason::NotRetransmitted), drops.iter().map(|d| d.1).sum()),
            (1, 1u64)
        );
        assert!(!services.any_waits());
    }
}
