//! The own address that each neighbour speaks to. It is the one to answer from: a firewall between
//! them lets nothing else through, and the kernel would choose by route alone.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use trunkline_overlay::wire::Kind;

/// Maximum number of neighbours that are remembered. Senders may be invented, but a node answers
/// before so many others come in.
const MAX_SPOKEN: usize = 1_024;

/// Where a message came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Number of the listener.
    pub listener: usize,
    /// Own address that the message was sent to, if the listener reports it.
    pub own: Option<IpAddr>,
}

/// Whether a datagram is the first message of an exchange, so that its sender chose where to.
pub fn begins_exchange(datagram: &[u8]) -> bool {
    matches!(Kind::of(datagram), Ok(Kind::Query | Kind::Initiation))
}

/// The entrances of the last first messages, by sender.
#[derive(Default, Debug)]
pub struct Spoken {
    entrances: BTreeMap<SocketAddr, Entrance>,
    /// The senders, the one noted first in front.
    order: VecDeque<SocketAddr>,
}

impl Spoken {
    /// Records that `from` spoke to `entrance`.
    pub fn note(&mut self, from: SocketAddr, entrance: Entrance) {
        if self.entrances.insert(from, entrance).is_some() {
            return;
        }
        self.order.push_back(from);
        if self.order.len() > MAX_SPOKEN {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.entrances.remove(&oldest));
        }
    }

    /// Where `from` spoke to last.
    pub fn entrance(&self, from: &SocketAddr) -> Option<Entrance> {
        self.entrances.get(from).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entrance_counts_and_the_oldest_sender_makes_room() {
        let mut spoken = Spoken::default();
        let from = |n: u16| SocketAddr::from(([192, 0, 2, 1], n));
        let entrance = |listener| Entrance { listener, own: None };
        for listener in [0, 0, 1] {
            spoken.note(from(1), entrance(listener));
        }
        assert_eq!(spoken.entrance(&from(1)), Some(entrance(1)));
        for n in 2..3_000 {
            spoken.note(from(n), entrance(0));
        }
        assert_eq!((spoken.entrances.len(), spoken.order.len()), (MAX_SPOKEN, MAX_SPOKEN));
        assert_eq!(spoken.entrance(&from(1)), None);
    }

    #[test]
    fn only_first_messages_count() {
        let kinds = (0x11..=0x17u8).filter(|kind| begins_exchange(&[*kind, 0]));
        assert_eq!(kinds.collect::<Vec<_>>(), [0x13, 0x15]);
        assert!(!begins_exchange(&[]));
    }
}
