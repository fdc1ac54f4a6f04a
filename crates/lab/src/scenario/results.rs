//! The results of a scenario.

use super::model::Scenario;
use super::testbed::Effort;
use crate::plot::Panels;
use crate::table::{Kind, Table};
use serde_json::{Map, Value, json};

/// The tables and figures of a scenario.
pub struct Results {
    /// A row for each `[[call]]`; see [`COLUMNS`](super::COLUMNS). With the testbed
    /// its rows follow those of the simulator.
    pub calls: Table,
    /// A row for each `[[stream]]`; see [`STREAM_COLUMNS`](super::STREAM_COLUMNS). With the
    /// testbed its rows follow.
    pub streams: Table,
    /// A row for each `[[stream]]` by TCP; see
    /// [`TRANSFER_COLUMNS`](super::TRANSFER_COLUMNS). With the testbed its rows follow.
    pub transfers: Table,
    /// The ledgers of links; see [`LINK_COLUMNS`](super::LINK_COLUMNS).
    pub links: Table,
    /// Figures, and the names of their files, without extension.
    pub figures: Vec<(String, Panels)>,
}

impl Results {
    /// The tables as JSON, each row an object by column, with numbers as numbers and empty cells as
    /// null.
    pub fn json(&self, scenario: &Scenario, seed: u64, testbed: Option<&Effort>) -> Value {
        json!({
            "scenario": scenario.name,
            "seed": seed,
            "calls": rows(&self.calls),
            "streams": rows(&self.streams),
            "transfers": rows(&self.transfers),
            "links": rows(&self.links),
            "testbed": testbed,
        })
    }
}

fn rows(table: &Table) -> Value {
    let cell = |text: &str, words: bool| match text {
        "" => Value::Null,
        text if words => text.into(),
        text => serde_json::from_str(text).unwrap_or(Value::Null),
    };
    let row = |row: &Vec<String>| {
        let cells = table.columns.iter().zip(row);
        let cells = cells.map(|(c, text)| (c.name.to_owned(), cell(text, c.kind == Kind::Text)));
        Value::Object(Map::from_iter(cells))
    };
    table.rows.iter().map(row).collect()
}
