//! The places that the ends of all calls send from: a place is one leg's while packets come from it,
//! so that packets of another call never move there, and another leg's when a NAT has given it away.

use crate::latch::{Arrival, Latch, Peer};
use crate::media::Relay;
use core::net::SocketAddr;
use std::collections::BTreeMap;

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
        let state = |latch: &Latch| (latch.heard(), latch.is_stream());
        let before = state(&leg.latches()[arrival.kind]);
        let from = SocketAddr::new(arrival.from.ip().to_canonical(), arrival.from.port());
        let is_taken = before != (Some(from), true) && self.is_taken(legs, port, from, arrival);
        let Some((Some(relay), latches)) = legs.get_mut(&port).map(Latched::parts) else {
            return false;
        };
        let latch = &mut latches[arrival.kind];
        let is_its = latch.admits(arrival, &Peer::of(relay), |_| is_taken);
        let now = state(latch);
        if before != now {
            self.leave(legs, port, before.0);
            if let (Some(at), is_stream) = now
                && !is_taken
            {
                self.claim(legs, port, (at, is_stream));
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
    /// heard a stream from it a short time ago. RTCP alone, of which each packet is one in seconds,
    /// keeps out no RTP.
    fn is_taken<L: Latched>(
        &self,
        legs: &BTreeMap<u16, L>,
        port: u16,
        at: SocketAddr,
        arrival: &Arrival,
    ) -> bool {
        let owner = self.0.get(&at).filter(|owner| **owner != port);
        let (Some(owner), Some(leg)) = (owner.and_then(|owner| legs.get(owner)), legs.get(&port))
        else {
            return false;
        };
        owner.relay().is_some_and(|relay| relay.sends)
            && !is_same_call(owner, leg)
            && owner.latches()[..=arrival.kind].iter().any(|latch| latch.holds(at, arrival.at))
    }

    /// The end of the leg `port` sends from `at` now. If it is a stream, nothing of another call is
    /// sent there any more; a single packet only gets a place that is free.
    fn claim<L: Latched>(
        &mut self,
        legs: &mut BTreeMap<u16, L>,
        port: u16,
        (at, is_stream): (SocketAddr, bool),
    ) {
        if !is_stream {
            self.0.entry(at).or_insert(port);
            return;
        }
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
    use trunkline_base::Time;

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
        /// Sequence number of the last packet.
        sequence: u16,
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

        /// Whether phone `n`'s packet from a port of the NAT is accepted. Its number follows those of
        /// all before.
        fn takes(&mut self, n: u16, from: u16, ssrc: u32) -> bool {
            self.sequence = self.sequence.wrapping_add(1);
            self.takes_one(n, from, Some((ssrc, self.sequence)))
        }

        /// The same for an RTP packet with this source and number, or a datagram that has none.
        fn takes_one(&mut self, n: u16, from: u16, rtp: Option<(u32, u16)>) -> bool {
            let at = Time::from_millis(self.now);
            let (ssrc, sequence) = rtp.unzip();
            let arrival = Arrival { at, from: nat(from), kind: 0, ssrc, sequence };
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
        assert_eq!(
            (gateway.sends_to(0), gateway.sends_to(1)),
            (Some(1_025), Some(1_025)),
            "a stray"
        );
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
            gateway.now += 20;
            assert!(gateway.takes(0, 1_025, ssrc));
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

    /// Phone 0 forges one packet again and again, and phone 1 continues with another source, or with a
    /// fax, which has none, or is not muted any more.
    #[test]
    fn one_forged_packet_neither_takes_a_place_nor_holds_it() {
        for (pause, is_known, forged, rtp) in [
            (900, true, Some((66, 7)), true),
            (900, true, Some((66, 7)), false),
            (900, true, None, true),
            (900, true, None, false),
            (220, true, Some((66, 7)), true),
            (900, false, Some((66, 7)), true),
            (900, false, None, false),
        ] {
            let mut gateway = Gateway::with(2);
            gateway.run(if is_known { 2 } else { 1 }, 5_000, |n| 1_024 + n);
            gateway.now += 5_000;
            for n in 0..100 {
                gateway.takes_one(0, 1_025, forged);
                let known = (is_known || n > 0).then_some(1_025);
                assert_eq!(gateway.sends_to(1), known, "what phone 1 hears");
                for _ in 0..pause / 20 {
                    // Each silence of phone 1 is long enough to give its place away.
                    gateway.now += if n % 10 == 0 { 1_000 } else { 20 };
                    gateway.sequence += 1;
                    let sent = rtp.then_some((77, gateway.sequence));
                    assert!(gateway.takes_one(1, 1_025, sent), "{pause} {is_known} {forged:?}");
                    assert_eq!(gateway.sends_to(1), Some(1_025));
                }
            }
        }
    }

    /// Phone 0 forges as many packets as it likes.
    #[test]
    fn a_phone_is_heard_again_with_its_second_packet_in_spite_of_forged_ones() {
        for (is_noisy, ssrc) in [(false, Some(77)), (false, None), (true, Some(77)), (true, None)] {
            let mut gateway = Gateway::with(2);
            gateway.run(2, 5_000, |n| 1_024 + n);
            for _ in 0..250 {
                gateway.now += 20;
                assert!(gateway.takes(1, 1_025, 1));
            }
            for _ in 0..10 {
                for _ in 0..100 {
                    gateway.now += 20;
                    gateway.takes(0, 1_025, 66);
                }
                assert_eq!(gateway.sends_to(1), None);
                let mut heard = Vec::new();
                for _ in 0..4 {
                    gateway.now += 10;
                    gateway.takes(0, 1_025, 66);
                    if is_noisy {
                        // Forged for the call of phone 1.
                        gateway.takes(1, 1_033, 5);
                        gateway.takes(1, 1_034, 6);
                    }
                    gateway.now += 10;
                    gateway.sequence += 1;
                    let sent = ssrc.map(|ssrc| (ssrc, gateway.sequence));
                    heard.push(gateway.takes_one(1, 1_025, sent));
                }
                assert_eq!(heard[1..], [true; 3], "{is_noisy} {ssrc:?}");
                assert_eq!(gateway.sends_to(1), Some(1_025));
                // Another one is pressed, for the next silence.
                gateway.close(0);
                gateway.describe(0, 1);
                gateway.now += 2_000;
            }
        }
    }

    /// The forger can still keep phone 1 from a place that it has neither described nor sent from.
    #[test]
    fn a_flow_of_forged_packets_keeps_a_phone_out_of_a_place_it_never_had() {
        let mut gateway = Gateway::with(2);
        gateway.run(1, 5_000, |_| 1_024);
        gateway.now += 5_000;
        assert!(gateway.takes(0, 1_025, 66));
        gateway.now += 20;
        for _ in 0..10 {
            assert!(gateway.takes(0, 1_025, 66));
            gateway.now += 980;
            assert!(!gateway.takes(1, 1_025, 1));
        }
        assert!(gateway.takes(1, 1_026, 1), "only one place");
        gateway.now += 20;
        assert!(gateway.takes(1, 1_026, 1));
        assert!(gateway.takes(1, 1_025, 1), "a second after the last forged packet");
    }

    /// Phone 0 has forged packets of phone 1's place, and its call ends.
    #[test]
    fn a_place_that_was_forged_is_its_owners_again() {
        let mut gateway = Gateway::with(3);
        gateway.run(2, 5_000, |n| 1_024 + n);
        gateway.now += 5_000;
        assert!(gateway.takes(0, 1_025, 66));
        gateway.now += 20;
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
