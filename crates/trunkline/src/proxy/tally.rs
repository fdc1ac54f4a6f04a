//! Counters of a proxy, and its log messages about them.

use super::Limits;
use crate::clock;
use std::fmt::Display;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::{Error, RefusalReason, Status, Unreachable};

/// Minimum interval between log messages of the same kind.
const QUIET: Duration = Duration::from_secs(10);

/// Reason why a packet was dropped here, or is known to have been dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The packet exceeds the node's maximum.
    TooLarge,
    /// The node is not connected.
    NodeAway,
    /// The node is too busy to accept it.
    NodeBusy,
    /// The node has no route to the other end's node, or has lost it.
    NoRoute,
    /// The virtual port is not bound.
    NoPort,
    /// Its flow waits for a virtual port, and its queue is full.
    Waiting,
    /// Its flow could not open a port or socket.
    Unopened,
    /// A flow's virtual port received it from a source other than the far end.
    UnknownPeer,
    /// The UDP address has no listener (ICMP port unreachable).
    UdpRefused,
    /// The system call to send it by UDP failed.
    UdpUnsent,
    /// The node allows this user's applications no more.
    OverRate,
    /// It exceeded its deadline in a queue, since the proxy was not scheduled in time.
    Stale,
}

impl Reason {
    const ALL: [(Reason, &str); 12] = [
        (Reason::TooLarge, "too_large"),
        (Reason::NodeAway, "node_away"),
        (Reason::NodeBusy, "node_busy"),
        (Reason::NoRoute, "no_route"),
        (Reason::NoPort, "no_port"),
        (Reason::Waiting, "waiting"),
        (Reason::Unopened, "unopened"),
        (Reason::UnknownPeer, "unknown_peer"),
        (Reason::UdpRefused, "udp_refused"),
        (Reason::UdpUnsent, "udp_unsent"),
        (Reason::OverRate, "over_rate"),
        (Reason::Stale, "stale"),
    ];
}

impl Reason {
    /// Maps the reason for which a destination is unreachable.
    pub fn of(why: Unreachable) -> Reason {
        match why {
            Unreachable::NoRoute | Unreachable::Since(_) => Reason::NoRoute,
            Unreachable::NoPort => Reason::NoPort,
        }
    }
}

/// Count of packets and bytes in one direction.
#[derive(Clone, Copy, Default, Debug, serde::Serialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

impl Count {
    pub fn add(&mut self, packet: &[u8]) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
    }
}

/// Counters of flows, by outcome.
#[derive(Clone, Copy, Default, Debug, serde::Serialize)]
pub struct Flows {
    pub opened: u64,
    pub expired: u64,
    pub displaced: u64,
}

/// All counters of a proxy.
#[derive(Default, Debug)]
pub struct Tally {
    pub to_overlay: Count,
    pub from_overlay: Count,
    pub flows: Flows,
    reconnects: u64,
    dropped: [u64; Reason::ALL.len()],
    said: [Option<Time>; Reason::ALL.len()],
    told: LastLogged,
}

/// Times of the last messages that are not about drops.
#[derive(Default, Debug)]
struct LastLogged {
    back: Option<Time>,
    full: Option<Time>,
    reachable: Option<Time>,
    other: Option<Time>,
}

/// Whether a message last logged at `last` is due again; if so, sets `last` to now.
pub(super) fn due(last: &mut Option<Time>) -> bool {
    let now = clock::now();
    let due = last.is_none_or(|last| now.since(last) >= QUIET);
    if due {
        *last = Some(now);
    }
    due
}

impl Tally {
    /// Counts `n` packets dropped for `reason`, and logs `why` at a limited rate.
    pub fn drop(&mut self, reason: Reason, n: usize, why: impl Display) {
        self.dropped[reason as usize] += n as u64;
        if n > 0 && due(&mut self.said[reason as usize]) {
            tracing::warn!("{why}");
        }
    }

    /// Counts a packet dropped for a `reason` that has been logged before.
    pub fn count(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }

    /// Logs that a destination is reachable again.
    pub fn reachable(&mut self, status: &Status) {
        // The same failure is logged at once if it recurs.
        self.said[Reason::NoRoute as usize] = None;
        self.said[Reason::NoPort as usize] = None;
        if due(&mut self.told.reachable) {
            tracing::info!("{status}");
        }
    }

    /// Counts a flow displaced by a new one because the table was full, or its origin had its
    /// share.
    pub fn displaced(&mut self, limits: &Limits) {
        self.flows.displaced += 1;
        if due(&mut self.told.full) {
            tracing::warn!(
                "more than {} senders at once, or {} of one node or host: of the node or host with \
                 the most, the one silent longest was forgotten, and will seem to be a new one; \
                 allow more with --max-flows and --max-flows-per-node",
                limits.max_flows,
                limits.max_flows_each
            );
        }
    }

    /// Handles an error of the overlay. Returns true if the error concerns something earlier, so
    /// that the call should be retried; otherwise the `n` packets at hand are lost.
    pub fn overlay(&mut self, error: &Error, n: usize) -> bool {
        match error {
            Error::TooLarge { len, max } => {
                self.drop(Reason::TooLarge, n, format_args!(
                    "a packet of {len} bytes was dropped: the overlay carries up to {max}; make \
                     the program send smaller ones (ffmpeg: ?pkt_size={max}, iperf3: -l {max})"
                ));
            }
            Error::Disconnected => {
                let why = "the node is away: packets are dropped until it is back";
                self.drop(Reason::NodeAway, n, why);
            }
            Error::WouldBlock => {
                let why = "the node does not keep up: packets are dropped";
                self.drop(Reason::NodeBusy, n, why);
            }
            // The sender has already counted the packets lost for this reason.
            Error::Status(_) => {}
            // About an earlier packet.
            Error::Refused(RefusalReason::OverRate) => self.drop(Reason::OverRate, 1, error),
            Error::Reconnected => {
                self.reconnects += 1;
                // Messages logged while the node was away may be logged again.
                self.said[Reason::NodeAway as usize] = None;
                if due(&mut self.told.back) {
                    tracing::info!("{error}; the proxy continues");
                }
            }
            _ => {
                if due(&mut self.told.other) {
                    tracing::warn!("{error}; the proxy continues");
                }
            }
        }
        !matches!(error, Error::TooLarge { .. } | Error::Disconnected | Error::WouldBlock)
    }

    /// All counters in one line, for people.
    pub fn line(&self) -> String {
        let (to, from, flows) = (&self.to_overlay, &self.from_overlay, &self.flows);
        let mut line = format!(
            "{} packets ({} bytes) to the overlay, {} ({} bytes) from it; {} flows, {} of them \
             expired, {} displaced; ",
            to.packets,
            to.bytes,
            from.packets,
            from.bytes,
            flows.opened,
            flows.expired,
            flows.displaced
        );
        let dropped: Vec<String> = Reason::ALL
            .iter()
            .filter(|(reason, _)| self.dropped[*reason as usize] > 0)
            .map(|(reason, name)| format!("{} {name}", self.dropped[*reason as usize]))
            .collect();
        match dropped.is_empty() {
            true => line += "nothing dropped",
            false => line += &format!("dropped: {}", dropped.join(", ")),
        }
        line
    }

    /// All counters as JSON, for programs.
    pub fn json(&self) -> serde_json::Value {
        let dropped: serde_json::Map<String, serde_json::Value> = Reason::ALL
            .iter()
            .map(|(reason, name)| ((*name).to_owned(), self.dropped[*reason as usize].into()))
            .collect();
        serde_json::json!({
            "to_overlay": self.to_overlay,
            "from_overlay": self.from_overlay,
            "flows": self.flows,
            "reconnects": self.reconnects,
            "dropped": dropped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place() {
        for (i, (reason, _)) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i, "{reason:?}");
        }
        let mut tally = Tally::default();
        assert!(tally.line().ends_with("nothing dropped"), "{}", tally.line());
        assert!(!tally.overlay(&Error::TooLarge { len: 9, max: 8 }, 3));
        assert!(tally.overlay(&Error::Reconnected, 3));
        assert!(tally.line().ends_with("dropped: 3 too_large"), "{}", tally.line());
        assert_eq!(tally.json()["dropped"]["too_large"], 3);
        assert_eq!(tally.json()["reconnects"], 1);
    }
}
