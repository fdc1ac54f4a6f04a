//! A TFRC flow that always has a packet to send, alone on a link that loses packets independently
//! of each other: its rate, compared with the throughput equation.

mod figures;

use super::PAPER;
use crate::experiment::{Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::stats::Mean;
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::equation::Throughput;
use trunkline_rate::tfrc::Config;
use trunkline_sim::World;
use trunkline_sim::agent::tfrc::{Flow, Sink, Source};

const FIGURE: &str = "tfrc-steady";

const COLUMNS: &[Column] = &[
    Column::text("flow").parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("rtt_ms", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("events_pct", 4),
    Column::number("events_low_pct", 4),
    Column::number("events_high_pct", 4),
    Column::number("sent_per_s", 3),
    Column::number("sent_low_per_s", 3),
    Column::number("sent_high_per_s", 3),
    Column::number("at_loss_per_s", 3),
    Column::number("at_events_per_s", 3),
    Column::number("off_pct", 2),
    Column::number("off_low_pct", 2),
    Column::number("off_high_pct", 2),
];

/// Packets lost in the forward direction, in percent.
const LOSSES: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// Round-trip times, in milliseconds.
const RTTS: [u32; 4] = [20, 50, 100, 200];

/// Values of the column `flow`: packets that nearly fill an Ethernet frame, as CCID 3 sends them,
/// and 20 ms of G.711, as TFRC for small packets sends them.
const FULL: &str = "full";
const SMALL: &str = "small";
/// Payloads of the two flows, in bytes.
const FULL_BYTES: u16 = 1_400;
const SMALL_BYTES: u16 = 160;
/// Largest rate of TFRC for small packets, in packets per second: one packet every 10 ms.
const SMALL_MAX: f64 = 100.0;

/// Interval at which the sender's loss event rate is sampled.
const SAMPLED: Duration = Duration::from_millis(100);

/// A flow, and the link on which it is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Params {
    flow: &'static str,
    loss: f64,
    rtt: u32,
}

impl Params {
    /// All combinations; one link for [`Size::Tiny`].
    fn all(size: Size) -> Vec<Params> {
        let links = match size {
            Size::Tiny => vec![(3.0, 50)],
            _ => LOSSES.into_iter().flat_map(|loss| RTTS.map(|rtt| (loss, rtt))).collect(),
        };
        let of = |flow| links.iter().map(move |&(loss, rtt)| Params { flow, loss, rtt });
        of(FULL).chain(of(SMALL)).collect()
    }

    /// The place at the mirrored positions of both lists, counted from their other ends.
    fn mirrored(self) -> Params {
        let loss = LOSSES.iter().rev().zip(LOSSES).find(|(_, l)| *l == self.loss);
        let rtt = RTTS.iter().rev().zip(RTTS).find(|(_, r)| *r == self.rtt);
        Params {
            loss: loss.map_or(self.loss, |l| *l.0),
            rtt: rtt.map_or(self.rtt, |r| *r.0),
            ..self
        }
    }

    /// Rate of the equation at the loss event rate `p`, in packets per second. RFC 4828 gives small
    /// packets, with 40 bytes of headers, as many bytes as TCP has with 1,460 in a segment.
    fn equation(&self, p: f64) -> f64 {
        let rtt = Duration::from_millis(self.rtt.into());
        match self.flow {
            SMALL => Throughput::RFC.rate(1_460.0, rtt, p) / f64::from(SMALL_BYTES + 40),
            _ => Throughput::RFC.rate(1.0, rtt, p),
        }
    }

    /// Expected rate of the flow at the loss event rate `p`, in packets per second.
    fn expected(&self, p: f64) -> f64 {
        self.equation(p).min(if self.flow == SMALL { SMALL_MAX } else { f64::INFINITY })
    }

    /// The parameters of the flow, broken according to `sabotage`.
    fn config(&self, sabotage: Sabotage) -> Config {
        let mut config = match self.flow {
            SMALL => Config::small_packets(SMALL_BYTES),
            _ => Config::basic(FULL_BYTES),
        };
        if sabotage.is("segment-of-half") {
            match &mut config.small {
                Some(nominal) => nominal.segment /= 2.0,
                None => config.segment /= 2,
            }
        }
        if sabotage.is("rate-of-five") {
            config.max_rate = 5.0 * f64::from(config.segment);
        }
        config
    }
}

/// Number of runs, and the round trips of each before and during the measurement. Counted in round
/// trips, so that a long link sees as many losses as a short one.
fn extent(size: Size) -> (u64, [u32; 2]) {
    size.pick((2, [100, 100]), (8, [400, 700]), (20, [600, 5_000]))
}

/// The experiment on the long-term rate of a TFRC flow.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: FIGURE,
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::steady()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, round_trips) = extent(size);
    let one = |place: Params| {
        let config = place.config(sabotage);
        let on = if sabotage.is("links-mirrored") { place.mirrored() } else { place };
        let rtt = Duration::from_millis(on.rtt.into());
        let [before, measured] = round_trips.map(|count| rtt * count);
        let measure = move |inputs: &Inputs<'_>| {
            let run = |n| on.run(config, (before, measured), inputs.seed.wrapping_add(n));
            let runs = (0..runs).map(run).collect::<Result<Vec<Run>, _>>()?;
            Ok(vec![row(&place, &runs)])
        };
        let packets = place.expected(place.loss / 100.0) * (before + measured).as_secs_f64();
        Point {
            key: format!("{}-{}-{}", place.flow, place.loss, place.rtt),
            x: place.loss,
            figures: vec![FIGURE],
            weight: 1e-6 * runs as f64 * packets,
            measure: Box::new(measure),
        }
    };
    Params::all(size).into_iter().map(one).collect()
}

/// Results of a flow while it was measured.
struct Run {
    /// Packets sent per second.
    sent: f64,
    /// The loss event rate: the inverse of the mean loss interval that the receiver reported.
    events: f64,
}

impl Params {
    /// Measures one flow during the span `measured`, which follows `before`.
    fn run(
        &self,
        config: Config,
        (before, measured): (Duration, Duration),
        seed: u64,
    ) -> Result<Run, PointError> {
        let total = before + measured;
        // All packets are due at once, and are so many that some are still queued at the end.
        let most = 4.0 * self.expected(self.loss / 100.0) * total.as_secs_f64() + 2e4;
        let bytes = usize::from(if self.flow == SMALL { SMALL_BYTES } else { FULL_BYTES });
        let flow =
            Flow { id: 7, due: vec![Time::ZERO; most as usize].into(), bytes, tos: 0, config };
        let mut world = World::new(IpVersion::V6, seed);
        let (a, b) = (world.add_plain_host(), world.add_plain_host());
        let back = LinkModel {
            rate: Some(Bitrate::from_bps(1_000_000_000)),
            delay: Duration::from_micros(u64::from(self.rtt) * 500),
            ..LinkModel::default()
        };
        let loss = Loss::Bernoulli { p: self.loss / 100.0 };
        world.cable(a, b, LinkModel { loss, ..back.clone() }, back)?;
        let to = world.endpoint(b, 80);
        world.bind(b, Protocol::DCCP, 80, Sink::new(80, &flow))?;
        let source = Source::new(9, to, flow, most as usize, Time::ZERO);
        let source = world.bind(a, Protocol::DCCP, 9, source)?;
        let mut now = Time::ZERO + before;
        world.run_until(now);
        let waited = world.agent(source).waiting();
        let (mut interval, mut samples) = (0.0, 0.0);
        while now < Time::ZERO + total {
            now += SAMPLED;
            world.run_until(now);
            interval += 1.0 / world.agent(source).sender().loss();
            samples += 1.0;
        }
        let waiting = world.agent(source).waiting();
        // A flow that ran out of packets was not always limited by its rate.
        let sent = if waiting > 0 { (waited - waiting) as f64 } else { f64::NAN };
        Ok(Run { sent: sent / measured.as_secs_f64(), events: samples / interval })
    }
}

/// The table's row for these runs.
fn row(place: &Params, runs: &[Run]) -> Vec<Cell> {
    let mean = |of: &dyn Fn(&Run) -> f64| Mean::of(&runs.iter().map(of).collect::<Vec<_>>());
    let cells = |m: Mean| [m.estimate, m.interval.0, m.interval.1].map(Cell::from);
    // Shares and counts can't be negative.
    let positive = |m: Mean| Mean { interval: (m.interval.0.max(0.0), m.interval.1), ..m };
    let events = mean(&|run| run.events);
    let mut row = vec![place.flow.into(), place.loss.into(), f64::from(place.rtt).into()];
    row.push((runs.len() as u64).into());
    row.extend(cells(positive(mean(&|run| 100.0 * run.events))));
    row.extend(cells(positive(mean(&|run| run.sent))));
    row.extend([place.loss / 100.0, events.estimate].map(|p| Cell::from(place.equation(p))));
    // A run's rate and its losses depend on each other, so the ratio is taken per run.
    row.extend(cells(mean(&|run| 100.0 * (run.sent / place.expected(run.events) - 1.0))));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 1 % and 100 ms a segment takes 8.90217 ms, so that 112.33 are sent in a second, and
    /// 1,460 / 200 = 7.3 times as many small packets would be.
    #[test]
    fn packets_per_second_by_hand() {
        let place = Params { flow: FULL, loss: 1.0, rtt: 100 };
        assert!((place.expected(0.01) - 112.332).abs() < 1e-3);
        let small = Params { flow: SMALL, ..place };
        assert!((small.equation(0.01) - 7.3 * 112.332).abs() < 1e-2);
        assert_eq!(small.expected(0.01), SMALL_MAX);
        let other = Params { loss: 3.0, rtt: 50, ..place };
        let mirrored = Params { loss: 0.3, rtt: 100, ..place };
        assert_eq!((place.mirrored().rtt, other.mirrored()), (50, mirrored));
    }
}
