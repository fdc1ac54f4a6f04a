//! Latching (RFC 7362): the sources that a media port accepts, and the place that media are sent to,
//! where a NAT may have changed the address in the description.

use crate::config::{Network, Relearn};
use crate::media::{Relay, Remote};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;

/// Time without a packet after which a phone no longer sends from a place: ten packets of 20 ms.
/// Two packets within it are a stream, one alone is a stray.
const PACKETS: Duration = Duration::from_millis(200);
/// Least time between two datagrams without sequence numbers that are not copies of one.
const APART: Duration = Duration::from_millis(5);
/// Number of sequence numbers within which a packet continues a stream (RFC 3550, A.1).
const CONTINUES: u16 = 3_000;
/// Time without RTP after which another source may take over from a phone that should send.
const SILENT: Duration = Duration::from_secs(5);
/// The same for RTCP, which is sent every few seconds: five intervals (RFC 3550, 6.3.5).
const SILENT_CONTROL: Duration = Duration::from_secs(25);
/// Time for which a place is a leg's after its last packet from there: as long as packets may be in
/// flight. A NAT can then have given it to another phone.
const HELD: Duration = Duration::from_secs(1);
/// Number of sources that are remembered as heard before a description.
const KNOWN: usize = 4;

/// A datagram that arrived at a media port.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time at which it arrived.
    pub at: Time,
    /// Address that it came from.
    pub from: SocketAddr,
    /// 0 at the port for RTP, 1 at the port for RTCP.
    pub kind: usize,
    /// Its synchronization source, if it is RTP or RTCP.
    pub ssrc: Option<u32>,
    /// Its sequence number, if it is RTP.
    pub sequence: Option<u16>,
}

/// The end of a leg as it has described itself, and what is agreed with it.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Addresses in its description.
    pub remote: &'a Remote,
    /// Rules for the network that it is in.
    pub network: &'a Network,
    /// Whether it should send now, by the description of both ends.
    pub sends: bool,
}

impl Peer<'_> {
    /// The end of a leg that is joined like this.
    pub fn of(relay: &Relay) -> Peer<'_> {
        Peer { remote: &relay.remote, network: &relay.network, sends: relay.sends }
    }
}

impl Arrival {
    /// Whether this is the next packet of a stream that was at `last`. A copy of one packet is not.
    fn continues(&self, last: &Arrival) -> bool {
        let passed = self.at.since(last.at);
        let is_next = match (last.sequence, self.sequence) {
            (Some(last), Some(next)) => {
                passed < PACKETS && (1..CONTINUES).contains(&next.wrapping_sub(last))
            }
            // Reports are seconds apart.
            (None, None) if self.kind == 1 => (APART..SILENT_CONTROL).contains(&passed),
            (None, None) => (APART..PACKETS).contains(&passed),
            _ => false,
        };
        is_next && self.ssrc == last.ssrc
    }
}

/// Source that was chosen as the phone's.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    address: SocketAddr,
    /// The last packet from there.
    last: Arrival,
    /// SSRC of its stream, once known.
    ssrc: Option<u32>,
    /// Whether two packets in a row were of one stream. One may be forged, or late.
    is_stream: bool,
    /// Whether it was heard before the last description.
    is_old: bool,
    /// Whether another leg's phone sends from there now.
    is_lost: bool,
    /// Time of the last packet of an unknown stream that came from there since it was lost.
    unknown: Option<Time>,
}

impl Chosen {
    /// Whether the phone is heard again from this place, which is another leg's now. Either leg's
    /// source may be forged, so that none keeps the other out: the stream that this leg knows is its
    /// own, and so is any that is more than one packet.
    fn returns(&mut self, arrival: &Arrival) -> bool {
        let is_known = arrival.ssrc.is_some() && arrival.ssrc == self.ssrc;
        let before = self.unknown.replace(arrival.at);
        is_known || before.is_some_and(|before| arrival.at < before + PACKETS)
    }
}

/// The source that one port accepts, and sends to.
///
/// A description opens *learning*, which ends some time after the first packet. All allowed sources
/// are accepted during it. Media go to
/// the described place once packets come from it, otherwise to the newest source that was not heard
/// before, otherwise where they went before. Afterwards that source stays, unless the same stream
/// continues from another one, or it has been silent for some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latch {
    chosen: Option<Chosen>,
    /// Sources that have been chosen so far, the newest first.
    known: [Option<SocketAddr>; KNOWN],
    /// Described place that the last description has replaced.
    left: Option<SocketAddr>,
    /// End of learning: never while nothing has been heard since the description; `None` once a
    /// source has been heard after its end.
    learns_until: Option<Time>,
    /// Whether the last description differs from the one before it.
    is_changed: bool,
    /// A source that has sent one packet while another is chosen.
    stray: Option<(SocketAddr, Time)>,
}

impl Latch {
    /// Address that the phone sends from, once known.
    pub fn heard(&self) -> Option<SocketAddr> {
        self.chosen.filter(|chosen| !chosen.is_lost).map(|chosen| chosen.address)
    }

    /// Whether a stream comes from that address, not just a packet that may be forged.
    pub fn is_stream(&self) -> bool {
        self.chosen.is_some_and(|chosen| chosen.is_stream && !chosen.is_lost)
    }

    /// Whether the phone sends a stream from `at`, and has done so a short time before `now`.
    pub fn holds(&self, at: SocketAddr, now: Time) -> bool {
        let chosen = self.chosen.filter(|_| self.is_stream() && self.heard() == Some(at));
        chosen.is_some_and(|chosen| now < chosen.last.at + HELD)
    }

    /// Another leg's phone sends from `at` now: nothing for this one is sent there, unless its stream
    /// continues from there, or another one begins. Who takes over here is decided as before.
    pub fn leave(&mut self, at: SocketAddr) {
        if let Some(chosen) = self.chosen.as_mut().filter(|chosen| chosen.address == at) {
            (chosen.is_lost, chosen.unknown) = (true, None);
        }
    }

    /// The phone has described itself, again with the same addresses if `before` equals
    /// `peer.remote`.
    pub fn describe(&mut self, kind: usize, before: &Remote, peer: &Peer<'_>) {
        self.learns_until = Some(Time::NEVER);
        self.is_changed = before != peer.remote;
        (self.left, self.stray) = (None, None);
        let Some(chosen) = &mut self.chosen else { return };
        chosen.is_old = true;
        // A phone that was where it had said is where it says now.
        let was_described = described(before, kind) == Some(chosen.address);
        let moves = was_described && described(peer.remote, kind) != Some(chosen.address);
        self.left = Some(chosen.address).filter(|_| moves);
        if moves || !is_allowed(peer, kind, chosen.address) {
            self.chosen = None;
        }
    }

    /// Whether a datagram comes from the phone. `is_taken` tells whether a place belongs to another
    /// call.
    pub fn admits(
        &mut self,
        arrival: &Arrival,
        peer: &Peer<'_>,
        is_taken: impl FnOnce(SocketAddr) -> bool,
    ) -> bool {
        let from = canonical(arrival.from);
        let learn = peer.network.learn;
        let starts = |until: Time| if until == Time::NEVER { arrival.at + learn } else { until };
        let its = self.chosen.as_mut().filter(|chosen| chosen.address == from);
        if let Some(chosen) = its
            && (!chosen.is_lost || chosen.returns(arrival))
        {
            chosen.is_stream |= arrival.continues(&chosen.last);
            (chosen.last, chosen.is_lost) = (*arrival, false);
            chosen.ssrc = arrival.ssrc.or(chosen.ssrc);
            self.learns_until = self.learns_until.map(starts).filter(|until| arrival.at < *until);
            return true;
        }
        if !is_allowed(peer, arrival.kind, from) {
            return false;
        }
        let is_described = described(peer.remote, arrival.kind) == Some(from);
        if !is_described && is_taken(from) {
            return false;
        }
        self.learns_until = self.learns_until.map(starts);
        let is_learning = self.learns_until.is_some_and(|until| arrival.at < until);
        let is_chosen = is_described || self.moves_to(from, arrival, peer);
        if is_chosen {
            self.choose(from, arrival);
        }
        is_chosen || is_learning
    }

    /// Whether the phone now sends from `from`, an allowed source other than the chosen one.
    fn moves_to(&mut self, from: SocketAddr, arrival: &Arrival, peer: &Peer<'_>) -> bool {
        let now = arrival.at;
        let is_new = !self.known.contains(&Some(from));
        let is_learning = self.learns_until.is_some_and(|until| now < until);
        let Some(chosen) = self.chosen else {
            // Packets in flight are no reason to leave the place that is described now.
            let is_left = self.left == Some(from) && is_learning;
            return !(is_left && described(peer.remote, arrival.kind).is_some());
        };
        let is_stream = self.stray.is_some_and(|(at, when)| at == from && now < when + PACKETS);
        self.stray = Some((from, now));
        let pauses = now >= chosen.last.at + PACKETS;
        if self.learns_until.is_some() {
            let is_newer = is_learning && self.is_changed && is_new && chosen.is_old;
            return pauses || is_newer && is_stream;
        }
        let goes_on = from.ip() == chosen.address.ip()
            && arrival.ssrc.is_some_and(|ssrc| chosen.ssrc == Some(ssrc));
        let silent = if arrival.kind == 0 { SILENT } else { SILENT_CONTROL };
        match peer.network.relearn {
            Relearn::Never => false,
            Relearn::Silent => goes_on || peer.sends && now >= chosen.last.at + silent,
            Relearn::Always => goes_on || is_stream || pauses,
        }
    }

    fn choose(&mut self, from: SocketAddr, arrival: &Arrival) {
        let is_old = self.known.contains(&Some(from));
        if !is_old {
            self.known.rotate_right(1);
            self.known[0] = Some(from);
        }
        self.chosen = Some(Chosen {
            address: from,
            last: *arrival,
            ssrc: arrival.ssrc,
            is_stream: false,
            is_old,
            is_lost: false,
            unknown: None,
        });
        self.learns_until = self.learns_until.filter(|until| arrival.at < *until);
        self.stray = None;
    }
}

fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// The place in a description.
fn described(remote: &Remote, kind: usize) -> Option<SocketAddr> {
    let Remote::Udp { rtp, rtcp, .. } = remote else { return None };
    [rtp, rtcp][kind.min(1)].map(canonical)
}

/// Whether packets of the phone may come from `at`.
fn is_allowed(peer: &Peer<'_>, kind: usize, at: SocketAddr) -> bool {
    let Remote::Udp { from, .. } = peer.remote else { return false };
    described(peer.remote, kind) == Some(at)
        || from.contains(&Some(at.ip()))
        || peer.network.sources.iter().any(|network| network.contains(&at.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place that the phone gives for its media, behind a NAT at 192.0.2.1.
    const PRIVATE: &str = "10.1.0.9:4000";
    const NAT: [&str; 3] = ["192.0.2.1:1024", "192.0.2.1:2000", "192.0.2.1:3000"];
    const PACKET: u64 = 20;

    struct Port {
        latch: Latch,
        now: u64,
        kind: usize,
        remote: Remote,
        network: Network,
        sends: bool,
        taken: Option<SocketAddr>,
    }

    fn remote(place: &str) -> Remote {
        let rtp: SocketAddr = place.parse().unwrap();
        let from = [Some(rtp.ip()), Some([192, 0, 2, 1].into())];
        Remote::Udp { rtp: Some(rtp), rtcp: None, from }
    }

    impl Port {
        fn new(place: &str) -> Port {
            let mut port = Port {
                latch: Latch::default(),
                now: 0,
                kind: 0,
                remote: Remote::Nobody,
                network: Network::default(),
                sends: true,
                taken: None,
            };
            port.describe(place);
            port
        }

        fn describe(&mut self, place: &str) {
            let before = std::mem::replace(&mut self.remote, remote(place));
            let Port { remote, network, sends, .. } = self;
            let peer = Peer { remote, network, sends: *sends };
            self.latch.describe(self.kind, &before, &peer);
        }

        /// Whether a packet 20 ms after the last one is accepted.
        fn takes_of(&mut self, from: &str, ssrc: u32) -> bool {
            self.now += PACKET;
            let at = Time::from_millis(self.now);
            let from = from.parse().unwrap();
            let sequence = (self.kind == 0).then_some((self.now / PACKET) as u16);
            let arrival = Arrival { at, from, kind: self.kind, ssrc: Some(ssrc), sequence };
            let peer = Peer { remote: &self.remote, network: &self.network, sends: self.sends };
            let taken = self.taken;
            self.latch.admits(&arrival, &peer, |at| Some(at) == taken)
        }

        /// The same, where the source of each address has its own SSRC.
        fn takes(&mut self, from: &str) -> bool {
            let from_port: SocketAddr = from.parse().unwrap();
            self.takes_of(from, u32::from(from_port.port()))
        }

        /// How many of `n` packets are accepted.
        fn stream(&mut self, from: &str, n: usize) -> usize {
            (0..n).filter(|_| self.takes(from)).count()
        }

        fn sends_to(&self) -> String {
            self.latch.heard().map_or_else(String::new, |at| at.to_string())
        }
    }

    #[test]
    fn strangers_are_never_heard() {
        let mut port = Port::new(PRIVATE);
        assert!(!port.takes("192.0.2.66:1024"));
        assert!(port.takes(NAT[0]));
        assert!(port.takes("[::ffff:192.0.2.1]:1024"));
        port.now += 60_000;
        assert!(!port.takes("192.0.2.66:1024"));
        assert_eq!(port.sends_to(), NAT[0]);
    }

    #[test]
    fn learning_hears_all_and_ends_with_one() {
        let mut port = Port::new(PRIVATE);
        port.now += 30_000; // It rings.
        assert!(port.takes(NAT[1]), "a stray");
        assert_eq!(port.stream(NAT[0], 30), 30);
        assert_eq!(port.sends_to(), NAT[0]);
        assert!(port.takes(NAT[1]));
        assert_eq!((port.stream(NAT[0], 80), port.sends_to()), (80, NAT[0].to_owned()));
        // One stray in fifty packets for half a minute.
        for _ in 0..30 {
            assert!(!port.takes(NAT[1]));
            assert_eq!((port.stream(NAT[0], 49), port.sends_to()), (49, NAT[0].to_owned()));
        }
    }

    #[test]
    fn the_described_place_is_the_phone() {
        let mut port = Port::new(PRIVATE);
        // Another process on the same host sends first.
        assert!(port.takes("10.1.0.9:6666"));
        assert!(port.takes(PRIVATE));
        assert_eq!(port.sends_to(), PRIVATE);
        port.stream("10.1.0.9:6666", 8);
        assert!(port.takes(PRIVATE));
        port.stream(PRIVATE, 100);
        assert!(!port.takes("10.1.0.9:6666"));
        assert!(port.takes(PRIVATE));
    }

    #[test]
    fn a_packet_in_flight_does_not_shut_out_a_phone_that_has_moved() {
        for late in [0, 1, 5] {
            let mut port = Port::new(PRIVATE);
            port.stream(NAT[0], 500);
            port.describe("10.1.0.9:5000");
            assert_eq!(port.stream(NAT[0], late), late);
            assert_eq!(port.stream(NAT[1], 10), 10);
            assert_eq!(port.sends_to(), NAT[1], "{late}");
            port.stream(NAT[0], 1);
            assert_eq!((port.stream(NAT[1], 500), port.sends_to()), (500, NAT[1].to_owned()));
            assert!(!port.takes(NAT[0]));
        }
    }

    #[test]
    fn a_phone_that_is_reached_directly_is_sent_to_where_it_says() {
        let mut port = Port::new("192.0.2.1:4000");
        port.stream("192.0.2.1:4000", 200);
        port.describe("192.0.2.1:5000");
        assert_eq!(port.sends_to(), "", "where it says");
        assert!(port.takes("192.0.2.1:4000"), "in flight");
        assert_eq!(port.sends_to(), "");
        assert!(port.takes("192.0.2.1:5000"));
        assert_eq!(port.sends_to(), "192.0.2.1:5000");
    }

    #[test]
    fn the_same_description_again_moves_a_phone_only_when_it_pauses() {
        let mut port = Port::new(PRIVATE);
        port.stream(NAT[0], 200);
        port.describe(PRIVATE);
        for _ in 0..20 {
            assert!(port.takes(NAT[0]) && port.takes(NAT[1]) && port.takes(NAT[1]));
            assert_eq!(port.sends_to(), NAT[0]);
        }
        assert_eq!((port.stream(NAT[1], 11), port.sends_to()), (11, NAT[1].to_owned()));
    }

    #[test]
    fn what_was_known_before_never_shuts_out_what_is_new() {
        let mut port = Port::new(PRIVATE);
        port.stream(NAT[0], 200);
        port.describe("10.1.0.9:5000");
        port.takes(NAT[0]);
        // Learning has ended in the meantime, without a sound from the new place.
        port.now += 10_000;
        port.sends = false;
        assert!(port.takes(NAT[1]));
        assert_eq!(port.sends_to(), NAT[1]);
    }

    #[test]
    fn of_two_phones_that_rang_the_chosen_one_is_heard() {
        let mut port = Port::new(PRIVATE);
        port.stream(NAT[0], 20);
        port.describe("10.1.0.10:4000");
        port.stream(NAT[1], 20);
        assert_eq!(port.sends_to(), NAT[1]);
        port.describe(PRIVATE);
        assert_eq!((port.stream(NAT[0], 20), port.sends_to()), (20, NAT[0].to_owned()));
        // The other one does not stop at once.
        let mut port = Port::new(PRIVATE);
        port.stream(NAT[0], 20);
        port.describe("10.1.0.10:4000");
        for _ in 0..45 {
            assert!(port.takes(NAT[0]) && port.takes(NAT[1]));
        }
        assert_eq!(port.sends_to(), NAT[1]);
    }

    #[test]
    fn the_same_stream_goes_on_from_another_port() {
        let mut port = Port::new(PRIVATE);
        port.stream(NAT[0], 200);
        assert!(!port.takes_of(NAT[1], 7));
        assert!(!port.takes_of("10.1.0.9:1", 1024), "another address");
        assert!(port.takes_of(NAT[1], 1024));
        assert_eq!(port.sends_to(), NAT[1]);
    }

    #[test]
    fn another_source_takes_over_after_silence_unless_silence_was_agreed() {
        for (sends, kind, wait, takes) in [
            (true, 0, 4_900, false),
            (true, 0, 5_000, true),
            (false, 0, 60_000, false),
            (true, 1, 5_000, false),
            (true, 1, 25_000, true),
        ] {
            let mut port = Port::new(PRIVATE);
            port.kind = kind;
            port.stream(NAT[0], 200);
            (port.sends, port.now) = (sends, port.now + wait - PACKET);
            assert_eq!(port.takes(NAT[1]), takes, "{sends} {kind} {wait}");
        }
    }

    #[test]
    fn each_network_has_its_rule() {
        for (relearn, pause, takes) in [
            (Relearn::Never, 60_000, false),
            (Relearn::Always, 0, false),
            (Relearn::Always, 200, true),
        ] {
            let mut port = Port::new(PRIVATE);
            port.network.relearn = relearn;
            port.stream(NAT[0], 200);
            port.now += pause;
            assert_eq!(port.takes(NAT[1]), takes, "{relearn:?} {pause}");
        }
        let mut port = Port::new(PRIVATE);
        port.network.relearn = Relearn::Always;
        port.stream(NAT[0], 200);
        assert!(!port.takes(NAT[1]) && port.takes(NAT[0]) && port.takes(NAT[1]));
        let mut port = Port::new(PRIVATE);
        port.network.sources = vec!["198.51.100.0/24".parse().unwrap()];
        assert!(port.takes("198.51.100.7:5004"));
        assert!(!port.takes("203.0.113.7:5004"));
    }

    #[test]
    fn the_place_of_another_call_is_never_taken() {
        let mut port = Port::new(PRIVATE);
        port.taken = Some(NAT[1].parse().unwrap());
        assert!(!port.takes(NAT[1]));
        assert!(port.takes(NAT[0]));
        assert!(!port.takes(NAT[1]), "in learning");
        port.now += 60_000;
        assert!(!port.takes(NAT[1]), "after silence");
        port.taken = Some(PRIVATE.parse().unwrap());
        assert!(port.takes(PRIVATE), "described by both");
    }

    #[test]
    fn a_phone_that_describes_itself_again_and_again_is_heard() {
        let mut port = Port::new(PRIVATE);
        for n in 0..100_u16 {
            port.describe(&format!("10.1.0.9:{}", 4_000 + 2 * n));
            assert_eq!(port.stream(NAT[0], 5), 5);
            assert_eq!(port.sends_to(), NAT[0]);
        }
    }

    #[test]
    fn only_phones_send_by_udp() {
        let remote = Remote::Nobody;
        let peer = Peer { remote: &remote, network: &Network::default(), sends: true };
        let from: SocketAddr = PRIVATE.parse().unwrap();
        let arrival = Arrival { at: Time::ZERO, from, kind: 0, ssrc: None, sequence: None };
        assert!(!Latch::default().admits(&arrival, &peer, |_| false));
    }
}
