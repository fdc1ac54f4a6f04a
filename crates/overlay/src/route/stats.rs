//! Counters of routing, and the reasons for refusals.

/// Reason for refusing a record or frame from a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RefusedRecord {
    /// The bytes are not a routing frame or record.
    Malformed,
    /// A frame on a link that is down.
    LinkDown,
    /// A record that is already stored: reliable flooding causes some of these.
    Duplicate,
    /// A record older than the stored one; the neighbour is sent the newer one.
    Older,
    /// The same sequence number with other content: the first is kept.
    Reused,
    /// A sequence number more than a day ahead of this node's clock: one of the clocks is wrong, or
    /// an attacker wants to silence the origin.
    TooFarAhead,
    /// A record that its origin has not refreshed in time.
    Expired,
    /// The database already has its maximum number of nodes.
    TooManyNodes,
    /// A record of a node that has no known key (yet).
    UnknownOrigin,
    /// The signature is not the origin's.
    BadSignature,
    /// The certificate is not valid.
    BadCertificate,
    /// The neighbour exceeds its rate of new records.
    NeighbourRate,
    /// The neighbour's queue of records to be checked is full.
    QueueFull,
    /// The origin changes its records too often.
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

    /// Name of the reason in metrics.
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

/// Number of refusals for each [`RefusedRecord`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; RefusedRecord::ALL.len()]);

impl Refusals {
    pub(super) fn count(&mut self, why: RefusedRecord) {
        self.0[why as usize] += 1;
    }

    /// Number of refusals for the reason `why`.
    pub fn of(&self, why: RefusedRecord) -> u64 {
        self.0[why as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (RefusedRecord, u64)> {
        RefusedRecord::ALL.into_iter().map(|why| (why, self.of(why)))
    }

    /// Number of refusals for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Counters of a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteStats {
    /// Records of other nodes that were newer than the stored ones.
    pub accepted: u64,
    /// Refused records and frames of all links, by reason.
    pub refused: Refusals,
    /// Records of this node that were signed.
    pub originated: u64,
    /// Records of this node's earlier lives that came back and were superseded.
    pub superseded: u64,
    /// Records that were dropped because their origin did not refresh them.
    pub expired: u64,
    /// Signatures and certificates that were checked.
    pub checks: u64,
    /// Records sent to neighbours, including retransmissions.
    pub sent: u64,
    /// Number of records retransmitted.
    pub repeated: u64,
    /// Bytes of frames sent to neighbours.
    pub sent_bytes: u64,
    /// Shortest-path computations, each for all metrics.
    pub spf_runs: u64,
    /// Links that only one end advertised, as of the last computation: the node may be malicious,
    /// or its neighbour has gone and is not forgotten yet.
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
