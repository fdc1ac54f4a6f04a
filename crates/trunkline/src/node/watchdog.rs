//! What a service manager wants to hear of a node now and then (sd_notify(3),
//! `WATCHDOG=1`): that its packet thread still turns. It is the thread that waits
//! for signals which says so, lest packets wait for the service manager; so a
//! node is restarted if either of the two hangs.

use std::time::Duration;
use trunkline_base::Time;

/// When to tell.
pub struct Watchdog {
    /// Between two looks; `None` if nobody wants to hear.
    every: Option<Duration>,
    next: Time,
    /// The packet thread's beats when it was last woken.
    before: Option<u64>,
}

impl Watchdog {
    /// For a manager that loses its patience after `limit`.
    pub fn new(limit: Option<Duration>, now: Time) -> Watchdog {
        // sd_watchdog_enabled(3) wants half of it. A look tells of the wake-up by
        // the look before: with a quarter, two looks are half.
        let every = limit.map(|limit| (limit / 4).max(Duration::from_millis(10)));
        Watchdog { every, next: now, before: None }
    }

    /// How long until the next look.
    pub fn patience(&self) -> Duration {
        self.every.unwrap_or(Duration::MAX)
    }

    /// Whether to tell the manager now that all is well: the packet thread has
    /// woken since `beat`, which wakes it and gives its count, was last called.
    pub fn look(&mut self, now: Time, beat: impl FnOnce() -> u64) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return false };
        self.next = now + every;
        let count = beat();
        self.before.replace(count).is_some_and(|before| count > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_only_of_a_thread_that_turns() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut watchdog = Watchdog::new(Some(Duration::from_millis(400)), at(0));
        assert!(!watchdog.look(at(0), || 0), "it has not been woken before");
        assert!(!watchdog.look(at(99), || 1), "too soon");
        assert!(watchdog.look(at(100), || 1));
        assert!(!watchdog.look(at(200), || 1), "it hangs");
        assert!(watchdog.look(at(300), || 2), "and is back");
        assert!(!Watchdog::new(None, at(0)).look(at(9_000), || 9), "nobody asked");
    }
}
