use crate::datapath::mmsg::{BATCH, TxBatch, TxItem};
use arrayvec::ArrayVec;
use socket2::Socket;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use trunkline_overlay::session::remote::MAX_DATAGRAM;

/// Datagrams to clients, collected in one wake-up and sent in one call.
pub struct Outbox {
    socket: Socket,
    tx: TxBatch,
    bytes: Box<[u8]>,
    items: ArrayVec<Item, BATCH>,
}

struct Item {
    to: SocketAddr,
    dscp: u8,
    len: usize,
}

impl Outbox {
    /// An outbox whose datagrams leave by `socket`.
    pub fn new(socket: Socket) -> Outbox {
        let bytes = vec![0; BATCH * MAX_DATAGRAM].into();
        Outbox { socket, tx: TxBatch::new(), bytes, items: ArrayVec::new() }
    }

    /// Adds a datagram of at most [`MAX_DATAGRAM`] bytes. When there is no room
    /// for it, all before it are sent first; how many the kernel refused.
    pub fn post(&mut self, to: SocketAddr, dscp: u8, parts: [&[u8]; 3]) -> u64 {
        let refused = if self.items.is_full() { self.flush() } else { 0 };
        let slot = self.items.len() * MAX_DATAGRAM;
        let mut len = 0;
        for part in parts {
            let Some(room) = self.bytes.get_mut(slot + len..slot + len + part.len()) else {
                return refused + 1;
            };
            room.copy_from_slice(part);
            len += part.len();
        }
        debug_assert!(len <= MAX_DATAGRAM, "the last slot ends the memory");
        self.items.push(Item { to, dscp, len });
        refused
    }

    /// Sends all; how many datagrams the kernel refused. It refuses for want of
    /// room in the socket, or since a client is not to be reached: either way a
    /// later packet is worth more than this one.
    pub fn flush(&mut self) -> u64 {
        let (mut done, mut refused) = (0, 0);
        while done < self.items.len() {
            let slots = self.bytes.chunks(MAX_DATAGRAM).zip(&self.items).skip(done);
            let items = slots.map(|(bytes, item)| TxItem {
                to: item.to,
                dscp: item.dscp,
                segment: None,
                bytes: &bytes[..item.len],
            });
            match self.tx.send(self.socket.as_fd(), items) {
                Ok(n) => done += n.max(1),
                Err(_) => {
                    refused += 1;
                    done += 1;
                }
            }
        }
        self.items.clear();
        refused
    }
}
