//! The packet path does not allocate in steady state.

#[path = "../../benches/support/chain.rs"]
mod chain;

use chain::{BATCH, Case, Chain};
use trunkline_base::Time;
use trunkline_overlay::wire::{
    DATA_OVERHEAD, Incarnation, OpenError, ReceiverIndex, Role, Seal, Sealed, Service, SessionKeys,
};

fn allocations_of(role: chain::Role, service: Service, sealed: bool, trunk: bool) -> u64 {
    // A TCP's share of a lossy link would be only few of these packets.
    let loss = if service == Service::Reliable { 0.001 } else { 0.05 };
    let mut chain = Chain::new(Case { role, service, loss, sealed, trunk, ..Case::RELAY });
    let (delivered, (repeated, asked)) = (chain.delivered(), chain.repairs());
    let batches = 1_000;
    let allocations = (0..batches)
        .map(|_| {
            chain.prepare(BATCH);
            allocation_counter::measure(|| chain.run()).count_total
        })
        .sum();
    // Otherwise nothing was measured.
    let sent = (batches * BATCH) as u64;
    let arrived = chain.delivered() - delivered;
    let (repeats, asks) = chain.repairs();
    if service == Service::RealTime {
        assert!(arrived > sent * 98 / 100, "{arrived} of {sent} delivered");
        // Seven packets leave together.
        let some = if trunk { sent / 7 / 50 } else { sent / 50 };
        assert!(role == chain::Role::Destination || repeats > repeated + some);
        assert!(role == chain::Role::Origin || asks > asked + some);
    } else if service == Service::Reliable {
        assert!(arrived > sent * 50 / 100, "{arrived} of {sent} delivered");
    } else {
        assert!(arrived > sent * 85 / 100, "{arrived} of {sent} delivered");
    }
    let compressed: u64 = chain.trunks().map(|t| t.stats.compressed).sum();
    assert!(
        !trunk || role != chain::Role::Origin || compressed > sent / 2,
        "{:?}",
        chain.trunks().next()
    );
    allocations
}

#[test]
fn a_packet_costs_no_allocation() {
    for role in [chain::Role::Origin, chain::Role::Relay, chain::Role::Destination] {
        for (service, sealed, trunk) in [
            (Service::RealTime, false, false),
            (Service::BestEffort, false, false),
            (Service::RealTime, true, false),
            (Service::RealTime, false, true),
            (Service::Reliable, false, false),
            (Service::Reliable, true, false),
        ] {
            let n = allocations_of(role, service, sealed, trunk);
            assert_eq!(
                n, 0,
                "{role:?}, {service:?}, sealed {sealed}, trunk {trunk}: {n} allocations in 64,000 packets"
            );
        }
    }
}

#[test]
fn a_queue_of_many_sources_costs_no_allocation() {
    for service in [Service::RealTime, Service::BestEffort] {
        let many = Case { sources: 1_000, shuffled: true, busy: true, service, ..Case::RELAY };
        let mut chain = Chain::new(many);
        let mut run = || {
            chain.prepare(BATCH);
            allocation_counter::measure(|| chain.run()).count_total
        };
        let allocations: u64 = (0..1_000).map(|_| run()).sum();
        assert_eq!(allocations, 0, "{service:?}");
    }
}

#[test]
fn sealing_and_opening_cost_no_allocation() {
    let keys = |role| SessionKeys {
        local: ReceiverIndex::new(1),
        remote: ReceiverIndex::new(1),
        send: [1; 32].into(),
        recv: [1; 32].into(),
        role,
        peer: Incarnation(1),
    };
    let [mut a, mut b] = [Role::Initiator, Role::Responder].map(|role| {
        let mut sealed = Box::new(Sealed::new());
        sealed.install(keys(role), Time::ZERO);
        Seal::Aead(sealed)
    });
    let mut envelope = [0; DATA_OVERHEAD + 160];
    let seen = allocation_counter::measure(|| {
        for n in 0..1_000 {
            assert!(a.seal(&mut envelope));
            let mut copy = envelope;
            assert_eq!(b.open(&mut envelope).expect("sealed just now").1, n);
            assert_eq!(b.open(&mut copy), Err(OpenError::Replayed));
        }
    });
    assert_eq!(seen.count_total, 0);
}

#[test]
fn the_counter_counts() {
    let seen = allocation_counter::measure(|| drop(core::hint::black_box(Box::new(1))));
    assert_eq!(seen.count_total, 1);
}
