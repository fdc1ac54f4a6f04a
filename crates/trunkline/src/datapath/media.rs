//! The media ports of a gateway's calls: what comes at one leg of a stream leaves at
//! the other, by UDP or over the overlay. The packet thread owns them; who decides on
//! them is on another thread, and says so by [`Command`]s.

use super::mmsg::RxMeta;
use super::reports::{Reports, Said};
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
use trunkline_gateway::{Latch, Relay, Remote, is_media};
use trunkline_media::rtcp;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::route::ForwardingTable;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::ToClient;
use trunkline_overlay::wire::NodeId;

/// Expedited forwarding (RFC 3246), in the upper six bits of the traffic class.
const EXPEDITED: i32 = 46 << 2;

/// Commands on their way: some 500 calls that begin at once.
const COMMANDS: usize = 4_096;

/// RTP has the first port of a pair, RTCP the second.
const BOTH: [u16; 2] = [0, 1];

/// What who decides says to the packet thread.
pub enum Command {
    /// A pair of ports is there.
    Open {
        /// The first port of the pair.
        port: u16,
        /// The sockets of both ports.
        sockets: [Socket; 2],
    },
    /// A pair of ports is joined to something else than before.
    Relay {
        /// The first port of the pair.
        port: u16,
        /// What the pair is joined to.
        relay: Relay,
    },
    /// A pair of ports is over.
    Close {
        /// The first port of the pair.
        port: u16,
        /// Is told what has come to it in all.
        tx: Box<dyn FnOnce(LegCounts) + Send>,
    },
    /// Tell this what there is.
    Look(Box<dyn FnOnce(MediaSnapshot) + Send>),
    /// Tell this which ways there are.
    Routes(Box<dyn FnOnce(RouteView) + Send>),
}

/// What the packet thread sees.
pub struct MediaSnapshot {
    /// What has come to each leg so far.
    pub legs: Vec<LegCounts>,
    /// What all legs have counted together.
    pub stats: MediaStats,
    /// Whether the node takes no more sessions.
    pub is_draining: bool,
}

/// The ways to other nodes.
pub struct RouteView {
    /// The first hop to each node.
    pub table: Arc<ForwardingTable>,
    /// The links that are up: a way may lead over one that isn't, for want of another.
    pub up: Vec<LinkId>,
}

/// What has come to a leg.
#[derive(Clone, Copy, Debug)]
pub struct LegCounts {
    /// The first port of the leg.
    pub port: u16,
    /// What has come of the leg's stream.
    pub counts: Counts,
    /// The jitter of RFC 3550 (6.4.1), where the payload's clock is known.
    pub jitter: Option<std::time::Duration>,
    /// The clock of its payload, in ticks a second, where it is known.
    pub clock_rate: Option<u32>,
    /// What the leg's end has said of what it hears.
    pub said: Option<Said>,
    /// Datagrams from elsewhere than signalled.
    pub unexpected_source: u64,
    /// Whether the leg's packets come over the overlay.
    pub is_over: bool,
}

/// How to speak to the packet thread of media.
#[derive(Clone)]
pub struct Sender {
    commands: SyncSender<Command>,
    wake: Arc<EventFd>,
}

impl Sender {
    /// Waits if thousands of commands wait already.
    pub fn send(&self, command: Command) {
        // Without a packet thread all is over anyway.
        let _ = self.commands.send(command);
        let _ = self.wake.write(1);
    }
}

/// A way for commands, and their other end.
pub fn channel(wake: Arc<EventFd>) -> (Sender, Receiver<Command>) {
    let (commands, inbox) = sync_channel(COMMANDS);
    (Sender { commands, wake }, inbox)
}

/// A pair of sockets at `address`, `port` and the next.
pub fn bind(address: IpAddr, port: u16) -> io::Result<[Socket; 2]> {
    let one = |port| -> io::Result<Socket> {
        let at = SocketAddr::new(address, port);
        let socket =
            Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        match address {
            IpAddr::V4(_) => socket.set_tos_v4(EXPEDITED as u32)?,
            IpAddr::V6(_) => socket.set_tclass_v6(EXPEDITED as u32)?,
        }
        socket.bind(&at.into())?;
        Ok(socket)
    };
    Ok([one(port)?, one(port + 1)?])
}

/// One leg of a stream, with its sockets.
struct Leg {
    sockets: [Socket; 2],
    /// By which virtual ports of the same numbers it is told to others.
    sessions: Option<[SessionId; 2]>,
    relay: Option<Relay>,
    /// From where the RTP and the RTCP port take packets.
    latches: [Latch; 2],
    reception: Reception,
    reports: Reports,
    unexpected_source: u64,
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
            is_over: self.relay.is_some_and(|r| matches!(r.remote, Remote::Overlay { .. })),
        }
    }

    /// Whether a datagram from `from` is of who is signalled.
    fn admits(&mut self, now: Time, kind: usize, from: SocketAddr) -> bool {
        let Some(relay) = &self.relay else { return false };
        self.latches[kind].admits(now, from, kind, &relay.remote)
    }
}

/// Where a packet goes that has come.
pub enum Forward {
    /// It has gone, or nobody wants it.
    Done,
    /// It goes over the overlay.
    Overlay {
        /// The session that sends it.
        session: SessionId,
        /// The node that it is for.
        node: NodeId,
        /// The virtual port there.
        port: u16,
    },
}

/// What all legs count together.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaStats {
    /// Datagrams that came by UDP or over the overlay, and left again.
    pub relayed: u64,
    /// Datagrams from elsewhere than signalled.
    pub unexpected_source: u64,
    /// Datagrams that came before it was known where they go, or that no one wants.
    pub unwanted: u64,
    /// Datagrams that the kernel didn't take.
    pub unsent: u64,
}

/// The legs there are.
#[derive(Default)]
pub struct Legs {
    all: BTreeMap<u16, Leg>,
    /// By session: the virtual port that it holds for a leg.
    virtual_ports: Vec<Option<u16>>,
    /// What they have counted.
    pub stats: MediaStats,
}

impl Legs {
    /// Adds one, which nothing is known of.
    pub fn open(&mut self, port: u16, sockets: [Socket; 2]) {
        let leg = Leg {
            sockets,
            sessions: None,
            relay: None,
            latches: [Latch::default(); 2],
            reception: Reception::default(),
            reports: Reports::default(),
            unexpected_source: 0,
        };
        self.all.insert(port, leg);
    }

    /// The sockets of a leg.
    pub fn sockets(&self, port: u16) -> Option<&[Socket; 2]> {
        self.all.get(&port).map(|leg| &leg.sockets)
    }

    /// Joins a leg; true if it has virtual ports from now on, false if none any more.
    pub fn relay(&mut self, now: Time, port: u16, relay: Relay) -> Option<bool> {
        let leg = self.all.get_mut(&port)?;
        match leg.relay.replace(relay) {
            Some(before) if before.remote == relay.remote => {
                if before.described != relay.described {
                    leg.latches.iter_mut().for_each(|latch| latch.reopen(now));
                }
            }
            _ => leg.latches = [Latch::default(); 2],
        }
        leg.reception.set_clocks(relay.clocks);
        let wants = relay.told || matches!(relay.remote, Remote::Overlay { .. });
        (wants != leg.sessions.is_some()).then_some(wants)
    }

    /// The virtual ports of a leg: these, or none.
    pub fn set_sessions(
        &mut self,
        port: u16,
        sessions: Option<[SessionId; 2]>,
    ) -> Option<[SessionId; 2]> {
        std::mem::replace(&mut self.all.get_mut(&port)?.sessions, sessions)
    }

    /// Session `id` is the gateway's own from now on, with this virtual port; or no more.
    pub fn hold(&mut self, id: SessionId, port: Option<u16>) {
        let i = id.0 as usize;
        if self.virtual_ports.len() <= i {
            self.virtual_ports.resize(i + 1, None);
        }
        self.virtual_ports[i] = port;
    }

    /// The virtual port that session `id` holds for a leg, if it does.
    pub fn held_by(&self, id: SessionId) -> Option<u16> {
        self.virtual_ports.get(id.0 as usize).copied().flatten()
    }

    /// Takes a leg away: what came to it, and its virtual ports, if it had some, which
    /// are left to close.
    pub fn close(&mut self, port: u16) -> Option<(LegCounts, Option<[SessionId; 2]>)> {
        let leg = self.all.remove(&port)?;
        Some((leg.counts(port), leg.sessions))
    }

    /// What has come so far, of each.
    pub fn counts(&self) -> Vec<LegCounts> {
        self.all.iter().map(|(port, leg)| leg.counts(*port)).collect()
    }

    /// A datagram that came by UDP to `port`, the first or second of a pair.
    pub fn take_udp(&mut self, port: u16, meta: &RxMeta, at: Time, bytes: &[u8]) -> Forward {
        let (first, kind) = (port & !1, usize::from(port & 1));
        let Some(leg) = self.all.get_mut(&first) else { return Forward::Done };
        // First, lest what is no media says where the phone is.
        if leg.relay.is_some_and(|relay| relay.is_rtp) && !is_media(bytes) {
            self.stats.unwanted += 1;
            return Forward::Done;
        }
        if !leg.admits(at, kind, meta.from) {
            leg.unexpected_source += 1;
            self.stats.unexpected_source += 1;
            return Forward::Done;
        }
        leg.reception.note(at, bytes, false);
        let onto = leg.relay.map(|relay| relay.onto);
        self.read_report(at, first, onto, bytes);
        self.out(onto, kind, bytes)
    }

    /// A message of a node for the virtual port `port`: a packet leaves by the stream's
    /// other leg. True if it has gone.
    pub fn take_overlay(&mut self, now: Time, port: u16, head: &[u8], payload: &[u8]) -> bool {
        let Ok(ToClient::Received { from, port: sender, recovered, .. }) = ToClient::parse(head)
        else {
            // What it says of bindings is asked of the node itself.
            return true;
        };
        let (first, kind) = (port & !1, usize::from(port & 1));
        let Some(leg) = self.all.get_mut(&first) else { return true };
        let is_its = leg.relay.is_some_and(|relay| match relay.remote {
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
        let onto = leg.relay.map(|relay| relay.onto);
        self.read_report(now, first, onto, payload);
        // Over the overlay it came; over the overlay it doesn't go on.
        matches!(self.out(onto, kind, payload), Forward::Done)
    }

    /// Reads what came at leg `first` and goes out at leg `onto`, if it is RTCP.
    fn read_report(&mut self, now: Time, first: u16, onto: Option<u16>, bytes: &[u8]) {
        if !rtcp::is_rtcp(bytes) {
            return;
        }
        let other = onto.and_then(|port| self.all.get(&port));
        let of = other.map_or(0, |other| other.reception.counts().expected);
        let Some(leg) = self.all.get_mut(&first) else { return };
        if !leg.relay.is_some_and(|relay| relay.is_rtp && !relay.is_encrypted) {
            return;
        }
        let Ok(control) = rtcp::parse(bytes) else { return };
        leg.reports.comes(now, &control, of);
        if let Some(other) = onto.and_then(|port| self.all.get_mut(&port)) {
            other.reports.goes(now, &control);
        }
    }

    /// Sends what came at one leg out at the other.
    fn out(&mut self, onto: Option<u16>, kind: usize, bytes: &[u8]) -> Forward {
        let leg = onto.and_then(|port| self.all.get(&port));
        let Some((leg, relay)) = leg.and_then(|leg| Some((leg, leg.relay?))) else {
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
                let Some(to) = leg.latches[kind].heard().or(said) else {
                    self.stats.unwanted += 1;
                    return Forward::Done;
                };
                match leg.sockets[kind].send_to(bytes, &to.into()) {
                    Ok(_) => self.stats.relayed += 1,
                    // A refusal is of an earlier one, and has been read by this.
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

/// To watch both sockets of a leg.
pub fn each(sockets: &[Socket; 2], port: u16) -> impl Iterator<Item = (BorrowedFd<'_>, u16)> {
    sockets.iter().zip(BOTH).map(move |(socket, kind)| (socket.as_fd(), port + kind))
}
