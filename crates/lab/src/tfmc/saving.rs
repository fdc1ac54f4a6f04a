//! Figure 4: the saving by multiplexing, by formula, counted, and with the overlay's trunk.

use super::PAPER;
use super::live::{Carrier, Live, fill};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_net::{IpVersion, Protocol};
use trunkline_rate::tfmc::Config;
use trunkline_sim::World;
use trunkline_sim::agent::trunk::{Mode, Receiver, Sender, Trunk};

const COLUMNS: &[Column] = &[
    Column::number("payload_bytes", 0).parameter(),
    Column::number("packets", 0).parameter(),
    Column::number("datagram_bytes", 0),
    Column::number("formula_pct", 3),
    Column::number("counted_pct", 3),
    Column::number("live_bytes", 2),
    Column::number("live_pct", 3),
];

/// Bytes of speech in a packet: 20 of G.723.1 or G.729A, 24 of G.723.1, 33 of GSM, 160 of G.711.
const PAYLOADS: [u32; 4] = [20, 24, 33, 160];
/// Number of packets of each call.
const PACKETS: u32 = 10;

/// The experiment behind figure 4.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "saving",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![fig4()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let one = |payload: u32| Point {
        key: payload.to_string(),
        x: payload.into(),
        figures: vec!["fig4"],
        weight: size.pick(0.05, 0.1, 0.2),
        measure: Box::new(move |inputs| rows(payload, (size, sabotage), inputs)),
    };
    let payloads: &[u32] = size.pick(&[20], &PAYLOADS, &PAYLOADS);
    payloads.iter().copied().map(one).collect()
}

fn rows(
    payload: u32,
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let config = Config::default();
    let packing = config.packing(payload.into());
    let single = bytes(payload, 1, sabotage, inputs.seed)?;
    let one = |packets: usize| {
        let counted = bytes(payload, packets, sabotage, inputs.seed)?;
        let live = live_bytes(payload, packets, (size, sabotage), inputs.seed)?;
        let row = [
            payload.into(),
            packets as f64,
            packing.size(packets),
            100.0 * packing.saving(packets),
            100.0 * (1.0 - counted / single),
            live,
            100.0 * (1.0 - live / single),
        ];
        Ok(row.map(Cell::from).into())
    };
    (1..=packing.most(config.mtu)).map(one).collect()
}

/// Bytes on the wire per packet when as many calls as share a datagram send at the same instant.
fn bytes(payload: u32, packets: usize, sabotage: Sabotage, seed: u64) -> Result<f64, PointError> {
    let apart = sabotage.is("packets-apart");
    let call = |n: usize| {
        let after = if apart { Duration::from_micros(10 * n as u64) } else { Duration::ZERO };
        (0..PACKETS).map(move |k| Time::from_millis(1) + after + Duration::from_millis(20) * k)
    };
    let wait = if apart { Duration::ZERO } else { Duration::from_millis(5) };
    let trunk = Trunk::new(payload as usize, (0..packets).map(call));
    let trunk = Trunk { mode: Mode::Fixed(packets), wait, ..trunk };
    let mut world = World::new(IpVersion::V4, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let wire = world.cable(a, b, LinkModel::default(), LinkModel::default())?;
    let to = world.endpoint(b, 9);
    world.bind(b, Protocol::UDP, 9, Receiver::new(9, trunk.clone()))?;
    let count = trunk.packets.len() as f64;
    world.bind(a, Protocol::UDP, 8, Sender::new(8, to, trunk, Time::ZERO))?;
    world.run_until(Time::from_millis(1_000));
    let [there, _] = world.edge_ledgers(wire);
    Ok(there.arrived.bytes as f64 / count)
}

/// Bytes on the wire per packet of as many calls, over a trunk between overlay nodes in both
/// directions, when their packets are due at the same instant.
fn live_bytes(
    payload: u32,
    calls: usize,
    (size, sabotage): (Size, Sabotage),
    seed: u64,
) -> Result<f64, PointError> {
    let length = Duration::from_secs(size.pick(1, 2, 4));
    let carried = match sabotage.is("trunk-off") {
        true => Carrier::Alone,
        false => Carrier::Trunk(fill(Duration::from_millis(2))),
    };
    // Not at the moment at which a measurement begins or ends.
    let begins = vec![Duration::from_millis(10); calls];
    let (wire, speech) = (LinkModel::default(), payload as usize);
    let live = Live { carried, wire, begins, speech, length, both_ways: true };
    Ok(live.run(seed)?.bytes_per_packet())
}

fn fig4() -> Figure {
    Figure {
        name: "fig4",
        title: "Bytes that multiplexing saves",
        section: "5.2",
        caption: "Bytes on the wire that m packets of different calls save when they share a \
               datagram, relative to those of a datagram for each, by equation (8) and counted in \
               the simulator, up to the capacity of 1,500 bytes. The paper has 20 bytes of speech \
               in a packet. Pale: the saving of a trunk between overlay nodes compared with such a \
               datagram for each, with m calls in both directions whose packets are due at the \
               same instant. Its bytes are all that the wire carries, including envelopes and \
               their seals, hellos, and control messages between the ends of trunks.",
        chart: one_panel(chart),
        claims: vec![
            Claim {
                id: "ten",
                statement: "ten packets of 20 bytes in a datagram save 42 % of the bytes",
                published: Some("42 % with 10 packets of 20 bytes"),
                bound: Bound::within(41.5, 42.5, "the values that round to 42 %"),
                unit: "%",
                measure: Box::new(|t| {
                    let row = t
                        .iter()
                        .find(|r| r.number("payload_bytes") == 20.0 && r.number("packets") == 10.0);
                    Measured::census(row.map_or(f64::NAN, |r| r.number("counted_pct")))
                }),
                at: &[20.0],
                sabotage: "packets-apart",
                ..Claim::default()
            },
            Claim {
                id: "as-counted",
                statement: "equation (8) gives the counted bytes, for every payload and number of \
                       packets in a datagram",
                published: None,
                bound: Bound::at_most(0.001, "both are exact"),
                unit: "points",
                decimals: 3,
                measure: Box::new(|t| {
                    let off = |r: Record<'_>| r.number("formula_pct") - r.number("counted_pct");
                    Measured::maximum(t.iter().map(|r| Measured::census(off(r).abs())))
                }),
                sabotage: "packets-apart",
                ..Claim::default()
            },
            live_claim(),
        ],
    }
}

fn live_claim() -> Claim {
    Claim {
        id: "live",
        statement: "a sealed trunk between overlay nodes saves at least half as much with ten packets \
               of 20 bytes, compared with plain datagrams for each",
        published: None,
        bound: Bound::at_least(21.0, "half of the paper's 42 %; set before the first measurement"),
        unit: "%",
        measure: Box::new(|t| {
            let ten =
                |r: &Record<'_>| r.number("payload_bytes") == 20.0 && r.number("packets") == 10.0;
            Measured::of_one_run(t.iter().find(ten).map_or(f64::NAN, |r| r.number("live_pct")))
        }),
        at: &[20.0],
        sabotage: "trunk-off",
        ..Claim::default()
    }
}

fn chart(table: &Table) -> Chart {
    let line = |(n, payload, column): (usize, u32, &str)| {
        let of = table.iter().filter(|r| r.number("payload_bytes") == f64::from(payload));
        let mark =
            |r: Record<'_>| Mark { x: r.number("packets"), y: r.number(column), interval: None };
        let points = of.map(mark).collect();
        match column {
            "live_pct" => Series {
                name: format!("{payload} bytes, overlay"),
                style: Style { marker: Marker::None, ..Style::nth(n).pale() },
                points,
            },
            _ => Series { name: format!("{payload} bytes"), style: Style::nth(n), points },
        }
    };
    let columns = ["counted_pct", "live_pct"];
    let series = columns.into_iter().flat_map(|column| {
        PAYLOADS.into_iter().enumerate().map(move |(n, payload)| (n, payload, column))
    });
    Chart {
        title: "Bytes saved".to_owned(),
        x: Axis::linear("packets in a datagram", (0.0, 50.0), 10.0),
        y: Axis::linear("saved (%)", (-100.0, 50.0), 25.0),
        series: series.map(line).collect(),
    }
}
