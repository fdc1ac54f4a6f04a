//! Latching (RFC 7362): the sources that a media port accepts, where a NAT may have changed the
//! address in the description.

use crate::media::Remote;
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;

/// Time in which a phone that has described itself again can show that it still sends from its old
/// address, before another source is accepted: a few packets.
const MOVING: Duration = Duration::from_millis(200);

/// The source that one port accepts. The first packet from an address at which the phone may be
/// determines it. Only the exact address in the description can take over from it, and that one
/// then stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latch {
    heard: Option<SocketAddr>,
    /// Time of the last description after which the phone may have moved.
    moves: Option<Time>,
}

impl Latch {
    /// Address that the phone sends from, once known; media for the phone go there.
    pub fn heard(&self) -> Option<SocketAddr> {
        self.heard
    }

    /// The phone has described itself again with the same address: a NAT may have moved it.
    pub fn reopen(&mut self, now: Time) {
        self.moves = Some(now);
    }

    /// Whether a datagram from `from` comes from the phone at `remote`; `kind` is 0 for RTP, 1 for
    /// RTCP.
    pub fn admits(&mut self, now: Time, from: SocketAddr, kind: usize, remote: &Remote) -> bool {
        let Remote::Udp { rtp, rtcp, from: allowed } = remote else { return false };
        let canonical = |at: &SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let from = canonical(&from);
        let said = [rtp, rtcp][kind.min(1)].as_ref().map(canonical);
        let is_its = match self.heard {
            Some(known) if known == from => true,
            _ if said == Some(from) => true,
            Some(known) if said == Some(known) => false,
            heard => {
                let is_free = heard.is_none() || self.moves.is_some_and(|at| now >= at + MOVING);
                is_free && allowed.contains(&Some(from.ip()))
            }
        };
        if is_its {
            *self = Latch { heard: Some(from), moves: None };
        }
        is_its
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A phone that gives its address as 10.1.0.9:4000, and whose signalling comes from 192.0.2.1.
    const PHONE: &str = "10.1.0.9:4000";

    struct Port(Latch, Time);

    impl Port {
        fn new() -> Port {
            Port(Latch::default(), Time::ZERO)
        }

        fn takes(&mut self, from: &str) -> bool {
            let said: SocketAddr = PHONE.parse().unwrap();
            let from_ips = [Some(said.ip()), Some([192, 0, 2, 1].into())];
            let remote = Remote::Udp { rtp: Some(said), rtcp: None, from: from_ips };
            self.0.admits(self.1, from.parse().unwrap(), 0, &remote)
        }

        fn wait(&mut self, millis: u64) {
            self.1 += Duration::from_millis(millis);
        }
    }

    #[test]
    fn the_first_to_send_from_an_allowed_address_is_heard_alone() {
        let mut port = Port::new();
        assert!(!port.takes("192.0.2.66:1024"));
        assert!(port.takes("192.0.2.1:1024"));
        assert!(!port.takes("192.0.2.1:1025"));
        port.wait(60_000);
        assert!(!port.takes("10.1.0.9:4002"));
        assert!(port.takes("[::ffff:192.0.2.1]:1024"));
        assert_eq!(port.0.heard(), Some("192.0.2.1:1024".parse().unwrap()));
    }

    #[test]
    fn the_very_place_that_is_named_takes_the_port_back_and_keeps_it() {
        let mut port = Port::new();
        // Another process on the same host sent first.
        assert!(port.takes("10.1.0.9:6666"));
        assert!(port.takes(PHONE));
        assert_eq!(port.0.heard(), Some(PHONE.parse().unwrap()));
        assert!(!port.takes("10.1.0.9:6666"));
        port.0.reopen(port.1);
        port.wait(1_000);
        assert!(!port.takes("10.1.0.9:6666"));
    }

    #[test]
    fn a_new_description_finds_a_phone_that_its_nat_has_moved() {
        let mut port = Port::new();
        assert!(port.takes("192.0.2.1:1024"));
        port.0.reopen(port.1);
        // A phone that keeps sending is the same as before, and no other source is accepted.
        assert!(!port.takes("192.0.2.1:2000"));
        assert!(port.takes("192.0.2.1:1024"));
        port.wait(1_000);
        assert!(!port.takes("192.0.2.1:2000"));
        // A phone that is silent has moved; until its packets arrive, media go to its old address.
        port.0.reopen(port.1);
        assert_eq!(port.0.heard(), Some("192.0.2.1:1024".parse().unwrap()));
        port.wait(200);
        assert!(port.takes("192.0.2.1:2000"));
        assert!(!port.takes("192.0.2.1:1024"));
    }

    #[test]
    fn nobody_sends_by_udp_who_is_over_the_overlay() {
        let remote = Remote::Nobody;
        assert!(!Latch::default().admits(Time::ZERO, PHONE.parse().unwrap(), 0, &remote));
    }
}
