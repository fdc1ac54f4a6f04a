//! Reasons for dropping packets, frames and messages, and a count for each.

/// A reason for dropping a packet, frame or message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Bytes that are no valid envelope, frame or session message; also envelopes above the link's
    /// MTU, which both ends should be configured with alike.
    Malformed,
    /// An envelope with a receiver index that no link has.
    UnknownReceiver,
    /// An envelope from an address other than the one configured for the link.
    WrongSource,
    /// An envelope from an earlier start of the neighbour.
    Stale,
    /// An envelope for a session that has ended, or that is not established yet.
    NoSession,
    /// An envelope that was received before.
    Replayed,
    /// An envelope that was altered, or not sealed by the neighbour.
    Forged,
    /// A packet that this link has already delivered.
    Duplicate,
    /// A packet that its destination's application has already received.
    FlowDuplicate,
    /// A packet that has crossed as many links as it may, and is not an echo request that this node
    /// answers.
    HopLimit,
    /// A packet that turned back too often: each node on its way would send it to where it came
    /// from. Or a packet that names its destination as its source.
    Bounced,
    /// A packet to a node without a route.
    NoRoute,
    /// A packet to a virtual port that no application holds.
    NoPort,
    /// A packet larger than the next link's MTU.
    TooLarge,
    /// A packet to a link on which the neighbour's address is not known yet.
    NoAddress,
    /// A packet that arrived at a full queue.
    QueueFull,
    /// A packet that waited longer than its queue allows.
    QueueDelay,
    /// A real-time packet of a source that already had its share of a queue that was too long.
    SourceShare,
    /// A real-time packet that passed its deadline while it waited at this node, in an unread
    /// socket or in a send queue.
    Late,
    /// A retransmission that would have arrived too late.
    RetransmitLate,
    /// A request beyond the share of originals that may be retransmitted.
    RetransmitBudget,
    /// A retransmission request for a packet that is no longer stored.
    RetransmitUnknown,
    /// A retransmission request on a service without retransmissions.
    NotRetransmitted,
    /// A message to an application that reads too slowly.
    SessionFull,
    /// A packet that the node's rules reject.
    Forbidden,
    /// An echo request beyond the rate that a node answers.
    EchoLimit,
    /// An echo reply without an open request, or an error about a packet that this node did not
    /// send: late, duplicated or forged.
    EchoUnexpected,
    /// A routing update or a handshake message that found the queue to the node's control half
    /// full.
    ControlFull,
    /// A packet of a trunk, or a whole trunk packet, with an unknown context: the description of
    /// the context was lost, or this node has restarted since.
    TrunkUnknown,
    /// A packet of a new flow to a node with a trunk over its share, where such flows are refused.
    OverShare,
    /// A reliable packet further ahead of the first missing one than the neighbour may send.
    BeyondWindow,
    /// A segment of a stream without the numbers that its two ends have agreed on, or a reset with a
    /// position outside of its window: late, or forged.
    StreamNumber,
}

impl DropReason {
    /// Every reason, in the order of the enum.
    pub const ALL: [DropReason; 32] = [
        DropReason::Malformed,
        DropReason::UnknownReceiver,
        DropReason::WrongSource,
        DropReason::Stale,
        DropReason::NoSession,
        DropReason::Replayed,
        DropReason::Forged,
        DropReason::Duplicate,
        DropReason::FlowDuplicate,
        DropReason::HopLimit,
        DropReason::Bounced,
        DropReason::NoRoute,
        DropReason::NoPort,
        DropReason::TooLarge,
        DropReason::NoAddress,
        DropReason::QueueFull,
        DropReason::QueueDelay,
        DropReason::SourceShare,
        DropReason::Late,
        DropReason::RetransmitLate,
        DropReason::RetransmitBudget,
        DropReason::RetransmitUnknown,
        DropReason::NotRetransmitted,
        DropReason::SessionFull,
        DropReason::Forbidden,
        DropReason::EchoLimit,
        DropReason::EchoUnexpected,
        DropReason::ControlFull,
        DropReason::TrunkUnknown,
        DropReason::OverShare,
        DropReason::BeyondWindow,
        DropReason::StreamNumber,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::UnknownReceiver => "unknown_receiver",
            DropReason::WrongSource => "wrong_source",
            DropReason::Stale => "stale",
            DropReason::NoSession => "no_session",
            DropReason::Replayed => "replayed",
            DropReason::Forged => "forged",
            DropReason::Duplicate => "duplicate",
            DropReason::FlowDuplicate => "flow_duplicate",
            DropReason::HopLimit => "hop_limit",
            DropReason::Bounced => "bounced",
            DropReason::NoRoute => "no_route",
            DropReason::NoPort => "no_port",
            DropReason::TooLarge => "too_large",
            DropReason::NoAddress => "no_address",
            DropReason::QueueFull => "queue_full",
            DropReason::QueueDelay => "queue_delay",
            DropReason::SourceShare => "source_share",
            DropReason::Late => "late",
            DropReason::RetransmitLate => "retransmit_late",
            DropReason::RetransmitBudget => "retransmit_budget",
            DropReason::RetransmitUnknown => "retransmit_unknown",
            DropReason::NotRetransmitted => "not_retransmitted",
            DropReason::SessionFull => "session_full",
            DropReason::Forbidden => "forbidden",
            DropReason::EchoLimit => "echo_limit",
            DropReason::EchoUnexpected => "echo_unexpected",
            DropReason::ControlFull => "control_full",
            DropReason::TrunkUnknown => "trunk_unknown",
            DropReason::OverShare => "over_share",
            DropReason::BeyondWindow => "beyond_window",
            DropReason::StreamNumber => "stream_number",
        }
    }
}

/// A counter for each reason.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Adds one to the count for `reason`.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Adds `n` to the count for `reason`.
    pub fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize] += n;
    }

    /// The count for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Iterates over all reasons and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }
}

/// A number of envelopes and their bytes (UDP payload, without IP and UDP headers).
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Number of envelopes counted.
    pub envelopes: u64,
    /// Bytes of UDP payload in these envelopes.
    pub bytes: u64,
}

impl Traffic {
    /// Counts one envelope of `bytes` bytes.
    pub fn count(&mut self, bytes: usize) {
        self.envelopes += 1;
        self.bytes += bytes as u64;
    }
}

/// Counters of the receiving half of a service that numbers its packets.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets received, without duplicates.
    pub received: u64,
    /// Packets found missing when a later one arrived.
    pub missing: u64,
    /// Packets requested again, each counted once.
    pub asked: u64,
    /// Missing packets that arrived after all, retransmitted or reordered.
    pub filled: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reasons_is_the_enum() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
        }
    }
}
