//! Counters of the handshakes and the reasons for refusals.

/// Reason for refusing a message of the handshake, or its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RefusedHandshake {
    /// Too short, too long, or with a field out of range.
    Malformed,
    /// Wrong MAC: the sender doesn't have the key of the node it addresses.
    BadMac,
    /// No cookie, while unknown peers have used up their shared budget.
    NoCookie,
    /// Valid cookie, but too many messages from this address.
    RateLimited,
    /// Noise refused it: forged, altered, or for a former key of this node.
    Forged,
    /// An initiation that is not newer than the last of its sender and shows no nonce: a copy, or
    /// sent by a node with a clock that went back.
    Replayed,
    /// A response or answer that is not expected (any more).
    Unexpected,
    /// The key belongs to no link here, and came without a certificate.
    UnknownKey,
    /// The operator has revoked the key.
    Revoked,
    /// The certificate has expired.
    Expired,
    /// The certificate's issuer is not trusted, or it is for another node or key.
    WrongCertificate,
    /// The sender is certified, but no (more) unconfigured peers are admitted.
    UnconfiguredPeersFull,
    /// The two ends have no protocol version in common.
    Version,
    /// Both began at the same time, and the other end has to answer.
    Simultaneous,
    /// A query to a node that has no certificate.
    NoCertificate,
    /// The link is bound to own addresses, and the neighbour has called another one.
    OtherPath,
}

impl RefusedHandshake {
    /// Every reason, in the order of the enum.
    pub const ALL: [RefusedHandshake; 16] = [
        RefusedHandshake::Malformed,
        RefusedHandshake::BadMac,
        RefusedHandshake::NoCookie,
        RefusedHandshake::RateLimited,
        RefusedHandshake::Forged,
        RefusedHandshake::Replayed,
        RefusedHandshake::Unexpected,
        RefusedHandshake::UnknownKey,
        RefusedHandshake::Revoked,
        RefusedHandshake::Expired,
        RefusedHandshake::WrongCertificate,
        RefusedHandshake::UnconfiguredPeersFull,
        RefusedHandshake::Version,
        RefusedHandshake::Simultaneous,
        RefusedHandshake::NoCertificate,
        RefusedHandshake::OtherPath,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            RefusedHandshake::Malformed => "malformed",
            RefusedHandshake::BadMac => "bad_mac",
            RefusedHandshake::NoCookie => "no_cookie",
            RefusedHandshake::RateLimited => "rate_limited",
            RefusedHandshake::Forged => "forged",
            RefusedHandshake::Replayed => "replayed",
            RefusedHandshake::Unexpected => "unexpected",
            RefusedHandshake::UnknownKey => "unknown_key",
            RefusedHandshake::Revoked => "revoked",
            RefusedHandshake::Expired => "expired",
            RefusedHandshake::WrongCertificate => "wrong_certificate",
            RefusedHandshake::UnconfiguredPeersFull => "unconfigured_peers_full",
            RefusedHandshake::Version => "version",
            RefusedHandshake::Simultaneous => "simultaneous",
            RefusedHandshake::NoCertificate => "no_certificate",
            RefusedHandshake::OtherPath => "other_path",
        }
    }
}

/// Counters of a node's handshakes.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct HandshakeStats {
    /// Messages of all kinds received.
    pub received: u64,
    /// Number of queries sent.
    pub queries: u64,
    /// Number of answers sent.
    pub answers: u64,
    /// Number of initiations sent.
    pub initiations: u64,
    /// Number of responses sent.
    pub responses: u64,
    /// Challenges sent to senders of possible copies.
    pub challenges: u64,
    /// Initiations, responses and challenges for which curve points were multiplied.
    pub computed: u64,
    /// Number of sessions agreed on.
    pub established: u64,
    /// Number of those that replaced another session.
    pub rekeyed: u64,
    refused: [u64; RefusedHandshake::ALL.len()],
}

impl HandshakeStats {
    pub(super) fn refuse(&mut self, why: RefusedHandshake) {
        self.refused[why as usize] += 1;
    }

    /// Number of messages refused for this reason.
    pub fn refused(&self, why: RefusedHandshake) -> u64 {
        self.refused[why as usize]
    }

    /// Every reason with its count.
    pub fn refusals(&self) -> impl Iterator<Item = (RefusedHandshake, u64)> {
        RefusedHandshake::ALL.into_iter().map(|why| (why, self.refused(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reasons_is_the_enum() {
        for (i, why) in RefusedHandshake::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, i);
        }
    }
}
