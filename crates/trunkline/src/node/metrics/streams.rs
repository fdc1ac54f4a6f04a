//! Metrics of the node's streams.

use super::{Counted, Family, Labels, single};
use std::fmt;
use trunkline_overlay::node::StreamStats;

const COUNTED: [Counted<StreamStats>; 7] = [
    ("streams_opened", "Streams that applications here opened, or tried to", |s| s.opened),
    ("streams_accepted", "Streams from other nodes that were accepted", |s| s.accepted),
    ("streams_refused", "Streams from other nodes that were refused", |s| s.refused),
    ("streams_reset", "Streams that broke off, or were never opened", |s| s.reset),
    ("stream_sent_bytes", "Bytes that other ends of streams have acknowledged", |s| s.sent),
    ("stream_received_bytes", "Bytes of streams received in order", |s| s.received),
    ("stream_retransmitted_segments", "Packets of streams retransmitted from end to end", |s| {
        s.retransmitted
    }),
];

/// Writes the metrics of all streams together; individual streams have none.
pub fn encode(f: &mut Family<'_, '_>, stats: &StreamStats) -> fmt::Result {
    let open = std::iter::once((Labels::new(), stats.open as f64));
    f.gauges("streams", "Streams that end here, opening and closing ones included", open)?;
    for (name, help, count) in COUNTED {
        f.counters(name, help, single(count(stats)))?;
    }
    Ok(())
}
