//! What a proxy counts, and what it says of it.

use crate::clock;
use std::fmt::Display;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::{Error, Status, Unreachable};

/// The same thing is said again only after this.
const QUIET: Duration = Duration::from_secs(10);

/// Why a packet ended here, or is known to have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Larger than the node carries.
    TooLarge,
    /// The node is away.
    NodeAway,
    /// The node does not keep up.
    NodeBusy,
    /// The node knows no way to the other end's node, or has lost it.
    NoRoute,
    /// Nobody is bound to the virtual port.
    NoPort,
    /// Its flow waits for a virtual port, with as many packets as it may.
    Waiting,
    /// Its flow could not get a port or socket.
    Unopened,
    /// A virtual port of a flow got it from somebody else than the far end.
    UnknownPeer,
    /// Nobody listens at the UDP address (ICMP port unreachable).
    UdpRefused,
    /// The system refused to send it by UDP.
    UdpUnsent,
    /// It waited past its deadline, since the proxy had no time to run.
    Stale,
}

impl Reason {
    const ALL: [(Reason, &str); 11] = [
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
        (Reason::Stale, "stale"),
    ];
}

impl Reason {
    /// Why a destination can't be reached.
    pub fn of(why: Unreachable) -> Reason {
        match why {
            Unreachable::NoRoute | Unreachable::Since(_) => Reason::NoRoute,
            Unreachable::NoPort => Reason::NoPort,
        }
    }
}

/// Packets and bytes of one direction.
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

/// What became of flows.
#[derive(Clone, Copy, Default, Debug, serde::Serialize)]
pub struct Flows {
    pub opened: u64,
    pub expired: u64,
    pub displaced: u64,
}

/// All counters.
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

/// When things that are no drops were said.
#[derive(Default, Debug)]
struct LastLogged {
    back: Option<Time>,
    full: Option<Time>,
    reachable: Option<Time>,
    other: Option<Time>,
}

/// Whether to say something last said at `last`, which is then now.
pub(super) fn due(last: &mut Option<Time>) -> bool {
    let now = clock::now();
    let due = last.is_none_or(|last| now.since(last) >= QUIET);
    if due {
        *last = Some(now);
    }
    due
}

impl Tally {
    /// Counts `n` packets that ended for `reason`, and says why now and then.
    pub fn drop(&mut self, reason: Reason, n: usize, why: impl Display) {
        self.dropped[reason as usize] += n as u64;
        if n > 0 && due(&mut self.said[reason as usize]) {
            tracing::warn!("{why}");
        }
    }

    /// Counts a packet that ended for `reason`, of which has been told before.
    pub fn count(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }

    /// Says that what was told of a destination is over.
    pub fn reachable(&mut self, status: &Status) {
        // It may happen again.
        self.said[Reason::NoRoute as usize] = None;
        self.said[Reason::NoPort as usize] = None;
        if due(&mut self.told.reachable) {
            tracing::info!("{status}");
        }
    }

    /// The table was full.
    pub fn displaced(&mut self, max: usize) {
        self.flows.displaced += 1;
        if due(&mut self.told.full) {
            tracing::warn!(
                "more than {max} senders at once: the one silent longest was forgotten, and \
                 will seem to be a new one; allow more with --max-flows"
            );
        }
    }

    /// Takes an error of the overlay. True if it is news of something earlier,
    /// so that the call is worth repeating; else the `n` packets at hand are lost.
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
            // Whoever sent has counted what is lost for it.
            Error::Status(_) => {}
            Error::Reconnected => {
                self.reconnects += 1;
                // What was said while it was away can be said again.
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

    /// A summary: one line for people.
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

    /// The same for programs.
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
