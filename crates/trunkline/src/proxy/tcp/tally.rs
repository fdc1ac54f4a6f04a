//! The counters of a TCP proxy, its summary and its warnings.

use crate::proxy::tally::due;
use std::fmt::{Arguments, Display};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trunkline_base::Time;

/// Reason why a connection or a stream was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedConnection {
    /// The limit of `--max-flows` has been reached.
    TooMany,
    /// The limit of `--max-flows-per-node` has been reached.
    TooManyOfNode,
    /// There is no connection to the node.
    NodeAway,
    /// The stream could not be opened.
    NoStream,
    /// The connection to the TCP server failed.
    NoTcp,
    /// This process has no descriptors left.
    NoFiles,
}

impl RefusedConnection {
    const ALL: [(RefusedConnection, &str); 6] = [
        (RefusedConnection::TooMany, "too_many"),
        (RefusedConnection::TooManyOfNode, "too_many_of_node"),
        (RefusedConnection::NodeAway, "node_away"),
        (RefusedConnection::NoStream, "no_stream"),
        (RefusedConnection::NoTcp, "no_tcp"),
        (RefusedConnection::NoFiles, "no_files"),
    ];
}

/// The counters of a TCP proxy since its start.
#[derive(Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    to_overlay: u64,
    from_overlay: u64,
    opened: u64,
    ended: u64,
    broken: u64,
    refused: [u64; RefusedConnection::ALL.len()],
    said: [Option<Time>; RefusedConnection::ALL.len()],
    complained: Option<Time>,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        // No code panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes copied from TCP into a stream.
    pub fn went(&self, bytes: usize) {
        self.lock().to_overlay += bytes as u64;
    }

    /// Counts bytes copied from a stream into TCP.
    pub fn came(&self, bytes: usize) {
        self.lock().from_overlay += bytes as u64;
    }

    /// Counts a connection that was joined to a stream.
    pub fn opened(&self) {
        self.lock().opened += 1;
    }

    /// Counts a connection that has ended. `is_whole` is true if both sides received everything,
    /// and false if it was reset.
    pub fn ended(&self, is_whole: bool) {
        let mut counts = self.lock();
        *(if is_whole { &mut counts.ended } else { &mut counts.broken }) += 1;
    }

    /// Counts a connection or a stream that was refused, and logs `what` as a warning, at a limited
    /// rate for each reason.
    pub fn refused(&self, why: RefusedConnection, what: impl Display) {
        let mut counts = self.lock();
        counts.refused[why as usize] += 1;
        if due(&mut counts.said[why as usize]) {
            tracing::warn!("{what}");
        }
    }

    /// Logs a warning that is not about a refusal, at a limited rate.
    pub fn complain(&self, what: Arguments<'_>) {
        if due(&mut self.lock().complained) {
            tracing::warn!("{what}");
        }
    }

    /// All counters in one line, for people.
    pub fn line(&self) -> String {
        let c = self.lock();
        let mut line = format!(
            "{} bytes to the overlay, {} from it; {} connections, {} of them ended well, {} broke \
             off; ",
            c.to_overlay, c.from_overlay, c.opened, c.ended, c.broken
        );
        let counted = RefusedConnection::ALL.iter().zip(c.refused).filter(|(_, n)| *n > 0);
        let refused: Vec<String> = counted.map(|((_, name), n)| format!("{n} {name}")).collect();
        match refused.is_empty() {
            true => line += "none refused",
            false => line += &format!("refused: {}", refused.join(", ")),
        }
        line
    }

    /// All counters as JSON, for programs.
    pub fn json(&self) -> serde_json::Value {
        let c = self.lock();
        let refused: serde_json::Map<String, serde_json::Value> = RefusedConnection::ALL
            .iter()
            .zip(c.refused)
            .map(|((_, name), n)| ((*name).to_owned(), n.into()))
            .collect();
        serde_json::json!({
            "to_overlay": { "bytes": c.to_overlay },
            "from_overlay": { "bytes": c.from_overlay },
            "connections": {
                "opened": c.opened,
                "ended": c.ended,
                "broken": c.broken,
            },
            "refused": refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_place() {
        for (i, (why, _)) in RefusedConnection::ALL.iter().enumerate() {
            assert_eq!(*why as usize, i, "{why:?}");
        }
        let tally = Tally::default();
        assert!(tally.line().ends_with("none refused"), "{}", tally.line());
        tally.refused(RefusedConnection::NoTcp, "why");
        tally.opened();
        tally.ended(false);
        assert!(tally.line().ends_with("1 broke off; refused: 1 no_tcp"), "{}", tally.line());
        assert_eq!(tally.json()["refused"]["no_tcp"], 1);
        assert_eq!(tally.json()["connections"]["broken"], 1);
    }
}
