//! The hosts' devices, through which their kernels send and receive packets.

use super::super::clock::Clock;
use super::super::pump::{BATCH, Ports};
use super::super::say::say;
use super::capture::Captures;
use super::ip::{Head, RejectedPacket, pass_on, refusal};
use super::layout::{HostPath, Layout, router_addresses};
use super::namespace::{DEVICE, Namespace};
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Count;
use trunkline_net::{Class, Endpoint, Header, Network, Packet, VertexId};

/// Length of the longest IP packet that a device sends or receives.
const MAX_PACKET: usize = 65_535;

/// Routers limit the rate of their errors (RFC 1812, 4.3.2.8; RFC 4443, 2.4). Here each host is
/// sent as many per second, and as many at once, as Linux sends in total by default.
const ERROR_EVERY: Duration = Duration::from_millis(1);
const ERRORS_AT_ONCE: u32 = 50;

/// A host's device, and counts of its packets.
#[derive(Debug)]
pub struct Device {
    /// The name of the host.
    name: String,
    pub namespace: Namespace,
    /// Sent by the host into the network.
    pub sent: Count,
    /// Delivered to the host.
    pub received: Count,
    /// Sent from an address that the host does not have, and not offered to the network.
    pub foreign: Count,
    /// Sent to a multicast address, an address that no host has, or an unreachable host.
    pub unroutable: Count,
    /// Larger than an edge on the route allows.
    pub too_big: Count,
    /// Expired by the hop limit before reaching the destination.
    pub expired: Count,
    /// Not an IP packet.
    pub malformed: Count,
    /// Time until which the errors sent to the host use up its allowance.
    told_until: Time,
    /// Not accepted by the host's kernel: the device is down or gone.
    pub refused: Count,
}

/// The devices of all hosts, as the ports of a pump; see the module.
pub struct Devices {
    pub devices: Vec<Device>,
    pub captures: Captures,
    layout: Layout,
    rx: Vec<u8>,
}

impl Device {
    pub fn new(name: String, namespace: Namespace) -> Device {
        let none = Count::default();
        Device {
            name,
            namespace,
            sent: none,
            received: none,
            foreign: none,
            unroutable: none,
            too_big: none,
            expired: none,
            malformed: none,
            told_until: Time::ZERO,
            refused: none,
        }
    }

    /// Whether the host may be sent another error at `now`.
    fn may_be_told(&mut self, now: Time) -> bool {
        let until = self.told_until.max(now) + ERROR_EVERY;
        let may = until.since(now) <= ERROR_EVERY * ERRORS_AT_ONCE;
        if may {
            self.told_until = until;
        }
        may
    }

    /// Delivers a packet to the host.
    fn hand_over(&mut self, packet: &[u8]) -> bool {
        let tun = self.namespace.tun.as_mut();
        let taken = tun.is_some_and(|tun| tun.write(packet).is_ok());
        let count = if taken { &mut self.received } else { &mut self.refused };
        count.add(packet.len());
        taken
    }

    /// Reads the next packet from the host, and returns its length, or `None` if there is none. A
    /// device that has been deleted is dropped, since it would stay readable forever.
    fn take(&mut self, packet: &mut [u8]) -> Option<usize> {
        match self.namespace.tun.as_mut()?.read(packet) {
            Ok(length) => Some(length),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                None
            }
            Err(_) => {
                self.namespace.tun = None;
                say(&format!(
                    "impair: host {} has lost its device {DEVICE}: what goes there is refused; \
                     start impair again for a new one",
                    self.name
                ));
                None
            }
        }
    }
}

impl Devices {
    pub fn new(devices: Vec<Device>, captures: Captures, layout: Layout) -> Devices {
        Devices { devices, captures, layout, rx: vec![0; MAX_PACKET] }
    }

    /// Decides the fate of a packet that host `n` sends.
    fn accept(&mut self, n: usize, length: usize, clock: &Clock, net: &mut Network) {
        let device = &mut self.devices[n];
        let packet = &self.rx[..length];
        let Some(head) = Head::parse(packet) else { return device.malformed.add(length) };
        let now = clock.now();
        let from = self.layout.find(head.from).filter(|from| self.layout.host_of[*from] == n);
        let Some(from) = from else { return device.foreign.add(length) };
        self.captures.packet(n, now, packet);
        let to = self.layout.find(head.to);
        let Some((to, way)) = to.and_then(|to| Some((to, self.layout.way(from, to)?))) else {
            return device.unroutable.add(length);
        };
        let HostPath { routers, mtu, narrow, .. } = way;
        let (why, count) = if head.hops <= routers {
            (RejectedPacket::Expired, &mut device.expired)
        } else if length > usize::from(mtu) {
            (RejectedPacket::TooBig(mtu), &mut device.too_big)
        } else {
            device.sent.add(length);
            let endpoint =
                |interface: usize, port| Endpoint { vertex: VertexId(interface as u32), port };
            let packet = Packet {
                from: endpoint(from, head.ports.0),
                to: endpoint(to, head.ports.1),
                protocol: head.protocol,
                tos: head.tos,
                class: Class::default(),
                bytes: length as u32,
                payload: packet,
            };
            return net.send(now, &packet);
        };
        count.add(length);
        // A packet may have expired at another router; which one does not matter here.
        if let Some(said) = refusal(router_addresses(narrow as usize), packet, &head, why)
            && device.may_be_told(now)
            && device.hand_over(&said)
        {
            self.captures.packet(n, now, &said);
        }
    }
}

impl Ports for Devices {
    type Tap = ();

    fn receive(&mut self, n: usize, clock: &Clock, net: &mut Network) {
        for _ in 0..BATCH {
            let Some(length) = self.devices[n].take(&mut self.rx) else { return };
            self.accept(n, length, clock, net);
        }
    }

    fn deliver(&mut self, header: &Header, packet: &mut [u8]) {
        let [from, to] = [header.from, header.to].map(|end| end.vertex.0 as usize);
        let routers = self.layout.way(from, to).map_or(0, |way| way.routers);
        pass_on(packet, header.tos, routers);
        let host = self.layout.host_of[to];
        if self.devices[host].hand_over(packet) {
            self.captures.now(host, packet);
        }
    }
}
