//! Streams that end: removed at the driver's request, like a DELTS of IEEE 802.11e-2005, or by the
//! access point because their station is silent.

use super::cell::{Cell, FunctionId, Phase};
use super::edca::AccessCategory;
use super::hcca::service_interval;
use super::types::{Direction, Lost};
use trunkline_base::Time;

/// Number of consecutive turns with nothing received from the station, neither an answer to a poll
/// nor an acknowledgement, after which its streams end: about a second if they are served every 20
/// ms. A stream to a station has turns only while there are packets.
///
/// The standard leaves the choice of stations to the hybrid coordinator, and lets it end a stream
/// after a time without packets (the inactivity interval of a TSPEC). Turns are counted here, since
/// a station without packets answers, too: only one that is out of reach doesn't. Where errors
/// break every other turn, 50 in a row are broken once in 10¹⁵ turns. Where they break nine of ten,
/// as with the longest frames and one wrong bit in 8,000, it is once in about 1,600 turns.
pub const SILENT_TURNS: u8 = 50;

impl Cell {
    /// Ends a stream at `now`, or at the end of the turns under way. Its packets contend from then
    /// on, including those waiting, which are lost if the queue has no room for them. Returns
    /// whether there is such a stream.
    pub fn remove_stream(&mut self, now: Time, station: u16, priority: u8) -> bool {
        let now = self.run(now);
        let id = (station, priority);
        if !self.polling.streams.iter().any(|s| (s.station, s.priority) == id) {
            return false;
        }
        if !self.polling.ending.contains(&id) {
            self.polling.ending.push(id);
        }
        if !matches!(self.phase, Phase::Turn) {
            self.end_streams(now);
            self.wake = self.next_event();
        }
        true
    }

    /// Ends the streams that are due to end; no turn may be under way.
    pub(super) fn end_streams(&mut self, at: Time) {
        let (links, polling) = (&self.links, &mut self.polling);
        let silent = |station: u16| links[usize::from(station)].silent_turns >= SILENT_TURNS;
        let before = polling.ending.len();
        let silent = polling.streams.iter().filter(|s| silent(s.station));
        polling.ending.extend(silent.map(|s| (s.station, s.priority)));
        self.counters.silenced += (polling.ending.len() - before) as u64;
        if polling.ending.is_empty() {
            return;
        }
        while let Some((station, priority)) = self.polling.ending.pop() {
            self.polling.streams.retain(|s| (s.station, s.priority) != (station, priority));
            self.links[usize::from(station)].silent_turns = 0;
            for way in [Direction::Down, Direction::Up] {
                self.contend_instead(at, station, priority, way);
            }
        }
        let interval = service_interval(&self.polling.streams);
        self.polling.schedule(at, interval.unwrap_or_default());
    }

    /// Moves the packets of a priority from the polled queue to contention.
    fn contend_instead(&mut self, at: Time, station: u16, priority: u8, way: Direction) {
        let link = &mut self.links[usize::from(station)];
        link.streams[way as usize] &= !(1 << priority);
        let node = if way == Direction::Down { 0 } else { station + 1 };
        let Some(category) = AccessCategory::of_priority(priority) else { return };
        let id = FunctionId::new(node, category);
        // One pass over the queue: packets of other streams keep their order.
        for _ in 0..link.queues[way as usize].len() {
            let queue = &mut self.links[usize::from(station)].queues[way as usize];
            let Some(waiting) = queue.pop_front() else { break };
            if waiting.priority != priority {
                queue.push_back(waiting);
                continue;
            }
            self.polling.down_waiting -= usize::from(way == Direction::Down);
            let queue = &mut self.functions[id.index()].queue;
            if queue.len() >= self.config.queue {
                self.lose(at, &waiting, Lost::NoRoom);
                continue;
            }
            let first = queue.is_empty();
            queue.push_back(waiting);
            if first {
                self.contends(at, id);
            }
        }
    }
}
