//! The media ports of a gateway's calls: a packet that arrives at one leg of a stream leaves at the
//! other, by UDP or over the overlay. The packet thread owns the ports; the gateway's thread
//! controls them with [`Command`]s.

use super::mmsg::RxMeta;
use super::reports::{Reports, Said};
use crate::addresses;
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use trunkline_base::Time;
use trunkline_gateway::reception::{Counts, Reception};
use trunkline_gateway::{Arrival, Latch, Latched, Peer, Places, Relay, Remote, is_media};
use trunkline_media::rtcp;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::route::ForwardingTable;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{RefusalReason, ToClient};
use trunkline_overlay::wire::NodeId;

/// Expedited forwarding (RFC 3246), in the upper six bits of the traffic class.
const EXPEDITED: i32 = 46 << 2;

/// Capacity of the command queue: some 500 calls that begin at once.
const COMMANDS: usize = 4_096;

/// Offsets of the two ports of a pair: RTP has the first, RTCP the second.
const BOTH: [u16; 2] = [0, 1];

/// Command from the gateway to the packet thread.
pub enum Command {
    /// A pair of ports is opened.
    Open {
        /// First port of the pair.
        port: u16,
        /// Sockets of both ports.
        sockets: [Socket; 2],
    },
    /// A pair of ports is connected to a new counterpart.
    Relay {
        /// First port of the pair.
        port: u16,
        /// New counterpart of the pair of ports.
        relay: Box<Relay>,
    },
    /// A pair of ports is closed.
    Close {
        /// First port of the pair.
        port: u16,
        /// Receives the pair's final counts.
        tx: Box<dyn FnOnce(LegCounts) + Send>,
    },
    /// Requests a snapshot of all media.
    Look(Box<dyn FnOnce(MediaSnapshot) + Send>),
    /// Requests the current routes.
    Routes(Box<dyn FnOnce(RouteView) + Send>),
}

/// Media state as the packet thread sees it.
pub struct MediaSnapshot {
    /// Counts of each leg so far.
    pub legs: Vec<LegCounts>,
    /// Counts of all legs together.
    pub stats: MediaStats,
    /// Whether the node is draining and accepts no more sessions.
    pub is_draining: bool,
}

/// Routes to other nodes.
pub struct RouteView {
    /// First hop to each node.
    pub table: Arc<ForwardingTable>,
    /// The links that are up. A route may use one that is down if there is no other.
    pub up: Vec<LinkId>,
    /// Nodes to which a trunk takes no new calls.
    pub full: Vec<NodeId>,
}

/// Reception counts of a leg.
#[derive(Clone, Copy, Debug)]
pub struct LegCounts {
    /// First port of the leg.
    pub port: u16,
    /// Reception counts of the leg's stream.
    pub counts: Counts,
    /// Jitter according to RFC 3550 (6.4.1); `None` if the payload's clock rate is unknown.
    pub jitter: Option<std::time::Duration>,
    /// Clock rate of its payload, in Hz; `None` if unknown.
    pub clock_rate: Option<u32>,
    /// Last reception report (RTCP) from the leg's end.
    pub said: Option<Said>,
    /// Datagrams from an address other than the signalled one.
    pub unexpected_source: u64,
    /// Datagrams that didn't leave at this leg, because they are larger than the overlay carries.
    pub too_large: u64,
    /// Whether the leg's packets arrive over the overlay.
    pub is_over: bool,
}

/// Sends media commands to the packet thread.
#[derive(Clone)]
pub struct Sender {
    commands: SyncSender<Command>,
    wake: Arc<EventFd>,
}

impl Sender {
    /// Sends a command. Blocks while the command queue is full.
    pub fn send(&self, command: Command) {
        // If the packet thread has ended, the command no longer matters.
        let _ = self.commands.send(command);
        let _ = self.wake.write(1);
    }
}

/// Creates the command queue; `wake` wakes its receiver.
pub fn channel(wake: Arc<EventFd>) -> (Sender, Receiver<Command>) {
    let (commands, inbox) = sync_channel(COMMANDS);
    (Sender { commands, wake }, inbox)
}

/// Binds a pair of sockets at `address`: `port` and the next one.
pub fn bind(address: IpAddr, port: u16) -> io::Result<[Socket; 2]> {
    let one = |port| -> io::Result<Socket> {
        let at = SocketAddr::new(address, port);
        let socket =
            Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        if address.is_ipv6() {
            socket.set_tclass_v6(EXPEDITED as u32)?;
            // `::` receives by IPv4, too.
            socket.set_only_v6(!address.is_unspecified())?;
        }
        if address.is_ipv4() || address.is_unspecified() {
            socket.set_tos_v4(EXPEDITED as u32)?;
        }
        addresses::bind(&socket, at)?;
        Ok(socket)
    };
    Ok([one(port)?, one(port + 1)?])
}

/// One leg of a stream and its sockets.
struct Leg {
    sockets: [Socket; 2],
    /// Whether its sockets are IPv6's, and address IPv4 hosts as such (RFC 4291, 2.5.5.2).
    is_v6: bool,
    /// Sessions that hold the virtual ports with the same numbers as this leg's ports.
    sessions: Option<[SessionId; 2]>,
    relay: Option<Relay>,
    /// Expected sources of the packets at the RTP and the RTCP port.
    latches: [Latch; 2],
    reception: Reception,
    reports: Reports,
    unexpected_source: u64,
    too_large: u64,
}

impl Leg {
    fn counts(&self, port: u16) -> LegCounts {
        LegCounts {
            port,
            counts: self.reception.counts(),
            jitter: self.reception.jitter(),
            clock_rate: self.reception.clock_rate(),
            said: self.reports.said(),
            unexpected_source: self.unexpected_source,
            too_large: self.too_large,
            is_over: self.is_over(),
        }
    }

    /// `to` as the sockets of this leg need it.
    fn mapped(&self, to: SocketAddr) -> SocketAddr {
        match to.ip() {
            IpAddr::V4(ip) if self.is_v6 => (ip.to_ipv6_mapped(), to.port()).into(),
            _ => to,
        }
    }

    /// The places that its latches have chosen.
    fn heard(&self) -> [Option<SocketAddr>; 2] {
        [self.latches[0].heard(), self.latches[1].heard()]
    }

    fn is_over(&self) -> bool {
        self.relay.as_ref().is_some_and(|r| matches!(r.remote, Remote::Overlay { .. }))
    }
}

impl Latched for Leg {
    fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    fn latches(&self) -> &[Latch; 2] {
        &self.latches
    }

    fn parts(&mut self) -> (Option<&Relay>, &mut [Latch; 2]) {
        (self.relay.as_ref(), &mut self.latches)
    }
}

/// Synchronization source of an RTP or RTCP packet, and the sequence number of RTP.
fn stream(bytes: &[u8]) -> (Option<u32>, Option<u16>) {
    let is_rtcp = rtcp::is_rtcp(bytes);
    let at = if is_rtcp { 4 } else { 8 };
    let is_rtp = bytes.first().is_some_and(|first| first >> 6 == 2);
    let ssrc = bytes.get(at..at + 4).filter(|_| is_rtp).and_then(|ssrc| ssrc.try_into().ok());
    let sequence = ssrc.filter(|_| !is_rtcp).map(|_| u16::from_be_bytes([bytes[2], bytes[3]]));
    (ssrc.map(u32::from_be_bytes), sequence)
}

/// Next step for a received packet.
pub enum Forward {
    /// The packet has been sent or dropped.
    Done,
    /// The packet is to be sent over the overlay.
    Overlay {
        /// Session that sends it.
        session: SessionId,
        /// Node that the packet is for.
        node: NodeId,
        /// Virtual port at that node.
        port: u16,
    },
}

/// Counts of all legs together.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaStats {
    /// Datagrams that arrived by UDP or over the overlay and were sent on.
    pub relayed: u64,
    /// Datagrams from an address other than the signalled one.
    pub unexpected_source: u64,
    /// Datagrams that are larger than the overlay carries.
    pub too_large: u64,
    /// Datagrams that arrived before their destination was known, or that have none.
    pub unwanted: u64,
    /// Datagrams that the kernel did not accept.
    pub unsent: u64,
}

/// All legs that are open.
#[derive(Default)]
pub struct Legs {
    all: BTreeMap<u16, Leg>,
    /// For each session, the virtual port that it holds for a leg.
    virtual_ports: Vec<Option<u16>>,
    /// The sources that legs are latched to.
    places: Places,
    /// Counts of all legs together.
    pub stats: MediaStats,
}

impl Legs {
    /// Adds a leg that is not connected yet.
    pub fn open(&mut self, port: u16, sockets: [Socket; 2]) {
        let is_v6 = sockets[0].domain().is_ok_and(|domain| domain == Domain::IPV6);
        let leg = Leg {
            sockets,
            is_v6,
            sessions: None,
            relay: None,
            latches: [Latch::default(); 2],
            reception: Reception::default(),
            reports: Reports::default(),
            unexpected_source: 0,
            too_large: 0,
        };
        self.all.insert(port, leg);
    }

    /// Both sockets of a leg.
    pub fn sockets(&self, port: u16) -> Option<&[Socket; 2]> {
        self.all.get(&port).map(|leg| &leg.sockets)
    }

    /// Connects a leg. Returns true if it needs virtual ports from now on, false if it no longer
    /// does, and `None` if nothing changes.
    pub fn relay(&mut self, port: u16, relay: Relay) -> Option<bool> {
        let leg = self.all.get_mut(&port)?;
        let before = leg.relay.as_ref().map_or((Remote::Nobody, 0), |r| (r.remote, r.described));
        let heard = leg.heard();
        for (kind, latch) in leg.latches.iter_mut().enumerate() {
            if before != (relay.remote, relay.described) {
                latch.describe(kind, &before.0, &Peer::of(&relay));
            }
        }
        leg.reception.set_rtp(relay.is_rtp);
        leg.reception.set_clocks(relay.clocks);
        let wants = relay.told || matches!(relay.remote, Remote::Overlay { .. });
        leg.relay = Some(relay);
        let changes = (wants != leg.sessions.is_some()).then_some(wants);
        self.places.release(&self.all, port, heard);
        changes
    }

    /// Sets the sessions that hold a leg's virtual ports.
    pub fn set_sessions(
        &mut self,
        port: u16,
        sessions: Option<[SessionId; 2]>,
    ) -> Option<[SessionId; 2]> {
        std::mem::replace(&mut self.all.get_mut(&port)?.sessions, sessions)
    }

    /// Marks session `id` as the gateway's holder of this virtual port, or clears the mark.
    pub fn hold(&mut self, id: SessionId, port: Option<u16>) {
        let i = id.0 as usize;
        if self.virtual_ports.len() <= i {
            self.virtual_ports.resize(i + 1, None);
        }
        self.virtual_ports[i] = port;
    }

    /// Virtual port that session `id` holds for a leg, if it holds one.
    pub fn held_by(&self, id: SessionId) -> Option<u16> {
        self.virtual_ports.get(id.0 as usize).copied().flatten()
    }

    /// Removes a leg. Returns its counts and the sessions of its virtual ports, if any, which the
    /// caller must close.
    pub fn close(&mut self, port: u16) -> Option<(LegCounts, Option<[SessionId; 2]>)> {
        let leg = self.all.remove(&port)?;
        self.places.release(&self.all, port, leg.heard());
        Some((leg.counts(port), leg.sessions))
    }

    /// Counts of each leg so far.
    pub fn counts(&self) -> Vec<LegCounts> {
        self.all.iter().map(|(port, leg)| leg.counts(*port)).collect()
    }

    /// Processes a datagram that arrived by UDP at `port`, the first or second of a pair.
    pub fn take_udp(&mut self, port: u16, meta: &RxMeta, at: Time, bytes: &[u8]) -> Forward {
        let (first, kind) = (port & !1, usize::from(port & 1));
        let Some(leg) = self.all.get(&first) else { return Forward::Done };
        // Checked first, so that a datagram that is not media can't set the phone's address.
        let is_rtp = leg.relay.as_ref().is_some_and(|relay| relay.is_rtp);
        if is_rtp && !is_media(bytes) {
            self.stats.unwanted += 1;
            return Forward::Done;
        }
        let (ssrc, sequence) = if is_rtp { stream(bytes) } else { (None, None) };
        let arrival = Arrival { at, from: meta.from, kind, ssrc, sequence };
        let is_its = self.places.admits(&mut self.all, first, &arrival);
        let Some(leg) = self.all.get_mut(&first) else { return Forward::Done };
        if !is_its {
            leg.unexpected_source += 1;
            self.stats.unexpected_source += 1;
            return Forward::Done;
        }
        leg.reception.note(at, bytes, false);
        let onto = leg.relay.as_ref().map(|relay| relay.onto);
        self.read_report(at, first, onto, bytes);
        self.out(onto, kind, bytes)
    }

    /// Processes a node's message for the virtual port `port`: a packet leaves at the stream's
    /// other leg. True if it has been sent.
    pub fn take_overlay(&mut self, now: Time, port: u16, head: &[u8], payload: &[u8]) -> bool {
        let (first, kind) = (port & !1, usize::from(port & 1));
        let Some(leg) = self.all.get_mut(&first) else { return true };
        let (from, sender, recovered) = match ToClient::parse(head) {
            Ok(ToClient::Received { from, port, recovered, .. }) => (from, port, recovered),
            Ok(ToClient::Error { refusal: RefusalReason::TooLarge, .. }) => {
                leg.too_large += 1;
                self.stats.too_large += 1;
                return true;
            }
            // The node is queried directly for the state of bindings.
            _ => return true,
        };
        let is_its = leg.relay.as_ref().is_some_and(|relay| match relay.remote {
            Remote::Overlay { node, port } => {
                node == from && sender == port.saturating_add(BOTH[kind])
            }
            _ => false,
        });
        if !is_its {
            leg.unexpected_source += 1;
            self.stats.unexpected_source += 1;
            return true;
        }
        leg.reception.note(now, payload, recovered);
        let onto = leg.relay.as_ref().map(|relay| relay.onto);
        self.read_report(now, first, onto, payload);
        // A packet that arrived over the overlay does not leave over it again.
        matches!(self.out(onto, kind, payload), Forward::Done)
    }

    /// Reads a packet from leg `first` that leaves at leg `onto`, if it is RTCP.
    fn read_report(&mut self, now: Time, first: u16, onto: Option<u16>, bytes: &[u8]) {
        if !rtcp::is_rtcp(bytes) {
            return;
        }
        let other = onto.and_then(|port| self.all.get(&port));
        let of = other.map_or(0, |other| other.reception.counts().expected);
        let Some(leg) = self.all.get_mut(&first) else { return };
        if !leg.relay.as_ref().is_some_and(|relay| relay.is_rtp && !relay.is_encrypted) {
            return;
        }
        let Ok(control) = rtcp::parse(bytes) else { return };
        leg.reports.comes(now, &control, of);
        if let Some(other) = onto.and_then(|port| self.all.get_mut(&port)) {
            other.reports.goes(now, &control);
        }
    }

    /// Sends a packet from one leg out at the other.
    fn out(&mut self, onto: Option<u16>, kind: usize, bytes: &[u8]) -> Forward {
        let leg = onto.and_then(|port| self.all.get(&port));
        let Some((leg, relay)) = leg.and_then(|leg| Some((leg, leg.relay.as_ref()?))) else {
            self.stats.unwanted += 1;
            return Forward::Done;
        };
        match relay.remote {
            Remote::Overlay { node, port } => {
                let Some(sessions) = leg.sessions else {
                    self.stats.unwanted += 1;
                    return Forward::Done;
                };
                self.stats.relayed += 1;
                let port = port.saturating_add(BOTH[kind]);
                Forward::Overlay { session: sessions[kind], node, port }
            }
            Remote::Udp { rtp, rtcp, .. } => {
                let said = if kind == 0 { rtp } else { rtcp };
                let heard = leg.latches[kind].heard();
                let to = if relay.network.symmetric { heard.or(said) } else { said.or(heard) };
                let Some(to) = to else {
                    self.stats.unwanted += 1;
                    return Forward::Done;
                };
                match leg.sockets[kind].send_to(bytes, &leg.mapped(to).into()) {
                    Ok(_) => self.stats.relayed += 1,
                    // A refusal concerns an earlier packet, and this call has cleared it.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(_) => self.stats.unsent += 1,
                }
                Forward::Done
            }
            Remote::Nobody => {
                self.stats.unwanted += 1;
                Forward::Done
            }
        }
    }
}

/// Iterates over both sockets of a leg and their ports, to watch them.
pub fn each(sockets: &[Socket; 2], port: u16) -> impl Iterator<Item = (BorrowedFd<'_>, u16)> {
    sockets.iter().zip(BOTH).map(move |(socket, kind)| (socket.as_fd(), port + kind))
}
