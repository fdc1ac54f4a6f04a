use super::file::Scenario;
use crate::experiment::PointError;
use crate::speech::Speech;
use crate::table::{Cell, Column, Table, print};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::stats::{Mean, quantile};
use trunkline_sim::overlay::link::realtime::Recovery;
use trunkline_sim::overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Call, Outcome, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

/// A row: the calls of one `[[call]]`.
pub const COLUMNS: &[Column] = &[
    Column::text("calls"),
    Column::number("sent", 0),
    Column::number("lost", 0),
    Column::number("late", 0),
    Column::number("recovered", 0),
    Column::number("missed_pct", 4),
    Column::number("missed_low_pct", 4),
    Column::number("missed_high_pct", 4),
    Column::number("delay_p50_ms", 2),
    Column::number("delay_p99_ms", 2),
    Column::number("delay_max_ms", 2),
    Column::number("pesq_mean", 2),
    Column::number("pesq_p5", 2),
];

const START: Time = Time::from_millis(5_000);
const SPACING: Duration = Duration::from_millis(20);

/// Runs a scenario; a row for each of its `[[call]]`s. Links have the daemon's
/// own settings.
///
/// # Errors
///
/// If its network can't be built or its speech not be compared.
pub fn simulate(
    scenario: &Scenario,
    speech: Option<&Speech>,
    seed: u64,
) -> Result<Table, PointError> {
    let mut topology = Topology::new();
    for n in 0..scenario.hosts.len() {
        topology.host(NodeId(n as u32 + 1));
    }
    let host = |n: usize| HostId(n as u32);
    for link in &scenario.links {
        let (a, b) = (host(link.ends.0), host(link.ends.1));
        let (there, back) = (link.there.clone(), link.back.clone());
        topology.link_with(a, b, there, back, |c| {
            if !link.recovery {
                c.realtime.recovery = Recovery::Off;
            }
        });
    }
    topology.route_all();
    let mut world = topology.build(seed)?;
    let packets = (scenario.length.as_nanos() / SPACING.as_nanos()) as u64;
    let total: u32 = scenario.calls.iter().map(|c| c.count).sum();
    let (mut groups, mut made) = (Vec::new(), 0);
    for call in &scenario.calls {
        let service = if call.realtime { Service::RealTime } else { Service::BestEffort };
        let mut group: Vec<Call> = Vec::new();
        for _ in 0..call.count {
            let (port, to) = (5_000 + made as u16, NodeId(call.ends.1 as u32 + 1));
            let start = START + SPACING * made / total;
            let mut source = VoiceSource::new(to, port, service, start, packets);
            source.deadline_ms = u8::try_from(call.threshold.as_millis()).unwrap_or(u8::MAX);
            let sink = world.attach(host(call.ends.1), port, VoiceSink::default())?;
            group.push((world.attach(host(call.ends.0), 0, source)?, sink));
            made += 1;
        }
        groups.push(group);
    }
    world.run_until(START + scenario.length + Duration::from_secs(3));
    let mut rows = Vec::new();
    for (call, group) in scenario.calls.iter().zip(&groups) {
        let outcome = Outcome::of(&world, group, call.threshold);
        let scores = match speech.filter(|_| scenario.pesq) {
            Some(speech) => scores(&world, group, call.threshold, speech)?,
            None => Vec::new(),
        };
        rows.push(print(COLUMNS, row(&call.name, &outcome, &scores)));
    }
    Ok(Table { columns: COLUMNS, rows })
}

/// In ascending order.
fn scores(
    world: &World,
    calls: &[Call],
    threshold: Duration,
    speech: &Speech,
) -> Result<Vec<f64>, PointError> {
    let mut scores = Vec::new();
    for (k, &(source, sink)) in calls.iter().enumerate() {
        let flow = world.app(sink).flows.get(&world.origin(source));
        let in_time = |n: u64| {
            let arrival = flow.and_then(|f| *f.arrivals.get(n as usize)?);
            arrival.is_some_and(|a| a.delay <= threshold)
        };
        let missed: Vec<bool> = (0..world.app(source).sent()).map(|n| !in_time(n)).collect();
        let heard = speech.listen(&missed, k * speech.len() / calls.len())?;
        scores.extend(heard.into_iter().flatten().map(|s| s.raw));
    }
    scores.sort_by(f64::total_cmp);
    Ok(scores)
}

fn row(name: &str, outcome: &Outcome, scores: &[f64]) -> Vec<Cell> {
    let ms = |share| outcome.delay(share).map_or(f64::NAN, |d| d.as_nanos() as f64 / 1e6);
    let missed = outcome.missed;
    let pesq = if scores.is_empty() { f64::NAN } else { Mean::of(scores).estimate };
    vec![
        name.into(),
        outcome.sent.into(),
        outcome.lost.into(),
        outcome.late.into(),
        outcome.recovered.into(),
        (100.0 * missed.estimate).into(),
        (100.0 * missed.interval.0).into(),
        (100.0 * missed.interval.1).into(),
        ms(0.5).into(),
        ms(0.99).into(),
        ms(1.0).into(),
        pesq.into(),
        quantile(scores, 0.05).unwrap_or(f64::NAN).into(),
    ]
}
