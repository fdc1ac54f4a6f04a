//! Listeners at link-local addresses, whose interface may be deleted and come back with another index.

use super::uplinks::Uplinks;
use super::{PacketThread, token};
use crate::datapath::udp::Udp;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::io;
use std::net::SocketAddr;
use trunkline_overlay::arena::TxArena;

impl PacketThread {
    /// Listens again at addresses whose interface has come back.
    pub(super) fn listen_again(&mut self) {
        let mut moved = false;
        for i in 0..self.udp.len() {
            let Some(address) = self.udp[i].moved_to() else { continue };
            match self.listen_at(i, address) {
                Ok(()) => tracing::info!(%address, "the interface is back: listening there again"),
                Err(error) => tracing::error!(
                    %address,
                    %error,
                    "cannot listen at the interface, which has come back: restart the node"
                ),
            }
            moved = true;
        }
        if moved {
            // Links of the former sockets have none until they are looked up.
            self.look_up_all();
            while self.has_lookups() {
                self.assign_uplinks();
            }
        }
    }

    /// Replaces listener `i` by one at `address`.
    fn listen_at(&mut self, i: usize, address: SocketAddr) -> io::Result<()> {
        let mut udp = Udp::bind(address, self.udp[i].offloads())?;
        // Copies of the former socket may stay open, so that epoll would not forget it.
        self.epoll.delete(&self.udp[i])?;
        self.epoll.add(&udp, EpollEvent::new(EpollFlags::EPOLLIN, token::UDP | i as u64))?;
        std::mem::swap(&mut self.udp[i], &mut udp);
        self.udp[i].replace(udp);
        self.uplinks.replace(i, &self.udp[i], (&self.epoll, &mut self.arena))
    }
}

impl Uplinks {
    /// Closes the uplinks of listener `i`, and opens that of the socket which has taken its place.
    fn replace(
        &mut self,
        i: usize,
        socket: &Udp,
        (epoll, arena): (&Epoll, &mut TxArena),
    ) -> io::Result<()> {
        self.close_all_of(i, epoll);
        self.listeners[i] = socket.local_addr()?;
        self.open_first(i, socket.uplink()?, arena);
        Ok(())
    }
}
