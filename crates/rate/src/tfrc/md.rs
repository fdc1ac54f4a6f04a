//! Minimum delay (Balan et al. 2007, section V): a least rate, and a state after
//! each pause in which the first report's receive rate is not believed, because it
//! includes the pause.

use super::{Config, Least};
use core::time::Duration;
use trunkline_base::Time;

/// The parameters of minimum delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Minimum {
    /// Below which the allowed rate never falls, in slow start either: eight packets
    /// per round trip in the paper. `None` without.
    pub least: Option<Least>,
    /// Whether the receive rate of the first report after a pause is discarded.
    pub discards: bool,
    /// Whether that report doubles the rate if it shows no new loss event, which
    /// the paper names as a future improvement.
    pub doubles: bool,
}

impl Minimum {
    /// As in the paper.
    pub const PAPER: Minimum =
        Minimum { least: Some(Least::Segments(8.0)), discards: true, doubles: false };
}

impl Config {
    /// TFRC-SP with faster restart and minimum delay, as Balan et al. 2007 propose
    /// it.
    pub const fn minimum_delay(segment: u16) -> Config {
        let mut config = Config::faster_restart(segment);
        config.minimum = Some(Minimum::PAPER);
        config
    }
}

/// The paper's state machine: *not idle*, *idle*, *post idle*.
///
/// It doesn't say what idle is. Here a sender is idle that has sent nothing for a
/// round trip although it was allowed to: the receiver reports once a round trip, so a
/// longer pause leaves a report with less than it should have. Idle is therefore no
/// state, but found when the next packet is sent. A sender that its own rate holds
/// back for longer than that is not idle; else every report of a rate below one packet
/// per round trip would be the first after a pause, and the rate would never rise
/// again.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PostIdle {
    /// The first packet after the pause, while no report has acknowledged it.
    first: Option<u64>,
}

impl PostIdle {
    /// Packet `number` is sent, the one before at `last`; whether that ends a pause.
    pub fn send(&mut self, number: u64, last: Time, now: Time, rtt: Duration) -> bool {
        let ends = now.since(last) > rtt;
        if ends {
            self.first = Some(number);
        }
        ends
    }

    /// A report acknowledges `number`; whether it is the first after the pause. One
    /// that acknowledges only packets from before the pause was measured then, and is
    /// as good as any.
    pub fn hear(&mut self, number: u64) -> bool {
        self.first.take_if(|first| number >= *first).is_some()
    }
}
