//! Counters of each link by class of packets.

use super::build::CLASSES;
use super::model::Scenario;
use crate::table::{Cell, Column, Table, print};
use trunkline_base::link_model::Count;
use trunkline_net::EdgeLedger;
use trunkline_sim::{WireId, World};

/// A row has the packets of a class, or of all, in one direction of a link with a wire. In packets
/// and in bytes (with IP headers), `offered = arrived + lost + queue_dropped + no_room +
/// under_way`; and the classes add up to `all`.
pub const LINK_COLUMNS: &[Column] = &[
    Column::text("link"),
    Column::text("way"),
    Column::text("class"),
    Column::number("offered", 0),
    Column::number("arrived", 0),
    Column::number("lost", 0),
    Column::number("queue_dropped", 0),
    Column::number("no_room", 0),
    Column::number("under_way", 0),
    Column::number("offered_bytes", 0),
    Column::number("arrived_bytes", 0),
    Column::number("lost_bytes", 0),
    Column::number("queue_dropped_bytes", 0),
    Column::number("no_room_bytes", 0),
    Column::number("under_way_bytes", 0),
];

/// The two directions of a link.
pub const WAYS: [&str; 2] = ["there", "back"];
/// Name that stands for the packets of all classes.
pub const ALL: &str = "all";

/// The ledgers of all links, for the classes that were used.
pub fn links(scenario: &Scenario, world: &World, wires: &[Option<WireId>]) -> Table {
    let mut rows = Vec::new();
    for (link, wire) in scenario.links.iter().zip(wires) {
        let Some(wire) = *wire else { continue };
        let all = world.edge_ledgers(wire);
        for (n, way) in WAYS.into_iter().enumerate() {
            let of_class = CLASSES.map(|(name, class)| (name, world.class_ledgers(wire, class)[n]));
            let any = of_class.into_iter().filter(|(_, ledger)| ledger.offered.packets > 0);
            for (class, ledger) in any.chain([(ALL, all[n])]) {
                rows.push(print(LINK_COLUMNS, cells(&link.name, way, class, &ledger)));
            }
        }
    }
    Table { columns: LINK_COLUMNS, rows }
}

/// The ledgers of `trunkline impair --hosts` in the same form. Its edges are named by the numbers
/// of the links, and it has only the total of all packets, as it doesn't distinguish classes.
pub fn of_impair(scenario: &Scenario, ledger: &serde_json::Value) -> Table {
    let mut rows = Vec::new();
    for edge in ledger["edges"].as_array().into_iter().flatten() {
        let number = edge["name"].as_str().and_then(|name| name.parse::<usize>().ok());
        let Some(link) = number.and_then(|n| scenario.links.get(n)) else { continue };
        for (way, direction) in WAYS.into_iter().zip(["forward", "reverse"]) {
            let parts =
                ["offered", "arrived", "lost", "queue_dropped", "pool_dropped", "in_flight"];
            let number = |what: &str| {
                let of = |part| edge[direction][part][what].as_f64().unwrap_or(f64::NAN);
                parts.map(|part| Cell::from(of(part)))
            };
            let names = [link.name.as_str(), way, ALL].map(Cell::from);
            let row = names.into_iter().chain(number("packets")).chain(number("bytes"));
            rows.push(print(LINK_COLUMNS, row.collect()));
        }
    }
    Table { columns: LINK_COLUMNS, rows }
}

fn cells(link: &str, way: &str, class: &str, l: &EdgeLedger) -> Vec<Cell> {
    let counts = [l.offered, l.arrived, l.lost, l.queue_dropped, l.no_room, l.under_way()];
    let number = |of: fn(&Count) -> u64| counts.map(|c| Cell::from(of(&c)));
    let names = [link, way, class].map(Cell::from);
    names.into_iter().chain(number(|c| c.packets)).chain(number(|c| c.bytes)).collect()
}
