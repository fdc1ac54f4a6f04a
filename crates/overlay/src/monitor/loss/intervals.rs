use super::LossEstimate;
use std::collections::VecDeque;

/// Amir et al. 2005, III-A: "the last L loss events (in our implementation
/// L = 50)".
const L: usize = 50;

/// The paper's estimate: one over the mean number of packets received between two loss events,
/// which equals the loss probability if losses are independent.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    closed: VecDeque<u64>,
    sum: u64,
    open: u64,
    received: u64,
}

impl Intervals {
    pub fn on_received(&mut self) {
        self.open += 1;
        self.received += 1;
    }

    /// Records one or more losses in a row.
    pub fn on_event(&mut self) {
        // Packets before the first event count as well, or a single outage would make a new link
        // look bad.
        let interval = core::mem::take(&mut self.open);
        if self.closed.len() == L {
            self.sum -= self.closed.pop_front().unwrap_or(0);
        }
        self.closed.push_back(interval);
        self.sum += interval;
    }

    /// The open interval counts if it makes the mean longer (as RFC 5348, 5.4), or a link that
    /// stops losing packets would never recover.
    pub fn estimate(&self) -> Option<LossEstimate> {
        if self.received == 0 {
            return None;
        }
        if self.closed.is_empty() {
            return Some(LossEstimate::default());
        }
        let n = self.closed.len() as f64;
        let closed = self.sum as f64 / n;
        let with_open = (self.sum + self.open) as f64 / (n + 1.0);
        let mean = closed.max(with_open).max(1.0);
        // Events carry no information about bursts.
        Some(LossEstimate { loss: 1.0 / mean, burst: 0.0 })
    }
}
