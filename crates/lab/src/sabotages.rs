//! The changes that sabotages make, in words. Each is applied by the experiments of its folder,
//! under the same name.

use crate::error::Error;
use crate::experiment::Sabotage;
use crate::{beyond, dccp_voice, reliable_overlay, tfmc, voip_overlay, wifi_adapt};

/// The change that a sabotage of a folder's claims makes; `None` if it has no such sabotage.
pub fn about(folder: &str, name: &str) -> Option<&'static str> {
    of(folder).iter().find(|(known, _)| *known == name).map(|(_, does)| *does)
}

/// The sabotages of a folder, each with what it changes, by name.
pub fn of(folder: &str) -> &'static [(&'static str, &'static str)] {
    match folder {
        voip_overlay::PAPER => VOIP_OVERLAY,
        reliable_overlay::PAPER => RELIABLE_OVERLAY,
        tfmc::PAPER => TFMC,
        dccp_voice::PAPER => DCCP_VOICE,
        wifi_adapt::PAPER => WIFI_ADAPT,
        beyond::PAPER => BEYOND,
        _ => &[],
    }
}

/// Changes that break nothing, for `check --with`: by them a reader sees what a choice decides that a
/// paper's text leaves open.
pub fn variations(folder: &str) -> &'static [(&'static str, &'static str)] {
    if folder == wifi_adapt::PAPER { wifi_adapt::RATES } else { &[] }
}

/// The sabotage or variation with this name, of any of these folders.
///
/// # Errors
///
/// [`Error::UnknownChange`].
pub fn find<'a>(folders: impl Iterator<Item = &'a str>, wanted: &str) -> Result<Sabotage, Error> {
    let mut known = folders.flat_map(|folder| of(folder).iter().chain(variations(folder)));
    match known.find(|(name, _)| *name == wanted) {
        Some((name, _)) => Ok(Sabotage::named(name)),
        None => Err(Error::UnknownChange(wanted.to_owned())),
    }
}

const VOIP_OVERLAY: &[(&str, &str)] = &[
    ("a-hello-every-20-ms", "hellos every 20 ms instead of every second"),
    ("a-second-more-patience", "a link is dead a second later"),
    ("a-tenth-more-hellos", "a tenth more hellos in a second"),
    ("bursts-everywhere", "each link loses at a burstiness of 75 %, whatever the point's"),
    ("bursts-ignored", "each link loses independently, whatever the point's burstiness"),
    (
        "bursts-on-top",
        "over UDP the share to lose is used as the probability that a burst begins, so that more is \
         lost where losses come in bursts",
    ),
    ("bursts-the-other-way-round", "the least bursty losses for the burstiest, and vice versa"),
    ("concealment-off", "missed packets are heard as silence"),
    ("daemon-by-loss", "the daemon's rule chooses paths by loss alone"),
    ("daemon-ignores-loss", "the daemon's rule chooses paths by latency alone"),
    ("expected-by-loss", "the expected latency is replaced by loss alone"),
    (
        "expected-swaps-loss",
        "the expected latency takes links with much loss for those with little",
    ),
    ("greedy-knows-all", "the greedy path is the best of all rules' paths"),
    ("half-a-packet", "packets have half of Ethernet's 1,500 bytes"),
    ("headers-counted", "the bytes of UDP and IP are counted with the hello's"),
    ("hello-every-20-ms", "hellos every 20 ms instead of every second"),
    ("in-order-at-the-relay", "the relay forwards packets in order, and keeps those behind a gap"),
    (
        "kept-for-half-the-deadline",
        "the sender keeps 25 packets for retransmission, which ten calls send in 50 ms: half of the \
         deadline",
    ),
    (
        "late-counts",
        "the deadline is 300 ms instead of 100, so that late packets count as received",
    ),
    ("links-lose-eight", "each link loses 8 %"),
    ("loss-ignored", "the expected latency is replaced by latency alone"),
    ("loss-swapped", "the rule by loss takes links with much loss for those with little"),
    ("nacks-off", "no retransmission is requested"),
    ("no-filter", "the send filter is left out"),
    ("once", "each packet is requested once, as in the paper"),
    ("one-call", "one call instead of ten, so that a gap is noticed ten times as late"),
    ("one-envelope-for-twice", "the policy that requests twice requests once"),
    ("one-repeat-at-a-time", "the token bucket of retransmissions holds a single one"),
    (
        "one-request-in-a-hundred-unanswered",
        "retransmissions are limited to 99 % of those that are requested",
    ),
    (
        "one-request-in-ten-unanswered",
        "retransmissions are limited to nine tenths of those that are requested",
    ),
    (
        "one-request-in-two-unanswered",
        "retransmissions are limited to half of those that are requested",
    ),
    ("recovered", "the call over UDP goes over the overlay, which recovers losses"),
    ("renewed-ten-times-as-often", "link-state records are renewed ten times as often"),
    (
        "requests-without-end",
        "recovery may send as much again as all that was lost, instead of a share",
    ),
    ("room-for-all-but-one", "a node has room for the records of all nodes but one"),
    ("second-link-loses-half", "the second of two links loses half as much as the first"),
    ("threshold-of-150-ms", "the deadline is 150 ms instead of 100"),
    ("udp-loses-a-fifth", "over UDP a fifth of the share is lost"),
    ("udp-loses-twice", "over UDP twice the share is lost"),
    ("unfiltered", "speech is played without the send filter of a telephone"),
    ("wait-for-three", "a packet is requested only after three later ones have arrived"),
];

const RELIABLE_OVERLAY: &[(&str, &str)] = &[
    ("a-message-a-second", "the stream sends a message a second instead of all it can"),
    (
        "best-effort-links",
        "links are best effort instead of reliable; where streams share a path, one of them begins \
         only after the measurement",
    ),
    ("calls-as-files", "calls use the reliable service, behind the file"),
    ("end-crashes", "in the third run the receiving end crashes and is started again, too"),
    ("end-to-end-only", "a TCP from end to end takes the place of the reliable links"),
    ("half-a-packet", "packets have half of Ethernet's 1,500 bytes"),
    ("in-order-relays", "relays forward messages in order, and keep those behind a gap"),
    ("ipv6", "the TCP runs over IPv6, whose headers are 20 bytes longer"),
    ("longer-links", "each link has a twentieth more delay"),
    ("one-hop", "a path of fewer than eight hops is a single one"),
    (
        "short-messages",
        "messages have a fifth of the bytes, and a stream's packets are the smallest",
    ),
    ("twice-the-hellos", "twice as many hellos in a second"),
];

const TFMC: &[(&str, &str)] = &[
    ("long-headers", "with TFMC each packet in a datagram has 50 more bytes of headers"),
    ("longer-path", "the TCP's window has no limit, and with TFMC the path has 50 ms more delay"),
    ("lookahead-twice", "a codec's look-ahead counts twice"),
    ("more-calls", "with TFMC there are 300 calls, spread over 20 ms, without multiplexing"),
    ("no-tcp", "there is no TCP"),
    ("one-access", "the access links are the declared ones in every reading"),
    ("one-size", "S in equation (2) is a voice packet's 60 bytes in every reading"),
    ("one-spread", "the calls' packets are spread as declared in every reading"),
    ("outage", "with TFMC the bottleneck fails for a time"),
    (
        "packets-apart",
        "packets are 10 µs apart instead of at the same instant, and the trunk doesn't wait for them",
    ),
    ("tcps-instead", "ten calls instead of 200, and three more TCPs that begin later"),
    ("trunk-off", "each packet goes in a datagram of its own"),
    ("without-rtp", "RTP's 12 bytes are left out"),
];

const DCCP_VOICE: &[(&str, &str)] = &[
    ("a-second-to-begin-with", "the adaptive playout begins with a delay of 1 s, and plays all"),
    (
        "floor-of-the-codec",
        "the minimum rate is 16,000 bytes in a round trip, more than the codec needs",
    ),
    ("g729-later", "calls with G.729 have 100 ms more delay"),
    (
        "half-lost-but-over-tcp",
        "where packets are lost, half of them are over TFRC's variants, and none over UDP and TCP",
    ),
    ("idle-excluded", "TFRC's receivers leave pauses out of the rate that they report"),
    (
        "idle-excluded-for-small-packets",
        "receivers leave pauses out of the rate that they report, except over plain TFRC",
    ),
    ("initial-window-3390", "after a pause TCP begins with the window of RFC 3390"),
    ("modified-later", "calls over SP+FR+MD have 100 ms more delay, with either minimum"),
    ("nagle", "TCP holds short segments back (Nagle's algorithm)"),
    ("no-floor", "SP+FR+MD has no minimum rate"),
    ("no-restart", "SP+FR restarts after a pause as SP does"),
    ("one-point-less", "R is a point lower"),
    ("restart-with-such-a-floor", "SP+FR has a minimum of 16,000 bytes in a round trip"),
    ("tcp-keeps-its-window", "TCP keeps its window during a pause"),
    ("tfrc-later", "calls over TFRC's variants have 100 ms more delay"),
    ("twentieth-lost", "where packets are lost, 5 % of those over TFRC's variants are"),
    (
        "twentieth-lost-with-such-a-floor",
        "the same, and SP+FR+MD's minimum is 16,000 bytes in a round trip",
    ),
    ("without-link-layer", "the link layer's headers are left out"),
];

const WIFI_ADAPT: &[(&str, &str)] = &[
    ("adaptive-unmarked", "the packets of adaptive calls have the priority of other traffic"),
    ("codec-limited", "the greedy TFRC sends only as many packets as a call has"),
    ("copies-unread", "receivers ignore the copies for repair"),
    ("deep-one-queue", "all traffic waits in one queue, of 200 packets instead of 50"),
    ("g726-16", "G.726 at 32 kbit/s is replaced by 16 kbit/s"),
    ("halved-of-many", "from ten calls on, half of those over TFRC have every other packet only"),
    ("heard-at-16", "the listener hears each packet as if coded at 16 kbit/s"),
    ("lowest-rate", "adaptive calls are always coded at 16 kbit/s"),
    ("more-errors", "four times as many bit errors"),
    ("never-lowers", "the control never lowers the rate"),
    ("no-adaptation", "adaptive calls are always coded at 64 kbit/s"),
    ("no-background", "there is no other traffic"),
    ("no-fec", "no copies or parity are sent for repair"),
    ("no-floor", "our control has the paper's parameters"),
    ("no-low-copies", "no copies at a lower rate are sent"),
    ("no-parity", "no parity is sent"),
    ("no-polls", "calls contend with the standard's parameters instead of being polled"),
    ("one-queue", "all traffic waits in one queue, without priority"),
    ("parity-of-one", "parity covers a single packet"),
    ("per-call-at-16", "calls with a BaseRTT of their own are always coded at 16 kbit/s"),
    ("silent-at-six", "where other traffic has 6 Mbit/s for each station, it is silent"),
    ("slow-reports", "reports come a third as often"),
    (
        "two-classes",
        "half of the adaptive calls is always coded at 16 kbit/s, the other half at 64 kbit/s",
    ),
    (
        "two-classes-beside-50/s",
        "the same from ten calls on, and the greedy TFRC sends 50 packets/s",
    ),
    ("two-classes-of-many", "the same as two-classes, from ten calls on"),
    ("undivided-index", "the fairness index is not divided by the number of calls"),
    (
        "unmarked-beside-50/s",
        "the packets of adaptive calls have the priority of other traffic, and the greedy TFRC sends \
         50 packets/s",
    ),
    ("without-rtp", "RTP's 12 bytes are left out"),
];

const BEYOND: &[(&str, &str)] = &[
    ("400-offered", "400 calls are offered, whatever the point's number"),
    ("a-cut-in-the-middle", "the shortest path is cut in the middle of each run"),
    ("acks-counted", "the TCP's window grows with acknowledgements, not with acknowledged bytes"),
    ("admit-all", "the trunk admits every call"),
    ("bursts-of-a-second", "the interval assumes bursts of a second"),
    ("damping-off", "a link that has failed costs no more once it is up"),
    ("datagram-everywhere", "the size in the equation is that of the present datagram throughout"),
    ("fast-hellos", "hellos every 50 ms, and a link is dead after 400 ms"),
    ("half-the-patience", "a link is dead after half the time, but not before a few hellos"),
    ("hellos-by-themselves", "no hello shares an envelope with a real-time packet"),
    ("independent", "the interval takes losses for independent"),
    ("interval-200", "reports every 200 ms"),
    ("interval-5", "reports every 5 ms"),
    ("links-mirrored", "the point's parameters are replaced by the opposite ones of the range"),
    ("narrow-for-all", "where all calls are admitted, the lossy link has 2 Mbit/s instead of 10"),
    ("news-held-back", "a node renews its link-state record at most every 10 s"),
    ("no-calls", "there are no calls beside the TCP"),
    ("no-collisions", "a single station, which never collides"),
    ("no-loss", "no packet is lost, and no node stalls"),
    ("no-recovery", "calls use the best-effort service"),
    ("no-stalls", "no node stalls"),
    ("no-trunk", "each packet goes in a datagram of its own"),
    ("no-turns", "the access point doesn't take turns for calls"),
    ("nominal-everywhere", "the size in the equation is 1,460 bytes throughout"),
    ("one-queue", "voice has the priority of other traffic"),
    ("paper-hellos", "hellos as in the paper: every second, a link is dead after 10 s, no probes"),
    ("probes-off", "no probes after a missed hello"),
    ("questions-without-end", "hellos every 20 ms, as if no question were ever answered"),
    ("rate-of-five", "TFRC sends at most five segments a second"),
    ("refresh-every-second", "link-state records are renewed every second"),
    ("room-for-half", "a node has room for the records of half of the nodes"),
    ("segment-of-half", "TFRC computes with half the segment size"),
    ("share-admits-all", "the policies that admit all calls and a share are swapped"),
    ("stalls-of-eight-seconds", "nodes stall for up to 8 s"),
    ("swapped", "calls over UDP and calls in a trunk are swapped"),
    ("trunk-off", "each packet goes in a datagram of its own"),
    ("twice-the-interval", "the access point takes turns half as often"),
    ("twice-the-patience", "a link is dead after twice the time"),
    ("twice-the-rate", "the link has twice the rate"),
    ("wait-10ms", "the trunk waits 10 ms for further packets, whatever the point's wait"),
    ("wide-windows", "other traffic's smallest contention window is 127 slots"),
    ("window-of-20", "the TCP's window is at most 20 packets"),
    (
        "window-of-4",
        "the TCP's window is at most 4 packets where the claim expects it to have more",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::{PAPERS, papers};
    use std::collections::BTreeSet;

    #[test]
    fn every_sabotage_is_described_and_every_description_used() {
        let papers = papers();
        let beside = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure));
        let all: Vec<_> = papers.figures().chain(beside).collect();
        for paper in &PAPERS {
            let figures = all.iter().filter(|(e, _)| e.paper == paper.folder);
            let named = figures.flat_map(|(_, f)| f.claims.iter().map(|c| c.sabotage));
            let named: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
            let described: Vec<&str> = of(paper.folder).iter().map(|(name, _)| *name).collect();
            // In order, and each once.
            assert_eq!(described, named.into_iter().collect::<Vec<_>>(), "{}", paper.folder);
        }
        assert_eq!(about("tfmc", "no-tcp"), Some("there is no TCP"));
        let both = ["tfmc", "wifi-adapt"];
        for known in ["no-tcp", "other-traffic-3"] {
            assert!(find(both.into_iter(), known).is_ok_and(|found| found.is(known)));
        }
        assert!(find(["tfmc"].into_iter(), "other-traffic-3").is_err());
        assert_eq!((about("tfmc", ""), about("nowhere", "no-tcp")), (None, None));
    }
}
