//! Scripts for two nodes and their applications.

use crate::world::Step as T;

const REAL_TIME: u8 = 0;
const BEST_EFFORT: u8 = 1;

pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let calm = T::Calm { n: 4 };
    let hellos = [T::Sleep { unit: 2, n: 11 }, calm.clone(), T::Sleep { unit: 2, n: 11 }, calm];
    let talk = |node, service, count| T::Send {
        node,
        session: 0,
        service,
        deadline: 150,
        to: 0,
        port: 0,
        len: 160,
        count,
    };
    let lossy = [
        talk(0, REAL_TIME, 8),
        talk(1, BEST_EFFORT, 4),
        T::Settle { node: 0, arena: 0 },
        T::Lose { node: 1, pick: 3 },
        T::Copy { node: 1, pick: 1, from: 0 },
        T::Overtake { node: 1, pick: 5, from: 0 },
        T::Calm { n: 9 },
    ];
    let late = [
        talk(0, BEST_EFFORT, 2),
        T::Settle { node: 0, arena: 0 },
        T::Copy { node: 1, pick: 0, from: 0 },
        T::Sleep { unit: 2, n: 5 },
        T::Arrive { node: 1, n: 9, age: 0 },
        T::Wake { node: 1, arena: 0 },
    ];
    let restart = [
        talk(0, REAL_TIME, 5),
        T::Settle { node: 0, arena: 0 },
        T::Restart { node: 0 },
        T::Arrive { node: 1, n: 3, age: 0 },
        talk(0, REAL_TIME, 5),
        T::Sleep { unit: 2, n: 11 },
        T::Calm { n: 9 },
    ];
    let outage = [
        T::Sleep { unit: 3, n: 2 },
        T::Wake { node: 0, arena: 0 },
        T::Wake { node: 1, arena: 0 },
        talk(1, REAL_TIME, 2),
        T::Calm { n: 5 },
    ];
    let altered = [
        talk(0, REAL_TIME, 3),
        T::Settle { node: 0, arena: 0 },
        T::Alter { node: 1, pick: 1, from: 0, at: 12, xor: 0x80, mac: 0 },
        T::Alter { node: 1, pick: 2, from: 0, at: 30, xor: 1, mac: 0 },
        T::Calm { n: 3 },
    ];
    let mut all = streams(&hellos);
    all.extend([
        ("pair_lossy", script([0, 1, 0], &[&hellos[..], &lossy].concat())),
        ("pair_late", script([0, 1, 1], &[&hellos[..], &late].concat())),
        ("pair_restart", script([0, 3, 2], &[&hellos[..], &restart].concat())),
        ("pair_outage", script([0, 1, 1], &[&hellos[..], &outage].concat())),
        ("pair_altered", script([1, 1, 0], &[&hellos[..], &altered].concat())),
        ("pair_sealed_lossy", sealed([0, 1, 0], &[&hellos[..], &lossy].concat())),
        ("pair_sealed_restart", sealed([0, 3, 2], &[&hellos[..], &restart].concat())),
        ("pair_sealed_altered", sealed([1, 1, 0], &[&hellos[..], &altered].concat())),
    ]);
    all
}

fn script(settings: [u8; 3], steps: &[T]) -> Vec<u8> {
    super::script(1, &settings, steps)
}

fn sealed([a, b, c]: [u8; 3], steps: &[T]) -> Vec<u8> {
    super::script(1, &[a, b, c, 1], steps)
}

fn streams(hellos: &[T]) -> Vec<(&'static str, Vec<u8>)> {
    let opened = [
        T::Listen { node: 1, backlog: 2 },
        T::Connect { node: 0, to: 1, credit: 4_000, messages: 1 },
        T::Connect { node: 1, to: 1, credit: 9_000, messages: 0 },
        T::Calm { n: 60 },
        T::Accept { node: 1, credit: 7_000, wrong: 0 },
        T::Accept { node: 1, credit: 700, wrong: 0 },
        T::Calm { n: 60 },
    ];
    let write = |node, pick, len| T::Write { node, pick, len };
    let exchange = [
        write(0, 0, 8_000),
        write(1, 0, 3_000),
        write(1, 1, 500),
        T::Settle { node: 0, arena: 0 },
        T::Lose { node: 1, pick: 1 },
        T::Copy { node: 1, pick: 0, from: 0 },
        T::Overtake { node: 1, pick: 2, from: 0 },
        T::Calm { n: 90 },
        T::Credit { node: 1, pick: 0, bytes: 5_000, shift: 0 },
        T::End { node: 0, pick: 0, how: 0 },
        T::Calm { n: 90 },
    ];
    let ended = [
        write(0, 0, 8_000),
        T::End { node: 1, pick: 0, how: 0 },
        T::End { node: 0, pick: 0, how: 2 },
        T::Calm { n: 40 },
        T::Full { node: 1, yes: 1 },
        T::Calm { n: 40 },
        T::Full { node: 1, yes: 0 },
    ];
    let broken_off = [
        write(0, 0, 8_000),
        T::End { node: 1, pick: 1, how: 1 },
        T::Overrun { node: 0, pick: 0, len: 8_000 },
        T::Calm { n: 40 },
        T::Connect { node: 0, to: 1, credit: 0, messages: 0 },
        T::Calm { n: 40 },
        T::Listen { node: 1, backlog: 0 },
    ];
    let failed = [write(0, 0, 8_000), T::Calm { n: 3 }, T::Restart { node: 1 }, T::Calm { n: 9 }];
    let left = [
        write(1, 0, 8_000),
        write(1, 1, 8_000),
        T::End { node: 0, pick: 0, how: 2 },
        T::Calm { n: 2 },
        write(1, 0, 8_000),
        write(1, 1, 8_000),
        T::Calm { n: 40 },
    ];
    vec![
        ("pair_streams_left", script([0, 1, 0], &[hellos, &opened, &left].concat())),
        ("pair_streams", script([0, 1, 0], &[hellos, &opened, &exchange].concat())),
        ("pair_streams_ended", script([0, 1, 1], &[hellos, &opened, &ended].concat())),
        ("pair_streams_broken_off", script([2, 1, 0], &[hellos, &opened, &broken_off].concat())),
        ("pair_streams_failed", script([2, 1, 0], &[hellos, &opened, &failed].concat())),
        ("pair_streams_altered", script([1, 1, 0], &[hellos, &opened, &exchange].concat())),
        ("pair_sealed_streams", sealed([0, 1, 0], &[hellos, &opened, &exchange].concat())),
    ]
}
