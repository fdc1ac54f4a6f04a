//! Minimum delay (Balan et al. 2007, section V): a minimum rate, and a state after each pause in
//! which the first report's receive rate is ignored, because it includes the pause.

use super::{Config, Least};
use core::time::Duration;
use trunkline_base::Time;

/// The parameters of minimum delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Minimum {
    /// Rate below which the allowed rate never falls, not even in slow start: eight packets per
    /// round trip in the paper. `None` for no such bound.
    pub least: Option<Least>,
    /// Whether the receive rate of the first report after a pause is discarded.
    pub discards: bool,
    /// Whether that report doubles the rate if it shows no new loss event, a future improvement
    /// proposed in the paper.
    pub doubles: bool,
}

impl Minimum {
    /// The parameters of the paper.
    pub const PAPER: Minimum =
        Minimum { least: Some(Least::Segments(8.0)), discards: true, doubles: false };
}

impl Config {
    /// TFRC-SP with faster restart and minimum delay, as proposed by Balan et al. 2007.
    pub const fn minimum_delay(segment: u16) -> Config {
        let mut config = Config::faster_restart(segment);
        config.minimum = Some(Minimum::PAPER);
        config
    }
}

/// The paper's state machine: *not idle*, *idle*, *post idle*.
///
/// The paper doesn't define idle. Here a sender is idle if it has sent nothing for a round trip
/// although it was allowed to: the receiver reports once per round trip, so a longer pause makes a
/// report's receive rate too low. Idle is therefore not a state, but detected when the next packet
/// is sent. A sender that is limited by its own rate for longer than that is not idle; otherwise
/// every report of a rate below one packet per round trip would be the first after a pause, and the
/// rate would never rise again.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PostIdle {
    /// The first packet after the pause, until a report acknowledges it.
    first: Option<u64>,
}

impl PostIdle {
    /// Records that packet `number` is sent, and the one before at `last`; returns whether it ends
    /// a pause.
    pub fn send(&mut self, number: u64, last: Time, now: Time, rtt: Duration) -> bool {
        let ends = now.since(last) > rtt;
        if ends {
            self.first = Some(number);
        }
        ends
    }

    /// Records that a report acknowledges `number`; returns whether it is the first after the
    /// pause. A report that acknowledges only packets from before the pause was measured then, and
    /// is as good as any.
    pub fn hear(&mut self, number: u64) -> bool {
        self.first.take_if(|first| number >= *first).is_some()
    }
}
