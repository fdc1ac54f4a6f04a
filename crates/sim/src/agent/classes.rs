//! What a node's envelope counts as.

use crate::places::HostId;
use crate::world::World;
use trunkline_net::Class;
use trunkline_overlay::wire::{ENVELOPE_OVERHEAD, Kind};

/// Where frames begin in an envelope: its index and counter are before them.
const FRAMES: usize = 8;

/// Whether an envelope that is not sealed begins with the frame of a packet,
/// whose service is in the upper two bits; 0 is control's. What is sealed can't
/// be told apart and counts as a packet; a handshake is none.
pub fn carries_packet(envelope: &[u8]) -> bool {
    match Kind::of(envelope) {
        Ok(Kind::Null) if envelope.len() > ENVELOPE_OVERHEAD => envelope[FRAMES] >> 6 != 0,
        Ok(kind) => !kind.is_handshake(),
        Err(_) => false,
    }
}

impl World {
    /// Counts in the ledgers of `class` from now on what the node of `host` sends
    /// without a packet: hellos, requests, routing. What shares a packet's datagram
    /// counts with the packet, in the node's own class
    /// ([`World::set_class`]); of a sealed node only its handshakes are seen.
    ///
    /// # Panics
    ///
    /// If the host has no node.
    pub fn set_control_class(&mut self, host: HostId, class: Class) {
        self.call_node(host, |node, _| node.control = Some(class));
    }
}
