//! Classification of a node's envelopes.

use crate::endpoints::HostId;
use crate::world::World;
use trunkline_net::Class;
use trunkline_overlay::wire::{ENVELOPE_OVERHEAD, Kind};

/// Offset of the frames in an envelope, behind its index and counter.
const FRAMES: usize = 8;

/// Whether an unsealed envelope begins with the frame of a packet, which has a non-zero service in
/// the upper two bits. Sealed envelopes can't be told apart and count as packets; handshakes don't.
pub fn carries_packet(envelope: &[u8]) -> bool {
    match Kind::of(envelope) {
        Ok(Kind::Null) if envelope.len() > ENVELOPE_OVERHEAD => envelope[FRAMES] >> 6 != 0,
        Ok(kind) => !kind.is_handshake(),
        Err(_) => false,
    }
}

impl World {
    /// From now on, counts datagrams that the node of `host` sends without a packet (hellos,
    /// requests, routing) in the ledgers of `class`. Frames that share a packet's datagram count
    /// with the packet, in the node's regular class ([`World::set_class`]). Of a sealed node, only
    /// handshakes are recognised.
    ///
    /// # Panics
    ///
    /// If the host has no node.
    pub fn set_control_class(&mut self, host: HostId, class: Class) {
        self.call_node(host, |node, _| node.control = Some(class));
    }
}
