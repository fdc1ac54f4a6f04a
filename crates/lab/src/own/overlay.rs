//! What these experiments set at every node.

use crate::experiment::Sabotage;
use std::time::Duration;
use trunkline_sim::overlay::link;
use trunkline_sim::overlay::monitor::Liveness;
use trunkline_sim::{HostId, Topology};

/// Settings under a name.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In tables and legends.
    pub name: &'static str,
    /// Of every link.
    pub liveness: Liveness,
}

impl Settings {
    /// The daemon's, the same with hellos every 50 ms, and the paper's hellos.
    pub fn all(sabotage: Sabotage) -> [Settings; 3] {
        let fast = Liveness {
            interval: Duration::from_millis(50),
            dead_after: Duration::from_millis(400),
            ..Liveness::default()
        };
        let named = [("default", Liveness::default()), ("50 ms", fast), ("paper", Liveness::PAPER)];
        named.map(|(name, liveness)| Settings { name, liveness }.broken(sabotage))
    }

    fn broken(mut self, sabotage: Sabotage) -> Settings {
        if sabotage.is("paper-hellos") {
            self.liveness = Liveness::PAPER;
        }
        if sabotage.is("probes-off") {
            self.liveness.probes = false;
        }
        self
    }

    /// Makes the settings of a link.
    pub fn adjust(&self, config: &mut link::Config) {
        config.liveness = self.liveness.clone();
    }
}

/// Lets the nodes find their ways.
pub fn route(topology: &mut Topology, _settings: &Settings) {
    let ms = Duration::from_millis;
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(HostId);
    for (via, back, onward) in [(b, b, ms(10)), (c, c, ms(12)), (e, f, ms(30))] {
        topology.route(a, d, via, onward);
        topology.route(d, a, back, onward);
    }
    topology.route(e, d, f, ms(15));
    topology.route(f, a, e, ms(15));
}
