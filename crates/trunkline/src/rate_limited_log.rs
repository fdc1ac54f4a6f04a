//! What the log says of what others do: enough to know, and never as much as they like.

use std::fmt;
use std::time::Duration;
use trunkline_base::Time;

/// The least time between two log lines of a kind that others can provoke.
pub const QUIET: Duration = Duration::from_secs(10);

/// Log lines that strangers can provoke: at most one in [`QUIET`].
#[derive(Default)]
pub struct RateLimitedLog {
    last: Option<Time>,
    kept_back: u64,
}

impl RateLimitedLog {
    /// Says `what`, or counts it as kept back.
    pub fn warn(&mut self, now: Time, what: impl fmt::Display) {
        if self.last.is_some_and(|t| now.since(t) < QUIET) {
            self.kept_back += 1;
            return;
        }
        tracing::warn!(kept_back = self.kept_back, "{what}");
        (self.last, self.kept_back) = (Some(now), 0);
    }
}
