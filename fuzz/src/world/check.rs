//! What a node among neighbours may say, and how much.

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

/// Two hellos of a link are at least this far apart, whatever provokes them.
const HELLO_SPACING: Duration = Duration::from_millis(10);

/// What the five bits of a packet's hop limit hold.
const MAX_HOPS_FIELD: u8 = 31;

/// What the node has put on its links.
#[derive(Default)]
pub struct Emitted {
    hello: [Option<Time>; LINKS],
    counter: [u32; LINKS],
}

impl Emitted {
    /// Looks at one envelope; the link that it goes over.
    pub fn check(&mut self, now: Time, node: &Node, envelope: &Envelope) -> usize {
        let header = open_header(&envelope.bytes).expect("an envelope");
        let to = |i: &usize| header.receiver == ReceiverIndex::derived(OWN, neighbour(*i), "");
        let i = (0..LINKS).find(to).expect("an envelope to a neighbour");
        let link = node.link(LinkId(i as u16)).expect("a link");
        let elsewhere = Some(envelope.to) != link.address();
        assert!(!elsewhere || Some(envelope.to) == link.candidate(), "to where it may be");
        assert!(envelope.bytes.len() + IP_UDP_HEADERS <= link.config().mtu, "it fits the MTU");
        if elsewhere && header.counter.wrapping_add(1) == self.counter[i] {
            // A copy of the one before, for an address that is asked.
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

/// What went into the node and what may come out.
#[derive(Default)]
pub struct Bounds {
    bytes_in: usize,
    messages_in: u64,
    payload_out: usize,
    /// Data frames in envelopes that a link took.
    packets_in: u64,
    /// Of a batch only some envelopes were taken, streams have sent packets of their own, or
    /// reliable ones may still wait, or have gone once more after a restart: the books can't
    /// balance.
    unsure: bool,
    /// Messages other than packets that were refused by an application.
    replies_lost: u64,
}

impl Bounds {
    pub fn datagrams<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]>) {
        self.bytes_in += datagrams.map(<[u8]>::len).sum::<usize>();
    }

    /// Of the datagrams just received the links took `accepted`.
    pub fn accepted<'a>(&mut self, accepted: u64, datagrams: impl Iterator<Item = &'a [u8]>) {
        let (mut all, mut packets) = (0, 0);
        for bytes in datagrams {
            all += 1;
            for frame in Frames::new(Seal::frames(bytes)) {
                let Ok(Frame::Data(header, _)) = frame else { continue };
                packets += 1;
                // Those wait for their link as long as it takes.
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
            // A node keeps what an application doesn't take of a stream.
            self.payload_out += message.payload.len();
        }
        assert!(self.payload_out <= self.bytes_in, "applications are handed more than came in");
        // What is said of destinations is said again later.
        const RECEIVED: u8 = 0x82;
        const STATUS: u8 = 0x84;
        let reply = !matches!(message.head[0], RECEIVED | STATUS);
        self.replies_lost += u64::from(lost && reply);
    }

    /// Everything has gone or expired: the books balance.
    pub fn check(&self, node: &Node) {
        let stats = node.stats();
        assert!(stats.from_sessions <= self.messages_in);
        // An echo that is answered goes back as a packet.
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
            // Of a packet that was dropped its source may have been told.
            let came = self.packets_in + stats.from_sessions + stats.port_unreachable_sent;
            assert_eq!(came + self.replies_lost, out, "packets went missing");
        }
    }
}

fn packets_dropped(drops: &Drops) -> u64 {
    // The others drop whole envelopes, or repeats of packets that were sent.
    const PACKETS: [DropReason; 14] = [
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
        DropReason::Late,
        DropReason::SessionFull,
        DropReason::EchoLimit,
        DropReason::EchoUnexpected,
    ];
    PACKETS.map(|why| drops.get(why)).iter().sum()
}
