//! The packet thread's work for a gateway's calls.

use super::super::media::{self, Command, Forward, LegCounts, MediaSnapshot, RouteView};
use super::super::mmsg::RxBatch;
use super::{PacketThread, token};
use crate::clock::{self, Stamps};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use socket2::Socket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_gateway::Relay;
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
use trunkline_overlay::session::{Client, SessionId};
use trunkline_overlay::wire::Service;

/// Commands executed before others have a turn.
const COMMANDS_PER_TURN: usize = 256;

/// State of a gateway's media in the packet thread.
pub(super) struct Media {
    pub inbox: Receiver<Command>,
    pub rx: RxBatch,
    /// Lifetime of a packet, in milliseconds.
    pub deadline_ms: u8,
}

impl PacketThread {
    /// Executes queued commands; true if more are waiting.
    pub(super) fn on_media_commands(&mut self) -> bool {
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.media.as_ref().and_then(|media| media.inbox.try_recv().ok())
            else {
                return false;
            };
            match command {
                Command::Open { port, sockets } => self.open_leg(port, sockets),
                Command::Relay { port, relay } => self.join_leg(port, *relay),
                Command::Close { port, tx: tell } => {
                    if let Some(counts) = self.close_leg(port) {
                        tell(counts);
                    }
                }
                Command::Routes(tell) => {
                    let node = self.node.node();
                    let up = node.links().filter(|(_, link)| link.monitor().is_up());
                    let up = up.map(|(id, _)| id).collect();
                    let full = node.full_trunks(clock::now()).collect();
                    tell(RouteView { table: Arc::clone(node.table()), up, full });
                }
                Command::Look(tell) => {
                    let (node, legs) = (self.node.node(), &self.carriers.legs);
                    tell(MediaSnapshot {
                        legs: legs.counts(),
                        stats: legs.stats,
                        is_draining: node.is_draining(),
                    });
                }
            }
        }
        true
    }

    fn open_leg(&mut self, port: u16, sockets: [Socket; 2]) {
        for (socket, port) in media::each(&sockets, port) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token::MEDIA | u64::from(port));
            if let Err(error) = self.epoll.add(socket, event) {
                let what = format!("cannot receive a call's media on port {port}: {error}");
                self.limited.media.warn(clock::now(), &what);
            }
        }
        self.carriers.legs.open(port, sockets);
    }

    fn join_leg(&mut self, port: u16, relay: Relay) {
        match self.carriers.legs.relay(port, relay) {
            Some(true) => {
                let first = self.bind_virtual(port);
                let second = first.and_then(|_| self.bind_virtual(port + 1));
                if let (Some(first), Some(second)) = (first, second) {
                    self.carriers.legs.set_sessions(port, Some([first, second]));
                } else {
                    first.into_iter().for_each(|id| self.close_virtual(id));
                    let what = format!(
                        "a call's media can't use the overlay: virtual port {port} or the \
                         next is an application's, or as many sessions are open as [node] \
                         max_sessions allows"
                    );
                    self.limited.media.warn(clock::now(), &what);
                }
            }
            Some(false) => {
                let sessions = self.carriers.legs.set_sessions(port, None);
                sessions.into_iter().flatten().for_each(|id| self.close_virtual(id));
            }
            None => {}
        }
    }

    fn close_leg(&mut self, port: u16) -> Option<LegCounts> {
        if let Some(sockets) = self.carriers.legs.sockets(port) {
            for socket in sockets {
                let _ = self.epoll.delete(socket.as_fd());
            }
        }
        let (counts, sessions) = self.carriers.legs.close(port)?;
        sessions.into_iter().flatten().for_each(|id| self.close_virtual(id));
        Some(counts)
    }

    /// Opens a session of the gateway that holds virtual port `port`.
    fn bind_virtual(&mut self, port: u16) -> Option<SessionId> {
        let id = self.node.session_open_for(Client::Gateway)?;
        self.carriers.legs.hold(id, Some(port));
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        ToNode::Bind { version: SESSION_VERSION, port }.emit_head(&mut w).ok()?;
        self.node.session_recv(clock::now(), id, w.written(), &mut self.carriers);
        if self.node.node().session_port(id) == Some(port) {
            return Some(id);
        }
        self.close_virtual(id);
        None
    }

    fn close_virtual(&mut self, id: SessionId) {
        self.carriers.legs.hold(id, None);
        self.node.session_close(clock::now(), id);
    }

    /// Reads from a leg's socket that is readable.
    pub(super) fn on_media(&mut self, port: u16, stamps: &Stamps) {
        let now = clock::now();
        let Some(sockets) = self.carriers.legs.sockets(port & !1) else { return };
        let socket = &sockets[usize::from(port & 1)];
        let Some(Media { rx, deadline_ms, .. }) = &mut self.media else { return };
        // This reads and clears an ICMP error of an earlier send.
        if rx.recv(socket.as_fd()).is_err() {
            return;
        }
        let (node, carriers, message) = (&mut self.node, &mut self.carriers, &mut self.message);
        for (meta, bytes) in rx.iter_mut() {
            if meta.truncated {
                continue;
            }
            let at = meta.stamp.map_or(now, |s| stamps.place(s, Time::ZERO, now));
            let way = carriers.legs.take_udp(port, &meta, at, bytes);
            let Forward::Overlay { session, node: to, port } = way else { continue };
            let send = ToNode::Send {
                service: Service::RealTime,
                deadline_ms: *deadline_ms,
                to,
                port,
                payload: &[],
            };
            let mut w = Writer::new(message);
            let fits = send.emit_head(&mut w).and_then(|()| w.bytes(bytes));
            if fits.is_ok() {
                let n = w.len();
                node.session_recv(at, session, &message[..n], carriers);
            }
        }
    }
}
