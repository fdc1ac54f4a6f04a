//! Streams that end: removed at the request of the driver that had them admitted, as a DELTS of IEEE 802.11e-2005 does,
//! or by the access point, as their station is silent.

use super::cell::{Cell, FunctionId, Phase};
use super::edca::AccessCategory;
use super::hcca::service_interval;
use super::types::{Lost, Way};
use trunkline_base::Time;

/// After so many turns in a row in which nothing was received from the station, neither an answer
/// to a poll nor an acknowledgement, its streams end: about a second where they are served each
/// 20 ms. A stream to a station has turns only while there are packets.
///
/// The standard leaves to the hybrid coordinator whom it polls, and has a time without packets
/// after which it may end a stream (the inactivity interval of a TSPEC). Turns are counted here,
/// since a station without packets answers, too: only one that is out of reach doesn't. Where errors
/// break every other turn, 50 in a row are broken once in 10¹⁵ turns. Where they break nine of ten,
/// as with the longest frames and one wrong bit in 8,000, it is once in about 1,600 turns.
pub const SILENT_TURNS: u8 = 50;

impl Cell {
    /// Ends a stream at `now`, or when the turns that are under way then are over. Its packets
    /// contend from then on, those that wait among them, which are lost where the queue has no
    /// room for them. Whether there is such a stream.
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

    /// Ends what is to end: no turn is under way.
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
            for way in [Way::Down, Way::Up] {
                self.contend_instead(at, station, priority, way);
            }
        }
        let interval = service_interval(&self.polling.streams);
        self.polling.schedule(at, interval.unwrap_or_default());
    }

    /// Packets of a priority don't wait for turns any longer.
    fn contend_instead(&mut self, at: Time, station: u16, priority: u8, way: Way) {
        let link = &mut self.links[usize::from(station)];
        link.streams[way as usize] &= !(1 << priority);
        let node = if way == Way::Down { 0 } else { station + 1 };
        let Some(category) = AccessCategory::of_priority(priority) else { return };
        let id = FunctionId::new(node, category);
        // Once around: those of other streams keep their order.
        for _ in 0..link.queues[way as usize].len() {
            let queue = &mut self.links[usize::from(station)].queues[way as usize];
            let Some(waiting) = queue.pop_front() else { break };
            if waiting.priority != priority {
                queue.push_back(waiting);
                continue;
            }
            self.polling.down_waiting -= usize::from(way == Way::Down);
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
