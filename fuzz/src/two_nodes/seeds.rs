//! Seeds: scripts that get past the parser, of what two nodes and their applications do.

use super::Step as T;

const REAL_TIME: u8 = 0;
const BEST_EFFORT: u8 = 1;

pub(crate) fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let calm = T::Calm { n: 4 };
    let hellos = [T::Sleep { unit: 2, n: 11 }, calm.clone(), T::Sleep { unit: 2, n: 11 }, calm];
    let talk =
        |side, service, count| T::Send { side, port: 0, service, deadline: 150, len: 160, count };
    let lossy = [
        talk(0, REAL_TIME, 8),
        talk(1, BEST_EFFORT, 4),
        T::Settle { side: 0 },
        T::Lose { side: 1, pick: 3 },
        T::Copy { side: 1, pick: 1 },
        T::Overtake { side: 1, pick: 5 },
        T::Calm { n: 9 },
    ];
    let late = [
        talk(0, BEST_EFFORT, 2),
        T::Settle { side: 0 },
        T::Copy { side: 1, pick: 0 },
        T::Sleep { unit: 2, n: 5 },
        T::Arrive { side: 1, n: 9 },
        T::Wake { side: 1 },
    ];
    let restart = [
        talk(0, REAL_TIME, 5),
        T::Settle { side: 0 },
        T::Restart { side: 0 },
        T::Arrive { side: 1, n: 3 },
        talk(0, REAL_TIME, 5),
        T::Sleep { unit: 2, n: 11 },
        T::Calm { n: 9 },
    ];
    let outage = [
        T::Sleep { unit: 3, n: 2 },
        T::Wake { side: 0 },
        T::Wake { side: 1 },
        talk(1, REAL_TIME, 2),
        T::Calm { n: 5 },
    ];
    let altered = [
        talk(0, REAL_TIME, 3),
        T::Settle { side: 0 },
        T::Alter { side: 1, pick: 1, at: 12, xor: 0x80 },
        T::Alter { side: 1, pick: 2, at: 30, xor: 1 },
        T::Calm { n: 3 },
    ];
    let mut all = streams(&hellos);
    all.extend([
        ("lossy", script([0, 1, 0], &[&hellos[..], &lossy].concat())),
        ("late", script([0, 1, 1], &[&hellos[..], &late].concat())),
        ("restart", script([0, 3, 2], &[&hellos[..], &restart].concat())),
        ("outage", script([0, 1, 1], &[&hellos[..], &outage].concat())),
        ("altered", script([1, 1, 0], &[&hellos[..], &altered].concat())),
    ]);
    all
}

fn script(settings: [u8; 3], steps: &[T]) -> Vec<u8> {
    let mut out = settings.to_vec();
    steps.iter().for_each(|step| step.write(&mut out));
    out
}

fn streams(hellos: &[T]) -> Vec<(&'static str, Vec<u8>)> {
    let opened = [
        T::Listen { side: 1, backlog: 2 },
        T::Connect { side: 0, to: 1, credit: 4_000, messages: 1 },
        T::Connect { side: 1, to: 1, credit: 9_000, messages: 0 },
        T::Calm { n: 60 },
        T::Accept { side: 1, credit: 7_000 },
        T::Accept { side: 1, credit: 700 },
        T::Calm { n: 60 },
    ];
    let write = |side, pick, len| T::Write { side, pick, len };
    let exchange = [
        write(0, 0, 8_000),
        write(1, 0, 3_000),
        write(1, 1, 500),
        T::Settle { side: 0 },
        T::Lose { side: 1, pick: 1 },
        T::Copy { side: 1, pick: 0 },
        T::Overtake { side: 1, pick: 2 },
        T::Calm { n: 90 },
        T::Credit { side: 1, pick: 0, bytes: 5_000 },
        T::Shut { side: 0, pick: 0 },
        T::Calm { n: 90 },
    ];
    let ended = [
        write(0, 0, 8_000),
        T::Shut { side: 1, pick: 0 },
        T::Leave { side: 0, pick: 0 },
        T::Calm { n: 40 },
        T::Full { side: 1, yes: 1 },
        T::Calm { n: 40 },
        T::Full { side: 1, yes: 0 },
    ];
    let broken_off = [
        write(0, 0, 8_000),
        T::Abort { side: 1, pick: 1 },
        T::Overrun { side: 0, pick: 0, len: 8_000 },
        T::Calm { n: 40 },
        T::Connect { side: 0, to: 1, credit: 0, messages: 0 },
        T::Calm { n: 40 },
        T::Listen { side: 1, backlog: 0 },
    ];
    let failed = [write(0, 0, 8_000), T::Calm { n: 3 }, T::Restart { side: 1 }, T::Calm { n: 9 }];
    let left = [
        write(1, 0, 8_000),
        write(1, 1, 8_000),
        T::Leave { side: 0, pick: 0 },
        T::Calm { n: 2 },
        write(1, 0, 8_000),
        write(1, 1, 8_000),
        T::Calm { n: 40 },
    ];
    vec![
        ("streams_left", script([0, 1, 0], &[hellos, &opened, &left].concat())),
        ("streams", script([0, 1, 0], &[hellos, &opened, &exchange].concat())),
        ("streams_ended", script([0, 1, 1], &[hellos, &opened, &ended].concat())),
        ("streams_broken_off", script([2, 1, 0], &[hellos, &opened, &broken_off].concat())),
        ("streams_failed", script([2, 1, 0], &[hellos, &opened, &failed].concat())),
        ("streams_altered", script([1, 1, 0], &[hellos, &opened, &exchange].concat())),
    ]
}
