//! What routing has done and refused, counted.

/// Why a record or frame from a neighbour was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RefusedRecord {
    /// Bytes that are no routing frame or record.
    Malformed,
    /// A frame on a link that is down.
    LinkDown,
    /// A record that was here already: reliable flooding makes some.
    Duplicate,
    /// A record older than what is here; the neighbour is told.
    Older,
    /// The same sequence number with other content: the first is kept.
    Reused,
    /// A sequence number more than a day ahead of this node's clock: the clock
    /// here or there is wrong, or someone wants to silence the origin.
    TooFarAhead,
    /// A record that its origin has not refreshed in time.
    Expired,
    /// A node more than the database holds.
    TooManyNodes,
    /// A record of a node whose key is not known (yet).
    UnknownOrigin,
    /// A signature that is not its origin's.
    BadSignature,
    /// A certificate that does not hold.
    BadCertificate,
    /// A neighbour that sends more than it may.
    NeighbourRate,
    /// A neighbour whose records wait for their signatures to be checked, and
    /// fill their queue.
    QueueFull,
    /// An origin that changes its links more often than it may.
    OriginRate,
}

impl RefusedRecord {
    /// Every reason, in the order of the enum.
    pub const ALL: [RefusedRecord; 14] = [
        RefusedRecord::Malformed,
        RefusedRecord::LinkDown,
        RefusedRecord::Duplicate,
        RefusedRecord::Older,
        RefusedRecord::Reused,
        RefusedRecord::TooFarAhead,
        RefusedRecord::Expired,
        RefusedRecord::TooManyNodes,
        RefusedRecord::UnknownOrigin,
        RefusedRecord::BadSignature,
        RefusedRecord::BadCertificate,
        RefusedRecord::NeighbourRate,
        RefusedRecord::QueueFull,
        RefusedRecord::OriginRate,
    ];

    /// Its name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            RefusedRecord::Malformed => "malformed",
            RefusedRecord::LinkDown => "link_down",
            RefusedRecord::Duplicate => "duplicate",
            RefusedRecord::Older => "older",
            RefusedRecord::Reused => "reused",
            RefusedRecord::TooFarAhead => "too_far_ahead",
            RefusedRecord::Expired => "expired",
            RefusedRecord::TooManyNodes => "too_many_nodes",
            RefusedRecord::UnknownOrigin => "unknown_origin",
            RefusedRecord::BadSignature => "bad_signature",
            RefusedRecord::BadCertificate => "bad_certificate",
            RefusedRecord::NeighbourRate => "neighbour_rate",
            RefusedRecord::QueueFull => "queue_full",
            RefusedRecord::OriginRate => "origin_rate",
        }
    }
}

/// How often each [`Refusal`] was the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; RefusedRecord::ALL.len()]);

impl Refusals {
    pub(super) fn count(&mut self, why: RefusedRecord) {
        self.0[why as usize] += 1;
    }

    /// How often `why` was it.
    pub fn of(&self, why: RefusedRecord) -> u64 {
        self.0[why as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (RefusedRecord, u64)> {
        RefusedRecord::ALL.into_iter().map(|why| (why, self.of(why)))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What a router has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteStats {
    /// Records of other nodes that were newer than what was here.
    pub accepted: u64,
    /// What was not taken, by reason, from all links.
    pub refused: Refusals,
    /// Own records signed.
    pub originated: u64,
    /// Own records of an earlier life that came back and were superseded.
    pub superseded: u64,
    /// Nodes' records dropped because nobody refreshed them.
    pub expired: u64,
    /// Signatures and certificates checked.
    pub checks: u64,
    /// Records sent to neighbours, repetitions included.
    pub sent: u64,
    /// Records sent again.
    pub repeated: u64,
    /// Bytes of frames sent to neighbours.
    pub sent_bytes: u64,
    /// Shortest-path computations, each for all metrics.
    pub spf_runs: u64,
    /// Links that a node advertised, and their other end did not, as of the
    /// last of these: of one that lies, or that has gone and is not forgotten.
    pub denied: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_order_and_named_apart() {
        let mut labels: Vec<_> = RefusedRecord::ALL.iter().map(|r| r.label()).collect();
        assert!(RefusedRecord::ALL.iter().enumerate().all(|(i, &r)| r as usize == i));
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), RefusedRecord::ALL.len());
    }
}
