//! The cell: its queues, the state of the medium, and the next event.

use super::edca::{Access, AccessCategory, PRIORITIES};
use super::grid::Grid;
use super::hcca::{NotAdmitted, Stream, StreamDirection, admit, service_interval};
use super::phy::{PIFS, intact};
use super::polling::Polling;
use super::types::{
    Config, Counters, Direction, InvalidCell, Lost, MAX_UNREAD, Msdu, MsduOutcome, Refusal,
    valid_rate,
};
use rand::Rng as _;
use std::collections::VecDeque;
use trunkline_base::{Rng, Time, rng};

/// An access point and its stations. The module's documentation has an example.
pub struct Cell {
    pub(super) config: Config,
    rng: Rng,
    /// Slot grids by category: the access point's four, then the stations'.
    grids: [Grid; 8],
    /// Four functions for the access point, then four for each station.
    pub(super) functions: Vec<AccessFunction>,
    /// The functions that have a packet.
    backlogged: Vec<FunctionId>,
    pub(super) links: Vec<Link>,
    pub(super) polling: Polling,
    pub(super) phase: Phase,
    /// End of the phase; meaningless while idle.
    pub(super) until: Time,
    idle_since: Time,
    busy_since: Time,
    /// The functions that transmit now, by contention: more than one in a collision.
    pub(super) on_air: Vec<FunctionId>,
    /// Time until which the transmitting function may continue.
    pub(super) txop_end: Time,
    /// The functions whose backoff ends now; kept to reuse the memory.
    due: Vec<FunctionId>,
    outcomes: VecDeque<MsduOutcome>,
    pub(super) counters: Counters,
    /// Time of the last event, in the cell or to it.
    now: Time,
    /// Time of the next event.
    pub(super) wake: Time,
}

/// An enhanced distributed channel access function: a contending queue.
pub(super) struct AccessFunction {
    pub queue: VecDeque<Waiting>,
    /// Boundary of its grid at which the backoff ends; a past one if it has ended.
    due: u64,
    window: u16,
}

/// Index of an access function: four times the node, plus the category. Node 0 is the access point;
/// a station's node is its number plus one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FunctionId(u16);

impl FunctionId {
    pub fn new(node: u16, category: AccessCategory) -> FunctionId {
        FunctionId(4 * node + category as u16)
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub fn node(self) -> u16 {
        self.0 / 4
    }

    pub fn category(self) -> usize {
        usize::from(self.0 % 4)
    }

    fn grid(self) -> usize {
        self.category() + if self.node() == 0 { 0 } else { 4 }
    }
}

/// A packet in a queue.
pub(super) struct Waiting {
    pub handle: u64,
    pub station: u16,
    pub bytes: u16,
    pub priority: u8,
    pub attempts: u8,
    /// Whether the packet has arrived although its sender has no acknowledgement.
    pub received: bool,
}

/// The link between the access point and a station.
pub(super) struct Link {
    pub present: bool,
    pub bit_error_rate: f64,
    /// Packets that wait for a poll, by [`Direction`].
    pub queues: [VecDeque<Waiting>; 2],
    /// Bit mask of the user priorities with a stream, by [`Direction`].
    pub streams: [u8; 2],
    /// Consecutive turns without a frame received from the station: neither an answer to a poll nor
    /// an acknowledgement.
    pub silent_turns: u8,
    /// Maximum packet size of each priority's stream, in bytes.
    longest: [u32; PRIORITIES as usize],
}

/// State of the medium.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Idle,
    /// One or more frames are on the air. If `broken`, none will be received: they collide, or the
    /// receiver has been away.
    Frame {
        broken: bool,
    },
    /// A received frame is being acknowledged. If `broken`, the acknowledgement is lost: the
    /// station has been away.
    Ack {
        broken: bool,
    },
    /// A frame was lost, and its sender waits for the acknowledgement.
    Timeout,
    /// A frame of a turn of [`Polling`] is on the air, or follows after an interframe space.
    Turn,
}

impl Cell {
    /// Creates an idle cell. All its randomness follows from `seed` and `stream`.
    ///
    /// # Errors
    ///
    /// Returns the first setting in `config` that is out of range.
    pub fn new(config: Config, seed: u64, stream: u64) -> Result<Cell, InvalidCell> {
        config.validate()?;
        let tables = [&config.access_point, &config.station];
        let grid = |k: usize| Grid::new(tables[k / 4][k % 4].aifs());
        let count = 4 * (usize::from(config.stations) + 1);
        let functions = (0..count).map(|k| AccessFunction {
            queue: VecDeque::new(),
            due: 0,
            window: tables[usize::from(k >= 4)][k % 4].cw_min,
        });
        let links = (0..config.stations).map(|_| Link {
            present: true,
            bit_error_rate: config.bit_error_rate,
            queues: Default::default(),
            streams: [0; 2],
            silent_turns: 0,
            longest: [0; PRIORITIES as usize],
        });
        Ok(Cell {
            rng: rng(seed, stream),
            grids: core::array::from_fn(grid),
            functions: functions.collect(),
            backlogged: Vec::with_capacity(count),
            links: links.collect(),
            polling: Polling::default(),
            phase: Phase::Idle,
            until: Time::NEVER,
            idle_since: Time::ZERO,
            busy_since: Time::ZERO,
            on_air: Vec::with_capacity(count),
            txop_end: Time::ZERO,
            due: Vec::with_capacity(count),
            outcomes: VecDeque::new(),
            counters: Counters::default(),
            now: Time::ZERO,
            wake: Time::NEVER,
            config,
        })
    }

    /// Accepts a packet at `now`. Events before `now` happen first, those at `now` afterwards. Here
    /// and in the other methods, a `now` before the latest event, in the cell or to it, counts as
    /// the time of that event.
    ///
    /// # Errors
    ///
    /// Returns the reason for rejecting the packet; it then has no outcome.
    pub fn enqueue(&mut self, now: Time, msdu: &Msdu) -> Result<(), Refusal> {
        msdu.validate(self.config.stations)?;
        let now = self.run(now);
        let Msdu { station, way, priority, bytes, handle } = *msdu;
        let link = &mut self.links[usize::from(station)];
        if way == Direction::Up && !link.present {
            return Err(Refusal::Gone);
        }
        if self.outcomes.len() >= MAX_UNREAD {
            return Err(Refusal::Unread);
        }
        let polled = link.streams[way as usize] & 1 << priority != 0;
        let longest = link.longest[usize::from(priority)];
        if polled && bytes > longest {
            return Err(Refusal::TooLong(bytes, longest));
        }
        let node = if way == Direction::Down { 0 } else { station + 1 };
        let category =
            AccessCategory::of_priority(priority).ok_or(Refusal::NoPriority(priority))?;
        let id = FunctionId::new(node, category);
        let queue = match polled {
            true => &mut link.queues[way as usize],
            false => &mut self.functions[id.index()].queue,
        };
        if queue.len() >= self.config.queue {
            return Err(Refusal::QueueFull);
        }
        let first = queue.is_empty();
        // Validated to be at most MAX_PACKET, so it fits.
        let bytes = bytes as u16;
        queue.push_back(Waiting { handle, station, bytes, priority, attempts: 0, received: false });
        if polled {
            if way == Direction::Down {
                self.polling.comes_down(now);
            }
        } else if first {
            self.contends(now, id);
        }
        self.wake = self.next_event();
        Ok(())
    }

    /// The time for the next [`advance`](Cell::advance); [`Time::NEVER`] if nothing happens before
    /// another packet.
    pub fn next_timeout(&self) -> Time {
        self.outcomes.front().map_or(self.wake, |outcome| outcome.at)
    }

    /// Returns the next outcome by `now`, in order of time; call it until it returns `None`. A
    /// stream from a station is polled in every service interval, until the end of time: never
    /// advance to [`Time::NEVER`] with one.
    pub fn advance(&mut self, now: Time) -> Option<MsduOutcome> {
        loop {
            if self.outcomes.front().is_some_and(|outcome| outcome.at <= now) {
                return self.outcomes.pop_front();
            }
            if self.wake > now || self.wake == Time::NEVER {
                return None;
            }
            self.step();
        }
    }

    /// Sends a stream's packets by polls from `now` on; those already waiting contend as before.
    ///
    /// # Errors
    ///
    /// Returns the reason for not admitting the stream, and then changes nothing.
    pub fn admit(&mut self, now: Time, stream: Stream) -> Result<(), NotAdmitted> {
        stream.validate()?;
        // A stream that is removed during a turn exists until the turn's end.
        let now = self.run(now);
        let Stream { station, priority, .. } = stream;
        let link = self.links.get(usize::from(station)).ok_or(NotAdmitted::NoStation(station))?;
        if link.streams.iter().any(|mask| mask & 1 << priority != 0) {
            return Err(NotAdmitted::Twice(station, priority));
        }
        self.polling.streams.push(stream);
        if let Err(why) = admit(&self.polling.streams) {
            self.polling.streams.pop();
            return Err(why);
        }
        let ways: &[Direction] = match stream.ways {
            StreamDirection::Down => &[Direction::Down],
            StreamDirection::Up => &[Direction::Up],
            StreamDirection::Both => &[Direction::Down, Direction::Up],
        };
        let link = &mut self.links[usize::from(station)];
        ways.iter().for_each(|&way| link.streams[way as usize] |= 1 << priority);
        link.longest[usize::from(priority)] = stream.maximum;
        let interval = service_interval(&self.polling.streams);
        self.polling.schedule(now, interval.unwrap_or_default());
        self.wake = self.next_event();
        Ok(())
    }

    /// Makes a station vanish or return at `now`. The packets that it has to send are lost; packets
    /// sent to it run into the retry limit. A frame on the air at that time, or due after an
    /// interframe space, does not arrive, even if the station returns before its end.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidCell::NoStation`].
    pub fn set_present(
        &mut self,
        now: Time,
        station: u16,
        present: bool,
    ) -> Result<(), InvalidCell> {
        let now = self.run(now);
        let link = self.links.get_mut(usize::from(station));
        link.ok_or(InvalidCell::NoStation(station))?.present = present;
        if present {
            return Ok(());
        }
        let node = station + 1;
        for id in AccessCategory::ALL.map(|ac| FunctionId::new(node, ac)) {
            while let Some(waiting) = self.functions[id.index()].queue.pop_front() {
                self.lose(now, &waiting, Lost::Gone);
            }
            self.functions[id.index()].window = self.access(id).cw_min;
        }
        while let Some(waiting) = self.links[usize::from(station)].queues[1].pop_front() {
            self.lose(now, &waiting, Lost::Gone);
        }
        self.backlogged.retain(|id| id.node() != node);
        self.on_air.retain(|id| id.node() != node);
        self.break_exchange(station);
        self.polling.vanished(station);
        self.wake = self.next_event();
        Ok(())
    }

    /// Sets the bit error probability between the access point and a station, for frames that end
    /// after `now`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidCell::BitErrorRate`] or [`InvalidCell::NoStation`], and then changes
    /// nothing.
    pub fn set_bit_error_rate(
        &mut self,
        now: Time,
        station: u16,
        rate: f64,
    ) -> Result<(), InvalidCell> {
        valid_rate(rate)?;
        self.run(now);
        let link = self.links.get_mut(usize::from(station));
        link.ok_or(InvalidCell::NoStation(station))?.bit_error_rate = rate;
        Ok(())
    }

    /// Number of packets without an outcome; visits each queue.
    pub fn queued(&self) -> usize {
        let contending = self.functions.iter().map(|f| &f.queue);
        let polled = self.links.iter().flat_map(|link| &link.queues);
        let waiting = contending.chain(polled).flatten();
        waiting.filter(|w| !w.received).count()
    }

    /// Totals since the cell was created.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Processes all events before `now`. A packet that arrives at `now` finds a phase that ends at
    /// `now` still in progress, and a backoff that ends at `now` not yet transmitting. Returns the
    /// current time, which never goes back.
    pub(super) fn run(&mut self, now: Time) -> Time {
        while self.wake < now {
            self.step();
        }
        self.now = self.now.max(now);
        self.now
    }

    fn step(&mut self) {
        let at = self.wake;
        debug_assert!(at >= self.now, "the past doesn't change");
        self.now = at;
        match self.phase {
            Phase::Idle => self.contend(at),
            Phase::Frame { broken } => self.frame_ended(at, broken),
            Phase::Ack { broken } => self.ack_ended(at, broken),
            Phase::Timeout => self.timed_out(at),
            Phase::Turn => self.turn_frame_ended(at),
        }
        self.wake = self.next_event();
    }

    pub(super) fn next_event(&self) -> Time {
        if !matches!(self.phase, Phase::Idle) {
            return self.until;
        }
        let contention = self.backlogged.iter().map(|&id| self.backoff_ends(id)).min();
        contention.unwrap_or(Time::NEVER).min(self.coordinator_begins())
    }

    /// The time at which the access point takes the medium to poll, if it stays idle until then.
    fn coordinator_begins(&self) -> Time {
        self.polling.due().max(self.idle_since + PIFS)
    }

    fn backoff_ends(&self, id: FunctionId) -> Time {
        self.grids[id.grid()].at(self.functions[id.index()].due)
    }

    pub(super) fn access(&self, id: FunctionId) -> Access {
        let table = if id.node() == 0 { &self.config.access_point } else { &self.config.station };
        table[id.category()]
    }

    /// Starts contention of a function that got its first packet at `now`. On an idle medium with
    /// no backoff left, it sends at the next boundary; on a busy one, after a backoff.
    pub(super) fn contends(&mut self, now: Time, id: FunctionId) {
        self.backlogged.push(id);
        let grid = &self.grids[id.grid()];
        let due = self.functions[id.index()].due;
        if matches!(self.phase, Phase::Idle) {
            self.functions[id.index()].due = due.max(grid.from(now));
        } else if due <= grid.passed() {
            self.back_off(id);
        }
    }

    /// Draws a backoff from the function's contention window.
    pub(super) fn back_off(&mut self, id: FunctionId) {
        let function = &mut self.functions[id.index()];
        // The window is one less than a power of two.
        let slots = self.rng.next_u32() as u16 & function.window;
        function.due = self.grids[id.grid()].passed() + u64::from(slots);
    }

    /// Handles the end of backoffs, or a due poll of the access point.
    fn contend(&mut self, at: Time) {
        let coordinator = self.coordinator_begins() == at;
        let mut due = core::mem::take(&mut self.due);
        due.clear();
        due.extend(self.backlogged.iter().filter(|&&id| self.backoff_ends(id) == at));
        self.grids.iter_mut().for_each(|grid| grid.busy(at));
        self.busy_since = at;
        self.on_air.clear();
        // The coordinator is the access point itself, so its functions find the medium taken.
        for &id in due.iter().filter(|id| !(coordinator && id.node() == 0)) {
            let beats =
                |other: &FunctionId| other.node() == id.node() && other.category() > id.category();
            if due.iter().any(beats) {
                self.counters.internal_collisions += 1;
                self.failed(at, id);
            } else {
                self.on_air.push(id);
            }
        }
        self.due = due;
        self.begin(at, coordinator);
    }

    /// Makes the medium idle from `at` on.
    pub(super) fn idle(&mut self, at: Time) {
        self.phase = Phase::Idle;
        self.idle_since = at;
        self.counters.busy += at.since(self.busy_since);
        self.on_air.clear();
        self.grids.iter_mut().for_each(|grid| grid.idle(at));
    }

    /// Removes a function without packets from contention.
    pub(super) fn leave_if_empty(&mut self, id: FunctionId) {
        if self.functions[id.index()].queue.is_empty() {
            self.backlogged.retain(|&other| other != id);
        }
    }

    pub(super) fn reset_window(&mut self, id: FunctionId) {
        self.functions[id.index()].window = self.access(id).cw_min;
    }

    pub(super) fn double_window(&mut self, id: FunctionId) {
        let largest = self.access(id).cw_max;
        let window = &mut self.functions[id.index()].window;
        // At most 2^15 - 1 before, so the result fits.
        *window = (2 * *window + 1).min(largest);
    }

    /// Whether a frame of `bytes` bytes between the access point and a station arrives, if no other
    /// node sends.
    pub(super) fn arrives(&mut self, station: u16, bytes: u32) -> bool {
        let link = &self.links[usize::from(station)];
        if !link.present {
            return false;
        }
        if link.bit_error_rate == 0.0 {
            return true;
        }
        let draw = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let intact = draw < intact(link.bit_error_rate, bytes);
        self.counters.damaged += u64::from(!intact);
        intact
    }

    pub(super) fn deliver(&mut self, at: Time, handle: u64) {
        self.outcomes.push_back(MsduOutcome { at, handle, result: Ok(()) });
    }

    /// Gives up a packet. If it has arrived nevertheless, that was its outcome.
    pub(super) fn lose(&mut self, at: Time, waiting: &Waiting, why: Lost) {
        if !waiting.received {
            let result = Err(why);
            self.outcomes.push_back(MsduOutcome { at, handle: waiting.handle, result });
        }
    }
}

/// Counts a failed attempt of the first packet of a queue, and removes the packet if that was its
/// last.
pub(super) fn count_attempt(queue: &mut VecDeque<Waiting>, limit: u8) -> Option<Waiting> {
    let first = queue.front_mut()?;
    first.attempts += 1;
    if first.attempts >= limit { queue.pop_front() } else { None }
}
