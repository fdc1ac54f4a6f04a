//! Turns: the access point polls one station after the other, and packets travel in both directions
//! with polls and acknowledgements.
//!
//! Frames with data are sent at 36 Mbit/s, with or without a poll or an acknowledgement; those
//! without at 24. In a turn, the receiver of data answers after a SIFS, with data if it has more
//! that fits. A frame that isn't received ends the turn: the access point continues after a PIFS,
//! and unacknowledged packets wait for the next service interval. A station that receives no poll
//! keeps its packets until its streams end ([`SILENT_TURNS`](super::SILENT_TURNS)).

use super::cell::{Cell, Phase, Waiting, count_attempt};
use super::hcca::{Stream, StreamDirection, exchange};
use super::phy::{ACK, EMPTY, OVERHEAD, PIFS, SIFS, Speed, air_time};
use super::types::{Direction, Lost};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;

/// The access point's polling list, and its progress through it.
#[derive(Default)]
pub struct Polling {
    pub streams: Vec<Stream>,
    /// Streams that end with the turns under way, by station and priority.
    pub ending: Vec<(u16, u8)>,
    /// Stations with streams, and the length of their turns, in the order of admission.
    stations: Vec<(u16, Duration)>,
    /// Number of packets waiting at the access point, for all stations.
    pub down_waiting: usize,
    /// Whether any station is polled for uplink packets.
    asks: bool,
    interval: Duration,
    /// Start of the next service interval.
    begins: Time,
    /// Number of `stations` that have had their turn.
    served: usize,
    turn: Turn,
}

/// A frame within a station's turn.
#[derive(Clone, Copy)]
struct Turn {
    station: u16,
    /// End of the turn.
    end: Time,
    /// Whether the station may send packets in the turn.
    asked: bool,
    /// Direction of the frame.
    way: Direction,
    what: What,
    /// Length of the frame in bytes with all headers.
    bytes: u32,
    /// Whether the frame acknowledges the first packet of the other direction.
    acks: bool,
    /// Whether the frame polls the station.
    polls: bool,
    /// The frame can't be received: others transmit too, or the station has been away since it
    /// began.
    broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The first packet of the frame's direction.
    Data,
    /// No data, but a poll, or the answer of a station that has none: QoS CF-Poll, QoS Null, QoS
    /// CF-Ack.
    Empty,
    /// An acknowledgement with neither data nor a poll.
    Ack,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            station: 0,
            end: Time::ZERO,
            asked: false,
            way: Direction::Down,
            what: What::Empty,
            bytes: 0,
            acks: false,
            polls: false,
            broken: false,
        }
    }
}

impl Polling {
    /// Gives each station the sum of its streams' TXOPs, once per `interval` from `now` on.
    pub fn schedule(&mut self, now: Time, interval: Duration) {
        self.stations.clear();
        for stream in &self.streams {
            let txop = stream.txop(interval);
            match self.stations.iter_mut().find(|(station, _)| *station == stream.station) {
                Some((_, sum)) => *sum += txop,
                None => self.stations.push((stream.station, txop)),
            }
        }
        self.asks = self.streams.iter().any(|s| s.ways != StreamDirection::Down);
        self.interval = interval;
        self.begins = self.begins.max(now);
    }

    /// Counts a packet for a station that arrived at `now`. If there was nothing to do before, this
    /// is the earliest time to begin.
    pub fn comes_down(&mut self, now: Time) {
        if self.due() == Time::NEVER {
            self.begins = self.begins.max(now);
        }
        self.down_waiting += 1;
    }

    /// Time from which the access point has something to do.
    pub fn due(&self) -> Time {
        if self.asks || self.down_waiting > 0 { self.begins } else { Time::NEVER }
    }

    /// Breaks the current frame if it is from or to this station.
    pub fn vanished(&mut self, station: u16) {
        self.turn.broken |= self.turn.station == station;
    }
}

impl Cell {
    /// Starts a service interval at `at`; if the first poll collides, `others` transmit until then.
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

    /// Starts the next station's turn `gap` after `at`, when the last frame ended; after the last
    /// turn the medium is idle.
    fn next_turn(&mut self, at: Time, gap: Duration) {
        while let Some(&(station, txop)) = self.polling.stations.get(self.polling.served) {
            self.polling.served += 1;
            let link = &mut self.links[usize::from(station)];
            let asked = link.streams[Direction::Up as usize] != 0;
            let data = !link.queues[Direction::Down as usize].is_empty();
            if !(asked || data) {
                continue;
            }
            let what = if data { What::Data } else { What::Empty };
            self.counters.polls += u64::from(asked);
            link.silent_turns = link.silent_turns.saturating_add(1);
            let end = at + gap + txop;
            let turn = Turn {
                station,
                end,
                asked,
                way: Direction::Down,
                what,
                polls: asked,
                ..Turn::default()
            };
            return self.send_in_turn(at + gap, turn);
        }
        self.end_streams(at);
        self.idle(at);
    }

    fn polled_queue(&mut self, station: u16, way: Direction) -> &mut VecDeque<Waiting> {
        &mut self.links[usize::from(station)].queues[way as usize]
    }

    /// Starts a frame of a turn at `at`.
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

    /// Handles the end of a frame of a turn. Its receiver answers after a SIFS: with data if there
    /// is any that fits into the turn, which then also acknowledges.
    pub(super) fn turn_frame_ended(&mut self, at: Time) {
        self.all_failed(at);
        let turn = self.polling.turn;
        let Turn { station, way, .. } = turn;
        let back = if way == Direction::Down { Direction::Up } else { Direction::Down };
        if turn.broken || !self.arrives(station, turn.bytes) {
            self.counters.broken_turns += 1;
            let unheard = [(turn.what == What::Data, way), (turn.acks, back)];
            for (_, way) in unheard.into_iter().filter(|&(is, _)| is) {
                self.turn_failed(at, station, way);
            }
            return self.next_turn(at, PIFS);
        }
        if way == Direction::Up {
            self.links[usize::from(station)].silent_turns = 0;
        }
        if turn.acks {
            self.polled_queue(station, back).pop_front();
            self.polling.down_waiting -= usize::from(back == Direction::Down);
        }
        let data = turn.what == What::Data;
        if data {
            self.receive_in_turn(at, station, way);
        }
        let may = back == Direction::Down || turn.asked;
        let next = self.polled_queue(station, back).front().filter(|_| may);
        let more = next.is_some_and(|next| at + exchange(u32::from(next.bytes)) <= turn.end);
        let what = match (more, turn.polls, data) {
            (true, ..) => What::Data,
            (false, true, _) => What::Empty,
            (false, false, true) => What::Ack,
            // There is nothing to answer. The access point continues a SIFS after the station's
            // frame, and a PIFS after its own, as by then the station could have begun.
            (false, false, false) => {
                return self.next_turn(at, if way == Direction::Up { SIFS } else { PIFS });
            }
        };
        let answer = Turn { way: back, what, acks: data, polls: false, ..turn };
        self.send_in_turn(at + SIFS, answer);
    }

    fn receive_in_turn(&mut self, at: Time, station: u16, way: Direction) {
        let first = self.polled_queue(station, way).front_mut();
        if let Some(first) = first.filter(|first| !first.received) {
            first.received = true;
            let handle = first.handle;
            self.deliver(at, handle);
        }
    }

    /// Handles a missing acknowledgement of the first packet in a direction.
    fn turn_failed(&mut self, at: Time, station: u16, way: Direction) {
        let limit = self.config.attempts;
        if let Some(given_up) = count_attempt(self.polled_queue(station, way), limit) {
            self.polling.down_waiting -= usize::from(way == Direction::Down);
            self.lose(at, &given_up, Lost::RetryLimit);
        }
    }
}
