//! Keep-alive notifications to a service manager (sd_notify(3), `WATCHDOG=1`), which state that the
//! packet thread still runs. The thread that waits for signals sends them, so that packets never
//! wait for the service manager; a node is thus restarted if either of the two hangs.

use std::time::Duration;
use trunkline_base::Time;

/// Schedule of the keep-alive notifications.
pub struct Watchdog {
    /// Interval between checks; `None` if no manager requires them.
    every: Option<Duration>,
    next: Time,
    /// The packet thread's beat count when it was last woken.
    before: Option<u64>,
}

impl Watchdog {
    /// Creates a watchdog for a manager with timeout `limit`.
    pub fn new(limit: Option<Duration>, now: Time) -> Watchdog {
        // sd_watchdog_enabled(3) recommends half the limit. Each check reports the wake-up
        // triggered by the previous one: at a quarter, two checks make a half.
        let every = limit.map(|limit| (limit / 4).max(Duration::from_millis(10)));
        Watchdog { every, next: now, before: None }
    }

    /// Time until the next check.
    pub fn patience(&self) -> Duration {
        self.every.unwrap_or(Duration::MAX)
    }

    /// Whether to notify the manager now: the packet thread has woken since `beat`, which wakes it
    /// and returns its count, was last called.
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
