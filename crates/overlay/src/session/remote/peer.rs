use super::wire::{DATAGRAM_HEAD, Datagram, Token};
use std::net::{IpAddr, SocketAddr};
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

/// Bytes by UDP to an address that has not shown to be the client's, for each that
/// came from there (RFC 9000, 8.1).
const FACTOR: usize = 3;
/// IPv4 and UDP headers.
const HEADERS: usize = 20 + 8;

/// A client as its node sees it over UDP.
///
/// A datagram's source address is a claim: a client can write anybody's, and who
/// reads along can send copies from anywhere. A connection over TCP has shown its
/// host's address by its handshake. So only that host is believed, at whatever port
/// the newest datagram came from; a NAT may give it another. Where TCP and UDP come
/// from different hosts, none is believed: it is sent three times what came from it
/// at most, and the other packets take TCP.
#[derive(Debug)]
pub struct Peer {
    counters: Counters,
    address: Option<SocketAddr>,
    /// The host at the other end of TCP.
    host: Option<IpAddr>,
    /// Bytes from and to `address`, headers included.
    came: usize,
    went: usize,
    wants_udp: bool,
}

impl Peer {
    /// A client that was given `token`, and is at `host` over TCP.
    pub fn new(token: Token, host: Option<IpAddr>) -> Peer {
        Peer {
            counters: Counters::new(token),
            address: None,
            host: host.map(|host| host.to_canonical()),
            came: 0,
            went: 0,
            wants_udp: false,
        }
    }

    fn is_known(&self, address: SocketAddr) -> bool {
        self.host == Some(address.ip().to_canonical())
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

    /// A datagram of `len` bytes with its token came from `from`. False if it is a
    /// copy of an earlier one. Only the newest tells where the client is now: an
    /// older one, overtaken on the way, may come from where it was.
    pub fn accept(&mut self, from: SocketAddr, counter: u64, len: usize) -> bool {
        let Some(newest) = self.counters.fresh(counter) else { return false };
        let keeps = self.address.is_some_and(|address| self.is_known(address));
        if newest && self.address != Some(from) && (self.is_known(from) || !keeps) {
            (self.address, self.came, self.went) = (Some(from), 0, 0);
        }
        if self.address == Some(from) {
            self.came = self.came.saturating_add(len + HEADERS);
        }
        true
    }

    /// The client said how packets shall come.
    pub fn set_udp(&mut self, wanted: bool) {
        self.wants_udp = wanted;
    }

    /// Where its datagrams last came from.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether packets go by UDP, as far as they may.
    pub fn uses_udp(&self) -> bool {
        self.address.is_some() && self.wants_udp
    }

    /// Where to send a datagram of `len` bytes with a packet; `None` if that goes
    /// by TCP.
    pub fn udp(&mut self, len: usize) -> Option<SocketAddr> {
        let address = self.address.filter(|_| self.wants_udp)?;
        if self.is_known(address) {
            return Some(address);
        }
        let went = self.went.saturating_add(len + HEADERS);
        let paid = went <= self.came.saturating_mul(FACTOR);
        self.went = if paid { went } else { self.went };
        paid.then_some(address)
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
        let mut peer = Peer::new(Token(7), Some([192, 0, 2, 1].into()));
        assert_eq!(peer.udp(200), None);
        assert!(peer.accept(at(1), 0, 60));
        assert_eq!(peer.udp(200), None, "not before the client says that it hears");
        peer.set_udp(true);
        assert_eq!(peer.udp(200), Some(at(1)));
        assert!(peer.accept(at(2), 5, 60));
        assert_eq!(peer.udp(200), Some(at(2)), "it moved");
        assert!(peer.accept(at(1), 3, 60), "overtaken on the way");
        assert_eq!(peer.udp(200), Some(at(2)));
        for replayed in [5, 3, 0] {
            assert!(!peer.accept(at(9), replayed, 60), "{replayed}");
        }
        assert!(peer.accept(at(2), 1_000, 60));
        assert!(!peer.is_news(6) && !peer.is_news(1_000) && peer.is_news(999));
        assert!(!peer.accept(at(9), 6, 60), "too old to tell");
        assert_eq!(peer.udp(200), Some(at(2)));
        let counters = [peer.next_head(), peer.next_head()]
            .map(|head| Datagram::parse(&head).unwrap().counter);
        assert_eq!(counters, [0, 1]);
    }

    /// A client that writes somebody's address, or a copy that overtakes.
    #[test]
    fn another_host_than_tcps_gets_little_and_takes_nothing_away() {
        let at = |host, port| SocketAddr::from(([192, 0, 2, host], port));
        let mut peer = Peer::new(Token(7), Some([192, 0, 2, 1].into()));
        peer.set_udp(true);
        let sent = |peer: &mut Peer| {
            (0..1_000).filter_map(|_| peer.udp(188)).map(|to| (to, 188 + HEADERS)).collect()
        };
        assert!(peer.accept(at(9, 5), 0, 60));
        let to_victim: Vec<_> = sent(&mut peer);
        assert!(to_victim.iter().all(|(to, _)| *to == at(9, 5)));
        let bytes: usize = to_victim.iter().map(|(_, n)| n).sum();
        assert!(bytes > 0 && bytes <= FACTOR * (60 + HEADERS), "{bytes}");

        assert!(peer.accept(at(1, 5), 1, 60), "the host of TCP");
        assert!(peer.accept(at(9, 5), 2, 60), "a packet it may bring");
        assert_eq!(peer.address(), Some(at(1, 5)));
        let v6 = SocketAddr::from((std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 6));
        assert!(peer.accept(v6, 3, 60));
        let all: Vec<_> = sent(&mut peer);
        assert_eq!((all.len(), all[0].0), (1_000, v6), "another port of the same host");

        // A proxy's connection says nothing of where the client's datagrams come from.
        let mut peer = Peer::new(Token(7), None);
        peer.set_udp(true);
        for n in 0..50 {
            assert!(peer.accept(at(7, 5), n, 188));
            assert_eq!(peer.udp(188), Some(at(7, 5)), "a call goes both ways");
        }
    }
}
