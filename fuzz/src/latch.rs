//! The latch of a media port: phones that describe themselves, and packets from anywhere. The latch
//! only ever accepts and chooses sources that it may, and hears a phone that sends from where it
//! says.

use crate::script::steps;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_gateway::{Arrival, Latch, Network, Peer, Relearn, Remote};

steps! {
    /// A step of the script.
    Step {
        /// The phone describes itself at a place.
        0 Describe { place: u8, with_rtcp: u8 }
        /// A packet arrives from a place.
        1 Packet { place: u8, ssrc: u8, after: u8 }
        /// Time passes, in units of 0.1 s.
        2 Wait { time: u8 }
        /// The ends agree on silence or not, and the phone is in a network with these rules.
        3 Rules { sends: u8, relearn: u8, learn: u8 }
        /// A place belongs to another call from now on.
        4 Take { place: u8 }
    }
}

/// The place with a number: some at the phone's own addresses, some elsewhere.
fn place(number: u8) -> SocketAddr {
    let ip: IpAddr = match number % 4 {
        0 => [10, 0, 0, 9].into(),
        1 => [192, 0, 2, 1].into(),
        2 => "::ffff:192.0.2.1".parse().expect("an address"),
        _ => [203, 0, 113, 7].into(),
    };
    SocketAddr::new(ip, 4_000 + u16::from(number / 4))
}

fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// Runs a script at the port for RTP, and at the one for RTCP if its first byte is odd.
pub fn run(input: &[u8]) {
    let mut r = Reader::new(input);
    let kind = usize::from(r.u8().unwrap_or(0) % 2);
    let (mut latch, mut now) = (Latch::default(), Time::from_millis(1_000));
    let (mut remote, mut network, mut sends) = (Remote::Nobody, Network::default(), true);
    let (mut taken, mut sequence) = (None, 0u16);
    while let Some(step) = Step::read(&mut r) {
        match step {
            Step::Describe { place: number, with_rtcp } => {
                let at = place(number);
                let rtcp = (with_rtcp % 2 == 1).then_some(at);
                let from = [Some(at.ip().to_canonical()), Some([192, 0, 2, 1].into())];
                let before =
                    std::mem::replace(&mut remote, Remote::Udp { rtp: Some(at), rtcp, from });
                latch.describe(kind, &before, &Peer { remote: &remote, network: &network, sends });
            }
            Step::Packet { place: number, ssrc, after } => {
                now += Duration::from_millis(after.into());
                let from = place(number);
                sequence = sequence.wrapping_add(1);
                let (ssrc, number) = (Some(ssrc.into()), (kind == 0).then_some(sequence));
                let arrival = Arrival { at: now, from, kind, ssrc, sequence: number };
                let peer = Peer { remote: &remote, network: &network, sends };
                let before = latch.heard();
                let is_taken = |at| Some(at) == taken;
                let is_in = latch.admits(&arrival, &peer, is_taken);
                check(&latch, (before, is_in), canonical(from), &remote, kind, taken);
            }
            Step::Wait { time } => now += Duration::from_millis(100 * u64::from(time)),
            Step::Rules { sends: agreed, relearn, learn } => {
                sends = agreed % 2 == 0;
                let all = [Relearn::Silent, Relearn::Always, Relearn::Never];
                network.relearn = all[usize::from(relearn) % all.len()];
                network.learn = Duration::from_millis(20 * u64::from(learn));
            }
            Step::Take { place: number } => taken = Some(canonical(place(number))),
        }
    }
}

fn check(
    latch: &Latch,
    (before, is_in): (Option<SocketAddr>, bool),
    from: SocketAddr,
    remote: &Remote,
    kind: usize,
    taken: Option<SocketAddr>,
) {
    let Remote::Udp { rtp, rtcp, from: allowed } = remote else {
        assert!(!is_in && latch.heard().is_none(), "nobody is there");
        return;
    };
    let described = [rtp, rtcp][kind].map(canonical);
    let may = described == Some(from) || allowed.contains(&Some(from.ip()));
    assert!(may || !is_in, "{from} is an unexpected source");
    assert!(is_in || described != Some(from), "{from} is the described place");
    let heard = latch.heard();
    assert!(heard == before || heard == Some(from), "the place moves only to a packet's source");
    assert!(heard == before || is_in, "media go where nothing is accepted from");
    let is_others = heard == taken && heard != described && heard != before;
    assert!(heard.is_none() || !is_others, "{heard:?} belongs to another call");
}

/// Scripts from which the fuzzer begins.
pub mod seeds {
    use super::Step;

    /// Scripts that reach what random bytes do not.
    pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
        let packets = |place, ssrc, count| {
            std::iter::repeat_n(Step::Packet { place, ssrc, after: 20 }, count).collect::<Vec<_>>()
        };
        let script = |kind: u8, steps: &[Vec<Step>]| {
            let mut out = vec![kind];
            steps.iter().flatten().for_each(|step| step.write(&mut out));
            out
        };
        let described = |place| vec![Step::Describe { place, with_rtcp: 1 }];
        let moved = [
            described(0),
            packets(5, 1, 120),
            described(4),
            packets(5, 1, 1),
            packets(9, 2, 30),
            packets(4, 3, 3),
        ];
        let silent =
            [described(0), packets(1, 1, 120), vec![Step::Wait { time: 50 }], packets(5, 2, 9)];
        let rules = vec![Step::Rules { sends: 1, relearn: 1, learn: 9 }, Step::Take { place: 5 }];
        let taken = [rules, described(0), packets(5, 1, 20), packets(1, 1, 20), packets(3, 1, 5)];
        vec![
            ("moved", script(0, &moved)),
            ("silent", script(1, &silent)),
            ("taken", script(0, &taken)),
        ]
    }
}
