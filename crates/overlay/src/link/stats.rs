//! What a link counts, for people to look at. Nothing of it steers the link: what
//! counts ([`Tally`]) can't be read there, and what is read ([`LinkStats`]) is a copy.

use super::Sent;
use crate::counters::{Drops, ReceiverStats, Traffic};
use crate::wire::Service;

/// What a link has sent and received.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// Envelopes received, of whatever kind.
    pub received: Traffic,
    /// Hellos and goodbyes sent. Those in envelopes of real-time packets count
    /// here with their own bytes, and with no envelope.
    pub hellos: Traffic,
    /// Routing frames sent.
    pub routing: Traffic,
    /// Challenges of addresses and their answers sent, and copies to an address
    /// that is being asked.
    pub paths: Traffic,
    /// What was dropped, by reason.
    pub drops: Drops,
    /// Starts of the neighbour after the first one heard.
    pub restarts: u64,
    /// How often the link went down.
    pub downs: u64,
    /// How many times of these because the neighbour said that it stops.
    pub goodbyes: u64,
    services: [ServiceStats; Service::COUNT],
}

/// What one service of a link has sent and received.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ServiceStats {
    /// Packets sent the first time.
    pub originals: Traffic,
    /// Packets sent again, as the neighbour asked.
    pub retransmissions: Traffic,
    /// Its control frames sent: retransmission requests.
    pub requests: Traffic,
    /// The receiving half, of a service that looks for what is missing.
    pub receiver: Option<ReceiverStats>,
}

impl LinkStats {
    /// What one service has sent and received.
    pub fn of(&self, service: Service) -> ServiceStats {
        self.services[service.index()]
    }

    /// Envelopes sent, of whatever kind.
    pub fn sent(&self) -> Traffic {
        let of_services =
            self.services.iter().flat_map(|s| [s.originals, s.retransmissions, s.requests]);
        let all = [self.hellos, self.routing, self.paths].into_iter().chain(of_services);
        all.fold(Traffic::default(), |sum, t| Traffic {
            envelopes: sum.envelopes + t.envelopes,
            bytes: sum.bytes + t.bytes,
        })
    }
}

/// Counts, and doesn't say how far it is.
#[derive(Default, Debug)]
pub(super) struct Tally(LinkStats);

impl Tally {
    /// For [`Link::stats`](super::Link::stats), and for nobody who decides anything.
    pub fn copy(&self, receivers: [Option<ReceiverStats>; Service::COUNT]) -> LinkStats {
        let mut stats = self.0.clone();
        for (service, receiver) in stats.services.iter_mut().zip(receivers) {
            service.receiver = receiver;
        }
        stats
    }

    pub fn received(&mut self, bytes: usize) {
        self.0.received.count(bytes);
    }

    /// A hello or goodbye in an envelope of its own.
    pub fn hello(&mut self, bytes: usize) {
        self.0.hellos.count(bytes);
    }

    /// A hello behind a packet.
    pub fn rider(&mut self, bytes: usize) {
        self.0.hellos.bytes += bytes as u64;
    }

    pub fn routing(&mut self, bytes: usize) {
        self.0.routing.count(bytes);
    }

    pub fn path(&mut self, bytes: usize) {
        self.0.paths.count(bytes);
    }

    /// An envelope with a packet of the service in this place.
    pub fn packet(&mut self, place: usize, sent: Sent, bytes: usize) {
        let service = &mut self.0.services[place];
        match sent {
            Sent::Original => service.originals.count(bytes),
            Sent::Retransmit => service.retransmissions.count(bytes),
        }
    }

    /// An envelope with control frames of the service in this place.
    pub fn request(&mut self, place: usize, bytes: usize) {
        self.0.services[place].requests.count(bytes);
    }

    /// Control frames of the service in this place, behind one of its packets.
    pub fn request_rider(&mut self, place: usize, bytes: usize) {
        self.0.services[place].requests.bytes += bytes as u64;
    }

    pub fn restart(&mut self) {
        self.0.restarts += 1;
    }

    pub fn down(&mut self) {
        self.0.downs += 1;
    }

    pub fn goodbye(&mut self) {
        self.0.goodbyes += 1;
    }

    /// Where who drops something counts it.
    pub fn drops(&mut self) -> &mut Drops {
        &mut self.0.drops
    }
}
