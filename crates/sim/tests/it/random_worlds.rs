//! Small random networks with random traffic: in no case does anything panic, arrive twice, arrive
//! without being sent, or pile up.

use crate::common::*;
use proptest::prelude::*;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{Chain, LinkModel, Loss, Queue, Red};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{MAX_PACKET, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId};

#[derive(Clone, Debug)]
struct Link {
    ends: (u32, u32),
    models: (LinkModel, LinkModel),
    rate: Option<Bitrate>,
    reorder: u16,
}

#[derive(Clone, Debug)]
struct Traffic {
    ends: (u32, u32),
    service: Service,
    deadline_ms: u8,
    spacing: Duration,
    start: Duration,
    count: u64,
    bytes: usize,
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        2 => Just(Loss::None),
        2 => (0.0..0.4).prop_map(|p| Loss::Bernoulli { p }),
        1 => (0.0..0.2, 0.2..0.9).prop_map(|(p, b)| {
            Loss::Burst { p, b, chain: Chain::PerPacket }
        }),
        1 => (0.0..0.2, 0.2..0.9).prop_map(|(p, b)| {
            Loss::Burst { p, b, chain: Chain::Continuous { spacing: ms(20) } }
        }),
        1 => Just(Loss::Bernoulli { p: 1.0 }),
    ]
}

fn rate() -> impl Strategy<Value = Option<Bitrate>> {
    prop::option::of((64_000u64..10_000_000).prop_map(Bitrate::from_bps))
}

fn queue() -> impl Strategy<Value = Queue> {
    let red = (0usize..100, 1u32..10, 1u32..20, 0.0..=1.0, 0.001..=1.0, any::<bool>());
    prop_oneof![
        (0usize..100).prop_map(Queue::Packets),
        red.prop_map(|(limit, min, above, max_p, weight, ecn)| {
            let (min, max) = (f64::from(min), f64::from(min + above));
            Queue::Red(Red { limit, min, max, max_p, weight, ecn, ..Red::default() })
        }),
    ]
}

prop_compose! {
    fn model()(
        delay in 0u64..200, jitter in 0u64..30, loss in loss(), rate in rate(), queue in queue(),
    ) -> LinkModel {
        LinkModel { delay: ms(delay), jitter: ms(jitter), loss, rate, queue }
    }
}

prop_compose! {
    fn some_link(hosts: u32)(
        a in 0..hosts, b in 1..hosts, models in (model(), model()), rate in rate(), reorder in 0u16..4,
    ) -> Link {
        Link { ends: (a, (a + b) % hosts), models, rate, reorder }
    }
}

prop_compose! {
    fn traffic(hosts: u32)(
        ends in (0..hosts, 0..hosts), realtime in any::<bool>(), deadline_ms in 1u8..,
        spacing in 300u64..40_000, start in 0u64..1_000, count in 0u64..150,
        bytes in 28..MAX_PACKET,
    ) -> Traffic {
        Traffic {
            ends, deadline_ms, count, bytes,
            service: if realtime { RT } else { BE },
            spacing: Duration::from_micros(spacing),
            start: ms(start),
        }
    }
}

type Case = (u32, Vec<Link>, Vec<Traffic>, Vec<(u32, u32, u32)>, Vec<(u32, u64)>);

fn case() -> impl Strategy<Value = Case> {
    (2u32..=6).prop_flat_map(|n| {
        (
            Just(n),
            prop::collection::vec(some_link(n), 1..10),
            prop::collection::vec(traffic(n), 1..8),
            // Routes that lead anywhere, including in circles.
            prop::collection::vec((0..n, 0..n, 0..n), 0..4),
            prop::collection::vec((0..n, 0u64..2_000), 0..3),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_network_breaks_the_rules((hosts, links, flows, routes, mut restarts) in case(), seed in any::<u64>()) {
        let mut t = Topology::new();
        let ids: Vec<HostId> = (0..hosts).map(|h| t.host(NodeId(h + 1))).collect();
        for (k, l) in links.iter().enumerate() {
            let [a, b] = [l.ends.0, l.ends.1].map(|h| ids[h as usize]);
            t.link_with(a, b, l.models.0.clone(), l.models.1.clone(), |c| {
                c.path = k.to_string();
                c.rate = l.rate;
                c.realtime.reorder = l.reorder;
            });
        }
        for &(at, to, via) in &routes {
            let joins = |l: &&Link| l.ends == (at, via) || l.ends == (via, at);
            if links.iter().any(|l| joins(&l)) {
                t.route(ids[at as usize], ids[to as usize], ids[via as usize], Duration::ZERO);
            }
        }
        t.route_all();
        let mut world = t.build(seed).unwrap();
        (0..links.len() as u32).for_each(|wire| world.ecn_capable(WireId(wire)));
        let sinks: Vec<_> =
            ids.iter().map(|&h| world.attach(h, 5_000, VoiceSink::default()).unwrap()).collect();
        let made: Vec<_> = flows.iter().map(|f| {
            let to = NodeId(f.ends.1 + 1);
            let mut source = VoiceSource::new(to, 5_000, f.service, at(0) + f.start, f.count);
            source.deadline_ms = f.deadline_ms;
            source.spacing = f.spacing;
            source.bytes = f.bytes;
            let call = world.attach(ids[f.ends.0 as usize], 0, source).unwrap();
            (call, sinks[f.ends.1 as usize])
        }).collect();

        restarts.sort_unstable_by_key(|r| r.1);
        let restarted = restarts.len() as u64;
        for (host, when) in restarts {
            world.run_until(at(when));
            world.restart(ids[host as usize]).unwrap();
        }
        // The flows end after 7 s at most. A full queue of 100 packets takes 19 s at 64 kbit/s, and
        // there may be several on a path.
        world.run_until(at(120_000));

        let o = outcome(&world, &made);
        prop_assert_eq!(o.sent, flows.iter().map(|f| f.count).sum::<u64>());
        // A restarted node has forgotten which packets it delivered, and may request some of them
        // again, in one NACK.
        prop_assert!(o.duplicates <= restarted * 64, "{} duplicates", o.duplicates);
        for &sink in &sinks {
            prop_assert_eq!(world.app(sink).foreign, 0);
            let known = made.iter().map(|c| world.origin(c.0)).collect::<Vec<_>>();
            prop_assert!(world.app(sink).flows.keys().all(|k| known.contains(k)));
        }
        for &call in &made {
            if let Some(flow) = world.app(call.1).flows.get(&world.origin(call.0)) {
                prop_assert!(flow.received <= world.app(call.0).sent());
            }
        }
        for wire in 0..links.len() as u32 {
            for l in world.ledgers(WireId(wire)) {
                let sum = l.delivered.packets + l.lost.packets + l.queue_dropped.packets;
                prop_assert_eq!(l.offered.packets, sum);
                prop_assert!(l.early_dropped.packets <= l.queue_dropped.packets);
                prop_assert!(l.marked.packets <= l.delivered.packets + l.lost.packets);
            }
        }
        // Only hellos remain, every 20 ms after a loss, in both directions on wires of at most 230
        // ms; and a few timers per host.
        prop_assert_eq!(world.misdirected(), 0);
        prop_assert!(world.in_flight() <= 24 * links.len(), "{} in flight", world.in_flight());
        let timers = world.scheduled() - world.in_flight();
        prop_assert!(timers <= 4 * hosts as usize, "{timers} timers");
    }
}
