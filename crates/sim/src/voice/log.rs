//! A compact sink for long calls.

use super::{Arrival, Heard, Sinks};
use crate::app::{Application, Io};
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_overlay::session::wire::ToClient;
use trunkline_overlay::wire::NodeId;

/// A sink like [`VoiceSink`](super::VoiceSink) with four bytes per packet instead of 24: two
/// million packets take 8 MB. Delays are rounded up to microseconds, so that a packet later than a
/// deadline of whole microseconds remains later.
#[derive(Clone, Default, Debug)]
pub struct VoiceLog {
    flows: BTreeMap<(NodeId, u16), FlowLog>,
    /// Number of packets that no [`VoiceSource`](super::VoiceSource) sent.
    pub foreign: u64,
}

/// Record of one flow at a [`VoiceLog`].
#[derive(Clone, Default, Debug)]
pub struct FlowLog {
    /// First arrival of each packet, by number: 0 if missing, else the delay in µs plus one, with
    /// [`RECOVERED`] as a flag.
    packets: Vec<u32>,
    duplicates: u64,
}

const RECOVERED: u32 = 1 << 31;

impl FlowLog {
    /// First arrival of packet `number`; delays above 35 minutes are recorded as 35 minutes.
    pub fn arrival(&self, number: u64) -> Option<Arrival> {
        let note = *self.packets.get(usize::try_from(number).ok()?)?;
        let micros = (note & !RECOVERED).checked_sub(1)?;
        let delay = Duration::from_micros(micros.into());
        Some(Arrival { delay, recovered: note & RECOVERED != 0 })
    }

    /// Number of duplicate packets in the flow.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    fn record(&mut self, number: u64, arrival: Arrival) {
        let at = number as usize;
        if at >= self.packets.len() {
            self.packets.resize(at + 1, 0);
        } else if self.packets[at] != 0 {
            self.duplicates += 1;
            return;
        }
        let micros = arrival.delay.as_nanos().div_ceil(1_000);
        let noted = u32::try_from(micros).unwrap_or(u32::MAX).min(RECOVERED - 2);
        self.packets[at] = (noted + 1) | if arrival.recovered { RECOVERED } else { 0 };
    }
}

impl VoiceLog {
    /// The flow from this node (0 on a plain path) and port, if any packet arrived.
    pub fn flow(&self, from: (NodeId, u16)) -> Option<&FlowLog> {
        self.flows.get(&from)
    }
}

impl Application for VoiceLog {
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        match super::heard(message, io.now()) {
            Heard::Packet { from, number, arrival } => {
                self.flows.entry(from).or_default().record(number, arrival);
            }
            Heard::Foreign => self.foreign += 1,
            Heard::Nothing => {}
        }
    }
}

impl Sinks for VoiceLog {
    fn arrivals(&self, from: (NodeId, u16)) -> impl Fn(u64) -> Option<Arrival> {
        let flow = self.flow(from);
        move |number| flow?.arrival(number)
    }

    fn duplicates(&self, from: (NodeId, u16)) -> u64 {
        self.flow(from).map_or(0, FlowLog::duplicates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_keeps_what_matters() {
        let mut flow = FlowLog::default();
        let cases = [(0, false), (1, true), (100_000_000, false), (100_000_001, true)];
        for ((nanos, recovered), number) in cases.into_iter().zip(0..) {
            flow.record(2 * number, Arrival { delay: Duration::from_nanos(nanos), recovered });
        }
        flow.record(0, Arrival { delay: Duration::from_secs(1), recovered: true });
        flow.record(100, Arrival { delay: Duration::MAX, recovered: true });
        let at = |number| flow.arrival(number).map(|a| (a.delay.as_micros(), a.recovered));
        assert_eq!([at(0), at(1), at(2)], [Some((0, false)), None, Some((1, true))]);
        assert_eq!([at(4), at(6)], [Some((100_000, false)), Some((100_001, true))]);
        assert_eq!(at(100), Some((u128::from(RECOVERED) - 2, true)));
        assert_eq!([at(99), at(101), at(u64::MAX)], [None; 3]);
        assert_eq!(flow.duplicates(), 1);
    }
}
