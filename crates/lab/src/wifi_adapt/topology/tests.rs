//! Tests of one cell and its traffic.

use super::*;
use trunkline_rate::vegas::{BaseRttScope, FecConfig};

const SETTING: Setting = Setting {
    calls: 2,
    scheme: Scheme::Fixed(CodecRate::Kbps64),
    adaptive: u16::MAX,
    access: Access::Draft,
    both_ways: false,
    fec: None,
    repairs: true,
    background: Bitrate::from_bps(0),
    background_after: Duration::ZERO,
    bit_error_rate: 0.0,
    attempts: 7,
    queue: 50,
    report: Duration::from_millis(100),
    length: Duration::from_secs(4),
};

#[test]
fn an_index_of_fairness() {
    assert_eq!(fairness(&[3.0; 7]), 1.0);
    assert_eq!(fairness(&[1.0, 0.0, 0.0, 0.0]), 0.25);
}

/// Delays of 1, 4 and 2 ms, with a lost packet after the first.
#[test]
fn jitter_is_the_mean_step_of_the_delay() {
    let packet = |n: u64, delay: Option<u64>| {
        let at = Time::from_millis(20 * n);
        let arrived = delay.map(|ms| at + Duration::from_millis(ms));
        Sent { due: at, at, bytes: 160, arrived, ie: 0.0, repaired: None, added: 0 }
    };
    let outcome = |delays: &[Option<u64>]| CallOutcome {
        packets: delays.iter().zip(0..).map(|(delay, n)| packet(n, *delay)).collect(),
        unsent: 0,
        verdicts: Verdicts::default(),
    };
    assert!((outcome(&[Some(1), None, Some(4), Some(2)]).jitter_ms() - 2.5).abs() < 1e-9);
    assert!(outcome(&[Some(1), None]).jitter_ms().is_nan() && outcome(&[]).jitter_ms().is_nan());
}

/// With a BaseRTT for each call, the calls whose first packets found a frame ahead take that for the
/// empty cell, and keep a higher rate than the others. With the gateway's, all compare with the
/// same round trip: lower rates, and equal ones.
#[test]
fn calls_of_one_gateway_share_its_base() {
    let shared = vegas::Config::paper();
    let own = vegas::Config { scope: BaseRttScope::Call, ..shared };
    let setting = |config| Setting {
        calls: 11,
        scheme: Scheme::Adaptive(config),
        background: Bitrate::from_bps(4_000_000),
        ..SETTING
    };
    let [shared, own] = [shared, own].map(|config| setting(config).run(1).unwrap());
    assert!(shared.bandwidth < own.bandwidth - 0.3, "{shared:?} {own:?}");
    assert!(shared.fairness > own.fairness, "{shared:?} {own:?}");
}

/// Nothing disturbs the calls before the background traffic begins, in the second half.
#[test]
fn background_traffic_can_begin_later() {
    let background = Bitrate::from_bps(15_000_000);
    let late = Setting { background, background_after: SETTING.length / 2, ..SETTING };
    let [whole, half] = [Setting { background, ..SETTING }, late].map(|s| s.run(1).unwrap());
    assert!((0.45..0.55).contains(&(half.background / whole.background)), "{whole:?} {half:?}");
    assert!(half.mean_ms < whole.mean_ms, "{whole:?} {half:?}");
    let never = Setting { background, background_after: SETTING.length, ..SETTING };
    assert_eq!(never.run(1).unwrap().background, 0.0);
}

#[test]
fn idle_cells_carry_everything_at_once() {
    let seen = SETTING.run(1).unwrap();
    // 50 packets of 200 bytes, 160 of them speech; at most 76 µs on the air and a slot, unless
    // the other call or a report precedes it.
    assert!((0.076..0.1).contains(&seen.mean_ms), "{seen:?}");
    assert_eq!((seen.bandwidth, seen.payload, seen.lost_pct), (10.0, 8.0, 0.0));
    assert_eq!((seen.fairness, seen.background, seen.verdicts), (1.0, 0.0, Verdicts::default()));
    assert_eq!(seen.losses, [0, 0]);
    // 93.2 less the effect of a delay of 20 ms.
    assert!((92.0..93.3).contains(&seen.r), "{seen:?}");
    let polled = Setting { access: Access::Polled(Duration::from_millis(20)), ..SETTING };
    let seen = polled.run(1).unwrap();
    // A turn every 17 ms.
    assert!((5.0..12.0).contains(&seen.mean_ms) && seen.max_ms < 18.0, "{seen:?}");
}

#[test]
fn calls_go_both_ways() {
    let seen = Setting { both_ways: true, ..SETTING }.run(1).unwrap();
    // The same in both directions, with two or three packets ahead now and then.
    assert_eq!((seen.bandwidth, seen.payload, seen.lost_pct), (10.0, 8.0, 0.0));
    assert!((0.076..0.2).contains(&seen.mean_ms), "{seen:?}");
    assert!((92.0..93.3).contains(&seen.r), "{seen:?}");
}

/// One wrong bit in 20,000, and one attempt: packets of 238 bytes and a preamble of 72 lose
/// about a tenth, and those with a copy a sixth; with parity no more than without.
#[test]
fn what_is_lost_comes_again() {
    let copying = vegas::Config::default();
    let fec = FecConfig { kind: FecKind::Parity, ..copying.fec };
    let [copying, parity] = [copying, vegas::Config { fec, ..copying }].map(Scheme::Adaptive);
    let bare = Setting { scheme: copying, bit_error_rate: 5e-5, attempts: 1, ..SETTING };
    let fec = Some(CodecRate::Kbps64);
    let with = |scheme| Setting { scheme, fec, ..bare };
    let [bare, copied, parity] =
        [bare, with(copying), with(parity)].map(|setting| setting.run(1).unwrap());
    assert_eq!((bare.lost_pct, bare.sent), (bare.missed_pct, 10.0));
    for seen in [&bare, &parity] {
        assert!((5.0..15.0).contains(&seen.lost_pct), "{seen:?}");
    }
    for seen in [&copied, &parity] {
        assert!(seen.missed_pct < seen.lost_pct / 3.0, "{seen:?}");
        assert!(seen.r > bare.r + 5.0, "{bare:?} {seen:?}");
    }
    // At most one packet of parity for each packet of 200 bytes.
    assert!(copied.sent > 17.0 && (15.0..20.7).contains(&parity.sent), "{parity:?}");
}

#[test]
fn tfrc_is_held_to_the_codec_or_to_the_cell() {
    let seen = Setting { scheme: Scheme::Tfrc, ..SETTING }.run(1).unwrap();
    assert!((9.5..10.1).contains(&seen.bandwidth), "{seen:?}");
    let half = Setting { scheme: Scheme::Tfrc, adaptive: 1, ..SETTING }.run(1).unwrap();
    assert!((0.89..0.91).contains(&half.fairness), "{half:?}");
    let seen = Setting { scheme: Scheme::Greedy, ..SETTING }.run(1).unwrap();
    assert!(seen.bandwidth > 100.0 && seen.r.is_nan(), "{seen:?}");
}

#[test]
fn who_does_not_adapt_has_more() {
    let background = Bitrate::from_bps(15_000_000);
    let scheme = Scheme::Adaptive(vegas::Config::paper());
    let all = Setting { background, scheme, ..SETTING };
    let half = Setting { adaptive: 1, ..all };
    let [all, half] = [all, half].map(|setting| setting.run(1).unwrap());
    assert!(half.bandwidth > all.bandwidth + 1.0 && half.fairness < 0.95, "{all:?} {half:?}");
    assert!(all.r < half.r, "{all:?} {half:?}");
}
