//! Scripts for a sealed node.

use super::script;
use crate::world::Step as S;
use trunkline_overlay::wire::ControlKind;

pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |steps: &[&[S]]| script(2, &[], &steps.concat());
    let up = [S::Greet { from: 0 }, hello(), ms(50), hello(), ms(50), hello()];
    let known = [introduce(3), ms(20)];
    let copies: Vec<S> = (0..40)
        .flat_map(|pick| {
            let from = pick % 3;
            [
                S::Copy { node: 0, pick, from },
                S::Truncate { pick, from, len: u16::from(pick) * 7 },
                S::Alter { node: 0, pick, from, at: u16::from(pick) * 5, xor: 1, mac: pick },
            ]
        })
        .collect();
    let unknown_peers = [
        S::Initiations { from: 1, n: 127 },
        S::Initiations { from: 9, n: 127 },
        S::Raw { from: 0, mac: 0, bytes: Vec::new() },
        S::Raw { from: 0, mac: 2, bytes: [&[0x13][..], &[0; 255]].concat() },
        S::Unsealed { from: 0, frames: vec![1; 15] },
        ms(40),
    ];
    let paths: Vec<S> = (1..8)
        .flat_map(|path| {
            [S::Restart { node: path }, S::Greet { from: 0 }, hello(), S::Sleep { unit: 2, n: 40 }]
        })
        .collect();
    let long = [S::Calm { n: 0 }, S::Calm { n: 0 }, S::Calm { n: 0 }, S::Calm { n: 0 }, ms(200)];
    vec![
        ("sealed_lies", script(&[&up, &known, &lies()])),
        ("sealed_copies", script(&[&up, &known, &copies, &unknown_peers])),
        ("sealed_paths", script(&[&paths])),
        ("sealed_changes", script(&[&up, &known, &changes(), &copies[..30]])),
        ("sealed_goodbyes", script(&[&up, &known, &goodbyes()])),
        ("sealed_new_keys", script(&[&up, &long, &copies])),
    ]
}

fn ms(n: u8) -> S {
    S::Sleep { unit: 1, n }
}

fn hello() -> S {
    S::Hello { from: 0, sent: 0, echo: 4, held: 0 }
}

fn goodbye() -> S {
    S::Frames { from: 0, incarnation: 0, frames: vec![ControlKind::Goodbye as u8] }
}

fn introduce(origin: u8) -> S {
    S::Introduce { origin, seq: 0, certificate: Vec::new() }
}

fn links(origin: u8, seq: u16, ends: &[u8]) -> S {
    S::Links { origin, seq, fragment: 0, age: 0, ends: ends.to_vec() }
}

fn lies() -> Vec<S> {
    vec![
        links(3, 1, &[1, 1, 2, 1]),
        ms(30),
        links(3, 1, &[1, 9]),
        links(3, 0, &[1, 9]),
        S::Wrap { origin: 3, seq: 0 },
        S::Wrap { origin: 3, seq: 1 },
        links(1, 60_000, &[3, 1]),
        links(2, 60_000, &[3, 1]),
        links(9, 1, &[3, 1]),
        introduce(2),
        S::Introduce { origin: 7, seq: 1, certificate: vec![1; 90] },
        ms(30),
        S::ManyLinks { origin: 3, seq: 10, n: 200 },
        S::ManyLinks { origin: 2, seq: 10, n: 100 },
        ms(200),
        S::Frames { from: 0, incarnation: 0, frames: vec![3, 0xff, 0xff, 1, 2, 3] },
        S::Frames { from: 5, incarnation: 0, frames: vec![0x80; 60] },
    ]
}

/// The liar sends a goodbye, comes back and restarts, and its datagrams are replayed.
fn goodbyes() -> Vec<S> {
    vec![
        goodbye(),
        hello(),
        goodbye(),
        ms(50),
        hello(),
        goodbye(),
        S::Copy { node: 0, pick: 0, from: 0 },
        S::Restart { node: 0 },
        S::Greet { from: 0 },
        hello(),
        ms(50),
        hello(),
        S::Copy { node: 0, pick: 1, from: 0 },
        S::Calm { n: 0 },
        S::Greet { from: 0 },
        hello(),
        ms(50),
        hello(),
        goodbye(),
        ms(200),
    ]
}

fn changes() -> Vec<S> {
    vec![
        S::Add { path: 1, reachable: 1 },
        S::Restart { node: 1 },
        S::Greet { from: 0 },
        hello(),
        ms(100),
        S::Revoke { yes: 1 },
        hello(),
        S::Greet { from: 0 },
        ms(100),
        S::Revoke { yes: 0 },
        S::Add { path: 2, reachable: 0 },
        S::Greet { from: 0 },
        hello(),
        S::Remove { link: 0 },
        hello(),
        S::Remove { link: 0 },
        ms(100),
    ]
}
