//! The ledger as JSON.

use hdrhistogram::Histogram;
use serde::Serialize;
use trunkline_base::link_model::Count;

/// The ledger of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The length of the run, in seconds.
    pub seconds: f64,
    /// The processor time of the relay, in seconds.
    pub cpu_seconds: f64,
    /// How late packets left.
    pub lateness_us: Lateness,
    /// The links in the order of the configuration.
    pub links: Vec<LinkReport>,
}

/// The distribution of (time of sending − time due), in microseconds. A run
/// whose p99.9 is over 1,000 measured the relay, not the model.
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
    /// Takes the quantiles from a histogram of nanoseconds.
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
    /// The name as configured.
    pub name: String,
    /// From a to b.
    pub forward: DirectionReport,
    /// From b to a.
    pub reverse: DirectionReport,
}

/// The ledger of one direction:
/// offered = delivered + lost + queue_dropped + pool_dropped + send_errors + in_flight,
/// in packets and in bytes, IP and UDP headers included.
#[derive(Debug, Serialize)]
pub struct DirectionReport {
    /// Received from the peer and handed to the model.
    pub offered: Tally,
    /// Sent on to the other node.
    pub delivered: Tally,
    /// Lost by the model.
    pub lost: Tally,
    /// Turned away by the model's queue.
    pub queue_dropped: Tally,
    /// Those of queue_dropped that random early detection chose by chance.
    pub early_dropped: Tally,
    /// Marked by random early detection. They are then delivered, lost, or one of those below.
    pub marked: Tally,
    /// No room in the relay's buffer.
    pub pool_dropped: Tally,
    /// Could not be sent, or the far peer was not known yet.
    pub send_errors: Tally,
    /// Not yet due when the relay stopped.
    pub in_flight: Tally,
    /// From a source that is not the peer. Not offered.
    pub foreign: Tally,
    /// Longer than the relay takes. Not offered; bytes are those it kept.
    pub oversize: Tally,
    /// Dropped by the kernel before the relay saw them, packets.
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
