//! Datagrams from unknown sources at a node's UDP port during a call.

use crate::common::on_time::on_time;
use crate::common::{Chain, ms, stream, wait_for};
use macro_rules_attribute::apply;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use trunkline_base::wire::Writer;
use trunkline_client::{NodeId, Service, SocketOption};
use trunkline_overlay::wire::{
    DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Hello, HopHeader, Incarnation, Nack, NackRange,
    Null, ReceiverIndex, Seal,
};

/// An envelope from node 1 to the link of node 2, with an incarnation later than any, and the
/// frames that `write` writes.
fn forged(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let index = ReceiverIndex::derived(NodeId(1), NodeId(2), "");
    forged_for(index, write)
}

fn forged_for(index: ReceiverIndex, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut frames = [0; 1_200];
    let mut w = Writer::new(&mut frames);
    write(&mut w);
    let frames = w.written();
    let mut envelope = vec![0; ENVELOPE_OVERHEAD + frames.len()];
    Seal::frames_mut(&mut envelope).copy_from_slice(frames);
    Seal::Null(Null::new(index, Incarnation(u64::MAX))).seal(&mut envelope);
    envelope
}

fn hello(w: &mut Writer<'_>) {
    Hello { probe: false, seq: 1, sent_us: 1, echo: Some((0, 0)), ..Hello::default() }
        .emit(w)
        .expect("room");
}

fn nack(w: &mut Writer<'_>) {
    let ranges = [NackRange { first: 0, count: 256 }; 64];
    Nack::emit(Service::RealTime, &ranges, w).expect("room");
}

fn data(w: &mut Writer<'_>) {
    let header = DataHeader {
        flow: FlowHeader {
            service: Service::RealTime,
            metric: trunkline_overlay::wire::Metric::default(),
            source: NodeId(1),
            destination: NodeId(2),
            source_port: 1,
            destination_port: 4_000,
            flow_seq: 30_000,
        },
        hop: HopHeader { recovered: false, hop_limit: 31, link_seq: 30_000, remaining_ms: 255 },
    };
    header.emit(160, w).and_then(|()| w.bytes(&[0; 160])).expect("room");
}

/// Datagrams of the attack, and the expected count for each drop reason.
fn attack() -> (Vec<Vec<u8>>, [(&'static str, u64); 3]) {
    const ROUNDS: u64 = 40;
    let mut datagrams = Vec::new();
    let mut dice = 0x9e37_79b9_u32;
    let mut random = |len: usize| -> Vec<u8> {
        (0..len)
            .map(|_| {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (dice >> 24) as u8
            })
            .collect()
    };
    let unknown_peer =
        ReceiverIndex::new(ReceiverIndex::derived(NodeId(1), NodeId(2), "").get() ^ 1);
    for round in 0..ROUNDS as usize {
        // Malformed envelopes: too short, of an unknown type, far too long.
        let whole = forged(hello);
        datagrams.push(whole[..1 + round % (ENVELOPE_OVERHEAD - 1)].to_vec());
        for len in [24, 200, 1_472, 9_000] {
            let mut noise = random(len);
            noise[0] = 0x40 | round as u8;
            datagrams.push(noise);
        }
        if round % 10 == 0 {
            let mut huge = random(60_000);
            huge[0] = 0xff;
            datagrams.push(huge);
        }
        // An envelope for a link that does not exist.
        datagrams.push(forged_for(unknown_peer, hello));
        // Envelopes as the neighbour would send them, but from another address.
        datagrams.extend([forged(hello), forged(nack), forged(data), forged(|_| ())]);
    }
    let counts = [
        ("malformed", 5 * ROUNDS + ROUNDS / 10),
        ("unknown_receiver", ROUNDS),
        ("wrong_source", 4 * ROUNDS),
    ];
    (datagrams, counts)
}

#[apply(on_time)]
fn strangers_are_counted_and_harm_nobody() {
    let mut chain = Chain::of(2);
    let (from, to) = (chain.nodes[0].bind(0), chain.nodes[1].bind(4_000));
    // All allocations for a flow have been made by now.
    assert_eq!(stream(&from, &to, 0..50, ms(2)).len(), 50);
    let target = chain.nodes[1].udp;
    let resident = chain.last().resident();
    let allocations = || chain.nodes[1].metrics().sum("packet_thread_allocations_total", "");
    let (first, second) = (allocations(), allocations());

    let (datagrams, counts) = attack();
    for service in [Service::RealTime, Service::BestEffort] {
        from.set_option(SocketOption::Service(service)).expect("in range");
        let heard = thread::scope(|scope| {
            scope.spawn(|| bombard(target, &datagrams));
            stream(&from, &to, 100..400, ms(2))
        });
        let numbers: Vec<u32> = heard.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, (100..400).collect::<Vec<_>>(), "{service:?}");
    }
    for (reason, n) in counts {
        wait_for(reason, || (chain.nodes[1].metrics().drops(reason) == 2 * n).then_some(()));
    }
    let m = chain.nodes[1].metrics();
    for (metric, n) in [("kernel_drops_total", 0), ("to_sessions_total", 650)] {
        assert_eq!(m.sum(metric, ""), n, "{metric}");
    }
    assert_eq!(m.sum("link_restarts_total", ""), 0, "a forged start of the neighbour was believed");
    assert_eq!(m.drops("stale"), 0);
    // Fetching the metrics allocates as much as before, and packets nothing.
    let asked = 1 + counts.len() as u64 * 20;
    let grown = allocations() - second;
    assert!(grown <= asked * (second - first), "{grown} allocations under attack");
    let grown = chain.last().resident().saturating_sub(resident);
    assert!(grown < 8 << 10, "the node grew by {grown} KiB");
    chain.last().assert_healthy();
}

fn bombard(target: SocketAddr, datagrams: &[Vec<u8>]) {
    let sockets: Vec<_> =
        (0..4).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
    for (i, datagram) in datagrams.iter().enumerate() {
        sockets[i % 4].send_to(datagram, target).expect("sent");
        thread::sleep(ms(1));
    }
}

#[apply(on_time)]
fn an_empty_datagram_is_counted_too() {
    let chain = Chain::of(2);
    bombard(chain.nodes[0].udp, &[Vec::new(), Vec::new()]);
    wait_for("a count", || (chain.nodes[0].metrics().drops("malformed") == 2).then_some(()));
}
