//! What routing has done and refused, counted.

/// Why a record or frame from a neighbour was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
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

impl Refusal {
    /// Every reason, in the order of the enum.
    pub const ALL: [Refusal; 14] = [
        Refusal::Malformed,
        Refusal::LinkDown,
        Refusal::Duplicate,
        Refusal::Older,
        Refusal::Reused,
        Refusal::TooFarAhead,
        Refusal::Expired,
        Refusal::TooManyNodes,
        Refusal::UnknownOrigin,
        Refusal::BadSignature,
        Refusal::BadCertificate,
        Refusal::NeighbourRate,
        Refusal::QueueFull,
        Refusal::OriginRate,
    ];

    /// Its name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::LinkDown => "link_down",
            Refusal::Duplicate => "duplicate",
            Refusal::Older => "older",
            Refusal::Reused => "reused",
            Refusal::TooFarAhead => "too_far_ahead",
            Refusal::Expired => "expired",
            Refusal::TooManyNodes => "too_many_nodes",
            Refusal::UnknownOrigin => "unknown_origin",
            Refusal::BadSignature => "bad_signature",
            Refusal::BadCertificate => "bad_certificate",
            Refusal::NeighbourRate => "neighbour_rate",
            Refusal::QueueFull => "queue_full",
            Refusal::OriginRate => "origin_rate",
        }
    }
}

/// How often each [`Refusal`] was the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    pub(super) fn count(&mut self, why: Refusal) {
        self.0[why as usize] += 1;
    }

    /// How often `why` was it.
    pub fn of(&self, why: Refusal) -> u64 {
        self.0[why as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().map(|why| (why, self.of(why)))
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
        let mut labels: Vec<_> = Refusal::ALL.iter().map(|r| r.label()).collect();
        assert!(Refusal::ALL.iter().enumerate().all(|(i, &r)| r as usize == i));
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
