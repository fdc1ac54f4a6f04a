//! The packet path does not allocate in steady state.

#[path = "../benches/support/chain.rs"]
mod chain;

use chain::{BATCH, Case, Chain, Role};
use trunkline_overlay::wire::Service;

fn allocations_of(role: Role, service: Service) -> u64 {
    let loss = 0.05;
    let mut chain = Chain::new(Case { role, service, flows: 1_000, loss });
    let (delivered, (repeated, asked)) = (chain.delivered(), chain.repairs());
    let batches = 1_000;
    let allocations = (0..batches)
        .map(|_| {
            chain.prepare(BATCH);
            allocation_counter::measure(|| chain.run()).count_total
        })
        .sum();
    // Else nothing was measured.
    let sent = (batches * BATCH) as u64;
    let arrived = chain.delivered() - delivered;
    let (repeats, asks) = chain.repairs();
    if service == Service::RealTime {
        assert!(arrived > sent * 98 / 100, "{arrived} of {sent} delivered");
        assert!(role == Role::Destination || repeats > repeated + sent / 50);
        assert!(role == Role::Origin || asks > asked + sent / 50);
    } else {
        assert!(arrived > sent * 85 / 100, "{arrived} of {sent} delivered");
    }
    allocations
}

#[test]
fn a_packet_costs_no_allocation() {
    for role in [Role::Origin, Role::Relay, Role::Destination] {
        for service in [Service::RealTime, Service::BestEffort] {
            let n = allocations_of(role, service);
            assert_eq!(n, 0, "{role:?}, {service:?}: {n} allocations in 64,000 packets");
        }
    }
}

#[test]
fn the_counter_counts() {
    let seen = allocation_counter::measure(|| drop(core::hint::black_box(Box::new(1))));
    assert_eq!(seen.count_total, 1);
}
