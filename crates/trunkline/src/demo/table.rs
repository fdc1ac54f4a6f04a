//! The table printed on standard output.

use super::Args;
use super::chain::{letter, lossy_link};
use super::score::{Result, Run, Wire};
use crate::operate::count;
use crate::score::Pesq;

/// Prints `result` as a table.
pub fn print(args: &Args, result: &Result) {
    let (p, middle) = (args.loss.0, lossy_link(args.hops));
    outln!(
        "{} of {} s from A to {} over {} of {:?}; {}-{} loses {} % each way, burstiness {} %; \
         seed {}",
        count(args.calls.into(), "call"),
        args.seconds,
        letter(args.hops),
        count(args.hops.into(), "link"),
        args.delay.0,
        letter(middle),
        letter(middle + 1),
        p * 100.0,
        args.burst.0 * 100.0,
        result.seed
    );
    outln!("");
    header();
    for run in &result.runs {
        row(run);
    }
    let of = |service| result.runs.iter().find(|r| r.service == service);
    let (real_time, once) = (of("real-time"), of("once"));
    let on_lossy = real_time.and_then(|r| r.overhead_lossy_link_percent);
    outln!("");
    outln!(
        "Expected of one request each: the paper's 2p² − 3p³ = {:.3} %, exactly 2p² − p³ = {:.3} %.",
        (2.0 * p * p - 3.0 * p * p * p) * 100.0,
        (2.0 * p * p - p * p * p) * 100.0
    );
    if let Some(pesq) = real_time.and_then(|r| r.pesq) {
        outln!(
            "PESQ and its 5th percentile are of {} of 12 s against the speech before coding.",
            count(pesq.segments as u64, "segment")
        );
    }
    outln!(
        "pkt/s and B/voice: packets that carry the voice on the first link, and their bytes for each \
         packet of a call, with IP and UDP headers."
    );
    let of_one = once.and_then(|r| r.overhead_lossy_link_percent);
    if let (Some(ours), Some(one)) = (on_lossy, of_one) {
        outln!(
            "On the lossy link alone, real time's overhead is {ours:.1} %, with one request each \
             {one:.1} %."
        );
    }
    if let Some(restart) = &result.restart {
        let gaps: Vec<_> =
            restart.gap_ms.iter().map(|(name, ms)| format!("{name} {ms:.0} ms")).collect();
        outln!(
            "Node {} was dead for {:.0} ms; the longest gap in each service: {}.",
            args.restart.unwrap_or('?'),
            restart.down_ms,
            gaps.join(", ")
        );
    }
    outln!("{}", result.ledger);
    outln!("Look and listen: open {}", args.out.join(super::REPORT).display());
}

fn header() {
    outln!(
        "{:<12} {:>6} {:>6} {:>5} {:>9} {:>8}  {:<15} {:>6} {:>6} {:>6} {:>5} {:>5} {:>5} {:>5} {:>9} {:>6} {:>7}",
        "service",
        "sent",
        "lost",
        "late",
        "recovered",
        "missed %",
        "95 % interval",
        "p50 ms",
        "p99 ms",
        "max ms",
        "R",
        "MOS",
        "PESQ",
        "5 %",
        "overhead",
        "pkt/s",
        "B/voice"
    );
}

fn row(r: &Run) {
    let pesq =
        |of: fn(&Pesq) -> f64| r.pesq.as_ref().map_or("–".into(), |p| format!("{:.2}", of(p)));
    let wire =
        |of: fn(&Wire) -> f64| r.wire.as_ref().map_or("–".into(), |w| format!("{:.0}", of(w)));
    outln!(
        "{:<12} {:>6} {:>6} {:>5} {:>9} {:>8.3}  {:<15} {:>6.1} {:>6.1} {:>6.1} {:>5.1} {:>5.2} {:>5} {:>5} {:>9} {:>6} {:>7}",
        r.service,
        r.sent,
        r.lost,
        r.late,
        r.recovered,
        r.missed_percent,
        format!("{:.3} – {:.3}", r.missed_interval[0], r.missed_interval[1]),
        r.delay_ms.p50,
        r.delay_ms.p99,
        r.delay_ms.max,
        r.r,
        r.mos,
        pesq(|p| p.mean),
        pesq(|p| p.p5),
        r.overhead_percent.map_or("–".into(), |percent| format!("{percent:.1} %")),
        wire(|w| w.packets_per_second),
        wire(|w| w.bytes_per_voice_packet)
    );
}
