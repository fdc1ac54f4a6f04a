//! The ledger as JSON.

use hdrhistogram::Histogram;
use serde::Serialize;
use trunkline_base::link_model::Count;

/// The ledger of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Length of the run, in seconds.
    pub seconds: f64,
    /// Processor time of the relay, in seconds.
    pub cpu_seconds: f64,
    /// Lateness of the packets sent.
    pub lateness_us: Lateness,
    /// The links in the order of the configuration.
    pub links: Vec<LinkReport>,
}

/// Distribution of the time of sending less the time due, in microseconds. A run with a p99.9 above
/// 1,000 measured the relay, not the model.
#[derive(Debug, Serialize)]
pub struct Lateness {
    samples: u64,
    p50: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p999: f64,
    max: f64,
}

impl Lateness {
    /// Reads the quantiles from a histogram of nanoseconds.
    pub fn new(nanos: &Histogram<u64>) -> Lateness {
        let at = |q| nanos.value_at_quantile(q) as f64 / 1e3;
        Lateness {
            samples: nanos.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: nanos.max() as f64 / 1e3,
        }
    }
}

/// The ledger of one link.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    /// Name of the link, as configured.
    pub name: String,
    /// Direction from a to b.
    pub forward: DirectionReport,
    /// Direction from b to a.
    pub reverse: DirectionReport,
}

/// The ledger of one direction: offered = delivered + lost + queue_dropped + pool_dropped +
/// send_errors + in_flight, in packets and in bytes, including IP and UDP headers.
#[derive(Debug, Serialize)]
pub struct DirectionReport {
    /// Received from the peer and handed to the model.
    pub offered: Tally,
    /// Sent on to the other node.
    pub delivered: Tally,
    /// Dropped by the loss model.
    pub lost: Tally,
    /// Rejected by the model's queue.
    pub queue_dropped: Tally,
    /// The part of queue_dropped that random early detection chose at random.
    pub early_dropped: Tally,
    /// Marked by random early detection. These are also counted as delivered, lost, or one of the
    /// categories below.
    pub marked: Tally,
    /// Dropped because the relay's buffer was full.
    pub pool_dropped: Tally,
    /// Not sent, because sending failed or the far peer was not yet known.
    pub send_errors: Tally,
    /// Not yet due when the relay stopped.
    pub in_flight: Tally,
    /// Received from a source that is not the peer, and not offered.
    pub foreign: Tally,
    /// Longer than the relay accepts, and not offered; bytes count only the part that was read.
    pub oversize: Tally,
    /// Number of packets that the kernel dropped before the relay read them.
    pub kernel_dropped: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// A count of packets and of their bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Tally {
    packets: u64,
    bytes: u64,
}

impl From<Count> for Tally {
    fn from(count: Count) -> Tally {
        Tally { packets: count.packets, bytes: count.bytes }
    }
}
