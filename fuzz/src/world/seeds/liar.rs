//! Scripts of stream segments from an honest or a lying neighbour.

use super::script;
use crate::world::Step as S;

const OPEN: u8 = 0x01;
const END: u8 = 0x02;
const ACK: u8 = 0x08;
const ASK: u8 = 0x10;
const DATA: u8 = 0x40;
const INSTANCE: u8 = 0x80;

/// A segment on the stream that the neighbour has opened.
fn step(
    flags: u8,
    (position, len): (u16, u16),
    (next, counts): (u16, u16),
    (ranges, first, width): (u8, u16, u16),
) -> S {
    let (from, ports, tag, kinds, window) = (0, 4, 9, 0, 200);
    S::Segment {
        from,
        ports,
        tag,
        flags,
        kinds,
        position,
        len,
        next,
        window,
        counts,
        ranges,
        first,
        width,
    }
}

fn segment(flags: u8, position: u16, len: u16, next: u16) -> S {
    step(flags, (position, len), (next, 0), (0, 0, 0))
}

fn ranges(next: u16, counts: u16, ranges: u8, first: u16, width: u16) -> S {
    step(ACK | ASK, (0, 0), (next, counts), (ranges, first, width))
}

pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |steps: &[S]| script(3, &[], steps);
    let ms = |n| S::Sleep { unit: 1, n };
    let opened = [
        S::Listen { node: 0, backlog: 3 },
        segment(OPEN | ACK, 0, 0, 0),
        ms(20),
        S::Accept { node: 0, credit: 2_000, wrong: 1 },
        ms(20),
    ];
    let honest = [
        segment(DATA, 0, 300, 0),
        segment(DATA, 600, 300, 0),
        segment(DATA | END | ASK, 300, 300, 0),
        S::Write { node: 0, pick: 0, len: 6_000 },
        ms(20),
        ranges(900, 0, 1, 1_800, 900),
        segment(ACK, 0, 0, 6_000),
        S::End { node: 0, pick: 0, how: 0 },
        ms(20),
        segment(ACK, 0, 0, 6_001),
    ];
    let lies = [
        S::Write { node: 0, pick: 0, len: 6_000 },
        ms(20),
        ranges(1, 0x0101, 17, 5_000, 2),
        ranges(3, 0x0202, 9, 0, 6_000),
        segment(ACK | DATA, 65_000, 800, 65_000),
        ms(200),
    ];
    let floods = [
        S::Requests { from: 0, ports: 0, n: 40, tags: 0 },
        S::Requests { from: 4, ports: 0, n: 40, tags: 1 },
        S::Accept { node: 0, credit: 5, wrong: 1 },
        S::Reset { from: 0, ports: 0, tag: 3, why: 6 },
        S::Accept { node: 0, credit: 5, wrong: 0 },
        S::Full { node: 0, yes: 1 },
        ms(40),
        S::Full { node: 0, yes: 0 },
    ];
    let raw = [S::RawSegment { from: 0, ports: 4, tag: 9, bytes: vec![0xff; 90] }];
    vec![
        ("liar_honest", script(&[&opened[..], &honest].concat())),
        ("liar_lies", script(&[&opened[..], &lies].concat())),
        ("liar_floods", script(&[&opened[..], &floods].concat())),
        ("liar_from_here", script(&from_here())),
        ("liar_raw", script(&[&opened[..], &raw].concat())),
    ]
}

/// A stream that the node opens, with unlimited credit.
fn from_here() -> Vec<S> {
    let ms = |n| S::Sleep { unit: 1, n };
    vec![
        S::Connect { node: 0, to: 0, credit: 900, messages: 0 },
        ms(5),
        S::Segment {
            from: 0,
            ports: 3,
            tag: 0,
            flags: INSTANCE | ACK | DATA,
            kinds: 0,
            position: 0,
            len: 500,
            next: 0,
            window: 90,
            counts: 0,
            ranges: 0,
            first: 0,
            width: 0,
        },
        S::Credit { node: 0, pick: 0, bytes: 255, shift: 24 },
        S::Credit { node: 0, pick: 0, bytes: 255, shift: 24 },
        S::Say { pick: 0, bytes: vec![11] },
        ms(90),
    ]
}
