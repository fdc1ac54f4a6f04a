//! Goodput of a TCP connection over a single link: the simulated TCP, and this kernel's over the
//! same modelled link.

mod figures;
mod simulate;
#[expect(clippy::disallowed_methods, reason = "the kernel's TCP needs real time")]
mod testbed;

use super::PAPER;
use crate::experiment::{Cells, Experiment, Inputs, Point, Sabotage, Size};
use crate::table::{Cell, Column};
use crate::testbed::PLACES;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::stats::Mean;
use trunkline_sim::agent::tcp::Profile;

const FIGURE: &str = "tcp-model";

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("tcp").parameter(),
    Column::number("rate_mbit_s", 0).parameter(),
    Column::number("rtt_ms", 0).parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("goodput_mbit_s", 4),
    Column::number("goodput_low_mbit_s", 4),
    Column::number("goodput_high_mbit_s", 4),
    Column::number("room_mbit_s", 4),
    Column::number("law_mbit_s", 4),
    Column::text("valid"),
];

/// Name of the simulated TCP in the column `tcp`.
const SIMULATED: &str = "linux-6";
/// Names of the kernel's congestion controls in the column `tcp`.
const KERNELS: [&str; 3] = ["reno", "cubic", "bbr"];

/// Data in a packet of [`MTU`] bytes, in bytes: the rest is 40 of IPv6, 20 of TCP and 12 of
/// timestamps.
const PAYLOAD: f64 = 1_428.0;
/// Largest packet including its IPv6 header, in bytes; a link's rate counts all of these.
const MTU: usize = 1_500;
/// Size of the send and receive buffers, in bytes: more than any window here.
const BUFFER: usize = 64 << 20;

/// A link over which TCP is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Params {
    /// Rate of the link, in Mbit/s.
    rate: u32,
    /// Round-trip time without queueing, in milliseconds.
    rtt: u32,
    /// Packets lost in the forward direction, in percent.
    loss: f64,
}

const RATES: [u32; 3] = [1, 10, 100];
const RTTS: [u32; 3] = [10, 50, 200];
const LOSSES: [f64; 3] = [0.0, 0.1, 1.0];
/// Losses at which timeouts and small windows matter, in percent, on links of [`HEAVY_RATE`].
const HEAVY: [f64; 2] = [3.0, 5.0];
/// Rate of the links with heavy loss in Mbit/s: more than TCP can use.
const HEAVY_RATE: u32 = 10;

impl Params {
    /// All combinations of rate, round-trip time and loss; just one place for [`Size::Tiny`].
    fn all(size: Size) -> Vec<Params> {
        if size == Size::Tiny {
            return vec![Params { rate: 10, rtt: 10, loss: 1.0 }];
        }
        let of = |rate, rtt| LOSSES.map(|loss| Params { rate, rtt, loss });
        let pairs = RATES.into_iter().flat_map(|rate| RTTS.map(|rtt| (rate, rtt)));
        let heavy = RTTS.map(|rtt| HEAVY.map(|loss| Params { rate: HEAVY_RATE, rtt, loss }));
        let heavy = heavy.into_iter().flatten();
        pairs.flat_map(|(rate, rtt)| of(rate, rtt)).chain(heavy).collect()
    }

    /// Whether the loss is one of [`HEAVY`].
    fn is_heavy(&self) -> bool {
        self.loss >= HEAVY[0]
    }

    /// Name of the place in files and samples.
    fn key(&self) -> String {
        format!("{}-{}-{}", self.rate, self.rtt, self.loss)
    }

    /// Models of the link's forward and return direction. The queue holds the bandwidth-delay
    /// product, but at least 20 packets.
    fn link(&self) -> [LinkModel; 2] {
        let rate = Bitrate::from_bps(u64::from(self.rate) * 1_000_000);
        let product = (rate.as_bps() * u64::from(self.rtt) / 8_000) as usize / MTU;
        let back = LinkModel {
            rate: Some(rate),
            delay: Duration::from_micros(u64::from(self.rtt) * 500),
            queue: Queue::Packets(product.max(20)),
            ..LinkModel::default()
        };
        let p = self.loss / 100.0;
        let loss = if p > 0.0 { Loss::Bernoulli { p } } else { Loss::None };
        [LinkModel { loss, ..back.clone() }, back]
    }

    /// Part of the link's rate that headers leave for data, in Mbit/s.
    fn room(&self) -> f64 {
        f64::from(self.rate) * PAYLOAD / MTU as f64
    }

    /// TCP's goodput if only loss limits its window, in Mbit/s: data in a packet times √(3/2p) per
    /// round trip if every packet is acknowledged (Mathis, Semke, Mahdavi, Ott: *The Macroscopic
    /// Behavior of the TCP Congestion Avoidance Algorithm*, 1997).
    fn law(&self) -> f64 {
        let window = libm::sqrt(1.5 / (self.loss / 100.0));
        8.0 * PAYLOAD * window / (1e3 * f64::from(self.rtt))
    }

    /// Expected goodput over the link, in Mbit/s.
    fn expected(&self) -> f64 {
        self.room().min(self.law())
    }
}

/// Time that a connection runs before it is measured, and the duration of the measurement.
fn spans(size: Size) -> (Duration, Duration) {
    let [before, measured] = size.pick([1, 4], [5, 20], [10, 60]).map(Duration::from_secs);
    (before, measured)
}

/// The experiment on the goodput of a TCP connection over a single link.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "tcp",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::simulated()],
        testbed: Some(testbed::testbed()),
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let one = |place: Params| {
        // Without loss, runs differ only in their initial sequence numbers.
        let runs = if place.loss > 0.0 { size.pick(1, 4, 20) } else { size.pick(1, 2, 2) };
        let spans = spans(size);
        let profile = profile(sabotage);
        let measure = move |inputs: &Inputs<'_>| {
            let run = |n| simulate::goodput(&place, &profile, spans, inputs.seed.wrapping_add(n));
            let goodputs = (0..runs).map(run).collect::<Result<Vec<f64>, _>>()?;
            Ok(vec![row(PLACES[0], SIMULATED, &place, &goodputs, true)])
        };
        Point {
            key: place.key(),
            x: 0.0,
            figures: vec![FIGURE],
            weight: 0.02 * runs as f64 * place.expected() * (spans.0 + spans.1).as_secs_f64()
                / 60.0,
            measure: Box::new(measure),
        }
    };
    Params::all(size).into_iter().map(one).collect()
}

/// The profile of the simulated TCP, broken according to `sabotage`.
fn profile(sabotage: Sabotage) -> Profile {
    let mut profile = Profile { receive_buffer: BUFFER, send_buffer: BUFFER, ..Profile::linux_6() };
    if sabotage.is("window-of-20") {
        profile.window_limit = Some(20);
    }
    if sabotage.is("acks-counted") {
        profile.count_acked = false;
    }
    profile
}

/// The table's row for the goodputs of these runs, in Mbit/s.
fn row(at: &str, tcp: &str, place: &Params, goodputs: &[f64], valid: bool) -> Vec<Cell> {
    let Mean { estimate, interval } = Mean::of(goodputs);
    let mut row: Vec<Cell> = vec![at.into(), tcp.into()];
    row.extend([f64::from(place.rate), f64::from(place.rtt), place.loss].map(Cell::from));
    row.push((goodputs.len() as u64).into());
    // NaN stays NaN.
    let low = if interval.0 < 0.0 { 0.0 } else { interval.0 };
    row.extend([estimate, low, interval.1].map(Cell::from));
    row.extend(
        [place.room(), place.law()].map(|n| Cell::from(if n.is_finite() { n } else { f64::NAN })),
    );
    row.push(Cell::yes(valid));
    row
}

/// The testbed's rows, by congestion control, then in the order of the places. `samples` gives
/// the goodputs at a place, and whether they are valid.
fn rows_of(samples: impl Fn(&Params, &str) -> (Vec<f64>, bool)) -> Cells {
    let places = Params::all(Size::Full);
    let each = KERNELS.into_iter().flat_map(|tcp| places.iter().map(move |place| (tcp, place)));
    each.filter_map(|(tcp, place)| {
        let (goodputs, valid) = samples(place, tcp);
        (!goodputs.is_empty()).then(|| row(PLACES[1], tcp, place, &goodputs, valid))
    })
    .collect()
}
