//! Log lines that others can provoke, each kind with a rate limit of its own.

use crate::rate_limited_log::{PerNode, RateLimitedLog};
use std::net::SocketAddr;
use trunkline_base::Time;
use trunkline_overlay::handshake::RefusedHandshake;
use trunkline_overlay::wire::NodeId;
use trunkline_overlay::wire::version::VersionMismatch;

/// Rate limits of the log lines that others can provoke. If two kinds shared one, provoking the
/// first would suppress the second.
#[derive(Default)]
pub(super) struct LimitedLogs {
    /// Handshakes of senders without a valid key or certificate: anyone can send them.
    unknown_peers: RateLimitedLog,
    /// Handshakes refused for any other reason, such as a revoked certificate.
    refusals: RateLimitedLog,
    /// Handshakes of nodes with other protocol versions.
    versions: PerNode,
    /// Handshakes to other own addresses than those of their links.
    paths: PerNode,
    other_keys: RateLimitedLog,
    clocks: RateLimitedLog,
    /// Applications that could not attach.
    pub applications: RateLimitedLog,
    /// Users that send more than they may.
    pub rates: RateLimitedLog,
    /// Calls that got no media.
    pub media: RateLimitedLog,
}

impl LimitedLogs {
    /// Logs that a handshake from `from` was refused. `node` is the id that the sender claims, if
    /// the message is for this node's key; `versions` is present if the versions are the reason.
    /// Returns whether it was logged.
    pub fn refused(
        &mut self,
        now: Time,
        (from, node): (SocketAddr, Option<NodeId>),
        why: RefusedHandshake,
        versions: Option<VersionMismatch>,
    ) -> bool {
        let label = why.label();
        let Some(node) = node else {
            let what = format!(
                "a handshake from {from} was refused: {label}: it is for another key than this \
                 node's, or of another overlay"
            );
            return self.unknown_peers.warn(now, &what);
        };
        if let Some(VersionMismatch { own, other }) = versions {
            let older = match own.newest < other.oldest {
                true => "this node".to_owned(),
                false => format!("node {node}"),
            };
            let what = format!(
                "a handshake from {from} was refused: node {node} supports protocol {other}, this \
                 node {own}: upgrade {older}"
            );
            return self.versions.warn(now, node, &what);
        }
        if why == RefusedHandshake::OtherPath {
            let what = format!(
                "a handshake of node {node} from {from} was refused: {label}: it has come to another \
                 own address than the `source` or those of the `interface` of its [[link]]: correct \
                 those, or `address` in the [[link]] of node {node}"
            );
            return self.paths.warn(now, node, &what);
        }
        let what = format!(
            "a handshake from {from}, which claims to be node {node}, was refused: {label}"
        );
        match why {
            RefusedHandshake::UnknownKey
            | RefusedHandshake::WrongCertificate
            | RefusedHandshake::Malformed => self.unknown_peers.warn(now, &what),
            _ => self.refusals.warn(now, &what),
        }
    }

    /// Logs that `node` has another key than before; returns whether it was logged.
    pub fn other_key(&mut self, now: Time, node: NodeId, name: &str, from: SocketAddr) -> bool {
        let what = format!(
            "node {node} ({name}), at {from}, has another key than before: if it was not given a \
             new one, two nodes have this number"
        );
        self.other_keys.warn(now, &what)
    }

    /// Logs that the clock of `node`, or (`own`) of this one, went back; returns whether it was
    /// logged.
    pub fn clock_behind(&mut self, now: Time, node: NodeId, from: SocketAddr, own: bool) -> bool {
        let what = if own {
            format!(
                "node {node}, at {from}, has heard later starts of this node than this one: check \
                 this node's clock; the handshake continues"
            )
        } else {
            format!(
                "node {node}, at {from}, had later starts than this one: check its clock, and \
                 revoke its earlier key if it was given a new one; the handshake continues"
            )
        };
        self.clocks.warn(now, &what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_overlay::wire::version::VersionRange;

    /// Anyone with a node's public key can send it handshakes under any number.
    #[test]
    fn no_flood_of_handshakes_hides_another_warning() {
        let at = Time::from_millis;
        let from = SocketAddr::from(([192, 0, 2, 7], 7_000));
        for (node, why) in [
            (None, RefusedHandshake::BadMac),
            (Some(NodeId(77)), RefusedHandshake::UnknownKey),
            (Some(NodeId(77)), RefusedHandshake::WrongCertificate),
            (Some(NodeId(77)), RefusedHandshake::Malformed),
            (Some(NodeId(77)), RefusedHandshake::Revoked),
        ] {
            let mut logs = LimitedLogs::default();
            let flood = |logs: &mut LimitedLogs, ms| logs.refused(at(ms), (from, node), why, None);
            assert!(flood(&mut logs, 0));
            assert!((1..9_999).step_by(200).all(|ms| !flood(&mut logs, ms)));
            assert!(logs.other_key(at(9_999), NodeId(9), "n9", from), "{why:?}");
            assert!(logs.clock_behind(at(9_999), NodeId(9), from, false), "{why:?}");
            let [own, other] = [1, 3].map(VersionRange::up_to);
            let versions = Some(VersionMismatch { own, other });
            for node in [NodeId(3), NodeId(4)] {
                let sender = (from, Some(node));
                assert!(logs.refused(at(9_999), sender, RefusedHandshake::Version, versions));
            }
            assert!(logs.applications.warn(at(9_999), "an application could not attach"));
            let expired = (from, Some(NodeId(9)));
            let is_garbage = why != RefusedHandshake::Revoked;
            let logged = logs.refused(at(9_999), expired, RefusedHandshake::Expired, None);
            assert_eq!(logged, is_garbage, "{why:?}: both kinds have a key");
        }
    }
}
