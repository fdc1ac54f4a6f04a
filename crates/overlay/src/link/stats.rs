//! Statistics of a link, for display. They are write-only: the link cannot read its counters
//! ([`Tally`]), and readers get a copy ([`LinkStats`]).

use super::Sent;
use crate::counters::{Drops, ReceiverStats, Traffic};
use crate::wire::Service;

/// Traffic and events of a link since its start.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// Envelopes received, of any kind.
    pub received: Traffic,
    /// Hellos and goodbyes sent. Those in envelopes of real-time packets are counted by their bytes
    /// alone, without an envelope.
    pub hellos: Traffic,
    /// Envelopes of routing frames sent.
    pub routing: Traffic,
    /// Address challenges and responses sent, and copies to an address that is being validated.
    pub paths: Traffic,
    /// Drops, by their reason.
    pub drops: Drops,
    /// Starts of the neighbour after the first one seen.
    pub restarts: u64,
    /// Number of times that the link went down.
    pub downs: u64,
    /// How many of these were due to a goodbye of the neighbour.
    pub goodbyes: u64,
    services: [ServiceStats; Service::COUNT],
}

/// Traffic of one service of a link.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ServiceStats {
    /// Packets sent for the first time.
    pub originals: Traffic,
    /// Packets retransmitted at the neighbour's request.
    pub retransmissions: Traffic,
    /// Control frames sent: requests and acknowledgements.
    pub requests: Traffic,
    /// Counters of the receiving half, for a service that detects missing packets.
    pub receiver: Option<ReceiverStats>,
}

impl LinkStats {
    /// Traffic of one service since the start.
    pub fn of(&self, service: Service) -> ServiceStats {
        self.services[service.index()]
    }

    /// Envelopes sent, of any kind.
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

/// Counters that the link can only write.
#[derive(Default, Debug)]
pub(super) struct Tally(LinkStats);

impl Tally {
    /// The copy for [`Link::stats`](super::Link::stats); no decision may depend on it.
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

    /// Counts a hello or goodbye in an envelope of its own.
    pub fn hello(&mut self, bytes: usize) {
        self.0.hellos.count(bytes);
    }

    /// Counts a hello that follows a packet.
    pub fn rider(&mut self, bytes: usize) {
        self.0.hellos.bytes += bytes as u64;
    }

    pub fn routing(&mut self, bytes: usize) {
        self.0.routing.count(bytes);
    }

    pub fn path(&mut self, bytes: usize) {
        self.0.paths.count(bytes);
    }

    /// Counts an envelope with a packet of the service at `place`.
    pub fn packet(&mut self, place: usize, sent: Sent, bytes: usize) {
        let service = &mut self.0.services[place];
        match sent {
            Sent::Original => service.originals.count(bytes),
            Sent::Retransmit => service.retransmissions.count(bytes),
        }
    }

    /// Counts an envelope with control frames of the service at `place`.
    pub fn request(&mut self, place: usize, bytes: usize) {
        self.0.services[place].requests.count(bytes);
    }

    /// Counts control frames of the service at `place` that follow one of its packets.
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

    /// Counters for the code that drops something.
    pub fn drops(&mut self) -> &mut Drops {
        &mut self.0.drops
    }
}
