//! The order in which a link sends: control, then real-time originals and
//! repeats by deadline, then best effort. A file transfer never goes before
//! voice.

use super::{IP_UDP_HEADERS, Link, SMALLEST_HEADERS, TxArena};
use crate::wire::{ENVELOPE_OVERHEAD, HELLO_LEN, MAX_NACK_RANGES, NACK_RANGE_LEN, Nack, Seal};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// How far a rate-limited link may run ahead of its rate, so that the timer's
/// grain does not cost throughput.
pub(super) const PACING_BURST: Duration = Duration::from_millis(1);

/// Bytes of best effort in one arena: what stands before voice that comes in
/// the next moment, once it is out of this node's hands.
const QUANTUM: u64 = 16 << 10;

/// Why a link stopped sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Everything that could go is in the arena.
    Idle,
    /// The arena is full; more waits.
    ArenaFull,
    /// Best effort has more, but had its share of this arena.
    Quantum,
    /// The configured rate is used up until the link's pacing time.
    Paced,
}

impl Link {
    /// Seals into `arena` what is to be sent at `now`.
    pub(crate) fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Progress {
        if self.seal.ready() && !self.send_path(now, arena) {
            return Progress::ArenaFull;
        }
        let Some(to) = self.address.filter(|_| self.seal.ready()) else { return Progress::Idle };
        if self.goodbye_is_due(now) && !self.send_goodbye(now, to, arena) {
            return Progress::ArenaFull;
        }
        while self.hello_is_due(now) || self.asks_to_send() > 0 {
            if !self.send_control(now, to, arena) {
                return Progress::ArenaFull;
            }
        }
        while let Some(frame) = self.routing.front() {
            let len = ENVELOPE_OVERHEAD + frame.len();
            let Some(envelope) = arena.envelope(to, self.config.dscp, len) else {
                return Progress::ArenaFull;
            };
            Seal::frames_mut(envelope).copy_from_slice(frame);
            self.seal.seal(envelope);
            self.routing.pop_front();
            self.stats.routing.count(len);
            self.sent(now, len, arena);
        }
        let enough = self.stats.best_effort.bytes + QUANTUM;
        loop {
            if self.paced(now) {
                return Progress::Paced;
            }
            if self.stats.best_effort.bytes >= enough {
                return Progress::Quantum;
            }
            match self.send_data(now, to, arena) {
                Some(true) => {}
                Some(false) => return Progress::ArenaFull,
                None => return Progress::Idle,
            }
        }
    }

    /// How many ranges go into the next request, beside a hello perhaps.
    fn asks_to_send(&self) -> usize {
        const REST: usize = SMALLEST_HEADERS + ENVELOPE_OVERHEAD + HELLO_LEN + 2;
        let room = self.ask_credit.saturating_sub(REST);
        self.rx.pending_asks().min(room / NACK_RANGE_LEN)
    }

    fn paced(&self, now: Time) -> bool {
        self.config.rate.is_some() && !self.pacer.is_ready(now)
    }

    /// When the rate lets the next packet go, if one waits for that.
    pub(crate) fn pace_at(&self, now: Time) -> Option<Time> {
        let waits = !self.tx.is_empty() || !self.best_effort.is_empty();
        (waits && self.paced(now)).then(|| self.pacer.next())
    }

    /// When the next hello can go; `None` while there is nowhere to send it.
    pub(crate) fn hello_at(&self) -> Option<Time> {
        let greets = self.seal.ready() && !self.is_leaving();
        let somewhere = self.address.is_some() || self.is_asking();
        (somewhere && greets).then(|| self.monitor.due_at())
    }

    /// Who has said goodbye says hello no more.
    fn hello_is_due(&self, now: Time) -> bool {
        self.monitor.is_due(now) && !self.is_leaving()
    }

    /// Whether the next hello goes in the envelope of a real-time frame of this
    /// length: beside others of its size, a longer one would break their run.
    fn hello_rides(&self, now: Time, frame_len: usize) -> bool {
        let len = IP_UDP_HEADERS + ENVELOPE_OVERHEAD + frame_len + HELLO_LEN;
        self.monitor.rides(now) && self.tx.has_one() && !self.is_leaving() && len <= self.config.mtu
    }

    pub(super) fn charge(&mut self, now: Time, to: SocketAddr, bytes: usize) {
        if let Some(rate) = self.config.rate {
            // An IPv4 address as a socket of IPv6 writes it is still one.
            let headers =
                if to.ip().to_canonical().is_ipv4() { SMALLEST_HEADERS } else { IP_UDP_HEADERS };
            self.pacer.spend_time(now, rate.time_for(bytes + headers));
        }
    }

    /// One envelope of hello and requests; false if the arena is full.
    fn send_control(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> bool {
        let asked = self.asks_to_send() > 0 && self.monitor.rides(now) && !self.is_leaving();
        let hello = self.hello_is_due(now) || asked;
        let carried = self.carried();
        let asks = self.asks_to_send();
        let nack_len = if asks > 0 { 2 + asks * NACK_RANGE_LEN } else { 0 };
        let len = ENVELOPE_OVERHEAD + nack_len + if hello { HELLO_LEN } else { 0 };
        let Some(envelope) = arena.envelope(to, self.config.dscp, len) else { return false };

        let mut w = Writer::new(Seal::frames_mut(envelope));
        let (ranges, n) = self.rx.take_asks(asks.min(MAX_NACK_RANGES));
        let mut written = Ok(());
        if n > 0 {
            written = Nack::emit(&ranges[..n], &mut w);
        }
        if hello {
            written = written.and_then(|()| self.monitor.next_hello(now, &carried).emit(&mut w));
        }
        debug_assert!(written.is_ok() && w.room() == 0, "the length was reckoned above");
        self.seal.seal(envelope);
        if n > 0 {
            self.stats.requests.count(len);
            self.ask_credit = self.ask_credit.saturating_sub(len + SMALLEST_HEADERS);
        } else {
            self.stats.hellos.count(len);
        }
        self.sent(now, len, arena);
        true
    }

    /// One envelope with one packet; `None` if none waits, false if the arena
    /// is full.
    fn send_data(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> Option<bool> {
        let one_way = self.monitor.rtt().one_way();
        let count = self.seal.count();
        let drops = &mut self.stats.drops;
        let realtime = self.tx.head(now, count, one_way, drops);
        let (frame_len, dscp) = match realtime {
            Some(len) => (len, self.config.dscp),
            None => (self.best_effort.head(now, drops)?, 0),
        };
        let rides = realtime.is_some() && self.hello_rides(now, frame_len);
        let rider = if rides { HELLO_LEN } else { 0 };
        let len = ENVELOPE_OVERHEAD + frame_len + rider;
        let Some(envelope) = arena.envelope(to, dscp, len) else { return Some(false) };
        let (frame, hello) = Seal::frames_mut(envelope).split_at_mut(frame_len);
        if rides {
            let carried = self.carried();
            let written = self.monitor.next_hello(now, &carried).emit(&mut Writer::new(hello));
            debug_assert!(written.is_ok(), "the length was reckoned above");
            self.stats.hellos.bytes += rider as u64;
        }
        let traffic = if realtime.is_none() {
            self.best_effort.pop(now, frame);
            &mut self.stats.best_effort
        } else if self.tx.pop(now, count, frame) {
            &mut self.stats.repeats
        } else {
            &mut self.stats.realtime
        };
        traffic.count(len - rider);
        self.seal.seal(envelope);
        self.sent(now, len, arena);
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{ASK_FACTOR, Config};
    use crate::wire::{
        DATA_OVERHEAD, DataHeader, Frame, Frames, Incarnation, NodeId, Null, ReceiverIndex, Service,
    };

    /// Small datagrams, each after a gap.
    #[test]
    fn requests_are_in_proportion_to_what_came() {
        let (own, peer) = (NodeId(1), NodeId(2));
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        let config = Config { address: Some(from), ..Config::new(peer) };
        let (seal, _) = Link::unsealed(own, Incarnation(1), &config);
        let mut link = Link::new(seal, config, Time::NEVER);
        let mut seal = Seal::Null(Null::new(ReceiverIndex::derived(peer, own, ""), Incarnation(1)));
        let mut arena = TxArena::new(1 << 16, 256);
        let mut send = |link: &mut Link, now| {
            arena.clear();
            assert_eq!(link.transmit(now, &mut arena), Progress::Idle);
        };
        let mut came = 0;
        for k in 0..1_000u16 {
            let now = Time::from_millis(1_000 + u64::from(k));
            while link.ask_at() <= now {
                let at = link.ask_at();
                link.handle_timeout(at);
                send(&mut link, at);
            }
            let header = DataHeader {
                metric: crate::wire::Metric::default(),
                service: Service::RealTime,
                recovered: false,
                hop_limit: 1,
                link_seq: k.wrapping_mul(3),
                source: peer,
                destination: own,
                source_port: 0,
                destination_port: 0,
                flow_seq: 0,
                remaining_ms: 255,
            };
            let mut bytes = [0; DATA_OVERHEAD];
            header.emit(0, &mut Writer::new(Seal::frames_mut(&mut bytes))).unwrap();
            seal.seal(&mut bytes);
            link.open(now, from, &mut bytes).unwrap();
            let Some(Ok(Frame::Data(header, _))) = Frames::new(Seal::frames(&bytes)).next() else {
                panic!("what was written")
            };
            link.on_data(now, &header, 0, Duration::ZERO).unwrap();
            came += (bytes.len() + SMALLEST_HEADERS) as u64;
            send(&mut link, now);
        }
        let requests = link.stats().requests;
        let went = requests.bytes + requests.envelopes * SMALLEST_HEADERS as u64;
        assert!(went > came, "else nothing was limited: {went}");
        assert!(went <= ASK_FACTOR as u64 * came, "{went} bytes for {came}");
    }
}
