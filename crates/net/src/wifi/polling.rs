//! Turns: the access point polls one station after the other, and packets go both
//! ways with polls and acknowledgements.
//!
//! Frames with data are at 36 Mbit/s, with or without a poll or an acknowledgement;
//! those without at 24. In a turn the receiver of data answers after a SIFS, with
//! data if there is more that fits. A frame that isn't received ends the turn: the
//! access point goes on after a PIFS, and what was not acknowledged waits for the next
//! service interval. A station that hears no poll keeps what it has until its streams end
//! ([`SILENT_TURNS`](super::SILENT_TURNS)).

use super::cell::{Cell, Phase, Waiting, count_attempt};
use super::hcca::{Stream, Ways, exchange};
use super::phy::{ACK, EMPTY, OVERHEAD, PIFS, SIFS, Speed, air_time};
use super::types::{Lost, Way};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;

/// Whom the access point polls, and where it is in that.
#[derive(Default)]
pub struct Polling {
    pub streams: Vec<Stream>,
    /// Streams that end when the turns under way are over, by station and priority.
    pub ending: Vec<(u16, u8)>,
    /// The stations that have streams, and how long a turn of theirs is, in the order
    /// of admission.
    stations: Vec<(u16, Duration)>,
    /// Packets that wait at the access point, for all stations.
    pub down_waiting: usize,
    /// Whether any station is asked what it has.
    asks: bool,
    interval: Duration,
    /// When the next service interval begins.
    begins: Time,
    /// How many of `stations` have had their turn.
    served: usize,
    turn: Turn,
}

/// A frame within a station's turn.
#[derive(Clone, Copy)]
struct Turn {
    station: u16,
    /// When the turn is over.
    end: Time,
    /// Whether the station may send packets in it.
    asked: bool,
    /// Which way the frame goes.
    way: Way,
    what: What,
    /// Its length in bytes with all headers.
    bytes: u32,
    /// Whether it acknowledges the first packet of the other way.
    acks: bool,
    /// Whether it polls the station.
    polls: bool,
    /// It can't be received: others send, too, or the station is not the one that
    /// began.
    broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The first packet of its way.
    Data,
    /// No data, but a poll, or the answer of a station that has none: QoS CF-Poll,
    /// QoS Null, QoS CF-Ack.
    Empty,
    /// An acknowledgement that carries neither data nor a poll.
    Ack,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            station: 0,
            end: Time::ZERO,
            asked: false,
            way: Way::Down,
            what: What::Empty,
            bytes: 0,
            acks: false,
            polls: false,
            broken: false,
        }
    }
}

impl Polling {
    /// Gives each station the sum of its streams' TXOPs, once in `interval` from `now`
    /// on.
    pub fn schedule(&mut self, now: Time, interval: Duration) {
        self.stations.clear();
        for stream in &self.streams {
            let txop = stream.txop(interval);
            match self.stations.iter_mut().find(|(station, _)| *station == stream.station) {
                Some((_, sum)) => *sum += txop,
                None => self.stations.push((stream.station, txop)),
            }
        }
        self.asks = self.streams.iter().any(|s| s.ways != Ways::Down);
        self.interval = interval;
        self.begins = self.begins.max(now);
    }

    /// A packet for a station has come at `now`. If there was nothing to do before, that
    /// is the earliest time to begin.
    pub fn comes_down(&mut self, now: Time) {
        if self.due() == Time::NEVER {
            self.begins = self.begins.max(now);
        }
        self.down_waiting += 1;
    }

    /// From when on the access point has something to do.
    pub fn due(&self) -> Time {
        if self.asks || self.down_waiting > 0 { self.begins } else { Time::NEVER }
    }

    /// What this station had on the air will not be heard, nor hears it.
    pub fn vanished(&mut self, station: u16) {
        self.turn.broken |= self.turn.station == station;
    }
}

impl Cell {
    /// A service interval begins at `at`; `others` send until then as well, if the
    /// first poll collides.
    pub(super) fn begin_turns(&mut self, at: Time, others: Time, collided: bool) {
        let polling = &mut self.polling;
        let late = at.since(polling.begins).as_nanos();
        let intervals = late / polling.interval.as_nanos().max(1) + 1;
        let interval = polling.interval.as_nanos();
        polling.begins +=
            Duration::from_nanos(u64::try_from(intervals * interval).unwrap_or(u64::MAX));
        polling.served = 0;
        self.next_turn(at, Duration::ZERO);
        self.polling.turn.broken = collided;
        self.until = self.until.max(others);
    }

    /// The next station's turn begins `gap` after `at`, when the last frame ended; after
    /// the last one the medium is idle.
    fn next_turn(&mut self, at: Time, gap: Duration) {
        while let Some(&(station, txop)) = self.polling.stations.get(self.polling.served) {
            self.polling.served += 1;
            let link = &mut self.links[usize::from(station)];
            let asked = link.streams[Way::Up as usize] != 0;
            let data = !link.queues[Way::Down as usize].is_empty();
            if !(asked || data) {
                continue;
            }
            let what = if data { What::Data } else { What::Empty };
            self.counters.polls += u64::from(asked);
            link.silent_turns = link.silent_turns.saturating_add(1);
            let end = at + gap + txop;
            let turn =
                Turn { station, end, asked, way: Way::Down, what, polls: asked, ..Turn::default() };
            return self.send_in_turn(at + gap, turn);
        }
        self.end_streams(at);
        self.idle(at);
    }

    fn polled_queue(&mut self, station: u16, way: Way) -> &mut VecDeque<Waiting> {
        &mut self.links[usize::from(station)].queues[way as usize]
    }

    /// A frame of a turn begins at `at`.
    fn send_in_turn(&mut self, at: Time, mut turn: Turn) {
        let first = self.polled_queue(turn.station, turn.way).front();
        let packet = first.map_or(0, |waiting| u32::from(waiting.bytes));
        let speed;
        (turn.bytes, speed) = match turn.what {
            What::Data => (OVERHEAD + packet, Speed::Data),
            What::Empty => (EMPTY, Speed::Control),
            What::Ack => (ACK, Speed::Control),
        };
        if turn.what == What::Data {
            self.counters.polled += 1;
            self.counters.piggybacked += u64::from(turn.acks);
        }
        self.polling.turn = turn;
        (self.phase, self.until) = (Phase::Turn, at + air_time(turn.bytes, speed));
    }

    /// A frame of a turn has ended. Who received it answers after a SIFS: with data
    /// if there is any that fits into the turn, which then acknowledges, too.
    pub(super) fn turn_frame_ended(&mut self, at: Time) {
        self.all_failed(at);
        let turn = self.polling.turn;
        let Turn { station, way, .. } = turn;
        let back = if way == Way::Down { Way::Up } else { Way::Down };
        if turn.broken || !self.arrives(station, turn.bytes) {
            self.counters.broken_turns += 1;
            let unheard = [(turn.what == What::Data, way), (turn.acks, back)];
            for (_, way) in unheard.into_iter().filter(|&(is, _)| is) {
                self.turn_failed(at, station, way);
            }
            return self.next_turn(at, PIFS);
        }
        if way == Way::Up {
            self.links[usize::from(station)].silent_turns = 0;
        }
        if turn.acks {
            self.polled_queue(station, back).pop_front();
            self.polling.down_waiting -= usize::from(back == Way::Down);
        }
        let data = turn.what == What::Data;
        if data {
            self.receive_in_turn(at, station, way);
        }
        let may = back == Way::Down || turn.asked;
        let next = self.polled_queue(station, back).front().filter(|_| may);
        let more = next.is_some_and(|next| at + exchange(u32::from(next.bytes)) <= turn.end);
        let what = match (more, turn.polls, data) {
            (true, ..) => What::Data,
            (false, true, _) => What::Empty,
            (false, false, true) => What::Ack,
            // Nothing to say. The access point goes on a SIFS after another's frame, and
            // a PIFS after one of its own, as by then the station could have begun.
            (false, false, false) => {
                return self.next_turn(at, if way == Way::Up { SIFS } else { PIFS });
            }
        };
        let answer = Turn { way: back, what, acks: data, polls: false, ..turn };
        self.send_in_turn(at + SIFS, answer);
    }

    fn receive_in_turn(&mut self, at: Time, station: u16, way: Way) {
        let first = self.polled_queue(station, way).front_mut();
        if let Some(first) = first.filter(|first| !first.received) {
            first.received = true;
            let handle = first.handle;
            self.deliver(at, handle);
        }
    }

    /// The first packet of a way was not acknowledged.
    fn turn_failed(&mut self, at: Time, station: u16, way: Way) {
        let limit = self.config.attempts;
        if let Some(given_up) = count_attempt(self.polled_queue(station, way), limit) {
            self.polling.down_waiting -= usize::from(way == Way::Down);
            self.lose(at, &given_up, Lost::RetryLimit);
        }
    }
}
