use super::wire::{DATAGRAM_HEAD, Datagram, Token};
use std::net::{IpAddr, SocketAddr};
use trunkline_base::SeqWindow;

/// Counter of one side's datagrams, and the window of the other side's.
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

    /// Whether `counter` would be new: refuses a copy cheaply, before it is opened.
    pub(super) fn may_be_fresh(&self, counter: u64) -> bool {
        self.seen.as_ref().is_none_or(|seen| {
            counter.saturating_add(seen.size()) > seen.highest() && !seen.contains(counter)
        })
    }

    /// Records `counter`. `None` if it is not new; otherwise, whether it is the highest.
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

/// Bytes sent over UDP to an address that has not been shown to be the client's, per byte received
/// from it (RFC 9000, 8.1).
const FACTOR: usize = 3;
/// Bytes of the IPv4 and UDP headers.
const HEADERS: usize = 20 + 8;

/// The node's view of a client over UDP.
///
/// A datagram's source address is a mere claim: a client can forge any address, and an eavesdropper
/// can send copies from anywhere. A connection over TCP has validated its host's address by its
/// handshake. So only that host is trusted, at whatever port the newest datagram came from; a NAT
/// may assign another. If TCP and UDP come from different hosts, no UDP address is trusted: it is
/// sent at most three times the bytes received from it, and the other packets take TCP.
#[derive(Debug)]
pub struct Peer {
    counters: Counters,
    address: Option<SocketAddr>,
    /// The host at the other end of TCP; `None` if that says nothing about the client's address.
    host: Option<IpAddr>,
    /// Bytes received from and sent to `address`, headers included.
    came: usize,
    went: usize,
    wants_udp: bool,
}

impl Peer {
    /// A client that was given `token`, and connects from `host` over TCP.
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

    /// The token with which its datagrams begin.
    pub fn token(&self) -> Token {
        self.counters.token
    }

    /// Whether a datagram with this counter is no copy of an earlier one. Check this before opening
    /// it, and [`Peer::accept`] it once it has proved genuine.
    pub fn is_news(&self, counter: u64) -> bool {
        self.counters.may_be_fresh(counter)
    }

    /// Accepts a datagram of `len` bytes with this client's token from `from`. False if it is a
    /// copy of an earlier one. Only the newest shows the client's present address: an older one,
    /// overtaken by others, may come from a previous one.
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

    /// Sets whether the client wants packets over UDP.
    pub fn set_udp(&mut self, wanted: bool) {
        self.wants_udp = wanted;
    }

    /// Source address of its newest datagram.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether packets take UDP, as far as limits permit.
    pub fn uses_udp(&self) -> bool {
        self.address.is_some() && self.wants_udp
    }

    /// Destination of a datagram of `len` bytes with a packet; `None` if the packet takes TCP.
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

    /// The bytes before the message of the next datagram to the client.
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

    /// A client that forges an address, or a copy that overtakes the original.
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

        // A proxy's connection says nothing about the source of the client's datagrams.
        let mut peer = Peer::new(Token(7), None);
        peer.set_udp(true);
        for n in 0..50 {
            assert!(peer.accept(at(7, 5), n, 188));
            assert_eq!(peer.udp(188), Some(at(7, 5)), "a call goes both ways");
        }
    }
}
