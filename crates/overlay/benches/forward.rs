//! Time that one packet costs a node, in nanoseconds: no sockets, batches of 64.

#[path = "support/chain.rs"]
mod chain;

use chain::{BATCH, Case, Chain, PACKET, Role};
use core::hint::black_box;
use core::time::Duration;
use criterion::measurement::{Measurement, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use trunkline_base::wire::Writer;
use trunkline_overlay::wire::{
    DATA_OVERHEAD, DataHeader, FlowHeader, Frames, HopHeader, Incarnation, NodeId, Null,
    ReceiverIndex, Seal, Service, open_header,
};

/// Reports the time per packet, although only whole batches are timed.
fn per_packet(c: &mut Criterion, name: &str, case: Case) {
    let mut chain = Chain::new(case);
    let clock = WallTime;
    c.bench_function(name, |b| {
        b.iter_custom(|packets| {
            let batches = packets.div_ceil(BATCH as u64);
            let mut spent = Duration::ZERO;
            for _ in 0..batches {
                chain.prepare(BATCH);
                let start = clock.start();
                chain.run();
                spent += clock.end(start);
            }
            spent.mul_f64(packets as f64 / (batches * BATCH as u64) as f64)
        });
    });
}

fn node(c: &mut Criterion) {
    use Role::{Destination, Origin, Relay};
    use Service::{BestEffort, RealTime};
    let relay = Case::RELAY;
    for (name, role, service, flows, loss) in [
        ("relay, real time, 1 flow", Relay, RealTime, 1, 0.0),
        ("relay, real time, 1000 flows", Relay, RealTime, 1_000, 0.0),
        ("relay, best effort, 1 flow", Relay, BestEffort, 1, 0.0),
        ("relay, best effort, 1000 flows", Relay, BestEffort, 1_000, 0.0),
        ("relay, real time, 1000 flows, 5 % loss", Relay, RealTime, 1_000, 0.05),
        ("deliver, 1 flow", Destination, RealTime, 1, 0.0),
        ("deliver, 1000 flows", Destination, RealTime, 1_000, 0.0),
        ("deliver, 10000 flows", Destination, RealTime, 10_000, 0.0),
        ("originate, 1 flow", Origin, RealTime, 1, 0.0),
        ("originate, 1000 flows", Origin, RealTime, 1_000, 0.0),
        ("originate, 10000 flows", Origin, RealTime, 10_000, 0.0),
    ] {
        per_packet(c, name, Case { role, service, flows, loss, ..relay });
    }
    for (name, service) in [("real time", RealTime), ("best effort", BestEffort)] {
        for (load, busy) in [("", false), (", busy", true)] {
            for sources in [1, 1_000] {
                let name = format!("relay, {name}{load}, 1000 flows, {sources} sources");
                per_packet(c, &name, Case { service, sources, busy, ..relay });
            }
        }
    }
}

fn wire(c: &mut Criterion) {
    let header = DataHeader {
        flow: FlowHeader {
            service: Service::RealTime,
            metric: trunkline_overlay::wire::Metric::default(),
            source: NodeId(1),
            destination: NodeId(3),
            source_port: 1_000,
            destination_port: 1_001,
            flow_seq: 9,
        },
        hop: HopHeader { recovered: false, hop_limit: 30, link_seq: 7, remaining_ms: 90 },
    };
    let mut seal = Seal::Null(Null::new(ReceiverIndex::new(5), Incarnation(1)));
    let mut envelope = [0; DATA_OVERHEAD + PACKET];
    let packet = [0xd5; PACKET];
    c.bench_function("wire: write an envelope", |b| {
        b.iter(|| {
            let mut w = Writer::new(Seal::frames_mut(&mut envelope));
            let written = black_box(&header).emit(PACKET as u16, &mut w);
            written.and_then(|()| w.bytes(black_box(&packet))).expect("room");
            seal.seal(black_box(&mut envelope));
        });
    });
    c.bench_function("wire: read an envelope", |b| {
        b.iter(|| {
            let header = black_box(open_header(black_box(&envelope)));
            let opened = black_box(seal.open(black_box(&mut envelope)));
            let frame = black_box(Frames::new(Seal::frames(black_box(&envelope))).next());
            header.is_ok() && opened.is_ok() && frame.is_some()
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(40)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .nresamples(10_000);
    targets = node, wire
}
criterion_main!(benches);
