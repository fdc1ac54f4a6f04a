//! Valid inputs of the target for TFRC.

use super::Step as S;

fn script(which: u8, steps: &[S]) -> Vec<u8> {
    let mut out = vec![which];
    steps.iter().for_each(|step| step.write(&mut out));
    out
}

/// Steps that send and deliver `count` packets.
fn delivered(count: usize, bytes: u16) -> Vec<S> {
    let one = [S::Send { bytes }, S::Deliver { delay: 50, bytes }];
    std::iter::repeat_n(one, count).flatten().collect()
}

/// Scripts for the two ends, with several variants.
pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let lost = |bytes| vec![S::Send { bytes }; 3];
    let losing = |bytes| [delivered(6, bytes), lost(bytes), delivered(6, bytes)].concat();
    let pause = [S::Sleep { unit: 3, n: 20 }, S::Expire {}, S::Expire {}, S::ExpireNow {}];
    let back = [S::Jump { unit: 2, n: 3 }, S::SendNow { bytes: 9 }, S::ExpireNow {}];
    let claims = [(0, 900, 0), (1, 65_535, 655), (40, 0, 65_535)];
    let claims = claims.map(|(elapsed, rate, loss)| {
        let claim = S::Claim { elapsed, rate, loss };
        [S::Send { bytes: 160 }, S::Sleep { unit: 1, n: 90 }, claim]
    });
    // Header of the first packet of flow 7, 100 ms.
    let header = vec![0, 0, 0, 7, 0, 0, 0, 1, 0x86, 0xa0];
    // Report about the first packet of flow 7: 1 ms, 1,000 bytes per second, 1 %.
    let report = vec![0, 0, 0, 7, 0, 0, 0, 0, 3, 0xe8, 0, 0, 3, 0xe8, 2, 0x8f, 0x5c, 0x28];
    let raw = [
        S::Send { bytes: 160 },
        S::Sleep { unit: 1, n: 100 },
        S::Feedback { report },
        S::Data { header, bytes: 160 },
    ];
    vec![
        ("basic", script(0, &losing(1_400))),
        ("few_remembered", script(1, &losing(1))),
        ("small", script(2, &[losing(160), losing(160)].concat())),
        ("restart", script(3, &[&losing(20)[..], &pause, &delivered(4, 20)].concat())),
        ("minimum_delay", script(5, &[&losing(160)[..], &pause, &delivered(4, 160)].concat())),
        ("rfc5348", script(7, &[&losing(1_460)[..], &pause, &delivered(4, 1_460)].concat())),
        ("clock_back", script(8, &[&losing(9_000)[..], &back, &delivered(2, 9_000)].concat())),
        ("claims", script(4, &claims.concat())),
        ("raw", script(6, &raw)),
    ]
}
