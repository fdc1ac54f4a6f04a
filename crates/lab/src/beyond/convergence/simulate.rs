use super::super::overlay::Settings;
use super::script::{
    B, CALM, Event, FAILING, LINKS, NODES, Overlay, PATIENCE, Settled, Table, bit, is_right,
};
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::{Time, rng};
use trunkline_net::IpVersion;
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World, WorldError};

/// Interval between two polls of the tables.
const LOOK: Duration = Duration::from_millis(1);
/// A process starts to listen 10 to 30 ms after it is launched, each at a random time. Packets that
/// arrive earlier are lost, and are retransmitted a quarter of a second later.
const FIRST_LISTENS: Duration = Duration::from_millis(10);
const STARTS_WITHIN_US: u64 = 20_000;

/// The overlay in the simulator.
pub struct Simulated<'a> {
    settings: &'a Settings,
    /// Seed of the world that the next start creates.
    seed: u64,
    world: World,
}

impl<'a> Simulated<'a> {
    /// An overlay in which no node has been started yet.
    pub fn new(settings: &'a Settings, seed: u64) -> Simulated<'a> {
        Simulated { settings, seed, world: World::new(IpVersion::V6, seed) }
    }

    /// Starts all nodes, one after another, and returns the time at which this began.
    fn start(&mut self) -> Result<Time, WorldError> {
        let settings = self.settings;
        let mut topology = Topology::new();
        let hosts: Vec<HostId> = (1..=NODES as u32).map(|id| topology.host(NodeId(id))).collect();
        for (a, b, ms) in LINKS {
            let model = LinkModel { delay: Duration::from_millis(ms), ..LinkModel::default() };
            let (a, b) = (hosts[a], hosts[b]);
            topology.link_with(a, b, model.clone(), model, |link| settings.adjust(link));
        }
        topology.link_state(&settings.routing);
        topology.seal();
        let mut world = topology.build(self.seed)?;
        // The world starts all nodes at the same moment: undo that.
        hosts.iter().for_each(|&host| world.crash(host));
        let begun = world.now() + Duration::from_secs(1);
        let mut rng = rng(self.seed, 2);
        let mut at =
            |host| (FIRST_LISTENS + Duration::from_micros(rng.next_u64() % STARTS_WITHIN_US), host);
        let mut starts: Vec<(Duration, HostId)> = hosts.into_iter().map(&mut at).collect();
        starts.sort_unstable_by_key(|&(after, _)| after);
        for (after, host) in starts {
            world.run_until(begun + after);
            world.restart(host)?;
        }
        (self.world, self.seed) = (world, self.seed.wrapping_add(1));
        Ok(begun)
    }

    /// The forwarding table of a node.
    fn table(&self, node: usize) -> Table {
        let node = self.world.node(HostId(node as u32));
        let mut table = Table::default();
        for (to, hop) in node.table().iter(Metric::default()) {
            let Some(link) = node.link(hop.link).filter(|l| l.monitor().is_up()) else { continue };
            let index = |id: NodeId| id.0 as usize - 1;
            table[index(to)] = bit(index(link.config().neighbour));
        }
        table
    }
}

impl Overlay for Simulated<'_> {
    type Error = WorldError;

    fn rest(&mut self, how_long: Duration) -> Result<(), WorldError> {
        self.world.run_until(self.world.now() + how_long);
        Ok(())
    }

    fn inject(&mut self, event: Event) -> Result<Settled, WorldError> {
        let (wire, b) = (WireId(FAILING as u32), HostId(B as u32));
        let (begun, world) = match event {
            Event::Start => (self.start()?, &mut self.world),
            _ => (self.world.now(), &mut self.world),
        };
        match event {
            Event::Start => {}
            Event::Cut => world.cut(wire),
            Event::Mend => world.mend(wire),
            Event::Crash => world.crash(b),
            Event::Restart => {
                world.run_until(begun + FIRST_LISTENS);
                world.restart(b)?;
            }
            Event::Blackhole => world.blackhole(wire, WireEnd::First),
        }
        let wanted = event.wanted();
        let mut right_since = begun;
        loop {
            let now = self.world.now();
            let running = (0..NODES).filter(|&n| n != B || event.leaves_b());
            let mut all = running.map(|n| is_right(self.table(n), wanted[n]));
            if !all.all(|right| right) {
                right_since = now + LOOK;
            }
            let for_good = now.since(right_since) >= CALM;
            if for_good || now.since(begun) >= PATIENCE {
                let took = if for_good { right_since.since(begun) } else { PATIENCE };
                return Ok(Settled { event, took, for_good, look: LOOK });
            }
            self.world.run_until(now + LOOK);
        }
    }
}
