//! Repeated warning of a node that has no keys.

use std::time::Duration;
use trunkline_base::Time;

pub const WARNING: &str = "this node is UNSEALED ([node] unsealed_for_measurements): nothing \
    between it and its neighbours is encrypted or authenticated; give it a `key`, unless it \
    measures";

/// Interval between two warnings in the log.
pub const AGAIN: Duration = Duration::from_secs(60);

/// Schedule of a warning that was first given at the start.
pub struct Reminder {
    every: Duration,
    due: Time,
}

impl Reminder {
    /// Starts a schedule: the warning was given at `now` and is due again after each `every`.
    pub fn new(now: Time, every: Duration) -> Reminder {
        Reminder { every, due: now + every }
    }

    /// Whether to give the warning at `now`. Call it often.
    pub fn is_due(&mut self, now: Time) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + self.every;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_comes_again_and_again() {
        let every = Duration::from_secs(3);
        let mut reminder = Reminder::new(Time::from_millis(500), every);
        // At the daemon's interval.
        let looks = (500..13_000).step_by(200);
        let warned: Vec<_> = looks.filter(|ms| reminder.is_due(Time::from_millis(*ms))).collect();
        assert_eq!(warned, [3_500, 6_500, 9_500, 12_500]);
    }
}
