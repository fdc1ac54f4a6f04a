//! Valid inputs of the target for TFMC.

use super::Step as S;

fn script(which: u8, steps: &[S]) -> Vec<u8> {
    let mut out = vec![which];
    steps.iter().for_each(|step| step.write(&mut out));
    out
}

/// Steps for `count` reports, 5 ms apart.
fn reported(count: usize, packets: u8) -> Vec<S> {
    let one = [S::Report { delay: 20, packets }, S::Sleep { unit: 1, n: 5 }];
    std::iter::repeat_n(one, count).flatten().collect()
}

/// Scripts for the two ends, with several parameters.
pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let lost = [S::Send { datagrams: 5, packets: 1, payload: 20 }];
    let losing = [&reported(4, 1)[..], &lost, &reported(4, 10)].concat();
    let silence = [
        S::Send { datagrams: 20, packets: 10, payload: 200 },
        S::Expire {},
        S::Send { datagrams: 8, packets: 46, payload: 920 },
        S::Expire {},
        S::ExpireNow {},
    ];
    let back = [S::Jump { unit: 2, n: 3 }, S::Deliver { delay: 0 }, S::ExpireNow {}];
    let claims = [(0, 0), (1, 655), (40, 65_535)].map(|(elapsed, loss)| {
        let sent = S::Send { datagrams: 1, packets: 200, payload: 4_000 };
        [sent, S::Sleep { unit: 1, n: 90 }, S::Claim { elapsed, loss }]
    });
    let flow = [1, 2, 3, 5, 6, 7, 8].map(|sequence| S::Flow { sequence });
    // Header of the first datagram, 40 ms.
    let header = vec![0, 0, 0, 0, 0, 0, 0x9c, 0x40];
    // Report about the first datagram: 1 ms, 1 %.
    let report = vec![0, 0, 0, 0, 0, 0, 3, 0xe8, 2, 0x8f, 0x5c, 0x28];
    let raw = [
        S::Send { datagrams: 1, packets: 1, payload: 20 },
        S::Sleep { unit: 1, n: 100 },
        S::Feedback { report },
        S::Data { header },
    ];
    vec![
        ("default", script(0, &losing)),
        ("nominal", script(1, &losing)),
        ("chosen", script(2, &losing)),
        ("one_call", script(3, &[&reported(2, 1)[..], &flow, &reported(2, 1)].concat())),
        ("few_remembered", script(4, &losing)),
        ("odd", script(5, &[&losing[..], &silence].concat())),
        ("silence", script(2, &[&reported(2, 1)[..], &silence, &reported(2, 1)].concat())),
        ("clock_back", script(0, &[&losing[..], &back, &reported(2, 1)].concat())),
        ("claims", script(0, &claims.concat())),
        ("raw", script(0, &raw)),
    ]
}
