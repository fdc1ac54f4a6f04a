use super::wire::{DATAGRAM_HEAD, Datagram, Token};
use std::net::SocketAddr;
use trunkline_base::SeqWindow;

/// One side's numbering of datagrams, and what it has seen of the other's.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) token: Token,
    sent: u64,
    seen: Option<SeqWindow<[u64; 4]>>,
}

impl Counters {
    pub(super) fn new(token: Token) -> Counters {
        Counters { token, sent: 0, seen: None }
    }

    /// Whether `counter` would be new: to refuse a copy before it is opened, at
    /// the price of a look.
    pub(super) fn may_be_fresh(&self, counter: u64) -> bool {
        self.seen.as_ref().is_none_or(|seen| {
            counter.saturating_add(seen.size()) > seen.highest() && !seen.contains(counter)
        })
    }

    /// Whether `counter` is new; and if so, whether it is the highest.
    pub(super) fn fresh(&mut self, counter: u64) -> Option<bool> {
        let Some(seen) = &mut self.seen else {
            self.seen = Some(SeqWindow::starting_at(counter, [0; 4]));
            return Some(true);
        };
        let newest = counter > seen.highest();
        seen.insert(counter).then_some(newest)
    }

    pub(super) fn next_head(&mut self) -> [u8; DATAGRAM_HEAD] {
        let counter = self.sent;
        self.sent += 1;
        Datagram { token: self.token, counter, message: &[] }.head()
    }
}

/// A client as its node sees it over UDP.
#[derive(Debug)]
pub struct Peer {
    counters: Counters,
    address: Option<SocketAddr>,
    wants_udp: bool,
}

impl Peer {
    /// A client that was given `token`.
    pub fn new(token: Token) -> Peer {
        Peer { counters: Counters::new(token), address: None, wants_udp: false }
    }

    /// What its datagrams begin with.
    pub fn token(&self) -> Token {
        self.counters.token
    }

    /// Whether a datagram with this counter is no copy of an earlier one. Ask
    /// before opening it; [`Peer::accept`] it once it is known to be true.
    pub fn is_news(&self, counter: u64) -> bool {
        self.counters.may_be_fresh(counter)
    }

    /// A datagram with its token came from `from`. False if it is a copy of an
    /// earlier one. Only the newest tells where the client is now: an older
    /// one, overtaken on the way, may come from where it was.
    pub fn accept(&mut self, from: SocketAddr, counter: u64) -> bool {
        match self.counters.fresh(counter) {
            None => false,
            Some(newest) => {
                if newest {
                    self.address = Some(from);
                }
                true
            }
        }
    }

    /// The client said how packets shall come.
    pub fn set_udp(&mut self, wanted: bool) {
        self.wants_udp = wanted;
    }

    /// Where its datagrams last came from.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where to send packets by UDP; `None` if they go by TCP.
    pub fn udp(&self) -> Option<SocketAddr> {
        self.address.filter(|_| self.wants_udp)
    }

    /// The bytes before the message of the next datagram to it.
    pub fn next_head(&mut self) -> [u8; DATAGRAM_HEAD] {
        self.counters.next_head()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_datagram_tells_where_the_client_is() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut peer = Peer::new(Token(7));
        assert_eq!(peer.udp(), None);
        assert!(peer.accept(at(1), 0));
        assert_eq!(peer.udp(), None, "not before the client says that it hears");
        peer.set_udp(true);
        assert_eq!(peer.udp(), Some(at(1)));
        assert!(peer.accept(at(2), 5));
        assert_eq!(peer.udp(), Some(at(2)), "it moved");
        assert!(peer.accept(at(1), 3), "overtaken on the way");
        assert_eq!(peer.udp(), Some(at(2)));
        for replayed in [5, 3, 0] {
            assert!(!peer.accept(at(9), replayed), "{replayed}");
        }
        assert!(peer.accept(at(2), 1_000));
        assert!(!peer.is_news(6) && !peer.is_news(1_000) && peer.is_news(999));
        assert!(!peer.accept(at(9), 6), "too old to tell");
        assert_eq!(peer.udp(), Some(at(2)));
        let counters = [peer.next_head(), peer.next_head()]
            .map(|head| Datagram::parse(&head).unwrap().counter);
        assert_eq!(counters, [0, 1]);
    }
}
