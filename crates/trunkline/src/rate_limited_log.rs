//! Rate-limited logging of events that others can provoke.

use std::fmt;
use std::time::Duration;
use trunkline_base::Time;

/// Minimum time between two log lines of a kind that others can provoke.
pub const QUIET: Duration = Duration::from_secs(10);

/// Log lines that unknown peers can provoke: at most one per [`QUIET`].
#[derive(Default)]
pub struct RateLimitedLog {
    last: Option<Time>,
    kept_back: u64,
}

impl RateLimitedLog {
    /// Logs `what`, or counts it as suppressed.
    pub fn warn(&mut self, now: Time, what: impl fmt::Display) {
        if self.last.is_some_and(|t| now.since(t) < QUIET) {
            self.kept_back += 1;
            return;
        }
        tracing::warn!(kept_back = self.kept_back, "{what}");
        (self.last, self.kept_back) = (Some(now), 0);
    }
}
