//! The order in which a link sends: control, then real-time originals and
//! repeats by deadline, then best effort. A file transfer never goes before
//! voice.

use super::{IP_UDP_HEADERS, Link, TxArena};
use crate::wire::{ENVELOPE_OVERHEAD, HELLO_LEN, MAX_NACK_RANGES, NACK_RANGE_LEN, Nack, Seal};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// How far a rate-limited link may run ahead of its rate, so that the timer's
/// grain does not cost throughput.
const PACING_BURST: Duration = Duration::from_millis(1);

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
        let Some(to) = self.address else { return Progress::Idle };
        while self.monitor.is_due(now) || self.rx.pending_asks() > 0 {
            if !self.send_control(now, to, arena) {
                return Progress::ArenaFull;
            }
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

    fn paced(&self, now: Time) -> bool {
        self.config.rate.is_some() && self.free_at > now + PACING_BURST
    }

    /// When the rate lets the next packet go, if one waits for that.
    pub(crate) fn pace_at(&self, now: Time) -> Option<Time> {
        let waits = !self.tx.is_empty() || !self.best_effort.is_empty();
        (waits && self.paced(now)).then(|| self.free_at - PACING_BURST)
    }

    /// When the next hello can go; `None` while there is nowhere to send it.
    pub(crate) fn hello_at(&self) -> Option<Time> {
        self.address.map(|_| self.monitor.due_at())
    }

    fn charge(&mut self, now: Time, bytes: usize) {
        if let Some(rate) = self.config.rate {
            self.free_at = self.free_at.max(now) + rate.time_for(bytes + IP_UDP_HEADERS);
        }
    }

    /// One envelope of hello and requests; false if the arena is full.
    fn send_control(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> bool {
        let hello = self.monitor.is_due(now);
        let asks = self.rx.pending_asks();
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
            written = written.and_then(|()| self.monitor.next(now).emit(&mut w));
        }
        debug_assert!(written.is_ok() && w.room() == 0, "the length was reckoned above");
        self.seal.seal(envelope);
        if n > 0 {
            self.stats.requests.count(len);
        } else {
            self.stats.hellos.count(len);
        }
        self.charge(now, len);
        true
    }

    /// One envelope with one packet; `None` if none waits, false if the arena
    /// is full.
    fn send_data(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> Option<bool> {
        let one_way = self.monitor.rtt().one_way();
        let drops = &mut self.stats.drops;
        let realtime = self.tx.head(now, one_way, drops);
        let (frame_len, dscp) = match realtime {
            Some(len) => (len, self.config.dscp),
            None => (self.best_effort.head(now, drops)?, 0),
        };
        let len = ENVELOPE_OVERHEAD + frame_len;
        let Some(envelope) = arena.envelope(to, dscp, len) else { return Some(false) };
        let frame = Seal::frames_mut(envelope);
        let traffic = if realtime.is_none() {
            self.best_effort.pop(now, frame);
            &mut self.stats.best_effort
        } else if self.tx.pop(now, frame) {
            &mut self.stats.repeats
        } else {
            &mut self.stats.realtime
        };
        traffic.count(len);
        self.seal.seal(envelope);
        self.charge(now, len);
        Some(true)
    }
}
