//! Real UDP traffic through the network: a pair of sockets for each link.

use std::net::SocketAddr;

use trunkline_base::Time;
use trunkline_base::link_model::Count;
use trunkline_net::{Class, DirectionId, Endpoint, Header, Network, Packet, Protocol, VertexId};

use super::Error;
use super::clock::Clock;
use super::config::{Config, SIDES};
use super::pump::{BATCH, Ports, Pump, VALID, cpu_seconds};
use super::report::{DirectionReport, LinkReport, Report};
use super::socket::{Datagram, RxBuffer, SLOT, Socket};
use super::stop::{Reread, Stop};

/// All links. Port `2k + s` is side `s` of link `k`, and datagrams that arrive there leave by the
/// other port of the link. Each port is a host of the network, and its number is also that of the
/// direction that begins there.
pub struct Relay {
    pump: Pump<Sockets, Config>,
}

/// The sockets of all links.
struct Sockets {
    ports: Vec<Port>,
    rx: RxBuffer,
}

/// A socket, the node it faces, and the direction that begins there.
#[derive(Debug)]
struct Port {
    socket: Socket,
    peer: Option<SocketAddr>,
    /// Length of the IP and UDP headers of each datagram, in bytes.
    header: usize,
    sent: Count,
    send_errors: Count,
    foreign: Count,
    oversize: Count,
    receive_errors: u64,
}

impl Relay {
    /// Binds every socket. `stop` signals the end of [`Relay::run`], and `reread` a change of the
    /// links.
    ///
    /// # Errors
    ///
    /// The first address that cannot be bound, or a system call that failed.
    pub fn bind(
        config: Config,
        stop: Stop,
        reread: Option<Reread<Config>>,
        is_punctual: bool,
    ) -> Result<Relay, Error> {
        let sockets = Sockets { ports: bind_ports(&config)?, rx: RxBuffer::new() };
        let net = network(&config);
        let pump = Pump::new((sockets, net, config), stop, reread, is_punctual)?;
        for (k, port) in pump.ports.ports.iter().enumerate() {
            pump.watch(&port.socket, k)?;
        }
        Ok(Relay { pump })
    }

    /// Bound address of each side, needed if the system chose the port.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &'static str, SocketAddr)> {
        self.pump.ports.ports.iter().enumerate().filter_map(|(k, port)| {
            let addr = port.socket.local_addr().ok()?;
            Some((self.pump.setup.links[k / 2].name.as_str(), SIDES[k % 2], addr))
        })
    }

    /// Forwards datagrams until stopped, like [`Pump::run`].
    pub fn run(&mut self) -> Result<(), Error> {
        self.pump.run()
    }

    /// Ledger of the run so far.
    pub fn report(&self) -> Report {
        let pump = &self.pump;
        let direction = |k: usize| pump.ports.ports[k].report(&pump.net, DirectionId(k as u32));
        Report {
            seconds: pump.seconds(),
            cpu_seconds: cpu_seconds(),
            lateness_us: pump.lateness(),
            links: (pump.setup.links.iter().enumerate())
                .map(|(k, link)| LinkReport {
                    name: link.name.clone(),
                    forward: direction(2 * k),
                    reverse: direction(2 * k + 1),
                })
                .collect(),
        }
    }
}

impl Ports for Sockets {
    type Tap = ();

    fn receive(&mut self, k: usize, clock: &Clock, net: &mut Network) {
        for _ in 0..BATCH {
            let port = &mut self.ports[k];
            let datagram = match port.socket.recv(&mut self.rx) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return,
                Err(_) => {
                    port.receive_errors += 1;
                    return;
                }
            };
            // The delay counts from the arrival, not from the time of reading.
            let arrived = datagram.stamp.map_or_else(|| clock.now(), |s| clock.place(s));
            port.accept(k, arrived, &datagram, net);
        }
    }

    fn deliver(&mut self, header: &Header, bytes: &mut [u8]) {
        let out = &mut self.ports[header.to.vertex.0 as usize];
        let sent = out.peer.is_some_and(|peer| out.socket.send(bytes, header.tos, peer).is_ok());
        let port = &mut self.ports[header.from.vertex.0 as usize];
        let count = if sent { &mut port.sent } else { &mut port.send_errors };
        count.add(header.bytes as usize);
    }
}

impl Port {
    /// Sends an arrived datagram into the network, or counts the reason why not.
    fn accept(&mut self, k: usize, arrived: Time, datagram: &Datagram<'_>, net: &mut Network) {
        let size = datagram.bytes.len() + self.header;
        let peer = *self.peer.get_or_insert(datagram.source);
        if !same(peer, datagram.source) {
            return self.foreign.add(size);
        }
        if datagram.truncated {
            return self.oversize.add(size);
        }
        let end = |k: usize| Endpoint { vertex: VertexId(k as u32), port: 0 };
        net.send(
            arrived,
            &Packet {
                from: end(k),
                to: end(k ^ 1),
                protocol: Protocol::UDP,
                tos: datagram.tos,
                class: Class::default(),
                bytes: size as u32,
                payload: datagram.bytes,
            },
        );
    }

    fn report(&self, net: &Network, direction: DirectionId) -> DirectionReport {
        let ledger = net.ledger(direction);
        let model = net.decided(direction).unwrap_or_default();
        DirectionReport {
            offered: ledger.offered.into(),
            delivered: self.sent.into(),
            lost: ledger.lost.into(),
            queue_dropped: ledger.queue_dropped.into(),
            early_dropped: model.early_dropped.into(),
            marked: ledger.marked.into(),
            pool_dropped: ledger.no_room.into(),
            send_errors: self.send_errors.into(),
            in_flight: ledger.under_way().into(),
            foreign: self.foreign.into(),
            oversize: self.oversize.into(),
            kernel_dropped: self.socket.kernel_drops(),
            receive_errors: self.receive_errors,
        }
    }
}

/// Builds the modelled network, without packets in flight.
fn network(config: &Config) -> Network {
    let mut net = Network::new(config.seed);
    let buffer = usize::try_from(config.buffer).unwrap_or(usize::MAX);
    net.set_limit((buffer / SLOT).max(1));
    net.set_payload_memory(SLOT);
    for link in &config.links {
        let (a, b) = (net.host(), net.host());
        let [forward, reverse] = link.directions.each_ref().map(|d| d.model.clone());
        // The reverse direction has the next stream.
        let stream = link.directions[0].stream;
        net.connect_streams(a, b, forward, reverse, stream).expect(VALID);
    }
    net
}

/// Binds one port per side of each link.
fn bind_ports(config: &Config) -> Result<Vec<Port>, Error> {
    let mut ports = Vec::new();
    for link in &config.links {
        for (s, end) in link.ends.iter().enumerate() {
            let socket = Socket::bind(end.listen).map_err(|source| Error::Bind {
                link: link.name.clone(),
                side: SIDES[s],
                addr: end.listen,
                source,
            })?;
            ports.push(Port {
                socket,
                peer: end.peer,
                // Header lengths without options (RFC 791, RFC 8200, RFC 768).
                header: if end.listen.is_ipv4() { 20 + 8 } else { 40 + 8 },
                sent: Count::default(),
                send_errors: Count::default(),
                foreign: Count::default(),
                oversize: Count::default(),
                receive_errors: 0,
            });
        }
    }
    Ok(ports)
}

/// Whether two addresses are equal. An IPv4 sender reaches a `[::]` socket as `::ffff:a.b.c.d`.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a == b || (a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical())
}

#[cfg(test)]
mod tests;
