//! Steady states of a sender with enough data.

use super::*;
use crate::equation::Throughput;
use rand::Rng as _;
use trunkline_base::rng;

/// With independent losses, the long-term rate is about what the equation gives at the measured
/// loss event rate. The mean of a convex function of a fluctuating rate is not the function of the
/// mean: 25 % are allowed.
#[test]
fn the_rate_is_that_of_the_equation() {
    for (n, p) in [0.002, 0.01, 0.05].into_iter().enumerate() {
        let config = Config::basic(1_000);
        let mut path = Path::new(config);
        let mut rng = rng(1, n as u64);
        let mut lost = |_| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= p;
        path.send(Time::ZERO, at(60_000), &mut lost);
        let (mut sent, mut inverse) = (0, 0.0);
        const STEPS: u64 = 500;
        for step in 0..STEPS {
            let from = at(60_000 + 1_000 * step);
            sent += path.send(from, from + ms(1_000), &mut lost);
            inverse += 1.0 / path.sender.loss();
        }
        let rate = sent as f64 / STEPS as f64;
        let events = STEPS as f64 / inverse;
        let want = Throughput::RFC.rate(1.0, RTT, events);
        assert!((0.75..1.25).contains(&(rate / want)), "at {p}: {rate} of {want} packets/s");
        assert!(events < 1.1 * p, "loss events {events} are at most as many as losses {p}");
    }
}

/// 50,000 bytes per second in packets of 1,000 bytes: 500 in ten seconds.
#[test]
fn without_loss_the_bound_is_the_limit() {
    let config = Config { max_rate: 50_000.0, ..Config::basic(1_000) };
    let mut path = Path::new(config);
    path.send(Time::ZERO, at(5_000), |_| false);
    let sent = path.send(at(5_000), at(15_000), |_| false);
    assert!((499..=501).contains(&sent), "{sent}");
}
