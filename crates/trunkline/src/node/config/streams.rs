//! `[streams]`: limits on the streams that end at a node.

use super::congestion;
use crate::units::Size;
use serde::Deserialize;
use trunkline_overlay::link::reliable::Algorithm;
use trunkline_overlay::session::stream::Config;

/// The section `[streams]` of the configuration file, as written there.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsSection {
    max: Option<usize>,
    backlog: Option<u16>,
    buffer: Option<Size>,
    memory: Option<Size>,
    #[serde(deserialize_with = "congestion")]
    congestion: Option<Algorithm>,
}

impl StreamsSection {
    /// The node's settings, with defaults for absent keys. Ranges are checked by [`Config::check`],
    /// not here.
    pub fn config(&self) -> Config {
        let defaults = Config::default();
        let size = |s: Size| usize::try_from(s.0).unwrap_or(usize::MAX);
        Config {
            max: self.max.unwrap_or(defaults.max),
            backlog: self.backlog.unwrap_or(defaults.backlog),
            buffer: self.buffer.map_or(defaults.buffer, size),
            memory: self.memory.map_or(defaults.memory, size),
            algorithm: self.congestion.unwrap_or(defaults.algorithm),
        }
    }
}
