//! Exchanges won by contention: a frame, its acknowledgement or the lack of it, and the next frame
//! within a TXOP.

use super::cell::{Cell, FunctionId, Phase, count_attempt};
use super::hcca::exchange;
use super::phy::{ACK, ACK_TIME, ACK_TIMEOUT, OVERHEAD, SIFS, data_time};
use super::types::Lost;
use core::time::Duration;
use trunkline_base::Time;

impl Cell {
    /// Starts the transmissions of the functions whose backoff ended, and the access point's polls
    /// if they are due.
    pub(super) fn begin(&mut self, at: Time, coordinator: bool) {
        let collided = self.on_air.len() + usize::from(coordinator) > 1;
        self.counters.collisions += u64::from(collided);
        self.counters.contended += self.on_air.len() as u64;
        let longest = self.on_air.iter().map(|&id| self.first_takes(id)).max();
        let until = at + longest.unwrap_or_default();
        if coordinator {
            return self.begin_turns(at, until, collided);
        }
        // Unused if more than one sends.
        let limit = self.on_air.first().map_or(Duration::ZERO, |&id| self.access(id).txop_limit);
        self.txop_end = at + limit;
        (self.phase, self.until) = (Phase::Frame { broken: collided }, until);
    }

    fn first_takes(&self, id: FunctionId) -> Duration {
        let first = self.functions[id.index()].queue.front();
        first.map_or(Duration::ZERO, |waiting| data_time(u32::from(waiting.bytes)))
    }

    /// Handles the end of the frames on the air.
    pub(super) fn frame_ended(&mut self, at: Time, broken: bool) {
        let alone = self.on_air.first().copied().filter(|_| !broken);
        let received = alone.is_some_and(|id| self.receive(at, id));
        (self.phase, self.until) = match received {
            true => (Phase::Ack { broken: false }, at + SIFS + ACK_TIME),
            false => (Phase::Timeout, at + ACK_TIMEOUT),
        };
    }

    /// Whether the first packet of a function arrives; on its first arrival, the packet is
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

    /// Handles the end of an acknowledgement.
    pub(super) fn ack_ended(&mut self, at: Time, broken: bool) {
        // The sender is missing if it has vanished.
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

    /// Sends another packet of the same function if it fits into the TXOP; returns whether it did.
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

    /// Breaks the exchange with a vanishing station: a contention frame on its way to the station,
    /// or its acknowledgement, is lost.
    pub(super) fn break_exchange(&mut self, station: u16) {
        let Some(id) = self.on_air.first() else { return };
        let first = self.functions[id.index()].queue.front();
        let with_it = first.is_some_and(|first| first.station == station);
        if let Phase::Frame { broken } | Phase::Ack { broken } = &mut self.phase {
            *broken |= with_it;
        }
    }

    /// No acknowledgement has arrived in time.
    pub(super) fn timed_out(&mut self, at: Time) {
        self.all_failed(at);
        self.idle(at);
    }

    pub(super) fn all_failed(&mut self, at: Time) {
        while let Some(id) = self.on_air.pop() {
            self.failed(at, id);
        }
    }

    /// Handles a failed attempt: the function retries with a larger window, or gives up its first
    /// packet and starts over with the next.
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
