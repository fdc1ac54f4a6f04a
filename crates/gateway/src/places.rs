//! The places that the ends of all calls send from: a place is one leg's while packets come from it,
//! so that packets of another call never move there, and another leg's when a NAT has given it away.

use crate::latch::{Arrival, Latch, Peer};
use crate::media::Relay;
use core::net::SocketAddr;
use std::collections::BTreeMap;
use trunkline_base::Time;

/// One leg of a stream, with the latches of its two ports.
pub trait Latched {
    /// Where its packets go, and what is known of its end; `None` until it is connected.
    fn relay(&self) -> Option<&Relay>;
    /// The latches at its ports for RTP and RTCP.
    fn latches(&self) -> &[Latch; 2];
    /// The same, to change them.
    fn parts(&mut self) -> (Option<&Relay>, &mut [Latch; 2]);
}

/// For each place that a leg is latched to, the first port of that leg.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<SocketAddr, u16>);

impl Places {
    /// Whether a datagram comes from the end of the leg `port`, which is latched to its source if need
    /// be.
    pub fn admits<L: Latched>(
        &mut self,
        legs: &mut BTreeMap<u16, L>,
        port: u16,
        arrival: &Arrival,
    ) -> bool {
        let Some(leg) = legs.get(&port) else { return false };
        let before = leg.latches()[arrival.kind].heard();
        let from = SocketAddr::new(arrival.from.ip().to_canonical(), arrival.from.port());
        let is_taken = before != Some(from) && self.is_taken(legs, port, from, arrival.at);
        let Some((Some(relay), latches)) = legs.get_mut(&port).map(Latched::parts) else {
            return false;
        };
        let latch = &mut latches[arrival.kind];
        let is_its = latch.admits(arrival, &Peer::of(relay), |_| is_taken);
        let heard = latch.heard();
        if before != heard {
            self.leave(legs, port, before);
            if let Some(at) = heard.filter(|_| !is_taken) {
                self.claim(legs, port, at);
            }
        }
        is_its
    }

    /// The end of the leg `port` has described itself, or the leg is to be closed: places that it is
    /// no longer latched to are free. `before` has those of its two latches.
    pub fn release<L: Latched>(
        &mut self,
        legs: &BTreeMap<u16, L>,
        port: u16,
        before: [Option<SocketAddr>; 2],
    ) {
        before.into_iter().for_each(|place| self.leave(legs, port, place));
    }

    /// Whether a place is another call's: a leg that is latched to it, whose end should send, has
    /// heard it a short time ago.
    fn is_taken<L: Latched>(
        &self,
        legs: &BTreeMap<u16, L>,
        port: u16,
        at: SocketAddr,
        now: Time,
    ) -> bool {
        let owner = self.0.get(&at).filter(|owner| **owner != port);
        let (Some(owner), Some(leg)) = (owner.and_then(|owner| legs.get(owner)), legs.get(&port))
        else {
            return false;
        };
        owner.relay().is_some_and(|relay| relay.sends)
            && !is_same_call(owner, leg)
            && owner.latches().iter().any(|latch| latch.holds(at, now))
    }

    /// The end of the leg `port` sends from `at` now. Nothing of another call is sent there any more.
    fn claim<L: Latched>(&mut self, legs: &mut BTreeMap<u16, L>, port: u16, at: SocketAddr) {
        let Some(owner) = self.0.insert(at, port).filter(|owner| *owner != port) else { return };
        let both = (legs.get(&owner), legs.get(&port));
        if let (Some(owner), Some(leg)) = both
            && is_same_call(owner, leg)
        {
            return;
        }
        if let Some(leg) = legs.get_mut(&owner) {
            leg.parts().1.iter_mut().for_each(|latch| latch.leave(at));
        }
    }

    fn leave<L: Latched>(&mut self, legs: &BTreeMap<u16, L>, port: u16, place: Option<SocketAddr>) {
        let Some(at) = place.filter(|at| self.0.get(at) == Some(&port)) else { return };
        let hears = |leg: &L| leg.latches().iter().any(|latch| latch.heard() == Some(at));
        if legs.get(&port).is_some_and(hears) {
            return;
        }
        // Packets of another leg's stream may come from there, too.
        match legs.iter().find(|(other, leg)| **other != port && hears(leg)) {
            Some((other, _)) => self.0.insert(at, *other),
            None => self.0.remove(&at),
        };
    }
}

fn is_same_call(a: &impl Latched, b: &impl Latched) -> bool {
    a.relay().zip(b.relay()).is_some_and(|(a, b)| a.call == b.call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::CallId;
    use crate::config::Network;
    use crate::media::Remote;
    use crate::reception::Clocks;
    use std::sync::Arc;

    #[derive(Default)]
    struct Leg {
        relay: Option<Relay>,
        latches: [Latch; 2],
    }

    impl Latched for Leg {
        fn relay(&self) -> Option<&Relay> {
            self.relay.as_ref()
        }
        fn latches(&self) -> &[Latch; 2] {
            &self.latches
        }
        fn parts(&mut self) -> (Option<&Relay>, &mut [Latch; 2]) {
            (self.relay.as_ref(), &mut self.latches)
        }
    }

    /// Phones behind one NAT, each in a call of its own; phone `n` has port `10 * n` here.
    #[derive(Default)]
    struct Gateway {
        legs: BTreeMap<u16, Leg>,
        places: Places,
        now: u64,
    }

    fn nat(port: u16) -> SocketAddr {
        SocketAddr::new([192, 0, 2, 1].into(), port)
    }

    impl Gateway {
        fn with(phones: u16) -> Gateway {
            let mut gateway = Gateway::default();
            (0..phones).for_each(|n| gateway.describe(n, 1));
            gateway
        }

        fn describe(&mut self, n: u16, described: u32) {
            let rtp = SocketAddr::new([10, 0, 0, n as u8].into(), 4_000 + described as u16);
            let from = [Some(rtp.ip()), Some(nat(0).ip())];
            let relay = Relay {
                call: CallId(n.into()),
                onto: 0,
                remote: Remote::Udp { rtp: Some(rtp), rtcp: None, from },
                described,
                network: Arc::new(Network::default()),
                sends: true,
                told: false,
                is_rtp: true,
                is_encrypted: false,
                clocks: Clocks::default(),
            };
            let leg = self.legs.entry(10 * n).or_default();
            let before = [leg.latches[0].heard(), leg.latches[1].heard()];
            let old = leg.relay.as_ref().map_or(Remote::Nobody, |relay| relay.remote);
            let peer = Peer::of(&relay);
            leg.latches.iter_mut().enumerate().for_each(|(k, l)| l.describe(k, &old, &peer));
            leg.relay = Some(relay);
            self.places.release(&self.legs, 10 * n, before);
        }

        fn close(&mut self, n: u16) {
            let latches = self.legs.remove(&(10 * n)).map(|leg| leg.latches).unwrap_or_default();
            self.places.release(&self.legs, 10 * n, [latches[0].heard(), latches[1].heard()]);
        }

        /// Whether phone `n`'s packet from a port of the NAT is accepted.
        fn takes(&mut self, n: u16, from: u16, ssrc: u32) -> bool {
            let at = Time::from_millis(self.now);
            let arrival = Arrival { at, from: nat(from), kind: 0, ssrc: Some(ssrc) };
            self.places.admits(&mut self.legs, 10 * n, &arrival)
        }

        /// A packet of each phone every 20 ms, from the NAT's port that `port` gives to it. Returns how
        /// many phones were heard at the end.
        fn run(&mut self, phones: u16, millis: u64, port: impl Fn(u16) -> u16) -> usize {
            let mut heard = 0;
            for _ in 0..millis / 20 {
                self.now += 20;
                heard = (0..phones).filter(|n| self.takes(*n, port(*n), (*n).into())).count();
            }
            heard
        }

        fn sends_to(&self, n: u16) -> Option<u16> {
            self.legs[&(10 * n)].latches[0].heard().map(|at| at.port())
        }
    }

    #[test]
    fn a_nat_may_give_the_ports_of_forty_phones_to_one_another() {
        for turn in 1..4 {
            let mut gateway = Gateway::with(40);
            let at = |by: u16| move |n: u16| 1_024 + (n + by) % 40;
            assert_eq!(gateway.run(40, 5_000, at(0)), 40);
            for n in 1..10 {
                gateway.run(40, 1_200, at(n * turn));
                assert_eq!(gateway.run(40, 100, at(n * turn)), 40);
                for phone in 0..40 {
                    assert_eq!(gateway.sends_to(phone), Some(at(n * turn)(phone)), "{phone}");
                }
            }
        }
    }

    #[test]
    fn a_port_that_a_silent_phone_had_is_the_next_ones() {
        let mut gateway = Gateway::with(2);
        gateway.run(2, 5_000, |n| 1_024 + n);
        // Phone 1 is muted, and phone 0 comes from its port.
        gateway.now += 980;
        assert!(!gateway.takes(0, 1_025, 0), "a packet came from there less than a second ago");
        gateway.now += 20;
        assert!(gateway.takes(0, 1_025, 0));
        assert_eq!((gateway.sends_to(0), gateway.sends_to(1)), (Some(1_025), None));
        // It has another port now.
        assert!(gateway.takes(1, 1_024, 1));
        assert_eq!(gateway.sends_to(1), Some(1_024));
    }

    #[test]
    fn a_place_is_its_legs_while_packets_come_from_there() {
        let mut gateway = Gateway::with(2);
        gateway.run(2, 5_000, |n| 1_024 + n);
        gateway.describe(0, 2);
        for _ in 0..500 {
            gateway.run(2, 100, |n| 1_024 + n);
            assert!(!gateway.takes(0, 1_025, 0), "with the stream's own source");
        }
        // The other leg lost its place, and only its own stream moves at once.
        gateway.run(1, 1_000, |n| 1_024 + n);
        assert!(gateway.takes(0, 1_025, 0));
        assert!(!gateway.takes(1, 1_099, 99), "another stream from the same NAT");
        assert!(gateway.takes(1, 1_100, 1));
    }

    /// Phone 0 forges packets of its own call, with the source that the NAT has given to phone 1.
    #[test]
    fn a_forged_source_does_not_keep_a_phone_from_its_call() {
        for (pause, ssrc) in [(900, 0), (900, 66), (20, 0), (20, 66)] {
            let mut gateway = Gateway::with(2);
            gateway.run(2, 5_000, |n| 1_024 + n);
            gateway.now += 5_000;
            assert!(gateway.takes(0, 1_025, ssrc), "phone 1 may have another port by now");
            assert!(!gateway.takes(1, 1_025, 77), "another stream");
            assert_eq!(gateway.sends_to(1), None);
            for _ in 0..100 {
                gateway.takes(0, 1_025, ssrc);
                for _ in 0..pause / 20 {
                    gateway.now += 20;
                    assert!(gateway.takes(1, 1_025, 1));
                    assert_eq!(gateway.sends_to(1), Some(1_025));
                }
            }
        }
    }

    /// Phone 0 has forged packets of phone 1's place, and its call ends.
    #[test]
    fn a_place_that_was_forged_is_its_owners_again() {
        let mut gateway = Gateway::with(3);
        gateway.run(2, 5_000, |n| 1_024 + n);
        gateway.now += 5_000;
        assert!(gateway.takes(0, 1_025, 66));
        gateway.now += 20;
        assert!(gateway.takes(1, 1_025, 1));
        gateway.close(0);
        gateway.now += 20;
        assert!(gateway.takes(1, 1_025, 1));
        assert!(!gateway.takes(2, 1_025, 9), "phone 1 sends from there");
    }

    /// Phone 0 has forged the source before the NAT gave it to phone 1.
    #[test]
    fn a_source_that_was_forged_before_is_no_ones_alone() {
        for pause in [900, 20] {
            let mut gateway = Gateway::with(2);
            gateway.run(1, 5_000, |_| 1_025);
            gateway.now += 1_000;
            gateway.run(2, 5_000, |n| 1_024 + n);
            for _ in 0..100 {
                gateway.takes(0, 1_025, 0);
                for _ in 0..pause / 20 {
                    gateway.now += 20;
                    assert!(gateway.takes(1, 1_025, 1));
                    assert_eq!(gateway.sends_to(1), Some(1_025));
                }
            }
        }
    }

    #[test]
    fn a_call_that_has_ended_holds_no_place() {
        let mut gateway = Gateway::with(2);
        gateway.run(2, 5_000, |n| 1_024 + n);
        gateway.close(1);
        gateway.now += 20;
        assert!(gateway.takes(0, 1_025, 0));
        gateway.describe(0, 2);
        gateway.close(0);
        assert!(gateway.places.0.is_empty());
    }
}
