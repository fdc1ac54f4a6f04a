//! Why packets, frames and messages were dropped, counted by reason.

/// A reason for dropping something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Bytes that are no envelope, frame or session message; also envelopes
    /// above the link's MTU, which both ends should be told alike.
    Malformed,
    /// An envelope for a receiver index that no link has.
    UnknownReceiver,
    /// An envelope from another address than the link is configured for.
    WrongSource,
    /// An envelope of a start of the neighbour before its present one.
    Stale,
    /// An envelope for a session that has ended, or of which only the start is
    /// known.
    NoSession,
    /// An envelope that had come before.
    Replayed,
    /// An envelope that the neighbour did not seal, or that was altered.
    Forged,
    /// A packet that this link had already delivered.
    Duplicate,
    /// A packet that its destination's application already has.
    FlowDuplicate,
    /// A packet that crossed as many links as it may, and is no echo that is
    /// answered.
    HopLimit,
    /// A packet whose route leads back to where it came from, or that says it
    /// is from the very node that it is for.
    Bounced,
    /// A packet to a node that no route leads to.
    NoRoute,
    /// A packet to a virtual port that nobody holds.
    NoPort,
    /// A packet larger than the next link's MTU.
    TooLarge,
    /// A packet to a link whose neighbour's address is not known yet.
    NoAddress,
    /// A packet that found its queue full.
    QueueFull,
    /// A packet that had waited longer than its queue allows.
    QueueDelay,
    /// A real-time packet whose deadline passed while it waited at this node: in
    /// a socket that nobody read from, or for its turn.
    Late,
    /// A retransmission that would have come too late.
    RetransmitLate,
    /// A request that reached the end of the share of originals that may be
    /// repeated.
    RetransmitBudget,
    /// A retransmission request for a packet that is no longer kept.
    RetransmitUnknown,
    /// A retransmission request on a service that repeats nothing.
    NotRetransmitted,
    /// A message to an application that does not keep up.
    SessionFull,
    /// A packet that the node's rules keep out.
    Forbidden,
    /// An echo request beyond what a node answers.
    EchoLimit,
    /// An answer to no echo request that is open, or about no packet that was
    /// sent from here: late, twice, or forged.
    EchoUnexpected,
    /// A routing update or a message of the handshake that found the queue to
    /// the node's control half full.
    ControlFull,
    /// A packet of a trunk, or all of a trunk packet, whose context is unknown here: what
    /// would have said what it means was lost, or this node has started since.
    TrunkUnknown,
    /// A packet of a new flow to a node whose trunk is over its share, where such flows
    /// are refused.
    OverShare,
    /// A reliable packet so far ahead of what is missing that its neighbour may not send it.
    BeyondWindow,
}

impl DropReason {
    /// Every reason, in the order of the enum.
    pub const ALL: [DropReason; 30] = [
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
        }
    }
}

/// A count for each reason.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// One more for `reason`.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// `n` more for `reason`.
    pub fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize] += n;
    }

    /// The count for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }
}

/// Envelopes and their bytes (UDP payload, without IP and UDP headers).
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// How many.
    pub envelopes: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    /// One more envelope, of `bytes` bytes.
    pub fn count(&mut self, bytes: usize) {
        self.envelopes += 1;
        self.bytes += bytes as u64;
    }
}

/// What the receiving half of a service with numbers has seen.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets accepted.
    pub received: u64,
    /// Packets found missing when a later one came.
    pub missing: u64,
    /// Packets asked for, each counted once.
    pub asked: u64,
    /// Missing packets that came after all, repeated or reordered.
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
