//! Limits on the output of a node among neighbours.

use super::driver::{Envelope, Message};
use super::neighbours::{LINKS, OWN, neighbour};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::counters::{DropReason, Drops};
use trunkline_overlay::link::{DSCP_EF, IP_UDP_HEADERS, LinkId};
use trunkline_overlay::node::Node;
use trunkline_overlay::session::wire::ToNode;
use trunkline_overlay::wire::{
    Frame, Frames, Incarnation, Null, Opened, ReceiverIndex, Seal, Service, open_header,
};

/// Minimum interval between two hellos of a link, whatever triggers them.
const HELLO_SPACING: Duration = Duration::from_millis(10);

/// Largest value of a packet's hop limit, which has five bits.
const MAX_HOPS_FIELD: u8 = 31;

/// State of the envelopes that the node has sent on its links.
#[derive(Default)]
pub struct Emitted {
    hello: [Option<Time>; LINKS],
    counter: [u32; LINKS],
}

impl Emitted {
    /// Checks one envelope, and returns the link that it is sent over.
    pub fn check(&mut self, now: Time, node: &Node, envelope: &Envelope) -> usize {
        let header = open_header(&envelope.bytes).expect("an envelope");
        let to = |i: &usize| header.receiver == ReceiverIndex::derived(OWN, neighbour(*i), "");
        let i = (0..LINKS).find(to).expect("an envelope to a neighbour");
        let link = node.link(LinkId(i as u16)).expect("a link");
        let elsewhere = Some(envelope.to) != link.address();
        assert!(!elsewhere || Some(envelope.to) == link.candidate(), "to where it may be");
        assert!(envelope.bytes.len() + IP_UDP_HEADERS <= link.config().mtu, "it fits the MTU");
        if elsewhere && header.counter.wrapping_add(1) == self.counter[i] {
            // A copy of the previous one, sent to an address that is being validated.
            return i;
        }
        assert_eq!(header.counter, self.counter[i], "counters count");
        self.counter[i] += 1;

        let mut bytes = envelope.bytes.clone();
        let opened = Seal::Null(Null::new(header.receiver, Incarnation(0))).open(&mut bytes);
        assert_eq!(opened.map(|o| o.0), Ok(Opened::Fresh { first: true }));
        let mut frames = 0;
        for frame in Frames::new(Seal::frames(&bytes)) {
            frames += 1;
            match frame.expect("a frame") {
                Frame::Hello(_) => {
                    let last = self.hello[i].replace(now);
                    assert!(last.is_none_or(|last| now.since(last) >= HELLO_SPACING));
                }
                Frame::Nack(nack) => assert!(nack.ranges().count() > 0),
                Frame::Routing(_) | Frame::Ack(_) => {}
                Frame::Goodbye(_) | Frame::Path(_) => {
                    panic!("there is none on a link that is not sealed")
                }
                Frame::Data(header, payload) => {
                    let relayed = header.hop.hop_limit < MAX_HOPS_FIELD;
                    assert!(relayed || header.flow.source == OWN, "{header:?}");
                    assert!(payload.len() <= link.config().max_payload());
                    assert!(envelope.dscp == DSCP_EF || envelope.dscp == 0);
                }
            }
        }
        assert!(frames > 0, "an envelope for nothing");
        i
    }
}

/// Input of the node, and bounds on its output.
#[derive(Default)]
pub struct Bounds {
    bytes_in: usize,
    messages_in: u64,
    payload_out: usize,
    /// Number of data frames in envelopes that a link accepted.
    packets_in: u64,
    /// Set if the counts cannot balance: only part of a batch was accepted, streams have sent
    /// packets of their own, or reliable packets are still queued or were sent again after a
    /// restart.
    unsure: bool,
    /// Number of messages other than packets that an application refused.
    replies_lost: u64,
}

impl Bounds {
    pub fn datagrams<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]>) {
        self.bytes_in += datagrams.map(<[u8]>::len).sum::<usize>();
    }

    /// Records that links accepted `accepted` of the datagrams just received.
    pub fn accepted<'a>(&mut self, accepted: u64, datagrams: impl Iterator<Item = &'a [u8]>) {
        let (mut all, mut packets) = (0, 0);
        for bytes in datagrams {
            all += 1;
            for frame in Frames::new(Seal::frames(bytes)) {
                let Ok(Frame::Data(header, _)) = frame else { continue };
                packets += 1;
                // Reliable packets are queued for their link without a time limit.
                self.unsure |= header.flow.service == Service::Reliable;
            }
        }
        if accepted == all {
            self.packets_in += packets;
        } else if accepted > 0 {
            self.unsure = true;
        }
    }

    pub fn message(&mut self, message: &[u8]) {
        self.bytes_in += message.len();
        self.messages_in += 1;
        self.unsure |= matches!(
            ToNode::parse(message),
            Ok(ToNode::Stream(_) | ToNode::Send { service: Service::Reliable, .. })
        );
    }

    pub fn delivered(&mut self, message: &Message, lost: bool) {
        const STREAM_DATA: u8 = 0x89;
        if !(lost && message.head[0] == STREAM_DATA) {
            // A node keeps stream data that an application does not accept.
            self.payload_out += message.payload.len();
        }
        assert!(self.payload_out <= self.bytes_in, "applications are handed more than came in");
        // Statuses of destinations are sent again later.
        const RECEIVED: u8 = 0x82;
        const STATUS: u8 = 0x84;
        let reply = !matches!(message.head[0], RECEIVED | STATUS);
        self.replies_lost += u64::from(lost && reply);
    }

    /// Checks that the counts balance once everything has been sent or has expired.
    pub fn check(&self, node: &Node) {
        let stats = node.stats();
        assert!(stats.from_sessions <= self.messages_in);
        // An answered echo is returned as a packet.
        let mut out =
            stats.to_sessions + stats.port_unreachable_accepted + packets_dropped(&stats.drops);
        for (_, link) in node.links() {
            let s = link.stats();
            let originals = Service::ALL.map(|service| s.of(service).originals.envelopes);
            out += originals.iter().sum::<u64>() + packets_dropped(&s.drops);
            let config = &link.config().realtime;
            let s = s.of(Service::RealTime);
            let share = s.originals.envelopes as f64 * config.retransmit_ratio;
            let most = share + f64::from(config.retransmit_burst);
            assert!(
                s.retransmissions.envelopes as f64 <= most,
                "retransmissions beyond their share"
            );
            let receiver = s.receiver.expect("it looks for what is missing");
            assert!(receiver.asked <= receiver.missing, "a packet was asked for twice");
        }
        if !self.unsure {
            // The source of a dropped packet may have been notified.
            let came = self.packets_in + stats.from_sessions + stats.port_unreachable_sent;
            assert_eq!(came + self.replies_lost, out, "packets went missing");
        }
    }
}

fn packets_dropped(drops: &Drops) -> u64 {
    // The other reasons drop whole envelopes, or retransmissions of packets that were sent.
    const PACKETS: [DropReason; 15] = [
        DropReason::Bounced,
        DropReason::Duplicate,
        DropReason::FlowDuplicate,
        DropReason::HopLimit,
        DropReason::NoRoute,
        DropReason::NoPort,
        DropReason::TooLarge,
        DropReason::NoAddress,
        DropReason::QueueFull,
        DropReason::QueueDelay,
        DropReason::SourceShare,
        DropReason::Late,
        DropReason::SessionFull,
        DropReason::EchoLimit,
        DropReason::EchoUnexpected,
    ];
    PACKETS.map(|why| drops.get(why)).iter().sum()
}
