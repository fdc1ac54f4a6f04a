//! The ledger as JSON.

use super::super::pump::{Pump, cpu_seconds};
use super::super::report::{Lateness, Tally};
use super::config::Hosts;
use super::devices::{Device, Devices};
use serde::Serialize;
use std::collections::BTreeMap;
use trunkline_net::{DirectionId, Network};

/// What a run did.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Length of the run.
    seconds: f64,
    /// Processor time of the network.
    cpu_seconds: f64,
    /// How late packets were handed to hosts.
    lateness_us: Lateness,
    /// The kernel whose TCP the hosts have.
    kernel: String,
    /// In the order of the file.
    hosts: Vec<HostReport>,
    /// Likewise.
    edges: Vec<EdgeReport>,
}

/// One host: what its device passed, and what could not begin its way there.
#[derive(Debug, Serialize)]
struct HostReport {
    name: String,
    /// Settings of its TCP.
    tcp: BTreeMap<&'static str, String>,
    sent: Tally,
    received: Tally,
    foreign: Tally,
    unroutable: Tally,
    too_big: Tally,
    expired: Tally,
    malformed: Tally,
    refused: Tally,
    /// Dropped by its kernel before they could be read, packets.
    kernel_dropped: u64,
}

#[derive(Debug, Serialize)]
struct EdgeReport {
    name: String,
    /// From the first end that was named to the second.
    forward: DirectionReport,
    reverse: DirectionReport,
}

/// One direction: offered = arrived + lost + queue_dropped + pool_dropped + in_flight, in
/// packets and in bytes of IP.
#[derive(Debug, Serialize)]
struct DirectionReport {
    offered: Tally,
    arrived: Tally,
    lost: Tally,
    queue_dropped: Tally,
    /// Those of queue_dropped that random early detection chose by chance.
    early_dropped: Tally,
    marked: Tally,
    pool_dropped: Tally,
    in_flight: Tally,
}

impl Report {
    pub fn new(pump: &Pump<Devices, Hosts>) -> Report {
        let edges = pump.setup.edges.iter().zip(0..).map(|(edge, n)| EdgeReport {
            name: edge.name.clone(),
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
