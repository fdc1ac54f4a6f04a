//! Delay until the loss meter notices a worsening, and its rate of false alarms.
//!
//! `cargo run --release -p trunkline-overlay --example loss_detection -- [HOURS]`
//! prints two tables; HOURS (24) is how long each of 20 steady links lasts.

use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain, Impairment, LinkModel, Loss, PacketFate};
use trunkline_overlay::monitor::{LossMeter, LossMode};

const HELLO: Duration = Duration::from_millis(200);
/// Round-trip time of a probe and its answer.
const RTT: Duration = Duration::from_millis(40);
const PROBE: Duration = Duration::from_millis(20);

/// One direction of a link with a steady flow, hellos, and probes on demand.
struct Link {
    meter: LossMeter,
    counter: u64,
    spacing: Duration,
    probes: bool,
    answers: u64,
    /// Times at which the next packet, hello and answer to a probe leave.
    next: [Time; 3],
}

impl Link {
    fn new(rate: u32, probes: bool) -> Link {
        let spacing = Duration::from_secs(1) / rate;
        let meter = LossMeter::new(LossMode::Changes);
        let next = [Time::ZERO, Time::from_millis(7), Time::NEVER];
        Link { meter, counter: 0, spacing, probes, answers: 0, next }
    }

    /// Sends until `end`, or until `found` is true, and returns the time of that.
    fn run(
        &mut self,
        wire: &mut Impairment,
        end: Time,
        found: impl Fn(&LossMeter) -> bool,
    ) -> Option<Time> {
        loop {
            let (kind, now) = (0..3).map(|k| (k, self.next[k])).min_by_key(|&(_, at)| at)?;
            if now >= end {
                return None;
            }
            self.next[kind] = match kind {
                0 => now + self.spacing,
                1 => now + HELLO,
                _ => Time::NEVER,
            };
            self.answers += u64::from(kind == 2);
            let counter = self.counter;
            self.counter += 1;
            if let PacketFate::Deliver(at) = wire.offer(now, 100) {
                self.meter.on_envelope(at, counter);
                if found(&self.meter) {
                    return Some(now);
                }
            }
            if self.probes && self.next[2] == Time::NEVER && self.meter.suspicion().is_some() {
                let wait = if kind == 2 { PROBE } else { RTT };
                self.next[2] = now + wait;
            }
        }
    }
}

fn burst(p: f64, b: f64, in_time: bool) -> Loss {
    let chain = match in_time {
        true => Chain::Continuous { spacing: Duration::from_millis(20) },
        false => Chain::PerPacket,
    };
    Loss::Burst { p, b, chain }
}

fn wire(loss: Loss, seed: u64) -> Impairment {
    Impairment::new(LinkModel { loss, ..LinkModel::default() }, seed, 0).expect("a valid model")
}

/// Seconds from a change of the loss from `before` to `after`, after ten minutes, until the
/// estimate is bad: one value per seed, sorted, infinite if it takes more than two minutes.
fn delays(rate: u32, before: &Loss, after: &Loss, seeds: u64) -> Vec<f64> {
    let mut delays: Vec<f64> = (0..seeds)
        .map(|seed| {
            let mut link = Link::new(rate, true);
            let start = Time::from_millis(600_000);
            link.run(&mut wire(before.clone(), seed), start, |_| false);
            let end = start + Duration::from_secs(120);
            let known = link.meter.estimate().map_or(0.0, |e| e.loss);
            let bad = |m: &LossMeter| m.estimate().is_some_and(|e| e.loss > (2.0 * known).max(0.1));
            let found = link.run(&mut wire(after.clone(), seed + 1_000_000), end, bad);
            found.map_or(f64::INFINITY, |at| at.since(start).as_secs_f64())
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    delays
}

#[allow(clippy::disallowed_methods, reason = "an example is a program")]
fn main() {
    let hours: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(24);
    let seeds = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(400);
    println!("seconds to notice, {seeds} runs each");
    println!(
        "{:<16}{:<20}{:>6}{:>8}{:>8}{:>8}{:>8}",
        "from", "to", "pkt/s", "median", "p95", "p99", "max"
    );
    let from = [
        ("0", Loss::None),
        ("5%/75%", burst(0.05, 0.75, false)),
        ("5%/75% in time", burst(0.05, 0.75, true)),
        ("5%", Loss::Bernoulli { p: 0.05 }),
    ];
    let to = [
        ("30%", Loss::Bernoulli { p: 0.3 }),
        ("30%/75%", burst(0.3, 0.75, false)),
        ("30%/75% in time", burst(0.3, 0.75, true)),
    ];
    for (from, before) in &from {
        for (to, after) in &to {
            for rate in [50, 500] {
                let d = delays(rate, before, after, seeds);
                let at = |share: f64| d[((d.len() - 1) as f64 * share) as usize];
                println!(
                    "{from:<16}{to:<20}{rate:>6}{:>8.2}{:>8.2}{:>8.2}{:>8.2}",
                    at(0.5),
                    at(0.95),
                    at(0.99),
                    at(1.0)
                );
            }
        }
    }
    println!("\nchanges of the estimate on 20 links over {hours} h, after the first ten minutes");
    println!("{:<20}{:>6}{:>9}{:>12}{:>10}", "loss", "pkt/s", "changes", "links hit", "probes/s");
    for (name, loss) in from.iter().skip(1).chain(&to) {
        for rate in [50, 500] {
            if rate == 500 && hours > 4 {
                continue;
            }
            let (mut changes, mut hit, mut answers) = (0, 0, 0);
            for seed in 0..20 {
                let mut link = Link::new(rate, true);
                let mut wire = wire(loss.clone(), 77 + seed);
                link.run(&mut wire, Time::from_millis(600_000), |_| false);
                let before = link.meter.changes();
                link.run(&mut wire, Time::from_millis(600_000 + hours * 3_600_000), |_| false);
                let n = link.meter.changes() - before;
                changes += n;
                answers += link.answers;
                hit += u64::from(n > 0);
            }
            let per_second = answers as f64 / (20 * (600 + hours * 3_600)) as f64;
            println!("{name:<20}{rate:>6}{changes:>9}{hit:>12}{per_second:>10.2}");
        }
    }
}
