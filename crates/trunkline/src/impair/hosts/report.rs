//! The ledger as JSON.

use super::super::pump::{Pump, cpu_seconds};
use super::super::report::{Lateness, Tally};
use super::config::Hosts;
use super::devices::{Device, Devices};
use serde::Serialize;
use std::collections::BTreeMap;
use trunkline_net::{DirectionId, Network};

/// The ledger of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Length of the run, in seconds.
    seconds: f64,
    /// Processor time of the emulator, in seconds.
    cpu_seconds: f64,
    /// Lateness of packets delivered to hosts.
    lateness_us: Lateness,
    /// Release of the kernel that runs the hosts.
    kernel: String,
    /// The hosts in the order of the file.
    hosts: Vec<HostReport>,
    /// The edges in the order of the file, then those of its cells, station by station.
    edges: Vec<EdgeReport>,
}

/// Traffic of a host's device, and packets of the host that never entered the network.
#[derive(Debug, Serialize)]
struct HostReport {
    name: String,
    /// Reported TCP settings, by key.
    tcp: BTreeMap<&'static str, String>,
    sent: Tally,
    received: Tally,
    foreign: Tally,
    unroutable: Tally,
    too_big: Tally,
    expired: Tally,
    malformed: Tally,
    refused: Tally,
    /// Number of packets that the kernel dropped because they were not read in time.
    kernel_dropped: u64,
}

#[derive(Debug, Serialize)]
struct EdgeReport {
    name: String,
    /// The direction from the first named end to the second.
    forward: DirectionReport,
    reverse: DirectionReport,
}

/// Packets of one direction, with the bytes of their IP packets: offered = arrived + lost +
/// queue_dropped + pool_dropped + in_flight.
#[derive(Debug, Serialize)]
struct DirectionReport {
    offered: Tally,
    arrived: Tally,
    lost: Tally,
    queue_dropped: Tally,
    /// The part of queue_dropped that random early detection chose.
    early_dropped: Tally,
    marked: Tally,
    pool_dropped: Tally,
    in_flight: Tally,
}

impl Report {
    pub fn new(pump: &Pump<Devices, Hosts>) -> Report {
        let names = pump.setup.edges.iter().map(|edge| edge.name.clone());
        let names =
            names.chain(pump.setup.cells.iter().flat_map(|c| c.edges().map(|(_, name)| name)));
        let edges = names.zip(0..).map(|(name, n)| EdgeReport {
            name,
            forward: DirectionReport::new(&pump.net, DirectionId(2 * n)),
            reverse: DirectionReport::new(&pump.net, DirectionId(2 * n + 1)),
        });
        let hosts = pump.setup.hosts.iter().zip(&pump.ports.devices);
        let kernel = nix::sys::utsname::uname();
        Report {
            seconds: pump.seconds(),
            cpu_seconds: cpu_seconds(),
            lateness_us: pump.lateness(),
            kernel: kernel.map_or_else(
                |_| String::new(),
                |name| name.release().to_string_lossy().into_owned(),
            ),
            hosts: hosts.map(|(host, device)| HostReport::new(&host.name, device)).collect(),
            edges: edges.collect(),
        }
    }
}

impl HostReport {
    fn new(name: &str, device: &Device) -> HostReport {
        HostReport {
            name: name.to_owned(),
            tcp: device.namespace.tcp.clone(),
            sent: device.sent.into(),
            received: device.received.into(),
            foreign: device.foreign.into(),
            unroutable: device.unroutable.into(),
            too_big: device.too_big.into(),
            expired: device.expired.into(),
            malformed: device.malformed.into(),
            refused: device.refused.into(),
            kernel_dropped: device.namespace.kernel_dropped(),
        }
    }
}

impl DirectionReport {
    fn new(net: &Network, direction: DirectionId) -> DirectionReport {
        let ledger = net.ledger(direction);
        let decided = net.decided(direction).unwrap_or_default();
        DirectionReport {
            offered: ledger.offered.into(),
            arrived: ledger.arrived.into(),
            lost: ledger.lost.into(),
            queue_dropped: ledger.queue_dropped.into(),
            early_dropped: decided.early_dropped.into(),
            marked: ledger.marked.into(),
            pool_dropped: ledger.no_room.into(),
            in_flight: ledger.under_way().into(),
        }
    }
}
