//! Valid inputs of the routing targets.

use super::Step as S;
use trunkline_overlay::link::LinkCost;
use trunkline_overlay::route::update::{Introduction, Update, sign};
use trunkline_overlay::route::{Advert, CostModel, Unsigned};
use trunkline_overlay::wire::{ControlKind, NodeId};

fn record(signed: Vec<u8>) -> Vec<u8> {
    [&sign(signed, &Unsigned)[..], &[0, 9]].concat()
}

fn update(origin: u32, links: u32) -> Vec<u8> {
    with_digest(origin, links, CostModel::default().digest())
}

fn with_digest(origin: u32, links: u32, digest: u32) -> Vec<u8> {
    let cost = LinkCost { latency: 100, loss: 3_277, residual: 320, penalty: 0 };
    let link = |n| Advert { neighbour: NodeId(origin + 1 + n), path: n as u8 % 2, cost };
    let links = (0..links).map(link).collect();
    let (origin, seq) = (NodeId(origin), 1 << 60);
    let update = Update { origin, seq, fragment: 0, draining: true, digest, links };
    record(update.emit().expect("few links"))
}

/// Frames, and the bodies of frames.
pub fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let introduction = Introduction { origin: NodeId(3), seq: 5, certificate: vec![0xc5; 170] };
    let introduction = record(introduction.emit().expect("a short certificate"));
    let records = [introduction, update(3, 2), update(4, 0)].concat();
    let len = (records.len() as u16).to_be_bytes();
    let ack = |kind: u8, origin: u8| [&[kind, 0, 0, 0, origin][..], &[7; 8]].concat();
    vec![
        ("records", [&[ControlKind::LinkState as u8][..], &len, &records].concat()),
        ("full_record", update(9, 32)),
        ("digest", with_digest(9, 3, 7)),
        ("acks", [ack(0x80, 3), ack(0, 3), ack(7, 4)].concat()),
    ]
}

fn up(link: u8, neighbour: u8) -> [S; 2] {
    let up = S::Up { link, neighbour, path: 0, restarted: 1, rtt: 20 };
    [up, S::Cost { link, latency: 100, loss: 600, residual: 10 }]
}

fn links(link: u8, origin: u8, seq: u16, ends: &[u8]) -> S {
    let ends = ends.iter().flat_map(|&n| [n, 100]).collect();
    S::Links { link, origin, seq, age: 0, fragment: 0, digest: 0, ends }
}

/// Scripts for a router.
pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |steps: &[S]| {
        let mut out = Vec::new();
        steps.iter().for_each(|step| step.write(&mut out));
        out
    };
    let ms = |n| S::Sleep { unit: 1, n };
    let start = [&up(0, 2)[..], &up(1, 3), &[links(0, 2, 1, &[1, 4]), links(1, 3, 1, &[1, 4])]];
    let start = start.concat();
    let square = [
        S::Introduce { link: 0, origin: 4, seq: 0, age: 3, certificate: vec![1; 8] },
        links(0, 4, 1, &[2, 3]),
        links(1, 4, 1, &[2, 3]),
        ms(60),
        S::AckLast { link: 0 },
        S::Wake {},
        S::Down { link: 0 },
        ms(30),
        S::Up { link: 0, neighbour: 2, path: 0, restarted: 0, rtt: 20 },
        S::Wake {},
    ];
    let own = [
        S::Links { link: 0, origin: 1, seq: 900, age: 5, fragment: 2, digest: 0, ends: vec![9, 9] },
        ms(60),
        S::Echo { link: 0 },
        S::Introduce { link: 1, origin: 1, seq: 1_000, age: 0, certificate: vec![] },
        S::Drain { yes: 1 },
        ms(60),
        S::Static { to: 9, via: 3 },
        S::Static { to: 0, via: 2 },
        ms(30),
    ];
    let crowd: Vec<S> = (0..32).map(|n| links(0, n, 2, &[n + 1])).collect();
    let differ = |origin, seq, digest| {
        let ends = vec![1, 100];
        S::Links { link: 0, origin, seq, age: 0, fragment: 0, digest, ends }
    };
    let digests = [differ(2, 2, 1), differ(4, 2, 1), differ(4, 3, 0), differ(2, 3, 0), ms(60)];
    let mut aged = start.clone();
    for _ in 0..9 {
        aged.extend([S::Sleep { unit: 3, n: 255 }, S::Wake {}, S::Wake {}]);
    }
    vec![
        ("square", script(&[&start[..], &square].concat())),
        ("own_past", script(&[&start[..], &own].concat())),
        ("crowd", script(&[&start[..], &crowd, &[ms(60), S::Wake {}]].concat())),
        ("aged", script(&aged)),
        ("digests", script(&[&start[..], &digests].concat())),
    ]
}
