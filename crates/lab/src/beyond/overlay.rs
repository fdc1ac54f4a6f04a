//! Node settings that these experiments share.

use crate::experiment::Sabotage;
use std::time::Duration;
use trunkline_overlay::link;
use trunkline_overlay::monitor::{HALF_LIFE, Liveness};
use trunkline_overlay::node::Routing;

/// A named set of node settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of these settings in tables and legends.
    pub name: &'static str,
    /// The liveness of every link.
    pub liveness: Liveness,
    /// Half-life of the penalty on a link that fails.
    pub damping: Duration,
    /// The routing of every node.
    pub routing: Routing,
}

impl Settings {
    /// The daemon's defaults, the same with hellos every 50 ms, and the paper's hellos.
    pub fn all(sabotage: Sabotage) -> [Settings; 3] {
        let fast = Liveness {
            interval: Duration::from_millis(50),
            dead_after: Duration::from_millis(400),
            ..Liveness::default()
        };
        let named = [("default", Liveness::default()), ("50 ms", fast), ("paper", Liveness::PAPER)];
        named.map(|(name, liveness)| {
            let (damping, routing) = (HALF_LIFE, Routing::default());
            let settings = Settings { name, liveness, damping, routing };
            settings.broken(sabotage)
        })
    }

    fn broken(mut self, sabotage: Sabotage) -> Settings {
        if sabotage.is("paper-hellos") {
            self.liveness = Liveness::PAPER;
        }
        if sabotage.is("probes-off") {
            self.liveness.probes = false;
        }
        if sabotage.is("fast-hellos") {
            self.liveness.interval = Duration::from_millis(50);
            self.liveness.dead_after = Duration::from_millis(400);
        }
        if sabotage.is("damping-off") {
            self.damping = Duration::ZERO;
        }
        if sabotage.is("news-held-back") {
            self.routing.limits.own_interval = Duration::from_secs(10);
        }
        if sabotage.is("refresh-every-second") {
            self.routing.limits.refresh = Duration::from_secs(1);
        }
        self
    }

    /// These settings, broken by `sabotage` for an overlay of this many nodes.
    pub fn broken_for(mut self, sabotage: Sabotage, nodes: u32) -> Settings {
        if sabotage.is("room-for-half") {
            self.routing.limits.max_nodes = nodes as usize / 2;
        }
        self
    }

    /// Applies these settings to a link's configuration.
    pub fn adjust(&self, config: &mut link::Config) {
        config.liveness = self.liveness.clone();
        config.damping = self.damping;
    }
}
