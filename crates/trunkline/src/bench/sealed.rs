//! The load's end of a sealed link: the neighbour's handshake and keys.

use super::{Error, cannot};
use crate::clock;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use trunkline_overlay::handshake::{Config, Event, Handshakes, Limits, Offer, Peer};
use trunkline_overlay::identity::{Identity, Trust};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::Start;
use trunkline_overlay::wire::{ENVELOPE_OVERHEAD, Incarnation, Kind, NodeId, Seal, Sealed};

/// A node's key, derived from its number: for benchmarks only, since it is public.
pub fn identity(node: NodeId) -> Identity {
    Identity::from_secret(&[node.0 as u8; 32])
}

/// Makes `own` a neighbour of `node`, which listens at `entry`, over `socket`. Returns the seal
/// that seals envelopes to the node and opens its envelopes.
pub fn shake(
    socket: &UdpSocket,
    own: NodeId,
    node: NodeId,
    entry: SocketAddr,
) -> Result<Seal, Error> {
    let start = clock::now();
    let incarnation = Incarnation(clock::since_epoch());
    let mut handshakes = Handshakes::new(
        Config {
            node: own,
            identity: identity(own),
            certificate: None,
            trust: Trust::default(),
            incarnation,
            offer: Offer::default(),
            limits: Limits::default(),
        },
        Start::simulated(start, incarnation, own.0.into()).entropy,
    );
    let key = Some(identity(node).public());
    let peer = Peer { node, path: String::new(), key, address: Some(entry), mtu: 1_280 };
    handshakes.add(LinkId(0), peer, start);
    let mut bytes = [0; 2_048];
    while clock::now().since(start) < Duration::from_secs(5) {
        let now = clock::now();
        handshakes.handle_timeout(now);
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            if Kind::of(&bytes[..n]).is_ok_and(Kind::is_handshake) {
                handshakes.recv(now, 0, from, &bytes[..n]);
            }
        }
        while let Some(event) = handshakes.poll() {
            match event {
                Event::Send { to, bytes, .. } => {
                    socket.send_to(&bytes, to.address()).map_err(cannot("send a handshake"))?;
                }
                Event::Established(established) => {
                    let mut sealed = Sealed::new();
                    sealed.install(established.keys, now);
                    let mut seal = Seal::Aead(Box::new(sealed));
                    // The node uses the keys once it has received an envelope sealed with them.
                    let mut empty = [0; ENVELOPE_OVERHEAD];
                    seal.seal(&mut empty);
                    socket.send_to(&empty, entry).map_err(cannot("send an envelope"))?;
                    return Ok(seal);
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::Broken("the node does not answer handshakes"))
}
