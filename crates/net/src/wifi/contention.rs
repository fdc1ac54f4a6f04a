//! Exchanges that somebody won by contention: a frame, its acknowledgement or the
//! lack of it, and the next within a TXOP.

use super::cell::{Cell, FunctionId, Phase, count_attempt};
use super::hcca::exchange;
use super::phy::{ACK, ACK_TIME, ACK_TIMEOUT, OVERHEAD, SIFS, data_time};
use super::types::Lost;
use core::time::Duration;
use trunkline_base::Time;

impl Cell {
    /// Those whose backoff has ended begin to send at `at`, and the access point to
    /// poll if it is due.
    pub(super) fn begin(&mut self, at: Time, coordinator: bool) {
        let collided = self.on_air.len() + usize::from(coordinator) > 1;
        self.counters.collisions += u64::from(collided);
        self.counters.contended += self.on_air.len() as u64;
        let longest = self.on_air.iter().map(|&id| self.first_takes(id)).max();
        let until = at + longest.unwrap_or_default();
        if coordinator {
            return self.begin_turns(at, until, collided);
        }
        // Of no meaning if more than one sends.
        let limit = self.on_air.first().map_or(Duration::ZERO, |&id| self.access(id).txop_limit);
        self.txop_end = at + limit;
        (self.phase, self.until) = (Phase::Frame { broken: collided }, until);
    }

    fn first_takes(&self, id: FunctionId) -> Duration {
        let first = self.functions[id.index()].queue.front();
        first.map_or(Duration::ZERO, |waiting| data_time(u32::from(waiting.bytes)))
    }

    /// The frames on the air have ended.
    pub(super) fn frame_ended(&mut self, at: Time, broken: bool) {
        let alone = self.on_air.first().copied().filter(|_| !broken);
        let received = alone.is_some_and(|id| self.receive(at, id));
        (self.phase, self.until) = match received {
            true => (Phase::Ack { broken: false }, at + SIFS + ACK_TIME),
            false => (Phase::Timeout, at + ACK_TIMEOUT),
        };
    }

    /// Whether the first packet of a function arrives; if for the first time, it is
    /// delivered.
    fn receive(&mut self, at: Time, id: FunctionId) -> bool {
        let Some(first) = self.functions[id.index()].queue.front() else { return false };
        let (station, bytes) = (first.station, OVERHEAD + u32::from(first.bytes));
        if !self.arrives(station, bytes) {
            return false;
        }
        let first = self.functions[id.index()].queue.front_mut();
        if let Some(first) = first.filter(|first| !first.received) {
            first.received = true;
            let handle = first.handle;
            self.deliver(at, handle);
        }
        true
    }

    /// An acknowledgement has ended.
    pub(super) fn ack_ended(&mut self, at: Time, broken: bool) {
        // There is no sender if it has vanished.
        if let Some(id) = self.on_air.first().copied() {
            let station = self.functions[id.index()].queue.front().map(|first| first.station);
            if station.is_some_and(|station| !broken && self.arrives(station, ACK)) {
                self.functions[id.index()].queue.pop_front();
                self.reset_window(id);
                if self.goes_on(at, id) {
                    return;
                }
                self.back_off(id);
                self.leave_if_empty(id);
            } else {
                self.failed(at, id);
            }
        }
        self.idle(at);
    }

    /// Whether another packet of the same function fits into its TXOP; then it is
    /// sent.
    fn goes_on(&mut self, at: Time, id: FunctionId) -> bool {
        let Some(next) = self.functions[id.index()].queue.front() else { return false };
        let bytes = u32::from(next.bytes);
        let fits = at + exchange(bytes) <= self.txop_end;
        if fits {
            self.counters.contended += 1;
            self.phase = Phase::Frame { broken: false };
            self.until = at + SIFS + data_time(bytes);
        }
        fits
    }

    /// A station vanishes: what was won by contention and is under way to it, or its
    /// acknowledgement, is in vain.
    pub(super) fn break_exchange(&mut self, station: u16) {
        let Some(id) = self.on_air.first() else { return };
        let first = self.functions[id.index()].queue.front();
        let with_it = first.is_some_and(|first| first.station == station);
        if let Phase::Frame { broken } | Phase::Ack { broken } = &mut self.phase {
            *broken |= with_it;
        }
    }

    /// Nobody has acknowledged what was sent.
    pub(super) fn timed_out(&mut self, at: Time) {
        self.all_failed(at);
        self.idle(at);
    }

    pub(super) fn all_failed(&mut self, at: Time) {
        while let Some(id) = self.on_air.pop() {
            self.failed(at, id);
        }
    }

    /// An attempt of a function has failed: it tries again with a larger window, or
    /// gives its first packet up and begins anew with the next.
    pub(super) fn failed(&mut self, at: Time, id: FunctionId) {
        let limit = self.config.attempts;
        match count_attempt(&mut self.functions[id.index()].queue, limit) {
            None => self.double_window(id),
            Some(given_up) => {
                self.lose(at, &given_up, Lost::RetryLimit);
                self.reset_window(id);
            }
        }
        self.back_off(id);
        self.leave_if_empty(id);
    }
}
