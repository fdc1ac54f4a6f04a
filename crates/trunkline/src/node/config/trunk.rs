//! `[[trunk]]`: destinations to which real-time packets leave bundled.

use crate::units::Span;
use serde::Deserialize;
use trunkline_overlay::trunk::{Config, Multiplex};
use trunkline_overlay::wire::NodeId;

/// A `[[trunk]]` section: settings of one trunk.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrunkSection {
    #[serde(deserialize_with = "super::number::id")]
    to: u32,
    wait: Option<Span>,
    multiplex: Option<Name>,
    admit: Option<Admit>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Admit {
    All,
    Share,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Name {
    Fill,
    Tfmc,
    Off,
}

impl TrunkSection {
    /// Converts the section; the node itself validates the values.
    pub fn config(&self) -> Config {
        let defaults = Config::new(NodeId(self.to));
        Config {
            wait: self.wait.map_or(defaults.wait, |span| span.0),
            multiplex: self.multiplex.map_or(defaults.multiplex, |name| match name {
                Name::Fill => Multiplex::Fill,
                Name::Tfmc => Multiplex::Tfmc,
                Name::Off => Multiplex::Off,
            }),
            admit_share: self.admit == Some(Admit::Share),
            ..defaults
        }
    }
}
