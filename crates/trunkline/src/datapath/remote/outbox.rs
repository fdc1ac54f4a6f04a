use crate::datapath::mmsg::{BATCH, TxBatch, TxItem};
use arrayvec::ArrayVec;
use socket2::Socket;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use trunkline_overlay::session::remote::{DATAGRAM_HEAD, Keys, MAX_DATAGRAM, TAG};

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
    /// Creates an outbox that sends through `socket`.
    pub fn new(socket: Socket) -> Outbox {
        let bytes = vec![0; BATCH * MAX_DATAGRAM].into();
        Outbox { socket, tx: TxBatch::new(), bytes, items: ArrayVec::new() }
    }

    /// Adds a datagram of at most [`MAX_DATAGRAM`] bytes, sealed with `keys`. If there is no room
    /// for it, all earlier ones are sent first. Returns the number of datagrams that the kernel
    /// refused.
    pub fn post(
        &mut self,
        to: SocketAddr,
        dscp: u8,
        keys: &Keys,
        head: &[u8; DATAGRAM_HEAD],
        message: [&[u8]; 2],
    ) -> u64 {
        let refused = if self.items.is_full() { self.flush() } else { 0 };
        let slot = &mut self.bytes[self.items.len() * MAX_DATAGRAM..][..MAX_DATAGRAM];
        let len = match write(slot, keys, head, message) {
            Some(len) => len,
            None => return refused + 1,
        };
        self.items.push(Item { to, dscp, len });
        refused
    }

    /// Sends all datagrams. Returns the number that the kernel refused, because the socket was full
    /// or the client is unreachable: either way a later packet is worth more than a retry.
    pub fn flush(&mut self) -> u64 {
        let (mut done, mut refused) = (0, 0);
        while done < self.items.len() {
            let slots = self.bytes.chunks(MAX_DATAGRAM).zip(&self.items).skip(done);
            let items = slots.map(|(bytes, item)| TxItem {
                dscp: Some(item.dscp),
                ..TxItem::new(item.to, &bytes[..item.len])
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

/// Writes a datagram into `slot` and returns its length; `None` if it doesn't fit or its keys are
/// used up.
fn write(
    slot: &mut [u8],
    keys: &Keys,
    head: &[u8; DATAGRAM_HEAD],
    message: [&[u8]; 2],
) -> Option<usize> {
    let mut len = DATAGRAM_HEAD;
    slot.get_mut(..len)?.copy_from_slice(head);
    for part in message {
        slot.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    let (message, rest) = slot.split_at_mut(len);
    let tag = keys.seal_datagram(head, &mut message[DATAGRAM_HEAD..])?;
    rest.get_mut(..TAG)?.copy_from_slice(&tag);
    Some(len + TAG)
}
