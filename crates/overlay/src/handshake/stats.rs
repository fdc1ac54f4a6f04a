//! What the handshake has done and refused.

/// Why a message of the handshake, or its sender, was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RefusedHandshake {
    /// Too short, too long, or with a field out of range.
    Malformed,
    /// The cheap check failed: the sender doesn't know to whom it speaks.
    BadMac,
    /// Without a cookie while strangers have used up what they may.
    NoCookie,
    /// With a cookie, but too often from its address.
    RateLimited,
    /// Noise refused it: forged, altered, or for a key of ours that was.
    Forged,
    /// An initiation that is not newer than the last of its sender, and shows no
    /// nonce: a copy, or of a node whose clock went back.
    Replayed,
    /// A response or answer that nothing waits for (any more).
    Unexpected,
    /// Of a key that belongs to no link here, and without a certificate.
    UnknownKey,
    /// Of a key that the operator has revoked.
    Revoked,
    /// With a certificate whose time is over.
    Expired,
    /// With a certificate of nobody who is trusted, or for another node or key.
    WrongCertificate,
    /// Certified, but no new neighbours are taken, or no more of them.
    NewcomersFull,
    /// The two ends have no protocol version in common.
    Version,
    /// Both began at the same time, and the other end is to answer.
    Simultaneous,
    /// A query to a node without a certificate.
    NoCertificate,
}

impl RefusedHandshake {
    /// Every reason, in the order of the enum.
    pub const ALL: [RefusedHandshake; 15] = [
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
        RefusedHandshake::NewcomersFull,
        RefusedHandshake::Version,
        RefusedHandshake::Simultaneous,
        RefusedHandshake::NoCertificate,
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
            RefusedHandshake::NewcomersFull => "unconfigured_peers_full",
            RefusedHandshake::Version => "version",
            RefusedHandshake::Simultaneous => "simultaneous",
            RefusedHandshake::NoCertificate => "no_certificate",
        }
    }
}

/// Counts of what the handshakes of a node have done.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct HandshakeStats {
    /// Messages of all kinds that came.
    pub received: u64,
    /// Queries sent.
    pub queries: u64,
    /// Answers sent.
    pub answers: u64,
    /// Initiations sent.
    pub initiations: u64,
    /// Responses sent.
    pub responses: u64,
    /// Challenges sent to who may have sent a copy.
    pub challenges: u64,
    /// Initiations, responses and challenges for which curve points were multiplied.
    pub computed: u64,
    /// Sessions agreed on.
    pub established: u64,
    /// Of those, the ones that replaced another.
    pub rekeyed: u64,
    refused: [u64; RefusedHandshake::ALL.len()],
}

impl HandshakeStats {
    pub(super) fn refuse(&mut self, why: RefusedHandshake) {
        self.refused[why as usize] += 1;
    }

    /// How many messages were refused for this reason.
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
