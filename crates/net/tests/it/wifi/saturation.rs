//! Saturated stations against Bianchi, *Performance analysis of the IEEE 802.11 distributed
//! coordination function* (2000), with a retry limit.
//!
//! EDCA is nearer to the model than the DCF that it was made for: a backoff counts one slot for
//! each transmission, as in the model.

use super::{cell, table, up};
use trunkline_base::Time;
use trunkline_net::wifi::{Counters, MsduOutcome};

const ATTEMPTS: i32 = 7;

/// The probability that a station sends at a boundary, if each attempt collides with probability
/// `p`: the ratio of attempts to the slots that they and their backoffs take.
fn sends(p: f64, cw_min: f64, cw_max: f64) -> f64 {
    let (mut attempts, mut slots) = (0.0, 0.0);
    for stage in 0..ATTEMPTS {
        let window = ((cw_min + 1.0) * 2f64.powi(stage) - 1.0).min(cw_max);
        attempts += p.powi(stage);
        slots += p.powi(stage) * (1.0 + window / 2.0);
    }
    attempts / slots
}

/// Collision probability, and throughput in Mbit/s, of `n` stations that always have a packet of
/// 1,500 bytes.
fn bianchi(n: i32, aifs: f64, cw_min: f64, cw_max: f64) -> (f64, f64) {
    // p = 1 - (1 - tau)^(n - 1), where tau falls as p grows: one solution.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let p = f64::midpoint(low, high);
        let implied = 1.0 - (1.0 - sends(p, cw_min, cw_max)).powi(n - 1);
        if implied > p { low = p } else { high = p }
    }
    let tau = sends(low, cw_min, cw_max);
    let idle = (1.0 - tau).powi(n);
    let one = f64::from(n) * tau * (1.0 - tau).powi(n - 1);
    let success = 364.0 + 16.0 + 28.0 + aifs;
    let collision = 364.0 + 50.0 + aifs;
    let slot = idle * 9.0 + one * success + (1.0 - idle - one) * collision;
    (low, one * 12_000.0 / slot)
}

/// The same two values, measured in the cell.
fn measured(n: u16, aifsn: u8, cw_min: u16, cw_max: u16) -> (f64, f64) {
    let mut cell = cell(n, table(aifsn, cw_min, cw_max));
    let packet = |station| up(station, 0, 1_500, u64::from(station));
    for station in (0..n).chain(0..n) {
        cell.enqueue(Time::ZERO, &packet(station)).unwrap();
    }
    let (end, mut arrived) = (Time::from_millis(20_000), 0u32);
    while let Some(MsduOutcome { at, handle, result }) = cell.advance(end) {
        arrived += u32::from(result.is_ok());
        cell.enqueue(at, &packet(handle as u16)).unwrap();
    }
    let Counters { contended, .. } = cell.counters();
    let collided = 1.0 - f64::from(arrived) / contended as f64;
    (collided, f64::from(arrived) * 12_000.0 / 20e6)
}

/// Asserts that throughput is within 5 %, a bound set before measuring.
fn agree(aifsn: u8, cw_min: u16, cw_max: u16) {
    let mut worst = 0f64;
    for n in 2..=24 {
        let aifs = 16.0 + 9.0 * f64::from(aifsn);
        let (p, model) = bianchi(i32::from(n), aifs, cw_min.into(), cw_max.into());
        let (collided, throughput) = measured(n, aifsn, cw_min, cw_max);
        let off = throughput / model - 1.0;
        println!(
            "{n} stations: {throughput:.3} Mbit/s, {model:.3} by the model ({:+.1} %); \
             {collided:.3} collide, {p:.3} by the model",
            100.0 * off
        );
        worst = worst.max(off.abs());
    }
    assert!(worst < 0.05, "off by {:.1} %", 100.0 * worst);
}

#[test]
fn best_effort_saturates_as_the_model_does() {
    agree(3, 15, 1_023);
}

/// Small windows that stop growing at once, so that collisions take most of the time.
#[test]
fn video_windows_saturate_as_the_model_does() {
    agree(2, 7, 15);
}
