//! Cost of sealing, in nanoseconds for the envelope of a voice packet, and of a handshake, in
//! microseconds for both ends together.

use core::hint::black_box;
use core::net::SocketAddr;
use core::time::Duration;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use trunkline_base::{Rate, Time};
use trunkline_overlay::handshake::{Config, Event, Handshakes, Limits, Offer, Peer};
use trunkline_overlay::identity::{Identity, Trust};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::wire::{DATA_OVERHEAD, Incarnation, NodeId, Seal, Sealed};

const LINK: LinkId = LinkId(0);
/// Length of an envelope with 160 bytes of G.711.
const ENVELOPE: usize = DATA_OVERHEAD + 160;

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 7_000))
}

fn config(n: u8) -> Config {
    Config {
        node: NodeId(n.into()),
        identity: Identity::from_secret(&[n; 32]),
        certificate: None,
        trust: Trust::default(),
        incarnation: Incarnation(1),
        offer: Offer::default(),
        limits: Limits::default(),
    }
}

fn machine(n: u8, other: u8) -> Handshakes {
    let peer = Peer {
        node: NodeId(other.into()),
        path: String::new(),
        key: Some(Identity::from_secret(&[other; 32]).public()),
        address: Some(address(other)),
        mtu: 1_280,
    };
    let mut machine = Handshakes::new(config(n), [n; 32]);
    machine.add(LINK, peer, Time::ZERO);
    machine
}

/// Returns the datagrams that a machine wants to send, and installs the sessions it established in
/// `seal`.
fn drain(machine: &mut Handshakes, seal: &mut Sealed) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(event) = machine.poll() {
        match event {
            Event::Send { bytes, .. } => out.push(bytes),
            Event::Established(e) => seal.install(e.keys, Time::ZERO),
            _ => {}
        }
    }
    out
}

fn first_message(a: &mut Handshakes) -> Vec<u8> {
    a.handle_timeout(Time::ZERO);
    drain(a, &mut Sealed::new()).remove(0)
}

/// Two seals that share one session.
fn sealed() -> (Seal, Seal) {
    let (mut a, mut b) = (machine(1, 2), machine(2, 1));
    let (mut at_a, mut at_b) = (Box::new(Sealed::new()), Box::new(Sealed::new()));
    let first = first_message(&mut a);
    b.recv(Time::ZERO, 0, address(1), &first);
    let second = drain(&mut b, &mut at_b).remove(0);
    a.recv(Time::ZERO, 0, address(2), &second);
    drain(&mut a, &mut at_a);
    (Seal::Aead(at_a), Seal::Aead(at_b))
}

fn envelopes(c: &mut Criterion) {
    let (mut a, mut b) = sealed();
    let mut group = c.benchmark_group("envelope of 204 bytes");
    group.throughput(Throughput::Bytes(ENVELOPE as u64));
    let mut envelope = [0xd5; ENVELOPE];
    group.bench_function("seal", |bench| bench.iter(|| a.seal(black_box(&mut envelope))));
    let mut seal_one = || {
        let mut envelope = [0xd5; ENVELOPE];
        assert!(a.seal(&mut envelope));
        envelope
    };
    group.bench_function("open", |bench| {
        bench.iter_batched_ref(&mut seal_one, |e| b.open(e).is_ok(), BatchSize::SmallInput);
    });
    let replayed = seal_one();
    assert!(b.open(&mut replayed.clone()).is_ok());
    group.bench_function("refuse, replayed", |bench| {
        bench.iter_batched_ref(|| replayed, |e| b.open(e).is_err(), BatchSize::SmallInput);
    });
    let mut forged = seal_one();
    forged[20] ^= 1;
    group.bench_function("refuse, forged", |bench| {
        bench.iter_batched_ref(|| forged, |e| b.open(e).is_err(), BatchSize::SmallInput);
    });
    group.finish();
}

fn handshakes(c: &mut Criterion) {
    let mut group = c.benchmark_group("handshake");
    let setup = || (machine(1, 2), machine(2, 1));
    group.bench_function("both ends, without the wire", |bench| {
        bench.iter_batched(
            setup,
            |(mut a, mut b)| {
                let first = first_message(&mut a);
                b.recv(Time::ZERO, 0, address(1), &first);
                let second = drain(&mut b, &mut Sealed::new()).remove(0);
                a.recv(Time::ZERO, 0, address(2), &second);
                assert_eq!(a.stats().established, 1);
            },
            BatchSize::SmallInput,
        );
    });
    let first = first_message(&mut machine(1, 2));
    group.bench_function("answer an initiation", |bench| {
        bench.iter_batched(
            || machine(2, 1),
            |mut b| {
                b.recv(Time::ZERO, 0, address(1), &first);
                assert_eq!(b.stats().established, 1);
            },
            BatchSize::SmallInput,
        );
    });
    let mut wrong = first.clone();
    wrong[5] ^= 1;
    let mut b = machine(2, 1);
    group.bench_function("refuse an initiation, wrong mac", |bench| {
        bench.iter(|| b.recv(Time::ZERO, 0, address(9), black_box(&wrong)));
    });
    let mut b = Handshakes::new(
        Config { limits: Limits { unknown_peers: Rate::NONE, ..Limits::default() }, ..config(2) },
        [2; 32],
    );
    group.bench_function("refuse an initiation under load, with a cookie", |bench| {
        let mut now = Time::ZERO;
        bench.iter(|| {
            now += Duration::from_millis(1);
            b.recv(now, 0, address(9), black_box(&first));
            while b.poll().is_some() {}
        });
        assert_eq!(b.stats().computed, 0);
        assert!(b.stats().answers > 0);
    });
    group.finish();
}

criterion_group!(benches, envelopes, handshakes);
criterion_main!(benches);
