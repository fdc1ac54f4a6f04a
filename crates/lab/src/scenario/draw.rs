//! Draws the traffic of a link over time.

use super::build::CLASSES;
use super::ledger::WAYS;
use super::model::{Call, Fault, FaultKind, Scenario};
use super::rows::Packet;
use super::{DRAIN, WARM_UP};
use crate::plot::{Axis, Boxes, Guide, Mark, Panel, Panels, Quartiles, Series, Style};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::{Bin, Bins};
use trunkline_sim::{WireEnd, WireId, World};

const ENDS: [WireEnd; 2] = [WireEnd::First, WireEnd::Second];
/// Number of steps of a line that can still be told apart.
const STEPS: u32 = 250;
/// The shortest step: the time of a few packets of a call.
const MIN_STEP: Duration = Duration::from_millis(100);

/// The bins that cover a run.
fn bins(scenario: &Scenario) -> Bins {
    let all = WARM_UP + scenario.length + DRAIN;
    let tenths = all.as_millis().div_ceil(u128::from(STEPS) * MIN_STEP.as_millis());
    let width = MIN_STEP * u32::try_from(tenths).unwrap_or(u32::MAX);
    let count = all.as_nanos().div_ceil(width.as_nanos());
    Bins { from: Time::ZERO, width, count: usize::try_from(count).unwrap_or(usize::MAX) }
}

/// Records the traffic of each named link from now on.
pub fn record(scenario: &Scenario, world: &mut World, wires: &[Option<WireId>]) {
    for (link, wire) in scenario.links.iter().zip(wires) {
        if let (Some(wire), true) = (*wire, link.named) {
            for end in ENDS {
                world.record(wire, end, bins(scenario));
            }
        }
    }
}

/// A figure with its file's name for each direction of each named link that calls or streams used.
pub fn figures(
    scenario: &Scenario,
    world: &World,
    wires: &[Option<WireId>],
) -> Vec<(String, Panels)> {
    let mut figures = Vec::new();
    for (link, wire) in scenario.links.iter().zip(wires) {
        let (Some(wire), true) = (*wire, link.named) else { continue };
        for (way, end) in WAYS.into_iter().zip(ENDS) {
            let title = format!("{}, {way}", link.name);
            let of_class = |(name, class)| (name, world.bins(wire, end, class));
            let classes: Vec<_> = CLASSES.into_iter().map(of_class).collect();
            if classes.iter().any(|(_, bins)| !bins.is_empty()) {
                let figure = figure(scenario, title, &classes);
                figures.push((format!("link-{}-{way}", link.name), figure));
            }
        }
    }
    figures
}

fn figure(scenario: &Scenario, title: String, classes: &[(&str, &[Bin])]) -> Panels {
    let bins = bins(scenario);
    let seconds = bins.width.as_secs_f64();
    let panel = |label: &str, value: &dyn Fn(&mut u64, &Bin) -> f64| {
        let series = classes.iter().enumerate().filter(|(_, (_, bins))| !bins.is_empty());
        let series: Vec<Series> = series
            .map(|(n, (name, known))| {
                let points = points(&bins, known, value);
                Series { name: (*name).to_owned(), style: Style::nth(n).stepped(), points }
            })
            .collect();
        let values = series.iter().flat_map(|s| s.points.iter().map(|p| p.y));
        Panel::new(Axis::fitting(label, 0.0, values), series)
    };
    let rate = |_: &mut u64, bin: &Bin| 8e-3 * bin.arrived.bytes as f64 / seconds;
    let lost = |_: &mut u64, bin: &Bin| bin.dropped.packets as f64 / seconds;
    // Packets in the queue or on the wire at the end of a bin.
    let under_way = |before: &mut u64, bin: &Bin| {
        *before += bin.offered.packets;
        *before -= bin.arrived.packets + bin.dropped.packets;
        *before as f64
    };
    // The rates of a stream and of hellos on the same link differ by a factor of a thousand.
    let mut rates = panel("arrived (kbit/s)", &rate);
    rates.y = decades("arrived (kbit/s)", &rates.series);
    let end = (scenario.length + DRAIN).as_secs_f64();
    Panels {
        title,
        x: Axis { range: (0.0, end), ..Axis::fitting("time (s)", 0.0, [end].into_iter()) },
        panels: vec![
            rates,
            panel("dropped (packets/s)", &lost),
            panel("in flight (packets)", &under_way),
        ],
        guides: scenario.faults.iter().flat_map(|fault| guides(scenario, fault)).collect(),
    }
}

/// A logarithmic axis from a whole power of ten, around all values above zero.
fn decades(label: &str, series: &[Series]) -> Axis {
    let values = series.iter().flat_map(|s| s.points.iter().map(|p| p.y)).filter(|&y| y > 0.0);
    let (least, most) = values.fold((1.0, 10.0), |(l, m), y| (f64::min(l, y), f64::max(m, y)));
    Axis::log(label, (libm::pow(10.0, libm::floor(libm::log10(least))), 2.0 * most))
}

/// A value for each bin from the beginning of the calls, with the last repeated at its end; `value`
/// may keep a number from bin to bin.
fn points(bins: &Bins, known: &[Bin], value: &dyn Fn(&mut u64, &Bin) -> f64) -> Vec<Mark> {
    let mut memory = 0;
    let all = known.iter().copied().chain(std::iter::repeat(Bin::default())).take(bins.count);
    let mut points: Vec<Mark> = all
        .enumerate()
        .map(|(n, bin)| {
            let begin = bins.width.as_secs_f64() * n as f64 - WARM_UP.as_secs_f64();
            Mark { x: begin, y: value(&mut memory, &bin), interval: None }
        })
        .collect();
    // The first bin that extends into the calls is cut off where they begin.
    points.retain(|point| point.x + bins.width.as_secs_f64() > 1e-9);
    if let Some(&last) = points.last() {
        points.push(Mark { x: last.x + bins.width.as_secs_f64(), ..last });
    }
    points
}

/// The delays of the packets of the `n`-th `[[call]]` that arrived.
pub fn delays(n: usize, calls: &[Vec<Packet>]) -> Option<Quartiles> {
    let arrivals = calls.iter().flatten().filter_map(|(_, arrival)| *arrival);
    Quartiles::of((n + 1) as f64, arrivals.map(|a| a.delay.as_secs_f64() * 1e3))
}

/// The delays of each `[[call]]`, with its threshold.
pub fn calls(scenario: &Scenario, delays: &[Option<Quartiles>]) -> Option<Panels> {
    let known = delays.iter().flatten();
    let most = known.clone().map(|q| q.values[4]).max_by(f64::total_cmp)?;
    let boxes = scenario.calls.iter().zip(delays).enumerate().map(|(n, (call, delays))| {
        let boxes = delays.iter().copied().collect();
        Boxes { name: call.name.clone(), style: Style::nth(n), boxes }
    });
    let threshold = |call: &Call| call.threshold.as_secs_f64() * 1e3;
    let mut thresholds: Vec<f64> = scenario.calls.iter().map(threshold).collect();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let guide = |&at: &f64| Guide { at, label: "threshold".to_owned() };
    let guides = thresholds.iter().map(guide).collect();
    let count = delays.len() as f64;
    let last = Axis::fitting("calls, as in the file", 0.0, [count + 0.5].into_iter());
    let top = thresholds.iter().copied().fold(most, f64::max);
    let panel = Panel {
        boxes: boxes.collect(),
        guides,
        ..Panel::new(Axis::fitting("delay (ms)", 0.0, [1.1 * top].into_iter()), Vec::new())
    };
    let x = Axis { range: (0.0, count + 1.0), step: last.step.max(1.0), ..last };
    Some(Panels { title: scenario.name.clone(), x, panels: vec![panel], guides: Vec::new() })
}

/// Guides at the beginning and the end of a fault.
fn guides(scenario: &Scenario, fault: &Fault) -> impl Iterator<Item = Guide> {
    let (link, host) =
        (|n: usize| scenario.links[n].name.clone(), |n: usize| scenario.hosts[n].name.clone());
    let (what, over) = match &fault.what {
        FaultKind::Link(n, _) => (format!("{} changes", link(*n)), "mended"),
        FaultKind::Mend(n) => (format!("{} mended", link(*n)), ""),
        FaultKind::Crash(n) => (format!("{} crashes", host(*n)), "restarted"),
        FaultKind::Stop(n) => (format!("{} stops", host(*n)), "restarted"),
        FaultKind::Restart(n) => (format!("{} restarts", host(*n)), ""),
        FaultKind::Stall(n) => (format!("{} stalls", host(*n)), "continues"),
    };
    let begin = Guide { at: fault.at.as_secs_f64(), label: what };
    let end = fault.until.map(|at| Guide { at: at.as_secs_f64(), label: over.to_owned() });
    [Some(begin), end].into_iter().flatten()
}
